/*
 * Graphs read where a microbatch's own sequences begin, and never another's.
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/by_hand.h"
#include "tap/tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOKENS 32
#define SEQUENCES 4
#define ROOM (SEQUENCES + 2)

static uint32_t bank;
static CUdeviceptr results; /* where passes leave what they have read */

/* What the device has. */
struct found {
    int32_t actual[ROOM], padded[ROOM], longest, count;
};
#define FOUND_BYTES 512 /* from one microbatch's to the next */

static uint32_t add_bank(uint32_t cp, uint32_t tokens, uint32_t sequences)
{
    const gh_bank_desc desc = { .struct_size = sizeof(desc),
                                .cp_size = cp,
                                .tokens = tokens,
                                .sequences = sequences,
                                .name = "packed" };
    uint32_t number = UINT32_MAX;

    is_status(gh_bank_add(toy.session, &desc, &number, &err), GH_OK, &err,
              "a bank of sequences is declared");
    return number;
}

static bool begin(struct toy_options options)
{
    if (!start(options)) {
        return false;
    }
    toy.drv.cuMemAlloc(&results, 64 * FOUND_BYTES);
    toy.drv.cuMemsetD8Async(results, 0, 64 * FOUND_BYTES, NULL);
    toy.drv.cuCtxSynchronize();
    bank = add_bank(1, TOKENS, SEQUENCES);
    return true;
}

static void finish(const char *what)
{
    is_int(toy_races(&toy), 0, "%s: nothing races", what);
    toy_detach(&toy);
    toy.drv.cuMemFree(results);
    toy_close(&toy);
    is_int(toy_counts(&toy).device_bytes, 0, "%s: no memory is left", what);
}

static gh_status set(uint32_t m, CUstream stream, uint32_t n,
                     const int32_t *lengths, const int32_t *padded,
                     gh_packed_buffers *buffers)
{
    const gh_packed packed = { .struct_size = sizeof(packed),
                               .bank = bank,
                               .microbatch = m,
                               .n_sequences = n,
                               .stream = stream,
                               .lengths = lengths,
                               .padded = padded };

    *buffers = (gh_packed_buffers){ .struct_size = sizeof(*buffers) };
    return gh_packed_set(toy.session, &packed, buffers, &err);
}

static void copy(CUdeviceptr to, const gh_buffer *from, CUstream stream)
{
    toy.drv.cuMemcpyDtoDAsync(to, (uintptr_t)from->address, from->bytes,
                              stream);
}

/* A slot's, or of a microbatch that has none. */
static CUdeviceptr result_at(uint32_t slot, uint32_t m)
{
    return results +
           (slot == GH_SLOT_NONE ? 16 + m : slot) * (CUdeviceptr)FOUND_BYTES;
}

/* A forward that reads all four, and its backward; its result is the slot's. */
static gh_decision read_all(uint32_t m, CUstream stream,
                            const gh_packed_buffers *b)
{
    const gh_buffer inputs[] = { b->cu_seqlens, b->cu_seqlens_padded,
                                 b->max_seqlen, b->n_sequences };
    const struct io io = { .inputs = inputs, .n_inputs = 4 };
    gh_decision forward, d;
    gh_status status;

    for (gh_direction way = GH_FORWARD; way <= GH_BACKWARD; way++) {
        gh_pass pass = a_pass(0, way, m, stream, &io);

        pass.bank = bank;
        do {
            d = (gh_decision){ .struct_size = sizeof(d) };
            status = gh_layer_enter(toy.session, &pass, &d, &err);
            if (status != GH_OK) {
                d.action = UINT32_MAX;
                return d;
            }
            if (d.action != GH_ACTION_REPLAYED) {
                const CUdeviceptr to = result_at(d.slot, m);

                copy(to, &d.inputs[0], d.stream);
                copy(to + sizeof(int32_t) * ROOM, &d.inputs[1], d.stream);
                copy(to + sizeof(int32_t) * 2 * ROOM, &d.inputs[2], d.stream);
                copy(to + sizeof(int32_t) * (2 * ROOM + 1), &d.inputs[3],
                     d.stream);
            }
            status = gh_layer_exit(toy.session, &pass, &err);
        } while (status == GH_RERUN);
        if (way == GH_FORWARD) {
            forward = d;
        }
    }
    return forward;
}

static struct found look(uint32_t slot, uint32_t m)
{
    struct found found;

