"""What others build on: the extension points and the values that cross them. A change here is a change for users."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import ralphproof

# What extensions implement and are given: the members of each public protocol, the fields of each public value.
PROTOCOLS = {
    "Agent": {"argv", "name", "reports_cost", "take_turn"},
    "Check": {"name", "run"},
    "Observer": {"on_events", "on_record", "tick"},
}
VALUES = {
    "Inspection": ("iteration", "turn", "message", "snapshot", "change", "round", "claim", "start", "max_micro_usd"),
}


ALL = {
    "run", "supervise", "Loop", "Options", "Outcome", "Completed", "Aborted", "Failed", "Agent", "AgentFunction",
    "AgentContext", "AgentReply", "RootFunction", "Check", "CheckFunction", "Inspection", "Finding", "Limit", "State",
    "Breach", "Observer", "ObserverFunction", "Record", "RunBegan", "TurnBegan", "TurnEnded", "CheckEnded", "Judged",
    "Warned", "Noticed", "RunEnded", "RalphError", "Refused", "SettingsWrong", "AgentUnusable", "Busy", "NotThere",
    "TaskWrong", "HarnessFailed", "RalphWarning",
}  # fmt: skip

USES = f"""
from ralphproof import {", ".join(sorted(ALL))}
from ralphproof import Nonsense

def agent(prompt: str, context: AgentContext) -> AgentReply:
    context.say(str(context.iteration + len(context.env)))
    return AgentReply(prompt, cost_usd=0.5)

async def later(prompt: str) -> str:
    return prompt

def check(inspection: Inspection) -> tuple[bool, str]:
    return bool(inspection.change.paths), inspection.message

def limit(state: State) -> str | None:
    return None if state.iteration < 3 else "late"

def observer(record: Record) -> None:
    match record:
        case TurnEnded(iteration, _, reply):
            print(iteration, reply.error)
        case RunEnded(outcome):
            print(outcome.reason)

def run_root(context: AgentContext, attempt: int) -> int:
    return 0 if context.cancelled() else attempt

functions: tuple[AgentFunction, CheckFunction, Limit, ObserverFunction, RootFunction]
functions = (agent, check, limit, observer, run_root)
outcome: Outcome = run("Work.", agent=agent, checks=[check, "true"], limits=limit, observers=[observer])
print(outcome.run, outcome.reason, outcome.error, outcome.iterations, outcome.cost_usd, outcome.exit_code)
outcome = Loop("Work.", agent=later).run()
outcome = supervise(run_root, "/tmp", checks="true")
supervise(lambda attempt: None)
if isinstance(outcome, Aborted):
    print(outcome.details["message"], outcome.last_output)
run("Work.", max_iterations="3")
"""


@pytest.mark.parametrize("name", sorted(PROTOCOLS))
def test_a_protocol_asks_for_just_these_members(name: str) -> None:
    protocol = getattr(ralphproof, name)
    members = {member for member in (*vars(protocol), *protocol.__annotations__) if not member.startswith("_")}
    assert members == PROTOCOLS[name]


@pytest.mark.parametrize("name", sorted(VALUES))
def test_a_value_has_just_these_fields_in_this_order(name: str) -> None:
    assert getattr(ralphproof, name).__match_args__ == VALUES[name]


def test_the_package_itself_offers_its_version_and_imports_nothing() -> None:
    tree = ast.parse(Path(ralphproof.__file__).read_text())
    imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    assert imports == []
    assert ralphproof.__version__.count(".") == 2


def test_the_package_offers_just_these_names_and_each_of_them_is_there() -> None:
    assert set(ralphproof.__all__) == ALL
    assert set(dir(ralphproof)) >= ALL
    assert all(getattr(ralphproof, name) is not None for name in ralphproof.__all__)
    with pytest.raises(ImportError, match="cannot import name 'Nonsense'"):
        from ralphproof import Nonsense  # type: ignore[attr-defined] # noqa: F401


def test_a_type_checker_knows_every_public_name_and_no_other(tmp_path: Path) -> None:
    (tmp_path / "uses.py").write_text(USES)
    own = str(Path(ralphproof.__file__).parents[1])
    told = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--hide-error-context", "uses.py"],
        cwd=tmp_path, env={**os.environ, "MYPYPATH": own, "MYPY_CACHE_DIR": str(Path(own).parent / ".mypy_cache")},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    wrong = [line.rsplit("  [", 1)[-1].rstrip("]") for line in told.stdout.splitlines() if ": error: " in line]
    assert (wrong, told.stderr) == (["attr-defined", "arg-type"], ""), told.stdout
