/*
 * A trace is JSON at every moment, holds every pass, and overwrites nobody.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "tap/tap.h"
#include "trace/trace.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static char dir[] = "/tmp/gh-trace-XXXXXX";
static char text[1 << 20];
static gh_error err;

static char odd_name[] = "a \"b\"\\\n\xff";
static struct gh_layer layers[] = { { .name = (char *)"layer 0" },
                                    { .name = odd_name } };
static gh_segment segments[] = {
    { .first_layer = 0,
      .last_layer = 0,
      .first_part = GH_PART_ATTN,
      .last_part = GH_PART_MLP },
    { .first_layer = 1,
      .last_layer = 1,
      .first_part = GH_PART_MLP,
      .last_part = GH_PART_MLP },
};
static struct gh_plan plan = {
    .segments = segments, .n_segments = 2, .n_layers = 2, .layers = layers
};

static int warnings;
static char warning[512];

static void collect(void *user, gh_log_level level, const char *line)
{
    (void)user;
    (void)level;
    warnings++;
    snprintf(warning, sizeof(warning), "%s", line);
}

static struct gh_log sink = { GH_LOG_WARN, collect, NULL };

static const char *in_dir(const char *name)
{
    static char path[4][256];
    static int i;

    i = (i + 1) % 4;
    snprintf(path[i], sizeof(path[i]), "%s/%s", dir, name);
    return path[i];
}

static const char *slurp(const char *path)
{
    FILE *file = fopen(path, "r");
    size_t n = 0;

    if (file != NULL) {
        n = fread(text, 1, sizeof(text) - 1, file);
        fclose(file);
    }
    text[n] = '\0';
    return text;
}

/* A JSON reader that only says whether the text is JSON: each function takes
 * where a value begins and returns where it ends, or NULL. */
static const char *json(const char *at);

static const char *blanks(const char *at)
{
    return at + strspn(at, " \n\r\t");
}

static const char *json_string(const char *at)
{
    if (*at++ != '"') {
        return NULL;
    }
    for (; *at != '"'; at++) {
        if ((unsigned char)*at < 0x20 || (unsigned char)*at >= 0x80) {
            return NULL;
        }
        if (*at == '\\') {
            at++;
            if (*at == 'u') {
                if (strspn(at + 1, "0123456789abcdef") < 4) {
                    return NULL;
                }
                at += 4;
            } else if (*at == '\0' || strchr("\"\\/bfnrt", *at) == NULL) {
                return NULL;
            }
        }
    }
    return at + 1;
}

static const char *json_list(const char *at, char end, bool keys)
{
    at = blanks(at + 1);
    if (*at == end) {
        return at + 1;
    }
    for (;;) {
        if (keys) {
            at = json_string(blanks(at));
            if (at == NULL || *(at = blanks(at)) != ':') {
                return NULL;
            }
            at++;
        }
        at = json(blanks(at));
        if (at == NULL) {
            return NULL;
        }
        at = blanks(at);
        if (*at == end) {
            return at + 1;
        }
        if (*at++ != ',') {
            return NULL;
        }
    }
}

static const char *json(const char *at)
{
    size_t n;

    switch (*at) {
    case '{':
        return json_list(at, '}', true);
    case '[':
        return json_list(at, ']', false);
    case '"':
        return json_string(at);
    default:
        n = strspn(at, "-0123456789.eE+");
        return n > 0 ? at + n : NULL;
    }
}

static bool is_json(const char *whole)
{
    const char *end = json(blanks(whole));

    return end != NULL && *blanks(end) == '\0';
}

static struct gh_trace *open_trace(const char *path)
{
    struct gh_trace *trace = NULL;

    if (gh_trace_open(path, &plan, &sink, &trace, &err) != GH_OK) {
        diag("%s", err.text);
    }
    return trace;
}

static uint32_t count(const char *needle)
{
    uint32_t n = 0;

    for (const char *at = text; (at = strstr(at, needle)) != NULL; at++) {
        n++;
    }
    return n;
}

/* The file descriptors of this process, and the one of a file: -1 is none. */
static int open_files(void)
{
    int n = 0;

    for (int fd = 0; fd < 256; fd++) {
        n += fcntl(fd, F_GETFD) >= 0;
    }
    return n;
}

