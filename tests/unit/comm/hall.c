/*
 * The ranks of one process have a hall, and wait there for each other alone.
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "comm/hall.h"
#include "comm/where.h"
#include "tap/tap.h"

enum {
    N = 4,
    STRIDE = GH_HALL_WORDS + 1
};

/* Ranks 1 and 3 are here; 0 and 2 are in two other processes. */
static uint64_t cards[N * STRIDE];

static void make_cards(void)
{
    for (uint32_t i = 0; i < N; i++) {
        const struct gh_hall_card card = gh_hall_card();

        cards[i * STRIDE] = card.process + (i % 2 == 1 ? 0 : 1 + i);
        cards[i * STRIDE + 1] = card.number;
    }
}

static struct gh_hall *enter(uint32_t rank)
{
    return gh_hall_enter(cards, STRIDE, rank, N);
}

static void test_cards(void)
{
    const struct gh_hall_card a = gh_hall_card(), b = gh_hall_card();

    is_int((long long)(a.process - b.process), 0,
           "two ranks of a process have its number");
    ok(a.number != b.number, "and each a number of its own");
    ok(gh_where_process() != gh_where_machine(),
       "a process is not its machine");
}

static void test_a_hall(void)
{
    struct gh_hall *one, *three;

    make_cards();
    ok(enter(0) == NULL, "a rank that is alone in its process has no hall");
    one = enter(1);
    three = enter(3);
    ok(one != NULL && one == three, "two ranks of one process have the same");
    gh_hall_come(one, 1, 1);
    ok(!gh_hall_is_full(one, 1), "one of them waits for the other");
    gh_hall_come(one, 3, 1);
    ok(gh_hall_is_full(one, 1), "but not for ranks of other processes");
    gh_hall_come(one, 3, 2);
    ok(gh_hall_is_full(one, 1) && !gh_hall_is_full(one, 2),
       "a rank may be one gather ahead");
    gh_hall_leave(one, 1);
    ok(gh_hall_is_full(three, 3) == false, "the rank that stays is counted");
    gh_hall_come(three, 3, 3);
    ok(gh_hall_is_full(three, 3), "and the one that has left is not");
    gh_hall_leave(three, 3);
    gh_hall_leave(NULL, 0);
    one = enter(1);
    ok(!gh_hall_is_full(one, 1), "what all have left is gone");
    gh_hall_leave(one, 1);
}

static void test_two_halls(void)
{
    struct gh_hall *first, *second;

    make_cards();
    first = enter(1);
    make_cards();
    second = enter(1);
    ok(first != second, "a second communicator has a hall of its own");
    ok(second == enter(3), "which its other rank finds");
    gh_hall_leave(second, 1);
    gh_hall_leave(second, 3);
    gh_hall_leave(first, 1);
}

int main(void)
{
    test_cards();
    test_a_hall();
    test_two_halls();
    return done_testing();
}
