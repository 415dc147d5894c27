/*
 * exchange_overlap.c - a host with experts on two ranks, whose exchanges are
 * the library's own or NCCL's.
 *
 * Both run the same layers and the same bytes, in turns.  The ranks agree on
 * the times of nodes, and the slower rank's time counts.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "bench/exchange.h"
#include "bench/layers.h"

enum { LAYERS = 4, MICROBATCHES = 3 };

/* The ways of one kind of exchange: exchanges alone, and both orders. */
enum way { WAY_COMM, WAY_FIXED, WAY_AUTO, WAYS };

struct trial {
    struct side *s;
    struct layers layers;
    gh_exchange *x[2];
    enum exchange_by by;
    uint64_t bytes;
};

static void send_tokens(void *user, const struct experts_node *node,
                        CUdeviceptr from, CUdeviceptr to)
{
    struct trial *t = user;

    side_send(t->s, t->x[t->by], (const void *)(uintptr_t)from,
              to - t->layers.memory, t->bytes,
              layers_take_turns(node) ? side_turn(t->s) : 0, node->stream);
}

static void issue(void *user, const struct experts_node *node)
{
    struct trial *t = user;

    layers_issue(&t->layers, node);
}

static gh_buffer buffer(void *user, const struct experts_node *node,
                        bool output)
{
    struct trial *t = user;

    return layers_buffer(&t->layers, node, output);
}

static void wait_for_all(void *user)
{
    struct trial *t = user;

    side_wait(t->s, t->x[t->by]);
}

static void agree(void *user, double *numbers, uint32_t n)
{
    struct trial *t = user;

    rank_most(t->s->rank, numbers, n);
}

static double pair_of(struct trial *t, struct experts *host)
{
    double ns = experts_step(host, MICROBATCHES).pair;

    rank_most(t->s->rank, &ns, 1);
    return ns;
}

static void go(struct trial *t, enum exchange_by by, bool computes, bool sends)
{
    t->by = by;
    t->layers.computes = computes;
    t->layers.exchange = sends ? send_tokens : NULL;
}

static void open_host(struct trial *t, struct experts *host, const char *order)
{
    const struct experts_work work = { issue, buffer, t, wait_for_all, agree };
    const struct experts_options options = { LAYERS, order, true };

    experts_open(host, &t->s->bench, &work, &options);
    experts_warm_up(host, MICROBATCHES);
}

/* A hash of what was received.  It must not depend on the order or on the kind
 * of exchange. */
static uint64_t hash_of(struct trial *t, struct experts *host)
{
    layers_forget(&t->layers);
    (void)experts_step(host, MICROBATCHES);
    return layers_hash(&t->layers);
}

struct trial_hosts {
    struct experts compute, ways[2][WAYS];
    double compute_ns[MOST_ROUNDS], ns[2][WAYS][MOST_ROUNDS];
    uint64_t hashes[2][WAYS];
};

/* `which` is 0 for compute alone; then every way of the one kind, and of the
 * other. */
static void run_one(struct trial *t, struct trial_hosts *h, int round,
                    int which)
{
    if (which == 0) {
        go(t, BY_COPY, true, false);
        h->compute_ns[round] = pair_of(t, &h->compute);
    } else {
        const enum exchange_by by = which <= WAYS ? BY_COPY : BY_NCCL;
        const enum way way = (enum way)((which - 1) % WAYS);

        go(t, by, way != WAY_COMM, true);
        h->ns[by][way][round] = pair_of(t, &h->ways[by][way]);
    }
}

static void run_rounds(struct trial *t, struct trial_hosts *h, int rounds)
{
    const int n = 1 + (side_has(t->s, BY_NCCL) ? 2 * WAYS : WAYS);

    for (int i = 0; i < rounds; i++) {
        for (int turn = 0; turn < n; turn++) {
            run_one(t, h, i, bench_turn(i, turn, n));
        }
    }
}

static double exposed_of(const struct trial_hosts *h, enum exchange_by by,
                         enum way way, int rounds)
{
    double exposed[MOST_ROUNDS];

