/*
 * A host is told of each recording, and asked once before a chunk's first.
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/by_hand.h"
#include "tap/tap.h"

#include <string.h>

/* What the host was told, one letter each. */
static struct {
    gh_status answer; /* of before_recording */
    char order[32];
    gh_recording before, begun, ended;
    uint32_t kept;
    bool captured; /* the stream, when before_recording was called */
} told;

static void note(char letter)
{
    const size_t n = strlen(told.order);

    if (n + 1 < sizeof(told.order)) {
        told.order[n] = letter;
    }
}

static gh_status before_recording(void *user, const gh_recording *recording)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;

    (void)user;
    note('b');
    told.before = *recording;
    toy.drv.cuStreamIsCapturing(recording->stream, &status);
    told.captured = status != CU_STREAM_CAPTURE_STATUS_NONE;
    return told.answer;
}

static gh_status record_begin(void *user, const gh_recording *recording)
{
    (void)user;
    note('r');
    told.begun = *recording;
    return GH_OK;
}

static void record_end(void *user, const gh_recording *recording, uint32_t kept)
{
    (void)user;
    note('R');
    told.ended = *recording;
    told.kept = kept;
}

static const gh_host_services host = { .struct_size = sizeof(host),
                                       .record_begin = record_begin,
                                       .record_end = record_end,
                                       .before_recording = before_recording };

static bool start_host(struct toy_options options)
{
    memset(&told, 0, sizeof(told));
    options.host = &host;
    return start(options);
}

static bool is_told(const gh_recording *r, const gh_pass *pass, uint32_t slot,
                    uint32_t chunk)
{
    return r->struct_size == sizeof(*r) && r->slot == slot &&
           r->segment == pass->segment && r->direction == pass->direction &&
           r->variant == pass->variant && r->bank == 0 && r->chunk == chunk &&
           r->reserved == 0 && r->stream == pass->stream;
}

static void record_as(gh_pass pass, uint32_t slot, uint32_t chunk,
                      const char *name)
{
    gh_decision d;

    told.kept = 0;
    pass_once(&pass, &no_io, &d);
    ok(is_told(&told.begun, &pass, slot, chunk),
       "record_begin is told of %s", name);
    ok(is_told(&told.ended, &pass, slot, chunk) && told.kept == 1,
       "and record_end of the same recording, which was kept");
}

static void test_what_is_told(void)
{
    gh_pass pass;

    if (!start_host((struct toy_options){ .layers = 2, .chunks = 2 })) {
        return;
    }
    record_as(a_pass(0, GH_FORWARD, 0, toy.streams[0], &no_io), 0, 0,
              "a forward");
    record_as(a_pass(0, GH_FORWARD, 1, toy.streams[1], &no_io), 1, 0,
              "another slot and stream");
    record_as(a_pass(1, GH_FORWARD, 1, toy.streams[1], &no_io), 0, 1,
              "another segment, of another chunk");
    pass = a_pass(1, GH_BACKWARD, 1, toy.streams[1], &no_io);
    pass.variant = 1;
    record_as(pass, 0, 1, "a backward of the other variant");
    toy_close(&toy);
}

/* The legacy stream cannot be captured: another one is. */
static void test_the_stream_that_is_captured(void)
{
    if (!start_host((struct toy_options){ .layers = 1, .legacy = true })) {
        return;
    }
    run(0, GH_FORWARD, 0, NULL);
    ok(told.begun.stream != NULL && told.before.stream == told.begun.stream,
       "of a pass on the legacy stream the stream of its capture is told");
    toy_close(&toy);
}

static void test_once_for_each_chunk(void)
{
    gh_pass pass;

    if (!start_host((struct toy_options){ .layers = 4, .chunks = 2 })) {
        return;
    }
    pass = a_pass(0, GH_FORWARD, 0, toy.streams[0], &no_io);
    run(0, GH_FORWARD, 0, toy.streams[0]);
    ok(is_told(&told.before, &pass, 0, 0),
       "before_recording is told of the recording that comes");
    ok(!told.captured, "whose stream is not captured yet");
    is_str(told.order, "brR", "it comes before record_begin");
    run(1, GH_FORWARD, 0, toy.streams[0]);
    is_str(told.order, "brRrR", "the next segment of the chunk is not asked");
    run(3, GH_FORWARD, 0, toy.streams[0]);
    is_str(told.order, "brRrRbrR", "another chunk is");
    is_int(told.before.chunk, 1, "and named");
    run(2, GH_FORWARD, 1, toy.streams[1]);
    run(0, GH_FORWARD, 1, toy.streams[1]);
    is_str(told.order, "brRrRbrRrRrR", "and none is asked twice");
    toy_close(&toy);
}

