/*
 * A host that knows its groups declares them in the place of a first step.
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/toy.h"
#include "tap/tap.h"

#include <stdio.h>
#include <string.h>

#define LAYERS 4
#define MODULES 3
#define GROUPS (LAYERS * MODULES)

static struct toy sv;
static const char *const at_once[] = { "GRAPHHOOKS_WARMUP_STEPS=0", NULL };
static const struct toy_options options = { .layers = LAYERS,
                                            .modules = MODULES,
                                            .tensors = 2,
                                            .elems = 256,
                                            .in_flight = 3,
                                            .environment = at_once };

/* A layer's first part has its modules 0 and 2, its second part module 1. */
static void fill(gh_offload_declared groups[GROUPS])
{
    static const uint32_t order[MODULES] = { 0, 2, 1 };

    for (uint32_t i = 0; i < GROUPS; i++) {
        groups[i] = (gh_offload_declared){
            .struct_size = sizeof(groups[i]),
            .layer = i / MODULES,
            .module = toy_modules[order[i % MODULES]],
            .segment = i / MODULES,
            .bytes = 4 * 256 + 4 * 128,
            .gap_ns = 1000,
        };
    }
}

static bool start(const struct toy_options *given,
                  gh_offload_declared groups[GROUPS])
{
    fill(groups);
    return toy_start(&sv, given, NULL);
}

static void test_declared_and_profiled_settle_the_same(void)
{
    gh_offload_declared groups[GROUPS];
    gh_offload_stats profiled, declared;

    if (!toy_start(&sv, &options, NULL)) {
        return;
    }
    toy_step(&sv, 4);
    is_int(toy_stats(&sv).recordings, 0,
           "a session that has to learn records nothing in its first step");
    profiled = toy_moved(&sv);
    toy_close(&sv);

    if (!start(&options, groups)) {
        return;
    }
    is_status(gh_offload_declare(sv.session, groups, GROUPS, 3, &sv.err),
              GH_OK, &sv.err, "groups are declared");
    declared = toy_moved(&sv);
    is_int(declared.groups, profiled.groups, "as many as a profile finds");
    is_int(declared.groups_offloaded, profiled.groups_offloaded,
           "as many of them go");
    is_int(declared.ring_bytes, profiled.ring_bytes,
           "and their rings are as large");
    ok(groups[0].why == NULL, "a group that goes has no reason to stay");
    ok(groups[GROUPS - 1].why != NULL &&
           strstr(groups[GROUPS - 1].why, "at once") != NULL,
       "the last of a module says that it is needed at once");
    ok(toy_step(&sv, 4) == GH_OK && toy_is_exact(&sv),
       "the first step is exact");
    ok(toy_stats(&sv).recordings > 0, "and records");
    ok(toy_step(&sv, 5) == GH_OK && toy_is_exact(&sv), "and so is the next");
    ok(toy_races(&sv) == 0, "nothing is raced for");
    declared = toy_moved(&sv);
    ok(declared.out_bytes > 0 && declared.out_bytes == declared.back_bytes,
       "all that goes comes back");
    toy_close(&sv);
}

static void test_what_is_not_declared_stays(void)
{
    gh_offload_declared groups[GROUPS];

    if (!start(&options, groups)) {
        return;
    }
    is_status(gh_offload_declare(sv.session, groups, GROUPS - MODULES, 3,
                                 &sv.err),
              GH_OK, &sv.err, "the groups of all layers but one are declared");
    ok(toy_step(&sv, 4) == GH_OK && toy_is_exact(&sv),
       "a step with one more layer is exact");
    is_int(toy_moved(&sv).groups_offloaded, GROUPS - 2 * MODULES,
           "none of its groups go");
    toy_close(&sv);
}

static void test_what_the_host_moves_has_no_rings(void)
{
    gh_offload_declared groups[GROUPS];

    if (!start(&options, groups)) {
        return;
    }
    for (uint32_t i = 0; i < GROUPS; i++) {
        groups[i].flags = GH_DECLARED_ELSEWHERE;
    }
    is_status(gh_offload_declare(sv.session, groups, GROUPS, 3, &sv.err),
              GH_OK, &sv.err, "groups that the host moves are declared");
    ok(groups[0].why == NULL && groups[GROUPS - 1].why != NULL,
       "which of them go is settled as ever");
    is_int(toy_moved(&sv).ring_bytes, 0, "they have no rings");
    ok(toy_step(&sv, 4) == GH_OK && toy_is_exact(&sv),
       "a step that saves them is exact");
    is_int(toy_moved(&sv).out_bytes, 0, "and the library moves nothing");
    toy_close(&sv);
}

