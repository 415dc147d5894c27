/*
 * The ranks of a bank record, replay and fall back together, and ask each other
 * only where they could part.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tests/session/ranks/sharer.h"

#include <stdlib.h>
#include <string.h>

static const struct sharer_options plain;

static void test_all_replay(struct rank *r)
{
    struct sharer s;
    uint64_t asked;

    if (!sharer_open(&s, r, &plain)) {
        return;
    }
    says_int(r, (long long)sharer_stats(&s).agreements, 0,
             "warmup asks nobody");
    says(r, sharer_is_exact(&s), "a recorded step is right");
    asked = sharer_stats(&s).agreements;
    says_int(r, (long long)asked, 2 * SHARER_PASSES,
             "a recording asks at its beginning and at its end");
    for (uint32_t i = 0; i < 5; i++) {
        says(r, sharer_is_exact(&s), "replayed step %u is right", i);
    }
    says_int(r, s.replayed, 5 * SHARER_PASSES, "all its passes are replayed");
    says_int(r, (long long)sharer_stats(&s).agreements, (long long)asked,
             "which asks nobody");
    sharer_close(&s);
}

/* Ends the capture of one rank by a call that it does not allow. */
static void break_capture(struct sharer *s, const gh_pass *pass,
                          const gh_decision *d)
{
    if (d->action == GH_ACTION_RECORD && s->r->rank == s->r->n - 1 &&
        pass->segment == 1 && pass->direction == GH_FORWARD) {
        drv.cuStreamSynchronize(d->stream);
    }
}

static void test_a_capture_fails_on_one(struct rank *r)
{
    const struct sharer_options options = { .mischief = break_capture };
    const bool fails = r->rank == r->n - 1;
    struct sharer s;

    if (!sharer_open(&s, r, &options)) {
        return;
    }
    for (uint32_t i = 0; i < 4; i++) {
        says(r, sharer_is_exact(&s), "step %u is right", i);
    }
    says_int(r, s.reruns, 1, "the pass ran again, on all ranks");
    says_int(r, (long long)sharer_eager(&s, fails ? GH_REASON_CAPTURE
                                                  : GH_REASON_RANKS),
             4, "and is eager, by its reason");
    says_int(r, s.replayed, 3 * (SHARER_PASSES - 1), "the others are replayed");
    says(r, sharer_said(&s, fails ? "cuStreamEndCapture" : "could not record"),
         "which is said: %.120s", s.said);
    sharer_close(&s);
}

static gh_status refuse_to_record(void *user, const gh_recording *recording)
{
    struct sharer *s = user;

    return recording->segment == 0 && s->r->rank == 0 ? GH_ERR_NO_MEMORY
                                                      : GH_OK;
}

static void ignore_end(void *user, const gh_recording *recording, uint32_t kept)
{
    (void)user;
    (void)recording;
    (void)kept;
}

static void test_a_recording_cannot_begin_on_one(struct rank *r)
{
    const gh_host_services host = { .record_begin = refuse_to_record,
                                    .record_end = ignore_end,
                                    .before_recording = NULL };
    const struct sharer_options options = { .host = &host };
    struct sharer s;
    uint64_t asked;

    if (!sharer_open(&s, r, &options)) {
        return;
    }
    says(r, sharer_is_exact(&s), "the step that records is right");
    asked = sharer_stats(&s).agreements;
    for (uint32_t i = 0; i < 3; i++) {
        says(r, sharer_is_exact(&s), "step %u after it is right", i);
    }
    says_int(r, (long long)sharer_stats(&s).agreements, (long long)asked,
             "none of them asks again");
    says_int(r, s.reruns, 0, "nothing had to run again");
    says_int(r, s.recorded, 2, "the passes of one segment are recorded");
    says_int(r, s.replayed, 3 * 2, "and replayed");
    says(r, r->rank == 0 ? sharer_eager(&s, GH_REASON_DEVICE) == 4 * 2
                         : sharer_eager(&s, GH_REASON_RANKS) == 4 * 2,
         "the others' are eager on all ranks");
    sharer_close(&s);
}

/* With a larger input than the graph has: all ranks alike, or one alone. */
static void test_all_leave(struct rank *r)
{
    struct sharer s;
    uint64_t asked;

    if (!sharer_open(&s, r, &plain)) {
        return;
    }
    says(r, sharer_is_exact(&s) && sharer_is_exact(&s), "two steps are right");
    asked = sharer_stats(&s).agreements;
    s.floats = SHARER_FLOATS / 2;
    says(r, sharer_is_exact(&s), "a step of another size is right");
    says_int(r, (long long)sharer_eager(&s, GH_REASON_INPUT), SHARER_PASSES,
             "it is eager");
    says_int(r, (long long)(sharer_stats(&s).agreements - asked), SHARER_PASSES,
             "each of its passes asks once");
    s.floats = SHARER_FLOATS;
    says(r, sharer_is_exact(&s), "the next one is right");
    says_int(r, s.replayed, 2 * SHARER_PASSES, "and replayed");
    sharer_close(&s);
}

