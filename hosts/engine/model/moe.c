/*
 * moe.c - the parts of a mixture of experts, forward and backward.
 *
 * A dropless layer on one rank has a slot for every choice, so buffers have
 * the same size whatever the tokens choose, and only the experts' shares vary.
 * The kernels read the shares from the device; with dropless_host the host
 * reads them.  dispatch.c brings rows to the experts, also to those of other
 * ranks.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "model/dispatch.h"
#include "model/linear.h"

/* ---- forward ------------------------------------------------------------ */

static void shared_forward(const struct work *work,
                           const struct moe_weights *weights,
                           const struct moe_buffers *buffers, const float *x)
{
    const struct config *config = &work->model->config;
    const int c = config->hidden;
    const int inner = config_expert(config);
    const size_t rows = (size_t)config_rows(config);

    linear_forward(work, buffers->norm, c, weights->shared_up, NO_BIAS, NULL,
                   buffers->shared_wide, inner);
    gelu_forward(work, buffers->shared_wide, buffers->shared_gelu,
                 rows * (size_t)inner);
    linear_forward(work, buffers->shared_gelu, inner, weights->shared_down,
                   NO_BIAS, x, buffers->base, c);
}

static void router_forward(const struct work *work,
                           const struct moe_weights *weights,
                           const struct moe_buffers *buffers, const float *x)
{
    const struct config *config = &work->model->config;
    const int rows = config_rows(config);

    norm_forward(work, x, work->model->config.hidden, weights->norm_g,
                 weights->norm_b, buffers->norm, buffers->mean, buffers->rstd);
    linear_forward(work, buffers->norm, config->hidden, weights->router_w,
                   NO_BIAS, NULL, buffers->scores, config->experts);
    LAUNCH(&work->queue, moe_route_forward, moe_route_args,
           blocks_of((size_t)rows, moe_route_forward_threads),
           .scores = buffers->scores, .choice = buffers->choice,
           .prob = buffers->prob, .rows = rows, .experts = config->experts,
           .top = config->top_k);
    if (config->shared_expert) {
        shared_forward(work, weights, buffers, x);
    } else if (buffers->base != x) {
        /* This is the model's first part, so its input is not in the set. */
        LAUNCH(&work->queue, copy, copy_args,
               blocks_of((size_t)(rows * config->hidden), copy_threads), .x = x,
               .y = buffers->base, .n = rows * config->hidden);
    }
}

static void preprocess_forward(const struct work *work,
                               const struct moe_buffers *buffers)
{
    const struct config *config = &work->model->config;

    LAUNCH(&work->queue, moe_place, moe_place_args, config->experts,
           .choice = buffers->choice, .counts = buffers->counts,
           .first = buffers->first, .slot = buffers->slot,
           .source = buffers->source, .n = config_rows(config) * config->top_k,
           .experts = config->experts,
           .capacity = config->drop_and_pad ? config_capacity(config) : 0,
           .slots = config_slots(config));
}

/* The activation of all rows, or of those that the device knows to be there. */
static void experts_gelu(const struct work *work,
                         const struct moe_buffers *buffers, bool forward)
{
    const struct config *config = &work->model->config;
    const int n = config_blocks(config), inner = config_expert(config);
    const int rows = dispatch_all_rows(work, buffers) / n;
    const int count = rows * inner;

    for (int i = 0; i < n && count > 0; i++) {
        const size_t at = (size_t)i * (size_t)count;
        const int *here =
            config_sync_free(config) ? buffers->rank_rows + i : NULL;

        if (forward) {
            LAUNCH(&work->queue, gelu_forward, gelu_args,
                   blocks_of((size_t)count, gelu_forward_threads),
                   .x = buffers->wide + at, .y = buffers->gelu + at,
                   .rows = here, .cols = inner, .n = count);
        } else {
            LAUNCH(&work->queue, gelu_backward, gelu_backward_args,
                   blocks_of((size_t)count, gelu_backward_threads),
                   .x = buffers->wide + at, .d = buffers->d_wide + at,
                   .rows = here, .cols = inner, .n = count);
        }
    }
}

static void experts_forward(const struct work *work,
                            const struct moe_weights *weights,
                            const struct moe_buffers *buffers)
{
    const struct model *model = work->model;
    const int c = model->config.hidden;
    const int inner = config_expert(&model->config);

    experts_product(work, buffers,
                    &(const struct product){ .form = GEMM_NN,
                                             .a = buffers->dispatched,
                                             .b = model->w + weights->up_w,
                                             .c = buffers->wide,
                                             .n = inner,
                                             .k = c });
    dispatch_clear(work, buffers, SAVED_MOE_ACT, buffers->wide, inner);
    dispatch_clear(work, buffers, SAVED_MOE_ACT, buffers->gelu, inner);
    experts_gelu(work, buffers, true);
    experts_product(work, buffers,
                    &(const struct product){ .form = GEMM_NN,
                                             .a = buffers->gelu,
                                             .b = model->w + weights->down_w,
                                             .c = buffers->expert_out,
                                             .n = c,
                                             .k = inner });
}

