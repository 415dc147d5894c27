/*
 * borders.c - see borders.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "step/borders.h"

struct list {
    gh_buffer *buffers;
    gh_tensor tensor;
    int n;
};

static void add(struct list *list, const void *address, size_t count)
{
    list->buffers[list->n++] = (gh_buffer){
        .address = (void *)(uintptr_t)address,
        .bytes = count * sizeof(float),
        .tensor = list->tensor,
    };
}

static int writer_of(const struct model *model, const gh_border *border)
{
    return model_part(model, (int)border->layer,
                      (enum part_kind)border->writer);
}

/* Elements of the hidden state after a part. */
static size_t hidden_after(const struct config *config, enum part_kind kind)
{
    const size_t c = (size_t)config->hidden;
    const size_t rows = (size_t)config_rows(config);

    switch (kind) {
    case PART_MOE_DISPATCH:
    case PART_MOE_EXPERTS:
        return (size_t)config_room(config) * c;
    case PART_MOE_COMBINE:
        return rows * (size_t)config->top_k * c;
    default:
        return rows * c;
    }
}

int border_buffers(const struct model *model, const struct set *set,
                   const gh_border *border, gh_buffer list[MAX_BORDER])
{
    const struct config *config = &model->config;
    const struct moe_buffers *moe = &set->moe[border->layer];
    const int writer = writer_of(model, border);
    const size_t rows = (size_t)config_rows(config);
    const size_t choices = rows * (size_t)config->top_k;
    const size_t experts = (size_t)config->experts;
    struct list found = { .buffers = list, .tensor = border->tensor };

    switch (border->tensor) {
    case GH_TENSOR_HIDDEN:
        add(&found, set_part_out(set, writer),
            hidden_after(config, model->parts[writer].kind));
        break;
    case GH_TENSOR_RESIDUAL:
        add(&found, moe->base, rows * (size_t)config->hidden);
        break;
    case GH_TENSOR_PROBS:
        add(&found, moe->prob, choices);
        break;
    case GH_TENSOR_ROUTING_MAP:
        add(&found, moe->choice, choices);
        break;
    case GH_TENSOR_DISPATCH:
        add(&found, moe->slot, choices);
        add(&found, moe->source, (size_t)config_slots(config));
        add(&found, moe->counts, experts);
        add(&found, moe->first, experts);
        break;
    default:
        break;
    }
    return found.n;
}

int border_gradients(const struct model *model, const struct set *set,
                     const gh_border *border, gh_buffer list[MAX_BORDER])
{
    const struct config *config = &model->config;
    const struct moe_buffers *moe = &set->moe[border->layer];
    const int writer = writer_of(model, border);
    const size_t rows = (size_t)config_rows(config);
    struct list found = { .buffers = list, .tensor = border->tensor };

    switch (border->tensor) {
    case GH_TENSOR_HIDDEN:
        add(&found, set_part_gradient(set, writer + 1),
            hidden_after(config, model->parts[writer].kind));
        break;
    case GH_TENSOR_RESIDUAL:
        add(&found, moe->d_base, rows * (size_t)config->hidden);
        break;
    case GH_TENSOR_PROBS:
        add(&found, moe->d_prob, rows * (size_t)config->top_k);
        break;
    default:
        break;
    }
    return found.n;
}

int border_gradient_part(const struct model *model, const gh_border *border)
{
    switch (border->tensor) {
    case GH_TENSOR_HIDDEN:
        return writer_of(model, border) + 1;
    case GH_TENSOR_RESIDUAL:
    case GH_TENSOR_PROBS:
        return model_part(model, (int)border->layer, PART_MOE_POST);
    default:
        return -1;
    }
}
