/*
 * capture.h - passes: recorded once, replayed from then on.
 *
 * lib/abi has checked the arguments when it calls in here.  A pass that the
 * plan allows goes `new -> ready`, or to `eager for good` with its reason.
 * Invariant: an entry is visible as ready only once its graph is
 * instantiated, uploaded and launched, so that whatever fails before leaves
 * the stream usable and the pass to be run again, eagerly.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_CAPTURE_CAPTURE_H
#define GH_CAPTURE_CAPTURE_H

#include <graphhooks/aux.h>
#include <graphhooks/bank.h>
#include <graphhooks/border.h>
#include <graphhooks/memory.h>
#include <graphhooks/offload.h>
#include <graphhooks/ranks.h>

#include "pass/options.h"
#include "plan/plan.h"

#include <stdbool.h>

struct gh_capture;
struct gh_device;
struct gh_offload;
struct gh_span;
struct gh_span_what;

/*
 * `plan`, `dev` and what the options point to must outlive the result.
 * `dev` may be NULL when options->enabled is false.
 */
gh_status gh_capture_create(const struct gh_plan *plan, struct gh_device *dev,
                            const struct gh_capture_options *options,
                            struct gh_capture **capture_p, gh_error *err);
/* Drops an open pass, waits for the streams, frees graphs and memory. */
void gh_capture_destroy(struct gh_capture *capture);

gh_status gh_capture_enter(struct gh_capture *capture, const gh_pass *pass,
                           gh_decision *decision, gh_error *err);
/* Ends the open pass and returns true, if it was replayed, as most are. */
bool gh_capture_ends_replayed(struct gh_capture *capture, const gh_pass *pass);
gh_status gh_capture_exit(struct gh_capture *capture, const gh_pass *pass,
                          gh_error *err);
void gh_capture_cancel(struct gh_capture *capture);
/* The host has failed in the recording of the pass that is open, or that it has
 * just cancelled. */
void gh_capture_fail_recording(struct gh_capture *capture, const char *why);

/* Finds what a pass has left under a name. */
gh_status gh_capture_find(const struct gh_capture *capture,
                          const gh_border_key *key, gh_buffer *buffer_p,
                          gh_error *err);

/* Binds a tensor that `parts` of the layer read.  The services retain its
 * object. */
gh_status gh_capture_bind(struct gh_capture *capture, const gh_aux *aux,
                          uint32_t parts, gh_error *err);

/* banks.c, packed.c. */
gh_status gh_capture_add_bank(struct gh_capture *capture,
                              const gh_bank_desc *desc, uint32_t *bank_p,
                              gh_error *err);
/* False: there is no such bank.  All of gh_bank_stats but its struct_size. */
bool gh_capture_count_bank(const struct gh_capture *capture, uint32_t bank,
                           gh_bank_stats *stats);
gh_status gh_capture_set_packed(struct gh_capture *capture,
                                const gh_packed *packed,
                                gh_packed_buffers *buffers, gh_error *err);

/* suspend.c; nothing of the capture is called in between but what counts, and
 * gh_capture_destroy(). */
gh_status gh_capture_suspend(struct gh_capture *capture, gh_error *err);
gh_status gh_capture_wake(struct gh_capture *capture, gh_error *err);
/* memory.c.  All of gh_memory_stats but its struct_size. */
void gh_capture_count_memory(const struct gh_capture *capture,
                             gh_memory_stats *stats);

/* Gives the other ranks up. */
gh_status gh_capture_abort_ranks(struct gh_capture *capture, const char *why,
                                 gh_error *err);

/* Of the open pass; offloads.c. */
gh_status gh_capture_save(struct gh_capture *capture, gh_offload_group *group,
                          gh_error *err);
gh_status gh_capture_commit(struct gh_capture *capture, uint32_t layer,
                            uint32_t module, gh_error *err);
gh_status gh_capture_load(struct gh_capture *capture, gh_offload_group *group,
                          gh_error *err);
gh_status gh_capture_release(struct gh_capture *capture, uint32_t layer,
                             uint32_t module, gh_error *err);
gh_status gh_capture_flush(struct gh_capture *capture, gh_error *err);
/* While `holds` is true, a pass does not issue commits that are queued: the
 * caller flushes right after. */
void gh_capture_hold(struct gh_capture *capture, bool holds);
/* `groups` is an array of whole structs of this release. */
gh_status gh_capture_declare(struct gh_capture *capture,
                             gh_offload_declared *groups, uint32_t n,
                             uint32_t in_flight, gh_error *err);
/* False: nothing is offloaded. */
bool gh_capture_count_offload(const struct gh_capture *capture,
                              gh_offload_stats *stats);

bool gh_capture_is_traced(const struct gh_capture *capture);
/* Called around a node of an overlap, if the session is traced.  NULL: there is
 * no room to note it. */
struct gh_span *gh_capture_node_begin(struct gh_capture *capture,
                                      const struct gh_span_what *what,
                                      void *stream);
void gh_capture_node_end(struct gh_capture *capture, struct gh_span *span);

/* The most steps that offload learns from before anything is recorded.  It is
 * the same on all ranks with the same options. */
uint64_t gh_capture_profile_steps(const struct gh_capture *capture);
/* On how many times of exchanges the ranks agree in this step, or 0; then what
 * this rank says, and what it hears.  See
 * lib/offload/decide. */
uint32_t gh_capture_exchanges_due(const struct gh_capture *capture);
void gh_capture_exchanges_say(struct gh_capture *capture, double *ns);
void gh_capture_exchanges_hear(struct gh_capture *capture, const double *ns);
/* Around an exchange of tokens, for those that copies are compared with. */
void gh_capture_exchange_begin(struct gh_capture *capture, uint32_t cell,
                               void *stream);
void gh_capture_exchange_end(struct gh_capture *capture, void *stream);
/* Whether commits that are queued are issued after an exchange, and not before
 * it, as their copies are to begin when it has ended. */
bool gh_capture_flushes_late(const struct gh_capture *capture);

/* Steps that have ended. */
uint64_t gh_capture_iterations(const struct gh_capture *capture);
/* Orders what the passes of a chunk have issued on one stream before what
 * follows on another. */
void gh_capture_join(struct gh_capture *capture, uint32_t chunk,
                     const void *from, void *onto);
bool gh_capture_is_open(const struct gh_capture *capture);
/* For an error about the open pass: says so if another thread has entered it,
 * and else is empty. */
const char *gh_capture_whose_open(const struct gh_capture *capture);
/* Whether the open pass, or the last one, was replayed. */
bool gh_capture_has_replayed(const struct gh_capture *capture);
void gh_capture_pause(struct gh_capture *capture);
/* False when nothing is paused. */
bool gh_capture_resume(struct gh_capture *capture);
/* GH_ERR_DEVICE or GH_ERR_NO_MEMORY: a copy could not be issued, or offload
 * could not be decided.  The step is over all the same. */
gh_status gh_capture_end_step(struct gh_capture *capture, gh_error *err);
/* All of gh_stats but its struct_size. */
void gh_capture_stats(const struct gh_capture *capture, gh_stats *stats);
/* Passes that ran eagerly for the reason, which is below GH_REASONS. */
uint64_t gh_capture_eager(const struct gh_capture *capture, gh_reason reason);

#endif
