/*
 * A shared object is read within its bounds, whatever is in it, and refused
 * for what is wrong with it.
 *
 * One of the project's families is damaged, a number at a time.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "family/object.h"
#include "tap/tap.h"

#include <elf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char file[64];
static const struct gh_family_where where = { NULL, "damaged", file };
static struct gh_object whole;
static gh_error err;

/* Writes the whole object, but for `bytes` at `offset`, and reads that. */
static gh_status read_with(size_t offset, const void *what, size_t bytes,
                           struct gh_object *object)
{
    FILE *f = fopen(file, "wb");

    if (f == NULL || bytes > whole.size - offset ||
        fwrite(whole.bytes, 1, offset, f) != offset ||
        fwrite(what, 1, bytes, f) != bytes ||
        fwrite(whole.bytes + offset + bytes, 1, whole.size - offset - bytes,
               f) != whole.size - offset - bytes ||
        fclose(f) != 0) {
        exit(99);
    }
    err.text[0] = '\0';
    return gh_object_read(&where, object, &err);
}

/* ---- numbers of the header ----------------------------------------------- */

static void test_a_header_that_is_wrong(void)
{
#define FIELD(field) \
    offsetof(ElfW(Ehdr), field), sizeof(((ElfW(Ehdr) *)0)->field)
    static const struct {
        const char *what;
        size_t offset, bytes;
        uint64_t value;
        const char *says;
    } rows[] = {
        { "no magic", 0, 1, 'e', "the file is not an object" },
        { "another class", EI_CLASS, 1, 7, "it is for another machine" },
        { "another byte order", EI_DATA, 1, 7, "it is for another machine" },
        { "another machine", FIELD(e_machine), 0x1234,
          "it is for another machine: build it for this one" },
        { "a program", FIELD(e_type), ET_EXEC, "the file is not an object" },
        { "segments of another size", FIELD(e_phentsize), 8,
          "its header is damaged" },
        { "segments at an odd place", FIELD(e_phoff), 65,
          "its header is damaged" },
        { "segments beyond the end", FIELD(e_phoff), 1u << 30,
          "the file is cut off" },
        { "segments that wrap around", FIELD(e_phoff), UINT64_MAX - 7,
          "the file is cut off" },
        { "no segments", FIELD(e_phnum), 0, "the file is not an object" },
        { "more segments than bytes", FIELD(e_phnum), 0xFFFE,
          "the file is cut off" },
        { "sections of another size", FIELD(e_shentsize), 8,
          "its header is damaged" },
        { "sections at an odd place", FIELD(e_shoff), 65,
          "its header is damaged" },
        { "sections beyond the end", FIELD(e_shoff), 1u << 30,
          "the file is cut off" },
        { "names in no section", FIELD(e_shstrndx), 0xFFFE,
          "its header is damaged" },
    };
#undef FIELD

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct gh_object object;

        is_status(
            read_with(rows[i].offset, &rows[i].value, rows[i].bytes, &object),
            GH_ERR_INVALID, &err, "%s: it is refused", rows[i].what);
        ok(strstr(err.text, rows[i].says) != NULL && object.bytes == NULL,
           "%s: it says so: %s", rows[i].what, err.text);
    }
}

static void test_names_in_the_section_behind_the_last(void)
{
    const ElfW(Half) last = whole.header->e_shnum;
    struct gh_object object;

    is_status(read_with(offsetof(ElfW(Ehdr), e_shstrndx), &last, sizeof(last),
                        &object),
              GH_ERR_INVALID, &err,
              "names in the section behind the last are refused");
}

static void test_a_header_that_is_cut_off(void)
{
    const size_t size = whole.size;

    for (size_t bytes = SELFMAG; bytes < sizeof(ElfW(Ehdr)); bytes++) {
        struct gh_object object;
        gh_status status;

        whole.size = bytes;
        status = read_with(0, whole.bytes, bytes, &object);
        whole.size = size;
        if (status == GH_OK ||
            strstr(err.text, "the file is cut off") == NULL) {
            ok(false, "%zu bytes are cut off: %s", bytes, err.text);
            return;
        }
    }
    ok(true, "a file that ends in its header is cut off");
}

/* ---- tables -------------------------------------------------------------- */

