"""A value is its fields: equal, hashable, immutable, and the same after a journey through JSON."""

from __future__ import annotations

import functools
import importlib
import json
import pickle
import types
import typing
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ralphproof.base import value as value_module
from ralphproof.base.value import COMPILE_AFTER, assert_never, pack, replace, unpack, value
from ralphproof.engine.check import CheckReport, Finding
from ralphproof.engine.claim import Claim
from ralphproof.engine.records import RunBegan
from ralphproof.engine.sandbox import Exit
from ralphproof.engine.workspace import Change, Snapshot

GROUND = (
    "agent",
    "check",
    "claim",
    "environment",
    "limits",
    "next_action",
    "outcome",
    "plan",
    "prompt",
    "records",
    "sandbox",
    "state",
    "workspace",
)
MODULES = {f"ralphproof.engine.{name}": importlib.import_module(f"ralphproof.engine.{name}") for name in GROUND}
# Rebuilt from records and settings, never packed:
NOT_WRITTEN = {
    *("State", "RunInfo", "Trees", "Baseline", "AgentState", "UserState", "Escalation", "ScmState", "HookProgress"),
    *("LoopEnvironment", "AgentAccess", "PlanAccess", "CheckAccess", "WorkAccess", "SpendAccess"),
    *("RunRules", "AgentRules", "CheckRules", "PromptRules", "ChildRules"),
}


def kinds() -> list[type]:
    made = value_module._KINDS.values()
    return sorted(
        (kind for kind in made if kind.__module__ in MODULES and kind.__name__ not in NOT_WRITTEN),
        key=lambda kind: kind.__name__,
    )


SCALARS = st.none() | st.booleans() | st.integers() | st.text(max_size=8)
JSON = st.dictionaries(st.text(max_size=4).filter(lambda name: name != "is"), SCALARS, max_size=3)
PLAIN: dict[Any, st.SearchStrategy[Any]] = {
    str: st.text(max_size=8),
    int: st.integers(),
    float: st.floats(allow_nan=False, allow_infinity=False),
    bool: st.booleans(),
    type(None): st.none(),
}


@functools.cache
def any_of(kind: Any) -> st.SearchStrategy[Any]:
    """Whatever may stand in a field of this type."""
    if kind in PLAIN:
        return PLAIN[kind]
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        return st.one_of(*map(any_of, args))
    if origin is tuple and args[1:] == (...,):
        return st.lists(any_of(args[0]), max_size=2).map(tuple)
    if origin is tuple:
        return st.tuples(*map(any_of, args))
    if origin is dict:
        return JSON
    names = vars(MODULES[kind.__module__]) | {"Json": object}
    hints = typing.get_type_hints(kind, names)
    # Some kinds hold others of their kind: what stands in them is looked for when it is wanted.
    return st.deferred(lambda: st.builds(kind, **{name: any_of(hints[name]) for name in kind.__slots__}))


@pytest.mark.parametrize("kind", kinds(), ids=lambda kind: kind.__name__)
@given(data=st.data())
@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
def test_every_value_comes_back_from_json_and_from_pickle_as_it_went(kind: type, data: st.DataObject) -> None:
    thing = data.draw(any_of(kind))
    assert unpack(json.loads(json.dumps(pack(thing)))) == thing
    assert pickle.loads(pickle.dumps(thing)) == thing


def test_the_round_trip_covers_the_records_and_what_they_hold() -> None:
    names = {kind.__name__ for kind in kinds()}
    assert {"RunBegan", "Judged", "TurnEnded", "Iteration", "History", "Aborted", "Checking", "Task"} <= names
    assert len(names) > 60


def test_paths_that_are_no_unicode_survive_json() -> None:
    change = Change(("caf\udce9.txt", "\udcff\udcfe"))
    assert unpack(json.loads(json.dumps(pack(change)))) == change


def test_defaults_are_left_out_of_json() -> None:
    assert pack(Exit(0)) == {"is": "Exit", "code": 0}
    assert pack(CheckReport((Finding("tests", True),))) == {
        "is": "CheckReport",
        "findings": [{"is": "Finding", "check": "tests", "passed": True}],
    }


