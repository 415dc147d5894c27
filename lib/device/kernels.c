/*
 * kernels.c - loads the library's kernels and launches them.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "base/error.h"
#include "device/private.h"

#include <stdlib.h>

_Static_assert(GH_COPIES_A_LAUNCH == GH_COPY_LARGE,
               "a launch takes what the large kernel does");
_Static_assert(GH_SENDS_A_LAUNCH == GH_SEND_PARTS,
               "a launch takes what the kernel does");
_Static_assert(GH_STASHING_TENSORS == GH_STASH_PARTS,
               "a launch takes what the kernel does");
_Static_assert(sizeof(struct gh_stash_state_words) ==
                       sizeof(struct gh_stash_state) &&
                   offsetof(struct gh_stash_state_words, most) ==
                       offsetof(struct gh_stash_state, most) &&
                   offsetof(struct gh_stash_state_words, spill_pages) ==
                       offsetof(struct gh_stash_state, most) +
                           GH_STASH_STEP_BYTES,
               "the kernel's state is what the host reads");

struct gh_copy {
    uint32_t n; /* how many there is room for */
    struct gh_copy_batch batches[];
};

static gh_status find_functions(struct gh_device *dev, gh_error *err)
{
    const struct {
        CUfunction *function;
        const char *name;
    } wanted[] = {
        { &dev->copy_small, GH_KERNEL_COPY_SMALL },
        { &dev->copy_large, GH_KERNEL_COPY_LARGE },
        { &dev->compare, GH_KERNEL_COMPARE },
        { &dev->offsets_small, GH_KERNEL_OFFSETS_SMALL },
        { &dev->offsets_large, GH_KERNEL_OFFSETS_LARGE },
        { &dev->send, GH_KERNEL_SEND },
        { &dev->stash_pages, GH_KERNEL_STASH_PAGES },
        { &dev->stash_rows, GH_KERNEL_STASH_ROWS },
        { &dev->gradient, GH_KERNEL_GRADIENT },
    };

    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
        gh_status status;

        status =
            gh_device_call(dev, err, cuModuleGetFunction,
                           (wanted[i].function, dev->module, wanted[i].name));
        if (status != GH_OK) {
            return status;
        }
    }
    return GH_OK;
}

gh_status gh_device_kernels_load(struct gh_device *dev, gh_error *err)
{
    char *ptx = dev->info.soft ? NULL : gh_kernels_ptx();
    const void *image = dev->info.soft ? (const void *)&gh_kernels_soft : ptx;
    gh_status status;

    if (image == NULL) {
        return gh_fail(err, GH_ERR_NO_MEMORY, "no memory for the kernels");
    }
    status = gh_device_call(dev, err, cuModuleLoadData, (&dev->module, image));
    free(ptx);
    if (status != GH_OK) {
        return status;
    }
    status = find_functions(dev, err);
    if (status != GH_OK) {
        goto err_module;
    }
    status =
        gh_device_call(dev, err, cuMemAlloc, (&dev->verdict, sizeof(uint64_t)));
    if (status != GH_OK) {
        goto err_module;
    }
    return GH_OK;

err_module:
    dev->drv.cuModuleUnload(dev->module);
    return status;
}

void gh_device_kernels_unload(struct gh_device *dev)
{
    gh_device_release(dev, &(struct gh_goes){ .memory = dev->verdict,
                                              .module = dev->module });
}

gh_status gh_device_copy_create(struct gh_device *dev, uint32_t n,
                                struct gh_copy **copy_p, gh_error *err)
{
    const size_t n_batches = (n + GH_COPY_LARGE - 1) / GH_COPY_LARGE;
    struct gh_copy *copy;

    (void)dev;
    copy = calloc(1, sizeof(*copy) + n_batches * sizeof(copy->batches[0]));
    if (copy == NULL) {
        return gh_fail(err, GH_ERR_NO_MEMORY, "no memory for %u copies", n);
    }
    copy->n = n;
    *copy_p = copy;
    return GH_OK;
}

void gh_device_copy_destroy(struct gh_copy *copy)
{
    free(copy);
}

