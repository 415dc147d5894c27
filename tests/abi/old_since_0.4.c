/*
 * What ABI 0.4 has added goes on working for a caller built against it.
 *
 * Part of tests/abi/old.c from that release on.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "abi/old_caller.h"

#define TOKENS 64
#define SEQUENCES 4

static const char *const quiet[] = { "GRAPHHOOKS_LOG=off", NULL };
static int ours, theirs; /* their addresses stand for process groups */

static bool open_quietly(void)
{
    const struct opening opening = {
        .n_layers = 1,
        .desc = { .max_slots = 2, .environment = quiet }
    };

    return open_warm(&opening);
}

/* ---- banks --------------------------------------------------------------- */

/* 0: it is refused. */
static uint32_t add_bank(void)
{
    FRAMED(gh_bank_desc) desc;
    uint32_t bank = 0;

    FRAME(desc);
    desc.it.cp_size = 2;
    desc.it.group = &ours;
    desc.it.tokens = TOKENS;
    desc.it.sequences = SEQUENCES;
    desc.it.name = "old";
    is_status(gh->bank_add(session, &desc.it, &bank, &err), GH_OK, &err,
              "a gh_bank_desc of " RELEASE " is taken");
    return bank;
}

static void test_bank_stats(uint32_t bank)
{
    FRAMED(gh_bank_stats) stats;

    FRAME(stats);
    is_status(gh->bank_get_stats(session, bank, &stats.it, &err), GH_OK, &err,
              "a gh_bank_stats of " RELEASE " is filled");
    ok(IS_WHOLE(stats), "nothing is written after a gh_bank_stats of " RELEASE);
    ok(stats.it.graphs == 1 && stats.it.recordings == 1 &&
           stats.it.replays == 2 && stats.it.evictions == 0 &&
           stats.it.bytes != 0,
       "each field of a gh_bank_stats of " RELEASE " is in its place");
}

static bool set_packed(uint32_t bank, uint32_t *slot_p)
{
    static const int32_t lengths[] = { 20, 8 }, padded[] = { 20, 12 };
    FRAMED(gh_packed_buffers) at;
    FRAMED(gh_packed) packed;
    int32_t offsets[SEQUENCES + 2] = { 0 }, wide[SEQUENCES + 2] = { 0 };

    FRAME(packed);
    packed.it.bank = bank;
    packed.it.n_sequences = 2;
    packed.it.stream = streams[0];
    packed.it.lengths = lengths;
    packed.it.padded = padded;
    FRAME(at);
    if (gh->packed_set(session, &packed.it, &at.it, &err) != GH_OK) {
        diag("%s", err.text);
        return false;
    }
    *slot_p = at.it.slot;
    drv.cuCtxSynchronize();
    drv.cuMemcpyDtoH(offsets, (uintptr_t)at.it.cu_seqlens.address,
                     sizeof(offsets));
    drv.cuMemcpyDtoH(wide, (uintptr_t)at.it.cu_seqlens_padded.address,
                     sizeof(wide));
    return IS_WHOLE(at) && IS_WHOLE(packed) && offsets[1] == 20 &&
           offsets[2] == 28 && wide[2] == 32 && wide[3] == 2 * TOKENS;
}

/* A pass of the bank, of so many of the bytes that its input may have. */
static bool runs_in(uint32_t bank, gh_action action)
{
    const uint64_t capacity = 16;
    struct pass pass = a_pass(GH_FORWARD, 0);
    uint32_t slot = GH_SLOT_NONE;
    bool ran;

    ran = set_packed(bank, &slot);
    pass.call.it.bank = bank;
    pass.call.it.group = &ours;
    pass.call.it.capacities = &capacity;
    ran = passes_as(&pass, action, GH_REASON_NONE) && ran &&
          pass.d.it.slot == slot;
    return end_step() && ran;
}

static void test_banks(void)
{
    struct pass pass = a_pass(GH_FORWARD, 0);
    uint32_t bank;

    if (!open_quietly()) {
        return;
    }
    bank = add_bank();
    ok(runs_in(bank, GH_ACTION_RECORD),
       "a packed pass of a bank of " RELEASE " is recorded");
    ok(runs_in(bank, GH_ACTION_REPLAYED), "and replayed");
    test_bank_stats(bank);
    pass.call.it.bank = bank;
    pass.call.it.group = &theirs;
    is_status(enter_pass(&pass), GH_ERR_INVALID, &err,
              "gh_pass.group of " RELEASE " is in its place");
    pass.call.it.bank = bank + 1;
    is_status(enter_pass(&pass), GH_ERR_NOT_FOUND, &err,
              "gh_pass.bank of " RELEASE " is in its place");
    close_session();
}

/* ---- what else has grown ------------------------------------------------- */

static void test_aux(void)
{
    FRAMED(gh_aux) aux;

    if (!open_quietly()) {
        return;
    }
    FRAME(aux);
    aux.it.name = "none";
    aux.it.buffer.address = &ours;
    aux.it.buffer.bytes = sizeof(ours);
    aux.it.reserved = 1;
    ok(gh->aux_bind(session, &aux.it, &err) == GH_ERR_INVALID &&
           strstr(err.text, "reserved") != NULL,
       "gh_aux.reserved of " RELEASE " is in its place: %s", err.text);
    close_session();
}

static void test_declaration(void)
{
    FRAMED(gh_offload_declared) group;
    FRAMED(gh_offload_desc) desc;
    struct opening opening = { .n_layers = 1,
                               .desc = { .max_slots = 2,
                                         .environment = quiet } };

    FRAME(desc);
    desc.it.modules = "mlp_norm";
    desc.it.fraction = "auto";
    desc.it.prefetch = 1;
    desc.it.in_flight = 1;
    desc.it.link_mb_per_s = 1000;
    opening.desc.offload = &desc.it;
    if (!open_session(&opening)) {
        return;
    }
    FRAME(group);
    group.it.module = GH_MODULE_MLP_NORM;
    group.it.bytes = 1 << 21;
    group.it.flags = GH_DECLARED_ELSEWHERE;
    is_status(gh->offload_declare(session, &group.it, 1, 1, &err), GH_OK, &err,
              "a gh_offload_declared of " RELEASE " is taken");
    ok(IS_WHOLE(group),
       "nothing is written after a gh_offload_declared of " RELEASE);
    close_session();
}

void test_since_0_4(void)
{
    test_banks();
    test_aux();
    test_declaration();
}
