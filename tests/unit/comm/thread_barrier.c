/*
 * The ranks of one process have a barrier, and wait there for each other
 * alone.
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "comm/thread_barrier.h"
#include "comm/where.h"
#include "tap/tap.h"

#include <sys/wait.h>
#include <unistd.h>

enum {
    N = 4,
    STRIDE = GH_THREAD_ID_WORDS + 1
};

/* Ranks 1 and 3 are here; 0 and 2 are in two other processes. */
static uint64_t ids[N * STRIDE];

static void make_cards(void)
{
    for (uint32_t i = 0; i < N; i++) {
        const struct gh_thread_id id = gh_thread_id();

        ids[i * STRIDE] = id.process + (i % 2 == 1 ? 0 : 1 + i);
        ids[i * STRIDE + 1] = id.number;
    }
}

static struct gh_thread_barrier *enter(uint32_t rank)
{
    return gh_thread_barrier_join(ids, STRIDE, rank, N);
}

static void test_cards(void)
{
    const struct gh_thread_id a = gh_thread_id(), b = gh_thread_id();

    is_int((long long)(a.process - b.process), 0,
           "two ranks of a process have its number");
    ok(a.number != b.number, "and each a number of its own");
    ok(gh_where_process() != gh_where_machine(),
       "a process is not its machine");
}

static void test_another_process(void)
{
    uint64_t theirs[2] = { 0, 0 };
    int ends[2] = { -1, -1 };
    pid_t child;

    if (pipe(ends) != 0 || (child = fork()) < 0) {
        ok(false, "there is another process");
        return;
    }
    if (child == 0) {
        const uint64_t mine[2] = { gh_where_process(), gh_where_machine() };

        _exit(write(ends[1], mine, sizeof(mine)) != sizeof(mine));
    }
    waitpid(child, NULL, 0);
    ok(read(ends[0], theirs, sizeof(theirs)) == sizeof(theirs) &&
           theirs[0] != gh_where_process(),
       "another process has another number");
    ok(theirs[1] == gh_where_machine(), "but that of the same machine");
    close(ends[0]);
    close(ends[1]);
}

static void test_a_hall(void)
{
    struct gh_thread_barrier *one, *three;

    make_cards();
    ok(enter(0) == NULL, "a rank that is alone in its process has no barrier");
    one = enter(1);
    three = enter(3);
    ok(one != NULL && one == three, "two ranks of one process have the same");
    gh_thread_barrier_arrive(one, 1, 1);
    ok(!gh_thread_barrier_all_arrived(one, 1),
       "one of them waits for the other");
    gh_thread_barrier_arrive(one, 3, 1);
    ok(gh_thread_barrier_all_arrived(one, 1),
       "but not for ranks of other processes");
    gh_thread_barrier_arrive(one, 3, 2);
    ok(gh_thread_barrier_all_arrived(one, 1) &&
           !gh_thread_barrier_all_arrived(one, 2),
       "a rank may be one gather ahead");
    gh_thread_barrier_leave(one, 1);
    ok(gh_thread_barrier_all_arrived(three, 3) == false,
       "the rank that stays is counted");
    gh_thread_barrier_arrive(three, 3, 3);
    ok(gh_thread_barrier_all_arrived(three, 3),
       "and the one that has left is not");
    gh_thread_barrier_leave(three, 3);
    gh_thread_barrier_leave(NULL, 0);
    one = enter(1);
    ok(!gh_thread_barrier_all_arrived(one, 1), "what all have left is gone");
    gh_thread_barrier_leave(one, 1);
}

static void test_two_halls(void)
{
    struct gh_thread_barrier *first, *second;

    make_cards();
    first = enter(1);
    make_cards();
    second = enter(1);
    ok(first != second, "a second communicator has a barrier of its own");
    ok(second == enter(3), "which its other rank finds");
    gh_thread_barrier_leave(second, 1);
    gh_thread_barrier_leave(second, 3);
    gh_thread_barrier_leave(first, 1);
}

int main(void)
{
    test_cards();
    test_another_process();
    test_a_hall();
    test_two_halls();
    return done_testing();
}
