/*
 * watchdog.c - see watchdog.h.
 *
 * Invariant: marks from `first` up to `next` are the thread's, and it alone
 * moves `first`; the session alone moves `next`, and writes the others.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "capture/watchdog.h"

#include "base/error.h"
#include "base/thread.h"
#include "pass/pass.h"
#include "ranks/ranks.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* Replays that are looked at; those of more are not, until some have ended. */
#define MARKS 256u
/* Between two looks, in milliseconds: a tenth of the time limit, within these.
 */
#define LEAST_MS 50u
#define MOST_MS 1000u

struct mark {
    void *event;
    uint64_t step;
    uint32_t segment, direction, microbatch;
    struct gh_rank_of of;
};

struct gh_watchdog {
    struct gh_device *dev;
    const struct gh_plan *plan;
    uint32_t timeout_s;
    struct mark marks[MARKS];
    uint64_t first, next;
    uint64_t since_ns; /* that `first` is what it is, and less than `next` */
    bool told;         /* of `first` */
    bool stops, ended; /* the thread */
};

/* Of all sessions, so that it is there whoever goes last. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

static void tell(const struct gh_watchdog *w, const struct mark *mark,
                 uint64_t behind)
{
    char extent[80], rank[40] = "", line[320];

    gh_plan_extent(w->plan, &w->plan->segments[mark->segment], extent,
                   sizeof(extent));
    if (mark->of.n > 1) {
        snprintf(rank, sizeof(rank), "rank %u of %u, ", mark->of.rank,
                 mark->of.n);
    }
    snprintf(line, sizeof(line),
             "%sstep %llu, %s %s, microbatch %u: this replay has not ended in "
             "%u s (GRAPHHOOKS_TIMEOUT), and %llu more wait behind it; what it "
             "waits for is in it, or on its stream before it",
             rank, (unsigned long long)mark->step, extent,
             gh_direction_names[mark->direction], mark->microbatch,
             w->timeout_s, (unsigned long long)behind);
    gh_log_stderr(NULL, GH_LOG_WARN, line);
}

static void nap(const struct gh_watchdog *w)
{
    uint32_t ms = w->timeout_s * 100u;
    struct timespec until;

    ms = ms < LEAST_MS ? LEAST_MS : ms > MOST_MS ? MOST_MS : ms;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += (long)(ms % 1000u) * 1000000L;
    until.tv_sec += (time_t)(ms / 1000u) + until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    pthread_cond_timedwait(&changed, &lock, &until);
}

/* The lock is held, but not while the driver or standard error is asked. */
static void look(struct gh_watchdog *w)
{
    const struct mark mark = w->marks[w->first % MARKS];
    const uint64_t limit_ns = w->timeout_s * UINT64_C(1000000000);
    bool ended;

    pthread_mutex_unlock(&lock);
    ended = gh_device_event_has_ended(w->dev, mark.event);
    pthread_mutex_lock(&lock);
    if (ended) {
        w->first++;
        w->since_ns = gh_now_ns();
        w->told = false;
        return;
    }
    if (!w->told && gh_now_ns() - w->since_ns > limit_ns) {
        const uint64_t behind = w->next - w->first - 1;

        w->told = true;
        pthread_mutex_unlock(&lock);
        tell(w, &mark, behind);
        pthread_mutex_lock(&lock);
    }
    nap(w);
}

static void *watch(void *opaque)
{
    struct gh_watchdog *w = opaque;
    /* The thread may ask while the host captures. */
    struct gh_device_before before = gh_device_enter(w->dev);

    pthread_mutex_lock(&lock);
    while (!w->stops) {
        if (w->first < w->next) {
            look(w);
        } else {
            nap(w);
        }
    }
    pthread_mutex_unlock(&lock);
    gh_device_leave(w->dev, before);

    pthread_mutex_lock(&lock);
    w->ended = true;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    return NULL;
}

static void free_watchdog(struct gh_watchdog *w)
{
    for (uint32_t i = 0; i < MARKS; i++) {
        gh_device_event_destroy(w->dev, w->marks[i].event);
    }
    free(w);
}

gh_status gh_watchdog_create(struct gh_capture *c, gh_error *err)
{
    struct gh_device_before before;
    struct gh_watchdog *w;
    gh_status status = GH_OK;

    if (!c->options.watches || c->dev == NULL) {
        return GH_OK;
    }
    w = calloc(1, sizeof(*w));
    if (w == NULL) {
        return gh_fail(err, GH_ERR_NO_MEMORY, "no memory for a session");
    }
    w->dev = c->dev;
    w->plan = c->plan;
    w->timeout_s = c->options.timeout_s;
    before = gh_device_enter(c->dev);
    for (uint32_t i = 0; i < MARKS && status == GH_OK; i++) {
        status = gh_device_event_create(c->dev, &w->marks[i].event, err);
    }
    if (status == GH_OK && !gh_thread_start(watch, w)) {
        status = gh_fail(err, GH_ERR_NO_MEMORY,
                         "GRAPHHOOKS_WATCHDOG: no thread can be started");
    }
    if (status != GH_OK) {
        free_watchdog(w);
    } else {
        c->watchdog = w;
    }
    gh_device_leave(c->dev, before);
    return status;
}

static struct mark mark_of(const struct gh_capture *c)
{
    return (struct mark){ .step = c->counts.stats.iterations,
                          .segment = c->open.segment,
                          .direction = c->open.direction,
                          .microbatch = c->open.microbatch,
                          .of = gh_ranks_which(c->open.bank) };
}

void gh_watchdog_mark(struct gh_capture *c)
{
    struct gh_watchdog *w = c->watchdog;
    struct mark *mark = &w->marks[w->next % MARKS];
    void *event = mark->event;
    bool has_room;

    pthread_mutex_lock(&lock);
    has_room = w->next - w->first < MARKS;
    pthread_mutex_unlock(&lock);
    if (!has_room ||
        gh_device_event_record(c->dev, event, c->open.stream, NULL) != GH_OK) {
        return;
    }
    *mark = mark_of(c);
    mark->event = event;
    pthread_mutex_lock(&lock);
    if (w->first == w->next) {
        w->since_ns = gh_now_ns();
        w->told = false;
    }
    w->next++;
    pthread_mutex_unlock(&lock);
}

void gh_watchdog_destroy(struct gh_capture *c)
{
    struct gh_watchdog *w = c->watchdog;

    if (w == NULL) {
        return;
    }
    pthread_mutex_lock(&lock);
    w->stops = true;
    pthread_cond_broadcast(&changed);
    while (!w->ended) {
        pthread_cond_wait(&changed, &lock);
    }
    pthread_mutex_unlock(&lock);
    c->watchdog = NULL;
    free_watchdog(w);
}
