/*
 * old_caller.c - a host that was built against the headers of a release.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "abi/old_caller.h"

#include "abi/host.h"

#define BYTES 16 /* of a buffer */
#define INPUTS 8
#define SLOTS 8
#define PASSES 3 /* of one slot: one in each direction */
#define BUFFERS (INPUTS + SLOTS * PASSES)

const gh_api *gh;
struct driver drv;
CUstream streams[2];
gh_session *session;
gh_error err;

static char device_path[4096];
static CUdeviceptr memory;
static uint32_t last_word;

bool is_guard(const unsigned char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (bytes[i] != GUARD) {
            return false;
        }
    }
    return true;
}

/* ---- the library and the device ------------------------------------------ */

static bool start_device(void)
{
    char text[256] = "";
    CUcontext context;

    built(device_path, sizeof(device_path), "libgraphhooks-softcuda.so");
    if (driver_load(device_path, &drv, text, sizeof(text)) != 0) {
        return ok(false, "the software device is loaded: %s", text);
    }
    return ok(drv.cuInit(0) == CUDA_SUCCESS &&
                  drv.cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS &&
                  drv.cuCtxSetCurrent(context) == CUDA_SUCCESS &&
                  drv.cuStreamCreate(&streams[0], 0) == CUDA_SUCCESS &&
                  drv.cuStreamCreate(&streams[1], 0) == CUDA_SUCCESS &&
                  drv.cuMemAlloc(&memory, BUFFERS * BYTES) == CUDA_SUCCESS &&
                  drv.cuMemsetD32Async(memory, 0, BUFFERS * BYTES / 4,
                                       streams[0]) == CUDA_SUCCESS &&
                  drv.cuCtxSynchronize() == CUDA_SUCCESS,
              "the software device has a context, streams and memory");
}

bool caller_start(void)
{
    gh = load_api();
    return gh != NULL && start_device();
}

const char *caller_device(void)
{
    return device_path;
}

void caller_stop(void)
{
    drv.cuMemFree(memory);
    drv.cuStreamDestroy(streams[0]);
    drv.cuStreamDestroy(streams[1]);
    drv.cuDevicePrimaryCtxRelease(0);
}

/* ---- sessions ------------------------------------------------------------ */

static bool add_layers(gh_model *model, const struct opening *opening)
{
    FRAMED(gh_layer_desc) layer;

    FRAME(layer);
    layer.it = opening->layer;
    layer.it.struct_size = sizeof(layer.it);
    for (uint32_t i = 0; i < opening->n_layers; i++) {
        if (gh->model_add_layer(model, &layer.it, &err) != GH_OK) {
            return ok(false, "a gh_layer_desc of " RELEASE " is taken: %s",
                      err.text);
        }
    }
    return true;
}

bool open_session(const struct opening *opening)
{
    FRAMED(gh_host_services) host;
    FRAMED(gh_session_desc) desc;
    gh_model *model = NULL;
    bool opened;

    FRAME(host);
    host.it = opening->host;
    host.it.struct_size = sizeof(host.it);
    FRAME(desc);
    desc.it = opening->desc;
    desc.it.struct_size = sizeof(desc.it);
    desc.it.driver = device_path;
    desc.it.host = &host.it;

    opened = is_status(gh->model_create(&model, &err), GH_OK, &err,
                       "a caller of " RELEASE " makes a model") &&
             add_layers(model, opening);
    desc.it.model = model;
    opened = opened &&
             is_status(gh->session_open(&desc.it, &session, &err), GH_OK, &err,
                       "a gh_session_desc of " RELEASE " opens a session");
    gh->model_destroy(model);
    return opened;
}

bool open_warm(const struct opening *opening)
{
    struct pass forward = a_pass(GH_FORWARD, 0);

    return open_session(opening) &&
           ok(passes_as(&forward, GH_ACTION_RUN, GH_REASON_WARMUP),
              "a pass of " RELEASE " runs eagerly in warmup") &&
           end_step();
}

void close_session(void)
{
    gh->session_close(session);
    session = NULL;
}

bool end_step(void)
{
    return is_status(gh->iteration_end(session, &err), GH_OK, &err,
                     "a step ends");
}

/* ---- passes -------------------------------------------------------------- */

static gh_buffer buffer(uint32_t i)
{
    return (gh_buffer){ (void *)(uintptr_t)(memory + i * BYTES), BYTES, 0, 0 };
}

