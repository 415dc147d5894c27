/*
 * hello.c - a complete graphhooks host that needs no GPU.
 *
 * Two layers, y = w x + b each, learn the line t = 3 x + 1: once eagerly, once
 * with graphs.  Every loss and weight has to be the same, bit for bit.
 *
 * Build and run it in a checkout that ./quickstart has built:
 *
 *     cc -std=c11 -Iinclude -Isoftcuda doc/hello.c -o build/hello \
 *         -Lbuild/.libs -Wl,-rpath,"$PWD/build/.libs" -lgraphhooks -ldl
 *     build/hello build/.libs/libgraphhooks-softcuda.so
 *
 * Run your own host in these two ways as well; they find most mistakes:
 *
 *     SOFTCUDA_SEED=7 build/hello ...           another order; try 1 to 20
 *     GRAPHHOOKS_CHECK=bitwise build/hello ...  compares graphs with eager
 *
 * hello.cu is the same host for a GPU, with the CUDA runtime and cuBLAS.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <graphhooks.h>

#include "hello-device.h" /* on a GPU: <cuda.h>, and kernels in CUDA C */

#include <stdbool.h>
#include <string.h>

enum { LAYERS = 2, MICROBATCHES = 4, STEPS = 40 };

/* What a microbatch keeps from its forward passes for its backward ones. */
struct set {
    float y[LAYERS][SAMPLES];      /* y[l]: the output of layer l */
    float dx[LAYERS + 1][SAMPLES]; /* dx[l]: the gradient of its input */
};

struct result {
    float weights[LAYERS][2], dweights[LAYERS][2]; /* w and b */
    float losses[STEPS][MICROBATCHES];
};

/* All memory of the engine.  The pointer is a device address: the CPU only
 * computes addresses from it. */
static struct memory {
    float x[MICROBATCHES][SAMPLES], t[MICROBATCHES][SAMPLES];
    struct result result;
    struct set sets[2 * MICROBATCHES];
} start, *dev;

static struct set *set_of[MICROBATCHES]; /* where each has its results */
static void *stream;
static gh_session *session;
static gh_error err; /* why the library's last call failed */

#define OK(call) ((call) == GH_OK ? (void)0 : stop(#call, err.text))

static gh_buffer row(float *address, uint32_t flags)
{
    return (gh_buffer){ address, sizeof(float[SAMPLES]), flags, 0 };
}

/* The graphs of a slot use the slot's set.  A pass without a slot runs eagerly,
 * in a set of no slot. */
static struct set *set_at(uint32_t microbatch, uint32_t slot)
{
    return &dev->sets[slot == GH_SLOT_NONE ? MICROBATCHES + microbatch : slot];
}

/* The engine's own work: issues the kernels of one layer, and lists in the pass
 * what they write.  They go to d->stream and read d->inputs, never the pass's
 * own.  The driver may be recording: do not wait, allocate or exit here.  The
 * library runs it eagerly if a recording fails, and not at all in a replay. */
static gh_status run_parts(void *user, gh_pass *pass, const gh_decision *d,
                           gh_error *why)
{
    static gh_buffer outputs[2]; /* which exit reads */
    struct set *set = set_at(pass->microbatch, d->slot);
    const uint32_t l = pass->segment;
    float *weights = dev->result.weights[l];
    float *dweights = dev->result.dweights[l];
    void *x = d->inputs[0].address;

    int code;

    (void)user; /* what gh_run_pass was given */
    pass->outputs = outputs;
    if (pass->direction == GH_FORWARD) {
        outputs[0] = row(set->y[l], 0);
        pass->n_outputs = 1;
        code = launch(FORWARD, d->stream, weights, x, set->y[l], NULL, NULL);
    } else {
        outputs[0] = row(set->dx[l], 0);
        /* UPDATED: the pass adds to it. */
        outputs[1] = (gh_buffer){ dweights,
                                  sizeof(float[2]), GH_BUFFER_UPDATED, 0 };
        pass->n_outputs = 2;
        code = launch(BACKWARD, d->stream, weights, x, d->inputs[1].address,
                      set->dx[l], dweights);
    }
    if (code != 0) {
        snprintf(why->text, sizeof(why->text), "a launch failed: %d", code);
        return GH_ERR_DEVICE;
    }
    return GH_OK;
}

/* Says what a pass reads.  The data of the next microbatch lies elsewhere, so
 * the library copies it to where the graph reads.  STATIC spares the copy: this
 * address is the same each time for this slot. */
