/*
 * Softnccl's communicators and what their ranks do together: who meets whom,
 * who is given up, and in what order ranks are split.
 * SPDX-License-Identifier: Apache-2.0
 */
#include "softcuda/collectives.h"
#include "softnccl/softnccl.h"
#include "support/host_memory.h"
#include "tap/tap.h"
#include "tests/unit/softnccl/still.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

softnccl_count_fn softnccl_count;
#define NCCL_ENTRY(since, result, name, signature) result name signature;
#include "driver/nccl_entries.def"
#undef NCCL_ENTRY

enum {
    N = 3
};

static ncclComm_t comms[STILL_RANKS], others[STILL_RANKS];
static float from[N][64], into[N][64];

static ncclResult_t error_of(ncclComm_t comm)
{
    ncclResult_t error = ncclInternalError;

    ncclCommGetAsyncError(comm, &error);
    return error;
}

static ncclResult_t sum(ncclComm_t comm, int rank)
{
    still.rank = rank;
    return ncclAllReduce(from[rank], into[rank], 4, ncclFloat32, ncclSum, comm,
                         still_stream(rank));
}

static void begin(int n)
{
    still_begin();
    is_int(still_start(comms, n), ncclSuccess, "%d ranks start", n);
}

static void end(const char *name, int n)
{
    still_settle();
    for (int i = 0; i < n; i++) {
        if (comms[i] != NULL) {
            still_leave(comms[i], i);
        }
        comms[i] = NULL;
    }
    still_end(name);
}

static uint64_t waiting(void)
{
    softnccl_counts counts;

    softnccl_count(&counts);
    return counts.rendezvous;
}

/* ---- messages ------------------------------------------------------------ */

/* A message is its bytes, whatever they are called. */
static void test_messages(void)
{
    static const struct {
        size_t sent;
        ncclDataType_t sends;
        size_t received;
        ncclDataType_t receives;
        bool fits;
    } cases[] = {
        { 4, ncclFloat32, 4, ncclFloat32, true },
        { 16, ncclInt8, 4, ncclFloat32, true },
        { 2, ncclFloat64, 4, ncclFloat32, true },
        { 4, ncclInt8, 4, ncclFloat32, false },
        { 4, ncclFloat64, 4, ncclFloat32, false },
        { 4, ncclFloat32, 3, ncclFloat32, false },
        { 0, ncclFloat32, 0, ncclInt8, true },
        { 0, ncclFloat32, 1, ncclInt8, false },
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        for (int first = 0; first < 2; first++) {
            begin(N);
            for (int turn = 0; turn < 2; turn++) {
                still.rank = turn == first ? 2 : 1;
                if (still.rank == 1) {
                    ncclSend(from[1], cases[i].sent, cases[i].sends, 2,
                             comms[1], still_stream(1));
                } else {
                    ncclRecv(into[2], cases[i].received, cases[i].receives, 1,
                             comms[2], still_stream(2));
                }
            }
            still_settle();
            is_int(still.n_held, cases[i].fits,
                   "message %zu is exchanged if its bytes agree", i);
            is_int(error_of(comms[0]),
                   cases[i].fits ? ncclSuccess : ncclInvalidUsage,
                   "and is an error of all ranks otherwise");
            is_int(still_reports(), !cases[i].fits, "which is reported");
            end("a message", N);
        }
    }
}

/* Messages between two ranks are matched in their order, each way. */
static void test_order_of_messages(void)
{
    begin(2);
    for (int i = 0; i < 2; i++) {
        from[0][i] = (float)i + 1;
        still.rank = 0;
        ncclSend(&from[0][i], 1, ncclFloat32, 1, comms[0], still_stream(0));
    }
    is_int(waiting(), 2, "two messages are two operations");
    for (int i = 0; i < 2; i++) {
        still.rank = 1;
        ncclRecv(&into[1][i], 1, ncclFloat32, 0, comms[1], still_stream(1));
    }
    from[1][0] = 9;
    still.rank = 1;
    ncclSend(&from[1][0], 1, ncclFloat32, 0, comms[1], still_stream(1));
    still.rank = 0;
    ncclRecv(&into[0][0], 1, ncclFloat32, 1, comms[0], still_stream(0));
    still_settle();
    is_int(still.n_held, 3, "each is exchanged");
    ok(into[1][0] == 1 && into[1][1] == 2 && into[0][0] == 9,
       "and received in the order in which it was sent");
    end("the order of messages", 2);
}

