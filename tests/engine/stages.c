/*
 * stages.c - stages of a pipeline: how many slots they use, and what they say
 * when one is late.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "cli/find.h"
#include "step/library.h"
#include "step/pipeline.h"
#include "step/schedule.h"
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
    enum mode mode;
    float *embedding, *head; /* gradients after one step by hand; NULL: train()
                                runs */
    bool tied;
    int status;
    char error[SOFT_ERROR];
};

/* Called after a step: the late stage then begins the next one late. */
static bool sleep_if_late(const struct options *options, enum mode mode,
                          int step, double loss, double step_ms)
{
    const struct timespec nap = { .tv_sec = SLEEP_S };

    (void)loss;
    (void)step_ms;
    if (mode == MODE_EAGER && step == 0 && options->ranks->rank == LATE) {
        nanosleep(&nap, NULL);
    }
    return true;
}

/* Copies the gradients of weights of VOCAB x hidden. */
static void take(struct stage *s, const struct trainer *trainer, size_t first,
                 float *to)
{
    const size_t n = VOCAB * (size_t)trainer->model.config.hidden;

    DEVICE_CALL(&s->dev, cuMemcpyDtoH, to,
                device_address(trainer->model.g + first), n * sizeof(*to));
}

static int make_step(struct stage *s)
{
    struct trainer trainer;
    int status = trainer_init(&trainer, &s->options, MODE_EAGER, &s->dev);
    const int count = s->options.counts[0];
    const int n = count * 2 * config_rows(&trainer.model.config);

    for (int i = 0; status == 0 && i < n; i++) {
        trainer.tokens_host[i] = (i * i + 3 * i) % VOCAB;
    }
    if (status == 0) {
        status = pipeline_open(&trainer);
    }
    DEVICE_CALL(&s->dev, cuMemcpyHtoD, device_address(trainer.tokens),
                trainer.tokens_host, (size_t)n * sizeof(int));
    if (status == 0) {
        status = schedule_step(&trainer, count);
    }
    (void)device_synchronize(&s->dev, trainer.streams[0]);
    if (trainer.model.embeds) {
        take(s, &trainer, trainer.model.token_w, s->embedding);
    }
    if (trainer.model.heads) {
        take(s, &trainer, trainer.model.head_w, s->head);
    }
    status = s->dev.code == CUDA_SUCCESS ? status : -1;
    (void)s->dev.drv.cuCtxSynchronize();
    pipeline_close(&trainer);
    trainer_free(&trainer);
    return status;
}

static void *run_stage(void *at)
{
    struct stage *s = at;

    s->status = device_open(&s->dev, driver, s->ranks.rank);
    if (s->status == 0) {
        s->status = ranks_open(&s->ranks, &s->dev, &nccl, s->id);
    }
    if (s->status == 0) {
        s->status = ranks_line_up(&s->ranks, STAGES, s->options.vpp > 1);
    }
    if (s->status == 0 && s->options.config.tied) {
        s->status = ranks_tie(&s->ranks, pipeline_head_stage(&s->options));
    }
    if (s->status == 0 && s->embedding != NULL) {
        s->status = make_step(s);
    } else if (s->status == 0) {
        s->status = train(&s->options, &s->dev, &text, s->mode, sleep_if_late,
                          &s->result, s->error, SOFT_ERROR);
    }
    ranks_close(&s->ranks);
    device_close(&s->dev);
    return NULL;
}

/* Each stage has `vpp` chunks.  Eagerly, one is late; graphs have enough
 * microbatches for all slots. */
