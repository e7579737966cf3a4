"""Where a trial takes place: its project, laid out anew, and the command line that begins its run."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
from shlex import quote

from ralphproof.errors import Refused
from ralphproof.interpreter import executable
from ralphproof.value import TYPE_CHECKING, value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ralphproof.liars.cheat import Scene, Trial

WHO = ("-c", "init.defaultBranch=main", "-c", "commit.gpgsign=false")


@value
class Stand:
    """A trial that can begin: what to call the program with, where, and with which environment."""

    argv: tuple[str, ...]
    cwd: str
    env: Mapping[str, str]


class Ground:
    """A folder in which each scene is built once, and copied for each of its trials. Threads may share it."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._building = threading.Lock()
        os.makedirs(folder, exist_ok=True)

    def stand(self, trial: Trial, folder: str) -> Stand:
        """Lay the trial out in this folder, which is made."""
        os.makedirs(folder)
        project, scene = os.path.join(folder, "project"), trial.scene
        shutil.copytree(self._built(scene), project, symlinks=True)
        for name in ("home", "tools"):
            os.mkdir(os.path.join(folder, name))
        # A name that every check can call, wherever the tests of Python are run from.
        _write(os.path.join(folder, "tools", "python3"), f'#!/bin/sh\nexec {quote(executable())} "$@"\n', 0o755)
        _write(os.path.join(folder, "script.json"), trial.script())
        _write(os.path.join(folder, "agent.sh"), trial.shell() if scene.kind in PROGRAMS else "")
        return Stand(_argv(trial, folder), project, environment(folder, scene.path))

    def _built(self, scene: Scene) -> str:
        project = os.path.join(self._folder, scene.id)
        with self._building:
            if not os.path.exists(project):
                _build(scene, project)
        return project


PROGRAMS = ("plain", "supervise")  # kinds of scenes whose agent knows no events


def environment(folder: str, path: tuple[str, ...] = ()) -> dict[str, str]:
    """All that a run has of the user who calls it: the programs."""
    first = [os.path.join(folder, "project", name) for name in path] + [os.path.join(folder, "tools")]
    kept = {name: os.environ[name] for name in ("TMPDIR", "SYSTEMROOT", "LD_LIBRARY_PATH") if name in os.environ}
    return kept | {
        "PATH": os.pathsep.join([*first, os.environ.get("PATH", os.defpath)]), "HOME": os.path.join(folder, "home"),
        "LANG": "C.UTF-8", "TERM": "dumb", "GIT_CONFIG_NOSYSTEM": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "NPM_CONFIG_UPDATE_NOTIFIER": "false", "RALPH_STATE_DIR": os.path.join(folder, "state"),
        "RALPH_CONFIG_DIR": os.path.join(folder, "config"), "RALPH__LIMITS__PAUSE_MILLISECONDS": "0",
        "RALPH__SANDBOX__BACKEND": "null",
    }  # fmt: skip


def _argv(trial: Trial, folder: str) -> tuple[str, ...]:
    program = f"sh {quote(os.path.join(folder, 'agent.sh'))}"
    script = f"scripted {quote(os.path.join(folder, 'script.json'))}"
    common = ("-m", str(len(trial.turns)), "--json")
    match trial.scene.kind:
        case "stories":
            return ("run", "--preset", "stories", "--agent", script, *common)
        case "supervise":
            return ("supervise", "--restart-delay", "0", *common, "--", "sh", os.path.join(folder, "agent.sh"))
        case "plain":
            return ("run", "-f", "prompt.md", "--agent", program, *common)
        case "judge":
            return ("run", "-f", "prompt.md", "--agent", script, "--judge", "add() adds", *common)
        case _:
            return ("run", "-f", "prompt.md", "--agent", script, *common)


def _build(scene: Scene, project: str) -> None:
    """The project with its two commits. What is half built is not taken for a whole one."""
    draft = project + ".draft"
    shutil.rmtree(draft, ignore_errors=True)
    settings = dict(scene.settings) if scene.kind == "stories" else _checked(scene)
    files = {**scene.site.before, **scene.files, ".ralph/settings.json": json.dumps(settings, indent=2) + "\n"}
    for path, text in files.items():
        _write(os.path.join(draft, path), text)
    _git(draft, "init", "-q")
    _git(draft, "config", "user.name", "user")
    _git(draft, "config", "user.email", "user@localhost")
    _commit(draft, "double")
    for path, text in scene.site.after.items():
        _write(os.path.join(draft, path), text)
    _commit(draft, "sums")
    os.rename(draft, project)


def _checked(scene: Scene) -> dict[str, object]:
    return {"guardrails": [{"command": scene.check}], **scene.settings}


def _commit(project: str, message: str) -> None:
    _git(project, "add", "-A")
    _git(project, "commit", "-qm", message)


def _git(project: str, *words: str) -> None:
    env = environment(os.path.dirname(project))
    done = subprocess.run(["git", *WHO, *words], cwd=project, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Refused(f"a project for the trials could not be made: git {words[0]}: {done.stderr.strip()}")


def _write(path: str, text: str, mode: int = 0o644) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8", newline="") as file:
        file.write(text)
    os.chmod(path, mode)
