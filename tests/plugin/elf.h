/*
 * elf.h - what a shared object says of itself, before anybody loads it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PLUGIN_ELF_H
#define PLUGIN_ELF_H

#include <stdbool.h>
#include <stddef.h>

struct elf_facts {
    char problem[160];     /* why it is no shared object; "": it is one */
    unsigned constructors; /* without the one that compilers add to all */
    bool sanitized;        /* refers to a sanitizer, which adds its own */
    char needed[256];      /* libraries that it needs besides libc */
    char undefined[256];   /* symbols that neither it nor libc has */
};

/* Reads the file without loading it; whatever is in it. */
void elf_read(const char *path, struct elf_facts *facts);

#endif
