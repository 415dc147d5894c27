/*
 * An exchange of a rank whose peers, device and NCCL are this file's: what is
 * refused, what ranks agree on, and what is freed when they do not come.
 *
 * A gather brings this rank's own words from each rank, changed as a test
 * says.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "base/clock.h"
#include "comm/comm.h"
#include "comm/nccl.h"
#include "device/job.h"
#include "exchange/state.h"
#include "support/fake.h"
#include "tap/tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    N = 4,
    RANK = 1,
    OTHER = 2, /* the rank whose words are changed */
    ROW = 128, /* bytes of a row of flags */
    SETTINGS = 12 /* words that are compared */
};

#define STREAM ((void *)7)
#define COMM ((void *)8)

/* ---- the other ranks ----------------------------------------------------- */

struct gh_comm {
    int unused;
};

static struct gh_comm the_comm;
static uint64_t all[N * GH_COMM_WORDS];
static int n_gathers, changed_gather, failed_gather; /* from 1; 0: none */
static uint32_t changed_word;
static uint64_t changed_by;
static int comms_open;

gh_status gh_comm_open(struct gh_device *dev, const gh_ranks *ranks,
                       const char *of, uint32_t seconds, struct gh_gate *gate,
                       const struct gh_log *log, struct gh_comm **comm_p,
                       gh_error *error)
{
    (void)log;
    (void)dev;
    (void)ranks;
    (void)of;
    (void)seconds;
    (void)gate;
    (void)error;
    comms_open++;
    *comm_p = &the_comm;
    return GH_OK;
}

gh_status gh_comm_gather(struct gh_comm *comm, const uint64_t *mine, uint32_t n,
                         const uint64_t **all_p, gh_error *error)
{
    (void)comm;
    if (++n_gathers == failed_gather) {
        if (error != NULL) {
            snprintf(error->text, sizeof(error->text), "nobody came");
        }
        return GH_ERR_RANKS;
    }
    for (uint32_t i = 0; i < N; i++) {
        memcpy(all + (size_t)i * n, mine, n * sizeof(*mine));
        if (n == SETTINGS) {
            all[(size_t)i * n + SETTINGS - 1] = i; /* the rank's number */
        }
    }
    if (n_gathers == changed_gather) {
        all[OTHER * n + changed_word] += changed_by;
    }
    *all_p = all;
    return GH_OK;
}

void gh_comm_close(struct gh_comm *comm, struct gh_comm_parting *parting)
{
    if (comm != NULL) {
        comms_open--;
        note(parting != NULL ? "part " : "leave ");
    }
}

void gh_comm_part(const struct gh_comm_parting *parting)
{
    (void)parting;
    note("parted ");
}

static uint32_t naps_left;

struct gh_deadline gh_deadline_in(uint32_t seconds)
{
    naps_left = seconds;
    return (struct gh_deadline){ 0, 0 };
}

bool gh_deadline_back_off(struct gh_deadline *deadline)
{
    (void)deadline;
    return naps_left > 0 && naps_left-- > 0;
}

/* ---- NCCL ---------------------------------------------------------------- */

static bool job_is_over;

static struct gh_nccl_part sent[N];

gh_status gh_nccl_open(const char *name, struct gh_nccl **nccl_p,
                       gh_error *error)
{
    (void)name;
    (void)error;
    *nccl_p = (struct gh_nccl *)9;
    return GH_OK;
}

void gh_nccl_close(struct gh_nccl *nccl)
{
    (void)nccl;
}

gh_status gh_nccl_check(const struct gh_nccl *nccl, struct ncclComm *comm,
                        const char *who, uint32_t rank, uint32_t size,
                        gh_error *error)
{
    (void)nccl;
    (void)comm;
    (void)who;
    (void)rank;
    (void)size;
    (void)error;
    return GH_OK;
}

gh_status gh_nccl_exchange(const struct gh_nccl *nccl, struct ncclComm *comm,
                           const struct gh_nccl_part *parts, uint32_t rank,
                           uint32_t n, void *stream, uint32_t seconds,
                           gh_error *error)
{
    (void)nccl;
    (void)comm;
    (void)rank;
    (void)stream;
    (void)seconds;
    (void)error;
    memcpy(sent, parts, n * sizeof(*parts));
    note("nccl ");
    return GH_OK;
}

gh_status gh_nccl_look(const struct gh_nccl *nccl, struct ncclComm *comm,
                       bool *gone_p, gh_error *error)
{
    (void)nccl;
    (void)comm;
    (void)gone_p;
    (void)error;
    return GH_OK;
}

struct gh_job *gh_nccl_abort_begin(struct gh_nccl *nccl, struct gh_device *dev,
                                   struct ncclComm *comm, uint32_t seconds)
{
    (void)nccl;
    (void)dev;
    (void)comm;
    note("abort:%u ", seconds);
    return NULL;
}

struct gh_job *gh_device_idle_begin(struct gh_device *dev, uint32_t seconds)
{
    (void)dev;
    note("idle:%u ", seconds);
    return NULL;
}

bool gh_job_nap(struct gh_job *job)
{
    (void)job;
    return false;
}

bool gh_job_end(struct gh_job *job)
{
    (void)job;
    return job_is_over;
}

/* ---- the device ---------------------------------------------------------- */

static int n_memory, n_objects;
static char pool[256]; /* addresses: what is left there leaks nothing */
static size_t n_taken;
static uint64_t last_alloc;
static bool ended, idle, reaches, captures;
static void *busy;      /* a stream of the exchange's that is not idle */
static void *put_on[N]; /* the streams of the last puts */
static uint32_t n_puts, n_recorded;
static unsigned char ready[N], arrived[N], gone[N];

uint32_t gh_device_limit_waits(struct gh_device *dev, uint32_t seconds)
{
    (void)dev;
    note("limit%u ", seconds);
    return 0;
}

static bool stuck;

bool gh_device_is_stuck(const struct gh_device *dev)
{
    (void)dev;
    return stuck;
}

void gh_device_close(struct gh_device *dev)
{
    (void)dev;
}

