/*
 * Passes made one by one: a group goes from stream to stream, is called for in
 * the middle of something else, or is given up, and nothing is left of it.
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/toy.h"
#include "tap/tap.h"

#include <stdio.h>
#include <string.h>

static struct toy sv;
static const char *const eager[] = { "GRAPHHOOKS_LOG=off",
                                     "GRAPHHOOKS_ENABLE=0", NULL };
static const char *const silent[] = { "GRAPHHOOKS_LOG=off", NULL };
static const char *const delayed[] = { "GRAPHHOOKS_LOG=off",
                                       "GRAPHHOOKS_OFFLOAD_DELAY=1", NULL };

enum {
    GROUP = 512, /* bytes */
    OWN_A = (int)GH_MODULE_NAMED
};

static uint64_t left_over(void)
{
    const softcuda_counts c = toy_counts(&sv);

    return toy_objects(&c);
}

/* ---- passes by hand, whose only work is on one group ----------------------------- */

static gh_buffer outputs[2]; /* of the pass at hand */
static uint32_t n_outputs;

static gh_pass pass_of(uint32_t segment, gh_direction direction, uint32_t m,
                       int stream, uint32_t flags)
{
    return (gh_pass){ .struct_size = sizeof(gh_pass),
                      .segment = segment,
                      .direction = direction,
                      .microbatch = m,
                      .flags = flags,
                      .stream = sv.streams[stream],
                      .outputs = outputs,
                      .n_outputs = n_outputs };
}

static void enter(uint32_t segment, gh_direction direction, uint32_t m,
                  int stream, uint32_t flags)
{
    const gh_pass pass = pass_of(segment, direction, m, stream, flags);

    sv.decision = (gh_decision){ .struct_size = sizeof(sv.decision) };
    if (gh_layer_enter(sv.session, &pass, &sv.decision, &sv.err) != GH_OK) {
        ok(false, "a pass is entered: %s", sv.err.text);
    }
}

static void leave(uint32_t segment, gh_direction direction, uint32_t m,
                  int stream, uint32_t flags)
{
    const gh_pass pass = pass_of(segment, direction, m, stream, flags);

    if (gh_layer_exit(sv.session, &pass, &sv.err) != GH_OK) {
        ok(false, "a pass is left: %s", sv.err.text);
    }
}

/* The same of a pass that may have to run once more: false. */
static bool ends(uint32_t segment, gh_direction direction)
{
    const gh_pass pass = pass_of(segment, direction, 0, 0, 0);
    const gh_status status = gh_layer_exit(sv.session, &pass, &sv.err);

    if (status < GH_OK) {
        ok(false, "a pass is left: %s", sv.err.text);
    }
    return status != GH_RERUN;
}

static gh_status ask(gh_status (*call)(gh_session *, gh_offload_group *,
                                       gh_error *),
                     uint32_t layer, uint32_t module, uint64_t bytes,
                     CUdeviceptr *at)
{
    gh_offload_tensor tensor = { NULL, bytes };
    gh_offload_group group = { .struct_size = sizeof(group),
                               .layer = layer,
                               .module = module,
                               .n_tensors = 1,
                               .tensors = &tensor };
    gh_status status = call(sv.session, &group, &sv.err);

    *at = (CUdeviceptr)(uintptr_t)tensor.address;
    return status;
}

static CUdeviceptr save(uint32_t value, int stream)
{
    CUdeviceptr at = 0;

    if (ask(gh_offload_save, 0, OWN_A, GROUP, &at) != GH_OK) {
        ok(false, "a group is saved: %s", sv.err.text);
        return 0;
    }
    sv.drv.cuMemsetD32Async(at, value, GROUP / 4, sv.streams[stream]);
    return at;
}

/* Into the n-th KiB of the host's memory. */
static void read_group(CUdeviceptr at, uint32_t n, int stream)
{
    sv.drv.cuMemcpyDtoDAsync(sv.memory + 1024 * (CUdeviceptr)n, at, GROUP,
                             sv.streams[stream]);
}

static bool has_read(uint32_t n, uint32_t value)
{
    uint32_t words[GROUP / 4];
    bool same = true;

    sv.drv.cuCtxSynchronize();
    sv.drv.cuMemcpyDtoH(words, sv.memory + 1024 * (CUdeviceptr)n, GROUP);
    for (uint32_t i = 0; i < GROUP / 4; i++) {
        same = same && words[i] == value;
    }
    return same;
}

/* The host has `to` come after what is on `from`. */
static void go_over(int from, int to)
{
    sv.drv.cuEventRecord(sv.fork, sv.streams[from]);
    sv.drv.cuStreamWaitEvent(sv.streams[to], sv.fork, 0);
}

/* ---- memory without a slot, from stream to stream ---------------------------------- */

