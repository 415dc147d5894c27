/*
 * What ranks say to each other, and what becomes of it when they do not: on an
 * NCCL, a device and a clock of this file's.
 *
 * Time passes only in naps, so that a time limit is exact and costs nothing,
 * and no thread starts unless a test asks for it.  The program is linked with
 * --wrap for the clock, for naps and for threads.  The fake NCCL has two
 * communicators: the host's, and the library's own.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "base/gate.h"
#include "base/log.h"
#include "comm/comm.h"
#include "comm/thread_barrier.h"
#include "comm/nccl.h"
#include "device/job.h"
#include "driver/nccl.h"
#include "support/fake.h"
#include "support/host_memory.h"
#include "tap/tap.h"

#include <dirent.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define HOST ((ncclComm_t)1)
#define OWN ((ncclComm_t)2)
#define SECOND UINT64_C(1000000000)

enum {
    N = 3,
    RANK = 1,
    SECONDS = 2
};

/* ---- what happened ------------------------------------------------------- */

static void forget(void)
{
    calls[0] = '\0';
}

/* ---- time ---------------------------------------------------------------- */

int __wrap_clock_gettime(clockid_t clock, struct timespec *now);
int __wrap_nanosleep(const struct timespec *nap, struct timespec *left);
int __real_nanosleep(const struct timespec *nap, struct timespec *left);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *how,
                          void *(*run)(void *), void *user);
int __real_pthread_create(pthread_t *thread, const pthread_attr_t *how,
                          void *(*run)(void *), void *user);

static bool starts;      /* threads do */
static bool stands;      /* time does not pass: a thread is waited for */
static pthread_t player; /* whose naps pass the time */
static uint64_t now_ns, n_naps;
static void (*on_nap)(void);

int __wrap_clock_gettime(clockid_t clock, struct timespec *now)
{
    (void)clock;
    now->tv_sec = (time_t)(now_ns / SECOND);
    now->tv_nsec = (long)(now_ns % SECOND);
    return 0;
}

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *how,
                          void *(*run)(void *), void *user)
{
    return starts ? __real_pthread_create(thread, how, run, user) : -1;
}

static void rest(void)
{
    const struct timespec ms = { .tv_nsec = 1000000 };

    __real_nanosleep(&ms, NULL);
}

int __wrap_nanosleep(const struct timespec *nap, struct timespec *left)
{
    (void)left;
    if (stands || !pthread_equal(pthread_self(), player)) {
        rest();
        return 0;
    }
    now_ns += (uint64_t)nap->tv_nsec;
    if (++n_naps > 100000) {
        printf("Bail out! a wait has no limit\n");
        exit(1);
    }
    if (on_nap != NULL) {
        on_nap();
    }
    return 0;
}

/* ---- the device ---------------------------------------------------------- */

static int n_objects;
static bool ends; /* copies have ended */
static const char *fails = "";

static gh_status fails_in(const char *what, gh_error *error)
{
    if (strcmp(fails, what) != 0) {
        return GH_OK;
    }
    if (error != NULL) {
        snprintf(error->text, sizeof(error->text), "%s failed", what);
    }
    return GH_ERR_DEVICE;
}

static gh_status make(const char *what, size_t bytes, void **object_p,
                      gh_error *error)
{
    gh_status status = fails_in(what, error);

    if (status == GH_OK) {
        *object_p = calloc(1, bytes);
        n_objects++;
    }
    return status;
}

static void drop(void *object)
{
    n_objects -= object != NULL;
    free(object);
}

void gh_device_gather(struct gh_device *dev, uint64_t key, uint64_t number,
                      bool before)
{
    (void)dev;
    note("%s%llu.%llu ", before ? "say" : "hear", (unsigned long long)key,
         (unsigned long long)number);
}

gh_status gh_device_host_alloc(struct gh_device *dev, uint64_t bytes,
                               void **address_p, gh_error *error)
{
    (void)dev;
    return make("host_alloc", bytes, address_p, error);
}

void gh_device_host_free(struct gh_device *dev, void *address)
{
    (void)dev;
    drop(address);
}

gh_status gh_device_alloc(struct gh_device *dev, uint64_t bytes,
                          void **address_p, gh_error *error)
{
    (void)dev;
    return make("alloc", bytes, address_p, error);
}

static uint32_t limit_s, limit_at_free; /* of the device's waits */

void gh_device_free(struct gh_device *dev, void *address)
{
    (void)dev;
    limit_at_free = limit_s;
    drop(address);
}

gh_status gh_device_stream_create(struct gh_device *dev, bool blocking,
                                  void **stream_p, gh_error *error)
{
    (void)dev;
    (void)blocking;
    return make("stream", 1, stream_p, error);
}

void gh_device_stream_destroy(struct gh_device *dev, void *stream)
{
    (void)dev;
    drop(stream);
}

gh_status gh_device_event_create(struct gh_device *dev, void **event_p,
                                 gh_error *error)
{
    static int odd;

    (void)dev;
    return make(odd++ % 2 == 0 ? "before" : "done", 1, event_p, error);
}

void gh_device_event_destroy(struct gh_device *dev, void *event)
{
    (void)dev;
    drop(event);
}

gh_status gh_device_event_record(struct gh_device *dev, void *event,
                                 void *stream, gh_error *error)
{
    (void)dev;
    (void)event;
    (void)stream;
    note("record ");
    return fails_in("record", error);
}

gh_status gh_device_event_wait(struct gh_device *dev, void *stream, void *event,
                               gh_error *error)
{
    (void)dev;
    (void)stream;
    (void)event;
    note("wait ");
    return fails_in("wait", error);
}

