/*
 * wait.c - waiting for an exchange, and what happens when a rank does not
 * come.
 *
 * A stream that waits for a word of memory waits for ever.  So when the time
 * is over, this rank raises the signs it waits for itself, again and again
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
#include <string.h>

/* The time for reading and raising signs, which wait for no other rank. */
#define SOON_S 5u

static void abort_comm(gh_exchange *x)
{
    struct gh_job *job = gh_nccl_abort_begin(x->nccl, x->dev, x->desc.comm,
                                             x->timeout_s);

    if (!gh_job_end(job)) {
        gh_log_line(&x->log, GH_LOG_WARN,
                    "exchange: rank %u: NCCL has not aborted the host's "
                    "communicator in %u s (GRAPHHOOKS_TIMEOUT): destroy the "
                    "graphs that hold the exchange; the abort is left to a "
                    "thread that waits in NCCL",
                    x->rank, x->timeout_s);
    }
}

/* Ends an exchange that is not over yet. */
void gh_exchange_fail(gh_exchange *x, const gh_error *why, gh_error *err)
{
    x->over = true;
    x->why = *why;
    gh_log_line(&x->log, GH_LOG_WARN, "%s; the exchange is over", why->text);
    if (x->kind == GH_EXCHANGE_NCCL && x->desc.abort != NULL) {
        void *const gate = gh_gate_leave(&x->gate);

        x->desc.abort(x->desc.user);
        gh_gate_return(&x->gate, gate);
    } else if (x->kind == GH_EXCHANGE_NCCL && x->nccl != NULL) {
        abort_comm(x);
    }
    if (err != NULL) {
        *err = *why;
    }
}

gh_status gh_exchange_refuse(const gh_exchange *x, gh_error *err)
{
    return gh_fail(err, GH_ERR_RANKS, "the exchange is over: %.220s",
                   x->why.text);
}

/* ---- letting go ---------------------------------------------------------- */

static void tell_others(gh_exchange *x)
{
    x->told = true;
    for (uint32_t i = 0; i < x->n; i++) {
        if (i != x->rank && x->peers[i].signs != NULL) {
            gh_signs_raise(x, GH_SIGN_GONE, i, x->side, NULL);
        }
    }
}

/* Whether the stream is idle.  It counts as idle if the driver fails to say
 * twice: then its context or the stream is lost, and nothing there goes on. */
static bool is_idle(gh_exchange *x, void *stream)
{
    bool idle;

    return gh_device_stream_ask(x->dev, stream, &idle, NULL) == GH_OK ||
                   gh_device_stream_ask(x->dev, stream, &idle, NULL) == GH_OK
               ? idle
               : true;
}

static bool last_has_ended(gh_exchange *x)
{
    bool ended;

    return gh_device_event_ask(x->dev, x->ended, &ended, NULL) == GH_OK ||
                   gh_device_event_ask(x->dev, x->ended, &ended, NULL) == GH_OK
               ? ended
               : true;
}

static bool all_idle(gh_exchange *x, void *stream)
{
    bool idle = is_idle(x, stream) && last_has_ended(x);

    for (uint32_t i = 0; i < x->n_lanes; i++) {
        idle &= is_idle(x, x->lanes[i].stream);
    }
    return idle;
}

/* Whether the signs to the others, and this rank's own, have been raised in
 * time. */
static bool has_told(gh_exchange *x)
{
    struct gh_deadline deadline = gh_deadline_in(SOON_S);

    while (!is_idle(x, x->side)) {
        if (!gh_deadline_nap(&deadline)) {
            return false;
        }
    }
    return true;
}

bool gh_exchange_let_go(gh_exchange *x, void *stream)
{
    struct gh_deadline deadline = gh_deadline_in(SOON_S);

    if (x->kind != GH_EXCHANGE_COPY || x->n == 1) {
        return true;
    }
    while (!all_idle(x, stream)) {
        if (!x->told) {
            tell_others(x);
        } else if (is_idle(x, x->side)) {
            gh_signs_raise_own(x);
        }
        if (!gh_deadline_nap(&deadline)) {
            gh_log_line(&x->log, GH_LOG_WARN,
                        "exchange: rank %u: its streams wait for something "
                        "else still",
                        x->rank);
            return false;
        }
    }
    return has_told(x);
}

/* ---- who is missed ------------------------------------------------------- */

/* Lists the ranks that have not come, for a call that waits.  All `ready` signs
 * are taken down at once, and then all `arrived`, so a rank with neither sign
 * up has not come. */
static uint32_t list_missed(gh_exchange *x, char *text, size_t bytes)
{
    const unsigned char *ready = gh_signs_seen(x, GH_SIGN_READY);
    const unsigned char *arrived = gh_signs_seen(x, GH_SIGN_ARRIVED);
    uint32_t missed = 0;
    size_t at = 0;

    text[0] = '\0';
    for (uint32_t i = 0; i < x->n; i++) {
        if (i == x->rank || ready[i] != 0 || arrived[i] != 0) {
            continue;
        }
        if (missed++ < 8 && at < bytes) {
            at += (size_t)snprintf(text + at, bytes - at, "%s%u",
                                   missed > 1 ? ", " : "", i);
        }
    }
    return missed;
}

