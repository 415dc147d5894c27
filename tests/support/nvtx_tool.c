/*
 * nvtx_tool.c - the library of a tool that takes ranges of NVTX, as
 * NVTX_INJECTION64_PATH names one: it keeps what it is told as text.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define SHOWN __attribute__((visibility("default")))

SHOWN int InitializeInjectionNvtx2(const void *(*tables)(uint32_t id));

/* "[name" where a range begins, "]" where one ends. */
extern SHOWN char nvtx_tool_told[65536];
extern SHOWN int nvtx_tool_modules; /* that have a table */
char nvtx_tool_told[65536];
int nvtx_tool_modules;

typedef void function(void);

struct calls {
    size_t struct_size;
    int (*module_table)(int module, function ****table_p, unsigned *last_p);
};

static void tell(const char *mark, const char *name)
{
    const size_t used = strlen(nvtx_tool_told);

    snprintf(nvtx_tool_told + used, sizeof(nvtx_tool_told) - used, "%s%s", mark,
             name);
}

static int push(const char *name)
{
    tell("[", name);
    return 0;
}

static int pop(void)
{
    tell("]", "");
    return 0;
}

int InitializeInjectionNvtx2(const void *(*tables)(uint32_t id))
{
    const struct calls *calls = tables(1);
    function ***table;
    unsigned last;

    if (calls == NULL || calls->struct_size < sizeof(*calls) ||
        tables(3) == NULL || tables(2) != NULL) {
        return 0;
    }
    for (int module = 0; module < 9; module++) {
        nvtx_tool_modules += calls->module_table(module, &table, &last);
    }
    if (!calls->module_table(1, &table, &last) || last != 15 ||
        table[0] != NULL) {
        return 0;
    }
    *table[9] = (function *)push;
    *table[11] = (function *)pop;
    return 1;
}
