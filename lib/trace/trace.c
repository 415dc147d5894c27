/*
 * trace.c - records in memory, and the JSON that is made of them.
 *
 * The passes of each session of the process have a lane (tid), and what the
 * device did has more lanes.  Each process has its own pid, so that the files
 * of several ranks can be viewed together.  A record is 40 bytes.  The buffer
 * holds the passes of a large step, and its pages are only touched when they
 * are used.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "base/error.h"
#include "trace/private.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RECORDS 65536u
static const char *action_name(const struct gh_trace_record *record)
{
    if (record->rerun) {
        return "failed recording";
    }
    if (record->prepares) {
        return "prepare";
    }
    switch (record->action) {
    case GH_ACTION_RECORD:
        return "record";
    case GH_ACTION_REPLAYED:
        return "replay";
    default:
        return "eager";
    }
}

static void put_record(struct gh_trace *trace,
                       const struct gh_trace_record *record)
{
    const char *direction = gh_direction_names[record->direction];
    uint64_t ns = record->end_ns - record->start_ns;

    gh_trace_put(trace,
                 ",\n{\"ph\":\"X\",\"pid\":%ld,\"tid\":%u,\"ts\":%llu.%03u,"
                 "\"dur\":%llu.%03u,\"name\":\"%s %s ",
                 (long)getpid(), trace->lane,
                 (unsigned long long)(record->start_ns / 1000),
                 (unsigned)(record->start_ns % 1000),
                 (unsigned long long)(ns / 1000), (unsigned)(ns % 1000),
                 action_name(record), direction);
    if (record->segment < trace->plan->n_segments) {
        gh_trace_put_segment(trace, &trace->plan->segments[record->segment]);
    }
    if (record->variant != 0) {
        gh_trace_put(trace, " variant%u", record->variant);
    }
    gh_trace_put_bank(trace, record->bank);
    gh_trace_put(trace, " mb%u", record->microbatch);
    if (record->slot != GH_SLOT_NONE) {
        gh_trace_put(trace, " slot%u", record->slot);
    }
    gh_trace_put(trace,
                 "\",\"cat\":\"%s\",\"args\":{\"segment\":%u,"
                 "\"direction\":\"%s\",\"microbatch\":%u,",
                 action_name(record), record->segment, direction,
                 record->microbatch);
    if (record->slot != GH_SLOT_NONE) {
        gh_trace_put(trace, "\"slot\":%u,", record->slot);
    }
    if (record->variant != 0) {
        gh_trace_put(trace, "\"variant\":%u,", record->variant);
    }
    gh_trace_put_bank_args(trace, record->bank);
    gh_trace_put(trace, "\"action\":\"%s\",\"reason\":\"%s\"}}",
                 action_name(record), gh_reason_name(record->reason));
}

/* Writes the first event, which has no comma before it.  The others begin with
 * one. */
static void put_head(struct gh_trace *trace)
{
    gh_trace_put(
        trace,
        "[\n{\"ph\":\"M\",\"pid\":%ld,\"tid\":%u,\"name\":\"process_name\","
        "\"args\":{\"name\":\"graphhooks\"}}",
        (long)getpid(), trace->lane);
    gh_trace_put(
        trace,
        ",\n{\"ph\":\"M\",\"pid\":%ld,\"tid\":%u,\"name\":\"thread_name\","
        "\"args\":{\"name\":\"passes of session %u\"}}",
        (long)getpid(), trace->lane, trace->lane);
}

gh_status gh_trace_open(const char *path, const struct gh_plan *plan,
                        const struct gh_log *log, struct gh_trace **trace_p,
                        gh_error *err)
{
    struct gh_trace *trace = calloc(1, sizeof(*trace));
    gh_status status = GH_ERR_NO_MEMORY;

    if (trace == NULL) {
        return gh_fail(err, GH_ERR_NO_MEMORY, "no memory for a trace");
    }
    trace->plan = plan;
    trace->log = log;
    trace->pid = getpid();
    trace->records = malloc(RECORDS * sizeof(*trace->records));
    trace->text = malloc(TEXT_BYTES);
    if (trace->records == NULL || trace->text == NULL) {
        gh_fail(err, GH_ERR_NO_MEMORY, "no memory for a trace");
        goto err_trace;
    }

    status = gh_trace_open_file(path, trace, err);
    if (status != GH_OK) {
        goto err_trace;
    }

    put_head(trace);
    gh_trace_write(trace);
    *trace_p = trace;
    return GH_OK;

err_trace:
    free(trace->text);
    free(trace->records);
    free(trace);
    return status;
}

