/*
 * Every option has one parser, one sentence for a mistake, and one order:
 * default, then the host, then the environment.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "config/private.h"
#include "words/nearest.h"
#include "tap/tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct gh_env env;
static gh_error err;

/* Loads an environment of one string. */
static gh_status load1(const char *line)
{
    const char *const envp[] = { line, NULL };

    memset(&err, 0, sizeof(err));
    return gh_env_load(envp, &env, &err);
}

static void is_wrong(const char *line, const char *sentence)
{
    is_status(load1(line), GH_ERR_CONFIG, &err, "%s is refused", line);
    is_str(err.text, sentence, "%s has its own sentence", line);
}

static void test_bad_values_fail_with_the_rows_own_sentence(void)
{
    is_wrong("GRAPHHOOKS_ENABLE=maybe",
             "GRAPHHOOKS_ENABLE is \"maybe\"; set it to 0 or 1, or leave it "
             "out for 1");
    is_wrong("GRAPHHOOKS_SCOPE=attn,",
             "GRAPHHOOKS_SCOPE: \"attn,\" has an empty word: leave out the "
             "comma that is too many");
    is_wrong("GRAPHHOOKS_SCOPE=attn,,mlp",
             "GRAPHHOOKS_SCOPE: \"attn,,mlp\" has an empty word: leave out "
             "the comma that is too many");
    is_wrong("GRAPHHOOKS_SCOPE=attn,experts,mlp",
             "GRAPHHOOKS_SCOPE: \"experts\" is none of attn, mlp, moe, "
             "moe_router, moe_preprocess, mamba; leave it out for all");
    is_wrong("GRAPHHOOKS_GRANULARITY=layers",
             "GRAPHHOOKS_GRANULARITY is \"layers\"; set it to part or layer "
             "or chunk, or leave it out for layer: did you mean layer?");
    is_wrong("GRAPHHOOKS_WARMUP_STEPS=-1",
             "GRAPHHOOKS_WARMUP_STEPS is \"-1\"; set it to a number from 0 "
             "to 1000000, or leave it out for 1");
    is_wrong("GRAPHHOOKS_MAX_SLOTS=0",
             "GRAPHHOOKS_MAX_SLOTS is \"0\"; set it to a number from 1 to 64, "
             "or leave it out for 8");
    is_wrong("GRAPHHOOKS_DRIVER=hip",
             "GRAPHHOOKS_DRIVER is \"hip\"; set it to cuda or soft or a path "
             "with a /, or leave it out for cuda");
    is_wrong("GRAPHHOOKS_LOG=verbose",
             "GRAPHHOOKS_LOG is \"verbose\"; set it to off or warn or info or "
             "debug, or leave it out for warn");
    is_wrong("GRAPHHOOKS_CHECK=1",
             "GRAPHHOOKS_CHECK is \"1\"; set it to off or bitwise or ranks, or "
             "leave it out for off");
    is_wrong("GRAPHHOOKS_CHECK_EVERY=0",
             "GRAPHHOOKS_CHECK_EVERY is \"0\"; set it to a number from 1 to "
             "1000000, or leave it out for 1");
    is_wrong("GRAPHHOOKS_FREEZE=on",
             "GRAPHHOOKS_FREEZE is \"on\"; set it to a number from 0 to "
             "1000000, or leave it out for 0");
    is_wrong("GRAPHHOOKS_PLUGIN_PATH=/a::/b",
             "GRAPHHOOKS_PLUGIN_PATH is \"/a::/b\"; set it to directories "
             "separated by colons, or leave it out for none");
}

static void test_a_mistyped_word_has_the_one_that_was_meant(void)
{
    static char line[GH_ENV_PATH_BYTES];

    is_wrong("GRAPHHOOKS_SCOPE=attn,mo_router",
             "GRAPHHOOKS_SCOPE: \"mo_router\" is none of attn, mlp, moe, "
             "moe_router, moe_preprocess, mamba: did you mean moe_router?");
    is_wrong("GRAPHHOOKS_SCOPE=ATTN,mlp",
             "GRAPHHOOKS_SCOPE: \"ATTN\" is none of attn, mlp, moe, "
             "moe_router, moe_preprocess, mamba: did you mean attn?");
    is_wrong("GRAPHHOOKS_ENABLE=On",
             "GRAPHHOOKS_ENABLE is \"On\"; set it to 0 or 1, or leave it out "
             "for 1: did you mean on?");
    is_wrong("GRAPHHOOKS_DRIVER=sotf",
             "GRAPHHOOKS_DRIVER is \"sotf\"; set it to cuda or soft or a "
             "path with a /, or leave it out for cuda: did you mean soft?");
    is_wrong("GRAPHHOOKS_CHECK=rank",
             "GRAPHHOOKS_CHECK is \"rank\"; set it to off or bitwise or ranks, "
             "or leave it out for off: did you mean ranks?");

    /* of a word this long the first letters are not the word */
    strcpy(line, "GRAPHHOOKS_SCOPE=");
    memset(line + 17, 'a', 200);
    strcpy(line + 17 + 200, ",mlp");
    is_status(load1(line), GH_ERR_CONFIG, &err, "a long word is refused");
    ok(strstr(err.text, "aaa...\" is none of attn") != NULL &&
           strstr(err.text, "did you mean") == NULL,
       "it is cut short, and near to none: %s", err.text);
}

