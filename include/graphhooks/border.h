/*
 * graphhooks/border.h - find a tensor that another segment has written.
 *
 * A graph over part of a layer ends inside the layer, and the eager rest reads
 * tensors that the graph has written.  gh_plan_border() lists those tensors.
 * The host names them in gh_buffer.tensor of a pass's outputs, and
 * gh_border_find() returns where they are.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GRAPHHOOKS_BORDER_H
#define GRAPHHOOKS_BORDER_H

#include <graphhooks/layer.h>

GH_BEGIN_DECLS

/* Names one output of the last pass of a segment, direction and microbatch.
 * Zero the struct, then set struct_size.  Since 0.2. */
typedef struct gh_border_key {
    uint32_t struct_size;
    uint32_t segment; /* of the pass that wrote it.  GH_FORWARD:
                         gh_border.segment.  GH_BACKWARD: a segment that reads
                         the tensor, since its backward writes the gradient */
    gh_direction direction;
    uint32_t microbatch;
    uint32_t flags; /* GH_PASS_FORWARD_ONLY if the pass had that flag; else 0 */
    gh_tensor tensor;
    uint32_t which; /* of several outputs with this name, from 0 */
} gh_border_key;

/**
 * Find an output of an earlier pass of a microbatch.
 *
 * The result is the same whether that pass was recorded, replayed or run
 * eagerly, and whichever its variant.  With GH_BACKWARD it is the tensor's
 * gradient.  Of passes without a slot the library remembers only the last of
 * each segment and direction: call this before the same pass of another
 * microbatch runs.
 *
 * @param      key       read during the call only
 * @param[out] buffer_p  as the pass gave it at its exit; valid until the next
 *                       pass of that segment, direction and slot
 *
 * @return GH_OK; GH_ERR_NOT_FOUND when that pass has not run since the
 *         microbatch took its slot, or ran without a slot and another one did
 *         since, or named no such output; GH_ERR_INVALID, GH_ERR_ABI or
 *         GH_ERR_UNSUPPORTED for a bad struct.
 * Blocks: never.  Cost: linear in the pass's outputs.  Since: 0.2.
 */
GH_API gh_status gh_border_find(const gh_session *session,
                                const gh_border_key *key, gh_buffer *buffer_p,
                                gh_error *err);

GH_END_DECLS

#endif
