/*
 * Which groups stay where copies slow exchanges, as few as that takes, and how
 * both are timed.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tests/unit/offload/fake.h"

#include "offload/decide/exchanges.h"
#include "offload/decide/measured.h"
#include "offload/decide/report.h"
#include "tap/tap.h"

#include <stdlib.h>
#include <string.h>

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

/* ---- times --------------------------------------------------------------- */

static void exchange(double ns)
{
    gh_exchange_begin(o, 0, SIDE);
    now_ns += ns;
    gh_exchange_end(o, SIDE);
}

static void test_apart_from_copies(void)
{
    unsigned first;

    begin(NULL);
    gh_exchanges_begin(o);
    called();
    exchange(100);
    is_str(called(), "R3@s R4@s", "an exchange beside copies waits for none");
    ok(gh_exchanges_go_on(o), "the next step belongs to the comparison");
    exchange(100);
    is_str(called(),
           "R1@o W1@s R2@b W2@s R5@s R6@s W6@o W6@b",
           "one that is apart waits for copies of both ways, and they for it");
    ok(gh_exchanges_go_on(o), "so does the one after that");
    first = (unsigned)events_out;
    exchange(100);
    is_int(events_out, first, "in which nothing is timed");
    ok(!gh_exchanges_go_on(o), "and which is the last");
    gh_exchanges_hear(o, NULL);
    ok(o->exchanges == NULL,
       "where a rank has no times all of them compare nothing");
    end();
}

/* A step in which an exchange of `ns` runs while a copy out does. */
static void exchange_beside(struct gh_instance *i, double ns)
{
    gh_measure_point(o, GH_POINT_COMMIT, i, MAIN);
    gh_measure_copy_begin(o, i, true);
    exchange(ns);
    gh_measure_copy_end(o, NULL, true);
}

static void settle_with(double beside_ns, double apart_ns,
                        struct gh_policy_group *groups)
{
    begin(NULL);
    save(0, 0);
    gh_measure_begin(o);
    gh_exchanges_begin(o);
    exchange_beside(instance(0, 0), beside_ns);
    gh_exchanges_go_on(o);
    gh_measure_end(o);
    exchange(apart_ns);
    gh_exchanges_go_on(o);
    groups[0] = (struct gh_policy_group){ .fate = GH_FATE_GOES };
    gh_exchanges_decide(o, groups, 1);
}

static void test_groups_that_slow_exchanges(void)
{
    struct gh_policy_group groups[1];

    settle_with(109, 100, groups);
    is_int(groups[0].fate, GH_FATE_EXCHANGE,
           "a group that slows exchanges by 9 %% stays");
    ok(strstr(said, "take 9.0 % longer beside copies") != NULL,
       "which is said: %s", said);
    end();
    settle_with(104, 100, groups);
    is_int(groups[0].fate, GH_FATE_GOES, "one that does by 4 %% goes");
    end();
}

/* Events alone take some time: a short wait is none. */
static void test_stalls(void)
{
    gh_offload_stats stats;

    begin(NULL);
    save(0, 0);
    gh_measure_begin(o);
    for (int i = 0; i < 3; i++) {
        gh_measure_point(o, GH_POINT_SAVE_ASKED, instance(0, 0), MAIN);
        now_ns += i == 1 ? 6000 : 4000;
        gh_measure_point(o, GH_POINT_SAVE, instance(0, 0), MAIN);
    }
    gh_measure_copy_begin(o, instance(0, 0), true);
    now_ns += 500;
    gh_measure_copy_end(o, NULL, true);
    gh_measure_end(o);
    ends_at_once = true;
    gh_offload_count(o, &stats);
    is_int(stats.stalls, 1, "of three waits one is long enough to be a stall");
    is_int(stats.stalled_ns, 6000, "of as long as it takes");
    is_int(stats.timed_ns, 500, "beside the copies' own time");
    end();
}

/* A launch waits until the copy from its buffer has ended. */
static void wait_of_launch(struct gh_ring_buffer *buffer, double ns)
{
    gh_measure_copy_begin(o, instance(0, 0), true);
    gh_measure_point(o, GH_POINT_LAUNCH, NULL, MAIN);
    now_ns += ns;
    gh_measure_copy_end(o, buffer, true);
    gh_measure_wait(o, buffer, instance(0, 0)->group, true);
}

