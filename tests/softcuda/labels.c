/* Memory has the names that the program gives it, and what was written for one
 * name and is read for another is reported, also where no race is. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/softcuda/controls.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int label(CUdeviceptr at, uint64_t bytes, const char *name)
{
    return soft.label((void *)(uintptr_t)at, bytes, name);
}

static uint64_t others(void)
{
    return soft.others(0, NULL);
}

static const char *other_text(uint64_t i)
{
    const char *text = NULL;

    soft.others(i, &text);
    return text;
}

static void start(const char *settings)
{
    drv.cuCtxSynchronize();
    configure("%s", settings);
    label(words, WORDS * WORD, NULL);
    drv.cuMemsetD8Async(words, 0, WORDS * WORD, side);
    drv.cuCtxSynchronize();
}

static void write_word(uint32_t i, CUstream stream)
{
    drv.cuMemsetD32Async(word(i), i, 1, stream);
}

/* To the host, where it is used. */
static void read_word(uint32_t i, CUstream stream)
{
    drv.cuMemcpyDtoHAsync(pinned + i, word(i), WORD, stream);
}

static void test_arguments(void)
{
    uint32_t mine = 0;
    char *name = malloc(16);
    int status;

    strcpy(name, "short-lived");
    status = label(word(0), WORD, name);
    free(name);
    is_int(status, 0, "a name is copied");
    is_int(soft.label(&mine, 4, "a"), -1, "the program's memory has no names");
    is_int(label(word(WORDS - 1), 8, "a"), -1, "nor has what leaves memory");
    is_int(label(word(0), 0, "a"), -1, "nor has nothing");
    is_int(label(word(0), WORD, NULL), 0, "a name can be taken back");
}

static void test_given_away(void)
{
    start("RACES=1");
    label(word(0), 4 * WORD, "layer 1, core_attn, tensor 0");
    write_word(0, side);
    read_word(0, side);
    is_int(others(), 0, "who wrote it may read it");
    label(word(0), 4 * WORD, "layer 3, core_attn, tensor 0");
    read_word(0, side);
    is_int(others(), 1, "memory that went to another holds what is not his");
    ok(strstr(other_text(0), "copy DtoH on stream") != NULL &&
           strstr(other_text(0), "reads bytes 0..4 of device allocation") !=
               NULL &&
           strstr(other_text(0), "for \"layer 3, core_attn, tensor 0\"") !=
               NULL &&
           strstr(other_text(0), "written for \"layer 1, core_attn, tensor 0\"") !=
               NULL,
       "which is said with both names: %s", other_text(0));
    read_word(0, side);
    is_int(others(), 1, "once");
    write_word(0, side);
    read_word(0, side);
    is_int(others(), 1, "until he has written it");
    is_int(races(), 0, "and none of it is a race");
    drv.cuCtxSynchronize();
    configure("RACES=1");
    is_int(others(), 0, "a configuration forgets the reports");
}

static void test_ranges(void)
{
    start("RACES=0");
    label(word(0), 8 * WORD, "all");
    drv.cuMemsetD32Async(word(0), 1, 8, side);
    label(word(2), 2 * WORD, "two");
    drv.cuMemsetD32Async(word(3), 2, 1, side);
    drv.cuMemcpyDtoHAsync(pinned, word(0), 2 * WORD, side);
    drv.cuMemcpyDtoHAsync(pinned, word(3), 5 * WORD, side);
    is_int(others(), 0, "the parts of a range have names of their own");
    drv.cuMemcpyDtoHAsync(pinned, word(0), 8 * WORD, side);
    is_int(others(), 1, "and a read of all of it finds the part that is not");
    ok(strstr(other_text(0), "bytes 8..12 ") != NULL, "which is told: %s",
       other_text(0));
    label(word(0), 8 * WORD, NULL);
    read_word(2, side);
    is_int(others(), 1, "without a name anybody reads");
}

/* Whoever was issued before knows the name of before. */
static void test_order_of_issue(void)
{
    uint32_t seen = 0;

    for (int seed = 1; seed <= 20; seed++) {
        char settings[32];

        snprintf(settings, sizeof(settings), "SEED=%d", seed);
        start(settings);
        label(word(0), WORD, "before");
        write_word(0, side);
        read_word(0, side);
        label(word(0), WORD, "after");
        write_word(0, side);
        read_word(0, side);
        drv.cuCtxSynchronize();
        seen += others() != 0;
    }
    is_int(seen, 0, "a name begins with what is issued after it, in any order");
    seen = 0;
    for (int seed = 1; seed <= 20; seed++) {
        char settings[32];

        snprintf(settings, sizeof(settings), "SEED=%d", seed);
        start(settings);
        label(word(0), WORD, "before");
        write_word(0, side);
        drv.cuStreamSynchronize(side);
        read_word(0, side);
        label(word(0), WORD, "after");
        write_word(0, other); /* does not wait for the reader */
        drv.cuCtxSynchronize();
        seen += others() != 0;
    }
    ok(seen > 0 && seen < 20,
       "a reader that comes too late finds another's in some orders (%u)", seen);
}

/* Out to the host and back into another place. */
static void test_copies(void)
{
    start("RACES=0");
    label(word(0), WORD, "layer 1");
    label(word(1), WORD, "layer 2");
    write_word(0, side);
    write_word(1, side);
    read_word(0, side);
    read_word(1, side);
    label(word(2), WORD, "layer 1");
    drv.cuMemcpyHtoDAsync(word(2), pinned, WORD, side);
    read_word(2, side);
    is_int(others(), 0, "what comes back is whose it was");
    drv.cuMemcpyHtoDAsync(word(2), pinned + 1, WORD, side);
    read_word(2, side);
    is_int(others(), 1, "also where it is not the one that was meant");
    ok(strstr(other_text(0), "for \"layer 1\", and finds what was written for "
                             "\"layer 2\"") != NULL,
       "with both names: %s", other_text(0));
    label(word(3), WORD, "layer 2");
    drv.cuMemcpyDtoDAsync(word(3), word(0), WORD, side);
    launch_add(side, word(10), word(3));
    is_int(others(), 2, "a copy on the device takes the name along");
    drv.cuMemcpyHtoDAsync(word(3), pinned + 100, WORD, side);
    launch_add(side, word(10), word(3));
    is_int(others(), 2, "what the program wrote itself is whose place it is");
}

static void test_other_reports(void)
{
    CUdeviceptr fresh = 0;

    start("RACES=1");
    label(word(5), WORD, "layer 7, mlp");
    write_word(5, side);
    write_word(5, other);
    is_int(races(), 1, "two writers race");
    ok(races() == 1 && strstr(race(0), "(\"layer 7, mlp\")") != NULL,
       "for memory with a name: %s", races() == 1 ? race(0) : "");
    drv.cuMemAlloc(&fresh, 64);
    label(fresh, 64, "layer 8, mlp");
    drv.cuMemcpyDtoHAsync(pinned, fresh, 64, side);
    is_int(unwritten(), 1, "memory that nothing has written is read");
    ok(strstr(unwritten_read(0), "(\"layer 8, mlp\")") != NULL,
       "and has a name: %s", unwritten_read(0));
    drv.cuMemFree(fresh);
    configure("SEED=0"); /* what was found was meant to be */
}

int main(void)
{
    int status;

    if (!controls_open(&status)) {
        return status;
    }
    test_arguments();
    test_given_away();
    test_ranges();
    test_order_of_issue();
    test_copies();
    test_other_reports();
    contract_close();
    return done_testing();
}
