/*
 * GRAPHHOOKS_CHECK sees a difference of one byte, wherever it is, and ends
 * well whatever fails.
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/by_hand.h"
#include "tap/tap.h"

static const struct toy_options with_check = { .layers = 1,
                                               .environment = checked };

/* A forward that writes `value` to the output, and `odd` to its byte `at`. */
static gh_decision forward(const gh_buffer *out, uint32_t n, unsigned char odd,
                           uint64_t at)
{
    const struct io io = { .outputs = out, .n_outputs = n, .value = 7 };
    gh_pass pass = a_pass(0, GH_FORWARD, 0, toy.streams[0], &io);
    gh_decision d = { .struct_size = sizeof(d) };

    do {
        gh_layer_enter(toy.session, &pass, &d, &err);
        if (d.action != GH_ACTION_REPLAYED) {
            work(&d, &io);
            toy.drv.cuMemsetD8Async((uintptr_t)out[0].address + at, odd, 1,
                                    d.stream);
        }
    } while (gh_layer_exit(toy.session, &pass, &err) == GH_RERUN);
    run(0, GH_BACKWARD, 0, toy.streams[0]);
    return d;
}

/* With another seed the work is under way when the host asks. */
static void test_one_byte(void)
{
    static const uint64_t places[] = { 0, 1, 255, 1000, 4095, 4096, 8191 };
    char settings[32] = "SEED=0 RACES=1";

    for (size_t i = 0; i < 2 * sizeof(places) / sizeof(places[0]); i++) {
        const uint64_t at = places[i / 2];
        gh_buffer out;

        if (!start(with_check)) {
            return;
        }
        settings[5] = i % 2 == 0 ? '0' : '3';
        toy_configure(&toy, settings);
        out = buffer(1, 8192, 0);
        forward(&out, 1, 1, at);
        is_int(forward(&out, 1, 1, at).reason, GH_REASON_CHECK,
               "a pass is compared");
        is_int(toy_stats(&toy).check_failures, 0, "and equal");
        forward(&out, 1, 2, at);
        is_int(toy_stats(&toy).check_failures, 1,
               "until byte %llu differs (%s)", (unsigned long long)at,
               settings);
        toy_close(&toy);
    }
}

/* What differs in the second output of many bytes is not in the first. */
static void test_later_outputs(void)
{
    gh_buffer out[3];

    if (!start(with_check)) {
        return;
    }
    out[0] = buffer(1, 600, 0);
    out[1] = buffer(3, 8, 0);
    out[2] = buffer(4, 900, 0);
    for (uint32_t i = 0; i < 3; i++) {
        forward(out, 3, 9, 599);
    }
    is_int(toy_stats(&toy).check_failures, 0,
           "outputs of any sizes are compared with their own results");
    forward(out, 3, 9, 2048 + 4);
    is_int(toy_stats(&toy).check_failures, 1, "each of them");
    toy_close(&toy);
}

static void test_more_outputs(void)
{
    gh_buffer out[2];

    if (!start(with_check)) {
        return;
    }
    out[0] = buffer(1, 256, 0);
    out[1] = buffer(3, 256, 0);
    forward(out, 1, 9, 0);
    forward(out, 2, 9, 0);
    is_int(toy_stats(&toy).check_failures, 1,
           "more outputs than were recorded are a difference");
    is_int(forward(out, 1, 9, 0).reason, GH_REASON_MISMATCH,
           "and the pass is eager from then on");
    toy_close(&toy);
}

static void test_an_output_of_no_bytes(void)
{
    gh_buffer out[2];

    if (!start(with_check)) {
        return;
    }
    out[0] = buffer(1, 256, 0);
    out[1] = buffer(3, 0, 0);
    for (uint32_t i = 0; i < 4; i++) {
        gh_decision d = forward(out, 2, 9, 0);

        is_int(d.reason, GH_REASON_CHECK,
               "a pass with an output of no bytes goes on being compared "
               "(%u)",
               i);
    }
    toy_close(&toy);
}

/* Reads 64 bytes and writes over the second half of them: y = 3 x + 1. */
static void triple_half(gh_decision *d)
{
    CUdeviceptr from = toy.memory + 2048, to = from + 32, none = 0;
    uint32_t three = 3, one = 1, n = 8;
    void *params[] = { &to, &to, &none, &three, &one, &n };
    const gh_buffer in = { (void *)(uintptr_t)from, 64, GH_BUFFER_STATIC, 0 };
    const gh_buffer out = { (void *)(uintptr_t)to, 32, 0, 0 };
    const struct io io = { &in, &out, 1, 1, 0 };
    const gh_pass pass = a_pass(0, GH_FORWARD, 0, toy.streams[0], &io);

    *d = (gh_decision){ .struct_size = sizeof(*d) };
    do {
        gh_layer_enter(toy.session, &pass, d, &err);
        if (d->action != GH_ACTION_REPLAYED) {
            toy.drv.cuLaunchKernel(toy.mix, 1, 1, 1, 256, 1, 1, 0, d->stream,
                                   params, NULL);
        }
    } while (gh_layer_exit(toy.session, &pass, &err) == GH_RERUN);
    run(0, GH_BACKWARD, 0, toy.streams[0]);
}

static void test_an_output_inside_of_an_input(void)
{
    static const uint32_t values[] = { 1, 4, 13 };
    gh_buffer out;
    gh_decision d;

    if (!start(with_check)) {
        return;
    }
    out = buffer(1, 64, 0);
    out.address = (char *)out.address + 32;
    for (uint32_t i = 0; i < 3; i++) {
        triple_half(&d);
        is_int(read_at(&out), values[i],
               "a pass that writes over part of its input has run once (%u)",
               i);
    }
    is_int(d.reason, GH_REASON_CHECK, "though it was run both ways");
    is_int(toy_stats(&toy).check_failures, 0, "which agree");
    toy_close(&toy);
}

