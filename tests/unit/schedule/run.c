/*
 * A run of a pair, call by call: what lib/schedule asks of the device, of the
 * capture and of the host, and in which order.
 *
 * The device and the capture are this file's: they write down each call, and
 * any of them fails when a test says so.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "schedule/state.h"

#include "base/error.h"
#include "base/gate.h"
#include "capture/capture.h"
#include "ranks/collect.h"
#include "device/device.h"
#include "device/spans.h"
#include "support/fake.h"
#include "support/host_memory.h"
#include "tap/tap.h"
#include "tests/unit/schedule/plans.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COMPUTE ((void *)1)
#define COMM ((void *)2)
#define FOREIGN ((void *)3) /* of another context */
#define OWN ((void *)4)     /* the schedule's */
#define CAPTURE ((struct gh_capture *)6)

/* ---- what is under the schedule ------------------------------------------ */

static uint32_t n_events, n_marks, n_live;
static void *events[256];
static bool pass_is_open, ranks_can, compares, unlike, traced;
static uint64_t iterations, profile_steps;
static uint32_t due, n_asked;
static double heard[4];
static bool was_heard;
static uint32_t lacks;

static const char *name_of(const void *stream)
{
    return stream == COMPUTE ? "c"
           : stream == COMM  ? "m"
           : stream == OWN   ? "o"
           : stream == NULL  ? "0"
                             : "?";
}

/* Events by the order in which they are made: marks come first, from 1. */
static unsigned number_of(const void *event)
{
    for (uint32_t i = 0; i < n_events; i++) {
        if (events[i] == event) {
            return i + 1;
        }
    }
    return 0;
}

static gh_status make_event(void **event_p, gh_error *error)
{
    gh_status status = may_fail(error);
    void *event = status == GH_OK ? malloc(1) : NULL;

    if (status == GH_OK && event == NULL) {
        return gh_fail(error, GH_ERR_NO_MEMORY, "no memory for an event");
    }
    if (status == GH_OK) {
        *event_p = events[n_events++] = event;
        n_live++;
    }
    return status;
}

gh_status gh_device_event_create(struct gh_device *dev, void **event_p,
                                 gh_error *error)
{
    (void)dev;
    n_marks++;
    return make_event(event_p, error);
}

gh_status gh_device_event_create_timed(struct gh_device *dev, void **event_p,
                                       gh_error *error)
{
    (void)dev;
    return make_event(event_p, error);
}

void gh_device_event_destroy(struct gh_device *dev, void *event)
{
    (void)dev;
    n_live -= event != NULL;
    free(event);
}

gh_status gh_device_stream_create_urgent(struct gh_device *dev, void **stream_p,
                                         gh_error *error)
{
    gh_status status = may_fail(error);

    (void)dev;
    if (status == GH_OK) {
        *stream_p = OWN;
        n_live++;
    }
    return status;
}

void gh_device_stream_destroy(struct gh_device *dev, void *stream)
{
    (void)dev;
    n_live -= stream != NULL;
}

gh_status gh_device_check_stream(struct gh_device *dev, const char *what,
                                 void *stream, gh_error *error)
{
    (void)dev;
    note_word("check");
    if (stream == FOREIGN) {
        snprintf(error->text, sizeof(error->text), "%s is foreign", what);
        return GH_ERR_INVALID;
    }
    return may_fail(error);
}

gh_status gh_device_stream_wait(struct gh_device *dev, void *stream,
                                gh_error *error)
{
    (void)dev;
    (void)error;
    note_word("sync@%s", name_of(stream));
    return GH_OK;
}

gh_status gh_device_event_record(struct gh_device *dev, void *event,
                                 void *stream, gh_error *error)
{
    (void)dev;
    note_word("R%u@%s", number_of(event), name_of(stream));
    return may_fail(error);
}

gh_status gh_device_event_wait(struct gh_device *dev, void *stream, void *event,
                               gh_error *error)
{
    (void)dev;
    note_word("W%u@%s", number_of(event), name_of(stream));
    return may_fail(error);
}

gh_status gh_device_event_sync(struct gh_device *dev, void *event,
                               gh_error *error)
{
    (void)dev;
    (void)event;
    return may_fail(error);
}

/* The pair of events of task n takes n + 1 microseconds. */
static double (*elapsed)(uint32_t task);

gh_status gh_device_event_elapsed(struct gh_device *dev, void *from, void *to,
                                  double *ns_p, gh_error *error)
{
    const uint32_t task = (number_of(from) - GH_MARKS) / 2;

    (void)dev;
    (void)to;
    *ns_p = elapsed != NULL ? elapsed(task) : 1000.0 * (task + 1);
    return may_fail(error);
}

void gh_capture_cancel(struct gh_capture *capture)
{
    (void)capture;
    note_word("cancel");
    pass_is_open = false;
}

bool gh_capture_is_open(const struct gh_capture *capture)
{
    (void)capture;
    return pass_is_open;
}

bool gh_capture_is_traced(const struct gh_capture *capture)
{
    (void)capture;
    return traced;
}

static bool flushes_late;

bool gh_capture_flushes_late(const struct gh_capture *capture)
{
    (void)capture;
    return flushes_late;
}

