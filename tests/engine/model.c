/*
 * model.c - the whole model against double precision and differences.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "hosts/engine/parts.h"
#include "tap/tap.h"
#include "tests/engine/immediate.h"
#include "tests/engine/reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct bench {
    struct device dev;
    struct model model;
    struct set set;
    int n; /* tokens */
    int *tokens, *targets;
    float *x, *d_head, *loss;
    struct work work;
};

static void set_up(struct bench *bench, const struct config *config)
{
    memset(bench, 0, sizeof(*bench));
    immediate_driver(&bench->dev.drv);
    device_open_driver(&bench->dev, true);
    model_init(&bench->model, config);
    model_upload(&bench->model, &bench->dev);
    set_init(&bench->set, config, &bench->dev);

    bench->n = config_rows(config);
    bench->tokens = device_alloc(&bench->dev, (size_t)bench->n * sizeof(int));
    bench->targets = device_alloc(&bench->dev, (size_t)bench->n * sizeof(int));
    bench->x = device_alloc(&bench->dev, (size_t)(bench->n * config->hidden) *
                                             sizeof(float));
    bench->d_head = device_alloc(
        &bench->dev, (size_t)(bench->n * config->hidden) * sizeof(float));
    bench->loss = device_alloc(&bench->dev, sizeof(float));
    for (int i = 0; i < bench->n; i++) {
        bench->tokens[i] = (i * 37 + 11) % 97 + 32;
        bench->targets[i] = (i * 53 + 5) % 89 + 32;
    }
    bench->work = (struct work){
        .queue = { .dev = &bench->dev },
        .model = &bench->model,
        .set = &bench->set,
    };
}

static void tear_down(struct bench *bench)
{
    set_free(&bench->set);
    model_free(&bench->model);
    device_free(&bench->dev, bench->tokens);
    device_free(&bench->dev, bench->targets);
    device_free(&bench->dev, bench->x);
    device_free(&bench->dev, bench->d_head);
    device_free(&bench->dev, bench->loss);
    device_close(&bench->dev);
}

/* Weights far from their first values, so that every term matters. */
static void stir(struct bench *bench)
{
    for (size_t i = 0; i < bench->model.n; i++) {
        bench->model.w[i] += 0.3f * sinf(1.7f * (float)i + 0.3f);
    }
}

static void run_whole(struct bench *bench, float scale)
{
    const struct work *work = &bench->work;
    const int last = 2 * bench->model.config.layers - 1;

    memset(bench->model.g, 0, bench->model.n * sizeof(float));
    embed_forward(work, bench->tokens, bench->x);
    parts_forward(work, 0, last, bench->x);
    head_forward(work, set_part_out(work->set, last), bench->targets, scale,
                 bench->loss);
    head_backward(work, set_part_out(work->set, last), bench->d_head);
    parts_backward(work, 0, last, bench->x, bench->d_head);
    embed_backward(work, bench->tokens, set_part_gradient(work->set, 0));
}

static double *doubles(const float *w, size_t n)
{
    double *copy = malloc(n * sizeof(*copy));

    for (size_t i = 0; i < n; i++) {
        copy[i] = (double)w[i];
    }
    return copy;
}

/* Compares some of the slopes of [first, first + count). */
static void check_slopes(struct bench *bench, double *w, const char *what,
                         size_t first, size_t count)
{
    const size_t stride = count / 12 + 1;
    double worst = 0.0, size = 0.0;

    for (size_t i = first; i < first + count; i += stride) {
        double slope =
            reference_slope(&bench->model, w, i, bench->tokens, bench->targets);
        double error = fabs(slope - (double)bench->model.g[i]);

        worst = error > worst ? error : worst;
        size = fabs(slope) > size ? fabs(slope) : size;
    }
    ok(size > 0.0 && worst < 2e-4 * size + 1e-7,
       "the gradient of %s is the slope of the loss", what);
    diag("%s: largest slope %.3g, largest error %.3g", what, size, worst);
}

