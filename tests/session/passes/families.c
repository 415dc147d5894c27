/*
 * A session takes what a family says, refuses what is wrong with it in one
 * sentence, and never calls it once it is open.
 *
 * Families are compiled here from tests/plugin/fixture.c, against the public
 * headers alone; fixtures.txt has what is to be said of each.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/toy.h"
#include "tap/tap.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char scratch[64];
static gh_error err;

/* ---- files --------------------------------------------------------------- */

static const char *from_env(const char *name, const char *fallback)
{
    const char *value = getenv(name);

    return value != NULL && value[0] != '\0' ? value : fallback;
}

/* A sanitizer has constructors and symbols of its own. */
static bool is_sanitized(void)
{
    return from_env("sanitize", "")[0] != '\0';
}

static bool shell(const char *command)
{
    return system(command) == 0;
}

/* Makes `directory`/`name`.so, a fixture called `name`. */
static bool build_with(const char *directory, const char *name,
                       const char *fixture, const char *flags)
{
    char command[2048];

    snprintf(command, sizeof(command),
             "mkdir -p %s && %s -shared -fPIC -fvisibility=hidden %s "
             "-I%s/include -DFIXTURE_%s -DNAME='\"%s\"' %s -o %s/%s.so "
             "%s/tests/plugin/fixture.c",
             directory, from_env("CC", "cc"), from_env("sanitize", ""),
             from_env("srcdir", "."), fixture, name, flags, directory, name,
             from_env("srcdir", "."));
    return shell(command);
}

static bool build(const char *directory, const char *name, const char *fixture)
{
    return build_with(directory, name, fixture, "");
}

/* ---- sessions ------------------------------------------------------------ */

/* The layers of a model, by their families: NULL ends it. */
struct layers {
    gh_layer_kind kind;
    const char *family;
};

static gh_model *model_of(const struct layers *layers, uint32_t n)
{
    gh_model *model = NULL;

    gh_model_create(&model, NULL);
    for (uint32_t i = 0; i < n; i++) {
        gh_layer_desc desc = { .struct_size = sizeof(desc),
                               .kind = layers[i].kind,
                               .family = layers[i].family };

        desc.experts = desc.kind == GH_LAYER_MOE ? 8 : 0;
        gh_model_add_layer(model, &desc, NULL);
    }
    return model;
}

/* Without a driver, as no pass is run. */
static gh_status open_model(const gh_model *model, const char *path,
                            const char *scope, gh_session **session_p)
{
    char variable[4200];
    const char *const environment[] = { "GRAPHHOOKS_ENABLE=0",
                                        "GRAPHHOOKS_LOG=off", variable, NULL };
    const gh_session_desc desc = { .struct_size = sizeof(desc),
                                   .model = model,
                                   .scope = scope,
                                   .driver = "/no/such/driver.so",
                                   .environment = environment };

    snprintf(variable, sizeof(variable), "GRAPHHOOKS_PLUGIN_PATH=%s", path);
    *session_p = NULL;
    err.text[0] = '\0';
    return gh_session_open(&desc, session_p, &err);
}

static gh_status open_layers(const struct layers *layers, uint32_t n,
                             const char *path, gh_session **session_p)
{
    gh_model *model = model_of(layers, n);
    gh_status status = open_model(model, path, NULL, session_p);

    gh_model_destroy(model);
    return status;
}

static char printed[16384];

static void take(void *user, const char *text, size_t bytes)
{
    const size_t used = strlen(printed);

    (void)user;
    if (used + bytes < sizeof(printed)) {
        memcpy(printed + used, text, bytes);
        printed[used + bytes] = '\0';
    }
}

static const char *plan_of(const gh_session *session)
{
    printed[0] = '\0';
    gh_plan_print(session, GH_FORMAT_JSON, take, NULL, NULL);
    return printed;
}

static bool plan_has(const gh_session *session, const char *format,
                     const char *word)
{
    char text[512];

    snprintf(text, sizeof(text), format, word);
    return strstr(plan_of(session), text) != NULL;
}

/* A variable of a fixture that a session has loaded. */
static unsigned *variable_of(const char *file, const char *name)
{
    void *object = dlopen(file, RTLD_NOW | RTLD_NOLOAD);
    unsigned *variable = object != NULL ? dlsym(object, name) : NULL;

    if (object != NULL) {
        dlclose(object);
    }
    return variable;
}

/* ---- every fixture ------------------------------------------------------- */

