/*
 * measure.c - up to which size the kernel moves parts as fast as copies do.
 *
 * While an exchange is made, the ranks exchange parts of growing size by either
 * kind, in graphs, on an idle device: issued one by one, they would take as long
 * as the host needs to issue them.  Each size counts as on the rank where it took
 * longest, so that all ranks get the same answer.  Calls are in turn, as in a
 * host that wants speed; nobody reads what comes, so one part of the window is
 * enough for both turns.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "base/error.h"
#include "exchange/state.h"

#include <stdlib.h>

#define LEAST_BYTES (UINT64_C(64) << 10)
#define SIZES 5u /* each four times the one before: up to 16 MiB */
#define ROUNDS 3u
#define CALLS 8u /* of a graph; even, as they are in turn */
/* The kernel also spares the host most of the launch. */
#define NO_SLOWER 1.03

struct measure {
    void *stream, *begun, *ended;
    gh_exchange_part *parts;
    uint64_t source; /* in the window, behind what others write */
    bool odd;        /* the turn of the next call */
};

static uint64_t bytes_of(uint32_t size)
{
    return LEAST_BYTES << 2 * size;
}

/* How many sizes fit into the smallest window, with a part to send. */
static uint32_t count_sizes(const gh_exchange *x)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < x->n; i++) {
        const uint64_t room = x->peers[i].window_bytes / (x->n + 1);
        uint32_t fit = 0;

        while (fit < SIZES && bytes_of(fit) <= room) {
            fit++;
        }
        n = i == 0 || fit < n ? fit : n;
    }
    return n;
}

static gh_status make(gh_exchange *x, struct measure *m, gh_error *err)
{
    gh_status status;

    m->parts = calloc(x->n, sizeof(*m->parts));
    if (m->parts == NULL) {
        return gh_fail(err, GH_ERR_NO_MEMORY, "no memory for %u ranks", x->n);
    }
    status = gh_device_stream_create_urgent(x->dev, &m->stream, err);
    if (status == GH_OK) {
        status = gh_device_event_create_timed(x->dev, &m->begun, err);
    }
    return status == GH_OK
               ? gh_device_event_create_timed(x->dev, &m->ended, err)
               : status;
}

static void drop(gh_exchange *x, struct measure *m)
{
    gh_device_stream_destroy(x->dev, m->stream);
    gh_device_event_destroy(x->dev, m->begun);
    gh_device_event_destroy(x->dev, m->ended);
    free(m->parts);
}

static void lay_out(const gh_exchange *x, struct measure *m, uint64_t bytes)
{
    for (uint32_t i = 0; i < x->n; i++) {
        const uint64_t sent = i != x->rank ? bytes : 0;

        m->parts[i] = (gh_exchange_part){ .send_bytes = sent,
                                          .peer_offset = x->rank * bytes,
                                          .recv_offset = i * bytes,
                                          .recv_bytes = sent };
    }
    m->source = x->n * bytes;
}

static gh_status call(gh_exchange *x, struct measure *m, gh_error *err)
{
    const gh_exchange_op op = {
        .struct_size = sizeof(op),
        .flags = m->odd ? GH_EXCHANGE_TURN_2 : GH_EXCHANGE_TURN_1,
        .stream = m->stream,
        .send = (const char *)x->window + m->source,
        .parts = m->parts,
    };

    m->odd = !m->odd;
    return gh_exchange_issue(x, &op, err);
}

/* A graph of calls by the kind of the exchange. */
static gh_status capture(gh_exchange *x, struct measure *m, void **exec_p,
                         gh_error *err)
{
    gh_status status = gh_device_capture_begin(x->dev, m->stream, err);
    gh_status ended;
    void *graph = NULL;
    uint64_t nodes;

    if (status != GH_OK) {
        return status;
    }
    for (uint32_t i = 0; i < CALLS && status == GH_OK; i++) {
        status = call(x, m, err);
    }
    ended = gh_device_capture_end(x->dev, m->stream, &graph, &nodes,
                                  status == GH_OK ? err : NULL);
    status = status == GH_OK ? ended : status;
    if (status == GH_OK) {
        status = gh_device_instantiate(x->dev, graph, m->stream, exec_p, err);
    }
    gh_device_graph_destroy(x->dev, graph);
    return status;
}

/* The ranks meet in a launch that is not timed. */
static gh_status time_round(gh_exchange *x, struct measure *m, void *exec,
                            double *ns_p, gh_error *err)
{
    gh_status status = gh_device_launch(x->dev, exec, m->stream, err);

    if (status == GH_OK) {
        status = gh_device_event_record(x->dev, m->begun, m->stream, err);
    }
    if (status == GH_OK) {
        status = gh_device_launch(x->dev, exec, m->stream, err);
    }
    if (status == GH_OK) {
        status = gh_device_event_record(x->dev, m->ended, m->stream, err);
    }
    if (status == GH_OK) {
        status = gh_exchange_await(x, m->stream, err);
    }
    return status == GH_OK ? gh_device_event_elapsed(x->dev, m->begun, m->ended,
                                                     ns_p, err)
                           : status;
}

