/*
 * labels.h - whose memory is whose, as the program says.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SOFTCUDA_LABELS_H
#define SOFTCUDA_LABELS_H

#include "softcuda/engine/alloc.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct op;

/* Names the range for work that is issued from `seq` on; NULL takes its name
 * away.  False: there is no memory, or there are too many names. */
bool labels_give(struct alloc *alloc, size_t offset, size_t bytes,
                 const char *name, uint64_t seq);
void labels_clear(struct labels *labels);

/* The operation writes the range, for the name that it has. */
void labels_write(struct alloc *alloc, size_t offset, size_t bytes,
                  const struct op *op);
/* The operation copies bytes.  They keep the name they were written for,
 * wherever they go.  Bytes without a name get that of the range they are copied
 * to. */
void labels_copy(struct alloc *to, size_t to_offset, const struct alloc *from,
                 size_t from_offset, size_t bytes, const struct op *op);
/* The operation depends on the range.  Its bytes must have been written for the
 * name that the range has. */
void labels_read(const struct alloc *alloc, size_t offset, size_t bytes,
                 const struct op *op);

/* Writes ` ("layer 3, core_attn")`, or nothing if the range has no name. */
void labels_show(const struct alloc *alloc, size_t offset, const struct op *op,
                 char *text, size_t bytes);

uint64_t labels_read_report(uint64_t i, const char **text_p);
void labels_forget_reports(void);

#endif
