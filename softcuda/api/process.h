/*
 * process.h - a process that is taken off its devices.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SOFTCUDA_PROCESS_H
#define SOFTCUDA_PROCESS_H

#include "driver/driver.h"

#include <stdbool.h>
#include <stdint.h>

enum process_state {
    PROCESS_RUNNING = 0,
    PROCESS_LOCKED = 1,
    PROCESS_CHECKPOINTED = 2
};

/* 64 bytes, of which a lock reads the first number alone. */
struct checkpoint_args {
    uint32_t timeout_ms; /* 0: no limit */
    uint8_t reserved[60];
};

/* Whether calls have to wait. */
bool process_is_locked(void);

CUresult process_get_state(int pid, enum process_state *state_p);
/* Waits for what was issued first. */
CUresult process_lock(int pid, const struct checkpoint_args *args);
/* The other changes of state. */
CUresult process_change(int pid, const struct checkpoint_args *args,
                        enum process_state from, enum process_state to);

#endif
