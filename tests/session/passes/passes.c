/*
 * Passes are recorded once, replayed from then on, and exact all the way.
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/toy.h"
#include "support/toy/shared.h"
#include "tap/tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const uint32_t steps[] = { 4, 6, 8, 3, 4, 6, 8, 3 };
#define N_STEPS 8

/* A session that has these steps behind it. */
static bool trained(struct toy *toy, const struct toy_options *options,
                    const uint32_t *counts, uint32_t n)
{
    if (!toy_start(toy, options, NULL)) {
        return false;
    }
    toy_train(toy, counts, n);
    return true;
}

static void finish(struct toy *toy, const char *name)
{
    if (toy->soft) {
        is_int(toy_races(toy), 0, "%s: no race is reported", name);
    }
    toy_close(toy);
}

static void test_eager_is_what_the_host_computes(void)
{
    const struct toy_options options = { .layers = 2,
                                         .elems = 300,
                                         .in_flight = 2 };
    const char *reason;
    struct toy toy;

    if (!toy_open(&toy, &options, &reason)) {
        ok(false, "the toy host opens a device: %s", reason);
        return;
    }
    toy_train(&toy, steps, 4);
    ok(toy_is_exact(&toy),
       "without the library the toy computes what is expected of it");
    toy_close(&toy);
}

static void check_shape(struct toy_options options, const char *name,
                        uint32_t passes_per_microbatch)
{
    struct toy toy;
    gh_stats first, last;
    uint64_t total = 0;

    if (!trained(&toy, &options, steps, 4)) {
        return;
    }
    first = toy_stats(&toy);
    toy_train(&toy, steps + 4, 4);
    last = toy_stats(&toy);
    for (uint32_t i = 0; i < N_STEPS; i++) {
        total += (uint64_t)steps[i] * passes_per_microbatch;
    }

    ok(toy_is_exact(&toy), "%s: the weights are those of eager, to the bit",
       name);
    ok(last.replays > first.replays, "%s: later steps replay", name);
    is_int(last.recordings, first.recordings,
           "%s: counts 4, 6, 8, 3 again record nothing new", name);
    is_int(last.replays + last.eager_passes, total,
           "%s: every pass was replayed or eager, none lost", name);
    is_int(last.reruns, 0, "%s: nothing had to run again", name);
    is_int(last.slots, options.in_flight,
           "%s: as many slots as microbatches in flight", name);
    finish(&toy, name);
}

static void test_every_shape_is_exact(void)
{
    static const char *const scopes[] = { NULL, "attn", "mlp", "attn,mlp" };
    static const char *const levels[] = { "part", "layer", "chunk" };

    for (uint32_t s = 0; s < 4; s++) {
        for (uint32_t g = 0; g < 3; g++) {
            for (uint32_t ahead = 1; ahead <= 3; ahead += 2) {
                bool whole = g > 0 && (s == 0 || s == 3);
                uint32_t segments = !whole ? 4 : g == 1 ? 2 : 1;
                char name[64];

                snprintf(name, sizeof(name), "scope %s, %s, %u in flight",
                         scopes[s] ? scopes[s] : "unset", levels[g], ahead);
                check_shape((struct toy_options){ .layers = 2,
                                                  .elems = 300,
                                                  .in_flight = ahead,
                                                  .scope = scopes[s],
                                                  .granularity = levels[g] },
                            name, 2 * segments);
            }
        }
    }
}

static void test_one_capture_serves_any_count(void)
{
    const struct toy_options options = { .layers = 2,
                                         .elems = 64,
                                         .in_flight = 8 };
    const uint32_t counts[] = { 4, 6, 8, 3, 1, 8, 5 };
    uint64_t recordings[7];
    struct toy toy;

    if (!toy_start(&toy, &options, NULL)) {
        return;
    }
    for (uint32_t i = 0; i < 7; i++) {
        toy_train(&toy, &counts[i], 1);
        recordings[i] = toy_stats(&toy).recordings;
    }
    is_int(recordings[0], 0, "the warmup step records nothing");
    is_int(recordings[1], 6 * 2 * 2, "six in flight: six slots are recorded");
    is_int(recordings[2], 8 * 2 * 2, "eight in flight: two more are");
    is_int(recordings[6], recordings[2],
           "after the first maximum no count records again");
    ok(toy_is_exact(&toy), "changing counts leave the weights exact");
    finish(&toy, "changing counts");
}

