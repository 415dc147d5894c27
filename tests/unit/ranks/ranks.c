/*
 * Where ranks could part: what a rank says, what it makes of the words of the
 * others, and how it gives them up.
 *
 * The other ranks are this file's, and so is all below lib/capture: a gather
 * brings this rank's own words from each of them, changed as a test says.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "base/clock.h"
#include "base/setting.h"
#include "capture/abandon.h"
#include "capture/agree.h"
#include "capture/aux.h"
#include "capture/capture.h"
#include "capture/decide.h"
#include "capture/packed.h"
#include "capture/record.h"
#include "capture/replay.h"
#include "capture/services.h"
#include "comm/comm.h"
#include "messages/messages.h"
#include "offload/offload.h"
#include "pass/capacity.h"
#include "ranks/collect.h"
#include "ranks/ranks.h"
#include "ranks/words.h"
#include "support/fake.h"
#include "tap/tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    N = 3,
    OTHER = 2 /* the rank whose words are changed */
};

#define STREAM ((void *)7)

static struct gh_capture c;
static struct gh_bank bank;
static struct gh_entry entry;

/* ---- the other ranks ----------------------------------------------------- */

struct gh_comm {
    char letter;
    uint32_t rank, size;
    char host; /* its communicator */
};

static struct gh_comm ours = { 'a', 0, N, 'x' };
static uint64_t mine[GH_COMM_WORDS], all[8 * GH_COMM_WORDS];
static void (*changes)(uint64_t *theirs, uint32_t n); /* those of OTHER */
static bool follows_fail, gathers_fail;
static uint32_t fails_of; /* words: gathers of so many fail too */
static const struct gh_comm *fails_look;

gh_status gh_comm_follow(struct gh_comm *comm, void *stream, gh_error *error)
{
    note("follow%c@%d ", comm->letter, (int)(uintptr_t)stream);
    if (follows_fail) {
        snprintf(error->text, sizeof(error->text), "no event");
        return GH_ERR_DEVICE;
    }
    return GH_OK;
}

gh_status gh_comm_gather(struct gh_comm *comm, const uint64_t *words,
                         uint32_t n, const uint64_t **all_p, gh_error *error)
{
    note("gather%c%u ", comm->letter, n);
    if (gathers_fail || n == fails_of) {
        snprintf(error->text, sizeof(error->text), "nobody came");
        return GH_ERR_RANKS;
    }
    memcpy(mine, words, n * sizeof(*words));
    for (uint32_t i = 0; i < comm->size; i++) {
        memcpy(all + (size_t)i * n, words, n * sizeof(*words));
    }
    /* Nobody's: large numbers, whether as words or as times. */
    memset(all + (size_t)comm->size * n, 0x7f,
           sizeof(all) - (size_t)comm->size * n * sizeof(*all));
    if (changes != NULL) {
        changes(all + (size_t)OTHER * n, n);
    }
    *all_p = all;
    return GH_OK;
}

gh_status gh_comm_open(struct gh_device *dev, const gh_ranks *ranks,
                       const char *of, uint32_t seconds, struct gh_gate *gate,
                       const struct gh_log *log, struct gh_comm **comm_p,
                       gh_error *error)
{
    (void)dev;
    (void)ranks;
    (void)of;
    (void)seconds;
    (void)gate;
    (void)log;
    (void)error;
    *comm_p = &ours;
    return GH_OK;
}

void gh_comm_close(struct gh_comm *comm, struct gh_comm_parting *parting)
{
    (void)parting;
    note("close%c ", comm->letter);
}

bool gh_comm_has_threads(const struct gh_comm *comm)
{
    (void)comm;
    return false;
}

gh_status gh_comm_check_numbers(uint32_t n, const uint64_t *words,
                                uint32_t stride, const char *what,
                                gh_error *error)
{
    (void)n;
    (void)words;
    (void)stride;
    (void)what;
    (void)error;
    return GH_OK;
}

uint32_t gh_comm_rank(const struct gh_comm *comm)
{
    return comm->rank;
}

uint32_t gh_comm_size(const struct gh_comm *comm)
{
    return comm->size;
}

bool gh_comm_is_shared(const struct gh_comm *comm, const struct gh_comm *other)
{
    return comm->host == other->host;
}

gh_status gh_comm_look(struct gh_comm *comm, gh_error *error)
{
    if (comm != fails_look) {
        return GH_OK;
    }
    snprintf(error->text, sizeof(error->text), "a rank died");
    return GH_ERR_RANKS;
}

void gh_comm_abort_begin(struct gh_comm *comm, bool hosts)
{
    note("begin%c%s ", comm->letter, hosts ? "+" : "");
}

