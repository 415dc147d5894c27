/*
 * buffers.c - cuts one allocation into a set's buffers.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "model/buffers.h"

#include "model/cutter.h"

#include <stdlib.h>
#include <string.h>

const char *const saved_names[SAVED_MODULES + 1] = {
    [SAVED_QKV_LINEAR] = "qkv_linear", [SAVED_CORE_ATTN] = "core_attn",
    [SAVED_ATTN_PROJ] = "attn_proj",   [SAVED_MLP_NORM] = "mlp_norm",
    [SAVED_EXPERT_FC1] = "expert_fc1", [SAVED_MOE_ACT] = "moe_act",
    [SAVED_MLP_FC1] = "mlp_fc1",       [SAVED_MLP_ACT] = "mlp_act",
    [SAVED_MAMBA_IN] = "mamba_in",     [SAVED_MAMBA_CONV] = "mamba_conv",
    [SAVED_MAMBA_SCAN] = "mamba_scan", [SAVED_MAMBA_OUT] = "mamba_out",
};

enum {
    SAVED_A_PART = 12 /* the most tensors that a part keeps */
};

/* What a part keeps for its backward.  It is in the set; if its module is
 * offloaded, each pass places it elsewhere. */
struct keeper {
    struct cutter *cutter;
    struct set *set;
    unsigned offload;
    int first, part; /* the part that writes it, and the part whose backward
                        reads it */
};

static void keep(const struct keeper *keeper, enum saved_module module,
                 float **at, size_t count)
{
    struct set *set = keeper->set;

    if ((keeper->offload & 1u << module) == 0) {
        *at = cut(keeper->cutter, count);
        return;
    }
    *at = NULL;
    if (keeper->cutter->base != NULL) {
        set->saved[set->n_saved++] = (struct saved){
            .module = module,
            .first = keeper->first,
            .last = keeper->part,
            .at = at,
            .bytes = count * sizeof(float),
        };
    }
}

static void cut_attn(const struct keeper *keeper, const struct config *config,
                     struct attn_buffers *attn)
{
    struct cutter *cutter = keeper->cutter;
    const size_t rows = (size_t)config_rows(config);
    const size_t c = (size_t)config->hidden;

    keep(keeper, SAVED_QKV_LINEAR, &attn->norm, rows * c);
    attn->mean = cut(cutter, rows);
    attn->rstd = cut(cutter, rows);
    keep(keeper, SAVED_CORE_ATTN, &attn->qkv, rows * 3 * c);
    keep(keeper, SAVED_CORE_ATTN, &attn->probs,
         rows * (size_t)config->heads * (size_t)config_keys(config));
    keep(keeper, SAVED_ATTN_PROJ, &attn->context, rows * c);
}

static void cut_mla(const struct keeper *keeper, const struct config *config,
                    struct mla_buffers *mla)
{
    struct cutter *cutter = keeper->cutter;
    const size_t rows = (size_t)config_rows(config);
    const size_t c = (size_t)config->hidden;
    const size_t qk = (size_t)config_qk(config);

    keep(keeper, SAVED_QKV_LINEAR, &mla->norm, rows * c);
    mla->mean = cut(cutter, rows);
    mla->rstd = cut(cutter, rows);
    keep(keeper, SAVED_QKV_LINEAR, &mla->q_low, rows * (size_t)config_q_rank(config));
    keep(keeper, SAVED_QKV_LINEAR, &mla->q_norm, rows * (size_t)config_q_rank(config));
    mla->q_mean = cut(cutter, rows);
    mla->q_rstd = cut(cutter, rows);
    keep(keeper, SAVED_QKV_LINEAR, &mla->kv_low, rows * (size_t)config_kv_rank(config));
    keep(keeper, SAVED_QKV_LINEAR, &mla->kv_norm, rows * (size_t)config_kv_rank(config));
    mla->kv_mean = cut(cutter, rows);
    mla->kv_rstd = cut(cutter, rows);
    mla->q_up = cut(cutter, rows * qk);
    keep(keeper, SAVED_CORE_ATTN, &mla->kv, rows * 2 * c);
    mla->rope = cut(cutter, rows * (size_t)config_rope(config));
    keep(keeper, SAVED_CORE_ATTN, &mla->q, rows * qk);
    keep(keeper, SAVED_CORE_ATTN, &mla->k, rows * qk);
    keep(keeper, SAVED_CORE_ATTN, &mla->probs,
         rows * (size_t)config->heads * (size_t)config_keys(config));
    keep(keeper, SAVED_ATTN_PROJ, &mla->context, rows * c);
}

