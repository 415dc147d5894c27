/*
 * model.c - the whole model against double precision and differences.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "model/parts.h"
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
    float *x, *d_head, *loss, *scale;
    struct work work;
};

static void set_up_delayed(struct bench *bench, const struct config *config,
                           bool delay_wgrad)
{
    memset(bench, 0, sizeof(*bench));
    immediate_driver(&bench->dev.drv);
    device_open_driver(&bench->dev, true);
    model_init(&bench->model, config);
    bench->model.delay_wgrad = delay_wgrad;
    model_upload(&bench->model, &bench->dev);
    set_init(&bench->set, &bench->model, &bench->dev);

    bench->n = config_rows(config);
    bench->tokens = device_alloc(&bench->dev, (size_t)bench->n * sizeof(int));
    bench->targets = device_alloc(&bench->dev, (size_t)bench->n * sizeof(int));
    bench->x = device_alloc(&bench->dev, (size_t)(bench->n * config->hidden) *
                                             sizeof(float));
    bench->d_head = device_alloc(
        &bench->dev, (size_t)(bench->n * config->hidden) * sizeof(float));
    bench->loss = device_alloc(&bench->dev, sizeof(float));
    bench->scale = device_alloc(&bench->dev, sizeof(float));
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

static void set_up(struct bench *bench, const struct config *config)
{
    set_up_delayed(bench, config, false);
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
    device_free(&bench->dev, bench->scale);
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
    const int last = bench->model.n_parts - 1;

    memset(bench->model.g, 0, bench->model.n * sizeof(float));
    *bench->scale = scale;
    embed_forward(work, bench->tokens, bench->x);
    parts_forward(work, 0, last, bench->x);
    head_forward(work, set_part_out(work->set, last), bench->targets,
                 bench->scale, bench->loss);
    head_backward(work, set_part_out(work->set, last), bench->d_head);
    parts_backward(work, 0, last, HALF_BOTH, bench->x, bench->d_head);
    embed_backward(work, bench->tokens, set_part_gradient(work->set, 0));
}

/* The same, every part forward twice; its backward must run once, as it adds
 * to the gradients. */
static void run_by_part(struct bench *bench, float scale)
{
    const struct work *work = &bench->work;
    const int last = bench->model.n_parts - 1;
    const float *dy = bench->d_head;

    memset(bench->model.g, 0, bench->model.n * sizeof(float));
    *bench->scale = scale;
    embed_forward(work, bench->tokens, bench->x);
    for (int i = 0; i <= last; i++) {
        const float *x = i == 0 ? bench->x : set_part_out(work->set, i - 1);

        parts_forward(work, i, i, x);
        parts_forward(work, i, i, x);
    }
    head_forward(work, set_part_out(work->set, last), bench->targets,
                 bench->scale, bench->loss);
    head_backward(work, set_part_out(work->set, last), bench->d_head);
    for (int i = last; i >= 0; i--) {
        const float *x = i == 0 ? bench->x : set_part_out(work->set, i - 1);

        parts_backward(work, i, i, HALF_BOTH, x, dy);
        dy = set_part_gradient(work->set, i);
    }
    embed_backward(work, bench->tokens, dy);
}

/* The gradients of all weights after those of everything else; by part, each
 * half in runs of one part, and the second half from the front. */