void gh_comm_abort_end(struct gh_comm *comm)
{
    note("end%c ", comm->letter);
}

static uint32_t naps_left;

struct gh_deadline gh_deadline_in(uint32_t seconds)
{
    naps_left = seconds;
    return (struct gh_deadline){ 0, 0 };
}

bool gh_deadline_back_off(struct gh_deadline *deadline)
{
    (void)deadline;
    return naps_left > 0 && naps_left-- > 0;
}

/* ---- below --------------------------------------------------------------- */

static enum gh_capturing captures;
static uint32_t ends_after; /* that many questions */
static bool profiles, holds, begins;

enum gh_capturing gh_device_capturing(struct gh_device *dev, void *stream)
{
    (void)dev;
    (void)stream;
    return captures;
}

gh_status gh_device_stream_ask(struct gh_device *dev, void *stream,
                               bool *ended_p, gh_error *error)
{
    (void)dev;
    (void)stream;
    (void)error;
    note("?");
    *ended_p = ends_after == 0;
    ends_after -= ends_after > 0;
    return GH_OK;
}

gh_status gh_device_stream_wait(struct gh_device *dev, void *stream,
                                gh_error *error)
{
    (void)dev;
    (void)stream;
    (void)error;
    note("sync ");
    return GH_OK;
}

static uint32_t limit_s;

uint32_t gh_device_limit_waits(struct gh_device *dev, uint32_t seconds)
{
    (void)dev;
    limit_s = seconds;
    return 0;
}

void gh_bank_clear(struct gh_bank *of, struct gh_entry *at)
{
    note("clear ");
    *at = (struct gh_entry){ .unchained = at->unchained };
    (void)of;
}

void gh_banks_stop(struct gh_banks *banks)
{
    (void)banks;
    note("stop ");
}

void gh_capture_cancel(struct gh_capture *capture)
{
    (void)capture;
    note("cancel ");
}

void gh_entry_give_up(struct gh_capture *capture, struct gh_entry *at,
                      gh_reason reason, const char *text)
{
    (void)capture;
    at->state = GH_ENTRY_EAGER;
    at->reason = (uint8_t)reason;
    note("[%s] ", text);
}

void gh_record_drop(struct gh_capture *capture)
{
    (void)capture;
    note("drop ");
}

bool gh_record_begin(struct gh_capture *capture, const gh_pass *pass,
                     struct gh_entry *at)
{
    (void)capture;
    (void)pass;
    at->reason = GH_REASON_CAPTURE;
    return begins;
}

void gh_message_rank(struct gh_capture *capture, uint32_t rank,
                     gh_reason reason)
{
    (void)capture;
    note("say%u:%u ", rank, reason);
}

void gh_message_overflow(struct gh_capture *capture, const gh_pass *pass)
{
    (void)capture;
    (void)pass;
}

void gh_message_no_step_ends(const struct gh_capture *capture)
{
    (void)capture;
    note("endless ");
}

bool gh_capacities_hold(const gh_pass *pass)
{
    (void)pass;
    return holds;
}

gh_reason gh_capture_find_entry(struct gh_capture *capture, const gh_pass *pass)
{
    (void)capture;
    (void)pass;
    return GH_REASON_NONE;
}

gh_status gh_packed_refuse_none(const gh_pass *pass, const struct gh_bank *of,
                                gh_error *error)
{
    (void)pass;
    (void)of;
    (void)error;
    return GH_ERR_STATE;
}

bool gh_offload_is_profiling(const struct gh_offload *offload, uint64_t step)
{
    (void)offload;
    (void)step;
    return profiles;
}

/* Its own file has all statistics. */
const char *gh_reason_name(gh_reason reason)
{
    static char text[16];

    snprintf(text, sizeof(text), "reason %u", reason);
    return text;
}

/* ---- a rank -------------------------------------------------------------- */

static struct gh_plan plan;
static struct gh_segment_fate fates[8];

static const struct gh_log heard = { GH_LOG_INFO, hear_line, NULL };

static bool make_plan(void)
{
    const gh_layer_desc desc = { .struct_size = sizeof(desc),
                                 .kind = GH_LAYER_DENSE };
    const struct gh_plan_options options = { .granularity =
                                                 GH_GRANULARITY_LAYER };
    gh_model *model = NULL;
    gh_status status;

    gh_model_create(&model, NULL);
    gh_model_add_layer(model, &desc, NULL);
    gh_model_add_layer(model, &desc, NULL);
    status = gh_plan_make(model, &options, &plan, &err);
    gh_model_destroy(model);
    is_status(status, GH_OK, &err, "there is a plan");
    return status == GH_OK;
}

