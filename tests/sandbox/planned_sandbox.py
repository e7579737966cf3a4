"""A project with a home folder full of secrets, and the sandboxes that are planned for it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ralphproof.engine.sandbox import AgentRequirements, Command
from ralphproof.sandbox.plan import DEV_NULL, BackendProblem, Mount, SandboxEntry, SandboxPlan
from ralphproof.sandbox.planner import SandboxConfig, SandboxPlanner
from tests.sandbox.sight import SECRETS, Home, can_read, can_write, place_of, seen_at


class PlannedBackend:
    """A sandbox back end for plans that are never entered."""

    name, strength = "plain", "strong"
    weaknesses: tuple[str, ...] = ()

    def __init__(self, protects_paths: bool = True, can_remount: bool = True) -> None:
        self.protects_paths, self.can_remount = protects_paths, can_remount

    def problem(self) -> BackendProblem | None:
        return None

    def entry(self, plan: SandboxPlan) -> SandboxEntry:
        return SandboxEntry((), "itself")

    def prepare(self, plan: SandboxPlan, command: Command) -> str:
        return ""

    def clean_up(self, plan: SandboxPlan) -> None:
        """Nothing to remove."""


class SandboxProject:
    """Real folders: a home with secrets and the state folder, and a project beside it."""

    def __init__(self, folder: Path) -> None:
        self.home = Home(folder / "home")
        self.home.put(*SECRETS)
        self.root, self.store = folder / "work" / "project", folder / "home/.local/state/ralphproof/repos/1"
        self.root.mkdir(parents=True)
        self.store.mkdir(parents=True)

    def put(self, *names: str, text: str = "x") -> None:
        Home(self.root).put(*names, text=text)

    def git(self, *args: str, cwd: Path | None = None) -> str:
        env = {**self.home.environ(), "GIT_AUTHOR_NAME": "U", "GIT_AUTHOR_EMAIL": "u@x", "GIT_COMMITTER_NAME": "U",
               "GIT_COMMITTER_EMAIL": "u@x"}  # fmt: skip
        ran = subprocess.run(["git", *args], cwd=cwd or self.root, env=env, capture_output=True, text=True)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout.strip()

    def repository(self) -> None:
        self.git("init", "-q", "-b", "main")
        self.git("commit", "-q", "--allow-empty", "-m", "first")

    def config(self, environ: dict[str, str] | None = None, **more: Any) -> SandboxConfig:
        given = {"root": str(self.root), "store": str(self.store), "task": ""} | more
        return SandboxConfig(environ=tuple((environ or self.home.environ()).items()), **given)

    def view(
        self, environ: dict[str, str] | None = None, backend: PlannedBackend | None = None, agent: str = "",
        reads: Sequence[str] = (), turn: str = "1", cwd: str = "", **more: Any,
    ) -> PlannedSandbox:  # fmt: skip
        config = self.config(environ, **more)
        base = self.store / "runs" / turn
        base.parent.mkdir(exist_ok=True)
        command = Command(
            ("x",),
            cwd or config.root,
            config.environ,
            f"{base}.log",
            f"{base}.turn",
            "m",
            agent=agent,
            reads=tuple(reads),
        )
        return PlannedSandbox(self, SandboxPlanner(config, backend or PlannedBackend()).plan(command))


class PlannedSandbox:
    """What a planned sandbox shows; names are relative to the project, or to the home (`~/`)."""

    def __init__(self, project: SandboxProject, plan: SandboxPlan) -> None:
        self.project, self.plan = project, plan

    def place(self, name: str) -> str:
        if name.startswith("~"):
            return name.replace("~", str(self.project.home), 1)
        return os.path.normpath(os.path.join(self.project.root, name))

    def read(self, name: str) -> bool:
        return can_read(self.plan.mounts, self.place(name))

    def written(self, name: str) -> bool:
        return can_write(self.plan.mounts, self.place(name))

    def behind(self, name: str) -> str:
        return place_of(self.plan.mounts, self.place(name))[1]

    def seen_at(self, name: str) -> list[str]:
        return seen_at(self.plan.mounts, self.place(name))

    def covers(self, mount: Mount) -> bool:
        """Whether a mount only hides something."""
        return mount.source == DEV_NULL or mount.source.endswith("/empty")

    @property
    def secrets(self) -> list[str]:
        """The secrets that are visible; should be none."""
        return [secret for secret in SECRETS if self.seen_at(f"~/{secret}")]

    @property
    def variables(self) -> dict[str, str]:
        return dict(self.plan.variables)

    def placeholders(self) -> set[str]:
        return {os.path.relpath(path, self.project.root) for path in self.plan.protection.placeholders}


CLAUDE = AgentRequirements(
    "~/.claude", "CLAUDE_CONFIG_DIR", (".credentials.json", "settings.json", "skills"), ("api.anthropic.com",),
    ("ANTHROPIC_BASE_URL",), ("ANTHROPIC_*",), (".claude/settings.json",),
)  # fmt: skip
GEMINI = AgentRequirements(
    "~/.gemini", "", ("oauth_creds.json",), ("generativelanguage.googleapis.com",), (), (), (".gemini/",)
)
AMP = AgentRequirements("~/.local/share/amp", "", ("secrets.json", "~/.config/amp/settings.json"), ("ampcode.com",))
AGENTS = (("claude", CLAUDE), ("gemini", GEMINI), ("amp", AMP))
