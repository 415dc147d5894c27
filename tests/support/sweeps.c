/*
 * sweeps.c - see sweeps.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/sweeps.h"

#include "tap/tap.h"

#include <stdio.h>
#include <string.h>

struct outcome {
    bool exact;     /* every step ran, and the sums are right */
    bool wrong;     /* every step ran, and they are not, or by luck only */
    bool explained; /* something failed, and the text says what */
    uint64_t left;  /* objects that are still alive after the close */
    uint64_t calls; /* of the entry */
};

/* The toy's own objects are made before and destroyed after the fault can
 * strike, so what is left over is the library's. */
static struct outcome run(const struct sweep *s, const char *settings,
                          const char *entry)
{
    struct outcome outcome = { 0 };
    softcuda_counts before, after;
    const char *reason;
    gh_status status;
    struct toy toy;
    uint64_t races;

    if (!toy_open(&toy, s->options, &reason)) {
        diag("%s", reason);
        return outcome;
    }
    before = toy_counts(&toy);
    toy_configure(&toy, settings);
    status = toy_attach(&toy);
    if (status == GH_OK) {
        status = toy_train(&toy, s->counts, s->n_steps);
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

/* How many objects may be left: a call that frees, and failed, has freed
 * nothing. */
static uint64_t may_leave(const struct sweep *s, const char *entry)
{
    const bool frees =
        strstr(entry, "Destroy") != NULL || strstr(entry, "Free") != NULL ||
        strstr(entry, "Unload") != NULL || strstr(entry, "Release") != NULL ||
        (s->options->modules > 0 && strstr(entry, "EndCapture") != NULL);

    /* A region that stays mapped, and its addresses. */
    return strstr(entry, "cuMemUnmap") != NULL ? (s->six_in_turn ? 12 : 2)
           : frees                             ? (s->six_in_turn ? 6 : 1)
                                               : 0;
}

static void sweep_entry(const struct sweep *s, const char *entry)
{
    const struct outcome whole = run(s, s->mode, entry);
    const uint64_t stride = s->most != 0 ? whole.calls / s->most + 1 : 1;
    uint64_t wrong = 0, silent = 0, leaked = 0;
    char settings[400];

    for (uint64_t n = 1; n <= whole.calls; n += stride) {
        struct outcome outcome;
        int used = snprintf(settings, sizeof(settings), "%s FAIL=%s:%llu",
                            s->mode, entry, (unsigned long long)n);

        for (uint64_t i = 1; i < 6 && s->six_in_turn; i++) {
            used += snprintf(settings + used, sizeof(settings) - (size_t)used,
                             ",%s:%llu", entry, (unsigned long long)(n + i));
        }
        outcome = run(s, settings, entry);
        if ((!outcome.exact && !outcome.explained) ||
            outcome.left > may_leave(s, entry)) {
            diag("%s: call %llu: %s, %llu objects are left", entry,
                 (unsigned long long)n,
                 outcome.wrong   ? "the sums are wrong"
                 : outcome.exact ? "exact"
                                 : "ended",
                 (unsigned long long)outcome.left);
        }
        wrong += outcome.wrong;
        silent += !outcome.exact && !outcome.wrong && !outcome.explained;
        leaked += outcome.left > may_leave(s, entry);
    }
    if (whole.calls != 0) {
        ok(wrong == 0 && silent == 0 && leaked == 0,
           "%s, %s: %s of %llu calls may fail: %llu wrong, %llu without a "
           "word, %llu leaks",
           s->name, entry, s->six_in_turn ? "six in turn" : "each",
           (unsigned long long)whole.calls, (unsigned long long)wrong,
           (unsigned long long)silent, (unsigned long long)leaked);
    }
}

void sweep_all(const struct sweep *s)
{
    const struct outcome whole = run(s, s->mode, "cuInit");
    softcuda_entry_fn *entry_at;
    const char *entry, *reason;
    struct toy probe;

    ok(whole.exact && whole.left == 0, "%s: with no fault it is exact",
       s->name);
    if (!toy_probe(&probe, &reason)) {
        return;
    }
    entry_at = (softcuda_entry_fn *)toy_control(&probe, "softcuda_entry");
    for (uint32_t i = 0; (entry = entry_at(i)) != NULL; i++) {
        if (strncmp(entry, "cuGetError", 10) != 0) {
            sweep_entry(s, entry);
        }
    }
}
