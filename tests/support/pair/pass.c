/*
 * pass.c - a segment of a node: the bracket, and what is computed in it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/pair/shared.h"

#include <stdio.h>

static bool run_forward(struct pair *p, const struct pair_work *w)
{
    CUdeviceptr x = w->input, y;
    bool good = true;

    for (uint32_t q = w->first; q <= w->last && good; q++) {
        const uint32_t layer = p->layer_of[q];
        const gh_part part = p->parts[q];

        if (pair_begins_chunk(p, q)) {
            good = pair_mix(p, pair_at(p, w->set, AT_INPUT, w->chunk), x, 0, 1,
                            0, w->stream);
        }
        if (part == GH_PART_MOE_ROUTER) {
            good = good && pair_mix(p, pair_at(p, w->set, AT_RESIDUAL, layer),
                                    x, 0, 7, 1, w->stream);
        }
        y = pair_output_of(p, w->set, q);
        good = good &&
               pair_mix(p, y, x,
                        part == GH_PART_MOE_POST
                            ? pair_at(p, w->set, AT_RESIDUAL, layer)
                            : 0,
                        3, q + 1, w->stream) &&
               pair_keep_groups(p, w, q, x, y);
        if (good && pair_is_exchange(part) && p->options.exchange != NULL) {
            p->options.exchange(p, w->stream, true);
        }
        x = y;
    }
    return good;
}

static bool add_weight(struct pair *p, const struct pair_work *w, uint32_t q,
                       CUdeviceptr gy)
{
    return pair_mix(p, pair_weight(p, q), pair_weight(p, q), gy, 3, 0,
                    w->stream) &&
           (pair_is_lent(p, q, 0) ||
            pair_mix(p, pair_weight(p, q), pair_weight(p, q),
                     pair_input_of(p, w, q), 1, 0, w->stream)) &&
           pair_read_group(p, w, q, 0, pair_weight(p, q));
}

static bool run_gradient(struct pair *p, const struct pair_work *w, uint32_t q,
                         CUdeviceptr gy)
{
    const uint32_t layer = p->layer_of[q];
    const gh_part part = p->parts[q];
    const CUdeviceptr gx = pair_at(p, w->set, AT_GRAD, q);
    bool good = true;

    if (part == GH_PART_MOE_POST) {
        good = pair_mix(p, pair_at(p, w->set, AT_RESIDUAL_GRAD, layer), gy, 0,
                        2, 0, w->stream);
    }
    good = good &&
           pair_mix(p, gx, gy,
                    pair_is_exchange(part) || pair_is_lent(p, q, 0)
                        ? 0
                        : pair_input_of(p, w, q),
                    5, 0, w->stream) &&
           pair_read_group(p, w, q, pair_has_weights(part), gx);
    if (good && pair_is_exchange(part) && p->options.exchange != NULL) {
        p->options.exchange(p, w->stream, false);
    }
    if (part == GH_PART_MOE_ROUTER) {
        good =
            good && pair_mix(p, gx, pair_at(p, w->set, AT_RESIDUAL_GRAD, layer),
                             gx, 7, 0, w->stream);
    }
    return good;
}

static bool run_backward(struct pair *p, const struct pair_work *w)
{
    CUdeviceptr gy = w->input;
    bool good = true;

    if (w->direction == GH_BACKWARD && pair_ends_chunk(p, w->last)) {
        good = pair_mix(p, pair_at(p, w->set, AT_OUTPUT_GRAD, w->chunk), gy, 0,
                        1, 0, w->stream);
    }
    for (uint32_t q = w->last + 1; q-- > w->first && good;) {
        if (w->weights && pair_has_weights(p->parts[q])) {
            good = add_weight(p, w, q, gy);
        }
        if (w->direction == GH_BACKWARD) {
            good = good && run_gradient(p, w, q, gy);
        }
        gy = pair_at(p, w->set, AT_GRAD, q);
    }
    return good;
}

/* ---- its bracket --------------------------------------------------------- */

static bool leaves_weights(const struct pair *p, const struct pair_work *w)
{
    bool any = false;

    for (uint32_t q = w->first; q <= w->last; q++) {
        any = any || pair_has_weights(p->parts[q]);
    }
    return p->options.delay_wgrad && any;
}

