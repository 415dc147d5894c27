/*
 * soft.c - the state of the device, and of each thread that calls it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "softcuda/engine/soft.h"

struct soft soft = { .host = &soft.hosts[0] };

struct thread_state *thread_self(void)
{
    static _Thread_local struct thread_state self;
    static uint64_t n_threads;

    if (self.id == 0) {
        self.id = __atomic_add_fetch(&n_threads, 1, __ATOMIC_RELAXED);
        self.mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    }
    return &self;
}
