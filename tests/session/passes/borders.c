/*
 * An eager remainder finds what a captured part has left, and the other way
 * round, whoever wrote it last.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/by_hand.h"
#include "tap/tap.h"

#include <string.h>

/* Of one MoE layer: attn..preprocess is graphed, the rest is eager. */
static const gh_layer_desc moe_layer = { .struct_size = sizeof(moe_layer),
                                         .kind = GH_LAYER_MOE,
                                         .experts = 8 };
enum {
    GRAPHED = 0,
    EAGER = 1
};

static const struct toy_options partial = {
    .layer = &moe_layer, .scope = "attn,moe_router,moe_preprocess"
};

/* The i-th buffer of a set, under a name. */
static gh_buffer named(uint32_t set, uint32_t i, gh_tensor tensor)
{
    gh_buffer b = buffer(0, 256, 0);

    b.address = (char *)b.address + (size_t)256 * (8 * set + i);
    b.tensor = tensor;
    return b;
}

/* What the graphed segment hands on from this set of buffers. */
struct outputs {
    gh_buffer list[6];
    struct io io;
};

static void fill(struct outputs *o, uint32_t set)
{
    o->list[0] = named(set, 0, GH_TENSOR_HIDDEN);
    o->list[1] = named(set, 1, GH_TENSOR_PROBS);
    o->list[2] = named(set, 2, GH_TENSOR_DISPATCH);
    o->list[3] = named(set, 3, GH_TENSOR_NONE);
    o->list[4] = named(set, 4, GH_TENSOR_DISPATCH);
    o->list[5] = named(set, 5, GH_TENSOR_RESIDUAL);
    o->io = (struct io){ .outputs = o->list, .n_outputs = 6, .value = 7 };
}

static gh_decision forward(uint32_t m, uint32_t set)
{
    struct outputs o;

    fill(&o, set);
    return run_with(GRAPHED, GH_FORWARD, m, toy.streams[0], &o.io);
}

static const void *find_of(uint32_t segment, gh_direction direction, uint32_t m,
                           gh_tensor tensor, uint32_t which, uint32_t flags)
{
    const gh_border_key key = { .struct_size = sizeof(key),
                                .segment = segment,
                                .direction = direction,
                                .microbatch = m,
                                .flags = flags,
                                .tensor = tensor,
                                .which = which };
    gh_buffer b = { NULL, 0, 0, 0 };

    if (gh_border_find(toy.session, &key, &b, &err) != GH_OK) {
        return NULL;
    }
    return b.address;
}

static const void *find(uint32_t m, gh_tensor tensor, uint32_t which)
{
    return find_of(GRAPHED, GH_FORWARD, m, tensor, which, 0);
}

/* All of a microbatch's named outputs lie in this set. */
static bool are_in_set(uint32_t m, uint32_t set)
{
    return find(m, GH_TENSOR_HIDDEN, 0) == named(set, 0, 0).address &&
           find(m, GH_TENSOR_PROBS, 0) == named(set, 1, 0).address &&
           find(m, GH_TENSOR_DISPATCH, 0) == named(set, 2, 0).address &&
           find(m, GH_TENSOR_DISPATCH, 1) == named(set, 4, 0).address &&
           find(m, GH_TENSOR_RESIDUAL, 0) == named(set, 5, 0).address;
}

static void rest(uint32_t m)
{
    run(EAGER, GH_FORWARD, m, toy.streams[0]);
    run(EAGER, GH_BACKWARD, m, toy.streams[0]);
    run(GRAPHED, GH_BACKWARD, m, toy.streams[0]);
}

