/*
 * Whatever function of the host's the library calls, from whatever call of the
 * host's: every hook that the function calls is refused, and changes nothing.
 *
 * The host below lends every service, and each of them calls every function of
 * the library that takes a session.  Hosts of several kinds then make every
 * public call.  A table says from which calls each service was seen at least,
 * so that a walk that no longer reaches one of them fails.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/hooks.h"
#include "tap/tap.h"

#include <stdlib.h>
#include <string.h>

/* The functions of a host that a session calls. */
enum service {
    LOG,
    DEVICE_ALLOC,
    DEVICE_FREE,
    RECORD_BEGIN,
    RECORD_END,
    RETAIN,
    RELEASE,
    CAPTURE_BEGIN,
    CAPTURE_END,
    LAUNCH,
    DESTROY,
    BEFORE_RECORDING,
    RELEASED,
    GATHER,
    ABORT,
    AGREE,
    WRITE,
    SERVICES
};

static const char *const service_names[SERVICES] = {
    "log",           "device_alloc", "device_free", "record_begin",
    "record_end",    "retain",       "release",     "capture_begin",
    "capture_end",   "launch",       "destroy",     "before_recording",
    "released",      "gather",       "abort",       "agree",
    "gh_plan_print's write",
};

/* ---- what each service calls --------------------------------------------- */

#define STREAM (toy.streams[0])
static gh_buffer input;

static gh_offload_tensor tensor;
static gh_offload_group a_group(uint64_t bytes)
{
    tensor = (gh_offload_tensor){ NULL, bytes };
    return (gh_offload_group){ .struct_size = sizeof(gh_offload_group),
                               .module = GH_MODULE_CORE_ATTN,
                               .n_tensors = 1,
                               .tensors = &tensor };
}

static const int32_t lengths[] = { 2, 3 };

static gh_status gather(void *user, uint32_t bank, const uint64_t *mine,
                        uint64_t *all, uint32_t n);
static void abort_comms(void *user, uint32_t bank);

static gh_ranks two_ranks(void)
{
    return (gh_ranks){ .struct_size = sizeof(gh_ranks),
                       .size = 2,
                       .gather = gather,
                       .abort = abort_comms };
}

static gh_status run_node(void *user, const gh_overlap_node *node,
                          gh_error *why);
static gh_status agree(void *user, double *numbers, uint32_t n, gh_error *why);

static gh_overlap_pair a_pair(void)
{
    return (gh_overlap_pair){ .struct_size = sizeof(gh_overlap_pair),
                              .flags = GH_OVERLAP_FORWARD |
                                       GH_OVERLAP_BACKWARD,
                              .forward_microbatch = 1,
                              .compute = STREAM,
                              .run_node = run_node,
                              .agree = agree };
}

/* Those that read are answered, or the session is closed. */
static bool reads_are_answered(gh_session *s, bool closing)
{
    gh_stats stats = { .struct_size = sizeof(stats) };
    gh_bank_stats bank = { .struct_size = sizeof(bank) };
    gh_segment segment = { .struct_size = sizeof(segment) };
    uint64_t n;
    const gh_status wanted = closing ? GH_ERR_STATE : GH_OK;
    bool answered = gh_session_stats(s, &stats, NULL) == wanted;

    answered &= gh_session_reasons(s, GH_REASON_BUSY, &n, NULL) == wanted;
    answered &= gh_bank_get_stats(s, 0, &bank, NULL) == wanted;
    answered &= gh_plan_segment(s, 0, 0, &segment, NULL) == wanted;
    return answered && (gh_plan_segment_count(s, 0) == 0) == closing;
}

/* ---- the walk ------------------------------------------------------------ */

#define MOST_CALLS 40
static const char *during; /* the public call that the host makes */
static const char *calls[MOST_CALLS];
static uint32_t n_calls;
static uint32_t seen[SERVICES][MOST_CALLS];
static uint32_t taken[SERVICES][HOOKS]; /* that were not refused as such */
static uint32_t unread[SERVICES];

