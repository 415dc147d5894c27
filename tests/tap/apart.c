/*
 * apart.c - parts of a test in processes of their own, several at once.
 *
 * A part that waits for a time to be over leaves the processor to others.  Each
 * writes its points into a file, and they are told in the order of the parts.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tap/tap.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { AT_ONCE = 6 };

struct process {
    pid_t pid;
    FILE *told;
};

/* Ends as a program does, so that a sanitizer can say what it has found. */
static _Noreturn void be_part(FILE *told, void (*part)(int i), int i)
{
    if (dup2(fileno(told), STDOUT_FILENO) < 0) {
        _exit(1);
    }
    tap_begin();
    part(i);
    done_testing();
    exit(EXIT_SUCCESS);
}

static void begin(struct process *process, void (*part)(int i), int i)
{
    fflush(stdout);
    process->told = tmpfile();
    process->pid = process->told != NULL ? fork() : -1;
    if (process->pid == 0) {
        be_part(process->told, part, i);
    }
}

static void end(struct process *process, int i)
{
    int status = -1;
    bool whole = false;

    while (process->pid > 0 && waitpid(process->pid, &status, 0) < 0 &&
           errno == EINTR) {
    }
    if (process->told != NULL) {
        rewind(process->told);
        whole = tap_tell(process->told);
        fclose(process->told);
    }
    if (!whole || status != 0) {
        ok(false, "the process of part %d ends well (%d)", i, status);
    }
}

void tap_apart(int n, void (*part)(int i))
{
    struct process processes[AT_ONCE];

    for (int i = 0; i < n + AT_ONCE; i++) {
        if (i >= AT_ONCE && i - AT_ONCE < n) {
            end(&processes[i % AT_ONCE], i - AT_ONCE);
        }
        if (i < n) {
            begin(&processes[i % AT_ONCE], part, i);
        }
    }
}