static void test_a_refusal(void)
{
    gh_decision d;

    if (!start_host((struct toy_options){ .layers = 2, .chunks = 2 })) {
        return;
    }
    told.answer = GH_ERR_NO_MEMORY;
    d = run(0, GH_FORWARD, 0, toy.streams[0]);
    is_int(d.action, GH_ACTION_RUN,
           "a pass that before_recording refuses runs eagerly");
    is_int(d.reason, GH_REASON_CAPTURE, "as one whose capture failed");
    told.answer = GH_OK;
    d = run(0, GH_BACKWARD, 0, toy.streams[0]);
    is_int(d.action, GH_ACTION_RUN, "so does the next one of the chunk");
    is_str(told.order, "b", "and the host is not asked again");
    gh_iteration_end(toy.session, NULL);
    is_int(run(0, GH_FORWARD, 0, toy.streams[0]).reason, GH_REASON_CAPTURE,
           "the pass is eager for good");
    is_int(run(1, GH_FORWARD, 0, toy.streams[0]).action, GH_ACTION_RECORD,
           "another chunk is recorded");
    is_str(told.order, "bbrR", "being asked for by itself");
    toy_close(&toy);
}

static void test_what_a_refusal_says(void)
{
    gh_host_services refusing = hearing;

    refusing.before_recording = before_recording;
    memset(&told, 0, sizeof(told));
    told.answer = GH_ERR_NO_MEMORY;
    if (!start((struct toy_options){
            .layers = 1,
            .host = &refusing,
            .environment = (const char *const[]){ "GRAPHHOOKS_LOG=warn",
                                                  NULL } })) {
        return;
    }
    said[0] = '\0';
    run_both(0, toy.streams[0]);
    gh_iteration_end(toy.session, NULL);
    is_int(times_said("the host's before_recording: GH_ERR_NO_MEMORY"), 1,
           "the refusal of a chunk is said once: %s", said);
    toy_close(&toy);
}

/* ---- recordings that the host gives up ----------------------------------- */

static const char *const warning[] = { "GRAPHHOOKS_LOG=warn", NULL };

/* Steps of a forward of each segment, whose recordings the host gives up; it
 * runs the pass without them then. */
static void give_up_in(uint32_t steps, uint32_t segments)
{
    for (uint32_t step = 0; step < steps; step++) {
        for (uint32_t i = 0; i < segments; i++) {
            gh_pass pass = a_pass(i, GH_FORWARD, 0, toy.streams[0], &no_io);
            gh_decision d = { .struct_size = sizeof(d) };

            gh_layer_enter(toy.session, &pass, &d, &err);
            gh_layer_cancel(toy.session, NULL);
            gh_pre_warmup(toy.session, NULL);
            pass_once(&pass, &no_io, &d);
            gh_post_warmup(toy.session, NULL);
        }
        gh_iteration_end(toy.session, NULL);
    }
}

static void test_recordings_that_never_end_well(void)
{
    if (!start((struct toy_options){ .layers = 3, .host = &hearing,
                                     .environment = warning })) {
        return;
    }
    said[0] = '\0';
    give_up_in(3, 3);
    is_int(times_said("not been recorded"), 0,
           "three steps without a recording may be by chance");
    run(2, GH_FORWARD, 0, toy.streams[0]);
    gh_iteration_end(toy.session, NULL);
    give_up_in(1, 2);
    is_int(times_said("layer 0 attn..mlp forward, slot 0, and 1 other pass "
                      "have not been recorded in 4 steps: the host has given "
                      "up each recording"),
           1, "after the fourth the passes are named, and what ends them: %s",
           said);
    give_up_in(6, 2);
    is_int(times_said("not been recorded"), 1, "once");
    toy_close(&toy);
}

