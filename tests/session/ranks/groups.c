/*
 * A bank for each size of context parallelism has its own ranks: microbatches
 * of all sizes come in any order, and each bank is recorded when it is first
 * used, by the ranks of its group together.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "tests/session/ranks/sharer.h"

#include <stdio.h>
#include <string.h>

#define MOST 3 /* sizes */

/* A size of groups of this rank's, and its bank. */
struct size {
    int ranks, first;
    ncclComm_t comm;
    uint32_t bank;
};

struct host {
    struct sharer s;
    struct size sizes[MOST];
    uint32_t n;
};

/* All ranks call it, with the same size. */
static bool add_size(struct host *h, int ranks)
{
    struct rank *r = h->s.r;
    struct size *size = &h->sizes[h->n++];
    gh_bank_desc desc = { .struct_size = sizeof(desc),
                          .cp_size = (uint32_t)ranks };
    char name[16];

    snprintf(name, sizeof(name), "cp%d", ranks);
    size->ranks = ranks;
    size->first = r->rank / ranks * ranks;
    if (nccl.ncclCommSplit(r->comm, r->rank / ranks, r->rank, &size->comm,
                           NULL) != ncclSuccess) {
        return says(r, false, "%s has a communicator", name);
    }
    desc.group = size->comm;
    desc.name = name;
    gh_bank_add(h->s.session, &desc, &size->bank, &h->s.err);
    h->s.ranks.bank = size->bank;
    h->s.ranks.rank = (uint32_t)(r->rank - size->first);
    h->s.ranks.size = (uint32_t)ranks;
    h->s.ranks.comm = size->comm;
    return says(r, sharer_join(&h->s) == GH_OK, "%s has its ranks: %.120s",
                name, h->s.err.text);
}

static bool open_host(struct host *h, struct rank *r, const int *sizes,
                      uint32_t n, const struct sharer_options *options)
{
    memset(h, 0, sizeof(*h));
    if (!sharer_open_alone(&h->s, r, options)) {
        return false;
    }
    for (uint32_t i = 0; i < n; i++) {
        if (!add_size(h, sizes[i])) {
            return false;
        }
    }
    return true;
}

static void use(struct host *h, uint32_t i)
{
    const struct size *size = &h->sizes[i];

    h->s.bank = size->bank;
    h->s.comm = size->comm;
    h->s.group = size->comm;
    h->s.first = size->first;
    h->s.n = size->ranks;
}

static void close_host(struct host *h)
{
    sharer_close(&h->s);
    for (uint32_t i = 0; i < h->n; i++) {
        nccl.ncclCommDestroy(h->sizes[i].comm);
    }
}

/* The same for all ranks. */
static uint32_t next(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 16;
}

static void train(struct rank *r, const int *sizes, uint32_t n,
                  const struct sharer_options *options)
{
    uint32_t state = 99, used = 0;
    gh_bank_stats stats = { .struct_size = sizeof(stats) };
    struct host h;

    if (open_host(&h, r, sizes, n, options)) {
        for (uint32_t step = 0; step < 12; step++) {
            const uint32_t i = next(&state) % n;

            used |= step == 0 ? 0 : 1u << i;
            use(&h, i);
            says(r, sharer_is_exact(&h.s), "step %u of cp%d is right", step,
                 sizes[i]);
        }
        for (uint32_t i = 0; i < n; i++) {
            gh_bank_get_stats(h.s.session, h.sizes[i].bank, &stats, NULL);
            says_int(r, stats.graphs,
                     (used & 1u << i) != 0 ? SHARER_PASSES : 0,
                     "cp%d has the graphs of its own passes", sizes[i]);
        }
        says_int(r, h.s.ran, SHARER_PASSES, "no pass is eager after warmup");
    }
    close_host(&h);
}

static const struct sharer_options plain;

