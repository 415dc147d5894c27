/*
 * trace.h - a timeline of the passes, for Perfetto and chrome://tracing.
 *
 * lib/capture adds one record at the end of every pass.  Records become text
 * between steps, and only then.  A session that is not traced has no gh_trace
 * at all.
 *
 * The file is valid at every moment after gh_trace_open(): readers of the
 * format accept an array whose end is missing, as it is after a crash.
 *
 * No trace overwrites another one of the same run.  If another process is
 * tracing to a file of the wanted name, or this process has traced to it
 * before, the file is left alone, and "t.json" becomes "t.2.json", "t.3.json"
 * and so on.  An older run's file is replaced.  In a path, %p is the process
 * id, and %% a percent sign.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_TRACE_TRACE_H
#define GH_TRACE_TRACE_H

#include <graphhooks/bank.h>
#include <graphhooks/memory.h>

#include "base/log.h"
#include "plan/plan.h"

struct gh_trace;

/* One pass, from enter to exit.  Times are of CLOCK_MONOTONIC. */
struct gh_trace_record {
    uint64_t start_ns, end_ns;
    uint32_t segment;
    uint32_t microbatch;
    uint32_t slot; /* GH_SLOT_NONE: none */
    uint32_t bank;
    uint8_t direction;
    uint8_t variant;
    uint8_t action;
    uint8_t reason;
    uint8_t rerun;    /* exit returned GH_RERUN */
    uint8_t prepares; /* none of its work runs */
};

/*
 * Creates the file.  The plan and the log are borrowed until the close.  The
 * error GH_ERR_CONFIG names the path and what is wrong with it.
 */
gh_status gh_trace_open(const char *path, const struct gh_plan *plan,
                        const struct gh_log *log, struct gh_trace **trace_p,
                        gh_error *err);

/* Sets the name that events of the bank carry from now on; "" is none.  It
 * allocates. */
void gh_trace_name_bank(struct gh_trace *trace, uint32_t bank,
                        const char *name);

/* The path that was opened. */
const char *gh_trace_path(const struct gh_trace *trace);

/* Lanes of work on the device.  Copies to the host's memory and copies back
 * have one each, and so have the nodes of an overlap that compute and those
 * that communicate.  Graphs have one for each stream. */
enum gh_trace_lane {
    GH_TRACE_OUT,
    GH_TRACE_BACK,
    GH_TRACE_COMPUTE,
    GH_TRACE_COMM,
    GH_TRACE_GRAPHS
};
struct gh_trace_work {
    uint64_t start_ns, end_ns; /* of CLOCK_MONOTONIC, as for passes */
    enum gh_trace_lane lane;
    const void *stream;
    uint32_t microbatch, slot;              /* GH_SLOT_NONE: none */
    uint32_t segment, direction, variant, bank; /* GRAPHS */
    uint32_t layer;                         /* all others */
    const char *module;                     /* OUT, BACK */
    uint64_t bytes;
    uint32_t node, first_part, last_part;   /* COMPUTE, COMM; direction too */
    const char *order;                      /* the order of the overlap */
};

/* Adds the work to the text, and writes the text to the file if there is no
 * room left.  Only between steps. */
void gh_trace_work(struct gh_trace *trace, const struct gh_trace_work *work);
/* Counts work that was lost since the last flush. */
void gh_trace_lose(struct gh_trace *trace, uint64_t works);

/* Stores the record, without allocation, formatting or system call.  If the
 * buffer is full, the record is only counted, and the file says how many were
 * lost. */
void gh_trace_event(struct gh_trace *trace,
                    const struct gh_trace_record *record);

/* Writes the records if the buffer is more than half full. */
void gh_trace_step_end(struct gh_trace *trace);

/* Adds a counter with the parts of the memory, where they are not those of the
 * last time.  Only between steps. */
void gh_trace_memory(struct gh_trace *trace, uint64_t ns,
                     const gh_memory_stats *memory);

/* Writes all records.  A failed write is logged once and ends the trace; later
 * records are dropped. */
void gh_trace_flush(struct gh_trace *trace);

/* Writes all records and ends the array.  NULL is allowed. */
void gh_trace_close(struct gh_trace *trace);

#endif
