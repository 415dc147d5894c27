/*
 * policy.h - which groups stay on the device: a pure function of the profile.
 *
 * The rules are those that Megatron-Core's fine-grained offload has published,
 * on groups in the order of their commits: the last one of each module stays,
 * as the backward needs it at once; so many bytes stay, the earliest groups
 * first; of the rest the latest stay, as the memory of the earliest is free for
 * longest.  Ranks with the same profile settle the same.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_OFFLOAD_POLICY_H
#define GH_OFFLOAD_POLICY_H

#include "offload/table.h"

struct gh_policy {
    double fraction;
    uint64_t keep_bytes;
    uint32_t buffers;
    uint32_t in_flight; /* microbatches */
};

/* In the order of commits; sets `fate` of those that go until now. */
void gh_policy_settle(const struct gh_policy *policy, struct gh_group **groups,
                      uint32_t n);

/* Buffers of each ring of a class. */
uint32_t gh_policy_places(const struct gh_policy *policy,
                          const struct gh_size_class *size_class);

#endif