static gh_status make(void **object_p)
{
    n_objects++;
    *object_p = malloc(1);
    return GH_OK;
}

static void drop(void *object)
{
    n_objects -= object != NULL;
    free(object);
}

gh_status gh_device_stream_create(struct gh_device *dev, bool blocking,
                                  void **stream_p, gh_error *error)
{
    (void)dev;
    (void)blocking;
    (void)error;
    return make(stream_p);
}

gh_status gh_device_stream_create_urgent(struct gh_device *dev, void **stream_p,
                                         gh_error *error)
{
    (void)dev;
    (void)error;
    return make(stream_p);
}

void gh_device_stream_destroy(struct gh_device *dev, void *stream)
{
    (void)dev;
    drop(stream);
}

gh_status gh_device_event_create(struct gh_device *dev, void **event_p,
                                 gh_error *error)
{
    (void)dev;
    (void)error;
    return make(event_p);
}

gh_status gh_device_event_create_timed(struct gh_device *dev, void **event_p,
                                       gh_error *error)
{
    (void)dev;
    (void)error;
    return make(event_p);
}

/* What a measurement finds: of each size, the microseconds of a call by copies
 * and of one by the kernel.  Of the three rounds of each the second is the
 * shortest. */
static const double *call_us;
static uint32_t n_elapsed;

gh_status gh_device_event_elapsed(struct gh_device *dev, void *from, void *to,
                                  double *ns_p, gh_error *error)
{
    const uint32_t i = n_elapsed++;

    (void)dev;
    (void)from;
    (void)to;
    (void)error;
    *ns_p = 8 * 1000 * call_us[i / 3] + (i % 3 != 1 ? 900000 : 0);
    return GH_OK;
}

gh_status gh_device_capture_begin(struct gh_device *dev, void *stream,
                                  gh_error *error)
{
    (void)dev;
    (void)stream;
    (void)error;
    captures = true;
    return GH_OK;
}

gh_status gh_device_capture_end(struct gh_device *dev, void *stream,
                                void **graph_p, uint64_t *n_nodes_p,
                                gh_error *error)
{
    (void)dev;
    (void)stream;
    (void)error;
    captures = false;
    *n_nodes_p = 1;
    return make(graph_p);
}

gh_status gh_device_instantiate(struct gh_device *dev, void *graph,
                                void *stream, void **exec_p, gh_error *error)
{
    (void)dev;
    (void)graph;
    (void)stream;
    (void)error;
    return make(exec_p);
}

gh_status gh_device_launch(struct gh_device *dev, void *exec, void *stream,
                           gh_error *error)
{
    (void)dev;
    (void)exec;
    (void)stream;
    (void)error;
    return GH_OK;
}

void gh_device_graph_destroy(struct gh_device *dev, void *graph)
{
    (void)dev;
    drop(graph);
}

void gh_device_exec_destroy(struct gh_device *dev, void *exec)
{
    (void)dev;
    drop(exec);
}

bool gh_device_sends_wait(struct gh_device *dev, struct gh_sends *sends,
                          const void *row, uint32_t rank, uint32_t n_ranks)
{
    (void)dev;
    (void)sends;
    (void)row;
    (void)rank;
    (void)n_ranks;
    return true;
}

static uint32_t n_launched;

void gh_device_sends_add(struct gh_sends *sends, void *dst, const void *src,
                         uint64_t bytes, void *flag)
{
    (void)sends;
    (void)dst;
    (void)src;
    (void)bytes;
    (void)flag;
}

gh_status gh_device_sends_launch(struct gh_device *dev, struct gh_sends *sends,
                                 void *stream, gh_error *error)
{
    (void)dev;
    (void)sends;
    (void)stream;
    (void)error;
    n_launched++;
    return GH_OK;
}

void gh_device_event_destroy(struct gh_device *dev, void *event)
{
    (void)dev;
    drop(event);
}

gh_status gh_device_alloc(struct gh_device *dev, uint64_t bytes,
                          void **address_p, gh_error *error)
{
    (void)dev;
    (void)error;
    last_alloc = bytes;
    n_memory++;
    *address_p = &pool[++n_taken % sizeof(pool)];
    return GH_OK;
}

void gh_device_free(struct gh_device *dev, void *address)
{
    (void)dev;
    if (address != NULL) {
        note("free ");
        n_memory--;
    }
}

gh_status gh_device_host_alloc(struct gh_device *dev, uint64_t bytes,
                               void **address_p, gh_error *error)
{
    (void)dev;
    (void)error;
    n_objects++;
    *address_p = calloc(1, bytes);
    return GH_OK;
}

void gh_device_host_free(struct gh_device *dev, void *address)
{
    (void)dev;
    drop(address);
}

/* The rows of flags that are read: READY and ARRIVED, or GONE. */
gh_status gh_device_copy_out(struct gh_device *dev, void *host,
                             const void *device, uint64_t bytes, void *stream,
                             gh_error *error)
{
    unsigned char *rows = host;

    (void)dev;
    (void)device;
    (void)stream;
    (void)error;
    memset(rows, 0, bytes);
    if (bytes == ROW) {
        memcpy(rows, gone, N);
    } else {
        memcpy(rows, ready, N);
        memcpy(rows + ROW, arrived, N);
    }
    return GH_OK;
}

gh_status gh_device_copy(struct gh_device *dev, void *dst, const void *src,
                         uint64_t bytes, void *stream, gh_error *error)
{
    (void)dev;
    (void)dst;
    (void)src;
    (void)stream;
    (void)error;
    note("copy%d ", (int)bytes);
    return GH_OK;
}

gh_status gh_device_zero(struct gh_device *dev, void *address, uint64_t bytes,
                         void *stream, gh_error *error)
{
    (void)dev;
    (void)address;
    (void)bytes;
    (void)stream;
    (void)error;
    return GH_OK;
}

