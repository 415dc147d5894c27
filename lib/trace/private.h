/*
 * private.h - what the files of lib/trace/ share, and nobody else sees.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_TRACE_PRIVATE_H
#define GH_TRACE_PRIVATE_H

#include "trace/trace.h"

#include <stddef.h>

#define TEXT_BYTES 65536u
/* More than the longest event. */
#define EVENT_BYTES 2048u
#define PATH_BYTES 4096u
/* Lanes of streams; the graphs of more share the last. */
#define STREAMS 32u

struct gh_trace {
    const struct gh_plan *plan;
    const struct gh_log *log;
    int fd; /* -1: writing failed, and nothing is written any more */
    uint32_t lane;
    uint32_t n_records;
    uint64_t lost; /* records there was no room for, since the last flush */
    uint64_t lost_works;
    const void *streams[STREAMS]; /* that have had a graph */
    uint32_t n_streams;
    uint64_t ends[GH_TRACE_GRAPHS + STREAMS]; /* of each lane; 0: not named */
    struct gh_trace_record *records;
    char (*names)[GH_BANK_NAME]; /* of banks; without memory, some */
    uint32_t n_names;
    char *text;
    size_t text_used;
    char path[PATH_BYTES];
};

/* Adds to the text, which has room for an event. */
void gh_trace_put(struct gh_trace *trace, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* A name comes from the host; it is cut where an event would grow too long. */
void gh_trace_put_name(struct gh_trace *trace, const char *name);
/* "layer 3" or "layer 3 attn", or "layer 3 attn to layer 4". */
void gh_trace_put_segment(struct gh_trace *trace, const gh_segment *segment);
/* " bank3"; nothing for bank 0. */
void gh_trace_put_bank(struct gh_trace *trace, uint32_t bank);
/* Its number and name among the arguments, with a comma behind each. */
void gh_trace_put_bank_args(struct gh_trace *trace, uint32_t bank);
/* All of the text, or the end of the trace. */
void gh_trace_write(struct gh_trace *trace);

#endif
