/*
 * What keeps one rank from doing as the others is an error of all, with rank
 * and pass, within a bound; nothing hangs, and what can be mended is.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tests/session/ranks/sharer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Three waits of a second, or on NCCL of ten, and a slow machine. */
#define LIMIT_S (ranks_are_soft() ? 8 : 40)

static const char *hasty[] = { "GRAPHHOOKS_TIMEOUT=1", NULL };
static const struct sharer_options fixed = { .environment = hasty,
                                             .fixed = true };

static bool is_odd(const struct rank *r)
{
    return r->rank == r->n - 1;
}

/* After a step that is recorded and one that is replayed. */
static bool open_ready(struct sharer *s, struct rank *r,
                       const struct sharer_options *options)
{
    return sharer_open(s, r, options) &&
           says(r, sharer_is_exact(s) && sharer_is_exact(s),
                "passes are recorded and replayed");
}

/* The communicator is aborted: nobody else ends it, nor looks at it but
 * softnccl. */
static void close_parted(struct sharer *s)
{
    const double start = tap_now_s();
    ncclResult_t result = ncclSuccess;

    sharer_close(s);
    says(s->r, tap_now_s() - start < LIMIT_S, "the session closes in time");
    if (ranks_are_soft() && sharer_said(s, "the graphs are destroyed")) {
        says(s->r,
             nccl.ncclCommGetAsyncError(s->r->comm, &result) != ncclSuccess,
             "the communicator is aborted");
    }
    s->r->comm = NULL;
}

/* A step that fails on every rank, with a sentence. */
static void parts(struct sharer *s, const char *words)
{
    const double start = tap_now_s();
    char where[40];
    gh_status status = sharer_step(s, 1);

    if (status == GH_OK) {
        status = gh_ranks_wait(s->session, s->r->stream, &s->err);
    }
    says(s->r, status == GH_ERR_RANKS, "%s: %.150s", gh_status_name(status),
         s->err.text);
    says(s->r, tap_now_s() - start < LIMIT_S, "it fails in time");
    snprintf(where, sizeof(where), "rank %d of %d, step 3", s->r->rank,
             s->r->n);
    says(s->r, strstr(s->err.text, where) != NULL &&
                   strstr(s->err.text, "layer ") != NULL,
         "it names rank, step and pass: %.120s", s->err.text);
    says(s->r, words == NULL || strstr(s->err.text, words) != NULL,
         "and what it is: %.170s", s->err.text);
    says(s->r, sharer_said(s, "the graphs are destroyed"), "it is logged");
    says_int(s->r, sharer_pass(s, 0, GH_FORWARD, 1), GH_ERR_RANKS,
             "no pass runs after it");
    says_int(s->r, gh_iteration_end(s->session, &s->err), GH_ERR_RANKS,
             "nor does a step end well");
}

static void test_one_leaves_alone(struct rank *r)
{
    struct sharer s;

    if (open_ready(&s, r, &fixed)) {
        s.moved = is_odd(r);
        parts(&s, is_odd(r) ? "here it is not replayed: input" : NULL);
    }
    close_parted(&s);
}

/* Two lengths of one group: the communicator is lent for both banks, and is
 * aborted once. */
static void test_banks_share_a_communicator(struct rank *r)
{
    const gh_bank_desc desc = { .struct_size = sizeof(desc), .tokens = 64 };
    struct sharer s;
    uint32_t bank;

    if (!sharer_open(&s, r, &fixed)) {
        return;
    }
    says_int(r, gh_bank_add(s.session, &desc, &bank, &s.err), GH_OK,
             "there is another bank");
    s.ranks.bank = bank;
    says_int(r, sharer_join(&s), GH_OK, "of the same ranks: %s", s.err.text);
    s.bank = bank;
    says(r, sharer_is_exact(&s) && sharer_is_exact(&s), "it is replayed");
    s.moved = is_odd(r);
    parts(&s, "microbatch 0, bank 1");
    close_parted(&s);
}

/* A host that has heard otherwise that a rank has died. */
static void give_up(struct rank *r, const struct sharer_options *options)
{
    struct sharer s;
    const double start = tap_now_s();

    if (!open_ready(&s, r, options)) {
        return;
    }
    ranks_barrier(r);
    if (r->rank == 0) {
        says_int(r, sharer_step(&s, 1), GH_OK, "a step is issued");
        says_int(r, sharer_pass(&s, 0, GH_FORWARD, 0), GH_OK,
                 "and a forward of the next");
        says_int(r, gh_ranks_abort(s.session, "rank 1 has died", &s.err), GH_OK,
                 "the host gives the ranks up");
        says_int(r, gh_ranks_abort(s.session, NULL, &s.err), GH_OK, "twice");
        says(r, tap_now_s() - start < LIMIT_S / 2, "nobody is waited for");
        says_int(r, s.objects, 0, "the host's own graphs are gone");
        says_int(r, sharer_pass(&s, 0, GH_FORWARD, 1), GH_ERR_RANKS,
                 "no pass runs after it");
        says_int(r, sharer_pass(&s, 0, GH_FORWARD, 0), GH_ERR_RANKS,
                 "a second forward is refused for the same reason");
        says_int(r, sharer_pass(&s, 1, GH_BACKWARD, 2), GH_ERR_RANKS,
                 "as is a backward before its forward");
        says(r, strstr(s.err.text, "rank 1 has died") != NULL,
             "its word is in the sentence: %.150s", s.err.text);
        says(r, sharer_said(&s, "rank 1 has died"), "and in the log");
    }
    close_parted(&s);
}

static void test_the_host_gives_up(struct rank *r)
{
    give_up(r, &fixed);
}

static void test_a_host_that_captures_gives_up(struct rank *r)
{
    struct sharer_options options = fixed;

    options.host = &sharer_captures;
    give_up(r, &options);
}

/* One rank waits for another inside the library. */
static void wait_alone(struct rank *r, const struct sharer_options *options,
                       uint32_t fails)
{
    struct sharer s;
    double start;

    if (!open_ready(&s, r, options)) {
        return;
    }
    ranks_barrier(r);
    start = tap_now_s();
    if (r->rank == 0) {
        s.fails = fails;
        says_int(r, sharer_step(&s, 1), GH_ERR_RANKS, "%.150s", s.err.text);
        says(r, tap_now_s() - start < LIMIT_S, "it fails in time");
        says_int(r, s.objects, 0, "and the host's own graphs are gone");
    }
    ranks_barrier(r);
    close_parted(&s);
}

