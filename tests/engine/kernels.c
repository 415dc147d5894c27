/*
 * kernels.c - every kernel against double precision, at awkward sizes.
 *
 * The kernels run as C here; the GPU runs the same source.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "model/parts.h"
#include "tap/tap.h"
#include "tests/engine/immediate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct device dev;
static struct queue queue = { .dev = &dev };

/* Device memory filled with numbers between -1 and 1. */
static float *floats(size_t n)
{
    static unsigned state = 1;
    float *x = device_alloc(&dev, n * sizeof(*x));

    for (size_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        x[i] = (float)(state >> 8) / 8388608.0f - 1.0f;
    }
    return x;
}

static int *tokens_below(size_t n, int below)
{
    int *x = device_alloc(&dev, n * sizeof(*x));

    for (size_t i = 0; i < n; i++) {
        x[i] = (int)(i * 7 + i / 3) % below;
    }
    return x;
}

static float *copy_of(const float *x, size_t n)
{
    float *copy = malloc(n * sizeof(*copy));

    memcpy(copy, x, n * sizeof(*copy));
    return copy;
}

/* The largest error so far, and its reset. */
static double worst;

static void compare(double expected, float actual)
{
    const double error = fabs(expected - (double)actual);

    if (!(error <= worst)) { /* NaN counts */
        worst = error;
    }
}

static void check(double bound, const char *what)
{
    ok(worst <= bound, "%s within %.0e of double precision", what, bound);
    if (!(worst <= bound)) {
        diag("error %.3g", worst);
    }
    worst = 0.0;
}

/* ---- matrix products ---------------------------------------------------- */

struct product {
    enum gemm_form form;
    enum engine_kernel kernel;
    int tile;
    const char *name;
};

static const struct product products[] = {
    { GEMM_NN, KERNEL_gemm_nn_32, 32, "gemm_nn_32" },
    { GEMM_NN, KERNEL_gemm_nn_64, 64, "gemm_nn_64" },
    { GEMM_NN, KERNEL_gemm_nn_128, 128, "gemm_nn_128" },
    { GEMM_NT, KERNEL_gemm_nt_32, 32, "gemm_nt_32" },
    { GEMM_NT, KERNEL_gemm_nt_64, 64, "gemm_nt_64" },
    { GEMM_NT, KERNEL_gemm_nt_128, 128, "gemm_nt_128" },
    { GEMM_TN, KERNEL_gemm_tn_32, 32, "gemm_tn_32" },
    { GEMM_TN, KERNEL_gemm_tn_64, 64, "gemm_tn_64" },
    { GEMM_TN, KERNEL_gemm_tn_128, 128, "gemm_tn_128" },
};

static void launch_product(const struct product *product,
                           const struct gemm_args *args)
{
    device_launch(&queue, product->kernel,
                  blocks_of((size_t)args->n, (size_t)product->tile),
                  blocks_of((size_t)args->m, (size_t)product->tile),
                  (size_t)(args->outer * args->inner), args);
}

static void finish_args(enum gemm_form form, struct gemm_args *args)
{
    args->a_rows = form == GEMM_TN ? args->k : args->m;
    args->a_cols = form == GEMM_TN ? args->m : args->k;
    args->b_rows = form == GEMM_NT ? args->n : args->k;
    args->b_cols = form == GEMM_NT ? args->k : args->n;
}

static double element(enum gemm_form form, const struct gemm_args *args,
                      const float *a, const float *b, int row, int col)
{
    double sum = 0.0;

    for (int k = 0; k < args->k; k++) {
        const float left =
            form == GEMM_TN ? a[k * args->lda + row] : a[row * args->lda + k];
        const float right =
            form == GEMM_NT ? b[col * args->ldb + k] : b[k * args->ldb + col];

        sum += (double)left * (double)right;
    }
    return sum;
}

