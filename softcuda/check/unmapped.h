/*
 * unmapped.h - work that uses reserved addresses to which no memory is mapped.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SOFTCUDA_UNMAPPED_H
#define SOFTCUDA_UNMAPPED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct alloc;
struct op;

/* Reports the operation if the bytes are reserved.  False: they are not. */
bool unmapped_use(const void *address, size_t bytes, const struct op *op);
/* Reports the operation if the memory is another process's, which has given it
 * back.  A driver lets it use that memory, and has it back only later. */
void unmapped_given(const struct alloc *alloc, const struct op *op);
/* Returns the number of reports, and the text of the i-th; NULL after the last.
 * A text stays until the reports are forgotten. */
uint64_t unmapped_read_report(uint64_t i, const char **text_p);
void unmapped_forget_reports(void);

#endif
