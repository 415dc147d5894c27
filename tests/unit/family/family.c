/*
 * A family's file, its table and what it says are read as far as they go and
 * no further, and what breaks a rule is refused in one sentence.
 *
 * What is read lies before a page that nobody may touch: a byte too far ends
 * the program.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "base/size.h"
#include "family/family.h"
#include "plan/model.h"
#include "tap/tap.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BIT(part) (1u << GH_PART_##part)

static const struct gh_family_where where = { "layer 0", "made_up", "a.so" };
static gh_error err;

static bool said(const char *text)
{
    return strstr(err.text, text) != NULL;
}

/* ---- sentences ----------------------------------------------------------- */

static void test_a_sentence_without_an_end(void)
{
    gh_error *theirs = tap_before_the_end(sizeof(*theirs));

    memset(theirs->text, 'x', sizeof(theirs->text));
    is_status(
        gh_family_answer(&where, "open", GH_ERR_UNSUPPORTED, theirs, &err),
        GH_ERR_UNSUPPORTED, &err,
        "a family's sentence without an end is passed on");
    ok(said("family made_up (a.so): xxxx") && strlen(err.text) == 255,
       "as far as it fits");
    tap_give_back(theirs, sizeof(*theirs));
}

static void test_answers(void)
{
    static const gh_status own[] = { GH_RERUN, GH_ERR_INVALID, GH_ERR_DEVICE };
    gh_error theirs = { "no" };

    is_status(gh_family_answer(&where, "open", GH_OK, &theirs, &err), GH_OK,
              &err, "a family that takes the model is taken");
    for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++) {
        is_status(gh_family_answer(&where, "open", own[i], &theirs, &err),
                  GH_ERR_INVALID, &err, "%d is no status for a family", own[i]);
        ok(said("its open returned"), "%d: which is said", own[i]);
    }
    is_status(
        gh_family_answer(&where, "layer", GH_ERR_NO_MEMORY, &theirs, &err),
        GH_ERR_NO_MEMORY, &err, "a family may be out of memory");
    theirs.text[0] = '\0';
    is_status(
        gh_family_answer(&where, "layer", GH_ERR_UNSUPPORTED, &theirs, &err),
        GH_ERR_UNSUPPORTED, &err, "it may decline without a word");
    ok(said("its layer failed and does not say why"), "which is said");
    is_status(gh_family_answer(&where, "open", GH_ERR_DEVICE, &theirs, NULL),
              GH_ERR_INVALID, NULL, "nobody has to want the sentence");
}

static void test_a_long_sentence_keeps_the_end_of_the_file(void)
{
    char file[300], end[320];
    const struct gh_family_where far = { NULL, "made_up", file };

    for (size_t bytes = 79; bytes <= 81; bytes++) {
        memset(file, 'd', sizeof(file));
        snprintf(file + bytes - 8, 9, "/mine.so");
        snprintf(end, sizeof(end), " (%s%s): no", bytes > 80 ? "..." : "",
                 file + (bytes > 80 ? bytes - 80 : 0));
        gh_family_fail(&err, GH_ERR_INVALID, &far, "no");
        ok(said(end), "%zu bytes of a path: the last 80 are told", bytes);
    }
    ok(strncmp(err.text, "family made_up (", 16) == 0,
       "and no layer where there is none");
}

/* ---- tables -------------------------------------------------------------- */

static gh_status no_open(const gh_family_model *model, void **ctx_p,
                         gh_error *error)
{
    (void)model;
    (void)ctx_p;
    (void)error;
    return GH_ERR_UNSUPPORTED;
}

static void no_close(void *ctx)
{
    (void)ctx;
}

static gh_status no_layer(void *ctx, uint32_t i, gh_family_layer *layer,
                          gh_error *error)
{
    (void)ctx;
    (void)i;
    (void)layer;
    (void)error;
    return GH_ERR_UNSUPPORTED;
}

static void test_a_table_as_large_as_it_says(void)
{
    const size_t least = GH_SIZE_THROUGH(gh_family, layer);
    const gh_family whole = { .struct_size = (uint32_t)least,
                              .name = "made_up",
                              .open = no_open,
                              .close = no_close,
                              .layer = no_layer };
    gh_family *theirs = tap_before_the_end(least);
    gh_family ours;

    memcpy(theirs, &whole, least);
    memset(&ours, 0xA5, sizeof(ours));
    is_status(gh_family_take(&where, theirs, &ours, &err), GH_OK, &err,
              "the first release's table is taken");
    ok(ours.struct_size == sizeof(ours) && ours.about != NULL &&
           ours.about[0] == '\0',
       "and made whole");
    theirs->struct_size--;
    is_status(gh_family_take(&where, theirs, &ours, &err), GH_ERR_ABI, &err,
              "a table that is a byte shorter is refused");
    tap_give_back(theirs, least);
}

