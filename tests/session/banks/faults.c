/*
 * Whichever call of the library's fails while banks come and go: the numbers
 * are right, or a sentence says that they are not to be had; nothing is left.
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/toy.h"
#include "tap/tap.h"

#include <stdio.h>

#define N_STEPS 5

static const uint32_t orders[N_STEPS][3] = {
    { 0, 1, 2 }, { 0, 1, 2 }, { 2, 0, 1 }, { 1, 1, 0 }, { 2, 1, 0 },
};

/* Those that the host of shapes calls itself are not the library's to mend. */
static const char *const entries[] = {
    "cuGraphInstantiateWithFlags", "cuGraphUpload",     "cuGraphLaunch",
    "cuStreamBeginCapture",        "cuStreamEndCapture", "cuGraphGetNodes",
    "cuEventCreate",               "cuEventRecord",      "cuEventQuery",
    "cuStreamWaitEvent",           "cuStreamIsCapturing", "cuMemAlloc",
    "cuThreadExchangeStreamCaptureMode",
};

struct outcome {
    bool well, clean;
    uint64_t calls; /* of the entry */
    char text[256];
};

static struct outcome run(const char *entry, uint64_t n)
{
    static const char *const two[] = { "GRAPHHOOKS_LOG=off",
                                       "GRAPHHOOKS_MAX_BANKS=2", NULL };
    const struct toy_options options = { .layers = 2,
                                         .elems = 96,
                                         .max_slots = 2,
                                         .in_flight = 2,
                                         .streams = 3,
                                         .by_capacity = true,
                                         .environment = two };
    struct outcome outcome = { .well = false };
    gh_status status = GH_OK;
    softcuda_calls_fn *calls;
    softcuda_counts counts;
    char settings[96];
    struct toy s;

    if (!toy_start(&s, &options, NULL)) {
        return outcome;
    }
    toy_add_tokens(&s, 96);
    toy_add_tokens(&s, 64);
    toy_add_tokens(&s, 24);
    snprintf(settings, sizeof(settings), "SEED=2 RACES=1 FAIL=%s:%llu:999",
             entry, (unsigned long long)n);
    toy_configure(&s, n == 0 ? "SEED=2 RACES=1" : settings);
    for (uint32_t step = 0; step < N_STEPS && status == GH_OK; step++) {
        s.less = step;
        status = toy_step_shapes(&s, orders[step], 3);
    }
    calls = (softcuda_calls_fn *)toy_control(&s, "softcuda_calls");
    outcome.calls = calls(entry);
    outcome.well = status != GH_OK ? s.err.text[0] != '\0'
                                   : toy_is_exact(&s) && toy_races(&s) == 0;
    snprintf(outcome.text, sizeof(outcome.text), "%s",
             status == GH_OK ? "" : s.err.text);
    toy_close(&s);
    counts = toy_counts(&s);
    outcome.clean = counts.device_bytes == 0 && counts.execs == 0 &&
                    counts.events == 0 && counts.graphs == 0;
    return outcome;
}

int main(void)
{
    int status;

    if (!toy_probe_soft(&status)) {
        return status;
    }
    for (uint32_t i = 0; i < sizeof(entries) / sizeof(entries[0]); i++) {
        const uint64_t calls = run(entries[i], 0).calls;
        uint32_t bad = 0, left = 0;

        for (uint64_t n = 1; n <= calls; n++) {
            const struct outcome outcome = run(entries[i], n);

            if (!outcome.well || !outcome.clean) {
                diag("%s %llu: %s", entries[i], (unsigned long long)n,
                     outcome.text);
            }
            bad += !outcome.well;
            left += !outcome.clean;
        }
        ok(calls > 0, "%s is called, %llu times", entries[i],
           (unsigned long long)calls);
        is_int(bad, 0, "%s: each failure leaves the numbers, or a sentence",
               entries[i]);
        is_int(left, 0, "%s: and nothing else", entries[i]);
    }
    return done_testing();
}
