/*
 * The ranks of a bank suspend their sessions together and resume them together,
 * or none of them does.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tests/session/ranks/sharer.h"

#include <string.h>

static const struct sharer_options suspends = { .flags = GH_SESSION_SUSPENDS };

static gh_memory_stats memory(struct sharer *s)
{
    gh_memory_stats stats = { .struct_size = sizeof(stats) };

    gh_memory_get_stats(s->session, &stats, NULL);
    return stats;
}

static bool begin(struct sharer *s, struct rank *r)
{
    if (!sharer_open(s, r, &suspends)) {
        return false;
    }
    return says(r, sharer_is_exact(s) && sharer_is_exact(s),
                "passes are recorded and replayed");
}

static void test_together(struct rank *r)
{
    struct sharer s;
    uint64_t recordings;

    if (!begin(&s, r)) {
        return;
    }
    recordings = sharer_stats(&s).recordings;
    for (uint32_t i = 0; i < 3; i++) {
        says_int(r, gh_session_suspend(s.session, &s.err), GH_OK,
                 "suspended %.100s", s.err.text);
        says(r, memory(&s).device_given != 0 && memory(&s).device_bytes == 0,
             "with all memory given back");
        says_int(r, gh_session_resume(s.session, &s.err), GH_OK,
                 "resumed %.100s", s.err.text);
        says(r, sharer_is_exact(&s) && sharer_is_exact(&s),
             "and the steps after it are right");
    }
    says_int(r, (long long)sharer_stats(&s).recordings, (long long)recordings,
             "without a recording");
    sharer_close(&s);
}

/* One rank has a microbatch in flight: none is suspended. */
static void test_one_is_in_flight(struct rank *r)
{
    const bool busy = r->rank == r->n - 1;
    struct sharer s;
    gh_pass pass;
    gh_decision d = { .struct_size = sizeof(d) };

    if (!begin(&s, r)) {
        return;
    }
    pass = (gh_pass){ .struct_size = sizeof(pass),
                      .flags = GH_PASS_FORWARD_ONLY | GH_PASS_LOCAL,
                      .stream = r->stream };
    if (busy) {
        gh_layer_enter(s.session, &pass, &d, NULL);
    }
    says_int(r, gh_session_suspend(s.session, &s.err), GH_ERR_STATE,
             "no rank is suspended: %.120s", s.err.text);
    says(r, strstr(s.err.text, busy ? "a pass is open" : "cannot") != NULL,
         "and each says why");
    if (busy) {
        gh_layer_exit(s.session, &pass, NULL);
    }
    says(r, sharer_is_exact(&s), "all go on");
    says_int(r, gh_session_suspend(s.session, &s.err), GH_OK,
             "and are suspended later %.100s", s.err.text);
    gh_session_resume(s.session, NULL);
    says(r, sharer_is_exact(&s), "exactly");
    sharer_close(&s);
}

/* Two calls: the one that fails, on whichever rank, and the next. */
static void test_one_has_no_memory(struct rank *r)
{
    struct sharer s;

    if (!begin(&s, r)) {
        return;
    }
    says_int(r, gh_session_suspend(s.session, &s.err), GH_OK, "suspended");
    if (gh_session_resume(s.session, &s.err) != GH_OK) {
        says(r, memory(&s).suspended == 1 && memory(&s).device_bytes == 0,
             "no rank has memory: %.100s", s.err.text);
        says_int(r, gh_session_resume(s.session, &s.err), GH_OK,
                 "the second time all have %.100s", s.err.text);
    } else {
        says(r, true, "all have memory");
        says(r, true, "at once");
    }
    says(r, sharer_is_exact(&s), "and the next step is right");
    sharer_close(&s);
}

/* One call fails: whichever rank has made it keeps its memory, and so do the
 * others. */
static void test_one_cannot_give(struct rank *r)
{
    struct sharer s;

    if (!begin(&s, r)) {
        return;
    }
    says(r, gh_session_suspend(s.session, &s.err) < 0,
         "no rank is suspended: %.100s", s.err.text);
    says(r,
         strstr(s.err.text, "cuMemUnmap") != NULL ||
             strstr(s.err.text, "cannot") != NULL,
         "and each says why");
    says_int(r, memory(&s).suspended, 0, "all have their memory");
    says(r, sharer_is_exact(&s), "and go on");
    says_int(r, gh_session_suspend(s.session, &s.err), GH_OK,
             "later all are suspended %.100s", s.err.text);
    gh_session_resume(s.session, NULL);
    says(r, sharer_is_exact(&s), "exactly");
    sharer_close(&s);
}

/* A rank that goes on instead is found by the others, as in a pass. */
static void test_one_does_not_come(struct rank *r)
{
    static const char *const impatient[] = { "GRAPHHOOKS_TIMEOUT=2",
                                             "GRAPHHOOKS_LOG=off", NULL };
    const struct sharer_options options = { .environment = impatient,
                                            .flags = GH_SESSION_SUSPENDS };
    struct sharer s;

    if (!sharer_open(&s, r, &options)) {
        return;
    }
    says(r, sharer_is_exact(&s), "passes are recorded");
    if (r->rank != 0) {
        says_int(r, gh_session_suspend(s.session, &s.err), GH_ERR_RANKS,
                 "a rank does not come: %.100s", s.err.text);
    } else {
        says(r, true, "this one does not suspend");
    }
    ranks_barrier(r);
    sharer_close(&s);
}

int main(void)
{
    static const struct ranks_test tests[] = {
        { "together", test_together, false },
        { "one is in flight", test_one_is_in_flight, false },
        { "one has no memory", test_one_has_no_memory, false },
    };
    static const struct ranks_test no_memory[] = {
        { "one has no memory, in fact", test_one_has_no_memory, false },
    };
    static const struct ranks_test cannot_give[] = {
        { "one cannot give", test_one_cannot_give, false },
    };
    int status;

    if (!ranks_open(&status)) {
        return status;
    }
    for (int n = 2; n <= MAX_RANKS; n++) {
        ranks_run_all(n, tests, sizeof(tests) / sizeof(tests[0]));
    }
    if (ranks_are_soft()) {
        const uint64_t calls = ranks_calls("cuMemCreate");

        ok(calls > 1, "each rank makes memory, %llu times in all",
           (unsigned long long)calls);
        ranks_fail("cuMemCreate", calls);
        ranks_run_all(MAX_RANKS, no_memory, 1);
        ranks_fail("cuMemUnmap", 1);
        ranks_run_all(MAX_RANKS, cannot_give, 1);
        ranks_fail("cuMemUnmap", 0);
        for (int seed = 2; seed < 10; seed++) {
            ranks_seed(seed);
            ranks_quiet(true);
            ranks_run_all(2 + seed % 3, tests, 2);
        }
        ranks_quiet(false);
        ranks_run_lost(2, "one does not come", test_one_does_not_come);
    }
    return done_testing();
}
