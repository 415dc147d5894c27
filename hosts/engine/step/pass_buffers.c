/*
 * pass_buffers.c - what a pass reads, and what it leaves behind.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "step/pass_buffers.h"

#include "step/landing.h"

#include <stdio.h>

/* Adds a hidden state that is not in the set.  Unless it is where each
 * microbatch of the slot has it, it is not static. */
static void add_outer_input(const struct host *host, struct pass *pass,
                            const float *address, bool stays)
{
    const struct config *config =
        &model_of(host->trainer, pass->microbatch)->config;

    pass->inputs[pass->n_inputs++] = (gh_buffer){
        .address = (void *)(uintptr_t)address,
        .bytes = (uint64_t)config_rows(config) * (uint64_t)config->hidden *
                 sizeof(float),
        .flags = stays ? GH_BUFFER_STATIC : 0,
    };
}

/* Adds a buffer of the set, which is read in place. */
static void add_static_input(struct pass *pass, const gh_buffer *buffer)
{
    pass->inputs[pass->n_inputs++] = (gh_buffer){
        .address = buffer->address,
        .bytes = buffer->bytes,
        .flags = GH_BUFFER_STATIC,
    };
}

/* Finds the buffer that was named by the pass that wrote it.  It must be the
 * set's own buffer, because kernels of parts that read more than one input look
 * there. */
static int find_border(struct host *host, struct pass *pass, uint32_t segment,
                       uint32_t which, const gh_buffer *expected)
{
    const gh_border_key key = {
        .struct_size = sizeof(key),
        .segment = segment,
        .direction = pass->direction,
        .microbatch = (uint32_t)pass->microbatch,
        .tensor = expected->tensor,
        .which = which,
    };
    gh_buffer found = { 0 };
    gh_error err = { "" };
    gh_status status = host->gh->border_find(host->session, &key, &found, &err);

    if (status != GH_OK) {
        return host_fail(host, "gh_border_find", status, &err);
    }
    if (found.address != expected->address || found.bytes != expected->bytes) {
        snprintf(host->error, sizeof(host->error),
                 "segment %u, microbatch %d: %s has %llu bytes at %p, and in "
                 "the set %llu at %p",
                 segment, pass->microbatch,
                 host->gh->tensor_name(expected->tensor),
                 (unsigned long long)found.bytes, found.address,
                 (unsigned long long)expected->bytes, expected->address);
        return -1;
    }
    add_static_input(pass, &found);
    return 0;
}

static uint32_t segment_of(const struct host *host, int part)
{
    int i = 0;

    while (host_chunk(host)->segments[i].last < part) {
        i++;
    }
    return host_chunk(host)->segments[i].index;
}

/* Finds what earlier segments of this direction have handed over: forward what
 * the parts before wrote, backward the gradients of what this segment wrote. */
static int find_inputs(struct host *host, struct pass *pass)
{
    const struct model *model = model_of(host->trainer, pass->microbatch);
    const struct set *set = host->trainer->chunk->flights[pass->microbatch].set;
    const bool forward = pass->direction == GH_FORWARD;
    const struct side *side =
        forward ? &pass->segment->in : &pass->segment->out;

    for (int i = 0; i < side->n; i++) {
        const gh_border *border = &side->borders[i];
        const int part = forward ? -1 : border_gradient_part(model, border);
        gh_buffer list[MAX_BORDER];
        const int n = (forward ? border_buffers
                               : border_gradients)(model, set, border, list);

        for (int j = 0; j < n; j++) {
            const uint32_t from =
                forward ? border->segment : segment_of(host, part);

            if (find_border(host, pass, from, (uint32_t)j, &list[j]) != 0) {
                return -1;
            }
        }
    }
    return 0;
}

/* Adds what the set has kept, for a pass that comes after those of this
 * direction. */
static void add_kept(const struct host *host, struct pass *pass,
                     const struct side *side, bool gradients)
{
    const struct model *model = model_of(host->trainer, pass->microbatch);
    const struct set *set = host->trainer->chunk->flights[pass->microbatch].set;

    for (int i = 0; i < side->n; i++) {
        gh_buffer list[MAX_BORDER];
        const int n = (gradients ? border_gradients : border_buffers)(
            model, set, &side->borders[i], list);

        for (int j = 0; j < n; j++) {
            add_static_input(pass, &list[j]);
        }
    }
}

