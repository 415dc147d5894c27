/*
 * family.h - finds the families that a model names, and asks them about its
 * layers.
 *
 * gh_session_open() calls gh_families_resolve() once, between the options and
 * the plan.  Every family is opened, asked and closed inside this call, so no
 * step ever calls a family.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_FAMILY_FAMILY_H
#define GH_FAMILY_FAMILY_H

#include <graphhooks/family.h>

#include "base/path.h"
#include "plan/check.h"
#include "plan/traits.h"

#include <stdbool.h>
#include <sys/types.h>

#define GH_FAMILY_FILE_BYTES 4096

/* What an error about a family names: the layer, the family and its file. */
struct gh_family_where {
    const char *layer; /* its name; NULL: not about one layer */
    const char *family;
    const char *file; /* NULL: not found yet */
};

/* Fails with "layer 3: family gpt (/dir/gpt.so): " and then the sentence. */
gh_status gh_family_fail(gh_error *err, gh_status status,
                         const struct gh_family_where *where,
                         const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* ---- find.c: the file ---------------------------------------------------- */

/* Walks the directories in which families are looked for, in their order. */
struct gh_family_dirs {
    const char *path, *rest; /* GRAPHHOOKS_PLUGIN_PATH, and what is left */
    int after; /* directories given after `path` */
    char directory[GH_FAMILY_FILE_BYTES];
    bool named; /* by GRAPHHOOKS_PLUGIN_PATH */
    bool there; /* it exists, and is a directory */
    dev_t device;
    ino_t inode;
};
void gh_family_dirs_start(struct gh_family_dirs *dirs, const char *path);
/* Goes to the next directory.  False after the last one. */
bool gh_family_dirs_next(struct gh_family_dirs *dirs);
/* Whether the walk has been at this directory before. */
bool gh_family_dirs_repeat(const struct gh_family_dirs *dirs);

/*
 * Looks for NAME.so in the directories of `path`, which is
 * GRAPHHOOKS_PLUGIN_PATH, then in graphhooks/ beside this library, then where
 * it was installed.  The first file of that name counts, whatever it contains.
 */
gh_status gh_family_find(const struct gh_family_where *where, const char *path,
                         char file[GH_FAMILY_FILE_BYTES], gh_error *err);

/* object.c: fails if the file cannot be loaded without running code of it. */
gh_status gh_family_check_object(const struct gh_family_where *where,
                                 gh_error *err);

/* Loads the file for good, and finds its table, which is not checked yet. */
gh_status gh_family_load(const struct gh_family_where *where,
                         const gh_family **table_p, gh_error *err);

/* The files that gh_family_find() could find, ordered by name. */
struct gh_family_file {
    char name[GH_FAMILY_NAME];
    char file[GH_FAMILY_FILE_BYTES];
};
gh_status gh_family_list(const char *path, struct gh_family_file **files_p,
                         uint32_t *n_p, gh_error *err);

/* ---- table.c: its table -------------------------------------------------- */

/* Copies their table, of whatever size, into a complete one of this release. */
gh_status gh_family_take(const struct gh_family_where *where,
                         const gh_family *theirs, gh_family *ours,
                         gh_error *err);

/* ---- shape.c: what it says of a layer ------------------------------------ */

/* Checks a description by the rules of family.h; `kind` is the layer's.  On
 * GH_OK `traits` has the description, and nothing else. */
GH_COLD gh_status gh_family_take_layer(const struct gh_family_where *where,
                                       gh_layer_kind kind,
                                       const gh_family_layer *layer,
                                       struct gh_traits *traits, gh_error *err);

/* Asks an open family about layer i. */
gh_status gh_family_ask(const struct gh_family_where *where,
                        const gh_family *family, void *ctx, uint32_t i,
                        gh_layer_kind kind, struct gh_traits *traits,
                        gh_error *err);

/* The name of the first field in which two differ; NULL: they are the same. */
const char *gh_family_difference(const struct gh_traits *a,
                                 const struct gh_traits *b);

/* Turns what a family's open or layer returned into a status: GH_OK, or a
 * failure with the family's sentence, or with one that says that it gave
 * none. */
gh_status gh_family_answer(const struct gh_family_where *where,
                           const char *slot, gh_status status, gh_error *theirs,
                           gh_error *err);

/* ---- resolve.c: all of a model ------------------------------------------- */

/* Whether any layer names a family. */
bool gh_families_named(const gh_model *model);

/* Called for each family before any code of its file can run.  A crash before
 * the next call is that family's. */
struct gh_family_watch {
    void (*before)(void *user, const struct gh_family_where *where);
    void *user;
};

/* `watch` may be NULL.  Unless it returns GH_OK, `set` is empty.  A plan takes
 * `set` over. */
gh_status gh_families_resolve(const gh_model *model, const char *path,
                              const struct gh_family_watch *watch,
                              struct gh_traits_set *set, gh_error *err);

#endif
