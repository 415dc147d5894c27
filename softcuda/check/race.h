/*
 * race.h - which accesses to memory came before which.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SOFTCUDA_RACE_H
#define SOFTCUDA_RACE_H

#include "softcuda/engine/alloc.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct op;

void race_access(struct alloc *alloc, size_t offset, size_t bytes, bool write,
                 const struct op *op);
void shadow_clear(struct shadow *shadow);
/* Returns the number of races, and the text of the i-th; NULL after the last.
 * A text stays until the reports are forgotten. */
uint64_t race_read_report(uint64_t i, const char **text_p);
/* Forgets all accesses and reports. */
void race_forget(void);

#endif
