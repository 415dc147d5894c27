/*
 * overlap.c - how much of an exchange of tokens is hidden behind compute.
 *
 * One rank, layers with experts (layers.h).  An exchange copies as many bytes
 * from the device to pinned memory of the host as from there to the device, at
 * once, as a rank of an all-to-all sends and receives.
 *
 * The same step is run in several ways, in turns: compute alone, exchanges
 * alone, both one after the other, overlapped in the fixed order and in the
 * one that is found; each with graphs and without.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "bench/layers.h"
#include "bench/overlap.h"

#include <stdlib.h>
#include <string.h>

enum {
    LAYERS = 8,
    MICROBATCHES = 3,
    ROUNDS = 6,
    OFFSETS = 16 /* what is received begins at one of these */
};

static const struct shape shapes[] = {
    { "balanced", 1, 1, 0.25, LAYERS },
    { "balanced", 1, 1, 0.5, LAYERS },
    { "balanced", 1, 1, 0.75, LAYERS },
    { "balanced", 1, 1, 1.0, LAYERS },
    { "balanced", 1, 1, 1.25, LAYERS },
    { "short attention, long experts", 1, 3, 0.75, LAYERS - 2 },
    { "long attention, short experts", 3, 1, 0.75, LAYERS - 2 },
};
#define SHAPES (sizeof(shapes) / sizeof(shapes[0]))

struct setting {
    struct bench *bench;
    struct products products;
    struct layers layers;
    uint64_t unit;  /* of which the next is a multiple */
    uint64_t bytes; /* of an exchange, each way */
    double product_ns, exchange_ns; /* of a matrix */
    double ns_per_byte;             /* of an exchange */

    char *sent, *received; /* on the host */
    CUstream side;         /* of what is received */
    CUevent fork, join;
};

/* To the host, and from there. */
static void exchange(void *user, const struct experts_node *node,
                     CUdeviceptr from, CUdeviceptr to)
{
    const struct setting *s = user;
    const struct bench *bench = s->bench;
    const uint32_t offset = (3 * node->layer + 5 * node->microbatch +
                             node->stage + 7 * node->direction) %
                            OFFSETS;

    NEED(bench, cuEventRecord, (s->fork, node->stream));
    NEED(bench, cuStreamWaitEvent, (s->side, s->fork, 0));
    NEED(bench, cuMemcpyDtoHAsync, (s->sent, from, s->bytes, node->stream));
    NEED(bench, cuMemcpyHtoDAsync,
         (to, s->received + offset * s->unit, s->bytes, s->side));
    NEED(bench, cuEventRecord, (s->join, s->side));
    NEED(bench, cuStreamWaitEvent, (node->stream, s->join, 0));
}

/* ---- what a shape needs -------------------------------------------------- */

/* Of a node, many of which follow each other. */
static double timed(struct setting *s, int times, enum stage stage)
{
    const struct experts_node node = { .direction = GH_FORWARD,
                                       .stage = stage,
                                       .stream = s->bench->stream };
    CUevent ends[2];
    float ms = 0;

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
    NEED(s->bench, cuEventSynchronize, (ends[1]));
    NEED(s->bench, cuEventElapsedTime, (&ms, ends[0], ends[1]));
    for (int i = 0; i < 2; i++) {
        NEED(s->bench, cuEventDestroy, (ends[i]));
    }
    return (double)ms * 1e6 / times;
}

/* So large that the four exchanges of a pair of layers take `ratio` of its
 * products. */
static uint64_t bytes_for(const struct setting *s, const struct shape *shape)
{
    const double compute =
        3 * (shape->before + shape->experts) * s->product_ns;
    const double bytes = shape->ratio * compute / 4 / s->ns_per_byte;

    return (uint64_t)(bytes / (double)s->unit + 1) * s->unit;
}

static void take_memory(struct setting *s, uint32_t layers, uint64_t room)
{
    const uint64_t host = room + OFFSETS * s->unit;

    layers_open(&s->layers, &s->products, layers, room, 0);
    s->layers.exchange = exchange;
    s->layers.user = s;
    NEED(s->bench, cuMemAllocHost, ((void **)&s->sent, room));
    NEED(s->bench, cuMemAllocHost, ((void **)&s->received, host));
    products_fill(&s->products, s->received, host, 1);
}

static void give_memory(struct setting *s)
{
    layers_close(&s->layers);
    NEED(s->bench, cuMemFreeHost, (s->sent));
    NEED(s->bench, cuMemFreeHost, (s->received));
}

static void open_setting(struct setting *s, struct bench *bench)
{
    uint64_t most;

    memset(s, 0, sizeof(*s));
    s->bench = bench;
    products_open(&s->products, bench, bench->options.cublas);
    s->unit = bench->options.soft ? 64 : 4096;
    s->bytes = most = s->products.bytes;
    NEED(bench, cuStreamCreate, (&s->side, CU_STREAM_NON_BLOCKING));
    NEED(bench, cuEventCreate, (&s->fork, CU_EVENT_DISABLE_TIMING));
    NEED(bench, cuEventCreate, (&s->join, CU_EVENT_DISABLE_TIMING));
    take_memory(s, 1, s->bytes);
    s->product_ns = timed(s, 20, STAGE_EXPERTS);
    s->exchange_ns = timed(s, 10, STAGE_DISPATCH);
    s->ns_per_byte = s->exchange_ns / (double)s->bytes;
    give_memory(s);
    for (size_t i = 0; i < SHAPES; i++) {
        const uint64_t bytes = bytes_for(s, &shapes[i]);

        most = most > bytes ? most : bytes;
    }
    take_memory(s, LAYERS, most);
}

