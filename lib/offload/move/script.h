/*
 * script.h - where a group is that one pass has begun and another ends.
 *
 * script.c asks while that other pass is recorded, launch.c before its graph is
 * launched.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_OFFLOAD_SCRIPT_H
#define GH_OFFLOAD_SCRIPT_H

#include "offload/groups/host_owned.h"
#include "offload/groups/state.h"

#include <stdbool.h>

/* Whether what stays is elsewhere than where graphs have it. */
static inline bool gh_script_holds_other(const struct gh_instance *i,
                                         uint64_t stays)
{
    return stays != 0 && i->held != i->kept;
}

/* Whether an eager pass has loaded it where the host has it this time. */
static inline bool gh_script_is_lent(const struct gh_instance *i)
{
    return i->state == GH_INSTANCE_READING && i->said &&
           gh_instance_is_host_owned(i) &&
           i->host_memory->mode == GH_HOST_OWNED_STAYS &&
           i->host_memory->stays != 0;
}

/* Whether its address is this time's only, which no graph can know. */
static inline bool gh_script_is_temporary(const struct gh_instance *i)
{
    return gh_script_holds_other(i, i->stays) || gh_script_is_lent(i);
}

/* Whether another pass, perhaps an eager one, has saved or loaded it. */
static inline bool gh_script_is_begun(const struct gh_instance *i,
                                      enum gh_offload_verb end,
                                      const struct gh_offload_at *at)
{
    return i->microbatch == at->microbatch &&
           i->state == (end == GH_OFFLOAD_COMMIT ? GH_INSTANCE_WRITING
                                                 : GH_INSTANCE_READING);
}

#endif
