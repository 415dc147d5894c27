/*
 * host_memory.c - see host_memory.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/host_memory.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Behind each block: what is written there was meant for no block.  The address
 * sanitizer has bounds of its own, and says who has written. */
#if defined(__SANITIZE_ADDRESS__)
static const size_t guard;
#else
static const size_t guard = 64;
#endif
#define PATTERN 0xA5

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t n, size_t bytes);
void *__real_realloc(void *at, size_t bytes);
char *__real_strdup(const char *text);
void __real_free(void *at);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);
void *__wrap_realloc(void *at, size_t bytes);
char *__wrap_strdup(const char *text);
void __wrap_free(void *at);

static uint32_t asked, refused;
static int64_t left;

void host_memory_begin(void)
{
    host_memory_refuse(0);
    __atomic_store_n(&left, 0, __ATOMIC_RELAXED);
}

void host_memory_refuse(uint32_t n)
{
    __atomic_store_n(&asked, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&refused, n, __ATOMIC_RELAXED);
}

uint32_t host_memory_asked(void)
{
    return __atomic_load_n(&asked, __ATOMIC_RELAXED);
}

int64_t host_memory_left(void)
{
    return __atomic_load_n(&left, __ATOMIC_RELAXED);
}

static bool is_refused(void)
{
    return __atomic_add_fetch(&asked, 1, __ATOMIC_RELAXED) ==
           __atomic_load_n(&refused, __ATOMIC_RELAXED);
}

/* The blocks that have a guard.  Those that find none of these places have
 * none. */
#define PLACES 65536u
#define NEAR 32u
static struct place {
    void *at;
    size_t bytes;
} places[PLACES];

/* Turns `was`, in a place of the block, into `is`; NULL: none has it. */
static struct place *swap(const void *block, void *was, void *is)
{
    const size_t first = ((size_t)block >> 4) * 2654435761u;

    for (size_t i = 0; i < NEAR; i++) {
        struct place *place = &places[(first + i) % PLACES];
        void *expected = was;

        if (__atomic_compare_exchange_n(&place->at, &expected, is, false,
                                        __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
            return place;
        }
    }
    return NULL;
}

static void *guarded(void *at, size_t bytes)
{
    struct place *place = at != NULL && guard != 0 ? swap(at, NULL, at) : NULL;

    if (place != NULL) {
        place->bytes = bytes;
        memset((char *)at + bytes, PATTERN, guard);
    }
    return at;
}

/* Ends the program if something was written behind the block. */
static void check_guard(void *at)
{
    const unsigned char *behind;
    struct place *place = at != NULL && guard != 0 ? swap(at, at, at) : NULL;

    if (place == NULL) {
        return;
    }
    behind = (const unsigned char *)at + place->bytes;
    for (size_t i = 0; i < guard; i++) {
        if (behind[i] != PATTERN) {
            printf("Bail out! byte %zu behind a block of %zu was written\n", i,
                   place->bytes);
            fflush(stdout);
            abort();
        }
    }
    swap(at, at, NULL);
}

static void *counted(void *at)
{
    __atomic_add_fetch(&left, at != NULL, __ATOMIC_RELAXED);
    return at;
}

void *__wrap_malloc(size_t bytes)
{
    void *at = is_refused() ? NULL : __real_malloc(bytes + guard);

    return counted(guarded(at, bytes));
}

void *__wrap_calloc(size_t n, size_t bytes)
{
    size_t all;

    if (is_refused() || __builtin_mul_overflow(n, bytes, &all) ||
        all > SIZE_MAX - guard) {
        return NULL;
    }
    return counted(guarded(__real_calloc(1, all + guard), all));
}

void *__wrap_realloc(void *at, size_t bytes)
{
    const bool grows = at != NULL;
    void *moved;

    if (is_refused()) {
        return NULL;
    }
    check_guard(at);
    moved = guarded(__real_realloc(at, bytes + guard), bytes);
    return grows ? moved : counted(moved);
}

char *__wrap_strdup(const char *text)
{
    return is_refused() ? NULL : counted(__real_strdup(text));
}

void __wrap_free(void *at)
{
    __atomic_sub_fetch(&left, at != NULL, __ATOMIC_RELAXED);
    check_guard(at);
    __real_free(at);
}
