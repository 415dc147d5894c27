/*
 * Which groups stay is a function of the profile alone.
 * SPDX-License-Identifier: Apache-2.0
 */
#include "plan/policy.h"
#include "support/host_memory.h"
#include "tap/tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_GROUPS 64

static struct gh_policy_group all[MAX_GROUPS];
static struct gh_policy_class classes[4];
static struct gh_profile known;
static struct gh_forecast forecast;

/* One letter a group, in the order of commits: its module, a lower-case one of
 * chunk 0, an upper-case one of chunk 1; 1000 bytes each. */
static uint32_t profile(const char *letters)
{
    const uint32_t n = (uint32_t)strlen(letters);

    memset(all, 0, sizeof(all));
    memset(classes, 0, sizeof(classes));
    for (uint32_t i = 0; i < n; i++) {
        const bool second = letters[i] < 'a';
        const uint32_t module =
            (uint32_t)(letters[i] - (second ? 'A' : 'a'));

        all[i] = (struct gh_policy_group){ .layer = i,
                                           .module = 1u << module,
                                           .chunk = second,
                                           .bytes = 1000,
                                           .size_class = module };
        classes[module].bytes = 1000;
        classes[module].in_pass = 1;
    }
    known = (struct gh_profile){ .groups = all,
                                 .n_groups = n,
                                 .classes = classes,
                                 .n_classes = 4,
                                 .slowdown = 0.0 };
    return n;
}

/* One letter a group: Goes, Margin, Keep, Fraction, No gain, Auto, Early, pOol,
 * or as it was. */
static const char *settle(const struct gh_policy *policy, uint32_t n)
{
    static const char letters[GH_FATES + 1] = "G?PSMKFN??A?XOE";
    static char text[MAX_GROUPS + 1];
    static gh_error err;

    if (gh_policy_decide(policy, &known, &forecast, &err) != GH_OK) {
        return err.text;
    }
    for (uint32_t i = 0; i < n; i++) {
        text[i] = letters[all[i].fate];
    }
    text[n] = '\0';
    return text;
}

static const struct gh_policy plain = { .fraction = 1.0,
                                        .buffers = 2,
                                        .in_flight = 100 };

static void test_margin(void)
{
    is_str(settle(&plain, profile("aaaa")), "GGGM",
           "the last group of a module stays");
    is_str(settle(&plain, profile("ababab")), "GGGGMM", "of each module");
    is_str(settle(&plain, profile("aaabbA")), "GGMGMM",
           "and of each chunk, also one of one group");
    is_str(settle(&plain, profile("aaAA")), "GMGM",
           "a later chunk does not stand in for an earlier one");
    is_str(settle(&plain, profile("a")), "M", "one group is the last");
    is_str(settle(&plain, profile("")), "", "no groups have no fates");
}

static void test_fates_that_are_known(void)
{
    uint32_t n = profile("aaaa");

    all[3].fate = GH_FATE_SMALL;
    all[0].fate = GH_FATE_PLAN;
    is_str(settle(&plain, n), "PGMS",
           "the last one that goes stays, and what stays is as it was");
}

static void test_keep_bytes(void)
{
    struct gh_policy policy = plain;

    policy.keep_bytes = 1;
    is_str(settle(&policy, profile("aaaaa")), "KGGGM",
           "a byte to keep keeps the first group");
    policy.keep_bytes = 1000;
    is_str(settle(&policy, profile("aaaaa")), "KGGGM",
           "a group's bytes keep one");
    policy.keep_bytes = 1001;
    is_str(settle(&policy, profile("aaaaa")), "KKGGM", "one more keeps two");
    policy.keep_bytes = UINT64_MAX;
    is_str(settle(&policy, profile("aaaaa")), "KKKKM", "all can be kept");
    policy.keep_bytes = 2000;
    is_str(settle(&policy, profile("aabbb")), "KMKGM",
           "what stays for the margin does not count");
    policy.keep_bytes = 1000;
    is_str(settle(&policy, profile("aaaAAA")), "KGMKGM",
           "each chunk keeps as many");
}

