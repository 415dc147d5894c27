/*
 * What goes wrong in a pair: bad input, a node that fails in the middle, a
 * driver that fails any call.  Each is a sentence, nothing is left behind, and
 * the next step is right.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/pair.h"
#include "tap/tap.h"

#include <stdio.h>
#include <string.h>

#define ABSENT UINT32_MAX

static const struct pair_options plain = {
    .kinds = { GH_LAYER_MOE, GH_LAYER_DENSE, GH_LAYER_MOE },
    .layers = 3,
    .delay_wgrad = true,
    .own_comm = true,
};

static gh_error err;

/* ---- bad input ----------------------------------------------------------- */

static gh_status never(void *user, const gh_overlap_node *node, gh_error *error)
{
    (void)node;
    (void)error;
    *(bool *)user = true;
    return GH_OK;
}

static void refused(struct pair *p, const gh_overlap_pair *pair,
                    gh_status status, const char *what, const char *says)
{
    is_status(gh_overlap_run(p->toy.session, pair, &err), status, &err,
              "%s is refused", what);
    ok(strstr(err.text, says) != NULL, "with a sentence: %s", err.text);
}

static void test_bad_pairs(void)
{
    bool called = false;
    const gh_overlap_pair good = { .struct_size = sizeof(good),
                                   .flags = GH_OVERLAP_FORWARD,
                                   .run_node = never,
                                   .user = &called };
    gh_overlap_pair pair;
    struct pair p;

    if (!pair_start(&p, &plain, NULL)) {
        return;
    }
#define REFUSED(change, status, what, says) \
    pair = good; \
    pair.change; \
    refused(&p, &pair, status, what, says)
    refused(&p, NULL, GH_ERR_INVALID, "no pair", "pair is NULL");
    REFUSED(struct_size = 8, GH_ERR_ABI, "a pair that is too small",
            "gh_overlap_pair");
    REFUSED(flags = 0, GH_ERR_INVALID, "a pair of nothing",
            "set GH_OVERLAP_FORWARD");
    REFUSED(flags |= 64, GH_ERR_INVALID, "an unknown flag", "unknown bit");
    REFUSED(run_node = NULL, GH_ERR_INVALID, "a pair without a callback",
            "run_node is NULL");
    REFUSED(forward_chunk = 1, GH_ERR_NOT_FOUND, "a chunk that is not there",
            "the model has 1 chunks");
    REFUSED(forward_microbatch = GH_MAX_MICROBATCHES, GH_ERR_INVALID,
            "a microbatch beyond the last", "forward_microbatch is 16384");
    REFUSED(backward_microbatch = 1, GH_ERR_INVALID,
            "a backward that is not in the flags", "zero both");
    REFUSED(flags |= GH_OVERLAP_BACKWARD, GH_ERR_INVALID,
            "one microbatch in both directions", "pair two microbatches");
    REFUSED(compute = pair.comm = p.comm, GH_ERR_INVALID, "one stream for both",
            "where nothing overlaps");
    REFUSED(comm = CU_STREAM_PER_THREAD, GH_ERR_INVALID,
            "a stream of every thread", "gh_overlap_pair.comm is");
    ok(!called, "no node is issued");
    pair_close(&p);
}

static void test_bad_state(void)
{
    gh_pass pass = { .struct_size = sizeof(pass) };
    gh_decision d = { .struct_size = sizeof(d) };
    gh_overlap_stats stats = { .struct_size = 3 };
    bool called = false;
    const gh_overlap_pair pair = { .struct_size = sizeof(pair),
                                   .flags = GH_OVERLAP_FORWARD,
                                   .run_node = never,
                                   .user = &called };
    struct toy_options toy = { .layers = 1, .elems = 4 };
    struct toy without;
    struct pair p;

    if (!pair_start(&p, &plain, NULL)) {
        return;
    }
    pass.stream = p.toy.streams[0];
    is_status(gh_layer_enter(p.toy.session, &pass, &d, &err), GH_OK, &err,
              "a pass is open");
    refused(&p, &pair, GH_ERR_STATE, "a run beside it", "a pass is open");
    gh_layer_cancel(p.toy.session, NULL);
    is_status(gh_overlap_get_stats(p.toy.session, NULL, &err), GH_ERR_INVALID,
              &err, "statistics go somewhere");
    is_status(gh_overlap_get_stats(p.toy.session, &stats, &err), GH_ERR_ABI,
              &err, "which has its size");
    is_status(gh_overlap_run(NULL, &pair, &err), GH_ERR_INVALID, &err,
              "a session is needed");
    pair_close(&p);

    if (!toy_start(&without, &toy, NULL)) {
        return;
    }
    is_status(gh_overlap_run(without.session, &pair, &err), GH_ERR_STATE, &err,
              "a session without EP overlap has no pairs");
    ok(strstr(err.text, "GH_SESSION_EP_OVERLAP") != NULL,
       "which is said: %s", err.text);
    stats.struct_size = sizeof(stats);
    is_status(gh_overlap_get_stats(without.session, &stats, &err),
              GH_ERR_UNSUPPORTED, &err, "nor has it statistics of them");
    toy_close(&without);
    ok(!called, "no node was issued");
}