/* Adds where documents begin, for the first part. */
static void add_documents(const struct host *host, struct pass *pass)
{
    const struct trainer *trainer = host->trainer;
    const int *offsets = trainer->chunk->flights[pass->microbatch].offsets;
    const gh_buffer buffer = {
        .address = (void *)(uintptr_t)offsets,
        .bytes = (uint64_t)config_offsets(&trainer->chunk->model.config) *
                 sizeof(int),
    };

    if (offsets != NULL) {
        add_static_input(pass, &buffer);
    }
}

/* Adds a microbatch's tokens, with targets and positions. */
static void add_tokens(const struct host *host, struct pass *pass)
{
    const struct trainer *trainer = host->trainer;
    const size_t count = (size_t)trainer_columns(trainer) *
                         (size_t)config_rows(&trainer->model.config);
    bool stays;
    const int *tokens =
        (pass->direction == GH_FORWARD ? landing_tokens : landing_kept_tokens)(
            trainer, pass->microbatch, &stays);

    pass->tokens_input = (int)pass->n_inputs;
    pass->inputs[pass->n_inputs++] = (gh_buffer){
        .address = (void *)(uintptr_t)tokens,
        .bytes = count * sizeof(int),
        .flags = stays ? GH_BUFFER_STATIC : 0,
    };
}

/* Adds what the parts read that the embedding runs with. */
static void add_embedded(const struct host *host, struct pass *pass)
{
    const struct model *model = &host->trainer->chunk->model;
    const struct set *set = host->trainer->chunk->flights[pass->microbatch].set;

    if (pass->direction != GH_FORWARD) {
        const gh_buffer x = {
            .address = set->x,
            .bytes = (uint64_t)config_rows(&model->config) *
                     (uint64_t)model->config.hidden * sizeof(float),
        };

        pass->x_input = (int)pass->n_inputs;
        add_static_input(pass, &x);
    }
    if (pass->direction != GH_WGRAD) {
        add_tokens(host, pass);
    }
}

/* Adds what the first part reads. */
static int add_x(struct host *host, struct pass *pass)
{
    if (pass->segment->embeds) {
        add_embedded(host, pass);
        return 0;
    }
    pass->x_input = (int)pass->n_inputs;
    if (pass->segment->first == 0) {
        bool stays;
        const float *x =
            (pass->direction == GH_FORWARD ? landing_input : landing_kept)(
                host->trainer, pass->microbatch, &stays);

        add_outer_input(host, pass, x, stays);
        return 0;
    }
    if (pass->direction == GH_FORWARD) {
        return find_inputs(host, pass);
    }
    add_kept(host, pass, &pass->segment->in, false);
    return 0;
}

int pass_add_x(struct host *host, struct pass *pass)
{
    if (add_x(host, pass) != 0) {
        return -1;
    }
    if (pass->direction != GH_FORWARD) {
        return 0;
    }
    if (pass->segment->first == 0) {
        add_documents(host, pass);
    }
    if (pass->segment->heads && pass->tokens_input < 0) {
        add_tokens(host, pass);
    }
    return 0;
}

int pass_add_dy(struct host *host, struct pass *pass)
{
    const struct trainer *trainer = host->trainer;

    if (pass->segment->heads) {
        return 0; /* the pass itself makes it, or the one before */
    }
    pass->dy_input = (int)pass->n_inputs;
    if (pass->segment->last == trainer->chunk->model.n_parts - 1) {
        bool stays;
        const float *dy = landing_gradient(trainer, pass->microbatch, &stays);

        add_outer_input(host, pass, dy, stays);
        return 0;
    }
    if (pass->direction == GH_BACKWARD) {
        return find_inputs(host, pass);
    }
    add_kept(host, pass, &pass->segment->out, true);
    return 0;
}

