/*
 * json.h - puts text of a host into a JSON string, or into a line.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef GH_BASE_JSON_H
#define GH_BASE_JSON_H

#include <stddef.h>

/* The bytes of the UTF-8 character at `text`; 0: it is no UTF-8. */
size_t gh_utf8_bytes(const char *text);

/*
 * Writes the next character of `text`, which must not be at its end, as a JSON
 * string may hold it.  Returns how many bytes of `text` it was.  UTF-8 stays
 * as it is; any other byte becomes the character with its number.
 */
size_t gh_json_char(const char *text, char out[8]);

/* Makes one line of the text: whatever is no UTF-8, or controls a terminal or
 * a file, such as a newline, becomes '?'. */
void gh_one_line(char *text);

#endif
