/*
 * conform.c - whether a family does what graphhooks/family.h asks.
 *
 *     graphhooks-conform FILE.so
 *
 * Prints TAP, a point for each rule, and ends with 0 when all hold.  First
 * the file is read, then loaded, then its table is looked at, and only then
 * is anything of it called; what comes after a broken rule that would make it
 * meaningless is left out.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "bin/child.h"
#include "family/family.h"
#include "plugin/elf.h"
#include "plugin/models.h"
#include "tap/tap.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GUARD_BYTES 1024

/* A description, and what must not be written behind it. */
struct guarded {
    gh_family_layer layer;
    unsigned char guard[GUARD_BYTES];
};

/* What a family has said of a layer. */
struct answer {
    gh_status status; /* GH_OK; GH_ERR_UNSUPPORTED: it does not know it */
    struct gh_traits traits;
};

struct subject {
    bool *is_whole; /* in memory that a child shares: all was checked */
    struct gh_family_where where;
    gh_family family;
    uint32_t described, declined; /* layers, over all models */
};

/* ---- the file and its table ---------------------------------------------- */

static bool check_object(const struct gh_object *object)
{
    const uint32_t constructors = gh_object_constructors(object);
    char list[256];

    if (gh_object_is_sanitized(object)) {
        skip(3, "a sanitizer has constructors and a runtime of its own");
        return true;
    }
    elf_needed(object, list, sizeof(list));
    if (!ok(list[0] == '\0', "it needs no library but libc")) {
        diag("it needs %s", list);
    }
    elf_undefined(object, list, sizeof(list));
    if (!ok(list[0] == '\0',
            "it refers to no symbols but its own and libc's")) {
        diag("it refers to %s", list);
    }
    if (!ok(constructors == 0,
            "it has no constructors: no code of it runs before its table has "
            "been checked")) {
        diag("it has %u, so it is not loaded", constructors);
        return false;
    }
    return true;
}

static bool check_file(const struct gh_family_where *where)
{
    struct gh_object object;
    gh_error err = { "" };
    bool held;

    if (!is_status(gh_object_read(where, &object, &err), GH_OK, &err,
                   "the file is a shared object for this machine")) {
        return false;
    }
    held = check_object(&object);
    gh_object_free(&object);
    return held;
}

/* The library takes a table of any size from the first release's on; whoever
 * runs this wants to know. */
static bool check_size(const gh_family *table)
{
    const size_t least = GH_SIZE_THROUGH(gh_family, layer);
    const size_t size = table->struct_size;

    if (!ok(size >= least, "its table is as large as the first release's")) {
        diag("struct_size is %zu, which is too short: it was %zu then", size,
             least);
        return false;
    }
    if (!ok(size == sizeof(gh_family), "its table is this header's")) {
        diag("struct_size is %zu and not %zu: it was built against %s header",
             size, sizeof(gh_family),
             size < sizeof(gh_family) ? "an older" : "a newer");
    }
    return true;
}

static bool is_one_line(const char *text)
{
    for (; *text != '\0'; text++) {
        if ((unsigned char)*text < 0x20) {
            return false;
        }
    }
    return true;
}

static bool check_table(struct subject *s)
{
    const gh_family *table;
    gh_error err = { "" };

    if (!is_status(gh_family_load(&s->where, &table, &err), GH_OK, &err,
                   "it can be loaded, and has a symbol %s", GH_FAMILY_SYMBOL) ||
        !check_size(table)) {
        return false;
    }
    if (!is_status(gh_family_take(&s->where, table, &s->family, &err), GH_OK,
                   &err,
                   "its required slots are filled in, its caps are known and "
                   "its name is its file's")) {
        return false;
    }
    ok(is_one_line(s->family.about), "what it says about itself is one line");
    return true;
}

/* ---- one question -------------------------------------------------------- */

static bool guard_is_whole(const struct guarded *g)
{
    for (size_t i = 0; i < GUARD_BYTES; i++) {
        if (g->guard[i] != 0xA5) {
            return false;
        }
    }
    return true;
}

