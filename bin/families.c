/*
 * families.c - see families.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "families.h"

#include "base/error.h"
#include "base/json.h"
#include "child.h"
#include "config/env.h"
#include "words/nearest.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A command that was only built, or that was installed elsewhere than
 * configured, has its families beside it. */
static void add_own_places(char *path, size_t bytes)
{
    static const char *const places[] = { "plugins/.libs",
                                          "../lib/graphhooks" };
    char self[2048], place[sizeof(self) + 32], real[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    char *slash;

    self[n > 0 ? n : 0] = '\0';
    slash = strrchr(self, '/');
    if (slash == NULL || strchr(self, ':') != NULL) {
        return;
    }
    slash[1] = '\0';
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        const size_t used = strlen(path);

        snprintf(place, sizeof(place), "%s%s", self, places[i]);
        if (realpath(place, real) != NULL && used + strlen(real) + 2 <= bytes) {
            snprintf(path + used, bytes - used, "%s%s", used == 0 ? "" : ":",
                     real);
        }
    }
}

/* As a session warns of it. */
static void warn_of_dirs(const char *path)
{
    struct gh_family_dirs dirs;

    gh_family_dirs_start(&dirs, path);
    while (gh_family_dirs_next(&dirs) && dirs.named) {
        if (!dirs.there && !gh_family_dirs_repeat(&dirs)) {
            fprintf(stderr,
                    "graphhooks: GRAPHHOOKS_PLUGIN_PATH: %s is not a "
                    "directory\n",
                    dirs.directory);
        }
    }
}

/* Where a session would look, and the command's own dirs. */
static gh_status get_path(char *path, size_t bytes, gh_error *err)
{
    static struct gh_env env;
    gh_status status = gh_env_load(gh_env_process(), &env, err);

    snprintf(path, bytes, "%s", status == GH_OK ? env.plugin_path : "");
    add_own_places(path, bytes);
    return status;
}

/* ---- plan ---------------------------------------------------------------- */

/* The nearest of the families that there are; NULL: none is near. */
static const char *nearest(const char *family, const char *path, char *near)
{
    struct gh_family_file *files;
    const char *found = NULL;
    const char **names;
    uint32_t n;

    if (gh_family_list(path, &files, &n, NULL) != GH_OK) {
        return NULL;
    }
    names = calloc(n + 1, sizeof(*names));
    for (uint32_t i = 0; names != NULL && i < n; i++) {
        names[i] = files[i].name;
    }
    if (names != NULL) {
        found = nearest_word(family, names);
    }
    if (found != NULL) {
        strcpy(near, found);
        found = near;
    }
    free(names);
    free(files);
    return found;
}

/* One line for a name that is mistyped: the places would not help. */
static gh_status check_spelling(const gh_model *model, const char *path,
                                gh_error *err)
{
    const char *before = "";

    for (uint32_t i = 0; i < model->n_layers; i++) {
        const struct gh_layer *layer = &model->layers[i];
        const struct gh_family_where where = { layer->name, layer->family,
                                               NULL };
        char file[GH_FAMILY_FILE_BYTES], near[GH_FAMILY_NAME];

        if (layer->family == NULL || strcmp(layer->family, before) == 0) {
            continue;
        }
        before = layer->family;
        if (gh_family_find(&where, path, file, NULL) != GH_OK &&
            nearest(layer->family, path, near) != NULL) {
            return gh_family_fail(err, GH_ERR_NOT_FOUND, &where,
                                  "there is none of that name; did you mean "
                                  "%s?",
                                  near);
        }
    }
    return GH_OK;
}

/* The family that a child has called last; in memory that it shares. */
struct called {
    bool now; /* and that has not come back */
    char layer[64], family[GH_FAMILY_NAME], file[GH_FAMILY_FILE_BYTES];
};

/* What a child is to do. */
struct visit {
    const gh_model *model;
    const char *title;
    int (*use)(void *arg, struct gh_traits_set *set);
    void *arg;
    struct called *called;
};

static void note_call(void *user, const struct gh_family_where *where)
{
    struct called *called = user;

    snprintf(called->layer, sizeof(called->layer), "%s", where->layer);
    snprintf(called->family, sizeof(called->family), "%s", where->family);
    snprintf(called->file, sizeof(called->file), "%s", where->file);
    called->now = true;
}

static gh_status ask(const struct visit *visit, struct gh_traits_set *set,
                     gh_error *err)
{
    const struct gh_family_watch watch = { note_call, visit->called };
    char path[GH_ENV_PATH_BYTES] = "";
    gh_status status = get_path(path, sizeof(path), err);

    if (status == GH_OK) {
        warn_of_dirs(path);
        status = check_spelling(visit->model, path, err);
    }
    if (status == GH_OK) {
        status = gh_families_resolve(visit->model, path, &watch, set, err);
    }
    visit->called->now = false;
    return status;
}

static int run_visit(void *arg)
{
    const struct visit *visit = arg;
    struct gh_traits_set set;
    gh_error err;

    if (ask(visit, &set, &err) != GH_OK) {
        fprintf(stderr, "graphhooks: %s: %s\n", visit->title, err.text);
        return 1;
    }
    return visit->use(visit->arg, &set);
}

/* Why a family has not come back. */
static gh_status tell_end(const struct gh_family_where *where,
                          const struct child_end *end, gh_error *err)
{
    char how[80];

    child_tell(end, how, sizeof(how));
    return gh_family_fail(err, GH_ERR_UNSUPPORTED, where,
                          "%s: mend it, or take it away", how);
}

