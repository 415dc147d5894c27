/*
 * overlap.c - how much of an exchange of tokens is hidden behind compute.
 *
 * The layers have experts (layers.h).  One rank exchanges with the host; with
 * --ranks there are several, which exchange with each other (overlap_link.h).
 * Of several ranks the slowest counts in each time, but an exchange takes as
 * long as on the rank that comes last: the others wait for it.
 *
 * The same step runs in several ways, in turns: compute alone, exchanges
 * alone, both one after the other, overlapped in the fixed order and in the
 * order that is found; each with graphs and without.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "bench/overlap.h"
#include "bench/overlap_link.h"

#include <stdlib.h>
#include <string.h>

#define FREE_SHARE 0.6 /* of free memory, for places */

enum {
    LAYERS = 8,
    MICROBATCHES = 3,
    ROUNDS = 6
};

static const struct shape shapes[] = {
    { "balanced", 1, 1, 0.25, LAYERS, false },
    { "balanced", 1, 1, 0.5, LAYERS, false },
    { "balanced", 1, 1, 0.75, LAYERS, false },
    { "balanced", 1, 1, 1.0, LAYERS, false },
    { "balanced", 1, 1, 1.25, LAYERS, false },
    { "short attention, long experts", 1, 3, 0.75, LAYERS - 2, false },
    { "long attention, short experts", 3, 1, 0.75, LAYERS - 2, false },
    /* must be the last; only for several ranks */
    { "one rank with most tokens", 2, 3, 0.5, LAYERS - 2, true },
};

struct setting {
    struct bench *bench;
    const struct products *products;
    struct layers layers;
    struct link link;
    uint64_t limit; /* bytes of a place, limited by memory */
    double product_ns, exchange_ns[BY_KERNEL + 1]; /* of one matrix */
    double ns_per_byte;                            /* of one exchange */
};

enum { SHAPES = sizeof(shapes) / sizeof(shapes[0]), BRIEF_LAYERS = 2 };

/* Fills in the i-th shape to be measured.  False: there are no more. */
static bool shape_at(const struct setting *s, size_t i, struct shape *shape)
{
    const bool brief = s->bench->options.brief;
    /* brief: balanced and uneven */
    const size_t at = !brief ? i : i == 0 ? 2 : i == 1 ? SHAPES - 1 : SHAPES;

    if (at >= SHAPES || (shapes[at].uneven && s->link.side == NULL)) {
        return false;
    }
    *shape = shapes[at];
    if (brief) {
        shape->layers = BRIEF_LAYERS;
    }
    return true;
}

/* ---- what a shape needs -------------------------------------------------- */

/* The time of a node, measured on many that follow each other. */
static double timed(struct setting *s, int times, enum stage stage)
{
    const struct experts_node node = { .direction = GH_FORWARD,
                                       .stage = stage,
                                       .stream = s->bench->stream };
    CUevent ends[2];
    float ms = 0;
    double ns;

    for (int i = 0; i < 2; i++) {
        NEED(s->bench, cuEventCreate, (&ends[i], 0));
    }
    for (int i = -times / 2 - 1; i < times; i++) {
        if (i == 0) {
            NEED(s->bench, cuEventRecord, (ends[0], node.stream));
        }
        layers_issue(&s->layers, &node);
    }
    NEED(s->bench, cuEventRecord, (ends[1], node.stream));
    link_wait(&s->link);
    NEED(s->bench, cuEventElapsedTime, (&ms, ends[0], ends[1]));
    for (int i = 0; i < 2; i++) {
        NEED(s->bench, cuEventDestroy, (ends[i]));
    }
    ns = (double)ms * 1e6 / times;
    link_most(&s->link, &ns, 1);
    return ns;
}

/* The bytes for which the four exchanges of a pair of layers take `ratio` of
 * the time of its products. */
static uint64_t bytes_for(const struct setting *s, const struct shape *shape)
{
    const double compute =
        3 * (shape->before + shape->experts) * s->product_ns;
    const double bytes = shape->ratio * compute / 4 / s->ns_per_byte;
    const uint64_t rounded =
        (uint64_t)(bytes / (double)s->link.unit + 1) * s->link.unit;
    const double share =
        shape->uneven ? link_share(&s->link) * s->link.side->rank->n : 1;
    const uint64_t limit = (uint64_t)((double)s->limit / share);
    const uint64_t most = limit - limit % s->link.unit;

    return rounded < most ? rounded : most;
}

static void take_memory(struct setting *s, uint32_t layers, uint64_t room)
{
    const struct side *side = s->link.side;

    layers_open(&s->layers, s->products, layers, room,
                side != NULL ? 1000 * side->rank->rank : 0);
    s->layers.exchange = link_exchange;
    s->layers.user = &s->link;
    link_take(&s->link, &s->layers, room);
}

