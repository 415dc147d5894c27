/*
 * outside.c - device memory that other processes map.
 *
 * Memory of whole units of 2 MiB can be named.  It then moves, at its address,
 * into a file without a path, which another process opens as
 * /proc/PROCESS/fd/FILE.  So nothing is left when processes are killed.  A last
 * page says whose it is, and whether anybody has opened it.
 *
 * Memory that is mapped to addresses lies in such a file from the beginning, if
 * its file descriptor is to go to another process.
 *
 * What other processes do with it is not seen here: no race with them is
 * reported, and nothing that they may have written counts as unwritten.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include "softcuda/engine/outside.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    PAGE = 4096,
    UNIT = 2 << 20
};

/* The last page. */
struct header {
    int32_t process;
    uint32_t opened; /* how often */
    uint64_t number;
    uint32_t given; /* its process has given it back */
};

struct outside {
    int file; /* -1: it is open elsewhere */
    bool foreign; /* another process's */
    struct header *header;
};

static uint32_t n_outside;

static void *map(void *at, size_t bytes, int how, int file, size_t offset)
{
    void *memory =
        mmap(at, bytes, PROT_READ | PROT_WRITE, how, file, (off_t)offset);

    return memory == MAP_FAILED ? NULL : memory;
}

bool outside_can(size_t bytes)
{
    return bytes != 0 && bytes % UNIT == 0;
}

void *outside_take(size_t bytes)
{
    return map(NULL, bytes, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

void outside_give(void *base, size_t bytes)
{
    munmap(base, bytes);
}

static void end(struct outside *outside)
{
    if (outside->header != NULL) {
        if (!outside->foreign) {
            __atomic_store_n(&outside->header->given, 1, __ATOMIC_RELEASE);
        }
        munmap(outside->header, PAGE);
    }
    if (outside->file >= 0) {
        close(outside->file);
    }
    free(outside);
}

void outside_forget(struct outside *outside)
{
    if (outside != NULL) {
        end(outside);
        n_outside--;
    }
}

/* ---- this process's ------------------------------------------------------ */

struct outside *outside_make(size_t bytes)
{
    struct outside *outside = calloc(1, sizeof(*outside));

    if (outside == NULL) {
        return NULL;
    }
    outside->file = memfd_create("softcuda", MFD_CLOEXEC);
    if (outside->file >= 0 &&
        ftruncate(outside->file, (off_t)(bytes + PAGE)) == 0) {
        outside->header = map(NULL, PAGE, MAP_SHARED, outside->file, bytes);
    }
    if (outside->header == NULL) {
        end(outside);
        return NULL;
    }
    outside->header->process = getpid();
    n_outside++;
    return outside;
}

bool outside_map(const struct outside *outside, void *base, size_t bytes)
{
    return map(base, bytes, MAP_SHARED | MAP_FIXED, outside->file, 0) != NULL;
}

int outside_export(const struct outside *outside)
{
    return fcntl(outside->file, F_DUPFD_CLOEXEC, 0);
}

/* Copies the content, then maps the file in the memory's place. */
static bool move(const struct alloc *alloc, const struct outside *outside)
{
    const size_t bytes = alloc->bytes;
    void *copy = map(NULL, bytes, MAP_SHARED, outside->file, 0);

    if (copy == NULL) {
        return false;
    }
    memcpy(copy, (void *)alloc->base, bytes);
    munmap(copy, bytes);
    return outside_map(outside, (void *)alloc->base, bytes);
}

bool outside_name(struct alloc *alloc, struct outside_name *name)
{
    struct outside *outside = alloc->outside;

    if (alloc->side != SIDE_DEVICE || !outside_can(alloc->bytes)) {
        return false;
    }
    if (outside == NULL) {
        outside = outside_make(alloc->bytes);
        if (outside == NULL || !move(alloc, outside)) {
            outside_forget(outside);
            return false;
        }
        outside->header->number = alloc->number;
        alloc->outside = outside;
    }
    name->process = getpid();
    name->file = outside->file;
    name->number = alloc->number;
    name->bytes = alloc->bytes;
    return true;
}

/* ---- another's ----------------------------------------------------------- */

static int open_file(const struct outside_name *name)
{
    char path[64];
    struct stat stat;
    int file;

    snprintf(path, sizeof(path), "/proc/%d/fd/%d", name->process, name->file);
    file = open(path, O_RDWR | O_CLOEXEC);
    if (file >= 0 && (fstat(file, &stat) != 0 ||
                      (uint64_t)stat.st_size != name->bytes + PAGE)) {
        close(file);
        return -1;
    }
    return file;
}

struct outside *outside_open(const struct outside_name *name, void **base_p)
{
    struct outside *outside = calloc(1, sizeof(*outside));
    void *base = NULL;
    int file;

    if (outside == NULL) {
        return NULL;
    }
    file = outside_can(name->bytes) ? open_file(name) : -1;
    if (file >= 0) {
        outside->header = map(NULL, PAGE, MAP_SHARED, file, name->bytes);
        base = map(NULL, name->bytes, MAP_SHARED, file, 0);
        close(file);
    }
    outside->file = -1;
    outside->foreign = true;
    if (base == NULL || outside->header == NULL ||
        outside->header->process != name->process ||
        outside->header->number != name->number) {
        if (base != NULL) {
            munmap(base, name->bytes);
        }
        end(outside);
        return NULL;
    }
    __atomic_add_fetch(&outside->header->opened, 1, __ATOMIC_RELEASE);
    n_outside++;
    *base_p = base;
    return outside;
}

struct outside *outside_import(int file, size_t *bytes_p)
{
    struct outside *outside = calloc(1, sizeof(*outside));
    struct stat stat;
    size_t bytes;

    if (outside == NULL) {
        return NULL;
    }
    outside->file = fcntl(file, F_DUPFD_CLOEXEC, 0);
    outside->foreign = true;
    bytes = outside->file >= 0 && fstat(outside->file, &stat) == 0 &&
                    stat.st_size > PAGE
                ? (size_t)stat.st_size - PAGE
                : 0;
    if (outside_can(bytes)) {
        outside->header = map(NULL, PAGE, MAP_SHARED, outside->file, bytes);
    }
    if (outside->header == NULL || outside->header->process == 0) {
        end(outside);
        return NULL;
    }
    __atomic_add_fetch(&outside->header->opened, 1, __ATOMIC_RELEASE);
    n_outside++;
    *bytes_p = bytes;
    return outside;
}

void outside_close(struct outside *outside, void *base, size_t bytes)
{
    munmap(base, bytes);
    outside_forget(outside);
}

/* ---- questions ----------------------------------------------------------- */

bool outside_is_foreign(const struct alloc *alloc)
{
    return alloc->outside != NULL && alloc->outside->foreign;
}

bool outside_is_given(const struct alloc *alloc)
{
    return outside_is_foreign(alloc) &&
           __atomic_load_n(&alloc->outside->header->given, __ATOMIC_ACQUIRE) !=
               0;
}

bool outside_is_shared(const struct alloc *alloc)
{
    return alloc->outside != NULL &&
           __atomic_load_n(&alloc->outside->header->opened, __ATOMIC_ACQUIRE) !=
               0;
}

bool outside_is_any(void)
{
    return n_outside != 0;
}
