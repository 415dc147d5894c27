/*
 * A graph reads what its pass was given: every byte of every input, also
 * where the address or the chain is another one than before.
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/by_hand.h"
#include "tap/tap.h"

#include <stdlib.h>
#include <string.h>

static const char *const aloud[] = { "GRAPHHOOKS_LOG=warn", NULL };

#define PITCH 640 /* bytes from one input to the next */
#define ALL ((size_t)GH_MAX_BUFFERS * PITCH)

/* Two sets of inputs, and where a pass leaves what it has read. */
static struct {
    CUdeviceptr sets[2], result;
    unsigned char *values[2], *read;
} data;

static uint64_t bytes_of(uint32_t i)
{
    return 4 * (1 + i * 37 % 150); /* 4 to 600 */
}

static bool open_data(void)
{
    for (uint32_t set = 0; set < 2; set++) {
        data.values[set] = malloc(ALL);
        for (size_t i = 0; i < ALL; i++) {
            data.values[set][i] = (unsigned char)(i * 7 + i / 251 + 101 * set);
        }
        toy.drv.cuMemAlloc(&data.sets[set], ALL);
        toy.drv.cuMemcpyHtoD(data.sets[set], data.values[set], ALL);
    }
    data.read = malloc(ALL);
    toy.drv.cuCtxSynchronize();
    return toy.drv.cuMemAlloc(&data.result, ALL) == CUDA_SUCCESS;
}

static void close_data(void)
{
    for (uint32_t set = 0; set < 2; set++) {
        toy.drv.cuMemFree(data.sets[set]);
        free(data.values[set]);
    }
    toy.drv.cuMemFree(data.result);
    free(data.read);
}

static gh_buffer input(uint32_t set, uint32_t i)
{
    return (gh_buffer){ (void *)(uintptr_t)(data.sets[set] + i * PITCH),
                        bytes_of(i), 0, 0 };
}

/* A forward that copies each of its inputs to the result, and its backward. */
static gh_decision read_inputs(uint32_t m, const gh_buffer *in, uint32_t n)
{
    const struct io io = { .inputs = in, .n_inputs = n };
    gh_pass pass = a_pass(0, GH_FORWARD, m, toy.streams[0], &io);
    gh_decision d = { .struct_size = sizeof(d) };

    toy.drv.cuMemsetD8Async(data.result, 0xee, ALL, toy.streams[0]);
    gh_layer_enter(toy.session, &pass, &d, &err);
    for (uint32_t i = 0; i < n && d.action != GH_ACTION_REPLAYED; i++) {
        toy.drv.cuMemcpyDtoDAsync(data.result + i * PITCH,
                                  (uintptr_t)d.inputs[i].address, in[i].bytes,
                                  d.stream);
    }
    gh_layer_exit(toy.session, &pass, &err);
    run(0, GH_BACKWARD, m, toy.streams[0]);
    return d;
}

/* How many of the inputs were read otherwise than from sets[i % 2]. */
static uint32_t wrong_of(uint32_t n, const uint32_t sets[2])
{
    uint32_t wrong = 0;

    toy.drv.cuCtxSynchronize();
    toy.drv.cuMemcpyDtoH(data.read, data.result, ALL);
    for (uint32_t i = 0; i < n; i++) {
        const size_t at = (size_t)i * PITCH;

        wrong += memcmp(data.read + at, data.values[sets[i % 2]] + at,
                        bytes_of(i)) != 0 ||
                 data.read[at + bytes_of(i)] != 0xee;
    }
    return wrong;
}