static void check_opens(const char *name, gh_status status, gh_session *session)
{
    is_status(status, GH_OK, &err, "%s: the session opens", name);
    ok(plan_has(session, "\"family\":\"%s\"", name),
       "%s: and the plan has the family", name);
    ok(plan_has(session, "\"parts\":[\"attn\",\"mlp\"]", name) ||
           strcmp(name, "knows_all") == 0,
       "%s: and its parts", name);
}

static void check_refused(const char *name, const char *says, gh_status status)
{
    char where[200], file[200];
    const unsigned *still_open;

    snprintf(where, sizeof(where), "family %s (%s/%s.so): ", name, scratch,
             name);
    ok(status < 0 && strstr(err.text, says) != NULL, "%s: it is said that %s",
       name, says);
    ok(strncmp(err.text, "layer ", 6) == 0 && strstr(err.text, where) != NULL,
       "%s: the sentence has the layer, the family and its file", name);
    diag("%s: %s", gh_status_name(status), err.text);

    snprintf(file, sizeof(file), "%s/%s.so", scratch, name);
    still_open = variable_of(file, "fixture_open");
    ok(still_open == NULL || *still_open == 0,
       "%s: and the family is closed, if it was opened", name);
}

static void try_fixture(const char *name, const char *says)
{
    const struct layers layers[] = { { GH_LAYER_DENSE, name },
                                     { GH_LAYER_MOE, name },
                                     { GH_LAYER_DENSE, NULL },
                                     { GH_LAYER_DENSE, name },
                                     { GH_LAYER_MAMBA, name } };
    const uint32_t n = strcmp(name, "silent") == 0 ? 5 : 4;
    char file[200];
    gh_session *session;
    gh_status status;

    snprintf(file, sizeof(file), "%s/%s.so", scratch, name);
    if (access(file, F_OK) != 0 && !build(scratch, name, name)) {
        ok(false, "%s: the fixture is built", name);
        return;
    }
    status = open_layers(layers, n, scratch, &session);
    if (strcmp(says, "ok") == 0) {
        check_opens(name, status, session);
    } else {
        check_refused(name, says, status);
    }
    gh_session_close(session);
}

static void test_every_fixture_is_answered(void)
{
    char path[512], line[256];
    uint32_t n = 0;
    FILE *file;

    snprintf(path, sizeof(path),
             "cd %s && echo text > text.so && : > empty.so && "
             "head -c 3000 right.so > truncated.so",
             scratch);
    ok(build(scratch, "right", "right") && shell(path),
       "a right fixture is built");
    snprintf(path, sizeof(path), "%s/tests/plugin/fixtures.txt",
             from_env("srcdir", "."));
    file = fopen(path, "r");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        const char *name = strtok(line, "|");
        const char *says = strtok(NULL, "|");

        if (line[0] == '#' || says == NULL || strcmp(says, "-") == 0) {
            continue;
        }
        if (is_sanitized() && (strcmp(name, "unresolved") == 0 ||
                               strncmp(name, "constructor", 11) == 0)) {
            continue;
        }
        try_fixture(name, says);
        n++;
    }
    ok(n > 40, "there are more than 40 fixtures");
    if (file != NULL) {
        fclose(file);
    }
}

/* Wherever it ends, the loader is not to fall off it: it is refused for being
 * cut off, until all that is loaded is there. */
static void test_a_file_that_is_cut_off(void)
{
    const struct layers layers[] = { { GH_LAYER_DENSE, "cut" } };
    gh_status status = GH_ERR_INVALID;
    uint32_t length = 1, n_wrong = 0;

    for (; length < 1000000 && status != GH_OK; length += 89) {
        char command[256];
        gh_session *session;

        snprintf(command, sizeof(command),
                 "cd %s && head -c %u right.so > cut && mv cut cut.so", scratch,
                 length);
        shell(command);
        status = open_layers(layers, 1, scratch, &session);
        if (status == GH_OK || strstr(err.text, "is called \"right\"")) {
            status = GH_OK; /* whole: the table was read */
        } else if (strstr(err.text, "the file is not an object") == NULL &&
                   strstr(err.text, "the file is cut off") == NULL) {
            diag("%u bytes: %s", length, err.text);
            n_wrong++;
        }
        gh_session_close(session);
    }
    ok(status == GH_OK && length > 1024, "a family is read once it is whole");
    is_int(n_wrong, 0, "until then it is refused for being cut off");
}

