/*
 * landing.c - see landing.h.
 *
 * A gradient comes after the forward of its microbatch, which has a slot then,
 * and whose work comes after that of the slot's microbatch before.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "step/landing.h"

#include "step/host.h"
#include "step/pipeline_schedule.h"

#include <stdlib.h>
#include <string.h>

enum {
    LIMIT_DIGITS = 18 /* the most that the library takes */
};

/* A hidden state in which all lengths have room. */
static size_t block_of(const struct trainer *trainer)
{
    const struct config *config = &trainer->model.config;

    return (size_t)config_rows(config) * (size_t)config->hidden;
}

static size_t bytes_of(const struct trainer *trainer, int microbatch)
{
    const struct config *config = &model_of(trainer, microbatch)->config;

    return (size_t)config_rows(config) * (size_t)config->hidden * sizeof(float);
}

static float *at(const struct trainer *trainer, float *places, uint32_t slot)
{
    return places + slot * block_of(trainer);
}

static uint64_t bit_of(uint32_t slot)
{
    return UINT64_C(1) << slot;
}

static void make_events(struct device *dev, CUevent *events, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        DEVICE_CALL(dev, cuEventCreate, &events[i], CU_EVENT_DISABLE_TIMING);
    }
}

static void free_events(struct device *dev, const CUevent *events)
{
    for (int i = 0; i < MAX_SLOTS; i++) {
        if (events[i] != NULL) {
            (void)dev->drv.cuEventDestroy(events[i]);
        }
    }
}

/* The numbers of a microbatch: tokens, targets and positions. */
static size_t tokens_of(const struct trainer *trainer)
{
    return (size_t)trainer_columns(trainer) *
           (size_t)config_rows(&trainer->model.config);
}

/* GRAPHHOOKS_MEMORY_LIMIT in bytes; 0: there is none, or the library will
 * refuse it. */
static uint64_t limit_of(const struct trainer *trainer)
{
    const char *text = getenv("GRAPHHOOKS_MEMORY_LIMIT");
    size_t free_bytes = 0, total = 0;
    char *end;
    uint64_t limit;

    if (text == NULL || text[0] < '0' || text[0] > '9' ||
        strlen(text) > LIMIT_DIGITS) {
        return 0;
    }
    limit = strtoull(text, &end, 10);
    if (strcmp(end, "%") == 0 && limit <= 100) {
        DEVICE_CALL(trainer->dev, cuMemGetInfo, &free_bytes, &total);
        return total / 100 * limit;
    }
    return *end == '\0' ? limit : 0;
}

/* What a slot's places take at most: whether graphs read tokens is known once
 * the session is open. */
static size_t most_of_slot(const struct trainer *trainer,
                           const struct model *model)
{
    const size_t hidden = block_of(trainer) * sizeof(float);
    const size_t tokens = tokens_of(trainer) * sizeof(int);

    return (model->embeds ? 2 * tokens : 2 * hidden) +
           (model->heads ? 0 : hidden) +
           (model->heads && !model->embeds ? tokens : 0);
}

/* The first slots of all chunks are the first that get places, as they are the
 * first in use. */
void landing_fit(struct trainer *trainer)
{
    const uint64_t limit = limit_of(trainer);
    uint64_t left = limit;
    uint32_t slots[MAX_CHUNKS];

    trainer->limit = 0;
    if (options_pp(trainer->options) == 1) {
        return;
    }
    pipeline_slots(trainer->options, slots);
    for (int i = 0; i < MAX_SLOTS && i < host_most_slots(); i++) {
        for (int c = 0; c < trainer->n_chunks; c++) {
            struct chunk *chunk = &trainer->chunks[c];
            const size_t bytes = most_of_slot(trainer, &chunk->model);

            if (i == 0) {
                chunk->landing.n = 0;
            }
            if ((uint32_t)i < slots[c] && (uint32_t)i == chunk->landing.n &&
                (limit == 0 || bytes < left)) {
                chunk->landing.n++;
                left -= limit == 0 ? 0 : bytes;
            }
        }
    }
    trainer->limit = left;
}

static void make(struct trainer *trainer, struct chunk *chunk)
{
    struct device *dev = trainer->dev;
    struct landing *landing = &chunk->landing;
    const struct model *model = &chunk->model;
    const uint32_t slots = landing->n;
    const size_t bytes = slots * block_of(trainer) * sizeof(float);
    const size_t tokens = slots * tokens_of(trainer) * sizeof(int);

    if (slots == 0) {
        return;
    }
    make_events(dev, landing->read, slots);
    if (!model->embeds) {
        landing->x = device_alloc(dev, bytes);
        landing->kept = device_alloc(dev, bytes);
    }
    if (!model->heads) {
        landing->dy = device_alloc(dev, bytes);
    }
    if (model->folds_embedding || model->folds_head) {
        landing->tokens = device_alloc(dev, tokens);
        make_events(dev, landing->came, slots);
    }
    if (model->folds_embedding) {
        landing->tokens_kept = device_alloc(dev, tokens);
    }
}

