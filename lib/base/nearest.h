/*
 * nearest.h - what somebody meant who mistyped a word.
 *
 * Also compiled into the software device and into gh-engine, which stand
 * apart from the library.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_BASE_NEAREST_H
#define GH_BASE_NEAREST_H

/*
 * The candidate nearest to `word`, as people mistype: letters left out,
 * added, changed or swapped.  NULL when none is near.  Lists end with NULL.
 */
const char *gh_nearest(const char *word, const char *const *candidates);

#endif
