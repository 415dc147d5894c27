/* Device memory of another process: its handle is opened, its words order what
 * the processes do, and nothing of it is left when one of them is gone. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/softcuda/controls.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define UNIT ((size_t)2 << 20)

enum {
    ROUNDS = 20
};

/* What two processes tell each other, one step after the other. */
enum step {
    BEGINS = 1,
    HAS_NAMED,
    IS_CLOSED
};
static struct board {
    CUipcMemHandle handle, small;
    int step;
} * boards, *board;

static void go_on(enum step step)
{
    __atomic_store_n(&board->step, step, __ATOMIC_RELEASE);
}

static void await(enum step step)
{
    while (__atomic_load_n(&board->step, __ATOMIC_ACQUIRE) < (int)step) {
        usleep(200);
    }
}

static uint32_t *here(CUdeviceptr address)
{
    return (uint32_t *)(uintptr_t)address;
}

static CUresult open_it(CUdeviceptr *address_p, CUipcMemHandle handle)
{
    return drv.cuIpcOpenMemHandle(address_p, handle,
                                  CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
}

/* ---- the process that has the memory ------------------------------------- */

/* Word 0 says that a round's number is in word 1, and word 2 that it was
 * read. */
static int own(void)
{
    CUdeviceptr memory = 0, small = 0;
    uint32_t *found;
    int status, wrong = 0;

    await(BEGINS);
    if (freopen("/dev/null", "w", stdout) == NULL || !controls_open(&status)) {
        return 1;
    }
    found = pinned;
    drv.cuMemAlloc(&memory, UNIT);
    drv.cuMemAlloc(&small, 4096);
    drv.cuMemsetD32Async(memory + 12, 7, 16, side);
    drv.cuStreamSynchronize(side);
    drv.cuMemsetD32Async(memory, 0, 1, side);
    drv.cuMemsetD32Async(memory + 8, 0, 1, side);
    drv.cuStreamSynchronize(side);
    wrong += drv.cuIpcGetMemHandle(&board->handle, memory) != CUDA_SUCCESS;
    wrong += drv.cuIpcGetMemHandle(&board->small, small) != CUDA_SUCCESS;
    wrong += here(memory)[3] != 7;
    go_on(HAS_NAMED);
    for (uint32_t i = 1; i <= ROUNDS; i++) {
        drv.cuStreamWaitValue32(side, memory, i, CU_STREAM_WAIT_VALUE_GEQ);
        drv.cuMemcpyDtoHAsync(&found[i], memory + 4, 4, side);
        drv.cuStreamWriteValue32(side, memory + 8, i, 0);
    }
    drv.cuStreamSynchronize(side);
    for (uint32_t i = 1; i <= ROUNDS; i++) {
        wrong += found[i] != i * i;
    }
    await(IS_CLOSED);
    wrong += unwritten() != 0;
    drv.cuMemFree(memory);
    drv.cuMemFree(small);
    contract_close();
    return wrong != 0 || done_testing() != 0;
}

/* ---- the process that opens it ------------------------------------------- */

static void test_opened(void)
{
    CUdeviceptr memory = 0, again = 0;
    CUipcMemHandle handle;
    CUresult code;

    go_on(BEGINS);
    await(HAS_NAMED);
    is_int(open_it(&memory, board->handle), 0,
           "a handle of another process is opened");
    is_int(open_it(&again, board->handle), 0, "and once more");
    ok(memory == again, "at the same address");
    is_int((long long)word_at(memory + 12), 7,
           "it holds what was written there");
    code = open_it(&again, board->small);
    ok(code != CUDA_SUCCESS, "less than 2 MiB is not opened: %d", code);

    ok(drv.cuStreamWaitValue32(side, memory, 1, CU_STREAM_WAIT_VALUE_GEQ) !=
           CUDA_SUCCESS,
       "no stream waits for a word of it");
    ok(drv.cuMemFree(memory) != CUDA_SUCCESS, "nor does cuMemFree take it");
    ok(drv.cuIpcGetMemHandle(&handle, memory) != CUDA_SUCCESS,
       "nor is there a handle of it");
    for (uint32_t i = 1; i <= ROUNDS; i++) {
        pinned[0] = i * i;
        pinned[1] = i;
        drv.cuMemcpyHtoDAsync(memory + 4, &pinned[0], 4, side);
        drv.cuMemcpyHtoDAsync(memory, &pinned[1], 4, side);
        drv.cuStreamSynchronize(side);
        while (word_at(memory + 8) != i) {
            usleep(100);
        }
    }
    is_int(drv.cuIpcCloseMemHandle(memory), 0, "it is closed");
    is_int(drv.cuMemFree(memory), CUDA_ERROR_INVALID_VALUE,
           "and is there still");
    is_int(drv.cuIpcCloseMemHandle(memory), 0, "until it is closed as often");
    ok(drv.cuIpcCloseMemHandle(memory) != CUDA_SUCCESS,
       "after which it is unknown");
    go_on(IS_CLOSED);
}

/* The owner's wait ends when the other process writes, and no read of what that
 * has written is reported. */
static void test_rounds(pid_t child, int seed)
{
    int status = -1;

    test_opened();
    waitpid(child, &status, 0);
    is_int(status, 0, "with seed %d all rounds were read as they were written",
           seed);
}

static void test_gone(pid_t child)
{
    CUdeviceptr memory = 0, again = 0;
    CUresult code;
    int status;

    go_on(BEGINS);
    await(HAS_NAMED);
    is_int(open_it(&memory, board->handle), 0, "a handle is opened");
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    drv.cuMemsetD32Async(memory, 5, 4, side);
    is_int((long long)word_at(memory), 5,
           "memory of a process that was killed stays where it is opened");
    is_int(drv.cuIpcCloseMemHandle(memory), 0, "until it is closed");
    code = open_it(&again, board->handle);
    ok(code != CUDA_SUCCESS, "then its handle is none any more: %d", code);
}

/* Each has the device for itself: nothing is open yet. */
static pid_t start(struct board *of, const char *seed)
{
    pid_t child;

    fflush(stdout);
    child = fork();
    if (child == 0) {
        board = of;
        alarm(20);
        setenv("SOFTCUDA_SEED", seed, 1);
        _exit(own());
    }
    return child;
}

int main(void)
{
    pid_t children[3];
    softcuda_counts before;
    int status;

    alarm(60);
    boards = mmap(NULL, 3 * sizeof(*boards), PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < 3; i++) {
        children[i] = start(&boards[i], i == 1 ? "3" : "0");
    }
    if (!controls_open(&status)) {
        for (int i = 0; i < 3; i++) {
            kill(children[i], SIGKILL);
        }
        return status;
    }
    before = counts();
    for (int i = 0; i < 3; i++) {
        board = &boards[i];
        if (i < 2) {
            test_rounds(children[i], 3 * i);
        } else {
            test_gone(children[i]);
        }
    }
    is_int((long long)unwritten(), 0, "nothing unwritten was read");
    is_int((long long)races(), 0, "there was no race");
    is_int((long long)counts().device_allocations,
           (long long)before.device_allocations, "and nothing is left");
    contract_close();
    return done_testing();
}
