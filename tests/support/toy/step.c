/*
 * step.c - one training step, in the order of microbatches that the options ask
 * for.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/toy/shared.h"

static bool feed(struct toy *toy, uint32_t m, uint32_t which)
{
    return toy_mixes(toy, toy_feed(toy, which, toy_own(toy, m)), toy_ramp(toy),
                     0, 1, toy_feed_value(toy, m, which), toy->options.elems,
                     toy_stream(toy, m));
}

static gh_status forward(struct toy *toy, uint32_t m, bool evaluates)
{
    const CUstream stream = toy_stream(toy, m);
    gh_status status = GH_OK;

    if (!feed(toy, m, 0) || !feed(toy, m, 1)) {
        return GH_ERR_DEVICE;
    }
    if (toy->session == NULL) {
        toy->set_of[0][m] = m % toy->options.in_flight;
        return toy_run_eagerly(toy, GH_FORWARD, m, stream) ? GH_OK
                                                           : GH_ERR_DEVICE;
    }
    for (uint32_t i = 0; i < toy->n_segments && status == GH_OK; i++) {
        status = toy_run_segment(toy, &toy->segments[i], GH_FORWARD, m, stream,
                                 evaluates);
    }
    return status;
}

gh_status toy_forward(struct toy *toy, uint32_t m)
{
    const gh_status status =
        toy->options.evaluates ? forward(toy, m, true) : GH_OK;

    return status == GH_OK && !toy->evaluates_only ? forward(toy, m, false)
                                                   : status;
}

/* On a stream of its own: after the backward, which the host sees to. */
static gh_status wgrad_beside(struct toy *toy, const gh_segment *s, uint32_t m)
{
    CUstream stream = toy->streams[TOY_STREAMS - 1];

    if (!TOY_CALL(toy, cuEventRecord, (toy->fork, toy_stream(toy, m))) ||
        !TOY_CALL(toy, cuStreamWaitEvent, (stream, toy->fork, 0))) {
        return GH_ERR_DEVICE;
    }
    return toy_run_segment(toy, s, GH_WGRAD, m, stream, false);
}

static gh_status backward_segment(struct toy *toy, const gh_segment *s,
                                  uint32_t m)
{
    const gh_status status =
        toy_run_segment(toy, s, GH_BACKWARD, m, toy_stream(toy, m), false);

    return status == GH_OK && toy->options.wgrad == TOY_WGRAD_BESIDE &&
                   toy_leaves_weights(toy, s)
               ? wgrad_beside(toy, s, m)
               : status;
}

gh_status toy_backward(struct toy *toy, uint32_t m)
{
    gh_status status = GH_OK;

    if (toy->evaluates_only) {
        return GH_OK;
    }
    if (toy->session == NULL &&
        !toy_run_eagerly(toy, GH_BACKWARD, m, toy_stream(toy, m))) {
        return GH_ERR_DEVICE;
    }
    for (uint32_t i = toy->n_segments; i-- > 0 && status == GH_OK;) {
        status = backward_segment(toy, &toy->segments[i], m);
    }
    if (status == GH_OK) {
        toy_expect(toy, m);
    }
    return status;
}

static gh_status wgrad_later(struct toy *toy, uint32_t m)
{
    gh_status status = GH_OK;

    for (uint32_t i = toy->n_segments; i-- > 0 && status == GH_OK;) {
        status = toy_run_segment(toy, &toy->segments[i], GH_WGRAD, m,
                                 toy_stream(toy, m), false);
    }
    return status;
}

/* Suspends the session, now and then, and resumes it. */
static gh_status rest(struct toy *toy)
{
    gh_status status;

    if (toy->session == NULL || toy->options.suspends == 0) {
        return GH_OK;
    }
    toy->noise = toy->noise * 1664525u + 1013904223u;
    if ((toy->noise >> 16) % 3 != 0) {
        return GH_OK;
    }
    status = gh_session_suspend(toy->session, &toy->err);
    if (status == GH_ERR_STATE) {
        toy->awake++;
        return GH_OK;
    }
    if (status == GH_OK) {
        toy->suspended++;
        status = gh_session_resume(toy->session, &toy->err);
    }
    return status;
}

