/*
 * step.c - one training step.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/toy/shared.h"

static CUstream stream_of(const struct toy *toy, uint32_t m)
{
    return toy->options.legacy ? NULL : toy->streams[m % toy->options.streams];
}

uint32_t toy_feed_value(uint32_t step, uint32_t m, uint32_t which)
{
    return 1000 * step + 10 * m + which + 1;
}

static gh_status forward(struct toy *toy, uint32_t m)
{
    CUstream stream = stream_of(toy, m);
    gh_status status = GH_OK;

    if (!TOY_CALL(toy, cuMemsetD32Async,
                  (toy_feed(toy, 0, m), toy_feed_value(toy->step, m, 0),
                   toy->options.elems, stream)) ||
        !TOY_CALL(toy, cuMemsetD32Async,
                  (toy_feed(toy, 1, m), toy_feed_value(toy->step, m, 1),
                   toy->options.elems, stream))) {
        return GH_ERR_DEVICE;
    }
    if (toy->session == NULL) {
        toy->set_of[m] = m % toy->options.in_flight;
        return toy_run_eagerly(toy, GH_FORWARD, m, stream) ? GH_OK
                                                           : GH_ERR_DEVICE;
    }
    for (uint32_t i = 0; i < toy->n_segments && status == GH_OK; i++) {
        status = toy_run_segment(toy, &toy->segments[i], GH_FORWARD, m, stream);
    }
    return status;
}

/* On a stream of its own: after the backward, which the host sees to. */
static gh_status wgrad_beside(struct toy *toy, const gh_segment *s, uint32_t m)
{
    CUstream stream = toy->streams[TOY_STREAMS - 1];

    if (!TOY_CALL(toy, cuEventRecord, (toy->fork, stream_of(toy, m))) ||
        !TOY_CALL(toy, cuStreamWaitEvent, (stream, toy->fork, 0))) {
        return GH_ERR_DEVICE;
    }
    return toy_run_segment(toy, s, GH_WGRAD, m, stream);
}

static gh_status backward(struct toy *toy, uint32_t m)
{
    CUstream stream = stream_of(toy, m);
    gh_status status = GH_OK;

    if (toy->session == NULL) {
        status = toy_run_eagerly(toy, GH_BACKWARD, m, stream) ? GH_OK
                                                              : GH_ERR_DEVICE;
    }
    for (uint32_t i = toy->n_segments;
         i-- > 0 && status == GH_OK && toy->session != NULL;) {
        status =
            toy_run_segment(toy, &toy->segments[i], GH_BACKWARD, m, stream);
        if (status == GH_OK && toy->options.wgrad == TOY_WGRAD_BESIDE &&
            toy_leaves_weights(toy, &toy->segments[i])) {
            status = wgrad_beside(toy, &toy->segments[i], m);
        }
    }
    if (toy->session == NULL || toy->options.wgrad != TOY_WGRAD_LATER) {
        toy->taken &= ~(1u << toy->set_of[m]);
    }
    return status;
}

static gh_status wgrad_later(struct toy *toy, uint32_t m)
{
    gh_status status = GH_OK;

    for (uint32_t i = toy->n_segments; i-- > 0 && status == GH_OK;) {
        status = toy_run_segment(toy, &toy->segments[i], GH_WGRAD, m,
                                 stream_of(toy, m));
    }
    toy->taken &= ~(1u << toy->set_of[m]);
    return status;
}

/* Whose weight gradients are due after the backward of microbatch `m`. */
static gh_status wgrads_due(struct toy *toy, uint32_t m, bool last)
{
    const uint32_t lag = toy->options.wgrad_lag;
    gh_status status = GH_OK;

    if (toy->session == NULL || toy->options.wgrad != TOY_WGRAD_LATER) {
        return GH_OK;
    }
    if (m >= lag) {
        status = wgrad_later(toy, m - lag);
    }
    for (uint32_t i = m >= lag ? m - lag + 1 : 0;
         last && i <= m && status == GH_OK; i++) {
        status = wgrad_later(toy, i);
    }
    return status;
}

gh_status toy_step(struct toy *toy, uint32_t microbatches)
{
    const uint32_t ahead = toy->options.in_flight;
    gh_status status = GH_OK;

    toy->taken = 0;
    for (uint32_t i = 0; i < microbatches + ahead && status == GH_OK; i++) {
        if (i >= ahead && i - ahead < microbatches) {
            status = backward(toy, i - ahead);
            if (status == GH_OK) {
                status =
                    wgrads_due(toy, i - ahead, i - ahead == microbatches - 1);
            }
        }
        if (status == GH_OK && i < microbatches) {
            status = forward(toy, i);
        }
    }
    if (status != GH_OK) {
        return status;
    }
    toy->step++;
    if (toy->session != NULL) {
        status = gh_iteration_end(toy->session, &toy->err);
    }
    if (status == GH_OK && !toy->options.free_running &&
        !TOY_CALL(toy, cuCtxSynchronize, ())) {
        status = GH_ERR_DEVICE;
    }
    return status;
}