gh_status gh_device_put(struct gh_device *dev, void *dst, const void *src,
                        uint64_t bytes, void *stream, gh_error *error)
{
    (void)dev;
    (void)dst;
    (void)src;
    (void)error;
    if (bytes > 1) { /* no flag */
        put_on[n_puts++ % N] = stream;
    }
    note("put%d ", (int)bytes);
    return GH_OK;
}

gh_status gh_device_words(struct gh_device *dev, const struct gh_word *words,
                          uint32_t n, void *stream, uint64_t *calls_p,
                          gh_error *error)
{
    (void)dev;
    (void)words;
    (void)n;
    (void)stream;
    (void)calls_p;
    (void)error;
    return GH_OK;
}

static bool batches, batch_taken;
static uint32_t n_batched; /* copies of the last batch */

bool gh_device_has_batches(const struct gh_device *dev)
{
    (void)dev;
    return batches;
}

gh_status gh_device_put_all(struct gh_device *dev,
                            const struct gh_copies_out *copies, bool repeated,
                            void *stream, bool *taken_p, gh_error *error)
{
    (void)dev;
    (void)repeated;
    (void)stream;
    (void)error;
    n_batched = copies->n;
    *taken_p = batch_taken;
    batches = batch_taken;
    note("batch%u ", copies->n);
    return GH_OK;
}

bool gh_device_has_words(const struct gh_device *dev)
{
    (void)dev;
    return true;
}

void *gh_device_context(const struct gh_device *dev)
{
    (void)dev;
    return NULL;
}

void gh_device_get_info(const struct gh_device *dev,
                        struct gh_device_info *info)
{
    (void)dev;
    memset(info, 0, sizeof(*info));
}

bool gh_device_bus_id(struct gh_device *dev, char *text, size_t bytes)
{
    (void)dev;
    (void)text;
    (void)bytes;
    return false;
}

gh_status gh_device_reach(struct gh_device *dev, int ordinal, void *context,
                          bool *can_p, gh_error *error)
{
    (void)dev;
    (void)ordinal;
    (void)context;
    (void)error;
    *can_p = reaches;
    return GH_OK;
}

gh_status gh_device_share(struct gh_device *dev, const void *address,
                          struct gh_shared_memory *shared, gh_error *error)
{
    (void)dev;
    (void)address;
    (void)shared;
    (void)error;
    return GH_ERR_UNSUPPORTED;
}

gh_status gh_device_open_shared(struct gh_device *dev,
                                const struct gh_shared_memory *shared,
                                void **base_p, gh_error *error)
{
    (void)dev;
    (void)shared;
    (void)base_p;
    (void)error;
    return GH_ERR_UNSUPPORTED;
}

void gh_device_close_shared(struct gh_device *dev, void *base)
{
    (void)dev;
    (void)base;
}

gh_status gh_device_stream_wait(struct gh_device *dev, void *stream,
                                gh_error *error)
{
    (void)dev;
    (void)stream;
    (void)error;
    return GH_OK;
}

/* The exchange's own streams are idle; the host's as a test says. */
gh_status gh_device_stream_ask(struct gh_device *dev, void *stream,
                               bool *idle_p, gh_error *error)
{
    (void)dev;
    (void)error;
    *idle_p = stream != busy && (stream != STREAM || idle);
    return GH_OK;
}

gh_status gh_device_event_ask(struct gh_device *dev, void *event, bool *ended_p,
                              gh_error *error)
{
    (void)dev;
    (void)event;
    (void)error;
    *ended_p = ended;
    return GH_OK;
}

gh_status gh_device_event_record(struct gh_device *dev, void *event,
                                 void *stream, gh_error *error)
{
    (void)dev;
    (void)event;
    (void)stream;
    (void)error;
    n_recorded++;
    return GH_OK;
}

gh_status gh_device_event_wait(struct gh_device *dev, void *stream, void *event,
                               gh_error *error)
{
    (void)dev;
    (void)stream;
    (void)event;
    (void)error;
    return GH_OK;
}

enum gh_capturing gh_device_capturing(struct gh_device *dev, void *stream)
{
    (void)dev;
    (void)stream;
    return captures ? GH_CAPTURING_YES : GH_CAPTURING_NO;
}

/* ---- exchanges ----------------------------------------------------------- */

static struct gh_exchange_options options;
static gh_exchange_desc desc;

static void reset(gh_exchange_kind kind)
{
    options = (struct gh_exchange_options){
        .kind = kind, .timeout_s = 3, .log = { GH_LOG_WARN, hear_line, NULL }
    };
    desc = (gh_exchange_desc){ .struct_size = sizeof(desc),
                               .rank = RANK,
                               .n_ranks = N,
                               .window_bytes = 1000,
                               .comm = COMM };
    n_gathers = changed_gather = failed_gather = 0;
    comms_open = n_memory = n_objects = 0;
    ended = idle = reaches = job_is_over = true;
    captures = batches = false;
    batch_taken = true;
    busy = NULL;
    n_puts = n_recorded = 0;
    memset(ready, 0, sizeof(ready));
    memset(arrived, 0, sizeof(arrived));
    memset(gone, 0, sizeof(gone));
    forget_all();
}

static gh_status open_exchange(gh_exchange **x_p)
{
    return gh_exchange_open(DEVICE, &desc, &options, x_p, &err);
}

static gh_exchange *begin(gh_exchange_kind kind)
{
    gh_exchange *x = NULL;

    reset(kind);
    is_status(open_exchange(&x), GH_OK, &err, "an exchange begins");
    calls[0] = '\0';
    return x;
}

static void is_over(const char *name, int memory)
{
    is_int(n_memory, memory, "%s: memory that is left", name);
    is_int(n_objects, 0, "%s: no object is", name);
    is_int(comms_open, 0, "%s: nor a communicator", name);
}

/* ---- windows ------------------------------------------------------------- */

/* Windows differ between ranks: what comes has to fit into this rank's, and
 * what goes into that of the rank it goes to. */
