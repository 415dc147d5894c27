/*
 * env.h - the options, from the environment and from gh_session_desc.
 *
 * env.def is the only list of variables, and lib/config the only room of the
 * library that looks at the environment.  A session loads the options once,
 * when it opens:
 *
 *     gh_env_load(gh_env_process(), env, err)    defaults, then environment
 *     gh_env_offer(env, GH_ENV_SCOPE, "gh_session_desc.scope", desc->scope,
 *                  err)                          what the host asked for
 *
 * An offer takes effect only where the environment did not speak, but a bad
 * one fails all the same, with the same sentence.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_CONFIG_ENV_H
#define GH_CONFIG_ENV_H

#include <graphhooks/base.h>
#include <graphhooks/plan.h>

#include "base/setting.h"

#include <stdbool.h>

#define GH_ENV_PREFIX "GRAPHHOOKS_"
#define GH_ENV_PATH_BYTES 4096

/* Values of the ENUM rows: the position of the word in the row's list. */
enum {
    GH_ENV_GRANULARITY_PART = 0,
    GH_ENV_GRANULARITY_LAYER = 1,
    GH_ENV_GRANULARITY_CHUNK = 2
};
enum {
    GH_ENV_CHECK_OFF = 0,
    GH_ENV_CHECK_BITWISE = 1,
    GH_ENV_CHECK_RANKS = 2
};
/* The value of a BYTES row that is its only word. */
#define GH_ENV_BYTES_WORD UINT64_MAX
/* That of a percentage has this bit, and else the number. */
#define GH_ENV_BYTES_SHARE (UINT64_C(1) << 62)
/* LOG is a gh_log_level, or 0 for off.  In SCOPE bit n stands for the n-th
 * word; without bits, whole layers are captured. */

/* One id for each variable, such as GH_ENV_ENABLE, in the order of env.def. */
enum gh_env_id {
#define GH_ENV(id, field, kind, dflt, least, most, words, ranks, doc) \
    GH_ENV_##id,
#define GH_ENV_OTHER(name, state, doc)
#include "config/env.def"
#undef GH_ENV
#undef GH_ENV_OTHER
    GH_ENV_COUNT
};

/* Lines for the log: unknown and removed names. */
struct gh_env_notes {
    uint32_t n;    /* lines kept */
    uint32_t lost; /* lines there was no room for */
    char line[8][256];
};

/* The type of the field of each kind of row. */
#define GH_ENV_KEEP_BOOL(field) uint32_t field;
#define GH_ENV_KEEP_COUNT(field) uint32_t field;
#define GH_ENV_KEEP_ENUM(field) uint32_t field;
#define GH_ENV_KEEP_LIST(field) uint32_t field;
#define GH_ENV_KEEP_LIBRARY(field) char field[GH_ENV_PATH_BYTES];
#define GH_ENV_KEEP_PATH(field) char field[GH_ENV_PATH_BYTES];
#define GH_ENV_KEEP_PATHS(field) char field[GH_ENV_PATH_BYTES];
#define GH_ENV_KEEP_NAMES(field) char field[GH_ENV_PATH_BYTES];
#define GH_ENV_KEEP_BYTES(field) uint64_t field;
#define GH_ENV_KEEP_FRACTION(field) double field;

/* The options of a session, about 24 KiB.  It owns no memory, so nothing has to
 * be freed in it. */
struct gh_env {
#define GH_ENV(id, field, kind, dflt, least, most, words, ranks, doc) \
    GH_ENV_KEEP_##kind(field)
#define GH_ENV_OTHER(name, state, doc)
#include "config/env.def"
#undef GH_ENV
#undef GH_ENV_OTHER
    bool set[GH_ENV_COUNT]; /* by gh_env_id: the environment spoke */
    struct gh_env_notes notes;
};

/* One row of a table.  Only tests have tables other than env.def's. */
enum gh_env_kind {
    GH_ENV_KIND_BOOL,
    GH_ENV_KIND_COUNT,
    GH_ENV_KIND_ENUM,
    GH_ENV_KIND_LIST,
    GH_ENV_KIND_LIBRARY,
    GH_ENV_KIND_PATH,
    GH_ENV_KIND_PATHS,
    GH_ENV_KIND_NAMES,   /* words that lib/config does not know */
    GH_ENV_KIND_BYTES,   /* a number of 64 bits; a word is GH_ENV_BYTES_WORD */
    GH_ENV_KIND_FRACTION /* 0 to 1; its only word is below 0 */
};
enum gh_env_state {
    GH_ENV_STATE_STABLE,
    GH_ENV_STATE_TOOL,   /* read by a tool, ignored here */
    GH_ENV_STATE_REMOVED /* reported with the row's meaning, and ignored */
};
enum gh_env_ranks {
    GH_ENV_RANKS_OWN,
    GH_ENV_RANKS_SAME /* on all ranks that share a bank */
};
struct gh_env_word {
    const char *word;    /* NULL ends a list */
    const char *refused; /* why this release does not take it; or NULL */
};
struct gh_env_row {
    const char *name; /* with the prefix */
    const char *dflt;
    const char *doc;
    const struct gh_env_word *words;
    size_t offset; /* of the value in the struct that is filled */
    uint32_t least, most;
    enum gh_env_kind kind;
    enum gh_env_state state;
    enum gh_env_ranks ranks;
};

/* The process's environment.  It is empty in a setuid program, whose caller
 * must not choose the libraries that it loads. */
const char *const *gh_env_process(void);
/* The value of a variable that is not the library's; NULL: it is not set. */
const char *gh_env_of_others(const char *const *environment, const char *name);

/*
 * Loads the defaults, then every GRAPHHOOKS_* of envp.  An empty value counts
 * as no value.  The error GH_ERR_CONFIG names the variable, its value, the
 * rule and the remedy.  env->notes holds what is worth a line in the log.
 */
gh_status gh_env_load(const char *const *envp, struct gh_env *env,
                      gh_error *err);

/* Loads any table in this way; set[i] says that row i was in envp.  Rows that
 * are not STABLE come last. */
gh_status gh_env_load_rows(const struct gh_env_row *rows, size_t n_rows,
                           const char *const *envp, void *values, bool *set,
                           struct gh_env_notes *notes, gh_error *err);

/*
 * Offers a value that the host asks for.  `label` stands for the variable's
 * name in an error.  NULL or "" keeps the value that is there.
 */
gh_status gh_env_offer(struct gh_env *env, enum gh_env_id id, const char *label,
                       const char *value, gh_error *err);

/* What a host asks for, of the options in the environment. */
struct gh_env_offer {
    enum gh_env_id id;
    const char *label, *value;
};

/* Loads envp, or the process's environment if that is NULL, and offers what the
 * host asks for. */
gh_status gh_env_load_with(const char *const *envp,
                           const struct gh_env_offer *offers, size_t n,
                           struct gh_env *env, gh_error *err);

/* Writes the options that are the same on ranks that share a bank, in the order
 * of env.def.  Returns how many they are, at most GH_ENV_COUNT. */
uint32_t gh_env_settings(const struct gh_env *env, struct gh_setting *settings);

/* Offers a number for a COUNT row; 0 keeps the value that is there. */
gh_status gh_env_offer_count(struct gh_env *env, enum gh_env_id id,
                             const char *label, uint32_t value, gh_error *err);

enum gh_env_format {
    GH_ENV_FORMAT_TEXT,    /* with the values that envp gives */
    GH_ENV_FORMAT_MARKDOWN /* README's table; envp is not looked at */
};
void gh_env_print(enum gh_env_format format, const char *const *envp,
                  gh_write_fn *write, void *user);

#endif