static int descriptor_of(const char *path)
{
    struct stat wanted, st;

    if (stat(path, &wanted) != 0) {
        return -1;
    }
    for (int fd = 3; fd < 256; fd++) {
        if (fstat(fd, &st) == 0 && st.st_dev == wanted.st_dev &&
            st.st_ino == wanted.st_ino) {
            return fd;
        }
    }
    return -1;
}

static const struct gh_trace_record replay = {
    .start_ns = 1234567,
    .end_ns = 1236068,
    .segment = 0,
    .microbatch = 2,
    .slot = 1,
    .direction = GH_FORWARD,
    .action = GH_ACTION_REPLAYED,
};

static void test_a_path_that_cannot_be_opened(void)
{
    const int files = open_files();
    struct gh_trace *trace = NULL;
    char *longest = malloc(8192);
    int reader;

    is_status(gh_trace_open(in_dir("no/t.json"), &plan, &sink, &trace, &err),
              GH_ERR_CONFIG, &err, "a missing directory is refused");
    ok(strstr(err.text, "GRAPHHOOKS_TRACE: cannot write") != NULL &&
           strstr(err.text, "/no/t.json: No such file or directory") != NULL,
       "the sentence names the path and the reason");
    is_status(gh_trace_open(dir, &plan, &sink, &trace, &err), GH_ERR_CONFIG,
              &err, "a directory is refused");
    mkfifo(in_dir("pipe"), 0600);
    is_status(gh_trace_open(in_dir("pipe"), &plan, &sink, &trace, &err),
              GH_ERR_CONFIG, &err, "a pipe is refused, and not waited for");
    reader = open(in_dir("pipe"), O_RDONLY | O_NONBLOCK);
    is_status(gh_trace_open(in_dir("pipe"), &plan, &sink, &trace, &err),
              GH_ERR_CONFIG, &err, "so is one that is read");
    close(reader);
    memset(longest, 'x', 8191);
    for (size_t n = 4095; n <= 8190; n += n < 4098 ? 1 : 4092) {
        longest[n] = '\0';
        is_status(gh_trace_open(longest, &plan, &sink, &trace, &err),
                  GH_ERR_CONFIG, &err, "a path of %zu bytes is refused", n);
        longest[n] = 'x';
    }
    is_int(open_files(), files, "no file stays open of a failure");
    ok(trace == NULL, "no trace comes of a failure");
    gh_trace_close(NULL);
    ok(true, "closing no trace does nothing");
    free(longest);
}

static void test_records_become_events(void)
{
    struct gh_trace *trace = open_trace(in_dir("t.json"));
    struct gh_trace_record record = replay;

    ok(strncmp(slurp(in_dir("t.json")), "[\n{", 3) == 0,
       "the file begins as an array when the session opens");
    ok(is_json(strcat(text, "]")), "and lacks only its end");

    gh_trace_event(trace, &record);
    record = (struct gh_trace_record){
        .start_ns = 2000000,
        .end_ns = 2000999,
        .segment = 1,
        .microbatch = 0,
        .slot = GH_SLOT_NONE,
        .direction = GH_BACKWARD,
        .action = GH_ACTION_RUN,
        .reason = GH_REASON_BUSY,
    };
    gh_trace_event(trace, &record);
    record.action = GH_ACTION_RECORD;
    record.rerun = 1;
    gh_trace_event(trace, &record);
    record.segment = 77;
    gh_trace_event(trace, &record);
    gh_trace_step_end(trace);
    is_int((slurp(in_dir("t.json")), count("\"ph\":\"X\"")), 0,
           "a step that leaves the buffer less than half full writes nothing");

    gh_trace_flush(trace);
    slurp(in_dir("t.json"));
    is_int(count("\"ph\":\"X\""), 4, "a flush writes every record");
    ok(is_json(strcat(text, "]")),
       "after a flush the file lacks only its end: a crash costs no more");
    ok(strstr(text, "\"ts\":1234.567,\"dur\":1.501,"
                    "\"name\":\"replay forward layer 0 mb2 slot1\"") != NULL,
       "an event has its time in microseconds, and says what was replayed");
    ok(strstr(text, "\"args\":{\"segment\":0,\"direction\":\"forward\","
                    "\"microbatch\":2,\"slot\":1,\"action\":\"replay\","
                    "\"reason\":\"none\"}") != NULL,
       "its arguments have segment, direction, microbatch, slot, action and "
       "reason");
    ok(strstr(text, "\"name\":\"eager backward a \\\"b\\\"\\\\\\u000a\\u00ff "
                    "mlp mb0\"") != NULL,
       "a layer's name is escaped, and a pass without a slot names none");
    ok(strstr(text, "\"reason\":\"busy\"") != NULL,
       "an eager pass has its reason");
    ok(strstr(text, "failed recording") != NULL,
       "a pass that ended with GH_RERUN is a failed recording");

    gh_trace_close(trace);
    ok(is_json(slurp(in_dir("t.json"))), "a closed file is whole");
    is_int(count("\"ph\":\"X\""), 4, "and has every record once");
}

