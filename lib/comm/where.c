/*
 * where.c - see where.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "comm/where.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

uint64_t gh_where_hash(const char *text, size_t bytes)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);

    for (size_t i = 0; i < bytes; i++) {
        hash = (hash ^ (unsigned char)text[i]) * UINT64_C(0x100000001b3);
    }
    return hash;
}

uint64_t gh_where_machine(void)
{
    const int file = open("/proc/sys/kernel/random/boot_id", O_RDONLY);
    char text[64] = "";
    ssize_t n = -1;

    if (file >= 0) {
        n = read(file, text, sizeof(text));
        close(file);
    }
    if (n <= 0) {
        gethostname(text, sizeof(text) - 1);
        n = (ssize_t)strlen(text);
    }
    return gh_where_hash(text, (size_t)n);
}

static uint64_t namespace_of(const char *path)
{
    struct stat container = { 0 };

    return stat(path, &container) == 0 ? container.st_ino : 0;
}

uint64_t gh_where_process(void)
{
    static const char here;
    /* Two containers may have the same process ids. */
    const uint64_t words[] = { (uint64_t)getpid(), (uintptr_t)&here,
                               gh_where_machine(),
                               namespace_of("/proc/self/ns/pid") };

    return gh_where_hash((const char *)words, sizeof(words));
}

uint64_t gh_where_network(void)
{
    return gh_where_machine() ^ namespace_of("/proc/self/ns/net");
}
