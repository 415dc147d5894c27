/*
 * step.c - runs of chunks, and steps made of them.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/pair/shared.h"

#include <string.h>

#define ABSENT UINT32_MAX

static gh_status agree(void *user, double *numbers, uint32_t n, gh_error *err)
{
    struct pair *p = user;

    err->text[0] = '\0'; /* a host may write there whatever its caller gave */
    p->agreed++;
    p->agreed_n = 0;
    for (uint32_t i = 0; i < n; i++) {
        p->agreed_n += numbers[i] > 0;
        if (p->options.time_of != NULL) {
            numbers[i] = p->options.time_of(i);
        }
    }
    if (p->options.change != NULL) {
        p->options.change(numbers, n);
    }
    return p->options.agree_answer;
}

gh_status pair_run(struct pair *p, uint32_t forward, uint32_t forward_m,
                   uint32_t backward, uint32_t backward_m)
{
    gh_overlap_pair pair = {
        .struct_size = sizeof(pair),
        .flags = p->options.early ? GH_OVERLAP_EARLY_RELEASE : 0,
        .compute = pair_compute(p),
        .comm = p->options.own_comm ? p->comm : NULL,
        .run_node = pair_run_node,
        .agree = p->options.no_agree ? NULL : agree,
        .user = p,
    };

    if (forward != ABSENT) {
        pair.flags |= GH_OVERLAP_FORWARD;
        pair.forward_chunk = forward;
        pair.forward_microbatch = forward_m;
    }
    if (backward != ABSENT) {
        pair.flags |= GH_OVERLAP_BACKWARD;
        pair.backward_chunk = backward;
        pair.backward_microbatch = backward_m;
    }
    p->issued[0] = '\0';
    return gh_overlap_run(p->toy.session, &pair,
                          p->options.no_error ? NULL : &p->toy.err);
}

gh_status pair_issue(struct pair *p, const gh_overlap_node *node)
{
    return pair_run_node(p, node, &p->toy.err);
}

bool pair_feed(struct pair *p, uint32_t m)
{
    return TOY_CALL(&p->toy, cuMemsetD32Async,
                    (pair_feed_at(p, true, 0, m), toy_feed_value(&p->toy, m, 0),
                     PAIR_ELEMS, pair_compute(p))) &&
           TOY_CALL(&p->toy, cuMemsetD32Async,
                    (pair_feed_at(p, false, pair_chunks(p) - 1, m),
                     toy_feed_value(&p->toy, m, 1), PAIR_ELEMS,
                     pair_compute(p)));
}

bool pair_clear(struct pair *p)
{
    memset(p->weights, 0, sizeof(p->weights));
    return TOY_CALL(&p->toy, cuMemsetD8Async,
                    (p->memory, 0, (size_t)p->memory_bytes, pair_compute(p)));
}

/* A backward chunk of a microbatch beside a forward one of the next. */
static gh_status run_both(struct pair *p, uint32_t i, uint32_t microbatches)
{
    const uint32_t n = pair_chunks(p);
    const bool forward = i + 1 < microbatches;
    gh_status status = GH_OK;

    for (uint32_t c = 0; c < n && status == GH_OK; c++) {
        if (forward && p->options.apart) {
            status = pair_run(p, c, i + 1, ABSENT, 0);
        }
        if (status == GH_OK) {
            status = pair_run(p, forward && !p->options.apart ? c : ABSENT,
                              i + 1, n - 1 - c, i);
        }
    }
    return status;
}

gh_status pair_step(struct pair *p, uint32_t microbatches)
{
    gh_status status = GH_OK;

    for (uint32_t m = 0; m < microbatches; m++) {
        if (!pair_feed(p, m)) {
            return GH_ERR_DEVICE;
        }
    }
    for (uint32_t c = 0; c < pair_chunks(p) && status == GH_OK; c++) {
        status = pair_run(p, c, 0, ABSENT, 0);
    }
    for (uint32_t i = 0; i < microbatches && status == GH_OK; i++) {
        status = run_both(p, i, microbatches);
    }
    for (uint32_t m = 0; m < microbatches && status == GH_OK; m++) {
        pair_expect(p, m);
    }
    p->toy.step++;
    return status == GH_OK ? gh_iteration_end(p->toy.session, &p->toy.err)
                           : status;
}

gh_status pair_train(struct pair *p, const uint32_t *counts, uint32_t n)
{
    gh_status status = GH_OK;

    for (uint32_t i = 0; i < n && status == GH_OK; i++) {
        status = pair_step(p, counts[i]);
    }
    return status;
}
