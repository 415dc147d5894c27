/*
 * step.c - a step, in the order of microbatches that the options ask for.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/saver/shared.h"

#include <stdio.h>

static gh_status give_inputs(struct saver *sv, uint32_t m)
{
    CUstream stream = saver_stream(sv, m);

    for (gh_direction d = GH_FORWARD; d <= GH_BACKWARD; d++) {
        if (!SAVER_CALL(sv, cuMemsetD32Async,
                        (saver_feed(sv, d, m), saver_fed(sv, d, m),
                         sv->options.elems, stream))) {
            snprintf(sv->err.text, sizeof(sv->err.text), "no memset");
            return GH_ERR_DEVICE;
        }
    }
    return GH_OK;
}

static gh_status forward(struct saver *sv, uint32_t m, bool evaluates)
{
    gh_status status = give_inputs(sv, m);

    for (uint32_t i = 0; i < sv->n_segments && status == GH_OK; i++) {
        status =
            saver_run_segment(sv, &sv->segments[i], GH_FORWARD, m, evaluates);
    }
    return status;
}

static gh_status backward(struct saver *sv, uint32_t m)
{
    gh_status status = GH_OK;

    for (uint32_t i = sv->evaluates_only ? 0 : sv->n_segments;
         i-- > 0 && status == GH_OK;) {
        status = saver_run_segment(sv, &sv->segments[i], GH_BACKWARD, m, false);
    }
    return status;
}

static gh_status backward_all(struct saver *sv, uint32_t first, uint32_t end)
{
    gh_status status = GH_OK;

    for (uint32_t i = sv->n_segments; i-- > 0;) {
        for (uint32_t m = first; m < end && status == GH_OK; m++) {
            status =
                saver_run_segment(sv, &sv->segments[i], GH_BACKWARD, m, false);
        }
    }
    return status;
}

static gh_status forward_both(struct saver *sv, uint32_t m)
{
    gh_status status = sv->options.evaluates ? forward(sv, m, true) : GH_OK;

    return status == GH_OK && !sv->evaluates_only ? forward(sv, m, false)
                                                  : status;
}

static gh_status forward_all(struct saver *sv, uint32_t first, uint32_t end)
{
    gh_status status = GH_OK;

    for (uint32_t m = first; m < end && status == GH_OK; m++) {
        status = give_inputs(sv, m);
    }
    for (uint32_t i = 0; i < sv->n_segments; i++) {
        for (uint32_t m = first; m < end && status == GH_OK; m++) {
            status =
                saver_run_segment(sv, &sv->segments[i], GH_FORWARD, m, false);
        }
    }
    return status;
}

/* Returns how many they are. */
static uint32_t step_side_by_side(struct saver *sv, uint32_t first,
                                  uint32_t microbatches, gh_status *status)
{
    const uint32_t left = microbatches - first;
    const uint32_t n =
        left < sv->options.in_flight ? left : sv->options.in_flight;

    *status = forward_all(sv, first, first + n);
    if (*status == GH_OK) {
        *status = backward_all(sv, first, first + n);
    }
    return n;
}

/* As many forwards as may be in flight, then their backwards from the last. */
static gh_status step_last_first(struct saver *sv, uint32_t microbatches)
{
    gh_status status = GH_OK;

    for (uint32_t m = 0; m < microbatches && status == GH_OK;) {
        const uint32_t first = m;

        if (sv->options.side_by_side) {
            m += step_side_by_side(sv, first, microbatches, &status);
            continue;
        }
        while (m < microbatches && m < first + sv->options.in_flight &&
               status == GH_OK) {
            status = forward_both(sv, m++);
        }
        for (uint32_t b = m; b-- > first && status == GH_OK;) {
            status = backward(sv, b);
        }
    }
    return status;
}

static gh_status step_first_first(struct saver *sv, uint32_t microbatches)
{
    const uint32_t ahead = sv->options.in_flight;
    gh_status status = GH_OK;

    for (uint32_t i = 0; i < microbatches + ahead && status == GH_OK; i++) {
        if (i >= ahead && i - ahead < microbatches) {
            status = backward(sv, i - ahead);
        }
        if (status == GH_OK && i < microbatches) {
            status = forward_both(sv, i);
        }
    }
    return status;
}

gh_status saver_step(struct saver *sv, uint32_t microbatches)
{
    const bool guarded = sv->watch != NULL;
    gh_status status, ended;
    gh_error why;

    sv->calls = 0;
    sv->has_added = false;
    sv->stopped = false;
    if (guarded) {
        saver_copy_sums(sv, true);
    }
    status = sv->options.last_first || sv->options.side_by_side
                 ? step_last_first(sv, microbatches)
                 : step_first_first(sv, microbatches);
    if (sv->at_end != NULL) {
        toy_configure(&sv->toy, sv->at_end);
    }
    ended = gh_iteration_end(sv->session, &why);
    if (status == GH_OK && ended != GH_OK) {
        status = ended;
        sv->err = why;
    }
    if (status == GH_OK) {
        saver_expect(sv, microbatches);
    } else if (guarded && sv->has_added) {
        saver_copy_sums(sv, false);
    }
    sv->step++;
    if (status == GH_OK && !sv->options.free_running &&
        !SAVER_CALL(sv, cuCtxSynchronize, ())) {
        snprintf(sv->err.text, sizeof(sv->err.text), "no end of the step");
        status = GH_ERR_DEVICE;
    }
    return status;
}