/* ---- bytes, by which the device models time ------------------------------ */

static ncclResult_t run_kind(int kind, int rank)
{
    CUstream stream = still_stream(rank);
    ncclComm_t comm = comms[rank];
    float *s = from[rank], *r = into[rank];

    still.rank = rank;
    switch (kind) {
    case 0:
        return ncclAllReduce(s, r, 4, ncclFloat32, ncclSum, comm, stream);
    case 1:
        return ncclReduceScatter(s, r, 4, ncclFloat32, ncclSum, comm, stream);
    case 2:
        return ncclAllGather(s, r, 4, ncclFloat32, comm, stream);
    case 3:
        return ncclBroadcast(s, r, 4, ncclFloat32, 1, comm, stream);
    default:
        return ncclAlltoAll(s, r, 4, ncclFloat32, comm, stream);
    }
}

static void test_bytes(void)
{
    static const uint64_t bytes[] = { 16, 48, 48, 16, 48 };
    static const char *const names[] = { "an all-reduce", "a reduce-scatter",
                                         "an all-gather", "a broadcast",
                                         "an all-to-all" };

    for (int kind = 0; kind < 5; kind++) {
        begin(N);
        for (int i = 0; i < N; i++) {
            is_int(run_kind(kind, i), ncclSuccess, "%s, rank %d", names[kind],
                   i);
            is_int(waiting(), 1, "is one operation of all");
        }
        still_settle();
        is_int(still.n_held, 1, "which ends when all have come");
        is_int(still.bytes, bytes[kind], "%s of 16 bytes moves %d for a rank",
               names[kind], (int)bytes[kind]);
        end(names[kind], N);
    }
    begin(N);
    still.rank = 0;
    ncclSend(from[0], 4, ncclFloat32, 2, comms[0], still_stream(0));
    still.rank = 2;
    ncclRecv(into[2], 4, ncclFloat32, 0, comms[2], still_stream(2));
    still_settle();
    is_int(still.bytes, 8, "a message of 16 bytes moves 8 for each of its two");
    end("bytes", N);
}

/* ---- aborts -------------------------------------------------------------- */

static void test_averages(void)
{
    begin(2);
    for (int rank = 0; rank < 2; rank++) {
        for (int i = 0; i < 4; i++) {
            from[rank][i] = (float)(1 + 2 * rank + 10 * i);
        }
        still.rank = rank;
        ncclReduceScatter(from[rank], into[rank], 2, ncclFloat32, ncclAvg,
                          comms[rank], still_stream(rank));
    }
    still_settle();
    ok(into[0][0] == 2.0f && into[0][1] == 12.0f && into[1][0] == 22.0f &&
           into[1][1] == 32.0f,
       "each rank gets its part of the average: %g %g, %g %g", into[0][0],
       into[0][1], into[1][0], into[1][1]);
    end("averages", 2);
}

/* As many floats of both, but of another sum. */
static void test_other_operations(void)
{
    begin(2);
    for (int rank = 0; rank < 2; rank++) {
        still.rank = rank;
        ncclAllReduce(from[rank], into[rank], 4, ncclFloat32,
                      rank == 0 ? ncclSum : ncclMax, comms[rank],
                      still_stream(rank));
    }
    is_int(still_reports(), 1, "a sum and a maximum do not meet");
    ok(strstr(still_report(0), "mismatch") != NULL, "which is said: %s",
       still_report(0));
    end("other operations", 2);
}

static void test_abort(void)
{
    begin(N);
    still_start(others, N);
    still.rank = 0;
    ncclSend(from[0], 4, ncclFloat32, 1, comms[0], still_stream(0));
    sum(others[1], 1);
    still.rank = 0;
    ncclSend(from[0], 4, ncclFloat32, 2, comms[0], still_stream(0));
    still.rank = 2;
    is_int(ncclCommAbort(comms[2]), ncclSuccess, "rank 2 aborts");
    comms[2] = NULL;
    still_settle();
    is_int(still.n_failed, 1, "the operation with it is given up");
    is_int(waiting(), 2, "those of other ranks and communicators are not");
    is_int(error_of(comms[0]), ncclRemoteError, "rank 0 learns of it");
    is_int(error_of(comms[1]), ncclRemoteError, "and rank 1");
    is_int(error_of(others[1]), ncclSuccess, "but not in another communicator");
    ok(strstr(ncclGetLastError(comms[0]), "another rank has aborted") != NULL,
       "with the reason");
    is_int(sum(comms[1], 1), ncclRemoteError,
           "and no operation of the communicator is taken");
    still.rank = 0;
    ncclCommAbort(comms[0]);
    comms[0] = NULL;
    still_settle();
    is_int(still.n_failed, 2, "an abort of who waits gives its operation up");
    still.rank = 1;
    ncclCommAbort(others[1]);
    still_settle();
    is_int(waiting(), 0, "and nothing is left to wait for");
    still_leave(others[0], 0);
    still_leave(others[2], 2);
    end("an abort", N);
}

