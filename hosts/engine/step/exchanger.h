/*
 * exchanger.h - exchanges tokens through the library: gh_exchange of
 * graphhooks/exchange.h, instead of the engine's own sends and receives.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ENGINE_EXCHANGER_H
#define ENGINE_EXCHANGER_H

#include "step/environment.h"
#include "step/library.h"
#include "step/trainer.h"

/* What is received is copied out of the window before the next exchange, so
 * exchanges write two parts of it in turn.  Those in graphs, which are launched
 * in any order, write a third one. */
enum {
    EXCHANGER_IN_GRAPHS,
    EXCHANGER_TURN_1,
    EXCHANGER_TURN_2,
    EXCHANGER_PARTS
};

struct exchanger {
    struct trainer *trainer; /* NULL: the engine itself exchanges */
    struct library library;
    struct environment environment;
    gh_exchange *x;
    uint64_t part_bytes; /* of the window, which has EXCHANGER_PARTS */
    uint32_t part;       /* that the last call outside of graphs has written */
    bool suspended;
};

/* Makes an exchange if the options ask for one, and lets the ranks' exchange
 * use it.  All ranks that divide experts must call it.  Returns 0, or -1 with
 * one sentence.  In both cases exchanger_close() frees it. */
int exchanger_open(struct exchanger *exchanger, struct trainer *trainer,
                   enum mode mode, char *error, size_t error_bytes);
/* With options.suspend: gives the memory of the window back, or takes it.
 * Nothing is in flight, and all ranks call it.  A window whose memory the
 * driver cannot give back stays.  NULL is allowed.  Returns 0, or -1:
 * dev->error. */
int exchanger_suspend(struct exchanger *exchanger);
int exchanger_resume(struct exchanger *exchanger);
/* Called when a rank has failed: ends what waits for the others on the
 * trainer's stream, within --limit seconds. */
void exchanger_let_go(struct exchanger *exchanger);
/* Graphs that hold its calls must be destroyed before.  All ranks must call
 * it. */
void exchanger_close(struct exchanger *exchanger);

/* struct_size is 0 if there is no exchange. */
void exchanger_stats(const struct exchanger *exchanger,
                     gh_exchange_stats *stats);

#endif
