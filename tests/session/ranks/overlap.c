/*
 * Ranks whose nodes take different times choose one order: by the slowest
 * rank's compute, and by exchanges without their waits.  A rank that has no
 * times, or another order, leaves all in the fixed one.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tests/session/ranks/sharer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LAYERS 2
#define NODES 5 /* of a layer: before, dispatch, experts, combine, rest */
#define FLOATS 64
#define BYTES (FLOATS * sizeof(float))
#define ROWS (2 * LAYERS * NODES)
#define MICROBATCHES 3
#define STEPS 5
#define WORDS 16384 /* a long copy */

/* A host whose experts are long, or what comes after them, by rank.  Every
 * exchange sums over the ranks, and what is between adds nothing, so numbers are
 * known; the ranks add in the same order or wait for ever. */
struct pairs {
    struct rank *r;
    gh_session *session;
    gh_segment segments[LAYERS * NODES];
    CUdeviceptr memory, waste;
    uint32_t agreed; /* times that the host was asked */
    double lone_compute; /* the sum of the times that it was asked for */
    double lone_comm;
    uint64_t issued; /* a hash of the nodes of the last run */
    uint64_t pair_issued; /* of the last pair, and its statistics */
    gh_overlap_stats pair;
    bool reorders;   /* this rank's agree gives times of its own */
    bool swaps;      /* this rank runs another pair */
    bool one_way;    /* steps have a forward alone */
    char said[4096];
    gh_error err;
};

/* Ranks wait for each other no longer than a second. */
static bool hasty;

static void keep(void *user, gh_log_level level, const char *line)
{
    struct pairs *p = user;
    const size_t n = strlen(p->said);

    (void)level;
    snprintf(p->said + n, sizeof(p->said) - n, "%s\n", line);
}

static CUdeviceptr row(const struct pairs *p, uint32_t m, uint32_t i)
{
    return p->memory + ((uint64_t)m * (ROWS + 2) + i) * BYTES;
}

/* Row 0 is what the chunk is given; a node's input is the row before. */
static uint32_t row_of(const gh_overlap_node *node)
{
    const uint32_t at = node->layer * NODES + node->node;

    return node->direction == GH_FORWARD ? at + 1 : ROWS - at;
}

static void waste_time(struct pairs *p, const gh_overlap_node *node,
                       CUstream stream)
{
    const bool slow = node->node == (p->r->rank % 2 == 0 ? 2 : 4);
    CUdeviceptr at = p->waste + (node->direction != GH_FORWARD) * WORDS * 4;

    at += node->lane == GH_LANE_COMM ? 2 * WORDS * 4 : 0;
    for (int i = 0; i < (slow ? 24 : 1); i++) {
        drv.cuMemsetD32Async(at, 0, WORDS, stream);
    }
}

static gh_status run_node(void *user, const gh_overlap_node *node,
                          gh_error *err)
{
    struct pairs *p = user;
    const uint32_t to = row_of(node);
    gh_buffer input = { pointer(row(p, node->microbatch, to - 1)), BYTES,
                        GH_BUFFER_STATIC, 0 };
    gh_buffer output = { pointer(row(p, node->microbatch, to)), BYTES, 0, 0 };
    const gh_pass pass = { .struct_size = sizeof(pass),
                           .segment = node->first_segment,
                           .direction = node->direction,
                           .microbatch = node->microbatch,
                           .stream = node->stream,
                           .inputs = &input,
                           .n_inputs = 1,
                           .outputs = &output,
                           .n_outputs = 1 };
    gh_status status;

    p->issued = (p->issued ^ to) * UINT64_C(0x100000001b3);
    do {
        gh_decision d = { .struct_size = sizeof(d) };

        status = gh_layer_enter(p->session, &pass, &d, err);
        if (status != GH_OK) {
            return status;
        }
        if (d.action != GH_ACTION_REPLAYED) {
            waste_time(p, node, d.stream);
            drv.cuMemcpyDtoDAsync(row(p, node->microbatch, to),
                                  (uintptr_t)d.inputs[0].address, BYTES,
                                  d.stream);
            if (node->lane == GH_LANE_COMM) {
                nccl.ncclAllReduce(output.address, output.address, FLOATS,
                                   ncclFloat32, ncclSum, p->r->comm,
                                   d.stream);
            }
        }
        status = gh_layer_exit(p->session, &pass, err);
    } while (status == GH_RERUN);
    return status;
}