    toy.drv.cuCtxSynchronize();
    toy.drv.cuMemcpyDtoH(&found, result_at(slot, m), sizeof(found));
    return found;
}

static void is_found(uint32_t slot, uint32_t m, const struct found *wanted,
                     const char *name)
{
    const struct found found = look(slot, m);

    if (!ok(memcmp(&found, wanted, sizeof(found)) == 0, "%s", name)) {
        for (uint32_t i = 0; i < ROOM; i++) {
            diag("%u: %d %d, expected %d %d", i, found.actual[i],
                 found.padded[i], wanted->actual[i], wanted->padded[i]);
        }
        diag("longest %d, count %d", found.longest, found.count);
    }
}

/* ---- what is written ----------------------------------------------------- */

static void test_graphs_read_the_microbatch_at_hand(void)
{
    static const int32_t a[] = { 7, 0, 5 }, a_padded[] = { 8, 0, 8 };
    static const int32_t b[] = { 32 }, c[] = { 1, 2, 3, 4 };
    static const struct found wanted[] = {
        { { 0, 7, 7, 12, 12, 12 }, { 0, 8, 8, 16, 32, 32 }, 7, 3 },
        { { 0, 32, 32, 32, 32, 32 }, { 0, 32, 32, 32, 32, 32 }, 32, 1 },
        { { 0, 1, 3, 6, 10, 10 }, { 0, 1, 3, 6, 10, 32 }, 4, 4 },
        { { 0, 0, 0, 0, 0, 0 }, { 0, 32, 32, 32, 32, 32 }, 0, 0 },
    };
    gh_packed_buffers buffers;
    gh_decision d;
    void *first = NULL;

    if (!begin((struct toy_options){ .layers = 1 })) {
        return;
    }
    for (uint32_t i = 0; i < 8; i++) {
        const uint32_t k = i % 4;

        is_status(k == 0   ? set(0, toy.streams[0], 3, a, a_padded, &buffers)
                  : k == 1 ? set(0, toy.streams[0], 1, b, NULL, &buffers)
                  : k == 2 ? set(0, toy.streams[0], 4, c, NULL, &buffers)
                           : set(0, toy.streams[0], 0, NULL, NULL, &buffers),
                  GH_OK, &err, "sequences are given");
        d = read_all(0, toy.streams[0], &buffers);
        is_int(d.action, i == 0 ? GH_ACTION_RECORD : GH_ACTION_REPLAYED,
               "the pass is %s", i == 0 ? "recorded" : "replayed");
        is_int(buffers.slot, d.slot, "in the slot that was told");
        ok(i == 0 || buffers.cu_seqlens.address == first,
           "which has its arrays at one place");
        first = buffers.cu_seqlens.address;
        is_found(d.slot, 0, &wanted[k], "and the device has these alone");
    }
    is_int(calls_of("cuLaunchKernel"), 8, "each by one launch");
    finish("sequences");
}

static void test_more_than_one_launch_takes(void)
{
    const uint32_t n = 1100, room = n + 2;
    int32_t *lengths = malloc(n * sizeof(*lengths));
    int32_t *found = malloc(2 * room * sizeof(*found));
    gh_packed_buffers buffers;
    int32_t sum = 0;
    uint32_t wrong = 0;

    if (!begin((struct toy_options){ .layers = 1 })) {
        return;
    }
    bank = add_bank(1, 8 * n, n);
    for (uint32_t i = 0; i < n; i++) {
        lengths[i] = (int32_t)(i * 7 % 9);
    }
    is_status(set(0, toy.streams[0], n, lengths, NULL, &buffers), GH_OK, &err,
              "1100 sequences are given");
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
    finish("many");
}

/* ---- what does not fit --------------------------------------------------- */

