/*
 * command.c - the table of options, and reading the command line with it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "cli/command.h"

#include "model/saved.h"
#include "step/offload_request.h"
#include "step/pipeline_schedule.h"
#include "words/exchange.h"
#include "words/nearest.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum kind {
    KIND_INT,
    KIND_SEED,
    KIND_REAL,
    KIND_TEXT,
    KIND_FLAG,
    KIND_FAMILY,
    KIND_WORD, /* one of `words`, kept as text */
    KIND_MODEL,
    KIND_PATTERN,
    KIND_COUNTS,
    KIND_LENGTHS,
    KIND_CP,
    KIND_SPLIT,
    KIND_EXCHANGE,
    KIND_MODES,
    KIND_DELAY,
    KIND_STASH,
    KIND_BYTES,
    KIND_STREAM
};

struct row {
    const char *name;
    enum kind kind;
    size_t offset;
    int least, most;
    const char *value, *help;
};

#define AT(field) offsetof(struct command, field)
#define RUN(field) AT(options.field) /* of every run */
#define EXCHANGE_WORD(id, word) #word "|"

static const struct row table[] = {
    { "--model", KIND_MODEL, 0, 0, 0, "gpt|moe|mla|mamba|hybrid",
      "what to train (gpt)" },
    { "--pattern", KIND_PATTERN, 0, 0, 0, "LETTERS",
      "hybrid layers, cycled: M mamba, * attention, - MLP, E MoE (M*-E)" },
    { "--layers", KIND_INT, RUN(config.layers), 1, 512, "N",
      "transformer layers (4)" },
    { "--hidden", KIND_INT, RUN(config.hidden), 1, 16384, "N",
      "width of the residual stream (64)" },
    { "--heads", KIND_INT, RUN(config.heads), 1, 256, "N",
      "attention heads; divides hidden (4)" },
    { "--seq", KIND_INT, RUN(config.seq), 1, 8192, "N",
      "bytes in a sequence (32)" },
    { "--lengths", KIND_LENGTHS, 0, 1, 8192, "N,N,...",
      "sequences of several lengths, that microbatches take in turn" },
    { "--packed", KIND_FLAG, RUN(packed), 0, 0, NULL,
      "microbatches of whole documents, each of which attends to itself" },
    { "--batch", KIND_INT, RUN(config.batch), 1, 1024, "N",
      "sequences in a microbatch (4)" },
    { "--tied", KIND_FLAG, RUN(config.tied), 0, 0, NULL,
      "the head has the embedding's weights" },
    { "--experts", KIND_INT, RUN(config.experts), 1, 1024, "N",
      "experts of a layer that has them (4; of mla: none)" },
    { "--dense-layers", KIND_INT, RUN(config.dense_layers), 0, 511, "N",
      "layers before the first that has experts (0)" },
    { "--top-k", KIND_INT, RUN(config.top_k), 1, 1024, "N",
      "experts that a byte goes to (2)" },
    { "--shared-expert", KIND_FLAG, RUN(config.shared_expert), 0, 0, NULL,
      "one expert more, for every byte" },
    { "--busy-expert", KIND_FLAG, RUN(config.busy_expert), 0, 0, NULL,
      "every byte goes to the first expert, and to others" },
    { "--drop-and-pad", KIND_FLAG, RUN(config.drop_and_pad), 0, 0, NULL,
      "the same number of bytes for every expert" },
    { "--dropless-host", KIND_FLAG, RUN(config.dropless_host), 0, 0, NULL,
      "the host reads how many go where, and waits" },
    { "--sync-free", KIND_FLAG, RUN(config.sync_free), 0, 0, NULL,
      "ranks that divide experts exchange room for all bytes, and no wait" },
    { "--state", KIND_INT, RUN(config.state), 1, 256, "N",
      "numbers that a Mamba channel carries on (8)" },
    { "--steps", KIND_INT, RUN(steps), 1, 1000000, "N",
      "optimizer steps (20)" },
    { "--microbatches", KIND_COUNTS, 0, 1, 1024, "N,N,...",
      "microbatches of each step, cycled (4,6,8,3)" },
    { "--in-flight", KIND_INT, RUN(in_flight), 1, MAX_SLOTS, "N",
      "microbatches between forward and backward (4)" },
    { "--delay-wgrad", KIND_DELAY, 0, 0, MAX_SLOTS - 1, "N",
      "weights' gradients as passes of their own, N microbatches later" },
    { "--streams", KIND_INT, RUN(streams), 1, MAX_STREAMS, "N",
      "streams that microbatches take in turn (1)" },
    { "--stream", KIND_STREAM, 0, 0, 0, "legacy|own",
      "legacy: everything on the default stream (own)" },
    { "--compare", KIND_MODES, 0, 0, 0, "MODE,...",
      "eager, graph, step, plain, bare, graph+offload, graph+offload+delay, "
      "overlap, overlap+graph, overlap+graph+delay-wgrad, "
      "overlap+graph+offload+delay: run each, compare (eager,graph)" },
    { "--offload", KIND_TEXT, RUN(offload), 0, 0, "MODULE,...",
      "what goes to the host in the modes with offload (all modules)" },
    { "--stash", KIND_STASH, 0, 100, 10000, "N%|BYTES",
      "experts' rows in pages: N %, from 100 on, of what the first step needs, "
      "or BYTES" },
    { "--stash-spill", KIND_BYTES, RUN(spill_bytes), 0, 0, "BYTES",
      "pinned memory of the host for pages that the stash lacks" },
    { "--suspend", KIND_INT, RUN(suspend), 1, 1000000, "SEED",
      "give the library's memory back now and then, by this seed, and resume" },
    { "--family", KIND_FAMILY, RUN(no_family), 0, 0, "auto|none",
      "the plugins that describe the layers to the library (auto)" },
    { "--ranks", KIND_INT, AT(ranks), 1, RANKS_MOST, "N",
      "train by N ranks, each on its part of a step's text (1)" },
    { "--pp", KIND_INT, RUN(pp), 1, RANKS_MOST, "N",
      "stages of a pipeline, each a part of the ranks (1)" },
    { "--vpp", KIND_INT, RUN(vpp), 1, MAX_CHUNKS, "N",
      "chunks of layers that a stage has (1)" },
    { "--schedule", KIND_TEXT, RUN(schedule), 0, 0,
      "1f1b|interleaved|zero-bubble|dualpipev|FILE",
      "what a stage does when (1f1b; of several chunks: interleaved)" },
    { "--group", KIND_INT, RUN(group), 1, 1024, "N",
      "microbatches that go through a chunk in a row (as many as stages)" },
    { "--split", KIND_SPLIT, 0, 1, 512, "N,N,...",
      "layers of each part of the pipeline (as even as possible)" },
    { "--time-passes", KIND_INT, RUN(time_passes), 1, 1000000, "N",
      "of the last N steps of most microbatches: how long stages are idle" },
    { "--ep", KIND_INT, RUN(config.ep), 1, EXCHANGE_RANKS, "N",
      "so many ranks divide the experts, and exchange tokens (1)" },
    { "--exchange", KIND_WORD, RUN(exchange), 0, 0,
      EXCHANGE_KINDS(EXCHANGE_WORD) "auto",
      "tokens go by the library's exchange (by the engine's sends)" },
    { "--cp", KIND_CP, 0, 1, RANKS_MOST, "N,N,...",
      "how many ranks may share a sequence: as few as its documents need" },
    { "--cp-force", KIND_INT, RUN(cp_force), 1, RANKS_MOST, "N",
      "so many share it in every microbatch" },
    { "--cp-comm", KIND_EXCHANGE, 0, 0, 0, "allgather|ring",
      "how keys and values come to the others (allgather)" },
    { "--processes", KIND_FLAG, AT(processes), 0, 0, NULL,
      "the ranks are processes; those of mpirun or torchrun need no option" },
    { "--nccl", KIND_TEXT, AT(nccl), 0, 0, "PATH",
      "the NCCL of several ranks (softnccl on soft, else libnccl.so.2)" },
    { "--limit", KIND_INT, AT(limit_s), 1, 86400, "SECONDS",
      "how long to wait for a rank that does not come (GRAPHHOOKS_TIMEOUT)" },
    { "--driver", KIND_WORD, AT(driver), 0, 0, "soft|cuda",
      "the software device, or CUDA (CUDA where there is a device)" },
    { "--library", KIND_TEXT, RUN(library), 0, 0, "PATH",
      "the graphhooks library to load (GRAPHHOOKS_LIBRARY)" },
    { "--data", KIND_TEXT, AT(data), 0, 0, "FILE",
      "text to train on (the text that is installed)" },
    { "--seed", KIND_SEED, RUN(config.seed), 0, 0, "N",
      "seed of weights and samples (1)" },
    { "--lr", KIND_REAL, RUN(lr), 0, 1000, "X", "learning rate (0.003)" },
    { "--warmup", KIND_INT, RUN(warmup), 0, 1000000, "N",
      "steps in which the learning rate rises (4)" },
    { "--json", KIND_TEXT, AT(json), 0, 0, "FILE", "write results there" },
    { "--trace", KIND_TEXT, RUN(trace), 0, 0, "FILE",
      "write a timeline of the hooks there (GRAPHHOOKS_TRACE); with --pp also "
      "FILE.rankN" },
    { "--quiet", KIND_FLAG, AT(quiet), 0, 0, NULL, "only the table" },
    { "--help", KIND_FLAG, AT(help), 0, 0, NULL, "this text, as -h" },
};

