/*
 * offload.c - what it costs to keep activations on the host, and what it
 * frees.
 *
 * A step is 4 microbatches through 24 layers, 2 in flight.  A layer writes a
 * group of B bytes and multiplies matrices; its backward multiplies twice as
 * many and reads the group.  The multiplications are the same for every B, so
 * B decides how long a copy takes relative to the compute.  The same step runs
 * with groups that the host keeps on the device and with offload, in turns, as
 * a graph for each layer and eagerly.  Every group is compared with what was
 * written.
 *
 * A second measurement multiplies nothing.  The step is then only its copies,
 * and is compared with bare copies of the same sizes.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "bench/bench.h"

#include "model/parts.h"

#include <stdlib.h>
#include <string.h>

enum {
    LAYERS = 24,
    MICROBATCHES = 4,
    IN_FLIGHT = 2,
    SETS = IN_FLIGHT + 1, /* one more, for a microbatch without a slot */
    CHECKED = 4096,       /* bytes of a group that are compared */
    ROUNDS = 12
};

struct work_size {
    int n, gemms; /* square matrices of n rows, products in a forward */
};

/* One way of running the step. */
struct side {
    gh_session *session;
    bool offloads;
    void *own[LAYERS][SETS]; /* of a host that keeps its groups */
    uint64_t device_bytes;   /* taken by the first steps */
};

struct setting {
    struct bench *bench;
    struct device *engine; /* for its kernels */
    struct work_size work;
    uint64_t bytes; /* of one group */
    float *a, *b, *c;
    unsigned char *checked; /* [layer][set]: what backwards read */
};

static CUdeviceptr address_of(const void *pointer)
{
    return (CUdeviceptr)(uintptr_t)pointer;
}

static void *device_memory(const struct bench *bench, uint64_t bytes)
{
    CUdeviceptr address = 0;

    NEED(bench, cuMemAlloc, (&address, bytes));
    return (void *)(uintptr_t)address;
}

static uint64_t free_memory(const struct bench *bench)
{
    size_t free = 0, all = 0;

    NEED(bench, cuMemGetInfo, (&free, &all));
    return free;
}

/* ---- a pass ------------------------------------------------------------------ */

static void multiply(const struct setting *s, CUstream stream, int times,
                     const float *b)
{
    const struct queue queue = { s->engine, stream };
    const int n = s->work.n;

    for (int i = 0; i < times * s->work.gemms; i++) {
        gemm(&queue, GEMM_NN,
             (struct gemm_args){ .a = s->a,
                                 .b = b,
                                 .c = s->c,
                                 .m = n,
                                 .n = n,
                                 .k = n,
                                 .lda = n,
                                 .ldb = n,
                                 .ldc = n });
    }
    if (s->engine->code != CUDA_SUCCESS) {
        bench_die("%s", s->engine->error);
    }
}

static gh_offload_group group_of(const struct setting *s, uint32_t layer,
                                 gh_offload_tensor *tensor)
{
    *tensor = (gh_offload_tensor){ .bytes = s->bytes };
    return (gh_offload_group){
        .struct_size = sizeof(gh_offload_group),
        .layer = layer,
        .module = GH_MODULE_NAMED,
        .n_tensors = 1,
        .tensors = tensor,
    };
}

static uint32_t set_of(const gh_decision *d)
{
    return d->slot == GH_SLOT_NONE ? IN_FLIGHT : d->slot;
}

/* Bits of an ordinary float, different in each layer. */
static unsigned int pattern(uint32_t layer)
{
    return 0x3f800000u + layer;
}

static void forward(const struct setting *s, struct side *side,
                    const gh_pass *pass, const gh_decision *d)
{
    const struct bench *bench = s->bench;
    const uint32_t layer = pass->segment;
    gh_offload_tensor tensor;
    gh_offload_group group = group_of(s, layer, &tensor);
    void *address = side->own[layer][set_of(d)];
    gh_error err = { "" };

    if (side->offloads) {
        bench_need_gh(bench->gh->offload_save(side->session, &group, &err),
                      "gh_offload_save", &err);
        address = tensor.address;
    }
    NEED(bench, cuMemsetD32Async,
         (address_of(address), pattern(layer), s->bytes / 4, d->stream));
    multiply(s, d->stream, 1, s->b);
    if (side->offloads) {
        bench_need_gh(bench->gh->offload_commit(side->session, layer,
                                                GH_MODULE_NAMED, &err),
                      "gh_offload_commit", &err);
    }
}

