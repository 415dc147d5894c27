#!/bin/sh
# check-debian.sh - whether the tarball makes packages that work; --help says how.
# SPDX-License-Identifier: Apache-2.0
set -u

usage()
{
    cat << 'END'
usage: build-aux/check-debian.sh TARBALL [OUT]

Builds the packages of debian/ from TARBALL, where there is no network, reads
them with lintian, installs them in a copy of this system that is thrown away,
and runs debian/tests there.  Needs dpkg-dev, what debian/control names, and
lintian, and root for what is installed; what cannot be done is skipped.  OUT
gets the packages.

The last line says "N passed, N failed, N skipped".
END
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
tarball=$(cd "$(dirname "$1")" && pwd)/$(basename "$1")
out=${2-}
[ -e "$tarball" ] || {
    echo "check-debian.sh: there is no $tarball: make dist" >&2
    exit 2
}
passed=0 failed=0 skipped=0
work=$(mktemp -d "${TMPDIR:-/tmp}/graphhooks.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
# That of Debian: another Python does not see Debian's packages.
PATH=/usr/sbin:/usr/bin:/sbin:/bin
export PATH

# point NAME COMMAND...: shows what a command says when it fails.
point()
{
    name=$1
    shift
    if "$@" > "$work/log" 2>&1 < /dev/null; then
        echo "ok - $name"
        passed=$((passed + 1))
    else
        tail -n 30 "$work/log"
        echo "not ok - $name"
        failed=$((failed + 1))
        return 1
    fi
}

miss()
{
    echo "skipped: $*"
    skipped=$((skipped + 1))
}

end()
{
    echo "$passed passed, $failed failed, $skipped skipped"
    [ "$failed" -eq 0 ]
    exit
}

command -v dpkg-buildpackage > "$work/log" || {
    miss "there is no dpkg-buildpackage: apt-get install dpkg-dev"
    end
}
tar xzf "$tarball" -C "$work" || exit 1
source=$(find "$work" -mindepth 1 -maxdepth 1 -type d)
cd "$source" || exit 1
dpkg-checkbuilddeps 2> "$work/log" || {
    miss "$(cat "$work/log")"
    end
}
without_network="unshare -n"
$without_network true 2> "$work/log" || without_network="unshare -rn"
$without_network true 2> "$work/log" || {
    without_network=
    miss "unshare cannot take the network away here"
}
# shellcheck disable=SC2086 # words
point "packages build from the tarball${without_network:+, without a network}" \
    $without_network env DEB_BUILD_OPTIONS="parallel=$(nproc)" \
    dpkg-buildpackage -us -uc -b || end
cd "$work" || exit 1
if command -v lintian > "$work/log"; then
    # They are not uploaded to Debian, which would want the number of a bug.
    # shellcheck disable=SC2211 # a pattern of files
    point "lintian finds nothing" lintian --no-cfg --fail-on error,warning \
        --allow-root --suppress-tags initial-upload-closes-no-bugs ./*.changes
else
    miss "there is no lintian: apt-get install lintian"
fi
if [ -n "$out" ]; then
    mkdir -p "$out" && cp ./*.deb "$out"
fi

# A copy of this system, in which all that is written is in memory.
cat > "$work/tried" << 'END'
set -e
mkdir "$work/copy"
mount -t tmpfs none "$work/copy"
cd "$work/copy"
mkdir up under root
mount -t overlay overlay -o "lowerdir=/,upperdir=$PWD/up,workdir=$PWD/under" root
mkdir root/debs
cp "$work"/*.deb root/debs
rm -f root/debs/*-dbgsym_*
cp -r "$source" root/debs/source
mount -t proc proc root/proc
[ "$1" != try ] || exit 0
chroot root sh -c 'cd /debs && dpkg -i *.deb'
for test in demo host python; do
    echo "== $test"
    chroot root sh -c "cd /debs/source && debian/tests/$test"
done
chroot root man -w graphhooks gh-engine graphhooks-conform
chroot root dpkg -P python3-graphhooks graphhooks-tools graphhooks-plugins \
    graphhooks-doc libgraphhooks-dev libgraphhooks0
END
export work source
if unshare -m sh "$work/tried" try > "$work/log" 2>&1; then
    rmdir "$work/copy"
    point "they install, pass debian/tests and go again" \
        unshare -m sh "$work/tried" all
else
    miss "there is no overlay to install into: it takes root"
fi
end