/* One matrix with bias and add, pitches wider than the rows. */
static void check_product(const struct product *product, int m, int n, int k)
{
    struct gemm_args args = { .m = m,
                              .n = n,
                              .k = k,
                              .outer = 1,
                              .inner = 1,
                              .ldc = n + 5,
                              .alpha = 0.5f };
    float *a, *b, *c, *bias, *before;

    finish_args(product->form, &args);
    args.lda = args.a_cols + 3;
    args.ldb = args.b_cols + 1;
    args.a = a = floats((size_t)(args.a_rows * args.lda));
    args.b = b = floats((size_t)(args.b_rows * args.ldb));
    args.c = c = floats((size_t)(m * args.ldc));
    args.add = c;
    args.bias = bias = floats((size_t)n);
    before = copy_of(c, (size_t)(m * args.ldc));

    launch_product(product, &args);
    for (int row = 0; row < m; row++) {
        for (int col = 0; col < n; col++) {
            const int at = row * args.ldc + col;

            compare(0.5 * element(product->form, &args, a, b, row, col) +
                        (double)bias[col] + (double)before[at],
                    c[at]);
        }
        for (int col = n; col < args.ldc; col++) {
            const int at = row * args.ldc + col;

            compare((double)before[at], c[at]);
        }
    }
    free(before);
    device_free(&dev, a);
    device_free(&dev, b);
    device_free(&dev, c);
    device_free(&dev, bias);
}

/* The three causal forms, as attention uses them: over a batch of heads. */
static void check_causal(const struct product *product, int seq, int d)
{
    const enum gemm_causal causal =
        product->form == GEMM_NT   ? GEMM_CAUSAL_RESULT
        : product->form == GEMM_NN ? GEMM_CAUSAL_TO_ROW
                                   : GEMM_CAUSAL_FROM_ROW;
    const bool scores_out = product->form == GEMM_NT;
    const int outer = 2, inner = 3, c = inner * d;
    const size_t scores = (size_t)(outer * inner * seq * seq);
    const size_t rows = (size_t)(outer * seq * c);
    float *a = floats(scores_out ? rows : scores);
    float *b = floats(rows);
    float *out = floats(scores_out ? scores : rows);
    struct gemm_args args = {
        .a = a,
        .b = b,
        .c = out,
        .m = seq,
        .n = scores_out ? seq : d,
        .k = scores_out ? d : seq,
        .lda = scores_out ? c : seq,
        .ldb = c,
        .ldc = scores_out ? seq : c,
        .outer = outer,
        .inner = inner,
        .a_outer = scores_out ? seq * c : inner * seq * seq,
        .a_inner = scores_out ? d : seq * seq,
        .b_outer = seq * c,
        .b_inner = d,
        .c_outer = scores_out ? inner * seq * seq : seq * c,
        .c_inner = scores_out ? seq * seq : d,
        .causal = (int)causal,
        .alpha = 1.0f,
    };

    for (size_t i = 0; !scores_out && i < scores; i++) {
        const int row = (int)(i / (size_t)seq) % seq;

        a[i] = (int)(i % (size_t)seq) > row ? 0.0f : a[i];
    }
    finish_args(product->form, &args);
    launch_product(product, &args);
    for (int z = 0; z < outer * inner; z++) {
        const float *az =
            a + z / inner * args.a_outer + z % inner * args.a_inner;
        const float *bz =
            b + z / inner * args.b_outer + z % inner * args.b_inner;
        const float *cz =
            out + z / inner * args.c_outer + z % inner * args.c_inner;

        for (int row = 0; row < seq; row++) {
            const int last = scores_out ? row + 1 : d;

            for (int col = 0; col < last; col++) {
                compare(element(product->form, &args, az, bz, row, col),
                        cz[row * args.ldc + col]);
            }
        }
    }
    device_free(&dev, a);
    device_free(&dev, b);
    device_free(&dev, out);
}

static void check_products(void)
{
    char what[80];

    for (size_t i = 0; i < sizeof(products) / sizeof(products[0]); i++) {
        const struct product *product = &products[i];

        check_product(product, 1, 1, 1);
        check_product(product, product->tile, product->tile, 16);
        check_product(product, product->tile + 1, product->tile - 1, 37);
        check_product(product, 45, 150, 9);
        snprintf(what, sizeof(what), "%s with bias, add and wide rows",
                 product->name);
        check(2e-5, what);
        check_causal(product, 70, 12);
        check_causal(product, 7, 33);
        snprintf(what, sizeof(what), "%s over heads, causal", product->name);
        check(2e-5, what);
    }
}