/* As long as a name may be, and one letter more. */
static void test_a_table_with_a_name_without_an_end(void)
{
    char *name = tap_before_the_end(GH_FAMILY_NAME);
    char family[GH_FAMILY_NAME];
    const struct gh_family_where its = { NULL, family, "a.so" };
    const gh_family theirs = { .struct_size = sizeof(theirs),
                               .name = name,
                               .open = no_open,
                               .close = no_close,
                               .layer = no_layer };
    gh_family ours;

    memset(name, 'n', GH_FAMILY_NAME);
    memset(family, 'n', sizeof(family));
    family[sizeof(family) - 1] = '\0';
    is_status(gh_family_take(&its, &theirs, &ours, &err), GH_ERR_INVALID, &err,
              "a table's name is compared to its last letter");
    ok(said("call the file and the table alike"), "with the remedy");
    name[GH_FAMILY_NAME - 1] = '\0';
    is_status(gh_family_take(&its, &theirs, &ours, &err), GH_OK, &err,
              "a name of 63 letters is taken");
    tap_give_back(name, GH_FAMILY_NAME);
}

/* ---- layers -------------------------------------------------------------- */

/* A right description of a dense layer, before the end of memory. */
static gh_family_layer *dense(void)
{
    gh_family_layer *layer = tap_before_the_end(sizeof(*layer));

    layer->struct_size = sizeof(*layer);
    layer->n_parts = 2;
    layer->parts[0] = GH_PART_ATTN;
    layer->parts[1] = GH_PART_MLP;
    layer->capturable = BIT(ATTN) | BIT(MLP);
    return layer;
}

static gh_status take(const gh_family_layer *layer, struct gh_traits *traits)
{
    err.text[0] = '\0';
    return gh_family_take_layer(&where, GH_LAYER_DENSE, layer, traits, &err);
}

static void test_a_text_without_an_end(void)
{
    gh_family_layer *layer = dense();
    struct gh_traits traits;

    memset(layer->note, 'x', sizeof(layer->note));
    is_status(take(layer, &traits), GH_ERR_INVALID, &err,
              "a note without an end is refused");
    ok(said("note does not end: give at most 199 bytes and a zero"),
       "with the bound: %s", err.text);
    layer->note[GH_FAMILY_TEXT - 1] = '\0';
    is_status(take(layer, &traits), GH_OK, &err, "one of 199 bytes is taken");
    is_int(strlen(traits.layer.note), 199, "all of it");

    layer->capturable = BIT(MLP);
    memset(layer->why_not, 'w', sizeof(layer->why_not));
    is_status(take(layer, &traits), GH_ERR_INVALID, &err,
              "a reason without an end is refused");
    ok(said("why_not does not end"), "by its name: %s", err.text);
    layer->why_not[GH_FAMILY_TEXT - 1] = '\0';
    is_status(take(layer, &traits), GH_OK, &err, "one of 199 bytes is taken");
    is_int(strlen(traits.layer.why_not), 199, "all of it, and no more");

    memcpy(layer->note + GH_FAMILY_TEXT - 3, "\xe2\x82", 2);
    is_status(take(layer, &traits), GH_ERR_INVALID, &err,
              "a character that the end cuts off is refused");
    ok(said("note is not UTF-8 at byte 197"), "by its place: %s", err.text);
    tap_give_back(layer, sizeof(*layer));
}

static void test_a_tensor_without_an_end(void)
{
    gh_family_layer *layer = dense();
    char *name = tap_before_the_end(GH_FAMILY_NAME);
    struct gh_traits traits;

    memset(name, 't', GH_FAMILY_NAME);
    layer->n_tensors = 1;
    layer->tensors[0].name = name;
    layer->tensors[0].parts = BIT(ATTN);
    is_status(take(layer, &traits), GH_ERR_INVALID, &err,
              "a tensor's name without an end is refused");
    ok(said("tensors[0] has no good name") && said("at most 63 of them"),
       "by its place, with the rule: %s", err.text);
    name[GH_FAMILY_NAME - 1] = '\0';
    is_status(take(layer, &traits), GH_OK, &err, "one of 63 letters is taken");
    is_str(traits.names[0], name, "all of it");
    layer->tensors[0].reserved = 1;
    is_status(take(layer, &traits), GH_ERR_INVALID, &err,
              "a tensor with reserved set is refused");
    tap_give_back(name, GH_FAMILY_NAME);
    tap_give_back(layer, sizeof(*layer));
}

