/*
 * An input that has less than its capacity has zeros behind it, wherever it
 * lies, or its pass runs eagerly and says why.
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/by_hand.h"
#include "tap/tap.h"

#include <string.h>

#define CAPACITY 1024
#define WORDS (CAPACITY / 4)

static gh_buffer results;
static uint32_t bank, read_of_bank;

/* A pass whose graph leaves the whole of its input in results. */
static gh_decision read_input_of(uint32_t segment, const gh_buffer *input,
                                 uint64_t capacity)
{
    const struct io io = { .inputs = input, .n_inputs = 1 };
    gh_decision d = { .struct_size = sizeof(d) };
    gh_pass pass = a_pass(segment, GH_FORWARD, 0, toy.streams[0], &io);
    gh_status status;

    pass.bank = read_of_bank;
    pass.capacities = &capacity;
    do {
        status = gh_layer_enter(toy.session, &pass, &d, &err);
        if (status != GH_OK) {
            ok(false, "a pass is entered: %s", err.text);
            return d;
        }
        if (d.action != GH_ACTION_REPLAYED) {
            toy.drv.cuMemcpyDtoDAsync((uintptr_t)results.address,
                                      (uintptr_t)d.inputs[0].address,
                                      d.inputs[0].bytes, d.stream);
        }
        status = gh_layer_exit(toy.session, &pass, &err);
    } while (status == GH_RERUN);
    return d;
}

static gh_decision read_input(uint32_t segment, const gh_buffer *input)
{
    return read_input_of(segment, input, CAPACITY);
}

static bool begin(const gh_host_services *host)
{
    static const char *const loud[] = { "GRAPHHOOKS_LOG=warn", NULL };

    said[0] = '\0';
    if (!start((struct toy_options){ .layers = 2,
                                     .max_slots = 1,
                                     .host = host,
                                     .environment = loud })) {
        return false;
    }
    results = buffer(8, CAPACITY, 0);
    return true;
}

static void finish(const char *what)
{
    is_int(toy_races(&toy), 0, "%s: nothing races", what);
    toy_detach(&toy);
    toy_close(&toy);
    is_int(toy_counts(&toy).device_bytes, 0, "%s: no memory is left", what);
}

/* So many words of the value, and nothing behind them. */
static void is_padded(uint32_t value, uint32_t words, const char *name)
{
    uint32_t found[WORDS], wrong = 0;

    toy.drv.cuCtxSynchronize();
    toy.drv.cuMemcpyDtoH(found, (uintptr_t)results.address, sizeof(found));
    for (uint32_t i = 0; i < WORDS; i++) {
        wrong += found[i] != (i < words ? value : 0);
    }
    is_int(wrong, 0, "%s", name);
}

static void end_microbatch(void)
{
    run(1, GH_BACKWARD, 0, toy.streams[0]);
    run(0, GH_BACKWARD, 0, toy.streams[0]);
}

/* ---- an output of another pass ------------------------------------------- */

static void one_chained(uint32_t words, gh_action expected, const char *name)
{
    gh_buffer between = buffer(0, CAPACITY, 0);
    const struct io writer = { .outputs = &between,
                               .n_outputs = 1,
                               .value = 7 };
    gh_decision d;

    run_with(0, GH_FORWARD, 0, toy.streams[0], &writer);
    between.bytes = 4 * (uint64_t)words;
    d = read_input(1, &between);
    is_int(d.action, expected, "%s is %s", name,
           expected == GH_ACTION_RECORD ? "recorded" : "replayed");
    is_padded(7, words, "with zeros behind it");
    end_microbatch();
}

static void test_part_of_what_a_pass_has_written(void)
{
    if (!begin(NULL)) {
        return;
    }
    one_chained(WORDS, GH_ACTION_RECORD, "all of another pass's output");
    is_int(toy_stats(&toy).copies, 0, "which is read in place");
    one_chained(3, GH_ACTION_RECORD, "a part of it");
    one_chained(5, GH_ACTION_REPLAYED, "another part");
    one_chained(WORDS, GH_ACTION_REPLAYED, "the whole again");
    one_chained(4, GH_ACTION_REPLAYED, "a part again");
    one_chained(0, GH_ACTION_REPLAYED, "nothing of it");
    finish("chained");
    if (!begin(NULL)) {
        return;
    }
    one_chained(3, GH_ACTION_RECORD, "a part of it at first");
    one_chained(WORDS, GH_ACTION_REPLAYED, "then the whole");
    finish("chained, short at first");
}

