/*
 * soft.h - what the files of the software device share.
 *
 * One process-wide device state, guarded by one mutex that every entry point
 * holds from soft_enter() to soft_leave().  Nothing outside softcuda/ includes
 * this.
 *
 * The life of a piece of work: an entry point fills the `work` of a fresh op
 * and hands it to stream_issue().  That makes it a node of a graph when the
 * stream is capturing; otherwise the op gets its dependencies and its place
 * in the happens-before order, and the engine runs it once they are met.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SOFTCUDA_SOFT_H
#define SOFTCUDA_SOFT_H

#include "driver/driver.h"
#include "softcuda/nodes.h"
#include "softcuda/softcuda.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SOFT_API __attribute__((visibility("default")))
#define SOFT_MAX_DEVICES 16
#define SOFT_VERSION 12080 /* the CUDA version that the device speaks */

/* The entry points themselves, and a number for each. */
#define DRV_ENTRY(name, version, signature) SOFT_API CUresult name signature;
#include "driver/entries.def"
#undef DRV_ENTRY

enum entry {
#define DRV_ENTRY(name, version, signature) E_##name,
#include "driver/entries.def"
#undef DRV_ENTRY
    N_ENTRIES
};

/* ---- order.c: lanes, vector clocks ------------------------------------ */

/* A snapshot of what is known about every lane; immutable once shared. */
struct vc {
    uint32_t refs;
    uint32_t n;
    uint64_t t[];
};

/* A point in the happens-before order: the epoch-th thing on a lane, which
 * comes after everything in vc. */
struct stamp {
    struct vc *vc;
    uint32_t lane;
    uint64_t epoch;
};

struct vc *vc_ref(struct vc *vc);
void vc_drop(struct vc *vc);
/* Adds what the stamp knows, and the stamp itself.  True if it was news. */
bool vc_join(struct vc **vc_p, const struct stamp *stamp);
uint64_t vc_get(const struct vc *vc, uint32_t lane);

uint32_t lane_take(void);
void lane_give(uint32_t lane);
uint64_t lane_next(uint32_t lane);
uint64_t lane_last(uint32_t lane);

void stamp_set(struct stamp *stamp, const struct stamp *value);
void stamp_clear(struct stamp *stamp);
void host_join(const struct stamp *stamp);

/* ---- work.c: one piece of work ---------------------------------------- */

enum work_kind {
    WORK_NONE, /* keeps order only: launch borders, waits */
    WORK_KERNEL,
    WORK_COPY,
    WORK_SET,
    WORK_HOST,
    WORK_RECORD,
    WORK_WAIT /* in a graph: an external wait, resolved at each launch */
};

enum side {
    SIDE_DEVICE,
    SIDE_PINNED,
    SIDE_PAGEABLE,
    N_SIDES
};

struct kernel {
    softcuda_kernel fn; /* name and param_bytes are copies */
    uint32_t *offsets;  /* of each argument in a blob */
    size_t blob_bytes;
    struct kernel *next;
};

struct work {
    enum work_kind kind;
    CUcontext ctx;
    union {
        struct {
            const struct kernel *kernel;
            softcuda_launch launch;
        } k;
        struct {
            char *dst;
            const char *src;
            size_t bytes;
            enum side dst_side, src_side;
        } copy;
        struct {
            char *dst;
            size_t count;
            uint32_t value, width;
        } set;
        struct {
            CUhostFn fn;
            void *user;
        } host;
        CUevent event;
    } u;
    char *blob; /* kernel: argument pointers and values; copy: staged bytes */
    size_t blob_room;
};

struct op;
bool work_reserve(struct work *work, size_t bytes);
void work_params(struct work *work, void *const *params);
bool work_clone(struct work *to, const struct work *from);
void work_clear(struct work *work);
/* Runs it; false when it touches memory that is not there. */
bool work_run(struct op *op, uint64_t *cost_ns);
void work_describe(const struct op *op, char *text, size_t bytes);
const char *work_name(const struct work *work);

/* ---- engine.c: operations and when they run --------------------------- */

/* Refers to an op without keeping it: ops are recycled once they have run,
 * and then only their serial and end time matter. */