static void test_fraction(void)
{
    struct gh_policy policy = plain;

    policy.fraction = 0.5;
    is_str(settle(&policy, profile("aaaaa")), "GGFFM",
           "half of what is left goes, the earliest");
    is_str(settle(&policy, profile("aaaaaa")), "GGGFFM",
           "an odd one goes too");
    policy.fraction = 0.8;
    is_str(settle(&policy, profile("aaaaaa")), "GGGGFM",
           "0.8 of five are four, also where 1 - 0.8 is a bit less than 0.2");
    policy.fraction = 0.0;
    is_str(settle(&policy, profile("aaaAAA")), "FFMFFM", "none goes");
    policy.fraction = 0.75;
    is_str(settle(&policy, profile("aaaaaAAAAA")), "GGGFMGGGFM",
           "each chunk has its own share");
    policy.fraction = 0.9;
    is_str(settle(&policy, profile("aaaaa")), "GGGGM",
           "less than a group is none");
    policy.fraction = 0.5;
    policy.keep_bytes = 1000;
    is_str(settle(&policy, profile("aaaaaa")), "KGGFFM",
           "the share is of what keep_bytes leaves");
}

static void test_no_gain(void)
{
    struct gh_policy policy = plain;

    policy.in_flight = 1;
    is_str(settle(&policy, profile("aaaaa")), "NNNNM",
           "two rings of two hold as much as four groups");
    is_str(settle(&policy, profile("aaaaaa")), "GGGGGM",
           "and less than five");
    policy.in_flight = 2;
    is_str(settle(&policy, profile("aaa")), "NNM",
           "two groups of two microbatches are four");
    is_str(settle(&policy, profile("aaaabb")), "GGGMNM",
           "each class is weighed alone");
    policy.buffers = 3;
    is_str(settle(&policy, profile("aaaa")), "NNNM", "rings of three hold six");
    policy.buffers = 2;
    profile("aaaa");
    classes[0].in_pass = 3;
    is_str(settle(&policy, 4), "NNNM",
           "a pass of three groups needs rings of three");
    is_int(gh_policy_ring_buffers(&policy, &classes[0]), 3, "which they are");
    classes[0].in_pass = 1;
    is_int(gh_policy_ring_buffers(&policy, &classes[0]), 2,
           "and never smaller than was asked for");
}

static void test_no_rings_no_cost(void)
{
    struct gh_policy policy = plain;

    policy.in_flight = 1;
    profile("abababb");
    for (uint32_t i = 1; i < 7; i += 2) {
        all[i].elsewhere = true;
    }
    is_str(settle(&policy, 7), "NGNGMGM",
           "three groups that have no rings go, and two that have stay");
    profile("aaaaaa");
    all[1].elsewhere = all[3].elsewhere = true;
    is_str(settle(&policy, 6), "NGNGNM",
           "of one class those without rings go");
    profile("aaaaaa");
    all[1].elsewhere = all[3].elsewhere = true;
    policy.pool_bytes = 1000;
    is_str(settle(&policy, 6), "OGOOOM",
           "and the first of them has the pinned memory of those that stay");
}

/* ---- auto -------------------------------------------------------------------- */

static const struct gh_policy hiding = { .fraction = 0.1, /* not looked at */
                                         .hides = true,
                                         .buffers = 2,
                                         .in_flight = 100 };

/* Every layer is one group: its forward takes 1000 ns, its backward 2000, and
 * its copies so many. */
static uint32_t layers(uint32_t n, uint64_t copy_ns)
{
    char letters[MAX_GROUPS + 1];

    memset(letters, 'a', n);
    letters[n] = '\0';
    profile(letters);
    for (uint32_t i = 0; i < n; i++) {
        all[i].gap_ns = 3000 * (n - 1 - i) + 100;
        all[i].out_ns = all[i].back_ns = copy_ns;
    }
    return n;
}

/* What is settled for copies that take so many per cent of a forward. */
static void test_auto(void)
{
    static const struct {
        uint64_t per_cent;
        const char *fates;
        uint32_t in_1000; /* of the step without, foreseen */
    } rows[] = {
        { 40, "GGGGGGGGGGGM", 1000 },  { 80, "GGGGGGGGGGGM", 1000 },
        { 120, "GGGGGGGGAGGM", 1003 }, { 160, "GGGGAGGAGGAM", 1000 },
        { 240, "GGAAGAGAAGAM", 1000 }, { 400, "GGAAAGAAAAAM", 1000 },
        { 1200, "AGAAAAAAAAAM", 1000 }, { 100000, "AAAAAAAAAAAM", 1000 },
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const char *fates =
            settle(&hiding, layers(12, 10 * rows[i].per_cent));

        is_str(fates, rows[i].fates, "copies of %u %% of a layer's forward",
               (unsigned)rows[i].per_cent);
        is_int((uint32_t)(1000.0 * forecast.with_ns / forecast.without_ns +
                          0.5),
               rows[i].in_1000, "and the step that is foreseen");
        ok(forecast.with_ns <= 1.005 * forecast.without_ns,
           "which is within half of one per cent");
    }
}