static const char *const mode_names[MODE_COUNT] = {
    "eager",
    "graph",
    "step",
    "plain",
    "bare",
    "graph+offload",
    "graph+offload+delay",
    "overlap",
    "overlap+graph",
    "overlap+graph+delay-wgrad",
    "overlap+graph+offload+delay",
};

const char *mode_name(enum mode mode)
{
    return mode_names[mode];
}

void command_help(void)
{
    printf("usage: gh-engine [OPTION]...\n"
           "Trains a byte-level GPT on text, layer by layer eagerly, "
           "through graphhooks,\n"
           "or each step as one graph, and compares the numbers bit for "
           "bit.\n\n");
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        const struct row *row = &table[i];
        char left[40];

        snprintf(left, sizeof(left), "%s %s", row->name,
                 row->value == NULL ? "" : row->value);
        printf("  %-26s %s\n", left, row->help);
    }
    printf("\nWith --delay-wgrad every mode delays, in the same order, but "
           "plain: eager,\n"
           "nothing delayed.  It is run first, and all others have to be "
           "equal to it.\n");
    printf("\nOn SIGINT or SIGTERM the run ends after its step, and the table "
           "and the files\nhave what was done; a second one ends the program "
           "at once.\n");
    printf("\nExit status: 0 the modes are equal, 1 they are not, 2 a bad "
           "option or file,\n3 the device or the library failed, 130 "
           "interrupted (143 by SIGTERM).\n");
}

