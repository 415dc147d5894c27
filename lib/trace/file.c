/*
 * file.c - the file of a trace: which it is, and the text that goes into it.
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
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

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

/* Where the host has closed one of its standard streams, a new file takes its
 * place, and what the host or the log writes there would be in the trace. */
static int beyond_standard(int fd)
{
    int beyond, saved;

    if (fd > STDERR_FILENO) {
        return fd;
    }
    beyond = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    saved = errno;
    close(fd);
    errno = saved;
    return beyond;
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
        return beyond_standard(fd); /* /dev/null can be shared */
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
    return beyond_standard(fd);

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

static gh_status open_as(const char *wanted, struct gh_trace *trace,
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

gh_status gh_trace_open_file(const char *path, struct gh_trace *trace,
                             gh_error *err)
{
    static uint32_t lanes;
    gh_status status;

    pthread_mutex_lock(&used.lock);
    status = open_as(path, trace, err);
    if (status == GH_OK) {
        trace->lane = ++lanes;
    }
    pthread_mutex_unlock(&used.lock);
    return status;
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
