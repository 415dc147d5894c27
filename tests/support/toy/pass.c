/*
 * pass.c - a segment of a microbatch: its bracket, and what is computed in it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/toy/shared.h"

bool toy_mixes(struct toy *toy, CUdeviceptr d, CUdeviceptr a, CUdeviceptr b,
               uint32_t f, uint32_t k, uint32_t n, CUstream stream)
{
    return toy_called(toy, toy_mix(toy, d, a, b, f, k, n, stream),
                      "cuLaunchKernel");
}

bool toy_adds(struct toy *toy, CUdeviceptr d, CUdeviceptr a, CUdeviceptr b,
              uint32_t n, CUstream stream)
{
    return toy_called(toy, toy_add(toy, d, a, b, n, stream), "cuLaunchKernel");
}

uint32_t toy_words(const struct toy *toy, uint32_t m)
{
    const uint32_t words =
        toy->n_shapes > 0 ? toy->shapes[toy->shape_of[m]].elems : toy->words[m];

    return words != 0 ? words : toy->options.elems;
}

uint32_t toy_fed_words(const struct toy *toy, uint32_t m)
{
    const uint32_t n = toy_words(toy, m);

    return toy->less < n ? n - toy->less : 1;
}

static enum toy_outcome run_forward(struct toy *toy, const struct toy_work *w)
{
    enum toy_outcome outcome = GOES_ON;
    CUdeviceptr x = w->input;

    for (uint32_t p = w->first; p + w->forgets <= w->last && outcome == GOES_ON;
         p++) {
        const CUdeviceptr y = toy_act(toy, w->set, p + 1);

        if (!toy_mixes(toy, y, x, 0, 3, p + 1 + w->lie, w->n, w->stream)) {
            return FAILS;
        }
        outcome = toy_save_groups(toy, w, p, x, y);
        x = y;
    }
    return outcome;
}

static enum toy_outcome run_backward(struct toy *toy, const struct toy_work *w)
{
    enum toy_outcome outcome = GOES_ON;
    CUdeviceptr g = w->input;

    if (w->keeps && !toy_mixes(toy, toy_grad(toy, w->set, w->last + 1), g, 0, 1,
                               0, w->n, w->stream)) {
        return FAILS;
    }
    for (uint32_t p = w->last + 1; p-- > w->first && outcome == GOES_ON;) {
        const CUdeviceptr y = toy_act(toy, w->set, p + 1);
        const CUdeviceptr gx = toy_grad(toy, w->set, p);

        if (w->weights && toy->options.modules == 0 &&
            !toy_adds(toy, toy_sum(toy, w->set, p, 0), g, y, w->n, w->stream)) {
            return FAILS;
        }
        if (w->direction == GH_BACKWARD) {
            if (!toy_mixes(toy, gx, g, y, 5, 0, w->n, w->stream)) {
                return FAILS;
            }
            outcome = toy_load_groups(toy, w, p, g);
        }
        g = gx;
    }
    return outcome;
}

static enum toy_outcome run_parts(struct toy *toy, const struct toy_work *w)
{
    enum toy_outcome outcome;

    toy->n_pending = 0;
    outcome = toy_begin_parts(toy, w);
    if (outcome == GOES_ON) {
        outcome = w->direction == GH_FORWARD ? run_forward(toy, w)
                                             : run_backward(toy, w);
    }
    return outcome == GOES_ON ? toy_end_groups(toy, w) : outcome;
}

/* ---- its bracket --------------------------------------------------------- */

static uint32_t evaluation_set(const struct toy *toy, uint32_t m)
{
    return toy->options.max_slots + TOY_MAX_FEEDS + toy_own(toy, m);
}

static uint32_t choose_set(struct toy *toy, const gh_segment *s,
                           const struct toy_work *w, uint32_t slot)
{
    if (w->evaluates) {
        return evaluation_set(toy, w->m);
    }
    return toy->set_of[s->chunk][w->m] =
               slot != GH_SLOT_NONE
                   ? slot
                   : toy->options.max_slots + toy_own(toy, w->m);
}

static gh_buffer buffer(const struct toy *toy, CUdeviceptr address, uint32_t n,
                        uint32_t flags)
{
    return toy_buffer(
        address, toy->options.padded ? toy_stride(n) : 4 * (uint64_t)n, flags);
}

static bool move_input(struct toy *toy, const struct toy_work *w,
                       CUdeviceptr *address)
{
    const uint32_t part = w->direction == GH_FORWARD ? w->first : w->last + 1;
    const CUdeviceptr spare =
        toy_feed(toy, 2, (w->m + toy->step * 5 + part) % TOY_MAX_FEEDS);
    const CUdeviceptr from = *address;

    *address = spare;
    return TOY_CALL(toy, cuMemcpyDtoDAsync,
                    (spare, from, 4 * (size_t)w->n, w->stream));
}

