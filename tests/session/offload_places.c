/*
 * Passes that are recorded while their groups lie where an eager pass has left
 * them, which is not where a graph would have them.
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/by_hand.h"
#include "support/saver.h"
#include "tap/tap.h"

#include <stdio.h>
#include <string.h>

static struct saver sv;
static const char *const silent[] = { "GRAPHHOOKS_LOG=off", NULL };

static bool open_with(const struct saver_options *options)
{
    const char *reason;

    said[0] = '\0';
    if (!saver_open(&sv, options, &reason)) {
        return ok(false, "the host opens: %s", reason);
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

/* ---- memory for what stays ---------------------------------------------- */

/* No forward can be recorded, and the backward is with memory for the largest
 * group there is, while this one waits in memory for a small one. */
static void backward_alone(const struct saver_options *options,
                           const char *what)
{
    uint64_t replays;

    if (!open_with(options)) {
        return;
    }
    steps(1, 1);
    sv.words[0] = options->elems / 2;
    toy_configure(&sv.toy, "RACES=1 FAIL=cuStreamBeginCapture:1");
    ok(steps(1, 1) && is_right(),
       "%s: a backward is recorded after an eager forward", what);
    replays = saver_stats(&sv).replays;
    ok(steps(2, 1) && is_right(), "%s: and training goes on", what);
    is_int(saver_stats(&sv).replays - replays, 2, "%s: with a graph", what);
    saver_close(&sv);
}

static void test_recorded_backward_alone(void)
{
    struct saver_options o = { .layers = 1, .modules = 2, .tensors = 3,
                               .elems = 256, .environment = silent,
                               .own = true };

    o.offload = (gh_offload_desc){ .struct_size = 1, .modules = SAVER_ALL,
                                   .min_bytes = 512 };
    backward_alone(&o, "small tensors stay");
    o.unlent = true;
    o.offload.fraction = "0";
    backward_alone(&o, "all stay, no service");
}

int main(void)
{
    const char *reason;
    struct toy probe;

    if (!toy_probe(&probe, &reason)) {
        return skip_all("%s", reason);
    }
    test_recorded_backward_alone();
    return done_testing();
}
