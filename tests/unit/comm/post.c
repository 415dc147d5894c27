/*
 * A descriptor arrives at the box that it is sent to, with its sender, and
 * nobody waits.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "comm/post.h"

#include "tap/tap.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_same(int a, int b)
{
    struct stat one, other;

    return fstat(a, &one) == 0 && fstat(b, &other) == 0 &&
           one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

/* The number that the next descriptor gets. */
static int next(void)
{
    const int file = dup(0);

    close(file);
    return file;
}

static void test_it_arrives(void)
{
    const int before = next();
    uint32_t first = 0, second = 0, from = 99;
    int a = -1, b = -1, pipe_of[2], got;
    gh_error err;

    ok(gh_post_open(&a, &first) && first != 0, "there is a box");
    ok(gh_post_open(&b, &second) && second != 0 && second != first,
       "a second one has another name");
    ok(pipe(pipe_of) == 0, "there is something to send");
    is_int(gh_post_take(a, &from), -1, "nothing has come yet");
    is_status(gh_post_send(first, 3, pipe_of[0], &err), GH_OK, &err,
              "a descriptor is sent");
    is_status(gh_post_send(first, 5, pipe_of[1], &err), GH_OK, &err,
              "another one too");
    is_int(gh_post_take(b, &from), -1, "nothing comes to another box");
    got = gh_post_take(a, &from);
    ok(got >= 0 && is_same(got, pipe_of[0]), "it arrives");
    is_int(from, 3, "with its sender");
    close(got);
    got = gh_post_take(a, &from);
    ok(got >= 0 && is_same(got, pipe_of[1]) && from == 5,
       "the other one behind it");
    close(got);
    is_int(gh_post_take(a, &from), -1, "no more");
    gh_post_send(first, 1, pipe_of[0], &err); /* nobody takes it */
    close(a);
    is_status(gh_post_send(first, 3, pipe_of[0], &err), GH_ERR_DEVICE, &err,
              "nothing is sent to a box that is gone");
    ok(strstr(err.text, "Unix socket") != NULL, "and the text says so");
    close(b);
    close(pipe_of[0]);
    close(pipe_of[1]);
    is_int(next(), before, "no descriptor is left");
}

int main(void)
{
    test_it_arrives();
    return done_testing();
}
