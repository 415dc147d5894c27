/*
 * node.c - a node as the library asks for it: its segments, what is handed on
 * and what is released behind it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/pair/shared.h"

#include <stdio.h>
#include <string.h>

#define POISON 0xdeadbeefu

/* What the experts of a layer will read, before it is exchanged: whoever had
 * the memory last has used it on the compute stream. */
static bool lend_blocks(struct pair *p, const gh_overlap_node *node)
{
    const uint32_t set = p->set_of[node->chunk][node->microbatch];
    uint32_t q = p->first[node->layer];

    if (node->direction != GH_FORWARD || node->node != 0) {
        return true;
    }
    for (; q < p->first[node->layer + 1]; q++) {
        if (pair_is_lent(p, q, 0)) {
            p->lent[set][q] = lender_find(
                &p->toy.lender, 4 * (uint64_t)pair_words(p), pair_compute(p));
            return p->lent[set][q] != NULL;
        }
    }
    return true;
}

/* Before the forward of a depth its input is made, and behind its backward the
 * gradient of what that was made of, which reads that as well. */
static bool cross_depth(struct pair *p, const gh_overlap_node *node,
                        gh_direction direction)
{
    const uint32_t set = p->set_of[node->chunk][node->microbatch];
    const uint32_t q = p->first[node->layer];

    if (node->direction != direction || node->node != 0 ||
        !pair_begins_depth(p, q)) {
        return true;
    }
    return direction == GH_FORWARD
               ? pair_mix(p, pair_at(p, set, AT_DEPTH, node->layer),
                          pair_output_of(p, set, q - 1), 0, 11, 13,
                          node->stream)
               : pair_mix(p, pair_at(p, set, AT_DEPTH_GRAD, node->layer),
                          pair_at(p, set, AT_GRAD, q),
                          pair_output_of(p, set, q - 1), 11, 0, node->stream);
}

/* What goes out of the chunk is handed to the next one. */
static bool hand_on(struct pair *p, const gh_overlap_node *node)
{
    const uint32_t set = p->set_of[node->chunk][node->microbatch];

    if ((node->flags & GH_NODE_ENDS) == 0) {
        return true;
    }
    if (node->direction == GH_FORWARD) {
        return pair_mix(
            p, pair_feed_at(p, true, node->chunk + 1, node->microbatch),
            pair_output_of(p, set, p->first[node->layer + 1] - 1), 0, 1, 0,
            node->stream);
    }
    return node->chunk == 0 ||
           pair_mix(p,
                    pair_feed_at(p, false, node->chunk - 1, node->microbatch),
                    pair_at(p, set, AT_GRAD, p->first[node->layer]), 0, 1, 0,
                    node->stream);
}

static bool release(struct pair *p, const gh_overlap_node *node,
                    const gh_overlap_release *what)
{
    const uint32_t set = p->set_of[node->chunk][node->microbatch];
    const bool forward = what->direction == GH_FORWARD;
    CUdeviceptr address;

    if (forward && what->tensor == GH_TENSOR_HIDDEN &&
        pair_is_lent(p, pair_border(p, what->layer, what->node, true) + 1, 0)) {
        p->skipped++; /* the service has, or will have, given it back */
        return true;
    }
    if (forward && what->tensor == GH_TENSOR_HIDDEN) {
        p->foreign += pair_begins_depth(
            p, pair_border(p, what->layer, what->node, true) + 1);
    }
    if (what->tensor == GH_TENSOR_RESIDUAL) {
        address = pair_at(p, set, forward ? AT_RESIDUAL : AT_RESIDUAL_GRAD,
                          what->layer);
    } else if (what->tensor == GH_TENSOR_HIDDEN) {
        address = pair_at(p, set, forward ? AT_OUT : AT_GRAD,
                          pair_border(p, what->layer, what->node, forward));
    } else {
        return true; /* the host has no such tensor */
    }
    p->released++;
    return TOY_CALL(&p->toy, cuMemsetD32Async,
                    (address, POISON, PAIR_ELEMS, (CUstream)node->stream));
}

/* ---- the node ------------------------------------------------------------ */

static void note(struct pair *p, const gh_overlap_node *node)
{
    const size_t used = strlen(p->issued);

    snprintf(p->issued + used, sizeof(p->issued) - used, "%s%s%u.%u",
             used == 0 ? "" : " ",
             node->direction == GH_FORWARD    ? "F"
             : node->direction == GH_BACKWARD ? "B"
                                              : "W",
             node->layer, node->node);
}

static gh_status misbehave(struct pair *p, gh_error *err)
{
    switch (p->mischief) {
    case PAIR_FAILS:
        return pair_fail(err, "the host's node fails");
    case PAIR_FAILS_MUTE:
        return GH_ERR_DEVICE;
    case PAIR_RERUNS:
        return GH_RERUN;
    case PAIR_NESTS:
        return gh_overlap_run(
            p->toy.session,
            &(gh_overlap_pair){ .struct_size = sizeof(gh_overlap_pair) }, err);
    case PAIR_ENDS_STEP:
        return gh_iteration_end(p->toy.session, err);
    case PAIR_SUSPENDS:
        return gh_session_suspend(p->toy.session, err);
    default:
        return GH_OK;
    }
}

gh_status pair_run_node(void *user, const gh_overlap_node *node, gh_error *err)
{
    struct pair *p = user;
    const bool bad = p->mischief != PAIR_GOOD && p->until_mischief == 0;
    gh_status status = bad ? misbehave(p, err) : GH_OK;

    note(p, node);
    p->nodes++;
    if (p->options.watch != NULL) {
        p->options.watch(p, node, false);
    }
    if (status == GH_OK && !cross_depth(p, node, GH_FORWARD)) {
        return pair_fail(err, p->toy.err.text);
    }
    for (uint32_t i = 0; i < node->n_segments && status == GH_OK; i++) {
        const uint32_t s =
            node->direction == GH_FORWARD ? i : node->n_segments - 1 - i;

        status = pair_run_segment(p, &p->segments[node->first_segment + s],
                                  node, err);
    }
    if (p->options.watch != NULL) {
        p->options.watch(p, node, true);
    }
    if (p->mischief != PAIR_GOOD && p->until_mischief > 0) {
        p->until_mischief--;
    }
    if (status != GH_OK || (bad && p->mischief == PAIR_LEAVES_OPEN)) {
        return status;
    }
    if (!cross_depth(p, node, GH_BACKWARD) || !lend_blocks(p, node) ||
        !hand_on(p, node)) {
        return pair_fail(err, p->toy.err.text);
    }
    for (uint32_t i = 0; i < node->n_release; i++) {
        if (!release(p, node, &node->release[i])) {
            return pair_fail(err, p->toy.err.text);
        }
    }
    return GH_OK;
}
