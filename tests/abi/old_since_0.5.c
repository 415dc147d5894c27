/*
 * What ABI 0.5 has added goes on working for a caller built against it.
 *
 * Part of tests/abi/old.c from that release on.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "abi/old_caller.h"

#define N_RANKS 2 /* of which one is an echo of the other */
#define BANK 0
#define WINDOW 64

static const char *const quiet[] = { "GRAPHHOOKS_LOG=off", NULL };

/* ---- ranks --------------------------------------------------------------- */

/* What the host was asked, and whether it is to fail from now on. */
static struct others {
    uint32_t gathers, numbers, aborts;
    bool gone, strange;
} others;

/* The second rank says what the first does; its own number where ranks say
 * theirs, which they do once. */
static gh_status gather(void *user, uint32_t bank, const uint64_t *mine,
                        uint64_t *all, uint32_t n)
{
    others.strange |= user != &others || bank != BANK || n == 0;
    others.gathers++;
    for (uint32_t i = 0; i < N_RANKS * n; i++) {
        all[i] = mine[i % n];
    }
    if (n >= 8 && others.numbers++ == 0) {
        all[n] = 1;
    }
    return others.gone ? GH_ERR_STATE : GH_OK;
}

static void give_up(void *user, uint32_t bank)
{
    others.strange |= user != &others || bank != BANK;
    others.aborts++;
}

static bool join(void)
{
    FRAMED(gh_ranks) ranks;

    others = (struct others){ 0 };
    FRAME(ranks);
    ranks.it.bank = BANK;
    ranks.it.size = N_RANKS;
    ranks.it.user = &others;
    ranks.it.gather = gather;
    ranks.it.abort = give_up;
    return is_status(gh->ranks_set(session, &ranks.it, &err), GH_OK, &err,
                     "a gh_ranks of " RELEASE " is taken") &&
           ok(IS_WHOLE(ranks),
              "nothing is written after a gh_ranks of " RELEASE) &&
           ok(others.gathers > 0 && !others.strange,
              "gather of " RELEASE " has its arguments");
}

/* Whether it is recorded, and the other rank is asked for it, or is not. */
static bool records(gh_direction direction, uint32_t flags, bool asking)
{
    const uint32_t before = others.gathers;
    struct pass pass = a_pass(direction, 0);

    pass.call.it.flags = flags;
    return passes_as(&pass, GH_ACTION_RECORD, GH_REASON_NONE) &&
           (others.gathers > before) == asking;
}

static void test_asking(void)
{
    uint32_t before;
    gh_stats stats;

    ok(records(GH_FORWARD, 0, true), "a pass of two ranks is recorded");
    ok(records(GH_BACKWARD, GH_PASS_LOCAL, false),
       "GH_PASS_LOCAL of " RELEASE " is recorded and asks nobody");
    end_step();
    before = others.gathers;
    ok(is_replayed(GH_FORWARD, 0), "a replay of two ranks");
    is_int(others.gathers, before, "asks nobody");
    is_status(gh->ranks_wait(session, streams[0], &err), GH_OK, &err,
              "a caller of " RELEASE " waits for its ranks");
    end_step();
    if (read_stats(&stats)) {
        ok(stats.agreements > 0 && stats.agreements <= others.gathers,
           "gh_stats.agreements of " RELEASE " is in its place");
    }
}

static void test_parting(void)
{
    struct pass pass = a_pass(GH_FORWARD, 0);

    is_status(gh->ranks_abort(session, "the host has seen enough", &err), GH_OK,
              &err, "a caller of " RELEASE " gives its ranks up");
    is_status(enter_pass(&pass), GH_ERR_RANKS, &err,
              "and is refused from then on");
    ok(strstr(err.text, "the host has seen enough") != NULL,
       "with the reason that it gave: %s", err.text);
    is_int(others.aborts, 1, "abort of " RELEASE " is called once");
    ok(!others.strange, "with its arguments");
    is_str(gh->status_name(GH_ERR_RANKS), "GH_ERR_RANKS",
           "GH_ERR_RANKS keeps its name");
}

static bool open_alone(void)
{
    const struct opening opening = {
        .n_layers = 1, .desc = { .max_slots = 2, .environment = quiet }
    };

    return open_warm(&opening);
}

static void test_ranks(void)
{
    if (!open_alone()) {
        return;
    }
    if (join()) {
        test_asking();
        is_status(gh->ranks_clear(session, BANK, &err), GH_OK, &err,
                  "a caller of " RELEASE " has its bank for itself again");
    }
    if (join()) {
        test_parting();
    }
    close_session();
}

/* ---- overlap ------------------------------------------------------------- */

/* The nodes that the host has issued. */
static struct issued {
    uint32_t forward, backward;
    uint32_t microbatch; /* of the forward */
    bool strange;
} issued;

static bool is_of_the_pair(const gh_overlap_node *node)
{
    const bool forward = node->direction == GH_FORWARD;
    const CUstream stream =
        node->lane == GH_LANE_COMM ? streams[1] : streams[0];

    return node->struct_size >= sizeof(*node) &&
           node->direction <= GH_BACKWARD && node->chunk == 0 &&
           node->microbatch == (forward ? issued.microbatch : 0) &&
           node->layer == 0 && node->lane <= GH_LANE_COMM &&
           node->stream == stream && node->first_part <= node->last_part &&
           node->n_segments >= 1 && node->reserved == 0 &&
           (node->n_release == 0 || node->release != NULL);
}

