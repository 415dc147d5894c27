/*
 * nearest.h - what somebody meant who mistyped a word.
 *
 * Shared by the library, the software device and gh-engine, which otherwise
 * have nothing of each other in them.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef WORDS_NEAREST_H
#define WORDS_NEAREST_H

/*
 * The candidate nearest to `word`, as people mistype: letters left out,
 * added, changed or swapped, capitals where there are none.  NULL when none is near.  Lists end with NULL.
 */
const char *nearest_word(const char *word, const char *const *candidates);

#endif
