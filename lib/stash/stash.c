/*
 * stash.c - pages on the device for rows that are kept until the backward.
 *
 * The device alone knows who holds which page: the state has the free ones, and
 * each entry has a record of its own.  The host reads the state once a step.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "stash/stash.h"

#include "base/error.h"
#include "base/gate.h"
#include "comm/comm.h"

#include <stdlib.h>
#include <string.h>

#define PAGE_BYTES (UINT64_C(256) << 10)

struct entry {
    void *record;
    uint32_t max_rows;
    uint64_t row_bytes; /* of the last push: all tensors */
};

struct gh_stash {
    struct gh_device *dev;
    struct gh_log log;
    struct gh_gate gate;
    struct gh_comm *comm; /* NULL: this rank is alone */
    uint32_t rank, n;
    uint32_t timeout_s;
    uint64_t page_bytes;
    struct entry *entries;
    uint32_t n_entries, room;
    void *state, *pool;                /* on the device; pool NULL: no pages */
    struct gh_stash_state_words *seen; /* pinned: the state as it was */
    uint64_t granule;     /* of memory that is mapped; 0: the pool is of
                             cuMemAlloc */
    uint64_t pool_bytes;  /* in granules */
    bool suspends, suspended;
    uint32_t n_pages;
    uint64_t spill_bytes; /* that were asked for */
    void *spill;          /* pinned, once there are pages */
    bool captured;       /* graphs have the addresses */
    bool pushed;         /* since the last step ended */
    uint64_t said_bytes; /* needed, in the last line of the log */
    gh_stash_stats stats;
};

/* ---- pages --------------------------------------------------------------- */

/* New memory is written on the legacy stream, which would end a capture that it
 * waits for.  Other captures are not known, and last. */
static gh_status check_not_captured(const gh_stash *stash, const char *call,
                                    gh_error *err)
{
    return gh_device_host_captures(stash->dev, NULL)
               ? gh_fail(err, GH_ERR_STATE,
                         "%s: the host is capturing a stream, in which no "
                         "memory is made: end the capture first",
                         call)
               : GH_OK;
}

/* Writes a state of so many pages, all of them free. */
static gh_status write_state(gh_stash *stash, void *state, uint32_t n_pages,
                             gh_error *err)
{
    const uint32_t n_spill =
        n_pages > 0 ? (uint32_t)(stash->spill_bytes / stash->page_bytes) : 0;
    const uint64_t bytes =
        gh_device_stash_state_bytes((uint64_t)n_pages + n_spill);
    struct gh_stash_state_words *words;
    uint32_t *free_pages;
    gh_status status;

    status = gh_device_host_alloc(stash->dev, bytes, (void **)&words, err);
    if (status != GH_OK) {
        return status;
    }
    memset(words, 0, sizeof(*words));
    words->n_pages = words->n_free = n_pages;
    words->spill_pages = words->spill_free = n_spill;
    free_pages = (uint32_t *)(words + 1);
    for (uint32_t i = 0; i < n_pages; i++) {
        free_pages[i] = n_pages - 1 - i; /* the first page is taken first */
    }
    for (uint32_t i = 0; i < n_spill; i++) {
        free_pages[n_pages + i] = n_spill - 1 - i;
    }
    status = gh_device_copy_back(stash->dev, state, words, bytes, NULL, err);
    if (status == GH_OK) {
        status = gh_device_stream_wait(stash->dev, NULL, err);
    }
    gh_device_host_free(stash->dev, words);
    return status;
}

static void free_pool(gh_stash *stash, void *pool, uint64_t bytes,
                      bool mapped)
{
    if (stash->granule == 0) {
        gh_device_free(stash->dev, pool);
    } else if (pool != NULL) {
        if (!mapped ||
            gh_device_unmap(stash->dev, pool, bytes, NULL) == GH_OK) {
            gh_device_unreserve(stash->dev, pool, bytes);
        }
    }
}

