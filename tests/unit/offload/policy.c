/*
 * Which groups stay is a function of the profile alone.
 * SPDX-License-Identifier: Apache-2.0
 */
#include "offload/policy.h"
#include "tap/tap.h"

#include <string.h>

#define MAX_GROUPS 12

static struct gh_group all[MAX_GROUPS];
static struct gh_group *groups[MAX_GROUPS];
static struct gh_size_class classes[4];

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

        all[i] = (struct gh_group){ .layer = i,
                                    .module = 1u << module,
                                    .chunk = second,
                                    .bytes = 1000,
                                    .place = i,
                                    .placed = true,
                                    .size_class = &classes[module] };
        groups[i] = &all[i];
        classes[module].module = 1u << module;
        classes[module].bytes = 1000;
        classes[module].in_pass = 1;
    }
    return n;
}

/* One letter a group: Goes, Margin, Keep, Fraction, No gain, or as it was. */
static const char *settle(const struct gh_policy *policy, uint32_t n)
{
    static const char letters[GH_FATES + 1] = "G?PSMKFN";
    static char text[MAX_GROUPS + 1];

    gh_policy_settle(policy, groups, n);
    for (uint32_t i = 0; i < n; i++) {
        text[i] = letters[groups[i]->fate];
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
    is_int(gh_policy_places(&policy, &classes[0]), 3, "which they are");
    classes[0].in_pass = 1;
    is_int(gh_policy_places(&policy, &classes[0]), 2,
           "and never smaller than was asked for");
}

int main(void)
{
    test_margin();
    test_fates_that_are_known();
    test_keep_bytes();
    test_fraction();
    test_no_gain();
    return done_testing();
}
