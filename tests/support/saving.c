/*
 * saving.c - see saving.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/saving.h"

#include "support/by_hand.h"
#include "tap/tap.h"

struct saver sv;

static uint64_t opened;

static uint64_t count(void)
{
    const softcuda_counts c = toy_counts(&sv.toy);

    return (sv.options.own ? 0 : c.device_allocations) + c.host_allocations +
           c.streams + c.events + c.graphs + c.execs + c.modules + c.captures;
}

uint64_t left_over(void)
{
    return count() - opened;
}

bool open_with(const struct saver_options *options)
{
    const char *reason;

    said[0] = '\0';
    if (!saver_open(&sv, options, &reason)) {
        ok(false, "the host opens: %s", reason);
        return false;
    }
    opened = count();
    if (saver_attach(&sv) != GH_OK) {
        ok(false, "the session opens: %s", sv.err.text);
        saver_close(&sv);
        return false;
    }
    return true;
}

bool run_steps(const uint32_t *counts, uint32_t n)
{
    gh_status status = GH_OK;

    for (uint32_t i = 0; i < n && status == GH_OK; i++) {
        status = saver_step(&sv, counts[i]);
    }
    if (status != GH_OK) {
        diag("%s", sv.err.text);
    }
    return status == GH_OK;
}

bool trains(void)
{
    static const uint32_t counts[] = { 4, 5, 3, 4 };
    const char *text = NULL;
    const bool ran = run_steps(counts, 4);
    const bool exact = ran && saver_is_exact(&sv);
    const bool raced = toy_races(&sv.toy) != 0;
    const bool unwritten = toy_unwritten(&sv.toy, &text) != 0;

    if (!ran || !exact || raced || unwritten) {
        diag("ran %d, exact %d, raced %d, unwritten: %s", ran, exact, raced,
             text != NULL ? text : "no");
    }
    return ran && exact && !raced && !unwritten;
}

bool all_are_back(void)
{
    const struct lender *l = &sv.lender;
    const bool are = l->wrong == 0 && l->lent == l->returned &&
                     lender_still_out(l) == 0;

    if (!are) {
        diag("%llu lent, %llu returned, %llu wrong, %llu still out",
             (unsigned long long)l->lent, (unsigned long long)l->returned,
             (unsigned long long)l->wrong,
             (unsigned long long)lender_still_out(l));
    }
    return are;
}

gh_offload_desc asks(const char *modules)
{
    return (gh_offload_desc){ .struct_size = 1, .modules = modules,
                              .min_bytes = 4 };
}