/* The first layer of two modules, whose rings are apart. */
static void test_auto_of_two_modules(void)
{
    uint32_t n = profile("abababababab");

    for (uint32_t i = 0; i < n; i++) {
        all[i].gap_ns = 3000 * (n - 1 - i) + 100;
        all[i].out_ns = all[i].back_ns = i % 2 == 0 ? 1700 : 100;
    }
    is_str(settle(&hiding, n), "GGGGGGGGGGMM",
           "a long copy beside a short one hides in the time of both");
    for (uint32_t i = 0; i < n; i++) {
        all[i].fate = GH_FATE_GOES;
        all[i].out_ns = all[i].back_ns = i % 2 == 0 ? 4000 : 100;
    }
    is_str(settle(&hiding, n), "GGGGGGGGAAMM",
           "of those that do not, the ones that are waited for stay");
}

static void test_auto_without_times(void)
{
    uint32_t n = layers(6, 100000);

    all[2].gap_ns = 0;
    is_str(settle(&hiding, n), "GGGGGM",
           "with a time that is not known all that may go do");
    ok(forecast.without_ns == 0.0, "and nothing is foreseen");
    n = layers(6, 0);
    all[0].bytes = all[1].bytes = all[2].bytes = all[3].bytes = all[4].bytes =
        UINT64_C(1) << 30;
    is_str(settle(&hiding, n), "AAAAAM",
           "without times of copies they are those of a slow link");
    n = layers(6, 0);
    known.out_rate = known.back_rate = 1250.0;
    is_str(settle(&hiding, n), "GGGGGM", "with rates they are by the rates");
    n = layers(6, 0);
    known.out_rate = 1250.0;
    known.back_rate = 0.5;
    is_str(settle(&hiding, n), "AAAAAM", "of which each way has its own");
    n = layers(6, 100);
    all[1].gap_ns = all[2].gap_ns - 500; /* of another flight */
    settle(&hiding, n);
    ok(forecast.without_ns > 0.0 && forecast.without_ns < 1e6,
       "where a gap is shorter than the one inside it nothing is between them");
}

/* Pinned memory holds the earliest groups, each with all of its flights. */
static void test_pool(void)
{
    struct gh_policy policy = plain;

    policy.pool_bytes = 400000;
    is_str(settle(&policy, profile("aaaaaaaa")), "GGGGOOOM",
           "a pool for 400 groups has room for four of 100 flights");
    policy.pool_bytes = 399999;
    is_str(settle(&policy, profile("aaaaaaaa")), "GGGOOOOM", "a byte less");
    policy.pool_bytes = 1;
    is_str(settle(&policy, profile("aaaaaaaa")), "OOOOOOOM",
           "a pool of one byte has room for none");
    policy.pool_bytes = 400000;
    policy.keep_bytes = 1000;
    is_str(settle(&policy, profile("aaaaaaaa")), "KGGGGOOM",
           "what stays anyway takes nothing of the pool");
    policy = plain;
    policy.pool_bytes = 250000;
    profile("ababaaa");
    classes[1].bytes = 200000;
    is_str(settle(&policy, 7), "GOGMOOM",
           "what finds no room leaves it to smaller ones");
    policy.in_flight = 1;
    policy.pool_bytes = 4000;
    is_str(settle(&policy, profile("aaaaaaaa")), "OOOOOOOM",
           "what is left of a class gains nothing: the pool is why");
    policy.pool_bytes = 8000;
    is_str(settle(&policy, profile("abababababababab")), "GOGOGOGOGOGOGOMM",
           "then the pool is another class's, which gains");
    policy.pool_bytes = 7000;
    is_str(settle(&policy, profile("bbbaaaaaaaa")), "NNMGGGGGGGM",
           "and what gains nothing takes none of it");
    policy = hiding;
    policy.pool_bytes = 400000;
    is_str(settle(&policy, layers(12, 400)), "GGGGOOOOOOOM",
           "auto fits the pool as well");
    ok(forecast.copy_ns == 2.0 * 2 * 4 * 400, "and foresees what is left");
}

