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

void pair_expect(struct pair *p, uint32_t m)
{
    uint32_t x = toy_feed_value(&p->toy, m, 0);
    uint32_t gy = toy_feed_value(&p->toy, m, 1);
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
            p->weights[q] = 3 * p->weights[q] + gy + kept(p, q, 0, in[q]) +
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

bool pair_is_exact(struct pair *p)
{
    uint32_t values[PAIR_ELEMS];
    bool exact = TOY_CALL(&p->toy, cuCtxSynchronize, ());

    for (uint32_t q = 0; q < p->n_parts && exact; q++) {
        exact = TOY_CALL(&p->toy, cuMemcpyDtoH,
                         (values, pair_weight(p, q), sizeof(values)));
        for (uint32_t i = 0; i < PAIR_ELEMS; i++) {
            exact = exact && values[i] == p->weights[q];
        }
    }
    return exact;
}
