/*
 * When softnccl says that nobody is left to come, and when that somebody took
 * too long: to the millisecond, on a device that stands still.
 * SPDX-License-Identifier: Apache-2.0
 */
#include "softcuda/collectives.h"
#include "softnccl/softnccl.h"
#include "softnccl/stuck.h"
#include "tap/tap.h"
#include "tests/unit/softnccl/still.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NCCL_ENTRY(since, result, name, signature) result name signature;
#include "driver/nccl_entries.def"
#undef NCCL_ENTRY

enum {
    N = 3,
    GRACE_MS = 200,
    LIMIT_MS = 30000
};

static ncclComm_t comms[STILL_RANKS], others[STILL_RANKS];
static float from[64], into[64];

static ncclResult_t sum(ncclComm_t comm, int rank)
{
    still.rank = rank;
    return ncclAllReduce(from, into, 4, ncclFloat32, ncclSum, comm,
                         still_stream(rank));
}

static ncclResult_t error_of(ncclComm_t comm, int rank)
{
    ncclResult_t error = ncclInternalError;
    const int before = still.rank;

    still.rank = rank;
    ncclCommGetAsyncError(comm, &error);
    still.rank = before;
    return error;
}

static void all_are(int what)
{
    for (int i = 0; i < STILL_RANKS; i++) {
        still.threads[i] = what;
    }
}

static void begin(int n)
{
    still_begin();
    still_start(comms, n);
}

static void end(const char *name, int n)
{
    still_settle();
    for (int i = 0; i < n; i++) {
        if (comms[i] != NULL) {
            still_leave(comms[i], i);
        }
    }
    still_end(name);
    memset(comms, 0, sizeof(comms));
}

/* ---- operations ---------------------------------------------------------- */

static void test_grace(void)
{
    begin(N);
    sum(comms[0], 0);
    still.threads[1] = SOFTCUDA_THREAD_WAITS;
    still.threads[2] = SOFTCUDA_THREAD_GONE;
    stuck_watch(GRACE_MS - 1);
    is_int(still_reports(), 0, "nobody is hopeless before the grace is over");
    stuck_watch(GRACE_MS);
    is_int(still_reports(), 1, "then who waits for nobody is reported once");
    is_str(still_report(0),
           "deadlock: all-reduce 1 of communicator 1 can never end: rank 0 is "
           "in it, rank 1 has not come, and its thread waits, rank 2 has not "
           "come, and its thread has ended",
           "with what each rank does");
    for (int i = 0; i < N; i++) {
        is_int(error_of(comms[i], i), ncclRemoteError,
               "rank %d has it as its error", i);
    }
    ok(strstr(ncclGetLastError(comms[1]), "can never end") != NULL,
       "whose text is the report");
    stuck_watch(GRACE_MS);
    is_int(still_reports(), 1, "it is not reported again while it ends");
    still_settle();
    is_int(still.n_failed, 1, "and who waits goes on");
    end("a deadlock", N);
}

/* The state of the missing rank decides, nobody else's. */
static void test_who_counts(void)
{
    static const struct {
        int in, missing, bystander;
        uint64_t reports;
    } cases[] = {
        { SOFTCUDA_THREAD_RUNS, SOFTCUDA_THREAD_WAITS, SOFTCUDA_THREAD_RUNS,
          1 },
        { SOFTCUDA_THREAD_RUNS, SOFTCUDA_THREAD_GONE, SOFTCUDA_THREAD_RUNS, 1 },
        { SOFTCUDA_THREAD_WAITS, SOFTCUDA_THREAD_RUNS, SOFTCUDA_THREAD_WAITS,
          0 },
        { SOFTCUDA_THREAD_GONE, SOFTCUDA_THREAD_RUNS, SOFTCUDA_THREAD_GONE, 0 },
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        for (int sends = 0; sends < 2; sends++) {
            begin(N);
            still.rank = sends ? 0 : 2;
            if (sends) {
                ncclSend(from, 4, ncclFloat32, 2, comms[0], still_stream(0));
            } else {
                ncclRecv(into, 4, ncclFloat32, 0, comms[2], still_stream(2));
            }
            still.threads[sends ? 0 : 2] = cases[i].in;
            still.threads[sends ? 2 : 0] = cases[i].missing;
            still.threads[1] = cases[i].bystander;
            stuck_watch(GRACE_MS);
            is_int(still_reports(), cases[i].reports,
                   "case %zu of who %s: so many reports", i,
                   sends ? "sends" : "receives");
            if (cases[i].reports > 0) {
                const char *text = still_report(0);

                ok(strstr(text, "send 1 from rank 0 to rank 2") != NULL &&
                       strstr(text, sends ? "rank 0 is in it"
                                          : "rank 2 is in it") != NULL &&
                       strstr(text, sends ? "rank 2 has not come"
                                          : "rank 0 has not come") != NULL &&
                       strstr(text, "rank 1 ") == NULL,
                   "which names the two alone");
            }
            still.now_ms += LIMIT_MS + 1;
            stuck_watch(0);
            is_int(still_reports(), 1, "and after the timeout there is one");
            end("a message", N);
        }
    }
}

