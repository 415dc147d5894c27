/*
 * Any host: whatever it calls, in whatever order, with services that fail and
 * that call hooks, ranks that part, exchanges in graphs, other threads that
 * wait for the device, and driver calls that fail.
 *
 * The host is the toy's, on the software device.  Each byte of the input says what happens next.  What has to hold: a call
 * that fails says why; a service calls no hook with success; a pass that is
 * exact is exact; nothing is left at the end, and nothing raced.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tests/fuzz/fuzz.h"

#include "support/hooks.h"

#include <graphhooks/exchange.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const fuzz_corpus = NULL;
const unsigned fuzz_inputs = 300;

enum {
    SEGMENTS = 2,
    MICROBATCHES = 4,
    BYTES = 64, /* of an input and an output */
    SLOTS = 8,
    SETS = SLOTS + TOY_STREAMS /* of outputs: who has no slot, has a stream */
};

/* ---- the input ----------------------------------------------------------- */

static const uint8_t *at, *end;
static uint32_t noise; /* for what is called an unknown number of times */

static uint32_t take(uint32_t below)
{
    return at < end ? *at++ % below : 0;
}

static bool chance(uint32_t one_in)
{
    noise = noise * 1664525u + 1013904223u;
    return one_in != 0 && (noise >> 16) % one_in == 0;
}

/* ---- the host ------------------------------------------------------------ */

static bool parted, faulty, muted, serving;

/* What all inputs so far have come to. */
static struct {
    unsigned long recorded, replayed, partings, in_graphs, called, spoilt,
        offloaded, failed, suspended;
} reached;
static uint32_t fails, hooks_called; /* one in so many */
static gh_exchange *x;
static bool x_over;
static uint32_t n_objects;

/* A failure comes with a sentence. */
static gh_status said_why(const char *call, gh_status status)
{
    if (status < 0 && err.text[0] == '\0') {
        fuzz_found("%s fails with %s and says nothing", call,
                   gh_status_name(status));
    }
    reached.partings += status == GH_ERR_RANKS && !parted;
    parted |= status == GH_ERR_RANKS;
    return status;
}

#define CALL(call, args) (err.text[0] = '\0', said_why(#call, call args))

/* Every service: it may fail, and it may call a hook, which is refused. */
static gh_status serve(void)
{
    if (!serving && toy.session != NULL && chance(hooks_called)) {
        const struct hook *hook = &hooks[noise % HOOKS];
        gh_error why = { "" };
        gh_status status;

        serving = true;
        reached.called++;
        status = hook->call(toy.session, &why);
        if (status != GH_ERR_STATE || why.text[0] == '\0') {
            fuzz_found("a service calls %s: %s: %s", hook->name,
                       gh_status_name(status), why.text);
        }
        serving = false;
    }
    return chance(fails) ? GH_ERR_DEVICE : GH_OK;
}

static void take_line(void *user, gh_log_level level, const char *line)
{
    (void)user;
    (void)level;
    if (strchr(line, '\n') != NULL) {
        fuzz_found("a line of the log has a line break: %s", line);
    }
    serve();
}

static gh_status device_alloc(void *user, uint64_t bytes, void **address_p)
{
    const gh_status status = serve();

    return status == GH_OK ? lend(user, bytes, address_p) : status;
}

static void device_free(void *user, void *address, uint64_t bytes)
{
    (void)user;
    (void)bytes;
    serve();
    toy.drv.cuMemFree((uintptr_t)address);
}

static gh_status on_recording(void *user, const gh_recording *recording)
{
    (void)user;
    (void)recording;
    return serve();
}

static void record_end(void *user, const gh_recording *recording,
                       uint32_t kept)
{
    (void)user;
    (void)recording;
    (void)kept;
    serve();
}

static int retained;

static gh_status retain(void *user, void *object)
{
    const gh_status status = serve();

    (void)user;
    (void)object;
    retained += status == GH_OK;
    return status;
}

static void release(void *user, void *object)
{
    (void)user;
    (void)object;
    serve();
    retained--;
}

static gh_status capture_begin(void *user, void *stream)
{
    const gh_status status = serve();

    return status == GH_OK ? begin_capture(user, stream) : status;
}

static gh_status capture_end(void *user, void *stream, void **object_p,
                             void **graph_p)
{
    CUgraphExec exec = NULL;
    CUgraph graph = NULL;
    gh_status status = serve();

    (void)user;
    (void)graph_p;
    if (toy.drv.cuStreamEndCapture(stream, &graph) != CUDA_SUCCESS) {
        return GH_ERR_DEVICE;
    }
    if (status == GH_OK &&
        toy.drv.cuGraphInstantiateWithFlags(&exec, graph, 0) != CUDA_SUCCESS) {
        status = GH_ERR_DEVICE;
    }
    toy.drv.cuGraphDestroy(graph);
    if (status == GH_OK) {
        n_objects++;
        *object_p = exec;
    }
    return status;
}

