/*
 * graphhooks/layer.h - the hooks of a training step.
 *
 * A pass is one call of one segment in one direction for one microbatch.
 * The host brackets every pass, and only obeys the action it is handed:
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
 * The first pass of a (segment, direction, variant, slot, bank) after warmup is
 * recorded while the host issues it, and launched at exit.  From then on the
 * same pass is replayed: enter has launched the graph, and nothing is to be
 * run.  With GH_PASS_NO_EXIT enter has ended such a pass too, and exit is left
 * out.
 *
 * What a host promises of a pass it lets the library record: the parts read
 * only d.inputs and memory whose address and meaning do not change (weights,
 * the buffers of d.slot); they write only outputs and the buffers of d.slot,
 * never over an input, since GRAPHHOOKS_CHECK runs a pass twice; and they
 * would issue the same work again for another microbatch.  When a pass is
 * recorded anew, so are the later directions of its segment and slot, as they
 * may read what the first recording has allocated.
 *
 * A session opened with GH_SESSION_DELAY_WGRAD has a third direction: its
 * backward passes compute the gradients of what the parts read, and GH_WGRAD
 * passes, at any later time of the step, add those of the weights.  The
 * microbatch keeps its slot, and all that lies in it, until the last of them.
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

/* Values are frozen. */
typedef uint32_t gh_direction;
enum {
    GH_FORWARD = 0,
    GH_BACKWARD = 1,
    /* since 0.2 */
    GH_WGRAD = 2 /* the gradients of the weights, where the backward leaves
                    them for later: GH_SESSION_DELAY_WGRAD */
};

/* What the host does next.  Values are frozen. */
typedef uint32_t gh_action;
enum {
    GH_ACTION_RUN = 0,     /* run the parts; nothing is recorded */
    GH_ACTION_RECORD = 1,  /* run the parts once; they are being recorded */
    GH_ACTION_REPLAYED = 2 /* the graph is launched; do not run the parts */
};

/* gh_buffer.flags */
enum {
    /* An input whose address is the same in every pass of this segment,
     * direction, variant and slot: it is read in place.  Any other input is
     * copied to a static buffer before a replay, 128 of them in one launch.
     */
    GH_BUFFER_STATIC = 1u << 0,
    /* An output that the pass updates rather than overwrites, such as a
     * weight gradient: GRAPHHOOKS_CHECK restores it between its two runs. */
    GH_BUFFER_UPDATED = 1u << 1
};

/* A range of device memory.  Frozen: arrays of it cross the ABI. */
typedef struct gh_buffer {
    void *address;
    uint64_t bytes;
    uint32_t flags;   /* GH_BUFFER_* */
    gh_tensor tensor; /* an output's name, for gh_border_find(); 0: none.
                         Since 0.2; in 0.1 a field that had to be 0 */
} gh_buffer;

/* Most inputs, and most outputs, of one pass; 128 before 0.3. */
#define GH_MAX_BUFFERS 1024u
/* One more than the largest gh_pass.microbatch. */
#define GH_MAX_MICROBATCHES 16384u
/* gh_decision.slot of a pass that holds none. */
#define GH_SLOT_NONE UINT32_MAX

/* gh_pass.flags */
enum {
    /* No backward will follow, as in evaluation, or as in the first run of a
     * layer whose activations are recomputed: the pass runs eagerly and takes
     * no slot. */
    GH_PASS_FORWARD_ONLY = 1u << 0,
    /* since 0.2 */
    /* With GH_SESSION_DELAY_WGRAD: this backward leaves nothing for later,
     * and no GH_WGRAD pass follows it.  Every backward pass of a segment has
     * it, or none. */
    GH_PASS_NO_WGRAD = 1u << 1,
    /* A pass that is replayed needs no gh_layer_exit: enter has ended it.  Of
     * the call, not of the pass: it may differ from time to time. */
    GH_PASS_NO_EXIT = 1u << 2,
    /* Record only: nothing of this backward or weight gradient is executed,
     * no input is copied, and the microbatch does not move on; it must be
     * where the pass itself would be legal, and hold a slot.  For a variant
     * that a later microbatch needs, while the host can still issue it.  The
     * decision is RECORD; REPLAYED when it is recorded already, and nothing
     * is launched; or RUN when it will not be, with the reason, and then the
     * host runs nothing.  Exit or cancel follows as ever; a recording that
     * fails is GH_RERUN, and the host need not try again: the decision would
     * be RUN.  It counts as a recording, and never as a replay or an eager
     * pass; its inputs are those that later passes' are compared with.  Of
     * the call, as the one above. */
    GH_PASS_PREPARE = 1u << 3,
    /* since 0.5 */
    /* Holds no collective: of a bank with ranks (gh_ranks_set()), and yet a
     * pass of which this rank decides alone. */
    GH_PASS_LOCAL = 1u << 4
};

