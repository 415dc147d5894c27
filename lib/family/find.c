/*
 * find.c - from a family's name to its file, and from there to its table.
 *
 * A name has neither slashes nor dots (plan/check.c refuses them), so it
 * cannot lead out of the directories that are searched.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "family/family.h"

#include "base/error.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- directories --------------------------------------------------------- */

/* Writes the directory graphhooks/ in the directory of the file with this
 * code. */
static bool beside(char *directory, size_t bytes)
{
    static const char here;
    const char *slash;
    Dl_info info;

    if (dladdr(&here, &info) == 0 || info.dli_fname == NULL) {
        return false;
    }
    slash = strrchr(info.dli_fname, '/');
    if (slash == NULL) {
        return false;
    }
    snprintf(directory, bytes, "%.*s/graphhooks", (int)(slash - info.dli_fname),
             info.dli_fname);
    return true;
}

/* Whether the path is a file.  The command graphhooks contains this code too,
 * and lies where the directory would be. */
static bool is_file(const char *path)
{
    struct stat found;

    return stat(path, &found) == 0 && !S_ISDIR(found.st_mode);
}

static bool next_directory(struct gh_family_dirs *dirs)
{
    const size_t most = sizeof(dirs->directory);

    dirs->named = true;
    while (*dirs->rest != '\0') {
        const size_t n = strcspn(dirs->rest, ":");

        snprintf(dirs->directory, most, "%.*s", (int)n, dirs->rest);
        dirs->rest += n + (dirs->rest[n] == ':');
        if (n > 0) {
            return true;
        }
    }
    dirs->named = false;
    if (dirs->after == 0) {
        dirs->after++;
        if (beside(dirs->directory, most) && !is_file(dirs->directory)) {
            return true;
        }
    }
    if (dirs->after == 1) {
        dirs->after++;
        snprintf(dirs->directory, most, "%s", PKGLIBDIR);
        return true;
    }
    return false;
}

void gh_family_dirs_start(struct gh_family_dirs *dirs, const char *path)
{
    dirs->path = path;
    dirs->rest = path;
    dirs->after = 0;
}

bool gh_family_dirs_next(struct gh_family_dirs *dirs)
{
    struct stat found;

    if (!next_directory(dirs)) {
        return false;
    }
    dirs->there = stat(dirs->directory, &found) == 0 && S_ISDIR(found.st_mode);
    dirs->device = dirs->there ? found.st_dev : 0;
    dirs->inode = dirs->there ? found.st_ino : 0;
    return true;
}

bool gh_family_dirs_repeat(const struct gh_family_dirs *dirs)
{
    struct gh_family_dirs before;

    gh_family_dirs_start(&before, dirs->path);
    while (gh_family_dirs_next(&before) &&
           (before.rest != dirs->rest || before.after != dirs->after)) {
        if (strcmp(before.directory, dirs->directory) == 0 ||
            (dirs->there && before.there && before.inode == dirs->inode &&
             before.device == dirs->device)) {
            return true;
        }
    }
    return false;
}

/* ---- the file ------------------------------------------------------------ */

/* Fails because no directory has the file.  The remedy comes first, because
 * there may not be room for all dirs. */
static gh_status refuse_nowhere(const struct gh_family_where *where,
                                const char *path, gh_error *err)
{
    struct gh_family_dirs dirs;
    char looked[160] = "";
    size_t used = 0;

    gh_family_dirs_start(&dirs, path);
    while (gh_family_dirs_next(&dirs)) {
        int n;

        if (gh_family_dirs_repeat(&dirs)) {
            continue;
        }
        n = snprintf(looked + used, sizeof(looked) - used, "%s%s",
                     used == 0 ? "" : ", ", dirs.directory);

        if (n < 0 || used + (size_t)n >= sizeof(looked) - 4) {
            strcpy(looked + used, "...");
            break;
        }
        used += (size_t)n;
    }
    return gh_family_fail(err, GH_ERR_NOT_FOUND, where,
                          "not found: put %s.so into a directory of "
                          "GRAPHHOOKS_PLUGIN_PATH; looked in %s",
                          where->family, looked);
}

/* Whether anything has this name.  A link that leads nowhere counts, and so
 * does a file in a directory that cannot be searched: neither is passed
 * over. */
static bool is_there(const char *file)
{
    struct stat found;

    return lstat(file, &found) == 0 || (errno != ENOENT && errno != ENOTDIR);
}

