/*
 * A slot belongs to one microbatch, from its forward to its last backward.
 * SPDX-License-Identifier: Apache-2.0
 */
#include "pass/slots.h"
#include "tap/tap.h"

/* What gh_slots_enter says, and the slot it gives, of chunk 0. */
static uint32_t slot;

static enum gh_slots_found forward(struct gh_slots *slots, uint32_t m,
                                   uint32_t segment)
{
    enum gh_slots_found found;

    gh_slots_enter(slots, 0, m, segment, GH_FORWARD, &slot, &found);
    return found;
}

static enum gh_slots_found backward(struct gh_slots *slots, uint32_t m,
                                    uint32_t segment)
{
    enum gh_slots_found found;

    gh_slots_enter(slots, 0, m, segment, GH_BACKWARD, &slot, &found);
    return found;
}

static void test_the_lowest_free_slot_is_taken(void)
{
    struct gh_slots *slots;

    gh_slots_create(1, 2, 3, &slots, NULL);
    is_int(forward(slots, 7, 0), GH_SLOTS_FRESH, "the first takes a slot");
    is_int(slot, 0, "which is slot 0");
    is_int(forward(slots, 7, 1), GH_SLOTS_HELD, "and holds it");
    is_int(slot, 0, "the same one");
    forward(slots, 9, 0);
    is_int(slot, 1, "the second takes slot 1");
    forward(slots, 2, 0);
    is_int(slot, 2, "the third takes slot 2");
    is_int(forward(slots, 3, 0), GH_SLOTS_NONE, "the fourth finds none");
    ok(slot == GH_SLOT_NONE, "and is told so");

    gh_slots_ran_forward(slots, 0, 9, 0);
    ok(gh_slots_ran_last(slots, 0, 9, 0), "a backward gives slot 1 back");
    forward(slots, 4, 0);
    is_int(slot, 1, "and the next one gets it");
    gh_slots_destroy(slots);
}

/* A slot that cannot be waited for is left for a later one, each once. */
static void test_another_slot(void)
{
    struct gh_slots *slots;
    uint32_t index;

    gh_slots_create(1, 2, 3, &slots, NULL);
    forward(slots, 7, 0);
    for (uint32_t i = 1; i < 3; i++) {
        ok(gh_slots_take_another(slots, 0, 7, &index) ==
                   &slots->chunks[0].slots[i] &&
               index == i,
           "slot %u comes after the one before", i);
    }
    ok(gh_slots_take_another(slots, 0, 7, &index) == NULL &&
           index == GH_SLOT_NONE,
       "and none after the last, though those before are free");
    ok(gh_slots_are_free(slots), "to which it has gone back");
    gh_slots_destroy(slots);
}

static void test_a_slot_is_held_until_every_forward_had_its_backward(void)
{
    struct gh_slots *slots;

    gh_slots_create(1, 3, 2, &slots, NULL);
    for (uint32_t s = 0; s < 3; s++) {
        is_int(backward(slots, 0, s), GH_SLOTS_EARLY,
               "a backward of segment %u is early", s);
        forward(slots, 0, s);
        gh_slots_ran_forward(slots, 0, 0, s);
        is_int(backward(slots, 0, s), GH_SLOTS_HELD,
               "after its forward it is not");
    }
    ok(!gh_slots_ran_last(slots, 0, 0, 2), "one backward of three keeps "
                                               "the slot");
    is_int(backward(slots, 0, 2), GH_SLOTS_EARLY, "its segment waits no more");
    ok(!gh_slots_ran_last(slots, 0, 0, 1), "so does the second");
    ok(gh_slots_ran_last(slots, 0, 0, 0), "the third gives it back");
    gh_slots_destroy(slots);
}

static void test_a_forward_that_waits_is_not_repeated(void)
{
    struct gh_slots *slots;

    gh_slots_create(1, 2, 2, &slots, NULL);
    forward(slots, 0, 0);
    gh_slots_ran_forward(slots, 0, 0, 0);
    is_int(forward(slots, 0, 0), GH_SLOTS_REPEATED,
           "the same forward again is told apart");
    ok(slot == GH_SLOT_NONE, "and kept out of the slot");
    is_int(forward(slots, 0, 1), GH_SLOTS_HELD, "another segment is not");
    gh_slots_destroy(slots);
}

static void test_without_a_slot_a_microbatch_is_in_flight_all_the_same(void)
{
    struct gh_slots *slots;

    gh_slots_create(1, 2, 1, &slots, NULL);
    forward(slots, 0, 0);
    gh_slots_ran_forward(slots, 0, 0, 0);
    is_int(forward(slots, 1, 0), GH_SLOTS_NONE, "it finds no slot");
    gh_slots_ran_forward(slots, 0, 1, 0);
    gh_slots_ran_last(slots, 0, 0, 0);
    is_int(forward(slots, 1, 1), GH_SLOTS_NONE,
           "and gets none in the middle, though one is free by now");
    is_int(backward(slots, 1, 0), GH_SLOTS_NONE, "its backward is expected");
    ok(!gh_slots_ran_last(slots, 0, 1, 0), "it has none to give back");
    is_int(backward(slots, 1, 0), GH_SLOTS_EARLY,
           "after its backward it is done");
    is_int(forward(slots, 1, 0), GH_SLOTS_FRESH, "and may take one again");
    gh_slots_destroy(slots);
}

