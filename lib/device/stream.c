/*
 * stream.c - streams and the edges between them.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "base/clock.h"
#include "base/error.h"
#include "device/job.h"
#include "device/private.h"

bool gh_device_is_legacy(const void *stream)
{
    return stream == NULL || stream == CU_STREAM_LEGACY;
}

bool gh_device_is_current(struct gh_device *dev)
{
    CUcontext ctx = NULL;

    return dev->drv.cuCtxGetCurrent(&ctx) == CUDA_SUCCESS &&
           (ctx == dev->ctx || ctx == NULL);
}

gh_status gh_device_check_stream(struct gh_device *dev, const char *what,
                                 void *stream, gh_error *err)
{
    CUcontext ctx = NULL;
    gh_status status;
    gh_error why;

    if (gh_device_is_legacy(stream)) {
        return GH_OK;
    }
    if (stream == CU_STREAM_PER_THREAD) {
        return gh_fail(err, GH_ERR_INVALID,
                       "%s is CU_STREAM_PER_THREAD, which is another stream "
                       "in each thread: create a stream",
                       what);
    }
    status = gh_device_call(dev, &why, cuStreamGetCtx, (stream, &ctx));
    if (status != GH_OK) {
        return gh_fail(err, status,
                       "%s %p is no stream of the session's driver (%.60s): "
                       "%.90s; if the host is on another driver, name that "
                       "one in GRAPHHOOKS_DRIVER",
                       what, stream, dev->info.name, why.text);
    }
    if (ctx != dev->ctx) {
        return gh_fail(err, GH_ERR_INVALID,
                       "%s %p is of another context than the session's device "
                       "%d (%s): open a session for each device",
                       what, stream, dev->info.ordinal, dev->info.name);
    }
    return GH_OK;
}

gh_status gh_device_stream_create(struct gh_device *dev, bool blocking,
                                  void **stream_p, gh_error *err)
{
    CUstream stream;
    gh_status status;

    status = gh_device_call(
        dev, err, cuStreamCreate,
        (&stream, blocking ? CU_STREAM_DEFAULT : CU_STREAM_NON_BLOCKING));
    if (status == GH_OK) {
        *stream_p = stream;
    }
    return status;
}

gh_status gh_device_stream_create_urgent(struct gh_device *dev,
                                         void **stream_p, gh_error *err)
{
    int least = 0, greatest = 0;
    CUstream stream;
    gh_status status;

    status = gh_device_call(dev, err, cuCtxGetStreamPriorityRange,
                            (&least, &greatest));
    if (status == GH_OK) {
        status = gh_device_call(dev, err, cuStreamCreateWithPriority,
                                (&stream, CU_STREAM_NON_BLOCKING, greatest));
    }
    if (status == GH_OK) {
        *stream_p = stream;
    }
    return status;
}

/* ---- waits --------------------------------------------------------------- */

uint32_t gh_device_limit_waits(struct gh_device *dev, uint32_t seconds)
{
    const uint32_t before = dev->limit_s;

    dev->limit_s = seconds;
    return before;
}

gh_status gh_device_wait(struct gh_device *dev, gh_error *err)
{
    CUresult result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;

    if (!gh_device_host_captures(dev, NULL)) {
        result = dev->drv.cuCtxSynchronize();
    }
    return result == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
               ? gh_fail(err, GH_ERR_STATE,
                         "the host is capturing a stream: end the capture "
                         "first")
               : gh_device_status(dev, result, "cuCtxSynchronize", err);
}

static void await_idle(struct gh_device *dev, const void *arg)
{
    (void)arg;
    (void)dev->drv.cuCtxSynchronize();
}

struct gh_job *gh_device_idle_begin(struct gh_device *dev, uint32_t seconds)
{
    return gh_job_begin(dev, seconds, await_idle, "", 1);
}

bool gh_device_is_stuck(const struct gh_device *dev)
{
    return dev->stuck;
}

typedef gh_status ask_fn(struct gh_device *dev, void *object, bool *ended_p,
                         gh_error *err);

static gh_status wait_limited(struct gh_device *dev, ask_fn *ask, void *object,
                              gh_error *err)
{
    struct gh_deadline deadline =
        gh_deadline_in(dev->stuck ? 0 : dev->limit_s);
    bool ended = false;
    gh_status status = ask(dev, object, &ended, err);

    while (status == GH_OK && !ended) {
        if (!gh_deadline_back_off(&deadline)) {
            dev->stuck = true;
            return gh_fail(err, GH_ERR_DEVICE,
                           "the device has not ended its work in %u s "
                           "(GRAPHHOOKS_TIMEOUT)",
                           dev->limit_s);
        }
        status = ask(dev, object, &ended, err);
    }
    return status;
}