/* The host of one rank gives a recording up. */
static void test_one_cancels(struct rank *r)
{
    struct sharer s;

    if (!sharer_open(&s, r, &plain)) {
        return;
    }
    s.cancels = r->rank == 0;
    for (uint32_t i = 0; i < 3; i++) {
        says(r, sharer_is_exact(&s), "step %u is right", i);
    }
    says_int(r, s.replayed, 2 * (SHARER_PASSES - 1),
             "one pass is eager on all ranks");
    says_int(r, (long long)sharer_eager(&s, r->rank == 0 ? GH_REASON_CAPTURE
                                                         : GH_REASON_RANKS),
             3, "by its reason");
    sharer_close(&s);
}

/* One rank alone finds that a pass has another result than its graph. */
static void test_a_check_differs_on_one(struct rank *r)
{
    static const char *const checked[] = { "GRAPHHOOKS_TIMEOUT=20",
                                           "GRAPHHOOKS_CHECK=bitwise", NULL };
    const struct sharer_options options = { .environment = checked };
    const bool lies = r->rank == r->n - 1;
    struct sharer s;

    if (!sharer_open(&s, r, &options)) {
        return;
    }
    says(r, sharer_is_exact(&s) && sharer_is_exact(&s), "both ways are alike");
    says_int(r, s.recorded, SHARER_PASSES, "all passes have graphs");
    s.lies = lies;
    sharer_step(&s, 1);
    gh_ranks_wait(s.session, r->stream, NULL);
    s.lies = false;
    says(r, sharer_is_exact(&s), "and a step after one with a difference");
    says_int(r, s.last, lies ? GH_REASON_MISMATCH : GH_REASON_RANKS,
             "all its passes are eager, on all ranks");
    sharer_close(&s);
}

static const char *const compared[] = { "GRAPHHOOKS_TIMEOUT=20",
                                        "GRAPHHOOKS_CHECK=ranks", NULL };

/* One rank alone cannot replay: nobody does, and it is named. */
static void test_ranks_are_compared(struct rank *r)
{
    const struct sharer_options options = { .environment = compared,
                                            .fixed = true };
    struct sharer s;

    if (!sharer_open(&s, r, &options)) {
        return;
    }
    says(r, sharer_is_exact(&s) && sharer_is_exact(&s), "steps are right");
    says_int(r, (long long)sharer_stats(&s).checks, 3 * SHARER_PASSES,
             "every pass was compared");
    says_int(r, (long long)sharer_stats(&s).check_failures, 0,
             "without a difference");
    s.moved = r->rank == r->n - 1;
    says(r, sharer_is_exact(&s), "a step that one rank cannot replay is right");
    says_int(r, (long long)sharer_stats(&s).check_failures, 1,
             "one pass has differed");
    says_int(r, (long long)sharer_eager(&s, s.moved ? GH_REASON_INPUT
                                                    : GH_REASON_RANKS),
             1, "and was eager on all ranks");
    says(r, strstr(s.said, "in step 3 at layer 0") != NULL &&
                strstr(s.said, "rank 0 replays (none)") != NULL &&
                strstr(s.said, "runs eagerly (input)") != NULL,
         "it is named: %.150s", strstr(s.said, "part in"));
    s.moved = 0;
    says(r, sharer_is_exact(&s), "the next one is right");
    says_int(r, s.last, GH_REASON_NONE, "and replayed");
    sharer_close(&s);
}

static void test_nobody_to_compare(struct rank *r)
{
    const struct sharer_options options = { .environment = compared,
                                            .alone = true };
    struct sharer s;

    if (sharer_open(&s, r, &options)) {
        says(r, sharer_is_exact(&s), "a step without ranks is right");
        gh_session_close(s.session);
        says(r, sharer_said(&s, "gh_ranks_set says which they are"),
             "a check that compares nothing says so");
        s.session = NULL;
    }
    sharer_close(&s);
}

static void test_the_host_brings_words(struct rank *r)
{
    const struct sharer_options options = { .by_host = true,
                                            .mischief = break_capture };
    struct sharer s;

    if (!sharer_open(&s, r, &options)) {
        return;
    }
    for (uint32_t i = 0; i < 3; i++) {
        says(r, sharer_is_exact(&s), "step %u is right", i);
    }
    says_int(r, s.replayed, 2 * (SHARER_PASSES - 1), "passes are replayed");
    says_int(r, s.reruns, 1, "but for the one that fails on one rank");
    sharer_close(&s);
}

