/*
 * times.c - what was measured, when it is over: see measure.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "offload/decide/measured.h"

#include <stdlib.h>

/* Streams of the host that are told apart. */
#define MOST_STREAMS 16u
/* The most points and copies that are compared to find what copies cost. */
#define MOST_COMPARED 2048u

static bool read_points(const struct gh_offload *o, struct gh_measure *m)
{
    for (uint32_t p = 0; p < m->n_points; p++) {
        struct point *point = &m->points[p];

        if (gh_device_event_sync(o->dev, point->event, NULL) != GH_OK ||
            gh_device_event_elapsed(o->dev, m->points[0].event, point->event,
                                    &point->at, NULL) != GH_OK) {
            return false;
        }
    }
    return m->n_points != 0;
}

static double length_of(const struct gh_offload *o, const struct copy *copy)
{
    double ns;

    if (!copy->whole ||
        gh_device_event_elapsed(o->dev, copy->began, copy->ended, &ns, NULL) !=
            GH_OK) {
        return 0.0;
    }
    return ns > 0.0 ? ns : 0.0;
}

/* The time of each group's copies, and the rates of both ways. */
static void read_copies(const struct gh_offload *o, const struct gh_measure *m,
                        struct gh_profile *profile)
{
    double ns[2] = { 0.0, 0.0 }, bytes[2] = { 0.0, 0.0 };

    for (uint32_t g = 0; g < profile->n_groups; g++) {
        struct gh_policy_group *group = &profile->groups[g];
        double of_group[2] = { 0.0, 0.0 };
        uint32_t n[2] = { 0, 0 };

        for (uint32_t c = 0; c < m->n_copies; c++) {
            const struct copy *copy = &m->copies[c];
            const double took =
                copy->group == o->table.groups[g] ? length_of(o, copy) : 0.0;

            if (took > 0.0) {
                of_group[copy->out] += took;
                n[copy->out]++;
                ns[copy->out] += took;
                bytes[copy->out] += (double)copy->bytes;
            }
        }
        group->out_ns = n[1] != 0 ? (uint64_t)(of_group[1] / n[1]) : 0;
        group->back_ns = n[0] != 0 ? (uint64_t)(of_group[0] / n[0]) : 0;
    }
    profile->out_rate = ns[1] > 0.0 ? bytes[1] * 1000.0 / ns[1] : 0.0;
    profile->back_rate = ns[0] > 0.0 ? bytes[0] * 1000.0 / ns[0] : 0.0;
}

/* Whether the point before is the ASKED of this one. */
static bool is_answer(const struct gh_measure *m, uint32_t p)
{
    const enum gh_point what = m->points[p].what;

    return p > 0 && (what == GH_POINT_SAVE || what == GH_POINT_LOAD) &&
           m->points[p - 1].what == (what == GH_POINT_SAVE
                                         ? GH_POINT_SAVE_ASKED
                                         : GH_POINT_LOAD_ASKED) &&
           m->points[p - 1].group == m->points[p].group;
}

/* Copies, in nanoseconds after the first point. */
struct span {
    double from, to;
};

static uint32_t read_spans(const struct gh_offload *o,
                           const struct gh_measure *m, struct span *spans)
{
    uint32_t n = 0;

    for (uint32_t c = 0; c < m->n_copies && n < MOST_COMPARED; c++) {
        void *first = m->points[0].event;

        n += m->copies[c].whole &&
             gh_device_event_elapsed(o->dev, first, m->copies[c].began,
                                     &spans[n].from, NULL) == GH_OK &&
             gh_device_event_elapsed(o->dev, first, m->copies[c].ended,
                                     &spans[n].to, NULL) == GH_OK;
    }
    return n;
}

static double share_beside(const struct span *spans, uint32_t n, double from,
                           double to)
{
    double beside = 0.0;

    for (uint32_t s = 0; s < n; s++) {
        const double begin = spans[s].from > from ? spans[s].from : from;
        const double end = spans[s].to < to ? spans[s].to : to;

        beside += end > begin ? end - begin : 0.0;
    }
    return beside < to - from ? beside / (to - from) : 1.0;
}

/* Compares the times from one point of a stream to the next, where nothing is
 * waited for. */
static double read_slowdown(const struct gh_offload *o,
                            const struct gh_measure *m)
{
    struct span *spans = calloc(MOST_COMPARED, sizeof(*spans));
    struct gh_interval *intervals = calloc(MOST_COMPARED, sizeof(*intervals));
    uint32_t n = 0, n_spans;
    double slowdown = -1.0;

    if (spans != NULL && intervals != NULL) {
        n_spans = read_spans(o, m, spans);
        for (uint32_t p = 1; p < m->n_points && n < MOST_COMPARED; p++) {
            const struct point *to = &m->points[p], *from = to - 1;

            if (from->stream == to->stream && !is_answer(m, p) &&
                to->at > from->at) {
                intervals[n++] = (struct gh_interval){
                    .work =
                        ((uint64_t)gh_table_index(&o->table, from->group)
                         << 36) |
                        ((uint64_t)gh_table_index(&o->table, to->group) << 8) |
                        (uint64_t)from->what << 4 | to->what,
                    .ns = to->at - from->at,
                    .beside = share_beside(spans, n_spans, from->at, to->at),
                };
            }
        }
        slowdown = gh_policy_slowdown(intervals, n);
    }
    free(spans);
    free(intervals);
    return slowdown;
}