/* A microbatch without a slot keeps the group on the device: it is written on
 * one stream, and read last on another one. */
static void flight(uint32_t m, int forward, int loads, int releases)
{
    CUdeviceptr at;

    enter(0, GH_FORWARD, m, forward, 0);
    (void)save(100 + m, forward);
    gh_offload_commit(sv.session, 0, OWN_A, NULL);
    leave(0, GH_FORWARD, m, forward, 0);
    enter(1, GH_FORWARD, m, forward, 0);
    leave(1, GH_FORWARD, m, forward, 0);
    go_over(forward, loads);
    enter(1, GH_BACKWARD, m, loads, 0);
    if (ask(gh_offload_load, 0, OWN_A, GROUP, &at) != GH_OK) {
        ok(false, "a group is loaded: %s", sv.err.text);
    }
    read_group(at, 2 * m, loads);
    leave(1, GH_BACKWARD, m, loads, 0);
    go_over(loads, releases);
    enter(0, GH_BACKWARD, m, releases, 0);
    read_group(at, 2 * m + 1, releases);
    gh_offload_release(sv.session, 0, OWN_A, NULL);
    leave(0, GH_BACKWARD, m, releases, 0);
}

static const struct toy_options stays = {
    .layers = 2,
    .modules = 2,
    .tensors = 1,
    .elems = 1024,
    .streams = 3,
    .environment = eager,
    .offload = { .struct_size = 1, .modules = "core_attn", .min_bytes = 4 },
};

static void test_last_reader_elsewhere(void)
{
    struct toy_options o = stays;
    bool right = true;

    o.max_slots = 1;
    if (!toy_start(&sv, &o, "SEED=0 RACES=1")) {
        return;
    }
    enter(0, GH_FORWARD, 9, 0, 0); /* and has the slot from now on */
    ok(sv.decision.slot == 0, "one microbatch has the slot");
    leave(0, GH_FORWARD, 9, 0, 0);
    flight(0, 0, 1, 2);
    flight(1, 0, 2, 1);
    flight(2, 2, 0, 0);
    flight(3, 1, 1, 1);
    for (uint32_t m = 0; m < 4; m++) {
        right = right && has_read(2 * m, 100 + m) &&
                has_read(2 * m + 1, 100 + m);
    }
    ok(right, "groups that were read last on another stream are right");
    is_int(toy_races(&sv), 0,
           "and memory is written again only when that reader is done");
    is_int(toy_moved(&sv).kept_bytes, GROUP, "in the same place each time");
    toy_close(&sv);
}

/* A flight that forgets its group: the slot goes on without it, and the next
 * one's is refused. */
static void forget(uint32_t m, int stream, bool saves)
{
    enter(0, GH_FORWARD, m, stream, 0);
    if (saves) {
        (void)save(100 + m, stream);
        gh_offload_commit(sv.session, 0, OWN_A, NULL);
    }
    leave(0, GH_FORWARD, m, stream, 0);
    for (uint32_t i = 0; i < 3; i++) {
        const uint32_t segment = i == 2 ? 0 : 1;
        const gh_direction direction = i == 0 ? GH_FORWARD : GH_BACKWARD;

        enter(segment, direction, m, stream, 0);
        leave(segment, direction, m, stream, 0);
    }
}

/* It ends with the step, when the slot is another microbatch's. */
static void test_a_group_that_is_never_loaded(void)
{
    struct toy_options o = stays;

    o.max_slots = 1;
    if (!toy_start(&sv, &o, "SEED=0 RACES=1")) {
        return;
    }
    for (int step = 0; step < 4; step++) {
        forget(0, step % 3, true);
        forget(1, (step + 1) % 3, false);
        gh_iteration_end(sv.session, NULL);
    }
    is_int(toy_races(&sv), 0,
           "what a slot had of a group that was never loaded is the next "
           "one's");
    toy_close(&sv);
}

/* Three evaluations, each saved on one stream and committed on the next. */
static void test_last_reader_of_an_evaluation(void)
{
    bool right = true;
    uint64_t kept;

    if (!toy_start(&sv, &stays, "SEED=0 RACES=1")) {
        return;
    }
    for (int m = 0; m < 6; m++) {
        const int first = m % 3, second = (m + 1 + m % 2) % 3;
        CUdeviceptr at;

        enter(0, GH_FORWARD, (uint32_t)m, first, GH_PASS_FORWARD_ONLY);
        at = save(200 + (uint32_t)m, first);
        leave(0, GH_FORWARD, (uint32_t)m, first, GH_PASS_FORWARD_ONLY);
        go_over(first, second);
        enter(1, GH_FORWARD, (uint32_t)m, second, GH_PASS_FORWARD_ONLY);
        read_group(at, (uint32_t)m, second);
        gh_offload_commit(sv.session, 0, OWN_A, NULL);
        leave(1, GH_FORWARD, (uint32_t)m, second, GH_PASS_FORWARD_ONLY);
    }
    kept = toy_moved(&sv).kept_bytes;
    for (uint32_t m = 0; m < 6; m++) {
        right = right && has_read(m, 200 + m);
    }
    ok(right, "evaluations that end on another stream are right");
    is_int(toy_races(&sv), 0, "and none writes what another one reads");
    is_int(kept, GROUP, "though all have one place");
    toy_close(&sv);
}

