/*
 * plan.c - `graphhooks plan`: resolves a description and prints the plan.
 *
 * Options win over what the description says; of the environment only
 * GRAPHHOOKS_PLUGIN_PATH has a say, so that a plan depends on nothing but the
 * command line, the file and the families that it names.
 *
 * Exit status: 0; 1 for a request that is impossible or a family that is not
 * usable; 2 for a command line or a description that is not understood.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "plan.h"

#include "base/error.h"
#include "costs.h"
#include "describe.h"
#include "families.h"
#include "memory.h"
#include "orders.h"
#include "pipeline.h"
#include "words.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct arguments {
    const char *file;
    const char *scope, *granularity, *ep_overlap, *delay_wgrad;
    const char *fraction, *buffers, *in_flight;
    struct pipeline_request pipeline;
    const char *why; /* NULL: not given, as of the others */
    bool json, table, all;
};

static const char *const options[] = {
    "--scope",       "--granularity",       "--ep-overlap",
    "--delay-wgrad", "--offload-fraction",  "--offload-buffers",
    "--in-flight",   "--pp",                "--vpp",
    "--group",       "--microbatches",      "--schedule",
    "--stage-times", "--why",               "--json",
    "--table",       "--all",               NULL,
};

static int say(const char *text)
{
    fprintf(stderr, "graphhooks plan: %s\n", text);
    return 2;
}

/* Where an option's value goes; NULL for an option without one. */
static const char **value_of(struct arguments *a, int option)
{
    const char **const values[] = { &a->scope,      &a->granularity,
                                    &a->ep_overlap, &a->delay_wgrad,
                                    &a->fraction,   &a->buffers,
                                    &a->in_flight,  &a->pipeline.pp,
                                    &a->pipeline.vpp,
                                    &a->pipeline.group,
                                    &a->pipeline.microbatches,
                                    &a->pipeline.schedule,
                                    &a->pipeline.stage_times,
                                    &a->why,        NULL,
                                    NULL,           NULL };

    return values[option];
}

static int take_argument(struct arguments *a, int argc, char **argv, int *i)
{
    const char *equals = strchr(argv[*i], '=');
    const char *word = argv[*i];
    const char **value;
    char name[32];
    int option;

    if (strncmp(word, "--", 2) == 0 && equals != NULL) {
        snprintf(name, sizeof(name), "%.*s", (int)(equals - word), word);
        word = name;
    } else {
        equals = NULL;
    }
    option = word_place(options, word);
    if (option < 0 && word[0] == '-' && word[1] != '\0') {
        return refuse("an option of plan", word, options);
    }
    if (option < 0) {
        if (a->file != NULL) {
            return say("give one description, or - for standard input");
        }
        a->file = word;
        return 0;
    }
    value = value_of(a, option);
    if (value == NULL && equals != NULL) {
        fprintf(stderr, "graphhooks plan: %s takes no value\n", word);
        return 2;
    }
    if (value == NULL) {
        a->json = a->json || strcmp(word, "--json") == 0;
        a->table = a->table || strcmp(word, "--table") == 0;
        a->all = a->all || strcmp(word, "--all") == 0;
        return 0;
    }
    if (equals != NULL) {
        *value = equals + 1;
        return 0;
    }
    if (++*i == argc) {
        fprintf(stderr, "graphhooks plan: %s takes a value\n", word);
        return 2;
    }
    *value = argv[*i];
    return 0;
}

static int take_arguments(int argc, char **argv, struct arguments *a)
{
    memset(a, 0, sizeof(*a));
    for (int i = 2; i < argc; i++) {
        const int status = take_argument(a, argc, argv, &i);

        if (status != 0) {
            return status;
        }
    }
    if (a->table) {
        return argc == 3 ? 0 : say("--table goes alone");
    }
    if (a->file == NULL) {
        return say("which description? give its file, or - for standard input");
    }
    if (a->json && a->why != NULL) {
        return say("--why is for people and --json for programs: give one");
    }
    if (a->all && (a->json || a->why != NULL)) {
        return say("--all is of the plan as text: leave out --json and --why");
    }
    return 0;
}

