/*
 * cp_attention.c - see cp_attention.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "model/cp_attention.h"

/* ---- blocks that travel -------------------------------------------------- */

/* Keys or values of all ranks, in blocks of one rank each. */
struct blocks {
    const struct work *work;
    float *memory;     /* of all blocks, or two that take turns */
    const float *here; /* in a ring: the block that is here */
    size_t count;      /* elements of one block */
};

/* Gradients of the blocks, which are summed on the way. */
struct sums {
    const struct work *work;
    float *memory, *here;
    size_t count;
};

static int ranks_of(const struct work *work)
{
    return config_cp(&work->model->config);
}

/* The rank whose block is the s-th. */
static int owner(const struct work *work, int s)
{
    const int n = ranks_of(work);

    return work->ring ? (work->comm->rank - s + n) % n : s;
}

static float *other(float *memory, const float *here, size_t count)
{
    return here == memory ? memory + count : memory;
}

static struct blocks blocks_open(const struct work *work, const float *own,
                                 float *memory, size_t count)
{
    if (!work->ring) {
        comm_gather(work->comm, own, memory, count, work->queue.stream);
    }
    return (struct blocks){
        .work = work, .memory = memory, .here = own, .count = count
    };
}

static const float *blocks_at(const struct blocks *blocks, int s)
{
    return blocks->work->ring ? blocks->here
                              : blocks->memory + (size_t)s * blocks->count;
}

/* Called after the s-th block was used. */
static void blocks_move(struct blocks *blocks, int s)
{
    const struct work *work = blocks->work;
    float *next = other(blocks->memory, blocks->here, blocks->count);

    if (work->ring && s + 1 < ranks_of(work)) {
        comm_pass_on(work->comm, blocks->here, next, blocks->count,
                     work->queue.stream);
        blocks->here = next;
    }
}

static struct sums sums_open(const struct work *work, float *memory,
                             size_t count)
{
    return (struct sums){
        .work = work, .memory = memory, .here = memory, .count = count
    };
}

static float *sums_at(const struct sums *sums, int s)
{
    return sums->work->ring ? sums->here
                            : sums->memory + (size_t)s * sums->count;
}

/* In a ring the first rank that has a block begins its sum; the others add. */
static bool sums_add(const struct sums *sums, int s)
{
    return sums->work->ring && s > 0;
}

/* Called after each block.  The last move takes the sums home. */
static void sums_move(struct sums *sums)
{
    const struct work *work = sums->work;
    float *next = other(sums->memory, sums->here, sums->count);

    if (work->ring) {
        comm_pass_on(work->comm, sums->here, next, sums->count,
                     work->queue.stream);
        sums->here = next;
    }
}

/* The sum of this rank's own block over all ranks. */
static const float *sums_close(const struct sums *sums, float *own)
{
    if (sums->work->ring) {
        return sums->here;
    }
    comm_scatter(sums->work->comm, sums->memory, own, sums->count,
                 sums->work->queue.stream);
    return own;
}

/* ---- strips -------------------------------------------------------------- */

static int strip_width(const struct strip *strip)
{
    return strip->pieces * strip->cols;
}

static size_t strip_count(const struct work *work, const struct strip *strip)
{
    return (size_t)config_rows(&work->model->config) *
           (size_t)strip_width(strip);
}

static void copy_columns(const struct work *work, const float *x, int ldx,
                         float *y, int ldy, const struct strip *strip)
{
    const int rows = config_rows(&work->model->config) * strip->pieces;

    LAUNCH(&work->queue, columns_copy, columns_args,
           blocks_of((size_t)rows * (size_t)strip->cols, columns_copy_threads),
           .x = x, .y = y, .rows = rows, .cols = strip->cols, .ldx = ldx,
           .ldy = ldy);
}

static void pack(const struct work *work, const struct strip *strip, float *to)
{
    copy_columns(work, strip->data, strip->ld, to, strip->cols, strip);
}