static void test_windows(void)
{
    static const struct {
        const char *what, *says;
        uint32_t rank;
        gh_exchange_part part;
        uint64_t at;
    } cases[] = {
        { "all of a smaller window", NULL, OTHER, { 0, 600, 0, 0, 0 }, 0 },
        { "a byte more than a smaller window",
          "what goes to rank 2 is 601 bytes at 0, and its window has 600",
          OTHER,
          { 0, 601, 0, 0, 0 },
          0 },
        { "what begins at the end of a smaller window",
          "goes to rank 2",
          OTHER,
          { 0, 1, 600, 0, 0 },
          0 },
        { "what is behind a smaller window by its `at`",
          "goes to rank 2",
          OTHER,
          { 0, 100, 0, 0, 0 },
          501 },
        { "as much in an equal window", NULL, 3, { 0, 601, 0, 0, 0 }, 0 },
        { "a byte more than an equal window",
          "goes to rank 3 is 1001",
          3,
          { 0, 1001, 0, 0, 0 },
          0 },
        { "all of this window", NULL, OTHER, { 0, 0, 0, 0, 1000 }, 0 },
        { "a byte more than this window",
          "what comes from rank 2 is 1001 bytes at 0, and the window has 1000",
          OTHER,
          { 0, 0, 0, 0, 1001 },
          0 },
        { "what comes behind this window by its `at`",
          "comes from rank 0",
          0,
          { 0, 0, 0, 0, 1 },
          2000 },
        { "an offset that wraps",
          "comes from rank 0",
          0,
          { 0, 0, 0, UINT64_MAX, 2 },
          1 },
        { "an `at` beyond all windows, for nothing",
          NULL,
          0,
          { 0 },
          UINT64_MAX },
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        gh_exchange_part parts[N] = { { 0 } };
        const gh_exchange_op op = { .struct_size = sizeof(op),
                                    .stream = STREAM,
                                    .send = calls,
                                    .window_offset = cases[i].at,
                                    .parts = parts };
        gh_exchange *x;

        reset(GH_EXCHANGE_NCCL);
        changed_gather = 1;
        changed_word = 7;
        changed_by = (uint64_t)-400; /* of 1000 */
        if (open_exchange(&x) != GH_OK) {
            ok(false, "an exchange of unequal windows begins: %s", err.text);
            continue;
        }
        parts[cases[i].rank] = cases[i].part;
        is_status(gh_exchange_issue(x, &op, &err),
                  cases[i].says == NULL ? GH_OK : GH_ERR_INVALID, &err, "%s",
                  cases[i].what);
        ok(cases[i].says == NULL || strstr(err.text, cases[i].says) != NULL,
           "is refused with a sentence where it does not fit: %s", err.text);
        gh_exchange_close(x);
        is_over(cases[i].what, 0);
    }
}

static void test_capacities(void)
{
    static const struct {
        uint64_t capacity;
        const char *says;
    } cases[] = {
        { 250, NULL },
        { 251, "comes from rank 3 is 251 bytes at 753" },
        { UINT64_MAX / 4, "comes from rank 0" },
        { UINT64_MAX / 4 + 1, "capacity is 4611686018427387904: too large" },
        { UINT64_MAX, "too large for 4 ranks" },
        { 0, NULL },
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const gh_exchange_op op = { .struct_size = sizeof(op),
                                    .stream = STREAM,
                                    .send = calls,
                                    .capacity = cases[i].capacity };
        gh_exchange *x = begin(GH_EXCHANGE_NCCL);

        is_status(gh_exchange_issue(x, &op, &err),
                  cases[i].says == NULL ? GH_OK : GH_ERR_INVALID, &err,
                  "a capacity of %llu", (unsigned long long)cases[i].capacity);
        ok(cases[i].says == NULL || strstr(err.text, cases[i].says) != NULL,
           "is refused with a sentence where it does not fit: %s", err.text);
        gh_exchange_close(x);
    }
}

static void test_own_part(void)
{
    static const struct {
        gh_exchange_part part;
        bool good;
    } cases[] = {
        { { 0, 10, 5, 5, 10 }, true }, { { 0, 10, 5, 6, 10 }, false },
        { { 0, 10, 5, 5, 9 }, false }, { { 0, 0, 5, 6, 0 }, true },
        { { 0, 0, 0, 0, 10 }, false },
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        gh_exchange_part parts[N] = { { 0 } };
        gh_exchange_op op = { .struct_size = sizeof(op),
                              .stream = STREAM,
                              .send = calls,
                              .parts = parts };
        gh_exchange *x = begin(GH_EXCHANGE_NCCL);

        parts[RANK] = cases[i].part;
        is_status(gh_exchange_issue(x, &op, &err),
                  cases[i].good ? GH_OK : GH_ERR_INVALID, &err,
                  "own part %zu goes as it comes, or is refused", i);
        ok(cases[i].part.send_bytes != 0 || strstr(calls, "copy") == NULL,
           "and where it is nothing, nothing is copied");
        parts[0].send_bytes = 1;
        op.send = NULL;
        is_status(gh_exchange_issue(x, &op, &err), GH_ERR_INVALID, &err,
                  "what is sent is somewhere");
        gh_exchange_close(x);
    }
}

static void test_window_sizes(void)
{
    static const struct {
        uint64_t bytes;
        bool good;
    } cases[] = {
        { 1, true },
        { (UINT64_C(2) << 20) - 1, true },
        { UINT64_C(2) << 20, true },
        { UINT64_MAX - (UINT64_C(2) << 20), true },
        { UINT64_MAX - (UINT64_C(2) << 20) + 1, false },
        { UINT64_MAX, false },
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        gh_exchange *x = NULL;

        reset(GH_EXCHANGE_NCCL);
        desc.window_bytes = cases[i].bytes;
        is_status(open_exchange(&x), cases[i].good ? GH_OK : GH_ERR_INVALID,
                  &err, "a window of %llu bytes",
                  (unsigned long long)cases[i].bytes);
        ok(!cases[i].good ||
               (last_alloc > cases[i].bytes && last_alloc % (2 << 20) == 0),
           "is rounded up: %llu", (unsigned long long)last_alloc);
        if (x != NULL) {
            gh_exchange_close(x);
        }
        is_over("a window", 0);
    }
}

