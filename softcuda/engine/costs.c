/*
 * costs.c - how long each operation takes on the virtual clock.
 *
 * The defaults are rounded from an H200 and its driver.  A program that wants
 * to time a schedule says how long its own kernels take.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "softcuda/engine/costs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_KERNELS = 256,
    NAME_BYTES = 64
};

/* A fixed time, and bytes per nanosecond; rate 0: bytes cost nothing. */
struct cost {
    double ns, rate;
};

static struct {
    struct cost start, node, set, bytes, copies[N_WAYS];
    double calls[N_ENTRIES];
    struct {
        char name[NAME_BYTES];
        struct cost cost;
    } kernels[MAX_KERNELS];
    int n_kernels;
} costs;

static const char *const ways[N_WAYS] = { "out", "back", "within" };

static double default_call(enum entry entry)
{
    switch (entry) {
    case E_cuLaunchKernel:
        return 2500;
    case E_cuMemcpyHtoDAsync:
    case E_cuMemcpyDtoHAsync:
    case E_cuMemcpyDtoDAsync:
    case E_cuMemcpyBatchAsync:
    case E_cuMemcpyBatchAsync_v2:
    case E_cuMemsetD8Async:
    case E_cuMemsetD32Async:
        return 2000;
    case E_cuLaunchHostFunc:
        return 1000;
    case E_cuGraphLaunch:
        return 1500;
    case E_cuEventRecord:
    case E_cuEventRecordWithFlags:
    case E_cuStreamWaitEvent:
        return 150;
    default:
        return 0; /* set-up, and polls, whose number depends on chance */
    }
}

void costs_default(void)
{
    memset(&costs, 0, sizeof(costs));
    costs.start = (struct cost){ 1000, 0 };
    costs.node = (struct cost){ 500, 0 };
    costs.set = costs.bytes = (struct cost){ 0, 2000 };
    costs.copies[WAY_OUT] = (struct cost){ 1500, 50 };
    costs.copies[WAY_BACK] = (struct cost){ 1500, 50 };
    costs.copies[WAY_WITHIN] = (struct cost){ 1500, 2000 };
    for (int i = 0; i < N_ENTRIES; i++) {
        costs.calls[i] = default_call((enum entry)i);
    }
}

/* ---- lines ------------------------------------------------------------ */

static bool take_call(const char *name, const struct cost *cost)
{
    for (int i = 0; i < N_ENTRIES; i++) {
        if (strcmp(name, entry_names[i]) == 0 && cost->rate == 0.0) {
            costs.calls[i] = cost->ns;
            return true;
        }
    }
    return false;
}

static bool take_copy(const char *name, const struct cost *cost)
{
    for (int i = 0; i < N_WAYS; i++) {
        if (strcmp(name, ways[i]) == 0) {
            costs.copies[i] = *cost;
            return true;
        }
    }
    return false;
}

static bool take_kernel(const char *name, const struct cost *cost)
{
    if (costs.n_kernels == MAX_KERNELS || strlen(name) >= NAME_BYTES) {
        return false;
    }
    snprintf(costs.kernels[costs.n_kernels].name, NAME_BYTES, "%s", name);
    costs.kernels[costs.n_kernels++].cost = *cost;
    return true;
}

/* Reads a line WHAT NAME NS [BYTES_PER_NS].  launch, node and set have no
 * NAME. */