/* False, with `err`, when a rule is broken; declining breaks none. */
static bool ask(const struct subject *s, void *ctx, const struct model *model,
                uint32_t i, struct answer *answer, gh_error *err)
{
    struct guarded g;
    gh_error theirs = { "" };

    memset(&g.layer, 0, sizeof(g.layer));
    memset(g.guard, 0xA5, sizeof(g.guard));
    memset(answer, 0, sizeof(*answer));
    g.layer.struct_size = sizeof(g.layer);
    answer->status = s->family.layer(ctx, i, &g.layer, &theirs);
    if (!guard_is_whole(&g)) {
        snprintf(err->text, sizeof(err->text),
                 "it writes behind gh_family_layer: its struct_size says how "
                 "large that is");
        return false;
    }
    if (answer->status == GH_ERR_UNSUPPORTED && theirs.text[0] != '\0') {
        theirs.text[sizeof(theirs.text) - 1] = '\0';
        snprintf(err->text, sizeof(err->text), "its sentence is no one line");
        return is_one_line(theirs.text);
    }
    if (gh_family_answer(&s->where, "layer", answer->status, &theirs, err) !=
        GH_OK) {
        return false;
    }
    return gh_family_take_layer(&s->where, model->given.layers[i]->kind,
                                &g.layer, &answer->traits, err) == GH_OK;
}

static bool is_asked(const struct subject *s, const struct model *model,
                     uint32_t i)
{
    const gh_layer_desc *desc = model->given.layers[i];

    return !GH_HAS(desc, gh_layer_desc, family) ||
           (desc->family != NULL && strcmp(desc->family, s->family.name) == 0);
}

static bool is_same(const struct answer *a, const struct answer *b,
                    gh_error *err)
{
    const char *field = "answer";

    if (a->status == b->status) {
        field = gh_family_difference(&a->traits, &b->traits);
    }
    if (field != NULL) {
        snprintf(err->text, sizeof(err->text),
                 "asked again it gives another %s", field);
    }
    return field == NULL;
}

/* ---- one model ----------------------------------------------------------- */

static void *open_model(const struct subject *s, const struct model *model,
                        bool *opened)
{
    gh_error theirs = { "" }, err = { "" };
    void *ctx = NULL;
    gh_status status = s->family.open(&model->given, &ctx, &theirs);

    *opened = status == GH_OK;
    if (status != GH_OK) {
        is_status(gh_family_answer(&s->where, "open", status, &theirs, &err),
                  GH_OK, &err, "it takes %s", model->name);
    }
    return ctx;
}

static struct answer *ask_all(struct subject *s, const struct model *model,
                              void *ctx)
{
    const uint32_t n = model->given.n_layers;
    struct answer *answers = calloc(n, sizeof(*answers));
    gh_error err = { "" };
    uint32_t i = 0;

    if (answers == NULL) {
        fprintf(stderr, "graphhooks-conform: no memory\n");
        exit(2);
    }
    for (; i < n; i++) {
        if (!is_asked(s, model, i)) {
            continue;
        }
        if (!ask(s, ctx, model, i, &answers[i], &err)) {
            break;
        }
        s->described += answers[i].status == GH_OK;
        s->declined += answers[i].status != GH_OK;
    }
    if (!ok(i == n,
            "%s: each layer is described by the rules, or declined in "
            "a sentence",
            model->name)) {
        diag("layer %u: %s", i, err.text);
        free(answers);
        return NULL;
    }
    return answers;
}

/* Layer `k` of an order that visits each of n once. */
static uint32_t in_order(int order, uint32_t k, uint32_t n)
{
    switch (order) {
    case 0: /* the same again */
        return k;
    case 1: /* in reverse */
        return n - 1 - k;
    default: /* the ends towards the middle */
        return k % 2 == 0 ? k / 2 : n - 1 - k / 2;
    }
}

static void ask_again(const struct subject *s, const struct model *model,
                      void *ctx, const struct answer *answers)
{
    static const char *const orders[] = { "the same order", "reverse order",
                                          "an order of jumps" };
    const uint32_t n = model->given.n_layers;

    for (int order = 0; order < 3; order++) {
        struct answer answer;
        gh_error err = { "" };
        uint32_t k = 0;

        for (; k < n; k++) {
            const uint32_t i = in_order(order, k, n);

            if (is_asked(s, model, i) &&
                (!ask(s, ctx, model, i, &answer, &err) ||
                 !is_same(&answers[i], &answer, &err))) {
                break;
            }
        }
        if (!ok(k == n, "%s: asked once more in %s, it says the same",
                model->name, orders[order])) {
            diag("layer %u: %s", in_order(order, k, n), err.text);
        }
    }
}

