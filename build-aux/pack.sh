#!/bin/sh
# pack.sh - makes a C array of a text, in about a fifth of its bytes.
#
#     pack.sh FILE SYMBOL > out.c
#
# Defines `const unsigned char SYMBOL[]` and `const unsigned SYMBOL_bytes[2]`,
# which are the sizes packed and unpacked.  Declare them in a header by hand.
# The text is ASCII without NUL.  A byte below 128 stands for itself.  Any other
# one is 128 + n - 4, where n characters come again that were there before; two
# bytes follow that say how far back, the lower one first.
#
# SPDX-License-Identifier: Apache-2.0
set -eu

if [ $# -ne 2 ] || [ ! -r "$1" ]; then
    echo "usage: pack.sh FILE SYMBOL > out.c" >&2
    exit 2
fi

LC_ALL=C awk -v symbol="$2" -v name="${1##*/}" '
    function emit(escaped)
    {
        line = line escaped
        packed++
        if (length(line) > 66) {
            printf "\n    \"%s\"", line
            line = ""
        }
    }
    { text = text $0 "\n" }
    END {
        for (i = 32; i < 127; i++) {
            c = sprintf("%c", i)
            shown[c] = index("\"?\\", c) ? "\\" c : c
        }
        shown["\n"] = "\\n"
        shown["\t"] = "\\t"
        printf "/* Made by build-aux/pack.sh from %s. */\n", name
        printf "extern const unsigned char %s[];\n", symbol
        printf "extern const unsigned %s_bytes[2];\n", symbol
        printf "const unsigned char %s[] =", symbol
        n = length(text)
        for (i = 1; i <= n; i += taken) {
            best = 0
            at = last[substr(text, i, 4)]
            for (tries = 0; at > 0 && i - at < 65536 && tries < 48; tries++) {
                if (best == 0 ||
                    substr(text, at, best + 1) == substr(text, i, best + 1)) {
                    for (k = best; k < 131 && i + k <= n &&
                         substr(text, at + k, 1) == substr(text, i + k, 1);
                         k++) {
                    }
                    if (k > best) {
                        best = k
                        from = at
                    }
                }
                at = before[at]
            }
            taken = best >= 4 ? best : 1
            if (best >= 4) {
                emit(sprintf("\\%03o", 128 + best - 4))
                emit(sprintf("\\%03o", (i - from) % 256))
                emit(sprintf("\\%03o", int((i - from) / 256)))
            } else {
                emit(shown[substr(text, i, 1)])
            }
            for (k = i; k < i + taken; k++) {
                key = substr(text, k, 4)
                before[k] = last[key]
                last[key] = k
            }
        }
        printf "\n    \"%s\";\n", line
        printf "const unsigned %s_bytes[2] = { %d, %d };\n", symbol, packed, n
    }' "$1"
