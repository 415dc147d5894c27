/*
 * wait.h - the lock, and threads that wait for what others have to issue.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SOFTCUDA_WAIT_H
#define SOFTCUDA_WAIT_H

#include <stdbool.h>
#include <stdint.h>

enum thread_is {
    THREAD_RUNS,
    THREAD_WAITS,
    THREAD_GONE
};

void wait_lock(void);
void wait_unlock(void);

/* Tells, with the lock held, that something happened that a thread may wait
 * for. */
void wait_news(void);
/* Gives the lock up until there is news or some time has passed.  Returns false
 * at once if nobody watches and no word of memory is waited for, because then
 * nothing can be missing. */
bool wait_for_news(void);
/* For a program that polls: lets the watcher look once in a while. */
void wait_glance(void);
/* Sets a function that a thread calls, with the lock held, if it has found
 * nothing new.  It is told for how long nothing has happened. */
void wait_watch(void (*watch)(uint64_t quiet_ms));
/* What the thread with this number does; THREAD_GONE if it has ended. */
enum thread_is wait_thread(uint64_t id);
uint64_t wait_now_ms(void);

#endif
