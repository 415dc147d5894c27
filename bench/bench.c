/*
 * bench.c - see bench.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "bench/bench.h"

#include "softcuda/softcuda.h"

#include <dlfcn.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MEMORY_BYTES 4096u

/* ---- the kernel -------------------------------------------------------- */

static const char tiny_ptx[] = ".version 7.0\n"
                               ".target sm_70\n"
                               ".address_size 64\n"
                               ".visible .entry tiny(.param .u64 address)\n"
                               "{\n"
                               "    .reg .b32 %r<3>;\n"
                               "    .reg .b64 %rd<3>;\n"
                               "    ld.param.u64 %rd1, [address];\n"
                               "    cvta.to.global.u64 %rd2, %rd1;\n"
                               "    ld.global.u32 %r1, [%rd2];\n"
                               "    add.u32 %r2, %r1, 1;\n"
                               "    st.global.u32 [%rd2], %r2;\n"
                               "    ret;\n"
                               "}\n";

static uint32_t *tiny_counter(void *const *params)
{
    uint64_t address;

    memcpy(&address, params[0], sizeof(address));
    return (uint32_t *)(uintptr_t)address;
}

static void tiny_run(const softcuda_launch *launch, void *const *params)
{
    (void)launch;
    ++*tiny_counter(params);
}

static void tiny_touch(const softcuda_launch *launch, void *const *params,
                       softcuda_touch_fn touch, void *sink)
{
    (void)launch;
    touch(sink, tiny_counter(params), sizeof(uint32_t), 0);
    touch(sink, tiny_counter(params), sizeof(uint32_t), 1);
}

static const uint32_t tiny_params[] = { 8 };
static const softcuda_kernel tiny_kernel = { "tiny",   1,          tiny_params,
                                             tiny_run, tiny_touch, NULL };
static const softcuda_image tiny_image = { SOFTCUDA_IMAGE_MAGIC, 1, 0,
                                           &tiny_kernel };

/* ---- failing ----------------------------------------------------------- */

void bench_die(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    fprintf(stderr, "bench: ");
    vfprintf(stderr, format, args);
    fprintf(stderr, "\n");
    va_end(args);
    exit(3);
}

void bench_need(const struct bench *bench, CUresult result, const char *entry)
{
    const char *name = "?";

    if (result != CUDA_SUCCESS) {
        bench->drv.cuGetErrorName(result, &name);
        bench_die("%s: %d %s", entry, result, name);
    }
}

void bench_need_gh(gh_status status, const char *call, const gh_error *err)
{
    if (status != GH_OK) {
        bench_die("%s: status %d: %s", call, status, err->text);
    }
}

/* ---- opening ----------------------------------------------------------- */

static int positive(const char *option, const char *text)
{
    char *end;
    long n = strtol(text, &end, 10);

    if (end == text || *end != '\0' || n < 1 || n > 1000000) {
        bench_die("--%s is \"%s\"; give a number from 1 to 1000000", option,
                  text);
    }
    return (int)n;
}

struct bench_options bench_parse(int argc, char **argv, const char *usage)
{
    static const struct option known[] = {
        { "driver", required_argument, NULL, 'd' },
        { "library", required_argument, NULL, 'l' },
        { "rounds", required_argument, NULL, 'r' },
        { "passes", required_argument, NULL, 'p' },
        { "json", required_argument, NULL, 'j' },
        { "fraction", required_argument, NULL, 'f' },
        { "cublas", required_argument, NULL, 'b' },
        { "costs", required_argument, NULL, 'k' },
        { "nccl", required_argument, NULL, 'n' },
        { "ranks", required_argument, NULL, 'R' },
        { "callgrind", no_argument, NULL, 'c' },
        { "whole-steps", no_argument, NULL, 'w' },
        { "brief", no_argument, NULL, 'B' },
        { "help", no_argument, NULL, 'h' },
        { NULL, 0, NULL, 0 },
    };
    struct bench_options options = { .passes = 1 };
    int c;