/* Where the pass before has left it: at the ends in a buffer of the microbatch,
 * at the ends of a chunk in the next chunk's set, or in a copy that moves
 * about.  A delayed weight gradient finds all in the set. */
static bool find_input(struct toy *toy, const gh_segment *s,
                       const struct toy_work *w, gh_buffer *input)
{
    const bool forward = w->direction == GH_FORWARD;
    const uint32_t border = forward ? w->first : w->last + 1;
    const gh_segment *next = forward ? s - 1 : s + 1;
    uint32_t set = w->set, flags = GH_BUFFER_STATIC;
    CUdeviceptr address;

    if (border == (forward ? 0 : toy->n_parts) && w->direction != GH_WGRAD) {
        *input = buffer(
            toy, toy_feed(toy, w->direction, toy_own(toy, w->m)),
            toy->options.by_capacity ? toy_fed_words(toy, w->m) : w->n, 0);
        return true;
    }
    if (w->direction != GH_WGRAD &&
        (w->evaluates || next->chunk != s->chunk ||
         toy->options.copied_inputs || toy->options.moving_inputs)) {
        set = w->evaluates ? set : toy->set_of[next->chunk][w->m];
        flags = 0;
    }
    address = forward ? toy_act(toy, set, border) : toy_grad(toy, set, border);
    if (toy->options.moving_inputs && w->direction != GH_WGRAD &&
        !move_input(toy, w, &address)) {
        return false;
    }
    *input = buffer(toy, address, w->n, flags);
    return true;
}

/* What the pass reads: what the library gives it, or that with zeros behind it
 * where it is shorter than the shape. */
static CUdeviceptr take_input(struct toy *toy, const struct toy_work *w)
{
    const gh_buffer *given = &toy->decision.inputs[0];
    const CUdeviceptr from = (CUdeviceptr)(uintptr_t)given->address;
    const uint64_t bytes = 4 * (uint64_t)w->n;
    CUdeviceptr to;

    if (given->bytes >= bytes) {
        return from;
    }
    to = toy_padded(toy, w->set, w->direction);
    toy->short_checks += toy->decision.reason == GH_REASON_CHECK;
    toy->drv.cuMemsetD8Async(to, 0, bytes, w->stream);
    toy->drv.cuMemcpyDtoDAsync(to, from, given->bytes, w->stream);
    return to;
}

static uint32_t fill_outputs(const struct toy *toy, const struct toy_work *w,
                             gh_buffer *outputs)
{
    const bool groups = toy->options.modules > 0;
    uint32_t n = 0;

    if (w->direction == GH_FORWARD) {
        outputs[n++] = buffer(toy, toy_act(toy, w->set, w->last + 1), w->n, 0);
    }
    if (w->direction == GH_BACKWARD) {
        outputs[n++] = buffer(toy, toy_grad(toy, w->set, w->first), w->n, 0);
    }
    if (w->keeps) {
        outputs[n++] = buffer(toy, toy_grad(toy, w->set, w->last + 1), w->n, 0);
    }
    for (uint32_t p = w->first; p <= w->last && w->weights; p++) {
        for (uint32_t k = groups ? p % 2 : 0;
             k < (groups ? toy->options.modules : 1); k += 2) {
            outputs[n++] = buffer(toy, toy_sum(toy, w->set, p, k), w->n,
                                  GH_BUFFER_UPDATED);
        }
    }
    return n;
}

/* Entered, issued and left once. */
static gh_status run_once(struct toy *toy, const gh_segment *s, gh_pass *pass,
                          struct toy_work *w, enum toy_outcome *outcome_p)
{
    gh_buffer outputs[2 + TOY_MAX_PARTS * TOY_MAX_MODULES];
    gh_decision *d = &toy->decision;
    gh_status status;
    bool bad;

