/*
 * A host that captures and launches its graphs itself.
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/by_hand.h"
#include "tap/tap.h"

#include <string.h>

#define MANY 64

/* What the host has captured. */
struct captured {
    CUgraph graph;
    CUgraphExec exec;
};

/* The host: how it behaves, and what it was asked for. */
static struct {
    bool shows_graph, lends_exec;
    gh_status begin_fails, end_fails, launch_fails;
    bool begins_all_the_same, begins_nothing, names_nothing, ends_nothing;
    char said[512]; /* the services in order, by a letter or two each */
    char line[256]; /* the last warning */
    char recorded[256]; /* what was said last of a recording */
    uint32_t launches, made, destroyed, kept;
    bool was_idle; /* at each destroy */
    bool had_context;
    void *captured_on, *launched_on;
    struct captured objects[MANY];
} host;

static void say(const char *word)
{
    CUcontext ctx = NULL;

    toy.drv.cuCtxGetCurrent(&ctx);
    host.had_context = host.had_context && ctx == toy.ctx;
    if (strlen(host.said) + strlen(word) + 2 < sizeof(host.said)) {
        strcat(host.said, word);
        strcat(host.said, " ");
    }
}

static gh_status record_begin(void *user, const gh_recording *recording)
{
    (void)user;
    (void)recording;
    say("rB");
    return GH_OK;
}

static void record_end(void *user, const gh_recording *recording,
                       uint32_t kept)
{
    (void)user;
    (void)recording;
    host.kept += kept;
    say(kept ? "rE" : "r0");
}

static gh_status capture_begin(void *user, void *stream)
{
    say("cB");
    if (host.begins_all_the_same) {
        begin_capture(user, stream);
    }
    if (host.begin_fails != GH_OK || host.begins_nothing) {
        return host.begin_fails;
    }
    host.captured_on = stream;
    return begin_capture(user, stream);
}

static gh_status capture_end(void *user, void *stream, void **object_p,
                             void **graph_p)
{
    struct captured *object = &host.objects[host.made % MANY];
    CUgraph graph = NULL;

    (void)user;
    say("cE");
    if (host.begins_nothing) {
        host.made++;
        *object_p = object;
        return GH_OK;
    }
    if (!host.ends_nothing) {
        toy.drv.cuStreamEndCapture(stream, &graph);
    }
    if (host.end_fails != GH_OK || host.names_nothing) {
        toy.drv.cuGraphDestroy(graph);
        return host.end_fails;
    }
    host.made++;
    *object_p = object;
    if (graph != NULL) {
        *object = (struct captured){ .graph = graph };
        toy.drv.cuGraphInstantiateWithFlags(&object->exec, graph, 0);
    }
    *graph_p = host.shows_graph ? graph : NULL;
    return GH_OK;
}

static gh_status launch(void *user, void *object, void *stream, void **exec_p)
{
    struct captured *captured = object;

    (void)user;
    say("L");
    if (host.launch_fails != GH_OK) {
        return host.launch_fails;
    }
    host.launches++;
    host.launched_on = stream;
    if (host.lends_exec) {
        *exec_p = captured->exec;
    }
    return toy.drv.cuGraphLaunch(captured->exec, stream) == CUDA_SUCCESS
               ? GH_OK
               : GH_ERR_DEVICE;
}

/* Asking the software device for a stream makes it go on. */
static bool is_idle(void)
{
    if (toy.soft) {
        return toy_counts(&toy).pending == 0;
    }
    return toy.drv.cuStreamQuery(toy.streams[0]) == CUDA_SUCCESS;
}

static void destroy(void *user, void *object)
{
    struct captured *captured = object;

    (void)user;
    say("D");
    host.destroyed++;
    host.was_idle = host.was_idle && is_idle();
    if (captured->exec != NULL) {
        toy.drv.cuGraphExecDestroy(captured->exec);
        toy.drv.cuGraphDestroy(captured->graph);
    }
    *captured = (struct captured){ 0 };
}