/* An input of one rank is beyond its capacity: not now, and another time. */
static void test_one_cannot_record_now(struct rank *r)
{
    struct sharer s;

    if (!sharer_open(&s, r, &plain)) {
        return;
    }
    s.capacity = SHARER_FLOATS * sizeof(float);
    s.capacity -= r->rank == 0;
    says(r, sharer_is_exact(&s), "a step that one rank cannot record is right");
    says_int(r, s.recorded, 0, "none records it");
    says_int(r, s.last, r->rank == 0 ? GH_REASON_INPUT : GH_REASON_RANKS,
             "each by its reason");
    says(r, r->rank == 0 || sharer_said(&s, "rank 0 of its bank has no graph"),
         "which is said");
    s.capacity = SHARER_FLOATS * sizeof(float);
    says(r, sharer_is_exact(&s) && sharer_is_exact(&s), "the next are right");
    says_int(r, s.recorded, SHARER_PASSES, "and recorded");
    says_int(r, s.replayed, SHARER_PASSES, "and replayed");
    sharer_close(&s);
}

/* One rank has no room for a bank more: the bank has no graphs anywhere, and
 * none of the others gives way. */
static void test_one_has_no_room(struct rank *r)
{
    static const char *const two[] = { "GRAPHHOOKS_TIMEOUT=20",
                                       "GRAPHHOOKS_MAX_BANKS=1", NULL };
    const struct sharer_options options = { .environment = two };
    gh_bank_desc desc = { .struct_size = sizeof(desc), .name = "more" };
    gh_bank_stats stats = { .struct_size = sizeof(stats) };
    struct sharer s;

    if (!sharer_open(&s, r, &options)) {
        return;
    }
    says(r, sharer_is_exact(&s), "the first bank is recorded");
    gh_bank_add(s.session, &desc, &s.bank, &s.err);
    s.ranks.bank = s.bank;
    says_int(r, sharer_join(&s), GH_OK, "another bank has ranks: %s",
             s.err.text);
    says(r, sharer_is_exact(&s), "its step is right");
    says_int(r, s.last, GH_REASON_BANKS, "and eager");
    gh_bank_get_stats(s.session, 0, &stats, NULL);
    says_int(r, stats.graphs, SHARER_PASSES, "the first has its graphs still");
    s.bank = 0;
    says(r, sharer_is_exact(&s), "and a step of it is right");
    says_int(r, s.replayed, SHARER_PASSES, "and replayed");
    sharer_close(&s);
}

/* Its graphs are gone, so nothing is lost with it, however lately it ran. */
static void test_a_bank_without_its_ranks_gives_way(struct rank *r)
{
    static const char *const two[] = { "GRAPHHOOKS_TIMEOUT=20",
                                       "GRAPHHOOKS_MAX_BANKS=2", NULL };
    const struct sharer_options options = { .environment = two };
    gh_bank_desc desc = { .struct_size = sizeof(desc), .name = "local" };
    gh_bank_stats stats = { .struct_size = sizeof(stats) };
    uint32_t local = 0;
    struct sharer s;

    if (!sharer_open(&s, r, &options)) {
        return;
    }
    gh_bank_add(s.session, &desc, &local, &s.err);
    s.bank = local;
    says(r, sharer_is_exact(&s), "a bank without ranks is recorded");
    s.bank = 0;
    says(r, sharer_is_exact(&s), "and one with ranks after it");
    says_int(r, gh_ranks_clear(s.session, 0, &s.err), GH_OK,
             "which they leave: %s", s.err.text);
    desc.name = "more";
    gh_bank_add(s.session, &desc, &s.bank, &s.err);
    s.ranks.bank = s.bank;
    says_int(r, sharer_join(&s), GH_OK, "a third bank has ranks: %s",
             s.err.text);
    says(r, sharer_is_exact(&s), "it is right");
    says_int(r, s.recorded, 3 * SHARER_PASSES, "and recorded");
    gh_bank_get_stats(s.session, local, &stats, NULL);
    says_int(r, stats.graphs, SHARER_PASSES, "the one that ran first is there");
    sharer_close(&s);
}

static void test_a_local_pass_asks_nobody(struct rank *r)
{
    struct sharer s;

    if (!sharer_open(&s, r, &plain)) {
        return;
    }
    s.pass_flags = GH_PASS_LOCAL;
    says(r, sharer_is_exact(&s) && sharer_is_exact(&s), "steps are right");
    says_int(r, s.recorded, SHARER_PASSES, "its passes are recorded");
    says_int(r, (long long)sharer_stats(&s).agreements, 0, "and ask nobody");
    sharer_close(&s);
}

/* What is asked comes after what the pass's stream has: operations of the two
 * communicators have one order. */