static void begin(void)
{
    memset(&c, 0, sizeof(c));
    memset(&bank, 0, sizeof(bank));
    memset(&entry, 0, sizeof(entry));
    memset(fates, 0, sizeof(fates));
    c.plan = &plan;
    c.dev = DEVICE;
    c.fixed.fates = fates;
    c.options.log = &heard;
    c.options.timeout_s = 4;
    c.counts.stats.iterations = 6;
    c.forecast.done = true; /* the bank here has no rows to foresee */
    c.ranks.first = &bank;
    c.open = (struct gh_open_pass){ .segment = 1,
                                    .direction = GH_BACKWARD,
                                    .stream = STREAM,
                                    .number = 9,
                                    .counted = true,
                                    .slot = 1,
                                    .bank = &bank,
                                    .entry = &entry,
                                    .action = GH_ACTION_RECORD };
    bank.banks = &c.banks;
    bank.number = 2;
    bank.admitted = true;
    bank.comm = &ours;
    changes = NULL;
    follows_fail = gathers_fail = false;
    fails_of = 0;
    fails_look = NULL;
    captures = GH_CAPTURING_NO;
    limit_s = 0;
    ends_after = 0;
    profiles = false;
    holds = begins = true;
    forget_all();
}

/* ---- places -------------------------------------------------------------- */

static uint32_t changed_word;
static uint64_t changed_by;

static void change_a_word(uint64_t *theirs, uint32_t n)
{
    if (changed_word < n) {
        theirs[changed_word] += changed_by;
    }
}

static void test_places(void)
{
    static const struct {
        const char *what, *says;
        uint32_t word;
        uint64_t by;
        bool parts;
    } cases[] = {
        { "another step", "rank 2 is in step 7 at", GH_WORD_STEP, 1, true },
        { "another segment", "rank 2 is where no pass is", GH_WORD_WORK, 9,
          true },
        { "another direction", "rank 2 is in step 6 at", GH_WORD_WORK,
          UINT64_C(1) << 32, true },
        { "another variant", "(variant 1)", GH_WORD_WORK, UINT64_C(1) << 40,
          true },
        { "other flags", "rank 2 is in step 6 at", GH_WORD_WORK,
          UINT64_C(1) << 48, true },
        { "another slot", "slot 2: enter passes in the same order",
          GH_WORD_SLOT, 1, true },
        { "another place", "(its end)", GH_WORD_HEAD, UINT64_C(1) << 16, true },
        { "another number beside", "", GH_WORD_MORE, 1, false },
        { "another answer", "", GH_WORD_HEAD, UINT64_C(1) << 8, false },
        { "another reason", "", GH_WORD_HEAD, 1, false },
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        begin();
        changes = change_a_word;
        changed_word = cases[i].word;
        changed_by = cases[i].by;
        is_status(gh_agree_to_record(&c, &err),
                  cases[i].parts ? GH_ERR_RANKS : GH_OK, &err, "a rank with %s",
                  cases[i].what);
        ok(c.ranks.lost == cases[i].parts, "parts, or does not");
        ok(strstr(said, cases[i].says) != NULL, "and is described: %s", said);
    }
}

static void test_words(void)
{
    begin();
    c.open.variant = 1;
    c.open.flags = 1u << 0;
    c.open.slot = GH_SLOT_NONE;
    gh_agree_to_record(&c, &err);
    ok(mine[GH_WORD_WORK] == (UINT64_C(1) << 48 | UINT64_C(1) << 40 |
                              (uint64_t)GH_BACKWARD << 32 | 1) &&
           mine[GH_WORD_STEP] == 6 && mine[GH_WORD_SLOT] == GH_SLOT_NONE &&
           mine[GH_WORD_MORE] == 0,
       "a rank says flags, variant, direction, segment, step and slot");
    ok((uint32_t)(mine[GH_WORD_HEAD] >> 32) == GH_ABI_VERSION,
       "and the version of the library");
}

/* Flags of a call say how it is made, not which pass it is. */
static uint64_t said_before[GH_WORDS];

static void say_as_before(uint64_t *theirs, uint32_t n)
{
    memcpy(theirs, said_before, n * sizeof(*theirs));
}

