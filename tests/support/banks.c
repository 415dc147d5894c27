/*
 * banks.c - see banks.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/banks.h"

#include "tap/tap.h"

struct toy s;

const char *const banks_quiet[] = { "GRAPHHOOKS_LOG=off", NULL };
const char *const banks_of_two[] = { "GRAPHHOOKS_LOG=off",
                                     "GRAPHHOOKS_MAX_BANKS=2", NULL };
const char *const banks_of_one[] = { "GRAPHHOOKS_LOG=off",
                                     "GRAPHHOOKS_MAX_BANKS=1", NULL };

bool banks_start(const struct toy_options *options)
{
    struct toy_options ours = *options;

    ours.layers = 2;
    if (ours.environment == NULL) {
        ours.environment = banks_quiet;
    }
    return toy_start(&s, &ours, "SEED=3 RACES=1");
}

bool banks_start_three(const char *const *environment)
{
    if (!banks_start(&(struct toy_options){ .elems = 512,
                                            .environment = environment })) {
        return false;
    }
    toy_add_tokens(&s, 512);
    toy_add_tokens(&s, 256);
    toy_add_tokens(&s, 128);
    return true;
}

void banks_finish(const char *what)
{
    ok(toy_is_exact(&s), "%s: every number is right", what);
    is_int(toy_races(&s), 0, "%s: nothing races", what);
    toy_close(&s);
    is_int(toy_counts(&s).execs, 0, "%s: no graph is left", what);
    is_int(toy_counts(&s).events, 0, "%s: nor an event", what);
    is_int(toy_counts(&s).device_bytes, 0, "%s: and no memory", what);
}

void banks_step(uint32_t shape)
{
    const gh_status status = toy_step_shapes(&s, &shape, 1);

    if (status != GH_OK) {
        is_status(status, GH_OK, &s.err, "a step of shape %u", shape);
    }
}
