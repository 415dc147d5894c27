/*
 * toy.h - the host that most tests drive: integer layers, exact to check.
 *
 * Each layer has two parts that compute y = 3 x + k forward, and backward
 * gx = 5 gy + y and w += gy + y, all on uint32_t, so that a wrong buffer, a
 * lost update or a stale input shows in the sums w, which are followed on the
 * CPU.  Options change what it does besides:
 *
 * - With `modules` it offloads: a part adds to y each tensor of its groups,
 *   which is x + j; its backward adds 7 t to gx for each tensor t, and t + gy
 *   to a sum of the group, in the place of w.
 * - toy_add_shape() gives it shapes: a microbatch has as many words as its
 *   shape, in the shape's bank.
 * - With `wgrad` its weight gradients run later: the backward keeps gy in the
 *   set, and a pass of its own adds to w.
 *
 * Each set of buffers has sums of its own: between microbatches on different
 * streams there is no order but the library's.  It runs on the driver named by
 * GRAPHHOOKS_TEST_DRIVER, the software device unless that says cuda.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SUPPORT_TOY_H
#define SUPPORT_TOY_H

#include <graphhooks.h>
#include <graphhooks/offload.h>

#include "driver/driver.h"
#include "softcuda/softcuda.h"
#include "support/lender.h"

#include <stdbool.h>

#define TOY_MAX_PARTS 16
#define TOY_MAX_MODULES 4
#define TOY_MAX_TENSORS 4
#define TOY_MAX_CHUNKS 2
#define TOY_MAX_SHAPES 64
#define TOY_STREAMS 3
#define TOY_MAX_FEEDS (8 * TOY_STREAMS) /* microbatches; 8 may be in flight */
#define TOY_MAX_SETS (8 + 2 * TOY_MAX_FEEDS) /* of a toy that offloads */

/* The modules of a layer, in turn in its first part and in its second. */
extern const uint32_t toy_modules[TOY_MAX_MODULES];
#define TOY_MODULES "core_attn,own_a,own_b" /* but the last */

/* What a badly behaved host does inside a pass that is being recorded. */
enum toy_mischief {
    TOY_GOOD,
    TOY_SYNC,         /* waits for the stream */
    TOY_ALLOC,        /* allocates device memory */
    TOY_LEGACY,       /* launches on the legacy stream */
    TOY_UNJOINED,     /* forks to a side stream and never joins */
    TOY_OUTSIDE,      /* waits for an event of before the capture */
    TOY_OTHER_THREAD, /* calls exit from another thread */
    TOY_ELSEWHERE,    /* issues its work on a stream of its own */
    TOY_N_MISCHIEFS
};

/* When the weight gradients run. */
enum toy_wgrad {
    TOY_WGRAD_JOINED, /* in the backward */
    TOY_WGRAD_LATER,  /* those of a microbatch some microbatches later */
    TOY_WGRAD_BESIDE  /* each right after its backward, on the last stream;
                         the first segment's in its backward */
};

struct toy;

struct toy_options {
    uint32_t layers;            /* of two parts each */
    const gh_layer_desc *layer; /* what each is, for passes made by hand;
                                   NULL: dense */
    uint32_t chunks;            /* of equal numbers of layers; 0: 1 */
    uint32_t elems;             /* uint32_t per buffer */
    uint32_t max_slots;         /* the session's, and sets of buffers; 0: 8 */
    uint32_t in_flight;         /* microbatches, at most 8; 0: 1 */
    uint32_t streams;           /* that microbatches take in turn; 0: 1 */
    bool blocking;      /* blocking streams, which the legacy one waits for */
    bool legacy;        /* everything on the legacy default stream */
    bool copied_inputs; /* between segments too, not only at the ends */
    bool moving_inputs; /* hand over between segments by buffers that move */
    bool by_capacity;   /* inputs have what a microbatch has, and shapes what
                           there may be */
    bool free_running;  /* does not wait for the device after a step */
    bool waits;         /* waits for the device after each pass */
    bool raw;    /* nothing but the sums is written before the first step */
    bool padded; /* buffers are handed over with the padding after them */
    bool last_first;   /* backwards in the other order */
    bool side_by_side; /* those in flight in turn, segment by segment */
    bool evaluates;    /* a forward without a backward, before each */
    const char *scope, *granularity;
    const char *family;             /* of every layer; NULL: none */
    const char *const *environment; /* NULL: an empty one */
    const gh_host_services *host;
    uint32_t flags; /* of gh_session_desc */
    enum toy_wgrad wgrad;
    uint32_t wgrad_lag; /* LATER: how many microbatches later */
    uint32_t suspends; /* by this seed the session is suspended, and resumed,
                          after some backwards and steps, where it may be; 0:
                          never */
    uint32_t warmup_steps;

