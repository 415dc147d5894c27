/*
 * exchange.c - opens an exchange on all its ranks, and closes it on all.
 *
 * What can fail on one rank alone comes first.  Then the ranks tell each other
 * whether they failed, find each other's memory, and agree on the kind.  After
 * that nothing fails, but for a measurement that the host has asked for.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "exchange/exchange.h"

#include "base/error.h"
#include "comm/where.h"
#include "exchange/state.h"

#include <stdlib.h>
#include <string.h>

/* By gh_exchange_kind; AUTO has none of its own. */
static const struct gh_exchange_ops *const kinds[] = {
#define ROW(id, word) [GH_EXCHANGE_##id] = &gh_exchange_##word,
    EXCHANGE_KINDS(ROW)
#undef ROW
};

static void use_kind(gh_exchange *x, gh_exchange_kind kind)
{
    x->stats.kind = kind;
    x->ops = x->n == 1 ? &gh_exchange_alone : kinds[kind];
}

/* Copies, with the kernel for small parts. */
static gh_status use_auto(gh_exchange *x,
                          const struct gh_exchange_options *options,
                          gh_error *err)
{
    use_kind(x, GH_EXCHANGE_COPY);
    x->ops = &gh_exchange_auto;
    x->stats.small_bytes = options->small_bytes;
    for (uint32_t i = 0; i < x->n; i++) {
        x->shares |= i != x->rank && x->peers[i].near;
    }
    return options->measures ? gh_exchange_measure(x, err) : GH_OK;
}

/* ---- this rank's own ----------------------------------------------------- */

static gh_status make_lanes(gh_exchange *x, gh_error *err)
{
    const uint32_t others = x->n < 2 ? 0 : x->n - 2; /* than the first */
    gh_status status = GH_OK;

    x->n_lanes = others < GH_EXCHANGE_LANES ? others : GH_EXCHANGE_LANES;
    for (uint32_t i = 0; i < x->n_lanes && status == GH_OK; i++) {
        status = gh_device_stream_create_urgent(x->dev, &x->lanes[i].stream,
                                                err);
        if (status == GH_OK) {
            status = gh_device_event_create(x->dev, &x->lanes[i].done, err);
        }
    }
    if (status == GH_OK) {
        status = gh_device_stream_create(x->dev, false, &x->side, err);
    }
    if (status == GH_OK) {
        status = gh_device_event_create(x->dev, &x->begun, err);
    }
    return status == GH_OK ? gh_device_event_create(x->dev, &x->ended, err)
                           : status;
}

static gh_status find_nccl(gh_exchange *x, gh_error *err)
{
    gh_status status;

    if (x->desc.comm == NULL || x->n == 1) {
        return GH_OK;
    }
    status = gh_nccl_open(x->desc.nccl, &x->nccl, err);
    return status == GH_OK
               ? gh_nccl_check(x->nccl, x->desc.comm, "gh_exchange_desc",
                               x->rank, x->n, err)
               : status;
}

static gh_status make_side(gh_exchange *x, gh_error *err)
{
    gh_status status = make_lanes(x, err);

    if (status == GH_OK) {
        status = gh_flags_make(x, err);
    }
    if (status == GH_OK) {
        status = gh_device_sends_create(x->blocks_ended, &x->sends, err);
    }
    if (status == GH_OK) {
        status = gh_window_make(x, false, err);
    }
    return status == GH_OK ? find_nccl(x, err) : status;
}

/* ---- together ------------------------------------------------------------ */

static gh_status meet(gh_exchange *x, gh_error *err)
{
    const gh_ranks ranks = {
        .struct_size = sizeof(ranks),
        .rank = x->rank,
        .size = x->n,
        .comm = x->desc.gather == NULL ? x->desc.comm : NULL,
        .nccl = x->desc.nccl,
        .user = x->desc.user,
        .gather = x->desc.gather,
    };

    return gh_comm_open(x->dev, &ranks, "the exchange", x->timeout_s, &x->gate,
                        &x->log, &x->comm, err);
}

/* Words of a rank that are compared, and with its status, its window, its
 * process, its box and where that is, and its number. */
#define COMPARED 6u
#define SETTINGS (COMPARED + 6)

/* Another version of the library may have more kinds. */
static const char *word_of(uint64_t kind)
{
    return kind == GH_EXCHANGE_AUTO                ? gh_exchange_auto.name
           : kind < sizeof(kinds) / sizeof(*kinds) ? kinds[kind]->name
                                                   : "unknown";
}

