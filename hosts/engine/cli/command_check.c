/*
 * command_check.c - checks what involves more than one option.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "cli/command.h"

#include "model/saved.h"

#include <stdio.h>

/* Columns of the widest row of activations. */
static long long widest(const struct config *config)
{
    const long long c = config->hidden;
    long long wide = c * WIDEN > VOCAB ? c * WIDEN : VOCAB;

    if (config_has(config, PART_MOE_EXPERTS)) {
        const long long inner = config_expert(config);
        const long long slots = 2LL * config->top_k + config->experts;

        const long long all = slots * inner * config_ep(config);

        wide = wide > all ? wide : all;
    }
    if (config_has(config, PART_MAMBA)) {
        const long long states =
            (long long)config->state * config_inner(config) *
            config_cp(config);

        wide = wide > states ? wide : states;
    }
    return wide;
}

/* What is too large.  Kernels count elements in an int, and heads and batch in
 * a grid. */
static const char *too_large(const struct config *config)
{
    const long long rows = (long long)config->batch * config->seq;
    const long long scores =
        (long long)config->heads * config->seq * config_keys(config);
    struct model model;
    size_t weights;

    if (rows * widest(config) > INT32_MAX || scores > INT32_MAX ||
        (long long)config->batch * config->heads > 65535) {
        return "one microbatch";
    }
    if (model_init(&model, config) != 0) {
        return NULL; /* the run will report it */
    }
    weights = model.n;
    model_free(&model);
    return weights > INT32_MAX ? "one model" : NULL;
}

/* Checks models whose layers differ only in their experts. */
static int check_dense_layers(const struct config *config, char *text,
                              size_t text_bytes)
{
    if (config->dense_layers == 0) {
        return 0;
    }
    if (config->model != MODEL_MOE &&
        (config->model != MODEL_MLA || config->experts == 0)) {
        snprintf(text, text_bytes,
                 "--dense-layers %d is for models of experts; take --model "
                 "moe, or --model mla with --experts",
                 config->dense_layers);
        return -1;
    }
    if (config->dense_layers >= config->layers) {
        snprintf(text, text_bytes,
                 "--dense-layers %d leaves none of %d layers with experts; "
                 "take fewer",
                 config->dense_layers, config->layers);
        return -1;
    }
    return 0;
}

/* Refuses an option of another model, because it would have no effect. */
static int check_model(const struct command *command, char *text,
                       size_t text_bytes)
{
    const struct config *config = &command->options.config;

    if (command->gave_pattern && config->model != MODEL_HYBRID) {
        snprintf(text, text_bytes,
                 "--pattern %s is for --model hybrid; --model %s has layers "
                 "of one kind",
                 config->pattern, model_name(config->model));
        return -1;
    }
    if (command->gave_state && !config_has(config, PART_MAMBA)) {
        snprintf(text, text_bytes,
                 "--state %d is for Mamba layers, and --model %s has none; "
                 "take --model mamba",
                 config->state, model_name(config->model));
        return -1;
    }
    return 0;
}

static int check_experts(const struct command *command, char *text,
                         size_t text_bytes)
{
    const struct config *config = &command->options.config;

    if (check_dense_layers(config, text, text_bytes) != 0) {
        return -1;
    }
    if (!config_has(config, PART_MOE_EXPERTS)) {
        if (!config->drop_and_pad && !config->dropless_host &&
            !config->shared_expert && !config->busy_expert &&
            !command->gave_experts && !command->gave_top_k &&
            command->options.stash == NULL && config_ep(config) == 1) {
            return 0;
        }
        snprintf(text, text_bytes, "--model %s has no layer of experts; %s",
                 model_name(config->model),
                 config->model == MODEL_MLA      ? "give --experts a number"
                 : config->model == MODEL_HYBRID ? "put an E into --pattern"
                                                 : "take --model moe");
        return -1;
    }
    if (config->top_k > config->experts) {
        snprintf(text, text_bytes,
                 "--top-k %d is more than --experts %d; choose fewer",
                 config->top_k, config->experts);
        return -1;
    }
    if (config->drop_and_pad && config->dropless_host) {
        snprintf(text, text_bytes,
                 "--drop-and-pad has nothing for the host to read; leave out "
                 "--dropless-host");
        return -1;
    }
    if (config_counts_on_host(config) && command_captured(command) != NULL) {
        snprintf(text, text_bytes,
                 "%s waits for the device in every layer, which "
                 "no graph of mode %s can hold; take --compare eager,graph%s",
                 config->dropless_host ? "--dropless-host" : "--ep",
                 command_captured(command),
                 config->dropless_host ? "" : ", or --sync-free");
        return -1;
    }
    return 0;
}