/* What lets gemm() choose a tile by size alone. */
static void check_tiles_agree(void)
{
    const int n = 96 * 80;
    struct gemm_args args = { .m = 96,
                              .n = 80,
                              .k = 50,
                              .lda = 50,
                              .ldb = 80,
                              .ldc = 80,
                              .outer = 1,
                              .inner = 1,
                              .alpha = 1.0f };
    float *out[3];

    finish_args(GEMM_NN, &args);
    args.a = floats(96 * 50);
    args.b = floats(50 * 80);
    for (int i = 0; i < 3; i++) {
        args.c = out[i] = floats((size_t)n);
        launch_product(&products[i], &args);
    }
    ok(memcmp(out[0], out[1], (size_t)n * sizeof(float)) == 0 &&
           memcmp(out[0], out[2], (size_t)n * sizeof(float)) == 0,
       "every tile of a product gives the same bits");
    device_free(&dev, (float *)(uintptr_t)args.a);
    device_free(&dev, (float *)(uintptr_t)args.b);
    for (int i = 0; i < 3; i++) {
        device_free(&dev, out[i]);
    }
}

/* ---- rows --------------------------------------------------------------- */

static void check_softmax(int seq)
{
    const int rows = 2 * seq;
    const size_t n = (size_t)(rows * seq);
    float *p = floats(n), *dp = floats(n);
    float *s, *d;

    for (size_t i = 0; i < n; i++) {
        p[i] = 30.0f * p[i] + 100.0f; /* exp() of it is no float */
    }
    s = copy_of(p, n);
    d = copy_of(dp, n);
    LAUNCH(&queue, softmax_forward, softmax_args,
           blocks_of((size_t)rows, ROWS_A_BLOCK), .s = p, .rows = rows,
           .seq = seq);
    LAUNCH(&queue, softmax_backward, softmax_backward_args,
           blocks_of((size_t)rows, ROWS_A_BLOCK), .p = p, .dp = dp,
           .rows = rows, .seq = seq, .scale = 0.25f);
    for (int row = 0; row < rows; row++) {
        const float *x = s + row * seq, *g = d + row * seq;
        double top = -1e30, sum = 0.0, dot = 0.0;

        for (int c = 0; c <= row % seq; c++) {
            top = fmax(top, (double)x[c]);
        }
        for (int c = 0; c <= row % seq; c++) {
            sum += exp((double)x[c] - top);
        }
        for (int c = 0; c <= row % seq; c++) {
            dot += exp((double)x[c] - top) / sum * (double)g[c];
        }
        for (int c = 0; c < seq; c++) {
            const double value =
                c <= row % seq ? exp((double)x[c] - top) / sum : 0.0;

            compare(value, p[row * seq + c]);
            compare(0.25 * value * ((double)g[c] - dot), dp[row * seq + c]);
        }
    }
    free(s);
    free(d);
    device_free(&dev, p);
    device_free(&dev, dp);
}

static void check_norm(int rows, int cols)
{
    const size_t n = (size_t)(rows * cols);
    float *x = floats(n), *gamma = floats((size_t)cols),
          *beta = floats((size_t)cols), *y = floats(n),
          *mean = floats((size_t)rows), *rstd = floats((size_t)rows);

    for (size_t i = 0; i < n; i++) {
        x[i] += 50.0f; /* a mean far from 0 */
    }
    LAUNCH(&queue, layernorm_forward, layernorm_args,
           blocks_of((size_t)rows, ROWS_A_BLOCK), .x = x, .gamma = gamma,
           .beta = beta, .y = y, .mean = mean, .rstd = rstd, .rows = rows,
           .cols = cols);
    for (int row = 0; row < rows; row++) {
        double m = 0.0, v = 0.0;

        for (int c = 0; c < cols; c++) {
            m += (double)x[row * cols + c] / cols;
        }
        for (int c = 0; c < cols; c++) {
            v += pow((double)x[row * cols + c] - m, 2.0) / cols;
        }
        for (int c = 0; c < cols; c++) {
            compare(((double)x[row * cols + c] - m) / sqrt(v + 1e-5) *
                            (double)gamma[c] +
                        (double)beta[c],
                    y[row * cols + c]);
        }
    }
    device_free(&dev, x);
    device_free(&dev, gamma);
    device_free(&dev, beta);
    device_free(&dev, y);
    device_free(&dev, mean);
    device_free(&dev, rstd);
}