static void copies_all(uint32_t n)
{
    static const uint32_t turns[][2] = {
        { 0, 0 }, { 1, 1 }, { 0, 1 }, { 1, 0 }
    };
    gh_buffer in[GH_MAX_BUFFERS];
    uint64_t bytes = 0;

    if (!start((struct toy_options){ .layers = 1 }) || !open_data()) {
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        bytes += bytes_of(i);
    }
    for (uint32_t turn = 0; turn < 4; turn++) {
        gh_decision d;

        for (uint32_t i = 0; i < n; i++) {
            in[i] = input(turns[turn][i % 2], i);
        }
        d = read_inputs(turn, in, n);
        is_int(d.action, turn == 0 ? GH_ACTION_RECORD : GH_ACTION_REPLAYED,
               "a pass of %u inputs is %s", n,
               turn == 0 ? "recorded" : "replayed, as they have moved");
        is_int(d.n_inputs, n, "the decision has as many");
        is_int(wrong_of(n, turns[turn]), 0,
               "and has read all of them, to the byte (%u)", turn);
    }
    is_int(toy_stats(&toy).copies, 4 * (1 + (n - 1) / 128),
           "%u inputs are one launch for each 128 of a pass", n);
    is_int(toy_stats(&toy).copied_bytes, 4 * bytes,
           "of which every byte is counted");
    close_data();
    toy_close(&toy);
}

#define MANY 200 /* two launches of copies */
#define MOVED 140

/* Of the inputs from `first` to `end`: those not read from the set. */
static uint32_t wrong_from(uint32_t set, uint32_t first, uint32_t end)
{
    uint32_t wrong = 0;

    toy.drv.cuCtxSynchronize();
    toy.drv.cuMemcpyDtoH(data.read, data.result, ALL);
    for (uint32_t i = first; i < end; i++) {
        const size_t at = (size_t)i * PITCH;

        wrong += memcmp(data.read + at, data.values[set] + at, bytes_of(i)) != 0;
    }
    return wrong;
}

/* What was copied the last time, and is in place now, is not copied again. */
static void test_fewer_copies_than_before(void)
{
    gh_buffer in[MANY];
    uint64_t before, bytes = 0;
    gh_decision d;

    if (!start((struct toy_options){ .layers = 1 }) || !open_data()) {
        return;
    }
    for (uint32_t turn = 0; turn < 2; turn++) {
        for (uint32_t i = 0; i < MANY; i++) {
            in[i] = input(1, i);
        }
        d = read_inputs(turn, in, MANY);
    }
    for (uint32_t i = 0; i < MOVED; i++) {
        in[i] = input(0, i);
        bytes += bytes_of(i);
    }
    for (uint32_t i = MOVED; i < MANY; i++) {
        in[i].address = d.inputs[i].address;
        toy.drv.cuMemcpyDtoDAsync((uintptr_t)in[i].address,
                                  (uintptr_t)input(0, i).address, bytes_of(i),
                                  toy.streams[0]);
    }
    before = toy_stats(&toy).copied_bytes;
    d = read_inputs(2, in, MANY);
    is_int(d.action, GH_ACTION_REPLAYED, "inputs are partly in place");
    is_int(wrong_from(0, 0, MOVED), 0, "those that have moved are copied");
    is_int(wrong_from(0, MOVED, MANY), 0, "the others are left alone");
    is_int(toy_stats(&toy).copied_bytes - before, bytes, "and not counted");
    close_data();
    toy_close(&toy);
}

/* The first of two launches: the second goes well. */
static void test_a_launch_of_copies_that_fails(void)
{
    gh_buffer in[MANY];
    gh_decision d;

    if (!start((struct toy_options){ .layers = 1 }) || !open_data()) {
        return;
    }
    for (uint32_t turn = 0; turn < 2; turn++) {
        for (uint32_t i = 0; i < MANY; i++) {
            in[i] = input(turn, i);
        }
        toy_configure(&toy, turn == 1 ? "FAIL=cuLaunchKernel:1" : "");
        d = read_inputs(turn, in, MANY);
    }
    toy_configure(&toy, "");
    is_int(d.reason, GH_REASON_DEVICE,
           "a pass whose inputs were not all copied runs eagerly");
    is_int(wrong_from(1, 0, MANY), 0, "and reads what it was given");
    close_data();
    toy_close(&toy);
}

