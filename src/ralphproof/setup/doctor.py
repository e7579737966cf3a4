"""Examinations of `ralph doctor`: machine, project, agents, sandboxes, spend.

Nothing that the repository names is executed.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping

from ralphproof import __version__
from ralphproof.agents.adapter import COST_COMPUTED, COST_REPORTED, COST_UNKNOWN, AgentAdapter
from ralphproof.agents.selection import KNOWN_AGENTS, agent_traits, find_agent_problems, installed_version, load_adapter
from ralphproof.base import interpreter
from ralphproof.base.errors import AgentUnusable, RalphError, Refused, SettingsWrong
from ralphproof.base.programs import find_program, run_program
from ralphproof.base.value import Json, value
from ralphproof.checks.discovery import propose_checks
from ralphproof.engine.limits import format_usd
from ralphproof.engine.sandbox import Command, Exit
from ralphproof.process.keeper_client import KeeperClient
from ralphproof.process.tree import LINUX
from ralphproof.reports import otel
from ralphproof.runs.open_project import view_project
from ralphproof.sandbox.planner import default_resource_limits, refuse_unsafe_project
from ralphproof.sandbox.resource_limits import find_limit_mechanism
from ralphproof.sandbox.selection import KINDS, BackendResult, try_backends
from ralphproof.settings.loader import LoadedSettings, load_settings
from ralphproof.store.project import ensure_state_dir, find_state_dir
from ralphproof.store.run_state import CRASHED, ORPHANED, RUNNING, run_state
from ralphproof.store.spend import SpendStore

OK, NOTE, PROBLEM = "ok", "note", "problem"
VERSION_TIMEOUT_S = 5.0
LOW_DISK_BYTES = 1 << 30
PLATFORM_NOTES = {
    "darwin": "macOS: a process that leaves its group outlives its turn; there is no /proc to find it by",
    "win32": "Windows is not supported: there are no process groups, no flock and no POSIX signals; use WSL",
}


@value
class DoctorItem:
    """One result. A problem prevents `ralph run`; a note does not. `data` is the JSON form."""

    name: str
    state: str
    text: str
    data: dict[str, Json] | None = None
    about: str = "agent"  # JSON key of `data`
    more: tuple[str, ...] = ()  # additional lines for people


def examine_machine() -> Iterator[DoctorItem]:
    """The interpreter and the system."""
    version = ".".join(map(str, sys.version_info[:3]))
    yield DoctorItem("ralph", OK, f"{__version__}, Python {version} ({interpreter.python_executable()})")
    if sys.platform == "linux":
        yield DoctorItem("platform", OK, f"Linux {os.uname().release}")
        return
    state = PROBLEM if sys.platform == "win32" else NOTE
    yield DoctorItem("platform", state, PLATFORM_NOTES.get(sys.platform, f"{sys.platform} is not tested"))


def examine_git(root: str, environ: Mapping[str, str]) -> DoctorItem:
    """The git program that snapshots use."""
    program = find_program("git", environ.get("PATH", os.defpath), outside=root)
    if program is None:
        return DoctorItem("git", NOTE, "not found; work is saved as plain copies, without commits")
    here = "" if os.path.lexists(os.path.join(root, ".git")) else "; this project is no git repository"
    version, _ = ask_version(program, environ)
    return DoctorItem("git", OK, f"{version or 'its version is unknown'} ({program}){here}")


def ask_version(program: str, environ: Mapping[str, str]) -> tuple[str, str]:
    """The first line of `--version`, and the error; one of them is empty."""
    reply = run_program([program, "--version"], dict(environ), timeout_s=VERSION_TIMEOUT_S, most_bytes=1 << 20)
    lines = reply.out.decode("utf-8", "replace").strip().splitlines()
    if reply.code == 0 and lines:
        return lines[0][:100], ""
    return "", reply.said[:200] or f"exit code {reply.code}"


def examine_project(root: str) -> DoctorItem:
    """Whether a run could write its files here."""
    for path in (root, os.path.join(root, ".ralph"), os.path.join(root, ".ralph", "runs")):
        if os.path.lexists(path) and (not os.path.isdir(path) or (path != root and os.path.islink(path))):
            return DoctorItem(
                "project", PROBLEM, f"{path} is a symbolic link or not a directory; a run's files belong there"
            )
        if os.path.isdir(path) and not os.access(path, os.W_OK | os.X_OK):
            return DoctorItem("project", PROBLEM, f"{path} may not be written to, and a run's files belong there")
    return DoctorItem("project", OK, root)


def examine_state_folder(environ: Mapping[str, str]) -> DoctorItem:
    """The state directory."""
    try:
        path = ensure_state_dir(environ)
    except RalphError as error:
        return DoctorItem("state", PROBLEM, str(error))
    disk = os.statvfs(path)
    free = disk.f_bavail * disk.f_frsize
    return DoctorItem(
        "state", NOTE if free < LOW_DISK_BYTES else OK, f"{path}, local disk, {free / (1 << 30):.1f} GiB free"
    )


def examine_settings(root: str, environ: Mapping[str, str]) -> Iterator[DoctorItem]:
    """Whether the settings and the agents in them are valid."""
    try:
        loaded = load_settings(root, environ)
    except SettingsWrong as error:
        yield from (DoctorItem("settings", PROBLEM, problem) for problem in error.problems)
        return
    files = [path for path, digest in loaded.files if digest]
    yield DoctorItem(
        "settings", OK, f"valid: {', '.join(files)}" if files else "no file; defaults hold (make one: ralph init)"
    )
    yield from (DoctorItem("settings", NOTE, warning) for warning in loaded.warnings)
    yield from (DoctorItem("settings", PROBLEM, doubt) for doubt in find_agent_problems(loaded.settings, root, environ))
    yield _examine_checks(loaded, root)


def _examine_checks(loaded: LoadedSettings, root: str) -> DoctorItem:
    """The checks of a run; they are not executed."""
    if named := [one.shown for one in loaded.settings.guardrails]:
        return DoctorItem("checks", OK, f"by the settings: {', '.join(named)}")
    if loaded.chosen("guardrails"):
        return DoctorItem("checks", NOTE, f"none, as {loaded.origins['guardrails']} says: work can only be claimed")
    if found := propose_checks(root):
        return DoctorItem("checks", OK, f"found: {', '.join(f'{one.command} ({one.source})' for one in found)}")
    return DoctorItem("checks", NOTE, "none found: work can only be claimed; name one with --check CMD")


class _NullObserver:
    """An observer that ignores everything."""

    def output(self, chunk: bytes) -> None:
        pass

    def tick(self) -> int:
        return 0


def examine_keeper() -> DoctorItem:
    """Whether the keeper can run a command."""
    with tempfile.TemporaryDirectory(prefix="ralph-doctor-") as folder:
        try:
            end = _run_true(folder)
        except RalphError as error:
            return DoctorItem("keeper", PROBLEM, str(error))
    if not end.clean:
        return DoctorItem("keeper", PROBLEM, f"a command that must succeed did not: {end.why} {end.code} {end.error}")
    how = "whole process trees are ended (subreaper)" if LINUX else "process groups are ended, as far as they hold"
    return DoctorItem("keeper", OK, f"runs commands; {how}")


def _run_true(folder: str) -> Exit:
    path = os.path.join(folder, "doctor")
    command = Command(
        ("/bin/sh", "-c", "true"), folder, (), out=f"{path}.log", turn_file=f"{path}.turn",
        mark=f"doctor-{os.getpid()}/true", timeout_s=10.0,
    )  # fmt: skip
    keeper = KeeperClient()
    try:
        return keeper.run(command, _NullObserver())
    finally:
        keeper.close()


def examine_runs(root: str, environ: Mapping[str, str]) -> Iterator[DoctorItem]:
    """Live, crashed and orphaned runs of this project."""
    try:
        project = view_project(root, environ)
        ledger = project.ledger()
    except RalphError as error:
        yield DoctorItem("ledger", PROBLEM, str(error))
        return
    try:
        rows = [row for row in ledger.runs() if not row.ended]
        for row in rows:
            state = run_state(ledger, row, project)
            if state in (CRASHED, ORPHANED):
                yield DoctorItem("runs", NOTE, f"run {row.id} {_STATE_TEXTS[state]}; close it: ralph cancel {row.id}")
            elif state == RUNNING:
                yield DoctorItem("runs", OK, f"run {row.id} is running in {row.directory} (pid {row.pid})")
        if not rows:
            yield DoctorItem("runs", OK, "none is left open")
    finally:
        ledger.close()


_STATE_TEXTS = {"crashed": "crashed", "orphaned": "lost its harness, and its agent is still at work"}


def examine_terminal() -> DoctorItem:
    """Whether standard output is a terminal and takes UTF-8."""
    encoding = (sys.stdout.encoding or "").lower() if sys.stdout is not None else ""
    at = "a terminal" if sys.stdout is not None and sys.stdout.isatty() else "no terminal"
    if encoding.replace("-", "") == "utf8":
        return DoctorItem("display", OK, f"{at}, UTF-8")
    return DoctorItem("display", NOTE, f"{at}, {encoding or 'unknown encoding'}: letters that it lacks are shown as ?")


NEEDED_PACKAGES = {
    "msgspec": "known agents cannot be used, since their output cannot be read; plain commands can",
    "genai_prices": "the cost of agents that report tokens alone is unknown, but for models in your own prices",
    "ruamel.yaml": "tasks cannot be read from YAML, nor written to it; ralph task create and ralph work go on",
}


@value
class LoginSigns:
    """Signs of a login: names of variables and files, never their content; None if unknown."""

    signs: tuple[str, ...] | None
    how: str

    @property
    def text(self) -> str:
        if self.signs is None:
            return "login unknown"
        return f"login: {', '.join(self.signs)}" if self.signs else f"no sign of a login ({self.how})"


def examine_packages() -> Iterator[DoctorItem]:
    """Missing packages, and what does not work without them."""
    from importlib.util import find_spec

    for name, lost in NEEDED_PACKAGES.items():
        if find_spec(name.partition(".")[0]) is None or find_spec(name) is None:
            yield DoctorItem(name.replace("_", "-"), NOTE, f"not installed: {lost} (pip install ralphproof)")


def examine_agents(root: str, environ: Mapping[str, str]) -> Iterator[DoctorItem]:
    """The known agents on PATH outside the project, and the names of missing ones."""
    path = environ.get("PATH", os.defpath)
    found = {name: there for name in KNOWN_AGENTS if (there := find_program(name, path, outside=root))}
    items = [_examine_agent(name, program, environ) for name, program in found.items()]
    yield from items
    usable = any(item.data and item.data["guard"] for item in items)
    if not usable:
        yield DoctorItem("agents", NOTE, "no known agent with a guard can be used; name one with --agent")
    if absent := ", ".join(name for name in KNOWN_AGENTS if name not in found):
        yield DoctorItem("agents", OK if usable else NOTE, f"not on PATH: {absent}")


def _examine_agent(name: str, program: str, environ: Mapping[str, str]) -> DoctorItem:
    try:
        adapter = load_adapter(name)
    except AgentUnusable as error:
        return DoctorItem(f"agent {name}", NOTE, f"{program}: {error}")
    version, version_error = _agent_version(program, {**environ, **adapter.updates_off})
    login = _find_login(adapter, environ)
    parts = (version or "its version is unknown", *filter(None, (version_error,)), login.text, *_abilities(adapter))
    state = NOTE if version_error or login.signs == () or not adapter.guard else OK
    data: dict[str, Json] = {
        "path": program, "version": version or None, "login": None if login.signs is None else list(login.signs),
        "cost": adapter.cost, "tokens": _reports_tokens(adapter), "live": _reports_live_cost(adapter),
        "guard": adapter.guard or None, "resumes": adapter.resumes, "resets": agent_traits(name).reports_resets,
    }  # fmt: skip
    return DoctorItem(f"agent {name}", state, f"{program}; {'; '.join(parts)}", data)


def _agent_version(program: str, environ: Mapping[str, str]) -> tuple[str, str]:
    """The agent's version and the error, if any. The package is asked first: some programs take seconds.

    A line without digits and dots is no version.
    """
    if packaged := installed_version(program):
        return packaged, ""
    text, error = ask_version(program, environ)
    return text if re.search(r"\d\.\d", text) else "", f"--version failed: {error}" if error else ""


def _reports_live_cost(adapter: AgentAdapter) -> bool:
    """Whether the cost is known during a turn, so that a limit can end it."""
    return adapter.cost in (COST_REPORTED, COST_COMPUTED) and not agent_traits(adapter.name).cost_only_at_end


def _reports_tokens(adapter: AgentAdapter) -> bool:
    return adapter.cost != COST_UNKNOWN or bool(adapter.counts_tokens)


def _abilities(adapter: AgentAdapter) -> Iterator[str]:
    """What the agent supports, and what it does not."""
    when = "as it goes" if _reports_live_cost(adapter) else "at the end"
    known = {
        f"cost {adapter.cost} {when}": adapter.cost in (COST_REPORTED, COST_COMPUTED),
        "tokens": _reports_tokens(adapter),
        f"guarded mode {adapter.guard}".strip(): bool(adapter.guard),
        "resume": adapter.resumes,
        "resets of limits": agent_traits(adapter.name).reports_resets,
    }
    cannot = ["cost" if ability.startswith("cost") else ability for ability, can in known.items() if not can]
    yield f"can: live events, {', '.join(ability for ability, can in known.items() if can)}"
    if cannot:
        yield f"cannot: {', '.join(cannot)}"
    if not adapter.guard:
        yield "needs --sandbox or --no-sandbox"


def _find_login(adapter: AgentAdapter, environ: Mapping[str, str]) -> LoginSigns:
    home = environ.get("HOME") or os.path.expanduser("~")
    signs = tuple(name for name in adapter.credentials if _login_exists(name, home, environ))
    kept_elsewhere = sys.platform == "darwin"  # in the keychain, which is not read
    return LoginSigns(None if not adapter.credentials or (kept_elsewhere and not signs) else signs, adapter.login)


def _login_exists(name: str, home: str, environ: Mapping[str, str]) -> bool:
    if "/" not in name:
        return bool(environ.get(name))
    return os.path.exists(os.path.join(home, name[2:]) if name.startswith("~/") else name)


def examine_sandboxes(root: str, environ: Mapping[str, str]) -> Iterator[DoctorItem]:
    """Try each kind of sandbox; then the resource limits, and whether this project can be sandboxed."""
    found = False
    for kind in (kind for kind in KINDS if kind.is_for_this_system):
        for one in try_backends(kind.name, environ, root):
            found = found or one.problem is None
            yield _sandbox_item(one)
    yield _limits_item()
    if not found:
        yield DoctorItem(
            "sandbox", NOTE, "none holds here; known agents run in their own guarded mode, or --no-sandbox"
        )
    elif wide := _unboxable_reason(root, environ):
        yield DoctorItem("sandbox", NOTE, wide)


def _sandbox_item(result: BackendResult) -> DoctorItem:
    backend, problem = result.backend, result.problem
    engine = getattr(backend, "engine", "")
    data: dict[str, Json] = {
        "name": backend.name, "engine": engine, "works": problem is None,
        "strength": backend.strength if problem is None else "none", "weak": list(backend.weaknesses),
        "why": problem.why if problem else "", "mend": problem.remedy if problem else "",
    }  # fmt: skip
    title = f"sandbox {backend.name}" + (f" ({engine})" if engine else "")
    if problem is None:
        more = tuple(f"weak point: {clause}" for clause in backend.weaknesses)
        return DoctorItem(title, OK, f"holds, {backend.strength}", data, "sandbox", more)
    return DoctorItem(
        title, NOTE, problem.why, data, "sandbox", (f"to mend it: {problem.remedy}",) if problem.remedy else ()
    )


def _limits_item() -> DoctorItem:
    mechanism = find_limit_mechanism(default_resource_limits())
    enforced = " and ".join(mechanism.enforced) or "nothing"
    return DoctorItem("sandbox limits", OK if len(mechanism.enforced) == 2 else NOTE, f"{enforced} by {mechanism.name}")


def _unboxable_reason(root: str, environ: Mapping[str, str]) -> str:
    try:
        home = os.path.realpath(environ.get("HOME") or os.path.expanduser("~"))
        refuse_unsafe_project(root, home, find_state_dir(environ))
    except Refused as error:
        return str(error)
    return ""


OPTIONAL_PACKAGES = (("apprise", "notify", "notifications other than commands"),
          ("matplotlib", "report", "charts as files"),
          ("plotext", "report", "charts in the terminal"), ("opentelemetry", "otel", "spans of runs"),
          ("textual", "tui", "boards in the terminal"), ("uvicorn", "web", "pages in the browser"))  # fmt: skip


def examine_spend(root: str, environ: Mapping[str, str]) -> Iterator[DoctorItem]:
    """The cost of all runs of this UTC day, if any."""
    folder = find_state_dir(environ)
    if not os.path.exists(os.path.join(folder, "spend.db")):
        return
    spend_store = SpendStore.open(folder)
    try:
        limit = load_settings(root, environ).settings.daily_limit_micro_usd
        day = spend_store.day_spend(time.time())
    except SettingsWrong:
        return  # reported by examine_settings
    except RalphError as error:
        yield DoctorItem("spending", PROBLEM, str(error))
        return
    finally:
        spend_store.close()
    if day.unknown_reason:
        yield DoctorItem("spending", PROBLEM, day.unknown_reason)
    else:
        spent = f"{format_usd(day.micro_usd)} of {format_usd(limit)} today (UTC), over all projects"
        yield DoctorItem("spending", OK if day.micro_usd < limit else PROBLEM, spent)


def examine_optional_packages() -> Iterator[DoctorItem]:
    """Optional packages."""
    from importlib.util import find_spec

    installed = {package: find_spec(package) is not None for package, _, _ in OPTIONAL_PACKAGES}
    installed["opentelemetry"] = otel.is_opentelemetry_installed()  # other packages bring parts of it
    for package, extra, what in OPTIONAL_PACKAGES:
        if installed[package]:
            yield DoctorItem(package, OK, f"installed, for {what}")
        else:
            yield DoctorItem(package, NOTE, f"not installed; {what} need it: pip install 'ralphproof[{extra}]'")