static const struct gh_trace_work copy_out = {
    .start_ns = 5000000,
    .end_ns = 5001500,
    .lane = GH_TRACE_OUT,
    .microbatch = 3,
    .slot = 1,
    .layer = 1,
    .module = "core_\"attn\"",
    .bytes = 1048576,
};

/* Graphs that are on the lane of copies. */
static uint32_t count_misplaced(void)
{
    uint32_t n = 0;

    for (const char *at = text; (at = strstr(at, "{\"ph\":\"X\"")) != NULL;
         at++) {
        const char *tid = strstr(at, "\"tid\":");
        const char *name = strstr(at, "\"name\":\"");

        n += strncmp(name + 8, "graph", 5) == 0 &&
             strtoul(tid + 6, NULL, 10) % 100 < 4;
    }
    return n;
}

static void test_works(void)
{
    static const char streams[40];
    struct gh_trace *trace = open_trace(in_dir("w.json"));
    struct gh_trace_work work = copy_out;
    struct gh_trace_work node = { .start_ns = 5500000,
                                  .end_ns = 5502000,
                                  .lane = GH_TRACE_COMPUTE,
                                  .direction = GH_BACKWARD,
                                  .layer = 1,
                                  .node = 0,
                                  .first_part = GH_PART_ATTN,
                                  .last_part = GH_PART_MLP,
                                  .microbatch = 3,
                                  .slot = GH_SLOT_NONE,
                                  .order = "auto" };

    gh_trace_work(trace, &work);
    work.start_ns = 5001000; /* rounded: the one before has not ended */
    work.end_ns = 5003000;
    work.slot = GH_SLOT_NONE;
    gh_trace_work(trace, &work);
    work.lane = GH_TRACE_BACK;
    work.layer = 77;
    gh_trace_work(trace, &work);
    work = (struct gh_trace_work){ .start_ns = 6000000,
                                   .end_ns = 6000001,
                                   .lane = GH_TRACE_GRAPHS,
                                   .direction = GH_BACKWARD,
                                   .segment = 1,
                                   .variant = 2,
                                   .slot = 4 };
    gh_trace_work(trace, &node);
    node.lane = GH_TRACE_COMM;
    node.layer = 77;
    node.first_part = node.last_part = GH_PART_MOE_DISPATCH;
    gh_trace_work(trace, &node);
    for (int i = 0; i < 40; i++) {
        work.stream = &streams[i];
        gh_trace_work(trace, &work);
        gh_trace_work(trace, &work);
    }
    work.segment = 77;
    gh_trace_work(trace, &work);
    gh_trace_lose(trace, 2);
    gh_trace_lose(trace, 5);
    gh_trace_close(trace);
    ok(is_json(slurp(in_dir("w.json"))), "what the device did is JSON");
    is_int(count("\"ph\":\"X\""), 86, "and all of it is there");
    ok(strstr(text,
              "\"ts\":5500.000,\"dur\":2.000,\"name\":\"backward "
              "a \\\"b\\\"\\\\\\u000a\\u00ff attn..mlp mb3\",\"cat\":"
              "\"node\",\"args\":{\"layer\":1,\"node\":0,\"direction\":"
              "\"backward\",\"order\":\"auto\",\"microbatch\":3}}") != NULL,
       "a node has its direction, layer, parts, order and microbatch");
    ok(strstr(text, "\"name\":\"backward  moe_dispatch mb3\"") != NULL,
       "one of a layer that is not there has its part");
    ok(strstr(text,
              "\"ts\":5000.000,\"dur\":1.500,\"name\":\"out "
              "a \\\"b\\\"\\\\\\u000a\\u00ff, core_\\\"attn\\\" mb3\"") != NULL,
       "a copy has its time, layer, module and microbatch");
    ok(strstr(text, "\"cat\":\"out\",\"args\":{\"layer\":1,"
                    "\"module\":\"core_\\\"attn\\\"\",\"bytes\":1048576,"
                    "\"slot\":1,\"microbatch\":3}}") != NULL,
       "and its bytes and slot");
    ok(strstr(text, "\"ts\":5001.500,\"dur\":1.500,") != NULL,
       "what seems to overlap on a lane begins with the end before");
    ok(strstr(text, "\"ts\":5001.000,\"dur\":2.000,\"name\":\"back , core_") !=
           NULL,
       "and on another lane does not");
    ok(strstr(text,
              "\"name\":\"graph backward a \\\"b\\\"\\\\\\u000a\\u00ff mlp "
              "variant2 mb0\",\"cat\":\"graph\",\"args\":{\"segment\":1,"
              "\"direction\":\"backward\",\"first_layer\":1,"
              "\"last_layer\":1,\"slot\":4,\"microbatch\":0}}") != NULL,
       "a graph has its segment, layers and variant");
    is_int(count("copies to the host, session"), 1, "the lane out has a name");
    is_int(count("copies back to the device, session"), 1, "and the one back");
    is_int(count("\"graphs on stream "), 32, "and each of 32 streams");
    is_int(count_misplaced(), 0, "which those of more streams share");
    ok(strstr(text, "\"7 graphs and copies did not fit\"") != NULL,
       "the file says how many were lost");
}

