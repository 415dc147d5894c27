/*
 * elf.c - see elf.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "plugin/elf.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static void add_word(char *list, size_t bytes, const char *word)
{
    const size_t used = strlen(list);

    snprintf(list + used, bytes - used, "%s%s", used == 0 ? "" : " ", word);
}

void elf_needed(const struct gh_object *o, char *list, size_t bytes)
{
    static const char *const libc[] = { "libc.so", "ld-linux", "libdl.so",
                                        "libc.musl", "libpthread.so" };

    list[0] = '\0';
    for (size_t i = 0; i < o->n_dynamic; i++) {
        const char *name = gh_object_string(o, o->dynamic[i].d_un.d_val);
        bool ours = o->dynamic[i].d_tag != DT_NEEDED;

        for (size_t k = 0; k < sizeof(libc) / sizeof(libc[0]); k++) {
            ours = ours || strncmp(name, libc[k], strlen(libc[k])) == 0;
        }
        if (!ours) {
            add_word(list, bytes, name);
        }
        if (o->dynamic[i].d_tag == DT_NULL) {
            return;
        }
    }
}

void elf_undefined(const struct gh_object *o, char *list, size_t bytes)
{
    void *libc = dlopen("libc.so.6", RTLD_NOW | RTLD_LOCAL);

    list[0] = '\0';
    for (size_t i = 1; i < o->n_symbols; i++) {
        const ElfW(Sym) *symbol = &o->symbols[i];
        const char *name = gh_object_string(o, symbol->st_name);

        if (symbol->st_shndx == SHN_UNDEF &&
            ELF64_ST_BIND(symbol->st_info) == STB_GLOBAL &&
            (libc == NULL || dlsym(libc, name) == NULL)) {
            add_word(list, bytes, name);
        }
    }
    if (libc != NULL) {
        dlclose(libc);
    }
}