/* A rank comes by the thread that came for it last, be it with a graph. */
static void test_another_thread(void)
{
    begin(2);
    still.capture = 1;
    sum(comms[0], 0);
    sum(comms[1], 1);
    still.capture = 0;
    still.rank = 2;
    still_launch();
    still_settle();
    still_forget_graphs();
    sum(comms[1], 1);
    still.threads[0] = SOFTCUDA_THREAD_GONE;
    stuck_watch(GRACE_MS);
    is_int(still_reports(), 0, "the thread that has come for a rank may again");
    still.threads[2] = SOFTCUDA_THREAD_GONE;
    stuck_watch(GRACE_MS);
    is_int(still_reports(), 1, "until it has ended too");
    end("another thread", 2);
}

static void test_who_has_left(void)
{
    begin(N);
    sum(comms[0], 0);
    sum(comms[1], 1);
    still_leave(comms[2], 2);
    comms[2] = NULL;
    stuck_watch(GRACE_MS - 1);
    is_int(still_reports(), 0, "who has left is missed after the grace");
    stuck_watch(GRACE_MS);
    ok(strstr(still_report(0),
              "can never end: rank 0 is in it, rank 1 is in it, rank 2 has "
              "left the communicator") != NULL,
       "who has left does not come, though its thread runs");
    end("a rank that left", N);
}

/* One operation that can end keeps hope for all, one that failed for none. */
static void test_several(void)
{
    begin(2);
    still_start(others, 2);
    sum(comms[0], 0);
    still.rank = 0;
    ncclSend(from, 4, ncclFloat32, 1, others[0], still_stream(0));
    stuck_watch(GRACE_MS);
    is_int(still_reports(), 0, "while a thread runs there is hope");
    all_are(SOFTCUDA_THREAD_WAITS);
    still.threads[1] = SOFTCUDA_THREAD_RUNS;
    stuck_watch(GRACE_MS);
    is_int(still_reports(), 0, "one thread is enough");
    all_are(SOFTCUDA_THREAD_WAITS);
    stuck_watch(GRACE_MS);
    is_int(still_reports(), 2, "without one both are reported");
    still_settle();
    is_int(still.n_failed, 2, "and both are given up");
    still_leave(others[0], 0);
    still_leave(others[1], 1);
    end("two operations", 2);
}

static void test_hope_of_another(void)
{
    begin(3);
    still.rank = 0;
    ncclSend(from, 4, ncclFloat32, 1, comms[0], still_stream(0));
    still.rank = 0;
    ncclSend(from, 4, ncclFloat32, 2, comms[0], still_stream(0));
    for (int missing = 1; missing < 3; missing++) {
        all_are(SOFTCUDA_THREAD_WAITS);
        still.threads[missing] = SOFTCUDA_THREAD_RUNS;
        stuck_watch(GRACE_MS);
        is_int(still_reports(), 0,
               "rank %d may still wake the others, so nobody is given up",
               missing);
    }
    all_are(SOFTCUDA_THREAD_WAITS);
    stuck_watch(GRACE_MS);
    end("hope", 3);
}

static void test_failed_is_no_hope(void)
{
    begin(2);
    still_start(others, 3);
    sum(others[0], 0);
    still.threads[1] = SOFTCUDA_THREAD_RUNS;
    still.threads[2] = SOFTCUDA_THREAD_RUNS;
    still.now_ms += LIMIT_MS + 1;
    stuck_watch(0);
    is_int(still_reports(), 1, "one takes too long, and has failed");
    sum(comms[0], 0);
    still.threads[1] = SOFTCUDA_THREAD_WAITS;
    stuck_watch(GRACE_MS);
    is_int(still_reports(), 2,
           "that a third rank runs is no hope for who waits for the second");
    ok(strstr(still_report(1), "of communicator 1 can never end") != NULL,
       "and the report is of the second operation");
    still_settle();
    for (int i = 0; i < 3; i++) {
        still_leave(others[i], i);
    }
    end("a failed operation that others could join", 2);
}

static void wake_all(void)
{
    all_are(SOFTCUDA_THREAD_RUNS);
}