static void test_odd_values_are_refused(void)
{
    static const char *const lines[] = {
        "GRAPHHOOKS_ENABLE=2",
        "GRAPHHOOKS_ENABLE= 1",
        "GRAPHHOOKS_ENABLE=On",
        "GRAPHHOOKS_SCOPE=,attn",
        "GRAPHHOOKS_SCOPE=attn,,mlp",
        "GRAPHHOOKS_SCOPE=att",
        "GRAPHHOOKS_SCOPE=attn mlp",
        "GRAPHHOOKS_MAX_SLOTS=65",
        "GRAPHHOOKS_MAX_SLOTS=0x8",
        "GRAPHHOOKS_MAX_SLOTS=8 ",
        "GRAPHHOOKS_MAX_SLOTS=:",
        "GRAPHHOOKS_MAX_SLOTS=4294967297",
        "GRAPHHOOKS_WARMUP_STEPS=18446744073709551617",
        "GRAPHHOOKS_WARMUP_STEPS=1000001",
        "GRAPHHOOKS_DRIVER=libcuda.so",
        "GRAPHHOOKS_PLUGIN_PATH=:",
        "GRAPHHOOKS_PLUGIN_PATH=/a:",
        "GRAPHHOOKS_PLUGIN_PATH=:/a",
        "GRAPHHOOKS_OFFLOAD_FRACTION=1.01",
        "GRAPHHOOKS_OFFLOAD_FRACTION=2",
        "GRAPHHOOKS_OFFLOAD_FRACTION=.",
        "GRAPHHOOKS_OFFLOAD_FRACTION=0.5.5",
        "GRAPHHOOKS_OFFLOAD_FRACTION=-0.5",
        "GRAPHHOOKS_OFFLOAD_FRACTION=1e-1",
        "GRAPHHOOKS_OFFLOAD_FRACTION=0.000000000000000001",
        "GRAPHHOOKS_MEMORY_LIMIT=0%",
        "GRAPHHOOKS_MEMORY_LIMIT=101%",
        "GRAPHHOOKS_MEMORY_LIMIT=%",
        "GRAPHHOOKS_MEMORY_LIMIT=5%%",
        "GRAPHHOOKS_MEMORY_LIMIT=5.5%",
        "GRAPHHOOKS_OFFLOAD_MIN_BYTES=5%",
        "GRAPHHOOKS_OFFLOAD_MIN_BYTES=-1",
        "GRAPHHOOKS_OFFLOAD_MIN_BYTES=1k",
        "GRAPHHOOKS_OFFLOAD_MIN_BYTES=1234567890123456789",
    };

    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        is_status(load1(lines[i]), GH_ERR_CONFIG, &err, "%s is refused",
                  lines[i]);
    }
}

static void test_long_and_binary_values_are_shown_safely(void)
{
    static char line[GH_ENV_PATH_BYTES + 64];

    load1("GRAPHHOOKS_LOG=a\nb\x1b[2J\x7f");
    ok(strchr(err.text, '\n') == NULL && strchr(err.text, 0x1b) == NULL &&
           strchr(err.text, 0x7f) == NULL,
       "a sentence shows no control bytes");

    strcpy(line, "GRAPHHOOKS_LOG=");
    memset(line + 15, 'x', 1000);
    load1(line);
    ok(strstr(err.text, "xxx...\"; set it to off") != NULL,
       "a long value is cut short, and the rule still fits");

    strcpy(line, "GRAPHHOOKS_TRACE=");
    memset(line + 17, 'x', GH_ENV_PATH_BYTES - 1);
    is_status(load1(line), GH_OK, &err, "a path of 4095 bytes is taken");
    is_int(strlen(env.trace), GH_ENV_PATH_BYTES - 1, "and kept whole");
    line[17 + GH_ENV_PATH_BYTES - 1] = 'x';
    is_status(load1(line), GH_ERR_CONFIG, &err,
              "a path of 4096 bytes is refused");
    is_str(err.text,
           "GRAPHHOOKS_TRACE has 4096 bytes; use a path of less "
           "than 4096",
           "with a sentence");
}