static uint32_t number_of(const char *call)
{
    uint32_t i = 0;

    while (i < n_calls && strcmp(calls[i], call) != 0) {
        i++;
    }
    if (i == n_calls && n_calls < MOST_CALLS) {
        calls[n_calls++] = call;
    }
    return i;
}

static void probe(enum service service)
{
    gh_session *s = toy.session;
    const bool closing = during != NULL &&
                         strcmp(during, "gh_session_close") == 0;

    static bool probing; /* a close that is refused is logged, too */

    if (s == NULL || during == NULL || probing) {
        return;
    }
    probing = true;
    seen[service][number_of(during)]++;
    gh_session_close(s);
    for (uint32_t i = 0; i < HOOKS; i++) {
        gh_error why = { "" };
        const gh_status status = hooks[i].call(s, &why);

        taken[service][i] +=
            status != GH_ERR_STATE ||
            strstr(why.text, closing ? "the session is closed"
                                     : "a function of the host's") == NULL;
    }
    unread[service] += !reads_are_answered(s, closing);
    probing = false;
}

#define DURING(call, args) (during = #call, call args)

/* ---- the services -------------------------------------------------------- */

static void take_line(void *user, gh_log_level level, const char *line)
{
    (void)user;
    (void)level;
    (void)line;
    probe(LOG);
}

static gh_status device_alloc(void *user, uint64_t bytes, void **address_p)
{
    probe(DEVICE_ALLOC);
    return lend(user, bytes, address_p);
}

static void device_free(void *user, void *address, uint64_t bytes)
{
    probe(DEVICE_FREE);
    reuse(user, address, bytes);
}

static gh_status record_begin(void *user, const gh_recording *recording)
{
    (void)user;
    (void)recording;
    probe(RECORD_BEGIN);
    return GH_OK;
}

static void record_end(void *user, const gh_recording *recording,
                       uint32_t kept)
{
    (void)user;
    (void)recording;
    (void)kept;
    probe(RECORD_END);
}

static gh_status before_recording(void *user, const gh_recording *recording)
{
    (void)user;
    (void)recording;
    probe(BEFORE_RECORDING);
    return GH_OK;
}

static gh_status retain(void *user, void *object)
{
    (void)user;
    (void)object;
    probe(RETAIN);
    return GH_OK;
}

static void release(void *user, void *object)
{
    (void)user;
    (void)object;
    probe(RELEASE);
}

static void released(void *user, void *object)
{
    (void)user;
    (void)object;
    probe(RELEASED);
}

struct captured {
    CUgraph graph;
    CUgraphExec exec;
};

static gh_status capture_begin(void *user, void *stream)
{
    probe(CAPTURE_BEGIN);
    return begin_capture(user, stream);
}

static gh_status capture_end(void *user, void *stream, void **object_p,
                             void **graph_p)
{
    struct captured *object = calloc(1, sizeof(*object));

    (void)user;
    probe(CAPTURE_END);
    if (object == NULL ||
        toy.drv.cuStreamEndCapture(stream, &object->graph) != CUDA_SUCCESS) {
        free(object);
        return GH_ERR_DEVICE;
    }
    *object_p = object;
    *graph_p = object->graph;
    return GH_OK;
}

static gh_status launch(void *user, void *object, void *stream, void **exec_p)
{
    struct captured *captured = object;

    (void)user;
    (void)exec_p;
    probe(LAUNCH);
    if (captured->exec == NULL &&
        toy.drv.cuGraphInstantiateWithFlags(&captured->exec, captured->graph,
                                            0) != CUDA_SUCCESS) {
        return GH_ERR_DEVICE;
    }
    return toy.drv.cuGraphLaunch(captured->exec, stream) == CUDA_SUCCESS
               ? GH_OK
               : GH_ERR_DEVICE;
}

