/*
 * simulate.c - see simulate.h.
 *
 * Buffers are taken in turn, as gh_ring_buffer_of() does it for flights that
 * follow each other.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "plan/simulate.h"

#include <stdlib.h>
#include <string.h>

/* lib/offload/move/prefetch.c looks as far ahead. */
#define LOOK_AHEAD 16
/* How many flights are simulated if the profile has no marks. */
#define MADE_FLIGHTS 2

enum where {
    NOWHERE,
    AWAY,
    BACK,
    READ
};

/* One group in one flight. */
struct item {
    enum where where;
    uint32_t turn; /* its turn in the ring on the way out */
    double copied; /* when it was on the host */
    double filled; /* when it is back on the device */
};

struct ring {
    uint32_t out_buffers, back_buffers;
    uint32_t turn; /* saves so far */
    uint32_t taken; /* the turn of the ring on the way back */
    double *read;  /* when each buffer was copied out */
};

struct gh_simulation {
    const struct gh_policy *policy;
    const struct gh_profile *profile;
    const struct gh_mark *marks;
    struct gh_mark *made; /* NULL: the profile has marks */
    uint32_t n_marks, n_flights;
    struct item *items; /* the groups of each flight */
    struct ring *rings;
    double *read; /* the `read` of all rings */
    uint32_t n_read;
    double *stalls, *save_stalls; /* of each group */

    uint32_t prefetch;
    double now, out_free, back_free;
    struct gh_forecast *forecast;
};

bool gh_simulation_can(const struct gh_profile *profile)
{
    for (uint32_t g = 0; g < profile->n_groups && profile->n_marks == 0; g++) {
        if (profile->groups[g].fate == GH_FATE_GOES &&
            profile->groups[g].gap_ns == 0) {
            return false;
        }
    }
    return profile->n_groups != 0;
}

/* ---- marks of gaps ---------------------------------------------------------- */

/* The next group of the chunk after g; n_groups: none. */
static uint32_t next_of_chunk(const struct gh_profile *p, uint32_t g,
                              uint32_t chunk)
{
    while (g < p->n_groups &&
           (p->groups[g].chunk != chunk || p->groups[g].gap_ns == 0)) {
        g++;
    }
    return g;
}

/* The time between a group and the next one, in the forward and the backward
 * together. */
static double between(const struct gh_profile *p, uint32_t g, uint32_t next)
{
    const uint64_t gap = p->groups[g].gap_ns;
    const uint64_t inner = next < p->n_groups ? p->groups[next].gap_ns : 0;

    return gap > inner ? (double)(gap - inner) : 0.0;
}

static void put(struct gh_simulation *s, enum gh_mark_verb verb, uint32_t group,
                uint32_t flight, double at)
{
    s->made[s->n_marks++] =
        (struct gh_mark){ (uint64_t)at, group, flight, verb };
}

/* Makes the marks of one forward of the chunk and its backward, which takes
 * twice as long.  The first group takes as long as the second.  Returns when
 * the backward ends. */
static double make_flight(struct gh_simulation *s, uint32_t chunk,
                          uint32_t flight, double at)
{
    const struct gh_profile *p = s->profile;
    const uint32_t first = next_of_chunk(p, 0, chunk);
    const uint32_t second = next_of_chunk(p, first + 1, chunk);
    uint32_t last = first, g;
    double end = at;

    if (first == p->n_groups) {
        return at;
    }
    put(s, GH_MARK_SAVE, first, flight, at);
    at += second < p->n_groups ? between(p, first, second) / 3.0 : 0.0;
    for (g = first; g < p->n_groups; g = next_of_chunk(p, g + 1, chunk)) {
        const uint32_t next = next_of_chunk(p, g + 1, chunk);

        put(s, GH_MARK_COMMIT, g, flight, at);
        last = g;
        if (next < p->n_groups) {
            put(s, GH_MARK_SAVE, next, flight, at);
            at += between(p, g, next) / 3.0;
        }
    }
    at += (double)p->groups[last].gap_ns;
    for (g = last + 1; g-- > first;) {
        if (p->groups[g].chunk != chunk || p->groups[g].gap_ns == 0) {
            continue;
        }
        if (g != last) {
            const uint32_t after = next_of_chunk(p, g + 1, chunk);

            end = at + 2.0 / 3.0 * between(p, g, after);
            put(s, GH_MARK_RELEASE, after, flight, end);
            at = end;
        }
        put(s, GH_MARK_LOAD, g, flight, at);
    }
    end = at + (second < p->n_groups ? 2.0 / 3.0 * between(p, first, second)
                                     : 0.0);
    put(s, GH_MARK_RELEASE, first, flight, end);
    return end;
}