static void add_outputs(struct pass *pass, const gh_buffer *list, int n)
{
    for (int i = 0; i < n; i++) {
        pass->outputs[pass->n_outputs++] = list[i];
    }
}

static void add_gradient(const struct host *host, struct pass *pass,
                         struct range range)
{
    if (range.count == 0 || pass->n_outputs == GH_MAX_BUFFERS) {
        return;
    }
    pass->outputs[pass->n_outputs++] = (gh_buffer){
        .address = host->trainer->chunk->model.g + range.first,
        .bytes = range.count * sizeof(float),
        .flags = GH_BUFFER_UPDATED,
    };
}

/* Forward: names what a later segment or the head reads.  The hidden state
 * comes first. */
static void name_tensors(const struct host *host, struct pass *pass)
{
    const struct model *model = model_of(host->trainer, pass->microbatch);
    const struct set *set = host->trainer->chunk->flights[pass->microbatch].set;
    const struct side *out = &pass->segment->out;
    gh_buffer list[MAX_BORDER];

    if (pass->segment->heads) {
        const struct config *config = &model->config;

        pass->outputs[pass->n_outputs++] = (gh_buffer){
            .address = set_part_out(set, pass->segment->last),
            .bytes = (uint64_t)config_rows(config) * (uint64_t)config->hidden *
                     sizeof(float),
            .tensor = GH_TENSOR_HIDDEN,
        };
    }
    for (int i = 0; i < out->n; i++) {
        add_outputs(pass, list,
                    border_buffers(model, set, &out->borders[i], list));
    }
}

/* Backward: names the gradient of what the first part read, and of whatever
 * else an earlier segment wrote, if this segment makes that gradient. */
static void name_gradients(const struct host *host, struct pass *pass)
{
    const struct model *model = model_of(host->trainer, pass->microbatch);
    const struct set *set = host->trainer->chunk->flights[pass->microbatch].set;
    const struct segment *segment = pass->segment;
    gh_buffer list[MAX_BORDER];

    if (segment->in.n == 0) {
        const struct config *config = &model->config;

        pass->outputs[pass->n_outputs++] = (gh_buffer){
            .address = set_part_gradient(set, segment->first),
            .bytes = (uint64_t)config_rows(config) * (uint64_t)config->hidden *
                     sizeof(float),
            .tensor = GH_TENSOR_HIDDEN,
        };
    }
    for (int i = 0; i < segment->in.n; i++) {
        const gh_border *border = &segment->in.borders[i];
        const int part = border_gradient_part(model, border);

        if (part >= segment->first && part <= segment->last) {
            add_outputs(pass, list, border_gradients(model, set, border, list));
        }
    }
}

/* Adds the gradients of the embedding's weights and of the head's. */
static void add_ends(const struct host *host, struct pass *pass)
{
    const struct model *model = &host->trainer->chunk->model;
    const size_t c = (size_t)model->config.hidden;
    const size_t keys = (size_t)config_keys(&host->trainer->model.config);

    if (pass->segment->embeds) {
        add_gradient(host, pass, (struct range){ model->token_w, VOCAB * c });
        add_gradient(host, pass, (struct range){ model->position_w, keys * c });
    }
    if (pass->segment->heads) {
        add_gradient(host, pass, (struct range){ model->head_w, c * VOCAB });
        add_gradient(host, pass, (struct range){ model->norm_g, c });
        add_gradient(host, pass, (struct range){ model->norm_b, c });
    }
}

void pass_name_outputs(const struct host *host, struct pass *pass)
{
    const struct model *model = &host->trainer->chunk->model;
    const struct segment *segment = pass->segment;

    pass->n_outputs = 0;
    if (pass->direction == GH_FORWARD) {
        name_tensors(host, pass);
        return;
    }
    if (pass->direction == GH_BACKWARD) {
        name_gradients(host, pass);
        add_ends(host, pass);
    }
    if (pass->leaves_wgrad) {
        return;
    }
    for (int part = segment->first; part <= segment->last; part++) {
        add_gradient(host, pass, model->parts[part].matrices);
        add_gradient(host, pass, model->parts[part].vectors);
    }
}