static void check_cross_entropy(int rows, int vocab)
{
    const size_t n = (size_t)(rows * vocab);
    float *logits = floats(n), *losses = floats((size_t)rows),
          *mean = floats(1), *scale = floats(1);
    int *targets = tokens_below((size_t)rows, vocab);
    float *x;
    double total = 0.0;

    for (size_t i = 0; i < n; i++) {
        logits[i] = 90.0f * logits[i];
    }
    *scale = 0.125f;
    x = copy_of(logits, n);
    LAUNCH(&queue, cross_entropy, cross_entropy_args,
           blocks_of((size_t)rows, ROWS_A_BLOCK), .logits = logits,
           .targets = targets, .losses = losses, .rows = rows, .vocab = vocab,
           .scale = scale);
    LAUNCH(&queue, mean, mean_args, 1, .x = losses, .mean = mean, .n = rows);
    for (int row = 0; row < rows; row++) {
        const float *at = x + row * vocab;
        double top = -1e30, sum = 0.0, loss;

        for (int c = 0; c < vocab; c++) {
            top = fmax(top, (double)at[c]);
        }
        for (int c = 0; c < vocab; c++) {
            sum += exp((double)at[c] - top);
        }
        loss = top + log(sum) - (double)at[targets[row]];
        total += loss / rows;
        compare(0.0, (float)((double)losses[row] - loss) / 100.0f);
        for (int c = 0; c < vocab; c++) {
            compare(0.125 *
                        (exp((double)at[c] - top) / sum - (c == targets[row])),
                    logits[row * vocab + c]);
        }
    }
    compare(0.0, (float)((double)*mean - total) / 100.0f);
    free(x);
    device_free(&dev, logits);
    device_free(&dev, losses);
    device_free(&dev, mean);
    device_free(&dev, scale);
    device_free(&dev, targets);
}

/* ---- the rest ----------------------------------------------------------- */

static void check_sums(int rows, int cols)
{
    float *x = floats((size_t)(rows * cols)), *sum = floats((size_t)cols);
    float *before = copy_of(sum, (size_t)cols);

    LAUNCH(&queue, column_sum, column_sum_args,
           blocks_of((size_t)cols, COLUMN_LANES), .x = x, .sum = sum,
           .rows = rows, .cols = cols);
    for (int c = 0; c < cols; c++) {
        double expected = (double)before[c];

        for (int row = 0; row < rows; row++) {
            expected += (double)x[row * cols + c];
        }
        compare(expected, sum[c]);
    }
    free(before);
    device_free(&dev, x);
    device_free(&dev, sum);
}

static void check_gelu(int n)
{
    const double turn = sqrt(2.0 / 3.14159265358979323846);
    float *x = floats((size_t)n), *y = floats((size_t)n),
          *d = floats((size_t)n), *g;

    for (int i = 0; i < n; i++) {
        x[i] *= 6.0f;
    }
    g = copy_of(d, (size_t)n);
    LAUNCH(&queue, gelu_forward, gelu_args,
           blocks_of((size_t)n, gelu_forward_threads), .x = x, .y = y, .n = n);
    LAUNCH(&queue, gelu_backward, gelu_backward_args,
           blocks_of((size_t)n, gelu_backward_threads), .x = x, .d = d, .n = n);
    for (int i = 0; i < n; i++) {
        const double u = (double)x[i];
        const double t = tanh(turn * (u + 0.044715 * u * u * u));
        const double slope =
            0.5 * (1.0 + t) +
            0.5 * u * (1.0 - t * t) * turn * (1.0 + 3.0 * 0.044715 * u * u);

        compare(0.5 * u * (1.0 + t), y[i]);
        compare((double)g[i] * slope, d[i]);
    }
    free(g);
    device_free(&dev, x);
    device_free(&dev, y);
    device_free(&dev, d);
}

/* Three rows of 100 columns, of ten. */
static void check_gelu_rows(void)
{
    const int n = 1000, there = 300;
    float *x = floats((size_t)n), *y = floats((size_t)n);
    float *d = floats((size_t)n), *all = floats((size_t)n);
    float *y0 = copy_of(y, (size_t)n), *d0 = copy_of(d, (size_t)n);
    int *rows = tokens_below(1, 1);
    int wrong = 0;

    *rows = 3;
    LAUNCH(&queue, gelu_forward, gelu_args,
           blocks_of((size_t)n, gelu_forward_threads), .x = x, .y = all,
           .n = n);
    LAUNCH(&queue, gelu_forward, gelu_args,
           blocks_of((size_t)n, gelu_forward_threads), .x = x, .y = y,
           .rows = rows, .cols = 100, .n = n);
    LAUNCH(&queue, gelu_backward, gelu_backward_args,
           blocks_of((size_t)n, gelu_backward_threads), .x = x, .d = d,
           .rows = rows, .cols = 100, .n = n);
    for (int i = 0; i < n; i++) {
        wrong += memcmp(&y[i], i < there ? &all[i] : &y0[i], sizeof(*y)) != 0;
        wrong += i >= there && memcmp(&d[i], &d0[i], sizeof(*d)) != 0;
    }
    is_int(wrong, 0, "GELU of the rows that there are leaves the others");
    free(y0);
    free(d0);
    device_free(&dev, x);
    device_free(&dev, y);
    device_free(&dev, d);
    device_free(&dev, all);
    device_free(&dev, rows);
}