int landing_open(struct trainer *trainer)
{
    struct device *dev = trainer->dev;

    if (trainer->pipeline == NULL) {
        return 0;
    }
    DEVICE_CALL(dev, cuStreamCreate, &trainer->aside, CU_STREAM_NON_BLOCKING);
    DEVICE_CALL(dev, cuEventCreate, &trainer->uploaded,
                CU_EVENT_DISABLE_TIMING);
    for (int i = 0; i < trainer->n_chunks; i++) {
        make(trainer, &trainer->chunks[i]);
    }
    return dev->code == CUDA_SUCCESS ? 0 : -1;
}

void landing_close(struct trainer *trainer)
{
    struct device *dev = trainer->dev;

    for (int i = 0; trainer->chunks != NULL && i < trainer->n_chunks; i++) {
        struct landing *landing = &trainer->chunks[i].landing;

        free_events(dev, landing->read);
        free_events(dev, landing->came);
        device_free(dev, landing->x);
        device_free(dev, landing->kept);
        device_free(dev, landing->dy);
        device_free(dev, landing->tokens);
        device_free(dev, landing->tokens_kept);
        memset(landing, 0, sizeof(*landing));
    }
    if (trainer->aside != NULL) {
        (void)dev->drv.cuStreamDestroy(trainer->aside);
    }
    if (trainer->uploaded != NULL) {
        (void)dev->drv.cuEventDestroy(trainer->uploaded);
    }
}

size_t landing_slot_bytes(const struct trainer *trainer, int chunk)
{
    const struct landing *landing = &trainer->chunks[chunk].landing;
    const size_t hidden = block_of(trainer) * sizeof(float);
    const size_t tokens = tokens_of(trainer) * sizeof(int);

    return (landing->x != NULL ? 2 * hidden : 0) +
           (landing->dy != NULL ? hidden : 0) +
           (landing->tokens != NULL ? tokens : 0) +
           (landing->tokens_kept != NULL ? tokens : 0);
}

size_t landing_bytes(const struct trainer *trainer)
{
    size_t bytes = 0;

    for (int i = 0; i < trainer->n_chunks; i++) {
        bytes += trainer->chunks[i].landing.n * landing_slot_bytes(trainer, i);
    }
    return bytes;
}

void landing_begin_step(struct trainer *trainer)
{
    bool copies = false;

    for (int i = 0; i < trainer->n_chunks; i++) {
        struct landing *landing = &trainer->chunks[i].landing;

        landing->held = 0;
        landing->full = 0;
        landing->was_read = 0;
        copies = copies || landing->tokens != NULL;
    }
    if (copies && trainer->host != NULL) {
        DEVICE_CALL(trainer->dev, cuEventRecord, trainer->uploaded,
                    trainer->streams[0]);
        DEVICE_CALL(trainer->dev, cuStreamWaitEvent, trainer->aside,
                    trainer->uploaded, CU_EVENT_WAIT_DEFAULT);
    }
}

/* ---- inputs of forwards -------------------------------------------------- */

/* The slot of the chunk's next forward; landing.n or more: none has a place. */
static uint32_t next_slot(const struct landing *landing)
{
    return landing->held == UINT64_MAX
               ? MAX_SLOTS
               : (uint32_t)__builtin_ctzll(~landing->held);
}

static bool is_hosted(const struct trainer *trainer, const void *places)
{
    return trainer->host != NULL && places != NULL;
}

/* Lets a stream wait until the place has been read that it will write to.  What
 * was read in another step is so already. */
static void wait_read(const struct trainer *trainer,
                      const struct landing *landing, uint32_t slot,
                      CUstream stream)
{
    if ((landing->was_read & bit_of(slot)) != 0) {
        DEVICE_CALL(trainer->dev, cuStreamWaitEvent, stream,
                    landing->read[slot], CU_EVENT_WAIT_DEFAULT);
    }
}

static float *take_for_forward(const struct trainer *trainer,
                               struct chunk *chunk, struct flight *flight,
                               CUstream stream)
{
    struct landing *landing = &chunk->landing;
    const uint32_t slot = next_slot(landing);

    if (slot >= landing->n || (landing->full & bit_of(slot)) != 0) {
        return NULL;
    }
    if (stream != trainer->streams[0]) {
        wait_read(trainer, landing, slot, stream);
    }
    landing->full |= bit_of(slot);
    flight->landed = slot + 1;
    return at(trainer, landing->x, slot);
}