static void test_defaults(void)
{
    int set = 0;

    is_status(gh_env_load(NULL, &env, &err), GH_OK, &err,
              "no environment at all is an empty one");
    is_int(env.enable, 1, "graphs are on by default");
    is_int(env.scope, 0, "the default scope is no choice: whole layers");
    is_int(env.granularity, GH_ENV_GRANULARITY_LAYER,
           "the default granularity is layer");
    is_int(env.warmup_steps, 1, "one step of warmup by default");
    is_int(env.max_slots, 8, "eight slots by default");
    is_str(env.driver, "cuda", "the default driver is cuda");
    is_int(env.log, GH_LOG_WARN, "the default log level is warn");
    is_str(env.trace, "", "there is no trace by default");
    is_int(env.check, GH_ENV_CHECK_OFF, "nothing is checked by default");
    is_int(env.check_every, 1, "a check is of every pass by default");
    is_int(env.freeze, 0, "recordings are never frozen by default");
    is_str(env.plugin_path, "", "there is no plugin path by default");
    for (int i = 0; i < GH_ENV_COUNT; i++) {
        set += env.set[i];
    }
    is_int(set, 0, "no row came from an empty environment");
}

static void test_values_are_taken(void)
{
    static const char *const envp[] = {
        "PATH=/bin",
        "GRAPHHOOKS_ENABLE=off",
        "GRAPHHOOKS_SCOPE=mlp",
        "GRAPHHOOKS_GRANULARITY=part",
        "GRAPHHOOKS_WARMUP_STEPS=0",
        "GRAPHHOOKS_MAX_SLOTS=64",
        "GRAPHHOOKS_MAX_BANKS=1024",
        "GRAPHHOOKS_MEMORY_LIMIT=8589934593",
        "GRAPHHOOKS_DRIVER=./libcuda.so",
        "GRAPHHOOKS_LOG=debug",
        "GRAPHHOOKS_TRACE=t.json",
        "GRAPHHOOKS_CHECK=bitwise",
        "GRAPHHOOKS_CHECK_EVERY=100",
        "GRAPHHOOKS_VERIFY=always",
        "GRAPHHOOKS_NCCL=./libnccl.so.2",
        "GRAPHHOOKS_TIMEOUT=10",
        "GRAPHHOOKS_FREEZE=7",
        "GRAPHHOOKS_STRICT=1",
        "GRAPHHOOKS_NVTX=1",
        "GRAPHHOOKS_WATCHDOG=1",
        "GRAPHHOOKS_PLUGIN_PATH=/a:/b",
        "GRAPHHOOKS_OFFLOAD=core_attn,my_own",
        "GRAPHHOOKS_OFFLOAD_FRACTION=0.75",
        "GRAPHHOOKS_OFFLOAD_MIN_BYTES=8589934592",
        "GRAPHHOOKS_OFFLOAD_BUFFERS=3",
        "GRAPHHOOKS_OFFLOAD_POOL_BYTES=123456789012345678",
        "GRAPHHOOKS_OFFLOAD_KEEP_BYTES=4294967297",
        "GRAPHHOOKS_OFFLOAD_PREFETCH=5",
        "GRAPHHOOKS_OFFLOAD_IN_FLIGHT=6",
        "GRAPHHOOKS_OFFLOAD_DELAY=1",
        "GRAPHHOOKS_OFFLOAD_APART=1",
        "GRAPHHOOKS_OVERLAP=auto",
        "GRAPHHOOKS_EP_EXCHANGE=copy",
        "GRAPHHOOKS_EP_EXCHANGE_SMALL=65536",
        "GRAPHHOOKS_FREEZE=8",
        NULL,
    };
    static const char *const yes[] = { "1", "on", "yes", "true" };
    static const char *const no[] = { "0", "off", "no", "false" };
    char line[64];
    const char *left_out = "";

    is_status(gh_env_load(envp, &env, &err), GH_OK, &err,
              "every variable can be set at once");
    is_int(env.enable, 0, "ENABLE is taken");
    is_int(env.scope, 1u << 1, "SCOPE is taken");
    is_int(env.granularity, GH_ENV_GRANULARITY_PART, "GRANULARITY is taken");
    is_int(env.warmup_steps, 0, "WARMUP_STEPS is taken, and may be 0");
    is_int(env.max_slots, 64, "MAX_SLOTS is taken");
    is_int(env.max_banks, 1024, "MAX_BANKS is taken");
    ok(env.memory_limit == UINT64_C(8589934593), "MEMORY_LIMIT is taken");
    is_str(env.driver, "./libcuda.so", "DRIVER takes a path");
    is_int(env.log, GH_LOG_DEBUG, "LOG is taken");
    is_str(env.trace, "t.json", "TRACE is taken");
    is_int(env.check, GH_ENV_CHECK_BITWISE, "CHECK is taken");
    is_int(env.check_every, 100, "CHECK_EVERY is taken");
    is_int(env.verify, 2, "VERIFY is taken");
    is_str(env.nccl, "./libnccl.so.2", "NCCL takes a path");
    is_int(env.timeout, 10, "TIMEOUT is taken");
    is_int(env.freeze, 7, "of two FREEZE the first counts, as for getenv");
    is_int(env.strict, 1, "STRICT is taken");
    is_int(env.nvtx, 1, "NVTX is taken");
    is_int(env.watchdog, 1, "WATCHDOG is taken");
    is_str(env.plugin_path, "/a:/b", "PLUGIN_PATH is taken");
    is_str(env.offload, "core_attn,my_own", "OFFLOAD is taken");
    ok(env.offload_fraction == 0.75, "OFFLOAD_FRACTION is taken");
    ok(env.offload_min_bytes == UINT64_C(8589934592),
       "OFFLOAD_MIN_BYTES is taken, beyond 32 bits");
    is_int(env.offload_buffers, 3, "OFFLOAD_BUFFERS is taken");
    ok(env.offload_pool_bytes == UINT64_C(123456789012345678),
       "OFFLOAD_POOL_BYTES is taken");
    ok(env.offload_keep_bytes == UINT64_C(4294967297),
       "OFFLOAD_KEEP_BYTES is taken");
    is_int(env.offload_prefetch, 5, "OFFLOAD_PREFETCH is taken");
    is_int(env.offload_in_flight, 6, "OFFLOAD_IN_FLIGHT is taken");
    is_int(env.offload_delay, 1, "OFFLOAD_DELAY is taken");
    is_int(env.offload_apart, 1, "OFFLOAD_APART is taken");
    is_int(env.overlap, 2, "OVERLAP is taken");
    is_int(env.ep_exchange, 2, "EP_EXCHANGE is taken");
    ok(env.ep_exchange_small == 65536, "EP_EXCHANGE_SMALL is taken");
    is_int(env.notes.n, 0, "known names and those of others earn no note");
    for (int i = 0; i < GH_ENV_COUNT; i++) {
        left_out = env.set[i] ? left_out : gh_env_table[i].name;
    }
    is_str(left_out, "", "every row is marked as set; give a new one a value "
                         "here");

    for (size_t i = 0; i < 4; i++) {
        snprintf(line, sizeof(line), "GRAPHHOOKS_ENABLE=%s", yes[i]);
        ok(load1(line) == GH_OK && env.enable == 1, "%s turns it on", line);
        snprintf(line, sizeof(line), "GRAPHHOOKS_ENABLE=%s", no[i]);
        ok(load1(line) == GH_OK && env.enable == 0, "%s turns it off", line);
    }
    ok(load1("GRAPHHOOKS_MEMORY_LIMIT=100%") == GH_OK &&
           env.memory_limit == (GH_ENV_BYTES_SHARE | 100),
       "MEMORY_LIMIT takes a percentage");
    load1("GRAPHHOOKS_DRIVER=/x");
    is_str(env.driver, "/x", "a value that is shorter than the default ends");
    ok(load1("GRAPHHOOKS_LOG=off") == GH_OK && env.log == 0,
       "LOG=off is level 0");
    ok(load1("GRAPHHOOKS_SCOPE=mlp,attn,mlp") == GH_OK && env.scope == 3,
       "every word of a list counts, and one twice no more than once");
    ok(load1("GRAPHHOOKS_MAX_SLOTS=") == GH_OK && env.max_slots == 8 &&
           !env.set[GH_ENV_MAX_SLOTS],
       "an empty value is the same as none");
    ok(load1("GRAPHHOOKS_ENABLE") == GH_OK && env.enable == 1,
       "a string without = is nobody's variable");
}