struct pass a_pass(gh_direction direction, uint32_t microbatch)
{
    struct pass pass;

    memset(&pass, 0, sizeof(pass));
    FRAME(pass.call);
    pass.call.it.direction = direction;
    pass.call.it.microbatch = microbatch;
    pass.call.it.stream = streams[microbatch % 2];
    pass.word = ++last_word;
    pass.input = buffer(pass.word % INPUTS);
    return pass;
}

gh_status enter_pass(struct pass *pass)
{
    drv.cuMemsetD32Async((uintptr_t)pass->input.address, pass->word, BYTES / 4,
                         pass->call.it.stream);
    FRAME(pass->d);
    pass->call.it.inputs = &pass->input;
    pass->call.it.n_inputs = 1;
    return gh->layer_enter(session, &pass->call.it, &pass->d.it, &err);
}

/* A backward copies twice and a weight gradient three times, so that their
 * graphs differ in their numbers of nodes. */
void work_in(struct pass *pass)
{
    const gh_decision *d = &pass->d.it;
    const uint32_t slot = d->slot == GH_SLOT_NONE ? SLOTS - 1 : d->slot;
    const gh_buffer output =
        buffer(INPUTS + slot * PASSES + pass->call.it.direction);

    pass->output.address = output.address;
    pass->output.bytes = output.bytes;
    pass->call.it.outputs = &pass->output;
    pass->call.it.n_outputs = 1;
    for (uint32_t i = 0; i <= pass->call.it.direction; i++) {
        drv.cuMemcpyDtoDAsync((uintptr_t)output.address,
                              (uintptr_t)d->inputs[0].address, BYTES,
                              d->stream);
    }
}

gh_status exit_pass(struct pass *pass)
{
    return gh->layer_exit(session, &pass->call.it, &err);
}

gh_status run_pass(struct pass *pass)
{
    gh_status status;

    do {
        status = enter_pass(pass);
        if (status != GH_OK) {
            return status;
        }
        if (pass->d.it.action == GH_ACTION_REPLAYED) {
            pass->output = pass->d.it.outputs[0];
        } else {
            work_in(pass);
        }
        status = exit_pass(pass);
    } while (status == GH_RERUN);
    return status;
}

uint32_t result_of(const struct pass *pass)
{
    uint32_t word = 0;

    drv.cuCtxSynchronize();
    drv.cuMemcpyDtoH(&word, (uintptr_t)pass->output.address, sizeof(word));
    return word;
}

bool passes_as(struct pass *pass, gh_action action, gh_reason reason)
{
    const gh_status status = run_pass(pass);
    const gh_decision *d = &pass->d.it;
    const uint32_t result = status == GH_OK ? result_of(pass) : 0;

    if (status == GH_OK && d->action == action && d->reason == reason &&
        d->struct_size == sizeof(*d) && result == pass->word &&
        IS_WHOLE(pass->d) && IS_WHOLE(pass->call)) {
        return true;
    }
    diag("status %s, action %u, reason %s, output %u for input %u%s",
         gh->status_name(status), (unsigned)d->action,
         gh->reason_name(d->reason), (unsigned)result, (unsigned)pass->word,
         IS_WHOLE(pass->d) ? "" : ", written past gh_decision");
    if (status != GH_OK) {
        diag("%s", err.text);
    }
    return false;
}

bool is_recorded(gh_direction direction, uint32_t microbatch)
{
    struct pass pass = a_pass(direction, microbatch);

    return passes_as(&pass, GH_ACTION_RECORD, GH_REASON_NONE);
}

bool is_replayed(gh_direction direction, uint32_t microbatch)
{
    struct pass pass = a_pass(direction, microbatch);

    return passes_as(&pass, GH_ACTION_REPLAYED, GH_REASON_NONE);
}

bool read_stats(gh_stats *stats)
{
    FRAMED(gh_stats) framed;

    FRAME(framed);
    memset(stats, 0, sizeof(*stats));
    if (!is_status(gh->session_stats(session, &framed.it, &err), GH_OK, &err,
                   "a gh_stats of " RELEASE " is filled")) {
        return false;
    }
    *stats = framed.it;
    return ok(IS_WHOLE(framed),
              "nothing is written after a gh_stats of " RELEASE) &&
           is_int(stats->struct_size, sizeof(*stats),
                  "a gh_stats of " RELEASE " keeps its size");
}
