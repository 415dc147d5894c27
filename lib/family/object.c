/*
 * object.c - see object.h.
 *
 * The loader maps what a file's headers promise, and runs its constructors.
 * If the file is shorter, because it was copied only in part, reading beyond
 * its end kills the process.  A constructor that crashes does so too.  Both
 * are found out here, by the tables that the loader follows.  The file may be
 * anything, so each step is checked against its size.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "family/object.h"

#include "base/error.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static gh_status cut_off(const struct gh_family_where *where, gh_error *err)
{
    return gh_family_fail(err, GH_ERR_INVALID, where,
                          "the file is cut off: copy or build it again");
}

static gh_status damaged(const struct gh_family_where *where, const char *what,
                         gh_error *err)
{
    return gh_family_fail(err, GH_ERR_INVALID, where,
                          "its %s is damaged: build it again", what);
}

static gh_status no_object(const struct gh_family_where *where, gh_error *err)
{
    return gh_family_fail(err, GH_ERR_INVALID, where,
                          "the file is not an object: build it with "
                          "cc -shared -fPIC");
}

/* ---- the file ------------------------------------------------------------ */

static gh_status refuse_unread(const struct gh_family_where *where, int error,
                               gh_error *err)
{
    struct stat found;

    if (error == ENOENT && lstat(where->file, &found) == 0) {
        return gh_family_fail(err, GH_ERR_NOT_FOUND, where,
                              "it is a link that leads nowhere: mend the "
                              "link, or take it away");
    }
    return gh_family_fail(err, GH_ERR_NOT_FOUND, where,
                          "the file cannot be read: %s; let this user read "
                          "it, or take it away",
                          strerror(error));
}

static gh_status refuse_type(const struct gh_family_where *where, mode_t mode,
                             gh_error *err)
{
    return gh_family_fail(err, GH_ERR_INVALID, where,
                          "it is %s: put a shared object there, or take it "
                          "away",
                          S_ISDIR(mode) ? "a directory" : "no regular file");
}

static gh_status read_bytes(int fd, const struct gh_family_where *where,
                            struct gh_object *o, gh_error *err)
{
    struct stat found;
    size_t done = 0;
    ssize_t n = 1;

    if (fstat(fd, &found) != 0) {
        return refuse_unread(where, errno, err);
    }
    if (!S_ISREG(found.st_mode)) {
        return refuse_type(where, found.st_mode, err);
    }
    o->size = (size_t)found.st_size;
    o->bytes = malloc(o->size + 1);
    if (o->bytes == NULL) {
        return gh_fail(err, GH_ERR_NO_MEMORY, "no memory for %s", where->file);
    }
    while (done < o->size && n > 0) {
        n = pread(fd, o->bytes + done, o->size - done, (off_t)done);
        done += n > 0 ? (size_t)n : 0;
    }
    return n < 0            ? refuse_unread(where, errno, err)
           : done < o->size ? cut_off(where, err)
                            : GH_OK;
}

static gh_status read_file(const struct gh_family_where *where,
                           struct gh_object *o, gh_error *err)
{
    /* O_NONBLOCK: opening a pipe of that name must not wait for its writer. */
    const int fd = open(where->file, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    gh_status status;

    if (fd < 0) {
        return refuse_unread(where, errno, err);
    }
    status = read_bytes(fd, where, o, err);
    close(fd);
    return status;
}

/* ---- ranges of it -------------------------------------------------------- */

static bool within(const struct gh_object *o, uint64_t offset, uint64_t bytes)
{
    return offset <= o->size && bytes <= o->size - offset;
}

/* Where an address of the loaded object lies in the file; NULL: nowhere. */
static const void *at_address(const struct gh_object *o, uint64_t address,
                              uint64_t bytes, size_t alignment)
{
    for (unsigned i = 0; i < o->header->e_phnum; i++) {
        const ElfW(Phdr) *s = &o->segments[i];

        if (s->p_type == PT_LOAD && address >= s->p_vaddr &&
            address - s->p_vaddr <= s->p_filesz &&
            bytes <= s->p_filesz - (address - s->p_vaddr)) {
            const uint64_t offset = s->p_offset + (address - s->p_vaddr);

            return offset % alignment == 0 ? o->bytes + offset : NULL;
        }
    }
    return NULL;
}

/* The value of an entry of the dynamic table; 0: there is none. */
static uint64_t entry(const struct gh_object *o, ElfW(Sxword) tag)
{
    for (size_t i = 0; i < o->n_dynamic; i++) {
        if (o->dynamic[i].d_tag == tag) {
            return o->dynamic[i].d_un.d_val;
        }
    }
    return 0;
}

const char *gh_object_string(const struct gh_object *o, uint64_t at)
{
    return at < o->strings_size ? o->strings + at : "?";
}

/* ---- its tables ---------------------------------------------------------- */

/* Whether the file has the machine, class and byte order of the file with this
 * code, which the loader has accepted. */
static bool is_of_this_machine(const ElfW(Ehdr) * h)
{
    static const char here;
    const ElfW(Ehdr) * mine;
    Dl_info info;

    if (dladdr(&here, &info) == 0) {
        return true; /* the loader will refuse it */
    }
    mine = info.dli_fbase;
    return h->e_ident[EI_CLASS] == mine->e_ident[EI_CLASS] &&
           h->e_ident[EI_DATA] == mine->e_ident[EI_DATA] &&
           h->e_machine == mine->e_machine;
}

static gh_status check_header(const struct gh_family_where *where,
                              struct gh_object *o, gh_error *err)
{
    const ElfW(Ehdr) *h = (const ElfW(Ehdr) *)o->bytes;

