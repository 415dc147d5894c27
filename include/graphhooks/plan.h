/*
 * graphhooks/plan.h - the segments that the host runs, and their borders.
 *
 * The plan is made when a session opens and never changes.  A segment covers
 * consecutive parts of layers that are all graphed or all eager.  Segments are
 * numbered from 0 through all chunks.  The host runs the segments of a chunk
 * in that order forward, and in the reverse order backward.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GRAPHHOOKS_PLAN_H
#define GRAPHHOOKS_PLAN_H

#include <graphhooks/base.h>
#include <graphhooks/model.h>
#include <graphhooks/session.h>

GH_BEGIN_DECLS

/* How a segment is treated.  Values are frozen.  Since 0.1. */
typedef uint32_t gh_segment_mode;
enum {
    GH_SEGMENT_EAGER = 0,
    GH_SEGMENT_GRAPHED = 1
};

/* gh_segment.flags; since 0.5 */
enum {
    /* With GH_SESSION_DELAY_WGRAD: some part of the segment has weights, so a
     * GH_WGRAD pass follows each backward that is not GH_PASS_NO_WGRAD.
     * Without this flag no such pass follows: its microbatch does not wait for
     * one, and one that comes all the same runs eagerly. */
    GH_SEGMENT_HAS_WGRAD = 1u << 0
};

/**
 * One segment: from first_part of first_layer through last_part of
 * last_layer.  Set struct_size before the call that fills it.  Since 0.1.
 */
typedef struct gh_segment {
    uint32_t struct_size;
    uint32_t index; /* for gh_pass.segment */
    uint32_t chunk;
    gh_segment_mode mode;
    uint32_t first_layer, last_layer; /* as added to the model, from 0 */
    gh_part first_part, last_part;
    const char *reason; /* one sentence: why it is graphed or eager; lives
                           as long as the session */
    /* since 0.5 */
    uint32_t flags;    /* GH_SEGMENT_HAS_* */
    uint32_t reserved; /* written as 0 */
} gh_segment;

/**
 * The number of segments in a chunk; 0 for a chunk the model does not have.
 * Blocks: never.  Since: 0.1.
 */
GH_API uint32_t gh_plan_segment_count(const gh_session *session,
                                      uint32_t chunk);

/**
 * Read one segment.
 *
 * @param         i        from 0 to gh_plan_segment_count() - 1
 * @param[in,out] segment  struct_size says how much is written
 *
 * @return GH_OK; GH_ERR_NOT_FOUND; GH_ERR_INVALID; GH_ERR_ABI;
 *         GH_ERR_UNSUPPORTED.
 * Blocks: never.  Since: 0.1.
 */
GH_API gh_status gh_plan_segment(const gh_session *session, uint32_t chunk,
                                 uint32_t i, gh_segment *segment,
                                 gh_error *err);

/* The tensors that one part of a layer writes and a later part reads.  Values
 * are frozen.  Since 0.2. */
typedef uint32_t gh_tensor;
enum {
    GH_TENSOR_NONE = 0,
    GH_TENSOR_HIDDEN = 1,        /* hidden states */
    GH_TENSOR_RESIDUAL = 2,      /* the residual branch past the experts */
    GH_TENSOR_PROBS = 3,         /* the router's weights */
    GH_TENSOR_ROUTING_MAP = 4,   /* which expert gets which token */
    GH_TENSOR_SHARED_OUTPUT = 5, /* output of the shared experts */
    GH_TENSOR_DISPATCH = 6       /* metadata of the dispatcher: counts, offsets,
                                    permutations; any number of tensors */
};
#define GH_TENSOR_COUNT 7

/* The elements of a tensor.  Values are frozen.  Since 0.2. */
typedef uint32_t gh_element;
enum {
    GH_ELEMENT_ACTIVATION = 0, /* of the model's type; has a gradient */
    GH_ELEMENT_PROB = 1,       /* the router's floats; has a gradient */
    GH_ELEMENT_MASK = 2,       /* truth values or numbers of experts */
    GH_ELEMENT_INDEX = 3       /* integers */
};

/**
 * A tensor that one segment writes and a later one reads.  Its gradient, where
 * it has one, goes the other way.  Set struct_size before the call that fills
 * it.  Since 0.2.
 */
