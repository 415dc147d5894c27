/*
 * Delayed weight gradients: a third pass of every segment, whenever the host
 * asks, that finds what it reads still in the slot.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/heard.h"
#include "support/toy.h"
#include "tap/tap.h"

#include <stdio.h>
#include <string.h>

static const uint32_t counts[] = { 4, 6, 8, 3, 5 };
#define N_STEPS 5

/* Opens, attaches, runs; the toy stays open when this is true. */
static bool run(struct toy *toy, const struct toy_options *options,
                const char *what)
{
    if (!toy_start(toy, options, NULL)) {
        return false;
    }
    if (toy_train(toy, counts, N_STEPS) != GH_OK) {
        ok(false, "%s: runs: %s", what, toy->err.text);
        toy_close(toy);
        return false;
    }
    ok(toy_is_exact(toy), "%s: every sum is exact", what);
    return true;
}

static void test_every_granularity(void)
{
    static const char *const granularities[] = { "part", "layer", "chunk" };
    static const uint32_t segments[] = { 6, 3, 1 };

    for (uint32_t i = 0; i < 3; i++) {
        const struct toy_options options = { .layers = 3,
                                             .elems = 8,
                                             .in_flight = 2,
                                             .granularity = granularities[i],
                                             .wgrad = TOY_WGRAD_LATER };
        struct toy toy;
        gh_stats stats;

        if (!run(&toy, &options, granularities[i])) {
            continue;
        }
        stats = toy_stats(&toy);
        is_int(stats.recordings, (uint64_t)segments[i] * 3 * stats.slots,
               "%s: one recording for each segment, direction and slot",
               granularities[i]);
        is_int(stats.replays, (uint64_t)segments[i] * 3 * (6 + 8 + 3 + 5),
               "%s: after warmup every pass is a graph's", granularities[i]);
        toy_close(&toy);
    }
}

static char printed[8192];

static void take(void *user, const char *text, size_t bytes)
{
    const size_t used = strlen(printed);

    (void)user;
    if (used + bytes < sizeof(printed)) {
        memcpy(printed + used, text, bytes);
        printed[used + bytes] = '\0';
    }
}

static void test_the_plan_has_the_pass(void)
{
    for (int later = 0; later < 2; later++) {
        const struct toy_options options = {
            .layers = 1,
            .elems = 8,
            .wgrad = later ? TOY_WGRAD_LATER : TOY_WGRAD_JOINED,
        };
        struct toy toy;

        if (!toy_start(&toy, &options, NULL)) {
            continue;
        }
        printed[0] = '\0';
        gh_plan_print(toy.session, GH_FORMAT_JSON, take, NULL, NULL);
        ok((strstr(printed, "\"backward\",\"wgrad\"]") != NULL) == later,
           "the plan has a pass for weight gradients %s",
           later ? "where they are delayed" : "nowhere else");
        toy_close(&toy);
    }
}

/* A microbatch keeps its slot for as long as its gradients are due. */
static void test_lag(void)
{
    for (uint32_t lag = 0; lag <= 3; lag++) {
        const struct toy_options options = { .layers = 2,
                                             .elems = 8,
                                             .in_flight = 2,
                                             .wgrad = TOY_WGRAD_LATER,
                                             .wgrad_lag = lag };
        struct toy toy;
        char what[32];

        snprintf(what, sizeof(what), "%u microbatches later", lag);
        if (run(&toy, &options, what)) {
            is_int(toy_stats(&toy).slots, 2 + lag,
                   "%s: as many slots as are in flight", what);
            is_int(toy_eager(&toy, GH_REASON_BUSY), 0,
                   "%s: and none is missing", what);
            toy_close(&toy);
        }
    }
}

static void test_too_few_slots(void)
{
    const struct toy_options options = { .layers = 2,
                                         .elems = 8,
                                         .in_flight = 2,
                                         .max_slots = 3,
                                         .wgrad = TOY_WGRAD_LATER,
                                         .wgrad_lag = 3 };
    struct toy toy;

    if (run(&toy, &options, "too few slots")) {
        ok(toy_eager(&toy, GH_REASON_BUSY) > 0,
           "too few slots: some microbatches run eagerly, all of their passes");
        is_int(toy_stats(&toy).slots, 3, "too few slots: all of them are used");
        toy_close(&toy);
    }
}

