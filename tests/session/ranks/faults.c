/*
 * Whatever driver call fails on one rank, every rank's steps are right, or end
 * in time with a sentence.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tests/session/ranks/sharer.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#define STEPS 4
#define LIMIT_S 8
#define MOST 10 /* faults of an entry that are tried, evenly over its calls */

static const char *const hasty[] = { "GRAPHHOOKS_TIMEOUT=1",
                                     "GRAPHHOOKS_LOG=off", NULL };
static const struct sharer_options options = { .environment = hasty };

/* What became of each rank. */
static struct outcome {
    bool opened, wrong, silent, late;
    uint32_t steps; /* that were right */
} outcomes[MAX_RANKS];

static void run_steps(struct sharer *s, struct outcome *o)
{
    for (uint32_t i = 0; i < STEPS; i++) {
        gh_status status = sharer_step(s, 1);

        if (status == GH_OK) {
            status = gh_ranks_wait(s->session, s->r->stream, &s->err);
        }
        if (status != GH_OK) {
            o->silent = s->err.text[0] == '\0';
            return;
        }
        if (!sharer_was_exact(s)) {
            o->wrong = true;
            return;
        }
        o->steps++;
    }
}

/* A rank whose session fails is one that has died: its host aborts, as the
 * library has done where the ranks have parted. */
static void train(struct rank *r)
{
    struct outcome *o = &outcomes[r->rank];
    struct timespec start, end;
    struct sharer s;

    memset(o, 0, sizeof(*o));
    clock_gettime(CLOCK_MONOTONIC, &start);
    if (!sharer_open_alone(&s, r, &options)) {
        o->silent = s.err.text[0] == '\0';
    } else if (sharer_join(&s) != GH_OK) {
        o->silent = s.err.text[0] == '\0';
        sharer_close(&s);
    } else {
        o->opened = true;
        run_steps(&s, o);
        sharer_close(&s);
    }
    if (o->steps != STEPS) {
        r->comm = NULL;
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    o->late = end.tv_sec - start.tv_sec > LIMIT_S;
}

/* Those of the library alone: the host's own may make numbers wrong. */
static const char *const entries[] = {
    "cuStreamBeginCapture", "cuStreamEndCapture",
    "cuGraphInstantiateWithFlags", "cuGraphUpload", "cuGraphLaunch",
    "cuGraphGetNodes", "cuEventCreate", "cuEventRecord", "cuEventQuery",
    "cuStreamWaitEvent", "cuStreamQuery", "cuMemAllocHost",
    "cuLaunchKernel", "cuStreamIsCapturing",
};

static void sweep(int i)
{
    const char *entry = entries[i];
    uint64_t calls, stride, tried = 0, wrong = 0, silent = 0, late = 0;
    uint32_t whole = 0;

    ranks_fail(entry, 0);
    ranks_run_lost(2, entry, train);
    calls = ranks_calls(entry);
    ok(outcomes[0].steps == STEPS && outcomes[1].steps == STEPS,
       "%s: without a fault all steps are right", entry);
    stride = calls / MOST + 1;
    for (uint64_t n = 1; n <= calls; n += stride) {
        ranks_fail(entry, n);
        ranks_run_lost(2, entry, train);
        tried++;
        for (int k = 0; k < 2; k++) {
            const struct outcome *o = &outcomes[k];

            if (o->wrong || o->silent || o->late) {
                diag("%s: call %llu, rank %d: %u steps%s%s%s", entry,
                     (unsigned long long)n, k, o->steps,
                     o->wrong ? ", wrong" : "",
                     o->silent ? ", without a word" : "",
                     o->late ? ", late" : "");
            }
            wrong += o->wrong;
            silent += o->silent;
            late += o->late;
            whole += o->steps == STEPS;
        }
    }
    ranks_fail(entry, 0);
    ok(tried != 0 && wrong == 0 && silent == 0 && late == 0,
       "%s: %llu of %llu calls fail: %u ranks go on, %llu wrong, %llu without "
       "a word, %llu late",
       entry, (unsigned long long)tried, (unsigned long long)calls, whole,
       (unsigned long long)wrong, (unsigned long long)silent,
       (unsigned long long)late);
}

int main(void)
{
    int status;

    if (!ranks_open(&status)) {
        return status;
    }
    if (!ranks_are_soft()) {
        return skip_all("only the software device fails on demand");
    }
    tap_apart((int)(sizeof(entries) / sizeof(entries[0])), sweep);
    return done_testing();
}
