/*
 * labels.h - whose memory is whose, as the program says it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SOFTCUDA_LABELS_H
#define SOFTCUDA_LABELS_H

#include "softcuda/alloc.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct op;

/* Work that is issued from `seq` on finds the range under this name; NULL: it
 * has none any more.  False when there is no memory, or when there are very
 * many names. */
bool labels_give(struct alloc *alloc, size_t offset, size_t bytes,
                 const char *name, uint64_t seq);
void labels_clear(struct labels *labels);

/* The operation writes the range for whom it belongs to. */
void labels_write(struct alloc *alloc, size_t offset, size_t bytes,
                  const struct op *op);
/* What was written for somebody stays his, wherever it is copied.  What was
 * written for nobody is whose it is copied to. */
void labels_copy(struct alloc *to, size_t to_offset, const struct alloc *from,
                 size_t from_offset, size_t bytes, const struct op *op);
/* The operation depends on the range: it has to have been written for whom it
 * belongs to. */
void labels_read(const struct alloc *alloc, size_t offset, size_t bytes,
                 const struct op *op);

/* ` ("layer 3, core_attn")`, or nothing where the place has no name. */
void labels_show(const struct alloc *alloc, size_t offset,
                 const struct op *op, char *text, size_t bytes);

uint64_t labels_read_report(uint64_t i, const char **text_p);
void labels_forget_reports(void);

#endif