gh_status gh_capture_flush(struct gh_capture *capture, gh_error *error)
{
    (void)capture;
    note_word("flush");
    return may_fail(error);
}

void gh_capture_hold(struct gh_capture *capture, bool holds)
{
    (void)capture;
    note_word(holds ? "hold" : "free");
}

void gh_capture_join(struct gh_capture *capture, uint32_t chunk,
                     const void *from, void *onto)
{
    (void)capture;
    note_word("join%u:%s>%s", chunk, name_of(from), name_of(onto));
}

struct gh_span *gh_capture_node_begin(struct gh_capture *capture,
                                      const struct gh_span_what *what,
                                      void *stream)
{
    (void)capture;
    note_word("<%u.%u.%u.%u@%s", what->direction, what->layer, what->node,
              what->microbatch, name_of(stream));
    return NULL;
}

void gh_capture_node_end(struct gh_capture *capture, struct gh_span *span)
{
    (void)capture;
    (void)span;
    if (traced) {
        note_word(">");
    }
}

uint64_t gh_capture_profile_steps(const struct gh_capture *capture)
{
    (void)capture;
    return profile_steps;
}

uint64_t gh_capture_iterations(const struct gh_capture *capture)
{
    (void)capture;
    return iterations;
}

uint32_t gh_capture_exchanges_due(const struct gh_capture *capture)
{
    (void)capture;
    return due;
}

void gh_capture_exchanges_say(struct gh_capture *capture, double *ns)
{
    static const double said[] = { 2000, 0, 1e-12, 4000 };

    (void)capture;
    memcpy(ns, said, due * sizeof(*ns));
}

void gh_capture_exchanges_hear(struct gh_capture *capture, const double *ns)
{
    (void)capture;
    was_heard = ns != NULL;
    if (ns != NULL) {
        memcpy(heard, ns, due * sizeof(*ns));
    }
}

void gh_capture_exchange_begin(struct gh_capture *capture, uint32_t cell,
                               void *stream)
{
    (void)capture;
    (void)cell;
    note_word("(@%s", name_of(stream));
}

void gh_capture_exchange_end(struct gh_capture *capture, void *stream)
{
    (void)capture;
    note_word(")@%s", name_of(stream));
}

bool gh_rank_collect_can(const struct gh_capture *capture)
{
    (void)capture;
    return ranks_can;
}

bool gh_rank_collect_compares(const struct gh_capture *capture)
{
    (void)capture;
    return compares;
}

static bool had_numbers;

gh_status gh_rank_collect_largest(struct gh_capture *capture, void *stream,
                                  double *ns, uint32_t n, uint32_t *lacks_p,
                                  gh_error *error)
{
    (void)capture;
    (void)n;
    n_asked++;
    had_numbers = ns != NULL;
    note_word("ranks@%s", name_of(stream));
    *lacks_p = ns == NULL ? 7 : lacks;
    return may_fail(error);
}

gh_status gh_rank_collect_run(struct gh_capture *capture, void *stream,
                              const struct gh_rank_run *run, bool *alike_p,
                              gh_error *error)
{
    (void)capture;
    note_word("compare%d,%d@%s", (int)run->forward, (int)run->backward,
              name_of(stream));
    *alike_p = !unlike;
    return may_fail(error);
}

/* ---- the host ------------------------------------------------------------ */

static gh_status answer; /* of a node */
static uint32_t until;   /* nodes until it is given */
static bool opens;
static const char *words; /* with it; NULL: none, "x...": without an end */
static uint32_t n_released;

/* A host fills in its gh_error, and may leave out the end. */
static void say_why(gh_error *error)
{
    if (words != NULL && strcmp(words, "x...") == 0) {
        memset(error->text, 'x', sizeof(error->text));
    } else if (words != NULL) {
        snprintf(error->text, sizeof(error->text), "%s", words);
    }
}

static gh_status run_node(void *user, const gh_overlap_node *node,
                          gh_error *error)
{
    static const char letters[] = "FBW";

    (void)user;
    n_released += node->n_release;
    note_word("%c%u.%u%s%s@%s", letters[node->direction], node->layer,
              node->node, (node->flags & GH_NODE_BEGINS) != 0 ? "b" : "",
              (node->flags & GH_NODE_ENDS) != 0 ? "e" : "",
              name_of(node->stream));
    if (until > 0 && --until == 0) {
        pass_is_open = opens;
        say_why(error);
        return answer;
    }
    return may_fail(error);
}

static double agrees_on; /* what each number becomes; 0: stays */
static double largest;   /* that was handed over */
static gh_status agree_answer;

static gh_status agree(void *user, double *numbers, uint32_t n, gh_error *error)
{
    (void)user;
    n_asked++;
    largest = 0;
    for (uint32_t i = 0; i < n; i++) {
        largest = numbers[i] > largest ? numbers[i] : largest;
        numbers[i] = agrees_on != 0 ? agrees_on : numbers[i];
    }
    if (agree_answer != GH_OK) {
        say_why(error);
        return agree_answer;
    }
    return may_fail(error);
}

/* ---- the schedule -------------------------------------------------------- */

