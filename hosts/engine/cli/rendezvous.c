/*
 * rendezvous.c - see rendezvous.h.
 *
 * A caller sends eight bytes that identify the program, and then its rank in
 * one byte.  So nothing else that connects to the port is taken for a rank.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "cli/rendezvous.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

static const char hello[8] = "gh-rank";

enum {
    HELLO = sizeof(hello) + 1,
    TRIES_A_SECOND = 20
};

struct place {
    struct sockaddr_storage address;
    socklen_t bytes;
    char name[160];
};

/* A place on this machine, named after the launcher's process: all ranks on one
 * machine have the launcher as their parent. */
static void place_local(struct place *place)
{
    struct sockaddr_un un = { .sun_family = AF_UNIX };

    snprintf(un.sun_path + 1, sizeof(un.sun_path) - 1, "gh-engine.%u.%ld",
             (unsigned)getuid(), (long)getppid());
    place->bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
                               strlen(un.sun_path + 1));
    memcpy(&place->address, &un, sizeof(un));
    snprintf(place->name, sizeof(place->name), "local socket %s",
             un.sun_path + 1);
}

static int place_of(struct place *place, char *error, size_t error_bytes)
{
    const struct addrinfo hints = { .ai_family = AF_UNSPEC,
                                    .ai_socktype = SOCK_STREAM };
    const char *host = getenv("MASTER_ADDR"), *port = getenv("MASTER_PORT");
    const char *agent = getenv("TORCHELASTIC_USE_AGENT_STORE");
    struct addrinfo *found = NULL;
    char number[16];
    int code;

    if (host == NULL || port == NULL) {
        place_local(place);
        return 0;
    }
    snprintf(number, sizeof(number), "%d",
             atoi(port) + (agent != NULL && strcmp(agent, "True") == 0));
    snprintf(place->name, sizeof(place->name), "MASTER_ADDR=%.100s, port %s",
             host, number);
    code = getaddrinfo(host, number, &hints, &found);
    if (code != 0) {
        snprintf(error, error_bytes, "%s: %s", place->name,
                 gai_strerror(code));
        return -1;
    }
    memcpy(&place->address, found->ai_addr, found->ai_addrlen);
    place->bytes = found->ai_addrlen;
    freeaddrinfo(found);
    return 0;
}

static int open_socket(const struct place *place)
{
    return socket(place->address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
}

static int fail(const struct place *place, char *error, size_t error_bytes)
{
    snprintf(error, error_bytes, "%s: %s", place->name, strerror(errno));
    return -1;
}

/* ---- rank 0 -------------------------------------------------------------- */

/* Takes one caller in.  Hangs up on one that does not send what a rank
 * sends. */
static int take_caller(struct failure_pipe *line, int at)
{
    const int caller = accept(at, NULL, NULL);
    struct pollfd ready = { .fd = caller, .events = POLLIN };
    char said[HELLO];
    int rank;

    if (caller >= 0 && poll(&ready, 1, 1000) > 0 &&
        recv(caller, said, HELLO, MSG_WAITALL) == HELLO &&
        memcmp(said, hello, sizeof(hello)) == 0) {
        rank = said[HELLO - 1];
        if (rank > 0 && rank < line->n && line->sockets[rank] < 0) {
            line->sockets[rank] = caller;
            return 1;
        }
    }
    if (caller >= 0) {
        close(caller);
    }
    return 0;
}

static int take_callers(struct failure_pipe *line, int at,
                        const struct place *place, int limit_s, char *error,
                        size_t error_bytes)
{
    const time_t end = time(NULL) + limit_s;
    struct pollfd ready = { .fd = at, .events = POLLIN };
    int here = 1;

    while (here < line->n) {
        if (time(NULL) > end) {
            snprintf(error, error_bytes,
                     "%s: %d of %d ranks have come in %d seconds; see what "
                     "became of the others",
                     place->name, here, line->n, limit_s);
            return -1;
        }
        if (poll(&ready, 1, 200) > 0) {
            here += take_caller(line, at);
        }
    }
    return 0;
}

static int listen_for(struct failure_pipe *line, const struct place *place,
                      int limit_s, char *error, size_t error_bytes)
{
    const int at = open_socket(place), yes = 1;
    int status;

    if (at < 0) {
        return fail(place, error, error_bytes);
    }
    (void)setsockopt(at, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    if (bind(at, (const struct sockaddr *)&place->address, place->bytes) !=
            0 ||
        listen(at, line->n) != 0) {
        status = fail(place, error, error_bytes);
    } else {
        status = take_callers(line, at, place, limit_s, error, error_bytes);
    }
    close(at);
    return status;
}

/* ---- the others ---------------------------------------------------------- */

static int call(struct failure_pipe *line, const struct place *place,
                int limit_s, char *error, size_t error_bytes)
{
    const struct timespec nap = { .tv_nsec = 1000000000 / TRIES_A_SECOND };
    char mine[HELLO];

    memcpy(mine, hello, sizeof(hello));
    mine[HELLO - 1] = (char)line->rank;
    for (int i = 0; i < limit_s * TRIES_A_SECOND; i++) {
        const int to = open_socket(place);

        if (to >= 0 &&
            connect(to, (const struct sockaddr *)&place->address,
                    place->bytes) == 0 &&
            send(to, mine, HELLO, MSG_NOSIGNAL) == HELLO) {
            line->sockets[0] = to;
            return 0;
        }
        (void)fail(place, error, error_bytes);
        if (to >= 0) {
            close(to);
        }
        nanosleep(&nap, NULL);
    }
    return -1;
}

int rendezvous(struct failure_pipe *line, int limit_s, char *error,
               size_t error_bytes)
{
    struct place place = { .bytes = 0 };

    if (place_of(&place, error, error_bytes) != 0) {
        return -1;
    }
    return line->rank == 0
               ? listen_for(line, &place, limit_s, error, error_bytes)
               : call(line, &place, limit_s, error, error_bytes);
}