static void give_memory(struct setting *s)
{
    link_give(&s->link);
    layers_close(&s->layers);
}

/* Finds how large places may be so that all layers and sets fit, on the rank
 * with the least memory. */
static void find_limit(struct setting *s)
{
    const double places = EXPERTS_SETS * LAYERS * LAYERS_PLACES;
    size_t free = 0, all = 0;
    double lack;

    NEED(s->bench, cuMemGetInfo, (&free, &all));
    lack = -(double)free;
    link_most(&s->link, &lack, 1);
    s->limit = (uint64_t)(-lack * FREE_SHARE / places);
}

static void time_exchanges(struct setting *s)
{
    s->link.bytes = s->products->bytes;
    take_memory(s, 1, s->link.bytes);
    s->product_ns = timed(s, 20, STAGE_EXPERTS);
    for (size_t i = 0; i < LINK_KINDS; i++) {
        const enum exchange_by by = link_kinds[i];

        if (by == BY_COPY ||
            (s->link.side != NULL && side_has(s->link.side, by))) {
            s->link.by = by;
            s->exchange_ns[by] = timed(s, 10, STAGE_DISPATCH);
        }
    }
    s->link.by = BY_COPY;
    s->ns_per_byte = s->exchange_ns[BY_COPY] / (double)s->link.bytes;
    give_memory(s);
}

static void open_setting(struct setting *s, struct bench *bench,
                         const struct products *products, struct side *side)
{
    uint64_t most = products->bytes;
    struct shape shape;

    memset(s, 0, sizeof(*s));
    s->bench = bench;
    s->products = products;
    link_open(&s->link, bench, side);
    find_limit(s);
    time_exchanges(s);
    for (size_t i = 0; shape_at(s, i, &shape); i++) {
        const uint64_t room =
            link_room(&s->link, shape.uneven, bytes_for(s, &shape));

        most = most > room ? most : room;
    }
    take_memory(s, LAYERS, most);
}

static void close_setting(struct setting *s)
{
    give_memory(s);
    link_close(&s->link);
}

/* ---- measuring ----------------------------------------------------------- */

/* Decides what the following steps issue. */
static void go(struct setting *s, enum overlap_way way)
{
    s->layers.computes = way != WAY_COMM;
    s->layers.exchange = way != WAY_COMPUTE ? link_exchange : NULL;
}

static void issue(void *user, const struct experts_node *node)
{
    struct setting *s = user;

    layers_issue(&s->layers, node);
}

static gh_buffer buffer(void *user, const struct experts_node *node,
                        bool output)
{
    struct setting *s = user;

    return layers_buffer(&s->layers, node, output);
}

static void wait_for_all(void *user)
{
    struct setting *s = user;

    link_wait(&s->link);
}

static void agree(void *user, double *numbers, uint32_t n)
{
    const struct setting *s = user;

    link_most(&s->link, numbers, n);
}

static void open_mode(struct setting *s, struct mode *mode,
                      struct experts *host, int rounds)
{
    static const char *const orders[] = { "off", "off", "off", "fixed",
                                          "auto" };
    const struct experts_work work = { issue, buffer, s, wait_for_all,
                                       agree };
    const struct experts_options options = { .layers = s->layers.n,
                                             .order = orders[mode->way],
                                             .graphs = mode->graphs };

    mode->pair = calloc(3 * (size_t)rounds, sizeof(double));
    if (mode->pair == NULL) {
        bench_die("no memory");
    }
    mode->host = mode->pair + rounds;
    mode->step = mode->host + rounds;
    experts_open(host, s->bench, &work, &options);
    go(s, mode->way);
    experts_warm_up(host, MICROBATCHES);
}

/* The hash must not depend on the order in which nodes run.  If it does, a wait
 * is missing. */
static uint64_t hash_of(struct setting *s, struct mode *mode,
                        struct experts *host)
{
    if (mode->way == WAY_COMPUTE || mode->way == WAY_COMM) {
        return 0;
    }
    layers_forget(&s->layers);
    go(s, mode->way);
    (void)experts_step(host, MICROBATCHES);
    return layers_hash(&s->layers);
}

/* Products take as long as on the slowest rank, an exchange as long as on the
 * rank that came last: the others waited for it. */
static void agree_on_nodes(const struct setting *s, double *ns)
{
    for (int i = 0; i < STAGES; i++) {
        const bool exchange = i == STAGE_DISPATCH || i == STAGE_COMBINE;

        ns[i] = exchange ? -ns[i] : ns[i];
        link_most(&s->link, &ns[i], 1);
        ns[i] = exchange ? -ns[i] : ns[i];
    }
}

/* Times each node while it runs alone. */
static void time_nodes(struct setting *s, struct experts *host,
                       struct measured *m)
{
    double *ns[EXPERTS_DIRECTIONS][STAGES];
    uint32_t n[EXPERTS_DIRECTIONS][STAGES] = { { 0 } };
    struct experts_timeline t;