gh_status gh_device_stream_wait(struct gh_device *dev, void *stream,
                                gh_error *err)
{
    if (dev->limit_s != 0) {
        return wait_limited(dev, gh_device_stream_ask, stream, err);
    }
    return gh_device_call(dev, err, cuStreamSynchronize, (stream));
}

static gh_status answer(struct gh_device *dev, CUresult result,
                        const char *entry, bool *ended_p, gh_error *err)
{
    *ended_p = result == CUDA_SUCCESS;
    return result == CUDA_ERROR_NOT_READY
               ? GH_OK
               : gh_device_status(dev, result, entry, err);
}

gh_status gh_device_stream_ask(struct gh_device *dev, void *stream,
                               bool *ended_p, gh_error *err)
{
    return answer(dev, dev->drv.cuStreamQuery(stream), "cuStreamQuery",
                  ended_p, err);
}

gh_status gh_device_event_ask(struct gh_device *dev, void *event,
                              bool *ended_p, gh_error *err)
{
    return answer(dev, dev->drv.cuEventQuery(event), "cuEventQuery", ended_p,
                  err);
}

static gh_status create_event(struct gh_device *dev, unsigned int flags,
                              void **event_p, gh_error *err)
{
    CUevent event;
    gh_status status = gh_device_call(dev, err, cuEventCreate, (&event, flags));

    if (status == GH_OK) {
        *event_p = event;
    }
    return status;
}

gh_status gh_device_event_create(struct gh_device *dev, void **event_p,
                                 gh_error *err)
{
    return create_event(dev, CU_EVENT_DISABLE_TIMING, event_p, err);
}

gh_status gh_device_event_create_timed(struct gh_device *dev, void **event_p,
                                       gh_error *err)
{
    return create_event(dev, CU_EVENT_DEFAULT, event_p, err);
}

void gh_device_event_destroy(struct gh_device *dev, void *event)
{
    if (event != NULL) {
        dev->drv.cuEventDestroy(event);
    }
}

gh_status gh_device_event_sync(struct gh_device *dev, void *event,
                               gh_error *err)
{
    if (dev->limit_s != 0) {
        return wait_limited(dev, gh_device_event_ask, event, err);
    }
    return gh_device_call(dev, err, cuEventSynchronize, (event));
}

gh_status gh_device_event_elapsed(struct gh_device *dev, void *from, void *to,
                                  double *ns_p, gh_error *err)
{
    float ms = 0.0f;
    gh_status status =
        gh_device_call(dev, err, cuEventElapsedTime, (&ms, from, to));

    if (status == GH_OK) {
        *ns_p = (double)ms * 1e6;
    }
    return status;
}

gh_status gh_device_event_record(struct gh_device *dev, void *event,
                                 void *stream, gh_error *err)
{
    return gh_device_call(dev, err, cuEventRecord, (event, stream));
}

gh_status gh_device_event_wait(struct gh_device *dev, void *waiter, void *event,
                               gh_error *err)
{
    return gh_device_call(dev, err, cuStreamWaitEvent,
                          (waiter, event, CU_EVENT_WAIT_DEFAULT));
}

void gh_device_event_must_record(struct gh_device *dev, void *event,
                                 void *stream)
{
    const bool recorded =
        event != NULL &&
        gh_device_event_record(dev, event, stream, NULL) == GH_OK;

    if (!recorded && !gh_device_is_capturing(dev, stream)) {
        (void)gh_device_stream_wait(dev, stream, NULL);
    }
}

void gh_device_event_must_wait(struct gh_device *dev, void *waiter,
                               void *event)
{
    if (gh_device_event_wait(dev, waiter, event, NULL) != GH_OK) {
        (void)gh_device_event_sync(dev, event, NULL);
    }
}

bool gh_device_event_has_ended(struct gh_device *dev, void *event)
{
    return dev->drv.cuEventQuery(event) == CUDA_SUCCESS;
}

gh_status gh_device_event_record_in_graph(struct gh_device *dev, void *event,
                                          void *stream, gh_error *err)
{
    return gh_device_call(dev, err, cuEventRecordWithFlags,
                          (event, stream, CU_EVENT_RECORD_EXTERNAL));
}

gh_status gh_device_event_wait_in_graph(struct gh_device *dev, void *waiter,
                                        void *event, gh_error *err)
{
    return gh_device_call(dev, err, cuStreamWaitEvent,
                          (waiter, event, CU_EVENT_WAIT_EXTERNAL));
}