static void test_environment_wins_over_the_host_over_the_default(void)
{
    load1("GRAPHHOOKS_SCOPE=mlp");
    is_status(
        gh_env_offer(&env, GH_ENV_SCOPE, "gh_session_desc.scope", "attn", &err),
        GH_OK, &err, "a host may offer what the environment has set");
    is_int(env.scope, 1u << 1, "the environment wins");
    is_status(
        gh_env_offer(&env, GH_ENV_GRANULARITY, "granularity", "part", &err),
        GH_OK, &err, "a host may offer what nobody has set");
    is_int(env.granularity, GH_ENV_GRANULARITY_PART,
           "the host wins over the default");
    is_status(gh_env_offer(&env, GH_ENV_DRIVER, "driver", NULL, &err), GH_OK,
              &err, "a NULL offer is none");
    is_status(gh_env_offer(&env, GH_ENV_DRIVER, "driver", "", &err), GH_OK,
              &err, "an empty offer is none");
    is_str(env.driver, "cuda", "the default holds where nobody spoke");

    is_status(gh_env_offer(&env, GH_ENV_SCOPE, "gh_session_desc.scope", "mambo",
                           &err),
              GH_ERR_CONFIG, &err,
              "a bad offer fails although the environment wins");
    ok(strncmp(err.text, "gh_session_desc.scope: \"mambo\" is", 33) == 0 &&
           strstr(err.text, ": did you mean mamba?") != NULL,
       "the sentence names the host's field, and the word that was meant");
    is_status(gh_env_offer(&env, GH_ENV_DRIVER, "driver", "hip", &err),
              GH_ERR_CONFIG, &err, "a bad offer fails");
    is_str(env.driver, "cuda", "and leaves the value as it was");

    is_status(gh_env_offer_count(&env, GH_ENV_MAX_SLOTS, "max_slots", 0, &err),
              GH_OK, &err, "a count of 0 is no offer");
    is_int(env.max_slots, 8, "and keeps the default");
    is_status(gh_env_offer_count(&env, GH_ENV_MAX_SLOTS, "max_slots", 12, &err),
              GH_OK, &err, "a count can be offered");
    is_int(env.max_slots, 12, "and is taken");
    gh_env_offer_count(&env, GH_ENV_MAX_SLOTS, "max_slots", 1, &err);
    is_int(env.max_slots, 1, "one is a count");
    is_status(gh_env_offer_count(&env, GH_ENV_MAX_SLOTS,
                                 "gh_session_desc.max_slots", 65, &err),
              GH_ERR_CONFIG, &err, "a count out of range fails");
    is_str(err.text,
           "gh_session_desc.max_slots is \"65\"; set it to a number "
           "from 1 to 64, or leave it out for 8",
           "with the row's sentence");
}

