/*
 * Banks that are wrong, or declared at the wrong time, are refused in words.
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/banks.h"
#include "tap/tap.h"

#include <string.h>

static gh_status enter_bank(uint32_t m, uint32_t segment,
                            gh_direction direction, uint32_t bank, void *group)
{
    const gh_pass pass = { .struct_size = sizeof(pass),
                           .segment = segment,
                           .direction = direction,
                           .microbatch = m,
                           .bank = bank,
                           .group = group,
                           .stream = s.streams[0] };
    gh_decision d = { .struct_size = sizeof(d) };
    gh_status status = gh_layer_enter(s.session, &pass, &d, &s.err);

    if (status == GH_OK) {
        gh_layer_cancel(s.session, NULL);
    }
    return status;
}

static void test_banks_that_are_wrong(void)
{
    int groups[2];
    const gh_bank_desc desc = { .struct_size = sizeof(desc),
                                .cp_size = 2,
                                .group = &groups[0],
                                .tokens = 256,
                                .name = "cp2" };

    if (!banks_start(&(struct toy_options){ .elems = 512 })) {
        return;
    }
    toy_add_tokens(&s, 512);
    toy_add_shape(&s, 256, &desc);
    is_status(enter_bank(0, 0, GH_FORWARD, 3, NULL), GH_ERR_NOT_FOUND, &s.err,
              "a bank that was never declared is refused");
    ok(strstr(s.err.text, "gh_bank_add") != NULL, "in words: %s", s.err.text);
    is_status(enter_bank(0, 0, GH_FORWARD, 2, &groups[1]), GH_ERR_INVALID,
              &s.err, "and so is another group than the bank's");
    ok(strstr(s.err.text, "cp2") != NULL, "in words: %s", s.err.text);
    is_status(enter_bank(0, 0, GH_FORWARD, 0, &groups[1]), GH_ERR_INVALID,
              &s.err, "also of bank 0, which has none");
    is_status(enter_bank(0, 0, GH_FORWARD, 2, &groups[0]), GH_OK, &s.err,
              "the bank's own group is right");
    is_status(enter_bank(0, 0, GH_FORWARD, 2, NULL), GH_OK, &s.err,
              "and so is none");
    toy_forward_shape(&s, 0, 0);
    is_status(enter_bank(0, 1, GH_BACKWARD, 2, NULL), GH_ERR_INVALID, &s.err,
              "a flight stays in its bank");
    ok(strstr(s.err.text, "began in bank 1") != NULL, "in words: %s",
       s.err.text);
    is_status(toy_backward(&s, 0), GH_OK, &s.err, "and goes on there");
    toy_end_step(&s);
    banks_finish("refusals");
}

static void test_declarations_that_are_wrong(void)
{
    gh_bank_desc desc = { .struct_size = sizeof(desc) };
    gh_bank_stats stats = { .struct_size = sizeof(stats) };
    uint32_t bank = 77;

    if (!banks_start(&(struct toy_options){ .elems = 64 })) {
        return;
    }
    is_status(gh_bank_add(NULL, &desc, &bank, &s.err), GH_ERR_INVALID, &s.err,
              "no session");
    is_status(gh_bank_add(s.session, NULL, &bank, &s.err), GH_ERR_INVALID,
              &s.err, "no description");
    is_status(gh_bank_add(s.session, &desc, NULL, &s.err), GH_ERR_INVALID,
              &s.err, "nowhere to put the number");
    desc.struct_size = 8;
    is_status(gh_bank_add(s.session, &desc, &bank, &s.err), GH_ERR_ABI, &s.err,
              "a struct that is too small");
    desc.struct_size = sizeof(desc);
    desc.sequences = 4;
    is_status(gh_bank_add(s.session, &desc, &bank, &s.err), GH_ERR_INVALID,
              &s.err, "sequences without tokens");
    desc.tokens = 3;
    desc.cp_size = 2;
    is_status(gh_bank_add(s.session, &desc, &bank, &s.err), GH_ERR_INVALID,
              &s.err, "tokens that two pieces of each rank do not divide");
    desc.tokens = 0x40000000;
    is_status(gh_bank_add(s.session, &desc, &bank, &s.err), GH_ERR_INVALID,
              &s.err, "more tokens than offsets have bits for");
    is_int(bank, 77, "no number is written");
    is_status(gh_bank_get_stats(s.session, 1, &stats, &s.err), GH_ERR_NOT_FOUND,
              &s.err, "there is no bank 1");
    is_status(gh_bank_get_stats(s.session, 0, NULL, &s.err), GH_ERR_INVALID,
              &s.err, "nowhere to put counters");
    is_status(gh_bank_get_stats(s.session, 0, &stats, &s.err), GH_OK, &s.err,
              "bank 0 is there from the start");
    banks_finish("declarations");
}

static void test_not_while_a_pass_is_open(void)
{
    const gh_bank_desc desc = { .struct_size = sizeof(desc) };
    const gh_pass pass = { .struct_size = sizeof(pass), .stream = NULL };
    gh_decision d = { .struct_size = sizeof(d) };
    uint32_t bank;

    if (!banks_start(&(struct toy_options){ .elems = 64 })) {
        return;
    }
    gh_layer_enter(s.session, &pass, &d, NULL);
    is_status(gh_bank_add(s.session, &desc, &bank, &s.err), GH_ERR_STATE,
              &s.err, "no bank is declared while a pass is open");
    gh_layer_cancel(s.session, NULL);
    is_status(gh_bank_add(s.session, &desc, &bank, &s.err), GH_OK, &s.err,
              "but between two");
    banks_finish("open pass");
}

int main(void)
{
    int status;

    if (!toy_probe_soft(&status)) {
        return status;
    }
    test_banks_that_are_wrong();
    test_declarations_that_are_wrong();
    test_not_while_a_pass_is_open();
    return done_testing();
}