static bool make_marks(struct gh_simulation *s)
{
    const struct gh_profile *p = s->profile;
    uint32_t chunks = 0;
    double at = 0.0;

    for (uint32_t g = 0; g < p->n_groups; g++) {
        chunks = p->groups[g].chunk >= chunks ? p->groups[g].chunk + 1 : chunks;
    }
    s->made = calloc((size_t)p->n_groups * 4 * MADE_FLIGHTS, sizeof(*s->made));
    if (s->made == NULL) {
        return false;
    }
    for (uint32_t flight = 0; flight < MADE_FLIGHTS; flight++) {
        for (uint32_t chunk = 0; chunk < chunks; chunk++) {
            at = make_flight(s, chunk, flight, at);
        }
    }
    s->marks = s->made;
    return true;
}

/* ---- life ---------------------------------------------------------------------- */

static bool make_rings(struct gh_simulation *s)
{
    const struct gh_profile *p = s->profile;
    uint32_t at = 0;

    s->rings = calloc(p->n_classes + (size_t)1, sizeof(*s->rings));
    for (uint32_t c = 0; s->rings != NULL && c < p->n_classes; c++) {
        /* One more than now: the policy may widen the class. */
        s->n_read += gh_policy_ring_buffers(s->policy, &p->classes[c]) + 1;
    }
    s->read = calloc(s->n_read + (size_t)1, sizeof(*s->read));
    for (uint32_t c = 0; s->read != NULL && s->rings != NULL &&
                         c < p->n_classes; c++) {
        s->rings[c].read = s->read + at;
        at += gh_policy_ring_buffers(s->policy, &p->classes[c]) + 1;
    }
    return s->rings != NULL && s->read != NULL;
}

struct gh_simulation *gh_simulation_create(const struct gh_policy *policy,
                                           const struct gh_profile *profile)
{
    struct gh_simulation *s = calloc(1, sizeof(*s));

    if (s == NULL) {
        return NULL;
    }
    s->policy = policy;
    s->profile = profile;
    s->marks = profile->marks;
    s->n_marks = profile->n_marks;
    if (!make_rings(s) || (s->n_marks == 0 && !make_marks(s))) {
        gh_simulation_free(s);
        return NULL;
    }
    for (uint32_t m = 0; m < s->n_marks; m++) {
        if (s->marks[m].flight >= s->n_flights) {
            s->n_flights = s->marks[m].flight + 1;
        }
    }
    s->items = calloc((size_t)s->n_flights * profile->n_groups + 1,
                      sizeof(*s->items));
    s->stalls = calloc(2 * profile->n_groups + (size_t)1, sizeof(*s->stalls));
    if (s->items == NULL || s->stalls == NULL) {
        gh_simulation_free(s);
        return NULL;
    }
    s->save_stalls = s->stalls + profile->n_groups;
    return s;
}

void gh_simulation_free(struct gh_simulation *s)
{
    if (s == NULL) {
        return;
    }
    free(s->made);
    free(s->items);
    free(s->rings);
    free(s->read);
    free(s->stalls);
    free(s);
}

/* ---- a step --------------------------------------------------------------------- */

static struct item *item_of(const struct gh_simulation *s, uint32_t flight,
                            uint32_t group)
{
    return &s->items[(size_t)flight * s->profile->n_groups + group];
}

static double later(double a, double b)
{
    return a > b ? a : b;
}

/* For how much of the next `ns` a stream of copies is busy. */
static double busy(double now, double until, double ns)
{
    const double left = until > now ? until - now : 0.0;

    return left < ns ? left : ns;
}

/* Lets the compute go on for `ns`, slowed down while copies run. */
static void compute(struct gh_simulation *s, double ns)
{
    const double slowdown = s->profile->slowdown < 0.0 ? GH_COPY_SLOWDOWN
                                                        : s->profile->slowdown;
    const double beside = later(busy(s->now, s->out_free, ns),
                                busy(s->now, s->back_free, ns));

    s->now += ns + slowdown * beside;
}

static void wait_until(struct gh_simulation *s, double at, uint32_t group)
{
    if (at > s->now) {
        s->forecast->stalls++;
        s->forecast->stalled_ns += at - s->now;
        s->stalls[group] += at - s->now;
        s->now = at;
    }
}

static void take_buffer(struct gh_simulation *s, const struct gh_mark *mark)
{
    struct item *item = item_of(s, mark->flight, mark->group);
    struct ring *ring = &s->rings[s->profile->groups[mark->group].size_class];
    const double before = s->stalls[mark->group];

    item->turn = ring->turn++ % ring->out_buffers;
    wait_until(s, ring->read[item->turn], mark->group);
    s->save_stalls[mark->group] += s->stalls[mark->group] - before;
}

static void save(struct gh_simulation *s, const struct gh_mark *mark)
{
    if (!s->profile->groups[mark->group].late) {
        take_buffer(s, mark);
    }
}