static void test_abort_of_one_of_two(void)
{
    begin(2);
    still.rank = 1;
    ncclCommAbort(comms[1]);
    comms[1] = NULL;
    still.rank = 0;
    is_int(error_of(comms[0]), ncclRemoteError,
           "of two ranks the other one learns of an abort");
    ncclCommAbort(comms[0]);
    comms[0] = NULL;
    end("an abort of one of two", 2);
}

/* An abort waits for the device, where nobody else keeps it busy. */
static void abort_other(void)
{
    still.rank = 0;
    ncclCommAbort(others[0]);
    others[0] = NULL;
}

static void test_abort_waits(void)
{
    begin(2);
    still_start(others, 2);
    sum(others[0], 0);
    still.asleep = abort_other;
    still.rank = 1;
    ncclCommAbort(comms[1]);
    ok(others[0] != NULL, "an operation on another device holds no abort up");
    still.rank = 0;
    ncclCommAbort(comms[0]);
    ok(others[0] == NULL, "one on its own device does");
    comms[0] = NULL;
    comms[1] = NULL;
    still_leave(others[1], 1);
    end("an abort that waits", 2);
}

static void test_abort_of_a_start(void)
{
    ncclConfig_t config = NCCL_CONFIG_OURS;
    ncclUniqueId ids[2];
    ncclComm_t a[2] = { NULL, NULL }, b = NULL;

    config.blocking = 0;
    still_begin();
    ncclGetUniqueId(&ids[0]);
    ncclGetUniqueId(&ids[1]);
    for (still.rank = 0; still.rank < 2; still.rank++) {
        ncclCommInitRankConfig(&a[still.rank], 3, ids[0], still.rank, &config);
    }
    still.rank = 0;
    ncclCommInitRankConfig(&b, 2, ids[1], 0, &config);
    ncclCommAbort(a[0]);
    is_int(error_of(a[1]), ncclRemoteError,
           "an abort ends the start that its rank waits in");
    is_int(error_of(b), ncclInProgress, "and no other");
    ncclCommAbort(a[1]);
    ncclCommAbort(b);
    still_end("a start that is aborted");
}

static void test_abort_of_a_split(void)
{
    ncclConfig_t config = NCCL_CONFIG_OURS;
    ncclComm_t parts[2] = { NULL, NULL };
    ncclUniqueId id;

    config.blocking = 0;
    still_begin();
    for (int c = 0; c < 2; c++) {
        ncclGetUniqueId(&id);
        for (still.rank = 0; still.rank < 3; still.rank++) {
            ncclCommInitRankConfig(c == 0 ? &comms[still.rank]
                                          : &others[still.rank],
                                   3, id, still.rank, &config);
        }
    }
    still.rank = 0;
    ncclCommSplit(comms[0], 0, 0, &parts[0], NULL);
    ncclCommSplit(others[0], 0, 0, &parts[1], NULL);
    still.rank = 2;
    ncclCommAbort(comms[2]);
    comms[2] = NULL;
    is_int(error_of(comms[0]), ncclRemoteError,
           "an abort ends the splits of its communicator");
    is_int(error_of(others[0]), ncclInProgress, "and of no other");
    for (int i = 0; i < 3; i++) {
        still.rank = i;
        ncclCommAbort(others[i]);
    }
    still.rank = 0;
    for (int i = 0; i < 2; i++) {
        if (parts[i] != NULL) {
            ncclCommAbort(parts[i]);
        }
    }
    end("a split that is aborted", 3);
}

/* ---- splits -------------------------------------------------------------- */

/* Each rank's color and key, and the rank and size it gets. */
struct split {
    const char *name;
    int color[4], key[4], rank[4], n[4];
};