static struct gh_plan plan;
static struct gh_schedule *s;
static const struct gh_log heard_log = { GH_LOG_INFO, hear_line, NULL };

static bool begin(const char *layers, gh_overlap_order order,
                  uint64_t warmup_steps)
{
    static struct gh_gate gate;
    const struct gh_schedule_options options = { order, warmup_steps,
                                                 &heard_log, &gate };

    n_events = n_marks = n_live = n_asked = 0;
    pass_is_open = ranks_can = compares = unlike = traced = false;
    iterations = profile_steps = 0;
    due = 0;
    lacks = GH_NO_RANK;
    answer = agree_answer = GH_OK;
    until = 0;
    opens = false;
    words = NULL;
    agrees_on = 0;
    elapsed = NULL;
    forget_all();
    host_memory_begin();
    return plan_of(layers, 0, &plan) &&
           gh_schedule_create(&plan, DEVICE, CAPTURE, &options, &s, &err) ==
               GH_OK;
}

static void end(void)
{
    gh_schedule_destroy(s);
    gh_plan_free(&plan);
    is_int(n_live, 0, "nothing is left of the schedule");
    is_int(host_memory_left(), 0, "nor memory of the host");
}

static const gh_overlap_pair forward = { .struct_size = sizeof(forward),
                                         .flags = GH_OVERLAP_FORWARD,
                                         .compute = COMPUTE,
                                         .comm = COMM,
                                         .run_node = run_node };
static const gh_overlap_pair backward = { .struct_size = sizeof(backward),
                                          .flags = GH_OVERLAP_BACKWARD,
                                          .compute = COMPUTE,
                                          .comm = COMM,
                                          .run_node = run_node };

static gh_overlap_pair both(void)
{
    gh_overlap_pair pair = forward;

    pair.flags |= GH_OVERLAP_BACKWARD;
    pair.forward_microbatch = 1;
    return pair;
}

static gh_overlap_pair agreeing(void)
{
    gh_overlap_pair pair = both();

    pair.agree = agree;
    return pair;
}

static gh_status run(const gh_overlap_pair *pair)
{
    calls[0] = '\0';
    return gh_schedule_run(s, pair, &err);
}

static void runs(const gh_overlap_pair *pair, const char *expected,
                 const char *what)
{
    is_status(run(pair), GH_OK, &err, "%s is run", what);
    is_str(calls, expected, "%s", what);
}

/* ---- what a run is ------------------------------------------------------- */

static void test_calls(void)
{
    gh_overlap_pair pair;

    if (!begin("m", GH_OVERLAP_FIXED, 0)) {
        return;
    }
    runs(&forward,
         "check check "
         "hold F0.0b@c R3@c "
         "flush free W3@m (@m F0.1@m )@m R4@m "
         "hold W4@c F0.2@c R3@c "
         "flush free W3@m (@m F0.3@m )@m R4@m "
         "free W4@c F0.4e@c free join0:m>c",
         "a forward: each lane waits for the other, delayed commits are issued "
         "before exchanges and are held in front of them");
    runs(&backward,
         "hold B0.4b@c R5@c "
         "flush free W5@m (@m B0.3@m )@m R6@m "
         "free W6@c B0.2@c R5@c "
         "hold W0.2@c "
         "flush free W5@m (@m B0.1@m )@m R6@m "
         "free W6@c B0.0e@c "
         "free W0.0@c free join0:m>c",
         "a backward: with the weight gradients in its gaps");
    pair = both();
    n_released = 0;
    is_status(run(&pair), GH_OK, &err, "both are run");
    ok(n_released > 0 && n_released == s->pairings[s->last]->walk.n_releases,
       "nodes release all that the walk lists: %u", n_released);
    ok(strstr(calls, "join0:m>c join0:m>c") != NULL,
       "and both chunks are joined");
    is_int(s->stats.runs, 3, "runs are counted");
    is_int(s->stats.nodes, 5 + 7 + 12, "and nodes");
    is_int(s->stats.waits, 4 + 4 + 8, "and waits");
    is_int(s->stats.order, GH_OVERLAP_FIXED, "the order is fixed");
    end();
}

static void test_late_flushes(void)
{
    if (!begin("m", GH_OVERLAP_FIXED, 0)) {
        return;
    }
    flushes_late = true;
    runs(&forward,
         "check check "
         "hold F0.0b@c R3@c "
         "free W3@m (@m F0.1@m )@m R4@m flush "
         "hold W4@c F0.2@c R3@c "
         "free W3@m (@m F0.3@m )@m R4@m flush "
         "free W4@c F0.4e@c free join0:m>c",
         "where copies are to begin after exchanges, delayed commits are "
         "issued after them");
    flushes_late = false;
    end();
}

static void test_off(void)
{
    if (!begin("m", GH_OVERLAP_OFF, 0)) {
        return;
    }
    runs(&forward,
         "hold F0.0b@c flush free (@c F0.1@c )@c hold F0.2@c flush free "
         "(@c F0.3@c )@c free F0.4e@c free",
         "without overlap all is on one stream, and nothing waits");
    is_int(n_events, 0, "nothing is made for it");
    is_int(s->stats.order, GH_OVERLAP_OFF, "which is said");
    end();
}