/* Refuses options for modes that do not run, or that contradict a mode. */
static int check_offload(const struct command *command, char *text,
                         size_t text_bytes)
{
    const struct options *options = &command->options;
    const bool offloads = command_has_mode(command, MODE_OFFLOAD_DELAY) ||
                          command_has_mode(command, MODE_OFFLOAD) ||
                          command_has_mode(command, MODE_OVERLAP_OFFLOAD);

    if (options->offload != NULL && !offloads) {
        snprintf(text, text_bytes,
                 "--offload is for the modes with offload; add graph+offload "
                 "to --compare");
        return -1;
    }
    if (options->delay_wgrad && offloads) {
        snprintf(text, text_bytes,
                 "--%s%s reads again what the backward has let go: leave it "
                 "out, or the modes with offload",
                 options_pp(options) > 1 ? "schedule " : "delay-wgrad",
                 options_pp(options) > 1 && options->schedule != NULL
                     ? options->schedule
                     : "");
        return -1;
    }
    return 0;
}

/* Whether --cp-force is among the sizes, and the sequences can be shared. */
static int check_cp_sizes(const struct options *options, char *text,
                          size_t text_bytes)
{
    bool listed = options->cp_force == 0;

    for (int i = 0; i < options->n_cp; i++) {
        listed = listed || options->cp[i] == options->cp_force;
    }
    if (!listed && options->cp_force > 1) {
        snprintf(text, text_bytes,
                 "--cp-force %d is none of --cp; add it there, or leave out "
                 "--cp",
                 options->cp_force);
        return -1;
    }
    if (options->config.seq % 2 != 0) {
        snprintf(text, text_bytes,
                 "--seq %d: a rank has two halves of every sequence that it "
                 "shares; take an even one",
                 options->config.seq);
        return -1;
    }
    return 0;
}

/* Checks sequences that several ranks share. */
static int check_cp(const struct command *command, char *text,
                    size_t text_bytes)
{
    const struct options *options = &command->options;
    const bool one_size = options->n_cp == 1 || options->cp_force > 0;

    if (options->n_cp == 0) {
        if (!command->gave_cp_comm) {
            return 0;
        }
        snprintf(text, text_bytes,
                 "--cp-comm says how ranks share a sequence, and none do; add "
                 "--cp or --cp-force");
        return -1;
    }
    if (options->n_lengths > 0) {
        snprintf(text, text_bytes,
                 "--cp and --lengths: microbatches have the one shape or the "
                 "other; leave one out");
        return -1;
    }
    if (!options->packed && !one_size) {
        snprintf(text, text_bytes,
                 "--cp chooses by documents; add --packed, or --cp-force");
        return -1;
    }
    if (command_captured(command) != NULL && !one_size) {
        snprintf(text, text_bytes,
                 "--cp changes from step to step, which no graph of mode %s can "
                 "hold; leave out %s, or add --cp-force",
                 command_captured(command), command_captured(command));
        return -1;
    }
    return check_cp_sizes(options, text, text_bytes);
}

int command_check_ranks(const struct command *command, char *text,
                        size_t text_bytes)
{
    const struct options *options = &command->options;

    const int pp = options_pp(options);
    const int ranks = command->ranks / pp;
    const char *of = pp > 1 ? " of a stage" : "";

    if (command->ranks % pp != 0) {
        snprintf(text, text_bytes,
                 "--pp %d does not divide %d ranks; take a divisor, or other "
                 "--ranks",
                 pp, command->ranks);
        return -1;
    }
    if (ranks % config_ep(&options->config) != 0) {
        snprintf(text, text_bytes,
                 "--ep %d does not divide %d ranks%s; take a divisor, or other "
                 "--ranks",
                 options->config.ep, ranks, of);
        return -1;
    }
    for (int i = 0; i < options->n_cp; i++) {
        if (ranks % options->cp[i] != 0) {
            snprintf(text, text_bytes,
                     "--cp %d does not divide %d ranks%s; take a divisor, or "
                     "other --ranks",
                     options->cp[i], ranks, of);
            return -1;
        }
    }
    return 0;
}

