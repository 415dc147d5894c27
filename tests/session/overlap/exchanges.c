/*
 * Copies of offload beside exchanges of tokens: with fraction=auto both are
 * timed with each other and one after the other, and where exchanges are slower
 * fewer groups go.
 *
 * On the software device exchanges that copy to the host and back share the
 * engines of offload's copies; those that do not share nothing.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/heard.h"
#include "support/pair.h"
#include "tap/tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOE GH_LAYER_MOE
#define STEPS 8
#define EXCHANGED (1u << 20)
#define MOST 4096

static void *host_memory;
static CUdeviceptr device_memory;

/* Exchanges of one step, at first the last. */
static uint32_t timed_step = STEPS - 1;
static struct {
    CUevent began, ended;
} timed[MOST];
static uint32_t n_timed;
static uint32_t asked_for;
static bool begins_idle; /* with a step without a pass */
static bool times;

/* What is sent goes over the link, and what is received comes. */
static void by_the_link(struct pair *p, CUstream stream, bool forward)
{
    if (forward) {
        p->toy.drv.cuMemcpyDtoHAsync(host_memory, device_memory, EXCHANGED,
                                     stream);
    } else {
        p->toy.drv.cuMemcpyHtoDAsync(device_memory, host_memory, EXCHANGED,
                                     stream);
    }
}

static void on_the_device(struct pair *p, CUstream stream, bool forward)
{
    (void)forward;
    p->toy.drv.cuMemsetD8Async(device_memory, 0, EXCHANGED, stream);
}

static void watch(struct pair *p, const gh_overlap_node *node, bool issued)
{
    CUevent *event = issued ? &timed[n_timed].ended : &timed[n_timed].began;

    if (!times || node->lane != GH_LANE_COMM || n_timed == MOST) {
        return;
    }
    p->toy.drv.cuEventCreate(event, 0);
    p->toy.drv.cuEventRecord(*event, (CUstream)node->stream);
    n_timed += issued;
}

static double read_times(struct pair *p, double *span_p)
{
    double sum = 0;
    float span = 0;

    p->toy.drv.cuCtxSynchronize();
    if (n_timed > 0) {
        p->toy.drv.cuEventElapsedTime(&span, timed[0].began,
                                      timed[n_timed - 1].ended);
    }
    *span_p = (double)span;
    for (uint32_t i = 0; i < n_timed; i++) {
        float ms = 0;

        p->toy.drv.cuEventElapsedTime(&ms, timed[i].began, timed[i].ended);
        p->toy.drv.cuEventDestroy(timed[i].began);
        p->toy.drv.cuEventDestroy(timed[i].ended);
        sum += (double)ms;
    }
    n_timed = 0;
    return sum;
}

/* The first line that begins so, without the rest. */
static const char *line_of(const char *begins)
{
    static char line[200];
    const char *at = strstr(said, begins);

    snprintf(line, sizeof(line), "%.*s",
             at == NULL ? 0 : (int)strcspn(at, "\n"), at == NULL ? "" : at);
    return line;
}

static const uint32_t counts[STEPS] = { 4, 4, 4, 4, 4, 4, 4, 4 };

struct outcome {
    gh_offload_stats moved;
    double exchanges_ms; /* of the last step */
    double span_ms;      /* from its first exchange to its last */
    bool exact, failed;
    uint64_t races, left;
};

static bool open_exchanging(struct pair *p, const struct pair_options *options,
                            const char *settings)
{
    softcuda_costs_fn *costs;
    const char *reason;

    said[0] = '\0';
    if (!pair_open(p, options, &reason)) {
        ok(false, "the pair opens: %s", reason);
        return false;
    }
    costs = (softcuda_costs_fn *)toy_control(&p->toy, "softcuda_costs");
    toy_configure(&p->toy, settings);
    costs("kernel * 60000\ncopy out 1500 5\ncopy back 1500 5\n"
          "set 20000 50\n");
    p->toy.drv.cuMemAllocHost(&host_memory, EXCHANGED);
    p->toy.drv.cuMemAlloc(&device_memory, EXCHANGED);
    p->toy.drv.cuMemsetD8Async(device_memory, 0, EXCHANGED, NULL);
    p->toy.drv.cuCtxSynchronize();
    return true;
}

