/*
 * What a host asks of a session reaches the plan, the device and the log, and
 * a session that does not open leaves nothing behind.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/by_hand.h"
#include "tap/tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- a log that is counted ---------------------------------------------- */

struct heard {
    uint32_t lines[GH_LOG_DEBUG + 1]; /* by level */
    char all[8192];
};

static void count_line(void *user, gh_log_level level, const char *line)
{
    struct heard *heard = user;
    const size_t used = strlen(heard->all);

    heard->lines[level]++;
    snprintf(heard->all + used, sizeof(heard->all) - used, "%s\n", line);
}

static uint32_t times(const struct heard *heard, const char *words)
{
    uint32_t n = 0;

    for (const char *at = heard->all; (at = strstr(at, words)) != NULL; at++) {
        n++;
    }
    return n;
}

static gh_host_services listening(struct heard *heard)
{
    *heard = (struct heard){ .all = "" };
    return (gh_host_services){ .struct_size = sizeof(gh_host_services),
                               .user = heard,
                               .log = count_line };
}

/* ---- the description ---------------------------------------------------- */

static gh_model *dense_model(void)
{
    const gh_layer_desc layer = { .struct_size = sizeof(layer) };
    gh_model *model;

    gh_model_create(&model, NULL);
    gh_model_add_layer(model, &layer, NULL);
    return model;
}

/* The segments of one dense layer, when a session opens without a driver. */
static uint32_t segments_with(uint32_t flags, const char *const *environment)
{
    gh_model *model = dense_model();
    const gh_session_desc desc = { .struct_size = sizeof(desc),
                                   .model = model,
                                   .flags = flags,
                                   .driver = "/no/such/driver.so",
                                   .environment = environment };
    gh_session *session = NULL;
    uint32_t n;

    if (gh_session_open(&desc, &session, &err) != GH_OK) {
        diag("%s", err.text);
    }
    n = gh_plan_segment_count(session, 0);
    gh_session_close(session);
    gh_model_destroy(model);
    return n;
}

static void test_flags_and_environment(void)
{
    static const char *const disabled[] = { "GRAPHHOOKS_ENABLE=0",
                                            "GRAPHHOOKS_LOG=off", NULL };

    is_int(segments_with(0, disabled), 1, "a dense layer is one graph");
    is_int(segments_with(GH_SESSION_EP_OVERLAP, disabled), 2,
           "with expert overlap its attention and its MLP are one each");

    setenv("GRAPHHOOKS_ENABLE", "0", 1);
    setenv("GRAPHHOOKS_LOG", "off", 1);
    setenv("GRAPHHOOKS_GRANULARITY", "part", 1);
    is_int(segments_with(0, NULL), 2,
           "the process's environment counts where the host gives none");
    is_int(segments_with(0, disabled), 1, "and not where it gives one");
    unsetenv("GRAPHHOOKS_GRANULARITY");
    unsetenv("GRAPHHOOKS_LOG");
    unsetenv("GRAPHHOOKS_ENABLE");
}

static void test_numbers_that_are_too_large(void)
{
    gh_model *model = dense_model();
    gh_session_desc desc = { .struct_size = sizeof(desc),
                             .model = model,
                             .driver = "/no/such/driver.so",
                             .warmup_steps = 1000001 };
    gh_session *session = NULL;

    is_int(gh_session_open(&desc, &session, &err), GH_ERR_CONFIG,
           "a host's warmup that is too long is refused");
    ok(strstr(err.text, "gh_session_desc.warmup_steps") != NULL,
       "and named: %s", err.text);
    desc.warmup_steps = 1;
    desc.max_slots = 65;
    is_int(gh_session_open(&desc, &session, &err), GH_ERR_CONFIG,
           "so are too many slots");
    ok(strstr(err.text, "gh_session_desc.max_slots") != NULL, "and named: %s",
       err.text);
    gh_model_destroy(model);
}

/* ---- services ----------------------------------------------------------- */

/* Those that go with others. */
#define SERVICES(service) \
    service(device_alloc) service(device_free) service(record_begin) \
    service(record_end) service(retain) service(release) \
    service(capture_begin) service(capture_end) service(launch) \
    service(destroy)