int families_use(const gh_model *model, const char *title,
                 int (*use)(void *arg, struct gh_traits_set *set), void *arg)
{
    struct visit visit = { model, title, use, arg, NULL };
    struct gh_traits_set none = { .n_layers = 0 };
    struct child_end end;
    gh_status status;
    gh_error err;

    if (!gh_families_named(model)) {
        return use(arg, &none);
    }
    visit.called = child_share(sizeof(*visit.called));
    status = visit.called == NULL
                 ? gh_fail(&err, GH_ERR_NO_MEMORY, "no memory for families")
                 : child_run(run_visit, &visit, &end, &err);
    if (status == GH_OK && visit.called->now) {
        const struct gh_family_where where = { visit.called->layer,
                                               visit.called->family,
                                               visit.called->file };

        status = tell_end(&where, &end, &err);
    }
    if (status != GH_OK) {
        fprintf(stderr, "graphhooks: %s: %s\n", title, err.text);
        return 1;
    }
    return child_follow(&end);
}

/* ---- info ---------------------------------------------------------------- */

static void print_quoted(const char *text)
{
    char escaped[8];

    putchar('"');
    while (*text != '\0') {
        text += gh_json_char(text, escaped);
        fputs(escaped, stdout);
    }
    putchar('"');
}

/* What a file turned out to be; in memory that a child shares. */
struct finding {
    const struct gh_family_file *found;
    bool done;
    gh_status status;
    char about[256];
    gh_error err;
};

static int look(void *arg)
{
    struct finding *f = arg;
    const struct gh_family_where where = { NULL, f->found->name,
                                           f->found->file };
    const gh_family *theirs;
    gh_family family;

    f->status = gh_family_load(&where, &theirs, &f->err);
    if (f->status == GH_OK) {
        f->status = gh_family_take(&where, theirs, &family, &f->err);
    }
    if (f->status == GH_OK) {
        snprintf(f->about, sizeof(f->about), "%s", family.about);
    }
    f->done = true;
    return 0;
}

/* Whatever is in the file: it is loaded in a child. */
static void look_aside(const struct gh_family_file *found, struct finding *f)
{
    const struct gh_family_where where = { NULL, found->name, found->file };
    struct child_end end;
    gh_status status;

    memset(f, 0, sizeof(*f));
    f->found = found;
    status = child_run(look, f, &end, &f->err);
    if (status == GH_OK && !f->done) {
        status = tell_end(&where, &end, &f->err);
    }
    if (status != GH_OK) {
        f->status = status;
    }
}

static void print_text(const struct finding *f, bool first)
{
    const struct gh_family_file *found = f->found;

    if (f->status != GH_OK) {
        printf("%-9s %s, not usable: %s\n", first ? "families" : "",
               found->name, f->err.text);
        return;
    }
    printf("%-9s %s, %s\n", first ? "families" : "", found->name, found->file);
    if (f->about[0] != '\0') {
        printf("          %s\n", f->about);
    }
}

static void print_json(const struct finding *f, bool first)
{
    const bool usable = f->status == GH_OK;

    printf("%s{\"name\": ", first ? "" : ",\n  ");
    print_quoted(f->found->name);
    printf(", \"file\": ");
    print_quoted(f->found->file);
    printf(", \"usable\": %s, \"%s\": ", usable ? "true" : "false",
           usable ? "about" : "reason");
    print_quoted(usable ? f->about : f->err.text);
    printf("}");
}

/* All of them, in the order in which they are looked in. */
static void print_places(const char *path, bool json)
{
    struct gh_family_dirs dirs;
    bool first = true;

    fputs(json ? ", \"plugin_places\": [" : "", stdout);
    gh_family_dirs_start(&dirs, path);
    while (gh_family_dirs_next(&dirs)) {
        if (gh_family_dirs_repeat(&dirs)) {
            continue;
        }
        if (json) {
            fputs(first ? "{\"path\": " : ",\n  {\"path\": ", stdout);
            print_quoted(dirs.directory);
            printf(", \"missing\": %s}", dirs.there ? "false" : "true");
        } else {
            printf("%-9s %s%s\n", first ? "plugins" : "", dirs.directory,
                   dirs.there ? "" : " (missing)");
        }
        first = false;
    }
    fputs(json ? "]" : "", stdout);
}

static void print_families(const struct gh_family_file *files, uint32_t n,
                           bool json)
{
    struct finding *finding = child_share(sizeof(*finding));

    for (uint32_t i = 0; i < n && finding != NULL; i++) {
        look_aside(&files[i], finding);
        if (json) {
            print_json(finding, i == 0);
        } else {
            print_text(finding, i == 0);
        }
    }
    if (!json && (n == 0 || finding == NULL)) {
        printf("families  %s\n", n == 0 ? "none" : "no memory to look at them");
    }
}

void families_print(bool json)
{
    char path[GH_ENV_PATH_BYTES] = "";
    struct gh_family_file *files = NULL;
    uint32_t n = 0;
    gh_error err;

    /* A wrong variable is the business of `graphhooks env`. */
    get_path(path, sizeof(path), &err);
    gh_family_list(path, &files, &n, &err);
    print_places(path, json);
    fputs(json ? ", \"families\": [" : "", stdout);
    print_families(files, n, json);
    fputs(json ? "]" : "", stdout);
    free(files);
}
