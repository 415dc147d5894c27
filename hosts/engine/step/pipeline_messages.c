/*
 * pipeline_messages.c - see pipeline_messages.h.
 *
 * A forward never overwrites what is on its way: the backward before it has
 * worked on a gradient from the stage that had received it.  Nor does a step:
 * ranks tell each other its loss when all that they receive has come.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "step/pipeline_messages.h"

#include "step/landing.h"

#include <stdlib.h>
#include <string.h>

static void make_stream(const struct messages *messages, CUstream *stream)
{
    DEVICE_CALL(messages->trainer->dev, cuStreamCreate, stream,
                CU_STREAM_NON_BLOCKING);
}

static CUevent *make_events(struct messages *messages)
{
    const size_t n = (size_t)messages->trainer->max_count;
    CUevent *events = calloc(n, sizeof(CUevent));

    if (events == NULL) {
        (void)device_check(messages->trainer->dev, "malloc",
                           CUDA_ERROR_OUT_OF_MEMORY);
        return NULL;
    }
    for (size_t i = 0; i < n; i++) {
        DEVICE_CALL(messages->trainer->dev, cuEventCreate, &events[i],
                    CU_EVENT_DISABLE_TIMING);
    }
    return events;
}

int messages_open(struct messages *messages, struct trainer *trainer)
{
    struct device *dev = trainer->dev;

    messages->trainer = trainer;
    messages->events =
        calloc((size_t)trainer->n_chunks, sizeof(*messages->events));
    if (messages->events == NULL) {
        return device_check(dev, "malloc", CUDA_ERROR_OUT_OF_MEMORY);
    }
    for (int i = 0; i < LINKS; i++) {
        make_stream(messages, &messages->to[i]);
        make_stream(messages, &messages->from[i]);
    }
    for (int i = 0; i < 2 * trainer->n_chunks; i++) {
        struct chunk_events *events = &messages->events[i / 2];

        events->made[i % 2] = make_events(messages);
        events->came[i % 2] = make_events(messages);
        events->asked[i % 2] =
            calloc((size_t)trainer->max_count, sizeof(unsigned));
        if (events->asked[i % 2] == NULL) {
            return device_check(dev, "malloc", CUDA_ERROR_OUT_OF_MEMORY);
        }
    }
    for (int i = 0; i < trainer->n_chunks; i++) {
        messages->events[i].sent = make_events(messages);
    }
    return dev->code == CUDA_SUCCESS ? 0 : -1;
}

static void free_events(const struct messages *messages, CUevent *events)
{
    for (int i = 0; events != NULL && i < messages->trainer->max_count; i++) {
        if (events[i] != NULL) {
            (void)messages->trainer->dev->drv.cuEventDestroy(events[i]);
        }
    }
    free(events);
}

void messages_close(struct messages *messages)
{
    struct trainer *trainer = messages->trainer;

    if (trainer == NULL) {
        return;
    }
    for (int i = 0; i < LINKS; i++) {
        if (messages->to[i] != NULL) {
            (void)trainer->dev->drv.cuStreamDestroy(messages->to[i]);
        }
        if (messages->from[i] != NULL) {
            (void)trainer->dev->drv.cuStreamDestroy(messages->from[i]);
        }
    }
    for (int i = 0; messages->events != NULL && i < 2 * trainer->n_chunks;
         i++) {
        struct chunk_events *events = &messages->events[i / 2];

        free_events(messages, events->made[i % 2]);
        free_events(messages, events->came[i % 2]);
        free(events->asked[i % 2]);
    }
    for (int i = 0; messages->events != NULL && i < trainer->n_chunks; i++) {
        free_events(messages, messages->events[i].sent);
    }
    free(messages->events);
    memset(messages, 0, sizeof(*messages));
}

void messages_begin_step(struct messages *messages,
                         const struct gh_pipeline *schedule)
{
    messages->schedule = schedule;
    messages->step++;
    landing_begin_step(messages->trainer);
    for (int i = 0; i < LINKS; i++) {
        messages->next[i] = 0;
    }
}

/* ---- from stage to stage ------------------------------------------------- */

/* Finds what an action makes for another part of the model, and the stage of
 * that part.  False: nothing. */