static gh_status agree(void *user, double *numbers, uint32_t n, gh_error *err)
{
    struct pairs *p = user;

    (void)err;
    p->agreed++;
    for (uint32_t i = 0; i < n; i++) {
        const bool exchange = i / 3 % NODES % 2 != 0;

        if (!exchange) {
            p->lone_compute += numbers[i];
        } else if (numbers[i] > 0) {
            p->lone_comm += 1e9 / numbers[i]; /* so many take a second */
        }
        numbers[i] = !exchange ? 1e5 : p->reorders ? 1e9 / 9e5 : 1e9 / 1e5;
    }
    return GH_OK;
}

/* ---- its life ------------------------------------------------------------ */

static gh_model *make_model(void)
{
    const gh_layer_desc layer = { .struct_size = sizeof(layer),
                                  .kind = GH_LAYER_MOE,
                                  .experts = 4 };
    gh_model *model = NULL;

    gh_model_create(&model, NULL);
    for (uint32_t i = 0; i < LAYERS; i++) {
        gh_model_add_layer(model, &layer, NULL);
    }
    return model;
}

static gh_status attach(struct pairs *p, const char *const *environment)
{
    const gh_host_services host = { .struct_size = sizeof(host),
                                    .user = p,
                                    .log = keep };
    gh_model *model = make_model();
    const gh_session_desc desc = {
        .struct_size = sizeof(desc),
        .flags = GH_SESSION_EP_OVERLAP,
        .model = model,
        .host = &host,
        .driver = ranks_driver(),
        .scope = "attn,moe_router,moe_preprocess",
        .max_slots = 2,
        .environment = environment,
    };
    gh_status status = gh_session_open(&desc, &p->session, &p->err);

    gh_model_destroy(model);
    for (uint32_t i = 0; i < LAYERS * NODES && status == GH_OK; i++) {
        p->segments[i].struct_size = sizeof(p->segments[i]);
        status = gh_plan_segment(p->session, 0, i, &p->segments[i], &p->err);
    }
    return status;
}

static gh_status join(struct pairs *p)
{
    const gh_ranks ranks = {
        .struct_size = sizeof(ranks),
        .rank = (uint32_t)p->r->rank,
        .size = (uint32_t)p->r->n,
        .comm = p->r->comm,
        .nccl = ranks_nccl(),
    };

    return gh_ranks_set(p->session, &ranks, &p->err);
}

static bool open_pairs(struct pairs *p, struct rank *r, const char *order,
                       const char *check)
{
    char overlap[48], checks[48];
    const char *environment[] = { hasty ? "GRAPHHOOKS_TIMEOUT=1"
                                        : "GRAPHHOOKS_TIMEOUT=20",
                                  overlap, checks, NULL };

    memset(p, 0, sizeof(*p));
    p->r = r;
    snprintf(overlap, sizeof(overlap), "GRAPHHOOKS_OVERLAP=%s", order);
    snprintf(checks, sizeof(checks), "GRAPHHOOKS_CHECK=%s", check);
    if (attach(p, environment) != GH_OK) {
        return says(r, false, "a session opens: %.150s", p->err.text);
    }
    drv.cuMemAlloc(&p->memory, MICROBATCHES * (ROWS + 2) * BYTES);
    drv.cuMemsetD8Async(p->memory, 0, MICROBATCHES * (ROWS + 2) * BYTES,
                        r->stream);
    drv.cuMemAlloc(&p->waste, 4 * WORDS * 4);
    drv.cuStreamSynchronize(r->stream);
    return true;
}