static void destroy(void *user, void *object)
{
    struct captured *captured = object;

    (void)user;
    probe(DESTROY);
    toy.drv.cuGraphExecDestroy(captured->exec);
    toy.drv.cuGraphDestroy(captured->graph);
    free(captured);
}

/* The other rank says the same as this one, but for its number and, at first,
 * its process. */
static bool peer_answers;

static gh_status gather(void *user, uint32_t bank, const uint64_t *mine,
                        uint64_t *all, uint32_t n)
{
    (void)user;
    (void)bank;
    probe(GATHER);
    memcpy(all, mine, n * sizeof(*all));
    memcpy(all + n, mine, n * sizeof(*all));
    /* Only the first of what gh_ranks_set compares has a number. */
    all[n] += strcmp(during, "gh_ranks_set") == 0 ? n == 8 : n == 2;
    return peer_answers ? GH_OK : GH_ERR_RANKS;
}

static void abort_comms(void *user, uint32_t bank)
{
    (void)user;
    (void)bank;
    probe(ABORT);
}

static gh_status agree(void *user, double *numbers, uint32_t n, gh_error *why)
{
    (void)user;
    (void)numbers;
    (void)n;
    (void)why;
    probe(AGREE);
    return GH_OK;
}

static void write_text(void *user, const char *text, size_t bytes)
{
    (void)user;
    (void)text;
    (void)bytes;
    probe(WRITE);
}

static gh_host_services lending(bool captures)
{
    gh_host_services host = { .struct_size = sizeof(host),
                              .log = take_line,
                              .device_alloc = device_alloc,
                              .device_free = device_free,
                              .record_begin = record_begin,
                              .record_end = record_end,
                              .before_recording = before_recording,
                              .retain = retain,
                              .release = release,
                              .released = released };

    if (captures) {
        host.capture_begin = capture_begin;
        host.capture_end = capture_end;
        host.launch = launch;
        host.destroy = destroy;
    }
    return host;
}

/* ---- passes -------------------------------------------------------------- */

static void issue(const gh_pass *pass, const gh_decision *d)
{
    if (d->action != GH_ACTION_REPLAYED) {
        toy.drv.cuMemsetD32Async(toy.memory + 256 * pass->microbatch, 1, 16,
                                 d->stream);
    }
}

static gh_status enter(gh_pass *pass, gh_decision *d)
{
    *d = (gh_decision){ .struct_size = sizeof(*d) };
    hooks_pass = *pass;
    return DURING(gh_layer_enter, (toy.session, pass, d, &err));
}

static gh_pass pass_of(uint32_t segment, gh_direction direction, uint32_t m)
{
    return (gh_pass){ .struct_size = sizeof(gh_pass),
                      .segment = segment,
                      .direction = direction,
                      .microbatch = m,
                      .stream = STREAM,
                      .inputs = &input,
                      .n_inputs = 1 };
}

static gh_status pass_through(gh_pass pass)
{
    gh_decision d;
    gh_status status;

    do {
        status = enter(&pass, &d);
        if (status != GH_OK) {
            return status;
        }
        issue(&pass, &d);
        status = DURING(gh_layer_exit, (toy.session, &pass, &err));
    } while (status == GH_RERUN);
    return status;
}

/* Forward and backward of all segments. */
static void step(uint32_t m)
{
    const uint32_t n = toy.n_segments;

    for (uint32_t i = 0; i < n; i++) {
        pass_through(pass_of(i, GH_FORWARD, m));
    }
    for (uint32_t i = n; i-- > 0;) {
        pass_through(pass_of(i, GH_BACKWARD, m));
    }
}

static void end_step(void)
{
    DURING(gh_iteration_end, (toy.session, &err));
}

/* Nothing has run yet, as the first step is the profile of offload. */
static bool open_host(struct toy_options options)
{

    options.layers = options.layers == 0 ? 1 : options.layers;
    options.elems = 64;
    options.streams = TOY_STREAMS;
    during = NULL;
    if (!toy_start(&toy, &options, "SEED=0 RACES=1")) {
        return false;
    }
    input = toy_buffer(toy.memory + 4096, 64, 0);
    return true;
}

