/*
 * Banks that take turns in a slot's memory give the same numbers in every
 * legal order, and every wait is needed.
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/orders.h"
#include "support/toy.h"
#include "tap/tap.h"

#define N_STEPS 6

/* Three shapes and two slots, that go from stream to stream. */
static const uint32_t orders[N_STEPS][5] = {
    { 0, 1, 2, 1, 0 }, { 0, 1, 2, 1, 0 }, { 2, 2, 1, 0, 1 },
    { 1, 0, 0, 2, 2 }, { 0, 2, 1, 1, 2 }, { 2, 1, 0, 0, 1 },
};

static struct outcome run(const void *options, const char *settings)
{
    struct outcome outcome = { .exact = false };
    struct toy s;
    bool ran = true;

    if (!toy_start(&s, options, NULL)) {
        return outcome;
    }
    toy_configure(&s, settings);
    toy_add_tokens(&s, 96);
    toy_add_tokens(&s, 64);
    toy_add_tokens(&s, 24);
    for (uint32_t step = 0; step < N_STEPS && ran; step++) {
        s.less = step * 5;
        ran = toy_step_shapes(&s, orders[step], 5) == GH_OK;
    }
    outcome.exact = ran && toy_is_exact(&s);
    outcome.races = toy_races(&s);
    outcome.waits = toy_counts(&s).waits;
    for (uint32_t i = 0; i < 3; i++) {
        outcome.evictions += toy_bank_stats(&s, i).evictions;
    }
    toy_close(&s);
    return outcome;
}

int main(void)
{
    static const char *const quiet[] = { "GRAPHHOOKS_LOG=off", NULL };
    static const char *const two[] = { "GRAPHHOOKS_LOG=off",
                                       "GRAPHHOOKS_MAX_BANKS=2", NULL };
    struct toy_options options = { .layers = 2,
                                   .elems = 96,
                                   .max_slots = 2,
                                   .in_flight = 2,
                                   .streams = 3,
                                   .by_capacity = true,
                                   .free_running = true,
                                   .environment = quiet };
    const struct orders three = { "three banks", run, &options, .least = 10 };
    const struct orders evicts = { "two of three", run, &options, .least = 10 };
    const uint32_t n = orders_seeds(500);
    int status;

    if (!orders_begin(&status)) {
        return status;
    }
    orders_are_right(&three, n);
    orders_need_waits(&three);
    options.environment = two;
    ok(orders_are_right(&evicts, n) >= n, "two of three: while banks give way");
    orders_need_waits(&evicts);
    return done_testing();
}
