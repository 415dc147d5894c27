/*
 * Rows whose number only the device knows go into pages and come out as they
 * were, pages come back in any order, what finds no pages is counted and writes
 * nothing: on the CPU, and on the driver that GRAPHHOOKS_TEST_DRIVER names,
 * also from a graph.  The software device reports who reads a page that was
 * given back.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "kernels/kernels.h"
#include "tap/tap.h"
#include "tests/unit/kernels/gpu.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One arena: what the kernels keep, the pool, and the rows of the host. */
#define PAGES 24u
#define PAGE_ROWS 8u
#define ROWS_MOST 61u /* the last page of a full record is not full */
#define PARTS 3u
#define RECORDS 6u
#define RECORD_BYTES 256u
#define STATE UINT64_C(0)
#define COUNT UINT64_C(512)
#define RECORD UINT64_C(1024)
#define POOL UINT64_C(4096)
#define ROWS UINT64_C(262144)
#define PAGE_BYTES UINT64_C(4608) /* more than PAGE_ROWS rows need */
#define PART_BYTES UINT64_C(65536)
#define ARENA (ROWS + RECORDS * PARTS * PART_BYTES)

static const uint64_t row_bytes[PARTS] = { 36, 7, 512 };

static unsigned char *before, *after;

/* Where the arena is, and what launches. */
struct runner {
    const char *name;
    uint64_t base;
    void (*load)(void);  /* `before` to the arena */
    void (*store)(void); /* the arena to `after` */
    void (*set)(uint64_t at, int32_t value);
    void (*pages)(const struct gh_stash_pages *pages);
    void (*rows)(struct gh_stash_rows *rows);
};

/* ---- the reference ------------------------------------------------------- */

static unsigned char *arena;

static void ref_load(void)
{
    memcpy(arena, before, ARENA);
}

static void ref_store(void)
{
    memcpy(after, arena, ARENA);
}

static void ref_set(uint64_t at, int32_t value)
{
    memcpy(arena + at, &value, sizeof(value));
}

static void ref_rows(struct gh_stash_rows *rows)
{
    gh_stash_rows_ref(rows);
}

/* ---- the driver ---------------------------------------------------------- */

static CUfunction pages_kernel, rows_kernel;

static bool open_device(char *reason, size_t bytes)
{
    return gpu_open(ARENA, reason, bytes) &&
           gpu_function(&pages_kernel, GH_KERNEL_STASH_PAGES) &&
           gpu_function(&rows_kernel, GH_KERNEL_STASH_ROWS);
}

static void gpu_load(void)
{
    CALL(cuMemcpyHtoDAsync, (gpu.arena, before, ARENA, gpu.stream));
    CALL(cuStreamSynchronize, (gpu.stream));
}

static void gpu_store(void)
{
    CALL(cuStreamSynchronize, (gpu.stream));
    CALL(cuMemcpyDtoH, (after, gpu.arena, ARENA));
}

static void gpu_set(uint64_t at, int32_t value)
{
    CALL(cuMemcpyHtoDAsync,
         (gpu.arena + at, &value, sizeof(value), gpu.stream));
    CALL(cuStreamSynchronize, (gpu.stream));
}

static void gpu_pages(const struct gh_stash_pages *pages)
{
    struct gh_stash_pages copy = *pages;
    void *params[] = { &copy };

    CALL(cuLaunchKernel, (pages_kernel, 1, 1, 1, GH_KERNEL_THREADS, 1, 1, 0,
                          gpu.stream, params, NULL));
}

static void gpu_rows(struct gh_stash_rows *rows)
{
    void *params[] = { rows };
    uint32_t x, y;

    gh_stash_plan(rows, (ROWS_MOST + PAGE_ROWS - 1) / PAGE_ROWS, &x, &y);
    CALL(cuLaunchKernel, (rows_kernel, x, y, 1, GH_KERNEL_THREADS, 1, 1, 0,
                          gpu.stream, params, NULL));
}

/* ---- what a host does ---------------------------------------------------- */

static uint64_t rows_at(uint32_t record, uint32_t part)
{
    return ROWS + (record * PARTS + part) * PART_BYTES;
}

static struct gh_stash_pages pages_of(const struct runner *on, uint32_t record,
                                      uint32_t max_rows)
{
    return (struct gh_stash_pages){ .state = on->base + STATE,
                                    .record = on->base + RECORD +
                                              record * RECORD_BYTES,
                                    .count = on->base + COUNT,
                                    .pool = on->base + POOL,
                                    .page_bytes = PAGE_BYTES,
                                    .max_rows = max_rows,
                                    .page_rows = PAGE_ROWS };
}