/* Refuses a stash where it keeps nothing, and where passes would share its
 * buffers at the same time. */
static int check_stash(const struct command *command, char *text,
                       size_t text_bytes)
{
    const unsigned stashed = 1u << SAVED_EXPERT_FC1 | 1u << SAVED_MOE_ACT;
    const struct options *options = &command->options;
    const char *what = NULL;

    if (options->stash == NULL && options->spill_bytes > 0) {
        snprintf(text, text_bytes,
                 "--stash-spill is for pages of a stash; add --stash 200%%");
        return -1;
    }
    if (options->stash == NULL) {
        return 0;
    }
    if (!command_has_graph(command)) {
        snprintf(text, text_bytes,
                 "--stash is for the modes with graphs; add graph to "
                 "--compare");
        return -1;
    }
    if (options->streams > 1) {
        what = "--streams: microbatches on one stream share its buffers";
    } else if (command_has_overlap(command)) {
        what = "overlap in --compare: one microbatch at a time has its buffers";
    } else if (options->offload != NULL &&
               (options->offloaded & stashed) != 0) {
        what = "expert_fc1 or moe_act in --offload: the stash keeps these";
    }
    if (what != NULL) {
        snprintf(text, text_bytes, "--stash %s and %s; leave one out",
                 options->stash, what);
        return -1;
    }
    return 0;
}

static int check_suspend(const struct command *command, char *text,
                         size_t text_bytes)
{
    if (command->options.suspend == 0 || command_has_graph(command)) {
        return 0;
    }
    snprintf(text, text_bytes,
             "--suspend is for the modes with graphs; add graph to --compare");
    return -1;
}

int command_check(const struct command *command, char *text, size_t text_bytes)
{
    const struct options *options = &command->options;
    const struct config *config = &options->config;
    const char *too_large_for = too_large(config);

    if (config->hidden % config->heads != 0) {
        snprintf(text, text_bytes,
                 "--heads %d does not divide --hidden %d; choose a divisor",
                 config->heads, config->hidden);
        return -1;
    }
    if (options->n_lengths > 0 && command->gave_seq) {
        snprintf(text, text_bytes,
                 "--seq %d and --lengths: microbatches have the one or the "
                 "others; leave one out",
                 config->seq);
        return -1;
    }
    if (too_large_for != NULL) {
        snprintf(text, text_bytes,
                 "--layers %d, --hidden %d, --heads %d, --seq %d, --batch %d: "
                 "more than %s can hold; make one of them smaller",
                 config->layers, config->hidden, config->heads, config->seq,
                 config->batch, too_large_for);
        return -1;
    }
    if (options->legacy && options->streams > 1) {
        snprintf(text, text_bytes,
                 "--stream legacy is one stream; leave out --streams %d",
                 options->streams);
        return -1;
    }
    if (options_sets(options) > MAX_SLOTS) {
        snprintf(text, text_bytes,
                 "--in-flight %d and --delay-wgrad %d: %d microbatches would "
                 "hold a slot, and there are %d; make one of them smaller",
                 options->in_flight, options->delay, options_sets(options),
                 MAX_SLOTS);
        return -1;
    }
    if (check_offload(command, text, text_bytes) != 0 ||
        check_cp(command, text, text_bytes) != 0 ||
        check_model(command, text, text_bytes) != 0 ||
        check_experts(command, text, text_bytes) != 0 ||
        check_stash(command, text, text_bytes) != 0 ||
        check_suspend(command, text, text_bytes) != 0) {
        return -1;
    }
    return command_check_ep(command, text, text_bytes) == 0
               ? command_check_pp(command, text, text_bytes)
               : -1;
}
