/*
 * Tensors that overlap are one span, and each lies in it as it did before.
 * SPDX-License-Identifier: Apache-2.0
 */
#include "offload/offload.h"
#include "offload/groups/host_owned.h"
#include "tap/tap.h"

#include <string.h>

static char memory[4096], moved[4096], kept[4096];
static struct gh_offload offload;
static struct gh_host_owned own;
static gh_offload_tensor tensors[GH_MAX_GROUP];
static gh_offload_group group;

/* Pairs of offset and bytes, ended by -1. */
static void lay(const int *at, bool goes)
{
    uint32_t n = 0;

    for (; at[2 * n] >= 0; n++) {
        tensors[n].address = memory + at[2 * n];
        tensors[n].bytes = (uint64_t)at[2 * n + 1];
    }
    group = (gh_offload_group){ .n_tensors = n,
                                .tensors = tensors,
                                .flags = GH_OFFLOAD_HOST_OWNED };
    gh_host_owned_lay(&offload, &group, goes, &own);
}

/* Every byte of every tensor is where its address says, in `moved` or `kept`.
 */
static bool is_whole(enum gh_host_owned_mode mode)
{
    gh_offload_tensor loaded[GH_MAX_GROUP];
    gh_offload_group wanted = { .n_tensors = group.n_tensors,
                                .tensors = loaded };
    bool whole = true;

    for (uint32_t i = 0; i < sizeof(memory); i++) {
        memory[i] = (char)(i * 7 % 251);
    }
    memset(moved, 0, sizeof(moved));
    memset(kept, 0, sizeof(kept));
    own.mode = mode;
    for (uint32_t s = 0; s < own.n_spans; s++) {
        const struct gh_host_owned_span *span = &own.spans[s];

        memcpy((span->goes ? moved : kept) + span->offset, span->from,
               span->bytes);
    }
    memcpy(loaded, tensors, sizeof(loaded));
    gh_host_owned_lay_out(&own, &wanted, moved, kept);
    for (uint32_t t = 0; t < group.n_tensors; t++) {
        whole = whole && (tensors[t].bytes == 0
                              ? loaded[t].address == NULL
                              : memcmp(loaded[t].address, tensors[t].address,
                                       tensors[t].bytes) == 0);
    }
    return whole;
}

#define LAY(...) lay((const int[]){ __VA_ARGS__, -1 }, true)

static uint32_t n_spans(void)
{
    uint32_t n = 0;

    for (uint32_t s = 0; s < own.n_spans; s++) {
        n += own.spans[s].bytes != 0;
    }
    return n;
}

static void test_spans(void)
{
    offload.options.min_bytes = 1;
    LAY(0, 100, 512, 300, 1024, 8);
    ok(n_spans() == 3 && own.goes == 256 + 512 + 256 && own.shape == 0,
       "tensors apart are copied apart");
    ok(is_whole(GH_HOST_OWNED_STAGED), "and each is whole");
    LAY(0, 100, 100, 100);
    ok(n_spans() == 2 && own.shape == 0, "so are two that only touch");
    LAY(0, 100, 0, 100);
    ok(n_spans() == 1 && own.goes == 256 && own.shape != 0,
       "one that is given twice is copied once");
    ok(is_whole(GH_HOST_OWNED_STAGED), "and is whole twice");
    LAY(0, 1000, 300, 50, 990, 10);
    ok(n_spans() == 1 && own.goes == 1024, "views go in what they are of");
    ok(is_whole(GH_HOST_OWNED_STAGED), "and are whole");
    LAY(300, 50, 990, 10, 0, 1000, 2048, 16);
    ok(n_spans() == 2 && own.goes == 1024 + 256,
       "also where they come before it");
    ok(is_whole(GH_HOST_OWNED_STAGED), "whole");
    LAY(500, 100, 0, 100, 550, 100, 50, 500, 2000, 4);
    ok(n_spans() == 2 && own.goes == 768 + 256,
       "one that joins two makes them one");
    ok(is_whole(GH_HOST_OWNED_STAGED), "whole");
    LAY(0, 200, 100, 200, 400, 200, 500, 200, 250, 200, 1000, 8);
    ok(n_spans() == 2 && own.goes == 768 + 256, "chains are one");
    ok(is_whole(GH_HOST_OWNED_STAGED), "whole");
    LAY(0, 100, 200, 100, 400, 100, 250, 200, 50, 200);
    ok(n_spans() == 1 && own.goes == 512, "and so are chains of those");
    ok(is_whole(GH_HOST_OWNED_STAGED), "whole");
    LAY(10, 1, 0, 100);
    ok(n_spans() == 1 && own.goes == 256 && is_whole(GH_HOST_OWNED_STAGED),
       "a tensor of one byte is in what it is of");
    LAY(0, 0, 64, 64, 0, 0);
    ok(n_spans() == 1 && own.shape == 0 && is_whole(GH_HOST_OWNED_STAGED),
       "no bytes are nowhere");
}

static void test_shapes(void)
{
    uint64_t first;

    LAY(0, 100, 10, 20);
    first = own.shape;
    LAY(0, 100, 10, 20);
    ok(own.shape == first, "the same overlap has the same shape");
    LAY(0, 100, 12, 20);
    ok(own.shape != first, "another has another");
    LAY(1, 100, 11, 20);
    ok(own.shape == first, "wherever it lies");
    LAY(0, 100, 512, 20);
    ok(own.shape == 0, "and no overlap has none");
}

static void test_small_ones(void)
{
    struct gh_run runs[GH_MAX_GROUP];

    offload.options.min_bytes = 100;
    LAY(0, 99, 512, 300, 600, 20, 2048, 50);
    ok(own.goes == 512 && own.stays == 512,
       "small ones stay, but for views of what goes");
    ok(is_whole(GH_HOST_OWNED_DIRECT), "and all are whole");
    is_int(gh_host_owned_find_runs(&own, true, runs), 1, "one run goes");
    ok(runs[0].from == memory + 512 && runs[0].offset == 0 &&
           runs[0].bytes == 300,
       "from where the host has it");
    gh_host_owned_find_runs(&own, false, runs);
    ok(runs[0].from == NULL, "or from a buffer");
    LAY(0, 60, 50, 60);
    ok(own.goes == 256, "small ones that are one large one go");
    gh_host_owned_split(&offload, &own, false);
    ok(own.goes == 0 && own.stays == 256 && is_whole(GH_HOST_OWNED_STAGED),
       "and stay where all does");
    ok(is_whole(GH_HOST_OWNED_STAYS) && own.spans[0].from == memory,
       "also in the host's memory");
}

static void test_modes(void)
{
    is_int(gh_host_owned_choose(true, true, true), GH_HOST_OWNED_DIRECT,
           "what an eager pass has goes from there");
    is_int(gh_host_owned_choose(true, true, false), GH_HOST_OWNED_STAGED,
           "what a graph has is staged");
    is_int(gh_host_owned_choose(false, true, true), GH_HOST_OWNED_STAYS,
           "what stays is left alone");
    is_int(gh_host_owned_choose(false, true, false), GH_HOST_OWNED_STAYS,
           "in a graph too");
    is_int(gh_host_owned_choose(true, false, true), GH_HOST_OWNED_STAGED,
           "without a service all is staged");
    is_int(gh_host_owned_choose(false, false, true), GH_HOST_OWNED_STAGED,
           "what stays too");
}

int main(void)
{
    test_spans();
    test_shapes();
    test_small_ones();
    test_modes();
    return done_testing();
}
