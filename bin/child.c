/*
 * child.c - see child.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "child.h"

#include "base/error.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

void *child_share(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    return memory != MAP_FAILED ? memory : NULL;
}

static _Noreturn void run(int (*work)(void *arg), void *arg)
{
    int status;

    /* Work that hangs is not to outlive who waits for it. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    status = work(arg);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        perror("graphhooks: stdout");
        status = 1;
    }
    exit(status);
}

gh_status child_run(int (*work)(void *arg), void *arg, struct child_end *end,
                    gh_error *err)
{
    int status = 0;
    pid_t child;

    fflush(stdout); /* once, and not by both */
    child = fork();
    if (child == 0) {
        run(work, arg);
    }
    while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    if (child < 0) {
        return gh_fail(err, GH_ERR_NO_MEMORY,
                       "no process for the families: %s; allow one more",
                       strerror(errno));
    }
    end->signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    end->status = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
    return GH_OK;
}

void child_tell(const struct child_end *end, char *text, size_t bytes)
{
    if (end->signal != 0) {
        snprintf(text, bytes, "it crashed: signal %d, %s", end->signal,
                 strsignal(end->signal));
    } else {
        snprintf(text, bytes, "it ended the process with status %d",
                 end->status);
    }
}

int child_follow(const struct child_end *end)
{
    if (end->signal != 0) {
        signal(end->signal, SIG_DFL);
        raise(end->signal);
    }
    return end->signal != 0 ? 128 + end->signal : end->status;
}
