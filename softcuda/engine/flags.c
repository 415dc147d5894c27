/*
 * flags.c - words of memory that streams wait for, and who wrote them.
 *
 * A wait that finds its word satisfied comes after the operation that wrote
 * the word, and after all that this operation knew.  An operation that wrote
 * the value that was already there does not count, because the wait may have
 * gone on before it.  What race.c remembers of an access does not say that
 * much, so the clocks of single words are kept here.
 *
 * The bytes of a word may have several writers.  A wait then comes after all
 * of those of whose bytes some are left.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "softcuda/engine/flags.h"

#include <stdlib.h>
#include <string.h>

enum {
    MOST = 4096 /* words kept for one allocation */
};

struct flag {
    size_t offset, bytes;
    uint32_t left;     /* a bit for each byte that nobody wrote since */
    struct stamp at;   /* the first to write the current value */
    struct stamp last; /* the last writer, not compared yet */
    uint64_t before;   /* the value before `last` */
    uint64_t end_ns;
};

static bool is_word(size_t bytes)
{
    return bytes == 1 || bytes == 4 || bytes == 8;
}

/* Which bytes of the flag are within the range, as bits. */
static uint32_t common(const struct flag *flag, size_t offset, size_t bytes)
{
    uint32_t bits = 0;

    if (flag->offset >= offset + bytes ||
        offset >= flag->offset + flag->bytes) {
        return 0;
    }
    for (size_t i = 0; i < flag->bytes; i++) {
        if (flag->offset + i >= offset && flag->offset + i < offset + bytes) {
            bits |= 1u << i;
        }
    }
    return bits;
}

static struct flag *find(const struct alloc *alloc, size_t offset, size_t bytes)
{
    for (uint32_t i = 0; i < alloc->flags.n; i++) {
        struct flag *flag = &alloc->flags.v[i];

        if (flag->offset == offset && flag->bytes == bytes) {
            return flag;
        }
    }
    return NULL;
}

static uint64_t content(const struct alloc *alloc, const struct flag *flag)
{
    uint64_t value = 0;

    memcpy(&value, (const char *)alloc->base + flag->offset, flag->bytes);
    return value;
}

/* Compares, now that the last write is done, whether it changed the value. */
static void resolve(const struct alloc *alloc, struct flag *flag)
{
    if (flag->last.epoch == 0) {
        return;
    }
    if (flag->at.epoch == 0 || content(alloc, flag) != flag->before) {
        stamp_set(&flag->at, &flag->last);
    }
    stamp_clear(&flag->last);
}

/* Notes that somebody else writes the range.  A flag of exactly this range
 * stays, because the caller fills it in; of the others, only what is left
 * stays. */
static void displace(struct alloc *alloc, size_t offset, size_t bytes)
{
    struct flags *flags = &alloc->flags;

    for (uint32_t i = 0; i < flags->n;) {
        struct flag *flag = &flags->v[i];
        const uint32_t bits = common(flag, offset, bytes);

        if (bits != 0) {
            resolve(alloc, flag);
        }
        flag->left &= ~bits;
        if (flag->left == 0 &&
            (flag->offset != offset || flag->bytes != bytes)) {
            stamp_clear(&flag->at);
            stamp_clear(&flag->last);
            flags->v[i] = flags->v[--flags->n];
        } else {
            i++;
        }
    }
}

/* Adds a flag.  NULL: there are too many. */
static struct flag *add(struct flags *flags, size_t offset, size_t bytes)
{
    struct flag *flag;

    if (flags->n == MOST) {
        return NULL;
    }
    if (flags->n == flags->room) {
        uint32_t room = flags->room ? flags->room * 2 : 8;
        struct flag *larger = realloc(flags->v, room * sizeof(*larger));

        if (larger == NULL) {
            abort(); /* an order with holes would report false races */
        }
        flags->v = larger;
        flags->room = room;
    }
    flag = &flags->v[flags->n++];
    memset(flag, 0, sizeof(*flag));
    flag->offset = offset;
    flag->bytes = bytes;
    return flag;
}

void flags_wrote(struct alloc *alloc, size_t offset, size_t bytes,
                 const struct stamp *at)
{
    struct flag *flag;

    displace(alloc, offset, bytes);
    if (!is_word(bytes)) {
        return;
    }
    flag = find(alloc, offset, bytes);
    if (flag == NULL) {
        flag = add(&alloc->flags, offset, bytes);
    }
    if (flag == NULL) {
        return;
    }
    flag->left = (1u << bytes) - 1;
    flag->before = content(alloc, flag);
    stamp_set(&flag->last, at);
}

void flags_ended(const struct work *work, uint64_t end_ns)
{
    const char *address = NULL;
    size_t bytes = 0;
    struct alloc *alloc;
    struct flag *flag;

    if (work->kind == WORK_COPY) {
        address = work->u.copy.dst;
        bytes = work->u.copy.bytes;
    } else if (work->kind == WORK_POKE) {
        address = work->u.word.address;
        bytes = work->u.word.width;
    } else if (work->kind == WORK_SET) {
        address = work->u.set.dst;
        bytes = work->u.set.count * work->u.set.width;
    }
    alloc = is_word(bytes) ? alloc_find(address, bytes) : NULL;
    if (alloc != NULL) {
        flag = find(alloc, (size_t)((uintptr_t)address - alloc->base), bytes);
        if (flag != NULL) {
            flag->end_ns = end_ns;
        }
    }
}

void flags_join(const struct alloc *alloc, size_t offset, size_t bytes,
                struct vc **vc_p, uint64_t *end_ns_p)
{
    for (uint32_t i = 0; i < alloc->flags.n; i++) {
        struct flag *flag = &alloc->flags.v[i];

        if ((common(flag, offset, bytes) & flag->left) == 0) {
            continue;
        }
        resolve(alloc, flag);
        vc_join(vc_p, &flag->at);
        if (flag->end_ns > *end_ns_p) {
            *end_ns_p = flag->end_ns;
        }
    }
}

void flags_clear(struct flags *flags)
{
    for (uint32_t i = 0; i < flags->n; i++) {
        stamp_clear(&flags->v[i].at);
        stamp_clear(&flags->v[i].last);
    }
    free(flags->v);
    *flags = (struct flags){ NULL, 0, 0 };
}

/* Compares as the driver does: "at least" allows for numbers that wrap
 * around. */
bool flag_is_up(const struct work *work)
{
    uint64_t value = 0, wanted = work->u.word.value;
    const bool narrow = work->u.word.width == 4;
    uint32_t low;

    if (narrow) {
        memcpy(&low, work->u.word.address, sizeof(low));
        value = low;
    } else {
        memcpy(&value, work->u.word.address, sizeof(value));
    }
    switch (work->u.word.how) {
    case CU_STREAM_WAIT_VALUE_EQ:
        return value == wanted;
    case CU_STREAM_WAIT_VALUE_AND:
        return (value & wanted) != 0;
    case CU_STREAM_WAIT_VALUE_NOR:
        return ~(value | wanted) << (narrow ? 32 : 0) != 0;
    default:
        return narrow ? (int32_t)((uint32_t)value - (uint32_t)wanted) >= 0
                      : (int64_t)(value - wanted) >= 0;
    }
}
