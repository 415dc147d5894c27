/*
 * Schedules of pipelines are legal, need the slots that are published for
 * Megatron-LM, and are idle as long as theory says; a file that is wrong is
 * refused by its line.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "pipeline/pipeline.h"
#include "tap/tap.h"

#include <stdio.h>
#include <string.h>

static gh_error err;

/* ---- what is refused ----------------------------------------------------- */

#define HEAD "stages 2\nchunks 1\nmicrobatches 2\nplacement looped\n"
#define FIRST "0 forward 0 0\n0 forward 0 1\n0 backward 0 0\n0 backward 0 1\n"
#define LAST "1 forward 0 0\n1 backward 0 0\n1 forward 0 1\n1 backward 0 1\n"

static gh_status read_text(const char *text)
{
    struct gh_pipeline *pipeline = NULL;
    gh_status status =
        gh_pipeline_read(text, strlen(text), &pipeline, &err);

    if (status == GH_OK) {
        status = gh_pipeline_check(pipeline, &err);
        gh_pipeline_free(pipeline);
    }
    return status;
}

static void test_what_is_wrong_is_named(void)
{
    static const struct {
        const char *text, *says;
    } cases[] = {
        { "", "ends before its placement" },
        { "0 forward 0 0\n", "line 1: \"0\": first come lines with stages" },
        { "stages 2\nplacement looped\n", "line 2: the number of chunks" },
        { "stages x\n", "line 1: the stages is \"x\": give a number" },
        { "stages 99999999999999999999\n", "give a number" },
        { "stages 257\nchunks 1\nmicrobatches 1\nplacement v\n",
          "give 1 to 256 stages" },
        { "stages 256\nchunks 64\nmicrobatches 65536\nplacement v\n",
          "16777216 passes at most" },
        { "# text\nstages 2\nchunks 1\nmicrobatches 2\nplacement ring\n",
          "line 5: the placement is \"ring\": give looped or v" },
        { "stages 0\n", "line 1: there are 0 stages" },
        { "stages 2\nstages 2\n", "line 2: the number of stages is there" },
        { HEAD "0 forward 0 000000000000000000000001\n",
          "line 5: a word has more than 23 letters" },
        { HEAD "0 forw\001ard 0 0\n", "line 5: a word has more than 23" },
        { HEAD "0 forward 0\n", "line 5: give a stage, a kind of pass" },
        { HEAD "0 forward 0 0 0\n", "line 5: give a stage, a kind of pass" },
        { HEAD "2 forward 0 0\n", "line 5: the stage is \"2\"" },
        { HEAD "0 sideways 0 0\n", "line 5: \"sideways\" is no kind of pass" },
        { HEAD "0 forward 1 0\n", "line 5: the chunk is \"1\": give one below "
                                  "1" },
        { HEAD "0 forward 0 2\n", "line 5: the microbatch is \"2\"" },
        { HEAD FIRST, "stage 1 of 2: of chunk 0, microbatch 0 there is no "
                      "pass" },
        { HEAD FIRST LAST "1 forward 0 0\n",
          "line 13: stage 1 of 2: forward of chunk 0, microbatch 0: such a "
          "pass is there once" },
        { HEAD "0 backward 0 0\n", "line 5: stage 0 of 2: backward of chunk "
                                   "0, microbatch 0: such a pass comes once, "
                                   "after its forward" },
        { HEAD "0 forward 0 0\n0 weights 0 0\n",
          "line 6: stage 0 of 2: weights of chunk 0, microbatch 0: such a "
          "pass comes once, after its inputs" },
        { HEAD "0 forward 0 0\n0 inputs 0 0\n0 forward 0 1\n0 backward 0 1\n",
          "microbatch 0 there is no whole backward" },
        /* Each stage needs first what the other does last. */
        { HEAD "0 forward 0 0\n0 backward 0 0\n0 forward 0 1\n0 backward 0 1\n"
               "1 forward 0 0\n1 forward 0 1\n1 backward 0 0\n1 backward 0 1\n",
          "line 6: stage 0 waits for ever at its backward of chunk 0, "
          "microbatch 0: what it needs from stage 1" },
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        ok(read_text(cases[i].text) == GH_ERR_INVALID &&
               strstr(err.text, cases[i].says) != NULL,
           "a schedule is refused with \"%s\": %s", cases[i].says, err.text);
    }
    is_status(read_text(HEAD "# the first\n" FIRST "\n\t# the last\r\n" LAST),
              GH_OK, &err, "with comments and empty lines, one is taken");
}

