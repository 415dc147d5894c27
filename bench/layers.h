/*
 * layers.h - what the layers of a host with experts compute, and where it
 * lies.
 *
 * A compute node multiplies matrices, beside as many small kernels as a layer
 * of gh-engine's moe has there.  A node reads what the one before it has
 * computed or received, so a wait that is missing changes the numbers.  What an
 * exchange does, a bench gives.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef BENCH_LAYERS_H
#define BENCH_LAYERS_H

#include "bench/experts.h"
#include "bench/product.h"

enum { LAYERS_PLACES = 8 /* of a layer, in each set */ };

struct layers {
    const struct bench *bench;
    const struct products *products;
    uint32_t n;
    int before, experts; /* products in a node, of every direction */
    uint64_t room;       /* bytes of a place: of a matrix or more */

    CUdeviceptr memory; /* all places; memory_bytes */
    uint64_t memory_bytes;
    CUdeviceptr fixed;              /* the input, the gradient of the output */
    CUdeviceptr weights, gradients; /* two matrices for each layer */
    uint64_t gradients_bytes;

    bool computes; /* else compute nodes issue nothing */
    /* From where a node sends to where it receives; NULL: nothing is sent. */
    void (*exchange)(void *user, const struct experts_node *node,
                     CUdeviceptr from, CUdeviceptr to);
    void *user;
};

/* Memory for `n` layers and places of `room` bytes, with numbers of `seed`. */
void layers_open(struct layers *l, const struct products *products, uint32_t n,
                 uint64_t room, uint32_t seed);
void layers_close(struct layers *l);

/* Of a struct experts_work; `user` is the layers. */
void layers_issue(void *user, const struct experts_node *node);
gh_buffer layers_buffer(void *user, const struct experts_node *node,
                        bool output);

/* Whether all that reads what the node's exchange writes is before the exchange
 * before it, so that they may be in turn.  Delayed weight gradients end the
 * work of a microbatch beside the next one's exchanges; its forward comes after
 * them from its first dispatch on. */
bool layers_take_turns(const struct experts_node *node);

/* Of the gradients of all weights, after they were zeroed and a step. */
void layers_forget(const struct layers *l);
uint64_t layers_hash(const struct layers *l);

#endif