/* strtoull() would also take "-1", and spaces before a number. */
static bool starts_with_digit(const char *text)
{
    return *text >= '0' && *text <= '9';
}

static int whole_number(const char *text, long least, long most, long *value)
{
    char *end;

    errno = 0;
    *value = strtol(text, &end, 10);
    return errno != 0 || end == text || *end != '\0' || *value < least ||
                   *value > most
               ? -1
               : 0;
}

/* Calls each() with every piece between commas.  Returns -1 as soon as one call
 * fails. */
static int split(const char *list, struct command *command,
                 int (*each)(struct command *, const char *piece))
{
    while (true) {
        const size_t length = strcspn(list, ",");
        char piece[32];

        if (length == 0 || length >= sizeof(piece)) {
            return -1;
        }
        memcpy(piece, list, length);
        piece[length] = '\0';
        if (each(command, piece) != 0) {
            return -1;
        }
        if (list[length] == '\0') {
            return 0;
        }
        list += length + 1;
    }
}

static int add_count(struct command *command, const char *piece)
{
    struct options *options = &command->options;
    long value;

    if (options->n_counts == MAX_COUNTS ||
        whole_number(piece, 1, 1024, &value) != 0) {
        return -1;
    }
    options->counts[options->n_counts++] = (int)value;
    return 0;
}

static int add_length(struct command *command, const char *piece)
{
    struct options *options = &command->options;
    long value;

    if (options->n_lengths == MAX_LENGTHS ||
        whole_number(piece, 1, 8192, &value) != 0) {
        return -1;
    }
    options->lengths[options->n_lengths++] = (int)value;
    return 0;
}