bool gh_device_event_has_ended(struct gh_device *dev, void *event)
{
    (void)dev;
    (void)event;
    return ends;
}

gh_status gh_device_copy_out(struct gh_device *dev, void *host,
                             const void *device, uint64_t bytes, void *stream,
                             gh_error *error)
{
    (void)dev;
    (void)stream;
    memcpy(host, device, bytes);
    return fails_in("copy_out", error);
}

gh_status gh_device_copy_back(struct gh_device *dev, void *device,
                              const void *host, uint64_t bytes, void *stream,
                              gh_error *error)
{
    (void)dev;
    (void)stream;
    memcpy(device, host, bytes);
    return fails_in("copy_back", error);
}

uint32_t gh_device_limit_waits(struct gh_device *dev, uint32_t seconds)
{
    const uint32_t before = limit_s;

    (void)dev;
    limit_s = seconds;
    return before;
}

/* ---- jobs ---------------------------------------------------------------- */

/* A call of NCCL that does not return until a test lets it. */
static struct kept {
    gh_job_fn *run;
    unsigned char arg[64];
} kept[4];
static uint32_t n_kept, job_s;
static bool keeps;

struct gh_job *gh_job_begin(struct gh_device *dev, uint32_t seconds,
                            gh_job_fn *run, const void *arg, size_t bytes)
{
    job_s = seconds;
    if (!keeps) {
        run(dev, arg);
        return NULL;
    }
    kept[n_kept].run = run;
    memcpy(kept[n_kept].arg, arg, bytes);
    return (struct gh_job *)(void *)&kept[n_kept++];
}

bool gh_job_end(struct gh_job *job)
{
    return job == NULL;
}

static void run_kept(void)
{
    while (n_kept > 0) {
        n_kept--;
        kept[n_kept].run(DEVICE, kept[n_kept].arg);
    }
}

static const struct gh_log the_log = { GH_LOG_WARN, hear_line, NULL };

/* ---- NCCL ---------------------------------------------------------------- */

static int has_n, has_rank;
static ncclResult_t async[3], finalizes, answers; /* of a communicator; calls */
static uint64_t settles_ns;                       /* in progress until then */
static bool stale, threads; /* other ranks: of an old gather, of the process */
static uint64_t ids[N];     /* of the other ranks */
static bool blocks, masked, is_gone, split_fails;
static sem_t blocked, goes_on;

static const char *name_of(ncclComm_t comm)
{
    return comm == HOST ? "host" : comm == OWN ? "own" : "none";
}

static ncclResult_t get_version(int *version_p)
{
    *version_p = 22000;
    return ncclSuccess;
}

static ncclResult_t count(const ncclComm_t comm, int *n_p)
{
    (void)comm;
    *n_p = has_n;
    return answers;
}

static ncclResult_t user_rank(const ncclComm_t comm, int *rank_p)
{
    (void)comm;
    *rank_p = has_rank;
    return ncclSuccess;
}

static ncclResult_t split(ncclComm_t comm, int color, int key,
                          ncclComm_t *comm_p, ncclConfig_t *config)
{
    sigset_t set;

    (void)comm;
    pthread_sigmask(SIG_SETMASK, NULL, &set);
    masked = sigismember(&set, SIGUSR1) == 1 &&
             sigismember(&set, SIGTERM) == 1 && sigismember(&set, SIGALRM) == 1;
    note("split%d.%d.%d ", color, key, config->blocking);
    if (split_fails) {
        return ncclSystemError;
    }
    if (blocks) {
        sem_post(&blocked);
        sem_wait(&goes_on);
    }
    __atomic_store_n(comm_p, OWN, __ATOMIC_RELEASE);
    return answers;
}

static ncclResult_t async_error(ncclComm_t comm, ncclResult_t *result_p)
{
    if (comm == HOST && is_gone) {
        return ncclInvalidArgument;
    }
    *result_p = async[(uintptr_t)comm];
    if (*result_p == ncclInProgress && now_ns >= settles_ns) {
        *result_p = ncclSuccess;
    }
    return ncclSuccess;
}

static ncclResult_t all_gather(const void *send, void *recv, size_t n,
                               ncclDataType_t type, ncclComm_t comm,
                               CUstream stream)
{
    const uint64_t *mine = send;
    uint64_t *all = recv;

    (void)type;
    (void)stream;
    note("gather%d@%s ", (int)n, name_of(comm));
    for (uint64_t i = 0; i < N; i++) {
        memcpy(all + i * n, mine, n * sizeof(*mine));
        if (i != RANK) {
            all[i * n] -= stale;
            all[i * n + 1] += threads ? 0 : i + 1;
            all[i * n + 2] = ids[i];
            for (size_t k = 3; k < n; k++) {
                all[i * n + k] = mine[k] + 100 * i;
            }
        }
    }
    return answers;
}

static ncclResult_t group_ends;

static ncclResult_t group_start(void)
{
    return ncclSuccess;
}

static ncclResult_t group_end(void)
{
    return group_ends;
}

static ncclResult_t sends(const void *send, size_t n, ncclDataType_t type,
                          int peer, ncclComm_t comm, CUstream stream)
{
    (void)send;
    (void)type;
    (void)comm;
    (void)stream;
    note("send%d:%d ", peer, (int)n);
    return answers;
}

static ncclResult_t receives(void *recv, size_t n, ncclDataType_t type,
                             int peer, ncclComm_t comm, CUstream stream)
{
    (void)recv;
    (void)type;
    (void)comm;
    (void)stream;
    note("recv%d:%d ", peer, (int)n);
    return ncclSuccess;
}

static ncclResult_t finalize(ncclComm_t comm)
{
    note("finalize:%s ", name_of(comm));
    return finalizes;
}