/* ---- what is called for too early --------------------------------------------------- */

static void test_load_before_commit(void)
{
    struct toy_options o = stays;
    CUdeviceptr at;

    o.offload.modules = TOY_MODULES;
    if (!toy_start(&sv, &o, "SEED=0 RACES=1")) {
        return;
    }
    enter(0, GH_FORWARD, 0, 0, 0);
    (void)save(7, 0);
    leave(0, GH_FORWARD, 0, 0, 0);
    enter(0, GH_BACKWARD, 0, 0, 0);
    is_status(ask(gh_offload_load, 0, OWN_A, GROUP, &at), GH_ERR_STATE,
              &sv.err, "a group that is not committed cannot be loaded");
    ok(strstr(sv.err.text, "layer 0, own_a of microbatch 0 is saved and not "
                           "committed") != NULL,
       "which is said: %s", sv.err.text);
    is_status(ask(gh_offload_load, 0, OWN_A | 1, GROUP, &at), GH_ERR_STATE,
              &sv.err, "nor one that was never saved");
    ok(strstr(sv.err.text, "layer 0, own_b was never saved: call "
                           "gh_offload_save in its forward") != NULL,
       "which is said: %s", sv.err.text);
    leave(0, GH_BACKWARD, 0, 0, 0);
    gh_iteration_end(sv.session, NULL);
    enter(0, GH_FORWARD, 0, 1, 0);
    (void)save(8, 1);
    is_status(gh_offload_commit(sv.session, 0, OWN_A, &sv.err), GH_OK,
              &sv.err, "the next step saves and commits it");
    leave(0, GH_FORWARD, 0, 1, 0);
    enter(0, GH_BACKWARD, 0, 1, 0);
    is_status(ask(gh_offload_load, 0, OWN_A, GROUP, &at), GH_OK, &sv.err,
              "and loads it");
    read_group(at, 0, 1);
    gh_offload_release(sv.session, 0, OWN_A, NULL);
    leave(0, GH_BACKWARD, 0, 1, 0);
    ok(has_read(0, 8), "with what it wrote");
    is_int(toy_races(&sv), 0, "without a race");
    toy_close(&sv);
}

/* ---- what the profile learns from ------------------------------------------------ */

#define TOO_MUCH (UINT64_C(1) << 40)

/* A forward that saves `first` bytes of a group, whatever comes of it, and then
 * GROUP bytes; and the backward that loads those. */
static void save_two(uint64_t first, bool commits, gh_status expected)
{
    CUdeviceptr at;

    enter(0, GH_FORWARD, 0, 0, 0);
    if (commits) {
        (void)save(5, 0);
        gh_offload_commit(sv.session, 0, OWN_A, NULL);
    }
    is_status(ask(gh_offload_save, 0, OWN_A, first, &at), expected, &sv.err,
              commits ? "a second save is refused" : "a save finds no memory");
    if (!commits) {
        (void)save(5, 0);
        gh_offload_commit(sv.session, 0, OWN_A, NULL);
    }
    leave(0, GH_FORWARD, 0, 0, 0);
    enter(0, GH_BACKWARD, 0, 0, 0);
    is_status(ask(gh_offload_load, 0, OWN_A, GROUP, &at), GH_OK, &sv.err,
              "what was saved is loaded");
    read_group(at, 0, 0);
    gh_offload_release(sv.session, 0, OWN_A, NULL);
    leave(0, GH_BACKWARD, 0, 0, 0);
    ok(has_read(0, 5), "with what was written");
}

/* Only a save that has gone well teaches the profile a size: else the next one
 * asks for memory that nobody needs. */
static void test_saves_that_teach_nothing(void)
{
    struct toy_options o = stays;

    o.layers = 1;
    o.environment = silent;
    o.offload.modules = "own_a";
    for (int commits = 0; commits < 2; commits++) {
        if (!toy_start(&sv, &o, "SEED=0 RACES=1")) {
            return;
        }
        save_two(TOO_MUCH, commits != 0,
                 commits ? GH_ERR_STATE : GH_ERR_NO_MEMORY);
        is_int(toy_moved(&sv).pinned_bytes, GROUP,
               "one block of its size is pinned");
        is_status(gh_iteration_end(sv.session, &sv.err), GH_OK, &sv.err,
                  "and the profile ends");
        toy_close(&sv);
    }
}

