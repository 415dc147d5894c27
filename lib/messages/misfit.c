/*
 * misfit.c - in words, why a graph cannot serve a pass.
 *
 * Called once in a session, for the first pass that runs eagerly for it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "messages/misfit.h"

#include "pass/capacity.h"
#include "pass/options.h"

#include <graphhooks/plan.h>

#include <stdio.h>

/* "input 1 (residual)" */
static void name_input(const gh_pass *pass, uint32_t i, char *text,
                       size_t bytes)
{
    const gh_tensor tensor = pass->inputs[i].tensor;

    if (tensor == GH_TENSOR_NONE) {
        snprintf(text, bytes, "input %u", i);
    } else {
        snprintf(text, bytes, "input %u (%s)", i, gh_tensor_name(tensor));
    }
}

static void describe_short(const char *name, const gh_buffer *input,
                           uint64_t capacity, char *text, size_t bytes)
{
    snprintf(text, bytes,
             "its %s is static and has %llu bytes of %llu, and nothing can be "
             "zeroed behind it; clear GH_BUFFER_STATIC, or zero the rest and "
             "give all of it",
             name, (unsigned long long)input->bytes,
             (unsigned long long)capacity);
}

/* False: this input fits. */
static bool describe_input(const struct gh_entry *entry, const gh_pass *pass,
                           uint32_t i, char *text, size_t bytes)
{
    const gh_buffer *now = &pass->inputs[i], *then = &entry->inputs[i];
    const bool by_capacity = entry->filled != NULL &&
                             entry->filled[i] != GH_ALL_FILLED;
    char name[64];

    name_input(pass, i, name, sizeof(name));
    if (by_capacity && now->bytes <= then->bytes) {
        const uint64_t capacity =
            pass->capacities == NULL ? 0 : pass->capacities[i];

        if (capacity != then->bytes) {
            snprintf(text, bytes,
                     "its %s has a capacity of %llu bytes, and had one of %llu "
                     "when it was recorded",
                     name, (unsigned long long)capacity,
                     (unsigned long long)then->bytes);
            return true;
        }
        if (entry->kinds[i] == GH_INPUT_STATIC && now->bytes < then->bytes) {
            describe_short(name, now, capacity, text, bytes);
            return true;
        }
    } else if (now->bytes != then->bytes) {
        snprintf(text, bytes,
                 "its %s has %llu bytes, and had %llu when it was recorded",
                 name, (unsigned long long)now->bytes,
                 (unsigned long long)then->bytes);
        return true;
    }
    if (entry->kinds[i] == GH_INPUT_STATIC && now->bytes != 0 &&
        now->address != then->address) {
        snprintf(text, bytes,
                 "its %s is at %p, and was at %p when it was recorded; clear "
                 "GH_BUFFER_STATIC of an input that moves",
                 name, now->address, then->address);
        return true;
    }
    return false;
}

void gh_misfit_overflow(const gh_pass *pass, char *text, size_t bytes)
{
    char name[64];
    uint32_t i = 0;

    while (gh_capacity_holds(pass, i)) {
        i++;
    }
    name_input(pass, i, name, sizeof(name));
    if (pass->capacities[i] > GH_MOST_CAPACITY) {
        snprintf(text, bytes,
                 "its %s has a capacity of %llu bytes, which no device has",
                 name, (unsigned long long)pass->capacities[i]);
        return;
    }
    if (pass->inputs[i].bytes < pass->capacities[i]) {
        describe_short(name, &pass->inputs[i], pass->capacities[i], text,
                       bytes);
        return;
    }
    snprintf(text, bytes, "its %s has %llu bytes, and a capacity of %llu", name,
             (unsigned long long)pass->inputs[i].bytes,
             (unsigned long long)pass->capacities[i]);
}

void gh_misfit_describe(const struct gh_entry *entry, const gh_pass *pass,
                        char *text, size_t bytes)
{
    if (pass->n_inputs != entry->n_inputs) {
        snprintf(text, bytes,
                 "it has %u inputs, and had %u when it was recorded",
                 pass->n_inputs, entry->n_inputs);
        return;
    }
    for (uint32_t i = 0; i < entry->n_inputs; i++) {
        if (describe_input(entry, pass, i, text, bytes)) {
            return;
        }
    }
    snprintf(text, bytes, "its flags are 0x%x, and were 0x%x when it was "
             "recorded", pass->flags & ~GH_CALL_FLAGS,
             entry->flags & ~GH_CALL_FLAGS);
}