static void test_slowdown(void)
{
    uint32_t n = layers(12, 900);

    known.slowdown = 0.01;
    is_str(settle(&hiding, n), "GGGGGGGGGGAM",
           "copies that slow the compute by 1 %% are one too many at a duty of 0.6");
    n = layers(12, 900);
    known.slowdown = 0.005;
    is_str(settle(&hiding, n), "GGGGGGGGGGGM",
           "and those of 0.5 %% are not");
    ok(forecast.with_ns > forecast.without_ns, "but they are counted");
    n = layers(12, 900);
    known.slowdown = -1.0;
    settle(&hiding, n);
    ok(forecast.with_ns > forecast.without_ns &&
           forecast.with_ns < 1.004 * forecast.without_ns,
       "what is not known of it is what was measured elsewhere");
}

static void test_measured_slowdown(void)
{
    static struct gh_interval seen[] = {
        { 1, 1000000.0, 0.0 }, { 1, 1080000.0, 0.8 }, { 1, 1041000.0, 0.4 },
        { 2, 2000000.0, 0.9 }, { 3, 500000.0, 1.0 },  { 3, 450000.0, 0.0 },
    };
    static const struct gh_interval other[] = { { 4, 10000000.0, 0.0 },
                                                { 5, 20000000.0, 1.0 } };
    static const struct gh_interval alike[] = { { 6, 10000000.0, 0.4 },
                                                { 6, 10500000.0, 0.8 } };

    ok(gh_policy_slowdown(seen, 1) < 0.0, "work that ran once says nothing");
    ok(gh_policy_slowdown(seen + 1, 1) < 0.0, "nor does it beside a copy");
    ok(gh_policy_slowdown(alike, 2) < 0.0,
       "nor where nearly as much was beside it both times");
    ok(gh_policy_slowdown(other, 2) < 0.0, "nor does other work");
    ok(gh_policy_slowdown(seen + 4, 2) < 0.0, "nor does too little time");
    seen[1].ns = 1640000.0;
    ok(gh_policy_slowdown(seen, 2) < 0.0, "nor less than a millisecond");
    seen[0].ns = 10000000.0;
    seen[1].ns = 10800000.0;
    ok(gh_policy_slowdown(seen, 2) > 0.0999 &&
           gh_policy_slowdown(seen, 2) < 0.1001,
       "8 %% more beside 0.8 of copies are a tenth: %f",
       gh_policy_slowdown(seen, 2));
    seen[1].ns = 9000000.0;
    ok(gh_policy_slowdown(seen, 2) == 0.0, "copies make nothing faster");
    seen[1].ns = 90000000.0;
    ok(gh_policy_slowdown(seen, 2) == 0.25, "and nothing very slow");
}

static void test_repeats(void)
{
    char first[MAX_GROUPS + 1];

    snprintf(first, sizeof(first), "%s", settle(&hiding, layers(40, 1300)));
    for (int i = 0; i < 3; i++) {
        is_str(settle(&hiding, layers(40, 1300)), first,
               "the same profile settles the same");
    }
}

/* The same, and other microbatches before the backward. */
static uint32_t pipelined(uint32_t n, uint64_t copy_ns)
{
    layers(n, copy_ns);
    for (uint32_t i = 0; i < n; i++) {
        all[i].gap_ns += 100000;
    }
    return n;
}

/* Without marks the chunks of a flight are taken one after the other. */
static void test_gaps_of_two_chunks(void)
{
    double one;
    uint32_t n;

    settle(&hiding, layers(4, 100));
    one = forecast.without_ns;
    n = profile("aaaaAAAA");
    for (uint32_t i = 0; i < n; i++) {
        all[i].gap_ns = 3000 * (3 - i % 4) + 100;
        all[i].out_ns = all[i].back_ns = 100;
    }
    is_str(settle(&hiding, n), "GGGMGGGM", "the copies of both chunks hide");
    ok(forecast.without_ns > 2 * one - 8 && forecast.without_ns < 2 * one + 8,
       "two chunks take as long as one does twice: %.0f and %.0f",
       forecast.without_ns, one);
    ok(forecast.copy_ns == 2.0 * 2 * 6 * 100, "and copy twice as much");
}

