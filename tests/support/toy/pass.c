/*
 * pass.c - a segment of a microbatch: its bracket, and what is computed in it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/toy/shared.h"

#include <stdlib.h>

static bool mix(struct toy *toy, CUdeviceptr d, CUdeviceptr a, CUdeviceptr b,
                uint32_t f, uint32_t k, CUstream stream)
{
    return toy_called(toy,
                      toy_mix(toy, d, a, b, f, k, toy->options.elems, stream),
                      "cuLaunchKernel");
}

static bool add(struct toy *toy, CUdeviceptr d, CUdeviceptr a, CUdeviceptr b,
                CUstream stream)
{
    return toy_called(toy, toy_add(toy, d, a, b, toy->options.elems, stream),
                      "cuLaunchKernel");
}

static bool run_parts(struct toy *toy, const struct toy_work *w)
{
    CUdeviceptr x = w->input;

    if (w->direction == GH_FORWARD) {
        for (uint32_t p = w->first; p + w->forgets <= w->last; p++) {
            if (!mix(toy, toy_act(toy, w->set, p + 1), x, 0, 3, p + 1 + w->lie,
                     w->stream)) {
                return false;
            }
            x = toy_act(toy, w->set, p + 1);
        }
        return true;
    }
    if (w->keeps &&
        !mix(toy, toy_grad(toy, w->set, w->last + 1), x, 0, 1, 0, w->stream)) {
        return false;
    }
    for (uint32_t p = w->last + 1; p-- > w->first;) {
        if (w->weights && !add(toy, toy_weight(toy, w->set, p), x,
                               toy_act(toy, w->set, p + 1), w->stream)) {
            return false;
        }
        if (w->direction == GH_BACKWARD &&
            !mix(toy, toy_grad(toy, w->set, p), x, toy_act(toy, w->set, p + 1),
                 5, 0, w->stream)) {
            return false;
        }
        x = toy_grad(toy, w->set, p);
    }
    return true;
}

/* ---- its bracket --------------------------------------------------------- */

static uint32_t spare_set(struct toy *toy, uint32_t m)
{
    for (uint32_t i = toy->options.max_slots; i < toy->n_sets; i++) {
        if ((toy->taken & 1u << i) == 0) {
            toy->taken |= 1u << i;
            return toy->set_of[m] = i;
        }
    }
    abort(); /* more in flight than the schedule has */
}

static uint32_t choose_set(struct toy *toy, uint32_t m, uint32_t slot,
                           bool first)
{
    if (slot != GH_SLOT_NONE) {
        return toy->set_of[m] = slot;
    }
    return first ? spare_set(toy, m) : toy->set_of[m];
}

static gh_buffer buffer(const struct toy *toy, CUdeviceptr address,
                        uint32_t flags)
{
    const uint32_t n = toy->options.elems;

    return toy_buffer(
        address, toy->options.padded ? toy_stride(n) : 4 * (uint64_t)n, flags);
}

/* Where a segment's input is: at the ends in a buffer of the microbatch,
 * else where the segment before left it, or in a copy that moves about.  A
 * delayed weight gradient finds all in the set. */
static bool find_input(struct toy *toy, const struct toy_work *w, uint32_t m,
                       bool at_end, gh_buffer *input)
{
    const uint32_t part = w->direction == GH_FORWARD ? w->first : w->last + 1;
    CUdeviceptr address = w->direction == GH_FORWARD
                              ? toy_act(toy, w->set, part)
                              : toy_grad(toy, w->set, part);

    if (w->direction == GH_WGRAD) {
        *input = buffer(toy, address, GH_BUFFER_STATIC);
        return true;
    }
    if (at_end) {
        address = toy_feed(toy, w->direction, m);
    } else if (toy->options.moving_inputs) {
        CUdeviceptr spare =
            toy_feed(toy, 2, (m + toy->step * 5 + part) % TOY_MAX_FEEDS);

        if (!TOY_CALL(
                toy, cuMemcpyDtoDAsync,
                (spare, address, 4 * (size_t)toy->options.elems, w->stream))) {
            return false;
        }
        address = spare;
    }
    *input = buffer(toy, address,
                    at_end || toy->options.copied_inputs ||
                            toy->options.moving_inputs
                        ? 0
                        : GH_BUFFER_STATIC);
    return true;
}

