/*
 * object.c - whether a file is whole enough to be given to the loader.
 *
 * The loader maps what a file's headers promise.  Where the file is shorter,
 * as half a copy is, the first look beyond its end kills the process, so
 * that is found out before.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "family/family.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST_SEGMENTS 64

static gh_status cut_off(const struct gh_family_where *where, gh_error *err)
{
    return gh_family_fail(err, GH_ERR_INVALID, where,
                          "the file is cut off: copy or build it again");
}

static bool read_at(int fd, void *to, size_t bytes, off_t offset)
{
    return pread(fd, to, bytes, offset) == (ssize_t)bytes;
}

static gh_status check_segments(int fd, uint64_t size,
                                const ElfW(Ehdr) * header,
                                const struct gh_family_where *where,
                                gh_error *err)
{
    ElfW(Phdr) segments[MOST_SEGMENTS];

    if (header->e_phentsize != sizeof(segments[0]) ||
        header->e_phnum > MOST_SEGMENTS) {
        return gh_family_fail(err, GH_ERR_INVALID, where,
                              "its header is damaged: build it again");
    }
    if (header->e_phoff > size ||
        !read_at(fd, segments, header->e_phnum * sizeof(segments[0]),
                 (off_t)header->e_phoff)) {
        return cut_off(where, err);
    }
    for (unsigned i = 0; i < header->e_phnum; i++) {
        if (segments[i].p_type == PT_LOAD &&
            (segments[i].p_offset > size ||
             segments[i].p_filesz > size - segments[i].p_offset)) {
            return cut_off(where, err);
        }
    }
    return GH_OK;
}

static gh_status check_open(int fd, const struct gh_family_where *where,
                            gh_error *err)
{
    ElfW(Ehdr) header;
    struct stat found;

    if (fstat(fd, &found) != 0 || !S_ISREG(found.st_mode) ||
        !read_at(fd, &header, SELFMAG, 0) ||
        memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) {
        return gh_family_fail(err, GH_ERR_INVALID, where,
                              "the file is not an object: build it with "
                              "cc -shared -fPIC");
    }
    if (!read_at(fd, &header, sizeof(header), 0)) {
        return cut_off(where, err);
    }
    /* Another machine's has tables of other sizes; the loader says so. */
    if (header.e_ident[EI_CLASS] !=
        (sizeof(void *) == 8 ? ELFCLASS64 : ELFCLASS32)) {
        return GH_OK;
    }
    return check_segments(fd, (uint64_t)found.st_size, &header, where, err);
}

gh_status gh_family_check_object(const struct gh_family_where *where,
                                 gh_error *err)
{
    /* Without O_NONBLOCK a pipe of that name would wait for its writer. */
    const int fd = open(where->file, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    gh_status status;

    if (fd < 0) {
        return gh_family_fail(err, GH_ERR_NOT_FOUND, where,
                              "the file cannot be read: %s", strerror(errno));
    }
    status = check_open(fd, where, err);
    close(fd);
    return status;
}