static bool open_joined(struct pairs *p, struct rank *r, const char *order,
                        const char *check)
{
    return open_pairs(p, r, order, check) &&
           says_int(r, join(p), GH_OK, "its ranks are said: %.120s",
                    p->err.text);
}

static void close_pairs(struct pairs *p)
{
    gh_session_close(p->session);
    drv.cuMemFree(p->memory);
    drv.cuMemFree(p->waste);
}

/* ---- steps --------------------------------------------------------------- */

static gh_status run(struct pairs *p, uint32_t forward, uint32_t backward,
                     bool by_host)
{
    const bool swapped = p->swaps && forward != UINT32_MAX;
    gh_overlap_pair pair = { .struct_size = sizeof(pair),
                             .compute = p->r->stream,
                             .run_node = run_node,
                             .agree = by_host ? agree : NULL,
                             .user = p };

    if (forward != UINT32_MAX) {
        pair.flags |= GH_OVERLAP_FORWARD;
        pair.forward_microbatch = forward;
    }
    if (backward != UINT32_MAX) {
        pair.flags |= GH_OVERLAP_BACKWARD;
        pair.backward_microbatch = backward;
    }
    if (swapped) {
        pair.flags |= GH_OVERLAP_EARLY_RELEASE;
    }
    p->issued = 0;
    return gh_overlap_run(p->session, &pair, &p->err);
}

static float given(uint32_t step, uint32_t m, int rank)
{
    return (float)((step * 7 + m * 3 + (uint32_t)rank * 2) % 13 + 1);
}

static gh_overlap_stats stats_of(struct pairs *p)
{
    gh_overlap_stats stats = { .struct_size = sizeof(stats) };

    gh_overlap_get_stats(p->session, &stats, NULL);
    return stats;
}

static gh_status step(struct pairs *p, uint32_t number, bool by_host)
{
    gh_status status;

    for (uint32_t m = 0; m < MICROBATCHES; m++) {
        const float x = given(number, m, p->r->rank);
        uint32_t bits;

        memcpy(&bits, &x, sizeof(bits));
        drv.cuMemsetD32Async(row(p, m, 0), bits, FLOATS, p->r->stream);
    }
    status = run(p, 0, UINT32_MAX, by_host);
    for (uint32_t m = 1; m < MICROBATCHES && !p->one_way && status == GH_OK;
         m++) {
        status = run(p, m, m - 1, by_host);
    }
    p->pair = stats_of(p);
    p->pair_issued = p->issued;
    if (status == GH_OK && !p->one_way) {
        status = run(p, UINT32_MAX, MICROBATCHES - 1, by_host);
    }
    if (status == GH_OK) {
        status = gh_iteration_end(p->session, &p->err);
    }
    return status == GH_OK ? gh_ranks_wait(p->session, p->r->stream, &p->err)
                           : status;
}

static bool is_exact(struct pairs *p, uint32_t number)
{
    for (uint32_t m = 0; m < MICROBATCHES; m++) {
        float want = 0, got[FLOATS];

        for (int i = 0; i < p->r->n; i++) {
            want += given(number, m, i);
        }
        for (int i = 1; i < 4 * LAYERS; i++) {
            want *= (float)p->r->n;
        }
        fetch(p->r, p->r->stream, got, row(p, m, ROWS), BYTES);
        for (uint32_t i = 0; i < FLOATS; i++) {
            if (got[i] != want) {
                return says(p->r, false, "float %u of %u is %g, not %g", i, m,
                            (double)got[i], (double)want);
            }
        }
    }
    return true;
}

static gh_status train(struct pairs *p, bool by_host)
{
    gh_status status = GH_OK;

    for (uint32_t i = 0; i < STEPS && status == GH_OK; i++) {
        status = step(p, i, by_host);
        if (status == GH_OK) {
            says(p->r, is_exact(p, i), "step %u is right", i);
        }
    }
    return status;
}