static void run_halves(struct bench *bench, float scale, bool by_part)
{
    const struct work *work = &bench->work;
    const int last = bench->model.n_parts - 1;

    memset(bench->model.g, 0, bench->model.n * sizeof(float));
    *bench->scale = scale;
    embed_forward(work, bench->tokens, bench->x);
    parts_forward(work, 0, last, bench->x);
    head_forward(work, set_part_out(work->set, last), bench->targets,
                 bench->scale, bench->loss);
    head_backward(work, set_part_out(work->set, last), bench->d_head);
    parts_backward(work, 0, last, HALF_DGRAD, bench->x, bench->d_head);
    embed_backward(work, bench->tokens, set_part_gradient(work->set, 0));
    if (!by_part) {
        parts_backward(work, 0, last, HALF_WGRAD, bench->x, bench->d_head);
        return;
    }
    for (int i = 0; i <= last; i++) {
        parts_backward(work, i, i, HALF_WGRAD,
                       i == 0 ? bench->x : set_part_out(work->set, i - 1),
                       i == last ? bench->d_head
                                 : set_part_gradient(work->set, i + 1));
    }
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

static void check_attn(struct bench *bench, double *w,
                       const struct attn_weights *attn)
{
    const size_t n = (size_t)bench->model.config.hidden;

    check_slopes(bench, w, "a qkv matrix", attn->qkv_w, 3 * n * n);
    check_slopes(bench, w, "a qkv bias", attn->qkv_b, 3 * n);
    check_slopes(bench, w, "an attention output", attn->out_w, n * n);
    check_slopes(bench, w, "its bias", attn->out_b, n);
    check_slopes(bench, w, "an attention norm's gain", attn->norm_g, n);
    check_slopes(bench, w, "an attention norm's bias", attn->norm_b, n);
}

static void check_mla(struct bench *bench, double *w,
                      const struct mla_weights *mla)
{
    const struct config *config = &bench->model.config;
    const size_t n = (size_t)config->hidden;
    const size_t q_rank = (size_t)config_q_rank(config);
    const size_t kv_rank = (size_t)config_kv_rank(config);

    check_slopes(bench, w, "a way down of queries", mla->q_down, n * q_rank);
    check_slopes(bench, w, "a way up of queries", mla->q_up,
                 q_rank * (size_t)config_qk(config));
    check_slopes(bench, w, "a way down of keys", mla->kv_down, n * kv_rank);
    check_slopes(bench, w, "a way up of keys and values", mla->kv_up,
                 kv_rank * 2 * n);
    check_slopes(bench, w, "a shared key", mla->rope_w,
                 n * (size_t)config_rope(config));
    check_slopes(bench, w, "a latent attention's output", mla->out_w, n * n);
    check_slopes(bench, w, "its norm's gain", mla->norm_g, n);
    check_slopes(bench, w, "its norm's bias", mla->norm_b, n);
    check_slopes(bench, w, "its queries' gain", mla->q_norm_g, q_rank);
    check_slopes(bench, w, "its queries' bias", mla->q_norm_b, q_rank);
    check_slopes(bench, w, "its keys' gain", mla->kv_norm_g, kv_rank);
    check_slopes(bench, w, "its keys' bias", mla->kv_norm_b, kv_rank);
}

static void check_mamba(struct bench *bench, double *w,
                        const struct mamba_weights *mamba)
{
    const struct config *config = &bench->model.config;
    const size_t n = (size_t)config->hidden;
    const size_t inner = (size_t)config_inner(config);
    const size_t rank = (size_t)config_dt_rank(config);
    const size_t state = (size_t)config->state;

    check_slopes(bench, w, "a way into channels", mamba->in_w, n * 2 * inner);
    check_slopes(bench, w, "a way out of channels", mamba->out_w, inner * n);
    check_slopes(bench, w, "a convolution", mamba->conv_w, TAPS * inner);
    check_slopes(bench, w, "its bias", mamba->conv_b, inner);
    check_slopes(bench, w, "a way down of steps", mamba->dt_down, inner * rank);
    check_slopes(bench, w, "a way up of steps", mamba->dt_up, rank * inner);
    check_slopes(bench, w, "a bias of steps", mamba->dt_b, inner);
    check_slopes(bench, w, "a state's ways in and out", mamba->bc_w,
                 inner * 2 * state);
    check_slopes(bench, w, "a decay", mamba->decay, state * inner);
    check_slopes(bench, w, "a skip", mamba->skip, inner);
    check_slopes(bench, w, "a Mamba norm's gain", mamba->norm_g, n);
    check_slopes(bench, w, "a Mamba norm's bias", mamba->norm_b, n);
}

static void check_mlp(struct bench *bench, double *w,
                      const struct mlp_weights *mlp)
{
    const size_t n = (size_t)bench->model.config.hidden;

    check_slopes(bench, w, "an up matrix", mlp->up_w, WIDEN * n * n);
    check_slopes(bench, w, "an up bias", mlp->up_b, WIDEN * n);
    check_slopes(bench, w, "a down matrix", mlp->down_w, WIDEN * n * n);
    check_slopes(bench, w, "a down bias", mlp->down_b, n);
    check_slopes(bench, w, "an MLP norm's gain", mlp->norm_g, n);
    check_slopes(bench, w, "an MLP norm's bias", mlp->norm_b, n);
}

static void check_router(struct bench *bench, double *w,
                         const struct moe_weights *moe)
{
    const struct config *config = &bench->model.config;
    const size_t n = (size_t)config->hidden;
    const size_t one = n * (size_t)config_expert(config);

    check_slopes(bench, w, "a router", moe->router_w,
                 n * (size_t)config->experts);
    check_slopes(bench, w, "a router norm's gain", moe->norm_g, n);
    check_slopes(bench, w, "a router norm's bias", moe->norm_b, n);
    if (config->shared_expert) {
        check_slopes(bench, w, "a shared up matrix", moe->shared_up, one);
        check_slopes(bench, w, "a shared down matrix", moe->shared_down, one);
    }
}

static void check_experts(struct bench *bench, double *w,
                          const struct moe_weights *moe)
{
    const struct config *config = &bench->model.config;
    const size_t all = (size_t)(config->experts * config->hidden) *
                       (size_t)config_expert(config);

    check_slopes(bench, w, "the experts' up matrices", moe->up_w, all);
    check_slopes(bench, w, "the experts' down matrices", moe->down_w, all);
}

static void check_part(struct bench *bench, double *w, const struct part *part)
{
    const struct model *model = &bench->model;

    switch (part->kind) {
    case PART_ATTN:
        if (model->config.model == MODEL_MLA) {
            check_mla(bench, w, &model->mla[part->layer]);
        } else {
            check_attn(bench, w, &model->attn[part->layer]);
        }
        break;
    case PART_MAMBA:
        check_mamba(bench, w, &model->mamba[part->layer]);
        break;
    case PART_MLP:
        check_mlp(bench, w, &model->mlp[part->layer]);
        break;
    case PART_MOE_ROUTER:
        check_router(bench, w, &model->moe[part->layer]);
        break;
    case PART_MOE_EXPERTS:
        check_experts(bench, w, &model->moe[part->layer]);
        break;
    default:
        break;
    }
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
       "%s, %d layers, hidden %d, seq %d: the loss is that of double "
       "precision",
       model_name(config->model), config->layers, c, config->seq);
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
    for (int i = 0; i < bench.model.n_parts; i++) {
        check_part(&bench, w, &bench.model.parts[i]);
    }
    free(w);
    tear_down(&bench);
}

