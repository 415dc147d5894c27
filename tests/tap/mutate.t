#!/bin/sh
# build-aux/mutate.py breaks functions by rule, and tells what nobody notices:
# in a small tree of its own.
# SPDX-License-Identifier: Apache-2.0
. "${srcdir:?}/tests/tap/tap.sh"
scratch
have python3 || skip_all "no python3"
have git || skip_all "no git to list sources with"
have gcov && have gcc || skip_all "no gcc with gcov"
unset SCRATCH JOBS LIMIT SLOW CONFIGURE MAKEFLAGS MFLAGS MAKELEVEL
PYTHONDONTWRITEBYTECODE=1
export PYTHONDONTWRITEBYTECODE

tree=$scratch/top
mkdir -p "$tree/build-aux" "$tree/lib/room" "$tree/tests" || exit 99
cp "$srcdir/build-aux/mutate.py" "$tree/build-aux" || exit 99
git -C "$scratch" init -q top || exit 99

cat > "$tree/lib/room/a.c" << 'END'
/* if (this && that) is no code. */
#define ONE (1 == 1)
static const char *const text = "a && b < 1";

int step(int n)
{
    int most = 5;

    most = 5;
    if (n < 3) { /* n == 0 */
        return n;
    }
    return most;
}

int unused(int n)
{
    return n + 1;
}

enum { GH_OK };

int least(int a, int b)
{
    const int status = GH_OK;

    return (int)a < b ? (int)a : b;
}
END
cat > "$tree/tests/room.c" << 'END'
int step(int n);

int main(void)
{
    return step(2) != 2 || step(5) != 5;
}
END
cat > "$tree/configure" << 'END'
#!/bin/sh
{ echo "CFLAGS = ${2#CFLAGS=}"; cat "${0%/*}/Makefile.made"; } > Makefile
END
chmod +x "$tree/configure"
cat > "$tree/Makefile.made" << 'END'
all libgraphhooks-softcuda.la libsoftnccl.la:
libgraphhooks.la: lib/room/a.o
build-tests: tests/room.t
lib/room/a.o: ../tree/lib/room/a.c
	mkdir -p lib/room tests
	gcc $(CFLAGS) -c -o $@ ../tree/lib/room/a.c
tests/room.t: lib/room/a.o ../tree/tests/room.c
	gcc $(CFLAGS) -o $@ lib/room/a.o ../tree/tests/room.c
print-programs:
	@echo tests/room.t
END

# mutate OPTION...: what it says in $scratch/said.
mutate()
{
    python3 "$tree/build-aux/mutate.py" "$@" > "$scratch/said" 2>&1
}

mutate --list --most 0 lib/room
ok $? "it lists what it would break"
grep '^lib' "$scratch/said" > "$scratch/listed"
cat > "$scratch/wanted" << 'END'
lib/room/a.c:7: a value is zero
lib/room/a.c:9: a statement is gone
lib/room/a.c:10: if does not hold when it did
lib/room/a.c:10: a bound moves
lib/room/a.c:11: another value returns
lib/room/a.c:13: another value returns
lib/room/a.c:18: another value returns
lib/room/a.c:18: a sum becomes a difference
lib/room/a.c:18: 1 becomes 0
lib/room/a.c:27: another value returns
END
sort "$scratch/listed" > "$scratch/a"
sort "$scratch/wanted" | cmp -s - "$scratch/a"
ok $? "all of the functions, and nothing of comments, strings, macros and ties"
diff "$scratch/wanted" "$scratch/listed" | diag
mutate --list --most 3 --seed 4 lib/room
cp "$scratch/said" "$scratch/first"
mutate --list --most 3 --seed 4 lib/room
cmp -s "$scratch/first" "$scratch/said" &&
    [ "$(grep -c '^lib' "$scratch/said")" -eq 3 ]
ok $? "a seed draws the same ones"

SCRATCH=$scratch/kept mutate --most 0 lib/room
ok $? "it breaks them"
[ "$(tail -n 1 "$scratch/said")" = "lib/room: 3 of 8 noticed (37 %), 1 survived, 4 where no program comes" ]
ok $? "and counts them by room"
grep -A 2 '^survived: ' "$scratch/said" > "$scratch/survived"
cat > "$scratch/wanted" << 'END'
survived: lib/room/a.c:10: a bound moves
    -    if (n < 3) { /* n == 0 */
    +    if (n <= 3) { /* n == 0 */
END
cmp -s "$scratch/wanted" "$scratch/survived"
ok $? "what survives is shown with its place and the difference"
[ "$(grep -c '^unreached: lib/room/a.c:18: ' "$scratch/said")" -eq 3 ] &&
    [ "$(grep -c '^noticed: .* \[tests/room.t\]$' "$scratch/said")" -eq 3 ]
ok $? "what no program reaches is told from what one notices"
[ "$(grep -c '^the same: lib/room/a.c:[79]: ' "$scratch/said")" -eq 2 ]
ok $? "and what changes no code from both"
git -C "$tree" status --porcelain | grep -v '^??' > "$scratch/changed"
! grep -q '<= 3' "$tree/lib/room/a.c" && [ ! -s "$scratch/changed" ]
ok $? "the tree itself stays as it is"
[ -n "$(find "$scratch/kept/counting" -name 'a.gcda')" ] &&
    [ -z "$(find "$scratch/kept/build" -name '*.gcno')" ]
ok $? "lines are counted in a build of their own"
cp "$tree/tests/room.c" "$scratch/passing.c"
sed 's/return step(2)/return 1 || step(2)/' "$tree/tests/room.c" \
    > "$scratch/room.c"
cp "$scratch/room.c" "$tree/tests/room.c"
mutate --most 0 lib/room
grep -q '^left out: tests/room.t: it fails' "$scratch/said" &&
    tail -n 1 "$scratch/said" | grep -q ' 0 of 10 noticed'
ok $? "a program that fails anyhow notices nothing"
sed 's/^    return/    sleep(1);\n&/; 1i #include <unistd.h>' \
    "$scratch/passing.c" > "$tree/tests/room.c"
LIMIT=0 mutate --most 0 lib/room
tail -n 1 "$scratch/said" | grep -q ' 0 of 8 noticed'
ok $? "no program begins after the limit"
LIMIT=0.5 mutate --most 0 lib/room
tail -n 1 "$scratch/said" | grep -q ' 3 of 8 noticed (37 %), 1 survived'
ok $? "one that has begun may take longer than the limit, and fails no sooner"
done_testing
