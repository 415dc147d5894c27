/*
 * controls.c - the controls of the software device.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/toy/shared.h"

#include "tap/tap.h"

#include <dlfcn.h>
#include <string.h>

void *toy_control(struct toy *toy, const char *symbol)
{
    return dlsym(toy->drv.library, symbol);
}

bool toy_configure(struct toy *toy, const char *settings)
{
    softcuda_configure_fn *configure =
        (softcuda_configure_fn *)toy_control(toy, "softcuda_configure");

    toy->mode_fails |= strstr(settings, "ExchangeStreamCaptureMode") != NULL;
    return configure != NULL && configure(settings) == 0;
}

uint64_t toy_races(struct toy *toy)
{
    softcuda_races_fn *races =
        (softcuda_races_fn *)toy_control(toy, "softcuda_races");
    const char *text;

    return races != NULL ? races(0, &text) : 0;
}

uint64_t toy_unwritten(struct toy *toy, const char **text_p)
{
    softcuda_unwritten_fn *unwritten =
        (softcuda_unwritten_fn *)toy_control(toy, "softcuda_unwritten");

    *text_p = NULL;
    return unwritten != NULL ? unwritten(0, text_p) : 0;
}

uint64_t toy_unmapped(struct toy *toy, const char **text_p)
{
    softcuda_unmapped_fn *unmapped =
        (softcuda_unmapped_fn *)toy_control(toy, "softcuda_unmapped");

    *text_p = NULL;
    return unmapped != NULL ? unmapped(0, text_p) : 0;
}

softcuda_counts toy_counts(struct toy *toy)
{
    softcuda_count_fn *count =
        (softcuda_count_fn *)toy_control(toy, "softcuda_count");
    softcuda_counts counts = { 0 };

    if (count != NULL) {
        count(&counts);
    }
    return counts;
}

uint64_t toy_objects(const softcuda_counts *c)
{
    return c->device_allocations + c->host_allocations + c->streams +
           c->events + c->graphs + c->execs + c->modules +
           c->contexts_retained + c->captures;
}

uint64_t toy_calls(struct toy *toy, const char *entry)
{
    softcuda_calls_fn *calls =
        (softcuda_calls_fn *)toy_control(toy, "softcuda_calls");

    return calls != NULL ? calls(entry) : 0;
}

void toy_end_suspending(struct toy *toy, bool ran, const char *name,
                        uint32_t seed, struct toy_suspensions *all)
{
    const char *unwritten = NULL, *unmapped = NULL;
    const bool right = ran && toy_is_exact(toy) && toy_races(toy) == 0 &&
                       toy_unwritten(toy, &unwritten) == 0 &&
                       toy_unmapped(toy, &unmapped) == 0 &&
                       toy_stats(toy).check_failures == 0;

    if (!right) {
        diag("%s, seed %u: %s; %s; %s", name, seed, toy->err.text,
             unwritten != NULL ? unwritten : "",
             unmapped != NULL ? unmapped : "");
    }
    all->wrong += !right;
    all->suspended += toy->suspended;
    all->awake += toy->awake;
    toy_close(toy);
}

void toy_judge_suspensions(const char *name, const struct toy_suspensions *all)
{
    ok(all->wrong == 0 && all->suspended > 0,
       "%s: exact, suspended %llu times, and %llu times in flight", name,
       (unsigned long long)all->suspended, (unsigned long long)all->awake);
}