/* Nothing ever comes out of it, so who opens it as a file would wait. */
static void test_a_pipe(void)
{
    const struct layers layers[] = { { GH_LAYER_DENSE, "pipe" } };
    char command[256];
    gh_session *session;

    snprintf(command, sizeof(command), "mkfifo %s/pipe.so", scratch);
    shell(command);
    alarm(60);
    is_status(open_layers(layers, 1, scratch, &session), GH_ERR_INVALID, &err,
              "a pipe is no family");
    alarm(0);
    ok(strstr(err.text, "it is no regular file: put a shared object there") !=
           NULL,
       "which is said at once: %s", err.text);
    gh_session_close(session);
}

/* The compiler adds one function to each of two arrays, or none where it is
 * told so: what is above that is the family's, and ends this program. */
static void test_no_code_runs_before_the_table(void)
{
    static const struct {
        const char *what, *fixture, *flags;
    } rows[] = {
        { "a constructor", "constructor_crashes", "" },
        { "one of a stripped file", "constructor_crashes", "-s" },
        { "one without start files", "constructor_crashes", "-nostartfiles" },
        { "one named to the linker", "init", "-Wl,-init=too_early" },
        { "one that takes .init's place", "init",
          "-nostartfiles -Wl,-init=too_early" },
    };
    const struct layers layers[] = { { GH_LAYER_DENSE, "early" } };
    gh_session *session;

    if (is_sanitized()) {
        skip(12, "a sanitizer has constructors of its own");
        return;
    }
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (!build_with(scratch, "early", rows[i].fixture, rows[i].flags)) {
            skip(2, "%s: not by this compiler", rows[i].what);
            continue;
        }
        is_status(open_layers(layers, 1, scratch, &session), GH_ERR_INVALID,
                  &err, "%s is refused before it runs", rows[i].what);
        ok(strstr(err.text, "/early.so): it has 1 constructor, which would "
                            "run before its table is checked: do its work in "
                            "open") != NULL,
           "%s: by its file, the rule and the remedy: %s", rows[i].what,
           err.text);
    }
    ok(build_with(scratch, "early", "right", "-nostartfiles -s"),
       "a family without start files is built");
    is_status(open_layers(layers, 1, scratch, &session), GH_OK, &err,
              "and taken, as no code of it runs");
    gh_session_close(session);
}

/* ---- names and places ---------------------------------------------------- */

static void test_a_name_is_no_path(void)
{
    static const char *const bad[] = { "",  "../gpt",    "a/b",  "gpt.so",
                                       ".", "two words", "gpt\n" };
    char name[66];
    gh_layer_desc desc = { .struct_size = sizeof(desc) };
    gh_model *model = NULL;

    gh_model_create(&model, NULL);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        desc.family = bad[i];
        is_status(gh_model_add_layer(model, &desc, &err), GH_ERR_INVALID, &err,
                  "bad family name %zu is refused with the layer", i);
        ok(strstr(err.text, "letters, digits, _ and -") != NULL,
           "bad family name %zu: the sentence has the rule", i);
    }
    memset(name, 'n', sizeof(name));
    name[64] = '\0';
    desc.family = name;
    is_status(gh_model_add_layer(model, &desc, &err), GH_ERR_INVALID, &err,
              "a name of 64 letters is too long");
    name[63] = '\0';
    is_status(gh_model_add_layer(model, &desc, &err), GH_OK, &err,
              "one of 63 is not");
    gh_model_destroy(model);
}

static void test_a_family_that_is_not_there(void)
{
    const struct layers layers[] = { { GH_LAYER_DENSE, NULL },
                                     { GH_LAYER_DENSE, "xyzzy" } };
    char path[400];
    gh_session *session;

    snprintf(path, sizeof(path), "/no/where:%s", scratch);
    is_status(open_layers(layers, 2, path, &session), GH_ERR_NOT_FOUND, &err,
              "a family that is not there is not found");
    ok(strstr(err.text, "layer 1: family xyzzy: not found: put xyzzy.so into "
                        "a directory of GRAPHHOOKS_PLUGIN_PATH") == err.text,
       "the sentence has the layer, the family and the remedy");
    ok(strstr(err.text, "looked in /no/where, ") != NULL &&
           strstr(err.text, scratch) != NULL,
       "and the places that were looked in: %s", err.text);
    is_status(open_layers(layers, 1, path, &session), GH_OK, &err,
              "a layer without a family needs no place to be there");
    gh_session_close(session);
}