static void test_recorded_replayed_eager(void)
{
    if (!start(partial)) {
        return;
    }
    is_int(forward(0, 0).action, GH_ACTION_RECORD, "a pass is recorded");
    ok(are_in_set(0, 0), "and its outputs are found where it wrote them");
    rest(0);
    ok(find(0, GH_TENSOR_HIDDEN, 0) == NULL,
       "after its flight they are not found");
    ok(strstr(err.text, "layer 0 attn..moe_preprocess forward has not run for "
                        "microbatch 0") != NULL,
       "which is said: %s", err.text);

    is_int(forward(5, 0).action, GH_ACTION_REPLAYED,
           "another microbatch's is "
           "replayed");
    ok(are_in_set(5, 0), "and found where the recording wrote");
    ok(find(0, GH_TENSOR_HIDDEN, 0) == NULL, "under its own number only");

    is_int(forward(1, 1).action, GH_ACTION_RECORD, "a second slot is recorded");
    ok(are_in_set(1, 1) && are_in_set(5, 0),
       "each microbatch's outputs are in its slot");
    rest(5);
    rest(1);

    gh_pre_warmup(toy.session, &err);
    is_int(forward(2, 2).action, GH_ACTION_RUN, "a pass runs eagerly");
    ok(are_in_set(2, 2), "and is found where the host wrote, not the graph");
    rest(2);
    gh_post_warmup(toy.session, &err);
    is_int(forward(3, 3).action, GH_ACTION_REPLAYED, "the graph is back");
    ok(are_in_set(3, 0), "and its outputs are those of the recording");
    toy_close(&toy);
}

/* The names of a warmup are not those of the recording that follows. */
static void test_recorded_after_warmup(void)
{
    if (!start(partial)) {
        return;
    }
    gh_pre_warmup(toy.session, &err);
    forward(0, 2);
    rest(0);
    gh_post_warmup(toy.session, &err);
    is_int(forward(0, 0).action, GH_ACTION_RECORD,
           "a pass that has run eagerly is recorded");
    ok(are_in_set(0, 0), "and its outputs are those of the recording");
    toy_close(&toy);
}

/* Of the flight before nothing is found, though the slot is the same. */
static void test_the_flight_before(void)
{
    gh_buffer output;
    const struct io io = { .outputs = &output, .n_outputs = 1 };

    if (!start(partial)) {
        return;
    }
    output = named(4, 0, GH_TENSOR_HIDDEN);
    forward(0, 0);
    run_with(EAGER, GH_FORWARD, 0, toy.streams[0], &io);
    run(EAGER, GH_BACKWARD, 0, toy.streams[0]);
    run(GRAPHED, GH_BACKWARD, 0, toy.streams[0]);
    is_int(forward(0, 0).slot, 0, "the same microbatch is in its slot again");
    ok(find_of(EAGER, GH_FORWARD, 0, GH_TENSOR_HIDDEN, 0, 0) == NULL,
       "a segment that it has not come to has left nothing");
    run_with(EAGER, GH_FORWARD, 0, toy.streams[0], &io);
    ok(find_of(EAGER, GH_FORWARD, 0, GH_TENSOR_HIDDEN, 0, 0) == output.address,
       "until it comes to it");
    toy_close(&toy);
}

static void test_a_replay_needs_no_outputs(void)
{
    gh_decision d = { .struct_size = sizeof(d) };
    gh_pass pass;

    if (!start(partial)) {
        return;
    }
    forward(0, 0);
    rest(0);
    pass = a_pass(GRAPHED, GH_FORWARD, 0, toy.streams[0], &no_io);
    gh_layer_enter(toy.session, &pass, &d, &err);
    pass.n_outputs = 3;
    is_status(gh_layer_exit(toy.session, &pass, &err), GH_OK, &err,
              "what a host says of the outputs of a replay is not read");
    ok(are_in_set(0, 0), "they are those of the recording");
    toy_close(&toy);
}

static void test_eager_by_plan_and_backward(void)
{
    struct outputs o;
    gh_buffer gradients[2] = { { NULL, 0, 0, 0 } };
    const struct io io = { .outputs = gradients, .n_outputs = 2 };

    if (!start(partial)) {
        return;
    }
    fill(&o, 0);
    forward(0, 0);
    gradients[0] = named(4, 0, GH_TENSOR_HIDDEN);
    run_with(EAGER, GH_FORWARD, 0, toy.streams[0],
             &(struct io){ .outputs = gradients, .n_outputs = 1 });
    ok(find_of(EAGER, GH_FORWARD, 0, GH_TENSOR_HIDDEN, 0, 0) ==
           named(4, 0, 0).address,
       "what an eager segment leaves is found too");

    gradients[0] = named(5, 0, GH_TENSOR_HIDDEN);
    gradients[1] = named(5, 1, GH_TENSOR_PROBS);
    run_with(EAGER, GH_BACKWARD, 0, toy.streams[0], &io);
    ok(find_of(EAGER, GH_BACKWARD, 0, GH_TENSOR_PROBS, 0, 0) ==
           named(5, 1, 0).address,
       "and the gradients that go back to the graph");
    ok(find_of(EAGER, GH_FORWARD, 0, GH_TENSOR_HIDDEN, 0, 0) ==
           named(4, 0, 0).address,
       "beside what its forward left");
    toy_close(&toy);
}

