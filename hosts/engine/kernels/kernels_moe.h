/*
 * kernels_moe.h - kernels of a mixture of experts; kernels.cu includes it.
 *
 * A choice is a row and one of its experts; choices are numbered row by row.
 * A slot is a place in the experts' order.  Which choice is in which slot
 * depends only on the order of the choices.
 *
 * SPDX-License-Identifier: Apache-2.0
 */

/* Softmax over all experts, then the best experts; the first wins between
 * equals. */
KERNEL(moe_route_forward, moe_route_args)
{
    PHASE(moe_route_forward_threads)
    {
        const int row = GLOBAL_INDEX(moe_route_forward_threads);

        if (row < k.rows) {
            float *scores = k.scores + row * k.experts;
            int *choice = k.choice + row * k.top;
            float top = scores[0];
            float sum = 0.0f;

            for (int e = 1; e < k.experts; e++) {
                top = FOLD_MAX(top, scores[e]);
            }
            for (int e = 0; e < k.experts; e++) {
                scores[e] = expf(scores[e] - top);
                sum += scores[e];
            }
            for (int e = 0; e < k.experts; e++) {
                scores[e] /= sum;
            }
            for (int j = 0; j < k.top; j++) {
                int best = -1;

                for (int e = 0; e < k.experts; e++) {
                    int taken = 0;

                    for (int i = 0; i < j; i++) {
                        taken |= choice[i] == e;
                    }
                    if (!taken && (best < 0 || scores[e] > scores[best])) {
                        best = e;
                    }
                }
                choice[j] = best;
                k.prob[row * k.top + j] = scores[best];
            }
        }
    }
}

KERNEL(moe_route_backward, moe_route_backward_args)
{
    PHASE(moe_route_backward_threads)
    {
        const int row = GLOBAL_INDEX(moe_route_backward_threads);

        if (row < k.rows) {
            const float *scores = k.scores + row * k.experts;
            const int *choice = k.choice + row * k.top;
            const float *d_prob = k.d_prob + row * k.top;
            float sum = 0.0f;

            for (int j = 0; j < k.top; j++) {
                sum += scores[choice[j]] * d_prob[j];
            }
            for (int e = 0; e < k.experts; e++) {
                float d = -sum;

                for (int j = 0; j < k.top; j++) {
                    if (choice[j] == e) {
                        d += d_prob[j];
                    }
                }
                k.d_logits[row * k.experts + e] = scores[e] * d;
            }
        }
    }
}

/* BLOCK_X is an expert.  Each thread takes a run of choices: it counts its own,
 * learns how many come before, and then places them. */
KERNEL(moe_place, moe_place_args)
{
    SHARED(int, mine, [moe_place_threads]);
    SHARED(int, lower, [moe_place_threads]);
    SHARED(int, total, [2]); /* the first slot, and the number of choices */
    const int each = (k.n + moe_place_threads - 1) / moe_place_threads;

    PHASE(moe_place_threads)
    {
        int equal = 0;
        int less = 0;

        for (int i = thread * each; i < (thread + 1) * each && i < k.n; i++) {
            equal += k.choice[i] == BLOCK_X;
            less += k.choice[i] < BLOCK_X;
        }
        mine[thread] = equal;
        lower[thread] = less;
    }
    BARRIER();
    PHASE(moe_place_threads)
    {
        if (thread == 0) {
            int first = 0;
            int count = 0;

            for (int i = 0; i < moe_place_threads; i++) {
                const int here = mine[i];

                first += lower[i];
                mine[i] = count;
                count += here;
            }
            if (k.capacity > 0) {
                first = BLOCK_X * k.capacity;
                count = count < k.capacity ? count : k.capacity;
            }
            total[0] = first;
            total[1] = count;
            k.first[BLOCK_X] = first;
            k.counts[BLOCK_X] = count;
        }
    }
    BARRIER();
    PHASE(moe_place_threads)
    {
        int rank = mine[thread];

        for (int i = thread * each; i < (thread + 1) * each && i < k.n; i++) {
            if (k.choice[i] == BLOCK_X) {
                k.slot[i] = rank < total[1] ? total[0] + rank : -1;
                if (rank < total[1]) {
                    k.source[total[0] + rank] = i;
                }
                rank++;
            }
        }
    }
    TOGETHER(i, k.capacity - total[1], moe_place_threads)
    {
        k.source[total[0] + total[1] + i] = -1;
    }
}