static void test_inputs_that_move_are_copied_in_one_launch(void)
{
    const struct toy_options options = { .layers = 2,
                                         .elems = 301,
                                         .moving_inputs = true };
    const uint32_t counts[] = { 2, 2, 3 };
    struct toy toy;
    gh_stats stats;

    if (!trained(&toy, &options, counts, 3)) {
        return;
    }
    stats = toy_stats(&toy);
    is_int(stats.eager_passes, 2 * 4, "only the warmup step was eager");
    is_int(stats.copies, (2 + 3) * 4, "one copy launch for each graphed pass");
    is_int(stats.copied_bytes, (2 + 3) * 4 * 301 * 4,
           "exactly the inputs were copied");
    ok(stats.static_bytes >= 4 * 301 * 4, "the static buffers are counted");
    ok(toy_is_exact(&toy), "inputs that move leave the weights exact");
    finish(&toy, "moving inputs");
}

static void test_an_output_that_is_the_next_input_is_not_copied(void)
{
    const struct toy_options options = { .layers = 3,
                                         .elems = 64,
                                         .copied_inputs = true };
    const uint32_t counts[] = { 1, 1, 5 };
    struct toy toy;

    if (!trained(&toy, &options, counts, 3)) {
        return;
    }
    is_int(toy_stats(&toy).copies, 6 * 2,
           "of six segments only the first each way copies its input");
    ok(toy_is_exact(&toy), "chained segments leave the weights exact");
    finish(&toy, "chained segments");
}

static void test_a_chain_that_breaks_is_recorded_again(void)
{
    struct toy_options options = { .layers = 2,
                                   .elems = 64,
                                   .copied_inputs = true };
    const uint32_t counts[] = { 1, 1, 1, 1 };
    struct toy toy;
    uint64_t before;

    if (!trained(&toy, &options, counts, 2)) {
        return;
    }
    before = toy_stats(&toy).recordings;
    toy.options.moving_inputs = true;
    toy_train(&toy, counts + 2, 2);
    is_int(toy_stats(&toy).recordings, before + 3,
           "the two passes whose input moved were recorded once more, and the "
           "backward that follows one of them");
    is_int(toy_stats(&toy).eager_passes, 4, "and none of them ran eagerly");
    ok(toy_is_exact(&toy), "a broken chain leaves the weights exact");
    finish(&toy, "broken chain");
}

static void test_busy_slots_are_never_overwritten(void)
{
    struct toy_options options = {
        .layers = 2, .elems = 64, .in_flight = 3, .max_slots = 1
    };
    const uint32_t counts[] = { 3, 5, 4 };
    struct toy toy;
    gh_stats stats;

    if (!trained(&toy, &options, counts, 3)) {
        return;
    }
    stats = toy_stats(&toy);
    ok(toy_eager(&toy, GH_REASON_BUSY) > 0,
       "with one slot, the other microbatches run eagerly");
    ok(stats.replays > 0, "and the one that holds it replays");
    ok(toy_is_exact(&toy), "busy slots leave the weights exact");
    finish(&toy, "busy slots");

    options.flags = GH_SESSION_BUSY_FAILS;
    if (!toy_start(&toy, &options, NULL)) {
        return;
    }
    is_status(toy_step(&toy, 3), GH_ERR_BUSY, NULL,
              "a host that asked for it gets GH_ERR_BUSY instead");
    ok(strstr(toy.err.text, "GRAPHHOOKS_MAX_SLOTS") != NULL,
       "and the error names the remedy");
    toy_close(&toy);
}

static void test_the_legacy_stream_is_recorded_elsewhere(void)
{
    const struct toy_options options = {
        .layers = 2, .elems = 64, .in_flight = 2, .legacy = true
    };
    struct toy toy;

    if (!trained(&toy, &options, steps, 4)) {
        return;
    }
    ok(toy_stats(&toy).recordings > 0,
       "a host on the legacy stream gets graphs");
    ok(toy_is_exact(&toy), "the legacy stream leaves the weights exact");
    finish(&toy, "legacy stream");
}

