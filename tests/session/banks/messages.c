/*
 * A recording, the log and the trace say which bank they are about.
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/banks.h"
#include "support/heard.h"
#include "support/trace_file.h"
#include "tap/tap.h"

#include <stdio.h>
#include <string.h>

static uint32_t told[2]; /* bits of banks: begun, ended */

static gh_status record_begin(void *user, const gh_recording *recording)
{
    (void)user;
    told[0] |= 1u << recording->bank;
    return GH_OK;
}

static void record_end(void *user, const gh_recording *recording, uint32_t kept)
{
    (void)user;
    told[1] |= kept << recording->bank;
}

static void test_a_recording_says_its_bank(void)
{
    const gh_host_services host = { .struct_size = sizeof(host),
                                    .record_begin = record_begin,
                                    .record_end = record_end };

    if (!banks_start(&(struct toy_options){ .elems = 512, .host = &host })) {
        return;
    }
    toy_add_shape(&s, 512, NULL);
    toy_add_tokens(&s, 256);
    toy_add_tokens(&s, 128);
    banks_step(1);
    banks_step(1);
    is_int(told[0], 1u << 1, "a host hears of which bank a recording is");
    banks_step(2);
    is_int(told[1], 1u << 1 | 1u << 2, "when it begins and when it ends");
    banks_finish("recordings");
}

static void test_what_is_said(void)
{
    static const char *const loud[] = { "GRAPHHOOKS_LOG=debug",
                                        "GRAPHHOOKS_MAX_BANKS=1", NULL };

    if (!banks_start(&(struct toy_options){
            .elems = 512, .host = &hearing, .environment = loud })) {
        return;
    }
    toy_add_tokens(&s, 512);
    toy_add_tokens(&s, 256);
    banks_step(0);
    banks_step(0);
    banks_step(1);
    banks_finish("log");
    ok(strstr(said, "slot 0, bank 2 (256), ") != NULL,
       "a recording is told with its bank");
    ok(strstr(said, "bank 1 (512), the least recently used, gives way: 4 "
                    "graphs go, as GRAPHHOOKS_MAX_BANKS is 1") != NULL,
       "a bank that gives way is told with why");
    ok(strstr(said, "bank 1 (512): 4 recordings, 4 graph launches, gave way 1 "
                    "time\n") != NULL,
       "the end says what each has done");
    ok(strstr(said, "bank 2 (256): 4 recordings, 4 graph launches, gave way 0 "
                    "times\n") != NULL,
       "one that stayed too");
    ok(strstr(said, "bank 0") == NULL, "and nothing of one that did nothing");
}

/* A recording that the host gives up. */
static void give_up(void)
{
    const gh_pass pass = { .struct_size = sizeof(pass),
                           .stream = s.streams[0],
                           .bank = s.shapes[0].bank };
    gh_decision d = { .struct_size = sizeof(d) };

    if (gh_layer_enter(s.session, &pass, &d, &s.err) != GH_OK ||
        d.action != GH_ACTION_RECORD) {
        ok(false, "a pass is recorded: %s", s.err.text);
    }
    gh_layer_cancel(s.session, NULL);
}

/* What is noted of a pass is said at the end of the step.  Its bank, and with
 * it the table of its passes, may be gone by then. */
static void test_what_is_said_of_a_bank_that_gave_way(void)
{
    static const char *const loud[] = { "GRAPHHOOKS_LOG=warn",
                                        "GRAPHHOOKS_MAX_BANKS=1",
                                        "GRAPHHOOKS_WARMUP_STEPS=0", NULL };

    said[0] = '\0';
    if (!banks_start(&(struct toy_options){
            .elems = 512, .host = &hearing, .environment = loud })) {
        return;
    }
    toy_add_tokens(&s, 512);
    toy_add_tokens(&s, 256);
    for (int step = 0; step < 3; step++) {
        give_up();
        toy_end_step(&s);
    }
    give_up();
    banks_step(1);
    is_int(toy_bank_stats(&s, 0).evictions, 1,
           "a bank gives way in the step in which its pass has failed");
    banks_finish("failed");
    ok(strstr(said, "layer 0 attn..mlp forward, slot 0, bank 1 (512) has not "
                    "been recorded in 4 steps") != NULL,
       "the end of the step says which pass: %s", said);
}

/* What the line of an eager pass and every event of a trace have. */
static void test_the_trace(void)
{
    const gh_bank_desc plain = { .struct_size = sizeof(plain) };
    const uint32_t both[] = { 1, 2 };
    struct trace_file trace;

    if (!trace_file_open(&trace, "warn") ||
        !banks_start(
            &(struct toy_options){ .elems = 512,
                                   .host = &hearing,
                                   .environment = trace.environment })) {
        return;
    }
    said[0] = '\0';
    toy_add_shape(&s, 512, NULL);
    toy_add_tokens(&s, 256);
    toy_add_shape(&s, 128, &plain);
    banks_step(0);
    toy_step_shapes(&s, both, 2);
    toy_step_shapes(&s, both, 2);
    s.shapes[1].elems = 192; /* as a host that forgets to declare a bank */
    banks_step(1);
    s.shapes[1].elems = 256;
    banks_finish("trace");
    is_int(trace_file_count(&trace, "\"name\":\"record forward layer 0 bank1 "
                                    "mb0 slot0\""),
           1, "the trace has the bank of a recording");
    is_int(trace_file_count(&trace, "\"name\":\"replay backward layer 0 bank2 "
                                    "mb1 slot0\""),
           1, "and of a replay");
    is_int(trace_file_count(&trace, "\"bank\":1,\"bank_name\":\"256\","
                                    "\"action\":"),
           4 + 4 + 4, "each pass of a bank has its number and its name");
    is_int(trace_file_count(&trace, "\"bank\":2,\"action\":"), 4 + 4,
           "or its number alone where it has no name");
    is_int(trace_file_count(&trace, "\"name\":\"graph backward layer 1 bank2 "
                                    "mb1\""),
           2, "and so has the graph on the device's lane");
    is_int(trace_file_count(&trace, "bank0") +
               trace_file_count(&trace, "\"bank\":0"),
           0, "of bank 0 nothing is said");
    ok(strstr(said, ", microbatch 0 of bank 1 (256), ran eagerly") != NULL,
       "a pass that ran eagerly is told with its bank: %s", said);
    trace_file_remove(&trace);
}

int main(void)
{
    int status;

    if (!toy_probe_soft(&status)) {
        return status;
    }
    test_a_recording_says_its_bank();
    test_what_is_said();
    test_what_is_said_of_a_bank_that_gave_way();
    test_the_trace();
    return done_testing();
}
