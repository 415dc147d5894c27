/*
 * words.h - words that are chosen from a list, and what to say of others.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef BIN_WORDS_H
#define BIN_WORDS_H

#include <graphhooks/base.h>

/* The words of a scope, by gh_scope_item; ends with NULL. */
const char *const *scope_words(void);

/* By gh_granularity; ends with NULL. */
extern const char *const granularity_words[];

/* The word's place in a list that ends with NULL; -1 when it is not there. */
int word_place(const char *const *words, const char *word);

/* `text` as far as it fits, without what a terminal would act on. */
void word_clean(const char *text, char *clean, size_t bytes);

/* "WHERE is "WORD"; give one of A, B, C; did you mean B?" */
gh_status word_refuse(const char *where, const char *word,
                      const char *const *words, gh_error *err);

/* "GIVEN is not WHAT; did you mean B?" on stderr; the exit status. */
int refuse(const char *what, const char *given, const char *const *known);

#endif
