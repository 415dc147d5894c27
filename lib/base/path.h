/*
 * path.h - marks of functions that stand off the step path.
 *
 * A pass that is replayed reads from gh_layer_enter() on without them, so that
 * one can follow the path by leaving out what has a mark.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_BASE_PATH_H
#define GH_BASE_PATH_H

/* For no pass that is replayed: errors, plans and options, recordings, checks,
 * messages.  It is compiled to be small. */
#define GH_COLD __attribute__((noinline, cold))
/* For the passes of some sessions: offload, trace, hosts of another release. */
#define GH_ASIDE __attribute__((noinline))

#endif
