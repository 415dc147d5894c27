/*
 * window.c - the memory that other ranks write.
 *
 * A window that is to be suspended is mapped at addresses that are reserved.
 * Such memory has no handle for cuIpcOpenMemHandle.  Other processes map it by
 * a file descriptor, each at addresses that it has reserved for it, so that
 * their graphs find the memory of each resume.  Where no descriptors pass,
 * windows are of cuMemAlloc, and stay.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "base/error.h"
#include "comm/post.h"
#include "exchange/state.h"

#include <unistd.h>

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

static void unmap(gh_exchange *x, void *address, uint64_t room, bool *mapped_p,
                  gh_status *status_p, gh_error *err)
{
    const gh_status status =
        *mapped_p ? gh_device_unmap(x->dev, address, room, err) : GH_OK;

    if (status == GH_OK) {
        *mapped_p = false;
    } else {
        *status_p = status;
    }
}

gh_status gh_window_unmap(gh_exchange *x, gh_error *err)
{
    gh_status status = GH_OK;

    for (uint32_t i = 0; i < x->n; i++) {
        struct gh_peer *peer = &x->peers[i];

        unmap(x, peer->window, peer->room, &peer->mapped, &status, err);
    }
    unmap(x, x->window, x->window_room, &x->mapped, &status, err);
    return status;
}

static gh_status map_shared(gh_exchange *x, gh_error *err)
{
    int file = -1;
    gh_status status =
        gh_device_map_file(x->dev, x->window, x->window_room, &file, err);

    x->mapped = status == GH_OK;
    for (uint32_t i = 0; i < x->n && status == GH_OK; i++) {
        if (x->peers[i].box != 0) {
            status = gh_post_send(x->peers[i].box, x->rank, file, err);
        }
    }
    if (file >= 0) {
        close(file); /* a mapping keeps its memory */
    }
    return status;
}

gh_status gh_window_map(gh_exchange *x, gh_error *err)
{
    gh_status status = GH_OK;

    if (x->window_room == 0 || (x->mapped && !x->by_files)) {
        return GH_OK;
    }
    if (x->by_files) {
        /* What was not unmapped before is of no use: it is not the memory that
         * the others have from now on. */
        status = gh_window_unmap(x, err);
        if (status == GH_OK) {
            status = map_shared(x, err);
        }
    } else {
        status = gh_device_map(x->dev, x->window, x->window_room, err);
        x->mapped = status == GH_OK;
    }
    for (uint32_t i = 0; i < x->n && status == GH_OK; i++) {
        if (x->peers[i].reach == GH_REACH_DIRECT) {
            status = gh_window_allow(x, &x->peers[i], err);
        }
    }
    if (status != GH_OK) {
        (void)gh_window_unmap(x, NULL);
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

/* ---- of other processes -------------------------------------------------- */

uint32_t gh_window_offer(gh_exchange *x)
{
    uint64_t granule;
    uint32_t name = 0;

    if ((x->desc.flags & GH_EXCHANGE_SUSPENDS) != 0 && x->desc.window == NULL &&
        gh_device_granule(x->dev, &granule, NULL) == GH_OK) {
        (void)gh_post_open(&x->box, &name);
    }
    return name;
}

void gh_window_no_files(gh_exchange *x)
{
    x->by_files = false;
    if (x->box >= 0) {
        close(x->box);
        x->box = -1;
    }
}

void gh_window_leave(gh_exchange *x, struct gh_peer *peer)
{
    if (peer->room == 0 || x->writes) {
        return; /* what uses it has not ended: it is left to the context */
    }
    if (!peer->mapped || gh_device_unmap(x->dev, peer->window, peer->room,
                                         NULL) == GH_OK) {
        gh_device_unreserve(x->dev, peer->window, peer->room);
    }
    peer->mapped = false;
    peer->window = NULL;
    peer->room = 0;
}

gh_status gh_window_fetch(gh_exchange *x, gh_status status, gh_error *err)
{
    uint32_t from;
    int file;

    while ((file = gh_post_take(x->box, &from)) >= 0) {
        struct gh_peer *peer = from < x->n ? &x->peers[from] : NULL;

        if (status == GH_OK && peer != NULL && peer->room != 0 &&
            !peer->mapped) {
            status = gh_device_map_file(x->dev, peer->window, peer->room,
                                        &file, err);
            peer->mapped = status == GH_OK;
        }
        close(file);
    }
    for (uint32_t i = 0; i < x->n && status == GH_OK; i++) {
        if (x->peers[i].box != 0 && !x->peers[i].mapped) {
            status = gh_fail(err, GH_ERR_DEVICE,
                             "the file descriptor of the window of rank %u "
                             "has not come",
                             i);
        }
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
        (void)gh_window_unmap(x, NULL);
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
    gh_status status;
    gh_error why;

    if (x->desc.window != NULL) {
        x->window = x->desc.window;
        return check_window(x, err);
    }
    if ((x->desc.flags & GH_EXCHANGE_SUSPENDS) != 0 &&
        (!by_handles || x->by_files)) {
        (void)gh_device_granule(x->dev, &granule, NULL);
    }
    if (x->window != NULL && !x->by_files &&
        (granule != 0) == (x->window_room != 0)) {
        return GH_OK;
    }
    gh_window_free(x);
    x->window_ours = true;
    status = make(x, granule, x->by_files ? &why : err);
    if (status != GH_OK && x->by_files) {
        gh_exchange_warn(x, &why);
        return GH_OK; /* all ranks take handles, as this one has no window */
    }
    return status;
}
