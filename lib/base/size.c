/*
 * size.c - reads and writes structs of an older or newer caller.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "base/size.h"

#include "base/error.h"

#include <string.h>

static size_t size_of(const void *object)
{
    return *(const uint32_t *)object;
}

gh_status gh_check_size_slow(const char *type, const void *object, size_t least,
                             size_t ours, gh_error *err)
{
    const unsigned char *bytes = object;
    size_t size = size_of(object);

    if (size < least) {
        return gh_fail(err, GH_ERR_ABI,
                       "%s.struct_size is %zu, and at least %zu is taken: "
                       "set it to sizeof(%s)",
                       type, size, least, type);
    }
    for (size_t i = ours; i < size; i++) {
        if (bytes[i] != 0) {
            return gh_fail(err, GH_ERR_UNSUPPORTED,
                           "%s: byte %zu is set, but ABI %d.%d ends at %zu: "
                           "zero what this library does not know, or load a "
                           "newer one",
                           type, i, GH_ABI_MAJOR, GH_ABI_MINOR, ours);
        }
    }
    return GH_OK;
}

void gh_take_struct(const void *object, void *copy, size_t ours)
{
    size_t size = size_of(object);

    memset(copy, 0, ours);
    memcpy(copy, object, size < ours ? size : ours);
}

void gh_give_struct(void *object, const void *ours, size_t bytes)
{
    size_t size = size_of(object);
    size_t n = size < bytes ? size : bytes;

    memcpy((char *)object + sizeof(uint32_t),
           (const char *)ours + sizeof(uint32_t), n - sizeof(uint32_t));
}
