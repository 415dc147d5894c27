/*
 * Whatever fails, or is called out of its turn, what is offloaded comes back
 * right or the host is told; and nothing is left in flight.
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/by_hand.h"
#include "support/saver.h"
#include "tap/tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct saver sv;
static const char *const silent[] = { "GRAPHHOOKS_LOG=off", NULL };
static const char *const silent_delayed[] = { "GRAPHHOOKS_LOG=off",
                                              "GRAPHHOOKS_OFFLOAD_DELAY=1",
                                              NULL };
static const struct saver_options small = { .layers = 4,
                                            .modules = 2,
                                            .tensors = 2,
                                            .elems = 64,
                                            .in_flight = 2,
                                            .streams = 2,
                                            .environment = silent };

static bool open_with(const struct saver_options *options)
{
    const char *reason;

    said[0] = '\0';
    if (!saver_open(&sv, options, &reason)) {
        ok(false, "the host opens: %s", reason);
        return false;
    }
    if (saver_attach(&sv) != GH_OK) {
        ok(false, "the session opens: %s", sv.err.text);
        saver_close(&sv);
        return false;
    }
    return true;
}

static bool steps(uint32_t n, uint32_t microbatches)
{
    gh_status status = GH_OK;

    for (uint32_t i = 0; i < n && status == GH_OK; i++) {
        status = saver_step(&sv, microbatches);
    }
    if (status != GH_OK) {
        diag("%s", sv.err.text);
    }
    return status == GH_OK;
}

static bool is_right(void)
{
    const bool exact = saver_is_exact(&sv);

    if (!exact || toy_races(&sv.toy) != 0) {
        diag("the sums are %s, %llu races", exact ? "right" : "wrong",
             (unsigned long long)toy_races(&sv.toy));
    }
    return exact && toy_races(&sv.toy) == 0;
}

/* ---- a step that is cut, a pass that is given up ------------------------------- */

struct cut {
    uint64_t at; /* the call after which it is done */
    enum saver_answer answer;
};

static enum saver_answer cut(struct saver *saver, enum saver_call call,
                             uint32_t layer, uint32_t module,
                             uint32_t microbatch)
{
    const struct cut *c = saver->user;
    const bool forward = call == SAVER_SAVE || call == SAVER_COMMIT;

    (void)layer;
    (void)module;
    (void)microbatch;
    if (saver->calls != c->at) {
        return SAVER_GO_ON;
    }
    /* A backward that has added to its sums cannot be repeated. */
    return c->answer == SAVER_AGAIN && !forward ? SAVER_GO_ON : c->answer;
}

/* Steps 0 to 3, of which `which` is cut after its call `at`; whether the step
 * had so many calls. */
static bool cut_one(const struct saver_options *options, uint32_t which,
                    struct cut c, bool *right)
{
    bool reached = false;
    gh_status status = GH_OK;

    *right = false;
    if (!open_with(options)) {
        return false;
    }
    for (uint32_t s = 0; s < 5 && status == GH_OK; s++) {
        sv.watch = s == which ? cut : NULL;
        sv.user = &c;
        status = saver_step(&sv, 3);
        if (s == which) {
            reached = sv.stopped || sv.calls >= c.at;
            status = sv.stopped ? GH_OK : status;
        }
    }
    *right = status == GH_OK && is_right() && saver_stats(&sv).replays > 0;
    if (status != GH_OK) {
        diag("%s", sv.err.text);
    }
    saver_close(&sv);
    return reached;
}

static void sweep_cuts(const struct saver_options *options, uint32_t which,
                       enum saver_answer answer, const char *what)
{
    uint32_t wrong = 0, n = 0;
    bool right, reached = true;

    for (n = 0; reached && n < 400; n++) {
        const struct cut c = { n + 1, answer };

        reached = cut_one(options, which, c, &right);
        if (!right) {
            diag("%s: step %u, call %u", what, which, n + 1);
        }
        wrong += !right;
    }
    ok(n > 4 && wrong == 0, "%s: after each of %u calls of step %u", what,
       n - 1, which);
}

static void test_cuts(void)
{
    static const char *const comparing[] = { "GRAPHHOOKS_LOG=off",
                                             "GRAPHHOOKS_CHECK=bitwise", NULL };
    struct saver_options o = small;

    o.free_running = true;
    for (uint32_t which = 0; which < 2; which++) {
        sweep_cuts(&o, which, SAVER_STOP, "a step that is given up");
        sweep_cuts(&o, which, SAVER_AGAIN, "a pass that is begun again");
    }
    o.environment = silent_delayed;
    sweep_cuts(&o, 0, SAVER_STOP, "a step that is given up, delayed");
    sweep_cuts(&o, 0, SAVER_AGAIN, "a pass that is begun again, delayed");
    o.environment = comparing;
    sweep_cuts(&o, 2, SAVER_STOP, "a step that is given up, compared");
    sweep_cuts(&o, 2, SAVER_AGAIN, "a pass that is begun again, compared");
    o = small;
    o.slots = 1;
    o.free_running = true;
    o.offload = (gh_offload_desc){ .struct_size = 1, .modules = "own_a",
                                   .min_bytes = 4 };
    sweep_cuts(&o, 2, SAVER_STOP, "a step that is given up, one slot");
    sweep_cuts(&o, 2, SAVER_AGAIN, "a pass that is begun again, one slot");
    o = small;
    o.granularity = "part";
    o.across = true;
    sweep_cuts(&o, 1, SAVER_STOP, "a step that is given up, across parts");
}

