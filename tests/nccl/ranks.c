/*
 * ranks.c - one test, several ranks, and what each of them says.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tests/nccl/ranks.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    MAX_TESTS = 16,
    MAX_SAID = 128,
    REFUSED = 4,
    LIMIT_S = 60 /* for a test of a process; a thread cannot be ended */
};

struct said {
    bool held;
    char text[200];
};

/* What the ranks share: memory of all processes.  That of threads is not, so
 * that a process which is forked has its own. */
struct shared {
    pthread_barrier_t barrier;
    ncclUniqueId ids[16];
    uint64_t board[MOST_RANKS][RANK_WORDS];
    struct {
        uint32_t n;
        struct said said[MAX_SAID];
    } tests[MAX_TESTS][MOST_RANKS];
};

/* One rank's thread or process. */
struct start {
    struct rank rank;
    pthread_t thread;
    const struct ranks_test *tests;
    size_t n_tests;
};

static struct shared *shared;
static int the_seed = 1, apart = 1, max_devices = MAX_RANKS;
static uint64_t dropped;
static bool quiet, lost, broken, forks;
static char failing[256];

void ranks_seed(int seed)
{
    the_seed = seed;
}

void ranks_know_each_other(bool know)
{
    apart = !know;
}

void ranks_devices(int devices)
{
    max_devices = devices;
}

void ranks_quiet(bool now)
{
    quiet = now;
}

void ranks_as_processes(void)
{
    forks = true;
}

static bool are_processes(void)
{
    return forks || !ranks_are_soft();
}

void ranks_drop_wait(uint64_t n)
{
    dropped = n;
}

void ranks_fail(const char *entry, uint64_t n)
{
    failing[0] = '\0';
    if (n != 0) {
        snprintf(failing, sizeof(failing), " FAIL=%s:%llu", entry,
                 (unsigned long long)n);
    }
}

void ranks_refuse(const char *entry, int code)
{
    size_t at = 0;

    failing[0] = '\0';
    for (int n = 1; n <= REFUSED && entry != NULL; n++) {
        at += (size_t)snprintf(failing + at, sizeof(failing) - at,
                               "%s%s:%d:%d", n == 1 ? " FAIL=" : ",", entry, n,
                               code);
    }
}

/* ---- in a rank ----------------------------------------------------------- */

static bool keep(struct rank *r, bool held, const char *text)
{
    const uint32_t at = shared->tests[r->test][r->rank].n++;

    if (at < MAX_SAID) {
        struct said *said = &shared->tests[r->test][r->rank].said[at];

        said->held = held;
        snprintf(said->text, sizeof(said->text), "%s", text);
    }
    return held;
}

bool says(struct rank *r, bool held, const char *format, ...)
{
    char text[200];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    return keep(r, held, text);
}

bool says_int(struct rank *r, long long got, long long wanted,
              const char *format, ...)
{
    char text[200];
    va_list args;
    int n;

    va_start(args, format);
    n = vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    if (got != wanted && n > 0 && (size_t)n < sizeof(text)) {
        snprintf(text + n, sizeof(text) - (size_t)n, " (%lld, not %lld)", got,
                 wanted);
    }
    return keep(r, got == wanted, text);
}

void ranks_barrier(struct rank *r)
{
    (void)r;
    pthread_barrier_wait(&shared->barrier);
}

uint64_t *ranks_board(int rank)
{
    return shared->board[rank];
}

/* The board's last words: how often this rank has said something, and heard
 * all. */
enum {
    SAID = RANK_WORDS - 2,
    HEARD = RANK_WORDS - 1
};

static bool all_come(const struct rank *r, int what, uint64_t times,
                     int seconds)
{
    const struct timespec nap = { 0, 200000 };
    int naps = seconds * 5000;

    for (int i = 0; i < r->n; i++) {
        while (__atomic_load_n(&ranks_board(i)[what], __ATOMIC_ACQUIRE) <
               times) {
            if (naps-- == 0) {
                return false;
            }
            nanosleep(&nap, NULL);
        }
    }
    return true;
}

bool ranks_gather(struct rank *r, const uint64_t *mine, uint64_t *all,
                  uint32_t n, int seconds)
{
    uint64_t *board = ranks_board(r->rank);
    const uint64_t times = board[SAID] + 1;

    if (n > SAID) {
        return false;
    }
    memcpy(board, mine, n * sizeof(*mine));
    __atomic_store_n(&board[SAID], times, __ATOMIC_RELEASE);
    if (!all_come(r, SAID, times, seconds)) {
        return false;
    }
    for (int i = 0; i < r->n; i++) {
        memcpy(all + (size_t)i * n, ranks_board(i), n * sizeof(*all));
    }
    __atomic_store_n(&board[HEARD], times, __ATOMIC_RELEASE);
    return all_come(r, HEARD, times, seconds);
}

ncclUniqueId ranks_id(struct rank *r)
{
    const uint32_t at = r->n_ids++ % 16;

    if (r->rank == 0) {
        nccl.ncclGetUniqueId(&shared->ids[at]);
    }
    ranks_barrier(r);
    return shared->ids[at];
}