/* A comparison reads results back. */
static void test_one_does_not_come_to_a_check(struct rank *r)
{
    const char *const checks[] = { hasty[0], "GRAPHHOOKS_CHECK=bitwise", NULL };
    struct sharer_options options = fixed;

    options.environment = checks;
    wait_alone(r, &options, 0);
}

/* A group of each segment goes to the host and comes back. */
static void offload(struct sharer *s, const gh_pass *pass,
                    const gh_decision *d)
{
    gh_offload_tensor tensor = { .bytes = 4096 };
    gh_offload_group group = { .struct_size = sizeof(group),
                               .layer = pass->segment,
                               .module = GH_MODULE_MLP_NORM,
                               .n_tensors = 1,
                               .tensors = &tensor };

    if (s->moved == 0) {
        return;
    }
    if (pass->direction == GH_BACKWARD) {
        gh_offload_load(s->session, &group, &s->err);
        gh_offload_release(s->session, group.layer, group.module, &s->err);
    } else if (gh_offload_save(s->session, &group, &s->err) == GH_OK) {
        drv.cuMemsetD32Async((uintptr_t)tensor.address, 1, tensor.bytes / 4,
                             d->stream);
        gh_offload_commit(s->session, group.layer, group.module, &s->err);
    }
}

/* The end of the profile waits for copies, which follow what the rank waits
 * for. */
static void test_one_does_not_come_to_a_profile(struct rank *r)
{
    const char *const offloads[] = { hasty[0], "GRAPHHOOKS_WARMUP_STEPS=100",
                                     "GRAPHHOOKS_OFFLOAD=mlp_norm",
                                     "GRAPHHOOKS_OFFLOAD_MIN_BYTES=1", NULL };
    const struct sharer_options options = { .environment = offloads,
                                            .fixed = true,
                                            .mischief = offload };
    struct sharer s;
    double start;

    if (!sharer_open(&s, r, &options)) {
        return;
    }
    says(r, sharer_is_exact(&s), "a step without groups is right");
    ranks_barrier(r);
    start = tap_now_s();
    if (r->rank == 0) {
        s.moved = 1;
        says_int(r, sharer_step(&s, 1), GH_ERR_RANKS, "%.150s", s.err.text);
        says(r, tap_now_s() - start < LIMIT_S, "it fails in time");
    }
    ranks_barrier(r);
    close_parted(&s);
}

static gh_status launch_or_fail(void *user, void *object, void *stream,
                                void **exec_p)
{
    struct sharer *s = user;
    void *exec;

    (void)exec_p; /* all launches are the host's */
    if (s->fails != 0 && --s->fails == 0) {
        return GH_ERR_DEVICE;
    }
    return sharer_captures.launch(user, object, stream, &exec);
}

/* Before a graph of the host's goes, what may use it is waited for. */
static void test_one_does_not_come_and_a_launch_fails(struct rank *r)
{
    gh_host_services host = sharer_captures;
    struct sharer_options options = fixed;

    host.launch = launch_or_fail;
    options.host = &host;
    wait_alone(r, &options, 2);
}

static void try_to_abort(struct sharer *s)
{
    if (gh_ranks_abort(s->session, "a service", NULL) == GH_ERR_STATE) {
        s->refused++;
    } else {
        s->obeyed++;
    }
}

static gh_status launch_and_abort(void *user, void *object, void *stream,
                                  void **exec_p)
{
    void *exec;

    (void)exec_p;
    try_to_abort(user);
    return sharer_captures.launch(user, object, stream, &exec);
}

static gh_status end_and_abort(void *user, void *stream, void **object_p,
                               void **graph_p)
{
    try_to_abort(user);
    return sharer_captures.capture_end(user, stream, object_p, graph_p);
}

static void destroy_and_abort(void *user, void *object)
{
    try_to_abort(user);
    sharer_captures.destroy(user, object);
}

static void test_services_give_nobody_up(struct rank *r)
{
    gh_host_services host = sharer_captures;
    struct sharer_options options = fixed;
    struct sharer s;

    host.capture_end = end_and_abort;
    host.launch = launch_and_abort;
    host.destroy = destroy_and_abort;
    options.host = &host;
    if (!open_ready(&s, r, &options)) {
        return;
    }
    says_int(r, s.refused, 3 * SHARER_PASSES,
             "the end of a capture and a launch are no places to abort");
    says_int(r, gh_ranks_clear(s.session, 0, &s.err), GH_OK,
             "ranks are taken back: %s", s.err.text);
    says_int(r, s.refused, 4 * SHARER_PASSES, "nor is a destroy");
    says_int(r, sharer_join(&s), GH_OK, "and come back");
    s.cancels = true;
    says(r, sharer_is_exact(&s), "one recording is cancelled, others are made");
    gh_session_close(s.session);
    s.session = NULL;
    says_int(r, s.obeyed, 0, "none has been obeyed");
    says_int(r, s.objects, 0, "and no graph is left");
    sharer_close(&s);
}

static void log_and_abort(void *user, gh_log_level level, const char *line)
{
    struct sharer *s = user;

    (void)level;
    (void)line;
    if (s->session != NULL) {
        try_to_abort(s);
    }
}

static void test_a_log_gives_nobody_up(struct rank *r)
{
    gh_host_services host = sharer_captures;
    struct sharer_options options = fixed;
    struct sharer s;

    host.log = log_and_abort;
    options.host = &host;
    if (!open_ready(&s, r, &options)) {
        return;
    }
    s.moved = 1;
    says(r, sharer_is_exact(&s), "a step of moved tensors runs eagerly");
    says(r, s.refused > 0, "a line of the log is no place to abort");
    says_int(r, s.obeyed, 0, "none has been obeyed");
    sharer_close(&s);
}

static void abort_inside(struct sharer *s, const gh_pass *pass,
                         const gh_decision *d)
{
    (void)pass;
    if (d->action == GH_ACTION_RECORD) {
        says_int(s->r, gh_ranks_abort(s->session, "a watchdog barks", &s->err),
                 GH_OK, "ranks are given up inside a recording");
    }
}

static void give_up_inside(struct rank *r, const gh_host_services *host)
{
    const struct sharer_options options = { .environment = hasty,
                                            .host = host,
                                            .fixed = true,
                                            .mischief = abort_inside };
    const double start = tap_now_s();
    struct sharer s;
    gh_status status;

    if (!sharer_open(&s, r, &options)) {
        return;
    }
    status = sharer_step(&s, 1);
    says(r, status == GH_ERR_RANKS || status == GH_ERR_STATE,
         "the step fails: %s: %.150s", gh_status_name(status), s.err.text);
    says(r, tap_now_s() - start < LIMIT_S / 2, "nobody is waited for");
    close_parted(&s);
}

