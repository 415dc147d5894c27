/*
 * borders.c - what a pass leaves behind for the parts on the other side.
 *
 * A graph writes where it wrote when it was recorded, so its entry knows the
 * outputs.  The named outputs of a pass that ran eagerly are kept here, which
 * costs a host that names none a look at each output.  Both note the number of
 * the pass, which tells which of the two was last: a replay does nothing
 * else.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"
#include "capture/borders.h"

#include "base/error.h"
#include "capture/capture.h"
#include "pass/left.h"

#include <stdlib.h>

static size_t count_left(const struct gh_capture *c)
{
    return (size_t)c->plan->n_segments * GH_DIRECTIONS *
           (c->options.max_slots + 1);
}

gh_status gh_borders_create(struct gh_capture *c, gh_error *err)
{
    c->beside.left = calloc(count_left(c), sizeof(*c->beside.left));
    if (c->beside.left == NULL) {
        return gh_fail(err, GH_ERR_NO_MEMORY, "no memory for %zu passes",
                       count_left(c));
    }
    return GH_OK;
}

void gh_borders_destroy(struct gh_capture *c)
{
    for (size_t i = 0; i < count_left(c); i++) {
        free(c->beside.left[i].outputs);
    }
    free(c->beside.left);
}

static uint32_t count_named(const gh_pass *pass)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < pass->n_outputs; i++) {
        n += pass->outputs[i].tensor != GH_TENSOR_NONE;
    }
    return n;
}

/* If there is no memory nothing is kept, and gh_border_find() fails later. */
static void keep_outputs(struct gh_left *left, const gh_pass *pass)
{
    const uint32_t n = count_named(pass);

    left->n = 0;
    if (n > left->room) {
        gh_buffer *outputs = realloc(left->outputs, n * sizeof(*outputs));

        if (outputs == NULL) {
            return;
        }
        left->outputs = outputs;
        left->room = n;
    }
    for (uint32_t i = 0; i < pass->n_outputs; i++) {
        if (pass->outputs[i].tensor != GH_TENSOR_NONE) {
            left->outputs[left->n++] = pass->outputs[i];
        }
    }
}

void gh_borders_keep(struct gh_capture *c, const gh_pass *pass)
{
    struct gh_left *left =
        gh_left_at(c, pass->segment, pass->direction, c->open.slot);

    keep_outputs(left, pass);
    left->ran = c->open.number;
    left->step = c->counts.stats.iterations;
    left->microbatch = pass->microbatch;
    left->flags = pass->flags & GH_PASS_FORWARD_ONLY;
}

/* Where the outputs of a pass are listed. */
struct list {
    const gh_buffer *outputs;
    uint32_t n;
    bool found;
};

/* The entry of the variant that was launched last. */
static const struct gh_entry *
last_to_run(const struct gh_bank *bank, const gh_border_key *key, uint32_t slot)
{
    const struct gh_entry *last =
        gh_bank_at(bank, key->segment, key->direction, 0, slot);

    for (uint32_t v = 1; v < GH_VARIANTS; v++) {
        const struct gh_entry *entry =
            gh_bank_at(bank, key->segment, key->direction, v, slot);

        if (entry->ran > last->ran) {
            last = entry;
        }
    }
    return last;
}

/* The outputs of the pass in the microbatch's slot, if it has one.  *since_p:
 * passes without a slot count from that number on; UINT64_MAX: none counts, as
 * the flight is over. */
static struct list list_in_slot(const struct gh_capture *c,
                                const gh_border_key *key, uint64_t *since_p)
{
    const uint32_t chunk = c->fixed.fates[key->segment].chunk;
    const struct gh_flight *flight =
        &c->slots->chunks[chunk].flights[key->microbatch];
    const uint32_t slot = flight->slot;
    const struct gh_entry *entry;
    const struct gh_left *left;
    const struct gh_slot *at;

    *since_p = flight->waiting != 0 ? flight->began : UINT64_MAX;
    if (slot == GH_FLIGHT_NO_SLOT) {
        return (struct list){ 0 };
    }
    at = gh_slots_at(c->slots, chunk, slot);
    *since_p = at->taken;
    entry = last_to_run(at->bank, key, slot);
    left = gh_left_at(c, key->segment, key->direction, slot);
    if (left->ran >= *since_p && left->ran > entry->ran) {
        *since_p = left->ran;
        return (struct list){ left->outputs, left->n, true };
    }
    if (entry->ran < *since_p) {
        return (struct list){ 0 };
    }
    *since_p = entry->ran;
    return (struct list){ entry->outputs, entry->n_outputs, true };
}

/* The outputs of the last pass without a slot, if it was this microbatch's and
 * came at `since` or later. */
static struct list list_without_slot(const struct gh_capture *c,
                                     const gh_border_key *key, uint64_t since)
{
    const struct gh_left *left =
        gh_left_at(c, key->segment, key->direction, GH_SLOT_NONE);

    if (left->ran == 0 || left->ran < since ||
        left->step != c->counts.stats.iterations ||
        left->microbatch != key->microbatch || left->flags != key->flags) {
        return (struct list){ 0 };
    }
    return (struct list){ left->outputs, left->n, true };
}

/* Whether another microbatch without a slot has run since: only the outputs of
 * the last one are kept. */
static bool may_be_lost(const struct gh_capture *c, const gh_border_key *key)
{
    const struct gh_flight *flight =
        &c->slots->chunks[c->fixed.fates[key->segment].chunk]
             .flights[key->microbatch];

    return flight->slot == GH_FLIGHT_NO_SLOT && flight->waiting != 0 &&
           gh_left_at(c, key->segment, key->direction, GH_SLOT_NONE)->ran >
               flight->began;
}

static gh_status refuse(const struct gh_capture *c, const gh_border_key *key,
                        bool has_run, gh_error *err)
{
    char where[120];

    gh_plan_extent(c->plan, &c->plan->segments[key->segment], where,
                   sizeof(where));
    if (!has_run) {
        return gh_fail(
            err, GH_ERR_NOT_FOUND,
            "gh_border_find: %s %s has not run for microbatch %u "
            "in its present flight%s",
            where, gh_direction_names[key->direction], key->microbatch,
            may_be_lost(c, key) ? ", or another one without a slot has "
                                  "since: raise GRAPHHOOKS_MAX_SLOTS"
                                : "");
    }
    return gh_fail(err, GH_ERR_NOT_FOUND,
                   "gh_border_find: %s %s has left no %s number %u: name it "
                   "in gh_buffer.tensor among the outputs of that pass",
                   where, gh_direction_names[key->direction],
                   gh_tensor_name(key->tensor), key->which);
}

gh_status gh_capture_find(const struct gh_capture *c, const gh_border_key *key,
                          gh_buffer *buffer_p, gh_error *err)
{
    struct list list = { 0 }, slotless;
    uint32_t which = key->which;
    uint64_t since = 0;

    if ((key->flags & GH_PASS_FORWARD_ONLY) == 0) {
        list = list_in_slot(c, key, &since);
    }
    /* A repeated forward ran without the slot, and later than the pass in the
     * slot. */
    slotless = list_without_slot(c, key, since);
    if (slotless.found) {
        list = slotless;
    }
    for (uint32_t i = 0; i < list.n; i++) {
        if (list.outputs[i].tensor == key->tensor && which-- == 0) {
            *buffer_p = list.outputs[i];
            return GH_OK;
        }
    }
    return refuse(c, key, list.found, err);
}