static void test_trace(void)
{
    gh_overlap_pair pair = forward;

    if (!begin("d", GH_OVERLAP_FIXED, 0)) {
        return;
    }
    traced = true;
    pair.forward_microbatch = 3;
    runs(&pair,
         "check check free <0.0.0.3@c F0.0b@c > free <0.0.1.3@c F0.1e@c > "
         "free join0:m>c",
         "around each node there is a span");
    end();
}

/* A family whose layers begin and end with an exchange, as its nodes say. */
static void test_exchange_at_both_ends(void)
{
    gh_overlap_pair pair = forward;
    struct gh_pairing *p;

    if (!begin("m", GH_OVERLAP_FIXED, 0)) {
        return;
    }
    run(&pair);
    p = s->pairings[0];
    /* The last three nodes begin with an exchange; so do the first four end
     * with one.  Their walk is made anew. */
    for (int cut = 0; cut < 2; cut++) {
        struct gh_tasks tasks = p->tasks;
        const uint32_t sequence[] = { 0, 1, 2, 3 };
        struct gh_task some[4];

        memcpy(some, p->tasks.all + (cut == 0 ? 1 : 0), sizeof(some));
        for (uint32_t i = 0; i < 4; i++) {
            some[i].after = i == 0 ? GH_NO_TASK : i - 1;
        }
        tasks.all = some;
        tasks.n = cut == 0 ? 3 : 4;
        tasks.count[GH_FORWARD] = tasks.n;
        gh_walk_free(&p->walk);
        gh_walk_make(&plan, &tasks, sequence, false, &p->walk, &err);
        for (uint32_t i = 0; i < p->walk.n; i++) {
            p->walk.steps[i].task += cut == 0 ? 1 : 0;
        }
        runs(&pair,
             cut == 0
                 ? "R1@c flush free W1@m (@m F0.1b@m )@m R4@m hold W4@c F0.2@c "
                   "R3@c flush free W3@m (@m F0.3e@m )@m free R2@m W2@c "
                   "join0:m>c"
                 : "hold F0.0b@c R3@c flush free W3@m (@m F0.1@m )@m R4@m hold "
                   "W4@c F0.2@c R3@c flush free W3@m (@m F0.3e@m )@m free R2@m "
                   "W2@c join0:m>c",
             cut == 0 ? "an exchange at both ends waits for what was before, "
                        "and what comes next waits for it"
                      : "so it does where only the last node is an exchange");
    }
    end();
}

/* ---- streams ------------------------------------------------------------- */

static void test_streams(void)
{
    gh_overlap_pair pair = forward;

    if (!begin("m", GH_OVERLAP_FIXED, 0)) {
        return;
    }
    is_status(run(&forward), GH_OK, &err, "streams are taken");
    ok(strncmp(calls, "check check ", 12) == 0, "once they are checked");
    is_int(n_live, GH_MARKS - 1, "and no stream is made that nobody needs");
    is_status(run(&forward), GH_OK, &err, "and again");
    ok(strstr(calls, "check") == NULL, "without being checked again");
    pair.compute = FOREIGN;
    is_status(run(&pair), GH_ERR_INVALID, &err,
              "another compute stream is checked too");
    is_str(err.text, "gh_overlap_pair.compute is foreign", "and named");
    pair = forward;
    pair.comm = FOREIGN;
    is_status(run(&pair), GH_ERR_INVALID, &err,
              "and so is another comm stream");
    is_str(err.text, "gh_overlap_pair.comm is foreign", "which is named");
    ok(strstr(calls, "F0") == NULL, "no node is issued then");
    is_status(run(&forward), GH_OK, &err, "the ones that were good still are");
    pair.comm = NULL;
    is_status(run(&pair), GH_OK, &err, "a host may have no comm stream");
    ok(strstr(calls, "F0.1@o") != NULL && strstr(calls, "join0:o>c") != NULL,
       "then the schedule makes one");
    is_int(n_marks, GH_MARKS - 1, "marks are made once");
    end();
    if (!begin("m", GH_OVERLAP_FIXED, 0)) {
        return;
    }
    pair = forward;
    pair.compute = NULL;
    is_status(run(&pair), GH_OK, &err, "the legacy stream is taken");
    ok(strncmp(calls, "check check ", 12) == 0, "and checked as any other");
    end();
}

/* ---- what a node answers ------------------------------------------------- */

