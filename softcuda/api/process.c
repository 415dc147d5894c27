/*
 * process.c - a process that is taken off its devices.
 *
 * Only this process can be, as a device is no other's.  From the lock on, until
 * it is unlocked, all its calls wait in soft_enter.  Memory stays where it is:
 * nobody can see by then whether the driver holds it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "softcuda/api/process.h"

#include "softcuda/engine/engine.h"
#include "softcuda/engine/soft.h"
#include "softcuda/engine/wait.h"

#include <stddef.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static enum process_state state;

bool process_is_locked(void)
{
    return state != PROCESS_RUNNING;
}

/* Arguments are optional. */
static bool is_valid(int pid, const struct checkpoint_args *args)
{
    static const struct checkpoint_args zero;

    return pid == getpid() &&
           (args == NULL ||
            memcmp(args->reserved, zero.reserved, sizeof(zero.reserved)) == 0);
}

CUresult process_get_state(int pid, enum process_state *state_p)
{
    if (pid != getpid() || state_p == NULL) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *state_p = state;
    return CUDA_SUCCESS;
}

/* Other threads go on meanwhile, and may issue what is waited for. */
static void let_others_go_on(void)
{
    struct host *host = soft.host;

    wait_unlock();
    nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
    wait_lock();
    soft.host = host;
}

CUresult process_lock(int pid, const struct checkpoint_args *args)
{
    const uint64_t begin = wait_now_ms();
    const uint32_t most = args != NULL ? args->timeout_ms : 0;

    if (!is_valid(pid, args)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (engine_run_all(); soft.pending != 0; engine_run_all()) {
        if (most != 0 && wait_now_ms() - begin >= most) {
            return CUDA_ERROR_NOT_READY;
        }
        let_others_go_on();
        engine_pump();
    }
    if (state != PROCESS_RUNNING) {
        return CUDA_ERROR_ILLEGAL_STATE;
    }
    state = PROCESS_LOCKED;
    return CUDA_SUCCESS;
}

CUresult process_change(int pid, const struct checkpoint_args *args,
                        enum process_state from, enum process_state to)
{
    if (!is_valid(pid, args) || (args != NULL && args->timeout_ms != 0)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (state != from) {
        return CUDA_ERROR_ILLEGAL_STATE;
    }
    state = to;
    return CUDA_SUCCESS;
}
