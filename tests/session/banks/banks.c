/*
 * Each shape has graphs of its own, and all of them share a slot's memory.
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/banks.h"
#include "tap/tap.h"

static void test_every_bank_records_and_replays(void)
{
    const uint32_t order[] = { 0, 1, 2, 1 };
    gh_bank_stats stats;

    if (!banks_start(&(struct toy_options){ .elems = 512 })) {
        return;
    }
    toy_add_shape(&s, 512, NULL);
    toy_add_tokens(&s, 256);
    toy_add_tokens(&s, 128);
    is_int(s.shapes[1].bank, 1, "the first bank that is declared is 1");
    is_int(s.shapes[2].bank, 2, "and the next one 2");
    for (uint32_t step = 0; step < 4; step++) {
        is_status(toy_step_shapes(&s, order, 4), GH_OK, &s.err, "step %u",
                  step);
    }
    for (uint32_t i = 0; i < 3; i++) {
        stats = toy_bank_stats(&s, i);
        is_int(stats.recordings, 4, "bank %u has recorded its passes", i);
        is_int(stats.graphs, 4, "bank %u has a graph for each", i);
        is_int(stats.replays, i == 1 ? 4 * 6 : 4 * 3,
               "bank %u has launched them since", i);
        is_int(stats.evictions, 0, "bank %u has given way to none", i);
    }
    is_int(toy_stats(&s).recordings, 12, "the session's counters add up");
    is_int(toy_stats(&s).replays, 4 * 12, "of replays too");
    is_int(toy_eager(&s, GH_REASON_INPUT), 0,
           "no pass is of another shape than its graph");
    banks_finish("three banks");
}

/* ---- memory -------------------------------------------------------------- */

static const uint32_t lengths[] = { 64, 128, 192, 256, 320, 384, 448, 512 };

static uint64_t bytes_of_lengths(const uint32_t *order, uint32_t n)
{
    uint64_t bytes;

    if (!banks_start(&(struct toy_options){
            .elems = 512, .in_flight = 2, .streams = 2 })) {
        return 0;
    }
    for (uint32_t i = 0; i < 8; i++) {
        toy_add_tokens(&s, lengths[i]);
    }
    for (uint32_t step = 0; step < 3; step++) {
        for (uint32_t i = 0; i < n; i++) {
            const uint32_t two[] = { order[i], order[i] };

            if (toy_step_shapes(&s, two, 2) != GH_OK) {
                ok(false, "a step of two: %s", s.err.text);
            }
        }
    }
    bytes = toy_stats(&s).static_bytes;
    banks_finish("lengths");
    return bytes;
}

static void test_memory_is_that_of_the_largest(void)
{
    const uint32_t largest[] = { 7 };
    const uint32_t falling[] = { 7, 6, 5, 4, 3, 2, 1, 0 };
    const uint32_t rising[] = { 0, 1, 2, 3, 4, 5, 6, 7 };
    const uint64_t one = bytes_of_lengths(largest, 1);

    is_int(one, 2 * 2 * 4 * 512, "a slot has memory for what is copied");
    is_int(bytes_of_lengths(falling, 8), one,
           "eight lengths take what the largest alone does");
    is_int(bytes_of_lengths(rising, 8), one,
           "also when the smallest is recorded first");
}

static void test_what_banks_use_is_not_summed(void)
{
    const uint32_t both[] = { 0, 1 };

    if (!banks_start(&(struct toy_options){ .elems = 512 })) {
        return;
    }
    toy_add_tokens(&s, 512);
    toy_add_tokens(&s, 256);
    toy_step_shapes(&s, both, 2);
    toy_step_shapes(&s, both, 2);
    is_int(toy_bank_stats(&s, 0).bytes, 2 * 4 * 512, "the one uses all");
    is_int(toy_bank_stats(&s, 1).bytes, 2 * 4 * 512, "the other the same");
    is_int(toy_stats(&s).static_bytes, 2 * 4 * 512, "and it is there once");
    banks_finish("use");
}

/* A bank that needs more than was foreseen gets a block of its own. */
static void test_a_bank_that_grows(void)
{
    const uint32_t first[] = { 0 }, both[] = { 1, 0 };
    const gh_bank_desc plain = { .struct_size = sizeof(plain) };

    if (!banks_start(&(struct toy_options){ .elems = 512 })) {
        return;
    }
    toy_add_shape(&s, 64, &plain);
    toy_add_shape(&s, 512, &plain);
    for (uint32_t step = 0; step < 3; step++) {
        toy_step_shapes(&s, first, 1);
    }
    for (uint32_t step = 0; step < 3; step++) {
        toy_step_shapes(&s, both, 2);
    }
    is_int(toy_bank_stats(&s, 0).recordings, 4, "the first keeps its graphs");
    is_int(toy_bank_stats(&s, 1).recordings, 4, "and the second has some");
    is_int(toy_stats(&s).static_bytes, 2 * 4 * (64 + 512),
           "in memory of its own, where nobody has said how large it is");
    banks_finish("growth");
}

/* ---- slots --------------------------------------------------------------- */

static void test_slots_are_of_microbatches(void)
{
    if (!banks_start(&(struct toy_options){ .elems = 512, .max_slots = 1 })) {
        return;
    }
    toy_add_tokens(&s, 512);
    toy_add_tokens(&s, 256);
    banks_step(0);
    banks_step(0);
    banks_step(1);
    toy_forward_shape(&s, 0, 0);
    toy_forward_shape(&s, 1, 1);
    is_int(s.decision.reason, GH_REASON_BUSY,
           "a slot that one bank has is not free for another");
    is_int(s.decision.slot, GH_SLOT_NONE, "whose graphs are of the same slot");
    toy_backward(&s, 1);
    toy_backward(&s, 0);
    toy_end_step(&s);
    banks_finish("slots");
}

int main(void)
{
    int status;

    if (!toy_probe_soft(&status)) {
        return status;
    }
    test_every_bank_records_and_replays();
    test_memory_is_that_of_the_largest();
    test_what_banks_use_is_not_summed();
    test_a_bank_that_grows();
    test_slots_are_of_microbatches();
    return done_testing();
}