static void cut_mamba(const struct keeper *keeper, const struct config *config,
                      struct mamba_buffers *mamba)
{
    struct cutter *cutter = keeper->cutter;
    const size_t own = (size_t)config_rows(config);
    const size_t rows = own * (size_t)config_cp(config);
    const size_t inner = (size_t)config_inner(config);
    const size_t state = (size_t)config->state;

    keep(keeper, SAVED_MAMBA_IN, &mamba->norm, own * (size_t)config->hidden);
    mamba->mean = cut(cutter, own);
    mamba->rstd = cut(cutter, own);
    keep(keeper, SAVED_MAMBA_CONV, &mamba->xz, rows * 2 * inner);
    keep(keeper, SAVED_MAMBA_CONV, &mamba->pre, rows * inner);
    keep(keeper, SAVED_MAMBA_SCAN, &mamba->u, rows * inner);
    keep(keeper, SAVED_MAMBA_SCAN, &mamba->dt_low, rows * (size_t)config_dt_rank(config));
    keep(keeper, SAVED_MAMBA_SCAN, &mamba->bc, rows * 2 * state);
    keep(keeper, SAVED_MAMBA_SCAN, &mamba->dt, rows * inner);
    keep(keeper, SAVED_MAMBA_SCAN, &mamba->states, rows * state * inner);
    keep(keeper, SAVED_MAMBA_OUT, &mamba->y, rows * inner);
    keep(keeper, SAVED_MAMBA_OUT, &mamba->gated, rows * inner);
}

static void cut_mlp(const struct keeper *keeper, const struct config *config,
                    struct mlp_buffers *mlp)
{
    struct cutter *cutter = keeper->cutter;
    const size_t rows = (size_t)config_rows(config);
    const size_t c = (size_t)config->hidden;

    keep(keeper, SAVED_MLP_FC1, &mlp->norm, rows * c);
    mlp->mean = cut(cutter, rows);
    mlp->rstd = cut(cutter, rows);
    keep(keeper, SAVED_MLP_ACT, &mlp->wide, rows * WIDEN * c);
    keep(keeper, SAVED_MLP_ACT, &mlp->gelu, rows * WIDEN * c);
}

/* `before` is the part before; NULL: the residual is not in this set. */
static void cut_router(struct cutter *cutter, const struct config *config,
                       struct moe_buffers *moe,
                       const struct part_buffers *before)
{
    const size_t rows = (size_t)config_rows(config);
    const size_t c = (size_t)config->hidden;
    const size_t choices = rows * (size_t)config->top_k;
    const size_t inner = (size_t)config_expert(config);

    moe->norm = cut(cutter, rows * c);
    moe->mean = cut(cutter, rows);
    moe->rstd = cut(cutter, rows);
    moe->scores = cut(cutter, rows * (size_t)config->experts);
    moe->choice = cut_ints(cutter, choices);
    moe->prob = cut(cutter, choices);
    if (config->shared_expert) {
        moe->shared_wide = cut(cutter, rows * inner);
        moe->shared_gelu = cut(cutter, rows * inner);
    }
    moe->base = config->shared_expert || before == NULL ? cut(cutter, rows * c)
                                                        : before->out;
}

/* Whether the stash keeps the experts' rows, and not the sets. */
static bool rows_are_shared(const struct model *model)
{
    return model->stash != NULL && !model->stash_counts;
}