static struct outcome run(const struct pair_options *options,
                          const char *settings)
{
    struct outcome outcome = { .exact = false };
    gh_status status;
    softcuda_counts found;
    uint64_t before;
    struct pair p;

    if (!open_exchanging(&p, options, settings)) {
        return outcome;
    }
    found = toy_counts(&p.toy);
    before = toy_objects(&found);
    status = pair_attach(&p);
    if (begins_idle) {
        gh_iteration_end(p.toy.session, NULL);
    }
    for (uint32_t s = 0; s < STEPS && status == GH_OK; s++) {
        times = s == timed_step;
        status = pair_step(&p, counts[s]);
    }
    times = false;
    outcome.failed = status != GH_OK && p.toy.err.text[0] != '\0';
    outcome.exchanges_ms = read_times(&p, &outcome.span_ms);
    outcome.exact = status == GH_OK && pair_is_exact(&p);
    if (options->offload) {
        outcome.moved = toy_moved(&p.toy);
    }
    outcome.races = toy_races(&p.toy);
    toy_detach(&p.toy);
    toy_configure(&p.toy, "RACES=0");
    found = toy_counts(&p.toy);
    outcome.left = toy_objects(&found) - before;
    p.toy.drv.cuMemFreeHost(host_memory);
    p.toy.drv.cuMemFree(device_memory);
    pair_close(&p);
    return outcome;
}

static const struct pair_options plain = {
    .kinds = { MOE, MOE, MOE, MOE, MOE, MOE },
    .layers = 6,
    .offload = true,
    .words = 1u << 18,
    .log = hear,
    .watch = watch,
    .told = true,
    .exchange = by_the_link,
};

static void test_exchanges_that_are_slowed(void)
{
    struct pair_options options = plain;
    struct outcome none, all, some;

    options.offload = false;
    none = run(&options, "SEED=2");
    options.offload = true;
    all = run(&options, "SEED=2");
    options.fraction = "auto";
    some = run(&options, "SEED=2");
    ok(none.exact && all.exact && some.exact, "every weight is exact");
    ok(all.exchanges_ms > none.exchanges_ms * 1.1,
       "copies slow exchanges that use the same link: %.3f ms, %.3f alone",
       all.exchanges_ms, none.exchanges_ms);
    ok(strstr(said, "longer beside copies: ") != NULL, "which is said: %s",
       line_of("offload: exchanges of tokens"));
    ok(strstr(said, "stay (would slow an exchange)") != NULL,
       "and why groups stay");
    ok(some.moved.groups_offloaded < all.moved.groups_offloaded,
       "fewer groups go: %u of %u, %u with all", some.moved.groups_offloaded,
       some.moved.groups, all.moved.groups_offloaded);
    ok(some.exchanges_ms < none.exchanges_ms * 1.07,
       "then exchanges take as long as alone: %.3f ms", some.exchanges_ms);
}

/* Of both steps; another rank says that half of the first ones was a wait. */
static void with_a_rank_that_came_last(double *numbers, uint32_t n)
{
    const uint32_t each = 6 * 2 * 2 * 4; /* layers, exchanges, ways, counts */

    for (uint32_t i = 0; i < n; i++) {
        asked_for += numbers[i] > 0;
        numbers[i] *= i < each ? 2 : 1;
    }
}

/* What a rank waits for the others is no fault of copies. */
static void test_exchanges_that_wait_for_a_rank(void)
{
    struct pair_options options = plain;
    struct outcome alone, agreed;

    options.fraction = "auto";
    alone = run(&options, "SEED=2");
    options.change = with_a_rank_that_came_last;
    begins_idle = true;
    agreed = run(&options, "SEED=2");
    begins_idle = false;
    ok(alone.exact && agreed.exact, "every weight is exact");
    ok(asked_for > 48, "ranks agree on the times of %u exchanges", asked_for);
    ok(strstr(said, "offload: exchanges of tokens take 0.0 % longer") != NULL,
       "the shortest time of all ranks counts: %s",
       line_of("offload: exchanges of tokens"));
    ok(agreed.moved.groups_offloaded > alone.moved.groups_offloaded,
       "more groups go: %u, and %u by this rank's times",
       agreed.moved.groups_offloaded, alone.moved.groups_offloaded);
}