static void check_model(const struct config *config)
{
    struct bench bench;
    const int c = config->hidden;
    double *w, expected;

    set_up(&bench, config);
    stir(&bench);
    run_whole(&bench, 1.0f / (float)bench.n);
    ok(bench.dev.code == CUDA_SUCCESS, "a whole pass issues without failure");

    w = doubles(bench.model.w, bench.model.n);
    expected = reference_loss(&bench.model, w, bench.tokens, bench.targets);
    ok(fabs(expected - (double)*bench.loss) < 1e-5 * expected,
       "%d layers, hidden %d, seq %d: the loss is that of double precision",
       config->layers, c, config->seq);
    diag("loss %.9g, in double precision %.9g", (double)*bench.loss, expected);

    check_slopes(&bench, w, "the token embedding",
                 bench.model.token_w + (size_t)(bench.tokens[1] * c),
                 (size_t)c);
    check_slopes(&bench, w, "the position embedding", bench.model.position_w,
                 (size_t)(config->seq * c));
    check_slopes(&bench, w, "the head", bench.model.head_w, (size_t)c * VOCAB);
    check_slopes(&bench, w, "the final norm's gain", bench.model.norm_g,
                 (size_t)c);
    check_slopes(&bench, w, "the final norm's bias", bench.model.norm_b,
                 (size_t)c);
    for (int i = 0; i < config->layers; i++) {
        const struct attn_weights *attn = &bench.model.attn[i];
        const struct mlp_weights *mlp = &bench.model.mlp[i];
        const size_t n = (size_t)c;

        check_slopes(&bench, w, "a qkv matrix", attn->qkv_w, 3 * n * n);
        check_slopes(&bench, w, "a qkv bias", attn->qkv_b, 3 * n);
        check_slopes(&bench, w, "an attention output", attn->out_w, n * n);
        check_slopes(&bench, w, "its bias", attn->out_b, n);
        check_slopes(&bench, w, "an attention norm's gain", attn->norm_g, n);
        check_slopes(&bench, w, "an attention norm's bias", attn->norm_b, n);
        check_slopes(&bench, w, "an up matrix", mlp->up_w, WIDEN * n * n);
        check_slopes(&bench, w, "an up bias", mlp->up_b, WIDEN * n);
        check_slopes(&bench, w, "a down matrix", mlp->down_w, WIDEN * n * n);
        check_slopes(&bench, w, "a down bias", mlp->down_b, n);
        check_slopes(&bench, w, "an MLP norm's gain", mlp->norm_g, n);
        check_slopes(&bench, w, "an MLP norm's bias", mlp->norm_b, n);
    }
    free(w);
    tear_down(&bench);
}

static void check_layout(void)
{
    const struct config config = {
        .layers = 3, .hidden = 8, .heads = 2, .seq = 4, .batch = 1
    };
    struct model model;
    size_t covered = 0;

    model_init(&model, &config);
    for (int i = 0; i < config.layers; i++) {
        covered += model.attn[i].matrices.count + model.attn[i].vectors.count;
        covered += model.mlp[i].matrices.count + model.mlp[i].vectors.count;
    }
    covered += 256 * 8 + 4 * 8 + 8 * 256 + 2 * 8;
    is_int(covered, model.n, "the parts and the ends cover every weight");
    is_int(model.n_decay, model.norm_g,
           "the vectors begin where weight decay ends");
    model_free(&model);
}

/* Two passes with half the scale add up to one. */
static void check_accumulation(void)
{
    const struct config config = {
        .layers = 1, .hidden = 16, .heads = 2, .seq = 8, .batch = 2
    };
    struct bench bench;
    float *once;
    size_t differ = 0;

    set_up(&bench, &config);
    run_whole(&bench, 0.5f);
    once = malloc(bench.model.n * sizeof(*once));
    memcpy(once, bench.model.g, bench.model.n * sizeof(*once));
    parts_forward(&bench.work, 0, 1, bench.x);
    parts_backward(&bench.work, 0, 1, bench.x, bench.d_head);
    for (size_t i = 0; i < bench.model.attn[0].matrices.count; i++) {
        const size_t at = bench.model.attn[0].matrices.first + i;

        differ += bench.model.g[at] != 2.0f * once[at];
    }
    is_int(differ, 0, "a second backward adds the same gradient again");
    free(once);
    tear_down(&bench);
}

static void check_touches(void)
{
    const struct config config = {
        .layers = 2, .hidden = 24, .heads = 3, .seq = 20, .batch = 2
    };
    struct bench bench;

    set_up(&bench, &config);
    immediate_check_touches(1);
    run_whole(&bench, 1.0f);
    is_int(immediate_violations(), 0,
           "kernels read and write only the ranges that they declare");
    immediate_check_touches(0);
    tear_down(&bench);
}

int main(void)
{
    check_layout();
    check_model(&(const struct config){
        .layers = 2, .hidden = 12, .heads = 3, .seq = 7, .batch = 2 });
    check_model(&(const struct config){
        .layers = 1, .hidden = 40, .heads = 2, .seq = 70, .batch = 1 });
    check_accumulation();
    check_touches();
    return done_testing();
}