/* Of gh_pass.variant. */
#define GH_VARIANTS 2u

/**
 * Which pass.  Zero the struct, then set struct_size.  The same struct goes
 * to enter and exit; only `outputs` is filled in between.
 */
typedef struct gh_pass {
    uint32_t struct_size;
    uint32_t segment; /* gh_segment.index */
    gh_direction direction;
    uint32_t microbatch; /* position in the step's schedule, from 0 */
    uint32_t flags;      /* GH_PASS_* */
    uint32_t n_inputs;
    uint32_t n_outputs;
    uint32_t variant; /* below GH_VARIANTS: which of several pieces of work
                         that passes of one segment and direction do, such as
                         the backward of a step's first microbatch, which
                         writes gradients, and that of the later ones, which
                         adds to them.  Each has graphs of its own; slots and
                         order know the direction alone, and what later
                         directions read lies in the same place after each.
                         Since 0.2; in 0.1 a field that had to be 0 */
    void *stream;     /* the host's CUstream, NULL for the legacy default
                         stream of the session's context, which must then be
                         current; not CU_STREAM_PER_THREAD; must stay alive
                         until the session closes */
    const gh_buffer *inputs;  /* n_inputs; read by enter only */
    const gh_buffer *outputs; /* n_outputs; read by exit only */

    /* since 0.4 */
    uint32_t bank; /* whose graphs: gh_bank_add(), or 0; one for all passes of
                      a flight */
    uint32_t reserved; /* must be 0 */
    void *group; /* the process group that the pass uses: it must be the
                    bank's; NULL: not said */
    /* n_inputs, or NULL; read by enter only.  Bytes that an input may have in
     * this bank; 0: as many as it has.  The graph is recorded with so many,
     * serves any that are fewer, and finds zeros behind them.  One with
     * GH_BUFFER_STATIC is read in place, where nothing can be zeroed: with
     * fewer its pass runs eagerly (GH_REASON_INPUT).  Its
     * gh_decision.inputs have the capacity, and those of a pass that runs
     * eagerly what was given, unless it is compared by GRAPHHOOKS_CHECK. */
    const uint64_t *capacities;
} gh_pass;

/**
 * What to do.  Set struct_size before the call.
 */
typedef struct gh_decision {
    uint32_t struct_size;
    gh_action action;
    uint32_t slot;    /* which set of buffers the microbatch uses in this
                         chunk, from its first forward to its last backward,
                         or to its last weight gradient if those are delayed;
                         in another chunk it may have another slot;
                         GH_SLOT_NONE: one of the host's own besides those
                         of the slots, as when all are in flight, or when the
                         host captures the flight's first pass itself */
    gh_reason reason; /* why not a graph; GH_REASON_NONE when it is one */
    void *stream;     /* where to issue the parts.  Not the pass's stream
                         when that is the legacy default one and the pass is
                         recorded: the legacy stream cannot be captured */
    uint32_t n_inputs;
    uint32_t n_outputs;
    const gh_buffer *inputs;  /* where to read; valid until exit */
    const gh_buffer *outputs; /* REPLAYED: where the results are, as they
                                 were given at the recording; valid until
                                 the slot's next pass of this segment and
                                 direction, with GH_PASS_NO_EXIT too.  Of the
                                 last pass of a flight: the slot's next flight
                                 waits for what was issued before the next
                                 gh_layer_enter; copy what is read later */
} gh_decision;