    if (o->size < SELFMAG || memcmp(o->bytes, ELFMAG, SELFMAG) != 0) {
        return no_object(where, err);
    }
    if (o->size < sizeof(*h)) {
        return cut_off(where, err);
    }
    if (!is_of_this_machine(h)) {
        return gh_family_fail(err, GH_ERR_INVALID, where,
                              "it is for another machine: build it for this "
                              "one");
    }
    if (h->e_type != ET_DYN) {
        return no_object(where, err);
    }
    o->header = h;
    return GH_OK;
}

/* Fails if the sections are not all there.  They are at the end of the file, so
 * they are the first that a short copy loses. */
static gh_status check_sections(const struct gh_family_where *where,
                                const struct gh_object *o, gh_error *err)
{
    const ElfW(Ehdr) *h = o->header;

    if (h->e_shnum == 0) {
        return GH_OK;
    }
    if (h->e_shentsize != sizeof(ElfW(Shdr)) ||
        h->e_shoff % sizeof(void *) != 0 || h->e_shstrndx >= h->e_shnum) {
        return damaged(where, "header", err);
    }
    return within(o, h->e_shoff, (uint64_t)h->e_shnum * sizeof(ElfW(Shdr)))
               ? GH_OK
               : cut_off(where, err);
}

static gh_status find_segments(const struct gh_family_where *where,
                               struct gh_object *o, gh_error *err)
{
    const ElfW(Ehdr) *h = o->header;

    if (h->e_phentsize != sizeof(ElfW(Phdr)) ||
        h->e_phoff % sizeof(void *) != 0) {
        return damaged(where, "header", err);
    }
    if (!within(o, h->e_phoff, (uint64_t)h->e_phnum * sizeof(ElfW(Phdr)))) {
        return cut_off(where, err);
    }
    o->segments = (const ElfW(Phdr) *)(o->bytes + h->e_phoff);
    for (unsigned i = 0; i < h->e_phnum; i++) {
        const ElfW(Phdr) *s = &o->segments[i];

        if (!within(o, s->p_offset, s->p_filesz)) {
            return cut_off(where, err);
        }
        if (s->p_type == PT_DYNAMIC && s->p_offset % sizeof(void *) == 0) {
            o->dynamic = (const ElfW(Dyn) *)(o->bytes + s->p_offset);
            o->n_dynamic = s->p_filesz / sizeof(ElfW(Dyn));
        }
    }
    return o->dynamic != NULL ? GH_OK : no_object(where, err);
}

/* Counts the symbols.  In a table with a GNU hash undefined symbols come first;
 * the older hash says how many symbols there are. */
static size_t count_symbols(const struct gh_object *o)
{
    const uint32_t *gnu = at_address(o, entry(o, DT_GNU_HASH), 8, 4);
    const uint32_t *sysv = at_address(o, entry(o, DT_HASH), 8, 4);

    if (entry(o, DT_HASH) != 0 && sysv != NULL) {
        return sysv[1];
    }
    return entry(o, DT_GNU_HASH) != 0 && gnu != NULL ? gnu[1] : 0;
}

static gh_status find_names(const struct gh_family_where *where,
                            struct gh_object *o, gh_error *err)
{
    o->strings_size = entry(o, DT_STRSZ);
    o->strings = at_address(o, entry(o, DT_STRTAB), o->strings_size, 1);
    if (o->strings == NULL || o->strings_size == 0 ||
        o->strings[o->strings_size - 1] != '\0') {
        return damaged(where, "table of names", err);
    }
    o->n_symbols = count_symbols(o);
    o->symbols =
        at_address(o, entry(o, DT_SYMTAB),
                   (uint64_t)o->n_symbols * sizeof(ElfW(Sym)), sizeof(void *));
    return o->symbols != NULL ? GH_OK : damaged(where, "table of symbols", err);
}

gh_status gh_object_read(const struct gh_family_where *where,
                         struct gh_object *o, gh_error *err)
{
    gh_status status;

