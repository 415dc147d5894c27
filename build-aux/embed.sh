#!/bin/sh
# embed.sh - makes a C array of a file, for the build.
#
#     embed.sh FILE SYMBOL > out.c
#
# Defines `const char SYMBOL[]`, the bytes of FILE and a NUL.  Declare it in
# a header by hand.
#
# SPDX-License-Identifier: Apache-2.0
set -eu

if [ $# -ne 2 ] || [ ! -r "$1" ]; then
    echo "usage: embed.sh FILE SYMBOL > out.c" >&2
    exit 2
fi

printf '/* Made by build-aux/embed.sh from %s. */\n' "${1##*/}"
printf 'extern const char %s[];\nconst char %s[] =\n' "$2" "$2"

# Octal escapes end after three digits, so no byte can run into the next.
LC_ALL=C od -An -v -tu1 "$1" | LC_ALL=C awk '
    {
        for (i = 1; i <= NF; i++) {
            byte = $i + 0
            if (byte == 10) {
                printf "%s    \"%s\\n\"", sep, line
                sep = "\n"
                line = ""
            } else if (byte == 34 || byte == 63 || byte == 92) {
                line = line sprintf("\\%c", byte)
            } else if (byte >= 32 && byte < 127) {
                line = line sprintf("%c", byte)
            } else {
                line = line sprintf("\\%03o", byte)
            }
        }
    }
    END { printf "%s    \"%s\";\n", sep, line }'