void gh_device_copy_set(struct gh_copy *copy, uint32_t i, void *dst,
                        const void *src, uint64_t bytes)
{
    struct gh_copy_batch *batch = &copy->batches[i / GH_COPY_LARGE];

    batch->entries[i % GH_COPY_LARGE] = (struct gh_copy_entry){
        .dst = (uintptr_t)dst, .src = (uintptr_t)src, .bytes = bytes
    };
}

static gh_status launch(struct gh_device *dev, CUfunction function,
                        uint32_t blocks, void **params, void *stream,
                        gh_error *err)
{
    return gh_device_call(dev, err, cuLaunchKernel,
                          (function, blocks, 1, 1, GH_KERNEL_THREADS, 1, 1, 0,
                           stream, params, NULL));
}

/* Launches the first `n` entries of a batch. */
static gh_status launch_batch(struct gh_device *dev,
                              struct gh_copy_batch *batch, uint32_t n,
                              void *stream, gh_error *err)
{
    void *params[] = { batch };
    uint32_t blocks;

    batch->n_entries = n;
    blocks = gh_copy_batch_plan(batch);
    if (blocks == 0) {
        return GH_OK;
    }
    return launch(dev, n <= GH_COPY_SMALL ? dev->copy_small : dev->copy_large,
                  blocks, params, stream, err);
}

gh_status gh_device_copy_launch(struct gh_device *dev, struct gh_copy *copy,
                                uint32_t n, void *stream, uint64_t *bytes_p,
                                gh_error *err)
{
    gh_status status = GH_OK;
    uint64_t bytes = 0;

    if (n > copy->n) {
        return gh_fail(err, GH_ERR_INTERNAL, "%u copies of %u", n, copy->n);
    }
    for (uint32_t i = 0; i < n && status == GH_OK; i += GH_COPY_LARGE) {
        struct gh_copy_batch *batch = &copy->batches[i / GH_COPY_LARGE];
        const uint32_t left = n - i;
        const uint32_t m = left < GH_COPY_LARGE ? left : GH_COPY_LARGE;

        for (uint32_t k = 0; k < m; k++) {
            bytes += batch->entries[k].bytes;
        }
        status = launch_batch(dev, batch, m, stream, err);
    }
    *bytes_p = bytes;
    return status;
}

/* ---- parts for other ranks ----------------------------------------------- */

struct gh_sends {
    struct gh_send send;
};

gh_status gh_device_sends_create(void *ended, struct gh_sends **sends_p,
                                 gh_error *err)
{
    struct gh_sends *sends = calloc(1, sizeof(*sends));

    if (sends == NULL) {
        return gh_fail(err, GH_ERR_NO_MEMORY, "no memory for %u parts",
                       GH_SENDS_A_LAUNCH);
    }
    sends->send.ended = (uintptr_t)ended;
    *sends_p = sends;
    return GH_OK;
}

void gh_device_sends_destroy(struct gh_sends *sends)
{
    free(sends);
}

void gh_device_sends_add(struct gh_sends *sends, void *dst, const void *src,
                         uint64_t bytes, void *flag)
{
    sends->send.parts[sends->send.n_parts++] =
        (struct gh_send_part){ .dst = (uintptr_t)dst,
                               .src = (uintptr_t)src,
                               .bytes = bytes,
                               .flag = (uintptr_t)flag };
}

bool gh_device_sends_wait(struct gh_device *dev, struct gh_sends *sends,
                          const void *row, uint32_t rank, uint32_t n_ranks)
{
    if (dev->info.soft) {
        return false;
    }
    sends->send.row = (uintptr_t)row;
    sends->send.rank = rank;
    sends->send.n_ranks = n_ranks;
    return true;
}

gh_status gh_device_sends_launch(struct gh_device *dev, struct gh_sends *sends,
                                 void *stream, gh_error *err)
{
    void *params[] = { &sends->send };
    const uint32_t blocks = gh_send_plan(&sends->send);
    const gh_status status =
        gh_device_call(dev, err, cuLaunchKernel,
                       (dev->send, blocks, 1, 1, GH_SEND_THREADS, 1, 1, 0,
                        stream, params, NULL));

    sends->send.n_parts = 0;
    sends->send.row = 0;
    return status;
}

