/*
 * shapes.h - the smallest host of several shapes: integer layers over as many
 * words as a microbatch has.
 *
 * A layer computes y = 3 x + k, and its backward gx = 5 gy + y; the backward of
 * the first adds gx + y to a sum of its set.  What the first layer and the last
 * one's backward read lies elsewhere each time, so the library copies it.  All
 * shapes of a set lie in the same memory, and words behind a shape's must stay
 * as they are.  The sums are followed on the CPU.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SUPPORT_SHAPES_H
#define SUPPORT_SHAPES_H

#include "support/toy.h"

#define SHAPES_FEEDS 16
#define SHAPES_SLOTS 4
#define SHAPES_SETS (SHAPES_SLOTS + SHAPES_FEEDS)
#define SHAPES_LAYERS 4
#define SHAPES_MOST 64 /* shapes */

struct shapes_options {
    uint32_t layers;    /* 0: 2 */
    uint32_t elems;     /* of the largest shape */
    uint32_t slots;     /* 0: SHAPES_SLOTS */
    uint32_t in_flight; /* 0: 1 */
    uint32_t streams;   /* that microbatches take in turn; 0: 1 */
    bool by_capacity;   /* inputs have what a microbatch has, and banks what
                           there may be */
    bool free_running;  /* does not wait for the device after a step */
    const char *family;
    const char *const *environment;
    const gh_host_services *host;
};

struct shapes {
    struct shapes_options options;
    struct toy toy; /* its session is the host's */
    CUdeviceptr memory;
    uint32_t n_shapes;
    uint32_t bank[SHAPES_MOST], elems[SHAPES_MOST];
    struct {
        uint32_t set, shape, words; /* of inputs that are not zero */
        CUstream stream;
    } flight[SHAPES_FEEDS];
    uint32_t taken; /* bit i: the host's own set i is in use */
    uint32_t step;
    uint32_t *feeds;  /* [2][SHAPES_FEEDS][elems], as on the device */
    uint32_t *expect; /* [SHAPES_SETS][elems] */
    void *group;      /* of the passes; NULL: not said */
    uint32_t less;    /* by_capacity: how many words a microbatch lacks */
    uint32_t short_checks; /* compared passes whose input was no shape's */
    gh_decision last; /* of the last pass that was entered */
    gh_error err;
};

bool shapes_open(struct shapes *s, const struct shapes_options *options,
                 const char **reason_p);
void shapes_close(struct shapes *s);

/* A shape of so many words, in a bank of its own; of bank 0 where `desc` is
 * NULL.  Returns its index here. */
uint32_t shapes_add(struct shapes *s, uint32_t elems, const gh_bank_desc *desc);
/* The same with a plain bank of so many tokens. */
uint32_t shapes_add_tokens(struct shapes *s, uint32_t elems);

gh_status shapes_forward(struct shapes *s, uint32_t m, uint32_t shape);
gh_status shapes_backward(struct shapes *s, uint32_t m);
/* Ends a step, waits unless the host runs freely. */
void shapes_end(struct shapes *s);
/* Forward and backward of microbatches of these shapes, and the end. */
gh_status shapes_step(struct shapes *s, const uint32_t *shapes, uint32_t n);

/* Whether every sum is what it must be; waits for the device. */
bool shapes_are_exact(struct shapes *s);
gh_bank_stats shapes_stats(struct shapes *s, uint32_t shape);

#endif