/* What is foreseen of a fraction, and how far ahead copies come. */
static void test_forecast(void)
{
    struct gh_policy policy = plain;
    double unlimited;

    settle(&policy, layers(12, 1600));
    ok(forecast.with_ns > 1.1 * forecast.without_ns && forecast.stalls > 10,
       "a fraction of 1 goes whatever is waited for, and that is foreseen");
    ok(forecast.copy_ns == 2.0 * 2 * 11 * 1600, "with the time of all copies");
    policy.buffers = 4;
    settle(&policy, pipelined(12, 1600));
    unlimited = forecast.with_ns;
    policy.most_out = 1;
    settle(&policy, pipelined(12, 1600));
    ok(forecast.with_ns > unlimited + 2 * 2 * 1600,
       "one copy out under way is waited for sooner than four");
    policy.most_out = 4;
    settle(&policy, pipelined(12, 1600));
    ok(forecast.with_ns == unlimited, "as many as buffers are no limit");
    policy = plain;
    policy.prefetch = 1;
    settle(&policy, layers(12, 1600));
    is_int(forecast.prefetch, 1, "a distance that is asked for is kept");
    policy.prefetch = 0;
    settle(&policy, layers(12, 1600));
    is_int(forecast.prefetch, 0, "0 is as far as there is room");
}

static void test_host_memory_that_fails(void)
{
    struct gh_policy policy = plain;
    const uint32_t n = layers(12, 1600);
    uint32_t k = 0, wrong = 0;
    gh_status status;
    gh_error err;

    policy.hides = true;
    host_memory_begin();
    do {
        err.text[0] = '\0';
        host_memory_refuse(++k);
        status = gh_policy_decide(&policy, &known, &forecast, &err);
        wrong += host_memory_left() != 0 ||
                 (host_memory_asked() >= k &&
                  (status != GH_ERR_NO_MEMORY || err.text[0] == '\0'));
    } while (host_memory_asked() >= k && k < 100);
    host_memory_refuse(0);
    ok(k > 2 && k < 100, "%u groups are decided on with %u allocations", n,
       k - 1);
    is_int(wrong, 0, "where one fails, that is said, and nothing is left");
}

/* A long copy that may come early is in the way of a short one. */
static void test_prefetch(void)
{
    struct gh_policy policy = hiding;
    uint32_t n = profile("bbbaaaaaaaaa");

    for (uint32_t i = 0; i < n; i++) {
        all[i].gap_ns = 3000 * (n - 1 - i) + 100;
        all[i].out_ns = 100;
        all[i].back_ns = i < 3 ? 9000 : 900;
    }
    settle(&policy, n);
    ok(forecast.prefetch != 0, "auto brings back no further than pays: %u",
       forecast.prefetch);
    policy.hides = false;
    settle(&policy, n);
    is_int(forecast.prefetch, 0, "a fraction brings back what it can");
}

/* The marks of a step win over gaps. */
static void test_marks(void)
{
    enum { LAYERS = 6 };
    struct gh_mark marks[4 * LAYERS];
    uint32_t n = 0, at = 0;

    layers(LAYERS, 900);
    for (uint32_t g = 0; g < LAYERS; g++) {
        marks[n++] = (struct gh_mark){ at, g, 0, GH_MARK_SAVE };
        at += g == 2 ? 10000 : 100;
        marks[n++] = (struct gh_mark){ at, g, 0, GH_MARK_COMMIT };
    }
    for (uint32_t g = LAYERS; g-- > 0;) {
        marks[n++] = (struct gh_mark){ at, g, 0, GH_MARK_LOAD };
        at += 3000;
        marks[n++] = (struct gh_mark){ at, g, 0, GH_MARK_RELEASE };
    }
    known.marks = marks;
    known.n_marks = n;
    is_str(settle(&hiding, LAYERS), "GGAGGM",
           "what would wait for a buffer before the long layer stays, and what "
           "is copied beside it goes");
    is_int((uint32_t)forecast.without_ns, 10500 + 18000,
           "the step is as long as its marks");
    layers(LAYERS, 900);
    known.marks = marks;
    known.n_marks = 2 * LAYERS;
    is_str(settle(&hiding, LAYERS), "GGGGGM",
           "a step that was not seen to its end is settled by what was seen");
    ok(classes[0].widened, "where a third buffer is enough");
}

/* Passes of 1000 ns, each of which saves the next group at its begin and commits
 * the last one at its end: a save waits for the copy that was committed just
 * before, of 600 ns. */
