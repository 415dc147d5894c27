/*
 * Sequences that do not fit, or come at the wrong time, are refused in words,
 * and leave nothing that looks like sequences.
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/packed.h"
#include "tap/tap.h"

#include <string.h>

static void is_refused(gh_status expected, const char *words, uint32_t n,
                       const int32_t *lengths, const int32_t *padded,
                       const char *name)
{
    static const int32_t one[] = { 3 };
    gh_packed_buffers buffers;
    gh_decision d;

    is_status(packed_set(0, toy.streams[0], n, lengths, padded, &buffers),
              expected, &err, "%s", name);
    ok(strstr(err.text, words) != NULL, "in words: %s", err.text);
    ok(buffers.cu_seqlens.address == NULL, "no place is told");
    d = run(0, GH_FORWARD, 0, toy.streams[0]);
    is_int(d.action, UINT32_MAX, "a pass of another bank is none of its");
    {
        const struct io io = { .n_inputs = 0 };
        gh_pass pass = a_pass(0, GH_FORWARD, 0, toy.streams[0], &io);

        pass.bank = packed_bank;
        pass_once(&pass, &io, &d);
        is_int(d.reason, GH_REASON_PACKED,
               "its passes run eagerly, and say so");
        ok(d.slot != GH_SLOT_NONE, "in a slot");
        pass.direction = GH_BACKWARD;
        pass_once(&pass, &io, &d);
        is_int(d.reason, GH_REASON_PACKED, "in both directions");
    }
    packed_set(0, toy.streams[0], 1, one, NULL, &buffers);
    d = packed_read(0, toy.streams[0], &buffers);
    is_int(d.action, GH_ACTION_REPLAYED, "the next one is replayed");
}

static void test_refusals(void)
{
    static const int32_t one[] = { 3 }, many[] = { 1, 1, 1, 1, 1 };
    static const int32_t negative[] = { 4, -1 }, large[] = { 30, 3 };
    static const int32_t huge[] = { INT32_MAX, INT32_MAX };
    static const int32_t less[] = { 2 }, few[] = { 4, 4 }, wide[] = { 20, 20 };
    gh_packed_buffers buffers;

    if (!packed_begin((struct toy_options){ .layers = 1 })) {
        return;
    }
    packed_set(0, toy.streams[0], 1, one, NULL, &buffers);
    packed_read(0, toy.streams[0], &buffers);
    is_refused(GH_ERR_UNSUPPORTED, "5 sequences", 5, many, NULL,
               "more sequences than there is room for");
    is_refused(GH_ERR_UNSUPPORTED, "33 tokens", 2, large, NULL,
               "more tokens than there is room for");
    is_refused(GH_ERR_UNSUPPORTED, "4294967294 tokens", 2, huge, NULL,
               "more tokens than a number holds");
    is_refused(GH_ERR_UNSUPPORTED, "40 tokens", 2, few, wide,
               "padding that there is no room for");
    is_refused(GH_ERR_INVALID, "lengths[1] is -1", 2, negative, NULL,
               "a length below zero");
    is_refused(GH_ERR_INVALID, "padded[0] is 2", 1, one, less,
               "padding that takes tokens away");
    packed_finish("refusals");
}

static void test_no_size_of_cp(void)
{
    static const int32_t large[] = { 16, 1 };
    gh_packed_buffers buffers;

    if (!packed_begin((struct toy_options){ .layers = 1 })) {
        return;
    }
    packed_bank = packed_add_bank(0, 16, 4);
    is_status(packed_set(0, toy.streams[0], 2, large, NULL, &buffers),
              GH_ERR_UNSUPPORTED, &err,
              "a bank without a CP size holds what it says");
    ok(strstr(err.text, "take 17 tokens") != NULL &&
           strstr(err.text, "holds 16, 16 on each of 1 ranks") != NULL,
       "on one rank: %s", err.text);
    packed_finish("no size of CP");
}

static void test_pieces_of_two_ranks(void)
{
    static const int32_t lengths[] = { 5, 3 }, good[] = { 8, 4 };
    static const int32_t bad[] = { 8, 6 }, large[] = { 32, 4 };
    gh_packed_buffers buffers;
    int32_t end;

    if (!packed_begin((struct toy_options){ .layers = 1 })) {
        return;
    }
    packed_bank = packed_add_bank(2, 16, 4);
    is_status(packed_set(0, toy.streams[0], 2, lengths, bad, &buffers),
              GH_ERR_INVALID, &err,
              "what two pieces on each of two ranks do not divide is refused");
    ok(strstr(err.text, "sequence 1 takes 6") != NULL &&
           strstr(err.text, "which 4") != NULL,
       "in words: %s", err.text);
    is_status(packed_set(0, toy.streams[0], 2, lengths, large, &buffers),
              GH_ERR_UNSUPPORTED, &err, "more than both have room for is refused");
    ok(strstr(err.text, "holds 32, 16 on each of 2 ranks") != NULL,
       "in words: %s", err.text);
    is_status(packed_set(0, toy.streams[0], 2, lengths, good, &buffers), GH_OK,
              &err, "and what they divide is not");
    toy.drv.cuCtxSynchronize();
    toy.drv.cuMemcpyDtoH(
        &end, (uintptr_t)buffers.cu_seqlens_padded.address + 3 * sizeof(end),
        sizeof(end));
    is_int(end, 32, "the physical tokens are those of both ranks");
    packed_finish("two ranks");
}

/* What was refused leaves nothing that looks like sequences. */
static void test_what_was_there_is_spoilt(void)
{
    static const int32_t one[] = { 3 }, large[] = { 33 };
    gh_packed_buffers buffers, none;
    int32_t first = 0;

    if (!packed_begin((struct toy_options){ .layers = 1 })) {
        return;
    }
    packed_set(0, toy.streams[0], 1, one, NULL, &buffers);
    packed_read(0, toy.streams[0], &buffers);
    packed_set(0, toy.streams[0], 1, large, NULL, &none);
    toy.drv.cuCtxSynchronize();
    toy.drv.cuMemcpyDtoH(&first, (uintptr_t)buffers.cu_seqlens.address,
                         sizeof(first));
    is_int(first, INT32_MIN, "the offsets of the microbatch before are gone");
    packed_finish("spoilt");
}