static ncclResult_t destroy(ncclComm_t comm)
{
    note("destroy:%s ", name_of(comm));
    return ncclSuccess;
}

static ncclResult_t give_up(ncclComm_t comm)
{
    note("abort:%s ", name_of(comm));
    return ncclSuccess;
}

static const char *error_string(ncclResult_t result)
{
    return result == ncclRemoteError ? "a remote error" : "an error";
}

static const char *last_error(ncclComm_t comm)
{
    (void)comm;
    return "a rank died\nand more";
}

int nccl_load(const char *path, struct nccl *nccl, char *text,
              size_t text_bytes)
{
    if (strcmp(path, "none") == 0) {
        snprintf(text, text_bytes, "nccl: there is none");
        return -1;
    }
    *nccl = (struct nccl){
        .version = 22000,
        .ncclGetVersion = get_version,
        .ncclGetErrorString = error_string,
        .ncclGetLastError = last_error,
        .ncclCommCount = count,
        .ncclCommUserRank = user_rank,
        .ncclCommSplit = split,
        .ncclCommGetAsyncError = async_error,
        .ncclAllGather = all_gather,
        .ncclGroupStart = group_start,
        .ncclGroupEnd = group_end,
        .ncclSend = sends,
        .ncclRecv = receives,
        .ncclCommFinalize = finalize,
        .ncclCommDestroy = destroy,
        .ncclCommAbort = give_up,
    };
    return 0;
}

/* ---- the host's service -------------------------------------------------- */

static gh_status gathers;
static uint32_t n_gathers, n_gates; /* that were closed */
static struct gh_gate gate;

static uint64_t all_ids[2]; /* of the first rank */

static gh_status host_gather(void *user, uint32_t bank, const uint64_t *mine,
                             uint64_t *all, uint32_t n)
{
    (void)user;
    n_gathers++;
    n_gates += gate.open == NULL;
    note("ask%u:%u ", bank, n);
    for (uint64_t i = 0; i < N; i++) {
        memcpy(all + i * n, mine, n * sizeof(*mine));
        if (i != RANK) {
            all[i * n] += n_gathers > 1 ? 100 * i : threads ? 0 : i + 1;
        }
    }
    if (n_gathers == 1) {
        memcpy(all_ids, all, sizeof(all_ids));
    }
    return gathers;
}

static void host_abort(void *user, uint32_t bank)
{
    (void)user;
    n_gates += gate.open == NULL;
    note("host%u ", bank);
}

/* ---- ranks --------------------------------------------------------------- */

static gh_ranks ranks_of(void)
{
    return (gh_ranks){ .struct_size = sizeof(gh_ranks),
                       .bank = 4,
                       .rank = RANK,
                       .size = N,
                       .nccl = "fake",
                       .comm = HOST };
}

static void reset(void)
{
    player = pthread_self();
    now_ns = 5 * SECOND;
    n_naps = 0;
    on_nap = NULL;
    starts = stands = false;
    n_objects = 0;
    ends = true;
    fails = "";
    has_n = N;
    has_rank = RANK;
    memset(async, 0, sizeof(async));
    finalizes = answers = ncclSuccess;
    settles_ns = UINT64_MAX;
    stale = threads = blocks = masked = is_gone = false;
    memset(ids, 0, sizeof(ids));
    gathers = GH_OK;
    n_gathers = n_gates = 0;
    keeps = false;
    n_kept = job_s = limit_s = limit_at_free = 0;
    gate.open = DEVICE;
    forget_all();
}

static gh_status open_ranks(const gh_ranks *ranks, struct gh_comm **comm_p)
{
    return gh_comm_open(DEVICE, ranks, NULL, SECONDS, &gate, &the_log, comm_p,
                        &err);
}

static struct gh_comm *begin(void)
{
    const gh_ranks ranks = ranks_of();
    struct gh_comm *comm = NULL;

    reset();
    is_status(open_ranks(&ranks, &comm), GH_OK, &err, "ranks begin");
    forget();
    return comm;
}

static void is_over(const char *name)
{
    is_int(n_objects, 0, "%s: nothing of the device is left", name);
}

static void end(struct gh_comm *comm, const char *name)
{
    gh_comm_close(comm, NULL);
    is_over(name);
}

static gh_status gather(struct gh_comm *comm, const uint64_t **all_p)
{
    static const uint64_t mine[] = { 7, 8 };

    return gh_comm_gather(comm, mine, 2, all_p, &err);
}

/* ---- beginnings ---------------------------------------------------------- */

static void test_who_is_who(void)
{
    static const struct {
        int n, rank;
        bool good;
    } cases[] = {
        { N, RANK, true },      { N, RANK + 1, false }, { N, RANK - 1, false },
        { N - 1, RANK, false }, { N + 1, RANK, false }, { RANK, N, false },
    };
    const gh_ranks ranks = ranks_of();

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct gh_comm *comm = NULL;

        reset();
        has_n = cases[i].n;
        has_rank = cases[i].rank;
        is_status(open_ranks(&ranks, &comm),
                  cases[i].good ? GH_OK : GH_ERR_INVALID, &err,
                  "a communicator of rank %d of %d", has_rank, has_n);
        ok((comm != NULL) == cases[i].good && was("split") == cases[i].good,
           "is split where it is the one");
        end(comm, "a communicator");
    }
    reset();
    answers = ncclRemoteError;
    is_status(open_ranks(&ranks, &(struct gh_comm *){ NULL }), GH_ERR_RANKS,
              &err, "one that does not answer is none");
    is_str(err.text, "ncclCommCount: 6 a remote error: a rank died",
           "and NCCL's first line is said");
}

