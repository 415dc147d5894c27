/*
 * private.h - what the files of lib/trace/ share; lib/trace only.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_TRACE_PRIVATE_H
#define GH_TRACE_PRIVATE_H

#include "trace/trace.h"

#include <stddef.h>
#include <sys/types.h>

#define TEXT_BYTES 65536u
/* More bytes than the longest event has. */
#define EVENT_BYTES 2048u
#define PATH_BYTES 4096u
/* How many streams have a lane.  Graphs on further streams share the last. */
#define STREAMS 32u
/* The parts of memory that have a counter. */
#define GH_TRACE_MEMORY 9u

struct gh_trace {
    const struct gh_plan *plan;
    const struct gh_log *log;
    int fd; /* -1: writing failed, and has stopped */
    pid_t pid; /* whose file it is: a forked child writes nothing into it */
    uint32_t lane;
    uint32_t n_records;
    uint64_t lost; /* records without room since the last flush */
    uint64_t lost_works;
    const void *streams[STREAMS]; /* those that have had a graph */
    uint32_t n_streams;
    uint64_t ends[GH_TRACE_GRAPHS + STREAMS]; /* of each lane; 0: the lane is
                                                 not named yet */
    struct gh_trace_record *records;
    char (*names)[GH_BANK_NAME]; /* of banks; some only, if memory ran out */
    uint32_t n_names;
    uint64_t memory[GH_TRACE_MEMORY]; /* its parts, the last time */
    char *text;
    size_t text_used;
    char path[PATH_BYTES];
};

/* Opens the file, whose name may get a number, and gives the trace its lane. */
gh_status gh_trace_open_file(const char *path, struct gh_trace *trace,
                             gh_error *err);
/* Adds to the text.  There must be room for an event. */
void gh_trace_put(struct gh_trace *trace, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Adds a name, which comes from the host.  It is cut if the event would grow
 * too long. */
void gh_trace_put_name(struct gh_trace *trace, const char *name);
/* Adds "layer 3", "layer 3 attn" or "layer 3 attn to layer 4". */
void gh_trace_put_segment(struct gh_trace *trace, const gh_segment *segment);
/* Adds a bank such as " bank3", but nothing for bank 0. */
void gh_trace_put_bank(struct gh_trace *trace, uint32_t bank);
/* Adds a bank's number and name to the arguments, each followed by a comma. */
void gh_trace_put_bank_args(struct gh_trace *trace, uint32_t bank);
/* Writes all of the text.  A failure ends the trace. */
void gh_trace_write(struct gh_trace *trace);

#endif
