"""An agent's session in a project that is gone through by stories, and the hooks that the agent's program calls.

A hook is a process of its own, started as it is when it is installed. Its input is what a real program gave it once
(`recorded/`), with this project's paths in it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ralphproof.stories.schema import review_snapshot, serialize_stories
from tests.stories.story_documents import Story, document

RECORDED = Path(__file__).parent / "recorded"
CLAUDE, CODEX = "claude-2.1.325", "codex-0.166.0"
RALPH = str(Path(sys.executable).with_name("ralph"))
TIMEOUT_S = 30.0
Json = dict[str, Any]


@dataclass(frozen=True)
class Answer:
    """What a hook said. Nobody reads a traceback."""

    code: int
    out: str
    err: str

    def __post_init__(self) -> None:
        assert "Traceback" not in self.err

    @property
    def reason(self) -> str:
        """Why the agent may not stop; empty where it may."""
        if not self.out:
            assert self.code == 0, self.err
            return ""
        said = json.loads(self.out)
        assert (self.code, said["decision"], set(said)) == (0, "block", {"decision", "reason"})
        return str(said["reason"])

    @property
    def told(self) -> str:
        """What goes into the agent's context."""
        assert self.code == 0
        return str(json.loads(self.out)["hookSpecificOutput"]["additionalContext"]) if self.out else ""


def module(name: str) -> list[str]:
    """How a run of ours has its agents call a hook."""
    return [sys.executable, "-I", "-m", f"ralphproof.hooks.{name}"]


def verb(name: str) -> list[str]:
    """How an installed plugin calls it."""
    return [RALPH, "hook", name.replace("_", "-")]


class Session:
    """A project without git, a transcript that does not exist yet, and an environment of their own."""

    def __init__(self, folder: Path) -> None:
        self.root, self.tmp, self.transcript = folder / "project", folder / "tmp", folder / "transcript.jsonl"
        for path in (self.root / "ralph", self.tmp, folder / "home"):
            path.mkdir(parents=True)
        self.env = {
            "PATH": os.environ["PATH"], "HOME": str(folder / "home"), "TMPDIR": str(self.tmp),
            "GIT_CONFIG_NOSYSTEM": "1", "LC_ALL": "C",
        }  # fmt: skip

    @property
    def marker(self) -> Path:
        return self.root / ".ralph-active"

    @property
    def tasks(self) -> Path:
        return self.root / "ralph" / "tasks.json"

    def write(self, *stories: Story, **top: Any) -> None:
        """Write the stories."""
        self.tasks.write_bytes(serialize_stories(document(*stories, **top)))

    def mark(self, *before: Story, mode: str = "implement", **fields: Any) -> None:
        """Write the marker of a turn that found these stories, as any tool may; None leaves a field out."""
        said: Json = {
            "timestamp": "2025-06-15T10:30:00Z", "pid": os.getpid(), "max_iterations": 15, "mode": "sandbox",
            "skipReview": False, "reviewCap": 5, "iterationMode": mode,
            "preIterationSnapshot": review_snapshot(document(*before)), **fields,
        }  # fmt: skip
        self.marker.write_text(json.dumps({name: value for name, value in said.items() if value is not None}))

    def git(self, *words: str, cwd: Path | None = None) -> None:
        who = ("-c", "user.name=user", "-c", "user.email=user@localhost", "-c", "init.defaultBranch=main")
        subprocess.run(["git", *who, *words], cwd=cwd or self.root, env=self.env, check=True, capture_output=True)

    def commit(self) -> None:
        """Make the project a repository in which everything is committed."""
        (self.root / ".gitignore").write_text(".ralph-active\n")
        self.git("init", "-q")
        self.git("add", "-A")
        self.git("commit", "-qm", "everything")

    def event(self, agent: str, name: str, at: int = 0, **fields: Any) -> Json:
        """The event of this name that a real program gave its hooks, one of several, but for these fields."""
        lines = (RECORDED / f"{agent}.jsonl").read_text("utf-8").splitlines()
        found = [event for event in map(json.loads, lines) if event["hook_event_name"] == name][at]
        paths = {"cwd": str(self.root), "transcript_path": str(self.transcript)}
        return {**found, **{name: paths[name] for name in paths if name in found}, **fields}

    def stop(self, again: bool = False, agent: str = CLAUDE, **fields: Any) -> Json:
        """An agent wants to stop, again after it was refused."""
        return self.event(agent, "Stop", int(again), **fields)

    def call(
        self, argv: list[str], event: Json | bytes, env: Mapping[str, str] | None = None, cwd: Path | None = None
    ) -> Answer:
        """Start a hook, and hear it to its end."""
        data = event if isinstance(event, bytes) else json.dumps(event).encode()
        done = subprocess.run(
            argv, input=data, cwd=cwd or self.root, env=self.env | dict(env or {}), capture_output=True,
            timeout=TIMEOUT_S, check=False,
        )  # fmt: skip
        return Answer(done.returncode, done.stdout.decode(), done.stderr.decode())

    def stops(self, **given: Any) -> Answer:
        """What the Stop hook says to an agent that wants to stop for the first time."""
        return self.call(module("stop"), self.stop(), **given)
