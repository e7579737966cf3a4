"""Whole runs with every other agent that we know, by a program of its name that prints what the real one once printed.

The recordings are of turns that write a file, run a command and claim COMPLETE. They need no agent to be installed.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

import pytest

from ralphproof.agents.selection import load_adapter
from ralphproof.engine.outcome import Passed, Retry
from ralphproof.engine.records import Judged, RunBegan, TurnBegan, TurnEnded
from tests.agents.replay import recorded
from tests.misbehaviour.invariants import hold, refusal
from tests.ralph import Ended, Ralph

pytestmark = pytest.mark.thorough

GUARDED = ("gemini", "qwen", "opencode", "copilot")
UNGUARDED = ("amp", "pi")
OTHERS = (*GUARDED, *UNGUARDED)

# Tokens and micro-dollars of the recorded turn, as far as each of them tells.
SPENT: dict[str, tuple[int | None, int | None]] = {
    "gemini": (3150, None), "qwen": (3150, None), "opencode": (3150, 7950), "copilot": (None, None),
    "amp": (6040, None), "pi": (3150, 7950),
}  # fmt: skip
CHECK = "grep -q hello hello.txt || { echo 'MISSING: hello.txt'; exit 1; }\n"

# The first turn does too little, those that follow do what the recording tells.
PROGRAM = """\
turn=$(ls {seen} | grep -c prompt)
cat > {seen}/prompt.$turn
for word; do printf '%s\\n' "$word"; done > {seen}/argv.$turn
if [ "$turn" = 0 ]; then echo half > half.txt; else echo hello > hello.txt; fi
cat {recording}
"""


@dataclass
class Other:
    """A project whose check wants `hello.txt`, and a program that plays an agent and keeps what it was given."""

    ralph: Ralph
    agent: str

    def __post_init__(self) -> None:
        self.seen.mkdir()
        told = {"seen": self.seen, "recording": recorded(self.agent)["success-tools"]}
        self.program = self.ralph.program(
            self.agent, PROGRAM.format(**{name: shlex.quote(str(path)) for name, path in told.items()})
        )
        self.ralph.write({"check.sh": CHECK})
        self.ralph.commit()

    @property
    def seen(self) -> Path:
        return self.ralph.folder / "seen"

    def run(self, *argv: str) -> Ended:
        return self.ralph(
            "run", "-p", "make it so", "-c", "COMPLETE", "--check", "sh check.sh", "--agent", self.agent, *argv
        )

    def prompt(self, turn: int) -> str:
        return (self.seen / f"prompt.{turn}").read_text()

    def argv(self, turn: int) -> list[str]:
        return (self.seen / f"argv.{turn}").read_text().splitlines()


@pytest.mark.parametrize(
    ("agent", "guarded"), [*((name, True) for name in GUARDED), *((name, False) for name in OTHERS)]
)
def test_a_failing_check_is_shown_to_the_agent_which_then_does_the_work(
    ralph: Ralph, agent: str, guarded: bool
) -> None:
    other = Other(ralph, agent)
    ended = other.run(*(() if guarded else ("--no-sandbox",)))
    hold(ralph, ended)
    outcome, records = ralph.outcome(), ralph.records()
    assert (ended.code, outcome["iterations"], outcome["proof"]) == (0, 2, "verified"), ended
    assert "make it so" in other.prompt(0)
    assert "MISSING" not in other.prompt(0)
    assert "MISSING: hello.txt" in other.prompt(1)
    first, second = (record.verdict for record in records if isinstance(record, Judged))
    assert isinstance(first, Retry)
    assert first.feedback.refused
    assert isinstance(second, Passed)
    began = next(record for record in records if isinstance(record, RunBegan))
    permissions = f"guarded ({load_adapter(agent).guard})" if guarded else "unguarded"
    assert (began.facts["agent"], began.facts["permissions"]) == (agent, permissions)
    for turn, record in enumerate(record for record in records if isinstance(record, TurnBegan)):
        assert (record.agent, list(record.argv)) == (agent, [str(other.program), *other.argv(turn)])
    for reply in (record.reply for record in records if isinstance(record, TurnEnded)):
        assert (reply.tools, reply.errors, reply.unparsed, reply.denied) == (2, 0, 0, ())
        assert reply.text.endswith("<promise>COMPLETE</promise>")
        assert reply.session
        assert (reply.usage.total if reply.usage else None, reply.micro_usd) == SPENT[agent]


@pytest.mark.parametrize("agent", UNGUARDED)
def test_an_agent_without_a_guard_of_its_own_is_not_started_unasked(ralph: Ralph, agent: str) -> None:
    other = Other(ralph, agent)
    refusal(ralph, other.run(), f"agent {agent} has no mode that asks nothing", "--no-sandbox")
    assert list(other.seen.iterdir()) == []
