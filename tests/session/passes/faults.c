/*
 * Whatever driver call fails, training is exact or stops with a sentence.
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/sweeps.h"
#include "tap/tap.h"

#include <stdio.h>

static const uint32_t counts[] = { 1, 2, 3, 2 };
#define N_STEPS 4

static void sweep(const struct toy_options *options, const char *mode,
                  const char *name)
{
    const struct sweep s = { .name = name,
                             .options = options,
                             .mode = mode,
                             .counts = counts,
                             .n_steps = N_STEPS };

    sweep_all(&s);
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
    int status;

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

    if (!toy_probe_soft(&status)) {
        return status;
    }
    sweep(&plain, "RACES=0", "one stream");
    sweep(&streams, "RACES=0", "two streams");
    sweep(&legacy, "RACES=0", "legacy stream");
    sweep(&checked, "RACES=0", "checked");
    sweep(&later, "RACES=0", "weights later");
    sweep(&beside, "RACES=1 SEED=4", "weights beside");
    for (uint32_t seed = 1; seed <= 3; seed++) {
        char mode[32], name[48];

        snprintf(mode, sizeof(mode), "RACES=1 SEED=%u", seed);
        snprintf(name, sizeof(name), "three free streams, seed %u", seed);
        sweep(&free_streams, mode, name);
    }
    return done_testing();
}
