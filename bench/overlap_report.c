/*
 * overlap_report.c - what was measured of a shape, as JSON and as costs.
 *
 * Each ratio is the median of the ratios of all rounds.  The runs of a round
 * are close together, so a clock that drifts changes both in the same way.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "bench/overlap.h"

#include <stdlib.h>
#include <string.h>

static const char *const direction_names[] = { "forward", "backward",
                                               "wgrad" };
static const char *const stage_names[] = { "before", "dispatch", "experts",
                                           "combine", "after" };

const char *way_name(enum overlap_way way)
{
    static const char *const names[] = { "compute", "communication", "off",
                                         "fixed", "auto" };

    return names[way];
}

static const struct mode *find(const struct measured *m, enum overlap_way way,
                               bool graphs)
{
    for (int i = 0; i < MODES; i++) {
        if (m->modes[i].way == way &&
            (m->modes[i].graphs == graphs || way == WAY_COMM)) {
            return &m->modes[i];
        }
    }
    return NULL;
}

static struct spread spread_of(const struct measured *m, const double *values)
{
    double copy[1024];
    const int n = m->rounds < 1024 ? m->rounds : 1024;

    memcpy(copy, values, (size_t)n * sizeof(copy[0]));
    return bench_spread(copy, (size_t)n);
}

/* The median over all rounds of (a - less) / b; `less` may be NULL for 0. */
static double ratio_of(const struct measured *m, const double *a,
                       const double *less, const double *b)
{
    double *ratios = calloc((size_t)m->rounds, sizeof(*ratios)), ratio;

    if (ratios == NULL) {
        bench_die("no memory");
    }
    for (int i = 0; i < m->rounds; i++) {
        ratios[i] = (a[i] - (less != NULL ? less[i] : 0)) / b[i];
    }
    ratio = bench_spread(ratios, (size_t)m->rounds).median;
    free(ratios);
    return ratio;
}

/* Compute or communication, whichever takes longer. */
static const double *longer(const struct measured *m, bool graphs)
{
    const struct mode *compute = find(m, WAY_COMPUTE, graphs);
    const struct mode *comm = find(m, WAY_COMM, graphs);

    return spread_of(m, compute->pair).median > spread_of(m, comm->pair).median
               ? compute->pair
               : comm->pair;
}

static bool overlaps(const struct mode *mode)
{
    return mode->way == WAY_FIXED || mode->way == WAY_AUTO;
}

static void report_mode(FILE *file, const struct measured *m,
                        const struct mode *mode, bool first)
{
    const double *compute = find(m, WAY_COMPUTE, mode->graphs)->pair;
    const double *comm = find(m, WAY_COMM, mode->graphs)->pair;

    fprintf(file, "%s    {\"way\": \"%s\", \"graphs\": %s, ",
            first ? "" : ",\n", way_name(mode->way),
            mode->graphs ? "true" : "false");
    bench_json_spread(file, "pair_ns", spread_of(m, mode->pair));
    bench_json_spread(file, "host_ns", spread_of(m, mode->host));
    bench_json_spread(file, "step_ns", spread_of(m, mode->step));
    if (overlaps(mode)) {
        fprintf(file,
                "\"exposed\": %.4f, \"over_longer\": %.4f, "
                "\"step_over_compute\": %.4f, ",
                ratio_of(m, mode->pair, compute, comm),
                ratio_of(m, mode->pair, NULL, longer(m, mode->graphs)),
                ratio_of(m, mode->step, NULL,
                         find(m, WAY_COMPUTE, mode->graphs)->step));
    }
    if (mode->way == WAY_AUTO) {
        fprintf(file,
                "\"predicted_ns\": %.0f, \"predicted_fixed_ns\": %.0f, "
                "\"order\": \"%s\", ",
                mode->stats.predicted_ns, mode->stats.predicted_fixed_ns,
                mode->stats.order == GH_OVERLAP_AUTO ? "auto" : "fixed");
    }
    fprintf(file, "\"host_layer_pair_ns\": %.0f}",
            spread_of(m, mode->host).median / m->layers);
}

