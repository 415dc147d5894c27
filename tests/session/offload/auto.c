/*
 * What is offloaded by measured times, how far copies may go, and what is
 * counted of them.
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/by_hand.h"
#include "support/saving.h"
#include "tap/tap.h"

#include <stdio.h>
#include <string.h>

#define MODULES 3u
#define LAYERS 4u
#define GROUP_BYTES (1024u + 512u) /* two tensors of 256 and of 128 words */

static const struct toy_options four_layers = {
    .layers = 4, .modules = 3, .tensors = 2, .elems = 256, .in_flight = 3
};

static uint32_t n_leaks;

static void finish(void)
{
    toy_detach(&sv);
    n_leaks += left_over() != 0;
    toy_close(&sv);
}

/* ---- auto ------------------------------------------------------------------- */

static const char *const told[] = { "GRAPHHOOKS_LOG=info", NULL };

static void test_auto_of(struct toy_options o, const char *what)
{
    gh_stats stats;

    o.offload = asks(TOY_MODULES);
    o.offload.fraction = "auto";
    o.environment = told;
    o.host = &hearing;
    if (!open_with(&o)) {
        return;
    }
    ok(trains(), "auto, %s: every sum is exact, and nothing is raced for",
       what);
    stats = toy_stats(&sv);
    ok(stats.replays > 0, "auto, %s: %llu passes are replayed", what,
       (unsigned long long)stats.replays);
    is_int(times_said("offload: foreseen: "), 1,
           "auto, %s: what is foreseen is said once", what);
    ok(times_said("ms or more from commit to load, copied in ") > 0,
       "auto, %s: with the times that were measured", what);
    finish();
}

static void test_auto(void)
{
    struct toy_options o = four_layers;

    test_auto_of(o, "layers");
    o.granularity = "part";
    test_auto_of(o, "parts");
    o.across = true;
    test_auto_of(o, "a group across two parts");
    o.across = false;
    o.granularity = "chunk";
    o.chunks = 2;
    test_auto_of(o, "two chunks");
    o = four_layers;
    o.streams = 3;
    test_auto_of(o, "three streams");
    o.side_by_side = true;
    test_auto_of(o, "backwards side by side");
    o = four_layers;
    o.evaluates = true;
    test_auto_of(o, "evaluations between");
}

/* The second step is the one that is measured, so the third is recorded. */
static void test_auto_takes_a_step(void)
{
    static const uint32_t counts[] = { 3, 3, 3, 3 };
    struct toy_options o = four_layers;
    uint64_t events;

    o.offload = asks(TOY_MODULES);
    o.offload.fraction = "auto";
    if (!open_with(&o)) {
        return;
    }
    run_steps(counts, 2);
    is_int(toy_stats(&sv).recordings, 0,
           "with auto nothing is recorded before its times are known");
    events = toy_counts(&sv).events;
    ok(run_steps(counts, 2) && toy_is_exact(&sv) &&
           toy_stats(&sv).recordings > 0,
       "and then it is");
    ok(toy_counts(&sv).events < events + 50,
       "the events that measure are gone after the step: %llu, and %llu "
       "before",
       (unsigned long long)toy_counts(&sv).events, (unsigned long long)events);
    finish();
}

/* What is frozen counts from the end of the profile. */
static void test_auto_and_freeze(void)
{
    static const char *const frozen[] = { "GRAPHHOOKS_FREEZE=1", NULL };
    static const uint32_t counts[] = { 3, 3, 3, 3, 3 };
    struct toy_options o = four_layers;
    uint64_t recordings;

    o.offload = asks(TOY_MODULES);
    o.offload.fraction = "auto";
    o.environment = frozen;
    if (!open_with(&o)) {
        return;
    }
    run_steps(counts, 3);
    recordings = toy_stats(&sv).recordings;
    ok(recordings > 0, "the step after a profile of two records, frozen or not");
    ok(run_steps(counts, 2) && toy_is_exact(&sv) &&
           toy_stats(&sv).recordings == recordings &&
           toy_stats(&sv).replays > 0,
       "and those after it replay");
    finish();
}

