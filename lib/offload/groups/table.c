/*
 * table.c - see table.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "offload/groups/table.h"

#include "base/error.h"
#include "offload/groups/group.h"
#include "plan/kinds.h"

#include <stdio.h>
#include <stdlib.h>

static gh_status no_memory(gh_error *err)
{
    return gh_fail(err, GH_ERR_NO_MEMORY, "no memory for a group");
}

static void free_instance(struct gh_table *table, struct gh_instance *instance)
{
    gh_device_event_destroy(table->memory->streams->dev, instance->ended);
    gh_memory_free(table->memory, instance->kept, instance->kept_bytes);
    gh_memory_free(table->memory, instance->wider, instance->wider_bytes);
    free(instance->host_memory);
}

static void free_group(struct gh_table *table, struct gh_group *group)
{
    for (uint32_t i = 0; i < table->max_slots; i++) {
        free_instance(table, &group->of_slot[i]);
    }
    while (group->slotless != NULL) {
        struct gh_instance *slotless = group->slotless;

        group->slotless = slotless->next;
        free_instance(table, slotless);
        free(slotless);
    }
    free(group->of_slot);
    free(group);
}

void gh_table_free(struct gh_table *table)
{
    for (uint32_t i = 0; i < table->n_groups; i++) {
        free_group(table, table->groups[i]);
    }
    for (uint32_t i = 0; i < table->n_classes; i++) {
        gh_ring_free(&table->classes[i]->out, table->memory);
        gh_ring_free(&table->classes[i]->back, table->memory);
        free(table->classes[i]);
    }
    free(table->groups);
    free(table->classes);
    table->groups = NULL;
    table->classes = NULL;
    table->n_groups = table->n_classes = 0;
}

struct gh_group *gh_table_find(const struct gh_table *table, uint32_t layer,
                               uint32_t module)
{
    for (uint32_t i = 0; i < table->n_groups; i++) {
        struct gh_group *group = table->groups[i];

        if (group->layer == layer && group->module == module) {
            return group;
        }
    }
    return NULL;
}

uint32_t gh_table_index(const struct gh_table *table,
                        const struct gh_group *group)
{
    uint32_t i = 0;

    while (i < table->n_groups && table->groups[i] != group) {
        i++;
    }
    return i;
}

/* One more pointer at the end of an array of `n`. */
static bool append(void ***array, uint32_t n, void *item)
{
    void **grown = realloc(*array, (n + (size_t)1) * sizeof(*grown));

    if (grown == NULL) {
        return false;
    }
    grown[n] = item;
    *array = grown;
    return true;
}

gh_status gh_table_add(struct gh_table *table, uint32_t layer, uint32_t module,
                       uint32_t chunk, struct gh_group **group_p, gh_error *err)
{
    struct gh_group *group = calloc(1, sizeof(*group));

    if (group == NULL) {
        return no_memory(err);
    }
    group->layer = layer;
    group->module = module;
    group->chunk = chunk;
    group->of_slot = calloc(table->max_slots, sizeof(*group->of_slot));
    if (group->of_slot == NULL ||
        !append((void ***)&table->groups, table->n_groups, group)) {
        free(group->of_slot);
        free(group);
        return no_memory(err);
    }
    for (uint32_t i = 0; i < table->max_slots; i++) {
        group->of_slot[i].group = group;
        group->of_slot[i].slot = i;
    }
    table->n_groups++;
    *group_p = group;
    return GH_OK;
}

gh_status gh_table_find_class(struct gh_table *table, uint32_t module,
                              uint64_t bytes,
                              struct gh_size_class **size_class_p,
                              gh_error *err)
{
    struct gh_size_class *made;

    for (uint32_t i = 0; i < table->n_classes; i++) {
        struct gh_size_class *known = table->classes[i];

        if (known->module == module && known->bytes == bytes) {
            *size_class_p = known;
            return GH_OK;
        }
    }
    made = calloc(1, sizeof(*made));
    if (made == NULL ||
        !append((void ***)&table->classes, table->n_classes, made)) {
        free(made);
        return no_memory(err);
    }
    made->module = module;
    made->bytes = bytes;
    made->out.bytes = made->back.bytes = bytes;
    table->n_classes++;
    *size_class_p = made;
    return GH_OK;
}

gh_status gh_table_instance(const struct gh_table *table,
                            struct gh_group *group, uint32_t slot,
                            uint32_t microbatch,
                            struct gh_instance **instance_p, gh_error *err)
{
    struct gh_instance *idle = NULL;

    if (slot < table->max_slots) {
        *instance_p = &group->of_slot[slot];
        return GH_OK;
    }
    for (struct gh_instance *i = group->slotless; i != NULL; i = i->next) {
        if (gh_instance_is_live(i) && i->microbatch == microbatch) {
            *instance_p = i;
            return GH_OK;
        }
        if (!gh_instance_is_live(i)) {
            idle = i;
        }
    }
    if (idle == NULL) {
        idle = calloc(1, sizeof(*idle));
        if (idle == NULL) {
            return no_memory(err);
        }
        idle->group = group;
        idle->slot = GH_SLOT_NONE;
        idle->next = group->slotless;
        group->slotless = idle;
    }
    *instance_p = idle;
    return GH_OK;
}

struct gh_group_name gh_group_name(const struct gh_offload *o, uint32_t layer,
                                   uint32_t module)
{
    struct gh_group_name name;
    const uint32_t own = module & ~GH_MODULE_NAMED;
    const char *text = "?";

    if ((module & GH_MODULE_NAMED) != 0) {
        text = own < o->options.n_names ? o->options.names[own] : "?";
    } else if (module != 0) {
        text = gh_module_names[__builtin_ctz(module)];
    }
    snprintf(name.text, sizeof(name.text), "layer %u, %.40s", layer, text);
    return name;
}

bool gh_group_tensor_goes(const struct gh_offload *o, uint64_t bytes)
{
    return bytes >= o->options.min_bytes && bytes != 0;
}
