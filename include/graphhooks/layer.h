/*
 * graphhooks/layer.h - the hooks of a training step.
 *
 * A pass is one run of one segment in one direction for one microbatch.  The
 * host brackets every pass and does what the returned action says:
 *
 *     do {
 *         gh_layer_enter(session, &pass, &d, &err);
 *         if (d.action != GH_ACTION_REPLAYED) {
 *             run the parts on d.stream, reading d.inputs;
 *             pass.outputs = what they wrote;
 *         }
 *         status = gh_layer_exit(session, &pass, &err);
 *     } while (status == GH_RERUN);
 *
 * A slot is one set of buffers of a chunk.  A microbatch holds one from its
 * first forward in the chunk to its last backward: it is then in flight.
 *
 * After warmup the first pass of each (segment, direction, variant, slot, bank)
 * is recorded while the host issues it, and its graph is launched at exit.
 * Later the pass is replayed: gh_layer_enter launches the graph and the host
 * runs nothing.  With GH_PASS_NO_EXIT it also ends the replayed pass, and the
 * host does not call gh_layer_exit.
 *
 * A pass may be recorded if the host keeps these rules.  The parts read only
 * d.inputs and memory whose address and meaning do not change: weights, the
 * buffers of d.slot.  They write only the outputs and the buffers of d.slot,
 * and never an input, since GRAPHHOOKS_CHECK runs a pass twice.  They issue the
 * same work for every microbatch.  When a pass is recorded again, the later
 * directions of its segment and slot are too, as they may read memory that the
 * first recording has allocated.
 *
 * With GH_SESSION_DELAY_WGRAD there is a third direction.  A backward pass
 * computes the gradients of what the parts read, and a GH_WGRAD pass later in
 * the step adds those of the weights.  The microbatch then keeps its slot, with
 * all its buffers, until its last GH_WGRAD pass.
 *
 * Nothing here allocates, locks or synchronizes once a pass is ready.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GRAPHHOOKS_LAYER_H
#define GRAPHHOOKS_LAYER_H

#include <graphhooks/base.h>
#include <graphhooks/plan.h>
#include <graphhooks/session.h>

GH_BEGIN_DECLS

/* Values are frozen.  Since 0.1. */
typedef uint32_t gh_direction;
enum {
    GH_FORWARD = 0,
    GH_BACKWARD = 1,
    /* since 0.2 */
    GH_WGRAD = 2 /* the gradients of the weights, in a session with
                    GH_SESSION_DELAY_WGRAD */
};

/* What the host does next.  Values are frozen.  Since 0.1. */
typedef uint32_t gh_action;
enum {
    GH_ACTION_RUN = 0,     /* run the parts; nothing is recorded */
    GH_ACTION_RECORD = 1,  /* run the parts once; they are being recorded */
    GH_ACTION_REPLAYED = 2 /* the graph is launched; do not run the parts */
};

/* gh_buffer.flags */
enum {
    /* An input that has the same address in every pass of this segment,
     * direction, variant and slot: the graph reads it in place.  Other inputs
     * are copied to buffers of the library's before a replay, up to 128 of
     * them in one launch. */
    GH_BUFFER_STATIC = 1u << 0,
    /* An output that the pass updates instead of overwriting it, such as a
     * weight gradient: GRAPHHOOKS_CHECK restores it between its two runs. */
    GH_BUFFER_UPDATED = 1u << 1
};

/* A range of device memory.  Frozen: arrays of it cross the ABI.  Since 0.1. */
typedef struct gh_buffer {
    void *address;
    uint64_t bytes;
    uint32_t flags;   /* GH_BUFFER_* */
    gh_tensor tensor; /* of an output: its name for gh_border_find(), 0: none;
                         of an input: 0.  Since 0.2; before it had to be 0 */
} gh_buffer;

/* The most inputs, and the most outputs, of one pass; 128 before 0.3. */
#define GH_MAX_BUFFERS 1024u
/* gh_pass.microbatch is less than this. */
#define GH_MAX_MICROBATCHES 16384u
/* gh_decision.slot of a pass that has no slot. */
#define GH_SLOT_NONE UINT32_MAX

