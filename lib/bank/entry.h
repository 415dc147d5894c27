/*
 * entry.h - the graph of one pass, and what a replay of it needs.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_BANK_ENTRY_H
#define GH_BANK_ENTRY_H

#include <graphhooks/layer.h>

#include "offload/offload.h"

#include <stdbool.h>

enum gh_entry_state {
    GH_ENTRY_NEW = 0,
    GH_ENTRY_READY = 1,
    GH_ENTRY_EAGER = 2 /* never recorded again, for entry->reason */
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
    bool unchained;   /* an input was chained and its address changed: do not
                         chain again */
    uint32_t n_inputs, n_outputs, n_copies;
    uint32_t n_pending; /* rows of `copy` that the current pass needs, and one
                           more if ends of inputs may have to be zeroed */
    uint32_t n_nodes;
    uint32_t flags; /* gh_pass.flags of the recording */
    uint64_t spoilt; /* the step in which something else ended the recording,
                        from 1; 0: none has, or it was recorded since */
    uint64_t dropped; /* the step in which the host gave a recording up last,
                         from 1; 0: none since it was recorded */
    uint32_t drops;   /* in how many steps it has */
    void *object;   /* the handle of a host that captures by itself, which then
                       owns `exec`; NULL: the library owns it */
    void *exec;     /* NULL: the host launches the graph each time */
    struct gh_copy *copy; /* n_copies rows, with destinations and sizes */
    struct gh_block *block; /* that the copies write; NULL: there are none */
    struct gh_shelf *shelf; /* that the block belongs to */
    uint64_t *filled;   /* 2 * n_inputs: for each input the bytes that the last
                           pass has written, then for each those of the current
                           pass; NULL: no input has a capacity.  In the
                           allocation of `inputs` */
    gh_buffer *inputs;  /* where the graph reads */
    gh_buffer *outputs; /* where the graph writes */
    uint8_t *kinds;     /* enum gh_input_kind; in the allocation of `inputs` */
    struct gh_offload_script script; /* the copies that each launch issues */
    uint64_t turns;     /* launches under GRAPHHOOKS_CHECK */
    uint64_t ran;       /* the number of the last launch, from 1; 0: none */
};

#endif
