/*
 * Where ranks replay on several streams, each wait of the library's is needed:
 * without it a rank races, also with what another rank has sent.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tests/session/ranks/sharer.h"

#define STEPS 3
#define MICROBATCHES 4

static const struct sharer_options two_streams = { .two_streams = true };
static uint64_t recorded; /* waits until all is */
static bool exact[MAX_RANKS];

/* Nothing is waited for but at the end: flights follow each other in a slot,
 * on one stream and then on the other. */
static void train(struct rank *r)
{
    bool ran = true;
    struct sharer s;

    exact[r->rank] = false;
    if (!sharer_open(&s, r, &two_streams)) {
        sharer_close(&s);
        return;
    }
    ran = sharer_step(&s, MICROBATCHES) == GH_OK;
    ranks_barrier(r);
    if (r->rank == 0) {
        recorded = ranks_waits();
    }
    ranks_barrier(r);
    for (uint32_t i = 0; i < STEPS && ran; i++) {
        ran = sharer_step(&s, MICROBATCHES) == GH_OK;
    }
    ran = gh_ranks_wait(s.session, r->side, NULL) == GH_OK && ran;
    ran = gh_ranks_wait(s.session, r->stream, NULL) == GH_OK && ran;
    says_int(r, s.replayed, (STEPS * MICROBATCHES + MICROBATCHES - 1) *
                                SHARER_PASSES,
             "every pass after the first microbatch's is replayed");
    exact[r->rank] = ran;
    sharer_close(&s);
}

static void test_every_wait_is_needed(void)
{
    uint64_t first, last, caught = 0;

    ranks_run(2, "two streams", train);
    first = recorded;
    last = ranks_waits();
    ok(last - first >= 10, "%llu waits order flights that are replayed",
       (unsigned long long)(last - first));
    for (uint64_t n = first + 1; n <= last; n++) {
        ranks_drop_wait(n);
        ranks_run_lost(2, "two streams", train);
        if (soft_races() == 0) {
            diag("wait %llu can be dropped without a race",
                 (unsigned long long)n);
        }
        caught += soft_races() != 0;
    }
    ranks_drop_wait(0);
    is_int((long long)caught, (long long)(last - first),
           "each of them, dropped, is reported as a race");
}

int main(void)
{
    int status;

    if (!ranks_open(&status)) {
        return status;
    }
    if (!ranks_are_soft()) {
        return skip_all("a real device has no race detector");
    }
    test_every_wait_is_needed();
    ranks_quiet(true);
    for (int seed = 2; seed < 40; seed++) {
        ranks_seed(seed);
        ranks_run(2 + seed % 3, "seeds", train);
    }
    ranks_quiet(false);
    ok(true, "seeds have no race");
    return done_testing();
}
