/*
 * settings.c - the settings of a run: their words, and where they come from.
 *
 * Settings come from the environment at the first call, and from
 * softcuda_configure() afterwards.  Both use the same words.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "softcuda/api/settings.h"

#include "softcuda/engine/calls.h"
#include "softcuda/engine/costs.h"
#include "words/nearest.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool number(const char *text, const char *stop, uint64_t *value_p)
{
    char *end;

    if (text == stop || *text < '0' || *text > '9') {
        return false;
    }
    errno = 0;
    *value_p = strtoull(text, &end, 0);
    return errno == 0 && end == stop;
}

/* Reads entry:n[:code]. */
static bool one_failure(const char *text, size_t length)
{
    char word[96];
    char *nth, *code;
    CUresult answer = CUDA_ERROR_UNKNOWN;
    uint64_t value, n;

    if (length >= sizeof(word)) {
        return false;
    }
    memcpy(word, text, length);
    word[length] = '\0';

    nth = strchr(word, ':');
    if (nth == NULL) {
        return false;
    }
    *nth++ = '\0';
    code = strchr(nth, ':');
    if (code != NULL) {
        *code++ = '\0';
        if (!number(code, code + strlen(code), &value) || value == 0 ||
            value > 9999) {
            return false;
        }
        answer = (CUresult)value;
    }
    return number(nth, nth + strlen(nth), &n) && calls_fail(word, n, answer);
}

static bool all_failures(const char *text, const char *stop)
{
    while (text < stop) {
        const char *comma = memchr(text, ',', (size_t)(stop - text));
        const char *end = comma != NULL ? comma : stop;

        if (!one_failure(text, (size_t)(end - text))) {
            return false;
        }
        text = comma != NULL ? comma + 1 : stop;
    }
    return true;
}

/* Reads the costs in the file of this name. */
static bool all_costs(const char *text, const char *stop)
{
    char path[1024];
    int bad;

    snprintf(path, sizeof(path), "%.*s", (int)(stop - text), text);
    bad = costs_take_file(path);
    if (bad > 0) {
        fprintf(stderr, "softcuda: %s:%d is not a cost\n", path, bad);
    } else if (bad < 0) {
        fprintf(stderr, "softcuda: %s cannot be read\n", path);
    }
    return bad == 0;
}

/* Reads one NAME=value. */
static bool set_word(const char *word, const char *stop, struct settings *set)
{
    const char *value = memchr(word, '=', (size_t)(stop - word));
    size_t length;
    uint64_t n = 0;

    if (value == NULL) {
        return false;
    }
    length = (size_t)(value - word);
    value++;
#define IS(text) (length == strlen(text) && memcmp(word, text, length) == 0)
    if (IS("FAIL")) {
        return all_failures(value, stop);
    }
    if (IS("COSTS")) {
        return all_costs(value, stop);
    }
    if (!number(value, stop, &n)) {
        return false;
    }
    if (IS("SEED")) {
        set->seed = n;
    } else if (IS("DROP_WAIT")) {
        set->drop_wait = n;
    } else if (IS("RACES")) {
        set->races = n != 0;
    } else if (IS("UNWRITTEN")) {
        set->unwritten = n != 0;
    } else if (IS("TRACE")) {
        set->trace = n != 0;
    } else if (IS("PAGEABLE")) {
        set->pageable = n != 0;
    } else if (IS("MAPPING")) {
        set->mapping = n != 0;
    } else if (IS("PROCESSES")) {
        set->processes = n != 0;
    } else if (IS("MEMORY") && n != 0) {
        set->memory = n;
    } else if (IS("DEVICES") && n <= SOFT_MAX_DEVICES) {
        set->devices = n;
    } else {
        return false;
    }
#undef IS
    return true;
}

/* The names after SOFTCUDA_, and what each wants. */
static const char *const words[] = { "SEED",      "DROP_WAIT", "RACES",
                                     "UNWRITTEN", "TRACE",     "PAGEABLE",
                                     "MEMORY",    "DEVICES",   "FAIL",
                                     "COSTS",     "PROCESSES", "MAPPING",
                                     NULL };
static const char *const wanted[] = {
    "a number; 0: the order of issue",
    "a number, of the wait that is dropped; 0: none",
    "0 or 1",
    "0 or 1",
    "0 or 1",
    "0 or 1",
    "a number of bytes, from 1",
    "a number from 0 to 16",
    "entry:n[:code],..., such as cuGraphLaunch:3:2",
    "a file of costs, as doc/softcuda.md has them",
    "0 or 1",
    "0 or 1",
};
_Static_assert(SOFT_MAX_DEVICES == 16, "as wanted[] has it");

static void say_unknown(const char *name)
{
    const char *near = nearest_word(name, words);

    fprintf(stderr,
            "softcuda: SOFTCUDA_%s is no variable of the software device; ",
            name);
    if (near != NULL) {
        fprintf(stderr, "did you mean SOFTCUDA_%s?\n", near);
        return;
    }
    fprintf(stderr, "there are");
    for (int i = 0; words[i] != NULL; i++) {
        fprintf(stderr, "%s SOFTCUDA_%s", i == 0 ? "" : ",", words[i]);
    }
    fprintf(stderr, "\n");
}

/* Warns of names that nobody reads, because they are probably mistyped. */
static void check_names(void)
{
    extern char **environ;
    static const char prefix[] = "SOFTCUDA_";

    for (char **entry = environ; entry != NULL && *entry != NULL; entry++) {
        const char *rest = *entry + sizeof(prefix) - 1;
        char name[48];
        int i = 0;

        if (strncmp(*entry, prefix, sizeof(prefix) - 1) != 0) {
            continue;
        }
        snprintf(name, sizeof(name), "%.*s", (int)strcspn(rest, "="), rest);
        while (words[i] != NULL && strcmp(words[i], name) != 0) {
            i++;
        }
        if (words[i] == NULL) {
            say_unknown(name);
        }
    }
}

struct settings settings_of_environment(void)
{
    struct settings set = { .devices = 1,
                            .memory = (uint64_t)16 << 30,
                            .races = true,
                            .unwritten = true,
                            .mapping = true };

    check_names();
    for (int i = 0; words[i] != NULL; i++) {
        char name[32], text[1024];
        const char *value;

        snprintf(name, sizeof(name), "SOFTCUDA_%s", words[i]);
        value = getenv(name);
        if (value == NULL || *value == '\0') {
            continue;
        }
        snprintf(text, sizeof(text), "%s=%s", words[i], value);
        if (!set_word(text, text + strlen(text), &set)) {
            fprintf(stderr, "softcuda: %s=%s is not understood; give %s\n",
                    name, value, wanted[i]);
        }
    }
    return set;
}

bool settings_take(struct settings *set, const char *text)
{
    const char *word = text != NULL ? text : "";
    bool understood = true;

    while (*word != '\0') {
        size_t length = strcspn(word, " ");

        if (length != 0 && !set_word(word, word + length, set)) {
            understood = false;
        }
        word += length + strspn(word + length, " ");
    }
    return understood;
}
