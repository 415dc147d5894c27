/*
 * What ABI 0.3 has added goes on working for a caller built against it.
 *
 * Part of tests/abi/old.c from that release on.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "abi/old_caller.h"

#define GROUP_BYTES 4096
#define LAYERS 2    /* the group of the last one stays on the device */
#define BUFFERS 2   /* of each of two rings */
#define IN_FLIGHT 5 /* microbatches */

static const char *const quiet[] = { "GRAPHHOOKS_LOG=off", NULL };

/* ---- the model ----------------------------------------------------------- */

static void test_layer_fields(void)
{
    const struct {
        const char *field;
        gh_layer_desc layer;
    } wrong[] = {
        { "backend", { .kind = GH_LAYER_MOE, .experts = 8, .backend = 99 } },
        { "reserved_tail", { .reserved_tail = 1 } },
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

static void test_model(void)
{
    gh_model *model = NULL;
    FRAMED(gh_model_desc) desc;

    gh->model_create(&model, NULL);
    FRAME(desc);
    desc.it.flags = GH_MODEL_WHOLE;
    desc.it.ep_size = 2;
    desc.it.cp_size = 2;
    is_status(gh->model_describe(model, &desc.it, &err), GH_OK, &err,
              "a gh_model_desc of " RELEASE " is taken");
    desc.it.flags = 1u << 31;
    ok(gh->model_describe(model, &desc.it, &err) == GH_ERR_INVALID &&
           strstr(err.text, "flags") != NULL,
       "gh_model_desc.flags of " RELEASE " is in its place");
    gh->model_destroy(model);
}

/* A host that runs chunks only, and a plan of layers. */
static void test_capabilities(void)
{
    gh_model *model = NULL;
    const gh_layer_desc layer = { .struct_size = sizeof(layer) };
    FRAMED(gh_session_desc) desc;

    gh->model_create(&model, NULL);
    gh->model_add_layer(model, &layer, NULL);
    FRAME(desc);
    desc.it.model = model;
    desc.it.environment = quiet;
    desc.it.granularity = "layer";
    desc.it.capabilities = GH_CAN_CHUNKS;
    is_status(gh->session_open(&desc.it, &session, &err), GH_ERR_CONFIG, &err,
              "gh_session_desc.capabilities of " RELEASE
              " refuse a plan of layers");
    session = NULL;
    gh->model_destroy(model);
}

/* ---- recordings ---------------------------------------------------------- */

/* What the host has been told of its recordings. */
static struct told {
    uint32_t before, begun, ended;
    gh_recording first, last; /* of `before`, and of `begun` */
    bool strange;
} told;

static gh_status before_recording(void *user, const gh_recording *recording)
{
    told.strange |=
        user != &told || recording->struct_size < sizeof(*recording);
    told.before++;
    told.first = *recording;
    return GH_OK;
}

static gh_status record_begin(void *user, const gh_recording *recording)
{
    told.strange |=
        user != &told || recording->struct_size < sizeof(*recording);
    told.begun++;
    told.last = *recording;
    return GH_OK;
}

static void record_end(void *user, const gh_recording *recording, uint32_t kept)
{
    told.strange |= user != &told || kept != 1 ||
                    recording->slot != told.last.slot ||
                    recording->stream != told.last.stream;
    told.ended++;
}

static void test_recordings(void)
{
    const struct opening opening = {
        .n_layers = 2,
        .desc = { .flags = GH_SESSION_LEGACY_THREADS,
                  .max_slots = 2,
                  .granularity = "layer",
                  .environment = quiet },
        .host = { .user = &told,
                  .record_begin = record_begin,
                  .record_end = record_end,
                  .before_recording = before_recording }
    };
    struct pass pass = a_pass(GH_BACKWARD, 1);

    told = (struct told){ 0 };
    if (!open_warm(&opening)) {
        return;
    }
    ok(is_recorded(GH_FORWARD, 0) && is_recorded(GH_FORWARD, 1),
       "forwards of " RELEASE " are recorded");
    is_int(told.before, 1,
           "before_recording of " RELEASE " is called before the first");
    is_int(told.first.direction, GH_FORWARD, "and told of which");

    pass.call.it.variant = 1;
    ok(passes_as(&pass, GH_ACTION_RECORD, GH_REASON_NONE),
       "a backward of " RELEASE " is recorded");
    ok(told.last.slot == 1 && told.last.segment == 0 &&
           told.last.direction == GH_BACKWARD && told.last.variant == 1 &&
           told.last.chunk == 0 && told.last.reserved == 0 &&
           told.last.stream == streams[1],
       "each field of a gh_recording of " RELEASE " is in its place");
    is_int(told.last.bank, 0, "a pass of " RELEASE " is of bank 0");
    end_step();
    close_session();
    ok(told.begun == 3 && told.ended == 3 && told.before == 1,
       "the services of " RELEASE " are called once for each recording");
    ok(!told.strange, "the services of " RELEASE " have their arguments");
}

/* ---- offload ------------------------------------------------------------- */

typedef gh_status tensors_fn(gh_session *, gh_offload_group *, gh_error *);

/* The address that the library gives the one tensor of a layer's group, or 0
 * where it fails or writes past what the release has. */
static CUdeviceptr place_of(tensors_fn *call, uint32_t layer)
{
    struct {
        gh_offload_tensor it;
        unsigned char after[64];
    } tensor;
    FRAMED(gh_offload_group) group;
    gh_status status;

    memset(&tensor, GUARD, sizeof(tensor));
    tensor.it.address = NULL;
    tensor.it.bytes = GROUP_BYTES;
    FRAME(group);
    group.it.layer = layer;
    group.it.module = GH_MODULE_MLP_NORM;
    group.it.n_tensors = 1;
    group.it.tensors = &tensor.it;
    status = call(session, &group.it, &err);
    if (status != GH_OK || !IS_WHOLE(group) || !IS_WHOLE(tensor)) {
        diag("%s: %s", gh->status_name(status), err.text);
        return 0;
    }
    return (uintptr_t)tensor.it.address;
}

typedef gh_status end_fn(gh_session *, uint32_t, uint32_t, gh_error *);

static bool ends(end_fn *call, uint32_t layer)
{
    const gh_status status = call(session, layer, GH_MODULE_MLP_NORM, &err);

    if (status != GH_OK) {
        diag("%s: %s", gh->status_name(status), err.text);
    }
    return status == GH_OK;
}

/* The forward keeps its input in the group of each layer. */
static bool keep(struct pass *pass, uint32_t layer)
{
    const CUdeviceptr kept = place_of(gh->offload_save, layer);
    const gh_decision *d = &pass->d.it;

    if (kept == 0) {
        return false;
    }
    drv.cuMemsetD32Async(kept, 0, GROUP_BYTES / 4, d->stream);
    drv.cuMemcpyDtoDAsync(kept, (uintptr_t)d->inputs[0].address,
                          sizeof(pass->word), d->stream);
    return ends(gh->offload_commit, layer);
}

/* The backward gives back what its forward has kept, a word of each layer. */
static bool give_back(struct pass *pass, uint32_t layer)
{
    const CUdeviceptr kept = place_of(gh->offload_load, layer);

    if (kept == 0) {
        return false;
    }
    drv.cuMemcpyDtoDAsync((uintptr_t)pass->output.address +
                              layer * sizeof(pass->word),
                          kept, sizeof(pass->word), pass->d.it.stream);
    return ends(gh->offload_release, layer);
}

static bool move_groups(struct pass *pass)
{
    bool moved = true;

    for (uint32_t i = 0; i < LAYERS; i++) {
        moved = moved && (pass->call.it.direction == GH_FORWARD
                              ? keep(pass, i)
                              : give_back(pass, LAYERS - 1 - i));
    }
    return moved;
}

/* Runs a pass with its groups, and whether it was decided so. */
static bool moves(struct pass *pass, gh_action action)
{
    gh_status status = enter_pass(pass);
    bool moved = true;

    if (status == GH_OK && pass->d.it.action != GH_ACTION_REPLAYED) {
        work_in(pass);
        moved = move_groups(pass);
    }
    status = status == GH_OK ? exit_pass(pass) : status;
    if (status == GH_OK && pass->d.it.action == GH_ACTION_REPLAYED) {
        pass->output = pass->d.it.outputs[0];
    }
    if (status != GH_OK || pass->d.it.action != action) {
        diag("%s, action %u, %s", gh->status_name(status),
             (unsigned)pass->d.it.action, gh->reason_name(pass->d.it.reason));
        return false;
    }
    return moved && IS_WHOLE(pass->d) && IS_WHOLE(pass->call);
}

/* Whether the words that were kept are those of the forward. */
static bool are_kept(struct pass *backward, uint32_t word)
{
    bool all = true;

    for (uint32_t i = 0; i < LAYERS; i++) {
        all = all && result_of(backward) == word;
        backward->output.address =
            (char *)backward->output.address + sizeof(word);
    }
    return all;
}

/* A step of microbatches whose backwards give what their forwards were given.
 * More of them are in flight than the rings have buffers: with no more
 * all groups would stay. */
static bool come_back(gh_action action)
{
    struct pass forward[IN_FLIGHT], backward[IN_FLIGHT];
    bool all = true;

    for (uint32_t m = 0; m < IN_FLIGHT; m++) {
        forward[m] = a_pass(GH_FORWARD, m);
        all = all && moves(&forward[m], action);
    }
    for (uint32_t m = 0; m < IN_FLIGHT; m++) {
        backward[m] = a_pass(GH_BACKWARD, m);
        all = all && moves(&backward[m], action) &&
              are_kept(&backward[m], forward[m].word);
    }
    return end_step() && all;
}

#define IS_MOVED(field, expected) \
    is_int(stats.it.field, expected, \
           "gh_offload_stats." #field " of " RELEASE " is in its place")

/* All groups go in the first step, which is the profile, and one of two in
 * those after it. */
static void test_offload_counts(uint32_t later)
{
    const uint32_t copies = IN_FLIGHT * (LAYERS + later);
    FRAMED(gh_offload_stats) stats;

    FRAME(stats);
    if (!is_status(gh->offload_get_stats(session, &stats.it, &err), GH_OK, &err,
                   "a gh_offload_stats of " RELEASE " is filled")) {
        return;
    }
    ok(IS_WHOLE(stats),
       "nothing is written after a gh_offload_stats of " RELEASE);
    is_int(stats.it.struct_size, sizeof(stats.it),
           "a gh_offload_stats of " RELEASE " keeps its size");
    IS_MOVED(groups, LAYERS);
    IS_MOVED(groups_offloaded, 1);
    IS_MOVED(reserved, 0);
    IS_MOVED(out_bytes, copies * GROUP_BYTES);
    IS_MOVED(back_bytes, copies * GROUP_BYTES);
    IS_MOVED(out_copies, copies);
    IS_MOVED(back_copies, copies);
    IS_MOVED(flushes, 0);
    IS_MOVED(delayed, 0);
    IS_MOVED(kept_bytes, IN_FLIGHT * GROUP_BYTES);
    IS_MOVED(ring_bytes, 2 * BUFFERS * GROUP_BYTES);
    ok(stats.it.pinned_bytes >= GROUP_BYTES,
       "gh_offload_stats.pinned_bytes of " RELEASE " is in its place");
}

/* A first step for the profile; then graphs are recorded, and replayed. */
static void test_offload(void)
{
    FRAMED(gh_offload_desc) desc;
    struct opening opening = { .n_layers = LAYERS,
                               .desc = { .max_slots = IN_FLIGHT,
                                         .granularity = "chunk",
                                         .environment = quiet } };

    FRAME(desc);
    desc.it.modules = "mlp_norm";
    desc.it.fraction = "1";
    desc.it.min_bytes = 16;
    desc.it.pipeline_rank = 1;
    desc.it.buffers = BUFFERS;
    opening.desc.offload = &desc.it;
    if (!open_session(&opening)) {
        return;
    }
    ok(come_back(GH_ACTION_RUN), "groups of " RELEASE " go and come back");
    ok(come_back(GH_ACTION_RECORD), "so they do in recordings of " RELEASE);
    for (uint32_t i = 0; i < 2; i++) {
        ok(come_back(GH_ACTION_REPLAYED), "and in replays of " RELEASE);
    }
    test_offload_counts(3);
    close_session();
}

void test_since_0_3(void)
{
    test_layer_fields();
    test_model();
    test_capabilities();
    test_recordings();
    test_offload();
}
