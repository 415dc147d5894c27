/*
 * flags.h - words of memory that streams wait for, and who has written them.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SOFTCUDA_FLAGS_H
#define SOFTCUDA_FLAGS_H

#include "softcuda/alloc.h"
#include "softcuda/order.h"
#include "softcuda/work.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The bytes are about to be written there: by a whole word, or a byte of one,
 * it may be a flag, and by anything else it is none any more. */
void flags_wrote(struct alloc *alloc, size_t offset, size_t bytes,
                 const struct stamp *at);
/* The work has ended then; only what writes a word is looked at. */
void flags_ended(const struct work *work, uint64_t end_ns);
/* Adds what those know who have written the word, or some of it by itself, and
 * when the last of them ended, if that is later. */
void flags_join(const struct alloc *alloc, size_t offset, size_t bytes,
                struct vc **vc_p, uint64_t *end_ns_p);
void flags_clear(struct flags *flags);

/* Whether memory holds what the work, a WORK_AWAIT, waits for. */
bool flag_is_up(const struct work *work);

#endif
