/*
 * unwritten.h - which bytes of memory nothing has written yet.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SOFTCUDA_UNWRITTEN_H
#define SOFTCUDA_UNWRITTEN_H

#include "softcuda/engine/alloc.h"

#include <stddef.h>
#include <stdint.h>

struct op;

/* Makes all bytes one hole. */
void holes_all(struct holes *holes, size_t bytes);
void holes_clear(struct holes *holes);
void unwritten_write(struct alloc *alloc, size_t offset, size_t bytes);
/* Makes the range a hole again. */
void unwritten_discard(struct alloc *alloc, size_t offset, size_t bytes);
/* Copies holes: what is unwritten in one is then unwritten in the other. */
void unwritten_copy(struct alloc *to, size_t to_offset,
                    const struct alloc *from, size_t from_offset, size_t bytes);
/* Notes that the operation depends on these bytes. */
void unwritten_use(const struct alloc *alloc, size_t offset, size_t bytes,
                   const struct op *op);
/* Returns the number of reports, and the text of the i-th; NULL after the last.
 * A text stays until the reports are forgotten. */
uint64_t unwritten_read_report(uint64_t i, const char **text_p);
void unwritten_forget_reports(void);

#endif