/* The same word on all ranks. */
static bool is_same(struct rank *r, uint64_t word)
{
    bool same = true;

    ranks_board(r->rank)[0] = word;
    ranks_barrier(r);
    for (int i = 0; i < r->n; i++) {
        same = same && ranks_board(i)[0] == word;
    }
    ranks_barrier(r);
    return same;
}

static uint64_t bits_of(double value)
{
    uint64_t word;

    memcpy(&word, &value, sizeof(word));
    return word;
}

/* ---- tests --------------------------------------------------------------- */

static void test_ranks_choose_alike(struct rank *r)
{
    double compute = 0, comm = 0;
    struct pairs p;

    if (open_pairs(&p, r, "auto", "off")) {
        says_int(r, train(&p, true), GH_OK, "a host may agree itself: %.120s",
                 p.err.text);
        says_int(r, p.agreed, 1, "it is asked once");
        compute = p.lone_compute;
        comm = p.lone_comm;
        close_pairs(&p);
        says(r, !is_same(r, bits_of(compute)),
             "nodes take another time on each rank: %.0f", compute);
        says(r, !is_same(r, bits_of(comm)),
             "and so do exchanges, with their waits: %.0f", comm);
    }
    for (int checked = 0; checked < 2; checked++) {
        if (!open_joined(&p, r, "auto", checked ? "ranks" : "off")) {
            return;
        }
        says_int(r, train(&p, false), GH_OK, "ranks agree: %.120s",
                 p.err.text);
        says(r, p.pair.order == GH_OVERLAP_AUTO || !ranks_are_soft(),
             "another order is taken");
        says(r, is_same(r, bits_of(p.pair.compute_ns)) &&
                    is_same(r, bits_of(p.pair.comm_ns)),
             "by the same times");
        says(r, is_same(r, bits_of(p.pair.predicted_ns)) &&
                    is_same(r, p.pair_issued),
             "and it is the same one");
        says(r, checked || !ranks_are_soft() ||
                    (p.pair.compute_ns > compute * 1.5 &&
                     p.pair.compute_ns < compute * 2.5),
             "nodes of compute take as long as on the slowest rank: %.0f",
             p.pair.compute_ns);
        says(r, checked || !ranks_are_soft() || p.pair.comm_ns < comm * 0.9,
             "exchanges as long as on the rank that comes last: %.0f",
             p.pair.comm_ns);
        says(r, strstr(p.said, " part ") == NULL, "no rank differs");
        close_pairs(&p);
    }
}

/* GRAPHHOOKS_CHECK=ranks sees what a host's agreement has left unequal. */
static void test_an_order_that_differs(struct rank *r)
{
    gh_stats stats = { .struct_size = sizeof(stats) };
    struct pairs p;

    if (!open_joined(&p, r, "auto", "ranks")) {
        return;
    }
    p.reorders = r->rank == r->n - 1;
    says_int(r, train(&p, true), GH_OK, "steps run: %.120s", p.err.text);
    says(r, strstr(p.said, "issues the nodes in another order than rank 0") !=
                NULL,
         "a rank in another order is named: %.150s",
         strstr(p.said, "the ranks of"));
    gh_session_stats(p.session, &stats, NULL);
    says_int(r, (long long)stats.check_failures, 1, "it is counted once");
    says_int(r, p.pair.order, GH_OVERLAP_FIXED, "all are fixed then");
    says(r, is_same(r, p.pair_issued), "and issue the same nodes");
    close_pairs(&p);
}

static void test_a_pair_that_differs(struct rank *r)
{
    struct pairs p;

    if (!open_joined(&p, r, "fixed", "ranks")) {
        return;
    }
    p.swaps = r->rank == 0;
    says_int(r, step(&p, 0, false), GH_ERR_RANKS,
             "a pair that is another on one rank is refused");
    says(r, strstr(p.err.text, "at a run (forward 0, backward none") !=
                    NULL &&
                strstr(p.err.text, ", early)") != NULL,
         "it is named: %.180s", p.err.text);
    close_pairs(&p);
    r->comm = NULL; /* aborted */
}

