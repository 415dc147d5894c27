/*
 * control.c - the lock around every entry point, and the emulator's own
 * controls, which take the lock too.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "softcuda/api/control.h"

#include "softcuda/api/capture.h"
#include "softcuda/api/event.h"
#include "softcuda/api/handle.h"
#include "softcuda/api/memory.h"
#include "softcuda/api/process.h"
#include "softcuda/api/settings.h"
#include "softcuda/check/labels.h"
#include "softcuda/check/race.h"
#include "softcuda/check/unmapped.h"
#include "softcuda/check/unwritten.h"
#include "softcuda/engine/alloc.h"
#include "softcuda/engine/context.h"
#include "softcuda/engine/costs.h"
#include "softcuda/engine/engine.h"
#include "softcuda/engine/rendezvous.h"
#include "softcuda/engine/order.h"
#include "softcuda/engine/ranges.h"
#include "softcuda/engine/run_queue.h"
#include "softcuda/engine/soft.h"
#include "softcuda/engine/wait.h"
#include "softcuda/softcuda.h"

#include <string.h>
#include <time.h>

SOFT_API softcuda_count_fn softcuda_count;
SOFT_API softcuda_configure_fn softcuda_configure;
SOFT_API softcuda_clock_fn softcuda_clock;
SOFT_API softcuda_costs_fn softcuda_costs;
SOFT_API softcuda_calls_fn softcuda_calls;
SOFT_API softcuda_entry_fn softcuda_entry;
SOFT_API softcuda_races_fn softcuda_races;
SOFT_API softcuda_unwritten_fn softcuda_unwritten;
SOFT_API softcuda_unmapped_fn softcuda_unmapped;
SOFT_API softcuda_discard_fn softcuda_discard;
SOFT_API softcuda_label_fn softcuda_label;
SOFT_API softcuda_others_fn softcuda_others;

static bool settings_read;

static uint64_t latest(void)
{
    uint64_t ns = soft.last_ns;

    for (int i = 0; i < SOFT_MAX_DEVICES; i++) {
        ns = soft.hosts[i].ns > ns ? soft.hosts[i].ns : ns;
    }
    return ns;
}

/* With PROCESSES the threads of one device are a host; otherwise all threads
 * are one. */
static struct host *host_of(CUcontext ctx)
{
    return &soft.hosts[soft.set.processes && ctx != NULL ? ctx->device : 0];
}

static void start_again(const struct settings *set)
{
    calls_start_again();
    soft.set = *set;
    soft.waits = 0;
    soft.launches = 0;
    soft.prioritized = 0;
    soft.clock_base = latest();
    for (int i = 0; i < SOFT_MAX_DEVICES; i++) {
        soft.hosts[i].ns = soft.clock_base;
    }
    run_queue_seed(set->seed);
}

void soft_lock(void)
{
    wait_lock();
    if (!settings_read) {
        struct settings set;

        costs_default();
        set = settings_of_environment();
        start_again(&set);
        settings_read = true;
    }
    soft.host = host_of(thread_self()->ctx);
}

static void soft_unlock(void)
{
    wait_unlock();
}

static bool works_uninitialized(enum entry entry)
{
    return entry == E_cuInit || entry == E_cuDriverGetVersion ||
           !calls_can_fail(entry);
}

/* A process that is locked can still be asked for, and unlocked. */
static bool works_locked(enum entry entry)
{
    return works_uninitialized(entry) ||
           (entry >= E_cuCheckpointProcessGetState &&
            entry <= E_cuCheckpointProcessUnlock);
}

/* Takes the lock once the entry may be called. */
static void lock_for(enum entry entry)
{
    soft_lock();
    while (process_is_locked() && !works_locked(entry)) {
        soft_unlock();
        nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
        soft_lock();
    }
}

CUresult soft_enter(enum entry entry)
{
    CUresult code;

    /* A host function or a kernel runs with the lock held, and may not call
     * the driver anyway. */
    if (thread_self()->in_callback) {
        return CUDA_ERROR_NOT_PERMITTED;
    }

    lock_for(entry);
    code = calls_count(entry);
    if (code == CUDA_SUCCESS && !soft.inited && !works_uninitialized(entry)) {
        code = CUDA_ERROR_NOT_INITIALIZED;
    }
    if (code != CUDA_SUCCESS) {
        soft_unlock();
        return code;
    }
    soft.host->ns += costs_of_call(entry);
    return CUDA_SUCCESS;
}