static void test_a_graph_that_does_not_launch(void)
{
    gh_buffer out;
    gh_decision d;

    if (!start(with_check)) {
        return;
    }
    out = buffer(1, 256, 0);
    forward(&out, 1, 9, 0);
    toy_configure(&toy, "FAIL=cuGraphLaunch:1");
    d = forward(&out, 1, 9, 0);
    is_int(d.action, GH_ACTION_RUN,
           "a pass to compare whose graph does not "
           "launch runs eagerly");
    is_int(d.reason, GH_REASON_DEVICE, "and says why");
    is_int(forward(&out, 1, 9, 0).reason, GH_REASON_DEVICE, "for good");
    toy_close(&toy);
}

static void test_a_compare_that_fails(void)
{
    gh_buffer out;

    if (!start(with_check)) {
        return;
    }
    out = buffer(1, 256, 0);
    forward(&out, 1, 9, 0);
    toy_configure(&toy, "FAIL=cuMemcpyDtoHAsync:1");
    is_int(forward(&out, 1, 9, 0).reason, GH_REASON_CHECK, "a compare fails");
    is_int(toy_stats(&toy).check_failures, 0, "which is no difference");
    is_int(toy_stats(&toy).checks, 1, "and no pass that was compared");
    is_int(forward(&out, 1, 9, 0).reason, GH_REASON_DEVICE,
           "but the pass is eager from then on");
    toy_close(&toy);
}

/* Two microbatches on streams of their own, which are compared in one place:
 * the second does not wait where the first has been compared in part. */
static void test_a_compare_that_fails_is_over(void)
{
    if (!start(with_check)) {
        return;
    }
    toy_configure(&toy, "SEED=3 RACES=1 FAIL=cuMemcpyDtoHAsync:2");
    for (uint32_t m = 0; m < 2; m++) {
        const gh_buffer outs[2] = { buffer(1 + 2 * m, 256, 0),
                                    buffer(2 + 2 * m, 256, 0) };
        const struct io io = { .outputs = outs, .n_outputs = 2, .value = 7 };

        is_int(run_with(0, GH_FORWARD, m, toy.streams[m], &io).reason,
               GH_REASON_CHECK, "microbatch %u is compared", m);
    }
    is_int(toy_stats(&toy).checks, 1, "the first compare cannot be read");
    is_int(toy_races(&toy), 0, "and is over before the next one begins");
    toy_close(&toy);
}

static void test_the_turn_of_a_check(void)
{
    static const char *const third[] = { "GRAPHHOOKS_LOG=off",
                                         "GRAPHHOOKS_CHECK=bitwise",
                                         "GRAPHHOOKS_CHECK_EVERY=3", NULL };
    gh_buffer out;

    if (!start((struct toy_options){ .layers = 1, .environment = third })) {
        return;
    }
    out = buffer(1, 256, 0);
    forward(&out, 1, 9, 0);
    forward(&out, 1, 9, 0);
    is_int(toy_stats(&toy).checks, 2, "the first two launches are compared");
    is_int(forward(&out, 1, 9, 0).reason, GH_REASON_CHECK,
           "then the third, with every third launch");
    forward(&out, 1, 9, 0);
    forward(&out, 1, 9, 0);
    is_int(toy_stats(&toy).checks, 3, "the fourth and the fifth are not");
    is_int(forward(&out, 1, 9, 0).reason, GH_REASON_CHECK, "and the sixth is");
    toy_close(&toy);
}

static void test_scratch_is_kept(void)
{
    gh_buffer out;
    uint64_t before;

    if (!start(with_check)) {
        return;
    }
    out = buffer(1, 256, GH_BUFFER_UPDATED);
    forward(&out, 1, 9, 0);
    forward(&out, 1, 9, 0);
    before = calls_of("cuMemAlloc");
    forward(&out, 1, 9, 0);
    is_int(calls_of("cuMemAlloc") - before, 0,
           "scratch that is large enough is not allocated again");
    toy_close(&toy);
}

/* A host that writes an output elsewhere at the time is found out. */
static void test_a_compare_says_what_it_reads(void)
{
    gh_buffer out;
    struct io io;
    gh_pass pass;
    gh_decision d = { .struct_size = sizeof(d) };

    if (!start(with_check)) {
        return;
    }
    out = buffer(1, 256, 0);
    io = (struct io){ .outputs = &out, .n_outputs = 1, .value = 7 };
    forward(&out, 1, 7, 0);
    pass = a_pass(0, GH_FORWARD, 0, toy.streams[0], &io);
    gh_layer_enter(toy.session, &pass, &d, &err);
    go_over(toy.streams[0], toy.streams[1]);
    toy.drv.cuMemsetD8Async((uintptr_t)out.address, 7, 256, toy.streams[1]);
    is_int(toy_races(&toy), 0, "an output is written on another stream");
    gh_layer_exit(toy.session, &pass, &err);
    ok(toy_races(&toy) > 0, "and compared without an order, which is a race");
    toy_close(&toy);
}

int main(void)
{
    const char *reason;

    if (!toy_probe(&toy, &reason)) {
        return skip_all("%s", reason);
    }
    test_one_byte();
    test_later_outputs();
    test_more_outputs();
    test_an_output_of_no_bytes();
    test_an_output_inside_of_an_input();
    test_the_turn_of_a_check();
    if (toy.soft) {
        test_a_graph_that_does_not_launch();
        test_a_compare_that_fails();
        test_a_compare_that_fails_is_over();
        test_scratch_is_kept();
        test_a_compare_says_what_it_reads();
    } else {
        skip(9, "only the software device fails on demand and reports races");
    }
    return done_testing();
}