static void test_flags(void)
{
    static const struct {
        uint32_t flags;
        bool parts;
    } cases[] = {
        { GH_PASS_NO_EXIT, false },
        { GH_PASS_PREPARE, false },
        { GH_PASS_NO_EXIT | GH_PASS_PREPARE, false },
        { 1u << 0, true },
        { 1u << 1, true },
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        if ((cases[i].flags & ~(uint32_t)GH_CALL_FLAGS) != 0 &&
            (cases[i].flags & GH_CALL_FLAGS) != 0) {
            continue;
        }
        begin();
        gh_agree_to_record(&c, &err);
        memcpy(said_before, mine, sizeof(said_before));
        begin();
        c.open.flags = cases[i].flags;
        changes = say_as_before;
        is_status(
            gh_agree_to_record(&c, &err),
            (cases[i].flags & ~(uint32_t)GH_CALL_FLAGS) != 0 ? GH_ERR_RANKS
                                                             : GH_OK,
            &err, "flags %u here, and none on another rank", cases[i].flags);
    }
}

/* ---- the beginning of a recording ---------------------------------------- */

static uint64_t their_answer, their_reason;

static void answer(uint64_t *theirs, uint32_t n)
{
    (void)n;
    theirs[GH_WORD_HEAD] = (theirs[GH_WORD_HEAD] & ~UINT64_C(0xffff)) |
                           their_answer << 8 | their_reason;
}

enum {
    GOES_ON,
    FAILED,
    NOT_NOW
};

static void test_beginnings(void)
{
    static const struct {
        const char *what;
        int mine, theirs;
        bool admitted;
        const char *calls;
        gh_action action;
        uint8_t state;
    } cases[] = {
        { "all record", GOES_ON, GOES_ON, true, "", GH_ACTION_RECORD,
          GH_ENTRY_NEW },
        { "another cannot now", GOES_ON, NOT_NOW, true, "drop clear say2:6 ",
          GH_ACTION_RUN, GH_ENTRY_NEW },
        { "another cannot now, of a bank without graphs", GOES_ON, NOT_NOW,
          false, "drop say2:6 ", GH_ACTION_RUN, GH_ENTRY_NEW },
        { "another never can", GOES_ON, FAILED, true,
          "drop [rank 2 could not begin to record it", GH_ACTION_RUN,
          GH_ENTRY_EAGER },
        { "this one cannot now", NOT_NOW, GOES_ON, true,
          "clear say0:", GH_ACTION_RUN, GH_ENTRY_NEW },
        { "this one cannot now, of a bank without graphs", NOT_NOW, GOES_ON,
          false, "say0:", GH_ACTION_RUN, GH_ENTRY_NEW },
        { "this one never can", FAILED, GOES_ON, true, "", GH_ACTION_RUN,
          GH_ENTRY_EAGER },
        { "one never, and one not now", FAILED, NOT_NOW, true, "clear say2:6 ",
          GH_ACTION_RUN, GH_ENTRY_NEW },
        { "one not now, and one never", NOT_NOW, FAILED, true,
          "clear say0:", GH_ACTION_RUN, GH_ENTRY_NEW },
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        begin();
        bank.admitted = cases[i].admitted;
        c.open.action =
            cases[i].mine == GOES_ON ? GH_ACTION_RECORD : GH_ACTION_RUN;
        c.open.reason = cases[i].mine == GOES_ON ? 0 : GH_REASON_INPUT;
        entry.state = cases[i].mine == FAILED ? GH_ENTRY_EAGER : GH_ENTRY_NEW;
        their_answer = (uint64_t)cases[i].theirs;
        their_reason = cases[i].theirs == GOES_ON ? 0 : 6;
        changes = answer;
        is_status(gh_agree_to_record(&c, &err), GH_OK, &err, "%s",
                  cases[i].what);
        ok(strncmp(calls, "gathera5 ", 9) == 0 &&
               strncmp(calls + 9, cases[i].calls, strlen(cases[i].calls)) ==
                   0 &&
               (cases[i].calls[0] != '\0' || calls[9] == '\0'),
           "%s: then \"%s\" happens: %s", cases[i].what, cases[i].calls, calls);
        is_int(c.open.action, cases[i].action, "%s: the action", cases[i].what);
        is_int(entry.state, cases[i].state, "%s: and the entry", cases[i].what);
        ok(cases[i].mine != GOES_ON || cases[i].theirs == GOES_ON ||
               c.open.reason == GH_REASON_RANKS,
           "%s: for the ranks", cases[i].what);
    }
    begin();
    gathers_fail = true;
    is_status(gh_agree_to_record(&c, &err), GH_ERR_RANKS, &err,
              "ranks that do not come part");
    ok(strstr(said, "nobody came; here it is recorded;") != NULL,
       "with what this rank does: %s", said);
    ok(was("stop begina+ enda drop "), "and the recording is dropped: %s",
       calls);
}