/* The time from commit to load that is measured, in microseconds; 0: none. */
static double gap_with(uint32_t buffers, uint32_t streams)
{
    static const uint32_t counts[] = { 4, 4 };
    struct toy_options o = four_layers;
    const char *text;
    double ms = 0.0;

    o.layers = 6;
    o.modules = o.tensors = 1;
    o.elems = 65536;
    o.streams = streams;
    o.offload = asks("core_attn");
    o.offload.fraction = "auto";
    o.offload.buffers = buffers;
    o.environment = told;
    o.host = &hearing;
    if (!open_with(&o)) {
        return 0.0;
    }
    ok(run_steps(counts, 2) && toy_is_exact(&sv), "rings of %u are measured",
       buffers);
    text = strstr(said, " ms or more from commit to load");
    while (text != NULL && text > said && text[-1] != ' ') {
        text--;
    }
    if (text != NULL) {
        sscanf(text, "%lf", &ms);
    }
    finish();
    return 1000.0 * ms;
}

/* What is waited for copies is not the compute's. */
static void test_auto_knows_waits(void)
{
    const double two = gap_with(2, 1), eight = gap_with(8, 1);

    ok(two > 0.0 && two > 0.95 * eight && two < 1.05 * eight,
       "a gap is as long with rings of 2, that are waited for, as with rings "
       "of 8: %.1f and %.1f us",
       two, eight);
    ok(gap_with(2, 3) > 0.0, "gaps of three streams are known");
}

/* Events with a time that cannot be had cost the decision, and no numbers. */
static void test_auto_without_events(void)
{
    static const uint32_t counts[] = { 3, 3, 3, 3 };
    struct toy_options o = four_layers;

    o.offload = asks(TOY_MODULES);
    o.offload.fraction = "auto";
    o.host = &hearing;
    if (!open_with(&o)) {
        return;
    }
    run_steps(counts, 1);
    toy_configure(&sv, "FAIL=cuEventCreate:3:2 RACES=1");
    ok(run_steps(counts, 3) && toy_is_exact(&sv),
       "a step that cannot be timed is right: %s", sv.err.text);
    is_int(times_said("the step could not be timed: all groups go"), 1,
           "which is said: %s", said);
    is_int(toy_moved(&sv).groups_offloaded, (LAYERS - 1) * MODULES,
           "and all groups go that may");
    finish();
}

static uint64_t back_before, most_ahead;

/* Copies back that were issued when the first group of a step is read. */
static enum toy_answer watch_ahead(struct toy *host, enum toy_call call,
                                   uint32_t layer, uint32_t module,
                                   uint32_t microbatch)
{
    const uint64_t now = toy_moved(host).back_copies;
    static bool none_is_read;

    (void)layer;
    (void)module;
    (void)microbatch;
    if (call == TOY_COMMIT) {
        back_before = now;
        none_is_read = true;
    }
    if (call == TOY_LOAD && none_is_read) {
        most_ahead = now - back_before;
        none_is_read = false;
    }
    return TOY_GO_ON;
}

static void test_prefetch_of(uint32_t prefetch, uint32_t expected)
{
    static const char *const eager[] = { "GRAPHHOOKS_ENABLE=0", NULL };
    static const uint32_t counts[] = { 2, 2, 2 };
    struct toy_options o = four_layers;

    o.layers = 8;
    o.modules = o.tensors = 1;
    o.in_flight = 2;
    o.environment = eager;
    o.offload = asks("core_attn");
    o.offload.buffers = 4;
    o.offload.prefetch = prefetch;
    if (!open_with(&o)) {
        return;
    }
    sv.watch = watch_ahead;
    ok(run_steps(counts, 3) && toy_is_exact(&sv), "a prefetch of %u trains",
       prefetch);
    is_int(most_ahead, expected,
           "and %u groups are on their way when the first is read", expected);
    finish();
}

static void test_prefetch(void)
{
    test_prefetch_of(1, 1);
    test_prefetch_of(3, 3);
    test_prefetch_of(0, 4);
}