/* One step may give a recording up for each of its microbatches. */
static void test_steps_count_once(void)
{
    if (!start((struct toy_options){ .layers = 1, .host = &hearing,
                                     .environment = warning })) {
        return;
    }
    said[0] = '\0';
    for (uint32_t i = 0; i < 8; i++) {
        gh_pass pass = a_pass(0, GH_FORWARD, 0, toy.streams[0], &no_io);
        gh_decision d = { .struct_size = sizeof(d) };

        gh_layer_enter(toy.session, &pass, &d, &err);
        gh_layer_cancel(toy.session, NULL);
    }
    gh_iteration_end(toy.session, NULL);
    is_int(times_said("not been recorded"), 0,
           "eight times in one step are one step");
    toy_close(&toy);
}

/* What the host's function answers in a recording, and in an eager pass. */
static struct {
    gh_status recording, eager;
    bool cancels;
    uint32_t n_recordings, n_eager;
} answers;

static gh_status answer(void *user, gh_pass *pass, const gh_decision *d,
                        gh_error *why)
{
    (void)user;
    (void)pass;
    work(d, &no_io);
    if (d->action != GH_ACTION_RECORD) {
        answers.n_eager++;
        return answers.eager;
    }
    answers.n_recordings++;
    snprintf(why->text, sizeof(why->text), "no room for it");
    if (answers.cancels) {
        gh_layer_cancel(toy.session, NULL);
    }
    return answers.recording;
}

/* A forward of layer 0 in each of so many steps; the first status that is not
 * GH_OK. */
static gh_status run_steps(uint32_t steps, gh_decision *d)
{
    gh_status status = GH_OK;

    for (uint32_t i = 0; i < steps && status == GH_OK; i++) {
        gh_pass pass = a_pass(0, GH_FORWARD, 0, toy.streams[0], &no_io);

        *d = (gh_decision){ .struct_size = sizeof(*d) };
        status = gh_run_pass(toy.session, &pass, answer, NULL, d, &err);
        gh_iteration_end(toy.session, NULL);
    }
    return status;
}

static void test_a_function_that_fails_in_recordings(gh_status recording,
                                                     bool cancels)
{
    const char *why;
    char text[128];
    gh_decision d;

    memset(&answers, 0, sizeof(answers));
    if (!start((struct toy_options){
            .layers = 1, .host = &hearing, .environment = warning })) {
        return;
    }
    said[0] = '\0';
    answers.recording = recording;
    answers.cancels = cancels;
    is_status(run_steps(1, &d), GH_OK, &err,
              "a recording in which the host "
              "returns %d%s is run eagerly",
              recording, cancels ? " after gh_layer_cancel" : "");
    is_int(d.action, GH_ACTION_RUN, "as the decision says");
    is_int(d.reason, GH_REASON_WARMUP, "which leaves it to a later step");
    is_status(run_steps(5, &d), GH_OK, &err, "five more steps");
    is_int(answers.n_recordings, recording == GH_RERUN ? 4 : 2,
           "the pass is recorded in two of them, and no more");
    is_int(answers.n_eager, 6, "and runs eagerly once in each step");
    is_int(d.reason, GH_REASON_CAPTURE, "for a reason that stays");
    why = recording == GH_RERUN ? "gh_run_pass: issue returned 1 once more"
                                : "no room";
    snprintf(text, sizeof(text), "in this step, to be recorded once more: %s",
             why);
    is_int(times_said(text), 1, "both are said with what the host gave: %s",
           said);
    snprintf(text, sizeof(text), "runs eagerly from now on: %s", why);
    is_int(times_said(text), 1, "the second as well");
    toy_close(&toy);
}

/* One that fails once, as where a library sets itself up in its first call. */
static void test_a_function_that_fails_once(void)
{
    gh_decision d;

    memset(&answers, 0, sizeof(answers));
    if (!start((struct toy_options){ .layers = 1 })) {
        return;
    }
    answers.recording = GH_ERR_DEVICE;
    run_steps(1, &d);
    answers.recording = GH_OK;
    is_status(run_steps(2, &d), GH_OK, &err, "two more steps");
    is_int(d.action, GH_ACTION_REPLAYED,
           "a pass whose recording the host has failed in once is replayed");
    toy_close(&toy);
}