static void test_split(void)
{
    const gh_ranks ranks = ranks_of();
    struct gh_comm *comm = NULL;
    sigset_t set;

    reset();
    starts = stands = true;
    is_status(open_ranks(&ranks, &comm), GH_OK, &err, "a split");
    starts = stands = false;
    ok(was("split0.1.0 "), "has one color, keeps the order and does not block");
    ok(masked, "no signal of the host's is handled on its thread");
    pthread_sigmask(SIG_SETMASK, NULL, &set);
    ok(sigismember(&set, SIGUSR1) == 0, "and the caller's are as they were");
    is_int(gh_comm_rank(comm), RANK, "the rank is known");
    is_int(gh_comm_size(comm), N, "and the number of ranks");
    forget();
    gh_comm_close(comm, NULL);
    is_str(calls, "finalize:own destroy:own ",
           "at its end it is finalized and destroyed");
    is_over("a split");
}

/* The ranks do not come: in time it ends, and what was begun is aborted. */
static void test_split_too_late(void)
{
    const gh_ranks ranks = ranks_of();
    struct gh_comm *comm = NULL;

    for (int which = 1; which <= 2; which++) {
        reset();
        async[which] = ncclInProgress;
        is_status(open_ranks(&ranks, &comm), GH_ERR_RANKS, &err,
                  "a split that does not end");
        is_str(err.text,
               "the other ranks of bank 4 have not come in 2 s "
               "(GRAPHHOOKS_TIMEOUT)",
               "is given up");
        ok(now_ns >= 7 * SECOND && now_ns < 7 * SECOND + SECOND / 100,
           "in time");
        ok(was("abort:own") && !was("destroy") && !was("finalize"),
           "and is aborted: %s", calls);
        is_over("a split that is too late");
    }
    reset();
    async[2] = ncclRemoteError;
    is_status(open_ranks(&ranks, &comm), GH_ERR_RANKS, &err,
              "a split that fails");
    ok(was("abort:own") && !was("destroy"), "is aborted too");
    is_over("a split that fails");
    reset();
    async[2] = ncclInProgress;
    settles_ns = now_ns + SECOND;
    is_status(open_ranks(&ranks, &comm), GH_OK, &err, "one that ends in time");
    end(comm, "a split in time");
}

/* The host's communicator blocks: the call stays behind, in its thread. */
static void test_split_that_blocks(void)
{
    const gh_ranks ranks = ranks_of();
    struct gh_comm *comm = NULL;

    reset();
    blocks = starts = true;
    sem_init(&blocked, 0, 0);
    sem_init(&goes_on, 0, 0);
    is_status(open_ranks(&ranks, &comm), GH_ERR_RANKS, &err,
              "a call that blocks is given up");
    ok(!was("abort"), "nothing is aborted that is not there");
    sem_wait(&blocked);
    sem_post(&goes_on);
    for (int i = 0; i < 5000 && !was("abort:own"); i++) {
        rest();
    }
    ok(was("abort:own"), "what comes of it later is");
    is_over("a call that blocks");
}

static int tasks(void)
{
    DIR *dir = opendir("/proc/self/task");
    int n = 0;

    while (dir != NULL && readdir(dir) != NULL) {
        n++;
    }
    if (dir != NULL) {
        closedir(dir);
    }
    return n;
}

/* NCCL writes no communicator then: nobody waits for one. */
static void test_split_that_fails_at_once(void)
{
    const gh_ranks ranks = ranks_of();
    struct gh_comm *comm = NULL;
    int before;

    reset();
    for (int i = 0; i < 5000 && tasks() > 3; i++) { /* and "." and ".." */
        rest();
    }
    before = tasks();
    split_fails = starts = stands = true;
    is_status(open_ranks(&ranks, &comm), GH_ERR_RANKS, &err,
              "a split that NCCL refuses");
    split_fails = stands = false;
    for (int i = 0; i < 5000 && tasks() > before; i++) {
        rest();
    }
    is_int(tasks(), before, "keeps no thread");
    is_over("a split that NCCL refuses");
}

static void test_objects_that_fail(void)
{
    static const char *const what[] = { "host_alloc", "alloc", "stream",
                                        "before", "done" };
    const gh_ranks ranks = ranks_of();
    struct gh_comm *comm = NULL;

    for (size_t i = 0; i < sizeof(what) / sizeof(what[0]); i++) {
        reset();
        fails = what[i];
        is_status(open_ranks(&ranks, &comm), GH_ERR_DEVICE, &err, "%s may fail",
                  what[i]);
        ok(!was("split"), "before ranks are waited for");
        is_over(what[i]);
    }
    reset();
    comm = NULL;
    is_status(open_ranks(&(gh_ranks){ .size = N, .nccl = "none", .comm = HOST },
                         &comm),
              GH_ERR_NOT_FOUND, &err, "there may be no NCCL");
    is_str(err.text,
           "nccl: there is none; name the NCCL that the host has loaded in "
           "GRAPHHOOKS_NCCL",
           "which is said");
}

/* ---- gathers ------------------------------------------------------------- */

static void test_gather(void)
{
    struct gh_comm *comm = begin();
    const uint64_t *all = NULL;

    for (int i = 0; i < 3; i++) {
        forget();
        is_status(gather(comm, &all), GH_OK, &err, "words are gathered");
        is_str(calls, "gather5@own record ", "with a number and an id");
        ok(all[0] == 7 && all[1] == 8 && all[2] == 7 && all[3] == 8 &&
               all[4] == 207 && all[5] == 208,
           "those of each rank in its place");
    }
    ok(!gh_comm_has_threads(comm), "no rank is in this process");
    forget();
    is_status(gh_comm_follow(comm, HOST, &err), GH_OK, &err,
              "a gather follows a stream");
    is_str(calls, "record wait ", "by an event");
    end(comm, "gathers");
}