static void test_sequences_without_a_slot_keep_their_microbatch_without(void)
{
    struct gh_slots *slots;

    gh_slots_create(1, 2, 1, &slots, NULL);
    gh_slots_note_packed(slots, 0, 5);
    is_int(forward(slots, 5, 0), GH_SLOTS_NONE,
           "a slot is free, and a microbatch that had none gets none");
    is_int(backward(slots, 5, 0), GH_SLOTS_NONE, "nor has its backward one");
    gh_slots_ran_forward(slots, 0, 5, 0);
    gh_slots_ran_forward(slots, 0, 5, 1);
    ok(!gh_slots_ran_last(slots, 0, 5, 1), "a backward gives nothing back");
    is_int(forward(slots, 5, 1), GH_SLOTS_NONE, "the flight goes on");
    ok(!gh_slots_ran_last(slots, 0, 5, 0), "and so its last");
    is_int(forward(slots, 5, 0), GH_SLOTS_FRESH, "the next flight has a slot");
    gh_slots_note_packed(slots, 0, 5);
    gh_slots_ran_forward(slots, 0, 5, 0);
    gh_slots_ran_last(slots, 0, 5, 0);
    is_int(forward(slots, 5, 0), GH_SLOTS_FRESH,
           "also after one whose sequences were in a slot");
    gh_slots_note_packed(slots, 0, 6);
    is_int(gh_slots_end_step(slots), 1, "a step ends");
    is_int(forward(slots, 6, 0), GH_SLOTS_FRESH, "and with it what had none");
    gh_slots_destroy(slots);
}

static void test_chunks_do_not_share_slots(void)
{
    enum gh_slots_found found;
    struct gh_slots *slots;
    struct gh_slot *other;

    gh_slots_create(2, 2, 1, &slots, NULL);
    forward(slots, 0, 0);
    is_int(slot, 0, "chunk 0 has a slot 0");
    other = gh_slots_enter(slots, 1, 0, 1, GH_FORWARD, &slot, &found);
    is_int(found, GH_SLOTS_FRESH, "chunk 1 has its own");
    ok(other == gh_slots_at(slots, 1, 0) && other != gh_slots_at(slots, 0, 0),
       "they are not the same");
    gh_slots_destroy(slots);
}

static void test_the_end_of_a_step_frees_all(void)
{
    struct gh_slots *slots;
    uint32_t early = 0;

    gh_slots_create(1, 1, 64, &slots, NULL);
    for (uint32_t m = 0; m < 70; m++) {
        forward(slots, m, 0);
        gh_slots_ran_forward(slots, 0, m, 0);
    }
    is_int(gh_slots_end_step(slots), 64, "64 slots were still held");
    is_int(gh_slots_end_step(slots), 0, "and none is any more");
    for (uint32_t m = 0; m < 70; m++) {
        early += backward(slots, m, 0) == GH_SLOTS_EARLY;
    }
    is_int(early, 70, "every microbatch is forgotten");
    forward(slots, 0, 0);
    is_int(slot, 0, "slot 0 is free again");
    gh_slots_destroy(slots);
}

/* Of two chunks either may be the one that holds a slot. */
static void test_every_chunk_counts(void)
{
    enum gh_slots_found found;
    struct gh_slots *slots;

    gh_slots_create(2, 4, 2, &slots, NULL);
    ok(gh_slots_are_free(slots), "at first all slots are free");
    for (uint32_t chunk = 0; chunk < 2; chunk++) {
        const uint32_t last = 2 * chunk + 1;

        gh_slots_enter(slots, chunk, 3, last, GH_FORWARD, &slot, &found);
        gh_slots_ran_forward(slots, chunk, 3, last);
        ok(!gh_slots_are_free(slots), "one that is held in chunk %u is not",
           chunk);
        is_int(gh_slots_end_step(slots), 1, "the end of the step frees it");
        ok(gh_slots_are_free(slots), "and all are free");
        gh_slots_enter(slots, chunk, 3, last, GH_BACKWARD, &slot, &found);
        is_int(found, GH_SLOTS_EARLY, "its backward is forgotten");
        gh_slots_enter(slots, chunk, 0, last, GH_FORWARD, &slot, &found);
        is_int(found, GH_SLOTS_FRESH, "a forward is the first of its segment");
        gh_slots_cancel(slots, chunk, 0);
    }
    gh_slots_enter(slots, 0, 0, 0, GH_FORWARD, &slot, &found);
    gh_slots_enter(slots, 1, 0, 2, GH_FORWARD, &slot, &found);
    is_int(gh_slots_end_step(slots), 2, "those of both chunks are counted");
    gh_slots_destroy(slots);
}

static void test_a_pass_that_was_given_up(void)
{
    struct gh_slots *slots;

    gh_slots_create(1, 2, 1, &slots, NULL);
    forward(slots, 0, 0);
    gh_slots_cancel(slots, 0, 0);
    is_int(forward(slots, 1, 0), GH_SLOTS_FRESH,
           "a first pass that is given up frees its slot");
    gh_slots_ran_forward(slots, 0, 1, 0);
    gh_slots_cancel(slots, 0, 1);
    is_int(forward(slots, 1, 1), GH_SLOTS_HELD, "a later one keeps it");
    gh_slots_destroy(slots);
    gh_slots_destroy(NULL);
}

int main(void)
{
    test_the_lowest_free_slot_is_taken();
    test_another_slot();
    test_a_slot_is_held_until_every_forward_had_its_backward();
    test_a_forward_that_waits_is_not_repeated();
    test_without_a_slot_a_microbatch_is_in_flight_all_the_same();
    test_sequences_without_a_slot_keep_their_microbatch_without();
    test_chunks_do_not_share_slots();
    test_the_end_of_a_step_frees_all();
    test_every_chunk_counts();
    test_a_pass_that_was_given_up();
    return done_testing();
}
