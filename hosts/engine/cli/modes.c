/*
 * modes.c - see modes.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "cli/modes.h"

#include <stdio.h>

int modes_run(struct modes *modes)
{
    const struct command *command = modes->command;
    char why[768];

    do {
        const enum mode mode = command->modes[modes->n];
        struct result *result = &modes->results[modes->n];

        if (train(&modes->options, modes->dev, modes->text, mode,
                  modes->progress, result, why, sizeof(why)) != 0) {
            snprintf(modes->error, sizeof(modes->error), "%s mode: %s",
                     mode_name(mode), why);
            return -1;
        }
        modes->n++;
    } while (modes->n < command->n_modes &&
             !modes->results[modes->n - 1].stopped);
    return 0;
}

void modes_free(struct modes *modes)
{
    for (int i = 0; i <= MAX_MODES; i++) {
        result_free(&modes->results[i]);
    }
}
