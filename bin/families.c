/*
 * families.c - see families.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "families.h"

#include "base/error.h"
#include "base/json.h"
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
static void warn_of_places(const char *path)
{
    struct gh_family_places places;

    gh_family_places_start(&places, path);
    while (gh_family_places_next(&places) && places.named) {
        if (!places.there && !gh_family_places_repeat(&places)) {
            fprintf(stderr,
                    "graphhooks: GRAPHHOOKS_PLUGIN_PATH: %s is not a "
                    "directory\n",
                    places.directory);
        }
    }
}

/* Where a session would look, and the command's own places. */
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

gh_status families_resolve(const gh_model *model, struct gh_traits_set *set,
                           gh_error *err)
{
    char path[GH_ENV_PATH_BYTES] = "";
    gh_status status;

    memset(set, 0, sizeof(*set));
    if (!gh_families_named(model)) {
        return GH_OK;
    }
    status = get_path(path, sizeof(path), err);
    if (status == GH_OK) {
        warn_of_places(path);
        status = check_spelling(model, path, err);
    }
    return status == GH_OK ? gh_families_resolve(model, path, NULL, set, err)
                           : status;
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

static gh_status look(const struct gh_family_file *found, gh_family *family,
                      gh_error *err)
{
    const struct gh_family_where where = { NULL, found->name, found->file };
    const gh_family *theirs;
    gh_status status = gh_family_load(&where, &theirs, err);

    return status == GH_OK ? gh_family_take(&where, theirs, family, err)
                           : status;
}

static void print_text(const struct gh_family_file *found, bool first)
{
    gh_family family;
    gh_error err;

    if (look(found, &family, &err) == GH_OK) {
        printf("%-9s %s, %s\n", first ? "families" : "", found->name,
               found->file);
        if (family.about[0] != '\0') {
            printf("          %s\n", family.about);
        }
    } else {
        printf("%-9s %s, not usable: %s\n", first ? "families" : "",
               found->name, err.text);
    }
}

static void print_json(const struct gh_family_file *found, bool first)
{
    gh_family family;
    gh_error err;
    const bool usable = look(found, &family, &err) == GH_OK;

    printf("%s{\"name\": ", first ? "" : ",\n  ");
    print_quoted(found->name);
    printf(", \"file\": ");
    print_quoted(found->file);
    printf(", \"usable\": %s, \"%s\": ", usable ? "true" : "false",
           usable ? "about" : "reason");
    print_quoted(usable ? family.about : err.text);
    printf("}");
}

/* All of them, in the order in which they are looked in. */
static void print_places(const char *path, bool json)
{
    struct gh_family_places places;
    bool first = true;

    fputs(json ? ", \"plugin_places\": [" : "", stdout);
    gh_family_places_start(&places, path);
    while (gh_family_places_next(&places)) {
        if (gh_family_places_repeat(&places)) {
            continue;
        }
        if (json) {
            fputs(first ? "{\"path\": " : ",\n  {\"path\": ", stdout);
            print_quoted(places.directory);
            printf(", \"missing\": %s}", places.there ? "false" : "true");
        } else {
            printf("%-9s %s%s\n", first ? "plugins" : "", places.directory,
                   places.there ? "" : " (missing)");
        }
        first = false;
    }
    fputs(json ? "]" : "", stdout);
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
    if (json) {
        printf(", \"families\": [");
    } else if (n == 0) {
        printf("families  none\n");
    }
    for (uint32_t i = 0; i < n; i++) {
        if (json) {
            print_json(&files[i], i == 0);
        } else {
            print_text(&files[i], i == 0);
        }
    }
    if (json) {
        printf("]");
    }
    free(files);
}