/* gh_pass.flags */
enum {
    /* No backward follows: evaluation, or the first forward of a layer whose
     * activations are recomputed.  The pass runs eagerly and takes no slot. */
    GH_PASS_FORWARD_ONLY = 1u << 0,
    /* since 0.2 */
    /* With GH_SESSION_DELAY_WGRAD: this backward computes the gradients of the
     * weights itself, and no GH_WGRAD pass follows it.  Either all backward
     * passes of a segment have this flag, or none. */
    GH_PASS_NO_WGRAD = 1u << 1,
    /* If the pass is replayed, gh_layer_enter also ends it, and the host does
     * not call gh_layer_exit.  May differ from one call to the next. */
    GH_PASS_NO_EXIT = 1u << 2,
    /* Record this backward or weight gradient without running it: no work is
     * executed, no input is copied, and the microbatch stays where it is.  For
     * a variant that a later microbatch needs, at a time when the host can
     * issue it.  The microbatch must hold a slot, and the pass itself must be
     * legal at this point.
     *
     * The decision is RECORD; or REPLAYED when there is a graph already, which
     * is not launched; or RUN, with the reason, when there will be none: the
     * host then runs nothing.  After RECORD and RUN, and after REPLAYED without
     * GH_PASS_NO_EXIT, exit or cancel follows.  A recording that fails is
     * GH_RERUN; the host need not enter again, as the decision would be RUN.
     *
     * It counts as a recording, and never as a replay or an eager pass.  The
     * inputs of later passes are compared with the ones given here.  May differ
     * from one call to the next. */
    GH_PASS_PREPARE = 1u << 3,
    /* since 0.5 */
    /* In a bank with ranks (gh_ranks_set()): this pass holds no collective, so
     * this rank decides about it alone. */
    GH_PASS_LOCAL = 1u << 4
};

/* gh_pass.variant is less than this. */
#define GH_VARIANTS 2u

/**
 * Which pass.  Zero the struct, then set struct_size.  Hand the same struct to
 * gh_layer_enter and gh_layer_exit, with the outputs filled in between.
 * Since 0.1.
 */
typedef struct gh_pass {
    uint32_t struct_size;
    uint32_t segment; /* gh_segment.index */
    gh_direction direction;
    uint32_t microbatch; /* position in the step's schedule, from 0 */
    uint32_t flags;      /* GH_PASS_* */
    uint32_t n_inputs;
    uint32_t n_outputs;
    uint32_t variant; /* less than GH_VARIANTS.  Passes of one segment and
                         direction that issue different work are different
                         variants, with graphs of their own: the backward of a
                         step's first microbatch writes gradients, that of the
                         later ones adds to them.  Slots and the order of passes
                         ignore the variant, and every variant leaves what
                         later directions read in the same place.
                         Since 0.2; before it had to be 0 */
    void *stream;     /* the host's CUstream; NULL: the legacy default stream
                         of the session's context, which must then be current.
                         Not CU_STREAM_PER_THREAD.  Must live until the session
                         closes */
    const gh_buffer *inputs;  /* n_inputs; read by gh_layer_enter only */
    const gh_buffer *outputs; /* n_outputs; read by gh_layer_exit only */

    /* since 0.4 */
    uint32_t bank; /* gh_bank_add(), or 0; the same for all passes of a
                      microbatch while it holds its slot */
    uint32_t reserved; /* must be 0 */
    void *group; /* the process group that the pass uses, which must be the
                    bank's; NULL: not compared */
    /* n_inputs, or NULL; read by gh_layer_enter only.  The most bytes that an
     * input has in any pass of this bank; 0: always gh_buffer.bytes.  The graph
     * is recorded for that capacity and reads zeros behind a shorter input.  An
     * input with GH_BUFFER_STATIC is read in place, where nothing can be
     * zeroed: if it is shorter, the pass runs eagerly (GH_REASON_INPUT).
     * gh_decision.inputs have the capacity in a recording and in a replay.  In
     * an eager pass they have the bytes given, unless GRAPHHOOKS_CHECK compares
     * the pass. */
    const uint64_t *capacities;
} gh_pass;

/**
 * What the host does next, and where.  Set struct_size before the call.
 * Since 0.1.
 */
typedef struct gh_decision {
    uint32_t struct_size;
    gh_action action;
    uint32_t slot;    /* the set of buffers that the microbatch uses in this
                         chunk; it may have another slot in another chunk.
                         GH_SLOT_NONE: none, as when all slots are in flight or
                         when the host itself captured the microbatch's first
                         pass; the host then uses a further set of its own */
    gh_reason reason; /* why the pass is not graphed; GH_REASON_NONE if it is */
    void *stream;     /* where the host issues the parts.  Differs from
                         gh_pass.stream only when a pass on the legacy default
                         stream, which cannot be captured, is recorded */
    uint32_t n_inputs;
    uint32_t n_outputs;
    const gh_buffer *inputs;  /* where the parts read; valid until the exit */
    const gh_buffer *outputs; /* only with REPLAYED: where the results are, as
                                 given at the exit of the recording.  Valid
                                 until the slot's next pass of this segment and
                                 direction, also with GH_PASS_NO_EXIT.  After
                                 the last pass of a microbatch, read them in
                                 work that is issued before the next
                                 gh_layer_enter, or copy them there: the slot's
                                 next microbatch waits for no later work */
} gh_decision;

