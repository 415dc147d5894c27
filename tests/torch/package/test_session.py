"""Models and sessions: what is planned, and what is refused how.

SPDX-License-Identifier: Apache-2.0
"""

from __future__ import annotations

import gc

import pytest
from graphhooks import Error, Model, Session, _abi
from graphhooks.options import OPTIONS
from graphhooks.services import host_services

OFF = {"GRAPHHOOKS_ENABLE": "0"}  # opens without a driver


@pytest.fixture
def model(api):
    with Model() as model:
        yield model.add_layer().add_layer()


def refused(name, *arguments, **options):
    with pytest.raises(Error) as caught:
        Session(*arguments, **options)
    assert caught.value.name == name
    return str(caught.value)


# ---- the model -------------------------------------------------------------


def test_a_layer_has_all_that_C_can_say_of_it(api):
    with Model() as model:
        model.add_layer(
            "moe", name="first", family="gpt", experts=8,
            features="capacity, pad", recompute=["mlp_norm"],
            dispatcher="flex", backend="hybridep",
        )  # fmt: skip
        model.describe(whole=True, ep_size=4, cp_size=2)
        model.add_layer("dense", chunk=1)
        with Session(model, environment=OFF) as session:
            plan = session.plan()
            assert [s["layer"] for s in plan["segments"]][0] == "first"
            assert [f["family"] for f in plan["families"]] == ["gpt"]
            assert [s.chunk for s in session.segments()] == [0, 1]
            assert [s.chunk for s in session.segments(1)] == [1]


@pytest.mark.parametrize(
    "scope, granularity, expected",
    [
        ("", "layer", [("attn", "mlp", 1)] * 2),
        ("", "chunk", [("attn", "mlp", 1)]),
        ("", "part", [("attn", "attn", 1), ("mlp", "mlp", 1)] * 2),
        ("attn", "layer", [("attn", "attn", 1), ("mlp", "mlp", 0)] * 2),
    ],
)
def test_a_plain_stack_is_cut_as_asked(api, scope, granularity, expected):
    with Model() as model:
        model.add_layer(family="stack").add_layer(family="stack")
        with Session(
            model, scope=scope, granularity=granularity, environment=OFF
        ) as session:
            assert [
                (s["first_part"], s["last_part"], s["mode"] == "graphed")
                for s in session.plan()["segments"]
            ] == expected
            assert session.plan()["families"][0]["family"] == "stack"


def test_a_plain_stack_is_not_recomputed_by_the_plan(api):
    with Model() as model:
        model.add_layer(family="stack", recompute="layer")
        text = refused("GH_ERR_UNSUPPORTED", model, environment=OFF)
    assert "layer 0: family stack (" in text
    assert "not by the plan: leave it out" in text


@pytest.mark.parametrize(
    "fields, text",
    [
        ({"kind": "dens"}, "kind is 'dens'; it is one of dense, moe"),
        ({"features": "padd"}, "features is 'padd'; it is one of capacity"),
        ({"kind": "moe"}, "experts"),
        ({"chunk": -1}, "chunk is -1; it is a number from 0 to 4294967295"),
        ({"chunk": 1 << 32}, "chunk is 4294967296; it is a number"),
        ({"chunk": "1"}, "chunk is '1'; it is a whole number"),
        ({"chunk": 3}, "chunk"),
        ({"name": "a\0b"}, "name has a zero byte"),
        ({"name": 3}, "name is 3; it is a text"),
        ({"kind": ["moe"]}, "kind is ['moe']; it is one of dense, moe"),
        ({"features": 3}, "features is 3; it is a list of capacity, pad"),
        ({"features": [["pad"]]}, "features is ['pad']; it is one of"),
        ({"famly": "gpt"},
         "famly is no option of add_layer; did you mean family?"),
        ({"xyz": 1},
         "xyz is no option of add_layer; there are kind, name, chunk, fam"),
    ],
)
def test_a_layer_that_breaks_a_rule_is_refused(api, fields, text):
    with Model() as model:
        with pytest.raises(Error) as caught:
            model.add_layer(**fields)
        assert text in str(caught.value)
        # The model is as it was.
        model.add_layer()
        with Session(model, environment=OFF) as session:
            assert len(session.segments()) == 1