static void save_early(uint32_t n, bool late)
{
    static struct gh_mark marks[4 * 12];
    uint32_t m = 0, at = 0;

    layers(n, 600);
    marks[m++] = (struct gh_mark){ at, 0, 0, GH_MARK_SAVE };
    for (uint32_t g = 0; g < n; g++) {
        all[g].late = late;
        if (g + 1 < n) {
            marks[m++] = (struct gh_mark){ at, g + 1, 0, GH_MARK_SAVE };
        }
        at += 1000;
        marks[m++] = (struct gh_mark){ at, g, 0, GH_MARK_COMMIT };
    }
    for (uint32_t g = n; g-- > 0;) {
        marks[m++] = (struct gh_mark){ at, g, 0, GH_MARK_LOAD };
        at += 2000;
        marks[m++] = (struct gh_mark){ at, g, 0, GH_MARK_RELEASE };
    }
    known.marks = marks;
    known.n_marks = m;
}

static void test_saved_early(void)
{
    struct gh_policy policy = plain;

    policy.in_flight = 2;
    save_early(6, false);
    is_str(settle(&policy, 6), "GGGGGM", "a fraction goes, whatever waits");
    ok(forecast.worst < 5 && forecast.worst_ns == 600.0 &&
           forecast.worst_save_ns == 600.0,
       "the group that is waited for longest is known, and that it waits at "
       "its save");
    ok(!classes[0].widened, "a fraction adds no buffer");
    policy = hiding;
    policy.in_flight = 2;
    save_early(6, false);
    is_str(settle(&policy, 6), "GGGGGM",
           "auto tries a third buffer before it gives a group up");
    is_int(gh_policy_ring_buffers_out(&policy, &classes[0]), 3,
           "on the way out, where a save waits");
    is_int(gh_policy_ring_buffers(&policy, &classes[0]), 2, "and not back");
    is_int(gh_policy_weigh(&policy, &known, 1).rings, 5 * 1000,
           "its memory is counted");
    ok(forecast.stalls == 0, "and nothing waits");
    save_early(6, false);
    all[2].elsewhere = true;
    is_str(settle(&policy, 6), "GGGGGM",
           "also for one that the host moves, which frees what it has");
    policy.in_flight = 1;
    save_early(6, false);
    ok(strspn(settle(&policy, 6), "NEAM") == 6 && !classes[0].widened,
       "where it frees nothing, it is not taken");
    save_early(6, false);
    ok(strchr(settle(&policy, 6), 'E') != NULL,
       "and what would hide if it was saved later is told apart");
    save_early(6, true);
    is_str(settle(&policy, 6), "GGGGGM", "saved late, all of it hides");
    ok(!classes[0].widened && forecast.stalls == 0, "in rings of two");
    is_str(settle(&policy, layers(12, 1600)), "GGAGAGGAGAGM",
           "a buffer that frees as much as it takes is not taken");
}

/* ---- steps by hand ------------------------------------------------------- */

static struct gh_mark script[128];

/* The marks of a step: S, C, L or R and a group's letter, or so many ns; "|"
 * goes on with the next flight, "^" with the one before. */
static void marks_of(const char *text)
{
    static const char verbs[] = "SCLR";
    uint32_t n = 0, flight = 0;
    uint64_t at = 7; /* a step begins anywhere */

    for (; *text != '\0'; text++) {
        if (*text >= '0' && *text <= '9') {
            at += strtoull(text, (char **)&text, 10);
        }
        flight += *text == '|' ? 1 : 0;
        flight -= *text == '^' ? 1 : 0;
        if (*text != '\0' && strchr(verbs, *text) != NULL) {
            script[n++] = (struct gh_mark){
                at, (uint32_t)(text[1] - 'a'), flight,
                (enum gh_mark_verb)(strchr(verbs, *text) - verbs)
            };
            text++;
        }
        if (*text == '\0') {
            break;
        }
    }
    known.marks = script;
    known.n_marks = n;
}

static void foresees(const char *what, const struct gh_policy *policy,
                     uint64_t without, uint64_t with, uint32_t stalls)
{
    settle(policy, known.n_groups);
    is_int(forecast.without_ns, without, "%s: the step without", what);
    is_int(forecast.with_ns, with, "%s: and with what goes", what);
    is_int(forecast.stalls, stalls, "%s: and how often it waits", what);
    ok(forecast.with_ns == forecast.without_ns + forecast.stalled_ns,
       "%s: for as long as it is longer", what);
}

/* So many groups of one module, the last of which stays. */
static void groups(const char *letters, uint64_t out_ns, uint64_t back_ns)
{
    const uint32_t n = profile(letters);

    for (uint32_t i = 0; i < n; i++) {
        all[i].out_ns = out_ns;
        all[i].back_ns = back_ns;
    }
}

#define SAVES "Sa Ca Sb Cb Sc Cc Sd Cd 9000 "