static gh_status launch(void *user, void *object, void *stream, void **exec_p)
{
    gh_status status = serve();

    (void)user;
    (void)exec_p;
    if (status == GH_OK &&
        toy.drv.cuGraphLaunch(object, stream) != CUDA_SUCCESS) {
        status = GH_ERR_DEVICE;
    }
    return status;
}

static void destroy(void *user, void *object)
{
    (void)user;
    serve();
    toy.drv.cuGraphExecDestroy(object);
    n_objects--;
}

static gh_host_services services(uint32_t kind)
{
    gh_host_services host = { .struct_size = sizeof(host), .log = take_line };

    if (kind % 2 == 1) {
        host.device_alloc = device_alloc;
        host.device_free = device_free;
    }
    if (kind / 2 % 2 == 1) {
        host.record_begin = on_recording;
        host.record_end = record_end;
        host.before_recording = on_recording;
        host.retain = retain;
        host.release = release;
    }
    if (kind / 4 % 2 == 1) {
        host.capture_begin = capture_begin;
        host.capture_end = capture_end;
        host.launch = launch;
        host.destroy = destroy;
    }
    return host;
}

/* The other rank says what this one says, but for its number and process. */
static gh_status gather(void *user, uint32_t bank, const uint64_t *mine,
                        uint64_t *all, uint32_t n)
{
    (void)bank;
    memcpy(all, mine, n * sizeof(*all));
    memcpy(all + n, mine, n * sizeof(*all));
    all[n] += n == 2 || (n == 8 && user != NULL);
    return muted ? GH_ERR_RANKS : GH_OK;
}

static void abort_ranks(void *user, uint32_t bank)
{
    (void)user;
    (void)bank;
    serve();
}

/* ---- passes -------------------------------------------------------------- */

static gh_buffer input_of(uint32_t m)
{
    return toy_buffer(toy.memory + 8192 + 256 * m, BYTES, 0);
}

/* A graph writes what is its slot's. */
static uint32_t set_of(uint32_t slot, uint32_t m)
{
    return slot < SLOTS ? slot : SLOTS + m % TOY_STREAMS;
}

static CUdeviceptr output_of(uint32_t segment, uint32_t direction,
                             uint32_t set)
{
    return toy.memory + 16384 +
           256 * ((segment * 2 + direction) * SETS + set);
}

static void *wait_for_device(void *unused)
{
    (void)unused;
    toy.drv.cuCtxSetCurrent(toy.ctx);
    toy.drv.cuCtxSynchronize();
    return NULL;
}

static void offload(gh_direction direction, CUstream stream)
{
    gh_offload_tensor tensor = { NULL, 256 };
    gh_offload_group group = { .struct_size = sizeof(group),
                               .module = GH_MODULE_CORE_ATTN,
                               .n_tensors = 1,
                               .tensors = &tensor };

    if (direction == GH_FORWARD) {
        if (CALL(gh_offload_save, (toy.session, &group, &err)) == GH_OK) {
            reached.offloaded++;
            if (stream != NULL) {
                toy.drv.cuMemsetD32Async((uintptr_t)tensor.address, 1, 64,
                                         stream);
            }
            CALL(gh_offload_commit, (toy.session, 0, group.module, &err));
        }
    } else if (CALL(gh_offload_load, (toy.session, &group, &err)) == GH_OK) {
        CALL(gh_offload_release, (toy.session, 0, group.module, &err));
    }
}

static void exchange(CUdeviceptr from, CUstream stream, uint32_t set)
{
    gh_exchange_op op = { .struct_size = sizeof(op),
                          .stream = stream,
                          .send = (void *)(uintptr_t)from,
                          .window_offset = 256 * set,
                          .capacity = BYTES };

    if (x != NULL && CALL(gh_exchange_all_to_all, (x, &op, &err)) < 0) {
        x_over = true;
    }
}

