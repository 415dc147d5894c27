/*
 * unwritten.h - which bytes of memory nothing has written yet.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SOFTCUDA_UNWRITTEN_H
#define SOFTCUDA_UNWRITTEN_H

#include "softcuda/alloc.h"

#include <stddef.h>
#include <stdint.h>

struct op;

/* From now on nothing is written. */
void holes_all(struct holes *holes, size_t bytes);
void holes_clear(struct holes *holes);
void unwritten_write(struct alloc *alloc, size_t offset, size_t bytes);
/* What is not written of the one is then not written of the other. */
void unwritten_copy(struct alloc *to, size_t to_offset,
                    const struct alloc *from, size_t from_offset, size_t bytes);
/* The operation depends on these bytes. */
void unwritten_use(const struct alloc *alloc, size_t offset, size_t bytes,
                   const struct op *op);
/* How many there are, and the text of one; NULL beyond the last.  A text
 * stays until the reports are forgotten. */
uint64_t unwritten_read_report(uint64_t i, const char **text_p);
void unwritten_forget_reports(void);

#endif