static void test_answers(void)
{
    static const struct {
        gh_status answer, status;
        bool opens;
        const char *words, *says;
    } cases[] = {
        { GH_ERR_DEVICE, GH_ERR_DEVICE, false, NULL, "does not say why" },
        { GH_ERR_DEVICE, GH_ERR_DEVICE, true, NULL, "does not say why" },
        { GH_ERR_DEVICE, GH_ERR_DEVICE, false, "x...", "xxxxxxxx" },
        { GH_ERR_DEVICE, GH_ERR_DEVICE, false, "!", "!" },
        { GH_OK, GH_ERR_STATE, true, NULL,
          "returned GH_OK with a pass open: call gh_layer_exit" },
        { GH_RERUN, GH_ERR_INVALID, false, NULL,
          "returned a status above GH_OK: enter a pass again" },
        { GH_RERUN, GH_ERR_INVALID, true, NULL,
          "returned a status above GH_OK: enter a pass again" },
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        for (uint32_t node = 1; node <= 5; node++) {
            if (!begin("m", GH_OVERLAP_FIXED, 0)) {
                return;
            }
            answer = cases[i].answer;
            opens = cases[i].opens;
            words = cases[i].words;
            until = node;
            is_status(run(&forward), cases[i].status, &err,
                      "answer %d of node %u ends the run", (int)answer, node);
            ok(strstr(err.text, cases[i].says) != NULL, "with a sentence: %s",
               err.text);
            ok(!pass_is_open, "and no pass stays open");
            ok(node != 2 || answer == GH_OK || strstr(calls, ")@m") == NULL,
               "an exchange that failed has no end");
            ok(strstr(calls, " free cancel R2@m W2@c") != NULL &&
                   strstr(calls, "join") == NULL,
               "no commits stay held, and the streams are joined");
            ok(!gh_schedule_is_running(s), "the run is over");
            runs(&forward,
                 "hold F0.0b@c R3@c flush free W3@m (@m F0.1@m )@m R4@m hold "
                 "W4@c F0.2@c R3@c flush free W3@m (@m F0.3@m )@m R4@m free "
                 "W4@c F0.4e@c free join0:m>c",
                 "the next run is whole");
            end();
        }
    }
}

/* A pair of two chunks of the pipeline. */
static void test_two_chunks(void)
{
    gh_overlap_pair pair = both();

    if (!begin("m|m", GH_OVERLAP_FIXED, 0)) {
        return;
    }
    pair.forward_chunk = 0;
    pair.backward_chunk = 1;
    is_status(run(&pair), GH_OK, &err,
              "a forward and a backward of two chunks");
    ok(strstr(calls, "join0:m>c join1:m>c") != NULL, "each of them is joined");
    end();
}

/* ---- what fails below ---------------------------------------------------- */

/* Each call of a run fails in its turn.  Once the run has begun, the streams
 * are joined, by a wait of the host if they cannot be otherwise. */
static void test_failures(void)
{
    const gh_overlap_pair pair = both();
    uint32_t whole, begun = 0, waited = 0;

    if (!begin("m", GH_OVERLAP_FIXED, 0)) {
        return;
    }
    run(&pair);
    whole = n_fallible;
    end();
    for (uint32_t n = 1; n <= whole; n++) {
        bool good;

        if (!begin("m", GH_OVERLAP_FIXED, 0)) {
            return;
        }
        fails_at = n;
        good = run(&pair) == GH_ERR_DEVICE && !gh_schedule_is_running(s);
        if (strstr(calls, "hold") != NULL) {
            const char *cancel = strstr(calls, "free cancel R2@m W2@c");

            begun++;
            good = good && cancel != NULL;
        }
        fails_at = 0;
        good = good && run(&pair) == GH_OK;
        ok(good, "call %u of %u may fail", n, whole);
        end();
    }
    ok(begun > 20, "most of them while the run is under way");
    /* The join fails too: the host waits. */
    for (int k = 0; k < 2; k++) {
        if (!begin("m", GH_OVERLAP_FIXED, 0)) {
            return;
        }
        answer = GH_ERR_STATE;
        until = 1;
        run(&forward);
        until = 1;
        fails_at = n_fallible + 1 + (uint32_t)k;
        run(&forward);
        waited += strstr(calls, "sync@m") != NULL;
        end();
    }
    is_int(waited, 2, "where a join fails too, the host waits for the lane");
}

/* A mark or the stream that could not be made is made by the next run. */
static void test_objects_that_fail(void)
{
    gh_overlap_pair pair = forward;

    for (uint32_t n = 1; n < 2 * GH_MARKS; n++) {
        const bool own = n <= GH_MARKS;

        pair.comm = own ? NULL : COMM;
        if (!begin("m", GH_OVERLAP_FIXED, 0)) {
            return;
        }
        fails_at = own ? n : n - GH_MARKS;
        is_status(run(&pair), GH_ERR_DEVICE, &err, "object %u cannot be made",
                  fails_at);
        is_str(calls, "", "no node is issued");
        is_status(run(&pair), GH_OK, &err, "the next run makes it");
        is_int(n_live, own ? GH_MARKS : GH_MARKS - 1, "and nothing twice");
        end();
    }
}

/* ---- pairings ------------------------------------------------------------ */

static void test_pairings(void)
{
    gh_overlap_pair one = both(), other = both(), early = both();

    if (!begin("m|m", GH_OVERLAP_FIXED, 0)) {
        return;
    }
    other.forward_chunk = 1;
    early.flags |= GH_OVERLAP_EARLY_RELEASE;
    run(&one);
    run(&other);
    run(&early);
    run(&forward);
    run(&backward);
    is_int(s->n_pairings, 5, "each pair is made once");
    run(&one);
    is_int(s->last, 0, "the last that was run is where the search begins");
    run(&early);
    is_int(s->last, 2, "whichever it was");
    run(&early);
    is_int(s->last, 2, "and stays");
    run(&backward);
    is_int(s->last, 4, "also at the end");
    run(&forward);
    is_int(s->last, 3, "the search goes around");
    is_int(s->n_pairings, 5, "and makes none again");
    end();
}

