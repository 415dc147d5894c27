/*
 * elf.c - see elf.h.
 *
 * It follows the tables that the loader follows, and checks each step against
 * the file's size, as the file may be cut off or be none of ours.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "plugin/elf.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <link.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* A file in memory, with what is known of it. */
struct object {
    const unsigned char *bytes;
    size_t size;
    const ElfW(Ehdr) * header;
    const ElfW(Phdr) * segments;
    const ElfW(Dyn) * dynamic;
    size_t n_dynamic;
    const char *strings;
    size_t strings_size;
    struct elf_facts *facts;
};

static bool __attribute__((format(printf, 2, 3)))
problem(struct object *o, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(o->facts->problem, sizeof(o->facts->problem), format, args);
    va_end(args);
    return false;
}

static bool within(const struct object *o, uint64_t offset, uint64_t bytes)
{
    return offset <= o->size && bytes <= o->size - offset;
}

/* Where an address of the loaded object lies in the file; NULL: nowhere. */
static const void *at_address(const struct object *o, uint64_t address,
                              uint64_t bytes)
{
    for (unsigned i = 0; i < o->header->e_phnum; i++) {
        const ElfW(Phdr) *s = &o->segments[i];

        if (s->p_type == PT_LOAD && address >= s->p_vaddr &&
            address - s->p_vaddr <= s->p_filesz &&
            bytes <= s->p_filesz - (address - s->p_vaddr)) {
            return o->bytes + s->p_offset + (address - s->p_vaddr);
        }
    }
    return NULL;
}

/* An entry of the dynamic table; 0: there is none. */
static uint64_t entry(const struct object *o, ElfW(Sxword) tag)
{
    for (size_t i = 0; i < o->n_dynamic; i++) {
        if (o->dynamic[i].d_tag == tag) {
            return o->dynamic[i].d_un.d_val;
        }
    }
    return 0;
}

/* ---- the file ------------------------------------------------------------ */

static bool check_header(struct object *o)
{
    const ElfW(Ehdr) *h = (const ElfW(Ehdr) *)o->bytes;
    const unsigned class = sizeof(void *) == 8 ? ELFCLASS64 : ELFCLASS32;
    FILE *self = fopen("/proc/self/exe", "rb");
    ElfW(Ehdr) mine;

    if (self == NULL || fread(&mine, sizeof(mine), 1, self) != 1) {
        memset(&mine, 0, sizeof(mine));
    }
    if (self != NULL) {
        fclose(self);
    }
    if (o->size < SELFMAG || memcmp(o->bytes, ELFMAG, SELFMAG) != 0) {
        return problem(o, "it is not an object: it has no ELF header");
    }
    if (o->size < sizeof(*h)) {
        return problem(o, "it is cut off inside its header");
    }
    if (h->e_ident[EI_CLASS] != class || h->e_machine != mine.e_machine) {
        return problem(o, "it is for another machine");
    }
    if (h->e_type != ET_DYN) {
        return problem(o, "it is no shared object: link it with -shared");
    }
    o->header = h;
    return true;
}

static bool check_segments(struct object *o)
{
    const ElfW(Ehdr) *h = o->header;

    if (h->e_phentsize != sizeof(ElfW(Phdr)) ||
        h->e_phoff % sizeof(void *) != 0 ||
        !within(o, h->e_phoff, (uint64_t)h->e_phnum * sizeof(ElfW(Phdr)))) {
        return problem(o, "it is cut off before its segments");
    }
    o->segments = (const ElfW(Phdr) *)(o->bytes + h->e_phoff);
    for (unsigned i = 0; i < h->e_phnum; i++) {
        const ElfW(Phdr) *s = &o->segments[i];

        if (!within(o, s->p_offset, s->p_filesz)) {
            return problem(o, "it is cut off inside segment %u", i);
        }
        if (s->p_type == PT_DYNAMIC && s->p_offset % sizeof(void *) == 0) {
            o->dynamic = (const ElfW(Dyn) *)(o->bytes + s->p_offset);
            o->n_dynamic = s->p_filesz / sizeof(ElfW(Dyn));
        }
    }
    return o->dynamic != NULL ||
           problem(o, "it is no shared object: it has no dynamic table");
}

static bool find_strings(struct object *o)
{
    o->strings_size = entry(o, DT_STRSZ);
    o->strings = at_address(o, entry(o, DT_STRTAB), o->strings_size);
    if (o->strings == NULL || o->strings_size == 0 ||
        o->strings[o->strings_size - 1] != '\0') {
        return problem(o, "its names are damaged");
    }
    return true;
}

