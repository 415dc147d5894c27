/*
 * cp_attention.c - the kernels of sequences that ranks share, against what they
 * say.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "model/parts.h"
#include "tap/tap.h"
#include "tests/engine/immediate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    CP = 3,
    BATCH = 2,
    SEQ = 8, /* tokens of a rank's sequence, of which there are 24 */
    ROWS = BATCH * SEQ,
    ALL = CP * ROWS,
    OFFSETS = 6,
    HEADS = 2
};

/* Documents of 6, 18, 12 and 12 tokens; the last two fill the second row. */
static const int offsets[OFFSETS] = { 0, 6, 24, 36, 48, 48 };

static struct device dev;
static struct queue queue = { .dev = &dev };
static int *places[CP], *starts[CP], *keys;

static void *taken(size_t bytes, const void *from)
{
    void *at = device_alloc(&dev, bytes);

    if (from != NULL) {
        memcpy(at, from, bytes);
    } else {
        memset(at, 0xee, bytes);
    }
    return at;
}

static int start_of(int place)
{
    int i = OFFSETS - 1;

    while (offsets[i] > place) {
        i--;
    }
    return offsets[i];
}

static void make_places(void)
{
    const int *given = taken(sizeof(offsets), offsets);

    keys = taken(ALL * sizeof(int), NULL);
    for (int rank = 0; rank < CP; rank++) {
        places[rank] = taken(ROWS * sizeof(int), NULL);
        starts[rank] = taken(ROWS * sizeof(int), NULL);
        LAUNCH(&queue, cp_places, cp_places_args,
               blocks_of(ALL, cp_places_threads), .offsets = given,
               .places = places[rank], .starts = starts[rank], .keys = keys,
               .n = OFFSETS, .rows = ROWS, .cp = CP, .rank = rank);
    }
}

static void check_places(void)
{
    /* of 0..5, 6..23 and 24..35, 36..47: the chunks 0 and 5 of rank 0 */
    static const int first[ROWS] = { 0,  5,  6,  7,  8,  21, 22, 23,
                                     24, 25, 34, 35, 36, 37, 46, 47 };
    bool seen[ALL] = { false };
    int wrong = 0;

    make_places();
    for (int rank = 0; rank < CP; rank++) {
        for (int i = 0; i < ROWS; i++) {
            const int place = places[rank][i];

            wrong += keys[rank * ROWS + i] != place;
            wrong += place < 0 || place >= ALL || seen[place];
            wrong += starts[rank][i] != start_of(place);
            if (place >= 0 && place < ALL) {
                seen[place] = true;
            }
        }
    }
    is_int(wrong, 0, "each token is one rank's, and knows its document");
    ok(memcmp(places[0], first, sizeof(first)) == 0,
       "the first rank has the first and the last chunk of each document");
}

/* How many keys all tokens of a rank see. */
static int seen_by(int rank)
{
    int n = 0;

    for (int i = 0; i < ROWS; i++) {
        n += places[rank][i] - starts[rank][i] + 1;
    }
    return n;
}

static void check_balance(void)
{
    ok(seen_by(0) == seen_by(1) && seen_by(1) == seen_by(2),
       "all ranks have as much to attend to");
}

static double random_number(void)
{
    static unsigned state = 7;

    state = state * 1664525u + 1013904223u;
    return (double)(state >> 8) / 8388608.0 - 1.0;
}

/* The key that is column c of a row of scores: a place. */
static int place_of(int token, int c)
{
    return keys[c / SEQ * ROWS + token / SEQ * SEQ + c % SEQ];
}

/* One row of scores against sums in double precision; the worst error. */
static double row_error(int rank, int token, const float *x, const float *g,
                        const float *p, const float *dp)
{
    double sum = 0.0, dot = 0.0, worst = 0.0;

    for (int pass = 0; pass < 3; pass++) {
        for (int c = 0; c < CP * SEQ; c++) {
            const int place = place_of(token, c);
            const bool sees =
                place >= starts[rank][token] && place <= places[rank][token];
            const double e = sees ? exp((double)x[c] - 100.0) : 0.0;

            if (pass == 0) {
                sum += e;
            } else if (pass == 1) {
                dot += e / sum * (double)g[c];
            } else {
                worst = fmax(worst, fabs(e / sum - (double)p[c]));
                worst = fmax(worst, fabs(0.25 * e / sum * ((double)g[c] - dot) -
                                         (double)dp[c]));
            }
        }
    }
    return worst;
}