static void check_model(struct subject *s, const struct model *model)
{
    struct answer *answers;
    bool opened;
    void *ctx = open_model(s, model, &opened);

    if (!opened) {
        return;
    }
    answers = ask_all(s, model, ctx);
    if (answers != NULL) {
        ask_again(s, model, ctx, answers);
    }
    free(answers);
    s->family.close(ctx);
}

/* ---- several ------------------------------------------------------------- */

/* The whole of a model, checked elsewhere; nothing is reported. */
static void run_quietly(const struct subject *s, const struct model *model)
{
    gh_error theirs = { "" };
    void *ctx = NULL;

    if (s->family.open(&model->given, &ctx, &theirs) != GH_OK) {
        return;
    }
    for (uint32_t i = 0; i < model->given.n_layers; i++) {
        struct answer answer;
        gh_error err;

        if (is_asked(s, model, i)) {
            ask(s, ctx, model, i, &answer, &err);
        }
    }
    s->family.close(ctx);
}

/* Asks about `a`, with `b` open and asked about in between. */
static void check_two_at_once(const struct subject *s, const struct model *a,
                              const struct model *b)
{
    bool opened_a, opened_b, same = true;
    void *ctx_a = open_model(s, a, &opened_a);
    void *ctx_b = open_model(s, b, &opened_b);
    gh_error err = { "" };

    for (uint32_t i = 0; opened_a && opened_b && same && i < a->given.n_layers;
         i++) {
        const uint32_t k = i % b->given.n_layers;
        struct answer first, other, second;

        if (is_asked(s, a, i) && is_asked(s, b, k)) {
            same = ask(s, ctx_a, a, i, &first, &err) &&
                   ask(s, ctx_b, b, k, &other, &err) &&
                   ask(s, ctx_a, a, i, &second, &err) &&
                   is_same(&first, &second, &err);
        }
    }
    if (opened_a) {
        s->family.close(ctx_a);
    }
    if (opened_b) {
        s->family.close(ctx_b);
    }
    if (!ok(opened_a && opened_b && same,
            "two models may be open at once, and do not touch each other")) {
        diag("%s", err.text);
    }
}

static void check_short(const struct subject *s)
{
    struct model pair[2];
    bool opened[2], same = true;
    void *ctx[2];
    gh_error err = { "" };

    models_make_short(s->family.name, pair);
    for (int i = 0; i < 2; i++) {
        ctx[i] = open_model(s, &pair[i], &opened[i]);
    }
    for (uint32_t i = 0;
         opened[0] && opened[1] && same && i < pair[0].given.n_layers; i++) {
        struct answer answers[2];

        same = ask(s, ctx[0], &pair[0], i, &answers[0], &err) &&
               ask(s, ctx[1], &pair[1], i, &answers[1], &err) &&
               is_same(&answers[0], &answers[1], &err);
    }
    if (!ok(opened[0] && opened[1] && same,
            "of a layer it reads what its struct_size grants")) {
        diag("%s", err.text);
    }
    for (int i = 0; i < 2; i++) {
        if (opened[i]) {
            s->family.close(ctx[i]);
        }
        model_free(&pair[i]);
    }
}

static void check_unknown(const struct subject *s)
{
    struct model model;
    bool opened, declined = true;
    void *ctx;

    models_make_unknown(s->family.name, &model);
    ctx = open_model(s, &model, &opened);
    for (uint32_t i = 0; opened && i < model.given.n_layers; i++) {
        struct gh_family_layer layer = { .struct_size = sizeof(layer) };
        gh_error theirs = { "" };

        declined =
            declined &&
            s->family.layer(ctx, i, &layer, &theirs) == GH_ERR_UNSUPPORTED &&
            theirs.text[0] != '\0';
    }
    if (!ok(opened && declined, "it declines %s in a sentence", model.name)) {
        diag("it describes a kind of layer that it cannot know");
    }
    if (opened) {
        s->family.close(ctx);
    }
    model_free(&model);
}

/* Bytes that are allocated; 0 where the allocator does not say. */
static size_t allocated(void)
{
#ifdef HAVE_MALLINFO2
    return mallinfo2().uordblks;
#else
    return 0;
#endif
}

