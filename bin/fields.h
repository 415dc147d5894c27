/*
 * fields.h - the fields of a JSON object, each checked as it is read.
 *
 * What is wrong is said with the place of the field.  Except where a field is
 * required, one that is left out leaves the value as it is.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef BIN_FIELDS_H
#define BIN_FIELDS_H

#include <graphhooks/base.h>

#include <jansson.h>
#include <stdbool.h>

/* Room for "layers[999999].dispatcher". */
#define FIELD_WHERE_BYTES 64

/* An object, and how its fields' places begin: "" or "layers[3].". */
struct fields {
    const json_t *json;
    char where[FIELD_WHERE_BYTES];
};

/* Every field of the object is one of `known`, which ends with NULL. */
gh_status fields_check(const struct fields *object, const char *const *known,
                       gh_error *err);

/* `where` gets the field's place; NULL where it is left out. */
const json_t *field_at(const struct fields *object, const char *key,
                       char *where);

gh_status field_missing(const char *where, const char *wanted, gh_error *err);
gh_status field_type(const char *where, const json_t *json, const char *wanted,
                     gh_error *err);

/* A line of text.  NULL where it is left out; it belongs to the JSON. */
gh_status field_text(const struct fields *object, const char *key,
                     bool required, const char **text, gh_error *err);
gh_status field_count(const struct fields *object, const char *key,
                      uint32_t least, uint32_t most, uint32_t *value,
                      gh_error *err);

/* True or false. */
gh_status field_switch(const struct fields *object, const char *key,
                       bool *value, gh_error *err);

/* A word as its place in a list that ends with NULL. */
gh_status field_word(const struct fields *object, const char *key,
                     const char *const *words, uint32_t *place, gh_error *err);
gh_status field_required_word(const struct fields *object, const char *key,
                              const char *const *words, uint32_t *place,
                              gh_error *err);

/* A list of words as bits; 0 where it is left out. */
gh_status field_words(const struct fields *object, const char *key,
                      const char *const *words, uint32_t *bits, gh_error *err);

#endif