static void check_softmax(int rank)
{
    const int cols = CP * SEQ, rows = ROWS * HEADS;
    const size_t bytes = (size_t)(rows * cols) * sizeof(float);
    float *p = taken(bytes, NULL), *dp = taken(bytes, NULL);
    float *x, *g;
    double worst = 0.0;

    for (int i = 0; i < rows * cols; i++) {
        p[i] = (float)(10.0 * random_number() + 100.0);
        dp[i] = (float)random_number();
    }
    x = malloc(bytes);
    g = malloc(bytes);
    memcpy(x, p, bytes);
    memcpy(g, dp, bytes);
    LAUNCH(&queue, cp_softmax_forward, cp_softmax_args,
           blocks_of((size_t)rows, ROWS_A_BLOCK), .s = p,
           .places = places[rank], .starts = starts[rank], .keys = keys,
           .rows = rows, .seq = SEQ, .heads = HEADS, .cols = cols);
    LAUNCH(&queue, cp_softmax_backward, cp_softmax_backward_args,
           blocks_of((size_t)rows, ROWS_A_BLOCK), .p = p, .dp = dp,
           .rows = rows, .cols = cols, .scale = 0.25f);
    for (int row = 0; row < rows; row++) {
        const int token = row / (SEQ * HEADS) * SEQ + row % SEQ;
        const size_t at = (size_t)(row * cols);
        const double error =
            row_error(rank, token, x + at, g + at, p + at, dp + at);

        worst = error > worst || error != error ? error : worst;
    }
    ok(worst <= 2e-6, "rank %d: softmax and its gradient, over %d keys", rank,
       cols);
    device_free(&dev, p);
    device_free(&dev, dp);
    free(x);
    free(g);
}

/* Rows go to their places, and each rank takes its own back. */
static void check_rows(void)
{
    const int cols = 5;
    float *x = taken(ALL * 5 * sizeof(float), NULL);
    float *all = taken(ALL * 5 * sizeof(float), NULL);
    float *own = taken(ROWS * 5 * sizeof(float), NULL);
    int wrong = 0;

    for (int i = 0; i < ALL * cols; i++) {
        x[i] = (float)i;
    }
    LAUNCH(&queue, rows_place, rows_args,
           blocks_of((size_t)(ALL * cols), rows_place_threads), .x = x,
           .places = keys, .y = all, .rows = ALL, .cols = cols);
    for (int i = 0; i < ALL; i++) {
        wrong += all[keys[i] * cols + 4] != x[i * cols + 4];
    }
    is_int(wrong, 0, "rows of all ranks are put in the order of a sequence");
    for (int rank = 0; rank < CP; rank++) {
        LAUNCH(&queue, rows_take, rows_take_args,
               blocks_of((size_t)(ROWS * cols), rows_take_threads), .x = all,
               .places = places[rank], .y = own, .rows = ROWS, .cols = cols,
               .all = ALL);
        ok(memcmp(own, x + rank * ROWS * cols,
                  (size_t)(ROWS * cols) * sizeof(float)) == 0,
           "rank %d takes its own out of it", rank);
    }
    device_free(&dev, x);
    device_free(&dev, all);
    device_free(&dev, own);
}

static void check_columns(void)
{
    float *x = taken(21 * sizeof(float), NULL);
    float *y = taken(15 * sizeof(float), NULL);
    int wrong = 0;

    for (int i = 0; i < 21; i++) {
        x[i] = (float)i;
    }
    for (int i = 0; i < 15; i++) {
        y[i] = -1.0f;
    }
    LAUNCH(&queue, columns_copy, columns_args, 1, .x = x + 2, .y = y + 1,
           .rows = 3, .cols = 3, .ldx = 7, .ldy = 5);
    for (int i = 0; i < 15; i++) {
        const bool copied = i % 5 >= 1 && i % 5 <= 3;

        wrong += y[i] != (copied ? (float)(i / 5 * 7 + i % 5 + 1) : -1.0f);
    }
    is_int(wrong, 0, "columns are copied, and nothing beside them");
    device_free(&dev, x);
    device_free(&dev, y);
}

int main(void)
{
    immediate_driver(&dev.drv);
    device_open_driver(&dev, true);
    check_places();
    check_balance();
    for (int rank = 0; rank < CP; rank++) {
        check_softmax(rank);
    }
    check_rows();
    check_columns();
    ok(dev.code == CUDA_SUCCESS, "every launch was taken");
    for (int rank = 0; rank < CP; rank++) {
        device_free(&dev, places[rank]);
        device_free(&dev, starts[rank]);
    }
    device_free(&dev, keys);
    device_close(&dev);
    return done_testing();
}