struct mark {
    struct op *op;
    uint64_t serial;
    uint64_t end_ns;
};

struct op {
    uint64_t serial; /* changes when the op has run */
    uint64_t seq;
    struct op *next; /* in the free list */

    CUstream stream;
    const struct work *work; /* &own, or a node's */
    struct work own;
    CUgraphExec exec; /* held until the op has run */
    uint32_t node;

    struct stamp at;
    uint64_t ready_ns, end_ns;

    uint64_t need;
    uint32_t unmet, ready_index;
    struct mark *deps;
    uint32_t n_deps, deps_room;
    struct op **succ;
    uint32_t n_succ, succ_room;
};

struct op *op_new(void);
void op_discard(struct op *op);
void op_after(struct op *op, const struct mark *mark);
struct mark op_submit(struct op *op);
bool mark_pending(const struct mark *mark);

void engine_run_until(const struct mark *mark);
void engine_run_ctx(CUcontext ctx);
void engine_run_all(void);
bool engine_poll(const struct mark *mark);
void engine_pump(void);
void engine_seed(uint64_t seed);

/* ---- report.c: what was found, said once ------------------------------- */

enum {
    REPORTS_SEEN = 4096
};

struct reports {
    char **texts;
    uint64_t n;
    uint64_t seen[REPORTS_SEEN]; /* hashes of what was reported already */
};

uint64_t hash_start(void);
uint64_t hash_text(uint64_t hash, const char *text);
uint64_t hash_number(uint64_t hash, uint64_t number);
/* True for the first with this hash. */
bool reports_is_news(struct reports *reports, uint64_t hash);
/* Says it on standard error as "softcuda: `what`: `text`". */
void reports_add(struct reports *reports, const char *what, const char *text);
void reports_forget(struct reports *reports);
uint64_t reports_read(const struct reports *reports, uint64_t i,
                      const char **text_p);

/* ---- race.c: which accesses came before ------------------------------- */

struct shadow {
    struct shadow_entry *entries;
    uint32_t n, room;
};

struct alloc;
void race_access(struct alloc *alloc, size_t offset, size_t bytes, bool write,
                 const struct op *op);
void shadow_clear(struct shadow *shadow);
void race_forget_reports(void);

/* ---- unwritten.c: what nothing has written ----------------------------- */

struct hole {
    size_t first, end;
};

struct holes {
    struct hole *v;
    uint32_t n, room;
};

/* From now on nothing is written. */
void holes_all(struct holes *holes, size_t bytes);
void holes_clear(struct holes *holes);
void unwritten_write(struct alloc *alloc, size_t offset, size_t bytes);
/* What is not written of the one is then not written of the other. */
void unwritten_copy(struct alloc *to, size_t to_offset,
                    const struct alloc *from, size_t from_offset, size_t bytes);
/* The operation depends on these bytes. */
void unwritten_use(const struct alloc *alloc, size_t offset, size_t bytes,
                   const struct op *op);
void unwritten_forget_reports(void);

/* ---- memory.c --------------------------------------------------------- */

struct alloc {
    uintptr_t base;
    size_t bytes;
    enum side side;
    CUcontext ctx;
    uint64_t number;
    struct shadow shadow;
    struct holes holes; /* what nothing has written; none in pinned memory */
};

/* What is allocated on one side. */
struct tally {
    uint64_t n, bytes;
};

struct alloc *alloc_find(const void *address, size_t bytes);
struct tally alloc_tally(enum side side);
void alloc_forget_history(void);

/* ---- handle.c --------------------------------------------------------- */

enum handle_kind {
    HANDLE_FREE,
    HANDLE_STREAM,
    HANDLE_EVENT,
    HANDLE_MODULE,
    HANDLE_FUNCTION,
    HANDLE_GRAPH,
    HANDLE_EXEC,
    N_HANDLE_KINDS
};

bool handle_add(void *object, enum handle_kind kind);
void handle_remove(void *object);
bool handle_is(const void *object, enum handle_kind kind);
uint64_t handle_count(enum handle_kind kind);

/* ---- objects ---------------------------------------------------------- */