/* ---- calls out of turn in a recording ------------------------------------------- */

/* A whole flight of a group that is saved as it should be. */
static void fly(uint32_t value)
{
    CUdeviceptr at;

    enter(0, GH_FORWARD, 0, 0, 0);
    (void)save(value, 0);
    gh_offload_commit(sv.session, 0, OWN_A, NULL);
    leave(0, GH_FORWARD, 0, 0, 0);
    enter(0, GH_BACKWARD, 0, 0, 0);
    ask(gh_offload_load, 0, OWN_A, GROUP, &at);
    read_group(at, 0, 0);
    gh_offload_release(sv.session, 0, OWN_A, NULL);
    leave(0, GH_BACKWARD, 0, 0, 0);
}

enum wrong_call {
    COMMITS_FIRST,
    LOADS_LESS,
    LOADS_MORE,
    RELEASES_FIRST,
    N_WRONG_CALLS
};

static gh_status call_wrongly(enum wrong_call wrong)
{
    CUdeviceptr at;

    switch (wrong) {
    case COMMITS_FIRST:
        return gh_offload_commit(sv.session, 0, OWN_A, &sv.err);
    case LOADS_LESS:
        return ask(gh_offload_load, 0, OWN_A, GROUP / 2, &at);
    case LOADS_MORE:
        return ask(gh_offload_load, 0, OWN_A, 2 * GROUP, &at);
    default:
        return gh_offload_release(sv.session, 0, OWN_A, &sv.err);
    }
}

static const struct {
    const char *what, *said;
    gh_status status;
} wrong_calls[N_WRONG_CALLS] = {
    [COMMITS_FIRST] = { "a commit before its save", "is not saved",
                        GH_ERR_STATE },
    [LOADS_LESS] = { "a load of fewer bytes",
                     "has other tensors than it was saved with",
                     GH_ERR_INVALID },
    [LOADS_MORE] = { "a load of more bytes",
                     "has other tensors than it was saved with",
                     GH_ERR_INVALID },
    [RELEASES_FIRST] = { "a release before its load",
                         "is committed, and not loaded", GH_ERR_STATE },
};

/* A recording refuses at the call what an eager pass refuses. */
static void test_wrong_calls_in_a_recording(void)
{
    struct toy_options o = stays;

    o.layers = 1;
    o.environment = silent;
    for (int goes = 0; goes < 2; goes++) {
        o.offload.modules = goes ? "own_a" : "core_attn";
        for (enum wrong_call w = 0; w < N_WRONG_CALLS; w++) {
            if (!toy_start(&sv, &o, "SEED=0 RACES=1")) {
                return;
            }
            fly(1);
            gh_iteration_end(sv.session, NULL);
            if (w != COMMITS_FIRST) {
                enter(0, GH_FORWARD, 0, 0, 0);
                (void)save(7, 0);
                gh_offload_commit(sv.session, 0, OWN_A, NULL);
                leave(0, GH_FORWARD, 0, 0, 0);
            }
            enter(0, w == COMMITS_FIRST ? GH_FORWARD : GH_BACKWARD, 0, 0, 0);
            is_int(sv.decision.action, GH_ACTION_RECORD, "a pass is recorded");
            is_status(call_wrongly(w), wrong_calls[w].status, &sv.err,
                      "%s is refused in a recording", wrong_calls[w].what);
            ok(strstr(sv.err.text, wrong_calls[w].said) != NULL,
               "which is said: %s", sv.err.text);
            gh_layer_cancel(sv.session, NULL);
            if (w == COMMITS_FIRST) {
                fly(7);
                is_int((int)toy_stats(&sv).recordings, 1,
                       "another recording is not refused for it");
            }
            is_int(toy_races(&sv), 0, "without a race");
            toy_close(&sv);
        }
    }
}

/* ---- memory that is no longer the group's ---------------------------------------- */

enum misuse {
    NO_MISUSE,
    READS_SAVED,    /* the backward reads where the forward has written */
    READS_RELEASED, /* the backward reads what it has released */
    WRITES_LATE,    /* the forward writes what it has committed */
    N_MISUSES
};

static const char *const misuses[] = {
    "a host as it should be", "a read of the address that save gave",
    "a read of what was released", "a write after the commit"
};

#define GONE_LAYERS 8
static CUdeviceptr saved_at[GONE_LAYERS];

static CUdeviceptr ask_of(gh_status (*call)(gh_session *, gh_offload_group *,
                                            gh_error *),
                          uint32_t layer)
{
    CUdeviceptr at = 0;

    if (ask(call, layer, OWN_A, GROUP, &at) != GH_OK) {
        ok(false, "a group is saved or loaded: %s", sv.err.text);
    }
    return at;
}

