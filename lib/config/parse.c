/*
 * parse.c - reads one value: what its row accepts, and an error for each
 * mistake.
 *
 * A value is parsed in full before it is stored, so a failure leaves the field
 * as it was.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "config/private.h"

#include "base/error.h"
#include "words/nearest.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* No row has more words.  Further words would not be suggested. */
#define WORDS_MOST 16

static const struct gh_env_word bool_words[] = {
    { "0", NULL },     { "1", NULL },    { "off", NULL },
    { "on", NULL },    { "no", NULL },   { "yes", NULL },
    { "false", NULL }, { "true", NULL }, { NULL, NULL },
};

/* A text that is being put together.  What does not fit is left out. */
struct text {
    char *at;
    size_t bytes, used;
};

static void __attribute__((format(printf, 2, 3)))
add(struct text *text, const char *format, ...)
{
    va_list args;
    int n;

    va_start(args, format);
    n = vsnprintf(text->at + text->used, text->bytes - text->used, format,
                  args);
    va_end(args);
    if (n > 0) {
        text->used += (size_t)n;
    }
    if (text->used >= text->bytes) {
        text->used = text->bytes - 1;
    }
}

void gh_env_rule(const struct gh_env_row *row, char *text, size_t bytes)
{
    const char *between = row->kind == GH_ENV_KIND_LIST ? ", " : " or ";
    const char *comma = "";
    struct text out = { text, bytes, 0 };

    switch (row->kind) {
    case GH_ENV_KIND_BOOL:
        add(&out, "0 or 1");
        return;
    case GH_ENV_KIND_COUNT:
        add(&out, "a number from %u to %u", row->least, row->most);
        return;
    case GH_ENV_KIND_PATH:
        add(&out, "a path");
        return;
    case GH_ENV_KIND_PATHS:
        add(&out, "directories separated by colons");
        return;
    case GH_ENV_KIND_NAMES:
        add(&out, "names separated by commas");
        return;
    case GH_ENV_KIND_BYTES:
        add(&out, "a number of bytes%s%s%s", row->words != NULL ? ", or " : "",
            row->words != NULL ? row->words[0].word : "",
            row->most != 0 ? ", or 1% to 100% of the device's" : "");
        return;
    case GH_ENV_KIND_FRACTION:
        add(&out, "a number from 0 to 1, or auto");
        return;
    case GH_ENV_KIND_LIST:
        add(&out, "one or more, with commas, of ");
        break;
    case GH_ENV_KIND_ENUM:
    case GH_ENV_KIND_LIBRARY:
        break;
    }

    for (const struct gh_env_word *w = row->words; w->word != NULL; w++) {
        if (w->refused == NULL) {
            add(&out, "%s%s", comma, w->word);
            comma = between;
        }
    }
    if (row->kind == GH_ENV_KIND_LIBRARY) {
        add(&out, " or a path with a /");
    }
}

const char *gh_env_shown(const char *value, char *copy, size_t bytes)
{
    size_t n = 0;

    for (; value[n] != '\0' && n < bytes - 1; n++) {
        unsigned char c = (unsigned char)value[n];

        copy[n] = c < 0x20 || c == 0x7f ? '?' : (char)c;
    }
    copy[n] = '\0';
    if (value[n] != '\0') {
        memcpy(copy + n - 3, "...", 3);
    }
    return copy;
}

const char *gh_env_default(const struct gh_env_row *row)
{
    if (row->dflt[0] != '\0') {
        return row->dflt;
    }
    return row->kind == GH_ENV_KIND_LIST ? "all" : "none";
}

/* The word of a row that was probably meant; NULL: none is similar.  Words that
 * this release refuses are not suggested. */
static const char *near_word(const struct gh_env_word *words, const char *word)
{
    const char *taken[WORDS_MOST + 1] = { NULL };
    size_t n = 0;

    for (; words != NULL && words->word != NULL && n < WORDS_MOST; words++) {
        if (words->refused == NULL) {
            taken[n++] = words->word;
        }
    }
    return nearest_word(word, taken);
}

/* Ends an error with the word that was probably meant, if there is one. */
static const char *did_you_mean(const struct gh_env_word *words,
                                const char *word, char *text, size_t bytes)
{
    const char *near = near_word(words, word);

    text[0] = '\0';
    if (near != NULL) {
        snprintf(text, bytes, ": did you mean %s?", near);
    }
    return text;
}

