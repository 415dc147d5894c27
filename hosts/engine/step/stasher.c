/*
 * stasher.c - see stasher.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "step/stasher.h"

#include "model/cutter.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    PAGE_ROWS = 16, /* tokens in a page, about */
    PAGE_UNIT = 256
};

static int fail(const struct stasher *stasher, const gh_error *err)
{
    return device_fail(stasher->trainer->dev, "%s", err->text);
}

/* ---- struct stash -------------------------------------------------------- */

static int add(void *user, int max_rows, uint32_t *entry_p)
{
    struct stasher *stasher = user;
    gh_error err = { "" };
    uint32_t *larger;

    if (stasher->n_unused > 0) {
        *entry_p = stasher->unused[--stasher->n_unused];
        return 0;
    }
    /* There is room for all of them, so that remove() cannot fail. */
    larger =
        realloc(stasher->unused, (stasher->n_entries + 1) * sizeof(*larger));
    if (larger == NULL) {
        return device_check(stasher->trainer->dev, "malloc",
                            CUDA_ERROR_OUT_OF_MEMORY);
    }
    stasher->unused = larger;
    if (stasher->library.gh->stash_add(stasher->stash, (uint32_t)max_rows,
                                       entry_p, &err) != GH_OK) {
        return fail(stasher, &err);
    }
    stasher->n_entries++;
    return 0;
}

static void give_back(void *user, uint32_t entry)
{
    struct stasher *stasher = user;

    stasher->unused[stasher->n_unused++] = entry;
}

static void move(void *user, const struct stash_move *move)
{
    const struct stasher *stasher = user;
    const gh_api *gh = stasher->library.gh;
    gh_stash_tensor tensors[STASH_TENSORS];
    const gh_stash_op op = { .struct_size = sizeof(op),
                             .entry = move->entry,
                             .n_tensors = (uint32_t)move->n,
                             .tensors = tensors,
                             .count = move->count,
                             .stream = move->stream };
    gh_error err = { "" };

    if (stasher->trainer->dev->code != CUDA_SUCCESS) {
        return;
    }
    for (int i = 0; i < move->n; i++) {
        tensors[i] = (gh_stash_tensor){ move->tensors[i].rows,
                                        (uint64_t)move->tensors[i].cols *
                                            sizeof(float) };
    }
    if ((move->pushes ? gh->stash_push : gh->stash_pop)(stasher->stash, &op,
                                                        &err) != GH_OK) {
        (void)fail(stasher, &err);
    }
}

/* ---- opening ------------------------------------------------------------- */

static void cut_rows(struct stash *calls, const struct config *config,
                     struct cutter *cutter)
{
    const size_t c = (size_t)config_room(config) * (size_t)config->hidden;
    const size_t inner =
        (size_t)config_room(config) * (size_t)config_expert(config);

    calls->count = cut_ints(cutter, 1);
    calls->dispatched = cut(cutter, c);
    calls->wide = cut(cutter, inner);
    calls->gelu = cut(cutter, inner);
    calls->expert_out = cut(cutter, c);
    calls->d_expert_out = cut(cutter, c);
    calls->d_dispatched = cut(cutter, c);
    calls->d_wide = cut(cutter, inner);
}

static int make_rows(struct stasher *stasher)
{
    const struct config *config = &stasher->trainer->model.config;
    struct cutter cutter = { 0 };

    cut_rows(&stasher->calls, config, &cutter);
    stasher->memory = device_alloc(stasher->trainer->dev, cutter.used);
    cutter = (struct cutter){ .base = stasher->memory };
    cut_rows(&stasher->calls, config, &cutter);
    return stasher->memory != NULL ? 0 : -1;
}

static uint64_t page_bytes(const struct config *config)
{
    const uint64_t row =
        (uint64_t)(config->hidden + 2 * config_expert(config)) * sizeof(float);

    return (PAGE_ROWS * row + PAGE_UNIT - 1) / PAGE_UNIT * PAGE_UNIT;
}

static gh_status create(struct stasher *stasher, gh_error *err)
{
    const struct trainer *trainer = stasher->trainer;
    const struct options *options = trainer->options;
    const struct ranks *ranks = options->ranks;
    const gh_stash_desc desc = {
        .struct_size = sizeof(desc),
        .flags = options->suspend != 0 ? GH_STASH_SUSPENDS : 0,
        .rank = ranks != NULL ? (uint32_t)ranks->rank : 0,
        .n_ranks = ranks != NULL ? (uint32_t)ranks->n : 1,
        .bytes = options->stash_bytes,
        .spill_bytes = options->spill_bytes,
        .page_bytes = page_bytes(&trainer->model.config),
        .comm = ranks != NULL ? ranks->world.handle : NULL,
        .nccl = ranks != NULL ? ranks->nccl : NULL,
        .driver = strcmp(trainer->dev->path, DEVICE_CUDA) == 0
                      ? "cuda"
                      : trainer->dev->path,
        .context = trainer->dev->context,
        .device = trainer->dev->id,
        .environment = stasher->environment.strings,
    };

    return stasher->library.gh->stash_create(&desc, &stasher->stash, err);
}