void fill(struct rank *r, CUdeviceptr at, size_t n, float first, float step)
{
    float *values = malloc(n * sizeof(*values));

    if (values == NULL) {
        abort();
    }
    for (size_t i = 0; i < n; i++) {
        values[i] = first + (float)i * step;
    }
    drv.cuMemcpyHtoDAsync(at, values, n * sizeof(*values), r->stream);
    drv.cuStreamSynchronize(r->stream);
    free(values);
}

void fetch(struct rank *r, CUstream stream, void *to, CUdeviceptr from,
           size_t bytes)
{
    (void)r;
    drv.cuMemcpyDtoHAsync(to, from, bytes, stream);
    drv.cuStreamSynchronize(stream);
}

static bool open_rank(struct rank *r)
{
    int devices = 0;

    if (drv.cuInit(0) != CUDA_SUCCESS ||
        drv.cuDeviceGetCount(&devices) != CUDA_SUCCESS || devices == 0) {
        return says(r, false, "rank %d has a device", r->rank);
    }
    r->device = r->rank % (devices < max_devices ? devices : max_devices);
    drv.cuDevicePrimaryCtxRetain(&r->ctx, r->device);
    drv.cuCtxSetCurrent(r->ctx);
    drv.cuStreamCreate(&r->stream, CU_STREAM_NON_BLOCKING);
    drv.cuStreamCreate(&r->side, CU_STREAM_NON_BLOCKING);
    drv.cuMemAlloc(&r->send, RANK_FLOATS * sizeof(float));
    drv.cuMemAlloc(&r->recv, RANK_FLOATS * sizeof(float));
    drv.cuMemAlloc(&r->third, RANK_FLOATS * sizeof(float));
    fill(r, r->send, RANK_FLOATS, 0, 0);
    fill(r, r->recv, RANK_FLOATS, 0, 0);
    fill(r, r->third, RANK_FLOATS, 0, 0);
    drv.cuCtxSynchronize();
    return true;
}

static void close_rank(struct rank *r)
{
    drv.cuMemFree(r->send);
    drv.cuMemFree(r->recv);
    drv.cuMemFree(r->third);
    drv.cuStreamDestroy(r->stream);
    drv.cuStreamDestroy(r->side);
    drv.cuDevicePrimaryCtxRelease(r->device);
}

static void run_test(struct rank *r, const struct ranks_test *test)
{
    ncclResult_t result;

    if (test->bare || !ranks_have_nccl()) {
        test->run(r);
        return;
    }
    result = nccl.ncclCommInitRank(&r->comm, r->n, ranks_id(r), r->rank);
    if (says_int(r, result, ncclSuccess, "a communicator of %d starts", r->n)) {
        test->run(r);
    } else {
        says(r, false, "NCCL says: %s", nccl.ncclGetLastError(NULL));
    }
    if (r->comm != NULL) {
        says_int(r, nccl.ncclCommDestroy(r->comm), ncclSuccess,
                 "and is destroyed");
        r->comm = NULL;
    }
}

static void *run_rank(void *opaque)
{
    struct start *start = opaque;
    struct rank *r = &start->rank;

    if (!open_rank(r)) {
        return NULL;
    }
    for (size_t i = 0; i < start->n_tests; i++) {
        r->test = (uint32_t)i;
        if (are_processes()) {
            alarm(LIMIT_S);
        }
        run_test(r, &start->tests[i]);
    }
    close_rank(r);
    return NULL;
}

/* ---- the ranks ----------------------------------------------------------- */

static void start_threads(struct start *starts, int n)
{
    for (int i = 0; i < n; i++) {
        if (pthread_create(&starts[i].thread, NULL, run_rank, &starts[i]) !=
            0) {
            ok(false, "a rank's thread starts");
            exit(done_testing());
        }
    }
    for (int i = 0; i < n; i++) {
        pthread_join(starts[i].thread, NULL);
    }
}

/* One whose peer has died waits for ever: it is ended by its alarm, and
 * nothing more is tried. */
static void start_processes(struct start *starts, int n)
{
    pid_t pids[MOST_RANKS];

    fflush(stdout);
    for (int i = 0; i < n; i++) {
        pids[i] = fork();
        if (pids[i] == 0) {
            alarm(LIMIT_S);
            run_rank(&starts[i]);
            _exit(0);
        }
    }
    for (int i = 0; i < n; i++) {
        int status = 0;

        while (waitpid(pids[i], &status, 0) < 0 && errno == EINTR) {
        }
        broken |= status != 0;
        is_int(status, 0, "the process of rank %d of %d ends well", i, n);
    }
}

