"""Stories that real agents go through: a project with them, the turns of a model, and what a model was shown."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from typing import Any

from tests.agents import isolated_network
from tests.agents.model_server import shown
from tests.misbehaviour.invariants import hold
from tests.misbehaviour.stories import MARKER, TASKS, Story, lay, text
from tests.ralph import Ended, Ralph
from tests.real_agents.conftest import Json, Real

VERIFY = "sh check.sh"  # it wants `done.txt`
MAKES = {"write": ["done.txt", "x\n"]}
LOOKS = {"shell": f"echo MARKER; cat {MARKER}"}
FEAT, FIX = "feat: [US-001] - Make US-001", "fix: [US-001] - address review feedback"
REQUESTED, APPROVED = "review: [US-001] - changes requested", "review: [US-001] - approved"
STOPPED = {"claude": "Stop hook feedback:\n", "codex": '<hook_prompt hook_run_id="stop:'}  # how each tells a refusal


def project(ralph: Ralph, agent: str, *stories: Story, verify: Sequence[str] = (VERIFY,), **files: str) -> Real:
    """A repository with these stories and files (`__` in a name stands for `.`), and an agent."""
    real = Real(ralph, agent)
    temporary = ralph.folder / "tmp"
    temporary.mkdir()
    real.env["TMPDIR"] = str(temporary)  # hooks keep there what a session was told
    ralph.write({name.replace("__", "."): content for name, content in files.items()})
    lay(ralph, *stories, verifyCommands=list(verify))
    return real


def loop(real: Real, turns: Sequence[Json], *argv: str, command: str = "", **script: Any) -> Ended:
    """`ralph run` by stories to its end, and what holds after every such run."""
    agent = ("--agent", command or real.agent)
    ended = real.ralph("run", "--preset", "stories", *agent, *argv, via=real._via(turns, script), timeout_s=120)
    hold(real.ralph, ended)
    assert not (real.ralph.root / MARKER).exists()
    return ended


def does(*calls: Json, **more: Any) -> Json:
    """A turn: the model calls tools."""
    return {"text": "I work.", "calls": list(calls), **more}


def tells(*stories: Story, verify: Sequence[str] = (VERIFY,)) -> tuple[Json, Json]:
    """Calls: the model writes the stories anew, which Claude Code lets it do when it has read them."""
    return {"read": TASKS}, {"write": [TASKS, text(*stories, verifyCommands=list(verify))]}


def commits(message: str) -> Json:
    """A call: the model commits everything."""
    return {"shell": f"git add -A && git commit -qm {shlex.quote(message)}"}


def edits(old: str, new: str) -> Json:
    """A call: the model changes one place in the stories, with the tool that Claude Code has for it."""
    return {"tool": "Edit", "input": {"file_path": TASKS, "old_string": old, "new_string": new}}


def request(real: Real, turn: int) -> Json:
    """What the model was asked when it gave this turn of the script."""
    return next(one for one in isolated_network.requests_in(real.asked) if one["turn"] == turn)


def marker(real: Real, turn: int) -> Json:
    """The marker, as the model saw it that had looked at it in the turn before."""
    seen = shown(request(real, turn))
    found: Json = json.JSONDecoder().raw_decode(seen, seen.rindex("MARKER\n") + len("MARKER\n"))[0]
    return found


def results(real: Real, turn: int) -> list[str]:
    """What Claude Code's tools answered to the calls of the turn before."""
    said = [one["content"] for one in request(real, turn)["body"]["messages"] if one["role"] == "user"]
    return [block["content"] for block in said[-1] if block["type"] == "tool_result"]