/* ---- rows in pages ------------------------------------------------------- */

uint64_t gh_device_stash_state_bytes(uint64_t n_pages)
{
    return sizeof(struct gh_stash_state) + n_pages * sizeof(uint32_t);
}

/* A page has at least one row. */
uint64_t gh_device_stash_record_bytes(uint32_t max_rows)
{
    return sizeof(struct gh_stash_record) +
           (uint64_t)max_rows * sizeof(uint32_t);
}

static gh_status launch_pages(struct gh_device *dev,
                              const struct gh_stashing *to, bool takes,
                              void *stream, gh_error *err)
{
    struct gh_stash_pages pages = { .state = (uintptr_t)to->state,
                                    .record = (uintptr_t)to->record,
                                    .count = takes ? (uintptr_t)to->count : 0,
                                    .pool = (uintptr_t)to->pool,
                                    .spill = (uintptr_t)to->spill,
                                    .page_bytes = to->page_bytes,
                                    .max_rows = takes ? to->max_rows : 0,
                                    .page_rows = to->page_rows };
    void *params[] = { &pages };

    return launch(dev, dev->stash_pages, 1, params, stream, err);
}

static gh_status launch_rows(struct gh_device *dev,
                             const struct gh_stashing *to, bool out,
                             void *stream, gh_error *err)
{
    struct gh_stash_rows rows = { .record = (uintptr_t)to->record,
                                  .pool = (uintptr_t)to->pool,
                                  .spill = (uintptr_t)to->spill,
                                  .page_bytes = to->page_bytes,
                                  .page_rows = to->page_rows,
                                  .max_rows =
                                      out && to->clears ? to->max_rows : 0,
                                  .out = out,
                                  .n_parts = to->n };
    void *params[] = { &rows };
    uint32_t x, y;

    if (to->pool == NULL) {
        return GH_OK;
    }
    for (uint32_t i = 0; i < to->n; i++) {
        rows.parts[i] = (struct gh_stash_part){ (uintptr_t)to->rows[i],
                                                to->row_bytes[i] };
    }
    gh_stash_plan(&rows, (to->max_rows - 1) / to->page_rows + 1, &x, &y);
    return gh_device_call(dev, err, cuLaunchKernel,
                          (dev->stash_rows, x, y, 1, GH_KERNEL_THREADS, 1, 1, 0,
                           stream, params, NULL));
}

gh_status gh_device_stash_push(struct gh_device *dev,
                               const struct gh_stashing *to, void *stream,
                               gh_error *err)
{
    gh_status status = launch_pages(dev, to, true, stream, err);

    return status == GH_OK ? launch_rows(dev, to, false, stream, err) : status;
}

gh_status gh_device_stash_pop(struct gh_device *dev,
                              const struct gh_stashing *to, void *stream,
                              gh_error *err)
{
    gh_status status = launch_rows(dev, to, true, stream, err);

    return status == GH_OK ? launch_pages(dev, to, false, stream, err) : status;
}

/* ---- offsets ------------------------------------------------------------- */

/* The sums over the sequences so far. */
struct sums {
    struct gh_offsets_pair at;
    uint32_t next; /* the sequence to add next */
};

/* Adds pairs to a batch.  Entry i is where sequence i begins, so the first is 0
 * and the n-th is the end of the last sequence. */
static uint32_t add_pairs(struct gh_offsets *batch,
                          const struct gh_lengths *lengths, uint32_t first,
                          struct sums *sums)
{
    uint32_t k = 0;

    while (k < GH_OFFSETS_LARGE && first + k <= lengths->n) {
        batch->pairs[k++] = sums->at;
        if (sums->next < lengths->n) {
            const uint32_t i = sums->next++;

            sums->at.actual += lengths->actual[i];
            sums->at.padded += lengths->padded[i];
        }
    }
    return k;
}

