/*
 * GRAPHHOOKS_CHECK compares what it counts, from the first launch on, and
 * names what it cannot compare.
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/by_hand.h"
#include "tap/tap.h"

#include <string.h>

#define FORWARD GH_FORWARD
#define BACKWARD GH_BACKWARD

static const char *const checked_aloud[] = { "GRAPHHOOKS_CHECK=bitwise", NULL };
static const char *const seldom[] = { "GRAPHHOOKS_CHECK=bitwise",
                                      "GRAPHHOOKS_CHECK_EVERY=1000", NULL };

static bool start_with(const char *const *environment, uint32_t layers,
                       uint32_t flags)
{
    said[0] = '\0';
    return start((struct toy_options){ .layers = layers,
                                       .flags = flags,
                                       .host = &hearing,
                                       .environment = environment });
}

static gh_buffer out;
static const struct io writes_seven = { .outputs = &out,
                                        .n_outputs = 1,
                                        .value = 7 };

static void test_the_first_launch_is_compared(void)
{
    gh_pass pass;
    gh_decision d;

    if (!start_with(seldom, 1, 0)) {
        return;
    }
    out = buffer(1, 256, 0);
    pass = a_pass(0, FORWARD, 0, toy.streams[0], &writes_seven);
    is_int(pass_once(&pass, &writes_seven, &d), GH_RERUN,
           "a recording ends with a rerun");
    is_int(read_at(&out), 0, "before anything of it has run");
    is_int(pass_once(&pass, &writes_seven, &d), GH_OK, "the rerun ends well");
    is_int(d.reason, GH_REASON_CHECK, "and was compared");
    is_int(read_at(&out), 7, "it has done its work");
    is_int((long)toy_stats(&toy).checks, 1, "one check is counted");
    is_int((long)toy_stats(&toy).recordings, 1, "and one recording");
    run(0, BACKWARD, 0, toy.streams[0]);
    is_int(run_with(0, FORWARD, 1, toy.streams[0], &writes_seven).reason,
           GH_REASON_CHECK, "so is the second launch");
    run(0, BACKWARD, 1, toy.streams[0]);
    is_int(run_with(0, FORWARD, 2, toy.streams[0], &writes_seven).action,
           GH_ACTION_REPLAYED, "from then on every n-th is");
    is_int((long)toy_stats(&toy).checks, 2, "which this one is not");
    toy_close(&toy);
}

/* What a pass reads and overwrites is as it was before it runs again. */
static void test_what_is_put_back(void)
{
    static const struct {
        const char *what;
        int away; /* bytes from the input to the output */
        bool is_put_back;
    } cases[] = {
        { "right behind what is read", 256, false },
        { "right before it", -256, false },
        { "over its last word", 252, true },
        { "over its first word", -252, true },
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        gh_buffer in, output;
        const struct io io = { &in, &output, 1, 1, 7 };
        uint64_t before;

        if (!start_with(seldom, 1, 0)) {
            return;
        }
        in = output = buffer(2, 256, 0);
        output.address = (char *)in.address + cases[i].away;
        before = calls_of("cuMemcpyDtoDAsync");
        is_int(run_with(0, FORWARD, 0, toy.streams[0], &io).reason,
               GH_REASON_CHECK, "an output %s is compared", cases[i].what);
        is_int((long)(calls_of("cuMemcpyDtoDAsync") - before),
               cases[i].is_put_back ? 3 : 1, "one %s is %s", cases[i].what,
               cases[i].is_put_back ? "put back" : "only set aside");
        toy_close(&toy);
    }
}

/* A value that a copy to the output reads is written on a stream of the
 * host's own: no replay has that. */
static void write_elsewhere(uint32_t m, uint32_t value, CUstream elsewhere)
{
    const CUdeviceptr between = (uintptr_t)buffer(2, 256, 0).address;
    gh_pass pass = a_pass(0, FORWARD, m, toy.streams[0], &no_io);
    gh_decision d = { .struct_size = sizeof(d) };

    toy.drv.cuCtxSynchronize();
    do {
        gh_layer_enter(toy.session, &pass, &d, &err);
        if (d.action == GH_ACTION_RUN) { /* after the graph of the check */
            toy.drv.cuStreamSynchronize(d.stream);
        }
        if (d.action != GH_ACTION_REPLAYED) {
            toy.drv.cuMemsetD32Async(between, value, 64, elsewhere);
            if (d.action == GH_ACTION_RUN) { /* a capture allows no wait */
                toy.drv.cuStreamSynchronize(elsewhere);
            }
            toy.drv.cuMemcpyDtoDAsync((uintptr_t)out.address, between, 256,
                                      d.stream);
        }
        pass.outputs = &out;
        pass.n_outputs = 1;
    } while (gh_layer_exit(toy.session, &pass, &err) == GH_RERUN);
    toy.drv.cuCtxSynchronize();
    run(0, BACKWARD, m, toy.streams[0]);
}