static void backward(const struct setting *s, struct side *side,
                     const gh_pass *pass, const gh_decision *d)
{
    const struct bench *bench = s->bench;
    const uint32_t layer = pass->segment;
    gh_offload_tensor tensor;
    gh_offload_group group = group_of(s, layer, &tensor);
    char *address = side->own[layer][set_of(d)];
    unsigned char *to =
        s->checked + ((size_t)layer * SETS + set_of(d)) * CHECKED;
    gh_error err = { "" };

    if (side->offloads) {
        bench_need_gh(bench->gh->offload_load(side->session, &group, &err),
                      "gh_offload_load", &err);
        address = tensor.address;
    }
    multiply(s, d->stream, 2, s->b);
    NEED(bench, cuMemcpyDtoDAsync,
         (address_of(to), address_of(address), CHECKED / 2, d->stream));
    NEED(bench, cuMemcpyDtoDAsync,
         (address_of(to + CHECKED / 2),
          address_of(address + s->bytes - CHECKED / 2), CHECKED / 2,
          d->stream));
    if (side->offloads) {
        bench_need_gh(bench->gh->offload_release(side->session, layer,
                                                 GH_MODULE_NAMED, &err),
                      "gh_offload_release", &err);
    }
}

static void run_pass(const struct setting *s, struct side *side,
                     gh_direction direction, uint32_t layer,
                     uint32_t microbatch)
{
    const struct bench *bench = s->bench;
    gh_decision d = { .struct_size = sizeof(d) };
    gh_pass pass = bench_pass(bench, layer, direction, microbatch);
    gh_error err = { "" };
    gh_status status;

    do {
        bench_need_gh(
            bench->gh->layer_enter(side->session, &pass, &d, &err),
            "gh_layer_enter", &err);
        if (d.action != GH_ACTION_REPLAYED) {
            (direction == GH_FORWARD ? forward : backward)(s, side, &pass, &d);
        }
        status = bench->gh->layer_exit(side->session, &pass, &err);
    } while (status == GH_RERUN);
    bench_need_gh(status, "gh_layer_exit", &err);
    if (direction == GH_FORWARD) {
        bench_need_gh(bench->gh->flush_delayed(side->session, &err),
                      "gh_flush_delayed", &err);
    }
}

/* ---- a step ------------------------------------------------------------------- */

static void run_backward(const struct setting *s, struct side *side,
                         uint32_t microbatch)
{
    for (uint32_t layer = LAYERS; layer-- > 0;) {
        run_pass(s, side, GH_BACKWARD, layer, microbatch);
    }
}

static double run_step(const struct setting *s, struct side *side,
                       uint32_t microbatches)
{
    gh_error err = { "" };
    uint64_t begin;
    uint32_t oldest = 0;

    NEED(s->bench, cuCtxSynchronize, ());
    begin = bench_now_ns();
    for (uint32_t i = 0; i < microbatches; i++) {
        if (i - oldest == IN_FLIGHT) {
            run_backward(s, side, oldest++);
        }
        for (uint32_t layer = 0; layer < LAYERS; layer++) {
            run_pass(s, side, GH_FORWARD, layer, i);
        }
    }
    while (oldest < microbatches) {
        run_backward(s, side, oldest++);
    }
    bench_need_gh(s->bench->gh->iteration_end(side->session, &err),
                  "gh_iteration_end", &err);
    NEED(s->bench, cuCtxSynchronize, ());
    return (double)(bench_now_ns() - begin);
}

/* Checks that backwards read what forwards wrote. */
static void check(const struct setting *s)
{
    const size_t bytes = (size_t)LAYERS * SETS * CHECKED;
    unsigned int *read = malloc(bytes);

    if (read == NULL) {
        bench_die("no memory");
    }
    NEED(s->bench, cuMemcpyDtoH, (read, address_of(s->checked), bytes));
    for (uint32_t layer = 0; layer < LAYERS; layer++) {
        for (size_t i = 0; i < (size_t)IN_FLIGHT * CHECKED / 4; i++) {
            const unsigned int found =
                read[(size_t)layer * SETS * CHECKED / 4 + i];

            if (found != pattern(layer)) {
                bench_die("layer %u: word %zu is 0x%x and was written as 0x%x",
                          layer, i, found, pattern(layer));
            }
        }
    }
    free(read);
}

