/*
 * exchanges.c - see exchanges.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "offload/decide/exchanges.h"

#include "offload/decide/measured.h"

#include <stdlib.h>

struct exchange {
    uint32_t cell;
    bool apart, whole;
    bool hurried; /* the device began before the host had issued all of it, so
                     the time is the host's and does not count */
    void *began, *ended;
    double from, to; /* in nanoseconds after the first point; set by read_all */
    double ns;       /* 0: not known */
};

enum phase {
    PHASE_BESIDE, /* copies */
    PHASE_APART,  /* from them */
    PHASE_AGREES  /* nothing is timed */
};

struct gh_exchanges {
    struct exchange *all;
    uint32_t n;
    enum phase phase;
    bool open, failed;
    bool is_read;    /* every ns is known, or agreed on */
    void *copied[2]; /* events on the two streams of copies */
};

/* ---- its life ------------------------------------------------------------ */

static bool make(struct gh_offload *o, struct gh_exchanges *x)
{
    x->all = calloc(GH_EXCHANGES_TIMED, sizeof(*x->all));
    return x->all != NULL &&
           gh_device_event_create(o->dev, &x->copied[0], NULL) == GH_OK &&
           gh_device_event_create(o->dev, &x->copied[1], NULL) == GH_OK;
}

void gh_exchanges_begin(struct gh_offload *o)
{
    gh_exchanges_free(o);
    o->exchanges = calloc(1, sizeof(*o->exchanges));
    if (o->exchanges != NULL && !make(o, o->exchanges)) {
        gh_exchanges_free(o);
    }
}

bool gh_exchanges_go_on(struct gh_offload *o)
{
    struct gh_exchanges *x = o->exchanges;

    if (x == NULL || x->failed || x->n == 0 || x->phase == PHASE_AGREES) {
        return false;
    }
    x->phase++;
    return true;
}

void gh_exchanges_free(struct gh_offload *o)
{
    struct gh_exchanges *x = o->exchanges;

    if (x == NULL) {
        return;
    }
    for (uint32_t i = 0; i < x->n; i++) {
        gh_device_event_destroy(o->dev, x->all[i].began);
        gh_device_event_destroy(o->dev, x->all[i].ended);
    }
    gh_device_event_destroy(o->dev, x->copied[0]);
    gh_device_event_destroy(o->dev, x->copied[1]);
    free(x->all);
    free(x);
    o->exchanges = NULL;
}

/* ---- timing -------------------------------------------------------------- */

static void keep(struct gh_exchanges *x, gh_status status)
{
    x->failed = x->failed || status != GH_OK;
}

/* The stream waits for all copies that were issued. */
static void wait_for_copies(struct gh_offload *o, void *stream)
{
    void *ways[] = { o->out, o->back };
    struct gh_exchanges *x = o->exchanges;

    for (int i = 0; i < 2; i++) {
        keep(x, gh_device_event_record(o->dev, x->copied[i], ways[i], NULL));
        keep(x, gh_device_event_wait(o->dev, stream, x->copied[i], NULL));
    }
}

static void stamp(struct gh_offload *o, void **event_p, void *stream)
{
    struct gh_exchanges *x = o->exchanges;

    keep(x, gh_device_event_create_timed(o->dev, event_p, NULL));
    if (!x->failed) {
        keep(x, gh_device_event_record(o->dev, *event_p, stream, NULL));
    }
}

void gh_exchange_begin(struct gh_offload *o, uint32_t cell, void *stream)
{
    struct gh_device_before before;
    struct gh_exchanges *x = o->exchanges;
    struct exchange *one = &x->all[x->n];

    x->open =
        !x->failed && x->phase != PHASE_AGREES && x->n < GH_EXCHANGES_TIMED;
    if (!x->open) {
        return;
    }
    before = gh_device_enter(o->dev);
    x->n++;
    *one = (struct exchange){ .cell = cell, .apart = x->phase == PHASE_APART };
    if (one->apart) {
        wait_for_copies(o, stream);
    }
    stamp(o, &one->began, stream);
    gh_device_leave(o->dev, before);
}

