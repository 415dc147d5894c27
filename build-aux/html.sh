#!/bin/sh
# html.sh - the pages of the project as a site; --help says how.
#
# SPDX-License-Identifier: Apache-2.0
set -eu

usage()
{
    cat << 'END'
usage: build-aux/html.sh OUT

Makes a site with a search in OUT/html: all guides, and a page for each header
with all it has.  It begins at OUT/html/README.html.

It needs doxygen and python3.  Where python3 has no Sphinx with MyST, Breathe
and the theme furo, pip installs them into OUT/tools.
END
}

die()
{
    echo "html.sh: $*" >&2
    exit 1
}

case ${1-} in
-h | --help)
    usage
    exit 0
    ;;
'' | -*)
    usage >&2
    exit 2
    ;;
esac

top=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "$1"
out=$(cd "$1" && pwd)
python=${PYTHON:-python3}

command -v doxygen > /dev/null ||
    die "doxygen is missing, which reads the headers: install it (apt-get install doxygen)"
if ! "$python" -c 'import breathe, furo, myst_parser, sphinx' 2> /dev/null; then
    [ -x "$out/tools/bin/sphinx-build" ] || {
        "$python" -m venv "$out/tools" &&
            "$out/tools/bin/pip" --disable-pip-version-check install -q \
                sphinx breathe myst-parser furo
    } || die "pip cannot install sphinx, breathe, myst-parser and furo"
    python=$out/tools/bin/python
fi

# ---- the pages, where they are in the tree ---------------------------------

# With the pictures, and the files that a reader takes along.
pages=$out/pages
rm -rf "$pages" "$out/html"
mkdir -p "$pages/reference"
(cd "$top" && {
    find ./*.md doc hosts bench -name '*.md' -o -name '*.svg' \
        -o -name 'hello*' -o -path '*/models/*.json'
    printf '%s\n' LICENSE NEWS
}) | while read -r file; do
    mkdir -p "$pages/$(dirname "$file")"
    cp "$top/$file" "$pages/$file"
done

# ---- the headers -----------------------------------------------------------

doxygen - > "$out/doxygen.log" 2>&1 << END || die "$(tail -n 3 "$out/doxygen.log")"
INPUT = "$top/include/graphhooks"
OUTPUT_DIRECTORY = "$out"
FILE_PATTERNS = *.h
INPUT_FILTER = "sed -f $top/doc/site/headers.sed"
EXTRACT_ALL = YES
JAVADOC_AUTOBRIEF = YES
OPTIMIZE_OUTPUT_FOR_C = YES
TYPEDEF_HIDES_STRUCT = YES
MACRO_EXPANSION = YES
EXPAND_ONLY_PREDEF = YES
PREDEFINED = GH_API= GH_BEGIN_DECLS= GH_END_DECLS=
GENERATE_HTML = NO
GENERATE_LATEX = NO
GENERATE_XML = YES
QUIET = YES
END
headers=
for header in "$top"/include/graphhooks/*.h; do
    name=$(basename "$header")
    headers="$headers
reference/${name%.h}"
    cat > "$pages/reference/${name%.h}.md" << END
# graphhooks/$name

\`\`\`{doxygenfile} $name
\`\`\`
END
done

# ---- the list of pages -----------------------------------------------------

# tree CAPTION PAGE...: as README's end.
tree()
{
    printf '\n```{toctree}\n:hidden:\n:caption: %s\n\n' "$1"
    shift
    printf '%s\n' "$@" | sed 's/\.md$//'
    printf '```\n'
}

# pages_in FOLDER...: all of theirs.
pages_in()
{
    find "$@" -name '*.md' | sed 's,^\./,,' | sort
}

# shellcheck disable=SC2046,SC2086 # names without blanks
(cd "$pages" && {
    tree Guides $(pages_in doc)
    tree Hosts $(pages_in hosts bench)
    tree Headers $headers
    tree Project $(pages_in ./[A-Z]*.md | grep -v '^README')
}) > "$out/trees"
cat "$out/trees" >> "$pages/README.md"

SITE_VERSION=$(sed -n '/^AC_INIT/s/.*\[\([0-9][^]]*\)\].*/\1/p' "$top/configure.ac") \
    SITE_XML=$out/xml "$python" -m sphinx -q -W --keep-going \
    -c "$top/doc/site" -d "$out/doctrees" "$pages" "$out/html"
echo "$out/html/README.html"
