/*
 * A bank's graphs serve inputs that are smaller than its capacity.
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/banks.h"
#include "tap/tap.h"

static void test_inputs_by_capacity(void)
{
    const uint32_t order[] = { 0, 1, 1, 0 };
    const uint32_t less[] = { 0, 40, 7, 0, 63, 100, 1 };

    if (!banks_start(&(struct toy_options){ .elems = 512,
                                            .in_flight = 2,
                                            .streams = 2,
                                            .by_capacity = true })) {
        return;
    }
    toy_add_tokens(&s, 512);
    toy_add_tokens(&s, 256);
    for (uint32_t step = 0; step < 7; step++) {
        s.less = less[step];
        is_status(toy_step_shapes(&s, order, 4), GH_OK, &s.err,
                  "a step whose microbatches lack %u words", less[step]);
        ok(toy_is_exact(&s), "finds zeros behind them");
    }
    is_int(toy_eager(&s, GH_REASON_INPUT), 0, "none of them runs eagerly");
    is_int(toy_stats(&s).recordings, 16, "or is recorded again");
    {
        const uint64_t capacity = 4 * 512;
        const gh_buffer input = { (void *)(uintptr_t)s.memory, 4 * 512 + 4, 0,
                                  0 };
        const gh_pass pass = { .struct_size = sizeof(pass),
                               .inputs = &input,
                               .n_inputs = 1,
                               .capacities = &capacity,
                               .bank = s.shapes[0].bank,
                               .stream = s.streams[0] };
        gh_decision d = { .struct_size = sizeof(d) };

        gh_layer_enter(s.session, &pass, &d, &s.err);
        is_int(d.reason, GH_REASON_INPUT,
               "a graph does not serve more than its capacity");
        gh_layer_cancel(s.session, NULL);
    }
    banks_finish("capacity");
}

static void test_checked_inputs_by_capacity(void)
{
    static const char *const checked[] = { "GRAPHHOOKS_LOG=off",
                                           "GRAPHHOOKS_CHECK=bitwise", NULL };
    const uint32_t order[] = { 0, 1 };

    if (!banks_start(&(struct toy_options){
            .elems = 512, .by_capacity = true, .environment = checked })) {
        return;
    }
    toy_add_tokens(&s, 512);
    toy_add_tokens(&s, 256);
    for (uint32_t step = 0; step < 5; step++) {
        s.less = 30 * step;
        toy_step_shapes(&s, order, 2);
    }
    ok(toy_stats(&s).checks > 8, "passes are compared");
    is_int(toy_stats(&s).check_failures, 0, "and none differs");
    is_int(s.short_checks, 0, "each has the sizes that its graph has seen");
    banks_finish("checked capacity");
}

static void test_more_than_the_capacity(void)
{
    const uint64_t capacity = 64;
    const gh_buffer input = { (void *)(uintptr_t)s.memory, 128, 0, 0 };
    gh_pass pass = { .struct_size = sizeof(pass),
                     .inputs = &input,
                     .n_inputs = 1,
                     .capacities = &capacity };
    gh_decision d = { .struct_size = sizeof(d) };

    if (!banks_start(&(struct toy_options){ .elems = 512 })) {
        return;
    }
    toy_add_shape(&s, 512, NULL);
    banks_step(0);
    pass.stream = s.streams[0];
    is_status(gh_layer_enter(s.session, &pass, &d, &s.err), GH_OK, &s.err,
              "an input beyond its capacity is entered");
    is_int(d.action, GH_ACTION_RUN, "and run eagerly");
    is_int(d.reason, GH_REASON_INPUT, "because of the input");
    is_int(d.inputs[0].bytes, 128, "whole");
    gh_layer_cancel(s.session, NULL);
    banks_finish("beyond capacity");
}

int main(void)
{
    int status;

    if (!toy_probe_soft(&status)) {
        return status;
    }
    test_inputs_by_capacity();
    test_checked_inputs_by_capacity();
    test_more_than_the_capacity();
    return done_testing();
}
