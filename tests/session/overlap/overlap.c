/*
 * Chunks in pairs: the numbers are those of one after the other, in every
 * order, with every scope, and graphs are replayed inside.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/heard.h"
#include "support/pair.h"
#include "support/trace_file.h"
#include "tap/tap.h"

#include <stdio.h>
#include <string.h>

static const uint32_t counts[] = { 3, 4, 2, 5, 3 };
#define N_STEPS 5
#define N_MICROBATCHES (3 + 4 + 2 + 5 + 3)

#define MOE GH_LAYER_MOE
#define DENSE GH_LAYER_DENSE
#define MAMBA GH_LAYER_MAMBA
#define MOE_ONLY GH_LAYER_MOE_ONLY
#define ATTN_ONLY GH_LAYER_ATTN_ONLY

/* One that takes no time waits for nothing, and long ones are worth it. */
static double exchanges_are_long(uint32_t cell)
{
    const uint32_t node = cell / 3 % 5;

    if (node == 1 || node == 3) {
        return 1e9 / 900e3; /* in a second */
    }
    return 200e3 + 100e3 * (cell % 3);
}

/* The pair stays open when this is true. */
static bool run(struct pair *p, const struct pair_options *options,
                const char *what)
{
    if (!pair_start(p, options, NULL)) {
        return false;
    }
    for (uint32_t s = 0; s < N_STEPS; s++) {
        if (pair_step(p, counts[s]) != GH_OK) {
            ok(false, "%s: step %u runs: %s", what, s, p->toy.err.text);
            pair_close(p);
            return false;
        }
    }
    ok(pair_is_exact(p), "%s: every weight is exact", what);
    if (p->toy.soft) {
        is_int(toy_races(&p->toy), 0, "%s: no race", what);
    }
    if (options->depths != 0) {
        is_int(p->foreign, 0, "%s: what they are made of is the host's", what);
    }
    return true;
}

static const struct {
    const char *what;
    struct pair_options options;
} models[] = {
    { "experts", { .kinds = { MOE, MOE, MOE }, .layers = 3 } },
    { "one layer", { .kinds = { MOE }, .layers = 1 } },
    { "dense layers too",
      { .kinds = { DENSE, MOE, DENSE, MOE }, .layers = 4 } },
    { "a hybrid stack",
      { .kinds = { MAMBA, MOE_ONLY, ATTN_ONLY, MOE_ONLY, MAMBA },
        .layers = 5 } },
    { "dense layers alone", { .kinds = { DENSE, DENSE }, .layers = 2 } },
    { "two chunks",
      { .kinds = { MOE, MOE, DENSE, MOE }, .layers = 4, .chunks = 2 } },
    { "chunks of other lengths",
      { .kinds = { MOE, MOE, MOE, MOE, MOE }, .layers = 5, .chunks = 2 } },
    { "a stream of the host's",
      { .kinds = { MOE, MOE }, .layers = 2, .own_comm = true } },
    { "the legacy stream",
      { .kinds = { MOE, MOE }, .layers = 2, .legacy = true } },
    { "one chunk in each run",
      { .kinds = { MOE, MOE }, .layers = 2, .apart = true } },
    { "memory released early",
      { .kinds = { MOE, DENSE, MOE }, .layers = 3, .early = true } },
    { "a depth of prediction with experts",
      { .kinds = { MOE, DENSE, MOE }, .layers = 3, .depths = 1u << 2 } },
    { "two depths, one of them dense",
      { .kinds = { MOE, MOE, DENSE, MOE },
        .layers = 4,
        .depths = 1u << 2 | 1u << 3,
        .early = true } },
    { "groups that go",
      { .kinds = { MOE, MOE, MOE, MOE }, .layers = 4, .offload = true } },
    { "groups that wait",
      { .kinds = { MOE, DENSE, MOE, MOE },
        .layers = 4,
        .offload = true,
        .later = true } },
    { "groups of two chunks",
      { .kinds = { MOE, MOE_ONLY, MAMBA, MOE, MOE, MOE },
        .layers = 6,
        .chunks = 2,
        .offload = true,
        .later = true,
        .early = true } },
    { "groups in the host's memory",
      { .kinds = { MOE, MOE, MOE, MOE },
        .layers = 4,
        .offload = true,
        .lends = true } },
};
#define N_MODELS (sizeof(models) / sizeof(models[0]))

