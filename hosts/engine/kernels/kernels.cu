/*
 * kernels.cu - every kernel of the engine, in the dialect of dialect.h.
 *
 * nvcc makes PTX of it; kernels_cpu.c includes it as C.  All float32, no
 * atomics, every sum in one fixed order: a launch with the same arguments
 * gives the same bits.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "kernels.h"

#define GLOBAL_INDEX(threads) (BLOCK_X * (threads) + thread)

KERNEL(embed_forward, embed_args)
{
    PHASE(embed_forward_threads)
    {
        const int i = GLOBAL_INDEX(embed_forward_threads);

        if (i < k.rows * k.cols) {
            const int row = i / k.cols;
            const int col = i % k.cols;
            const int position =
                k.positions != NULL ? k.positions[row] : row % k.seq;

            k.out[i] = k.token_w[k.tokens[row] * k.cols + col] +
                       k.position_w[position * k.cols + col];
        }
    }
}

/* BLOCK_Y is a token of the vocabulary.  It adds up its own rows in their
 * order. */
KERNEL(embed_token_backward, embed_token_args)
{
    REGISTERS(float, sum, 1, embed_token_backward_threads);
    const int first = BLOCK_X * embed_token_backward_threads;

    PHASE(embed_token_backward_threads)
    {
        MINE(sum)[0] = 0.0f;
    }
    for (int row = 0; row < k.rows; row++) {
        if (k.tokens[row] != BLOCK_Y) {
            continue;
        }
        PHASE(embed_token_backward_threads)
        {
            if (first + thread < k.cols) {
                MINE(sum)[0] += k.dx[row * k.cols + first + thread];
            }
        }
    }
    PHASE(embed_token_backward_threads)
    {
        if (first + thread < k.cols) {
            k.dw[BLOCK_Y * k.cols + first + thread] += MINE(sum)[0];
        }
    }
}

KERNEL(embed_position_backward, embed_position_args)
{
    PHASE(embed_position_backward_threads)
    {
        const int i = GLOBAL_INDEX(embed_position_backward_threads);
        const int n = k.seq * k.cols;

        if (i < n) {
            float sum = 0.0f;

            for (int b = 0; b < k.batch; b++) {
                sum += k.dx[b * n + i];
            }
            k.dw[i] += sum;
        }
    }
}

KERNEL(layernorm_forward, layernorm_args)
{
    SHARED(float, fold, [ROW_THREADS]);
    REGISTERS(float, mean, 1, ROW_THREADS);
    REGISTERS(float, rstd, 1, ROW_THREADS);

    PHASE(ROW_THREADS)
    {
        const int row = ROW_OF(thread);
        float sum = 0.0f;

        if (row < k.rows) {
            for (int c = ROW_LANE(thread); c < k.cols; c += ROW_LANES) {
                sum += k.x[row * k.cols + c];
            }
        }
        fold[thread] = sum;
    }
    ROW_TREE(fold, FOLD_SUM);
    PHASE(ROW_THREADS)
    {
        MINE(mean)[0] = fold[ROW_FIRST(thread)] / (float)k.cols;
    }
    BARRIER();
    PHASE(ROW_THREADS)
    {
        const int row = ROW_OF(thread);
        float sum = 0.0f;

        if (row < k.rows) {
            for (int c = ROW_LANE(thread); c < k.cols; c += ROW_LANES) {
                const float d = k.x[row * k.cols + c] - MINE(mean)[0];

                sum += d * d;
            }
        }
        fold[thread] = sum;
    }
    ROW_TREE(fold, FOLD_SUM);
    PHASE(ROW_THREADS)
    {
        const int row = ROW_OF(thread);
        const float variance = fold[ROW_FIRST(thread)] / (float)k.cols;

        MINE(rstd)[0] = 1.0f / sqrtf(variance + 1e-5f);
        if (row < k.rows) {
            if (ROW_LANE(thread) == 0) {
                k.mean[row] = MINE(mean)[0];
                k.rstd[row] = MINE(rstd)[0];
            }
            for (int c = ROW_LANE(thread); c < k.cols; c += ROW_LANES) {
                const float d = k.x[row * k.cols + c] - MINE(mean)[0];

                k.y[row * k.cols + c] =
                    d * MINE(rstd)[0] * k.gamma[c] + k.beta[c];
            }
        }
    }
}