    while ((c = getopt_long(argc, argv, "", known, NULL)) != -1) {
        switch (c) {
        case 'd':
            options.soft = strcmp(optarg, "soft") == 0;
            if (!options.soft && strcmp(optarg, "cuda") != 0) {
                bench_die("--driver is \"%s\"; give cuda or soft", optarg);
            }
            break;
        case 'l':
            options.library = optarg;
            break;
        case 'r':
            options.rounds = positive("rounds", optarg);
            break;
        case 'p':
            options.passes = positive("passes", optarg);
            break;
        case 'j':
            options.json = optarg;
            break;
        case 'f':
            options.fraction = optarg;
            break;
        case 'b':
            options.cublas = optarg;
            break;
        case 'n':
            options.nccl = optarg;
            break;
        case 'R':
            options.ranks = (uint32_t)positive("ranks", optarg);
            break;
        case 'k':
            options.costs = optarg;
            break;
        case 'c':
            options.callgrind = true;
            break;
        case 'B':
            options.brief = true;
            break;
        case 'w':
            options.whole_steps = true;
            break;
        default:
            fprintf(c == 'h' ? stdout : stderr,
                    "usage: %s [--driver cuda|soft] [--library PATH]\n"
                    "    [--rounds N] [--passes N] [--json FILE] "
                    "[--fraction F|auto]\n"
                    "    [--cublas PATH] [--nccl PATH] [--ranks N] "
                    "[--costs FILE]\n"
                    "    [--callgrind [--whole-steps]] [--brief]\n%s\n",
                    argv[0], usage);
            exit(c == 'h' ? 0 : 2);
        }
    }
    if (optind != argc) {
        bench_die("%s is not an option", argv[optind]);
    }
    return options;
}

void bench_find(const char *variable, const char *name, char *path,
                size_t bytes)
{
    static const char *const places[] = { "../.libs/", "../../.libs/",
                                          ".libs/" };
    const char *given = getenv(variable);
    char self[2048];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    char *slash;

    if (given != NULL && given[0] != '\0') {
        snprintf(path, bytes, "%s", given);
        return;
    }
    self[n > 0 ? n : 0] = '\0';
    slash = strrchr(self, '/');
    if (slash != NULL) {
        slash[1] = '\0';
        for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
            snprintf(path, bytes, "%s%s%s", self, places[i], name);
            if (access(path, R_OK) == 0) {
                return;
            }
        }
    }
    snprintf(path, bytes, "%s", name);
}

static void open_library(struct bench *bench)
{
    char path[4096];
    gh_get_api_fn *get;
    gh_error err = { "" };
    void *library, *symbol;

    bench_find("GRAPHHOOKS_LIBRARY", "libgraphhooks.so.0", path, sizeof(path));
    library =
        dlopen(bench->options.library != NULL ? bench->options.library : path,
               RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        bench_die("%s", dlerror());
    }
    symbol = dlsym(library, GH_GET_API_SYMBOL);
    if (symbol == NULL) {
        bench_die("%s", dlerror());
    }
    memcpy(&get, &symbol, sizeof(get));
    bench_need_gh(get(GH_ABI_MAJOR, &bench->gh, &err), "gh_get_api", &err);
}

void bench_open(struct bench *bench, const struct bench_options *options)
{
    char text[512];
    int devices = 0;

    memset(bench, 0, sizeof(*bench));
    bench->options = *options;
    if (options->soft) {
        bench_find("GRAPHHOOKS_SOFTCUDA", "libgraphhooks-softcuda.so",
                   bench->driver_path, sizeof(bench->driver_path));
    } else {
        snprintf(bench->driver_path, sizeof(bench->driver_path),
                 "libcuda.so.1");
    }
    if (driver_load(bench->driver_path, &bench->drv, text, sizeof(text)) != 0) {
        bench_die("%s", text);
    }
    NEED(bench, cuInit, (0));
    NEED(bench, cuDeviceGetCount, (&devices));
    if (devices == 0) {
        bench_die("there is no device");
    }
    NEED(bench, cuDeviceGet,
         (&bench->ordinal, (int)(options->rank % (uint32_t)devices)));
    NEED(bench, cuDeviceGetName,
         (bench->device, (int)sizeof(bench->device), bench->ordinal));
    NEED(bench, cuDriverGetVersion, (&bench->cuda_version));
    NEED(bench, cuDevicePrimaryCtxRetain, (&bench->ctx, bench->ordinal));
    NEED(bench, cuCtxSetCurrent, (bench->ctx));
    NEED(
        bench, cuModuleLoadData,
        (&bench->module, options->soft ? (const void *)&tiny_image : tiny_ptx));
    NEED(bench, cuModuleGetFunction, (&bench->tiny, bench->module, "tiny"));
    NEED(bench, cuStreamCreate, (&bench->stream, CU_STREAM_NON_BLOCKING));
    NEED(bench, cuMemAlloc, (&bench->memory, MEMORY_BYTES));
    NEED(bench, cuMemsetD8Async,
         (bench->memory, 0, MEMORY_BYTES, bench->stream));
    bench_sync(bench);
    open_library(bench);
}

