/*
 * host.h - the library, opened for a trainer's model.
 *
 * This is where to begin for how an engine uses graphhooks: the library is
 * loaded at run time, told the model, and asked for its plan.  passes.h then
 * brackets every run of parts by gh_layer_enter() and gh_layer_exit().
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ENGINE_HOST_H
#define ENGINE_HOST_H

#include "step/environment.h"
#include "step/library.h"
#include "step/trainer.h"

/* What crosses one side of a segment; the hidden state comes first. */
struct side {
    gh_border borders[GH_TENSOR_COUNT];
    int n;
};

struct segment {
    uint32_t index;
    int first, last; /* parts */
    bool has_weights;
    bool is_spread; /* has collectives, where ranks share sequences */
    bool exchanges; /* has them where ranks divide the experts */
    struct side in, out;
};

struct host {
    struct trainer *trainer;
    struct library library;
    const gh_api *gh;
    gh_session *session;
    struct segment *segments;
    int n_segments;
    bool lends_experts; /* the library knows who divides the experts: they
                           record exchanges together, and choose one order */
    uint32_t banks[MAX_LENGTHS]; /* of each length; 0 where there is one */
    struct set slots[MAX_SLOTS];
    bool paused; /* between pre_warmup and post_warmup */
    int shape;        /* of the pass at hand */
    bool hook_failed; /* a call of offload.h, in the pass at hand */
    uint64_t wgrad_replays;
    gh_overlap_stats pair; /* after the last run of two chunks */
    char error[512];
    struct environment environment;
};

/* Loads the library and opens a session for the trainer's model.  NULL with
 * one sentence in error. */
struct host *host_open(struct trainer *trainer, enum mode mode, char *error,
                       size_t error_bytes);
/* Whether the library takes the options, before hours of training show that
 * it does not; says which variables win over options.  -1 with a sentence;
 * *bad_option says that it is about what was asked for. */
int host_check(struct trainer *trainer, enum mode mode, bool *bad_option, char *error,
               size_t error_bytes);
void host_close(struct host *host);
/* The other ranks are given up: graphs with their operations go, which NCCL
 * would wait for.  NULL is allowed. */
void host_give_up(struct host *host, const char *why);

/* While it is opened, in this order.  0, or -1: host_error(). */
int host_add_banks(struct host *host);
int host_lend_groups(struct host *host);
int host_bind_all_tables(struct host *host);
/* Before a microbatch of that shape, as a bank that gave way to another one
 * has lost what was bound; else it is a look-up. */
int host_bind_tables(struct host *host, int shape);

int host_end_step(struct host *host);

int host_stats(struct host *host, gh_stats *stats);
/* struct_size is 0 when nothing is offloaded. */
int host_offload_stats(struct host *host, gh_offload_stats *stats);
/* Passes that ran eagerly, by gh_reason; 0 for one that is none. */
void host_reasons(struct host *host, uint64_t *counts, gh_reason n);
/* Replays of gh_stats that were of passes_wgrad(). */
uint64_t host_wgrad_replays(const struct host *host);
/* gh_reason_name() of the library, which outlives the host. */
const char *(*host_reason_names(const struct host *host))(gh_reason);

/* The library's sentence; "" when the device has it. */
const char *host_error(const struct host *host);
/* Writes down the library's sentence; -1. */
int host_fail(struct host *host, const char *call, gh_status status,
              const gh_error *err);

#endif