static void test_ends(void)
{
    for (int whole = 0; whole < 2; whole++) {
        for (int theirs = 0; theirs < 2; theirs++) {
            begin();
            entry.state = whole ? GH_ENTRY_READY : GH_ENTRY_EAGER;
            entry.reason = whole ? 0 : GH_REASON_CAPTURE;
            their_answer = theirs ? GOES_ON : FAILED;
            their_reason = 6;
            changes = answer;
            is_status(gh_agree_on_recording(&c, &err),
                      whole && !theirs ? GH_RERUN : GH_OK, &err,
                      "a recording that is %s here, and %s there",
                      whole ? "whole" : "lost", theirs ? "whole" : "lost");
            ok(strncmp(calls, "followa@7 gathera5 ", 19) == 0,
               "is asked for behind the stream's work");
            ok(was("could not record it") == (whole && !theirs),
               "and given up if it was whole: %s", calls);
            begin();
            entry.state = whole ? GH_ENTRY_READY : GH_ENTRY_EAGER;
            changes = answer;
            is_status(gh_agree_on_check(&c, &err), GH_OK, &err,
                      "a comparison that is %s here, and %s there",
                      whole ? "equal" : "not", theirs ? "equal" : "not");
            ok(strncmp(calls, "followa@7 gathera5 ", 19) == 0,
               "is asked for behind the stream's work too");
            ok(was("has other numbers") == (whole && !theirs),
               "is given up if it was equal: %s", calls);
        }
        begin();
        entry.state = whole ? GH_ENTRY_READY : GH_ENTRY_EAGER;
        gh_agree_to_cancel(&c);
        ok(was("[the host has given") == (whole != 0),
           "what a host cancels is given up once");
        is_int(gh_rank_words_answer(mine), FAILED, "and the others are told");
    }
    begin();
    follows_fail = true;
    is_status(gh_agree_on_recording(&c, &err), GH_ERR_RANKS, &err,
              "a rank that cannot follow parts");
    ok(!was("gather"), "and asks nobody");
    begin();
    follows_fail = true;
    is_status(gh_agree_on_check(&c, &err), GH_ERR_RANKS, &err,
              "so does one that has compared a pass");
    ok(!was("gather"), "which asks nobody either");
}

/* ---- GRAPHHOOKS_CHECK=ranks ---------------------------------------------- */

static void test_compared_passes(void)
{
    bool alike = false;

    begin();
    is_status(gh_ask_about_pass(&c, GH_ACTION_REPLAYED, &alike, &err), GH_OK,
              &err, "passes are compared");
    ok(alike && c.counts.stats.checks == 1 &&
           c.counts.stats.check_failures == 0,
       "and alike");
    begin();
    their_answer = GH_ACTION_RUN;
    their_reason = 6;
    changes = answer;
    gh_ask_about_pass(&c, GH_ACTION_REPLAYED, &alike, &err);
    ok(!alike && c.counts.stats.check_failures == 1, "or not");
    ok(strstr(said, "rank 0 replays") != NULL &&
           strstr(said, "rank 2 runs eagerly") != NULL,
       "which is said: %s", said);
}

/* ---- parting ------------------------------------------------------------- */

static void test_parting(void)
{
    struct gh_comm comms[4] = { { 'a', 0, N, 'x' },
                                { 'b', 0, N, 'y' },
                                { 'c', 0, N, 'x' },
                                { 'd', 0, N, 'y' } };
    struct gh_bank banks[4];

    begin();
    memset(banks, 0, sizeof(banks));
    for (int i = 0; i < 4; i++) {
        banks[i].comm = &comms[i];
        banks[i].next_shared = i < 3 ? &banks[i + 1] : NULL;
    }
    c.ranks.first = banks;
    c.open.bank = &banks[1];
    snprintf(banks[1].name, sizeof(banks[1].name), "cp4");
    is_status(gh_ranks_lost(&c, &banks[1], "it is over", &err), GH_ERR_RANKS,
              &err, "ranks part");
    is_str(calls, "stop begina+ beginb+ beginc begind enda endb endc endd ",
           "graphs go first, each communicator of the host's is aborted once, "
           "and all are begun before one ends");
    ok(strstr(err.text, "rank 0 of 3, step 6, ") != NULL &&
           strstr(err.text, "bank 0 (cp4): it is over") != NULL,
       "with the place: %s", err.text);
    is_int(limit_s, 4, "from then on every wait has the timeout");
    is_int(fates[0].never, GH_REASON_RANKS, "no pass is recorded any more");
    is_int(fates[plan.n_segments - 1].never, GH_REASON_RANKS, "of all");
    calls[0] = '\0';
    is_status(gh_ranks_lost(&c, &banks[0], "again", &err), GH_ERR_RANKS, &err,
              "they part once");
    is_str(calls, "", "and nothing happens again");
    ok(strstr(err.text, "it is over") != NULL, "for the same reason");

    begin();
    fails_look = &ours;
    is_status(gh_ranks_look(&c, &err), GH_ERR_RANKS, &err,
              "a communicator that fails parts the ranks");
    ok(strstr(err.text, "the ranks of bank 2: a rank died") != NULL,
       "with its bank: %s", err.text);
}

