/*
 * overlap.c - how much of an exchange of tokens is hidden behind compute.
 *
 * One rank, layers with experts.  Compute nodes multiply matrices, beside as
 * many small kernels as a layer of gh-engine's moe has there.  An exchange
 * copies as many bytes from the device to pinned memory of the host as from
 * there to the device, at once, as a rank of an all-to-all sends and receives.
 * A node reads what the one before it has computed or received, so a wait that
 * is missing changes the numbers.
 *
 * The same step is run in several ways, in turns: compute alone, exchanges
 * alone, both one after the other, overlapped in the fixed order and in the
 * one that is found; each with graphs and without.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "bench/overlap.h"
#include "bench/product.h"

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

/* Small kernels of a node, its products aside: those of a layer of the
 * engine's moe. */
static const int launches[EXPERTS_DIRECTIONS][STAGES] = {
    [GH_FORWARD] = { [STAGE_BEFORE] = 9, [STAGE_EXPERTS] = 2,
                     [STAGE_AFTER] = 1 },
    [GH_BACKWARD] = { [STAGE_BEFORE] = 10, [STAGE_EXPERTS] = 2,
                      [STAGE_AFTER] = 1 },
    [GH_WGRAD] = { [STAGE_BEFORE] = 6, [STAGE_EXPERTS] = 1 },
};

/* What a layer writes, in each set. */
enum place {
    TO_EXPERTS,   /* sent by the dispatch */
    AT_EXPERTS,   /* received */
    FROM_EXPERTS, /* sent by the combine */
    LAYER_OUT,    /* received */
    GRAD_FROM,    /* backward: received by the combine */
    GRAD_AT,      /* sent by the dispatch */
    GRAD_TO,      /* received */
    GRAD_IN,      /* of the layer's input */
    PLACES
};

struct setting {
    struct bench *bench;
    struct products products;
    uint32_t layers;
    const struct shape *shape;
    uint64_t unit;      /* of which the next is a multiple */
    uint64_t bytes;     /* of an exchange, each way */
    uint64_t room;      /* of a place */
    double product_ns, exchange_ns; /* of a matrix */
    double ns_per_byte;             /* of an exchange */

    CUdeviceptr memory;
    CUdeviceptr fixed; /* the input, the gradient of the output */
    CUdeviceptr weights, gradients; /* two for each layer */
    char *sent, *received;          /* on the host */
    CUstream side;                  /* of what is received */
    CUevent fork, join;

    enum overlap_way way; /* of the step that is run */
};

/* ---- memory -------------------------------------------------------------- */

static CUdeviceptr at(const struct setting *s, const struct experts_node *node,
                      uint32_t layer, enum place place)
{
    return s->memory +
           (((uint64_t)node->set * s->layers + layer) * PLACES + place) *
               s->room;
}

static CUdeviceptr matrix(const struct setting *s, CUdeviceptr all,
                          uint32_t layer, enum stage stage)
{
    return all +
           (2 * layer + (stage == STAGE_EXPERTS)) * (uint64_t)s->products.bytes;
}

/* What a node reads. */
static CUdeviceptr input_of(const struct setting *s,
                            const struct experts_node *node)
{
    static const enum place forward[] = { LAYER_OUT, TO_EXPERTS, AT_EXPERTS,
                                          FROM_EXPERTS, LAYER_OUT };
    static const enum place backward[] = { GRAD_TO, GRAD_AT, GRAD_FROM, GRAD_IN,
                                           GRAD_IN };
    const uint32_t layer = node->layer;

    if (node->direction == GH_FORWARD) {
        if (node->stage != STAGE_BEFORE) {
            return at(s, node, layer, forward[node->stage]);
        }
        return layer == 0 ? s->fixed : at(s, node, layer - 1, LAYER_OUT);
    }
    if (node->stage < STAGE_COMBINE) {
        return at(s, node, layer, backward[node->stage]);
    }
    return layer + 1 == s->layers ? s->fixed + s->room
                                  : at(s, node, layer + 1, GRAD_IN);
}

static CUdeviceptr output_of(const struct setting *s,
                             const struct experts_node *node)
{
    static const enum place forward[] = { TO_EXPERTS, AT_EXPERTS, FROM_EXPERTS,
                                          LAYER_OUT, LAYER_OUT };
    static const enum place backward[] = { GRAD_IN, GRAD_TO, GRAD_AT,
                                           GRAD_FROM };

    if (node->direction == GH_WGRAD) {
        return matrix(s, s->gradients, node->layer, node->stage);
    }
    if (node->direction == GH_FORWARD) {
        return at(s, node, node->layer, forward[node->stage]);
    }
    return node->stage == STAGE_AFTER
               ? input_of(s, node)
               : at(s, node, node->layer, backward[node->stage]);
}

