/*
 * pairing.c - the pairs of chunks of a session, each with its walk.
 *
 * A walk is made in the first run of its pair and kept.  A training step has
 * few pairs and most often runs the one that it ran last, so the search begins
 * there.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "schedule/state.h"

#include "base/error.h"

#include <stdio.h>
#include <stdlib.h>

static void name_chunk(uint32_t chunk, const char *what, char *text,
                       size_t bytes)
{
    if (chunk == GH_NO_CHUNK) {
        snprintf(text, bytes, "no %s", what);
    } else {
        snprintf(text, bytes, "%s of chunk %u", what, chunk);
    }
}

/* Logs what the measured times predict for the pairing. */
static void say(const struct gh_schedule *s, const struct gh_pairing *p)
{
    char forward[40], backward[40];

    name_chunk(p->forward, "forward", forward, sizeof(forward));
    name_chunk(p->backward, "backward", backward, sizeof(backward));
    gh_log_answer(s->options.log,
                  "overlap: %s, %s: %s order: %.3f ms predicted, fixed %.3f; "
                  "compute %.3f, communication %.3f, of which exposed %.1f %%, "
                  "fixed %.1f %%",
                  forward, backward,
                  p->order == GH_OVERLAP_AUTO ? "auto" : "fixed",
                  p->forecast.total / 1e6, p->fixed.total / 1e6,
                  p->forecast.lanes[GH_LANE_COMPUTE] / 1e6,
                  p->forecast.lanes[GH_LANE_COMM] / 1e6,
                  100 * gh_forecast_exposed(&p->forecast),
                  100 * gh_forecast_exposed(&p->fixed));
}

static gh_status choose_sequence(struct gh_schedule *s, struct gh_pairing *p,
                                 uint32_t *sequence, gh_error *err)
{
    gh_status status;

    if (s->dev == NULL || s->options.order == GH_OVERLAP_OFF) {
        p->order = GH_OVERLAP_OFF;
        gh_sequence_serial(&p->tasks, sequence);
        return GH_OK;
    }
    p->order = GH_OVERLAP_FIXED;
    if (s->ns == NULL) {
        gh_sequence_fixed(&p->tasks, p->early, sequence);
        return GH_OK;
    }
    for (uint32_t i = 0; i < p->tasks.n; i++) {
        p->tasks.all[i].ns = s->ns[p->tasks.all[i].cell];
    }
    status = gh_sequence_best(&p->tasks, p->early, sequence, &p->forecast,
                              &p->fixed, err);
    if (status == GH_OK) {
        p->order = p->forecast.total < p->fixed.total ? GH_OVERLAP_AUTO
                                                      : GH_OVERLAP_FIXED;
        say(s, p);
    }
    return status;
}

static uint64_t hash_of(const uint32_t *sequence, uint32_t n)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);

    for (uint32_t i = 0; i < n; i++) {
        hash = (hash ^ sequence[i]) * UINT64_C(0x100000001b3);
    }
    return hash;
}

static gh_status make(struct gh_schedule *s, struct gh_pairing *p,
                      gh_error *err)
{
    uint32_t *sequence;
    gh_status status;

    status = gh_tasks_make(s->plan, p->forward, p->backward, &p->tasks, err);
    if (status != GH_OK) {
        return status;
    }
    sequence = calloc(p->tasks.n + 1, sizeof(*sequence));
    if (sequence == NULL) {
        return gh_fail(err, GH_ERR_NO_MEMORY, "no memory for a schedule");
    }
    status = choose_sequence(s, p, sequence, err);
    if (status == GH_OK) {
        p->hash = hash_of(sequence, p->tasks.n);
        status = gh_walk_make(s->plan, &p->tasks, sequence,
                              p->order == GH_OVERLAP_OFF, &p->walk, err);
    }
    free(sequence);
    return status;
}

static bool make_room(struct gh_schedule *s)
{
    const uint32_t room = s->room == 0 ? 4 : 2 * s->room;
    struct gh_pairing **all;

    if (s->n_pairings < s->room) {
        return true;
    }
    all = realloc(s->pairings, room * sizeof(*all));
    if (all == NULL) {
        return false;
    }
    s->pairings = all;
    s->room = room;
    return true;
}

static gh_status add(struct gh_schedule *s, const struct gh_pairing *wanted,
                     gh_error *err)
{
    struct gh_pairing *p = malloc(sizeof(*p));
    gh_status status;

    if (p == NULL || !make_room(s)) {
        free(p);
        return gh_fail(err, GH_ERR_NO_MEMORY, "no memory for a schedule");
    }
    *p = *wanted;
    status = make(s, p, err);
    if (status != GH_OK) {
        gh_pairing_free(s, p);
        return status;
    }
    s->pairings[s->n_pairings++] = p;
    return GH_OK;
}

gh_status gh_pairing_find(struct gh_schedule *s, const gh_overlap_pair *pair,
                          struct gh_pairing **pairing_p, gh_error *err)
{
    const struct gh_pairing wanted = {
        .forward = (pair->flags & GH_OVERLAP_FORWARD) != 0
                       ? pair->forward_chunk
                       : GH_NO_CHUNK,
        .backward = (pair->flags & GH_OVERLAP_BACKWARD) != 0
                        ? pair->backward_chunk
                        : GH_NO_CHUNK,
        .early = (pair->flags & GH_OVERLAP_EARLY_RELEASE) != 0,
    };
    gh_status status;

    for (uint32_t i = 0; i < s->n_pairings; i++) {
        const uint32_t at = (s->last + i) % s->n_pairings;
        struct gh_pairing *p = s->pairings[at];

        if (p->forward == wanted.forward && p->backward == wanted.backward &&
            p->early == wanted.early) {
            s->last = at;
            *pairing_p = p;
            return GH_OK;
        }
    }
    status = add(s, &wanted, err);
    if (status == GH_OK) {
        s->last = s->n_pairings - 1;
        *pairing_p = s->pairings[s->last];
    }
    return status;
}
