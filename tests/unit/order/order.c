/*
 * Which streams a user waits for, call by call: after runs that were joined,
 * marks that could not be made, and streams that the host captures.
 *
 * The device is this file's: it writes down each call.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "order/order.h"
#include "support/fake.h"
#include "support/host_memory.h"
#include "tap/tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FOREIGN ((void *)7)

/* ---- the device ---------------------------------------------------------- */

static uint64_t captured; /* bit i: the host captures stream i */
static bool is_unknown;   /* or the driver does not say whether it does */
static bool creates_fail, records_fail, waits_fail, syncs_fail;
static int n_events;

/* Streams are a, b, c and so on. */
static void *stream(char letter)
{
    return (void *)(uintptr_t)letter;
}

static char letter(const void *at)
{
    return (char)(uintptr_t)at;
}

gh_status gh_device_check_stream(struct gh_device *dev, const char *what,
                                 void *at, gh_error *error)
{
    (void)dev;
    (void)what;
    (void)error;
    return at == FOREIGN ? GH_ERR_INVALID : GH_OK;
}

gh_status gh_device_event_create(struct gh_device *dev, void **event_p,
                                 gh_error *error)
{
    (void)dev;
    (void)error;
    if (creates_fail) {
        return GH_ERR_DEVICE;
    }
    n_events++;
    *event_p = malloc(1);
    return GH_OK;
}

void gh_device_event_destroy(struct gh_device *dev, void *event)
{
    (void)dev;
    n_events -= event != NULL;
    free(event);
}

static struct gh_order *at_work; /* whose events they are */
static struct gh_streams s;

static char event_of(const void *event)
{
    for (uint32_t i = 0; i < s.n && i < GH_MAX_EDGES; i++) {
        if (at_work->events[i] == event) {
            return letter(s.all[i]);
        }
    }
    return '?';
}

gh_status gh_device_event_record(struct gh_device *dev, void *event, void *at,
                                 gh_error *error)
{
    (void)dev;
    (void)error;
    note(event_of(event) == letter(at) ? "%c!" : "wrong:%c!", letter(at));
    return records_fail ? GH_ERR_DEVICE : GH_OK;
}

gh_status gh_device_event_wait(struct gh_device *dev, void *at, void *event,
                               gh_error *error)
{
    (void)dev;
    (void)error;
    note("%c<%c ", letter(at), event_of(event));
    return waits_fail ? GH_ERR_DEVICE : GH_OK;
}

gh_status gh_device_stream_wait(struct gh_device *dev, void *at,
                                gh_error *error)
{
    (void)dev;
    (void)error;
    note("host<%c ", letter(at));
    return syncs_fail ? GH_ERR_DEVICE : GH_OK;
}

static bool is_captured(const void *at)
{
    for (uint32_t i = 0; i < s.n && i < 64; i++) {
        if (s.all[i] == at) {
            return (captured & UINT64_C(1) << i) != 0;
        }
    }
    return false;
}

enum gh_capturing gh_device_capturing(struct gh_device *dev, void *at)
{
    (void)dev;
    return !is_captured(at) ? GH_CAPTURING_NO
           : is_unknown     ? GH_CAPTURING_UNKNOWN
                            : GH_CAPTURING_YES;
}

/* ---- users --------------------------------------------------------------- */

static struct gh_order order;

static void begin(const char *letters)
{
    gh_streams_init(&s, DEVICE);
    gh_order_init(&order);
    at_work = &order;
    captured = 0;
    is_unknown = false;
    creates_fail = records_fail = waits_fail = syncs_fail = false;
    calls[0] = '\0';
    for (; *letters != '\0'; letters++) {
        gh_streams_know(&s, stream(*letters), &err);
    }
}

static void end(void)
{
    gh_order_free(&order, DEVICE);
    gh_streams_free(&s);
    is_int(n_events, 0, "no event is left");
}

/* As lib/capture does: a user works on these streams in turn, and ends. */
static gh_status work(const char *on)
{
    gh_status status = GH_OK;

    for (; *on != '\0' && status == GH_OK; on++) {
        status = gh_streams_know(&s, stream(*on), &err);
        if (status == GH_OK && order.stream == stream(*on)) {
            if (!order.ordered) {
                gh_order_stay(&order);
            }
        } else if (status == GH_OK) {
            status = gh_order_move(&order, &s, stream(*on), &err);
        }
    }
    return status;
}

