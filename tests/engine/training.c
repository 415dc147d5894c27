/*
 * training.c - a whole training run against one in double precision.
 *
 * The reference trains a tiny model by differences of its loss: every slope,
 * every microbatch, every step.  The engine's eager losses must follow.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "step/train.h"
#include "tap/tap.h"
#include "tests/engine/immediate.h"
#include "tests/engine/reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct options options = {
    .steps = 4,
    .counts = { 2, 1 },
    .n_counts = 2,
    .in_flight = 2,
    .delay = 1,
    .streams = 1,
    .lr = 0.02,
    .warmup = 2,
};

static const char words[] = "to be or not to be that is the question";

struct reference {
    struct model layout;
    double *w, *g, *m, *v;
};

/* One step of AdamW, from its definition. */
static void update(struct reference *ref, int step)
{
    const double rate =
        step < options.warmup ? options.lr * step / options.warmup : options.lr;

    for (size_t i = 0; i < ref->layout.n; i++) {
        const double g = ref->g[i];
        const double decay = i < ref->layout.n_decay ? 0.1 * ref->w[i] : 0.0;

        ref->m[i] = 0.9 * ref->m[i] + 0.1 * g;
        ref->v[i] = 0.99 * ref->v[i] + 0.01 * g * g;
        ref->w[i] -=
            rate * (ref->m[i] / (1.0 - pow(0.9, step)) /
                        (sqrt(ref->v[i] / (1.0 - pow(0.99, step))) + 1e-8) +
                    decay);
    }
}

/* Adds the slopes of one microbatch; returns its loss. */
static double accumulate(struct reference *ref, const struct text *text,
                         int step, int microbatch, int count)
{
    int tokens[6], targets[6];

    text_sample(text, &options.config, step, microbatch, tokens, targets);
    for (size_t i = 0; i < ref->layout.n; i++) {
        ref->g[i] +=
            reference_slope(&ref->layout, ref->w, i, tokens, targets) / count;
    }
    return reference_loss(&ref->layout, ref->w, tokens, targets) / count;
}

static void reference_train(const struct text *text, double *losses)
{
    struct reference ref;
    float *first;

    model_init(&ref.layout, &options.config);
    first = malloc(ref.layout.n * sizeof(*first));
    ref.w = malloc(ref.layout.n * sizeof(double));
    ref.g = malloc(ref.layout.n * sizeof(double));
    ref.m = calloc(ref.layout.n, sizeof(double));
    ref.v = calloc(ref.layout.n, sizeof(double));
    model_first_weights(&ref.layout, first);
    for (size_t i = 0; i < ref.layout.n; i++) {
        ref.w[i] = (double)first[i];
    }

    for (int step = 0; step < options.steps; step++) {
        const int count = options_count(&options, step);

        memset(ref.g, 0, ref.layout.n * sizeof(double));
        losses[step] = 0.0;
        for (int i = 0; i < count; i++) {
            losses[step] += accumulate(&ref, text, step, i, count);
        }
        update(&ref, step + 1);
    }
    free(first);
    free(ref.w);
    free(ref.g);
    free(ref.m);
    free(ref.v);
    model_free(&ref.layout);
}

static void check_training(const char *what, struct config config)
{
    const struct text text = { (unsigned char *)(uintptr_t)words,
                               sizeof(words) - 1 };
    struct device dev = { 0 };
    struct result result, delayed;
    double expected[4];
    char error[512];

    options.config = config;
    options.config.layers = 1;
    options.config.hidden = 4;
    options.config.heads = 2;
    options.config.seq = 3;
    options.config.batch = 2;
    options.config.seed = 7;
    immediate_driver(&dev.drv);
    device_open_driver(&dev, true);
    is_int(train(&options, &dev, &text, MODE_EAGER, NULL, &result, error,
                 sizeof(error)),
           0, "%s: an eager run of %d steps ends well", what, options.steps);

    options.delay_wgrad = true;
    is_int(train(&options, &dev, &text, MODE_EAGER, NULL, &delayed, error,
                 sizeof(error)),
           0, "%s: a run with delayed weights' gradients ends well", what);
    options.delay_wgrad = false;
    ok(delayed.weights_hash == result.weights_hash &&
           memcmp(delayed.loss, result.loss, sizeof(expected)) == 0,
       "%s: it ends with the same bits", what);
    result_free(&delayed);

    reference_train(&text, expected);
    for (int i = 0; i < options.steps; i++) {
        ok(fabs(result.loss[i] - expected[i]) < 1e-4,
           "%s: the loss of step %d is that of double precision", what, i + 1);
        diag("%.9g, in double precision %.9g", result.loss[i], expected[i]);
    }
    ok(result.loss[3] < result.loss[0] - 0.05, "%s: the loss falls", what);

    result_free(&result);
    device_close(&dev);
}

int main(void)
{
    check_training("gpt", (struct config){ .model = MODEL_GPT });
    check_training("moe", (struct config){ .model = MODEL_MOE,
                                           .experts = 3,
                                           .top_k = 2,
                                           .shared_expert = true });
    check_training("moe, drop and pad",
                   (struct config){ .model = MODEL_MOE,
                                    .experts = 3,
                                    .top_k = 1,
                                    .drop_and_pad = true });
    check_training("mla", (struct config){ .model = MODEL_MLA });
    check_training("mamba",
                   (struct config){ .model = MODEL_MAMBA, .state = 2 });
    return done_testing();
}