KERNEL(layernorm_backward, layernorm_backward_args)
{
    SHARED(float, fold_g, [ROW_THREADS]);
    SHARED(float, fold_gx, [ROW_THREADS]);

    PHASE(ROW_THREADS)
    {
        const int row = ROW_OF(thread);
        float g = 0.0f;
        float gx = 0.0f;

        if (row < k.rows) {
            for (int c = ROW_LANE(thread); c < k.cols; c += ROW_LANES) {
                const int i = row * k.cols + c;
                const float d = k.dy[i] * k.gamma[c];

                g += d;
                gx += d * (k.x[i] - k.mean[row]) * k.rstd[row];
            }
        }
        fold_g[thread] = g;
        fold_gx[thread] = gx;
    }
    ROW_TREE(fold_g, FOLD_SUM);
    ROW_TREE(fold_gx, FOLD_SUM);
    PHASE(ROW_THREADS)
    {
        const int row = ROW_OF(thread);

        if (row < k.rows) {
            const float g = fold_g[ROW_FIRST(thread)] / (float)k.cols;
            const float gx = fold_gx[ROW_FIRST(thread)] / (float)k.cols;

            for (int c = ROW_LANE(thread); c < k.cols; c += ROW_LANES) {
                const int i = row * k.cols + c;
                const float d = k.dy[i] * k.gamma[c];
                const float hat = (k.x[i] - k.mean[row]) * k.rstd[row];
                float value = k.rstd[row] * (d - g - hat * gx);

                if (k.add != NULL) {
                    value += k.add[i];
                }
                k.dx[i] = value;
            }
        }
    }
}

KERNEL(layernorm_param_backward, layernorm_param_args)
{
    SHARED(float, fold_g, [COLUMN_THREADS]);
    SHARED(float, fold_b, [COLUMN_THREADS]);

    PHASE(COLUMN_THREADS)
    {
        const int col = BLOCK_X * COLUMN_LANES + thread % COLUMN_LANES;
        float g = 0.0f;
        float b = 0.0f;

        if (col < k.cols) {
            for (int row = thread / COLUMN_LANES; row < k.rows;
                 row += COLUMN_ROWS) {
                const float dy = k.dy[row * k.cols + col];
                const float x = k.x[row * k.cols + col];

                g += dy * (x - k.mean[row]) * k.rstd[row];
                b += dy;
            }
        }
        fold_g[thread] = g;
        fold_b[thread] = b;
    }
    BARRIER();
    PHASE(COLUMN_THREADS)
    {
        const int col = BLOCK_X * COLUMN_LANES + thread;

        if (thread < COLUMN_LANES && col < k.cols) {
            float g = 0.0f;
            float b = 0.0f;

            for (int i = 0; i < COLUMN_ROWS; i++) {
                g += fold_g[i * COLUMN_LANES + thread];
                b += fold_b[i * COLUMN_LANES + thread];
            }
            k.dgamma[col] += g;
            k.dbeta[col] += b;
        }
    }
}

KERNEL(column_sum, column_sum_args)
{
    SHARED(float, fold, [COLUMN_THREADS]);

    PHASE(COLUMN_THREADS)
    {
        const int col = BLOCK_X * COLUMN_LANES + thread % COLUMN_LANES;
        float sum = 0.0f;

        if (col < k.cols) {
            for (int row = thread / COLUMN_LANES; row < k.rows;
                 row += COLUMN_ROWS) {
                sum += k.x[row * k.cols + col];
            }
        }
        fold[thread] = sum;
    }
    BARRIER();
    PHASE(COLUMN_THREADS)
    {
        const int col = BLOCK_X * COLUMN_LANES + thread;

        if (thread < COLUMN_LANES && col < k.cols) {
            float sum = 0.0f;

            for (int i = 0; i < COLUMN_ROWS; i++) {
                sum += fold[i * COLUMN_LANES + thread];
            }
            k.sum[col] += sum;
        }
    }
}

#define GEMM_NAME gemm_nn_32
#define GEMM_TILE 32
#define GEMM_ROWS 1
#define GEMM_COLS 4
#define GEMM_DEPTH 64
#define GEMM_A_TRANS 0
#define GEMM_B_TRANS 0
#include "gemm.h"