/* Banks are named when they are declared, in any order, and far apart. */
/* The last counter follows what there was, and a new one only a change. */
static void test_memory(void)
{
    const gh_memory_stats none = { 0 };
    gh_memory_stats memory = { .slot_bytes = 1,
                               .bank_bytes = 2,
                               .offset_bytes = 3,
                               .ring_bytes = 4,
                               .kept_bytes = 5,
                               .check_bytes = 6,
                               .held_bytes = 7,
                               .spare_bytes = 8,
                               .pinned_bytes = 9 };
    struct gh_trace *trace = NULL;
    const char *path = in_dir("memory.json");
    const char *first, *second;

    if (gh_trace_open(path, &plan, &sink, &trace, &err) != GH_OK) {
        ok(false, "a trace opens: %s", err.text);
        return;
    }
    gh_trace_memory(trace, 1000, &none);
    gh_trace_memory(trace, 5000500, &memory);
    gh_trace_memory(trace, 6000000, &memory);
    memory.pinned_bytes = UINT64_MAX;
    gh_trace_memory(trace, 7000000, &memory);
    for (uint32_t i = 0; i < 2000; i++) {
        memory.slot_bytes = i;
        gh_trace_memory(trace, 8000000, &memory);
    }
    gh_trace_close(trace);
    ok(is_json(slurp(path)), "a trace with memory is JSON");
    first = strstr(text, "\"ph\":\"C\"");
    ok(first != NULL &&
           strstr(first, "\"ts\":5000.500,\"name\":\"memory of session") !=
               NULL &&
           strstr(first, "\"args\":{\"slots\":1,\"banks\":2,\"offsets\":3,"
                         "\"rings\":4,\"kept\":5,\"check\":6,\"held\":7,"
                         "\"spare\":8,\"pinned\":9}}") != NULL,
       "a counter has all parts");
    second = first != NULL ? strstr(first + 1, "\"ph\":\"C\"") : NULL;
    ok(second != NULL &&
           strncmp(strstr(second, "\"ts\""), "\"ts\":7000.000", 13) == 0,
       "and the next one comes with a change");
    ok(strstr(text, "\"slots\":1999,") != NULL, "many are all written");
}

