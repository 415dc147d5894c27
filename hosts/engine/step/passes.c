/*
 * passes.c - every run of parts, through gh_run_pass().
 *
 * The engine promises this to a recorded pass: parts read only the decision's
 * inputs, weights, and the set of the decision's slot; and what one run of
 * parts hands to the next is in that set, always at the same address.  Two
 * inputs are not static, because they belong to the microbatch and not to the
 * slot: what the first part reads, and the gradient that the head hands back.
 * Where the plan has the embedding or the head in a segment, it runs with the
 * segment's parts, and the microbatch's tokens are such an input.  In a stage of
 * a pipeline each slot has places for them, so that they are static there.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "step/passes.h"

#include "model/parts.h"
#include "step/landing.h"
#include "step/offload.h"
#include "step/pass_buffers.h"

#include <stdio.h>

/* Takes the set that the decision means.  Returns 1 if the set had to be made:
 * the pass is then closed, because a capture allows no allocation. */
static int take_set(struct host *host, const gh_decision *decision,
                    int microbatch)
{
    struct trainer *trainer = host->trainer;
    struct flight *flight = &trainer->chunk->flights[microbatch];
    struct set *set;

    if (flight->set != NULL) {
        if (decision->slot == flight->slot) {
            return 0;
        }
        snprintf(host->error, sizeof(host->error),
                 "microbatch %d was in slot %u and is now in slot %u",
                 microbatch, flight->slot, decision->slot);
        return -1;
    }
    if (decision->slot == GH_SLOT_NONE) {
        if (trainer_lease(trainer, microbatch, decision->stream) != 0) {
            return -1;
        }
        flight->slot = GH_SLOT_NONE;
        return 0;
    }
    if (decision->slot >= MAX_SLOTS) {
        snprintf(host->error, sizeof(host->error), "slot %u is past %d",
                 decision->slot, MAX_SLOTS);
        return -1;
    }

    set = &host_chunk(host)->slots[decision->slot];
    if (set->memory == NULL) {
        gh_error err = { "" };

        (void)host->gh->layer_cancel(host->session, &err);
        return host_make_sets(host, decision->slot) == 0 ? 1 : -1;
    }
    flight->set = set;
    flight->slot = decision->slot;
    return 0;
}

static const float *input_at(const gh_decision *decision, int input)
{
    return input < 0 ? NULL : decision->inputs[input].address;
}

static enum halves halves_of(const struct pass *pass)
{
    if (pass->direction == GH_WGRAD) {
        return HALF_WGRAD;
    }
    return pass->leaves_wgrad ? HALF_DGRAD : HALF_BOTH;
}

/* Runs the parts forward, with the embedding and the head if they are in the
 * segment. */
static void run_forward_parts(const struct host *host, const struct pass *pass,
                              const struct work *work, const float *x,
                              const int *tokens)
{
    const struct trainer *trainer = host->trainer;
    const struct set *set = work->set;
    const int last = pass->segment->last;

    if (pass->segment->embeds) {
        landing_keep_tokens(trainer, pass->microbatch, tokens,
                            work->queue.stream);
        embed_forward(work, tokens, set->x);
        x = set->x;
    } else if (pass->segment->first == 0) {
        x = landing_keep(trainer, pass->microbatch, x, work->queue.stream);
    }
    parts_forward(work, pass->segment->first, last, x);
    if (pass->segment->heads) {
        head_forward(work, set_part_out(set, last),
                     tokens + config_rows(&trainer->model.config),
                     trainer->scales + trainer->shape_of[pass->microbatch],
                     set->loss);
    }
}

static void run_backward_parts(const struct pass *pass, const struct work *work,
                               const float *x, const float *dy,
                               const int *tokens)
{
    const struct set *set = work->set;
    const struct segment *segment = pass->segment;
    const bool ends = pass->direction == GH_BACKWARD;

    if (segment->heads) {
        dy = set->d_head;
    }
    if (ends && segment->heads) {
        head_backward(work, set_part_out(set, segment->last), set->d_head);
    }
    parts_backward(work, segment->first, segment->last, halves_of(pass), x, dy);
    if (ends && segment->embeds) {
        embed_backward(work, tokens, set_part_gradient(set, segment->first));
    }
}