static void unpack(const struct work *work, const float *from,
                   const struct strip *strip)
{
    copy_columns(work, from, strip->cols, strip->data, strip->ld, strip);
}

/* ---- scores -------------------------------------------------------------- */

/* The columns for one rank's keys. */
static struct view scores_of(const struct work *work, const float *scores,
                             int rank)
{
    const struct config *config = &work->model->config;
    const int keys = config_keys(config);

    return (struct view){ .data = scores + rank * config->seq,
                          .ld = keys,
                          .outer = config->heads * config->seq * keys,
                          .inner = config->seq * keys };
}

static struct view block_view(const struct work *work, const float *block,
                              const struct strip *strip, int head)
{
    return view_of(&work->model->config, block, strip_width(strip), head);
}

void cp_attention_order(const struct work *work)
{
    const struct config *config = &work->model->config;
    const struct cp_buffers *buffers = &work->set->cp;
    const int rows = config_rows(config);
    const int cp = config_cp(config);

    LAUNCH(&work->queue, cp_places, cp_places_args,
           blocks_of((size_t)cp * (size_t)rows, cp_places_threads),
           .offsets = work->offsets, .places = buffers->places,
           .starts = work->set->starts, .keys = buffers->keys,
           .n = config_offsets(config), .rows = rows, .cp = cp,
           .rank = work->comm->rank);
    if (buffers->all_starts != NULL) {
        LAUNCH(&work->queue, document_starts, document_args,
               blocks_of((size_t)cp * (size_t)rows, document_starts_threads),
               .offsets = work->offsets, .starts = buffers->all_starts,
               .n = config_offsets(config), .rows = cp * rows);
    }
}

void cp_gather_rows(const struct work *work, const float *own, int cols,
                    float *all)
{
    const struct config *config = &work->model->config;
    const struct cp_buffers *buffers = &work->set->cp;
    const size_t count = (size_t)config_rows(config) * (size_t)cols;
    const int rows = config_rows(config) * config_cp(config);

    comm_gather(work->comm, own, buffers->all_rows, count, work->queue.stream);
    LAUNCH(&work->queue, rows_place, rows_args,
           blocks_of((size_t)rows * (size_t)cols, rows_place_threads),
           .x = buffers->all_rows, .places = buffers->keys, .y = all,
           .rows = rows, .cols = cols);
}

void cp_take_rows(const struct work *work, const float *all, int cols,
                  float *own)
{
    const struct config *config = &work->model->config;
    const int rows = config_rows(config);

    LAUNCH(&work->queue, rows_take, rows_take_args,
           blocks_of((size_t)rows * (size_t)cols, rows_take_threads), .x = all,
           .places = work->set->cp.places, .y = own, .rows = rows,
           .cols = cols, .all = rows * config_cp(config));
}

void cp_attention_forward(const struct work *work,
                          const struct cp_attention *cp,
                          struct view context)
{
    const struct config *config = &work->model->config;
    const struct cp_buffers *buffers = &work->set->cp;
    const int rows = config_rows(config) * config->heads;
    const int n = config_cp(config);
    struct blocks k, v;

    pack(work, &cp->k, buffers->own_k);
    k = blocks_open(work, buffers->own_k, buffers->all_k,
                    strip_count(work, &cp->k));
    for (int s = 0; s < n; s++) {
        heads_product(
            work, GEMM_NT, config->seq, cp->head_k, GEMM_FULL,
            cp->scale, cp->q,
            block_view(work, blocks_at(&k, s), &cp->k, cp->head_k),
            scores_of(work, cp->probs, owner(work, s)));
        blocks_move(&k, s);
    }

    LAUNCH(&work->queue, cp_softmax_forward, cp_softmax_args,
           blocks_of((size_t)rows, ROWS_A_BLOCK), .s = cp->probs,
           .places = buffers->places, .starts = work_starts(work),
           .keys = buffers->keys, .rows = rows, .seq = config->seq,
           .heads = config->heads, .cols = config_keys(config));