static void close_host(const char *what)
{
    /* toy_close() then finds it closed. */
    DURING(gh_session_close, (toy.session));
    during = NULL;
    is_int(toy_races(&toy), 0, "%s: nothing is raced for", what);
    toy_close(&toy);
}

/* ---- hosts --------------------------------------------------------------- */

static const char *const talks[] = { "GRAPHHOOKS_LOG=debug",
                                     "GRAPHHOOKS_WARMUP_STEPS=0",
                                     "GRAPHHOOKS_MAX_BANKS=1", NULL };

static gh_status bind(const char *name, uint32_t at)
{
    const gh_aux aux = { .struct_size = sizeof(aux),
                         .name = name,
                         .buffer = { (void *)(uintptr_t)(toy.memory + at), 64,
                                     0, 0 },
                         .object = &input };

    return DURING(gh_aux_bind, (toy.session, &aux, &err));
}

static void add_bank(void)
{
    const gh_bank_desc desc = { .struct_size = sizeof(desc),
                                .tokens = 64,
                                .sequences = 4 };
    uint32_t bank;

    DURING(gh_bank_add, (toy.session, &desc, &bank, &err));
}

static void give_sequences(uint32_t m)
{
    const gh_packed packed = { .struct_size = sizeof(packed),
                               .bank = 1,
                               .microbatch = m,
                               .n_sequences = 2,
                               .lengths = lengths,
                               .stream = STREAM };
    gh_packed_buffers buffers = { .struct_size = sizeof(buffers) };

    DURING(gh_packed_set, (toy.session, &packed, &buffers, &err));
}

/* Graphs, tables, banks and their ends. */
static void walk_graphs(bool captures)
{
    const gh_host_services host = lending(captures);
    const struct toy_options options = { .family = "mla",
                                         .host = &host,
                                         .environment = talks };
    gh_pass other;
    gh_decision d;

    if (!open_host(options)) {
        return;
    }
    DURING(gh_plan_print,
           (toy.session, GH_FORMAT_TEXT, write_text, NULL, &err));
    bind("rotary_cos", 8192);
    bind("rotary_sin", 8192);
    step(0);
    end_step();
    step(0);
    end_step();
    bind("rotary_cos", 12288); /* the graphs that read it go */
    step(0);
    end_step();

    /* A recording that its host breaks. */
    other = pass_of(0, GH_FORWARD, 1);
    other.variant = 1;
    enter(&other, &d);
    toy.drv.cuStreamSynchronize(d.stream);
    DURING(gh_layer_exit, (toy.session, &other, &err));
    DURING(gh_layer_cancel, (toy.session, &err));
    end_step();

    /* A recording that is cancelled, and a bank that gives way. */
    add_bank();
    give_sequences(3);
    other = pass_of(0, GH_FORWARD, 3);
    other.bank = 1;
    enter(&other, &d);
    issue(&other, &d);
    DURING(gh_layer_cancel, (toy.session, &err));
    end_step();
    toy.drv.cuCtxSynchronize();
    end_step();
    DURING(gh_pre_warmup, (toy.session, &err));
    step(1);
    DURING(gh_post_warmup, (toy.session, &err));
    step(1);
    close_host(captures ? "a host that captures" : "a host that lends");
}

/* How a walk of ranks ends. */
enum end {
    STAY,
    CLEAR,
    GIVE_UP,
    PART_AT_ENTER,
    PART_AT_EXIT,
    ENDS
};