def test_a_closed_model_is_refused(api):
    model = Model().add_layer()
    model.close()
    model.close()
    with pytest.raises(Error, match="this model is closed"):
        model.add_layer()
    assert "this model is closed" in refused("GH_ERR_STATE", model)


# ---- the plan --------------------------------------------------------------


@pytest.mark.parametrize(
    "granularity, n", [("part", 4), ("layer", 2), ("chunk", 1)]
)
def test_granularity_says_how_far_segments_reach(model, granularity, n):
    with Session(model, environment=OFF, granularity=granularity) as session:
        segments = session.segments()
        assert len(segments) == n
        assert all(s.graphed and s.reason for s in segments)
        ends = (segments[0].first_part, segments[-1].last_part)
        assert ends == ("attn", "mlp")
        assert session.plan()["granularity"] == granularity
        assert f"granularity {granularity}" in session.explain()


def test_the_scope_says_which_segments_are_graphed(model):
    for scope in ("attn", ["attn"]):
        with Session(model, environment=OFF, scope=scope) as session:
            graphed = [s.graphed for s in session.segments()]
            assert graphed == [True, False, True, False]


# ---- options ---------------------------------------------------------------

BAD = [
    ("scope", "moo", 'scope: "moo" is none of attn'),
    ("granularity", "laier", 'granularity is "laier"'),
    ("max_slots", 65, 'max_slots is "65"'),
    ("max_slots", 0, 'max_slots is "0"'),
    ("max_slots", 1 << 33, 'max_slots is "8589934592"'),
    ("max_slots", "many", 'max_slots is "many"'),
    ("warmup_steps", -1, 'warmup_steps is "-1"'),
    ("warmup_steps", 2000000, 'warmup_steps is "2000000"'),
    ("enable", "maybe", 'enable is "maybe"'),
    ("driver", "cudda", 'driver is "cudda"'),
    ("log", "loud", 'log is "loud"'),
    ("check", True, 'check is "1"; set it to off or bitwise'),
    ("check_every", 0, 'check_every is "0"'),
    ("freeze", "x", 'freeze is "x"'),
    ("trace", "/no/such/dir/t.json", "trace: cannot write /no/such/dir/"),
    ("plugin_path", ["/a", ""], 'plugin_path is "/a:"'),
]


@pytest.mark.parametrize(
    "option, value, text", BAD, ids=[f"{o}={v}" for o, v, _ in BAD]
)
def test_a_bad_option_is_refused_by_its_name(model, option, value, text):
    # An empty variable is as one that is not set.
    environment = {"GRAPHHOOKS_" + option.upper(): ""}
    if option == "trace":
        environment["GRAPHHOOKS_DRIVER"] = "soft"
    options = {option: value}
    said = refused("GH_ERR_CONFIG", model, environment=environment, **options)
    assert said.startswith(text)


def test_an_option_that_there_is_not_is_refused_with_the_nearest(model):
    for option, near in (("max_slot", "max_slots"), ("devise", "device")):
        text = refused("GH_ERR_INVALID", model, **{option: 3})
        assert text == (
            f"{option} is no option of a session; did you mean {near}?"
        )


def test_an_option_that_is_like_none_is_refused_with_those_there_are(model):
    text = refused("GH_ERR_INVALID", model, xyz=3)
    assert text.startswith("xyz is no option of a session; there are enable")
    assert all(option in text for option in OPTIONS)


@pytest.mark.parametrize(
    "fields, text",
    [
        ({"device": "0"}, "device is '0'; it is a whole number"),
        ({"device": 1 << 32}, "device is 4294967296; it is a number from 0"),
        ({"context": "x"}, "context is 'x'; it is a whole number"),
        ({"services": {}}, "services is {}; it is what graphhooks.services."),
        ({"environment": "A=1"}, "environment is 'A=1'; it is a dict"),
        ({"scope": "a\0"}, "scope has a zero byte"),
        ({"scope": "\ud800"}, "scope is '\\ud800'; half a character"),
    ],
)
def test_what_a_session_cannot_be_opened_with_is_named(model, fields, text):
    assert refused("GH_ERR_INVALID", model, **fields).startswith(text)