/* ---- sides --------------------------------------------------------------------- */

static gh_session *open_session(const struct bench *bench, bool graphs,
                                bool offloads, bool delay)
{
    static const char *const names[] = { "group", NULL };
    const char *environment[] = { graphs ? "GRAPHHOOKS_ENABLE=1"
                                         : "GRAPHHOOKS_ENABLE=0",
                                  delay ? "GRAPHHOOKS_OFFLOAD_DELAY=1"
                                        : "GRAPHHOOKS_OFFLOAD_DELAY=0",
                                  NULL };
    const gh_offload_desc offload = { .struct_size = sizeof(offload),
                                      .modules = "group",
                                      .names = names,
                                      .fraction = bench->options.fraction,
                                      .min_bytes = 1 };
    const gh_layer_desc layer = { .struct_size = sizeof(layer) };
    gh_session_desc desc = { .struct_size = sizeof(desc),
                             .driver = bench->options.soft ? bench->driver_path
                                                           : "cuda",
                             .context = bench->ctx,
                             .max_slots = IN_FLIGHT,
                             .offload = offloads ? &offload : NULL,
                             .environment = environment };
    gh_session *session = NULL;
    gh_model *model = NULL;
    gh_error err = { "" };

    bench_need_gh(bench->gh->model_create(&model, &err), "gh_model_create",
                  &err);
    for (int i = 0; i < LAYERS; i++) {
        bench_need_gh(bench->gh->model_add_layer(model, &layer, &err),
                      "gh_model_add_layer", &err);
    }
    desc.model = model;
    bench_need_gh(bench->gh->session_open(&desc, &session, &err),
                  "gh_session_open", &err);
    bench->gh->model_destroy(model);
    return session;
}

static struct side open_side(const struct setting *s, bool graphs,
                             bool offloads, bool delay)
{
    const uint64_t before = free_memory(s->bench);
    const int sets = IN_FLIGHT;
    struct side side = { .offloads = offloads };

    for (int i = 0; !offloads && i < LAYERS * sets; i++) {
        side.own[i / sets][i % sets] = device_memory(s->bench, s->bytes);
    }
    side.session = open_session(s->bench, graphs, offloads, delay);
    for (int i = 0; i < 3; i++) {
        (void)run_step(s, &side, MICROBATCHES);
    }
    check(s);
    side.device_bytes = before - free_memory(s->bench);
    return side;
}

static void close_side(const struct setting *s, struct side *side)
{
    s->bench->gh->session_close(side->session);
    for (int i = 0; i < LAYERS * SETS; i++) {
        if (side->own[i / SETS][i % SETS] != NULL) {
            NEED(s->bench, cuMemFree,
                 (address_of(side->own[i / SETS][i % SETS])));
        }
    }
}

/* ---- bare copies ----------------------------------------------------------------- */

struct rates {
    double out, back, out_of_both; /* bytes per nanosecond */
};

static double timed_copies(const struct bench *bench, void *host, void *device,
                           uint64_t bytes, int ways)
{
    CUstream streams[2];
    uint64_t begin;

    for (int i = 0; i < 2; i++) {
        NEED(bench, cuStreamCreate, (&streams[i], CU_STREAM_NON_BLOCKING));
    }
    NEED(bench, cuCtxSynchronize, ());
    begin = bench_now_ns();
    for (int i = 0; i < LAYERS * MICROBATCHES; i++) {
        char *h = (char *)host + (uint64_t)(i % LAYERS) * bytes;

        if ((ways & 1) != 0) {
            NEED(bench, cuMemcpyDtoHAsync,
                 (h, address_of(device) + (uint64_t)(i % 2) * bytes, bytes,
                  streams[0]));
        }
        if ((ways & 2) != 0) {
            NEED(bench, cuMemcpyHtoDAsync,
                 (address_of(device) + (uint64_t)(2 + i % 2) * bytes,
                  (char *)host + (uint64_t)(LAYERS + i % LAYERS) * bytes, bytes,
                  streams[1]));
        }
    }
    NEED(bench, cuCtxSynchronize, ());
    begin = bench_now_ns() - begin;
    for (int i = 0; i < 2; i++) {
        NEED(bench, cuStreamDestroy, (streams[i]));
    }
    return (double)begin;
}

