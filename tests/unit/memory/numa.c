/*
 * Pinned memory is asked for near the device, as far as the machine tells.
 * SPDX-License-Identifier: Apache-2.0
 */
#include "memory/numa.h"
#include "tap/tap.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define DEVICE "0000:3b:00.0"

static char root[] = "/tmp/graphhooks-numa.XXXXXX";

static void make_folder(const char *below)
{
    char path[200];

    snprintf(path, sizeof(path), "%s/%s", root, below);
    mkdir(path, 0700);
}

static void file_path(char *path, size_t bytes)
{
    snprintf(path, bytes, "%s/bus/pci/devices/" DEVICE "/numa_node", root);
}

/* What the kernel would say; NULL: there is no such file. */
static int node_of(const char *text)
{
    char path[200];
    FILE *file;

    file_path(path, sizeof(path));
    remove(path);
    if (text != NULL) {
        file = fopen(path, "w");
        if (file == NULL) {
            return -2;
        }
        fputs(text, file);
        fclose(file);
    }
    return gh_numa_node_of(root, DEVICE);
}

static void test_node_of_a_device(void)
{
    is_int(node_of("0\n"), 0, "a device on node 0 is");
    is_int(node_of("13\n"), 13, "one on node 13 is");
    is_int(node_of("1"), 1, "a line need not end");
    is_int(gh_numa_node_of(root, "0000:3B:00.0"), 1,
           "the driver may write its letters large");
    is_int(node_of("-1\n"), GH_NUMA_UNKNOWN, "-1 is a machine of one node");
    is_int(node_of("-2\n"), GH_NUMA_UNKNOWN, "and no node is below 0");
    is_int(node_of(""), GH_NUMA_UNKNOWN, "an empty file says nothing");
    is_int(node_of("near\n"), GH_NUMA_UNKNOWN, "nor does a word");
    is_int(node_of("1 2\n"), GH_NUMA_UNKNOWN, "nor do two numbers");
    is_int(node_of("99999999\n"), GH_NUMA_UNKNOWN, "nor does a huge one");
    is_int(node_of(NULL), GH_NUMA_UNKNOWN, "nor does no file");
    is_int(gh_numa_node_of(root, "0000:3c:00.0"), GH_NUMA_UNKNOWN,
           "another device is not that one");
}

static int mode_now(void)
{
    int mode = -1;

    return syscall(SYS_get_mempolicy, &mode, NULL, 0ul, NULL, 0ul) == 0 ? mode
                                                                        : -1;
}

static void test_preference(void)
{
    const int first = mode_now();
    struct gh_numa_before before = gh_numa_begin(0);

    /* EINVAL is of a node that there is not. */
    if (!before.changed && errno != EINVAL) {
        skip(1, "preferring a node: the kernel refuses: %s", strerror(errno));
    } else {
        is_int(mode_now(), 1, "memory of node 0 is preferred");
        gh_numa_end(&before);
        is_int(mode_now(), first, "and then as it was before");
    }
    before = gh_numa_begin(GH_NUMA_UNKNOWN);
    ok(!before.changed && mode_now() == first, "no node changes nothing");
    gh_numa_end(&before);
    before = gh_numa_begin(1000);
    ok(!before.changed && errno != 0 && mode_now() == first,
       "nor does one that the machine has not");
    gh_numa_end(&before);
}

#if defined(SYS_get_mempolicy) && defined(SYS_set_mempolicy)
/* A kernel of many nodes: what it was asked for, and what it says. */
static bool has_many_nodes, refuses;
static unsigned long policy_nodes[16], most_nodes[2];
static int policy_mode;

long __real_syscall(long number, ...);
long __wrap_syscall(long number, ...);

long __wrap_syscall(long number, ...)
{
    long given[5];
    va_list args;

    va_start(args, number);
    for (int i = 0; i < 5; i++) {
        given[i] = va_arg(args, long);
    }
    va_end(args);
    if (!has_many_nodes) {
        return __real_syscall(number, given[0], given[1], given[2], given[3],
                              given[4]);
    }
    if (refuses) {
        errno = EPERM;
        return -1;
    }
    if (number == SYS_get_mempolicy) {
        *(int *)given[0] = policy_mode;
        memcpy((void *)given[1], policy_nodes, sizeof(policy_nodes));
        most_nodes[0] = (unsigned long)given[2];
    } else {
        policy_mode = (int)given[0];
        memcpy(policy_nodes, (const void *)given[1], sizeof(policy_nodes));
        most_nodes[1] = (unsigned long)given[2];
    }
    return 0;
}

static void test_many_nodes(void)
{
    /* The kernel takes one bit less than it is told. */
    const unsigned long bits = 8 * sizeof(policy_nodes) + 1;
    const unsigned long word = 8 * sizeof(policy_nodes[0]);
    const int nodes[] = { 0, (int)word - 1, (int)word, (int)(16 * word) - 1 };

    has_many_nodes = true;
    for (int i = 0; i < 4; i++) {
        const unsigned long node = (unsigned long)nodes[i];
        struct gh_numa_before before;
        bool alone = true;

        memset(policy_nodes, 0, sizeof(policy_nodes));
        policy_nodes[3] = 5;
        policy_mode = 2;
        before = gh_numa_begin(nodes[i]);
        for (unsigned long w = 0; w < 16; w++) {
            alone = alone && policy_nodes[w] ==
                                 (w == node / word ? 1ul << node % word : 0);
        }
        ok(before.changed && policy_mode == 1 && alone,
           "node %d alone is preferred", nodes[i]);
        ok(most_nodes[0] == bits && most_nodes[1] == bits,
           "of as many as the kernel may have");
        gh_numa_end(&before);
        ok(policy_mode == 2 && policy_nodes[3] == 5 && most_nodes[1] == bits,
           "and then what was before");
    }
    ok(!gh_numa_begin((int)(16 * word)).changed && errno == EINVAL,
       "there are no more nodes than that");
    refuses = true;
    ok(!gh_numa_begin(0).changed && errno == EPERM,
       "a kernel that refuses has changed nothing");
    has_many_nodes = false;
}
#endif

int main(void)
{
    static const char *const folders[] = { "bus", "bus/pci", "bus/pci/devices",
                                           "bus/pci/devices/" DEVICE };
    char path[200];

    if (mkdtemp(root) == NULL) {
        return skip_all("no folder: %s", strerror(errno));
    }
    for (int i = 0; i < 4; i++) {
        make_folder(folders[i]);
    }
    test_node_of_a_device();
    test_preference();
#if defined(SYS_get_mempolicy) && defined(SYS_set_mempolicy)
    test_many_nodes();
#endif
    file_path(path, sizeof(path));
    remove(path);
    for (int i = 4; i-- > 0;) {
        snprintf(path, sizeof(path), "%s/%s", root, folders[i]);
        rmdir(path);
    }
    rmdir(root);
    return done_testing();
}
