/*
 * Steps whose rows go through a stash are exact, eagerly and from graphs; where
 * one rank has too few pages, all ranks are told to run the step once more, one
 * line says so, and no page is lost.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <graphhooks.h>

#include "tests/nccl/ranks.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Rows of two tensors, one behind the other in a buffer of floats. */
enum {
    WIDE = 40,
    NARROW = 8, /* floats */
    ROWS_MOST = 60,
    LAYERS = 4,
    PAGE_BYTES = 1536, /* 8 rows */
    PAGES = 20,
    STEPS = 1000 /* each tenth is too large for a rank */
};

static const char *const patient[] = { "GRAPHHOOKS_TIMEOUT=20",
                                       "GRAPHHOOKS_LOG=warn", NULL };
static const char *const quiet[] = { "GRAPHHOOKS_TIMEOUT=5",
                                     "GRAPHHOOKS_LOG=off", NULL };

static gh_stash_desc desc_of(struct rank *r, uint64_t pages)
{
    return (gh_stash_desc){ .struct_size = sizeof(gh_stash_desc),
                            .rank = (uint32_t)r->rank,
                            .n_ranks = (uint32_t)r->n,
                            .bytes = pages * PAGE_BYTES,
                            .page_bytes = PAGE_BYTES,
                            .comm = r->comm,
                            .nccl = ranks_nccl(),
                            .driver = ranks_driver(),
                            .context = r->ctx,
                            .environment = patient };
}

static gh_stash *stash_with(struct rank *r, uint64_t pages, uint32_t flags)
{
    gh_stash_desc desc = desc_of(r, pages);
    gh_stash *stash = NULL;
    gh_error err = { "" };

    desc.flags = flags;
    says_int(r, gh_stash_create(&desc, &stash, &err), GH_OK,
             "a stash is made %.200s", err.text);
    return stash;
}

static gh_stash *stash_of(struct rank *r, uint64_t pages)
{
    return stash_with(r, pages, 0);
}

static gh_stash_stats stats_of(const gh_stash *stash)
{
    gh_stash_stats stats = { .struct_size = sizeof(stats) };

    gh_stash_get_stats(stash, &stats, NULL);
    return stats;
}

static void *address(CUdeviceptr at)
{
    return (void *)(uintptr_t)at;
}

/* A push from a buffer, or a pop into it, of as many rows as the first word of
 * r->third says. */
static gh_status move(struct rank *r, gh_stash *stash, uint32_t entry,
                      CUdeviceptr rows, bool pushes, gh_error *err)
{
    const gh_stash_tensor tensors[] = {
        { address(rows), WIDE * sizeof(float) },
        { address(rows + ROWS_MOST * WIDE * sizeof(float)),
          NARROW * sizeof(float) },
    };
    const gh_stash_op op = { .struct_size = sizeof(op),
                             .flags = pushes ? 0 : GH_STASH_CLEAR,
                             .entry = entry,
                             .n_tensors = 2,
                             .tensors = tensors,
                             .count = address(r->third),
                             .stream = r->stream };

    return pushes ? gh_stash_push(stash, &op, err)
                  : gh_stash_pop(stash, &op, err);
}

static void set_count(struct rank *r, int32_t n)
{
    drv.cuMemcpyHtoDAsync(r->third, &n, sizeof(n), r->stream);
    drv.cuStreamSynchronize(r->stream);
}

/* Whether r->recv has n rows of what fill() has written, and zeros. */
static bool has_rows(struct rank *r, float first, uint32_t n)
{
    static const uint32_t width[] = { WIDE, NARROW };
    float *got = malloc(ROWS_MOST * (WIDE + NARROW) * sizeof(*got));
    uint32_t at = 0;
    bool equal = got != NULL;

    fetch(r, r->stream, got, r->recv,
          ROWS_MOST * (WIDE + NARROW) * sizeof(*got));
    for (int k = 0; k < 2; k++) {
        for (uint32_t i = 0; i < ROWS_MOST * width[k]; i++, at++) {
            const float wanted = i < n * width[k] ? first + (float)at : 0;

            equal = equal && got[at] == wanted;
        }
    }
    free(got);
    return equal;
}