static void test_gather_that_fails(void)
{
    static const struct {
        const char *what, *says;
        ncclResult_t issued, async;
        bool ends, stale;
        const char *fails;
    } cases[] = {
        { "ranks that do not come", "have not come in 2 s", ncclSuccess,
          ncclSuccess, false, false, "" },
        { "a gather that NCCL does not issue", "have not come in 2 s",
          ncclSuccess, ncclInProgress, true, false, "" },
        { "a gather that NCCL refuses", "ncclAllGather: 6", ncclRemoteError,
          ncclSuccess, true, false, "" },
        { "a communicator that fails", "the library's communicator: 6",
          ncclSuccess, ncclRemoteError, true, false, "" },
        { "words of an earlier gather", "rank 0 of bank 4 was not heard",
          ncclSuccess, ncclSuccess, true, true, "" },
        { "a copy that fails", "copy_back failed", ncclSuccess, ncclSuccess,
          true, false, "copy_back" },
        { "a copy out that fails", "copy_out failed", ncclSuccess, ncclSuccess,
          false, false, "copy_out" },
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct gh_comm *comm = begin();
        const uint64_t *all = NULL;

        answers = cases[i].issued;
        async[2] = cases[i].async;
        ends = cases[i].ends;
        stale = cases[i].stale;
        fails = cases[i].fails;
        ok(gather(comm, &all) < 0, "%s fail", cases[i].what);
        ok(strstr(err.text, cases[i].says) != NULL, "with a sentence: %s",
           err.text);
        ok(all == NULL, "and without words");
        ok(now_ns <= 7 * SECOND + SECOND / 100, "in time");
        forget();
        gh_comm_close(comm, NULL);
        is_str(calls, "abort:own ",
               "an operation that may not have ended is not waited for");
        is_over(cases[i].what);
    }
}

/* Another rank has completed the gather and then aborted. */
static uint64_t ends_at;

static void fail_then_end(void)
{
    async[2] = ncclRemoteError;
    ends = now_ns >= ends_at;
}

static void test_grace(void)
{
    static const struct {
        uint64_t ms;
        bool heard;
    } cases[] = { { 1, true }, { 40, true }, { 100, false } };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct gh_comm *comm = begin();
        const uint64_t *all = NULL;

        ends = false;
        ends_at = now_ns + cases[i].ms * 1000000;
        on_nap = fail_then_end;
        is_status(gather(comm, &all), cases[i].heard ? GH_OK : GH_ERR_RANKS,
                  &err, "words that come %d ms after a failure",
                  (int)cases[i].ms);
        ok(cases[i].heard == (all != NULL && all[4] == 207),
           "are heard in the grace");
        ok(now_ns < 5 * SECOND + SECOND / 5, "which is short");
        ok(cases[i].heard ||
               strstr(err.text, "a communicator has failed") != NULL,
           "and after it the failure is said: %s", err.text);
        on_nap = NULL;
        forget();
        gh_comm_close(comm, NULL);
        ok(was(cases[i].heard ? "finalize:own" : "abort:own"),
           "and the end fits: %s", calls);
    }
}

/* An aborted gather ends too, with words of the one before. */
static void test_words_of_before(void)
{
    struct gh_comm *comm = begin();
    const uint64_t *all = NULL;

    ends = false;
    ends_at = now_ns + 1000000;
    stale = true;
    on_nap = fail_then_end;
    is_status(gather(comm, &all), GH_ERR_RANKS, &err,
              "words of an earlier gather after a failure are not taken");
    ok(all == NULL && strstr(err.text, "a communicator has failed") != NULL,
       "and the failure is said: %s", err.text);
    on_nap = NULL;
    end(comm, "words of before");
}

/* ---- ranks of one process ------------------------------------------------ */

static struct gh_thread_barrier *others; /* what rank 0 of the process has */
static uint64_t comes_to;      /* it comes to that gather, in a nap */
static uint64_t comes_at;
static uint64_t next_id = 1000;

static void rank_0_comes(void)
{
    if (now_ns >= comes_at && others != NULL) {
        gh_thread_barrier_arrive(others, 0, comes_to);
    }
}

/* After the first gather, which tells that ranks 0 and 2 are threads too. */
static struct gh_comm *begin_with_threads(void)
{
    struct gh_comm *comm = begin();
    const uint64_t *all;
    struct gh_thread_id id = gh_thread_id();
    const uint64_t found[] = { id.process, ++next_id,  id.process,
                               0,          id.process, 0 };

    threads = true;
    ids[0] = next_id;
    ids[2] = 0;
    is_status(gather(comm, &all), GH_OK, &err, "the first gather");
    ok(gh_comm_has_threads(comm), "finds the ranks of this process");
    others = gh_thread_barrier_join(found, 2, 0, N);
    gh_thread_barrier_leave(gh_thread_barrier_join(found, 2, 2, N), 2);
    on_nap = rank_0_comes;
    comes_to = 1;
    comes_at = UINT64_MAX;
    forget();
    return comm;
}

static void test_threads(void)
{
    struct gh_comm *comm = begin_with_threads();
    const uint64_t *all = NULL;

    comes_at = now_ns + SECOND;
    is_status(gather(comm, &all), GH_OK, &err, "the ranks of a process meet");
    ok(now_ns >= 6 * SECOND, "and wait for each other before NCCL");
    comes_to = 2;
    is_status(gather(comm, &all), GH_OK, &err, "each time");
    comes_at = UINT64_MAX;
    forget();
    now_ns = 10 * SECOND;
    is_status(gather(comm, &all), GH_ERR_RANKS, &err,
              "one that does not come is given up");
    ok(strstr(err.text, "have not come in 2 s") != NULL, "which is said: %s",
       err.text);
    ok(now_ns >= 12 * SECOND && now_ns < 12 * SECOND + SECOND / 100, "in time");
    ok(!was("gather"), "and NCCL is not asked");
    gh_thread_barrier_leave(others, 0);
    others = NULL;
    end(comm, "threads");
}

