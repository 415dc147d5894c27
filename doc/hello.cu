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

enum { LAYERS = 2, MICROBATCHES = 4, STEPS = 40 };
enum { SIZE = 64, SAMPLES = 128 }; /* a vector, and a microbatch of them */

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
} start, *dev;

/* One of a step: its number, what it reads, where its slot has its results. */
struct microbatch {
    uint32_t number;
    float *x, *t;
    struct set *set;
};

static cudaStream_t stream;
static cublasHandle_t blas;
static void *workspace;
static const size_t workspace_bytes = 32 << 20;
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
    char why[32];

    if (code != 0) {
        snprintf(why, sizeof(why), "error %d", code);
        stop(call, why);
    }
}

/* In a pass it must not: a recording that fails costs one graph only.  So the
 * first failure is kept, and run_segment looks. */
static const char *failed;
#define TRY(call) (failed = (int)(call) == 0 || failed ? failed : #call)

/* After a recording that failed: the runtime keeps the last error until it is
 * asked for it, and the next check would find that one. */
static void forgive(void)
{
    failed = NULL;
    (void)cudaGetLastError();
}

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

static gh_buffer range(float *address, size_t floats, uint32_t flags)
{
    return gh_buffer{ address, floats * sizeof(float), flags, 0 };
}

/* A microbatch in flight has a slot, and graphs of that slot use the slot's
 * set.  A pass that got no slot runs eagerly, in a set of no slot. */
static struct set *set_of(const gh_pass *pass, const gh_decision *d)
{
    return d->slot == GH_SLOT_NONE ? &dev->sets[MICROBATCHES + pass->microbatch]
                                   : &dev->sets[d->slot];
}

/* c = a b, with op_a and op_b, or c += a b where beta is 1. */
static void multiply(cublasOperation_t op_a, cublasOperation_t op_b,
                     int columns, int inner, const float *a, const float *b,
                     float beta, float *c)
{
    const float one = 1;

    TRY(cublasSgemm(blas, op_a, op_b, SIZE, columns, inner, &one, a, SIZE, b,
                    SIZE, &beta, c, SIZE));
}

/* The engine's own work: issues one layer and lists what it writes.  All goes
 * to d->stream and reads d->inputs, never the pass's own.  The driver may be
 * recording: do not wait, allocate or exit here. */
static bool run_parts(gh_pass *pass, const gh_decision *d, gh_buffer outputs[2])
{
    const uint32_t l = pass->segment; /* a segment is one layer */
    struct set *set = set_of(pass, d);
    const float *weights = dev->result.weights[l];
    const float *x = (const float *)d->inputs[0].address;

    /* Setting the stream drops the workspace, so the workspace comes second.
     * Without one cuBLAS takes memory of its own, which a graph must not use.
     * Passes on several streams at once need a workspace for each slot. */
    TRY(cublasSetStream(blas, (cudaStream_t)d->stream));
    TRY(cublasSetWorkspace(blas, workspace, workspace_bytes));

    pass->outputs = outputs;
    if (pass->direction == GH_FORWARD) {
        multiply(CUBLAS_OP_N, CUBLAS_OP_N, SAMPLES, SIZE, weights, x, 0,
                 set->y[l]);
        outputs[0] = range(set->y[l], SIZE * SAMPLES, 0);
        pass->n_outputs = 1;
    } else {
        const float *dy = (const float *)d->inputs[1].address;

        multiply(CUBLAS_OP_T, CUBLAS_OP_N, SAMPLES, SIZE, weights, dy, 0,
                 set->dx[l]);
        multiply(CUBLAS_OP_N, CUBLAS_OP_T, SIZE, SAMPLES, dy, x, 1,
                 dev->result.dweights[l]);
        outputs[0] = range(set->dx[l], SIZE * SAMPLES, 0);
        /* UPDATED: the pass adds to it. */
        outputs[1] = range(dev->result.dweights[l], SIZE * SIZE,
                           GH_BUFFER_UPDATED);
        pass->n_outputs = 2;
    }
    return failed == NULL;
}

/* The host's own calls have failed in the open pass.  In a recording that may
 * be the recording's doing, so the pass is run again with recording paused. */
static gh_status give_up(const gh_decision *d, bool *paused_p)
{
    (void)gh_layer_cancel(session, NULL);
    if (d->action == GH_ACTION_RECORD &&
        gh_pre_warmup(session, &err) == GH_OK) {
        *paused_p = true;
        return GH_RERUN;
    }
    snprintf(err.text, sizeof(err.text), "%s failed", failed);
    return GH_ERR_DEVICE;
}

/* The hooks around one pass: a layer, forward or backward, for a microbatch.
 * *set_p is where it has its results. */
static gh_status run_segment(gh_pass *pass, struct set **set_p)
{
    gh_decision d = {};
    gh_buffer outputs[2];
    bool paused = false;
    gh_status status;

    d.struct_size = sizeof(d);
    do {
        status = gh_layer_enter(session, pass, &d, &err);
        if (status != GH_OK) {
            break; /* no pass is open */
        }
        *set_p = set_of(pass, &d);

        /* REPLAYED: the graph is launched, and there is nothing to run.  To
         * the host, RUN and RECORD are the same.  A recording becomes a graph
         * in exit, and is launched there.  GH_RERUN: it could not be, nothing
         * of the pass has run, and the next enter says RUN. */
        if (d.action == GH_ACTION_REPLAYED || run_parts(pass, &d, outputs)) {
            status = gh_layer_exit(session, pass, &err);
        } else {
            status = give_up(&d, &paused);
        }
        if (status == GH_RERUN) {
            forgive();
        }
    } while (status == GH_RERUN);

    if (status != GH_OK) {
        (void)gh_layer_cancel(session, NULL); /* a pass may still be open */
    }
    if (paused) {
        (void)gh_post_warmup(session, NULL);
    }
    return status;
}