static void test_many_places(void)
{
    const struct layers layers[] = { { GH_LAYER_DENSE, "xyzzy" } };
    gh_session *session;
    const char *again;
    char path[1000];

    open_layers(layers, 1, "/no/where:/no/where", &session);
    again = strstr(err.text, "/no/where");
    ok(again != NULL && strstr(again + 1, "/no/where") == NULL,
       "a place that is named twice is told once: %s", err.text);
    memset(path, 'd', sizeof(path));
    for (size_t i = 0; i < sizeof(path); i += 60) {
        memcpy(path + i, i == 0 ? "/" : ":/", i == 0 ? 1 : 2);
        path[i + 2 + i / 60] = 'e';
    }
    path[sizeof(path) - 1] = '\0';
    is_status(open_layers(layers, 1, path, &session), GH_ERR_NOT_FOUND, &err,
              "a family may be looked for in many places");
    ok(strlen(err.text) > 3 &&
           strcmp(err.text + strlen(err.text) - 3, "...") == 0,
       "of which those are told that there is room for: %s", err.text);
}

static void test_the_first_place_counts(void)
{
    const struct layers layers[] = { { GH_LAYER_DENSE, "gpt" } };
    char first[100], second[100], path[500];
    gh_session *ours, *theirs;

    snprintf(first, sizeof(first), "%s/first", scratch);
    snprintf(second, sizeof(second), "%s/second", scratch);
    ok(build(first, "gpt", "right") && build(second, "gpt", "why_idle"),
       "two families of one name are built");

    is_status(open_layers(layers, 1, scratch, &ours), GH_OK, &err,
              "gpt is found where GRAPHHOOKS_PLUGIN_PATH has none");
    ok(plan_has(ours, "/graphhooks/gpt.so\"%s", ""),
       "in graphhooks/ beside the library");
    snprintf(path, sizeof(path), "/no/where:/dev/null:%s:%s", first, second);
    is_status(open_layers(layers, 1, path, &theirs), GH_OK, &err,
              "a user's gpt.so is found behind places that are no directories");
    ok(plan_has(theirs, "\"file\":\"%s/gpt.so\"", first),
       "and stands in for ours");
    ok(plan_has(ours, "/graphhooks/gpt.so\"%s", ""),
       "a session that is open keeps the one that it found");
    snprintf(path, sizeof(path), "%s:%s", second, first);
    gh_session_close(theirs);
    is_status(open_layers(layers, 1, path, &theirs), GH_ERR_INVALID, &err,
              "the first gpt.so counts, and is not passed over where it is "
              "wrong");
    gh_session_close(ours);
}

/* `family` is first something that is no file in one place, and whole in the
 * next: what is first counts. */
static void check_in_the_way(const char *family, gh_status expected,
                             const char *says)
{
    const struct layers layers[] = { { GH_LAYER_DENSE, family } };
    char path[200];
    gh_session *session;

    snprintf(path, sizeof(path), "%s/way:%s/second", scratch, scratch);
    is_status(open_layers(layers, 1, path, &session), expected, &err,
              "%s is not passed over", family);
    ok(strstr(err.text, "/way/") != NULL && strstr(err.text, says) != NULL,
       "%s: the sentence has the file, the rule and the remedy: %s", family,
       err.text);
    gh_session_close(session);
}

static void test_what_is_in_the_way_is_said(void)
{
    static const char *const names[] = { "link", "loop", "folder", "closed" };
    static const char unreadable[] = "the file cannot be read: Permission "
                                     "denied; let this user read it, or take "
                                     "it away";
    char second[100], command[400];
    const bool is_root = geteuid() == 0;
    bool built = true;

    snprintf(second, sizeof(second), "%s/second", scratch);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        built = build(second, names[i], "right") && built;
    }
    snprintf(command, sizeof(command),
             "chmod 755 %s && mkdir %s/way && cd %s/way && "
             "ln -s nowhere link.so && ln -s loop.so loop.so && "
             "mkdir folder.so && echo > closed.so && chmod 0 closed.so",
             scratch, scratch, scratch);
    ok(built && shell(command), "a place of things that are no families");
    check_in_the_way("link", GH_ERR_NOT_FOUND,
                     "it is a link that leads nowhere: mend the link, or take "
                     "it away");
    check_in_the_way("loop", GH_ERR_NOT_FOUND,
                     "the file cannot be read: Too many levels");
    check_in_the_way("folder", GH_ERR_INVALID,
                     "it is a directory: put a shared object there, or take "
                     "it away");
    /* Root reads all, so it is somebody else for these. */
    if (is_root && seteuid(65534) != 0) {
        skip(6, "nobody else to be");
        return;
    }
    check_in_the_way("closed", GH_ERR_NOT_FOUND, unreadable);
    ok(!is_root || seteuid(0) == 0, "this user is itself again");
    snprintf(command, sizeof(command), "chmod 700 %s/way", scratch);
    shell(command);
    if (is_root && seteuid(65534) == 0) {
        check_in_the_way("link", GH_ERR_NOT_FOUND, unreadable);
        ok(seteuid(0) == 0, "and again");
    } else {
        skip(3, "only root can close a directory to this user");
    }
}

