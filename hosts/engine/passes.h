/*
 * passes.h - what host.c, which opens a session, and passes.c share.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ENGINE_PASSES_H
#define ENGINE_PASSES_H

#include "host.h"

#include <graphhooks.h>

struct segment {
    uint32_t index;
    int first, last; /* parts */
    bool has_weights;
};

struct host {
    struct trainer *trainer;
    void *library;
    const gh_api *gh;
    gh_session *session;
    struct segment *segments;
    int n_segments;
    struct set slots[MAX_SLOTS];
    bool paused; /* between pre_warmup and post_warmup */
    uint64_t wgrad_replays;
    char error[512];
    char *environment_text; /* storage of `environment` */
    const char **environment;
};

/* Writes down the library's sentence; -1. */
int host_fail(struct host *host, const char *call, gh_status status,
              const gh_error *err);

#endif