static void check_layout(const struct config *config)
{
    const size_t c = (size_t)config->hidden;
    struct model model;
    size_t covered = (2 * VOCAB + (size_t)config->seq + 2) * c;

    model_init(&model, config);
    for (int i = 0; i < model.n_parts; i++) {
        covered += model.parts[i].matrices.count + model.parts[i].vectors.count;
    }
    is_int(covered, model.n, "%s: the parts and the ends cover every weight",
           model_name(config->model));
    is_int(model.n_decay, model.norm_g,
           "the vectors begin where weight decay ends");
    is_int(model_part(&model, config->layers - 1,
                      model.parts[model.n_parts - 1].kind) >= 0,
           1, "a part is found by its layer and kind");
    is_int(model_part(&model, config->layers, PART_ATTN), -1,
           "a part of no layer is not found");
    model_free(&model);
}

/* Two passes with half the scale add up to one. */
static void check_accumulation(const struct config *config)
{
    struct bench bench;
    float *once;
    int last;
    size_t differ = 0;

    set_up(&bench, config);
    run_whole(&bench, 0.5f);
    once = malloc(bench.model.n * sizeof(*once));
    memcpy(once, bench.model.g, bench.model.n * sizeof(*once));
    last = bench.model.n_parts - 1;
    parts_forward(&bench.work, 0, last, bench.x);
    parts_backward(&bench.work, 0, last, HALF_BOTH, bench.x, bench.d_head);
    for (int i = 0; i <= last; i++) {
        const struct range range = bench.model.parts[i].matrices;

        for (size_t j = range.first; j < range.first + range.count; j++) {
            differ += bench.model.g[j] != 2.0f * once[j];
        }
    }
    is_int(differ, 0, "%s: a second backward adds the same gradient again",
           model_name(config->model));
    free(once);
    tear_down(&bench);
}

static void check_touches(const struct config *config)
{
    struct bench bench;

    set_up(&bench, config);
    immediate_check_touches(1);
    run_whole(&bench, 1.0f);
    is_int(immediate_violations(), 0,
           "%s: kernels read and write only the ranges that they declare",
           model_name(config->model));
    immediate_check_touches(0);
    tear_down(&bench);
}

/* The parts one by one give what a run of them gives, from the same places:
 * what a graph of any of them relies on. */
static void check_borders(const struct config *config)
{
    struct bench bench;
    float *once;

    set_up(&bench, config);
    stir(&bench);
    run_whole(&bench, 1.0f);
    once = malloc(bench.model.n * sizeof(*once));
    memcpy(once, bench.model.g, bench.model.n * sizeof(*once));
    run_by_part(&bench, 1.0f);
    ok(memcmp(once, bench.model.g, bench.model.n * sizeof(*once)) == 0,
       "%s: parts run one by one give the same bits",
       model_name(config->model));
    free(once);
    tear_down(&bench);
}

