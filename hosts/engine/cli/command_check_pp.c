/*
 * command_check_pp.c - checks pipelines.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "cli/command.h"

#include "step/pipeline_schedule.h"

#include <stdio.h>
#include <string.h>

/* Refuses options that say something about a pipeline if there is none. */
static int check_none(const struct options *options, char *text,
                      size_t text_bytes)
{
    const char *option = options->vpp > 1            ? "--vpp"
                         : options->schedule != NULL ? "--schedule"
                         : options->group > 0        ? "--group"
                         : options->n_split > 0      ? "--split"
                         : options->time_passes > 0  ? "--time-passes"
                                                     : NULL;

    if (option == NULL) {
        return 0;
    }
    snprintf(text, text_bytes,
             "%s is for the stages of a pipeline, and there is one; add --pp 2",
             option);
    return -1;
}

static bool is_schedule(const struct options *options, const char *name)
{
    return options->schedule != NULL && strcmp(options->schedule, name) == 0;
}

/* Refuses chunks and groups that the schedule does not have. */
static int check_schedule(const struct options *options, char *text,
                          size_t text_bytes)
{
    const char *schedule = options->schedule;

    if (options->group > 0 &&
        (options_vpp(options) == 1 || !pipeline_is_interleaved(options))) {
        snprintf(text, text_bytes,
                 "--group %d is for the interleaved schedule of several "
                 "chunks; leave it out",
                 options->group);
        return -1;
    }
    if (options_vpp(options) > 1 &&
        (is_schedule(options, "zero-bubble") || is_schedule(options, "1f1b"))) {
        snprintf(text, text_bytes,
                 "--schedule %s has one chunk a stage, and --vpp %d; take "
                 "interleaved, or leave out --vpp",
                 schedule, options->vpp);
        return -1;
    }
    if (options_vpp(options) != 2 && is_schedule(options, "dualpipev")) {
        snprintf(text, text_bytes,
                 "--schedule dualpipev has two chunks a stage, and --vpp %d; "
                 "leave out --vpp",
                 options->vpp);
        return -1;
    }
    if (options_vpp(options) == 1 && is_schedule(options, "interleaved")) {
        snprintf(text, text_bytes,
                 "--schedule interleaved needs several chunks a stage; add "
                 "--vpp 2, or take 1f1b");
        return -1;
    }
    return 0;
}

static int check_split(const struct options *options, char *text,
                       size_t text_bytes)
{
    const int parts = options_pp(options) * options_vpp(options);
    int sum = 0;

    if (options->config.layers < parts) {
        snprintf(text, text_bytes,
                 "--layers %d: %d parts of a pipeline need a layer each; take "
                 "more layers, or fewer stages",
                 options->config.layers, parts);
        return -1;
    }
    for (int i = 0; i < options->n_split; i++) {
        sum += options->split[i];
    }
    if (options->n_split > 0 &&
        (options->n_split != parts || sum != options->config.layers)) {
        snprintf(text, text_bytes,
                 "--split has %d numbers that add up to %d; there are %d parts "
                 "and --layers %d",
                 options->n_split, sum, parts, options->config.layers);
        return -1;
    }
    return 0;
}

/* Refuses what a stage does not do. */
static int check_rest(const struct command *command, char *text,
                      size_t text_bytes)
{
    const struct options *options = &command->options;
    const char *what = NULL;

    if (options->streams > 1) {
        what = "--streams: a stage has one stream for its passes";
    } else if (command->gave_in_flight) {
        what = "--in-flight: the schedule says how many are";
    } else if (options->delay_wgrad && options->delay > 0) {
        what = "--delay-wgrad: the schedule says when";
    } else if (command_has_mode(command, MODE_STEP)) {
        what = "step in --compare: a stage's step is no one graph";
    } else if (command_has_overlap(command)) {
        what = "overlap in --compare: the schedule has no pairs";
    } else if (options->legacy) {
        what = "--stream legacy: messages have streams of their own";
    }
    if (what != NULL) {
        snprintf(text, text_bytes, "--pp %d and %s; leave one out", options->pp,
                 what);
        return -1;
    }
    return 0;
}

int command_check_pp(const struct command *command, char *text,
                     size_t text_bytes)
{
    const struct options *options = &command->options;
    struct gh_pipeline *schedule;

    if (options_pp(options) == 1) {
        return check_none(options, text, text_bytes);
    }
    if (check_schedule(options, text, text_bytes) != 0 ||
        check_split(options, text, text_bytes) != 0 ||
        check_rest(command, text, text_bytes) != 0) {
        return -1;
    }
    for (int i = 0; i < options->n_counts; i++) {
        if (pipeline_schedule(options, options->counts[i], &schedule, text,
                              text_bytes) != 0) {
            return -1;
        }
        gh_pipeline_free(schedule);
    }
    return 0;
}