static bool forward_of(uint32_t layer, enum misuse misuse)
{
    CUdeviceptr at;

    enter(layer, GH_FORWARD, 0, 0, 0);
    if (sv.decision.action != GH_ACTION_REPLAYED) {
        at = saved_at[layer] = ask_of(gh_offload_save, layer);
        if (misuse != WRITES_LATE) {
            sv.drv.cuMemsetD32Async(at, 5, GROUP / 4, sv.decision.stream);
        }
        gh_offload_commit(sv.session, layer, OWN_A, NULL);
        if (misuse == WRITES_LATE) {
            sv.drv.cuMemsetD32Async(at, 5, GROUP / 4, sv.decision.stream);
        }
    }
    return ends(layer, GH_FORWARD);
}

static void read_there(CUdeviceptr at, CUstream stream)
{
    toy_add(&sv, sv.memory, at, at, GROUP / 4, stream);
}

static bool backward_of(uint32_t layer, enum misuse misuse)
{
    CUdeviceptr at;

    enter(layer, GH_BACKWARD, 0, 0, 0);
    if (sv.decision.action != GH_ACTION_REPLAYED) {
        at = ask_of(gh_offload_load, layer);
        if (misuse != READS_RELEASED) {
            read_there(misuse == READS_SAVED ? saved_at[layer] : at,
                       sv.decision.stream);
        }
        gh_offload_release(sv.session, layer, OWN_A, NULL);
        if (misuse == READS_RELEASED) {
            read_there(at, sv.decision.stream);
        }
    }
    return ends(layer, GH_BACKWARD);
}

/* Steps in which the groups go; true: the device has reported something. */
static bool is_reported(enum misuse misuse, uint32_t first, uint32_t steps)
{
    const char *text = NULL;
    uint64_t n;

    for (uint32_t s = 0; s < steps; s++) {
        const enum misuse now = s >= first ? misuse : NO_MISUSE;

        for (uint32_t l = 0; l < GONE_LAYERS; l++) {
            while (!forward_of(l, now)) {
            }
        }
        for (uint32_t l = GONE_LAYERS; l-- > 0;) {
            while (!backward_of(l, now)) {
            }
        }
        gh_iteration_end(sv.session, NULL);
    }
    sv.drv.cuCtxSynchronize();
    n = toy_unwritten(&sv, &text) + toy_races(&sv);
    return n != 0;
}

static void test_memory_that_is_gone(void)
{
    struct toy_options o = stays;

    o.layers = GONE_LAYERS;
    o.environment = silent;
    o.offload.modules = "own_a";
    for (enum misuse misuse = 0; misuse < N_MISUSES; misuse++) {
        for (uint32_t first = 0; first < 2; first++) {
            if (!toy_start(&sv, &o, "SEED=0 RACES=1")) {
                return;
            }
            sv.drv.cuMemsetD32Async(sv.memory, 0, 1024, sv.streams[0]);
            ok(is_reported(misuse, first, 4) == (misuse != NO_MISUSE),
               "%s is %s by the software device, %s", misuses[misuse],
               misuse != NO_MISUSE ? "reported" : "not reported",
               first == 0 ? "eager" : "recorded");
            ok(toy_moved(&sv).groups_offloaded > 2 &&
                   toy_stats(&sv).replays > 0,
               "%u of the groups go, and passes are replayed",
               toy_moved(&sv).groups_offloaded);
            toy_close(&sv);
        }
    }
}

/* ---- with GRAPHHOOKS_CHECK --------------------------------------------------------- */

static const char *const comparing[] = { "GRAPHHOOKS_LOG=off",
                                         "GRAPHHOOKS_CHECK=bitwise", NULL };

static gh_buffer output_at(CUdeviceptr at, uint32_t flags)
{
    return (gh_buffer){ (void *)(uintptr_t)at, GROUP, flags, 0 };
}

/* A backward that writes into the group that it has loaded; `lists`: as an
 * output that it updates. */
static bool overwrite_loaded(uint32_t layer, bool lists)
{
    bool ended;
    CUdeviceptr at;

    n_outputs = 0;
    enter(layer, GH_BACKWARD, 0, 0, 0);
    if (sv.decision.action != GH_ACTION_REPLAYED) {
        at = ask_of(gh_offload_load, layer);
        sv.drv.cuMemcpyDtoDAsync(sv.memory, at, GROUP, sv.decision.stream);
        sv.drv.cuMemsetD32Async(at, 9, GROUP / 4, sv.decision.stream);
        gh_offload_release(sv.session, layer, OWN_A, NULL);
        outputs[0] = output_at(sv.memory, 0);
        outputs[1] = output_at(at, GH_BUFFER_UPDATED);
        n_outputs = lists ? 2 : 1;
    }
    ended = ends(layer, GH_BACKWARD);
    n_outputs = 0;
    return ended;
}

