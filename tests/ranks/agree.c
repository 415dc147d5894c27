/*
 * The ranks of a bank record, replay and fall back together, and ask each other
 * only where they could part.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tests/ranks/sharer.h"

#include <string.h>

static const struct sharer_options plain;

static void test_all_replay(struct rank *r)
{
    struct sharer s;
    uint64_t asked;

    if (!sharer_open(&s, r, &plain)) {
        return;
    }
    says_int(r, (long long)sharer_stats(&s).asked, 0,
             "warmup asks nobody");
    says(r, sharer_is_exact(&s), "a recorded step is right");
    asked = sharer_stats(&s).asked;
    says_int(r, (long long)asked, 2 * SHARER_PASSES,
             "a recording asks at its beginning and at its end");
    for (uint32_t i = 0; i < 5; i++) {
        says(r, sharer_is_exact(&s), "replayed step %u is right", i);
    }
    says_int(r, s.replayed, 5 * SHARER_PASSES, "all its passes are replayed");
    says_int(r, (long long)sharer_stats(&s).asked, (long long)asked,
             "which asks nobody");
    sharer_close(&s);
}

/* Ends the capture of one rank by a call that it does not allow. */
static void break_capture(struct sharer *s, const gh_pass *pass,
                          const gh_decision *d)
{
    if (d->action == GH_ACTION_RECORD && s->r->rank == s->r->n - 1 &&
        pass->segment == 1 && pass->direction == GH_FORWARD) {
        drv.cuStreamSynchronize(d->stream);
    }
}

static void test_a_capture_fails_on_one(struct rank *r)
{
    const struct sharer_options options = { .mischief = break_capture };
    const bool fails = r->rank == r->n - 1;
    struct sharer s;

    if (!sharer_open(&s, r, &options)) {
        return;
    }
    for (uint32_t i = 0; i < 4; i++) {
        says(r, sharer_is_exact(&s), "step %u is right", i);
    }
    says_int(r, s.reruns, 1, "the pass ran again, on all ranks");
    says_int(r, (long long)sharer_eager(&s, fails ? GH_REASON_CAPTURE
                                                  : GH_REASON_RANKS),
             4, "and is eager, by its reason");
    says_int(r, s.replayed, 3 * (SHARER_PASSES - 1), "the others are replayed");
    says(r, sharer_said(&s, fails ? "cuStreamEndCapture" : "could not record"),
         "which is said: %.120s", s.said);
    sharer_close(&s);
}

static gh_status refuse_to_record(void *user, const gh_recording *recording)
{
    struct sharer *s = user;

    return recording->segment == 0 && s->r->rank == 0 ? GH_ERR_NO_MEMORY
                                                      : GH_OK;
}

static void ignore_end(void *user, const gh_recording *recording, uint32_t kept)
{
    (void)user;
    (void)recording;
    (void)kept;
}

static void test_a_recording_cannot_begin_on_one(struct rank *r)
{
    const gh_host_services host = { .record_begin = refuse_to_record,
                                    .record_end = ignore_end,
                                    .before_recording = NULL };
    const struct sharer_options options = { .host = &host };
    struct sharer s;

    if (!sharer_open(&s, r, &options)) {
        return;
    }
    for (uint32_t i = 0; i < 4; i++) {
        says(r, sharer_is_exact(&s), "step %u is right", i);
    }
    says_int(r, s.reruns, 0, "nothing had to run again");
    says_int(r, s.recorded, r->rank == 0 ? 2 : 2,
             "the passes of one segment are recorded");
    says_int(r, s.replayed, 3 * 2, "and replayed");
    says(r, r->rank == 0 ? sharer_eager(&s, GH_REASON_DEVICE) == 4 * 2
                         : sharer_eager(&s, GH_REASON_RANKS) == 4 * 2,
         "the others' are eager on all ranks");
    sharer_close(&s);
}

/* With a larger input than the graph has: all ranks alike, or one alone. */
static void test_all_leave(struct rank *r)
{
    struct sharer s;
    uint64_t asked;

    if (!sharer_open(&s, r, &plain)) {
        return;
    }
    says(r, sharer_is_exact(&s) && sharer_is_exact(&s), "two steps are right");
    asked = sharer_stats(&s).asked;
    s.floats = SHARER_FLOATS / 2;
    says(r, sharer_is_exact(&s), "a step of another size is right");
    says_int(r, (long long)sharer_eager(&s, GH_REASON_INPUT), SHARER_PASSES,
             "it is eager");
    says_int(r, (long long)(sharer_stats(&s).asked - asked), SHARER_PASSES,
             "each of its passes asks once");
    s.floats = SHARER_FLOATS;
    says(r, sharer_is_exact(&s), "the next one is right");
    says_int(r, s.replayed, 2 * SHARER_PASSES, "and replayed");
    sharer_close(&s);
}

int main(void)
{
    static const struct ranks_test tests[] = {
        { "all ranks replay", test_all_replay, false },
        { "a capture fails on one", test_a_capture_fails_on_one, false },
        { "a recording cannot begin on one",
          test_a_recording_cannot_begin_on_one, false },
        { "all leave", test_all_leave, false },
    };
    const size_t n_tests = sizeof(tests) / sizeof(tests[0]);
    int status;

    if (!ranks_open(&status)) {
        return status;
    }
    for (int n = 2; n <= MAX_RANKS; n++) {
        ranks_run_all(n, tests, n_tests);
    }
    return done_testing();
}