static void fill_outputs(const struct toy *toy, const struct toy_work *w,
                         gh_buffer *outputs, uint32_t *n_p)
{
    uint32_t n = 0;

    if (w->direction == GH_FORWARD) {
        outputs[n++] = buffer(toy, toy_act(toy, w->set, w->last + 1), 0);
    }
    if (w->direction == GH_BACKWARD) {
        outputs[n++] = buffer(toy, toy_grad(toy, w->set, w->first), 0);
    }
    if (w->keeps) {
        outputs[n++] = buffer(toy, toy_grad(toy, w->set, w->last + 1), 0);
    }
    for (uint32_t p = w->first; p <= w->last && w->weights; p++) {
        outputs[n++] =
            buffer(toy, toy_weight(toy, w->set, p), GH_BUFFER_UPDATED);
    }
    *n_p = n;
}

static gh_status obey(struct toy *toy, gh_pass *pass, struct toy_work *w,
                      const gh_decision *d, gh_buffer *outputs)
{
    bool bad = d->action == GH_ACTION_RECORD && toy->mischief != TOY_GOOD &&
               pass->segment == toy->mischief_segment &&
               pass->direction == toy->mischief_direction;

    if (d->action == GH_ACTION_REPLAYED) {
        pass->outputs = d->outputs;
        pass->n_outputs = d->n_outputs;
        return gh_layer_exit(toy->session, pass, &toy->err);
    }

    w->lie = toy->lies_when_checked && d->reason == GH_REASON_CHECK;
    w->forgets = toy->forgets;
    w->stream = d->stream;
    w->input = (CUdeviceptr)(uintptr_t)d->inputs[0].address;
    if (bad) {
        toy_do_mischief(toy, pass, w);
    }
    if (!run_parts(toy, w) && !bad) {
        gh_layer_cancel(toy->session, NULL);
        return GH_ERR_DEVICE;
    }
    fill_outputs(toy, w, outputs, &pass->n_outputs);
    pass->outputs = outputs;
    return toy_exit(toy, pass, bad && toy->mischief == TOY_OTHER_THREAD);
}

/* A host that issues its work elsewhere orders it by waiting: before and
 * after the pass, as no wait is allowed inside. */
static void wait_around(struct toy *toy)
{
    if (toy->mischief == TOY_ELSEWHERE) {
        toy->drv.cuCtxSynchronize();
    }
}

bool toy_leaves_weights(const struct toy *toy, const gh_segment *s)
{
    return toy->options.wgrad == TOY_WGRAD_LATER ||
           (toy->options.wgrad == TOY_WGRAD_BESIDE && s->index != 0);
}

static bool is_elsewhere(const struct toy *toy, const struct toy_work *w)
{
    return w->last + 1 == toy->n_parts || toy->options.moving_inputs;
}

gh_status toy_run_segment(struct toy *toy, const gh_segment *s,
                          gh_direction direction, uint32_t m, CUstream stream)
{
    const bool forward = direction == GH_FORWARD;
    const bool at_end =
        forward ? s->index == 0 : s->index == toy->n_segments - 1;
    const bool later = toy_leaves_weights(toy, s);
    struct toy_work w = {
        .first = 2 * s->first_layer + s->first_part,
        .last = 2 * s->last_layer + s->last_part,
        .direction = direction,
        .set = toy->set_of[m],
        .weights =
            direction == GH_WGRAD || (direction == GH_BACKWARD && !later),
        .stream = stream,
    };
    gh_buffer input, outputs[2 + TOY_MAX_PARTS];
    gh_pass pass = {
        .struct_size = sizeof(pass),
        .segment = s->index,
        .direction = direction,
        .microbatch = m,
        .flags = direction == GH_BACKWARD && !later &&
                         toy->options.wgrad != TOY_WGRAD_JOINED
                     ? GH_PASS_NO_WGRAD
                     : 0,
        .stream = stream,
        .inputs = &input,
        .n_inputs = 1,
    };
    gh_decision d = { .struct_size = sizeof(d) };
    gh_status status;

    if (!find_input(toy, &w, m, at_end, &input)) {
        return GH_ERR_DEVICE;
    }
    wait_around(toy);
    do {
        status = gh_layer_enter(toy->session, &pass, &d, &toy->err);
        if (status != GH_OK) {
            return status;
        }
        w.set = choose_set(toy, m, d.slot, forward && at_end);
        w.keeps = direction == GH_BACKWARD && later && is_elsewhere(toy, &w);
        status = obey(toy, &pass, &w, &d, outputs);
        toy->reruns += status == GH_RERUN;
    } while (status == GH_RERUN);
    wait_around(toy);
    return status;
}

bool toy_run_eagerly(struct toy *toy, gh_direction direction, uint32_t m,
                     CUstream stream)
{
    const struct toy_work w = {
        .first = 0,
        .last = toy->n_parts - 1,
        .direction = direction,
        .set = toy->set_of[m],
        .weights = direction == GH_BACKWARD,
        .input = toy_feed(toy, direction, m),
        .stream = stream,
    };

    return run_parts(toy, &w);
}
