/*
 * failure_pipe.c - see failure_pipe.h.
 *
 * A message is one line: "ok", or "rank N: " and a sentence.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "step/failure_pipe.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

void failure_pipe_init(struct failure_pipe *line, int rank, int n)
{
    *line = (struct failure_pipe){ .rank = rank, .n = n };
    for (int i = 0; i < RANKS_MOST; i++) {
        line->sockets[i] = -1;
    }
}

static void end(struct failure_pipe *line, int rank)
{
    close(line->sockets[rank]);
    line->sockets[rank] = -1;
}

void failure_pipe_close(struct failure_pipe *line)
{
    for (int i = 0; i < line->n; i++) {
        if (line->sockets[i] >= 0) {
            end(line, i);
        }
    }
}

/* Receives all bytes.  Returns -1 if the other side is gone or takes too
 * long. */
static int receive(int from, char *data, size_t bytes, int limit_s)
{
    struct pollfd ready = { .fd = from, .events = POLLIN };

    while (bytes > 0) {
        ssize_t got = -1;

        if (poll(&ready, 1, limit_s * 1000) > 0) {
            got = recv(from, data, bytes, 0);
        }
        if (got <= 0 && !(got < 0 && errno == EINTR)) {
            return -1;
        }
        data += got > 0 ? got : 0;
        bytes -= got > 0 ? (size_t)got : 0;
    }
    return 0;
}

int failure_pipe_share(struct failure_pipe *line, void *data, size_t bytes,
                       int limit_s, char *error, size_t error_bytes)
{
    if (line->rank == 0) {
        for (int i = 1; i < line->n; i++) {
            if (send(line->sockets[i], data, bytes, MSG_NOSIGNAL) !=
                (ssize_t)bytes) {
                snprintf(error, error_bytes,
                         "rank %d has ended before it began", i);
                return -1;
            }
        }
        return 0;
    }
    if (receive(line->sockets[0], data, bytes, limit_s) != 0) {
        snprintf(error, error_bytes,
                 "rank 0 has ended before it began, or has not come for %d "
                 "seconds",
                 limit_s);
        return -1;
    }
    return 0;
}

static void say(struct failure_pipe *line, const char *text)
{
    for (int i = 0; i < line->n; i++) {
        if (line->sockets[i] >= 0) {
            (void)!send(line->sockets[i], text, strlen(text), MSG_NOSIGNAL);
        }
    }
}

void failure_pipe_tell(void *at, const char *why)
{
    struct failure_pipe *line = at;
    char text[512];

    if (why == NULL) {
        snprintf(text, sizeof(text), "ok\n");
    } else {
        snprintf(text, sizeof(text), "rank %d: %.400s\n", line->rank, why);
    }
    say(line, text);
}

/* Reads what rank i has sent, if anything.  True: it has failed. */
static bool hear(struct failure_pipe *line, int i, char *text,
                 size_t text_bytes)
{
    struct pollfd ready = { .fd = line->sockets[i], .events = POLLIN };
    ssize_t got;

    if (poll(&ready, 1, 0) <= 0) {
        return false;
    }
    got = recv(line->sockets[i], text, text_bytes - 1, MSG_DONTWAIT);
    text[got > 0 ? got : 0] = '\0';
    text[strcspn(text, "\n")] = '\0';
    end(line, i);
    if (strcmp(text, "ok") == 0) {
        return false;
    }
    if (text[0] == '\0') {
        snprintf(text, text_bytes, "rank %d: it ended without a word", i);
    }
    return true;
}

bool failure_pipe_lost(void *at, char *text, size_t text_bytes)
{
    struct failure_pipe *line = at;
    char said[512];

    for (int i = 0; i < line->n; i++) {
        if (line->sockets[i] >= 0 && hear(line, i, said, sizeof(said) - 1)) {
            snprintf(text, text_bytes, "another rank has failed: %s", said);
            if (line->rank == 0) {
                strcat(said, "\n");
                say(line, said);
            }
            return true;
        }
    }
    return false;
}
