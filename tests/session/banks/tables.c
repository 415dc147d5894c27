/*
 * A table that graphs read is of a bank, and is held as long as its graphs.
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/banks.h"
#include "tap/tap.h"

#include <string.h>

#define N_TABLES 3
static char tables[N_TABLES][64];
static struct {
    int references[N_TABLES];
    uint64_t execs, pending; /* at the last release */
    uint32_t releases;
    bool by_host; /* nothing is to be retained */
} held;

static gh_status retain(void *user, void *object)
{
    (void)user;
    held.references[(char(*)[64])object - tables]++;
    return GH_OK;
}

static void release(void *user, void *object)
{
    (void)user;
    held.references[(char(*)[64])object - tables]--;
    held.execs = toy_counts(&s).execs;
    held.pending = toy_counts(&s).pending;
    held.releases++;
}

static const gh_host_services keeping = { .struct_size = sizeof(keeping),
                                          .retain = retain,
                                          .release = release };

/* A table for each layer of the bank. */
static gh_status bind_table(uint32_t shape, uint32_t table)
{
    gh_aux aux = { .struct_size = sizeof(aux),
                   .name = "rotary_cos",
                   .buffer = { .address = tables[table], .bytes = 64 },
                   .object = held.by_host ? NULL : tables[table],
                   .bank = s.shapes[shape].bank };
    gh_status status = GH_OK;

    for (aux.layer = 0; aux.layer < 2 && status == GH_OK; aux.layer++) {
        status = gh_aux_bind(s.session, &aux, &s.err);
    }
    return status;
}

static bool start_with_tables(const char *const *environment)
{
    memset(&held, 0, sizeof(held));
    if (!banks_start(&(struct toy_options){ .elems = 512,
                                            .free_running = true,
                                            .family = "mla",
                                            .host = &keeping,
                                            .environment = environment })) {
        return false;
    }
    toy_add_tokens(&s, 512);
    toy_add_tokens(&s, 256);
    return true;
}

static void test_tables_are_of_a_bank(void)
{
    uint64_t execs;

    if (!start_with_tables(banks_quiet)) {
        return;
    }
    is_status(bind_table(0, 0), GH_OK, &s.err, "a bank's table is bound");
    bind_table(1, 1);
    banks_step(0);
    banks_step(0);
    banks_step(1);
    execs = toy_counts(&s).execs;
    is_int(execs, 8, "both banks are recorded");
    bind_table(1, 2);
    is_int(toy_counts(&s).execs, 4, "a table that moves drops its bank's");
    is_int(toy_bank_stats(&s, 1).graphs, 0, "which has none then");
    is_int(toy_bank_stats(&s, 1).bytes, 0, "and uses no memory");
    is_int(toy_bank_stats(&s, 0).graphs, 4, "and no other's");
    is_int(held.references[1], 0, "the old one is released");
    is_int(held.references[0], 2, "the other bank's is held");
    s.shapes[0].bank = 9;
    is_status(bind_table(0, 0), GH_ERR_NOT_FOUND, &s.err,
              "there is no table of a bank that was never declared");
    banks_finish("tables");
    is_int(held.references[0] + held.references[2], 0,
           "the end releases all of them");
}

static void test_tables_go_with_the_graphs(void)
{
    if (!start_with_tables(banks_of_one)) {
        return;
    }
    bind_table(0, 0);
    bind_table(1, 1);
    banks_step(0);
    banks_step(0);
    banks_step(1);
    is_int(toy_bank_stats(&s, 0).evictions, 1, "a bank gives way");
    is_int(held.references[0], 2, "while its graphs run its table is held");
    s.drv.cuCtxSynchronize();
    toy_end_step(&s);
    is_int(held.references[0], 0, "and released with the last of them");
    is_int(held.releases, 2, "once for each layer");
    is_int(held.execs, 4, "no graph that reads it is left then");
    is_int(held.pending, 0, "nor does any run");
    banks_step(0);
    is_int(toy_eager(&s, GH_REASON_UNBOUND), 4,
           "its passes are not recorded again without a table");
    is_int(toy_bank_stats(&s, 1).evictions, 0,
           "and no bank gives way for them");
    bind_table(0, 2);
    banks_step(0);
    is_int(toy_bank_stats(&s, 0).graphs, 4, "bound anew, they are");
    is_int(held.references[2], 2, "and the new one is held");
    held.by_host = true;
    bind_table(1, 1);
    banks_step(1);
    banks_step(0);
    bind_table(1, 1);
    banks_step(1);
    is_int(toy_bank_stats(&s, 1).graphs, 4,
           "so are those of a table that the host keeps by itself");
    banks_finish("tables and graphs");
    is_int(held.references[1] + held.references[2], 0,
           "the end releases what is left");
}

int main(void)
{
    int status;

    if (!toy_probe_soft(&status)) {
        return status;
    }
    test_tables_are_of_a_bank();
    test_tables_go_with_the_graphs();
    return done_testing();
}