static void run_layer(gh_direction direction, uint32_t l, uint32_t m, float *x)
{
    gh_buffer inputs[2];
    gh_decision d = { .struct_size = sizeof(d) };
    gh_pass pass = { .struct_size = sizeof(pass),
                     .segment = l, /* one layer, as open_session says */
                     .direction = direction,
                     .microbatch = m,
                     .stream = stream,
                     .inputs = inputs,
                     .n_inputs = direction == GH_FORWARD ? 1 : 2 };

    inputs[0] = l == 0 ? row(x, 0) : row(set_of[m]->y[l - 1], GH_BUFFER_STATIC);
    if (direction == GH_BACKWARD) {
        inputs[1] = row(set_of[m]->dx[l + 1], GH_BUFFER_STATIC);
    }
    OK(gh_run_pass(session, &pass, run_parts, NULL, &d, &err));
    set_of[m] = set_at(m, d.slot); /* where the results are, replayed or not */
}

/* One step: every microbatch forward, then every one backward. */
static void train_step(uint32_t step)
{
    struct result *result = &dev->result;

    for (uint32_t m = 0; m < MICROBATCHES; m++) {
        for (uint32_t l = 0; l < LAYERS; l++) {
            run_layer(GH_FORWARD, l, m, dev->x[(m + step) % MICROBATCHES]);
        }
    }
    for (uint32_t m = 0; m < MICROBATCHES; m++) {
        const uint32_t at = (m + step) % MICROBATCHES; /* another each step */

        /* Between passes the engine issues what it likes, as always. */
        MUST(launch(LOSS, stream, set_of[m]->y[LAYERS - 1], dev->t[at],
                    set_of[m]->dx[LAYERS], &result->losses[step][m], NULL));
        for (uint32_t l = LAYERS; l-- > 0;) {
            run_layer(GH_BACKWARD, l, m, dev->x[at]);
        }
    }
    for (uint32_t l = 0; l < LAYERS; l++) {
        MUST(launch(UPDATE, stream, result->weights[l], result->dweights[l],
                    NULL, NULL, NULL));
    }
    OK(gh_iteration_end(session, &err)); /* frees the slots, ends warmup */
}

/* Describes the model and opens a session on it. */
static void open_session(const char *driver, const char *const *environment)
{
    gh_layer_desc layer = { .struct_size = sizeof(layer),
                            .kind = GH_LAYER_MLP_ONLY };
    gh_session_desc desc = { .struct_size = sizeof(desc),
                             .driver = driver, /* the host's own */
                             .max_slots = MICROBATCHES, /* all in flight */
                             .environment = environment,
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
    for (int m = 0; m < MICROBATCHES; m++) {
        for (int i = 0; i < SAMPLES; i++) {
            start.x[m][i] = (i * 2 + m * 0.5F) / SAMPLES - 1;
            start.t[m][i] = start.x[m][i] * 3 + 1;
        }
    }
    for (int l = 0; l < LAYERS; l++) {
        start.result.weights[l][0] = 1;
    }
}

static void train(const char *driver, const char *const *environment,
                  struct result *result, gh_stats *stats)
{
    const size_t at = offsetof(struct memory, result);
    uint64_t address;

    start_values();
    MUST(cuStreamCreate(&stream, 0 /* CU_STREAM_DEFAULT: blocking */));
    MUST(cuMemAlloc(&address, sizeof(*dev)));
    dev = (struct memory *)(uintptr_t)address;
    MUST(cuMemcpyHtoDAsync(address, &start, at + sizeof(*result), stream));
    open_session(driver, environment);

    for (uint32_t step = 0; step < STEPS; step++) {
        train_step(step);
    }

    /* The order at the end: wait, close the session, free what graphs used. */
    MUST(cuStreamSynchronize(stream));
    OK(gh_session_stats(session, stats, &err));
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
    gh_stats stats = { .struct_size = sizeof(stats) };
    bool equal;

    open_device(driver);
    train(driver, eagerly, &eager, &stats);
    train(driver, NULL, &graphs, &stats); /* NULL: the process environment */
    close_device();

    equal = memcmp(&eager, &graphs, sizeof(eager)) == 0;
    printf("loss: %g, then %g\n", graphs.losses[0][0],
           graphs.losses[STEPS - 1][0]);
    printf("%u of %d passes were replayed\n", (unsigned)stats.replays,
           2 * LAYERS * MICROBATCHES * STEPS);
    printf("bitwise equal: %s\n", equal ? "yes" : "no");
    return equal && stats.check_failures == 0 ? 0 : 1;
}
