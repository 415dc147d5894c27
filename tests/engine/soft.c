/*
 * soft.c - see soft.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tests/engine/soft.h"

#include "cli/find.h"
#include "cli/report.h"
#include "tap/tap.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct options soft_options = {
    .config = { .layers = 1,
                .hidden = 8,
                .heads = 2,
                .seq = 4,
                .batch = 1,
                .seed = 3 },
    .steps = 3,
    .counts = { 2 },
    .n_counts = 1,
    .in_flight = 2,
    .streams = 2,
    .lr = 0.01,
    .warmup = 1,
};

static const char words[] = "full fathom five thy father lies";

struct soft_controls soft;

static char path[4096];
char soft_library[4096];

static int assign(void *library, const char *name, void *slot)
{
    void *symbol = dlsym(library, name);

    if (symbol == NULL) {
        diag("%s has no %s", path, name);
        return -1;
    }
    memcpy(slot, &symbol, sizeof(symbol));
    return 0;
}

int soft_find(void)
{
    void *library;

    find_companion(FIND_LIBRARY, soft_library, sizeof(soft_library));
    find_companion(FIND_SOFTCUDA, path, sizeof(path));
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (library == NULL) {
        diag("%s", dlerror());
        return -1;
    }
    return assign(library, "softcuda_configure", &soft.configure) |
           assign(library, "softcuda_count", &soft.count) |
           assign(library, "softcuda_calls", &soft.calls) |
           assign(library, "softcuda_entry", &soft.entry) |
           assign(library, "softcuda_races", &soft.races);
}

/* Whether the device is as empty as before the run. */
static bool nothing_left(char *error)
{
    softcuda_counts left;

    soft.count(&left);
    if (left.device_allocations + left.host_allocations + left.streams +
            left.events + left.graphs + left.execs + left.modules +
            left.contexts_retained + left.captures ==
        0) {
        return true;
    }
    snprintf(error, SOFT_ERROR,
             "left: %llu device, %llu host, %llu streams, %llu events, "
             "%llu graphs, %llu execs, %llu captures",
             (unsigned long long)left.device_allocations,
             (unsigned long long)left.host_allocations,
             (unsigned long long)left.streams, (unsigned long long)left.events,
             (unsigned long long)left.graphs, (unsigned long long)left.execs,
             (unsigned long long)left.captures);
    return false;
}

enum outcome soft_run(const struct options *options, enum mode mode,
                      const char *settings, struct result *expected,
                      char *error)
{
    const struct text text = { (unsigned char *)(uintptr_t)words,
                               sizeof(words) - 1 };
    struct options own = *options;
    struct device dev;
    struct result result = { 0 };
    enum outcome outcome = ENDED_CLEARLY;

    error[0] = '\0';
    own.library = soft_library;
    if (soft.configure(settings) != 0) {
        snprintf(error, SOFT_ERROR, "softcuda does not take %s", settings);
        return ENDED_BADLY;
    }
    if (device_open(&dev, path, 0) != 0) {
        snprintf(error, SOFT_ERROR, "%s", dev.error);
    } else if (train(&own, &dev, &text, mode, NULL, &result, error,
                     SOFT_ERROR) == 0) {
        outcome = ENDED_WELL;
    }
    device_close(&dev);

    if (outcome == ENDED_CLEARLY && error[0] == '\0') {
        snprintf(error, SOFT_ERROR, "it failed without a word");
        outcome = ENDED_BADLY;
    }
    if (outcome == ENDED_WELL && expected->loss != NULL &&
        !report_equal(expected, &result)) {
        snprintf(error, SOFT_ERROR, "its numbers are wrong");
        outcome = ENDED_BADLY;
    }
    if (!nothing_left(error)) {
        outcome = ENDED_BADLY;
    }

    if (outcome == ENDED_WELL && expected->loss == NULL) {
        *expected = result;
    } else {
        result_free(&result);
    }
    return outcome;
}