static void is_refused(gh_status expected, const char *words, uint32_t n,
                       const int32_t *lengths, const int32_t *padded,
                       const char *name)
{
    static const int32_t one[] = { 3 };
    gh_packed_buffers buffers;
    gh_decision d;

    is_status(set(0, toy.streams[0], n, lengths, padded, &buffers), expected,
              &err, "%s", name);
    ok(strstr(err.text, words) != NULL, "in words: %s", err.text);
    ok(buffers.cu_seqlens.address == NULL, "no place is told");
    d = run(0, GH_FORWARD, 0, toy.streams[0]);
    is_int(d.action, UINT32_MAX, "a pass of another bank is none of its");
    {
        const struct io io = { .n_inputs = 0 };
        gh_pass pass = a_pass(0, GH_FORWARD, 0, toy.streams[0], &io);

        pass.bank = bank;
        pass_once(&pass, &io, &d);
        is_int(d.reason, GH_REASON_PACKED,
               "its passes run eagerly, and say so");
        ok(d.slot != GH_SLOT_NONE, "in a slot");
        pass.direction = GH_BACKWARD;
        pass_once(&pass, &io, &d);
        is_int(d.reason, GH_REASON_PACKED, "in both directions");
    }
    set(0, toy.streams[0], 1, one, NULL, &buffers);
    d = read_all(0, toy.streams[0], &buffers);
    is_int(d.action, GH_ACTION_REPLAYED, "the next one is replayed");
}

static void test_refusals(void)
{
    static const int32_t one[] = { 3 }, many[] = { 1, 1, 1, 1, 1 };
    static const int32_t negative[] = { 4, -1 }, large[] = { 30, 3 };
    static const int32_t huge[] = { INT32_MAX, INT32_MAX };
    static const int32_t less[] = { 2 }, few[] = { 4, 4 }, wide[] = { 20, 20 };
    gh_packed_buffers buffers;

    if (!begin((struct toy_options){ .layers = 1 })) {
        return;
    }
    set(0, toy.streams[0], 1, one, NULL, &buffers);
    read_all(0, toy.streams[0], &buffers);
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
    finish("refusals");
}

static void test_pieces_of_two_ranks(void)
{
    static const int32_t lengths[] = { 5, 3 }, good[] = { 8, 4 };
    static const int32_t bad[] = { 8, 6 };
    gh_packed_buffers buffers;
    int32_t end;

    if (!begin((struct toy_options){ .layers = 1 })) {
        return;
    }
    bank = add_bank(2, 16, 4);
    is_status(set(0, toy.streams[0], 2, lengths, bad, &buffers),
              GH_ERR_INVALID, &err,
              "what two pieces on each of two ranks do not divide is refused");
    ok(strstr(err.text, "sequence 1 takes 6") != NULL &&
           strstr(err.text, "which 4") != NULL,
       "in words: %s", err.text);
    is_status(set(0, toy.streams[0], 2, lengths, good, &buffers), GH_OK, &err,
              "and what they divide is not");
    toy.drv.cuCtxSynchronize();
    toy.drv.cuMemcpyDtoH(
        &end, (uintptr_t)buffers.cu_seqlens_padded.address + 3 * sizeof(end),
        sizeof(end));
    is_int(end, 32, "the physical tokens are those of both ranks");
    finish("two ranks");
}

/* What was refused leaves nothing that looks like sequences. */
static void test_what_was_there_is_spoilt(void)
{
    static const int32_t one[] = { 3 }, large[] = { 33 };
    gh_packed_buffers buffers, none;
    int32_t first = 0;

    if (!begin((struct toy_options){ .layers = 1 })) {
        return;
    }
    set(0, toy.streams[0], 1, one, NULL, &buffers);
    read_all(0, toy.streams[0], &buffers);
    set(0, toy.streams[0], 1, large, NULL, &none);
    toy.drv.cuCtxSynchronize();
    toy.drv.cuMemcpyDtoH(&first, (uintptr_t)buffers.cu_seqlens.address,
                         sizeof(first));
    is_int(first, INT32_MIN, "the offsets of the microbatch before are gone");
    finish("spoilt");
}

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
 * its backward; its graph leaves all that there is room for in results. */
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
            copy(results, &d.inputs[0], d.stream);
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
    static const int32_t one[] = { 3 }, large[] = { TOKENS + 1 };
    const gh_bank_desc desc = { .struct_size = sizeof(desc),
                                .tokens = TOKENS };
    const struct io io = { .n_inputs = 0 };
    gh_packed_buffers buffers;
    uint32_t plain = 0, found[256], strange;
    gh_pass pass;

    if (!begin((struct toy_options){ .layers = 1, .max_slots = 1 })) {
        return;
    }
    gh_bank_add(toy.session, &desc, &plain, &err);
    read_short_input(plain);
    read_short_input(plain);
    for (uint32_t refused = 0; refused < 2; refused++) {
        set(0, toy.streams[0], 1, refused ? large : one, NULL, &buffers);
        for (gh_direction way = GH_FORWARD; way <= GH_BACKWARD; way++) {
            pass = a_pass(0, way, 0, toy.streams[0], &io);
            pass.bank = bank;
            run_pass_of_bank(&pass);
        }
        is_int(read_short_input(plain).action, GH_ACTION_REPLAYED,
               "a short input is replayed after sequences %s",
               refused ? "that were refused" : "of another bank");
        toy.drv.cuCtxSynchronize();
        toy.drv.cuMemcpyDtoH(found, results, sizeof(found));
        strange = 0;
        for (uint32_t i = 1; i < 256; i++) {
            strange += found[i] != 0;
        }
        is_int(strange, 0, "and finds zeros behind it");
    }
    is_int(toy_stats(&toy).static_bytes, 1024, "in the memory that they had");
    finish("shared memory");
}

