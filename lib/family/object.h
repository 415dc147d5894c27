/*
 * object.h - reads what a shared object says about itself before it is loaded.
 *
 * gh_family_load() reads a family's file with it, and graphhooks-conform does
 * so too and asks for more.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_FAMILY_OBJECT_H
#define GH_FAMILY_OBJECT_H

#include "base/path.h"
#include "family/family.h"

#include <link.h>
#include <stdbool.h>
#include <stdint.h>

/* A file in memory.  All tables lie within `bytes`. */
struct gh_object {
    unsigned char *bytes;
    size_t size;
    const ElfW(Ehdr) * header;
    const ElfW(Phdr) * segments;
    const ElfW(Dyn) * dynamic;
    size_t n_dynamic;
    const ElfW(Sym) * symbols; /* undefined ones come first */
    size_t n_symbols;
    const char *strings;
    size_t strings_size;
};

/* Reads a file.  On GH_OK `object` is a whole shared object for this machine,
 * to be freed with gh_object_free(). */
GH_COLD gh_status gh_object_read(const struct gh_family_where *where,
                                 struct gh_object *object, gh_error *err);
void gh_object_free(struct gh_object *object);

/* The name at an offset of the string table; "?" if that is outside of it. */
const char *gh_object_string(const struct gh_object *object, uint64_t at);

/* How many functions of its own run when it is loaded, without those that every
 * compiler adds. */
uint32_t gh_object_constructors(const struct gh_object *object);

/* Whether it was built with a sanitizer, which adds constructors. */
bool gh_object_is_sanitized(const struct gh_object *object);

#endif
