/*
 * hello-offload.c - hello.c, with activations in the host's memory.
 *
 * Four layers, y = w x + b each, learn the line t = 3 x + 1: once eagerly with
 * nothing offloaded, once with graphs and offload.  The losses, those of an
 * evaluation in each step and the weights have to be the same, bit for bit.
 *
 * What a layer keeps for its backward is its input, and that is what the layer
 * before has written.  So a pass saves the next layer's group, and writes it;
 * the next pass reads it and commits it; its backward loads and releases it.
 *
 * Build and run it in a checkout that ./quickstart has built:
 *
 *     cc -std=c11 -Iinclude -Isoftcuda doc/hello-offload.c \
 *         -o build/hello-offload -Lbuild/.libs -Wl,-rpath,"$PWD/build/.libs" \
 *         -lgraphhooks -ldl
 *     build/hello-offload build/.libs/libgraphhooks-softcuda.so
 *
 * GRAPHHOOKS_LOG=info says what was decided.  GRAPHHOOKS_OFFLOAD_FRACTION=0
 * offloads nothing: the host has one way for its memory, and does not notice.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <graphhooks.h>

#include "hello-device.h" /* on a GPU: <cuda.h>, and kernels in CUDA C */

#include <stdbool.h>
#include <string.h>

enum { LAYERS = 4, MICROBATCHES = 4, STEPS = 40 };
enum { EVALUATION = MICROBATCHES }; /* the number of its microbatch */
#define INPUT (GH_MODULE_NAMED | 0) /* the module: names[0] of the session */

/* What a microbatch keeps, besides what is offloaded. */
struct set {
    float y[SAMPLES];              /* the output of the last layer */
    float dx[LAYERS + 1][SAMPLES]; /* dx[l]: the gradient of its input */
};

struct result {
    float weights[LAYERS][2], dweights[LAYERS][2]; /* w and b */
    float losses[STEPS][MICROBATCHES + 1];         /* and of the evaluation */
};

/* All memory of the engine.  The pointer is a device address: the CPU only
 * computes addresses from it. */
static struct memory {
    float x[MICROBATCHES + 1][SAMPLES], t[MICROBATCHES + 1][SAMPLES];
    struct result result;
    struct set sets[2 * MICROBATCHES + 1];
} start, *dev;

/* Where each microbatch has its results. */
static struct set *set_of[MICROBATCHES + 1];
static float *y_of[MICROBATCHES + 1]; /* what its last forward has written */
static void *stream;
static gh_session *session;
static gh_error err; /* why the library's last call failed */

#define OK(call) ((call) == GH_OK ? (void)0 : stop(#call, err.text))
/* In a pass a failure must not end the program: a recording that fails costs
 * one graph only. */
#define TRY(call) \
    do { \
        const gh_status tried = (call); \
        if (tried != GH_OK) { \
            return tried; \
        } \
    } while (0)

static gh_buffer row(float *address, uint32_t flags)
{
    return (gh_buffer){ address, sizeof(float[SAMPLES]), flags, 0 };
}

static struct set *set_at(uint32_t microbatch, uint32_t slot)
{
    return &dev->sets[slot == GH_SLOT_NONE ? MICROBATCHES + microbatch : slot];
}

static gh_status launched(int code, gh_error *why)
{
    if (code != 0) {
        snprintf(why->text, sizeof(why->text), "a launch failed: %d", code);
        return GH_ERR_DEVICE;
    }
    return GH_OK;
}

/* Asks where the input of a layer is: to be written, or to be read again.  The
 * library always says an address, wherever the group goes. */
static gh_status place(gh_status (*call)(gh_session *, gh_offload_group *,
                                         gh_error *),
                       uint32_t layer, float **place_p, gh_error *why)
{
    gh_offload_tensor tensor = { NULL, sizeof(float[SAMPLES]) };
    gh_offload_group group = { .struct_size = sizeof(group),
                               .layer = layer,
                               .module = INPUT,
                               .n_tensors = 1,
                               .tensors = &tensor };
    gh_status status = call(session, &group, why);

    *place_p = tensor.address;
    return status;
}

/* Saves late, just before the group is written, and commits early, just after
 * it was read last: a save waits for a buffer, and a commit gives one back. */
