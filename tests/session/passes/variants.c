/*
 * gh_pass.variant: passes of one direction that do different work.
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/by_hand.h"
#include "support/trace_file.h"
#include "tap/tap.h"

#include <string.h>

static gh_decision pass_of(uint32_t segment, gh_direction direction,
                           uint32_t variant, uint32_t m, const struct io *io)
{
    gh_pass pass = a_pass(segment, direction, m, toy.streams[0], io);
    gh_decision d;

    pass.variant = variant;
    pass_once(&pass, io, &d);
    return d;
}

static void test_each_has_its_graph(void)
{
    gh_buffer out;
    const struct io seven = { .outputs = &out, .n_outputs = 1, .value = 7 };
    const struct io nine = { .outputs = &out, .n_outputs = 1, .value = 9 };

    if (!start((struct toy_options){ .layers = 1 })) {
        return;
    }
    out = buffer(0, 16, 0);
    for (uint32_t m = 0; m < 6; m++) {
        const gh_action action = m < 2 ? GH_ACTION_RECORD : GH_ACTION_REPLAYED;

        pass_of(0, GH_FORWARD, 0, m, &no_io);
        is_int(pass_of(0, GH_BACKWARD, m & 1, m, m & 1 ? &nine : &seven).action,
               action, "microbatch %u has its backward of variant %u %s", m,
               m & 1, m < 2 ? "recorded" : "replayed");
        is_int(read_at(&out), m & 1 ? 9 : 7, "which does its own work");
    }
    is_int((long)toy_stats(&toy).recordings, 3,
           "one forward and two backwards were recorded");
    is_int((long)toy_stats(&toy).slots, 1, "in one slot: either gives it back");
    toy_close(&toy);
}

static void test_a_microbatch_has_one_of_them(void)
{
    gh_decision d = { .struct_size = sizeof(d) };
    gh_pass pass;

    if (!start((struct toy_options){ .layers = 1 })) {
        return;
    }
    pass_of(0, GH_FORWARD, 1, 0, &no_io);
    is_int(pass_of(0, GH_FORWARD, 0, 0, &no_io).action, (long)UINT32_MAX,
           "a forward of the other variant is a second forward");
    is_int(pass_of(0, GH_BACKWARD, 0, 0, &no_io).action, GH_ACTION_RECORD,
           "a backward follows a forward of either");
    is_int(pass_of(0, GH_BACKWARD, 1, 0, &no_io).action, (long)UINT32_MAX,
           "one of the other variant is a second backward");

    pass = a_pass(0, GH_FORWARD, 1, toy.streams[0], &no_io);
    pass.variant = 1;
    gh_layer_enter(toy.session, &pass, &d, &err);
    pass.variant = 0;
    is_status(gh_layer_exit(toy.session, &pass, &err), GH_ERR_STATE, &err,
              "exit repeats the variant");
    ok(strstr(err.text, "variant") != NULL, "and is told: %s", err.text);
    pass.variant = 1;
    is_status(gh_layer_exit(toy.session, &pass, &err), GH_OK, &err,
              "with it the pass ends");
    toy_close(&toy);
}

static void test_weight_gradients(void)
{
    if (!start((struct toy_options){ .layers = 1,
                                     .flags = GH_SESSION_DELAY_WGRAD })) {
        return;
    }
    for (uint32_t m = 0; m < 4; m++) {
        pass_of(0, GH_FORWARD, 0, m, &no_io);
        pass_of(0, GH_BACKWARD, 0, m, &no_io);
        is_int(pass_of(0, GH_WGRAD, m & 1, m, &no_io).action,
               m < 2 ? GH_ACTION_RECORD : GH_ACTION_REPLAYED,
               "a weight gradient of variant %u", m & 1);
    }
    is_int((long)toy_stats(&toy).recordings, 4, "each is recorded once");
    toy_close(&toy);
}

/* Segment 1 reads what segment 0 writes. */
static gh_buffer between;
static const struct io writes = { .outputs = &between, .n_outputs = 1 };
static const struct io reads = { .inputs = &between, .n_inputs = 1 };

static bool start_chain(void)
{
    if (!start((struct toy_options){ .layers = 2 })) {
        return false;
    }
    between = buffer(1, 16, 0);
    return true;
}

/* In the second variant of segment 0. */
static void test_inputs_from_either_are_chained(void)
{
    if (!start_chain()) {
        return;
    }
    pass_of(0, GH_FORWARD, 1, 0, &writes);
    pass_of(1, GH_FORWARD, 1, 0, &reads);
    is_int((long)toy_stats(&toy).static_bytes, 0,
           "an output of variant 1 is read in place");
    toy_close(&toy);
}

static void test_a_forward_that_is_recorded_anew(void)
{
    if (!start_chain()) {
        return;
    }
    for (uint32_t m = 0; m < 4; m++) {
        if (m == 2) {
            between = buffer(5, 16, 0);
        }
        pass_of(0, GH_FORWARD, 0, m, &writes);
        pass_of(1, GH_FORWARD, m == 1, m, m == 1 ? &no_io : &reads);
        is_int(pass_of(1, GH_BACKWARD, m & 1, m, &no_io).action,
               GH_ACTION_RECORD,
               "microbatch %u: a backward of variant %u is "
               "recorded%s",
               m, m & 1, m < 2 ? "" : " again, as its forward was");
        pass_of(0, GH_BACKWARD, 0, m, &no_io);
    }
    pass_of(0, GH_FORWARD, 0, 4, &writes);
    is_int(pass_of(1, GH_FORWARD, 1, 4, &no_io).action, GH_ACTION_REPLAYED,
           "the forward's other variant was not recorded anew");
    toy_close(&toy);
}