typedef struct gh_border {
    uint32_t struct_size;
    gh_tensor tensor;
    gh_element element;
    uint32_t segment;  /* the segment that writes it */
    uint32_t layer;    /* the layer of the part that writes it */
    gh_part writer;    /* the part that writes it */
    uint32_t readers;  /* bit n: gh_part n of that layer may read it; 0: it is
                          read by the first part of the next layer, or by the
                          model's head after the last layer */
    uint32_t reserved; /* 0 */
    const char *name;  /* such as "probs"; static text */
    const char *shape; /* such as "[tokens, experts]"; static text */
} gh_border;

/* Which side of a segment.  Values are frozen.  Since 0.2. */
typedef uint32_t gh_side;
enum {
    GH_SIDE_IN = 0, /* what it reads and an earlier segment has written */
    GH_SIDE_OUT = 1 /* what it writes and a later segment reads */
};

/**
 * The number of tensors that cross one side of a segment; 0 for an unknown
 * segment or side.
 * Blocks: never.  Since: 0.2.
 */
GH_API uint32_t gh_plan_border_count(const gh_session *session,
                                     uint32_t segment, gh_side side);

/**
 * Read one of those tensors.  They are in the order of gh_tensor.
 *
 * @param         segment  gh_segment.index
 * @param         i        from 0 to gh_plan_border_count() - 1
 * @param[in,out] border   struct_size says how much is written
 *
 * @return GH_OK; GH_ERR_NOT_FOUND; GH_ERR_INVALID; GH_ERR_ABI;
 *         GH_ERR_UNSUPPORTED.
 * Blocks: never.  Since: 0.2.
 */
GH_API gh_status gh_plan_border(const gh_session *session, uint32_t segment,
                                gh_side side, uint32_t i, gh_border *border,
                                gh_error *err);

/* The name of a tensor, such as "probs"; "?" for an unknown value.
 * Static text.  Blocks: never.  Threads: any.  Since: 0.2. */
GH_API const char *gh_tensor_name(gh_tensor tensor);

/* gh_plan_print() formats.  Values are frozen.  Since 0.1. */
typedef uint32_t gh_format;
enum {
    GH_FORMAT_TEXT = 0,
    GH_FORMAT_JSON = 1
};

/* Receives the next piece of the text: `bytes` bytes, without a NUL.
 * Since: 0.1. */
typedef void gh_write_fn(void *user, const char *text, size_t bytes);

/**
 * Write the plan: every segment, the parts that it covers, whether it is
 * graphed, and why.  The text format shows consecutive layers that are treated
 * the same once.
 *
 * @param write  called with each piece of the text, in order
 * @param user   handed to `write`
 *
 * @return GH_OK; GH_ERR_INVALID.
 * Blocks: as `write` does.  Since: 0.1.
 */
GH_API gh_status gh_plan_print(const gh_session *session, gh_format format,
                               gh_write_fn *write, void *user, gh_error *err);

/* A stage of a pipeline with one forward, one backward: of several chunks, in
 * the interleaved order of Megatron-LM.  Zero the struct, then set struct_size.
 * Since 1.0. */
typedef struct gh_pipeline_desc {
    uint32_t struct_size;
    uint32_t stages; /* 1 to 256 */
    uint32_t stage;  /* which one; the first is 0 */
    uint32_t chunks; /* of each stage, 1 to 64 */
    uint32_t group;  /* microbatches that go through a chunk in a row: `stages`
                        to 65536; 0: as many as stages.  Not looked at if
                        `chunks` is 1, as nothing is interleaved then */
    uint32_t ahead;  /* further forwards before the first backward: 1 where a
                        forward and a backward run beside each other; at most
                        256 */
} gh_pipeline_desc;

/**
 * How many slots each chunk of a stage needs, so that no microbatch is without
 * one and none is ever recorded again.  It is the most that is in flight in the
 * chunk, for any number of microbatches that the schedule allows: a multiple of
 * the group, or one more group of at least `stages`.  The largest of a stage is
 * its gh_session_desc.max_slots.
 *
 * @param      desc   read during the call only
 * @param[out] slots  desc->chunks numbers
 *
 * @return GH_OK; GH_ERR_INVALID for NULL or a number that is not allowed;
 *         GH_ERR_ABI or GH_ERR_UNSUPPORTED for a bad struct.
 * Blocks: never.  Threads: any.  Since: 1.0.
 */
GH_API gh_status gh_plan_slots(const gh_pipeline_desc *desc, uint32_t *slots,
                               gh_error *err);

GH_END_DECLS

#endif