void bench_close(struct bench *bench)
{
    NEED(bench, cuMemFree, (bench->memory));
    NEED(bench, cuStreamDestroy, (bench->stream));
    NEED(bench, cuModuleUnload, (bench->module));
    NEED(bench, cuCtxSetCurrent, (NULL));
    NEED(bench, cuDevicePrimaryCtxRelease, (bench->ordinal));
}

/* ---- measuring --------------------------------------------------------- */

void bench_apart(void (*measure)(const void *what, void *result),
                 const void *what, void *result, size_t bytes)
{
    int ends[2], status;
    pid_t child;

    if (pipe(ends) != 0) {
        bench_die("no pipe");
    }
    fflush(NULL);
    child = fork();
    if (child < 0) {
        bench_die("no process");
    }
    if (child == 0) {
        measure(what, result);
        _exit(write(ends[1], result, bytes) == (ssize_t)bytes ? 0 : 3);
    }
    close(ends[1]);
    if (read(ends[0], result, bytes) != (ssize_t)bytes ||
        waitpid(child, &status, 0) != child || status != 0) {
        bench_die("the process that measures failed");
    }
    close(ends[0]);
}

uint64_t bench_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static int common_divisor(int a, int b)
{
    return b == 0 ? a : common_divisor(b, a % b);
}

/* The strides that reach all of `n` are taken one after the other. */
int bench_turn(int round, int turn, int n)
{
    int stride = 0;

    for (int left = round + 1; left > 0;) {
        stride = stride % n + 1;
        left -= common_divisor(stride, n) == 1;
    }
    return (round + turn * stride) % n;
}

struct spread bench_spread(double *values, size_t n)
{
    qsort(values, n, sizeof(*values), compare);
    return (struct spread){ values[n / 10], values[n / 2],
                            values[n - 1 - n / 10] };
}

/* ---- work -------------------------------------------------------------- */