static gh_status run_node(void *user, const gh_overlap_node *node,
                          gh_error *why)
{
    (void)why;
    issued.strange |= user != &issued || !is_of_the_pair(node);
    issued.forward += node->direction == GH_FORWARD;
    issued.backward += node->direction == GH_BACKWARD;
    for (uint32_t i = 0; i < node->n_segments; i++) {
        struct pass pass = a_pass(node->direction, node->microbatch);

        pass.call.it.segment =
            node->direction == GH_FORWARD
                ? node->first_segment + i
                : node->first_segment + node->n_segments - 1 - i;
        pass.call.it.stream = node->stream;
        issued.strange |= run_pass(&pass) != GH_OK ||
                          pass.d.it.action != GH_ACTION_RUN ||
                          result_of(&pass) != pass.word;
    }
    return GH_OK;
}

static void test_overlap_stats(void)
{
    FRAMED(gh_overlap_stats) stats;

    FRAME(stats);
    is_status(gh->overlap_get_stats(session, &stats.it, &err), GH_OK, &err,
              "a gh_overlap_stats of " RELEASE " is filled");
    ok(IS_WHOLE(stats),
       "nothing is written after a gh_overlap_stats of " RELEASE);
    ok(stats.it.order == GH_OVERLAP_FIXED && stats.it.runs == 2 &&
           stats.it.nodes == issued.forward + issued.backward &&
           stats.it.waits > 0,
       "each counter of a gh_overlap_stats of " RELEASE " is in its place");
}

static void run_pair(uint32_t flags)
{
    FRAMED(gh_overlap_pair) pair;

    FRAME(pair);
    pair.it.flags = flags;
    pair.it.forward_microbatch = issued.microbatch;
    pair.it.compute = streams[0];
    pair.it.comm = streams[1];
    pair.it.run_node = run_node;
    pair.it.user = &issued;
    is_status(gh->overlap_run(session, &pair.it, &err), GH_OK, &err,
              "a gh_overlap_pair of " RELEASE " is run");
    ok(IS_WHOLE(pair),
       "nothing is written after a gh_overlap_pair of " RELEASE);
    ok(!issued.strange, "a gh_overlap_node of " RELEASE " has its fields");
}

static void test_overlap(void)
{
    const struct opening opening = { .layer = { .kind = GH_LAYER_MOE,
                                                .experts = 4 },
                                     .n_layers = 1,
                                     .desc = { .flags = GH_SESSION_EP_OVERLAP,
                                               .max_slots = 2,
                                               .environment = quiet } };

    if (open_session(&opening)) {
        issued = (struct issued){ 0 };
        run_pair(GH_OVERLAP_FORWARD);
        issued.microbatch = 1;
        run_pair(GH_OVERLAP_FORWARD | GH_OVERLAP_BACKWARD);
        ok(issued.backward > 1 && issued.forward == 2 * issued.backward,
           "a layer has its nodes in both directions");
        test_overlap_stats();
        close_session();
    }
}

/* ---- the exchange -------------------------------------------------------- */

static gh_exchange *create(void)
{
    FRAMED(gh_exchange_desc) desc;
    gh_exchange *x = NULL;

    FRAME(desc);
    desc.it.n_ranks = 1;
    desc.it.window_bytes = WINDOW;
    desc.it.kind = "copy";
    desc.it.driver = caller_device();
    desc.it.environment = quiet;
    is_status(gh->exchange_create(&desc.it, &x, &err), GH_OK, &err,
              "a gh_exchange_desc of " RELEASE " is taken");
    ok(IS_WHOLE(desc),
       "nothing is written after a gh_exchange_desc of " RELEASE);
    return x;
}

static void test_one_exchange(gh_exchange *x)
{
    const CUdeviceptr window = (uintptr_t)gh->exchange_window(x);
    const uint64_t bytes = 8;
    FRAMED(gh_exchange_op) op;
    gh_exchange_part part;
    CUdeviceptr send = 0;
    uint32_t word = 0;

    drv.cuMemAlloc(&send, bytes);
    drv.cuMemsetD32Async(send, 77, bytes / 4, streams[0]);
    gh->exchange_lay_out(1, 0, &bytes, &part);
    FRAME(op);
    op.it.stream = streams[0];
    op.it.send = (void *)(uintptr_t)send;
    op.it.window_offset = 16;
    op.it.parts = &part;
    is_status(gh->exchange_all_to_all(x, &op.it, &err), GH_OK, &err,
              "a gh_exchange_op of " RELEASE " is taken");
    is_status(gh->exchange_wait(x, streams[0], &err), GH_OK, &err,
              "a caller of " RELEASE " waits for its exchange");
    drv.cuMemcpyDtoH(&word, window + 16 + bytes - 4, sizeof(word));
    ok(IS_WHOLE(op) && word == 77,
       "the part is in the window, and nothing after a gh_exchange_op "
       "of " RELEASE " is written");
    drv.cuMemFree(send);
}

static void test_exchange_stats(gh_exchange *x)
{
    FRAMED(gh_exchange_stats) stats;

    FRAME(stats);
    is_status(gh->exchange_get_stats(x, &stats.it, &err), GH_OK, &err,
              "a gh_exchange_stats of " RELEASE " is filled");
    ok(IS_WHOLE(stats),
       "nothing is written after a gh_exchange_stats of " RELEASE);
    ok(stats.it.kind == GH_EXCHANGE_COPY && stats.it.window_bytes == WINDOW &&
           stats.it.calls == 1 && stats.it.captured == 0 &&
           stats.it.own_bytes == 8 && stats.it.peers_ipc == 0,
       "each field of a gh_exchange_stats of " RELEASE " is in its place");
}

static void test_exchange(void)
{
    gh_exchange *x = create();

    if (x != NULL) {
        test_one_exchange(x);
        test_exchange_stats(x);
        gh->exchange_destroy(x);
    }
}

void test_since_0_5(void)
{
    test_ranks();
    test_overlap();
    test_exchange();
}
