/*
 * layers.c - see layers.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "bench/layers.h"

#include <stdlib.h>
#include <string.h>

/* How many small kernels a node has besides its products: as many as in a layer
 * of the engine's moe. */
static const int launches[EXPERTS_DIRECTIONS][STAGES] = {
    [GH_FORWARD] = { [STAGE_BEFORE] = 9, [STAGE_EXPERTS] = 2,
                     [STAGE_AFTER] = 1 },
    [GH_BACKWARD] = { [STAGE_BEFORE] = 10, [STAGE_EXPERTS] = 2,
                      [STAGE_AFTER] = 1 },
    [GH_WGRAD] = { [STAGE_BEFORE] = 6, [STAGE_EXPERTS] = 1 },
};

/* What a layer writes, in each set of buffers. */
enum place {
    TO_EXPERTS,   /* sent by the dispatch */
    AT_EXPERTS,   /* received */
    FROM_EXPERTS, /* sent by the combine */
    LAYER_OUT,    /* received */
    GRAD_FROM,    /* backward: received by the combine */
    GRAD_AT,      /* sent by the dispatch */
    GRAD_TO,      /* received */
    GRAD_IN,      /* of the layer's input */
    PLACES
};
_Static_assert((int)PLACES == (int)LAYERS_PLACES, "what memory is asked for");

/* ---- places -------------------------------------------------------------- */

static CUdeviceptr at(const struct layers *l, const struct experts_node *node,
                      uint32_t layer, enum place place)
{
    return l->memory +
           (((uint64_t)node->set * l->n + layer) * PLACES + place) *
               l->room;
}

static CUdeviceptr matrix(const struct layers *l, CUdeviceptr all,
                          uint32_t layer, enum stage stage)
{
    return all +
           (2 * layer + (stage == STAGE_EXPERTS)) *
               (uint64_t)l->products->bytes;
}

/* The address that a node reads. */
static CUdeviceptr input_of(const struct layers *l,
                            const struct experts_node *node)
{
    static const enum place forward[] = { LAYER_OUT, TO_EXPERTS, AT_EXPERTS,
                                          FROM_EXPERTS, LAYER_OUT };
    static const enum place backward[] = { GRAD_TO, GRAD_AT, GRAD_FROM, GRAD_IN,
                                           GRAD_IN };
    const uint32_t layer = node->layer;

    if (node->direction == GH_FORWARD) {
        if (node->stage != STAGE_BEFORE) {
            return at(l, node, layer, forward[node->stage]);
        }
        return layer == 0 ? l->fixed : at(l, node, layer - 1, LAYER_OUT);
    }
    if (node->stage < STAGE_COMBINE) {
        return at(l, node, layer, backward[node->stage]);
    }
    return layer + 1 == l->n ? l->fixed + l->room
                                  : at(l, node, layer + 1, GRAD_IN);
}

static CUdeviceptr output_of(const struct layers *l,
                             const struct experts_node *node)
{
    static const enum place forward[] = { TO_EXPERTS, AT_EXPERTS, FROM_EXPERTS,
                                          LAYER_OUT, LAYER_OUT };
    static const enum place backward[] = { GRAD_IN, GRAD_TO, GRAD_AT,
                                           GRAD_FROM };

    if (node->direction == GH_WGRAD) {
        return matrix(l, l->gradients, node->layer, node->stage);
    }
    if (node->direction == GH_FORWARD) {
        return at(l, node, node->layer, forward[node->stage]);
    }
    return node->stage == STAGE_AFTER
               ? input_of(l, node)
               : at(l, node, node->layer, backward[node->stage]);
}

gh_buffer layers_buffer(void *user, const struct experts_node *node,
                        bool output)
{
    const struct layers *l = user;
    const bool weight = output && node->direction == GH_WGRAD;

    return (gh_buffer){
        .address = (void *)(uintptr_t)(output ? output_of(l, node)
                                              : input_of(l, node)),
        .bytes = l->products->bytes,
        .flags = weight   ? GH_BUFFER_UPDATED
                 : output ? 0
                          : GH_BUFFER_STATIC,
    };
}

bool layers_take_turns(const struct experts_node *node)
{
    return node->direction != GH_FORWARD || node->stage != STAGE_DISPATCH ||
           node->layer != 0;
}

/* ---- nodes --------------------------------------------------------------- */