static void test_exchanges_that_are_not(void)
{
    struct pair_options options = plain;
    struct outcome all;

    options.exchange = on_the_device;
    options.fraction = "auto";
    all = run(&options, "SEED=2");
    ok(all.exact, "every weight is exact");
    ok(all.moved.groups_offloaded > 0, "groups go: %u of %u",
       all.moved.groups_offloaded, all.moved.groups);
    ok(strstr(said, "offload: exchanges of tokens take 0.0 % longer beside "
                    "copies\n") != NULL,
       "beside exchanges that need no link: %s",
       line_of("offload: exchanges"));
    ok(strstr(said, "would slow") == NULL, "none stays for them");
}

/* In the third step no copy is beside an exchange: on the device's clock, which
 * is exact with seed 0. */
static void test_the_step_apart(void)
{
    struct pair_options options = plain;
    struct outcome none, beside, apart;

    options.fraction = "auto";
    timed_step = 1;
    beside = run(&options, "SEED=0");
    timed_step = 2;
    apart = run(&options, "SEED=0");
    options.offload = false;
    none = run(&options, "SEED=0");
    timed_step = STEPS - 1;
    ok(beside.exchanges_ms > none.exchanges_ms * 1.05,
       "exchanges are beside copies: %.3f ms, %.3f without any",
       beside.exchanges_ms, none.exchanges_ms);
    ok(apart.exchanges_ms < none.exchanges_ms * 1.001,
       "and in the next step apart from them: %.3f ms", apart.exchanges_ms);
}

/* The commits that are delayed are issued after an exchange, whose engine their
 * copies share here, and not beside it. */
static void test_behind(void)
{
    struct pair_options options = plain;
    struct outcome none, beside, behind, at_once;

    options.later = true;
    options.offload = false;
    none = run(&options, "SEED=3 RACES=1");
    options.offload = true;
    beside = run(&options, "SEED=3 RACES=1");
    options.behind = true;
    behind = run(&options, "SEED=3 RACES=1");
    ok(none.exact && beside.exact && behind.exact &&
           behind.races + behind.left == 0,
       "behind exchanges: every weight is exact, and nothing races");
    ok(behind.moved.out_bytes == beside.moved.out_bytes &&
           behind.moved.back_bytes == beside.moved.back_bytes,
       "as much goes and comes back");
    ok(beside.exchanges_ms > 1.2 * none.exchanges_ms,
       "an exchange takes %.3f of its time beside copies",
       beside.exchanges_ms / none.exchanges_ms);
    ok(behind.exchanges_ms <= 1.1 * none.exchanges_ms,
       "and %.3f where they begin after it",
       behind.exchanges_ms / none.exchanges_ms);
    ok(behind.span_ms <= 1.01 * beside.span_ms,
       "the step takes %.3f of its time", behind.span_ms / beside.span_ms);
    options.later = false;
    at_once = run(&options, "SEED=0");
    options.behind = false;
    beside = run(&options, "SEED=0");
    ok(at_once.exchanges_ms == beside.exchanges_ms,
       "without delayed commits nothing changes");
}

/* What is settled takes time in proportion to what was timed: no event is read
 * once for each other one. */
static void test_events_are_read_once(void)
{
    struct pair_options options = plain;
    softcuda_calls_fn *calls;
    uint64_t made, read;
    struct pair p;

    options.fraction = "auto";
    if (!open_exchanging(&p, &options, "SEED=2")) {
        return;
    }
    calls = (softcuda_calls_fn *)toy_control(&p.toy, "softcuda_calls");
    pair_attach(&p);
    for (uint32_t s = 0; s < 4; s++) {
        pair_step(&p, counts[s]);
    }
    made = calls("cuEventCreate");
    read = calls("cuEventElapsedTime");
    ok(strstr(said, "longer beside copies: ") != NULL,
       "exchanges are compared: %s", line_of("offload: exchanges"));
    ok(read > 0 && read <= 2 * made,
       "each event is read twice at most: %llu times for %llu events",
       (unsigned long long)read, (unsigned long long)made);
    p.toy.drv.cuMemFreeHost(host_memory);
    p.toy.drv.cuMemFree(device_memory);
    pair_close(&p);
}

/* With this seed the device is always there first, as it is where the CPU is
 * slow: times are the host's, and say nothing. */
static void test_a_slow_host(void)
{
    struct pair_options options = plain;
    struct outcome all;

    options.fraction = "auto";
    all = run(&options, "SEED=0");
    ok(all.exact && all.moved.groups_offloaded == 15,
       "no group stays for times that are the host's: %u go",
       all.moved.groups_offloaded);
    ok(strstr(said, "exchanges of tokens could not be compared") != NULL,
       "which is said");
}