/* Copies what was received to another place, behind all passes until now. */
static void move(const struct trainer *trainer, int microbatch, float *to,
                 const float *from)
{
    DEVICE_CALL(trainer->dev, cuMemcpyDtoDAsync, device_address(to),
                device_address(from), bytes_of(trainer, microbatch),
                trainer->streams[0]);
}

/* What has been read of a slot's may be overwritten. */
static void note_read(const struct trainer *trainer, uint32_t slot)
{
    struct landing *landing = &trainer->chunk->landing;

    landing->was_read |= bit_of(slot);
    DEVICE_CALL(trainer->dev, cuEventRecord, landing->read[slot],
                trainer->streams[0]);
}

static void leave(const struct trainer *trainer, uint32_t slot)
{
    trainer->chunk->landing.full &= ~bit_of(slot);
    note_read(trainer, slot);
}

/* Brings the input to the place of the slot that the microbatch will have. */
static void settle(struct trainer *trainer, int microbatch, uint32_t slot)
{
    struct landing *landing = &trainer->chunk->landing;
    struct flight *flight = &trainer->chunk->flights[microbatch];
    const uint32_t from = flight->landed;

    if (from == slot + 1 || (landing->full & bit_of(slot)) != 0) {
        return;
    }
    move(trainer, microbatch, at(trainer, landing->x, slot),
         from != 0 ? at(trainer, landing->x, from - 1)
                   : row_block(trainer, trainer->chunk->x, microbatch));
    landing->full |= bit_of(slot);
    flight->landed = slot + 1;
    if (from != 0) {
        leave(trainer, from - 1);
    }
}

static int *tokens_at(const struct trainer *trainer, int *places, uint32_t slot)
{
    return places + slot * tokens_of(trainer);
}

/* Copies the tokens beside the passes. */
static void bring_tokens(struct trainer *trainer, int microbatch, uint32_t slot)
{
    struct device *dev = trainer->dev;
    const struct landing *landing = &trainer->chunk->landing;

    wait_read(trainer, landing, slot, trainer->aside);
    DEVICE_CALL(dev, cuMemcpyDtoDAsync,
                device_address(tokens_at(trainer, landing->tokens, slot)),
                device_address(
                    tokens_at(trainer, trainer->tokens, (uint32_t)microbatch)),
                tokens_of(trainer) * sizeof(int), trainer->aside);
    DEVICE_CALL(dev, cuEventRecord, landing->came[slot], trainer->aside);
    DEVICE_CALL(dev, cuStreamWaitEvent, trainer->streams[0],
                landing->came[slot], CU_EVENT_WAIT_DEFAULT);
    trainer->chunk->flights[microbatch].tokens_landed = slot + 1;
}

void landing_before_forward(struct trainer *trainer, int microbatch)
{
    const struct landing *landing = &trainer->chunk->landing;
    const uint32_t slot = next_slot(landing);

    if (slot >= landing->n) {
        return;
    }
    if (landing->x != NULL) {
        settle(trainer, microbatch, slot);
    }
    if (landing->tokens != NULL) {
        bring_tokens(trainer, microbatch, slot);
    }
}

void landing_after_forward(struct trainer *trainer, int microbatch)
{
    struct landing *landing = &trainer->chunk->landing;
    const struct flight *flight = &trainer->chunk->flights[microbatch];

    if (flight->slot < MAX_SLOTS) {
        landing->held |= bit_of(flight->slot);
    }
    if (flight->landed != 0) {
        leave(trainer, flight->landed - 1);
    }
    if (flight->tokens_landed != 0 && flight->tokens_landed != flight->landed) {
        note_read(trainer, flight->tokens_landed - 1);
    }
}

CUevent landing_behind_forward(const struct trainer *trainer, int microbatch)
{
    const struct flight *flight = &trainer->chunk->flights[microbatch];
    const uint32_t place =
        flight->landed != 0 ? flight->landed : flight->tokens_landed;

    return place == 0 ? NULL : trainer->chunk->landing.read[place - 1];
}

void landing_end(struct trainer *trainer, int microbatch)
{
    const struct flight *flight = &trainer->chunk->flights[microbatch];

    if (flight->slot < MAX_SLOTS) {
        trainer->chunk->landing.held &= ~bit_of(flight->slot);
    }
}

