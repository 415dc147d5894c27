/*
 * print.c - shows the options to people: `graphhooks env`, and README's table.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "config/private.h"

#include <stdio.h>
#include <string.h>

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
        const struct gh_env_row *row = &gh_env_table[i];

        gh_env_rule(row, rule, sizeof(rule));
        put(sink, "| `");
        put(sink, row->name);
        put(sink, "` | ");
        put(sink, rule);
        put(sink, " | ");
        put(sink, gh_env_default(row));
        put(sink, " | ");
        put(sink, row->doc);
        put(sink, " |\n");
    }
}

/* What envp says of a row; NULL: nothing. */
static const char *look_up(const struct gh_env_row *row,
                           const char *const *envp)
{
    for (; envp != NULL && *envp != NULL; envp++) {
        size_t bytes = strcspn(*envp, "=");

        if ((*envp)[bytes] == '=' && (*envp)[bytes + 1] != '\0' &&
            gh_env_is_named(row, *envp, bytes)) {
            return *envp + bytes + 1;
        }
    }
    return NULL;
}

/* Each row is parsed by itself, so that all mistakes are shown and not only the
 * first. */
static void print_row(const struct sink *sink, const struct gh_env_row *row,
                      const char *const *envp, struct gh_env *scratch)
{
    const char *value = look_up(row, envp);
    char line[640], rule[128], copy[80];
    gh_error err;

    if (value == NULL) {
        snprintf(line, sizeof(line), "%s=%s\n", row->name, row->dflt);
    } else {
        snprintf(line, sizeof(line), "%s=%s  (set)\n", row->name,
                 gh_env_shown(value, copy, sizeof(copy)));
    }
    put(sink, line);
    if (value != NULL &&
        gh_env_parse(row, row->name, value, scratch, &err) != GH_OK) {
        snprintf(line, sizeof(line), "    wrong: %s\n", err.text);
        put(sink, line);
    }
    gh_env_rule(row, rule, sizeof(rule));
    snprintf(line, sizeof(line), "    %s\n    %s; default %s\n\n", row->doc,
             rule, gh_env_default(row));
    put(sink, line);
}

static void print_text(const struct sink *sink, const char *const *envp)
{
    struct gh_env scratch;
    const char *only[2] = { NULL, NULL };
    gh_error err;

    for (size_t i = 0; i < GH_ENV_COUNT; i++) {
        print_row(sink, &gh_env_table[i], envp, &scratch);
    }
    /* Each variable is loaded by itself too, so that a wrong value hides no
     * note. */
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
