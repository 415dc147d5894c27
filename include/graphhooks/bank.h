/*
 * graphhooks/bank.h - graphs for several shapes, and packed sequences.
 *
 * A graph serves one shape, and a bank holds the graphs of one shape.  A shape
 * is a context-parallel size with its group and a capacity in tokens, or a
 * capacity alone, such as one of the lengths that sequences are padded to.
 * The host declares banks and names the bank of a microbatch in gh_pass.bank.
 * A bank is recorded when it is first used; a host that wants all of them
 * recorded in advance runs each one once.
 *
 *     gh_bank_desc desc = { .struct_size = sizeof(desc), .tokens = 256 };
 *     gh_bank_add(session, &desc, &bank, &err);
 *     pass.bank = bank;
 *
 * Memory: the banks of a slot share the slot's memory, which is that of the
 * largest bank, since a microbatch uses one bank from its first forward to its
 * last backward.  A bank may overwrite what another bank left in the slot, but
 * only after all work that the slot's previous microbatch has issued.  Declare
 * all banks before the first recording: the library then allocates its buffers
 * for the largest bank at once.  A host with memory pools of its own finds
 * chunk, slot and bank in gh_recording; one pool may serve all banks of a
 * chunk's slot.
 *
 * Bank 0 always exists and is not declared.  It is the bank of every pass that
 * names no other.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GRAPHHOOKS_BANK_H
#define GRAPHHOOKS_BANK_H

#include <graphhooks/layer.h>

GH_BEGIN_DECLS

/* The most banks of a session, bank 0 included.  GRAPHHOOKS_MAX_BANKS limits
 * how many of them have graphs at the same time: for one more, the graphs of
 * the least recently used bank are destroyed (the bank is evicted).  A bank
 * with other ranks (graphhooks/ranks.h) is never evicted. */
#define GH_BANKS 65536u
/* Bytes of a bank's name, the terminating NUL included. */
#define GH_BANK_NAME 32u

/* A shape.  Zero the struct, then set struct_size.  Since 0.4. */
typedef struct gh_bank_desc {
    uint32_t struct_size;
    uint32_t cp_size; /* ranks that share a sequence; 0: 1 */
    void *group;      /* their process group, or NULL; the library compares the
                         pointer and never reads through it */
    uint32_t tokens;  /* capacity of a microbatch on this rank, padding
                         included; 0: not given */
    uint32_t sequences; /* the most sequences in a packed microbatch, for
                           gh_packed_set(); 0: microbatches are not packed */
    const char *name;   /* for the log, cut to GH_BANK_NAME; read during the
                           call only; NULL: none */
} gh_bank_desc;

/**
 * Declare a bank.  A second call with the same shape makes another bank.
 *
 * @param      desc    read during the call only
 * @param[out] bank_p  for gh_pass.bank: 1, 2, 3 and so on
 *
 * @return GH_OK; GH_ERR_STATE while a pass is open; GH_ERR_INVALID, GH_ERR_ABI
 *         or GH_ERR_UNSUPPORTED for a bad struct; GH_ERR_NO_MEMORY.
 * Blocks: never.  Since: 0.4.
 */
GH_API gh_status gh_bank_add(gh_session *session, const gh_bank_desc *desc,
                             uint32_t *bank_p, gh_error *err);

/* Counters of one bank since the session was opened.  Set struct_size before
 * the call.  Since 0.4. */
typedef struct gh_bank_stats {
    uint32_t struct_size;
    uint32_t graphs;     /* ready now */
    uint64_t recordings; /* passes captured */
    uint64_t replays;    /* graph launches */
    uint64_t evictions;  /* times that its graphs were destroyed, to make room
                            for another bank */
    uint64_t bytes;      /* of the library's buffers that its graphs use.  Banks
                            share buffers, so do not add these up:
                            gh_stats.static_bytes is the total */
} gh_bank_stats;

/**
 * Read a bank's counters.
 *
 * @param[in,out] stats  struct_size says how much is written
 *
 * @return GH_OK; GH_ERR_NOT_FOUND for a bank that was never declared;
 *         GH_ERR_INVALID, GH_ERR_ABI or GH_ERR_UNSUPPORTED for a bad struct.
 * Blocks: never.  Since: 0.4.
 */