static gh_status make_pool(gh_stash *stash, uint64_t bytes, void **pool_p,
                           gh_error *err)
{
    void *pool = NULL;
    gh_status status;

    if (stash->granule == 0) {
        return gh_device_alloc(stash->dev, bytes, pool_p, err);
    }
    status = gh_device_reserve(stash->dev, bytes, &pool, err);
    if (status == GH_OK) {
        status = gh_device_map(stash->dev, pool, bytes, err);
    }
    if (status != GH_OK) {
        free_pool(stash, pool, bytes, false);
        return status;
    }
    *pool_p = pool;
    return GH_OK;
}

static uint64_t whole_granules(const gh_stash *stash, uint64_t bytes)
{
    const uint64_t granule = stash->granule != 0 ? stash->granule : 1;

    return (bytes + granule - 1) / granule * granule;
}

/* Makes a state and a pool.  What there was stays if that fails. */
static gh_status make_pages(gh_stash *stash, uint64_t bytes, gh_error *err)
{
    const uint64_t n = bytes / stash->page_bytes;
    const uint64_t pool_bytes = whole_granules(stash, n * stash->page_bytes);
    void *state = NULL, *pool = NULL;
    gh_status status;

    if ((bytes != 0 && n == 0) || n > UINT32_MAX / 2) {
        return gh_fail(err, GH_ERR_INVALID,
                       "a stash of %llu bytes has %llu pages of %llu bytes: "
                       "give it one to 2147483647 of them",
                       (unsigned long long)bytes, (unsigned long long)n,
                       (unsigned long long)stash->page_bytes);
    }
    status = check_not_captured(
        stash, stash->state == NULL ? "gh_stash_create" : "gh_stash_reserve",
        err);
    if (status != GH_OK) {
        return status;
    }
    status = gh_device_alloc(
        stash->dev,
        gh_device_stash_state_bytes(n + stash->spill_bytes / stash->page_bytes),
        &state, err);
    if (status == GH_OK && n > 0) {
        status = make_pool(stash, pool_bytes, &pool, err);
    }
    if (status == GH_OK && n > 0 && stash->spill_bytes > 0 &&
        stash->spill == NULL) {
        status = gh_device_host_alloc(stash->dev, stash->spill_bytes,
                                      &stash->spill, err);
        stash->stats.spill_bytes = stash->spill_bytes;
    }
    if (status == GH_OK) {
        status = write_state(stash, state, (uint32_t)n, err);
    }
    if (status != GH_OK) {
        free_pool(stash, pool, pool_bytes, true);
        gh_device_free(stash->dev, state);
        return status;
    }
    free_pool(stash, stash->pool, stash->pool_bytes, true);
    gh_device_free(stash->dev, stash->state);
    stash->state = state;
    stash->pool = pool;
    stash->pool_bytes = pool_bytes;
    stash->n_pages = (uint32_t)n;
    stash->stats.bytes = n * stash->page_bytes;
    return GH_OK;
}

/* ---- entries ------------------------------------------------------------- */

gh_status gh_stash_make_entry(gh_stash *stash, uint32_t max_rows,
                              uint32_t *entry_p, gh_error *err)
{
    const uint64_t bytes = gh_device_stash_record_bytes(max_rows);
    void *record = NULL;
    gh_status status = check_not_captured(stash, "gh_stash_add", err);

    if (status != GH_OK) {
        return status;
    }
    if (stash->n_entries == stash->room) {
        const uint32_t room = stash->room == 0 ? 16 : stash->room * 2;
        struct entry *larger = realloc(stash->entries, room * sizeof(*larger));

        if (larger == NULL) {
            return gh_fail(err, GH_ERR_NO_MEMORY, "no memory for %u entries",
                           room);
        }
        stash->entries = larger;
        stash->room = room;
    }
    status = gh_device_alloc(stash->dev, bytes, &record, err);
    if (status == GH_OK) {
        status = gh_device_zero(stash->dev, record, bytes, NULL, err);
    }
    if (status == GH_OK) {
        status = gh_device_stream_wait(stash->dev, NULL, err);
    }
    if (status != GH_OK) {
        gh_device_free(stash->dev, record);
        return status;
    }
    stash->entries[stash->n_entries] =
        (struct entry){ .record = record, .max_rows = max_rows };
    *entry_p = stash->n_entries++;
    return GH_OK;
}