/* Words with commas between them; none means whole layers. */
static gh_status parse_scope(const char *list, uint32_t *scope, gh_error *err)
{
    const char *at = list;

    *scope = 0;
    while (*at != '\0') {
        const size_t bytes = strcspn(at, ",");
        char word[64];
        int place;

        snprintf(word, sizeof(word), "%.*s", bytes < 60 ? (int)bytes : 60, at);
        place = word_place(scope_words(), word);
        if (place < 0) {
            return word_refuse("--scope", word, scope_words(), err);
        }
        *scope |= 1u << place;
        at += bytes + (at[bytes] == ',');
    }
    return GH_OK;
}

/* Without a value, *set stays as it is. */
static gh_status take_switch(const char *option, const char *value, bool *set,
                             gh_error *err)
{
    static const char *const words[] = { "0", "1", NULL };
    const int place = value == NULL ? *set : word_place(words, value);

    if (place < 0) {
        return word_refuse(option, value, words, err);
    }
    *set = place == 1;
    return GH_OK;
}

static gh_status take_options(const struct arguments *a,
                              struct gh_plan_options *o, gh_error *err)
{
    gh_status status;
    int place;

    if (a->scope != NULL) {
        status = parse_scope(a->scope, &o->scope, err);
        if (status != GH_OK) {
            return status;
        }
    }
    if (a->granularity != NULL) {
        place = word_place(granularity_words, a->granularity);
        if (place < 0) {
            return word_refuse("--granularity", a->granularity,
                               granularity_words, err);
        }
        o->granularity = (enum gh_granularity)place;
    }
    status = take_switch("--ep-overlap", a->ep_overlap, &o->ep_overlap, err);
    if (status != GH_OK) {
        return status;
    }
    return take_switch("--delay-wgrad", a->delay_wgrad, &o->delay_wgrad, err);
}

static gh_status take_foresight(const struct arguments *a,
                                struct foresight *foresight, gh_error *err)
{
    gh_status status = costs_take_fraction(foresight, "--offload-fraction",
                                           a->fraction, err);

    if (status == GH_OK) {
        status = costs_take_buffers(foresight, "--offload-buffers", a->buffers,
                                    err);
    }
    return status == GH_OK ? costs_take_in_flight(foresight, "--in-flight",
                                                  a->in_flight, err)
                           : status;
}

static gh_status read_description(const char *path, struct description *d,
                                  gh_error *err)
{
    const bool is_stdin = strcmp(path, "-") == 0;
    FILE *file = is_stdin ? stdin : fopen(path, "rb");
    gh_status status;

    if (file == NULL) {
        return gh_fail(err, GH_ERR_CONFIG, "%s", strerror(errno));
    }
    errno = 0;
    status = describe_file(file, d, err);
    if (ferror(file) != 0) {
        if (status == GH_OK) {
            describe_free(d);
        }
        status =
            gh_fail(err, GH_ERR_CONFIG, "cannot be read: %s", strerror(errno));
    }
    if (!is_stdin) {
        fclose(file);
    }
    return status;
}

static void write_stdout(void *user, const char *text, size_t bytes)
{
    (void)user;
    fwrite(text, 1, bytes, stdout);
}

/* What was asked for, above the text that says what came of it. */
static void print_request(const char *name, const struct gh_plan *plan)
{
    const char *const *words = scope_words();

    printf("%s: %u layer%s, ", name, plan->n_layers,
           plan->n_layers == 1 ? "" : "s");
    if (plan->options.scope == 0) {
        printf("whole layers");
    } else {
        printf("scope");
    }
    for (int i = 0; words[i] != NULL; i++) {
        if ((plan->options.scope & 1u << i) != 0) {
            printf(" %s", words[i]);
        }
    }
    printf("%s%s\n", plan->options.ep_overlap ? ", ep overlap" : "",
           plan->options.delay_wgrad ? ", delayed wgrad" : "");
}