gh_status gh_family_find(const struct gh_family_where *where, const char *path,
                         char file[GH_FAMILY_FILE_BYTES], gh_error *err)
{
    struct gh_family_dirs dirs;

    if (!gh_family_name_is_good(where->family)) {
        return gh_family_fail(err, GH_ERR_INVALID, where,
                              "this is no name: use letters, digits, _ and "
                              "-, at most %d of them",
                              GH_FAMILY_NAME - 1);
    }
    gh_family_dirs_start(&dirs, path);
    while (next_directory(&dirs)) {
        const int n = snprintf(file, GH_FAMILY_FILE_BYTES, "%s/%s.so",
                               dirs.directory, where->family);

        if (n > 0 && n < GH_FAMILY_FILE_BYTES && is_there(file)) {
            return GH_OK;
        }
    }
    return refuse_nowhere(where, path, err);
}

/* What dlerror() says, without the file's name, which the error begins with. */
static const char *load_error(const char *file)
{
    const char *text = dlerror();
    const size_t bytes = strlen(file);

    if (text == NULL) {
        return "the loader does not say why";
    }
    if (strncmp(text, file, bytes) == 0 && text[bytes] == ':') {
        text += bytes + 1 + (text[bytes + 1] == ' ');
    }
    return text;
}

gh_status gh_family_load(const struct gh_family_where *where,
                         const gh_family **table_p, gh_error *err)
{
    gh_status status = gh_family_check_object(where, err);
    const void *symbol;
    void *object;

    if (status != GH_OK) {
        return status;
    }
    /* RTLD_NODELETE: the code stays loaded.  It has only some kilobytes, and
     * unloading it would be a crash wherever somebody still points to it. */
    object = dlopen(where->file, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (object == NULL) {
        return gh_family_fail(err, GH_ERR_NOT_FOUND, where,
                              "it cannot be loaded: %.90s; build it as a "
                              "shared object for this machine",
                              load_error(where->file));
    }
    symbol = dlsym(object, GH_FAMILY_SYMBOL);
    dlclose(object); /* only the count goes down: the object stays */
    if (symbol == NULL) {
        return gh_family_fail(err, GH_ERR_NOT_FOUND, where,
                              "it has no symbol " GH_FAMILY_SYMBOL
                              ": define its table with GH_FAMILY_DEFINE of "
                              "this library's headers");
    }
    *table_p = symbol;
    return GH_OK;
}

/* ---- all of them --------------------------------------------------------- */

struct list {
    struct gh_family_file *files;
    uint32_t n;
};

static bool is_listed(const struct list *list, const char *name)
{
    for (uint32_t i = 0; i < list->n; i++) {
        if (strcmp(list->files[i].name, name) == 0) {
            return true;
        }
    }
    return false;
}

static bool add_file(struct list *list, const char *directory, const char *name)
{
    const uint32_t room = list->n + 1;
    struct gh_family_file *files;
    struct gh_family_file *file;

    files = realloc(list->files, room * sizeof(*files));
    if (files == NULL) {
        return false;
    }
    list->files = files;
    file = &files[list->n];
    snprintf(file->name, sizeof(file->name), "%s", name);
    if (snprintf(file->file, sizeof(file->file), "%s/%s.so", directory, name) <
        (int)sizeof(file->file)) {
        list->n++;
    }
    return true;
}

/* Adds the families of a directory.  The first file of a name counts, as it
 * does when a family is looked for.  Libraries are left out, because the
 * software device lies in the same directory. */
static bool add_directory(struct list *list, const char *directory)
{
    DIR *dir = opendir(directory);
    const struct dirent *entry;
    bool room = true;

    while (dir != NULL && room && (entry = readdir(dir)) != NULL) {
        char name[GH_FAMILY_NAME];
        const size_t bytes = strlen(entry->d_name);

        if (bytes < 4 || bytes - 3 >= sizeof(name) ||
            strcmp(entry->d_name + bytes - 3, ".so") != 0 ||
            strncmp(entry->d_name, "lib", 3) == 0) {
            continue;
        }
        memcpy(name, entry->d_name, bytes - 3);
        name[bytes - 3] = '\0';
        if (gh_family_name_is_good(name) && !is_listed(list, name)) {
            room = add_file(list, directory, name);
        }
    }
    if (dir != NULL) {
        closedir(dir);
    }
    return room;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct gh_family_file *)a)->name,
                  ((const struct gh_family_file *)b)->name);
}

gh_status gh_family_list(const char *path, struct gh_family_file **files_p,
                         uint32_t *n_p, gh_error *err)
{
    struct gh_family_dirs dirs;
    struct list list = { .files = NULL };

    gh_family_dirs_start(&dirs, path);
    while (next_directory(&dirs)) {
        if (!add_directory(&list, dirs.directory)) {
            free(list.files);
            return gh_fail(err, GH_ERR_NO_MEMORY, "no memory for families");
        }
    }
    if (list.n > 0) {
        qsort(list.files, list.n, sizeof(*list.files), by_name);
    }
    *files_p = list.files;
    *n_p = list.n;
    return GH_OK;
}