static gh_buffer find_input(const struct pair *p, const struct pair_work *w,
                            uint32_t m)
{
    const bool forward = w->direction == GH_FORWARD;
    const bool outside =
        forward ? pair_begins_chunk(p, w->first) : pair_ends_chunk(p, w->last);
    CUdeviceptr address;

    if (outside && w->direction != GH_WGRAD) {
        address = pair_feed_at(p, forward, w->chunk, m);
    } else if (outside) {
        address = pair_at(p, w->set, AT_OUTPUT_GRAD, w->chunk);
    } else {
        address = forward ? pair_input_of(p, w, w->first)
                          : pair_gradient_after(p, w->set, w->last);
    }
    return toy_buffer(address, 4 * PAIR_ELEMS,
                      outside && w->direction != GH_WGRAD ? 0
                                                          : GH_BUFFER_STATIC);
}

static gh_buffer find_output(const struct pair *p, const struct pair_work *w)
{
    CUdeviceptr address = pair_weight(p, w->first);

    if (w->direction == GH_FORWARD) {
        address = pair_output_of(p, w->set, w->last);
    } else if (w->direction == GH_BACKWARD) {
        address = pair_at(p, w->set, AT_GRAD, w->first);
    }
    return toy_buffer(address, 4 * PAIR_ELEMS,
                      w->direction == GH_WGRAD ? GH_BUFFER_UPDATED : 0);
}

static uint32_t set_for(struct pair *p, uint32_t chunk, uint32_t m,
                        uint32_t slot)
{
    return p->set_of[chunk][m] = slot != GH_SLOT_NONE ? slot : PAIR_SLOTS + m;
}

gh_status pair_fail(gh_error *err, const char *text)
{
    snprintf(err->text, sizeof(err->text), "%s", text);
    return GH_ERR_DEVICE;
}

gh_status pair_run_segment(struct pair *p, const gh_segment *s,
                           const gh_overlap_node *node, gh_error *err)
{
    struct pair_work w = {
        .first = pair_part_at(p, s->first_layer, s->first_part),
        .last = pair_part_at(p, s->last_layer, s->last_part),
        .set = p->set_of[node->chunk][node->microbatch],
        .chunk = node->chunk,
        .direction = node->direction,
    };
    const bool later = leaves_weights(p, &w);
    gh_buffer input = find_input(p, &w, node->microbatch), output;
    gh_pass pass = {
        .struct_size = sizeof(pass),
        .segment = s->index,
        .direction = node->direction,
        .microbatch = node->microbatch,
        .flags =
            node->direction == GH_BACKWARD && p->options.delay_wgrad && !later
                ? GH_PASS_NO_WGRAD
                : 0,
        .stream = node->stream,
        .inputs = &input,
        .n_inputs = 1,
        .outputs = &output,
        .n_outputs = 1,
    };
    gh_decision d = { .struct_size = sizeof(d) };
    gh_status status;

    if (node->direction == GH_WGRAD && !later) {
        return GH_OK;
    }
    w.weights = node->direction == GH_WGRAD ||
                (node->direction == GH_BACKWARD && !later);
    do {
        status = gh_layer_enter(p->toy.session, &pass, &d, err);
        if (status != GH_OK) {
            return status;
        }
        w.set = set_for(p, node->chunk, node->microbatch, d.slot);
        output = find_output(p, &w);
        if (p->mischief == PAIR_LEAVES_OPEN && p->until_mischief == 0) {
            return GH_OK;
        }
        if (p->mischief == PAIR_FAILS_INSIDE && p->until_mischief == 0) {
            return pair_fail(err, "the host fails with a pass open");
        }
        if (d.action != GH_ACTION_REPLAYED) {
            w.stream = d.stream;
            w.input = (CUdeviceptr)(uintptr_t)d.inputs[0].address;
            if (!(node->direction == GH_FORWARD ? run_forward(p, &w)
                                                : run_backward(p, &w))) {
                return pair_fail(err, p->toy.err.text);
            }
        }
        status = gh_layer_exit(p->toy.session, &pass, err);
    } while (status == GH_RERUN);
    return status;
}
