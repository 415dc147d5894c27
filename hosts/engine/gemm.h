/*
 * gemm.h - one matrix product kernel; kernels.cu includes it nine times.
 *
 * Before: GEMM_NAME, GEMM_TILE (rows and columns of the result a block
 * makes), GEMM_EACH (rows and columns a thread makes), GEMM_DEPTH, and
 * GEMM_A_TRANS, GEMM_B_TRANS, which say how A and B lie in memory.
 *
 * Every element is summed over k from first to last whatever the tile, so a
 * choice of tile never changes a number.
 *
 * SPDX-License-Identifier: Apache-2.0
 */

#define GEMM_SIDE (GEMM_TILE / GEMM_EACH)
#define GEMM_THREADS (GEMM_SIDE * GEMM_SIDE)
#define GEMM_PITCH (GEMM_TILE + 4) /* fewer conflicts, still 16 bytes */

KERNEL(GEMM_NAME, gemm_args)
{
    SHARED(float, a_tile, [GEMM_DEPTH][GEMM_PITCH]);
    SHARED(float, b_tile, [GEMM_DEPTH][GEMM_PITCH]);
    REGISTERS(float, sums, GEMM_EACH * GEMM_EACH, GEMM_THREADS);

    const int m0 = BLOCK_Y * GEMM_TILE;
    const int n0 = BLOCK_X * GEMM_TILE;
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

    PHASE(GEMM_THREADS)
    {
        for (int i = 0; i < GEMM_EACH * GEMM_EACH; i++) {
            MINE(sums)[i] = 0.0f;
        }
    }

    for (int k0 = k_first; k0 < k_last; k0 += GEMM_DEPTH) {
        TOGETHER(e, GEMM_TILE * GEMM_DEPTH, GEMM_THREADS)
        {
            const int kk = GEMM_A_TRANS ? e / GEMM_TILE : e % GEMM_DEPTH;
            const int mm = GEMM_A_TRANS ? e % GEMM_TILE : e / GEMM_DEPTH;
            const int row = GEMM_A_TRANS ? k0 + kk : m0 + mm;
            const int col = GEMM_A_TRANS ? m0 + mm : k0 + kk;
            float value = 0.0f;

            if (m0 + mm < k.m && k0 + kk < k_last) {
                value = k.a[a_first + (size_t)row * (size_t)k.lda +
                            (size_t)col];
            }
            a_tile[kk][mm] = value;
        }
        TOGETHER(e, GEMM_TILE * GEMM_DEPTH, GEMM_THREADS)
        {
            const int kk = GEMM_B_TRANS ? e % GEMM_DEPTH : e / GEMM_TILE;
            const int nn = GEMM_B_TRANS ? e / GEMM_DEPTH : e % GEMM_TILE;
            const int row = GEMM_B_TRANS ? n0 + nn : k0 + kk;
            const int col = GEMM_B_TRANS ? k0 + kk : n0 + nn;
            float value = 0.0f;

            if (n0 + nn < k.n && k0 + kk < k_last) {
                value = k.b[b_first + (size_t)row * (size_t)k.ldb +
                            (size_t)col];
            }
            b_tile[kk][nn] = value;
        }
        BARRIER();

        PHASE(GEMM_THREADS)
        {
            const int row = thread / GEMM_SIDE * GEMM_EACH;
            const int col = thread % GEMM_SIDE * GEMM_EACH;
            float sum[GEMM_EACH][GEMM_EACH];

            for (int i = 0; i < GEMM_EACH * GEMM_EACH; i++) {
                sum[i / GEMM_EACH][i % GEMM_EACH] = MINE(sums)[i];
            }
            for (int kk = 0; kk < GEMM_DEPTH; kk++) {
                for (int i = 0; i < GEMM_EACH; i++) {
                    for (int j = 0; j < GEMM_EACH; j++) {
                        sum[i][j] +=
                            a_tile[kk][row + i] * b_tile[kk][col + j];
                    }
                }
            }
            for (int i = 0; i < GEMM_EACH * GEMM_EACH; i++) {
                MINE(sums)[i] = sum[i / GEMM_EACH][i % GEMM_EACH];
            }
        }
        BARRIER();
    }

    PHASE(GEMM_THREADS)
    {
        const int row0 = m0 + thread / GEMM_SIDE * GEMM_EACH;
        const int col0 = n0 + thread % GEMM_SIDE * GEMM_EACH;

        for (int i = 0; i < GEMM_EACH * GEMM_EACH; i++) {
            const int row = row0 + i / GEMM_EACH;
            const int col = col0 + i % GEMM_EACH;

            if (row < k.m && col < k.n) {
                const size_t at =
                    c_first + (size_t)row * (size_t)k.ldc + (size_t)col;
                float value = k.alpha * MINE(sums)[i];

                if (k.bias != NULL) {
                    value += k.bias[col];
                }
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
#undef GEMM_PITCH
#undef GEMM_NAME
#undef GEMM_TILE
#undef GEMM_EACH
#undef GEMM_DEPTH
#undef GEMM_A_TRANS
#undef GEMM_B_TRANS
