/*
 * A hook that is called wrongly says how, and changes nothing.
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/toy.h"
#include "tap/tap.h"

#include <stdlib.h>
#include <string.h>

static struct toy toy;
static gh_error err;

static gh_pass a_pass(void)
{
    return (gh_pass){ .struct_size = sizeof(gh_pass),
                      .stream = toy.streams[0] };
}

static gh_decision a_decision(void)
{
    return (gh_decision){ .struct_size = sizeof(gh_decision) };
}

static void enter_fails(const gh_pass *pass, gh_status status, const char *word,
                        const char *name)
{
    gh_decision d = a_decision();

    err.text[0] = '\0';
    is_status(gh_layer_enter(toy.session, pass, &d, &err), status, &err,
              "enter: %s", name);
    ok(strstr(err.text, word) != NULL, "enter: %s: the text says '%s'", name,
       word);
    ok(toy_keeps_decision(&toy, pass, 0), "enter: %s: no decision is written",
       name);
    ok(toy_keeps_decision(&toy, pass, 16),
       "enter: %s: nor one of a later release", name);
}

static void test_null_is_refused(void)
{
    gh_pass pass = a_pass();
    gh_decision d = a_decision();
    gh_stats stats = { .struct_size = sizeof(stats) };
    uint64_t count;

    is_status(gh_layer_enter(NULL, &pass, &d, &err), GH_ERR_INVALID, &err,
              "enter without a session");
    is_status(gh_layer_enter(toy.session, NULL, &d, &err), GH_ERR_INVALID, &err,
              "enter without a pass");
    is_status(gh_layer_enter(toy.session, &pass, NULL, &err), GH_ERR_INVALID,
              &err, "enter without a decision");
    is_status(gh_layer_enter(toy.session, NULL, &d, NULL), GH_ERR_INVALID, NULL,
              "enter without an error to fill");
    is_status(gh_layer_exit(NULL, &pass, &err), GH_ERR_INVALID, &err,
              "exit without a session");
    is_status(gh_layer_exit(toy.session, NULL, &err), GH_ERR_INVALID, &err,
              "exit without a pass");
    is_status(gh_layer_cancel(NULL, &err), GH_ERR_INVALID, &err,
              "cancel without a session");
    is_status(gh_pre_warmup(NULL, &err), GH_ERR_INVALID, &err,
              "pre_warmup without a session");
    is_status(gh_post_warmup(NULL, &err), GH_ERR_INVALID, &err,
              "post_warmup without a session");
    is_status(gh_flush_delayed(NULL, &err), GH_ERR_INVALID, &err,
              "flush_delayed without a session");
    is_status(gh_iteration_end(NULL, &err), GH_ERR_INVALID, &err,
              "iteration_end without a session");
    is_status(gh_session_stats(NULL, &stats, &err), GH_ERR_INVALID, &err,
              "stats without a session");
    is_status(gh_session_stats(toy.session, NULL, &err), GH_ERR_INVALID, &err,
              "stats without a struct");
    is_status(gh_session_reasons(NULL, GH_REASON_BUSY, &count, &err),
              GH_ERR_INVALID, &err, "reasons without a session");
    is_status(gh_session_reasons(toy.session, GH_REASON_BUSY, NULL, &err),
              GH_ERR_INVALID, &err, "reasons without a place for the count");
    is_int(gh_plan_segment_count(NULL, 0), 0, "no session has no segments");
    gh_session_close(NULL);
    gh_model_destroy(NULL);
}

static void test_a_pass_that_breaks_a_rule(void)
{
    gh_buffer bad_flag = { &toy, 4, 1u << 7, 0 };
    gh_buffer updated = { &toy, 4, GH_BUFFER_UPDATED, 0 };
    gh_buffer null_range = { NULL, 4, 0, 0 };
    gh_buffer bad_tensor = { &toy, 4, 0, GH_TENSOR_COUNT };
    gh_buffer many[GH_MAX_BUFFERS + 1] = { { NULL, 0, 0, 0 } };
    gh_pass pass;

    pass = a_pass();
    pass.struct_size = 8;
    enter_fails(&pass, GH_ERR_ABI, "struct_size", "a size below 0.1's");
    pass = a_pass();
    pass.segment = 2;
    enter_fails(&pass, GH_ERR_NOT_FOUND, "2 segments", "an unknown segment");
    pass = a_pass();
    pass.direction = 7;
    enter_fails(&pass, GH_ERR_INVALID, "direction", "an unknown direction");
    pass = a_pass();
    pass.microbatch = GH_MAX_MICROBATCHES;
    enter_fails(&pass, GH_ERR_INVALID, "microbatch", "too many microbatches");
    pass = a_pass();
    pass.flags = 1u << 30;
    enter_fails(&pass, GH_ERR_INVALID, "flags", "an unknown flag");
    pass = a_pass();
    pass.variant = GH_VARIANTS;
    enter_fails(&pass, GH_ERR_INVALID, "variant", "an unknown variant");
    pass = a_pass();
    pass.flags = GH_PASS_PREPARE;
    enter_fails(&pass, GH_ERR_INVALID, "PREPARE", "a prepared forward");
    pass = a_pass();
    pass.direction = GH_BACKWARD;
    pass.flags = GH_PASS_FORWARD_ONLY;
    enter_fails(&pass, GH_ERR_INVALID, "FORWARD_ONLY",
                "a backward that is forward only");
    pass = a_pass();
    pass.n_inputs = 1;
    enter_fails(&pass, GH_ERR_INVALID, "inputs", "inputs at NULL");
    pass.n_inputs = GH_MAX_BUFFERS + 1;
    pass.inputs = many;
    enter_fails(&pass, GH_ERR_INVALID, "1 to 1024 of them", "too many inputs");
    many[0].flags = 1u << 7;
    enter_fails(&pass, GH_ERR_INVALID, "1 to 1024 of them",
                "too many inputs, and a wrong one among them");
    many[0].flags = 0;
    many[GH_MAX_BUFFERS - 1].flags = 1u << 7;
    pass.n_inputs = GH_MAX_BUFFERS;
    enter_fails(&pass, GH_ERR_INVALID, "inputs[1023]: flags 0x80",
                "a wrong one that is the last of as many as there may be");
    pass.n_inputs = 1;
    pass.inputs = &bad_tensor;
    enter_fails(&pass, GH_ERR_INVALID, "tensors up to", "an unknown tensor");
    pass.inputs = &bad_flag;
    enter_fails(&pass, GH_ERR_INVALID, "flags", "an unknown buffer flag");
    pass.inputs = &updated;
    enter_fails(&pass, GH_ERR_INVALID, "flags", "an input that is updated");
    pass.inputs = &null_range;
    enter_fails(&pass, GH_ERR_INVALID, "NULL", "bytes at NULL");
}

static void test_hooks_out_of_order(void)
{
    gh_pass pass = a_pass(), other;
    gh_decision d = a_decision();

    is_status(gh_layer_exit(toy.session, &pass, &err), GH_ERR_STATE, &err,
              "exit without enter");
    pass.direction = GH_BACKWARD;
    enter_fails(&pass, GH_ERR_STATE, "before its forward",
                "a backward before its forward");

    pass = a_pass();
    is_status(gh_layer_enter(toy.session, &pass, &d, &err), GH_OK, &err,
              "a pass is entered");
    enter_fails(&pass, GH_ERR_STATE, "still open", "the same pass twice");
    other = pass;
    other.segment = 1;
    enter_fails(&other, GH_ERR_STATE, "still open", "another one meanwhile");
    is_status(gh_layer_exit(toy.session, &other, &err), GH_ERR_STATE, &err,
              "exit of another segment");
    other = pass;
    other.microbatch = 1;
    is_status(gh_layer_exit(toy.session, &other, &err), GH_ERR_STATE, &err,
              "exit of another microbatch");
    other = pass;
    other.stream = NULL;
    is_status(gh_layer_exit(toy.session, &other, &err), GH_ERR_STATE, &err,
              "exit on another stream");
    is_status(gh_iteration_end(toy.session, &err), GH_ERR_STATE, &err,
              "the step cannot end inside a pass");
    is_status(gh_pre_warmup(toy.session, &err), GH_ERR_STATE, &err,
              "pre_warmup cannot begin inside a pass");
    is_status(gh_flush_delayed(toy.session, &err), GH_ERR_STATE, &err,
              "nothing is flushed inside a pass");
    is_status(gh_layer_exit(toy.session, &pass, &err), GH_OK, &err,
              "after all that the pass is still open, and exits");
    is_status(gh_flush_delayed(toy.session, &err), GH_OK, &err,
              "between passes flush_delayed has nothing to do");
    is_status(gh_iteration_end(toy.session, &err), GH_OK, &err,
              "and the step ends");
}

static void test_cancel_gives_a_pass_up(void)
{
    const uint32_t before = 2;
    gh_pass pass = a_pass();
    gh_decision d = a_decision();

    for (uint32_t i = 0; i < before; i++) {
        toy_step(&toy, 1);
    }
    is_status(gh_layer_cancel(toy.session, &err), GH_OK, &err,
              "cancel with no pass open is nothing");
    pass.microbatch = 5;
    gh_layer_enter(toy.session, &pass, &d, &err);
    is_status(gh_layer_cancel(toy.session, &err), GH_OK, &err,
              "an open pass is given up");
    is_status(gh_layer_exit(toy.session, &pass, &err), GH_ERR_STATE, &err,
              "and is open no more");
    pass.direction = GH_BACKWARD;
    enter_fails(&pass, GH_ERR_STATE, "before its forward",
                "a forward that was given up has not run");
}

static void test_cancel_drops_a_recording(void)
{
    const struct toy_options options = { .layers = 1, .elems = 64 };
    CUstreamCaptureStatus capture = 0;
    gh_pass pass;
    gh_decision d = a_decision();
    struct toy other;

    if (!toy_start(&other, &options, NULL)) {
        return;
    }
    toy_step(&other, 1);
    pass = (gh_pass){ .struct_size = sizeof(pass), .stream = other.streams[0] };
    gh_layer_enter(other.session, &pass, &d, &err);
    is_int(d.action, GH_ACTION_RECORD, "after warmup a pass is recorded");
    gh_layer_cancel(other.session, &err);
    other.drv.cuStreamIsCapturing(other.streams[0], &capture);
    is_int(capture, CU_STREAM_CAPTURE_STATUS_NONE,
           "cancel takes the stream out of capture");
    toy_step(&other, 1);
    toy_step(&other, 1);
    is_int(toy_stats(&other).recordings, 2, "and the pass is recorded later");
    ok(toy_is_exact(&other),
       "a recording that was dropped leaves the weights exact");

    gh_layer_enter(other.session, &pass, &d, &err);
    toy_close(&other);
    ok(true, "a session closes with a pass open");
}

static void test_sizes_of_other_releases(void)
{
    struct {
        gh_pass pass;
        uint64_t tail;
    } newer = { .pass = a_pass() };
    struct {
        gh_decision decision;
        uint64_t tail;
    } d = { .decision = a_decision() };

    newer.pass.struct_size = sizeof(newer);
    d.decision.struct_size = sizeof(d);
    is_status(gh_layer_enter(toy.session, &newer.pass, &d.decision, &err),
              GH_OK, &err, "a newer host's zero tails are accepted");
    is_int(d.decision.struct_size, sizeof(d), "its struct_size is kept");
    ok(d.decision.stream == toy.streams[0], "and the decision is in it");
    gh_layer_cancel(toy.session, NULL);
    newer.tail = 1;
    is_status(gh_layer_enter(toy.session, &newer.pass, &d.decision, &err),
              GH_ERR_UNSUPPORTED, &err, "a tail that says something is not");
    ok(strstr(err.text, "byte 80") != NULL,
       "and the first byte of it is named: %s", err.text);
}

static void test_a_closed_session_is_refused(void)
{
    const struct toy_options options = { .layers = 1, .elems = 64 };
    gh_stats stats = { .struct_size = sizeof(stats) };
    gh_segment segment = { .struct_size = sizeof(segment) };
    gh_decision d = a_decision();
    gh_pass pass = a_pass();
    uint64_t count;
    gh_session *session;
    struct toy other;

    if (!toy_start(&other, &options, NULL)) {
        return;
    }
    session = other.session;
    toy_close(&other);
    is_status(gh_layer_enter(session, &pass, &d, &err), GH_ERR_STATE, &err,
              "enter on a closed session");
    ok(strstr(err.text, "closed") != NULL, "and the text says so");
    is_status(gh_layer_exit(session, &pass, &err), GH_ERR_STATE, &err,
              "exit on a closed session");
    is_status(gh_iteration_end(session, &err), GH_ERR_STATE, &err,
              "iteration_end on a closed session");
    is_status(gh_session_stats(session, &stats, &err), GH_ERR_STATE, &err,
              "stats of a closed session");
    is_status(gh_session_reasons(session, 0, &count, &err), GH_ERR_STATE, &err,
              "reasons of a closed session");
    is_int(gh_plan_segment_count(session, 0), 0,
           "a closed session has no segments");
    is_status(gh_plan_segment(session, 0, 0, &segment, &err), GH_ERR_STATE,
              &err, "nor any one segment");
    gh_session_close(session);
    ok(true, "closing it again is nothing");
}

static void opens_with(gh_session_desc desc, gh_status status, const char *word,
                       const char *name)
{
    gh_session *session = NULL;

    err.text[0] = '\0';
    is_status(gh_session_open(&desc, &session, &err), status, &err, "open: %s",
              name);
    ok(strstr(err.text, word) != NULL, "open: %s: the text says '%s': %s", name,
       word, err.text);
    ok(session == NULL, "open: %s: no session is written", name);
}

static void test_a_session_that_cannot_open(void)
{
    static const char *const bad_env[] = { "GRAPHHOOKS_MAX_SLOTS=many", NULL };
    static const char *const nothing[] = { NULL };
    gh_host_services half = { .struct_size = sizeof(half) };
    gh_layer_desc layer = { .struct_size = sizeof(layer) };
    gh_session_desc desc = { .struct_size = sizeof(desc),
                             .driver = "soft",
                             .environment = nothing };
    gh_session_desc good, d;
    gh_model *model, *empty;

    gh_model_create(&model, NULL);
    gh_model_create(&empty, NULL);
    gh_model_add_layer(model, &layer, NULL);
    good = desc;
    good.model = model;
    half.device_alloc = (gh_status(*)(void *, uint64_t, void **))1;

    opens_with(desc, GH_ERR_INVALID, "model", "no model");
    d = good;
    d.model = empty;
    opens_with(d, GH_ERR_INVALID, "no layers", "a model without layers");
    d = good;
    d.struct_size = 4;
    opens_with(d, GH_ERR_ABI, "struct_size", "a size below 0.1's");
    d = good;
    d.flags = 1u << 9;
    opens_with(d, GH_ERR_INVALID, "flags", "an unknown flag");
    d = good;
    d.reserved = 3;
    opens_with(d, GH_ERR_INVALID, "reserved", "a reserved field");
    d = good;
    d.scope = "atn";
    opens_with(d, GH_ERR_CONFIG, "attn", "a scope with a typing error");
    d = good;
    d.granularity = "step";
    opens_with(d, GH_ERR_CONFIG, "granularity", "an unknown granularity");
    d = good;
    d.max_slots = 65;
    opens_with(d, GH_ERR_CONFIG, "max_slots", "too many slots");
    d = good;
    d.environment = bad_env;
    opens_with(d, GH_ERR_CONFIG, "GRAPHHOOKS_MAX_SLOTS",
               "a bad value in the environment");
    d = good;
    d.driver = "/nowhere/libcuda.so";
    opens_with(d, GH_ERR_NO_DRIVER, "/nowhere/libcuda.so",
               "a driver that is not there");
    opens_with(d, GH_ERR_NO_DRIVER,
               "; set GRAPHHOOKS_DRIVER=soft for the software device, or "
               "GRAPHHOOKS_ENABLE=0 to run without a driver",
               "with what to do without it");
    d = good;
    d.driver = "./.libs/libgraphhooks.so";
    opens_with(d, GH_ERR_NO_DRIVER, "cuGetProcAddress",
               "a library that is no driver");
    d = good;
    d.host = &half;
    opens_with(d, GH_ERR_INVALID, "device_free", "half a service");

    gh_model_destroy(model);
    gh_model_destroy(empty);
}

static void test_disabled_needs_no_driver(void)
{
    static const char *const env[] = { "GRAPHHOOKS_ENABLE=0",
                                       "GRAPHHOOKS_DRIVER=/nowhere/x.so",
                                       NULL };
    gh_layer_desc layer = { .struct_size = sizeof(layer) };
    gh_session_desc desc = { .struct_size = sizeof(desc), .environment = env };
    gh_pass pass = { .struct_size = sizeof(pass) };
    gh_decision d = a_decision();
    gh_model *model;
    gh_session *session = NULL;

    gh_model_create(&model, NULL);
    gh_model_add_layer(model, &layer, NULL);
    desc.model = model;
    is_status(gh_session_open(&desc, &session, &err), GH_OK, &err,
              "a disabled session opens without a driver");
    gh_model_destroy(model);
    gh_layer_enter(session, &pass, &d, &err);
    is_int(d.reason, GH_REASON_DISABLED, "and runs every pass eagerly");
    is_int(d.slot, 0, "in a slot, as ever");
    gh_layer_exit(session, &pass, &err);
    gh_session_close(session);
}

static void test_a_stream_of_another_device(void)
{
    gh_pass pass = a_pass();
    CUcontext other = NULL;
    CUstream stream = NULL;
    CUdevice device;
    int count = 0;

    toy.drv.cuDeviceGetCount(&count);
    if (count < 2) {
        skip(3, "one device: nothing can be of another one");
        return;
    }
    toy.drv.cuDeviceGet(&device, 1);
    toy.drv.cuDevicePrimaryCtxRetain(&other, device);
    toy.drv.cuCtxSetCurrent(other);
    toy.drv.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
    toy.drv.cuCtxSetCurrent(toy.ctx);
    pass.stream = stream;
    enter_fails(&pass, GH_ERR_INVALID, "another context",
                "a stream of another device");
    toy.drv.cuStreamDestroy(stream);
    toy.drv.cuDevicePrimaryCtxRelease(device);
}

int main(void)
{
    const struct toy_options options = { .layers = 2, .elems = 64 };
    const char *reason;

    /* Two devices, where the device is software. */
    setenv("SOFTCUDA_DEVICES", "2", 1);
    if (!toy_open(&toy, &options, &reason)) {
        return skip_all("%s", reason);
    }
    is_status(toy_attach(&toy), GH_OK, &toy.err, "a session opens");

    test_null_is_refused();
    test_a_pass_that_breaks_a_rule();
    test_hooks_out_of_order();
    test_cancel_gives_a_pass_up();
    test_cancel_drops_a_recording();
    test_sizes_of_other_releases();
    test_a_closed_session_is_refused();
    test_a_session_that_cannot_open();
    test_disabled_needs_no_driver();
    test_a_stream_of_another_device();
    toy_close(&toy);
    return done_testing();
}
