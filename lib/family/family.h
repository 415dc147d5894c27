/*
 * family.h - finds the families that a model names, asks them about its
 * layers, and is done with them.
 *
 * gh_session_open() calls gh_families_resolve() once, between the options and
 * the plan: every family is opened, asked and closed inside it, so that none
 * is ever called from a step.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_FAMILY_FAMILY_H
#define GH_FAMILY_FAMILY_H

#include <graphhooks/family.h>

#include "plan/check.h"
#include "plan/traits.h"

#include <stdbool.h>
#include <sys/types.h>

#define GH_FAMILY_FILE_BYTES 4096

/* Of a sentence about a family: which, found where, named by which layer. */
struct gh_family_where {
    const char *layer; /* its name; NULL: not a layer's */
    const char *family;
    const char *file; /* NULL: not found yet */
};

/* "layer 3: family gpt (/dir/gpt.so): ", then the sentence. */
gh_status gh_family_fail(gh_error *err, gh_status status,
                         const struct gh_family_where *where,
                         const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* ---- find.c: the file ---------------------------------------------------- */

/* Walks the directories in which families are looked for, in their order. */
struct gh_family_places {
    const char *path, *rest; /* GRAPHHOOKS_PLUGIN_PATH, and what is left */
    int after; /* how many of those that follow it have been given */
    char directory[GH_FAMILY_FILE_BYTES];
    bool named; /* by GRAPHHOOKS_PLUGIN_PATH */
    bool there; /* and is a directory */
    dev_t device;
    ino_t inode;
};
void gh_family_places_start(struct gh_family_places *places, const char *path);
/* False after the last. */
bool gh_family_places_next(struct gh_family_places *places);
/* Whether the walk has been at this directory before. */
bool gh_family_places_repeat(const struct gh_family_places *places);

/*
 * Looks for NAME.so in the directories of `path`, as GRAPHHOOKS_PLUGIN_PATH
 * has them, then in graphhooks/ beside this library, then where it was
 * installed.  The first of that name counts, whatever it is.
 */
gh_status gh_family_find(const struct gh_family_where *where, const char *path,
                         char file[GH_FAMILY_FILE_BYTES], gh_error *err);

/* object.c: whether a file can be loaded without running code of it. */
gh_status gh_family_check_object(const struct gh_family_where *where,
                                 gh_error *err);

/* Loads the file for good, and finds its table, which nobody has checked. */
gh_status gh_family_load(const struct gh_family_where *where,
                         const gh_family **table_p, gh_error *err);

/* Every file that gh_family_find() could find, ordered by name. */
struct gh_family_file {
    char name[GH_FAMILY_NAME];
    char file[GH_FAMILY_FILE_BYTES];
};
gh_status gh_family_list(const char *path, struct gh_family_file **files_p,
                         uint32_t *n_p, gh_error *err);

/* ---- table.c: its table -------------------------------------------------- */

/* Makes a whole table of theirs, of whatever size it is. */
gh_status gh_family_take(const struct gh_family_where *where,
                         const gh_family *theirs, gh_family *ours,
                         gh_error *err);

/* ---- shape.c: what it says of a layer ------------------------------------ */

/* Whether a description follows the rules of family.h; `kind` is the layer's.
 * On GH_OK `traits` has it, and nothing else. */
gh_status gh_family_take_layer(const struct gh_family_where *where,
                               gh_layer_kind kind, const gh_family_layer *layer,
                               struct gh_traits *traits, gh_error *err);

/* Asks a family that is open about layer i. */
gh_status gh_family_ask(const struct gh_family_where *where,
                        const gh_family *family, void *ctx, uint32_t i,
                        gh_layer_kind kind, struct gh_traits *traits,
                        gh_error *err);

/* The name of the first field in which two differ; NULL: in none. */
const char *gh_family_difference(const struct gh_traits *a,
                                 const struct gh_traits *b);

/* What a family's open or layer has returned: GH_OK, or its sentence, or one
 * that says that there is none. */
gh_status gh_family_answer(const struct gh_family_where *where,
                           const char *slot, gh_status status, gh_error *theirs,
                           gh_error *err);

/* ---- resolve.c: all of a model ------------------------------------------- */

/* Whether any layer names a family. */
bool gh_families_named(const gh_model *model);

/* Told of every family before any code of its file can run.  Until it is told
 * of the next, a crash is that family's. */
struct gh_family_watch {
    void (*before)(void *user, const struct gh_family_where *where);
    void *user;
};

/* `watch` may be NULL.  `set` is empty unless it returns GH_OK; a plan takes
 * it over. */
gh_status gh_families_resolve(const gh_model *model, const char *path,
                              const struct gh_family_watch *watch,
                              struct gh_traits_set *set, gh_error *err);

#endif