/* What a host does in a pass.  True: it gives the pass up. */
static bool body(const gh_pass *pass, const gh_decision *d, CUdeviceptr to)
{
    const CUdeviceptr from = (uintptr_t)d->inputs[0].address;
    gh_buffer found;
    pthread_t thread;

    reached.recorded += d->action == GH_ACTION_RECORD;
    switch (take(20)) {
    case 0:
        reached.spoilt += d->action == GH_ACTION_RECORD;
        pthread_create(&thread, NULL, wait_for_device, NULL);
        pthread_join(thread, NULL);
        break;
    case 1:
        toy.drv.cuStreamSynchronize(d->stream);
        break;
    case 2:
        if (d->action == GH_ACTION_RECORD) {
            go_astray(d->stream);
        }
        break;
    case 3:
        CALL(gh_layer_cancel, (toy.session, &err));
        return true;
    case 4:
        if (hooks[2].call(toy.session, &err) != GH_ERR_STATE ||
            gh_iteration_end(toy.session, &err) != GH_ERR_STATE) {
            fuzz_found("a pass is open, and another begins, or a step ends");
        }
        break;
    case 5:
    case 6:
        offload(pass->direction, d->stream);
        break;
    case 7:
    case 8:
        reached.in_graphs += x != NULL && d->action == GH_ACTION_RECORD;
        exchange(from, d->stream, set_of(d->slot, pass->microbatch));
        break;
    case 9:
        gh_border_find(toy.session,
                       &(gh_border_key){ .struct_size = sizeof(gh_border_key),
                                         .tensor = GH_TENSOR_HIDDEN },
                       &found, &err);
        break;
    default:
        break;
    }
    toy.drv.cuMemcpyDtoDAsync(to, from, BYTES, d->stream);
    return false;
}

static void is_exact(const gh_buffer *out, uint32_t value,
                     const gh_decision *d)
{
    uint32_t found = 0;

    toy.drv.cuCtxSynchronize();
    toy.drv.cuMemcpyDtoH(&found, (uintptr_t)out->address, sizeof(found));
    if (found != value && !faulty) {
        fuzz_found("a pass has %u for %u (action %u, reason %s)", found, value,
                   d->action, gh_reason_name(d->reason));
    }
}

static void run_pass(void)
{
    const uint32_t segment = take(SEGMENTS), direction = take(2);
    const uint32_t m = take(MICROBATCHES), kind = take(16);
    const uint32_t value = 1 + take(250);
    const gh_buffer in = input_of(m);
    CUstream stream = toy.streams[m % TOY_STREAMS];
    gh_pass pass = { .struct_size = sizeof(pass),
                     .segment = segment,
                     .direction = direction,
                     .microbatch = m,
                     .variant = kind == 1,
                     .flags = kind == 2 ? GH_PASS_FORWARD_ONLY : 0,
                     .bank = kind == 3,
                     .n_inputs = 1,
                     .inputs = &in,
                     .stream = stream };
    gh_decision d = { .struct_size = sizeof(d) };
    gh_buffer out;
    gh_status status;

    toy.drv.cuMemsetD32Async((uintptr_t)in.address, value, BYTES / 4, stream);
    do {
        pass.n_outputs = 0;
        if (CALL(gh_layer_enter, (toy.session, &pass, &d, &err)) != GH_OK) {
            return;
        }
        hooks_pass = pass;
        if (d.action == GH_ACTION_REPLAYED) {
            out = d.outputs[0];
            reached.replayed++;
        } else {
            const CUdeviceptr to = output_of(segment, direction,
                                             set_of(d.slot, m));

            if (body(&pass, &d, to)) {
                return;
            }
            out = toy_buffer(to, BYTES, 0);
            pass.outputs = &out;
            pass.n_outputs = 1;
        }
        status = CALL(gh_layer_exit, (toy.session, &pass, &err));
    } while (status == GH_RERUN);
    if (status == GH_OK) {
        is_exact(&out, value, &d);
    }
}

/* ---- everything else ----------------------------------------------------- */

static void open_exchange(void)
{
    const char *const environment[] = { "GRAPHHOOKS_LOG=off", NULL };
    const gh_exchange_desc desc = { .struct_size = sizeof(desc),
                                    .n_ranks = 1,
                                    .window_bytes = 4096,
                                    .driver = toy_driver(),
                                    .environment = environment };

    if (x == NULL) {
        CALL(gh_exchange_create, (&desc, &x, &err));
    }
}

/* A driver call that fails soon; numbers, orders and leaks say nothing after
 * that. */
static void fail_a_call(void)
{
    softcuda_entry_fn *entry =
        (softcuda_entry_fn *)toy_control(&toy, "softcuda_entry");
    const uint32_t which = take(128), nth = 1 + take(4);
    char settings[120];
    uint32_t n = 0;

    while (entry(n) != NULL) {
        n++;
    }
    snprintf(settings, sizeof(settings), "SEED=0 FAIL=%s:%u", entry(which % n),
             nth);
    faulty = true;
    reached.failed++;
    toy_configure(&toy, settings);
}

