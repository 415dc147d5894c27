/*
 * A host that reads its buffers before it wrote them is found by CHECK on the
 * software device.  One that does not is left alone, whatever the library
 * copies and compares.
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/toy.h"
#include "tap/tap.h"

#include <stdio.h>
#include <string.h>

static const char *const check[] = { "GRAPHHOOKS_CHECK=bitwise", NULL };

static struct toy toy;
static char last_line[512];
static uint32_t n_lines;

static void keep_line(void *user, gh_log_level level, const char *line)
{
    (void)user;
    if (level == GH_LOG_WARN && strstr(line, "had written") != NULL) {
        n_lines++;
        snprintf(last_line, sizeof(last_line), "%s", line);
    }
}

static const gh_host_services services = {
    .struct_size = sizeof(services),
    .log = keep_line,
};

static bool open_toy(struct toy_options options, const char *settings)
{
    n_lines = 0;
    options.layers = 2;
    options.elems = 100; /* and padding after them */
    options.host = &services;
    options.raw = true;
    return toy_start(&toy, &options, settings);
}

static const uint32_t counts[] = { 2, 3, 3 };

static void train(void)
{
    for (uint32_t i = 0; i < 3; i++) {
        is_int(toy_step(&toy, counts[i]), GH_OK, "a step runs");
    }
}

/* ---- a host that forgets ----------------------------------------------- */

/* Its backward passes read the activation that the forward ones leave out. */
static void test_a_host_that_forgets(void)
{
    const struct toy_options options = { .granularity = "layer",
                                         .environment = check };
    const char *text;
    gh_stats stats;
    uint64_t reads;

    if (!open_toy(options, "SEED=0")) {
        return;
    }
    toy.forgets = true;
    train();
    stats = toy_stats(&toy);
    reads = toy_unwritten(&toy, &text);
    ok(stats.checks > 0, "a host that forgets is compared");
    ok(reads > 0, "what its backward passes read is reported");
    ok(text != NULL && strstr(text, " reads bytes ") != NULL &&
           strstr(text, "which nothing has written") != NULL,
       "by name and place: %s", text != NULL ? text : "");
    is_int((long)stats.check_failures, (long)reads,
           "each report is a check that failed");
    is_int(n_lines, 0, "nothing is said of it before the end");
    toy_detach(&toy);
    is_int(n_lines, 1, "the session says it once, when it closes");
    ok(strstr(last_line, "GRAPHHOOKS_CHECK: ") != NULL &&
           strstr(last_line, "write a buffer before a pass reads it") != NULL,
       "with what to do: %s", last_line);
    toy_close(&toy);
}

static void test_a_second_session(void)
{
    const struct toy_options options = { .granularity = "layer",
                                         .legacy = true,
                                         .environment = check };
    const char *text;
    uint64_t before = 0;

    for (uint32_t i = 0; i < 2; i++) {
        if (!open_toy(options, i == 0 ? "SEED=0" : NULL)) {
            return;
        }
        toy.forgets = true;
        train();
        ok(toy_unwritten(&toy, &text) > before &&
               toy_stats(&toy).check_failures > 0,
           "session %u on the same stream has reports of its own", i + 1);
        before = toy_unwritten(&toy, &text);
        toy_close(&toy);
    }
}

static void test_without_check(void)
{
    const char *text;

    if (!open_toy((struct toy_options){ .granularity = "layer" }, "SEED=0")) {
        return;
    }
    toy.forgets = true;
    train();
    ok(toy_unwritten(&toy, &text) > 0,
       "without CHECK the device reports it all the same");
    is_int((long)toy_stats(&toy).check_failures, 0,
           "but there is no check that it could fail");
    toy_detach(&toy);
    is_int(n_lines, 0, "and the session says nothing");
    toy_close(&toy);
}

static void test_what_was_before_the_session(void)
{
    const char *text;
    uint32_t word;

    if (!open_toy((struct toy_options){ .environment = check }, "SEED=0")) {
        return;
    }
    toy_detach(&toy);
    toy.drv.cuMemcpyDtoH(&word, toy.memory, sizeof(word));
    is_int((long)toy_unwritten(&toy, &text), 1,
           "the host reads new memory before the session");
    is_int(toy_attach(&toy), GH_OK, "a session opens after that");
    train();
    is_int((long)toy_stats(&toy).check_failures, 0,
           "what was read before it opened is not its own");
    toy_detach(&toy);
    is_int(n_lines, 0, "nor said when it closes");
    toy_close(&toy);
}

/* ---- hosts that do not ------------------------------------------------- */

static void spotless(struct toy_options options, const char *name)
{
    static const char *const seeds[] = { "SEED=0", "SEED=7" };
    const char *text;
    uint64_t reads;

    options.environment = check;
    for (uint32_t i = 0; i < 2; i++) {
        if (!open_toy(options, seeds[i])) {
            return;
        }
        train();
        reads = toy_unwritten(&toy, &text);
        ok(toy_is_exact(&toy), "%s, %s: the weights are exact", name, seeds[i]);
        ok(toy_stats(&toy).checks > 0, "%s, %s: passes are compared", name,
           seeds[i]);
        is_int((long)toy_stats(&toy).check_failures, 0,
               "%s, %s: no check fails", name, seeds[i]);
        is_int((long)reads, 0, "%s, %s: %s", name, seeds[i],
               text != NULL ? text : "nothing is reported");
        toy_close(&toy);
    }
}

static void test_hosts_that_write_first(void)
{
    spotless((struct toy_options){ .granularity = "part" }, "parts");
    spotless((struct toy_options){ .granularity = "chunk", .in_flight = 3 },
             "a chunk");
    spotless((struct toy_options){ .scope = "attn", .in_flight = 2 },
             "one scope");
    spotless((struct toy_options){ .granularity = "part",
                                   .copied_inputs = true,
                                   .in_flight = 2 },
             "copied inputs");
    spotless((struct toy_options){ .granularity = "part",
                                   .copied_inputs = true,
                                   .padded = true },
             "padding that is copied and compared");
    spotless(
        (struct toy_options){ .granularity = "part", .moving_inputs = true },
        "inputs that move");
    spotless(
        (struct toy_options){ .in_flight = 3, .streams = 3, .max_slots = 2 },
        "streams and too few slots");
    spotless((struct toy_options){ .wgrad = TOY_WGRAD_LATER, .wgrad_lag = 1 },
             "delayed gradients");
    spotless((struct toy_options){ .legacy = true }, "the legacy stream");
}

int main(void)
{
    int status;

    if (!toy_probe_soft(&status)) {
        return status;
    }
    test_a_host_that_forgets();
    test_a_second_session();
    test_without_check();
    test_what_was_before_the_session();
    test_hosts_that_write_first();
    return done_testing();
}