/* An offer that does not count is looked at in a place of its own. */
static void test_an_offer_as_long_as_it_may_be(void)
{
    static char path[GH_ENV_PATH_BYTES];

    memset(path, '/', sizeof(path) - 1);
    load1("GRAPHHOOKS_DRIVER=soft");
    is_status(gh_env_offer(&env, GH_ENV_DRIVER, "driver", path, &err), GH_OK,
              &err, "an offer of 4095 bytes is fine");
    is_str(env.driver, "soft", "and does not count where the environment does");
    load1("GRAPHHOOKS_PLUGIN_PATH=/b");
    gh_env_offer(&env, GH_ENV_PLUGIN_PATH, "plugins", path, &err);
    is_str(env.plugin_path, "/b", "whichever option it is for");
}

static void test_a_rule_in_little_room(void)
{
    char text[32];

    memset(text, 'x', sizeof(text));
    gh_env_rule(&gh_env_table[GH_ENV_SCOPE], text, 12);
    is_str(text, "one or more", "a rule is cut where there is no more room");
    ok(text[12] == 'x', "and nothing is written beyond");
}

static void test_a_value_in_little_room(void)
{
    char text[9] = "........";

    text[8] = 'x';
    is_str(gh_env_shown("abcdefgh", text, 8), "abcd...",
           "a value is cut where there is no more room");
    ok(text[8] == 'x', "and nothing of it is written beyond");
    is_str(gh_env_shown("abcdefg", text, 8), "abcdefg",
           "one that just fits is whole");
}