/* ---- what a plan makes of it --------------------------------------------- */

static void test_other_parts_than_the_kinds(void)
{
    static const gh_part parts[] = { GH_PART_MLP, GH_PART_MAMBA, GH_PART_ATTN };
    const struct layers layers[] = { { GH_LAYER_DENSE, "backwards" },
                                     { GH_LAYER_DENSE, NULL } };
    gh_segment segment = { .struct_size = sizeof(segment) };
    gh_model *model = model_of(layers, 2);
    gh_session *session;
    bool same = true;

    ok(build(scratch, "backwards", "backwards"), "such a family is built");
    is_status(open_model(model, scratch, "mamba", &session), GH_OK, &err,
              "a family may give a dense layer a part of its own");
    is_int(gh_plan_segment_count(session, 0), 4,
           "which is a segment among the eager parts of both layers");
    for (uint32_t i = 0; i < 3; i++) {
        gh_plan_segment(session, 0, i, &segment, &err);
        same = same && segment.first_part == parts[i] &&
               segment.last_part == parts[i] && segment.first_layer == 0 &&
               segment.mode == (i == 1 ? GH_SEGMENT_GRAPHED : GH_SEGMENT_EAGER);
    }
    ok(same, "its parts come in the family's order, mamba graphed");
    gh_plan_segment(session, 0, 3, &segment, &err);
    ok(segment.first_part == GH_PART_ATTN && segment.last_part == GH_PART_MLP,
       "the next layer has the parts of its kind");
    gh_session_close(session);
    gh_model_destroy(model);
}

static void test_a_family_reads_what_the_host_has_said(void)
{
    const gh_layer_desc descs[] = {
        { .struct_size = sizeof(gh_layer_desc),
          .kind = GH_LAYER_MOE,
          .name = "the first",
          .features = GH_FEATURE_CAPACITY | GH_FEATURE_PAD,
          .recompute = GH_MODULE_MOE_ACT,
          .offload = GH_MODULE_ATTN_NORM,
          .experts = 12,
          .dispatcher = GH_DISPATCHER_FLEX,
          .family = "echo" },
        { .struct_size = sizeof(gh_layer_desc), .chunk = 1, .family = "echo" },
    };
    gh_model *model = NULL;
    gh_session *session;

    ok(build(scratch, "echo", "echo"), "a family that repeats it is built");
    gh_model_create(&model, NULL);
    for (int i = 0; i < 2; i++) {
        gh_model_add_layer(model, &descs[i], NULL);
    }
    is_status(open_model(model, scratch, NULL, &session), GH_OK, &err,
              "and taken");
    for (int i = 0; i < 2; i++) {
        const gh_layer_desc *d = &descs[i];
        char note[300];

        snprintf(note, sizeof(note),
                 "%s of echo: kind %u, chunk %u, features 0x%x, recompute "
                 "0x%x, offload 0x%x, experts %u, dispatcher %u, %u bytes",
                 i == 0 ? d->name : "layer 1", d->kind, d->chunk, d->features,
                 d->recompute, d->offload, d->experts, d->dispatcher,
                 d->struct_size);
        ok(plan_has(session, "\"note\":\"%s\"", note),
           "layer %d is read whole: %s", i, note);
    }
    gh_session_close(session);
    gh_model_destroy(model);
}

static void test_families_that_say_the_same(void)
{
    const struct layers layers[] = { { GH_LAYER_DENSE, "older" },
                                     { GH_LAYER_DENSE, "longer" } };
    gh_session *session;

    is_status(open_layers(layers, 2, scratch, &session), GH_OK, &err,
              "two families may say the same");
    for (int i = 0; i < 2; i++) {
        ok(plan_has(session, "\"family\":\"%s\"", layers[i].family),
           "the plan has %s by its own name", layers[i].family);
    }
    gh_session_close(session);
}