static void test_splits(void)
{
    static const struct split cases[] = {
        { "equal keys keep the order",
          { 0, 0, 0, 0 },
          { 5, 5, 5, 5 },
          { 0, 1, 2, 3 },
          { 4, 4, 4, 4 } },
        { "keys decide the order",
          { 0, 0, 0, 0 },
          { 3, 2, 1, 0 },
          { 3, 2, 1, 0 },
          { 4, 4, 4, 4 } },
        { "a key may be negative",
          { 0, 0, 0, 0 },
          { 0, -1, 0, -2 },
          { 2, 1, 3, 0 },
          { 4, 4, 4, 4 } },
        { "colors part the ranks",
          { 1, 0, 1, 0 },
          { 0, 0, 0, 0 },
          { 0, 0, 1, 1 },
          { 2, 2, 2, 2 } },
        { "a rank without a color gets nothing",
          { 7, -1, 7, 9 },
          { 1, 0, 0, 0 },
          { 1, -1, 0, 0 },
          { 2, 0, 2, 1 } },
    };

    for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
        const struct split *s = &cases[c];

        begin(4);
        ncclGroupStart();
        for (still.rank = 0; still.rank < 4; still.rank++) {
            ncclCommSplit(comms[still.rank], s->color[still.rank],
                          s->key[still.rank], &others[still.rank], NULL);
        }
        still.rank = 0;
        is_int(ncclGroupEnd(), ncclSuccess, "%s: they split", s->name);
        for (int i = 0; i < 4; i++) {
            int rank = -1, n = 0;

            if (others[i] != NULL) {
                ncclCommUserRank(others[i], &rank);
                ncclCommCount(others[i], &n);
                still_leave(others[i], i);
            }
            is_int(rank, s->rank[i], "%s: rank %d", s->name, i);
            is_int(n, s->n[i], "%s: of so many, rank %d", s->name, i);
        }
        end(s->name, 4);
    }
}

static void test_colors(void)
{
    static const struct {
        int color;
        ncclResult_t result;
    } cases[] = {
        { -2, ncclInvalidArgument }, { INT_MIN, ncclInvalidArgument },
        { -1, ncclSuccess },         { 0, ncclSuccess },
        { INT_MAX, ncclSuccess },
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        begin(1);
        is_int(ncclCommSplit(comms[0], cases[i].color, 0, &others[0], NULL),
               cases[i].result, "color %d", cases[i].color);
        if (cases[i].result != ncclSuccess) {
            ok(strstr(ncclGetLastError(comms[0]), "color") != NULL,
               "is named where it is refused");
        } else if (others[0] != NULL) {
            still_leave(others[0], 0);
        }
        end("a color", 1);
    }
}

/* ---- groups -------------------------------------------------------------- */

static ncclResult_t come(ncclUniqueId id, int n, int rank, bool blocking,
                         ncclComm_t *comm_p)
{
    ncclConfig_t config = NCCL_CONFIG_OURS;

    config.blocking = blocking;
    still.rank = rank;
    return ncclCommInitRankConfig(comm_p, n, id, rank, &config);
}

/* The starts of a group, in any order: one that fails is the group's result,
 * else one that is in progress. */
static void test_results_of_a_group(void)
{
    static const struct {
        const char *order; /* Good, in Progress, Failing */
        ncclResult_t result;
    } cases[] = {
        { "G", ncclSuccess },       { "P", ncclInProgress },
        { "F", ncclInvalidUsage },  { "PF", ncclInvalidUsage },
        { "FP", ncclInvalidUsage }, { "GF", ncclInvalidUsage },
        { "FG", ncclInvalidUsage }, { "GP", ncclInProgress },
        { "PG", ncclInProgress },
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        ncclComm_t made[8] = { NULL };
        size_t n = 0;

        still_begin();
        still.devices[1] = still.devices[0]; /* ranks 0 and 1 may not meet */
        ncclGroupStart();
        for (const char *c = cases[i].order; *c != '\0'; c++) {
            ncclUniqueId id;

            ncclGetUniqueId(&id);
            if (*c == 'F') {
                come(id, 2, 0, true, &made[n++]);
                come(id, 2, 1, true, &made[n++]);
            } else {
                come(id, *c == 'G' ? 1 : 2, 0, false, &made[n++]);
            }
        }
        is_int(ncclGroupEnd(), cases[i].result, "the result of a group of %s",
               cases[i].order);
        for (size_t m = 0; m < n; m++) {
            if (made[m] != NULL) {
                ncclCommAbort(made[m]);
            }
        }
        still_end("a group of starts");
    }
}

