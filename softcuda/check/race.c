/*
 * race.c - which accesses to memory came before which.
 *
 * Every allocation remembers, for each range, the last write and the reads
 * since then that no later read replaces.  An access that covers ranges
 * replaces them if it writes, and splits them if it only reads.  So there are
 * as few ranges as the program has tensors.
 *
 * Two conflicting accesses are a race unless one comes after the other by
 * happens-before, even if the order in which they ran gave the right values.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "softcuda/check/race.h"

#include "softcuda/check/labels.h"
#include "softcuda/check/report.h"
#include "softcuda/engine/op.h"
#include "softcuda/engine/order.h"
#include "softcuda/engine/work.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct access {
    uint64_t epoch; /* 0: none */
    const char *name;
    size_t offset, bytes;
    uint32_t lane, stream, graph, node;
};

struct range {
    struct range *next; /* in the free list */
    struct access write;
    struct access *reads;
    uint32_t n_reads, room;
    struct access one; /* reads points here until there are two */
};

/* A range.  It ends where the next entry starts, or with the allocation. */
struct shadow_entry {
    size_t start;
    struct range *range;
};

static struct range *free_ranges;

static struct reports races;

static struct range *range_new(void)
{
    struct range *range = free_ranges;

    if (range != NULL) {
        free_ranges = range->next;
    } else {
        range = malloc(sizeof(*range));
        if (range == NULL) {
            abort();
        }
    }
    memset(range, 0, sizeof(*range));
    range->reads = &range->one;
    range->room = 1;
    return range;
}

static void range_free(struct range *range)
{
    if (range->reads != &range->one) {
        free(range->reads);
    }
    range->next = free_ranges;
    free_ranges = range;
}

static void add_read(struct range *range, const struct access *access)
{
    if (range->n_reads == range->room) {
        uint32_t room = range->room * 2;
        struct access *larger = malloc(room * sizeof(*larger));

        if (larger == NULL) {
            abort();
        }
        memcpy(larger, range->reads, range->n_reads * sizeof(*larger));
        if (range->reads != &range->one) {
            free(range->reads);
        }
        range->reads = larger;
        range->room = room;
    }
    range->reads[range->n_reads++] = *access;
}

static struct range *range_copy(const struct range *from)
{
    struct range *range = range_new();

    range->write = from->write;
    for (uint32_t i = 0; i < from->n_reads; i++) {
        add_read(range, &from->reads[i]);
    }
    return range;
}

static bool comes_after(const struct op *op, const struct access *access)
{
    return access->lane == op->at.lane ||
           access->epoch <= vc_get(op->at.vc, access->lane);
}

static void describe(const struct access *access, bool write, char *text,
                     size_t bytes)
{
    char graph[48] = "";

    if (access->graph != 0) {
        snprintf(graph, sizeof(graph), " in graph %u, node %u", access->graph,
                 access->node);
    }
    snprintf(text, bytes, "%s on stream %u%s %s bytes %zu..%zu", access->name,
             access->stream, graph, write ? "writes" : "reads", access->offset,
             access->offset + access->bytes);
}

/* Whether this pair is new.  The same pair at another address or in another
 * step is the same race. */
static bool is_news(const struct access *a, const struct access *b, bool a_w,
                    bool b_w)
{
    const uint64_t where[] = { a->stream,     b->stream, a->graph != 0,
                               b->graph != 0, a_w,       b_w };
    uint64_t hash = hash_text(hash_text(hash_start(), a->name), b->name);

    for (size_t i = 0; i < sizeof(where) / sizeof(where[0]); i++) {
        hash = hash_number(hash, where[i]);
    }
    return reports_is_news(&races, hash);
}

static void report(const struct alloc *alloc, const struct access *a, bool a_w,
                   const struct access *b, bool b_w, const struct op *op)
{
    char first[256], second[256], text[768], whose[128];

    if (!is_news(a, b, a_w, b_w)) {
        return;
    }
    describe(a, a_w, first, sizeof(first));
    describe(b, b_w, second, sizeof(second));
    labels_show(alloc, b->offset, op, whose, sizeof(whose));
    snprintf(text, sizeof(text),
             "%s, unordered with %s, of %s allocation %llu (%zu bytes)%s",
             second, first, alloc->side == SIDE_DEVICE ? "device" : "pinned",
             (unsigned long long)alloc->number, alloc->bytes, whose);
    reports_add(&races, "race", text);
}