/* doc/hello-offload.c saves the group of the next layer. */
static void test_another_layers_pass_saves_it(void)
{
    gh_offload_declared groups[GROUPS];

    if (!start(&options, groups)) {
        return;
    }
    for (uint32_t i = MODULES; i < GROUPS; i++) {
        groups[i].segment--;
    }
    is_status(gh_offload_declare(sv.session, groups, GROUPS, 3, &sv.err),
              GH_OK, &sv.err,
              "a group may be declared of another layer's pass");
    ok(groups[0].why == NULL && groups[MODULES].why == NULL,
       "and goes as ever");
    toy_close(&sv);
}

/* With one in flight the rings of a whole chunk hold as much as it saves. */
static void test_passes_count(void)
{
    struct toy_options chunk = options;
    gh_offload_declared groups[GROUPS];

    chunk.granularity = "chunk";
    if (!start(&chunk, groups)) {
        return;
    }
    for (uint32_t i = 0; i < GROUPS; i++) {
        groups[i].segment = 0;
    }
    gh_offload_declare(sv.session, groups, GROUPS, 2, &sv.err);
    ok(groups[0].why != NULL && strstr(groups[0].why, "rings") != NULL,
       "what one pass saves has a buffer for each group");
    toy_close(&sv);
}

static void refuse(gh_offload_declared *groups, uint32_t n, uint32_t in_flight,
                   gh_status expected, const char *word, const char *what)
{
    gh_status status =
        gh_offload_declare(sv.session, groups, n, in_flight, &sv.err);

    is_status(status, expected, &sv.err, "%s is refused", what);
    ok(strstr(sv.err.text, word) != NULL, "in a sentence: %s", sv.err.text);
}

static void test_bad_groups(void)
{
    gh_offload_declared groups[GROUPS];
    struct {
        gh_offload_declared known;
        uint64_t more;
    } newer[2];

    if (!start(&options, groups)) {
        return;
    }
    refuse(NULL, 1, 1, GH_ERR_INVALID, "groups at", "no array");
    refuse(groups, 0, 1, GH_ERR_INVALID, "0 groups", "an empty array");
    refuse(groups, GROUPS, 0, GH_ERR_INVALID, "in_flight", "none in flight");
    groups[5].layer = LAYERS;
    refuse(groups, GROUPS, 3, GH_ERR_INVALID, "layer is 4, but the plan has 4",
           "a layer too many");
    fill(groups);
    groups[5].segment = 99;
    refuse(groups, GROUPS, 3, GH_ERR_INVALID, "segment is 99", "a segment");
    fill(groups);
    groups[5].module = 0;
    refuse(groups, GROUPS, 3, GH_ERR_INVALID, "module is 0x0", "no module");
    fill(groups);
    groups[5] = groups[4];
    refuse(groups, GROUPS, 3, GH_ERR_INVALID, "twice", "a group twice");
    fill(groups);
    groups[5].bytes = UINT64_MAX;
    refuse(groups, GROUPS, 3, GH_ERR_INVALID, "no device has", "a huge group");
    fill(groups);
    groups[5].flags = 4;
    refuse(groups, GROUPS, 3, GH_ERR_INVALID, "flags 0x4", "an unknown flag");
    fill(groups);
    groups[5].reserved = 1;
    refuse(groups, GROUPS, 3, GH_ERR_INVALID, "reserved 1", "what is reserved");
    fill(groups);
    groups[0].struct_size = 8;
    refuse(groups, GROUPS, 3, GH_ERR_ABI, "is 8", "a struct that is short");
    fill(groups);
    groups[5].struct_size = 56;
    refuse(groups, GROUPS, 3, GH_ERR_ABI, "one size", "an uneven array");
    is_int(toy_moved(&sv).groups, 0, "none of that has declared a group");

    fill(groups);
    memset(newer, 0, sizeof(newer));
    newer[0].known = groups[0];
    newer[1].known = groups[1];
    newer[0].known.struct_size = newer[1].known.struct_size = sizeof(newer[0]);
    is_status(gh_offload_declare(sv.session, &newer[0].known, 2, 3, &sv.err),
              GH_OK, &sv.err, "a host with a longer struct is understood");
    is_int(toy_moved(&sv).groups, 2, "both of its groups are known");
    refuse(groups, GROUPS, 3, GH_ERR_STATE, "declared already",
           "a second time");
    toy_close(&sv);
}