/* Reads some rows without waiting for the streams that are stuck.  If the query
 * fails, the copy may not have ended, so the caller must not look at the
 * rows. */
static gh_status read_signs(gh_exchange *x, enum gh_sign first,
                            enum gh_sign end, gh_error *err)
{
    struct gh_deadline deadline = gh_deadline_in(SOON_S);
    gh_status status = gh_signs_read(x, first, end, x->side, err);
    bool idle = false;

    while (status == GH_OK && !idle) {
        status = gh_device_stream_ask(x->dev, x->side, &idle, err);
        if (status == GH_OK && !idle && !gh_deadline_nap(&deadline)) {
            return gh_fail(err, GH_ERR_DEVICE,
                           "a copy of %u bytes has not ended in %u s",
                           (unsigned)((end - first) * x->row_bytes), SOON_S);
        }
    }
    return status;
}

static gh_status miss(gh_exchange *x, gh_error *err)
{
    char text[80] = "";
    uint32_t missed = 0;

    if (x->kind == GH_EXCHANGE_COPY && x->n > 1 &&
        read_signs(x, 0, GH_SIGNS_TAKEN, NULL) == GH_OK) {
        missed = list_missed(x, text, sizeof(text));
    }
    if (missed == 0) {
        return gh_fail(err, GH_ERR_RANKS,
                       "exchange: rank %u of %u: the stream has not ended in "
                       "%u s (GRAPHHOOKS_TIMEOUT)",
                       x->rank, x->n, x->timeout_s);
    }
    return gh_fail(err, GH_ERR_RANKS,
                   "exchange: rank %u of %u: no part has come from rank%s "
                   "%s%s in %u s (GRAPHHOOKS_TIMEOUT)%s",
                   x->rank, x->n, missed > 1 ? "s" : "", text,
                   missed > 8 ? " and others" : "", x->timeout_s,
                   missed == x->n - 1
                       ? ", or all have, and other work keeps the stream busy"
                       : "");
}

/* ---- waiting ------------------------------------------------------------- */

static gh_status look(gh_exchange *x, gh_error *err)
{
    return x->kind == GH_EXCHANGE_NCCL && x->nccl != NULL
               ? gh_nccl_look(x->nccl, x->desc.comm, NULL, err)
               : GH_OK;
}

/* Fails if a rank has given up: parts of a stream that ended may then be
 * invalid. */
static gh_status look_for_gone(gh_exchange *x, gh_error *err)
{
    gh_error why = { "" };
    gh_status status;

    if (x->kind != GH_EXCHANGE_COPY || x->n == 1) {
        return GH_OK;
    }
    status = read_signs(x, GH_SIGN_GONE, GH_SIGN_GONE + 1, &why);
    if (status != GH_OK) {
        return gh_fail(err, status,
                       "exchange: rank %u of %u: whether a rank has given up "
                       "cannot be read: %.150s",
                       x->rank, x->n, why.text);
    }
    for (uint32_t i = 0; i < x->n; i++) {
        if (gh_signs_seen(x, GH_SIGN_GONE)[i] != 0) {
            return gh_fail(err, GH_ERR_RANKS,
                           "exchange: rank %u of %u: rank %u has given the "
                           "exchange up, as some rank did not come in time "
                           "(GRAPHHOOKS_TIMEOUT); what it has sent since is no "
                           "part",
                           x->rank, x->n, i);
        }
    }
    return GH_OK;
}

/* Waits for the stream.  GH_ERR_RANKS ends the exchange; a failure of the
 * driver concerns only the stream. */
static gh_status wait_for(gh_exchange *x, void *stream, gh_error *err)
{
    struct gh_deadline deadline = gh_deadline_in(x->timeout_s);
    bool ended = false;

    for (;;) {
        gh_status status = gh_device_stream_ask(x->dev, stream, &ended, err);

        if (status == GH_OK) {
            status = look(x, err);
        }
        if (status != GH_OK) {
            return status;
        }
        if (ended) {
            return look_for_gone(x, err);
        }
        if (!gh_deadline_nap(&deadline)) {
            return miss(x, err);
        }
    }
}

gh_status gh_exchange_await(gh_exchange *x, void *stream, gh_error *err)
{
    gh_status status;
    gh_error why;

    if (x->over) {
        gh_exchange_let_go(x, stream);
        return gh_exchange_refuse(x, err);
    }
    status = wait_for(x, stream, &why);
    if (status == GH_ERR_RANKS) {
        gh_exchange_fail(x, &why, err);
        gh_exchange_let_go(x, stream);
    } else if (status != GH_OK) {
        gh_fail(err, status, "%s", why.text);
    }
    return status;
}

bool gh_exchange_has_ended(gh_exchange *x)
{
    struct gh_deadline deadline = gh_deadline_in(x->timeout_s);
    gh_error why;

    while (!x->over && !last_has_ended(x)) {
        if (!gh_deadline_nap(&deadline)) {
            miss(x, &why);
            gh_exchange_fail(x, &why, NULL);
        }
    }
    return !x->over;
}