/* ---- what all agree on --------------------------------------------------- */

static void test_agreement(void)
{
    static const struct {
        uint32_t word;
        const char *says;
    } cases[] = {
        { 1, "gh_exchange_desc.kind is nccl on rank 0 and copy on rank 2" },
        { 2, "n_ranks is 4 on rank 0 and 5 on rank 2" },
        { 3, "comm (0: NULL) is 1 on rank 0 and 2 on rank 2" },
        { 4, "flags is 0 on rank 0 and 1 on rank 2" },
        { 5, "(1: measure) is 0 on rank 0 and 1 on rank 2" },
        { 6, "gh_exchange_desc.small is 0 on rank 0 and 1 on rank 2" },
        { SETTINGS - 1, "rank is 3 on two ranks, which are 2 and 3" },
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        gh_exchange *x = NULL;

        reset(GH_EXCHANGE_NCCL);
        changed_gather = 1;
        changed_word = cases[i].word;
        changed_by = 1;
        is_status(open_exchange(&x), GH_ERR_CONFIG, &err,
                  "ranks that differ refuse");
        ok(strstr(err.text, cases[i].says) != NULL, "and say in what: %s",
           err.text);
        is_over("ranks that differ", 0);
    }
    reset(GH_EXCHANGE_NCCL);
    changed_gather = 1;
    changed_word = 0;
    changed_by = (uint64_t)(int64_t)GH_ERR_NO_MEMORY;
    is_status(open_exchange(&(gh_exchange *){ NULL }), GH_ERR_RANKS, &err,
              "a rank that has failed fails all");
    ok(strstr(err.text, "rank 2 of 4 has failed (GH_ERR_NO_MEMORY)") != NULL,
       "with its name: %s", err.text);
    is_over("a rank that has failed", 0);
}

/* Who calls has one word less than is told: the rank's status comes first. */
static void test_words_are_read_to_their_end(void)
{
    uint64_t *word = tap_before_the_end(sizeof(*word));
    const uint64_t *told;
    gh_exchange *x = begin(GH_EXCHANGE_NCCL);

    *word = 7;
    is_status(gh_exchange_gather(x, GH_OK, word, 2, &told, &err), GH_OK, &err,
              "a word is told");
    ok(told[0] == GH_OK && told[1] == 7, "behind the status");
    tap_give_back(word, sizeof(*word));
    gh_exchange_close(x);
}

/* Once ranks have told where their memory is, another one may use it: if it is
 * not known that none does, it stays. */
static void test_exposed(void)
{
    gh_exchange *x = NULL;

    for (int gather = 1; gather <= 4; gather++) {
        reset(GH_EXCHANGE_COPY);
        failed_gather = gather;
        is_status(open_exchange(&x), GH_ERR_RANKS, &err,
                  "ranks do not come to gather %d", gather);
        ok(strstr(err.text, "nobody came") != NULL, "which is said: %s",
           err.text);
        is_over("ranks that do not come", gather == 1 ? 0 : 2);
    }
    reset(GH_EXCHANGE_AUTO);
    reaches = false;
    is_status(open_exchange(&x), GH_OK, &err,
              "memory out of reach is exchanged by NCCL");
    ok(x->stats.kind == GH_EXCHANGE_NCCL &&
           strstr(said, "all ranks use NCCL") != NULL,
       "which is said: %s", said);
    gh_exchange_close(x);
    is_over("memory out of reach", 0);
    reset(GH_EXCHANGE_COPY);
    reaches = false;
    is_status(open_exchange(&(gh_exchange *){ NULL }), GH_ERR_UNSUPPORTED, &err,
              "unless copy is wanted");
    is_over("memory out of reach", 0);
}

/* ---- what is small ------------------------------------------------------- */

#define ROOM(bytes) ((N + 1) * (UINT64_C(bytes) << 10)) /* KiB */

static void test_measured(void)
{
    static const struct {
        const char *what;
        uint64_t window, small;
        uint32_t word; /* of another rank's times; 0: they are equal */
        double us[10];
    } cases[] = {
        { "the kernel is faster up to 1 MiB", ROOM(16384), 1 << 20, 0,
          { 10, 8, 10, 8, 12, 12, 20, 21, 50, 60 } },
        { "the kernel is always faster", ROOM(16384), 16 << 20, 0,
          { 10, 8, 10, 8, 12, 8, 20, 8, 50, 8 } },
        { "3 % count as nothing, and 4 % do", ROOM(16384), 256 << 10, 0,
          { 10, 10.3, 10, 10.3, 10, 10.4, 10, 10.3, 10, 10.4 } },
        { "copies are always faster", ROOM(16384), 0, 0,
          { 10, 20, 10, 20, 12, 20, 20, 30, 50, 60 } },
        { "one size that was disturbed decides nothing", ROOM(16384), 16 << 20,
          0, { 10, 20, 10, 8, 12, 8, 20, 8, 50, 8 } },
        { "what is saved above is less than what is lost", ROOM(16384), 0, 0,
          { 10, 20, 10, 20, 10, 20, 10, 8, 10, 8 } },
        { "another rank's kernel is slower from 256 KiB on", ROOM(16384),
          64 << 10, 4, { 10, 8, 10, 8, 12, 8, 20, 8, 50, 8 } },
        { "another rank's copies are slower, too", ROOM(16384), 64 << 10, 1,
          { 10, 20, 10, 20, 12, 20, 20, 30, 50, 60 } },
        { "a window has room for one size", ROOM(256) - 1, 64 << 10, 0,
          { 10, 8, 10, 8, 12, 8, 20, 8, 50, 8 } },
        { "a window has room for none", ROOM(64) - 1, 4 << 20, 0, { 0 } },
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        gh_exchange_stats stats;
        gh_exchange *x = NULL;

        reset(GH_EXCHANGE_AUTO);
        options.measures = true;
        desc.window_bytes = cases[i].window;
        call_us = cases[i].us;
        n_elapsed = 0;
        changed_gather = cases[i].word != 0 ? 5 : 0;
        changed_word = cases[i].word;
        changed_by = 100000;
        is_status(open_exchange(&x), GH_OK, &err, "%s", cases[i].what);
        gh_exchange_count(x, &stats);
        is_int((long long)stats.small_bytes, (long long)cases[i].small,
               "%s: so many bytes are small", cases[i].what);
        ok(stats.calls == 0 && stats.kernel_calls == 0,
           "%s: nothing of that is counted", cases[i].what);
        gh_exchange_close(x);
        is_over(cases[i].what, 0);
    }
}

