/*
 * Spans tell when work began and ended, oldest first, also over long times;
 * what has no room or fails is missing, and nothing else.
 * SPDX-License-Identifier: Apache-2.0
 */
#include "device/spans.h"
#include "softcuda/softcuda.h"
#include "tap/tap.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct gh_device *dev;
static softcuda_count_fn *count;
static softcuda_configure_fn *configure;
static softcuda_costs_fn *costs;
static softcuda_clock_fn *clock_now;
static void *stream, *memory, *host;

static struct told {
    uint32_t layer;
    uint64_t start, end;
} told[64];
static uint32_t n_told;

static void tell(void *user, const struct gh_span_what *what, void *of,
                 uint64_t start_ns, uint64_t end_ns)
{
    ok(user == &n_told && of == stream, "a span is told with its stream");
    told[n_told++ % 64] = (struct told){ what->layer, start_ns, end_ns };
}

static uint64_t collect(struct gh_spans *spans, bool wait)
{
    n_told = 0;
    return gh_spans_collect(spans, wait, tell, &n_told);
}

/* One copy out; its span. */
static struct gh_span *work(struct gh_spans *spans, uint32_t layer)
{
    const struct gh_span_what what = { .work = GH_WORK_OUT, .layer = layer };
    struct gh_span *span = gh_spans_begin(spans, &what, stream);

    gh_device_copy_out(dev, host, memory, 64, stream, NULL);
    gh_spans_end(spans, span);
    return span;
}

static struct gh_spans *make(uint32_t n, const char *settings,
                             const char *lines)
{
    struct gh_spans *spans = NULL;

    configure(settings);
    costs(lines);
    if (gh_spans_create(dev, n, &spans, NULL) != GH_OK) {
        ok(false, "spans are made");
    }
    return spans;
}

#define FREE "call cuMemcpyDtoHAsync 0\ncall cuEventRecord 0\n"

static void test_times(void)
{
    struct gh_spans *spans = make(4, "", FREE "copy out 3000000\n");

    work(spans, 5);
    work(spans, 6);
    is_int(collect(spans, false), 0, "no span is lost");
    is_int(n_told, 2, "both are told");
    ok(told[0].layer == 5 && told[1].layer == 6, "in their order");
    ok(told[0].end - told[0].start == 3000000 &&
           told[1].start - told[0].end < 1000 &&
           told[1].end - told[1].start == 3000000,
       "each with its time: %llu..%llu, %llu..%llu",
       (unsigned long long)told[0].start, (unsigned long long)told[0].end,
       (unsigned long long)told[1].start, (unsigned long long)told[1].end);
    collect(spans, true);
    is_int(n_told, 0, "once");
    gh_spans_destroy(spans);
}

static void test_room(void)
{
    struct gh_spans *spans = make(3, "", FREE);

    for (uint32_t i = 0; i < 5; i++) {
        ok((work(spans, i) != NULL) == (i < 3), "span %u has %s", i,
           i < 3 ? "room" : "none");
    }
    is_int(collect(spans, true), 2, "those without room are counted");
    is_int(n_told, 3, "and the others told");
    is_int(collect(spans, true), 0, "once");
    for (uint32_t i = 0; i < 4; i++) {
        work(spans, 10 + i);
        if (i == 1) {
            collect(spans, true);
        }
    }
    collect(spans, true);
    ok(n_told == 2 && told[0].layer == 12 && told[1].layer == 13,
       "there is room again");
    gh_spans_destroy(spans);
}

/* One that holds another: its event was recorded for an earlier span. */
static void test_open(void)
{
    const struct gh_span_what what = { .work = GH_WORK_NODE, .layer = 1 };
    struct gh_spans *spans = make(2, "", FREE "copy out 3000000\n");
    struct gh_span *outer;

    work(spans, 0);
    collect(spans, true);
    work(spans, 0);
    collect(spans, true);
    outer = gh_spans_begin(spans, &what, stream);
    work(spans, 2);
    collect(spans, false);
    is_int(n_told, 0, "an open span is not over, nor told with an old end");
    gh_spans_end(spans, outer);
    collect(spans, true);
    ok(n_told == 2 && told[0].layer == 1 && told[1].layer == 2,
       "once it has ended both are told");
    ok(told[0].start <= told[1].start && told[0].end >= told[1].end,
       "and one is inside of the other");
    gh_spans_destroy(spans);
}

/* A float of milliseconds has lost a microsecond after some 16 seconds. */
static void test_long(void)
{
    struct gh_spans *spans = make(4, "", FREE "copy out 700001000\n");
    uint32_t wrong = 0;
    uint64_t end = 0;

    for (uint32_t i = 0; i < 100; i++) {
        work(spans, i);
        collect(spans, true);
        wrong += n_told != 1 || told[0].end - told[0].start < 700000500 ||
                 told[0].end - told[0].start > 700001500 ||
                 told[0].start + 1000 < end || told[0].start > end + 100000;
        end = told[0].end;
    }
    is_int(wrong, 0, "after a minute times are still right");
    ok(end / 1000000 - clock_now() / 1000000 <= 1,
       "and count from the same moment: %llu and %llu",
       (unsigned long long)end, (unsigned long long)clock_now());
    gh_spans_destroy(spans);
}