static void test_another_stream(void)
{
    const struct toy_options options = { .layers = 3,
                                         .elems = 8,
                                         .in_flight = 2,
                                         .streams = 2,
                                         .free_running = true,
                                         .wgrad = TOY_WGRAD_BESIDE };
    struct toy toy;

    if (!run(&toy, &options, "on another stream")) {
        return;
    }
    is_int(toy_stats(&toy).recordings, 8 * toy_stats(&toy).slots,
           "on another stream: a segment that leaves nothing has no third "
           "graph");
    is_int(toy_eager(&toy, GH_REASON_INPUT), 0,
           "on another stream: and its backward is replayed");
    toy_close(&toy);
}

static void test_inputs_that_move(void)
{
    const struct toy_options options = { .layers = 2,
                                         .elems = 8,
                                         .moving_inputs = true,
                                         .wgrad = TOY_WGRAD_LATER,
                                         .wgrad_lag = 1 };
    struct toy toy;

    if (run(&toy, &options, "moving inputs")) {
        toy_close(&toy);
    }
}

static void test_check(void)
{
    static const char *const environment[] = { "GRAPHHOOKS_CHECK=bitwise",
                                               "GRAPHHOOKS_CHECK_EVERY=1",
                                               NULL };
    const struct toy_options options = { .layers = 2,
                                         .elems = 8,
                                         .environment = environment,
                                         .wgrad = TOY_WGRAD_LATER };
    struct toy toy;

    if (run(&toy, &options, "compared with eager")) {
        is_int(toy_stats(&toy).check_failures, 0,
               "compared with eager: no pass differs");
        ok(toy_stats(&toy).checks > 60,
           "compared with eager: weight gradients too");
        toy_close(&toy);
    }
}

/* A graph of the other kind would add the weights' gradients twice, or not
 * at all. */
static void test_change_of_mind(void)
{
    const struct toy_options options = {
        .layers = 2, .elems = 8, .host = &hearing, .wgrad = TOY_WGRAD_LATER
    };
    struct toy toy;
    bool ran;

    if (!toy_start(&toy, &options, NULL)) {
        return;
    }
    ran = toy_step(&toy, 4) == GH_OK && toy_step(&toy, 6) == GH_OK;
    toy.options.wgrad = TOY_WGRAD_BESIDE;
    ran = ran && toy_step(&toy, 8) == GH_OK && toy_step(&toy, 3) == GH_OK &&
          toy_step(&toy, 5) == GH_OK;
    ok(ran, "a segment leaves its weights to the backward from now on: runs");
    ok(toy_is_exact(&toy), "and every sum is exact");
    is_int(toy_eager(&toy, GH_REASON_INPUT), 8 + 3 + 5,
           "as the graph of the other backward is not launched");
    ok(strstr(said, "its flags are 0x2, and were 0x0 when it was "
                    "recorded") != NULL, "which is said: %s", said);
    toy_close(&toy);
}

/* ---- order and arguments ------------------------------------------------ */

static gh_status run_pass(struct toy *toy, uint32_t segment,
                          gh_direction direction, uint32_t m, uint32_t flags)
{
    const gh_pass pass = { .struct_size = sizeof(pass),
                           .segment = segment,
                           .direction = direction,
                           .microbatch = m,
                           .flags = flags,
                           .stream = toy->streams[0] };
    gh_decision d = { .struct_size = sizeof(d) };
    gh_status status = gh_layer_enter(toy->session, &pass, &d, &toy->err);

    if (status == GH_OK) {
        status = gh_layer_exit(toy->session, &pass, &toy->err);
    }
    return status;
}

static void is_refused(struct toy *toy, gh_status got, gh_status wanted,
                       const char *words, const char *what)
{
    is_int(got, wanted, "%s", what);
    ok(strstr(toy->err.text, words) != NULL, "%s: it says \"%s\": %s", what,
       words, toy->err.text);
}