static void test_unknown_names_are_reported(void)
{
    static const char *const known[] = {
        "GRAPHHOOKS_TEST_DRIVER=cuda",
        "GRAPHHOOKS_TEST_=1",
        "GRAPHHOOKS_SOFTCUDA=x",
        "GRAPHHOOKS_LIBRARY=y",
        NULL,
    };
    static const char *const many[] = {
        "GRAPHHOOKS_A1=",
        "GRAPHHOOKS_A2=",
        "GRAPHHOOKS_A3=",
        "GRAPHHOOKS_A4=",
        "GRAPHHOOKS_A5=",
        "GRAPHHOOKS_A6=",
        "GRAPHHOOKS_A7=",
        "GRAPHHOOKS_A8=",
        "GRAPHHOOKS_A9=",
        "GRAPHHOOKS_A0=",
        NULL,
    };
    char line[256];

    is_status(load1("GRAPHHOOKS_ENABEL=0"), GH_OK, &err,
              "an unknown name is no error");
    is_int(env.notes.n, 1, "it is reported");
    is_str(env.notes.line[0],
           "GRAPHHOOKS_ENABEL is not a variable of this release; did you "
           "mean GRAPHHOOKS_ENABLE?",
           "with the nearest known name");
    load1("GRAPHHOOKS_SLOTS=4");
    ok(strstr(env.notes.line[0], "mean GRAPHHOOKS_MAX_SLOTS?") != NULL,
       "SLOTS is near MAX_SLOTS");
    load1("GRAPHHOOKS_QUUX=4");
    is_str(env.notes.line[0],
           "GRAPHHOOKS_QUUX is not a variable of this release; `graphhooks "
           "env` lists them",
           "a name that is near none gets no suggestion");
    load1("GRAPHHOOKS_=4");
    is_int(env.notes.n, 1, "the bare prefix is reported");
    snprintf(line, sizeof(line), "GRAPHHOOKS_%0150d=1", 0);
    load1(line);
    ok(env.notes.n == 1 && strstr(env.notes.line[0], "0... is not") != NULL,
       "a very long name is reported, cut short");
    snprintf(line, sizeof(line), "GRAPHHOOKS_%054d=1", 0);
    load1(line);
    ok(env.notes.n == 1 && strstr(env.notes.line[0], "0... is not") != NULL,
       "so is one of 65 bytes");
    snprintf(line, sizeof(line), "GRAPHHOOKS_%053d=1", 0);
    load1(line);
    ok(env.notes.n == 1 && strstr(env.notes.line[0], "0... is not") == NULL,
       "one of 64 is not cut");
    load1("GRAPHHOOKS_TESTS=1");
    is_int(env.notes.n, 1, "a name that is nearly one of the tests' is not");
    load1("GRAPHHOOKS_LIBRAY=1");
    ok(env.notes.n == 1 && strstr(env.notes.line[0], "did you mean") == NULL,
       "a name of the project's tools is not suggested");
    load1("GRAPHHOOKS_A\x1b[2J=1");
    ok(env.notes.n == 1 && strchr(env.notes.line[0], 0x1b) == NULL,
       "a name shows no control bytes");

    is_status(gh_env_load(known, &env, &err), GH_OK, &err,
              "names of the project's tools are accepted");
    is_int(env.notes.n, 0, "and not reported");
    gh_env_load(many, &env, &err);
    is_int(env.notes.n, 8, "the first eight unknown names are reported");
    is_int(env.notes.lost, 2, "and the others counted");
}

static void test_the_nearest_name(void)
{
    static const char *const names[] = { "ENABLE", "SCOPE", "MAX_SLOTS", NULL };

    is_str(nearest_word("SCPOE", names), "SCOPE", "a swap is near");
    is_str(nearest_word("SCOP", names), "SCOPE", "a letter short is near");
    is_str(nearest_word("SCOPES", names), "SCOPE", "one too many is near");
    is_str(nearest_word("SKOPE", names), "SCOPE", "a wrong one is near");
    is_str(nearest_word("scope", names), "SCOPE", "small letters are near");
    is_str(nearest_word("socpe", names), "SCOPE", "and may be swapped");
    ok(nearest_word("", names) == NULL, "nothing is near no letters");
    ok(nearest_word("VERBOSE", names) == NULL, "VERBOSE is near none");
}

/* A table with the row that the real one does not have yet. */
struct values {
    uint32_t kept;
};
static const struct gh_env_row fixture[] = {
    { "GRAPHHOOKS_KEPT", "3", "A row.", NULL, offsetof(struct values, kept), 0,
      9, GH_ENV_KIND_COUNT, GH_ENV_STATE_STABLE, GH_ENV_RANKS_OWN },
    { "GRAPHHOOKS_CP_BANK", "",
      "no effect since 1.2, as banks are always "
      "per CP size.",
      NULL, 0, 0, 0, GH_ENV_KIND_BOOL, GH_ENV_STATE_REMOVED,
      GH_ENV_RANKS_OWN },
};