static void take_line(void *user, gh_log_level level, const char *line)
{
    (void)user;
    if (level == GH_LOG_WARN) {
        strncpy(host.line, line, sizeof(host.line) - 1);
    } else if (level == GH_LOG_DEBUG) {
        strncpy(host.recorded, line, sizeof(host.recorded) - 1);
    }
}

static const gh_host_services lent = { .struct_size = sizeof(lent),
                                       .log = take_line,
                                       .record_begin = record_begin,
                                       .record_end = record_end,
                                       .capture_begin = capture_begin,
                                       .capture_end = capture_end,
                                       .launch = launch,
                                       .destroy = destroy };
static const char *const warning[] = { "GRAPHHOOKS_LOG=warn", NULL };
static const char *const warning_checked[] = { "GRAPHHOOKS_LOG=warn",
                                               "GRAPHHOOKS_CHECK=bitwise",
                                               NULL };

static bool start_host(struct toy_options options)
{
    memset(&host, 0, sizeof(host));
    host.was_idle = true;
    host.had_context = true;
    options.host = &lent;
    if (options.environment == NULL) {
        options.environment = warning;
    }
    return start(options);
}

static gh_buffer out;
static const struct io writes_seven = { .outputs = &out,
                                        .n_outputs = 1,
                                        .value = 7 };

static void clear_out(CUstream stream)
{
    toy.drv.cuMemsetD32Async((uintptr_t)out.address, 0, 4, stream);
}

/* A forward that writes 7, and its backward. */
static gh_decision microbatch(uint32_t m, CUstream stream)
{
    gh_decision d;

    out = buffer(0, 16, 0);
    clear_out(stream);
    d = run_with(0, GH_FORWARD, m, stream, &writes_seven);
    run(0, GH_BACKWARD, m, stream);
    return d;
}

static void test_what_is_said_of_nodes(void)
{
    static const char *const loud[] = { "GRAPHHOOKS_LOG=debug", NULL };

    if (!start_host((struct toy_options){ .layers = 1,
                                          .environment = loud })) {
        return;
    }
    microbatch(0, toy.streams[0]);
    ok(strstr(host.recorded, ", nodes not counted") != NULL,
       "nodes that are not shown are said to be: %s", host.recorded);
    toy_close(&toy);
    if (!start_host((struct toy_options){ .layers = 1,
                                          .environment = loud })) {
        return;
    }
    host.shows_graph = true;
    run(0, GH_FORWARD, 0, toy.streams[0]);
    ok(strstr(host.recorded, ", 1 nodes") != NULL,
       "those of a graph that is shown are counted: %s", host.recorded);
    toy_close(&toy);
}

static void test_a_host_that_launches_each_time(void)
{
    CUstream *s = toy.streams;
    gh_stats stats;

    if (!start_host((struct toy_options){ .layers = 1 })) {
        return;
    }
    is_int(microbatch(0, s[0]).action, GH_ACTION_RECORD,
           "a pass is recorded by the host");
    is_str(host.said, "rB cB cE L rE rB cB cE L rE ",
           "the services come in their order, each recording");
    is_int(read_at(&out), 7, "the first launch runs the pass");
    is_int((long)toy_stats(&toy).nodes, 0, "nodes that are not shown are none");

    host.said[0] = '\0';
    is_int(microbatch(1, s[0]).action, GH_ACTION_REPLAYED,
           "then it is replayed");
    is_str(host.said, "L L ", "by the host's launch, and no other service");
    is_int(read_at(&out), 7, "which runs the pass");
    microbatch(2, s[0]);
    stats = toy_stats(&toy);
    is_int(host.launches, 6, "each replay is a launch of the host's");
    is_int((long)stats.replays, 6, "and counted");
    is_int((long)stats.recordings, 2, "as are the recordings");
    toy.drv.cuCtxSetCurrent(NULL);
    run(0, GH_FORWARD, 3, s[0]);
    toy.drv.cuCtxSetCurrent(toy.ctx);
    ok(host.had_context, "the context is current in every service, also on a "
                         "thread that has none");
    toy_close(&toy);
    is_int(host.destroyed, 2, "the close has each object destroyed");
    is_int(host.made, 2, "that was made");
}

