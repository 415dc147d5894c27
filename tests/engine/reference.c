/*
 * reference.c - see reference.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tests/engine/reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void norm(const double *x, const double *gamma, const double *beta,
                 double *y, int n)
{
    double mean = 0.0, variance = 0.0;

    for (int i = 0; i < n; i++) {
        mean += x[i] / n;
    }
    for (int i = 0; i < n; i++) {
        variance += (x[i] - mean) * (x[i] - mean) / n;
    }
    for (int i = 0; i < n; i++) {
        y[i] = (x[i] - mean) / sqrt(variance + 1e-5) * gamma[i] + beta[i];
    }
}

static void linear(const double *x, const double *w, const double *b, double *y,
                   int in, int out)
{
    for (int o = 0; o < out; o++) {
        y[o] = b == NULL ? 0.0 : b[o];
    }
    for (int i = 0; i < in; i++) {
        for (int o = 0; o < out; o++) {
            y[o] += x[i] * w[i * out + o];
        }
    }
}

/* One token's attention over itself and those before it. */
static void attend(const double *qkv, int t, int c, int heads, double *out)
{
    const int d = c / heads;
    double *score = malloc((size_t)(t + 1) * sizeof(*score));

    for (int h = 0; h < heads; h++) {
        const double *q = qkv + t * 3 * c + h * d;
        double sum = 0.0;

        for (int j = 0; j <= t; j++) {
            const double *k = qkv + j * 3 * c + c + h * d;

            score[j] = 0.0;
            for (int i = 0; i < d; i++) {
                score[j] += q[i] * k[i] / sqrt(d);
            }
            score[j] = exp(score[j]);
            sum += score[j];
        }
        for (int i = 0; i < d; i++) {
            out[h * d + i] = 0.0;
            for (int j = 0; j <= t; j++) {
                out[h * d + i] +=
                    score[j] / sum * qkv[j * 3 * c + 2 * c + h * d + i];
            }
        }
    }
    free(score);
}

static void attn(const struct model *layout, const double *w, int layer,
                 double *x, int seq)
{
    const struct attn_weights *at = &layout->attn[layer];
    const int c = layout->config.hidden;
    double *qkv = malloc((size_t)(seq * 3 * c) * sizeof(*qkv));
    double *row = malloc((size_t)c * sizeof(*row));
    double *add = malloc((size_t)c * sizeof(*add));

    for (int t = 0; t < seq; t++) {
        norm(x + t * c, w + at->norm_g, w + at->norm_b, row, c);
        linear(row, w + at->qkv_w, w + at->qkv_b, qkv + t * 3 * c, c, 3 * c);
    }
    for (int t = 0; t < seq; t++) {
        attend(qkv, t, c, layout->config.heads, row);
        linear(row, w + at->out_w, w + at->out_b, add, c, c);
        for (int i = 0; i < c; i++) {
            x[t * c + i] += add[i];
        }
    }
    free(qkv);
    free(row);
    free(add);
}

static void mlp(const struct model *layout, const double *w, int layer,
                double *x)
{
    const struct mlp_weights *at = &layout->mlp[layer];
    const int c = layout->config.hidden;
    double *row = malloc((size_t)c * sizeof(*row));
    double *wide = malloc((size_t)(WIDEN * c) * sizeof(*wide));

    norm(x, w + at->norm_g, w + at->norm_b, row, c);
    linear(row, w + at->up_w, w + at->up_b, wide, c, WIDEN * c);
    for (int i = 0; i < WIDEN * c; i++) {
        const double u = wide[i];
        const double pi = 3.14159265358979323846;

        wide[i] =
            0.5 * u * (1.0 + tanh(sqrt(2.0 / pi) * (u + 0.044715 * u * u * u)));
    }
    linear(wide, w + at->down_w, w + at->down_b, row, WIDEN * c, c);
    for (int i = 0; i < c; i++) {
        x[i] += row[i];
    }
    free(row);
    free(wide);
}

static double token_loss(const struct model *layout, const double *w,
                         const double *x, int target)
{
    double *row = malloc((size_t)layout->config.hidden * sizeof(*row));
    double logits[VOCAB], sum = 0.0;

    norm(x, w + layout->norm_g, w + layout->norm_b, row, layout->config.hidden);
    linear(row, w + layout->head_w, NULL, logits, layout->config.hidden, VOCAB);
    for (int i = 0; i < VOCAB; i++) {
        sum += exp(logits[i]);
    }
    free(row);
    return log(sum) - logits[target];
}

double reference_loss(const struct model *layout, const double *w,
                      const int *tokens, const int *targets)
{
    const struct config *config = &layout->config;
    const int c = config->hidden;
    const int seq = config->seq;
    double *x = malloc((size_t)(seq * c) * sizeof(*x));
    double loss = 0.0;

    for (int b = 0; b < config->batch; b++) {
        for (int i = 0; i < seq * c; i++) {
            x[i] = w[layout->token_w +
                     (size_t)(tokens[b * seq + i / c] * c + i % c)] +
                   w[layout->position_w + (size_t)i];
        }
        for (int layer = 0; layer < config->layers; layer++) {
            attn(layout, w, layer, x, seq);
            for (int t = 0; t < seq; t++) {
                mlp(layout, w, layer, x + t * c);
            }
        }
        for (int t = 0; t < seq; t++) {
            loss += token_loss(layout, w, x + t * c, targets[b * seq + t]);
        }
    }
    free(x);
    return loss / config_rows(config);
}

double reference_slope(const struct model *layout, double *w, size_t i,
                       const int *tokens, const int *targets)
{
    const double at = w[i];
    const double step = 1e-5;
    double up, down;

    w[i] = at + step;
    up = reference_loss(layout, w, tokens, targets);
    w[i] = at - step;
    down = reference_loss(layout, w, tokens, targets);
    w[i] = at;
    return (up - down) / (2.0 * step);
}