static void begin(int n)
{
    pthread_barrierattr_t attributes;

    if (shared == NULL) {
        shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
                      (are_processes() ? MAP_SHARED : MAP_PRIVATE) |
                          MAP_ANONYMOUS,
                      -1, 0);
        if (shared == MAP_FAILED) {
            ok(false, "there is memory to share");
            exit(done_testing());
        }
    }
    for (int test = 0; test < MAX_TESTS; test++) {
        for (int i = 0; i < MOST_RANKS; i++) {
            shared->tests[test][i].n = 0;
        }
    }
    memset(shared->board, 0, sizeof(shared->board));
    pthread_barrierattr_init(&attributes);
    pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&shared->barrier, &attributes, (unsigned)n);
    pthread_barrierattr_destroy(&attributes);
}

static void tell(size_t test, const char *name, int n)
{
    for (int i = 0; i < n; i++) {
        const uint32_t count = shared->tests[test][i].n;

        for (uint32_t k = 0; k < count && k < MAX_SAID; k++) {
            const struct said *said = &shared->tests[test][i].said[k];

            if (!said->held || !quiet) {
                ok(said->held, "%s: rank %d of %d: %s", name, i, n, said->text);
            }
        }
        if (count > MAX_SAID) {
            ok(false, "%s: rank %d says what fits", name, i);
        }
    }
}

static void run(int n, const struct ranks_test *tests, size_t n_tests)
{
    struct start starts[MOST_RANKS];

    begin(n);
    memset(starts, 0, sizeof(starts));
    for (int i = 0; i < n; i++) {
        starts[i].rank.rank = i;
        starts[i].rank.n = n;
        starts[i].tests = tests;
        starts[i].n_tests = n_tests;
    }
    if (are_processes()) {
        start_processes(starts, n);
    } else {
        start_threads(starts, n);
    }
    for (size_t i = 0; i < n_tests && !lost; i++) {
        tell(i, tests[i].name, n);
    }
    /* It waits for whoever is inside, and so for a process that has died. */
    if (!broken) {
        pthread_barrier_destroy(&shared->barrier);
    }
}

static void run_soft(int n, const struct ranks_test *test)
{
    soft_configure("SEED=%d PROCESSES=%d DROP_WAIT=%llu%s", the_seed, apart,
                   (unsigned long long)dropped, failing);
    run(n, test, 1);
}

/* Whoever looks for a fault runs some of the tests. */
static bool is_wanted(const char *name)
{
    const char *word = getenv("GRAPHHOOKS_TEST_ONLY");

    return word == NULL || strstr(name, word) != NULL;
}

/* Where each rank is to have a GPU of its own. */
static int most_ranks(void)
{
    const char *given = getenv("GRAPHHOOKS_TEST_RANKS");

    return given != NULL && atoi(given) > 0 ? atoi(given) : MOST_RANKS;
}

static bool run_wanted(int n, const struct ranks_test *tests, size_t n_tests)
{
    struct ranks_test wanted[MAX_TESTS];
    size_t n_wanted = 0;

    for (size_t i = 0; i < n_tests; i++) {
        if (is_wanted(tests[i].name)) {
            wanted[n_wanted++] = tests[i];
        }
    }
    if (n_wanted != 0) {
        run(n, wanted, n_wanted);
    }
    return n_wanted != 0;
}

/* Threads run each test alone, so that each begins with nothing found;
 * processes all of them, since a device is long in starting. */
bool ranks_run_all(int n, const struct ranks_test *tests, size_t n_tests)
{
    bool have_run = false;

    if (n > most_ranks()) {
        skip(1, "%d ranks are more than GRAPHHOOKS_TEST_RANKS", n);
        return false;
    }
    if (are_processes()) {
        if (broken) {
            skip(1, "ranks of an earlier run did not end well");
            return false;
        }
        return run_wanted(n, tests, n_tests < MAX_TESTS ? n_tests : MAX_TESTS);
    }
    for (size_t i = 0; i < n_tests; i++) {
        if (!is_wanted(tests[i].name)) {
            continue;
        }
        run_soft(n, &tests[i]);
        if (!quiet || soft_races() + soft_reports() != 0) {
            soft_is_clean(tests[i].name);
        }
        have_run = true;
    }
    return have_run;
}

bool ranks_run(int n, const char *name, void (*test)(struct rank *r))
{
    const struct ranks_test one = { name, test, false };

    return ranks_run_all(n, &one, 1);
}

int ranks_main(const struct ranks_test *tests, size_t n_tests)
{
    int status;

    if (!ranks_open(&status)) {
        return status;
    }
    for (int n = 1; n <= MAX_RANKS; n++) {
        ranks_run_all(n, tests, n_tests);
    }
    return done_testing();
}

void ranks_run_wrong(int n, const char *name, void (*test)(struct rank *r))
{
    const struct ranks_test one = { name, test, false };

    if (is_wanted(name)) {
        run_soft(n, &one);
    }
}

void ranks_run_wrong_bare(int n, const char *name, void (*test)(struct rank *r))
{
    const struct ranks_test one = { name, test, true };

    if (is_wanted(name)) {
        run_soft(n, &one);
    }
}

void ranks_run_lost(int n, const char *name, void (*test)(struct rank *r))
{
    lost = true;
    ranks_run_wrong(n, name, test);
    lost = false;
}
