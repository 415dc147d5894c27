/*
 * retired.c - see retired.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "bank/retired.h"

#include "bank/bank.h"

#include <stdlib.h>

/* Behind what the stream has now.  A stream that the host captures is marked
 * later, which covers more than is needed. */
static void mark(void **mark_p, const struct gh_streams *streams, uint32_t i)
{
    struct gh_device *dev = streams->dev;
    void *event = NULL;

    if (gh_device_is_capturing(dev, streams->all[i]) ||
        gh_device_event_create(dev, &event, NULL) != GH_OK) {
        return;
    }
    if (gh_device_event_record(dev, event, streams->all[i], NULL) != GH_OK) {
        gh_device_event_destroy(dev, event);
        return;
    }
    *mark_p = event;
}

static void mark_all(struct gh_retired *retired,
                     const struct gh_streams *streams)
{
    for (uint32_t i = 0; i < retired->n_marks; i++) {
        if (retired->marks[i] == NULL) {
            mark(&retired->marks[i], streams, i);
        }
    }
}

struct gh_retired *gh_retired_create(uint32_t n, void **objects,
                                     uint32_t n_objects,
                                     const struct gh_streams *streams)
{
    struct gh_retired *retired = calloc(1, sizeof(*retired));
    struct gh_entry *entries = calloc(n + (size_t)1, sizeof(*entries));
    void **marks = calloc(streams->n + (size_t)1, sizeof(*marks));
    struct gh_device_before before;

    if (retired == NULL || entries == NULL || marks == NULL) {
        free(retired);
        free(entries);
        free(marks);
        return NULL;
    }
    *retired = (struct gh_retired){ .entries = entries,
                                    .objects = objects,
                                    .n_objects = n_objects,
                                    .marks = marks,
                                    .n_marks = streams->n };
    before = gh_device_enter(streams->dev);
    mark_all(retired, streams);
    gh_device_leave(streams->dev, before);
    return retired;
}

void gh_retired_release(void **objects, uint32_t n,
                        const struct gh_memory *memory)
{
    const gh_host_services *host = memory->host;

    for (uint32_t i = 0; i < n; i++) {
        if (objects[i] != NULL && host->release != NULL) {
            host->release(host->user, objects[i]);
        }
    }
    free(objects);
}

static void destroy(struct gh_retired *retired, const struct gh_memory *memory)
{
    struct gh_device *dev = memory->streams->dev;

    for (uint32_t i = 0; i < retired->n_entries; i++) {
        gh_entry_free(&retired->entries[i], memory);
    }
    for (uint32_t i = 0; i < retired->n_marks; i++) {
        gh_device_event_destroy(dev, retired->marks[i]);
    }
    gh_retired_release(retired->objects, retired->n_objects, memory);
    free(retired->entries);
    free(retired->marks);
    free(retired);
}

static bool is_over(struct gh_retired *retired,
                    const struct gh_streams *streams)
{
    mark_all(retired, streams);
    for (uint32_t i = 0; i < retired->n_marks; i++) {
        if (retired->marks[i] == NULL ||
            !gh_device_event_has_ended(streams->dev, retired->marks[i])) {
            return false;
        }
    }
    return true;
}

void gh_retired_poll(struct gh_retired **list, const struct gh_memory *memory)
{
    struct gh_device *dev = memory->streams->dev;
    struct gh_device_before before;

    if (*list == NULL) {
        return;
    }
    before = gh_device_enter(dev);
    while (*list != NULL) {
        struct gh_retired *retired = *list;

        if (is_over(retired, memory->streams)) {
            *list = retired->next;
            destroy(retired, memory);
        } else {
            list = &retired->next;
        }
    }
    gh_device_leave(dev, before);
}

void gh_retired_free_all(struct gh_retired **list,
                         const struct gh_memory *memory)
{
    while (*list != NULL) {
        struct gh_retired *retired = *list;

        *list = retired->next;
        destroy(retired, memory);
    }
}
