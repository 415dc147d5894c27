/*
 * offload.c - the calls of graphhooks/offload.h: checks what the host hands
 * in, then lets lib/capture decide.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include <graphhooks/offload.h>

#include "abi/session.h"
#include "base/error.h"
#include "base/size.h"
#include "capture/capture.h"

/* The most bytes of one tensor, so that the sum over a group cannot
 * overflow. */
#define MOST_BYTES (UINT64_C(1) << 48)

/* Checks the fields for hosts that name the addresses of their tensors
 * (GH_OFFLOAD_HOST_OWNED). */
static gh_status check_own(const gh_offload_group *group, gh_error *err)
{
    if ((group->flags & ~(uint32_t)GH_OFFLOAD_HOST_OWNED) != 0 ||
        group->reserved != 0) {
        return gh_fail(err, GH_ERR_INVALID,
                       "gh_offload_group: flags 0x%x, reserved %u: zero the "
                       "struct before filling it",
                       group->flags, group->reserved);
    }
    if (group->object != NULL && (group->flags & GH_OFFLOAD_HOST_OWNED) == 0) {
        return gh_fail(err, GH_ERR_INVALID,
                       "gh_offload_group.object is set: it is for "
                       "GH_OFFLOAD_HOST_OWNED");
    }
    return GH_OK;
}

static gh_status check_addresses(const gh_offload_group *group, gh_error *err)
{
    for (uint32_t i = 0; i < group->n_tensors; i++) {
        if (group->tensors[i].address == NULL && group->tensors[i].bytes != 0) {
            return gh_fail(err, GH_ERR_INVALID,
                           "gh_offload_save: tensors[%u] has %llu bytes at "
                           "NULL: with GH_OFFLOAD_HOST_OWNED say where it is",
                           i, (unsigned long long)group->tensors[i].bytes);
        }
    }
    return GH_OK;
}

/* Checks the group, whose size differs if the host was built with another
 * release.  `*ours_p` becomes a group of this release's size with the same
 * tensors. */
static gh_status check_group(const gh_session *session, const char *call,
                             const gh_offload_group *group,
                             gh_offload_group *ours_p, gh_error *err)
{
    gh_status status = gh_session_check(session, call, err);

    if (status != GH_OK) {
        return status;
    }
    if (group == NULL) {
        return gh_fail(err, GH_ERR_INVALID, "%s: group is NULL", call);
    }
    status = gh_check_size("gh_offload_group", group,
                           GH_SIZE_THROUGH(gh_offload_group, tensors),
                           sizeof(*group), err);
    if (status != GH_OK) {
        return status;
    }
    if (group->tensors == NULL || group->n_tensors == 0 ||
        group->n_tensors > GH_MAX_GROUP) {
        return gh_fail(err, GH_ERR_INVALID,
                       "%s: %u tensors at %p: 1 to %u of them", call,
                       group->n_tensors, (const void *)group->tensors,
                       GH_MAX_GROUP);
    }
    for (uint32_t i = 0; i < group->n_tensors; i++) {
        if (group->tensors[i].bytes > MOST_BYTES) {
            return gh_fail(err, GH_ERR_INVALID,
                           "%s: tensors[%u] has %llu bytes, which no device "
                           "has",
                           call, i,
                           (unsigned long long)group->tensors[i].bytes);
        }
    }
    gh_take_struct(group, ours_p, sizeof(*ours_p));
    return check_own(ours_p, err);
}

gh_status gh_offload_save(gh_session *session, gh_offload_group *group,
                          gh_error *err)
{
    gh_offload_group ours;
    gh_status status =
        check_group(session, "gh_offload_save", group, &ours, err);

    if (status == GH_OK && (ours.flags & GH_OFFLOAD_HOST_OWNED) != 0) {
        status = check_addresses(&ours, err);
    }
    return status == GH_OK ? gh_capture_save(session->capture, &ours, err)
                           : status;
}

gh_status gh_offload_commit(gh_session *session, uint32_t layer,
                            uint32_t module, gh_error *err)
{
    gh_status status = gh_session_check(session, "gh_offload_commit", err);

    return status == GH_OK
               ? gh_capture_commit(session->capture, layer, module, err)
               : status;
}

gh_status gh_offload_load(gh_session *session, gh_offload_group *group,
                          gh_error *err)
{
    gh_offload_group ours = { 0 };
    gh_status status =
        check_group(session, "gh_offload_load", group, &ours, err);

    ours.flags = 0; /* only saves have flags */
    return status == GH_OK ? gh_capture_load(session->capture, &ours, err)
                           : status;
}

gh_status gh_offload_release(gh_session *session, uint32_t layer,
                             uint32_t module, gh_error *err)
{
    gh_status status = gh_session_check(session, "gh_offload_release", err);

    return status == GH_OK
               ? gh_capture_release(session->capture, layer, module, err)
               : status;
}

uint32_t gh_offload_is_on(const gh_session *session, uint32_t module)
{
    const uint32_t own = module & ~GH_MODULE_NAMED;
    const struct gh_offload_options *asked;

    if (gh_session_check_read(session, "gh_offload_is_on", NULL) != GH_OK ||
        !session->offloads) {
        return 0;
    }
    asked = &session->offload;
    if ((module & GH_MODULE_NAMED) != 0) {
        return own < asked->n_names && (asked->named >> own & 1) != 0;
    }
    return module == 0 || (asked->modules & module) != 0;
}

gh_status gh_offload_get_stats(const gh_session *session,
                               gh_offload_stats *stats, gh_error *err)
{
    gh_offload_stats ours = { 0 };
    gh_status status =
        gh_session_check_read(session, "gh_offload_get_stats", err);

    if (status != GH_OK) {
        return status;
    }
    if (stats == NULL) {
        return gh_fail(err, GH_ERR_INVALID,
                       "gh_offload_get_stats: stats is NULL");
    }
    status = gh_check_size("gh_offload_stats", stats,
                           GH_SIZE_THROUGH(gh_offload_stats, pinned_bytes),
                           sizeof(*stats), err);
    if (status != GH_OK) {
        return status;
    }
    if (!gh_capture_count_offload(session->capture, &ours)) {
        return gh_fail(err, GH_ERR_UNSUPPORTED,
                       "gh_offload_get_stats: the session offloads nothing");
    }
    gh_give_struct(stats, &ours, sizeof(ours));
    return GH_OK;
}