    experts_trace(host, MICROBATCHES, &t);
    for (int i = 0; i < EXPERTS_DIRECTIONS * STAGES; i++) {
        ns[i / STAGES][i % STAGES] = calloc(t.n + 1, sizeof(double));
        if (ns[i / STAGES][i % STAGES] == NULL) {
            bench_die("no memory");
        }
    }
    for (uint32_t i = 0; i < t.n; i++) {
        const struct experts_node *node = &t.spans[i].node;

        ns[node->direction][node->stage][n[node->direction][node->stage]++] =
            t.spans[i].end - t.spans[i].begin;
    }
    for (int d = 0; d < EXPERTS_DIRECTIONS; d++) {
        for (int i = 0; i < STAGES; i++) {
            m->nodes[d][i] =
                n[d][i] > 0 ? bench_spread(ns[d][i], n[d][i]).median : 0;
            free(ns[d][i]);
        }
        agree_on_nodes(s, m->nodes[d]);
    }
    experts_timeline_free(s->bench, &t);
}

/* Records the timelines of the ways with graphs. */
static void trace(struct setting *s, struct mode *mode, struct experts *host,
                  struct measured *m)
{
    go(s, mode->way);
    if (mode->graphs && mode->way == WAY_OFF) {
        time_nodes(s, host, m);
    } else if (mode->graphs && mode->way == WAY_FIXED) {
        experts_trace(host, MICROBATCHES, &m->fixed);
    } else if (mode->graphs && mode->way == WAY_AUTO) {
        experts_trace(host, MICROBATCHES, &m->found);
    }
}

/* Runs each way in turn, round by round. */
static void run_rounds(struct setting *s, struct measured *m,
                       struct experts *hosts)
{
    for (int i = 0; i < m->rounds; i++) {
        for (int turn = 0; turn < MODES; turn++) {
            const int which = bench_turn(i, turn, MODES);
            struct mode *mode = &m->modes[which];
            struct experts_times times;

            go(s, mode->way);
            times = experts_step(&hosts[which], MICROBATCHES);
            link_most(&s->link, &times.pair, 1);
            link_most(&s->link, &times.host, 1);
            link_most(&s->link, &times.step, 1);
            mode->pair[i] = times.pair;
            mode->host[i] = times.host;
            mode->step[i] = times.step;
        }
    }
}

/* Whether all ranks, and all ways that exchange and compute, have the same
 * hash.  `first` is the hash of the same shape by another kind of exchange; 0:
 * none. */
static bool are_equal(const struct setting *s, const struct measured *m,
                      uint64_t first)
{
    double differ = 0;

    for (int i = 0; i < MODES; i++) {
        const uint64_t hash = m->modes[i].hash;

        first = first == 0 ? hash : first;
        differ = hash != 0 && hash != first ? 1 : differ;
    }
    differ = first == 0 ? 1 : differ;
    link_most(&s->link, &differ, 1);
    return differ == 0;
}

/* Measures a shape.  `*hash` is its hash, or 0 until it is known. */
static void measure(struct setting *s, const struct shape *shape,
                    struct measured *m, int rounds, uint64_t *hash)
{
    /* Without graphs first, then with graphs. */
    static const enum overlap_way ways[MODES] = {
        WAY_COMPUTE, WAY_COMPUTE, WAY_COMM, WAY_OFF, WAY_OFF,
        WAY_FIXED,   WAY_FIXED,   WAY_AUTO, WAY_AUTO
    };
    struct experts hosts[MODES];

    memset(m, 0, sizeof(*m));
    s->layers.before = shape->before;
    s->layers.experts =
        link_products(&s->link, shape->uneven, shape->experts);
    s->layers.n = shape->layers;
    s->link.bytes = bytes_for(s, shape);
    s->link.uneven = shape->uneven;
    m->shape = shape;
    m->by = s->link.side != NULL ? by_name(s->link.by) : "host";
    m->layers = shape->layers;
    m->microbatches = MICROBATCHES;
    m->rounds = rounds;
    m->exchange_bytes = link_flow(&s->link);
    for (int i = 0; i < MODES; i++) {
        m->modes[i].way = ways[i];
        m->modes[i].graphs = i > 0 && ways[i] == ways[i - 1];
    }
    for (int i = 0; i < MODES; i++) {
        open_mode(s, &m->modes[i], &hosts[i], rounds);
    }
    run_rounds(s, m, hosts);
    for (int i = 0; i < MODES; i++) {
        trace(s, &m->modes[i], &hosts[i], m);
        m->modes[i].hash = hash_of(s, &m->modes[i], &hosts[i]);
        m->modes[i].stats = hosts[i].stats;
        experts_close(&hosts[i]);
    }
    m->equal = are_equal(s, m, *hash);
    *hash = m->modes[MODES - 1].hash;
}