static void test_all_give_up_in_a_recording(struct rank *r)
{
    give_up_inside(r, NULL);
}

static void test_all_give_up_in_a_capture_of_the_hosts(struct rank *r)
{
    give_up_inside(r, &sharer_captures);
}

static void test_nobody_to_give_up(struct rank *r)
{
    struct sharer s;

    if (sharer_open_alone(&s, r, &fixed)) {
        says_int(r, gh_ranks_abort(s.session, NULL, &s.err), GH_ERR_STATE,
                 "a session without ranks: %s", s.err.text);
    }
    sharer_close(&s);
}

static void test_one_records_alone(struct rank *r)
{
    struct sharer s;

    if (open_ready(&s, r, &fixed)) {
        s.variant = is_odd(r);
        parts(&s, is_odd(r) ? "here it is recorded" : NULL);
    }
    close_parted(&s);
}

/* Both are recorded for the first time. */
static void test_different_passes(struct rank *r)
{
    struct sharer s;
    gh_status status;

    if (!open_ready(&s, r, &fixed)) {
        return;
    }
    s.variant = 1;
    status = sharer_pass(&s, is_odd(r) ? 1 : 0, GH_FORWARD, 0);
    says_int(r, status, GH_ERR_RANKS, "different passes are refused");
    says(r, strstr(s.err.text, is_odd(r) ? "rank 0 is in step 3 at layer 0"
                                         : " is in step 3 at layer 1") != NULL,
         "with both of them: %.170s", s.err.text);
    close_parted(&s);
}

/* The names of layers and of the bank are as long as they may be: what is cut
 * is the names. */
static bool open_long(struct sharer *s, struct rank *r)
{
    static const struct sharer_options options = {
        .environment = hasty,
        .fixed = true,
        .layer = "layer 17.of.a.model.whose.names.are.very.long.indeed.as.here",
    };
    const gh_bank_desc desc = { .struct_size = sizeof(desc),
                                .tokens = 64,
                                .name = "a.bank.of.thirty.one.characters" };

    if (!sharer_open_alone(s, r, &options)) {
        return false;
    }
    says_int(r, gh_bank_add(s->session, &desc, &s->bank, &s->err), GH_OK,
             "a bank has a long name");
    s->ranks.bank = s->bank;
    return says_int(r, sharer_join(s), GH_OK, "and ranks") &&
           says(r, sharer_is_exact(s) && sharer_is_exact(s) &&
                       sharer_is_exact(s),
                "its passes are recorded and replayed");
}

static void test_the_longest_text_of_places(struct rank *r)
{
    struct sharer s;

    if (!open_long(&s, r)) {
        return;
    }
    s.variant = 1;
    says_int(r, sharer_pass(&s, is_odd(r) ? 1 : 0, GH_FORWARD, 0),
             GH_ERR_RANKS, "different passes are refused");
    says(r,
         strstr(s.err.text, " attn..mlp forward, microbatch 0, bank 1 (a.") !=
             NULL,
         "a long text has this rank's pass: %s", s.err.text);
    says(r, strstr(s.err.text, " attn..mlp forward (variant 1), slot 0: enter "
                               "passes in the same order on all ranks") != NULL,
         "and the other's, and the remedy");
    close_parted(&s);
}

static void test_the_longest_text_of_a_wait(struct rank *r)
{
    struct sharer s;

    if (!open_long(&s, r)) {
        return;
    }
    s.moved = is_odd(r);
    parts(&s, is_odd(r) ? "here it is not replayed: input" : NULL);
    close_parted(&s);
}

/* It has ended, or never comes. */
static void test_one_dies(struct rank *r)
{
    struct sharer s;

    if (!open_ready(&s, r, &fixed)) {
        return;
    }
    if (!is_odd(r)) {
        parts(&s, NULL);
    }
    close_parted(&s);
}

/* It lives, and is elsewhere for so long that nobody but the session gives it
 * up. */
static void test_one_is_elsewhere(struct rank *r)
{
    struct sharer s;

    if (!open_ready(&s, r, &fixed)) {
        return;
    }
    if (!is_odd(r)) {
        parts(&s, NULL);
    }
    ranks_barrier(r);
    close_parted(&s);
}

static void test_a_close_does_not_wait_for_it(struct rank *r)
{
    struct sharer s;

    if (!open_ready(&s, r, &fixed)) {
        return;
    }
    if (!is_odd(r)) {
        says_int(r, sharer_step(&s, 1), GH_OK, "a step is issued");
        close_parted(&s);
        says(r, sharer_said(&s, "does not come") ||
                    sharer_said(&s, "another rank"),
             "it is logged");
    }
    ranks_barrier(r);
    if (is_odd(r)) {
        close_parted(&s);
    }
}

static void test_one_dies_before_a_recording(struct rank *r)
{
    struct sharer s;
    gh_status status;

    if (!sharer_open(&s, r, &fixed)) {
        return;
    }
    if (!is_odd(r)) {
        status = sharer_step(&s, 1);
        says(r, status == GH_ERR_RANKS &&
                    strstr(s.err.text, "step 1, layer 0 attn..mlp forward") !=
                        NULL,
             "%s: %.170s", gh_status_name(status), s.err.text);
    }
    close_parted(&s);
}

/* Its communicator fails while others wait for it, who have much time. */
static void test_one_fails_before_a_recording(struct rank *r)
{
    static const struct sharer_options patient = { .fixed = true };
    const double start = tap_now_s();
    struct sharer s;

    if (!sharer_open(&s, r, &patient)) {
        return;
    }
    ranks_barrier(r);
    if (is_odd(r)) {
        nccl.ncclCommAbort(r->comm);
        r->comm = NULL;
        ranks_barrier(r);
        return sharer_close(&s);
    }
    says_int(r, sharer_step(&s, 1), GH_ERR_RANKS, "a step fails: %.120s",
             s.err.text);
    says(r, tap_now_s() - start < LIMIT_S, "before the time is over");
    ranks_barrier(r);
    close_parted(&s);
}

/* Words that the host does not bring: it ends what waits for it. */
static void test_the_host_aborts(struct rank *r)
{
    const struct sharer_options options = { .environment = hasty,
                                            .fixed = true,
                                            .by_host = true };
    struct sharer s;

    if (!open_ready(&s, r, &options)) {
        return;
    }
    s.mute = true;
    s.moved = 1;
    parts(&s, "the host's gather: GH_ERR_BUSY");
    says_int(r, s.aborted, 1, "the host was to abort once");
    sharer_close(&s);
    says_int(r, s.aborted, 1, "and not again");
}