static gh_buffer buffer(void *user, const struct experts_node *node,
                        bool output)
{
    const struct setting *s = user;
    const bool weight = output && node->direction == GH_WGRAD;

    return (gh_buffer){
        .address = (void *)(uintptr_t)(output ? output_of(s, node)
                                              : input_of(s, node)),
        .bytes = s->products.bytes,
        .flags = weight   ? GH_BUFFER_UPDATED
                 : output ? 0
                          : GH_BUFFER_STATIC,
    };
}

/* ---- nodes --------------------------------------------------------------- */

static void exchange(const struct setting *s, const struct experts_node *node)
{
    const struct bench *bench = s->bench;
    const uint32_t offset = (3 * node->layer + 5 * node->microbatch +
                             node->stage + 7 * node->direction) %
                            OFFSETS;

    NEED(bench, cuEventRecord, (s->fork, node->stream));
    NEED(bench, cuStreamWaitEvent, (s->side, s->fork, 0));
    NEED(bench, cuMemcpyDtoHAsync,
         (s->sent, input_of(s, node), s->bytes, node->stream));
    NEED(bench, cuMemcpyHtoDAsync,
         (output_of(s, node), s->received + offset * s->unit,
          s->bytes, s->side));
    NEED(bench, cuEventRecord, (s->join, s->side));
    NEED(bench, cuStreamWaitEvent, (node->stream, s->join, 0));
}

static void multiply(const struct setting *s, const struct experts_node *node)
{
    const enum stage stage = node->stage;
    const void *weight =
        (void *)(uintptr_t)matrix(s, s->weights, node->layer, stage);
    const void *in = (void *)(uintptr_t)input_of(s, node);
    void *out = (void *)(uintptr_t)output_of(s, node);
    struct experts_node forward = *node;

    forward.direction = GH_FORWARD;
    if (node->direction == GH_FORWARD) {
        product(&s->products, GEMM_NN, in, weight, out, false, node->stream);
    } else if (node->direction == GH_BACKWARD) {
        product(&s->products, GEMM_NT, in, weight, out, false, node->stream);
    } else {
        product(&s->products, GEMM_TN,
                (void *)(uintptr_t)input_of(s, &forward), in, out, true,
                node->stream);
    }
}

static void issue(void *user, const struct experts_node *node)
{
    const struct setting *s = user;
    const int products = node->stage == STAGE_BEFORE    ? s->shape->before
                         : node->stage == STAGE_EXPERTS ? s->shape->experts
                                                        : 0;

    if (node->stage == STAGE_DISPATCH || node->stage == STAGE_COMBINE) {
        if (s->way != WAY_COMPUTE) {
            exchange(s, node);
        }
    } else if (s->way != WAY_COMM) {
        bench_launch(s->bench,
                     (uint32_t)launches[node->direction][node->stage],
                     node->stream);
        for (int i = 0; i < products; i++) {
            multiply(s, node);
        }
    }
}

/* ---- what a shape needs -------------------------------------------------- */