/* Every array as full as it may be, then by one more. */
static void test_arrays_have_bounds(void)
{
    gh_family_layer *layer = dense();
    static char names[GH_FAMILY_TENSORS][4];
    struct gh_traits traits;

    layer->n_tensors = GH_FAMILY_TENSORS;
    for (uint32_t i = 0; i < GH_FAMILY_TENSORS; i++) {
        snprintf(names[i], sizeof(names[i]), "t%u", i);
        layer->tensors[i].name = names[i];
        layer->tensors[i].parts = BIT(MLP);
    }
    is_status(take(layer, &traits), GH_OK, &err, "eight tensors are taken");
    is_str(traits.names[7], "t7", "with the last one");
    ok(traits.layer.tensors[7].parts == BIT(MLP) &&
           traits.layer.tensors[7].name == NULL,
       "and who reads it, and none of the plugin's memory");
    layer->n_tensors++;
    is_status(take(layer, &traits), GH_ERR_INVALID, &err, "nine are not");
    layer->n_tensors = 0;
    layer->n_nodes = GH_FAMILY_NODES + 1;
    is_status(take(layer, &traits), GH_ERR_INVALID, &err,
              "seventeen nodes are not");
    layer->n_nodes = 0;
    layer->n_parts = GH_FAMILY_PARTS + 1;
    is_status(take(layer, &traits), GH_ERR_INVALID, &err,
              "nor are seventeen parts");
    tap_give_back(layer, sizeof(*layer));
}

static void test_only_what_is_used_is_copied(void)
{
    gh_family_layer *layer = dense();
    struct gh_traits a, b;

    is_status(take(layer, &a), GH_OK, &err, "a description is taken");
    layer->parts[5] = 77;
    layer->nodes[3].lane = 77;
    layer->tensors[2].parts = 77;
    layer->note[100] = 'x';
    is_status(take(layer, &b), GH_OK, &err,
              "and one with something in what is not used");
    ok(gh_family_difference(&a, &b) == NULL, "as the same");
    tap_give_back(layer, sizeof(*layer));
}

static void check_differs(const char *field, void (*change)(gh_family_layer *))
{
    gh_family_layer *layer = dense();
    struct gh_traits before, after;

    layer->capturable = BIT(MLP);
    strcpy(layer->why_not, "its attention is odd");
    take(layer, &before);
    change(layer);
    is_status(take(layer, &after), GH_OK, &err, "%s may be another", field);
    is_str(gh_family_difference(&before, &after), field,
           "%s: which is the difference", field);
    tap_give_back(layer, sizeof(*layer));
}

static void swap_parts(gh_family_layer *layer)
{
    layer->parts[0] = GH_PART_MLP;
    layer->parts[1] = GH_PART_ATTN;
}

static void hold_back_all(gh_family_layer *layer)
{
    layer->capturable = 0;
}

static void read_a_tensor(gh_family_layer *layer)
{
    layer->n_tensors = 1;
    layer->tensors[0].name = "table";
    layer->tensors[0].parts = BIT(MLP);
}

static void be_one_node(gh_family_layer *layer)
{
    layer->n_nodes = 1;
    layer->nodes[0].first = GH_PART_ATTN;
    layer->nodes[0].last = GH_PART_MLP;
}

static void read_another(gh_family_layer *layer)
{
    layer->n_tensors = 1;
    layer->tensors[0].name = "another";
    layer->tensors[0].parts = BIT(MLP);
}

static void have_another_reason(gh_family_layer *layer)
{
    layer->why_not[0] = 'I';
}

static void have_a_note(gh_family_layer *layer)
{
    strcpy(layer->note, "a note");
}

static void test_every_difference_is_seen(void)
{
    gh_family_layer *layer = dense();
    struct gh_traits before, after;

    read_a_tensor(layer);
    take(layer, &before);
    read_another(layer);
    take(layer, &after);
    is_str(gh_family_difference(&before, &after), "tensors",
           "another name of a tensor is a difference");
    tap_give_back(layer, sizeof(*layer));
    check_differs("parts", swap_parts);
    check_differs("capturable", hold_back_all);
    check_differs("tensors", read_a_tensor);
    check_differs("nodes", be_one_node);
    check_differs("why_not", have_another_reason);
    check_differs("note", have_a_note);
}