static const struct gh_env_word *words_of(const struct gh_env_row *row)
{
    return row->kind == GH_ENV_KIND_BOOL ? bool_words : row->words;
}

/* Fails with the rule of the row. */
static gh_status bad_value(const struct gh_env_row *row, const char *label,
                           const char *value, gh_error *err)
{
    char rule[128], copy[40], near[48];

    gh_env_rule(row, rule, sizeof(rule));
    return gh_fail(err, GH_ERR_CONFIG,
                   "%s is \"%s\"; set it to %s, or leave it out for %s%s",
                   label, gh_env_shown(value, copy, sizeof(copy)), rule,
                   gh_env_default(row),
                   did_you_mean(words_of(row), value, near, sizeof(near)));
}

/* Fails for a word that exists, but that this release does not take. */
static gh_status refused_word(const struct gh_env_row *row, const char *label,
                              const struct gh_env_word *word, gh_error *err)
{
    char rule[128];

    gh_env_rule(row, rule, sizeof(rule));
    return gh_fail(err, GH_ERR_CONFIG, "%s: %s %s; set it to %s", label,
                   word->word, word->refused, rule);
}

/* Fails for one word of a list.  Only that word is named, not the whole
 * list. */
static gh_status bad_word(const struct gh_env_row *row, const char *label,
                          const char *value, const char *at, size_t bytes,
                          gh_error *err)
{
    char word[GH_ENV_NAME_MOST + 2], copy[40], near[48], rule[128];
    struct text text = { rule, sizeof(rule), 0 };
    const char *comma = "";

    if (bytes == 0) {
        return gh_fail(err, GH_ERR_CONFIG,
                       "%s: \"%s\" has an empty word: leave out the comma that "
                       "is too many",
                       label, gh_env_shown(value, copy, sizeof(copy)));
    }
    snprintf(word, sizeof(word), "%.*s",
             bytes < sizeof(word) ? (int)bytes : (int)sizeof(word), at);
    for (const struct gh_env_word *w = row->words; w->word != NULL; w++) {
        if (w->refused == NULL) {
            add(&text, "%s%s", comma, w->word);
            comma = ", ";
        }
    }
    did_you_mean(row->words, word, near, sizeof(near));
    return gh_fail(err, GH_ERR_CONFIG, "%s: \"%s\" is none of %s%s%s", label,
                   gh_env_shown(word, copy, sizeof(copy)), rule,
                   near[0] != '\0' ? near : "; leave it out for ",
                   near[0] != '\0' ? "" : gh_env_default(row));
}

/* The position in the list of a word of `bytes` bytes; -1: it is not there. */
static int find_word(const struct gh_env_word *words, const char *text,
                     size_t bytes)
{
    for (int i = 0; words[i].word != NULL; i++) {
        if (strlen(words[i].word) == bytes &&
            memcmp(words[i].word, text, bytes) == 0) {
            return i;
        }
    }
    return -1;
}

static gh_status parse_word(const struct gh_env_row *row, const char *label,
                            const char *value, uint32_t *out, gh_error *err)
{
    const struct gh_env_word *words = words_of(row);
    int i = find_word(words, value, strlen(value));

    if (i < 0) {
        return bad_value(row, label, value, err);
    }
    if (words[i].refused != NULL) {
        return refused_word(row, label, &words[i], err);
    }
    *out = row->kind == GH_ENV_KIND_BOOL ? (uint32_t)i % 2 : (uint32_t)i;
    return GH_OK;
}

static gh_status parse_list(const struct gh_env_row *row, const char *label,
                            const char *value, uint32_t *out, gh_error *err)
{
    const char *at = value;
    uint32_t mask = 0;

    if (value[0] == '\0') { /* the default of a list that has none */
        *out = 0;
        return GH_OK;
    }
    for (;;) {
        size_t bytes = strcspn(at, ",");
        int i = find_word(row->words, at, bytes);

        if (i < 0) {
            return bad_word(row, label, value, at, bytes, err);
        }
        if (row->words[i].refused != NULL) {
            return refused_word(row, label, &row->words[i], err);
        }
        mask |= 1u << i;
        if (at[bytes] == '\0') {
            break;
        }
        at += bytes + 1;
    }
    *out = mask;
    return GH_OK;
}