static void test_out_of_turn(void)
{
    static const int32_t one[] = { 3 }, two[] = { 4, 5 };
    static const struct found wanted = { { 0, 4, 9, 9, 9, 9 },
                                         { 0, 4, 9, 32, 32, 32 }, 5, 2 };
    const struct io io = { .n_inputs = 0 };
    gh_packed packed = { .struct_size = sizeof(packed) };
    gh_packed_buffers buffers, none;
    gh_decision d;
    gh_pass pass;

    if (!begin((struct toy_options){ .layers = 1, .max_slots = 1 })) {
        return;
    }
    pass = a_pass(0, GH_FORWARD, 0, toy.streams[0], &io);
    pass.bank = bank;
    is_status(pass_once(&pass, &io, &d), GH_ERR_STATE, &err,
              "a microbatch that begins without its sequences is refused");
    ok(strstr(err.text, "gh_packed_set") != NULL, "in words: %s", err.text);
    is_status(set(0, toy.streams[0], 1, one, NULL, &buffers), GH_OK, &err,
              "they are given");
    is_int(buffers.slot, 0, "in a slot that the refusal has left free");
    go_over(toy.streams[0], toy.streams[1]);
    is_status(set(0, toy.streams[1], 2, two, NULL, &buffers), GH_OK, &err,
              "given again, from another stream");
    d = (gh_decision){ .struct_size = sizeof(d) };
    pass.stream = toy.streams[1];
    gh_layer_enter(toy.session, &pass, &d, &err);
    is_status(set(0, toy.streams[1], 2, two, NULL, &none), GH_ERR_STATE,
              &err, "not while a pass is open");
    gh_layer_cancel(toy.session, NULL);
    d = read_all(0, toy.streams[1], &buffers);
    is_int(d.slot, 0, "a pass that is given up leaves its slot to the next");
    is_found(0, 0, &wanted, "which reads what was given last");
    set(0, toy.streams[1], 1, one, NULL, &buffers);
    pass_once(&pass, &io, &d);
    is_status(set(0, toy.streams[1], 1, one, NULL, &buffers), GH_ERR_STATE,
              &err, "nor once a pass has run");
    pass.direction = GH_BACKWARD;
    pass_once(&pass, &io, &d);
    packed.stream = toy.streams[0];
    is_status(gh_packed_set(toy.session, &packed, &buffers, &err),
              GH_ERR_INVALID, &err, "bank 0 holds no sequences");
    packed.bank = 7;
    is_status(gh_packed_set(toy.session, &packed, &buffers, &err),
              GH_ERR_NOT_FOUND, &err, "there is no bank 7");
    packed.bank = bank;
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
    is_status(gh_packed_set(toy.session, NULL, &buffers, &err),
              GH_ERR_INVALID, &err, "nothing at all is refused");
    is_status(gh_packed_set(toy.session, &packed, NULL, &err), GH_ERR_INVALID,
              &err, "and nowhere to say it");
    finish("out of turn");
}

/* ---- without a slot ------------------------------------------------------ */

