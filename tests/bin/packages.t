#!/bin/sh
# The recipes of conda and spack are of this version, and of what configure asks
# for; where rattler-build is installed for Python, it reads the first.
# SPDX-License-Identifier: Apache-2.0
. "${srcdir:?}/tests/tap/tap.sh"
scratch

conda=$srcdir/packages/conda/recipe.yaml
spack=$srcdir/packages/spack/package.py
version=$(sed -n 's/^AC_INIT(\[graphhooks\], \[\(.*\)\])/\1/p' \
    "$srcdir/configure.ac")
[ -n "$version" ]
ok $? "the version is $version"

[ "$(sed -n 's/^  version: "\(.*\)"/\1/p' "$conda")" = "$version" ]
ok $? "that of conda's recipe"
[ "$(sed -n 's/^    version("\([^"]*\)".*/\1/p' "$spack")" = "$version" ] &&
    [ "$(grep -c "graphhooks[-@]$version" "$spack")" -ge 2 ]
ok $? "that of spack's package"
jansson=$(sed -n 's/.*PKG_CHECK_MODULES(\[JANSSON\], \[jansson >= \(.*\)\],/\1/p' \
    "$srcdir/m4/ax_gh_jansson.m4")
grep -q "jansson >=$jansson\$" "$conda" && grep -q "\"jansson@$jansson:\"" "$spack"
ok $? "both ask for jansson $jansson"
python=$(sed -n 's/^requires-python = ">=\(.*\)"/\1/p' \
    "$srcdir/hosts/pytorch/pyproject.toml")
[ "$(grep -c "python >=$python\$" "$conda")" -eq 2 ] &&
    grep -q "\"python@$python:\"" "$spack"
ok $? "both ask for python $python"
setuptools=$(sed -n 's/^requires = \["setuptools>=\(.*\)"\]/\1/p' \
    "$srcdir/hosts/pytorch/pyproject.toml")
grep -q "setuptools >=$setuptools\$" "$conda" &&
    grep -q "\"py-setuptools@$setuptools:\"" "$spack"
ok $? "both ask for setuptools $setuptools"

# Options that are configure's, and files that are there.
options=$(sed -n 's/.*AC_ARG_WITH(\[\([a-z]*\)\],.*/\1/p' \
    "$srcdir"/m4/ax_gh_*.m4 | sort -u)
unknown=$(grep -oh -e '--with\(out\)\?-[a-z]*' "$conda" "$spack" |
    sed 's/--with\(out\)\?-//' | sort -u | while read -r option; do
    echo "$options" | grep -qx "$option" || echo "$option"
done)
empty "$unknown" "configure has the options of both"
[ -e "$srcdir/LICENSE" ] && [ -e "$srcdir/hosts/pytorch/pyproject.toml" ]
ok $? "the files that they name are there"

for python in "${PYTHON:-python3}" python3; do
    have "$python" && break
done
have "$python" || {
    skip "no python3"
    skip "no python3"
    done_testing
}
"$python" - "$spack" > "$scratch/out" 2>&1 << 'END'
import ast
import sys

tree = ast.parse(open(sys.argv[1]).read())
[package] = [n for n in tree.body if isinstance(n, ast.ClassDef)]
assert package.name == "Graphhooks"
known = {"license", "version", "variant", "extends", "depends_on", "conflicts"}
for node in package.body:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        assert node.value.func.id in known, node.value.func.id
END
ok $? "spack's package is Python, and its directives are spack's"
if "$python" -c 'import rattler_build' 2> /dev/null; then
    "$python" - "$conda" > "$scratch/out" 2>&1 << 'END'
import sys

from rattler_build import Stage0Recipe, VariantConfig

names = [v.recipe.package.name for v in Stage0Recipe.from_file(sys.argv[1]).render(
    VariantConfig())]
assert sorted(map(str, names)) == ["graphhooks", "libgraphhooks"], names
END
    read=$?
    ok $read "rattler-build reads conda's recipe"
    [ $read -eq 0 ] || diag < "$scratch/out"
else
    skip "no rattler-build (pip install py-rattler-build)"
fi

done_testing
