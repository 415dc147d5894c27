/*
 * stuck.c - detects deadlocks: no rank is left that could come.
 *
 * An operation waits for ranks that have not come to it.  The thread that last
 * used a rank's communicator is expected to issue the operation.  When each of
 * these threads waits itself or has ended, and nothing has happened for a
 * moment, all waiting operations are reported and given up, so that their
 * threads go on.  A thread that runs may still come, so it is given
 * SOFTNCCL_TIMEOUT seconds.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "softnccl/stuck.h"

#include "softnccl/gather.h"
#include "softnccl/match.h"
#include "softnccl/report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    GRACE_MS = 200, /* for a thread that is new to its communicator */
    TIMEOUT_S = 30
};

uint64_t stuck_limit_ms(void)
{
    const char *text = getenv("SOFTNCCL_TIMEOUT");
    char *end;
    unsigned long s;

    if (text != NULL && *text >= '0') { /* strtoul takes blanks and signs */
        s = strtoul(text, &end, 10);
        if (*end == '\0' && s > 0 && s < 1000000) {
            return (uint64_t)s * 1000;
        }
    }
    return (uint64_t)TIMEOUT_S * 1000;
}

static const char *state_of(const struct ncclComm *comm)
{
    if (comm == NULL) {
        return "has left the communicator";
    }
    switch (device->thread_is(comm->owner)) {
    case SOFTCUDA_THREAD_WAITS:
        return "has not come, and its thread waits";
    case SOFTCUDA_THREAD_GONE:
        return "has not come, and its thread has ended";
    default:
        return "has not come";
    }
}

static bool can_come(const struct ncclComm *comm)
{
    return comm != NULL &&
           device->thread_is(comm->owner) == SOFTCUDA_THREAD_RUNS;
}

static bool anyone_can_come(const struct match *match)
{
    for (uint32_t i = 0; i < match->places; i++) {
        if (match->parts[i].comm == NULL &&
            can_come(match->team->ranks[match_rank(match, i)])) {
            return true;
        }
    }
    return false;
}

/* All are said before any is given up, since that is news to who waits. */
static void say(struct match *match, const char *why)
{
    char what[200], ranks[400] = "";
    size_t n = 0;

    match_describe(match, what, sizeof(what));
    for (uint32_t i = 0; i < match->places; i++) {
        const int rank = match_rank(match, i);

        n += (size_t)snprintf(ranks + n, sizeof(ranks) - n, "%srank %d %s",
                              i > 0 ? ", " : "", rank,
                              match->parts[i].comm != NULL
                                  ? "is in it"
                                  : state_of(match->team->ranks[rank]));
        if (n >= sizeof(ranks)) {
            break;
        }
    }
    snprintf(match->why, sizeof(match->why), "%s",
             report("deadlock", "%s %s: %s", what, why, ranks));
}

static void give_up(struct match *match)
{
    team_break(match->team, ncclRemoteError, match->why);
    match_fail(match);
}

void stuck_watch(uint64_t quiet_ms)
{
    const uint64_t now = device->now_ms(), limit = stuck_limit_ms();
    bool hopeless = quiet_ms >= GRACE_MS;

    for (const struct match *m = matches_first(); m != NULL; m = m->next) {
        hopeless = hopeless && (m->failed || !anyone_can_come(m));
    }
    hopeless = hopeless && !gathers_can_end();
    for (struct match *m = matches_first(); m != NULL; m = m->next) {
        if (m->failed) {
            continue;
        }
        if (hopeless) {
            say(m, "can never end");
        } else if (now - m->began_ms > limit) {
            say(m, "has waited too long");
        }
    }
    for (struct match *m = matches_first(); m != NULL; m = m->next) {
        if (m->why[0] != '\0' && !m->failed) {
            give_up(m);
        }
    }
    gathers_give_up(hopeless, now, limit);
}