static void walk_ranks(bool captures, enum end end)
{
    const gh_host_services host = lending(captures);
    const struct toy_options options = { .host = &host,
                                         .environment = talks };
    const gh_ranks ranks = two_ranks();
    gh_pass other;
    gh_decision d;

    if (!open_host(options)) {
        return;
    }
    other = pass_of(0, GH_FORWARD, 1);
    other.variant = 1;
    peer_answers = true;
    is_status(DURING(gh_ranks_set, (toy.session, &ranks, &err)), GH_OK, &err,
              "two ranks share the bank");
    step(0);
    end_step();
    step(0);
    DURING(gh_ranks_wait, (toy.session, STREAM, &err));
    if (end == CLEAR) {
        DURING(gh_ranks_clear, (toy.session, 0, &err));
        DURING(gh_ranks_set, (toy.session, &ranks, &err));
        enter(&other, &d);
        issue(&other, &d);
        DURING(gh_layer_cancel, (toy.session, &err));
    } else if (end == PART_AT_ENTER) {
        peer_answers = false;
        pass_through(other);
    } else if (end == PART_AT_EXIT) {
        enter(&other, &d);
        issue(&other, &d);
        peer_answers = false;
        DURING(gh_layer_exit, (toy.session, &other, &err));
    } else if (end == GIVE_UP) {
        DURING(gh_ranks_abort, (toy.session, NULL, &err));
    }
    close_host("ranks");
}

/* ---- offload ------------------------------------------------------------- */

static void save(uint32_t m, bool own)
{
    gh_pass forward = pass_of(0, GH_FORWARD, m);
    gh_offload_group group;
    gh_decision d;
    gh_status status;

    do {
        enter(&forward, &d);
        if (d.action != GH_ACTION_REPLAYED) {
            group = a_group(4096);
            if (own) {
                tensor.address =
                    (void *)(uintptr_t)(toy.memory + 16384 + 4096 * m);
                group.flags = GH_OFFLOAD_HOST_OWNED;
                group.object = &input;
            }
            DURING(gh_offload_save, (toy.session, &group, &err));
            toy.drv.cuMemsetD32Async((uintptr_t)tensor.address, 1, 1024,
                                     d.stream);
            DURING(gh_offload_commit,
                   (toy.session, 0, GH_MODULE_CORE_ATTN, &err));
            issue(&forward, &d);
        }
        status = DURING(gh_layer_exit, (toy.session, &forward, &err));
    } while (status == GH_RERUN);
}

static void load(uint32_t m)
{
    gh_pass backward = pass_of(0, GH_BACKWARD, m);
    gh_offload_group group;
    gh_decision d;
    gh_status status;

    do {
        enter(&backward, &d);
        if (d.action != GH_ACTION_REPLAYED) {
            group = a_group(4096);
            DURING(gh_offload_load, (toy.session, &group, &err));
            issue(&backward, &d);
            DURING(gh_offload_release,
                   (toy.session, 0, GH_MODULE_CORE_ATTN, &err));
        }
        status = DURING(gh_layer_exit, (toy.session, &backward, &err));
    } while (status == GH_RERUN);
}

static void walk_offload(bool own, uint32_t kind)
{
    static const char *const options[][2] = {
        { "GRAPHHOOKS_OFFLOAD_MIN_BYTES=1", "GRAPHHOOKS_OFFLOAD_FRACTION=0" },
        { "GRAPHHOOKS_OFFLOAD_MIN_BYTES=1", "GRAPHHOOKS_OFFLOAD_FRACTION=1" },
        { "GRAPHHOOKS_OFFLOAD_MIN_BYTES=1", "GRAPHHOOKS_OFFLOAD_DELAY=1" },
        { "GRAPHHOOKS_OFFLOAD_MIN_BYTES=65536",
          "GRAPHHOOKS_OFFLOAD_FRACTION=1" },
    };
    const gh_host_services host = lending(false);
    const char *const environment[] = { "GRAPHHOOKS_LOG=debug",
                                        "GRAPHHOOKS_WARMUP_STEPS=0",
                                        "GRAPHHOOKS_OFFLOAD=core_attn",
                                        options[kind][0],
                                        options[kind][1],
                                        NULL };
    const struct toy_options host_options = { .host = &host,
                                              .environment = environment };
    gh_decision d;
    gh_pass pass;

    if (!open_host(host_options)) {
        return;
    }
    for (uint32_t s = 0; s < 4; s++) {
        save(0, own);
        toy.drv.cuCtxSynchronize();
        DURING(gh_flush_delayed, (toy.session, &err));
        toy.drv.cuCtxSynchronize();
        DURING(gh_flush_delayed, (toy.session, &err));
        load(0);
        save(1, own);
        toy.drv.cuCtxSynchronize();
        load(1);
        save(2, own);
        if (s % 2 != 0) {
            pass = pass_of(0, GH_BACKWARD, 2);
            enter(&pass, &d);
            DURING(gh_layer_cancel, (toy.session, &err));
        }
        end_step();
    }
    save(0, own);
    close_host("offload");
}

