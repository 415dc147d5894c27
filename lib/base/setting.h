/*
 * setting.h - what ranks that share a bank have the same.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_BASE_SETTING_H
#define GH_BASE_SETTING_H

#include <stdint.h>

struct gh_setting {
    const char *name;
    uint64_t word; /* by which values are compared */
    char text[48]; /* the value, for a person; it may be cut */
};

#endif
