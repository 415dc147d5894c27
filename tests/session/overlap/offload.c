/*
 * Chunks in pairs whose modules are offloaded: numbers stay, commits that wait
 * are issued in front of an exchange, what goes is given back once, and what
 * fails in the middle leaves nothing behind.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/orders.h"
#include "support/pair.h"
#include "tap/tap.h"

#include <stdlib.h>
#include <string.h>

static const uint32_t counts[] = { 3, 2, 4, 3 };
#define N_STEPS 4

#define MOE GH_LAYER_MOE
#define DENSE GH_LAYER_DENSE

static double uneven(uint32_t cell)
{
    return 100e3 + 50e3 * (cell * 7 % 11);
}

static const struct {
    const char *what;
    struct pair_options options;
} cases[] = {
    { "fixed",
      { .kinds = { MOE, MOE, DENSE, MOE },
        .layers = 4,
        .offload = true,
        .scope = "attn,moe_router",
        .delay_wgrad = true } },
    { "auto, commits that wait",
      { .kinds = { MOE, MOE, MOE, MOE },
        .layers = 4,
        .offload = true,
        .later = true,
        .order = "auto",
        .time_of = uneven,
        .delay_wgrad = true } },
    { "early, two chunks",
      { .kinds = { MOE, GH_LAYER_MOE_ONLY, MOE, GH_LAYER_MAMBA, MOE, MOE },
        .layers = 6,
        .chunks = 2,
        .offload = true,
        .later = true,
        .early = true,
        .own_comm = true,
        .scope = "attn" } },
    { "the host's memory",
      { .kinds = { MOE, MOE, MOE, MOE },
        .layers = 4,
        .offload = true,
        .lends = true,
        .delay_wgrad = true } },
};
#define N_CASES (sizeof(cases) / sizeof(cases[0]))

/* ---- what goes ----------------------------------------------------------- */

static void test_groups_go(size_t which)
{
    const char *what = cases[which].what;
    gh_offload_stats moved;
    struct pair p;

    if (!pair_start(&p, &cases[which].options, NULL)) {
        return;
    }
    is_status(pair_train(&p, counts, N_STEPS), GH_OK, &p.toy.err,
              "%s: steps run", what);
    ok(pair_is_exact(&p), "%s: every weight is exact", what);
    moved = toy_moved(&p.toy);
    ok(moved.groups_offloaded > 0, "%s: %u of %u groups go", what,
       moved.groups_offloaded, moved.groups);
    ok(moved.out_copies > 0 && moved.out_copies == moved.back_copies,
       "%s: %llu copies out, as many back", what,
       (unsigned long long)moved.out_copies);
    ok(toy_stats(&p.toy).replays > 0, "%s: graphs are replayed", what);
    if (p.options.lends) {
        ok(p.skipped > 0, "%s: %u are listed with a node too", what,
           p.skipped);
        gh_session_close(p.toy.session);
        p.toy.session = NULL;
        is_int(lender_still_out(&p.toy.lender), 0, "%s: all is given back",
               what);
        is_int(p.toy.lender.wrong, 0, "%s: and once", what);
        is_int(p.toy.lender.returned, p.toy.lender.lent,
               "%s: by the service alone", what);
    }
    pair_close(&p);
}

/* ---- commits that wait --------------------------------------------------- */

static uint32_t held, late, exchanges;

static uint64_t waiting(struct pair *p)
{
    const gh_offload_stats moved = toy_moved(&p->toy);

    return moved.delayed - moved.out_copies;
}

/* In the published order the backward of the experts comes between a commit
 * and the exchange after it. */
static void watch(struct pair *p, const gh_overlap_node *node, bool issued)
{
    if (node->lane == GH_LANE_COMM && !issued) {
        exchanges++;
        late += waiting(p) != 0;
    } else if (node->direction == GH_BACKWARD && node->node == 2 && issued) {
        held += waiting(p) != 0;
    }
}

static void test_commits_wait_for_an_exchange(void)
{
    const struct pair_options options = { .kinds = { MOE, MOE, MOE, MOE },
                                          .layers = 4,
                                          .offload = true,
                                          .later = true,
                                          .watch = watch };
    struct pair p;

    held = late = exchanges = 0;
    if (!pair_start(&p, &options, NULL)) {
        return;
    }
    is_status(pair_train(&p, counts, N_STEPS), GH_OK, &p.toy.err,
              "commits may wait");
    is_int(late, 0, "none waits when one of %u exchanges is issued", exchanges);
    ok(held > 8, "%u times one waits until what computes is launched", held);
    ok(toy_moved(&p.toy).delayed > 0 && waiting(&p) == 0, "none is dropped");
    pair_close(&p);
}