static void check_adamw(void)
{
    const int n = 300, n_decay = 200;
    const double lr = 0.01, beta1 = 0.9, beta2 = 0.99;
    float *w = floats(300), *g = floats(300), *m = floats(300),
          *v = floats(300);
    struct optimizer_state *state = device_alloc(&dev, sizeof(*state));
    double rw[300], rm[300] = { 0 }, rv[300] = { 0 };

    memset(state, 0, sizeof(*state));
    memset(m, 0, 300 * sizeof(*m));
    memset(v, 0, 300 * sizeof(*v));
    for (int i = 0; i < n; i++) {
        rw[i] = (double)w[i];
    }
    for (int step = 1; step <= 5; step++) {
        const double rate = step < 3 ? lr * step / 3 : lr;

        LAUNCH(&queue, optimizer_begin, optimizer_begin_args, 1, .state = state,
               .lr = (float)lr, .beta1 = (float)beta1, .beta2 = (float)beta2,
               .warmup = 3);
        LAUNCH(&queue, adamw, adamw_args, blocks_of((size_t)n, adamw_threads),
               .w = w, .g = g, .m = m, .v = v, .state = state, .n = n,
               .n_decay = n_decay, .beta1 = (float)beta1, .beta2 = (float)beta2,
               .epsilon = 1e-8f, .decay = 0.1f);
        for (int i = 0; i < n; i++) {
            const double slope = (double)g[i];

            rm[i] = beta1 * rm[i] + (1.0 - beta1) * slope;
            rv[i] = beta2 * rv[i] + (1.0 - beta2) * slope * slope;
            rw[i] -=
                rate * (rm[i] / (1.0 - pow(beta1, step)) /
                            (sqrt(rv[i] / (1.0 - pow(beta2, step))) + 1e-8) +
                        (i < n_decay ? 0.1 * rw[i] : 0.0));
            compare(rw[i], w[i]);
        }
    }
    is_int(state->step, 5, "the optimizer counts its steps on the device");
    device_free(&dev, w);
    device_free(&dev, g);
    device_free(&dev, m);
    device_free(&dev, v);
    device_free(&dev, state);
}

/* ---- a mixture of experts ----------------------------------------------- */

static void check_route(int rows, int experts, int top)
{
    const size_t n = (size_t)(rows * experts), m = (size_t)(rows * top);
    float *scores = floats(n), *prob = floats(m), *d = floats(n);
    float *d_prob = floats(m);
    int *choice = tokens_below(m, 1);
    float *x;
    int wrong = 0;

    x = copy_of(scores, n);
    LAUNCH(&queue, moe_route_forward, moe_route_args,
           blocks_of((size_t)rows, moe_route_forward_threads), .scores = scores,
           .choice = choice, .prob = prob, .rows = rows, .experts = experts,
           .top = top);
    LAUNCH(&queue, moe_route_backward, moe_route_backward_args,
           blocks_of((size_t)rows, moe_route_backward_threads),
           .scores = scores, .choice = choice, .d_prob = d_prob, .d_logits = d,
           .rows = rows, .experts = experts, .top = top);
    for (int row = 0; row < rows; row++) {
        double sum = 0.0, dot = 0.0, g[64] = { 0 };

        for (int e = 0; e < experts; e++) {
            sum += exp((double)x[row * experts + e]);
        }
        for (int j = 0; j < top; j++) {
            const int e = choice[row * top + j];
            int better = 0;

            g[e] = (double)d_prob[row * top + j];
            dot += exp((double)x[row * experts + e]) / sum * g[e];
            compare(exp((double)x[row * experts + e]) / sum,
                    prob[row * top + j]);
            for (int other = 0; other < experts; other++) {
                better += x[row * experts + other] > x[row * experts + e];
            }
            wrong += better != j;
        }
        for (int e = 0; e < experts; e++) {
            compare(exp((double)x[row * experts + e]) / sum * (g[e] - dot),
                    d[row * experts + e]);
        }
    }
    is_int(wrong, 0, "%d experts, %d choices: the best come first", experts,
           top);
    free(x);
    device_free(&dev, scores);
    device_free(&dev, prob);
    device_free(&dev, d);
    device_free(&dev, d_prob);
    device_free(&dev, choice);
}