static void *found(gh_direction direction, uint32_t m)
{
    const gh_border_key key = { .struct_size = sizeof(key),
                                .direction = direction,
                                .microbatch = m,
                                .tensor = GH_TENSOR_HIDDEN };
    gh_buffer at = { 0 };

    return gh_border_find(toy.session, &key, &at, &err) == GH_OK ? at.address
                                                                 : NULL;
}

static void test_borders(void)
{
    gh_buffer out[4];
    struct io io[4];

    if (!start((struct toy_options){ .layers = 2 })) {
        return;
    }
    for (uint32_t i = 0; i < 4; i++) {
        out[i] = buffer(i, 16, 0);
        out[i].tensor = GH_TENSOR_HIDDEN;
        io[i] = (struct io){ .outputs = &out[i], .n_outputs = 1 };
    }
    for (uint32_t m = 0; m < 4; m++) {
        is_int(pass_of(0, GH_FORWARD, m & 1, m, &io[m & 1]).action,
               m < 2 ? GH_ACTION_RECORD : GH_ACTION_REPLAYED,
               "a forward of variant %u", m & 1);
        ok(found(GH_FORWARD, m) == out[m & 1].address,
           "what it has left is found, and not the other's");
        pass_of(0, GH_BACKWARD, 0, m, &no_io);
    }
    gh_pre_warmup(toy.session, NULL);
    pass_of(0, GH_FORWARD, 1, 4, &io[2]);
    ok(found(GH_FORWARD, 4) == out[2].address, "also where it ran eagerly");
    pass_of(0, GH_BACKWARD, 0, 4, &no_io);
    pass_of(0, GH_FORWARD, 0, 5, &io[3]);
    ok(found(GH_FORWARD, 5) == out[3].address,
       "and where the other one did before");
    pass_of(0, GH_BACKWARD, 0, 5, &no_io);
    gh_post_warmup(toy.session, NULL);
    toy_close(&toy);
}

static void test_a_tensor_that_moves(void)
{
    gh_aux aux = { .struct_size = sizeof(aux), .name = "rotary_cos" };

    if (!start((struct toy_options){ .layers = 1, .family = "mla" })) {
        return;
    }
    aux.buffer = buffer(6, 16, 0);
    gh_aux_bind(toy.session, &aux, &err);
    for (uint32_t turn = 0; turn < 2; turn++) {
        for (uint32_t v = 0; v < GH_VARIANTS; v++) {
            pass_of(0, GH_FORWARD, v, v, &no_io);
            is_int(pass_of(0, GH_BACKWARD, v, v, &no_io).action,
                   GH_ACTION_RECORD,
                   turn == 0 ? "variant %u is recorded"
                             : "variant %u again, as its tensor has moved",
                   v);
        }
        aux.buffer = buffer(7, 16, 0);
        gh_aux_bind(toy.session, &aux, &err);
    }
    toy_close(&toy);
}

struct lines {
    uint32_t recorded, eager;
};

static void take_line(void *user, gh_log_level level, const char *line)
{
    struct lines *lines = user;

    (void)level;
    lines->recorded += strstr(line, "backward (variant 1), slot 0") != NULL;
    lines->eager +=
        strstr(line, "backward (variant 1), microbatch 1, ran eagerly") != NULL;
}

static void test_the_log_and_the_trace(void)
{
    struct lines lines = { 0 };
    const gh_host_services host = { .struct_size = sizeof(host),
                                    .log = take_line,
                                    .user = &lines };
    struct trace_file trace;
    gh_buffer in;
    const struct io reads_in = { .inputs = &in, .n_inputs = 1 };

    if (!trace_file_open(&trace, "debug") ||
        !start((struct toy_options){
            .layers = 1, .environment = trace.environment, .host = &host })) {
        return;
    }
    in = buffer(1, 16, 0);
    for (uint32_t m = 0; m < 2; m++) {
        pass_of(0, GH_FORWARD, 0, m, &no_io);
        pass_of(0, GH_BACKWARD, 1, m, &reads_in);
        in = buffer(1, 32, 0);
    }
    toy_close(&toy);
    is_int(lines.recorded, 1, "the log names the variant of a recording");
    is_int(lines.eager, 1, "and of a pass that runs eagerly");
    is_int(trace_file_count(&trace,
                            "\"name\":\"record backward layer 0 variant1 mb0"),
           1, "the trace names the variant of a pass");
    is_int(trace_file_count(&trace, "\"variant\":1,\"action\":"), 2,
           "and has its number");
    is_int(trace_file_count(&trace,
                            "\"name\":\"graph backward layer 0 variant1 mb0"),
           1, "and so has the graph's own lane");
    is_int(trace_file_count(&trace, "variant"), 3,
           "of the first nothing is said");
    trace_file_remove(&trace);
}

int main(void)
{
    const char *reason;

    if (!toy_probe(&toy, &reason)) {
        return skip_all("%s", reason);
    }
    test_each_has_its_graph();
    test_a_microbatch_has_one_of_them();
    test_weight_gradients();
    test_inputs_from_either_are_chained();
    test_a_forward_that_is_recorded_anew();
    test_borders();
    test_a_tensor_that_moves();
    test_the_log_and_the_trace();
    return done_testing();
}