static void test_a_setting_that_differs(struct rank *r)
{
    struct pairs p;

    if (open_pairs(&p, r, r->rank == 0 ? "auto" : "fixed", "off")) {
        says_int(r, join(&p), GH_ERR_CONFIG, "another order is refused");
        says(r, strstr(p.err.text, "GRAPHHOOKS_OVERLAP is") != NULL,
             "by its name: %.120s", p.err.text);
        close_pairs(&p);
    }
}

/* ---- a rank that has no times -------------------------------------------- */

static struct outcome {
    gh_status status;
    uint64_t issued;
    bool exact, silent;
    uint32_t said; /* how often, that a rank has no times */
    double foreseen;
} outcomes[MAX_RANKS];

static void run_lost(struct rank *r)
{
    struct outcome *o = &outcomes[r->rank];
    struct pairs p;

    memset(o, 0, sizeof(*o));
    if (!open_joined(&p, r, "auto", "off")) {
        o->status = GH_ERR_STATE;
        return;
    }
    for (uint32_t i = 0; i < STEPS && o->status == GH_OK; i++) {
        p.one_way = i + 1 < STEPS;
        o->status = step(&p, i, false);
        o->exact = o->status == GH_OK && (p.one_way || is_exact(&p, i));
    }
    o->silent = o->status != GH_OK && p.err.text[0] == '\0';
    o->issued = p.pair_issued;
    o->foreseen = p.pair.predicted_ns;
    for (const char *at = p.said;
         (at = strstr(at, "could not measure its nodes")) != NULL; at++) {
        o->said++;
    }
    if (o->status != GH_OK) {
        r->comm = NULL;
    }
    close_pairs(&p);
}

/* An event of one rank's only pairing cannot be had. */
static void test_no_times(void)
{
    uint64_t calls, apart = 0, stayed = 0, wrong = 0;

    hasty = true;
    ranks_fail("cuEventCreate", 0);
    ranks_run_lost(2, "whole", run_lost);
    calls = ranks_calls("cuEventCreate");
    ok(outcomes[0].exact && !outcomes[0].said, "without a fault ranks choose");
    for (uint64_t n = calls / 2; n <= calls; n += 1 + calls / 60) {
        ranks_fail("cuEventCreate", n);
        ranks_run_lost(2, "lost", run_lost);
        if (outcomes[0].status != GH_OK || outcomes[1].status != GH_OK) {
            wrong += outcomes[0].silent || outcomes[1].silent;
            continue;
        }
        wrong += !outcomes[0].exact || !outcomes[1].exact;
        apart += outcomes[0].issued != outcomes[1].issued ||
                 outcomes[0].said != outcomes[1].said;
        stayed += outcomes[0].said != 0;
        wrong += outcomes[0].said > 1 ||
                 (outcomes[0].said == 1 && outcomes[0].foreseen > 0);
    }
    ranks_fail("cuEventCreate", 0);
    is_int(wrong, 0, "an event that fails makes no number wrong");
    is_int(apart, 0, "nor are ranks in different orders then");
    ok(stayed > 0, "%llu times all stayed fixed, as one rank had no times",
       (unsigned long long)stayed);
}

static const struct ranks_test tests[] = {
    { "alike", test_ranks_choose_alike, false },
    { "order", test_an_order_that_differs, false },
    { "setting", test_a_setting_that_differs, false },
    { "pair", test_a_pair_that_differs, false },
};

int main(void)
{
    int status;

    if (!ranks_open(&status)) {
        return status;
    }
    ranks_run_all(2, tests, sizeof(tests) / sizeof(tests[0]));
    if (ranks_are_soft()) {
        ranks_run_all(4, tests, 1);
        test_no_times();
    } else {
        skip(4, "only the software device fails on demand");
    }
    return done_testing();
}