static bool is_sent(const struct gh_pipeline *schedule, uint32_t stage,
                    const struct gh_action *a, struct message *message,
                    uint32_t *to)
{
    const uint32_t n = schedule->n_stages * schedule->n_chunks;
    const uint32_t part = gh_pipeline_part(schedule, stage, a->chunk);
    const bool forward = a->kind == GH_ACTION_FORWARD;
    uint32_t next;

    if (a->kind == GH_ACTION_WEIGHTS || (forward ? part + 1 == n : part == 0)) {
        return false;
    }
    next = forward ? part + 1 : part - 1;
    *to = gh_pipeline_stage(schedule, next);
    *message = (struct message){ .backward = !forward,
                                 .chunk = (int)(next / schedule->n_stages),
                                 .microbatch = (int)a->microbatch };
    return true;
}

/* The way of a message between two stages.  Of two stages each is before and
 * after the other, so forwards go up. */
static enum link way_of(const struct gh_pipeline *schedule, uint32_t from,
                        uint32_t to, bool backward)
{
    const uint32_t n = schedule->n_stages;

    if (n == 2) {
        return backward ? LINK_DOWN : LINK_UP;
    }
    return to == (from + 1) % n ? LINK_UP : LINK_DOWN;
}

static uint32_t stage_of(const struct messages *messages)
{
    return (uint32_t)ranks_stage(messages->trainer->options->ranks);
}

/* Whether the first forward of a message's chunk, from an action on, is of its
 * microbatch. */
static bool is_next(const struct messages *messages, const struct gh_action *a,
                    const struct message *message)
{
    const struct gh_stage *stage =
        &messages->schedule->stages[stage_of(messages)];

    while (a < stage->actions + stage->n &&
           (a->kind != GH_ACTION_FORWARD || (int)a->chunk != message->chunk)) {
        a++;
    }
    return a < stage->actions + stage->n &&
           (int)a->microbatch == message->microbatch;
}

/* Where a message goes in the stage that receives it, on a stream, when that
 * stage is at an action.  A forward that comes later has no slot's place, which
 * the next one of the chunk needs. */
static float *place_of(const struct messages *messages,
                       const struct gh_action *a, const struct message *message,
                       CUstream stream)
{
    struct trainer *trainer = messages->trainer;
    struct chunk *chunk = &trainer->chunks[message->chunk];

    return message->backward || is_next(messages, a, message)
               ? landing_take(trainer, chunk, message->backward,
                              message->microbatch, stream)
               : row_block(trainer, chunk->x, message->microbatch);
}

static size_t count_of(const struct trainer *trainer, int microbatch)
{
    const struct config *config = &model_of(trainer, microbatch)->config;

    return (size_t)config_rows(config) * (size_t)config->hidden;
}

static void receive(struct messages *messages, const struct gh_action *at,
                    enum link way, const struct message *message)
{
    const struct chunk_events *events = &messages->events[message->chunk];
    struct trainer *trainer = messages->trainer;
    const struct comm *comm = &trainer->options->ranks->from[way];
    const CUstream stream = messages->from[way];

    comm_receive(comm, place_of(messages, at, message, stream),
                 count_of(trainer, message->microbatch), 1 - comm->rank,
                 stream);
    DEVICE_CALL(trainer->dev, cuEventRecord,
                events->came[message->backward][message->microbatch], stream);
    events->asked[message->backward][message->microbatch] = messages->step;
}

static bool is_same(const struct message *a, const struct message *b)
{
    return a->backward == b->backward && a->chunk == b->chunk &&
           a->microbatch == b->microbatch;
}

/* Receives from a stage until the message has been asked for that an action of
 * this one works on, in the order in which the stage sends. */
static void receive_until(struct messages *messages, const struct gh_action *at,
                          uint32_t from, enum link way,
                          const struct message *wanted)
{
    const struct gh_pipeline *schedule = messages->schedule;
    const uint32_t stage = stage_of(messages);
    struct message message;
    bool found = false;
    uint32_t to;

    while (!found && messages->next[way] < schedule->stages[from].n) {
        const struct gh_action *a =
            &schedule->stages[from].actions[messages->next[way]++];

        if (is_sent(schedule, from, a, &message, &to) && to == stage &&
            way_of(schedule, from, to, message.backward) == way) {
            receive(messages, at, way, &message);
            found = is_same(&message, wanted);
        }
    }
}