static void test_said_before_given_up(void)
{
    begin(2);
    still_start(others, 2);
    sum(comms[0], 0);
    sum(others[0], 0);
    all_are(SOFTCUDA_THREAD_WAITS);
    still.news = wake_all;
    stuck_watch(GRACE_MS);
    is_int(still_reports(), 2, "two that are stuck are reported");
    for (uint64_t i = 0; i < 2; i++) {
        ok(strstr(still_report(i), "rank 1 has not come, and its thread "
                                   "waits") != NULL,
           "report %d is of before any went on", (int)i);
    }
    still.news = NULL;
    still_settle();
    still_leave(others[0], 0);
    still_leave(others[1], 1);
    end("two reports", 2);
}

static void test_many_ranks(void)
{
    begin(STILL_RANKS);
    sum(comms[0], 0);
    all_are(SOFTCUDA_THREAD_GONE);
    stuck_watch(GRACE_MS);
    ok(strstr(still_report(0), "rank 0 is in it, rank 1 has not come") != NULL,
       "of many ranks as many are named as there is room for");
    end("many ranks", STILL_RANKS);
}

/* ---- timeouts ------------------------------------------------------------ */

static void test_limits(void)
{
    static const struct {
        const char *text;
        uint64_t limit_ms;
    } cases[] = {
        { NULL, LIMIT_MS },   { "1", 1000 },
        { "31", 31000 },      { "999999", 999999000 },
        { "0", LIMIT_MS },    { "1000000", LIMIT_MS },
        { "", LIMIT_MS },     { "-1", LIMIT_MS },
        { "1s", LIMIT_MS },   { " 1", LIMIT_MS },
        { "9", 9000 },        { "/1", LIMIT_MS },
        { ":1", LIMIT_MS },   { "1.5", LIMIT_MS },
        { "0x10", LIMIT_MS }, { "99999999999999999999", LIMIT_MS },
        { "10", 10000 },
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *text = cases[i].text != NULL ? cases[i].text : "none";

        if (cases[i].text != NULL) {
            setenv("SOFTNCCL_TIMEOUT", cases[i].text, 1);
        }
        begin(2);
        still.now_ms = 5;
        sum(comms[0], 0);
        still.now_ms += cases[i].limit_ms;
        stuck_watch(GRACE_MS);
        is_int(still_reports(), 0, "SOFTNCCL_TIMEOUT=\"%s\": in time", text);
        still.now_ms++;
        stuck_watch(0);
        is_str(still_report(0),
               "deadlock: all-reduce 1 of communicator 1 has waited too long: "
               "rank 0 is in it, rank 1 has not come",
               "SOFTNCCL_TIMEOUT=\"%s\": too late", text);
        is_int(error_of(comms[1], 1), ncclRemoteError,
               "SOFTNCCL_TIMEOUT=\"%s\": an error of all ranks", text);
        end("a timeout", 2);
        unsetenv("SOFTNCCL_TIMEOUT");
    }
}

/* Each operation has its own time. */
static void test_each_its_time(void)
{
    begin(2);
    still_start(others, 2);
    sum(comms[0], 0);
    still.now_ms = 1000;
    sum(others[0], 0);
    still.now_ms = LIMIT_MS + 1;
    stuck_watch(0);
    is_int(still_reports(), 1, "the older operation is too late first");
    is_int(error_of(others[0], 0), ncclSuccess, "the younger is well");
    still.now_ms = LIMIT_MS + 1001;
    stuck_watch(0);
    is_int(still_reports(), 2, "and is too late in its turn");
    still_settle();
    still_leave(others[0], 0);
    still_leave(others[1], 1);
    end("two times", 2);
}

/* ---- the start of a communicator ----------------------------------------- */

static ncclResult_t come(ncclUniqueId id, int n, int rank, ncclComm_t *comm_p)
{
    ncclConfig_t config = NCCL_CONFIG_OURS;

    config.blocking = 0;
    still.rank = rank;
    return ncclCommInitRankConfig(comm_p, n, id, rank, &config);
}

static void test_a_start(void)
{
    ncclUniqueId id;

    still_begin();
    ncclGetUniqueId(&id);
    is_int(come(id, 4, 1, &comms[1]), ncclInProgress, "a start is in progress");
    all_are(SOFTCUDA_THREAD_WAITS);
    still.now_ms = LIMIT_MS;
    stuck_watch(LIMIT_MS);
    is_int(still_reports(), 0,
           "whoever is missing is not known, so that there is hope in time");
    still.now_ms++;
    stuck_watch(0);
    is_str(still_report(0),
           "deadlock: the start of a communicator of 4 has waited too long: of "
           "its ranks 0, 2, 3 never came",
           "and none after it");
    is_int(error_of(comms[1], 1), ncclRemoteError, "who came has the error");
    still.rank = 1;
    ncclCommAbort(comms[1]);
    comms[1] = NULL;
    end("a start", 4);
}

