/*
 * plan_cost.c - what a plan costs, without device and without loading the
 * library.
 *
 * Unlike the other benches this one calls into the library's own code: through
 * the API a plan is only made when a session opens, which does much more
 * besides.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "bench/bench.h"
#include "plan/plan.h"

#define ROUNDS 50
#define MOST_ROUNDS 1000

static const struct {
    const char *name;
    uint32_t layers;
    gh_layer_kind kind;
    uint32_t scope;
} cases[] = {
    { "dense, whole layers", 1000, GH_LAYER_DENSE, 0 },
    { "moe, attn moe_router moe_preprocess", 1000, GH_LAYER_MOE,
      GH_SCOPE(GH_ITEM_ATTN) | GH_SCOPE(GH_ITEM_MOE_ROUTER) |
          GH_SCOPE(GH_ITEM_MOE_PREPROCESS) },
    { "moe, whole layers", 10000, GH_LAYER_MOE, 0 },
};
#define N_CASES (sizeof(cases) / sizeof(cases[0]))

static void count(void *user, const char *text, size_t bytes)
{
    (void)text;
    *(size_t *)user += bytes;
}

static gh_model *make_model(uint32_t layers, gh_layer_kind kind)
{
    gh_layer_desc desc = { .struct_size = sizeof(desc), .kind = kind };
    gh_model *model;
    gh_error err;

    desc.experts = kind == GH_LAYER_MOE ? 128 : 0;
    bench_need_gh(gh_model_create(&model, &err), "gh_model_create", &err);
    for (uint32_t i = 0; i < layers; i++) {
        bench_need_gh(gh_model_add_layer(model, &desc, &err),
                      "gh_model_add_layer", &err);
    }
    return model;
}

static void measure(FILE *file, size_t which, int rounds)
{
    const struct gh_plan_options options = {
        .scope = cases[which].scope,
        .granularity = GH_GRANULARITY_PART,
    };
    gh_model *model = make_model(cases[which].layers, cases[which].kind);
    double made[MOST_ROUNDS], written[MOST_ROUNDS];
    uint32_t segments = 0;
    size_t bytes = 0;

    for (int i = 0; i < rounds; i++) {
        struct gh_plan plan;
        gh_error err;
        uint64_t begin = bench_now_ns(), end;

        bench_need_gh(gh_plan_make(model, &options, &plan, &err),
                      "gh_plan_make", &err);
        end = bench_now_ns();
        made[i] = (double)(end - begin);
        bytes = 0;
        gh_plan_write(&plan, GH_FORMAT_JSON, count, &bytes);
        written[i] = (double)(bench_now_ns() - end);
        segments = plan.n_segments;
        gh_plan_free(&plan);
    }
    gh_model_destroy(model);
    fprintf(file,
            "  {\"name\": \"%s\", \"layers\": %u, \"segments\": %u, "
            "\"json_bytes\": %zu, ",
            cases[which].name, cases[which].layers, segments, bytes);
    bench_json_spread(file, "make_ns", bench_spread(made, (size_t)rounds));
    bench_json_spread(file, "write_json_ns",
                      bench_spread(written, (size_t)rounds));
    fprintf(file, "\"rounds\": %d}%s\n", rounds,
            which + 1 < N_CASES ? "," : "");
}

int main(int argc, char **argv)
{
    struct bench_options options = bench_parse(argc, argv, "plan_cost");
    int rounds = options.rounds > 0 ? options.rounds : ROUNDS;
    FILE *file = stdout;

    if (rounds > MOST_ROUNDS) {
        bench_die("--rounds is %d; give at most %d", rounds, MOST_ROUNDS);
    }
    if (options.json != NULL) {
        file = fopen(options.json, "w");
        if (file == NULL) {
            bench_die("cannot write %s", options.json);
        }
    }
    fprintf(file, "{\"bench\": \"plan_cost\", \"driver\": \"none\", "
                  "\"cases\": [\n");
    for (size_t i = 0; i < N_CASES; i++) {
        measure(file, i, rounds);
    }
    fprintf(file, "]}\n");
    if (fflush(file) != 0 || ferror(file) != 0) {
        bench_die("the results cannot be written");
    }
    if (file != stdout) {
        fclose(file);
    }
    return 0;
}