def test_a_false_field_whose_default_is_true_is_kept() -> None:
    assert pack(Change(known=False)) == {"is": "Change", "known": False}


def test_fields_of_a_later_version_are_dropped() -> None:
    assert unpack({"is": "Claim", "word": "DONE", "mood": "sure"}) == Claim("DONE")


def test_fields_that_an_earlier_version_did_not_have_get_their_default() -> None:
    assert unpack({"is": "Exit", "code": 3}) == Exit(3)


def test_a_kind_of_a_later_version_stays_readable_as_a_dict() -> None:
    assert unpack({"is": "Telepathy", "thought": [1, 2]}) == {"is": "Telepathy", "thought": (1, 2)}


def test_lists_come_back_as_tuples() -> None:
    began = RunBegan("r", Snapshot(None, None), {"flags": ["-p", ["x"]]})
    assert unpack(pack(began)).facts == {"flags": ("-p", ("x",))}


def test_a_value_cannot_be_changed() -> None:
    claim = Claim("DONE")
    with pytest.raises(AttributeError, match=r"Claim\.word cannot be changed"):
        claim.word = "OTHER"  # type: ignore[misc]
    with pytest.raises(AttributeError, match=r"Claim\.word cannot be changed"):
        del claim.word
    with pytest.raises(AttributeError):
        claim.mood = "sure"  # type: ignore[attr-defined]
    assert claim == Claim("DONE")


def test_replace_changes_only_what_is_named_and_leaves_the_old_value_alone() -> None:
    old = Exit(1, "timeout", seconds=3.0)
    new = replace(old, code=2)
    assert (new.code, new.why, new.seconds) == (2, "timeout", 3.0)
    assert old.code == 1
    with pytest.raises(TypeError, match="colour"):
        replace(old, colour="red")


def test_values_of_different_kinds_are_never_equal() -> None:
    one = MODULES["ralphproof.engine.agent"].AgentFault("x")
    other = MODULES["ralphproof.engine.agent"].ConfigFault("x")
    assert one != other
    assert len({one, other, MODULES["ralphproof.engine.agent"].AgentFault("x")}) == 2


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((), {}, "Rare needs word"),
        (("a", False, "more"), {}, "Rare takes 2 fields, 3 given"),
        (("a",), {"word": "b"}, "Rare got word twice"),
        (("a",), {"mood": "b"}, "Rare has no field mood"),
    ],
)
def test_wrong_fields_are_named(args: tuple[Any, ...], kwargs: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        Rare(*args, **kwargs)


@value
class Rare:
    word: str
    waiting: bool = False


@value
class Frequent:
    word: str
    waiting: bool = False
    rest: tuple[str, ...] = ()


def test_a_class_of_which_many_are_made_is_made_faster_and_stays_the_same() -> None:
    before = [Frequent("a"), Frequent("a", True), Frequent(word="a", rest=("b",))]
    for _ in range(COMPILE_AFTER):
        Frequent("x")
    assert [Frequent("a"), Frequent("a", True), Frequent(word="a", rest=("b",))] == before
    assert replace(before[0], rest=("b",)) == before[2]
    for args, kwargs in (((), {}), (("a", 1, 2, 3), {}), (("a",), {"word": "b"}), (("a",), {"mood": "b"})):
        with pytest.raises(TypeError):
            Frequent(*args, **kwargs)  # type: ignore[arg-type]


def test_a_repr_shows_every_field() -> None:
    assert repr(Claim("DONE")) == "Claim(word='DONE', waiting=False, source='tag', stamp='')"


def test_two_kinds_of_one_name_are_refused() -> None:
    with pytest.raises(TypeError, match="two value classes are named Claim"):

        @value
        class Claim:
            word: str


def test_a_match_that_forgot_a_case_is_a_failure_that_names_it() -> None:
    with pytest.raises(AssertionError, match="unexpected 'x'"):
        assert_never("x")  # type: ignore[arg-type]