static gh_status forward(gh_pass *pass, const gh_decision *d, gh_buffer *outputs,
                         gh_error *why)
{
    const uint32_t l = pass->segment;
    float *y = set_at(pass->microbatch, d->slot)->y;

    if (l + 1 < LAYERS) {
        TRY(place(gh_offload_save, l + 1, &y, why));
    }
    outputs[0] = row(y, 0);
    pass->n_outputs = 1;
    TRY(launched(launch(FORWARD, d->stream, dev->result.weights[l],
                        d->inputs[0].address, y, NULL, NULL),
                 why));
    return l > 0 ? gh_offload_commit(session, l, INPUT, why) : GH_OK;
}

/* Reads where load says, never where save did. */
static gh_status backward(gh_pass *pass, const gh_decision *d,
                          gh_buffer *outputs, gh_error *why)
{
    const uint32_t l = pass->segment;
    struct set *set = set_at(pass->microbatch, d->slot);
    float *x = d->inputs[pass->n_inputs - 1].address;

    if (l > 0) {
        TRY(place(gh_offload_load, l, &x, why));
    }
    outputs[0] = row(set->dx[l], 0);
    outputs[1] = (gh_buffer){ dev->result.dweights[l],
                              sizeof(float[2]), GH_BUFFER_UPDATED, 0 };
    pass->n_outputs = 2;
    TRY(launched(launch(BACKWARD, d->stream, dev->result.weights[l], x,
                        d->inputs[0].address, set->dx[l],
                        dev->result.dweights[l]),
                 why));
    return l > 0 ? gh_offload_release(session, l, INPUT, why) : GH_OK;
}

static gh_status run_parts(void *user, gh_pass *pass, const gh_decision *d,
                           gh_error *why)
{
    static gh_buffer outputs[2]; /* which exit reads */

    (void)user; /* what gh_run_pass was given */
    pass->outputs = outputs;
    TRY(pass->direction == GH_FORWARD ? forward(pass, d, outputs, why)
                                      : backward(pass, d, outputs, why));
    if (pass->direction == GH_FORWARD) {
        y_of[pass->microbatch] = outputs[0].address;
    }
    return GH_OK;
}

/* A group that crosses passes is an output of the one and an input of the
 * other, as it lies elsewhere where a pass runs eagerly. */
static void run_layer(gh_direction direction, uint32_t l, uint32_t m, float *x,
                      uint32_t flags)
{
    gh_buffer inputs[2];
    gh_decision d = { .struct_size = sizeof(d) };
    gh_pass pass = { .struct_size = sizeof(pass),
                     .segment = l, /* one layer, as open_session says */
                     .direction = direction,
                     .microbatch = m,
                     .flags = flags,
                     .stream = stream,
                     .inputs = inputs };

    if (direction == GH_BACKWARD) {
        inputs[pass.n_inputs++] = row(set_of[m]->dx[l + 1], GH_BUFFER_STATIC);
    }
    if (l == 0) {
        inputs[pass.n_inputs++] = row(x, 0);
    } else if (direction == GH_FORWARD) {
        inputs[pass.n_inputs++] = row(y_of[m], GH_BUFFER_STATIC);
    }
    OK(gh_run_pass(session, &pass, run_parts, NULL, &d, &err));
    set_of[m] = set_at(m, d.slot);
    if (direction == GH_FORWARD && d.action == GH_ACTION_REPLAYED) {
        y_of[m] = d.outputs[0].address;
    }
}

static void run_loss(uint32_t step, uint32_t m, uint32_t at)
{
    MUST(launch(LOSS, stream, y_of[m], dev->t[at], set_of[m]->dx[LAYERS],
                &dev->result.losses[step][m], NULL));
}

/* One step: every microbatch forward, then every one backward; and a look at
 * data that is not trained on. */
static void train_step(uint32_t step)
{
    struct result *result = &dev->result;

    for (uint32_t m = 0; m < MICROBATCHES; m++) {
        for (uint32_t l = 0; l < LAYERS; l++) {
            run_layer(GH_FORWARD, l, m, dev->x[(m + step) % MICROBATCHES], 0);
        }
    }
    for (uint32_t m = 0; m < MICROBATCHES; m++) {
        const uint32_t at = (m + step) % MICROBATCHES; /* another each step */

        run_loss(step, m, at);
        for (uint32_t l = LAYERS; l-- > 0;) {
            run_layer(GH_BACKWARD, l, m, dev->x[at], 0);
        }
    }
    for (uint32_t l = 0; l < LAYERS; l++) {
        MUST(launch(UPDATE, stream, result->weights[l], result->dweights[l],
                    NULL, NULL, NULL));
    }

    /* No backward follows: the same calls, and nothing is copied. */
    for (uint32_t l = 0; l < LAYERS; l++) {
        run_layer(GH_FORWARD, l, EVALUATION, dev->x[EVALUATION],
                  GH_PASS_FORWARD_ONLY);
    }
    run_loss(step, EVALUATION, EVALUATION);
    OK(gh_iteration_end(session, &err)); /* frees the slots, ends warmup */
}