static void lend(struct stasher *stasher)
{
    struct trainer *trainer = stasher->trainer;

    stasher->calls.add = add;
    stasher->calls.remove = give_back;
    stasher->calls.move = move;
    stasher->calls.user = stasher;
    stasher->calls.room = config_room(&trainer->model.config);
    for (int i = 0; i < trainer->n_chunks; i++) {
        struct chunk *chunk = &trainer->chunks[i];

        chunk->model.stash = &stasher->calls;
        chunk->whole.stash = stasher->counts ? &stasher->calls : NULL;
        chunk->whole.stash_counts = true;
        for (int s = 0; s < trainer->n_shapes; s++) {
            chunk->shapes[s].stash = &stasher->calls;
        }
    }
    trainer->stasher = stasher;
    trainer->stashes = true;
    trainer->takes_spare = stasher->counts;
}

int stasher_open(struct stasher *stasher, struct trainer *trainer,
                 enum mode mode, char *error, size_t error_bytes)
{
    const struct options *options = trainer->options;
    gh_error err = { "" };

    if (options->stash == NULL || !mode_is_graph(mode)) {
        return 0;
    }
    stasher->trainer = trainer;
    if (library_open(&stasher->library, options->library, error, error_bytes) !=
        0) {
        return -1;
    }
    if (!GH_HAS(stasher->library.gh, gh_api, stash_get_stats)) {
        snprintf(error, error_bytes,
                 "--library %s: it has no gh_stash_create, which --stash "
                 "needs; take 1.0 or later",
                 options->library);
        return -1;
    }
    if (environment_make(&stasher->environment, options, mode, false, 0) != 0) {
        snprintf(error, error_bytes, "out of memory");
        return -1;
    }
    if (create(stasher, &err) != GH_OK) {
        snprintf(error, error_bytes, "gh_stash_create: %s", err.text);
        return -1;
    }
    if (make_rows(stasher) != 0) {
        snprintf(error, error_bytes, "%s", trainer->dev->error);
        return -1;
    }
    stasher->counts = options->stash_bytes == 0;
    lend(stasher);
    return 0;
}

int stasher_suspend(struct stasher *stasher)
{
    gh_status status = GH_OK;
    gh_error err = { "" };

    if (stasher != NULL) {
        status = stasher->library.gh->stash_suspend(
            stasher->stash, stasher->trainer->streams[0], &err);
    }
    return status == GH_OK ? 0 : fail(stasher, &err);
}

int stasher_resume(struct stasher *stasher)
{
    gh_status status = GH_OK;
    gh_error err = { "" };

    if (stasher != NULL) {
        status = stasher->library.gh->stash_resume(stasher->stash, &err);
    }
    return status == GH_OK ? 0 : fail(stasher, &err);
}

void stasher_close(struct stasher *stasher)
{
    if (stasher->trainer == NULL) {
        return;
    }
    if (stasher->stash != NULL) {
        stasher->library.gh->stash_destroy(stasher->stash);
    }
    device_free(stasher->trainer->dev, stasher->memory);
    free(stasher->unused);
    environment_free(&stasher->environment);
    library_close(&stasher->library);
    memset(stasher, 0, sizeof(*stasher));
}

/* ---- steps --------------------------------------------------------------- */

/* Makes as many pages as the step before has needed on any rank, and more. */
static int make_pages(struct stasher *stasher)
{
    gh_error err = { "" };

    if (stasher->library.gh->stash_reserve(
            stasher->stash, 0, stasher->trainer->options->stash_percent,
            &err) != GH_OK) {
        return fail(stasher, &err);
    }
    return stasher_come_back(stasher);
}

int stasher_ask(struct stasher *stasher, bool *again_p)
{
    uint32_t again = 0;
    gh_error err = { "" };

    *again_p = false;
    if (stasher->library.gh->stash_end_step(stasher->stash,
                                            stasher->trainer->streams[0],
                                            &again, &err) != GH_OK) {
        return fail(stasher, &err);
    }
    if (stasher->counts) {
        return make_pages(stasher);
    }
    *again_p = again != 0;
    return 0;
}

void stasher_stand_aside(struct stasher *stasher)
{
    stasher->trainer->stashes = false;
    stasher->trainer->takes_spare = true;
}

int stasher_come_back(struct stasher *stasher)
{
    struct trainer *trainer = stasher->trainer;

    for (int i = 0; i < trainer->n_chunks; i++) {
        struct chunk *chunk = &trainer->chunks[i];

        pool_free(&chunk->spare);
        chunk->whole.stash = NULL;
    }
    stasher->counts = false;
    trainer->stashes = true;
    trainer->takes_spare = false;
    /* To free memory may wait for what runs in the context, and there for
     * another rank's sum, which waits for this one. */
    return trainer->options->ranks != NULL
               ? ranks_barrier(trainer->options->ranks)
               : 0;
}

void stasher_stats(const struct stasher *stasher, gh_stash_stats *stats)
{
    memset(stats, 0, sizeof(*stats));
    if (stasher->stash == NULL) {
        return;
    }
    stats->struct_size = sizeof(*stats);
    if (stasher->library.gh->stash_get_stats(stasher->stash, stats, NULL) !=
        GH_OK) {
        stats->struct_size = 0;
    }
}
