/*
 * pass.c - a segment of a microbatch: its bracket, and what is computed in it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/saver/shared.h"

#include <stdio.h>
#include <string.h>

#define TRY(call) \
    do { \
        enum saver_outcome outcome_ = (call); \
        if (outcome_ != GOES_ON) { \
            return outcome_; \
        } \
    } while (0)
#define RUN(call) \
    do { \
        if (!(call)) { \
            snprintf(sv->err.text, sizeof(sv->err.text), \
                     "a launch of the host's own failed"); \
            return FAILS; \
        } \
    } while (0)

static enum saver_outcome end_across(struct saver *sv,
                                     const struct saver_work *w, uint32_t part,
                                     CUdeviceptr y)
{
    struct saver_group group = { .layer = part / 2,
                                 .n_tensors = sv->options.tensors };

    memcpy(group.tensors, sv->across[w->direction][w->set][part / 2],
           sizeof(group.tensors));
    RUN(saver_use_group(sv, &group, w, y));
    return saver_let_go(sv, &group, w);
}

static enum saver_outcome forward_part(struct saver *sv,
                                       const struct saver_work *w,
                                       uint32_t part, CUdeviceptr x)
{
    const CUdeviceptr y = saver_act(sv, w->set, part + 1);

    RUN(saver_mix(sv, y, x, 0, 3, part + 1, w->n, w->stream));
    for (uint32_t k = part % 2; k < saver_groups(sv, w->evaluates); k += 2) {
        struct saver_group group = { .layer = part / 2, .k = k };

        TRY(saver_place(sv, &group, w));
        RUN(saver_write_group(sv, &group, w, part, x));
        RUN(saver_use_group(sv, &group, w, y));
        if (saver_goes_across(sv, GH_FORWARD, k)) {
            saver_keep_across(sv, &group, w, part);
        } else {
            TRY(saver_let_go(sv, &group, w));
        }
    }
    return part % 2 == 1 && saver_goes_across(sv, GH_FORWARD, 0)
               ? end_across(sv, w, part, y)
               : GOES_ON;
}

static enum saver_outcome backward_group(struct saver *sv,
                                         const struct saver_work *w,
                                         uint32_t part, CUdeviceptr g,
                                         uint32_t k)
{
    struct saver_group group = { .layer = part / 2,
                                 .k = k,
                                 .n_tensors = sv->options.tensors };

    if (saver_goes_across(sv, GH_BACKWARD, k)) {
        memcpy(group.tensors, sv->across[w->direction][w->set][part / 2],
               sizeof(group.tensors));
    } else {
        TRY(saver_place(sv, &group, w));
    }
    RUN(saver_add_group(sv, &group, w, part, g));
    return saver_let_go(sv, &group, w);
}

static enum saver_outcome load_across(struct saver *sv,
                                      const struct saver_work *w, uint32_t part)
{
    struct saver_group group = { .layer = part / 2 };

    TRY(saver_place(sv, &group, w));
    saver_keep_across(sv, &group, w, part);
    return GOES_ON;
}

static enum saver_outcome backward_part(struct saver *sv,
                                        const struct saver_work *w,
                                        uint32_t part, CUdeviceptr g)
{
    RUN(saver_mix(sv, saver_grad(sv, w->set, part), g, 0, 5, 0, w->n,
                  w->stream));
    for (uint32_t k = SAVER_MAX_MODULES; k-- > 0;) {
        if (k % 2 == part % 2 && k < saver_groups(sv, false) &&
            !sv->loads_nothing) {
            TRY(backward_group(sv, w, part, g, k));
        }
    }
    return part % 2 == 1 && saver_goes_across(sv, GH_BACKWARD, 0) &&
                   !sv->loads_nothing
               ? load_across(sv, w, part)
               : GOES_ON;
}

static enum saver_outcome run_parts(struct saver *sv,
                                    const struct saver_work *w)
{
    CUdeviceptr x = w->input;

    if (w->direction == GH_FORWARD) {
        for (uint32_t p = w->first; p <= w->last; p++) {
            TRY(forward_part(sv, w, p, x));
            x = saver_act(sv, w->set, p + 1);
        }
        return GOES_ON;
    }
    for (uint32_t p = w->last + 1; p-- > w->first;) {
        TRY(backward_part(sv, w, p, x));
        x = saver_grad(sv, w->set, p);
    }
    return GOES_ON;
}

/* ---- its bracket --------------------------------------------------------- */

static gh_buffer buffer(CUdeviceptr address, uint32_t n, uint32_t flags)
{
    return toy_buffer(address, 4 * (uint64_t)n, flags);
}

static uint32_t fill_outputs(const struct saver *sv, const struct saver_work *w,
                             gh_buffer *outputs)
{
    uint32_t n = 0;

    if (w->direction == GH_FORWARD) {
        outputs[n++] = buffer(saver_act(sv, w->set, w->last + 1), w->n, 0);
        return n;
    }
    outputs[n++] = buffer(saver_grad(sv, w->set, w->first), w->n, 0);
    for (uint32_t p = w->first; p <= w->last; p++) {
        for (uint32_t k = p % 2; k < sv->options.modules; k += 2) {
            outputs[n++] = buffer(saver_sum(sv, w->set, p, k),
                                  sv->options.elems, GH_BUFFER_UPDATED);
        }
    }
    return n;
}

