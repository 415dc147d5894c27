/*
 * report.c - what the software device has found: reported once, kept and
 * counted.
 *
 * Each kind of finding has a list of its own.  Whoever finds something hashes
 * what makes two findings the same, and asks whether it is new before writing
 * the text.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "softcuda/check/report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_TEXTS = 1000
};

uint64_t hash_start(void)
{
    return 1469598103934665603u;
}

uint64_t hash_text(uint64_t hash, const char *text)
{
    for (; *text != '\0'; text++) {
        hash = (hash ^ (unsigned char)*text) * 0x100000001B3u;
    }
    return hash;
}

uint64_t hash_number(uint64_t hash, uint64_t number)
{
    hash = (hash ^ number) * 0x9E3779B97F4A7C15u;
    return hash ^ hash >> 29;
}

bool reports_is_news(struct reports *reports, uint64_t hash)
{
    size_t slot;

    hash |= 1;
    slot = hash >> 7 & (REPORTS_SEEN - 1);
    for (size_t i = 0; i < REPORTS_SEEN; i++) {
        if (reports->seen[slot] == hash) {
            return false;
        }
        if (reports->seen[slot] == 0) {
            reports->seen[slot] = hash;
            return true;
        }
        slot = (slot + 1) & (REPORTS_SEEN - 1);
    }
    return false;
}

void reports_add(struct reports *reports, const char *what, const char *text)
{
    fprintf(stderr, "softcuda: %s: %s\n", what, text);
    if (reports->texts == NULL) {
        reports->texts = calloc(MAX_TEXTS, sizeof(*reports->texts));
    }
    if (reports->texts != NULL && reports->n < MAX_TEXTS) {
        reports->texts[reports->n] = strdup(text);
    }
    reports->n++;
}

void reports_forget(struct reports *reports)
{
    for (uint64_t i = 0;
         reports->texts != NULL && i < reports->n && i < MAX_TEXTS; i++) {
        free(reports->texts[i]);
        reports->texts[i] = NULL;
    }
    reports->n = 0;
    memset(reports->seen, 0, sizeof(reports->seen));
}

uint64_t reports_read(const struct reports *reports, uint64_t i,
                      const char **text_p)
{
    if (text_p != NULL) {
        *text_p = reports->texts != NULL && i < reports->n && i < MAX_TEXTS
                      ? reports->texts[i]
                      : NULL;
    }
    return reports->n;
}