static struct gh_stash_rows rows_of(const struct runner *on, uint32_t record,
                                    uint32_t out, uint32_t max_rows)
{
    struct gh_stash_rows rows = { .record =
                                      on->base + RECORD + record * RECORD_BYTES,
                                  .pool = on->base + POOL,
                                  .page_bytes = PAGE_BYTES,
                                  .page_rows = PAGE_ROWS,
                                  .max_rows = max_rows,
                                  .out = out,
                                  .n_parts = PARTS };

    for (uint32_t k = 0; k < PARTS; k++) {
        rows.parts[k] =
            (struct gh_stash_part){ on->base + rows_at(record, k) + k,
                                    row_bytes[k] };
    }
    return rows;
}

static void push(const struct runner *on, uint32_t record)
{
    const struct gh_stash_pages take = pages_of(on, record, ROWS_MOST);
    struct gh_stash_rows in = rows_of(on, record, 0, 0);

    on->pages(&take);
    on->rows(&in);
}

static void pop(const struct runner *on, uint32_t record, uint32_t clears)
{
    const struct gh_stash_pages give = pages_of(on, record, 0);
    struct gh_stash_rows out = rows_of(on, record, 1, clears);

    on->rows(&out);
    on->pages(&give);
}

/* An arena of noise with a state of all pages free and empty records. */
static void begin(const struct runner *on, uint32_t n_pages)
{
    struct gh_stash_state state = { .n_pages = n_pages, .n_free = n_pages };

    draw_bytes(before, ARENA);
    memcpy(before + STATE, &state, sizeof(state));
    for (uint32_t i = 0; i < n_pages; i++) {
        memcpy(before + STATE + sizeof(state) + i * sizeof(i), &i, sizeof(i));
    }
    memset(before + RECORD, 0, RECORDS * RECORD_BYTES);
    on->load();
}

static struct gh_stash_state state_after(const struct runner *on)
{
    struct gh_stash_state state;

    on->store();
    memcpy(&state, after + STATE, sizeof(state));
    return state;
}

/* Whether every page is free, once. */
static bool all_are_free(const struct gh_stash_state *state)
{
    bool seen[PAGES] = { false };

    for (uint32_t i = 0; i < state->n_free; i++) {
        uint32_t page;

        memcpy(&page, after + STATE + sizeof(*state) + i * sizeof(page),
               sizeof(page));
        if (page >= PAGES || seen[page]) {
            return false;
        }
        seen[page] = true;
    }
    return state->n_free == state->n_pages && state->missing == 0;
}

/* Overwrites the host's rows, as the next layer would. */
static void spoil(const struct runner *on, uint32_t record)
{
    on->store();
    memcpy(before, after, ARENA);
    for (uint32_t k = 0; k < PARTS; k++) {
        memset(before + rows_at(record, k), 0xA5, PART_BYTES);
    }
    on->load();
}

/* Whether the rows are those of `from`, and the bytes around them are those
 * that spoil() has left, or 0 up to row `clears`. */
static bool came_back(const unsigned char *from, uint32_t record, uint32_t n,
                      uint32_t clears)
{
    for (uint32_t k = 0; k < PARTS; k++) {
        const uint64_t at = rows_at(record, k) + k;
        const uint64_t bytes = n * row_bytes[k];
        const uint64_t zero = clears > n ? clears * row_bytes[k] : bytes;

        if (memcmp(after + at, from + at, bytes) != 0) {
            return false;
        }
        for (uint64_t i = 0; i < PART_BYTES; i++) {
            const uint64_t in = i - k;
            const bool is_row = i >= k && in < zero;

            if ((!is_row && after[at - k + i] != 0xA5) ||
                (is_row && in >= bytes && after[at - k + i] != 0)) {
                return false;
            }
        }
    }
    return true;
}

/* ---- facts --------------------------------------------------------------- */

static void test_rows_come_back(const struct runner *on)
{
    unsigned char *was = malloc(ARENA);
    int wrong = 0, lost = 0;

    for (uint32_t n = 0; n <= ROWS_MOST; n++) {
        const uint32_t clears = n % 2 == 0 ? 0 : ROWS_MOST;
        struct gh_stash_state state;

        begin(on, PAGES);
        memcpy(was, before, ARENA);
        on->set(COUNT, (int32_t)n);
        push(on, 1);
        spoil(on, 1);
        pop(on, 1, clears);
        state = state_after(on);
        wrong += !came_back(was, 1, n, clears);
        lost += !all_are_free(&state) || state.refused != 0 ||
                state.most != (n + PAGE_ROWS - 1) / PAGE_ROWS;
    }
    free(was);
    is_int(wrong, 0,
           "%s: 0 to %u rows of three parts come back, and the rest "
           "stays or becomes 0",
           on->name, ROWS_MOST);
    is_int(lost, 0, "%s: all pages are free then, and the most is counted",
           on->name);
}

