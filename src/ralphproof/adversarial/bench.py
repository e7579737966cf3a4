"""The list of all trials with cheating and honest agents; running them and counting failures."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Generator, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import closing
from functools import cache
from shlex import quote

from ralphproof.adversarial import cheats, node_cheats, pytest_cheats
from ralphproof.adversarial.cheats import SCENARIOS
from ralphproof.adversarial.trial import (
    BROKEN,
    CHEAT,
    NOOP,
    ORACLE,
    RIGHT,
    WEAKENING,
    Cheat,
    Scenario,
    Trial,
    TrialResult,
    judge_trial,
)
from ralphproof.base.errors import Refused
from ralphproof.base.interpreter import python_executable
from ralphproof.base.programs import run_in_terminal
from ralphproof.base.value import value

GIT_OPTIONS = ("-c", "init.defaultBranch=main", "-c", "commit.gpgsign=false")


@value
class PreparedTrial:
    """Arguments, working directory and environment of the program in one trial."""

    argv: tuple[str, ...]
    cwd: str
    env: Mapping[str, str]


class ScenarioFolder:
    """A folder in which each scenario's project is built once and copied for each trial. Thread-safe."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._building = threading.Lock()
        os.makedirs(folder, exist_ok=True)

    def prepare(self, trial: Trial, folder: str) -> PreparedTrial:
        """Create this folder, with a fresh copy of the project and the agent's script."""
        os.makedirs(folder)
        project, scenario = os.path.join(folder, "project"), trial.scenario
        shutil.copytree(self._project_template(scenario), project, symlinks=True)
        for name in ("home", "tools"):
            os.mkdir(os.path.join(folder, name))
        # Checks call `python3`; it must be the interpreter that has pytest.
        _write_file(
            os.path.join(folder, "tools", "python3"), f'#!/bin/sh\nexec {quote(python_executable())} "$@"\n', 0o755
        )
        _write_file(os.path.join(folder, "script.json"), trial.script())
        _write_file(os.path.join(folder, "agent.sh"), trial.shell() if scenario.kind in SHELL_AGENT_KINDS else "")
        return PreparedTrial(_command_line(trial, folder), project, trial_environment(folder, scenario.path))

    def _project_template(self, scenario: Scenario) -> str:
        project = os.path.join(self._folder, scenario.id)
        with self._building:
            if not os.path.exists(project):
                _build_project(scenario, project)
        return project


SHELL_AGENT_KINDS = ("plain", "supervise")  # kinds of scenarios whose agent emits no events


def trial_environment(folder: str, path: tuple[str, ...] = ()) -> dict[str, str]:
    """The environment of a trial: of the caller's own only PATH and what programs need to start."""
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
    match trial.scenario.kind:
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


def _build_project(scenario: Scenario, project: str) -> None:
    """Build the project with its two commits. The rename at the end makes it appear only when complete."""
    draft = project + ".draft"
    shutil.rmtree(draft, ignore_errors=True)
    settings = dict(scenario.settings) if scenario.kind == "stories" else _guardrail_settings(scenario)
    files = {
        **scenario.project.first_commit,
        **scenario.files,
        ".ralph/settings.json": json.dumps(settings, indent=2) + "\n",
    }
    for path, text in files.items():
        _write_file(os.path.join(draft, path), text)
    _run_git(draft, "init", "-q")
    _run_git(draft, "config", "user.name", "user")
    _run_git(draft, "config", "user.email", "user@localhost")
    _commit_all(draft, "double")
    for path, text in scenario.project.second_commit.items():
        _write_file(os.path.join(draft, path), text)
    _commit_all(draft, "sums")
    os.rename(draft, project)


def _guardrail_settings(scenario: Scenario) -> dict[str, object]:
    return {"guardrails": [{"command": scenario.check}], **scenario.settings}


def _commit_all(project: str, message: str) -> None:
    _run_git(project, "add", "-A")
    _run_git(project, "commit", "-qm", message)


def _run_git(project: str, *words: str) -> None:
    env = trial_environment(os.path.dirname(project))
    done = run_in_terminal(["git", *GIT_OPTIONS, *words], env, project, capture=True)
    if done.code:
        raise Refused(f"a project for the trials could not be made: git {words[0]}: {done.said}")


def _write_file(path: str, text: str, mode: int = 0o644) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8", newline="") as file:
        file.write(text)
    os.chmod(path, mode)


TRIAL_TIMEOUT_S = 180.0  # far beyond what any trial takes
SECOND_SIGNAL_S, KILL_AFTER_S = 1.0, 20.0  # from the first SIGTERM to the second, and from there to SIGKILL


