/*
 * command_check_ep.c - checks experts that ranks divide, and modes that hide
 * their exchanges.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "cli/command.h"

#include <stdio.h>

/* Refuses options with which microbatches cannot be run in pairs. */
static int check_pairs(const struct options *options, char *text,
                       size_t text_bytes)
{
    if (options->in_flight < 2) {
        snprintf(text, text_bytes,
                 "--in-flight %d: overlap pairs the forward of a microbatch "
                 "with the backward of another; take 2 or more",
                 options->in_flight);
        return -1;
    }
    if (options->streams > 1) {
        snprintf(text, text_bytes,
                 "--streams %d: overlap has one stream for compute and one for "
                 "exchanges; leave it out",
                 options->streams);
        return -1;
    }
    if (options->delay_wgrad && options->delay > 1) {
        snprintf(text, text_bytes,
                 "--delay-wgrad %d: overlap delays weights' gradients into the "
                 "gaps of the same pair; take 0 or 1",
                 options->delay);
        return -1;
    }
    return 0;
}

static int check_overlap(const struct command *command, char *text,
                         size_t text_bytes)
{
    const struct options *options = &command->options;

    if (!command_has_overlap(command)) {
        return 0;
    }
    if (config_ep(&options->config) == 1) {
        snprintf(text, text_bytes,
                 "overlap hides the exchange of tokens between ranks, and with "
                 "--ep 1 there is none; take --ep 2, or leave overlap out of "
                 "--compare");
        return -1;
    }
    return check_pairs(options, text, text_bytes);
}

int command_check_ep(const struct command *command, char *text,
                     size_t text_bytes)
{
    const struct config *config = &command->options.config;
    const int ep = config_ep(config);

    if (ep > 1 && config->experts % ep != 0) {
        snprintf(text, text_bytes,
                 "--experts %d: they are divided by --ep %d; take a multiple "
                 "of it",
                 config->experts, ep);
        return -1;
    }
    if (config->sync_free &&
        (ep == 1 || config->drop_and_pad || config->dropless_host)) {
        snprintf(text, text_bytes,
                 "--sync-free is for dropless ranks that divide experts; %s",
                 ep == 1                ? "take --ep 2"
                 : config->drop_and_pad ? "leave out --drop-and-pad"
                                        : "leave out --dropless-host");
        return -1;
    }
    if (command->options.exchange != NULL && ep == 1) {
        snprintf(text, text_bytes,
                 "--exchange %s: with --ep 1 no tokens are exchanged; take "
                 "--ep 2",
                 command->options.exchange);
        return -1;
    }
    if (command->options.exchange != NULL && command->options.streams > 1) {
        snprintf(text, text_bytes,
                 "--exchange %s and --streams %d: its calls are in the order "
                 "of one stream; leave one out",
                 command->options.exchange, command->options.streams);
        return -1;
    }
    return check_overlap(command, text, text_bytes);
}