/* What the schedule would have to cut, or has nothing to hide. */
static void test_models_that_are_refused(void)
{
    static const struct {
        const char *what, *says;
        gh_layer_desc layer;
        uint32_t ep_size;
    } rows[] = {
        { "a group of one", "has no communication to hide", { 0 }, 1 },
        { "experts that do not divide", "leaves no remainder", { 0 }, 3 },
        { "shared experts beside the dispatch", "leave out shared_overlap",
          { .features =
                GH_FEATURE_SHARED_EXPERTS | GH_FEATURE_SHARED_OVERLAP },
          2 },
        { "experts that are recomputed", "recompute moe_act instead of moe",
          { .recompute = GH_MODULE_MOE }, 2 },
        { "a layer that is recomputed", "recompute modules of it",
          { .recompute = GH_MODULE_LAYER }, 2 },
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const gh_model_desc all = { .struct_size = sizeof(all),
                                    .ep_size = rows[i].ep_size };
        gh_session_desc desc = { .struct_size = sizeof(desc),
                                 .flags = GH_SESSION_EP_OVERLAP,
                                 .driver = "/no/such/driver.so" };
        gh_layer_desc layer = rows[i].layer;
        gh_session *session = NULL;
        gh_model *model = NULL;

        layer.struct_size = sizeof(layer);
        layer.kind = GH_LAYER_MOE;
        layer.experts = 4;
        gh_model_create(&model, NULL);
        gh_model_add_layer(model, &layer, NULL);
        gh_model_describe(model, &all, NULL);
        desc.model = model;
        is_status(gh_session_open(&desc, &session, &err), GH_ERR_CONFIG, &err,
                  "%s: no session opens", rows[i].what);
        ok(strstr(err.text, rows[i].says) != NULL, "with a sentence: %s",
           err.text);
        gh_model_destroy(model);
    }
}

/* ---- nodes that fail ----------------------------------------------------- */

static const struct {
    enum pair_mischief mischief;
    const char *what, *says;
    gh_status status;
} mischiefs[] = {
    { PAIR_FAILS, "fails", "the host's node fails", GH_ERR_DEVICE },
    { PAIR_FAILS_MUTE, "fails without a word", "does not say why",
      GH_ERR_DEVICE },
    { PAIR_FAILS_INSIDE, "fails inside a pass", "fails with a pass open",
      GH_ERR_DEVICE },
    { PAIR_LEAVES_OPEN, "leaves a pass open", "call gh_layer_exit",
      GH_ERR_STATE },
    { PAIR_RERUNS, "returns GH_RERUN", "above GH_OK", GH_ERR_INVALID },
    { PAIR_NESTS, "runs a pair", "called by a node of a run", GH_ERR_STATE },
    { PAIR_ENDS_STEP, "ends the step", "called by a node of gh_overlap_run",
      GH_ERR_STATE },
    { PAIR_SUSPENDS, "suspends the session",
      "called by a node of gh_overlap_run", GH_ERR_STATE },
};
#define N_MISCHIEFS (sizeof(mischiefs) / sizeof(mischiefs[0]))

/* All memory is zeroed on the compute stream, without a wait: what the run has
 * issued on the other one must come before. */
static bool start_again(struct pair *p)
{
    p->mischief = PAIR_GOOD;
    p->toy.step = 0;
    return gh_iteration_end(p->toy.session, &p->toy.err) == GH_OK &&
           pair_clear(p);
}

static void fail_at(size_t which, uint32_t node, uint32_t warm)
{
    static const uint32_t counts[] = { 3, 2, 3 };
    gh_status status = GH_OK;
    struct pair p;

    if (!pair_start(&p, &plain, NULL)) {
        return;
    }
    for (uint32_t i = 0; i < warm; i++) {
        pair_step(&p, 2);
    }
    p.mischief = mischiefs[which].mischief;
    p.until_mischief = node;
    status = pair_step(&p, 2);
    is_status(status, mischiefs[which].status, &p.toy.err, "node %u %s", node,
              mischiefs[which].what);
    ok(strstr(p.toy.err.text, mischiefs[which].says) != NULL,
       "which is said: %s", p.toy.err.text);
    ok(start_again(&p), "the step can end");
    for (uint32_t s = 0; s < 3; s++) {
        status = pair_step(&p, counts[s]);
    }
    is_status(status, GH_OK, &p.toy.err, "the next steps run");
    ok(pair_is_exact(&p), "and every weight is exact");
    if (p.toy.soft) {
        is_int(toy_races(&p.toy), 0, "without a race");
    }
    pair_close(&p);
}