static size_t segment_at(ElfW(Word) type)
{
    unsigned i = 0;

    while (i + 1 < whole.header->e_phnum && whole.segments[i].p_type != type) {
        i++;
    }
    return (size_t)((const unsigned char *)&whole.segments[i] - whole.bytes);
}

static size_t entry_at(ElfW(Sxword) tag)
{
    size_t i = 0;

    while (i + 1 < whole.n_dynamic && whole.dynamic[i].d_tag != tag) {
        i++;
    }
    return (size_t)((const unsigned char *)&whole.dynamic[i] - whole.bytes);
}

static bool has_entry(ElfW(Sxword) tag)
{
    ElfW(Sxword) found;

    memcpy(&found, whole.bytes + entry_at(tag), sizeof(found));
    return found == tag;
}

static void test_tables_that_are_wrong(void)
{
    const ElfW(Xword) huge = (ElfW(Xword)) - 8, odd = 3;
    const size_t load = segment_at(PT_LOAD), value = sizeof(ElfW(Sxword));
    const struct {
        const char *what;
        size_t offset;
        const ElfW(Xword) * number;
        const char *says;
    } rows[] = {
        { "a segment that is too long", load + offsetof(ElfW(Phdr), p_filesz),
          &huge, "the file is cut off" },
        { "a segment beyond the end", load + offsetof(ElfW(Phdr), p_offset),
          &huge, "the file is cut off" },
        { "a dynamic table at an odd place",
          segment_at(PT_DYNAMIC) + offsetof(ElfW(Phdr), p_offset), &odd,
          "the file is not an object" },
        { "more names than bytes", entry_at(DT_STRSZ) + value, &huge,
          "its table of names is damaged" },
        { "names in no segment", entry_at(DT_STRTAB) + value, &huge,
          "its table of names is damaged" },
        { "names without an end", entry_at(DT_STRSZ) + value, &odd,
          "its table of names is damaged" },
        { "symbols at an odd place", entry_at(DT_SYMTAB) + value, &odd,
          "its table of symbols is damaged" },
        { "symbols in no segment", entry_at(DT_SYMTAB) + value, &huge,
          "its table of symbols is damaged" },
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct gh_object object;

        is_status(read_with(rows[i].offset, rows[i].number,
                            sizeof(*rows[i].number), &object),
                  GH_ERR_INVALID, &err, "%s: it is refused", rows[i].what);
        ok(strstr(err.text, rows[i].says) != NULL, "%s: it says so: %s",
           rows[i].what, err.text);
    }
}

/* ---- what runs ----------------------------------------------------------- */

/* How many constructors there are where a dynamic entry has `value`. */
static uint32_t constructors_with(ElfW(Sxword) tag, ElfW(Xword) value)
{
    struct gh_object object;
    uint32_t n;

    if (read_with(entry_at(tag) + sizeof(tag), &value, sizeof(value),
                  &object) != GH_OK) {
        diag("%s", err.text);
        return UINT32_MAX;
    }
    n = gh_object_constructors(&object);
    gh_object_free(&object);
    return n;
}

/* Whether the compiler adds functions of its own: zig's start files do not. */
static bool has_start_files(void)
{
    return has_entry(DT_INIT) && has_entry(DT_FINI_ARRAYSZ);
}

static void test_constructors_are_counted(void)
{
    const ElfW(Xword) each = sizeof(void *);

    is_int(gh_object_constructors(&whole), 0, "the whole object has none");
    if (!has_start_files()) {
        skip(6, "this compiler's start files add no functions");
        return;
    }
    is_int(constructors_with(DT_INIT_ARRAYSZ, 2 * each), 1,
           "one behind the compiler's is one");
    is_int(constructors_with(DT_INIT_ARRAYSZ, 4 * each), 3, "three are three");
    is_int(constructors_with(DT_INIT_ARRAYSZ, 0), 0, "an empty array is none");
    is_int(constructors_with(DT_FINI_ARRAYSZ, 0), 1,
           "without start files the first is the file's own");
    is_int(constructors_with(DT_INIT, 0), 0, "no DT_INIT is none");
    is_int(constructors_with(DT_INIT, 1), 1,
           "a DT_INIT that is not .init is one");
}