/* The host has put the input where the graph reads it. */
static void test_nothing_is_copied_twice(void)
{
    static const uint32_t second[2] = { 1, 1 };
    gh_buffer in, in_place;
    gh_decision d;

    if (!start((struct toy_options){ .layers = 1 }) || !open_data()) {
        return;
    }
    in = input(0, 0);
    d = read_inputs(0, &in, 1);
    in_place = d.inputs[0];
    in_place.flags = 0;
    read_inputs(1, &in, 1);
    is_int(toy_stats(&toy).copies, 2, "an input is copied in each pass");
    toy.drv.cuMemcpyDtoDAsync((uintptr_t)in_place.address, data.sets[1],
                              in.bytes, toy.streams[0]);
    is_int(read_inputs(2, &in_place, 1).action, GH_ACTION_REPLAYED,
           "one that the host has put there itself is read in place");
    is_int(wrong_of(1, second), 0,
           "and the pass before has copied nothing "
           "over it");
    is_int(toy_stats(&toy).copies, 2, "nor is a copy counted");
    close_data();
    toy_close(&toy);
}

/* Sizes whose sum, or whose alignment, has more than 64 bits. */
static void test_sizes_that_no_device_has(void)
{
    static const uint64_t sizes[][2] = {
        { UINT64_MAX - 255, 512 },
        { UINT64_MAX, 128 },
        { UINT64_C(1) << 63, (UINT64_C(1) << 63) + 256 },
        { 512, UINT64_MAX - 511 },
    };

    for (uint32_t i = 0; i < 4; i++) {
        gh_buffer in[2];
        struct io io = { .inputs = in, .n_inputs = 2 };
        gh_pass pass;
        gh_decision d = { .struct_size = sizeof(d) };

        if (!start((struct toy_options){ .layers = 1,
                                      .host = &hearing,
                                      .environment = aloud })) {
            return;
        }
        said[0] = '\0';
        in[0] = buffer(0, sizes[i][0], 0);
        in[1] = buffer(2, sizes[i][1], 0);
        pass = a_pass(0, GH_FORWARD, 0, toy.streams[0], &io);
        is_status(gh_layer_enter(toy.session, &pass, &d, &err), GH_OK, &err,
                  "inputs of %llu and %llu bytes are entered",
                  (unsigned long long)sizes[i][0],
                  (unsigned long long)sizes[i][1]);
        is_int(d.action, GH_ACTION_RUN, "and not recorded");
        gh_layer_cancel(toy.session, NULL);
        gh_iteration_end(toy.session, NULL);
        is_int(toy.drv.cuCtxSynchronize(), CUDA_SUCCESS,
               "nothing is copied, and the context is well");
        is_int(times_said("bytes, which no device has"), 1, "it is said: %s",
               said);
        toy_close(&toy);
    }
}

static void test_outputs_that_no_device_has(void)
{
    gh_buffer out[2];
    const struct io io = { .outputs = out, .n_outputs = 2 };
    gh_decision d = { .struct_size = sizeof(d) };
    gh_pass pass;

    if (!start((struct toy_options){ .layers = 1,
                                      .host = &hearing,
                                      .environment = aloud })) {
        return;
    }
    said[0] = '\0';
    out[0] = buffer(0, 128, 0);
    out[1] = buffer(2, UINT64_MAX - 127, 0);
    pass = a_pass(0, GH_FORWARD, 0, toy.streams[0], &io);
    gh_layer_enter(toy.session, &pass, &d, &err);
    toy.drv.cuMemsetD8Async((uintptr_t)out[0].address, 1, 128, d.stream);
    is_status(gh_layer_exit(toy.session, &pass, &err), GH_RERUN, &err,
              "a pass with such an output is to be run again");
    gh_iteration_end(toy.session, NULL);
    is_int(times_said("gh_pass.outputs[1] has 18446744073709551488 bytes"), 1,
           "it is said: %s", said);
    toy_close(&toy);
}

static gh_decision forward(uint32_t segment, uint32_t m, const gh_buffer *in,
                           uint32_t n)
{
    const struct io io = { .inputs = in, .n_inputs = n };
    gh_decision d = run_with(segment, GH_FORWARD, m, toy.streams[0], &io);

    run(segment, GH_BACKWARD, m, toy.streams[0]);
    return d;
}