/* ---- slots --------------------------------------------------------------- */

/* Computed with the published functions of Megatron-LM: of each stage, the slots
 * of each chunk. */
static const struct golden {
    struct gh_interleaving how;
    const char *slots;
} golden[] = {
    { { 1, 1, 1, 0 }, "1" },
    { { 4, 1, 1, 0 }, "4 3 2 1" },
    { { 8, 1, 1, 0 }, "8 7 6 5 4 3 2 1" },
    { { 2, 2, 2, 0 }, "4,2 3,1" },
    { { 2, 2, 3, 0 }, "6,3 4,2" },
    { { 4, 2, 4, 0 }, "8,4 8,4 7,3 5,1" },
    { { 4, 4, 4, 0 }, "8,8,4,4 8,8,4,4 8,7,4,3 8,5,4,1" },
    { { 4, 2, 6, 0 }, "12,6 11,5 9,4 7,3" },
    { { 4, 2, 8, 0 }, "15,7 13,6 11,5 9,4" },
    { { 8, 2, 8, 0 }, "16,8 16,8 16,8 16,8 15,7 13,5 11,3 9,1" },
    { { 2, 2, 2, 1 }, "4,2 4,2" },
    { { 4, 2, 4, 1 }, "8,4 8,4 8,4 6,2" },
};

static void slots_as_text(const struct gh_interleaving *how, char *text,
                          size_t bytes)
{
    uint32_t slots[GH_PIPELINE_CHUNKS];
    size_t at = 0;

    text[0] = '\0';
    for (uint32_t i = 0; i < how->n_stages; i++) {
        if (gh_pipeline_slots(how, i, slots, &err) != GH_OK) {
            snprintf(text, bytes, "%s", err.text);
            return;
        }
        for (uint32_t c = 0; c < how->n_chunks && at < bytes; c++) {
            at += (size_t)snprintf(text + at, bytes - at, "%s%u",
                                   c > 0 ? "," : i > 0 ? " " : "", slots[c]);
        }
    }
}

static void test_slots_are_those_of_megatron(void)
{
    char text[256];

    for (size_t i = 0; i < sizeof(golden) / sizeof(golden[0]); i++) {
        const struct gh_interleaving *how = &golden[i].how;

        slots_as_text(how, text, sizeof(text));
        is_str(text, golden[i].slots,
               "slots of %u stages, %u chunks, groups of %u, %u ahead",
               how->n_stages, how->n_chunks, how->group, how->ahead);
    }
}

/* Every schedule that is legal is legal to the check, and its microbatches in
 * flight fit the slots that were said without their number. */
static void run_counts(const struct gh_interleaving *how, uint32_t *tried,
                       uint32_t *illegal, uint32_t *exceeded)
{
    for (uint32_t n = 1; n < 40; n++) {
        uint32_t slots[GH_PIPELINE_CHUNKS];
        struct gh_pipeline *pipeline;

        if (gh_pipeline_interleaved(how, n, &pipeline, &err) != GH_OK) {
            continue;
        }
        ++*tried;
        *illegal += gh_pipeline_check(pipeline, &err) != GH_OK;
        for (uint32_t i = 0; i < how->n_stages; i++) {
            gh_pipeline_slots(how, i, slots, &err);
            for (uint32_t c = 0; c < how->n_chunks; c++) {
                *exceeded += gh_pipeline_in_flight(pipeline, i, c) > slots[c];
            }
        }
        gh_pipeline_free(pipeline);
    }
}

static void test_any_number_of_microbatches_fits(void)
{
    uint32_t tried = 0, illegal = 0, exceeded = 0;

    for (uint32_t stages = 1; stages <= 5; stages++) {
        for (uint32_t chunks = 1; chunks <= 3; chunks++) {
            for (uint32_t group = stages; group <= 2 * stages + 1; group++) {
                run_counts(&(struct gh_interleaving){ stages, chunks, group, 0 },
                           &tried, &illegal, &exceeded);
            }
        }
    }
    ok(tried > 1000, "%u schedules are generated", tried);
    is_int(illegal, 0, "all are legal");
    is_int(exceeded, 0, "and no chunk needs more slots than were said");
}