#define GEMM_NAME gemm_nn_64
#define GEMM_TILE 64
#define GEMM_ROWS 4
#define GEMM_COLS 4
#define GEMM_DEPTH 16
#define GEMM_A_TRANS 0
#define GEMM_B_TRANS 0
#include "gemm.h"

#define GEMM_NAME gemm_nn_128
#define GEMM_TILE 128
#define GEMM_ROWS 8
#define GEMM_COLS 8
#define GEMM_DEPTH 8
#define GEMM_A_TRANS 0
#define GEMM_B_TRANS 0
#include "gemm.h"

#define GEMM_NAME gemm_nt_32
#define GEMM_TILE 32
#define GEMM_ROWS 1
#define GEMM_COLS 4
#define GEMM_DEPTH 64
#define GEMM_A_TRANS 0
#define GEMM_B_TRANS 1
#include "gemm.h"

#define GEMM_NAME gemm_nt_64
#define GEMM_TILE 64
#define GEMM_ROWS 4
#define GEMM_COLS 4
#define GEMM_DEPTH 16
#define GEMM_A_TRANS 0
#define GEMM_B_TRANS 1
#include "gemm.h"

#define GEMM_NAME gemm_nt_128
#define GEMM_TILE 128
#define GEMM_ROWS 8
#define GEMM_COLS 8
#define GEMM_DEPTH 8
#define GEMM_A_TRANS 0
#define GEMM_B_TRANS 1
#include "gemm.h"

#define GEMM_NAME gemm_tn_32
#define GEMM_TILE 32
#define GEMM_ROWS 1
#define GEMM_COLS 4
#define GEMM_DEPTH 64
#define GEMM_A_TRANS 1
#define GEMM_B_TRANS 0
#include "gemm.h"

#define GEMM_NAME gemm_tn_64
#define GEMM_TILE 64
#define GEMM_ROWS 4
#define GEMM_COLS 4
#define GEMM_DEPTH 16
#define GEMM_A_TRANS 1
#define GEMM_B_TRANS 0
#include "gemm.h"

#define GEMM_NAME gemm_tn_128
#define GEMM_TILE 128
#define GEMM_ROWS 8
#define GEMM_COLS 8
#define GEMM_DEPTH 8
#define GEMM_A_TRANS 1
#define GEMM_B_TRANS 0
#include "gemm.h"

#define GEMM_GROUPED

#define GEMM_NAME gemm_nn_group
#define GEMM_TILE 64
#define GEMM_ROWS 4
#define GEMM_COLS 4
#define GEMM_DEPTH 16
#define GEMM_A_TRANS 0
#define GEMM_B_TRANS 0
#include "gemm.h"

#define GEMM_NAME gemm_nt_group
#define GEMM_TILE 64
#define GEMM_ROWS 4
#define GEMM_COLS 4
#define GEMM_DEPTH 16
#define GEMM_A_TRANS 0
#define GEMM_B_TRANS 1
#include "gemm.h"

#define GEMM_NAME gemm_tn_group
#define GEMM_TILE 64
#define GEMM_ROWS 4
#define GEMM_COLS 4
#define GEMM_DEPTH 16
#define GEMM_A_TRANS 1
#define GEMM_B_TRANS 0
#include "gemm.h"

#undef GEMM_GROUPED

/* The first row of a token's document, or of its sequence if that is one
 * document. */
#define START(row) \
    (k.starts != NULL ? k.starts[row] : (row) - (row) % k.seq)
/* The token of a row of scores.  Rows are those of every head of one sequence,
 * and then those of the next one. */
#define TOKEN_OF(row) \
    ((row) / (k.seq * k.heads) * k.seq + (row) % k.seq)
#define FIRST_SCORE(row) \
    (k.starts != NULL ? k.starts[TOKEN_OF(row)] - \
                            TOKEN_OF(row) / k.seq * k.seq \
                      : 0)

KERNEL(document_starts, document_args)
{
    PHASE(document_starts_threads)
    {
        const int row = GLOBAL_INDEX(document_starts_threads);

        if (row < k.rows) {
            int start = 0;

            for (int i = 0; i < k.n && k.offsets[i] <= row; i++) {
                start = k.offsets[i];
            }
            k.starts[row] = start;
        }
    }
}