/* It may be aborted only, until all have come. */
static void test_a_start_in_progress(void)
{
    ncclComm_t comm = NULL, other = NULL;
    ncclUniqueId id;

    still_begin();
    ncclGetUniqueId(&id);
    is_int(come(id, 2, 0, false, &comm), ncclInProgress,
           "one of two ranks has come");
    is_int(ncclCommSplit(comm, 0, 0, &other, NULL), ncclInvalidArgument,
           "a communicator in progress is not split");
    is_int(ncclCommFinalize(comm), ncclInvalidArgument, "nor finalized");
    is_int(ncclCommDestroy(comm), ncclInvalidArgument, "nor destroyed");
    ok(strstr(ncclGetLastError(comm),
              "ncclCommDestroy: not all ranks of the communicator have come") !=
           NULL,
       "which is said: %s", ncclGetLastError(comm));
    is_int(ncclCommAbort(comm), ncclSuccess, "but aborted");
    still_end("a start in progress");
}

/* A group's operations of one communicator and stream are one call. */
static void test_groups(void)
{
    begin(2);
    ncclGroupStart();
    ncclGroupStart();
    sum(comms[0], 0);
    is_int(ncclGroupEnd(), ncclSuccess, "an inner group ends");
    is_int(waiting(), 0, "and issues nothing");
    sum(comms[1], 1);
    is_int(ncclGroupEnd(), ncclSuccess, "the outermost issues all");
    still_settle();
    is_int(still.n_held, 1, "which is exchanged");
    is_int(ncclGroupEnd(), ncclInvalidUsage, "a group ends once");
    ncclGroupStart();
    ncclSend(from[0], 4, ncclFloat32, 0, comms[0], still_stream(0));
    is_int(ncclGroupEnd(), ncclInvalidUsage,
           "what a rank sends to itself it receives in the group");
    ncclGroupStart();
    still.rank = 0;
    ncclSend(from[0], 4, ncclFloat32, 0, comms[0], still_stream(0));
    ncclRecv(into[0], 4, ncclFloat32, 0, comms[0], still_stream(0));
    is_int(ncclGroupEnd(), ncclSuccess, "then it may");
    ncclGroupStart();
    still.rank = 0;
    ncclSend(from[0], 4, ncclFloat32, 7, comms[0], still_stream(0));
    sum(comms[0], 0);
    is_int(ncclGroupEnd(), ncclInvalidArgument,
           "a group with a wrong call is an error");
    is_int(waiting(), 1, "of which nothing is issued");
    end("groups", 2);
}

/* A group that finds no memory issues nothing, and says so. */
static void test_groups_without_memory(void)
{
    begin(2);
    ncclGroupStart();
    for (int i = 0; i < 100; i++) {
        host_memory_refuse(1);
        if (sum(comms[0], 0) == ncclSystemError) {
            break;
        }
    }
    ok(host_memory_asked() == 1, "an operation of a group finds no memory");
    host_memory_refuse(0);
    is_int(ncclGroupEnd(), ncclSystemError, "which is the group's result");
    is_int(waiting(), 0, "and none of it is issued");
    end("groups without memory", 2);
}

/* ---- graphs -------------------------------------------------------------- */

static void a_second_passes(void)
{
    still.now_ms += 1000;
}

static void graphs_go_in_time(void)
{
    a_second_passes();
    if (still.n_slept == 7) {
        still_forget_graphs();
    }
}

/* NCCL waits for graphs that hold operations, in an abort too: until they are
 * gone, and here for SOFTNCCL_TIMEOUT at most. */
static void test_waits_for_graphs(void)
{
    for (int way = 0; way < 4; way++) {
        const bool aborts = way % 2 == 1, goes = way / 2 == 1;
        const char *what = aborts ? "an abort" : "an end";

        begin(2);
        still.capture = 1;
        sum(comms[0], 0);
        still.capture = 0;
        still.asleep = goes ? graphs_go_in_time : a_second_passes;
        still.n_slept = 0;
        still.rank = 0;
        is_int(aborts ? ncclCommAbort(comms[0]) : ncclCommDestroy(comms[0]),
               ncclSuccess, "%s of what a graph holds", what);
        is_int(still.n_slept, goes ? 7 : 30, "%s waits for the graph", what);
        is_int(still_reports(), 1, "%s is reported", what);
        is_int(ncclCommAbort(comms[0]), ncclInvalidUsage,
               "%s leaves no communicator", what);
        still_forget_graphs();
        comms[0] = NULL;
        still_leave(comms[1], 1);
        comms[1] = NULL;
        end("graphs that are waited for", 2);
    }
}