static void test_without_a_slot(void)
{
    struct toy_options options = partial;
    struct outputs o;
    gh_pass pass;
    gh_decision d = { .struct_size = sizeof(d) };

    options.max_slots = 1;
    options.in_flight = 2;
    if (!start(options)) {
        return;
    }
    forward(0, 0);
    is_int(forward(1, 1).reason, GH_REASON_BUSY, "a microbatch has no slot");
    ok(are_in_set(1, 1), "its outputs are found all the same");
    forward(2, 2);
    ok(are_in_set(2, 2) && find(1, GH_TENSOR_HIDDEN, 0) == NULL,
       "until the next one without a slot");
    ok(strstr(err.text, "or another one without a slot has since: raise "
                        "GRAPHHOOKS_MAX_SLOTS") != NULL,
       "which is said: %s", err.text);
    ok(find_of(EAGER, GH_FORWARD, 2, GH_TENSOR_HIDDEN, 0, 0) == NULL &&
           strstr(err.text, "another one") == NULL,
       "and not of a pass that has not run: %s", err.text);
    ok(are_in_set(0, 0), "and those in the slot are as they were");

    rest(0);

    fill(&o, 4);
    pass = a_pass(GRAPHED, GH_FORWARD, 0, toy.streams[0], &o.io);
    pass.flags = GH_PASS_FORWARD_ONLY;
    forward(0, 0);
    gh_layer_enter(toy.session, &pass, &d, &err);
    gh_layer_exit(toy.session, &pass, &err);
    ok(are_in_set(0, 0), "an evaluation leaves the training's outputs alone");
    ok(find_of(GRAPHED, GH_FORWARD, 0, GH_TENSOR_HIDDEN, 0,
               GH_PASS_FORWARD_ONLY) == named(4, 0, 0).address,
       "and is found by its flag");
    rest(0);
    forward(0, 0);
    ok(find_of(GRAPHED, GH_FORWARD, 0, GH_TENSOR_HIDDEN, 0,
               GH_PASS_FORWARD_ONLY) == named(4, 0, 0).address,
       "also after a later forward of the training");
    forward(4, 3);

    gh_iteration_end(toy.session, &err);
    ok(find(2, GH_TENSOR_HIDDEN, 0) == NULL &&
           find(4, GH_TENSOR_HIDDEN, 0) == NULL,
       "the end of the step ends them all");
    toy_close(&toy);
}

static void test_first_without_a_slot(void)
{
    struct toy_options options = partial;

    options.max_slots = 1;
    options.in_flight = 2;
    if (!start(options)) {
        return;
    }
    forward(0, 0);
    forward(1, 1);
    rest(0);
    ok(are_in_set(1, 1), "a microbatch without a slot");
    rest(1);
    ok(find(1, GH_TENSOR_HIDDEN, 0) == NULL,
       "leaves nothing when its flight is over");
    is_int(forward(1, 0).slot, 0, "has one when it comes again");
    ok(are_in_set(1, 0), "and what it left without one is forgotten");
    rest(1);
    ok(find(1, GH_TENSOR_HIDDEN, 0) == NULL,
       "also when the flight in the slot is over");
    ok(strstr(err.text, "has not run for microbatch 1 in its present flight") !=
           NULL,
       "which is said: %s", err.text);
    gh_iteration_end(toy.session, &err);
    forward(0, 0);
    forward(1, 1);
    gh_iteration_end(toy.session, &err);
    ok(find(1, GH_TENSOR_HIDDEN, 0) == NULL, "as it is when the step is over");
    toy_close(&toy);
}