/**
 * Begin a pass.  With GH_PASS_NO_EXIT a replayed pass has also ended when the
 * call returns: no pass is open, and gh_layer_exit for it is GH_ERR_STATE.
 *
 * @param         pass      read during the call only, with its inputs
 * @param[in,out] decision  struct_size says how much is written
 *
 * @return GH_OK;
 *         GH_ERR_INVALID, GH_ERR_ABI or GH_ERR_UNSUPPORTED for a bad struct, a
 *         group that is not the bank's, or a bank that is not the one with
 *         which the microbatch began;
 *         GH_ERR_NOT_FOUND for an unknown segment or bank;
 *         GH_ERR_STATE while another pass is open; for a second forward before
 *         the backward of the first (a forward without a backward needs
 *         GH_PASS_FORWARD_ONLY); for a backward whose forward has not run; for
 *         a weight gradient whose backward has not run (of a microbatch without
 *         a slot the library only counts the passes); or when pass->stream
 *         cannot wait for any free slot, because each was last used on a stream
 *         that the host is capturing or in such a capture of this step;
 *         GH_ERR_BUSY with GH_SESSION_BUSY_FAILS;
 *         GH_ERR_DEVICE when a driver call fails without which results would be
 *         wrong (after any other failed driver call the pass runs eagerly, and
 *         this call succeeds);
 *         GH_ERR_RANKS when the ranks of the bank are lost here.
 *         No pass is open after an error, except one that was open before.
 *
 * Stream: enqueues the input copies and the graph on pass->stream.
 * Blocks: never without ranks; in a bank with ranks for the other ranks, when
 * it asks them (graphhooks/ranks.h).  A first recording allocates.  Since: 0.1.
 */
GH_API gh_status gh_layer_enter(gh_session *session, const gh_pass *pass,
                                gh_decision *decision, gh_error *err);

/**
 * End the open pass.
 *
 * @param pass  the same segment, direction, variant and microbatch as in
 *              gh_layer_enter, and now the outputs
 *
 * @return GH_OK;
 *         GH_RERUN when a recording failed: nothing of the pass has executed,
 *         no pass is open, and the host enters it again (otherwise the
 *         microbatch keeps its slot until the step ends);
 *         GH_ERR_RANKS when the ranks of the bank are lost here: no pass is
 *         open;
 *         GH_ERR_STATE when no pass is open, or another one: it stays open;
 *         GH_ERR_INVALID, GH_ERR_ABI or GH_ERR_UNSUPPORTED for a bad struct:
 *         the pass stays open.
 *
 * Threads: a recorded pass is ended on the thread that entered it.
 * Stream: enqueues a newly recorded graph on pass->stream.
 * Blocks: never for an eager or a replayed pass; while a recorded graph is
 * instantiated, and until the other ranks of its bank have theirs.  Since: 0.1.
 */
GH_API gh_status gh_layer_exit(gh_session *session, const gh_pass *pass,
                               gh_error *err);

/**
 * Abandon the open pass, as when the host's own code has failed in it.
 *
 * Work that was already issued is not undone.  A recording is discarded, and
 * the pass is recorded another time.  It runs eagerly from then on if a call in
 * it has invalidated the capture, which the log says, or if its bank has other
 * ranks: then it does on all of them.
 *
 * @return GH_OK, also when no pass is open; GH_ERR_STATE when called from a
 *         host service; GH_ERR_INVALID.
 * Blocks: never, except that a recording in a bank with other ranks waits for
 * them.  Since: 0.1.
 */
GH_API gh_status gh_layer_cancel(gh_session *session, gh_error *err);

/**
 * Between these two calls every pass runs eagerly, with a slot as usual: for a
 * host that runs a warmup of its own inside a step.  The pairs nest.
 *
 * @return GH_OK; GH_ERR_STATE when a pass is open, or for a post_warmup
 *         without its pre_warmup; GH_ERR_INVALID.
 * Blocks: never.  Since: 0.1.
 */
GH_API gh_status gh_pre_warmup(gh_session *session, gh_error *err);
GH_API gh_status gh_post_warmup(gh_session *session, gh_error *err);

/**
 * Issue delayed work now.  With GRAPHHOOKS_OFFLOAD_DELAY=1 the copies of
 * gh_offload_commit are delayed, so that the host can issue them, in the same
 * order, while it waits for a replay anyway.  The library issues them by
 * itself before the next backward, before their memory is written again, and
 * when the step ends.
 *
 * @return GH_OK; GH_ERR_STATE when a pass is open; GH_ERR_INVALID;
 *         GH_ERR_DEVICE.
 * Blocks: never.  Since: 0.1.
 */
GH_API gh_status gh_flush_delayed(gh_session *session, gh_error *err);

/**
 * End the step: every slot becomes free, and warmup counts one step.
 *
 * @return GH_OK; GH_ERR_STATE when a pass is open (call gh_layer_cancel);
 *         GH_ERR_INVALID; GH_ERR_DEVICE or GH_ERR_NO_MEMORY when offloading
 *         fails, and GH_ERR_RANKS when a communicator has failed or a rank has
 *         not come: after these three the step has ended all the same.
 * Blocks: never, except while a trace buffer that is full is written, and once
 * after the profile of what is offloaded (offload.h), for other ranks at most
 * GRAPHHOOKS_TIMEOUT.
 * Since: 0.1.
 */
GH_API gh_status gh_iteration_end(gh_session *session, gh_error *err);

GH_END_DECLS

#endif