/* The smallest window is that of another rank. */
static void test_measured_in_unequal_windows(void)
{
    gh_exchange *x = NULL;

    reset(GH_EXCHANGE_AUTO);
    options.measures = true;
    desc.window_bytes = ROOM(64);
    changed_gather = 1;
    changed_word = 7;
    changed_by = (uint64_t)-1;
    n_elapsed = 0;
    is_status(open_exchange(&x), GH_OK, &err, "a window is smaller");
    is_int(n_elapsed, 0, "nothing is sent that does not fit there");
    gh_exchange_close(x);
}

/* The kernel sends to so many ranks in one launch. */
static void test_not_measured_for_many_ranks(void)
{
    gh_exchange *x = NULL;

    reset(GH_EXCHANGE_AUTO);
    desc.window_bytes = ROOM(64);
    is_status(open_exchange(&x), GH_OK, &err, "an exchange begins");
    n_elapsed = 0;
    x->n = GH_SENDS_A_LAUNCH + 1;
    is_status(gh_exchange_measure(x, &err), GH_OK, &err,
              "more ranks than a launch sends to begin too");
    x->n = N;
    is_int(n_elapsed, 0, "and nothing is measured");
    gh_exchange_close(x);
}

/* Where a rank does not come to the end of a measurement, others may still
 * write into the window. */
static void test_measured_by_some(void)
{
    static const double us[10] = { 0 };

    reset(GH_EXCHANGE_AUTO);
    options.measures = true;
    desc.window_bytes = ROOM(64);
    call_us = us;
    n_elapsed = 0;
    failed_gather = 5;
    is_status(open_exchange(&(gh_exchange *){ NULL }), GH_ERR_RANKS, &err,
              "a rank does not tell its times");
    is_over("a rank does not tell its times", 2);
}

static void test_calls_that_are_small(void)
{
    static const struct {
        const char *what;
        uint32_t flags;
        uint64_t small, bytes; /* to one rank; 40 to the others */
        uint32_t launched;
        bool shares;
    } cases[] = {
        { "as much as is small", GH_EXCHANGE_ALONE, 50, 50, 1, false },
        { "on a device that is shared", GH_EXCHANGE_ALONE, 50, 50, 0, true },
        { "a byte more", GH_EXCHANGE_ALONE, 50, 51, 0, false },
        { "beside other work", 0, 50, 50, 0, false },
        { "in turn", GH_EXCHANGE_ALONE | GH_EXCHANGE_TURN_1, 50, 50, 1, false },
        { "in turn beside other work", GH_EXCHANGE_TURN_1, 50, 50, 0, false },
        { "nothing, where nothing is small", GH_EXCHANGE_ALONE, 0, 0, 0, false },
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        gh_exchange_part parts[N] = { { 0 } };
        const gh_exchange_op op = { .struct_size = sizeof(op),
                                    .flags = cases[i].flags,
                                    .stream = STREAM,
                                    .send = calls,
                                    .parts = parts };
        gh_exchange *x = NULL;

        reset(GH_EXCHANGE_AUTO);
        options.small_bytes = cases[i].small;
        is_status(open_exchange(&x), GH_OK, &err, "an exchange begins");
        ok(x->shares, "all ranks here have one device");
        x->shares = cases[i].shares;
        for (uint32_t k = 0; k < N && cases[i].bytes != 0; k++) {
            parts[k].send_bytes = k == OTHER ? cases[i].bytes : 40;
        }
        /* What this rank keeps is not sent. */
        parts[RANK].send_bytes = parts[RANK].recv_bytes = 200;
        n_launched = 0;
        is_status(gh_exchange_issue(x, &op, &err), GH_OK, &err, "%s",
                  cases[i].what);
        is_int(n_launched, cases[i].launched, "%s: launches of the kernel",
               cases[i].what);
        gh_exchange_close(x);
    }
}

/* What goes to several ranks goes in one call, if the driver takes it, and not
 * in a capture. */
static void test_batches(void)
{
    static const struct {
        const char *what;
        void *stream;
        bool has, takes, captures;
        const char *calls;
    } cases[] = {
        /* Signs only once the driver is known to take batches. */
        { "in batches", STREAM, true, true, false,
          "put1 put1 put1 batch2 batch3 batch3 batch2 batch3 " },
        { "without batches", STREAM, false, true, false,
          "put1 put1 put1 put10 put1 put1 put20 put1 " },
        { "in a batch that is refused", STREAM, true, false, false,
          "put1 put1 put1 batch2 put10 put1 put1 put20 put1 " },
        { "captured", STREAM, true, true, true,
          "put1 put1 put1 put10 put1 put1 put20 put1 " },
        { "on the legacy stream", NULL, true, true, false,
          "put1 put1 put1 put10 put1 put1 put20 put1 " },
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        /* Rank 3 gets nothing. */
        gh_exchange_part parts[N] = { [2] = { .send_bytes = 10 },
                                      [0] = { .send_bytes = 20 } };
        const gh_exchange_op op = { .struct_size = sizeof(op),
                                    .stream = cases[i].stream,
                                    .send = calls,
                                    .parts = parts };
        gh_exchange *x = begin(GH_EXCHANGE_COPY);
        gh_exchange_stats stats;

        batches = cases[i].has;
        batch_taken = cases[i].takes;
        captures = cases[i].captures;
        is_status(gh_exchange_issue(x, &op, &err), GH_OK, &err, "%s",
                  cases[i].what);
        if (i == 0) {
            gh_exchange_issue(x, &op, &err);
        }
        is_str(calls, cases[i].calls, "%s", cases[i].what);
        gh_exchange_count(x, &stats);
        ok(stats.copied_bytes == 30 * stats.calls &&
               stats.signal_copies == 6 * stats.calls,
           "%s: bytes and signs are counted once", cases[i].what);
        captures = false;
        gh_exchange_close(x);
    }
}

