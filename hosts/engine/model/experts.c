/*
 * experts.c - matrix products of all experts of a layer.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "model/dispatch.h"
#include "model/linear.h"

static struct gemm_args args_of(const struct product *product)
{
    const bool sum = product->form == GEMM_TN;

    return (struct gemm_args){
        .a = product->a,
        .b = product->b,
        .c = product->c,
        .add = sum ? product->c : NULL,
        .m = product->m,
        .n = product->n,
        .k = product->k,
        .lda = sum ? product->m : product->k,
        .ldb = product->form == GEMM_NT ? product->k : product->n,
        .ldc = product->n,
    };
}

/* Products for experts that all have equally many rows. */
static void product_padded(const struct work *work,
                           const struct product *product, int rows)
{
    const bool sum = product->form == GEMM_TN;
    struct gemm_args args = args_of(product);

    *(sum ? &args.k : &args.m) = rows;
    args.outer = 1;
    args.inner = work->model->config.experts;
    args.a_inner = rows * args.lda;
    args.b_inner = sum ? rows * args.ldb : args.k * args.n;
    args.c_inner = sum ? args.m * args.n : rows * args.ldc;
    gemm(&work->queue, product->form, args);
}

/* Products if the host knows the rows: one for every expert that has any. */
static void product_by_host(const struct work *work,
                            const struct product *product, const int *counts)
{
    const bool sum = product->form == GEMM_TN;
    size_t before = 0;

    for (int e = 0; e < work->model->config.experts; e++) {
        struct gemm_args args = args_of(product);
        const size_t weight =
            (size_t)e * (size_t)args.n * (size_t)(sum ? args.m : args.k);
        const size_t c = sum ? weight : before * (size_t)args.ldc;

        *(sum ? &args.k : &args.m) = counts[e];
        args.a += before * (size_t)args.lda;
        args.b += sum ? before * (size_t)args.ldb : weight;
        args.c += c;
        args.add = sum ? args.c : NULL;
        if (counts[e] > 0) {
            gemm(&work->queue, product->form, args);
        }
        before += (size_t)counts[e];
    }
}

/* Products of rows that came from several ranks.  They are ordered by rank and
 * then by expert.  Gradients of weights are added up in this order. */
static void product_by_rank(const struct work *work,
                            const struct product *product,
                            const struct moe_buffers *buffers)
{
    const struct config *config = &work->model->config;
    const int own = config_own_experts(config);
    const bool sum = product->form == GEMM_TN;
    size_t before = 0;

    for (int i = 0; i < config_ep(config) * own; i++) {
        const int rows = dispatch_rows(work, buffers, i / own,
                                       config_first_expert(config) + i % own);
        struct gemm_args args = args_of(product);
        const size_t weight = (size_t)(i % own) * (size_t)args.n *
                              (size_t)(sum ? args.m : args.k);

        *(sum ? &args.k : &args.m) = rows;
        args.a += before * (size_t)args.lda;
        args.b += sum ? before * (size_t)args.ldb : weight;
        args.c += sum ? weight : before * (size_t)args.ldc;
        args.add = sum ? args.c : NULL;
        if (rows > 0) {
            gemm(&work->queue, product->form, args);
        }
        before += (size_t)rows;
    }
}

/* Rows of experts that follow each other, as only the device knows. */
struct run {
    const int *first, *counts; /* of each expert */
    int experts, rows, before; /* rows that there is room for, and before */
};

/* Products of a run: the grid is for the most that one expert may have. */
static void product_by_device(const struct work *work,
                              const struct product *product,
                              const struct run *run)
{
    static const enum engine_kernel kernels[] = {
        [GEMM_NN] = KERNEL_gemm_nn_group,
        [GEMM_NT] = KERNEL_gemm_nt_group,
        [GEMM_TN] = KERNEL_gemm_tn_group,
    };
    const bool sum = product->form == GEMM_TN;
    const struct gemm_args args = args_of(product);
    const size_t before = (size_t)run->before;
    const int weight = run->experts * args.n * (sum ? args.m : args.k);
    const struct group_args group = {
        .a = args.a + before * (size_t)args.lda,
        .b = args.b + (sum ? before * (size_t)args.ldb : 0),
        .c = args.c + (sum ? 0 : before * (size_t)args.ldc),
        .add = args.add,
        .first = run->first,
        .counts = run->counts,
        .m = args.m,
        .n = args.n,
        .k = args.k,
        .lda = args.lda,
        .ldb = args.ldb,
        .ldc = args.ldc,
        .groups = run->experts,
        .a_count = run->rows * args.lda,
        .b_count = sum ? run->rows * args.ldb : weight,
        .c_count = sum ? weight : run->rows * args.ldc,
    };

    device_launch(&work->queue, kernels[product->form],
                  blocks_of((size_t)args.n, 64),
                  blocks_of((size_t)(sum ? args.m : run->rows), 64),
                  (size_t)run->experts, &group);
}

/* Products of rows that came from several ranks, in the order of
 * product_by_rank(). */
static void product_by_block(const struct work *work,
                             const struct product *product,
                             const struct moe_buffers *buffers)
{
    const struct config *config = &work->model->config;
    const int own = config_own_experts(config), slots = config_slots(config);

    for (int i = 0; i < config_ep(config); i++) {
        product_by_device(work, product,
                          &(const struct run){
                              .first = buffers->rank_first + i * own,
                              .counts = buffers->rank_counts + i * own,
                              .experts = own,
                              .rows = slots,
                              .before = i * slots,
                          });
    }
}

void experts_product(const struct work *work, const struct moe_buffers *buffers,
                     const struct product *product)
{
    const struct config *config = &work->model->config;

    if (work->ep != NULL && config_sync_free(config)) {
        product_by_block(work, product, buffers);
    } else if (work->ep != NULL) {
        product_by_rank(work, product, buffers);
    } else if (config->drop_and_pad) {
        product_padded(work, product, config_capacity(config));
    } else if (config->dropless_host) {
        product_by_host(work, product, buffers->counts_host);
    } else {
        product_by_device(work, product,
                          &(const struct run){ .first = buffers->first,
                                               .counts = buffers->counts,
                                               .experts = config->experts,
                                               .rows = config_slots(config) });
    }
}
