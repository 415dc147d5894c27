/*
 * nccl.c - an exchange by the host's NCCL communicator.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "device/job.h"
#include "exchange/state.h"

static gh_status issue(gh_exchange *x, const gh_exchange_op *op, gh_error *err)
{
    gh_status status = gh_exchange_keep(x, op, err);

    if (status != GH_OK) {
        return status;
    }
    for (uint32_t i = 0; i < x->n; i++) {
        const gh_exchange_part part = gh_exchange_part_of(x, op, i);

        x->parts[i] = (struct gh_nccl_part){
            .to = (const char *)op->send + part.send_offset,
            .to_bytes = part.send_bytes,
            .from = (char *)x->window + op->window_offset + part.recv_offset,
            .from_bytes = part.recv_bytes,
        };
        x->stats.nccl_bytes += i != x->rank ? part.send_bytes : 0;
    }
    return gh_nccl_exchange(x->nccl, x->desc.comm, x->parts, x->rank, x->n,
                            op->stream, x->timeout_s, err);
}

static gh_status look(gh_exchange *x, gh_error *err)
{
    return gh_nccl_look(x->nccl, x->desc.comm, NULL, err);
}

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

/* The host's own abort comes first: it may be of a group of communicators. */
static void abort_all(gh_exchange *x)
{
    void *gate;

    if (x->desc.abort == NULL) {
        abort_comm(x);
        return;
    }
    gate = gh_gate_leave(&x->gate);
    x->desc.abort(x->desc.user);
    gh_gate_return(&x->gate, gate);
}

const struct gh_exchange_ops gh_exchange_nccl = {
    .name = "nccl",
    .issue = issue,
    .look = look,
    .abort = abort_all,
};
