/*
 * command.h - what the command line asks for: the runs, and what is done
 * around them.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ENGINE_COMMAND_H
#define ENGINE_COMMAND_H

#include "step/options.h"

enum {
    MAX_MODES = 12 /* that a person may list */
};

struct command {
    struct options options;         /* of every run; no library: find it */
    enum mode modes[MAX_MODES + 1]; /* and what is put first */
    int n_modes;
    const char *driver;      /* "soft", "cuda"; NULL: what is there */
    const char *data, *json; /* NULL: find it; none */
    int ranks;               /* that train together */
    bool processes;          /* which are no threads */
    int limit_s;             /* for one that does not come */
    const char *nccl;        /* its path; NULL: what belongs to the driver */
    bool quiet, help;
    bool gave_experts, gave_top_k, gave_state, gave_pattern; /* by a person */
    bool gave_seq, gave_cp_comm, gave_offload_min;
};

/* 0; or -1 with one sentence in text: what is wrong and what would be right.
 * Strings point into argv. */
int command_parse(struct command *command, int argc, char **argv, char *text,
                  size_t text_bytes);

/* Whether options that are fine alone are so together: 0, or -1 with one
 * sentence. */
int command_check(const struct command *command, char *text, size_t text_bytes);

/* The same of what the number of ranks has to do with it, which a launcher may
 * have said. */
/* Of experts that ranks divide, and of overlap. */
int command_check_ep(const struct command *command, char *text,
                     size_t text_bytes);
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

/* Whether any mode has passes in the library's hands. */
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
