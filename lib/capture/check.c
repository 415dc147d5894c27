/*
 * check.c - GRAPHHOOKS_CHECK=bitwise: a ready pass is run both ways.
 *
 * A recording's own launch is compared too: the recording ends with GH_RERUN
 * before anything has run, and the pass is entered again as a ready one.
 * The graph goes first and its outputs are set aside; outputs that a pass
 * updates are put back; then the host runs the parts eagerly, and its result
 * is the one that stands.  At exit the two are compared byte by byte.  A tool
 * for finding a bug: it copies, waits, and allocates scratch.
 *
 * The scratch holds, for each output, the graph's result, and for each
 * restored one the state from before, in that order.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"
#include "capture/check.h"

#include "base/error.h"
#include "capture/abandon.h"
#include "capture/offloads.h"
#include "capture/replay.h"
#include "messages/messages.h"
#include "offload/offload.h"
#include "ranks/ranks.h"

#include <stdio.h>

static bool overlap(const gh_buffer *a, const gh_buffer *b)
{
    const uintptr_t a_first = (uintptr_t)a->address;
    const uintptr_t b_first = (uintptr_t)b->address;

    return a_first < b_first + b->bytes && b_first < a_first + a->bytes;
}

/* Whether the eager run must find the output as it was before the launch: the
 * pass adds to it, or reads it and then overwrites it. */
static bool is_restored(const struct gh_entry *entry, const gh_pass *pass,
                        const gh_buffer *output)
{
    if (gh_offload_fills_again(&entry->script, output)) {
        return false;
    }
    if ((output->flags & GH_BUFFER_UPDATED) != 0) {
        return true;
    }
    for (uint32_t i = 0; i < pass->n_inputs; i++) {
        if (overlap(&pass->inputs[i], output)) {
            return true;
        }
    }
    return false;
}

static uint64_t results_bytes(const struct gh_entry *entry)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < entry->n_outputs; i++) {
        bytes += gh_memory_align(entry->outputs[i].bytes);
    }
    return bytes;
}

bool gh_check_has_results(const struct gh_entry *entry)
{
    return results_bytes(entry) != 0;
}

static gh_status copy(struct gh_capture *c, void *to, const void *from,
                      uint64_t bytes, void *stream, gh_error *err)
{
    if (bytes == 0) {
        return GH_OK;
    }
    return gh_device_copy(c->dev, to, from, bytes, stream, err);
}

/* The i-th range that the eager run may have to find as it was: an output, or a
 * loaded group that stays on the device, as the pass may write into what it has
 * loaded.  False: it need not. */
static bool restored_range(const struct gh_entry *entry, const gh_pass *pass,
                           uint32_t i, gh_buffer *range)
{
    if (i >= entry->n_outputs) {
        return gh_offload_keeps(&entry->script.steps[i - entry->n_outputs],
                                range);
    }
    *range = entry->outputs[i];
    return is_restored(entry, pass, range);
}

/* Copies the ranges that are restored to the second half of the scratch, or
 * back. */
static gh_status move_restored(struct gh_capture *c,
                               const struct gh_entry *entry, bool save,
                               const gh_pass *pass, gh_error *err)
{
    char *at = (char *)c->check.scratch.address + results_bytes(entry);

    for (uint32_t i = 0; i < entry->n_outputs + entry->script.n; i++) {
        gh_buffer range;
        gh_status status;

        if (!restored_range(entry, pass, i, &range)) {
            continue;
        }
        status = copy(c, save ? at : range.address, save ? range.address : at,
                      range.bytes, pass->stream, err);
        if (status != GH_OK) {
            return status;
        }
        at += gh_memory_align(range.bytes);
    }
    return GH_OK;
}

static gh_status set_results_aside(struct gh_capture *c,
                                   const struct gh_entry *entry, void *stream,
                                   gh_error *err)
{
    char *at = c->check.scratch.address;

    for (uint32_t i = 0; i < entry->n_outputs; i++) {
        const gh_buffer *output = &entry->outputs[i];
        gh_status status;

        status = copy(c, at, output->address, output->bytes, stream, err);
        if (status != GH_OK) {
            return status;
        }
        at += gh_memory_align(output->bytes);
    }
    return GH_OK;
}

static gh_status prepare(struct gh_capture *c, const struct gh_entry *entry,
                         const gh_pass *pass, gh_error *err)
{
    uint64_t bytes = results_bytes(entry);
    gh_status status;

    for (uint32_t i = 0; i < entry->n_outputs + entry->script.n; i++) {
        gh_buffer range;

        if (restored_range(entry, pass, i, &range)) {
            bytes += gh_memory_align(range.bytes);
        }
    }
    status = gh_scratch_reserve(&c->check.scratch, &c->memory, bytes,
                                pass->stream, err);
    if (status != GH_OK) {
        return status;
    }
    return move_restored(c, entry, true, pass, err);
}

/* A failure before the launch has changed nothing.  After the launch the
 * graph's own result is right, as long as no output has been put back. */