static gh_status fail_to_agree(uint32_t word, uint64_t first, uint64_t theirs,
                               uint32_t rank, gh_error *err)
{
    static const char *const names[COMPARED] = {
        "GRAPHHOOKS_EP_EXCHANGE or gh_exchange_desc.kind",
        "n_ranks",
        "comm (0: NULL)",
        "flags",
        "GRAPHHOOKS_EP_EXCHANGE_SMALL or gh_exchange_desc.small (1: measure)",
        "GRAPHHOOKS_EP_EXCHANGE_SMALL or gh_exchange_desc.small",
    };

    if (word == 0) {
        return gh_fail(err, GH_ERR_CONFIG,
                       "gh_exchange_create: %s is %s on rank 0 and %s on rank "
                       "%u: make them equal",
                       names[word], word_of(first), word_of(theirs), rank);
    }
    return gh_fail(err, GH_ERR_CONFIG,
                   "gh_exchange_create: %s is %llu on rank 0 and %llu on rank "
                   "%u: make them equal",
                   names[word], (unsigned long long)first,
                   (unsigned long long)theirs, rank);
}

/* What a rank says of itself: whether others are to reach it by handles, and
 * whether all can take file descriptors for them. */
static void note_peer(gh_exchange *x, uint32_t i, const uint64_t *theirs,
                      const uint64_t *mine, bool *handles_p)
{
    const bool other = theirs[1] != mine[1];

    x->peers[i].window_bytes = theirs[0];
    *handles_p |= other;
    x->by_files &= theirs[2] != 0 && theirs[3] == mine[3];
    if (i != x->rank &&
        (other || (x->desc.flags & GH_EXCHANGE_IPC) != 0)) {
        x->peers[i].box = (uint32_t)theirs[2];
    }
}

/* *handles_p: some ranks would reach each other by handles. */
static gh_status compare(gh_exchange *x,
                         const struct gh_exchange_options *options,
                         gh_status own, bool *handles_p, gh_error *err)
{
    const uint64_t mine[] = { options->kind,        x->n,
                              x->desc.comm != NULL, x->desc.flags,
                              options->measures,    options->small_bytes,
                              x->desc.window_bytes, gh_where_process(),
                              options->kind != GH_EXCHANGE_NCCL
                                  ? gh_window_offer(x)
                                  : 0,
                              gh_where_network(),   x->rank };
    const uint64_t *all;
    gh_status status = gh_exchange_gather(x, own, mine, SETTINGS, &all, err);

    if (status == GH_OK) {
        status = gh_comm_check_numbers(x->n, all + SETTINGS - 1, SETTINGS,
                                       "gh_exchange_desc.rank", err);
    }
    x->by_files = true;
    for (uint32_t i = 0; status == GH_OK && i < x->n; i++) {
        const uint64_t *theirs = all + (size_t)i * SETTINGS + 1;

        note_peer(x, i, theirs + COMPARED, mine + COMPARED, handles_p);
        for (uint32_t w = 0; w < COMPARED; w++) {
            if (theirs[w] != all[1 + w]) {
                return fail_to_agree(w, all[1 + w], theirs[w], i, err);
            }
        }
    }
    return status;
}

static gh_status decide(gh_exchange *x,
                        const struct gh_exchange_options *options,
                        gh_status own, gh_error *err)
{
    const gh_exchange_kind kind = options->kind;
    struct gh_not_reached not;
    bool by_handles = (x->desc.flags & GH_EXCHANGE_IPC) != 0;
    gh_status status = compare(x, options, own, &by_handles, err);

    if (status != GH_OK || !by_handles || !x->by_files) {
        gh_window_no_files(x);
    }
    if (status != GH_OK) {
        return status;
    }
    use_kind(x, GH_EXCHANGE_NCCL);
    if (kind == GH_EXCHANGE_NCCL) {
        return GH_OK;
    }
    if (kind == GH_EXCHANGE_KERNEL && x->n > GH_SENDS_A_LAUNCH) {
        return gh_fail(err, GH_ERR_UNSUPPORTED,
                       "the exchange is of %u ranks, and kind kernel is for "
                       "up to %u: take kind auto, copy or nccl",
                       x->n, GH_SENDS_A_LAUNCH);
    }
    x->exposed = true;
    for (bool again = true; again;) {
        own = by_handles ? gh_window_make(x, true, err) : GH_OK;
        status = gh_exchange_reach(x, own, &not, err);
        again = status == GH_OK && not.is && x->by_files;
        if (again) { /* by handles, then */
            gh_exchange_leave(x);
            gh_window_no_files(x);
        }
    }
    if (status != GH_OK) {
        return status;
    }
    x->exposed = false;
    if (!not.is) {
        if (kind == GH_EXCHANGE_AUTO) {
            return use_auto(x, options, err);
        }
        use_kind(x, kind);
        return GH_OK;
    }
    if (kind != GH_EXCHANGE_AUTO || x->nccl == NULL) {
        return gh_fail(err, GH_ERR_UNSUPPORTED,
                       "rank %u does not reach the memory of rank %u, as %s "
                       "needs: %s",
                       not.rank, not.peer,
                       kinds[kind != GH_EXCHANGE_AUTO ? kind : GH_EXCHANGE_COPY]
                           ->name,
                       x->nccl != NULL ? "take kind auto or nccl"
                                       : "give a communicator, and kind auto "
                                         "or nccl");
    }
    gh_exchange_leave(x);
    gh_log_line(&x->log, GH_LOG_WARN,
                "exchange: rank %u does not reach the memory of rank %u: all "
                "ranks use NCCL",
                not.rank, not.peer);
    return GH_OK;
}