GH_API gh_status gh_bank_get_stats(const gh_session *session, uint32_t bank,
                                   gh_bank_stats *stats, gh_error *err);

/* The sequences of a packed microbatch.  Zero the struct, then set
 * struct_size.  Since 0.4. */
typedef struct gh_packed {
    uint32_t struct_size;
    uint32_t bank;  /* one declared with `sequences` and `tokens` */
    uint32_t chunk; /* gh_layer_desc.chunk; one call for each chunk */
    uint32_t microbatch;
    uint32_t flags; /* GH_PASS_FORWARD_ONLY if its passes have it; else 0 */
    uint32_t n_sequences;
    void *stream;           /* of the microbatch's first pass */
    const int32_t *lengths; /* n_sequences: tokens of each, summed over all
                               ranks of the group; read during the call only */
    const int32_t *padded;  /* the same, with the padding that follows each;
                               NULL: no padding between sequences.  With a
                               cp_size above 1 each is a multiple of
                               2 * cp_size.  Read during the call only */
} gh_packed;

/* The same sequences in device memory, valid while the microbatch is in
 * flight.  All are int32_t and GH_BUFFER_STATIC: each slot of a bank has one
 * address for them, until the bank is evicted.  Set struct_size before the
 * call.  Since 0.4. */
typedef struct gh_packed_buffers {
    uint32_t struct_size;
    uint32_t slot; /* GH_SLOT_NONE: the microbatch runs eagerly */
    /* gh_bank_desc.sequences + 2 offsets, in tokens: where each sequence
     * begins, and where the last one ends.  After the given sequences follows
     * one that covers the unused physical tokens and has no token in
     * cu_seqlens; the sequences after it are empty and lie at the end. */
    gh_buffer cu_seqlens;        /* by `lengths` */
    gh_buffer cu_seqlens_padded; /* by `padded` */
    gh_buffer max_seqlen;        /* one value: the largest of `lengths` */
    gh_buffer n_sequences;       /* one value: as given */
} gh_packed_buffers;

/**
 * Write a microbatch's sequences to the device: cu_seqlens without and with
 * padding, the largest length, and the number of sequences.  Every entry is
 * written, by one launch for every 480 sequences.
 *
 * Call this before the first pass of a microbatch in a chunk.  It takes the
 * slot that the passes will have.  Where no slot is free, the passes run
 * eagerly, even if a slot becomes free before the first of them.  Until the
 * first pass it may be called again, on the same stream or ordered after it.
 * In a bank with sequences a microbatch that was not given its own is refused
 * by gh_layer_enter() with GH_ERR_STATE, since its graphs would read those of
 * another.
 *
 * Sequences that do not fit the bank are refused; the error text has the
 * numbers.  The passes of the microbatch then run eagerly (GH_REASON_PACKED),
 * with metadata of the host's own.
 *
 * @param         packed   read during the call only
 * @param[in,out] buffers  struct_size says how much is written
 *
 * @return GH_OK;
 *         GH_ERR_UNSUPPORTED for more sequences or tokens than the bank holds,
 *         or while the host captures the stream: the passes run eagerly;
 *         GH_ERR_INVALID for a length that is negative, greater than its
 *         padded length or not a multiple as above: the passes run eagerly;
 *         GH_ERR_INVALID, GH_ERR_ABI or GH_ERR_UNSUPPORTED for a bad struct;
 *         GH_ERR_STATE while a pass is open, or once passes of the microbatch
 *         have run; GH_ERR_BUSY and GH_ERR_STATE as gh_layer_enter();
 *         GH_ERR_NOT_FOUND for an unknown bank or chunk; GH_ERR_NO_DRIVER;
 *         GH_ERR_NO_MEMORY;
 *         GH_ERR_DEVICE: the microbatch runs eagerly, or gh_layer_enter()
 *         returns GH_ERR_STATE until this call has succeeded.
 * Stream: enqueues on packed->stream.  Blocks: never; a first call allocates.
 * Since: 0.4.
 */
GH_API gh_status gh_packed_set(gh_session *session, const gh_packed *packed,
                               gh_packed_buffers *buffers, gh_error *err);

GH_END_DECLS

#endif