static uint64_t graphs_left;

/* A second rank that says what the first does; of settings its own number. */
static gh_status echo(void *user, uint32_t bank, const uint64_t *mine,
                      uint64_t *all, uint32_t n)
{
    const struct sharer *s = user;

    (void)bank;
    for (uint32_t i = 0; i < 2 * n; i++) {
        all[i] = mine[i % n];
    }
    if (n == 8) {
        all[n] = 1;
    }
    return s->mute ? GH_ERR_STATE : GH_OK;
}

static void note_graphs(void *user, uint32_t bank)
{
    const struct sharer *s = user;

    (void)bank;
    graphs_left = ranks_graphs() + (uint64_t)s->objects;
}

/* Alone, with an echo for the other rank, until it joins. */
static bool open_with_echo(struct sharer *s, struct rank *r,
                           const struct sharer_options *options)
{
    if (!sharer_open_alone(s, r, options)) {
        return false;
    }
    s->ranks = (gh_ranks){ .struct_size = sizeof(s->ranks),
                           .size = 2,
                           .user = s,
                           .gather = echo,
                           .abort = note_graphs };
    return true;
}

/* NCCL waits for the graphs that hold its operations, in an abort too. */
static void graphs_go_first(struct rank *r, const gh_host_services *host)
{
    const struct sharer_options options = { .environment = hasty,
                                            .host = host,
                                            .fixed = true };
    struct sharer s;

    graphs_left = UINT64_MAX;
    if (!open_with_echo(&s, r, &options)) {
        return;
    }
    says_int(r, sharer_join(&s), GH_OK, "two ranks, of which one is an echo");
    says(r, sharer_is_exact(&s) && sharer_is_exact(&s) && sharer_is_exact(&s),
         "record and replay");
    says_int(r, (long long)ranks_graphs(), SHARER_PASSES, "with graphs");
    s.mute = true;
    s.moved = 1;
    says_int(r, sharer_step(&s, 1), GH_ERR_RANKS, "until they part");
    says_int(r, (long long)graphs_left, 0,
             "no graph is left when communicators are aborted");
    sharer_close(&s);
}

/* ---- a stream that never ends ------------------------------------------- */

/* The calls at which ranks part while a stream waits for a word, as one does
 * that holds an exchange by copies. */
enum part_at {
    AT_ABORT,
    AT_ENTER,
    AT_WAIT,
    AT_CLEAR,
    AT_CLOSE,
    PART_ATS
};

static gh_status part_at(struct sharer *s, enum part_at at)
{
    gh_session *session = s->session;
    const double start = tap_now_s();
    gh_status status = GH_ERR_RANKS;

    switch (at) {
    case AT_ABORT:
        return gh_ranks_abort(session, NULL, &s->err) == GH_OK &&
                       tap_now_s() - start < LIMIT_S
                   ? GH_ERR_RANKS
                   : GH_OK;
    case AT_ENTER:
        s->mute = true;
        s->moved = 1;
        status = sharer_pass(s, 0, GH_FORWARD, 0);
        break;
    case AT_WAIT:
        status = gh_ranks_wait(session, s->r->stream, &s->err);
        break;
    case AT_CLEAR:
        status = gh_ranks_clear(session, 0, &s->err);
        break;
    default:
        break;
    }
    return tap_now_s() - start < LIMIT_S ? status : GH_OK;
}

/* None of the hooks waits longer than the timeout, whatever it answers. */
static void call_all(struct sharer *s)
{
    const double start = tap_now_s();
    gh_session *session = s->session;

    sharer_pass(s, 0, GH_FORWARD, 1);
    gh_layer_cancel(session, NULL);
    gh_flush_delayed(session, NULL);
    gh_iteration_end(session, NULL);
    gh_ranks_wait(session, s->r->stream, NULL);
    gh_ranks_clear(session, 0, NULL);
    gh_ranks_abort(session, NULL, NULL);
    says(s->r, tap_now_s() - start < LIMIT_S, "every hook returns: %.1f s",
         tap_now_s() - start);
}

/* The stream waits for the word; the session does not know it where it is
 * none of its passes'. */
static void never_ends(struct rank *r, CUstream stream, enum part_at at,
                       CUdeviceptr word, CUstream other)
{
    const struct sharer_options options = { .environment = hasty,
                                            .fixed = true };
    struct sharer s;
    double start;

    if (!open_with_echo(&s, r, &options)) {
        return;
    }
    says_int(r, sharer_join(&s), GH_OK, "a rank and its echo");
    says(r, sharer_is_exact(&s) && sharer_is_exact(&s), "have graphs");
    drv.cuMemsetD32Async(word, 0, 1, other);
    drv.cuStreamSynchronize(other);
    drv.cuStreamWaitValue32(stream, word, 1, 1);
    says_int(r, part_at(&s, at), GH_ERR_RANKS,
             "they part in time, at call %d: %.120s", (int)at, s.err.text);
    if (at != AT_CLOSE) {
        call_all(&s);
    }
    start = tap_now_s();
    gh_session_close(s.session);
    says(r, tap_now_s() - start < LIMIT_S, "the session closes: %.1f s",
         tap_now_s() - start);
    says(r, sharer_said(&s, "is left to the context"), "which is said");
    drv.cuMemsetD32Async(word, 1, 1, other);
    drv.cuStreamSynchronize(stream);
    sharer_close(&s);
}

/* Two ranks that are all there, and a stream that no pass is on. */
static void test_another_stream_never_ends(struct rank *r)
{
    CUstream other = NULL;
    CUdeviceptr word = 0;
    struct sharer s;
    double start;

    drv.cuStreamCreate(&other, CU_STREAM_NON_BLOCKING);
    drv.cuMemAlloc(&word, 4);
    if (!open_ready(&s, r, &fixed)) {
        return;
    }
    says_int(r, gh_iteration_end(s.session, NULL), GH_OK, "a step ends");
    drv.cuMemsetD32Async(word, 0, 1, other);
    drv.cuStreamSynchronize(other);
    ranks_barrier(r);
    drv.cuStreamWaitValue32(r->side, word, 1, 1);
    start = tap_now_s();
    says_int(r, gh_ranks_clear(s.session, 0, &s.err), GH_OK,
             "the ranks are cleared: %.120s", s.err.text);
    says(r, tap_now_s() - start < LIMIT_S, "in time: %.1f s",
         tap_now_s() - start);
    ranks_barrier(r);
    drv.cuMemsetD32Async(word, 1, 1, other);
    drv.cuStreamSynchronize(r->side);
    ranks_barrier(r);
    sharer_close(&s);
    drv.cuMemFree(word);
    drv.cuStreamDestroy(other);
}