static void use(const char *on)
{
    order.ordered = false;
    is_status(work(on), GH_OK, &err, "a user on %s", on);
    gh_order_end(&order, &s);
}

/* What a user that begins on the stream waits for. */
static void next(const char *on, const char *expected, const char *what)
{
    calls[0] = '\0';
    order.ordered = false;
    is_status(work(on), GH_OK, &err, "the next user is on %s", on);
    is_str(calls, expected, "%s", what);
}

/* ---- tests --------------------------------------------------------------- */

static void test_one_stream(void)
{
    begin("a");
    use("a");
    next("a", "", "one stream waits for nothing");
    is_int(n_events, 0, "and makes no event");
    end();
}

static void test_several(void)
{
    begin("ab");
    use("a");
    next("b", "b<a ", "another stream waits for the mark of the one before");
    gh_order_end(&order, &s);
    next("b", "", "the same stream waits for nothing");
    end();

    begin("abc");
    use("ab");
    next("c", "c<a c<b ", "a third stream waits for both");
    gh_order_end(&order, &s);
    next("a", "a<c ", "and the next for the last user alone");
    end();

    begin("abc");
    use("ab");
    next("a", "a<b ", "a user of one of both waits for the other");
    end();

    begin("abc");
    use("ab");
    next("b", "b<a ", "also one of the stream that was used last");
    end();
}

/* The first user may have ended before there was a second stream. */
static void test_a_mark_that_is_late(void)
{
    begin("a");
    use("a");
    next("b", "a!b<a ", "a stream that is new marks the one before");
    gh_order_end(&order, &s);
    next("a", "a<b ", "and is marked itself from then on");
    end();
}

/* A run on a and b was joined onto a: who comes next waits for a alone, by a
 * mark from after the join. */
static void test_joined(void)
{
    begin("abc");
    use("ab");
    calls[0] = '\0';
    gh_order_join(&order, &s, stream('b'), stream('a'));
    is_str(calls, "", "a join costs nothing");
    ok(order.stream == stream('a'), "and the joined stream is the last used");
    next("a", "", "a user of the joined stream waits for nothing");
    end();

    begin("abc");
    use("ab");
    gh_order_join(&order, &s, stream('b'), stream('a'));
    next("c", "a!c<a ",
         "a third stream waits for what is there since the join");
    gh_order_end(&order, &s);
    next("a", "a<c ", "and is waited for in its turn");
    end();

    begin("abc");
    use("ab");
    gh_order_join(&order, &s, stream('b'), stream('a'));
    next("b", "a!b<a ", "the stream that was left waits too");
    end();

    begin("abc");
    use("ab");
    gh_order_join(&order, &s, stream('a'), stream('b'));
    next("a", "b!a<b ", "a join may go the other way");
    end();

    begin("abc");
    use("b");
    gh_order_join(&order, &s, stream('b'), stream('a'));
    next("a", "", "a stream that was not used stands for the one that was");
    end();

    begin("abc");
    use("b");
    gh_order_join(&order, &s, stream('b'), stream('a'));
    next("c", "a!c<a ", "for a third stream too");
    end();
}

/* Of three streams two are joined; the third stays. */
static void test_joined_of_three(void)
{
    begin("abcd");
    use("abc");
    gh_order_join(&order, &s, stream('b'), stream('a'));
    next("d", "a!d<a d<c ", "a stream that was not joined is waited for");
    end();

    begin("abcd");
    use("abc");
    gh_order_join(&order, &s, stream('b'), stream('a'));
    next("a", "a<c ", "also by the stream of the join");
    end();

    begin("abcd");
    use("abc");
    gh_order_join(&order, &s, stream('b'), stream('a'));
    gh_order_join(&order, &s, stream('c'), stream('a'));
    next("a", "", "until it is joined too");
    end();

    begin("abc");
    use("a");
    gh_order_join(&order, &s, stream('b'), stream('a'));
    next("c", "c<a ", "a stream that was not used leaves the marks alone");
    end();

    begin("ab");
    use("ab");
    gh_order_join(&order, &s, stream('b'), stream('z'));
    next("a", "a<b ", "and nothing is joined onto what is not known");
    end();
}

