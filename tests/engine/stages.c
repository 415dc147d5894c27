/*
 * stages.c - the stages of a pipeline when one of them is late.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "cli/find.h"
#include "step/train.h"
#include "tap/tap.h"
#include "tests/engine/soft.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    STAGES = 3,
    LATE = 1, /* the stage that sleeps */
    LIMIT_S = 1,
    SLEEP_S = 3
};

static char letters[600];
static const struct text text = { (unsigned char *)letters,
                                  sizeof(letters) - 1 };
static struct nccl nccl;
static char driver[4096];

struct stage {
    struct options options;
    struct ranks ranks;
    struct device dev;
    const ncclUniqueId *id;
    struct result result;
    pthread_t thread;
    int status;
    char error[SOFT_ERROR];
};

/* Called after a step: the late stage then begins the next one late. */
static bool sleep_if_late(const struct options *options, enum mode mode,
                          int step, double loss, double step_ms)
{
    const struct timespec nap = { .tv_sec = SLEEP_S };

    (void)mode;
    (void)loss;
    (void)step_ms;
    if (step == 0 && options->ranks->rank == LATE) {
        nanosleep(&nap, NULL);
    }
    return true;
}

static void *run_stage(void *at)
{
    struct stage *s = at;

    s->status = device_open(&s->dev, driver, s->ranks.rank);
    if (s->status == 0) {
        s->status = ranks_open(&s->ranks, &s->dev, &nccl, s->id);
    }
    if (s->status == 0) {
        s->status = ranks_line_up(&s->ranks, STAGES, false);
    }
    if (s->status == 0) {
        s->status = train(&s->options, &s->dev, &text, MODE_EAGER,
                          sleep_if_late, &s->result, s->error, SOFT_ERROR);
    }
    ranks_close(&s->ranks);
    device_close(&s->dev);
    return NULL;
}

static void run(struct stage *all)
{
    struct host_barrier barrier;
    ncclUniqueId id;

    (void)nccl.ncclGetUniqueId(&id);
    host_barrier_init(&barrier, STAGES);
    for (int i = 0; i < STAGES; i++) {
        all[i].id = &id;
        all[i].options = soft_options;
        all[i].options.config.layers = STAGES;
        all[i].options.pp = STAGES;
        all[i].options.streams = 1;
        all[i].options.ranks = &all[i].ranks;
        all[i].ranks = (struct ranks){
            .rank = i,
            .n = STAGES,
            .barrier = &barrier,
            .watch = { .limit_s = LIMIT_S,
                       .lost = host_barrier_lost,
                       .tell = host_barrier_break,
                       .user = &barrier },
        };
        pthread_create(&all[i].thread, NULL, run_stage, &all[i]);
    }
    for (int i = 0; i < STAGES; i++) {
        pthread_join(all[i].thread, NULL);
    }
    host_barrier_destroy(&barrier);
}

static void test_late(void)
{
    struct stage all[STAGES] = { 0 };
    const time_t start = time(NULL);

    run(all);
    ok(time(NULL) - start < SLEEP_S + 4, "nobody waits long for a late stage");
    for (int i = 0; i < STAGES; i++) {
        char wanted[64];

        is_int(all[i].status, -1, "stage %d fails", i);
        if (i != LATE) {
            snprintf(wanted, sizeof(wanted),
                     "stage %d waits for stage %d, in its", i, LATE);
            ok(strstr(all[i].error, wanted) != NULL &&
                   strstr(all[i].error, "chunk 0, microbatch 0: ") != NULL,
               "and says for what: %s", all[i].error);
        }
        result_free(&all[i].result);
    }
}

int main(void)
{
    char path[4096], error[512];

    setenv("SOFTCUDA_DEVICES", "3", 1);
    setenv("SOFTCUDA_PROCESSES", "1", 1);
    memset(letters, 'a', sizeof(letters) - 1);
    find_companion(FIND_SOFTCUDA, driver, sizeof(driver));
    find_companion(FIND_SOFTNCCL, path, sizeof(path));
    if (soft_find() != 0 || nccl_load(path, &nccl, error, sizeof(error)) != 0) {
        ok(false, "the software device and its NCCL load");
        return done_testing();
    }
    test_late();
    return done_testing();
}
