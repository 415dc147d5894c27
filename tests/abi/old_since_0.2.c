/*
 * What ABI 0.2 has added goes on working for a caller built against it.
 *
 * Part of tests/abi/old.c from that release on.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "abi/old_caller.h"

static struct opening opening_of(const gh_host_services *host)
{
    static const char *const quiet[] = { "GRAPHHOOKS_LOG=off", NULL };

    return (struct opening){ .n_layers = 1,
                             .desc = { .max_slots = 2, .environment = quiet },
                             .host = *host };
}

static const gh_host_services none;

/* ---- gh_layer_desc ------------------------------------------------------- */

/* A wrong value in each field is refused in a sentence that names it. */
static void test_layer_fields(void)
{
    const struct {
        const char *field;
        gh_layer_desc layer;
    } wrong[] = {
        { "kind", { .kind = 99 } },
        { "chunk", { .chunk = 99 } },
        { "reserved", { .reserved = 1 } },
        { "features", { .features = 1u << 31 } },
        { "recompute", { .recompute = 1u << 31 } },
        { "offload", { .offload = 1u << 31 } },
        { "experts", { .kind = GH_LAYER_MOE } },
        { "dispatcher",
          { .kind = GH_LAYER_MOE, .experts = 8, .dispatcher = 99 } },
        { "reserved_end", { .reserved_end = 1 } },
        { "family", { .family = "no/family" } },
    };

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        gh_model *model = NULL;
        gh_layer_desc layer = wrong[i].layer;

        layer.struct_size = sizeof(layer);
        gh->model_create(&model, NULL);
        ok(gh->model_add_layer(model, &layer, &err) < 0 &&
               strstr(err.text, wrong[i].field) != NULL,
           "gh_layer_desc.%s of " RELEASE " is in its place", wrong[i].field);
        gh->model_destroy(model);
    }
}

/* ---- passes -------------------------------------------------------------- */

static void test_delayed_weight_gradients(void)
{
    struct opening opening = opening_of(&none);
    struct pass second = a_pass(GH_FORWARD, 1);

    opening.desc.flags = GH_SESSION_DELAY_WGRAD;
    if (!open_warm(&opening)) {
        return;
    }
    ok(is_recorded(GH_FORWARD, 0) && is_recorded(GH_BACKWARD, 0),
       "with GH_SESSION_DELAY_WGRAD of " RELEASE " two passes are recorded");
    ok(passes_as(&second, GH_ACTION_RECORD, GH_REASON_NONE) &&
           second.d.it.slot == 1,
       "the slot is held until the GH_WGRAD of " RELEASE);
    ok(is_recorded(GH_WGRAD, 0), "a GH_WGRAD of " RELEASE " is recorded");
    end_step();
    ok(is_replayed(GH_FORWARD, 0) && is_replayed(GH_BACKWARD, 0) &&
           is_replayed(GH_WGRAD, 0),
       "three directions of " RELEASE " are replayed");
    close_session();
}

static void test_no_weight_gradient(void)
{
    struct opening opening = opening_of(&none);
    struct pass backward = a_pass(GH_BACKWARD, 0);
    struct pass second = a_pass(GH_FORWARD, 1);

    opening.desc.flags = GH_SESSION_DELAY_WGRAD;
    if (!open_warm(&opening)) {
        return;
    }
    backward.call.it.flags = GH_PASS_NO_WGRAD;
    ok(is_recorded(GH_FORWARD, 0) &&
           passes_as(&backward, GH_ACTION_RECORD, GH_REASON_NONE),
       "a backward with GH_PASS_NO_WGRAD of " RELEASE " is recorded");
    ok(passes_as(&second, GH_ACTION_REPLAYED, GH_REASON_NONE) &&
           second.d.it.slot == 0,
       "GH_PASS_NO_WGRAD of " RELEASE " gives the slot back");
    close_session();
}

static struct pass a_variant(uint32_t variant, uint32_t microbatch)
{
    struct pass pass = a_pass(GH_BACKWARD, microbatch);

    pass.call.it.variant = variant;
    return pass;
}