/* Against the definition: one choice after the other takes the next slot. */
static void check_place(int n, int experts, int capacity)
{
    const int slots = capacity > 0 ? experts * capacity : n;
    int *choice = tokens_below((size_t)n, experts);
    int *counts = tokens_below((size_t)experts, 1);
    int *first = tokens_below((size_t)experts, 1);
    int *slot = tokens_below((size_t)n, 1);
    int *source = tokens_below((size_t)slots, 1);
    int next = 0, wrong = 0;

    LAUNCH(&queue, moe_place, moe_place_args, experts, .choice = choice,
           .counts = counts, .first = first, .slot = slot, .source = source,
           .n = n, .experts = experts, .capacity = capacity, .slots = slots);
    for (int e = 0; e < experts; e++) {
        int count = 0;

        next = capacity > 0 ? e * capacity : next;
        wrong += first[e] != next;
        for (int i = 0; i < n; i++) {
            if (choice[i] != e) {
                continue;
            }
            if (capacity > 0 && count == capacity) {
                wrong += slot[i] != -1;
                continue;
            }
            wrong += slot[i] != next || source[next] != i;
            next++;
            count++;
        }
        wrong += counts[e] != count;
        for (int i = count; i < capacity; i++) {
            wrong += source[e * capacity + i] != -1;
        }
    }
    is_int(wrong, 0, "%d choices of %d experts, capacity %d: each in its slot",
           n, experts, capacity);
    device_free(&dev, choice);
    device_free(&dev, counts);
    device_free(&dev, first);
    device_free(&dev, slot);
    device_free(&dev, source);
}

/* Every choice has a row in the block of its expert's rank, and the rank that
 * gets the blocks finds its rows. */
static void check_blocks(int n, int ranks, int own)
{
    const int experts = ranks * own;
    int *choice = tokens_below((size_t)n, experts);
    int *counts = tokens_below((size_t)experts, 1);
    int *first = tokens_below((size_t)experts, 1);
    int *slot = tokens_below((size_t)n, 1);
    int *source = tokens_below((size_t)n, 1);
    int *block_source = tokens_below((size_t)(ranks * n), 1);
    int *block_slot = tokens_below((size_t)n, 1);
    int *all = tokens_below((size_t)(ranks * experts), 9);
    int *rank_counts = tokens_below((size_t)experts, 1);
    int *rank_first = tokens_below((size_t)experts, 1);
    int *rows = tokens_below((size_t)ranks, 1);
    const int own_first = (ranks - 1) * own;
    int wrong = 0, found = 0;

    LAUNCH(&queue, moe_place, moe_place_args, experts, .choice = choice,
           .counts = counts, .first = first, .slot = slot, .source = source,
           .n = n, .experts = experts, .slots = n);
    LAUNCH(&queue, moe_blocks, moe_blocks_args,
           blocks_of((size_t)(ranks * n), moe_blocks_threads), .choice = choice,
           .first = first, .slot = slot, .source = source,
           .block_source = block_source, .block_slot = block_slot, .n = n,
           .ranks = ranks, .own = own);
    for (int i = 0; i < n; i++) {
        const int at = block_slot[i];

        wrong += at < 0 || at >= ranks * n || at / n != choice[i] / own ||
                 block_source[at] != i;
    }
    for (int i = 0; i < ranks * n; i++) {
        found += block_source[i] >= 0;
        wrong += i % n > 0 && block_source[i] >= 0 && block_source[i - 1] < 0;
    }
    is_int(wrong + (found != n), 0,
           "%d choices, %d ranks of %d experts: each in its rank's block", n,
           ranks, own);

    wrong = 0;
    LAUNCH(&queue, moe_received, moe_received_args, 1, .all_counts = all,
           .counts = rank_counts, .first = rank_first, .rows = rows,
           .ranks = ranks, .experts = experts, .own = own,
           .own_first = own_first);
    for (int r = 0; r < ranks; r++) {
        int sum = 0;

        for (int e = 0; e < own; e++) {
            wrong +=
                rank_first[r * own + e] != sum ||
                rank_counts[r * own + e] != all[r * experts + own_first + e];
            sum += all[r * experts + own_first + e];
        }
        wrong += rows[r] != sum;
    }
    is_int(wrong, 0, "%d ranks of %d experts: the rows that come of each",
           ranks, own);
    device_free(&dev, choice);
    device_free(&dev, counts);
    device_free(&dev, first);
    device_free(&dev, slot);
    device_free(&dev, source);
    device_free(&dev, block_source);
    device_free(&dev, block_slot);
    device_free(&dev, all);
    device_free(&dev, rank_counts);
    device_free(&dev, rank_first);
    device_free(&dev, rows);
}