const float *landing_input(const struct trainer *trainer, int microbatch,
                           bool *stays_p)
{
    const struct landing *landing = &trainer->chunk->landing;
    const struct flight *flight = &trainer->chunk->flights[microbatch];
    const uint32_t slot = flight->landed;

    *stays_p = slot != 0 && slot == next_slot(landing) + 1;
    return slot == 0 ? row_block(trainer, trainer->chunk->x, microbatch)
                     : at(trainer, landing->x, slot - 1);
}

const float *landing_kept(const struct trainer *trainer, int microbatch,
                          bool *stays_p)
{
    const struct landing *landing = &trainer->chunk->landing;
    const uint32_t slot = trainer->chunk->flights[microbatch].slot;

    *stays_p = is_hosted(trainer, landing->kept) && slot < landing->n;
    return *stays_p ? at(trainer, landing->kept, slot)
                    : row_block(trainer, trainer->chunk->x, microbatch);
}

const float *landing_keep(const struct trainer *trainer, int microbatch,
                          const float *x, CUstream stream)
{
    bool stays;
    const float *kept = landing_kept(trainer, microbatch, &stays);

    if (kept != x && trainer->chunk->landing.kept != NULL) {
        DEVICE_CALL(trainer->dev, cuMemcpyDtoDAsync, device_address(kept),
                    device_address(x), bytes_of(trainer, microbatch), stream);
        return kept;
    }
    return x;
}

const int *landing_tokens(const struct trainer *trainer, int microbatch,
                          bool *stays_p)
{
    const struct landing *landing = &trainer->chunk->landing;
    const uint32_t slot = trainer->chunk->flights[microbatch].tokens_landed;

    *stays_p = slot != 0;
    return slot == 0 ? tokens_at(trainer, trainer->tokens, (uint32_t)microbatch)
                     : tokens_at(trainer, landing->tokens, slot - 1);
}

const int *landing_kept_tokens(const struct trainer *trainer, int microbatch,
                               bool *stays_p)
{
    const struct landing *landing = &trainer->chunk->landing;
    const uint32_t slot = trainer->chunk->flights[microbatch].slot;

    *stays_p = landing->tokens_kept != NULL && slot < landing->n;
    return *stays_p ? tokens_at(trainer, landing->tokens_kept, slot)
                    : tokens_at(trainer, trainer->tokens, (uint32_t)microbatch);
}

void landing_keep_tokens(const struct trainer *trainer, int microbatch,
                         const int *tokens, CUstream stream)
{
    bool stays;
    const int *kept = landing_kept_tokens(trainer, microbatch, &stays);

    if (stays) {
        DEVICE_CALL(trainer->dev, cuMemcpyDtoDAsync, device_address(kept),
                    device_address(tokens), tokens_of(trainer) * sizeof(int),
                    stream);
    }
}

/* ---- gradients ----------------------------------------------------------- */

static float *take_for_backward(const struct trainer *trainer,
                                const struct chunk *chunk,
                                struct flight *flight)
{
    if (flight->set == NULL || flight->slot >= chunk->landing.n) {
        return NULL;
    }
    flight->gradient_landed = true;
    return at(trainer, chunk->landing.dy, flight->slot);
}

float *landing_take(struct trainer *trainer, struct chunk *chunk, bool backward,
                    int microbatch, CUstream stream)
{
    struct flight *flight = &chunk->flights[microbatch];
    float *place = NULL;

    if (is_hosted(trainer, backward ? chunk->landing.dy : chunk->landing.x)) {
        place = backward ? take_for_backward(trainer, chunk, flight)
                         : take_for_forward(trainer, chunk, flight, stream);
    }
    return place != NULL
               ? place
               : row_block(trainer, backward ? chunk->d_head : chunk->x,
                           microbatch);
}

void landing_before_backward(struct trainer *trainer, int microbatch)
{
    const struct landing *landing = &trainer->chunk->landing;
    struct flight *flight = &trainer->chunk->flights[microbatch];

    if (is_hosted(trainer, landing->dy) && !flight->gradient_landed &&
        flight->slot < landing->n) {
        move(trainer, microbatch, at(trainer, landing->dy, flight->slot),
             row_block(trainer, trainer->chunk->d_head, microbatch));
        flight->gradient_landed = true;
    }
}

const float *landing_gradient(const struct trainer *trainer, int microbatch,
                              bool *stays_p)
{
    const struct flight *flight = &trainer->chunk->flights[microbatch];

    *stays_p = flight->gradient_landed;
    return flight->gradient_landed
               ? at(trainer, trainer->chunk->landing.dy, flight->slot)
               : row_block(trainer, trainer->chunk->d_head, microbatch);
}