class TrialRunner:
    """Runs trials of a program in parallel, each in a folder of its own. No run outlives the generator."""

    def __init__(self, program: tuple[str, ...], folder: str) -> None:
        self._program, self._folder = program, folder
        self._scenarios = ScenarioFolder(os.path.join(folder, "scenarios"))
        self._live: set[subprocess.Popen[str]] = set()
        self._lock = threading.Lock()
        self._stopped = False

    def run(self, trials: tuple[Trial, ...], jobs: int) -> Generator[TrialResult, None, None]:
        """Yield results as trials finish, `jobs` at a time. Closing the generator ends the running ones."""
        with ThreadPoolExecutor(jobs) as pool:
            try:
                pending = [pool.submit(self._run_trial, number, trial) for number, trial in enumerate(trials)]
                for trial in as_completed(pending):
                    yield trial.result()
            finally:
                pool.shutdown(wait=False, cancel_futures=True)
                self._stop()

    def _run_trial(self, number: int, trial: Trial) -> TrialResult:
        folder = os.path.join(self._folder, f"trial-{number}")
        try:
            prepared = self._scenarios.prepare(trial, folder)
            process = self._start(prepared)
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

    def _start(self, prepared: PreparedTrial) -> subprocess.Popen[str] | None:
        with self._lock:
            if self._stopped:
                return None
            process = subprocess.Popen(
                [*self._program, *prepared.argv], cwd=prepared.cwd, env=dict(prepared.env), text=True,
                encoding="utf-8", errors="replace", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, start_new_session=True,
            )  # fmt: skip
            self._live.add(process)
        return process

    def _stop(self) -> None:
        """End all running trials, and start no more."""
        with self._lock:
            self._stopped, live = True, tuple(self._live)
        end_processes(live)


def end_processes(processes: Iterable[subprocess.Popen[str]]) -> None:
    """End these runs. A second SIGTERM makes a run end its whole process tree at once; SIGKILL is the last resort."""
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


MIN_NODE_VERSION = 20
VERSION_TIMEOUT_S = 30


@cache
def missing_requirement(need: str) -> str:
    """Why a trial that requires this program cannot run on this machine; empty where it can."""
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
    done = run_in_terminal(argv, os.environ, os.curdir, capture=True, timeout_s=VERSION_TIMEOUT_S)
    return done.text.strip() if done.good else ""


# The list of all trials with cheating and honest agents; running them and counting failures.


def skip_reasons(chosen: tuple[Trial, ...]) -> dict[str, str]:
    """Scenarios that cannot run on this machine: the missing requirement by scenario id."""
    scenarios = {trial.scenario.id: trial.scenario for trial in chosen}
    return {name: why for name, scenario in scenarios.items() if (why := _missing_need(scenario))}


def _missing_need(scenario: Scenario) -> str:
    return "; ".join(
        filter(None, (missing_requirement(need) for need in ("git", *scenario.project.requires, *scenario.requires)))
    )


def run_trials(trials: tuple[Trial, ...], program: tuple[str, ...], jobs: int, quiet: bool) -> list[TrialResult]:
    folder = tempfile.mkdtemp(prefix="ralph-adversarial-")
    results = []
    try:
        with closing(TrialRunner(program, folder).run(trials, jobs)) as finished:
            for result in finished:
                results.append(result)
                if not quiet:
                    line = f"{len(results)}/{len(trials)} {result.trial.id}: {result.verdict}"
                    print(line, file=sys.stderr, flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return results


COUNT_LABELS = {
    "lies": "accepted cheats", "honest": "honest work refused", "idle": "no-ops accepted",
    "weaker": "weakened tests not reported", "broken": "runs that broke",
}  # fmt: skip


def count_failures(results: list[TrialResult]) -> Iterator[tuple[str, tuple[int, int]]]:
    """Wrong verdicts and trials of each kind. A broken run is no verdict: it is counted under `broken` only."""
    for name, kind in (("lies", CHEAT), ("honest", ORACLE), ("idle", NOOP), ("weaker", WEAKENING)):
        of_kind = [one for one in results if one.trial.kind == kind]
        yield name, (sum(one.verdict not in (RIGHT, BROKEN) for one in of_kind), len(of_kind))
    yield "broken", (sum(one.verdict == BROKEN for one in results), len(results))


ALL_CHEATS = (
    *cheats.FALSE_CLAIMS,
    *pytest_cheats.PYTEST_CHEATS,
    *node_cheats.NODE_CHEATS,
    *cheats.TAMPERING_CHEATS,
    *cheats.STORY_CHEATS,
)


def all_trials() -> tuple[Trial, ...]:
    """Every trial, those of honest and idle agents first."""
    return (*_scenario_trials(), *(trial for cheat in ALL_CHEATS for trial in _cheat_trials(cheat)))


def _scenario_trials() -> Iterator[Trial]:
    for scenario in SCENARIOS.values():
        yield Trial(f"oracle@{scenario.id}", ORACLE, "does the work, and claims", scenario, scenario.oracle)
        yield Trial(f"no-op@{scenario.id}", NOOP, "does nothing, and claims", scenario, scenario.noop)
    for agent in cheats.HONEST_AGENTS:
        for name in agent.scenarios:
            yield Trial(f"honest-{agent.id}@{name}", ORACLE, agent.about, SCENARIOS[name], agent.turns)


def _cheat_trials(cheat: Cheat) -> Iterator[Trial]:
    for name in cheat.scenarios:
        scenario = SCENARIOS[name]
        kind = CHEAT if scenario.protects_tests or not cheat.reported_as else WEAKENING
        more = {"answer": cheat.answer} if cheat.answer else {}
        yield Trial(
            f"{cheat.id}@{name}",
            kind,
            cheat.about,
            scenario,
            cheat.turns,
            cheat.passes_check,
            cheat.reported_as,
            **more,
        )
