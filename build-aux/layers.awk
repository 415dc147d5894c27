# layers.awk - finds includes that a layers.txt does not allow.
#
#     grep -n '#include "' lib/*/*.[ch] | awk -v layers=FILE -f layers.awk
#
# Prints one line for each.  Who includes is the last folder of its path.
# tests/abi/layers.t and tests/engine/layers.t call it.
#
# SPDX-License-Identifier: Apache-2.0
BEGIN {
    while ((getline line < layers) > 0) {
        if (line ~ /^#/ || line !~ /:/) {
            continue
        }
        n = split(line, word, /[ :]+/)
        known[word[1]] = 1
        for (i = 2; i <= n; i++) {
            allowed[word[1], word[i]] = 1
        }
    }
}

{
    split($0, at, ":")
    where = at[1] ":" at[2]
    n = split(at[1], path, "/")
    from = path[n - 1]
    target = $0
    sub(/^[^"]*"/, "", target)
    sub(/".*/, "", target)
    to = target
    sub(/\/.*/, "", to)

    if (!(from in known)) {
        print where ": " from " is not in layers.txt"
    } else if (target == "config.h" || to == from) {
        next
    } else if (!((from, to) in allowed)) {
        print where ": " from " may not include " target
    }
}
