/*
 * Structs and values of the public headers are where layout.def says.
 * SPDX-License-Identifier: Apache-2.0
 */
#include <graphhooks.h>

#include "tap/tap.h"

/* Those of tests/abi/old/ are given for the headers that are kept there. */
#ifndef LAYOUT
#define LAYOUT "abi/layout.def"
#endif

#define STRUCT(type, size) is_int(sizeof(type), size, #type " has its size");
#define FIELD(type, field, offset, size) \
    is_int(offsetof(type, field), offset, #type "." #field " is in place"); \
    is_int(sizeof(((type *)0)->field), size, #type "." #field \
           " has its size");
#define VALUE(name, value) is_int(name, value, #name " has its value");

int main(void)
{
    if (sizeof(void *) != 8 || sizeof(long) != 8) {
        return skip_all("the numbers are those of LP64");
    }
#include LAYOUT
    return done_testing();
}