/* ---- pushes and pops ----------------------------------------------------- */

static gh_status check_op(const gh_stash *stash, const gh_stash_op *op,
                          const char *call, uint64_t *row_bytes_p,
                          gh_error *err)
{
    uint64_t sum = 0;

    if (op->entry >= stash->n_entries) {
        return gh_fail(err, GH_ERR_INVALID,
                       "%s: entry %u of %u: add it with gh_stash_add", call,
                       op->entry, stash->n_entries);
    }
    for (uint32_t i = 0; i < op->n_tensors; i++) {
        const uint64_t bytes = op->tensors[i].row_bytes;

        if (op->tensors[i].rows == NULL || bytes == 0 ||
            bytes > stash->page_bytes) {
            return gh_fail(err, GH_ERR_INVALID,
                           "%s: tensor %u at %p has rows of %llu bytes: give "
                           "an address, and rows of 1 to %llu bytes (a page)",
                           call, i, op->tensors[i].rows,
                           (unsigned long long)bytes,
                           (unsigned long long)stash->page_bytes);
        }
        sum += bytes;
    }
    if (sum > stash->page_bytes) {
        return gh_fail(err, GH_ERR_INVALID,
                       "%s: a row of all tensors has %llu bytes, and a page "
                       "%llu: set gh_stash_desc.page_bytes to several rows",
                       call, (unsigned long long)sum,
                       (unsigned long long)stash->page_bytes);
    }
    *row_bytes_p = sum;
    return GH_OK;
}

gh_status gh_stash_issue(gh_stash *stash, const gh_stash_op *op, bool pushes,
                         gh_error *err)
{
    const char *call = pushes ? "gh_stash_push" : "gh_stash_pop";
    struct gh_stashing to;
    struct entry *entry;
    uint64_t row_bytes = 0;
    gh_status status = check_op(stash, op, call, &row_bytes, err);

    if (status != GH_OK) {
        return status;
    }
    entry = &stash->entries[op->entry];
    if (!pushes && entry->row_bytes != row_bytes && entry->row_bytes != 0) {
        return gh_fail(err, GH_ERR_INVALID,
                       "gh_stash_pop: a row of entry %u has %llu bytes, and "
                       "was pushed with %llu: give the same tensors",
                       op->entry, (unsigned long long)row_bytes,
                       (unsigned long long)entry->row_bytes);
    }
    entry->row_bytes = row_bytes;
    to = (struct gh_stashing){ .state = stash->state,
                               .record = entry->record,
                               .pool = stash->pool,
                               .spill = stash->spill,
                               .page_bytes = stash->page_bytes,
                               .page_rows =
                                   (uint32_t)(stash->page_bytes / row_bytes),
                               .max_rows = entry->max_rows,
                               .count = op->count,
                               .clears = (op->flags & GH_STASH_CLEAR) != 0,
                               .n = op->n_tensors };
    for (uint32_t i = 0; i < op->n_tensors; i++) {
        to.rows[i] = op->tensors[i].rows;
        to.row_bytes[i] = op->tensors[i].row_bytes;
    }
    stash->pushed |= pushes;
    stash->captured |= gh_device_is_capturing(stash->dev, op->stream);
    return pushes ? gh_device_stash_push(stash->dev, &to, op->stream, err)
                  : gh_device_stash_pop(stash->dev, &to, op->stream, err);
}

/* ---- the end of a step --------------------------------------------------- */

