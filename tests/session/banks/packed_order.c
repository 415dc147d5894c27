/*
 * Sequences are written after whoever read the ones before: no order of the
 * device that is legal has a race, and each wait is needed.
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/orders.h"
#include "support/packed.h"
#include "tap/tap.h"

#include <stdio.h>

/* Slots and streams that take turns: the wait of a flight stands before its
 * sequences are written.  With one slot every second microbatch has none. */
static uint64_t races_of(uint32_t slots, const char *settings,
                         uint64_t *waits_p)
{
    static const int32_t lengths[] = { 3, 9, 1, 12 };
    gh_packed_buffers buffers;
    uint64_t races;
    uint32_t wrong = 0;

    if (!packed_open((struct toy_options){ .layers = 1, .max_slots = slots })) {
        return UINT64_MAX;
    }
    toy_configure(&toy, settings);
    for (uint32_t i = 0; i < 12; i++) {
        CUstream stream = toy.streams[i * 5 % TOY_STREAMS];
        gh_packed_buffers other;

        packed_set(i, stream, 1 + i % 4, lengths, NULL, &buffers);
        if (slots == 1) {
            CUstream beside = toy.streams[(i + i / 3) % TOY_STREAMS];

            packed_set(12 + i, beside, 4 - i % 4, lengths, NULL, &other);
            wrong += packed_read(12 + i, beside, &other).slot != GH_SLOT_NONE;
        }
        wrong += packed_read(i, stream, &buffers).action == UINT32_MAX;
        if (slots == 1) {
            gh_iteration_end(toy.session, NULL);
        }
    }
    toy.drv.cuCtxSynchronize();
    races = toy_races(&toy) + (wrong != 0 ? 1000 : 0);
    *waits_p = toy_counts(&toy).waits;
    packed_close();
    return races;
}

/* `spare`: arrays without a slot wait for a stream that the slot's flight has
 * waited for already. */
static void test_orders(uint32_t slots, uint32_t spare)
{
    const uint32_t seeds = orders_seeds(500);
    uint64_t waits = 0, raced = 0, caught = 0, unused;
    char settings[48];

    for (uint32_t seed = 1; seed <= seeds; seed++) {
        snprintf(settings, sizeof(settings), "SEED=%u RACES=1", seed);
        raced += races_of(slots, settings, &waits) != 0;
    }
    is_int(raced, 0, "%u slots: %u legal orders have no race", slots, seeds);
    ok(waits >= 8, "%llu waits order the slots", (unsigned long long)waits);
    for (uint64_t n = 1; n <= waits; n++) {
        snprintf(settings, sizeof(settings), "SEED=1 RACES=1 DROP_WAIT=%llu",
                 (unsigned long long)n);
        caught += races_of(slots, settings, &unused) != 0;
    }
    is_int(caught, waits - spare,
           "each of them but %u, dropped, is reported as a race", spare);
}

int main(void)
{
    int status;

    if (!orders_begin(&status)) {
        return status;
    }
    test_orders(2, 0);
    test_orders(1, 1);
    return done_testing();
}
