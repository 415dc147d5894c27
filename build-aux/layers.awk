# layers.awk - finds includes that a layers.txt does not allow.
#
#     grep -n '#include "' lib/*/*.[ch] | awk -v layers=FILE -f layers.awk
#
# Prints one line for each.  A layer is a room, lib/ROOM, or a room in it,
# lib/ROOM/PART, which other rooms include nothing of; in softcuda/ and
# softnccl/, from within, a file with its header.  tests/abi/layers.t and
# tests/engine/layers.t call it.
#
# SPDX-License-Identifier: Apache-2.0
function layer_of(path, tree,    part, n)
{
    n = split(path, part, "/")
    if (tree != "" && part[1] == tree) {
        sub(/\..*/, "", part[n])
        return part[n]
    }
    if (part[1] == "lib") {
        return n > 3 ? part[2] "/" part[3] : part[2]
    }
    return n > 2 ? part[1] "/" part[2] : n > 1 ? part[1] : path
}

# The room that a layer is, or that it is part of.
function room_of(layer)
{
    sub(/\/.*/, "", layer)
    return layer
}

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
    tree = at[1] ~ /^soft(cuda|nccl)\// ? substr(at[1], 1, 8) : ""
    from = layer_of(at[1], tree)
    target = $0
    sub(/^[^"]*"/, "", target)
    sub(/".*/, "", target)
    to = layer_of(target, tree)

    if (!(from in known)) {
        print where ": " from " is not in layers.txt"
    } else if (target == "config.h" || to == from) {
        next
    } else if (!((from, to) in allowed)) {
        print where ": " from " may not include " target
    } else if (tree == "" && room_of(from) != room_of(to) &&
               (target ~ /\/(private|state)\.h$/ || to ~ /\//)) {
        print where ": " target " is its own room\047s"
    }
}