/* Records are popped in another order than they were pushed. */
static void test_any_order(const struct runner *on)
{
    unsigned char *was = malloc(ARENA);
    struct gh_stash_state state;
    uint32_t n[RECORDS];
    int wrong = 0, lost = 0;

    for (int trial = 0; trial < 40; trial++) {
        const uint32_t first = draw(RECORDS), step = draw(2) ? 1 : 5;

        begin(on, PAGES);
        memcpy(was, before, ARENA);
        for (uint32_t i = 0; i < RECORDS; i++) {
            n[i] = draw(4 * PAGE_ROWS + 1);
            on->set(COUNT, (int32_t)n[i]);
            push(on, i);
        }
        for (uint32_t i = 0; i < RECORDS; i++) {
            const uint32_t record = (first + i * step) % RECORDS;

            spoil(on, record);
            pop(on, record, 0);
            on->store();
            wrong += !came_back(was, record, n[record], 0);
        }
        state = state_after(on);
        lost += !all_are_free(&state) || state.refused != 0;
    }
    free(was);
    is_int(wrong, 0, "%s: six records come back in any order", on->name);
    is_int(lost, 0, "%s: and so do their pages", on->name);
}

static void test_overflow(const struct runner *on)
{
    struct gh_stash_state state;
    unsigned char *was = malloc(ARENA);

    begin(on, 10);
    memcpy(was, before, ARENA);
    on->set(COUNT, 60);
    push(on, 0); /* 8 of 10 pages */
    on->set(COUNT, 17);
    push(on, 1); /* 3 more */
    push(on, 2);
    state = state_after(on);
    is_int(state.refused, 2, "%s: who finds too few pages is counted",
           on->name);
    ok(state.most == 14 && state.missing == 6 && state.n_free == 2,
       "%s: and so is how many pages it would have needed", on->name);
    ok(memcmp(after + POOL + 10 * PAGE_BYTES, was + POOL + 10 * PAGE_BYTES,
              ARENA - POOL - 10 * PAGE_BYTES) == 0,
       "%s: nothing is written beyond the pages", on->name);
    on->set(COUNT, 16);
    push(on, 3);
    state = state_after(on);
    ok(state.refused == 2 && state.n_free == 0,
       "%s: a smaller push still gets the rest", on->name);
    spoil(on, 1);
    pop(on, 1, ROWS_MOST);
    state = state_after(on);
    ok(came_back(was, 1, 0, ROWS_MOST) && state.missing == 3,
       "%s: what was refused comes back as zeros, and is not missing any more",
       on->name);
    pop(on, 3, 0);
    pop(on, 3, 0);
    pop(on, 0, 0);
    pop(on, 2, 0);
    state = state_after(on);
    ok(all_are_free(&state), "%s: no page leaks, nor comes back twice",
       on->name);
    free(was);
}

static void test_odd_counts(const struct runner *on)
{
    struct gh_stash_state state;

    begin(on, PAGES);
    on->set(COUNT, (int32_t)ROWS_MOST + 1);
    push(on, 0);
    on->set(COUNT, INT32_MAX);
    push(on, 1);
    state = state_after(on);
    ok(state.refused == 2 && state.n_free == PAGES,
       "%s: more rows than were said are refused", on->name);
    on->set(COUNT, -3);
    push(on, 0);
    state = state_after(on);
    ok(state.refused == 2 && state.n_free == PAGES,
       "%s: a negative number is none", on->name);
    on->set(COUNT, 40);
    push(on, 0);
    push(on, 0);
    state = state_after(on);
    is_int(state.n_free, PAGES - 5,
           "%s: a record that is pushed again gives its pages back", on->name);
}

/* ---- on the driver alone ------------------------------------------------- */