void gh_exchange_end(struct gh_offload *o, void *stream)
{
    struct gh_device_before before;
    struct gh_exchanges *x = o->exchanges;
    struct exchange *one;

    if (!x->open || x->failed) {
        return;
    }
    before = gh_device_enter(o->dev);
    one = &x->all[x->n - 1];
    one->hurried = gh_device_event_has_ended(o->dev, one->began);
    stamp(o, &one->ended, stream);
    if (one->apart && !x->failed) {
        keep(x, gh_device_event_wait(o->dev, o->out, one->ended, NULL));
        keep(x, gh_device_event_wait(o->dev, o->back, one->ended, NULL));
    }
    one->whole = !x->failed && !one->hurried;
    x->open = false;
    gh_device_leave(o->dev, before);
}

/* ---- reading ------------------------------------------------------------- */

static bool elapsed(const struct gh_offload *o, void *event, double *ns_p)
{
    void *first = o->measure->points[0].event;

    return gh_device_event_sync(o->dev, event, NULL) == GH_OK &&
           gh_device_event_elapsed(o->dev, first, event, ns_p, NULL) == GH_OK;
}

static bool can_read(const struct gh_offload *o)
{
    return o->exchanges != NULL && o->exchanges->phase == PHASE_AGREES &&
           !o->exchanges->failed && o->measure != NULL && !o->measure->failed &&
           o->measure->n_points != 0;
}

static bool read_all(const struct gh_offload *o)
{
    struct gh_exchanges *x = o->exchanges;

    for (uint32_t i = 0; i < x->n && !x->is_read; i++) {
        struct exchange *one = &x->all[i];

        if (one->whole && !(elapsed(o, one->began, &one->from) &&
                            elapsed(o, one->ended, &one->to))) {
            return false;
        }
        one->ns = one->whole ? one->to - one->from : 0.0;
    }
    x->is_read = true;
    return true;
}

void gh_exchanges_say(struct gh_offload *o, double *ns)
{
    if (!can_read(o) || !read_all(o)) {
        return;
    }
    for (uint32_t i = 0; i < o->exchanges->n; i++) {
        ns[i] = o->exchanges->all[i].ns;
    }
}

void gh_exchanges_hear(struct gh_offload *o, const double *ns)
{
    if (ns == NULL) {
        gh_exchanges_free(o);
    }
    for (uint32_t i = 0; o->exchanges != NULL && i < o->exchanges->n; i++) {
        o->exchanges->all[i].ns = ns[i];
    }
}

/* The mean time of an exchange without copies beside it; 0: not measured. */
static double apart_ns(const struct gh_exchanges *x, uint32_t cell)
{
    double sum = 0.0;
    uint32_t n = 0;

    for (uint32_t i = 0; i < x->n; i++) {
        const struct exchange *one = &x->all[i];

        if (one->ns > 0.0 && one->apart && one->cell == cell) {
            sum += one->ns;
            n++;
        }
    }
    return n != 0 ? sum / n : 0.0;
}

/* A copy of a group that may go, on the clock of the exchanges. */
struct span {
    uint32_t group;
    double from, to;
};

/* Reads every copy once; returns how many there are. */
static uint32_t read_copies(const struct gh_offload *o,
                            const struct gh_policy_group *groups, uint32_t n,
                            struct span *spans)
{
    const struct gh_measure *m = o->measure;
    uint32_t n_spans = 0;

    for (uint32_t c = 0; c < m->n_copies; c++) {
        struct span *span = &spans[n_spans];

        span->group = gh_table_index(&o->table, m->copies[c].group);
        if (m->copies[c].whole && span->group < n &&
            groups[span->group].fate == GH_FATE_GOES &&
            elapsed(o, m->copies[c].began, &span->from) &&
            elapsed(o, m->copies[c].ended, &span->to)) {
            n_spans++;
        }
    }
    return n_spans;
}

