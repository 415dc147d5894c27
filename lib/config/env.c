/*
 * env.c - the options that exist, and their values: from the defaults, the
 * environment and the host.
 *
 * gh_session_open() and `graphhooks env` are the callers.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include <graphhooks/exchange.h>

#include "config/private.h"

#include "words/exchange.h"
#include "words/nearest.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>

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

static const struct gh_env_word nccl_words[] = {
    { "nccl", NULL },
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
    { "ranks", NULL },
    { NULL, NULL },
};

/* Read by graphhooks.torch alone. */
static const struct gh_env_word verify_words[] = {
    { "off", NULL },
    { "auto", NULL },
    { "always", NULL },
    { NULL, NULL },
};

/* By gh_overlap_order. */
static const struct gh_env_word overlap_words[] = {
    { "off", NULL },
    { "fixed", NULL },
    { "auto", NULL },
    { NULL, NULL },
};

/* By gh_exchange_kind; 0 is auto. */
static const struct gh_env_word exchange_words[] = {
    { "auto", NULL },
#define ROW(id, word) [GH_EXCHANGE_##id] = { #word, NULL },
    EXCHANGE_KINDS(ROW)
#undef ROW
    { NULL, NULL },
};

static const struct gh_env_word small_words[] = {
    { "measure", NULL },
    { NULL, NULL },
};

static const struct gh_env_word fraction_words[] = {
    { "auto", NULL },
    { NULL, NULL },
};

const struct gh_env_row gh_env_table[] = {
#define GH_ENV(id, field, kind, dflt, least, most, words, ranks, doc) \
    { GH_ENV_PREFIX #id, \
      dflt, \
      doc, \
      words, \
      offsetof(struct gh_env, field), \
      least, \
      most, \
      GH_ENV_KIND_##kind, \
      GH_ENV_STATE_STABLE, \
      GH_ENV_RANKS_##ranks },
#define GH_ENV_OTHER(name, state, doc) \
    { GH_ENV_PREFIX name,  "", doc, NULL, 0, 0, 0, GH_ENV_KIND_PATH, \
      GH_ENV_STATE_##state, GH_ENV_RANKS_OWN },
#include "config/env.def"
#undef GH_ENV
#undef GH_ENV_OTHER
};
#define TABLE_ROWS (sizeof(gh_env_table) / sizeof(gh_env_table[0]))

bool gh_env_is_named(const struct gh_env_row *row, const char *name,
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
    char copy[GH_ENV_NAME_MOST + 1], clean[GH_ENV_NAME_MOST + 1];
    const char *near;
    size_t n = 0;

    if (bytes > GH_ENV_NAME_MOST) {
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
    gh_env_shown(copy, clean, sizeof(clean));
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
        status =
            gh_env_parse(&rows[i], rows[i].name, rows[i].dflt, values, err);
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
        for (i = 0; i < n_rows && !gh_env_is_named(&rows[i], *envp, bytes);
             i++) {
        }
        if (i == n_rows) {
            note_unknown(rows, n_rows, *envp, bytes, notes);
        } else if (rows[i].state == GH_ENV_STATE_REMOVED) {
            note(notes, "%s is set: %s", rows[i].name, rows[i].doc);
        } else if (rows[i].state == GH_ENV_STATE_STABLE && !set[i] &&
                   *value != '\0') {
            /* If a name is there twice, the first counts, as for getenv(). */
            status = gh_env_parse(&rows[i], rows[i].name, value, values, err);
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
    return gh_env_load_rows(gh_env_table, TABLE_ROWS, envp, env, env->set,
                            &env->notes, err);
}

gh_status gh_env_offer(struct gh_env *env, enum gh_env_id id, const char *label,
                       const char *value, gh_error *err)
{
    union {
        uint32_t number;
        uint64_t bytes;
        double fraction;
        char text[GH_ENV_PATH_BYTES];
    } discarded;
    struct gh_env_row row = gh_env_table[id];

    if (value == NULL || value[0] == '\0') {
        return GH_OK;
    }
    if (env->set[id]) {
        row.offset = 0;
        return gh_env_parse(&row, label, value, &discarded, err);
    }
    return gh_env_parse(&row, label, value, env, err);
}

gh_status gh_env_load_with(const char *const *envp,
                           const struct gh_env_offer *offers, size_t n,
                           struct gh_env *env, gh_error *err)
{
    gh_status status =
        gh_env_load(envp != NULL ? envp : gh_env_process(), env, err);

    for (size_t i = 0; i < n && status == GH_OK; i++) {
        status = gh_env_offer(env, offers[i].id, offers[i].label,
                              offers[i].value, err);
    }
    return status;
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

const char *gh_env_of_others(const char *const *environment, const char *name)
{
    const size_t n = strlen(name);

    for (; *environment != NULL; environment++) {
        if (strncmp(*environment, name, n) == 0 && (*environment)[n] == '=') {
            return *environment + n + 1;
        }
    }
    return NULL;
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