/* Waits that the driver is asked for in a step of 3 microbatches. */
static uint64_t waits_with(uint32_t in_flight, const char *const *environment,
                           uint32_t steps)
{
    static const uint32_t counts[] = { 3, 3, 3 };
    struct toy_options o = four_layers;
    uint64_t before;

    o.modules = o.tensors = 1;
    o.environment = environment;
    o.offload = asks("core_attn");
    o.offload.buffers = 3;
    o.offload.in_flight = in_flight;
    o.layers = 6;
    if (!open_with(&o)) {
        return 0;
    }
    run_steps(counts, steps);
    before = toy_counts(&sv).waits;
    ok(run_steps(counts, 1) && toy_is_exact(&sv) && toy_races(&sv) == 0,
       "%u copies out in flight train", in_flight);
    before = toy_counts(&sv).waits - before;
    finish();
    return before;
}

/* The same of groups in the host's own memory, while copies pile up. */
static uint64_t own_waits_with(uint32_t in_flight)
{
    static const char *const eager[] = { "GRAPHHOOKS_ENABLE=0", NULL };
    static const uint32_t three = 3;
    struct toy_options o = four_layers;
    uint64_t before, waits;

    o.own = true;
    o.modules = o.tensors = 1;
    o.environment = eager;
    o.offload = asks("core_attn");
    o.offload.in_flight = in_flight;
    o.layers = 6;
    if (!open_with(&o)) {
        return 0;
    }
    run_steps(&three, 1);
    toy_configure(&sv, "SEED=3 RACES=1");
    before = toy_counts(&sv).waits;
    run_steps(&three, 1);
    waits = toy_counts(&sv).waits - before;
    ok(toy_is_exact(&sv) && toy_races(&sv) == 0,
       "%u copies of the host's own memory in flight train", in_flight);
    toy_close(&sv);
    return waits;
}

static void test_in_flight_of_own(void)
{
    const uint64_t without = own_waits_with(0);
    const uint64_t one = own_waits_with(1), three = own_waits_with(3);

    diag("waits: %llu without a limit, %llu with 1, %llu with 3",
         (unsigned long long)without, (unsigned long long)one,
         (unsigned long long)three);
    ok(one > without + 5,
       "with a limit a commit of the host's own memory waits for a copy");
    ok(three > without && three < one, "with a larger one fewer of them do");
    is_int(own_waits_with(64), without, "as many as there are do not");
}

static void test_in_flight(void)
{
    static const char *const eager[] = { "GRAPHHOOKS_ENABLE=0", NULL };
    const uint64_t without = waits_with(0, eager, 2);

    is_int(waits_with(1, eager, 2), without + 3 * 5,
           "with a limit each commit of a group that goes waits once more");
    is_int(waits_with(2, eager, 2), without + 3 * 5, "as with a larger one");
    is_int(waits_with(3, eager, 2), without,
           "as many as there are buffers are no limit");
    is_int(waits_with(1, NULL, 1), waits_with(0, NULL, 1) + 3 * 5,
           "a commit that is recorded waits in its graph");
}

static void test_statistics(void)
{
    static const uint32_t counts[] = { 3, 3, 3, 3, 3, 3, 3 };
    struct toy_options o = four_layers;
    gh_offload_stats moved;

    o.environment = told;
    o.host = &hearing;
    if (!open_with(&o)) {
        return;
    }
    run_steps(counts, 1);
    moved = toy_moved(&sv);
    is_int(moved.saved_bytes,
           MODULES * (3 * (LAYERS - 1) * GROUP_BYTES - 2 * 2 * GROUP_BYTES),
           "device memory is saved as the decision says");
    is_int(moved.pinned_bytes, 3 * (LAYERS - 1) * MODULES * GROUP_BYTES,
           "pinned memory is held for the groups that go");
    is_int(moved.pinned_peak, 3 * LAYERS * MODULES * GROUP_BYTES,
           "and more was in use in the first step, which moves all groups");
    ok(run_steps(counts, 3), "steps go on");
    is_int(toy_moved(&sv).timed_steps, 0, "and none was timed so far");
    ok(run_steps(counts, 3) && toy_is_exact(&sv), "the fifth is");
    moved = toy_moved(&sv);
    is_int(moved.timed_steps, 1, "one step is timed");
    ok(moved.timed_ns > 0, "its copies take %llu ns, and %u waits %llu",
       (unsigned long long)moved.timed_ns, moved.stalls,
       (unsigned long long)moved.stalled_ns);
    finish();
    is_int(times_said("offload: 9 of 9 groups went: ") +
               times_said("offload: 9 of 12 groups went: "),
           1, "the session's end says what went");
    o.environment = NULL;
    o.host = NULL;
    if (!open_with(&o)) {
        return;
    }
    run_steps(counts, 7);
    is_int(toy_moved(&sv).timed_steps, 0, "without a log none is timed");
    finish();
}

