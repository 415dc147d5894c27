/*
 * options.h - what a session is told about its passes when it is created.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_PASS_OPTIONS_H
#define GH_PASS_OPTIONS_H

#include <graphhooks/host.h>
#include <graphhooks/layer.h>

#include "base/log.h"
#include "plan/kinds.h"

#include <stdbool.h>

/* Flags that belong to a call, and are no part of what a pass is. */
#define GH_CALL_FLAGS (GH_PASS_NO_EXIT | GH_PASS_PREPARE)

struct gh_gate;
struct gh_offload_options;
struct gh_setting;
struct gh_trace;

/* GRAPHHOOKS_CHECK. */
enum gh_checking {
    GH_CHECKS_NOTHING,
    GH_CHECKS_BITS, /* every check_every-th ready pass with an eager one */
    GH_CHECKS_RANKS /* every pass of a bank with ranks with theirs */
};

struct gh_capture_options {
    bool enabled;
    bool busy_fails;
    bool strict;         /* an eager pass is an error, see messages/eager.c */
    bool watches;        /* a thread names replays that do not end */
    bool named;          /* each pass is a range of NVTX; a tool listens */
    bool legacy_threads; /* they go on while a pass is recorded */
    bool suspends;       /* addresses of memory are reserved */
    uint8_t check;       /* enum gh_checking */
    uint64_t check_every;
    uint32_t timeout_s; /* that other ranks are waited for */
    uint64_t warmup_steps;
    uint64_t freeze; /* steps after warmup with recordings; 0: all */
    uint32_t max_slots;
    uint32_t max_banks;                /* that have graphs at once */
    uint64_t memory_limit;             /* as gh_memory.limit */
    gh_direction last_direction;       /* GH_WGRAD where those are delayed */
    gh_host_services host;             /* pass the gate; empty slots are 0 */
    struct gh_gate *gate;              /* for what is not in that table */
    const struct gh_setting *settings; /* that are the same on all ranks */
    uint32_t n_settings;
    const struct gh_log *log;
    struct gh_trace *trace;                   /* NULL: none */
    const struct gh_offload_options *offload; /* read during the create only;
                                                 NULL: nothing is offloaded */
};

#endif
