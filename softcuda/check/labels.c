/*
 * labels.c - whose memory is whose, as the program says.
 *
 * The program names a range for everything that it issues after that.  Work
 * that was issued before still knows the earlier name.
 * Whatever is written there is written for the name that its writer knew.
 * It keeps that name when it is copied, even to the host and back.  So a
 * reader can tell whether the bytes it finds were written for the name that it
 * reads for, in whatever order everything ran.
 *
 * A program that names nothing pays one comparison for each access.
 *
 * Invariant: contents are sorted by where they start.  The first starts at 0,
 * and each goes on to the next.  Without contents no byte was named.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "softcuda/check/labels.h"

#include "softcuda/check/report.h"
#include "softcuda/engine/op.h"
#include "softcuda/engine/soft.h"
#include "softcuda/engine/work.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_NAMES = 4096
};

static char *names[MAX_NAMES]; /* from 1; 0 is none */
static uint32_t n_names = 1;
static struct reports reports;

static uint32_t number_of(const char *name)
{
    uint32_t n = 1;

    while (n < n_names && strcmp(names[n], name) != 0) {
        n++;
    }
    if (n == n_names) {
        if (n == MAX_NAMES || (names[n] = strdup(name)) == NULL) {
            return 0;
        }
        n_names++;
    }
    return n;
}

/* ---- ranges ----------------------------------------------------------- */

/* Drops the earlier names of a range.  Nobody needs them, because everything
 * that was issued has run. */
static void drop_covered(struct labels *labels, size_t first, size_t end)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < labels->n_ranges; i++) {
        const struct named_range *p = &labels->ranges[i];

        if (p->first < first || p->end > end) {
            labels->ranges[kept++] = *p;
        }
    }
    labels->n_ranges = kept;
}

bool labels_give(struct alloc *alloc, size_t offset, size_t bytes,
                 const char *name, uint64_t seq)
{
    struct labels *labels = &alloc->labels;
    const uint32_t number = name != NULL ? number_of(name) : 0;

    if (name != NULL && number == 0) {
        return false;
    }
    if (soft.pending == 0) {
        drop_covered(labels, offset, offset + bytes);
    }
    if (labels->n_ranges == labels->ranges_room) {
        labels->ranges = op_grow(labels->ranges, &labels->ranges_room,
                                 sizeof(*labels->ranges));
    }
    labels->ranges[labels->n_ranges++] =
        (struct named_range){ offset, offset + bytes, seq, number };
    return true;
}

/* The name that the operation knows.  *end_p is where it ends. */
static uint32_t name_at(const struct alloc *alloc, size_t offset,
                        const struct op *op, size_t *end_p)
{
    size_t end = alloc->bytes;

    for (uint32_t i = alloc->labels.n_ranges; i-- > 0;) {
        const struct named_range *p = &alloc->labels.ranges[i];

        if (p->from_seq > op->seq || offset >= p->end) {
            continue;
        }
        if (offset >= p->first) {
            *end_p = p->end < end ? p->end : end;
            return p->name;
        }
        end = p->first < end ? p->first : end;
    }
    *end_p = end;
    return 0;
}

/* ---- contents --------------------------------------------------------- */

/* Makes a content start at the offset, and returns its index. */
static uint32_t split(struct labels *labels, size_t offset)
{
    uint32_t i = labels->n_contents;

    while (i > 0 && labels->contents[i - 1].start > offset) {
        i--;
    }
    if (i > 0 && labels->contents[i - 1].start == offset) {
        return i - 1;
    }
    if (labels->n_contents == labels->contents_room) {
        labels->contents = op_grow(labels->contents, &labels->contents_room,
                                   sizeof(*labels->contents));
    }
    memmove(&labels->contents[i + 1], &labels->contents[i],
            (labels->n_contents - i) * sizeof(labels->contents[0]));
    labels->contents[i] =
        (struct content){ offset, i > 0 ? labels->contents[i - 1].name : 0 };
    labels->n_contents++;
    return i;
}

static void set(struct alloc *alloc, size_t first, size_t end, uint32_t name)
{
    struct labels *labels = &alloc->labels;
    uint32_t from, past;

    if (labels->n_contents == 0) {
        if (name == 0) {
            return;
        }
        (void)split(labels, 0);
    }
    from = split(labels, first);
    past = end < alloc->bytes ? split(labels, end) : labels->n_contents;
    labels->contents[from].name = name;
    memmove(&labels->contents[from + 1], &labels->contents[past],
            (labels->n_contents - past) * sizeof(labels->contents[0]));
    labels->n_contents -= past - from - 1;
}

