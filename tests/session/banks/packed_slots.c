/*
 * Sequences lie in the slot of their microbatch, or in arrays of its own.
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/packed.h"
#include "tap/tap.h"

#include <string.h>

static void test_microbatches_without_a_slot(void)
{
    static const int32_t a[] = { 3 }, b[] = { 4, 5 }, c[] = { 9 };
    static const struct packed_found wanted[] = {
        { { 0, 4, 9, 9, 9, 9 }, { 0, 4, 9, 32, 32, 32 }, 5, 2 },
        { { 0, 9, 9, 9, 9, 9 }, { 0, 9, 32, 32, 32, 32 }, 9, 1 },
    };
    gh_packed_buffers in_slot, buffers[2];
    uint64_t bytes = 0;
    gh_decision d;

    if (!packed_begin((struct toy_options){ .layers = 1, .max_slots = 1 })) {
        return;
    }
    for (uint32_t step = 0; step < 3; step++) {
        packed_set(0, toy.streams[0], 1, a, NULL, &in_slot);
        is_status(packed_set(1, toy.streams[1], 2, b, NULL, &buffers[0]), GH_OK,
                  &err, "a microbatch without a slot has sequences");
        is_status(packed_set(2, toy.streams[2], 1, c, NULL, &buffers[1]), GH_OK,
                  &err, "and so has another");
        is_int(buffers[0].slot, GH_SLOT_NONE, "as it is told");
        ok(buffers[0].cu_seqlens.address != buffers[1].cu_seqlens.address,
           "each in arrays of its own");
        d = packed_read(1, toy.streams[1], &buffers[0]);
        is_int(d.reason, GH_REASON_BUSY, "it runs eagerly");
        packed_is_found(GH_SLOT_NONE, 1, &wanted[0], "and reads its own");
        packed_read(2, toy.streams[2], &buffers[1]);
        packed_is_found(GH_SLOT_NONE, 2, &wanted[1], "as does the other");
        packed_read(0, toy.streams[0], &in_slot);
        gh_iteration_end(toy.session, NULL);
        ok(step == 0 || toy_stats(&toy).static_bytes == bytes,
           "a step takes the arrays of the one before");
        bytes = toy_stats(&toy).static_bytes;
    }
    packed_finish("without a slot");
}

/* The device is not waited for, so that only the library's waits keep the next
 * step from writing while the backward of this one still reads. */
static void test_a_backward_on_another_stream(void)
{
    static const int32_t a[] = { 3 }, b[] = { 4, 5 };
    gh_packed_buffers in_slot, buffers;

    if (!packed_begin((struct toy_options){ .layers = 1, .max_slots = 1 })) {
        return;
    }
    for (uint32_t step = 0; step < 3; step++) {
        packed_set(0, toy.streams[0], 1, a, NULL, &in_slot);
        packed_set(1, toy.streams[1], 2, b, NULL, &buffers);
        is_int(buffers.slot, GH_SLOT_NONE, "a microbatch has no slot");
        packed_read_across(1, toy.streams[1], toy.streams[2], &buffers);
        packed_read(0, toy.streams[0], &in_slot);
        gh_iteration_end(toy.session, NULL);
    }
    packed_finish("its backward is on another stream");
}

/* A schedule may give a microbatch its sequences while another one is still in
 * flight, and run it when that has gone. */
static void test_a_slot_that_comes_too_late(void)
{
    static const int32_t a[] = { 3 }, b[] = { 4, 5 };
    static const struct packed_found wanted[] = {
        { { 0, 3, 3, 3, 3, 3 }, { 0, 3, 32, 32, 32, 32 }, 3, 1 },
        { { 0, 4, 9, 9, 9, 9 }, { 0, 4, 9, 32, 32, 32 }, 5, 2 },
    };
    gh_packed_buffers first, second;
    gh_decision d;

    if (!packed_begin((struct toy_options){ .layers = 1, .max_slots = 1 })) {
        return;
    }
    for (uint32_t step = 0; step < 3; step++) {
        packed_set(0, toy.streams[0], 1, a, NULL, &first);
        packed_set(1, toy.streams[0], 2, b, NULL, &second);
        is_int(second.slot, GH_SLOT_NONE, "no slot is free for the second");
        d = packed_read(0, toy.streams[0], &first);
        is_int(d.action, step == 0 ? GH_ACTION_RECORD : GH_ACTION_REPLAYED,
               "the first has a graph, and leaves its slot");
        packed_is_found(0, 0, &wanted[0], "which has read its sequences");
        d = packed_read(1, toy.streams[0], &second);
        is_int(d.action, GH_ACTION_RUN, "the second runs eagerly all the same");
        is_int(d.reason, GH_REASON_BUSY, "as it had no slot");
        is_int(d.slot, GH_SLOT_NONE,
               "nor gets one where its sequences are not");
        packed_is_found(GH_SLOT_NONE, 1, &wanted[1], "and reads its own");
        gh_iteration_end(toy.session, NULL);
    }
    packed_finish("too late");
}

