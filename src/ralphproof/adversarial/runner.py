"""TrialRunner: runs many trials at once, each in a project folder of its own."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import cache
from shlex import quote

from ralphproof.adversarial.trial import BROKEN, TrialResult, judge_trial
from ralphproof.base.errors import Refused
from ralphproof.base.interpreter import python_executable
from ralphproof.base.value import TYPE_CHECKING, value

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping

    from ralphproof.adversarial.trial import Scenario, Trial


# Where a trial takes place: its project, laid out anew, and the command line that begins its run.


GIT_OPTIONS = ("-c", "init.defaultBranch=main", "-c", "commit.gpgsign=false")


@value
class PreparedTrial:
    """A trial that can begin: what to call the program with, where, and with which environment."""

    argv: tuple[str, ...]
    cwd: str
    env: Mapping[str, str]


class ScenarioFolder:
    """A folder in which each scene is built once, and copied for each of its trials. Threads may share it."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._building = threading.Lock()
        os.makedirs(folder, exist_ok=True)

    def stand(self, trial: Trial, folder: str) -> PreparedTrial:
        """Lay the trial out in this folder, which is made."""
        os.makedirs(folder)
        project, scene = os.path.join(folder, "project"), trial.scene
        shutil.copytree(self._built(scene), project, symlinks=True)
        for name in ("home", "tools"):
            os.mkdir(os.path.join(folder, name))
        # A name that every check can call, wherever the tests of Python are run from.
        _write_file(
            os.path.join(folder, "tools", "python3"), f'#!/bin/sh\nexec {quote(python_executable())} "$@"\n', 0o755
        )
        _write_file(os.path.join(folder, "script.json"), trial.script())
        _write_file(os.path.join(folder, "agent.sh"), trial.shell() if scene.kind in SHELL_AGENT_KINDS else "")
        return PreparedTrial(_command_line(trial, folder), project, trial_environment(folder, scene.path))

    def _built(self, scene: Scenario) -> str:
        project = os.path.join(self._folder, scene.id)
        with self._building:
            if not os.path.exists(project):
                _build_project(scene, project)
        return project


SHELL_AGENT_KINDS = ("plain", "supervise")  # kinds of scenes whose agent knows no events


def trial_environment(folder: str, path: tuple[str, ...] = ()) -> dict[str, str]:
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


def _command_line(trial: Trial, folder: str) -> tuple[str, ...]:
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


def _build_project(scene: Scenario, project: str) -> None:
    """The project with its two commits. What is half built is not taken for a whole one."""
    draft = project + ".draft"
    shutil.rmtree(draft, ignore_errors=True)
    settings = dict(scene.settings) if scene.kind == "stories" else _guardrail_settings(scene)
    files = {**scene.site.before, **scene.files, ".ralph/settings.json": json.dumps(settings, indent=2) + "\n"}
    for path, text in files.items():
        _write_file(os.path.join(draft, path), text)
    _run_git(draft, "init", "-q")
    _run_git(draft, "config", "user.name", "user")
    _run_git(draft, "config", "user.email", "user@localhost")
    _commit_all(draft, "double")
    for path, text in scene.site.after.items():
        _write_file(os.path.join(draft, path), text)
    _commit_all(draft, "sums")
    os.rename(draft, project)


def _guardrail_settings(scene: Scenario) -> dict[str, object]:
    return {"guardrails": [{"command": scene.check}], **scene.settings}


def _commit_all(project: str, message: str) -> None:
    _run_git(project, "add", "-A")
    _run_git(project, "commit", "-qm", message)


