/*
 * offload_declare.c - gh_offload_declare: checks what the host hands in, then
 * lets lib/capture decide.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include <graphhooks/offload.h>

#include "abi/session.h"
#include "base/error.h"
#include "base/size.h"
#include "capture/capture.h"

#include <stdlib.h>

/* The most groups, and the most bytes of each, so that their sum cannot
 * overflow. */
#define MOST_GROUPS UINT32_C(65536)
#define MOST_BYTES (UINT64_C(1) << 40)

static gh_offload_declared *at(gh_offload_declared *groups, uint32_t i)
{
    return (gh_offload_declared *)((char *)groups +
                                   (size_t)i * groups->struct_size);
}

static gh_status check_one(const gh_offload_declared *group, uint32_t size,
                           uint32_t i, gh_error *err)
{
    if (group->struct_size != size) {
        return gh_fail(err, GH_ERR_ABI,
                       "gh_offload_declare: groups[%u] has %u bytes, and "
                       "those before it %u: one array, one size",
                       i, group->struct_size, size);
    }
    if (group->bytes > MOST_BYTES) {
        return gh_fail(err, GH_ERR_INVALID,
                       "gh_offload_declare: groups[%u] has %llu bytes, which "
                       "no device has",
                       i, (unsigned long long)group->bytes);
    }
    if ((group->flags & ~(uint32_t)(GH_DECLARED_ELSEWHERE | GH_DECLARED_LATE)) != 0 ||
        group->reserved != 0) {
        return gh_fail(err, GH_ERR_INVALID,
                       "gh_offload_declare: groups[%u] has flags 0x%x and "
                       "reserved %u: GH_DECLARED_* and 0",
                       i, group->flags, group->reserved);
    }
    return gh_check_size("gh_offload_declared", group,
                         GH_SIZE_THROUGH(gh_offload_declared, reserved),
                         sizeof(*group), err);
}

static gh_status take(gh_offload_declared *groups, uint32_t n,
                      gh_offload_declared *ours, gh_error *err)
{
    gh_status status =
        gh_check_size("gh_offload_declared", groups,
                      GH_SIZE_THROUGH(gh_offload_declared, reserved),
                      sizeof(*groups), err);

    for (uint32_t i = 0; i < n && status == GH_OK; i++) {
        status = check_one(at(groups, i), groups->struct_size, i, err);
        if (status == GH_OK) {
            gh_take_struct(at(groups, i), &ours[i], sizeof(ours[i]));
        }
    }
    return status;
}

gh_status gh_offload_declare(gh_session *session, gh_offload_declared *groups,
                             uint32_t n, uint32_t in_flight, gh_error *err)
{
    gh_status status = gh_session_check(session, "gh_offload_declare", err);
    gh_offload_declared *ours;

    if (status != GH_OK) {
        return status;
    }
    if (groups == NULL || n == 0 || n > MOST_GROUPS) {
        return gh_fail(err, GH_ERR_INVALID,
                       "gh_offload_declare: %u groups at %p: 1 to %u of them",
                       n, (void *)groups, MOST_GROUPS);
    }
    ours = calloc(n, sizeof(*ours));
    if (ours == NULL) {
        return gh_fail(err, GH_ERR_NO_MEMORY, "no memory for %u groups", n);
    }
    status = take(groups, n, ours, err);
    if (status == GH_OK) {
        status = gh_capture_declare(session->capture, ours, n, in_flight, err);
        for (uint32_t i = 0; i < n; i++) {
            if (status == GH_OK || status == GH_ERR_NO_MEMORY) {
                at(groups, i)->why = ours[i].why;
            }
        }
    }
    free(ours);
    return status;
}