/* Takes what a stream has waited so far out of the times of its points. */
static bool take_waits_out(struct gh_measure *m)
{
    struct {
        void *stream;
        double waited;
    } streams[MOST_STREAMS];
    uint32_t n = 0;

    for (uint32_t p = 0; p < m->n_points; p++) {
        struct point *point = &m->points[p];
        uint32_t s = 0;

        while (s < n && streams[s].stream != point->stream) {
            s++;
        }
        if (s == MOST_STREAMS) {
            return false;
        }
        if (s == n) {
            streams[n].stream = point->stream;
            streams[n++].waited = 0.0;
        }
        if (is_answer(m, p)) {
            /* `at` of the point before has lost what was waited already. */
            streams[s].waited += point->at - streams[s].waited - point[-1].at;
        }
        point->at -= streams[s].waited;
    }
    return true;
}

/* The number of a microbatch in the order of first saves. */
static uint32_t flight_of(uint32_t *microbatches, uint32_t *n,
                          uint32_t microbatch)
{
    for (uint32_t f = 0; f < *n; f++) {
        if (microbatches[f] == microbatch) {
            return f;
        }
    }
    microbatches[*n] = microbatch;
    return (*n)++;
}

/* A stable sort: marks of one time stay in the order of issue.  Only marks of
 * different streams are out of order, and not by far. */
static void sort_marks(struct gh_mark *marks, uint32_t n)
{
    for (uint32_t i = 1; i < n; i++) {
        const struct gh_mark mark = marks[i];
        uint32_t at = i;

        for (; at > 0 && marks[at - 1].at_ns > mark.at_ns; at--) {
            marks[at] = marks[at - 1];
        }
        marks[at] = mark;
    }
}

static uint32_t make_marks(const struct gh_offload *o,
                           const struct gh_measure *m, struct gh_mark *marks,
                           uint32_t *microbatches)
{
    static const enum gh_mark_verb verbs[] = {
        [GH_POINT_SAVE] = GH_MARK_SAVE,
        [GH_POINT_COMMIT] = GH_MARK_COMMIT,
        [GH_POINT_LOAD] = GH_MARK_LOAD,
        [GH_POINT_RELEASE] = GH_MARK_RELEASE,
    };
    uint32_t n = 0, flights = 0;

    for (uint32_t p = 0; p < m->n_points; p++) {
        const struct point *point = &m->points[p];
        const uint32_t g = gh_table_index(&o->table, point->group);

        if (point->what == GH_POINT_SAVE_ASKED ||
            point->what == GH_POINT_LOAD_ASKED || g == o->table.n_groups) {
            continue;
        }
        marks[n++] = (struct gh_mark){
            .at_ns = point->at > 0.0 ? (uint64_t)point->at : 0,
            .group = g,
            .flight = flight_of(microbatches, &flights, point->microbatch),
            .verb = verbs[point->what],
        };
    }
    return n;
}

/* Sets the shortest time from a commit of each group to its load. */
static void find_gaps(struct gh_profile *profile, const struct gh_mark *marks,
                      uint32_t n)
{
    for (uint32_t c = 0; c < n; c++) {
        struct gh_policy_group *group = &profile->groups[marks[c].group];

        for (uint32_t l = c + 1; marks[c].verb == GH_MARK_COMMIT && l < n;
             l++) {
            if (marks[l].verb == GH_MARK_LOAD &&
                marks[l].group == marks[c].group &&
                marks[l].flight == marks[c].flight) {
                const uint64_t gap = marks[l].at_ns - marks[c].at_ns;

                group->gap_ns = group->gap_ns == 0 || gap < group->gap_ns
                                    ? gap + (gap == 0)
                                    : group->gap_ns;
                break;
            }
        }
    }
}

/* Half of the points are enough: the times are then the host's. */
bool gh_measure_was_idle(const struct gh_offload *o)
{
    return o->measure != NULL && o->measure->idle > o->measure->n_points / 2;
}

bool gh_measure_read(struct gh_offload *o, struct gh_profile *profile,
                     struct gh_mark **marks_p)
{
    struct gh_measure *m = o->measure;
    struct gh_mark *marks;
    uint32_t *microbatches;
    bool known;