static struct rates bare_rates(const struct bench *bench, uint64_t bytes)
{
    const double all = (double)bytes * LAYERS * MICROBATCHES;
    void *device = device_memory(bench, 4 * bytes);
    void *host = NULL;
    double t[3][5];

    NEED(bench, cuMemsetD8Async,
         (address_of(device), 0, 4 * bytes, bench->stream));
    NEED(bench, cuMemAllocHost, (&host, 2 * LAYERS * bytes));
    memset(host, 1, 2 * LAYERS * bytes);
    for (int i = -1; i < 5; i++) {
        for (int ways = 1; ways <= 3; ways++) {
            t[ways - 1][i < 0 ? 0 : i] =
                timed_copies(bench, host, device, bytes, ways);
        }
    }
    NEED(bench, cuMemFreeHost, (host));
    NEED(bench, cuMemFree, (address_of(device)));
    return (struct rates){ all / bench_spread(t[0], 5).median,
                           all / bench_spread(t[1], 5).median,
                           all / bench_spread(t[2], 5).median };
}

/* ---- measurements ------------------------------------------------------------------ */

static gh_offload_stats stats_of(const struct setting *s,
                                 const struct side *side)
{
    gh_offload_stats stats = { .struct_size = sizeof(stats) };
    gh_error err = { "" };

    bench_need_gh(
        s->bench->gh->offload_get_stats(side->session, &stats, &err),
        "gh_offload_get_stats", &err);
    return stats;
}

/* How long one forward of a layer takes with nothing to copy. */
static double forward_ns(double step_ns)
{
    return step_ns / (3.0 * LAYERS * MICROBATCHES);
}

static void compare_steps(const struct setting *s, FILE *file, bool graphs,
                          bool delay, double rate, int rounds, bool first)
{
    struct side without = open_side(s, graphs, false, false);
    struct side with = open_side(s, graphs, true, delay);
    double *t[2] = { malloc((size_t)rounds * sizeof(double)),
                     malloc((size_t)rounds * sizeof(double)) };
    gh_offload_stats before, after;
    struct spread spread[2];
    /* What leaves the device: all groups in flight except the last one of each
     * microbatch, which stays, and except those in the rings. */
    const uint64_t theory =
        (uint64_t)IN_FLIGHT * (LAYERS - 1) * s->bytes - 4 * s->bytes;

    if (t[0] == NULL || t[1] == NULL) {
        bench_die("no memory");
    }
    before = stats_of(s, &with);
    for (int i = 0; i < rounds; i++) {
        for (int turn = 0; turn < 2; turn++) {
            const int side = (i + turn) % 2;

            t[side][i] =
                run_step(s, side == 0 ? &without : &with, MICROBATCHES);
        }
    }
    after = stats_of(s, &with);
    check(s);
    spread[0] = bench_spread(t[0], (size_t)rounds);
    spread[1] = bench_spread(t[1], (size_t)rounds);
    fprintf(file,
            "%s  {\"passes\": \"%s\", \"delay\": %s, \"group_bytes\": %llu, "
            "\"copy_over_forward\": %.3f, ",
            first ? "" : ",\n", graphs ? "graphs" : "eager",
            delay ? "true" : "false", (unsigned long long)s->bytes,
            (double)s->bytes / rate / forward_ns(spread[0].median));
    bench_json_spread(file, "without_ns", spread[0]);
    bench_json_spread(file, "with_ns", spread[1]);
    fprintf(file,
            "\"ratio\": %.4f, \"late\": %llu, \"reloads\": %llu, "
            "\"device_without\": %llu, \"device_with\": %llu, "
            "\"freed_over_theory\": %.4f, \"pinned\": %llu}",
            spread[1].median / spread[0].median,
            (unsigned long long)(after.late - before.late),
            (unsigned long long)(after.back_copies - before.back_copies),
            (unsigned long long)without.device_bytes,
            (unsigned long long)with.device_bytes,
            ((double)without.device_bytes - (double)with.device_bytes) /
                (double)theory,
            (unsigned long long)after.pinned_bytes);
    free(t[0]);
    free(t[1]);
    close_side(s, &without);
    close_side(s, &with);
}