static void test_threads_that_fail(void)
{
    struct gh_comm *comm = begin_with_threads();
    const uint64_t *all = NULL;

    async[1] = ncclRemoteError;
    is_status(gather(comm, &all), GH_ERR_RANKS, &err,
              "a communicator that fails ends the wait");
    ok(now_ns < 5 * SECOND + SECOND / 10, "at once");
    gh_thread_barrier_leave(others, 0);
    others = NULL;
    end(comm, "threads that fail");
}

static bool was_seen;

/* Rank 0 comes for a moment, so that rank 1 alone is looked at. */
static void look_at_the_barrier(void)
{
    if (others != NULL && !was_seen) {
        gh_thread_barrier_arrive(others, 0, 1);
        was_seen = gh_thread_barrier_all_arrived(others, 1) &&
                   !gh_thread_barrier_all_arrived(others, 2);
        gh_thread_barrier_arrive(others, 0, 0);
    }
}

/* None goes on before all have freed what they had together. */
static void test_parting(void)
{
    struct gh_comm_parting parting = { 0 };
    struct gh_comm *comm = begin_with_threads();
    const uint64_t *all = NULL;

    comes_at = 0;
    is_status(gather(comm, &all), GH_OK, &err, "ranks meet once more");
    comes_at = now_ns + SECOND;
    comes_to = 2;
    gh_comm_close(comm, &parting);
    ok(parting.barrier != NULL && parting.rank == RANK && parting.number == 2 &&
           parting.seconds == SECONDS,
       "they part at their barrier, as if for one more gather");
    is_over("ranks that part");
    gh_comm_part(&parting);
    ok(now_ns >= 6 * SECOND, "and wait there for each other");
    gh_thread_barrier_arrive(others, 0, 9);
    ok(gh_thread_barrier_all_arrived(others, 9),
       "who has parted is not waited for");
    gh_thread_barrier_leave(others, 0);
    others = NULL;

    comm = begin_with_threads();
    parting = (struct gh_comm_parting){ 0 };
    gh_comm_close(comm, &parting);
    now_ns = 10 * SECOND;
    on_nap = look_at_the_barrier;
    gh_comm_part(&parting);
    on_nap = NULL;
    ok(was_seen, "others see that a rank has come to the parting");
    ok(now_ns >= 12 * SECOND && now_ns < 12 * SECOND + SECOND / 100,
       "but no longer than the time");
    gh_thread_barrier_leave(others, 0);
    others = NULL;

    comm = begin_with_threads();
    parting = (struct gh_comm_parting){ 0 };
    is_status(gather(comm, &all), GH_ERR_RANKS, &err, "a rank is missed");
    gh_comm_close(comm, &parting);
    ok(parting.barrier == NULL, "after that nobody waits at a parting");
    gh_comm_part(&parting);
    gh_thread_barrier_arrive(others, 0, 9);
    ok(gh_thread_barrier_all_arrived(others, 9),
       "and the others do not either");
    gh_thread_barrier_leave(others, 0);
    others = NULL;
}

/* ---- aborts -------------------------------------------------------------- */

static void test_abort(void)
{
    static const struct {
        const char *what;
        bool hosts, has_abort, gone;
        const char *aborts; /* sorted */
        bool host_is;
    } cases[] = {
        { "an abort of both", true, false, false, "abort:own ", true },
        { "where another bank aborts the host's", false, false, false,
          "abort:own ", false },
        { "where the host aborts its own", true, true, false, "abort:own ",
          false },
        { "where the host's is gone", true, false, true, "abort:own ", false },
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        gh_ranks ranks = ranks_of();
        struct gh_comm *comm = NULL;
        const char *at;

        reset();
        ranks.abort = cases[i].has_abort ? host_abort : NULL;
        open_ranks(&ranks, &comm);
        is_gone = cases[i].gone;
        is_status(gh_comm_look(comm, &err),
                  cases[i].gone ? GH_ERR_RANKS : GH_OK, &err, "%s: a look",
                  cases[i].what);
        ok(!cases[i].gone ||
               strstr(err.text, "was destroyed while it is in use") != NULL,
           "%s: says what is wrong", cases[i].what);
        async[1] = async[2] = cases[i].gone ? ncclSuccess : ncclInProgress;
        is_status(gh_comm_look(comm, &err),
                  cases[i].gone ? GH_ERR_RANKS : GH_OK, &err,
                  "%s: what is at work has not failed", cases[i].what);
        forget();
        gh_comm_abort_begin(comm, cases[i].hosts);
        gh_comm_abort_end(comm);
        ok(was("abort:own "), "%s: the library's is aborted", cases[i].what);
        ok(was("abort:host ") == cases[i].host_is, "%s: the host's is, or not",
           cases[i].what);
        at = strstr(calls, "host4 ");
        ok((at != NULL) == cases[i].has_abort &&
               (at == NULL || strstr(at + 1, "host4 ") == NULL),
           "%s: the host is told once, if it wants to be: %s", cases[i].what,
           calls);
        forget();
        gh_comm_abort_begin(comm, cases[i].hosts);
        gh_comm_abort_end(comm);
        is_str(calls, "", "%s: an abort is once", cases[i].what);
        is_status(gh_comm_look(comm, &err), GH_OK, &err,
                  "%s: and nothing is looked at afterwards", cases[i].what);
        gh_comm_close(comm, NULL);
        is_str(calls, "", "%s: nor aborted at the end", cases[i].what);
        is_over(cases[i].what);
    }
}