static gh_status open_with(const gh_host_services *host)
{
    static const char *const disabled[] = { "GRAPHHOOKS_ENABLE=0", NULL };
    gh_model *model = dense_model();
    const gh_session_desc desc = { .struct_size = sizeof(desc),
                                   .model = model,
                                   .host = host,
                                   .driver = "/no/such/driver.so",
                                   .environment = disabled };
    gh_session *session = NULL;
    gh_status status = gh_session_open(&desc, &session, &err);

    gh_session_close(session);
    gh_model_destroy(model);
    return status;
}

static void test_half_a_service(void)
{
    const gh_host_services none = { .struct_size = sizeof(none) };
    gh_host_services some = none;

    is_status(open_with(&none), GH_OK, &err, "a host may lend nothing");
    some.reserved = 7;
    is_status(open_with(&some), GH_ERR_INVALID, &err,
              "the reserved field is not for hosts");
    is_str(err.text, "gh_host_services.reserved is 7: zero it", "as is said");
#define TEST_ALONE(name) \
    some = none; \
    memset(&some.name, 1, sizeof(some.name)); \
    is_status(open_with(&some), GH_ERR_INVALID, &err, \
              #name " goes not alone"); \
    ok(strstr(err.text, "gh_host_services has " #name " without ") != NULL, \
       "which is said: %s", err.text);
    SERVICES(TEST_ALONE)
#undef TEST_ALONE
}

/* ---- the plan, handed out ----------------------------------------------- */

static void take(void *user, const char *text, size_t bytes)
{
    char *all = user;

    strncat(all, text, bytes);
}

/* Three layers, in chunks of one and of two. */
static gh_session *open_two_chunks(void)
{
    static const char *const disabled[] = { "GRAPHHOOKS_ENABLE=0",
                                            "GRAPHHOOKS_LOG=off", NULL };
    gh_layer_desc layer = { .struct_size = sizeof(layer) };
    gh_session *session = NULL;
    gh_session_desc desc = { .struct_size = sizeof(desc),
                             .environment = disabled };
    gh_model *model;

    gh_model_create(&model, NULL);
    for (uint32_t i = 0; i < 3; i++) {
        layer.chunk = i > 0;
        gh_model_add_layer(model, &layer, NULL);
    }
    desc.model = model;
    is_status(gh_session_open(&desc, &session, &err), GH_OK, &err,
              "a session of two chunks opens");
    gh_model_destroy(model);
    return session;
}

static void test_segments(const gh_session *session)
{
    gh_segment segment = { .struct_size = sizeof(segment) };

    is_int(gh_plan_segment_count(session, 0), 1, "the first has one segment");
    is_int(gh_plan_segment_count(session, 1), 2, "the second has two");
    is_int(gh_plan_segment_count(session, 2), 0, "there is no third");
    is_status(gh_plan_segment(session, 1, 1, &segment, &err), GH_OK, &err,
              "the last segment is handed out");
    ok(segment.index == 2 && segment.chunk == 1 && segment.first_layer == 2,
       "with its own index, chunk and layer");
    is_status(gh_plan_segment(session, 1, 2, &segment, &err), GH_ERR_NOT_FOUND,
              &err, "there is none after it");
    is_status(gh_plan_segment(session, 0, 1, &segment, &err), GH_ERR_NOT_FOUND,
              &err, "nor in the chunk before");
    is_str(err.text,
           "gh_plan_segment: chunk 0 has 1 segments, there is no number 1",
           "as is said");
    is_status(gh_plan_segment(session, 9, 0, &segment, &err), GH_ERR_NOT_FOUND,
              &err, "and none in a chunk that there is not");
    is_str(err.text, "gh_plan_segment: chunk is 9, and the plan has 2",
           "as is said too");
    is_status(gh_plan_segment(session, 0, 0, NULL, &err), GH_ERR_INVALID, &err,
              "and somewhere it has to go");
}

/* The parts of a layer with experts, one segment each. */
static void test_segments_with_weights(uint32_t flags)
{
    static const char *const by_part[] = { "GRAPHHOOKS_ENABLE=0",
                                           "GRAPHHOOKS_LOG=off",
                                           "GRAPHHOOKS_GRANULARITY=part", NULL };
    const uint32_t weights = 1u << GH_PART_ATTN | 1u << GH_PART_MOE_EXPERTS;
    gh_layer_desc layer = { .struct_size = sizeof(layer),
                            .kind = GH_LAYER_MOE,
                            .experts = 4 };
    gh_session_desc desc = { .struct_size = sizeof(desc),
                             .flags = flags,
                             .environment = by_part };
    gh_session *session = NULL;
    uint32_t right = 0, n;
    gh_model *model;

    gh_model_create(&model, NULL);
    gh_model_add_layer(model, &layer, NULL);
    desc.model = model;
    is_status(gh_session_open(&desc, &session, &err), GH_OK, &err,
              "a session of parts opens");
    gh_model_destroy(model);
    n = gh_plan_segment_count(session, 0);
    for (uint32_t i = 0; i < n; i++) {
        gh_segment s = { .struct_size = sizeof(s), .reserved = 9 };
        bool has;

        gh_plan_segment(session, 0, i, &s, NULL);
        has = flags != 0 && (weights >> s.first_part & 1) != 0;
        right += s.flags == (has ? GH_SEGMENT_HAS_WGRAD : 0) &&
                 s.first_part == s.last_part && s.reserved == 0;
    }
    is_int(n, 7, "a layer with experts has seven parts");
    is_int(right, n, "each says whether weight gradients follow%s",
           flags != 0 ? "" : ", which nothing does at once");
    gh_session_close(session);
}

static void test_printing(const gh_session *session)
{
    char text[8192] = "";

    is_status(gh_plan_print(session, GH_FORMAT_TEXT, NULL, text, &err),
              GH_ERR_INVALID, &err, "a plan is not printed to nobody");
    is_status(gh_plan_print(session, GH_FORMAT_JSON + 1, take, text, &err),
              GH_ERR_INVALID, &err, "nor in a format that there is not");
    is_str(text, "", "and nothing of it was");
    is_status(gh_plan_print(session, GH_FORMAT_JSON, take, text, &err), GH_OK,
              &err, "it is printed as JSON");
    ok(text[0] == '{', "which begins so");
    text[0] = '\0';
    is_status(gh_plan_print(session, GH_FORMAT_TEXT, take, text, &err), GH_OK,
              &err, "and as text");
    ok(text[0] != '{' && text[0] != '\0', "which does not");
}

static void test_the_plan(void)
{
    gh_border border = { .struct_size = sizeof(border) };
    gh_session *session = open_two_chunks();
    const uint32_t n = gh_plan_border_count(session, 2, GH_SIDE_OUT);

    test_segments(session);
    test_segments_with_weights(GH_SESSION_DELAY_WGRAD);
    test_segments_with_weights(0);
    test_printing(session);
    ok(n > 0, "something crosses a border");
    is_status(gh_plan_border(session, 2, GH_SIDE_OUT, n - 1, &border, &err),
              GH_OK, &err, "the last of it is handed out");
    is_status(gh_plan_border(session, 2, GH_SIDE_OUT, n, &border, &err),
              GH_ERR_NOT_FOUND, &err, "there is none after it");
    is_int(gh_plan_border_count(session, 3, GH_SIDE_OUT), 0,
           "nothing crosses the borders of a segment that there is not");
    is_int(gh_plan_border_count(session, 2, GH_SIDE_OUT + 1), 0,
           "nor a side that there is not");
    is_status(gh_plan_border(session, 3, GH_SIDE_IN, 0, &border, &err),
              GH_ERR_NOT_FOUND, &err, "neither is handed out");
    gh_session_close(session);
}

static void test_names_of_reasons(void)
{
    static const char *const names[] = {
        "none",     "disabled",     "plan",         "warmup", "busy",
        "capture",  "device",       "input",        "frozen", "check",
        "mismatch", "host_capture", "forward_only", "empty",  "paused",
        "banks",    "packed",       "unbound",      "ranks",
    };
    const uint32_t n = sizeof(names) / sizeof(names[0]);

    for (uint32_t i = 0; i < n; i++) {
        is_str(gh_reason_name(i), names[i], "reason %u is %s", i, names[i]);
    }
    is_str(gh_reason_name(n), "?", "there is none after them");
}

/* ---- the log ------------------------------------------------------------ */

static struct heard open_with_log(const char *level)
{
    char variable[64];
    const char *const environment[] = { variable, "GRAPHHOOKS_SLOTS=4", NULL };
    struct heard heard;
    const gh_host_services host = listening(&heard);

    snprintf(variable, sizeof(variable), "GRAPHHOOKS_LOG=%s", level);
    if (start((struct toy_options){
            .layers = 1, .host = &host, .environment = environment })) {
        run_both(0, toy.streams[0]);
        toy_close(&toy);
    }
    return heard;
}

static void test_levels_of_the_log(void)
{
    struct heard heard = open_with_log("off");

    is_str(heard.all, "", "a log that is off says nothing");
    heard = open_with_log("warn");
    ok(times(&heard, "did you mean GRAPHHOOKS_MAX_SLOTS?") == 1 &&
           heard.lines[GH_LOG_INFO] == 0 && heard.lines[GH_LOG_DEBUG] == 0,
       "one for warnings says that a name is not known, and no more");
    heard = open_with_log("info");
    ok(heard.lines[GH_LOG_WARN] == 1 && times(&heard, "device 0, ") == 1 &&
           heard.lines[GH_LOG_DEBUG] == 0,
       "one for information has the device, and no recordings");
    heard = open_with_log("debug");
    is_int(heard.lines[GH_LOG_DEBUG], 2, "one for debugging has recordings");
}

/* What is warned of, and what a session decides without a warning. */
static void test_what_open_says(void)
{
    static const gh_layer_desc moe = { .struct_size = sizeof(moe),
                                       .kind = GH_LAYER_MOE,
                                       .experts = 8,
                                       .family = "gpt" };
    static const char *const levels[] = { "GRAPHHOOKS_LOG=warn",
                                          "GRAPHHOOKS_LOG=info" };

    for (uint32_t i = 0; i < 2; i++) {
        const char *const environment[] = { levels[i], NULL };
        struct heard heard;
        const gh_host_services host = listening(&heard);

        if (start((struct toy_options){ .layer = &moe,
                                        .host = &host,
                                        .environment = environment })) {
            toy_close(&toy);
        }
        is_int(heard.lines[GH_LOG_WARN], 1,
               "%s says that experts are kept out of graphs", levels[i]);
        is_int(times(&heard, "family gpt: "), i,
               "and %s the file of the family", i == 0 ? "not" : "has");
    }
}

static void test_too_many_names(void)
{
    static const char *const environment[] = {
        "GRAPHHOOKS_A1=1", "GRAPHHOOKS_A2=1", "GRAPHHOOKS_A3=1",
        "GRAPHHOOKS_A4=1", "GRAPHHOOKS_A5=1", "GRAPHHOOKS_A6=1",
        "GRAPHHOOKS_A7=1", "GRAPHHOOKS_A8=1", "GRAPHHOOKS_A9=1",
        "GRAPHHOOKS_A0=1", NULL
    };
    struct heard heard;
    const gh_host_services host = listening(&heard);

    if (start((struct toy_options){
            .layers = 1, .host = &host, .environment = environment })) {
        toy_close(&toy);
    }
    is_int(times(&heard, "is not a variable of this release"), 8,
           "the first eight names that are not known are said");
    is_int(times(&heard, "and 2 more names like these"), 1,
           "and how many more there are");
}

/* A second reason is not silenced by the first. */
static void test_what_is_said_once(void)
{
    static const char *const loud[] = { NULL };
    struct heard heard;
    const gh_host_services host = listening(&heard);
    gh_buffer in;
    struct io io;

    if (!start((struct toy_options){ .layers = 1,
                                     .max_slots = 1,
                                     .in_flight = 2,
                                     .host = &host,
                                     .environment = loud })) {
        return;
    }
    in = buffer(0, 64, 0);
    io = (struct io){ .inputs = &in, .n_inputs = 1 };
    run_with(0, GH_FORWARD, 0, toy.streams[0], &io);
    is_str(heard.all, "", "a pass that is recorded is nothing to warn of");
    for (uint32_t i = 0; i < 50; i++) {
        run_both(1, toy.streams[0]);
    }
    is_int(toy_eager(&toy, GH_REASON_BUSY), 100,
           "100 passes find no slot");
    is_int(times(&heard, "; this is said once"), 1, "which is said once");
    run(0, GH_BACKWARD, 0, toy.streams[0]);
    for (uint32_t i = 0; i < 50; i++) {
        run_both(0, toy.streams[0]);
    }
    is_int(toy_eager(&toy, GH_REASON_INPUT), 50,
           "50 passes have other inputs than were recorded");
    is_int(times(&heard, "; this is said once"), 2, "which is said once more");
    is_int(times(&heard, "it has 0 inputs, and had 1 when it was recorded; "
                          "this is said once"),
           1, "in its own words");
    is_int(heard.lines[GH_LOG_WARN], 2, "and nothing else is");
    toy_close(&toy);
}

/* ---- the device --------------------------------------------------------- */

static gh_status open_on(int32_t device, void *context, struct heard *heard)
{
    static const char *const info[] = { "GRAPHHOOKS_LOG=info", NULL };
    const gh_host_services host = listening(heard);
    gh_model *model = dense_model();
    const gh_session_desc desc = { .struct_size = sizeof(desc),
                                   .model = model,
                                   .host = &host,
                                   .driver = toy.soft ? "soft" : "cuda",
                                   .context = context,
                                   .device = device,
                                   .environment = info };
    gh_status status = gh_session_open(&desc, &toy.session, &err);

    gh_model_destroy(model);
    toy_detach(&toy);
    return status;
}

static void test_which_device(void)
{
    struct heard heard;
    CUcontext second = NULL;
    CUdevice device;

    toy.drv.cuDeviceGet(&device, 1);
    toy.drv.cuDevicePrimaryCtxRetain(&second, device);
    is_status(open_on(1, NULL, &heard), GH_OK, &err, "a session opens");
    is_int(times(&heard, "device 0, "), 1, "in the context that is current");
    is_status(open_on(0, second, &heard), GH_OK, &err, "a session opens");
    is_int(times(&heard, "device 1, "), 1, "in the context that it is given");
    toy.drv.cuCtxSetCurrent(NULL);
    is_status(open_on(1, NULL, &heard), GH_OK, &err, "a session opens");
    is_int(times(&heard, "device 1, "), 1,
           "on the device that it is given, where no context is current");
    is_status(open_on(2, NULL, &heard), GH_ERR_NO_DRIVER, &err,
              "a device that there is not is refused");
    is_str(err.text,
           "gh_session_desc.device is 2, but the driver has 2 devices",
           "in a sentence");
    is_int(open_on(-1, NULL, &heard), GH_ERR_NO_DRIVER, "so is a negative one");
    toy.drv.cuCtxSetCurrent(toy.ctx);
    toy.drv.cuDevicePrimaryCtxRelease(device);
}

/* Without these there is no session. */
static bool is_needed(const char *entry)
{
    static const char *const needed[] = {
        "cuInit",
        "cuCtxGetCurrent",
        "cuDeviceGetCount",
        "cuDeviceGet",
        "cuDevicePrimaryCtxRetain",
        "cuCtxSetCurrent",
        "cuCtxGetDevice",
        "cuDeviceGetName",
        "cuDriverGetVersion",
    };

    for (size_t i = 0; i < sizeof(needed) / sizeof(needed[0]); i++) {
        if (strcmp(entry, needed[i]) == 0) {
            return true;
        }
    }
    return false;
}

/* Every call of the driver that opening makes, failing in its turn. */
static void test_a_failed_open_keeps_no_context(void)
{
    softcuda_entry_fn *entry_at =
        (softcuda_entry_fn *)toy_control(&toy, "softcuda_entry");
    const uint64_t before = toy_counts(&toy).contexts_retained;
    uint32_t wrong = 0, kept = 0;
    struct heard heard;
    const char *entry;

    for (uint32_t i = 0; (entry = entry_at(i)) != NULL; i++) {
        char settings[96];
        bool failed;

        snprintf(settings, sizeof(settings), "FAIL=%s:1", entry);
        toy_configure(&toy, settings);
        toy.drv.cuCtxSetCurrent(NULL);
        toy_configure(&toy, settings);
        failed = open_on(0, NULL, &heard) != GH_OK;
        toy_configure(&toy, "");
        if (failed ? strstr(err.text, entry) == NULL : is_needed(entry)) {
            diag("%s fails: %s", entry, failed ? err.text : "a session opens");
            wrong++;
        }
        toy.drv.cuCtxSetCurrent(toy.ctx);
        if (toy_counts(&toy).contexts_retained != before &&
            strcmp(entry, "cuDevicePrimaryCtxRelease") != 0) {
            diag("%s fails: a context is kept", entry);
            kept++;
        }
        while (toy_counts(&toy).contexts_retained > before) {
            toy.drv.cuDevicePrimaryCtxRelease(0);
        }
        kept += toy_counts(&toy).contexts_retained < before;
    }
    is_int(wrong, 0, "each call that a session needs keeps it from opening, "
                     "and is named");
    is_int(kept, 0, "none leaves a context retained, or releases the host's");
}

/* A user's granularity that the host cannot run fails the open. */
static void test_what_the_host_can_run(void)
{
    static const struct {
        const char *granularity, *scope;
        uint32_t can;
        const char *cannot; /* NULL: it opens */
    } cases[] = {
        { "layer", "", GH_CAN_LAYERS, NULL },
        { "layer", "attn", GH_CAN_LAYERS, "some parts of a layer" },
        { "part", "", GH_CAN_LAYERS, "some parts of a layer" },
        { "part", "", GH_CAN_PARTS, NULL },
        { "chunk", "", GH_CAN_LAYERS | GH_CAN_PARTS, "several layers" },
        { "chunk", "", GH_CAN_CHUNKS, NULL },
        { "layer", "", GH_CAN_PARTS | GH_CAN_CHUNKS, "a whole layer" },
        { "part", "", 0, NULL },
    };
    static const char *const on[] = { "GRAPHHOOKS_LOG=off", NULL };
    static const char *const off[] = { "GRAPHHOOKS_ENABLE=0",
                                       "GRAPHHOOKS_LOG=off", NULL };
    const gh_layer_desc layer = { .struct_size = sizeof(layer) };
    gh_model *model = dense_model();

    gh_model_add_layer(model, &layer, NULL);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        gh_session_desc desc = { .struct_size = sizeof(desc),
                                 .model = model,
                                 .driver = toy.soft ? "soft" : "cuda",
                                 .granularity = cases[i].granularity,
                                 .scope = cases[i].scope,
                                 .capabilities = cases[i].can,
                                 .environment = on };
        gh_session *session = NULL;

        err.text[0] = '\0';
        is_status(gh_session_open(&desc, &session, &err),
                  cases[i].cannot == NULL ? GH_OK : GH_ERR_CONFIG, &err,
                  "granularity %s, scope \"%s\", of a host that can do 0x%x",
                  cases[i].granularity, cases[i].scope, cases[i].can);
        ok(cases[i].cannot == NULL ||
               (strstr(err.text, cases[i].cannot) != NULL &&
                strstr(err.text, "GRAPHHOOKS_GRANULARITY") != NULL),
           "it is told what it cannot run: %s", err.text);
        gh_session_close(session);

        session = NULL;
        desc.environment = off;
        is_status(gh_session_open(&desc, &session, &err), GH_OK, &err,
                  "with GRAPHHOOKS_ENABLE=0 it runs all of it eagerly");
        gh_session_close(session);
    }
    gh_model_destroy(model);
}

static void test_capabilities_that_are_none(void)
{
    gh_model *model = dense_model();
    gh_session_desc desc = { .struct_size = sizeof(desc),
                             .model = model,
                             .capabilities = 8,
                             .environment = quiet };
    gh_session *session = NULL;

    is_status(gh_session_open(&desc, &session, &err), GH_ERR_INVALID, &err,
              "a capability that is none is refused");
    desc.capabilities = 0;
    desc.reserved_tail = 1;
    is_status(gh_session_open(&desc, &session, &err), GH_ERR_INVALID, &err,
              "and so is what is reserved");
    gh_model_destroy(model);
}

int main(void)
{
    const struct toy_options options = { .layers = 1, .elems = 64 };
    const char *reason;

    test_capabilities_that_are_none();
    test_flags_and_environment();
    test_numbers_that_are_too_large();
    test_half_a_service();
    test_the_plan();
    test_names_of_reasons();

    /* Two devices, where the device is software. */
    setenv("SOFTCUDA_DEVICES", "2", 1);
    if (!toy_probe(&toy, &reason)) {
        skip(1, "%s", reason);
        return done_testing();
    }
    test_what_the_host_can_run();
    test_levels_of_the_log();
    test_what_open_says();
    test_too_many_names();
    test_what_is_said_once();
    if (!toy.soft) {
        skip(1, "only the software device has two devices, and fails on "
                "demand");
        return done_testing();
    }
    if (!toy_open(&toy, &options, &reason)) {
        ok(false, "the toy host opens a device: %s", reason);
        return done_testing();
    }
    test_which_device();
    test_a_failed_open_keeps_no_context();
    toy_close(&toy);
    return done_testing();
}