static void test_prepare(void)
{
    const struct opening opening = opening_of(&none);
    struct pass ahead, now, later;

    if (!open_warm(&opening)) {
        return;
    }
    is_recorded(GH_FORWARD, 0);
    ahead = a_variant(1, 0);
    ahead.call.it.flags = GH_PASS_PREPARE;
    is_status(run_pass(&ahead), GH_OK, &err,
              "a pass with GH_PASS_PREPARE of " RELEASE " is ended");
    ok(ahead.d.it.action == GH_ACTION_RECORD && IS_WHOLE(ahead.d) &&
           result_of(&ahead) != ahead.word,
       "GH_PASS_PREPARE of " RELEASE " records a pass and runs nothing");
    now = a_variant(0, 0);
    ok(passes_as(&now, GH_ACTION_RECORD, GH_REASON_NONE),
       "the other gh_pass.variant of " RELEASE " has a recording of its own");

    is_replayed(GH_FORWARD, 2);
    later = a_variant(1, 2);
    ok(passes_as(&later, GH_ACTION_REPLAYED, GH_REASON_NONE),
       "what GH_PASS_PREPARE of " RELEASE " recorded is replayed");
    close_session();
}

static void test_no_exit(void)
{
    const struct opening opening = opening_of(&none);
    struct pass pass;

    if (!open_warm(&opening)) {
        return;
    }
    is_recorded(GH_FORWARD, 0);
    end_step();
    pass = a_pass(GH_FORWARD, 0);
    pass.call.it.flags = GH_PASS_NO_EXIT;
    is_status(enter_pass(&pass), GH_OK, &err,
              "a pass with GH_PASS_NO_EXIT of " RELEASE " is entered");
    if (is_int(pass.d.it.action, GH_ACTION_REPLAYED,
               "a pass with GH_PASS_NO_EXIT of " RELEASE " is replayed")) {
        pass.output = pass.d.it.outputs[0];
        ok(result_of(&pass) == pass.word && IS_WHOLE(pass.d),
           "GH_PASS_NO_EXIT of " RELEASE " leaves the result as ever");
    }
    is_status(exit_pass(&pass), GH_ERR_STATE, &err,
              "enter has ended a pass with GH_PASS_NO_EXIT of " RELEASE);
    close_session();
}

/* ---- borders ------------------------------------------------------------- */

/* Whether gh_border_find() answers where the pass has its output. */
static bool is_found(const struct pass *pass, gh_tensor tensor)
{
    FRAMED(gh_border_key) key;
    FRAMED(gh_buffer) at;

    FRAME(key);
    key.it.segment = pass->call.it.segment;
    key.it.direction = pass->call.it.direction;
    key.it.microbatch = pass->call.it.microbatch;
    key.it.tensor = tensor;
    memset(&at, GUARD, sizeof(at));
    return gh->border_find(session, &key.it, &at.it, &err) == GH_OK &&
           at.it.address == pass->output.address &&
           at.it.bytes == pass->output.bytes && at.it.tensor == tensor &&
           IS_WHOLE(at);
}

static void test_plan_borders(void)
{
    const uint32_t n = gh->plan_border_count(session, 0, GH_SIDE_OUT);
    FRAMED(gh_border) border;
    bool whole = true;

    for (uint32_t i = 0; i < n; i++) {
        FRAME(border);
        whole &= gh->plan_border(session, 0, GH_SIDE_OUT, i, &border.it,
                                 &err) == GH_OK &&
                 IS_WHOLE(border) && border.it.segment == 0 &&
                 strcmp(border.it.name, gh->tensor_name(border.it.tensor)) == 0;
    }
    ok(n > 1 && whole, "each gh_border of " RELEASE " is filled, and no more");
}

static void test_borders(void)
{
    struct opening opening = opening_of(&none);

    opening.layer.kind = GH_LAYER_MOE;
    opening.layer.experts = 8;
    opening.desc.scope = "attn,moe_router";
    if (!open_warm(&opening)) {
        return;
    }
    test_plan_borders();
    for (gh_action to = GH_ACTION_RECORD; to <= GH_ACTION_REPLAYED; to++) {
        struct pass pass = a_pass(GH_FORWARD, 0);

        pass.output.tensor = GH_TENSOR_PROBS;
        ok(passes_as(&pass, to, GH_REASON_NONE) &&
               is_found(&pass, GH_TENSOR_PROBS),
           "gh_border_find of " RELEASE " finds what a pass has left");
        ok(!is_found(&pass, GH_TENSOR_RESIDUAL),
           "gh_border_find of " RELEASE " finds nothing else");
        end_step();
    }
    close_session();
}

/* ---- the services of 0.2 ------------------------------------------------- */

/* What the host has been asked, one letter each, and its one graph. */
static struct asked {
    char order[32];
    char table[16]; /* its address stands for a tensor */
    CUgraph graph;
    CUgraphExec exec;
    bool strange; /* a service was called with other arguments than agreed */
} asked;