/* Reads the counts, and begins new ones. */
static gh_status read_state(gh_stash *stash, void *stream, gh_error *err)
{
    gh_status status;

    if (gh_device_is_capturing(stash->dev, stream)) {
        return gh_fail(err, GH_ERR_STATE,
                       "gh_stash_end_step: the stream is capturing: end the "
                       "step after the capture");
    }
    status = gh_device_copy_out(stash->dev, stash->seen, stash->state,
                                sizeof(*stash->seen), stream, err);
    if (status == GH_OK) {
        status = gh_device_zero(stash->dev,
                                (char *)stash->state +
                                    offsetof(struct gh_stash_state_words, most),
                                GH_STASH_STEP_BYTES, stream, err);
    }
    if (status == GH_OK) {
        status = gh_device_stream_wait(stash->dev, stream, err);
    }
    return status;
}

static void count_step(gh_stash *stash)
{
    const struct gh_stash_state_words *seen = stash->seen;
    gh_stash_stats *stats = &stash->stats;

    stash->pushed = false;
    stats->steps++;
    stats->held_bytes = (uint64_t)(seen->n_pages - seen->n_free +
                                   seen->spill_pages - seen->spill_free) *
                        stash->page_bytes;
    stats->spilled += seen->spilled;
    stats->step_peak_bytes = (uint64_t)seen->most * stash->page_bytes;
    if (stats->step_peak_bytes > stats->peak_bytes) {
        stats->peak_bytes = stats->step_peak_bytes;
    }
    stats->refused += stash->n_pages > 0 ? seen->refused : 0;
}

/* What a rank tells the others. */
enum {
    WORD_STATUS,
    WORD_REFUSED,
    WORD_WANTED, /* bytes */
    WORD_BYTES,
    N_WORDS
};

static gh_status gather(gh_stash *stash, const uint64_t *mine,
                        const uint64_t **all_p, gh_error *err)
{
    const uint64_t *all = mine;

    if (stash->comm != NULL) {
        gh_status status =
            gh_comm_gather(stash->comm, mine, N_WORDS, &all, err);

        if (status != GH_OK) {
            return status;
        }
    }
    for (uint32_t i = 0; i < stash->n; i++) {
        const gh_status theirs =
            (gh_status)(int64_t)all[(size_t)i * N_WORDS + WORD_STATUS];

        if (theirs != GH_OK) {
            return gh_fail(err, GH_ERR_RANKS,
                           "stash: rank %u of %u has failed (%s); its own "
                           "text says why",
                           i, stash->n, gh_status_name(theirs));
        }
    }
    *all_p = all;
    return GH_OK;
}

/* All ranks have the same words, and one of them says it. */
static void say(gh_stash *stash, const uint64_t *all, uint32_t first)
{
    const uint64_t *words = all + (size_t)first * N_WORDS;

    if (words[WORD_WANTED] <= stash->said_bytes) {
        return;
    }
    stash->said_bytes = words[WORD_WANTED];
    if (stash->rank == first && words[WORD_WANTED] <= words[WORD_BYTES]) {
        gh_log_line(&stash->log, GH_LOG_WARN,
                    "stash: rank %u of %u: a push was refused, though a step "
                    "needed %llu bytes of pages, and there are %llu: it had "
                    "more rows than its entry, or more than either the device "
                    "or the host had pages for; all ranks run the step once "
                    "more without the stash; give gh_stash_add() a larger "
                    "max_rows, or the device more bytes",
                    first, stash->n, (unsigned long long)words[WORD_WANTED],
                    (unsigned long long)words[WORD_BYTES]);
    } else if (stash->rank == first) {
        gh_log_line(&stash->log, GH_LOG_WARN,
                    "stash: rank %u of %u: a step needed %llu bytes of pages, "
                    "and there are %llu: all ranks run it once more without "
                    "the stash; give it at least %llu bytes",
                    first, stash->n, (unsigned long long)words[WORD_WANTED],
                    (unsigned long long)words[WORD_BYTES],
                    (unsigned long long)words[WORD_WANTED]);
    }
}