static void check_write(const struct alloc *alloc, const struct range *range,
                        const struct access *access, bool write,
                        const struct op *op)
{
    if (range->write.epoch != 0 && !comes_after(op, &range->write)) {
        report(alloc, &range->write, true, access, write, op);
    }
}

/* Compares an access with the reads of a range.  Reads that come before it are
 * dropped, because whatever races with them races with this access too. */
static void check_reads(const struct alloc *alloc, struct range *range,
                        const struct access *access, bool write,
                        const struct op *op)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < range->n_reads; i++) {
        if (comes_after(op, &range->reads[i])) {
            continue;
        }
        if (write) {
            report(alloc, &range->reads[i], false, access, true, op);
        }
        range->reads[kept++] = range->reads[i];
    }
    range->n_reads = write ? 0 : kept;
}

/* The entry that covers the offset. */
static uint32_t find(const struct shadow *shadow, size_t offset)
{
    uint32_t low = 0, high = shadow->n;

    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;

        if (shadow->entries[middle].start <= offset) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

static void insert(struct shadow *shadow, uint32_t at, size_t start,
                   struct range *range)
{
    if (shadow->n == shadow->room) {
        uint32_t room = shadow->room ? shadow->room * 2 : 4;
        struct shadow_entry *larger =
            realloc(shadow->entries, room * sizeof(*larger));

        if (larger == NULL) {
            abort();
        }
        shadow->entries = larger;
        shadow->room = room;
    }
    memmove(&shadow->entries[at + 1], &shadow->entries[at],
            (shadow->n - at) * sizeof(shadow->entries[0]));
    shadow->entries[at] = (struct shadow_entry){ start, range };
    shadow->n++;
}

/* Makes an entry start at the offset, and returns its index. */
static uint32_t split(struct alloc *alloc, size_t offset)
{
    struct shadow *shadow = &alloc->shadow;
    uint32_t i;

    if (offset == alloc->bytes) {
        return shadow->n;
    }
    i = find(shadow, offset);
    if (shadow->entries[i].start == offset) {
        return i;
    }
    insert(shadow, i + 1, offset, range_copy(shadow->entries[i].range));
    return i + 1;
}

void race_access(struct alloc *alloc, size_t offset, size_t bytes, bool write,
                 const struct op *op)
{
    struct shadow *shadow = &alloc->shadow;
    struct access access = { op->at.epoch, work_name(op->work),
                             offset,       bytes,
                             op->at.lane,  op->stream,
                             op->graph,    op->node };
    uint32_t first, past;

    if (shadow->n == 0) {
        insert(shadow, 0, 0, range_new());
    }
    first = split(alloc, offset);
    past = split(alloc, offset + bytes);

    for (uint32_t i = first; i < past; i++) {
        struct range *range = shadow->entries[i].range;

        check_write(alloc, range, &access, write, op);
        check_reads(alloc, range, &access, write, op);
        if (!write) {
            add_read(range, &access);
        }
    }
    if (write) {
        shadow->entries[first].range->write = access;
        for (uint32_t i = first + 1; i < past; i++) {
            range_free(shadow->entries[i].range);
        }
        if (past > first + 1) {
            memmove(&shadow->entries[first + 1], &shadow->entries[past],
                    (shadow->n - past) * sizeof(shadow->entries[0]));
            shadow->n -= past - first - 1;
        }
    }
}

void shadow_clear(struct shadow *shadow)
{
    for (uint32_t i = 0; i < shadow->n; i++) {
        range_free(shadow->entries[i].range);
    }
    free(shadow->entries);
    *shadow = (struct shadow){ NULL, 0, 0 };
}

void race_forget(void)
{
    struct alloc *alloc;

    for (size_t i = 0; (alloc = alloc_nth(i)) != NULL; i++) {
        shadow_clear(&alloc->shadow);
    }
    reports_forget(&races);
}

uint64_t race_read_report(uint64_t i, const char **text_p)
{
    return reports_read(&races, i, text_p);
}
