/*
 * link.c - what the link and the rings give a group.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "plan/policy.h"

uint32_t gh_policy_ring_buffers(const struct gh_policy *policy,
                                const struct gh_policy_class *size_class)
{
    return size_class->in_pass > policy->buffers ? size_class->in_pass
                                                 : policy->buffers;
}

uint32_t gh_policy_ring_buffers_out(const struct gh_policy *policy,
                                    const struct gh_policy_class *size_class)
{
    return gh_policy_ring_buffers(policy, size_class) + size_class->widened;
}

static double ns_of(uint64_t measured, uint64_t bytes, double rate)
{
    return measured != 0
               ? (double)measured
               : (double)bytes * 1000.0 / (rate > 0.0 ? rate : GH_LINK_RATE);
}

double gh_policy_out_ns(const struct gh_profile *profile, uint32_t group)
{
    const struct gh_policy_group *g = &profile->groups[group];

    return ns_of(g->out_ns, g->bytes, profile->out_rate);
}

double gh_policy_back_ns(const struct gh_profile *profile, uint32_t group)
{
    const struct gh_policy_group *g = &profile->groups[group];

    return ns_of(g->back_ns, g->bytes, profile->back_rate);
}