static void run(struct stage *all, enum mode mode, int vpp)
{
    static const int counts[] = { STAGES, 2 * STAGES, 4 * STAGES };
    struct host_barrier barrier;
    ncclUniqueId id;

    (void)nccl.ncclGetUniqueId(&id);
    host_barrier_init(&barrier, STAGES);
    for (int i = 0; i < STAGES; i++) {
        all[i].id = &id;
        all[i].options = soft_options;
        all[i].mode = mode;
        all[i].options.config.layers = STAGES * vpp;
        all[i].options.pp = STAGES;
        all[i].options.vpp = vpp;
        all[i].options.config.tied = all[i].tied;
        if (mode == MODE_GRAPH) {
            memcpy(all[i].options.counts, counts, sizeof(counts));
            all[i].options.n_counts = 3;
            all[i].options.steps = 6;
            all[i].options.library = soft_library;
        }
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

    run(all, MODE_EAGER, 1);
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

static void ask(struct stage *all, const gh_api *gh)
{
    for (int i = 0; i < STAGES; i++) {
        const struct result *result = &all[i].result;
        const gh_pipeline_desc desc = {
            .struct_size = sizeof(desc),
            .stages = STAGES,
            .stage = (uint32_t)i,
            .chunks = (uint32_t)options_vpp(&all[i].options),
        };
        uint32_t slots[MAX_CHUNKS] = { 0 };

        is_int(all[i].status, 0, "stage %d: %s", i, all[i].error);
        is_int(gh->plan_slots(&desc, slots, NULL), GH_OK,
               "the library says the slots before anything runs");
        is_int(result->n_chunks, (int)desc.chunks, "of %u chunks", desc.chunks);
        for (int c = 0; c < result->n_chunks; c++) {
            is_int(result->slots_used[c], slots[c],
                   "stage %d, chunk %d: a run uses %u slots", i, c, slots[c]);
        }
        result_free(&all[i].result);
    }
}

/* Steps of different numbers, the largest last. */
static void test_slots(const gh_api *gh)
{
    struct stage all[STAGES] = { 0 };

    for (int vpp = 1; vpp <= 3; vpp++) {
        run(all, MODE_GRAPH, vpp);
        ask(all, gh);
    }
}

/* Numbers of Megatron-LM, and what is refused. */
static void test_call(const gh_api *gh)
{
    gh_pipeline_desc desc = { .struct_size = sizeof(desc),
                              .stages = 4,
                              .chunks = 2 };
    uint32_t slots[2] = { 0 };
    gh_error err = { "" };

    is_int(gh->plan_slots(&desc, slots, &err), GH_OK, "stage 0 of 4");
    ok(slots[0] == 8 && slots[1] == 4, "two chunks need 8 and 4 slots");
    desc.stage = 3;
    is_int(gh->plan_slots(&desc, slots, &err), GH_OK, "stage 3 of 4");
    ok(slots[0] == 5 && slots[1] == 1, "two chunks need 5 and 1");
    desc.group = 3;
    is_int(gh->plan_slots(&desc, slots, &err), GH_ERR_INVALID,
           "a group is at least as large as there are stages: %s", err.text);
    desc.chunks = 1;
    is_int(gh->plan_slots(&desc, slots, &err), GH_OK,
           "of one chunk nobody looks at the group");
    desc.chunks = 2;
    desc.group = 65537;
    is_int(gh->plan_slots(&desc, slots, &err), GH_ERR_INVALID, "%s", err.text);
    desc.group = 0;
    desc.stage = 4;
    is_int(gh->plan_slots(&desc, slots, &err), GH_ERR_INVALID, "%s", err.text);
    is_int(gh->plan_slots(&desc, NULL, &err), GH_ERR_INVALID, "%s", err.text);
    desc.struct_size = 8;
    is_int(gh->plan_slots(&desc, slots, &err), GH_ERR_ABI, "%s", err.text);
}

/* Where the head has the embedding's weights, both have the sum of their
 * gradients, on one stage and on the two ends. */
static void test_tied(void)
{
    static float embedding[STAGES + 1][VOCAB * 8], head[STAGES + 1][VOCAB * 8];
    struct stage all[STAGES] = { 0 }, one = { .options = soft_options };
    float sum = 0;

    for (int i = 0; i < STAGES; i++) {
        all[i].embedding = embedding[i];
        all[i].head = head[i];
        all[i].tied = true;
    }
    run(all, MODE_EAGER, 1);
    one.embedding = embedding[STAGES];
    one.head = head[STAGES];
    one.options.config.tied = true;
    one.options.config.layers = STAGES;
    one.options.streams = 1;
    is_int(device_open(&one.dev, driver, 0) == 0 ? make_step(&one) : -1, 0,
           "one stage makes a step");
    device_close(&one.dev);
    for (int i = 0; i < STAGES; i++) {
        is_int(all[i].status, 0, "stage %d makes it: %s", i, all[i].error);
    }
    for (int i = 0; i < VOCAB * 8; i++) {
        sum += embedding[0][i] * embedding[0][i];
    }
    ok(sum > 0 && memcmp(embedding[0], head[STAGES - 1], sizeof(head[0])) == 0,
       "the embedding and the head have the same gradients");
    ok(memcmp(embedding[0], embedding[STAGES], sizeof(head[0])) == 0 &&
           memcmp(embedding[0], head[STAGES], sizeof(head[0])) == 0,
       "which are those of one stage");
}

int main(void)
{
    struct library library;
    char path[4096], error[512];

    setenv("SOFTCUDA_DEVICES", "3", 1);
    setenv("SOFTCUDA_PROCESSES", "1", 1);
    setenv("GRAPHHOOKS_LOG", "off", 0);
    memset(letters, 'a', sizeof(letters) - 1);
    find_companion(FIND_SOFTCUDA, driver, sizeof(driver));
    find_companion(FIND_SOFTNCCL, path, sizeof(path));
    if (soft_find() != 0 || nccl_load(path, &nccl, error, sizeof(error)) != 0) {
        ok(false, "the software device and its NCCL load");
        return done_testing();
    }
    test_late();
    test_tied();
    if (library_open(&library, soft_library, error, sizeof(error)) != 0) {
        ok(false, "%s", error);
        return done_testing();
    }
    test_call(library.gh);
    test_slots(library.gh);
    library_close(&library);
    return done_testing();
}