/* ---- one that is read in place ------------------------------------------- */

static void one_static(uint32_t words, gh_reason expected, const char *name)
{
    const gh_buffer input = buffer(0, 4 * (uint64_t)words, GH_BUFFER_STATIC);
    gh_decision d;

    toy.drv.cuMemsetD32Async((uintptr_t)results.address, 0, WORDS,
                             toy.streams[0]);
    toy.drv.cuMemsetD32Async((uintptr_t)input.address, 9, WORDS,
                             toy.streams[0]);
    d = read_input(0, &input);
    is_int(d.reason, expected, "%s", name);
    is_int(d.action == GH_ACTION_RUN, expected != GH_REASON_NONE,
           "as the action says");
    is_padded(9, words, "and no word behind it is read");
    run(1, GH_FORWARD, 0, toy.streams[0]);
    end_microbatch();
}

static void test_static_inputs_fill_their_capacity(void)
{
    if (!begin(&hearing)) {
        return;
    }
    one_static(6, GH_REASON_INPUT,
               "a static input below its capacity is not recorded");
    is_int(times_said("its input 0 is static and has 24 bytes of 1024"), 1,
           "the log says why");
    one_static(WORDS, GH_REASON_NONE, "one that fills it is");
    one_static(6, GH_REASON_INPUT, "its graph serves no shorter one");
    one_static(WORDS, GH_REASON_NONE, "and again the whole");
    finish("static");
    if (!begin(&hearing)) {
        return;
    }
    one_static(WORDS, GH_REASON_NONE, "a whole one is recorded");
    one_static(6, GH_REASON_INPUT, "a short one after it runs eagerly");
    is_int(times_said("its input 0 is static and has 24 bytes of 1024"), 1,
           "and the log says why");
    finish("static, whole at first");
}

/* ---- one that the host writes to the graph's own buffer ------------------ */

static void test_the_host_writes_there_itself(void)
{
    gh_buffer input;
    gh_decision d;

    if (!begin(NULL)) {
        return;
    }
    input = buffer(0, CAPACITY, 0);
    toy.drv.cuMemsetD32Async((uintptr_t)input.address, 5, WORDS,
                             toy.streams[0]);
    d = read_input(0, &input);
    is_int(d.action, GH_ACTION_RECORD, "an input is recorded");
    run(1, GH_FORWARD, 0, toy.streams[0]);
    end_microbatch();
    for (uint32_t words = 6; words > 2; words--) {
        input = (gh_buffer){ d.inputs[0].address, 4 * (uint64_t)words, 0, 0 };
        toy.drv.cuMemsetD32Async((uintptr_t)input.address, 8, WORDS,
                                 toy.streams[0]);
        d = read_input(0, &input);
        is_int(d.action, GH_ACTION_REPLAYED,
               "%u words that the host puts where the graph reads", words);
        is_padded(8, words, "have zeros behind them");
        run(1, GH_FORWARD, 0, toy.streams[0]);
        end_microbatch();
    }
    finish("in place");
}

/* ---- a capacity that is none --------------------------------------------- */

/* Aligned, it would be nothing, for which any buffer is large enough. */
static void test_a_capacity_past_all_memory(void)
{
    const gh_bank_desc desc = { .struct_size = sizeof(desc) };
    gh_buffer input;
    gh_decision d;

    if (!begin(&hearing)) {
        return;
    }
    input = buffer(0, 64, 0);
    toy.drv.cuMemsetD32Async((uintptr_t)input.address, 5, WORDS,
                             toy.streams[0]);
    gh_bank_add(toy.session, &desc, &bank, &err);
    read_input(0, &input);
    run(1, GH_FORWARD, 0, toy.streams[0]);
    end_microbatch();
    read_of_bank = bank;
    d = read_input_of(0, &input, UINT64_MAX - 10);
    read_of_bank = 0;
    is_int(d.reason, GH_REASON_INPUT, "a capacity that wraps is not recorded");
    is_int(times_said("18446744073709551605 bytes, which no device has"), 1,
           "the log says why");
    is_int(toy.drv.cuCtxSynchronize(), CUDA_SUCCESS, "the device is well");
    finish("past all memory");
}

int main(void)
{
    int status;

    if (!toy_probe_soft(&status)) {
        return status;
    }
    test_part_of_what_a_pass_has_written();
    test_static_inputs_fill_their_capacity();
    test_the_host_writes_there_itself();
    test_a_capacity_past_all_memory();
    return done_testing();
}
