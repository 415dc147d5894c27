/*
 * unwritten.c - which bytes of memory nothing has written yet.
 *
 * Every allocation begins as one hole, and writes fill it.  What is discarded
 * is a hole again.  A copy takes the holes of its source along, because anyone
 * may copy padding.  Whoever depends on bytes of a hole, such as a kernel that
 * reads them or a copy to the host, has used what was never written.  Holes are
 * kept whether or not they are reported, so that reports can begin at any time.
 *
 * The CPU writes pinned memory without a call.  There, a hole is where no
 * operation has written, and only bytes that still hold what new memory began
 * with are unwritten.  A run of less than 16 such bytes may be padding between
 * values that the CPU has written, unless nothing else is read.
 *
 * Invariant: holes are sorted, none is empty, and no two of them touch.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "softcuda/check/unwritten.h"

#include "softcuda/check/pinned_pattern.h"
#include "softcuda/check/labels.h"
#include "softcuda/check/report.h"
#include "softcuda/engine/op.h"
#include "softcuda/engine/outside.h"
#include "softcuda/engine/work.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    RUN_LEAST = 16 /* bytes, in pinned memory */
};

static struct reports unwritten;

/* The index of the first hole that ends above the offset. */
static uint32_t above(const struct holes *holes, size_t offset)
{
    uint32_t low = 0, high = holes->n;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if (holes->v[middle].end > offset) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

static void insert(struct holes *holes, uint32_t at, struct hole hole)
{
    if (holes->n == holes->room) {
        uint32_t room = holes->room ? holes->room * 2 : 4;
        struct hole *larger = realloc(holes->v, room * sizeof(*larger));

        if (larger == NULL) {
            abort(); /* without the hole its reads would not be found */
        }
        holes->v = larger;
        holes->room = room;
    }
    memmove(&holes->v[at + 1], &holes->v[at],
            (holes->n - at) * sizeof(holes->v[0]));
    holes->v[at] = hole;
    holes->n++;
}

static void erase(struct holes *holes, uint32_t first, uint32_t past)
{
    memmove(&holes->v[first], &holes->v[past],
            (holes->n - past) * sizeof(holes->v[0]));
    holes->n -= past - first;
}

static void fill(struct holes *holes, struct hole range)
{
    uint32_t first = above(holes, range.first), past;

    if (first < holes->n && holes->v[first].first < range.first) {
        size_t end = holes->v[first].end;

        holes->v[first++].end = range.first;
        if (end > range.end) {
            insert(holes, first, (struct hole){ range.end, end });
            return;
        }
    }
    past = above(holes, range.end);
    if (past < holes->n && holes->v[past].first < range.end) {
        holes->v[past].first = range.end;
    }
    if (past > first) {
        erase(holes, first, past);
    }
}

/* Adds a hole where there is none. */
static void dig(struct holes *holes, struct hole hole)
{
    uint32_t at = above(holes, hole.first);

    if (at < holes->n && holes->v[at].first == hole.end) {
        hole.end = holes->v[at].end;
        erase(holes, at, at + 1);
    }
    if (at > 0 && holes->v[at - 1].end == hole.first) {
        holes->v[at - 1].end = hole.end;
    } else {
        insert(holes, at, hole);
    }
}

/* The part of the index-th hole that lies in the range.  False: nothing of it
 * does, nor of any later hole. */
static bool part_of(const struct holes *holes, uint32_t i, struct hole range,
                    struct hole *part)
{
    if (i >= holes->n || holes->v[i].first >= range.end) {
        return false;
    }
    part->first =
        holes->v[i].first > range.first ? holes->v[i].first : range.first;
    part->end = holes->v[i].end < range.end ? holes->v[i].end : range.end;
    return true;
}

void holes_all(struct holes *holes, size_t bytes)
{
    holes->n = 0;
    insert(holes, 0, (struct hole){ 0, bytes });
}

void holes_clear(struct holes *holes)
{
    free(holes->v);
    *holes = (struct holes){ NULL, 0, 0 };
}

void unwritten_write(struct alloc *alloc, size_t offset, size_t bytes)
{
    if (alloc->holes.n != 0) {
        fill(&alloc->holes, (struct hole){ offset, offset + bytes });
    }
}

void unwritten_discard(struct alloc *alloc, size_t offset, size_t bytes)
{
    unwritten_write(alloc, offset, bytes);
    dig(&alloc->holes, (struct hole){ offset, offset + bytes });
    alloc->discards++;
}

void unwritten_copy(struct alloc *to, size_t to_offset,
                    const struct alloc *from, size_t from_offset, size_t bytes)
{
    /* Holes are copied first, because both ranges may be in one allocation. */
    static struct holes moved;
    const struct hole range = { from_offset, from_offset + bytes };
    struct hole part;

    moved.n = 0;
    for (uint32_t i = above(&from->holes, from_offset);
         part_of(&from->holes, i, range, &part); i++) {
        insert(&moved, moved.n, part);
    }
    unwritten_write(to, to_offset, bytes);
    for (uint32_t i = 0; i < moved.n; i++) {
        dig(&to->holes,
            (struct hole){ moved.v[i].first - from_offset + to_offset,
                           moved.v[i].end - from_offset + to_offset });
    }
}

/* Whether this read is new.  The same operation at the same place of the
 * allocation is the same read, in whatever step. */
static bool is_news(const struct alloc *alloc, const struct hole *part,
                    const struct op *op)
{
    const uint64_t where[] = { op->stream, op->graph != 0, part->first,
                               alloc->number };
    uint64_t hash = hash_text(hash_start(), work_name(op->work));

    for (size_t i = 0; i < sizeof(where) / sizeof(where[0]); i++) {
        hash = hash_number(hash, where[i]);
    }
    return reports_is_news(&unwritten, hash);
}

/* Finds the first unwritten bytes of the range.  False: there are none. */
static bool find(const struct alloc *alloc, struct hole range,
                 struct hole *part)
{
    const size_t bytes = range.end - range.first;
    const size_t least = bytes < RUN_LEAST ? RUN_LEAST / 2 : RUN_LEAST;

    for (uint32_t i = above(&alloc->holes, range.first);
         part_of(&alloc->holes, i, range, part); i++) {
        if (alloc->side == SIDE_DEVICE ||
            pinned_pattern_find(alloc, part, least)) {
            return true;
        }
    }
    return false;
}

void unwritten_use(const struct alloc *alloc, size_t offset, size_t bytes,
                   const struct op *op)
{
    const struct hole range = { offset, offset + bytes };
    char who[256], text[640], whose[128];
    struct hole part;

    if (outside_is_shared(alloc) || !find(alloc, range, &part) ||
        !is_news(alloc, &part, op)) {
        return;
    }
    op_describe(op, who, sizeof(who));
    labels_show(alloc, part.first, op, whose, sizeof(whose));
    snprintf(text, sizeof(text),
             "%s reads bytes %zu..%zu of %s allocation %llu (%zu bytes)%s, "
             "which nothing has written%s",
             who, part.first, part.end,
             alloc->side == SIDE_DEVICE ? "device" : "pinned",
             (unsigned long long)alloc->number, alloc->bytes, whose,
             alloc->discards != 0 ? " since it was discarded" : "");
    reports_add(&unwritten, "unwritten", text);
}

void unwritten_forget_reports(void)
{
    reports_forget(&unwritten);
}

uint64_t unwritten_read_report(uint64_t i, const char **text_p)
{
    return reports_read(&unwritten, i, text_p);
}
