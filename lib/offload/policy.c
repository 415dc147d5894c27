/*
 * policy.c - see policy.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "offload/policy.h"

static bool goes(const struct gh_group *group)
{
    return group->fate == GH_FATE_GOES;
}

/* Whether a later group of the chunk has the same module. */
static bool comes_again(struct gh_group **groups, uint32_t n, uint32_t i)
{
    for (uint32_t j = i + 1; j < n; j++) {
        if (goes(groups[j]) && groups[j]->chunk == groups[i]->chunk &&
            groups[j]->module == groups[i]->module) {
            return true;
        }
    }
    return false;
}

static void keep_margin(struct gh_group **groups, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        if (goes(groups[i]) && !comes_again(groups, n, i)) {
            groups[i]->fate = GH_FATE_MARGIN;
        }
    }
}

static void keep_bytes(struct gh_group **groups, uint32_t n, uint32_t chunk,
                       uint64_t bytes)
{
    for (uint32_t i = 0; i < n && bytes > 0; i++) {
        if (goes(groups[i]) && groups[i]->chunk == chunk) {
            groups[i]->fate = GH_FATE_KEEP;
            bytes -= groups[i]->bytes < bytes ? groups[i]->bytes : bytes;
        }
    }
}

static uint32_t count_of_chunk(struct gh_group **groups, uint32_t n,
                               uint32_t chunk)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < n; i++) {
        count += goes(groups[i]) && groups[i]->chunk == chunk;
    }
    return count;
}

/* The latest of each chunk stay. */
static void keep_fraction(struct gh_group **groups, uint32_t n, uint32_t chunk,
                          double fraction)
{
    const double of_all = (double)count_of_chunk(groups, n, chunk);
    /* 5 groups less 0.8 of them are 1, also where 1 - 0.8 is a bit less. */
    uint32_t stay = (uint32_t)(of_all * (1.0 - fraction) + 1e-6);

    for (uint32_t i = n; i-- > 0 && stay > 0;) {
        if (goes(groups[i]) && groups[i]->chunk == chunk) {
            groups[i]->fate = GH_FATE_FRACTION;
            stay--;
        }
    }
}

uint32_t gh_policy_places(const struct gh_policy *policy,
                          const struct gh_size_class *size_class)
{
    return size_class->in_pass > policy->buffers ? size_class->in_pass
                                                 : policy->buffers;
}

static uint32_t count_of_class(struct gh_group **groups, uint32_t n,
                               const struct gh_size_class *size_class)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < n; i++) {
        count += goes(groups[i]) && groups[i]->size_class == size_class;
    }
    return count;
}

/* Two rings that hold as much as all flights together free nothing. */
static void keep_without_gain(const struct gh_policy *policy,
                              struct gh_group **groups, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        const struct gh_size_class *size_class = groups[i]->size_class;
        uint64_t without;

        if (!goes(groups[i])) {
            continue;
        }
        without = (uint64_t)count_of_class(groups, n, size_class) *
                  policy->in_flight;
        if (without > 2 * (uint64_t)gh_policy_places(policy, size_class)) {
            continue;
        }
        for (uint32_t j = 0; j < n; j++) {
            if (goes(groups[j]) && groups[j]->size_class == size_class) {
                groups[j]->fate = GH_FATE_NO_GAIN;
            }
        }
    }
}

void gh_policy_settle(const struct gh_policy *policy, struct gh_group **groups,
                      uint32_t n)
{
    uint32_t chunks = 0;

    for (uint32_t i = 0; i < n; i++) {
        chunks = groups[i]->chunk >= chunks ? groups[i]->chunk + 1 : chunks;
    }
    keep_margin(groups, n);
    for (uint32_t chunk = 0; chunk < chunks; chunk++) {
        keep_bytes(groups, n, chunk, policy->keep_bytes);
        keep_fraction(groups, n, chunk, policy->fraction);
    }
    keep_without_gain(policy, groups, n);
}
