/* Whatever a host calls its layers, the JSON stays JSON. */
/* SPDX-License-Identifier: Apache-2.0 */
#include "base/json.h"
#include "tap/tap.h"

#include <string.h>

static const char *escaped(const char *text)
{
    static char all[256];
    char one[8];

    all[0] = '\0';
    while (*text != '\0') {
        text += gh_json_char(text, one);
        strcat(all, one);
    }
    return all;
}

int main(void)
{
    is_str(escaped("layer 3"), "layer 3", "plain text stays");
    is_str(escaped("a \"b\" \\c"), "a \\\"b\\\" \\\\c",
           "quotes and backslashes are escaped");
    is_str(escaped("\n\t\x7f"), "\\u000a\\u0009\\u007f",
           "control characters are escaped");
    is_str(escaped("\xc3\xa9 \xe4\xb8\xad \xf0\x9f\x98\x80"),
           "\xc3\xa9 \xe4\xb8\xad \xf0\x9f\x98\x80", "UTF-8 stays");
    is_str(escaped("\xe0\xa4\x85 \xf4\x8f\xbf\xbf"),
           "\xe0\xa4\x85 \xf4\x8f\xbf\xbf", "up to the last character");
    is_str(escaped("\xff\xc3"), "\\u00ff\\u00c3",
           "bytes that are no UTF-8 become characters");
    is_str(escaped("\xc0\xaf"), "\\u00c0\\u00af", "so do overlong forms");
    is_str(escaped("\xc1\xbf"), "\\u00c1\\u00bf", "of two bytes");
    is_str(escaped("\xe0\x9f\xbf"), "\\u00e0\\u009f\\u00bf", "of three");
    is_str(escaped("\xf0\x8f\xbf\xbf"), "\\u00f0\\u008f\\u00bf\\u00bf",
           "and of four");
    is_str(escaped("\xed\xa0\x80"), "\\u00ed\\u00a0\\u0080", "and surrogates");
    is_str(escaped("\xf4\x90\x80\x80"), "\\u00f4\\u0090\\u0080\\u0080",
           "and what lies above Unicode");
    is_str(escaped("\xf5\x80\x80\x80"), "\\u00f5\\u0080\\u0080\\u0080",
           "whatever byte leads it");
    is_str(escaped("\xc3\xc3\xa9"), "\\u00c3\xc3\xa9",
           "a byte that leads a character ends the one before");
    is_str(escaped("\xe4\xb8"), "\\u00e4\\u00b8", "and a character cut short");
    return done_testing();
}
