/*
 * With GRAPHHOOKS_NVTX each pass is a range with the name of its segment, for
 * the tool that NVTX_INJECTION64_PATH names.
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/heard.h"
#include "support/toy.h"
#include "tap/tap.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct toy toy;
static char *told;

static uint32_t times_told(const char *words)
{
    uint32_t n = 0;

    for (const char *at = told; (at = strstr(at, words)) != NULL; at++) {
        n++;
    }
    return n;
}

/* A session with these variables, and counts of microbatches of steps. */
static bool trained(const char *const *environment, const uint32_t *counts,
                    uint32_t n)
{
    const struct toy_options options = { .layers = 2,
                                         .elems = 64,
                                         .in_flight = 1,
                                         .environment = environment,
                                         .host = &hearing };

    said[0] = '\0';
    if (told != NULL) {
        told[0] = '\0';
    }
    if (!toy_start(&toy, &options, NULL)) {
        return false;
    }
    toy_train(&toy, counts, n);
    return true;
}

static const uint32_t counts[] = { 2, 2, 2 };

static void test_no_tool(void)
{
    static const char *const alone[] = { "GRAPHHOOKS_NVTX=1",
                                         "GRAPHHOOKS_LOG=info", NULL };
    static const char *const bad[] = { "GRAPHHOOKS_NVTX=1",
                                       "NVTX_INJECTION64_PATH=/none/tool.so",
                                       NULL };
    static const char *const other[] = { "GRAPHHOOKS_NVTX=1",
                                         "NVTX_INJECTION64_PATH=libc.so.6",
                                         NULL };

    if (trained(alone, counts, 3)) {
        is_int(times_said("GRAPHHOOKS_NVTX: no tool takes ranges"), 1,
               "without a tool a line says so");
        ok(toy_is_exact(&toy), "and training goes on");
        toy_close(&toy);
    }
    if (trained(bad, counts, 1)) {
        is_int(times_said("NVTX_INJECTION64_PATH is \"/none/tool.so\""), 1,
               "a library that is not there is named");
        toy_close(&toy);
    }
    if (trained(other, counts, 1)) {
        is_int(times_said("NVTX_INJECTION64_PATH is \"libc.so.6\""), 1,
               "and one that is no tool's");
        toy_close(&toy);
    }
}

static void test_ranges(const char *variable)
{
    const char *const on[] = { "GRAPHHOOKS_NVTX=1", variable, NULL };
    const char *const off[] = { variable, NULL };
    const gh_pass pass = { .struct_size = sizeof(pass),
                           .flags = GH_PASS_FORWARD_ONLY };
    const gh_pass backward = { .struct_size = sizeof(backward),
                               .direction = GH_BACKWARD };
    gh_decision decision = { .struct_size = sizeof(decision) };
    uint32_t ranges;

    if (!trained(off, counts, 3)) {
        return;
    }
    toy_close(&toy);
    is_str(told, "", "without the option the tool is told nothing");

    if (!trained(on, counts, 3)) {
        return;
    }
    is_int(times_said("NVTX"), 0, "a tool that listens needs no line");
    is_int(times_told("["), 3 * 2 * 2 * 2, "each pass is a range");
    is_int(times_told("]"), times_told("["), "each range ends");
    is_int(times_told("]]"), 0, "before the next one begins");
    is_int(times_told("[layer 0 attn..mlp forward]"), 6,
           "a forward has its name");
    is_int(times_told("[layer 1 attn..mlp backward]"), 6,
           "and so has a backward");
    is_int(toy_stats(&toy).replays, 2 * 2 * 2 * 2, "with graphs");
    ok(toy_is_exact(&toy), "the numbers are those of eager");

    /* What is refused, and what is given up. */
    ranges = times_told("[");
    is_status(gh_layer_enter(toy.session, &backward, &decision, &toy.err),
              GH_ERR_STATE, &toy.err,
              "a backward without a forward is refused");
    is_int(times_told("["), ranges + 1, "it had a range");
    is_int(times_told("["), times_told("]"), "which has ended");
    is_status(gh_layer_enter(toy.session, &pass, &decision, &toy.err), GH_OK,
              &toy.err, "a pass begins");
    is_int(times_told("["), times_told("]") + 1, "with a range");
    gh_layer_cancel(toy.session, NULL);
    is_int(times_told("["), times_told("]"), "which a cancel ends");
    gh_layer_enter(toy.session, &pass, &decision, &toy.err);
    toy_close(&toy);
    is_int(times_told("["), times_told("]"), "and so does a close");
}

int main(void)
{
    const char *builddir = getenv("builddir");
    char variable[4200];
    void *tool;
    int *modules, status;

    if (!toy_probe_soft(&status)) {
        return status;
    }
    test_no_tool();
    snprintf(variable, sizeof(variable),
             "NVTX_INJECTION64_PATH=%s/tests/support/.libs/nvtx_tool.so",
             builddir != NULL ? builddir : ".");
    tool = dlopen(strchr(variable, '=') + 1, RTLD_NOW | RTLD_LOCAL);
    if (tool == NULL) {
        ok(false, "the tool is built: %s", dlerror());
        return done_testing();
    }
    told = dlsym(tool, "nvtx_tool_told");
    modules = dlsym(tool, "nvtx_tool_modules");
    if (told == NULL || modules == NULL) {
        ok(false, "the tool keeps what it is told: %s", dlerror());
        return done_testing();
    }
    test_ranges(variable);
    is_int(*modules, 6, "the tool finds the tables of all modules");
    return done_testing();
}