static void test_a_host_that_lends_its_graph(void)
{
    CUstream *s = toy.streams;

    if (!start_host((struct toy_options){ .layers = 1 })) {
        return;
    }
    host.lends_exec = host.shows_graph = true;
    microbatch(0, s[0]);
    is_int(host.launches, 2, "a host that lends its graph launches it once");
    is_int((long)toy_stats(&toy).nodes, 3, "its nodes are counted");
    host.said[0] = '\0';
    is_int(microbatch(1, s[0]).action, GH_ACTION_REPLAYED,
           "the library launches it from then on");
    is_str(host.said, "", "with no service");
    is_int(read_at(&out), 7, "and the pass has run");
    toy_close(&toy);
    is_int(host.destroyed, 2, "a graph that is lent is destroyed by the host");
}

static void test_an_empty_capture(void)
{
    const gh_pass pass = a_pass(0, GH_FORWARD, 0, NULL, &no_io);
    gh_decision d = { .struct_size = sizeof(d) };

    for (uint32_t shown = 0; shown < 2; shown++) {
        gh_pass empty = pass;

        if (!start_host((struct toy_options){ .layers = 1 })) {
            return;
        }
        host.shows_graph = shown != 0;
        empty.stream = toy.streams[0];
        gh_layer_enter(toy.session, &empty, &d, &err);
        is_status(gh_layer_exit(toy.session, &empty, &err), GH_OK, &err,
                  "a capture of no work ends well");
        is_int((long)toy_eager(&toy, GH_REASON_EMPTY), shown,
               "it is known as one where the graph is shown: %u", shown);
        is_str(host.said, shown ? "rB cB cE r0 D " : "rB cB cE L rE ",
               "and destroyed then, after record_end");
        toy_close(&toy);
    }
}

/* The session behaves as if the pass had no graph; what is wrong was said. */
static void ends_eagerly(const char *said, const char *text, gh_reason reason,
                         uint32_t reruns)
{
    CUstreamCaptureStatus capture = 0;
    gh_stats stats;

    out = buffer(0, 16, 0);
    clear_out(toy.streams[0]);
    run_with(0, GH_FORWARD, 0, toy.streams[0], &writes_seven);
    is_str(host.said, said, "%s: the services in order", text);
    is_int(read_at(&out), 7, "%s: the pass has run", text);
    toy.drv.cuStreamIsCapturing(toy.streams[0], &capture);
    is_int(capture, CU_STREAM_CAPTURE_STATUS_NONE,
           "%s: the stream is out of capture", text);
    stats = toy_stats(&toy);
    is_int((long)stats.reruns, reruns, "%s: passes to run again", text);
    is_int((long)toy_eager(&toy, reason), 1, "%s: eager, because of %s",
           text, gh_reason_name(reason));
    is_int(host.kept, 0, "%s: no address is kept", text);
    toy_close(&toy);
    is_int(host.destroyed, host.made, "%s: what was made is destroyed", text);
}

static void line_has(const char *words)
{
    ok(strstr(host.line, words) != NULL, "the log has '%s': %s", words,
       host.line);
}

static void test_a_capture_that_does_not_begin(void)
{
    if (!start_host((struct toy_options){ .layers = 1 })) {
        return;
    }
    host.begin_fails = GH_ERR_NO_MEMORY;
    ends_eagerly("rB cB r0 ", "a capture_begin that fails", GH_REASON_CAPTURE,
                 0);
    line_has("the host's capture_begin: GH_ERR_NO_MEMORY");
    if (!start_host((struct toy_options){ .layers = 1 })) {
        return;
    }
    host.begins_all_the_same = true;
    host.begin_fails = GH_ERR_STATE;
    ends_eagerly("rB cB r0 ", "a capture_begin that fails after it has begun",
                 GH_REASON_CAPTURE, 0);
    line_has("the host's capture_begin: GH_ERR_STATE");
    if (!start_host((struct toy_options){ .layers = 1 })) {
        return;
    }
    host.begins_nothing = true;
    ends_eagerly("rB cB cE D r0 ", "a capture_begin that begins nothing",
                 GH_REASON_CAPTURE, 0);
    line_has("nothing captures the stream");
}

