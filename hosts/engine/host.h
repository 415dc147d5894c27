/*
 * host.h - the library's hooks, as a host calls them.
 *
 * This is the file to read for how an engine uses graphhooks: the library is
 * loaded at run time, told the model, and then every run of parts is
 * bracketed by gh_layer_enter() and gh_layer_exit().
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ENGINE_HOST_H
#define ENGINE_HOST_H

#include "train.h"

/* Loads the library and opens a session for the trainer's model.  NULL with
 * one sentence in error. */
struct host *host_open(struct trainer *trainer, char *error,
                       size_t error_bytes);
/* Whether the library takes the options, before hours of training show that
 * it does not; says which variables win over options.  -1 with a sentence;
 * *bad_option says that it is about what was asked for. */
int host_check(struct trainer *trainer, bool *bad_option, char *error,
               size_t error_bytes);
void host_close(struct host *host);

/* All parts of a microbatch.  Fills trainer->flights[microbatch].
 * 0, or -1: host_error(). */
int host_forward(struct host *host, int microbatch);
/* As above; *dx_p is the gradient of what the first part read. */
int host_backward(struct host *host, int microbatch, const float **dx_p);
/* The gradients of its weights, on their own stream: only when they are
 * delayed. */
int host_wgrad(struct host *host, int microbatch);
int host_end_step(struct host *host);

int host_stats(struct host *host, gh_stats *stats);
/* Replays of gh_stats that were of host_wgrad(). */
uint64_t host_wgrad_replays(const struct host *host);
/* gh_reason_name() of the library, which outlives the host. */
const char *(*host_reason_names(const struct host *host))(gh_reason);

/* The library's sentence; "" when the device has it. */
const char *host_error(const struct host *host);

#endif