static void test_in_a_graph(const struct runner *on)
{
    unsigned char *was = malloc(ARENA);
    CUgraph graph;
    CUgraphExec pushes, pops;
    struct gh_stash_state state = { 0 };
    int wrong = 0;

    CALL(cuStreamBeginCapture, (gpu.stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    push(on, 0);
    CALL(cuStreamEndCapture, (gpu.stream, &graph));
    CALL(cuGraphInstantiateWithFlags, (&pushes, graph, 0));
    CALL(cuGraphDestroy, (graph));
    CALL(cuStreamBeginCapture, (gpu.stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    pop(on, 0, ROWS_MOST);
    CALL(cuStreamEndCapture, (gpu.stream, &graph));
    CALL(cuGraphInstantiateWithFlags, (&pops, graph, 0));
    CALL(cuGraphDestroy, (graph));
    for (uint32_t n = 0; n <= ROWS_MOST; n += 6) {
        begin(on, PAGES);
        memcpy(was, before, ARENA);
        on->set(COUNT, (int32_t)n);
        CALL(cuGraphLaunch, (pushes, gpu.stream));
        spoil(on, 0);
        CALL(cuGraphLaunch, (pops, gpu.stream));
        state = state_after(on);
        wrong += !came_back(was, 0, n, ROWS_MOST) || !all_are_free(&state);
    }
    is_int(wrong, 0, "one graph pushes any number of rows, and one pops them");
    CALL(cuGraphExecDestroy, (pushes));
    CALL(cuGraphExecDestroy, (pops));
    free(was);
}

static uint64_t reports(const char *name)
{
    softcuda_races_fn *count =
        (softcuda_races_fn *)dlsym(gpu.drv.library, name);
    const char *text;

    CALL(cuStreamSynchronize, (gpu.stream));
    return count(0, &text);
}

static void test_reports(const struct runner *on)
{
    softcuda_configure_fn *configure =
        (softcuda_configure_fn *)dlsym(gpu.drv.library, "softcuda_configure");
    struct gh_stash_rows out = rows_of(on, 0, 1, 0);
    unsigned char stale[RECORD_BYTES];
    CUstream beside;

    configure("SEED=0 RACES=1 UNWRITTEN=1");
    begin(on, PAGES);
    on->set(COUNT, 20);
    push(on, 0);
    on->store();
    memcpy(stale, after + RECORD, sizeof(stale));
    pop(on, 0, 0);
    is_int(reports("softcuda_unwritten"), 0,
           "a push and a pop read what they "
           "may");
    CALL(cuMemcpyHtoDAsync,
         (gpu.arena + RECORD, stale, sizeof(stale), gpu.stream));
    on->rows(&out);
    ok(reports("softcuda_unwritten") != 0,
       "who reads a page that was given back is reported");

    CALL(cuStreamCreate, (&beside, CU_STREAM_NON_BLOCKING));
    configure("SEED=0 RACES=1 UNWRITTEN=1");
    begin(on, PAGES);
    on->set(COUNT, 20);
    push(on, 0);
    CALL(cuStreamSynchronize, (gpu.stream));
    is_int(reports("softcuda_races"), 0, "on one stream nothing is a race");
    push(on, 1);
    CALL(cuMemcpyDtoDAsync,
         (gpu.arena + ROWS, gpu.arena + POOL + (PAGES - 4) * PAGE_BYTES, 4,
          beside));
    is_int(reports("softcuda_races"), 1,
           "who reads a page while it is filled is one");
    configure("SEED=0 RACES=1 UNWRITTEN=1");
    pop(on, 1, 0);
    CALL(cuMemcpyHtoDAsync, (gpu.arena + COUNT, stale, 4, beside));
    CALL(cuMemsetD8Async, (gpu.arena + STATE, 0, 4, beside));
    ok(reports("softcuda_races") != 0, "so is who writes the state");
    CALL(cuStreamDestroy, (beside));
}

static void test_the_grid(void)
{
    struct gh_stash_rows rows = { .page_rows = 64, .n_parts = 2 };
    uint32_t x, y;

    rows.parts[0].row_bytes = 14336;
    rows.parts[1].row_bytes = 4;
    gh_stash_plan(&rows, 128, &x, &y);
    ok(x == 128 && y == 8 && rows.slice * y >= 64 * 14336 &&
           rows.slice % 128 == 0,
       "few pages are copied by several blocks each");
    gh_stash_plan(&rows, 5000, &x, &y);
    ok(x == 1024 && y == 1 && rows.slice >= 64 * 14336,
       "many pages share 1024 blocks");
    rows.n_parts = 0;
    gh_stash_plan(&rows, 0, &x, &y);
    ok(x == 1 && y == 1, "nothing is one block");
}

static void test_on(const struct runner *on)
{
    test_rows_come_back(on);
    test_any_order(on);
    test_overflow(on);
    test_odd_counts(on);
}

int main(void)
{
    struct runner ref = { "reference", 0,       ref_load,
                          ref_store,   ref_set, gh_stash_pages_ref,
                          ref_rows };
    struct runner device = { "device", 0,         gpu_load, gpu_store,
                             gpu_set,  gpu_pages, gpu_rows };
    char reason[512];

    before = malloc(ARENA);
    after = malloc(ARENA);
    arena = malloc(ARENA);
    if (before == NULL || after == NULL || arena == NULL) {
        return skip_all("no memory for three arenas");
    }
    ref.base = (uintptr_t)arena;
    test_the_grid();
    test_on(&ref);
    if (open_device(reason, sizeof(reason))) {
        device.name = gpu.soft ? "software device" : "GPU";
        device.base = gpu.arena;
        test_on(&device);
        test_in_a_graph(&device);
        if (gpu.soft) {
            test_reports(&device);
        } else {
            skip(5, "only the software device reports");
        }
        gpu_close();
    } else {
        skip(19, "%s", reason);
    }
    free(before);
    free(after);
    free(arena);
    return done_testing();
}
