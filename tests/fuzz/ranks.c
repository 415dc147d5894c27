/*
 * Ranks of any number whose passes hold exchanges, one of which does something
 * odd at some step: every rank either goes on with the right numbers, or hears
 * that ranks have parted, in time, and closes in time.
 *
 *     tests/fuzz/ranks.t                                 the seeds of make check
 *     GRAPHHOOKS_FUZZ_SEED=7 tests/fuzz/ranks.t          one run
 *     GRAPHHOOKS_FUZZ_SECONDS=600 GRAPHHOOKS_FUZZ_SEED=1000 ...
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tests/exchange/trader.h"
#include "tests/session/ranks/sharer.h"

#include <graphhooks/exchange.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SEEDS 12u
#define UNIT 96u   /* bytes of a part */
#define LIMIT_S 12 /* some waits of a second each, on a slow machine */

enum odd {
    NOTHING,
    MOVES,   /* what it is given, alone */
    DIES,    /* comes to no step any more */
    CANCELS, /* its recording */
    GIVES_UP,
    LEAVES_OUT, /* the exchange of a pass */
    VARIES,     /* records another variant alone */
    ODDS
};

static const char *const names[ODDS] = { "nothing", "moves",    "dies",
                                         "cancels", "gives up", "leaves out",
                                         "varies" };

static struct plan {
    int n;
    bool nccl, captures, waits;
    uint32_t steps, at;
    enum odd odd;
} plan;

static unsigned long seed;

static struct plan plan_of(unsigned long of)
{
    uint32_t state = (uint32_t)of * 2654435761u + 12345u;
    uint32_t v[7];

    for (int i = 0; i < 7; i++) {
        state = state * 1664525u + 1013904223u;
        v[i] = state >> 16;
    }
    return (struct plan){ .n = 2 + (int)(v[0] % 2),
                          .nccl = v[1] % 2 == 1,
                          .captures = v[2] % 3 == 0,
                          .waits = v[3] % 2 == 1,
                          .steps = 2 + v[4] % 4,
                          .at = v[5] % 4,
                          .odd = (enum odd)(v[6] % ODDS) };
}

static _Thread_local struct trader *trades;
static _Thread_local bool left_out;

static void exchange(struct sharer *s, const gh_pass *pass,
                     const gh_decision *d)
{
    const gh_exchange_op op = { .struct_size = sizeof(op),
                                .stream = d->stream,
                                .send = pointer(trades->send),
                                .capacity = UNIT };

    (void)s;
    if (pass->segment == 0 && pass->direction == GH_FORWARD && !left_out) {
        (void)gh_exchange_all_to_all(trades->x, &op, &trades->err);
    }
}

/* Each part says whose it is. */
static bool has_parts(struct trader *t)
{
    unsigned char got[UNIT];
    bool right = true;

    for (int i = 0; i < t->r->n; i++) {
        fetch(t->r, t->r->stream, got,
              (CUdeviceptr)(uintptr_t)t->window + (CUdeviceptr)i * UNIT, UNIT);
        for (uint32_t k = 0; k < UNIT; k++) {
            right &= got[k] == 1 + i;
        }
    }
    return right;
}

static void in_time(struct rank *r, double start, const char *what)
{
    says(r, tap_now_s() - start < LIMIT_S, "seed %lu: %s takes %.1f s", seed,
         what, tap_now_s() - start);
}

static bool open_exchange(struct trader *t, struct rank *r,
                          const char *const *environment)
{
    const struct trader_options options = { .kind = plan.nccl ? "nccl" : "copy",
                                            .by_host = !plan.nccl,
                                            .no_comm = !plan.nccl,
                                            .unit = UNIT,
                                            .environment = environment };
    const ncclComm_t lent = r->comm; /* to the session */
    bool open;

    if (plan.nccl) {
        nccl.ncclCommInitRank(&r->comm, r->n, ranks_id(r), r->rank);
    }
    open = trader_open(t, r, &options);
    r->comm = lent;
    if (open) {
        drv.cuMemsetD8Async(t->send, (unsigned char)(1 + r->rank),
                            (size_t)r->n * UNIT, r->stream);
        drv.cuStreamSynchronize(r->stream);
    }
    return open;
}

