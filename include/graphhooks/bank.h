/*
 * graphhooks/bank.h - graphs for several shapes, and packed sequences.
 *
 * A graph is of one shape.  A bank has the graphs of one shape: a size of
 * context parallelism with its group and its capacity, or a capacity alone,
 * such as one of the lengths that sequences are padded to.  A host declares
 * banks and says in gh_pass.bank which one a microbatch is of; each is recorded
 * when it is first used, or all ahead, by a host that runs each one once.
 *
 *     gh_bank_desc desc = { .struct_size = sizeof(desc), .tokens = 256 };
 *     gh_bank_add(session, &desc, &bank, &err);
 *     pass.bank = bank;
 *
 * Memory: a flight is of one bank, so the banks of a slot share its memory,
 * and take what the largest does.  A bank writes over what another one has left
 * in the slot, in the order that slots have anyway: after all that the flight
 * before has issued.  Declare all banks before the first recording, so that
 * the library's own buffers are made for the largest from the start.  A host
 * with pools finds chunk, slot and bank in gh_recording, and may have one pool
 * for all banks of a chunk's slot.
 *
 * Bank 0 is there from the start, declared by nobody: without banks all passes
 * are of it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GRAPHHOOKS_BANK_H
#define GRAPHHOOKS_BANK_H

#include <graphhooks/layer.h>

GH_BEGIN_DECLS

/* Most banks of a session.  How many of them have graphs at once is
 * GRAPHHOOKS_MAX_BANKS. */
#define GH_BANKS 65536u
/* Bytes of a bank's name, with the one that ends it. */
#define GH_BANK_NAME 32u

/* A shape.  Zero the struct, then set struct_size.  Since 0.4. */
typedef struct gh_bank_desc {
    uint32_t struct_size;
    uint32_t cp_size; /* ranks that share a sequence; 0: 1 */
    void *group;      /* their process group: compared, never read; NULL:
                         none */
    uint32_t tokens;  /* capacity of a microbatch on this rank, padding
                         included; 0: not said */
    uint32_t sequences; /* most that are packed into it, for gh_packed_set();
                           0: none are */
    const char *name;   /* for the log; longer ones are cut; read during the
                           call only; NULL: none */
} gh_bank_desc;

/**
 * Declare a bank.  The same shape a second time is a second bank.
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

/* Of one bank, since the session was opened.  Set struct_size before the call.
 * Since 0.4. */
typedef struct gh_bank_stats {
    uint32_t struct_size;
    uint32_t graphs;     /* that are ready now */
    uint64_t recordings; /* passes captured */
    uint64_t replays;    /* graph launches */
    uint64_t evictions;  /* times that it gave way to another one */
    uint64_t bytes;      /* of the library's buffers that its graphs use; other
                            banks use the same, so they do not add up:
                            gh_stats.static_bytes is what there is */
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

/* The sequences that a microbatch is packed of.  Zero the struct, then set
 * struct_size.  Since 0.4. */
typedef struct gh_packed {
    uint32_t struct_size;
    uint32_t bank; /* with gh_bank_desc.sequences and tokens */
    uint32_t chunk; /* gh_layer_desc.chunk: once for each of a microbatch's */
    uint32_t microbatch;
    uint32_t flags; /* GH_PASS_FORWARD_ONLY when its passes are; else 0 */
    uint32_t n_sequences;
    void *stream;           /* of the microbatch's first pass */
    const int32_t *lengths; /* tokens of each, of all ranks of the group; read
                               during the call only */
    const int32_t *padded;  /* the same with the padding after each; NULL: there
                               is none between them.  With a cp_size above 1
                               each divides by twice that */
} gh_packed;

/* Where the device has them, for as long as the microbatch is in flight.  All
 * are int32_t, and GH_BUFFER_STATIC: of a slot and a bank they are at one
 * address, until the bank gives way.  Set struct_size before the call.
 * Since 0.4. */
typedef struct gh_packed_buffers {
    uint32_t struct_size;
    uint32_t slot; /* GH_SLOT_NONE: the microbatch runs eagerly */
    /* sequences + 2 offsets: where each begins, and the last ends, in tokens.
     * After the real ones comes one that has no token of its own and covers the
     * rest of the physical tokens; those after that are empty, at the end. */
    gh_buffer cu_seqlens;        /* of tokens that count */
    gh_buffer cu_seqlens_padded; /* of the physical ones */
    gh_buffer max_seqlen;        /* one: the longest of `lengths` */
    gh_buffer n_sequences;       /* one: as given */
} gh_packed_buffers;

/**
 * Give the device a microbatch's sequences: actual and padded cu_seqlens, the
 * longest, and their number, each entry written anew, by one launch for every
 * 480 sequences.  It is the first call of a microbatch in a chunk, takes the
 * slot that its passes then have, and may be made again, on the same stream or
 * after it, until the first of them.  A microbatch of a bank with sequences
 * that begins without it is GH_ERR_STATE: its graphs would read those of
 * another.
 *
 * What does not fit is refused with the numbers, and the passes of the
 * microbatch then run eagerly (GH_REASON_PACKED), with metadata of the host's
 * own.
 *
 * @param         packed   read during the call only
 * @param[in,out] buffers  struct_size says how much is written
 *
 * @return GH_OK; GH_ERR_UNSUPPORTED for more sequences or tokens than the bank
 *         holds, or while the host captures the stream, and GH_ERR_INVALID for lengths that are negative, longer than
 *         their padding or do not divide, after both of which the host goes on
 *         eagerly; GH_ERR_INVALID too, GH_ERR_ABI or GH_ERR_UNSUPPORTED for a
 *         bad struct; GH_ERR_STATE while a pass is open, or once passes of the
 *         microbatch have run; GH_ERR_BUSY and GH_ERR_STATE as
 *         gh_layer_enter(); GH_ERR_NOT_FOUND for an unknown bank or chunk;
 *         GH_ERR_NO_DRIVER; GH_ERR_NO_MEMORY; GH_ERR_DEVICE, after which the
 *         microbatch runs eagerly, or has to be given its sequences again:
 *         then gh_layer_enter() is GH_ERR_STATE.
 * Stream: enqueues on packed->stream.  Blocks: never; a first call allocates.
 * Since: 0.4.
 */
GH_API gh_status gh_packed_set(gh_session *session, const gh_packed *packed,
                               gh_packed_buffers *buffers, gh_error *err);

GH_END_DECLS

#endif