CUresult soft_leave(CUresult code)
{
    if (soft.pending != 0) {
        engine_pump();
    }
    soft_unlock();
    return code;
}

void softcuda_count(softcuda_counts *counts)
{
    struct tally device, pinned;

    soft_lock();
    device = alloc_tally(SIDE_DEVICE);
    pinned = alloc_tally(SIDE_PINNED);
    memset(counts, 0, sizeof(*counts));
    counts->device_allocations = device.n + range_count();
    counts->device_bytes = device.bytes;
    counts->host_allocations = pinned.n;
    counts->host_bytes = pinned.bytes;
    counts->streams = handle_count(HANDLE_STREAM);
    counts->events = handle_count(HANDLE_EVENT);
    counts->graphs = handle_count(HANDLE_GRAPH);
    counts->execs = handle_count(HANDLE_EXEC);
    counts->modules = handle_count(HANDLE_MODULE);
    for (int i = 0; i < SOFT_MAX_DEVICES; i++) {
        counts->contexts_retained += contexts[i].retained;
    }
    counts->captures = capture_streams();
    counts->pending = soft.pending;
    counts->waits = soft.waits;
    counts->launches = soft.launches;
    counts->prioritized = soft.prioritized;
    soft_unlock();
}

int softcuda_configure(const char *settings)
{
    struct settings set;
    int result = 0;

    soft_lock();
    engine_run_all();

    set = (struct settings){ .devices = soft.set.devices,
                             .memory = soft.set.memory,
                             .races = true,
                             .unwritten = true,
                             .mapping = true };
    calls_fail_none();
    costs_default();
    if (!settings_take(&set, settings)) {
        result = -1;
    }

    /* Earlier accesses cannot race with later ones. */
    race_forget();
    seats_forget();
    lanes_forget();
    unwritten_forget_reports();
    unmapped_forget_reports();
    labels_forget_reports();
    start_again(&set);
    soft_unlock();
    return result;
}

uint64_t softcuda_clock(void)
{
    uint64_t end;

    soft_lock();
    engine_run_all();
    end = latest() - soft.clock_base;
    soft_unlock();
    return end;
}

int softcuda_costs(const char *lines)
{
    int bad = 0;

    soft_lock();
    engine_run_all();
    if (lines == NULL) {
        costs_default();
    } else {
        bad = costs_take(lines);
    }
    soft_unlock();
    return bad;
}

uint64_t softcuda_calls(const char *entry)
{
    uint64_t n;

    soft_lock();
    n = calls_made(entry);
    soft_unlock();
    return n;
}

uint64_t softcuda_races(uint64_t i, const char **text_p)
{
    uint64_t n;

    soft_lock();
    n = race_read_report(i, text_p);
    soft_unlock();
    return n;
}

uint64_t softcuda_unwritten(uint64_t i, const char **text_p)
{
    uint64_t n;

    soft_lock();
    n = unwritten_read_report(i, text_p);
    soft_unlock();
    return n;
}

uint64_t softcuda_unmapped(uint64_t i, const char **text_p)
{
    uint64_t n;

    soft_lock();
    n = unmapped_read_report(i, text_p);
    soft_unlock();
    return n;
}

int softcuda_discard(const void *address, uint64_t bytes, void *stream,
                     void *event)
{
    CUresult code;

    soft_lock();
    code = mem_discard(address, (size_t)bytes, stream);
    if (code == CUDA_SUCCESS && event != NULL) {
        code = ev_record(event, stream, 0);
    }
    soft_unlock();
    return code;
}

int softcuda_label(const void *address, uint64_t bytes, const char *name)
{
    struct alloc *alloc;
    bool given;

    soft_lock();
    alloc = bytes != 0 ? alloc_find(address, (size_t)bytes) : NULL;
    given = alloc != NULL &&
            labels_give(alloc, (size_t)((uintptr_t)address - alloc->base),
                        (size_t)bytes, name, engine_next_seq());
    soft_unlock();
    return given ? 0 : -1;
}

uint64_t softcuda_others(uint64_t i, const char **text_p)
{
    uint64_t n;

    soft_lock();
    n = labels_read_report(i, text_p);
    soft_unlock();
    return n;
}

const char *softcuda_entry(uint32_t i)
{
    return i < N_ENTRIES ? entry_names[i] : NULL;
}