    uint32_t modules;        /* groups of a layer; 0: it does not offload */
    uint32_t tensors;        /* of a group; each has half of the one before */
    gh_offload_desc offload; /* struct_size 0: all modules, from 4 bytes */
    bool flushes;            /* calls gh_flush_delayed after each pass */
    gh_status (*flush)(struct toy *); /* instead; NULL: none */
    bool across;       /* group 0 is read and committed by the layer's second
                          part, and loaded by its backward */
    bool loads_across; /* only the latter */
    bool at_once;      /* a pass commits and releases at its end */
    bool own;          /* groups lie where the host's allocator puts them */
    bool views;  /* the same: the tensors of a group begin together, so that
                    the first has all of them */
    bool unlent; /* the same, and no service says when they are free */
};

/* After each call of graphhooks/offload.h that the host makes, and, with
 * watches_entries, after it has entered a pass whose parts it runs. */
enum toy_call {
    TOY_SAVE,
    TOY_COMMIT,
    TOY_LOAD,
    TOY_RELEASE,
    TOY_ENTER
};
enum toy_answer {
    TOY_GO_ON,
    TOY_AGAIN, /* cancel, and enter the same pass again */
    TOY_STOP   /* cancel, and give the step up */
};
typedef enum toy_answer toy_watch_fn(struct toy *toy, enum toy_call call,
                                     uint32_t layer, uint32_t module,
                                     uint32_t microbatch);

/* Where the first tensors of a layer's groups are, by set. */
typedef gh_offload_tensor toy_tensors[TOY_MAX_SETS][TOY_MAX_PARTS]
                                     [TOY_MAX_TENSORS];

struct toy {
    struct toy_options options;
    struct driver drv;
    bool soft;
    CUcontext ctx;
    CUmodule module;
    CUfunction mix, add;
    CUstream streams[TOY_STREAMS], side;
    CUevent fork;
    CUdeviceptr memory; /* one block, cut into all buffers */
    uint64_t memory_bytes;
    uint32_t n_parts, n_sets;

    gh_session *session; /* NULL: eager, without the library */
    gh_segment segments[4 * TOY_MAX_PARTS];
    uint32_t n_segments;
    uint32_t set_of[TOY_MAX_CHUNKS][TOY_MAX_FEEDS]; /* by microbatch */
    uint32_t step;
    uint32_t *sums;       /* expected */
    uint32_t *kept_sums;  /* the same and the device's, before the step */
    gh_decision decision; /* of the last pass that was entered */
    void *group;          /* of the passes; NULL: not said */

    uint32_t words[TOY_MAX_FEEDS]; /* of a microbatch; 0: options.elems */
    struct {
        uint32_t bank, elems;
    } shapes[TOY_MAX_SHAPES];
    uint32_t n_shapes;
    uint32_t shape_of[TOY_MAX_FEEDS];
    uint32_t less;         /* by_capacity: words that a microbatch lacks */
    uint32_t short_checks; /* compared passes whose input was no shape's */

    enum toy_mischief mischief; /* done in the pass below */
    uint32_t mischief_segment;
    gh_direction mischief_direction;
    uint32_t mischiefs_done;
    bool lies_when_checked; /* runs a wrong part in a GH_REASON_CHECK pass */
    bool forgets;           /* the last part of each forward pass */
    uint32_t reruns;

    struct lender lender;     /* of groups that are the host's own */
    gh_host_services host;    /* the options', and the lender's */
    bool grows;               /* the groups alone are twice as large */
    bool evaluates_only;      /* no backward, and no forward for it */
    bool loads_nothing;       /* the backward reads no groups */
    uint32_t trained_modules; /* that training saves; 0: all; more than there
                                 are: none */
    toy_watch_fn *watch;      /* NULL: none */
    bool watches_entries;
    void *user;
    struct {
        uint32_t layer, k;
        struct lent_block *block;
    } pending[TOY_MAX_PARTS * TOY_MAX_MODULES]; /* at_once */
    uint32_t n_pending;
    bool tries_again; /* a pass whose call fails is cancelled, entered again */
    /* By direction: where they are, and where a recording was told, which is
     * where its replay has them. */
    toy_tensors across[2], recorded[2];
    void *at[TOY_MAX_PARTS][TOY_MAX_MODULES];      /* the last first address,
                                                      forward */
    void *back_at[TOY_MAX_PARTS][TOY_MAX_MODULES]; /* and backward */
    uint64_t calls;     /* to graphhooks/offload.h, in this step */
    bool mode_fails;    /* was told to: the thread may keep the library's mode */
    const char *at_end; /* toy_configure() as the step ends; NULL: nothing */
    uint32_t noise;     /* of `suspends` */
    uint64_t suspended, awake; /* times that it was, and that it could not */
    bool stopped;       /* by the watch */
    bool has_added;     /* a backward of this step to a sum */
    gh_error err;       /* of the last call that failed */
};

/* A driver and a device; false with the reason for skip_all(). */
bool toy_open(struct toy *toy, const struct toy_options *options,
              const char **reason_p);
/* Whether a device is there, by opening and closing the smallest toy; false
 * as toy_open().  toy->soft says afterwards what the device is. */