static void test_order(void)
{
    const struct toy_options options = {
        .layers = 2, .elems = 8, .warmup_steps = 100, .wgrad = TOY_WGRAD_LATER
    };
    struct toy toy;

    if (!toy_start(&toy, &options, NULL)) {
        return;
    }
    is_refused(&toy, run_pass(&toy, 0, GH_WGRAD, 0, 0), GH_ERR_STATE,
               "wgrad of segment 0, microbatch 0 before its backward",
               "a weight gradient of a microbatch that has not begun");
    is_int(run_pass(&toy, 0, GH_FORWARD, 0, 0), GH_OK, "a forward");
    is_refused(&toy, run_pass(&toy, 0, GH_WGRAD, 0, 0), GH_ERR_STATE,
               "before its backward", "a weight gradient right after it");
    is_int(run_pass(&toy, 0, GH_BACKWARD, 0, 0), GH_OK, "its backward");
    is_refused(&toy, run_pass(&toy, 0, GH_BACKWARD, 0, 0), GH_ERR_STATE,
               "backward of segment 0, microbatch 0 before its forward, or a "
               "second time",
               "a second backward");
    is_int(run_pass(&toy, 0, GH_FORWARD, 1, 0), GH_OK, "another microbatch");
    is_int(toy_stats(&toy).slots, 2, "gets another slot");
    is_int(run_pass(&toy, 0, GH_WGRAD, 0, 0), GH_OK, "the weight gradient");
    is_refused(&toy, run_pass(&toy, 0, GH_WGRAD, 0, 0), GH_ERR_STATE,
               "before its backward, or a second time",
               "a second weight gradient");
    is_int(run_pass(&toy, 0, GH_FORWARD, 2, 0), GH_OK, "a third microbatch");
    is_int(toy_stats(&toy).slots, 2, "gets the slot that is free again");
    is_int(run_pass(&toy, 0, GH_BACKWARD, 2, GH_PASS_NO_WGRAD), GH_OK,
           "a backward that leaves nothing");
    is_int(run_pass(&toy, 0, GH_FORWARD, 3, 0), GH_OK, "gives its slot back");
    is_int(toy_stats(&toy).slots, 2, "to the next one");
    is_refused(&toy, run_pass(&toy, 0, GH_WGRAD, 2, 0), GH_ERR_STATE,
               "before its backward", "and no weight gradient follows it");
    toy_close(&toy);
}

/* ---- segments without weights ------------------------------------------- */

static bool has_wgrad(const struct toy *toy, uint32_t segment)
{
    gh_segment s = { .struct_size = sizeof(s) };

    return gh_plan_segment(toy->session, 0, segment, &s, NULL) == GH_OK &&
           (s.flags & GH_SEGMENT_HAS_WGRAD) != 0;
}

/* All passes of a microbatch.  Returns the slot of the first, and counts what
 * ran in it for nothing. */
static uint32_t run_flight(struct toy *toy, uint32_t m, uint32_t n, bool knows,
                           uint32_t *n_spare)
{
    uint32_t slot = GH_SLOT_NONE;

    for (gh_direction direction = GH_FORWARD; direction <= GH_WGRAD;
         direction++) {
        for (uint32_t i = 0; i < n; i++) {
            const uint32_t segment = direction == GH_FORWARD ? i : n - 1 - i;
            const gh_pass pass = { .struct_size = sizeof(pass),
                                   .segment = segment,
                                   .direction = direction,
                                   .microbatch = m,
                                   .stream = toy->streams[0] };
            const bool spare =
                direction == GH_WGRAD && !has_wgrad(toy, segment);
            gh_decision d;

            if (spare && knows) {
                continue;
            }
            d = toy_empty_pass(toy, &pass);
            slot = direction == GH_FORWARD && i == 0 ? d.slot : slot;
            *n_spare += spare && d.action == GH_ACTION_RUN &&
                        d.reason == GH_REASON_PLAN && d.slot == slot;
        }
    }
    return slot;
}

/* Nothing waits for the weight gradient of a segment that has no weights,
 * whether or not the host knows that there is none. */
