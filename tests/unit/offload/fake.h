/*
 * fake.h - what is under lib/offload: a device, device memory and pinned memory
 * that write down each call.
 *
 * A call is a word: what, of which event or how many, and @ its stream.
 *
 *     R3@m   event 3 is recorded      r3@m  by a graph
 *     W3@m   it is waited for         w3@m  by a graph
 *     Wk1@o  the last copy of block 1 is waited for; Rk1@o: one is marked
 *     out2@o two copies go out        back@b  one comes back
 *     copy@m a copy on the device     drop@m  contents are discarded
 *     wipe@m and overwritten with NaN spoil@m with something else
 *     sync@o the host waits; sync3: until event 3
 *     span1024@o  so many bytes are in the trace
 *
 * Events and blocks count from 1, in the order in which they are made.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef TESTS_UNIT_OFFLOAD_FAKE_H
#define TESTS_UNIT_OFFLOAD_FAKE_H

#include "offload/offload.h"
#include "offload/groups/group.h"
#include "offload/decide/measure.h"
#include "offload/move/move.h"
#include "support/fake.h"

#define MAIN ((void *)1)
#define SIDE ((void *)2)
#define OUT ((void *)3)
#define BACK ((void *)4)

enum { LAYERS = 8, SLOTS = 4, BYTES = 1024 };

extern struct gh_offload *o;
extern struct gh_plan plan;
extern uint32_t most_in_a_call; /* copies */
extern bool batches, no_memory, no_pinned;
extern int64_t memory_out, blocks_out, events_out; /* that are not given back */
extern double now_ns;     /* of the device: an event has it when recorded */
extern bool ends_at_once; /* an event has ended when it was recorded */
extern uint32_t asked_blocks; /* of pinned memory, the last time */
extern bool is_capturing; /* the host is, on each stream */

/* What was called since, as one line; the next begins anew. */
const char *called(void);
unsigned number_of(const void *event);

/* A session that offloads MLP of all layers; and the end of its step, and of
 * itself. */
void begin(const struct gh_offload_options *changed);
void end(void);
struct gh_offload_options usual(void);

/* A pass of its own for each call, on MAIN; the slot is the microbatch. */
struct gh_offload_at at(uint32_t layer, uint32_t microbatch);
gh_offload_group group_of(uint32_t layer, gh_offload_tensor *tensor);
gh_status save_bytes(uint32_t layer, uint32_t microbatch, uint64_t bytes);
gh_status save(uint32_t layer, uint32_t microbatch);
gh_status commit(uint32_t layer, uint32_t microbatch);
gh_status load(uint32_t layer, uint32_t microbatch);
gh_status release(uint32_t layer, uint32_t microbatch);
struct gh_instance *instance(uint32_t layer, uint32_t microbatch);
/* All layers forward, and back in the opposite order. */
void forward(uint32_t microbatch);
void backward(uint32_t microbatch);
/* A session after its profile: layers 0 to 6 go, the last stays. */
void begin_profiled(const struct gh_offload_options *changed);

#endif
