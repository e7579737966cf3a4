"""What others build on: the extension points and the values that cross them. A change here is a change for users."""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path

import pytest

import ralphproof

PROTOCOLS = {
    "agent:Agent": {"argv", "name", "reports_cost", "take_turn"},
    "agent:TurnWatch": {"events", "tick"},
    "check:Check": {"ask", "name"},
    "ledger:Folder": {"base", "ending", "outcome", "prompt", "prompted", "publish", "run", "shown", "turn_file"},
    "ledger:Ledger": {"append", "records", "wish", "words"},
    "ledger:Observer": {"heard", "saw", "tick"},
    "plan:PlanSource": {"read"},
    "sandbox:Sandbox": {"name", "run", "strength"},
    "sandbox:Watch": {"output", "tick"},
    "workspace:Scm": {"keep"},
    "workspace:Workspace": {
        "begin", "change", "close", "content", "diff", "kind", "later", "log", "mark", "restore", "root", "save",
        "saved", "stirred",
    },
    "workspace:Tripwires": {"arm", "discard", "sprung"},
    "purse:Purse": {"book", "day"},
    "world:Clock": {"epoch", "monotonic", "paused", "rest", "urgency", "wish"},
}  # fmt: skip
VALUES = {
    "agent:Brief": (
        "prompt", "prompt_file", "cwd", "env", "base", "turn_file", "mark", "timeout_s", "idle_s", "stream",
        "session", "billed", "taken_up", "schema", "most_micro_usd", "hooks", "may_run",
    ),
    "agent:Turn": (
        "exit", "text", "error", "usage", "micro_usd", "limited", "session", "model", "tools", "blame", "at_least",
        "notional", "errors", "denied", "asked", "version", "unparsed", "taken", "window",
    ),
    "check:Inspection": (
        "iteration", "turn", "said", "snapshot", "change", "round", "claim", "began", "left_micro_usd",
    ),
    "plan:Plan": ("tasks", "stuck", "why", "concerns"),
    "workspace:Snapshot": ("id", "tree", "ref", "head", "left_out", "problem"),
}  # fmt: skip


def found(name: str) -> type:
    module, _, member = name.partition(":")
    made = getattr(import_module(f"ralphproof.{module}"), member)
    assert isinstance(made, type)
    return made


@pytest.mark.parametrize("name", sorted(PROTOCOLS))
def test_a_protocol_asks_for_just_these_members(name: str) -> None:
    protocol = found(name)
    members = {member for member in (*vars(protocol), *protocol.__annotations__) if not member.startswith("_")}
    assert members == PROTOCOLS[name]


@pytest.mark.parametrize("name", sorted(VALUES))
def test_a_value_has_just_these_fields_in_this_order(name: str) -> None:
    assert found(name).__match_args__ == VALUES[name]  # type: ignore[attr-defined]


def test_the_package_itself_offers_its_version_and_imports_nothing() -> None:
    tree = ast.parse(Path(ralphproof.__file__).read_text())
    imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    assert imports == []
    assert ralphproof.__version__.count(".") == 2


def test_the_package_offers_just_these_names_and_each_of_them_is_there() -> None:
    assert set(ralphproof.__all__) == {
        "Aborted", "Breach", "Completed", "Failed", "Finding", "Inspection", "Loop", "Options", "Outcome", "RalphError",
        "AgentReply", "Refused", "RootContext", "run", "supervise",
    }  # fmt: skip
    assert all(getattr(ralphproof, name) is not None for name in ralphproof.__all__)
    with pytest.raises(AttributeError, match="no attribute 'walk'"):
        ralphproof.walk  # noqa: B018
