/*
 * env.c - options: one table, one parser, one sentence for each mistake.
 *
 * gh_session_open() is the caller, and `graphhooks env`.  A value is parsed
 * in full before it is stored, so a failure leaves the field as it was.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "base/error.h"
#include "words/nearest.h"
#include "config/env.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>

/* Longer names are reported without a suggestion. */
#define NAME_MOST 64
/* No row has more words: what is beyond is not suggested. */
#define WORDS_MOST 16

static const struct gh_env_word bool_words[] = {
    { "0", NULL },     { "1", NULL },    { "off", NULL },
    { "on", NULL },    { "no", NULL },   { "yes", NULL },
    { "false", NULL }, { "true", NULL }, { NULL, NULL },
};

static const struct gh_env_word scope_words[] = {
    { "attn", NULL },
    { "mlp", NULL },
    { "moe", NULL },
    { "moe_router", NULL },
    { "moe_preprocess", NULL },
    { "mamba", NULL },
    { NULL, NULL },
};

static const struct gh_env_word granularity_words[] = {
    { "part", NULL },
    { "layer", NULL },
    { "chunk", NULL },
    { NULL, NULL },
};

static const struct gh_env_word driver_words[] = {
    { "cuda", NULL },
    { "soft", NULL },
    { NULL, NULL },
};

static const struct gh_env_word log_words[] = {
    { "off", NULL },   { "warn", NULL }, { "info", NULL },
    { "debug", NULL }, { NULL, NULL },
};

static const struct gh_env_word check_words[] = {
    { "off", NULL },
    { "bitwise", NULL },
    { "ranks", "needs sessions that know of other ranks, which this release "
               "does not have" },
    { NULL, NULL },
};

static const struct gh_env_row table[] = {
#define GH_ENV(id, field, kind, dflt, least, most, words, doc) \
    { GH_ENV_PREFIX #id, \
      dflt, \
      doc, \
      words, \
      offsetof(struct gh_env, field), \
      least, \
      most, \
      GH_ENV_KIND_##kind, \
      GH_ENV_STATE_STABLE },
#define GH_ENV_OTHER(name, state, doc) \
    { GH_ENV_PREFIX name,  "", doc, NULL, 0, 0, 0, GH_ENV_KIND_PATH, \
      GH_ENV_STATE_##state },
#include "config/env.def"
#undef GH_ENV
#undef GH_ENV_OTHER
};
#define TABLE_ROWS (sizeof(table) / sizeof(table[0]))

/* A text that is being put together; what does not fit is left out. */
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

/* What a row accepts, for sentences and tables. */
static void describe(const struct gh_env_row *row, struct text *out)
{
    const char *between = row->kind == GH_ENV_KIND_LIST ? ", " : " or ";
    const char *comma = "";

    switch (row->kind) {
    case GH_ENV_KIND_BOOL:
        add(out, "0 or 1");
        return;
    case GH_ENV_KIND_COUNT:
        add(out, "a number from %u to %u", row->least, row->most);
        return;
    case GH_ENV_KIND_PATH:
        add(out, "a path");
        return;
    case GH_ENV_KIND_PATHS:
        add(out, "directories separated by colons");
        return;
    case GH_ENV_KIND_LIST:
        add(out, "one or more, with commas, of ");
        break;
    case GH_ENV_KIND_ENUM:
    case GH_ENV_KIND_LIBRARY:
        break;
    }

    for (const struct gh_env_word *w = row->words; w->word != NULL; w++) {
        if (w->refused == NULL) {
            add(out, "%s%s", comma, w->word);
            comma = between;
        }
    }
    if (row->kind == GH_ENV_KIND_LIBRARY) {
        add(out, " or a path with a /");
    }
}

/* Values come from outside: cut them short, and print no control bytes. */
static const char *shown(const char *value, char *copy, size_t bytes)
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

/* As a person reads it: a list that is not set holds all. */
static const char *default_of(const struct gh_env_row *row)
{
    if (row->dflt[0] != '\0') {
        return row->dflt;
    }
    return row->kind == GH_ENV_KIND_LIST ? "all" : "none";
}

/* Of the words of a row the one that was probably meant; NULL: none is near.
 * What this release refuses is not offered. */
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

/* Ends a sentence with the word that was meant, where there is one. */
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

/* The row's own sentence. */
static gh_status bad_value(const struct gh_env_row *row, const char *label,
                           const char *value, gh_error *err)
{
    char rule[128], copy[40], near[48];
    struct text text = { rule, sizeof(rule), 0 };

    describe(row, &text);
    return gh_fail(err, GH_ERR_CONFIG,
                   "%s is \"%s\"; set it to %s, or leave it out for %s%s",
                   label, shown(value, copy, sizeof(copy)), rule,
                   default_of(row),
                   did_you_mean(words_of(row), value, near, sizeof(near)));
}

/* A word that there is, and that this release does not take. */
static gh_status refused_word(const struct gh_env_row *row, const char *label,
                              const struct gh_env_word *word, gh_error *err)
{
    char rule[128];
    struct text text = { rule, sizeof(rule), 0 };

    describe(row, &text);
    return gh_fail(err, GH_ERR_CONFIG, "%s: %s %s; set it to %s", label,
                   word->word, word->refused, rule);
}

/* One word of a list: it alone is named, not all of the list. */
static gh_status bad_word(const struct gh_env_row *row, const char *label,
                          const char *value, const char *at, size_t bytes,
                          gh_error *err)
{
    char word[NAME_MOST + 2], copy[40], near[48], rule[128];
    struct text text = { rule, sizeof(rule), 0 };
    const char *comma = "";

    if (bytes == 0) {
        return gh_fail(err, GH_ERR_CONFIG,
                       "%s: \"%s\" has an empty word: leave out the comma that "
                       "is too many",
                       label, shown(value, copy, sizeof(copy)));
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
                   shown(word, copy, sizeof(copy)), rule,
                   near[0] != '\0' ? near : "; leave it out for ",
                   near[0] != '\0' ? "" : default_of(row));
}

/* The position of a word of `bytes` bytes in the list; -1 when not there. */
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

/* An empty element would mean the working directory, as in PATH: the wrong
 * place to load code from by accident. */
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

/* The one way in, for defaults, the environment and the host's options. */
static gh_status parse(const struct gh_env_row *row, const char *label,
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
        return parse_text(row, label, value, out, err);
    }
    return gh_fail(err, GH_ERR_INTERNAL, "%s has no kind", row->name);
}