/* Says what a pass reads.  The data of the next microbatch lies elsewhere, so
 * the library copies it to where the graph reads.  STATIC spares the copy: this
 * address is the same each time for this slot. */
static void run_layer(gh_direction direction, uint32_t l, struct microbatch *mb)
{
    gh_buffer inputs[2];
    gh_pass pass = {};

    pass.struct_size = sizeof(pass);
    pass.segment = l;
    pass.direction = direction;
    pass.microbatch = mb->number;
    pass.stream = stream;
    pass.inputs = inputs;
    inputs[pass.n_inputs++] =
        l == 0 ? range(mb->x, SIZE * SAMPLES, 0)
               : range(mb->set->y[l - 1], SIZE * SAMPLES, GH_BUFFER_STATIC);
    if (direction == GH_BACKWARD) {
        inputs[pass.n_inputs++] =
            range(mb->set->dx[l + 1], SIZE * SAMPLES, GH_BUFFER_STATIC);
    }
    OK(run_segment(&pass, &mb->set));
}

/* ---- a training ---------------------------------------------------------- */

/* One step: every microbatch forward, then every one backward. */
static void train_step(uint32_t step)
{
    struct result *result = &dev->result;
    struct microbatch all[MICROBATCHES], *mb;

    for (uint32_t m = 0; m < MICROBATCHES; m++) {
        const uint32_t at = (m + step) % MICROBATCHES; /* another each step */

        all[m] = { m, dev->x[at], dev->t[at], NULL };
        for (uint32_t l = 0; l < LAYERS; l++) {
            run_layer(GH_FORWARD, l, &all[m]);
        }
    }
    for (mb = all; mb < all + MICROBATCHES; mb++) {
        /* Between passes the engine issues what it likes, as always. */
        loss_kernel<<<1, SAMPLES, 0, stream>>>(
            mb->set->y[LAYERS - 1], mb->t, mb->set->dx[LAYERS],
            result->losses[step][mb->number]);
        MUST(cudaPeekAtLastError());
        for (uint32_t l = LAYERS; l-- > 0;) {
            run_layer(GH_BACKWARD, l, mb);
        }
    }
    for (uint32_t l = 0; l < LAYERS; l++) {
        update_kernel<<<SIZE, SIZE, 0, stream>>>(result->weights[l],
                                                 result->dweights[l]);
        MUST(cudaPeekAtLastError());
    }
    OK(gh_iteration_end(session, &err)); /* frees the slots, ends warmup */
}

/* Describes the model and opens a session on it.  The session takes the
 * context that is current: the one of the CUDA runtime. */
static void open_session(const char *const *environment)
{
    gh_layer_desc layer = {};
    gh_session_desc desc = {};
    gh_model *model;

    layer.struct_size = sizeof(layer);
    layer.kind = GH_LAYER_MLP_ONLY;
    OK(gh_model_create(&model, &err));
    for (int l = 0; l < LAYERS; l++) {
        OK(gh_model_add_layer(model, &layer, &err));
    }
    desc.struct_size = sizeof(desc);
    desc.model = model;
    desc.max_slots = MICROBATCHES; /* all are in flight at once */
    desc.environment = environment;
    OK(gh_session_open(&desc, &session, &err));
    gh_model_destroy(model); /* the session has copied it */

    if (gh_plan_segment_count(session, 0) != LAYERS) {
        stop("GRAPHHOOKS_GRANULARITY", "hello runs one layer in each segment; "
                                       "unset the variable");
    }
}

/* The map to learn is t = 2 x.  All weights begin as the identity. */
static void start_values(void)
{
    memset(&start, 0, sizeof(start));
    for (int m = 0; m < MICROBATCHES; m++) {
        for (int i = 0; i < SAMPLES * SIZE; i++) {
            const int n = m * SAMPLES * SIZE + i;

            start.x[m][i] = sinf((float)n * n); /* scattered enough */
            start.t[m][i] = start.x[m][i] * 2;
        }
    }
    for (int l = 0; l < LAYERS; l++) {
        for (int i = 0; i < SIZE; i++) {
            start.result.weights[l][i * SIZE + i] = 1;
        }
    }
}

static void train(const char *const *environment, struct result *result,
                  gh_stats *stats)
{
    start_values();
    /* A stream of the engine's own: the legacy one cannot be captured. */
    MUST(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    MUST(cudaMalloc((void **)&dev, sizeof(*dev)));
    MUST(cudaMalloc(&workspace, workspace_bytes));
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
    MUST(cudaFree(workspace));
    MUST(cudaFree(dev));
    MUST(cudaStreamDestroy(stream));
}

int main(void)
{
    static const char *const eagerly[] = { "GRAPHHOOKS_ENABLE=0", NULL };
    static struct result eager, graphs;
    gh_stats stats = {};
    bool equal;

    stats.struct_size = sizeof(stats);
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