/* Two flights of one microbatch in a step, the first without a slot. */
static void test_the_flight_before_without_a_slot(bool slot_for_the_second)
{
    struct toy_options options = partial;
    gh_buffer hidden = { NULL, 0, 0, 0 };
    const struct io io = { .outputs = &hidden, .n_outputs = 1 };
    const char *second = slot_for_the_second ? "in a slot" : "without one too";

    options.max_slots = 1;
    options.in_flight = 2;
    if (!start(options)) {
        return;
    }
    hidden = named(4, 0, GH_TENSOR_HIDDEN);
    forward(0, 0);
    forward(1, 1);
    run_with(EAGER, GH_FORWARD, 1, toy.streams[0], &io);
    ok(find_of(EAGER, GH_FORWARD, 1, GH_TENSOR_HIDDEN, 0, 0) == hidden.address,
       "a flight without a slot leaves its outputs");
    run(EAGER, GH_BACKWARD, 1, toy.streams[0]);
    run(GRAPHED, GH_BACKWARD, 1, toy.streams[0]);
    if (slot_for_the_second) {
        rest(0);
    }
    is_int(forward(1, 1).slot, slot_for_the_second ? 0 : GH_SLOT_NONE,
           "the microbatch comes again, %s", second);
    ok(find_of(EAGER, GH_FORWARD, 1, GH_TENSOR_HIDDEN, 0, 0) == NULL,
       "what its flight before left is not found, %s", second);
    run_with(EAGER, GH_FORWARD, 1, toy.streams[0], &io);
    ok(find_of(EAGER, GH_FORWARD, 1, GH_TENSOR_HIDDEN, 0, 0) == hidden.address,
       "until it comes to it, %s", second);
    toy_close(&toy);
}

static void test_names_of_outputs(void)
{
    gh_buffer output = { NULL, 0, 0, 0 }, two[2];
    const struct io io = { .outputs = &output, .n_outputs = 1 };
    gh_decision d = { .struct_size = sizeof(d) };
    gh_pass pass;

    if (!start(partial)) {
        return;
    }
    two[0] = named(0, 0, GH_TENSOR_PROBS);
    two[1] = named(0, 1, GH_TENSOR_SHARED_OUTPUT);
    output = named(0, 0, GH_TENSOR_SHARED_OUTPUT);
    pass = a_pass(GRAPHED, GH_FORWARD, 0, toy.streams[0], &io);
    gh_layer_enter(toy.session, &pass, &d, &err);
    work(&d, &io);
    is_status(gh_layer_exit(toy.session, &pass, &err), GH_ERR_INVALID, &err,
              "an output that does not cross is refused");
    is_str(err.text,
           "gh_pass.outputs[0]: layer 0 attn..moe_preprocess forward hands on "
           "no shared_output: gh_plan_border lists what it does",
           "in a sentence");
    output.tensor = 99;
    is_status(gh_layer_exit(toy.session, &pass, &err), GH_ERR_INVALID, &err,
              "so is a name that is none");
    pass.outputs = two;
    pass.n_outputs = 2;
    is_status(gh_layer_exit(toy.session, &pass, &err), GH_ERR_INVALID, &err,
              "so is a second one");
    ok(strstr(err.text, "gh_pass.outputs[1]: ") != NULL, "which is said: %s",
       err.text);
    pass.segment = 2;
    is_status(gh_layer_exit(toy.session, &pass, &err), GH_ERR_STATE, &err,
              "of a segment that there is not no name is looked up");
    pass.segment = GRAPHED;
    pass.outputs = &output;
    pass.n_outputs = 1;
    output.tensor = GH_TENSOR_PROBS;
    is_status(gh_layer_exit(toy.session, &pass, &err), GH_OK, &err,
              "and the pass is still open for the right one");
    ok(find(0, GH_TENSOR_PROBS, 1) == NULL &&
           strstr(err.text, "has left no probs number 1") != NULL,
       "a second one is not found: %s", err.text);
    toy_close(&toy);
}

static void is_key_refused(gh_border_key key, gh_status wanted,
                           const char *words)
{
    gh_buffer b;

    is_status(gh_border_find(toy.session, &key, &b, &err), wanted, &err,
              "refused: %s", words);
    ok(strstr(err.text, words) != NULL, "in words: %s", err.text);
}