static void multiply(const struct layers *l, const struct experts_node *node)
{
    const enum stage stage = node->stage;
    const void *weight =
        (void *)(uintptr_t)matrix(l, l->weights, node->layer, stage);
    const void *in = (void *)(uintptr_t)input_of(l, node);
    void *out = (void *)(uintptr_t)output_of(l, node);
    struct experts_node forward = *node;

    forward.direction = GH_FORWARD;
    if (node->direction == GH_FORWARD) {
        product(l->products, GEMM_NN, in, weight, out, false, node->stream);
    } else if (node->direction == GH_BACKWARD) {
        product(l->products, GEMM_NT, in, weight, out, false, node->stream);
    } else {
        product(l->products, GEMM_TN,
                (void *)(uintptr_t)input_of(l, &forward), in, out, true,
                node->stream);
    }
}

void layers_issue(void *user, const struct experts_node *node)
{
    const struct layers *l = user;
    const int products = node->stage == STAGE_BEFORE    ? l->before
                         : node->stage == STAGE_EXPERTS ? l->experts
                                                        : 0;

    if (node->stage == STAGE_DISPATCH || node->stage == STAGE_COMBINE) {
        if (l->exchange != NULL) {
            l->exchange(l->user, node, input_of(l, node), output_of(l, node));
        }
    } else if (l->computes) {
        bench_launch(l->bench,
                     (uint32_t)launches[node->direction][node->stage],
                     node->stream);
        for (int i = 0; i < products; i++) {
            multiply(l, node);
        }
    }
}

/* ---- numbers ------------------------------------------------------------- */

static void fill(const struct layers *l, CUdeviceptr to, void *numbers,
                 uint64_t bytes, uint32_t seed)
{
    products_fill(l->products, numbers, bytes, seed);
    NEED(l->bench, cuMemcpyHtoD, (to, numbers, bytes));
}

static void fill_all(const struct layers *l, uint32_t seed)
{
    const struct bench *bench = l->bench;
    const uint64_t bytes = l->products->bytes;
    void *numbers = malloc(l->room);

    if (numbers == NULL) {
        bench_die("no memory");
    }
    NEED(bench, cuMemsetD32Async,
         (l->memory, 0x3c003c00u, l->memory_bytes / 4, bench->stream));
    for (uint32_t i = 0; i < 2 * l->n; i++) {
        fill(l, l->weights + i * bytes, numbers, bytes, seed + 2 + i);
    }
    for (uint32_t i = 0; i < 2; i++) {
        fill(l, l->fixed + i * l->room, numbers, l->room, seed + 100 + i);
    }
    free(numbers);
    layers_forget(l);
    NEED(bench, cuCtxSynchronize, ());
}

void layers_open(struct layers *l, const struct products *products, uint32_t n,
                 uint64_t room, uint32_t seed)
{
    const struct bench *bench = products->bench;

    memset(l, 0, sizeof(*l));
    l->bench = bench;
    l->products = products;
    l->n = n;
    l->before = l->experts = 1;
    l->computes = true;
    l->room = room;
    l->memory_bytes = (uint64_t)EXPERTS_SETS * n * PLACES * room;
    l->gradients_bytes = 2 * n * (uint64_t)products->bytes;
    NEED(bench, cuMemAlloc, (&l->memory, l->memory_bytes));
    NEED(bench, cuMemAlloc, (&l->fixed, 2 * room));
    NEED(bench, cuMemAlloc, (&l->weights, l->gradients_bytes));
    NEED(bench, cuMemAlloc, (&l->gradients, l->gradients_bytes));
    fill_all(l, seed);
}

void layers_close(struct layers *l)
{
    NEED(l->bench, cuMemFree, (l->memory));
    NEED(l->bench, cuMemFree, (l->fixed));
    NEED(l->bench, cuMemFree, (l->weights));
    NEED(l->bench, cuMemFree, (l->gradients));
}

void layers_forget(const struct layers *l)
{
    NEED(l->bench, cuMemsetD8Async,
         (l->gradients, 0, l->gradients_bytes, l->bench->stream));
}

uint64_t layers_hash(const struct layers *l)
{
    enum { LOOKED_AT = 4096 };
    const uint64_t bytes = l->products->bytes;
    const uint64_t looked = bytes < LOOKED_AT ? bytes : LOOKED_AT;
    unsigned char read[LOOKED_AT];
    uint64_t hash = UINT64_C(0xcbf29ce484222325);

    for (uint64_t i = 0; i < 2 * l->n; i++) {
        NEED(l->bench, cuMemcpyDtoH,
             (read, l->gradients + (i + 1) * bytes - looked, looked));
        for (uint64_t k = 0; k < looked; k++) {
            hash = (hash ^ read[k]) * UINT64_C(0x100000001b3);
        }
    }
    return hash;
}
