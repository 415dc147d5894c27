/*
 * late.c - flags that do not come: whose they are, and what is done instead.
 *
 * A stream that waits for a word of memory waits for ever.  So when the time
 * is over, this rank sets the flags it waits for itself, again and again
 * until the stream has passed.  The numbers are then wrong, and the host is
 * told so, but streams and memory can be given back.  The stream also sends
 * parts that it had not sent yet to other ranks, which may only be late.  So
 * these ranks are told first.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "base/clock.h"
#include "base/error.h"
#include "device/job.h"
#include "exchange/state.h"

#include <stdio.h>

/* The time for reading and setting flags, which wait for no other rank. */
#define SOON_S 5u

/* ---- letting go ---------------------------------------------------------- */

static void tell_others(gh_exchange *x)
{
    x->told = true;
    for (uint32_t i = 0; i < x->n; i++) {
        if (i != x->rank && x->peers[i].flags != NULL) {
            gh_flags_set(x, GH_FLAG_GONE, i, x->side, NULL);
        }
    }
}

static bool all_idle(gh_exchange *x, void *stream)
{
    bool idle = gh_exchange_is_idle(x, stream) && gh_exchange_last_ended(x);

    for (uint32_t i = 0; i < x->n_lanes; i++) {
        idle &= gh_exchange_is_idle(x, x->lanes[i].stream);
    }
    return idle;
}

/* Whether the flags to the others, and this rank's own, have been set in
 * time. */
static bool has_told(gh_exchange *x)
{
    struct gh_deadline deadline = gh_deadline_in(SOON_S);

    while (!gh_exchange_is_idle(x, x->side)) {
        if (!gh_deadline_back_off(&deadline)) {
            return false;
        }
    }
    return true;
}

bool gh_flags_release(gh_exchange *x, void *stream)
{
    struct gh_deadline deadline = gh_deadline_in(SOON_S);

    while (!all_idle(x, stream)) {
        if (!x->told) {
            tell_others(x);
        } else if (gh_exchange_is_idle(x, x->side)) {
            gh_flags_set_own(x);
        }
        if (!gh_deadline_back_off(&deadline)) {
            gh_log_line(&x->log, GH_LOG_WARN,
                        "exchange: rank %u: its streams wait for something "
                        "else still",
                        x->rank);
            return false;
        }
    }
    return has_told(x);
}

/* A graph may be launched on any stream, which only the context knows. */
bool gh_flags_end_graphs(gh_exchange *x)
{
    const uint32_t patience = x->over ? 0 : x->timeout_s;
    struct gh_deadline deadline = gh_deadline_in(patience);
    struct gh_job *idle = gh_device_idle_begin(x->dev, patience + SOON_S);

    while (gh_job_nap(idle)) {
        if (!x->over && !gh_deadline_back_off(&deadline)) {
            gh_exchange_miss(x);
        }
        if (x->over && !x->told) {
            tell_others(x);
        } else if (x->over && gh_exchange_is_idle(x, x->side)) {
            gh_flags_set_own(x);
        }
    }
    return gh_job_end(idle);
}

/* ---- who is missed ------------------------------------------------------- */

/* Reads some rows without waiting for the streams that are stuck.  If the query
 * fails, the copy may not have ended, so the caller must not look at the
 * rows. */
static gh_status read_flags(gh_exchange *x, enum gh_flag first,
                            enum gh_flag end, gh_error *err)
{
    struct gh_deadline deadline = gh_deadline_in(SOON_S);
    gh_status status = gh_flags_read(x, first, end, x->side, err);
    bool idle = false;

    while (status == GH_OK && !idle) {
        status = gh_device_stream_ask(x->dev, x->side, &idle, err);
        if (status == GH_OK && !idle && !gh_deadline_back_off(&deadline)) {
            return gh_fail(err, GH_ERR_DEVICE,
                           "a copy of %u bytes has not ended in %u s",
                           (unsigned)((end - first) * x->row_bytes), SOON_S);
        }
    }
    return status;
}

/* Whether a flag of the rank is up that a call waits for. */
static bool has_come(const gh_exchange *x, uint32_t rank)
{
    bool any = false;

    for (uint32_t flag = 0; flag < GH_FLAGS_CLEARED; flag++) {
        any |= gh_flags_seen(x, flag)[rank] != 0;
    }
    return any;
}

/* Lists the ranks that have not come, for a call that waits.  All flags of a
 * row are cleared at once, so a rank with none up has not come. */
static uint32_t list_missed(gh_exchange *x, char *text, size_t bytes)
{
    uint32_t missed = 0;
    size_t at = 0;

    text[0] = '\0';
    for (uint32_t i = 0; i < x->n; i++) {
        if (i == x->rank || has_come(x, i)) {
            continue;
        }
        if (missed++ < 8 && at < bytes) {
            at += (size_t)snprintf(text + at, bytes - at, "%s%u",
                                   missed > 1 ? ", " : "", i);
        }
    }
    return missed;
}

uint32_t gh_flags_missed(gh_exchange *x, char *text, size_t bytes)
{
    return read_flags(x, 0, GH_FLAGS_CLEARED, NULL) == GH_OK
               ? list_missed(x, text, bytes)
               : 0;
}

/* Fails if a rank has given up: parts of a stream that ended may then be
 * invalid. */
gh_status gh_flags_check(gh_exchange *x, gh_error *err)
{
    gh_error why = { "" };
    const gh_status status =
        read_flags(x, GH_FLAG_GONE, GH_FLAG_GONE + 1, &why);

    if (status != GH_OK) {
        return gh_fail(err, status,
                       "exchange: rank %u of %u: whether a rank has given up "
                       "cannot be read: %.150s",
                       x->rank, x->n, why.text);
    }
    for (uint32_t i = 0; i < x->n; i++) {
        if (gh_flags_seen(x, GH_FLAG_GONE)[i] != 0) {
            return gh_fail(err, GH_ERR_RANKS,
                           "exchange: rank %u of %u: rank %u has given the "
                           "exchange up, as some rank did not come in time "
                           "(GRAPHHOOKS_TIMEOUT) or its driver failed, which "
                           "its log says; what it has sent since is no part",
                           x->rank, x->n, i);
        }
    }
    return GH_OK;
}