static void test_bad_keys(void)
{
    const gh_border_key good = { .struct_size = sizeof(good), .tensor = 1 };
    gh_border border = { .struct_size = sizeof(border) };
    gh_border_key bad;
    gh_buffer b;

    if (!start(partial)) {
        return;
    }
    bad = good;
    bad.segment = 2;
    is_key_refused(bad, GH_ERR_NOT_FOUND, "the plan has 2 segments");
    bad = good;
    bad.direction = GH_WGRAD;
    is_key_refused(bad, GH_ERR_INVALID, "gh_border_key.direction is 2");
    bad = good;
    bad.microbatch = GH_MAX_MICROBATCHES;
    is_key_refused(bad, GH_ERR_INVALID, "gh_border_key.microbatch is 16384");
    bad = good;
    bad.flags = GH_PASS_NO_WGRAD;
    is_key_refused(bad, GH_ERR_INVALID, "gh_border_key.flags is 0x2");
    bad = good;
    bad.flags = GH_PASS_FORWARD_ONLY;
    bad.direction = GH_BACKWARD;
    is_key_refused(bad, GH_ERR_INVALID, "gh_border_key.flags is 0x1");
    bad = good;
    bad.tensor = GH_TENSOR_NONE;
    is_key_refused(bad, GH_ERR_INVALID, "gh_border_key.tensor is 0");
    bad.tensor = GH_TENSOR_COUNT;
    is_key_refused(bad, GH_ERR_INVALID, "1 to 6");
    bad = good;
    bad.struct_size = 8;
    is_key_refused(bad, GH_ERR_ABI, "gh_border_key");
    is_status(gh_border_find(toy.session, NULL, &b, &err), GH_ERR_INVALID, &err,
              "no key at all");
    is_status(gh_border_find(toy.session, &good, NULL, &err), GH_ERR_INVALID,
              &err, "nowhere to put it");

    is_int(gh_plan_border_count(toy.session, 0, GH_SIDE_OUT), 5,
           "five tensors leave the graph");
    is_int(gh_plan_border_count(toy.session, 2, GH_SIDE_OUT), 0,
           "none a segment that is not there");
    is_int(gh_plan_border_count(toy.session, 0, 2), 0,
           "none by a side that is not there");
    is_status(gh_plan_border(toy.session, 0, GH_SIDE_OUT, 1, &border, &err),
              GH_OK, &err, "the second is");
    is_str(border.name, "residual", "the residual");
    is_status(gh_plan_border(toy.session, 0, GH_SIDE_OUT, 5, &border, &err),
              GH_ERR_NOT_FOUND, &err, "there is no sixth");
    is_status(gh_plan_border(toy.session, 2, GH_SIDE_OUT, 0, &border, &err),
              GH_ERR_NOT_FOUND, &err, "nor a third segment");
    is_status(gh_plan_border(toy.session, 0, GH_SIDE_OUT, 0, NULL, &err),
              GH_ERR_INVALID, &err, "nor a border nowhere");
    toy_close(&toy);
    is_status(gh_border_find(NULL, &good, &b, &err), GH_ERR_INVALID, &err,
              "no session");
}

/* ---- the number of a pass ---------------------------------------------- */

static void *eager_backward(uint32_t m, gh_buffer *gradient)
{
    const struct io io = { .outputs = gradient, .n_outputs = 1 };

    run(EAGER, GH_FORWARD, m, toy.streams[0]);
    run_with(EAGER, GH_BACKWARD, m, toy.streams[0], &io);
    return gradient->address;
}

/* A flight of one segment ends with its backward, right before the next one
 * begins: the two numbers are neighbours. */
static void test_the_pass_right_before_the_flight(bool slot)
{
    struct toy_options options = partial;
    const char *how = slot ? "in a slot" : "without one";
    gh_buffer gradient;

    options.max_slots = 1;
    options.in_flight = 2;
    if (!start(options)) {
        return;
    }
    gradient = named(5, 0, GH_TENSOR_HIDDEN);
    if (!slot) {
        forward(0, 0);
    }
    eager_backward(1, &gradient);
    run(EAGER, GH_FORWARD, 1, toy.streams[0]);
    ok(find_of(EAGER, GH_BACKWARD, 1, GH_TENSOR_HIDDEN, 0, 0) == NULL,
       "the last pass of the flight before is not of this one, %s", how);
    run_with(EAGER, GH_BACKWARD, 1, toy.streams[0],
             &(struct io){ .outputs = &gradient, .n_outputs = 1 });
    run(GRAPHED, GH_FORWARD, 1, toy.streams[0]);
    ok(find_of(EAGER, GH_BACKWARD, 1, GH_TENSOR_HIDDEN, 0, 0) == NULL,
       "nor where another segment begins this one, %s", how);
    toy_close(&toy);
}

