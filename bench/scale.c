/*
 * scale.c - overlap on more ranks than there are, on paper.
 *
 * It reads what bench/overlap has measured on a GPU (--costs), and plays it on
 * the software device's clock.  A node is a kernel that takes as long as the
 * node did, and the library orders the nodes as it does on a GPU.  First come
 * the runs that were measured, to show how good the model is.  Then come the
 * same nodes with exchanges between 8 to 1,024 ranks, each as long as a model
 * of the links says.  If the measured exchanges went between ranks, the model
 * of their link is compared with them.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "bench/costs.h"

#include "softcuda/softcuda.h"

#include <dlfcn.h>
#include <string.h>

enum { MICROBATCHES = 2, CELL_BYTES = 64 };

/* ---- nodes as kernels ---------------------------------------------------- */

static void node_run(const softcuda_launch *launch, void *const *params)
{
    (void)launch;
    (void)params;
}

static void node_touch(const softcuda_launch *launch, void *const *params,
                       softcuda_touch_fn touch, void *sink)
{
    const void *cell = *(void **)params[0];

    (void)launch;
    touch(sink, cell, CELL_BYTES, SOFTCUDA_READ);
    touch(sink, cell, CELL_BYTES, SOFTCUDA_WRITE);
}

static const uint32_t node_params[] = { sizeof(void *) };

#define NODE(name) { name, 1, node_params, node_run, node_touch, NULL }
#define NODES(direction)                                        \
    NODE(direction "_before"), NODE(direction "_dispatch"),     \
        NODE(direction "_experts"), NODE(direction "_combine"), \
        NODE(direction "_after")

static const softcuda_kernel node_kernels[EXPERTS_DIRECTIONS * STAGES] = {
    NODES("forward"), NODES("backward"), NODES("wgrad")
};
static const softcuda_image node_image = { SOFTCUDA_IMAGE_MAGIC,
                                           EXPERTS_DIRECTIONS * STAGES, 0,
                                           node_kernels };

struct paper {
    struct bench bench;
    CUmodule module;
    CUfunction nodes[EXPERTS_DIRECTIONS][STAGES];
    softcuda_costs_fn *say;
};

/* The memory of one microbatch in one direction.  Its nodes follow each
 * other. */
static CUdeviceptr cell_of(const struct paper *p,
                           const struct experts_node *node)
{
    return p->bench.memory +
           (node->set * EXPERTS_DIRECTIONS + node->direction) * CELL_BYTES;
}

static void issue(void *user, const struct experts_node *node)
{
    const struct paper *p = user;
    CUdeviceptr cell = cell_of(p, node);
    void *params[] = { &cell };

    NEED(&p->bench, cuLaunchKernel,
         (p->nodes[node->direction][node->stage], 1, 1, 1, 1, 1, 1, 0,
          node->stream, params, NULL));
}

static gh_buffer buffer(void *user, const struct experts_node *node,
                        bool output)
{
    (void)output;
    return (gh_buffer){ .address =
                            (void *)(uintptr_t)cell_of(user, node),
                        .bytes = CELL_BYTES,
                        .flags = GH_BUFFER_STATIC };
}

static void open_paper(struct paper *p, const struct bench_options *options)
{
    struct bench_options soft = *options;
    void *symbol;

    soft.soft = true;
    bench_open(&p->bench, &soft);
    NEED(&p->bench, cuModuleLoadData, (&p->module, &node_image));
    for (int i = 0; i < EXPERTS_DIRECTIONS * STAGES; i++) {
        NEED(&p->bench, cuModuleGetFunction,
             (&p->nodes[i / STAGES][i % STAGES], p->module,
              node_kernels[i].name));
    }
    symbol = dlsym(p->bench.drv.library, "softcuda_costs");
    if (symbol == NULL) {
        bench_die("%s is not the software device", p->bench.driver_path);
    }
    memcpy(&p->say, &symbol, sizeof(p->say));
}

static void close_paper(struct paper *p)
{
    NEED(&p->bench, cuModuleUnload, (p->module));
    bench_close(&p->bench);
}

/* ---- a run on paper ------------------------------------------------------ */

/* How many nodes a pair of layers has. */
static int nodes_of(const struct costs_shape *shape)
{
    int n = 0;

    for (int i = 0; i < EXPERTS_DIRECTIONS * STAGES; i++) {
        n += shape->ns[i / STAGES][i % STAGES] > 0;
    }
    return n;
}

/* The gaps between kernels cost nothing here, because they are part of what was
 * measured. */
