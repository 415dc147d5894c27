#!/bin/sh
# The pages of man and bash's completion have what the commands have.
# SPDX-License-Identifier: Apache-2.0
. "${srcdir:?}/tests/tap/tap.sh"
scratch

for command in graphhooks gh-engine graphhooks-conform; do
    page=$srcdir/doc/$command.1
    sed 's/\\-/-/g' "$page" > "$scratch/page"
    "${builddir:?}/$command" --help | grep -o -e '--[a-z][a-z-]*' | sort -u |
        while read -r option; do
            # --help itself needs no words.
            [ "$option" = --help ] || grep -q -e "^[.].*$option" "$scratch/page" ||
                echo "$option"
        done > "$scratch/missing"
    empty "$(cat "$scratch/missing")" "$command.1 has every option of --help"
    grep '^[.]B' "$scratch/page" | grep -o -e '--[a-z][a-z-]*' | sort -u |
        while read -r option; do
            "$builddir/$command" --help | grep -q -e "$option" || echo "$option"
        done > "$scratch/more"
    empty "$(cat "$scratch/more")" "and no other"
    if have mandoc; then
        empty "$(mandoc -T lint -W error "$page")" "mandoc reads $command.1"
    elif have groff; then
        empty "$(groff -man -Tutf8 -ww -z "$page" 2>&1)" "groff reads $command.1"
    else
        skip "no mandoc or groff to read $command.1"
    fi
done

if have bash; then
    # offered COMMAND WORD PREVIOUS
    cat > "$scratch/offered" << 'END'
. "$srcdir/bin/completion.bash"
_graphhooks "$@"
printf '%s\n' "${COMPREPLY[@]}"
END
    cd "$builddir" || exit 99
    [ "$(bash "$scratch/offered" ./graphhooks pl ./graphhooks)" = plan ]
    ok $? "bash completes a command of graphhooks"
    [ "$(bash "$scratch/offered" ./graphhooks --gra plan)" = --granularity ]
    ok $? "and an option of plan"
    [ "$(bash "$scratch/offered" ./gh-engine --micro x)" = --microbatches ]
    ok $? "an option of gh-engine"
    [ "$(bash "$scratch/offered" ./gh-engine s --driver)" = soft ]
    ok $? "and a word that goes with one"
    [ -z "$(bash "$scratch/offered" ./graphhooks mod plan)" ]
    ok $? "and leaves files to bash"
else
    for _ in 1 2 3 4 5; do skip "no bash"; done
fi

done_testing