static void test_what_cannot_be_interleaved(void)
{
    struct gh_interleaving how = { 4, 2, 3, 0 };
    struct gh_pipeline *pipeline;

    ok(gh_pipeline_interleaved(&how, 8, &pipeline, &err) == GH_ERR_INVALID &&
           strstr(err.text, "of 4 microbatches, as many as there are "
                            "stages") != NULL,
       "a group that is smaller than the pipeline is refused");
    how.group = 65537;
    ok(gh_pipeline_interleaved(&how, 8, &pipeline, &err) == GH_ERR_INVALID &&
           strstr(err.text, "stages, to 65536") != NULL,
       "as is one that is too large: %s", err.text);
    how = (struct gh_interleaving){ 1, 2, 0, 0 };
    ok(gh_pipeline_interleaved(&how, 8, &pipeline, &err) == GH_ERR_INVALID,
       "so is a group of none");
    how = (struct gh_interleaving){ 4, 2, 4, 0 };
    ok(gh_pipeline_interleaved(&how, 6, &pipeline, &err) == GH_ERR_INVALID &&
           strstr(err.text, "the last group has 2") != NULL,
       "so is a last group that is");
    ok(gh_pipeline_interleaved(&how, 0, &pipeline, &err) == GH_ERR_INVALID &&
           strstr(err.text, "0 microbatches") != NULL,
       "so is a schedule without microbatches");
}

/* ---- the clock ----------------------------------------------------------- */

static double bubble_of(struct gh_pipeline *pipeline, double send)
{
    const struct gh_pipeline_times times = { { 1, 2, 1, 1 }, send, NULL };
    struct gh_pipeline_clock clock = { 0, 0 };
    double bubble = 1;

    if (gh_pipeline_run(pipeline, &times, &clock, &err) == GH_OK) {
        bubble = gh_pipeline_bubble(pipeline, &clock);
    }
    gh_pipeline_free(pipeline);
    return bubble;
}

static bool is_near(double a, double b)
{
    return a - b < 1e-9 && b - a < 1e-9;
}

/* With p stages of which a backward takes twice a forward, 1F1B is idle for
 * p - 1 of m + p - 1 passes; interleaved, for the c-th part of that; with zero
 * bubble, for a third of it. */
static void test_stages_are_idle_as_theory_says(void)
{
    const struct gh_interleaving plain = { 4, 1, 1, 0 }, twice = { 4, 2, 4, 0 };
    struct gh_pipeline *pipeline = NULL;
    double bubble;

    gh_pipeline_interleaved(&plain, 8, &pipeline, &err);
    bubble = bubble_of(pipeline, 0);
    ok(is_near(bubble, 3. / 11), "1F1B is idle for 3 of 11: %.4f", bubble);
    gh_pipeline_interleaved(&twice, 8, &pipeline, &err);
    bubble = bubble_of(pipeline, 0);
    ok(is_near(bubble, 3. / 19), "with two chunks for 3 of 19: %.4f", bubble);
    gh_pipeline_interleaved(&plain, 8, &pipeline, &err);
    bubble = bubble_of(pipeline, 0.5);
    ok(bubble > 3. / 11, "sending adds to it: %.4f", bubble);
    gh_pipeline_zero_bubble(4, 8, &pipeline, &err);
    is_status(gh_pipeline_check(pipeline, &err), GH_OK, &err,
              "zero bubble is legal");
    is_int(gh_pipeline_in_flight(pipeline, 0, 0), 4,
           "and has as many in flight as 1F1B");
    bubble = bubble_of(pipeline, 0);
    ok(is_near(bubble, 1. / 9), "it is idle for 3 of 27: %.4f", bubble);
}

static void test_zero_bubble_is_legal(void)
{
    uint32_t illegal = 0, exceeded = 0;

    for (uint32_t stages = 1; stages <= 8; stages++) {
        for (uint32_t n = 1; n <= 20; n++) {
            struct gh_pipeline *pipeline;

            if (gh_pipeline_zero_bubble(stages, n, &pipeline, &err) != GH_OK) {
                illegal++;
                continue;
            }
            illegal += gh_pipeline_check(pipeline, &err) != GH_OK;
            for (uint32_t i = 0; i < stages; i++) {
                exceeded += gh_pipeline_in_flight(pipeline, i, 0) > stages;
            }
            gh_pipeline_free(pipeline);
        }
    }
    is_int(illegal, 0, "zero bubble is legal for 1 to 8 stages");
    is_int(exceeded, 0, "and no stage needs more than the first of 1F1B");
}