/* Three experts with 70, no and 5 rows. */
static void check_group(enum gemm_form form, enum engine_kernel kernel)
{
    static const int shares[] = { 70, 0, 5 };
    const bool sum = form == GEMM_TN;
    const int slots = 75, m = 40, n = 66, k = 37;
    const int lda = sum ? m : k, ldb = form == GEMM_NT ? k : n;
    struct group_args args = { .m = m,
                               .n = n,
                               .k = k,
                               .lda = lda,
                               .ldb = ldb,
                               .ldc = n,
                               .groups = 3,
                               .a_count = slots * lda,
                               .b_count = sum ? slots * n : 3 * k * n,
                               .c_count = sum ? 3 * m * n : slots * n };
    float *a = floats((size_t)args.a_count), *b = floats((size_t)args.b_count);
    float *c = floats((size_t)args.c_count), *before;
    int *counts = tokens_below(3, 1), *first = tokens_below(3, 1);

    memcpy(counts, shares, sizeof(shares));
    first[1] = first[2] = 70;
    before = copy_of(c, (size_t)args.c_count);
    args.a = a;
    args.b = b;
    args.c = c;
    args.add = sum ? c : NULL;
    args.first = first;
    args.counts = counts;
    device_launch(&queue, kernel, 2, 2, 3, &args);
    for (int e = 0; e < 3; e++) {
        const struct gemm_args one = { .k = sum ? counts[e] : k,
                                       .lda = lda,
                                       .ldb = ldb };
        const float *ae = a + first[e] * lda;
        const float *be = b + (sum ? first[e] * n : e * k * n);
        const int c0 = sum ? e * m * n : first[e] * n;

        for (int row = 0; row < (sum ? m : counts[e]); row++) {
            for (int col = 0; col < n; col++) {
                const int at = c0 + row * n + col;

                compare(element(form, &one, ae, be, row, col) +
                            (sum ? (double)before[at] : 0.0),
                        c[at]);
            }
        }
    }
    free(before);
    device_free(&dev, a);
    device_free(&dev, b);
    device_free(&dev, c);
    device_free(&dev, counts);
    device_free(&dev, first);
}

static void check_experts(void)
{
    check_route(1, 1, 1);
    check_route(9, 5, 2);
    check_route(130, 8, 8);
    check(2e-6, "routing and its gradient");
    check_place(1, 1, 0);
    check_place(7, 3, 0);
    check_place(1000, 9, 0);
    check_place(1000, 9, 100);
    check_place(10, 2, 64);
    check_blocks(1, 2, 1);
    check_blocks(1000, 4, 3);
    check_blocks(300, 64, 1);
    check_group(GEMM_NN, KERNEL_gemm_nn_group);
    check_group(GEMM_NT, KERNEL_gemm_nt_group);
    check_group(GEMM_TN, KERNEL_gemm_tn_group);
    check(2e-5, "products of experts with 70, no and 5 rows");
}

/* ---- latent attention and Mamba ----------------------------------------- */

/* Turning keeps lengths, so what backward gives of what forward gave is what
 * forward was given. */