static void set_costs(const struct paper *p, const struct costs_shape *shape)
{
    const int n = nodes_of(shape);
    char line[128];

    p->say(NULL);
    snprintf(line, sizeof(line), "launch 0\ncall cuLaunchKernel %.0f\n",
             n > 0 ? shape->host_ns / n : 0);
    if (p->say(line) != 0) {
        bench_die("the software device does not take its costs");
    }
    for (int i = 0; i < EXPERTS_DIRECTIONS * STAGES; i++) {
        snprintf(line, sizeof(line), "kernel %s %.0f\n", node_kernels[i].name,
                 shape->ns[i / STAGES][i % STAGES]);
        if (p->say(line) != 0) {
            bench_die("the software device does not take its costs");
        }
    }
}

static double play(struct paper *p, const struct costs_shape *shape,
                   enum cost_way way)
{
    const struct experts_work work = { .issue = issue,
                                       .buffer = buffer,
                                       .user = p };
    const struct experts_options options = { .layers = shape->layers,
                                             .order = cost_ways[way] };
    struct experts host;
    double pair;

    set_costs(p, shape);
    experts_open(&host, &p->bench, &work, &options);
    experts_warm_up(&host, MICROBATCHES);
    pair = experts_step(&host, MICROBATCHES).pair;
    experts_close(&host);
    return pair;
}

static double sum_of(const struct costs_shape *shape, bool exchanges)
{
    double sum = 0;

    for (int i = 0; i < EXPERTS_DIRECTIONS * STAGES; i++) {
        const int stage = i % STAGES;

        if ((stage == STAGE_DISPATCH || stage == STAGE_COMBINE) == exchanges) {
            sum += shape->ns[i / STAGES][stage];
        }
    }
    return sum * shape->layers;
}

/* ---- links --------------------------------------------------------------- */

/* Ranks of one domain reach each other by NVLink.  What goes to another domain
 * is handed on inside of it, so a rank sends one message to each domain. */
static const struct links {
    const char *name;
    uint32_t domain;
    double near_ns, near_rate; /* latency; bytes per nanosecond */
    double far_ns, far_rate, message_ns;
} all_links[] = {
    { "NVLink among 8, InfiniBand", 8, 10000, 360, 15000, 45, 1000 },
    { "NVLink among 72, InfiniBand", 72, 10000, 720, 15000, 90, 1000 },
};
#define LINKS (sizeof(all_links) / sizeof(all_links[0]))

static double exchange_ns(const struct links *l, uint32_t ranks, uint64_t bytes)
{
    const uint32_t domains = (ranks + l->domain - 1) / l->domain;
    const double all = (double)bytes;
    const double away = all * (ranks - 1) / ranks;
    const double far =
        ranks > l->domain ? all * (ranks - l->domain) / ranks : 0;
    const double near_ns = l->near_ns + away / l->near_rate;
    const double far_ns =
        domains > 1 ? l->far_ns + (domains - 1) * l->message_ns +
                          far / l->far_rate
                    : 0;

    return near_ns > far_ns ? near_ns : far_ns;
}

/* Makes all exchanges as long as one between `ranks` that send `bytes` each. */
static double set_exchanges(struct costs_shape *shape, const struct links *l,
                            uint32_t ranks, uint64_t bytes)
{
    const double ns = exchange_ns(l, ranks, bytes);

    for (int d = GH_FORWARD; d <= GH_BACKWARD; d++) {
        shape->ns[d][STAGE_DISPATCH] = shape->ns[d][STAGE_COMBINE] = ns;
    }
    return ns;
}

/* ---- what was measured --------------------------------------------------- */

static void compare(struct paper *p, FILE *file, const struct costs *costs)
{
    bool first = true;

    fprintf(file, "\"measured\": [\n");
    for (int i = 0; i < costs->n; i++) {
        const struct costs_shape *shape = &costs->shapes[i];

        for (enum cost_way way = COST_OFF; way < COST_WAYS; way++) {
            const double paper = play(p, shape, way);

            if (shape->measured_ns[way] > 0) {
                fprintf(file,
                        "%s  {\"shape\": \"%s\", \"aim\": %.2f, \"way\": "
                        "\"%s\", \"paper_ns\": %.0f, \"measured_ns\": %.0f, "
                        "\"ratio\": %.4f}",
                        first ? "" : ",\n", shape->name, shape->ratio,
                        cost_ways[way], paper, shape->measured_ns[way],
                        paper / shape->measured_ns[way]);
                first = false;
            }
        }
    }
    fprintf(file, "\n],\n");
}

/* ---- more ranks ---------------------------------------------------------- */

static double exposed(double run, double compute, double comm)
{
    return run > compute ? (run - compute) / comm : 0;
}