static int add_cp(struct command *command, const char *piece)
{
    struct options *options = &command->options;
    const int n = options->n_cp;
    long value;

    if (n == MAX_CP || whole_number(piece, 1, RANKS_MOST, &value) != 0 ||
        (n > 0 && value <= options->cp[n - 1])) {
        return -1;
    }
    options->cp[options->n_cp++] = (int)value;
    return 0;
}

static int add_split(struct command *command, const char *piece)
{
    struct options *options = &command->options;
    long value;

    if (options->n_split == MAX_SPLIT ||
        whole_number(piece, 1, 512, &value) != 0) {
        return -1;
    }
    options->split[options->n_split++] = (int)value;
    return 0;
}

static int add_mode(struct command *command, const char *piece)
{
    for (int i = 0; i < MODE_COUNT; i++) {
        if (strcmp(piece, mode_names[i]) == 0 && command->n_modes < MAX_MODES) {
            command->modes[command->n_modes++] = (enum mode)i;
            return 0;
        }
    }
    return -1;
}

static int set_delay(struct command *command, const struct row *row,
                     const char *value)
{
    long number;

    if (whole_number(value, row->least, row->most, &number) != 0) {
        return -1;
    }
    command->options.delay_wgrad = true;
    command->options.delay = (int)number;
    return 0;
}

/* Reads bytes, such as 4194304 or 4M. */
static int set_bytes(const char *value, uint64_t *bytes)
{
    static const char units[] = "KMG";
    const char *unit;
    char *end;
    unsigned long long number;

    errno = 0;
    number = strtoull(value, &end, 10);
    unit = *end != '\0' ? strchr(units, *end) : NULL;
    if (errno != 0 || !starts_with_digit(value) || number == 0 ||
        number >= UINT64_C(1) << 32) {
        return -1;
    }
    *bytes = (uint64_t)number;
    if (unit != NULL && end[1] == '\0') {
        *bytes <<= 10 * (unit - units + 1);
        return 0;
    }
    return *end == '\0' ? 0 : -1;
}

/* Reads pages by need, as 120%, or in bytes. */
static int set_stash(struct command *command, const struct row *row,
                     const char *value)
{
    struct options *options = &command->options;
    long percent;
    char number[16];
    const size_t n = strcspn(value, "%");

    options->stash = value;
    options->stash_bytes = options->stash_percent = 0;
    if (value[n] == '\0') {
        return set_bytes(value, &options->stash_bytes);
    }
    if (value[n + 1] != '\0' || n >= sizeof(number)) {
        return -1;
    }
    memcpy(number, value, n);
    number[n] = '\0';
    if (!starts_with_digit(number) ||
        whole_number(number, row->least, row->most, &percent) != 0) {
        return -1;
    }
    options->stash_percent = (uint32_t)percent;
    return 0;
}

/* Whether a list such as a|b has the word. */
static bool is_one_of(const char *word, const char *list)
{
    const size_t length = strlen(word);

    while (strncmp(list, word, length) != 0 ||
           (list[length] != '|' && list[length] != '\0')) {
        list = strchr(list, '|');
        if (list++ == NULL) {
            return false;
        }
    }
    return true;
}

static int set_model(struct command *command, const char *value)
{
    for (int i = 0; i < MODEL_COUNT; i++) {
        if (strcmp(value, model_name((enum model_kind)i)) == 0) {
            command->options.config.model = (enum model_kind)i;
            return 0;
        }
    }
    return -1;
}

/* Sets the field of a row.  Returns -1 if the value is not of the row's
 * kind. */