static void test_nodes_that_fail(void)
{
    /* A forward alone, and in a pair either lane of both directions. */
    static const uint32_t nodes[] = { 0, 4, 16, 18, 20, 23, 40 };

    for (size_t i = 0; i < N_MISCHIEFS; i++) {
        fail_at(i, 0, 3);
        fail_at(i, 18, 1);
    }
    for (size_t k = 0; k < sizeof(nodes) / sizeof(nodes[0]); k++) {
        fail_at(0, nodes[k], 3);
    }
}

/* ---- times that are no times --------------------------------------------- */

static double negative(uint32_t cell)
{
    return cell == 5 ? -1 : 1;
}

static void test_bad_times(void)
{
    struct pair_options options = plain;
    struct pair p;

    options.order = "auto";
    options.time_of = negative;
    if (!pair_start(&p, &options, NULL)) {
        return;
    }
    for (uint32_t i = 0; i < 3; i++) {
        pair_step(&p, 2);
    }
    is_status(pair_run(&p, 0, 0, ABSENT, 0), GH_ERR_INVALID, &p.toy.err,
              "a time below 0 is refused");
    ok(strstr(p.toy.err.text, "gh_overlap_pair.agree left -1") != NULL,
       "with a sentence: %s", p.toy.err.text);
    pair_close(&p);
}

static void test_answers_of_agree(void)
{
    static const struct {
        gh_status answer, status;
        const char *says;
    } cases[] = {
        { GH_RERUN, GH_ERR_INVALID, "agree returned 1: return GH_OK" },
        { GH_ERR_DEVICE, GH_ERR_DEVICE, "agree failed and does not say why" },
    };
    struct pair_options options = plain;
    struct pair p;

    options.order = "auto";
    for (size_t k = 0; k < sizeof(cases) / sizeof(cases[0]); k++) {
        options.agree_answer = cases[k].answer;
        if (!pair_start(&p, &options, NULL)) {
            return;
        }
        for (uint32_t i = 0; i < 3; i++) {
            pair_step(&p, 2);
        }
        is_status(pair_run(&p, 0, 0, ABSENT, 0), cases[k].status, &p.toy.err,
                  "an agree that returns %d fails the run", cases[k].answer);
        ok(strstr(p.toy.err.text, cases[k].says) != NULL, "with a sentence: %s",
           p.toy.err.text);
        p.options.no_error = true;
        is_int(pair_run(&p, 0, 0, ABSENT, 0), cases[k].status,
               "and so it does where nobody reads the sentence");
        pair_close(&p);
    }
}

/* ---- a session that is closed by one of its nodes ------------------------ */

static uint32_t closes;

static void close_it(struct pair *p, const gh_overlap_node *node, bool issued)
{
    (void)node;
    (void)issued;
    gh_session_close(p->toy.session);
    closes++;
}

static void test_close_inside(void)
{
    struct pair_options options = plain;
    struct pair p;

    options.watch = close_it;
    if (!pair_start(&p, &options, NULL)) {
        return;
    }
    closes = 0;
    is_status(pair_step(&p, 2), GH_OK, &p.toy.err,
              "a run whose nodes close the session goes on");
    is_status(pair_step(&p, 3), GH_OK, &p.toy.err, "and so does the next");
    ok(closes > 0, "they have called gh_session_close");
    ok(pair_is_exact(&p), "every weight is exact");
    pair_close(&p);
}

/* ---- a driver that fails ------------------------------------------------- */

static const uint32_t counts[] = { 2, 3, 2, 2 };
#define N_STEPS 4

static double uneven(uint32_t cell)
{
    return 100e3 + 50e3 * (cell * 7 % 11);
}

static const struct pair_options swept = {
    .kinds = { GH_LAYER_MOE, GH_LAYER_MOE },
    .layers = 2,
    .order = "auto",
    .time_of = uneven,
    .delay_wgrad = true,
    .quiet = true,
};

struct outcome {
    bool good; /* exact and without a race, or a sentence and a next step */
    uint64_t left, calls;
};

