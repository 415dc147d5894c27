/*
 * launch.c - finds out which rank this process is, or forks all ranks.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "cli/launch.h"

#include "cli/rendezvous.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    EXIT_OF_A_RANK = 3,
    GRACE_S = 10, /* at most, for the others after one has failed */
    NAP_NS = 20000000
};

/* ---- a launcher's variables ---------------------------------------------- */

static const struct launcher {
    const char *rank, *n, *local;
} launchers[] = {
    { "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
      "OMPI_COMM_WORLD_LOCAL_RANK" },
    { "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID" },
    { "RANK", "WORLD_SIZE", "LOCAL_RANK" }, /* torchrun */
};

/* The number in a variable; -1: it is not set, or no number. */
static int number_of(const char *variable)
{
    const char *text = getenv(variable);
    char *end;
    long value;

    if (text == NULL || *text < '0' || *text > '9') {
        return -1;
    }
    value = strtol(text, &end, 10);
    return *end == '\0' && value < 1000000 ? (int)value : -1;
}

/* The launcher that has started several ranks; NULL: there is none. */
static const struct launcher *find_launcher(void)
{
    for (size_t i = 0; i < sizeof(launchers) / sizeof(launchers[0]); i++) {
        if (number_of(launchers[i].n) > 1 && getenv(launchers[i].rank)) {
            return &launchers[i];
        }
    }
    return NULL;
}

static int take_variables(struct launch *launch, const struct launcher *by,
                          const struct command *command, char *error,
                          size_t error_bytes)
{
    launch->processes = true;
    launch->n = number_of(by->n);
    launch->rank = number_of(by->rank);
    launch->local = number_of(by->local);
    if (launch->rank < 0 || launch->rank >= launch->n ||
        launch->n > RANKS_MOST) {
        snprintf(error, error_bytes,
                 "%s=%s and %s=%s: expects a rank below a number of them, at "
                 "most %d; see how this was launched",
                 by->rank, getenv(by->rank), by->n, getenv(by->n), RANKS_MOST);
        return -1;
    }
    if (command->ranks > 1 && !command->ranks_follow &&
        command->ranks != launch->n) {
        snprintf(error, error_bytes,
                 "--ranks %d, and %s=%d processes were launched; leave out "
                 "--ranks",
                 command->ranks, by->n, launch->n);
        return -1;
    }
    if (launch->local < 0) {
        launch->local = launch->rank;
    }
    failure_pipe_init(&launch->line, launch->rank, launch->n);
    return 0;
}

/* ---- processes that the program forks ------------------------------------ */

/* What the signal handler ends.  It is set before the handler is. */
static pid_t *volatile to_end;

static void end_children(int number)
{
    for (int i = 0; to_end != NULL && i < RANKS_MOST; i++) {
        if (to_end[i] > 0) {
            kill(to_end[i], number);
        }
    }
}

static void close_all(int (*pairs)[2], int n)
{
    for (int i = 1; i < n; i++) {
        close(pairs[i][0]);
        close(pairs[i][1]);
    }
}

/* Takes the rank's ends of the sockets between rank 0 and each other rank. */
static void take_sockets(struct launch *launch, int (*pairs)[2])
{
    for (int i = 1; i < launch->n; i++) {
        if (launch->rank == 0) {
            launch->line.sockets[i] = pairs[i][0];
            close(pairs[i][1]);
        } else if (launch->rank == i) {
            launch->line.sockets[0] = pairs[i][1];
            close(pairs[i][0]);
        } else {
            close(pairs[i][0]);
            close(pairs[i][1]);
        }
    }
}

static void be_child(struct launch *launch, int (*pairs)[2], int rank)
{
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    launch->rank = launch->local = rank;
    failure_pipe_init(&launch->line, rank, launch->n);
    take_sockets(launch, pairs);
}

static int fork_ranks(struct launch *launch, int n, char *error,
                      size_t error_bytes)
{
    int pairs[RANKS_MOST][2];

    launch->processes = launch->forked = true;
    launch->n = n;
    for (int i = 1; i < n; i++) {
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pairs[i]) !=
            0) {
            snprintf(error, error_bytes, "--ranks %d: socketpair: %s", n,
                     strerror(errno));
            close_all(pairs, i);
            return -1;
        }
    }
    fflush(NULL);
    for (int i = 0; i < n; i++) {
        launch->children[i] = fork();
        if (launch->children[i] == 0) {
            be_child(launch, pairs, i);
            return 0;
        }
        if (launch->children[i] < 0) {
            snprintf(error, error_bytes, "--ranks %d: fork: %s", n,
                     strerror(errno));
            to_end = launch->children;
            end_children(SIGTERM);
            close_all(pairs, n);
            return -1;
        }
    }
    close_all(pairs, n);
    launch->waits = true;
    return 0;
}

int launch_find(struct launch *launch, struct command *command, char *error,
                size_t error_bytes)
{
    const struct launcher *by = find_launcher();

    *launch = (struct launch){ .n = command->ranks };
    failure_pipe_init(&launch->line, 0, 1);
    if (by != NULL &&
        take_variables(launch, by, command, error, error_bytes) != 0) {
        return -1;
    }
    command->ranks = launch->n;
    return 0;
}

int launch_begin(struct launch *launch, const struct command *command,
                 char *error, size_t error_bytes)
{
    return command->processes && !launch->processes && launch->n > 1
               ? fork_ranks(launch, launch->n, error, error_bytes)
               : 0;
}

int launch_connect(struct launch *launch, int limit_s, char *error,
                   size_t error_bytes)
{
    return launch->forked
               ? 0
               : rendezvous(&launch->line, limit_s, error, error_bytes);
}

/* ---- waiting ------------------------------------------------------------- */

/* The exit status of a rank that has ended.  Reports a rank that was killed,
 * since it could not do so itself. */
static int status_of(int rank, int how)
{
    if (WIFSIGNALED(how)) {
        fprintf(stderr, "gh-engine: rank %d was ended by signal %d\n", rank,
                WTERMSIG(how));
        return EXIT_OF_A_RANK;
    }
    return WEXITSTATUS(how);
}

static double seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Ends the ranks that still run some time after another one has failed: they
 * wait where no message reaches them.  Returns whether there were any. */
static bool end_late(double failed, int limit_s)
{
    if (failed == 0.0 || seconds() - failed <= limit_s) {
        return false;
    }
    fprintf(stderr,
            "gh-engine: ranks that have not ended %d seconds after another one "
            "failed are ended\n",
            limit_s);
    end_children(SIGKILL);
    return true;
}

int launch_wait(struct launch *launch, int limit_s)
{
    const struct timespec nap = { .tv_nsec = NAP_NS };
    const int grace_s = limit_s < GRACE_S ? limit_s : GRACE_S;
    int left = launch->n, status = 0, how;
    bool ended_late = false;
    double failed = 0.0;

    to_end = launch->children;
    signal(SIGINT, SIG_IGN); /* the terminal sends it to the ranks too */
    signal(SIGTERM, end_children);
    while (left > 0) {
        for (int i = 0; i < launch->n; i++) {
            int ended = 0;

            if (launch->children[i] > 0 &&
                waitpid(launch->children[i], &how, WNOHANG) > 0) {
                launch->children[i] = 0;
                ended = status_of(i, how);
                left--;
            }
            if (ended != 0 && status == 0) {
                status = ended;
                failed = seconds();
            }
        }
        ended_late = ended_late || end_late(failed, grace_s);
        nanosleep(&nap, NULL);
    }
    return status;
}