/* ---- ends ---------------------------------------------------------------- */

static void test_ends(void)
{
    static const struct {
        const char *what;
        gh_exchange_kind kind;
        bool ended, comes, writes;
        int memory;
        const char *calls;
    } cases[] = {
        { "copies that have ended", GH_EXCHANGE_COPY, true, true, false, 0,
          "limit3 free free part parted " },
        { "a rank that does not come to the end", GH_EXCHANGE_COPY, true, false,
          false, 2, "limit3 leave parted " },
        { "a rank that may write still", GH_EXCHANGE_COPY, true, true, true, 2,
          "limit3 leave parted " },
        { "NCCL", GH_EXCHANGE_NCCL, true, true, false, 0,
          "limit3 free free part parted " },
        { "NCCL that does not end", GH_EXCHANGE_NCCL, false, true, false, 0,
          "abort:3 limit3 leave free free parted " },
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        gh_exchange *x = begin(cases[i].kind);

        ended = cases[i].ended;
        failed_gather = cases[i].comes ? 0 : n_gathers + 1;
        changed_gather = cases[i].writes ? n_gathers + 1 : 0;
        changed_word = changed_by = 1;
        gh_exchange_close(x);
        is_str(calls, cases[i].calls, "%s", cases[i].what);
        is_over(cases[i].what, cases[i].memory);
        ok(cases[i].memory == 0 ||
               strstr(said, "leaves its window, of 1000 bytes") != NULL,
           "which is said: %s", said);
    }
}

static void test_memory_that_is_left(void)
{
    gh_exchange *x = begin(GH_EXCHANGE_COPY);

    stuck = true;
    gh_exchange_close(x);
    stuck = false;
    ok(strstr(said, "leaves its memory to the context, as work on the device "
                    "has not ended in 3 s (GRAPHHOOKS_TIMEOUT)") != NULL,
       "memory that work of a graph keeps is left, which is said: %s", said);
}

/* A graph of the host's keeps NCCL: the host is told what to destroy. */
static void test_an_abort_that_stays(void)
{
    gh_exchange *x = begin(GH_EXCHANGE_NCCL);

    ended = job_is_over = false;
    gh_exchange_close(x);
    is_str(calls, "abort:3 limit3 leave free free parted ",
           "an abort that stays in NCCL is no longer waited for");
    ok(strstr(said, "NCCL has not aborted the host's communicator in 3 s "
                    "(GRAPHHOOKS_TIMEOUT): destroy the graphs that hold the "
                    "exchange") != NULL,
       "which is said: %s", said);
    is_over("an abort that stays", 0);
}

/* ---- who is missed ------------------------------------------------------- */

static void test_missed(void)
{
    static const struct {
        const char *what, *says;
        unsigned char ready[N], arrived[N], gone[N];
        bool idle;
    } cases[] = {
        { "nobody has come",
          "no part has come from ranks 0, 2, 3 in 3 s (GRAPHHOOKS_TIMEOUT), or "
          "all have, and other work keeps the stream busy",
          { 0 },
          { 0 },
          { 0 },
          false },
        { "one is ready, and one has put its part",
          "no part has come from rank 3 in 3 s (GRAPHHOOKS_TIMEOUT)",
          { 1, 0, 0, 0 },
          { 0, 0, 1, 0 },
          { 0 },
          false },
        { "one has put its part",
          "no part has come from ranks 2, 3 in 3 s",
          { 0 },
          { 1, 0, 0, 0 },
          { 0 },
          false },
        { "one is ready",
          "no part has come from ranks 0, 3 in 3 s",
          { 0, 0, 1, 0 },
          { 0 },
          { 0 },
          false },
        { "all have come",
          "the stream has not ended in 3 s",
          { 1, 0, 0, 0 },
          { 0, 0, 1, 1 },
          { 0 },
          false },
        { "a rank has given up",
          "rank 3 has given the exchange up, as some rank did not come in time "
          "(GRAPHHOOKS_TIMEOUT) or its driver failed",
          { 0 },
          { 0 },
          { 0, 0, 0, 1 },
          true },
        { "all is well", NULL, { 0 }, { 0 }, { 0 }, true },
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        gh_exchange *x = begin(GH_EXCHANGE_COPY);

        memcpy(ready, cases[i].ready, N);
        memcpy(arrived, cases[i].arrived, N);
        memcpy(gone, cases[i].gone, N);
        idle = cases[i].idle;
        is_status(gh_exchange_await(x, STREAM, &err),
                  cases[i].says == NULL ? GH_OK : GH_ERR_RANKS, &err, "%s",
                  cases[i].what);
        ok(cases[i].says == NULL || strstr(err.text, cases[i].says) != NULL,
           "which is said: %s", err.text);
        ok(cases[i].says == NULL ||
               gh_exchange_issue(x, &(gh_exchange_op){ .stream = STREAM },
                                 &err) == GH_ERR_RANKS,
           "and the exchange is over then");
        gh_exchange_close(x);
    }
}

static void test_missed_by_nccl(void)
{
    gh_exchange *x = begin(GH_EXCHANGE_NCCL);

    idle = false;
    is_status(gh_exchange_await(x, STREAM, &err), GH_ERR_RANKS, &err,
              "nobody comes to NCCL");
    ok(strstr(err.text, "a rank has not come, which NCCL does not name") !=
           NULL,
       "which is said: %s", err.text);
    idle = true;
    gh_exchange_close(x);
}

