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

#include <graphhooks/layer.h>

#include "base/path.h"

#include <stdbool.h>

struct gh_capture;

/* The pass has no graph yet, or one that has to be recorded again. */
GH_COLD gh_status gh_decide_to_record(struct gh_capture *c, const gh_pass *pass,
                                      gh_error *err);
/* The pass has no graph, and open.reason says why none is made. */
GH_COLD gh_status gh_decide_without(struct gh_capture *c, const gh_pass *pass,
                                    gh_error *err);
/* The pass has a graph, but runs eagerly. */
GH_COLD gh_status gh_decide_to_leave(struct gh_capture *c, gh_reason reason,
                                     gh_error *err);
/* The same, because the inputs do not fit the graph. */
GH_COLD gh_status gh_decide_misfit(struct gh_capture *c, const gh_pass *pass,
                                   gh_error *err);

/* With GRAPHHOOKS_CHECK=ranks: compares the action with that of the other
 * ranks.  If they differ, all run the pass eagerly. */
GH_COLD gh_status gh_decide_alike(struct gh_capture *c, gh_action action,
                                  bool *alike_p, gh_error *err);

#endif
