/*
 * agree.h - what a pass does with the answers of the other ranks.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_CAPTURE_AGREE_H
#define GH_CAPTURE_AGREE_H

#include "ranks/ask.h"

/*
 * Each of these is called where gh_ask_is_due(), and fails with GH_ERR_RANKS
 * alone: the ranks are lost, and no graph is left.
 */

/* The capture of the open pass has begun, or has failed to.  Where one rank
 * does not record, none does: sets the action and the reason. */
gh_status gh_agree_to_record(struct gh_capture *c, gh_error *err);
/* The recording has ended, and nothing has run.  GH_RERUN: it was whole on this
 * rank, but not on another, and the entry is given up. */
gh_status gh_agree_on_recording(struct gh_capture *c, gh_error *err);
/* The pass has a graph, and open.reason keeps this rank from launching it. */
gh_status gh_agree_to_leave(struct gh_capture *c, gh_error *err);
/* The pass was compared.  Where it differs on one rank, it is eager on all. */
gh_status gh_agree_on_check(struct gh_capture *c, gh_error *err);
/* The host gives a recording up, so all ranks do. */
void gh_agree_to_cancel(struct gh_capture *c);

#endif
