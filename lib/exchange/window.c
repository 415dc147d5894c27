/*
 * window.c - the memory that other ranks write.
 *
 * A window that is to be suspended is mapped at addresses that are reserved.
 * Such memory has no handle for cuIpcOpenMemHandle, so ranks of several
 * processes have windows of cuMemAlloc, which stay.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "base/error.h"
#include "exchange/state.h"

/* The unit in which a driver makes allocations.  A shared handle covers a whole
 * allocation. */
#define UNIT (UINT64_C(2) << 20)

/* Whether an allocation holds the host's window: what others write behind its
 * end would be memory of somebody else.  Only of what cuMemAlloc has made is it
 * known where that is. */
static gh_status check_window(const gh_exchange *x, gh_error *err)
{
    const uint64_t bytes = x->desc.window_bytes;
    struct gh_shared_memory memory;

    if (gh_device_share(x->dev, x->window, &memory, NULL) == GH_OK &&
        bytes > memory.room) {
        return gh_fail(err, GH_ERR_INVALID,
                       "gh_exchange_desc.window_bytes is %llu, and the "
                       "allocation of gh_exchange_desc.window ends after %llu: "
                       "lend more memory, or say fewer bytes",
                       (unsigned long long)bytes,
                       (unsigned long long)memory.room);
    }
    return GH_OK;
}

/* ---- mapped -------------------------------------------------------------- */

gh_status gh_window_allow(gh_exchange *x, const struct gh_peer *peer,
                          gh_error *err)
{
    struct gh_device_info info;

    gh_device_get_info(x->dev, &info);
    return x->window_room == 0 || peer->ordinal == info.ordinal
               ? GH_OK
               : gh_device_allow(x->dev, x->window, x->window_room,
                                 peer->ordinal, err);
}

void gh_window_unmap(gh_exchange *x)
{
    if (x->mapped &&
        gh_device_unmap(x->dev, x->window, x->window_room, NULL) == GH_OK) {
        x->mapped = false;
    }
}

gh_status gh_window_map(gh_exchange *x, gh_error *err)
{
    gh_status status = GH_OK;

    if (x->window_room == 0 || x->mapped) {
        return GH_OK;
    }
    status = gh_device_map(x->dev, x->window, x->window_room, err);
    x->mapped = status == GH_OK;
    for (uint32_t i = 0; i < x->n && status == GH_OK; i++) {
        if (x->peers[i].reach == GH_REACH_DIRECT) {
            status = gh_window_allow(x, &x->peers[i], err);
        }
    }
    if (status != GH_OK) {
        gh_window_unmap(x);
    }
    return status;
}

static gh_status make_mapped(gh_exchange *x, uint64_t granule, gh_error *err)
{
    const uint64_t bytes = x->desc.window_bytes;
    const uint64_t room =
        bytes != 0 ? (bytes + granule - 1) / granule * granule : granule;
    gh_status status = gh_device_reserve(x->dev, room, &x->window, err);

    if (status != GH_OK) {
        return status;
    }
    x->window_room = room;
    status = gh_window_map(x, err);
    if (status != GH_OK) {
        gh_device_unreserve(x->dev, x->window, room);
        x->window = NULL;
        x->window_room = 0;
    }
    return status;
}

/* ---- the window ---------------------------------------------------------- */

void gh_window_free(gh_exchange *x)
{
    if (!x->window_ours) {
        return;
    }
    if (x->window_room == 0) {
        gh_device_free(x->dev, x->window);
    } else {
        gh_window_unmap(x);
        if (!x->mapped) {
            gh_device_unreserve(x->dev, x->window, x->window_room);
        }
    }
    x->window = NULL;
    x->window_room = 0;
    x->mapped = false;
}

static gh_status make(gh_exchange *x, uint64_t granule, gh_error *err)
{
    const uint64_t bytes = x->desc.window_bytes;

    if (bytes > UINT64_MAX - UNIT) {
        return gh_fail(err, GH_ERR_INVALID,
                       "gh_exchange_desc.window_bytes is %llu",
                       (unsigned long long)bytes);
    }
    return granule != 0 ? make_mapped(x, granule, err)
                        : gh_device_alloc(x->dev, (bytes / UNIT + 1) * UNIT,
                                          &x->window, err);
}

gh_status gh_window_make(gh_exchange *x, bool by_handles, gh_error *err)
{
    uint64_t granule = 0;

    if (x->desc.window != NULL) {
        x->window = x->desc.window;
        return check_window(x, err);
    }
    if ((x->desc.flags & GH_EXCHANGE_SUSPENDS) != 0 && !by_handles) {
        (void)gh_device_granule(x->dev, &granule, NULL);
    }
    if (x->window != NULL && (granule != 0) == (x->window_room != 0)) {
        return GH_OK;
    }
    gh_window_free(x);
    x->window_ours = true;
    return make(x, granule, err);
}