/* The same where the backward is a graph's: two dense layers. */
static void test_the_graph_right_before_the_flight(void)
{
    static const char *const before[] = { "not there", "recorded", "replayed" };
    gh_buffer gradient;
    const struct io io = { .outputs = &gradient, .n_outputs = 1 };

    if (!start((struct toy_options){ .layers = 2 })) {
        return;
    }
    gradient = named(5, 0, GH_TENSOR_HIDDEN);
    for (uint32_t i = 0; i < 3; i++) {
        run(1, GH_FORWARD, 0, toy.streams[0]);
        ok(find_of(1, GH_BACKWARD, 0, GH_TENSOR_HIDDEN, 0, 0) == NULL,
           "a flight that begins has no backward: that of the one before was "
           "%s",
           before[i]);
        run_with(1, GH_BACKWARD, 0, toy.streams[0], &io);
    }
    run(0, GH_FORWARD, 0, toy.streams[0]);
    run(1, GH_FORWARD, 0, toy.streams[0]);
    run_with(1, GH_BACKWARD, 0, toy.streams[0], &io);
    ok(find_of(1, GH_BACKWARD, 0, GH_TENSOR_HIDDEN, 0, 0) == gradient.address,
       "one that has run in this flight is found");
    toy_close(&toy);
}

/* The first pass of a flight, and of a session, counts as part of it. */
static void test_the_first_pass_of_a_flight(void)
{
    struct toy_options options = partial;

    options.max_slots = 1;
    options.in_flight = 2;
    if (!start(options)) {
        return;
    }
    for (uint32_t turn = 0; turn < 3; turn++) {
        forward(0, 0);
        ok(are_in_set(0, 0), "what began the flight is found at once (%u)",
           turn);
        forward(1, 1);
        ok(are_in_set(1, 1), "and of the one without a slot (%u)", turn);
        run(EAGER, GH_FORWARD, 1, toy.streams[0]);
        ok(are_in_set(1, 1), "also after its next pass (%u)", turn);
        run(EAGER, GH_BACKWARD, 1, toy.streams[0]);
        ok(are_in_set(1, 1), "and the one after that (%u)", turn);
        run(GRAPHED, GH_BACKWARD, 1, toy.streams[0]);
        rest(0);
    }
    toy_close(&toy);
}

/* ---- with a slot and without ------------------------------------------- */

static void test_eager_with_and_without_a_slot(void)
{
    struct toy_options options = partial;

    options.max_slots = 2;
    options.in_flight = 3;
    if (!start(options)) {
        return;
    }
    gh_pre_warmup(toy.session, &err);
    forward(0, 0);
    forward(1, 1);
    is_int(forward(2, 2).slot, GH_SLOT_NONE,
           "of three eager passes one has no slot");
    ok(are_in_set(0, 0) && are_in_set(1, 1) && are_in_set(2, 2),
       "and each is found where it wrote");
    rest(2);
    ok(are_in_set(0, 0) && are_in_set(1, 1),
       "those in the slots also when the third is over");
    toy_close(&toy);
}

/* After its backward a segment may come again in the same flight. */
static void test_a_forward_that_comes_again(void)
{
    gh_buffer first, second, again;

    if (!start(partial)) {
        return;
    }
    first = named(1, 0, GH_TENSOR_HIDDEN);
    second = named(2, 0, GH_TENSOR_HIDDEN);
    again = named(3, 0, GH_TENSOR_HIDDEN);
    forward(0, 0);
    run_with(EAGER, GH_FORWARD, 0, toy.streams[0],
             &(struct io){ .outputs = &first, .n_outputs = 1 });
    is_int(run_with(EAGER, GH_FORWARD, 0, toy.streams[0],
                    &(struct io){ .outputs = &second, .n_outputs = 1 })
               .action,
           UINT32_MAX, "a second forward before its backward is refused");
    ok(find_of(EAGER, GH_FORWARD, 0, GH_TENSOR_HIDDEN, 0, 0) == first.address,
       "and the first one's output is found");
    run(EAGER, GH_BACKWARD, 0, toy.streams[0]);
    is_int(run_with(EAGER, GH_FORWARD, 0, toy.streams[0],
                    &(struct io){ .outputs = &again, .n_outputs = 1 })
               .slot,
           0, "after its backward it is in the slot again");
    ok(find_of(EAGER, GH_FORWARD, 0, GH_TENSOR_HIDDEN, 0, 0) == again.address,
       "and the later one's is found");
    toy_close(&toy);
}

