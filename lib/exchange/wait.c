/*
 * wait.c - waits for an exchange, and ends it when a rank does not come.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "base/clock.h"
#include "base/error.h"
#include "exchange/state.h"

#include <string.h>

/* Ends an exchange that is not over yet. */
void gh_exchange_fail(gh_exchange *x, const gh_error *why, gh_error *err)
{
    x->over = true;
    x->why = *why;
    gh_log_line(&x->log, GH_LOG_WARN, "%s; the exchange is over", why->text);
    if (x->ops != NULL && x->ops->abort != NULL) {
        x->ops->abort(x);
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

/* ---- what has ended ------------------------------------------------------ */

/* Whether the stream is idle.  It counts as idle if the driver fails to say
 * twice: then its context or the stream is lost, and nothing there goes on. */
bool gh_exchange_is_idle(gh_exchange *x, void *stream)
{
    bool idle;

    return gh_device_stream_ask(x->dev, stream, &idle, NULL) == GH_OK ||
                   gh_device_stream_ask(x->dev, stream, &idle, NULL) == GH_OK
               ? idle
               : true;
}

bool gh_exchange_last_ended(gh_exchange *x)
{
    bool ended;

    return gh_device_event_ask(x->dev, x->ended, &ended, NULL) == GH_OK ||
                   gh_device_event_ask(x->dev, x->ended, &ended, NULL) == GH_OK
               ? ended
               : true;
}

bool gh_exchange_let_go(gh_exchange *x, void *stream)
{
    return x->ops->release == NULL || x->ops->release(x, stream);
}

/* ---- waiting ------------------------------------------------------------- */

static gh_status miss(gh_exchange *x, gh_error *err)
{
    char text[80] = "";
    uint32_t missed = 0;

    if (x->ops->missed != NULL) {
        missed = x->ops->missed(x, text, sizeof(text));
    }
    if (x->ops->missed == NULL && x->n > 1) {
        return gh_fail(err, GH_ERR_RANKS,
                       "exchange: rank %u of %u: the stream has not ended in "
                       "%u s (GRAPHHOOKS_TIMEOUT): a rank has not come, which "
                       "NCCL does not name, or other work keeps the stream "
                       "busy",
                       x->rank, x->n, x->timeout_s);
    }
    if (missed == 0) {
        return gh_fail(err, GH_ERR_RANKS,
                       "exchange: rank %u of %u: the stream has not ended in "
                       "%u s (GRAPHHOOKS_TIMEOUT): other work keeps it busy, "
                       "or ranks gave gh_exchange_op.flags that differ",
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

/* Waits for the stream.  GH_ERR_RANKS ends the exchange; a failure of the
 * driver concerns only the stream. */
static gh_status wait_for(gh_exchange *x, void *stream, gh_error *err)
{
    struct gh_deadline deadline = gh_deadline_in(x->timeout_s);
    bool ended = false;

    for (;;) {
        gh_status status = gh_device_stream_ask(x->dev, stream, &ended, err);

        if (status == GH_OK && x->ops->look != NULL) {
            status = x->ops->look(x, err);
        }
        if (status != GH_OK) {
            return status;
        }
        if (ended) {
            return x->ops->check != NULL ? x->ops->check(x, err) : GH_OK;
        }
        if (!gh_deadline_back_off(&deadline)) {
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

void gh_exchange_miss(gh_exchange *x)
{
    gh_error why;

    miss(x, &why);
    gh_exchange_fail(x, &why, NULL);
}

bool gh_exchange_has_ended(gh_exchange *x)
{
    struct gh_deadline deadline = gh_deadline_in(x->timeout_s);

    while (!x->over && !gh_exchange_last_ended(x)) {
        if (!gh_deadline_back_off(&deadline)) {
            gh_exchange_miss(x);
        }
    }
    return !x->over;
}