static const char *string(const struct object *o, uint64_t at)
{
    return at < o->strings_size ? o->strings + at : "?";
}

/* ---- what is in it ------------------------------------------------------- */

static void add_word(char *list, size_t bytes, const char *word)
{
    const size_t used = strlen(list);

    snprintf(list + used, bytes - used, "%s%s", used == 0 ? "" : " ", word);
}

static bool is_of_sanitizer(const char *name)
{
    static const char *const prefixes[] = { "__asan_", "__ubsan_", "__tsan_",
                                            "__msan_", "__sanitizer_" };

    for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++) {
        if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0) {
            return true;
        }
    }
    return false;
}

static void read_needed(struct object *o)
{
    static const char *const libc[] = { "libc.so", "ld-linux", "libdl.so",
                                        "libc.musl", "libpthread.so" };

    for (size_t i = 0; i < o->n_dynamic; i++) {
        const char *name = string(o, o->dynamic[i].d_un.d_val);
        bool ours = o->dynamic[i].d_tag != DT_NEEDED;

        for (size_t k = 0; k < sizeof(libc) / sizeof(libc[0]); k++) {
            ours = ours || strncmp(name, libc[k], strlen(libc[k])) == 0;
        }
        if (!ours) {
            add_word(o->facts->needed, sizeof(o->facts->needed), name);
        }
        if (o->dynamic[i].d_tag == DT_NULL) {
            return;
        }
    }
}

/* Every object has one entry, by which the compiler registers its frames. */
static void read_constructors(struct object *o)
{
    const uint64_t n = entry(o, DT_INIT_ARRAYSZ) / sizeof(void *);

    o->facts->constructors = (unsigned)(n > 1 ? n - 1 : 0);
    o->facts->constructors +=
        (unsigned)(entry(o, DT_PREINIT_ARRAYSZ) / sizeof(void *));
}

/* Symbols that are not defined come first in a table with a GNU hash; one
 * with the older hash says how many it has in all. */
static size_t count_symbols(const struct object *o)
{
    const uint32_t *gnu = at_address(o, entry(o, DT_GNU_HASH), 8);
    const uint32_t *sysv = at_address(o, entry(o, DT_HASH), 8);

    if (entry(o, DT_HASH) != 0 && sysv != NULL) {
        return sysv[1];
    }
    return entry(o, DT_GNU_HASH) != 0 && gnu != NULL ? gnu[1] : 0;
}

static void read_undefined(struct object *o)
{
    const size_t n = count_symbols(o);
    const ElfW(Sym) *symbols =
        at_address(o, entry(o, DT_SYMTAB), n * sizeof(ElfW(Sym)));
    void *libc = dlopen("libc.so.6", RTLD_NOW | RTLD_LOCAL);

    for (size_t i = 1; symbols != NULL && i < n; i++) {
        const char *name = string(o, symbols[i].st_name);

        if (symbols[i].st_shndx != SHN_UNDEF) {
            continue;
        }
        o->facts->sanitized = o->facts->sanitized || is_of_sanitizer(name);
        if (ELF64_ST_BIND(symbols[i].st_info) == STB_GLOBAL &&
            (libc == NULL || dlsym(libc, name) == NULL)) {
            add_word(o->facts->undefined, sizeof(o->facts->undefined), name);
        }
    }
    if (libc != NULL) {
        dlclose(libc);
    }
}

static void read_object(struct object *o)
{
    if (check_header(o) && check_segments(o) && find_strings(o)) {
        read_needed(o);
        read_constructors(o);
        read_undefined(o);
    }
}

void elf_read(const char *path, struct elf_facts *facts)
{
    struct object o = { .facts = facts };
    unsigned char *bytes = NULL;
    struct stat found;
    FILE *file;
    long size = -1;

    memset(facts, 0, sizeof(*facts));
    /* A pipe would wait for its writer. */
    if (stat(path, &found) == 0 && !S_ISREG(found.st_mode)) {
        problem(&o, "it cannot be read: it is no regular file");
        return;
    }
    file = fopen(path, "rb");
    if (file != NULL && fseek(file, 0, SEEK_END) == 0) {
        size = ftell(file);
    }
    if (size > 0 && fseek(file, 0, SEEK_SET) == 0) {
        bytes = malloc((size_t)size);
    }
    if (bytes == NULL || fread(bytes, (size_t)size, 1, file) != 1) {
        problem(&o, "it cannot be read: %s",
                size == 0 ? "it is empty" : strerror(errno));
    } else {
        o.bytes = bytes;
        o.size = (size_t)size;
        read_object(&o);
    }
    free(bytes);
    if (file != NULL) {
        fclose(file);
    }
}