static void test_stalls_of_launches(void)
{
    struct gh_ring_buffer buffers[2] = { { .timed = 0 }, { .timed = 0 } };
    gh_offload_stats stats;

    begin(NULL);
    save(0, 0);
    gh_measure_begin(o);
    wait_of_launch(&buffers[0], 4000);
    wait_of_launch(&buffers[1], 7000);
    gh_measure_end(o);
    ends_at_once = true;
    gh_offload_count(o, &stats);
    is_int(stats.stalls, 1, "of two launches one has waited for a copy");
    is_int(stats.stalled_ns, 7000, "for as long as that took");
    end();
}

/* A step may have more of each than there is room for. */
static void test_more_than_is_measured(void)
{
    struct gh_ring_buffer buffer = { .timed = 0 };
    struct gh_instance *i;

    begin(NULL);
    save(0, 0);
    i = instance(0, 0);
    gh_measure_begin(o);
    for (int n = 0; n < 8200; n++) {
        gh_measure_copy_begin(o, i, true);
        gh_measure_point(o, GH_POINT_LAUNCH, NULL, MAIN);
        gh_measure_copy_end(o, n < 100 ? &buffer : NULL, true);
        gh_measure_wait(o, &buffer, i->group, true);
    }
    is_int(o->measure->n_copies, 8192, "of copies there is room for 8192");
    is_int(o->measure->n_waits, 8192, "and for as many waits");
    is_int(o->measure->n_points, 8200, "each point is measured");
    i->for_nobody = true;
    gh_measure_point(o, GH_POINT_SAVE, i, MAIN);
    is_int(o->measure->n_points, 8200, "but for one of a group for nobody");
    i->for_nobody = false;
    for (int n = 0; n < 8200; n++) {
        gh_measure_point(o, GH_POINT_SAVE, i, MAIN);
    }
    is_int(o->measure->n_points, 16384, "of points there is room for 16384");
    gh_measure_end(o);
    end();
}

static void copy_of(uint32_t layer, bool out, double ns)
{
    gh_measure_copy_begin(o, instance(layer, 0), out);
    now_ns += ns;
    gh_measure_copy_end(o, NULL, out);
}

/* One group has copies out alone, and another copies back. */
static void test_times_of_groups(void)
{
    struct gh_policy_group groups[2] = { { .out_ns = 0 } };
    struct gh_profile profile = { .groups = groups, .n_groups = 2 };
    struct gh_mark *marks = NULL;

    begin(NULL);
    save(0, 0);
    save(1, 0);
    gh_measure_begin(o);
    gh_measure_point(o, GH_POINT_COMMIT, instance(0, 0), MAIN);
    copy_of(0, true, 100);
    copy_of(0, true, 300);
    copy_of(1, false, 400);
    gh_measure_point(o, GH_POINT_COMMIT, instance(1, 0), MAIN);
    now_ns += 50;
    gh_measure_point(o, GH_POINT_LOAD, instance(1, 0), MAIN);
    gh_measure_point(o, GH_POINT_LOAD, instance(0, 0), MAIN);
    gh_measure_end(o);
    ok(gh_measure_read(o, &profile, &marks), "what was measured is read");
    ok(groups[0].out_ns == 200 && groups[0].back_ns == 0,
       "copies of a group take the mean of their times");
    ok(groups[1].out_ns == 0 && groups[1].back_ns == 400,
       "which is another for each way");
    ok(profile.out_rate == 2 * BYTES * 1000.0 / 400 &&
           profile.back_rate == BYTES * 1000.0 / 400,
       "and each way has its rate: %g and %g", profile.out_rate,
       profile.back_rate);
    ok(groups[0].gap_ns == 850 && groups[1].gap_ns == 50,
       "a group is away from its commit to its load: %llu and %llu ns",
       (unsigned long long)groups[0].gap_ns,
       (unsigned long long)groups[1].gap_ns);
    is_int(profile.n_marks, 4, "each point is a mark");
    free(marks);
    end();
}

/* From a commit to a load, where copies run from `from` to `to` after it. */
static void work(double ns, double from, double to, void *stream)
{
    const double begin_ns = now_ns;

    gh_measure_point(o, GH_POINT_COMMIT, instance(0, 0), MAIN);
    if (to > from) {
        now_ns = begin_ns + from;
        gh_measure_copy_begin(o, instance(0, 0), true);
        now_ns = begin_ns + to;
        gh_measure_copy_end(o, NULL, true);
    }
    now_ns = begin_ns + ns;
    gh_measure_point(o, GH_POINT_LOAD, instance(0, 0), stream);
    now_ns += 5e6; /* between two of them, which is other work */
}

