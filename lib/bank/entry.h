/*
 * entry.h - the graph of one pass, and what a replay of it needs.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_BANK_ENTRY_H
#define GH_BANK_ENTRY_H

#include <graphhooks/layer.h>

#include "offload/step.h"

#include <stdbool.h>

enum gh_entry_state {
    GH_ENTRY_NEW = 0,
    GH_ENTRY_READY = 1,
    GH_ENTRY_EAGER = 2 /* for good, by entry->reason */
};

/* gh_entry.filled of an input that has no capacity. */
#define GH_ALL_FILLED UINT64_MAX

/* How a recorded graph finds an input. */
enum gh_input_kind {
    GH_INPUT_STATIC,  /* the host promised that the address stays */
    GH_INPUT_CHAINED, /* it is the output of another entry of the slot */
    GH_INPUT_COPIED   /* copied into the entry's own buffer first */
};

struct gh_block;
struct gh_shelf;

/* One (segment, direction, variant, slot) of a bank. */
struct gh_entry {
    uint8_t state;
    uint8_t reason;
    bool unchained;   /* chaining was tried, and the address moved */
    uint32_t n_inputs, n_outputs, n_copies;
    uint32_t n_pending; /* rows of `copy` that the pass at hand needs, and one
                           more where ends of inputs may have to be zeroed */
    uint32_t n_nodes;
    uint32_t flags; /* of the pass that was recorded */
    void *object;   /* of a host that captures by itself, whose exec is too */
    void *exec;     /* NULL: that host launches it each time */
    struct gh_copy *copy; /* n_copies rows, destinations and sizes set */
    struct gh_block *block; /* what the copies write; NULL: there are none */
    struct gh_shelf *shelf; /* which the block is of */
    uint64_t *filled;   /* of each input the bytes that hold the last pass's,
                           and then of each those that the pass at hand has;
                           NULL: none is by capacity.  In the allocation of
                           inputs */
    gh_buffer *inputs;  /* where the graph reads */
    gh_buffer *outputs; /* where it writes */
    uint8_t *kinds;     /* enum gh_input_kind; in the allocation of inputs */
    struct gh_offload_script script; /* what each launch has to do besides */
    uint64_t turns;     /* launches under GRAPHHOOKS_CHECK */
    uint64_t ran;       /* the number of the last launch, from 1; 0: none */
};

#endif
