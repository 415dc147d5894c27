/*
 * ranks.c - see ranks.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include "bench/ranks.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LIMIT_NS UINT64_C(60000000000)

struct ranks_board {
    atomic_uint here, rounds;
    uint64_t words[RANKS_MOST][RANKS_WORDS];
};

void rank_meet(struct rank *rank)
{
    const struct timespec nap = { .tv_nsec = 2000 };
    const unsigned round = atomic_load(&rank->board->rounds);
    const uint64_t begin = bench_now_ns();

    if (atomic_fetch_add(&rank->board->here, 1) + 1 == rank->n) {
        atomic_store(&rank->board->here, 0);
        atomic_fetch_add(&rank->board->rounds, 1);
        return;
    }
    while (atomic_load(&rank->board->rounds) == round) {
        if (bench_now_ns() - begin > LIMIT_NS) {
            bench_die("rank %u: another rank has not come for 60 seconds; see "
                      "what it says",
                      rank->rank);
        }
        nanosleep(&nap, NULL);
    }
}

gh_status rank_gather(void *user, uint32_t bank, const uint64_t *mine,
                      uint64_t *all, uint32_t n)
{
    struct rank *rank = user;

    (void)bank;
    if (n > RANKS_WORDS) {
        return GH_ERR_INVALID;
    }
    memcpy(rank->board->words[rank->rank], mine, n * sizeof(*mine));
    rank_meet(rank);
    for (uint32_t i = 0; i < rank->n; i++) {
        memcpy(&all[i * n], rank->board->words[i], n * sizeof(*all));
    }
    rank_meet(rank);
    return GH_OK;
}

void rank_most(struct rank *rank, double *values, uint32_t n)
{
    double other;

    if (n > RANKS_WORDS) {
        bench_die("%u values are too many", n);
    }
    memcpy(rank->board->words[rank->rank], values, n * sizeof(*values));
    rank_meet(rank);
    for (uint32_t i = 0; i < rank->n; i++) {
        for (uint32_t k = 0; k < n; k++) {
            memcpy(&other, &rank->board->words[i][k], sizeof(other));
            values[k] = other > values[k] ? other : values[k];
        }
    }
    rank_meet(rank);
}

/* ---- their lives --------------------------------------------------------- */

struct life {
    struct rank rank;
    void (*body)(struct rank *rank, void *user);
    void *user;
    pthread_t thread;
    pid_t process;
};

static void *live(void *arg)
{
    struct life *life = arg;

    life->body(&life->rank, life->user);
    return NULL;
}

static void begin(struct life *life, bool thread)
{
    if (thread) {
        if (pthread_create(&life->thread, NULL, live, life) != 0) {
            bench_die("no thread");
        }
        return;
    }
    fflush(NULL);
    life->process = fork();
    if (life->process < 0) {
        bench_die("no process");
    }
    if (life->process == 0) {
        (void)live(life);
        _exit(0);
    }
}

static void end(struct life *life, bool thread)
{
    int status;

    if (thread) {
        pthread_join(life->thread, NULL);
    } else if (waitpid(life->process, &status, 0) != life->process ||
               status != 0) {
        bench_die("rank %u failed", life->rank.rank);
    }
}

uint32_t ranks_asked(const struct bench_options *options, uint32_t usual)
{
    const uint32_t n = options->ranks != 0 ? options->ranks : usual;
    char text[16];

    if (n > RANKS_MOST) {
        bench_die("--ranks is %u; give %d at most", n, RANKS_MOST);
    }
    if (options->soft && n > 1) {
        snprintf(text, sizeof(text), "%u", n);
        setenv("SOFTCUDA_DEVICES", text, 1);
        setenv("SOFTCUDA_PROCESSES", "1", 1);
    }
    return n;
}

void ranks_run(uint32_t n, bool threads,
               void (*body)(struct rank *rank, void *user), void *user)
{
    struct life lives[RANKS_MOST];
    struct ranks_board *board =
        mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE,
             MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (board == MAP_FAILED) {
        bench_die("no memory");
    }
    for (uint32_t i = 0; i < n; i++) {
        lives[i] = (struct life){ .rank = { board, i, n },
                                  .body = body,
                                  .user = user };
    }
    for (uint32_t i = 1; i < n; i++) {
        begin(&lives[i], threads);
    }
    (void)live(&lives[0]);
    for (uint32_t i = 1; i < n; i++) {
        end(&lives[i], threads);
    }
    munmap(board, sizeof(*board));
}

int ranks_bench(int argc, char **argv, const char *what, int most_rounds,
                void (*body)(struct rank *rank, void *user))
{
    struct bench_options options = bench_parse(argc, argv, what);
    uint32_t n;

    if (options.rounds > most_rounds) {
        bench_die("--rounds is %d; give %d at most", options.rounds,
                  most_rounds);
    }
    n = ranks_asked(&options, 2);
    if (n < 2) {
        bench_die("--ranks is 1; operations between ranks have two or more");
    }
    ranks_run(n, options.soft, body, &options);
    return 0;
}