static const char *const scopes[] = {
    "attn", "moe_router", "attn,moe_router", "moe_router,moe_preprocess",
    "attn,moe_router,moe_preprocess", "",
};
#define N_SCOPES (sizeof(scopes) / sizeof(scopes[0]))

/* Whether the scope names something of the model. */
static bool applies(const struct pair_options *options, const char *scope)
{
    bool attn = false, moe = false;

    for (uint32_t i = 0; i < options->layers; i++) {
        const gh_layer_kind kind = options->kinds[i];

        attn = attn || kind == MOE || kind == DENSE || kind == ATTN_ONLY;
        moe = moe || kind == MOE || kind == MOE_ONLY;
    }
    return scope[0] == '\0' || (strstr(scope, "attn") != NULL && attn) ||
           (strstr(scope, "moe") != NULL && moe);
}

static void test_every_model(void)
{
    for (size_t i = 0; i < N_MODELS; i++) {
        for (int later = 0; later < 2; later++) {
            struct pair_options options = models[i].options;
            struct pair p;
            char what[96];

            options.delay_wgrad = later != 0;
            snprintf(what, sizeof(what), "%s%s", models[i].what,
                     later ? ", weights later" : "");
            if (run(&p, &options, what)) {
                ok(toy_stats(&p.toy).replays > 0, "%s: graphs are replayed",
                   what);
                pair_close(&p);
            }
        }
    }
}

static uint32_t graphed_passes(const struct pair *p)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < p->n_segments; i++) {
        const gh_segment *s = &p->segments[i];
        /* forward, backward; the router alone leaves no weight gradient */
        const uint32_t passes = p->options.delay_wgrad &&
                                        s->first_part != GH_PART_MOE_ROUTER &&
                                        s->first_part != GH_PART_MOE_PREPROCESS
                                    ? 3
                                    : 2;

        n += s->mode == GH_SEGMENT_GRAPHED ? passes : 0;
    }
    return n;
}

/* Every legal subset of what comes before the dispatch. */
static void test_every_scope(void)
{
    for (size_t i = 0; i < 4; i++) {
        for (size_t k = 0; k < N_SCOPES; k++) {
            for (int part = 0; part < 2; part++) {
                struct pair_options options = models[i].options;
                struct pair p;
                char what[96];

                if (!applies(&options, scopes[k])) {
                    continue;
                }
                options.scope = scopes[k];
                options.granularity = part ? "part" : "layer";
                options.delay_wgrad = true;
                snprintf(what, sizeof(what), "%s, scope %s, by %s",
                         models[i].what, scopes[k], options.granularity);
                if (!run(&p, &options, what)) {
                    continue;
                }
                is_int(toy_stats(&p.toy).replays,
                       (uint64_t)graphed_passes(&p) *
                           (N_MICROBATCHES - counts[0]),
                       "%s: after warmup each of its passes is a graph's",
                       what);
                pair_close(&p);
            }
        }
    }
}

static const char *const orders[] = { "off", "fixed", "auto" };

static void test_every_order(void)
{
    for (size_t i = 0; i < N_MODELS; i++) {
        for (size_t k = 0; k < 3; k++) {
            struct pair_options options = models[i].options;
            struct pair p;
            char what[96];

            options.order = orders[k];
            options.delay_wgrad = true;
            snprintf(what, sizeof(what), "%s, %s", models[i].what, orders[k]);
            if (!run(&p, &options, what)) {
                continue;
            }
            if (k == 0) {
                is_int(pair_stats(&p).waits, 0,
                       "%s: no lane waits for another", what);
            }
            pair_close(&p);
        }
    }
}

static void test_families_give_the_nodes(void)
{
    static const char *const families[] = { "gpt", "mla" };

    for (size_t i = 0; i < 2; i++) {
        struct pair_options options = { .kinds = { DENSE, MOE, MOE },
                                        .layers = 3,
                                        .family = families[i],
                                        .delay_wgrad = true };
        struct pair p;

        if (run(&p, &options, families[i])) {
            pair_close(&p);
        }
    }
}

