/*
 * saving.c - see saving.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/saving.h"

#include "support/by_hand.h"
#include "tap/tap.h"

struct toy sv;
const char *const silent[] = { "GRAPHHOOKS_LOG=off", NULL };

static uint64_t opened;

static uint64_t count(void)
{
    const softcuda_counts c = toy_counts(&sv);

    return toy_objects(&c) - (sv.options.own ? c.device_allocations : 0);
}

uint64_t left_over(void)
{
    return count() - opened;
}

bool open_with(const struct toy_options *options)
{
    const char *reason;

    said[0] = '\0';
    if (!toy_open(&sv, options, &reason)) {
        ok(false, "the host opens: %s", reason);
        return false;
    }
    opened = count();
    if (toy_attach(&sv) != GH_OK) {
        ok(false, "the session opens: %s", sv.err.text);
        toy_close(&sv);
        return false;
    }
    return true;
}

bool run_steps(const uint32_t *counts, uint32_t n)
{
    bool ran = true;

    for (uint32_t i = 0; i < n && ran; i++) {
        ran = steps(1, counts[i]);
    }
    return ran;
}

bool steps(uint32_t n, uint32_t microbatches)
{
    gh_status status = GH_OK;

    for (uint32_t i = 0; i < n && status == GH_OK; i++) {
        status = toy_step(&sv, microbatches);
    }
    if (status != GH_OK) {
        diag("%s", sv.err.text);
    }
    return status == GH_OK;
}

bool is_right(void)
{
    const bool exact = toy_is_exact(&sv);

    if (!exact || toy_races(&sv) != 0) {
        diag("the sums are %s, %llu races", exact ? "right" : "wrong",
             (unsigned long long)toy_races(&sv));
    }
    return exact && toy_races(&sv) == 0;
}

bool trains(void)
{
    static const uint32_t counts[] = { 4, 5, 3, 4 };
    const char *text = NULL;
    const bool ran = run_steps(counts, 4);
    const bool exact = ran && toy_is_exact(&sv);
    const bool raced = toy_races(&sv) != 0;
    const bool unwritten = toy_unwritten(&sv, &text) != 0;

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

/* ---- a step that is cut -------------------------------------------------- */

enum toy_answer cut(struct toy *host, enum toy_call call, uint32_t layer,
                    uint32_t module, uint32_t microbatch)
{
    const struct cut *c = host->user;
    const bool forward = call == TOY_SAVE || call == TOY_COMMIT ||
                         call == TOY_ENTER ||
                         (call == TOY_LOAD && !host->has_added);

    (void)layer;
    (void)module;
    (void)microbatch;
    if (host->calls != c->at) {
        return TOY_GO_ON;
    }
    /* A backward that has added to its sums cannot be repeated. */
    return c->answer == TOY_AGAIN && !forward ? TOY_GO_ON : c->answer;
}

/* A step that is over, however it has ended, keeps nothing of the host's. */
static bool keeps_nothing(void)
{
    uint64_t out;

    sv.drv.cuCtxSynchronize();
    gh_flush_delayed(sv.session, NULL);
    out = lender_still_out(&sv.lender);
    if (out != 0) {
        diag("%llu blocks are out after the step", (unsigned long long)out);
    }
    return out == 0;
}

/* Whether the step had so many calls. */
static bool cut_one(const struct toy_options *options, uint32_t which,
                    struct cut c, bool *right)
{
    const bool lends = options->own && !options->unlent;
    bool reached = false, kept = false;
    gh_status status = GH_OK;

    *right = false;
    if (!open_with(options)) {
        return false;
    }
    for (uint32_t s = 0; s < 5 && status == GH_OK; s++) {
        sv.watch = s == which ? cut : NULL;
        sv.watches_entries = !options->own;
        sv.user = &c;
        status = toy_step(&sv, 3);
        if (s == which) {
            reached = sv.stopped || sv.calls >= c.at;
            status = sv.stopped ? GH_OK : status;
            kept = lends && !keeps_nothing();
        }
    }
    *right = status == GH_OK && is_right() && toy_stats(&sv).replays > 0;
    if (status != GH_OK) {
        diag("%s", sv.err.text);
    }
    toy_detach(&sv);
    *right = *right && !kept && (!lends || all_are_back());
    toy_close(&sv);
    return reached;
}

void sweep_cuts(const struct toy_options *options, uint32_t which,
                enum toy_answer answer, const char *what)
{
    uint32_t wrong = 0, n = 0;
    bool right, reached = true;

    for (n = 0; reached && n < 400; n++) {
        const struct cut c = { n + 1, answer };

        reached = cut_one(options, which, c, &right);
        if (!right) {
            diag("%s: step %u, call %u", what, which, n + 1);
        }
        wrong += !right;
    }
    ok(n > 4 && wrong == 0, "%s: after each of %u calls of step %u", what,
       n - 1, which);
}

gh_offload_desc asks(const char *modules)
{
    return (gh_offload_desc){ .struct_size = 1, .modules = modules,
                              .min_bytes = 4 };
}