/* Between processes an end waits for the other ranks. */
static void test_ends_that_wait(void)
{
    setenv("SOFTNCCL_DESTROY", "wait", 1);
    begin(2);
    still.asleep = a_second_passes;
    still.n_slept = 0;
    still_leave(comms[0], 0);
    comms[0] = NULL;
    is_int(still.n_slept, 30, "the first end waits as long as it may");
    is_int(still_reports(), 1, "and is reported");
    ok(strstr(still_report(0), "rank 0 destroys communicator 1, of which 1 of "
                               "2 ranks do") != NULL,
       "with who does not come: %s", still_report(0));
    still.n_slept = 0;
    still_leave(comms[1], 1);
    comms[1] = NULL;
    is_int(still.n_slept, 0, "the last end waits for nobody");
    is_int(still_reports(), 1, "and is in order");
    end("ends that wait", 2);
    unsetenv("SOFTNCCL_DESTROY");
}

static void test_graphs(void)
{
    softnccl_counts counts;

    begin(2);
    sum(comms[0], 0);
    sum(comms[1], 1);
    still_settle();
    softnccl_count(&counts);
    is_int(counts.captured, 0, "what is issued is in no graph");
    still.capture = 1;
    sum(comms[0], 0);
    sum(comms[1], 1);
    still.capture = 0;
    softnccl_count(&counts);
    is_int(counts.captured, 2, "graphs hold an operation of each rank");
    is_int(waiting(), 0, "which is not issued");
    for (int i = 1; i <= 2; i++) {
        still_launch();
        still_settle();
        is_int(still.n_held, 1 + i, "launch %d exchanges it", i);
    }
    still.capture = 1;
    sum(comms[1], 1);
    still.capture = 0;
    still.asleep = a_second_passes;
    still_leave(comms[1], 1);
    comms[1] = NULL;
    ok(strstr(still_report(0), "rank 1 destroys communicator 1 while graphs "
                               "hold 2 of its operations") != NULL,
       "graphs go before their communicator");
    still_forget_graphs();
    softnccl_count(&counts);
    is_int(counts.captured, 0, "and with a graph its operations");
    still_leave(comms[0], 0);
    comms[0] = NULL;
    is_int(still_reports(), 1, "a communicator without graphs goes in peace");
    end("graphs", 2);
}

static void test_mixed(void)
{
    for (int first = 0; first < 2; first++) {
        begin(2);
        still.capture = 1;
        sum(comms[first], first);
        still.capture = 0;
        if (first == 0) {
            still_launch();
            sum(comms[1], 1);
        } else {
            sum(comms[0], 0);
            still.rank = 1;
            still_launch();
        }
        is_int(error_of(comms[0]), ncclInvalidUsage,
               "all ranks capture an operation, or none");
        ok(strstr(still_report(0),
                  first == 0 ? "rank 0 launches all-reduce 1 of communicator 1 "
                               "in a graph, rank 1 issues it eagerly"
                             : "rank 1 launches all-reduce 1 of communicator 1 "
                               "in a graph, rank 0 issues it eagerly") != NULL,
           "and the report says who did what");
        still_settle();
        still_forget_graphs();
        end("a mixture", 2);
    }
}

static void test_wild(void)
{
    begin(2);
    sum(comms[0], 0);
    sum(comms[1], 1);
    still.wild = true;
    still_settle();
    is_int(still.n_failed, 1, "an address that is none is not exchanged");
    is_int(error_of(comms[1]), ncclUnhandledCudaError,
           "and is an error of all ranks");
    is_int(still_reports(), 1, "that is reported");
    end("a wild address", 2);
}

int main(void)
{
    unsetenv("NCCL_MULTI_RANK_GPU_ENABLE");
    test_messages();
    test_order_of_messages();
    test_bytes();
    test_averages();
    test_other_operations();
    test_abort();
    test_abort_of_one_of_two();
    test_abort_waits();
    test_abort_of_a_start();
    test_abort_of_a_split();
    test_splits();
    test_colors();
    test_results_of_a_group();
    test_a_start_in_progress();
    test_groups();
    test_groups_without_memory();
    test_graphs();
    test_waits_for_graphs();
    test_ends_that_wait();
    test_mixed();
    test_wild();
    return done_testing();
}
