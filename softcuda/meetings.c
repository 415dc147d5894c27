/*
 * meetings.c - the table that a library of collectives is given.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "softcuda/meeting.h"

#include "softcuda/attend.h"
#include "softcuda/capture.h"
#include "softcuda/context.h"
#include "softcuda/control.h"
#include "softcuda/engine.h"
#include "softcuda/meet.h"
#include "softcuda/order.h"
#include "softcuda/soft.h"
#include "softcuda/stream.h"
#include "softcuda/wait.h"

#include <stdlib.h>

SOFT_API softcuda_meet_fn softcuda_meet;

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

static void meeting_drop(softcuda_meeting *meeting)
{
    shared_drop(&meeting->shared);
}

static void await(softcuda_meeting *meeting)
{
    const struct mark mark = meeting->mark;

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

static const softcuda_meetings meetings = {
    sizeof(softcuda_meetings),
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
    attend_issue,
    call_drop,
    attend_meeting,
    meeting_drop,
    attend_join,
    await,
    attend_fail,
    meet_touch,
    meet_flow,
    say,
    hear,
    word_free,
};

const softcuda_meetings *softcuda_meet(void)
{
    return &meetings;
}