/* The published order of a pair of layers. */
static void test_the_fixed_order(void)
{
    static const struct {
        bool early;
        const char *issued;
    } rows[] = {
        { false, "B1.4 B1.3 F0.0 B1.2 F0.1 W1.2 B1.1 F0.2 F0.3 B1.0 F0.4 W1.0 "
                 "B0.4 B0.3 F1.0 B0.2 F1.1 W0.2 B0.1 F1.2 F1.3 B0.0 F1.4 "
                 "W0.0" },
        { true, "B1.4 B1.3 F0.0 B1.2 F0.1 W1.2 B1.1 B1.0 F0.2 F0.3 F0.4 W1.0 "
                "B0.4 B0.3 F1.0 B0.2 F1.1 W0.2 B0.1 B0.0 F1.2 F1.3 F1.4 "
                "W0.0" },
    };

    for (size_t i = 0; i < 2; i++) {
        const struct pair_options options = { .kinds = { MOE, MOE },
                                              .layers = 2,
                                              .early = rows[i].early,
                                              .delay_wgrad = true };
        gh_status status;
        struct pair p;

        if (!pair_start(&p, &options, NULL)) {
            continue;
        }
        pair_feed(&p, 0);
        pair_feed(&p, 1);
        status = pair_run(&p, 0, 0, UINT32_MAX, 0);
        is_str(p.issued, "F0.0 F0.1 F0.2 F0.3 F0.4 F1.0 F1.1 F1.2 F1.3 F1.4",
               "a warmup issues the forward alone");
        status = status == GH_OK ? pair_run(&p, 0, 1, 0, 0) : status;
        is_str(p.issued, rows[i].issued, "a pair is issued in the %s order",
               rows[i].early ? "early" : "published");
        status = status == GH_OK ? pair_run(&p, UINT32_MAX, 0, 0, 1) : status;
        is_str(p.issued,
               "B1.4 B1.3 B1.2 W1.2 B1.1 B1.0 W1.0 "
               "B0.4 B0.3 B0.2 W0.2 B0.1 B0.0 W0.0",
               "a cooldown issues the backward alone");
        is_status(status, GH_OK, &p.toy.err, "all of it runs");
        pair_close(&p);
    }
}

static void test_both_orders_in_one_session(void)
{
    const struct pair_options options = { .kinds = { MOE }, .layers = 1 };
    struct pair p;

    if (!pair_start(&p, &options, NULL)) {
        return;
    }
    for (uint32_t m = 0; m < 3; m++) {
        pair_feed(&p, m);
    }
    pair_run(&p, 0, 0, UINT32_MAX, 0);
    pair_run(&p, 0, 1, 0, 0);
    is_str(p.issued, "B0.4 B0.3 F0.0 B0.2 F0.1 B0.1 F0.2 F0.3 B0.0 F0.4",
           "one pair is not early");
    p.options.early = true;
    pair_run(&p, 0, 2, 0, 1);
    is_str(p.issued, "B0.4 B0.3 F0.0 B0.2 F0.1 B0.1 B0.0 F0.2 F0.3 F0.4",
           "and the next one is");
    pair_close(&p);
}

/* Events only where a dependency crosses streams. */
static void test_waits(void)
{
    const struct pair_options options = { .kinds = { MOE, MOE }, .layers = 2 };
    uint64_t before;
    struct pair p;

    if (!pair_start(&p, &options, NULL)) {
        return;
    }
    before = toy_counts(&p.toy).waits;
    pair_feed(&p, 0);
    pair_feed(&p, 1);
    pair_run(&p, 0, 0, UINT32_MAX, 0);
    is_int(pair_stats(&p).waits, 8, "two exchanges a layer, there and back");
    pair_run(&p, 0, 1, 0, 0);
    is_int(pair_stats(&p).waits, 24, "and twice as many of a pair");
    if (p.toy.soft) {
        is_int(toy_counts(&p.toy).waits - before, 24,
               "there are no other waits");
    }
    ok(p.released > 0, "%u tensors are released", p.released);
    pair_close(&p);
}