static uint64_t eager_for(const char *const *environment, gh_reason reason,
                          const char *name)
{
    const struct toy_options options = { .layers = 1,
                                         .elems = 64,
                                         .environment = environment };
    const uint32_t counts[] = { 2, 2, 2 };
    struct toy toy;
    uint64_t n;

    if (!trained(&toy, &options, counts, 3)) {
        return 0;
    }
    n = toy_eager(&toy, reason);
    ok(toy_is_exact(&toy), "%s: the weights are exact", name);
    finish(&toy, name);
    return n;
}

static void test_the_environment_switches_a_host(void)
{
    static const char *const disabled[] = { "GRAPHHOOKS_ENABLE=0", NULL };
    static const char *const warm[] = { "GRAPHHOOKS_WARMUP_STEPS=2", NULL };
    static const char *const cold[] = { "GRAPHHOOKS_WARMUP_STEPS=0", NULL };
    static const char *const frozen[] = { "GRAPHHOOKS_WARMUP_STEPS=0",
                                          "GRAPHHOOKS_FREEZE=1", NULL };
    static const char *const scope[] = { "GRAPHHOOKS_SCOPE=attn", NULL };

    is_int(eager_for(disabled, GH_REASON_DISABLED, "ENABLE=0"), 3 * 2 * 2,
           "GRAPHHOOKS_ENABLE=0 runs every pass eagerly");
    is_int(eager_for(warm, GH_REASON_WARMUP, "WARMUP_STEPS=2"), 2 * 2 * 2,
           "GRAPHHOOKS_WARMUP_STEPS=2 runs two steps eagerly");
    is_int(eager_for(cold, GH_REASON_WARMUP, "WARMUP_STEPS=0"), 0,
           "GRAPHHOOKS_WARMUP_STEPS=0 records in the first step");
    is_int(eager_for(frozen, GH_REASON_FROZEN, "FREEZE=1"), 0,
           "GRAPHHOOKS_FREEZE=1 leaves what was recorded in time alone");
    is_int(eager_for(scope, GH_REASON_PLAN, "SCOPE=attn"), 3 * 2 * 2,
           "GRAPHHOOKS_SCOPE=attn leaves the other part eager");
}

static void test_freeze_refuses_late_recordings(void)
{
    static const char *const frozen[] = { "GRAPHHOOKS_FREEZE=1", NULL };
    const struct toy_options options = {
        .layers = 1, .elems = 64, .in_flight = 4, .environment = frozen
    };
    const uint32_t counts[] = { 2, 2, 4 };
    struct toy toy;
    gh_stats stats;

    if (!trained(&toy, &options, counts, 3)) {
        return;
    }
    stats = toy_stats(&toy);
    is_int(stats.recordings, 2 * 2, "slots of the first step are recorded");
    is_int(toy_eager(&toy, GH_REASON_FROZEN), 2 * 2,
           "slots that come after the freeze run eagerly");
    ok(toy_is_exact(&toy), "a freeze leaves the weights exact");
    finish(&toy, "freeze");
}

static void test_strict_makes_an_error_of_what_is_eager(void)
{
    static const char *const strict[] = { "GRAPHHOOKS_STRICT=1",
                                          "GRAPHHOOKS_MAX_SLOTS=1",
                                          "GRAPHHOOKS_LOG=off", NULL };
    const struct toy_options options = {
        .layers = 1, .elems = 64, .in_flight = 2, .environment = strict
    };
    const uint32_t counts[] = { 1, 1, 1 };
    struct toy toy;

    if (!trained(&toy, &options, counts, 3)) {
        return;
    }
    is_int(toy_stats(&toy).replays, 4, "warmup is no error, nor is a graph");
    is_status(toy_forward(&toy, 0), GH_OK, &toy.err, "nor is a slot");
    is_status(toy_forward(&toy, 1), GH_ERR_UNSUPPORTED, &toy.err,
              "a pass without one is");
    ok(strstr(toy.err.text, "GRAPHHOOKS_STRICT is 1, and ") != NULL &&
           strstr(toy.err.text,
                  "forward, microbatch 1, ran eagerly: all slots were") != NULL,
       "it says which and why: %s", toy.err.text);
    is_status(toy_backward(&toy, 1), GH_ERR_UNSUPPORTED, &toy.err,
              "so is its backward");
    toy_expect(&toy, 1);
    is_status(toy_backward(&toy, 0), GH_OK, &toy.err, "the session goes on");
    toy_end_step(&toy);
    toy_train(&toy, counts, 1);
    is_int(toy_stats(&toy).replays, 4 + 2 + 2, "with graphs");
    ok(toy_is_exact(&toy), "and what ran eagerly has run");
    finish(&toy, "strict");
}

