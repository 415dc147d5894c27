/*
 * Every legal order gives the same weights, and every wait is needed.
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/orders.h"
#include "tap/tap.h"

static const uint32_t counts[] = { 4, 6, 5, 3, 4 };
#define N_STEPS 5

/* Three streams and two slots: a slot goes from stream to stream. */
static const struct toy_options three_streams = {
    .layers = 2, .elems = 8, .in_flight = 2, .streams = 3, .free_running = true
};

/* And a flight is on two streams, of which either may end last. */
static const struct toy_options weights_beside = { .layers = 2,
                                                   .elems = 8,
                                                   .in_flight = 2,
                                                   .streams = 2,
                                                   .free_running = true,
                                                   .wgrad = TOY_WGRAD_BESIDE };

static struct outcome run(const void *options, const char *settings)
{
    return orders_train(options, settings, counts, N_STEPS);
}

int main(void)
{
    const struct orders moved = { "three streams", run, &three_streams,
                                  .least = 10 };
    const struct orders beside = { "weights beside", run, &weights_beside,
                                   .least = 10 };
    uint32_t n;
    int status;

    if (!orders_begin(&status)) {
        return status;
    }
    n = orders_seeds(2000);
    orders_are_right(&moved, n);
    orders_are_right(&beside, n / 2);
    orders_need_waits(&moved);
    orders_need_waits(&beside);
    return done_testing();
}