static void test_auto(void)
{
    const struct pair_options options = { .kinds = { MOE, MOE, MOE },
                                          .layers = 3,
                                          .order = "auto",
                                          .delay_wgrad = true,
                                          .log = hear,
                                          .time_of = exchanges_are_long };
    gh_overlap_stats stats;
    struct pair p;

    said[0] = '\0';
    if (!pair_start(&p, &options, NULL)) {
        return;
    }
    pair_step(&p, 3);
    pair_step(&p, 3);
    pair_step(&p, 3);
    is_int(p.agreed, 0, "times are taken before ranks agree");
    is_int(pair_stats(&p).order, GH_OVERLAP_FIXED, "until then it is fixed");
    for (uint32_t i = 0; i < 2; i++) {
        pair_feed(&p, 0);
        pair_feed(&p, 1);
    }
    pair_run(&p, 0, 0, UINT32_MAX, 0);
    pair_run(&p, 0, 1, 0, 0);
    stats = pair_stats(&p);
    is_int(p.agreed, 1, "ranks agree once");
    if (p.toy.soft) {
        ok(p.agreed_n > 0, "on times that were measured");
    }
    is_int(stats.order, GH_OVERLAP_AUTO, "then another order is taken");
    ok(stats.predicted_ns < stats.predicted_fixed_ns,
       "it is predicted to be shorter: %.0f, fixed %.0f", stats.predicted_ns,
       stats.predicted_fixed_ns);
    ok(stats.predicted_ns >= stats.comm_ns &&
           stats.predicted_ns >= stats.compute_ns,
       "but not than either lane");
    ok(strstr(said, "overlap: forward of chunk 0, backward of chunk 0: auto "
                    "order: ") != NULL &&
           strstr(said, "of which exposed ") != NULL,
       "which is said: %s", said);
    pair_run(&p, UINT32_MAX, 0, 0, 1);
    gh_iteration_end(p.toy.session, NULL);
    pair_close(&p);
}

static void test_auto_needs_an_agreement(void)
{
    const struct pair_options options = { .kinds = { MOE, MOE },
                                          .layers = 2,
                                          .order = "auto",
                                          .no_agree = true,
                                          .log = hear };
    struct pair p;

    said[0] = '\0';
    if (run(&p, &options, "auto without agree")) {
        is_int(pair_stats(&p).order, GH_OVERLAP_FIXED, "the order stays fixed");
        ok(strstr(said, "name them with gh_ranks_set, or give "
                        "gh_overlap_pair.agree") != NULL,
           "which is said");
        pair_close(&p);
    }
}

/* Passes run twice in the middle of a pair, and are compared. */
static void test_checked(void)
{
    struct pair_options options = { .kinds = { MOE, DENSE, MOE },
                                    .layers = 3,
                                    .delay_wgrad = true,
                                    .check = true };
    struct pair p;

    for (size_t k = 0; k < 3; k++) {
        options.order = orders[k];
        if (run(&p, &options, "compared")) {
            ok(toy_stats(&p.toy).checks > 0, "%s: passes are compared",
               orders[k]);
            is_int(toy_stats(&p.toy).check_failures, 0,
                   "%s: and there is no difference", orders[k]);
            pair_close(&p);
        }
    }
}

/* Nodes are slices of two lanes, by their names, microbatches and order. */
static void test_trace(void)
{
    struct pair_options options = { .kinds = { MOE, MOE },
                                    .layers = 2,
                                    .order = "auto",
                                    .delay_wgrad = true,
                                    .time_of = exchanges_are_long };
    struct trace_file trace;
    struct pair p;

    if (!trace_file_open(&trace, "off")) {
        return;
    }
    options.trace = trace.trace_line;
    if (run(&p, &options, "traced")) {
        const uint64_t nodes = p.nodes;

        pair_close(&p);
        is_int(trace_file_count(&trace, "\"cat\":\"node\""), nodes,
               "a trace has every node");
        is_int(trace_file_count(&trace, "overlap, compute, session"), 1,
               "there is a lane of compute");
        is_int(trace_file_count(&trace, "overlap, comm, session"), 1,
               "and one of communication");
        is_int(trace_file_count(&trace,
                                "\"forward layer 1 moe_dispatch mb0\",\"cat\""),
               N_STEPS, "a node has its direction, layer and parts");
        ok(trace_file_count(&trace, "\"wgrad layer 0 attn..moe_preprocess mb1"
                                    "\",\"cat\":\"node\",\"args\":{\"layer\":0,"
                                    "\"node\":0,\"direction\":\"wgrad\","
                                    "\"order\":\"auto\",\"microbatch\":1}") > 0,
           "and as arguments the order that it was issued in");
        ok(trace_file_count(&trace, "\"order\":\"fixed\"") > 0,
           "which was fixed at first");
    } else {
        ok(false, "a traced pair runs");
    }
    trace_file_remove(&trace);
}