struct CUctx_st {
    int device;
    uint64_t retained;
    CUresult sticky; /* what every call answers after a wild access */
    CUstream legacy;
    CUstream streams; /* all but the legacy stream */
    struct vc *gone;  /* what destroyed streams had done */
    uint64_t gone_ns;
    size_t used;
};

extern struct CUctx_st contexts[SOFT_MAX_DEVICES];

struct CUstream_st {
    CUcontext ctx;
    uint32_t number; /* 0: the legacy stream; in reports */
    bool blocking;
    bool is_default; /* legacy or per-thread: not the program's to destroy */
    uint64_t thread; /* whose per-thread stream this is */
    int priority;
    struct mark tail;

    struct vc *vc;
    uint64_t host_seen;
    uint32_t lane;
    uint32_t *branches; /* lanes of the side branches of graphs */
    uint32_t n_branches;

    struct capture *capture;
    struct nodes deps; /* while capturing: what the next node comes after */
    CUstream next;
};

enum event_state {
    EVENT_NEVER,
    EVENT_RECORDED,
    EVENT_CAPTURED
};

struct CUevent_st {
    uint32_t refs;
    unsigned int flags;
    CUcontext ctx;
    enum event_state state;
    struct mark mark;
    struct stamp at;
    uint64_t capture; /* id of the capture that recorded it */
    struct nodes nodes;
};

struct capture {
    uint64_t id;
    uint64_t thread;
    CUstreamCaptureMode mode;
    bool invalid;
    CUstream origin;
    CUgraph graph;
    struct capture *next;
};

struct node {
    struct work work;
    struct nodes deps;
    uint32_t lane; /* branch of the graph; 0 shares the stream's lane */
    uint32_t n_after;
    int priority; /* of the stream that it was captured on */
};

struct CUgraph_st {
    struct node *nodes;
    uint32_t n, room;
};

struct CUgraphExec_st {
    uint32_t refs;
    uint32_t number;
    uint32_t n, width;
    bool node_priority; /* its kernels run at their own, not the stream's */
    struct node *nodes;
    struct mark *marks; /* of the launch being issued */
    struct stamp *stamps;
    struct mark last; /* an exec never runs beside itself */
    struct stamp at;
};

struct CUmod_st {
    CUcontext ctx;
    struct CUfunc_st *functions;
    uint32_t n;
};

struct CUfunc_st {
    CUcontext ctx;
    const struct kernel *kernel;
};

/* stream.c */
CUresult stream_use(CUstream handle, CUstream *stream_p);
CUresult stream_issuable(CUstream handle, CUstream *stream_p);
CUresult stream_issue(CUstream stream, struct op *op);
void stream_place(CUstream stream, struct op *op);
struct stamp stream_stamp(CUstream stream);
CUstream stream_legacy(CUcontext ctx);
void stream_wait_host(CUstream stream);
/* capture.c */
struct capture *capture_find(uint64_t id);
CUresult capture_add(CUstream stream, struct op *op);
CUresult capture_join(CUstream stream, CUevent event);
void capture_invalidate(struct capture *capture);
CUresult capture_forbids_unsafe(void);
CUresult capture_forbids_ctx(CUcontext ctx);
bool capture_implicit(CUcontext ctx, bool invalidate);
void capture_leave(CUstream stream);
uint64_t capture_streams(void);
/* graph.c */
void graph_free(CUgraph graph);
void exec_drop(CUgraphExec exec);
/* event.c */
void event_drop(CUevent event);
void event_set(CUevent event, const struct mark *mark,
               const struct stamp *stamp);
/* device.c */
CUresult ctx_current(CUcontext *ctx_p);

/* ---- the state --------------------------------------------------------- */

struct settings {
    uint64_t seed, drop_wait, devices, memory;
    bool races, unwritten, trace, pageable;
};

struct soft {
    bool inited;
    struct settings set;
    struct vc *host; /* what every later call comes after */
    uint64_t host_version;
    uint64_t host_ns, last_ns, clock_base;

    uint64_t pending, waits, launches, prioritized;
};

extern struct soft soft;

struct thread_state {
    uint64_t id;
    CUcontext ctx;
    CUstreamCaptureMode mode;
    bool in_callback;
};