static void test_a_capture_that_does_not_end(void)
{
    if (!start_host((struct toy_options){ .layers = 1 })) {
        return;
    }
    host.end_fails = GH_ERR_STATE;
    ends_eagerly("rB cB cE r0 ", "a capture_end that fails", GH_REASON_CAPTURE,
                 1);
    line_has("the host's capture_end: GH_ERR_STATE");
    if (!start_host((struct toy_options){ .layers = 1 })) {
        return;
    }
    host.end_fails = GH_ERR_STATE;
    host.ends_nothing = true;
    ends_eagerly("rB cB cE r0 ", "a capture_end that fails and ends nothing",
                 GH_REASON_CAPTURE, 1);
    if (!start_host((struct toy_options){ .layers = 1 })) {
        return;
    }
    host.ends_nothing = true;
    ends_eagerly("rB cB cE r0 D ", "a capture_end that ends nothing",
                 GH_REASON_CAPTURE, 1);
    line_has("still captured");
    if (!start_host((struct toy_options){ .layers = 1 })) {
        return;
    }
    host.names_nothing = true;
    ends_eagerly("rB cB cE r0 ", "a capture_end that names nothing",
                 GH_REASON_CAPTURE, 1);
    line_has("*object_p is NULL");
}

static void test_launches_that_fail(void)
{
    gh_decision d;

    if (!start_host((struct toy_options){ .layers = 1 })) {
        return;
    }
    host.launch_fails = GH_ERR_DEVICE;
    ends_eagerly("rB cB cE L r0 D ", "a first launch that fails",
                 GH_REASON_DEVICE, 1);
    line_has("the host's launch: GH_ERR_DEVICE");

    if (!start_host((struct toy_options){ .layers = 1 })) {
        return;
    }
    microbatch(0, toy.streams[0]);
    host.launch_fails = GH_ERR_DEVICE;
    d = microbatch(1, toy.streams[0]);
    is_int(d.action, GH_ACTION_RUN,
           "after a later launch that fails the host "
           "runs the pass");
    is_int(d.reason, GH_REASON_DEVICE, "which is eager for good");
    is_int(read_at(&out), 7, "and has run");
    is_int(host.destroyed, 2, "its object is destroyed at once");
    is_int((long)toy_stats(&toy).replays, 2, "and no replay counted");
    toy_close(&toy);
    is_int(host.destroyed, 2, "and not again at the close");
}

static void test_a_recording_that_is_given_up(void)
{
    gh_decision d = { .struct_size = sizeof(d) };
    gh_pass pass;

    if (!start_host((struct toy_options){ .layers = 1 })) {
        return;
    }
    pass = a_pass(0, GH_FORWARD, 0, toy.streams[0], &no_io);
    gh_layer_enter(toy.session, &pass, &d, &err);
    work(&d, &no_io);
    gh_layer_cancel(toy.session, &err);
    is_str(host.said, "rB cB cE r0 D ",
           "a recording that is cancelled is ended, then destroyed");
    is_int(microbatch(0, toy.streams[0]).action, GH_ACTION_RECORD,
           "and made another time");
    host.said[0] = '\0';
    pass.microbatch = 1;
    pass.segment = 0;
    gh_layer_enter(toy.session, &pass, &d, &err);
    gh_layer_cancel(toy.session, &err);
    is_str(host.said, "L ", "a replay that is cancelled has been launched");
    toy_close(&toy);

    if (!start_host((struct toy_options){ .layers = 1 })) {
        return;
    }
    pass.stream = toy.streams[0];
    gh_layer_enter(toy.session, &pass, &d, &err);
    work(&d, &no_io);
    toy_close(&toy);
    is_str(host.said, "rB cB cE r0 D ",
           "so is one that is open when the session closes");
}