static void test_banks(void)
{
    struct gh_trace *trace = open_trace(in_dir("banks.json"));
    struct gh_trace_record record = replay;
    const struct gh_trace_work graph = { .start_ns = 6000000,
                                         .end_ns = 6000001,
                                         .lane = GH_TRACE_GRAPHS,
                                         .slot = 4,
                                         .bank = 65535 };

    record.bank = 7; /* that nobody has named, as nobody any */
    gh_trace_event(trace, &record);
    gh_trace_flush(trace);
    gh_trace_name_bank(trace, 1, "256");
    gh_trace_name_bank(trace, 65535, "the \"last\"");
    gh_trace_name_bank(trace, 64, "");
    for (uint32_t bank = 0; bank < 3; bank++) {
        record.bank = bank;
        gh_trace_event(trace, &record);
    }
    record.bank = 64;
    gh_trace_event(trace, &record);
    gh_trace_work(trace, &graph);
    gh_trace_close(trace);
    ok(is_json(slurp(in_dir("banks.json"))), "events of banks are JSON");
    ok(strstr(text, "\"replay forward layer 0 bank1 mb2 slot1\"") != NULL,
       "an event says which bank it is of");
    ok(strstr(text, "\"slot\":1,\"bank\":1,\"bank_name\":\"256\","
                    "\"action\"") != NULL,
       "and has its number and its name as arguments");
    is_int(count("\"bank\":2,\"action\""), 1,
           "of a bank that nobody has named it has the number");
    is_int(count("\"bank\":64,\"action\""), 1, "and of one without a name");
    is_int(count("\"bank\":7,\"action\""), 1, "also where no bank has a name");
    is_int(count("mb2"), 5, "all are there");
    is_int(count("bank"), 12, "of bank 0 nothing is said");
    ok(strstr(text, "\"graph forward layer 0 bank65535 mb0\"") != NULL,
       "a graph's lane says it as well");
    ok(strstr(text, "\"last_layer\":0,\"bank\":65535,\"bank_name\":"
                    "\"the \\\"last\\\"\",\"slot\":4") != NULL,
       "with the same arguments, and a name is escaped");
}

/* More text than the buffer has: nothing waits for the end of the step. */
static void test_many_works(void)
{
    struct gh_trace *trace = open_trace(in_dir("many.json"));
    struct stat st;

    for (int i = 0; i < 1000; i++) {
        gh_trace_work(trace, &copy_out);
    }
    stat(in_dir("many.json"), &st);
    ok(st.st_size > 65536, "works are written when there is no more room");
    gh_trace_close(trace);
    ok(is_json(slurp(in_dir("many.json"))), "as JSON");
    is_int(count("\"cat\":\"out\""), 1000, "with each once");
}

static void test_a_full_buffer(void)
{
    struct gh_trace *trace = open_trace(in_dir("full.json"));
    struct stat st;
    uint32_t i, before;

    stat(in_dir("full.json"), &st);
    before = (uint32_t)st.st_size;
    for (i = 0; i < 32769; i++) {
        gh_trace_event(trace, &replay);
    }
    gh_trace_step_end(trace);
    stat(in_dir("full.json"), &st);
    ok((uint32_t)st.st_size > before,
       "a step that leaves the buffer more than half full writes it");
    for (i = 0; i < 65536 + 7; i++) {
        gh_trace_event(trace, &replay);
    }
    gh_trace_close(trace);
    stat(in_dir("full.json"), &st);
    ok(st.st_size > 98305 * 200, "everything that fitted is in the file");

    FILE *file = fopen(in_dir("full.json"), "r");
    fseek(file, -1000, SEEK_END);
    text[fread(text, 1, 1000, file)] = '\0';
    fclose(file);
    is_int(count("\"ts\":1236,\"name\":\"7 passes did not fit\""), 1,
           "what did not fit is counted in the file, once, at its time");
    ok(strcmp(text + strlen(text) - 3, "\n]\n") == 0, "which ends as it must");
}

