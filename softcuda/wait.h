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

/* With the lock held: something has happened that a thread may wait for. */
void wait_news(void);
/* Gives the lock up until there are news, or a while has passed; false at
 * once where nobody watches nor a word of memory is waited for, since then nothing can be missing. */
bool wait_for_news(void);
/* For a program that polls: lets the watcher look once in a while. */
void wait_glance(void);
/* Called, with the lock held, by a thread that has found nothing new: for how
 * long nothing has happened. */
void wait_watch(void (*watch)(uint64_t quiet_ms));
/* A thread that has ever been here, by its number. */
enum thread_is wait_thread(uint64_t id);
uint64_t wait_now_ms(void);

#endif