/* ---- steps --------------------------------------------------------------- */

static CUgraphExec record(struct rank *r, gh_stash *stash, uint32_t entry,
                          bool pushes)
{
    CUgraphExec exec = NULL;
    CUgraph graph = NULL;

    drv.cuStreamBeginCapture(r->stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    move(r, stash, entry, pushes ? r->send : r->recv, pushes, NULL);
    drv.cuStreamEndCapture(r->stream, &graph);
    drv.cuGraphInstantiateWithFlags(&exec, graph, 0);
    drv.cuGraphDestroy(graph);
    return exec;
}

/* Layer l of a step has so many rows on a rank.  In a step that is too large,
 * the last rank has one page too many. */
static uint32_t rows_of(int rank, uint32_t step, uint32_t l, bool is_large)
{
    return is_large ? (l == 0 ? 41 : 40)
                    : (step * 7 + l * 13 + (uint32_t)rank * 5) % 41;
}

/* One step; how many layers came back wrong. */
static int run_step(struct rank *r, gh_stash *stash, CUgraphExec (*graphs)[2],
                    uint32_t step, bool is_large)
{
    int wrong = 0;

    for (uint32_t l = 0; l < LAYERS; l++) {
        set_count(r, (int32_t)rows_of(r->rank, step, l, is_large));
        fill(r, r->send, RANK_FLOATS, (float)(step + 100 * l), 1);
        if (graphs != NULL) {
            drv.cuGraphLaunch(graphs[l][0], r->stream);
        } else {
            wrong += move(r, stash, l, r->send, true, NULL) != GH_OK;
        }
    }
    /* Backwards, or, in each third step, in the order of the pushes. */
    for (uint32_t i = 0; i < LAYERS; i++) {
        const uint32_t l = step % 3 == 0 ? i : LAYERS - 1 - i;
        /* The last one finds too few pages. */
        const bool is_kept = !is_large || l != LAYERS - 1;

        if (graphs != NULL) {
            drv.cuGraphLaunch(graphs[l][1], r->stream);
        } else {
            wrong += move(r, stash, l, r->recv, false, NULL) != GH_OK;
        }
        wrong += !has_rows(r, (float)(step + 100 * l),
                           is_kept ? rows_of(r->rank, step, l, is_large) : 0);
    }
    return wrong;
}

/* Without its memory for a moment: whether that worked. */
static bool rests(struct rank *r, gh_stash *stash)
{
    return gh_stash_suspend(stash, r->stream, NULL) == GH_OK &&
           gh_stash_resume(stash, NULL) == GH_OK;
}

static void run_steps(struct rank *r, bool replays)
{
    gh_stash *stash =
        stash_with(r, PAGES, replays ? GH_STASH_SUSPENDS : 0);
    CUgraphExec graphs[LAYERS][2];
    int wrong = 0, unsure = 0;
    uint64_t held = 0;
    gh_stash_stats stats;

    for (uint32_t l = 0; l < LAYERS; l++) {
        uint32_t entry = 99;

        gh_stash_add(stash, ROWS_MOST, &entry, NULL);
        wrong += entry != l;
        if (replays) {
            graphs[l][0] = record(r, stash, l, true);
            graphs[l][1] = record(r, stash, l, false);
        }
    }
    for (uint32_t step = 1; step <= STEPS; step++) {
        const bool is_large = step % 10 == 0;
        uint32_t again = 77;

        wrong += run_step(r, stash, replays ? graphs : NULL, step,
                          is_large && r->rank == r->n - 1);
        unsure += gh_stash_end_step(stash, r->stream, &again, NULL) != GH_OK ||
                  again != is_large;
        held += stats_of(stash).held_bytes;
        wrong += replays && step % 9 == 0 && !rests(r, stash);
    }
    stats = stats_of(stash);
    says_int(r, wrong, 0, "%s all rows that have pages come back",
             replays ? "from graphs" : "eagerly");
    says_int(r, unsure, 0, "all ranks run each tenth step once more");
    says(r, held == 0 && stats.steps == STEPS && stats.reruns == STEPS / 10,
         "no page is lost in %d steps", STEPS);
    says_int(r, (long long)stats.refused, r->rank == r->n - 1 ? STEPS / 10 : 0,
             "pushes were refused on the last rank alone");
    says(r,
         r->rank == r->n - 1 ? stats.peak_bytes == UINT64_C(21) * PAGE_BYTES
                             : stats.peak_bytes <= UINT64_C(20) * PAGE_BYTES,
         "what a step has needed is counted");
    says(r,
         stats.entries == LAYERS && stats.bytes == UINT64_C(20) * PAGE_BYTES &&
             stats.page_bytes == PAGE_BYTES &&
             stats.worst_case_bytes == UINT64_C(4) * ROWS_MOST * 192,
         "and what the worst case would take");
    if (replays) {
        gh_error err = { "" };

        says_int(r, gh_stash_reserve(stash, 0, 120, &err), GH_ERR_STATE,
                 "pages stay where graphs have them");
        for (uint32_t l = 0; l < LAYERS; l++) {
            drv.cuGraphExecDestroy(graphs[l][0]);
            drv.cuGraphExecDestroy(graphs[l][1]);
        }
    }
    gh_stash_destroy(stash);
}

static void test_steps(struct rank *r)
{
    run_steps(r, false);
}

static void test_replayed(struct rank *r)
{
    run_steps(r, true);
}

/* ---- a budget that is measured ------------------------------------------- */

static void test_reserve(struct rank *r)
{
    gh_stash *stash = stash_of(r, 0);
    gh_error err = { "" };
    uint32_t entry, again = 77;

    gh_stash_add(stash, ROWS_MOST, &entry, NULL);
    says_int(r, gh_stash_reserve(stash, 0, 110, &err), GH_ERR_STATE,
             "nothing is known before a step: %.160s", err.text);
    says_int(r, gh_stash_reserve(stash, 0, 99, &err), GH_ERR_INVALID,
             "less than what a step needs is no budget");
    set_count(r, 60);
    fill(r, r->recv, RANK_FLOATS, 5, 0);
    move(r, stash, 0, r->send, true, NULL);
    says_int(r, gh_stash_reserve(stash, 4096, 0, &err), GH_ERR_STATE,
             "nor are there new pages within a step");
    gh_stash_end_step(stash, r->stream, &again, NULL);
    says_int(r, gh_stash_reserve(stash, 4096, 0, &err), GH_ERR_STATE,
             "nor where a push was not popped");
    move(r, stash, 0, r->recv, false, NULL);
    gh_stash_end_step(stash, r->stream, &again, NULL);
    says(r, again == 0 && stats_of(stash).refused == 0,
         "a stash without pages only counts");
    says_int(r, (long long)stats_of(stash).peak_bytes, 8 * PAGE_BYTES,
             "eight pages, which 60 rows need");
    says_int(r, gh_stash_reserve(stash, 0, 100, &err), GH_OK,
             "a budget may be exactly that");
    says_int(r, (long long)stats_of(stash).bytes, 8 * PAGE_BYTES,
             "and then has as many");
    says_int(r, gh_stash_reserve(stash, 0, 110, &err), GH_OK,
             "or a tenth more");
    says_int(r, (long long)stats_of(stash).bytes, 9 * PAGE_BYTES,
             "in whole pages");
    fill(r, r->send, RANK_FLOATS, 3, 1);
    move(r, stash, 0, r->send, true, NULL);
    move(r, stash, 0, r->recv, false, NULL);
    says(r, has_rows(r, 3, 60), "and then rows come back");
    says_int(r, gh_stash_end_step(stash, r->stream, &again, NULL), GH_OK,
             "the step ends");
    says_int(r, gh_stash_reserve(stash, PAGE_BYTES - 1, 0, &err),
             GH_ERR_INVALID, "less than a page is none: %.160s", err.text);
    says_int(r, gh_stash_reserve(stash, 3 * PAGE_BYTES, 0, &err), GH_OK,
             "a budget may be given in bytes");
    gh_stash_destroy(stash);
}

static void test_suspend(struct rank *r)
{
    gh_stash *stash = stash_of(r, PAGES);
    gh_error err = { "" };
    uint32_t entry = 0, again;

    says_int(r, gh_stash_suspend(NULL, NULL, &err), GH_ERR_INVALID,
             "no stash is suspended");
    says_int(r, gh_stash_resume(NULL, &err), GH_ERR_INVALID, "nor resumed");
    says_int(r, gh_stash_suspend(stash, r->stream, &err), GH_ERR_UNSUPPORTED,
             "nor one without the flag: %.120s", err.text);
    gh_stash_destroy(stash);

    stash = stash_with(r, PAGES, GH_STASH_SUSPENDS);
    gh_stash_add(stash, ROWS_MOST, &entry, NULL);
    says_int(r, gh_stash_resume(stash, &err), GH_ERR_STATE,
             "one that is awake is not resumed: %.120s", err.text);
    set_count(r, 20);
    fill(r, r->send, RANK_FLOATS, 4, 1);
    move(r, stash, 0, r->send, true, NULL);
    says(r,
         gh_stash_suspend(stash, r->stream, &err) == GH_ERR_STATE &&
             strstr(err.text, "3 pages hold rows") != NULL,
         "rows are not given up: %.120s", err.text);
    move(r, stash, 0, r->recv, false, NULL);
    says(r, has_rows(r, 4, 20), "they come back");
    says_int(r, gh_stash_suspend(stash, r->stream, &err), GH_OK,
             "without rows it is suspended %.120s", err.text);
    says_int(r, move(r, stash, 0, r->send, true, &err), GH_ERR_STATE,
             "and takes none: %.120s", err.text);
    says_int(r, gh_stash_suspend(stash, r->stream, &err), GH_ERR_STATE,
             "nor is it suspended twice");
    says_int(r, gh_stash_end_step(stash, r->stream, &again, &err),
             GH_ERR_STATE, "nor does a step end");
    says_int(r, gh_stash_resume(stash, &err), GH_OK, "it is resumed %.120s",
             err.text);
    move(r, stash, 0, r->send, true, NULL);
    move(r, stash, 0, r->recv, false, NULL);
    says(r, has_rows(r, 4, 20), "and rows come back again");
    says_int(r, gh_stash_end_step(stash, r->stream, &again, &err), GH_OK,
             "the step ends");
    says_int(r, gh_stash_reserve(stash, 3 * PAGE_BYTES, 0, &err), GH_OK,
             "it gets other pages %.120s", err.text);
    says_int(r, gh_stash_suspend(stash, r->stream, &err), GH_OK,
             "it is suspended, and destroyed so");
    gh_stash_destroy(stash);
}

/* Four entries of one page, two, one and one, in a stash of two: the second and
 * the last go to the host's memory, whole. */
static void test_spill(struct rank *r)
{
    static const int32_t rows[] = { 8, 10, 8, 3 };
    gh_stash_desc desc = desc_of(r, 2);
    gh_stash *stash = NULL;
    gh_error err = { "" };
    uint32_t entry, again = 77;

    desc.spill_bytes = UINT64_MAX;
    says_int(r, gh_stash_create(&desc, &stash, &err), GH_ERR_INVALID,
             "no memory has so many pages: %.160s", err.text);
    desc.spill_bytes = 3 * PAGE_BYTES + 100;
    says_int(r, gh_stash_create(&desc, &stash, &err), GH_OK,
             "a stash of two pages spills to three %.160s", err.text);
    says_int(r, (long long)stats_of(stash).spill_bytes, 3 * PAGE_BYTES,
             "whole pages of the host's memory");
    for (int i = 0; i < 4; i++) {
        gh_stash_add(stash, ROWS_MOST, &entry, NULL);
    }
    for (int step = 0; step < 3; step++) {
        for (uint32_t i = 0; i < 4; i++) {
            set_count(r, rows[i]);
            fill(r, r->send, RANK_FLOATS, 1000.0f * (float)(i + 1), 1);
            move(r, stash, i, r->send, true, NULL);
        }
        for (uint32_t k = 0; k < 4; k++) {
            const uint32_t i = step == 1 ? k : 3 - k;

            move(r, stash, i, r->recv, false, NULL);
            says(r, has_rows(r, 1000.0f * (float)(i + 1), (uint32_t)rows[i]),
                 "step %d: entry %u comes back, from wherever", step, i);
        }
        gh_stash_end_step(stash, r->stream, &again, NULL);
        says(r, again == 0, "and the step need not run again");
    }
    says_int(r, (long long)stats_of(stash).spilled, 3 * 2,
             "two pushes of each step were spilled, and no more later");
    says_int(r, (long long)stats_of(stash).peak_bytes, 5 * PAGE_BYTES,
             "a step needs the pages of both");
    says_int(r, (long long)stats_of(stash).held_bytes, 0, "none is lost");

    set_count(r, 32); /* four pages: neither has so many */
    move(r, stash, 0, r->send, true, NULL);
    move(r, stash, 0, r->recv, false, NULL);
    gh_stash_end_step(stash, r->stream, &again, NULL);
    says(r, again == 1 && has_rows(r, 0, 0),
         "a push that fits in neither is refused");
    gh_stash_destroy(stash);
}

/* Only the last rank has pushed, and all make room for as much. */
static void test_reserve_together(struct rank *r)
{
    gh_stash *stash = stash_of(r, 0);
    gh_error err = { "" };
    uint32_t entry, again = 77;

    gh_stash_add(stash, ROWS_MOST, &entry, NULL);
    says_int(r, gh_stash_reserve(stash, 0, 110, &err), GH_ERR_STATE,
             "nothing is known on any rank");
    set_count(r, 60);
    if (r->rank == r->n - 1) {
        move(r, stash, 0, r->send, true, NULL);
        move(r, stash, 0, r->recv, false, NULL);
    }
    gh_stash_end_step(stash, r->stream, &again, NULL);
    says_int(r, gh_stash_reserve(stash, 0, 110, &err), GH_OK, "pages are made");
    says_int(r, (long long)stats_of(stash).bytes, 9 * PAGE_BYTES,
             "for what the busiest rank has needed");
    if (r->rank == 0) {
        move(r, stash, 0, r->send, true, NULL);
    }
    says_int(r, gh_stash_reserve(stash, 0, 200, &err),
             r->rank == 0 ? GH_ERR_STATE : GH_ERR_RANKS,
             "where one rank cannot, none does: %.160s", err.text);
    says_int(r, (long long)stats_of(stash).bytes, 9 * PAGE_BYTES,
             "and the pages stay");
    gh_stash_destroy(stash);
}

/* ---- what is refused ----------------------------------------------------- */

static void refused(struct rank *r, const gh_stash_desc *desc, gh_status wanted,
                    const char *words)
{
    gh_stash *stash = NULL;
    gh_error err = { "" };

    says_int(r, gh_stash_create(desc, &stash, &err), wanted,
             "no stash is made: %.120s", err.text);
    says(r, strstr(err.text, words) != NULL, "the text has \"%s\"", words);
}

static void test_descriptions(struct rank *r)
{
    gh_stash_desc desc = desc_of(r, 1);
    gh_error err = { "" };

    refused(r, NULL, GH_ERR_INVALID, "desc is NULL");
    says_int(r, gh_stash_create(&desc, NULL, &err), GH_ERR_INVALID,
             "a stash has to go somewhere");
    desc.rank = desc.n_ranks = 3;
    refused(r, &desc, GH_ERR_INVALID, "rank 3 of 3");
    desc.rank = 0;
    desc.comm = NULL;
    refused(r, &desc, GH_ERR_INVALID, "neither comm nor gather");
    desc = desc_of(r, 1);
    desc.flags = 8;
    refused(r, &desc, GH_ERR_INVALID, "flags is 0x8");
    desc = desc_of(r, 1);
    desc.page_bytes = 1000;
    refused(r, &desc, GH_ERR_INVALID, "a multiple of 256");
    desc = desc_of(r, 1);
    desc.bytes = 1;
    refused(r, &desc, GH_ERR_INVALID, "has 0 pages");
    desc = desc_of(r, 1);
    desc.struct_size = 8;
    refused(r, &desc, GH_ERR_ABI, "gh_stash_desc");
    desc = desc_of(r, 1);
    desc.driver = "/none/such.so";
    refused(r, &desc, GH_ERR_NO_DRIVER, "such.so");
    gh_stash_destroy(NULL);
}

static void op_is(struct rank *r, gh_stash *stash, const gh_stash_op *op,
                  bool pushes, const char *words)
{
    gh_error err = { "" };

    says_int(r,
             pushes ? gh_stash_push(stash, op, &err)
                    : gh_stash_pop(stash, op, &err),
             GH_ERR_INVALID, "it is refused: %.160s", err.text);
    says(r, strstr(err.text, words) != NULL, "the text has \"%s\"", words);
}

/* Of entry 0 and one tensor. */
static gh_stash_op op_of(struct rank *r, const gh_stash_tensor *tensor)
{
    return (gh_stash_op){ .struct_size = sizeof(gh_stash_op),
                          .n_tensors = 1,
                          .tensors = tensor,
                          .stream = r->stream };
}

static void test_ops(struct rank *r)
{
    gh_stash *stash = stash_of(r, 4);
    gh_stash_tensor tensor = { address(r->send), 64 };
    gh_stash_op op = op_of(r, &tensor);
    gh_error err = { "" };
    uint32_t entry, again;

    op_is(r, stash, &op, true, "entry 0 of 0");
    says_int(r, gh_stash_add(stash, 0, &entry, &err), GH_ERR_INVALID,
             "no entry is of 0 rows");
    says_int(r, gh_stash_add(stash, 4, &entry, &err), GH_OK, "one of 4 is");
    op_is(r, stash, NULL, true, "op is NULL");
    op_is(r, NULL, &op, true, "stash is NULL");
    op.flags = GH_STASH_CLEAR;
    op_is(r, stash, &op, true, "set none");
    op.flags = 2;
    op_is(r, stash, &op, false, "set GH_STASH_CLEAR");
    op.flags = 0;
    op.n_tensors = 17;
    op_is(r, stash, &op, true, "17 tensors: give 1 to 16");
    op.n_tensors = 1;
    tensor.row_bytes = PAGE_BYTES + 1;
    op_is(r, stash, &op, true, "rows of 1 to 1536 bytes");
    tensor.row_bytes = 64;
    says_int(r, gh_stash_push(stash, &op, &err), GH_OK,
             "without a count all rows are kept");
    tensor.row_bytes = 80;
    op_is(r, stash, &op, false, "was pushed with 64");
    tensor.row_bytes = 64;
    says_int(r, gh_stash_pop(stash, &op, &err), GH_OK, "and come back");
    says_int(r, gh_stash_end_step(stash, r->stream, NULL, &err), GH_ERR_INVALID,
             "an answer has to go somewhere");
    says_int(r, gh_stash_end_step(NULL, r->stream, &again, &err),
             GH_ERR_INVALID, "no stash ends no step");
    gh_stash_destroy(stash);
}

static void test_count_has_an_address(struct rank *r)
{
    gh_stash *stash = stash_of(r, 4);
    gh_stash_tensor tensor = { address(r->send), 64 };
    gh_stash_op op = op_of(r, &tensor);
    gh_error err = { "" };
    uint32_t entry;

    gh_stash_add(stash, 4, &entry, NULL);
    for (uint32_t odd = 1; odd < 4; odd++) {
        op.count = (char *)address(r->recv) + odd;
        op_is(r, stash, &op, true, "the address of an int32_t");
    }
    op.count = NULL;
    says_int(r, gh_stash_push(stash, &op, &err), GH_OK, "all rows are kept");
    op.count = (char *)address(r->recv) + 1;
    says_int(r, gh_stash_pop(stash, &op, &err), GH_OK,
             "a pop does not look at it");
    gh_stash_destroy(stash);
}

static void names_call(struct rank *r, const char *call, const gh_error *err)
{
    const size_t n = strlen(call);

    says(r, strncmp(err->text, call, n) == 0 && err->text[n] == ':',
         "the text begins with %s: %.160s", call, err->text);
}

/* The driver would end the capture where the legacy stream is used. */
static void test_no_memory_in_a_capture(struct rank *r)
{
    gh_stash_desc desc = desc_of(r, 4);
    gh_stash *stash = stash_of(r, 4), *other = NULL;
    CUgraph graph = NULL;
    gh_error err = { "" };
    CUstream stream;
    uint32_t entry;

    drv.cuStreamCreate(&stream, CU_STREAM_DEFAULT);
    drv.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
    says_int(r, gh_stash_add(stash, 4, &entry, &err), GH_ERR_STATE,
             "no entry is made in a capture: %.160s", err.text);
    says(r, strstr(err.text, "end the capture first") != NULL,
         "the text has the remedy");
    names_call(r, "gh_stash_add", &err);
    says_int(r, gh_stash_reserve(stash, 8 * PAGE_BYTES, 0, &err), GH_ERR_STATE,
             "nor pages");
    names_call(r, "gh_stash_reserve", &err);
    says_int(r, gh_stash_create(&desc, &other, &err), GH_ERR_STATE,
             "nor a stash");
    names_call(r, "gh_stash_create", &err);
    says_int(r, drv.cuStreamEndCapture(stream, &graph), CUDA_SUCCESS,
             "the capture lasts");
    drv.cuGraphDestroy(graph);
    drv.cuStreamDestroy(stream);
    says_int(r, gh_stash_add(stash, 4, &entry, &err), GH_OK,
             "and an entry is made after it");
    gh_stash_destroy(stash);
}

/* Ranks that ask each other by a function of the host's. */
struct asking {
    struct rank *r;
    gh_stash *stash; /* once there is one */
    int asked, obeyed;
};

/* It calls what no function of the host's may call. */
static gh_status ask(void *user, uint32_t bank, const uint64_t *mine,
                     uint64_t *all, uint32_t n)
{
    struct asking *a = user;
    gh_error err = { "" };
    uint32_t got;

    (void)bank;
    if (a->stash != NULL) {
        a->asked++;
        a->obeyed +=
            gh_stash_add(a->stash, 4, &got, &err) != GH_ERR_STATE ||
            strstr(err.text, "called from a function of the host's") == NULL;
        a->obeyed += gh_stash_end_step(a->stash, a->r->stream, &got, NULL) !=
                     GH_ERR_STATE;
        gh_stash_destroy(a->stash);
    }
    return ranks_gather(a->r, mine, all, n, 5) ? GH_OK : GH_ERR_RANKS;
}

static void test_by_the_host(struct rank *r)
{
    struct asking asking = { .r = r };
    gh_stash_desc desc = desc_of(r, 4);
    gh_stash *stash = NULL;
    gh_error err = { "" };
    uint32_t again = 2;

    desc.comm = NULL;
    desc.user = &asking;
    desc.gather = ask;
    desc.environment = quiet;
    says_int(r, gh_stash_create(&desc, &stash, &err), GH_OK,
             "ranks that the host brings together make a stash %.120s",
             err.text);
    asking.stash = stash;
    says_int(r, gh_stash_end_step(stash, r->stream, &again, &err), GH_OK,
             "and end a step %.120s", err.text);
    says_int(r, again, 0, "which is valid");
    says(r, asking.asked > 0, "the host was asked");
    says_int(r, asking.obeyed, 0, "and none of its calls was obeyed");
    asking.stash = NULL;
    gh_stash_destroy(stash);
}

/* One rank cannot ask: the others do not wait for it, and know who it was. */
static void test_a_rank_that_fails(struct rank *r)
{
    gh_stash *stash = stash_of(r, 4);
    const bool fails = r->rank == 1;
    gh_error err = { "" };
    uint32_t again = 77;
    CUgraph graph;

    if (fails) {
        drv.cuStreamBeginCapture(r->side, CU_STREAM_CAPTURE_MODE_RELAXED);
    }
    says_int(r, gh_stash_end_step(stash, r->side, &again, &err),
             fails ? GH_ERR_STATE : GH_ERR_RANKS, "no step ends: %.160s",
             err.text);
    says(r,
         strstr(err.text, fails ? "is capturing" : "rank 1 of 2") != NULL &&
             again == 77,
         "the text says why");
    if (fails) {
        drv.cuStreamEndCapture(r->side, &graph);
        drv.cuGraphDestroy(graph);
    }
    says_int(r, gh_stash_end_step(stash, r->side, &again, &err), GH_OK,
             "the next one does");
    gh_stash_destroy(stash);
}

static void test_no_memory(struct rank *r)
{
    gh_stash_desc desc = desc_of(r, r->rank == 1 ? UINT64_C(1) << 30 : 4);
    gh_stash *stash = NULL;
    gh_error err = { "" };

    desc.environment = quiet;
    says_int(r, gh_stash_create(&desc, &stash, &err),
             r->rank == 1 ? GH_ERR_NO_MEMORY : GH_ERR_RANKS,
             "where one rank has no memory, no rank has a stash: %.160s",
             err.text);
}

/* ---- the log ------------------------------------------------------------- */

/* There are pages enough, but not for so many rows of one entry. */
static void test_too_many_rows(struct rank *r)
{
    gh_stash *stash = stash_of(r, 4);
    uint32_t again = 0;

    says_int(r, gh_stash_add(stash, 8, &(uint32_t){ 0 }, NULL), GH_OK,
             "an entry has room for 8 rows");
    set_count(r, 9);
    move(r, stash, 0, r->send, true, NULL);
    move(r, stash, 0, r->recv, false, NULL);
    gh_stash_end_step(stash, r->stream, &again, NULL);
    says_int(r, again, 1, "a push of 9 is refused");
    gh_stash_destroy(stash);
}

/* Runs a test, counts the log's lines, and looks for one that has both. */
static int run_heard(int n, const char *name, void (*test)(struct rank *r),
                     const char *needed, const char *and)
{
    FILE *log = tmpfile();
    const int stderr_was = dup(2);
    char line[1024];
    int said = 0;
    bool has_both = false;

    if (log == NULL || stderr_was < 0) {
        ok(false, "there is a file for the log");
        return 0;
    }
    (void)fflush(stderr);
    dup2(fileno(log), 2);
    ranks_run(n, name, test);
    (void)fflush(stderr); /* which the tests buffer */
    dup2(stderr_was, 2);
    close(stderr_was);
    rewind(log);
    while (fgets(line, sizeof(line), log) != NULL) {
        said += strstr(line, "stash: rank") != NULL;
        has_both |= strstr(line, needed) != NULL && strstr(line, and) != NULL;
    }
    (void)fclose(log);
    ok(has_both, "%s: the log says \"%s\" and \"%s\"", name, needed, and);
    return said;
}

int main(void)
{
    static const struct ranks_test alone[] = {
        { "reserve", test_reserve, false },
        { "suspend", test_suspend, false },
        { "spill", test_spill, false },
        { "descriptions", test_descriptions, false },
        { "ops", test_ops, false },
        { "count", test_count_has_an_address, false },
        { "capture", test_no_memory_in_a_capture, false },
        { "steps", test_steps, false },
    };
    int status;

    if (!ranks_open(&status)) {
        return status;
    }
    ranks_run_all(1, alone, sizeof(alone) / sizeof(alone[0]));
    /* Steps with an overflow in each tenth. */
    is_int(run_heard(4, "replayed", test_replayed, "needed 32256 bytes",
                     "there are 30720: all ranks run it once more"),
           1, "%d steps of 4 ranks that run once more: one line", STEPS / 10);
    is_int(run_heard(1, "too many rows", test_too_many_rows,
                     "more rows than its entry", "a larger max_rows"),
           1, "and one line of a push that is too large for its entry");
    ranks_run(3, "reserve together", test_reserve_together);
    ranks_run(2, "a rank that fails", test_a_rank_that_fails);
    ranks_run(2, "by the host", test_by_the_host);
    if (ranks_are_soft()) {
        ranks_run(2, "no memory", test_no_memory);
        ranks_quiet(true);
        for (int seed = 2; seed < 8; seed++) {
            ranks_seed(seed);
            ranks_run(2, "seeds", test_replayed);
        }
        ranks_quiet(false);
        ok(true, "6 seeds are exact, and have no race");
        is_int(ranks_left(), 0, "nothing is left");
    }
    return done_testing();
}