/* More than the library puts together before it writes. */
static void test_many_events(void)
{
    const int files = open_files();
    struct gh_trace *trace = open_trace(in_dir("events.json"));

    for (uint32_t i = 0; i < 3000; i++) {
        gh_trace_event(trace, &replay);
    }
    gh_trace_close(trace);
    ok(is_json(slurp(in_dir("events.json"))), "3000 events are JSON");
    is_int(count("\"ph\":\"X\""), 3000, "and all there");
    is_int(open_files(), files, "a trace that is closed leaves no file open");

    trace = open_trace(in_dir("lost.json"));
    for (uint32_t i = 0; i < 65537; i++) {
        gh_trace_event(trace, &replay);
    }
    gh_trace_flush(trace);
    gh_trace_flush(trace);
    gh_trace_close(trace);
    FILE *file = fopen(in_dir("lost.json"), "r");
    fseek(file, -1000, SEEK_END);
    text[fread(text, 1, 1000, file)] = '\0';
    fclose(file);
    is_int(count("passes did not fit"), 1, "what is lost is said once");
}

static void test_a_name_without_an_end(void)
{
    static char name[4096];
    struct gh_layer *layer = &layers[0];
    char *before = layer->name;
    struct gh_trace *trace = open_trace(in_dir("name.json"));

    memset(name, 0x01, sizeof(name) - 1);
    layer->name = name;
    for (uint32_t i = 0; i < 300; i++) {
        gh_trace_event(trace, &replay);
    }
    gh_trace_close(trace);
    layer->name = before;
    ok(is_json(slurp(in_dir("name.json"))),
       "a layer's name may be long, and the file is JSON");
    is_int(count("\"ph\":\"X\""), 300, "with every event");
}

static void is_kept_from_children(const char *name)
{
    const int files = open_files();
    struct gh_trace *trace = open_trace(in_dir(name));

    is_str(gh_trace_path(trace), in_dir(name), "a trace goes to %s", name);
    is_int(open_files(), files + 1, "which is opened once");
    ok((fcntl(descriptor_of(in_dir(name)), F_GETFD) & FD_CLOEXEC) != 0,
       "and not handed to children");
    gh_trace_close(trace);
}

/* A daemon has closed what the shell gave it. */
static void test_a_host_without_standard_streams(void)
{
    static const char line[] = "a line of the host's\n";
    struct gh_trace *trace;
    ssize_t written;
    int before;

    fflush(NULL);
    before = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 10);
    close(STDERR_FILENO);
    trace = open_trace(in_dir("daemon.json"));
    written = write(STDERR_FILENO, line, sizeof(line) - 1);
    gh_trace_event(trace, &replay);
    gh_trace_close(trace);
    dup2(before, STDERR_FILENO);
    close(before);
    is_int(written, -1, "a trace does not take the place of standard error");
    ok(is_json(slurp(in_dir("daemon.json"))),
       "and has nothing of what goes there");
}

static void test_files_new_and_old(void)
{
    FILE *old = fopen(in_dir("old"), "w");

    fclose(old);
    is_kept_from_children("old");
    is_kept_from_children("new");
    remove(in_dir("new"));
    /* Most file systems give the number of the old file to the new one. */
    is_kept_from_children("new");
}

static void test_lanes(void)
{
    struct gh_trace *a = open_trace(in_dir("lane.a"));
    struct gh_trace *b = open_trace(in_dir("lane.b"));
    char lane[64];

    gh_trace_close(a);
    gh_trace_close(b);
    sscanf(strstr(slurp(in_dir("lane.a")), "\"tid\""), "%63[^,]", lane);
    slurp(in_dir("lane.b"));
    is_int(count(lane), 0, "two sessions have lanes of their own");
}

static void test_sessions_of_one_process_share_a_path(void)
{
    struct gh_trace *a = open_trace(in_dir("same.json"));
    struct gh_trace *b = open_trace(in_dir("same.json"));
    struct gh_trace *c;

    is_str(gh_trace_path(a), in_dir("same.json"),
           "the first session gets the name");
    is_str(gh_trace_path(b), in_dir("same.2.json"),
           "the second one gets .2 in it");
    gh_trace_event(a, &replay);
    gh_trace_close(a);
    gh_trace_close(b);
    c = open_trace(in_dir("same.json"));
    is_str(gh_trace_path(c), in_dir("same.3.json"),
           "a session that opens after both gets .3");
    gh_trace_close(c);
    slurp(in_dir("same.json"));
    is_int(count("\"ph\":\"X\""), 1, "the first one's events are still there");
}

