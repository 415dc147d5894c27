/*
 * host_memory.c - see host_memory.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "support/host_memory.h"

#include <stdbool.h>
#include <stddef.h>

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

static void *counted(void *at)
{
    __atomic_add_fetch(&left, at != NULL, __ATOMIC_RELAXED);
    return at;
}

void *__wrap_malloc(size_t bytes)
{
    return is_refused() ? NULL : counted(__real_malloc(bytes));
}

void *__wrap_calloc(size_t n, size_t bytes)
{
    return is_refused() ? NULL : counted(__real_calloc(n, bytes));
}

void *__wrap_realloc(void *at, size_t bytes)
{
    const bool grows = at != NULL;
    void *moved = is_refused() ? NULL : __real_realloc(at, bytes);

    return grows ? moved : counted(moved);
}

char *__wrap_strdup(const char *text)
{
    return is_refused() ? NULL : counted(__real_strdup(text));
}

void __wrap_free(void *at)
{
    __atomic_sub_fetch(&left, at != NULL, __ATOMIC_RELAXED);
    __real_free(at);
}
