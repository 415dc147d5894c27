/*
 * graphhooks/words.h - has the host's memory changed?
 *
 * A host in an interpreted language asks before each replay whether what a
 * recording has read is as it was.  Much of that is words at addresses that
 * it knows: versions of dictionaries, pointers to functions.  To read them in
 * the interpreter takes longer than the replay.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GRAPHHOOKS_WORDS_H
#define GRAPHHOOKS_WORDS_H

#include <graphhooks/base.h>

GH_BEGIN_DECLS

/**
 * Compare words of the host's memory with what is expected there.
 *
 * @param addresses  @p n of them, each of 8 bytes that can be read, aligned to
 *                   8; that nobody writes one meanwhile is up to the host
 * @param values     what is expected at each
 *
 * @return the index of the first word that is another; @p n if there is none.
 * Blocks: never.  Threads: any.  Since: 1.0.
 */
GH_API uint32_t gh_words_compare(const uint64_t *const *addresses,
                                 const uint64_t *values, uint32_t n);

GH_END_DECLS

#endif