gh_status gh_stash_ask(gh_stash *stash, void *stream, uint32_t *rerun_p,
                       gh_error *err)
{
    uint64_t mine[N_WORDS] = { 0 };
    const uint64_t *all;
    uint32_t worst = stash->n;
    gh_status own = read_state(stash, stream, err), status;

    if (own == GH_OK) {
        count_step(stash);
        mine[WORD_REFUSED] = stash->n_pages > 0 ? stash->seen->refused : 0;
        mine[WORD_WANTED] = stash->stats.step_peak_bytes;
        mine[WORD_BYTES] = stash->stats.bytes + stash->stats.spill_bytes;
    }
    mine[WORD_STATUS] = (uint64_t)(int64_t)own;
    status = gather(stash, mine, &all, own == GH_OK ? err : NULL);
    if (own != GH_OK || status != GH_OK) {
        return own != GH_OK ? own : status;
    }
    for (uint32_t i = 0; i < stash->n; i++) {
        const uint64_t *words = all + (size_t)i * N_WORDS;

        if (words[WORD_REFUSED] != 0 &&
            (worst == stash->n ||
             words[WORD_WANTED] > all[(size_t)worst * N_WORDS + WORD_WANTED])) {
            worst = i;
        }
    }
    if (worst < stash->n) {
        stash->stats.reruns++;
        say(stash, all, worst);
    }
    *rerun_p = worst < stash->n;
    return GH_OK;
}

/* ---- a budget ------------------------------------------------------------ */

static gh_status check_reserve(const gh_stash *stash, gh_error *err)
{
    if (stash->captured) {
        return gh_fail(err, GH_ERR_STATE,
                       "gh_stash_reserve: a push was captured, and graphs have "
                       "the pages' addresses: reserve before the first one");
    }
    if (stash->pushed || stash->stats.held_bytes != 0 ||
        stash->seen->missing != 0) {
        return gh_fail(err, GH_ERR_STATE,
                       "gh_stash_reserve: %s: pop every entry, and end the "
                       "step",
                       stash->pushed
                           ? "a step has begun to push"
                           : "a push of the last step was not popped");
    }
    return GH_OK;
}

/* Tells the other ranks whether this one has failed, and what it has needed.
 * `mine` is room for its own words: without other ranks those are all. */
static gh_status share(gh_stash *stash, gh_status own, uint64_t *mine,
                       const uint64_t **all_p, gh_error *err)
{
    gh_status status;

    memset(mine, 0, N_WORDS * sizeof(*mine));
    mine[WORD_STATUS] = (uint64_t)(int64_t)own;
    mine[WORD_WANTED] = stash->stats.peak_bytes;
    status = gather(stash, mine, all_p, own == GH_OK ? err : NULL);
    return own != GH_OK ? own : status;
}

/* A rank that is idle now may be the busiest one later, so all make room for
 * what any has needed. */
static gh_status reserve_by_need(gh_stash *stash, uint32_t percent,
                                 gh_error *err)
{
    gh_status status = check_reserve(stash, err);
    uint64_t mine[N_WORDS];
    const uint64_t *all;
    uint64_t pages = 0;

    status = share(stash, status, mine, &all, err);
    if (status != GH_OK) {
        return status;
    }
    for (uint32_t i = 0; i < stash->n; i++) {
        const uint64_t bytes = all[(size_t)i * N_WORDS + WORD_WANTED];
        const uint64_t n = (bytes + stash->page_bytes - 1) / stash->page_bytes;

        pages = n > pages ? n : pages;
    }
    if (pages == 0) {
        return gh_fail(err, GH_ERR_STATE,
                       "gh_stash_reserve: no step has pushed rows and ended, "
                       "so nothing is known: give bytes, or run a step before");
    }
    /* A page is not cut. */
    status = make_pages(stash, (pages * percent + 99) / 100 * stash->page_bytes,
                        err);
    return share(stash, status, mine, &all, err);
}