static void check_memory(const struct subject *s, const struct model *model)
{
    size_t before, after;

    /* What it takes once, such as a buffer of stdio's, is no leak. */
    for (int i = 0; i < 3; i++) {
        run_quietly(s, model);
    }
    before = allocated();
    for (int i = 0; i < 10; i++) {
        run_quietly(s, model);
    }
    after = allocated();
    if (before == 0) {
        skip(1, "this allocator does not count; its own leak check does");
        return;
    }
    if (!ok(after <= before, "close frees what open and layer have taken")) {
        diag("it leaks %zu bytes a session", (after - before) / 10);
    }
}

static void check_calls(struct subject *s)
{
    struct model *models = models_make(s->family.name);
    const struct model *m = models;

    for (; m->given.n_layers != 0; m++) {
        check_model(s, m);
    }
    if (!ok(s->described > 0, "it knows at least one layer of these models")) {
        diag("it declines all %u", s->declined);
    }
    check_two_at_once(s, &m[-4], &m[-3]);
    check_short(s);
    check_unknown(s);
    check_memory(s, &m[-3]);
    diag("%u layers described, %u declined", s->described, s->declined);
    models_free(models);
}

/* ---- main ---------------------------------------------------------------- */

/* NAME of DIRECTORY/NAME.so; false when it cannot be one. */
static bool take_name(const char *file, char name[GH_FAMILY_NAME])
{
    const char *slash = strrchr(file, '/');
    const char *base = slash != NULL ? slash + 1 : file;
    const size_t bytes = strlen(base);

    if (bytes < 4 || bytes - 3 >= GH_FAMILY_NAME ||
        strcmp(base + bytes - 3, ".so") != 0) {
        return false;
    }
    memcpy(name, base, bytes - 3);
    name[bytes - 3] = '\0';
    return gh_family_name_is_good(name);
}

static const char usage[] = "usage: graphhooks-conform FILE.so\n"
                            "\n"
                            "Checks a family of graphhooks by the rules of "
                            "<graphhooks/family.h>.\n";

static int stop(const char *why)
{
    diag("stopped: %s", why);
    return done_testing();
}

static int check_all(struct subject *subject)
{
    if (!check_file(&subject->where)) {
        return stop("such a file is not loaded");
    }
    if (!check_table(subject)) {
        return stop("by such a table nothing is called");
    }
    check_calls(subject);
    return done_testing();
}

static int check(void *arg)
{
    struct subject *subject = arg;
    const int status = check_all(subject);

    *subject->is_whole = true;
    return status;
}

/* In a child: a family that crashes, or ends the process, is told as all else
 * that is wrong. */
static int check_aside(struct subject *subject)
{
    struct child_end end;
    gh_error err;
    char how[80];

    subject->is_whole = child_share(sizeof(*subject->is_whole));
    if (subject->is_whole == NULL) {
        fputs("graphhooks-conform: no memory\n", stderr);
        return 2;
    }
    if (child_run(check, subject, &end, &err) != GH_OK) {
        fprintf(stderr, "graphhooks-conform: %s\n", err.text);
        return 2;
    }
    if (end.signal == 0 && *subject->is_whole) {
        return end.status;
    }
    child_tell(&end, how, sizeof(how));
    printf("Bail out! %s: %s\n", subject->where.file, how);
    return 1;
}

int main(int argc, char **argv)
{
    struct subject subject = { .described = 0 };
    char name[GH_FAMILY_NAME], file[GH_FAMILY_FILE_BYTES];

    if (argc == 2 && strcmp(argv[1], "--help") == 0) {
        fputs(usage, stdout);
        return 0;
    }
    if (argc != 2 || argv[1][0] == '-') {
        fputs(usage, stderr);
        return 2;
    }
    tap_without_places();
    /* Without a directory the loader would look elsewhere. */
    snprintf(file, sizeof(file), "%s%s",
             strchr(argv[1], '/') == NULL ? "./" : "", argv[1]);
    if (!ok(take_name(file, name),
            "the file is called NAME.so, in letters, digits, _ and -")) {
        diag("it is called %s; give the family's file, as in ./gpt.so",
             argv[1]);
        return stop("the name of a family is the name of its file");
    }
    subject.where.family = name;
    subject.where.file = file;
    return check_aside(&subject);
}