static void test_many_missed(void)
{
    gh_exchange *x = begin(GH_EXCHANGE_COPY);
    char text[64];

    x->n = 11;
    is_int(gh_flags_missed(x, text, sizeof(text)), 10,
           "of eleven ranks ten have not come");
    is_str(text, "0, 2, 3, 4, 5, 6, 7, 8", "the first eight are named");
    x->n = N;
    gh_exchange_close(x);
}

/* One of the exchange's own streams waits for something. */
static void test_a_lane_that_waits(void)
{
    gh_exchange *x = begin(GH_EXCHANGE_COPY);

    ok(x->n_lanes > 1, "copies go on several streams");
    busy = x->lanes[0].stream;
    ok(!gh_exchange_let_go(x, STREAM),
       "none is let go while one of them waits");
    ok(strstr(said, "its streams wait for something else still") != NULL,
       "which is said: %s", said);
    busy = NULL;
    ok(gh_exchange_let_go(x, STREAM), "until it has ended");
    gh_exchange_close(x);
}

static void test_over_and_waited_for(void)
{
    gh_exchange *x = begin(GH_EXCHANGE_COPY);

    idle = false;
    is_status(gh_exchange_await(x, STREAM, &err), GH_ERR_RANKS, &err,
              "nobody comes");
    said[0] = '\0';
    is_status(gh_exchange_await(x, STREAM, &err), GH_ERR_RANKS, &err,
              "a wait after that is refused");
    ok(strstr(said, "its streams wait for something else still") != NULL,
       "but tries to let the stream go: %s", said);
    gh_exchange_close(x);
}

/* ---- by copies ----------------------------------------------------------- */

static void test_each_peer_has_a_stream(void)
{
    const gh_exchange_op op = { .struct_size = sizeof(op),
                                .stream = STREAM,
                                .send = said,
                                .capacity = 100 };
    gh_exchange *x = begin(GH_EXCHANGE_COPY);

    is_status(gh_exchange_issue(x, &op, &err), GH_OK, &err, "parts are put");
    is_int(n_puts, N - 1, "one to each peer");
    ok(put_on[0] != put_on[1] && put_on[1] != put_on[2] &&
           put_on[0] != put_on[2],
       "and each on a stream of its own");
    gh_exchange_close(x);
}

/* Where the host captures the stream, nothing says when its graph has run. */
static void test_captured(void)
{
    const gh_exchange_op op = { .struct_size = sizeof(op),
                                .stream = STREAM,
                                .send = said,
                                .capacity = 100 };
    gh_exchange *x = begin(GH_EXCHANGE_NCCL);

    is_status(gh_exchange_issue(x, &op, &err), GH_OK, &err, "parts are sent");
    is_int(n_recorded, 1, "and their end is marked");
    captures = true;
    is_status(gh_exchange_issue(x, &op, &err), GH_OK, &err,
              "and are captured");
    is_int(n_recorded, 1, "where no mark is");
    gh_exchange_close(x);
}

/* A release writes to the other ranks: the end waits for it as for a call. */
static void test_released(void)
{
    gh_exchange *x = begin(GH_EXCHANGE_COPY);

    is_status(gh_exchange_issue_release(x, STREAM, &err), GH_OK, &err,
              "a window is released");
    is_int(n_recorded, 1, "and its end is marked");
    gh_exchange_close(x);
    x = begin(GH_EXCHANGE_COPY);
    captures = true;
    is_status(gh_exchange_issue_release(x, STREAM, &err), GH_OK, &err,
              "one is captured");
    is_int(n_recorded, 0, "where no mark is");
    captures = false;
    gh_exchange_close(x);
    is_str(calls, "put1 put1 put1 idle:8 limit3 free free part parted ",
           "and graphs are waited for");
}

static void test_a_window_of_the_hosts(void)
{
    static char window[1000];
    gh_exchange *x = NULL;

    reset(GH_EXCHANGE_NCCL);
    desc.window = window;
    is_status(open_exchange(&x), GH_OK, &err, "a host brings its window");
    gh_exchange_close(x);
    is_over("which stays the host's", 0);
}

/* ---- by NCCL ------------------------------------------------------------- */

static void test_parts(void)
{
    gh_exchange_part parts[N] = {
        { 1, 10, 0, 20, 30 }, { 2, 5, 50, 50, 5 }, { 3, 0, 0, 60, 7 }, { 0 }
    };
    const gh_exchange_op op = { .struct_size = sizeof(op),
                                .stream = STREAM,
                                .send = said,
                                .window_offset = 100,
                                .parts = parts };
    gh_exchange *x = begin(GH_EXCHANGE_NCCL);
    gh_exchange_stats stats;

    is_status(gh_exchange_issue(x, &op, &err), GH_OK, &err, "parts go");
    is_str(calls, "copy5 nccl ", "the own one by a copy");
    ok(sent[0].to == said + 1 && sent[0].to_bytes == 10 &&
           sent[0].from == (char *)gh_exchange_memory(x) + 120 &&
           sent[0].from_bytes == 30 && sent[2].to_bytes == 0 &&
           sent[2].from == (char *)gh_exchange_memory(x) + 160,
       "the others from and to their places");
    gh_exchange_count(x, &stats);
    is_int(stats.nccl_bytes, 10, "what goes to others is counted");
    is_int(stats.own_bytes, 5, "and what stays");
    is_int(stats.calls, 1, "and the call");
    gh_exchange_close(x);
}

int main(void)
{
    test_windows();
    test_capacities();
    test_own_part();
    test_window_sizes();
    test_agreement();
    test_words_are_read_to_their_end();
    test_exposed();
    test_measured();
    test_measured_in_unequal_windows();
    test_not_measured_for_many_ranks();
    test_measured_by_some();
    test_calls_that_are_small();
    test_batches();
    test_ends();
    test_an_abort_that_stays();
    test_memory_that_is_left();
    test_missed();
    test_missed_by_nccl();
    test_many_missed();
    test_a_lane_that_waits();
    test_over_and_waited_for();
    test_each_peer_has_a_stream();
    test_captured();
    test_released();
    test_a_window_of_the_hosts();
    test_parts();
    return done_with_device();
}