static double slowdown_of(double beside_ns, double from, double to,
                          void *stream)
{
    struct gh_policy_group groups[1] = { { .out_ns = 0 } };
    struct gh_profile profile = { .groups = groups, .n_groups = 1 };
    struct gh_mark *marks = NULL;

    begin(NULL);
    save(0, 0);
    gh_measure_begin(o);
    work(10e6, 0, 0, MAIN);
    work(beside_ns, from, to, stream);
    gh_measure_end(o);
    ok(gh_measure_read(o, &profile, &marks), "two pieces of work are read");
    free(marks);
    end();
    return profile.slowdown;
}

static bool is_near(double got, double wanted)
{
    diag("%g", got);
    return got > wanted - 1e-9 && got < wanted + 1e-9;
}

static void test_what_copies_cost(void)
{
    ok(is_near(slowdown_of(11e6, 0, 11e6, MAIN), 0.1),
       "work that takes a tenth longer beside a copy is slowed by that");
    ok(is_near(slowdown_of(10.5e6, 0, 5.25e6, MAIN), 0.1),
       "a copy beside half of it has cost twice as much");
    ok(is_near(slowdown_of(11e6, -1e6, 12e6, MAIN), 0.1),
       "what of a copy is before and behind the work counts for nothing");
    ok(is_near(slowdown_of(11e6, 0, 4e6, MAIN), -1.0),
       "beside a copy that is short nothing is compared");
    ok(is_near(slowdown_of(11e6, 0, 11e6, SIDE), -1.0),
       "nor from one stream to another");
}

static void point(enum gh_point what, double at_ns, void *stream)
{
    now_ns = at_ns;
    gh_measure_point(o, what, instance(0, 0), stream);
}

/* The compute is timed as if nothing had been waited for. */
static void test_waits_are_taken_out(void)
{
    struct gh_policy_group groups[1] = { { .out_ns = 0 } };
    struct gh_profile profile = { .groups = groups, .n_groups = 1 };
    struct gh_mark *marks = NULL;

    begin(NULL);
    save(0, 0);
    gh_measure_begin(o);
    for (int i = 0; i < 20; i++) {
        point(GH_POINT_RELEASE, 0, MAIN);
    }
    point(GH_POINT_SAVE_ASKED, 0, MAIN);
    point(GH_POINT_SAVE, 1000, MAIN);
    point(GH_POINT_RELEASE, 1200, SIDE);
    point(GH_POINT_COMMIT, 1500, MAIN);
    point(GH_POINT_LOAD_ASKED, 2500, MAIN);
    point(GH_POINT_LOAD, 4500, MAIN);
    point(GH_POINT_RELEASE, 5000, SIDE);
    gh_measure_end(o);
    ok(gh_measure_read(o, &profile, &marks), "a step of two streams is read");
    is_int((int64_t)groups[0].gap_ns, 1000,
           "from a commit to its load two waits do not count");
    is_int(profile.n_marks, 25, "with a mark for each point but what is asked");
    ok(profile.marks == marks && marks[20].at_ns == 0 &&
           marks[20].verb == GH_MARK_SAVE && marks[21].at_ns == 500 &&
           marks[21].verb == GH_MARK_COMMIT && marks[22].at_ns == 1200 &&
           marks[23].at_ns == 1500 && marks[23].verb == GH_MARK_LOAD &&
           marks[24].at_ns == 5000,
       "in the order of time, in which each stream has waits of its own");
    free(marks);
    end();
}

/* Nothing went back, so that this way has no rate of its own. */
static void test_rates_that_are_told(void)
{
    struct gh_log informed = { GH_LOG_INFO, hear_line, NULL };
    const struct gh_policy policy = { .in_flight = 1 };
    const struct gh_profile profile = { .out_rate = 2000.0, .slowdown = -1.0 };

    begin(NULL);
    o->log = &informed;
    o->forecast = (struct gh_forecast){ .without_ns = 100, .with_ns = 100 };
    gh_report_decision(o, &policy, &profile);
    ok(strstr(said, "the link has 2.0 GB/s out and 25.0 back") != NULL,
       "a way without a rate of its own is told with the one that is taken "
       "for it: %s",
       said);
    end();
}

