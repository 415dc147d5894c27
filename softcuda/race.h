/*
 * race.h - which accesses to memory came before which.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SOFTCUDA_RACE_H
#define SOFTCUDA_RACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct alloc;
struct op;

/* What is remembered of an allocation's accesses. */
struct shadow {
    struct shadow_entry *entries;
    uint32_t n, room;
};

void race_access(struct alloc *alloc, size_t offset, size_t bytes, bool write,
                 const struct op *op);
void shadow_clear(struct shadow *shadow);
/* How many there are, and the text of one; NULL beyond the last.  A text
 * stays until the reports are forgotten. */
uint64_t race_read_report(uint64_t i, const char **text_p);
void race_forget_reports(void);

#endif