bool toy_probe(struct toy *toy, const char **reason_p);
/* The same of the software device, for tests of failures and races.  False:
 * the points are skipped, and *status_p is what main returns. */
bool toy_probe_soft(int *status_p);
/* Opens the session; without it toy_step() is eager. */
gh_status toy_attach(struct toy *toy);
/* Both, with these settings of the device in between, or NULL.  False: a point
 * that has failed says why, and nothing is open. */
bool toy_start(struct toy *toy, const struct toy_options *options,
               const char *settings);
void toy_detach(struct toy *toy);
void toy_close(struct toy *toy);

/* One training step, with gh_iteration_end; the text of a failure is in
 * toy->err.  Of a step that is watched, and fails or is stopped, the sums are
 * as before. */
gh_status toy_step(struct toy *toy, uint32_t microbatches);
/* One for each count of microbatches, until one fails. */
gh_status toy_train(struct toy *toy, const uint32_t *counts, uint32_t n);
/* The parts of a step. */
gh_status toy_forward(struct toy *toy, uint32_t m);
gh_status toy_backward(struct toy *toy, uint32_t m);
gh_status toy_end_step(struct toy *toy);
/* A shape of so many words, in a bank of its own; of bank 0 where `desc` is
 * NULL.  Returns its index here. */
uint32_t toy_add_shape(struct toy *toy, uint32_t elems,
                       const gh_bank_desc *desc);
/* The same with a plain bank of so many tokens. */
uint32_t toy_add_tokens(struct toy *toy, uint32_t elems);
/* A step, or a forward, of microbatches of these shapes. */
gh_status toy_step_shapes(struct toy *toy, const uint32_t *shapes, uint32_t n);
gh_status toy_forward_shape(struct toy *toy, uint32_t m, uint32_t shape);

/* Enters and exits a pass, with no work in between; one that is refused has
 * action UINT32_MAX and no slot. */
gh_decision toy_empty_pass(struct toy *toy, const gh_pass *pass);
/* Whether an enter fails, and leaves a decision as it was, that is `tail`
 * bytes larger than this release's; at most 16. */
bool toy_keeps_decision(struct toy *toy, const gh_pass *pass, uint32_t tail);
/* Whether every sum is what it must be; waits for the device. */
bool toy_is_exact(struct toy *toy);

gh_bank_stats toy_bank_stats(struct toy *toy, uint32_t shape);
gh_offload_stats toy_moved(struct toy *toy);
gh_stats toy_stats(struct toy *toy);
/* Passes that ran eagerly for a reason. */
uint64_t toy_eager(struct toy *toy, gh_reason reason);

/* softcuda's controls; NULL on a real driver. */
void *toy_control(struct toy *toy, const char *symbol);
/* Applies softcuda_configure; false on a real driver. */
bool toy_configure(struct toy *toy, const char *settings);
uint64_t toy_races(struct toy *toy);
/* Reads of what nothing had written; the text of the first, or NULL. */
uint64_t toy_unwritten(struct toy *toy, const char **text_p);
/* The same of uses of addresses that have no memory. */
uint64_t toy_unmapped(struct toy *toy, const char **text_p);

/* What trainings with `suspends` have come to. */
struct toy_suspensions {
    uint64_t wrong, suspended, awake;
};
/* Adds one that has ended, `ran` if no call has failed, and closes it. */
void toy_end_suspending(struct toy *toy, bool ran, const char *name,
                        uint32_t seed, struct toy_suspensions *all);
/* One point, of all of a name. */
void toy_judge_suspensions(const char *name, const struct toy_suspensions *all);
softcuda_counts toy_counts(struct toy *toy);
/* What of them a host has to give back. */
uint64_t toy_objects(const softcuda_counts *counts);
/* How often an entry point of the device was called. */
uint64_t toy_calls(struct toy *toy, const char *entry);

/* ---- for hosts that have a toy for their device -------------------------- */

/* The driver of a session's description, by GRAPHHOOKS_TEST_DRIVER. */
const char *toy_driver(void);
/* As many equal layers, in chunks of equal numbers of them. */
gh_model *toy_model(gh_layer_desc layer, uint32_t layers, uint32_t chunks);
/* Every segment of the chunks, the first chunk's first; returns how many. */
uint32_t toy_segments(gh_session *session, uint32_t chunks,
                      gh_segment *segments);
gh_buffer toy_buffer(CUdeviceptr address, uint64_t bytes, uint32_t flags);
/* From one buffer of so many words to the next. */
uint64_t toy_stride(uint32_t elems);
/* d = f * a + b + k, of n words; b 0: nothing. */
CUresult toy_mix(struct toy *toy, CUdeviceptr d, CUdeviceptr a, CUdeviceptr b,
                 uint32_t f, uint32_t k, uint32_t n, CUstream stream);
/* d += a + b. */
CUresult toy_add(struct toy *toy, CUdeviceptr d, CUdeviceptr a, CUdeviceptr b,
                 uint32_t n, CUstream stream);

#endif