static void test_strict_says_what_is_frozen(void)
{
    static const char *const strict[] = { "GRAPHHOOKS_STRICT=1",
                                          "GRAPHHOOKS_FREEZE=1",
                                          "GRAPHHOOKS_LOG=off", NULL };
    const struct toy_options options = {
        .layers = 1, .elems = 64, .in_flight = 2, .environment = strict
    };
    const uint32_t counts[] = { 1, 1 };
    struct toy toy;

    if (!trained(&toy, &options, counts, 2)) {
        return;
    }
    is_status(toy_forward(&toy, 0), GH_OK, &toy.err, "what was in time");
    is_status(toy_forward(&toy, 1), GH_ERR_UNSUPPORTED, &toy.err,
              "and what is recorded too late");
    ok(strstr(toy.err.text, "GRAPHHOOKS_FREEZE refuses") != NULL, "says so: %s",
       toy.err.text);
    finish(&toy, "strict and frozen");
}

static void test_between_pre_and_post_warmup_all_is_eager(void)
{
    const struct toy_options options = { .layers = 1, .elems = 64 };
    const uint32_t counts[] = { 1, 1, 1 };
    struct toy toy;
    uint64_t replays;

    if (!trained(&toy, &options, counts, 2)) {
        return;
    }
    replays = toy_stats(&toy).replays;
    is_status(gh_pre_warmup(toy.session, NULL), GH_OK, NULL,
              "gh_pre_warmup between steps is accepted");
    toy_train(&toy, counts + 2, 1);
    is_int(toy_stats(&toy).replays, replays, "nothing replays until");
    is_int(toy_eager(&toy, GH_REASON_PAUSED), 2,
           "paused passes are counted as such");
    is_status(gh_post_warmup(toy.session, NULL), GH_OK, NULL,
              "gh_post_warmup ends the pause");
    is_status(gh_post_warmup(toy.session, &toy.err), GH_ERR_STATE, &toy.err,
              "a second gh_post_warmup has nothing to end");
    finish(&toy, "pre_warmup");
}

static void test_check_compares_both_ways(void)
{
    static const char *const check[] = { "GRAPHHOOKS_CHECK=bitwise",
                                         "GRAPHHOOKS_LOG=off", NULL };
    const struct toy_options options = {
        .layers = 2, .elems = 1000, .in_flight = 2, .environment = check
    };
    const uint32_t counts[] = { 3, 3, 3 };
    struct toy toy;
    gh_stats stats;

    if (!trained(&toy, &options, counts, 3)) {
        return;
    }
    stats = toy_stats(&toy);
    is_int(stats.checks, 2 * 3 * 4,
           "every pass after warmup was run both ways, recordings too");
    is_int(stats.check_failures, 0, "and both ways agree");
    ok(toy_is_exact(&toy), "checked gradients are added once, not twice");
    finish(&toy, "check");

    if (!trained(&toy, &options, counts, 2)) {
        return;
    }
    toy.lies_when_checked = true;
    toy_train(&toy, counts, 1);
    stats = toy_stats(&toy);
    ok(stats.check_failures > 0, "an eager pass that differs is found");
    ok(toy_eager(&toy, GH_REASON_MISMATCH) > 0,
       "and what differed runs eagerly from then on");
    toy_close(&toy);
}

