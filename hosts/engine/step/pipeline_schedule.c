/*
 * pipeline_schedule.c - see pipeline_schedule.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "step/pipeline_schedule.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    FILE_MOST = 1 << 26,
    COUNT_MOST = 1024 /* microbatches, as of --microbatches */
};

const char *pipeline_schedule_name(const struct options *options)
{
    return options->schedule != NULL  ? options->schedule
           : options_vpp(options) > 1 ? "interleaved"
                                      : "1f1b";
}

static bool is_schedule(const struct options *options, const char *name)
{
    return strcmp(pipeline_schedule_name(options), name) == 0;
}

bool pipeline_is_named(const char *schedule)
{
    return schedule == NULL || strcmp(schedule, "1f1b") == 0 ||
           strcmp(schedule, "interleaved") == 0 ||
           strcmp(schedule, "zero-bubble") == 0 ||
           strcmp(schedule, "dualpipev") == 0;
}

/* ---- a file -------------------------------------------------------------- */

/* Returns NULL with a sentence.  The caller frees it. */
static char *read_text(const char *path, size_t *bytes, char *text,
                       size_t text_bytes)
{
    FILE *file = fopen(path, "rb");
    char *all = file == NULL ? NULL : malloc(FILE_MOST);

    if (all == NULL) {
        snprintf(text, text_bytes,
                 "--schedule %s: it cannot be read; expects 1f1b, interleaved, "
                 "zero-bubble, dualpipev or a file",
                 path);
    } else {
        *bytes = fread(all, 1, FILE_MOST, file);
    }
    if (file != NULL) {
        fclose(file);
    }
    return all;
}

static int read_file(const char *path, struct gh_pipeline **schedule_p,
                     char *text, size_t text_bytes)
{
    gh_error err = { "" };
    size_t bytes = 0;
    char *all = read_text(path, &bytes, text, text_bytes);
    gh_status status;

    if (all == NULL) {
        return -1;
    }
    status = gh_pipeline_read(all, bytes, schedule_p, &err);
    free(all);
    if (status != GH_OK) {
        snprintf(text, text_bytes, "--schedule %s: %s", path, err.text);
    }
    return status == GH_OK ? 0 : -1;
}

/* A number of an option, or of the file. */
static int take(int *number, uint32_t in_file, const char *option,
                const char *path, char *text, size_t text_bytes)
{
    if (*number == 0) {
        *number = (int)in_file;
    }
    if (*number != (int)in_file) {
        snprintf(text, text_bytes,
                 "%s %d: --schedule %s has %u; leave the option out", option,
                 *number, path, in_file);
        return -1;
    }
    return 0;
}

/* Whether the engine has room for a file's schedule. */
static bool fits(const struct gh_pipeline *schedule, const char *path,
                 char *text, size_t text_bytes)
{
    if (schedule->n_stages <= RANKS_MOST && schedule->n_chunks <= MAX_CHUNKS &&
        schedule->n_microbatches <= COUNT_MOST) {
        return true;
    }
    snprintf(text, text_bytes,
             "--schedule %s: %u stages of %u chunks, %u microbatches: give %d, "
             "%d and %d at most",
             path, schedule->n_stages, schedule->n_chunks,
             schedule->n_microbatches, RANKS_MOST, MAX_CHUNKS, COUNT_MOST);
    return false;
}

int pipeline_complete(struct options *options, char *text, size_t text_bytes)
{
    struct gh_pipeline *schedule;
    int status;

    if (is_schedule(options, "dualpipev") && options_pp(options) > 1) {
        options->placed_v = true;
        options->vpp = options->vpp == 0 ? 2 : options->vpp;
    }
    if (pipeline_is_named(options->schedule)) {
        return 0;
    }
    if (read_file(options->schedule, &schedule, text, text_bytes) != 0) {
        return -1;
    }
    if (!fits(schedule, options->schedule, text, text_bytes)) {
        gh_pipeline_free(schedule);
        return -1;
    }
    options->placed_v = schedule->placement == GH_PLACED_V;
    if (options->n_counts == 0) {
        options->counts[options->n_counts++] = (int)schedule->n_microbatches;
    }
    status = take(&options->pp, schedule->n_stages, "--pp", options->schedule,
                  text, text_bytes);
    if (status == 0) {
        status = take(&options->vpp, schedule->n_chunks, "--vpp",
                      options->schedule, text, text_bytes);
    }
    for (int i = 0; i < options->n_counts && status == 0; i++) {
        status = take(&options->counts[i], schedule->n_microbatches,
                      "--microbatches", options->schedule, text, text_bytes);
    }
    gh_pipeline_free(schedule);
    return status;
}

/* ---- schedules ----------------------------------------------------------- */