static void tick(void)
{
    still.now_ms += 1000;
    stuck_watch(1000);
}

static void test_a_start_that_blocks(void)
{
    ncclUniqueId id;

    still_begin();
    still.asleep = tick;
    ncclGetUniqueId(&id);
    is_int(ncclCommInitRank(&comms[0], 2, id, 0), ncclRemoteError,
           "a start that blocks ends with the timeout");
    ok(comms[0] == NULL, "without a communicator");
    is_int(still.now_ms, LIMIT_MS + 1000, "not before it");
    still_end("a start that blocks");
}

/* A start that waits is hope for operations too. */
static void test_a_start_beside(void)
{
    ncclUniqueId id;

    begin(2);
    sum(comms[0], 0);
    ncclGetUniqueId(&id);
    come(id, 2, 1, &others[1]);
    all_are(SOFTCUDA_THREAD_WAITS);
    stuck_watch(GRACE_MS);
    is_int(still_reports(), 0, "who starts may set an operation free");
    come(id, 2, 0, &others[0]);
    stuck_watch(GRACE_MS);
    is_int(still_reports(), 1, "and nobody once it has started");
    still_settle();
    still_leave(others[0], 0);
    still_leave(others[1], 1);
    end("a start beside", 2);
}

/* ---- splits -------------------------------------------------------------- */

static void begin_apart(int n)
{
    ncclUniqueId id;

    still_begin();
    ncclGetUniqueId(&id);
    for (int i = 0; i < n; i++) {
        come(id, n, i, &comms[i]);
    }
}

/* A split that fails leaves a communicator with the error. */
static void end_split(const char *name, int n, int rank)
{
    still.rank = rank;
    is_int(error_of(others[rank], rank), ncclRemoteError,
           "%s: what it made has the error", name);
    ncclCommAbort(others[rank]);
    end(name, n);
}

static void split(int rank, ncclComm_t *comm_p)
{
    still.rank = rank;
    ncclCommSplit(comms[rank], 0, 0, comm_p, NULL);
}

static void test_a_split(void)
{
    begin_apart(3);
    split(1, &others[1]);
    all_are(SOFTCUDA_THREAD_WAITS);
    still.threads[2] = SOFTCUDA_THREAD_RUNS;
    stuck_watch(GRACE_MS);
    is_int(still_reports(), 0, "a rank that runs may come to a split");
    still.threads[2] = SOFTCUDA_THREAD_WAITS;
    still.threads[1] = SOFTCUDA_THREAD_RUNS;
    stuck_watch(GRACE_MS - 1);
    is_int(still_reports(), 0, "a split has the grace");
    stuck_watch(GRACE_MS);
    is_str(still_report(0),
           "deadlock: split 1 of communicator 1 can never end: of its ranks "
           "0, 2 never came",
           "that a rank runs which has come is no hope");
    is_int(error_of(comms[1], 1), ncclRemoteError,
           "the parent of who came has the error");
    is_int(error_of(comms[0], 0), ncclSuccess,
           "and that of who did not come has none");
    stuck_watch(GRACE_MS);
    is_int(still_reports(), 1, "it is reported once");
    end_split("a split", 3, 1);
}

static void test_a_split_of_who_left(void)
{
    begin_apart(2);
    split(0, &others[0]);
    still_leave(comms[1], 1);
    comms[1] = NULL;
    stuck_watch(GRACE_MS);
    is_int(still_reports(), 1, "who has left comes to no split");
    end_split("a split of who left", 2, 0);
}

static void test_a_split_in_time(void)
{
    begin_apart(2);
    still.now_ms = 70;
    split(0, &others[0]);
    still.now_ms += LIMIT_MS;
    stuck_watch(GRACE_MS);
    is_int(still_reports(), 0, "a split is waited for while a rank runs");
    still.now_ms++;
    stuck_watch(GRACE_MS);
    ok(strstr(still_report(0), "split 1 of communicator 1 has waited too "
                               "long: of its ranks 1 never came") != NULL,
       "until it has taken too long");
    end_split("a split in time", 2, 0);
}

int main(void)
{
    test_grace();
    test_who_counts();
    test_another_thread();
    test_who_has_left();
    test_several();
    test_hope_of_another();
    test_failed_is_no_hope();
    test_said_before_given_up();
    test_many_ranks();
    test_limits();
    test_each_its_time();
    test_a_start();
    test_a_start_that_blocks();
    test_a_start_beside();
    test_a_split();
    test_a_split_of_who_left();
    test_a_split_in_time();
    return done_testing();
}