/* Whether the row answers to a name of `bytes` bytes. */
static bool is_named(const struct gh_env_row *row, const char *name,
                     size_t bytes)
{
    size_t own = strlen(row->name);

    if (row->name[own - 1] == '*') {
        return bytes >= own - 1 && memcmp(row->name, name, own - 1) == 0;
    }
    return bytes == own && memcmp(row->name, name, own) == 0;
}

static void __attribute__((format(printf, 2, 3)))
note(struct gh_env_notes *notes, const char *format, ...)
{
    va_list args;

    if (notes->n == sizeof(notes->line) / sizeof(notes->line[0])) {
        notes->lost++;
        return;
    }
    va_start(args, format);
    vsnprintf(notes->line[notes->n++], sizeof(notes->line[0]), format, args);
    va_end(args);
}

static void note_unknown(const struct gh_env_row *rows, size_t n_rows,
                         const char *name, size_t bytes,
                         struct gh_env_notes *notes)
{
    const char *names[64] = { NULL };
    char copy[NAME_MOST + 1], clean[NAME_MOST + 1];
    const char *near;
    size_t n = 0;

    if (bytes > NAME_MOST) {
        note(notes,
             "%.*s... is not a variable of this release; "
             "`graphhooks env` lists them",
             32, name);
        return;
    }

    memcpy(copy, name, bytes);
    copy[bytes] = '\0';
    for (size_t i = 0; i < n_rows && n < 63; i++) {
        if (rows[i].state == GH_ENV_STATE_STABLE) {
            names[n++] = rows[i].name + sizeof(GH_ENV_PREFIX) - 1;
        }
    }
    near = nearest_word(copy + sizeof(GH_ENV_PREFIX) - 1, names);
    shown(copy, clean, sizeof(clean));
    if (near != NULL) {
        note(notes,
             "%s is not a variable of this release; did you mean " GH_ENV_PREFIX
             "%s?",
             clean, near);
    } else {
        note(notes,
             "%s is not a variable of this release; "
             "`graphhooks env` lists them",
             clean);
    }
}

gh_status gh_env_load_rows(const struct gh_env_row *rows, size_t n_rows,
                           const char *const *envp, void *values, bool *set,
                           struct gh_env_notes *notes, gh_error *err)
{
    const size_t prefix = sizeof(GH_ENV_PREFIX) - 1;
    gh_status status;
    size_t i;

    memset(notes, 0, sizeof(*notes));
    for (i = 0; i < n_rows; i++) {
        if (rows[i].state != GH_ENV_STATE_STABLE) {
            continue;
        }
        set[i] = false;
        status = parse(&rows[i], rows[i].name, rows[i].dflt, values, err);
        if (status != GH_OK) {
            return status;
        }
    }

    for (; envp != NULL && *envp != NULL; envp++) {
        size_t bytes = strcspn(*envp, "=");
        const char *value = *envp + bytes + 1;

        if (strncmp(*envp, GH_ENV_PREFIX, prefix) != 0 ||
            (*envp)[bytes] == '\0') {
            continue;
        }
        for (i = 0; i < n_rows && !is_named(&rows[i], *envp, bytes); i++) {
        }
        if (i == n_rows) {
            note_unknown(rows, n_rows, *envp, bytes, notes);
        } else if (rows[i].state == GH_ENV_STATE_REMOVED) {
            note(notes, "%s is set: %s", rows[i].name, rows[i].doc);
        } else if (rows[i].state == GH_ENV_STATE_STABLE && !set[i] &&
                   *value != '\0') {
            /* Of two with one name the first counts, as for getenv(). */
            status = parse(&rows[i], rows[i].name, value, values, err);
            if (status != GH_OK) {
                return status;
            }
            set[i] = true;
        }
    }
    return GH_OK;
}

