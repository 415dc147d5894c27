/*
 * gemm.h - one matrix product kernel; kernels.cu includes it for every form.
 *
 * Before: GEMM_NAME, GEMM_TILE (rows and columns of the result a block
 * makes), GEMM_ROWS and GEMM_COLS (what a thread makes of it), GEMM_DEPTH,
 * and GEMM_A_TRANS, GEMM_B_TRANS, which say how A and B lie in memory.
 *
 * A block that is alone on its multiprocessor waits for memory, not for
 * arithmetic, so the next tiles are on their way while these are multiplied.
 *
 * With GEMM_GROUPED, BLOCK_Z is an expert: its rows are as many as the device
 * counted, and lie after those of the experts before it.  Rows are those of A
 * and C; in the transposed form, those of A and B, which are summed over.
 *
 * Every element is summed over k from first to last whatever the tile, so a
 * choice of tile never changes a number.  What lies beyond the matrices is
 * zero, and a sum that begins at zero is the same with products of zeros as
 * without.
 *
 * SPDX-License-Identifier: Apache-2.0
 */

#define GEMM_SIDE (GEMM_TILE / GEMM_COLS) /* threads along a row */
#define GEMM_THREADS (GEMM_TILE / GEMM_ROWS * GEMM_SIDE)
#define GEMM_EACH (GEMM_ROWS * GEMM_COLS)
#define GEMM_LOADS (GEMM_TILE * GEMM_DEPTH / GEMM_THREADS)
#define GEMM_PITCH (GEMM_TILE + 4) /* fewer bank conflicts, still aligned to 16
                                      bytes */

/* The position of a tile's e-th element, along k and across it. */
#define GEMM_ALONG(e, along_k) \
    ((along_k) ? (e) % GEMM_DEPTH : (e) / GEMM_TILE)
#define GEMM_ACROSS(e, along_k) \
    ((along_k) ? (e) / GEMM_DEPTH : (e) % GEMM_TILE)

#ifdef __CUDACC__
#define GEMM_STAGES                                                          \
    REGISTERS(float, a_next, GEMM_LOADS, GEMM_THREADS);                      \
    REGISTERS(float, b_next, GEMM_LOADS, GEMM_THREADS);

/* Loads the tiles that begin at k0 into registers. */
#define GEMM_FETCH(k0)                                                       \
    PHASE(GEMM_THREADS)                                                      \
    {                                                                        \
        for (int i = 0; i < GEMM_LOADS; i++) {                               \
            const int e = thread + i * GEMM_THREADS;                         \
            const int ak = (k0) + GEMM_ALONG(e, !GEMM_A_TRANS);              \
            const int am = m0 + GEMM_ACROSS(e, !GEMM_A_TRANS);               \
            const int bk = (k0) + GEMM_ALONG(e, GEMM_B_TRANS);               \
            const int bn = n0 + GEMM_ACROSS(e, GEMM_B_TRANS);                \
            const size_t a_row = (size_t)(GEMM_A_TRANS ? ak : am);           \
            const size_t a_col = (size_t)(GEMM_A_TRANS ? am : ak);           \
            const size_t b_row = (size_t)(GEMM_B_TRANS ? bn : bk);           \
            const size_t b_col = (size_t)(GEMM_B_TRANS ? bk : bn);           \
                                                                             \
            MINE(a_next)[i] =                                                \
                am < m_last && ak < k_last                                   \
                    ? k.a[a_first + a_row * (size_t)k.lda + a_col]           \
                    : 0.0f;                                                  \
            MINE(b_next)[i] =                                                \
                bn < k.n && bk < k_last                                      \
                    ? k.b[b_first + b_row * (size_t)k.ldb + b_col]           \
                    : 0.0f;                                                  \
        }                                                                    \
    }

/* What is in the registers becomes the tiles. */
#define GEMM_PUT(k0)                                                         \
    PHASE(GEMM_THREADS)                                                      \
    {                                                                        \
        for (int i = 0; i < GEMM_LOADS; i++) {                               \
            const int e = thread + i * GEMM_THREADS;                         \
                                                                             \
            a_tile[GEMM_ALONG(e, !GEMM_A_TRANS)]                             \
                  [GEMM_ACROSS(e, !GEMM_A_TRANS)] = MINE(a_next)[i];         \
            b_tile[GEMM_ALONG(e, GEMM_B_TRANS)]                              \
                  [GEMM_ACROSS(e, GEMM_B_TRANS)] = MINE(b_next)[i];          \
        }                                                                    \
    }

#else /* a CPU has nothing on its way, and reads what there is of the tiles */
#define GEMM_STAGES
#define GEMM_FETCH(k0)
#define GEMM_PUT(k0)                                                         \
    GEMM_READ(a_tile, k.a + a_first, k.lda, GEMM_A_TRANS, k0, m0, m_last)    \
    GEMM_READ(b_tile, k.b + b_first, k.ldb, !GEMM_B_TRANS, k0, n0, k.n)

/* A thread's last columns may be beyond the matrix, so that they are zero. */
#define GEMM_READ(tile, from, ld, by_k, k0, x0, x_last)                      \
    for (int kk = 0; kk < AT_MOST(GEMM_DEPTH, k_last - (k0)); kk++) {        \
        const int count = AT_MOST(GEMM_TILE, (x_last) - (x0));               \
        const size_t row = (size_t)(k0) + (size_t)kk;                        \
                                                                             \
        for (int x = 0; x < count; x++) {                                    \
            const size_t col = (size_t)(x0) + (size_t)x;                     \
                                                                             \
            tile[kk][x] = (from)[(by_k) ? row * (size_t)(ld) + col           \
                                        : col * (size_t)(ld) + row];         \
        }                                                                    \
        for (int x = count; x % GEMM_COLS != 0 || x % GEMM_ROWS != 0; x++) { \
            tile[kk][x] = 0.0f;                                              \
        }                                                                    \
    }
