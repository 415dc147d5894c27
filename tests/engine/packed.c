/*
 * packed.c - documents in one sequence have nothing of each other.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "model/parts.h"
#include "step/text.h"
#include "tap/tap.h"
#include "tests/engine/immediate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Two sequences: of documents of 3, 1 and 7 tokens and one of padding, and of
 * one of 12. */
enum { SEQ = 12, BATCH = 2, ROWS = SEQ * BATCH, DOCUMENTS = 8 };
static const int offsets[DOCUMENTS + 2] = { 0,  3,  4,  12, 24,
                                            24, 24, 24, 24, 24 };

struct bench {
    struct device dev;
    struct model model;
    struct set set;
    struct work work;
    float *x, *dy;
    size_t n; /* of a hidden state */
};

static void set_up(struct bench *bench, struct config config)
{
    int *at;

    memset(bench, 0, sizeof(*bench));
    config.layers = 2;
    config.hidden = 8;
    config.heads = 2;
    config.seq = SEQ;
    config.batch = BATCH;
    config.seed = 3;
    config.documents = DOCUMENTS;
    immediate_driver(&bench->dev.drv);
    device_open_driver(&bench->dev, true);
    model_init(&bench->model, &config);
    model_upload(&bench->model, &bench->dev);
    set_init(&bench->set, &bench->model, &bench->dev);
    bench->n = (size_t)ROWS * 8;
    bench->x = device_alloc(&bench->dev, bench->n * sizeof(float));
    bench->dy = device_alloc(&bench->dev, bench->n * sizeof(float));
    for (size_t i = 0; i < bench->n; i++) {
        bench->x[i] = (float)(i * 37 % 101) / 50.0f - 1.0f;
        bench->dy[i] = (float)(i * 53 % 89) / 44.0f - 1.0f;
    }
    for (size_t i = 0; i < bench->model.n; i++) {
        bench->model.w[i] += 0.2f * (float)((int)(i * 29 % 13) - 6);
    }
    memset(bench->model.g, 0, bench->model.n * sizeof(float));
    at = device_alloc(&bench->dev, sizeof(offsets));
    memcpy(at, offsets, sizeof(offsets));
    bench->work = (struct work){ .queue = { .dev = &bench->dev },
                                 .model = &bench->model,
                                 .set = &bench->set,
                                 .offsets = at };
}

static void tear_down(struct bench *bench)
{
    device_free(&bench->dev, (void *)(uintptr_t)bench->work.offsets);
    device_free(&bench->dev, bench->x);
    device_free(&bench->dev, bench->dy);
    set_free(&bench->set);
    model_free(&bench->model);
    device_close(&bench->dev);
}

static const float *run_forward(struct bench *bench)
{
    const int last = bench->model.n_parts - 1;

    parts_forward(&bench->work, 0, last, bench->x);
    return set_part_out(&bench->set, last);
}

static const float *run_backward(struct bench *bench)
{
    parts_backward(&bench->work, 0, bench->model.n_parts - 1, HALF_BOTH,
                   bench->x, bench->dy);
    return set_part_gradient(&bench->set, 0);
}

/* Whether only rows of the document that begins at `first` differ. */
static bool differs_in(const float *a, const float *b, int first, int end)
{
    bool inside = false, outside = false;

    for (int row = 0; row < ROWS; row++) {
        const bool same =
            memcmp(a + row * 8, b + row * 8, 8 * sizeof(float)) == 0;

        inside = inside || (!same && row >= first && row < end);
        outside = outside || (!same && (row < first || row >= end));
    }
    return inside && !outside;
}

static float *copy_of(const float *x, size_t n)
{
    float *copy = malloc(n * sizeof(*copy));

    memcpy(copy, x, n * sizeof(*copy));
    return copy;
}

