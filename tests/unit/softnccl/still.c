/*
 * still.c - a device on which nothing happens by itself, for softnccl.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tests/unit/softnccl/still.h"

#include "softcuda/collectives.h"
#include "softnccl/softnccl.h"
#include "softnccl/state.h"
#include "tap/tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_CALLS = 64
};

struct softcuda_rendezvous {
    softcuda_rendezvous *next;
    uint32_t refs, places, here;
    bool failed;
    softcuda_rendezvous_fn *run;
    softcuda_over_fn *over;
    void *user;
};

softnccl_reports_fn softnccl_reports;
softnccl_forget_fn softnccl_forget;
softnccl_count_fn softnccl_count;
#define NCCL_ENTRY(since, result, name, signature) result name signature;
#include "driver/nccl_entries.def"
#undef NCCL_ENTRY

struct still still;

static softcuda_rendezvous *waiting; /* that are not over */
static softcuda_call *issued[MAX_CALLS], *captured[MAX_CALLS];
static uint32_t n_issued, n_captured;

static void nothing(void)
{
}

static void sleeps(void)
{
    if (still.asleep == NULL || ++still.n_slept > 1000) {
        printf("Bail out! a call sleeps that nobody wakes\n");
        exit(1);
    }
    still.asleep();
}

static void news(void)
{
    if (still.news != NULL) {
        still.news();
    }
}

static void watch(void (*watcher)(uint64_t quiet_ms))
{
    (void)watcher;
}

static uint64_t now_ms(void)
{
    return still.now_ms;
}

static uint64_t thread(void)
{
    return (uint64_t)still.rank + 1;
}

static int thread_is(uint64_t of)
{
    return still.threads[of - 1];
}

static CUresult ordinal(int *device_p)
{
    *device_p = still.devices[still.rank];
    return CUDA_SUCCESS;
}

static CUresult stream_is(CUstream stream, softcuda_stream_is *is_p)
{
    if (stream == NULL) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    is_p->device = still.devices[(int)((uintptr_t)stream - 1)];
    is_p->capture = still.capture;
    return CUDA_SUCCESS;
}

static void *live(size_t bytes)
{
    still.n_live++;
    return calloc(1, bytes);
}

static void dead(void *object)
{
    still.n_live -= object != NULL;
    free(object);
}

static softcuda_seat *seat(void)
{
    return live(1);
}

static void seat_free(softcuda_seat *at)
{
    dead(at);
}

static softcuda_word *say(softcuda_word *word)
{
    return word != NULL ? word : live(1);
}

static void hear(const softcuda_word *word)
{
    (void)word;
}

static void word_free(softcuda_word *word)
{
    dead(word);
}

/* ---- calls and rendezvous --------------------------------------------- */

static void call_drop(softcuda_call *call)
{
    if (--call->refs == 0) {
        call->free(call);
    }
}

static CUresult issue(CUstream stream, softcuda_call *call)
{
    (void)stream;
    call->refs++;
    if (still.capture != 0) {
        captured[n_captured++] = call;
    } else {
        issued[n_issued++] = call;
        call->come(call, NULL, false);
    }
    return CUDA_SUCCESS;
}

static softcuda_rendezvous *rendezvous(const char *name, uint32_t places,
                                       softcuda_rendezvous_fn *run,
                                       softcuda_over_fn *over, void *user)
{
    softcuda_rendezvous *m = live(sizeof(*m));

    (void)name;
    m->refs = 2; /* the caller's, and the list's */
    m->places = places;
    m->run = run;
    m->over = over;
    m->user = user;
    m->next = waiting;
    waiting = m;
    return m;
}

static void rendezvous_drop(softcuda_rendezvous *m)
{
    if (--m->refs == 0) {
        dead(m);
    }
}

static void join(softcuda_rendezvous *m, uint32_t place, softcuda_visit *visit)
{
    (void)place;
    (void)visit;
    m->here++;
}

static void fail(softcuda_rendezvous *m)
{
    m->failed = true;
}

static softcuda_rendezvous *ended(void)
{
    for (softcuda_rendezvous **m = &waiting; *m != NULL; m = &(*m)->next) {
        softcuda_rendezvous *found = *m;

        if (found->failed || found->here == found->places) {
            *m = found->next;
            return found;
        }
    }
    return NULL;
}

void still_settle(void)
{
    softcuda_rendezvous *m;

    while ((m = ended()) != NULL) {
        uint64_t bytes = 0;
        const bool held = !m->failed && m->run(m->user, m, &bytes);

        still.bytes = held ? bytes : still.bytes;
        still.n_held += held;
        still.n_failed += !held;
        m->over(m->user, held);
        rendezvous_drop(m);
    }
}

static void await(softcuda_rendezvous *m)
{
    if (!m->failed && m->here < m->places) {
        sleeps();
    }
    still_settle();
}

static bool touch(softcuda_rendezvous *m, uint32_t place, const void *address,
                  size_t bytes, int what)
{
    (void)m;
    (void)place;
    (void)address;
    (void)bytes;
    (void)what;
    return !still.wild;
}

static void flow(softcuda_rendezvous *m, uint32_t from, uint32_t to)
{
    (void)m;
    (void)from;
    (void)to;
}

/* ---- for the tests ------------------------------------------------------- */

static const softcuda_collective_calls table = {
    sizeof(table), nothing, nothing, sleeps, news, watch, now_ms, thread,
    thread_is, ordinal, stream_is, seat, seat_free, issue, call_drop,
    rendezvous, rendezvous_drop, join, await, fail, touch, flow, say, hear,
    word_free,
};

void still_begin(void)
{
    memset(&still, 0, sizeof(still));
    for (int i = 0; i < STILL_RANKS; i++) {
        still.devices[i] = i;
    }
    device = &table;
    softnccl_forget();
}

void still_launch(void)
{
    for (uint32_t i = 0; i < n_captured; i++) {
        captured[i]->come(captured[i], NULL, true);
    }
}

void still_forget_graphs(void)
{
    while (n_captured > 0) {
        call_drop(captured[--n_captured]);
    }
}

void still_end(const char *name)
{
    softnccl_counts counts;

    still_settle();
    softnccl_count(&counts);
    is_int(counts.rendezvous, 0, "%s: no operation is left", name);
    still_forget_graphs();
    while (n_issued > 0) {
        call_drop(issued[--n_issued]);
    }
    softnccl_count(&counts);
    is_int(counts.communicators, 0, "%s: no communicator is left", name);
    is_int(still.n_live, 0, "%s: nothing of the device is left", name);
}

CUstream still_stream(int rank)
{
    return (CUstream)((uintptr_t)rank + 1);
}

ncclResult_t still_start(ncclComm_t *comms, int n)
{
    ncclUniqueId id;

    ncclGetUniqueId(&id);
    ncclGroupStart();
    for (still.rank = 0; still.rank < n; still.rank++) {
        ncclCommInitRank(&comms[still.rank], n, id, still.rank);
    }
    still.rank = 0;
    return ncclGroupEnd();
}

void still_leave(ncclComm_t comm, int rank)
{
    still.rank = rank;
    ncclCommDestroy(comm);
}

const char *still_report(uint64_t i)
{
    const char *text = NULL;

    softnccl_reports(i, &text);
    return text != NULL ? text : "";
}

uint64_t still_reports(void)
{
    return softnccl_reports(0, NULL);
}
