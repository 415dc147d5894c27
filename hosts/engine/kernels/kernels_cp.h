/*
 * kernels_cp.h - kernels of sequences that several ranks share; kernels.cu
 * includes it.
 *
 * A document of `length` tokens is cut into 2 cp chunks for `cp` ranks.  Rank
 * r has chunk r and then chunk 2 cp - 1 - r, so that each has equally much to
 * attend to.  A place is the number of a token in the whole microbatch, of all
 * ranks.  Keys are those of rank 0, then of rank 1, and so on.  A row of
 * scores has the keys of its sequence.
 *
 * SPDX-License-Identifier: Apache-2.0
 */

/* Computes where every rank's tokens are, and where this rank's documents
 * begin. */
KERNEL(cp_places, cp_places_args)
{
    PHASE(cp_places_threads)
    {
        const int i = GLOBAL_INDEX(cp_places_threads);

        if (i < k.cp * k.rows) {
            const int rank = i / k.rows;
            const int token = i % k.rows;
            int start = 0;
            int end = k.cp * k.rows;
            int half, at, place;

            for (int j = 0; j < k.n; j++) {
                if (k.offsets[j] <= token * k.cp) {
                    start = k.offsets[j];
                } else if (k.offsets[j] < end) {
                    end = k.offsets[j];
                }
            }
            half = (end - start) / (2 * k.cp);
            at = token - start / k.cp;
            place = at < half
                        ? start + rank * half + at
                        : start + (2 * k.cp - 1 - rank) * half + at - half;
            k.keys[i] = place;
            if (rank == k.rank) {
                k.places[token] = place;
                k.starts[token] = start;
            }
        }
    }
}

/* Puts rows of all ranks to their places, or takes one rank's rows from
 * there. */
KERNEL(rows_place, rows_args)
{
    PHASE(rows_place_threads)
    {
        const int i = GLOBAL_INDEX(rows_place_threads);

        if (i < k.rows * k.cols) {
            const int row = k.places[i / k.cols];

            k.y[(size_t)row * (size_t)k.cols + (size_t)(i % k.cols)] = k.x[i];
        }
    }
}

KERNEL(rows_take, rows_take_args)
{
    PHASE(rows_take_threads)
    {
        const int i = GLOBAL_INDEX(rows_take_threads);

        if (i < k.rows * k.cols) {
            const int row = k.places[i / k.cols];

            k.y[i] = k.x[(size_t)row * (size_t)k.cols + (size_t)(i % k.cols)];
        }
    }
}

KERNEL(columns_copy, columns_args)
{
    PHASE(columns_copy_threads)
    {
        const int i = GLOBAL_INDEX(columns_copy_threads);

        if (i < k.rows * k.cols) {
            const size_t row = (size_t)(i / k.cols);
            const size_t col = (size_t)(i % k.cols);

            k.y[row * (size_t)k.ldy + col] = k.x[row * (size_t)k.ldx + col];
        }
    }
}

/* Whether a row of scores looks at its c-th key. */
#define SEES(row, c) \
    (k.keys[KEY_OF(row, c)] >= k.starts[TOKEN_OF(row)] && \
     k.keys[KEY_OF(row, c)] <= k.places[TOKEN_OF(row)])
#define KEY_OF(row, c) \
    ((c) / k.seq * (k.rows / k.heads) + \
     TOKEN_OF(row) / k.seq * k.seq + (c) % k.seq)

KERNEL(cp_softmax_forward, cp_softmax_args)
{
    SHARED(float, fold, [ROW_THREADS]);
    REGISTERS(float, top, 1, ROW_THREADS);

    PHASE(ROW_THREADS)
    {
        const int row = ROW_OF(thread);
        float top_here = -INFINITY;

        if (row < k.rows) {
            for (int c = ROW_LANE(thread); c < k.cols; c += ROW_LANES) {
                if (SEES(row, c)) {
                    top_here = FOLD_MAX(
                        top_here,
                        k.s[(size_t)row * (size_t)k.cols + (size_t)c]);
                }
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
            for (int c = ROW_LANE(thread); c < k.cols; c += ROW_LANES) {
                const size_t i = (size_t)row * (size_t)k.cols + (size_t)c;
                float value = 0.0f;

                if (SEES(row, c)) {
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

            for (int c = ROW_LANE(thread); c < k.cols; c += ROW_LANES) {
                k.s[(size_t)row * (size_t)k.cols + (size_t)c] *= scale;
            }
        }
    }
}

/* A key that a row does not look at has the probability 0, and so the gradient
 * 0. */
KERNEL(cp_softmax_backward, cp_softmax_backward_args)
{
    SHARED(float, fold, [ROW_THREADS]);

    PHASE(ROW_THREADS)
    {
        const int row = ROW_OF(thread);
        float sum = 0.0f;

        if (row < k.rows) {
            for (int c = ROW_LANE(thread); c < k.cols; c += ROW_LANES) {
                const size_t i = (size_t)row * (size_t)k.cols + (size_t)c;

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

            for (int c = ROW_LANE(thread); c < k.cols; c += ROW_LANES) {
                const size_t i = (size_t)row * (size_t)k.cols + (size_t)c;

                k.dp[i] = k.scale * k.p[i] * (k.dp[i] - sum);
            }
        }
    }
}