/* What the step that is timed has waited for copies that are long. */
static gh_offload_stats timed_with(uint32_t buffers, const char *enable)
{
    static const uint32_t counts[] = { 4, 4, 4, 4, 4 };
    const char *const environment[] = { "GRAPHHOOKS_LOG=info", enable, NULL };
    struct toy_options o = four_layers;
    gh_offload_stats moved = { 0 };

    o.layers = 6;
    o.modules = o.tensors = 1;
    o.elems = 262144;
    o.offload = asks("core_attn");
    o.offload.buffers = buffers;
    o.environment = environment;
    o.host = &hearing;
    if (open_with(&o)) {
        ok(run_steps(counts, 5) && toy_is_exact(&sv),
           "long copies are timed, %s", enable);
        moved = toy_moved(&sv);
        finish();
    }
    return moved;
}

static void test_stalls(void)
{
    static const char *const how[] = { "GRAPHHOOKS_ENABLE=0",
                                       "GRAPHHOOKS_ENABLE=1" };

    for (int i = 0; i < 2; i++) {
        const gh_offload_stats two = timed_with(2, how[i]);
        const gh_offload_stats four = timed_with(4, how[i]);

        ok(two.stalls > 0 && two.stalled_ns > 0,
           "%s: copies that are longer than the compute are waited for: %u "
           "times, %llu of %llu ns",
           how[i], two.stalls, (unsigned long long)two.stalled_ns,
           (unsigned long long)two.timed_ns);
        ok(four.stalled_ns < two.stalled_ns,
           "%s: and for less time with more buffers: %llu ns", how[i],
           (unsigned long long)four.stalled_ns);
        ok(two.stalled_ns < two.timed_ns,
           "%s: which is no more than the copies take", how[i]);
    }
}

/* ---- a group that is saved long before it is committed ------------------- */

enum { DEEP = 8 };

static void hook_group(gh_status (*call)(gh_session *, gh_offload_group *,
                                         gh_error *),
                       uint32_t layer, CUdeviceptr *at)
{
    gh_offload_tensor tensor = { NULL, 512 };
    gh_offload_group group = { .struct_size = sizeof(group),
                               .layer = layer,
                               .module = GH_MODULE_CORE_ATTN,
                               .n_tensors = 1,
                               .tensors = &tensor };

    if (call(sv.session, &group, &sv.err) != GH_OK) {
        ok(false, "a group is found: %s", sv.err.text);
    }
    *at = (CUdeviceptr)(uintptr_t)tensor.address;
}

static void fill(CUdeviceptr at, const gh_decision *d)
{
    sv.drv.cuMemsetD32Async(at, 7, 128, (CUstream)d->stream);
}

/* The pass of a layer: it reads its own group and writes the next one's, which
 * it saves at its begin, or just before it writes it. */
static void pass_forward(uint32_t l, bool late, const gh_decision *d)
{
    CUdeviceptr at = 0;

    if (l + 1 < DEEP && !late) {
        hook_group(gh_offload_save, l + 1, &at);
    }
    fill(sv.memory, d); /* the work */
    if (l + 1 < DEEP && late) {
        hook_group(gh_offload_save, l + 1, &at);
    }
    if (l + 1 < DEEP) {
        sv.drv.cuMemcpyDtoDAsync(at, sv.memory, 512, (CUstream)d->stream);
    }
    if (l > 0) {
        gh_offload_commit(sv.session, l, GH_MODULE_CORE_ATTN, &sv.err);
    }
}

static void pass_backward(uint32_t l, const gh_decision *d)
{
    CUdeviceptr at = 0;

    if (l > 0) {
        hook_group(gh_offload_load, l, &at);
    }
    fill(sv.memory, d);
    fill(sv.memory, d);
    if (l > 0) {
        gh_offload_release(sv.session, l, GH_MODULE_CORE_ATTN, &sv.err);
    }
}

