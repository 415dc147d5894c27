/*
 * toy.h - the smallest host: integer layers that are exact to check.
 *
 * A toy model has parts that each compute y = 3 x + k forward, and backward
 * gx = 5 gy + y and w += gy + y, all on uint32_t, so that a wrong buffer, a
 * lost update or a stale input shows in the sum.  With delayed weight
 * gradients the backward keeps gy in the set, and a pass of its own adds to w.
 * Each set of buffers has
 * sums w of its own, so that between microbatches on different streams there
 * is no order but the one that the library keeps.  It runs on the driver named
 * by GRAPHHOOKS_TEST_DRIVER, the software device unless that says cuda, and
 * drives a session exactly as graphhooks/layer.h asks.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SUPPORT_TOY_H
#define SUPPORT_TOY_H

#include <graphhooks.h>

#include "driver/driver.h"
#include "softcuda/softcuda.h"

#include <stdbool.h>

#define TOY_MAX_PARTS 16
#define TOY_MAX_SETS 16
#define TOY_MAX_FEEDS 16
#define TOY_STREAMS 3

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

struct toy_options {
    uint32_t layers;            /* of two parts each */
    const gh_layer_desc *layer; /* what each is, for passes made by hand;
                                   NULL: dense */
    uint32_t chunks;            /* of equal numbers of layers, for passes made
                                   by hand; 0: 1 */
    uint32_t elems;             /* uint32_t per buffer */
    uint32_t max_slots;         /* the session's, and sets of buffers; 0: 8 */
    uint32_t in_flight;         /* microbatches; 0: 1 */
    uint32_t streams;   /* microbatch m runs on stream m % streams; 0: 1 */
    bool blocking;      /* blocking streams, which the legacy one waits for */
    bool legacy;        /* everything on the legacy default stream */
    bool copied_inputs; /* between segments too, not only at the ends */
    bool moving_inputs; /* hand over between segments by buffers that move */
    bool free_running;  /* does not wait for the device after a step */
    bool raw;    /* nothing but the sums is written before the first step */
    bool padded; /* buffers are handed over with the padding after them */
    const char *scope, *granularity;
    const char *family;             /* of every layer; NULL: none */
    const char *const *environment; /* NULL: an empty one */
    const gh_host_services *host;
    uint32_t flags; /* of gh_session_desc */
    enum toy_wgrad wgrad;
    uint32_t wgrad_lag; /* LATER: how many microbatches later */
    uint32_t warmup_steps;
};

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
    gh_segment segments[2 * TOY_MAX_PARTS];
    uint32_t n_segments;
    uint32_t set_of[TOY_MAX_FEEDS]; /* by microbatch */
    uint32_t taken;                 /* bit i: set i is in use */
    uint32_t step;

    enum toy_mischief mischief; /* done in the pass below */
    uint32_t mischief_segment;
    gh_direction mischief_direction;
    uint32_t mischiefs_done;
    bool lies_when_checked; /* runs a wrong part in a GH_REASON_CHECK pass */
    bool forgets;           /* the last part of each forward pass */
    uint32_t reruns;
    gh_error err; /* of the last call that failed */
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
void toy_detach(struct toy *toy);
void toy_close(struct toy *toy);

/* One training step; the text of a failure is in toy->err. */
gh_status toy_step(struct toy *toy, uint32_t microbatches);
/* Enters and exits a pass, with no work in between; one that is refused has
 * action UINT32_MAX and no slot. */
gh_decision toy_empty_pass(struct toy *toy, const gh_pass *pass);
/* Whether an enter fails, and leaves a decision as it was, that is `tail`
 * bytes larger than this release's; at most 16. */
bool toy_keeps_decision(struct toy *toy, const gh_pass *pass, uint32_t tail);
/* A hash of every weight; waits for the device. */
uint64_t toy_hash(struct toy *toy);
/* What toy_hash() must give after these steps, computed on the host. */
uint64_t toy_expect(const struct toy_options *options, const uint32_t *steps,
                    uint32_t n_steps);

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
/* The next word of a hash. */
uint64_t toy_fold(uint64_t hash, uint32_t word);
/* d = f * a + b + k, of n words; b 0: nothing. */
CUresult toy_mix(struct toy *toy, CUdeviceptr d, CUdeviceptr a, CUdeviceptr b,
                 uint32_t f, uint32_t k, uint32_t n, CUstream stream);
/* d += a + b. */
CUresult toy_add(struct toy *toy, CUdeviceptr d, CUdeviceptr a, CUdeviceptr b,
                 uint32_t n, CUstream stream);

#endif
