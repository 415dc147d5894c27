/*
 * nvtx.c - see nvtx.h.
 *
 * The numbers and structs are those of NVTX 3 (nvtx3/nvtxDetail/nvtxTypes.h).
 * The tool asks for tables of addresses of functions, and writes there what it
 * wants to have called.
 *
 * Invariant: once the tool has returned, the functions never change.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "trace/nvtx.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define INIT "InitializeInjectionNvtx2"
#define NVTX_VERSION 3
#define MODULES 7
#define FUNCTIONS 17

enum {
    TABLE_OF_CALLS = 1,
    TABLE_OF_VERSION = 3
};
enum {
    CORE = 1,
    PUSH = 9,
    POP = 11
};

typedef void function(void);

/* By module; as many as the module has, with the one that has number 0. */
static const uint8_t n_functions[MODULES] = { 0, 16, 9, 15, 7, 16, 7 };
static function *functions[MODULES][FUNCTIONS];

static int (*push)(const char *name);
static int (*pop)(void);

static int module_table(int module, function ****table_p, unsigned *last_p)
{
    static function **tables[MODULES][FUNCTIONS];

    if (module <= 0 || module >= MODULES) {
        return 0;
    }
    for (uint32_t i = 1; i < n_functions[module]; i++) {
        tables[module][i] = &functions[module][i];
    }
    if (last_p != NULL) {
        *last_p = n_functions[module] - 1u;
    }
    if (table_p != NULL) {
        *table_p = tables[module];
    }
    return 1;
}

static void take_version(uint32_t version)
{
    (void)version;
}

static const void *table(uint32_t id)
{
    static const struct {
        size_t struct_size;
        int (*module_table)(int module, function ****table_p, unsigned *last_p);
    } calls = { sizeof(calls), module_table };
    static const struct {
        size_t struct_size;
        uint32_t version, reserved;
        void (*take_version)(uint32_t version);
    } version = { sizeof(version), NVTX_VERSION, 0, take_version };

    return id == TABLE_OF_CALLS     ? (const void *)&calls
           : id == TABLE_OF_VERSION ? (const void *)&version
                                    : NULL;
}

/* The tool's function that takes the tables; NULL: there is no tool. */
static void *find(const char *path, const struct gh_log *log)
{
    void *init = dlsym(RTLD_DEFAULT, INIT), *library;

    if (init != NULL || path == NULL) {
        return init;
    }
    library = dlopen(path, RTLD_LAZY | RTLD_LOCAL | RTLD_NODELETE);
    init = library != NULL ? dlsym(library, INIT) : NULL;
    if (init == NULL) {
        const char *why = dlerror();

        gh_log_line(log, GH_LOG_WARN,
                    "GRAPHHOOKS_NVTX: NVTX_INJECTION64_PATH is \"%.200s\", "
                    "which takes no ranges: %.200s",
                    path, why != NULL ? why : "it is no tool's library");
    }
    return init;
}

bool gh_nvtx_open(const char *path, const struct gh_log *log)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static bool asked;
    int (*init)(const void *(*table)(uint32_t id));
    void *symbol;

    pthread_mutex_lock(&lock);
    symbol = asked ? NULL : find(path, log);
    if (symbol != NULL) {
        memcpy(&init, &symbol, sizeof(init));
        asked = true;
        if (init(table) != 0) {
            memcpy(&push, &functions[CORE][PUSH], sizeof(push));
            memcpy(&pop, &functions[CORE][POP], sizeof(pop));
        }
    }
    pthread_mutex_unlock(&lock);
    return push != NULL && pop != NULL;
}

void gh_nvtx_push(const char *name)
{
    (void)push(name);
}

void gh_nvtx_pop(void)
{
    (void)pop();
}