/* Adds to each group for how long its copies ran beside the exchange. */
static void add_beside(const struct exchange *one, const struct span *spans,
                       uint32_t n_spans, double *beside)
{
    for (uint32_t i = 0; i < n_spans; i++) {
        const struct span *span = &spans[i];
        const double from = span->from > one->from ? span->from : one->from;
        const double to = span->to < one->to ? span->to : one->to;

        beside[span->group] += to > from ? to - from : 0.0;
    }
}

/* ---- deciding ------------------------------------------------------------ */

uint32_t gh_exchanges_keep(double longer_ns, double within_ns, double *beside,
                           uint32_t n)
{
    double all = 0.0, left;
    uint32_t kept = 0;

    for (uint32_t g = 0; g < n; g++) {
        all += beside[g];
    }
    for (left = all; left > 0.0 && longer_ns * (left / all) > within_ns;) {
        uint32_t most = 0;

        for (uint32_t g = 1; g < n; g++) {
            most = beside[g] >= beside[most] ? g : most;
        }
        if (beside[most] <= 0.0) {
            break; /* what is left is rounding */
        }
        left -= beside[most];
        beside[most] = 0.0;
        kept++;
    }
    return kept;
}

static void say(const struct gh_offload *o, double longer_ns, double alone_ns,
                uint32_t kept)
{
    if (kept != 0) {
        gh_log_line(o->log, GH_LOG_WARN,
                    "offload: exchanges of tokens take %.1f %% longer beside "
                    "copies: %u groups that would go stay on the device",
                    100.0 * longer_ns / alone_ns, kept);
    } else {
        gh_log_line(o->log, GH_LOG_INFO,
                    "offload: exchanges of tokens take %.1f %% longer beside "
                    "copies",
                    100.0 * longer_ns / alone_ns);
    }
}

/* Room for settling. */
struct work {
    double *beside, *going; /* by group */
    struct span *spans;     /* by copy */
    uint32_t n_spans;
};

/* Compares the exchanges whose times are known both ways. */
static void decide(struct gh_offload *o, struct gh_policy_group *groups,
                   uint32_t n, const struct work *w)
{
    const struct gh_exchanges *x = o->exchanges;
    double longer = 0.0, alone = 0.0;
    uint32_t kept;

    for (uint32_t i = 0; i < x->n; i++) {
        const struct exchange *one = &x->all[i];
        const double apart = apart_ns(x, one->cell);

        if (one->ns <= 0.0 || one->apart || apart <= 0.0) {
            continue;
        }
        alone += apart;
        longer += one->ns - apart;
        if (one->whole) {
            add_beside(one, w->spans, w->n_spans, w->beside);
        }
    }
    if (alone <= 0.0) {
        gh_log_line(o->log, GH_LOG_INFO,
                    "offload: exchanges of tokens could not be compared with "
                    "copies and without: the device has waited for the host");
        return;
    }
    for (uint32_t g = 0; g < n; g++) {
        w->going[g] = w->beside[g];
    }
    kept = gh_exchanges_keep(longer, GH_EXCHANGE_WITHIN * alone, w->beside, n);
    for (uint32_t g = 0; g < n; g++) {
        if (w->going[g] > 0.0 && w->beside[g] <= 0.0) {
            groups[g].fate = GH_FATE_EXCHANGE;
        }
    }
    say(o, longer > 0.0 ? longer : 0.0, alone, kept);
}

void gh_exchanges_decide(struct gh_offload *o, struct gh_policy_group *groups,
                         uint32_t n)
{
    struct work w;

    if (!can_read(o) || n == 0) {
        return;
    }
    w.beside = calloc(2 * (size_t)n, sizeof(*w.beside));
    w.spans = calloc(o->measure->n_copies + (size_t)1, sizeof(*w.spans));
    if (w.beside != NULL && w.spans != NULL && read_all(o)) {
        w.going = w.beside + n;
        w.n_spans = read_copies(o, groups, n, w.spans);
        decide(o, groups, n, &w);
    }
    free(w.beside);
    free(w.spans);
}