static void set_ranks(void)
{
    static int other;
    const gh_ranks ranks = { .struct_size = sizeof(ranks),
                             .size = 2,
                             .user = &other,
                             .gather = gather,
                             .abort = abort_ranks };

    CALL(gh_ranks_set, (toy.session, &ranks, &err));
}

static void set_sequences(void)
{
    static const int32_t lengths[] = { 2, 3 };
    const gh_packed packed = { .struct_size = sizeof(packed),
                               .bank = 1,
                               .microbatch = take(MICROBATCHES),
                               .n_sequences = 1 + take(2),
                               .lengths = lengths,
                               .stream = toy.streams[0] };
    gh_packed_buffers buffers = { .struct_size = sizeof(buffers) };

    CALL(gh_packed_set, (toy.session, &packed, &buffers, &err));
}

static void add_bank(void)
{
    const gh_bank_desc desc = { .struct_size = sizeof(desc),
                                .tokens = 64,
                                .name = take(2) == 0 ? "two\nlines" : NULL,
                                .sequences = 4 };
    uint32_t bank;

    CALL(gh_bank_add, (toy.session, &desc, &bank, &err));
}

static void bind(void)
{
    const gh_aux aux = { .struct_size = sizeof(aux),
                         .name = take(2) == 0 ? "rotary_cos" : "none",
                         .buffer = toy_buffer(toy.memory + 1024 * take(4), 64,
                                              0),
                         .object = &x };

    CALL(gh_aux_bind, (toy.session, &aux, &err));
}

static void do_one(void)
{
    uint32_t m;

    switch (take(32)) {
    case 0:
    case 1:
    case 2:
        CALL(gh_iteration_end, (toy.session, &err));
        break;
    case 3:
        CALL(gh_flush_delayed, (toy.session, &err));
        break;
    case 4:
        CALL(gh_pre_warmup, (toy.session, &err));
        break;
    case 5:
        CALL(gh_post_warmup, (toy.session, &err));
        break;
    case 6:
        add_bank();
        break;
    case 7:
        set_sequences();
        break;
    case 8:
        set_ranks();
        break;
    case 9:
        CALL(gh_ranks_clear, (toy.session, take(2), &err));
        break;
    case 10:
        if (take(4) == 0) {
            CALL(gh_ranks_abort, (toy.session, "the host", &err));
        }
        break;
    case 11:
        muted = take(8) == 0;
        break;
    case 12:
        CALL(gh_ranks_wait, (toy.session, toy.streams[take(3)], &err));
        break;
    case 13:
        open_exchange();
        break;
    case 14:
        m = take(TOY_STREAMS);
        exchange((uintptr_t)input_of(m).address, toy.streams[m],
                 set_of(GH_SLOT_NONE, m));
        break;
    case 15:
        if (x != NULL) {
            CALL(gh_exchange_wait, (x, toy.streams[take(3)], &err));
        }
        break;
    case 16:
        bind();
        break;
    case 17:
        offload(take(2), NULL); /* no pass is open */
        break;
    case 18:
        CALL(gh_layer_cancel, (toy.session, &err));
        break;
    case 19:
        if (take(8) == 0) {
            fail_a_call();
        }
        break;
    case 20:
        reached.suspended +=
            CALL(gh_session_suspend, (toy.session, &err)) == GH_OK;
        if (take(4) != 0) {
            CALL(gh_session_resume, (toy.session, &err));
        }
        break;
    case 21:
        CALL(gh_session_resume, (toy.session, &err));
        break;
    default:
        run_pass();
    }
}

/* ---- the whole ----------------------------------------------------------- */

