/*
 * Pairs under every legal order of the device: the same weights, no race, and
 * no wait too many.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/orders.h"
#include "support/pair.h"
#include "tap/tap.h"

static const uint32_t counts[] = { 3, 2, 4, 3 };
#define N_STEPS 4

static double uneven(uint32_t cell)
{
    return 100e3 + 50e3 * (cell * 7 % 11);
}

#define MOE GH_LAYER_MOE
#define DENSE GH_LAYER_DENSE

static const struct {
    const char *what;
    struct pair_options options;
} cases[] = {
    { "fixed",
      { .kinds = { MOE, DENSE, MOE },
        .layers = 3,
        .scope = "attn,moe_router",
        .delay_wgrad = true } },
    { "auto",
      { .kinds = { MOE, DENSE, MOE },
        .layers = 3,
        .order = "auto",
        .time_of = uneven,
        .delay_wgrad = true } },
    { "two chunks",
      { .kinds = { MOE, GH_LAYER_MOE_ONLY, GH_LAYER_MAMBA, MOE },
        .layers = 4,
        .chunks = 2,
        .early = true,
        .own_comm = true,
        .scope = "attn" } },
};
#define N_CASES (sizeof(cases) / sizeof(cases[0]))

static struct outcome run(const void *options, const char *settings)
{
    return orders_train_pair(options, settings, counts, N_STEPS);
}

int main(void)
{
    int status;

    if (!orders_begin(&status)) {
        return status;
    }
    for (size_t i = 0; i < N_CASES; i++) {
        const struct orders o = { cases[i].what, run, &cases[i].options,
                                  .least = 10 };

        orders_are_right(&o, orders_seeds(200));
        orders_need_waits(&o);
    }
    return done_testing();
}
