/*
 * open_cost.c - what opening a session costs, with families and without.
 *
 * The first session of a process loads the families' files, and the second
 * finds them loaded.  Each round has its own process, so that both are
 * measured every time.  The same model opens without families in turn.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "bench/bench.h"

#define MOST_ROUNDS 200

/* Times of one process: its first session, and the next one. */
struct times {
    double first, next;
};

static const uint32_t sizes[] = { 60, 1000 };
#define N_SIZES (sizeof(sizes) / sizeof(sizes[0]))

/* Makes layers of all three families in turn. */
static gh_model *make_model(const struct bench *bench, uint32_t layers,
                            bool families)
{
    static const struct {
        gh_layer_kind kind;
        const char *family;
    } pattern[] = { { GH_LAYER_MAMBA, "mamba" },
                    { GH_LAYER_DENSE, "gpt" },
                    { GH_LAYER_MOE, "mla" } };
    const gh_api *gh = bench->gh;
    gh_model *model;
    gh_error err = { "" };

    bench_need_gh(gh->model_create(&model, &err), "gh_model_create", &err);
    for (uint32_t i = 0; i < layers; i++) {
        gh_layer_desc layer = { .struct_size = sizeof(layer),
                                .kind = pattern[i % 3].kind };

        if (layer.kind == GH_LAYER_MOE) {
            layer.experts = 128;
            layer.features = GH_FEATURE_CAPACITY | GH_FEATURE_PAD;
        }
        layer.family = families ? pattern[i % 3].family : NULL;
        bench_need_gh(gh->model_add_layer(model, &layer, &err),
                      "gh_model_add_layer", &err);
    }
    return model;
}

/* Opens once.  Families are looked for only beside the library. */
static double open_once(const struct bench *bench, const gh_model *model)
{
    static const char *const environment[] = { NULL };
    const gh_session_desc desc = {
        .struct_size = sizeof(desc),
        .model = model,
        .driver = bench->options.soft ? bench->driver_path : "cuda",
        .context = bench->ctx,
        .environment = environment,
    };
    gh_session *session;
    gh_error err = { "" };
    uint64_t begin = bench_now_ns(), end;

    bench_need_gh(bench->gh->session_open(&desc, &session, &err),
                  "gh_session_open", &err);
    end = bench_now_ns();
    bench->gh->session_close(session);
    return (double)(end - begin);
}

static struct times open_twice(const struct bench_options *options,
                               uint32_t layers, bool families)
{
    struct bench bench;
    struct times times;
    gh_model *model;

    bench_open(&bench, options);
    model = make_model(&bench, layers, families);
    times.first = open_once(&bench, model);
    times.next = open_once(&bench, model);
    bench.gh->model_destroy(model);
    return times;
}

/* What one process opens. */
struct opening {
    const struct bench_options *options;
    uint32_t layers;
    bool families;
};

static void open_both(const void *what, void *times)
{
    const struct opening *o = what;

    *(struct times *)times = open_twice(o->options, o->layers, o->families);
}

static struct times open_apart(const struct bench_options *options,
                               uint32_t layers, bool families)
{
    const struct opening opening = { options, layers, families };
    struct times times = { 0, 0 };

    bench_apart(open_both, &opening, &times, sizeof(times));
    return times;
}

/* Indexed by [with families][first, next]. */
struct measured {
    struct spread spread[2][2];
};

static struct measured measure(const struct bench_options *options,
                               uint32_t layers, int rounds)
{
    double ns[2][2][MOST_ROUNDS];
    struct measured result;

    for (int i = 0; i < rounds; i++) {
        for (int families = 0; families < 2; families++) {
            struct times times = open_apart(options, layers, families != 0);

            ns[families][0][i] = times.first;
            ns[families][1][i] = times.next;
        }
    }
    for (int families = 0; families < 2; families++) {
        for (int which = 0; which < 2; which++) {
            result.spread[families][which] =
                bench_spread(ns[families][which], (size_t)rounds);
        }
    }
    return result;
}

int main(int argc, char **argv)
{
    const struct bench_options options = bench_parse(
        argc, argv,
        "Measures gh_session_open with the families of a model and without.");
    const int rounds = options.rounds > 0 ? options.rounds : 20;
    struct measured measured[N_SIZES];
    struct bench bench;
    FILE *file;

    if (rounds > MOST_ROUNDS) {
        bench_die("--rounds is %d; give at most %d", rounds, MOST_ROUNDS);
    }
    for (size_t i = 0; i < N_SIZES; i++) {
        measured[i] = measure(&options, sizes[i], rounds);
    }
    bench_open(&bench, &options);
    file = bench_json_begin(&bench, "open_cost");
    fprintf(file, "\"families\": [\"gpt\", \"mla\", \"mamba\"], "
                  "\"cases\": [\n");
    for (size_t i = 0; i < N_SIZES; i++) {
        struct spread(*s)[2] = measured[i].spread;

        fprintf(file, "  {\"layers\": %u, ", sizes[i]);
        bench_json_spread(file, "first_ns", s[1][0]);
        bench_json_spread(file, "next_ns", s[1][1]);
        bench_json_spread(file, "first_without_ns", s[0][0]);
        bench_json_spread(file, "next_without_ns", s[0][1]);
        fprintf(file,
                "\"ratio_first\": %.3f, \"ratio_next\": %.3f, "
                "\"rounds\": %d}%s\n",
                s[1][0].median / s[0][0].median,
                s[1][1].median / s[0][1].median, rounds,
                i + 1 < N_SIZES ? "," : "]");
    }
    bench_json_end(&bench, file);
    bench_close(&bench);
    return 0;
}