/* ---- times --------------------------------------------------------------- */

static double even_times(uint32_t task)
{
    (void)task;
    return 1000;
}

static double long_exchanges(uint32_t task)
{
    return task % 3 == 0 ? 9000 : 1000;
}

/* The step in which `auto` asks for times. */
static uint64_t asks_in(const gh_overlap_pair *pair)
{
    for (iterations = 0; iterations < 12; iterations++) {
        run(pair);
        run(pair);
        if (n_asked > 0) {
            return iterations;
        }
    }
    return 0;
}

static void test_when_times_are_taken(void)
{
    static const struct {
        uint64_t warmup, profile, asks;
    } cases[] = {
        { 0, 0, 2 }, { 1, 0, 3 }, { 3, 0, 5 }, { 0, 4, 6 },
        { 4, 4, 6 }, { 5, 4, 7 }, { 4, 5, 7 },
    };
    const gh_overlap_pair pair = agreeing();

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (!begin("mm", GH_OVERLAP_AUTO, cases[i].warmup)) {
            return;
        }
        profile_steps = cases[i].profile;
        is_int(asks_in(&pair), cases[i].asks,
               "after %d steps of warmup and %d of profile the ranks agree in "
               "this step",
               (int)cases[i].warmup, (int)cases[i].profile);
        is_int(s->timing, GH_TIMING_SETTLED, "and the times are known");
        run(&pair);
        iterations++;
        run(&pair);
        is_int(n_asked, 1, "they agree once");
        end();
    }
}

/* A node that several pairs of the step have run has the mean of its times. */
static void test_means(void)
{
    const gh_overlap_pair pair = agreeing();
    double most = 0, least = 1e9;

    if (!begin("mm", GH_OVERLAP_AUTO, 0)) {
        return;
    }
    elapsed = even_times;
    for (iterations = 0; iterations < 3; iterations++) {
        gh_overlap_pair alone = pair;

        alone.flags = GH_OVERLAP_FORWARD;
        run(&pair);
        run(&alone);
    }
    for (uint32_t i = 0; i < gh_tasks_cells(&plan) && s->ns != NULL; i++) {
        most = s->ns[i] > most ? s->ns[i] : most;
        least = s->ns[i] > 0 && s->ns[i] < least ? s->ns[i] : least;
    }
    ok(fabs(most - 1000) < 1e-6 && fabs(least - 1000) < 1e-6,
       "a node's time is the mean of those in several pairs: %g to %g", least,
       most);
    end();
}

/* Times that bring nothing: the order that is used and said is the fixed one.
 */
static void test_order_that_is_said(void)
{
    gh_overlap_pair pair = agreeing();

    if (!begin("m", GH_OVERLAP_AUTO, 0)) {
        return;
    }
    pair.flags = GH_OVERLAP_FORWARD;
    elapsed = even_times;
    asks_in(&pair);
    run(&pair);
    is_int(s->stats.order, GH_OVERLAP_FIXED,
           "where no order is shorter it is the fixed one");
    ok(strstr(said, ": fixed order: 0.005 ms predicted, fixed 0.005;") != NULL,
       "which is said: %s", said);
    ok(s->stats.predicted_ns == 5000 && s->stats.predicted_fixed_ns == 5000 &&
           s->stats.compute_ns == 3000 && s->stats.comm_ns == 2000,
       "with its times");
    end();
    if (!begin("mmm", GH_OVERLAP_AUTO, 0)) {
        return;
    }
    pair = agreeing();
    elapsed = long_exchanges;
    asks_in(&pair);
    run(&pair);
    is_int(s->stats.order, GH_OVERLAP_AUTO, "a shorter one is auto");
    ok(s->stats.predicted_ns < s->stats.predicted_fixed_ns &&
           strstr(said, ": auto order: ") != NULL,
       "and is said to be: %s", said);
    end();
}

/* What a host's agree leaves is no time unless it is finite, 0 or more. */
static void test_what_agree_leaves(void)
{
    static const struct {
        double number;
        bool good;
    } cases[] = {
        { NAN, false },   { INFINITY, false }, { -INFINITY, false },
        { -1, false },    { -1e-300, false },  { -0.0, true },
        { 1e-300, true }, { 1e300, true },     { 5, true },
    };
    const gh_overlap_pair pair = agreeing();

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        gh_status status = GH_OK;

        if (!begin("mm", GH_OVERLAP_AUTO, 0)) {
            return;
        }
        agrees_on = cases[i].number;
        for (iterations = 0; iterations < 3 && status == GH_OK; iterations++) {
            status = run(&pair);
        }
        is_status(status, cases[i].good ? GH_OK : GH_ERR_INVALID, &err,
                  "an agree that leaves %g", agrees_on);
        ok(cases[i].good || strstr(err.text, "agree left") != NULL,
           "is refused with a sentence where it is no time: %s", err.text);
        if (!cases[i].good) {
            agrees_on = 0;
            is_status(run(&pair), GH_OK, &err, "the next run asks again");
            is_int(n_asked, 2, "once");
            is_int(s->timing, GH_TIMING_SETTLED, "and the times are known");
        } else {
            ok(isfinite(s->stats.predicted_ns) && s->stats.predicted_ns >= 0,
               "a forecast of it is a time: %g", s->stats.predicted_ns);
        }
        end();
    }
}