static bool open_host(const gh_host_services *host)
{
    static const char *const checks[] = { "GRAPHHOOKS_CHECK=off",
                                          "GRAPHHOOKS_CHECK=bitwise" };
    static const char *const fractions[] = {
        "GRAPHHOOKS_OFFLOAD_FRACTION=1", "GRAPHHOOKS_OFFLOAD_FRACTION=auto"
    };
    static const char *const delays[] = { "GRAPHHOOKS_OFFLOAD_DELAY=0",
                                          "GRAPHHOOKS_OFFLOAD_DELAY=1" };
    static const char *environment[10]; /* the toy keeps it */
    const struct toy_options options = { .layers = SEGMENTS,
                                         .elems = 1024,
                                         .streams = TOY_STREAMS,
                                         .max_slots = 1 + take(4),
                                         .host = host,
                                         .flags = take(2) == 0
                                                      ? GH_SESSION_SUSPENDS
                                                      : 0,
                                         .environment = environment };
    const char **next = environment;
    const char *reason;

    *next++ = "GRAPHHOOKS_LOG=debug";
    *next++ = "GRAPHHOOKS_MAX_BANKS=1";
    *next++ = "GRAPHHOOKS_OFFLOAD_MIN_BYTES=1";
    *next++ = take(2) == 0 ? "GRAPHHOOKS_WARMUP_STEPS=0"
                           : "GRAPHHOOKS_WARMUP_STEPS=1";
    *next++ = checks[take(4) == 3];
    *next++ = fractions[take(3) == 2];
    *next++ = delays[take(3) == 2];
    *next++ = take(2) == 0 ? NULL : "GRAPHHOOKS_OFFLOAD=core_attn";
    *next = NULL;
    if (!toy_open(&toy, &options, &reason)) {
        return false;
    }
    toy_configure(&toy, "SEED=0 RACES=1");
    return true;
}

static bool is_equal(const softcuda_counts *a, const softcuda_counts *b)
{
    return a->device_allocations == b->device_allocations &&
           a->host_allocations == b->host_allocations &&
           a->streams == b->streams && a->events == b->events &&
           a->graphs == b->graphs && a->execs == b->execs &&
           a->modules == b->modules && a->captures == b->captures;
}

static void close_host(const softcuda_counts *before)
{
    softcuda_counts after;

    muted = false;
    gh_session_close(toy.session);
    toy.session = NULL;
    toy.drv.cuCtxSynchronize();
    gh_exchange_destroy(x);
    x = NULL;
    after = toy_counts(&toy);
    if (!faulty && !is_equal(before, &after)) {
        fuzz_found("a session leaves something: %llu allocations, %llu pinned, "
                   "%llu streams, %llu events, %llu graphs, %llu execs, "
                   "%llu modules, %llu captures",
                   (unsigned long long)(after.device_allocations -
                                        before->device_allocations),
                   (unsigned long long)(after.host_allocations -
                                        before->host_allocations),
                   (unsigned long long)(after.streams - before->streams),
                   (unsigned long long)(after.events - before->events),
                   (unsigned long long)(after.graphs - before->graphs),
                   (unsigned long long)(after.execs - before->execs),
                   (unsigned long long)(after.modules - before->modules),
                   (unsigned long long)(after.captures - before->captures));
    }
    if (!faulty && (n_objects != 0 || retained != 0)) {
        fuzz_found("%u graphs of the host's are left, and %d objects",
                   n_objects, retained);
    }
    if (!faulty && toy_races(&toy) != 0) {
        fuzz_found("%llu races", (unsigned long long)toy_races(&toy));
    }
    toy_configure(&toy, "SEED=0");
}

const char *fuzz_skip(void)
{
    const char *reason = NULL;
    struct toy probe;

    return toy_probe(&probe, &reason) && probe.soft
               ? NULL
               : "only the software device fails on demand";
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const uint32_t rates[] = { 0, 4, 16, 64 };
    gh_host_services host;
    softcuda_counts before;

    at = data;
    end = data + bytes;
    noise = (uint32_t)bytes * 2654435761u;
    parted = faulty = muted = serving = x_over = false;
    n_objects = 0;
    retained = 0;
    fails = rates[take(4)];
    hooks_called = rates[take(4)];
    host = services(take(8));
    if (!open_host(&host)) {
        return 0;
    }
    before = toy_counts(&toy);
    if (toy_attach(&toy) == GH_OK) {
        while (at < end) {
            do_one();
            if (parted && take(4) == 0) {
                break;
            }
        }
    }
    close_host(&before);
    toy_close(&toy);
    return 0;
}

bool fuzz_reached(char *text, size_t bytes)
{
    snprintf(text, bytes,
             "%lu recordings, %lu replays, %lu partings, %lu exchanges in "
             "graphs, %lu hooks in services, %lu recordings spoilt, %lu groups "
             "offloaded, %lu failing calls, %lu times suspended",
             reached.recorded, reached.replayed, reached.partings,
             reached.in_graphs, reached.called, reached.spoilt,
             reached.offloaded, reached.failed, reached.suspended);
    return reached.recorded > 99 && reached.replayed > 99 &&
           reached.partings > 9 && reached.in_graphs > 9 &&
           reached.called > 99 && reached.spoilt > 9 &&
           reached.offloaded > 9 && reached.failed > 9 &&
           reached.suspended > 99;
}