static void test_waiting(void)
{
    begin();
    ends_after = 3;
    is_status(gh_ranks_wait_stream(&c, STREAM, &err), GH_OK, &err,
              "a stream that ends is waited for");
    is_str(calls, "????", "until it has ended");
    begin();
    ends_after = 100;
    is_status(gh_ranks_wait_stream(&c, STREAM, &err), GH_ERR_RANKS, &err,
              "one that does not");
    ok(strstr(err.text, "has not ended in 4 s (GRAPHHOOKS_TIMEOUT)") != NULL,
       "no longer than the time: %s", err.text);
    begin();
    fails_look = &ours;
    is_status(gh_ranks_wait_stream(&c, STREAM, &err), GH_ERR_RANKS, &err,
              "one that ends as a rank has aborted is no success");
    begin();
    captures = GH_CAPTURING_YES;
    is_status(gh_ranks_wait_stream(&c, STREAM, &err), GH_ERR_STATE, &err,
              "one that is captured is not waited for");
    begin();
    c.ranks.first = NULL;
    gh_ranks_wait_stream(&c, STREAM, &err);
    is_str(calls, "sync ", "without ranks the device waits");
}

/* ---- together ------------------------------------------------------------ */

static void lacks(uint64_t *theirs, uint32_t n)
{
    if (n == GH_WORDS) {
        theirs[GH_WORD_HEAD] |= UINT64_C(1) << 8;
    }
}

static void larger(uint64_t *theirs, uint32_t n)
{
    double value;

    if (n != GH_WORDS) {
        memcpy(&value, theirs, sizeof(value));
        value = 10 * value;
        memcpy(theirs, &value, sizeof(value));
        value = 0;
        memcpy(theirs + n - 1, &value, sizeof(value));
    }
}

static void test_times(void)
{
    struct gh_comm comms[4] = { { 'a', 0, 3, 'x' },
                                { 'b', 0, 5, 'y' },
                                { 'c', 0, 4, 'z' },
                                { 'd', 0, 5, 'w' } };
    struct gh_bank banks[4];
    double ns[50];
    uint32_t who = 0;

    begin();
    memset(banks, 0, sizeof(banks));
    for (int i = 0; i < 4; i++) {
        banks[i].comm = &comms[i];
        banks[i].next_shared = i < 3 ? &banks[i + 1] : NULL;
    }
    c.ranks.first = banks;
    for (int i = 0; i < 50; i++) {
        ns[i] = i + 1;
    }
    changes = larger;
    is_status(gh_rank_collect_largest(&c, STREAM, ns, 50, &who, &err), GH_OK,
              &err, "times are agreed on");
    is_str(calls, "followb@7 gatherb5 gatherb24 gatherb24 gatherb2 ",
           "behind the stream's work, by the bank with the most ranks, as many "
           "as fit at a time");
    ok(ns[0] == 10 && ns[1] == 2 && ns[23] == 24 && ns[24] == 250 &&
           ns[48] == 490 && ns[49] == 50,
       "and the largest of each is taken");
    ok(who == GH_NO_RANK, "nobody lacks any");
    begin();
    changes = lacks;
    is_status(gh_rank_collect_largest(&c, STREAM, ns, 2, &who, &err), GH_OK,
              &err, "a rank may lack times");
    is_int(who, OTHER, "which is found");
    is_str(calls, "followa@7 gathera5 ", "and nobody is asked for them");
    begin();
    gh_rank_collect_largest(&c, STREAM, NULL, 2, &who, &err);
    is_int(who, 0, "also where it is this one");
    begin();
    follows_fail = true;
    is_status(gh_rank_collect_largest(&c, STREAM, ns, 2, &who, &err),
              GH_ERR_RANKS, &err, "a rank that cannot follow parts");
    ok(!was("gather"), "and asks nobody");
    begin();
    fails_of = 2;
    is_status(gh_rank_collect_largest(&c, STREAM, ns, 2, &who, &err),
              GH_ERR_RANKS, &err, "nor are there times that did not come");
    begin();
    c.ranks.lost = true;
    is_status(gh_rank_collect_largest(&c, STREAM, ns, 2, &who, &err),
              GH_ERR_RANKS, &err, "nor one that has parted");
    is_str(calls, "", "which does nothing");
}

