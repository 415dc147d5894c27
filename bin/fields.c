/*
 * fields.c - see fields.h.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "fields.h"

#include "base/error.h"
#include "words/nearest.h"
#include "config/env.h"
#include "plan/plan.h"
#include "words.h"

#include <string.h>

static const char *type_name(const json_t *json)
{
    static const char *const names[] = {
        [JSON_OBJECT] = "an object", [JSON_ARRAY] = "a list",
        [JSON_STRING] = "a string",  [JSON_INTEGER] = "a number",
        [JSON_REAL] = "a fraction",  [JSON_TRUE] = "true",
        [JSON_FALSE] = "false",      [JSON_NULL] = "null",
    };

    return names[json_typeof(json)];
}

gh_status field_type(const char *where, const json_t *json, const char *wanted,
                     gh_error *err)
{
    return gh_fail(err, GH_ERR_CONFIG, "%s is %s; give %s", where,
                   type_name(json), wanted);
}

/* Every field of the object is one of `known`. */
gh_status fields_check(const struct fields *object, const char *const *known,
                       gh_error *err)
{
    json_t *json = (json_t *)object->json; /* its macros know no const */
    const char *key, *near;
    json_t *value;
    char clean[40];

    json_object_foreach(json, key, value)
    {
        if (word_place(known, key) >= 0) {
            continue;
        }
        word_clean(key, clean, sizeof(clean));
        near = nearest_word(key, known);
        if (near != NULL) {
            return gh_fail(err, GH_ERR_CONFIG,
                           "%s%s: there is no such field; did you mean %s?",
                           object->where, clean, near);
        }
        return gh_fail(err, GH_ERR_CONFIG,
                       "%s%s: there is no such field; leave it out",
                       object->where, clean);
    }
    return GH_OK;
}

/* `where` gets the field's place; the value is NULL where it is left out. */
const json_t *field_at(const struct fields *object, const char *key,
                       char *where)
{
    snprintf(where, FIELD_WHERE_BYTES, "%.40s%.20s", object->where, key);
    return json_object_get(object->json, key);
}

gh_status field_missing(const char *where, const char *wanted, gh_error *err)
{
    return gh_fail(err, GH_ERR_CONFIG, "%s is missing; give %s", where, wanted);
}

/* It is shown in lines of text. */
static gh_status check_text(const char *where, const char *text, gh_error *err)
{
    if (text[0] == '\0') {
        return gh_fail(err, GH_ERR_CONFIG,
                       "%s is empty; give at least one character", where);
    }
    for (const char *c = text; *c != '\0'; c++) {
        if ((unsigned char)*c < 0x20 || *c == 0x7F) {
            return gh_fail(err, GH_ERR_CONFIG,
                           "%s has a control character in it; leave it out",
                           where);
        }
    }
    return GH_OK;
}

gh_status field_text(const struct fields *object, const char *key,
                     bool required, const char **text, gh_error *err)
{
    char where[FIELD_WHERE_BYTES];
    const json_t *json = field_at(object, key, where);

    *text = NULL;
    if (json == NULL) {
        return required ? field_missing(where, "a string", err) : GH_OK;
    }
    if (!json_is_string(json)) {
        return field_type(where, json, "a string", err);
    }
    *text = json_string_value(json);
    return check_text(where, *text, err);
}

/* Without the field, *value stays as it is. */
gh_status field_count(const struct fields *object, const char *key,
                      uint32_t least, uint32_t most, uint32_t *value,
                      gh_error *err)
{
    char where[FIELD_WHERE_BYTES], wanted[48];
    const json_t *json = field_at(object, key, where);
    json_int_t n;

    if (json == NULL) {
        return GH_OK;
    }
    snprintf(wanted, sizeof(wanted), "a number from %u to %u", least, most);
    if (!json_is_integer(json)) {
        return field_type(where, json, wanted, err);
    }
    n = json_integer_value(json);
    if (n < least || n > most) {
        return gh_fail(err, GH_ERR_CONFIG, "%s is %lld; give %s", where,
                       (long long)n, wanted);
    }
    *value = (uint32_t)n;
    return GH_OK;
}

/* Without the field, *value stays as it is. */
gh_status field_switch(const struct fields *object, const char *key,
                       bool *value, gh_error *err)
{
    char where[FIELD_WHERE_BYTES];
    const json_t *json = field_at(object, key, where);

    if (json == NULL) {
        return GH_OK;
    }
    if (!json_is_boolean(json)) {
        return field_type(where, json, "true or false", err);
    }
    *value = json_is_true(json);
    return GH_OK;
}

/* A word of the list as its place; without the field, *place stays. */
gh_status field_word(const struct fields *object, const char *key,
                     const char *const *words, uint32_t *place, gh_error *err)
{
    char where[FIELD_WHERE_BYTES];
    const json_t *json = field_at(object, key, where);
    int found;

    if (json == NULL) {
        return GH_OK;
    }
    if (!json_is_string(json)) {
        return field_type(where, json, "a string", err);
    }
    found = word_place(words, json_string_value(json));
    if (found < 0) {
        return word_refuse(where, json_string_value(json), words, err);
    }
    *place = (uint32_t)found;
    return GH_OK;
}

gh_status field_required_word(const struct fields *object, const char *key,
                              const char *const *words, uint32_t *place,
                              gh_error *err)
{
    char where[FIELD_WHERE_BYTES], first[64];

    if (field_at(object, key, where) == NULL) {
        snprintf(first, sizeof(first), "%s, %s or another of its words",
                 words[0], words[1]);
        return field_missing(where, first, err);
    }
    return field_word(object, key, words, place, err);
}

/* A list of words as bits; without the field, none. */
gh_status field_words(const struct fields *object, const char *key,
                      const char *const *words, uint32_t *bits, gh_error *err)
{
    char where[FIELD_WHERE_BYTES], at[FIELD_WHERE_BYTES + 32];
    const json_t *json = field_at(object, key, where);
    const json_t *value;
    size_t i;

    *bits = 0;
    if (json == NULL) {
        return GH_OK;
    }
    if (!json_is_array(json)) {
        return field_type(where, json, "a list of strings", err);
    }
    for (i = 0; i < json_array_size(json); i++) {
        int found;

        value = json_array_get(json, i);
        snprintf(at, sizeof(at), "%s[%zu]", where, i);
        if (!json_is_string(value)) {
            return field_type(at, value, "a string", err);
        }
        found = word_place(words, json_string_value(value));
        if (found < 0) {
            return word_refuse(at, json_string_value(value), words, err);
        }
        if ((*bits & 1u << found) != 0) {
            return gh_fail(err, GH_ERR_CONFIG,
                           "%s is %s once more; leave it out", at,
                           words[found]);
        }
        *bits |= 1u << found;
    }
    return GH_OK;
}
