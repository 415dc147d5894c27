/*
 * stash.c - how many bytes experts' activations take in a stash, by the routing
 * of real text, against buffers of the worst case.
 *
 * A mixture of experts is trained on Shakespeare, and each microbatch's layers
 * say how many tokens each expert has got.  By these numbers ranks that divide
 * the experts push and pop: rank i has microbatches of its own, and its experts
 * get the tokens of all ranks' microbatches of that number.  The first steps
 * are counted, then pages are reserved for what they needed at most times
 * FACTOR. Later steps may need more: those would run again.
 *
 * The worst case is a buffer for each layer and microbatch in flight, with room
 * for all tokens of all ranks.  With a stash there is one such buffer and the
 * pages.
 */
/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/bench.h"

#include "step/schedule.h"

#include <stdlib.h>
#include <string.h>

enum {
    LAYERS = 4,
    EXPERTS = 8,
    IN_FLIGHT = 2, /* microbatches of a rank */
    MOST_RANKS = 8,
    MICROBATCHES = IN_FLIGHT * MOST_RANKS,
    PAGE_ROWS = 16,
    COUNTED = 3, /* steps */
    STEPS = 20,
    FACTOR = 120 /* percent */
};

/* One rank's stash, of a group of n. */
struct side {
    gh_stash *stash;
    uint32_t entries[IN_FLIGHT][LAYERS];
};

struct setting {
    struct bench *bench;
    struct trainer trainer;
    struct text text;
    int slots; /* of a microbatch: tokens, times top_k */
    CUdeviceptr rows, count;
    int counts[MICROBATCHES][LAYERS][EXPERTS]; /* of the last step */
    struct side sides[3][MOST_RANKS];
};

static const int groups[] = { 2, 4, 8 };
#define GROUPS (sizeof(groups) / sizeof(groups[0]))

static uint64_t row_bytes(const struct setting *s)
{
    const struct config *config = &s->trainer.model.config;

    return (uint64_t)(config->hidden + 2 * config_expert(config)) *
           sizeof(float);
}

/* ---- routing ---------------------------------------------------------------
 */

/* In the sources, which are where a test says, or above the build, or here. */
static int find_text(struct text *text, char *error, size_t bytes)
{
    const char *const places[] = { getenv("srcdir"), "..", "." };
    char path[4096];

    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        if (places[i] != NULL) {
            snprintf(path, sizeof(path), "%s/hosts/engine/data/shakespeare.txt",
                     places[i]);
            if (text_load(text, path, 64, error, bytes) == 0) {
                return 0;
            }
        }
    }
    return -1;
}

static void open_trainer(struct setting *s, struct options *options,
                         struct device *dev)
{
    char error[256];

    *options = (struct options){
        .config = { .model = MODEL_MOE,
                    .layers = LAYERS,
                    .hidden = 64,
                    .heads = 4,
                    .seq = 64,
                    .batch = 4,
                    .seed = 1,
                    .experts = EXPERTS,
                    .top_k = 2 },
        .steps = STEPS,
        .counts = { MICROBATCHES },
        .n_counts = 1,
        .in_flight = MICROBATCHES, /* so that each keeps its set */
        .streams = 1,
        .lr = 3e-3,
        .warmup = 4,
    };
    if (find_text(&s->text, error, sizeof(error)) != 0) {
        bench_die("%s", error);
    }
    dev->drv = s->bench->drv;
    if (device_open_driver(dev, s->bench->options.soft) != 0 ||
        trainer_init(&s->trainer, options, MODE_EAGER, dev) != 0) {
        bench_die("%s", dev->error);
    }
    s->slots = config_slots(&s->trainer.model.config);
}