static void walk_declared(void)
{
    const gh_host_services host = lending(false);
    static const char *const environment[] = {
        "GRAPHHOOKS_LOG=debug", "GRAPHHOOKS_OFFLOAD=core_attn",
        "GRAPHHOOKS_OFFLOAD_MIN_BYTES=1", NULL
    };
    const struct toy_options options = { .layers = 4,
                                         .host = &host,
                                         .environment = environment };
    gh_offload_declared declared[4];

    if (!open_host(options)) {
        return;
    }
    for (uint32_t i = 0; i < 4; i++) {
        declared[i] = (gh_offload_declared){ .struct_size = sizeof(*declared),
                                             .layer = i,
                                             .segment = i,
                                             .module = GH_MODULE_CORE_ATTN,
                                             .bytes = 4096 };
    }
    DURING(gh_offload_declare, (toy.session, declared, 4, 1, &err));
    close_host("declared groups");
}

/* ---- overlap ------------------------------------------------------------- */

static gh_status run_node(void *user, const gh_overlap_node *node,
                          gh_error *why)
{
    (void)user;
    (void)why;
    for (uint32_t i = 0; i < node->n_segments; i++) {
        const uint32_t last = node->first_segment + node->n_segments - 1;
        gh_pass pass = pass_of(node->direction == GH_FORWARD
                                   ? node->first_segment + i
                                   : last - i,
                               node->direction, node->microbatch);

        pass.stream = node->stream;
        pass_through(pass);
        during = "gh_overlap_run";
    }
    return GH_OK;
}

static void walk_overlap(void)
{
    static const char *const environment[] = { "GRAPHHOOKS_LOG=debug",
                                               "GRAPHHOOKS_OVERLAP=auto",
                                               NULL };
    const gh_layer_desc layer = { .struct_size = sizeof(layer),
                                  .kind = GH_LAYER_MOE,
                                  .experts = 4 };
    const gh_host_services host = lending(false);
    const struct toy_options options = { .layer = &layer,
                                         .host = &host,
                                         .flags = GH_SESSION_EP_OVERLAP,
                                         .environment = environment };
    gh_overlap_pair pair = a_pair();

    if (!open_host(options)) {
        return;
    }
    for (uint32_t s = 0; s < 5; s++) {
        pair.flags = GH_OVERLAP_FORWARD;
        pair.forward_microbatch = 0;
        pair.backward_microbatch = 0;
        DURING(gh_overlap_run, (toy.session, &pair, &err));
        pair.flags |= GH_OVERLAP_BACKWARD;
        pair.forward_microbatch = 1;
        DURING(gh_overlap_run, (toy.session, &pair, &err));
        pair.flags = GH_OVERLAP_BACKWARD;
        pair.forward_microbatch = 0;
        pair.backward_microbatch = 1;
        DURING(gh_overlap_run, (toy.session, &pair, &err));
        end_step();
    }
    close_host("overlap");
}

/* ---- what was seen ------------------------------------------------------- */

