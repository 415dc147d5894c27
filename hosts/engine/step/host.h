/*
 * host.h - the library, opened for a trainer's model.
 *
 * Read this first to see how an engine uses graphhooks: the library is loaded
 * at run time, told the model, and asked for its plan.  passes.h then puts
 * every run of parts through gh_run_pass().
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ENGINE_HOST_H
#define ENGINE_HOST_H

#include "step/environment.h"
#include "step/library.h"
#include "step/trainer.h"

/* What crosses one side of a segment.  The hidden state comes first. */
struct side {
    gh_border borders[GH_TENSOR_COUNT];
    int n;
};

struct segment {
    uint32_t index;
    int first, last; /* parts */
    bool embeds, heads; /* runs the embedding, or the head, with them */
    bool has_wgrad; /* its weight gradients may come later */
    bool has_cp;    /* has collectives if ranks share sequences */
    bool exchanges; /* has collectives if ranks divide the experts */
    struct side in, out;
};

/* A chunk's segments, and the sets of its slots. */
struct host_chunk {
    struct segment *segments;
    int n_segments;
    struct set slots[MAX_SLOTS];
};

struct host {
    struct trainer *trainer;
    struct library library;
    const gh_api *gh;
    gh_session *session;
    struct host_chunk *chunks; /* one for each of the trainer's */
    uint32_t slots[MAX_CHUNKS]; /* that the schedule needs */
    bool lends_experts; /* the library knows the ranks that divide the experts:
                           they record exchanges together, and agree on one
                           order */
    int in_flight[MAX_CHUNKS];   /* the most of each chunk in the step */
    uint32_t banks[MAX_LENGTHS]; /* for each length; 0 if there is only one */
    int shape;        /* of the current pass */
    bool hook_failed; /* a call of offload.h failed in this pass */
    uint64_t wgrad_replays;
    uint32_t noise;        /* of host_rest() */
    gh_overlap_stats pair; /* of the last run of two chunks */
    char error[512];
    struct environment environment;
};

/* The chunk that runs. */
static inline struct host_chunk *host_chunk(const struct host *host)
{
    return &host->chunks[host->trainer->chunk->index];
}

/* Loads the library and opens a session for the trainer's model.  Returns NULL
 * with one sentence in error. */
struct host *host_open(struct trainer *trainer, enum mode mode, char *error,
                       size_t error_bytes);
/* Checks that the library takes the options, before hours of training show that
 * it does not, and reports which variables overrule options.  Returns -1 with a
 * sentence; *bad_option says whether an option is at fault. */
int host_check(struct trainer *trainer, enum mode mode, bool *bad_option, char *error,
               size_t error_bytes);
void host_close(struct host *host);
/* Gives the other ranks up: destroys graphs with their operations, for which
 * NCCL would wait.  NULL is allowed. */
void host_give_up(struct host *host, const char *why);

/* Called while the host is opened, in this order.  Return 0, or -1:
 * host_error(). */
int host_add_banks(struct host *host);
int host_lend_groups(struct host *host);
int host_bind_all_tables(struct host *host);
/* Called before a microbatch of that shape.  A bank that had to give way to
 * another one has lost its tables, which are bound again; otherwise this is a
 * look-up. */
int host_bind_tables(struct host *host, int shape);

/* Makes the sets that a step needs more than the steps before, as none can be
 * made in a recording: of each chunk as many as microbatches are in flight.
 * Returns 0, or -1: dev->error. */
int host_begin_step(struct host *host, const int *in_flight);
/* Makes the sets of all slots that the step needs of the chunk that runs, and
 * that of `slot`.  Returns 0, or -1: dev->error. */
int host_make_sets(struct host *host, uint32_t slot);
int host_end_step(struct host *host);
/* With options.suspend: suspends the session, if nothing is in flight, now and
 * then, and resumes it.  Called after a backward, and after a step. */
int host_rest(struct host *host, bool step_ended);

/* How many slots a session has at most: GRAPHHOOKS_MAX_SLOTS. */
int host_most_slots(void);

/* How many slots of a chunk are in use, and the device memory of their sets. */
uint32_t host_slots_used(const struct host *host, int chunk);
uint64_t host_slot_bytes(const struct host *host, int chunk);

int host_stats(struct host *host, gh_stats *stats);
/* struct_size is 0 if nothing is offloaded. */
int host_offload_stats(struct host *host, gh_offload_stats *stats);
/* struct_size is 0 without options.suspend. */
void host_memory_stats(const struct host *host, gh_memory_stats *stats);
/* Passes that ran eagerly, by gh_reason; 0 for a number that is no reason. */
void host_reasons(struct host *host, uint64_t *counts, gh_reason n);
/* How many of gh_stats' replays were of passes_wgrad(). */
uint64_t host_wgrad_replays(const struct host *host);
/* The library's gh_reason_name(), which outlives the host. */
const char *(*host_reason_names(const struct host *host))(gh_reason);

/* The library's sentence; "" if the device has the sentence. */
const char *host_error(const struct host *host);
/* Keeps the library's sentence, and returns -1. */
int host_fail(struct host *host, const char *call, gh_status status,
              const gh_error *err);

#endif
