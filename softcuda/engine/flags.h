/*
 * flags.h - words of memory that streams wait for, and who wrote them.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SOFTCUDA_FLAGS_H
#define SOFTCUDA_FLAGS_H

#include "softcuda/engine/alloc.h"
#include "softcuda/engine/order.h"
#include "softcuda/engine/work.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Notes that the bytes are about to be written.  If that is a whole word, or a
 * byte of one, it may be a flag.  If it is anything else, it is no flag any
 * more. */
void flags_wrote(struct alloc *alloc, size_t offset, size_t bytes,
                 const struct stamp *at);
/* Notes when the work ended.  Only work that writes a word is looked at. */
void flags_ended(const struct work *work, uint64_t end_ns);
/* Adds what those know who wrote the word or a part of it, and when the last of
 * them ended, if that is later than *end_ns_p. */
void flags_join(const struct alloc *alloc, size_t offset, size_t bytes,
                struct vc **vc_p, uint64_t *end_ns_p);
void flags_clear(struct flags *flags);

/* Whether memory holds what the work waits for, which is a WORK_AWAIT. */
bool flag_is_up(const struct work *work);

#endif