static gh_status generate(const struct options *options, int count,
                          struct gh_pipeline **schedule_p, gh_error *err)
{
    const uint32_t pp = (uint32_t)options_pp(options);
    const struct gh_interleaving how = {
        .n_stages = pp,
        .n_chunks = (uint32_t)options_vpp(options),
        .group = options->group > 0 ? (uint32_t)options->group : pp,
    };

    if (is_schedule(options, "zero-bubble")) {
        return gh_pipeline_zero_bubble(pp, (uint32_t)count, schedule_p, err);
    }
    return is_schedule(options, "dualpipev")
               ? gh_pipeline_dualpipev(pp, (uint32_t)count, schedule_p, err)
               : gh_pipeline_interleaved(&how, (uint32_t)count, schedule_p,
                                         err);
}

int pipeline_schedule(const struct options *options, int count,
                      struct gh_pipeline **schedule_p, char *text,
                      size_t text_bytes)
{
    gh_error err = { "" };
    gh_status status;

    if (!pipeline_is_named(options->schedule)) {
        if (read_file(options->schedule, schedule_p, text, text_bytes) != 0) {
            return -1;
        }
        status = GH_OK;
    } else {
        status = generate(options, count, schedule_p, &err);
        if (status != GH_OK) {
            snprintf(text, text_bytes, "--microbatches %d: %s", count,
                     err.text);
            return -1;
        }
    }
    status = gh_pipeline_check(*schedule_p, &err);
    if (status != GH_OK) {
        snprintf(text, text_bytes, "--schedule %s: %s",
                 pipeline_schedule_name(options), err.text);
        gh_pipeline_free(*schedule_p);
        return -1;
    }
    return 0;
}

bool pipeline_is_interleaved(const struct options *options)
{
    return is_schedule(options, "1f1b") || is_schedule(options, "interleaved");
}

/* The sentence of a failure was that of command_check(). */
void pipeline_slots(const struct options *options, uint32_t slots[MAX_CHUNKS])
{
    const uint32_t stage = (uint32_t)ranks_stage(options->ranks);
    struct gh_pipeline *schedule;
    char text[512];

    memset(slots, 0, MAX_CHUNKS * sizeof(*slots));
    for (int i = 0; i < options->n_counts &&
                    pipeline_schedule(options, options->counts[i], &schedule,
                                      text, sizeof(text)) == 0;
         i++) {
        for (uint32_t c = 0; c < schedule->n_chunks; c++) {
            const uint32_t n = gh_pipeline_in_flight(schedule, stage, c);

            slots[c] = n > slots[c] ? n : slots[c];
        }
        gh_pipeline_free(schedule);
    }
}

double pipeline_idle_of(const struct options *options, int count,
                        const struct gh_pipeline_times *times)
{
    struct gh_pipeline_clock clock;
    struct gh_pipeline *schedule;
    double idle = 0;
    char text[512];

    if (pipeline_schedule(options, count, &schedule, text, sizeof(text)) != 0) {
        return 0;
    }
    if (gh_pipeline_run(schedule, times, &clock, NULL) == GH_OK) {
        idle = gh_pipeline_bubble(schedule, &clock);
    }
    gh_pipeline_free(schedule);
    return idle;
}

double pipeline_idle(const struct options *options, int count)
{
    static const struct gh_pipeline_times times = {
        .pass = { [GH_ACTION_FORWARD] = 1,
                  [GH_ACTION_BACKWARD] = 2,
                  [GH_ACTION_INPUTS] = 1,
                  [GH_ACTION_WEIGHTS] = 1 },
    };

    return pipeline_idle_of(options, count, &times);
}

/* ---- layers -------------------------------------------------------------- */

int pipeline_layers(const struct options *options, int part)
{
    const int parts = options_pp(options) * options_vpp(options);
    const int all = options->config.layers;

    return options->n_split > 0 ? options->split[part]
                                : all / parts + (part < all % parts);
}

/* The part of the model that a chunk of a stage is. */
static int part_of(const struct options *options, int stage, int chunk)
{
    const int pp = options_pp(options);
    const bool falls = options->placed_v && chunk % 2 == 1;

    return chunk * pp + (falls ? pp - 1 - stage : stage);
}

int pipeline_head_stage(const struct options *options)
{
    return options->placed_v && options_vpp(options) % 2 == 0
               ? 0
               : options_pp(options) - 1;
}

void pipeline_share(const struct options *options, struct config *config)
{
    const int stage = ranks_stage(options->ranks);
    struct share *share = &config->share;

    if (options_pp(options) == 1) {
        return;
    }
    share->all = options->config.layers;
    share->n = options_vpp(options);
    share->embeds = stage == 0;
    share->heads = stage == pipeline_head_stage(options);
    config->layers = 0;
    for (int i = 0; i < share->n; i++) {
        const int part = part_of(options, stage, i);

        share->first[i] = 0;
        for (int p = 0; p < part; p++) {
            share->first[i] += pipeline_layers(options, p);
        }
        share->count[i] = pipeline_layers(options, part);
        config->layers += share->count[i];
    }
}
