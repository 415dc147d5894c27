/*
 * processes.c - ranks that are processes find each other, and notice an end.
 *
 * There is no device here: what is tested is what they say over sockets.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "cli/launch.h"
#include "tap/tap.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    RANKS = 3,
    LIMIT_S = 5
};

/* How a rank comes to its end. */
typedef int ending_fn(struct launch *launch, const char *shared);

static char error[512];

static void no_variables(void)
{
    static const char *const names[] = {
        "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK", "PMI_RANK", "PMI_SIZE",
        "MPI_LOCALRANKID", "RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR",
        "MASTER_PORT", "TORCHELASTIC_USE_AGENT_STORE"
    };

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        unsetenv(names[i]);
    }
}

/* Until another rank has failed, for at most five seconds. */
static bool hears(struct launch *launch, char *text, size_t text_bytes)
{
    const struct timespec nap = { .tv_nsec = 1000000 };

    for (int i = 0; i < 5000; i++) {
        if (failure_pipe_lost(&launch->line, text, text_bytes)) {
            return true;
        }
        nanosleep(&nap, NULL);
    }
    return false;
}

/* ---- endings: 0 is what the test wants ------------------------------------ */

static int end_well(struct launch *launch, const char *shared)
{
    char text[256];
    const struct timespec nap = { .tv_nsec = 1000000 };

    failure_pipe_tell(&launch->line, NULL);
    for (int i = 0; i < 50; i++) {
        if (failure_pipe_lost(&launch->line, text, sizeof(text))) {
            return 4;
        }
        nanosleep(&nap, NULL);
    }
    return strcmp(shared, "the id of rank 0") == 0 ? 0 : 5;
}

/* Rank 2 fails; rank 1 hears of it through rank 0. */
static int one_fails(struct launch *launch, const char *shared)
{
    char text[256];

    (void)shared;
    if (launch->rank == 2) {
        failure_pipe_tell(&launch->line, "a step is missing");
        failure_pipe_tell(&launch->line, NULL); /* too late */
        return 0;
    }
    return hears(launch, text, sizeof(text)) &&
                   strcmp(text, "another rank has failed: rank 2: a step is "
                                "missing") == 0
               ? 0
               : 6;
}

static int one_is_killed(struct launch *launch, const char *shared)
{
    char text[256];

    (void)shared;
    if (launch->rank == 1) {
        raise(SIGKILL);
    }
    return hears(launch, text, sizeof(text)) &&
                   strstr(text, "rank 1: it ended without a word") != NULL
               ? 0
               : 7;
}

static int one_hangs(struct launch *launch, const char *shared)
{
    (void)shared;
    if (launch->rank == 1) {
        return 9;
    }
    pause();
    return 0;
}

/* ---- ranks ----------------------------------------------------------------- */

static int be_rank(struct launch *launch, ending_fn *ending)
{
    char shared[32] = "";
    int status = 3;

    if (launch->rank == 0) {
        snprintf(shared, sizeof(shared), "the id of rank 0");
    }
    if (launch_connect(launch, LIMIT_S, error, sizeof(error)) == 0 &&
        failure_pipe_share(&launch->line, shared, sizeof(shared), LIMIT_S,
                           error, sizeof(error)) == 0) {
        status = ending(launch, shared);
    }
    failure_pipe_close(&launch->line);
    return status;
}

/* By the program's own fork; returns the status of all. */
static int run_forked(ending_fn *ending, int limit_s)
{
    struct command command = { .ranks = RANKS, .processes = true };
    struct launch launch;

    no_variables();
    if (launch_find(&launch, &command, error, sizeof(error)) != 0 ||
        launch_begin(&launch, &command, error, sizeof(error)) != 0) {
        return -1;
    }
    if (!launch.waits) {
        _exit(be_rank(&launch, ending));
    }
    return launch_wait(&launch, limit_s);
}

static void set_number(const char *name, int number)
{
    char text[16];

    snprintf(text, sizeof(text), "%d", number);
    setenv(name, text, 1);
}

/* As a launcher would: the number of ranks that ended as the test wants. */
static int run_launched(const char *rank, const char *n, const char *local,
                        ending_fn *ending)
{
    struct command command = { .ranks = 1 };
    struct launch launch;
    int good = 0, how;

    fflush(NULL);
    for (int i = 0; i < RANKS; i++) {
        if (fork() == 0) {
            set_number(rank, i);
            set_number(n, RANKS);
            set_number(local, i);
            if (launch_find(&launch, &command, error, sizeof(error)) != 0 ||
                !launch.processes || launch.n != RANKS || launch.local != i) {
                _exit(8);
            }
            _exit(be_rank(&launch, ending));
        }
    }
    while (wait(&how) > 0) {
        good += WIFEXITED(how) && WEXITSTATUS(how) == 0;
    }
    return good;
}

static void try_launchers(void)
{
    no_variables();
    is_int(run_launched("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                        "OMPI_COMM_WORLD_LOCAL_RANK", end_well),
           RANKS, "ranks of mpirun find each other");
    is_int(run_launched("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", end_well),
           RANKS, "ranks of another mpirun, too");
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    set_number("MASTER_PORT", 20000 + (int)getpid() % 20000);
    is_int(run_launched("RANK", "WORLD_SIZE", "LOCAL_RANK", end_well), RANKS,
           "ranks of torchrun find each other at MASTER_ADDR");
    setenv("TORCHELASTIC_USE_AGENT_STORE", "True", 1);
    is_int(run_launched("RANK", "WORLD_SIZE", "LOCAL_RANK", one_fails), RANKS,
           "and beside the port that torchrun uses; a failure reaches all");
    is_int(run_launched("RANK", "WORLD_SIZE", "LOCAL_RANK", one_is_killed),
           RANKS - 1, "a rank that is killed is told of by name");
    no_variables();
}

static void refuse(int ranks, int rank, int n, const char *sentence)
{
    struct command command = { .ranks = ranks };
    struct launch launch;

    set_number("RANK", rank);
    set_number("WORLD_SIZE", n);
    is_int(launch_find(&launch, &command, error, sizeof(error)), -1,
           "rank %d of %d with --ranks %d is refused", rank, n, ranks);
    ok(strstr(error, sentence) != NULL, "with a sentence: %s", error);
    no_variables();
}

int main(void)
{
    signal(SIGALRM, SIG_DFL);
    alarm(60);
    refuse(1, 3, 3, "a rank below a number of them");
    refuse(4, 0, 2, "leave out --ranks");
    refuse(1, 0, 1000, "at most 64");

    is_int(run_forked(end_well, LIMIT_S), 0,
           "forked ranks that end well are taken for no failure");
    is_int(run_forked(one_fails, LIMIT_S), 0, "all hear of one that fails");
    is_int(run_forked(one_is_killed, LIMIT_S), 3,
           "all hear of one that is killed, and so does who waits");
    is_int(run_forked(one_hangs, 1), 9,
           "those who do not end after a failure are ended");
    try_launchers();
    return done_testing();
}