/* Four steps are learnt from, one records, and one more is measured. */
static void test_when_nodes_are_measured(const struct pair_options *options)
{
    struct pair p;

    if (!open_exchanging(&p, options, "SEED=0")) {
        return;
    }
    pair_attach(&p);
    for (uint32_t s = 0; s < 6; s++) {
        pair_step(&p, counts[s]);
    }
    is_int(p.agreed, 1, "while offload learns, ranks agree on exchanges alone");
    pair_step(&p, 4);
    is_int(p.agreed, 2, "and then on nodes");
    p.toy.drv.cuMemFreeHost(host_memory);
    p.toy.drv.cuMemFree(device_memory);
    pair_close(&p);
}

/* Their steps follow each other: nodes are measured when groups are settled. */
static void test_both_are_auto(void)
{
    const char *seeds = getenv("GRAPHHOOKS_TEST_SEEDS");
    const uint32_t n = seeds != NULL ? (uint32_t)atoi(seeds) : 20;
    struct pair_options options = plain;
    struct outcome outcome;

    options.fraction = "auto";
    options.order = "auto";
    options.words = 1u << 10;
    options.delay_wgrad = true;
    for (uint32_t seed = 0; seed <= n; seed++) {
        char settings[32];

        snprintf(settings, sizeof(settings), "SEED=%u RACES=1", seed);
        outcome = run(&options, settings);
        if (!outcome.exact || outcome.races != 0 || outcome.left != 0) {
            ok(false, "seed %u is exact, without a race, and leaves nothing",
               seed);
        }
    }
    ok(strstr(said, "overlap: forward of chunk 0, backward of chunk 0: ") !=
           NULL,
       "the order is chosen too");
    test_when_nodes_are_measured(&options);
}

/* Whatever event cannot be had, numbers stay; with `behind` copies also wait for
 * exchanges. */
static void test_events_that_fail(bool behind)
{
    struct pair_options options = plain;
    struct outcome whole;
    softcuda_calls_fn *calls;
    /* Fewer where the run with more has been, and a sanitizer looks on. */
    const uint64_t stride = getenv("GRAPHHOOKS_TEST_SEEDS") != NULL ? 29 : 7;
    const uint64_t first = behind ? 20 : 60; /* after those of a beginning */
    uint64_t n_calls, wrong = 0;
    struct pair p;

    options.later = options.behind = behind;
    options.fraction = behind ? NULL : "auto";
    options.layers = 3;
    options.words = 1u << 10;
    options.told = false;
    whole = run(&options, "SEED=1 RACES=1");
    if (!open_exchanging(&p, &options, "SEED=1")) {
        return;
    }
    calls = (softcuda_calls_fn *)toy_control(&p.toy, "softcuda_calls");
    pair_attach(&p);
    for (uint32_t s = 0; s < 4; s++) {
        pair_step(&p, counts[s]);
    }
    n_calls = calls("cuEventCreate");
    p.toy.drv.cuCtxSynchronize();
    p.toy.drv.cuMemFreeHost(host_memory);
    p.toy.drv.cuMemFree(device_memory);
    pair_close(&p);
    for (uint64_t n = first; n <= n_calls; n += behind ? 3 : stride) {
        struct outcome outcome;
        char settings[64];

        snprintf(settings, sizeof(settings),
                 "SEED=1 RACES=1 FAIL=cuEventCreate:%llu",
                 (unsigned long long)n);
        outcome = run(&options, settings);
        wrong += outcome.races != 0 || outcome.left != 0 ||
                 (!outcome.exact && !outcome.failed);
    }
    ok(whole.exact && n_calls > first && wrong == 0,
       "behind %d: each of %llu events may fail: %llu wrong", behind,
       (unsigned long long)n_calls, (unsigned long long)wrong);
}

int main(void)
{
    int status;

    if (!toy_probe_soft(&status)) {
        return status;
    }
    test_exchanges_that_are_slowed();
    test_exchanges_that_wait_for_a_rank();
    test_exchanges_that_are_not();
    test_the_step_apart();
    test_behind();
    test_events_are_read_once();
    test_a_slow_host();
    test_both_are_auto();
    test_events_that_fail(false);
    test_events_that_fail(true);
    return done_testing();
}
