/*
 * control.c - the emulator's own controls: settings, failures on demand,
 * counters, the lock around every entry point.
 *
 * Settings come from the environment at the first call and from
 * softcuda_configure() afterwards; both speak the same words.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "softcuda/control.h"

#include "softcuda/capture.h"
#include "softcuda/device.h"
#include "softcuda/engine.h"
#include "softcuda/handle.h"
#include "softcuda/memory.h"
#include "softcuda/race.h"
#include "softcuda/soft.h"
#include "softcuda/softcuda.h"
#include "softcuda/unwritten.h"
#include "softcuda/work.h"
#include "words/nearest.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

SOFT_API softcuda_count_fn softcuda_count;
SOFT_API softcuda_configure_fn softcuda_configure;
SOFT_API softcuda_clock_fn softcuda_clock;
SOFT_API softcuda_calls_fn softcuda_calls;
SOFT_API softcuda_entry_fn softcuda_entry;
SOFT_API softcuda_races_fn softcuda_races;
SOFT_API softcuda_unwritten_fn softcuda_unwritten;

const char *const entry_names[] = {
#define DRV_ENTRY(name, version, signature) #name,
#include "driver/entries.def"
#undef DRV_ENTRY
};

const int entry_versions[] = {
#define DRV_ENTRY(name, version, signature) version,
#include "driver/entries.def"
#undef DRV_ENTRY
};

enum {
    MAX_FAILURES = 16,
    ANY_ENTRY = N_ENTRIES
};

struct failure {
    int entry;
    uint64_t nth;
    CUresult code;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool settings_read;
static struct failure failures[MAX_FAILURES];
static int n_failures;
static uint64_t calls[N_ENTRIES + 1];

static bool number(const char *text, const char *stop, uint64_t *value_p)
{
    char *end;

    if (text == stop || *text < '0' || *text > '9') {
        return false;
    }
    errno = 0;
    *value_p = strtoull(text, &end, 0);
    return errno == 0 && end == stop;
}

/* The two that only put an error into words never fail. */
static bool can_fail(int entry)
{
    return entry != E_cuGetErrorName && entry != E_cuGetErrorString;
}

/* entry:n[:code] */
static bool one_failure(const char *text, size_t length)
{
    char word[96];
    char *nth, *code;
    struct failure failure = { ANY_ENTRY, 0, CUDA_ERROR_UNKNOWN };
    uint64_t value;

    if (length >= sizeof(word) || n_failures == MAX_FAILURES) {
        return false;
    }
    memcpy(word, text, length);
    word[length] = '\0';

    nth = strchr(word, ':');
    if (nth == NULL) {
        return false;
    }
    *nth++ = '\0';
    code = strchr(nth, ':');
    if (code != NULL) {
        *code++ = '\0';
        if (!number(code, code + strlen(code), &value) || value == 0 ||
            value > 9999) {
            return false;
        }
        failure.code = (CUresult)value;
    }
    if (!number(nth, nth + strlen(nth), &failure.nth)) {
        return false;
    }

    if (strcmp(word, "*") != 0) {
        for (failure.entry = 0; failure.entry < N_ENTRIES; failure.entry++) {
            if (strcmp(word, entry_names[failure.entry]) == 0) {
                break;
            }
        }
        if (failure.entry == N_ENTRIES || !can_fail(failure.entry)) {
            return false;
        }
    }
    failures[n_failures++] = failure;
    return true;
}

static bool all_failures(const char *text, const char *stop)
{
    while (text < stop) {
        const char *comma = memchr(text, ',', (size_t)(stop - text));
        const char *end = comma != NULL ? comma : stop;

        if (!one_failure(text, (size_t)(end - text))) {
            return false;
        }
        text = comma != NULL ? comma + 1 : stop;
    }
    return true;
}