/* Where the pass before has left it: at the ends in a buffer of the
 * microbatch, at the ends of a chunk in the next chunk's set. */
static gh_buffer find_input(const struct saver *sv, const gh_segment *s,
                            const struct saver_work *w)
{
    const bool forward = w->direction == GH_FORWARD;
    const uint32_t border = forward ? w->first : w->last + 1;
    const bool at_end = border == (forward ? 0 : sv->n_parts);
    const gh_segment *next = forward ? s - 1 : s + 1;

    if (at_end) {
        return buffer(saver_feed(sv, w->direction, w->m), w->n, 0);
    }
    if (w->evaluates) {
        return buffer(saver_act(sv, w->set, border), w->n, 0);
    }
    if (next->chunk != s->chunk) {
        const uint32_t set = sv->set_of[next->chunk][w->m];

        return buffer(forward ? saver_act(sv, set, border)
                              : saver_grad(sv, set, border),
                      w->n, 0);
    }
    return buffer(forward ? saver_act(sv, sv->set_of[s->chunk][w->m], border)
                          : saver_grad(sv, sv->set_of[s->chunk][w->m], border),
                  w->n, GH_BUFFER_STATIC);
}

static uint32_t evaluation_set(const struct saver *sv, uint32_t m)
{
    return sv->options.slots + SAVER_MAX_FEEDS + saver_own(sv, m);
}

static uint32_t choose_set(struct saver *sv, const gh_segment *s,
                           const struct saver_work *w, uint32_t slot)
{
    if (w->evaluates) {
        return evaluation_set(sv, w->m);
    }
    return sv->set_of[s->chunk][w->m] =
               slot != GH_SLOT_NONE ? slot
                                    : sv->options.slots + saver_own(sv, w->m);
}

static gh_status run_once(struct saver *sv, const gh_segment *s, gh_pass *pass,
                          struct saver_work *w, enum saver_outcome *outcome_p)
{
    gh_buffer outputs[2 + SAVER_MAX_PARTS * SAVER_MAX_MODULES];
    gh_decision *d = &sv->decision;
    gh_status status;

    *outcome_p = GOES_ON;
    *d = (gh_decision){ .struct_size = sizeof(*d) };
    status = gh_layer_enter(sv->session, pass, d, &sv->err);
    if (status != GH_OK) {
        return status;
    }
    w->set = choose_set(sv, s, w, d->slot);
    sv->lender.recording =
        d->action == GH_ACTION_RECORD ? ++sv->lender.recordings : 0;
    sv->has_added |=
        w->direction == GH_BACKWARD &&
        (d->action == GH_ACTION_REPLAYED || d->reason == GH_REASON_CHECK);
    if (d->action == GH_ACTION_REPLAYED) {
        saver_find_across(sv, w);
        pass->outputs = d->outputs;
        pass->n_outputs = d->n_outputs;
        return gh_layer_exit(sv->session, pass, &sv->err);
    }
    w->stream = d->stream;
    w->input = (CUdeviceptr)(uintptr_t)d->inputs[0].address;
    sv->n_pending = 0;
    *outcome_p = saver_begin_parts(sv, w);
    if (*outcome_p == GOES_ON) {
        *outcome_p = run_parts(sv, w);
    }
    if (*outcome_p == GOES_ON) {
        *outcome_p = saver_let_all_go(sv, w);
    }
    if (*outcome_p != GOES_ON) {
        gh_layer_cancel(sv->session, NULL);
        return *outcome_p == AGAIN ? GH_RERUN : GH_ERR_DEVICE;
    }
    pass->outputs = outputs;
    pass->n_outputs = fill_outputs(sv, w, outputs);
    return gh_layer_exit(sv->session, pass, &sv->err);
}

gh_status saver_run_segment(struct saver *sv, const gh_segment *s,
                            gh_direction direction, uint32_t m, bool evaluates)
{
    struct saver_work w = {
        .first = 2 * s->first_layer + s->first_part,
        .last = 2 * s->last_layer + s->last_part,
        .direction = direction,
        .m = m,
        .set = evaluates ? evaluation_set(sv, m) : 0,
        .n = sv->words[m] != 0 ? sv->words[m] : sv->options.elems,
        .evaluates = evaluates,
    };
    CUstream stream = saver_stream(sv, m);
    gh_buffer input = find_input(sv, s, &w);
    gh_pass pass = { .struct_size = sizeof(pass),
                     .segment = s->index,
                     .direction = direction,
                     .microbatch = m,
                     .flags = evaluates ? GH_PASS_FORWARD_ONLY : 0,
                     .stream = stream,
                     .inputs = &input,
                     .n_inputs = 1 };
    bool tried = false;
    enum saver_outcome outcome;
    gh_status status;

    do {
        status = run_once(sv, s, &pass, &w, &outcome);
        if (outcome == FAILS && sv->tries_again && !tried) {
            tried = true;
            status = GH_RERUN;
        }
    } while (status == GH_RERUN);
    sv->stopped |= outcome == STOPS;
    if (sv->options.waits) {
        sv->toy.drv.cuCtxSynchronize();
    }
    if (status == GH_OK && sv->options.flush != NULL) {
        return sv->options.flush(sv);
    }
    if (status == GH_OK && sv->options.flushes) {
        status = gh_flush_delayed(sv->session, &sv->err);
    }
    return status;
}