KERNEL(moe_blocks, moe_blocks_args)
{
    PHASE(moe_blocks_threads)
    {
        const int i = GLOBAL_INDEX(moe_blocks_threads);

        if (i < k.ranks * k.n) {
            const int rank = i / k.n;
            const int row = k.first[rank * k.own] + i % k.n;
            const int end =
                rank + 1 < k.ranks ? k.first[(rank + 1) * k.own] : k.n;

            k.block_source[i] = row < end ? k.source[row] : -1;
        }
        if (i < k.n) {
            const int rank = k.choice[i] / k.own;

            k.block_slot[i] = rank * k.n + k.slot[i] - k.first[rank * k.own];
        }
    }
}

KERNEL(moe_received, moe_received_args)
{
    PHASE(moe_received_threads)
    {
        if (thread < k.ranks) {
            int rows = 0;

            for (int e = 0; e < k.own; e++) {
                const int at = thread * k.own + e;

                k.first[at] = rows;
                k.counts[at] =
                    k.all_counts[thread * k.experts + k.own_first + e];
                rows += k.counts[at];
            }
            k.rows[thread] = rows;
        }
    }
}

KERNEL(moe_gather, moe_gather_args)
{
    PHASE(moe_gather_threads)
    {
        const int i = GLOBAL_INDEX(moe_gather_threads);

        if (i < k.rows * k.cols) {
            const int from = k.map[i / k.cols];

            k.y[i] =
                from < 0 ? 0.0f : k.x[from / k.share * k.cols + i % k.cols];
        }
    }
}

KERNEL(moe_gather_sum, moe_gather_sum_args)
{
    PHASE(moe_gather_sum_threads)
    {
        const int i = GLOBAL_INDEX(moe_gather_sum_threads);

        if (i < k.rows * k.cols) {
            const int *map = k.map + i / k.cols * k.share;
            float sum = 0.0f;

            for (int j = 0; j < k.share; j++) {
                if (map[j] >= 0) {
                    sum += k.x[map[j] * k.cols + i % k.cols];
                }
            }
            k.y[i] = sum;
        }
    }
}

KERNEL(moe_post_forward, moe_post_args)
{
    PHASE(moe_post_forward_threads)
    {
        const int i = GLOBAL_INDEX(moe_post_forward_threads);

        if (i < k.rows * k.cols) {
            const int first = i / k.cols * k.top;
            float sum = 0.0f;

            for (int j = 0; j < k.top; j++) {
                sum +=
                    k.prob[first + j] * k.x[(first + j) * k.cols + i % k.cols];
            }
            k.out[i] = k.base[i] + sum;
        }
    }
}

/* A block has four rows, and takes the choices of each one after the other. */
KERNEL(moe_post_backward, moe_post_backward_args)
{
    SHARED(float, fold, [ROW_THREADS]);

    for (int j = 0; j < k.top; j++) {
        PHASE(ROW_THREADS)
        {
            const int row = ROW_OF(thread);
            float sum = 0.0f;

            if (row < k.rows) {
                const int choice = row * k.top + j;

                for (int c = ROW_LANE(thread); c < k.cols; c += ROW_LANES) {
                    const float dy = k.dy[row * k.cols + c];

                    k.dx[choice * k.cols + c] = k.prob[choice] * dy;
                    sum += k.x[choice * k.cols + c] * dy;
                }
            }
            fold[thread] = sum;
        }
        ROW_TREE(fold, FOLD_SUM);
        PHASE(ROW_THREADS)
        {
            const int row = ROW_OF(thread);

            if (row < k.rows && ROW_LANE(thread) == 0) {
                k.d_prob[row * k.top + j] = fold[thread];
            }
        }
        BARRIER();
    }
    if (k.d_base != NULL) {
        PHASE(ROW_THREADS)
        {
            const int row = ROW_OF(thread);

            if (row < k.rows) {
                for (int c = ROW_LANE(thread); c < k.cols; c += ROW_LANES) {
                    k.d_base[row * k.cols + c] = k.dy[row * k.cols + c];
                }
            }
        }
    }
}

KERNEL(copy, copy_args)
{
    PHASE(copy_threads)
    {
        const int i = GLOBAL_INDEX(copy_threads);

        if (i < k.n) {
            k.y[i] = k.x[i];
        }
    }
}