/* A part_at with a stream of the session, then three with another. */
static int stuck_at;
#define N_STUCK (PART_ATS + 3)

static void test_a_stream_never_ends(struct rank *r)
{
    static const enum part_at beside[] = { AT_ABORT, AT_ENTER, AT_CLOSE };
    CUstream other = NULL;
    CUdeviceptr word = 0;

    drv.cuStreamCreate(&other, CU_STREAM_NON_BLOCKING);
    drv.cuMemAlloc(&word, 4);
    if (stuck_at < PART_ATS) {
        never_ends(r, r->stream, (enum part_at)stuck_at, word, other);
    } else {
        never_ends(r, r->side, beside[stuck_at - PART_ATS], word, other);
    }
    drv.cuMemFree(word);
    drv.cuStreamDestroy(other);
}

/* ---- a graph of the host's ----------------------------------------------- */

/* It holds an operation of the communicator that is lent, and NCCL aborts that
 * once it is gone. */
static CUgraphExec hold(struct rank *r)
{
    CUgraphExec exec = NULL;
    CUgraph graph = NULL;

    drv.cuStreamBeginCapture(r->side, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    nccl.ncclAllReduce(pointer(r->send), pointer(r->recv), 4, ncclFloat32,
                       ncclSum, r->comm, r->side);
    drv.cuStreamEndCapture(r->side, &graph);
    drv.cuGraphInstantiateWithFlags(&exec, graph, 0);
    drv.cuGraphDestroy(graph);
    return exec;
}

static enum part_at held_at;

static void test_a_graph_is_held(struct rank *r)
{
    CUgraphExec exec;
    struct sharer s;
    double start;

    if (!open_ready(&s, r, &fixed)) {
        return;
    }
    exec = hold(r);
    ranks_barrier(r);
    if (!is_odd(r)) {
        if (held_at != AT_ENTER) {
            says_int(r, sharer_step(&s, 1), GH_OK, "a step is issued");
        }
        says_int(r, part_at(&s, held_at), GH_ERR_RANKS,
                 "ranks part in time, at call %d: %.120s", (int)held_at,
                 s.err.text);
        if (held_at != AT_CLOSE) {
            call_all(&s);
        }
    }
    ranks_barrier(r);
    if (is_odd(r)) {
        gh_ranks_abort(s.session, NULL, NULL);
    }
    start = tap_now_s();
    gh_session_close(s.session);
    s.session = NULL;
    says(r, tap_now_s() - start < LIMIT_S, "the session closes: %.1f s",
         tap_now_s() - start);
    says(r, sharer_said(&s, "destroy the graphs of the host's"),
         "what is left behind is said");
    drv.cuGraphExecDestroy(exec);
    r->comm = NULL;
    sharer_close(&s);
}

static void test_graphs_go_before_communicators(struct rank *r)
{
    graphs_go_first(r, NULL);
    graphs_go_first(r, &sharer_captures);
}

/* Graphs of a bank that gave way are destroyed later, but no later than this:
 * they may hold operations of a communicator that the host aborts. */
static void evicted_graphs_go(struct rank *r, const gh_host_services *host)
{
    static const char *const one[] = { "GRAPHHOOKS_TIMEOUT=1",
                                       "GRAPHHOOKS_MAX_BANKS=1", NULL };
    const struct sharer_options options = { .environment = one,
                                            .host = host };
    const gh_bank_desc desc = { .struct_size = sizeof(desc) };
    struct sharer s;

    graphs_left = UINT64_MAX;
    if (!open_with_echo(&s, r, &options)) {
        return;
    }
    gh_bank_add(s.session, &desc, &s.ranks.bank, NULL);
    says_int(r, sharer_join(&s), GH_OK, "bank 1 has an echo for a rank");
    says(r, sharer_is_exact(&s) && sharer_is_exact(&s), "bank 0 is recorded");
    s.bank = s.ranks.bank;
    says_int(r, sharer_pass(&s, 0, GH_FORWARD, 0), GH_OK,
             "bank 1 takes its place");
    says_int(r, (long long)ranks_graphs(), SHARER_PASSES + 1,
             "whose graphs are there");
    s.mute = true;
    says_int(r, sharer_pass(&s, 1, GH_FORWARD, 0), GH_ERR_RANKS,
             "when the ranks part");
    says_int(r, (long long)graphs_left, 0,
             "no graph of either is left when communicators are aborted");
    sharer_close(&s);
}

static void test_evicted_graphs_go_too(struct rank *r)
{
    evicted_graphs_go(r, NULL);
    evicted_graphs_go(r, &sharer_captures);
}

static void test_a_communicator_is_destroyed(struct rank *r)
{
    struct sharer s;

    if (!open_ready(&s, r, &fixed)) {
        return;
    }
    ranks_barrier(r);
    nccl.ncclCommDestroy(r->comm);
    ranks_barrier(r);
    says_int(r, gh_iteration_end(s.session, &s.err), GH_ERR_RANKS,
             "the next step does not end well");
    says(r, strstr(s.err.text, "was destroyed") != NULL, "it says why: %.150s",
         s.err.text);
    close_parted(&s);
}

/* ---- the beginning ------------------------------------------------------- */

static void refuses(struct sharer *s, gh_status wanted, const char *words)
{
    const double start = tap_now_s();
    const gh_status status = sharer_join(s);

    says(s->r, status == wanted && strstr(s->err.text, words) != NULL,
         "%s: %.160s", gh_status_name(status), s->err.text);
    says(s->r, tap_now_s() - start < LIMIT_S, "in time");
}

/* Every option that env.def says is the same on all ranks, with a value that is
 * not its default, and how both are shown. */
static const struct {
    const char *option, *text, *others;
} unlike[] = {
    { "ENABLE=0", "0", "1" },
    { "SCOPE=attn", "attn", "all" },
    { "GRANULARITY=part", "part", "layer" },
    { "WARMUP_STEPS=3", "3", "1" },
    { "MAX_SLOTS=3", "3", "2" },
    { "MAX_BANKS=3", "3", "16" },
    { "CHECK=ranks", "ranks", "off" },
    { "CHECK_EVERY=3", "3", "1" },
    { "TIMEOUT=3", "3", "1" },
    { "FREEZE=3", "3", "0" },
    { "OFFLOAD=core_attn", "core_attn", "none" },
    { "OFFLOAD_FRACTION=auto", "auto", "1" },
    { "OFFLOAD_FRACTION=0.25", "0.25", "1" },
    { "OFFLOAD_MIN_BYTES=4294967296", "4294967296", "1048576" },
    { "OFFLOAD_BUFFERS=3", "3", "2" },
    { "OFFLOAD_POOL_BYTES=4096", "4096", "0" },
    { "OFFLOAD_KEEP_BYTES=4096", "4096", "0" },
    { "OFFLOAD_PREFETCH=3", "3", "0" },
    { "OFFLOAD_IN_FLIGHT=3", "3", "0" },
    { "OFFLOAD_DELAY=1", "1", "0" },
    { "OFFLOAD_APART=1", "1", "0" },
    { "OVERLAP=off", "off", "fixed" },
};

/* Some options also change the plan, which is compared first. */
static bool names(const struct sharer *s, uint32_t i)
{
    const size_t bytes = strcspn(unlike[i].option, "=");
    char words[160];

    if (strncmp(unlike[i].option, "SCOPE", bytes) == 0 ||
        strncmp(unlike[i].option, "GRANULARITY", bytes) == 0) {
        return strstr(s->err.text, "the plan is ") != NULL;
    }
    snprintf(words, sizeof(words),
             "GRAPHHOOKS_%.*s is %s on rank %d, and %s on rank 0", (int)bytes,
             unlike[i].option, unlike[i].text, s->r->n - 1, unlike[i].others);
    return strstr(s->err.text, words) != NULL;
}

static void test_settings_differ(struct rank *r)
{
    for (uint32_t i = 0; i < sizeof(unlike) / sizeof(unlike[0]); i++) {
        char option[64];
        const char *const other[] = { option, hasty[0], NULL };
        const struct sharer_options options = { .environment =
                                                    is_odd(r) ? other : hasty };
        struct sharer s;

        snprintf(option, sizeof(option), "GRAPHHOOKS_%s", unlike[i].option);
        if (sharer_open_alone(&s, r, &options)) {
            says_int(r, sharer_join(&s), GH_ERR_CONFIG, "%s on one rank",
                     option);
            says(r, names(&s, i), "each names it, with both values: %.150s",
                 s.err.text);
        }
        sharer_close(&s);
    }
}

/* Two give the first rank's number. */
static void test_one_number_twice(struct rank *r)
{
    const struct sharer_options options = { .environment = hasty,
                                            .by_host = true };
    struct sharer s;
    char words[80];

    snprintf(words, sizeof(words),
             "gh_ranks.rank is 0 on two ranks, which are 0 and %d", r->n - 1);
    if (sharer_open_alone(&s, r, &options)) {
        s.ranks.rank = r->rank == r->n - 1 ? 0 : (uint32_t)r->rank;
        refuses(&s, GH_ERR_CONFIG, words);
    }
    sharer_close(&s);
}

/* The flags of a session are no option. */
static void test_flags_differ(struct rank *r)
{
    const struct sharer_options options = {
        .environment = hasty,
        .flags = is_odd(r) ? GH_SESSION_LEGACY_THREADS : 0
    };
    struct sharer s;

    if (sharer_open_alone(&s, r, &options)) {
        refuses(&s, GH_ERR_CONFIG, "gh_session_desc.flags is ");
    }
    sharer_close(&s);
}

/* Nor is the speed of the link, of which 0 says no more than no description. */
static void test_links_differ(struct rank *r)
{
    const gh_offload_desc none = { .struct_size = sizeof(none) };
    const gh_offload_desc slow = { .struct_size = sizeof(slow),
                                   .link_mb_per_s = 5000 };
    struct sharer_options options = { .environment = hasty,
                                      .offload = is_odd(r) ? &none : NULL };
    struct sharer s;
    char words[80];

    snprintf(words, sizeof(words),
             "gh_offload_desc.link_mb_per_s is 5000 on rank %d, and 0 on",
             r->n - 1);
    if (sharer_open_alone(&s, r, &options)) {
        says_int(r, sharer_join(&s), GH_OK, "no speed is the same: %.150s",
                 s.err.text);
    }
    sharer_close(&s);
    options.offload = is_odd(r) ? &slow : NULL;
    if (sharer_open_alone(&s, r, &options)) {
        refuses(&s, GH_ERR_CONFIG, words);
    }
    sharer_close(&s);
}

/* Of all ranks, besides their own of this test: of tests before it. */
static uint64_t communicators_besides(struct rank *r)
{
    uint64_t count;

    ranks_barrier(r);
    count = soft_communicators();
    ranks_barrier(r);
    return count - (uint64_t)r->n;
}

/* What a split of a rank that gave it up still makes, a thread ends that
 * nobody can wait for. */
static void leaves_no_more_than(struct rank *r, uint64_t before)
{
    const struct timespec nap = { 0, 10000000 };

    if (!ranks_are_soft()) {
        return;
    }
    ranks_barrier(r);
    for (int i = 0; i < 500 && soft_communicators() != before; i++) {
        nanosleep(&nap, NULL);
    }
    says(r, soft_communicators() == before, "no communicator is left");
}

static void test_one_never_joins(struct rank *r)
{
    const uint64_t before = communicators_besides(r);
    struct sharer s;

    if (sharer_open_alone(&s, r, &fixed) && !is_odd(r)) {
        refuses(&s, GH_ERR_RANKS, "");
    }
    ranks_barrier(r);
    sharer_close(&s);
    nccl.ncclCommAbort(r->comm);
    r->comm = NULL;
    leaves_no_more_than(r, before);
}

/* The others have closed their sessions. */
static void join_too_late(struct rank *r, const char *words)
{
    const uint64_t before = communicators_besides(r);
    struct sharer s;

    if (!sharer_open_alone(&s, r, &fixed)) {
        return;
    }
    if (!is_odd(r)) {
        refuses(&s, GH_ERR_RANKS, "have not come in");
        sharer_close(&s);
    }
    ranks_barrier(r);
    if (is_odd(r)) {
        refuses(&s, GH_ERR_RANKS, words);
        sharer_close(&s);
    }
    ranks_barrier(r);
    nccl.ncclCommAbort(r->comm);
    r->comm = NULL;
    leaves_no_more_than(r, before);
}

/* It need not wait: what the others left in a call of NCCL ends, and gives it
 * up. */
static void test_one_joins_too_late(struct rank *r)
{
    join_too_late(r, ranks_are_soft() ? "has aborted the communicator" : "");
}

/* While others wait for it who have much time. */
static void leave_before_it_joins(struct rank *r, bool aborts,
                                  const char *words)
{
    static const struct sharer_options patient = { .fixed = true };
    const struct timespec late = { 0, 100000000 };
    struct sharer s;

    if (!sharer_open_alone(&s, r, &patient)) {
        return;
    }
    if (!is_odd(r)) {
        refuses(&s, GH_ERR_RANKS, words);
    } else if (aborts) {
        nanosleep(&late, NULL);
        nccl.ncclCommAbort(r->comm);
        r->comm = NULL;
    }
    sharer_close(&s);
}

static void test_one_fails_before_it_joins(struct rank *r)
{
    leave_before_it_joins(r, true, "ncclCommSplit: 6 another rank has gone");
}

/* The communicator of the others is well. */
static void test_one_ends_before_it_joins(struct rank *r)
{
    leave_before_it_joins(r, false, "ncclCommSplit: 6 another rank has gone or "
                                    "failed: deadlock: split 1 of ");
}

static void start_without_blocking(struct rank *r)
{
    struct nccl_config config = NCCL_CONFIG_OURS;
    const struct timespec nap = { 0, 1000000 };
    ncclResult_t state = ncclInProgress;

    config.blocking = 0;
    nccl.ncclCommInitRankConfig(&r->comm, r->n, ranks_id(r), r->rank,
                                (ncclConfig_t *)&config);
    while (nccl.ncclCommGetAsyncError(r->comm, &state) == ncclSuccess &&
           state == ncclInProgress) {
        nanosleep(&nap, NULL);
    }
    says_int(r, state, ncclSuccess, "a communicator does not block");
}

static void test_without_blocking(struct rank *r)
{
    struct sharer s;

    start_without_blocking(r);
    if (sharer_open(&s, r, &fixed)) {
        says(r, sharer_is_exact(&s) && sharer_is_exact(&s),
             "passes are recorded and replayed");
    }
    ranks_barrier(r);
    sharer_close(&s);
    nccl.ncclCommAbort(r->comm);
    r->comm = NULL;
}

/* NCCL still writes what is split when the session is closed: the host's abort
 * is what ends it. */
static void test_one_never_joins_without_blocking(struct rank *r)
{
    start_without_blocking(r);
    test_one_never_joins(r);
}

static void test_one_joins_too_late_without_blocking(struct rank *r)
{
    start_without_blocking(r);
    join_too_late(r, "");
}

static gh_status never(void *user, uint32_t bank, const uint64_t *mine,
                       uint64_t *all, uint32_t n)
{
    (void)user;
    (void)bank;
    (void)mine;
    (void)all;
    (void)n;
    return GH_ERR_STATE;
}

static void test_bad_ranks(struct rank *r)
{
    struct sharer s;
    gh_ranks good;

    if (!sharer_open_alone(&s, r, &fixed)) {
        return;
    }
    good = s.ranks;
    says_int(r, gh_ranks_set(NULL, &good, &s.err), GH_ERR_INVALID,
             "a session is needed");
    s.ranks.rank = s.ranks.size;
    refuses(&s, GH_ERR_INVALID, "ranks count from 0");
    s.ranks = good;
    s.ranks.size = 0;
    refuses(&s, GH_ERR_INVALID, "ranks count from 0");
    s.ranks = good;
    s.ranks.comm = NULL;
    refuses(&s, GH_ERR_INVALID, "neither comm nor gather");
    s.ranks = good;
    s.ranks.gather = never;
    refuses(&s, GH_ERR_INVALID, "both comm and gather");
    s.ranks.comm = NULL;
    refuses(&s, GH_ERR_RANKS, "the host's gather: GH_ERR_STATE");
    s.ranks = good;
    s.ranks.bank = 7;
    refuses(&s, GH_ERR_NOT_FOUND, "there is no bank 7");
    s.ranks = good;
    s.ranks.size++;
    refuses(&s, GH_ERR_INVALID, "its communicator rank");
    s.ranks = good;
    s.ranks.struct_size = 8;
    refuses(&s, GH_ERR_ABI, "gh_ranks");
    s.ranks = good;
    s.ranks.nccl = "/no/such/libnccl.so.2";
    refuses(&s, GH_ERR_NOT_FOUND, "GRAPHHOOKS_NCCL");
    s.ranks = good;
    says(r, sharer_is_exact(&s), "a step without ranks is right");
    says_int(r, sharer_join(&s), GH_OK, "the good one is taken after them");
    refuses(&s, GH_ERR_STATE, "has its ranks already");
    says(r, sharer_is_exact(&s) && sharer_is_exact(&s), "and is of use");
    says_int(r, gh_ranks_clear(s.session, 7, &s.err), GH_ERR_NOT_FOUND,
             "no ranks are taken from a bank that there is not");
    sharer_close(&s);
}

/* Each is found out before anything is asked of it. */
static void test_no_usable_nccl(struct rank *r)
{
    static const char *const named[] = {
        "GRAPHHOOKS_NCCL=./.libs/libnccl_part.so", NULL
    };
    const struct sharer_options by_environment = { .environment = named };
    struct sharer s;
    const char *good;

    if (!sharer_open_alone(&s, r, &fixed)) {
        return;
    }
    good = s.ranks.nccl;
    s.ranks.nccl = "./.libs/libnccl_old.so";
    refuses(&s, GH_ERR_NOT_FOUND, "version 21903; 2.20 (22000) or newer");
    s.ranks.nccl = "./.libs/libnccl_part.so";
    refuses(&s, GH_ERR_NOT_FOUND, "version 22005, has no ncclCommSplit");
    s.ranks.nccl = "./.libs/libgraphhooks-softcuda.so";
    refuses(&s, GH_ERR_NOT_FOUND, "is version 0");
    s.ranks.nccl = good;
    says_int(r, sharer_join(&s), GH_OK, "a whole one is taken after them");
    sharer_close(&s);

    if (sharer_open_alone(&s, r, &by_environment)) {
        refuses(&s, GH_ERR_NOT_FOUND, "has no ncclCommSplit");
    }
    sharer_close(&s);
}

/* The software device's, by its word: it lies beside the library. */
static void test_nccl_by_its_word(struct rank *r)
{
    struct sharer s;

    if (sharer_open_alone(&s, r, &fixed)) {
        s.ranks.nccl = "soft";
        says_int(r, sharer_join(&s), GH_OK, "softnccl is found: %.120s",
                 s.err.text);
        says(r, sharer_is_exact(&s) && sharer_is_exact(&s), "and is of use");
    }
    sharer_close(&s);
}

static void test_ranks_come_late(struct rank *r)
{
    const struct sharer_options options = { .environment = hasty,
                                            .alone = true };
    struct sharer s;

    if (open_ready(&s, r, &options)) {
        refuses(&s, GH_ERR_STATE, "has recorded alone");
    }
    sharer_close(&s);
}

/* ---- the end ------------------------------------------------------------- */

static void test_a_communicator_is_given_back(struct rank *r)
{
    ncclComm_t second = NULL;
    struct sharer s;

    if (!open_ready(&s, r, &fixed)) {
        return;
    }
    says_int(r, gh_ranks_clear(s.session, 0, &s.err), GH_OK,
             "ranks are taken back: %s", s.err.text);
    says_int(r, gh_ranks_clear(s.session, 0, &s.err), GH_OK, "and once more");
    says_int(r, nccl.ncclCommSplit(r->comm, 0, r->rank, &second, NULL), 0,
             "there is another communicator");
    nccl.ncclCommDestroy(r->comm);
    r->comm = s.comm = s.ranks.comm = second;
    says_int(r, sharer_join(&s), GH_OK, "which the bank gets: %s", s.err.text);
    says(r, sharer_is_exact(&s) && sharer_is_exact(&s),
         "its passes are recorded anew, and replayed");
    says_int(r, s.recorded, 2 * SHARER_PASSES, "each twice");
    sharer_close(&s);
}

static const struct ranks_test parted[] = {
    { "one leaves alone", test_one_leaves_alone, false },
    { "one communicator, two banks", test_banks_share_a_communicator,
      false },
    { "the host gives up", test_the_host_gives_up, false },
    { "a host that captures gives up", test_a_host_that_captures_gives_up,
      false },
    { "one does not come to a check", test_one_does_not_come_to_a_check,
      false },
    { "one does not come, and a launch fails",
      test_one_does_not_come_and_a_launch_fails, false },
    { "all give up in a recording", test_all_give_up_in_a_recording,
      false },
    { "all give up in a capture of the host's",
      test_all_give_up_in_a_capture_of_the_hosts, false },
    { "one records alone", test_one_records_alone, false },
    { "different passes", test_different_passes, false },
    { "the longest text, places", test_the_longest_text_of_places, false },
    { "the longest text, a wait", test_the_longest_text_of_a_wait, false },
    { "one does not come to a profile",
      test_one_does_not_come_to_a_profile, false },
    { "one dies", test_one_dies, false },
    { "one is elsewhere", test_one_is_elsewhere, false },
    { "a close does not wait", test_a_close_does_not_wait_for_it, false },
    { "one dies before a recording", test_one_dies_before_a_recording,
      false },
    { "the host aborts", test_the_host_aborts, false },
    { "one joins too late", test_one_joins_too_late, false },
    { "no blocking, one never joins",
      test_one_never_joins_without_blocking, true },
    { "no blocking, one joins too late",
      test_one_joins_too_late_without_blocking, true },
    /* The last: NCCL may crash where this aborts. */
    { "one never joins", test_one_never_joins, false },
};
#define N_PARTED (int)(sizeof(parted) / sizeof(parted[0]))

/* On NCCL a host also polls after each of its own operations, and others may
 * hear later. */
static const struct {
    int n;
    struct ranks_test test;
} parted_soft[] = {
    { 2, { "no blocking", test_without_blocking, true } },
    { 3, { "no blocking", test_without_blocking, true } },
    { 2, { "a communicator is destroyed", test_a_communicator_is_destroyed,
           false } },
    { 3, { "one fails before it joins", test_one_fails_before_it_joins,
           false } },
    { 3, { "one ends before it joins", test_one_ends_before_it_joins,
           false } },
    { 2, { "one fails before a recording", test_one_fails_before_a_recording,
           false } },
};
#define N_PARTED_SOFT (int)(sizeof(parted_soft) / sizeof(parted_soft[0]))

static void run_wrong(int n, const struct ranks_test *test)
{
    (test->bare ? ranks_run_wrong_bare : ranks_run_wrong)(n, test->name,
                                                          test->run);
}

/* Most of its time each waits for a rank that does not come. */
static void run_parted(int i)
{
    if (i < N_PARTED) {
        run_wrong(2, &parted[i]);
        run_wrong(3, &parted[i]);
    } else if ((i -= N_PARTED) < N_PARTED_SOFT) {
        if (parted_soft[i].test.run == test_a_communicator_is_destroyed) {
            /* softnccl waits so long for its graphs to go, and they do not. */
            setenv("SOFTNCCL_TIMEOUT", "5", 1);
        }
        run_wrong(parted_soft[i].n, &parted_soft[i].test);
    } else if ((i -= N_PARTED_SOFT) < PART_ATS) {
        held_at = (enum part_at)i;
        ranks_run_wrong(2, "a graph is held", test_a_graph_is_held);
    } else if ((i -= PART_ATS) < N_STUCK) {
        stuck_at = i;
        ranks_run_wrong(1, "a stream never ends", test_a_stream_never_ends);
    } else {
        ranks_run_wrong(2, "another stream never ends",
                        test_another_stream_never_ends);
    }
}

int main(void)
{
    static const struct ranks_test whole[] = {
        { "settings differ", test_settings_differ, false },
        { "flags differ", test_flags_differ, false },
        { "links differ", test_links_differ, false },
        { "one number twice", test_one_number_twice, false },
        { "bad ranks", test_bad_ranks, false },
        { "ranks come late", test_ranks_come_late, false },
        { "nobody to give up", test_nobody_to_give_up, false },
        { "a communicator is given back", test_a_communicator_is_given_back,
          false },
        { "services give nobody up", test_services_give_nobody_up, false },
        { "a log gives nobody up", test_a_log_gives_nobody_up, false },
    };
    static const struct ranks_test soft[] = {
        { "no usable NCCL", test_no_usable_nccl, false },
        { "NCCL by its word", test_nccl_by_its_word, false },
    };
    int status;

    if (!ranks_open(&status)) {
        return status;
    }
    if (!ranks_are_soft()) {
        hasty[0] = "GRAPHHOOKS_TIMEOUT=10";
    }
    for (int n = 2; n <= 4; n += 2) {
        ranks_run_all(n, whole, sizeof(whole) / sizeof(whole[0]));
    }
    if (ranks_are_soft()) {
        ranks_run(1, "graphs go first", test_graphs_go_before_communicators);
        ranks_run(1, "evicted graphs go too", test_evicted_graphs_go_too);
        ranks_run_all(2, soft, sizeof(soft) / sizeof(soft[0]));
    }
    if (ranks_are_soft()) {
        tap_apart(N_PARTED + N_PARTED_SOFT + PART_ATS + N_STUCK + 1,
                  run_parted);
    } else {
        for (int i = 0; i < N_PARTED; i++) {
            ranks_run_all(2, &parted[i], 1);
            ranks_run_all(3, &parted[i], 1);
        }
    }
    return done_testing();
}