#endif

#ifdef GEMM_GROUPED
KERNEL(GEMM_NAME, group_args)
#else
KERNEL(GEMM_NAME, gemm_args)
#endif
{
    SHARED(float, a_tile, [GEMM_DEPTH][GEMM_PITCH]);
    SHARED(float, b_tile, [GEMM_DEPTH][GEMM_PITCH]);
    GEMM_STAGES
    REGISTERS(float, sums, GEMM_EACH, GEMM_THREADS);

    const int m0 = BLOCK_Y * GEMM_TILE;
    const int n0 = BLOCK_X * GEMM_TILE;
#ifdef GEMM_GROUPED
    const size_t group = (size_t)BLOCK_Z;
    const size_t before = (size_t)k.first[group];
    const int m_last = GEMM_A_TRANS ? k.m : k.counts[group];
    const int k_first = 0;
    const int k_last = GEMM_A_TRANS ? k.counts[group] : k.k;
    const size_t a_first = before * (size_t)k.lda;
    const size_t b_first = GEMM_A_TRANS ? before * (size_t)k.ldb
                                        : group * (size_t)(k.k * k.n);
    const size_t c_first = GEMM_A_TRANS ? group * (size_t)(k.m * k.n)
                                        : before * (size_t)k.ldc;

    if (m0 >= m_last) {
        return;
    }
#else
    const int m_last = k.m;
    const int outer = BLOCK_Z / k.inner;
    const int inner = BLOCK_Z % k.inner;
    const size_t a_first =
        (size_t)outer * (size_t)k.a_outer + (size_t)inner * (size_t)k.a_inner;
    const size_t b_first =
        (size_t)outer * (size_t)k.b_outer + (size_t)inner * (size_t)k.b_inner;
    const size_t c_first =
        (size_t)outer * (size_t)k.c_outer + (size_t)inner * (size_t)k.c_inner;
    int k_first = 0;
    int k_last = k.k;

    if (k.causal == GEMM_CAUSAL_RESULT && n0 >= m0 + GEMM_TILE) {
        return;
    }
    if (k.causal == GEMM_CAUSAL_TO_ROW && k_last > m0 + GEMM_TILE) {
        k_last = m0 + GEMM_TILE;
    }
    if (k.causal == GEMM_CAUSAL_FROM_ROW) {
        k_first = m0;
    }
#endif

    PHASE(GEMM_THREADS)
    {
        for (int i = 0; i < GEMM_EACH; i++) {
            MINE(sums)[i] = 0.0f;
        }
    }

    GEMM_FETCH(k_first)
    for (int k0 = k_first; k0 < k_last; k0 += GEMM_DEPTH) {
        GEMM_PUT(k0)
        BARRIER();

        if (k0 + GEMM_DEPTH < k_last) {
            GEMM_FETCH(k0 + GEMM_DEPTH)
        }
        PHASE(GEMM_THREADS)
        {
            const int row = thread / GEMM_SIDE * GEMM_ROWS;
            const int col = thread % GEMM_SIDE * GEMM_COLS;
            float sum[GEMM_ROWS][GEMM_COLS];

            SPARE(m0 + row >= m_last || n0 + col >= k.n);
            for (int i = 0; i < GEMM_EACH; i++) {
                sum[i / GEMM_COLS][i % GEMM_COLS] = MINE(sums)[i];
            }
            for (int kk = 0; kk < AT_MOST(GEMM_DEPTH, k_last - k0); kk++) {
                for (int i = 0; i < GEMM_ROWS; i++) {
                    for (int j = 0; j < GEMM_COLS; j++) {
                        sum[i][j] +=
                            a_tile[kk][row + i] * b_tile[kk][col + j];
                    }
                }
            }
            for (int i = 0; i < GEMM_EACH; i++) {
                MINE(sums)[i] = sum[i / GEMM_COLS][i % GEMM_COLS];
            }
        }
        BARRIER();
    }

    PHASE(GEMM_THREADS)
    {
        const int row0 = m0 + thread / GEMM_SIDE * GEMM_ROWS;
        const int col0 = n0 + thread % GEMM_SIDE * GEMM_COLS;

        SPARE(row0 >= m_last || col0 >= k.n);
        for (int i = 0; i < GEMM_EACH; i++) {
            const int row = row0 + i / GEMM_COLS;
            const int col = col0 + i % GEMM_COLS;

            if (row < m_last && col < k.n) {
                const size_t at =
                    c_first + (size_t)row * (size_t)k.ldc + (size_t)col;
#ifdef GEMM_GROUPED
                float value = MINE(sums)[i];
#else
                float value = k.alpha * MINE(sums)[i];

                if (k.bias != NULL) {
                    value += k.bias[col];
                }
#endif
                if (k.add != NULL) {
                    value += k.add[at];
                }
                k.c[at] = value;
            }
        }
    }
}

#undef GEMM_SIDE
#undef GEMM_THREADS
#undef GEMM_EACH
#undef GEMM_LOADS
#undef GEMM_PITCH
#undef GEMM_ALONG
#undef GEMM_ACROSS
#undef GEMM_STAGES
#undef GEMM_FETCH
#undef GEMM_PUT
#undef GEMM_READ
#undef GEMM_NAME
#undef GEMM_TILE
#undef GEMM_ROWS
#undef GEMM_COLS
#undef GEMM_DEPTH
#undef GEMM_A_TRANS
#undef GEMM_B_TRANS