/* Measures only copies: all groups go out and come back. */
static void measure_copies(struct setting *s, FILE *file,
                           const struct rates *rates, int rounds)
{
    const struct work_size work = s->work;
    struct side side;
    gh_offload_stats before, after;
    double t = 0.0, bytes;

    s->work.gemms = 0;
    side = open_side(s, true, true, false);
    before = stats_of(s, &side);
    for (int i = 0; i < rounds; i++) {
        t += run_step(s, &side, MICROBATCHES);
    }
    after = stats_of(s, &side);
    check(s);
    bytes = (double)(after.out_bytes - before.out_bytes);
    /* Forwards and backwards take turns, so copies out and back rarely overlap.
     * The bare time is therefore that of one after the other. */
    fprintf(file,
            "\n], \"copies\": {\"group_bytes\": %llu, \"bare_out\": %.2f, "
            "\"bare_back\": %.2f, \"bare_both\": %.2f, \"step_ns\": %.0f, "
            "\"bare_step_ns\": %.0f, \"bare_over_step\": %.4f}\n",
            (unsigned long long)s->bytes, rates->out, rates->back,
            rates->out_of_both, t / rounds,
            bytes / rounds / rates->out + bytes / rounds / rates->back,
            (bytes / rates->out + bytes / rates->back) / t);
    s->work = work;
    close_side(s, &side);
}

static void open_setting(struct setting *s, struct bench *bench,
                         struct device *engine)
{
    const bool soft = bench->options.soft;
    size_t matrix;

    memset(s, 0, sizeof(*s));
    s->bench = bench;
    s->work = soft ? (struct work_size){ 8, 1 } : (struct work_size){ 1024, 4 };
    s->engine = engine;
    s->engine->drv = bench->drv;
    if (device_open_driver(s->engine, soft) != 0) {
        bench_die("%s", s->engine->error);
    }
    matrix = (size_t)s->work.n * (size_t)s->work.n * sizeof(float);
    s->a = device_memory(bench, matrix);
    s->b = device_memory(bench, matrix);
    s->c = device_memory(bench, matrix);
    s->checked = device_memory(bench, (uint64_t)LAYERS * SETS * CHECKED);
    NEED(bench, cuMemsetD8Async, (address_of(s->a), 0, matrix, bench->stream));
    NEED(bench, cuMemsetD8Async, (address_of(s->b), 0, matrix, bench->stream));
    NEED(bench, cuMemsetD8Async,
         (address_of(s->checked), 0, (size_t)LAYERS * SETS * CHECKED,
          bench->stream));
    bench_sync(bench);
}

int main(int argc, char **argv)
{
    const struct bench_options options = bench_parse(
        argc, argv, "Measures steps with and without offload.");
    static const uint64_t mib[] = { 1, 2, 4, 8, 12, 16, 24, 32 };
    const uint64_t unit = options.soft ? 4096 : 1048576;
    const int rounds = options.rounds != 0 ? options.rounds : ROUNDS;
    struct bench bench;
    struct device engine = { .code = CUDA_SUCCESS };
    struct setting s;
    struct rates rates;
    FILE *file;
    bool first = true;

    bench_open(&bench, &options);
    open_setting(&s, &bench, &engine);
    rates = bare_rates(&bench, 16 * unit);
    file = bench_json_begin(&bench, "offload");
    fprintf(file, "\"layers\": %d, \"microbatches\": %d, \"in_flight\": %d, "
                  "\"steps\": [\n",
            LAYERS, MICROBATCHES, IN_FLIGHT);
    for (size_t i = 0; i < sizeof(mib) / sizeof(mib[0]); i++) {
        s.bytes = mib[i] * unit;
        compare_steps(&s, file, true, false, rates.out, rounds, first);
        compare_steps(&s, file, true, true, rates.out, rounds, false);
        compare_steps(&s, file, false, false, rates.out, rounds, false);
        first = false;
        fflush(file);
    }
    s.bytes = 16 * unit;
    measure_copies(&s, file, &rates, rounds);
    bench_json_end(&bench, file);
    return 0;
}