static void test_steps_by_hand(void)
{
    struct gh_policy policy = plain;

    policy.buffers = 3;
    groups("aaaa", 100, 500);
    marks_of(SAVES "Ld 1000 Rd Lc 1000 Rc Lb 1000 Rb La 1000 Ra");
    foresees("a step without gaps of groups", &policy, 13000, 13000, 0);
    groups("aaaa", 100, 500);
    policy.prefetch = 1;
    marks_of(SAVES "Ld 1000 Rd Lc 1000 Rc Lb 1000 Rb La 1000 Ra");
    foresees("one group ahead", &policy, 13000, 13000, 0);
    groups("aaaa", 100, 1400);
    marks_of(SAVES "Ld 1000 Rd Lc 1000 Rc Lb 1000 Rb La 1000 Ra");
    foresees("one group ahead, of longer copies", &policy, 13000,
             13000 + 3 * 400, 3);
    groups("aaaa", 100, 1400);
    policy.prefetch = 2;
    marks_of(SAVES "Ld 3000 Rd Lc 100 Rc Lb 100 Rb La 1000 Ra");
    foresees("two groups ahead", &policy, 13200, 13200 + 1200, 1);
    groups("aaaa", 100, 1400);
    policy.prefetch = 3;
    marks_of(SAVES "Ld 3000 Rd Lc 100 Rc Lb 100 Rb La 1000 Ra");
    foresees("three groups ahead", &policy, 13200, 13200 + 1000, 1);
    groups("aaaa", 100, 1400);
    policy.prefetch = 0;
    policy.buffers = 2;
    marks_of(SAVES "Ld 3000 Rd Lc 100 Rc Lb 100 Rb La 1000 Ra");
    foresees("as many groups ahead as two buffers hold", &policy, 13200,
             13200 + 100 + 1300, 2);
    groups("aaaa", 100, 1400);
    marks_of(SAVES "Ld 3000 Rd Lc 100 Rc 1000 Lb 100 Rb La 1000 Ra");
    foresees("a group that comes as soon as a buffer is released", &policy,
             14200, 14200 + 100 + 300, 2);
}

/* Only groups of the same chunk come back ahead. */
static void test_steps_of_two_chunks(void)
{
    struct gh_policy policy = plain;

    policy.buffers = 4;
    groups("aaAA", 100, 5000);
    marks_of(SAVES "Ld 9000 Rd Lc 9000 Rc Lb 1000 Rb La 1000 Ra");
    foresees("two chunks", &policy, 29000, 29000 + 4000, 1);
}

/* A copy comes back no sooner than it has gone out. */
static void test_steps_that_turn_at_once(void)
{
    struct gh_policy policy = plain;

    policy.buffers = 3;
    groups("aa", 4000, 500);
    marks_of("Sa Ca Sb Cb Lb 1000 Rb La 1000 Ra");
    foresees("a step that turns at once", &policy, 2000,
             2000 + 4000 + 500 - 1000, 1);
}

/* A buffer is written again once it was copied out: of two the third waits. */
static void test_steps_that_wait_for_a_buffer(void)
{
    struct gh_policy policy = plain;

    static const char step[] = "Sa 10 Ca Sb 10 Cb Sc 10 Cc Sd 10 Cd 9000 "
                               "Ld 1000 Rd Lc 1000 Rc Lb 1000 Rb La 1000 Ra";

    policy.buffers = 2;
    groups("aaaa", 1000, 100);
    marks_of(step);
    foresees("two buffers", &policy, 40 + 13000, 40 + 13000 + 990, 1);
    groups("aaaa", 1000, 100);
    marks_of(step);
    policy.most_out = 1;
    foresees("one copy at a time", &policy, 40 + 13000, 40 + 13000 + 2 * 990,
             2);
    groups("aaaa", 1000, 100);
    marks_of(step);
    policy.buffers = 4;
    policy.most_out = 0;
    foresees("four buffers", &policy, 40 + 13000, 40 + 13000, 0);
}

/* Two microbatches, of which the second takes the buffers in turn. */
static void test_steps_of_two_flights(void)
{
    struct gh_policy policy = plain;

    policy.buffers = 2;
    groups("aaa", 1000, 100);
    marks_of("Sa 10 Ca Sb 10 Cb Sc Cc | Sa 10 Ca Sb 10 Cb Sc Cc 9000 "
             "Lc 500 Rc Lb 500 Rb La 500 Ra ^ Lc 500 Rc Lb 500 Rb La 500 Ra");
    settle(&policy, 3);
    is_int(forecast.copy_ns, 4 * (1000 + 100),
           "the groups of each microbatch go and come back");
    is_int(forecast.stalls, 2, "a second microbatch waits for both buffers");
    is_int(forecast.with_ns, forecast.without_ns + 990 + 990,
           "until each was copied out");
}