static void test_microbatches_without_a_slot(void)
{
    static const int32_t a[] = { 3 }, b[] = { 4, 5 }, c[] = { 9 };
    static const struct found wanted[] = {
        { { 0, 4, 9, 9, 9, 9 }, { 0, 4, 9, 32, 32, 32 }, 5, 2 },
        { { 0, 9, 9, 9, 9, 9 }, { 0, 9, 32, 32, 32, 32 }, 9, 1 },
    };
    gh_packed_buffers in_slot, buffers[2];
    uint64_t bytes = 0;
    gh_decision d;

    if (!begin((struct toy_options){ .layers = 1, .max_slots = 1 })) {
        return;
    }
    for (uint32_t step = 0; step < 3; step++) {
        set(0, toy.streams[0], 1, a, NULL, &in_slot);
        is_status(set(1, toy.streams[1], 2, b, NULL, &buffers[0]), GH_OK, &err,
                  "a microbatch without a slot has sequences");
        is_status(set(2, toy.streams[2], 1, c, NULL, &buffers[1]), GH_OK, &err,
                  "and so has another");
        is_int(buffers[0].slot, GH_SLOT_NONE, "as it is told");
        ok(buffers[0].cu_seqlens.address != buffers[1].cu_seqlens.address,
           "each in arrays of its own");
        d = read_all(1, toy.streams[1], &buffers[0]);
        is_int(d.reason, GH_REASON_BUSY, "it runs eagerly");
        is_found(GH_SLOT_NONE, 1, &wanted[0], "and reads its own");
        read_all(2, toy.streams[2], &buffers[1]);
        is_found(GH_SLOT_NONE, 2, &wanted[1], "as does the other");
        read_all(0, toy.streams[0], &in_slot);
        gh_iteration_end(toy.session, NULL);
        ok(step == 0 || toy_stats(&toy).static_bytes == bytes,
           "a step takes the arrays of the one before");
        bytes = toy_stats(&toy).static_bytes;
    }
    finish("without a slot");
}

/* A schedule may give a microbatch its sequences while another one is still in
 * flight, and run it when that has gone. */
static void test_a_slot_that_comes_too_late(void)
{
    static const int32_t a[] = { 3 }, b[] = { 4, 5 };
    static const struct found wanted[] = {
        { { 0, 3, 3, 3, 3, 3 }, { 0, 3, 32, 32, 32, 32 }, 3, 1 },
        { { 0, 4, 9, 9, 9, 9 }, { 0, 4, 9, 32, 32, 32 }, 5, 2 },
    };
    gh_packed_buffers first, second;
    gh_decision d;

    if (!begin((struct toy_options){ .layers = 1, .max_slots = 1 })) {
        return;
    }
    for (uint32_t step = 0; step < 3; step++) {
        set(0, toy.streams[0], 1, a, NULL, &first);
        set(1, toy.streams[0], 2, b, NULL, &second);
        is_int(second.slot, GH_SLOT_NONE, "no slot is free for the second");
        d = read_all(0, toy.streams[0], &first);
        is_int(d.action, step == 0 ? GH_ACTION_RECORD : GH_ACTION_REPLAYED,
               "the first has a graph, and leaves its slot");
        is_found(0, 0, &wanted[0], "which has read its sequences");
        d = read_all(1, toy.streams[0], &second);
        is_int(d.action, GH_ACTION_RUN, "the second runs eagerly all the same");
        is_int(d.reason, GH_REASON_BUSY, "as it had no slot");
        is_int(d.slot, GH_SLOT_NONE, "nor gets one where its sequences are not");
        is_found(GH_SLOT_NONE, 1, &wanted[1], "and reads its own");
        gh_iteration_end(toy.session, NULL);
    }
    finish("too late");
}