static bool take_line(char *line)
{
    struct cost cost = { 0.0, 0.0 };
    char *rest = NULL;
    const char *what = strtok_r(line, " \t\r", &rest);
    const char *name, *ns, *rate;
    char *end;

    if (what == NULL || what[0] == '#') {
        return true;
    }
    name = strcmp(what, "launch") == 0 || strcmp(what, "node") == 0 ||
                   strcmp(what, "set") == 0
               ? what
               : strtok_r(NULL, " \t\r", &rest);
    ns = strtok_r(NULL, " \t\r", &rest);
    rate = ns != NULL ? strtok_r(NULL, " \t\r", &rest) : NULL;
    if (name == NULL || ns == NULL || strtok_r(NULL, " \t\r", &rest) != NULL) {
        return false;
    }
    cost.ns = strtod(ns, &end);
    if (*end != '\0' || !(cost.ns >= 0.0 && cost.ns < 1e15)) {
        return false;
    }
    if (rate != NULL) {
        cost.rate = strtod(rate, &end);
        if (*end != '\0' || !(cost.rate > 0.0 && cost.rate < 1e15)) {
            return false;
        }
    }
    if (strcmp(what, "kernel") == 0) {
        return take_kernel(name, &cost);
    }
    if (strcmp(what, "copy") == 0) {
        return take_copy(name, &cost);
    }
    if (strcmp(what, "call") == 0) {
        return take_call(name, &cost);
    }
    if (strcmp(what, "set") == 0) {
        costs.set = cost;
    } else if (strcmp(what, "launch") == 0 && rate == NULL) {
        costs.start = cost;
    } else if (strcmp(what, "node") == 0 && rate == NULL) {
        costs.node = cost;
    } else {
        return false;
    }
    return true;
}

int costs_take(const char *text)
{
    char line[256];

    for (int n = 1; *text != '\0'; n++) {
        const size_t bytes = strcspn(text, "\n");

        if (bytes >= sizeof(line)) {
            return n;
        }
        memcpy(line, text, bytes);
        line[bytes] = '\0';
        if (!take_line(line)) {
            return n;
        }
        text += bytes + (text[bytes] == '\n');
    }
    return 0;
}

int costs_take_file(const char *path)
{
    FILE *file = fopen(path, "r");
    char line[256];
    int n = 0, bad = 0;

    if (file == NULL) {
        return -1;
    }
    while (bad == 0 && fgets(line, sizeof(line), file) != NULL) {
        n++;
        line[strcspn(line, "\n")] = '\0';
        bad = take_line(line) ? 0 : n;
    }
    bad = bad == 0 && ferror(file) ? -1 : bad;
    fclose(file);
    return bad;
}

/* ---- what it takes ---------------------------------------------------- */

static uint64_t ns_of(const struct cost *cost, size_t bytes)
{
    return (uint64_t)cost->ns +
           (cost->rate > 0.0 ? (uint64_t)((double)bytes / cost->rate) : 0);
}

uint64_t costs_of_call(enum entry entry)
{
    return (uint64_t)costs.calls[entry];
}

uint64_t costs_of_start(bool in_graph)
{
    return (uint64_t)(in_graph ? costs.node.ns : costs.start.ns);
}

uint64_t costs_of_set(size_t bytes)
{
    return ns_of(&costs.set, bytes);
}

/* A node of a graph starts sooner than a copy on a stream. */
uint64_t costs_of_copy(enum way way, size_t bytes, bool in_graph)
{
    struct cost cost = costs.copies[way == WAY_NONE ? WAY_OUT : way];

    if (in_graph && cost.ns > costs.node.ns) {
        cost.ns = costs.node.ns;
    }
    return ns_of(&cost, bytes);
}

uint64_t costs_of_bytes(size_t bytes)
{
    return ns_of(&costs.bytes, bytes);
}

/* Whether a name fits a pattern.  A * at its end stands for any ending.  Of
 * several lines that fit, the last counts. */
static bool fits(const char *pattern, const char *name)
{
    const size_t n = strlen(pattern);

    return n != 0 && pattern[n - 1] == '*' ? strncmp(pattern, name, n - 1) == 0
                                           : strcmp(pattern, name) == 0;
}

bool costs_of_kernel(const char *name, size_t bytes, uint64_t *ns_p)
{
    for (int i = costs.n_kernels; i-- > 0;) {
        if (fits(costs.kernels[i].name, name)) {
            *ns_p = ns_of(&costs.kernels[i].cost, bytes);
            return true;
        }
    }
    return false;
}
