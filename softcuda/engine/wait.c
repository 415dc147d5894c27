/*
 * wait.c - the lock, and threads that wait for what others have to issue.
 *
 * A stream stops where its operation meets those of other threads and one of
 * them has not come.  A thread that waits for such a stream sleeps here, and
 * wakes when something has happened.  If nothing does, it asks the watcher,
 * which may know that nobody is left to come.
 *
 * Invariant: a sleeping thread counts as waiting only if it has seen the last
 * news.  So a thread that is about to go on never counts.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "softcuda/engine/wait.h"

#include "softcuda/engine/outside.h"
#include "softcuda/engine/soft.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

enum {
    SLICE_MS = 20,
    SLICE_OUTSIDE_MS = 1 /* where another process may end the wait */
};

struct known {
    uint64_t id;
    bool waits;
    uint64_t seen; /* the number of the last news */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t at_exit;

static struct known *known;
static uint32_t n_known, known_room, n_waiting;
static uint64_t news, news_ms, glance_ms;
static void (*watcher)(uint64_t quiet_ms);

uint64_t wait_now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static struct known *find(uint64_t id)
{
    for (uint32_t i = 0; i < n_known; i++) {
        if (known[i].id == id) {
            return &known[i];
        }
    }
    return NULL;
}

/* Called when the thread ends. */
static void leave(void *unused)
{
    struct known *self;

    (void)unused;
    pthread_mutex_lock(&lock);
    self = find(thread_self()->id);
    if (self != NULL) {
        *self = known[--n_known];
    }
    pthread_mutex_unlock(&lock);
}

static void make_key(void)
{
    if (pthread_key_create(&at_exit, leave) != 0) {
        abort();
    }
}

/* Adds a thread that is here for the first time. */
static void enlist(struct thread_state *self)
{
    if (n_known == known_room) {
        uint32_t room = known_room ? known_room * 2 : 16;
        struct known *larger = realloc(known, room * sizeof(*larger));

        if (larger == NULL) {
            return; /* it counts as ended: a deadlock may be reported too
                       early */
        }
        known = larger;
        known_room = room;
    }
    known[n_known++] = (struct known){ self->id, false, 0 };
    pthread_once(&once, make_key);
    pthread_setspecific(at_exit, self);
    self->enlisted = true;
}

void wait_lock(void)
{
    struct thread_state *self = thread_self();

    pthread_mutex_lock(&lock);
    if (!self->enlisted) {
        enlist(self);
    }
}

void wait_unlock(void)
{
    pthread_mutex_unlock(&lock);
}

void wait_news(void)
{
    news++;
    if (watcher != NULL) {
        news_ms = wait_now_ms();
    }
    if (n_waiting != 0) {
        pthread_cond_broadcast(&changed);
    }
}

void wait_watch(void (*watch)(uint64_t quiet_ms))
{
    watcher = watch;
    news_ms = wait_now_ms();
}

static void sleep_a_slice(void)
{
    struct timespec until;

    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += (outside_is_any() ? SLICE_OUTSIDE_MS : SLICE_MS) * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_nsec -= 1000000000;
        until.tv_sec++;
    }
    n_waiting++;
    pthread_cond_timedwait(&changed, &lock, &until);
    n_waiting--;
}

bool wait_for_news(void)
{
    const uint64_t id = thread_self()->id;
    struct host *host = soft.host;
    struct known *self = find(id);
    uint64_t before;

    if (watcher == NULL && soft.held == 0) {
        return false;
    }
    before = news;
    if (self != NULL) {
        self->waits = true;
        self->seen = news;
    }
    sleep_a_slice();
    if (news == before && watcher != NULL) {
        watcher(wait_now_ms() - news_ms);
    }
    self = find(id); /* others may have come and gone meanwhile */
    if (self != NULL) {
        self->waits = false;
    }
    soft.host = host;
    return true;
}

void wait_glance(void)
{
    uint64_t now;

    if (watcher == NULL) {
        return;
    }
    now = wait_now_ms();
    if (now - news_ms >= SLICE_MS && now - glance_ms >= SLICE_MS) {
        glance_ms = now;
        watcher(now - news_ms);
    }
}

enum thread_is wait_thread(uint64_t id)
{
    const struct known *thread = find(id);

    if (thread == NULL) {
        return THREAD_GONE;
    }
    return thread->waits && thread->seen == news ? THREAD_WAITS : THREAD_RUNS;
}
