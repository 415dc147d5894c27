/*
 * expect.c - what must come out, computed on the host, and what has.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/toy/shared.h"

#include <stdlib.h>
#include <string.h>

uint64_t toy_fold(uint64_t hash, uint32_t word)
{
    return (hash ^ word) * UINT64_C(1099511628211);
}

static void add_weights(struct toy *toy, uint32_t set, uint32_t part,
                        uint32_t *part_of, uint32_t *sum)
{
    const uint32_t n = toy->options.elems;

    TOY_CALL(toy, cuMemcpyDtoH,
             (part_of, toy_weight(toy, set, part), 4 * (size_t)n));
    for (uint32_t i = 0; i < n; i++) {
        sum[i] += part_of[i];
    }
}

uint64_t toy_hash(struct toy *toy)
{
    const uint32_t n = toy->options.elems;
    uint32_t *part_of = calloc(2 * (size_t)n, 4), *sum = part_of + n;
    uint64_t hash = UINT64_C(14695981039346656037);

    TOY_CALL(toy, cuCtxSynchronize, ());
    for (uint32_t p = 0; p < toy->n_parts; p++) {
        memset(sum, 0, 4 * (size_t)n);
        for (uint32_t set = 0; set < toy->n_sets; set++) {
            add_weights(toy, set, p, part_of, sum);
        }
        for (uint32_t i = 0; i < n; i++) {
            hash = toy_fold(hash, sum[i]);
        }
    }
    free(part_of);
    return hash;
}

uint64_t toy_expect(const struct toy_options *options, const uint32_t *steps,
                    uint32_t n_steps)
{
    const uint32_t n_parts = 2 * options->layers;
    uint32_t weights[TOY_MAX_PARTS] = { 0 };
    uint32_t y[TOY_MAX_PARTS + 1];
    uint64_t hash = UINT64_C(14695981039346656037);

    for (uint32_t s = 0; s < n_steps; s++) {
        for (uint32_t m = 0; m < steps[s]; m++) {
            uint32_t g = toy_feed_value(s, m, 1);

            y[0] = toy_feed_value(s, m, 0);
            for (uint32_t p = 0; p < n_parts; p++) {
                y[p + 1] = 3 * y[p] + p + 1;
            }
            for (uint32_t p = n_parts; p-- > 0;) {
                weights[p] += g + y[p + 1];
                g = 5 * g + y[p + 1];
            }
        }
    }
    for (uint32_t p = 0; p < n_parts; p++) {
        for (uint32_t i = 0; i < options->elems; i++) {
            hash = toy_fold(hash, weights[p]);
        }
    }
    return hash;
}
