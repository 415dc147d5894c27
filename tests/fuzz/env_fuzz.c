/*
 * Any environment is loaded or refused with a sentence, and can be printed.
 *
 *     clang -fsanitize=fuzzer,address,undefined -I. -Iinclude -Ilib \
 *         -I$BUILD tests/fuzz/env_fuzz.c lib/config/[a-z]*.c \
 *         lib/base/error.c words/nearest.c
 *
 * The input is the environment, one string a line.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "tests/fuzz/fuzz.h"

#include "config/env.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_LINES 32

const char *const fuzz_corpus = "tests/fuzz/corpus";
const unsigned fuzz_inputs = 3000;

static unsigned long loaded;

const char *fuzz_skip(void)
{
    return NULL;
}

bool fuzz_reached(char *text, size_t bytes)
{
    snprintf(text, bytes, "%lu environments are obeyed", loaded);
    return loaded > 99;
}

static size_t written;

static void count(void *user, const char *text, size_t bytes)
{
    (void)user;
    (void)text;
    written += bytes;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    const char *envp[MOST_LINES + 1] = { NULL };
    struct gh_env env;
    gh_error err = { "" };
    char *text = malloc(bytes + 1);
    char *at = text;
    size_t n = 0;

    if (text == NULL) {
        return 0;
    }
    memcpy(text, data, bytes);
    text[bytes] = '\0';
    while (n < MOST_LINES) {
        char *end = strchr(at, '\n');

        envp[n++] = at;
        if (end == NULL) {
            break;
        }
        *end = '\0';
        at = end + 1;
    }

    if (gh_env_load(envp, &env, &err) == GH_OK) {
        loaded++;
    } else if (err.text[0] == '\0') {
        fuzz_found("it is refused without a sentence");
    }
    gh_env_print(GH_ENV_FORMAT_TEXT, envp, count, NULL);
    free(text);
    return 0;
}