static void note(const void *user, char letter)
{
    const size_t n = strlen(asked.order);

    asked.strange |= user != &asked;
    if (n + 1 < sizeof(asked.order)) {
        asked.order[n] = letter;
    }
}

static gh_status retain(void *user, void *object)
{
    note(user, '+');
    asked.strange |= object != asked.table;
    return GH_OK;
}

static void release(void *user, void *object)
{
    note(user, '-');
    asked.strange |= object != asked.table;
}

static void test_aux(void)
{
    const gh_host_services keeping = { .user = &asked,
                                       .retain = retain,
                                       .release = release };
    struct opening opening = opening_of(&keeping);
    FRAMED(gh_aux) aux;

    asked = (struct asked){ 0 };
    opening.layer.family = "mla";
    if (!open_warm(&opening)) {
        return;
    }
    FRAME(aux);
    aux.it.name = "rotary_cos";
    aux.it.buffer.address = asked.table;
    aux.it.buffer.bytes = sizeof(asked.table);
    aux.it.object = asked.table;
    is_status(gh->aux_bind(session, &aux.it, &err), GH_OK, &err,
              "a gh_aux of " RELEASE " is bound");
    is_str(asked.order, "+", "retain of " RELEASE " is called for it");
    ok(is_recorded(GH_FORWARD, 0), "a pass that may read it is recorded");
    close_session();
    is_str(asked.order, "+-", "release of " RELEASE " is called at the close");
    ok(!asked.strange,
       "retain and release of " RELEASE " have their arguments");
}

static gh_status record_begin(void *user, const gh_recording *recording)
{
    note(user, 'r');
    asked.strange |= recording->stream != streams[1] || recording->slot != 0;
    return GH_OK;
}

static void record_end(void *user, const gh_recording *recording, uint32_t kept)
{
    note(user, 'R');
    asked.strange |= recording->stream != streams[1] || recording->slot != 0 || kept != 1;
}

static gh_status capture_begin(void *user, void *stream)
{
    note(user, 'c');
    return drv.cuStreamBeginCapture(
               stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) == CUDA_SUCCESS
               ? GH_OK
               : GH_ERR_DEVICE;
}

static gh_status capture_end(void *user, void *stream, void **object_p,
                             void **graph_p)
{
    note(user, 'C');
    if (drv.cuStreamEndCapture(stream, &asked.graph) != CUDA_SUCCESS ||
        drv.cuGraphInstantiateWithFlags(&asked.exec, asked.graph, 0) !=
            CUDA_SUCCESS) {
        return GH_ERR_DEVICE;
    }
    *object_p = asked.table;
    *graph_p = asked.graph;
    return GH_OK;
}

static gh_status launch(void *user, void *object, void *stream, void **exec_p)
{
    note(user, 'l');
    asked.strange |= object != asked.table;
    *exec_p = asked.exec;
    return drv.cuGraphLaunch(asked.exec, stream) == CUDA_SUCCESS
               ? GH_OK
               : GH_ERR_DEVICE;
}

static void destroy(void *user, void *object)
{
    note(user, 'd');
    asked.strange |= object != asked.table;
    drv.cuGraphExecDestroy(asked.exec);
    drv.cuGraphDestroy(asked.graph);
}

static void test_a_host_that_captures(void)
{
    const gh_host_services capturing = { .user = &asked,
                                         .record_begin = record_begin,
                                         .record_end = record_end,
                                         .capture_begin = capture_begin,
                                         .capture_end = capture_end,
                                         .launch = launch,
                                         .destroy = destroy };
    const struct opening opening = opening_of(&capturing);

    asked = (struct asked){ 0 };
    if (!open_warm(&opening)) {
        return;
    }
    ok(is_recorded(GH_FORWARD, 1), "a host of " RELEASE " captures a pass");
    is_str(asked.order, "rcClR",
           "a recording of " RELEASE " asks for its services in their order");
    end_step();
    ok(is_replayed(GH_FORWARD, 1), "what that host captured is replayed");
    is_str(asked.order, "rcClR", "a graph that it has lent needs no service");
    close_session();
    is_str(asked.order, "rcClRd",
           "destroy of " RELEASE " is called at the close");
    ok(!asked.strange,
       "services of such a host of " RELEASE " have their arguments");
}

void test_since_0_2(void)
{
    test_layer_fields();
    test_delayed_weight_gradients();
    test_no_weight_gradient();
    test_prepare();
    test_no_exit();
    test_borders();
    test_aux();
    test_a_host_that_captures();
}
