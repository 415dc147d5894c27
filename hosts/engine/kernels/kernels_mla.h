/*
 * kernels_mla.h - kernels of latent attention; kernels.cu includes it.
 *
 * A head has `nope` plain columns and `rope` columns that are turned by the
 * position.  Pair j of these is columns j and j + rope / 2.  A row of the
 * table has the cosines of the pairs, then their sines.
 *
 * SPDX-License-Identifier: Apache-2.0
 */

/* The row of the table for a row; the table has `seq` rows. */
#define TURN_OF(row) ((k.places != NULL ? k.places[row] : (row)) % k.seq)

KERNEL(mla_turn_forward, mla_turn_args)
{
    PHASE(mla_turn_forward_threads)
    {
        const int i = GLOBAL_INDEX(mla_turn_forward_threads);
        const int qk = k.nope + k.rope;

        if (i < k.rows * k.heads * qk) {
            const int row = i / (k.heads * qk);
            const int col = i % qk;
            const float *x = k.x + i / qk * k.head;

            if (col < k.nope) {
                k.y[i] = x[col];
            } else {
                const int half = k.rope / 2;
                const int j = (col - k.nope) % half;
                const float *turned =
                    k.shared != NULL ? k.shared + row * k.rope : x + k.nope;
                const float *rotary = k.rotary + TURN_OF(row) * k.rope;
                const float a = turned[j];
                const float b = turned[j + half];

                k.y[i] = col - k.nope < half
                             ? a * rotary[j] - b * rotary[j + half]
                             : a * rotary[j + half] + b * rotary[j];
            }
        }
    }
}

KERNEL(mla_turn_backward, mla_turn_backward_args)
{
    PHASE(mla_turn_backward_threads)
    {
        const int i = GLOBAL_INDEX(mla_turn_backward_threads);
        const int qk = k.nope + k.rope;

        if (i < k.rows * k.heads * qk) {
            const int row = i / (k.heads * qk);
            const int col = i % qk;
            float *dx = k.dx + i / qk * k.head;

            if (col < k.nope) {
                dx[col] = k.dy[i];
            } else if (k.own) {
                const int half = k.rope / 2;
                const int j = (col - k.nope) % half;
                const float *dy = k.dy + i / qk * qk + k.nope;
                const float *rotary = k.rotary + TURN_OF(row) * k.rope;
                const float a = dy[j];
                const float b = dy[j + half];

                dx[col] = col - k.nope < half
                              ? a * rotary[j] + b * rotary[j + half]
                              : b * rotary[j] - a * rotary[j + half];
            }
        }
    }
}

/* What all heads share gets the sum of their gradients. */
KERNEL(mla_shared_backward, mla_shared_args)
{
    PHASE(mla_shared_backward_threads)
    {
        const int i = GLOBAL_INDEX(mla_shared_backward_threads);

        if (i < k.rows * k.rope) {
            const int row = i / k.rope;
            const int half = k.rope / 2;
            const int j = i % k.rope % half;
            const float *rotary = k.rotary + TURN_OF(row) * k.rope;
            float sum = 0.0f;

            for (int h = 0; h < k.heads; h++) {
                const float *dy =
                    k.dy + (row * k.heads + h) * (k.nope + k.rope) + k.nope;
                const float a = dy[j];
                const float b = dy[j + half];

                sum += i % k.rope < half ? a * rotary[j] + b * rotary[j + half]
                                         : b * rotary[j] - a * rotary[j + half];
            }
            k.dx[i] = sum;
        }
    }
}