KERNEL(softmax_forward, softmax_args)
{
    SHARED(float, fold, [ROW_THREADS]);
    REGISTERS(float, top, 1, ROW_THREADS);

    PHASE(ROW_THREADS)
    {
        const int row = ROW_OF(thread);
        float top_here = -INFINITY;

        if (row < k.rows) {
            for (int c = FIRST_SCORE(row) + ROW_LANE(thread); c <= row % k.seq;
                 c += ROW_LANES) {
                top_here = FOLD_MAX(
                    top_here, k.s[(size_t)row * (size_t)k.seq + (size_t)c]);
            }
        }
        fold[thread] = top_here;
    }
    ROW_TREE(fold, FOLD_MAX);
    PHASE(ROW_THREADS)
    {
        MINE(top)[0] = fold[ROW_FIRST(thread)];
    }
    BARRIER();
    PHASE(ROW_THREADS)
    {
        const int row = ROW_OF(thread);
        float sum = 0.0f;

        if (row < k.rows) {
            for (int c = ROW_LANE(thread); c < k.seq; c += ROW_LANES) {
                const size_t i = (size_t)row * (size_t)k.seq + (size_t)c;
                float value = 0.0f;

                if (c >= FIRST_SCORE(row) && c <= row % k.seq) {
                    value = expf(k.s[i] - MINE(top)[0]);
                }
                k.s[i] = value;
                sum += value;
            }
        }
        fold[thread] = sum;
    }
    ROW_TREE(fold, FOLD_SUM);
    PHASE(ROW_THREADS)
    {
        const int row = ROW_OF(thread);

        if (row < k.rows) {
            const float scale = 1.0f / fold[ROW_FIRST(thread)];

            for (int c = ROW_LANE(thread); c < k.seq; c += ROW_LANES) {
                k.s[(size_t)row * (size_t)k.seq + (size_t)c] *= scale;
            }
        }
    }
}

KERNEL(softmax_backward, softmax_backward_args)
{
    SHARED(float, fold, [ROW_THREADS]);

    PHASE(ROW_THREADS)
    {
        const int row = ROW_OF(thread);
        float sum = 0.0f;

        if (row < k.rows) {
            for (int c = ROW_LANE(thread); c <= row % k.seq; c += ROW_LANES) {
                const size_t i = (size_t)row * (size_t)k.seq + (size_t)c;

                sum += k.p[i] * k.dp[i];
            }
        }
        fold[thread] = sum;
    }
    ROW_TREE(fold, FOLD_SUM);
    PHASE(ROW_THREADS)
    {
        const int row = ROW_OF(thread);

        if (row < k.rows) {
            const float sum = fold[ROW_FIRST(thread)];

            for (int c = ROW_LANE(thread); c < k.seq; c += ROW_LANES) {
                const size_t i = (size_t)row * (size_t)k.seq + (size_t)c;
                float value = 0.0f;

                if (c <= row % k.seq) {
                    value = k.scale * k.p[i] * (k.dp[i] - sum);
                }
                k.dp[i] = value;
            }
        }
    }
}

/* GELU by its tanh form; GELU_TURN is sqrt(2 / pi). */
#define GELU_TURN 0.7978845608028654f
#define GELU_CUBE 0.044715f

KERNEL(gelu_forward, gelu_args)
{
    PHASE(gelu_forward_threads)
    {
        const int i = GLOBAL_INDEX(gelu_forward_threads);

        if (i < (k.rows != NULL ? *k.rows * k.cols : k.n)) {
            const float x = k.x[i];
            const float t = tanhf(GELU_TURN * (x + GELU_CUBE * x * x * x));

            k.y[i] = 0.5f * x * (1.0f + t);
        }
    }
}

KERNEL(gelu_backward, gelu_backward_args)
{
    PHASE(gelu_backward_threads)
    {
        const int i = GLOBAL_INDEX(gelu_backward_threads);

        if (i < (k.rows != NULL ? *k.rows * k.cols : k.n)) {
            const float x = k.x[i];
            const float t = tanhf(GELU_TURN * (x + GELU_CUBE * x * x * x));
            const float dt =
                (1.0f - t * t) * GELU_TURN * (1.0f + 3.0f * GELU_CUBE * x * x);

            k.d[i] *= 0.5f * (1.0f + t) + 0.5f * x * dt;
        }
    }
}

