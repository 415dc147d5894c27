/*
 * find.c - see find.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "cli/find.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef PKGLIBDIR
#define PKGLIBDIR "/usr/local/lib/graphhooks"
#endif
#ifndef PKGDATADIR
#define PKGDATADIR "/usr/local/share/graphhooks"
#endif
#ifndef ENGINE_DATA
#define ENGINE_DATA "hosts/engine/data"
#endif

/* `places` are relative to the program unless they begin with a slash. */
static const struct {
    const char *variable, *fallback;
    const char *places[6];
} companions[] = {
    [FIND_SOFTCUDA] = { "GRAPHHOOKS_SOFTCUDA",
                        "libgraphhooks-softcuda.so",
                        { ".libs/libgraphhooks-softcuda.so",
                          "../.libs/libgraphhooks-softcuda.so",
                          "../../.libs/libgraphhooks-softcuda.so",
                          "../lib/graphhooks/libgraphhooks-softcuda.so",
                          PKGLIBDIR "/libgraphhooks-softcuda.so" } },
    [FIND_SOFTNCCL] = { NULL,
                        "libsoftnccl.so",
                        { ".libs/libsoftnccl.so", "../.libs/libsoftnccl.so",
                          "../../.libs/libsoftnccl.so",
                          "../lib/graphhooks/libsoftnccl.so",
                          PKGLIBDIR "/libsoftnccl.so" } },
    [FIND_LIBRARY] = { "GRAPHHOOKS_LIBRARY",
                       "libgraphhooks.so.0",
                       { ".libs/libgraphhooks.so.0",
                         "../.libs/libgraphhooks.so.0",
                         "../../.libs/libgraphhooks.so.0",
                         "../lib/libgraphhooks.so.0",
                         PKGLIBDIR "/../libgraphhooks.so.0" } },
    [FIND_TEXT] = { NULL,
                    PKGDATADIR "/text/shakespeare.txt",
                    { "../share/graphhooks/text/shakespeare.txt",
                      ENGINE_DATA "/shakespeare.txt",
                      PKGDATADIR "/text/shakespeare.txt" } },
};

static void program_folder(char *folder, size_t folder_bytes)
{
    const ssize_t length = readlink("/proc/self/exe", folder, folder_bytes - 1);
    char *slash;

    folder[length > 0 ? length : 0] = '\0';
    slash = strrchr(folder, '/');
    if (slash != NULL) {
        slash[1] = '\0';
    }
}

void find_companion(enum companion which, char *path, size_t path_bytes)
{
    const char *variable = companions[which].variable;
    const char *set = variable == NULL ? NULL : getenv(variable);
    char folder[2048];

    if (set != NULL && set[0] != '\0') {
        snprintf(path, path_bytes, "%s", set);
        return;
    }
    program_folder(folder, sizeof(folder));
    for (const char *const *place = companions[which].places; *place != NULL;
         place++) {
        snprintf(path, path_bytes, "%s%s", **place == '/' ? "" : folder,
                 *place);
        if (access(path, R_OK) == 0) {
            return;
        }
    }
    snprintf(path, path_bytes, "%s", companions[which].fallback);
}