    pack(work, &cp->v, buffers->own_v);
    v = blocks_open(work, buffers->own_v, buffers->all_v,
                    strip_count(work, &cp->v));
    for (int s = 0; s < n; s++) {
        heads_product_sum(
            work, GEMM_NN, cp->head_v, config->seq, s > 0,
            scores_of(work, cp->probs, owner(work, s)),
            block_view(work, blocks_at(&v, s), &cp->v, cp->head_v),
            context);
        blocks_move(&v, s);
    }
}

/* Gradients of the scores, before the softmax, and of the values. */
static void scores_backward(const struct work *work,
                            const struct cp_attention *cp,
                            struct view d_context, struct strip dv)
{
    const struct config *config = &work->model->config;
    const struct cp_buffers *buffers = &work->set->cp;
    const size_t count = strip_count(work, &cp->v);
    struct sums sums = sums_open(work, buffers->all_dv, count);
    struct blocks v;

    pack(work, &cp->v, buffers->own_v);
    v = blocks_open(work, buffers->own_v, buffers->all_v, count);
    for (int s = 0; s < config_cp(config); s++) {
        const int from = owner(work, s);

        heads_product(
            work, GEMM_NT, config->seq, cp->head_v, GEMM_FULL, 1.0f,
            d_context,
            block_view(work, blocks_at(&v, s), &cp->v, cp->head_v),
            scores_of(work, work->set->d_probs, from));
        heads_product_sum(
            work, GEMM_TN, cp->head_v, config->seq, sums_add(&sums, s),
            scores_of(work, cp->probs, from), d_context,
            block_view(work, sums_at(&sums, s), &cp->v, cp->head_v));
        blocks_move(&v, s);
        sums_move(&sums);
    }
    unpack(work, sums_close(&sums, buffers->own_v), &dv);
}

/* Gradients of the queries and the keys. */
static void keys_backward(const struct work *work,
                          const struct cp_attention *cp, struct view dq,
                          struct strip dk)
{
    const struct config *config = &work->model->config;
    const struct cp_buffers *buffers = &work->set->cp;
    const size_t count = strip_count(work, &cp->k);
    struct sums sums = sums_open(work, buffers->all_dk, count);
    struct blocks k;

    pack(work, &cp->k, buffers->own_k);
    k = blocks_open(work, buffers->own_k, buffers->all_k, count);
    for (int s = 0; s < config_cp(config); s++) {
        const struct view d_scores =
            scores_of(work, work->set->d_probs, owner(work, s));

        heads_product_sum(
            work, GEMM_NN, cp->head_k, config->seq, s > 0, d_scores,
            block_view(work, blocks_at(&k, s), &cp->k, cp->head_k), dq);
        heads_product_sum(
            work, GEMM_TN, cp->head_k, config->seq, sums_add(&sums, s),
            d_scores, cp->q,
            block_view(work, sums_at(&sums, s), &cp->k, cp->head_k));
        blocks_move(&k, s);
        sums_move(&sums);
    }
    unpack(work, sums_close(&sums, buffers->own_k), &dk);
}

void cp_attention_backward(const struct work *work,
                           const struct cp_attention *cp,
                           struct view d_context, struct view dq,
                           struct strip dk, struct strip dv)
{
    const struct config *config = &work->model->config;
    const int rows = config_rows(config) * config->heads;

    scores_backward(work, cp, d_context, dv);
    LAUNCH(&work->queue, cp_softmax_backward, cp_softmax_backward_args,
           blocks_of((size_t)rows, ROWS_A_BLOCK), .p = cp->probs,
           .dp = work->set->d_probs, .rows = rows, .cols = config_keys(config),
           .scale = cp->scale);
    keys_backward(work, cp, dq, dk);
}
