"""What a real agent has of its own in a sandbox: a login that it only reads, a state for each project, hooks."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from ralphproof.engine.records import TurnBegan, TurnEnded, TurnRetried
from tests.agents.real_clis import CLAUDE_LOGGED_IN
from tests.misbehaviour.stories import US1, course, fields, known, story, submitted
from tests.ralph import Ralph
from tests.real_agents.conftest import DONE, Json, runs, says, writes
from tests.real_agents.sandboxed_project import Boxed, holds
from tests.real_agents.story_cycle import FEAT, MAKES, STOPPED, commits, does, loop, project, tells
from tests.real_agents.test_service_outage import soon
from tests.real_agents.test_stories import ALERT, ITSELF, RULES

pytestmark = pytest.mark.thorough

BOXED = "--sandbox=bubblewrap"
TOKEN, YEAR_2100, SCOPES = "sk-ant-oat01-dummy", 4102444800000, ["user:inference"]
LOGINS: dict[str, tuple[str, Json]] = {
    "claude": (
        ".claude/.credentials.json",
        {"claudeAiOauth": {"accessToken": TOKEN, "refreshToken": "r", "expiresAt": YEAR_2100, "scopes": SCOPES}},
    ),
    "codex": (".codex/auth.json", {"auth_mode": "apikey", "OPENAI_API_KEY": TOKEN}),
}  # fmt: skip
NO_KEY = {"ANTHROPIC_API_KEY": ""}
MINE = {"claude": ".claude", "codex": ".codex"}


@dataclass
class Beside(Ralph):
    """Another project of the same user."""

    def __post_init__(self) -> None:
        self.root.mkdir()

    @property
    def root(self) -> Path:
        return self.folder / "extra_files"


@pytest.fixture(autouse=True)
def in_bubblewrap(ralph: Ralph) -> None:
    holds("bubblewrap", ralph)


@pytest.fixture
def boxed(ralph: Ralph, agent: str) -> Boxed:
    return Boxed(ralph, agent)


def log_in(boxed: Boxed) -> Path:
    """Give the user a login in a file, and Claude Code no other."""
    name, login = LOGINS[boxed.agent]
    path = boxed.ralph.home / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(login), "utf-8")
    path.chmod(0o600)
    return path


def test_a_login_is_read_and_never_written(boxed: Boxed) -> None:
    login = log_in(boxed)
    boxed.env |= NO_KEY
    before = login.read_bytes()
    place = boxed.states() / login.name
    tries = (f"echo x >> {place}", f"unlink {place}", f"mv {place} {place}.old", f"cp check.sh {place}")
    script = f"cat {place}; " + "; ".join(f"{one} 2>/dev/null && echo WRITTEN" for one in tries)
    ended = boxed.run([runs(f"{script}; echo over"), *DONE], BOXED)
    assert ended.code == 0, ended
    assert TOKEN in boxed.shown(1)
    assert "WRITTEN" not in boxed.shown(1).replace("echo WRITTEN", "")
    assert login.read_bytes() == before
    assert not list(login.parent.glob(f"{login.name}?*"))


@pytest.mark.parametrize("agent", ["claude"])
def test_it_is_that_login_with_which_it_works(boxed: Boxed) -> None:
    boxed.env |= NO_KEY
    ended = boxed.run(DONE, BOXED)
    assert (ended.code, boxed.answered()) == (2, [])
    assert "log in" in ended.err


def test_a_session_goes_on_after_a_limit_as_its_state_is_kept(ralph: Ralph, agent: str) -> None:
    boxed = Boxed(ralph, agent, env=dict(CLAUDE_LOGGED_IN) if agent == "claude" else {})
    ended = boxed.run([writes("half.txt"), soon(agent), *DONE], "--max-minutes", "1", BOXED)
    assert (ended.code, boxed.answered()) == (0, [0, 1, 2, 3]), ended
    assert len(boxed.recorded(TurnRetried)) == 1
    refused, resumed = (record.reply for record in boxed.recorded(TurnEnded))
    assert refused.session == resumed.session
    assert refused.session in boxed.recorded(TurnBegan)[1].argv
    assert "half.txt" in boxed.shown(2), "the model sees what it did before"


def sessions(boxed: Boxed) -> list[Path]:
    """What the agent wrote down of its sessions in this project."""
    return list(boxed.states().rglob("*.jsonl"))


def test_its_state_is_of_one_project_and_none_of_the_users(boxed: Boxed) -> None:
    first = boxed.run(DONE, BOXED)
    (kept,) = sessions(boxed)
    assert first.code == 0, first
    mine = (boxed.ralph.home / MINE[boxed.agent]).rglob("*")
    assert {path.name for path in mine} <= {"history.jsonl", "config.toml"}, "nothing was added to the user's own"
    boxed.asked.unlink()
    beside = Boxed(Beside(boxed.ralph.folder, boxed.ralph.env, boxed.ralph.live), boxed.agent)
    looks = f"ls -d {boxed.states()} || echo HIDDEN; find / -name '*.jsonl' -path '*/{boxed.agent}/*' 2>/dev/null"
    second = beside.run([runs(looks), *DONE], BOXED)
    (seen,) = sessions(beside)
    assert (second.code, seen.parent.parent != kept.parent.parent) == (0, True), second
    assert "HIDDEN" in beside.shown(1).replace("echo HIDDEN", "")
    assert (str(seen) in beside.shown(1), str(kept) in beside.shown(1)) == (True, False)


# Hooks


def test_hooks_of_stories_are_called_inside(ralph: Ralph) -> None:
    """One refuses an end that breaks a rule, another tells how full the context is."""
    real = project(ralph, "claude", story())
    real.env["CLAUDE_CONTEXT_WINDOW"] = "100000"  # a transcript that has no figures yet is not half as large
    full = [does({"shell": "ls"}, usage={"input": tokens - 860}) for tokens in (40_000, 52_000, 53_000)]
    turns = [
        *full, does(MAKES, *tells(ITSELF), commits(FEAT)), says("<promise>COMPLETE</promise>"),
        does(*tells(submitted()), commits(FEAT)), says("It is for somebody else to approve."),
    ]  # fmt: skip
    loop(real, turns, "-m", "1", BOXED)
    assert real.answered() == list(range(len(turns)))
    assert [(event, kind) for event, kind, _, _ in ALERT.findall(real.shown(3))] == [("PostToolUse", "NOTICE")]
    assert STOPPED["claude"] + "\n".join(RULES) in real.shown(5)
    assert course(ralph) == [(US1, "implement", "Passed")]
    assert fields(known(ralph)[US1]) == (False, "needs_review", 0)


def test_hooks_of_stories_are_called_by_codex_inside(ralph: Ralph) -> None:
    real = project(ralph, "codex", story())
    turns = [
        does({"shell": "ls"}, usage={"input": 200_000}), does(MAKES, tells(ITSELF)[1], commits(FEAT)),
        says("<promise>COMPLETE</promise>"), does(tells(submitted())[1], commits(FEAT)), says("It is made."),
    ]  # fmt: skip
    loop(real, turns, "-m", "1", BOXED)
    assert real.answered() == list(range(len(turns)))
    assert "[WARNING] Context usage: ~7" in real.shown(1)
    assert RULES[0] in real.shown(3).rpartition(STOPPED["codex"])[2]
    assert course(ralph) == [(US1, "implement", "Passed")]
