/*
 * graphhooks/overlap.h - overlap one microbatch's communication with another's
 * compute.
 *
 * gh_overlap_run() walks the forward of one microbatch and the backward of
 * another one together: while one exchanges tokens, the other computes.  It
 * walks by nodes.  A node is consecutive parts of a layer on one lane (compute
 * or communication), as the layer's family divides it (graphhooks/family.h),
 * in one direction.  The library chooses the order of the nodes, the stream of
 * each and the waits between the streams; the host issues the kernels of a
 * node when it is called:
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
 * The results equal those of one chunk after the other, bit for bit: the two
 * microbatches share nothing but weights, and the nodes of a lane run in the
 * order in which they are issued, so weight gradients are added in the order
 * of the calls.
 *
 * GRAPHHOOKS_OVERLAP chooses the order of the nodes: `fixed` alternates between
 * the two microbatches by a fixed pattern for each pair of layers; `auto`
 * searches for the shortest order by measured times of the nodes; `off` issues
 * the backward chunk and then the forward one, all on the compute stream.
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

/* A tensor that one node has written and that no later node reads.  Frozen:
 * arrays of it cross the ABI.  Since 0.5. */
typedef struct gh_overlap_release {
    gh_direction direction; /* GH_FORWARD: the tensor; GH_BACKWARD: its
                               gradient */
    uint32_t layer;         /* of the node that wrote it */
    uint32_t node;          /* of the node that wrote it, in its layer */
    gh_tensor tensor;
} gh_overlap_release;

/* gh_overlap_node.flags */
enum {
    /* The node reads what enters the chunk: the input, or in the backward the
     * gradient of the output. */
    GH_NODE_BEGINS = 1u << 0,
    /* The node writes what leaves the chunk: the output, or in the backward the
     * gradient of the input.  The host may send it now.  The weight gradient
     * of the chunk's first node is issued after this node, so that it overlaps
     * with the sending. */
    GH_NODE_ENDS = 1u << 1
};

/** The node that the host issues.  Valid during the call of run_node only.
 * Since 0.5. */
typedef struct gh_overlap_node {
    uint32_t struct_size;
    uint32_t flags;         /* GH_NODE_* */
    gh_direction direction; /* GH_WGRAD only with GH_SESSION_DELAY_WGRAD */
    uint32_t chunk, microbatch;
    uint32_t layer; /* as added to the model, from 0 */
    uint32_t node;  /* number in its layer, in forward order, from 0 */
    gh_lane lane;   /* GH_LANE_COMPUTE for a weight gradient */
    gh_part first_part, last_part;
    uint32_t first_segment; /* gh_segment.index, in forward order */
    uint32_t n_segments;    /* the segments of the node.  The host skips, in a
                               weight gradient, segments that have none: those
                               without GH_SEGMENT_HAS_WGRAD */
    void *stream;           /* the CUstream to issue the node on */

    /* Tensors that the host may free once it has issued the node.  Free them in
     * the order of `stream`: memory that is allocated again there does not
     * disturb any reader.  They are of the same chunk and microbatch.
     *
     * Never listed: what a graphed segment has written, which the graph keeps,
     * and what leaves the chunk.  The last reader of a tensor that a compute
     * node reads is that node's backward or weight gradient.  The backward of
     * a communication node reads only tensors of GH_ELEMENT_PROB, MASK and
     * INDEX.  A host whose backward reads the output of the same node keeps
     * that output itself until then.
     *
     * A tensor that was saved in a group of graphhooks/offload.h is listed too,
     * but only the rules of that header say when it is freed. */
    uint32_t n_release;
    uint32_t reserved; /* 0 */
    const gh_overlap_release *release; /* n_release */
} gh_overlap_node;

/**
 * Issue one node.  It calls neither gh_overlap_run nor gh_iteration_end, which
 * return GH_ERR_STATE here, nor gh_session_close, which has no effect here.
 *
 * @return GH_OK, with no pass open; or a negative status with a sentence in
 *         err, which ends the run.  Since: 0.5.
 */
typedef gh_status gh_run_node_fn(void *user, const gh_overlap_node *node,
                                 gh_error *err);