/* The group itself is an output of its forward. */
static bool list_saved(uint32_t layer)
{
    bool ended;
    enter(layer, GH_FORWARD, 0, 0, 0);
    if (sv.decision.action != GH_ACTION_REPLAYED) {
        CUdeviceptr at = ask_of(gh_offload_save, layer);

        sv.drv.cuMemsetD32Async(at, 5, GROUP / 4, sv.decision.stream);
        gh_offload_commit(sv.session, layer, OWN_A, NULL);
        outputs[0] = output_at(at, 0);
        n_outputs = 1;
    }
    ended = ends(layer, GH_FORWARD);
    n_outputs = 0;
    return ended;
}

/* A host may do with a loaded group what it likes until it releases it, also
 * where the pass is run both ways. */
static void test_writes_into_loaded_groups(void)
{
    struct toy_options o = stays;

    o.layers = GONE_LAYERS;
    o.environment = comparing;
    for (int i = 0; i < 4; i++) {
        const char *text = NULL;
        bool right = true;

        o.offload.modules = "own_a";
        o.offload.fraction = i / 2 ? "0" : NULL;
        if (!toy_start(&sv, &o, "SEED=0 RACES=1")) {
            return;
        }
        for (int s = 0; s < 5; s++) {
            for (uint32_t l = 0; l < GONE_LAYERS; l++) {
                while (!list_saved(l)) {
                }
            }
            for (uint32_t l = GONE_LAYERS; l-- > 0;) {
                while (!overwrite_loaded(l, i % 2 != 0)) {
                }
                right = right && has_read(0, 5);
            }
            gh_iteration_end(sv.session, NULL);
        }
        ok(right, "a group that %s is overwritten once it is read, and is "
                  "read right%s",
           i / 2 ? "stays" : "goes", i % 2 ? ", listed as an output" : "");
        ok(toy_stats(&sv).checks > 2 * GONE_LAYERS, "%llu passes are compared",
           (unsigned long long)toy_stats(&sv).checks);
        is_int(toy_stats(&sv).check_failures, 0, "and none differs");
        is_int(toy_races(&sv) + toy_unwritten(&sv, &text), 0,
               "with nothing for the software device to report");
        toy_close(&sv);
    }
}

/* The two runs find other bytes where no group is. */
static void test_a_check_sees_memory_that_is_gone(void)
{
    struct toy_options o = stays;

    o.layers = GONE_LAYERS;
    o.environment = comparing;
    o.offload.modules = "own_a";
    for (enum misuse misuse = 0; misuse <= READS_SAVED; misuse++) {
        if (!toy_start(&sv, &o, "SEED=0 RACES=1")) {
            return;
        }
        sv.drv.cuMemsetD32Async(sv.memory, 0, 1024, sv.streams[0]);
        for (int s = 0; s < 4; s++) {
            for (uint32_t l = 0; l < GONE_LAYERS; l++) {
                while (!forward_of(l, misuse)) {
                }
            }
            outputs[0] = output_at(sv.memory, GH_BUFFER_UPDATED);
            n_outputs = 1;
            for (uint32_t l = GONE_LAYERS; l-- > 0;) {
                while (!backward_of(l, misuse)) {
                }
            }
            n_outputs = 0;
            gh_iteration_end(sv.session, NULL);
        }
        ok((toy_stats(&sv).check_failures > 0) == (misuse == READS_SAVED),
           "%s: %llu of %llu comparisons fail", misuses[misuse],
           (unsigned long long)toy_stats(&sv).check_failures,
           (unsigned long long)toy_stats(&sv).checks);
        toy_close(&sv);
    }
}

/* Bytes of a negative number, and options of one. */
/* A pass with the n-th KiB as its output, and a group that one pass saves and
 * the next one commits; `value` 0: no group. */
static void late_pass(uint32_t segment, gh_direction direction, uint32_t value)
{
    CUdeviceptr at;

    do {
        n_outputs = 0;
        enter(segment, direction, 0, 0, 0);
        if (sv.decision.action != GH_ACTION_REPLAYED) {
            sv.drv.cuMemsetD32Async(sv.memory + 4096, 3, GROUP / 4,
                                    sv.decision.stream);
            outputs[0] = output_at(sv.memory + 4096, 0);
            n_outputs = 1;
        }
        if (sv.decision.action == GH_ACTION_REPLAYED || value == 0) {
            continue;
        }
        if (segment == 0 && direction == GH_FORWARD) {
            (void)save(value, 0);
        } else if (direction == GH_FORWARD) {
            gh_offload_commit(sv.session, 0, OWN_A, NULL);
        } else if (segment == 0) {
            ask(gh_offload_load, 0, OWN_A, GROUP, &at);
            read_group(at, 0, 0);
            gh_offload_release(sv.session, 0, OWN_A, NULL);
        }
    } while (!ends(segment, direction));
    n_outputs = 0;
}