static int run_parts(struct host *host, const struct pass *pass,
                     const gh_decision *decision)
{
    const struct trainer *trainer = host->trainer;
    const struct part_hooks hooks = offload_hooks(host);
    const float *x = input_at(decision, pass->x_input);
    const int *tokens = pass->tokens_input < 0
                            ? NULL
                            : decision->inputs[pass->tokens_input].address;
    const struct work work = {
        .queue = { .dev = trainer->dev, .stream = decision->stream },
        .model = model_of(trainer, pass->microbatch),
        .set = trainer->chunk->flights[pass->microbatch].set,
        .offsets = trainer->chunk->flights[pass->microbatch].offsets,
        .hooks = trainer->chunk->model.offload != 0 ? &hooks : NULL,
        .comm = comm_of(trainer, pass->microbatch),
        .ep = ranks_ep(trainer->options->ranks),
        .ring = trainer->options->cp_ring,
        .stashes = trainer->stashes,
        .positions = tokens == NULL || trainer->options->n_cp == 0
                         ? NULL
                         : tokens + 2 * config_rows(&trainer->model.config),
    };

    host->hook_failed = false;
    host->shape = trainer->shape_of[pass->microbatch];
    if (pass->direction == GH_FORWARD) {
        run_forward_parts(host, pass, &work, x, tokens);
    } else {
        run_backward_parts(pass, &work, x, input_at(decision, pass->dy_input),
                           tokens);
    }
    return trainer->dev->code == CUDA_SUCCESS && !host->hook_failed ? 0 : -1;
}

/* Takes the result of a replay.  The graph writes offloaded tensors where they
 * were in its recording, and since then the set may have been pointed to where
 * they are for a shape that runs eagerly. */
static const float *take_replayed(const struct host *host,
                                  const struct pass *pass,
                                  const gh_decision *decision)
{
    float *result = decision->outputs[0].address;

    if (pass->direction == GH_FORWARD) {
        set_place_out(host->trainer->chunk->flights[pass->microbatch].set,
                      pass->segment->last, result);
    }
    return result;
}

static uint32_t flags_of(const struct host *host, const struct pass *pass)
{
    const struct trainer *trainer = host->trainer;
    const bool nothing_later = trainer->chunk->model.delay_wgrad &&
                               pass->direction == GH_BACKWARD &&
                               !pass->leaves_wgrad;
    const bool shares = comm_of(trainer, pass->microbatch) != NULL;
    const bool waits = (host->lends_experts && pass->segment->exchanges) ||
                       (shares && pass->segment->has_cp);
    const bool local = (host->lends_experts || shares) &&
                       (pass->direction == GH_WGRAD || !waits);

    return (nothing_later ? GH_PASS_NO_WGRAD : 0) |
           (local ? GH_PASS_LOCAL : 0);
}

/* The call, without what is known only after the parts have run. */
static gh_pass call_of(const struct host *host, const struct pass *pass)
{
    const struct trainer *trainer = host->trainer;
    const struct comm *comm = comm_of(trainer, pass->microbatch);
    return (gh_pass){
        .struct_size = sizeof(gh_pass),
        .segment = pass->segment->index,
        .direction = pass->direction,
        .microbatch = (uint32_t)pass->microbatch,
        .flags = flags_of(host, pass),
        .stream = pass->stream,
        .inputs = pass->inputs,
        .n_inputs = pass->n_inputs,
        .bank = host->banks[trainer->shape_of[pass->microbatch]],
        .group = comm != NULL ? comm->handle : NULL,
    };
}

/* A pass on its way through gh_run_pass(). */
struct attempt {
    struct host *host;
    struct pass *pass;
    const float **result_p;
};

/* The engine's own code has failed, and said why. */
static gh_status fail(gh_error *err)
{
    err->text[0] = '\0';
    return GH_ERR_DEVICE;
}

/* A launch that fails in a recording may be the capture's fault: the library
 * has the pass issued once more, eagerly, where a real failure shows again. */
