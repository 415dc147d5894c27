/*
 * hello.cu - a complete graphhooks host with the CUDA runtime and cuBLAS.
 *
 * Two layers, Y = W X each, learn a linear map: once eagerly, once with graphs.
 * Every loss and weight has to be the same, bit for bit.
 *
 * Build and run it in a checkout that ./quickstart has built, on a GPU:
 *
 *     nvcc -Iinclude doc/hello.cu -o build/hello -Lbuild/.libs \
 *         -Xlinker -rpath="$PWD/build/.libs" -lgraphhooks -lcublas
 *     build/hello
 *     GRAPHHOOKS_CHECK=bitwise build/hello  compares graphs with eager
 *
 * hello.c is the same host without a GPU.  There SOFTCUDA_SEED=1 to 20 runs it
 * in orders that a GPU takes now and then; a GPU has no seeds.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <graphhooks.h>

#include <cublas_v2.h>
#include <cuda_runtime.h>

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <string>

enum { LAYERS = 2, MICROBATCHES = 4, STEPS = 40,
       SIZE = 64, SAMPLES = 128 }; /* a vector, and a microbatch of them */

typedef float matrix[SIZE * SIZE];
typedef float rows[SIZE * SAMPLES];

/* What a microbatch keeps from its forward passes for its backward ones. */
struct set {
    rows y[LAYERS];      /* y[l]: the output of layer l */
    rows dx[LAYERS + 1]; /* dx[l]: the gradient of its input */
};

struct result {
    matrix weights[LAYERS], dweights[LAYERS];
    float losses[STEPS][MICROBATCHES][SAMPLES];
};

/* All memory of the engine.  The pointer is a device address: the CPU only
 * computes addresses from it. */
static struct memory {
    rows x[MICROBATCHES], t[MICROBATCHES];
    struct result result;
    struct set sets[2 * MICROBATCHES];
    alignas(256) char workspace[32 << 20]; /* of cuBLAS */
} start, *dev;

static struct set *set_of[MICROBATCHES]; /* where each has its results */
static cudaStream_t stream;
static cublasHandle_t blas;
static gh_session *session;
static gh_error err; /* why the library's last call failed */

/* ---- errors -------------------------------------------------------------- */

static void stop(const char *what, const char *why)
{
    fprintf(stderr, "hello: %s: %s\n", what, why);
    exit(1);
}

#define OK(call) ((call) == GH_OK ? (void)0 : stop(#call, err.text))

/* Outside of passes a failure ends the program. */
#define MUST(call) must((int)(call), #call)
static void must(int code, const char *call)
{
    if (code != 0) {
        stop(call, std::to_string(code).c_str());
    }
}

/* In a pass it must not: a recording that fails costs one graph only.  The
 * runtime keeps the error of a recording until it is asked for it, and the next
 * check would find that one. */
