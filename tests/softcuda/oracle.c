/* Random programs: the emulator reports a race exactly when a plain model of
 * the order finds one, and without a race every seed gives the same bytes. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/softcuda/controls.h"

#include <stdlib.h>
#include <string.h>

enum {
    PROGRAMS = 3000,
    STREAMS = 6, /* the legacy stream, blocking, per-thread, three others */
    EVENTS = 4,
    CELLS = 8,
    EXECS = 2,
    MAX_NODES = 6,
    MAX_ACCESSES = 64
};

/* The model: sets of accesses as bits. */
struct access {
    uint64_t before;
    uint32_t cell;
    bool write;
};

struct step {
    uint32_t to, from; /* cells; a store has from == to */
    uint32_t value;
};

struct graph_model {
    CUgraphExec exec;
    uint32_t n;
    struct step steps[MAX_NODES];
    uint64_t after[MAX_NODES]; /* nodes of the graph that come before */
    uint64_t last;             /* accesses up to its last launch */
};

static struct model {
    struct access accesses[MAX_ACCESSES];
    uint32_t n;
    uint64_t bits[STREAMS], event[EVENTS], host;
    uint32_t cells[CELLS];
    bool recorded[EVENTS];
} model;

static CUstream streams[STREAMS];
static CUevent events[EVENTS], inner[2];
static struct graph_model graphs[EXECS];
static uint64_t random_state;

static uint32_t pick(uint32_t n)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 33) % n;
}

static bool is_blocking(uint32_t s)
{
    return s == 1 || s == 2;
}

static void place(uint32_t s)
{
    if (s == 0) {
        model.bits[0] |= model.bits[1] | model.bits[2];
    } else if (is_blocking(s)) {
        model.bits[s] |= model.bits[0];
    }
    model.bits[s] |= model.host;
}

static uint64_t note(uint64_t before, uint32_t cell, bool write)
{
    model.accesses[model.n] = (struct access){ before, cell, write };
    return (uint64_t)1 << model.n++;
}

/* What a step does, in the model.  Returns its accesses. */
static uint64_t model_step(const struct step *step, uint64_t before)
{
    uint64_t bits = 0;

    if (step->from != step->to) {
        bits |= note(before, step->from, false);
        bits |= note(before, step->to, false);
        model.cells[step->to] += model.cells[step->from];
    } else {
        model.cells[step->to] = step->value;
    }
    return bits | note(before | bits, step->to, true);
}

static void issue(const struct step *step, CUstream stream)
{
    if (step->from != step->to) {
        launch_add(stream, word(step->to), word(step->from));
    } else {
        launch_store(stream, word(step->to), step->value);
    }
}

static struct step random_step(void)
{
    uint32_t to = pick(CELLS);

    return (struct step){ to, pick(2) ? to : pick(CELLS), pick(1000) };
}

