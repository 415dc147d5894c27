/*
 * Whatever driver call fails, training is exact or stops with a sentence.
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/toy.h"
#include "tap/tap.h"

#include <stdio.h>
#include <string.h>

static const uint32_t counts[] = { 1, 2, 3, 2 };
#define N_STEPS 4

struct outcome {
    bool exact;     /* every step ran, and the weights are right */
    bool wrong;     /* every step ran, and they are not, or by luck only */
    bool explained; /* something failed, and the text says what */
    uint64_t left;  /* objects that are still alive after the close */
    uint64_t calls; /* of the entry */
};

/* The toy's own objects are made before and destroyed after the fault can
 * strike, so what is left over is the library's. */
static struct outcome run(const struct toy_options *options,
                          const char *settings, const char *entry)
{
    uint64_t races;
    struct outcome outcome = { 0 };
    softcuda_counts before, after;
    const char *reason;
    gh_status status;
    struct toy toy;

    if (!toy_open(&toy, options, &reason)) {
        diag("%s", reason);
        return outcome;
    }
    before = toy_counts(&toy);
    toy_configure(&toy, settings);
    status = toy_attach(&toy);
    if (status == GH_OK) {
        status = toy_train(&toy, counts, N_STEPS);
    }
    outcome.calls = toy_calls(&toy, entry);
    toy_detach(&toy);
    races = toy_races(&toy);
    outcome.explained = status != GH_OK && toy.err.text[0] != '\0';
    toy_configure(&toy, "RACES=0");
    after = toy_counts(&toy);
    outcome.left = toy_objects(&after) - toy_objects(&before);

    if (status == GH_OK) {
        outcome.exact = races == 0 && toy_is_exact(&toy);
        outcome.wrong = !outcome.exact;
    }
    toy_close(&toy);
    return outcome;
}

/* A call that frees, and failed, has freed nothing. */
static bool frees(const char *entry)
{
    return strstr(entry, "Destroy") != NULL || strstr(entry, "Free") != NULL ||
           strstr(entry, "Unload") != NULL || strstr(entry, "Release") != NULL;
}

static void sweep(const struct toy_options *options, const char *mode,
                  const char *entry, const char *name)
{
    struct outcome whole = run(options, mode, entry);
    uint64_t wrong = 0, silent = 0, leaked = 0;
    char settings[96];

    for (uint64_t n = 1; n <= whole.calls; n++) {
        struct outcome outcome;

        snprintf(settings, sizeof(settings), "%s FAIL=%s:%llu", mode, entry,
                 (unsigned long long)n);
        outcome = run(options, settings, entry);
        if (outcome.wrong) {
            diag("%s: call %llu: the weights are wrong", entry,
                 (unsigned long long)n);
        }
        if (outcome.left > frees(entry)) {
            diag("%s: call %llu: %llu objects are left", entry,
                 (unsigned long long)n, (unsigned long long)outcome.left);
        }
        wrong += outcome.wrong;
        silent += !outcome.exact && !outcome.wrong && !outcome.explained;
        leaked += outcome.left > frees(entry);
    }
    if (whole.calls != 0) {
        ok(wrong == 0 && silent == 0 && leaked == 0,
           "%s, %s: each of %llu calls may fail: %llu wrong, %llu without a "
           "word, %llu leaks",
           name, entry, (unsigned long long)whole.calls,
           (unsigned long long)wrong, (unsigned long long)silent,
           (unsigned long long)leaked);
    }
}

static void sweep_all(struct toy *probe, const struct toy_options *options,
                      const char *mode, const char *name)
{
    softcuda_entry_fn *entry_at =
        (softcuda_entry_fn *)toy_control(probe, "softcuda_entry");
    struct outcome whole = run(options, mode, "cuInit");
    const char *entry;

    ok(whole.exact && whole.left == 0, "%s: with no fault it is exact", name);
    for (uint32_t i = 0; (entry = entry_at(i)) != NULL; i++) {
        if (strncmp(entry, "cuGetError", 10) != 0) {
            sweep(options, mode, entry, name);
        }
    }
}

int main(void)
{
    static const char *const quiet[] = { "GRAPHHOOKS_LOG=off", NULL };
    static const char *const check[] = { "GRAPHHOOKS_LOG=off",
                                         "GRAPHHOOKS_CHECK=bitwise", NULL };
    const struct toy_options plain = { .layers = 1,
                                       .elems = 16,
                                       .granularity = "part",
                                       .moving_inputs = true,
                                       .environment = quiet };
    struct toy_options streams = plain, legacy = plain, checked = plain,
                       free_streams = plain, later = plain, beside;
    const char *reason;
    struct toy probe;

    streams.streams = 2;
    streams.in_flight = 2;
    streams.max_slots = 1;
    free_streams.streams = 3;
    free_streams.in_flight = 2;
    free_streams.moving_inputs = false;
    free_streams.free_running = true;
    beside = free_streams;
    beside.streams = 2;
    beside.layers = 2;
    beside.wgrad = TOY_WGRAD_BESIDE;
    later.wgrad = TOY_WGRAD_LATER;
    later.wgrad_lag = 1;
    legacy.legacy = true;
    checked.environment = check;

    if (!toy_open(&probe, &plain, &reason)) {
        return skip_all("%s", reason);
    }
    if (!probe.soft) {
        toy_close(&probe);
        return skip_all("only the software device fails on demand");
    }
    sweep_all(&probe, &plain, "RACES=0", "one stream");
    sweep_all(&probe, &streams, "RACES=0", "two streams");
    sweep_all(&probe, &legacy, "RACES=0", "legacy stream");
    sweep_all(&probe, &checked, "RACES=0", "checked");
    sweep_all(&probe, &later, "RACES=0", "weights later");
    sweep_all(&probe, &beside, "RACES=1 SEED=4", "weights beside");
    for (uint32_t seed = 1; seed <= 3; seed++) {
        char mode[32], name[48];

        snprintf(mode, sizeof(mode), "RACES=1 SEED=%u", seed);
        snprintf(name, sizeof(name), "three free streams, seed %u", seed);
        sweep_all(&probe, &free_streams, mode, name);
    }
    toy_close(&probe);
    return done_testing();
}
