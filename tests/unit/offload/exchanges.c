/*
 * Which groups stay where copies slow exchanges: as few as that takes.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "offload/exchanges.h"
#include "tap/tap.h"

static void test_within(void)
{
    double beside[] = { 10, 30, 20 };

    is_int(gh_exchanges_keep(5, 5, beside, 3), 0,
           "what is not slowed by more than that keeps nothing");
    is_int(gh_exchanges_keep(-5, 0, beside, 3), 0,
           "and nor does what is faster");
    ok(beside[0] > 0 && beside[1] > 0 && beside[2] > 0, "all of them go");
}

static void test_the_longest_first(void)
{
    double beside[] = { 10, 30, 0, 20 };

    is_int(gh_exchanges_keep(60, 31, beside, 4), 1, "one is enough");
    ok(beside[1] <= 0 && beside[3] > 0, "the one that is beside for longest");
    is_int(gh_exchanges_keep(30, 5, beside, 4), 2,
           "all that are beside stay where that takes all");
    ok(beside[0] <= 0 && beside[3] <= 0, "and those alone");
    is_int(gh_exchanges_keep(30, 5, beside, 4), 0,
           "where no copy was beside an exchange nothing is to be kept");
}

static void test_of_equals_the_latest(void)
{
    double beside[] = { 10, 10, 10 };

    is_int(gh_exchanges_keep(9, 6, beside, 3), 1, "one of three equals stays");
    ok(beside[2] <= 0 && beside[1] > 0, "it is the latest");
}

int main(void)
{
    test_within();
    test_the_longest_first();
    test_of_equals_the_latest();
    return done_testing();
}