/* A run that fails while commits wait: passes of the host's own flush again. */
static void test_what_waits_after_a_failure(void)
{
    const struct pair_options options = { .kinds = { MOE, MOE },
                                          .layers = 2,
                                          .offload = true,
                                          .later = true,
                                          .quiet = true };
    gh_overlap_node node = { .struct_size = sizeof(node),
                             .direction = GH_BACKWARD,
                             .microbatch = 1,
                             .n_segments = 1 };
    struct pair p;

    if (!pair_start(&p, &options, NULL)) {
        return;
    }
    pair_feed(&p, 0);
    pair_feed(&p, 1);
    pair_run(&p, 0, 0, UINT32_MAX, 0);
    p.mischief = PAIR_FAILS;
    p.until_mischief = 3;
    ok(pair_run(&p, 0, 1, 0, 0) != GH_OK && waiting(&p) > 0,
       "a run fails while commits wait: %s", p.issued);
    p.mischief = PAIR_GOOD;
    node.stream = p.toy.streams[0];
    is_status(pair_issue(&p, &node), GH_OK, &p.toy.err,
              "a pass outside of it reads what was committed");
    pair_close(&p);
}

/* ---- every order, every wait --------------------------------------------- */

static struct outcome run(const void *options, const char *settings)
{
    return orders_train_pair(options, settings, counts, N_STEPS);
}

/* ---- nodes that fail ----------------------------------------------------- */

static void fail_at(size_t which, enum pair_mischief mischief, uint32_t node,
                    uint32_t warm)
{
    const char *what = cases[which].what;
    struct pair_options options = cases[which].options;
    softcuda_counts before, after;
    const char *reason;
    gh_status status;
    struct pair p;

    options.quiet = true;
    if (!pair_open(&p, &options, &reason)) {
        return;
    }
    before = toy_counts(&p.toy);
    pair_attach(&p);
    for (uint32_t i = 0; i < warm; i++) {
        pair_step(&p, 2);
    }
    p.mischief = mischief;
    p.until_mischief = node;
    ok(pair_step(&p, 3) != GH_OK && p.toy.err.text[0] != '\0',
       "%s: node %u fails after %u steps: %s", what, node, warm,
       p.toy.err.text);
    p.mischief = PAIR_GOOD;
    p.toy.step = 0;
    ok(gh_iteration_end(p.toy.session, &p.toy.err) == GH_OK && pair_clear(&p),
       "the step can end");
    status = pair_train(&p, counts, N_STEPS);
    is_status(status, GH_OK, &p.toy.err, "the next steps run");
    ok(pair_is_exact(&p), "and every weight is exact");
    if (p.toy.soft) {
        is_int(toy_races(&p.toy), 0, "without a race");
        toy_detach(&p.toy);
        toy_configure(&p.toy, "RACES=0");
        after = toy_counts(&p.toy);
        is_int(toy_objects(&after) - toy_objects(&before), 0,
               "nothing is left");
    }
    pair_close(&p);
}

static void test_nodes_that_fail(void)
{
    /* Either lane of both directions, before and after a commit. */
    static const uint32_t nodes[] = { 1, 3, 22, 24, 25, 27, 29, 31, 33 };

    for (size_t k = 0; k < sizeof(nodes) / sizeof(nodes[0]); k++) {
        fail_at(0, PAIR_FAILS, nodes[k], k % 4);
        fail_at(1, PAIR_FAILS, nodes[k], 4);
        fail_at(1, k % 2 == 0 ? PAIR_FAILS_INSIDE : PAIR_LEAVES_OPEN, nodes[k],
                k % 3);
    }
}

int main(void)
{
    const char *reason;
    struct toy toy;
    int status;

    if (!toy_probe(&toy, &reason)) {
        return skip_all("%s", reason);
    }
    for (size_t i = 0; i < N_CASES; i++) {
        test_groups_go(i);
    }
    test_commits_wait_for_an_exchange();
    test_what_waits_after_a_failure();
    test_nodes_that_fail();
    if (!toy.soft) {
        skip(5 * N_CASES, "a real device has one order, and no race detector");
        return done_testing();
    }
    orders_begin(&status);
    for (size_t i = 0; i < N_CASES; i++) {
        /* The same few waits are made in every step and pair. */
        const struct orders o = { cases[i].what, run, &cases[i].options,
                                  .stride = 13,
                                  .may_race = cases[i].options.lends };

        orders_are_right(&o, orders_seeds(12));
        orders_need_most_waits(&o);
    }
    return done_testing();
}