/* Enters and gives up the forward of microbatch 1. */
static gh_status try_forward(gh_decision *d)
{
    gh_pass pass = a_pass(0, GH_FORWARD, 1, toy.streams[0], &no_io);
    gh_status status;

    pass.bank = bank;
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
    static const struct found wanted = { { 0, 4, 9, 9, 9, 9 },
                                         { 0, 4, 9, 32, 32, 32 }, 5, 2 };
    gh_packed_buffers first, second;
    gh_decision d;

    if (!begin((struct toy_options){ .layers = 1, .max_slots = 1 })) {
        return;
    }
    for (uint32_t turn = 0; turn < 2; turn++) {
        set(0, toy.streams[0], 1, a, NULL, &first);
        set(1, toy.streams[0], 2, b, NULL, &second);
        read_all(0, toy.streams[0], &first);
        is_status(try_forward(&d), GH_OK, &err, "a pass without a slot begins");
        is_int(d.slot, GH_SLOT_NONE, "and is given up");
        if (turn == 0) {
            d = read_all(1, toy.streams[0], &second);
            is_int(d.slot, GH_SLOT_NONE, "the next has none either");
        } else {
            gh_iteration_end(toy.session, NULL);
        }
        is_status(try_forward(&d), GH_ERR_STATE, &err,
                  "after the %s it begins without its sequences",
                  turn == 0 ? "backward" : "step");
    }
    set(0, toy.streams[0], 1, a, NULL, &first);
    set(1, toy.streams[0], 2, b, NULL, &second);
    read_all(0, toy.streams[0], &first);
    is_status(set(1, toy.streams[0], 2, b, NULL, &second), GH_OK, &err,
              "sequences are given once more");
    is_int(second.slot, 0, "now in the slot that is free");
    d = read_all(1, toy.streams[0], &second);
    is_int(d.action, GH_ACTION_REPLAYED, "where the graph");
    is_found(0, 1, &wanted, "finds them");
    finish("how long");
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

    if (!begin((struct toy_options){ .layers = 1, .max_slots = 1 })) {
        return;
    }
    packed.bank = bank;
    packed.stream = toy.streams[0];
    is_status(gh_packed_set(toy.session, &packed, &buffers, &err), GH_OK, &err,
              "an evaluation has sequences");
    is_int(buffers.slot, GH_SLOT_NONE, "and takes no slot");
    pass = a_pass(0, GH_FORWARD, 0, toy.streams[0], &io);
    pass.bank = bank;
    pass.flags = GH_PASS_FORWARD_ONLY;
    is_status(pass_once(&pass, &io, &d), GH_OK, &err, "nor do its passes");
    finish("evaluation");
}

/* ---- failures and orders ------------------------------------------------- */