/* Cuts what has a row for each token that comes to this rank's experts. */
static void cut_expert_rows(const struct keeper *keeper,
                            const struct model *model, struct moe_buffers *moe)
{
    struct cutter *cutter = keeper->cutter;
    const struct config *config = &model->config;
    const struct stash *stash = model->stash;
    const size_t c = (size_t)config->hidden;
    const size_t room = (size_t)config_room(config);
    const size_t inner = (size_t)config_expert(config);
    struct keeper dispatched = *keeper, experts = *keeper;

    dispatched.first = keeper->part + 1; /* the part after preprocess */
    dispatched.part = keeper->part + 2;
    experts.first = experts.part = keeper->part + 2;

    if (rows_are_shared(model)) {
        moe->dispatched = stash->dispatched;
        moe->wide = stash->wide;
        moe->gelu = stash->gelu;
        moe->expert_out = stash->expert_out;
        moe->d_expert_out = stash->d_expert_out;
        moe->d_dispatched = stash->d_dispatched;
        return;
    }
    keep(&dispatched, SAVED_EXPERT_FC1, &moe->dispatched, room * c);
    keep(&experts, SAVED_MOE_ACT, &moe->wide, room * inner);
    keep(&experts, SAVED_MOE_ACT, &moe->gelu, room * inner);
    moe->expert_out = cut(cutter, room * c);
    moe->d_expert_out = cut(cutter, room * c);
    moe->d_dispatched = cut(cutter, room * c);
}

static void cut_blocks(struct cutter *cutter, const struct config *config,
                       struct moe_buffers *moe)
{
    const size_t ranks = (size_t)config_ep(config);
    const size_t slots = (size_t)config_slots(config);

    moe->block_source = cut_ints(cutter, ranks * slots);
    moe->block_slot = cut_ints(cutter, slots);
    moe->rank_counts = cut_ints(cutter, (size_t)config->experts);
    moe->rank_first = cut_ints(cutter, (size_t)config->experts);
    moe->rank_rows = cut_ints(cutter, ranks);
}

static void cut_moe(const struct keeper *keeper, const struct model *model,
                    struct moe_buffers *moe)
{
    struct cutter *cutter = keeper->cutter;
    const struct config *config = &model->config;
    const size_t rows = (size_t)config_rows(config);
    const size_t c = (size_t)config->hidden;
    const size_t choices = rows * (size_t)config->top_k;
    const size_t slots = (size_t)config_slots(config);

    moe->counts = cut_ints(cutter, (size_t)config->experts);
    moe->first = cut_ints(cutter, (size_t)config->experts);
    moe->slot = cut_ints(cutter, choices);
    moe->source = cut_ints(cutter, slots);
    if (config_ep(config) > 1) {
        moe->all_counts = cut_ints(cutter, (size_t)config_ep(config) *
                                               (size_t)config->experts);
    }
    if (config_sync_free(config)) {
        cut_blocks(cutter, config, moe);
    }
    cut_expert_rows(keeper, model, moe);
    moe->combined = cut(cutter, choices * c);
    moe->d_prob = cut(cutter, choices);
    moe->d_combined = cut(cutter, choices * c);
    moe->d_norm = cut(cutter, rows * c);
}

/* Gives a part that ends in the residual stream its own hidden state.  If an
 * MLP follows in the layer, the MLP's norm keeps that state. */
static void cut_hidden(const struct keeper *keeper, const struct model *model,
                       struct part_buffers *buffers)
{
    const struct config *config = &model->config;
    const size_t n = (size_t)config_rows(config) * (size_t)config->hidden;
    const int next = keeper->part + 1;
    struct keeper norm = *keeper;

    if (next < model->n_parts && model->parts[next].kind == PART_MLP &&
        model->parts[next].layer == model->parts[keeper->part].layer) {
        norm.part = next;
        keep(&norm, SAVED_MLP_NORM, &buffers->out, n);
    } else {
        buffers->out = cut(keeper->cutter, n);
    }
    buffers->d_in = cut(keeper->cutter, n);
}

/* Also sets the second pointer of a saved tensor: what dispatch writes is its
 * output too. */
static void place_also(struct set *set, float **at, float **also)
{
    for (int i = 0; i < set->n_saved; i++) {
        if (set->saved[i].at == at) {
            set->saved[i].also = also;
        }
    }
}

void set_place_out(const struct set *set, int part, float *out)
{
    float **const at = &set->parts[part].out;

    for (int i = 0; i < set->n_saved; i++) {
        if (set->saved[i].at == at || set->saved[i].also == at) {
            saved_place(&set->saved[i], out);
        }
    }
}

