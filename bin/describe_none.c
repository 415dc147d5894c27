/*
 * describe_none.c - in place of describe.c, where there is no JSON parser.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "describe.h"

#include "base/error.h"

gh_status describe_file(FILE *file, struct description *description,
                        gh_error *err)
{
    (void)file;
    (void)description;
    return gh_fail(err, GH_ERR_UNSUPPORTED,
                   "this graphhooks was built without jansson, which reads "
                   "descriptions: install libjansson-dev and configure again");
}

gh_status describe_text(const char *text, size_t bytes,
                        struct description *description, gh_error *err)
{
    (void)text;
    (void)bytes;
    return describe_file(NULL, description, err);
}

void describe_free(struct description *description)
{
    (void)description;
}
