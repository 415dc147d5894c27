/*
 * entry.c - what an entry is called in the log, and how it is given up.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "capture/private.h"

#include <stdio.h>

struct gh_entry_label gh_entry_describe(const struct gh_capture *c,
                                        const struct gh_entry *entry)
{
    const struct gh_place place = gh_bank_place_of(&c->bank, entry);
    struct gh_entry_label label;
    char where[120];

    gh_plan_extent(c->plan, &c->plan->segments[place.segment], where,
                   sizeof(where));
    snprintf(label.text, sizeof(label.text), "%s %s%s, slot %u", where,
             gh_direction_names[place.direction],
             place.variant == 0 ? "" : " (variant 1)", place.slot);
    return label;
}

void gh_entry_give_up(struct gh_capture *c, struct gh_entry *entry,
                      gh_reason reason, const char *text)
{
    gh_say_given_up(c, entry, text);
    gh_bank_clear(&c->bank, entry);
    entry->state = GH_ENTRY_EAGER;
    entry->reason = (uint8_t)reason;
}