def _run_git(project: str, *words: str) -> None:
    env = trial_environment(os.path.dirname(project))
    done = subprocess.run(
        ["git", *GIT_OPTIONS, *words], cwd=project, env=env, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise Refused(f"a project for the trials could not be made: git {words[0]}: {done.stderr.strip()}")


def _write_file(path: str, text: str, mode: int = 0o644) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8", newline="") as file:
        file.write(text)
    os.chmod(path, mode)


# Many trials at once: each a run of the program in a folder of its own, and none outlives whoever asked for it.


TRIAL_TIMEOUT_S = 180.0  # far beyond what any of them takes
SECOND_SIGNAL_S, KILL_AFTER_S = 1.0, 20.0  # until a run is told again that it is over, and until it is killed


class TrialRunner:
    """Holds trials of a program in a folder, so many at a time."""

    def __init__(self, program: tuple[str, ...], folder: str) -> None:
        self._program, self._folder = program, folder
        self._ground = ScenarioFolder(os.path.join(folder, "scenes"))
        self._live: set[subprocess.Popen[str]] = set()
        self._lock = threading.Lock()
        self._over = False

    def hold(self, trials: tuple[Trial, ...], jobs: int) -> Generator[TrialResult, None, None]:
        """The upshots as they come. Whoever stops asking ends what is under way."""
        with ThreadPoolExecutor(jobs) as pool:
            try:
                coming = [pool.submit(self._held, number, trial) for number, trial in enumerate(trials)]
                for one in as_completed(coming):
                    yield one.result()
            finally:
                pool.shutdown(wait=False, cancel_futures=True)
                self._end()

    def _held(self, number: int, trial: Trial) -> TrialResult:
        folder = os.path.join(self._folder, f"trial-{number}")
        try:
            stand = self._ground.stand(trial, folder)
            process = self._begun(stand)
            if process is None:
                return TrialResult(trial, BROKEN, "it was ended before it began")
            try:
                out, err = process.communicate(timeout=TRIAL_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                end_processes([process])
                process.communicate()
                return TrialResult(trial, BROKEN, f"it was not over after {TRIAL_TIMEOUT_S:g} s")
            finally:
                with self._lock:
                    self._live.discard(process)
            return judge_trial(trial, process.returncode, out, err)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _begun(self, stand: PreparedTrial) -> subprocess.Popen[str] | None:
        with self._lock:
            if self._over:
                return None
            process = subprocess.Popen(
                [*self._program, *stand.argv], cwd=stand.cwd, env=dict(stand.env), text=True,
                encoding="utf-8", errors="replace", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, start_new_session=True,
            )  # fmt: skip
            self._live.add(process)
        return process

    def _end(self) -> None:
        """End what is under way."""
        with self._lock:
            self._over, live = True, tuple(self._live)
        end_processes(live)


def end_processes(processes: Iterable[subprocess.Popen[str]]) -> None:
    """End these runs: one that is told twice ends its whole tree at once, and one that does not hear is killed."""
    alive = [process for process in processes if process.poll() is None]
    for pause_s in (SECOND_SIGNAL_S, KILL_AFTER_S):
        for process in alive:
            process.terminate()
        until = time.monotonic() + pause_s
        alive = [process for process in alive if not _has_ended_within(process, until - time.monotonic())]
    for process in alive:
        process.kill()


def _has_ended_within(process: subprocess.Popen[str], seconds: float) -> bool:
    try:
        process.wait(max(seconds, 0.0))
    except subprocess.TimeoutExpired:
        return False
    return True


# What the projects of the trials are run with, and why it is not there.


MIN_NODE_VERSION = 20
VERSION_TIMEOUT_S = 30


@cache
def missing_requirement(need: str) -> str:
    """Why a trial that needs this cannot be held on this machine; empty where it can."""
    if need == "pytest":
        said = _program_output(python_executable(), "-I", "-m", "pytest", "--version")
        return "" if said.startswith("pytest") else f"{python_executable()} has no pytest"
    if shutil.which(need) is None:
        return f"{need} is not on PATH"
    if need == "node":
        said = _program_output("node", "--version")
        number = re.match(r"v(\d+)", said)
        if number is None or int(number[1]) < MIN_NODE_VERSION:
            return f"node is {said or 'mute'}, and its test runner is needed as of v{MIN_NODE_VERSION}"
    return ""


def _program_output(*argv: str) -> str:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=VERSION_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