/* Of all weights: whether they are what a joint backward gives, bit for bit. */
static bool halves_agree(const struct config *config, bool delay_wgrad,
                         bool by_part)
{
    struct bench bench;
    float *joint;
    bool agree;

    set_up_delayed(&bench, config, delay_wgrad);
    stir(&bench);
    run_whole(&bench, 1.0f);
    joint = malloc(bench.model.n * sizeof(*joint));
    memcpy(joint, bench.model.g, bench.model.n * sizeof(*joint));
    run_halves(&bench, 1.0f, by_part);
    agree = memcmp(joint, bench.model.g, bench.model.n * sizeof(*joint)) == 0;
    free(joint);
    tear_down(&bench);
    return agree;
}

/* A half that leaves a weight out, or a set that does not keep what the
 * second half reads, shows here. */
static void check_halves(const struct config *config)
{
    const char *name = model_name(config->model);
    struct bench bench;

    ok(halves_agree(config, true, false),
       "%s: the weights' gradients, made last, are the same bits", name);
    ok(halves_agree(config, true, true),
       "%s: made part by part, the first part's first, they are too", name);
    ok(!halves_agree(config, false, false),
       "%s: a set that is not made for delayed gradients does not keep what "
       "they are made of",
       name);

    set_up_delayed(&bench, config, true);
    immediate_check_touches(1);
    run_halves(&bench, 1.0f, false);
    is_int(immediate_violations(), 0,
           "%s: kernels of both halves keep to the ranges that they declare",
           name);
    immediate_check_touches(0);
    tear_down(&bench);
}

static void check_kind(struct config config)
{
    check_layout(&config);
    check_model(&config);
    check_accumulation(&config);
    check_borders(&config);
    check_touches(&config);
    check_halves(&config);
}

static const struct config kinds[] = {
    { .model = MODEL_GPT },
    { .model = MODEL_MOE, .experts = 5, .top_k = 2 },
    { .model = MODEL_MOE, .experts = 3, .top_k = 3, .shared_expert = true },
    { .model = MODEL_MOE, .experts = 4, .top_k = 2, .drop_and_pad = true },
    { .model = MODEL_MOE,
      .experts = 4,
      .top_k = 1,
      .drop_and_pad = true,
      .shared_expert = true },
    { .model = MODEL_MOE, .experts = 6, .top_k = 2, .dropless_host = true },
    { .model = MODEL_MLA },
    { .model = MODEL_MLA, .experts = 3, .top_k = 2, .shared_expert = true },
    { .model = MODEL_MLA, .experts = 4, .top_k = 1, .dense_layers = 1 },
    { .model = MODEL_MOE, .experts = 3, .top_k = 2, .dense_layers = 1 },
    { .model = MODEL_MAMBA, .state = 3 },
    { .model = MODEL_HYBRID, .experts = 4, .top_k = 2, .state = 2 },
    { .model = MODEL_HYBRID,
      .pattern = "EM",
      .experts = 4,
      .top_k = 2,
      .state = 2,
      .shared_expert = true },
    { .model = MODEL_HYBRID, .pattern = "E*-E", .experts = 2, .top_k = 1 },
};

int main(void)
{
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        struct config config = kinds[i];

        config.layers = config.model == MODEL_HYBRID ? 4 : 2;
        config.hidden = 12;
        config.heads = 3;
        config.seq = 7;
        config.batch = 2;
        check_kind(config);
    }
    check_model(&(const struct config){
        .layers = 1, .hidden = 40, .heads = 2, .seq = 70, .batch = 1 });
    check_model(&(const struct config){ .layers = 1,
                                        .hidden = 24,
                                        .heads = 2,
                                        .seq = 70,
                                        .batch = 1,
                                        .model = MODEL_MOE,
                                        .experts = 2,
                                        .top_k = 2 });
    check_model(&(const struct config){ .layers = 1,
                                        .hidden = 20,
                                        .heads = 4,
                                        .seq = 70,
                                        .batch = 1,
                                        .model = MODEL_MLA });
    check_model(&(const struct config){ .layers = 1,
                                        .hidden = 24,
                                        .heads = 1,
                                        .seq = 40,
                                        .batch = 3,
                                        .model = MODEL_MAMBA,
                                        .state = 8 });
    return done_testing();
}