static void late_step(uint32_t value)
{
    late_pass(0, GH_FORWARD, value);
    late_pass(1, GH_FORWARD, value);
    late_pass(1, GH_BACKWARD, value);
    late_pass(0, GH_BACKWARD, value);
    gh_iteration_end(sv.session, NULL);
}

/* Groups that come in a later step than the first, in passes that are recorded
 * by then.  No graph may hold a buffer of a ring before the profile has settled
 * how many there are. */
static void test_groups_that_come_late(void)
{
    struct toy_options o = stays;

    o.environment = comparing;
    o.offload.modules = "own_a";
    if (!toy_start(&sv, &o, "SEED=0 RACES=1")) {
        return;
    }
    late_step(0);
    late_step(5);
    is_int(toy_stats(&sv).recordings, 1,
           "a step with the first groups is recorded up to the first that an "
           "eager pass has saved");
    ok(has_read(0, 5), "what it loads is right");
    for (uint32_t i = 0; i < 3; i++) {
        late_step(5);
    }
    ok(has_read(0, 5) && toy_stats(&sv).replays > 0,
       "and so are later steps, which are replayed");
    is_int(toy_races(&sv), 0, "without a race");
    toy_close(&sv);
    is_int(left_over(), 0, "and nothing is left");
}

static void test_negative_sizes(void)
{
    static const char *const wrong[] = {
        "GRAPHHOOKS_OFFLOAD_MIN_BYTES=-1", "GRAPHHOOKS_OFFLOAD_POOL_BYTES=-4096",
        "GRAPHHOOKS_OFFLOAD_BUFFERS=-2", "GRAPHHOOKS_OFFLOAD_FRACTION=-0.5"
    };
    struct toy_options o = stays;
    CUdeviceptr at;

    if (!toy_start(&sv, &stays, "SEED=0 RACES=1")) {
        return;
    }
    enter(0, GH_FORWARD, 0, 0, 0);
    is_status(ask(gh_offload_save, 0, OWN_A, (uint64_t)-64, &at),
              GH_ERR_INVALID, &sv.err, "a tensor of -64 bytes is refused");
    ok(strstr(sv.err.text, "18446744073709551552") != NULL, "and named: %s",
       sv.err.text);
    leave(0, GH_FORWARD, 0, 0, 0);
    toy_close(&sv);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        const char *const environment[] = { "GRAPHHOOKS_LOG=off", wrong[i],
                                            NULL };
        const char *reason;

        o.environment = environment;
        if (!toy_open(&sv, &o, &reason)) {
            ok(false, "the host opens");
            return;
        }
        is_status(toy_attach(&sv), GH_ERR_CONFIG, &sv.err, "%s is refused",
                  wrong[i]);
        ok(strstr(sv.err.text, strchr(wrong[i], '-')) != NULL,
           "with its value: %s", sv.err.text);
        toy_close(&sv);
    }
}

/* ---- a flush in the middle ------------------------------------------------------------ */

static uint32_t n_flushes, n_not_refused;

static enum toy_answer flush(struct toy *host, enum toy_call call,
                             uint32_t layer, uint32_t module,
                             uint32_t microbatch)
{
    gh_error e = { "" };

    (void)call;
    (void)layer;
    (void)module;
    (void)microbatch;
    n_flushes++;
    n_not_refused += gh_flush_delayed(host->session, &e) != GH_ERR_STATE ||
                     strstr(e.text, "gh_flush_delayed") == NULL;
    return TOY_GO_ON;
}

static void test_flush_in_a_pass(void)
{
    struct toy_options o = stays;
    bool ran = true;

    o.layers = 4;
    o.environment = delayed;
    o.offload.modules = TOY_MODULES;
    if (!toy_start(&sv, &o, "SEED=0 RACES=1")) {
        return;
    }
    sv.watch = flush;
    for (int i = 0; i < 3; i++) {
        ran = ran && toy_step(&sv, 3) == GH_OK;
    }
    ok(ran && toy_is_exact(&sv) && toy_stats(&sv).recordings > 0,
       "flushes in passes, eager and recorded, change nothing: %s",
       sv.err.text);
    ok(n_flushes > 50 && n_not_refused == 0, "each of %u is refused",
       n_flushes);
    is_int(toy_moved(&sv).delayed, toy_moved(&sv).out_copies,
           "and no commit is lost");
    is_int(toy_races(&sv), 0, "nor raced for");
    toy_close(&sv);
}

/* ---- a step that ends in the middle ------------------------------------------------- */

static uint64_t stop_at;

