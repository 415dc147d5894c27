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
#include "base/json.h"
#include "trace/private.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define RECORDS 65536u
/* How many sessions of one run may ask for the same path. */
#define NAMES_MOST 1000u

/*
 * The files that this process has opened.  They are known by device and inode,
 * because a name may be deleted and made again.  If there are very many, the
 * oldest are forgotten.
 */
static struct {
    pthread_mutex_t lock;
    uint32_t opened;
    struct {
        dev_t dev;
        ino_t ino;
    } files[256];
} used = { .lock = PTHREAD_MUTEX_INITIALIZER };

static bool was_used(const struct stat *st)
{
    const uint32_t room = sizeof(used.files) / sizeof(used.files[0]);

    for (uint32_t i = 0; i < used.opened && i < room; i++) {
        if (used.files[i].dev == st->st_dev &&
            used.files[i].ino == st->st_ino) {
            return true;
        }
    }
    return false;
}

static void mark_used(const struct stat *st)
{
    const uint32_t room = sizeof(used.files) / sizeof(used.files[0]);
    uint32_t i = used.opened++ % room;

    used.files[i].dev = st->st_dev;
    used.files[i].ino = st->st_ino;
}

/*
 * Opens one name.  On failure returns -1 with errno, which is EEXIST if
 * somebody else has the file.  A lock tells other processes so, and goes away
 * with this process.  On a file system without locks, the trace goes on
 * without one.
 */
static int claim(const char *path)
{
    struct stat st;
    bool created;
    int fd, saved;

    /* O_NONBLOCK keeps a pipe that nobody reads from stopping us here.  A file
     * that was created just now belongs to nobody, even if its inode was used
     * before. */
    fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NONBLOCK, 0666);
    created = fd >= 0;
    if (!created && errno == EEXIST) {
        fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666);
    }
    if (fd < 0) {
        return -1;
    }
    if (fstat(fd, &st) != 0) {
        goto err_fd;
    }
    if (S_ISCHR(st.st_mode)) {
        return fd; /* /dev/null can be shared */
    }
    if (!S_ISREG(st.st_mode)) {
        errno = EINVAL; /* writing to a pipe may raise SIGPIPE in the host */
        goto err_fd;
    }
    if ((!created && was_used(&st)) ||
        (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)) {
        errno = EEXIST;
        goto err_fd;
    }
    if (ftruncate(fd, 0) != 0) {
        goto err_fd;
    }
    mark_used(&st);
    return fd;

err_fd:
    saved = errno;
    close(fd);
    errno = saved;
    return -1;
}

/* Replaces %p and %%; false when the result is too long. */
static bool expand(const char *path, char *out, size_t bytes)
{
    size_t n = 0;

    for (; *path != '\0' && n < bytes; path++) {
        if (path[0] == '%' && path[1] == 'p') {
            n += (size_t)snprintf(out + n, bytes - n, "%ld", (long)getpid());
            path++;
        } else {
            path += path[0] == '%' && path[1] == '%';
            out[n++] = *path;
        }
    }
    if (n >= bytes) {
        return false;
    }
    out[n] = '\0';
    return true;
}

/* Numbers a path: "dir/t.json" and 2 give "dir/t.2.json"; without an ending,
 * "dir/t.2". */
static bool number(const char *path, uint32_t i, char *out, size_t bytes)
{
    const char *name = strrchr(path, '/');
    const char *ending;
    int n;

    name = name != NULL ? name + 1 : path;
    ending = strrchr(name, '.');
    if (ending == NULL || ending == name) {
        ending = path + strlen(path);
    }
    if (i == 1) {
        n = snprintf(out, bytes, "%s", path);
    } else {
        n = snprintf(out, bytes, "%.*s.%u%s", (int)(ending - path), path, i,
                     ending);
    }
    return n >= 0 && (size_t)n < bytes;
}

static gh_status open_file(const char *wanted, struct gh_trace *trace,
                           gh_error *err)
{
    char path[PATH_BYTES];

    if (!expand(wanted, path, sizeof(path))) {
        return gh_fail(err, GH_ERR_CONFIG,
                       "GRAPHHOOKS_TRACE: the path is longer than %u bytes",
                       PATH_BYTES - 1);
    }

    for (uint32_t i = 1; i <= NAMES_MOST; i++) {
        if (!number(path, i, trace->path, sizeof(trace->path))) {
            errno = ENAMETOOLONG;
            break;
        }
        trace->fd = claim(trace->path);
        if (trace->fd >= 0) {
            return GH_OK;
        }
        if (errno != EEXIST) {
            break;
        }
    }
    return gh_fail(err, GH_ERR_CONFIG,
                   "GRAPHHOOKS_TRACE: cannot write %.150s: %s", trace->path,
                   strerror(errno));
}

void gh_trace_write(struct gh_trace *trace)
{
    const char *at = trace->text;

    if (trace->pid != getpid()) {
        trace->text_used = 0;
    }
    while (trace->fd >= 0 && trace->text_used > 0) {
        ssize_t n = write(trace->fd, at, trace->text_used);

        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            gh_log_line(trace->log, GH_LOG_WARN, "the trace %s ends here: %s",
                        trace->path, strerror(errno));
            close(trace->fd);
            trace->fd = -1;
            break;
        }
        at += n;
        trace->text_used -= (size_t)n;
    }
    trace->text_used = 0;
}

void gh_trace_put(struct gh_trace *trace, const char *format, ...)
{
    va_list args;
    size_t room = TEXT_BYTES - trace->text_used;
    int n;

    va_start(args, format);
    n = vsnprintf(trace->text + trace->text_used, room, format, args);
    va_end(args);
    if (n > 0) {
        trace->text_used += (size_t)n < room ? (size_t)n : room - 1;
    }
}

void gh_trace_put_name(struct gh_trace *trace, const char *name)
{
    const char *at = name;
    char escaped[8];

    while (*at != '\0' && at - name < 64) {
        at += gh_json_char(at, escaped);
        gh_trace_put(trace, "%s", escaped);
    }
}

void gh_trace_put_segment(struct gh_trace *trace, const gh_segment *segment)
{
    const struct gh_plan *plan = trace->plan;

    gh_trace_put_name(trace, plan->layers[segment->first_layer].name);
    if (segment->first_layer != segment->last_layer) {
        gh_trace_put(trace, " to ");
        gh_trace_put_name(trace, plan->layers[segment->last_layer].name);
    } else if (segment->first_part == segment->last_part) {
        gh_trace_put(trace, " %s", gh_part_name(segment->first_part));
    }
}

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
    static uint32_t lanes;

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

    pthread_mutex_lock(&used.lock);
    status = open_file(path, trace, err);
    if (status == GH_OK) {
        trace->lane = ++lanes;
    }
    pthread_mutex_unlock(&used.lock);
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