void bench_launch(const struct bench *bench, uint32_t n, CUstream stream)
{
    CUdeviceptr address = bench->memory;
    void *params[] = { &address };

    for (uint32_t i = 0; i < n; i++) {
        NEED(bench, cuLaunchKernel,
             (bench->tiny, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
    }
}

CUgraphExec bench_exec(const struct bench *bench, uint32_t n)
{
    CUgraph graph;
    CUgraphExec exec;

    NEED(bench, cuStreamBeginCapture,
         (bench->stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    bench_launch(bench, n, bench->stream);
    NEED(bench, cuStreamEndCapture, (bench->stream, &graph));
    NEED(bench, cuGraphInstantiateWithFlags,
         (&exec, graph, CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY));
    NEED(bench, cuGraphDestroy, (graph));
    NEED(bench, cuGraphUpload, (exec, bench->stream));
    return exec;
}

void bench_sync(const struct bench *bench)
{
    NEED(bench, cuStreamSynchronize, (bench->stream));
}

gh_session *bench_session(const struct bench *bench, uint32_t layers,
                          uint32_t slots)
{
    /* The caller's own variables must not decide what is measured. */
    static const char *const environment[] = { "GRAPHHOOKS_WARMUP_STEPS=0",
                                               NULL };
    const gh_api *gh = bench->gh;
    gh_layer_desc layer = { .struct_size = sizeof(layer) };
    gh_session_desc desc = {
        .struct_size = sizeof(desc),
        .driver = bench->options.soft ? bench->driver_path : "cuda",
        .context = bench->ctx,
        .max_slots = slots,
        .flags = GH_SESSION_BUSY_FAILS,
        .environment = environment,
    };
    gh_session *session;
    gh_model *model;
    gh_error err = { "" };

    bench_need_gh(gh->model_create(&model, &err), "gh_model_create", &err);
    for (uint32_t i = 0; i < layers; i++) {
        bench_need_gh(gh->model_add_layer(model, &layer, &err),
                      "gh_model_add_layer", &err);
    }
    desc.model = model;
    bench_need_gh(gh->session_open(&desc, &session, &err), "gh_session_open",
                  &err);
    gh->model_destroy(model);
    return session;
}

gh_pass bench_pass(const struct bench *bench, uint32_t segment,
                   gh_direction direction, uint32_t microbatch)
{
    static gh_buffer buffers[2];

    for (int i = 0; i < 2; i++) {
        buffers[i] = (gh_buffer){
            .address = (void *)(uintptr_t)(bench->memory + 1024u * i),
            .bytes = 1024,
            .flags = i == 0 ? GH_BUFFER_STATIC : 0,
        };
    }
    return (gh_pass){
        .struct_size = sizeof(gh_pass),
        .segment = segment,
        .direction = direction,
        .microbatch = microbatch,
        .n_inputs = 1,
        .n_outputs = 1,
        .stream = bench->stream,
        .inputs = &buffers[0],
        .outputs = &buffers[1],
    };
}

gh_action bench_run_pass(const struct bench *bench, gh_session *session,
                         gh_pass *pass, uint32_t kernels)
{
    gh_decision decision = { .struct_size = sizeof(decision) };
    gh_error err = { "" };

    bench_need_gh(bench->gh->layer_enter(session, pass, &decision, &err),
                  "gh_layer_enter", &err);
    if (decision.action != GH_ACTION_REPLAYED) {
        bench_launch(bench, kernels, decision.stream);
    }
    bench_need_gh(bench->gh->layer_exit(session, pass, &err), "gh_layer_exit",
                  &err);
    return decision.action;
}

__attribute__((noinline)) void bench_replay(const gh_api *gh,
                                            gh_session *session, gh_pass *pass,
                                            gh_decision *decision)
{
    gh->layer_enter(session, pass, decision, NULL);
    gh->layer_exit(session, pass, NULL);
}

gh_stats bench_stats(const struct bench *bench, const gh_session *session)
{
    gh_stats stats = { .struct_size = sizeof(stats) };
    gh_error err = { "" };

    bench_need_gh(bench->gh->session_stats(session, &stats, &err),
                  "gh_session_stats", &err);
    return stats;
}

/* ---- JSON -------------------------------------------------------------- */

FILE *bench_json_begin(const struct bench *bench, const char *name)
{
    FILE *file = stdout;

    if (bench->options.json != NULL) {
        file = fopen(bench->options.json, "w");
        if (file == NULL) {
            bench_die("cannot write %s", bench->options.json);
        }
    }
    fprintf(file,
            "{\"bench\": \"%s\", \"driver\": \"%s\", \"device\": \"%s\", "
            "\"cuda\": \"%d.%d\", \"library\": \"%s\",\n",
            name, bench->options.soft ? "soft" : "cuda", bench->device,
            bench->cuda_version / 1000, bench->cuda_version % 1000 / 10,
            bench->gh->version());
    return file;
}

void bench_json_spread(FILE *file, const char *key, struct spread spread)
{
    fprintf(file, "\"%s\": {\"p10\": %.1f, \"median\": %.1f, \"p90\": %.1f}, ",
            key, spread.p10, spread.median, spread.p90);
}

void bench_json_end(const struct bench *bench, FILE *file)
{
    int failed = fputs("}\n", file) < 0 || ferror(file);

    if (file != stdout) {
        failed |= fclose(file) != 0;
    } else {
        failed |= fflush(file) != 0;
    }
    if (failed) {
        bench_die("%s could not be written whole",
                  bench->options.json != NULL ? bench->options.json : "stdout");
    }
}