bool messages_find(const struct messages *messages, const struct gh_action *a,
                   uint32_t *from, CUevent *came)
{
    const struct gh_pipeline *schedule = messages->schedule;
    const uint32_t n = schedule->n_stages * schedule->n_chunks;
    const uint32_t part =
        gh_pipeline_part(schedule, stage_of(messages), a->chunk);
    const bool backward = a->kind != GH_ACTION_FORWARD;

    if (a->kind == GH_ACTION_WEIGHTS ||
        (backward ? part + 1 == n : part == 0)) {
        return false;
    }
    *from = gh_pipeline_stage(schedule, backward ? part + 1 : part - 1);
    *came = messages->events[a->chunk].came[backward][a->microbatch];
    return *from != stage_of(messages); /* else messages_send() puts it there */
}

void messages_receive(struct messages *messages, const struct gh_action *a)
{
    const struct trainer *trainer = messages->trainer;
    const struct gh_pipeline *schedule = messages->schedule;
    const bool backward = a->kind != GH_ACTION_FORWARD;
    const struct message wanted = { backward, (int)a->chunk,
                                    (int)a->microbatch };
    CUevent came;
    uint32_t from;

    if (!messages_find(messages, a, &from, &came)) {
        return;
    }
    if (messages->events[a->chunk].asked[backward][a->microbatch] !=
        messages->step) {
        receive_until(messages, a, from,
                      way_of(schedule, from, stage_of(messages), backward),
                      &wanted);
    }
    DEVICE_CALL(trainer->dev, cuStreamWaitEvent, trainer->streams[0], came,
                CU_EVENT_WAIT_DEFAULT);
}

/* Returns an event behind the pass that has made a message. */
static CUevent behind(const struct trainer *trainer,
                      const struct chunk_events *events,
                      const struct message *message)
{
    const CUevent made = events->made[message->backward][message->microbatch];
    const CUevent read =
        message->backward ? NULL
                          : landing_behind_forward(trainer, message->microbatch);

    if (read != NULL) {
        return read;
    }
    DEVICE_CALL(trainer->dev, cuEventRecord, made, trainer->streams[0]);
    return made;
}

void messages_send(struct messages *messages, const struct gh_action *a)
{
    struct trainer *trainer = messages->trainer;
    const struct flight *flight = &trainer->chunk->flights[a->microbatch];
    const size_t count = count_of(trainer, (int)a->microbatch);
    const struct chunk_events *events = &messages->events[a->chunk];
    struct device *dev = trainer->dev;
    const uint32_t stage = stage_of(messages);
    const struct comm *comm;
    const float *data;
    struct message message;
    enum link way;
    uint32_t to;

    if (!is_sent(messages->schedule, stage, a, &message, &to)) {
        return;
    }
    data = message.backward ? flight->dx : flight->out;
    if (to == stage) {
        DEVICE_CALL(dev, cuMemcpyDtoDAsync,
                    device_address(
                        place_of(messages, a, &message, trainer->streams[0])),
                    device_address(data), count * sizeof(float),
                    trainer->streams[0]);
        return;
    }
    way = way_of(messages->schedule, stage, to, message.backward);
    comm = &trainer->options->ranks->to[way];
    DEVICE_CALL(dev, cuStreamWaitEvent, messages->to[way],
                behind(trainer, events, &message), CU_EVENT_WAIT_DEFAULT);
    comm_send(comm, data, count, 1 - comm->rank, messages->to[way]);
    if (message.backward) {
        DEVICE_CALL(dev, cuEventRecord, events->sent[a->microbatch],
                    messages->to[way]);
    }
}

void messages_wait_sent(const struct messages *messages, int microbatch)
{
    const struct trainer *trainer = messages->trainer;
    const int chunk = trainer->chunk->index;
    const struct gh_action a = { GH_ACTION_BACKWARD, (uint32_t)chunk,
                                 (uint32_t)microbatch, 0 };
    struct message message;
    uint32_t to;

    if (is_sent(messages->schedule, stage_of(messages), &a, &message, &to) &&
        to != stage_of(messages)) {
        DEVICE_CALL(trainer->dev, cuStreamWaitEvent, trainer->streams[0],
                    messages->events[chunk].sent[microbatch],
                    CU_EVENT_WAIT_DEFAULT);
    }
}