static void cut_part(struct set *set, const struct model *model,
                     struct cutter *cutter, int i)
{
    const struct config *config = &model->config;
    const struct part *part = &model->parts[i];
    struct part_buffers *buffers = &set->parts[i];
    struct moe_buffers *moe = &set->moe[part->layer];
    const size_t n = (size_t)config_rows(config) * (size_t)config->hidden;
    const struct keeper keeper = { cutter, set, model->offload, i, i };

    switch (part->kind) {
    case PART_ATTN:
        if (config->model == MODEL_MLA) {
            cut_mla(&keeper, config, &set->mla[part->layer]);
        } else {
            cut_attn(&keeper, config, &set->attn[part->layer]);
        }
        cut_hidden(&keeper, model, buffers);
        break;
    case PART_MAMBA:
        cut_mamba(&keeper, config, &set->mamba[part->layer]);
        cut_hidden(&keeper, model, buffers);
        break;
    case PART_MLP:
        cut_mlp(&keeper, config, &set->mlp[part->layer]);
        cut_hidden(&keeper, model, buffers);
        break;
    case PART_MOE_ROUTER:
        cut_router(cutter, config, moe, i > 0 ? buffers - 1 : NULL);
        *buffers = (struct part_buffers){ moe->norm, cut(cutter, n) };
        break;
    case PART_MOE_PREPROCESS:
        cut_moe(&keeper, model, moe);
        *buffers = (struct part_buffers){ moe->norm, moe->d_norm };
        break;
    case PART_MOE_DISPATCH:
        *buffers = (struct part_buffers){ moe->dispatched, moe->d_norm };
        place_also(set, &moe->dispatched, &buffers->out);
        break;
    case PART_MOE_EXPERTS:
        *buffers = (struct part_buffers){ moe->expert_out, moe->d_dispatched };
        break;
    case PART_MOE_COMBINE:
        *buffers = (struct part_buffers){ moe->combined, moe->d_expert_out };
        break;
    case PART_MOE_POST:
        *buffers = (struct part_buffers){ cut(cutter, n), moe->d_combined };
        break;
    }
}

/* The gradient of what the experts' sum is added to is the gradient that post
 * is given.  The next part leaves it in the set, but the head does not, so then
 * it has memory of its own. */
static void cut_d_base(struct set *set, const struct model *model,
                       struct cutter *cutter)
{
    const struct config *config = &model->config;

    for (int i = 0; i < model->n_parts; i++) {
        struct moe_buffers *moe = &set->moe[model->parts[i].layer];

        if (model->parts[i].kind != PART_MOE_POST) {
            continue;
        }
        if (i + 1 < model->n_parts) {
            moe->d_base = set->parts[i + 1].d_in;
        } else {
            moe->d_base_own = cut(cutter, (size_t)config_rows(config) *
                                              (size_t)config->hidden);
            moe->d_base = moe->d_base_own;
        }
    }
}

static void cut_scratch(struct set *set, const struct config *config,
                        struct cutter *cutter)
{
    const size_t rows = (size_t)config_rows(config);

    if (config_has(config, PART_ATTN)) {
        set->d_probs = cut(cutter, rows * (size_t)config->heads *
                                       (size_t)config_keys(config));
    }
    if (config->model == MODEL_MLA) {
        set->d_q = cut(cutter, rows * (size_t)config_qk(config));
        set->d_k = cut(cutter, rows * (size_t)config_qk(config));
    }
    if (config_has(config, PART_MAMBA)) {
        set->d_gated = cut(cutter, rows * (size_t)config_cp(config) *
                                   (size_t)config_inner(config));
    }
}

static void cut_keys(struct cp_buffers *buffers, const struct config *config,
                     struct cutter *cutter)
{
    const size_t rows = (size_t)config_rows(config);
    const size_t cp = (size_t)config_cp(config);
    const size_t v = rows * (size_t)config->hidden;
    const size_t k = config->model == MODEL_MLA
                         ? rows * (size_t)config_qk(config)
                         : v;

    buffers->own_k = cut(cutter, k);
    buffers->own_v = cut(cutter, v);
    buffers->all_k = cut(cutter, cp * k);
    buffers->all_v = cut(cutter, cp * v);
    buffers->all_dk = cut(cutter, cp * k);
    buffers->all_dv = cut(cutter, cp * v);
}