/* Trains one step, and keeps how its tokens were routed. */
static void train_step(struct setting *s, int step)
{
    struct trainer *trainer = &s->trainer;
    struct device *dev = trainer->dev;
    const struct config *config = &trainer->model.config;
    const int rows = config_rows(config);
    const struct pool *pool = &trainer->chunk->pool;

    for (int i = 0; i < MICROBATCHES; i++) {
        int *tokens = trainer->tokens_host + (size_t)(2 * i) * (size_t)rows;

        text_sample(&s->text, config, step, i, tokens, tokens + rows);
    }
    DEVICE_CALL(dev, cuMemcpyHtoDAsync, device_address(trainer->tokens),
                trainer->tokens_host,
                (size_t)(2 * MICROBATCHES * rows) * sizeof(int),
                trainer->streams[0]);
    (void)schedule_step(trainer, MICROBATCHES);
    (void)device_synchronize(dev, trainer->streams[0]);
    for (int i = 0; i < pool->n; i++) {
        for (int l = 0; l < LAYERS; l++) {
            DEVICE_CALL(dev, cuMemcpyDtoH, s->counts[i][l],
                        device_address(pool->members[i]->set.moe[l].counts),
                        sizeof(s->counts[i][l]));
        }
    }
    if (dev->code != CUDA_SUCCESS || pool->n != MICROBATCHES) {
        bench_die("step %d: %d sets of %d: %s", step, pool->n, MICROBATCHES,
                  dev->error);
    }
}

/* Rows that come to a rank of n. */
static int rows_of(const struct setting *s, int n, int rank, int microbatch,
                   int layer)
{
    const int own = EXPERTS / n;
    int rows = 0;

    for (int i = 0; i < n; i++) {
        for (int e = rank * own; e < (rank + 1) * own; e++) {
            rows += s->counts[microbatch * n + i][layer][e];
        }
    }
    return rows;
}

/* ---- the stash -------------------------------------------------------------
 */

/* What a step needs is in the result. */
static const char *const quiet[] = { "GRAPHHOOKS_LOG=off", NULL };

static void open_side(const struct setting *s, int n, struct side *side)
{
    const gh_stash_desc desc = { .struct_size = sizeof(desc),
                                 .page_bytes = PAGE_ROWS * row_bytes(s),
                                 .driver = s->bench->driver_path,
                                 .context = s->bench->ctx,
                                 .environment = quiet };
    gh_error err = { "" };

    bench_need_gh(s->bench->gh->stash_create(&desc, &side->stash, &err),
                  "gh_stash_create", &err);
    for (int i = 0; i < IN_FLIGHT * LAYERS; i++) {
        bench_need_gh(s->bench->gh->stash_add(
                          side->stash, (uint32_t)(n * s->slots),
                          &side->entries[i / LAYERS][i % LAYERS], &err),
                      "gh_stash_add", &err);
    }
}

static void move(const struct setting *s, const struct side *side, int i, int l,
                 bool pushes)
{
    const gh_api *gh = s->bench->gh;
    const gh_stash_tensor rows = { (void *)(uintptr_t)s->rows, row_bytes(s) };
    const gh_stash_op op = { .struct_size = sizeof(op),
                             .entry = side->entries[i][l],
                             .n_tensors = 1,
                             .tensors = &rows,
                             .count = (const void *)(uintptr_t)s->count,
                             .stream = s->bench->stream };
    gh_error err = { "" };

    bench_need_gh(pushes ? gh->stash_push(side->stash, &op, &err)
                         : gh->stash_pop(side->stash, &op, &err),
                  pushes ? "gh_stash_push" : "gh_stash_pop", &err);
}

static void run_side(const struct setting *s, int n, int rank,
                     const struct side *side)
{
    gh_error err = { "" };
    uint32_t again;

    for (int i = 0; i < IN_FLIGHT; i++) {
        for (int l = 0; l < LAYERS; l++) {
            NEED(s->bench, cuMemsetD32Async,
                 (s->count, (uint32_t)rows_of(s, n, rank, i, l), 1,
                  s->bench->stream));
            move(s, side, i, l, true);
        }
    }
    for (int i = 0; i < IN_FLIGHT; i++) {
        for (int l = LAYERS; l-- > 0;) {
            move(s, side, i, l, false);
        }
    }
    bench_need_gh(s->bench->gh->stash_end_step(side->stash, s->bench->stream,
                                               &again, &err),
                  "gh_stash_end_step", &err);
}

static gh_stash_stats stats_of(const struct setting *s, const struct side *side)
{
    gh_stash_stats stats = { .struct_size = sizeof(stats) };
    gh_error err = { "" };

    bench_need_gh(s->bench->gh->stash_get_stats(side->stash, &stats, &err),
                  "gh_stash_get_stats", &err);
    return stats;
}

