/*
 * json.h - writes JSON, value by value.
 *
 * Keys are NULL inside arrays.  Commas and indentation are added here.  If a
 * write fails, closing the file returns the failure.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef ENGINE_JSON_H
#define ENGINE_JSON_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct json {
    FILE *file;
    int depth;
    bool filled; /* the open container has a value already */
    bool flat;   /* inside an array of numbers: one line */
};

void json_begin(struct json *json, const char *key, char bracket);
void json_end(struct json *json, char bracket);
void json_text(struct json *json, const char *key, const char *value);
void json_real(struct json *json, const char *key, double value);
void json_count(struct json *json, const char *key, uint64_t value);
void json_bool(struct json *json, const char *key, bool value);
/* Writes an array on one line.  %.9g keeps every bit of a float. */
void json_reals(struct json *json, const char *key, const double *values,
                int n);
void json_counts(struct json *json, const char *key, const uint64_t *values,
                 int n);

#endif
