/*
 * saver.h - the smallest host that offloads: integer layers whose backward
 * reads what their forward has kept.
 *
 * A part computes y = 3 x + k, and adds to y each tensor of its groups, which
 * is x + j.  Its backward computes gx = 5 gy, adds 7 t to gx for each tensor t
 * and adds t + gy to a sum of the group.  All is uint32_t, so that bytes that
 * are stale, of another microbatch or of another layer show in the sums, which
 * are followed on the CPU.  Each set of buffers has sums of its own: between
 * microbatches on different streams there is no order but the library's.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef SUPPORT_SAVER_H
#define SUPPORT_SAVER_H

#include <graphhooks/offload.h>

#include "support/lender.h"
#include "support/toy.h"

#define SAVER_MAX_PARTS 16
#define SAVER_MAX_MODULES 4
#define SAVER_MAX_TENSORS 4
#define SAVER_MAX_FEEDS 16
#define SAVER_MAX_SETS (8 + 2 * SAVER_MAX_FEEDS)

/* The modules of a layer, in turn in its first part and in its second. */
extern const uint32_t saver_modules[SAVER_MAX_MODULES];
#define SAVER_ALL "core_attn,own_a,own_b" /* but the last */

struct saver;

struct saver_options {
    uint32_t layers, chunks;  /* 0 chunks: 1 */
    uint32_t modules;         /* groups of a layer */
    uint32_t tensors;         /* of a group; each has half of the one before */
    uint32_t elems;           /* of the first */
    uint32_t slots;           /* at most 8; 0: 8 */
    uint32_t in_flight;       /* at most 5; 0: 1 */
    uint32_t streams;         /* at most 3, that microbatches take in turn */
    bool last_first;          /* backwards in the other order */
    bool side_by_side;        /* those in flight in turn, segment by segment */
    bool flushes;             /* calls gh_flush_delayed after each pass */
    gh_status (*flush)(struct saver *); /* in its place; NULL: none */
    bool across;              /* group 0 is read and committed by the layer's
                                 second part, and loaded by its backward */
    bool loads_across;        /* only the latter */
    bool at_once;             /* a pass commits and releases at its end */
    bool evaluates;           /* a forward without a backward, before each */
    bool own;           /* groups lie where the host's allocator puts them */
    bool waits;         /* waits for the device after each pass */
    bool views;         /* the same: the tensors of a group begin together, so
                           that the first has all of them */
    bool unlent;        /* the same, and no service says when they are free */
    bool free_running;        /* does not wait for the device after a step */
    const char *granularity, *scope;
    gh_offload_desc offload;  /* struct_size 0: all modules, from 4 bytes */
    const char *const *environment; /* NULL: an empty one */
    const gh_host_services *host;
    uint32_t flags; /* of gh_session_desc */
};

/* After each call of graphhooks/offload.h that the host makes, and, with
 * watches_entries, after it has entered a pass whose parts it runs. */
enum saver_call {
    SAVER_SAVE,
    SAVER_COMMIT,
    SAVER_LOAD,
    SAVER_RELEASE,
    SAVER_ENTER
};
enum saver_answer {
    SAVER_GO_ON,
    SAVER_AGAIN, /* cancel, and enter the same pass again */
    SAVER_STOP   /* cancel, and give the step up */
};
typedef enum saver_answer saver_watch_fn(struct saver *saver,
                                         enum saver_call call, uint32_t layer,
                                         uint32_t module, uint32_t microbatch);

struct saver {
    struct saver_options options;
    struct toy toy; /* the device; its session stays NULL */
    struct lender lender; /* of groups that are the host's own */
    gh_host_services host; /* the options', and the lender's */
    gh_session *session;
    gh_segment segments[2 * SAVER_MAX_PARTS];
    uint32_t n_segments, n_parts, n_sets, n_chunks;
    CUdeviceptr memory;
    uint32_t set_of[2][SAVER_MAX_FEEDS]; /* by chunk and microbatch */
    uint32_t step;
    uint32_t words[SAVER_MAX_FEEDS]; /* of a microbatch; 0: options.elems */
    bool grows;                      /* the groups alone are twice as large */
    bool evaluates_only;             /* no backward, and no forward for it */
    bool loads_nothing;              /* the backward reads no groups */
    uint32_t trained_modules;        /* that training saves; 0: all; more than
                                        there are: none */
    uint32_t *sums;                  /* expected */
    uint32_t *kept_device;           /* the device's, before the step */

    saver_watch_fn *watch; /* NULL: none */
    bool watches_entries;
    void *user;
    struct {
        uint32_t layer, k;
        struct lent_block *block;
    } pending[SAVER_MAX_PARTS * SAVER_MAX_MODULES]; /* at_once */
    uint32_t n_pending;
    bool tries_again; /* a pass whose call fails is cancelled, entered again */
    /* By direction, set and layer: a replay does not say it again, but has it
     * where it was recorded. */
    gh_offload_tensor across[2][SAVER_MAX_SETS][SAVER_MAX_PARTS]
                            [SAVER_MAX_TENSORS];
    /* The same as a recording was told: a replay has them there. */
    gh_offload_tensor recorded[2][SAVER_MAX_SETS][SAVER_MAX_PARTS]
                              [SAVER_MAX_TENSORS];
    void *at[SAVER_MAX_PARTS][SAVER_MAX_MODULES]; /* the last first address,
                                                     forward */
    void *back_at[SAVER_MAX_PARTS][SAVER_MAX_MODULES]; /* and backward */
    uint64_t calls;   /* to graphhooks/offload.h, in this step */
    const char *at_end; /* toy_configure() as the step ends; NULL: nothing */
    bool stopped;     /* by the watch */
    bool has_added;   /* a backward of this step to a sum */
    gh_decision decision; /* of the open pass */
    gh_error err;
};

bool saver_open(struct saver *saver, const struct saver_options *options,
                const char **reason_p);
gh_status saver_attach(struct saver *saver);
void saver_detach(struct saver *saver);
void saver_close(struct saver *saver);

/* One training step, with gh_iteration_end; a step that fails or is stopped
 * ends all the same, and its sums are as before. */
gh_status saver_step(struct saver *saver, uint32_t microbatches);
/* Whether every sum is what it must be; waits for the device. */
bool saver_is_exact(struct saver *saver);

gh_offload_stats saver_moved(struct saver *saver);
gh_stats saver_stats(struct saver *saver);

#endif