static uint32_t written_for(const struct alloc *alloc, size_t offset,
                            size_t *end_p)
{
    const struct labels *labels = &alloc->labels;
    uint32_t i = labels->n_contents;

    *end_p = alloc->bytes;
    while (i > 0 && labels->contents[i - 1].start > offset) {
        *end_p = labels->contents[--i].start;
    }
    return i > 0 ? labels->contents[i - 1].name : 0;
}

void labels_clear(struct labels *labels)
{
    free(labels->ranges);
    free(labels->contents);
    memset(labels, 0, sizeof(*labels));
}

/* ---- what operations do ----------------------------------------------- */

static bool is_unknown(const struct alloc *alloc)
{
    return alloc->labels.n_ranges == 0 && alloc->labels.n_contents == 0;
}

static size_t lesser(size_t a, size_t b)
{
    return a < b ? a : b;
}

void labels_write(struct alloc *alloc, size_t offset, size_t bytes,
                  const struct op *op)
{
    const size_t end = offset + bytes;

    if (is_unknown(alloc)) {
        return;
    }
    while (offset < end) {
        size_t stop;
        const uint32_t name = name_at(alloc, offset, op, &stop);

        stop = lesser(stop, end);
        set(alloc, offset, stop, name);
        offset = stop;
    }
}

void labels_copy(struct alloc *to, size_t to_offset, const struct alloc *from,
                 size_t from_offset, size_t bytes, const struct op *op)
{
    const size_t end = from_offset + bytes;

    if (is_unknown(to) && is_unknown(from)) {
        return;
    }
    while (from_offset < end) {
        size_t stop;
        const uint32_t name = written_for(from, from_offset, &stop);
        const size_t n = lesser(stop, end) - from_offset;

        if (name != 0) {
            set(to, to_offset, to_offset + n, name);
        } else {
            labels_write(to, to_offset, n, op);
        }
        from_offset += n;
        to_offset += n;
    }
}

static void report(const struct alloc *alloc, size_t first, size_t end,
                   const struct op *op, uint32_t named, uint32_t content)
{
    const uint64_t what[] = { op->stream, op->graph != 0, named, content };
    uint64_t hash = hash_text(hash_start(), work_name(op->work));
    char who[256], text[768];

    for (size_t i = 0; i < sizeof(what) / sizeof(what[0]); i++) {
        hash = hash_number(hash, what[i]);
    }
    if (!reports_is_news(&reports, hash)) {
        return;
    }
    op_describe(op, who, sizeof(who));
    snprintf(text, sizeof(text),
             "%s reads bytes %zu..%zu of %s allocation %llu (%zu bytes) for "
             "\"%.100s\", and finds what was written for \"%.100s\"",
             who, first, end, alloc->side == SIDE_DEVICE ? "device" : "pinned",
             (unsigned long long)alloc->number, alloc->bytes, names[named],
             names[content]);
    reports_add(&reports, "other", text);
}

void labels_read(const struct alloc *alloc, size_t offset, size_t bytes,
                 const struct op *op)
{
    const size_t end = offset + bytes;

    if (is_unknown(alloc)) {
        return;
    }
    while (offset < end) {
        size_t stop, content_stop;
        const uint32_t named = name_at(alloc, offset, op, &stop);
        const uint32_t content = written_for(alloc, offset, &content_stop);

        stop = lesser(lesser(stop, content_stop), end);
        if (named != 0 && content != 0 && named != content) {
            report(alloc, offset, stop, op, named, content);
        }
        offset = stop;
    }
}

void labels_show(const struct alloc *alloc, size_t offset, const struct op *op,
                 char *text, size_t bytes)
{
    size_t end;
    const uint32_t name = name_at(alloc, offset, op, &end);

    text[0] = '\0';
    if (name != 0) {
        snprintf(text, bytes, " (\"%.100s\")", names[name]);
    }
}

uint64_t labels_read_report(uint64_t i, const char **text_p)
{
    return reports_read(&reports, i, text_p);
}

void labels_forget_reports(void)
{
    reports_forget(&reports);
}
