/*
 * elf.h - what a shared object needs, before anybody loads it.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef PLUGIN_ELF_H
#define PLUGIN_ELF_H

#include "family/object.h"

/* The libraries that it needs besides libc, with spaces between them. */
void elf_needed(const struct gh_object *object, char *list, size_t bytes);

/* The symbols that neither it nor libc has. */
void elf_undefined(const struct gh_object *object, char *list, size_t bytes);

#endif