static void test_work_elsewhere_is_found(void)
{
    if (!start_with(seldom, 1, 0)) {
        return;
    }
    toy_configure(&toy, "SEED=0 RACES=0");
    out = buffer(1, 256, 0);
    write_elsewhere(0, 7, toy.side);
    write_elsewhere(1, 8, toy.side);
    is_int((long)toy_stats(&toy).check_failures, 1,
           "work on another stream than the decision's is found");
    is_int(read_at(&out), 8, "and the host's own result stands");
    write_elsewhere(2, 9, toy.side);
    is_int(read_at(&out), 9, "as it does from then on, eagerly");
    toy_close(&toy);
}

static void test_nothing_to_compare_is_named_and_not_counted(void)
{
    if (!start_with(checked_aloud, 3, GH_SESSION_DELAY_WGRAD)) {
        return;
    }
    for (uint32_t m = 0; m < 3; m++) {
        for (uint32_t i = 0; i < 3; i++) {
            run(i, FORWARD, m, toy.streams[0]);
        }
        for (uint32_t i = 3; i-- > 0;) {
            run(i, BACKWARD, m, toy.streams[0]);
            run(i, GH_WGRAD, m, toy.streams[0]);
        }
    }
    is_int((long)toy_stats(&toy).checks, 0, "passes without outputs count as "
                                            "no checks");
    is_int((long)toy_stats(&toy).replays, 27, "they are replayed");
    gh_iteration_end(toy.session, NULL);
    gh_iteration_end(toy.session, NULL);
    is_int(times_said("compares nothing"), 3,
           "a step's end says so once for each direction");
    ok(strstr(said, "compares nothing in the backward of layer 0 attn..mlp and "
                    "2 other segments: list in gh_pass.outputs") != NULL,
       "naming the segments and the remedy: %s", said);
    toy_close(&toy);

    if (!start_with(checked_aloud, 1, 0)) {
        return;
    }
    run_both(0, toy.streams[0]);
    run_both(0, toy.streams[0]);
    toy_detach(&toy);
    ok(strstr(said, "compares nothing in the forward of layer 0 attn..mlp: "
                    "list") != NULL,
       "a host that ends no step hears of it when the session closes");
    toy_close(&toy);
}

static void test_a_difference_names_its_causes(void)
{
    struct io other = writes_seven;

    if (!start_with(checked_aloud, 1, 0)) {
        return;
    }
    out = buffer(1, 256, 0);
    other.value = 8;
    run_with(0, FORWARD, 0, toy.streams[0], &writes_seven);
    run(0, BACKWARD, 0, toy.streams[0]);
    run_with(0, FORWARD, 1, toy.streams[0], &other);
    is_int((long)toy_stats(&toy).check_failures, 1, "a difference is found");
    gh_iteration_end(toy.session, NULL);
    ok(strstr(said, "output 0 differs from the eager pass, first at byte 0 of "
                    "256") != NULL &&
           strstr(said, "GH_BUFFER_UPDATED") != NULL &&
           strstr(said, "gh_decision.stream") != NULL &&
           strstr(said, "gh_decision.inputs") != NULL,
       "with what may have caused it: %s", said);
    ok(strstr(said, "computed before may be wrong too") != NULL,
       "and that the numbers before are in doubt");
    toy_close(&toy);
}