static void test_nodes(void)
{
    gh_family_layer *layer = dense();
    struct gh_traits traits;

    layer->n_nodes = 2;
    layer->nodes[0] =
        (gh_family_node){ .first = GH_PART_ATTN, .last = GH_PART_ATTN };
    layer->nodes[1] = (gh_family_node){ .first = GH_PART_MLP,
                                        .last = GH_PART_MLP,
                                        .lane = GH_LANE_COMM };
    is_status(take(layer, &traits), GH_OK, &err,
              "nodes that cover the parts are taken");
    ok(traits.layer.nodes[1].first == GH_PART_MLP &&
           traits.layer.nodes[1].lane == GH_LANE_COMM,
       "with what the last one says");
    layer->nodes[1].lane = GH_LANE_COMM + 1;
    is_status(take(layer, &traits), GH_ERR_INVALID, &err,
              "the first lane that is none is refused");
    layer->nodes[1].lane = 0;
    layer->nodes[1].reserved = 1;
    is_status(take(layer, &traits), GH_ERR_INVALID, &err,
              "a node with reserved set is refused");
    ok(said("nodes[1] has reserved set: leave it 0"), "which is said");
    layer->nodes[1].reserved = 0;
    layer->n_nodes = 3;
    is_status(take(layer, &traits), GH_ERR_INVALID, &err,
              "a node behind the last part is refused");
    ok(said("and not at the layer's end"), "which is said: %s", err.text);
    tap_give_back(layer, sizeof(*layer));
}

static void test_characters(void)
{
    static const struct {
        const char *text;
        bool good;
    } rows[] = {
        { " ", true },     { "~", true },        { "\x1f", false },
        { "\x7f", false }, { "\xc3\xa9", true }, { "\xc3", false },
    };
    gh_family_layer *layer = dense();
    struct gh_traits traits;

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        strcpy(layer->note, rows[i].text);
        is_status(take(layer, &traits), rows[i].good ? GH_OK : GH_ERR_INVALID,
                  &err, "text %zu is %s", i,
                  rows[i].good ? "taken" : "refused");
    }
    tap_give_back(layer, sizeof(*layer));
}

/* ---- models -------------------------------------------------------------- */

static char plugins[4096];
static char called[256];

static void note(void *user, const struct gh_family_where *at)
{
    (void)user;
    strcat(called, at->layer);
    strcat(called, " ");
    strcat(called, at->family);
    strcat(called,
           strcmp(at->file + strlen(at->file) - 3, ".so") == 0 ? "; " : "?");
}

static gh_model *model_of(const char *const *families, uint32_t n)
{
    gh_model *model = NULL;

    gh_model_create(&model, NULL);
    for (uint32_t i = 0; i < n; i++) {
        const gh_layer_desc desc = { .struct_size = sizeof(desc),
                                     .kind = GH_LAYER_DENSE,
                                     .family = families[i] };

        gh_model_add_layer(model, &desc, NULL);
    }
    return model;
}

static void test_one_family_after_the_other(void)
{
    static const char *const families[] = { NULL,  "mla", "gpt",    "mla",
                                            "gpt", "gpt", "example" };
    const uint32_t n = sizeof(families) / sizeof(families[0]);
    const struct gh_family_watch watch = { note, NULL };
    gh_model *model = model_of(families, n);
    struct gh_traits_set set;
    bool same = true;

    called[0] = '\0';
    is_status(gh_families_resolve(model, plugins, &watch, &set, &err), GH_OK,
              &err, "a model of three families is described");
    is_str(called, "layer 1 mla; layer 2 gpt; layer 6 example; ",
           "each is told of once, by its first layer and its file");
    is_int(set.n_sources, 3, "each is kept once");
    is_int(set.n_layers, n, "of all layers");
    for (uint32_t i = 0; i < n; i++) {
        const struct gh_traits *traits = set.of_layer[i];

        same = same && (families[i] == NULL
                            ? traits == NULL
                            : strcmp(traits->source->name, families[i]) == 0);
    }
    ok(same, "every layer is described by its own family");
    is_int(set.n_traits, 3, "layers alike share a description");
    ok(set.traits[0]->first == 1 && set.traits[0]->n_layers == 2 &&
           set.traits[1]->first == 2 && set.traits[1]->n_layers == 3 &&
           set.traits[2]->first == 6 && set.traits[2]->n_layers == 1,
       "which come in the order of the layers, and count them");
    gh_traits_free(&set);
    gh_model_destroy(model);
}