static int set_field(struct command *command, const struct row *row,
                     const char *value)
{
    void *field = (char *)command + row->offset;
    char *end;
    long number;

    switch (row->kind) {
    case KIND_INT:
        if (whole_number(value, row->least, row->most, &number) != 0) {
            return -1;
        }
        *(int *)field = (int)number;
        command->gave_in_flight =
            command->gave_in_flight || row->offset == RUN(in_flight);
        command->gave_seq = command->gave_seq ||
                            row->offset == RUN(config.seq);
        return 0;
    case KIND_SEED:
        errno = 0;
        *(uint64_t *)field = strtoull(value, &end, 10);
        return errno != 0 || *end != '\0' || !starts_with_digit(value) ? -1 : 0;
    case KIND_REAL:
        *(double *)field = strtod(value, &end);
        return end == value || *end != '\0' ||
                       !(*(double *)field > (double)row->least) ||
                       *(double *)field > (double)row->most
                   ? -1
                   : 0;
    case KIND_TEXT:
        *(const char **)field = value;
        return 0;
    case KIND_FLAG:
        *(bool *)field = true;
        return 0;
    case KIND_FAMILY:
        *(bool *)field = strcmp(value, "none") == 0;
        return *(bool *)field || strcmp(value, "auto") == 0 ? 0 : -1;
    case KIND_WORD:
        *(const char **)field = value;
        return is_one_of(value, row->value) ? 0 : -1;
    case KIND_MODEL:
        return set_model(command, value);
    case KIND_PATTERN:
        command->options.config.pattern = value;
        return pattern_valid(value) ? 0 : -1;
    case KIND_COUNTS:
        command->options.n_counts = 0;
        return split(value, command, add_count);
    case KIND_LENGTHS:
        command->options.n_lengths = 0;
        return split(value, command, add_length);
    case KIND_CP:
        command->options.n_cp = 0;
        return split(value, command, add_cp);
    case KIND_SPLIT:
        command->options.n_split = 0;
        return split(value, command, add_split);
    case KIND_EXCHANGE:
        command->gave_cp_comm = true;
        command->options.cp_ring = strcmp(value, "ring") == 0;
        return command->options.cp_ring || strcmp(value, "allgather") == 0
                   ? 0
                   : -1;
    case KIND_MODES:
        command->n_modes = 0;
        return split(value, command, add_mode);
    case KIND_DELAY:
        return set_delay(command, row, value);
    case KIND_STASH:
        return set_stash(command, row, value);
    case KIND_BYTES:
        return set_bytes(value, field);
    case KIND_STREAM:
        command->options.legacy = strcmp(value, "legacy") == 0;
        return command->options.legacy || strcmp(value, "own") == 0 ? 0 : -1;
    }
    return -1;
}

static const struct row *find_row(const char *argument, size_t length)
{
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        if (strlen(table[i].name) == length &&
            strncmp(table[i].name, argument, length) == 0) {
            return &table[i];
        }
    }
    return NULL;
}

/* Adds the word of `a|b|c` or `a,b,c` that was probably meant. */
static void suggest(const char *word, const char *list, char *text,
                    size_t text_bytes)
{
    char copy[192], *rest = NULL;
    const char *words[16] = { NULL }, *near;
    size_t n = 0;

    snprintf(copy, sizeof(copy), "%s", list);
    for (char *w = strtok_r(copy, "|, ", &rest); w != NULL && n < 15;
         w = strtok_r(NULL, "|, ", &rest)) {
        words[n++] = w;
    }
    near = nearest_word(word, words);
    if (near != NULL) {
        n = strlen(text);
        snprintf(text + n, text_bytes - n, "; did you mean %s?", near);
    }
}

static bool is_mode(const char *word)
{
    int i = 0;

    while (i < MODE_COUNT && strcmp(word, mode_names[i]) != 0) {
        i++;
    }
    return i < MODE_COUNT;
}

/* Writes the list of modes, and the first piece of `value` that is no mode. */
static void describe_modes(const char *value, char *text, size_t text_bytes)
{
    static const char *const list =
        "eager, graph, step, plain, bare, graph+offload, graph+offload+delay, "
        "overlap, overlap+graph, overlap+graph+delay-wgrad, "
        "overlap+graph+offload+delay";
    const char *at = value;

    snprintf(text, text_bytes,
             "--compare %s: expects up to %d of %s, with commas", value,
             MAX_MODES, list);
    while (true) {
        const size_t length = strcspn(at, ",");
        char piece[32];

        snprintf(piece, sizeof(piece), "%.*s", (int)length, at);
        if (!is_mode(piece)) {
            suggest(piece, list, text, text_bytes);
            return;
        }
        if (at[length] == '\0') {
            return;
        }
        at += length + 1;
    }
}