/* What the last simulation has left in the rings is of no matter. */
static void test_steps_that_are_cut_off(void)
{
    groups("aaaa", 100, 500);
    marks_of("Sa 200 Ca Sb 200 Cb Sc 200 Cc Sd 200 Cd 9000 Ld 1000 Rd Lc 1000");
    is_str(settle(&hiding, 4), "GGGM",
           "a step that ends with a group in use settles as if it had not");
    ok(forecast.with_ns == forecast.without_ns, "and all copies hide");
}

/* Sixteen groups are looked at, also those that stay. */
static void test_steps_that_look_far(void)
{
    for (uint32_t between = 14; between <= 16; between++) {
        struct gh_policy policy = plain;
        char text[200] = "Sa Ca 9000 ";

        policy.buffers = 3;
        groups("abbbbbbbbbbbbbbbbbbba", 100, 500);
        for (uint32_t i = 1; i < 20; i++) {
            all[i].fate = GH_FATE_SMALL;
        }
        snprintf(text + strlen(text), sizeof(text) - strlen(text),
                 "L%c 1000 R%c La 1000 Ra", 'a' + (char)between + 1,
                 'a' + (char)between + 1);
        marks_of(text);
        foresees("a group behind so many that stay", &policy, 11000,
                 between < 16 ? 11000 : 11500, between < 16 ? 0 : 1);
    }
}

/* A prefetch is chosen only where the step is clearly shorter with it. */
static void test_prefetch_without_a_gain(void)
{
    static const uint64_t per_cent[] = { 10, 40, 80 };

    for (size_t i = 0; i < 3; i++) {
        settle(&hiding, layers(12, 10 * per_cent[i]));
        is_int(forecast.prefetch, 0,
               "copies of %d %% that hide anyway come back as far as there is "
               "room",
               (int)per_cent[i]);
    }
}

/* It is of no matter which of two ran first, and each pair counts. */
static void test_slowdown_either_way(void)
{
    static const struct gh_interval rises[] = { { 1, 10e6, 0.2 },
                                                { 1, 10.8e6, 1.0 } };
    static const struct gh_interval falls[] = { { 1, 10.8e6, 1.0 },
                                                { 1, 10e6, 0.2 } };
    static const struct gh_interval both[] = { { 1, 10e6, 0.0 },
                                               { 1, 11e6, 1.0 },
                                               { 1, 13e6, 0.5 },
                                               { 1, 10e6, 0.0 } };
    static const struct gh_interval near[] = { { 1, 10e6, 0.0 },
                                               { 1, 13e6, 0.49 },
                                               { 1, 10e6, 0.0 } };
    const double up = gh_policy_slowdown(rises, 2);
    const double down = gh_policy_slowdown(falls, 2);
    const double all_pairs = gh_policy_slowdown(both, 4);

    ok(up > 0.0999 && up < 0.1001, "copies that come later: %g", up);
    ok(down == up, "and earlier: %g", down);
    /* 1 of 10, -2 of 6.5, 3 of 5, 1 of 10, 3 of 5, in millions. */
    ok(all_pairs == 0.25 || (all_pairs > 0.16 && all_pairs < 0.25),
       "each pair of intervals counts: %g", all_pairs);
    ok(gh_policy_slowdown(near, 3) < 0.0, "less than a half says nothing");
}

int main(void)
{
    test_saved_early();
    test_auto();
    test_steps_by_hand();
    test_steps_of_two_chunks();
    test_steps_that_turn_at_once();
    test_steps_that_wait_for_a_buffer();
    test_steps_of_two_flights();
    test_steps_that_are_cut_off();
    test_steps_that_look_far();
    test_prefetch_without_a_gain();
    test_slowdown_either_way();
    test_auto_of_two_modules();
    test_auto_without_times();
    test_slowdown();
    test_measured_slowdown();
    test_repeats();
    test_forecast();
    test_gaps_of_two_chunks();
    test_host_memory_that_fails();
    test_prefetch();
    test_marks();
    test_margin();
    test_fates_that_are_known();
    test_keep_bytes();
    test_fraction();
    test_no_gain();
    test_no_rings_no_cost();
    test_pool();
    return done_testing();
}
