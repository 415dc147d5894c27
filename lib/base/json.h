/*
 * json.h - text of a host, inside a JSON string.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_BASE_JSON_H
#define GH_BASE_JSON_H

#include <stddef.h>

/* The bytes of the UTF-8 character at `text`; 0 when it is none. */
size_t gh_utf8_bytes(const char *text);

/*
 * Writes the next character of `text`, which is not at its end, as a JSON
 * string may hold it, and returns how many bytes it was.  UTF-8 stays as it
 * is; a byte that is none becomes the character of that number.
 */
size_t gh_json_char(const char *text, char out[8]);

#endif