/* The host may refuse to end what it has no use for. */
static void test_a_recording_that_is_given_up_and_does_not_end(void)
{
    gh_decision d = { .struct_size = sizeof(d) };
    gh_pass pass;

    if (!start_host((struct toy_options){ .layers = 1 })) {
        return;
    }
    pass = a_pass(0, GH_FORWARD, 0, toy.streams[0], &no_io);
    host.end_fails = GH_ERR_STATE;
    gh_layer_enter(toy.session, &pass, &d, &err);
    gh_layer_cancel(toy.session, &err);
    host.end_fails = GH_OK;
    is_int(microbatch(0, toy.streams[0]).action, GH_ACTION_RECORD,
           "a cancelled recording whose capture_end fails is made another "
           "time");
    toy_close(&toy);
}

/* Segment 1 reads what segment 0 writes, until it reads elsewhere. */
static void test_a_graph_that_is_recorded_anew(void)
{
    gh_buffer in = buffer(1, 16, 0);
    const struct io reads = { .inputs = &in, .n_inputs = 1 };
    const struct io writes = { .outputs = &in, .n_outputs = 1, .value = 3 };
    CUstream s;

    if (!start_host((struct toy_options){ .layers = 2 })) {
        return;
    }
    s = toy.streams[0];
    in = buffer(1, 16, 0);
    toy_configure(&toy, "SEED=7");
    for (uint32_t m = 0; m < 2; m++) {
        run_with(0, GH_FORWARD, m, s, &writes);
        if (m == 1) {
            host.said[0] = '\0';
            in = buffer(5, 16, 0);
        }
        run_with(1, GH_FORWARD, m, s, &reads);
        run(1, GH_BACKWARD, m, s);
        run(0, GH_BACKWARD, m, s);
    }
    is_str(host.said, "D D rB cB cE L rE rB cB cE L rE L ",
           "a forward that is recorded anew has its graph destroyed, and its "
           "backward's");
    ok(host.was_idle, "when nothing of them is running");
    is_int(host.made - host.destroyed, 4, "as many are left as passes");
    toy_close(&toy);
    is_int(host.destroyed, host.made, "and none after the close");
}

static void test_a_tensor_that_moves(void)
{
    gh_aux aux = { .struct_size = sizeof(aux), .name = "rotary_cos" };

    if (!start_host((struct toy_options){ .layers = 1, .family = "mla" })) {
        return;
    }
    toy_configure(&toy, "SEED=7");
    aux.buffer = buffer(6, 16, 0);
    is_status(gh_aux_bind(toy.session, &aux, &err), GH_OK, &err,
              "a tensor is bound");
    microbatch(0, toy.streams[0]);
    microbatch(1, toy.streams[0]);
    aux.buffer = buffer(7, 16, 0);
    is_status(gh_aux_bind(toy.session, &aux, &err), GH_OK, &err,
              "and bound elsewhere");
    is_int(host.destroyed, 2, "the graphs that read it are destroyed");
    ok(host.was_idle, "when nothing of them is running");
    is_int(microbatch(2, toy.streams[0]).action, GH_ACTION_RECORD,
           "and recorded again");
    toy_close(&toy);
}

static void test_a_thread_without_a_context(void)
{
    CUcontext ctx = toy.ctx;

    if (!start_host((struct toy_options){ .layers = 1 })) {
        return;
    }
    toy.drv.cuCtxSetCurrent(NULL);
    is_int(run(0, GH_FORWARD, 0, toy.streams[0]).action, GH_ACTION_RECORD,
           "a thread without a context records");
    is_str(host.said, "rB cB cE L rE ", "with every service");
    ok(host.had_context, "each of which has the session's");
    toy.drv.cuCtxGetCurrent(&ctx);
    ok(ctx == NULL, "that the thread has not kept");
    toy.drv.cuCtxSetCurrent(toy.ctx);
    toy_close(&toy);
}