def test_what_is_no_model_is_refused(api):
    text = refused("GH_ERR_INVALID", "m")
    assert text == "model is 'm'; it is a graphhooks.Model"


def test_a_model_without_layers_is_refused_in_the_words_of_python(api):
    with Model() as model:
        text = refused("GH_ERR_INVALID", model, environment=OFF)
    assert text == "model has no layers: add them with add_layer"


def test_segments_of_what_is_no_chunk_are_refused(model):
    with Session(model, environment=OFF) as session:
        with pytest.raises(Error, match="chunk is 'x'; it is a whole number"):
            session.segments("x")


def test_a_variable_wins_over_an_option(model):
    for option, value, other in (
        ("granularity", "chunk", "part"),
        ("max_slots", "400", 3),
        ("log", "loud", "warn"),
    ):
        environment = {**OFF, "GRAPHHOOKS_" + option.upper(): value}
        options = {option: other}
        if option == "granularity":
            with Session(model, environment=environment, **options) as session:
                assert len(session.segments()) == 1
        else:
            text = refused("GH_ERR_CONFIG", model, environment=environment,
                           **options)  # fmt: skip
            assert f'GRAPHHOOKS_{option.upper()} is "{value}"' in text


def test_the_process_environment_is_read_when_none_is_given(model, monkeypatch):
    monkeypatch.setenv("GRAPHHOOKS_ENABLE", "0")
    monkeypatch.setenv("GRAPHHOOKS_GRANULARITY", "chunk")
    with Session(model) as session:
        assert len(session.segments()) == 1


def test_enable_false_opens_without_a_driver(model):
    options = {"enable": False, "driver": "/no/such.so"}
    with Session(model, environment={}, **options) as session:
        assert session.stats()["recordings"] == 0


def test_a_driver_that_is_missing_is_a_sentence(model):
    text = refused("GH_ERR_NO_DRIVER", model, environment={},
                   driver="/no/such.so")  # fmt: skip
    assert "/no/such.so" in text and "GRAPHHOOKS_ENABLE=0" in text


def test_a_model_without_layers_is_refused(api):
    with Model() as model:
        assert "no layers" in refused("GH_ERR_INVALID", model, environment=OFF)


# ---- the life of a session -------------------------------------------------


def test_a_closed_session_is_refused_and_closing_twice_is_not(model):
    session = Session(model, environment=OFF)
    session.close()
    session.close()
    for call in (session.stats, session.segments, session.explain):
        with pytest.raises(Error, match="this session is closed"):
            call()


def test_a_session_outlives_its_model(api):
    model = Model().add_layer()
    session = Session(model, environment=OFF)
    model.close()
    assert len(session.segments()) == 1
    session.close()


def test_a_session_that_is_dropped_closes_itself(soft):
    model = Model().add_layer()
    Session(model, driver=soft.path, environment={})
    gc.collect()  # the fixture sees whether anything is left


def test_two_sessions_live_side_by_side(model):
    with Session(model, environment=OFF, granularity="part") as one:
        with Session(model, environment=OFF, granularity="chunk") as two:
            assert (len(one.segments()), len(two.segments())) == (4, 1)


def test_statistics_name_every_reason(model):
    with Session(model, environment=OFF) as session:
        stats = session.stats()
    assert stats["iterations"] == 0
    reasons = {
        name[len("GH_REASON_") :].lower().replace("_", "-")
        for name in vars(_abi)
        if name.startswith("GH_REASON_")
    } - {"none", "count"}
    spelled = {name.replace("_", "-") for name in stats["eager_by_reason"]}
    assert spelled == {r.replace("_", "-") for r in reasons}