/* Whose weight gradients are due after the backward of microbatch `m`. */
static gh_status wgrads_due(struct toy *toy, uint32_t m, bool last)
{
    const uint32_t lag = toy->options.wgrad_lag;
    gh_status status = GH_OK;

    if (toy->options.wgrad != TOY_WGRAD_LATER) {
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

/* ---- orders -------------------------------------------------------------- */

static gh_status step_side_by_side(struct toy *toy, uint32_t first,
                                   uint32_t end)
{
    gh_status status = GH_OK;

    for (uint32_t m = first; m < end && status == GH_OK; m++) {
        status = feed(toy, m, 0) && feed(toy, m, 1) ? GH_OK : GH_ERR_DEVICE;
    }
    for (uint32_t i = 0; i < 2 * toy->n_segments; i++) {
        const bool forward = i < toy->n_segments;
        const gh_segment *s =
            &toy->segments[forward ? i : 2 * toy->n_segments - 1 - i];

        for (uint32_t m = first; m < end && status == GH_OK; m++) {
            status = toy_run_segment(toy, s, forward ? GH_FORWARD : GH_BACKWARD,
                                     m, toy_stream(toy, m), false);
        }
    }
    for (uint32_t m = first; m < end && status == GH_OK; m++) {
        toy_expect(toy, m);
    }
    return status;
}

static gh_status step_last_first(struct toy *toy, uint32_t first, uint32_t end)
{
    gh_status status = GH_OK;

    for (uint32_t m = first; m < end && status == GH_OK; m++) {
        status = toy_forward(toy, m);
    }
    for (uint32_t m = end; m-- > first && status == GH_OK;) {
        status = toy_backward(toy, m);
    }
    return status;
}

/* As many forwards as may be in flight, then their backwards. */
static gh_status step_in_turns(struct toy *toy, uint32_t microbatches)
{
    const uint32_t most = toy->options.in_flight;
    gh_status status = GH_OK;

    for (uint32_t m = 0; m < microbatches && status == GH_OK; m += most) {
        const uint32_t end = microbatches - m < most ? microbatches : m + most;

        status = toy->options.side_by_side ? step_side_by_side(toy, m, end)
                                           : step_last_first(toy, m, end);
    }
    return status;
}

static gh_status step_first_first(struct toy *toy, uint32_t microbatches)
{
    const uint32_t ahead = toy->options.in_flight;
    gh_status status = GH_OK;

    for (uint32_t i = 0; i < microbatches + ahead && status == GH_OK; i++) {
        if (i >= ahead && i - ahead < microbatches) {
            status = toy_backward(toy, i - ahead);
            if (status == GH_OK) {
                status =
                    wgrads_due(toy, i - ahead, i - ahead == microbatches - 1);
            }
            if (status == GH_OK) {
                status = rest(toy);
            }
        }
        if (status == GH_OK && i < microbatches) {
            status = toy_forward(toy, i);
        }
    }
    return status;
}

gh_status toy_end_step(struct toy *toy)
{
    gh_status status = GH_OK;

    if (toy->at_end != NULL) {
        toy_configure(toy, toy->at_end);
    }
    if (toy->session != NULL) {
        status = gh_iteration_end(toy->session, &toy->err);
    }
    toy->step++;
    if (status == GH_OK && !toy->options.free_running &&
        !TOY_CALL(toy, cuCtxSynchronize, ())) {
        status = GH_ERR_DEVICE;
    }
    return status == GH_OK ? rest(toy) : status;
}

gh_status toy_step(struct toy *toy, uint32_t microbatches)
{
    const bool guarded = toy->watch != NULL;
    gh_status status, ended;
    gh_error why;

    toy->calls = 0;
    toy->has_added = false;
    toy->stopped = false;
    if (guarded) {
        toy_keep_sums(toy);
    }
    status = toy->options.last_first || toy->options.side_by_side
                 ? step_in_turns(toy, microbatches)
                 : step_first_first(toy, microbatches);
    why = toy->err;
    ended = toy_end_step(toy);
    if (status != GH_OK) {
        toy->err = why;
    }
    if (guarded && toy->has_added && (status != GH_OK || ended != GH_OK)) {
        toy_restore_sums(toy);
    }
    return status != GH_OK ? status : ended;
}

gh_status toy_train(struct toy *toy, const uint32_t *counts, uint32_t n)
{
    gh_status status = GH_OK;

    for (uint32_t i = 0; i < n && status == GH_OK; i++) {
        status = toy_step(toy, counts[i]);
    }
    return status;
}

/* ---- shapes -------------------------------------------------------------- */

gh_status toy_forward_shape(struct toy *toy, uint32_t m, uint32_t shape)
{
    toy->shape_of[m] = shape;
    return toy_forward(toy, m);
}

gh_status toy_step_shapes(struct toy *toy, const uint32_t *shapes, uint32_t n)
{
    for (uint32_t m = 0; m < n; m++) {
        toy->shape_of[m] = shapes[m];
    }
    return toy_step(toy, n);
}