static void check_turn(int rows, int seq, int heads, int nope, int rope)
{
    const int qk = nope + rope, half = rope / 2;
    const size_t n = (size_t)(rows * heads * qk);
    float *x = floats(n), *y = floats(n), *back = floats(n);
    float *rotary = floats((size_t)(seq * rope));

    for (int p = 0; p < seq * half; p++) {
        rotary[p / half * rope + p % half] = (float)cos(0.7 * p);
        rotary[p / half * rope + half + p % half] = (float)sin(0.7 * p);
    }
    LAUNCH(&queue, mla_turn_forward, mla_turn_args,
           blocks_of(n, mla_turn_forward_threads), .x = x, .rotary = rotary,
           .y = y, .rows = rows, .seq = seq, .heads = heads, .head = qk,
           .nope = nope, .rope = rope);
    LAUNCH(&queue, mla_turn_backward, mla_turn_backward_args,
           blocks_of(n, mla_turn_backward_threads), .dy = y, .rotary = rotary,
           .dx = back, .rows = rows, .seq = seq, .heads = heads, .head = qk,
           .nope = nope, .rope = rope, .own = 1);
    for (int i = 0; i < (int)n; i++) {
        const int j = (i % qk - nope) % half, row = i / (heads * qk);
        const double angle = 0.7 * (row % seq * half + j);
        const float *pair = x + i / qk * qk + nope + j;

        compare((double)x[i], back[i]);
        if (i % qk < nope) {
            compare((double)x[i], y[i]);
        } else if (i % qk - nope < half) {
            compare((double)pair[0] * cos(angle) -
                        (double)pair[half] * sin(angle),
                    y[i]);
        } else {
            compare((double)pair[half] * cos(angle) +
                        (double)pair[0] * sin(angle),
                    y[i]);
        }
    }
    device_free(&dev, x);
    device_free(&dev, y);
    device_free(&dev, back);
    device_free(&dev, rotary);
}

/* One channel after the other, with the state in a variable. */
static void check_scan(int batch, int seq, int inner, int state)
{
    const int rows = batch * seq;
    const size_t n = (size_t)(rows * inner);
    float *u = floats(n), *dt = floats(n), *xz = floats(2 * n);
    float *bc = floats((size_t)(rows * 2 * state));
    float *decay = floats((size_t)(state * inner));
    float *skip = floats((size_t)inner);
    float *states = floats(n * (size_t)state), *y = floats(n);
    float *gated = floats(n);

    dt[0] = 50.0f; /* where softplus is its argument */
    LAUNCH(&queue, mamba_scan_forward, mamba_scan_args,
           blocks_of((size_t)(batch * inner), mamba_scan_forward_threads),
           .u = u, .dt = dt, .bc = bc, .decay = decay, .skip = skip,
           .gate = xz + inner, .states = states, .y = y, .gated = gated,
           .batch = batch, .seq = seq, .inner = inner, .state = state);
    for (int i = 0; i < batch * inner; i++) {
        double h[64] = { 0 };

        for (int t = 0; t < seq; t++) {
            const int row = i / inner * seq + t, d = i % inner;
            const int at = row * inner + d;
            const double step = log1p(exp((double)dt[at]));
            const double gate = (double)xz[row * 2 * inner + inner + d];
            double sum = (double)skip[d] * (double)u[at];

            for (int s = 0; s < state; s++) {
                const double a = -exp((double)decay[s * inner + d]);
                const float *way = bc + row * 2 * state + s;

                h[s] = exp(step * a) * h[s] +
                       step * (double)way[0] * (double)u[at];
                sum += (double)way[state] * h[s];
            }
            compare(0.0, (y[at] - (float)sum) / (1.0f + fabsf((float)sum)));
            compare(0.0, (gated[at] - (float)(sum * gate / (1 + exp(-gate)))) /
                             (1.0f + fabsf((float)sum)));
        }
    }
    device_free(&dev, u);
    device_free(&dev, dt);
    device_free(&dev, xz);
    device_free(&dev, bc);
    device_free(&dev, decay);
    device_free(&dev, skip);
    device_free(&dev, states);
    device_free(&dev, y);
    device_free(&dev, gated);
}

int main(void)
{
    immediate_driver(&dev.drv);
    device_open_driver(&dev, true);

    check_products();
    check_tiles_agree();
    check_softmax(1);
    check_softmax(37);
    check_softmax(130);
    check(2e-6, "softmax and its gradient");
    check_norm(5, 33);
    check_norm(2, 300);
    check(1e-4, "layer norm of numbers around 50");
    check_cross_entropy(6, 256);
    check_cross_entropy(3, 31);
    check(2e-6, "cross entropy and its gradient");
    check_sums(1, 1);
    check_sums(77, 65);
    check(2e-5, "sums of columns");
    check_gelu(1000);
    check_gelu_rows();
    check(2e-6, "GELU and its gradient");
    check_experts();
    check_turn(1, 1, 1, 1, 2);
    check_turn(14, 7, 3, 5, 4);
    check(1e-6, "turning by positions, and back");
    check_scan(1, 1, 1, 1);
    check_scan(2, 9, 70, 3);
    check(2e-6, "a selective scan with its gate");
    check_adamw();
    check(1e-5, "AdamW with warmup and decay");

    ok(dev.code == CUDA_SUCCESS, "every launch was taken");
    device_close(&dev);
    return done_testing();
}