/* A graph of the host's that is alive keeps NCCL: it is waited for as long as
 * for a rank, and what is left behind is said. */
static void test_abort_that_stays(void)
{
    struct gh_comm *comm = begin();

    keeps = true;
    gh_comm_abort_begin(comm, true);
    gh_comm_abort_end(comm);
    is_int(n_kept, 2, "an abort may stay in NCCL");
    is_int(job_s, SECONDS, "and is waited for in time");
    ok(strstr(said, "NCCL has not ended the library's communicator of bank 4 "
                    "in 2 s (GRAPHHOOKS_TIMEOUT): ") != NULL &&
           strstr(said, "NCCL has not ended the host's communicator of bank 4 "
                        "in 2 s (GRAPHHOOKS_TIMEOUT): destroy the graphs of "
                        "the host's that hold its operations") != NULL,
       "what is left behind is said: %s", said);
    end(comm, "an abort that stays");
    is_str(calls, "", "nothing has ended yet");
    run_kept();
    is_str(calls, "abort:host abort:own ", "and it goes on when it can");
}

/* Memory is freed behind what is on the device: a gather that not all ranks
 * have joined, or what another stream waits for. */
static void test_end_that_stays(void)
{
    for (int broken = 0; broken < 2; broken++) {
        struct gh_comm *comm = begin();
        const uint64_t *all = NULL;

        if (broken) {
            async[2] = ncclRemoteError;
            gather(comm, &all);
        }
        forget();
        keeps = true;
        limit_s = 7;
        limit_at_free = UINT32_MAX;
        end(comm, "an end that stays");
        is_int(n_kept, 1, "the end of a communicator may stay in NCCL");
        ok(strstr(said, "NCCL has not ended the library's communicator of "
                        "bank 4 in 2 s") != NULL,
           "which is said: %s", said);
        is_int(limit_at_free, SECONDS, "what is freed is freed in time");
        is_int(limit_s, 7, "and other waits keep their limit");
        run_kept();
        ok(was(broken ? "abort:own " : "destroy:own "), "it ends when it can");
    }
}

static void test_abort_of_threads(void)
{
    struct gh_comm *comm = begin_with_threads();

    gh_thread_barrier_arrive(others, 0, 1);
    ok(!gh_thread_barrier_all_arrived(others, 1),
       "a rank of the process is waited for");
    gh_comm_abort_begin(comm, true);
    ok(gh_thread_barrier_all_arrived(others, 1), "but not once it aborts");
    ok(!gh_comm_has_threads(comm), "and it has no barrier any more");
    gh_comm_abort_end(comm);
    gh_comm_close(comm, NULL);
    gh_thread_barrier_leave(others, 0);
    others = NULL;
}

static void test_shared(void)
{
    struct gh_comm *a = begin(), *b = NULL;
    gh_ranks ranks = ranks_of();

    open_ranks(&ranks, &b);
    ok(gh_comm_is_shared(a, b), "two banks have one communicator");
    gh_comm_close(b, NULL);
    ranks.comm = OWN;
    open_ranks(&ranks, &b);
    ok(!gh_comm_is_shared(a, b), "or one each");
    gh_comm_close(b, NULL);
    end(a, "two banks");
    ranks.comm = NULL;
    ranks.gather = host_gather;
    open_ranks(&ranks, &a);
    open_ranks(&ranks, &b);
    ok(!gh_comm_is_shared(a, b), "a host that gathers has none");
    gh_comm_close(b, NULL);
    end(a, "two banks of a host's gather");
}

/* ---- by the host --------------------------------------------------------- */

static void test_by_the_host(void)
{
    gh_ranks ranks = ranks_of();
    struct gh_comm *comm = NULL;
    const uint64_t *all = NULL;
    unsigned long long number;
    char wanted[120];

    reset();
    ranks.comm = NULL;
    ranks.gather = host_gather;
    ranks.abort = host_abort;
    is_status(open_ranks(&ranks, &comm), GH_OK, &err, "a host gathers itself");
    is_status(gather(comm, &all), GH_OK, &err, "words");
    number = all_ids[1];
    snprintf(wanted, sizeof(wanted), "ask4:2 say%llu.1 ask4:2 hear%llu.1 ",
             number, number);
    is_str(calls, wanted, "ids go first, and the device is told of the rest");
    ok(all[0] == 7 && all[2] == 7 && all[4] == 207 && all[5] == 8,
       "and words are in their places");
    forget();
    is_status(gather(comm, &all), GH_OK, &err, "words again");
    snprintf(wanted, sizeof(wanted), "say%llu.2 ask4:2 hear%llu.2 ", number,
             number);
    is_str(calls, wanted, "ids go once");
    gathers = GH_ERR_DEVICE;
    is_status(gather(comm, &all), GH_ERR_RANKS, &err, "a gather may fail");
    is_str(err.text, "the host's gather: GH_ERR_DEVICE", "which is said");
    forget();
    gh_comm_abort_begin(comm, true);
    gh_comm_abort_end(comm);
    gh_comm_abort_end(comm);
    is_str(calls, "host4 ", "the host aborts once");
    is_int(n_gates, n_gathers + 1, "hooks are closed while it is called");
    ok(gate.open == DEVICE, "and open afterwards");
    end(comm, "a host's gather");

    reset();
    ranks.abort = NULL;
    gathers = GH_ERR_DEVICE;
    open_ranks(&ranks, &comm);
    is_status(gather(comm, &all), GH_ERR_RANKS, &err,
              "ids that fail are a failure");
    is_int(n_gathers, 1, "and no words follow");
    end(comm, "ids");

    reset();
    threads = true;
    open_ranks(&ranks, &comm);
    gather(comm, &all);
    ok(gh_comm_has_threads(comm), "a host's ranks may be threads");
    end(comm, "threads of a host");
}