#define TRY(call) \
    do { \
        const int code = (int)(call); \
        if (code != 0) { \
            (void)cudaGetLastError(); \
            snprintf(why->text, sizeof(why->text), "%s: %d", #call, code); \
            return GH_ERR_DEVICE; \
        } \
    } while (0)

/* ---- the engine's own kernels -------------------------------------------- */

/* One thread has one sample.  No atomics: the order of sums is fixed. */
static __global__ void loss_kernel(const float *y, const float *t, float *dy,
                                   float *loss)
{
    const int sample = threadIdx.x;
    float sum = 0;

    for (int i = sample * SIZE; i < (sample + 1) * SIZE; i++) {
        dy[i] = (y[i] - t[i]) / SAMPLES;
        sum += (y[i] - t[i]) * (y[i] - t[i]) / 2;
    }
    loss[sample] = sum;
}

static __global__ void update_kernel(float *weights, float *dweights)
{
    const int i = blockIdx.x * SIZE + threadIdx.x;

    weights[i] -= 0.05f * dweights[i];
    dweights[i] = 0;
}

/* ---- a pass: a layer, forward or backward, for a microbatch -------------- */

template <size_t N>
static gh_buffer whole(float (&values)[N], uint32_t flags)
{
    return gh_buffer{ values, sizeof(values), flags, 0 };
}

/* c = a b, with op_a and op_b, or c += a b where beta is 1. */
static int multiply(cublasOperation_t op_a, cublasOperation_t op_b, int columns,
                    int inner, const float *a, const float *b, float beta,
                    float *c)
{
    const float one = 1;

    return cublasSgemm(blas, op_a, op_b, SIZE, columns, inner, &one, a, SIZE, b,
                       SIZE, &beta, c, SIZE);
}

/* The graphs of a slot use the slot's set.  A pass without a slot runs eagerly,
 * in a set of no slot. */
static struct set *set_at(uint32_t microbatch, uint32_t slot)
{
    return &dev->sets[slot == GH_SLOT_NONE ? MICROBATCHES + microbatch : slot];
}

/* The engine's own work: issues one layer, and lists in the pass what it
 * writes.  All goes to d->stream and reads d->inputs, never the pass's own.
 * The driver may be recording: do not wait, allocate or exit here.  The library
 * runs it eagerly if a recording fails, and not at all in a replay. */
static gh_status run_parts(void *, gh_pass *pass, const gh_decision *d,
                           gh_error *why)
{
    static gh_buffer outputs[2]; /* which exit reads */
    struct set *set = set_at(pass->microbatch, d->slot);
    const uint32_t l = pass->segment;
    const float *weights = dev->result.weights[l];
    const float *x = (const float *)d->inputs[0].address;

    /* Setting the stream drops the workspace, so the workspace comes second.
     * Without one cuBLAS takes memory of its own, which a graph must not use.
     * Passes on several streams at once need a workspace for each slot. */
    TRY(cublasSetStream(blas, (cudaStream_t)d->stream));
    TRY(cublasSetWorkspace(blas, dev->workspace, sizeof(dev->workspace)));

    pass->outputs = outputs;
    if (pass->direction == GH_FORWARD) {
        TRY(multiply(CUBLAS_OP_N, CUBLAS_OP_N, SAMPLES, SIZE, weights, x, 0,
                     set->y[l]));
        outputs[0] = whole(set->y[l], 0);
        pass->n_outputs = 1;
    } else {
        const float *dy = (const float *)d->inputs[1].address;

        TRY(multiply(CUBLAS_OP_T, CUBLAS_OP_N, SAMPLES, SIZE, weights, dy, 0,
                     set->dx[l]));
        TRY(multiply(CUBLAS_OP_N, CUBLAS_OP_T, SIZE, SAMPLES, dy, x, 1,
                     dev->result.dweights[l]));
        outputs[0] = whole(set->dx[l], 0);
        /* UPDATED: the pass adds to it. */
        outputs[1] = whole(dev->result.dweights[l], GH_BUFFER_UPDATED);
        pass->n_outputs = 2;
    }
    TRY(cudaGetLastError());
    return GH_OK;
}

/* Says what a pass reads.  The data of the next microbatch lies elsewhere, so
 * the library copies it to where the graph reads.  STATIC spares the copy: this
 * address is the same each time for this slot. */
static void run_layer(gh_direction direction, uint32_t l, uint32_t m, rows &x)
{
    gh_buffer inputs[2];
    gh_decision d = { .struct_size = sizeof(d) };
    gh_pass pass = { .struct_size = sizeof(pass),
                     .segment = l, /* one layer, as open_session says */
                     .direction = direction,
                     .microbatch = m,
                     .n_inputs = direction == GH_FORWARD ? 1u : 2u,
                     .stream = stream,
                     .inputs = inputs };

    inputs[0] =
        l == 0 ? whole(x, 0) : whole(set_of[m]->y[l - 1], GH_BUFFER_STATIC);
    if (direction == GH_BACKWARD) {
        inputs[1] = whole(set_of[m]->dx[l + 1], GH_BUFFER_STATIC);
    }
    OK(gh_run_pass(session, &pass, run_parts, NULL, &d, &err));
    set_of[m] = set_at(m, d.slot); /* where the results are, replayed or not */
}

/* ---- a training ---------------------------------------------------------- */

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
        loss_kernel<<<1, SAMPLES, 0, stream>>>(
            set_of[m]->y[LAYERS - 1], dev->t[at], set_of[m]->dx[LAYERS],
            result->losses[step][m]);
        MUST(cudaGetLastError());
        for (uint32_t l = LAYERS; l-- > 0;) {
            run_layer(GH_BACKWARD, l, m, dev->x[at]);
        }
    }
    for (uint32_t l = 0; l < LAYERS; l++) {
        update_kernel<<<SIZE, SIZE, 0, stream>>>(result->weights[l],
                                                 result->dweights[l]);
    }
    MUST(cudaGetLastError());
    OK(gh_iteration_end(session, &err)); /* frees the slots, ends warmup */
}

