/*
 * command.h - what the command line asks for: the runs, and what happens
 * around them.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ENGINE_COMMAND_H
#define ENGINE_COMMAND_H

#include "step/options.h"

enum {
    MAX_MODES = 12 /* the most that can be listed */
};

struct command {
    struct options options;         /* for every run; without a library, it is
                                       looked for */
    enum mode modes[MAX_MODES + 1]; /* and the one put first */
    int n_modes;
    const char *driver;      /* "soft", "cuda"; NULL: whatever exists */
    const char *data, *json; /* NULL: look for data; write no json */
    int ranks;               /* that train together */
    bool processes;          /* they are processes, not threads */
    int limit_s;             /* for a rank that does not come */
    const char *nccl;        /* its path; NULL: the one for the driver */
    bool quiet, help;
    bool gave_experts, gave_top_k, gave_state, gave_pattern; /* by a person */
    bool gave_seq, gave_cp_comm, gave_in_flight;
    bool ranks_follow; /* from --pp: a launcher may say otherwise */
};

/* Returns 0, or -1 with one sentence in text that says what is wrong and what
 * would be right.  Strings point into argv. */
int command_parse(struct command *command, int argc, char **argv, char *text,
                  size_t text_bytes);

/* Checks options against each other that are valid alone.  Returns 0, or -1
 * with one sentence. */
int command_check(const struct command *command, char *text, size_t text_bytes);

/* Checks experts that ranks divide, and overlap, in the same way. */
int command_check_ep(const struct command *command, char *text,
                     size_t text_bytes);
/* Checks the pipeline in the same way. */
int command_check_pp(const struct command *command, char *text,
                     size_t text_bytes);
/* Checks what depends on the number of ranks, in the same way.  A launcher may
 * have set that number. */
int command_check_ranks(const struct command *command, char *text,
                        size_t text_bytes);

void command_help(void);

const char *mode_name(enum mode mode);

static inline bool command_has_mode(const struct command *command,
                                    enum mode mode)
{
    for (int i = 0; i < command->n_modes; i++) {
        if (command->modes[i] == mode) {
            return true;
        }
    }
    return false;
}

/* A mode whose graphs the engine captures itself; NULL: there is none. */
static inline const char *command_captured(const struct command *command)
{
    return command_has_mode(command, MODE_STEP)   ? mode_name(MODE_STEP)
           : command_has_mode(command, MODE_BARE) ? mode_name(MODE_BARE)
                                                  : NULL;
}

/* Whether any mode hides exchanges. */
static inline bool command_has_overlap(const struct command *command)
{
    for (int i = 0; i < command->n_modes; i++) {
        if (mode_overlaps(command->modes[i])) {
            return true;
        }
    }
    return false;
}

/* Whether any mode runs its passes through the library. */
static inline bool command_has_graph(const struct command *command)
{
    for (int i = 0; i < command->n_modes; i++) {
        if (mode_is_graph(command->modes[i])) {
            return true;
        }
    }
    return false;
}

#endif