static void test_out_of_turn(void)
{
    gh_offload_declared groups[GROUPS];
    gh_pass pass = { .struct_size = sizeof(pass) };
    gh_decision decision = { .struct_size = sizeof(decision) };

    if (!start(&options, groups)) {
        return;
    }
    pass.stream = sv.streams[0];
    gh_layer_enter(sv.session, &pass, &decision, NULL);
    refuse(groups, GROUPS, 3, GH_ERR_STATE, "a pass is open", "an open pass");
    gh_layer_cancel(sv.session, NULL);
    toy_step(&sv, 4);
    refuse(groups, GROUPS, 3, GH_ERR_STATE, "already", "after a step");
    toy_close(&sv);
    is_status(gh_offload_declare(NULL, groups, GROUPS, 3, NULL),
              GH_ERR_INVALID, NULL, "a session is needed");
}

static void test_no_memory_for_rings(void)
{
    gh_offload_declared groups[GROUPS];

    if (!toy_start(&sv, &options, NULL)) {
        return;
    }
    if (!sv.soft) {
        skip(4, "only the software device fails on demand");
        toy_close(&sv);
        return;
    }
    fill(groups);
    toy_configure(&sv, "FAIL=cuMemAlloc:1:2");
    is_status(gh_offload_declare(sv.session, groups, GROUPS, 3, &sv.err),
              GH_ERR_NO_MEMORY, &sv.err, "a ring without memory is told");
    toy_configure(&sv, "");
    ok(groups[0].why != NULL && strstr(groups[0].why, "no memory") != NULL,
       "its groups stay, and say so");
    ok(groups[1].why == NULL, "those of the others go");
    ok(toy_step(&sv, 4) == GH_OK && toy_is_exact(&sv), "and the step is exact");
    toy_close(&sv);
}

/* The bytes of the rings of six groups, one a layer, whose copies take 1.2 times
 * as long as a layer's forward: what a layer saves at its begin waits for the
 * copy of the one before the last, and what it saves at its end does not. */
static uint64_t rings_of(uint32_t flags)
{
    static const uint64_t gaps[] = { 7254000, 5974000, 4694000,
                                     3414000, 2134000, 854000 };
    gh_offload_declared groups[6];
    struct toy_options o = options;
    uint64_t bytes;

    o.layers = 6;
    o.modules = o.tensors = 1;
    o.offload = (gh_offload_desc){ .struct_size = 1, .modules = "core_attn",
                                   .fraction = "auto", .min_bytes = 4,
                                   .link_mb_per_s = 2 };
    if (!toy_start(&sv, &o, NULL)) {
        return 0;
    }
    for (uint32_t l = 0; l < 6; l++) {
        groups[l] = (gh_offload_declared){ .struct_size = sizeof(groups[l]),
                                           .layer = l,
                                           .module = GH_MODULE_CORE_ATTN,
                                           .segment = l,
                                           .bytes = 1024,
                                           .gap_ns = gaps[l],
                                           .flags = flags };
    }
    is_status(gh_offload_declare(sv.session, groups, 6, 3, &sv.err), GH_OK,
              &sv.err, "groups are declared with flags 0x%x", flags);
    for (uint32_t l = 0; l < 5; l++) {
        ok(groups[l].why == NULL, "that of layer %u goes", l);
    }
    bytes = toy_moved(&sv).ring_bytes;
    ok(toy_step(&sv, 4) == GH_OK && toy_is_exact(&sv), "and the step is exact");
    toy_close(&sv);
    return bytes;
}

static void test_saved_late(void)
{
    is_int(rings_of(0), 5 * 1024,
           "a group that is saved early has a third buffer on its way out");
    is_int(rings_of(GH_DECLARED_LATE), 4 * 1024,
           "which one that is saved late does not need");
}

int main(void)
{
    test_saved_late();
    test_bad_groups();
    test_out_of_turn();
    test_declared_and_profiled_settle_the_same();
    test_what_is_not_declared_stays();
    test_what_the_host_moves_has_no_rings();
    test_another_layers_pass_saves_it();
    test_passes_count();
    test_no_memory_for_rings();
    return done_testing();
}