static void test_what_is_held_back_stays_eager(void)
{
    const struct layers layers[] = { { GH_LAYER_DENSE, "example" },
                                     { GH_LAYER_DENSE, NULL } };
    gh_segment segment = { .struct_size = sizeof(segment) };
    gh_model *model = model_of(layers, 2);
    gh_model *alone = model_of(layers, 1);
    gh_session *session;

    is_status(open_model(model, scratch, "attn", &session), GH_OK, &err,
              "a part that one family holds back is narrowed");
    gh_model_destroy(model); /* the plan has texts of its own */
    gh_plan_segment(session, 0, 0, &segment, &err);
    is_int(segment.mode, GH_SEGMENT_EAGER, "it stays eager");
    is_str(segment.reason,
           "its attention picks its kernels by the length of the sequences",
           "by the sentence of the family");
    ok(plan_has(session, "\"notes\":[\n\"layer 0: family example (%s", "") &&
           plan_has(session, "/example.so) keeps %s", "it eager: its"),
       "which is noted, with the family and its file");
    gh_session_close(session);
    is_status(open_model(alone, scratch, "attn", &session), GH_ERR_CONFIG, &err,
              "a part that every family holds back is impossible");
    ok(strstr(err.text, "scope attn: layer 0: family example (") != NULL &&
           strstr(err.text, "; describe the layer by another family, or "
                            "leave attn out of the scope") != NULL,
       "which is said with the remedy: %s", err.text);
    gh_model_destroy(alone);
}

/* ---- places -------------------------------------------------------------- */

static char said[4096];

static void hear(void *user, gh_log_level level, const char *message)
{
    const size_t used = strlen(said);

    (void)user;
    if (level == GH_LOG_WARN) {
        snprintf(said + used, sizeof(said) - used, "%s\n", message);
    }
}

static void test_a_place_that_is_not_there_is_said(void)
{
    static const char line[] =
        "GRAPHHOOKS_PLUGIN_PATH: /nowhre is not a directory\n";
    char variable[400];
    const char *const environment[] = { "GRAPHHOOKS_ENABLE=0", variable, NULL };
    const gh_host_services host = { .struct_size = sizeof(host), .log = hear };

    snprintf(variable, sizeof(variable),
             "GRAPHHOOKS_PLUGIN_PATH=/nowhre:%s:/nowhre", scratch);
    for (int named = 0; named < 2; named++) {
        const struct layers layers[] = { { GH_LAYER_DENSE,
                                           named != 0 ? "gpt" : NULL } };
        gh_model *model = model_of(layers, 1);
        const gh_session_desc desc = { .struct_size = sizeof(desc),
                                       .model = model,
                                       .host = &host,
                                       .driver = "/no/such/driver.so",
                                       .environment = environment };
        gh_session *session = NULL;

        said[0] = '\0';
        is_status(gh_session_open(&desc, &session, &err), GH_OK, &err,
                  "a place of plugins that is not there is no error");
        is_str(said, named != 0 ? line : "",
               named != 0 ? "it is said once where a family is named"
                          : "and nothing where none is");
        gh_session_close(session);
        gh_model_destroy(model);
    }
}

/* ---- crashes ------------------------------------------------------------- */

/* The last line of the log, of this process and its children. */
static char *last_line;

static void hear_last(void *user, gh_log_level level, const char *line)
{
    (void)user;
    (void)level;
    snprintf(last_line, 512, "%s", line);
}