static void test_answers_of_agree(void)
{
    static const struct {
        gh_status answer, status;
        const char *words, *says;
    } cases[] = {
        { GH_RERUN, GH_ERR_INVALID, "why",
          "gh_overlap_pair.agree returned 1: return GH_OK" },
        { GH_ERR_NOT_FOUND, GH_ERR_NOT_FOUND, NULL,
          "gh_overlap_pair.agree failed and does not say why" },
        { GH_ERR_NOT_FOUND, GH_ERR_NOT_FOUND, "!", "!" },
        { GH_ERR_NOT_FOUND, GH_ERR_NOT_FOUND, "x...", "xxxxxxxx" },
    };
    const gh_overlap_pair pair = agreeing();

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if (!begin("m", GH_OVERLAP_FIXED, 0)) {
            return;
        }
        due = 1;
        agree_answer = cases[i].answer;
        words = cases[i].words;
        is_status(run(&pair), cases[i].status, &err,
                  "an agree that returns %d fails the run", (int)agree_answer);
        ok(strncmp(err.text, cases[i].says, strlen(cases[i].says)) == 0,
           "with a sentence: %s", err.text);
        ok(strstr(calls, "F0") == NULL && !gh_schedule_is_running(s),
           "before anything is issued");
        agree_answer = GH_OK;
        is_status(run(&pair), GH_OK, &err, "the next run asks again");
        end();
    }
}

static double no_times(uint32_t task)
{
    (void)task;
    return -1;
}

static double no_number(uint32_t task)
{
    return task % 2 == 0 ? (double)NAN : 1000;
}

static void test_times_that_are_none(void)
{
    const gh_overlap_pair pair = both();

    if (!begin("mm", GH_OVERLAP_AUTO, 0)) {
        return;
    }
    ranks_can = true;
    elapsed = no_times;
    asks_in(&pair);
    ok(!had_numbers, "a rank that could measure nothing says so");
    is_int(s->timing, GH_TIMING_NEVER, "and the order stays fixed");
    ok(strstr(said, "rank 7 could not measure its nodes") != NULL,
       "which is said: %s", said);
    run(&pair);
    is_int(n_asked, 1, "nobody is asked again");
    end();
    if (!begin("mm", GH_OVERLAP_AUTO, 0)) {
        return;
    }
    ranks_can = true;
    elapsed = no_number;
    asks_in(&pair);
    ok(had_numbers, "a node without a time has those of the others");
    ok(isfinite(s->stats.predicted_ns) && s->stats.predicted_ns > 0,
       "and the forecast is a time: %g", s->stats.predicted_ns);
    end();
    if (!begin("mm", GH_OVERLAP_AUTO, 0)) {
        return;
    }
    is_int(asks_in(&pair), 0, "where nobody agrees nobody is asked");
    ok(strstr(said, "the order stays fixed") != NULL, "which is said: %s",
       said);
    end();
}

static void test_inverse(void)
{
    static const struct {
        double value, inverse;
    } cases[] = {
        { 0, 0 },          { -1, 0 },       { 1e-9, 0 },      { 1e-300, 0 },
        { 5e-324, 0 },     { 2e-9, 5e17 },  { 1, 1e9 },       { 1e9, 1 },
        { 1e300, 1e-291 }, { INFINITY, 0 }, { -INFINITY, 0 },
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const double got = gh_inverse(cases[i].value);

        ok(fabs(got - cases[i].inverse) <= cases[i].inverse * 1e-12,
           "%g nanoseconds are %g a second: %g", cases[i].value,
           cases[i].inverse, got);
    }
    ok(gh_inverse(NAN) == 0, "what is no number is no time");
    ok(gh_inverse(gh_inverse(1234)) == 1234, "and back");
}

/* ---- offload's exchanges ------------------------------------------------- */

static void test_exchanges(void)
{
    gh_overlap_pair pair = agreeing();

    if (!begin("m", GH_OVERLAP_FIXED, 0)) {
        return;
    }
    is_status(run(&pair), GH_OK, &err, "nothing is due");
    is_int(n_asked, 0, "and nobody is asked");
    due = 4;
    is_status(run(&pair), GH_OK, &err, "times of exchanges are due");
    is_int(n_asked, 1, "the host is asked");
    ok(largest == 500000, "how many a second, none infinite: %g", largest);
    ok(was_heard && heard[0] == 2000 && heard[1] == 0 && heard[2] == 0 &&
           heard[3] == 4000,
       "and times are heard");
    run(&pair);
    is_int(n_asked, 1, "once");
    end();

    if (!begin("m", GH_OVERLAP_FIXED, 0)) {
        return;
    }
    due = 4;
    agrees_on = NAN;
    is_status(run(&pair), GH_ERR_INVALID, &err, "numbers that are none");
    agrees_on = 0;
    is_status(run(&pair), GH_OK, &err, "are asked for again");
    is_int(n_asked, 2, "in the next run");
    end();

    pair = both();
    if (!begin("m", GH_OVERLAP_FIXED, 0)) {
        return;
    }
    due = 2;
    ranks_can = true;
    lacks = 3;
    was_heard = true;
    is_status(run(&pair), GH_OK, &err, "a rank has no times");
    ok(!was_heard && strstr(said, "rank 3 has no times") != NULL,
       "then nothing is heard: %s", said);
    run(&pair);
    is_int(n_asked, 1, "and nobody is asked again");
    end();

    if (!begin("m", GH_OVERLAP_FIXED, 0)) {
        return;
    }
    due = 2;
    is_status(run(&pair), GH_OK, &err, "there is nobody to agree with");
    is_int(n_asked, 0, "so nobody is asked");
    end();
}