static void test_segments_without_weights(void)
{
    const gh_layer_desc moe = { .struct_size = sizeof(moe),
                                .kind = GH_LAYER_MOE,
                                .experts = 4 };
    const struct toy_options options = {
        .layers = 1, .layer = &moe, .elems = 8, .max_slots = 1,
        .flags = GH_SESSION_EP_OVERLAP, .wgrad = TOY_WGRAD_LATER
    };

    for (int knows = 0; knows < 2; knows++) {
        uint32_t n, n_spare = 0, with = 0;
        bool held = true;
        struct toy toy;

        if (!toy_start(&toy, &options, NULL)) {
            return;
        }
        n = gh_plan_segment_count(toy.session, 0);
        for (uint32_t i = 0; i < n; i++) {
            with += has_wgrad(&toy, i);
        }
        ok(with > 0 && with < n, "%u of %u segments have weights", with, n);
        for (uint32_t m = 0; m < 3; m++) {
            held = run_flight(&toy, m, n, knows != 0, &n_spare) == 0 && held;
        }
        ok(held, "each microbatch finds the one slot, as the one before it has "
                 "given it back: the host %s which have none",
           knows ? "knows" : "does not know");
        is_int(n_spare, knows ? 0 : 3 * (n - with),
               "and what is issued for nothing runs eagerly in that slot");
        is_int(run_pass(&toy, 0, GH_FORWARD, 5, 0), GH_OK,
               "a microbatch begins");
        is_int(run_pass(&toy, 0, GH_WGRAD, 5, 0), GH_ERR_STATE,
               "and a weight gradient that there is still waits its turn");
        toy_close(&toy);
    }
}

static void test_arguments(void)
{
    const struct toy_options joined = { .layers = 2, .elems = 8 };
    struct toy_options delayed = joined;
    struct toy toy;

    if (!toy_start(&toy, &joined, NULL)) {
        return;
    }
    is_refused(&toy, run_pass(&toy, 0, GH_WGRAD, 0, 0), GH_ERR_INVALID,
               "GH_SESSION_DELAY_WGRAD",
               "a weight gradient in a session that does not delay them");
    is_int(run_pass(&toy, 0, GH_FORWARD, 0, 0), GH_OK, "a forward");
    is_refused(&toy, run_pass(&toy, 0, GH_BACKWARD, 0, GH_PASS_NO_WGRAD),
               GH_ERR_INVALID, "GH_PASS_NO_WGRAD is for backward passes",
               "GH_PASS_NO_WGRAD in such a session");
    is_int(run_pass(&toy, 0, GH_BACKWARD, 0, 0), GH_OK,
           "the microbatch is as it was");
    toy_close(&toy);

    delayed.wgrad = TOY_WGRAD_LATER;
    if (!toy_start(&toy, &delayed, NULL)) {
        return;
    }
    is_refused(&toy, run_pass(&toy, 0, 3, 0, 0), GH_ERR_INVALID,
               "gh_pass.direction is 3", "a fourth direction");
    is_refused(&toy, run_pass(&toy, 0, GH_FORWARD, 0, GH_PASS_NO_WGRAD),
               GH_ERR_INVALID, "GH_PASS_NO_WGRAD is for backward passes",
               "a forward without a weight gradient");
    is_refused(&toy, run_pass(&toy, 0, GH_WGRAD, 0, GH_PASS_FORWARD_ONLY),
               GH_ERR_INVALID, "a wgrad pass cannot be GH_PASS_FORWARD_ONLY",
               "a weight gradient of evaluation");
    is_refused(&toy, run_pass(&toy, 0, GH_BACKWARD, 0, 64), GH_ERR_INVALID,
               "flags 0x40", "an unknown flag");
    toy_close(&toy);
}

int main(void)
{
    const char *reason;
    struct toy toy;

    if (!toy_probe(&toy, &reason)) {
        return skip_all("%s", reason);
    }
    test_every_granularity();
    test_the_plan_has_the_pass();
    test_lag();
    test_too_few_slots();
    test_another_stream();
    test_inputs_that_move();
    test_check();
    test_change_of_mind();
    test_order();
    test_segments_without_weights();
    test_arguments();
    return done_testing();
}