gh_status gh_stash_make_pages(gh_stash *stash, uint64_t bytes, uint32_t percent,
                              gh_error *err)
{
    gh_status status;

    if (bytes == 0) {
        return reserve_by_need(stash, percent, err);
    }
    status = check_reserve(stash, err);
    return status == GH_OK ? make_pages(stash, bytes, err) : status;
}

/* ---- memory -------------------------------------------------------------- */

/* Whether all pages are free is known to the device alone: replays push and pop
 * without a call. */
static gh_status check_empty(gh_stash *stash, void *stream, gh_error *err)
{
    const struct gh_stash_state_words *seen = stash->seen;
    gh_status status;
    uint32_t held;

    if (gh_device_is_capturing(stash->dev, stream)) {
        return gh_fail(err, GH_ERR_STATE,
                       "gh_stash_suspend: the stream is capturing: end the "
                       "capture first");
    }
    status = gh_device_copy_out(stash->dev, stash->seen, stash->state,
                                sizeof(*stash->seen), stream, err);
    if (status == GH_OK) {
        status = gh_device_stream_wait(stash->dev, stream, err);
    }
    held = seen->n_pages - seen->n_free + seen->spill_pages - seen->spill_free;
    if (status == GH_OK && held != 0) {
        status = gh_fail(err, GH_ERR_STATE,
                         "gh_stash_suspend: %u pages hold rows: pop every "
                         "entry first",
                         held);
    }
    return status;
}

gh_status gh_stash_give(gh_stash *stash, void *stream, gh_error *err)
{
    uint64_t granule;
    gh_status status;

    if (!stash->suspends) {
        return gh_fail(err, GH_ERR_UNSUPPORTED,
                       "gh_stash_suspend: the addresses of the pages are not "
                       "reserved: set GH_STASH_SUSPENDS in "
                       "gh_stash_desc.flags");
    }
    if (stash->granule == 0) {
        status = gh_device_granule(stash->dev, &granule, err);
        return status != GH_OK
                   ? status
                   : gh_fail(err, GH_ERR_UNSUPPORTED,
                             "gh_stash_suspend: memory could not be mapped "
                             "when the stash was made");
    }
    status = check_empty(stash, stream, err);
    if (status == GH_OK && stash->pool != NULL) {
        status =
            gh_device_unmap(stash->dev, stash->pool, stash->pool_bytes, err);
    }
    if (status == GH_OK) {
        stash->suspended = true;
        stash->gate.open = NULL;
    }
    return status;
}

bool gh_stash_is_suspended(const gh_stash *stash)
{
    return stash->suspended;
}

gh_status gh_stash_take(gh_stash *stash, gh_error *err)
{
    gh_status status = GH_OK;

    if (stash->pool != NULL) {
        status = gh_device_map(stash->dev, stash->pool, stash->pool_bytes, err);
    }
    if (status == GH_OK) {
        stash->suspended = false;
        stash->gate.open = stash;
    }
    return status;
}

/* ---- the whole ----------------------------------------------------------- */

static void end(gh_stash *stash, struct gh_comm_parting *parting)
{
    for (uint32_t i = 0; i < stash->n_entries; i++) {
        gh_device_free(stash->dev, stash->entries[i].record);
    }
    free_pool(stash, stash->pool, stash->pool_bytes, !stash->suspended);
    gh_device_free(stash->dev, stash->state);
    gh_device_host_free(stash->dev, stash->seen);
    gh_device_host_free(stash->dev, stash->spill);
    gh_comm_close(stash->comm, parting);
    free(stash->entries);
    free(stash);
}