/* The later one of two banks gets its ranks first. */
static void test_ranks_in_another_order(struct rank *r)
{
    gh_bank_desc desc = { .struct_size = sizeof(desc) };
    uint32_t banks[2] = { 0, 0 };
    struct sharer s;

    if (!sharer_open_alone(&s, r, &plain)) {
        return;
    }
    for (uint32_t i = 0; i < 2; i++) {
        desc.tokens = 16u << i;
        says_int(r, gh_bank_add(s.session, &desc, &banks[i], &s.err), GH_OK,
                 "a bank of %u tokens is declared", desc.tokens);
    }
    for (uint32_t i = 2; i-- > 0;) {
        s.ranks.bank = banks[i];
        says_int(r, sharer_join(&s), GH_OK, "bank %u has ranks: %.120s",
                 banks[i], s.err.text);
    }
    for (uint32_t i = 2; i-- > 0;) {
        says_int(r, gh_ranks_clear(s.session, banks[i], &s.err), GH_OK,
                 "and gives them back: %.120s", s.err.text);
    }
    sharer_close(&s);
}

static void test_powers_of_two(struct rank *r)
{
    static const int sizes[] = { 1, 2, 4 };

    train(r, sizes, 3, &plain);
}

static void test_no_powers_of_two(struct rank *r)
{
    static const int sizes[] = { 1, 3 };

    train(r, sizes, 2, &plain);
}

/* One rank cannot record a pass of the largest group: all of that group run it
 * eagerly, and the others of its banks are as they were. */
static void break_largest(struct sharer *s, const gh_pass *pass,
                          const gh_decision *d)
{
    if (d->action == GH_ACTION_RECORD && s->r->rank == 1 && s->n == 4 &&
        pass->segment == 0 && pass->direction == GH_FORWARD) {
        drv.cuStreamSynchronize(d->stream);
    }
}

static void test_one_bank_falls_back(struct rank *r)
{
    static const int sizes[] = { 2, 4 };
    const struct sharer_options options = { .mischief = break_largest };
    struct host h;

    if (open_host(&h, r, sizes, 2, &options)) {
        for (uint32_t step = 0; step < 7; step++) {
            use(&h, step % 2);
            says(r, sharer_is_exact(&h.s), "step %u is right", step);
        }
        says_int(r, h.s.reruns, 1, "one pass ran again");
        says_int(r, (long long)sharer_eager(&h.s, r->rank == 1
                                                      ? GH_REASON_CAPTURE
                                                      : GH_REASON_RANKS),
                 3, "and is eager on all four");
        says_int(r, h.s.recorded, 2 * SHARER_PASSES,
                 "all passes were recorded, or tried");
    }
    close_host(&h);
}

/* The group of another size: its operations are in the graphs of another
 * bank. */
static void test_another_group_is_refused(struct rank *r)
{
    static const int sizes[] = { 1, 2 };
    struct host h;

    if (open_host(&h, r, sizes, 2, &plain)) {
        use(&h, 1);
        says(r, sharer_is_exact(&h.s), "a step is right");
        h.s.group = h.sizes[0].comm;
        says_int(r, sharer_pass(&h.s, 0, GH_FORWARD, 0), GH_ERR_INVALID,
                 "another group than the bank's is refused");
        says(r, strstr(h.s.err.text, "declare a bank for each group") != NULL,
             "in words: %.120s", h.s.err.text);
        h.s.group = h.sizes[1].comm;
        says(r, sharer_is_exact(&h.s), "the next step is right");
    }
    close_host(&h);
}

int main(void)
{
    static const struct ranks_test four[] = {
        { "1, 2 and 4", test_powers_of_two, false },
        { "ranks in another order", test_ranks_in_another_order, false },
        { "one bank falls back", test_one_bank_falls_back, false },
    };
    static const struct ranks_test three[] = {
        { "1 and 3", test_no_powers_of_two, false },
    };
    static const struct ranks_test two[] = {
        { "another group", test_another_group_is_refused, false },
    };
    int status;

    if (!ranks_open(&status)) {
        return status;
    }
    ranks_run_all(4, four, sizeof(four) / sizeof(four[0]));
    ranks_run_all(3, three, 1);
    ranks_run_all(2, two, 1);
    ranks_quiet(true);
    for (int seed = 2; seed < 12 && ranks_are_soft(); seed++) {
        ranks_seed(seed);
        ranks_run_all(4, four, sizeof(four) / sizeof(four[0]));
        ranks_run_all(3, three, 1);
    }
    ranks_quiet(false);
    ok(true, "seeds are right");
    return done_testing();
}