static void describe(const struct row *row, const char *value, char *text,
                     size_t text_bytes)
{
    switch (row->kind) {
    case KIND_INT:
    case KIND_DELAY:
        snprintf(text, text_bytes, "%s %s: expects %s, from %d to %d",
                 row->name, value, row->value, row->least, row->most);
        return;
    case KIND_COUNTS:
    case KIND_LENGTHS:
    case KIND_SPLIT:
        snprintf(text, text_bytes,
                 "%s %s: expects up to %d numbers with commas, each from %d "
                 "to %d",
                 row->name, value,
                 row->kind == KIND_COUNTS  ? MAX_COUNTS
                 : row->kind == KIND_SPLIT ? MAX_SPLIT
                                           : MAX_LENGTHS,
                 row->least, row->most);
        return;
    case KIND_CP:
        snprintf(text, text_bytes,
                 "%s %s: expects up to %d rising numbers with commas, each "
                 "from %d to %d",
                 row->name, value, MAX_CP, row->least, row->most);
        return;
    case KIND_SEED:
        snprintf(text, text_bytes, "%s %s: expects N, from 0 to %" PRIu64,
                 row->name, value, UINT64_MAX);
        return;
    case KIND_REAL:
        snprintf(text, text_bytes,
                 "%s %s: expects a number above %d, and at most %d", row->name,
                 value, row->least, row->most);
        return;
    case KIND_PATTERN:
        snprintf(text, text_bytes,
                 "%s %s: expects letters: M mamba, * attention, - MLP, E MoE",
                 row->name, value);
        return;
    case KIND_STASH:
        snprintf(text, text_bytes,
                 "%s %s: expects N%%, from %d%% to %d%% of what the first step "
                 "needs, or BYTES, such as 64M",
                 row->name, value, row->least, row->most);
        return;
    case KIND_BYTES:
        snprintf(text, text_bytes, "%s %s: expects %s, such as 65536 or 64M",
                 row->name, value, row->value);
        return;
    case KIND_MODES:
        describe_modes(value, text, text_bytes);
        return;
    default:
        snprintf(text, text_bytes, "%s %s: expects %s", row->name, value,
                 row->value);
        suggest(value, row->value, text, text_bytes);
    }
}

static void describe_unknown(const char *argument, size_t length, char *text,
                             size_t text_bytes)
{
    const char *names[sizeof(table) / sizeof(table[0]) + 1] = { NULL };
    char name[64];
    const char *near;

    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        names[i] = table[i].name;
    }
    snprintf(name, sizeof(name), "%.*s", (int)length, argument);
    near = nearest_word(name, names);
    if (near != NULL) {
        snprintf(text, text_bytes, "%s is no option; did you mean %s?", name,
                 near);
        return;
    }
    snprintf(text, text_bytes, "%s is no option; --help lists them", argument);
}

static const struct command defaults = {
    .options = { .config = { .layers = 4,
                             .hidden = 64,
                             .heads = 4,
                             .seq = 32,
                             .batch = 4,
                             .seed = 1 },
                 .steps = 20,
                 .in_flight = 4,
                 .streams = 1,
                 .lr = 3e-3,
                 .warmup = 4 },
    .modes = { MODE_EAGER, MODE_GRAPH },
    .n_modes = 2,
};

/* Puts plain mode first: the modes that delay are compared with it. */
static void put_plain_first(struct command *command)
{
    if (!command->options.delay_wgrad ||
        command_has_mode(command, MODE_PLAIN)) {
        return;
    }
    memmove(command->modes + 1, command->modes,
            (size_t)command->n_modes * sizeof(command->modes[0]));
    command->modes[0] = MODE_PLAIN;
    command->n_modes++;
}

/* Reads the words of --offload.  Returns -1, with a sentence, if a word does
 * not exist. */
static int name_offloaded(struct command *command, char *text,
                          size_t text_bytes)
{
    const char *near;
    char bad[40];

    if (offload_modules(&command->options, &command->options.offloaded, bad,
                        sizeof(bad)) == 0) {
        return 0;
    }
    near = nearest_word(bad, saved_names);
    snprintf(text, text_bytes,
             "--offload %s: expects modules with commas, such as "
             "core_attn,mlp_act%s%s",
             bad, near != NULL ? "; did you mean " : "",
             near != NULL ? near : "");
    return -1;
}

/* The library waits as long as the engine.  A variable wins over the option. */
static void complete_limit(struct command *command)
{
    const char *set = getenv("GRAPHHOOKS_TIMEOUT");
    long seconds;

    if (set != NULL && whole_number(set, 1, 86400, &seconds) == 0) {
        command->limit_s = (int)seconds;
    } else if (command->limit_s == 0) {
        command->limit_s = 60;
    }
}