    memset(o, 0, sizeof(*o));
    if ((status = read_file(where, o, err)) != GH_OK ||
        (status = check_header(where, o, err)) != GH_OK ||
        (status = check_sections(where, o, err)) != GH_OK ||
        (status = find_segments(where, o, err)) != GH_OK ||
        (status = find_names(where, o, err)) != GH_OK) {
        gh_object_free(o);
    }
    return status;
}

void gh_object_free(struct gh_object *o)
{
    free(o->bytes);
    memset(o, 0, sizeof(*o));
}

/* ---- what runs when it is loaded ----------------------------------------- */

/* Whether an address is the beginning of the section .init, which the
 * compiler's start files make.  With -Wl,-init= it is another function.
 * Without sections this cannot be told, and the address counts as theirs. */
static bool is_of_start_files(const struct gh_object *o, uint64_t address)
{
    static const char name[] = ".init";
    const ElfW(Ehdr) *h = o->header;
    const ElfW(Shdr) * sections;
    uint64_t names;

    if (h->e_shnum == 0) {
        return true;
    }
    sections = (const ElfW(Shdr) *)(o->bytes + h->e_shoff);
    names = sections[h->e_shstrndx].sh_offset;
    for (unsigned i = 0; i < h->e_shnum && within(o, names, 0); i++) {
        const uint64_t at = names + sections[i].sh_name;

        if (sections[i].sh_addr == address && within(o, at, sizeof(name)) &&
            memcmp(o->bytes + at, name, sizeof(name)) == 0) {
            return true;
        }
    }
    return false;
}

/* Counts a file's own constructors.  The compiler's start files add one
 * function to each array, which registers or unregisters the file's frames and
 * transactions. */
uint32_t gh_object_constructors(const struct gh_object *o)
{
    const uint64_t each = sizeof(void *);
    const uint64_t n_init = entry(o, DT_INIT_ARRAYSZ) / each;
    const uint64_t n_fini = entry(o, DT_FINI_ARRAYSZ) / each;
    const uint64_t init = entry(o, DT_INIT);
    uint64_t n = n_init - (n_init > 0 && n_fini > 0 ? 1 : 0);

    n += entry(o, DT_PREINIT_ARRAYSZ) / each;
    n += init != 0 && !is_of_start_files(o, init) ? 1 : 0;
    return n < UINT32_MAX ? (uint32_t)n : UINT32_MAX;
}

bool gh_object_is_sanitized(const struct gh_object *o)
{
    static const char *const prefixes[] = { "__asan_", "__ubsan_", "__tsan_",
                                            "__msan_", "__sanitizer_" };

    for (size_t i = 1; i < o->n_symbols; i++) {
        const char *name = gh_object_string(o, o->symbols[i].st_name);

        for (size_t k = 0; k < sizeof(prefixes) / sizeof(prefixes[0]); k++) {
            if (o->symbols[i].st_shndx == SHN_UNDEF &&
                strncmp(name, prefixes[k], strlen(prefixes[k])) == 0) {
                return true;
            }
        }
    }
    return false;
}

gh_status gh_family_check_object(const struct gh_family_where *where,
                                 gh_error *err)
{
    struct gh_object object;
    gh_status status = gh_object_read(where, &object, err);
    uint32_t n;

    if (status != GH_OK) {
        return status;
    }
    n = gh_object_constructors(&object);
    if (n > 0 && !gh_object_is_sanitized(&object)) {
        status = gh_family_fail(err, GH_ERR_INVALID, where,
                                "it has %u constructor%s, which would run "
                                "before its table is checked: do %s work in "
                                "open",
                                n, n == 1 ? "" : "s", n == 1 ? "its" : "their");
    }
    gh_object_free(&object);
    return status;
}