static void say(gh_exchange *x)
{
    gh_log_line(&x->log, GH_LOG_INFO,
                "exchange: rank %u of %u: %s, a window of %llu bytes", x->rank,
                x->n, kinds[x->stats.kind]->name,
                (unsigned long long)x->desc.window_bytes);
    if (x->ops == &gh_exchange_auto) {
        gh_log_line(&x->log, GH_LOG_INFO,
                    "exchange: rank %u of %u: by a kernel where nothing runs "
                    "beside and no part has more than %llu bytes%s",
                    x->rank, x->n, (unsigned long long)x->stats.small_bytes,
                    x->shares ? ", but on a device that ranks share by copies"
                              : "");
    }
    for (uint32_t i = 0; x->ops->writes_windows && i < x->n; i++) {
        const struct gh_peer *peer = &x->peers[i];

        if (i != x->rank) {
            gh_log_line(&x->log, GH_LOG_INFO,
                        "exchange: rank %u to rank %u: %s, by %s%s, into its "
                        "window of %llu bytes",
                        x->rank, i,
                        peer->reach != GH_REACH_IPC ? "threads of one process"
                        : peer->room != 0           ? "by a file descriptor"
                                                    : "by CUDA IPC",
                        x->ops->by, peer->near ? " within the device" : "",
                        (unsigned long long)peer->window_bytes);
        }
        x->stats.peers_direct += peer->reach == GH_REACH_DIRECT;
        x->stats.peers_ipc += peer->reach == GH_REACH_IPC;
    }
}

static gh_status agree(gh_exchange *x,
                       const struct gh_exchange_options *options,
                       gh_status own, gh_error *err)
{
    const gh_exchange_kind kind = options->kind;
    gh_error met;
    gh_status status;

    if (x->n == 1) {
        use_kind(x, kind != GH_EXCHANGE_AUTO ? kind : GH_EXCHANGE_COPY);
        x->peers[0].window_bytes = x->desc.window_bytes;
        return own;
    }
    status = meet(x, &met);
    if (status != GH_OK) {
        return own != GH_OK ? own : gh_fail(err, status, "%s", met.text);
    }
    return decide(x, options, own, err);
}

/* ---- the end ------------------------------------------------------------- */

/* Asks all ranks whether their work has ended.  A rank whose exchange is over
 * takes part too: the others wait for it here, and a host's gather must be
 * called equally often on all ranks. */
static gh_status say_goodbye(gh_exchange *x, bool writes, gh_error *err)
{
    const uint64_t mine = writes ? GH_MEETING_PARTS_LATE : GH_MEETING_PARTS;
    const uint64_t *all;
    gh_status status = gh_exchange_gather(x, GH_OK, &mine, 2, &all, err);

    for (uint32_t i = 0; status == GH_OK && i < x->n; i++) {
        const uint64_t theirs = all[(size_t)i * 2 + 1];

        if (theirs == GH_MEETING_PARTS_LATE) {
            return gh_fail(err, GH_ERR_RANKS,
                           "what rank %u of %u has issued has not ended", i,
                           x->n);
        }
        if (theirs != GH_MEETING_PARTS) {
            return gh_fail(err, GH_ERR_RANKS,
                           "rank %u of %u does not destroy it", i, x->n);
        }
    }
    return status;
}

/* Whether no rank can write to this rank's memory any more. */
static bool part(gh_exchange *x)
{
    bool writes = false;
    gh_error why;

    if (x->ops == NULL || x->n == 1) {
        return !x->exposed;
    }
    if (!gh_exchange_has_ended(x)) {
        writes = !gh_exchange_let_go(x, x->side);
    }
    if (x->in_graphs && x->ops->end_graphs != NULL) {
        writes |= !x->ops->end_graphs(x);
    }
    x->writes = writes;
    gh_exchange_leave(x);
    if (!x->ops->writes_windows || say_goodbye(x, writes, &why) == GH_OK) {
        return true;
    }
    gh_log_line(&x->log, GH_LOG_WARN,
                "exchange: rank %u leaves its window, of %llu bytes, and its "
                "flags where they are, as other ranks may still write there: "
                "%s",
                x->rank, (unsigned long long)x->desc.window_bytes, why.text);
    return false;
}