/* Opens a session in a child; whether that has crashed. */
static bool crashes(const struct layers *layers, uint32_t n)
{
    const struct rlimit no_core = { 0, 0 };
    const pid_t child = fork();
    int status = 0;

    if (child == 0) {
        char variable[100];
        const char *const environment[] = { "GRAPHHOOKS_LOG=info", variable,
                                            NULL };
        const gh_host_services host = { .struct_size = sizeof(host),
                                        .log = hear_last };
        const gh_session_desc desc = { .struct_size = sizeof(desc),
                                       .model = model_of(layers, n),
                                       .host = &host,
                                       .driver = "/no/such/driver.so",
                                       .environment = environment };
        gh_session *session;

        setrlimit(RLIMIT_CORE, &no_core);
        snprintf(variable, sizeof(variable), "GRAPHHOOKS_PLUGIN_PATH=%s",
                 scratch);
        gh_session_open(&desc, &session, NULL);
        _exit(0);
    }
    return child > 0 && waitpid(child, &status, 0) == child &&
           WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

static void test_a_crash_has_its_file_in_the_log(void)
{
    static const char *const names[] = { "open_crashes", "layer_crashes" };

    last_line = mmap(NULL, 512, PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (last_line == MAP_FAILED) {
        skip(4, "no memory to share with a child");
        return;
    }
    for (int i = 0; i < 2; i++) {
        const struct layers layers[] = { { GH_LAYER_DENSE, "right" },
                                         { GH_LAYER_DENSE, names[i] },
                                         { GH_LAYER_DENSE, "older" } };
        char line[200];

        snprintf(line, sizeof(line), "family %s: %s/%s.so is loaded and asked",
                 names[i], scratch, names[i]);
        last_line[0] = '\0';
        ok(build(scratch, names[i], names[i]) && crashes(layers, 3),
           "%s: it ends its process", names[i]);
        is_str(last_line, line, "%s: and the last line of the log has its file",
               names[i]);
    }
    munmap(last_line, 512);
}

/* ---- after open ---------------------------------------------------------- */

static void test_nobody_is_called_after_open(void)
{
    char variable[200], file[200];
    const char *const environment[] = { variable, NULL };
    const struct toy_options options = { .layers = 3,
                                         .elems = 64,
                                         .in_flight = 2,
                                         .family = "right",
                                         .environment = environment };
    const unsigned *calls, *still_open;
    const char *reason;
    struct toy toy;
    unsigned before;

    snprintf(variable, sizeof(variable), "GRAPHHOOKS_PLUGIN_PATH=%s", scratch);
    snprintf(file, sizeof(file), "%s/right.so", scratch);
    if (!toy_open(&toy, &options, &reason)) {
        skip(6, "%s", reason);
        return;
    }
    is_status(toy_attach(&toy), GH_OK, &toy.err,
              "a session with a family opens");
    calls = variable_of(file, "fixture_calls");
    still_open = variable_of(file, "fixture_open");
    is_int(calls != NULL ? *calls : 0, 1 + 2 * 3 + 1,
           "the family was opened once, asked twice about each layer, and "
           "closed");
    is_int(still_open != NULL ? *still_open : 1, 0,
           "and is closed before the session is open");
    before = calls != NULL ? *calls : 0;
    for (int i = 0; i < 4; i++) {
        toy_step(&toy, 3);
    }
    ok(toy_stats(&toy).replays > 0, "steps are recorded and replayed");
    ok(toy_is_exact(&toy), "with the numbers that they must have");
    toy_detach(&toy);
    is_int(calls != NULL ? *calls : 1, before,
           "and in none of them, nor at close, was the family called");
    toy_close(&toy);
}

static void test_a_table_that_moves(void)
{
    const char *const environment[] = { NULL };
    const struct toy_options options = { .layers = 2,
                                         .elems = 64,
                                         .family = "mla",
                                         .scope = "attn",
                                         .environment = environment };
    static char table[2][64];
    gh_aux aux = { .struct_size = sizeof(aux),
                   .layer = 1,
                   .name = "rotary_cos",
                   .buffer = { .address = table[0], .bytes = 64 } };
    const char *reason;
    struct toy toy;
    uint64_t before;

    if (!toy_open(&toy, &options, &reason)) {
        skip(9, "%s", reason);
        return;
    }
    is_status(toy_attach(&toy), GH_OK, &toy.err, "a session with mla opens");
    is_status(gh_aux_bind(toy.session, &aux, &err), GH_OK, &err,
              "a tensor that mla names can be bound");
    for (int i = 0; i < 3; i++) {
        toy_step(&toy, 1);
    }
    before = toy_stats(&toy).recordings;
    is_int(before, 4, "attention is recorded in both layers and directions");
    is_status(gh_aux_bind(toy.session, &aux, &err), GH_OK, &err,
              "binding it where it was is nothing");
    toy_step(&toy, 1);
    is_int(toy_stats(&toy).recordings, before, "no graph is dropped");
    aux.buffer.address = table[1];
    is_status(gh_aux_bind(toy.session, &aux, &err), GH_OK, &err,
              "binding it elsewhere is allowed between steps");
    toy_step(&toy, 1);
    toy_step(&toy, 1);
    is_int(toy_stats(&toy).recordings, before + 2,
           "the attention of that layer is recorded anew, and no other");
    aux.name = "rotary_tan";
    is_status(gh_aux_bind(toy.session, &aux, &err), GH_ERR_NOT_FOUND, &err,
              "a tensor that mla does not name cannot be bound");
    ok(strstr(err.text, "layer 1: name one of rotary_cos, rotary_sin") != NULL,
       "and those that it names are said: %s", err.text);
    toy_close(&toy);
}

/* Only the graphs that read a table go when it moves. */
static void test_tables_of_two_parts(void)
{
    char variable[200];
    const char *const environment[] = { variable, NULL };
    const struct toy_options options = { .layers = 1,
                                         .elems = 64,
                                         .family = "two_tables",
                                         .scope = "attn",
                                         .environment = environment };
    static const struct {
        uint32_t recordings;
        const char *name;
    } wanted[] = {
        { 2, "attention, which is captured, is recorded both ways" },
        { 4, "and anew when its table is bound" },
        { 4, "but not when that of the MLP moves" },
        { 6, "only when its own does" },
    };
    static char table[4][64];
    gh_aux aux = { .struct_size = sizeof(aux), .buffer = { .bytes = 64 } };
    const char *reason;
    struct toy toy;

    ok(build(scratch, "two_tables", "two_tables"), "such a family is built");
    snprintf(variable, sizeof(variable), "GRAPHHOOKS_PLUGIN_PATH=%s", scratch);
    if (!toy_open(&toy, &options, &reason)) {
        skip(4, "%s", reason);
        return;
    }
    is_status(toy_attach(&toy), GH_OK, &toy.err,
              "a session with two tables opens");
    for (uint32_t i = 0; i < 4; i++) {
        aux.name = i % 2 == 0 ? "mlp_table" : "attn_table";
        aux.buffer.address = table[i];
        is_status(gh_aux_bind(toy.session, &aux, &err), GH_OK, &err,
                  "%s is bound", aux.name);
        toy_step(&toy, 1);
        toy_step(&toy, 1);
        is_int(toy_stats(&toy).recordings, wanted[i].recordings, "%s",
               wanted[i].name);
    }
    toy_close(&toy);
}

static void test_a_tensor_without_a_family(void)
{
    const struct layers layers[] = { { GH_LAYER_DENSE, NULL } };
    gh_aux aux = { .struct_size = sizeof(aux),
                   .name = "rotary_cos",
                   .buffer = { .address = scratch, .bytes = 64 } };
    gh_session *session;

    open_layers(layers, 1, scratch, &session);
    is_status(gh_aux_bind(session, &aux, &err), GH_ERR_NOT_FOUND, &err,
              "a layer without a family names no tensor to bind");
    ok(strstr(err.text, "no family names for layer 0") != NULL,
       "which is said: %s", err.text);
    gh_session_close(session);
}

/* What was added last to a layer's description reaches its family. */
static void test_a_family_sees_all_of_a_layer(void)
{
    const gh_layer_desc desc = { .struct_size = sizeof(desc),
                                 .kind = GH_LAYER_MOE,
                                 .experts = 8,
                                 .dispatcher = GH_DISPATCHER_FLEX,
                                 .backend = GH_BACKEND_HYBRIDEP,
                                 .family = "seen" };
    const unsigned *backend;
    gh_session *session;
    gh_model *model;
    char file[200];

    build(scratch, "seen", "right");
    gh_model_create(&model, NULL);
    gh_model_add_layer(model, &desc, NULL);
    is_status(open_model(model, scratch, NULL, &session), GH_OK, &err,
              "a session opens with a backend");
    snprintf(file, sizeof(file), "%s/seen.so", scratch);
    backend = variable_of(file, "fixture_backend");
    ok(backend != NULL && *backend == GH_BACKEND_HYBRIDEP,
       "which the family is told of");
    gh_session_close(session);
    gh_model_destroy(model);
}

int main(void)
{
    char command[128];

    snprintf(scratch, sizeof(scratch), "%.40s/graphhooks.XXXXXX",
             from_env("TMPDIR", "/tmp"));
    if (mkdtemp(scratch) == NULL || !build(scratch, "first", "right")) {
        return skip_all("no compiler, or no place for what it makes");
    }
    test_every_fixture_is_answered();
    test_a_file_that_is_cut_off();
    test_a_pipe();
    test_no_code_runs_before_the_table();
    test_a_name_is_no_path();
    test_a_family_that_is_not_there();
    test_many_places();
    test_the_first_place_counts();
    test_what_is_in_the_way_is_said();
    test_other_parts_than_the_kinds();
    test_a_family_reads_what_the_host_has_said();
    test_families_that_say_the_same();
    test_what_is_held_back_stays_eager();
    test_a_place_that_is_not_there_is_said();
    test_a_crash_has_its_file_in_the_log();
    test_nobody_is_called_after_open();
    test_a_table_that_moves();
    test_tables_of_two_parts();
    test_a_tensor_without_a_family();
    test_a_family_sees_all_of_a_layer();
    snprintf(command, sizeof(command), "rm -rf %s", scratch);
    shell(command);
    return done_testing();
}
