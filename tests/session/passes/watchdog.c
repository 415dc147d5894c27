/*
 * With GRAPHHOOKS_WATCHDOG a thread names the replay that does not end.
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/heard.h"
#include "support/toy.h"
#include "tap/tap.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static struct toy toy;
static char told[16384]; /* on standard error */

/* Waits until standard error has these words, at most some seconds. */
static bool hears(FILE *file, const char *words, double seconds)
{
    const double start = tap_now_s();

    do {
        size_t n;

        rewind(file);
        n = fread(told, 1, sizeof(told) - 1, file);
        told[n] = '\0';
        if (strstr(told, words) != NULL) {
            return true;
        }
        usleep(20000);
    } while (tap_now_s() - start < seconds);
    return false;
}

/* Another rank that does what this one does; of settings its own number. */
static gh_status echo(void *user, uint32_t bank, const uint64_t *mine,
                      uint64_t *all, uint32_t n)
{
    (void)user;
    (void)bank;
    memcpy(all, mine, n * sizeof(*all));
    memcpy(all + n, mine, n * sizeof(*all));
    if (n == 8) {
        all[n] = 1;
    }
    return GH_OK;
}

/* Without communicators there is none to abort. */
static void no_abort(void *user, uint32_t bank)
{
    (void)user;
    (void)bank;
}

static const uint32_t counts[] = { 2, 2, 2 };

static bool trained(const char *const *environment, const gh_ranks *ranks)
{
    const struct toy_options options = { .layers = 2,
                                         .elems = 64,
                                         .in_flight = 2,
                                         .environment = environment,
                                         .host = &hearing };

    if (!toy_start(&toy, &options, NULL)) {
        return false;
    }
    if (ranks != NULL) {
        is_status(gh_ranks_set(toy.session, ranks, &toy.err), GH_OK, &toy.err,
                  "there is another rank");
    }
    toy_train(&toy, counts, 3);
    return true;
}

/* A replay behind a wait for a word, which comes once `file` has the words, or
 * the time is over. */
static bool hangs(FILE *file, const char *words, double seconds)
{
    CUdeviceptr word = 0;
    CUstream other = NULL;
    bool heard;

    toy.drv.cuMemAlloc(&word, 4);
    toy.drv.cuStreamCreate(&other, CU_STREAM_NON_BLOCKING);
    toy.drv.cuMemsetD32Async(word, 0, 1, other);
    toy.drv.cuStreamSynchronize(other);
    toy.drv.cuStreamWaitValue32(toy.streams[0], word, 1, 1);
    is_status(toy_forward(&toy, 0), GH_OK, &toy.err, "a forward replays");
    is_status(toy_forward(&toy, 1), GH_OK, &toy.err, "and another");
    ok(!hears(file, "has not ended", 0.5), "for a while nothing is said");
    heard = hears(file, words, seconds);
    (void)hears(file, "nothing that is said", 0.5); /* some looks more */
    toy.drv.cuMemsetD32Async(word, 1, 1, other);
    toy.drv.cuStreamSynchronize(other);
    is_status(toy_backward(&toy, 0), GH_OK, &toy.err, "training goes on");
    is_status(toy_backward(&toy, 1), GH_OK, &toy.err, "to the end");
    toy_end_step(&toy);
    toy.drv.cuStreamSynchronize(toy.streams[0]);
    toy.drv.cuStreamDestroy(other);
    toy.drv.cuMemFree(word);
    return heard;
}

static void test_a_replay_that_hangs_is_named(FILE *file)
{
    static const char *const on[] = { "GRAPHHOOKS_WATCHDOG=1",
                                      "GRAPHHOOKS_TIMEOUT=2", NULL };
    static const char *const off[] = { "GRAPHHOOKS_TIMEOUT=2", NULL };
    const char *name = "step 3, layer 0 attn..mlp forward, microbatch 0: this "
                       "replay has not ended in 2 s (GRAPHHOOKS_TIMEOUT), and "
                       "3 more wait behind it";
    const gh_ranks ranks = { .struct_size = sizeof(ranks),
                             .size = 2,
                             .gather = echo,
                             .abort = no_abort };
    const char *at;
    double start;

    if (!trained(on, NULL)) {
        return;
    }
    ok(!hears(file, "has not ended", 2.5), "replays that end are not named");
    ok(hangs(file, name, 20), "the first that does not is named: %s", told);
    at = strstr(told, "has not ended");
    ok(at != NULL && strstr(at + 1, "has not ended") == NULL,
       "once, and no other");
    ok(toy_is_exact(&toy), "the numbers are those of eager");
    start = tap_now_s();
    toy_close(&toy);
    ok(tap_now_s() - start < 20, "the thread ends with the session");

    rewind(file);
    ok(ftruncate(fileno(file), 0) == 0, "what was told is forgotten");
    if (trained(off, NULL)) {
        ok(!hangs(file, "has not ended", 4), "without the option none is");
        toy_close(&toy);
    }
    rewind(file);
    ok(ftruncate(fileno(file), 0) == 0, "and again");
    if (trained(on, &ranks)) {
        ok(hangs(file, "warning: rank 0 of 2, step 3, layer 0", 20),
           "where a bank has ranks, this one is named: %s", told);
        toy_close(&toy);
    }
}

int main(void)
{
    FILE *file = tmpfile();
    int status;

    if (!toy_probe_soft(&status)) {
        return status;
    }
    if (file == NULL || dup2(fileno(file), STDERR_FILENO) < 0) {
        ok(false, "standard error goes to a file");
        return done_testing();
    }
    test_a_replay_that_hangs_is_named(file);
    return done_testing();
}
