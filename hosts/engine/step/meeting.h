/*
 * meeting.h - where ranks that are threads wait for each other on the host.
 *
 * Threads that share a device share its context.  Freeing memory there may
 * wait for all kernels, even for one of NCCL's that waits for the rank that
 * frees.  So nobody begins with collectives before all have allocated their
 * memory.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ENGINE_MEETING_H
#define ENGINE_MEETING_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

struct meeting {
    pthread_mutex_t lock;
    pthread_cond_t news;
    int n, here;
    unsigned rounds;
    bool broken;
};

void meeting_init(struct meeting *meeting, int n);
void meeting_destroy(struct meeting *meeting);

/* Waits until all have come.  Returns 0, or -1 if one of them never will. */
int meeting_wait(struct meeting *meeting);
/* Tells that the caller will not come any more.  The two functions are a
 * comm_watch of a struct meeting. */
void meeting_break(void *meeting, const char *why);
bool meeting_lost(void *meeting, char *text, size_t text_bytes);

#endif
