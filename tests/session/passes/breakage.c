/*
 * A host that breaks its capture gets an eager pass, one line, right sums.
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/heard.h"
#include "support/toy.h"
#include "tap/tap.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name, *code;
    enum toy_mischief mischief;
    gh_reason reason;
    uint32_t reruns;
    uint32_t recordings; /* of a slot: another thread may have done the same */
} cases[] = {
    { "a host that waits for the stream", "901", TOY_SYNC, GH_REASON_CAPTURE,
      1, 2 },
    { "a host that allocates", "901", TOY_ALLOC, GH_REASON_CAPTURE, 1, 2 },
    { "a host that launches on the legacy stream", "901", TOY_LEGACY,
      GH_REASON_CAPTURE, 1, 2 },
    { "a host that forks and does not join", "904", TOY_UNJOINED,
      GH_REASON_CAPTURE, 1, 1 },
    { "a host that waits for an event of before", "901", TOY_OUTSIDE,
      GH_REASON_CAPTURE, 1, 2 },
    { "a host that exits on another thread", "908", TOY_OTHER_THREAD,
      GH_REASON_CAPTURE, 1, 1 },
    { "a host that issues its work elsewhere", "gh_decision.stream",
      TOY_ELSEWHERE, GH_REASON_EMPTY, 0, 1 },
};

static void test_one(uint32_t i, gh_direction direction)
{
    /* Blocking streams: only they are in the legacy stream's way. */
    const struct toy_options options = { .layers = 2,
                                         .elems = 64,
                                         .in_flight = 2,
                                         .blocking = true,
                                         .host = &hearing };
    const uint32_t counts[] = { 2, 3, 3, 3 };
    const uint32_t recordings = cases[i].recordings;
    const char *way = direction == GH_FORWARD ? "forward" : "backward";
    struct toy toy;
    gh_stats stats;
    bool ran;

    if (!toy_start(&toy, &options, NULL)) {
        return;
    }
    said[0] = '\0';
    toy.mischief = cases[i].mischief;
    toy.mischief_segment = 1;
    toy.mischief_direction = direction;
    ran = toy_train(&toy, counts, 4) == GH_OK;
    stats = toy_stats(&toy);

    ok(ran, "%s, %s: training goes on: %s", cases[i].name, way, toy.err.text);
    is_int(toy.mischiefs_done, 2 * recordings,
           "%s, %s: it happens %u times in each of two slots", cases[i].name,
           way, recordings);
    is_int(stats.reruns, 2 * recordings * cases[i].reruns,
           "%s, %s: what was lost with the capture runs again", cases[i].name,
           way);
    is_int(toy_eager(&toy, cases[i].reason), 3 * (4 - recordings),
           "%s, %s: the pass is eager from then on, and counted", way,
           cases[i].name);
    is_int(times_said("\n"), recordings, "%s, %s: one line for both slots",
           cases[i].name, way);
    ok(strstr(said, cases[i].code) != NULL &&
           strstr(said, "layer 1 attn..mlp") != NULL &&
           strstr(said, way) != NULL,
       "%s, %s: it names the pass and the code: %.*s", cases[i].name, way,
       (int)strcspn(said, "\n"), said);
    ok(strcmp(cases[i].code, "901") != 0 ||
           strstr(said, "at or before the line where the host") != NULL,
       "%s, %s: where the capture was lost, it claims no line", cases[i].name,
       way);
    ok(stats.replays > 0, "%s, %s: the other passes replay", cases[i].name,
       way);
    ok(toy_is_exact(&toy), "%s, %s: the weights are exact", cases[i].name, way);
    toy_close(&toy);
}

/* A host that captures its own stream around the hooks is left alone. */
static void test_a_host_that_captures_by_itself(void)
{
    const struct toy_options options = { .layers = 1, .elems = 64 };
    gh_pass pass = { .struct_size = sizeof(pass) };
    gh_decision d = { .struct_size = sizeof(d) };
    CUgraph graph = NULL;
    struct toy toy;
    CUresult result;

    if (!toy_start(&toy, &options, NULL)) {
        return;
    }
    toy_step(&toy, 1);
    toy_step(&toy, 1);
    toy.drv.cuStreamBeginCapture(toy.streams[0],
                                 CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    pass.stream = toy.streams[0];
    gh_layer_enter(toy.session, &pass, &d, NULL);
    is_int(d.action, GH_ACTION_RUN,
           "inside the host's own capture a ready "
           "pass is not launched");
    is_int(d.reason, GH_REASON_HOST_CAPTURE, "and the reason says so");
    gh_layer_exit(toy.session, &pass, NULL);
    result = toy.drv.cuStreamEndCapture(toy.streams[0], &graph);
    is_int(result, CUDA_SUCCESS, "the host's capture is not disturbed");
    toy.drv.cuGraphDestroy(graph);
    toy_close(&toy);
}

int main(void)
{
    const char *reason;
    struct toy toy;

    if (!toy_probe(&toy, &reason)) {
        return skip_all("%s", reason);
    }
    for (uint32_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        test_one(i, GH_FORWARD);
        test_one(i, GH_BACKWARD);
    }
    test_a_host_that_captures_by_itself();
    return done_testing();
}
