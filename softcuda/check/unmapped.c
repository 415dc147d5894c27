/*
 * unmapped.c - work that uses reserved addresses to which no memory is mapped.
 *
 * A driver ends the context with an illegal address, as it does for any other
 * wild address.  So does the software device, and this says in addition which
 * operation it was, such as a node of a graph that was launched while its
 * memory was given back.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "softcuda/check/unmapped.h"

#include "softcuda/check/report.h"
#include "softcuda/engine/op.h"
#include "softcuda/engine/outside.h"
#include "softcuda/engine/ranges.h"
#include "softcuda/engine/work.h"

#include <stdio.h>

static struct reports unmapped;

/* Ranges and memories are numbered apart. */
static bool is_news(const struct op *op, const char *what, uint64_t number)
{
    uint64_t hash = hash_text(hash_start(), work_name(op->work));

    hash = hash_number(hash_text(hash, what), number);
    hash = hash_number(hash_number(hash, op->stream), op->graph != 0);
    return reports_is_news(&unmapped, hash);
}

bool unmapped_use(const void *address, size_t bytes, const struct op *op)
{
    const struct range *range = range_find((uintptr_t)address);
    char who[256], text[640];

    if (range == NULL) {
        return false;
    }
    if (is_news(op, "range", range->number)) {
        op_describe(op, who, sizeof(who));
        snprintf(text, sizeof(text),
                 "%s uses %zu bytes at %zu of reserved range %llu (%zu bytes), "
                 "to which no memory is mapped",
                 who, bytes, (size_t)((uintptr_t)address - range->base),
                 (unsigned long long)range->number, range->bytes);
        reports_add(&unmapped, "unmapped", text);
    }
    return true;
}

void unmapped_given(const struct alloc *alloc, const struct op *op)
{
    char who[256], text[640];

    if (!outside_is_given(alloc)) {
        return;
    }
    if (is_news(op, "memory", alloc->number)) {
        op_describe(op, who, sizeof(who));
        snprintf(text, sizeof(text),
                 "%s uses memory of another process (%zu bytes), which that "
                 "process has given back",
                 who, alloc->bytes);
        reports_add(&unmapped, "unmapped", text);
    }
}

void unmapped_forget_reports(void)
{
    reports_forget(&unmapped);
}

uint64_t unmapped_read_report(uint64_t i, const char **text_p)
{
    return reports_read(&unmapped, i, text_p);
}