/**
 * Begin a pass.  With GH_PASS_NO_EXIT one that is replayed has ended when the
 * call returns: no pass is open then, and an exit for it is GH_ERR_STATE.
 *
 * @param         pass      read during the call; inputs too
 * @param[in,out] decision  struct_size says how much is written
 *
 * @return GH_OK; GH_ERR_INVALID, GH_ERR_ABI or GH_ERR_UNSUPPORTED for a bad
 *         struct, another group than the bank's, or another bank than the
 *         flight's; GH_ERR_NOT_FOUND for an unknown segment or bank;
 *         GH_ERR_STATE when another pass is open, for a second forward before the backward of
 *         the first (GH_PASS_FORWARD_ONLY is for the one that has none), for
 *         a backward whose forward has not run, or for a weight gradient
 *         whose backward has not (of a microbatch without a slot only the
 *         number of its passes is known), or when every free slot was last
 *         used on a stream that the host is capturing, or in a capture of
 *         this step's, which pass->stream cannot wait for;
 *         GH_ERR_BUSY with GH_SESSION_BUSY_FAILS; GH_ERR_DEVICE when the
 *         driver fails a call without which the numbers would be wrong;
 *         GH_ERR_RANKS when the ranks of the bank part here.  No pass is then
 *         open.
 *
 * Any other driver call that fails makes the pass eager, not the call fail.
 * Stream: enqueues the input copy and the graph on pass->stream.
 * Blocks: never, but of a bank with ranks for those, where they are asked; a
 * first recording allocates.  Since: 0.1.
 */
GH_API gh_status gh_layer_enter(gh_session *session, const gh_pass *pass,
                                gh_decision *decision, gh_error *err);

/**
 * End the pass that is open.
 *
 * @param pass  the same segment, direction, variant and microbatch as at
 *              enter, and now the outputs
 *
 * @return GH_OK; GH_RERUN when a recording failed: nothing of the pass has
 *         executed, no pass is open, and the host enters it again (if it
 *         does not, its microbatch keeps the slot until the step ends);
 *         GH_ERR_RANKS when the ranks of the bank part here, and no pass is
 *         open either; GH_ERR_STATE when no pass is open or it is another one;
 *         GH_ERR_INVALID, GH_ERR_ABI or GH_ERR_UNSUPPORTED for a bad struct,
 *         after which the pass is still open.
 *
 * A recorded pass is ended on the thread that entered it.
 * Stream: enqueues a recorded graph on pass->stream.
 * Blocks: while a recorded graph is instantiated, and until the other ranks of
 * its bank have theirs.  Since: 0.1.
 */
GH_API gh_status gh_layer_exit(gh_session *session, const gh_pass *pass,
                               gh_error *err);

/**
 * Give up the pass that is open, as when the host's own code failed in it.
 * A recording is dropped and its pass is recorded another time, or eager for
 * good when a call in it has ended the capture, which is then said; nothing is
 * undone of what a pass has already issued.  With other ranks it is eager for
 * good, on all of them.
 *
 * @return GH_OK, also when no pass is open; GH_ERR_INVALID.
 * Blocks: never, but of a recording for the other ranks of its bank.
 * Since: 0.1.
 */
GH_API gh_status gh_layer_cancel(gh_session *session, gh_error *err);

/**
 * Between these two every pass runs eagerly and takes a slot as usual: for
 * a host that runs warmup of its own inside a step.  They nest.
 *
 * @return GH_OK; GH_ERR_STATE when a pass is open, or for a post_warmup
 *         without its pre_warmup; GH_ERR_INVALID.
 * Blocks: never.  Since: 0.1.
 */
GH_API gh_status gh_pre_warmup(gh_session *session, gh_error *err);
GH_API gh_status gh_post_warmup(gh_session *session, gh_error *err);

/**
 * Issue what was delayed to the CPU gap after a replay: with
 * GRAPHHOOKS_OFFLOAD_DELAY=1 the copies of gh_offload_commit, in its order.
 * The library issues them by itself before the next backward, before their
 * memory is written again, and when the step ends.
 *
 * @return GH_OK; GH_ERR_STATE when a pass is open; GH_ERR_INVALID;
 *         GH_ERR_DEVICE.
 * Blocks: never.  Since: 0.1.
 */
GH_API gh_status gh_flush_delayed(gh_session *session, gh_error *err);

/**
 * The step is over: every slot becomes free, warmup counts one step.
 *
 * @return GH_OK; GH_ERR_STATE when a pass is open (use gh_layer_cancel);
 *         GH_ERR_INVALID; GH_ERR_DEVICE or GH_ERR_NO_MEMORY from what is
 *         offloaded, or GH_ERR_RANKS where a communicator has failed, and the
 *         step is over all the same.
 * Blocks: never; writes a trace that has filled up.  Since: 0.1.
 */
GH_API gh_status gh_iteration_end(gh_session *session, gh_error *err);

GH_END_DECLS

#endif