static double timed(const struct setting *s, int times,
                    void (*what)(const struct setting *s,
                                 const struct experts_node *node))
{
    const struct experts_node node = { .direction = GH_FORWARD,
                                       .stage = what == exchange
                                                    ? STAGE_DISPATCH
                                                    : STAGE_EXPERTS,
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
        what(s, &node);
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

static void take_memory(struct setting *s)
{
    const struct bench *bench = s->bench;
    const uint64_t places = (uint64_t)EXPERTS_SETS * s->layers * PLACES;
    const uint64_t weights = 2 * s->layers * (uint64_t)s->products.bytes;
    void *numbers;

    NEED(bench, cuMemAlloc, (&s->memory, places * s->room));
    NEED(bench, cuMemAlloc, (&s->fixed, 2 * s->room));
    NEED(bench, cuMemAlloc, (&s->weights, weights));
    NEED(bench, cuMemAlloc, (&s->gradients, weights));
    NEED(bench, cuMemAllocHost, ((void **)&s->sent, s->room));
    NEED(bench, cuMemAllocHost,
         ((void **)&s->received, s->room + OFFSETS * s->unit));
    products_fill(&s->products, s->received, s->room + OFFSETS * s->unit,
                  1);
    NEED(bench, cuMemsetD32Async,
         (s->memory, 0x3c003c00u, places * s->room / 4, bench->stream));
    NEED(bench, cuMemsetD8Async, (s->gradients, 0, weights, bench->stream));
    numbers = malloc(s->room > s->products.bytes ? s->room : s->products.bytes);
    if (numbers == NULL) {
        bench_die("no memory");
    }
    for (uint32_t i = 0; i < 2 * s->layers; i++) {
        products_fill(&s->products, numbers, s->products.bytes, 2 + i);
        NEED(bench, cuMemcpyHtoD,
             (s->weights + i * (uint64_t)s->products.bytes, numbers,
              s->products.bytes));
    }
    for (uint32_t i = 0; i < 2; i++) {
        products_fill(&s->products, numbers, s->room, 100 + i);
        NEED(bench, cuMemcpyHtoD, (s->fixed + i * s->room, numbers, s->room));
    }
    free(numbers);
    NEED(bench, cuCtxSynchronize, ());
}

static void give_memory(const struct setting *s)
{
    const struct bench *bench = s->bench;

    NEED(bench, cuMemFree, (s->memory));
    NEED(bench, cuMemFree, (s->fixed));
    NEED(bench, cuMemFree, (s->weights));
    NEED(bench, cuMemFree, (s->gradients));
    NEED(bench, cuMemFreeHost, (s->sent));
    NEED(bench, cuMemFreeHost, (s->received));
}

static void open_setting(struct setting *s, struct bench *bench)
{
    uint64_t most = 0;

    memset(s, 0, sizeof(*s));
    s->bench = bench;
    products_open(&s->products, bench, bench->options.cublas);
    s->unit = bench->options.soft ? 64 : 4096;
    s->layers = 1;
    s->bytes = s->room = s->products.bytes;
    NEED(bench, cuStreamCreate, (&s->side, CU_STREAM_NON_BLOCKING));
    NEED(bench, cuEventCreate, (&s->fork, CU_EVENT_DISABLE_TIMING));
    NEED(bench, cuEventCreate, (&s->join, CU_EVENT_DISABLE_TIMING));
    take_memory(s);
    s->product_ns = timed(s, 20, multiply);
    s->exchange_ns = timed(s, 10, exchange);
    s->ns_per_byte = s->exchange_ns / (double)s->bytes;
    give_memory(s);
    s->layers = LAYERS;
    for (size_t i = 0; i < SHAPES; i++) {
        const uint64_t bytes = bytes_for(s, &shapes[i]);

        most = most > bytes ? most : bytes;
    }
    s->room = s->room > most ? s->room : most;
    take_memory(s);
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

static void open_mode(struct setting *s, struct mode *mode,
                      struct experts *host, int rounds)
{
    static const char *const orders[] = { "off", "off", "off", "fixed",
                                          "auto" };
    const struct experts_work work = { issue, buffer, s };
    const struct experts_options options = { .layers = s->layers,
                                             .order = orders[mode->way],
                                             .graphs = mode->graphs };

    mode->pair = calloc(3 * (size_t)rounds, sizeof(double));
    if (mode->pair == NULL) {
        bench_die("no memory");
    }
    mode->host = mode->pair + rounds;
    mode->step = mode->host + rounds;
    experts_open(host, s->bench, &work, &options);
    s->way = mode->way;
    experts_warm_up(host, MICROBATCHES);
}

/* The same whatever the order in which nodes run, or a wait is missing. */
static uint64_t hash_of(struct setting *s, struct mode *mode,
                        struct experts *host)
{
    enum { LOOKED_AT = 4096 };
    const uint64_t bytes = s->products.bytes;
    const uint64_t looked = bytes < LOOKED_AT ? bytes : LOOKED_AT;
    unsigned char read[LOOKED_AT];
    uint64_t hash = UINT64_C(0xcbf29ce484222325);

    if (mode->way == WAY_COMPUTE || mode->way == WAY_COMM) {
        return 0;
    }
    NEED(s->bench, cuMemsetD8Async,
         (s->gradients, 0, 2 * s->layers * bytes, s->bench->stream));
    s->way = mode->way;
    (void)experts_step(host, MICROBATCHES);
    for (uint64_t i = 0; i < 2 * s->layers; i++) {
        NEED(s->bench, cuMemcpyDtoH,
             (read, s->gradients + (i + 1) * bytes - looked, looked));
        for (uint64_t k = 0; k < looked; k++) {
            hash = (hash ^ read[k]) * UINT64_C(0x100000001b3);
        }
    }
    return hash;
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
    s->way = mode->way;
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

            s->way = mode->way;
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
    s->shape = shape;
    s->bytes = bytes_for(s, shape);
    s->layers = shape->layers;
    m->shape = shape;
    m->layers = s->layers;
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
