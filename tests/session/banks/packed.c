/*
 * Graphs read where a microbatch's own sequences begin, and never another's.
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/packed.h"
#include "tap/tap.h"

#include <stdlib.h>

static void test_graphs_read_the_microbatch_at_hand(void)
{
    static const int32_t a[] = { 7, 0, 5 }, a_padded[] = { 8, 0, 8 };
    static const int32_t b[] = { 32 }, c[] = { 1, 2, 3, 4 };
    static const struct packed_found wanted[] = {
        { { 0, 7, 7, 12, 12, 12 }, { 0, 8, 8, 16, 32, 32 }, 7, 3 },
        { { 0, 32, 32, 32, 32, 32 }, { 0, 32, 32, 32, 32, 32 }, 32, 1 },
        { { 0, 1, 3, 6, 10, 10 }, { 0, 1, 3, 6, 10, 32 }, 4, 4 },
        { { 0, 0, 0, 0, 0, 0 }, { 0, 32, 32, 32, 32, 32 }, 0, 0 },
    };
    gh_packed_buffers buffers;
    gh_decision d;
    void *first = NULL;

    if (!packed_begin((struct toy_options){ .layers = 1 })) {
        return;
    }
    for (uint32_t i = 0; i < 8; i++) {
        const uint32_t k = i % 4;

        is_status(
            k == 0   ? packed_set(0, toy.streams[0], 3, a, a_padded, &buffers)
            : k == 1 ? packed_set(0, toy.streams[0], 1, b, NULL, &buffers)
            : k == 2 ? packed_set(0, toy.streams[0], 4, c, NULL, &buffers)
                     : packed_set(0, toy.streams[0], 0, NULL, NULL, &buffers),
            GH_OK, &err, "sequences are given");
        d = packed_read(0, toy.streams[0], &buffers);
        is_int(d.action, i == 0 ? GH_ACTION_RECORD : GH_ACTION_REPLAYED,
               "the pass is %s", i == 0 ? "recorded" : "replayed");
        is_int(buffers.slot, d.slot, "in the slot that was told");
        ok(i == 0 || buffers.cu_seqlens.address == first,
           "which has its arrays at one place");
        first = buffers.cu_seqlens.address;
        packed_is_found(d.slot, 0, &wanted[k],
                        "and the device has these alone");
    }
    is_int(calls_of("cuLaunchKernel"), 8, "each by one launch");
    packed_finish("sequences");
}

static void test_more_than_one_launch_takes(void)
{
    const uint32_t n = 1100, room = n + 2;
    int32_t *lengths = malloc(n * sizeof(*lengths));
    int32_t *found = malloc(2 * room * sizeof(*found));
    gh_packed_buffers buffers;
    int32_t sum = 0;
    uint32_t wrong = 0;

    if (!packed_begin((struct toy_options){ .layers = 1 })) {
        return;
    }
    packed_bank = packed_add_bank(1, 8 * n, n);
    for (uint32_t i = 0; i < n; i++) {
        lengths[i] = (int32_t)(i * 7 % 9);
    }
    is_status(packed_set(0, toy.streams[0], n, lengths, NULL, &buffers), GH_OK,
              &err, "1100 sequences are given");
    is_int(calls_of("cuLaunchKernel"), 3, "in three launches");
    toy.drv.cuCtxSynchronize();
    toy.drv.cuMemcpyDtoH(found, (uintptr_t)buffers.cu_seqlens.address,
                         room * sizeof(*found));
    toy.drv.cuMemcpyDtoH(found + room,
                         (uintptr_t)buffers.cu_seqlens_padded.address,
                         room * sizeof(*found));
    for (uint32_t i = 0; i <= n; i++) {
        wrong += found[i] != sum || found[room + i] != sum;
        sum += i < n ? lengths[i] : 0;
    }
    is_int(wrong, 0, "each begins where the one before ends");
    is_int(found[n + 1], sum, "the one after them has no token");
    is_int(found[room + n + 1], (int32_t)(8 * n), "and covers the rest");
    free(lengths);
    free(found);
    packed_finish("many");
}

/* ---- memory of other banks ----------------------------------------------- */

static void run_pass_of_bank(gh_pass *pass)
{
    gh_decision d;
    gh_status status;

    do {
        status = pass_once(pass, &no_io, &d);
    } while (status == GH_RERUN);
    if (status != GH_OK) {
        ok(false, "a pass: %s", err.text);
    }
}

/* A forward of a bank without sequences, of one word and room for many, and
 * its backward; its graph leaves all that there is room for in packed_results.
 */
static gh_decision read_short_input(uint32_t plain)
{
    const uint64_t capacity = 1024;
    const gh_buffer input = buffer(2, sizeof(uint32_t), 0);
    const struct io io = { .inputs = &input, .n_inputs = 1 };
    gh_decision d = { .struct_size = sizeof(d) };
    gh_pass pass = a_pass(0, GH_FORWARD, 0, toy.streams[0], &io);
    gh_status status;

    pass.bank = plain;
    pass.capacities = &capacity;
    do {
        status = gh_layer_enter(toy.session, &pass, &d, &err);
        if (status == GH_OK && d.action == GH_ACTION_RECORD) {
            packed_copy(packed_results, &d.inputs[0], d.stream);
        }
        if (status == GH_OK) {
            status = gh_layer_exit(toy.session, &pass, &err);
        }
    } while (status == GH_RERUN);
    pass = a_pass(0, GH_BACKWARD, 0, toy.streams[0], &no_io);
    pass.bank = plain;
    run_pass_of_bank(&pass);
    return d;
}

/* Sequences may lie where another bank's input is copied to, and are not to be
 * found behind one that is shorter than its capacity. */
static void test_sequences_and_short_inputs_share_memory(void)
{
    static const int32_t one[] = { 3 }, large[] = { PACKED_TOKENS + 1 };
    const gh_bank_desc desc = { .struct_size = sizeof(desc),
                                .tokens = PACKED_TOKENS };
    const struct io io = { .n_inputs = 0 };
    gh_packed_buffers buffers;
    uint32_t plain = 0, found[256], strange;
    gh_pass pass;

    if (!packed_begin((struct toy_options){ .layers = 1, .max_slots = 1 })) {
        return;
    }
    gh_bank_add(toy.session, &desc, &plain, &err);
    read_short_input(plain);
    read_short_input(plain);
    for (uint32_t refused = 0; refused < 2; refused++) {
        packed_set(0, toy.streams[0], 1, refused ? large : one, NULL, &buffers);
        for (gh_direction way = GH_FORWARD; way <= GH_BACKWARD; way++) {
            pass = a_pass(0, way, 0, toy.streams[0], &io);
            pass.bank = packed_bank;
            run_pass_of_bank(&pass);
        }
        is_int(read_short_input(plain).action, GH_ACTION_REPLAYED,
               "a short input is replayed after sequences %s",
               refused ? "that were refused" : "of another bank");
        toy.drv.cuCtxSynchronize();
        toy.drv.cuMemcpyDtoH(found, packed_results, sizeof(found));
        strange = 0;
        for (uint32_t i = 1; i < 256; i++) {
            strange += found[i] != 0;
        }
        is_int(strange, 0, "and finds zeros behind it");
    }
    is_int(toy_stats(&toy).static_bytes, 1024, "in the memory that they had");
    packed_finish("shared memory");
}

int main(void)
{
    int status;

    if (!toy_probe_soft(&status)) {
        return status;
    }
    test_graphs_read_the_microbatch_at_hand();
    test_more_than_one_launch_takes();
    test_sequences_and_short_inputs_share_memory();
    return done_testing();
}