static void commit(struct gh_simulation *s, const struct gh_mark *mark)
{
    struct item *item = item_of(s, mark->flight, mark->group);
    struct ring *ring = &s->rings[s->profile->groups[mark->group].size_class];
    const double ns = gh_policy_out_ns(s->profile, mark->group);
    const uint32_t most = s->policy->most_out;

    if (s->profile->groups[mark->group].late) {
        take_buffer(s, mark);
    }
    s->out_free = later(s->now, s->out_free) + ns;
    s->forecast->copy_ns += ns;
    item->copied = s->out_free;
    item->where = AWAY;
    ring->read[item->turn] = s->out_free;
    if (most != 0 && most < ring->out_buffers) {
        const uint32_t oldest = item->turn + ring->out_buffers - most;

        wait_until(s, ring->read[oldest % ring->out_buffers], mark->group);
    }
}

static void bring_back(struct gh_simulation *s, struct item *item,
                       uint32_t group)
{
    const double ns = gh_policy_back_ns(s->profile, group);

    s->back_free = later(later(s->now, s->back_free), item->copied) + ns;
    s->forecast->copy_ns += ns;
    item->filled = s->back_free;
    item->where = BACK;
    s->rings[s->profile->groups[group].size_class].taken++;
}

static void look_ahead(struct gh_simulation *s, const struct gh_mark *mark)
{
    const struct gh_policy_group *groups = s->profile->groups;
    uint32_t looked = 0, ahead = 0;

    for (uint32_t g = mark->group; g-- > 0 && looked < LOOK_AHEAD;) {
        struct item *item = item_of(s, mark->flight, g);
        const struct ring *ring = &s->rings[groups[g].size_class];

        if (groups[g].chunk != groups[mark->group].chunk) {
            continue;
        }
        looked++;
        if (groups[g].fate != GH_FATE_GOES) {
            continue;
        }
        if (s->prefetch != 0 && ++ahead > s->prefetch) {
            return;
        }
        if (item->where == AWAY && ring->taken < ring->back_buffers) {
            bring_back(s, item, g);
        }
    }
}

static void load(struct gh_simulation *s, const struct gh_mark *mark)
{
    struct item *item = item_of(s, mark->flight, mark->group);

    if (item->where == AWAY) {
        bring_back(s, item, mark->group);
    }
    if (item->where != BACK) { /* the profile began after its commit */
        return;
    }
    wait_until(s, item->filled, mark->group);
    item->where = READ;
    look_ahead(s, mark);
}

static void release(struct gh_simulation *s, const struct gh_mark *mark)
{
    struct item *item = item_of(s, mark->flight, mark->group);

    if (item->where != READ) {
        return;
    }
    item->where = NOWHERE;
    s->rings[s->profile->groups[mark->group].size_class].taken--;
    look_ahead(s, mark);
}

static void reset(struct gh_simulation *s)
{
    const struct gh_profile *p = s->profile;

    memset(s->items, 0, (size_t)s->n_flights * p->n_groups * sizeof(*s->items));
    memset(s->read, 0, s->n_read * sizeof(*s->read));
    memset(s->stalls, 0, 2 * p->n_groups * sizeof(*s->stalls));
    for (uint32_t c = 0; c < p->n_classes; c++) {
        s->rings[c].out_buffers =
            gh_policy_ring_buffers_out(s->policy, &p->classes[c]);
        s->rings[c].back_buffers =
            gh_policy_ring_buffers(s->policy, &p->classes[c]);
        s->rings[c].turn = s->rings[c].taken = 0;
    }
    s->now = s->out_free = s->back_free = 0.0;
}

void gh_simulate(struct gh_simulation *s, uint32_t prefetch,
                 struct gh_forecast *forecast)
{
    static void (*const verbs[])(struct gh_simulation *,
                                 const struct gh_mark *) = {
        [GH_MARK_SAVE] = save,
        [GH_MARK_COMMIT] = commit,
        [GH_MARK_LOAD] = load,
        [GH_MARK_RELEASE] = release,
    };
    uint64_t at = s->n_marks != 0 ? s->marks[0].at_ns : 0;

    *forecast = (struct gh_forecast){ .prefetch = prefetch };
    reset(s);
    s->prefetch = prefetch;
    s->forecast = forecast;
    for (uint32_t m = 0; m < s->n_marks; m++) {
        const struct gh_mark *mark = &s->marks[m];

        compute(s, (double)(mark->at_ns - at));
        at = mark->at_ns;
        if (s->profile->groups[mark->group].fate == GH_FATE_GOES) {
            verbs[mark->verb](s, mark);
        } else if (mark->verb == GH_MARK_LOAD ||
                   mark->verb == GH_MARK_RELEASE) {
            look_ahead(s, mark);
        }
    }
    forecast->without_ns = s->n_marks != 0 ? (double)(at - s->marks[0].at_ns)
                                           : 0.0;
    forecast->with_ns = s->now;
}

double gh_simulated_stall(const struct gh_simulation *s, uint32_t group)
{
    return s->stalls[group];
}

double gh_simulated_save_stall(const struct gh_simulation *s, uint32_t group)
{
    return s->save_stalls[group];
}
