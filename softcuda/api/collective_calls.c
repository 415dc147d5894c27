/*
 * collective_calls.c - the table that a library of collectives is given, and
 * what hosts tell each other by themselves.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "softcuda/collectives.h"

#include "softcuda/api/visits.h"
#include "softcuda/api/capture.h"
#include "softcuda/api/control.h"
#include "softcuda/api/stream.h"
#include "softcuda/engine/context.h"
#include "softcuda/engine/engine.h"
#include "softcuda/engine/rendezvous.h"
#include "softcuda/engine/order.h"
#include "softcuda/engine/soft.h"
#include "softcuda/engine/wait.h"
#include "softcuda/softcuda.h"

#include <stdlib.h>

SOFT_API softcuda_collectives_fn softcuda_collectives;
SOFT_API softcuda_gather_fn softcuda_gather;

_Static_assert(offsetof(softcuda_call, free) == offsetof(struct shared, free),
               "a call is shared");
_Static_assert((int)SOFTCUDA_THREAD_GONE == (int)THREAD_GONE, "one order");

struct softcuda_word {
    struct vc *vc;
};

static void unlock(void)
{
    soft_leave(CUDA_SUCCESS);
}

static void rest(void)
{
    wait_for_news();
}

static uint64_t this_thread(void)
{
    return thread_self()->id;
}

static int thread_is(uint64_t thread)
{
    return (int)wait_thread(thread);
}

static CUresult this_device(int *device_p)
{
    CUcontext ctx;
    CUresult code = ctx_current(&ctx);

    if (code == CUDA_SUCCESS) {
        *device_p = ctx->device;
    }
    return code;
}

static CUresult stream_is(CUstream handle, softcuda_stream_is *is_p)
{
    CUstream stream;
    CUresult code = stream_issuable(handle, &stream);

    if (code == CUDA_SUCCESS) {
        is_p->device = stream->ctx->device;
        is_p->capture = stream->capture != NULL ? stream->capture->id : 0;
    }
    return code;
}

static void call_drop(softcuda_call *call)
{
    shared_drop((struct shared *)(void *)call);
}

static void rendezvous_drop(softcuda_rendezvous *rendezvous)
{
    shared_drop(&rendezvous->shared);
}

static void await(softcuda_rendezvous *rendezvous)
{
    const struct mark mark = rendezvous->mark;

    engine_run_until(&mark, 1);
}

static softcuda_word *say(softcuda_word *word)
{
    if (word == NULL) {
        word = calloc(1, sizeof(*word));
    }
    if (word != NULL) {
        vc_add(&word->vc, soft.host->vc);
    }
    return word;
}

static void hear(const softcuda_word *word)
{
    vc_add(&soft.host->vc, word->vc);
    soft.host->version = ++soft.host_versions;
}

static void word_free(softcuda_word *word)
{
    if (word != NULL) {
        vc_drop(word->vc);
        free(word);
    }
}

static const softcuda_collective_calls rendezvous = {
    sizeof(softcuda_collective_calls),
    soft_lock,
    unlock,
    rest,
    wait_news,
    wait_watch,
    wait_now_ms,
    this_thread,
    thread_is,
    this_device,
    stream_is,
    seat_new,
    seat_free,
    visits_issue,
    call_drop,
    visits_rendezvous,
    rendezvous_drop,
    visits_join,
    await,
    visits_fail,
    rendezvous_touch,
    rendezvous_flow,
    say,
    hear,
    word_free,
};

const softcuda_collective_calls *softcuda_collectives(void)
{
    return &rendezvous;
}

/* ---- gathers of the hosts' own ------------------------------------------- */

/* The last two of a key: nobody begins the next one before all have heard the
 * first of them. */
struct gather {
    struct gather *next;
    uint64_t key, number[2];
    softcuda_word *words[2];
};

/* They stay: sessions are few. */
static struct gather *gathers;

static struct gather *find_gather(uint64_t key)
{
    struct gather *gather = gathers;

    while (gather != NULL && gather->key != key) {
        gather = gather->next;
    }
    return gather;
}

static struct gather *add_gather(uint64_t key)
{
    struct gather *gather = calloc(1, sizeof(*gather));

    if (gather != NULL) {
        gather->key = key;
        gather->next = gathers;
        gathers = gather;
    }
    return gather;
}

static void say_to(struct gather *gather, uint64_t number)
{
    const int at = (int)(number % 2);

    if (gather->number[at] != number) {
        word_free(gather->words[at]);
        gather->words[at] = NULL;
        gather->number[at] = number;
    }
    gather->words[at] = say(gather->words[at]);
}

void softcuda_gather(uint64_t key, uint64_t number, int says)
{
    const int at = (int)(number % 2);
    struct gather *gather;

    soft_lock();
    gather = find_gather(key);
    if (gather == NULL && says) {
        gather = add_gather(key);
    }
    if (gather != NULL && says) {
        say_to(gather, number);
    } else if (gather != NULL && gather->number[at] == number &&
               gather->words[at] != NULL) {
        hear(gather->words[at]);
    }
    unlock();
}
