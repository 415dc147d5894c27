/*
 * A slot belongs to one microbatch, from its forward to its last backward.
 * SPDX-License-Identifier: Apache-2.0
 */
#include "capture/slots.h"
#include "tap/tap.h"

static bool fresh;

static void test_the_lowest_free_slot_is_taken(void)
{
    struct gh_slots *slots;

    gh_slots_create(1, 2, 3, &slots, NULL);
    is_int(gh_slots_take(slots, 0, 7, &fresh), 0, "the first gets slot 0");
    ok(fresh, "and is told that it is fresh");
    is_int(gh_slots_take(slots, 0, 7, &fresh), 0, "it keeps it");
    ok(!fresh, "and is told that it is not");
    is_int(gh_slots_take(slots, 0, 9, &fresh), 1, "the second gets slot 1");
    is_int(gh_slots_take(slots, 0, 2, &fresh), 2, "the third gets slot 2");
    ok(gh_slots_take(slots, 0, 3, &fresh) == GH_SLOT_NONE,
       "the fourth finds none");
    ok(gh_slots_find(slots, 0, 3) == GH_SLOT_NONE, "and holds none");

    gh_slots_ran_forward(slots, 0, 9, 0);
    ok(gh_slots_ran_backward(slots, 0, 9, 0), "a backward gives slot 1 back");
    is_int(gh_slots_take(slots, 0, 4, &fresh), 1, "and the next one gets it");
    gh_slots_destroy(slots);
}

static void test_a_slot_is_held_until_every_forward_had_its_backward(void)
{
    struct gh_slots *slots;

    gh_slots_create(1, 3, 2, &slots, NULL);
    gh_slots_take(slots, 0, 0, &fresh);
    for (uint32_t s = 0; s < 3; s++) {
        ok(!gh_slots_waits(slots, 0, 0, s), "segment %u has not run", s);
        gh_slots_ran_forward(slots, 0, 0, s);
        ok(gh_slots_waits(slots, 0, 0, s), "now segment %u waits", s);
    }
    ok(!gh_slots_ran_backward(slots, 0, 0, 2), "one backward of three keeps "
                                               "the slot");
    ok(!gh_slots_waits(slots, 0, 0, 2), "its segment waits no more");
    ok(!gh_slots_ran_backward(slots, 0, 0, 1), "so does the second");
    ok(gh_slots_ran_backward(slots, 0, 0, 0), "the third gives it back");
    gh_slots_destroy(slots);
}

static void test_without_a_slot_a_microbatch_is_in_flight_all_the_same(void)
{
    struct gh_slots *slots;

    gh_slots_create(1, 1, 1, &slots, NULL);
    gh_slots_take(slots, 0, 0, &fresh);
    gh_slots_ran_forward(slots, 0, 0, 0);
    gh_slots_take(slots, 0, 1, &fresh);
    gh_slots_ran_forward(slots, 0, 1, 0);
    gh_slots_ran_backward(slots, 0, 0, 0);
    ok(gh_slots_waits(slots, 0, 1, 0), "its backward is expected");
    ok(gh_slots_take(slots, 0, 1, &fresh) == GH_SLOT_NONE,
       "and gets no slot in the middle, though one is free by now");
    ok(!gh_slots_ran_backward(slots, 0, 1, 0), "it has none to give back");
    ok(!gh_slots_waits(slots, 0, 1, 0), "after its backward it is done");
    is_int(gh_slots_take(slots, 0, 1, &fresh), 0, "and may take one again");
    gh_slots_destroy(slots);
}

static void test_chunks_do_not_share_slots(void)
{
    struct gh_slots *slots;

    gh_slots_create(2, 2, 1, &slots, NULL);
    is_int(gh_slots_take(slots, 0, 0, &fresh), 0, "chunk 0 has a slot 0");
    is_int(gh_slots_take(slots, 1, 0, &fresh), 0, "chunk 1 has its own");
    ok(gh_slots_at(slots, 0, 0) != gh_slots_at(slots, 1, 0),
       "they are not the same");
    gh_slots_destroy(slots);
}

static void test_the_end_of_a_step_frees_all(void)
{
    struct gh_slots *slots;

    gh_slots_create(1, 1, 64, &slots, NULL);
    for (uint32_t m = 0; m < 70; m++) {
        gh_slots_take(slots, 0, m, &fresh);
        gh_slots_ran_forward(slots, 0, m, 0);
    }
    is_int(gh_slots_end_step(slots), 64, "64 slots were still held");
    is_int(gh_slots_end_step(slots), 0, "and none is any more");
    for (uint32_t m = 0; m < 70; m++) {
        if (gh_slots_waits(slots, 0, m, 0)) {
            ok(false, "microbatch %u is forgotten", m);
        }
    }
    is_int(gh_slots_take(slots, 0, 0, &fresh), 0, "slot 0 is free again");
    gh_slots_destroy(slots);
}

static void test_a_pass_that_was_given_up(void)
{
    struct gh_slots *slots;

    gh_slots_create(1, 2, 1, &slots, NULL);
    gh_slots_take(slots, 0, 0, &fresh);
    gh_slots_cancel(slots, 0, 0);
    is_int(gh_slots_take(slots, 0, 1, &fresh), 0,
           "a first pass that is given up frees its slot");
    gh_slots_ran_forward(slots, 0, 1, 0);
    gh_slots_cancel(slots, 0, 1);
    is_int(gh_slots_find(slots, 0, 1), 0, "a later one keeps it");
    gh_slots_destroy(slots);
    gh_slots_destroy(NULL);
}

int main(void)
{
    test_the_lowest_free_slot_is_taken();
    test_a_slot_is_held_until_every_forward_had_its_backward();
    test_without_a_slot_a_microbatch_is_in_flight_all_the_same();
    test_chunks_do_not_share_slots();
    test_the_end_of_a_step_frees_all();
    test_a_pass_that_was_given_up();
    return done_testing();
}
