/*
 * thread.h - the threads of the library.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_BASE_THREAD_H
#define GH_BASE_THREAD_H

#include <stdbool.h>

/* Starts a thread that nobody joins.  It handles no signal: the handlers of the
 * host's run on threads that the host knows.  False: there is none. */
bool gh_thread_start(void *(*run)(void *user), void *user);

#endif
