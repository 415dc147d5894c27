/*
 * costs.c - see costs.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "bench/costs.h"

#include <math.h>
#include <string.h>

const char *const cost_ways[COST_WAYS] = { "off", "fixed", "auto" };
const char *const cost_directions[EXPERTS_DIRECTIONS] = { "forward", "backward",
                                                          "wgrad" };
const char *const cost_stages[STAGES] = { "before", "dispatch", "experts",
                                          "combine", "after" };

static int index_of(const char *word, const char *const *words, int n)
{
    int i = 0;

    while (i < n && strcmp(word, words[i]) != 0) {
        i++;
    }
    return i < n ? i : -1;
}

static bool is_time(double ns)
{
    return isfinite(ns) && ns >= 0;
}

static bool take_shape(struct costs *costs, const char *line)
{
    const int most = (int)(sizeof(costs->shapes) / sizeof(costs->shapes[0]));
    struct costs_shape *shape = &costs->shapes[costs->n];
    unsigned long long bytes;

    if (costs->n == most ||
        sscanf(line, "shape %u %llu %lf %63[^\n]", &shape->layers, &bytes,
               &shape->ratio, shape->name) != 4) {
        return false;
    }
    shape->exchange_bytes = bytes;
    costs->n++;
    return shape->layers > 0 && shape->layers <= EXPERTS_LAYERS && bytes > 0;
}

static bool take_node(struct costs_shape *shape, const char *line)
{
    char direction[16], stage[16];
    double ns;
    int d, s;

    if (sscanf(line, "node %15s %15s %lf", direction, stage, &ns) != 3) {
        return false;
    }
    d = index_of(direction, cost_directions, EXPERTS_DIRECTIONS);
    s = index_of(stage, cost_stages, STAGES);
    if (d < 0 || s < 0 || !is_time(ns)) {
        return false;
    }
    shape->ns[d][s] = ns;
    return true;
}

static bool take_measured(struct costs_shape *shape, const char *line)
{
    char name[16];
    double ns;
    int way;

    if (sscanf(line, "measured %15s %lf", name, &ns) != 2 || !is_time(ns)) {
        return false;
    }
    way = index_of(name, cost_ways, COST_WAYS);
    if (way >= 0) {
        shape->measured_ns[way] = ns;
    }
    return way >= 0;
}

static bool take_line(struct costs *costs, const char *line)
{
    struct costs_shape *shape =
        costs->n > 0 ? &costs->shapes[costs->n - 1] : NULL;
    unsigned long long bytes;

    if (sscanf(line, "device %127[^\n]", costs->device) == 1) {
        return true;
    }
    if (sscanf(line, "tokens %llu", &bytes) == 1) {
        costs->token_bytes = bytes;
        return bytes > 0;
    }
    if (sscanf(line, "ranks %u", &costs->ranks) == 1) {
        return costs->ranks >= 2;
    }
    if (strncmp(line, "shape ", 6) == 0) {
        return take_shape(costs, line);
    }
    if (shape == NULL) {
        return false;
    }
    if (sscanf(line, "host %lf", &shape->host_ns) == 1) {
        return is_time(shape->host_ns);
    }
    return take_node(shape, line) || take_measured(shape, line);
}

void costs_read(const char *path, struct costs *costs)
{
    FILE *file = fopen(path, "r");
    char line[256];
    int number = 0;

    memset(costs, 0, sizeof(*costs));
    if (file == NULL) {
        bench_die("cannot read %s; bench/overlap makes it with --costs", path);
    }
    while (fgets(line, (int)sizeof(line), file) != NULL) {
        number++;
        if (!take_line(costs, line)) {
            bench_die("%s: line %d is not one of bench/overlap's: %s", path,
                      number, line);
        }
    }
    fclose(file);
    if (costs->n == 0 || costs->token_bytes == 0) {
        bench_die("%s has no shape, or no tokens; bench/overlap writes both",
                  path);
    }
}
