/* The table for a library of collectives: who counts as waiting, and when a
 * rendezvous is held. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "softcuda/collectives.h"
#include "tests/softcuda/controls.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum {
    RANKS = 2
};

static const softcuda_collective_calls *calls;

/* ---- threads ------------------------------------------------------------- */

static uint64_t sleeper;
static int asleep = -1; /* what it is while it sleeps */

static void look(uint64_t quiet_ms)
{
    (void)quiet_ms;
    asleep = calls->thread_is(sleeper);
}

/* Sleeps until it has had enough: nothing has happened. */
static void *sleep_in_vain(void *until)
{
    calls->lock();
    sleeper = calls->thread();
    calls->sleep();
    calls->unlock();
    pthread_barrier_wait(until);
    pthread_barrier_wait(until);
    return NULL;
}

static int look_at(uint64_t thread)
{
    int is;

    calls->lock();
    is = calls->thread_is(thread);
    calls->unlock();
    return is;
}

static void test_a_thread_that_sleeps(void)
{
    pthread_barrier_t until;
    pthread_t thread;

    pthread_barrier_init(&until, NULL, 2);
    calls->lock();
    calls->watch(look);
    calls->unlock();
    pthread_create(&thread, NULL, sleep_in_vain, &until);
    pthread_barrier_wait(&until);
    is_int(asleep, SOFTCUDA_THREAD_WAITS, "a thread that sleeps waits");
    is_int(look_at(sleeper), SOFTCUDA_THREAD_RUNS,
           "one that goes on runs, though nothing has happened");
    pthread_barrier_wait(&until);
    pthread_join(thread, NULL);
    is_int(look_at(sleeper), SOFTCUDA_THREAD_GONE, "and is gone in the end");
    calls->lock();
    calls->watch(NULL);
    calls->unlock();
    pthread_barrier_destroy(&until);
}

/* ---- a rendezvous of a rank on each device ---------------------------- */

static struct rank {
    softcuda_call call; /* comes first */
    uint32_t place;
    CUcontext ctx;
    CUstream stream;
} ranks[RANKS];

static softcuda_rendezvous *rendezvous;
static uint32_t ran, held, failed, freed;

static bool run(void *user, softcuda_rendezvous *what, uint64_t *bytes_p)
{
    (void)user;
    (void)what;
    (void)bytes_p;
    ran++;
    return true;
}

static void over(void *user, bool was_held)
{
    (void)user;
    held += was_held;
    failed += !was_held;
}

static void come(softcuda_call *call, softcuda_visit *visit, bool in_graph)
{
    const struct rank *r = (const struct rank *)(void *)call;

    (void)in_graph;
    calls->join(rendezvous, r->place, visit);
}

static void free_call(softcuda_call *call)
{
    (void)call;
    freed++;
}

static CUresult issue(struct rank *r)
{
    CUresult code;

    drv.cuCtxSetCurrent(r->ctx);
    calls->lock();
    r->call.refs = 1;
    code = calls->issue(r->stream, &r->call);
    calls->call_drop(&r->call);
    calls->unlock();
    return code;
}

static void open_rank(uint32_t i)
{
    struct rank *r = &ranks[i];

    drv.cuDevicePrimaryCtxRetain(&r->ctx, (int)i);
    drv.cuCtxSetCurrent(r->ctx);
    r->stream = new_stream(CU_STREAM_NON_BLOCKING);
    r->place = i;
    r->call =
        (softcuda_call){ .free = free_call, .name = "together", .come = come };
    calls->lock();
    r->call.seat = calls->seat();
    calls->unlock();
}

static void close_rank(uint32_t i)
{
    struct rank *r = &ranks[i];

    calls->lock();
    calls->seat_free(r->call.seat);
    calls->unlock();
    drv.cuCtxSetCurrent(r->ctx);
    drv.cuStreamDestroy(r->stream);
    drv.cuDevicePrimaryCtxRelease((int)i);
}

/* Rank 1 comes first, and its device may be lost before rank 0 comes. */
static void meet(bool loses)
{
    ran = held = failed = freed = 0;
    for (uint32_t i = 0; i < RANKS; i++) {
        open_rank(i);
    }
    calls->lock();
    rendezvous = calls->rendezvous("together", RANKS, run, over, NULL);
    calls->unlock();
    is_int(issue(&ranks[1]), CUDA_SUCCESS, "one rank comes");
    if (loses) {
        CUstream other = new_stream(CU_STREAM_NON_BLOCKING);

        drv.cuMemsetD32Async(4096, 0, 1, other); /* nobody's memory */
        is_int(drv.cuStreamSynchronize(other), CUDA_ERROR_ILLEGAL_ADDRESS,
               "and then loses its device");
        drv.cuStreamDestroy(other);
    }
    is_int(issue(&ranks[0]), CUDA_SUCCESS, "the other one comes");
    is_int(drv.cuStreamSynchronize(ranks[0].stream), CUDA_SUCCESS,
           "and goes on");
    calls->lock();
    calls->rendezvous_drop(rendezvous);
    calls->unlock();
    for (uint32_t i = 0; i < RANKS; i++) {
        close_rank(i);
    }
    is_int(freed, RANKS, "their calls are free");
}

static void test_rendezvous(void)
{
    meet(false);
    ok(ran == 1 && held == 1 && failed == 0, "a rendezvous of all is held");
    meet(true);
    ok(ran == 0 && held == 0 && failed == 1,
       "one with a device that is lost is not");
    meet(false);
    ok(ran == 1 && held == 1 && failed == 0,
       "that device takes part again once it is made anew");
}

int main(void)
{
    softcuda_collectives_fn *table_of;
    void *symbol;
    int status;

    setenv("SOFTCUDA_DEVICES", "2", 1);
    if (!controls_open(&status)) {
        return status;
    }
    contract_close();
    symbol = dlsym(drv.library, "softcuda_collectives");
    memcpy(&table_of, &symbol, sizeof(symbol));
    calls = table_of();
    test_a_thread_that_sleeps();
    test_rendezvous();
    return done_testing();
}