static gh_status issue(void *user, gh_pass *call, const gh_decision *decision,
                       gh_error *err)
{
    const struct attempt *attempt = user;
    struct host *host = attempt->host;
    struct pass *pass = attempt->pass;
    const int taken = take_set(host, decision, pass->microbatch);

    if (taken != 0) {
        return taken > 0 ? GH_RERUN : fail(err);
    }
    if (run_parts(host, pass, decision) != 0) {
        if (decision->action == GH_ACTION_RECORD) {
            device_forgive(host->trainer->dev);
        }
        return fail(err);
    }
    pass_name_outputs(host, pass);
    call->outputs = pass->outputs;
    call->n_outputs = pass->n_outputs;
    *attempt->result_p = pass->outputs[0].address;
    return GH_OK;
}

static int run_pass(struct host *host, struct pass *pass,
                    const float **result_p)
{
    struct attempt attempt = { host, pass, result_p };
    gh_error err = { "" };
    gh_decision decision = { .struct_size = sizeof(decision) };
    gh_pass call = call_of(host, pass);
    gh_status status;

    /* A failure from before the pass cannot be forgiven here. */
    if (host->trainer->dev->code != CUDA_SUCCESS) {
        return -1;
    }
    status = host->gh->run_pass(host->session, &call, issue, &attempt,
                                &decision, &err);
    if (status != GH_OK) {
        return err.text[0] == '\0'
                   ? -1
                   : host_fail(host, "gh_run_pass", status, &err);
    }
    if (decision.action == GH_ACTION_REPLAYED) {
        if (take_set(host, &decision, pass->microbatch) != 0) {
            return -1;
        }
        *result_p = take_replayed(host, pass, &decision);
    }
    host->wgrad_replays +=
        pass->direction == GH_WGRAD && decision.action != GH_ACTION_RUN;
    return 0;
}

static struct pass pass_of(const struct host *host, int segment,
                           gh_direction direction, int microbatch)
{
    const struct trainer *trainer = host->trainer;
    const struct segment *which = &host_chunk(host)->segments[segment];

    return (struct pass){
        .segment = which,
        .direction = direction,
        .microbatch = microbatch,
        .stream = direction == GH_WGRAD ? stream_of_wgrad(trainer)
                                        : stream_of(trainer, microbatch),
        .leaves_wgrad = direction == GH_BACKWARD &&
                        trainer->chunk->model.delay_wgrad && which->has_wgrad,
        .x_input = -1,
        .dy_input = -1,
        .tokens_input = -1,
    };
}

/* Lets the library write where the microbatch's documents begin, into the slot,
 * where graphs find it.  If the library refuses, passes run eagerly with the
 * engine's own offsets. */
static int give_documents(struct host *host, int microbatch)
{
    struct trainer *trainer = host->trainer;
    const struct packing *packing = &trainer->packings[microbatch];
    const gh_packed packed = {
        .struct_size = sizeof(packed),
        .bank = host->banks[trainer->shape_of[microbatch]],
        .chunk = (uint32_t)trainer->chunk->index,
        .microbatch = (uint32_t)microbatch,
        .stream = stream_of(trainer, microbatch),
        .n_sequences = (uint32_t)packing->n,
        .lengths = packing->lengths,
        .padded = packing->padded,
    };
    gh_packed_buffers buffers = { .struct_size = sizeof(buffers) };
    gh_error err = { "" };
    gh_status status =
        host->gh->packed_set(host->session, &packed, &buffers, &err);

    if (status == GH_ERR_UNSUPPORTED) {
        return 0;
    }
    if (status != GH_OK) {
        return host_fail(host, "gh_packed_set", status, &err);
    }
    trainer->chunk->flights[microbatch].offsets =
        buffers.cu_seqlens_padded.address;
    return 0;
}

int passes_begin(struct host *host, int microbatch)
{
    const struct trainer *trainer = host->trainer;

    if (trainer->n_shapes > 1 &&
        host_bind_tables(host, trainer->shape_of[microbatch]) != 0) {
        return -1;
    }
    return trainer->packings != NULL ? give_documents(host, microbatch) : 0;
}

static int run_forward(struct host *host, struct pass *pass, const float **x)
{
    return pass_add_x(host, pass) != 0 ? -1 : run_pass(host, pass, x);
}

/* Flushes delayed copies after a launch, when the host has time.  In pairs of
 * microbatches the library does this itself. */
static int flush(struct host *host)
{
    gh_error err = { "" };
    const gh_status status = host->gh->flush_delayed(host->session, &err);

    return status == GH_OK ? 0
                           : host_fail(host, "gh_flush_delayed", status, &err);
}