/* More files than are remembered: the last ones are. */
static void test_a_process_of_many_sessions(void)
{
    struct gh_trace *trace;
    char name[32];

    for (uint32_t i = 0; i < 600; i++) {
        snprintf(name, sizeof(name), "many-%u.json", i);
        trace = open_trace(in_dir(name));
        gh_trace_close(trace);
    }
    for (uint32_t i = 599; i > 400; i -= 66) {
        char second[40];

        snprintf(name, sizeof(name), "many-%u.json", i);
        snprintf(second, sizeof(second), "many-%u.2.json", i);
        trace = open_trace(in_dir(name));
        is_str(gh_trace_path(trace), in_dir(second),
               "of 600 files the one before %u others is left alone", 599 - i);
        gh_trace_close(trace);
    }
}

static void test_names_without_an_ending(void)
{
    struct gh_trace *a = open_trace(in_dir("bare"));
    struct gh_trace *b = open_trace(in_dir("bare"));
    struct gh_trace *c = open_trace(in_dir(".hidden"));
    struct gh_trace *d = open_trace(in_dir(".hidden"));

    is_str(gh_trace_path(b), in_dir("bare.2"),
           "a name without an ending gets .2 at its end");
    is_str(gh_trace_path(d), in_dir(".hidden.2"),
           "the dot of a hidden file begins no ending");
    gh_trace_close(a);
    gh_trace_close(b);
    gh_trace_close(c);
    gh_trace_close(d);

    mkdir(in_dir("run.1"), 0700);
    a = open_trace(in_dir("run.1/bare"));
    b = open_trace(in_dir("run.1/bare"));
    is_str(gh_trace_path(b), in_dir("run.1/bare.2"),
           "the dot of a directory neither");
    gh_trace_close(a);
    gh_trace_close(b);
}

/* A path so long that a number does not fit. */
static void test_no_room_for_a_number(void)
{
    char path[4096];
    struct gh_trace *a, *b = NULL;
    size_t n = (size_t)snprintf(path, sizeof(path), "%s", dir);

    while (n < 3800) {
        n += (size_t)snprintf(path + n, sizeof(path) - n, "/%0100d", 0);
        mkdir(path, 0700);
    }
    for (; n < sizeof(path) - 1; n++) {
        path[n] = n % 200 == 100 ? '/' : 'y';
        if (path[n] == '/') {
            path[n] = '\0';
            mkdir(path, 0700);
            path[n] = '/';
        }
    }
    path[n] = '\0';
    a = open_trace(path);
    if (a == NULL) {
        skip(2, "no path of 4095 bytes here");
        return;
    }
    is_status(gh_trace_open(path, &plan, &sink, &b, &err), GH_ERR_CONFIG, &err,
              "a name without room for a number has no second session");
    ok(strstr(err.text, strerror(ENAMETOOLONG)) != NULL, "as is said: %s",
       err.text);
    gh_trace_close(a);
}

/* In the place of the C library's. */
static int no_locks;

int flock(int fd, int operation)
{
    if (no_locks != 0) {
        errno = no_locks;
        return -1;
    }
    return (int)syscall(SYS_flock, fd, operation);
}

static void test_a_file_system_without_locks(void)
{
    struct gh_trace *trace = NULL;

    no_locks = ENOLCK;
    is_status(
        gh_trace_open(in_dir("unlocked.json"), &plan, &sink, &trace, &err),
        GH_OK, &err, "a file that cannot be locked is traced to");
    no_locks = 0;
    is_str(trace != NULL ? gh_trace_path(trace) : "", in_dir("unlocked.json"),
           "by its own name");
    gh_trace_close(trace);
}