const char *gh_trace_path(const struct gh_trace *trace)
{
    return trace->path;
}

void gh_trace_event(struct gh_trace *trace,
                    const struct gh_trace_record *record)
{
    if (trace->n_records == RECORDS) {
        trace->lost++;
        return;
    }
    trace->records[trace->n_records++] = *record;
}

void gh_trace_step_end(struct gh_trace *trace)
{
    if (trace->n_records > RECORDS / 2) {
        gh_trace_flush(trace);
    }
}

void gh_trace_memory(struct gh_trace *trace, uint64_t ns,
                     const gh_memory_stats *m)
{
    static const char *const names[GH_TRACE_MEMORY] = {
        "slots", "banks", "offsets", "rings", "kept",
        "check", "held",  "spare",   "pinned"
    };
    const uint64_t parts[GH_TRACE_MEMORY] = { m->slot_bytes,   m->bank_bytes,
                                              m->offset_bytes, m->ring_bytes,
                                              m->kept_bytes,   m->check_bytes,
                                              m->held_bytes,   m->spare_bytes,
                                              m->pinned_bytes };

    if (memcmp(parts, trace->memory, sizeof(parts)) == 0) {
        return;
    }
    memcpy(trace->memory, parts, sizeof(parts));
    if (trace->text_used > TEXT_BYTES - EVENT_BYTES) {
        gh_trace_write(trace);
    }
    gh_trace_put(trace,
                 ",\n{\"ph\":\"C\",\"pid\":%ld,\"tid\":%u,"
                 "\"ts\":%llu.%03u,\"name\":\"memory of session %u\","
                 "\"args\":{",
                 (long)getpid(), trace->lane, (unsigned long long)(ns / 1000),
                 (unsigned)(ns % 1000), trace->lane);
    for (uint32_t i = 0; i < GH_TRACE_MEMORY; i++) {
        gh_trace_put(trace, "%s\"%s\":%llu", i == 0 ? "" : ",", names[i],
                     (unsigned long long)parts[i]);
    }
    gh_trace_put(trace, "}}");
}

void gh_trace_flush(struct gh_trace *trace)
{
    uint64_t last = 0;

    for (uint32_t i = 0; i < trace->n_records && trace->fd >= 0; i++) {
        last = trace->records[i].end_ns;
        put_record(trace, &trace->records[i]);
        if (trace->text_used > TEXT_BYTES - EVENT_BYTES) {
            gh_trace_write(trace);
        }
    }
    if (trace->lost != 0) {
        gh_trace_put(trace,
                     ",\n{\"ph\":\"i\",\"s\":\"p\",\"pid\":%ld,\"tid\":%u,"
                     "\"ts\":%llu,\"name\":\"%llu passes did not fit\"}",
                     (long)getpid(), trace->lane,
                     (unsigned long long)(last / 1000),
                     (unsigned long long)trace->lost);
    }
    if (trace->lost_works != 0) {
        gh_trace_put(
            trace,
            ",\n{\"ph\":\"i\",\"s\":\"p\",\"pid\":%ld,\"tid\":%u,"
            "\"ts\":%llu,\"name\":\"%llu graphs and copies did not fit\"}",
            (long)getpid(), trace->lane, (unsigned long long)(last / 1000),
            (unsigned long long)trace->lost_works);
    }
    gh_trace_write(trace);
    trace->n_records = 0;
    trace->lost = trace->lost_works = 0;
}

void gh_trace_close(struct gh_trace *trace)
{
    if (trace == NULL) {
        return;
    }
    gh_trace_flush(trace);
    gh_trace_put(trace, "\n]\n");
    gh_trace_write(trace);
    if (trace->fd >= 0) {
        close(trace->fd);
    }
    free(trace->names);
    free(trace->text);
    free(trace->records);
    free(trace);
}