/* All but the first byte, which is written: the brace of an object. */
static void write_rest(void *user, const char *text, size_t bytes)
{
    bool *begun = user;

    if (!*begun && bytes > 0) {
        *begun = true;
        text++;
        bytes--;
    }
    write_stdout(NULL, text, bytes);
}

static void print_json(const struct gh_plan *plan,
                       const struct description *d,
                       const struct pipeline_forecast *pipeline)
{
    bool begun = false;

    printf("{");
    foresee_print_json(plan, &d->foresight);
    measured_print_json(&d->measured);
    orders_print_json(plan, d->nodes);
    pipeline_print_json(pipeline);
    memory_print_json(plan, &d->memory, &d->foresight, pipeline);
    gh_plan_write(plan, GH_FORMAT_JSON, write_rest, &begun);
}

/* What is shown, and of what. */
struct showing {
    const struct arguments *a;
    const struct description *d;
};

static int show(void *arg, struct gh_traits_set *traits)
{
    const struct showing *s = arg;
    const struct arguments *a = s->a;
    const struct description *d = s->d;
    struct pipeline_forecast *pipeline = NULL;
    struct gh_plan plan;
    gh_error err;
    int status = 0;

    if (gh_plan_make_with(d->model, traits, &d->options, &plan, &err) !=
        GH_OK) {
        fprintf(stderr, "graphhooks: %s: %s\n", d->name, err.text);
        return 1;
    }
    if (orders_check(&plan, d->nodes, &err) != GH_OK ||
        pipeline_foresee(&a->pipeline, &plan, &d->slots, &pipeline, &err) !=
            GH_OK) {
        fprintf(stderr, "graphhooks: %s: %s\n", d->name, err.text);
        status = 2;
    } else if (a->why != NULL) {
        status = plan_why(&plan, a->why);
    } else if (a->json) {
        print_json(&plan, d, pipeline);
    } else {
        print_request(d->name, &plan);
        if (a->all) {
            gh_plan_write_all(&plan, write_stdout, NULL);
        } else {
            gh_plan_write(&plan, GH_FORMAT_TEXT, write_stdout, NULL);
        }
        foresee_print(&plan, &d->foresight);
        orders_print(&plan, d->nodes);
        pipeline_print(pipeline);
        memory_print(&plan, &d->memory, &d->foresight, pipeline);
        measured_print(&d->measured);
    }
    pipeline_free(pipeline);
    gh_plan_free(&plan);
    return status;
}

/* A plan depends on its command line, which somebody may not expect. */
static void say_not_read(void)
{
    static const char *const names[] = { "GRAPHHOOKS_SCOPE",
                                         "GRAPHHOOKS_GRANULARITY" };
    const char *set[2] = { NULL };
    int n = 0;

    for (int i = 0; i < 2; i++) {
        const char *value = getenv(names[i]);

        if (value != NULL && value[0] != '\0') {
            set[n++] = names[i];
        }
    }
    if (n > 0) {
        fprintf(stderr,
                "graphhooks plan: %s%s%s: not read here; give --scope and "
                "--granularity\n",
                set[0], n > 1 ? " and " : "", n > 1 ? set[1] : "");
    }
}

int plan_command(int argc, char **argv)
{
    struct description d;
    struct arguments a;
    gh_error err;
    int status = take_arguments(argc, argv, &a);

    if (status != 0) {
        return status;
    }
    if (a.table) {
        plan_table();
        return 0;
    }
    say_not_read();
    if (read_description(a.file, &d, &err) != GH_OK) {
        fprintf(stderr, "graphhooks: %s: %s\n", a.file, err.text);
        return 2;
    }
    if (take_options(&a, &d.options, &err) != GH_OK ||
        take_foresight(&a, &d.foresight, &err) != GH_OK) {
        describe_free(&d);
        return say(err.text);
    }
    status = families_use(d.model, d.name, show,
                          &(struct showing){ .a = &a, .d = &d });
    describe_free(&d);
    return status;
}
