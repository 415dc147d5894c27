/*
 * rendezvous.h - connects processes that somebody else has started.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ENGINE_RENDEZVOUS_H
#define ENGINE_RENDEZVOUS_H

#include "step/lifeline.h"

/* Rank 0 listens and the others call: at MASTER_ADDR and MASTER_PORT where
 * both are set, and the port after that where torchrun listens there itself;
 * else at a local socket that has the number of the launcher's process, which
 * started them all.  0, or -1 with a sentence. */
int rendezvous(struct lifeline *line, int limit_s, char *error,
               size_t error_bytes);

#endif
