/*
 * order.c - happens-before: lanes, vector clocks, and the host.
 *
 * A lane is a line of operations that run one after the other: a stream, or
 * one branch of the graphs launched on it.  A clock says for every lane up to
 * which epoch its holder comes after.  Whoever knows an epoch of a lane also
 * knows all that this epoch knew, so most joins are one comparison.
 *
 * All threads of the program share one host clock.  What one thread has waited
 * for counts as known to the others, because how threads talk to each other
 * cannot be seen here.  With PROCESSES only the threads of one device share a
 * clock.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "softcuda/engine/order.h"

#include "softcuda/engine/soft.h"

#include <stdlib.h>
#include <string.h>

static uint64_t *epochs; /* the last one of each lane */
static uint32_t n_lanes, lanes_room;
static uint32_t *idle; /* lanes without a stream */
static uint32_t n_idle, idle_room;
static uint32_t n_clean; /* how many, from the start, nothing remembers */

struct vc *vc_ref(struct vc *vc)
{
    if (vc != NULL) {
        vc->refs++;
    }
    return vc;
}

void vc_drop(struct vc *vc)
{
    if (vc != NULL && --vc->refs == 0) {
        free(vc);
    }
}

uint64_t vc_get(const struct vc *vc, uint32_t lane)
{
    return vc != NULL && lane < vc->n ? vc->t[lane] : 0;
}

/* Makes the clock the holder's own, with room for n lanes. */
static struct vc *own(struct vc *vc, uint32_t n)
{
    struct vc *copy;

    if (vc != NULL && vc->refs == 1 && vc->n >= n) {
        return vc;
    }
    if (vc != NULL && vc->n > n) {
        n = vc->n;
    }
    n = (n + 7) & ~7u;
    copy = malloc(sizeof(*copy) + n * sizeof(copy->t[0]));
    if (copy == NULL) {
        abort(); /* an incomplete order would report false races */
    }
    copy->refs = 1;
    copy->n = n;
    memset(copy->t, 0, n * sizeof(copy->t[0]));
    if (vc != NULL) {
        memcpy(copy->t, vc->t, vc->n * sizeof(vc->t[0]));
        vc_drop(vc);
    }
    return copy;
}

void vc_add(struct vc **vc_p, const struct vc *from)
{
    struct vc *vc = *vc_p;
    uint32_t i = 0, both;

    if (!soft.set.races || from == NULL) {
        return;
    }
    both = vc == NULL ? 0 : vc->n < from->n ? vc->n : from->n;
    while (i < both && vc->t[i] >= from->t[i]) {
        i++;
    }
    while (i >= both && i < from->n && from->t[i] == 0) {
        i++;
    }
    if (i == from->n) {
        return;
    }
    vc = own(vc, from->n > n_lanes ? from->n : n_lanes);
    for (; i < from->n; i++) {
        if (from->t[i] > vc->t[i]) {
            vc->t[i] = from->t[i];
        }
    }
    *vc_p = vc;
}

bool vc_join(struct vc **vc_p, const struct stamp *stamp)
{
    struct vc *vc = *vc_p;

    if (!soft.set.races || vc_get(vc, stamp->lane) >= stamp->epoch) {
        return false;
    }
    vc = own(vc, n_lanes);
    if (stamp->vc != NULL) {
        for (uint32_t i = 0; i < stamp->vc->n; i++) {
            if (stamp->vc->t[i] > vc->t[i]) {
                vc->t[i] = stamp->vc->t[i];
            }
        }
    }
    vc->t[stamp->lane] = stamp->epoch;
    *vc_p = vc;
    return true;
}

static bool all_hosts_know(uint32_t lane)
{
    const uint64_t n = soft.set.processes ? soft.set.devices : 1;

    for (uint64_t i = 0; i < n; i++) {
        if (vc_get(soft.hosts[i].vc, lane) < epochs[lane]) {
            return false;
        }
    }
    return true;
}

void lanes_forget(void)
{
    n_clean = n_idle;
}

/* Takes a lane.  A used one may serve again once the host, and so everything
 * later, comes after all that ran on it. */
uint32_t lane_take(void)
{
    if (n_clean != 0) {
        uint32_t lane = idle[--n_clean];

        idle[n_clean] = idle[--n_idle];
        return lane;
    }
    for (uint32_t i = 0; i < n_idle; i++) {
        uint32_t lane = idle[i];

        if (all_hosts_know(lane)) {
            idle[i] = idle[--n_idle];
            return lane;
        }
    }
    if (n_lanes == lanes_room) {
        uint32_t room = lanes_room ? lanes_room * 2 : 32;
        uint64_t *larger = realloc(epochs, room * sizeof(*larger));

        if (larger == NULL) {
            abort();
        }
        epochs = larger;
        lanes_room = room;
    }
    epochs[n_lanes] = 0;
    return n_lanes++;
}

void lane_give(uint32_t lane)
{
    if (n_idle == idle_room) {
        uint32_t room = idle_room ? idle_room * 2 : 32;
        uint32_t *larger = realloc(idle, room * sizeof(*larger));

        if (larger == NULL) {
            return; /* only this lane is lost */
        }
        idle = larger;
        idle_room = room;
    }
    idle[n_idle++] = lane;
}

uint64_t lane_next(uint32_t lane)
{
    return ++epochs[lane];
}

uint64_t lane_last(uint32_t lane)
{
    return epochs[lane];
}

void stamp_set(struct stamp *stamp, const struct stamp *value)
{
    struct vc *old = stamp->vc;

    *stamp = *value;
    vc_ref(stamp->vc);
    vc_drop(old);
}

void stamp_clear(struct stamp *stamp)
{
    vc_drop(stamp->vc);
    *stamp = (struct stamp){ NULL, 0, 0 };
}

void host_join(const struct stamp *stamp)
{
    if (vc_join(&soft.host->vc, stamp)) {
        soft.host->version = ++soft.host_versions;
    }
}

void host_until(uint64_t ns)
{
    if (ns > soft.host->ns) {
        soft.host->ns = ns;
    }
}