/* Takes one NAME=value. */
static bool set_word(const char *word, const char *stop, struct settings *set)
{
    const char *value = memchr(word, '=', (size_t)(stop - word));
    size_t length;
    uint64_t n = 0;

    if (value == NULL) {
        return false;
    }
    length = (size_t)(value - word);
    value++;
#define IS(text) (length == strlen(text) && memcmp(word, text, length) == 0)
    if (IS("FAIL")) {
        return all_failures(value, stop);
    }
    if (!number(value, stop, &n)) {
        return false;
    }
    if (IS("SEED")) {
        set->seed = n;
    } else if (IS("DROP_WAIT")) {
        set->drop_wait = n;
    } else if (IS("RACES")) {
        set->races = n != 0;
    } else if (IS("UNWRITTEN")) {
        set->unwritten = n != 0;
    } else if (IS("TRACE")) {
        set->trace = n != 0;
    } else if (IS("PAGEABLE")) {
        set->pageable = n != 0;
    } else if (IS("MEMORY") && n != 0) {
        set->memory = n;
    } else if (IS("DEVICES") && n <= SOFT_MAX_DEVICES) {
        set->devices = n;
    } else {
        return false;
    }
#undef IS
    return true;
}

static void start_again(const struct settings *set)
{
    memset(calls, 0, sizeof(calls));
    soft.set = *set;
    soft.waits = 0;
    soft.launches = 0;
    soft.prioritized = 0;
    soft.clock_base = soft.last_ns > soft.host_ns ? soft.last_ns : soft.host_ns;
    soft.host_ns = soft.clock_base;
    engine_seed(set->seed);
}

/* What SOFTCUDA_* there are, and what each wants. */
static const char *const words[] = { "SEED",      "DROP_WAIT", "RACES",
                                     "UNWRITTEN", "TRACE",     "PAGEABLE",
                                     "MEMORY",    "DEVICES",   "FAIL",
                                     NULL };
static const char *const wanted[] = {
    "a number; 0: the order of issue",
    "a number, of the wait that is dropped; 0: none",
    "0 or 1",
    "0 or 1",
    "0 or 1",
    "0 or 1",
    "a number of bytes, from 1",
    "a number from 0 to 16",
    "entry:n[:code],..., such as cuGraphLaunch:3:2",
};
_Static_assert(SOFT_MAX_DEVICES == 16, "as wanted[] has it");

static void say_unknown(const char *name)
{
    const char *near = nearest_word(name, words);

    fprintf(stderr,
            "softcuda: SOFTCUDA_%s is no variable of the software device; ",
            name);
    if (near != NULL) {
        fprintf(stderr, "did you mean SOFTCUDA_%s?\n", near);
        return;
    }
    fprintf(stderr, "there are");
    for (int i = 0; words[i] != NULL; i++) {
        fprintf(stderr, "%s SOFTCUDA_%s", i == 0 ? "" : ",", words[i]);
    }
    fprintf(stderr, "\n");
}

/* A name that nobody reads is most likely mistyped. */
static void check_names(void)
{
    extern char **environ;
    static const char prefix[] = "SOFTCUDA_";

    for (char **entry = environ; entry != NULL && *entry != NULL; entry++) {
        const char *rest = *entry + sizeof(prefix) - 1;
        char name[48];
        int i = 0;

        if (strncmp(*entry, prefix, sizeof(prefix) - 1) != 0) {
            continue;
        }
        snprintf(name, sizeof(name), "%.*s", (int)strcspn(rest, "="), rest);
        while (words[i] != NULL && strcmp(words[i], name) != 0) {
            i++;
        }
        if (words[i] == NULL) {
            say_unknown(name);
        }
    }
}

static void read_environment(void)
{
    struct settings set = { .devices = 1,
                            .memory = (uint64_t)16 << 30,
                            .races = true,
                            .unwritten = true };

    check_names();
    for (int i = 0; words[i] != NULL; i++) {
        char name[32], text[1024];
        const char *value;

        snprintf(name, sizeof(name), "SOFTCUDA_%s", words[i]);
        value = getenv(name);
        if (value == NULL || *value == '\0') {
            continue;
        }
        snprintf(text, sizeof(text), "%s=%s", words[i], value);
        if (!set_word(text, text + strlen(text), &set)) {
            fprintf(stderr, "softcuda: %s=%s is not understood; give %s\n",
                    name, value, wanted[i]);
        }
    }
    start_again(&set);
    settings_read = true;
}

