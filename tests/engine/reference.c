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

/* Columns j and j + rope / 2 turned by the position. */
static void turn(const double *x, int t, int rope, double *y)
{
    const int half = rope / 2;

    for (int j = 0; j < half; j++) {
        const double angle = t / pow(10000.0, (double)j / half);

        y[j] = x[j] * cos(angle) - x[j + half] * sin(angle);
        y[j + half] = x[j + half] * cos(angle) + x[j] * sin(angle);
    }
}

struct mla_token {
    double q[64], kv[64], rope[16]; /* of all heads; the shared key */
};

static void mla_token(const struct model *layout, const double *w, int layer,
                      const double *x, int t, struct mla_token *token)
{
    const struct mla_weights *at = &layout->mla[layer];
    const struct config *config = &layout->config;
    const int c = config->hidden;
    const int q_rank = config_q_rank(config), kv_rank = config_kv_rank(config);
    const int d = config_nope(config), rope = config_rope(config);
    double row[64], low[64], shared[16];

    norm(x, w + at->norm_g, w + at->norm_b, row, c);
    linear(row, w + at->q_down, NULL, low, c, q_rank);
    norm(low, w + at->q_norm_g, w + at->q_norm_b, low, q_rank);
    linear(low, w + at->q_up, NULL, token->q, q_rank, config_qk(config));
    linear(row, w + at->kv_down, NULL, low, c, kv_rank);
    norm(low, w + at->kv_norm_g, w + at->kv_norm_b, low, kv_rank);
    linear(low, w + at->kv_up, NULL, token->kv, kv_rank, 2 * c);
    linear(row, w + at->rope_w, NULL, shared, c, rope);
    turn(shared, t, rope, token->rope);
    for (int h = 0; h < config->heads; h++) {
        double *own = token->q + h * (d + rope) + d;

        memcpy(shared, own, (size_t)rope * sizeof(*own));
        turn(shared, t, rope, own);
    }
}

/* A head's query at t against its key at j. */
static double mla_score(const struct config *config,
                        const struct mla_token *tokens, int t, int j, int h)
{
    const int d = config_nope(config), rope = config_rope(config);
    const double *q = tokens[t].q + h * (d + rope);
    double score = 0.0;

    for (int i = 0; i < d; i++) {
        score += q[i] * tokens[j].kv[h * 2 * d + i];
    }
    for (int i = 0; i < rope; i++) {
        score += q[d + i] * tokens[j].rope[i];
    }
    return exp(score / sqrt(d + rope));
}

static void mla(const struct model *layout, const double *w, int layer,
                double *x, int seq)
{
    const struct config *config = &layout->config;
    const int c = config->hidden, d = config_nope(config);
    struct mla_token *tokens = malloc((size_t)seq * sizeof(*tokens));
    double context[64], add[64];

    for (int t = 0; t < seq; t++) {
        mla_token(layout, w, layer, x + t * c, t, &tokens[t]);
    }
    for (int t = 0; t < seq; t++) {
        for (int h = 0; h < config->heads; h++) {
            double sum = 0.0;

            memset(context + h * d, 0, (size_t)d * sizeof(*context));
            for (int j = 0; j <= t; j++) {
                const double score = mla_score(config, tokens, t, j, h);

                sum += score;
                for (int i = 0; i < d; i++) {
                    context[h * d + i] +=
                        score * tokens[j].kv[h * 2 * d + d + i];
                }
            }
            for (int i = 0; i < d; i++) {
                context[h * d + i] /= sum;
            }
        }
        linear(context, w + layout->mla[layer].out_w, NULL, add, c, c);
        for (int i = 0; i < c; i++) {
            x[t * c + i] += add[i];
        }
    }
    free(tokens);
}

static double silu(double x)
{
    return x / (1.0 + exp(-x));
}

/* A step of every channel: u is what the convolution made. */
static void mamba_step(const struct model *layout, const double *w, int layer,
                       const double *u, const double *gate, double *h,
                       double *gated)
{
    const struct mamba_weights *at = &layout->mamba[layer];
    const struct config *config = &layout->config;
    const int inner = config_inner(config), state = config->state;
    const int rank = config_dt_rank(config);
    double low[64], dt[256], bc[64];

    linear(u, w + at->dt_down, NULL, low, inner, rank);
    linear(low, w + at->dt_up, w + at->dt_b, dt, rank, inner);
    linear(u, w + at->bc_w, NULL, bc, inner, 2 * state);
    for (int i = 0; i < inner; i++) {
        const double step = log(1.0 + exp(dt[i]));
        double y = w[at->skip + (size_t)i] * u[i];

        for (int s = 0; s < state; s++) {
            const double a = -exp(w[at->decay + (size_t)(s * inner + i)]);
            double *here = &h[i * state + s];

            *here = exp(step * a) * *here + step * bc[s] * u[i];
            y += bc[state + s] * *here;
        }
        gated[i] = y * silu(gate[i]);
    }
}