/* What is not over is not told, but at the end waited for. */
static void test_waiting(void)
{
    uint32_t missing = 0, wrong = 0;

    for (int seed = 1; seed <= 30; seed++) {
        struct gh_spans *spans;
        char settings[32];
        uint32_t early;

        snprintf(settings, sizeof(settings), "SEED=%d", seed);
        spans = make(8, settings, FREE);
        work(spans, 1);
        work(spans, 2);
        collect(spans, false);
        early = n_told;
        missing += early < 2;
        collect(spans, true);
        wrong += early + n_told != 2;
        gh_spans_destroy(spans);
    }
    ok(missing > 0, "what is not over is not told, in %u of 30 orders",
       missing);
    is_int(wrong, 0, "and is waited for at the end");
}

static void test_failures(void)
{
    struct gh_spans *spans = make(4, "FAIL=cuEventRecord:2", FREE);

    /* The first was recorded when they were made. */
    ok(work(spans, 1) == NULL, "a span whose begin is not recorded is none");
    work(spans, 2);
    collect(spans, true);
    ok(n_told == 1 && told[0].layer == 2, "the next is told");
    gh_spans_destroy(spans);
    spans = make(4, "FAIL=cuEventRecord:3", FREE);
    ok(work(spans, 1) != NULL, "one whose end is not recorded");
    work(spans, 2);
    collect(spans, true);
    ok(n_told == 1 && told[0].layer == 2, "is left out");
    gh_spans_destroy(spans);
    spans = make(1, "FAIL=cuEventRecord:5", FREE);
    work(spans, 1);
    collect(spans, true);
    gh_device_copy_out(dev, host, memory, 64, stream, NULL);
    work(spans, 2);
    collect(spans, true);
    is_int(n_told, 0, "also where its event stands for the end of another");
    gh_spans_destroy(spans);
    spans = make(4, "FAIL=cuEventElapsedTime:1", FREE);
    work(spans, 1);
    work(spans, 2);
    collect(spans, true);
    ok(n_told == 1 && told[0].layer == 2, "so is one that cannot be timed");
    gh_spans_destroy(spans);

    ok(work(NULL, 1) == NULL, "without spans nothing begins");
    gh_spans_destroy(NULL);
}

static void test_creation(void)
{
    static const char *const fails[] = {
        "FAIL=cuEventCreate:1",  "FAIL=cuEventCreate:6",
        "FAIL=cuEventCreate:9",  "FAIL=cuStreamCreate:1",
        "FAIL=cuEventRecord:1",  "FAIL=cuStreamSynchronize:1"
    };
    softcuda_counts before, after;

    configure("");
    count(&before);
    for (size_t i = 0; i < sizeof(fails) / sizeof(fails[0]); i++) {
        struct gh_spans *spans = NULL;

        configure(fails[i]);
        ok(gh_spans_create(dev, 4, &spans, NULL) == GH_ERR_DEVICE &&
               spans == NULL,
           "%s: there are no spans", fails[i]);
    }
    configure("");
    count(&after);
    is_int(after.events + after.streams, before.events + before.streams,
           "and nothing of them is left");
}

static void *symbol(void *library, const char *name)
{
    void *found = dlsym(library, name);

    ok(found != NULL, "%s is there", name);
    return found;
}

int main(void)
{
    const char *path = getenv("GRAPHHOOKS_SOFTCUDA");
    const char *wanted = getenv("GRAPHHOOKS_TEST_DRIVER");
    const char *driver = path != NULL ? path
                                      : ".libs/libgraphhooks-softcuda.so";
    void *library = dlopen(driver, RTLD_NOW | RTLD_LOCAL);
    softcuda_counts end = { 0 };
    void *found;
    gh_error err;

    if (wanted != NULL && strcmp(wanted, "cuda") == 0) {
        return skip_all("times are those of the software device");
    }
    if (library == NULL) {
        return skip_all("no software device");
    }
    found = symbol(library, "softcuda_count");
    memcpy(&count, &found, sizeof(count));
    found = symbol(library, "softcuda_configure");
    memcpy(&configure, &found, sizeof(configure));
    found = symbol(library, "softcuda_costs");
    memcpy(&costs, &found, sizeof(costs));
    found = symbol(library, "softcuda_clock");
    memcpy(&clock_now, &found, sizeof(clock_now));
    if (gh_device_open(driver, NULL, 0, &dev, &err) != GH_OK) {
        return skip_all("%s", err.text);
    }
    (void)gh_device_enter(dev);
    gh_device_stream_create(dev, false, &stream, NULL);
    gh_device_alloc(dev, 64, &memory, NULL);
    gh_device_host_alloc(dev, 64, &host, NULL);
    gh_device_copy_back(dev, memory, host, 64, stream, NULL);
    test_times();
    test_room();
    test_open();
    test_long();
    test_waiting();
    test_failures();
    test_creation();
    gh_device_host_free(dev, host);
    gh_device_free(dev, memory);
    gh_device_stream_destroy(dev, stream);
    gh_device_close(dev);
    count(&end);
    is_int(end.events + end.streams, 0, "nothing is left");
    return done_testing();
}