/* Parts from the other ranks, as far as there are any yet, and frees all but
 * the device. */
static void end(gh_exchange *x, struct gh_comm_parting *parting)
{
    const bool parted = part(x);
    const bool together = parted && x->ops != NULL && !x->over;

    gh_exchange_leave(x);
    /* A graph that was launched may hold a call that another rank does not
     * join, which nobody has waited for. */
    if (x->n > 1) {
        gh_device_limit_waits(x->dev, x->timeout_s);
    }
    /* A question that nobody answers is on the device, and what is freed below
     * waits for it: it is aborted first. */
    if (!together) {
        gh_comm_close(x->comm, NULL);
        x->comm = NULL;
    }
    for (uint32_t i = 0; i < x->n_lanes; i++) {
        gh_device_stream_destroy(x->dev, x->lanes[i].stream);
        gh_device_event_destroy(x->dev, x->lanes[i].done);
    }
    gh_device_stream_destroy(x->dev, x->side);
    gh_device_event_destroy(x->dev, x->begun);
    gh_device_event_destroy(x->dev, x->ended);
    if (parted) {
        gh_device_free(x->dev, x->flags);
        gh_window_free(x);
    }
    gh_device_host_free(x->dev, x->seen);
    if (gh_device_is_stuck(x->dev)) {
        gh_log_line(&x->log, GH_LOG_WARN,
                    "exchange: rank %u leaves its memory to the context, as "
                    "work on the device has not ended in %u s "
                    "(GRAPHHOOKS_TIMEOUT): wait for the graphs that hold the "
                    "exchange before, with gh_exchange_wait",
                    x->rank, x->timeout_s);
    }
    for (uint32_t flag = 0; flag < GH_FLAGS_CLEARED; flag++) {
        free(x->words[flag]);
    }
    gh_window_no_files(x);
    gh_nccl_close(x->nccl);
    gh_comm_close(x->comm, parting);
    gh_device_sends_destroy(x->sends);
    free(x->peers);
    free(x->parts);
    free(x);
}

/* ---- the whole ----------------------------------------------------------- */

gh_status gh_exchange_open(struct gh_device *dev, const gh_exchange_desc *desc,
                           const struct gh_exchange_options *options,
                           gh_exchange **x_p, gh_error *err)
{
    gh_exchange *x = calloc(1, sizeof(*x));
    gh_status status;

    if (x == NULL) {
        return gh_fail(err, GH_ERR_NO_MEMORY, "no memory for an exchange");
    }
    x->dev = dev;
    x->box = -1;
    x->log = options->log;
    x->timeout_s = options->timeout_s;
    x->desc = *desc;
    x->rank = desc->rank;
    x->n = desc->n_ranks;
    x->peers = calloc(x->n, sizeof(*x->peers));
    x->parts = calloc(x->n, sizeof(*x->parts));
    if (x->peers == NULL || x->parts == NULL) {
        end(x, NULL);
        return gh_fail(err, GH_ERR_NO_MEMORY, "no memory for %u ranks",
                       desc->n_ranks);
    }
    status = make_side(x, err);
    status = agree(x, options, status, err);
    if (status != GH_OK) {
        x->ops = NULL;
        end(x, NULL);
        return status;
    }
    x->stats.window_bytes = desc->window_bytes;
    say(x);
    x->gate.open = x;
    *x_p = x;
    return GH_OK;
}

void gh_exchange_close(gh_exchange *x)
{
    struct gh_device *dev = x->dev;
    struct gh_device_before before = gh_device_enter(dev);
    struct gh_comm_parting parting = { NULL, 0, 0, 0 };

    x->gate.open = NULL; /* for good */
    end(x, &parting);
    gh_device_leave(dev, before);
    gh_device_close(dev); /* which frees memory, too */
    gh_comm_part(&parting);
}

bool gh_exchange_is_free(const gh_exchange *x)
{
    return x->gate.open != NULL;
}

const struct gh_log *gh_exchange_log(const gh_exchange *x)
{
    return &x->log;
}

struct gh_device *gh_exchange_device(const gh_exchange *x)
{
    return x->dev;
}

void *gh_exchange_memory(const gh_exchange *x)
{
    return x->window;
}

void gh_exchange_count(const gh_exchange *x, gh_exchange_stats *stats)
{
    *stats = x->stats;
}
