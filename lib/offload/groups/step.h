/*
 * step.h - what a recorded graph asks for around each of its launches.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_OFFLOAD_STEP_H
#define GH_OFFLOAD_STEP_H

#include <graphhooks/base.h>

#include <stdbool.h>
#include <stdint.h>

struct gh_instance;
struct gh_host_owned;
struct gh_ring_buffer;
struct gh_run;

enum gh_offload_verb {
    GH_OFFLOAD_SAVE,
    GH_OFFLOAD_COMMIT,
    GH_OFFLOAD_LOAD,
    GH_OFFLOAD_RELEASE
};
struct gh_offload_step {
    enum gh_offload_verb verb;
    struct gh_instance *instance;
    struct gh_ring_buffer *buffer; /* that the graph knows; NULL: none */
    bool alone;          /* COMMIT, RELEASE: another pass has saved or loaded */
    uint64_t goes;       /* SAVE: bytes */
    uint64_t stays;      /* SAVE, LOAD: bytes */
    uint64_t layout;     /* of the tensors: struct gh_split */
    struct gh_run *runs; /* SAVE: of what goes */
    uint32_t n_runs;
    struct gh_host_owned *host_memory; /* SAVE, LOAD: of what is the host's own;
                           NULL: the library's.  What stays is `from` there for
                           a graph that loads it */
};
struct gh_offload_script {
    struct gh_offload_step *steps;
    uint32_t n;
};

void gh_offload_script_free(struct gh_offload_script *script);
/* Takes over what the step holds, even if it fails. */
gh_status gh_offload_script_add(struct gh_offload_script *script,
                                struct gh_offload_step step, gh_error *err);
/* Frees what a step holds that is part of no script. */
void gh_offload_step_free(struct gh_offload_step *step);

#endif