KERNEL(cross_entropy, cross_entropy_args)
{
    SHARED(float, fold, [ROW_THREADS]);
    REGISTERS(float, top, 1, ROW_THREADS);

    PHASE(ROW_THREADS)
    {
        const int row = ROW_OF(thread);
        float top_here = -INFINITY;

        if (row < k.rows) {
            for (int c = ROW_LANE(thread); c < k.vocab; c += ROW_LANES) {
                top_here = FOLD_MAX(top_here, k.logits[row * k.vocab + c]);
            }
        }
        fold[thread] = top_here;
    }
    ROW_TREE(fold, FOLD_MAX);
    PHASE(ROW_THREADS)
    {
        MINE(top)[0] = fold[ROW_FIRST(thread)];
    }
    BARRIER();
    PHASE(ROW_THREADS)
    {
        const int row = ROW_OF(thread);
        float sum = 0.0f;

        if (row < k.rows) {
            for (int c = ROW_LANE(thread); c < k.vocab; c += ROW_LANES) {
                sum += expf(k.logits[row * k.vocab + c] - MINE(top)[0]);
            }
        }
        fold[thread] = sum;
    }
    ROW_TREE(fold, FOLD_SUM);
    PHASE(ROW_THREADS)
    {
        const int row = ROW_OF(thread);

        if (row < k.rows && ROW_LANE(thread) == 0) {
            k.losses[row] =
                k.targets[row] < 0
                    ? 0.0f
                    : MINE(top)[0] + logf(fold[thread]) -
                          k.logits[row * k.vocab + k.targets[row]];
        }
    }
    BARRIER();
    PHASE(ROW_THREADS)
    {
        const int row = ROW_OF(thread);

        if (row < k.rows) {
            const float share = *k.scale / fold[ROW_FIRST(thread)];

            for (int c = ROW_LANE(thread); c < k.vocab; c += ROW_LANES) {
                const int i = row * k.vocab + c;
                float value = expf(k.logits[i] - MINE(top)[0]) * share;

                if (c == k.targets[row]) {
                    value -= *k.scale;
                }
                k.logits[i] = k.targets[row] < 0 ? 0.0f : value;
            }
        }
    }
}

KERNEL(mean, mean_args)
{
    SHARED(float, fold, [ROW_LANES]);

    PHASE(mean_threads)
    {
        float sum = 0.0f;

        for (int i = thread; i < k.n; i += mean_threads) {
            sum += k.x[i];
        }
        fold[thread] = sum;
    }
    BARRIER();
    PHASE(mean_threads)
    {
        if (thread == 0) {
            float sum = 0.0f;

            for (int i = 0; i < mean_threads; i++) {
                sum += fold[i];
            }
            k.mean[0] = sum / (float)k.n;
        }
    }
}

KERNEL(optimizer_begin, optimizer_begin_args)
{
    PHASE(optimizer_begin_threads)
    {
        struct optimizer_state next = *k.state;

        if (next.step == 0) {
            next.power1 = 1.0f;
            next.power2 = 1.0f;
        }
        next.step += 1;
        next.power1 *= k.beta1;
        next.power2 *= k.beta2;
        next.lr = k.lr;
        if (next.step < k.warmup) {
            next.lr = k.lr * (float)next.step / (float)k.warmup;
        }
        if (thread == 0) {
            *k.state = next;
        }
    }
}

KERNEL(adamw, adamw_args)
{
    PHASE(adamw_threads)
    {
        const int i = GLOBAL_INDEX(adamw_threads);

        if (i < k.n) {
            const float g = k.g[i];
            const float m = k.beta1 * k.m[i] + (1.0f - k.beta1) * g;
            const float v = k.beta2 * k.v[i] + (1.0f - k.beta2) * g * g;
            const float m_hat = m / (1.0f - k.state->power1);
            const float v_hat = v / (1.0f - k.state->power2);
            const float decay = i < k.n_decay ? k.decay : 0.0f;

            k.m[i] = m;
            k.v[i] = v;
            k.w[i] -= k.state->lr *
                      (m_hat / (sqrtf(v_hat) + k.epsilon) + decay * k.w[i]);
        }
    }
}

#include "kernels_cp.h"
#include "kernels_mamba.h"
#include "kernels_mla.h"
#include "kernels_moe.h"