/* Enters and gives up the forward of microbatch 1. */
static gh_status try_forward(gh_decision *d)
{
    gh_pass pass = a_pass(0, GH_FORWARD, 1, toy.streams[0], &no_io);
    gh_status status;

    pass.bank = packed_bank;
    *d = (gh_decision){ .struct_size = sizeof(*d) };
    status = gh_layer_enter(toy.session, &pass, d, &err);
    if (status == GH_OK) {
        gh_layer_cancel(toy.session, NULL);
    }
    return status;
}

static void test_how_long_there_is_no_slot(void)
{
    static const int32_t a[] = { 3 }, b[] = { 4, 5 };
    static const struct packed_found wanted = {
        { 0, 4, 9, 9, 9, 9 }, { 0, 4, 9, 32, 32, 32 }, 5, 2
    };
    gh_packed_buffers first, second;
    gh_decision d;

    if (!packed_begin((struct toy_options){ .layers = 1, .max_slots = 1 })) {
        return;
    }
    for (uint32_t turn = 0; turn < 2; turn++) {
        packed_set(0, toy.streams[0], 1, a, NULL, &first);
        packed_set(1, toy.streams[0], 2, b, NULL, &second);
        packed_read(0, toy.streams[0], &first);
        is_status(try_forward(&d), GH_OK, &err, "a pass without a slot begins");
        is_int(d.slot, GH_SLOT_NONE, "and is given up");
        if (turn == 0) {
            d = packed_read(1, toy.streams[0], &second);
            is_int(d.slot, GH_SLOT_NONE, "the next has none either");
        } else {
            gh_iteration_end(toy.session, NULL);
        }
        is_status(try_forward(&d), GH_ERR_STATE, &err,
                  "after the %s it begins without its sequences",
                  turn == 0 ? "backward" : "step");
    }
    packed_set(0, toy.streams[0], 1, a, NULL, &first);
    packed_set(1, toy.streams[0], 2, b, NULL, &second);
    packed_read(0, toy.streams[0], &first);
    is_status(packed_set(1, toy.streams[0], 2, b, NULL, &second), GH_OK, &err,
              "sequences are given once more");
    is_int(second.slot, 0, "now in the slot that is free");
    d = packed_read(1, toy.streams[0], &second);
    is_int(d.action, GH_ACTION_REPLAYED, "where the graph");
    packed_is_found(0, 1, &wanted, "finds them");
    packed_finish("how long");
}

static void test_evaluation(void)
{
    static const int32_t a[] = { 3 };
    gh_packed packed = { .struct_size = sizeof(packed),
                         .flags = GH_PASS_FORWARD_ONLY,
                         .n_sequences = 1,
                         .lengths = a };
    gh_packed_buffers buffers = { .struct_size = sizeof(buffers) };
    const struct io io = { .n_inputs = 0 };
    gh_decision d;
    gh_pass pass;

    if (!packed_begin((struct toy_options){ .layers = 1, .max_slots = 1 })) {
        return;
    }
    packed.bank = packed_bank;
    packed.stream = toy.streams[0];
    is_status(gh_packed_set(toy.session, &packed, &buffers, &err), GH_OK, &err,
              "an evaluation has sequences");
    is_int(buffers.slot, GH_SLOT_NONE, "and takes no slot");
    pass = a_pass(0, GH_FORWARD, 0, toy.streams[0], &io);
    pass.bank = packed_bank;
    pass.flags = GH_PASS_FORWARD_ONLY;
    is_status(pass_once(&pass, &io, &d), GH_OK, &err, "nor do its passes");
    packed_finish("evaluation");
}

/* ---- captures of the host's ---------------------------------------------- */