/* Describes the model and opens a session on it. */
static void open_session(const char *driver, const char *modules,
                         const char *const *environment)
{
    static const char *const names[] = { "input", NULL };
    gh_layer_desc layer = { .struct_size = sizeof(layer),
                            .kind = GH_LAYER_MLP_ONLY };
    gh_offload_desc offload = { .struct_size = sizeof(offload),
                                .modules = modules,
                                .names = names,
                                .min_bytes = 1 }; /* these are tiny */
    gh_session_desc desc = { .struct_size = sizeof(desc),
                             .driver = driver, /* the host's own */
                             .max_slots = MICROBATCHES, /* all in flight */
                             .environment = environment,
                             .offload = &offload,
                             /* A segment is one layer, or the open fails. */
                             .capabilities = GH_CAN_LAYERS };
    gh_model *model;

    OK(gh_model_create(&model, &err));
    for (int l = 0; l < LAYERS; l++) {
        OK(gh_model_add_layer(model, &layer, &err));
    }
    desc.model = model;
    OK(gh_session_open(&desc, &session, &err));
    gh_model_destroy(model); /* the session has copied it */
}

/* Points of the line, with x from -1 to 1, and weights that do not know it. */
static void start_values(void)
{
    for (int m = 0; m <= EVALUATION; m++) {
        for (int i = 0; i < SAMPLES; i++) {
            start.x[m][i] = (i * 2 + m * 0.5F) / SAMPLES - 1;
            start.t[m][i] = start.x[m][i] * 3 + 1;
        }
    }
    for (int l = 0; l < LAYERS; l++) {
        start.result.weights[l][0] = 1;
    }
}

struct counts {
    gh_stats passes;
    gh_offload_stats moved;
};

static void train(const char *driver, const char *modules,
                  const char *const *environment, struct result *result,
                  struct counts *counts)
{
    const size_t at = offsetof(struct memory, result);
    uint64_t address;

    start_values();
    MUST(cuStreamCreate(&stream, 0 /* CU_STREAM_DEFAULT: blocking */));
    MUST(cuMemAlloc(&address, sizeof(*dev)));
    dev = (struct memory *)(uintptr_t)address;
    MUST(cuMemcpyHtoDAsync(address, &start, at + sizeof(*result), stream));
    open_session(driver, modules, environment);

    for (uint32_t step = 0; step < STEPS; step++) {
        train_step(step);
    }

    /* The order at the end: wait, close the session, free what graphs used. */
    MUST(cuStreamSynchronize(stream));
    OK(gh_session_stats(session, &counts->passes, &err));
    OK(gh_offload_get_stats(session, &counts->moved, &err));
    gh_session_close(session);
    MUST(cuMemcpyDtoH(result, address + at, sizeof(*result)));
    MUST(cuMemFree(address));
    MUST(cuStreamDestroy(stream));
}

int main(int argc, char **argv)
{
    static const char *const eagerly[] = { "GRAPHHOOKS_ENABLE=0", NULL };
    static struct result eager, graphs;
    const char *driver = argc > 1 ? argv[1] : "./libgraphhooks-softcuda.so";
    struct counts counts = { .passes.struct_size = sizeof(counts.passes),
                             .moved.struct_size = sizeof(counts.moved) };
    bool equal;

    open_device(driver);
    train(driver, "", eagerly, &eager, &counts);
    train(driver, "input", NULL, &graphs, &counts); /* and the environment */
    close_device();

    equal = memcmp(&eager, &graphs, sizeof(eager)) == 0;
    printf("loss: %g, then %g\n", graphs.losses[0][EVALUATION],
           graphs.losses[STEPS - 1][EVALUATION]);
    printf("%u of %d passes were replayed\n", (unsigned)counts.passes.replays,
           2 * LAYERS * MICROBATCHES * STEPS);
    printf("%u of %u groups were offloaded, %u copies back\n",
           counts.moved.groups_offloaded, counts.moved.groups,
           (unsigned)counts.moved.back_copies);
    printf("bitwise equal: %s\n", equal ? "yes" : "no");
    return equal && counts.passes.check_failures == 0 ? 0 : 1;
}