    if (m == NULL || m->failed || !read_points(o, m)) {
        return false;
    }
    read_copies(o, m, profile);
    profile->slowdown = read_slowdown(o, m);
    if (!take_waits_out(m)) {
        return false;
    }
    marks = calloc(m->n_points, sizeof(*marks));
    microbatches = calloc(m->n_points, sizeof(*microbatches));
    known = marks != NULL && microbatches != NULL;
    if (known) {
        profile->n_marks = make_marks(o, m, marks, microbatches);
        sort_marks(marks, profile->n_marks);
        find_gaps(profile, marks, profile->n_marks);
        profile->marks = marks;
        *marks_p = marks;
    } else {
        free(marks);
    }
    free(microbatches);
    return known;
}

static bool is_done(const struct gh_offload *o, const struct gh_measure *m)
{
    const struct copy *copies = m->copies;

    return !m->failed && m->over && m->n_points != 0 && m->n_copies != 0 &&
           gh_device_event_has_ended(o->dev,
                                     m->points[m->n_points - 1].event) &&
           copies[m->n_copies - 1].whole &&
           gh_device_event_has_ended(o->dev, copies[m->n_copies - 1].ended);
}

/* Less is no wait: an event alone takes about that long. */
#define LEAST_STALL_NS 5000.0

/* A wait of a step: for the buffer of a group, or for its copy back. */
struct stall {
    const struct gh_group *group;
    bool saves;
    double ns;
};

/* The longest wait of a launch, until the last copy that it waits for.  Moves
 * `w` on to the next launch. */
static struct stall stall_of_launch(const struct gh_offload *o,
                                    const struct gh_measure *m, uint32_t *w)
{
    const uint32_t point = m->waits[*w].point;
    struct stall longest = { NULL, false, 0.0 };
    double ns;

    for (; *w < m->n_waits && m->waits[*w].point == point; ++*w) {
        const struct wait *wait = &m->waits[*w];
        const struct copy *copy = &m->copies[wait->copy];

        if (copy->whole &&
            gh_device_event_elapsed(o->dev, m->points[point].event, copy->ended,
                                    &ns, NULL) == GH_OK &&
            ns > longest.ns) {
            longest = (struct stall){ wait->group, wait->saves, ns };
        }
    }
    return longest;
}

/* Calls `call` for each wait of the step. */
static void for_each_stall(const struct gh_offload *o,
                           const struct gh_measure *m,
                           void (*call)(const struct gh_offload *o,
                                        const struct stall *stall, void *user),
                           void *user)
{
    for (uint32_t p = 1; p < m->n_points; p++) {
        struct stall stall = { m->points[p].group,
                               m->points[p].what == GH_POINT_SAVE, 0.0 };

        if (is_answer(m, p) &&
            gh_device_event_elapsed(o->dev, m->points[p - 1].event,
                                    m->points[p].event, &stall.ns,
                                    NULL) == GH_OK &&
            stall.ns > LEAST_STALL_NS) {
            call(o, &stall, user);
        }
    }
    for (uint32_t w = 0; w < m->n_waits;) {
        const struct stall stall = stall_of_launch(o, m, &w);

        if (stall.ns > LEAST_STALL_NS) {
            call(o, &stall, user);
        }
    }
}

static void count_stall(const struct gh_offload *o, const struct stall *stall,
                        void *user)
{
    gh_offload_stats *stats = user;

    (void)o;
    stats->stalls++;
    stats->stalled_ns += (uint64_t)stall->ns;
}

bool gh_measure_sum(const struct gh_offload *o, gh_offload_stats *stats)
{
    const struct gh_measure *m = o->measure;

    if (m == NULL || !is_done(o, m)) {
        return false;
    }
    for (uint32_t c = 0; c < m->n_copies; c++) {
        stats->timed_ns += (uint64_t)length_of(o, &m->copies[c]);
    }
    for_each_stall(o, m, count_stall, stats);
    stats->timed_steps++;
    return true;
}

static void add_stall(const struct gh_offload *o, const struct stall *stall,
                      void *user)
{
    double *sum = (double *)user + 2 * gh_table_index(&o->table, stall->group);

    sum[0] += stall->ns;
    sum[1] += stall->saves ? stall->ns : 0.0;
}

const struct gh_group *gh_measure_worst(const struct gh_offload *o, double *ns,
                                        double *save_ns)
{
    const struct gh_group *worst = NULL;
    double *sums = calloc(2 * (o->table.n_groups + (size_t)1), sizeof(*sums));

    *ns = *save_ns = 0.0;
    if (sums != NULL && o->measure != NULL && is_done(o, o->measure)) {
        for_each_stall(o, o->measure, add_stall, sums);
    }
    for (uint32_t g = 0; sums != NULL && g < o->table.n_groups; g++) {
        if (sums[2 * g] > *ns) {
            worst = o->table.groups[g];
            *ns = sums[2 * g];
            *save_ns = sums[2 * g + 1];
        }
    }
    free(sums);
    return worst;
}