static gh_status meet(gh_stash *stash, const gh_stash_desc *desc, gh_error *err)
{
    const gh_ranks ranks = {
        .struct_size = sizeof(ranks),
        .rank = stash->rank,
        .size = stash->n,
        .comm = desc->gather == NULL ? desc->comm : NULL,
        .nccl = desc->nccl,
        .user = desc->user,
        .gather = desc->gather,
    };

    if (stash->n == 1) {
        return GH_OK;
    }
    return gh_comm_open(stash->dev, &ranks, "the stash", stash->timeout_s,
                        &stash->gate, &stash->log, &stash->comm, err);
}

static gh_status make_side(gh_stash *stash, const gh_stash_desc *desc,
                           gh_error *err)
{
    gh_status status = gh_device_host_alloc(stash->dev, sizeof(*stash->seen),
                                            (void **)&stash->seen, err);

    if (status != GH_OK) {
        return status;
    }
    memset(stash->seen, 0, sizeof(*stash->seen));
    return make_pages(stash, desc->bytes, err);
}

gh_status gh_stash_open(struct gh_device *dev, const gh_stash_desc *desc,
                        const struct gh_stash_options *options,
                        gh_stash **stash_p, gh_error *err)
{
    gh_stash *stash = calloc(1, sizeof(*stash));
    uint64_t mine[N_WORDS] = { 0 };
    const uint64_t *all;
    gh_status status, met;
    gh_error why;

    if (stash == NULL) {
        return gh_fail(err, GH_ERR_NO_MEMORY, "no memory for a stash");
    }
    stash->dev = dev;
    stash->log = options->log;
    stash->timeout_s = options->timeout_s;
    stash->rank = desc->rank;
    stash->n = desc->n_ranks > 1 ? desc->n_ranks : 1;
    stash->page_bytes = desc->page_bytes != 0 ? desc->page_bytes : PAGE_BYTES;
    stash->stats.page_bytes = stash->page_bytes;
    stash->spill_bytes =
        desc->spill_bytes / stash->page_bytes * stash->page_bytes;
    stash->suspends = (desc->flags & GH_STASH_SUSPENDS) != 0;
    if (stash->suspends) {
        (void)gh_device_granule(dev, &stash->granule, NULL);
    }
    status = make_side(stash, desc, err);
    met = meet(stash, desc, &why);
    if (met == GH_OK) {
        mine[WORD_STATUS] = (uint64_t)(int64_t)status;
        met = gather(stash, mine, &all, &why);
    }
    if (status == GH_OK && met != GH_OK) {
        status = gh_fail(err, met, "%s", why.text);
    }
    if (status != GH_OK) {
        end(stash, NULL);
        return status;
    }
    if (stash->n > 1) {
        gh_device_limit_waits(dev, stash->timeout_s);
    }
    stash->gate.open = stash;
    *stash_p = stash;
    return GH_OK;
}

void gh_stash_close(gh_stash *stash)
{
    struct gh_device *dev = stash->dev;
    struct gh_device_before before = gh_device_enter(dev);
    struct gh_comm_parting parting = { NULL, 0, 0, 0 };

    stash->gate.open = NULL;
    end(stash, &parting);
    gh_device_leave(dev, before);
    gh_device_close(dev);
    gh_comm_part(&parting);
}

bool gh_stash_is_free(const gh_stash *stash)
{
    return stash->gate.open != NULL;
}

const struct gh_log *gh_stash_log(const gh_stash *stash)
{
    return &stash->log;
}

struct gh_device *gh_stash_device(const gh_stash *stash)
{
    return stash->dev;
}

void gh_stash_count(const gh_stash *stash, gh_stash_stats *stats)
{
    *stats = stash->stats;
    stats->entries = stash->n_entries;
    for (uint32_t i = 0; i < stash->n_entries; i++) {
        stats->worst_case_bytes +=
            (uint64_t)stash->entries[i].max_rows * stash->entries[i].row_bytes;
    }
}
