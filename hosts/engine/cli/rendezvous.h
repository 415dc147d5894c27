/*
 * rendezvous.h - connects processes that a launcher has started.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ENGINE_RENDEZVOUS_H
#define ENGINE_RENDEZVOUS_H

#include "step/failure_pipe.h"

/* Rank 0 listens and the others call.  If MASTER_ADDR and MASTER_PORT are set,
 * they are used, or the next port if torchrun itself listens on this one.
 * Otherwise it is a local socket named after the launcher's process, which
 * started them all.  Returns 0, or -1 with a sentence. */
int rendezvous(struct failure_pipe *line, int limit_s, char *error,
               size_t error_bytes);

#endif
