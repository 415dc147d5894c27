/*
 * decide.h - what becomes of a pass that is not simply replayed.
 *
 * enter.c decides the rest, which is the step path.  Each of these sets the
 * action and the reason of the open pass.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_CAPTURE_DECIDE_H
#define GH_CAPTURE_DECIDE_H

#include "capture/state.h"

/* Whether the microbatch holds a slot whose offsets are another one's. */
static inline bool gh_decide_lacks_sequences(const struct gh_capture *c)
{
    return c->open.slot != GH_SLOT_NONE &&
           c->open.at->eager == GH_REASON_PACKED &&
           !gh_slot_is_packed(c->open.at);
}

/* The pass has no graph yet, or one that has to be made anew. */
GH_COLD gh_status gh_decide_to_record(struct gh_capture *c, const gh_pass *pass,
                                      gh_error *err);
/* The pass has no graph, and none is made: by its reason. */
GH_COLD gh_status gh_decide_without(struct gh_capture *c, const gh_pass *pass,
                                    gh_error *err);
/* The pass has a graph, and runs eagerly all the same. */
GH_COLD gh_status gh_decide_to_leave(struct gh_capture *c, gh_reason reason,
                                     gh_error *err);
/* The same, as its inputs do not fit. */
GH_COLD gh_status gh_decide_misfit(struct gh_capture *c, gh_error *err);

/* GRAPHHOOKS_CHECK=ranks: whether all ranks decide as this one; where they do
 * not, all run the pass eagerly. */
GH_COLD gh_status gh_decide_alike(struct gh_capture *c, gh_action action,
                                  bool *alike_p, gh_error *err);

#endif
