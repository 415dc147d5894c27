/*
 * gradients.c - the gradients that a part's backward makes for its own use.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "model/cutter.h"

#include "model/buffers.h"

static void cut_mla_gradients(struct cutter *cutter,
                              const struct config *config,
                              struct mla_buffers *mla)
{
    const size_t rows = (size_t)config_rows(config);
    const size_t c = (size_t)config->hidden;

    mla->d_q_up = cut(cutter, rows * (size_t)config_qk(config));
    mla->d_q_norm = cut(cutter, rows * (size_t)config_q_rank(config));
    mla->d_q_low = cut(cutter, rows * (size_t)config_q_rank(config));
    mla->d_kv = cut(cutter, rows * 2 * c);
    mla->d_kv_norm = cut(cutter, rows * (size_t)config_kv_rank(config));
    mla->d_kv_low = cut(cutter, rows * (size_t)config_kv_rank(config));
    mla->d_rope = cut(cutter, rows * (size_t)config_rope(config));
    mla->d_norm = cut(cutter, rows * c);
}

static void cut_mamba_gradients(struct cutter *cutter,
                                const struct config *config,
                                struct mamba_buffers *mamba)
{
    const size_t own = (size_t)config_rows(config);
    const size_t rows = own * (size_t)config_cp(config);
    const size_t inner = (size_t)config_inner(config);
    const size_t state = (size_t)config->state;

    mamba->d_xz = cut(cutter, rows * 2 * inner);
    mamba->d_y = cut(cutter, rows * inner);
    mamba->d_u = cut(cutter, rows * inner);
    mamba->d_dt = cut(cutter, rows * inner);
    mamba->d_dt_low = cut(cutter, rows * (size_t)config_dt_rank(config));
    mamba->d_bc = cut(cutter, rows * 2 * state);
    mamba->d_states = cut(cutter, rows * state * inner);
    mamba->d_norm = cut(cutter, own * (size_t)config->hidden);
    mamba->d_xz_own = config_cp(config) > 1 ? cut(cutter, own * 2 * inner)
                                            : NULL;
}

static void cut_router_gradients(struct cutter *cutter,
                                 const struct config *config,
                                 struct moe_buffers *moe)
{
    const size_t rows = (size_t)config_rows(config);

    moe->d_logits = cut(cutter, rows * (size_t)config->experts);
    if (config->shared_expert) {
        moe->d_shared = cut(cutter, rows * (size_t)config_expert(config));
    }
    moe->d_norm_sum = cut(cutter, rows * (size_t)config->hidden);
}

/* Cuts what the gradients of a part's weights are made from. */
static void cut_part_gradients(struct set *set, const struct model *model,
                               struct cutter *cutter, const struct part *part)
{
    const struct config *config = &model->config;
    const size_t rows = (size_t)config_rows(config);
    const size_t c = (size_t)config->hidden;
    struct attn_buffers *attn = &set->attn[part->layer];
    struct mlp_buffers *mlp = &set->mlp[part->layer];

    switch (part->kind) {
    case PART_ATTN:
        if (config->model == MODEL_MLA) {
            cut_mla_gradients(cutter, config, &set->mla[part->layer]);
        } else {
            attn->d_qkv = cut(cutter, rows * 3 * c);
            attn->d_norm = cut(cutter, rows * c);
        }
        break;
    case PART_MAMBA:
        cut_mamba_gradients(cutter, config, &set->mamba[part->layer]);
        break;
    case PART_MLP:
        mlp->d_wide = cut(cutter, rows * WIDEN * c);
        mlp->d_norm = cut(cutter, rows * c);
        break;
    case PART_MOE_ROUTER:
        cut_router_gradients(cutter, config, &set->moe[part->layer]);
        break;
    case PART_MOE_EXPERTS:
        set->moe[part->layer].d_wide =
            model->stash != NULL && !model->stash_counts
                ? model->stash->d_wide
                : cut(cutter, (size_t)config_room(config) *
                                  (size_t)config_expert(config));
        break;
    default: /* has no weights */
        break;
    }
}

void cut_gradients(struct set *set, const struct model *model,
                   struct cutter *cutter)
{
    const size_t first = cutter->used;
    size_t end = first;

    for (int i = 0; i < model->n_parts; i++) {
        size_t before;

        if (!model->delay_wgrad) {
            cutter->used = first;
        }
        before = cutter->used;
        cut_part_gradients(set, model, cutter, &model->parts[i]);
        if (model->delay_wgrad) {
            count_layer(cutter, model->parts[i].layer, before);
        }
        end = cutter->used > end ? cutter->used : end;
    }
    cutter->used = end;
}