static void soft_lock(void)
{
    pthread_mutex_lock(&lock);
    if (!settings_read) {
        read_environment();
    }
}

static void soft_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

/* What issuing costs the program; rounded from an H200's driver. */
static uint64_t host_cost(enum entry entry)
{
    switch (entry) {
    case E_cuLaunchKernel:
        return 2500;
    case E_cuMemcpyHtoDAsync:
    case E_cuMemcpyDtoHAsync:
    case E_cuMemcpyDtoDAsync:
    case E_cuMemsetD8Async:
    case E_cuMemsetD32Async:
        return 2000;
    case E_cuLaunchHostFunc:
        return 1000;
    case E_cuGraphLaunch:
        return 1500;
    case E_cuEventRecord:
    case E_cuEventRecordWithFlags:
    case E_cuStreamWaitEvent:
        return 150;
    default:
        return 0; /* set-up, and polls, whose number is chance */
    }
}

static bool works_uninitialized(enum entry entry)
{
    return entry == E_cuInit || entry == E_cuDriverGetVersion ||
           !can_fail((int)entry);
}

/* The failure asked for at this call, if any. */
static CUresult failure_due(enum entry entry)
{
    for (int i = 0; i < n_failures; i++) {
        if ((failures[i].entry == (int)entry ||
             failures[i].entry == ANY_ENTRY) &&
            failures[i].nth == calls[failures[i].entry]) {
            return failures[i].code;
        }
    }
    return CUDA_SUCCESS;
}

CUresult soft_enter(enum entry entry)
{
    CUresult code = CUDA_SUCCESS;

    /* A host function or a kernel runs with the lock held, and may not call
     * the driver anyway. */
    if (thread_self()->in_callback) {
        return CUDA_ERROR_NOT_PERMITTED;
    }

    soft_lock();
    calls[entry]++;
    if (can_fail((int)entry)) {
        calls[ANY_ENTRY]++;
        if (n_failures != 0) {
            code = failure_due(entry);
        }
    }
    if (code == CUDA_SUCCESS && !soft.inited && !works_uninitialized(entry)) {
        code = CUDA_ERROR_NOT_INITIALIZED;
    }
    if (code != CUDA_SUCCESS) {
        soft_unlock();
        return code;
    }
    soft.host_ns += host_cost(entry);
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
    counts->device_allocations = device.n;
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
                             .unwritten = true };
    n_failures = 0;
    for (const char *word = settings != NULL ? settings : ""; *word != '\0';) {
        size_t length = strcspn(word, " ");

        if (length != 0 && !set_word(word, word + length, &set)) {
            result = -1;
        }
        word += length + strspn(word + length, " ");
    }

    /* What came before stays ordered before what comes after. */
    alloc_forget_history();
    race_forget_reports();
    unwritten_forget_reports();
    start_again(&set);
    soft_unlock();
    return result;
}

uint64_t softcuda_clock(void)
{
    uint64_t end;

    soft_lock();
    engine_run_all();
    end = soft.last_ns > soft.host_ns ? soft.last_ns : soft.host_ns;
    end -= soft.clock_base;
    soft_unlock();
    return end;
}

uint64_t softcuda_calls(const char *entry)
{
    uint64_t n = 0;

    soft_lock();
    for (int i = 0; i < N_ENTRIES; i++) {
        if (strcmp(entry, entry_names[i]) == 0) {
            n = calls[i];
        }
    }
    if (strcmp(entry, "*") == 0) {
        n = calls[ANY_ENTRY];
    }
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

const char *softcuda_entry(uint32_t i)
{
    return i < N_ENTRIES ? entry_names[i] : NULL;
}