static gh_status count_node(void *user, const gh_overlap_node *node,
                            gh_error *err)
{
    (void)err;
    *(uint32_t *)user += node->stream == NULL;
    return GH_OK;
}

/* Without graphs the lanes still overlap, without a driver nothing does. */
static void test_disabled(void)
{
    static const char *const disabled[] = { "GRAPHHOOKS_ENABLE=0",
                                            "GRAPHHOOKS_LOG=off", NULL };
    const struct pair_options options = { .kinds = { MOE, DENSE, MOE },
                                          .layers = 3,
                                          .delay_wgrad = true,
                                          .disabled = true };
    const gh_layer_desc layer = { .struct_size = sizeof(layer),
                                  .kind = MOE,
                                  .experts = 4 };
    uint32_t nodes = 0;
    const gh_overlap_pair pair = { .struct_size = sizeof(pair),
                                   .flags = GH_OVERLAP_FORWARD,
                                   .run_node = count_node,
                                   .user = &nodes };
    gh_session_desc desc = { .struct_size = sizeof(desc),
                             .flags = GH_SESSION_EP_OVERLAP,
                             .driver = "/no/such/driver.so",
                             .environment = disabled };
    gh_session *session = NULL;
    gh_model *model = NULL;
    struct pair p;
    gh_error err;

    if (run(&p, &options, "disabled")) {
        is_int(toy_stats(&p.toy).replays, 0, "no graph is replayed");
        ok(pair_stats(&p).waits > 0, "and the lanes overlap all the same");
        pair_close(&p);
    }
    gh_model_create(&model, NULL);
    gh_model_add_layer(model, &layer, NULL);
    desc.model = model;
    is_status(gh_session_open(&desc, &session, &err), GH_OK, &err,
              "a session opens without a driver");
    is_status(gh_overlap_run(session, &pair, &err), GH_OK, &err,
              "and runs a chunk");
    is_int(nodes, 5, "node by node, on the compute stream");
    gh_session_close(session);
    gh_model_destroy(model);
}

/* moe, and a layer with experts as a whole, would tie the exchanges to the
 * compute around them. */
static void test_what_a_graph_cannot_hold(void)
{
    struct pair_options options = {
        .kinds = { MOE }, .layers = 1, .scope = "moe", .log = hear
    };
    const char *reason;
    struct pair p;

    said[0] = '\0';
    if (!pair_open(&p, &options, &reason)) {
        return;
    }
    is_status(pair_attach(&p), GH_ERR_CONFIG, &p.toy.err,
              "scope moe is refused");
    ok(strstr(p.toy.err.text, "hidden behind another microbatch") != NULL,
       "with a sentence: %s", p.toy.err.text);
    pair_close(&p);
    options.scope = NULL;
    if (pair_start(&p, &options, NULL)) {
        ok(strstr(said, "hidden behind another microbatch") != NULL,
           "a whole layer is refused with one too: %s", said);
        is_int(p.segments[0].last_part, GH_PART_MOE_PREPROCESS,
               "and captured up to the dispatch");
        pair_close(&p);
    }
}

int main(void)
{
    const char *reason;
    struct toy toy;

    if (!toy_probe(&toy, &reason)) {
        return skip_all("%s", reason);
    }
    test_the_fixed_order();
    test_both_orders_in_one_session();
    test_waits();
    test_what_a_graph_cannot_hold();
    test_every_model();
    test_every_scope();
    test_every_order();
    test_families_give_the_nodes();
    test_disabled();
    test_checked();
    test_trace();
    test_auto();
    test_auto_needs_an_agreement();
    return done_testing();
}