/* The rows of a run that the stash has to keep. */
static const int *count_rows(const struct work *work,
                             const struct moe_buffers *buffers, int run)
{
    const struct config *config = &work->model->config;
    int *count = work->model->stash->count;
    const int rows = dispatch_all_rows(work, buffers);

    if (config_sync_free(config)) {
        return buffers->rank_rows + run;
    }
    if (rows == work->model->stash->room) {
        return NULL;
    }
    DEVICE_CALL(work->queue.dev, cuMemsetD32Async, device_address(count),
                (unsigned)rows, 1, work->queue.stream);
    return count;
}

/* Pushes what the next pass of these parts reads, or pops it: of the backward,
 * or, if `wgrad`, of the weights' gradients. */
static void stash_rows(const struct work *work,
                       const struct moe_buffers *buffers, bool wgrad,
                       bool pushes)
{
    const struct config *config = &work->model->config;
    const struct stash *stash = work->stashes ? work->model->stash : NULL;
    const int c = config->hidden, inner = config_expert(config);
    const int n = stash != NULL ? config_blocks(config) : 0;

    for (int i = 0; i < n; i++) {
        const size_t at = (size_t)i * (size_t)(config_room(config) / n);
        const size_t wide = at * (size_t)inner;
        const struct stash_move move = {
            .entry = (wgrad ? buffers->later : buffers->entries)[i],
            .pushes = pushes,
            .n = wgrad ? 4 : 3,
            .tensors = { { buffers->dispatched + at * (size_t)c, c },
                         { buffers->gelu + wide, inner },
                         { (wgrad ? buffers->d_wide : buffers->wide) + wide,
                           inner },
                         { buffers->d_expert_out + at * (size_t)c, c } },
            .count = pushes ? count_rows(work, buffers, i) : NULL,
            .stream = work->queue.stream,
        };

        stash->move(stash->user, &move);
    }
}

static void post_forward(const struct work *work,
                         const struct moe_buffers *buffers, float *out)
{
    const struct config *config = &work->model->config;
    const int rows = config_rows(config);

    LAUNCH(&work->queue, moe_post_forward, moe_post_args,
           blocks_of((size_t)(rows * config->hidden), moe_post_forward_threads),
           .x = buffers->combined, .prob = buffers->prob, .base = buffers->base,
           .out = out, .rows = rows, .cols = config->hidden,
           .top = config->top_k);
}

void moe_forward(const struct work *work, const struct part *part,
                 const float *x, float *out)
{
    const struct moe_weights *weights = &work->model->moe[part->layer];
    const struct moe_buffers *buffers = &work->set->moe[part->layer];

    switch (part->kind) {
    case PART_MOE_ROUTER:
        router_forward(work, weights, buffers, x);
        break;
    case PART_MOE_PREPROCESS:
        preprocess_forward(work, buffers);
        break;
    case PART_MOE_DISPATCH:
        dispatch_forward(work, buffers);
        break;
    case PART_MOE_EXPERTS:
        experts_forward(work, weights, buffers);
        stash_rows(work, buffers, false, true);
        break;
    case PART_MOE_COMBINE:
        combine_forward(work, buffers);
        break;
    default:
        post_forward(work, buffers, out);
        break;
    }
}

/* ---- backward ----------------------------------------------------------- */

static void post_backward(const struct work *work,
                          const struct moe_buffers *buffers, const float *dy)
{
    const struct config *config = &work->model->config;
    const int rows = config_rows(config);

    LAUNCH(&work->queue, moe_post_backward, moe_post_backward_args,
           blocks_of((size_t)rows, ROWS_A_BLOCK), .dy = dy,
           .x = buffers->combined, .prob = buffers->prob,
           .dx = buffers->d_combined, .d_prob = buffers->d_prob,
           .d_base = buffers->d_base_own, .rows = rows, .cols = config->hidden,
           .top = config->top_k);
}

static void experts_dgrad(const struct work *work,
                          const struct moe_weights *weights,
                          const struct moe_buffers *buffers)
{
    const struct model *model = work->model;
    const int c = model->config.hidden;
    const int inner = config_expert(&model->config);

    experts_product(work, buffers,
                    &(const struct product){ .form = GEMM_NT,
                                             .a = buffers->d_expert_out,
                                             .b = model->w + weights->down_w,
                                             .c = buffers->d_wide,
                                             .n = inner,
                                             .k = c });
    experts_gelu(work, buffers, false);
    experts_product(work, buffers,
                    &(const struct product){ .form = GEMM_NT,
                                             .a = buffers->d_wide,
                                             .b = model->w + weights->up_w,
                                             .c = buffers->d_dispatched,
                                             .n = c,
                                             .k = inner });
}

