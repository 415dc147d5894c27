/*
 * table.c - completes a family's table before anything in it is called.
 *
 * The table is data, and its size is its version: only the fields that both
 * sides know are read.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "family/family.h"

#include "base/error.h"
#include "base/json.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Writes where a family was found.  The end of a long path is kept, because it
 * says more than the beginning. */
static void write_where(char *text, size_t bytes,
                        const struct gh_family_where *where)
{
    const size_t length = where->file != NULL ? strlen(where->file) : 0;
    const size_t most = 80;
    int n = 0;

    text[0] = '\0';
    if (where->layer != NULL) {
        n = snprintf(text, bytes, "%.40s: ", where->layer);
    }
    n += snprintf(text + n, bytes - (size_t)n, "family %.40s", where->family);
    if (where->file != NULL) {
        snprintf(text + n, bytes - (size_t)n, " (%s%s)",
                 length > most ? "..." : "",
                 where->file + (length > most ? length - most : 0));
    }
}

gh_status gh_family_fail(gh_error *err, gh_status status,
                         const struct gh_family_where *where,
                         const char *format, ...)
{
    char prefix[192];
    va_list args;
    int n;

    if (err == NULL) {
        return status;
    }
    write_where(prefix, sizeof(prefix), where);
    n = snprintf(err->text, sizeof(err->text), "%s: ", prefix);
    va_start(args, format);
    vsnprintf(err->text + n, sizeof(err->text) - (size_t)n, format, args);
    va_end(args);
    gh_one_line(err->text);
    return status;
}

static gh_status check_slots(const struct gh_family_where *where,
                             const gh_family *table, gh_error *err)
{
    const struct {
        const char *name;
        bool given;
    } slots[] = {
        { "name", table->name != NULL },
        { "open", table->open != NULL },
        { "close", table->close != NULL },
        { "layer", table->layer != NULL },
    };

    for (size_t i = 0; i < sizeof(slots) / sizeof(slots[0]); i++) {
        if (!slots[i].given) {
            return gh_family_fail(err, GH_ERR_ABI, where,
                                  "the required slot %s of its table is "
                                  "empty: fill it in",
                                  slots[i].name);
        }
    }
    return GH_OK;
}

gh_status gh_family_take(const struct gh_family_where *where,
                         const gh_family *theirs, gh_family *ours,
                         gh_error *err)
{
    const size_t least = GH_SIZE_THROUGH(gh_family, layer); /* for good */
    const size_t size = theirs->struct_size;
    gh_status status;

    if (size < least) {
        return gh_family_fail(err, GH_ERR_ABI, where,
                              "its table has %zu bytes and the first release "
                              "%zu: set struct_size to sizeof(gh_family)",
                              size, least);
    }
    memset(ours, 0, sizeof(*ours));
    memcpy(ours, theirs, size < sizeof(*ours) ? size : sizeof(*ours));
    ours->struct_size = sizeof(*ours);

    status = check_slots(where, ours, err);
    if (status != GH_OK) {
        return status;
    }
    if (ours->caps != 0) {
        return gh_family_fail(err, GH_ERR_UNSUPPORTED, where,
                              "its table has unknown caps 0x%x: zero them, "
                              "or use the graphhooks that it was built for",
                              ours->caps);
    }
    if (strncmp(ours->name, where->family, GH_FAMILY_NAME) != 0) {
        return gh_family_fail(err, GH_ERR_INVALID, where,
                              "its table is called \"%.40s\": call the file "
                              "and the table alike",
                              ours->name);
    }
    if (ours->about == NULL) {
        ours->about = "";
    }
    return GH_OK;
}
