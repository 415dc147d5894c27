/*
 * pass_buffers.h - one pass: what it reads, and what it writes for others.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ENGINE_PASS_BUFFERS_H
#define ENGINE_PASS_BUFFERS_H

#include "step/borders.h"
#include "step/host.h"

enum {
    PASS_INPUTS = 2 * GH_TENSOR_COUNT * MAX_BORDER
};

/* One pass, as the engine sees it. */
struct pass {
    const struct segment *segment;
    gh_direction direction;
    int microbatch;
    CUstream stream;
    bool leaves_wgrad; /* a backward that a GH_WGRAD pass follows */
    gh_buffer inputs[PASS_INPUTS];
    uint32_t n_inputs;
    int x_input, dy_input; /* which of the inputs the first part reads, and
                              which the last part's backward reads; -1: none */
    int tokens_input;      /* and which the embedding or the head; -1: none */
    gh_buffer outputs[GH_MAX_BUFFERS];
    uint32_t n_outputs;
};

/* Adds what the first part reads: the microbatch's input, or the output of the
 * run before.  Returns 0, or -1: host_error(). */
int pass_add_x(struct host *host, struct pass *pass);
/* Adds the gradient of what the last part wrote: the head's, or the next
 * run's. */
int pass_add_dy(struct host *host, struct pass *pass);
/* Fills in the outputs of a pass that was not replayed. */
void pass_name_outputs(const struct host *host, struct pass *pass);

#endif