/* ---- NCCL alone ---------------------------------------------------------- */

static void test_exchange(void)
{
    const struct gh_nccl_part parts[N + 1] = { { HOST, HOST, 10, 20 },
                                               { HOST, HOST, 30, 30 },
                                               { HOST, HOST, 0, 5 },
                                               { HOST, HOST, 7, 0 } };
    struct gh_nccl *nccl = NULL;

    reset();
    gh_nccl_open("fake", &nccl, &err);
    is_status(
        gh_nccl_exchange(nccl, OWN, parts, RANK, N + 1, NULL, SECONDS, &err),
        GH_OK, &err, "parts are exchanged");
    is_str(calls, "recv2:5 send3:7 send0:10 recv0:20 ",
           "with each other rank, what there is");
    async[2] = ncclInProgress;
    settles_ns = now_ns + SECOND;
    is_status(
        gh_nccl_exchange(nccl, OWN, parts, RANK, N + 1, NULL, SECONDS, &err),
        GH_OK, &err, "a communicator may not block");
    ok(now_ns >= 6 * SECOND && now_ns < 6 * SECOND + SECOND / 100,
       "then it is waited for until it has issued the exchange");
    settles_ns = UINT64_MAX;
    is_status(
        gh_nccl_exchange(nccl, OWN, parts, RANK, N + 1, NULL, SECONDS, &err),
        GH_ERR_RANKS, &err, "for so long");
    is_str(err.text,
           "NCCL has not issued an exchange in 2 s "
           "(GRAPHHOOKS_TIMEOUT)",
           "and a sentence says so");
    ok(now_ns < 8 * SECOND + SECOND / 50, "in time");
    async[2] = ncclRemoteError;
    is_status(
        gh_nccl_exchange(nccl, OWN, parts, RANK, N + 1, NULL, SECONDS, &err),
        GH_ERR_RANKS, &err, "or until it fails");
    async[2] = ncclSuccess;
    answers = ncclRemoteError;
    forget();
    is_status(
        gh_nccl_exchange(nccl, OWN, parts, RANK, N + 1, NULL, SECONDS, &err),
        GH_ERR_RANKS, &err, "a part may be refused");
    ok(strncmp(err.text, "ncclSend: 6", 11) == 0, "which is said: %s",
       err.text);
    group_ends = ncclInternalError;
    is_status(
        gh_nccl_exchange(nccl, OWN, parts, RANK, N + 1, NULL, SECONDS, &err),
        GH_ERR_RANKS, &err, "and its group fails then");
    ok(strncmp(err.text, "ncclSend: 6", 11) == 0,
       "but the first failure is said: %s", err.text);
    answers = ncclSuccess;
    is_status(
        gh_nccl_exchange(nccl, OWN, parts, RANK, N + 1, NULL, SECONDS, &err),
        GH_ERR_RANKS, &err, "a group may fail alone");
    ok(strncmp(err.text, "ncclGroupEnd: 3", 15) == 0, "and is said: %s",
       err.text);
    group_ends = ncclSuccess;
    gh_nccl_close(nccl);
}

static void test_destroy(void)
{
    static const struct {
        const char *what;
        ncclResult_t finalizes, async;
        uint64_t takes_s;
        const char *calls;
        uint64_t within_s;
    } cases[] = {
        { "one that ends", ncclSuccess, ncclSuccess, 0,
          "finalize:own destroy:own ", 0 },
        { "one that ends later", ncclInProgress, ncclInProgress, 1,
          "finalize:own destroy:own ", 1 },
        { "one that does not end", ncclInProgress, ncclInProgress, 99,
          "finalize:own abort:own ", 2 },
        { "one that fails", ncclInProgress, ncclRemoteError, 0,
          "finalize:own abort:own ", 0 },
        { "one that is refused", ncclRemoteError, ncclSuccess, 0,
          "finalize:own abort:own ", 0 },
    };
    struct gh_nccl *nccl = NULL;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        reset();
        host_memory_begin();
        gh_nccl_open("fake", &nccl, &err);
        finalizes = cases[i].finalizes;
        async[2] = cases[i].async;
        settles_ns = now_ns + cases[i].takes_s * SECOND;
        ok(gh_nccl_destroy(nccl, DEVICE, OWN, SECONDS), "%s: is over",
           cases[i].what);
        is_str(calls, cases[i].calls, "%s", cases[i].what);
        ok(now_ns >= (5 + cases[i].within_s) * SECOND &&
               now_ns < (5 + cases[i].within_s) * SECOND + SECOND / 50,
           "%s: in its time", cases[i].what);
        gh_nccl_close(nccl);
        is_int(host_memory_left(), 0, "%s: nothing of NCCL's is left",
               cases[i].what);
    }
}

int main(void)
{
    test_who_is_who();
    test_split();
    test_split_too_late();
    test_split_that_blocks();
    test_split_that_fails_at_once();
    test_objects_that_fail();
    test_gather();
    test_gather_that_fails();
    test_grace();
    test_words_of_before();
    test_threads();
    test_threads_that_fail();
    test_parting();
    test_abort();
    test_abort_that_stays();
    test_end_that_stays();
    test_abort_of_threads();
    test_shared();
    test_by_the_host();
    test_exchange();
    test_destroy();
    return done_with_device();
}