/* The decision, with those fates of the groups, one letter each: Goes, stays
 * for the Margin, the pOol, the Fraction, or was Not asked for. */
static const char *told(const char *fates, const struct gh_policy *policy)
{
    static const struct gh_log informed = { GH_LOG_INFO, hear_line, NULL };
    struct gh_policy_group groups[LAYERS];
    struct gh_policy_class classes[1] = { { .bytes = 16 << 20, .in_pass = 1 } };
    const struct gh_profile profile = { .groups = groups,
                                        .n_groups = LAYERS,
                                        .classes = classes,
                                        .n_classes = 1 };

    begin_profiled(NULL);
    for (uint32_t g = 0; g < LAYERS; g++) {
        const enum gh_fate fate = fates[g] == 'M'   ? GH_FATE_MARGIN
                                  : fates[g] == 'O' ? GH_FATE_POOL
                                  : fates[g] == 'F' ? GH_FATE_FRACTION
                                  : fates[g] == 'N' ? GH_FATE_NOT_ASKED
                                                    : GH_FATE_GOES;

        o->table.groups[g]->fate = fate;
        groups[g] = (struct gh_policy_group){
            .layer = g,
            .module = GH_MODULE_MLP,
            .bytes = g == 0 ? 8 << 20 : 16 << 20,
            .fate = fate,
            .gap_ns = 3000000 * (uint64_t)(LAYERS - g),
            .out_ns = g == 0 ? 500000 : 300000,
            .back_ns = g == 0 ? 400000 : 200000,
        };
    }
    o->log = &informed;
    said[0] = '\0';
    gh_report_decision(o, policy, &profile);
    end();
    return said;
}

static void test_groups_that_are_told(void)
{
    static const struct gh_policy policy = {
        .fraction = 1.0,
        .buffers = 2,
        .in_flight = 1,
        .pool_bytes = 64 << 20,
    };
    struct gh_policy none = policy;

    told("GGGGGGGM", &policy);
    ok(strstr(said, "offload, mlp: 7 of 8 groups go; 64.0 MiB on the device, "
                    "in two rings of 2 in the place of 104.0, with 1 "
                    "microbatches in flight; 1 stay (needed at once by the "
                    "backward)") != NULL,
       "how many go is told, and what that takes: %s", said);
    ok(strstr(said, "offload, mlp: 8.0 to 16.0 MiB a group, in layers 0 to 7; "
                    "3.000 ms or more from commit to load, copied in 0.500 ms "
                    "out and 0.400 back") != NULL,
       "and what they are like: %s", said);
    ok(strstr(said, "nothing is offloaded") == NULL &&
           strstr(said, "the pool has") == NULL,
       "where some go nothing is amiss");
    told("GGGGOONM", &policy);
    ok(strstr(said, "offload: 2 of 7 groups stay on the device: the pool has "
                    "67108864 bytes of pinned memory, and all that would go "
                    "take 100663296: raise GRAPHHOOKS_OFFLOAD_POOL_BYTES") !=
           NULL,
       "of those that were asked for, what the pool has no room for: %s",
       said);
    told("FFFFFFFM", &policy);
    ok(strstr(said, "offload: nothing is offloaded; 1 stay (needed at once by "
                    "the backward); 7 stay (beyond the fraction): raise "
                    "GRAPHHOOKS_OFFLOAD_FRACTION") != NULL,
       "why nothing goes, and what to do: %s", said);
    none.fraction = 0.0;
    told("FFFFFFFM", &none);
    ok(strstr(said, "nothing is offloaded") == NULL,
       "but where that was asked for: %s", said);
    none.hides = true;
    told("FFFFFFFM", &none);
    ok(strstr(said, "nothing is offloaded") != NULL,
       "which who asks for what hides has not: %s", said);
}

int main(void)
{
    test_groups_that_are_told();
    test_more_than_is_measured();
    test_times_of_groups();
    test_what_copies_cost();
    test_waits_are_taken_out();
    test_rates_that_are_told();
    test_stalls_of_launches();
    test_apart_from_copies();
    test_groups_that_slow_exchanges();
    test_stalls();
    test_within();
    test_the_longest_first();
    test_of_equals_the_latest();
    return done_with_device();
}