gh_status gh_env_load(const char *const *envp, struct gh_env *env,
                      gh_error *err)
{
    memset(env, 0, sizeof(*env));
    return gh_env_load_rows(table, TABLE_ROWS, envp, env, env->set, &env->notes,
                            err);
}

gh_status gh_env_offer(struct gh_env *env, enum gh_env_id id, const char *label,
                       const char *value, gh_error *err)
{
    union {
        uint32_t number;
        char text[GH_ENV_PATH_BYTES];
    } discarded;
    struct gh_env_row row = table[id];

    if (value == NULL || value[0] == '\0') {
        return GH_OK;
    }
    if (env->set[id]) {
        row.offset = 0;
        return parse(&row, label, value, &discarded, err);
    }
    return parse(&row, label, value, env, err);
}

gh_status gh_env_offer_count(struct gh_env *env, enum gh_env_id id,
                             const char *label, uint32_t value, gh_error *err)
{
    char text[16];

    if (value == 0) {
        return GH_OK;
    }
    snprintf(text, sizeof(text), "%u", value);
    return gh_env_offer(env, id, label, text, err);
}

const char *const *gh_env_process(void)
{
    extern char **environ;
    static const char *const none[] = { NULL };

    if (getauxval(AT_SECURE) != 0) {
        return none;
    }
    return (const char *const *)environ;
}

struct sink {
    gh_write_fn *write;
    void *user;
};

static void put(const struct sink *sink, const char *text)
{
    sink->write(sink->user, text, strlen(text));
}

static void print_markdown(const struct sink *sink)
{
    char rule[128];

    put(sink, "| variable | values | default | meaning |\n"
              "| --- | --- | --- | --- |\n");
    for (size_t i = 0; i < GH_ENV_COUNT; i++) {
        struct text text = { rule, sizeof(rule), 0 };

        describe(&table[i], &text);
        put(sink, "| `");
        put(sink, table[i].name);
        put(sink, "` | ");
        put(sink, rule);
        put(sink, " | ");
        put(sink, default_of(&table[i]));
        put(sink, " | ");
        put(sink, table[i].doc);
        put(sink, " |\n");
    }
}

/* What envp says of a row; NULL when nothing. */
static const char *look_up(const struct gh_env_row *row,
                           const char *const *envp)
{
    for (; envp != NULL && *envp != NULL; envp++) {
        size_t bytes = strcspn(*envp, "=");

        if ((*envp)[bytes] == '=' && (*envp)[bytes + 1] != '\0' &&
            is_named(row, *envp, bytes)) {
            return *envp + bytes + 1;
        }
    }
    return NULL;
}

/* One row is tried alone, so that every mistake is shown, not the first. */
static void print_row(const struct sink *sink, const struct gh_env_row *row,
                      const char *const *envp, struct gh_env *scratch)
{
    const char *value = look_up(row, envp);
    char line[640], rule[128], copy[80];
    struct text text = { rule, sizeof(rule), 0 };
    gh_error err;

    if (value == NULL) {
        snprintf(line, sizeof(line), "%s=%s\n", row->name, row->dflt);
    } else {
        snprintf(line, sizeof(line), "%s=%s  (set)\n", row->name,
                 shown(value, copy, sizeof(copy)));
    }
    put(sink, line);
    if (value != NULL && parse(row, row->name, value, scratch, &err) != GH_OK) {
        snprintf(line, sizeof(line), "    wrong: %s\n", err.text);
        put(sink, line);
    }
    describe(row, &text);
    snprintf(line, sizeof(line), "    %s\n    %s; default %s\n\n", row->doc,
             rule, default_of(row));
    put(sink, line);
}

static void print_text(const struct sink *sink, const char *const *envp)
{
    struct gh_env scratch;
    const char *only[2] = { NULL, NULL };
    gh_error err;

    for (size_t i = 0; i < GH_ENV_COUNT; i++) {
        print_row(sink, &table[i], envp, &scratch);
    }
    /* One string is tried alone here too: a wrong value hides no note. */
    for (; envp != NULL && *envp != NULL; envp++) {
        only[0] = *envp;
        gh_env_load(only, &scratch, &err);
        if (scratch.notes.n > 0) {
            put(sink, "note: ");
            put(sink, scratch.notes.line[0]);
            put(sink, "\n");
        }
    }
}

void gh_env_print(enum gh_env_format format, const char *const *envp,
                  gh_write_fn *write, void *user)
{
    const struct sink sink = { write, user };

    if (format == GH_ENV_FORMAT_MARKDOWN) {
        print_markdown(&sink);
    } else {
        print_text(&sink, envp);
    }
}