    *outcome_p = GOES_ON;
    *d = (gh_decision){ .struct_size = sizeof(*d) };
    status = gh_layer_enter(toy->session, pass, d, &toy->err);
    if (status != GH_OK) {
        return status;
    }
    w->set = choose_set(toy, s, w, d->slot);
    toy->lender.recording =
        d->action == GH_ACTION_RECORD ? ++toy->lender.recordings : 0;
    toy->has_added |=
        w->direction == GH_BACKWARD &&
        (d->action == GH_ACTION_REPLAYED || d->reason == GH_REASON_CHECK);
    if (d->action == GH_ACTION_REPLAYED) {
        if (toy->options.modules > 0) {
            toy_find_across(toy, w);
        }
        pass->outputs = d->outputs;
        pass->n_outputs = d->n_outputs;
        return gh_layer_exit(toy->session, pass, &toy->err);
    }
    bad = d->action == GH_ACTION_RECORD && toy->mischief != TOY_GOOD &&
          pass->segment == toy->mischief_segment &&
          pass->direction == toy->mischief_direction;
    w->lie = toy->lies_when_checked && d->reason == GH_REASON_CHECK;
    w->forgets = toy->forgets;
    w->stream = d->stream;
    w->input = take_input(toy, w);
    if (bad) {
        toy_do_mischief(toy, pass, w);
    }
    *outcome_p = run_parts(toy, w);
    if (*outcome_p != GOES_ON && !bad) {
        gh_layer_cancel(toy->session, NULL);
        return *outcome_p == AGAIN ? GH_RERUN : GH_ERR_DEVICE;
    }
    pass->n_outputs = fill_outputs(toy, w, outputs);
    pass->outputs = outputs;
    return toy_exit(toy, pass, bad && toy->mischief == TOY_OTHER_THREAD);
}

/* A host that issues its work elsewhere orders it by waiting: before and
 * after the pass, as no wait is allowed inside.  Others may. */
static void wait_around(struct toy *toy)
{
    if (toy->mischief == TOY_ELSEWHERE || toy->options.waits) {
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

static gh_status run_to_the_end(struct toy *toy, const gh_segment *s,
                                gh_pass *pass, struct toy_work *w)
{
    const bool later = toy_leaves_weights(toy, s);
    enum toy_outcome outcome;
    bool tried = false;
    gh_status status;

    w->keeps = w->direction == GH_BACKWARD && later && is_elsewhere(toy, w);
    do {
        status = run_once(toy, s, pass, w, &outcome);
        if (outcome == FAILS && toy->tries_again && !tried) {
            tried = true;
            status = GH_RERUN;
        }
        toy->reruns += status == GH_RERUN;
    } while (status == GH_RERUN);
    toy->stopped |= outcome == STOPS;
    return status;
}

gh_status toy_run_segment(struct toy *toy, const gh_segment *s,
                          gh_direction direction, uint32_t m, CUstream stream,
                          bool evaluates)
{
    const bool joined = direction == GH_BACKWARD && !toy_leaves_weights(toy, s);
    struct toy_work w = {
        .first = 2 * s->first_layer + s->first_part,
        .last = 2 * s->last_layer + s->last_part,
        .direction = direction,
        .m = m,
        .set = evaluates ? evaluation_set(toy, m) : toy->set_of[s->chunk][m],
        .n = toy_words(toy, m),
        .weights = direction == GH_WGRAD || joined,
        .evaluates = evaluates,
        .stream = stream,
    };
    const uint64_t capacity = 4 * (uint64_t)w.n;
    gh_buffer input;
    gh_pass pass = {
        .struct_size = sizeof(pass),
        .segment = s->index,
        .direction = direction,
        .microbatch = m,
        .bank = toy->n_shapes > 0 ? toy->shapes[toy->shape_of[m]].bank : 0,
        .group = toy->group,
        .flags =
            (evaluates ? GH_PASS_FORWARD_ONLY : 0u) |
            (joined && toy->options.wgrad != TOY_WGRAD_JOINED ? GH_PASS_NO_WGRAD
                                                              : 0u),
        .stream = stream,
        .inputs = &input,
        .n_inputs = 1,
        .capacities = toy->options.by_capacity ? &capacity : NULL,
    };
    gh_status status;

    if (!find_input(toy, s, &w, &input)) {
        return GH_ERR_DEVICE;
    }
    wait_around(toy);
    status = run_to_the_end(toy, s, &pass, &w);
    wait_around(toy);
    if (status == GH_OK && toy->options.flush != NULL) {
        return toy->options.flush(toy);
    }
    return status == GH_OK && toy->options.flushes
               ? gh_flush_delayed(toy->session, &toy->err)
               : status;
}

bool toy_run_eagerly(struct toy *toy, gh_direction direction, uint32_t m,
                     CUstream stream)
{
    const struct toy_work w = {
        .first = 0,
        .last = toy->n_parts - 1,
        .direction = direction,
        .m = m,
        .set = toy->set_of[0][m],
        .n = toy->options.elems,
        .weights = direction == GH_BACKWARD,
        .input = toy_feed(toy, direction, toy_own(toy, m)),
        .stream = stream,
    };

    return run_parts(toy, &w) == GOES_ON;
}