static void test_a_function_that_asks_for_ever(void)
{
    gh_decision d;

    memset(&answers, 0, sizeof(answers));
    if (!start((struct toy_options){ .layers = 1 })) {
        return;
    }
    answers.recording = answers.eager = GH_RERUN;
    is_status(run_steps(1, &d), GH_ERR_INVALID, &err,
              "a function that always returns GH_RERUN is refused");
    is_int(answers.n_recordings, 2, "after a second recording");
    is_int(answers.n_eager, 1, "in the pass that runs eagerly");
    answers.recording = answers.eager = GH_OK;
    is_status(run_steps(1, &d), GH_OK, &err, "and no pass is left open");
    toy_close(&toy);
}

static gh_status run_another(void *user, gh_pass *pass, const gh_decision *d,
                             gh_error *why)
{
    gh_pass other = *pass;
    gh_decision of_other;

    (void)user;
    (void)why;
    if (d->action != GH_ACTION_RECORD) {
        return GH_OK;
    }
    answers.n_recordings++;
    gh_layer_cancel(toy.session, NULL);
    other.microbatch = 1;
    other.flags = GH_PASS_FORWARD_ONLY;
    pass_once(&other, &no_io, &of_other);
    return GH_ERR_DEVICE;
}

static void test_a_function_that_runs_another_pass(void)
{
    memset(&answers, 0, sizeof(answers));
    if (!start((struct toy_options){ .layers = 1 })) {
        return;
    }
    for (uint32_t i = 0; i < 4; i++) {
        gh_pass pass = a_pass(0, GH_FORWARD, 0, toy.streams[0], &no_io);
        gh_decision d = { .struct_size = sizeof(d) };

        is_status(gh_run_pass(toy.session, &pass, run_another, NULL, &d, &err),
                  GH_OK, &err,
                  "another pass may be run before a recording "
                  "is failed");
        gh_iteration_end(toy.session, NULL);
    }
    is_int(answers.n_recordings, 2, "and the one that has failed is noted");
    toy_close(&toy);
}

static const char *const strict[] = { "GRAPHHOOKS_STRICT=1", NULL };

static void test_what_strict_sees(void)
{
    gh_decision d;

    memset(&answers, 0, sizeof(answers));
    if (!start((struct toy_options){
            .layers = 1, .host = &hearing, .environment = strict })) {
        return;
    }
    answers.recording = GH_ERR_DEVICE;
    is_status(run_steps(2, &d), GH_ERR_UNSUPPORTED, &err,
              "GRAPHHOOKS_STRICT reports a pass whose recordings the host "
              "fails in");
    toy_close(&toy);
}

static void test_a_preparation_that_fails(void)
{
    gh_pass pass;
    gh_decision d;

    memset(&answers, 0, sizeof(answers));
    if (!start((struct toy_options){ .layers = 1, .environment = strict })) {
        return;
    }
    answers.recording = GH_ERR_DEVICE;
    for (uint32_t i = 0; i < 3; i++) {
        run(0, GH_FORWARD, 0, NULL);
        pass = a_pass(0, GH_BACKWARD, 0, toy.streams[0], &no_io);
        pass.flags = GH_PASS_PREPARE;
        d = (gh_decision){ .struct_size = sizeof(d) };
        is_status(gh_run_pass(toy.session, &pass, answer, NULL, &d, &err),
                  GH_OK, &err, "what could not be prepared is no failure");
        ok(d.action == GH_ACTION_RUN && answers.n_eager == 0 &&
               d.reason == (i == 0 ? GH_REASON_WARMUP : GH_REASON_CAPTURE),
           "the decision says so, and nothing is run");
        gh_iteration_end(toy.session, NULL);
    }
    toy_close(&toy);
}

int main(void)
{
    const char *reason;

    if (!toy_probe(&toy, &reason)) {
        return skip_all("%s", reason);
    }
    test_what_is_told();
    test_the_stream_that_is_captured();
    test_once_for_each_chunk();
    test_a_refusal();
    test_what_a_refusal_says();
    test_recordings_that_never_end_well();
    test_steps_count_once();
    test_a_function_that_fails_in_recordings(GH_ERR_DEVICE, false);
    test_a_function_that_fails_in_recordings(GH_ERR_DEVICE, true);
    test_a_function_that_fails_in_recordings(GH_RERUN, true);
    test_a_function_that_fails_once();
    test_a_function_that_asks_for_ever();
    test_a_function_that_runs_another_pass();
    test_what_strict_sees();
    test_a_preparation_that_fails();
    return done_testing();
}