/* Writes [direction, stage, layer, begin, end] of each node. */
static void report_timeline(FILE *file, const char *name,
                            const struct experts_timeline *t)
{
    fprintf(file, ",\n  \"timeline_%s\": [", name);
    for (uint32_t i = 0; i < t->n; i++) {
        const struct experts_span *span = &t->spans[i];

        fprintf(file, "%s[\"%s\", \"%s\", %u, %.0f, %.0f]",
                i > 0 ? ", " : "", direction_names[span->node.direction],
                stage_names[span->node.stage], span->node.layer, span->begin,
                span->end);
    }
    fprintf(file, "]");
}

void report_shape(FILE *file, const struct measured *m, bool first)
{
    const double *compute = find(m, WAY_COMPUTE, true)->pair;

    fprintf(file,
            "%s{\"name\": \"%s\", \"by\": \"%s\", \"uneven\": %s, "
            "\"aim\": %.2f, \"before\": %d, "
            "\"experts\": %d, \"layers\": %u, \"microbatches\": %u, "
            "\"exchange_bytes\": %llu, \"comm_over_compute\": %.3f, "
            "\"bitwise_equal\": %s,\n",
            first ? "" : ",\n", m->shape->name, m->by,
            m->shape->uneven ? "true" : "false", m->shape->ratio,
            m->shape->before, m->shape->experts, m->layers, m->microbatches,
            (unsigned long long)m->exchange_bytes,
            ratio_of(m, find(m, WAY_COMM, false)->pair, NULL, compute),
            m->equal ? "true" : "false");
    for (int graphs = 0; graphs < 2; graphs++) {
        fprintf(file, "  \"auto_over_fixed%s\": %.4f,\n",
                graphs != 0 ? "_graphs" : "",
                ratio_of(m, find(m, WAY_AUTO, graphs != 0)->pair, NULL,
                         find(m, WAY_FIXED, graphs != 0)->pair));
    }
    for (enum overlap_way way = WAY_COMPUTE; way < WAYS; way++) {
        if (way != WAY_COMM) {
            fprintf(file,
                    "  \"graphs_over_eager_%s\": %.4f, "
                    "\"graphs_over_eager_host_%s\": %.4f,\n",
                    way_name(way),
                    ratio_of(m, find(m, way, true)->pair, NULL,
                             find(m, way, false)->pair),
                    way_name(way),
                    ratio_of(m, find(m, way, true)->host, NULL,
                             find(m, way, false)->host));
        }
    }
    fprintf(file, "  \"nodes_ns\": {");
    for (int i = 0; i < EXPERTS_DIRECTIONS * STAGES; i++) {
        if (m->nodes[i / STAGES][i % STAGES] > 0) {
            fprintf(file, "%s\"%s %s\": %.0f", i > 0 ? ", " : "",
                    direction_names[i / STAGES], stage_names[i % STAGES],
                    m->nodes[i / STAGES][i % STAGES]);
        }
    }
    fprintf(file, "},\n  \"modes\": [\n");
    for (int i = 0; i < MODES; i++) {
        report_mode(file, m, &m->modes[i], i == 0);
    }
    fprintf(file, "  ]");
    report_timeline(file, "fixed", &m->fixed);
    report_timeline(file, "auto", &m->found);
    fprintf(file, "}");
}

void report_costs(FILE *file, const struct measured *m)
{
    fprintf(file, "shape %u %llu %.2f %s\n", m->layers,
            (unsigned long long)m->exchange_bytes, m->shape->ratio,
            m->shape->name);
    for (int i = 0; i < EXPERTS_DIRECTIONS * STAGES; i++) {
        if (m->nodes[i / STAGES][i % STAGES] > 0) {
            fprintf(file, "node %s %s %.0f\n", direction_names[i / STAGES],
                    stage_names[i % STAGES], m->nodes[i / STAGES][i % STAGES]);
        }
    }
    fprintf(file, "host %.0f\n",
            spread_of(m, find(m, WAY_FIXED, true)->host).median / m->layers);
    for (enum overlap_way way = WAY_OFF; way < WAYS; way++) {
        fprintf(file, "measured %s %.0f\n", way_name(way),
                spread_of(m, find(m, way, true)->pair).median);
    }
}