/* A graph of n bytes reads n, whatever is there now. */
static void test_a_size_at_the_same_address(void)
{
    static const uint64_t others[] = { 252, 260, 0 };
    gh_buffer in[2];

    if (!start((struct toy_options){ .layers = 1 })) {
        return;
    }
    in[0] = buffer(0, 256, GH_BUFFER_STATIC);
    in[1] = buffer(2, 256, GH_BUFFER_STATIC);
    is_int(forward(0, 0, in, 2).action, GH_ACTION_RECORD,
           "two static inputs are recorded");
    for (uint32_t k = 0; k < 2; k++) {
        for (uint32_t i = 0; i < 3; i++) {
            gh_decision d;

            in[k].bytes = others[i];
            d = forward(0, 1, in, 2);
            is_int(d.action, GH_ACTION_RUN,
                   "input %u of %llu bytes at the same address is not "
                   "replayed",
                   k, (unsigned long long)others[i]);
            is_int(d.reason, GH_REASON_INPUT, "and the reason says so");
        }
        in[k].bytes = 256;
    }
    is_int(forward(0, 2, in, 2).action, GH_ACTION_REPLAYED,
           "with its own sizes it is replayed");
    toy_close(&toy);
}

/* Also where the size comes after an input that has moved. */
static void test_a_size_after_an_input_that_moved(void)
{
    gh_buffer in[2];

    if (!start((struct toy_options){ .layers = 1 })) {
        return;
    }
    in[0] = buffer(0, 256, 0);
    in[1] = buffer(2, 256, GH_BUFFER_STATIC);
    forward(0, 0, in, 2);
    in[0] = buffer(4, 256, 0);
    is_int(forward(0, 1, in, 2).action, GH_ACTION_REPLAYED,
           "an input that moved is no matter");
    in[1].bytes = 128;
    is_int(forward(0, 2, in, 2).reason, GH_REASON_INPUT,
           "the size of a later one is");
    toy_close(&toy);
}

static gh_buffer between;
static const struct io writes = { .outputs = &between, .n_outputs = 1 };
static const struct io reads = { .inputs = &between, .n_inputs = 1 };

/* A microbatch of two segments, with a backward and a weight gradient of
 * segment 1 in this variant; what became of segment 1's passes. */
static void chain(uint32_t m, uint32_t variant, gh_action actions[3])
{
    run_with(0, GH_FORWARD, m, toy.streams[0], &writes);
    actions[0] = run_with(1, GH_FORWARD, m, toy.streams[0], &reads).action;
    for (gh_direction way = GH_BACKWARD; way <= GH_WGRAD; way++) {
        gh_pass pass = a_pass(1, way, m, toy.streams[0], &no_io);
        gh_decision d;

        pass.variant = variant;
        pass_once(&pass, &no_io, &d);
        actions[way] = d.action;
    }
    run(0, GH_BACKWARD, m, toy.streams[0]);
    run(0, GH_WGRAD, m, toy.streams[0]);
}

static void is_chain(uint32_t m, uint32_t variant, gh_action forward_is,
                     gh_action later_are, const char *what)
{
    gh_action actions[3];

    chain(m, variant, actions);
    is_int(actions[GH_FORWARD], forward_is, "%s: the forward", what);
    is_int(actions[GH_BACKWARD], later_are, "%s: the backward of variant %u",
           what, variant);
    is_int(actions[GH_WGRAD], later_are,
           "%s: the weight gradient of variant %u", what, variant);
}

