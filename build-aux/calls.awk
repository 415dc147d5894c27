# calls.awk - finds calls in lib/ that go up, and circles of calls.
#
#     nm -A lib/*/.libs/*.o | awk -v layers=FILE -f calls.awk
#
# Prints one line for each call of a function in a room that layers.txt does
# not allow, and one for each call between two files of which either reaches
# the other.  Calls of headers' inline functions are their includers'.
# tests/abi/layers.t calls it.
#
# SPDX-License-Identifier: Apache-2.0
BEGIN {
    while ((getline line < layers) > 0) {
        if (line ~ /^#/ || line !~ /:/) {
            continue
        }
        n = split(line, word, /[ :]+/)
        for (i = 2; i <= n; i++) {
            allowed[word[1], word[i]] = 1
        }
    }
}

# lib/capture/.libs/libcore_la-exit.o: 0000 T gh_capture_exit
{
    file = $1
    sub(/:.*/, "", file)
    sub(/\.o$/, "", file)
    n = split(file, part, "/")
    if (part[n - 1] == ".libs") {
        part[n - 1] = part[n]
        n--
    }
    room = part[n - 2] == "lib" ? part[n - 1] : part[n - 2] "/" part[n - 1]
    name = part[n]
    sub(/.*_la-/, "", name)
    file = room "/" name
    room_of[file] = room
    if ($(NF - 1) == "U") {
        uses[++n_uses] = file
        what[n_uses] = $NF
    } else if ($(NF - 1) ~ /^[TDRBC]$/) {
        home[$NF] = file
    }
}

# Other rooms may call the parts of a room where they may call the room.
function seen_from(from, to,    above)
{
    above = to
    sub(/\/.*/, "", above)
    sub(/\/.*/, "", from)
    return above == from ? to : above
}

# Marks all that `from` reaches.
function walk(from, at,    i, n, next_one, list)
{
    n = split(calls[at], list, " ")
    for (i = 1; i <= n; i++) {
        next_one = list[i]
        if (!((from, next_one) in reaches)) {
            reaches[from, next_one] = 1
            walk(from, next_one)
        }
    }
}

END {
    for (i = 1; i <= n_uses; i++) {
        if (!(what[i] in home) || home[what[i]] == uses[i]) {
            continue
        }
        from = uses[i]
        to = home[what[i]]
        if (!((from, to) in by)) {
            by[from, to] = what[i]
            calls[from] = calls[from] " " to
        }
        above = seen_from(room_of[from], room_of[to])
        if (room_of[from] != room_of[to] &&
            !((room_of[from], above) in allowed)) {
            print from " may not call " what[i] " of " to
        }
    }
    for (file in room_of) {
        walk(file, file)
    }
    for (pair in by) {
        split(pair, end, SUBSEP)
        if ((end[2], end[1]) in reaches) {
            print end[1] " calls " by[pair] " of " end[2] ", which leads back"
        }
    }
}