static void test_forward_only_takes_nothing(void)
{
    const struct toy_options options = { .layers = 1, .elems = 64 };
    const uint32_t counts[] = { 1, 1 };
    gh_pass pass = { .struct_size = sizeof(pass),
                     .flags = GH_PASS_FORWARD_ONLY };
    gh_decision d = { .struct_size = sizeof(d) };
    struct toy toy;

    if (!trained(&toy, &options, counts, 2)) {
        return;
    }
    pass.stream = toy.streams[0];
    is_status(gh_layer_enter(toy.session, &pass, &d, &toy.err), GH_OK, &toy.err,
              "an evaluation pass is entered");
    is_int(d.action, GH_ACTION_RUN, "it runs eagerly");
    is_int(d.reason, GH_REASON_FORWARD_ONLY, "because it is forward only");
    ok(d.slot == GH_SLOT_NONE, "and takes no slot");
    is_status(gh_layer_exit(toy.session, &pass, &toy.err), GH_OK, &toy.err,
              "and is exited");
    pass.flags = 0;
    pass.direction = GH_BACKWARD;
    is_status(gh_layer_enter(toy.session, &pass, &d, &toy.err), GH_ERR_STATE,
              &toy.err, "so no backward can follow it");
    toy_close(&toy);
}

/* An evaluation whose flag was forgotten, or a recomputed layer's first run. */
static void test_a_second_forward_is_refused(void)
{
    const struct toy_options options = { .layers = 1, .elems = 64 };
    const uint32_t counts[] = { 1, 1 };
    gh_pass pass = { .struct_size = sizeof(pass) };
    gh_decision d = { .struct_size = sizeof(d) };
    struct toy toy;

    if (!trained(&toy, &options, counts, 2)) {
        return;
    }
    pass.stream = toy.streams[0];
    is_int(toy_empty_pass(&toy, &pass).slot, 0, "a forward holds slot 0");
    is_status(gh_layer_enter(toy.session, &pass, &d, &toy.err), GH_ERR_STATE,
              &toy.err, "the same forward again is refused");
    ok(strstr(toy.err.text, "GH_PASS_FORWARD_ONLY") != NULL,
       "and the error names the flag: %s", toy.err.text);
    is_int(d.action, 0, "the decision is not written");
    pass.flags = GH_PASS_FORWARD_ONLY;
    is_int(toy_empty_pass(&toy, &pass).slot, (long)GH_SLOT_NONE,
           "with the flag it runs outside of the slot");
    pass.flags = 0;
    pass.direction = GH_BACKWARD;
    is_int(toy_empty_pass(&toy, &pass).slot, 0,
           "the backward is that of the first");
    pass.direction = GH_FORWARD;
    pass.microbatch = 1;
    is_int(toy_empty_pass(&toy, &pass).slot, 0,
           "and the next microbatch gets the slot");
    toy_close(&toy);
}

static void test_everything_is_given_back(void)
{
    const struct toy_options options = { .layers = 2,
                                         .elems = 64,
                                         .in_flight = 2,
                                         .streams = 2,
                                         .moving_inputs = true };
    const uint32_t counts[] = { 4, 4, 4 };
    softcuda_counts counts_after;
    struct toy toy;

    if (!toy_start(&toy, &options, NULL)) {
        return;
    }
    if (!toy.soft) {
        skip(1, "only the software device counts its objects");
        toy_close(&toy);
        return;
    }
    toy_train(&toy, counts, 3);
    toy_close(&toy);
    counts_after = toy_counts(&toy);
    ok(counts_after.device_allocations == 0 && counts_after.graphs == 0 &&
           counts_after.execs == 0 && counts_after.events == 0 &&
           counts_after.streams == 0 && counts_after.modules == 0 &&
           counts_after.contexts_retained == 0 && counts_after.captures == 0,
       "closing gives back memory, graphs, execs, events, streams, modules "
       "and contexts");
}

int main(void)
{
    const char *reason;
    struct toy toy;

    if (!toy_probe(&toy, &reason)) {
        return skip_all("%s", reason);
    }

    test_eager_is_what_the_host_computes();
    test_every_shape_is_exact();
    test_one_capture_serves_any_count();
    test_inputs_that_move_are_copied_in_one_launch();
    test_an_output_that_is_the_next_input_is_not_copied();
    test_a_chain_that_breaks_is_recorded_again();
    test_busy_slots_are_never_overwritten();
    test_the_legacy_stream_is_recorded_elsewhere();
    test_the_environment_switches_a_host();
    test_freeze_refuses_late_recordings();
    test_strict_makes_an_error_of_what_is_eager();
    test_strict_says_what_is_frozen();
    test_between_pre_and_post_warmup_all_is_eager();
    test_check_compares_both_ways();
    test_forward_only_takes_nothing();
    test_a_second_forward_is_refused();
    test_everything_is_given_back();
    return done_testing();
}