static void test_runs(void)
{
    const struct gh_rank_run run = { 0, UINT32_MAX, true, 77 };
    bool alike = false;

    begin();
    is_status(gh_rank_collect_run(&c, STREAM, &run, &alike, &err), GH_OK, &err,
              "runs are compared");
    ok(alike, "and alike");
    begin();
    changes = change_a_word;
    changed_word = GH_WORD_MORE;
    changed_by = 1;
    gh_rank_collect_run(&c, STREAM, &run, &alike, &err);
    ok(!alike && c.counts.stats.check_failures == 1 && !c.ranks.lost,
       "another order is no parting");
    ok(strstr(said, "at a run (forward 0, backward none, early): rank 2") !=
           NULL,
       "and is said: %s", said);
    begin();
    changed_word = GH_WORD_WORK;
    changes = change_a_word;
    is_status(gh_rank_collect_run(&c, STREAM, &run, &alike, &err), GH_ERR_RANKS,
              &err, "other chunks are");
}

/* ---- what may be recorded ------------------------------------------------ */

static void test_freeze(void)
{
    static const struct {
        uint64_t warmup, profile, freeze, step;
        gh_reason reason;
    } cases[] = {
        { 3, 0, 0, 2, GH_REASON_WARMUP }, { 3, 0, 0, 3, GH_REASON_NONE },
        { 3, 0, 2, 4, GH_REASON_NONE },   { 3, 0, 2, 5, GH_REASON_FROZEN },
        { 3, 5, 2, 5, GH_REASON_NONE },   { 3, 5, 2, 6, GH_REASON_NONE },
        { 3, 5, 2, 7, GH_REASON_FROZEN }, { 5, 3, 2, 6, GH_REASON_NONE },
        { 5, 3, 2, 7, GH_REASON_FROZEN }, { 3, 5, 0, 90, GH_REASON_NONE },
    };
    static struct gh_offload offload;
    const gh_pass pass = { .struct_size = sizeof(pass) };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        begin();
        bank.comm = NULL;
        c.ranks.first = NULL;
        offload.profile_steps = cases[i].profile;
        c.offload = cases[i].profile != 0 ? &offload : NULL;
        c.options.warmup_steps = cases[i].warmup;
        c.options.freeze = cases[i].freeze;
        c.counts.stats.iterations = cases[i].step;
        is_status(gh_decide_to_record(&c, &pass, &err), GH_OK, &err,
                  "warmup %d, profile %d, freeze %d: step %d",
                  (int)cases[i].warmup, (int)cases[i].profile,
                  (int)cases[i].freeze, (int)cases[i].step);
        is_int(c.open.reason, cases[i].reason, "records, or says why not");
    }
    begin();
    bank.comm = NULL;
    c.offload = &offload;
    profiles = true;
    gh_decide_to_record(&c, &pass, &err);
    is_int(c.open.reason, GH_REASON_WARMUP, "a profile is warmup");
}

static void test_recordings_together(void)
{
    const gh_pass pass = { .struct_size = sizeof(pass) };

    begin();
    c.open.action = GH_ACTION_RUN;
    is_status(gh_decide_to_record(&c, &pass, &err), GH_OK, &err,
              "a bank with ranks records");
    is_str(calls, "followa@7 gathera5 ", "once all ranks do");
    is_int(c.open.action, GH_ACTION_RECORD, "it does");
    begin();
    c.open.action = GH_ACTION_RUN;
    begins = false;
    gh_decide_to_record(&c, &pass, &err);
    is_int(gh_rank_words_answer(mine), NOT_NOW,
           "one that cannot begin says so");
    is_int(gh_rank_words_reason(mine), GH_REASON_CAPTURE, "and why");
    begin();
    c.open.flags = GH_PASS_LOCAL;
    gh_decide_to_record(&c, &pass, &err);
    is_str(calls, "", "a pass of this rank alone asks nobody");
    begin();
    c.options.warmup_steps = 99;
    gh_decide_to_record(&c, &pass, &err);
    is_str(calls, "", "nor does warmup, which is the same on all");
}