static int run_backward(struct host *host, struct pass *pass,
                        const float **dx)
{
    return pass_add_dy(host, pass) != 0 || pass_add_x(host, pass) != 0
               ? -1
               : run_pass(host, pass, dx);
}

/* Runs a pass for gradients of weights.  A part inside a mixture finds
 * everything in the set; other parts read what their backward has read. */
static int run_wgrad(struct host *host, struct pass *pass)
{
    const struct model *model = &host->trainer->chunk->model;
    const struct segment *segment = pass->segment;
    const float *none = NULL;

    if (model_has_weights(model, segment->last, segment->last)) {
        (void)pass_add_dy(host, pass);
    }
    if (model_has_weights(model, segment->first, segment->first)) {
        (void)pass_add_x(host, pass);
    }
    return run_pass(host, pass, &none);
}

/* Takes the loss out of the slot, which another microbatch will have. */
static void keep_loss(const struct host *host, int microbatch)
{
    const struct trainer *trainer = host->trainer;
    const struct set *set = trainer->chunk->flights[microbatch].set;

    if (trainer->chunk->model.folds_head) {
        DEVICE_CALL(trainer->dev, cuMemcpyDtoDAsync,
                    device_address(trainer->losses + microbatch),
                    device_address(set->loss), sizeof(float),
                    stream_of(trainer, microbatch));
    }
}

int passes_forward(struct host *host, int microbatch)
{
    const float *x = NULL;

    if (passes_begin(host, microbatch) != 0) {
        return -1;
    }
    for (int i = 0; i < host_chunk(host)->n_segments; i++) {
        struct pass pass = pass_of(host, i, GH_FORWARD, microbatch);

        if (run_forward(host, &pass, &x) != 0 || flush(host) != 0) {
            return -1;
        }
    }
    host->trainer->chunk->flights[microbatch].out = x;
    keep_loss(host, microbatch);
    return 0;
}

int passes_backward(struct host *host, int microbatch, const float **dx_p)
{
    const float *dy = NULL;

    for (int i = host_chunk(host)->n_segments - 1; i >= 0; i--) {
        struct pass pass = pass_of(host, i, GH_BACKWARD, microbatch);

        if (run_backward(host, &pass, &dy) != 0) {
            return -1;
        }
    }
    *dx_p = dy;
    return 0;
}

int passes_wgrad(struct host *host, int microbatch)
{
    for (int i = host_chunk(host)->n_segments - 1; i >= 0; i--) {
        struct pass pass = pass_of(host, i, GH_WGRAD, microbatch);

        if (pass.segment->has_wgrad && run_wgrad(host, &pass) != 0) {
            return -1;
        }
    }
    return 0;
}

/* Whether a pass for gradients of weights follows the node's backward.  As in
 * the library, a router alone has none. */
static bool node_leaves_wgrad(const struct host *host,
                              const gh_overlap_node *node)
{
    const struct model *model = &host->trainer->chunk->model;
    const int first = model_part(model, (int)node->layer,
                                 (enum part_kind)node->first_part);
    const int last = model_part(model, (int)node->layer,
                                (enum part_kind)node->last_part);
    bool leaves = false;

    for (int i = first; i <= last; i++) {
        leaves = leaves || (model_has_weights(model, i, i) &&
                            (model->parts[i].kind != PART_MOE_ROUTER ||
                             model->config.shared_expert));
    }
    return leaves;
}

int passes_node(struct host *host, const gh_overlap_node *node)
{
    const bool leaves = node_leaves_wgrad(host, node);
    const int n = (int)node->n_segments;
    int status = 0;

    for (int i = 0; i < n && status == 0; i++) {
        const int at = node->direction == GH_FORWARD ? i : n - 1 - i;
        struct pass pass =
            pass_of(host, (int)node->first_segment + at, node->direction,
                    (int)node->microbatch);
        const float *none = NULL;

        pass.stream = node->stream;
        pass.leaves_wgrad = pass.leaves_wgrad && leaves;
        if (node->direction == GH_FORWARD) {
            status = run_forward(host, &pass, &none);
        } else if (node->direction == GH_BACKWARD) {
            status = run_backward(host, &pass, &none);
        } else if (pass.segment->has_wgrad) {
            status = run_wgrad(host, &pass);
        }
    }
    return status;
}