static gh_status launch_offsets(struct gh_device *dev,
                                struct gh_offsets *batch, void *stream,
                                gh_error *err)
{
    void *params[] = { batch };

    return launch(dev,
                  batch->head.n <= GH_OFFSETS_SMALL ? dev->offsets_small
                                                    : dev->offsets_large,
                  gh_offsets_plan(batch), params, stream, err);
}

static struct gh_offsets_head head_of(const struct gh_offset_arrays *to)
{
    return (struct gh_offsets_head){ .actual = (uintptr_t)to->actual,
                                     .padded = (uintptr_t)to->padded,
                                     .longest = (uintptr_t)to->longest,
                                     .count = (uintptr_t)to->count };
}

gh_status gh_device_write_offsets(struct gh_device *dev,
                                  const struct gh_offset_arrays *to,
                                  const struct gh_lengths *lengths,
                                  void *stream, gh_error *err)
{
    struct gh_offsets batch = { .head = head_of(to) };
    struct sums sums = { { 0, 0 }, 0 };
    gh_status status = GH_OK;
    uint32_t first = 0;

    batch.head.longest_value = lengths->longest;
    batch.head.count_value = (int32_t)lengths->n;
    while (first <= lengths->n && status == GH_OK) {
        batch.head.first = first;
        batch.head.n = add_pairs(&batch, lengths, first, &sums);
        first += batch.head.n;
        batch.head.end = first <= lengths->n ? first : to->room;
        batch.head.fill_actual = sums.at.actual;
        batch.head.fill_padded = lengths->physical;
        status = launch_offsets(dev, &batch, stream, err);
    }
    return status;
}

gh_status gh_device_poison_offsets(struct gh_device *dev,
                                   const struct gh_offset_arrays *to,
                                   void *stream, gh_error *err)
{
    struct gh_offsets batch = { .head = head_of(to) };

    batch.head.end = to->room;
    batch.head.fill_actual = batch.head.fill_padded = INT32_MIN;
    batch.head.longest_value = batch.head.count_value = INT32_MIN;
    return launch_offsets(dev, &batch, stream, err);
}

_Static_assert(GH_NUMBER_F32 == GH_GRADIENT_F32 &&
                       GH_NUMBER_F16 == GH_GRADIENT_F16 &&
                       GH_NUMBER_BF16 == GH_GRADIENT_BF16,
               "the kernel takes what the host names");

gh_status gh_device_gradient_add(struct gh_device *dev, const gh_gradient *what,
                                 uint64_t bytes, void *stream, gh_error *err)
{
    struct gh_gradient_sum to = { .sum = (uintptr_t)what->sum,
                                  .gradient = (uintptr_t)what->gradient,
                                  .bytes = bytes,
                                  .first = (uintptr_t)what->first,
                                  .element = what->number };
    void *params[] = { &to };

    return launch(dev, dev->gradient, gh_gradient_plan(bytes), params, stream,
                  err);
}

gh_status gh_device_compare(struct gh_device *dev, const void *a, const void *b,
                            uint64_t bytes, void *stream, uint64_t *first_p,
                            gh_error *err)
{
    uint64_t args[GH_COMPARE_PARAMS] = { (uintptr_t)a, (uintptr_t)b, bytes,
                                         dev->verdict };
    void *params[] = { &args[0], &args[1], &args[2], &args[3] };
    uint64_t first = UINT64_MAX;
    gh_status status;

    status = gh_device_call(dev, err, cuMemsetD8Async,
                            (dev->verdict, 0xff, sizeof(first), stream));
    if (status != GH_OK) {
        return status;
    }
    status =
        launch(dev, dev->compare, gh_compare_plan(bytes), params, stream, err);
    if (status == GH_OK) {
        status = gh_device_call(dev, err, cuMemcpyDtoHAsync,
                                (&first, dev->verdict, sizeof(first), stream));
    }
    if (status != GH_OK) {
        /* Wait, because what was issued will still write the verdict. */
        (void)gh_device_stream_wait(dev, stream, NULL);
        return status;
    }
    status = gh_device_stream_wait(dev, stream, err);
    if (status == GH_OK) {
        *first_p = first;
    }
    return status;
}
