/*
 * graphhooks/border.h - where a tensor is that crosses a segment's border.
 *
 * A graph over part of a layer ends in the middle of it, and the eager rest
 * reads what the graph has left.  gh_plan_border() lists what crosses, a host
 * names its outputs in gh_buffer.tensor, and finds them here.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GRAPHHOOKS_BORDER_H
#define GRAPHHOOKS_BORDER_H

#include <graphhooks/layer.h>

GH_BEGIN_DECLS

/* Which tensor: the one of this name among the outputs of this pass, the
 * last time that it ran.  Zero the struct, then set struct_size.  Since 0.2. */
typedef struct gh_border_key {
    uint32_t struct_size;
    uint32_t segment; /* whose pass wrote it: gh_border.segment forward; a
                         segment that has read the tensor backward, as its
                         backward writes the gradient */
    gh_direction direction;
    uint32_t microbatch;
    uint32_t flags; /* GH_PASS_FORWARD_ONLY for what such a pass has left */
    gh_tensor tensor;
    uint32_t which; /* of several outputs of one name, from 0 */
} gh_border_key;

/**
 * Find what an earlier pass of a microbatch has left behind: the parts on
 * the other side of a border read it there, whether that pass was recorded,
 * replayed or run eagerly, and of which variant it was.  GH_BACKWARD means the
 * tensor's gradient. Of passes without a slot only the last of each segment and
 * direction is known: find what one has left before another microbatch's
 * follows it.
 *
 * @param      key       read during the call only
 * @param[out] buffer_p  as the pass gave it at its exit; valid until the next
 *                       pass of that segment, direction and slot
 *
 * @return GH_OK; GH_ERR_NOT_FOUND when that pass has not run in the flight of
 *         this microbatch, or ran without a slot and was not the last one
 *         that did, or named no such output; GH_ERR_INVALID,
 *         GH_ERR_ABI or GH_ERR_UNSUPPORTED for a bad struct.
 * Blocks: never.  Cost: a look at each of the pass's outputs.  Since: 0.2.
 */
GH_API gh_status gh_border_find(const gh_session *session,
                                const gh_border_key *key, gh_buffer *buffer_p,
                                gh_error *err);

GH_END_DECLS

#endif
