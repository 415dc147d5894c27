/*
 * decide.h - the profile ends: who goes, and which buffer is whose.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_OFFLOAD_SETTLE_H
#define GH_OFFLOAD_SETTLE_H

#include "offload/groups/state.h"

/* Settles which groups go, and their buffers.  Nothing is in flight. */
gh_status gh_offload_decide(struct gh_offload *offload, gh_error *err);

#endif