static void mamba(const struct model *layout, const double *w, int layer,
                  double *x, int seq)
{
    const struct mamba_weights *at = &layout->mamba[layer];
    const int c = layout->config.hidden, inner = config_inner(&layout->config);
    double *xz = malloc((size_t)(seq * 2 * inner) * sizeof(*xz));
    double *h = calloc((size_t)(inner * layout->config.state), sizeof(*h));
    double row[256], u[256];

    for (int t = 0; t < seq; t++) {
        norm(x + t * c, w + at->norm_g, w + at->norm_b, row, c);
        linear(row, w + at->in_w, NULL, xz + t * 2 * inner, c, 2 * inner);
    }
    for (int t = 0; t < seq; t++) {
        for (int i = 0; i < inner; i++) {
            u[i] = w[at->conv_b + (size_t)i];
            for (int j = 0; j < TAPS; j++) {
                const int from = t - TAPS + 1 + j;

                if (from >= 0) {
                    u[i] += w[at->conv_w + (size_t)(j * inner + i)] *
                            xz[from * 2 * inner + i];
                }
            }
            u[i] = silu(u[i]);
        }
        mamba_step(layout, w, layer, u, xz + (t * 2 + 1) * inner, h, row);
        linear(row, w + at->out_w, NULL, u, inner, c);
        for (int i = 0; i < c; i++) {
            x[t * c + i] += u[i];
        }
    }
    free(xz);
    free(h);
}

static double gelu(double u)
{
    const double pi = 3.14159265358979323846;

    return 0.5 * u * (1.0 + tanh(sqrt(2.0 / pi) * (u + 0.044715 * u * u * u)));
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
        wide[i] = gelu(wide[i]);
    }
    linear(wide, w + at->down_w, w + at->down_b, row, WIDEN * c, c);
    for (int i = 0; i < c; i++) {
        x[i] += row[i];
    }
    free(row);
    free(wide);
}

/* y += p * down(gelu(up(x))) */
static void expert(const double *x, const double *up, const double *down,
                   double p, double *y, int c, int inner)
{
    double *wide = malloc((size_t)inner * sizeof(*wide));
    double *row = malloc((size_t)c * sizeof(*row));

    linear(x, up, NULL, wide, c, inner);
    for (int i = 0; i < inner; i++) {
        wide[i] = gelu(wide[i]);
    }
    linear(wide, down, NULL, row, inner, c);
    for (int i = 0; i < c; i++) {
        y[i] += p * row[i];
    }
    free(wide);
    free(row);
}

static int best_of(const double *scores, const bool *taken, int n)
{
    int best = -1;

    for (int e = 0; e < n; e++) {
        if (!taken[e] && (best < 0 || scores[e] > scores[best])) {
            best = e;
        }
    }
    return best;
}

/* room[e]: how many more tokens that expert takes. */
static void moe_token(const struct model *layout, const double *w, int layer,
                      double *x, int *room)
{
    const struct moe_weights *at = &layout->moe[layer];
    const struct config *config = &layout->config;
    const int c = config->hidden, inner = config_expert(config);
    const int experts = config->experts, one = c * inner;
    double *row = malloc((size_t)c * sizeof(*row));
    double scores[64], sum = 0.0;
    bool taken[64] = { false };

    norm(x, w + at->norm_g, w + at->norm_b, row, c);
    linear(row, w + at->router_w, NULL, scores, c, experts);
    for (int e = 0; e < experts; e++) {
        scores[e] = exp(scores[e]);
        sum += scores[e];
    }
    for (int j = 0; j < config->top_k; j++) {
        const int e = best_of(scores, taken, experts);

        taken[e] = true;
        if (room[e]-- > 0) {
            expert(row, w + at->up_w + e * one, w + at->down_w + e * one,
                   scores[e] / sum, x, c, inner);
        }
    }
    if (config->shared_expert) {
        expert(row, w + at->shared_up, w + at->shared_down, 1.0, x, c, inner);
    }
    free(row);
}

static void moe(const struct model *layout, const double *w, int layer,
                double *x)
{
    const struct config *config = &layout->config;
    const int rows = config_rows(config);
    int room[64];

    for (int e = 0; e < config->experts; e++) {
        room[e] = config->drop_and_pad ? config_capacity(config) : rows;
    }
    for (int t = 0; t < rows; t++) {
        moe_token(layout, w, layer, x + t * config->hidden, room);
    }
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

/* x is every row of the microbatch. */
static void run_part(const struct model *layout, const double *w,
                     const struct part *part, double *x)
{
    const struct config *config = &layout->config;
    const int c = config->hidden;

    switch (part->kind) {
    case PART_ATTN:
        for (int b = 0; b < config->batch; b++) {
            (config->model == MODEL_MLA ? mla : attn)(
                layout, w, part->layer, x + b * config->seq * c, config->seq);
        }
        break;
    case PART_MAMBA:
        for (int b = 0; b < config->batch; b++) {
            mamba(layout, w, part->layer, x + b * config->seq * c, config->seq);
        }
        break;
    case PART_MLP:
        for (int t = 0; t < config_rows(config); t++) {
            mlp(layout, w, part->layer, x + t * c);
        }
        break;
    case PART_MOE_ROUTER: /* and the parts after it */
        moe(layout, w, part->layer, x);
        break;
    default:
        break;
    }
}

double reference_loss(const struct model *layout, const double *w,
                      const int *tokens, const int *targets)
{
    const struct config *config = &layout->config;
    const int c = config->hidden;
    const int seq = config->seq;
    const int rows = config_rows(config);
    double *x = malloc((size_t)(rows * c) * sizeof(*x));
    double loss = 0.0;

    for (int i = 0; i < rows * c; i++) {
        x[i] = w[layout->token_w + (size_t)(tokens[i / c] * c + i % c)] +
               w[layout->position_w + (size_t)(i % (seq * c))];
    }
    for (int i = 0; i < layout->n_parts; i++) {
        run_part(layout, w, &layout->parts[i], x);
    }
    for (int t = 0; t < rows; t++) {
        loss += token_loss(layout, w, x + t * c, targets[t]);
    }
    free(x);
    return loss / rows;
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
