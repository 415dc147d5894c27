/*
 * Calls of the driver that do not return: each is waited for in time, in a
 * thread of its own, and nothing is freed after one that stayed.
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "device/job.h"
#include "device/private.h"
#include "tap/tap.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define CONTEXT ((CUcontext)3)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool held; /* calls do not return */
static char calls[256];
static pthread_t caller;
static bool elsewhere, masked;
static _Thread_local CUcontext current;
static _Thread_local CUstreamCaptureMode mode;

static CUresult note(const char *what, uintptr_t object)
{
    sigset_t set;
    size_t used;

    pthread_sigmask(SIG_SETMASK, NULL, &set);
    pthread_mutex_lock(&lock);
    elsewhere = !pthread_equal(pthread_self(), caller);
    masked = sigismember(&set, SIGTERM) == 1;
    used = strlen(calls);
    snprintf(calls + used, sizeof(calls) - used, "%s%u%s ", what,
             (unsigned)object, current == CONTEXT ? "" : "?");
    while (held) {
        pthread_cond_wait(&changed, &lock);
    }
    pthread_mutex_unlock(&lock);
    return CUDA_SUCCESS;
}

static CUresult free_memory(CUdeviceptr at)
{
    return note("free", (uintptr_t)at);
}

static CUresult free_host(void *at)
{
    return note("host", (uintptr_t)at);
}

static CUresult close_shared(CUdeviceptr at)
{
    return note("close", (uintptr_t)at);
}

static CUresult unload(CUmodule module)
{
    return note("unload", (uintptr_t)module);
}

static CUresult destroy_stream(CUstream stream)
{
    return note("stream", (uintptr_t)stream);
}

static CUresult get_current(CUcontext *context_p)
{
    *context_p = current;
    return CUDA_SUCCESS;
}

static CUresult set_current(CUcontext context)
{
    current = context;
    return CUDA_SUCCESS;
}

static CUresult exchange(CUstreamCaptureMode *mode_p)
{
    const CUstreamCaptureMode before = mode;

    mode = *mode_p;
    *mode_p = before;
    return CUDA_SUCCESS;
}

static struct gh_device device(void)
{
    struct gh_device dev = { .ctx = CONTEXT, .verdict = 8,
                             .module = (CUmodule)9 };

    dev.drv.cuMemFree = free_memory;
    dev.drv.cuMemFreeHost = free_host;
    dev.drv.cuIpcCloseMemHandle = close_shared;
    dev.drv.cuModuleUnload = unload;
    dev.drv.cuStreamDestroy = destroy_stream;
    dev.drv.cuCtxGetCurrent = get_current;
    dev.drv.cuCtxSetCurrent = set_current;
    dev.drv.cuThreadExchangeStreamCaptureMode = exchange;
    return dev;
}

static void hold(bool holds)
{
    pthread_mutex_lock(&lock);
    held = holds;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static void reset(void)
{
    caller = pthread_self();
    current = CONTEXT;
    calls[0] = '\0';
}

static void call(struct gh_device *dev, int which)
{
    switch (which) {
    case 0:
        gh_device_free(dev, (void *)1);
        break;
    case 1:
        gh_device_host_free(dev, (void *)2);
        break;
    case 2:
        gh_device_close_shared(dev, (void *)3);
        break;
    case 3:
        gh_device_stream_destroy(dev, (void *)4);
        break;
    default:
        gh_device_kernels_unload(dev);
    }
}

static const char *const names[] = { "free1 ", "host2 ", "close3 ",
                                     "stream4 ", "free8 unload9 " };
#define CALLS 5

static void test_no_limit(void)
{
    for (int which = 0; which < CALLS; which++) {
        struct gh_device dev = device();

        reset();
        call(&dev, which);
        is_str(calls, names[which], "without a limit it is the caller's call");
        ok(!elsewhere && !dev.stuck, "on the caller's thread");
    }
}

static void test_in_time(void)
{
    for (int which = 0; which < CALLS; which++) {
        struct gh_device dev = device();

        reset();
        is_int(gh_device_limit_waits(&dev, 20), 0, "there was no limit");
        call(&dev, which);
        is_str(calls, names[which],
               "with one it is made with the device's context");
        ok(elsewhere && masked && !dev.stuck,
           "on a thread that handles no signal");
        is_int(gh_device_limit_waits(&dev, 0), 20, "and the limit is said");
    }
}

/* Where a thread may still add to them. */
static void calls_are(const char *expected, const char *name)
{
    char copy[sizeof(calls)];

    pthread_mutex_lock(&lock);
    memcpy(copy, calls, sizeof(copy));
    pthread_mutex_unlock(&lock);
    is_str(copy, expected, "%s", name);
}

/* The call stays behind, and uses nothing of the device any more. */
static void test_stuck(void)
{
    struct gh_device dev = device();
    const double start = tap_now_s();
    const struct timespec ms = { .tv_nsec = 1000000 };

    reset();
    gh_device_limit_waits(&dev, 1);
    hold(true);
    for (int which = CALLS - 1; which >= 0; which--) {
        call(&dev, which);
    }
    ok(tap_now_s() - start >= 1 && tap_now_s() - start < 2,
       "the first that does not return is waited for, and no other: %.2f s",
       tap_now_s() - start);
    ok(gh_device_is_stuck(&dev), "the device is stuck");
    calls_are("free8 ", "and nothing more is freed");
    memset(&dev, 0xff, sizeof(dev));
    hold(false);
    for (int i = 0; i < 5000; i++) {
        bool ended;

        pthread_mutex_lock(&lock);
        ended = strcmp(calls, "free8 unload9 ") == 0;
        pthread_mutex_unlock(&lock);
        if (ended) {
            break;
        }
        nanosleep(&ms, NULL);
    }
    calls_are("free8 unload9 ",
              "what stayed behind goes on, when the device is closed already");
}

int main(void)
{
    test_no_limit();
    test_in_time();
    test_stuck();
    return done_testing();
}
