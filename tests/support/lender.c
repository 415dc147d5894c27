/*
 * lender.c - see lender.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/lender.h"

#include "support/toy.h"

#include <stdlib.h>

/* None of them may be taken. */
static void call_hooks(struct lender *lender)
{
    gh_offload_tensor tensor = { NULL, 4 };
    gh_offload_group group = { .struct_size = sizeof(group),
                               .module = GH_MODULE_CORE_ATTN,
                               .n_tensors = 1,
                               .tensors = &tensor };
    gh_pass pass = { .struct_size = sizeof(pass) };
    gh_decision d = { .struct_size = sizeof(d) };
    gh_session *s = lender->session;

    lender->hooks_taken +=
        (gh_layer_enter(s, &pass, &d, NULL) == GH_OK) +
        (gh_layer_exit(s, &pass, NULL) == GH_OK) +
        (gh_offload_save(s, &group, NULL) == GH_OK) +
        (gh_offload_commit(s, 0, GH_MODULE_CORE_ATTN, NULL) == GH_OK) +
        (gh_offload_load(s, &group, NULL) == GH_OK) +
        (gh_offload_release(s, 0, GH_MODULE_CORE_ATTN, NULL) == GH_OK) +
        (gh_flush_delayed(s, NULL) == GH_OK) +
        (gh_pre_warmup(s, NULL) == GH_OK) +
        (gh_iteration_end(s, NULL) == GH_OK);
    gh_layer_cancel(s, NULL);
}

void lender_take_back(void *user, void *object)
{
    struct lent_block *block = object;
    struct lender *lender = block->lender;

    (void)user;
    lender->wrong += !block->out;
    lender->returned++;
    block->out = false;
    if (lender->session != NULL) {
        call_hooks(lender);
    }
    /* A recording that is over has its memory for good. */
    if (block->recording != 0 && block->recording != lender->recording) {
        return;
    }
    block->is_free = true;
    lender->toy->drv.cuMemsetD8Async(block->address, 0xee, block->bytes,
                                     block->stream);
}

/* Also in a capture. */
static bool allocate(struct toy *toy, CUdeviceptr *address_p, uint64_t bytes)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    bool allocated;

    toy->drv.cuThreadExchangeStreamCaptureMode(&mode);
    allocated = toy->drv.cuMemAlloc(address_p, bytes) == CUDA_SUCCESS;
    toy->drv.cuThreadExchangeStreamCaptureMode(&mode);
    return allocated;
}

struct lent_block *lender_find(struct lender *lender, uint64_t bytes,
                               CUstream stream)
{
    struct lent_block *block = lender->blocks;

    while (block != NULL &&
           !(block->is_free && block->bytes == bytes &&
             block->stream == stream &&
             block->recording == lender->recording)) {
        block = block->next;
    }
    if (block != NULL) {
        block->is_free = false;
        return block;
    }
    block = calloc(1, sizeof(*block));
    if (block == NULL) {
        return NULL;
    }
    if (!allocate(lender->toy, &block->address, bytes)) {
        free(block);
        return NULL;
    }
    block->bytes = bytes;
    block->stream = stream;
    block->recording = lender->recording;
    block->lender = lender;
    block->next = lender->blocks;
    lender->blocks = block;
    return block;
}

void lender_saved(struct lent_block *block, bool taken)
{
    block->out = taken;
    block->is_free = !taken;
    block->lender->lent += taken;
}

uint64_t lender_still_out(const struct lender *lender)
{
    uint64_t n = 0;

    for (const struct lent_block *b = lender->blocks; b != NULL; b = b->next) {
        n += b->out;
    }
    return n;
}

uint64_t lender_bytes(const struct lender *lender, bool eager)
{
    uint64_t bytes = 0;

    for (const struct lent_block *b = lender->blocks; b != NULL; b = b->next) {
        bytes += (b->recording == 0) == eager ? b->bytes : 0;
    }
    return bytes;
}

void lender_free(struct lender *lender)
{
    while (lender->blocks != NULL) {
        struct lent_block *block = lender->blocks;

        lender->blocks = block->next;
        lender->toy->drv.cuMemFree(block->address);
        free(block);
    }
}
