/* A process is taken off its devices and put back: only in that order, only
 * once its work has ended, and its calls wait meanwhile. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/softcuda/controls.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct args {
    uint32_t timeout_ms;
    uint8_t reserved[60];
};

static CUresult (*get_state)(int, int *);
static CUresult (*lock)(int, const struct args *);
static CUresult (*checkpoint)(int, const struct args *);
static CUresult (*restore)(int, const struct args *);
static CUresult (*unlock)(int, const struct args *);

static void find(void *function_p, const char *name)
{
    void *symbol = dlsym(drv.library, name);

    ok(symbol != NULL, "%s is there", name);
    memcpy(function_p, &symbol, sizeof(symbol));
}

static void is_state(int expected, const char *when)
{
    int state = 9;

    get_state(getpid(), &state);
    is_int(state, expected, "the state %s", when);
}

static void test_order(void)
{
    const int pid = getpid();

    is_state(0, "is running");
    is_int(checkpoint(pid, NULL), CUDA_ERROR_ILLEGAL_STATE,
           "a checkpoint needs a lock");
    is_int(restore(pid, NULL), CUDA_ERROR_ILLEGAL_STATE,
           "a restore needs a checkpoint");
    is_int(unlock(pid, NULL), CUDA_ERROR_ILLEGAL_STATE,
           "nobody has locked it");
    is_int(lock(pid, NULL), CUDA_SUCCESS, "it is locked");
    is_int(lock(pid, NULL), CUDA_ERROR_ILLEGAL_STATE, "once");
    is_state(1, "is locked");
    is_int(checkpoint(pid, NULL), CUDA_SUCCESS, "it is checkpointed");
    is_state(2, "is checkpointed");
    is_int(unlock(pid, NULL), CUDA_ERROR_ILLEGAL_STATE,
           "it has to be restored first");
    is_int(restore(pid, NULL), CUDA_SUCCESS, "it is restored");
    is_state(1, "is locked still");
    is_int(unlock(pid, NULL), CUDA_SUCCESS, "it is unlocked");
    is_state(0, "is running again");
}

static void test_arguments(void)
{
    struct args args = { .timeout_ms = 1, .reserved = { 1 } };
    int state;

    is_int(lock(getpid(), &args), CUDA_ERROR_INVALID_VALUE,
           "reserved bytes are zero");
    is_int(lock(getppid(), NULL), CUDA_ERROR_INVALID_VALUE,
           "another process has no device of this one's");
    is_int(get_state(getppid(), &state), CUDA_ERROR_INVALID_VALUE,
           "and no state");
    is_state(0, "is running");
}

static void test_work_that_does_not_end(void)
{
    const struct args args = { .timeout_ms = 30 };
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);

    drv.cuMemsetD32Async(word(0), 0, 1, stream);
    drv.cuStreamSynchronize(stream);
    drv.cuStreamWaitValue32(stream, word(0), 5, 0);
    is_int(lock(getpid(), &args), CUDA_ERROR_NOT_READY,
           "work that waits is not waited for longer than asked");
    is_state(0, "is running");
    drv.cuStreamWriteValue32(side, word(0), 5, 0);
    is_int(lock(getpid(), &args), CUDA_SUCCESS, "the word is there");
    unlock(getpid(), NULL);
    drv.cuStreamSynchronize(stream);
    drv.cuStreamDestroy(stream);
}

static atomic_int has_returned;

static void *call(void *unused)
{
    (void)unused;
    drv.cuCtxSetCurrent(ctx);
    drv.cuMemsetD32Async(word(1), 7, 1, side);
    drv.cuStreamSynchronize(side);
    atomic_store(&has_returned, 1);
    return NULL;
}

static void test_calls_wait(void)
{
    const struct timespec ms = { .tv_nsec = 20000000 };
    pthread_t thread;

    lock(getpid(), NULL);
    pthread_create(&thread, NULL, call, NULL);
    nanosleep(&ms, NULL);
    is_int(atomic_load(&has_returned), 0, "a call waits for the lock's end");
    checkpoint(getpid(), NULL);
    restore(getpid(), NULL);
    nanosleep(&ms, NULL);
    is_int(atomic_load(&has_returned), 0, "after a restore, too");
    unlock(getpid(), NULL);
    pthread_join(thread, NULL);
    is_int(atomic_load(&has_returned), 1, "and then goes on");
}

int main(void)
{
    int status;

    if (!controls_open(&status)) {
        return status;
    }
    find(&get_state, "cuCheckpointProcessGetState");
    find(&lock, "cuCheckpointProcessLock");
    find(&checkpoint, "cuCheckpointProcessCheckpoint");
    find(&restore, "cuCheckpointProcessRestore");
    find(&unlock, "cuCheckpointProcessUnlock");
    for (int seed = 0; seed < 2; seed++) {
        configure("SEED=%d", seed);
        test_order();
        test_arguments();
        test_work_that_does_not_end();
        test_calls_wait();
        atomic_store(&has_returned, 0);
    }
    contract_close();
    return done_testing();
}
