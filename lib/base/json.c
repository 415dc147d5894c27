/*
 * json.c - escapes what a host may have put into a name.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "config.h"

#include "base/json.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

size_t gh_utf8_bytes(const char *bytes)
{
    const unsigned char *text = (const unsigned char *)bytes;
    const unsigned char c = text[0];
    size_t n = c < 0x80   ? 1
               : c < 0xc2 ? 0
               : c < 0xe0 ? 2
               : c < 0xf0 ? 3
               : c < 0xf5 ? 4
                          : 0;

    for (size_t i = 1; i < n; i++) {
        if ((text[i] & 0xc0) != 0x80) {
            return 0;
        }
    }
    /* Refuse overlong forms, surrogates, and numbers above the last plane. */
    if ((c == 0xe0 && text[1] < 0xa0) || (c == 0xed && text[1] >= 0xa0) ||
        (c == 0xf0 && text[1] < 0x90) || (c == 0xf4 && text[1] >= 0x90)) {
        return 0;
    }
    return n;
}

static bool is_control(const char *text)
{
    const unsigned char c = (unsigned char)text[0];

    return c < 0x20 || c == 0x7f ||
           (c == 0xc2 && (unsigned char)text[1] < 0xa0); /* U+0080 to 9F */
}

void gh_one_line(char *text)
{
    while (*text != '\0') {
        size_t n = gh_utf8_bytes(text);

        if (n == 0 || is_control(text)) {
            n = n == 0 ? 1 : n;
            memset(text, '?', n);
        }
        text += n;
    }
}

size_t gh_json_char(const char *text, char out[8])
{
    const unsigned char c = (unsigned char)text[0];
    const size_t n = gh_utf8_bytes(text);

    if (n == 0 || c < 0x20 || c == 0x7f) {
        snprintf(out, 8, "\\u%04x", c);
        return 1;
    }
    if (c == '"' || c == '\\') {
        snprintf(out, 8, "\\%c", c);
        return 1;
    }
    memcpy(out, text, n);
    out[n] = '\0';
    return n;
}
