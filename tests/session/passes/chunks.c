/*
 * Two chunks of one rank: each has slots of its own, and all that is said of
 * slots holds for both.
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/by_hand.h"
#include "tap/tap.h"

/* Segments 0 and 1 are the first chunk, 2 and 3 the second. */
static const struct toy_options two_chunks = { .layers = 4, .chunks = 2 };
#define SECOND 2

static void test_slots_of_their_own(void)
{
    if (!start(two_chunks)) {
        return;
    }
    is_int(run(0, GH_FORWARD, 0, toy.streams[0]).slot, 0,
           "microbatch 0 has slot 0 of the first chunk");
    is_int(run(0, GH_FORWARD, 1, toy.streams[0]).slot, 1,
           "microbatch 1 has slot 1");
    is_int(run(SECOND, GH_FORWARD, 1, toy.streams[0]).slot, 0,
           "and slot 0 of the second chunk, where it is the first");
    is_int(run(SECOND, GH_FORWARD, 0, toy.streams[0]).slot, 1,
           "microbatch 0 comes second there");
    run(0, GH_BACKWARD, 0, toy.streams[0]);
    is_int(run(SECOND, GH_FORWARD, 2, toy.streams[0]).slot, 2,
           "a slot of the first chunk that is free is none of the second");
    is_int(run(0, GH_FORWARD, 2, toy.streams[0]).slot, 0,
           "but the next one's of the first");
    is_int(run(SECOND, GH_BACKWARD, 1, toy.streams[0]).action, GH_ACTION_RECORD,
           "a backward of the second chunk");
    is_int(run(SECOND, GH_FORWARD, 3, toy.streams[0]).slot, 0,
           "gives its slot back there");
    toy_close(&toy);
}

/* What is in flight in the second chunk reads the table as well. */
static void test_a_table_that_moves(void)
{
    struct toy_options options = two_chunks;
    gh_aux aux = { .struct_size = sizeof(aux), .name = "rotary_cos" };

    options.family = "mla";
    if (!start(options)) {
        return;
    }
    aux.layer = SECOND;
    aux.buffer = buffer(6, 16, 0);
    is_status(gh_aux_bind(toy.session, &aux, &err), GH_OK, &err,
              "a table of the second chunk is bound");
    run(SECOND, GH_FORWARD, 0, toy.streams[0]);
    aux.buffer = buffer(7, 16, 0);
    is_status(gh_aux_bind(toy.session, &aux, &err), GH_ERR_STATE, &err,
              "and does not move while a microbatch is in flight there");
    run(SECOND, GH_BACKWARD, 0, toy.streams[0]);
    is_status(gh_aux_bind(toy.session, &aux, &err), GH_OK, &err,
              "but after it");
    is_int(run(SECOND, GH_FORWARD, 0, toy.streams[0]).action, GH_ACTION_RECORD,
           "and what reads it is recorded anew");
    toy_close(&toy);
}

/* A flight on two streams, whose last pass was on the first of them. */
static void fly(uint32_t m)
{
    CUstream *s = toy.streams;
    gh_pass pass = a_pass(SECOND + 1, GH_BACKWARD, m, s[0], &no_io);

    run(SECOND, GH_FORWARD, m, s[0]);
    go_over(s[0], s[1]);
    run(SECOND + 1, GH_FORWARD, m, s[1]);
    toy_empty_pass(&toy, &pass);
}

static void test_a_step_that_ends_in_the_second_chunk(void)
{
    if (!start(two_chunks)) {
        return;
    }
    gh_pre_warmup(toy.session, &err);
    fly(0);
    gh_iteration_end(toy.session, &err);
    run(SECOND, GH_FORWARD, 0, toy.streams[0]);
    is_int(toy_races(&toy), 0,
           "a flight that the end of a step has cut is waited for on both "
           "of its streams");
    gh_iteration_end(toy.session, &err);
    is_int(run(SECOND, GH_FORWARD, 5, toy.streams[0]).slot, 0,
           "and its slot is free");
    is_int(run(0, GH_FORWARD, 5, toy.streams[0]).slot, 0,
           "as that of the first chunk");
    toy_close(&toy);
}

int main(void)
{
    const char *reason;

    if (!toy_probe(&toy, &reason)) {
        return skip_all("%s", reason);
    }
    test_slots_of_their_own();
    test_a_table_that_moves();
    test_a_step_that_ends_in_the_second_chunk();
    return done_testing();
}