/* The number of --cp-force need not be listed, and a list of only 1 means
 * none. */
static void complete_cp(struct options *options)
{
    if (options->n_cp == 0 && options->cp_force > 0) {
        options->cp[options->n_cp++] = options->cp_force;
    }
    if (options->n_cp == 1 && options->cp[0] == 1) {
        options->n_cp = 0;
    }
    if (options->n_cp > 0) {
        options->config.cp = options->cp[options->n_cp - 1];
    }
}

/* Takes counts that the schedule allows. */
static void complete_counts(struct options *options)
{
    static const int usual[] = { 4, 6, 8, 3 }, groups[] = { 2, 3, 4, 1 };
    const int group = options->group > 0 ? options->group : options->pp;
    const int least = options->placed_v ? 2 : 1;

    for (int i = 0; options->n_counts < 4; i++) {
        const int n = groups[i] > least ? groups[i] : least;

        options->counts[options->n_counts++] =
            options_pp(options) > 1 && options_vpp(options) > 1 ? n * group
                                                                : usual[i];
    }
}

/* Returns -1 with a sentence if the file of a schedule cannot be read. */
static int complete_pipeline(struct command *command, char *text,
                             size_t text_bytes)
{
    struct options *options = &command->options;

    if (pipeline_complete(options, text, text_bytes) != 0) {
        return -1;
    }
    if (options->n_counts == 0) {
        complete_counts(options);
    }
    if (options->schedule != NULL && options_pp(options) > 1 &&
        strcmp(options->schedule, "1f1b") != 0 &&
        strcmp(options->schedule, "interleaved") != 0) {
        options->delay_wgrad = true;
    }
    command->ranks_follow = command->ranks == 0;
    if (command->ranks_follow) {
        command->ranks = options_pp(options);
    }
    return 0;
}

/* Fills in what follows from the options that were given, and from those that
 * were not. */
static void complete(struct command *command)
{
    struct config *config = &command->options.config;

    put_plain_first(command);
    for (int i = 0; i < command->options.n_lengths; i++) {
        const int length = command->options.lengths[i];

        config->seq = i == 0 || length > config->seq ? length : config->seq;
    }
    complete_limit(command);
    complete_cp(&command->options);
    if (command->options.packed) {
        config->documents = config->batch * (config_keys(config) / 8 + 1);
    } else if (command->options.n_cp > 0) {
        config->documents = config->batch;
    }
    command->gave_experts = config->experts != 0;
    command->gave_top_k = config->top_k != 0;
    command->gave_state = config->state != 0;
    command->gave_pattern = config->pattern != NULL;
    if (!command->gave_top_k) {
        config->top_k = 2;
    }
    if (!command->gave_state) {
        config->state = 8;
    }
    if (config->experts == 0 && config->model != MODEL_MLA) {
        config->experts = 4;
    }
}

int command_parse(struct command *command, int argc, char **argv, char *text,
                  size_t text_bytes)
{
    *command = defaults;
    for (int i = 1; i < argc; i++) {
        const char *argument =
            strcmp(argv[i], "-h") == 0 ? "--help" : argv[i];
        const char *equals = strchr(argument, '=');
        const size_t length =
            equals == NULL ? strlen(argument) : (size_t)(equals - argument);
        const struct row *row = find_row(argument, length);
        const char *value = equals == NULL ? NULL : equals + 1;

        if (row == NULL) {
            describe_unknown(argument, length, text, text_bytes);
            return -1;
        }
        if (row->kind == KIND_FLAG && value != NULL) {
            snprintf(text, text_bytes, "%s takes no value", row->name);
            return -1;
        }
        if (row->kind != KIND_FLAG && value == NULL) {
            value = argv[++i];
        }
        if (row->kind != KIND_FLAG && value == NULL) {
            snprintf(text, text_bytes, "%s needs a value: %s", row->name,
                     row->value);
            return -1;
        }
        if (set_field(command, row, value) != 0) {
            describe(row, value, text, text_bytes);
            return -1;
        }
    }
    if (complete_pipeline(command, text, text_bytes) != 0) {
        return -1;
    }
    complete(command);
    if (name_offloaded(command, text, text_bytes) != 0) {
        return -1;
    }
    return command_check(command, text, text_bytes);
}