/* Where .text begins: a function of the file's own may lie there. */
static uint64_t text_at(void)
{
    const ElfW(Ehdr) *h = whole.header;
    const ElfW(Shdr) *sections = (const ElfW(Shdr) *)(whole.bytes + h->e_shoff);
    const char *names =
        (const char *)whole.bytes + sections[h->e_shstrndx].sh_offset;
    unsigned i = 0;

    while (i + 1 < h->e_shnum &&
           strcmp(names + sections[i].sh_name, ".text") != 0) {
        i++;
    }
    return sections[i].sh_addr;
}

static void test_other_entries_that_run(void)
{
    const ElfW(Dyn) early = { .d_tag = DT_PREINIT_ARRAYSZ,
                              .d_un.d_val = 2 * sizeof(void *) };
    struct gh_object object;

    if (has_start_files()) {
        is_int(constructors_with(DT_INIT, text_at()), 1,
               "a DT_INIT where .text begins is one");
    } else {
        skip(1, "this compiler's start files add no functions");
    }
    is_status(read_with(entry_at(DT_RELACOUNT), &early, sizeof(early), &object),
              GH_OK, &err, "a file with functions before all others is read");
    is_int(gh_object_constructors(&object), 2, "and they count");
    gh_object_free(&object);
}

static void test_strings_have_bounds(void)
{
    is_str(gh_object_string(&whole, whole.strings_size), "?",
           "a name behind the last is none");
    is_str(gh_object_string(&whole, whole.strings_size - 1), "",
           "the last byte ends a name");
    ok(whole.n_symbols > 1, "symbols are found");
}

/* ---- anything ------------------------------------------------------------ */

/* Every word of the header and of the tables by itself: what matters is that
 * nothing outside of the file is read, which a sanitizer sees. */
static void test_any_number_may_be_wrong(void)
{
    static const uint32_t values[] = { 0, 0x7FFFFFFF, 0xFFFFFFFF };
    const size_t dynamic =
        (size_t)((const unsigned char *)whole.dynamic - whole.bytes);
    const size_t starts[] = { 0, dynamic, whole.header->e_shoff };
    const size_t bytes[] = { 680, whole.n_dynamic * sizeof(ElfW(Dyn)), 512 };
    uint32_t n = 0, taken = 0;

    for (int table = 0; table < 3; table++) {
        for (size_t at = starts[table];
             at < starts[table] + bytes[table] && at + 4 <= whole.size;
             at += 4) {
            for (int i = 0; i < 3; i++) {
                struct gh_object object;

                n++;
                if (read_with(at, &values[i], 4, &object) == GH_OK) {
                    taken++;
                    gh_object_constructors(&object);
                    gh_object_is_sanitized(&object);
                    gh_object_free(&object);
                }
            }
        }
    }
    ok(n > 1000 && taken > 0 && taken < n,
       "of %u damaged files %u are taken and the rest refused", n, taken);
}

int main(void)
{
    const char *builddir = getenv("builddir");
    const char *tmp = getenv("TMPDIR");
    char path[4096];
    const struct gh_family_where gpt = { NULL, "gpt", path };
    int fd;

    snprintf(path, sizeof(path), "%s/plugins/.libs/gpt.so",
             builddir != NULL ? builddir : ".");
    snprintf(file, sizeof(file), "%.40s/graphhooks.XXXXXX",
             tmp != NULL && tmp[0] != '\0' ? tmp : "/tmp");
    fd = mkstemp(file);
    if (fd < 0 || close(fd) != 0) {
        return skip_all("no place for a file");
    }
    if (!is_status(gh_object_read(&gpt, &whole, &err), GH_OK, &err,
                   "gpt is a shared object")) {
        return done_testing();
    }
    test_a_header_that_is_wrong();
    test_names_in_the_section_behind_the_last();
    test_a_header_that_is_cut_off();
    test_tables_that_are_wrong();
    if (gh_object_is_sanitized(&whole)) {
        skip(10, "a sanitizer has constructors of its own");
    } else {
        test_constructors_are_counted();
        test_other_entries_that_run();
    }
    test_strings_have_bounds();
    test_any_number_may_be_wrong();
    gh_object_free(&whole);
    unlink(file);
    return done_testing();
}