    for (int i = 0; i < rounds; i++) {
        exposed[i] = (h->ns[by][way][i] - h->compute_ns[i]) /
                     h->ns[by][WAY_COMM][i];
    }
    return bench_spread(exposed, (size_t)rounds).median;
}

static void report_trial(FILE *file, const struct trial *t,
                         struct trial_hosts *h, enum exchange_by by, int rounds)
{
    double over[MOST_ROUNDS];

    for (int i = 0; i < rounds; i++) {
        over[i] = h->ns[by][WAY_COMM][i] / h->compute_ns[i];
    }
    fprintf(file,
            "  {\"by\": \"%s\", \"bytes\": %llu, \"layers\": %d, "
            "\"comm_over_compute\": %.3f, \"fixed_exposed\": %.4f, "
            "\"auto_exposed\": %.4f, \"bitwise_equal\": %s, ",
            by_name(by), (unsigned long long)t->bytes, LAYERS,
            bench_spread(over, (size_t)rounds).median,
            exposed_of(h, by, WAY_FIXED, rounds),
            exposed_of(h, by, WAY_AUTO, rounds),
            h->hashes[by][WAY_FIXED] == h->hashes[BY_COPY][WAY_FIXED] &&
                    h->hashes[by][WAY_AUTO] == h->hashes[BY_COPY][WAY_FIXED]
                ? "true"
                : "false");
    bench_json_spread(file, "fixed_ns",
                      bench_spread(h->ns[by][WAY_FIXED], (size_t)rounds));
    bench_json_spread(file, "auto_ns",
                      bench_spread(h->ns[by][WAY_AUTO], (size_t)rounds));
    bench_json_spread(file, "comm_ns",
                      bench_spread(h->ns[by][WAY_COMM], (size_t)rounds));
    fprintf(file, "\"compute_median_ns\": %.0f}",
            bench_spread(h->compute_ns, (size_t)rounds).median);
}

static void try_bytes(struct trial *t, FILE *file, int rounds, bool first)
{
    static const char *const orders[] = { "off", "fixed", "auto" };
    struct trial_hosts h;

    go(t, BY_COPY, true, false);
    open_host(t, &h.compute, "off");
    for (enum exchange_by by = BY_COPY; by <= BY_NCCL; by++) {
        for (enum way way = 0; side_has(t->s, by) && way < WAYS; way++) {
            go(t, by, way != WAY_COMM, true);
            open_host(t, &h.ways[by][way], orders[way]);
        }
    }
    run_rounds(t, &h, rounds);
    for (enum exchange_by by = BY_COPY; by <= BY_NCCL; by++) {
        for (enum way way = 0; side_has(t->s, by) && way < WAYS; way++) {
            go(t, by, way != WAY_COMM, true);
            h.hashes[by][way] = hash_of(t, &h.ways[by][way]);
            experts_close(&h.ways[by][way]);
        }
        if (side_has(t->s, by)) {
            fputs(first && by == BY_COPY ? "" : ",\n", file);
            report_trial(file, t, &h, by, rounds);
        }
    }
    experts_close(&h.compute);
}

void exchange_overlap(struct side *s, FILE *file, int rounds)
{
    const uint64_t room =
        s->most > s->products.bytes ? s->most : s->products.bytes;
    const uint64_t most = s->bench.options.brief ? 1 : 4;
    struct trial t = { .s = s };

    layers_open(&t.layers, &s->products, LAYERS, room, 1000 * s->rank->rank);
    t.layers.user = &t;
    for (enum exchange_by by = BY_COPY; by <= BY_NCCL; by++) {
        if (side_has(s, by)) {
            t.x[by] = side_exchange(
                s, by, (void *)(uintptr_t)t.layers.memory,
                t.layers.memory_bytes);
        }
    }
    fprintf(file, "\"overlap\": [\n");
    for (uint64_t part = most; part >= 1; part /= 2) {
        t.bytes = s->most / part;
        try_bytes(&t, file, rounds, part == most);
    }
    fprintf(file, "\n]\n");
    for (enum exchange_by by = BY_COPY; by <= BY_NCCL; by++) {
        s->bench.gh->exchange_destroy(t.x[by]);
    }
    rank_meet(s->rank);
    layers_close(&t.layers);
}