/* A graph over two streams that fork and join by chance. */
static void make_graph(struct graph_model *g)
{
    CUstream on[2] = { streams[3], streams[4] };
    uint64_t bits[2] = { 0, 0 };
    bool in = false;
    CUgraph graph = NULL;

    memset(g, 0, sizeof(*g));
    drv.cuStreamBeginCapture(on[0], CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
    for (uint32_t i = 0; i < 10 && g->n < MAX_NODES; i++) {
        uint32_t which = in ? pick(2) : 0;

        switch (pick(3)) {
        case 0: /* one stream comes after the other */
            drv.cuEventRecord(inner[which], on[which]);
            drv.cuStreamWaitEvent(on[!which], inner[which], 0);
            bits[!which] |= bits[which];
            in = true;
            break;
        default:
            g->steps[g->n] = random_step();
            issue(&g->steps[g->n], on[which]);
            g->after[g->n] = bits[which];
            bits[which] |= (uint64_t)1 << g->n++;
        }
    }
    if (in) {
        drv.cuEventRecord(inner[1], on[1]);
        drv.cuStreamWaitEvent(on[0], inner[1], 0);
    }
    drv.cuStreamEndCapture(on[0], &graph);
    drv.cuGraphInstantiateWithFlags(&g->exec, graph, 0);
    drv.cuGraphDestroy(graph);
}

static void launch(struct graph_model *g, uint32_t s)
{
    uint64_t node[MAX_NODES];

    place(s);
    model.bits[s] |= g->last;
    drv.cuGraphLaunch(g->exec, streams[s]);
    for (uint32_t i = 0; i < g->n; i++) {
        uint64_t before = model.bits[s];

        for (uint32_t j = 0; j < i; j++) {
            before |= g->after[i] >> j & 1 ? node[j] : 0;
        }
        node[i] = model_step(&g->steps[i], before);
    }
    for (uint32_t i = 0; i < g->n; i++) {
        model.bits[s] |= node[i];
    }
    g->last = model.bits[s];
}

static void one_call(void)
{
    uint32_t s = pick(STREAMS), e = pick(EVENTS);
    struct step step;

    if (model.n + 3 * MAX_NODES > MAX_ACCESSES) {
        return;
    }
    switch (pick(16)) {
    case 0:
    case 1:
    case 2:
        place(s);
        drv.cuEventRecord(events[e], streams[s]);
        model.event[e] = model.bits[s];
        model.recorded[e] = true;
        break;
    case 3:
    case 4:
    case 5:
    case 6:
    case 10:
    case 11:
        drv.cuStreamWaitEvent(streams[s], events[e], 0);
        if (model.recorded[e]) { /* else it is not even an operation */
            model.bits[s] |= model.event[e];
            place(s);
        }
        break;
    case 7:
        if (s == 0) { /* the others do not look beyond their own work */
            place(s);
        }
        drv.cuStreamSynchronize(streams[s]);
        model.host |= model.bits[s];
        break;
    case 8:
        drv.cuEventSynchronize(events[e]);
        model.host |= model.event[e];
        break;
    case 9:
        launch(&graphs[pick(EXECS)], s);
        break;
    default:
        step = random_step();
        place(s);
        issue(&step, streams[s]);
        model.bits[s] |= model_step(&step, model.bits[s]);
    }
}

static bool model_races(void)
{
    for (uint32_t i = 0; i < model.n; i++) {
        const struct access *late = &model.accesses[i];

        for (uint32_t j = 0; j < i; j++) {
            const struct access *early = &model.accesses[j];

            if (early->cell == late->cell && (early->write || late->write) &&
                (late->before >> j & 1) == 0) {
                return true;
            }
        }
    }
    return false;
}

static void start(uint64_t seed)
{
    random_state = seed * 0x9E3779B97F4A7C15u + 1;
    configure("SEED=%llu", (unsigned long long)seed % 97);
    memset(&model, 0, sizeof(model));
    for (uint32_t i = 0; i < CELLS; i++) {
        launch_store(side, word(i), i);
        model.cells[i] = i;
    }
    drv.cuCtxSynchronize();
    for (uint32_t i = 0; i < EVENTS; i++) {
        events[i] = new_event(CU_EVENT_DISABLE_TIMING);
    }
    for (uint32_t i = 0; i < EXECS; i++) {
        make_graph(&graphs[i]);
    }
}

static void finish(void)
{
    drv.cuCtxSynchronize();
    for (uint32_t i = 0; i < EVENTS; i++) {
        drv.cuEventDestroy(events[i]);
    }
    for (uint32_t i = 0; i < EXECS; i++) {
        drv.cuGraphExecDestroy(graphs[i].exec);
    }
}

static bool same_memory(void)
{
    uint32_t cells[CELLS];

    drv.cuMemcpyDtoH(cells, words, sizeof(cells));
    return memcmp(cells, model.cells, sizeof(cells)) == 0;
}

int main(void)
{
    int racy = 0, missed = 0, invented = 0, wrong = 0;
    int status;

    if (!controls_open(&status)) {
        return status;
    }
    streams[0] = NULL;
    streams[1] = blocking;
    streams[2] = CU_STREAM_PER_THREAD;
    streams[3] = side;
    streams[4] = other;
    streams[5] = new_stream(CU_STREAM_NON_BLOCKING);
    inner[0] = new_event(CU_EVENT_DISABLE_TIMING);
    inner[1] = new_event(CU_EVENT_DISABLE_TIMING);

    for (uint64_t seed = 1; seed <= PROGRAMS; seed++) {
        uint32_t calls;
        bool expected;

        start(seed);
        calls = 4 + pick(24);
        for (uint32_t i = 0; i < calls; i++) {
            one_call();
        }
        finish();
        expected = model_races();
        racy += expected;
        missed += expected && races() == 0;
        invented += !expected && races() != 0;
        wrong += !expected && !same_memory();
    }
    diag("%d of %d programs race", racy, (int)PROGRAMS);
    ok(racy > PROGRAMS / 10 && racy < PROGRAMS * 9 / 10,
       "random programs race, some of them");
    is_int(missed, 0, "no race of a random program is missed");
    is_int(invented, 0, "no race is reported where there is none");
    is_int(wrong, 0, "a program without races ends with the same bytes");

    configure("SEED=0");
    drv.cuStreamDestroy(streams[5]);
    drv.cuEventDestroy(inner[0]);
    drv.cuEventDestroy(inner[1]);
    contract_close();
    return done_testing();
}