static void cut_cp(struct set *set, const struct config *config,
                   struct cutter *cutter)
{
    struct cp_buffers *buffers = &set->cp;
    const size_t rows = (size_t)config_rows(config);
    const size_t cp = (size_t)config_cp(config);

    if (cp == 1) {
        return;
    }
    buffers->places = cut_ints(cutter, rows);
    buffers->keys = cut_ints(cutter, cp * rows);
    if (config_has(config, PART_ATTN)) {
        cut_keys(buffers, config, cutter);
    }
    if (config_has(config, PART_MAMBA)) {
        const size_t xz = rows * 2 * (size_t)config_inner(config);

        buffers->all_starts = cut_ints(cutter, cp * rows);
        buffers->own_rows = cut(cutter, xz);
        buffers->all_rows = cut(cutter, cp * xz);
    }
}

static void cut_exchange(struct set *set, const struct config *config,
                         struct cutter *cutter)
{
    const size_t n = (size_t)(config_sync_free(config) ? config_room(config)
                                                       : config_slots(config)) *
                     (size_t)config->hidden;

    if (config_ep(config) > 1) {
        set->exchange.out = cut(cutter, n);
        set->exchange.back = cut(cutter, n);
    }
}

static void cut_all(struct set *set, const struct model *model,
                    struct cutter *cutter)
{
    const struct config *config = &model->config;
    const size_t rows = (size_t)config_rows(config);
    const size_t c = (size_t)config->hidden;

    for (int i = 0; i < model->n_parts; i++) {
        const size_t before = cutter->used;

        cut_part(set, model, cutter, i);
        count_layer(cutter, model->parts[i].layer, before);
    }
    cut_d_base(set, model, cutter);
    set->starts = config->documents > 0 ? cut_ints(cutter, rows) : NULL;
    if (model->folds_embedding) {
        set->x = cut(cutter, rows * c);
    }
    if (model->folds_head) {
        set->d_head = cut(cutter, rows * c);
        set->loss = cut(cutter, 1);
    }
    if (model->heads) {
        set->norm = cut(cutter, rows * c);
        set->mean = cut(cutter, rows);
        set->rstd = cut(cutter, rows);
        set->logits = cut(cutter, rows * VOCAB);
        set->losses = cut(cutter, rows);
        set->d_norm = cut(cutter, rows * c);
    }
    cut_gradients(set, model, cutter);
    cut_scratch(set, config, cutter);
    cut_cp(set, config, cutter);
    cut_exchange(set, config, cutter);
}

static int init_host_counts(struct set *set, const struct model *model)
{
    const struct config *config = &model->config;
    const size_t experts =
        (size_t)config_ep(config) * (size_t)config->experts;

    if (!config_counts_on_host(config)) {
        return 0;
    }
    set->counts_host = device_alloc_host(set->dev, (size_t)config->layers *
                                                       experts * sizeof(int));
    if (set->counts_host == NULL) {
        return -1;
    }
    for (int i = 0; i < config->layers; i++) {
        set->moe[i].counts_host = set->counts_host + (size_t)i * experts;
    }
    return 0;
}

/* Adds an entry for each run of rows of a layer. */
static int add_layer(struct set *set, const struct model *model,
                     const uint32_t **entries_p)
{
    const int n = config_blocks(&model->config);

    *entries_p = set->entries + set->n_entries;
    set->stash = model->stash;
    for (int i = 0; i < n; i++) {
        if (model->stash->add(model->stash->user,
                              config_room(&model->config) / n,
                              &set->entries[set->n_entries]) != 0) {
            return -1;
        }
        set->n_entries++;
    }
    return 0;
}

/* Gives each layer with experts its entries of the stash. */
static int add_entries(struct set *set, const struct model *model)
{
    for (int i = 0; model->stash != NULL && i < model->n_parts; i++) {
        struct moe_buffers *moe = &set->moe[model->parts[i].layer];

        if (model->parts[i].kind == PART_MOE_EXPERTS &&
            (add_layer(set, model, &moe->entries) != 0 ||
             (model->delay_wgrad && add_layer(set, model, &moe->later) != 0))) {
            return -1;
        }
    }
    return 0;
}

