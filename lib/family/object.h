/*
 * object.h - what a shared object says of itself, before anybody loads it.
 *
 * gh_family_load() reads a family's file by it, and so does
 * graphhooks-conform, which asks it more.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_FAMILY_OBJECT_H
#define GH_FAMILY_OBJECT_H

#include "family/family.h"

#include <link.h>
#include <stdbool.h>
#include <stdint.h>

/* A file in memory.  All of its tables lie within `bytes`. */
struct gh_object {
    unsigned char *bytes;
    size_t size;
    const ElfW(Ehdr) * header;
    const ElfW(Phdr) * segments;
    const ElfW(Dyn) * dynamic;
    size_t n_dynamic;
    const ElfW(Sym) * symbols; /* those that are not defined come first */
    size_t n_symbols;
    const char *strings;
    size_t strings_size;
};

/* On GH_OK `object` is a whole shared object for this machine, which
 * gh_object_free() frees. */
gh_status gh_object_read(const struct gh_family_where *where,
                         struct gh_object *object, gh_error *err);
void gh_object_free(struct gh_object *object);

/* A name that one of the tables has; "?" where it is none. */
const char *gh_object_string(const struct gh_object *object, uint64_t at);

/* Functions of its own that run when it is loaded, without those that every
 * compiler adds. */
uint32_t gh_object_constructors(const struct gh_object *object);

/* Whether it was built with a sanitizer, which adds constructors. */
bool gh_object_is_sanitized(const struct gh_object *object);

#endif