static void forget(const struct bench *bench, struct measured *m)
{
    for (int i = 0; i < MODES; i++) {
        free(m->modes[i].pair);
    }
    experts_timeline_free(bench, &m->fixed);
    experts_timeline_free(bench, &m->found);
}

/* ---- all of it ----------------------------------------------------------- */

static FILE *begin_costs(const struct setting *s, const char *path)
{
    const bool mine = s->link.side == NULL || s->link.side->rank->rank == 0;
    FILE *file;

    if (path == NULL) {
        return NULL;
    }
    file = fopen(mine ? path : "/dev/null", "w");
    if (file == NULL) {
        bench_die("cannot write %s", path);
    }
    fprintf(file, "device %s\ntokens %zu\n", s->bench->device,
            s->products->bytes);
    if (s->link.side != NULL) {
        fprintf(file, "ranks %u\n", s->link.side->rank->n);
    }
    return file;
}

static void report_setting(FILE *file, const struct setting *s)
{
    const double bytes = (double)s->products->bytes;

    fprintf(file,
            "\"products\": {\"by\": \"%s\", \"n\": %d, \"ns\": %.0f}, "
            "\"exchange\": {\"bytes\": %.0f, \"ns\": %.0f, "
            "\"bytes_per_ns\": %.2f},\n",
            s->products->by, s->products->n, s->product_ns, bytes,
            s->exchange_ns[BY_COPY], bytes / s->exchange_ns[BY_COPY]);
    for (size_t i = 0; i < LINK_KINDS; i++) {
        const enum exchange_by by = link_kinds[i];

        if (by != BY_COPY && s->exchange_ns[by] > 0) {
            fprintf(file,
                    "\"exchange_%s\": {\"bytes\": %.0f, \"ns\": %.0f, "
                    "\"bytes_per_ns\": %.2f},\n",
                    by_name(by), bytes, s->exchange_ns[by],
                    bytes / s->exchange_ns[by]);
        }
    }
    fprintf(file, "\"shapes\": [\n");
}

/* Measures each shape by each kind of exchange.  The costs written are those of
 * the first kind. */
static void measure_all(struct setting *s, FILE *file, FILE *costs, int rounds)
{
    struct shape shape;

    for (size_t i = 0; shape_at(s, i, &shape); i++) {
        uint64_t hash = 0;

        for (size_t k = 0; k < LINK_KINDS; k++) {
            const enum exchange_by by = link_kinds[k];
            struct measured m;

            if (s->exchange_ns[by] <= 0) {
                continue;
            }
            s->link.by = by;
            measure(s, &shape, &m, rounds, &hash);
            report_shape(file, &m, i == 0 && by == BY_COPY);
            if (costs != NULL && by == BY_COPY) {
                report_costs(costs, &m);
            }
            forget(s->bench, &m);
            fflush(file);
        }
    }
    s->link.by = BY_COPY;
    fprintf(file, "\n]\n");
}

/* `side` is for several ranks. */
static void run(struct bench *bench, const struct products *products,
                struct side *side, FILE *file)
{
    const struct bench_options *options = &bench->options;
    struct setting s;
    FILE *costs;

    open_setting(&s, bench, products, side);
    costs = begin_costs(&s, options->costs);
    report_setting(file, &s);
    measure_all(&s, file, costs,
                options->rounds != 0 ? options->rounds : ROUNDS);
    if (costs != NULL && (ferror(costs) != 0 || fclose(costs) != 0)) {
        bench_die("%s could not be written whole", options->costs);
    }
    close_setting(&s);
}

static void run_alone(const struct bench_options *options)
{
    struct bench bench;
    struct products products;
    FILE *file;

    bench_open(&bench, options);
    products_open(&products, &bench, options->cublas);
    file = bench_json_begin(&bench, "overlap");
    run(&bench, &products, NULL, file);
    bench_json_end(&bench, file);
    products_close(&products);
    bench_close(&bench);
}

static void run_rank(struct rank *rank, void *user)
{
    struct side side;
    FILE *file;

    side_open(&side, rank, user);
    file = side_json_begin(&side, "overlap");
    run(&side.bench, &side.products, &side, file);
    side_json_end(&side, file);
    side_close(&side);
}

int main(int argc, char **argv)
{
    struct bench_options options = bench_parse(
        argc, argv,
        "Measures how much of an exchange is hidden behind compute: with the "
        "host, or\nwith --ranks between so many ranks, by copies and by NCCL.");
    const uint32_t ranks = ranks_asked(&options, 1);

    if (ranks == 1) {
        run_alone(&options);
    } else {
        ranks_run(ranks, options.soft, run_rank, &options);
    }
    return 0;
}
