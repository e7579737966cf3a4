"""Return values, exceptions and names of functions; none completes a run by mistake."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest

import ralphproof
from ralphproof.agents.function import AgentReply
from ralphproof.base.errors import Refused
from ralphproof.engine.check import Finding, Inspection
from ralphproof.engine.outcome import Aborted, Completed, Failed
from ralphproof.engine.records import CheckEnded, Record, RunBegan, TurnEnded
from ralphproof.engine.sandbox import CommandWatcher


def claims(prompt: str) -> str:
    return "<promise>DONE</promise>"


def yes(inspection: Inspection) -> bool:
    return True


class Answer:
    """A check that can be called."""

    def __init__(self, passed: bool) -> None:
        self._passed = passed

    def __call__(self, inspection: Inspection) -> bool:
        return self._passed


class CustomCheck:
    """A check with a name of its own."""

    def __init__(self, name: str, passed: bool = True) -> None:
        self.name, self._passed = name, passed

    def run(self, inspection: Inspection, watch: CommandWatcher) -> Finding:
        return Finding(self.name, self._passed)


def called(name: str, passed: bool) -> Callable[[Inspection], bool]:
    def check(inspection: Inspection) -> bool:
        return passed

    check.__name__ = name
    return check


def asked(seen: list[Record]) -> list[tuple[str, bool]]:
    """The checks of the last iteration, by name, and whether they passed."""
    found = {one.finding.check: one.finding.passed for one in seen if isinstance(one, CheckEnded)}
    return list(found.items())


@pytest.mark.parametrize(
    ("checks", "told"),
    [
        ([lambda i: False, lambda i: True], [("<lambda>", False), ("<lambda> (2)", True)]),
        ([Answer(False), Answer(True)], [("Answer", False), ("Answer (2)", True)]),
        (["false", called("false", True)], [("false", False), ("false (2)", True)]),
        ([called("a", True), called("a (2)", False), called("a", True)],
         [("a", True), ("a (2)", False), ("a (3)", True)]),
        ([called("mine", True), CustomCheck("mine", False)], [("mine (2)", True), ("mine", False)]),
    ],
)  # fmt: skip
def test_checks_with_the_same_name_all_run(
    project: Path, checks: list[Callable[[Inspection], object]], told: list[tuple[str, bool]]
) -> None:
    seen: list[Record] = []
    outcome = ralphproof.run(
        "Work.", agent=claims, checks=checks, observers=seen.append, project_dir=project, max_iterations=1
    )
    assert isinstance(outcome, Aborted)
    assert asked(seen) == told


@pytest.mark.parametrize("checks", [[CustomCheck("true"), "true"], [CustomCheck("mine"), CustomCheck("mine")]])
def test_a_check_object_with_a_duplicate_name_is_refused(project: Path, checks: list[CustomCheck | str]) -> None:
    name = checks[0].name if isinstance(checks[0], CustomCheck) else ""
    with pytest.raises(Refused, match=f"two checks are called '{name}'"):
        ralphproof.Loop("Work.", agent=claims, checks=checks, project_dir=project)


@pytest.mark.parametrize(
    "named", [{"ladder": ["small", "large"]}, {"rotate": ["one", "two"]}, {"fallbacks": ["cat"], "model": "large"}]
)
def test_models_of_the_settings_do_not_apply_to_a_function_agent(project: Path, named: dict[str, object]) -> None:
    (project / ".ralph").mkdir()
    (project / ".ralph" / "settings.json").write_text(json.dumps({"agent": {"command": "claude", **named}}))
    seen: list[Record] = []
    outcome = ralphproof.run(
        "Work.", agent=claims, checks=Answer(False), observers=seen.append, project_dir=project, max_iterations=3
    )
    assert (outcome.status, outcome.iterations) == ("ABORTED", 3)
    facts = next(one for one in seen if isinstance(one, RunBegan)).facts
    assert [facts[name] for name in ("agent", "model", "ladder", "rotate", "fallbacks")] == ["claims", "", [], [], []]


def test_other_agent_settings_apply_to_a_function(project: Path) -> None:
    replies = iter(["", "<promise>DONE</promise>"])
    outcome = ralphproof.run(
        "Work.", agent=lambda prompt: next(replies), project_dir=project, settings={"agent": {"retries": 0}}
    )
    assert isinstance(outcome, Aborted)
    assert outcome.reason == "EMPTY_REPLIES"


def test_sys_exit_in_a_function_ends_only_its_turn(project: Path) -> None:
    seen: list[Record] = []

    def agent(prompt: str) -> str:
        raise SystemExit("enough")

    def check(inspection: Inspection) -> bool:
        raise SystemExit(0)

    def observer(record: Record) -> None:
        seen.append(record)
        raise SystemExit(0)

    outcome = ralphproof.run(
        "Work.", agent=agent, checks=check, observers=observer, project_dir=project, max_iterations=1
    )
    assert isinstance(outcome, Aborted)
    assert outcome.reason == "MAX_ITERATIONS"
    assert next(one for one in seen if isinstance(one, TurnEnded)).reply.error == "SystemExit: enough"
    assert all(one.finding.errored for one in seen if isinstance(one, CheckEnded))


@pytest.mark.parametrize(
    ("reply", "text", "error"),
    [
        (AgentReply(42), "42", None),  # type: ignore[arg-type]
        (AgentReply(None, error=ValueError("no")), "", "no"),  # type: ignore[arg-type]
        (AgentReply("x", error=7), "x", "7"),  # type: ignore[arg-type]
    ],
)
def test_reply_fields_are_converted_to_text(project: Path, reply: AgentReply, text: str, error: str | None) -> None:
    seen: list[Record] = []
    ralphproof.run("Work.", agent=lambda prompt: reply, observers=seen.append, project_dir=project, max_iterations=1)
    turn = next(one for one in seen if isinstance(one, TurnEnded)).reply
    assert (turn.text, turn.error) == (text, error)


@pytest.mark.parametrize("said", [False, True, 0, "", " ", ["late"]])
def test_a_limit_function_with_another_result_fails_the_run(project: Path, said: object) -> None:
    def odd(state: object) -> object:
        return said

    outcome = ralphproof.run("Work.", agent=claims, limits=odd, project_dir=project)  # type: ignore[arg-type]
    assert isinstance(outcome, Failed)
    assert outcome.error == f"the limit odd must return None or a sentence, not {said!r}"
    assert outcome.cost_usd == 0
    assert outcome.duration_seconds >= 0


def test_sys_exit_in_a_limit_function_fails_the_run(project: Path) -> None:
    def leave(state: object) -> None:
        raise SystemExit(1)

    outcome = ralphproof.run("Work.", agent=claims, limits=leave, project_dir=project)
    assert isinstance(outcome, Failed)
    assert outcome.error == "the limit leave cannot be asked: SystemExit: 1"


@pytest.mark.parametrize("inside", [False, True])
def test_coroutine_functions_are_awaited_inside_and_outside_an_event_loop(project: Path, inside: bool) -> None:
    seen: list[Record] = []

    async def agent(prompt: str) -> str:
        await asyncio.sleep(0)
        return claims(prompt)

    async def check(inspection: Inspection) -> tuple[bool, str]:
        await asyncio.sleep(0)
        return inspection.iteration > 1, "not yet"

    async def observer(record: Record) -> None:
        seen.append(record)

    def run() -> ralphproof.Outcome:
        return ralphproof.run(
            "Work.", agent=agent, checks=check, observers=observer, project_dir=project, max_iterations=3
        )

    async def cell() -> ralphproof.Outcome:
        return run()

    outcome = asyncio.run(cell()) if inside else run()
    assert isinstance(outcome, Completed)
    assert (outcome.iterations, outcome.verified) == (2, True)
    assert asked(seen) == [("check", True)]


def test_exceptions_of_coroutines_are_the_turns_error(project: Path) -> None:
    seen: list[Record] = []

    async def agent(prompt: str) -> str:
        raise SystemExit("enough")

    async def cell() -> ralphproof.Outcome:
        return ralphproof.run("Work.", agent=agent, observers=seen.append, project_dir=project, max_iterations=1)

    assert isinstance(asyncio.run(cell()), Aborted)
    assert next(one for one in seen if isinstance(one, TurnEnded)).reply.error == "SystemExit: enough"