/* Makes the lists of pointers.  Returns -1 when memory ran out. */
static int make_lists(struct set *set, const struct model *model)
{
    const size_t layers = (size_t)model->config.layers;

    memset(set, 0, sizeof(*set));
    set->parts = calloc((size_t)model->n_parts, sizeof(*set->parts));
    set->attn = calloc(layers, sizeof(*set->attn));
    set->mlp = calloc(layers, sizeof(*set->mlp));
    set->mla = calloc(layers, sizeof(*set->mla));
    set->moe = calloc(layers, sizeof(*set->moe));
    set->mamba = calloc(layers, sizeof(*set->mamba));
    set->saved = calloc((size_t)model->n_parts * SAVED_A_PART,
                        sizeof(*set->saved));
    set->entries = calloc(2 * layers * (size_t)config_blocks(&model->config),
                          sizeof(*set->entries));
    return set->saved == NULL || set->entries == NULL || set->parts == NULL ||
                   set->attn == NULL || set->mlp == NULL || set->mla == NULL ||
                   set->moe == NULL || set->mamba == NULL
               ? -1
               : 0;
}

/* Runs the cutting without memory, to find the sizes of what is kept. */
int set_measure_saved(const struct model *view, size_t **bytes_p)
{
    struct cutter cutter = { .base = (char *)(uintptr_t)256 };
    struct set set;
    int result = make_lists(&set, view);

    *bytes_p = NULL;
    if (result == 0) {
        cut_all(&set, view, &cutter);
        *bytes_p = calloc((size_t)set.n_saved + 1, sizeof(**bytes_p));
    }
    for (int i = 0; *bytes_p != NULL && i < set.n_saved; i++) {
        (*bytes_p)[i] = set.saved[i].bytes;
    }
    set_free(&set);
    return *bytes_p != NULL ? 0 : -1;
}

/* The bytes of a set, perhaps without the embedding's and the head's. */
static size_t measure(const struct model *model, bool embeds, bool heads,
                      size_t *layers)
{
    struct cutter cutter = { .layers = layers };
    struct model part = *model;
    struct set set;

    part.embeds = model->embeds && embeds;
    part.heads = model->heads && heads;
    part.folds_embedding = model->folds_embedding && part.embeds;
    part.folds_head = model->folds_head && part.heads;
    if (make_lists(&set, &part) == 0) {
        cut_all(&set, &part, &cutter);
    }
    set_free(&set);
    return cutter.used;
}

int set_measure(const struct model *model, struct set_bytes *bytes)
{
    const size_t all = measure(model, true, true, NULL);
    const size_t headless = measure(model, true, false, NULL);

    *bytes = (struct set_bytes){ 0 };
    bytes->layers =
        calloc((size_t)model->config.layers, sizeof(*bytes->layers));
    if (bytes->layers == NULL || all == 0) {
        free(bytes->layers);
        return -1;
    }
    bytes->rest = measure(model, false, false, bytes->layers);
    bytes->head = all - headless;
    bytes->embedding = headless - bytes->rest;
    for (int i = 0; i < model->config.layers; i++) {
        bytes->rest -= bytes->layers[i];
    }
    return 0;
}

int set_init(struct set *set, const struct model *model, struct device *dev)
{
    struct cutter cutter = { 0 };
    const int made = make_lists(set, model);

    set->dev = dev;
    if (made != 0) {
        set_free(set);
        return device_check(dev, "malloc", CUDA_ERROR_OUT_OF_MEMORY);
    }

    cut_all(set, model, &cutter);
    set->bytes = cutter.used;
    set->memory = device_alloc(dev, cutter.used);
    if (set->memory == NULL || init_host_counts(set, model) != 0 ||
        add_entries(set, model) != 0) {
        set_free(set);
        return -1;
    }
    cutter = (struct cutter){ .base = set->memory };
    cut_all(set, model, &cutter);
    return 0;
}

void set_free(struct set *set)
{
    for (int i = 0; i < set->n_entries; i++) {
        set->stash->remove(set->stash->user, set->entries[i]);
    }
    free(set->entries);
    if (set->dev != NULL) {
        device_free(set->dev, set->memory);
        device_free_host(set->dev, set->counts_host);
    }
    free(set->parts);
    free(set->attn);
    free(set->mlp);
    free(set->mla);
    free(set->moe);
    free(set->mamba);
    free(set->saved);
    memset(set, 0, sizeof(*set));
}