static const struct {
    enum service service;
    const char *during;
} reached[] = {
    { LOG, "gh_layer_enter" },
    { LOG, "gh_layer_exit" },
    { LOG, "gh_iteration_end" },
    { LOG, "gh_bank_add" },
    { LOG, "gh_layer_cancel" },
    { LOG, "gh_session_close" },
    { LOG, "gh_ranks_set" },
    { LOG, "gh_ranks_abort" },
    { LOG, "gh_offload_declare" },
    { LOG, "gh_overlap_run" },
    { DEVICE_ALLOC, "gh_layer_enter" },
    { DEVICE_ALLOC, "gh_packed_set" },
    { DEVICE_ALLOC, "gh_offload_save" },
    { DEVICE_ALLOC, "gh_offload_load" },
    { DEVICE_FREE, "gh_aux_bind" },
    { DEVICE_FREE, "gh_layer_enter" },
    { DEVICE_FREE, "gh_layer_exit" },
    { DEVICE_FREE, "gh_iteration_end" },
    { DEVICE_FREE, "gh_layer_cancel" },
    { DEVICE_FREE, "gh_session_close" },
    { DEVICE_FREE, "gh_ranks_clear" },
    { RECORD_BEGIN, "gh_layer_enter" },
    { RECORD_END, "gh_layer_enter" },
    { RECORD_END, "gh_layer_exit" },
    { RECORD_END, "gh_layer_cancel" },
    { RETAIN, "gh_aux_bind" },
    { RELEASE, "gh_aux_bind" },
    { RELEASE, "gh_iteration_end" },
    { CAPTURE_BEGIN, "gh_layer_enter" },
    { CAPTURE_END, "gh_layer_enter" },
    { CAPTURE_END, "gh_layer_exit" },
    { CAPTURE_END, "gh_layer_cancel" },
    { LAUNCH, "gh_layer_enter" },
    { LAUNCH, "gh_layer_exit" },
    { DESTROY, "gh_aux_bind" },
    { DESTROY, "gh_layer_enter" },
    { DESTROY, "gh_layer_exit" },
    { DESTROY, "gh_iteration_end" },
    { DESTROY, "gh_layer_cancel" },
    { DESTROY, "gh_session_close" },
    { DESTROY, "gh_ranks_clear" },
    { DESTROY, "gh_ranks_abort" },
    { BEFORE_RECORDING, "gh_layer_enter" },
    { RELEASED, "gh_layer_exit" },
    { RELEASED, "gh_iteration_end" },
    { RELEASED, "gh_layer_cancel" },
    { RELEASED, "gh_flush_delayed" },
    { RELEASED, "gh_offload_release" },
    { GATHER, "gh_layer_enter" },
    { GATHER, "gh_layer_exit" },
    { GATHER, "gh_layer_cancel" },
    { GATHER, "gh_ranks_set" },
    { ABORT, "gh_layer_enter" },
    { ABORT, "gh_layer_exit" },
    { ABORT, "gh_ranks_abort" },
    { AGREE, "gh_overlap_run" },
    { WRITE, "gh_plan_print" },
};

static void report(void)
{
    for (size_t i = 0; i < sizeof(reached) / sizeof(reached[0]); i++) {
        ok(seen[reached[i].service][number_of(reached[i].during)] != 0,
           "%s was called in %s", service_names[reached[i].service],
           reached[i].during);
    }
    for (uint32_t s = 0; s < SERVICES; s++) {
        for (uint32_t i = 0; i < HOOKS; i++) {
            is_int(taken[s][i], 0, "%s, called by %s, is refused as such",
                   hooks[i].name, service_names[s]);
        }
        is_int(unread[s], 0, "%s may read the plan and the counters",
               service_names[s]);
    }
}

int main(void)
{
    int status;

    if (!toy_probe_soft(&status)) {
        return status;
    }
    walk_graphs(false);
    walk_graphs(true);
    for (enum end end = 0; end < ENDS; end++) {
        walk_ranks(false, end);
        walk_ranks(true, end);
    }
    for (uint32_t kind = 0; kind < 4; kind++) {
        walk_offload(false, kind);
        walk_offload(true, kind);
    }
    walk_declared();
    walk_overlap();
    report();
    return done_testing();
}