static void close_setting(struct setting *s)
{
    give_memory(s);
    NEED(s->bench, cuStreamDestroy, (s->side));
    NEED(s->bench, cuEventDestroy, (s->fork));
    NEED(s->bench, cuEventDestroy, (s->join));
    products_close(&s->products);
}

/* ---- measuring ----------------------------------------------------------- */

/* What the steps that follow issue. */
static void go(struct setting *s, enum overlap_way way)
{
    s->layers.computes = way != WAY_COMM;
    s->layers.exchange = way != WAY_COMPUTE ? exchange : NULL;
}

static void open_mode(struct setting *s, struct mode *mode,
                      struct experts *host, int rounds)
{
    static const char *const orders[] = { "off", "off", "off", "fixed",
                                          "auto" };
    const struct experts_work work = { .issue = layers_issue,
                                       .buffer = layers_buffer,
                                       .user = &s->layers };
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

/* The same whatever the order in which nodes run, unless a wait is missing. */
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

/* What each node takes when it runs alone. */
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
    }
    experts_timeline_free(s->bench, &t);
}

/* Of the ways with graphs. */
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

/* Each way in turn, round by round. */
static void run_rounds(struct setting *s, struct measured *m,
                       struct experts *hosts)
{
    for (int i = 0; i < m->rounds; i++) {
        for (int turn = 0; turn < MODES; turn++) {
            const int which = (i + turn) % MODES;
            struct mode *mode = &m->modes[which];
            struct experts_times times;

            go(s, mode->way);
            times = experts_step(&hosts[which], MICROBATCHES);
            mode->pair[i] = times.pair;
            mode->host[i] = times.host;
            mode->step[i] = times.step;
        }
    }
}

static void measure(struct setting *s, const struct shape *shape,
                    struct measured *m, int rounds)
{
    /* Without graphs, then with. */
    static const enum overlap_way ways[MODES] = {
        WAY_COMPUTE, WAY_COMPUTE, WAY_COMM, WAY_OFF, WAY_OFF,
        WAY_FIXED,   WAY_FIXED,   WAY_AUTO, WAY_AUTO
    };
    struct experts hosts[MODES];

    memset(m, 0, sizeof(*m));
    s->layers.before = shape->before;
    s->layers.experts = shape->experts;
    s->layers.n = shape->layers;
    s->bytes = bytes_for(s, shape);
    m->shape = shape;
    m->layers = shape->layers;
    m->microbatches = MICROBATCHES;
    m->rounds = rounds;
    m->exchange_bytes = s->bytes;
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
}

static void forget(const struct bench *bench, struct measured *m)
{
    for (int i = 0; i < MODES; i++) {
        free(m->modes[i].pair);
    }
    experts_timeline_free(bench, &m->fixed);
    experts_timeline_free(bench, &m->found);
}

int main(int argc, char **argv)
{
    const struct bench_options options = bench_parse(
        argc, argv,
        "Measures how much of an exchange is hidden behind compute.");
    const int rounds = options.rounds != 0 ? options.rounds : ROUNDS;
    struct bench bench;
    struct setting s;
    FILE *file, *costs = NULL;

    bench_open(&bench, &options);
    open_setting(&s, &bench);
    if (options.costs != NULL) {
        costs = fopen(options.costs, "w");
        if (costs == NULL) {
            bench_die("cannot write %s", options.costs);
        }
        fprintf(costs, "device %s\ntokens %zu\n", bench.device,
                s.products.bytes);
    }
    file = bench_json_begin(&bench, "overlap");
    fprintf(file,
            "\"products\": {\"by\": \"%s\", \"n\": %d, \"ns\": %.0f}, "
            "\"exchange\": {\"bytes\": %llu, \"ns\": %.0f, "
            "\"bytes_per_ns\": %.2f},\n\"shapes\": [\n",
            s.products.by, s.products.n, s.product_ns,
            (unsigned long long)s.products.bytes, s.exchange_ns,
            1 / s.ns_per_byte);
    for (size_t i = 0; i < SHAPES; i++) {
        struct measured m;

        measure(&s, &shapes[i], &m, rounds);
        report_shape(file, &m, i == 0);
        if (costs != NULL) {
            report_costs(costs, &m);
        }
        forget(&bench, &m);
        fflush(file);
    }
    fprintf(file, "\n]\n");
    if (costs != NULL && (ferror(costs) != 0 || fclose(costs) != 0)) {
        bench_die("%s could not be written whole", options.costs);
    }
    bench_json_end(&bench, file);
    close_setting(&s);
    bench_close(&bench);
    return 0;
}