static void try_model(const char *what, struct config config)
{
    struct bench bench;
    int wrong_forward = 0, wrong_backward = 0;

    set_up(&bench, config);
    for (int d = 0; d < 4; d++) {
        const int first = offsets[d], end = offsets[d + 1];
        float *out = copy_of(run_forward(&bench), bench.n);
        float *dx = copy_of(run_backward(&bench), bench.n);

        bench.x[first * 8] += 0.5f;
        wrong_forward +=
            !differs_in(out, run_forward(&bench), first, end);
        bench.x[first * 8] -= 0.5f;
        run_forward(&bench);
        bench.dy[(end - 1) * 8 + 1] += 0.5f;
        wrong_backward +=
            !differs_in(dx, run_backward(&bench), first, end);
        bench.dy[(end - 1) * 8 + 1] -= 0.5f;
        free(out);
        free(dx);
    }
    is_int(wrong_forward, 0, "%s: a document's input shows in it alone", what);
    is_int(wrong_backward, 0, "%s: and so does its gradient", what);
    tear_down(&bench);
}

/* The gradients of weights are of what documents have read. */
static void test_weights(const char *what, struct config config)
{
    struct bench whole, alone;
    double worst = 0.0;

    set_up(&whole, config);
    set_up(&alone, config);
    run_forward(&whole);
    run_backward(&whole);
    for (int d = 0; d < 4; d++) { /* one document's gradient at a time */
        for (int row = 0; row < ROWS; row++) {
            const bool in = row >= offsets[d] && row < offsets[d + 1];

            for (int c = 0; c < 8; c++) {
                alone.dy[row * 8 + c] = in ? whole.dy[row * 8 + c] : 0.0f;
            }
        }
        run_forward(&alone);
        run_backward(&alone);
    }
    for (size_t i = 0; i < whole.model.n; i++) {
        const double g = (double)whole.model.g[i];
        const double error =
            fabs(g - (double)alone.model.g[i]) / (1.0 + fabs(g));

        worst = error > worst ? error : worst;
    }
    if (!ok(worst < 1e-4, "%s: gradients of weights are sums over documents",
            what)) {
        diag("error %g", worst);
    }
    tear_down(&whole);
    tear_down(&alone);
}

static const char sentences[] = "one.\n\ntwo two.\n\nthree three three.\n\nf.\n\n"
                                "five five five five five five five five five."
                                "\n\nsix.\n\n";

static void test_packing(void)
{
    struct text text = { (unsigned char *)(uintptr_t)sentences,
                         sizeof(sentences) - 1 };
    const struct config config = { .batch = 2,
                                   .seq = 24,
                                   .seed = 1,
                                   .documents = 2 * 4 };
    int tokens[48], targets[48], lengths[8], padded[8], ends[10];
    struct packing packing = { 0, lengths, padded, ends };
    int bad_target = 0, bad_sum = 0, crossed = 0, empty = 0, full = 0;

    for (int m = 0; m < 200; m++) {
        int at = 0, in_row = 0;

        text_pack(&text, &config, 3, m, tokens, targets, &packing);
        for (int d = 0; d < packing.n; d++) {
            bad_sum += ends[d] != at;
            crossed += at / 24 != (at + lengths[d] - 1) / 24;
            empty += lengths[d] < 1;
            for (int t = at; t < at + lengths[d] - 1; t++) {
                bad_target += targets[t] != tokens[t + 1];
            }
            for (int t = at + lengths[d]; t < at + padded[d]; t++) {
                bad_target += targets[t] != -1;
            }
            in_row += lengths[d];
            at += padded[d];
        }
        for (int t = at; t < 48; t++) {
            bad_target += targets[t] != -1;
        }
        bad_sum += ends[packing.n] != at || ends[packing.n + 1] != 48;
        full += in_row == 48;
    }
    is_int(bad_target, 0, "a token's target is the next of its document");
    is_int(bad_sum, 0, "offsets are sums, and the last cover what is left");
    is_int(crossed, 0, "no document goes on in the next row");
    is_int(empty, 0, "and none is empty");
    ok(full < 100, "there is padding as well");
}

int main(void)
{
    const struct config gpt = { .model = MODEL_GPT };
    const struct config mla = { .model = MODEL_MLA };
    const struct config mamba = { .model = MODEL_MAMBA, .state = 3 };
    const struct config moe = { .model = MODEL_MOE, .experts = 3, .top_k = 2 };

    try_model("gpt", gpt);
    try_model("mla", mla);
    try_model("mamba", mamba);
    try_model("moe", moe);
    test_weights("gpt", gpt);
    test_weights("mla", mla);
    test_weights("mamba", mamba);
    test_packing();
    return done_testing();
}