/* A user that was cut short has no marks that count. */
static void test_cut(void)
{
    begin("abc");
    use("ab");
    order.ordered = false;
    gh_order_cut(&order);
    next("c", "a!c<a b!c<b ", "a cut one is waited for as it is now");
    end();

    begin("abc");
    use("ab");
    order.ordered = true;
    gh_order_cut(&order);
    next("c", "c<a c<b ", "one that was ordered is waited for by its marks");
    end();

    begin("abc");
    use("b");
    order.ordered = false;
    work("ab");
    gh_order_cut(&order);
    next("b", "a!b<a ", "what a user before has marked does not count");
    end();

    begin("abc");
    use("b");
    order.ordered = false;
    work("ab");
    gh_order_cut(&order);
    next("c", "a!c<a b!c<b ", "for a third stream neither");
    end();

    begin("ab");
    use("a");
    order.ordered = true;
    order.captured = true;
    gh_order_cut(&order);
    ok(!order.captured, "what was captured is launched by then");
    next("b", "a!b<a ", "and is waited for as it is now");
    end();
}

/* ---- what is out of reach ------------------------------------------------ */

static void test_reach(void)
{
    begin("abc");
    use("ab");
    ok(gh_order_reach(&order, &s, stream('c')), "what is marked is in reach");
    captured = 2;
    ok(gh_order_reach(&order, &s, stream('c')),
       "also while its stream is captured");
    order.marked = 1;
    ok(!gh_order_reach(&order, &s, stream('c')),
       "what is not marked is out of reach then");
    ok(gh_order_reach(&order, &s, stream('b')), "but for its own stream");
    is_unknown = true;
    ok(gh_order_reach(&order, &s, stream('c')),
       "what may be captured is in reach, so that the wait says what is wrong");
    captured = 0;
    ok(gh_order_reach(&order, &s, stream('c')), "and in reach afterwards");
    order.captured = true;
    ok(!gh_order_reach(&order, &s, stream('c')),
       "what the host has captured is out of reach");
    order.stream = stream('c');
    ok(gh_order_reach(&order, &s, stream('c')),
       "but for the stream that it was on last");
    end();

    begin("ab");
    use("a");
    captured = 1;
    calls[0] = '\0';
    gh_order_end(&order, &s);
    is_str(calls, "", "a stream that is captured is not marked");
    next("b", "b<a ", "its mark from before counts");
    end();
}

/* ---- what fails ---------------------------------------------------------- */

static void test_failures(void)
{
    begin("ab");
    creates_fail = true;
    use("a");
    next("b", "host<a ", "without an event the host waits");
    end();

    begin("ab");
    records_fail = true;
    use("a");
    next("b", "a!host<a ", "or without a mark");
    end();

    begin("ab");
    use("a");
    records_fail = true;
    gh_order_end(&order, &s); /* it has gone on, and ends once more */
    records_fail = false;
    next("b", "a!b<a ", "a mark from before the last work does not count");
    end();

    begin("ab");
    use("a");
    waits_fail = true;
    next("b", "b<a host<a ", "or where a stream cannot wait");
    end();

    begin("ab");
    use("a");
    waits_fail = syncs_fail = true;
    order.ordered = false;
    is_status(work("b"), GH_ERR_DEVICE, &err, "a wait that fails is an error");
    ok(!order.ordered && order.stream == stream('a'),
       "and the user has not begun");
    waits_fail = syncs_fail = false;
    next("b", "b<a ", "it can begin again");
    end();
}

/* ---- more streams than events -------------------------------------------- */