def test_groups_of_the_hosts_own_have_names(model, soft):
    options = {"driver": soft.path, "environment": {}}
    with Session(model, offload="b", offload_names=("a", "b"),
                 **options) as session:
        stats = session.offload_stats()
        assert stats["groups"] == stats["out_bytes"] == 0
    assert "none of" in refused("GH_ERR_CONFIG", model, offload="b",
                                offload_names=("a",), **options)
    assert "offload_names" in refused("GH_ERR_INVALID", model, offload="a",
                                      offload_names=("a,b",), **options)
    assert "more than 64 bits" in refused(
        "GH_ERR_INVALID", model, offload="core_attn", pipeline_rank=19,
        offload_keep_bytes=10**18 - 1, **options)
    with Session(model, **options) as session:
        with pytest.raises(Error, match="offloads nothing"):
            session.offload_stats()


def test_a_session_is_suspended_and_resumed(model, soft):
    options = {"driver": soft.path, "environment": {}}
    with Session(model, suspends=True, **options) as session:
        assert session.memory_stats()["suspended"] == 0
        with pytest.raises(Error, match="is not suspended"):
            session.resume()
        session.suspend()
        stats = session.memory_stats()
        assert stats["suspended"] == stats["suspends"] == 1
        assert stats["device_bytes"] == stats["pinned_bytes"] == 0
        err = _abi.gh_error()
        assert session.api.iteration_end(session.handle, err) \
            == _abi.GH_ERR_STATE
        assert b"gh_session_resume" in err.text
        session.resume()
        assert session.api.iteration_end(session.handle, err) == _abi.GH_OK
        session.suspend()  # and closed so
    with Session(model, **options) as session:
        with pytest.raises(Error, match="open it with suspends=True") as caught:
            session.suspend()
        assert caught.value.name == "GH_ERR_UNSUPPORTED"


def test_log_lines_come_to_the_services(model):
    lines = []
    lent = host_services(log=lambda level, line: lines.append((level, line)))
    environment = {**OFF, "GRAPHHOOKS_MAX_SLOT": "3"}
    with Session(model, environment=environment, services=lent):
        pass
    assert len(lines) == 1
    level, line = lines[0]
    assert level == _abi.GH_LOG_WARN
    assert "did you mean GRAPHHOOKS_MAX_SLOTS?" in line


def test_log_lines_are_in_the_words_of_python(model, capsys):
    """Where the services have no log, and where they have one."""
    lines = []
    alone = host_services(retain=print, release=print)
    lent = host_services(log=lambda _level, line: lines.append(line))
    environment = {**OFF, "GRAPHHOOKS_XYZ": "1"}
    for given in (None, alone, lent):
        with Session(model, environment=environment, services=given):
            pass
    said = (
        "GRAPHHOOKS_XYZ is not a variable of this release; "
        "`python -m graphhooks env` lists them"
    )
    assert lines == [said]
    assert capsys.readouterr().err == f"graphhooks: warning: {said}\n" * 2
    assert not alone.log


def test_a_log_line_about_an_option_names_the_option(api, capsys):
    with Model() as model:
        model.add_layer(family="stack")
        for environment in (OFF, {**OFF, "GRAPHHOOKS_PLUGIN_PATH": "/no/x"}):
            options = {"environment": environment, "plugin_path": "/no/y"}
            Session(model, **options).close()
    assert capsys.readouterr().err.splitlines() == [
        "graphhooks: warning: plugin_path: /no/y is not a directory",
        "graphhooks: warning: GRAPHHOOKS_PLUGIN_PATH: /no/x is not a "
        "directory",
    ]


# ---- services --------------------------------------------------------------


def failing_service(failure, **more):
    def retain(_):
        raise failure

    return host_services(retain=retain, **more).retain(None, 5)


def test_a_service_that_fails_is_logged_and_told_to_C(caplog):
    assert failing_service(ValueError("no"), lost=[]) == _abi.GH_ERR_STATE
    assert "has failed" in caplog.text and "ValueError: no" in caplog.text


def test_an_interrupt_in_a_service_is_left_to_the_caller(caplog):
    lost: list = []
    interrupt = KeyboardInterrupt()
    assert failing_service(interrupt, lost=lost) == _abi.GH_ERR_STATE
    assert lost == [interrupt] and caplog.text == ""


def test_an_interrupt_that_nobody_takes_is_logged(caplog):
    assert failing_service(KeyboardInterrupt()) == _abi.GH_ERR_STATE
    assert "KeyboardInterrupt" in caplog.text