/* A rank without its sequences tells the others, which would wait for it. */
static void test_without_sequences(void)
{
    const gh_pass pass = { .struct_size = sizeof(pass) };
    static struct gh_slot slot;

    begin();
    c.open.at = &slot;
    c.open.reason = GH_REASON_PACKED;
    slot.eager = 0;
    is_status(gh_decide_without(&c, &pass, &err), GH_OK, &err,
              "a pass without sequences runs eagerly");
    is_str(calls, "followa@7 gathera5 ", "and the others are told");
    is_int(gh_rank_words_answer(mine), NOT_NOW, "that it is not now");
    is_int(gh_rank_words_reason(mine), GH_REASON_PACKED, "and why");
    begin();
    c.open.at = &slot;
    c.open.reason = GH_REASON_PACKED;
    c.options.check = GH_CHECKS_RANKS;
    gh_decide_without(&c, &pass, &err);
    is_str(calls, "followa@7 gathera5 ", "also where passes are compared");
    is_int(gh_rank_words_answer(mine), GH_ACTION_RUN, "as any pass that runs");
    begin();
    c.open.at = &slot;
    c.open.reason = GH_REASON_INPUT;
    gh_decide_without(&c, &pass, &err);
    is_str(calls, "", "what is eager on all ranks is not asked about");
    begin();
    c.open.at = &slot;
    c.open.reason = GH_REASON_PACKED;
    bank.comm = NULL;
    gh_decide_without(&c, &pass, &err);
    is_str(calls, "", "nor is a bank without ranks");
    begin();
    c.ranks.lost = true;
    c.open.reason = GH_REASON_RANKS;
    is_status(gh_decide_without(&c, &pass, &err), GH_ERR_RANKS, &err,
              "ranks that have parted run nothing");
}

static void test_leaving(void)
{
    const gh_pass misfit = { .direction = GH_FORWARD, .n_inputs = 1 };
    struct gh_entry recorded = { .n_inputs = 2 };
    struct gh_messages messages = { .reasons = 0 };

    begin();
    is_status(gh_decide_to_leave(&c, GH_REASON_INPUT, &err), GH_OK, &err,
              "a rank leaves its graph");
    is_str(calls, "followa@7 gathera5 ", "and tells the others");
    is_int(gh_rank_words_reason(mine), GH_REASON_INPUT, "why");
    begin();
    gathers_fail = true;
    c.open.entry = &recorded;
    c.messages = &messages;
    is_status(gh_decide_misfit(&c, &misfit, &err), GH_ERR_RANKS, &err,
              "where they replay, nobody comes");
    ok(strstr(messages.misfit, "1 inputs") != NULL,
       "what does not fit is noted: %s", messages.misfit);
    ok(strstr(said, "nobody came; here it is not replayed: ") != NULL,
       "and it is said what this rank does: %s", said);
}

static void change_the_last(uint64_t *theirs, uint32_t n)
{
    if (n == 3) {
        theirs[2]++;
    }
}

/* More options than ranks can compare at once. */
static void test_settings(void)
{
    enum { SETTINGS = GH_COMM_WORDS + 3 };
    static struct gh_setting settings[SETTINGS];
    struct gh_bank *banks[] = { NULL, NULL, &bank };
    const gh_ranks ranks = { .struct_size = sizeof(ranks),
                             .bank = 2,
                             .size = N };

    for (uint32_t i = 0; i < SETTINGS; i++) {
        settings[i].name = i == SETTINGS - 1 ? "the last" : "another";
        settings[i].word = i;
        snprintf(settings[i].text, sizeof(settings[i].text), "%u", i);
    }
    for (int differ = 0; differ < 2; differ++) {
        begin();
        c.ranks.first = NULL;
        bank.comm = NULL;
        c.banks.all = banks;
        c.banks.n = 3;
        c.options.settings = settings;
        c.options.n_settings = SETTINGS;
        changes = differ ? change_the_last : NULL;
        is_status(gh_ranks_open(&c, &ranks, &err),
                  differ ? GH_ERR_CONFIG : GH_OK, &err,
                  "ranks with %s options", differ ? "other" : "equal");
        is_str(calls,
               differ ? "gathera8 gathera24 gathera3 gathera6 closea "
                      : "gathera8 gathera24 gathera3 ",
               "all of which are compared");
        ok(differ ? bank.comm == NULL : bank.comm == &ours,
           "share a bank if none differs");
    }
    ok(strncmp(err.text, "the last is ", 12) == 0,
       "and else the one that does is named: %s", err.text);
}

int main(void)
{
    if (make_plan()) {
        test_settings();
        test_places();
        test_words();
        test_flags();
        test_beginnings();
        test_ends();
        test_compared_passes();
        test_parting();
        test_waiting();
        test_times();
        test_runs();
        test_freeze();
        test_recordings_together();
        test_without_sequences();
        test_leaving();
        gh_plan_free(&plan);
    }
    return done_with_device();
}
