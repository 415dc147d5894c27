/*
 * graphhooks/overlap.h - one microbatch's communication behind another's
 * compute.
 *
 * The forward of a chunk and the backward of one, of two microbatches, are
 * walked together, node by node: while one waits for an exchange of tokens,
 * the other computes.  A node is a run of a layer's parts on one lane, as the
 * layer's family has it (graphhooks/family.h), in one direction.  The host
 * issues a node's kernels when it is told to, on the stream that it is told;
 * order, streams and the waits between them are the library's:
 *
 *     static gh_status run_node(void *user, const gh_overlap_node *node,
 *                               gh_error *err)
 *     {
 *         for each segment of the node, in reverse order unless forward:
 *             gh_layer_enter ... gh_layer_exit, with stream = node->stream
 *         give back what node->release lists, in order with node->stream
 *         return GH_OK;
 *     }
 *
 *     gh_overlap_run(session, &(gh_overlap_pair){
 *         .struct_size = sizeof(gh_overlap_pair),
 *         .flags = GH_OVERLAP_FORWARD | GH_OVERLAP_BACKWARD,
 *         .forward_microbatch = m + 1, .backward_microbatch = m,
 *         .compute = stream, .run_node = run_node, .user = host }, &err);
 *
 * The two microbatches share nothing but weights.  Nodes of one lane run in
 * the order in which they are issued, so weight gradients add up in the order
 * of the calls, and the numbers are those of one chunk after the other.
 *
 * GRAPHHOOKS_OVERLAP says in which order nodes are issued: fixed, the
 * published one of a layer pair; auto, the best that is found for measured
 * times of the nodes; off, the backward chunk and then the forward one, all on
 * the compute stream.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GRAPHHOOKS_OVERLAP_H
#define GRAPHHOOKS_OVERLAP_H

#include <graphhooks/base.h>
#include <graphhooks/family.h>
#include <graphhooks/layer.h>
#include <graphhooks/session.h>

GH_BEGIN_DECLS

/* What one node has written and no node will read any more.  Frozen: arrays
 * of it cross the ABI. */
typedef struct gh_overlap_release {
    gh_direction direction; /* GH_FORWARD: the tensor; GH_BACKWARD: its
                               gradient */
    uint32_t layer;         /* of the node that wrote it, as is the next */
    uint32_t node;
    gh_tensor tensor;
} gh_overlap_release;

/* gh_overlap_node.flags */
enum {
    /* It reads what comes from outside of the chunk: the input, or backward
     * the gradient of the output. */
    GH_NODE_BEGINS = 1u << 0,
    /* It leaves what goes out of the chunk: the output, or the gradient of
     * the input.  A host may send that now.  Weight gradients of the chunk's
     * first layer are issued after it, so they run beside the sending. */
    GH_NODE_ENDS = 1u << 1
};

/** What the host is to issue.  Valid during the call of run_node. */
typedef struct gh_overlap_node {
    uint32_t struct_size;
    uint32_t flags;         /* GH_NODE_* */
    gh_direction direction; /* GH_WGRAD with GH_SESSION_DELAY_WGRAD alone */
    uint32_t chunk, microbatch;
    uint32_t layer; /* as added to the model, from 0 */
    uint32_t node;  /* which of the layer's, in forward order, from 0 */
    gh_lane lane;   /* a weight gradient is on the compute lane */
    gh_part first_part, last_part;
    uint32_t first_segment; /* gh_segment.index, in forward order */
    uint32_t n_segments;    /* of a weight gradient also those that leave
                               none, which are not entered */
    void *stream;           /* where to issue it */
    /* What may be given back once the node is issued, in order with `stream`:
     * what an allocator hands out again there does not disturb any reader.
     * Of the same chunk and microbatch.  What a graphed segment has written is
     * never listed, as it is the graph's, and nor is what leaves the chunk.
     * Of a tensor that a compute node has read the last reader is that node's
     * backward or weight gradient; a comm node reads in its backward no tensor
     * but those of GH_ELEMENT_PROB, MASK and INDEX.  A host whose backward
     * reads what the same node has written keeps that until then itself.
     * A tensor that the host has saved in a group of graphhooks/offload.h is
     * listed all the same, and given back by the rules there alone: it is the
     * library's memory, or gh_host_services.released tells of it. */
    uint32_t n_release;
    uint32_t reserved; /* 0 */
    const gh_overlap_release *release;
} gh_overlap_node;

/**
 * Issue one node.
 *
 * @return GH_OK with no pass open; or a negative status with a sentence, and
 *         the run ends.  It calls neither gh_overlap_run nor
 *         gh_iteration_end.
 */