/* All that follows a forward was recorded against what it had allocated. */
static void test_a_chain_that_moves_takes_all_that_follows(void)
{
    if (!start((struct toy_options){ .layers = 2,
                                     .flags = GH_SESSION_DELAY_WGRAD })) {
        return;
    }
    between = buffer(1, 16, 0);
    is_chain(0, 0, GH_ACTION_RECORD, GH_ACTION_RECORD, "recorded");
    is_chain(1, 1, GH_ACTION_REPLAYED, GH_ACTION_RECORD, "the other variant");
    is_chain(2, 0, GH_ACTION_REPLAYED, GH_ACTION_REPLAYED, "ready");
    is_chain(3, 1, GH_ACTION_REPLAYED, GH_ACTION_REPLAYED, "both ready");
    between = buffer(5, 16, 0);
    is_chain(4, 0, GH_ACTION_RECORD, GH_ACTION_RECORD, "moved");
    is_chain(5, 1, GH_ACTION_REPLAYED, GH_ACTION_RECORD,
             "moved, the other variant");
    is_chain(6, 0, GH_ACTION_REPLAYED, GH_ACTION_REPLAYED, "ready again");
    toy_close(&toy);
}

/* A pass that is eager for good is not tried again. */
static void test_a_chain_that_moves_mends_nothing(void)
{
    gh_pass pass;
    gh_decision d = { .struct_size = sizeof(d) };

    if (!start((struct toy_options){ .layers = 2 })) {
        return;
    }
    between = buffer(1, 16, 0);
    run_with(0, GH_FORWARD, 0, toy.streams[0], &writes);
    run_with(1, GH_FORWARD, 0, toy.streams[0], &reads);
    pass = a_pass(1, GH_BACKWARD, 0, toy.streams[0], &no_io);
    gh_layer_enter(toy.session, &pass, &d, &err);
    go_astray(d.stream);
    is_status(gh_layer_exit(toy.session, &pass, &err), GH_RERUN, &err,
              "a backward that does not join loses its recording");
    run(1, GH_BACKWARD, 0, toy.streams[0]);
    run(0, GH_BACKWARD, 0, toy.streams[0]);

    between = buffer(5, 16, 0);
    run_with(0, GH_FORWARD, 1, toy.streams[0], &writes);
    is_int(run_with(1, GH_FORWARD, 1, toy.streams[0], &reads).action,
           GH_ACTION_RECORD, "its forward is recorded anew");
    is_int(run(1, GH_BACKWARD, 1, toy.streams[0]).reason, GH_REASON_CAPTURE,
           "which does not make a new one of a backward that is eager for "
           "good");
    toy_close(&toy);
}

/* A host that overwrites an input while it is copied is found out. */
static void test_copies_say_what_they_touch(void)
{
    gh_buffer in;
    struct io io;

    if (!start((struct toy_options){ .layers = 1 })) {
        return;
    }
    in = buffer(0, 256, 0);
    io = (struct io){ .inputs = &in, .n_inputs = 1 };
    for (uint32_t m = 0; m < 2; m++) {
        run_with(0, GH_FORWARD, m, toy.streams[0], &io);
        run(0, GH_BACKWARD, m, toy.streams[0]);
    }
    is_int(toy_races(&toy), 0, "copies in the order of a stream do not race");
    toy.drv.cuMemsetD8Async((uintptr_t)in.address, 1, 256, toy.streams[1]);
    run_with(0, GH_FORWARD, 2, toy.streams[0], &io);
    ok(toy_races(&toy) > 0,
       "an input that another stream writes at the time is a race");
    toy_close(&toy);
}

int main(void)
{
    static const uint32_t numbers[] = { 1,  7,   8,   9,   17,  64,
                                        65, 127, 128, 129, 700, 1024 };
    const char *reason;

    if (!toy_probe(&toy, &reason)) {
        return skip_all("%s", reason);
    }
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        copies_all(numbers[i]);
    }
    test_fewer_copies_than_before();
    test_nothing_is_copied_twice();
    test_sizes_that_no_device_has();
    test_outputs_that_no_device_has();
    test_a_size_at_the_same_address();
    test_a_size_after_an_input_that_moved();
    test_a_chain_that_moves_takes_all_that_follows();
    test_a_chain_that_moves_mends_nothing();
    if (toy.soft) {
        test_copies_say_what_they_touch();
        test_a_launch_of_copies_that_fails();
    } else {
        skip(4, "only the software device reports races and fails calls");
    }
    return done_testing();
}