static void one_pass(uint32_t l, gh_direction direction, bool late)
{
    const gh_pass pass = { .struct_size = sizeof(pass),
                           .segment = l,
                           .direction = direction,
                           .stream = sv.streams[0] };
    gh_decision d = { .struct_size = sizeof(d) };

    if (gh_layer_enter(sv.session, &pass, &d, &sv.err) != GH_OK) {
        ok(false, "a pass is entered: %s", sv.err.text);
        return;
    }
    if (d.action != GH_ACTION_REPLAYED && direction == GH_FORWARD) {
        pass_forward(l, late, &d);
    } else if (d.action != GH_ACTION_REPLAYED) {
        pass_backward(l, &d);
    }
    if (gh_layer_exit(sv.session, &pass, &sv.err) != GH_OK) {
        ok(false, "a pass is left: %s", sv.err.text);
    }
}

/* Milliseconds of a step in graphs.  The work of a forward takes 6, a copy 4. */
static double step_with(bool late, const char *fraction, const char *modules)
{
    struct toy_options o = { .layers = DEEP,
                             .modules = 1,
                             .tensors = 1,
                             .elems = 128,
                             .offload = asks(modules),
                             .environment = told,
                             .host = &hearing };
    softcuda_clock_fn *clock;
    softcuda_costs_fn *costs;
    uint64_t began = 0;
    double ms;

    o.offload.fraction = fraction;
    if (!open_with(&o)) {
        return 0.0;
    }
    toy_configure(&sv, "RACES=1");
    clock = (softcuda_clock_fn *)toy_control(&sv, "softcuda_clock");
    costs = (softcuda_costs_fn *)toy_control(&sv, "softcuda_costs");
    is_int(costs("set 6000000\ncopy out 4000000\ncopy back 4000000\n"), 0,
           "the work takes longer than the copies");
    for (int step = 0; step < 7; step++) {
        sv.drv.cuCtxSynchronize();
        began = clock();
        for (uint32_t l = 0; l < DEEP; l++) {
            one_pass(l, GH_FORWARD, late);
        }
        for (uint32_t l = DEEP; l-- > 0;) {
            one_pass(l, GH_BACKWARD, late);
        }
        gh_iteration_end(sv.session, &sv.err);
    }
    sv.drv.cuCtxSynchronize();
    ms = (double)(clock() - began) / 1e6;
    is_int(toy_races(&sv), 0, "nothing is raced for");
    costs(NULL);
    finish();
    return ms;
}

static void test_saved_early(void)
{
    const double without = step_with(false, "1", "");
    const double early = step_with(false, "1", "core_attn");
    double late;

    ok(without > 144.0 && early > 1.1 * without,
       "a group that is saved at the begin of a pass waits for the copy "
       "committed just before: %.1f ms, and %.1f without offload",
       early, without);
    is_int(times_said(", core_attn, waits longest in the step that was timed: "
                      "at most 4.0"), 1,
           "the log names it: %s", said);
    ok(times_said(" ms at its save, for the copy of what its buffer held") == 1,
       "and what it waits for");
    late = step_with(true, "1", "core_attn");
    ok(late < 1.005 * without, "saved late it does not wait: %.1f ms", late);
    late = step_with(false, "auto", "core_attn");
    ok(late < 1.005 * without, "nor with auto: %.1f ms", late);
    ok(times_said("core_attn: 6 of 7 groups go; 0.0 MiB on the device, in "
                  "rings of 3 out and 2 back") == 1,
       "which gives it a third buffer before it gives it up: %s", said);
}

int main(void)
{
    const char *reason;
    struct toy probe;

    if (!toy_probe(&probe, &reason)) {
        return skip_all("%s", reason);
    }
    test_auto();
    test_auto_and_freeze();
    test_prefetch();
    test_statistics();
    if (probe.soft) {
        test_auto_takes_a_step();
        test_auto_knows_waits();
        test_auto_without_events();
        test_saved_early();
        test_in_flight();
        test_in_flight_of_own();
        test_stalls();
    } else {
        skip(1, "only the software device counts, fails, and has a clock that "
                "is the same each time");
    }
    is_int(n_leaks, 0, "no session has left anything on the device");
    return done_testing();
}
