/*
 * error.c - statuses and their texts.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "base/error.h"

#include "base/json.h"

#include <stdarg.h>
#include <stdio.h>

gh_status gh_fail(gh_error *err, gh_status status, const char *format, ...)
{
    va_list args;

    if (err != NULL) {
        va_start(args, format);
        vsnprintf(err->text, sizeof(err->text), format, args);
        va_end(args);
        gh_one_line(err->text);
    }
    return status;
}

const char *gh_status_name(gh_status status)
{
    switch (status) {
    case GH_OK:
        return "GH_OK";
    case GH_RERUN:
        return "GH_RERUN";
    case GH_ERR_INVALID:
        return "GH_ERR_INVALID";
    case GH_ERR_UNSUPPORTED:
        return "GH_ERR_UNSUPPORTED";
    case GH_ERR_NOT_FOUND:
        return "GH_ERR_NOT_FOUND";
    case GH_ERR_STATE:
        return "GH_ERR_STATE";
    case GH_ERR_BUSY:
        return "GH_ERR_BUSY";
    case GH_ERR_NO_MEMORY:
        return "GH_ERR_NO_MEMORY";
    case GH_ERR_DEVICE:
        return "GH_ERR_DEVICE";
    case GH_ERR_NO_DRIVER:
        return "GH_ERR_NO_DRIVER";
    case GH_ERR_ABI:
        return "GH_ERR_ABI";
    case GH_ERR_CONFIG:
        return "GH_ERR_CONFIG";
    case GH_ERR_INTERNAL:
        return "GH_ERR_INTERNAL";
    case GH_ERR_RANKS:
        return "GH_ERR_RANKS";
    default:
        return "GH_ERR_?";
    }
}
