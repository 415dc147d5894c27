/*
 * nearest.c - see nearest.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "words/nearest.h"

#include <stdbool.h>
#include <string.h>

#define NAME_MOST 64

static size_t least3(size_t a, size_t b, size_t c)
{
    size_t least = a < b ? a : b;

    return least < c ? least : c;
}

/* Where capitals do not matter, whatever the locale. */
static char folded(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

static bool alike(char a, char b)
{
    return folded(a) == folded(b);
}

/* Insertions, deletions, changes and swaps of neighbours from a to b; both
 * are at most NAME_MOST long. */
static size_t distance(const char *a, const char *b)
{
    size_t row[3][NAME_MOST + 1];
    size_t *before = row[0], *above = row[1], *here = row[2];
    size_t a_bytes = strlen(a), b_bytes = strlen(b);

    for (size_t j = 0; j <= b_bytes; j++) {
        above[j] = j;
    }
    for (size_t i = 1; i <= a_bytes; i++) {
        size_t *spare = before;

        here[0] = i;
        for (size_t j = 1; j <= b_bytes; j++) {
            here[j] = least3(above[j] + 1, here[j - 1] + 1,
                             above[j - 1] + !alike(a[i - 1], b[j - 1]));
            if (i > 1 && j > 1 && alike(a[i - 1], b[j - 2]) &&
                alike(a[i - 2], b[j - 1]) && before[j - 2] + 1 < here[j]) {
                here[j] = before[j - 2] + 1;
            }
        }
        before = above;
        above = here;
        here = spare;
    }
    return above[b_bytes];
}

const char *nearest_word(const char *word, const char *const *candidates)
{
    const char *nearest = NULL;
    size_t least = NAME_MOST;

    if (strlen(word) > NAME_MOST) {
        return NULL;
    }
    for (; *candidates != NULL; candidates++) {
        size_t bytes = strlen(*candidates);
        size_t d = bytes > NAME_MOST ? NAME_MOST : distance(word, *candidates);

        /* Half the letters wrong is no longer a slip of the hand. */
        if (d < least && d * 2 < bytes) {
            least = d;
            nearest = *candidates;
        }
    }
    return nearest;
}
