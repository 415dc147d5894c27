/*
 * device.c - where the buffers lie.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/pair/shared.h"

bool pair_mix(struct pair *p, CUdeviceptr d, CUdeviceptr a, CUdeviceptr b,
              uint32_t f, uint32_t k, CUstream stream)
{
    return toy_mixes(&p->toy, d, a, b, f, k, PAIR_ELEMS, stream);
}

CUstream pair_compute(const struct pair *p)
{
    return p->options.legacy ? NULL : p->toy.streams[0];
}

/* ---- memory -------------------------------------------------------------- */

/* How many of each a set has. */
static const uint32_t places[AT_PLACES] = { PAIR_MAX_PARTS,  PAIR_MAX_PARTS,
                                            PAIR_MAX_LAYERS, PAIR_MAX_LAYERS,
                                            PAIR_MAX_LAYERS, PAIR_MAX_LAYERS,
                                            PAIR_MAX_CHUNKS, PAIR_MAX_CHUNKS };

static uint32_t in_a_set(void)
{
    uint32_t n = 0;

    for (int i = 0; i < AT_PLACES; i++) {
        n += places[i];
    }
    return n;
}

CUdeviceptr pair_at(const struct pair *p, uint32_t set, enum pair_place place,
                    uint32_t i)
{
    uint32_t n = set * in_a_set() + i;

    for (int w = 0; w < (int)place; w++) {
        n += places[w];
    }
    return p->memory + (uint64_t)n * PAIR_STRIDE;
}

CUdeviceptr pair_weight(const struct pair *p, uint32_t part)
{
    return p->memory +
           (uint64_t)(PAIR_MAX_SETS * in_a_set() + part) * PAIR_STRIDE;
}

CUdeviceptr pair_feed_at(const struct pair *p, bool forward, uint32_t chunk,
                         uint32_t m)
{
    const uint32_t n = ((forward ? 0 : 1) * (PAIR_MAX_CHUNKS + 1) + chunk) *
                           PAIR_MAX_MICROBATCHES +
                       m;

    return pair_weight(p, PAIR_MAX_PARTS + n);
}

uint64_t pair_memory_bytes(void)
{
    return (uint64_t)(PAIR_MAX_SETS * in_a_set() + PAIR_MAX_PARTS +
                      2 * (PAIR_MAX_CHUNKS + 1) * PAIR_MAX_MICROBATCHES) *
           PAIR_STRIDE;
}

/* ---- what a part reads and writes ---------------------------------------- */

CUdeviceptr pair_output_of(const struct pair *p, uint32_t set, uint32_t q)
{
    return q + 1 < p->n_parts && pair_is_lent(p, q + 1, 0)
               ? p->lent[set][q + 1]->address
               : pair_at(p, set, AT_OUT, q);
}

CUdeviceptr pair_input_of(const struct pair *p, const struct pair_work *w,
                          uint32_t q)
{
    if (pair_begins_depth(p, q)) {
        return pair_at(p, w->set, AT_DEPTH, p->layer_of[q]);
    }
    return pair_begins_chunk(p, q) ? pair_at(p, w->set, AT_INPUT, w->chunk)
                                   : pair_output_of(p, w->set, q - 1);
}

CUdeviceptr pair_gradient_after(const struct pair *p, uint32_t set, uint32_t q)
{
    return pair_begins_depth(p, q + 1)
               ? pair_at(p, set, AT_DEPTH_GRAD, p->layer_of[q + 1])
               : pair_at(p, set, AT_GRAD, q + 1);
}