typedef gh_status gh_run_node_fn(void *user, const gh_overlap_node *node,
                                 gh_error *err);

/**
 * Make the times of nodes equal on all ranks that exchange tokens, such as the
 * largest of each by an all-reduce: `auto` is a function of them, and ranks
 * in different orders would wait for each other for good.  Called once, by the
 * same call of gh_overlap_run on every rank, with as many times on each.
 *
 * A host needs none where gh_ranks_set has named those ranks: the session takes
 * the largest of each itself, over the ranks of the bank that has most.
 *
 * @param[in,out] ns  nanoseconds; 0: not measured
 */
typedef gh_status gh_agree_fn(void *user, double *ns, uint32_t n,
                              gh_error *err);

/* gh_overlap_pair.flags */
enum {
    GH_OVERLAP_FORWARD = 1u << 0,  /* there is a forward chunk */
    GH_OVERLAP_BACKWARD = 1u << 1, /* there is a backward chunk */
    /* The backward of what is before a dispatch comes ahead of the forward of
     * the experts: the attention's memory is free earlier, and less is
     * hidden.  Of the fixed order. */
    GH_OVERLAP_EARLY_RELEASE = 1u << 2
};

/**
 * What to run.  Zero the struct, then set struct_size.  In a pipeline's warmup
 * there is no backward chunk, and in its cooldown no forward one.
 */
typedef struct gh_overlap_pair {
    uint32_t struct_size;
    uint32_t flags; /* GH_OVERLAP_*, at least one chunk */
    uint32_t forward_chunk, forward_microbatch;
    uint32_t backward_chunk, backward_microbatch;
    void *compute; /* the host's CUstream; NULL: the legacy default stream */
    void *comm;    /* another; NULL: one of the session's, of the highest
                      priority that the device has */
    gh_run_node_fn *run_node; /* required */
    gh_agree_fn *agree;       /* NULL: by the ranks of gh_ranks_set; without
                                 those the order is fixed */
    void *user;               /* of both */
} gh_overlap_pair;

/**
 * Walk a forward and a backward chunk together.
 *
 * Every node follows what was issued on `compute` before the call, and what is
 * issued there after it follows every node.  A node that fails ends the run:
 * the streams are joined, an open pass is cancelled, and the microbatches keep
 * their slots until the step ends.
 *
 * @param pair  read during the call only
 *
 * @return GH_OK; GH_ERR_INVALID, GH_ERR_ABI or GH_ERR_UNSUPPORTED for a bad
 *         struct, or forward and backward of one microbatch in one chunk;
 *         GH_ERR_NOT_FOUND for a chunk that the model does not have;
 *         GH_ERR_STATE when a pass is open, inside another run, or in a
 *         session without GH_SESSION_EP_OVERLAP; GH_ERR_RANKS where `auto` or
 *         GRAPHHOOKS_CHECK=ranks asks the other ranks; GH_ERR_DEVICE;
 *         GH_ERR_NO_MEMORY; or what a node returned.
 *
 * Stream: as above.  Blocks: never, but once with `auto`, for the times of the
 * step before and for the other ranks; and with GRAPHHOOKS_CHECK=ranks in every
 * call.  Allocates in the first run of a pair of chunks.  Since: 0.5.
 */
GH_API gh_status gh_overlap_run(gh_session *session,
                                const gh_overlap_pair *pair, gh_error *err);

/* Values are frozen. */
typedef uint32_t gh_overlap_order;
enum {
    GH_OVERLAP_OFF = 0,
    GH_OVERLAP_FIXED = 1,
    GH_OVERLAP_AUTO = 2 /* and the times are known; until then it is fixed */
};

/** Counters since the session was opened.  Set struct_size before the call. */
typedef struct gh_overlap_stats {
    uint32_t struct_size;
    gh_overlap_order order; /* of the last run */
    uint64_t runs;
    uint64_t nodes; /* issued */
    uint64_t waits; /* of one lane for the other */
    /* Of the last run, by the times that were measured; 0: not known. */
    double predicted_ns;       /* how long it takes */
    double predicted_fixed_ns; /* the same in the fixed order */
    double compute_ns, comm_ns; /* what its nodes take, by lane */
} gh_overlap_stats;

/**
 * Read the counters.
 *
 * @param[in,out] stats  struct_size says how much is written
 *
 * @return GH_OK; GH_ERR_INVALID; GH_ERR_ABI; GH_ERR_UNSUPPORTED.
 * Blocks: never.  Since: 0.5.
 */
GH_API gh_status gh_overlap_get_stats(const gh_session *session,
                                      gh_overlap_stats *stats, gh_error *err);

GH_END_DECLS

#endif