static void test_host_memory_that_fails(void)
{
    host_memory_begin();
    begin("a");
    host_memory_refuse(1);
    is_status(gh_streams_know(&s, stream('b'), &err), GH_ERR_NO_MEMORY, &err,
              "a stream that finds no memory is not known");
    is_int(s.n, 1, "and not added");
    is_status(gh_streams_know(&s, stream('b'), &err), GH_OK, &err,
              "with memory it is");
    host_memory_refuse(1);
    use("a");
    host_memory_refuse(1);
    next("b", "host<a ", "without memory for events the host waits");
    host_memory_refuse(0);
    end();
    is_int(host_memory_left(), 0, "no memory of the host is left");
}

static void test_many(void)
{
    char letters[80];

    for (int i = 0; i < 70; i++) {
        letters[i] = (char)('0' + i);
    }
    letters[70] = '\0';
    begin(letters);
    use((char[]){ letters[65], '\0' });
    ok(order.used == UINT64_C(1) << (GH_MAX_EDGES - 1),
       "streams after the 63rd share a bit");
    next("0", "host<o host<p host<q host<r host<s host<t host<u ",
         "and the host waits for all of them");
    gh_order_end(&order, &s);
    use((char[]){ letters[62], '\0' });
    next("0", "0<n ", "the 63rd has its own event");
    end();

    begin(letters);
    use((char[]){ letters[65], '\0' });
    gh_order_join(&order, &s, stream(letters[65]), stream('0'));
    ok(order.used == UINT64_C(1) << (GH_MAX_EDGES - 1),
       "one that shares is not joined");
    gh_order_join(&order, &s, stream('0'), stream(letters[65]));
    ok(order.used == UINT64_C(1) << (GH_MAX_EDGES - 1),
       "nor is one joined onto it");
    gh_order_join(&order, &s, stream(letters[63]), stream('0'));
    ok(order.used == UINT64_C(1) << (GH_MAX_EDGES - 1),
       "nor the first that shares");
    ok(gh_order_reach(&order, &s, stream('0')), "it is in reach");
    captured = UINT64_C(1) << 63;
    ok(!gh_order_reach(&order, &s, stream('0')),
       "unless one that shares is captured");
    end();
}

/* ---- streams ------------------------------------------------------------- */

static int rests;

static void rest(void *user)
{
    rests++;
    note("rest%d ", *(int *)user);
}

static void test_streams(void)
{
    int number = 4;

    begin("abc");
    is_status(gh_streams_know(&s, FOREIGN, &err), GH_ERR_INVALID, &err,
              "a stream of another device is none");
    is_int(s.n, 3, "and not known");
    gh_streams_know(&s, stream('b'), &err);
    ok(s.at == 1 && s.last == stream('b'), "a known one is found");
    is_int(s.n, 3, "and not added");
    captured = 2;
    calls[0] = '\0';
    gh_streams_quiesce(&s);
    is_str(calls, "host<a host<c ",
           "all are waited for but what the host captures");
    is_unknown = true;
    calls[0] = '\0';
    gh_streams_quiesce(&s);
    is_str(calls, "host<a host<c ", "or may capture");
    s.rest = rest;
    s.user = &number;
    captured = 0;
    calls[0] = '\0';
    gh_streams_quiesce(&s);
    is_str(calls, "rest4 host<a host<b host<c ",
           "what waits for a rank that does not come is given up before");
    is_int(rests, 1, "once");
    end();
}

/* Without a driver there is nothing to wait with. */
static void test_no_driver(void)
{
    gh_streams_init(&s, NULL);
    gh_order_init(&order);
    calls[0] = '\0';
    is_status(gh_streams_know(&s, stream('a'), &err), GH_OK, &err,
              "a stream is known");
    gh_streams_know(&s, stream('b'), &err);
    order.ordered = false;
    work("a");
    gh_order_end(&order, &s);
    ok(!gh_order_reach(&order, &s, stream('b')),
       "without a driver no other stream is in reach");
    ok(gh_order_reach(&order, &s, stream('a')), "but its own is");
    is_str(calls, "", "and nothing is called");
    gh_streams_free(&s);
}

int main(void)
{
    test_one_stream();
    test_several();
    test_a_mark_that_is_late();
    test_joined();
    test_joined_of_three();
    test_cut();
    test_reach();
    test_failures();
    test_host_memory_that_fails();
    test_many();
    test_streams();
    test_no_driver();
    return done_with_device();
}