/* ---- ranks that compare -------------------------------------------------- */

static void test_compare(void)
{
    const gh_overlap_pair pair = agreeing();

    if (!begin("mmm", GH_OVERLAP_AUTO, 0)) {
        return;
    }
    elapsed = long_exchanges;
    asks_in(&pair);
    run(&pair);
    is_int(s->stats.order, GH_OVERLAP_AUTO, "an order is chosen");
    compares = true;
    run(&pair);
    ok(strncmp(calls, "compare0,0@c ", 13) == 0, "runs are compared: %.40s",
       calls);
    is_int(s->stats.order, GH_OVERLAP_AUTO, "equal ones go on");
    unlike = true;
    is_status(run(&pair), GH_OK, &err, "where they differ");
    is_int(s->stats.order, GH_OVERLAP_FIXED, "all take the fixed order");
    is_int(s->timing, GH_TIMING_NEVER, "for good");
    unlike = false;
    run(&forward);
    ok(strncmp(calls, "compare0,-1@c ", 14) == 0,
       "a chunk that is absent is none: %.40s", calls);
    fails_at = n_fallible + 1;
    is_status(run(&pair), GH_ERR_DEVICE, &err, "a comparison may fail");
    ok(strstr(calls, "F0") == NULL && !gh_schedule_is_running(s),
       "then nothing is issued");
    end();
}

/* A schedule, and a run of it, each allocation of which fails in its turn. */
static void test_host_memory_that_fails(void)
{
    static const struct gh_schedule_options options = { GH_OVERLAP_FIXED, 0,
                                                        &heard_log, NULL };
    uint32_t n = 0, silent = 0;
    gh_status status;

    if (!begin("mm", GH_OVERLAP_FIXED, 0)) {
        return;
    }
    gh_schedule_destroy(s);
    do {
        s = NULL;
        err.text[0] = '\0';
        host_memory_refuse(++n);
        status = gh_schedule_create(&plan, DEVICE, CAPTURE, &options, &s, &err);
        if (status == GH_OK) {
            status = run(&forward);
        }
        silent += host_memory_asked() >= n &&
                  (status != GH_ERR_NO_MEMORY ||
                   strstr(err.text, "no memory") == NULL);
        if (host_memory_asked() >= n) {
            gh_schedule_destroy(s);
        }
    } while (host_memory_asked() >= n && n < 100);
    host_memory_refuse(0);
    ok(n > 2 && n < 100, "a schedule and its first run have %u allocations",
       n - 1);
    is_int(silent, 0, "where one fails, the error says that there is no memory");
    is_status(status, GH_OK, &err, "where none does, all is run");
    end();
}

/* The same of a pair whose order is found by times. */
static void test_host_memory_for_an_order(void)
{
    gh_overlap_pair pair = agreeing();
    uint32_t n = 0, silent = 0;
    gh_status status;
    bool refused;

    if (!begin("mmm", GH_OVERLAP_AUTO, 0)) {
        return;
    }
    elapsed = long_exchanges;
    asks_in(&pair);
    pair.flags = GH_OVERLAP_FORWARD;
    do {
        err.text[0] = '\0';
        host_memory_refuse(++n);
        status = run(&pair);
        refused = host_memory_asked() >= n;
        silent += refused && (status != GH_ERR_NO_MEMORY ||
                              strstr(err.text, "no memory") == NULL);
    } while (refused && n < 100);
    host_memory_refuse(0);
    ok(n > 5 && n < 100, "an order by times has %u allocations", n - 1);
    is_int(silent, 0, "where one fails, no order is run");
    is_status(status, GH_OK, &err, "until there is memory");
    end();
}

int main(void)
{
    test_host_memory_that_fails();
    test_host_memory_for_an_order();
    test_calls();
    test_late_flushes();
    test_off();
    test_trace();
    test_exchange_at_both_ends();
    test_streams();
    test_answers();
    test_two_chunks();
    test_failures();
    test_objects_that_fail();
    test_pairings();
    test_when_times_are_taken();
    test_means();
    test_order_that_is_said();
    test_what_agree_leaves();
    test_answers_of_agree();
    test_times_that_are_none();
    test_inverse();
    test_exchanges();
    test_compare();
    return done_with_device();
}