static void test_nothing_is_left_of_a_refusal(void)
{
    static const char *const families[] = { "gpt", "gpt", "mamba", "nowhere" };
    struct gh_traits_set set;

    for (uint32_t n = 3; n <= 4; n++) {
        gh_model *model = model_of(families, n);

        memset(&set, 0xA5, sizeof(set));
        called[0] = '\0';
        ok(gh_families_resolve(model, plugins,
                               &(struct gh_family_watch){ note, NULL }, &set,
                               &err) < 0,
           "%u layers: a model is refused: %s", n, err.text);
        is_str(called, n == 3 ? "layer 0 gpt; layer 2 mamba; " : "",
               "%u layers: all files are found before any is called", n);
        ok(set.n_sources == 0 && set.sources == NULL && set.n_traits == 0 &&
               set.of_layer == NULL,
           "%u layers: and nothing is left", n);
        gh_model_destroy(model);
    }
}

static void test_a_name_leads_nowhere_else(void)
{
    const struct gh_family_where up = { NULL, "../.libs/gpt", NULL };
    char file[GH_FAMILY_FILE_BYTES];

    is_status(gh_family_find(&up, plugins, file, &err), GH_ERR_INVALID, &err,
              "a name with a way in it is not looked for");
    ok(said("this is no name: use letters, digits, _ and -"),
       "which is said with the rule");
}

static void test_a_path_is_read_to_its_end(void)
{
    static const char text[] = "/one:/two";
    char *path = tap_before_the_end(sizeof(text));
    struct gh_family_dirs dirs;

    memcpy(path, text, sizeof(text));
    gh_family_dirs_start(&dirs, path);
    ok(gh_family_dirs_next(&dirs) && dirs.named &&
           strcmp(dirs.directory, "/one") == 0,
       "the first place of a path is the first");
    ok(gh_family_dirs_next(&dirs) && dirs.named &&
           strcmp(dirs.directory, "/two") == 0,
       "the second is the second");
    ok(!gh_family_dirs_repeat(&dirs),
       "two that are not there are not the same");
    ok(gh_family_dirs_next(&dirs) && !dirs.named,
       "and what comes after is not the path's");
    tap_give_back(path, sizeof(text));
}

static void test_the_list_of_files(void)
{
    struct gh_family_file *files;
    bool ordered = true, twice = false;
    uint32_t n;
    int before = dup(0), after;

    close(before);
    is_status(gh_family_list(plugins, &files, &n, &err), GH_OK, &err,
              "families are listed");
    after = dup(0);
    close(after);
    is_int(after, before, "and no directory is left open");
    for (uint32_t i = 1; i < n; i++) {
        ordered = ordered && strcmp(files[i - 1].name, files[i].name) <= 0;
        twice = twice || strcmp(files[i - 1].name, files[i].name) == 0;
    }
    ok(n >= 5 && ordered, "by their names");
    ok(!twice, "each once");
    free(files);
}

static void test_a_load_leaves_nothing(void)
{
    char file[4200];
    const struct gh_family_where gpt = { NULL, "gpt", file };
    const gh_family *table = NULL;
    int before = dup(0), after;

    close(before);
    snprintf(file, sizeof(file), "%s/gpt.so", plugins);
    is_status(gh_family_load(&gpt, &table, &err), GH_OK, &err, "gpt is loaded");
    after = dup(0);
    close(after);
    is_int(after, before, "and no file is left open");
    is_str(table->name, "gpt", "its table stays where it is");
    ok(dlsym(RTLD_DEFAULT, GH_FAMILY_SYMBOL) == NULL,
       "and is nobody else's to see");
}

int main(void)
{
    const char *builddir = getenv("builddir");

    snprintf(plugins, sizeof(plugins), "%s/plugins/.libs",
             builddir != NULL ? builddir : ".");
    test_a_sentence_without_an_end();
    test_answers();
    test_a_long_sentence_keeps_the_end_of_the_file();
    test_a_table_as_large_as_it_says();
    test_a_table_with_a_name_without_an_end();
    test_a_text_without_an_end();
    test_a_tensor_without_an_end();
    test_arrays_have_bounds();
    test_only_what_is_used_is_copied();
    test_every_difference_is_seen();
    test_nodes();
    test_characters();
    test_one_family_after_the_other();
    test_nothing_is_left_of_a_refusal();
    test_a_name_leads_nowhere_else();
    test_a_path_is_read_to_its_end();
    test_the_list_of_files();
    test_a_load_leaves_nothing();
    return done_testing();
}
