/*
 * declare.h - decides by what a host declares, without a profile.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_OFFLOAD_DECLARE_H
#define GH_OFFLOAD_DECLARE_H

#include "offload/groups/state.h"

gh_status gh_offload_decide_declared(struct gh_offload *offload,
                                     const gh_offload_declared *groups,
                                     uint32_t n, uint32_t in_flight,
                                     gh_error *err);
/* Why a declared group stays; NULL: it goes. */
const char *gh_offload_why_stays(const struct gh_offload *offload,
                                 const gh_offload_declared *group);

#endif