/**
 * Make n numbers equal on all ranks that exchange tokens: an all-reduce that
 * takes the maximum of each.  `auto` derives the order from them, and ranks
 * with different orders would deadlock.  A number is either the nanoseconds of
 * a node of compute, or how many runs of an exchange take a second: so the
 * maximum is that of the rank that the others wait for.
 *
 * Called in the same call of gh_overlap_run on every rank, with the same n:
 * once for the order `auto`, and once for offload's fraction `auto`.  The next
 * gh_overlap_run calls it again after a failure or a number that is negative
 * or not finite.  So it has to fail on all ranks or on none.
 *
 * Not needed where gh_ranks_set() has named those ranks: the session then takes
 * the maxima itself, over the ranks of the bank that has the most.
 *
 * @param[in,out] numbers  n of them; 0: not measured
 *
 * @return GH_OK; or a negative status with a sentence in err, which ends the
 *         run.  Since: 0.5.
 */
typedef gh_status gh_agree_fn(void *user, double *numbers, uint32_t n,
                              gh_error *err);

/* gh_overlap_pair.flags */
enum {
    GH_OVERLAP_FORWARD = 1u << 0,  /* there is a forward chunk */
    GH_OVERLAP_BACKWARD = 1u << 1, /* there is a backward chunk */
    /* In the fixed order, issue the backward of the parts before a dispatch
     * ahead of the forward of the experts.  This frees the attention's memory
     * earlier and overlaps less. */
    GH_OVERLAP_EARLY_RELEASE = 1u << 2
};

/**
 * What to run.  Zero the struct, then set struct_size.  Give both chunks in the
 * steady state of a pipeline, only the forward one in its warmup, and only the
 * backward one in its cooldown.  Since 0.5.
 */
typedef struct gh_overlap_pair {
    uint32_t struct_size;
    uint32_t flags; /* GH_OVERLAP_*, at least one chunk */
    uint32_t forward_chunk, forward_microbatch;
    uint32_t backward_chunk, backward_microbatch;
    void *compute; /* the host's CUstream; NULL: the legacy default stream */
    void *comm;    /* another stream; NULL: a stream of the session's with the
                      highest priority of the device */
    gh_run_node_fn *run_node; /* required */
    gh_agree_fn *agree;       /* NULL: the ranks of gh_ranks_set() agree; if
                                 there are none, the order is fixed */
    void *user;               /* handed to run_node and agree */
} gh_overlap_pair;

/**
 * Walk a forward and a backward chunk together.
 *
 * Every node runs after all work that was issued on `compute` before the call,
 * and work that is issued there after the call runs after every node.  A node
 * that fails ends the run: the streams are joined, an open pass is cancelled,
 * and the microbatches keep their slots until the step ends.
 *
 * @param pair  read during the call only
 *
 * @return GH_OK;
 *         GH_ERR_INVALID, GH_ERR_ABI or GH_ERR_UNSUPPORTED for a bad struct;
 *         GH_ERR_INVALID for the forward and the backward of one microbatch in
 *         one chunk;
 *         GH_ERR_NOT_FOUND for a chunk that the model does not have;
 *         GH_ERR_STATE when a pass is open, inside another run, or in a session
 *         without GH_SESSION_EP_OVERLAP;
 *         GH_ERR_RANKS when `auto` or GRAPHHOOKS_CHECK=ranks asks the other
 *         ranks and they do not agree;
 *         GH_ERR_DEVICE; GH_ERR_NO_MEMORY; or what a node returned.
 *
 * Stream: enqueues on `compute` and `comm`; joined on `compute` as above.
 * Blocks: never, with two exceptions.  With `auto`, of the order or of
 * offload's fraction, one call waits for the measurements of the step before
 * and for the other ranks.  With GRAPHHOOKS_CHECK=ranks every call waits for
 * the other ranks.
 * Allocates in the first run of a pair of chunks.  Since: 0.5.
 */
GH_API gh_status gh_overlap_run(gh_session *session,
                                const gh_overlap_pair *pair, gh_error *err);

/* Values are frozen.  Since 0.5. */
typedef uint32_t gh_overlap_order;
enum {
    GH_OVERLAP_OFF = 0,
    GH_OVERLAP_FIXED = 1,
    GH_OVERLAP_AUTO = 2 /* once the times are known; GH_OVERLAP_FIXED before */
};

/** Counters since the session was opened.  Set struct_size before the call.
 * Since 0.5. */
typedef struct gh_overlap_stats {
    uint32_t struct_size;
    gh_overlap_order order; /* of the last run */
    uint64_t runs;
    uint64_t nodes; /* issued */
    uint64_t waits; /* stream waits of one lane for the other */
    /* Of the last run, by measured times of its nodes, in nanoseconds; 0: not
     * known. */
    double predicted_ns;        /* duration in the order that was used */
    double predicted_fixed_ns;  /* duration in the fixed order */
    double compute_ns, comm_ns; /* sums over the nodes of each lane */
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