static void test_streams(void)
{
    if (!start_host((struct toy_options){ .layers = 1 })) {
        return;
    }
    run_both(0, toy.streams[0]);
    ok(host.captured_on == toy.streams[0] && host.launched_on == toy.streams[0],
       "captured and launched on the pass's stream");
    for (uint32_t m = 1; m < 8; m++) {
        run_both(m, toy.streams[m % TOY_STREAMS]);
    }
    ok(host.launched_on == toy.streams[1], "a replay goes where its pass is");
    is_int(toy_races(&toy), 0, "in the order of the slot");
    toy_close(&toy);

    if (!start_host((struct toy_options){ .layers = 1 })) {
        return;
    }
    is_int(microbatch(0, NULL).action, GH_ACTION_RECORD,
           "a pass on the legacy stream is recorded");
    ok(host.captured_on != NULL, "on a stream that can be captured");
    ok(host.launched_on == NULL, "and launched on the legacy one");
    is_int(read_at(&out), 7, "where it runs");
    is_int(microbatch(1, NULL).action, GH_ACTION_REPLAYED, "and is replayed");
    toy_close(&toy);
}

static void test_checks(void)
{
    if (!start_host((struct toy_options){ .layers = 1,
                                          .environment = warning_checked })) {
        return;
    }
    microbatch(0, toy.streams[0]);
    is_str(host.said, "rB cB cE L rE rB cB cE L rE ",
           "GRAPHHOOKS_CHECK leaves the order of the services alone");
    is_int((long)toy_stats(&toy).reruns, 0, "and nothing runs again");
    is_int(microbatch(1, toy.streams[0]).action, GH_ACTION_REPLAYED,
           "a graph that the host launches is not compared");
    is_int((long)toy_stats(&toy).checks, 0, "nor counted as if it were");
    is_int(host.launches, 4, "it is launched once a pass");
    toy_close(&toy);
    if (!start_host((struct toy_options){ .layers = 1,
                                          .environment = warning_checked })) {
        return;
    }
    host.lends_exec = true;
    microbatch(0, toy.streams[0]);
    is_int(microbatch(1, toy.streams[0]).reason, GH_REASON_CHECK,
           "one that it lends is");
    is_int((long)toy_stats(&toy).checks, 1,
           "and counted, where there is an output to compare");
    toy_close(&toy);
}

static void test_some_of_the_services(void)
{
    static const char *const names[] = { "capture_begin", "capture_end",
                                         "launch", "destroy" };
    struct toy_options options = { .layers = 1, .elems = 64 };
    gh_host_services some;
    const char *reason;
    char word[64];

    options.host = &some;
    for (uint32_t i = 0; i < 4; i++) {
        some = lent;
        if (i == 0) {
            some.capture_begin = NULL;
        } else if (i == 1) {
            some.capture_end = NULL;
        } else if (i == 2) {
            some.launch = NULL;
        } else {
            some.destroy = NULL;
        }
        if (!toy_open(&toy, &options, &reason)) {
            return;
        }
        is_status(toy_attach(&toy), GH_ERR_INVALID, &toy.err,
                  "a host without %s cannot capture", names[i]);
        strcpy(word, "without ");
        strcat(word, names[i]);
        ok(strstr(toy.err.text, word) != NULL, "and is told: %s", toy.err.text);
        toy_close(&toy);
    }
}

int main(void)
{
    const char *reason;

    if (!toy_probe(&toy, &reason)) {
        return skip_all("%s", reason);
    }
    test_what_is_said_of_nodes();
    test_a_host_that_launches_each_time();
    test_a_host_that_lends_its_graph();
    test_an_empty_capture();
    test_a_capture_that_does_not_begin();
    test_a_capture_that_does_not_end();
    test_launches_that_fail();
    test_a_recording_that_is_given_up();
    test_a_recording_that_is_given_up_and_does_not_end();
    test_a_graph_that_is_recorded_anew();
    test_a_tensor_that_moves();
    test_a_thread_without_a_context();
    test_streams();
    test_checks();
    test_some_of_the_services();
    return done_testing();
}
