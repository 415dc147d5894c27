/*
 * exchanger.h - the exchange of tokens by the library: gh_exchange of
 * graphhooks/exchange.h, in the place of the engine's own sends and receives.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ENGINE_EXCHANGER_H
#define ENGINE_EXCHANGER_H

#include "step/environment.h"
#include "step/library.h"
#include "step/trainer.h"

struct exchanger {
    struct trainer *trainer; /* NULL: the engine exchanges by itself */
    struct library library;
    struct environment environment;
    gh_exchange *x;
};

/* Makes one where options ask for it; all ranks that divide experts come here.
 * Then the ranks' exchange goes by it.  0, or -1 with one sentence;
 * exchanger_close() takes it either way. */
int exchanger_open(struct exchanger *exchanger, struct trainer *trainer,
                   enum mode mode, char *error, size_t error_bytes);
/* A rank has failed: what waits on the trainer's stream for the others is let
 * go, in --limit seconds. */
void exchanger_let_go(struct exchanger *exchanger);
/* After the graphs that hold its calls; all ranks come here. */
void exchanger_close(struct exchanger *exchanger);

/* struct_size is 0 where there is none. */
void exchanger_stats(const struct exchanger *exchanger,
                     gh_exchange_stats *stats);

#endif
