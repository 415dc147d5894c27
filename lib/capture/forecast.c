/*
 * forecast.c - see forecast.h.
 *
 * Without memory to note a pass there is no forecast.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"
#include "capture/forecast.h"

#include "capture/agree.h"
#include "capture/capture.h"
#include "offload/offload.h"
#include "pass/capacity.h"
#include "pass/pass.h"

#include <stdlib.h>

/* Of a shelf: a block that is to come.  Bit i: bank i will hold it; those past
 * the last share one. */
struct block {
    struct block *next;
    uint64_t bytes, holders;
};

/* What a pass of a bank writes, in the slot of the shelf. */
struct output {
    struct output *next;
    const void *address;
    uint64_t bytes;
    uint32_t bank;
};

struct gh_foreseen {
    bool incomplete; /* a pass could not be noted */
    bool fresh;      /* the open pass was noted: its outputs are still to be */
    size_t shelf;    /* its own */
    uint8_t **noted; /* [bank][entry] */
    uint32_t n_noted;
    struct block **blocks; /* [chunk][slot] */
    struct output **outputs;
};

static size_t n_shelves(const struct gh_capture *c)
{
    return (size_t)c->banks.n_chunks * c->banks.n_slots;
}

void gh_forecast_free(struct gh_capture *c)
{
    struct gh_foreseen *f = c->forecast.foreseen;

    if (f == NULL) {
        return;
    }
    for (size_t s = 0; s < n_shelves(c); s++) {
        while (f->blocks != NULL && f->blocks[s] != NULL) {
            struct block *block = f->blocks[s];

            f->blocks[s] = block->next;
            free(block);
        }
        while (f->outputs != NULL && f->outputs[s] != NULL) {
            struct output *output = f->outputs[s];

            f->outputs[s] = output->next;
            free(output);
        }
    }
    for (uint32_t i = 0; i < f->n_noted; i++) {
        free(f->noted[i]);
    }
    free(f->noted);
    free(f->blocks);
    free(f->outputs);
    free(f);
    c->forecast.foreseen = NULL;
}

/* ---- passes ----------------------------------------------------------------
 */

/* NULL: there is none, or no memory for one. */
static struct gh_foreseen *foreseen_of(struct gh_capture *c)
{
    struct gh_foreseen *f = c->forecast.foreseen;

    if (f != NULL || c->forecast.done) {
        return f;
    }
    f = calloc(1, sizeof(*f));
    if (f == NULL) {
        c->forecast.done = true;
        return NULL;
    }
    f->blocks = calloc(n_shelves(c), sizeof(*f->blocks));
    f->outputs = calloc(n_shelves(c), sizeof(*f->outputs));
    f->incomplete = f->blocks == NULL || f->outputs == NULL;
    c->forecast.foreseen = f;
    return f;
}

/* NULL: there is no memory for it. */
static uint8_t *mark_of(const struct gh_capture *c, struct gh_foreseen *f,
                        const gh_pass *pass)
{
    const struct gh_bank *bank = c->open.bank;

    if (bank->number >= f->n_noted) {
        uint8_t **noted =
            realloc(f->noted, (bank->number + (size_t)1) * sizeof(*noted));

        if (noted == NULL) {
            return NULL;
        }
        while (f->n_noted <= bank->number) {
            noted[f->n_noted++] = NULL;
        }
        f->noted = noted;
    }
    if (f->noted[bank->number] == NULL) {
        f->noted[bank->number] = calloc(gh_bank_rows(bank), bank->n_slots);
    }
    return f->noted[bank->number] != NULL
               ? &f->noted[bank->number]
                          [gh_bank_at(bank, pass->segment, pass->direction,
                                      pass->variant, c->open.slot) -
                           bank->entries]
               : NULL;
}

static bool is_output(const struct gh_capture *c, const struct gh_foreseen *f,
                      const gh_buffer *input)
{
    const struct output *o = f->outputs[f->shelf];

    while (o != NULL &&
           (o->address != input->address || o->bytes != input->bytes ||
            o->bank != c->open.bank->number)) {
        o = o->next;
    }
    return o != NULL;
}

/* As kind_of() of buffers.c does. */
static bool is_copied(const struct gh_capture *c, const struct gh_foreseen *f,
                      const gh_pass *pass, uint32_t i)
{
    gh_buffer input = pass->inputs[i];
    bool shorter = false;

    if (pass->capacities != NULL && pass->capacities[i] != 0) {
        shorter = input.bytes < pass->capacities[i];
        input.bytes = pass->capacities[i];
    }
    if ((input.flags & GH_BUFFER_STATIC) != 0 || input.bytes == 0) {
        return false;
    }
    return shorter || gh_ask_is_due(c) || !is_output(c, f, &input);
}

/* As gh_shelf_take() does. */
static bool take_block(struct gh_foreseen *f, uint32_t bank, uint64_t bytes,
                       uint64_t wish)
{
    const uint64_t bit = UINT64_C(1) << (bank < 63 ? bank : 63);
    struct block *best = NULL;

    for (struct block *b = f->blocks[f->shelf]; b != NULL; b = b->next) {
        if (b->bytes >= bytes && (b->holders & bit) == 0 &&
            (best == NULL || b->bytes < best->bytes)) {
            best = b;
        }
    }
    if (best == NULL) {
        best = calloc(1, sizeof(*best));
        if (best == NULL) {
            return false;
        }
        best->bytes = wish > bytes ? wish : bytes;
        best->next = f->blocks[f->shelf];
        f->blocks[f->shelf] = best;
    }
    best->holders |= bit;
    return true;
}