/* For what the busiest rank has needed, as gh_stash_reserve() does where the
 * ranks have a communicator. */
static void reserve(const struct setting *s, size_t g)
{
    gh_error err = { "" };
    uint64_t bytes = 0;

    for (int i = 0; i < groups[g]; i++) {
        const gh_stash_stats stats = stats_of(s, &s->sides[g][i]);

        bytes = stats.peak_bytes > bytes ? stats.peak_bytes : bytes;
    }
    for (int i = 0; i < groups[g]; i++) {
        bench_need_gh(s->bench->gh->stash_reserve(
                          s->sides[g][i].stash, bytes * FACTOR / 100, 0, &err),
                      "gh_stash_reserve", &err);
    }
}

/* ---- results ---------------------------------------------------------------
 */

static void write_group(const struct setting *s, size_t g, int steps,
                        FILE *file)
{
    const int n = groups[g];
    gh_stash_stats most = { .struct_size = sizeof(most) };
    double buffer, ratio;
    uint64_t again = 0;

    for (int i = 0; i < n; i++) {
        const gh_stash_stats stats = stats_of(s, &s->sides[g][i]);

        again += stats.reruns;
        most = stats.peak_bytes > most.peak_bytes ? stats : most;
    }
    buffer = (double)most.worst_case_bytes / (LAYERS * IN_FLIGHT);
    ratio = ((double)most.bytes + buffer) / (double)most.worst_case_bytes;
    fprintf(
        file,
        "%s  {\"ranks\": %d, \"worst_case_bytes\": %llu, \"page_bytes\": %llu, "
        "\"needed_bytes\": %llu, \"buffer_bytes\": %.0f, \"over_worst\": "
        "%.3f, \"steps\": %d, \"rank_steps_again\": %llu}",
        g > 0 ? ",\n" : "", n, (unsigned long long)most.worst_case_bytes,
        (unsigned long long)most.bytes, (unsigned long long)most.peak_bytes,
        buffer, ratio, steps - COUNTED, (unsigned long long)again);
}

int main(int argc, char **argv)
{
    const struct bench_options options =
        bench_parse(argc, argv, "Measures the bytes of a stash.");
    const int steps = options.brief ? COUNTED + 2 : STEPS;
    static struct setting s;
    struct device dev = { .code = CUDA_SUCCESS };
    struct options run;
    struct bench bench;
    FILE *file;

    bench_open(&bench, &options);
    s.bench = &bench;
    open_trainer(&s, &run, &dev);
    NEED(&bench, cuMemAlloc,
         (&s.rows, (size_t)(MOST_RANKS * s.slots) * row_bytes(&s)));
    NEED(&bench, cuMemAlloc, (&s.count, sizeof(int)));
    NEED(&bench, cuMemsetD8Async,
         (s.rows, 1, (size_t)(MOST_RANKS * s.slots) * row_bytes(&s),
          bench.stream));
    for (size_t g = 0; g < GROUPS; g++) {
        for (int i = 0; i < groups[g]; i++) {
            open_side(&s, groups[g], &s.sides[g][i]);
        }
    }
    for (int step = 0; step < steps; step++) {
        train_step(&s, step);
        for (size_t g = 0; g < GROUPS; g++) {
            for (int i = 0; i < groups[g]; i++) {
                run_side(&s, groups[g], i, &s.sides[g][i]);
            }
            if (step == COUNTED - 1) {
                reserve(&s, g);
            }
        }
    }
    file = bench_json_begin(&bench, "stash");
    fprintf(file, "\"factor_percent\": %d, \"groups\": [\n", FACTOR);
    for (size_t g = 0; g < GROUPS; g++) {
        write_group(&s, g, steps, file);
    }
    fprintf(file, "]");
    bench_json_end(&bench, file);
    for (size_t g = 0; g < GROUPS; g++) {
        for (int i = 0; i < groups[g]; i++) {
            bench.gh->stash_destroy(s.sides[g][i].stash);
        }
    }
    return 0;
}
