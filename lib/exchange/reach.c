/*
 * reach.c - each rank finds the memory of the others.
 *
 * Threads of one process have the addresses already.  Processes on one machine
 * open each other's allocations.  Memory that cannot be reached is no error
 * here: `auto` then falls back to NCCL on all ranks.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "base/error.h"
#include "comm/where.h"
#include "exchange/state.h"

#include <string.h>

enum {
    SHARED_NOT,
    SHARED_BY_HANDLE,
    SHARED_BY_FILE
};

/* Where a rank is, and where one of its memories is.  Ranks exchange it as
 * words of 64 bits. */
struct location {
    uint64_t process, machine; /* equal on the same process or machine */
    uint64_t context, ordinal, bus;
    uint64_t address;
    uint64_t shared; /* SHARED_* */
    struct gh_shared_memory memory;
};
#define LOCATION_WORDS ((uint32_t)(sizeof(struct location) / sizeof(uint64_t)))

_Static_assert(sizeof(struct location) / sizeof(uint64_t) + 1 <= GH_COMM_WORDS,
               "said at once");

/* A number of the device's address on the bus; 0: the driver does not say. */
static uint64_t this_bus(struct gh_device *dev)
{
    char text[32];

    return gh_device_bus_id(dev, text, sizeof(text))
               ? gh_where_hash(text, strlen(text))
               : 0;
}

static bool is_near(const struct location *a, const struct location *b)
{
    return a->process == b->process
               ? a->ordinal == b->ordinal
               : a->machine == b->machine && a->bus != 0 && a->bus == b->bus;
}

static void describe(gh_exchange *x, void *address, struct location *location)
{
    struct gh_device_info info;

    gh_device_get_info(x->dev, &info);
    memset(location, 0, sizeof(*location));
    location->process = gh_where_process();
    location->machine = gh_where_machine();
    location->bus = this_bus(x->dev);
    location->context = (uintptr_t)gh_device_context(x->dev);
    location->ordinal = (uint64_t)info.ordinal;
    location->address = (uintptr_t)address;
    if (x->by_files && address != NULL && address == x->window) {
        location->shared = SHARED_BY_FILE;
        location->memory.room = x->window_room;
    } else if (gh_device_share(x->dev, address, &location->memory, NULL) ==
               GH_OK) {
        location->shared = SHARED_BY_HANDLE;
    }
}

/* Returns NULL if the memory is out of reach; `why` then has the driver's
 * reason, if the driver refused. */
static void *find(gh_exchange *x, const struct location *mine,
                  const struct location *theirs, struct gh_peer *peer,
                  int which, gh_error *why)
{
    const bool ipc = (x->desc.flags & GH_EXCHANGE_IPC) != 0;
    bool can = false;
    void *base = NULL;

    if (theirs->process == mine->process && !ipc) {
        peer->reach = GH_REACH_DIRECT;
        gh_device_reach(x->dev, (int)theirs->ordinal,
                        (void *)(uintptr_t)theirs->context, &can, why);
        if (can && which == 1) {
            can = gh_window_allow(x, peer, why) == GH_OK;
        }
        return can ? (void *)(uintptr_t)theirs->address : NULL;
    }
    peer->reach = GH_REACH_IPC;
    if (x->by_files && which == 1) {
        if (theirs->shared != SHARED_BY_FILE ||
            gh_device_reserve(x->dev, theirs->memory.room, &base, why) !=
                GH_OK) {
            return NULL;
        }
        peer->room = theirs->memory.room;
        return base;
    }
    if (theirs->machine != mine->machine ||
        theirs->shared != SHARED_BY_HANDLE ||
        gh_device_open_shared(x->dev, &theirs->memory, &base, why) != GH_OK) {
        return NULL;
    }
    peer->opened[which] = base;
    return (char *)base + theirs->memory.offset;
}

/* Finds one memory of each rank: all ranks tell theirs, and each finds all. */
static gh_status find_all(gh_exchange *x, gh_status own, int which,
                          bool *found_p, uint32_t *missing_p, gh_error *err)
{
    struct location mine, theirs;
    const uint64_t *all;
    gh_status status;

    describe(x, which == 0 ? x->flags : x->window, &mine);
    status = gh_exchange_gather(x, own, (const uint64_t *)(const void *)&mine,
                                LOCATION_WORDS + 1, &all, err);
    for (uint32_t i = 0; status == GH_OK && i < x->n; i++) {
        struct gh_peer *peer = &x->peers[i];
        gh_error why = { "" };
        void *memory;

        memcpy(&theirs, all + (size_t)i * (LOCATION_WORDS + 1) + 1,
               sizeof(theirs));
        peer->ordinal = (int)theirs.ordinal;
        peer->near = is_near(&theirs, &mine);
        if (i == x->rank) {
            peer->reach = GH_REACH_SELF;
            peer->flags = x->flags;
            peer->window = x->window;
            continue;
        }
        memory = find(x, &mine, &theirs, peer, which, &why);
        if (memory == NULL) {
            if (why.text[0] != '\0') {
                gh_log_line(&x->log, GH_LOG_WARN, "exchange: rank %u to %u: %s",
                            x->rank, i, why.text);
            }
            peer->reach = GH_REACH_NOT;
            *missing_p = i;
            *found_p = false;
            continue;
        }
        if (which == 0) {
            peer->flags = memory;
        } else {
            peer->window = memory;
        }
    }
    return status;
}

/* All ranks have sent the descriptors of their windows.  One that has none has
 * said why. */
static bool map_all(gh_exchange *x)
{
    const gh_status own = x->window != NULL ? GH_OK : GH_ERR_DEVICE;
    gh_error why;
    const gh_status status = gh_window_fetch(x, own, &why);

    if (own == GH_OK && status != GH_OK) {
        gh_exchange_warn(x, &why);
    }
    return status == GH_OK;
}

gh_status gh_exchange_reach(gh_exchange *x, gh_status own,
                            struct gh_not_reached *not_p, gh_error *err)
{
    uint32_t missing = 0;
    bool found = gh_device_has_words(x->dev);
    const uint64_t *all;
    uint64_t mine;
    gh_status status = find_all(x, own, 0, &found, &missing, err);

    if (status == GH_OK) {
        status = find_all(x, GH_OK, 1, &found, &missing, err);
    }
    if (status == GH_OK && x->by_files) {
        found &= map_all(x);
    }
    if (status != GH_OK) {
        return status;
    }
    mine = found ? 0 : missing + 1;
    status = gh_exchange_gather(x, GH_OK, &mine, 2, &all, err);
    not_p->is = false;
    for (uint32_t i = 0; status == GH_OK && i < x->n; i++) {
        if (!not_p->is && all[(size_t)i * 2 + 1] != 0) {
            not_p->is = true;
            not_p->rank = i;
            not_p->peer = (uint32_t)all[(size_t)i * 2 + 1] - 1;
        }
    }
    return status;
}

void gh_exchange_leave(gh_exchange *x)
{
    for (uint32_t i = 0; x->peers != NULL && i < x->n; i++) {
        for (int which = 0; which < 2; which++) {
            gh_device_close_shared(x->dev, x->peers[i].opened[which]);
            x->peers[i].opened[which] = NULL;
        }
        gh_window_leave(x, &x->peers[i]);
    }
}