/* The same with groups that go, and commits that wait. */
static const struct pair_options swept_offload = {
    .kinds = { GH_LAYER_MOE, GH_LAYER_MOE, GH_LAYER_MOE, GH_LAYER_MOE },
    .layers = 4,
    .order = "auto",
    .time_of = uneven,
    .delay_wgrad = true,
    .offload = true,
    .later = true,
    .quiet = true,
};

static struct outcome run(const struct pair_options *options,
                          const char *settings, const char *entry)
{
    struct outcome outcome = { 0 };
    softcuda_counts before, after;
    softcuda_calls_fn *calls;
    bool said, again;
    gh_status status;
    const char *reason;
    uint64_t races;
    struct pair p;

    if (!pair_open(&p, options, &reason)) {
        return outcome;
    }
    calls = (softcuda_calls_fn *)toy_control(&p.toy, "softcuda_calls");
    before = toy_counts(&p.toy);
    toy_configure(&p.toy, settings);
    status = pair_attach(&p);
    if (status == GH_OK) {
        status = pair_train(&p, counts, N_STEPS);
    }
    outcome.calls = calls(entry);
    said = p.toy.err.text[0] != '\0';
    again = status == GH_OK || p.toy.session == NULL ||
            (start_again(&p) && pair_step(&p, 2) == GH_OK);
    toy_detach(&p.toy);
    races = toy_races(&p.toy);
    toy_configure(&p.toy, "RACES=0");
    after = toy_counts(&p.toy);
    outcome.left = toy_objects(&after) - toy_objects(&before);
    outcome.good =
        status != GH_OK ? said && again : races == 0 && pair_is_exact(&p);
    pair_close(&p);
    return outcome;
}

static void sweep(const struct pair_options *options, const char *entry,
                  uint64_t most)
{
    const struct outcome whole = run(options, "SEED=3 RACES=1", entry);
    const uint64_t stride = whole.calls / most + 1;
    uint64_t bad = 0, leaked = 0;
    char settings[96];

    for (uint64_t n = 1; n <= whole.calls; n += stride) {
        struct outcome outcome;

        snprintf(settings, sizeof(settings), "SEED=3 RACES=1 FAIL=%s:%llu",
                 entry, (unsigned long long)n);
        outcome = run(options, settings, entry);
        if (!outcome.good || outcome.left != 0) {
            diag("%s: call %llu: %s, %llu objects left", entry,
                 (unsigned long long)n, outcome.good ? "good" : "wrong",
                 (unsigned long long)outcome.left);
        }
        bad += !outcome.good;
        leaked += outcome.left != 0;
    }
    ok(whole.calls > 0 && bad == 0 && leaked == 0,
       "%s%s: each of %llu calls may fail: %llu wrong, %llu leaks", entry,
       options->offload ? " with offload" : "",
       (unsigned long long)whole.calls, (unsigned long long)bad,
       (unsigned long long)leaked);
}

static void test_driver_that_fails(void)
{
    static const char *const entries[] = {
        "cuEventCreate",     "cuEventRecord",
        "cuStreamWaitEvent", "cuStreamCreateWithPriority",
        "cuGraphLaunch",     "cuCtxGetStreamPriorityRange",
        "cuEventElapsedTime", "cuEventSynchronize",
        "cuLaunchKernel",    "cuStreamEndCapture",
    };
    static const char *const of_offload[] = {
        "cuEventRecord",     "cuStreamWaitEvent", "cuMemcpyDtoHAsync",
        "cuMemcpyHtoDAsync", "cuMemcpyBatchAsync_v2", "cuMemAlloc",
        "cuMemAllocHost",    "cuGraphLaunch",     "cuEventCreate",
        "cuLaunchKernel",
    };

    struct pair_options own_comm = swept;

    own_comm.own_comm = true;
    sweep(&own_comm, "cuEventCreate", UINT64_MAX);
    for (size_t i = 0; i < sizeof(entries) / sizeof(entries[0]); i++) {
        sweep(&swept, entries[i], UINT64_MAX);
    }
    for (size_t i = 0; i < sizeof(of_offload) / sizeof(of_offload[0]); i++) {
        sweep(&swept_offload, of_offload[i], 60);
    }
}

int main(void)
{
    const char *reason;
    struct toy toy;

    if (!toy_probe(&toy, &reason)) {
        return skip_all("%s", reason);
    }
    test_bad_pairs();
    test_bad_state();
    test_models_that_are_refused();
    test_nodes_that_fail();
    test_bad_times();
    test_answers_of_agree();
    test_close_inside();
    if (toy.soft) {
        test_driver_that_fails();
    } else {
        skip(20, "only the software device fails on demand");
    }
    return done_testing();
}