/* A word of a list may wait for a later release, too. */
static void test_a_refused_word_of_a_list(void)
{
    static const struct gh_env_word words[] = { { "now", NULL },
                                                { "later", "needs time" },
                                                { NULL, NULL } };
    static const struct gh_env_row row = {
        "GRAPHHOOKS_WHEN", "", "A row.", words, 0, 0, 0, GH_ENV_KIND_LIST,
        GH_ENV_STATE_STABLE, GH_ENV_RANKS_OWN
    };
    static const char *const envp[] = { "GRAPHHOOKS_WHEN=now,later", NULL };
    struct gh_env_notes notes;
    struct values values;
    bool set;

    is_status(gh_env_load_rows(&row, 1, envp, &values, &set, &notes, &err),
              GH_ERR_CONFIG, &err, "a word of a list that waits is refused");
    is_str(err.text,
           "GRAPHHOOKS_WHEN: later needs time; set it to one or more, with "
           "commas, of now",
           "with what it waits for");
    is_int(values.kept, 0, "and the list is as it was");
}

static void test_removed_names_are_reported_with_their_reason(void)
{
    static const char *const envp[] = { "GRAPHHOOKS_CP_BANK=nonsense",
                                        "GRAPHHOOKS_KEPT=4", NULL };
    struct gh_env_notes notes;
    struct values values;
    bool set[2] = { true, false };

    is_status(gh_env_load_rows(fixture, 2, envp, &values, set, &notes, &err),
              GH_OK, &err, "a removed name never fails, whatever its value");
    is_int(notes.n, 1, "it is reported");
    is_str(notes.line[0],
           "GRAPHHOOKS_CP_BANK is set: no effect since 1.2, "
           "as banks are always per CP size.",
           "with what became of it");
    ok(values.kept == 4 && set[0], "the other rows are read as ever");
}

static char printed[32768];
static size_t printed_bytes;

static void collect(void *user, const char *text, size_t bytes)
{
    (void)user;
    if (printed_bytes + bytes < sizeof(printed)) {
        memcpy(printed + printed_bytes, text, bytes);
        printed_bytes += bytes;
        printed[printed_bytes] = '\0';
    }
}

static void print(enum gh_env_format format, const char *const *envp)
{
    printed_bytes = 0;
    gh_env_print(format, envp, collect, NULL);
}

static void test_the_table_is_printed(void)
{
    static const char *const envp[] = { "HOME=/",
                                        "GRAPHHOOKS_FREEZE=3",
                                        "GRAPHHOOKS_LOG=loud",
                                        "GRAPHHOOKS_CHECK=yes",
                                        "GRAPHHOOKS_MAX_SLOTS=",
                                        "GRAPHHOOKS_TARCE=x",
                                        NULL };
    const char *noted;

    print(GH_ENV_FORMAT_MARKDOWN, envp);
    ok(strncmp(printed, "| variable | values | default | meaning |\n", 42) == 0,
       "the table has a head");
    ok(strstr(printed, "| `GRAPHHOOKS_MAX_SLOTS` | a number from 1 to 64 | 8 "
                       "| Microbatches in flight that get graphs of their "
                       "own. |\n") != NULL,
       "a row of the table has name, values, default and meaning");
    ok(strstr(printed, "TEST_") == NULL, "tools' names are not in the table");
    ok(strstr(printed, "loud") == NULL,
       "the table does not depend on the environment");

    print(GH_ENV_FORMAT_TEXT, envp);
    ok(strstr(printed, "GRAPHHOOKS_FREEZE=3  (set)\n") != NULL,
       "what is set is shown as set");
    ok(strstr(printed, "GRAPHHOOKS_MAX_SLOTS=8\n") != NULL,
       "what is not shows its default");
    ok(strstr(printed, "    wrong: GRAPHHOOKS_LOG is \"loud\"") != NULL &&
           strstr(printed, "    wrong: GRAPHHOOKS_CHECK is \"yes\"") != NULL,
       "every wrong value is shown with its sentence");
    noted = strstr(printed, "note: ");
    ok(noted != NULL && strncmp(noted, "note: GRAPHHOOKS_TARCE is not", 29) == 0,
       "unknown names are shown");
    ok(noted != NULL && strstr(noted + 1, "note: ") == NULL, "each once");
}