static void sweep_one(struct paper *p, FILE *file, struct costs_shape shape,
                      const struct links *l, uint32_t ranks, uint64_t bytes)
{
    const double exchange = set_exchanges(&shape, l, ranks, bytes);
    double compute, comm, fixed, found;

    compute = sum_of(&shape, false);
    comm = sum_of(&shape, true);
    fixed = play(p, &shape, COST_FIXED);
    found = play(p, &shape, COST_AUTO);
    fprintf(file,
            "  {\"links\": \"%s\", \"shape\": \"%s\", \"ep\": %u, "
            "\"exchange_bytes\": %llu, \"exchange_ns\": %.0f, "
            "\"comm_over_compute\": %.3f, \"compute_ns\": %.0f, "
            "\"comm_ns\": %.0f, \"longer_ns\": %.0f, \"fixed_ns\": %.0f, "
            "\"auto_ns\": %.0f, \"fixed_exposed\": %.4f, "
            "\"auto_exposed\": %.4f}",
            l->name, shape.name, ranks, (unsigned long long)bytes, exchange,
            comm / compute, compute, comm, compute > comm ? compute : comm,
            fixed, found, exposed(fixed, compute, comm),
            exposed(found, compute, comm));
}

/* Whether an earlier shape has the same nodes and differs only in its
 * exchanges. */
static bool is_repeated(const struct costs *costs, int i)
{
    for (int k = 0; k < i; k++) {
        if (strcmp(costs->shapes[k].name, costs->shapes[i].name) == 0) {
            return true;
        }
    }
    return false;
}

/* Compares what was measured between ranks of one domain with what the model
 * says, for the exchanges and for the whole run. */
static void compare_links(struct paper *p, FILE *file,
                          const struct costs *costs)
{
    bool first = true;

    fprintf(file, "\"links\": [\n");
    for (int i = 0; costs->ranks > 0 && i < costs->n; i++) {
        const struct costs_shape *shape = &costs->shapes[i];
        const struct links *l = &all_links[0];
        struct costs_shape model = *shape;
        /* A rank sends everything but its own part. */
        const double exchange = set_exchanges(
            &model, l, costs->ranks,
            shape->exchange_bytes * costs->ranks / (costs->ranks - 1));
        const double paper = play(p, &model, COST_AUTO);

        fprintf(file,
                "%s  {\"links\": \"%s\", \"shape\": \"%s\", \"aim\": %.2f, "
                "\"ranks\": %u, \"exchange_bytes\": %llu, "
                "\"model_ns\": %.0f, \"exchange_ns\": %.0f, "
                "\"paper_ns\": %.0f, \"measured_ns\": %.0f, "
                "\"ratio\": %.4f}",
                first ? "" : ",\n", l->name, shape->name, shape->ratio,
                costs->ranks, (unsigned long long)shape->exchange_bytes,
                exchange, sum_of(shape, true) / shape->layers / 4, paper,
                shape->measured_ns[COST_AUTO],
                shape->measured_ns[COST_AUTO] > 0
                    ? paper / shape->measured_ns[COST_AUTO]
                    : 0);
        first = false;
    }
    fprintf(file, "\n],\n");
}

static void sweep(struct paper *p, FILE *file, const struct costs *costs)
{
    bool first = true;

    fprintf(file, "\"scale\": [\n");
    for (size_t k = 0; k < LINKS; k++) {
        for (int i = 0; i < costs->n; i++) {
            for (uint32_t ranks = 8;
                 !is_repeated(costs, i) && ranks <= 1024; ranks *= 2) {
                fputs(first ? "" : ",\n", file);
                sweep_one(p, file, costs->shapes[i], &all_links[k], ranks,
                          costs->token_bytes);
                first = false;
            }
        }
    }
    fprintf(file, "\n]\n");
}

int main(int argc, char **argv)
{
    const struct bench_options options = bench_parse(
        argc, argv,
        "Plays what bench/overlap has measured (--costs) for 8 to 1,024 "
        "ranks, on the\nsoftware device whatever --driver says.");
    struct paper paper;
    struct costs costs;
    FILE *file;

    if (options.costs == NULL) {
        bench_die("--costs is missing; give the file that bench/overlap wrote "
                  "with it");
    }
    costs_read(options.costs, &costs);
    open_paper(&paper, &options);
    file = bench_json_begin(&paper.bench, "scale");
    fprintf(file, "\"costs_of\": \"%s\",\n", costs.device);
    compare(&paper, file, &costs);
    compare_links(&paper, file, &costs);
    sweep(&paper, file, &costs);
    bench_json_end(&paper.bench, file);
    close_paper(&paper);
    return 0;
}
