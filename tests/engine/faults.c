/*
 * faults.c - every driver call of a run fails once, in every mode.
 *
 * A run with one failing call must end with the losses and weights of an
 * eager run, or with one clear sentence; and either way with nothing left on
 * the device: no memory, no stream, no capture.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tap/tap.h"
#include "tests/engine/soft.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct result eager;

/* Frees give back: a failing one leaves by its own doing what it was to
 * free, and is no part of a step. */
static bool gives_back(const char *name)
{
    return strstr(name, "Destroy") != NULL || strstr(name, "Free") != NULL ||
           strstr(name, "Unload") != NULL || strstr(name, "Release") != NULL;
}

static void sweep(const struct options *options, enum mode mode,
                  const char *what)
{
    /* Fewer where the run with all has been, and a sanitizer looks on. */
    const bool all = getenv("GRAPHHOOKS_TEST_SEEDS") == NULL;
    uint64_t times[128] = { 0 };
    unsigned well = 0, clear = 0, bad = 0, saved_launches = 0;
    char settings[96], error[SOFT_ERROR];

    is_int(soft_run(options, mode, "SEED=1", &eager, error), ENDED_WELL,
           "%s: a run without failures ends well", what);
    for (uint32_t i = 0; i < 128 && soft.entry(i) != NULL; i++) {
        times[i] = gives_back(soft.entry(i)) ? 0 : soft.calls(soft.entry(i));
    }
    for (uint32_t i = 0; i < 128 && soft.entry(i) != NULL; i++) {
        const uint64_t stride = all ? 1 : times[i] / 40 + 1;

        for (uint64_t n = 1; n <= times[i]; n += stride) {
            enum outcome outcome;

            snprintf(settings, sizeof(settings), "SEED=1 FAIL=%s:%llu",
                     soft.entry(i), (unsigned long long)n);
            outcome = soft_run(options, mode, settings, &eager, error);
            well += outcome == ENDED_WELL;
            saved_launches += outcome == ENDED_WELL &&
                              strcmp(soft.entry(i), "cuLaunchKernel") == 0;
            clear += outcome == ENDED_CLEARLY;
            bad += outcome == ENDED_BADLY;
            if (outcome == ENDED_BADLY && bad < 20) {
                diag("%s: %s", settings, error);
            }
        }
    }
    is_int(bad, 0,
           "%s: each of %u failing calls ends in the eager numbers or in one "
           "clear sentence, and leaves nothing",
           what, well + clear + bad);
    diag("%s: %u ended well, %u with a sentence", what, well, clear);
    ok(clear > 0, "%s: some calls cannot be done without", what);
    if (mode == MODE_GRAPH) {
        ok(saved_launches > (all ? 20u : 4u),
           "%s: a launch that fails in a recording is issued again", what);
    }
}

int main(void)
{
    struct options options = soft_options;

    /* Thousands of runs, each with a line or two of its own. */
    setenv("GRAPHHOOKS_LOG", "off", 0);
    if (soft_find() != 0) {
        ok(false, "the software device loads");
        return done_testing();
    }

    sweep(&options, MODE_EAGER, "eager");
    sweep(&options, MODE_STEP, "step");
    sweep(&options, MODE_GRAPH, "graph");
    options.legacy = true;
    options.streams = 1;
    options.granularity = "part";
    sweep(&options, MODE_GRAPH, "graph, legacy stream, by part");

    /* The gradients of weights on a stream of their own. */
    options = soft_options;
    options.delay_wgrad = true;
    options.delay = 1;
    sweep(&options, MODE_EAGER, "delayed, eager");
    sweep(&options, MODE_STEP, "delayed, step");
    sweep(&options, MODE_GRAPH, "delayed, graph");

    /* Experts between graphs, and a host that waits for their counts. */
    result_free(&eager);
    options = soft_options;
    options.config.model = MODEL_MOE;
    options.config.experts = 3;
    options.config.top_k = 2;
    options.config.dropless_host = true;
    sweep(&options, MODE_EAGER, "experts, eager");
    sweep(&options, MODE_GRAPH, "experts, graph");
    options.delay_wgrad = true;
    options.scope = "attn,moe_router,moe_preprocess";
    sweep(&options, MODE_GRAPH, "experts between graphs, delayed");

    /* A model whose views have memory of their own. */
    result_free(&eager);
    options = soft_options;
    options.config.model = MODEL_MLA;
    sweep(&options, MODE_EAGER, "mla, eager");

    result_free(&eager);
    return done_testing();
}
