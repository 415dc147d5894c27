/*
 * json.c - see json.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "cli/json.h"

static void write_text(struct json *json, const char *text)
{
    fputc('"', json->file);
    for (; *text != '\0'; text++) {
        const unsigned char c = (unsigned char)*text;

        if (c == '"' || c == '\\') {
            fprintf(json->file, "\\%c", c);
        } else if (c < 0x20) {
            fprintf(json->file, "\\u%04x", c);
        } else {
            fputc(c, json->file);
        }
    }
    fputc('"', json->file);
}

static void next(struct json *json, const char *key)
{
    if (json->filled) {
        fputc(',', json->file);
    }
    if (json->flat) {
        fputs(json->filled ? " " : "", json->file);
    } else if (json->depth > 0) {
        fprintf(json->file, "\n%*s", 2 * json->depth, "");
    }
    json->filled = true;
    if (key != NULL) {
        write_text(json, key);
        fputs(": ", json->file);
    }
}

void json_begin(struct json *json, const char *key, char bracket)
{
    next(json, key);
    fputc(bracket, json->file);
    json->depth++;
    json->filled = false;
}

void json_end(struct json *json, char bracket)
{
    json->depth--;
    if (json->filled && !json->flat) {
        fprintf(json->file, "\n%*s", 2 * json->depth, "");
    }
    fputc(bracket, json->file);
    json->filled = true;
    if (json->depth == 0) {
        fputc('\n', json->file);
    }
}

void json_text(struct json *json, const char *key, const char *value)
{
    next(json, key);
    write_text(json, value);
}

/* JSON has no infinities and no NaN. */
void json_real(struct json *json, const char *key, double value)
{
    next(json, key);
    if (value - value != 0.0) {
        fputs("null", json->file);
        return;
    }
    fprintf(json->file, "%.9g", value);
}

void json_count(struct json *json, const char *key, uint64_t value)
{
    next(json, key);
    fprintf(json->file, "%llu", (unsigned long long)value);
}

void json_bool(struct json *json, const char *key, bool value)
{
    next(json, key);
    fputs(value ? "true" : "false", json->file);
}

void json_reals(struct json *json, const char *key, const double *values, int n)
{
    json_begin(json, key, '[');
    json->flat = true;
    for (int i = 0; i < n; i++) {
        json_real(json, NULL, values[i]);
    }
    json_end(json, ']');
    json->flat = false;
}

void json_counts(struct json *json, const char *key, const uint64_t *values,
                 int n)
{
    json_begin(json, key, '[');
    json->flat = true;
    for (int i = 0; i < n; i++) {
        json_count(json, NULL, values[i]);
    }
    json_end(json, ']');
    json->flat = false;
}