static void test_a_launch_that_fails(void)
{
    static const int32_t a[] = { 3 };
    gh_packed_buffers buffers;
    const struct io io = { .n_inputs = 0 };
    gh_decision d;
    gh_pass pass;

    if (!begin((struct toy_options){ .layers = 1 })) {
        return;
    }
    set(0, toy.streams[0], 1, a, NULL, &buffers);
    read_all(0, toy.streams[0], &buffers);
    toy_configure(&toy, "SEED=0 RACES=1 FAIL=cuLaunchKernel:1:999");
    is_status(set(0, toy.streams[0], 1, a, NULL, &buffers), GH_ERR_DEVICE,
              &err, "a launch that fails is told");
    pass = a_pass(0, GH_FORWARD, 0, toy.streams[0], &io);
    pass.bank = bank;
    pass_once(&pass, &io, &d);
    is_int(d.reason, GH_REASON_PACKED, "and the microbatch runs eagerly");
    finish("a failed launch");
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

    if (!begin((struct toy_options){ .layers = 1, .max_slots = 1 })) {
        return;
    }
    set(0, toy.streams[0], 1, one, NULL, &buffers);
    fly(bank, toy.streams[0], 0, "a microbatch with sequences");
    toy.drv.cuStreamBeginCapture(toy.streams[0],
                                 CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    fly(0, toy.streams[0], GH_SLOT_NONE, "one that the host captures");
    is_int(end_capture(toy.streams[0]), CUDA_SUCCESS, "the capture ends");
    fly(0, toy.streams[0], 0, "the next one");
    set(0, toy.streams[0], 1, one, NULL, &buffers);
    fly(bank, toy.streams[0], 0, "one with sequences");
    pass = a_pass(0, GH_FORWARD, 0, toy.streams[1], &no_io);
    toy_configure(&toy, "SEED=0 RACES=1 FAIL=cuStreamWaitEvent:1:999,"
                        "cuStreamSynchronize:1:999");
    is_status(pass_once(&pass, &no_io, &d), GH_ERR_DEVICE, &err,
              "a wait for it that fails is told");
    toy_configure(&toy, "SEED=0 RACES=1");
    fly(0, toy.streams[1], 0, "the same microbatch again");
    finish("given up");
}

static void test_the_host_captures(void)
{
    static const int32_t one[] = { 3 };
    gh_packed packed = { .struct_size = sizeof(packed),
                         .flags = GH_PASS_FORWARD_ONLY,
                         .n_sequences = 1,
                         .lengths = one };
    gh_packed_buffers buffers = { .struct_size = sizeof(buffers) };

    if (!begin((struct toy_options){ .layers = 1, .max_slots = 1 })) {
        return;
    }
    for (uint32_t i = 0; i < 2; i++) {
        set(0, toy.streams[i], 1, one, NULL, &buffers);
        set(1, toy.streams[i], 1, one, NULL, &buffers);
        fly(bank, toy.streams[i], 0, "a microbatch");
        gh_iteration_end(toy.session, NULL);
    }
    toy.drv.cuStreamBeginCapture(toy.streams[2],
                                 CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    is_status(set(0, toy.streams[2], 1, one, NULL, &buffers),
              GH_ERR_UNSUPPORTED, &err,
              "sequences are not written by a graph of the host's");
    ok(strstr(err.text, "is capturing") != NULL, "in words: %s", err.text);
    packed.bank = bank;
    packed.stream = toy.streams[2];
    buffers = (gh_packed_buffers){ .struct_size = sizeof(buffers) };
    is_status(gh_packed_set(toy.session, &packed, &buffers, &err),
              GH_ERR_UNSUPPORTED, &err, "nor are those of an evaluation");
    fly(bank, toy.streams[2], GH_SLOT_NONE, "the microbatch without them");
    is_int(end_capture(toy.streams[2]), CUDA_SUCCESS,
           "the capture is none the worse");
    finish("captured");
}

/* Slots and streams that take turns: the wait of a flight stands before its
 * sequences are written.  With one slot every second microbatch has none. */
static uint64_t races_of(uint32_t slots, const char *settings,
                         uint64_t *waits_p)
{
    static const int32_t lengths[] = { 3, 9, 1, 12 };
    gh_packed_buffers buffers;
    uint64_t races;
    uint32_t wrong = 0;

    if (!start((struct toy_options){ .layers = 1, .max_slots = slots })) {
        return UINT64_MAX;
    }
    toy.drv.cuMemAlloc(&results, 64 * FOUND_BYTES);
    toy.drv.cuMemsetD8Async(results, 0, 64 * FOUND_BYTES, NULL);
    toy.drv.cuCtxSynchronize();
    {
        const gh_bank_desc desc = { .struct_size = sizeof(desc),
                                    .tokens = TOKENS,
                                    .sequences = SEQUENCES };

        gh_bank_add(toy.session, &desc, &bank, NULL);
    }
    toy_configure(&toy, settings);
    for (uint32_t i = 0; i < 12; i++) {
        CUstream stream = toy.streams[i * 5 % TOY_STREAMS];
        gh_packed_buffers other;

        set(i, stream, 1 + i % 4, lengths, NULL, &buffers);
        if (slots == 1) {
            CUstream beside = toy.streams[(i + i / 3) % TOY_STREAMS];

            set(12 + i, beside, 4 - i % 4, lengths, NULL, &other);
            wrong += read_all(12 + i, beside, &other).slot != GH_SLOT_NONE;
        }
        wrong += read_all(i, stream, &buffers).action == UINT32_MAX;
        if (slots == 1) {
            gh_iteration_end(toy.session, NULL);
        }
    }
    toy.drv.cuCtxSynchronize();
    races = toy_races(&toy) + (wrong != 0 ? 1000 : 0);
    *waits_p = toy_counts(&toy).waits;
    toy_detach(&toy);
    toy.drv.cuMemFree(results);
    toy_close(&toy);
    return races;
}

/* `spare`: arrays without a slot wait for a stream that the slot's flight has
 * waited for already. */
static void test_orders(uint32_t slots, uint32_t spare)
{
    const char *given = getenv("GRAPHHOOKS_TEST_SEEDS");
    const uint32_t seeds = given != NULL ? (uint32_t)atoi(given) : 500;
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
    const char *reason;

    if (!toy_probe(&toy, &reason)) {
        return skip_all("%s", reason);
    }
    if (!toy.soft) {
        return skip_all("failures and races are the software device's");
    }
    test_graphs_read_the_microbatch_at_hand();
    test_more_than_one_launch_takes();
    test_refusals();
    test_pieces_of_two_ranks();
    test_what_was_there_is_spoilt();
    test_sequences_and_short_inputs_share_memory();
    test_out_of_turn();
    test_microbatches_without_a_slot();
    test_a_slot_that_comes_too_late();
    test_how_long_there_is_no_slot();
    test_evaluation();
    test_a_launch_that_fails();
    test_a_slot_that_is_given_up();
    test_the_host_captures();
    /* A reported race is what half of these runs are for. */
    if (freopen("/dev/null", "w", stderr) == NULL) {
        diag("every race is shown, as /dev/null cannot be opened");
    }
    test_orders(2, 0);
    test_orders(1, 1);
    return done_testing();
}
