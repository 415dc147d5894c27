/*
 * rank_threads.c - starts ranks that are threads, or joins ranks that are
 * processes.
 *
 * With threads the caller is rank 0, and each other rank is a thread that
 * opens its own device.  They share what is only read: the command, the text,
 * and the table of NCCL's entry points.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "cli/rank_threads.h"

#include "cli/find.h"
#include "step/pipeline_schedule.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct rank_threads {
    const struct command *command;
    char path[4096]; /* of NCCL */
    struct nccl nccl;
    ncclUniqueId id;
    struct host_barrier barrier;
};

struct member {
    struct rank_threads *threads;
    int rank;
    struct device dev;
    struct modes modes;
    pthread_t thread;
    bool started, failed;
};

static int load_nccl(struct rank_threads *threads, const struct device *dev,
                     char *error, size_t error_bytes)
{
    const char *given = threads->command->nccl;

    snprintf(threads->path, sizeof(threads->path), "%s",
             given != NULL ? given : "libnccl.so.2");
    if (given == NULL && dev->soft) {
        find_companion(FIND_SOFTNCCL, threads->path, sizeof(threads->path));
    }
    return nccl_load(threads->path, &threads->nccl, error, error_bytes);
}

/* Runs one of several ranks: opens its communicator, then runs its modes. */
static int run_rank(struct rank_threads *threads, struct modes *modes,
                    struct ranks ranks)
{
    const int number = ranks.rank;
    int status;

    ranks.watch.limit_s = threads->command->limit_s;
    ranks.nccl = threads->path;
    status = ranks_open(&ranks, modes->dev, &threads->nccl, &threads->id);
    if (status == 0) {
        status = ranks_line_up(&ranks, options_pp(&modes->options),
                               options_vpp(&modes->options) > 1);
    }
    if (status == 0 && modes->options.config.tied) {
        status = ranks_tie(&ranks, pipeline_head_stage(&modes->options));
    }
    if (status == 0) {
        status = ranks_split(&ranks, modes->options.cp, modes->options.n_cp);
    }
    if (status == 0) {
        status = ranks_divide(&ranks, modes->options.config.ep);
    }
    if (status != 0) {
        snprintf(modes->error, sizeof(modes->error), "%s", modes->dev->error);
        ranks_abort(&ranks, modes->error);
    } else {
        modes->options.ranks = &ranks;
        if (modes->options.config.ep > 1) {
            modes->options.config.ep_rank = number % modes->options.config.ep;
        }
        status = modes_run(modes);
    }
    ranks_close(&ranks);
    modes->options.ranks = NULL;
    if (status != 0) {
        fprintf(stderr, "gh-engine: rank %d: %s\n", number, modes->error);
    }
    return status;
}

static struct ranks ranks_of_threads(struct rank_threads *threads, int rank)
{
    return (struct ranks){
        .rank = rank,
        .n = threads->command->ranks,
        .barrier = &threads->barrier,
        .watch = { .lost = host_barrier_lost,
                   .tell = host_barrier_break,
                   .user = &threads->barrier },
    };
}

static void *run_member(void *at)
{
    struct member *member = at;

    if (device_open(&member->dev, member->dev.path, member->rank) != 0) {
        fprintf(stderr, "gh-engine: rank %d: %s\n", member->rank,
                member->dev.error);
        member->failed = true;
        host_barrier_break(&member->threads->barrier, NULL);
    } else {
        member->failed =
            run_rank(member->threads, &member->modes,
                     ranks_of_threads(member->threads, member->rank)) != 0;
    }
    modes_free(&member->modes);
    device_close(&member->dev);
    return NULL;
}

static bool say_nothing(const struct options *options, enum mode mode, int step,
                        double loss, double step_ms)
{
    (void)options;
    (void)mode;
    (void)step;
    (void)loss;
    (void)step_ms;
    return true;
}

static int start(struct member *member, struct rank_threads *threads,
                 const struct modes *modes, int rank)
{
    *member = (struct member){
        .threads = threads,
        .rank = rank,
        .dev = { .path = modes->dev->path },
        .modes = { .command = modes->command,
                   .options = modes->options,
                   .dev = &member->dev,
                   .text = modes->text,
                   .progress = say_nothing },
    };
    member->started =
        pthread_create(&member->thread, NULL, run_member, member) == 0;
    return member->started ? 0 : -1;
}

static int run_threads(struct rank_threads *threads, struct modes *modes)
{
    const int n = threads->command->ranks;
    struct member *members = calloc((size_t)n, sizeof(*members));
    int status = members == NULL ? -1 : 0;

    host_barrier_init(&threads->barrier, n);
    for (int i = 1; i < n && status == 0; i++) {
        status = start(&members[i], threads, modes, i);
    }
    if (status != 0) {
        fprintf(stderr,
                "gh-engine: --ranks %d: there is no memory for so many "
                "threads; take fewer\n",
                n);
        host_barrier_break(&threads->barrier, NULL);
    } else {
        status = run_rank(threads, modes, ranks_of_threads(threads, 0));
    }
    for (int i = 1; i < n && members != NULL; i++) {
        if (members[i].started) {
            pthread_join(members[i].thread, NULL);
            status = members[i].failed ? -1 : status;
        }
    }
    host_barrier_destroy(&threads->barrier);
    free(members);
    return status;
}

static int make_id(struct rank_threads *threads, char *error,
                   size_t error_bytes)
{
    if (threads->nccl.ncclGetUniqueId(&threads->id) == ncclSuccess) {
        return 0;
    }
    snprintf(error, error_bytes, "ncclGetUniqueId failed: %s",
             threads->nccl.ncclGetLastError(NULL));
    return -1;
}

/* Runs the rank of this process. */
static int run_process(struct rank_threads *threads, struct launch *launch,
                       struct modes *modes, char *error, size_t error_bytes)
{
    const struct ranks ranks = {
        .rank = launch->rank,
        .n = launch->n,
        .watch = { .lost = failure_pipe_lost,
                   .tell = failure_pipe_tell,
                   .user = &launch->line },
    };
    const int limit_s = threads->command->limit_s;
    int status;

    if ((launch->rank == 0 && make_id(threads, error, error_bytes) != 0) ||
        failure_pipe_share(&launch->line, &threads->id, sizeof(threads->id),
                           limit_s, error, error_bytes) != 0) {
        return -1;
    }
    status = run_rank(threads, modes, ranks);
    failure_pipe_tell(&launch->line, status == 0 ? NULL : modes->error);
    return status;
}

static int run_several(struct rank_threads *threads, struct launch *launch,
                       struct modes *modes)
{
    char error[4608] = "";
    int status = load_nccl(threads, modes->dev, error, sizeof(error));

    if (status == 0 && launch->processes) {
        status = run_process(threads, launch, modes, error, sizeof(error));
    } else if (status == 0) {
        status = make_id(threads, error, sizeof(error));
        status = status == 0 ? run_threads(threads, modes) : -1;
    }
    if (error[0] != '\0') {
        fprintf(stderr, "gh-engine: rank %d of %d: %s\n", launch->rank,
                launch->n, error);
    }
    return status;
}

int run_ranks(struct launch *launch, struct modes *modes)
{
    struct rank_threads threads = { .command = modes->command };

    if (launch->n > 1) {
        return run_several(&threads, launch, modes);
    }
    if (modes_run(modes) == 0) {
        return 0;
    }
    fprintf(stderr, "gh-engine: %s\n", modes->error);
    return -1;
}
