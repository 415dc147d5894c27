/*
 * Any description is read or refused with a sentence; what was read has a
 * plan or a sentence why not, and the plan can be printed.
 *
 *     clang -fsanitize=fuzzer,address,undefined -I. -Iinclude -Ilib -Ibin \
 *         -I$BUILD tests/fuzz/describe_fuzz.c bin/describe.c bin/fields.c \
 *         bin/measured_read.c bin/nodes.c bin/words.c lib/plan/[a-z]*.c lib/config/[a-z]*.c \
 *         lib/base/[ejs]*.c words/nearest.c -ljansson
 *
 * doc/models is a corpus to begin with.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "tests/fuzz/fuzz.h"

#include "describe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* More layers than these are planned as they are here, only slower. */
#define MOST_PLANNED 5000u

const char *const fuzz_corpus = "doc/models";
const unsigned fuzz_inputs = 3000;

static unsigned long planned;

const char *fuzz_skip(void)
{
    return NULL;
}

bool fuzz_reached(char *text, size_t bytes)
{
    snprintf(text, bytes, "%lu descriptions have a plan", planned);
    return planned > 99;
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
    struct description d;
    struct gh_plan plan;
    gh_error err = { "" };

    if (describe_text((const char *)data, bytes, &d, &err) != GH_OK) {
        if (err.text[0] == '\0') {
            fuzz_found("it is refused without a sentence");
        }
        return 0;
    }
    if (d.model->n_layers > MOST_PLANNED) {
        describe_free(&d);
        return 0;
    }
    if (gh_plan_make(d.model, &d.options, &plan, &err) == GH_OK) {
        planned++;
        gh_plan_write(&plan, GH_FORMAT_TEXT, count, NULL);
        gh_plan_write_all(&plan, count, NULL);
        gh_plan_write(&plan, GH_FORMAT_JSON, count, NULL);
        gh_plan_free(&plan);
    } else if (err.text[0] == '\0') {
        fuzz_found("it is refused without a sentence");
    }
    describe_free(&d);
    return 0;
}
