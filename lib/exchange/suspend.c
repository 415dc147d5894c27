/*
 * suspend.c - gives the memory of a window back, and takes it again.
 *
 * All ranks do it, or none does.  A rank gives its window back once all have
 * said that their work has ended, as the others write into it.  The memory of a
 * window that other processes map is back once they have unmapped it too, and
 * they meet again to know that.  None goes on before all have memory again.
 * The flags stay: what they say, such as a window that was released, outlives
 * it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "base/error.h"
#include "exchange/state.h"

bool gh_exchange_is_suspended(const gh_exchange *x)
{
    return x->suspended;
}

/* Tells the others how this rank fares.  `own` has its text already. */
static gh_status meet(gh_exchange *x, gh_status own, bool resumes,
                      gh_error *err)
{
    const char *const call = resumes ? "resume" : "suspend";
    const uint64_t mine[] = {
        (uint64_t)(int64_t)own,
        resumes ? GH_MEETING_RESUMES : GH_MEETING_SUSPENDS
    };
    const uint64_t *all = mine;
    gh_status status = GH_OK;
    gh_error why;

    if (x->n > 1) {
        status = gh_comm_gather(x->comm, mine, 2, &all, &why);
    }
    for (uint32_t i = 0; status == GH_OK && i < x->n; i++) {
        if (all[(size_t)i * 2 + 1] != mine[1]) {
            status = gh_fail(&why, GH_ERR_RANKS,
                             "gh_exchange_%s: rank %u of %u destroys the "
                             "exchange, or is at another call",
                             call, i, x->n);
        }
    }
    if (status != GH_OK && !x->over) {
        gh_exchange_fail(x, &why, own == GH_OK ? err : NULL);
    }
    if (own != GH_OK || status != GH_OK) {
        return own != GH_OK ? own : status;
    }
    for (uint32_t i = 0; i < x->n; i++) {
        if (all[(size_t)i * 2] != (uint64_t)GH_OK) {
            return gh_fail(err, resumes ? GH_ERR_NO_MEMORY : GH_ERR_STATE,
                           "gh_exchange_%s: rank %u cannot, and its own text "
                           "says why: no rank has; call it again on all ranks",
                           call, i);
        }
    }
    return GH_OK;
}

/* The same on all ranks, but for what the device can. */
static gh_status check_can(gh_exchange *x, gh_error *err)
{
    uint64_t granule;
    gh_status status;

    if (x->window_room != 0 || x->desc.window != NULL) {
        return GH_OK;
    }
    status = gh_device_granule(x->dev, &granule, err);
    return status != GH_OK
               ? status
               : gh_fail(err, GH_ERR_UNSUPPORTED,
                         "gh_exchange_suspend: the window stays, as other "
                         "processes open it by CUDA IPC, and file descriptors "
                         "of memory do not reach all of them: take kind nccl, "
                         "or destroy the exchange");
}

static gh_status rest(gh_exchange *x, void *stream, gh_error *err)
{
    gh_status status = check_can(x, err);

    if (status != GH_OK) {
        return status;
    }
    if (gh_device_host_captures(x->dev, stream)) {
        return gh_fail(err, GH_ERR_STATE,
                       "gh_exchange_suspend: the stream is capturing: end the "
                       "capture first");
    }
    return gh_exchange_await(x, stream, err);
}

gh_status gh_exchange_give(gh_exchange *x, void *stream, gh_error *err)
{
    gh_status status;

    if ((x->desc.flags & GH_EXCHANGE_SUSPENDS) == 0) {
        return gh_fail(err, GH_ERR_UNSUPPORTED,
                       "gh_exchange_suspend: the addresses of the window are "
                       "not reserved: set GH_EXCHANGE_SUSPENDS in "
                       "gh_exchange_desc.flags");
    }
    if (x->over) {
        return gh_exchange_refuse(x, err);
    }
    status = rest(x, stream, err);
    if (!x->over || x->ops->writes_windows) {
        status = meet(x, status, false, err);
    }
    if (status != GH_OK) {
        return status;
    }
    (void)gh_window_unmap(x, NULL);
    x->stats.given_bytes = x->mapped ? 0 : x->window_room;
    x->stats.suspends++;
    x->suspended = true;
    return x->by_files ? meet(x, GH_OK, false, err) : GH_OK;
}

gh_status gh_exchange_take(gh_exchange *x, gh_error *err)
{
    gh_status status;

    if (x->over) {
        return gh_exchange_refuse(x, err);
    }
    status = meet(x, gh_window_map(x, err), true, err);
    if (x->by_files) {
        const gh_status own = gh_window_fetch(x, status, err);

        status = status == GH_OK ? meet(x, own, true, err) : status;
    }
    if (status != GH_OK) {
        (void)gh_window_unmap(x, NULL);
        return status;
    }
    x->suspended = false;
    return GH_OK;
}
