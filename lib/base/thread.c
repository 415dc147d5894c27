/*
 * thread.c - see thread.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "base/thread.h"

#include <pthread.h>
#include <signal.h>

bool gh_thread_start(void *(*run)(void *user), void *user)
{
    sigset_t all, before;
    pthread_t thread;
    bool started;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    started = pthread_create(&thread, NULL, run, user) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (started) {
        pthread_detach(thread);
    }
    return started;
}