static void fly(uint32_t of_bank, CUstream stream, uint32_t slot,
                const char *name)
{
    gh_decision d;

    for (gh_direction way = GH_FORWARD; way <= GH_BACKWARD; way++) {
        gh_pass pass = a_pass(0, way, 0, stream, &no_io);
        gh_status status;

        pass.bank = of_bank;
        do {
            status = pass_once(&pass, &no_io, &d);
        } while (status == GH_RERUN);
        is_status(status, GH_OK, &err, "%s goes %s", name,
                  way == GH_FORWARD ? "forward" : "backward");
        is_int(d.slot, slot, "in its slot, or in none");
    }
}

/* The slot's flight before was of sequences, which says nothing of one that
 * does not begin in it. */
static void test_a_slot_that_is_given_up(void)
{
    static const int32_t one[] = { 3 };
    gh_packed_buffers buffers;
    gh_decision d;
    gh_pass pass;

    if (!packed_begin((struct toy_options){ .layers = 1, .max_slots = 1 })) {
        return;
    }
    packed_set(0, toy.streams[0], 1, one, NULL, &buffers);
    fly(packed_bank, toy.streams[0], 0, "a microbatch with sequences");
    toy.drv.cuStreamBeginCapture(toy.streams[0],
                                 CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    fly(0, toy.streams[0], GH_SLOT_NONE, "one that the host captures");
    is_int(end_capture(toy.streams[0]), CUDA_SUCCESS, "the capture ends");
    fly(0, toy.streams[0], 0, "the next one");
    packed_set(0, toy.streams[0], 1, one, NULL, &buffers);
    fly(packed_bank, toy.streams[0], 0, "one with sequences");
    pass = a_pass(0, GH_FORWARD, 0, toy.streams[1], &no_io);
    toy_configure(&toy, "SEED=0 RACES=1 FAIL=cuStreamWaitEvent:1:999,"
                        "cuStreamSynchronize:1:999");
    is_status(pass_once(&pass, &no_io, &d), GH_ERR_DEVICE, &err,
              "a wait for it that fails is told");
    toy_configure(&toy, "SEED=0 RACES=1");
    fly(0, toy.streams[1], 0, "the same microbatch again");
    packed_finish("given up");
}

static void test_the_host_captures(void)
{
    static const int32_t one[] = { 3 };
    gh_packed packed = { .struct_size = sizeof(packed),
                         .flags = GH_PASS_FORWARD_ONLY,
                         .n_sequences = 1,
                         .lengths = one };
    gh_packed_buffers buffers = { .struct_size = sizeof(buffers) };

    if (!packed_begin((struct toy_options){ .layers = 1, .max_slots = 1 })) {
        return;
    }
    for (uint32_t i = 0; i < 2; i++) {
        packed_set(0, toy.streams[i], 1, one, NULL, &buffers);
        packed_set(1, toy.streams[i], 1, one, NULL, &buffers);
        fly(packed_bank, toy.streams[i], 0, "a microbatch");
        gh_iteration_end(toy.session, NULL);
    }
    toy.drv.cuStreamBeginCapture(toy.streams[2],
                                 CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    is_status(packed_set(0, toy.streams[2], 1, one, NULL, &buffers),
              GH_ERR_UNSUPPORTED, &err,
              "sequences are not written by a graph of the host's");
    ok(strstr(err.text, "is capturing") != NULL, "in words: %s", err.text);
    packed.bank = packed_bank;
    packed.stream = toy.streams[2];
    buffers = (gh_packed_buffers){ .struct_size = sizeof(buffers) };
    is_status(gh_packed_set(toy.session, &packed, &buffers, &err),
              GH_ERR_UNSUPPORTED, &err, "nor are those of an evaluation");
    fly(packed_bank, toy.streams[2], GH_SLOT_NONE,
        "the microbatch without them");
    is_int(end_capture(toy.streams[2]), CUDA_SUCCESS,
           "the capture is none the worse");
    packed_finish("captured");
}

int main(void)
{
    int status;

    if (!toy_probe_soft(&status)) {
        return status;
    }
    test_microbatches_without_a_slot();
    test_a_backward_on_another_stream();
    test_a_slot_that_comes_too_late();
    test_how_long_there_is_no_slot();
    test_evaluation();
    test_a_slot_that_is_given_up();
    test_the_host_captures();
    return done_testing();
}