static void test_out_of_turn(void)
{
    static const int32_t one[] = { 3 }, two[] = { 4, 5 };
    static const struct packed_found wanted = {
        { 0, 4, 9, 9, 9, 9 }, { 0, 4, 9, 32, 32, 32 }, 5, 2
    };
    const struct io io = { .n_inputs = 0 };
    gh_packed packed = { .struct_size = sizeof(packed) };
    gh_packed_buffers buffers, none;
    gh_decision d;
    gh_pass pass;

    if (!packed_begin((struct toy_options){ .layers = 1, .max_slots = 1 })) {
        return;
    }
    pass = a_pass(0, GH_FORWARD, 0, toy.streams[0], &io);
    pass.bank = packed_bank;
    is_status(pass_once(&pass, &io, &d), GH_ERR_STATE, &err,
              "a microbatch that begins without its sequences is refused");
    ok(strstr(err.text, "gh_packed_set") != NULL, "in words: %s", err.text);
    is_status(packed_set(0, toy.streams[0], 1, one, NULL, &buffers), GH_OK,
              &err, "they are given");
    is_int(buffers.slot, 0, "in a slot that the refusal has left free");
    go_over(toy.streams[0], toy.streams[1]);
    is_status(packed_set(0, toy.streams[1], 2, two, NULL, &buffers), GH_OK,
              &err, "given again, from another stream");
    d = (gh_decision){ .struct_size = sizeof(d) };
    pass.stream = toy.streams[1];
    gh_layer_enter(toy.session, &pass, &d, &err);
    is_status(packed_set(0, toy.streams[1], 2, two, NULL, &none), GH_ERR_STATE,
              &err, "not while a pass is open");
    gh_layer_cancel(toy.session, NULL);
    d = packed_read(0, toy.streams[1], &buffers);
    is_int(d.slot, 0, "a pass that is given up leaves its slot to the next");
    packed_is_found(0, 0, &wanted, "which reads what was given last");
    packed_set(0, toy.streams[1], 1, one, NULL, &buffers);
    pass_once(&pass, &io, &d);
    is_status(packed_set(0, toy.streams[1], 1, one, NULL, &buffers),
              GH_ERR_STATE, &err, "nor once a pass has run");
    pass.direction = GH_BACKWARD;
    pass_once(&pass, &io, &d);
    packed.stream = toy.streams[0];
    is_status(gh_packed_set(toy.session, &packed, &buffers, &err),
              GH_ERR_INVALID, &err, "bank 0 holds no sequences");
    packed.bank = 7;
    is_status(gh_packed_set(toy.session, &packed, &buffers, &err),
              GH_ERR_NOT_FOUND, &err, "there is no bank 7");
    packed.bank = packed_bank;
    packed.chunk = 1;
    is_status(gh_packed_set(toy.session, &packed, &buffers, &err),
              GH_ERR_NOT_FOUND, &err, "nor a chunk 1");
    packed.chunk = 0;
    packed.microbatch = GH_MAX_MICROBATCHES;
    is_status(gh_packed_set(toy.session, &packed, &buffers, &err),
              GH_ERR_INVALID, &err, "nor a microbatch of that number");
    packed.microbatch = 0;
    packed.flags = 2;
    is_status(gh_packed_set(toy.session, &packed, &buffers, &err),
              GH_ERR_INVALID, &err, "nor such a flag");
    packed.flags = 0;
    packed.n_sequences = 1;
    is_status(gh_packed_set(toy.session, &packed, &buffers, &err),
              GH_ERR_INVALID, &err, "nor a sequence without a length");
    is_status(gh_packed_set(toy.session, NULL, &buffers, &err), GH_ERR_INVALID,
              &err, "nothing at all is refused");
    is_status(gh_packed_set(toy.session, &packed, NULL, &err), GH_ERR_INVALID,
              &err, "and nowhere to say it");
    packed_finish("out of turn");
}

static void test_a_launch_that_fails(void)
{
    static const int32_t a[] = { 3 };
    gh_packed_buffers buffers;
    const struct io io = { .n_inputs = 0 };
    gh_decision d;
    gh_pass pass;

    if (!packed_begin((struct toy_options){ .layers = 1 })) {
        return;
    }
    packed_set(0, toy.streams[0], 1, a, NULL, &buffers);
    packed_read(0, toy.streams[0], &buffers);
    toy_configure(&toy, "SEED=0 RACES=1 FAIL=cuLaunchKernel:1:999");
    is_status(packed_set(0, toy.streams[0], 1, a, NULL, &buffers),
              GH_ERR_DEVICE, &err, "a launch that fails is told");
    pass = a_pass(0, GH_FORWARD, 0, toy.streams[0], &io);
    pass.bank = packed_bank;
    pass_once(&pass, &io, &d);
    is_int(d.reason, GH_REASON_PACKED, "and the microbatch runs eagerly");
    packed_finish("a failed launch");
}

int main(void)
{
    int status;

    if (!toy_probe_soft(&status)) {
        return status;
    }
    test_refusals();
    test_no_size_of_cp();
    test_pieces_of_two_ranks();
    test_what_was_there_is_spoilt();
    test_out_of_turn();
    test_a_launch_that_fails();
    return done_testing();
}
