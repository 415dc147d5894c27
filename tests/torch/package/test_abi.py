"""_abi.py against tests/abi/layout.def, which every header is held to.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import ctypes
import re

import pytest
from conftest import TOP
from graphhooks import _abi, _version

ROW = re.compile(r"^(STRUCT|FIELD|VALUE)\(([^)]*)\)$", re.MULTILINE)


def rows():
    text = (TOP / "tests" / "abi" / "layout.def").read_text()
    for kind, arguments in ROW.findall(text):
        words = [word.strip() for word in arguments.split(",")]
        # Of plugins, not of hosts.
        if not words[0].startswith(("gh_family", "GH_LANE_")):
            yield kind, words


LAYOUT = list(rows())
STRUCTS = {w[0]: int(w[1]) for kind, w in LAYOUT if kind == "STRUCT"}


@pytest.mark.parametrize("name", STRUCTS)
def test_the_struct_lies_as_in_C(name):
    struct = getattr(_abi, name)
    fields = {
        words[1]: (int(words[2]), int(words[3]))
        for kind, words in LAYOUT
        if kind == "FIELD" and words[0] == name
    }
    ours = {
        field: (getattr(struct, field).offset, getattr(struct, field).size)
        for field, *_ in struct._fields_
    }
    assert ours == fields
    assert list(ours) == list(fields)
    assert ctypes.sizeof(struct) == STRUCTS[name]


def test_every_value_is_that_of_C():
    values = {w[0]: int(w[1]) for kind, w in LAYOUT if kind == "VALUE"}
    assert len(values) > 80
    assert {name: getattr(_abi, name, None) for name in values} == values


def test_no_struct_and_no_value_is_one_that_C_does_not_have():
    known = {words[0] for kind, words in LAYOUT if kind != "FIELD"}
    # Macros of the headers, which layout.def leaves out.
    known |= {"GH_PART_COUNT", "GH_TENSOR_COUNT", "GH_GET_API_SYMBOL"}
    known |= {"gh_status"}
    ours = {name for name in vars(_abi) if re.match(r"(gh|GH)_", name)}
    assert ours - known == set()


def test_the_macros_that_layout_def_leaves_out_are_those_of_C():
    for name in ("GH_PART_COUNT", "GH_TENSOR_COUNT"):
        found = [
            re.search(rf"#define {name} (\d+)", path.read_text())
            for path in (TOP / "include" / "graphhooks").glob("*.h")
        ]
        assert [int(m[1]) for m in found if m] == [getattr(_abi, name)]


def test_every_function_takes_as_many_arguments_as_in_C():
    text = (TOP / "include" / "graphhooks" / "loader.h").read_text()
    body = text[text.index("typedef struct gh_api {") :]
    body = body[: body.index("} gh_api;")]
    declared = re.findall(r"\(\*([a-z_]+)\)\(([^)]*)\)", body)
    assert [name for name, _ in declared] == [
        name for name, *_ in _abi.gh_api._fields_[2:]]
    for name, arguments in declared:
        prototype = dict(_abi.gh_api._fields_)[name]
        n = 0 if arguments.strip() == "void" else arguments.count(",") + 1
        assert len(prototype._argtypes_) == n, name


def test_make_sets_the_size_and_nothing_else():
    pass_ = _abi.make(_abi.gh_pass, segment=3)
    assert (pass_.struct_size, pass_.segment) == (80, 3)
    assert bytes(pass_)[8:] == bytes(72)


def test_the_table_holds_plain_functions(api):
    assert api.abi == (1, _abi.GH_ABI_MINOR)
    assert isinstance(api.layer_enter, ctypes._CFuncPtr)
    assert api.layer_enter is api.layer_enter
    assert api.status_name(_abi.GH_ERR_BUSY) == b"GH_ERR_BUSY"


def test_a_function_whose_arguments_are_not_looked_at(api):
    function = _abi.unconverted(api.status_name)
    assert function(ctypes.c_int32(_abi.GH_ERR_BUSY)) == b"GH_ERR_BUSY"


def test_the_version_is_that_of_configure_and_of_the_library(api):
    ours = _version.__version__
    configure = (TOP / "configure.ac").read_text()
    init = re.search(r"AC_INIT\(\[graphhooks\], \[(.*)\]\)", configure)
    assert init[1] == ours
    assert api.version == ours