void gh_forecast_inputs(struct gh_capture *c, const gh_pass *pass)
{
    struct gh_foreseen *f = foreseen_of(c);
    uint64_t bytes = 0, wish = 0;
    uint8_t *mark;

    if (f == NULL || f->incomplete) {
        return;
    }
    mark = mark_of(c, f, pass);
    f->incomplete = mark == NULL;
    if (mark == NULL || *mark != 0) {
        return;
    }
    *mark = 1;
    f->fresh = true;
    f->shelf = (size_t)c->open.chunk * c->banks.n_slots + c->open.slot;
    for (uint32_t i = 0; i < pass->n_inputs; i++) {
        if (is_copied(c, f, pass, i)) {
            const uint64_t capacity =
                pass->capacities != NULL ? pass->capacities[i] : 0;
            const uint64_t of_input =
                capacity != 0 ? capacity : pass->inputs[i].bytes;

            bytes += gh_memory_align(of_input);
            wish += gh_memory_align(
                gh_banks_scale(&c->banks, c->open.bank, of_input));
        }
    }
    if (bytes != 0) {
        f->incomplete = !take_block(f, c->open.bank->number, bytes, wish);
    }
}

void gh_forecast_outputs(struct gh_capture *c, const gh_pass *pass)
{
    struct gh_foreseen *f = c->forecast.foreseen;

    if (f == NULL || !f->fresh) {
        return;
    }
    f->fresh = false;
    for (uint32_t i = 0; i < pass->n_outputs && !f->incomplete; i++) {
        struct output *output = malloc(sizeof(*output));

        f->incomplete = output == NULL;
        if (output != NULL) {
            *output =
                (struct output){ f->outputs[f->shelf], pass->outputs[i].address,
                                 pass->outputs[i].bytes, c->open.bank->number };
            f->outputs[f->shelf] = output;
        }
    }
}

/* ---- the sum ---------------------------------------------------------------
 */

static uint64_t sum_chunk(struct gh_capture *c, uint32_t chunk,
                          uint32_t *slots_p)
{
    const struct gh_foreseen *f = c->forecast.foreseen;
    uint64_t bytes = 0;

    *slots_p = 0;
    for (uint32_t s = 0; s < c->banks.n_slots; s++) {
        const struct block *b = f->blocks[(size_t)chunk * c->banks.n_slots + s];

        *slots_p += b != NULL;
        for (; b != NULL; b = b->next) {
            bytes += b->bytes;
        }
    }
    return bytes;
}

static void foretell(struct gh_capture *c, uint64_t rings, uint64_t kept)
{
    gh_memory_stats now = { 0 };
    uint64_t inputs = 0;

    for (uint32_t chunk = 0; chunk < c->banks.n_chunks; chunk++) {
        uint32_t slots;
        const uint64_t bytes = sum_chunk(c, chunk, &slots);

        inputs += bytes;
        gh_log_line(c->options.log, GH_LOG_INFO,
                    "memory: graphs of chunk %u will take %llu bytes for "
                    "inputs, in %u slots",
                    chunk, (unsigned long long)bytes, slots);
    }
    gh_capture_count_memory(c, &now);
    c->forecast.bytes = inputs + now.offset_bytes + rings + kept;
    gh_log_line(c->options.log, GH_LOG_INFO,
                "memory: in all it will be %llu bytes: inputs of graphs %llu, "
                "offsets %llu, rings %llu, kept groups %llu",
                (unsigned long long)c->forecast.bytes,
                (unsigned long long)inputs,
                (unsigned long long)now.offset_bytes, (unsigned long long)rings,
                (unsigned long long)kept);
    if (c->memory.limit != 0 && c->forecast.bytes > c->memory.limit) {
        gh_log_line(c->options.log, GH_LOG_WARN,
                    "memory: all graphs would take %llu bytes, and "
                    "GRAPHHOOKS_MEMORY_LIMIT is %llu: passes whose inputs do "
                    "not fit will run eagerly",
                    (unsigned long long)c->forecast.bytes,
                    (unsigned long long)c->memory.limit);
    }
}

void gh_forecast_end_step(struct gh_capture *c)
{
    const uint64_t steps = c->counts.stats.iterations;
    const struct gh_foreseen *f = c->forecast.foreseen;
    gh_offload_stats offload = { 0 };
    uint64_t kept = 0;

    if (f == NULL || steps < c->options.warmup_steps ||
        (c->offload != NULL && gh_offload_is_profiling(c->offload, steps))) {
        return;
    }
    if (c->offload != NULL) {
        gh_offload_count(c->offload, &offload);
        kept = gh_offload_will_keep(c->offload);
    }
    c->memory.set_aside = offload.ring_bytes + kept;
    if (!f->incomplete) {
        foretell(c, offload.ring_bytes, kept);
    }
    gh_forecast_free(c);
    c->forecast.done = true;
}