/* The shortest of some rounds, as other work only makes them longer. */
static gh_status time_kind(gh_exchange *x, struct measure *m,
                           const struct gh_exchange_ops *ops, uint64_t *ns_p,
                           gh_error *err)
{
    double least = 0, ns = 0;
    void *exec = NULL;
    gh_status status;

    x->ops = ops;
    status = capture(x, m, &exec, err);
    x->ops = &gh_exchange_auto;
    for (uint32_t i = 0; i < ROUNDS && status == GH_OK; i++) {
        status = time_round(x, m, exec, &ns, err);
        least = i == 0 || ns < least ? ns : least;
    }
    gh_device_exec_destroy(x->dev, exec);
    *ns_p = least > 0 ? (uint64_t)(least / CALLS) : 0;
    return status;
}

/* Times all sizes: copies, then the kernel, of each. */
static gh_status time_all(gh_exchange *x, uint32_t n, uint64_t *ns,
                          gh_error *err)
{
    struct measure m = { NULL };
    gh_status status = make(x, &m, err);

    for (uint32_t i = 0; i < n && status == GH_OK; i++) {
        lay_out(x, &m, bytes_of(i));
        status = time_kind(x, &m, &gh_exchange_copy, &ns[2 * i], err);
        if (status == GH_OK) {
            status = time_kind(x, &m, &gh_exchange_kernel, &ns[2 * i + 1],
                               err);
        }
    }
    if (status != GH_OK && m.stream != NULL) {
        gh_exchange_let_go(x, m.stream);
    }
    drop(x, &m);
    return status;
}

/* The times of the slowest rank instead of this one's. */
static gh_status agree(gh_exchange *x, gh_status own, uint32_t n, uint64_t *ns,
                       gh_error *err)
{
    const uint32_t words = 2 * n + 1;
    const uint64_t *all;
    gh_status status = gh_exchange_gather(x, own, ns, words, &all, err);

    for (uint32_t i = 0; status == GH_OK && i < x->n; i++) {
        for (uint32_t w = 0; w < 2 * n; w++) {
            const uint64_t theirs = all[(size_t)i * words + 1 + w];

            ns[w] = theirs > ns[w] ? theirs : ns[w];
        }
    }
    return status;
}

/* The size up to which the kernel saves most in all, so that one size that was
 * disturbed decides nothing. */
static uint64_t choose(gh_exchange *x, uint32_t n, const uint64_t *ns)
{
    double saved = 0, most = 0;
    uint64_t small = 0;

    for (uint32_t i = 0; i < n; i++) {
        const double copies = (double)ns[2 * i], kernel = (double)ns[2 * i + 1];

        saved += copies > 0 ? NO_SLOWER - kernel / copies : 0;
        if (saved >= most) {
            most = saved;
            small = bytes_of(i);
        }
        gh_log_line(&x->log, GH_LOG_INFO,
                    "exchange: rank %u of %u: %llu bytes to each: copies %.1f "
                    "us, kernel %.1f us",
                    x->rank, x->n, (unsigned long long)bytes_of(i),
                    copies / 1000, kernel / 1000);
    }
    return small;
}

gh_status gh_exchange_measure(gh_exchange *x, gh_error *err)
{
    const gh_exchange_stats before = x->stats;
    const uint32_t n = x->n <= GH_SENDS_A_LAUNCH ? count_sizes(x) : 0;
    uint64_t ns[2 * SIZES] = { 0 };
    gh_status status;

    x->stats.small_bytes = GH_EXCHANGE_SMALL_BYTES;
    if (n == 0) {
        gh_log_line(&x->log, GH_LOG_INFO,
                    "exchange: rank %u of %u: nothing is measured, as that "
                    "takes 2 to %u ranks, and windows of %llu bytes",
                    x->rank, x->n, GH_SENDS_A_LAUNCH,
                    (unsigned long long)((x->n + 1) * LEAST_BYTES));
        return GH_OK;
    }
    x->exposed = true;
    status = time_all(x, n, ns, err);
    /* Where a rank has not come, the time is over already. */
    if (status != GH_ERR_RANKS) {
        status = agree(x, status, n, ns, err);
    }
    if (status != GH_OK) {
        return status;
    }
    x->exposed = false;
    x->in_graphs = false;
    x->stats = before;
    x->stats.small_bytes = choose(x, n, ns);
    x->turn = 0;
    return GH_OK;
}