static void test_an_evaluation_of_another_step(void)
{
    struct outputs o;
    gh_pass pass;

    if (!start(partial)) {
        return;
    }
    fill(&o, 4);
    pass = a_pass(GRAPHED, GH_FORWARD, 0, toy.streams[0], &o.io);
    pass.flags = GH_PASS_FORWARD_ONLY;
    toy_empty_pass(&toy, &pass);
    ok(find_of(GRAPHED, GH_FORWARD, 0, GH_TENSOR_HIDDEN, 0,
               GH_PASS_FORWARD_ONLY) == named(4, 0, 0).address,
       "what an evaluation has left is found in its step");
    gh_iteration_end(toy.session, &err);
    ok(find_of(GRAPHED, GH_FORWARD, 0, GH_TENSOR_HIDDEN, 0,
               GH_PASS_FORWARD_ONLY) == NULL,
       "and not in the next one");
    toy_close(&toy);
}

/* On two streams that nothing can order there are no slots to share. */
static void test_without_a_driver(void)
{
    static const char *const off[] = { "GRAPHHOOKS_LOG=off",
                                       "GRAPHHOOKS_ENABLE=0",
                                       "GRAPHHOOKS_DRIVER=/no/such/driver.so",
                                       NULL };
    struct toy_options options = partial;
    struct outputs o;

    options.max_slots = 1;
    options.in_flight = 2;
    options.environment = off;
    if (!start(options)) {
        return;
    }
    fill(&o, 2);
    run_both(0, toy.streams[0]);
    is_int(run_with(GRAPHED, GH_FORWARD, 1, toy.streams[1], &o.io).slot,
           GH_SLOT_NONE, "without a driver a slot stays on its stream");
    ok(are_in_set(1, 2), "what a microbatch leaves without one is found");
    run(GRAPHED, GH_BACKWARD, 1, toy.streams[1]);
    run(EAGER, GH_FORWARD, 1, toy.streams[1]);
    ok(find(1, GH_TENSOR_HIDDEN, 0) == NULL,
       "and is not of the flight that follows");
    toy_close(&toy);
}

/* ---- what is said ------------------------------------------------------ */

static void test_what_has_not_begun(void)
{
    struct toy_options options = partial;
    const char *reason;

    options.max_slots = 1;
    options.in_flight = 2;
    if (!start(options)) {
        return;
    }
    forward(0, 0);
    forward(1, 1);
    ok(find(2, GH_TENSOR_HIDDEN, 0) == NULL &&
           strstr(err.text, "has not run for microbatch 2") != NULL &&
           strstr(err.text, "another one") == NULL,
       "of a microbatch that has not begun nothing was lost: %s", err.text);
    toy_close(&toy);

    options.layers = 1;
    options.elems = 64;
    options.environment = quiet;
    if (!toy_open(&toy, &options, &reason) || toy_attach(&toy) != GH_OK) {
        ok(false, "a session opens: %s", toy.err.text);
        return;
    }
    ok(find(0, GH_TENSOR_HIDDEN, 0) == NULL &&
           strstr(err.text, "has not run") != NULL,
       "in a new session nothing has run: %s", err.text);
    toy_close(&toy);
}

int main(void)
{
    const char *reason;

    if (!toy_probe(&toy, &reason)) {
        return skip_all("%s", reason);
    }
    test_recorded_replayed_eager();
    test_recorded_after_warmup();
    test_the_flight_before();
    test_a_replay_needs_no_outputs();
    test_eager_by_plan_and_backward();
    test_without_a_slot();
    test_first_without_a_slot();
    test_the_flight_before_without_a_slot(true);
    test_the_flight_before_without_a_slot(false);
    test_the_pass_right_before_the_flight(true);
    test_the_pass_right_before_the_flight(false);
    test_the_graph_right_before_the_flight();
    test_the_first_pass_of_a_flight();
    test_eager_with_and_without_a_slot();
    test_a_forward_that_comes_again();
    test_an_evaluation_of_another_step();
    test_without_a_driver();
    test_what_has_not_begun();
    test_names_of_outputs();
    test_bad_keys();
    return done_testing();
}