static void test_questions_follow_the_stream(struct rank *r)
{
    CUevent before = NULL;
    struct sharer s;

    if (!sharer_open(&s, r, &plain)) {
        return;
    }
    drv.cuEventCreate(&before, CU_EVENT_DISABLE_TIMING);
    for (uint32_t v = 0; v < 2; v++) {
        CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
        gh_decision d = { .struct_size = sizeof(d) };
        gh_buffer input = { pointer(s.memory), 16, 0, 0 };
        gh_pass pass = { .struct_size = sizeof(pass),
                         .segment = v,
                         .n_inputs = 1,
                         .inputs = &input,
                         .stream = r->stream };

        for (uint32_t i = 0; i < 20; i++) {
            nccl.ncclAllReduce(pointer(r->send), pointer(r->recv), 64,
                               ncclFloat32, ncclSum, r->comm, r->stream);
        }
        drv.cuEventRecord(before, r->stream);
        gh_layer_enter(s.session, &pass, &d, &s.err);
        says_int(r, d.action, GH_ACTION_RECORD, "a pass is recorded");
        drv.cuThreadExchangeStreamCaptureMode(&mode);
        says_int(r, drv.cuEventQuery(before), CUDA_SUCCESS,
                 "after what its stream had before it");
        drv.cuThreadExchangeStreamCaptureMode(&mode);
        gh_layer_cancel(s.session, NULL);
    }
    drv.cuEventDestroy(before);
    sharer_close(&s);
}

/* ---- graphs of the host's own -------------------------------------------- */

static void test_graphs_of_the_hosts_own(struct rank *r)
{
    const struct sharer_options options = { .host = &sharer_captures,
                                            .mischief = break_capture };
    struct sharer s;

    if (!sharer_open(&s, r, &options)) {
        return;
    }
    s.capacity = SHARER_FLOATS * sizeof(float);
    s.capacity -= r->rank == 0;
    says(r, sharer_is_exact(&s), "a step that one rank cannot record is right");
    says_int(r, s.objects, 0, "and leaves no graph on any");
    s.capacity = SHARER_FLOATS * sizeof(float);
    for (uint32_t i = 0; i < 3; i++) {
        says(r, sharer_is_exact(&s), "step %u is right", i);
    }
    says_int(r, s.replayed, 2 * (SHARER_PASSES - 1), "passes are replayed");
    says_int(r, s.reruns, 1, "but for one whose capture failed on one rank");
    says_int(r, s.objects, SHARER_PASSES - 1, "the others have graphs");
    gh_session_close(s.session);
    s.session = NULL;
    says_int(r, s.objects, 0, "which go with the session");
    sharer_close(&s);
}

static void test_many_seeds(int seeds)
{
    static const struct ranks_test tests[] = {
        { "seeds: all replay", test_all_replay, false },
        { "seeds: a capture fails", test_a_capture_fails_on_one, false },
        { "seeds: compared", test_ranks_are_compared, false },
        { "seeds: in order", test_questions_follow_the_stream, false },
    };

    ranks_quiet(true);
    for (int seed = 2; seed < seeds + 2; seed++) {
        ranks_seed(seed);
        ranks_run_all(2 + seed % 3, tests, sizeof(tests) / sizeof(tests[0]));
    }
    ranks_quiet(false);
    ok(true, "%d seeds are right", seeds);
}

int main(void)
{
    static const struct ranks_test tests[] = {
        { "all ranks replay", test_all_replay, false },
        { "a capture fails on one", test_a_capture_fails_on_one, false },
        { "a recording cannot begin on one",
          test_a_recording_cannot_begin_on_one, false },
        { "all leave", test_all_leave, false },
        { "one cancels", test_one_cancels, false },
        { "a check differs on one", test_a_check_differs_on_one, false },
        { "ranks are compared", test_ranks_are_compared, false },
        { "nobody to compare", test_nobody_to_compare, false },
        { "the host brings words", test_the_host_brings_words, false },
        { "one cannot record now", test_one_cannot_record_now, false },
        { "one has no room", test_one_has_no_room, false },
        { "a bank without its ranks", test_a_bank_without_its_ranks_gives_way,
          false },
        { "a local pass", test_a_local_pass_asks_nobody, false },
        { "graphs of the host's own", test_graphs_of_the_hosts_own, false },
        { "questions follow", test_questions_follow_the_stream, false },
    };
    const size_t n_tests = sizeof(tests) / sizeof(tests[0]);
    int status;

    if (!ranks_open(&status)) {
        return status;
    }
    for (int n = 2; n <= MAX_RANKS; n++) {
        ranks_run_all(n, tests, n_tests);
    }
    if (ranks_are_soft()) {
        test_many_seeds(24);
    }
    return done_testing();
}