/* Describes the model and opens a session on it.  The session takes the
 * context that is current: the one of the CUDA runtime. */
static void open_session(const char *const *environment)
{
    gh_layer_desc layer = { .struct_size = sizeof(layer),
                            .kind = GH_LAYER_MLP_ONLY };
    gh_session_desc desc = { .struct_size = sizeof(desc),
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

/* The map to learn is t = 2 x.  All weights begin as the identity. */
static void start_values(void)
{
    for (int m = 0; m < MICROBATCHES; m++) {
        for (int i = 0; i < SAMPLES * SIZE; i++) {
            const int n = m * SAMPLES * SIZE + i;

            start.x[m][i] = sinf((float)n * n); /* scattered enough */
            start.t[m][i] = start.x[m][i] * 2;
        }
    }
    for (int i = 0; i < LAYERS * SIZE; i++) {
        start.result.weights[i / SIZE][i % SIZE * (SIZE + 1)] = 1;
    }
}

static void train(const char *const *environment, struct result *result,
                  gh_stats *stats)
{
    start_values();
    /* A blocking stream of the engine's own.  The driver refuses what a pass
     * leaves on the legacy stream while this one is recorded. */
    MUST(cudaStreamCreate(&stream));
    MUST(cudaMalloc((void **)&dev, sizeof(*dev)));
    MUST(cublasCreate(&blas));
    MUST(cudaMemcpyAsync(dev, &start, offsetof(struct memory, sets),
                         cudaMemcpyHostToDevice, stream));
    open_session(environment);

    for (uint32_t step = 0; step < STEPS; step++) {
        train_step(step);
    }

    /* The order at the end: wait, close the session, free what graphs used. */
    MUST(cudaStreamSynchronize(stream));
    OK(gh_session_stats(session, stats, &err));
    gh_session_close(session);
    MUST(cudaMemcpy(result, &dev->result, sizeof(*result),
                    cudaMemcpyDeviceToHost));
    MUST(cublasDestroy(blas));
    MUST(cudaFree(dev));
    MUST(cudaStreamDestroy(stream));
}

int main(void)
{
    static const char *const eagerly[] = { "GRAPHHOOKS_ENABLE=0", NULL };
    static struct result eager, graphs;
    gh_stats stats = { .struct_size = sizeof(stats) };
    bool equal;

    train(eagerly, &eager, &stats);
    train(NULL, &graphs, &stats); /* NULL: the process environment */

    equal = memcmp(&eager, &graphs, sizeof(eager)) == 0;
    printf("loss: %g, then %g\n", graphs.losses[0][0][0],
           graphs.losses[STEPS - 1][0][0]);
    printf("%u of %d passes were replayed\n", (unsigned)stats.replays,
           2 * LAYERS * MICROBATCHES * STEPS);
    printf("bitwise equal: %s\n", equal ? "yes" : "no");
    return equal && stats.check_failures == 0 ? 0 : 1;
}