/* README.md is looked for in the source directory, as `make check` says. */
static void test_the_readme_has_the_same_table(void)
{
    static char readme[1 << 18];
    const char *srcdir = getenv("srcdir");
    char path[4096];
    size_t bytes;
    FILE *file;

    snprintf(path, sizeof(path), "%s/README.md", srcdir ? srcdir : ".");
    file = fopen(path, "r");
    if (file == NULL) {
        skip(1, "%s is not there to compare with", path);
        return;
    }
    bytes = fread(readme, 1, sizeof(readme) - 1, file);
    readme[bytes] = '\0';
    fclose(file);
    print(GH_ENV_FORMAT_MARKDOWN, NULL);
    if (!ok(strstr(readme, printed) != NULL,
            "README.md holds the table as `graphhooks env --markdown` has "
            "it")) {
        diag("%s", printed);
    }
}

static void test_the_process_environment(void)
{
    bool found = false;

    setenv("GRAPHHOOKS_TEST_SEEN", "1", 1);
    for (const char *const *e = gh_env_process(); *e != NULL; e++) {
        found |= strcmp(*e, "GRAPHHOOKS_TEST_SEEN=1") == 0;
    }
    ok(found, "the process's environment is seen");
}

/* That tests/session/ranks/lost.c knows them all. */
/* Numbers are compared, and not the text that is shown of them. */
static void test_ranks_compare_numbers(void)
{
    const char *const envp[] = { "GRAPHHOOKS_OFFLOAD_MIN_BYTES=8589934592",
                                 "GRAPHHOOKS_MAX_SLOTS=5",
                                 "GRAPHHOOKS_MEMORY_LIMIT=7%", NULL };
    struct gh_setting settings[GH_ENV_COUNT];
    uint32_t n, found = 0;

    gh_env_load(envp, &env, NULL);
    n = gh_env_settings(&env, settings);
    for (uint32_t i = 0; i < n; i++) {
        const struct gh_setting *s = &settings[i];

        if (strcmp(s->name, "GRAPHHOOKS_MEMORY_LIMIT") == 0) {
            found++;
            is_str(s->text, "7%", "a percentage is shown as one");
        } else if (strcmp(s->name, "GRAPHHOOKS_OFFLOAD_MIN_BYTES") == 0) {
            found++;
            ok(s->word == UINT64_C(8589934592), "bytes are compared");
            is_str(s->text, "8589934592", "and shown");
        } else if (strcmp(s->name, "GRAPHHOOKS_MAX_SLOTS") == 0) {
            found++;
            ok(s->word == 5, "and so are counts");
        }
    }
    is_int(found, 3, "all are the same on all ranks");
}

static void test_ranks_compare_all_but_what_is_their_own(void)
{
    struct gh_setting settings[GH_ENV_COUNT];
    struct gh_env env;
    const uint32_t same = 0
#define SAME 1
#define OWN 0
#define GH_ENV(id, field, kind, dflt, least, most, words, ranks, doc) +ranks
#define GH_ENV_OTHER(name, state, doc)
#include "config/env.def"
#undef GH_ENV
#undef GH_ENV_OTHER
        ;
    uint32_t n;

    gh_env_load(NULL, &env, NULL);
    n = gh_env_settings(&env, settings);
    is_int(n, same, "ranks compare the options that env.def calls SAME");
    is_str(settings[0].name, "GRAPHHOOKS_ENABLE", "by their names");
    for (uint32_t i = 0; i < n; i++) {
        ok(settings[i].text[0] != '\0', "%s has a text: %s", settings[i].name,
           settings[i].text);
    }
}

int main(void)
{
    test_bad_values_fail_with_the_rows_own_sentence();
    test_a_mistyped_word_has_the_one_that_was_meant();
    test_odd_values_are_refused();
    test_long_and_binary_values_are_shown_safely();
    test_defaults();
    test_values_are_taken();
    test_environment_wins_over_the_host_over_the_default();
    test_an_offer_as_long_as_it_may_be();
    test_a_rule_in_little_room();
    test_a_value_in_little_room();
    test_unknown_names_are_reported();
    test_the_nearest_name();
    test_a_refused_word_of_a_list();
    test_removed_names_are_reported_with_their_reason();
    test_the_table_is_printed();
    test_the_readme_has_the_same_table();
    test_the_process_environment();
    test_ranks_compare_numbers();
    test_ranks_compare_all_but_what_is_their_own();
    return done_testing();
}
