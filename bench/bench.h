/*
 * bench.h - what the measuring programs share.
 *
 * A bench is a host: it loads the library by dlopen and calls the driver
 * through its own table, on one stream, with one kernel that does next to
 * nothing.  What fails ends the program with one sentence and status 3, as
 * half a measurement is none.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef BENCH_BENCH_H
#define BENCH_BENCH_H

#include <graphhooks.h>

#include "driver/driver.h"

#include <stdbool.h>
#include <stdio.h>

struct bench_options {
    bool soft;           /* --driver soft */
    bool callgrind;      /* --callgrind: only passes, nothing is timed */
    bool whole_steps;    /* --whole-steps: with --callgrind, every pass */
    bool brief;          /* --brief: a part of it, to see that it works */
    int rounds;          /* --rounds; 0: the program's own */
    int passes;          /* --passes: with --callgrind, how many to capture */
    const char *library; /* --library; NULL: looked for */
    const char *json;    /* --json; NULL: stdout */
    const char *fraction; /* --fraction, of what is offloaded; NULL: all */
    const char *cublas;   /* --cublas; NULL: looked for, "": none */
    const char *nccl;     /* --nccl; NULL: the software device's, or
                             libnccl.so.2 */
    uint32_t rank;        /* of several, which take the devices in turn */
    uint32_t ranks;       /* --ranks: how many; 0: the program's own */
    const char *costs;    /* --costs: written by overlap, read by scale */
};

struct bench {
    struct bench_options options;
    struct driver drv;
    char driver_path[4096]; /* for gh_session_desc.driver */
    char device[128];
    int cuda_version;
    CUdevice ordinal;
    CUcontext ctx;
    CUmodule module;
    CUfunction tiny;
    CUstream stream;
    CUdeviceptr memory; /* what the kernel counts up, and passes name */
    const gh_api *gh;
};

/* What was measured, without its outliers' say. */
struct spread {
    double p10, median, p90;
};

void bench_die(const char *format, ...)
    __attribute__((format(printf, 1, 2), noreturn));
/* Ends the program unless the driver call succeeded. */
void bench_need(const struct bench *bench, CUresult result, const char *entry);
#define NEED(bench, entry, args) \
    bench_need((bench), (bench)->drv.entry args, #entry)
/* The same for a call of the library. */
void bench_need_gh(gh_status status, const char *call, const gh_error *err);

/* Reads the command line; `usage` is the program's own line about itself. */
struct bench_options bench_parse(int argc, char **argv, const char *usage);
/* A library of the build that the program lies in: by its environment
 * variable, else beside it, else left to the loader. */
void bench_find(const char *variable, const char *name, char *path,
                size_t bytes);
void bench_open(struct bench *bench, const struct bench_options *options);
void bench_close(struct bench *bench);

/* Measures in a process of its own, before this one has opened a driver; the
 * result comes back as its bytes. */
void bench_apart(void (*measure)(const void *what, void *result),
                 const void *what, void *result, size_t bytes);

uint64_t bench_now_ns(void);
/* Sorts `values`. */
struct spread bench_spread(double *values, size_t n);

/* Which of `n` things comes at `turn` of a round.  Each round has all of them, in
 * another order: a device that has waited is cooler, and faster for a while, so
 * nothing may always come after the same. */
int bench_turn(int round, int turn, int n);

/* Launches the kernel `n` times. */
void bench_launch(const struct bench *bench, uint32_t n, CUstream stream);
/* `n` launches as an exec that is uploaded. */
CUgraphExec bench_exec(const struct bench *bench, uint32_t n);
void bench_sync(const struct bench *bench);

/* A session of dense layers, one segment each, warm and ready to record. */
gh_session *bench_session(const struct bench *bench, uint32_t layers,
                          uint32_t slots);
/* A pass of one static input and one output. */
gh_pass bench_pass(const struct bench *bench, uint32_t segment,
                   gh_direction direction, uint32_t microbatch);
/* enter, the kernels unless it was replayed, exit; the action. */
gh_action bench_run_pass(const struct bench *bench, gh_session *session,
                         gh_pass *pass, uint32_t kernels);
/* Enter and exit, and nothing else: callgrind counts what happens inside, and
 * finds it by name. */
void bench_replay(const gh_api *gh, gh_session *session, gh_pass *pass,
                  gh_decision *decision);
gh_stats bench_stats(const struct bench *bench, const gh_session *session);

/* JSON: where to, and the fields that every result begins with. */
FILE *bench_json_begin(const struct bench *bench, const char *name);
void bench_json_spread(FILE *file, const char *key, struct spread spread);
void bench_json_end(const struct bench *bench, FILE *file);

#endif