/* False: it is in no step any more. */
static bool is_odd_now(struct sharer *s)
{
    switch (plan.odd) {
    case MOVES:
        s->moved = 1;
        break;
    case DIES:
        return false;
    case CANCELS:
        s->cancels = true;
        break;
    case GIVES_UP:
        gh_ranks_abort(s->session, NULL, NULL);
        break;
    case LEAVES_OUT:
        left_out = true;
        break;
    case VARIES:
        s->variant = 1;
        break;
    default:
        break;
    }
    return true;
}

static gh_status steps(struct sharer *s, struct trader *t)
{
    const bool odd = s->r->rank == s->r->n - 1;
    gh_status status = GH_OK;

    for (uint32_t i = 0; i < plan.steps && status == GH_OK; i++) {
        double start;

        if (i == plan.at) {
            ranks_barrier(s->r); /* what was before is over everywhere */
        }
        start = tap_now_s();
        if (odd && i == plan.at && !is_odd_now(s)) {
            return GH_ERR_RANKS;
        }
        status = sharer_step(s, 1);
        if (status == GH_OK) {
            status = gh_ranks_wait(s->session, s->r->stream, &s->err);
        }
        if (status == GH_OK) {
            status = gh_exchange_wait(t->x, s->r->stream, &s->err);
        }
        in_time(s->r, start, "a step");
        if (i < plan.at || plan.odd == NOTHING) {
            says(s->r, status == GH_OK, "seed %lu: a step: %.120s", seed,
                 s->err.text);
            says(s->r, sharer_was_exact(s) && has_parts(t),
                 "seed %lu: is exact", seed);
        } else {
            says(s->r, status == GH_OK || s->err.text[0] != '\0',
                 "seed %lu: what fails says why", seed);
        }
    }
    return status;
}

/* What is on the stream, before or after the session is closed: it is let go
 * where it waits for another rank. */
static void wait_for(struct trader *t)
{
    const double start = tap_now_s();

    gh_exchange_wait(t->x, t->r->stream, NULL);
    in_time(t->r, start, "the wait");
}

static void test(struct rank *r)
{
    static const char *const hasty[] = { "GRAPHHOOKS_TIMEOUT=1",
                                         "GRAPHHOOKS_LOG=off", NULL };
    const struct sharer_options options = { .environment = hasty,
                                            .host = plan.captures
                                                        ? &sharer_captures
                                                        : NULL,
                                            .fixed = true,
                                            .mischief = exchange };
    struct sharer s;
    struct trader t;
    gh_status status;
    double start;

    left_out = false;
    trades = &t;
    if (!open_exchange(&t, r, hasty) || !sharer_open(&s, r, &options)) {
        return;
    }
    status = steps(&s, &t);
    if (plan.waits) {
        wait_for(&t);
    }
    start = tap_now_s();
    gh_session_close(s.session);
    s.session = NULL;
    in_time(r, start, "the session's close");
    wait_for(&t);
    start = tap_now_s();
    gh_exchange_destroy(t.x);
    t.x = NULL;
    in_time(r, start, "the exchange's end");
    if (status != GH_OK) {
        r->comm = NULL;
    }
    start = tap_now_s();
    drv.cuStreamSynchronize(r->stream);
    in_time(r, start, "what is on the stream");
    sharer_close(&s);
    trader_close(&t);
}

int main(void)
{
    const char *first = getenv("GRAPHHOOKS_FUZZ_SEED");
    const char *seconds = getenv("GRAPHHOOKS_FUZZ_SECONDS");
    const time_t until = time(NULL) + (seconds != NULL ? atol(seconds) : 0);
    unsigned long n = SEEDS, done = 0;
    int status;

    if (!ranks_open_device(&status)) {
        return status;
    }
    if (!ranks_are_soft()) {
        return skip_all("ranks are threads, and die, on the software device");
    }
    if (first != NULL) {
        seed = strtoul(first, NULL, 10);
        n = 1;
    }
    ranks_know_each_other(true);
    ranks_quiet(true);
    for (; done < n || time(NULL) < until; seed++, done++) {
        char name[80];

        plan = plan_of(seed);
        snprintf(name, sizeof(name), "seed %lu: one of %d %s", seed, plan.n,
                 names[plan.odd]);
        ranks_run_wrong(plan.n, name, test);
        if (plan.odd == NOTHING) {
            is_int((long long)soft_races(), 0, "%s: nothing races", name);
        }
    }
    ok(true, "%lu runs, up to seed %lu", done, seed - 1);
    return done_testing();
}
