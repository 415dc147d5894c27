/*
 * expect.c - what must come out, followed on the CPU, and what has.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/pair/shared.h"

/* A tensor of a group; 0: there is none. */
static uint32_t kept(const struct pair *p, uint32_t q, uint32_t g, uint32_t x)
{
    const uint32_t *modules;

    return g < pair_groups_of(p, q, &modules) ? x + pair_above(p, q, g) : 0;
}

static void expect_microbatch(const struct pair *p, uint32_t x, uint32_t gy,
                              uint32_t *weights)
{
    uint32_t in[PAIR_MAX_PARTS], out[PAIR_MAX_PARTS];
    uint32_t residual[PAIR_MAX_LAYERS] = { 0 };
    uint32_t gradient[PAIR_MAX_LAYERS] = { 0 };

    for (uint32_t q = 0; q < p->n_parts; q++) {
        x = pair_begins_depth(p, q) ? 11 * x + 13 : x;
        in[q] = x;
        if (p->parts[q] == GH_PART_MOE_ROUTER) {
            residual[p->layer_of[q]] = 7 * x + 1;
        }
        x = 3 * x + q + 1 +
            (p->parts[q] == GH_PART_MOE_POST ? residual[p->layer_of[q]] : 0) +
            kept(p, q, 0, x) + kept(p, q, 1, x);
        out[q] = x;
    }
    for (uint32_t q = p->n_parts; q-- > 0;) {
        const gh_part part = p->parts[q];

        if (pair_has_weights(part)) {
            weights[q] = 3 * weights[q] + gy + kept(p, q, 0, in[q]) +
                         (pair_is_lent(p, q, 0) ? 0 : in[q]);
        }
        if (part == GH_PART_MOE_POST) {
            gradient[p->layer_of[q]] = 2 * gy;
        }
        gy = 5 * gy +
             (pair_is_exchange(part) || pair_is_lent(p, q, 0) ? 0 : in[q]) +
             kept(p, q, pair_has_weights(part), in[q]);
        if (part == GH_PART_MOE_ROUTER) {
            gy += 7 * gradient[p->layer_of[q]];
        }
        gy = pair_begins_depth(p, q) ? 11 * gy + out[q - 1] : gy;
    }
}

uint64_t pair_expect(const struct pair *p, const uint32_t *steps,
                     uint32_t n_steps)
{
    uint32_t weights[PAIR_MAX_PARTS] = { 0 };
    uint64_t hash = 0;

    for (uint32_t s = 0; s < n_steps; s++) {
        for (uint32_t m = 0; m < steps[s]; m++) {
            expect_microbatch(p, pair_feed_value(s, m, 0),
                              pair_feed_value(s, m, 1), weights);
        }
    }
    for (uint32_t i = 0; i < p->n_parts * PAIR_ELEMS; i++) {
        hash = pair_fold(hash, weights[i / PAIR_ELEMS]);
    }
    return hash;
}

uint64_t pair_hash(struct pair *p)
{
    uint32_t values[PAIR_ELEMS];
    uint64_t hash = 0;

    PAIR_CALL(p, cuCtxSynchronize, ());
    for (uint32_t q = 0; q < p->n_parts; q++) {
        if (!PAIR_CALL(p, cuMemcpyDtoH,
                       (values, pair_weight(p, q), sizeof(values)))) {
            return 0;
        }
        for (uint32_t i = 0; i < PAIR_ELEMS; i++) {
            hash = pair_fold(hash, values[i]);
        }
    }
    return hash;
}
