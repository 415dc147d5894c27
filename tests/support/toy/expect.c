/*
 * expect.c - what must come out, followed on the CPU, and what has.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/toy/shared.h"

#include <stdlib.h>
#include <string.h>

uint32_t toy_feed_value(const struct toy *toy, uint32_t m, uint32_t which)
{
    return 1000 * toy->step + 10 * m + which + 1;
}

uint32_t toy_ramp_value(uint32_t i)
{
    return i * 2654435761u;
}

static uint32_t fed(const struct toy *toy, uint32_t m, uint32_t which,
                    uint32_t i)
{
    return i < toy_fed_words(toy, m)
               ? toy_feed_value(toy, m, which) + toy_ramp_value(i)
               : 0;
}

/* Word `i` of a group whose part reads `x`: what it adds to an output, or,
 * where `g` is the gradient of one, to that of `x`, and then to its sum. */
static uint32_t follow_group(struct toy *toy, uint32_t part, uint32_t k,
                             uint32_t n, uint32_t i, uint32_t x,
                             const uint32_t *g)
{
    uint32_t *sum =
        &toy->sums[(part * TOY_MAX_MODULES + k) * (size_t)toy->options.elems +
                   i];
    uint32_t added = 0;

    for (uint32_t t = 0; t < toy->options.tensors; t++) {
        const uint32_t of = x + toy_constant(toy, part, k, t);

        if (i < toy_tensor_words(n, t)) {
            added += g != NULL ? 7 * of : of;
            *sum += g != NULL ? of + *g : 0;
        }
    }
    return added;
}

static void follow_word(struct toy *toy, uint32_t m, uint32_t n, uint32_t i)
{
    const uint32_t groups = toy_groups(toy, false);
    uint32_t x[TOY_MAX_PARTS + 1], g = fed(toy, m, GH_BACKWARD, i);

    x[0] = fed(toy, m, GH_FORWARD, i);
    for (uint32_t p = 0; p < toy->n_parts; p++) {
        x[p + 1] = 3 * x[p] + p + 1;
        for (uint32_t k = p % 2; k < groups; k += 2) {
            x[p + 1] += follow_group(toy, p, k, n, i, x[p], NULL);
        }
        if (p % 2 == 1 && toy->options.across) {
            x[p + 1] += follow_group(toy, p - 1, 0, n, i, x[p - 1], NULL);
        }
    }
    for (uint32_t p = toy->n_parts; p-- > 0;) {
        uint32_t gx = 5 * g + x[p + 1];

        if (toy->options.modules == 0) {
            toy->sums[p * (size_t)toy->options.elems + i] += g + x[p + 1];
        }
        for (uint32_t k = p % 2; k < groups; k += 2) {
            gx += follow_group(toy, p, k, n, i, x[p], &g);
        }
        g = gx;
    }
}

void toy_expect(struct toy *toy, uint32_t m)
{
    const uint32_t n = toy_words(toy, m);

    for (uint32_t i = 0; i < n; i++) {
        follow_word(toy, m, n, i);
    }
}

/* ---- the sums of the device ---------------------------------------------- */

/* Twice where the first call is one that was made to fail: what is looked at is
 * the library's work. */
static void read_sums(struct toy *toy, void *to)
{
    const CUdeviceptr from = toy_sum(toy, 0, 0, 0);

    if (toy->drv.cuMemcpyDtoH(to, from, toy_sums_bytes(toy)) != CUDA_SUCCESS) {
        toy->drv.cuMemcpyDtoH(to, from, toy_sums_bytes(toy));
    }
}

static void write_sums(struct toy *toy, const void *from)
{
    const CUdeviceptr to = toy_sum(toy, 0, 0, 0);

    if (toy->drv.cuMemcpyHtoD(to, from, toy_sums_bytes(toy)) != CUDA_SUCCESS) {
        toy->drv.cuMemcpyHtoD(to, from, toy_sums_bytes(toy));
    }
}

static size_t expected_bytes(const struct toy *toy)
{
    return toy_n_sums(toy) * (size_t)toy->options.elems * 4;
}

/* Only the host's streams are waited for: what the library has under way on its
 * own stays so. */
static void wait_for_streams(struct toy *toy)
{
    for (uint32_t i = 0; i < TOY_STREAMS; i++) {
        toy->drv.cuStreamSynchronize(toy->streams[i]);
    }
}

void toy_keep_sums(struct toy *toy)
{
    wait_for_streams(toy);
    memcpy(toy->kept_sums, toy->sums, expected_bytes(toy));
    read_sums(toy, (char *)toy->kept_sums + expected_bytes(toy));
}

void toy_restore_sums(struct toy *toy)
{
    wait_for_streams(toy);
    memcpy(toy->sums, toy->kept_sums, expected_bytes(toy));
    write_sums(toy, (char *)toy->kept_sums + expected_bytes(toy));
    toy->drv.cuStreamSynchronize(NULL);
}

static bool is_exact(const struct toy *toy, const uint32_t *read, uint32_t sum)
{
    const size_t n = toy->options.elems;
    const size_t stride = toy_stride(toy->options.elems) / 4;

    for (size_t i = 0; i < n; i++) {
        uint32_t all = 0;

        for (size_t set = 0; set < toy->n_sets; set++) {
            all += read[(set * toy_n_sums(toy) + sum) * stride + i];
        }
        if (all != toy->sums[sum * n + i]) {
            return false;
        }
    }
    return true;
}

bool toy_is_exact(struct toy *toy)
{
    uint32_t *read = malloc(toy_sums_bytes(toy));
    bool exact = TOY_CALL(toy, cuCtxSynchronize, ()) && read != NULL;

    if (exact) {
        read_sums(toy, read);
    }
    for (uint32_t sum = 0; sum < toy_n_sums(toy) && exact; sum++) {
        exact = is_exact(toy, read, sum);
    }
    free(read);
    return exact;
}
