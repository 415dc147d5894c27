/*
 * words.c - see words.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "words.h"

#include "base/error.h"
#include "words/nearest.h"
#include "config/env.h"
#include "plan/plan.h"

#include <stdio.h>
#include <string.h>

const char *const granularity_words[] = { "part", "layer", "chunk", NULL };

const char *const *scope_words(void)
{
    static const char *words[GH_ITEM_COUNT + 1];

    for (enum gh_scope_item item = 0; item < GH_ITEM_COUNT; item++) {
        words[item] = gh_item_name(item);
    }
    return words;
}

int word_place(const char *const *words, const char *word)
{
    for (int i = 0; words[i] != NULL; i++) {
        if (strcmp(words[i], word) == 0) {
            return i;
        }
    }
    return -1;
}

void word_clean(const char *text, char *clean, size_t bytes)
{
    const size_t n = (size_t)gh_shown_bytes(text, (int)bytes - 1);

    for (size_t i = 0; i < n; i++) {
        const unsigned char byte = (unsigned char)text[i];

        clean[i] = byte < 0x20 || byte == 0x7F ? '?' : text[i];
    }
    clean[n] = '\0';
}

gh_status word_refuse(const char *where, const char *word,
                      const char *const *words, gh_error *err)
{
    const char *near = nearest_word(word, words);
    char clean[40], list[160] = "";

    word_clean(word, clean, sizeof(clean));
    if (near != NULL) {
        return gh_fail(err, GH_ERR_CONFIG, "%s is \"%s\"; did you mean %s?",
                       where, clean, near);
    }
    for (int i = 0; words[i] != NULL; i++) {
        const size_t used = strlen(list);

        snprintf(list + used, sizeof(list) - used, "%s%s", i == 0 ? "" : ", ",
                 words[i]);
    }
    return gh_fail(err, GH_ERR_CONFIG, "%s is \"%s\"; give one of %s", where,
                   clean, list);
}

int refuse(const char *what, const char *given, const char *const *known)
{
    const char *near = nearest_word(given, known);

    fprintf(stderr, "graphhooks: %s is not %s", given, what);
    if (near != NULL) {
        fprintf(stderr, "; did you mean %s?\n", near);
    } else {
        fprintf(stderr, "; try graphhooks --help\n");
    }
    return 2;
}