static void test_the_result_is_said_at_the_end(void)
{
    static const char *const aloud_at_info[] = { "GRAPHHOOKS_CHECK=bitwise",
                                                 "GRAPHHOOKS_LOG=info", NULL };
    struct io io = writes_seven;

    for (uint32_t differs = 0; differs < 2; differs++) {
        if (!start_with(differs ? aloud_at_info : checked_aloud, 1, 0)) {
            return;
        }
        out = buffer(1, 256, 0);
        for (uint32_t m = 0; m < 3; m++) {
            io.value = m == 2 ? 7 + differs : 7;
            run_with(0, FORWARD, m, toy.streams[0], &io);
            run(0, BACKWARD, m, toy.streams[0]);
        }
        toy_detach(&toy);
        is_int(times_said(differs ? "GRAPHHOOKS_CHECK: 3 passes compared, 1 "
                                    "differ"
                                  : "GRAPHHOOKS_CHECK: 3 passes compared, no "
                                    "difference"),
               1, "a check has its result said: %s", said);
        is_int(times_said("3 checks, which compared 3 outputs of 768 bytes"),
               differs, "and at info what it has compared");
        toy_close(&toy);
    }
}

static void test_a_check_that_never_was_is_said(void)
{
    if (!start_with(checked_aloud, 1, 0)) {
        return;
    }
    run_both(0, toy.streams[0]);
    run_both(0, toy.streams[0]);
    toy_detach(&toy);
    is_int(times_said("GRAPHHOOKS_CHECK: no pass was compared. Only passes "
                      "that were recorded and list outputs can be: 4 graph "
                      "launches, 0 eager passes\n"),
           1, "a check that compares nothing is no clean one: %s", said);
    toy_close(&toy);

    if (!start_with(checked_aloud, 1, 0)) {
        return;
    }
    toy_detach(&toy);
    is_str(said, "", "a session without passes has none to compare");
    toy_close(&toy);
}

/* A host that keeps a set for each microbatch, and not for each slot. */
static void test_an_output_that_moves_is_named(void)
{
    struct io elsewhere = writes_seven;
    gh_buffer other;

    if (!start_with(checked_aloud, 1, 0)) {
        return;
    }
    out = buffer(1, 256, 0);
    other = buffer(2, 256, 0);
    elsewhere.outputs = &other;
    run_with(0, FORWARD, 0, toy.streams[0], &writes_seven);
    run(0, BACKWARD, 0, toy.streams[0]);
    is_int(times_said("elsewhere than where its graph writes it"), 0,
           "an output that stays is not named");
    for (uint32_t m = 1; m < 3; m++) {
        run_with(0, FORWARD, m, toy.streams[0], &elsewhere);
        run(0, BACKWARD, m, toy.streams[0]);
    }
    is_int((long)toy_stats(&toy).check_failures, 0,
           "one that moves is compared where it is");
    is_int(times_said("output 0 of layer 0 attn..mlp forward, slot 0 is "
                      "elsewhere than where its graph writes it: use the "
                      "buffers of gh_decision.slot"),
           1, "and named once: %s", said);
    toy_close(&toy);
}

/* As a sanitizer sees it: addresses of outputs without bytes are NULL. */
static void test_buffers_of_no_bytes(void)
{
    const gh_buffer none_in = { NULL, 0, 0, 0 };
    gh_buffer both[2];
    const struct io io = { .inputs = &none_in,
                           .n_inputs = 1,
                           .outputs = both,
                           .n_outputs = 2,
                           .value = 7 };

    if (!start_with(checked_aloud, 1, 0)) {
        return;
    }
    out = buffer(1, 256, 0);
    both[0] = out;
    both[1] = (gh_buffer){ NULL, 0, GH_BUFFER_UPDATED, 0 };
    run_with(0, FORWARD, 0, toy.streams[0], &io);
    run(0, BACKWARD, 0, toy.streams[0]);
    run_with(0, FORWARD, 1, toy.streams[0], &io);
    is_int((long)toy_stats(&toy).checks, 2,
           "inputs and outputs of no bytes are no obstacle");
    is_int((long)toy_stats(&toy).check_failures, 0, "and do not differ");
    toy_close(&toy);
}

int main(void)
{
    const char *reason;

    if (!toy_probe(&toy, &reason)) {
        return skip_all("%s", reason);
    }
    test_the_first_launch_is_compared();
    if (toy.soft) {
        test_what_is_put_back();
    } else {
        skip(8, "only the software device counts calls");
    }
    test_work_elsewhere_is_found();
    test_nothing_to_compare_is_named_and_not_counted();
    test_a_difference_names_its_causes();
    test_the_result_is_said_at_the_end();
    test_a_check_that_never_was_is_said();
    test_an_output_that_moves_is_named();
    test_buffers_of_no_bytes();
    return done_testing();
}