/* ---- every driver call ---------------------------------------------------------- */

struct outcome {
    bool exact, wrong, explained;
    uint64_t left, calls;
};

static uint64_t calls_of_entry(const char *entry)
{
    softcuda_calls_fn *calls =
        (softcuda_calls_fn *)toy_control(&sv.toy, "softcuda_calls");

    return calls(entry);
}

static uint64_t left_over(const softcuda_counts *c)
{
    return c->device_allocations + c->host_allocations + c->streams +
           c->events + c->graphs + c->execs + c->modules +
           c->contexts_retained + c->captures;
}

static struct outcome train(const struct saver_options *options,
                          const char *settings, const char *entry)
{
    static const uint32_t counts[] = { 2, 3, 2, 3 };
    struct outcome outcome = { 0 };
    softcuda_counts before, after;
    const char *reason;
    gh_status status;
    uint64_t races;

    if (!saver_open(&sv, options, &reason)) {
        diag("%s", reason);
        return outcome;
    }
    before = toy_counts(&sv.toy);
    toy_configure(&sv.toy, settings);
    status = saver_attach(&sv);
    for (uint32_t s = 0; s < 4 && status == GH_OK; s++) {
        status = saver_step(&sv, counts[s]);
    }
    outcome.calls = calls_of_entry(entry);
    saver_detach(&sv);
    races = toy_races(&sv.toy);
    outcome.explained = status != GH_OK && sv.err.text[0] != '\0';
    toy_configure(&sv.toy, "RACES=0");
    after = toy_counts(&sv.toy);
    outcome.left = left_over(&after) - left_over(&before);
    if (status == GH_OK) {
        outcome.exact = races == 0 && saver_is_exact(&sv);
        outcome.wrong = !outcome.exact;
    }
    saver_close(&sv);
    return outcome;
}

/* A call that ends something, and failed, has ended nothing. */
static bool frees(const char *entry)
{
    return strstr(entry, "Destroy") != NULL || strstr(entry, "Free") != NULL ||
           strstr(entry, "Unload") != NULL || strstr(entry, "Release") != NULL ||
           strstr(entry, "EndCapture") != NULL;
}

/* The n-th call fails, or six from the n-th on. */
static void sweep(const struct saver_options *options, const char *mode,
                  const char *entry, const char *name, bool on_and_on)
{
    const struct outcome whole = train(options, mode, entry);
    uint64_t wrong = 0, leaked = 0, stride = whole.calls / 150 + 1;
    char settings[400];

    for (uint64_t n = 1; n <= whole.calls; n += stride) {
        struct outcome outcome;
        int used = snprintf(settings, sizeof(settings), "%s FAIL=%s:%llu",
                            mode, entry, (unsigned long long)n);

        for (uint64_t i = 1; i < 6 && on_and_on; i++) {
            used += snprintf(settings + used, sizeof(settings) - (size_t)used,
                             ",%s:%llu", entry, (unsigned long long)(n + i));
        }
        outcome = train(options, settings, entry);
        if (outcome.wrong || (!outcome.exact && !outcome.explained) ||
            outcome.left > (frees(entry) ? 6 : 0)) {
            diag("%s: call %llu: %s, %llu objects are left", entry,
                 (unsigned long long)n, outcome.wrong ? "wrong" : "ended",
                 (unsigned long long)outcome.left);
        }
        wrong += outcome.wrong || (!outcome.exact && !outcome.explained);
        leaked += outcome.left > (frees(entry) ? 6 : 0);
    }
    if (whole.calls != 0) {
        ok(wrong == 0 && leaked == 0,
           "%s, %s: %s of %llu calls may fail: %llu wrong or without a word, "
           "%llu leaks",
           name, entry, on_and_on ? "six in turn" : "each",
           (unsigned long long)whole.calls, (unsigned long long)wrong,
           (unsigned long long)leaked);
    }
}

static void sweep_all(const struct saver_options *options, const char *mode,
                      const char *name, bool on_and_on)
{
    struct outcome whole = train(options, mode, "cuInit");
    softcuda_entry_fn *entry_at;
    const char *entry;
    const char *reason;
    struct toy probe;

    ok(whole.exact && whole.left == 0, "%s: with no fault it is exact", name);
    if (!toy_probe(&probe, &reason)) {
        return;
    }
    entry_at = (softcuda_entry_fn *)toy_control(&probe, "softcuda_entry");
    for (uint32_t i = 0; (entry = entry_at(i)) != NULL; i++) {
        if (strncmp(entry, "cuGetError", 10) != 0) {
            sweep(options, mode, entry, name, on_and_on);
        }
    }
}

static void test_driver_calls(void)
{
    struct saver_options o = small;

    o.layers = 3;
    o.slots = 2;
    o.free_running = true;
    sweep_all(&o, "RACES=1 SEED=3", "layers", false);
    sweep_all(&o, "RACES=1 SEED=5", "layers", true);
    o.environment = silent_delayed;
    sweep_all(&o, "RACES=1 SEED=4", "delayed", false);
    o.environment = silent;
    o.slots = 1;
    sweep_all(&o, "RACES=1 SEED=2", "one slot", false);
}

int main(void)
{
    const char *reason;
    struct toy probe;

    if (!toy_probe(&probe, &reason)) {
        return skip_all("%s", reason);
    }
    if (!probe.soft) {
        return skip_all("only the software device fails on demand");
    }
    test_cuts();
    test_driver_calls();
    return done_testing();
}