static enum toy_answer stop(struct toy *host, enum toy_call call,
                            uint32_t layer, uint32_t module,
                            uint32_t microbatch)
{
    (void)call;
    (void)layer;
    (void)module;
    (void)microbatch;
    return host->calls == stop_at ? TOY_STOP : TOY_GO_ON;
}

/* What the driver has under way once the step has ended. */
static bool is_idle(void)
{
    sv.drv.cuCtxSynchronize();
    return toy_counts(&sv).pending == 0 && toy_counts(&sv).captures == 0;
}

static void end_early(const char *const *environment, const char *granularity)
{
    struct toy_options o = stays;
    uint32_t wrong = 0, leaks = 0, busy = 0, n = 0;
    bool stopped = true;

    o.layers = 3;
    o.in_flight = 2;
    o.free_running = true;
    o.environment = environment;
    o.granularity = granularity;
    o.offload.modules = TOY_MODULES;
    for (stop_at = 1; stopped && stop_at < 200; stop_at++, n++) {
        const char *reason;
        uint64_t before, flights;

        if (!toy_open(&sv, &o, &reason)) {
            return;
        }
        toy_configure(&sv, "SEED=4 RACES=1");
        before = left_over();
        toy_attach(&sv);
        toy_step(&sv, 3);
        sv.watch = stop;
        toy_step(&sv, 3);
        stopped = sv.stopped;
        sv.watch = NULL;
        busy += !is_idle();
        /* A queue that is left would be copied now. */
        flights = toy_moved(&sv).out_copies;
        gh_flush_delayed(sv.session, NULL);
        busy += toy_moved(&sv).out_copies != flights;
        wrong += toy_step(&sv, 3) != GH_OK || !toy_is_exact(&sv) ||
                 toy_races(&sv) != 0;
        toy_detach(&sv);
        leaks += left_over() != before;
        toy_close(&sv);
    }
    ok(n > 10 && wrong == 0,
       "%s: a step that ends after each of %u calls leaves the next one right",
       granularity, n);
    is_int(busy, 0, "%s: and nothing under way", granularity);
    is_int(leaks, 0, "%s: nor behind", granularity);
}

/* ---- names ---------------------------------------------------------------------------- */

static softcuda_label_fn *label;
static uint64_t n_labels;

/* What a microbatch has at the place that it was just told. */
static enum toy_answer name_groups(struct toy *host, enum toy_call call,
                                   uint32_t layer, uint32_t module,
                                   uint32_t microbatch)
{
    char name[80];

    if (call == TOY_SAVE || call == TOY_LOAD) {
        snprintf(name, sizeof(name),
                 "layer %u, module %u, microbatch %u, step %u", layer, module,
                 microbatch, host->step);
        n_labels += label(call == TOY_SAVE ? host->at[layer][module]
                                           : host->back_at[layer][module],
                          4 * host->options.elems, name) == 0;
    }
    return TOY_GO_ON;
}

static uint64_t others(const char **text)
{
    softcuda_others_fn *read =
        (softcuda_others_fn *)toy_control(&sv, "softcuda_others");

    *text = NULL;
    return read(0, text);
}

/* Every reader of a ring finds what was written for it, whoever had the buffer
 * or the block of the host before. */
static void test_names(void)
{
    struct toy_options o = stays;
    const char *text = NULL;
    uint64_t found = 0;

    o.layers = 4;
    o.in_flight = 3;
    o.free_running = true;
    o.elems = 128;
    o.offload.modules = TOY_MODULES;
    if (!toy_start(&sv, &o, "SEED=0 RACES=1")) {
        return;
    }
    label = (softcuda_label_fn *)toy_control(&sv, "softcuda_label");
    sv.watch = name_groups;
    for (int i = 0; i < 4; i++) {
        toy_step(&sv, 4);
    }
    ok(toy_is_exact(&sv) && n_labels > 200, "%llu groups are named",
       (unsigned long long)n_labels);
    found = others(&text);
    is_int(found, 0, "and nobody reads another's%s%s", found != 0 ? ": " : "",
           found != 0 ? text : "");
    toy_close(&sv);
}

int main(void)
{
    int status;

    if (!toy_probe_soft(&status)) {
        return status;
    }
    test_last_reader_elsewhere();
    test_last_reader_of_an_evaluation();
    test_a_group_that_is_never_loaded();
    test_load_before_commit();
    test_saves_that_teach_nothing();
    test_wrong_calls_in_a_recording();
    test_memory_that_is_gone();
    test_writes_into_loaded_groups();
    test_a_check_sees_memory_that_is_gone();
    test_groups_that_come_late();
    test_negative_sizes();
    test_flush_in_a_pass();
    end_early(silent, "part");
    end_early(delayed, "layer");
    end_early(silent, "chunk");
    test_names();
    return done_testing();
}