static enum gh_check_begun begin(struct gh_capture *c, struct gh_entry *entry,
                                 const gh_pass *pass, gh_error *err)
{
    if (gh_scratch_is_held(&c->check.scratch, c->dev)) {
        return gh_replay(c, entry, pass->stream, err) == GH_OK
                   ? GH_CHECK_STANDS
                   : GH_CHECK_NOT_RUN;
    }
    if (prepare(c, entry, pass, err) != GH_OK) {
        return GH_CHECK_NOT_RUN;
    }
    c->open.repeated = true;
    if (gh_replay(c, entry, pass->stream, err) != GH_OK) {
        return GH_CHECK_NOT_RUN;
    }
    if (set_results_aside(c, entry, pass->stream, err) != GH_OK) {
        return GH_CHECK_STANDS;
    }
    /* Putting back may be repeated, so it is tried twice. */
    if (move_restored(c, entry, false, pass, NULL) != GH_OK &&
        move_restored(c, entry, false, pass, err) != GH_OK) {
        return GH_CHECK_LOST;
    }
    return GH_CHECK_READY;
}

enum gh_check_begun gh_check_begin(struct gh_capture *c, struct gh_entry *entry,
                                   const gh_pass *pass, gh_error *err)
{
    struct gh_device_before before = gh_device_enter(c->dev);
    enum gh_check_begun begun;

    c->open.repeated = false;
    if (c->offload != NULL) {
        gh_offload_spoil(c->offload, pass->stream);
    }
    begun = begin(c, entry, pass, err);
    if (c->open.repeated && entry->script.n != 0) {
        gh_offloads_after_check(c, entry, begun);
    }
    if (c->offload != NULL && begun == GH_CHECK_READY) {
        gh_offload_spoil(c->offload, pass->stream);
    }
    c->open.repeated = false;
    gh_device_leave(c->dev, before);
    return begun;
}

/* Gives the entry up and says what may have made the two differ.  Earlier
 * replays were not compared, so their numbers may be wrong too. */
static void differ(struct gh_capture *c, struct gh_entry *entry,
                   const char *what)
{
    char text[400];

    snprintf(text, sizeof(text),
             "GRAPHHOOKS_CHECK: %s: list an output that the pass updates as "
             "GH_BUFFER_UPDATED, issue all work on gh_decision.stream, and "
             "read gh_decision.inputs%s; what this pass computed before may be "
             "wrong too",
             what,
             entry->script.n != 0
                 ? ", and groups where gh_offload_load says"
                 : "");
    c->counts.stats.check_failures++;
    gh_entry_give_up(c, entry, GH_REASON_MISMATCH, text);
}

static void differ_in_number(struct gh_capture *c, struct gh_entry *entry,
                             const char *what, uint64_t graph, uint64_t eager)
{
    char text[100];

    snprintf(text, sizeof(text), "%s differs: graph %llu, eager %llu", what,
             (unsigned long long)graph, (unsigned long long)eager);
    differ(c, entry, text);
}

static bool is_equal(struct gh_capture *c, struct gh_entry *entry,
                     const gh_pass *pass, uint32_t i, const void *result)
{
    const gh_buffer *eager = &pass->outputs[i];
    char text[120];
    uint64_t first;
    gh_error err;

    if (gh_device_compare(c->dev, result, eager->address, eager->bytes,
                          pass->stream, &first, &err) != GH_OK) {
        gh_entry_give_up(c, entry, GH_REASON_DEVICE, err.text);
        c->counts.stats.checks--; /* it was not compared after all */
        return false;
    }
    c->check.scratch.busy = false; /* the compare has waited for the stream */
    c->check.outputs++;
    c->check.bytes += eager->bytes;
    if (first == UINT64_MAX) {
        return true;
    }
    snprintf(text, sizeof(text),
             "output %u differs from the eager pass, first at byte %llu of "
             "%llu",
             i, (unsigned long long)first, (unsigned long long)eager->bytes);
    differ(c, entry, text);
    return false;
}

/* On a difference the entry becomes eager, and the log says which. */
static void compare(struct gh_capture *c, struct gh_entry *entry,
                    const gh_pass *pass)
{
    const char *at = c->check.scratch.address;

    if (pass->n_outputs != entry->n_outputs) {
        differ_in_number(c, entry, "the number of outputs", entry->n_outputs,
                         pass->n_outputs);
        return;
    }
    for (uint32_t i = 0; i < entry->n_outputs; i++) {
        const gh_buffer *eager = &pass->outputs[i];

        if (eager->bytes != entry->outputs[i].bytes) {
            differ_in_number(c, entry, "the bytes of an output",
                             entry->outputs[i].bytes, eager->bytes);
            return;
        }
        if (eager->address != entry->outputs[i].address && eager->bytes != 0) {
            gh_message_output_moved(c, entry, i);
        }
        if (eager->bytes != 0 && !is_equal(c, entry, pass, i, at)) {
            return;
        }
        at += gh_memory_align(eager->bytes);
    }
}

gh_status gh_check_end(struct gh_capture *c, struct gh_entry *entry,
                       const gh_pass *pass, gh_error *err)
{
    struct gh_device_before before = gh_device_enter(c->dev);
    gh_status status = gh_ranks_await(c, pass->stream, err);

    if (status == GH_OK) {
        c->counts.stats.checks++;
        compare(c, entry, pass);
    }
    if (c->offload != NULL) {
        const gh_status ended =
            gh_offload_compared(c->offload, c->open.number,
                                status == GH_OK ? err : NULL);

        status = status == GH_OK ? ended : status;
    }
    gh_device_leave(c->dev, before);
    return status;
}