static void test_other_processes(void)
{
    struct gh_trace *trace;
    char wanted[64];
    int fd = open(in_dir("theirs.json"), O_WRONLY | O_CREAT, 0600);
    FILE *old = fopen(in_dir("old.json"), "w");

    /* flock is per open file: this one could as well be another process's. */
    flock(fd, LOCK_EX);
    trace = open_trace(in_dir("theirs.json"));
    is_str(gh_trace_path(trace), in_dir("theirs.2.json"),
           "a file that another process traces to is left alone");
    gh_trace_close(trace);
    close(fd);

    for (uint32_t i = 0; i < 1000; i++) {
        fputs("an older run", old);
    }
    fclose(old);
    trace = open_trace(in_dir("old.json"));
    is_str(gh_trace_path(trace), in_dir("old.json"),
           "an older run's file is replaced");
    gh_trace_close(trace);
    ok(is_json(slurp(in_dir("old.json"))), "all of it");

    trace = open_trace(in_dir("t-%p-%%.json"));
    snprintf(wanted, sizeof(wanted), "t-%ld-%%.json", (long)getpid());
    is_str(gh_trace_path(trace), in_dir(wanted),
           "%%p is the process id, and %%%% a percent sign");
    gh_trace_close(trace);
}

/* A child has the records, the text and the open file of its parent. */
static void test_a_forked_child(void)
{
    struct gh_trace *trace = open_trace(in_dir("fork.json"));
    int status = -1;
    pid_t child;

    gh_trace_event(trace, &replay);
    fflush(NULL);
    child = fork();
    if (child == 0) {
        gh_trace_close(trace);
        _exit(0);
    }
    waitpid(child, &status, 0);
    gh_trace_event(trace, &replay);
    gh_trace_close(trace);
    ok(status == 0 && is_json(slurp(in_dir("fork.json"))),
       "a trace is whole, though a forked child has closed its copy");
    is_int(count("\"ph\":\"X\""), 2, "with each event once");
}

static void test_a_full_disk(void)
{
    struct gh_trace *trace;

    if (access("/dev/full", W_OK) != 0) {
        skip(3, "no /dev/full");
        return;
    }
    warnings = 0;
    trace = open_trace("/dev/full");
    gh_trace_event(trace, &replay);
    gh_trace_flush(trace);
    gh_trace_event(trace, &replay);
    gh_trace_flush(trace);
    gh_trace_close(trace);
    is_int(warnings, 1, "a disk that is full is reported once");
    is_str(warning, "the trace /dev/full ends here: No space left on device",
           "with the path and the reason");
    ok(true, "and the session goes on");
}

/* Half of a part fits: that is the end, and not one part later. */
static void test_a_disk_that_fills_up(void)
{
    struct rlimit before, small = { 1000, 1000 };
    struct gh_trace *trace = open_trace(in_dir("limit.json"));

    getrlimit(RLIMIT_FSIZE, &before);
    small.rlim_max = before.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    warnings = 0;
    for (uint32_t i = 0; i < 100; i++) {
        gh_trace_event(trace, &replay);
    }
    setrlimit(RLIMIT_FSIZE, &small);
    gh_trace_flush(trace);
    setrlimit(RLIMIT_FSIZE, &before);
    is_int(warnings, 1, "what does not fit whole is the end of the trace");
    is_int(descriptor_of(in_dir("limit.json")), -1, "its file is closed");
    gh_trace_close(trace);
    is_int(warnings, 1, "and that is said once");
}

int main(void)
{
    char command[64];

    if (mkdtemp(dir) == NULL) {
        return skip_all("no directory for temporary files");
    }
    test_a_path_that_cannot_be_opened();
    test_records_become_events();
    test_works();
    test_memory();
    test_banks();
    test_many_works();
    test_a_full_buffer();
    test_many_events();
    test_a_name_without_an_end();
    test_a_host_without_standard_streams();
    test_files_new_and_old();
    test_lanes();
    test_sessions_of_one_process_share_a_path();
    test_a_process_of_many_sessions();
    test_names_without_an_ending();
    test_no_room_for_a_number();
    test_a_file_system_without_locks();
    test_other_processes();
    test_a_forked_child();
    test_a_disk_that_fills_up();
    test_a_full_disk();
    snprintf(command, sizeof(command), "rm -rf %s", dir);
    ok(system(command) == 0, "the temporary files are gone");
    return done_testing();
}
