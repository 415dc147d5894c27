/*
 * post.c - see post.h.
 *
 * A Unix socket without a path, whose name the kernel chooses: it needs no
 * rights and no directory, and nothing is left when a process is killed.  A
 * message is there before its receiver accepts it, so that nobody waits: the
 * ranks send, meet, and receive.  Both sides are of one user, as a descriptor
 * is a right to the memory.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "comm/post.h"

#include "base/error.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum {
    KIND = SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK,
    DIGITS = 5, /* which the kernel chooses */
    ADDRESS_BYTES = offsetof(struct sockaddr_un, sun_path) + 1 + DIGITS
};

/* A message with one descriptor. */
struct letter {
    uint32_t rank;
    struct iovec text;
    struct msghdr head;
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control;
};

static void prepare(struct letter *letter)
{
    memset(letter, 0, sizeof(*letter));
    letter->text =
        (struct iovec){ &letter->rank, sizeof(letter->rank) };
    letter->head.msg_iov = &letter->text;
    letter->head.msg_iovlen = 1;
    letter->head.msg_control = letter->control.bytes;
    letter->head.msg_controllen = CMSG_LEN(sizeof(int)); /* of one alone */
}

static bool is_ours(int s)
{
    struct ucred peer;
    socklen_t bytes = sizeof(peer);

    return getsockopt(s, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 &&
           peer.uid == geteuid();
}

bool gh_post_open(int *box_p, uint32_t *name_p)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    socklen_t bytes = sizeof(address);
    const int box = socket(AF_UNIX, KIND, 0);

    if (box < 0) {
        return false;
    }
    if (bind(box, (struct sockaddr *)&address, sizeof(sa_family_t)) != 0 ||
        listen(box, SOMAXCONN) != 0 ||
        getsockname(box, (struct sockaddr *)&address, &bytes) != 0 ||
        bytes != ADDRESS_BYTES) {
        close(box);
        return false;
    }
    *box_p = box;
    *name_p = (uint32_t)strtoul(address.sun_path + 1, NULL, 16) + 1;
    return true;
}

static bool send_to(int s, uint32_t name, uint32_t rank, int file)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    struct cmsghdr *control;
    struct letter letter;

    snprintf(address.sun_path + 1, sizeof(address.sun_path) - 1, "%05x",
             name - 1);
    prepare(&letter);
    letter.rank = rank;
    control = CMSG_FIRSTHDR(&letter.head);
    control->cmsg_level = SOL_SOCKET;
    control->cmsg_type = SCM_RIGHTS;
    control->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(control), &file, sizeof(file));
    if (connect(s, (struct sockaddr *)&address, ADDRESS_BYTES) != 0) {
        return false;
    }
    if (!is_ours(s)) {
        errno = EPERM;
        return false;
    }
    return sendmsg(s, &letter.head, MSG_NOSIGNAL) ==
           (ssize_t)sizeof(letter.rank);
}

gh_status gh_post_send(uint32_t name, uint32_t rank, int file, gh_error *err)
{
    const int s = socket(AF_UNIX, KIND, 0);
    const bool sent = s >= 0 && send_to(s, name, rank, file);
    const int why = errno;

    if (s >= 0) {
        close(s);
    }
    return sent ? GH_OK
                : gh_fail(err, GH_ERR_DEVICE,
                          "a file descriptor does not reach the other process "
                          "by its Unix socket: errno %d",
                          why);
}

/* -1: the message has none. */
static int receive(int s, uint32_t *rank_p)
{
    const struct cmsghdr *control;
    struct letter letter;
    int file = -1;

    prepare(&letter);
    if (recvmsg(s, &letter.head, MSG_CMSG_CLOEXEC) < 0) {
        return -1;
    }
    control = CMSG_FIRSTHDR(&letter.head);
    if (control != NULL && control->cmsg_type == SCM_RIGHTS) {
        memcpy(&file, CMSG_DATA(control), sizeof(file));
    }
    *rank_p = letter.rank;
    return file;
}

int gh_post_take(int box, uint32_t *rank_p)
{
    int file = -1, s;

    while (file < 0 && (s = accept4(box, NULL, NULL, SOCK_CLOEXEC |
                                                         SOCK_NONBLOCK)) >= 0) {
        if (is_ours(s)) {
            file = receive(s, rank_p);
        }
        close(s);
    }
    return file;
}