static void experts_wgrad(const struct work *work,
                          const struct moe_weights *weights,
                          const struct moe_buffers *buffers)
{
    const struct model *model = work->model;
    const int c = model->config.hidden;
    const int inner = config_expert(&model->config);

    experts_product(work, buffers,
                    &(const struct product){ .form = GEMM_TN,
                                             .a = buffers->gelu,
                                             .b = buffers->d_expert_out,
                                             .c = model->g + weights->down_w,
                                             .m = inner,
                                             .n = c });
    experts_product(work, buffers,
                    &(const struct product){ .form = GEMM_TN,
                                             .a = buffers->dispatched,
                                             .b = buffers->d_wide,
                                             .c = model->g + weights->up_w,
                                             .m = c,
                                             .n = inner });
}

/* Adds to the gradient of the norm's output. */
static void shared_dgrad(const struct work *work,
                         const struct moe_weights *weights,
                         const struct moe_buffers *buffers)
{
    const struct config *config = &work->model->config;
    const int c = config->hidden;
    const int inner = config_expert(config);
    const size_t rows = (size_t)config_rows(config);

    linear_dgrad(work, buffers->d_base, c, weights->shared_down, NULL,
                 buffers->d_shared, inner);
    gelu_backward(work, buffers->shared_wide, buffers->d_shared,
                  rows * (size_t)inner);
    linear_dgrad(work, buffers->d_shared, inner, weights->shared_up,
                 buffers->d_norm_sum, buffers->d_norm_sum, c);
}

static void router_dgrad(const struct work *work,
                         const struct moe_weights *weights,
                         const struct moe_buffers *buffers, const float *x,
                         float *dx)
{
    const struct config *config = &work->model->config;
    const int c = config->hidden;
    const int rows = config_rows(config);

    LAUNCH(&work->queue, moe_route_backward, moe_route_backward_args,
           blocks_of((size_t)rows, moe_route_backward_threads),
           .scores = buffers->scores, .choice = buffers->choice,
           .d_prob = buffers->d_prob, .d_logits = buffers->d_logits,
           .rows = rows, .experts = config->experts, .top = config->top_k);
    linear_dgrad(work, buffers->d_logits, config->experts, weights->router_w,
                 buffers->d_norm, buffers->d_norm_sum, c);
    if (config->shared_expert) {
        shared_dgrad(work, weights, buffers);
    }
    norm_dgrad(work, buffers->d_norm_sum, x, c, weights->norm_g, buffers->mean,
               buffers->rstd, buffers->d_base, dx);
}

static void router_wgrad(const struct work *work,
                         const struct moe_weights *weights,
                         const struct moe_buffers *buffers, const float *x)
{
    const struct config *config = &work->model->config;
    const int c = config->hidden;
    const int inner = config_expert(config);

    linear_wgrad(work, buffers->norm, c, buffers->d_logits, config->experts,
                 weights->router_w, NO_BIAS);
    if (config->shared_expert) {
        linear_wgrad(work, buffers->shared_gelu, inner, buffers->d_base, c,
                     weights->shared_down, NO_BIAS);
        linear_wgrad(work, buffers->norm, c, buffers->d_shared, inner,
                     weights->shared_up, NO_BIAS);
    }
    norm_wgrad(work, buffers->d_norm_sum, x, c, weights->norm_g,
               weights->norm_b, buffers->mean, buffers->rstd);
}

void moe_dgrad(const struct work *work, const struct part *part, const float *x,
               const float *dy, float *dx)
{
    const struct moe_weights *weights = &work->model->moe[part->layer];
    const struct moe_buffers *buffers = &work->set->moe[part->layer];

    switch (part->kind) {
    case PART_MOE_ROUTER:
        router_dgrad(work, weights, buffers, x, dx);
        break;
    case PART_MOE_PREPROCESS: /* integers have no gradient */
        break;
    case PART_MOE_DISPATCH:
        dispatch_backward(work, buffers);
        break;
    case PART_MOE_EXPERTS:
        stash_rows(work, buffers, false, false);
        experts_dgrad(work, weights, buffers);
        if (work->model->delay_wgrad) {
            stash_rows(work, buffers, true, true);
        }
        break;
    case PART_MOE_COMBINE:
        combine_backward(work, buffers);
        break;
    default:
        post_backward(work, buffers, dy);
        break;
    }
}

void moe_wgrad(const struct work *work, const struct part *part, const float *x)
{
    const struct moe_weights *weights = &work->model->moe[part->layer];
    const struct moe_buffers *buffers = &work->set->moe[part->layer];

    switch (part->kind) {
    case PART_MOE_ROUTER:
        router_wgrad(work, weights, buffers, x);
        break;
    case PART_MOE_EXPERTS:
        if (work->model->delay_wgrad) {
            stash_rows(work, buffers, true, false);
        }
        experts_wgrad(work, weights, buffers);
        break;
    default: /* moves tokens and has no weights */
        break;
    }
}
