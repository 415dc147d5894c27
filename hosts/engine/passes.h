/*
 * passes.h - what the files that speak with the library share.
 *
 * host.c opens a session, passes.c brackets every run of parts, and
 * pass_buffers.c says what each reads and leaves.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ENGINE_PASSES_H
#define ENGINE_PASSES_H

#include "borders.h"
#include "host.h"

#include <graphhooks.h>

enum {
    PASS_INPUTS = 2 * GH_TENSOR_COUNT * MAX_BORDER
};

/* What crosses one side of a segment; the hidden state comes first. */
struct side {
    gh_border borders[GH_TENSOR_COUNT];
    int n;
};

struct segment {
    uint32_t index;
    int first, last; /* parts */
    bool has_weights;
    struct side in, out;
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

/* One pass as the engine sees it. */
struct pass {
    const struct segment *segment;
    gh_direction direction;
    int microbatch;
    gh_buffer inputs[PASS_INPUTS];
    uint32_t n_inputs;
    int x_input, dy_input; /* which of them the first part reads, and which
                              the last part's backward; -1: none */
    gh_buffer outputs[GH_MAX_BUFFERS];
    uint32_t n_outputs;
};

/* Adds what the first part reads: of the microbatch, or what comes before it.
 * 0, or -1: host_error(). */
int pass_add_x(struct host *host, struct pass *pass);
/* And the gradient of what the last part wrote: the head's, or the next
 * run's. */
int pass_add_dy(struct host *host, struct pass *pass);
/* Fills in the outputs of a pass that was not replayed. */
void pass_name_outputs(const struct host *host, struct pass *pass);

/* Writes down the library's sentence; -1. */
int host_fail(struct host *host, const char *call, gh_status status,
              const gh_error *err);

#endif
