/*
 * offload_request.c - see offload_request.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "step/offload_request.h"

#include "model/saved.h"

#include <stdio.h>
#include <string.h>

static int find_name(const char *word, size_t bytes)
{
    for (int i = 0; i < SAVED_MODULES; i++) {
        if (strlen(saved_names[i]) == bytes &&
            memcmp(saved_names[i], word, bytes) == 0) {
            return i;
        }
    }
    return -1;
}

int offload_modules(const struct options *options, unsigned *modules,
                    char *bad, size_t bad_bytes)
{
    const char *at = options->offload;

    if (at == NULL) {
        *modules = (1u << SAVED_MODULES) - 1;
        if (options->stash != NULL) {
            *modules &= ~(1u << SAVED_EXPERT_FC1 | 1u << SAVED_MOE_ACT);
        }
        return 0;
    }
    *modules = 0;
    while (*at != '\0') {
        const size_t bytes = strcspn(at, ",");
        const int module = find_name(at, bytes);

        if (module < 0) {
            snprintf(bad, bad_bytes, "%.*s", (int)bytes, at);
            return -1;
        }
        *modules |= 1u << module;
        at += bytes + (at[bytes] == ',');
    }
    return 0;
}

void offload_describe(const struct options *options,
                      struct offload_request *request)
{
    unsigned modules = 0;
    size_t used = 0;

    request->text[0] = '\0';
    (void)offload_modules(options, &modules, request->text,
                          sizeof(request->text)); /* they were checked */
    for (int i = 0; i < SAVED_MODULES; i++) {
        if ((modules & 1u << i) != 0) {
            used += (size_t)snprintf(request->text + used,
                                     sizeof(request->text) - used, "%s%s",
                                     used == 0 ? "" : ",", saved_names[i]);
        }
    }
    request->desc = (gh_offload_desc){
        .struct_size = sizeof(request->desc),
        .modules = options->offload != NULL ? options->offload : request->text,
        .names = saved_names + SAVED_FIRST_OWN,
        .min_bytes = 1, /* the engine's models are small */
        .pipeline_rank = 1, /* so that GRAPHHOOKS_OFFLOAD_KEEP_BYTES counts */
    };
}