struct thread_state *thread_self(void);

/* control.c */
void soft_lock(void);
void soft_unlock(void);
CUresult soft_enter(enum entry entry);
CUresult soft_leave(CUresult code);
extern const char *const entry_names[];
extern const int entry_versions[];

/* ---- what the entry points do; entries.c wraps each -------------------- */

CUresult dev_init(unsigned int flags);
CUresult dev_version(int *version_p);
CUresult dev_error_name(CUresult code, const char **name_p);
CUresult dev_error_text(CUresult code, const char **text_p);
CUresult dev_get(CUdevice *device_p, int ordinal);
CUresult dev_count(int *count_p);
CUresult dev_name(char *name, int bytes, CUdevice device);
CUresult dev_attribute(int *value_p, CUdevice_attribute what, CUdevice device);
CUresult ctx_retain(CUcontext *ctx_p, CUdevice device);
CUresult ctx_release(CUdevice device);
CUresult ctx_get(CUcontext *ctx_p);
CUresult ctx_set(CUcontext ctx);
CUresult ctx_device(CUdevice *device_p);
CUresult ctx_sync(void);
CUresult ctx_priorities(int *least_p, int *greatest_p);

CUresult mem_info(size_t *free_p, size_t *total_p);
CUresult mem_alloc(CUdeviceptr *address_p, size_t bytes);
CUresult mem_free(CUdeviceptr address);
CUresult mem_alloc_host(void **address_p, size_t bytes);
CUresult mem_free_host(void *address);
CUresult mem_to_device(CUdeviceptr dst, const void *src, size_t bytes);
CUresult mem_to_host(void *dst, CUdeviceptr src, size_t bytes);
CUresult mem_to_device_async(CUdeviceptr dst, const void *src, size_t bytes,
                             CUstream stream);
CUresult mem_to_host_async(void *dst, CUdeviceptr src, size_t bytes,
                           CUstream stream);
CUresult mem_copy_async(CUdeviceptr dst, CUdeviceptr src, size_t bytes,
                        CUstream stream);
CUresult mem_set(CUdeviceptr dst, uint32_t value, uint32_t width, size_t count,
                 CUstream stream);

CUresult strm_create(CUstream *stream_p, unsigned int flags, int priority);
CUresult strm_destroy(CUstream stream);
CUresult strm_sync(CUstream stream);
CUresult strm_query(CUstream stream);
CUresult strm_priority(CUstream stream, int *priority_p);
CUresult strm_ctx(CUstream stream, CUcontext *ctx_p);
CUresult strm_wait(CUstream stream, CUevent event, unsigned int flags);
CUresult strm_host(CUstream stream, CUhostFn fn, void *user);
CUresult ev_create(CUevent *event_p, unsigned int flags);
CUresult ev_destroy(CUevent event);
CUresult ev_record(CUevent event, CUstream stream, unsigned int flags);
CUresult ev_query(CUevent event);
CUresult ev_sync(CUevent event);
CUresult ev_elapsed(float *ms_p, CUevent start, CUevent end);

CUresult mod_load(CUmodule *module_p, const void *image);
CUresult mod_unload(CUmodule module);
CUresult mod_function(CUfunction *function_p, CUmodule module,
                      const char *name);
CUresult krn_launch(CUfunction function, const softcuda_launch *launch,
                    CUstream stream, void **params, void **extra);

CUresult cap_exchange(CUstreamCaptureMode *mode);
CUresult cap_begin(CUstream stream, CUstreamCaptureMode mode);
CUresult cap_end(CUstream stream, CUgraph *graph_p);
CUresult cap_status(CUstream stream, CUstreamCaptureStatus *status_p);
CUresult grf_nodes(CUgraph graph, CUgraphNode *nodes, size_t *count_p);
CUresult grf_instantiate(CUgraphExec *exec_p, CUgraph graph,
                         unsigned long long flags);
CUresult grf_upload(CUgraphExec exec, CUstream stream);
CUresult grf_launch(CUgraphExec exec, CUstream stream);
CUresult grf_destroy(CUgraph graph);
CUresult grf_exec_destroy(CUgraphExec exec);

#endif
