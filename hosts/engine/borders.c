/*
 * borders.c - see borders.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "borders.h"

struct list {
    struct border *entries;
    int n;
};

static void add(struct list *list, const void *address, size_t count,
                int writer)
{
    list->entries[list->n++] = (struct border){
        .address = address,
        .bytes = count * sizeof(float),
        .writer = writer,
    };
}

/* Rows of the hidden state after a part. */
static size_t rows_after(const struct config *config, enum part_kind kind)
{
    const size_t rows = (size_t)config_rows(config);

    switch (kind) {
    case PART_MOE_DISPATCH:
    case PART_MOE_EXPERTS:
        return (size_t)config_slots(config);
    case PART_MOE_COMBINE:
        return rows * (size_t)config->top_k;
    default:
        return rows;
    }
}

static bool is_inside_moe(enum part_kind kind)
{
    return kind >= PART_MOE_ROUTER && kind < PART_MOE_POST;
}

static void add_routing(const struct model *model, const struct set *set,
                        int part, struct list *list)
{
    const struct config *config = &model->config;
    const enum part_kind kind = model->parts[part].kind;
    const struct moe_buffers *moe = &set->moe[model->parts[part].layer];
    const int router = part - (int)(kind - PART_MOE_ROUTER);
    const bool passed_on =
        router > 0 && moe->base == set->parts[router - 1].out;
    const size_t rows = (size_t)config_rows(config);
    const size_t choices = rows * (size_t)config->top_k;
    const size_t experts = (size_t)config->experts;

    add(list, moe->base, rows * (size_t)config->hidden,
        passed_on ? router - 1 : router);
    add(list, moe->prob, choices, router);
    if (kind == PART_MOE_ROUTER) {
        add(list, moe->choice, choices, router);
        return;
    }
    if (kind <= PART_MOE_EXPERTS) {
        add(list, moe->slot, choices, router + 1);
    }
    if (kind <= PART_MOE_DISPATCH) {
        add(list, moe->counts, experts, router + 1);
        add(list, moe->first, experts, router + 1);
    }
    if (kind == PART_MOE_PREPROCESS) {
        add(list, moe->source, (size_t)config_slots(config), router + 1);
    }
}

int border_after(const struct model *model, const struct set *set, int part,
                 struct border list[MAX_BORDER])
{
    const enum part_kind kind = model->parts[part].kind;
    struct list after = { .entries = list };

    add(&after, set_part_out(set, part),
        rows_after(&model->config, kind) * (size_t)model->config.hidden,
        kind == PART_MOE_PREPROCESS ? part - 1 : part);
    if (is_inside_moe(kind)) {
        add_routing(model, set, part, &after);
    }
    return after.n;
}

int border_before(const struct model *model, const struct set *set, int part,
                  struct border list[MAX_BORDER])
{
    const struct config *config = &model->config;
    const enum part_kind kind = model->parts[part].kind;
    const bool inside = kind > PART_MOE_ROUTER && kind <= PART_MOE_POST;
    const struct moe_buffers *moe = &set->moe[model->parts[part].layer];
    const int post = part + (int)(PART_MOE_POST - kind);
    const size_t rows = (size_t)config_rows(config);
    const size_t c = (size_t)config->hidden;
    struct list before = { .entries = list };

    add(&before, set_part_gradient(set, part),
        (inside ? rows_after(config, model->parts[part - 1].kind) : rows) * c,
        kind == PART_MOE_PREPROCESS ? part + 1 : part);
    if (inside) {
        add(&before, moe->d_base, rows * c,
            moe->d_base_own != NULL ? post : post + 1);
        add(&before, moe->d_prob, rows * (size_t)config->top_k, post);
    }
    return before.n;
}