static gh_status parse_count(const struct gh_env_row *row, const char *label,
                             const char *value, uint32_t *out, gh_error *err)
{
    uint64_t n = 0;

    for (const char *c = value; *c != '\0'; c++) {
        if (*c < '0' || *c > '9' || n > row->most) {
            return bad_value(row, label, value, err);
        }
        n = n * 10 + (uint64_t)(*c - '0');
    }
    if (n < row->least || n > row->most) {
        return bad_value(row, label, value, err);
    }
    *out = (uint32_t)n;
    return GH_OK;
}

#define BYTES_DIGITS 18 /* so many digits always fit into 64 bits */

static gh_status parse_bytes(const struct gh_env_row *row, const char *label,
                             const char *value, uint64_t *out, gh_error *err)
{
    const char *c = value;
    uint64_t n = 0;

    if (row->words != NULL &&
        find_word(row->words, value, strlen(value)) >= 0) {
        *out = GH_ENV_BYTES_WORD;
        return GH_OK;
    }
    if (strlen(value) > BYTES_DIGITS) {
        return bad_value(row, label, value, err);
    }
    for (; *c >= '0' && *c <= '9'; c++) {
        n = n * 10 + (uint64_t)(*c - '0');
    }
    if (strcmp(c, "%") == 0 && n != 0 && n <= row->most) {
        n |= GH_ENV_BYTES_SHARE;
    } else if (*c != '\0') {
        return bad_value(row, label, value, err);
    }
    *out = n;
    return GH_OK;
}

/* Reads digits with at most one point, whatever the locale says about decimal
 * points.  The word of the row gives -1. */
static gh_status parse_fraction(const struct gh_env_row *row, const char *label,
                                const char *value, double *out, gh_error *err)
{
    const char *point = strchr(value, '.');
    double n = 0.0, unit = 1.0;
    size_t digits = 0;

    if (find_word(row->words, value, strlen(value)) >= 0) {
        *out = -1.0;
        return GH_OK;
    }
    for (const char *c = value; *c != '\0'; c++) {
        if (c == point) {
            continue;
        }
        if (*c < '0' || *c > '9' || ++digits > BYTES_DIGITS) {
            return bad_value(row, label, value, err);
        }
        n = n * 10.0 + (*c - '0');
        unit *= point != NULL && c > point ? 10.0 : 1.0;
    }
    if (digits == 0 || n > unit) {
        return bad_value(row, label, value, err);
    }
    *out = n / unit;
    return GH_OK;
}

/* Whether a list of directories has an empty element.  As in PATH it would mean
 * the working directory, from which code must not be loaded by accident. */
static bool has_empty_element(const char *paths)
{
    return paths[0] == ':' || strstr(paths, "::") != NULL ||
           paths[strlen(paths) - 1] == ':';
}

static gh_status parse_text(const struct gh_env_row *row, const char *label,
                            const char *value, char *out, gh_error *err)
{
    size_t bytes = strlen(value);

    if (bytes >= GH_ENV_PATH_BYTES) {
        return gh_fail(err, GH_ERR_CONFIG,
                       "%s has %zu bytes; use a path of less than %d", label,
                       bytes, GH_ENV_PATH_BYTES);
    }
    if (row->kind == GH_ENV_KIND_LIBRARY && strchr(value, '/') == NULL &&
        find_word(row->words, value, bytes) < 0) {
        return bad_value(row, label, value, err);
    }
    if (row->kind == GH_ENV_KIND_PATHS && bytes > 0 &&
        has_empty_element(value)) {
        return bad_value(row, label, value, err);
    }
    memcpy(out, value, bytes + 1);
    return GH_OK;
}

gh_status gh_env_parse(const struct gh_env_row *row, const char *label,
                       const char *value, void *values, gh_error *err)
{
    void *out = (char *)values + row->offset;

    switch (row->kind) {
    case GH_ENV_KIND_BOOL:
    case GH_ENV_KIND_ENUM:
        return parse_word(row, label, value, out, err);
    case GH_ENV_KIND_COUNT:
        return parse_count(row, label, value, out, err);
    case GH_ENV_KIND_LIST:
        return parse_list(row, label, value, out, err);
    case GH_ENV_KIND_LIBRARY:
    case GH_ENV_KIND_PATH:
    case GH_ENV_KIND_PATHS:
    case GH_ENV_KIND_NAMES:
        return parse_text(row, label, value, out, err);
    case GH_ENV_KIND_BYTES:
        return parse_bytes(row, label, value, out, err);
    case GH_ENV_KIND_FRACTION:
        return parse_fraction(row, label, value, out, err);
    }
    return gh_fail(err, GH_ERR_INTERNAL, "%s has no kind", row->name);
}