/* Whether the passes of weights of each chunk come in the order of its
 * microbatches, as those of inputs do. */
static bool has_order(const struct gh_stage *stage)
{
    uint32_t next[2][3] = { { 0 } }; /* forward, inputs, weights */
    bool good = true;

    for (uint32_t i = 0; i < stage->n; i++) {
        const struct gh_action *a = &stage->actions[i];
        uint32_t *at = next[a->chunk];

        good &= a->kind != GH_ACTION_FORWARD || a->microbatch == at[0];
        at[0] += a->kind == GH_ACTION_FORWARD;
        if (a->kind == GH_ACTION_BACKWARD || a->kind == GH_ACTION_INPUTS) {
            good &= a->microbatch == at[1]++;
        }
        if (a->kind == GH_ACTION_BACKWARD || a->kind == GH_ACTION_WEIGHTS) {
            good &= a->microbatch == at[2]++;
        }
    }
    return good;
}

/* As published, a stage of p has 2 p + 1 halves of a microbatch in flight. */
static void test_dualpipev_is_legal(void)
{
    uint32_t illegal = 0, disordered = 0, exceeded = 0;
    struct gh_pipeline *pipeline;

    for (uint32_t stages = 1; stages <= 8; stages++) {
        for (uint32_t n = 2 * stages; n <= 2 * stages + 5; n++) {
            if (gh_pipeline_dualpipev(stages, n, &pipeline, &err) != GH_OK) {
                illegal++;
                continue;
            }
            illegal += gh_pipeline_check(pipeline, &err) != GH_OK;
            for (uint32_t i = 0; i < stages; i++) {
                disordered += !has_order(&pipeline->stages[i]);
                exceeded += gh_pipeline_in_flight(pipeline, i, 0) +
                                gh_pipeline_in_flight(pipeline, i, 1) >
                            2 * stages + 1;
            }
            gh_pipeline_free(pipeline);
        }
    }
    is_int(illegal, 0, "dualpipev is legal for 1 to 8 stages");
    is_int(disordered, 0, "each chunk keeps the order of microbatches");
    is_int(exceeded, 0, "and a stage keeps no more than is published");
    is_status(gh_pipeline_dualpipev(4, 7, &pipeline, &err), GH_ERR_INVALID,
              &err, "fewer microbatches are refused");
    ok(strstr(err.text, "4 stages and 7 microbatches: give at least twice") !=
           NULL,
       "with a sentence: %s", err.text);
    is_status(gh_pipeline_dualpipev(65, 65536, &pipeline, &err), GH_OK, &err,
              "many are not");
    gh_pipeline_free(pipeline);
}

/* Chunk 1 comes back on the stages from the last to the first, so the last one
 * goes on without sending. */
static void test_a_v_needs_no_sending_at_its_turn(void)
{
    static const char text[] =
        "stages 2\nchunks 2\nmicrobatches 1\nplacement v\n"
        "0 forward 0 0\n1 forward 0 0\n1 forward 1 0\n0 forward 1 0\n"
        "0 backward 1 0\n1 backward 1 0\n1 backward 0 0\n0 backward 0 0\n";
    const struct gh_pipeline_times times = { { 1, 1, 1, 1 }, 10, NULL };
    struct gh_pipeline_clock clock = { 0, 0 };
    struct gh_pipeline *pipeline = NULL;

    is_status(gh_pipeline_read(text, strlen(text), &pipeline, &err), GH_OK,
              &err, "a V is read");
    is_status(gh_pipeline_check(pipeline, &err), GH_OK, &err, "it is legal");
    gh_pipeline_run(pipeline, &times, &clock, &err);
    ok(is_near(clock.total, 8 + 4 * 10), "of 6 borders 4 are between stages");
    gh_pipeline_free(pipeline);
}

int main(void)
{
    test_what_is_wrong_is_named();
    test_slots_are_those_of_megatron();
    test_any_number_of_microbatches_fits();
    test_what_cannot_be_interleaved();
    test_stages_are_idle_as_theory_says();
    test_zero_bubble_is_legal();
    test_dualpipev_is_legal();
    test_a_v_needs_no_sending_at_its_turn();
    return done_testing();
}
