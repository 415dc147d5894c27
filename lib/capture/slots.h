/*
 * slots.h - which set of buffers a microbatch uses, and until when.
 *
 * A slot is taken by the first forward pass of a microbatch in a chunk and
 * given back by the backward pass that leaves none of its forwards waiting,
 * or by the end of the step.  All calls are O(1) but gh_slots_end_step.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_CAPTURE_SLOTS_H
#define GH_CAPTURE_SLOTS_H

#include <graphhooks/layer.h>

#include <stdbool.h>

#define GH_MAX_SLOTS 64

/* One slot of one chunk, as the stream order of its buffers needs it. */
struct gh_slot {
    void *stream; /* the last one that a pass of it was issued on */
    void *event;  /* made when a second stream is first seen, else NULL */
    bool used;    /* stream means something */
    bool marked;  /* event was recorded when the slot was given back */
};

struct gh_slots;

gh_status gh_slots_create(uint32_t n_chunks, uint32_t n_segments,
                          uint32_t max_slots, struct gh_slots **slots_p,
                          gh_error *err);
void gh_slots_destroy(struct gh_slots *slots);

/* The slot of a forward pass, taking one if the microbatch has none, or
 * GH_SLOT_NONE when all are in flight.  *fresh_p: it was taken just now. */
uint32_t gh_slots_take(struct gh_slots *slots, uint32_t chunk,
                       uint32_t microbatch, bool *fresh_p);
/* The slot of a microbatch; GH_SLOT_NONE when it holds none. */
uint32_t gh_slots_find(const struct gh_slots *slots, uint32_t chunk,
                       uint32_t microbatch);

/* Whether a forward pass of this microbatch waits for its backward. */
bool gh_slots_waits(const struct gh_slots *slots, uint32_t chunk,
                    uint32_t microbatch, uint32_t segment);

/* A pass has run.  backward returns true when it gave the slot back. */
void gh_slots_ran_forward(struct gh_slots *slots, uint32_t chunk,
                          uint32_t microbatch, uint32_t segment);
bool gh_slots_ran_backward(struct gh_slots *slots, uint32_t chunk,
                           uint32_t microbatch, uint32_t segment);
/* A pass was given up: the slot goes back if nothing else has run in it. */
void gh_slots_cancel(struct gh_slots *slots, uint32_t chunk,
                     uint32_t microbatch);

/* Every microbatch loses its slot; returns how many still had one. */
uint32_t gh_slots_end_step(struct gh_slots *slots);

struct gh_slot *gh_slots_at(struct gh_slots *slots, uint32_t chunk,
                            uint32_t slot);

#endif
