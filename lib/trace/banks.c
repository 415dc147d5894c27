/*
 * banks.c - the number and name of an event's bank.
 *
 * Records become text when the banks may already be gone, so their names are
 * kept here.  Bank 0 is declared by nobody and is not mentioned.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "trace/private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void gh_trace_name_bank(struct gh_trace *trace, uint32_t bank, const char *name)
{
    char(*names)[GH_BANK_NAME];
    uint32_t n = trace->n_names;

    if (bank >= n) {
        n = bank < 32 ? 64 : 2 * bank;
        names = realloc(trace->names, n * sizeof(*names));
        if (names == NULL) {
            return; /* only its number is shown */
        }
        memset(names[trace->n_names], 0,
               (n - trace->n_names) * sizeof(*names));
        trace->names = names;
        trace->n_names = n;
    }
    snprintf(trace->names[bank], sizeof(trace->names[bank]), "%s", name);
}

void gh_trace_put_bank(struct gh_trace *trace, uint32_t bank)
{
    if (bank != 0) {
        gh_trace_put(trace, " bank%u", bank);
    }
}

void gh_trace_put_bank_args(struct gh_trace *trace, uint32_t bank)
{
    if (bank == 0) {
        return;
    }
    gh_trace_put(trace, "\"bank\":%u,", bank);
    if (bank < trace->n_names && trace->names[bank][0] != '\0') {
        gh_trace_put(trace, "\"bank_name\":\"");
        gh_trace_put_name(trace, trace->names[bank]);
        gh_trace_put(trace, "\",");
    }
}
