"""What a machine has and lacks, one question a function. Nothing that the repository names is executed."""

from __future__ import annotations

import os
import sys

from ralphproof import __version__, interpreter
from ralphproof.errors import RalphError, SettingsWrong
from ralphproof.value import TYPE_CHECKING, value

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ralphproof.config.load import Loaded
    from ralphproof.sandbox import Exit
    from ralphproof.value import Json

OK, NOTE, PROBLEM = "ok", "note", "problem"
VERSION_S = 5.0
SCARCE_BYTES = 1 << 30
WRONG_PLATFORM = {
    "darwin": "macOS: a process that leaves its group outlives its turn; there is no /proc to find it by",
    "win32": "Windows is not supported: there are no process groups, no flock and no POSIX signals; use WSL",
}


@value
class Item:
    """One answer. A problem makes `ralph run` impossible; a note does not. `data` is the same for programs."""

    name: str
    state: str
    text: str
    data: dict[str, Json] | None = None
    about: str = "agent"  # what the data is of
    more: tuple[str, ...] = ()  # what people read below it


def machine() -> Iterator[Item]:
    """The interpreter and the system."""
    version = ".".join(map(str, sys.version_info[:3]))
    yield Item("ralph", OK, f"{__version__}, Python {version} ({interpreter.executable()})")
    if sys.platform == "linux":
        yield Item("platform", OK, f"Linux {os.uname().release}")
        return
    state = PROBLEM if sys.platform == "win32" else NOTE
    yield Item("platform", state, WRONG_PLATFORM.get(sys.platform, f"{sys.platform} is not tested"))


def git(root: str, environ: Mapping[str, str]) -> Item:
    """The git that bookkeeping uses."""
    from ralphproof.workspaces.gitcall import find_program

    found = find_program("git", environ.get("PATH", os.defpath), outside=root)
    if found is None:
        return Item("git", NOTE, "not found; work is saved as plain copies, without commits")
    here = "" if os.path.lexists(os.path.join(root, ".git")) else "; this project is no git repository"
    version, _ = asked_version(found, environ)
    return Item("git", OK, f"{version or 'its version is unknown'} ({found}){here}")


def asked_version(program: str, environ: Mapping[str, str]) -> tuple[str, str]:
    """What a program answers to --version in one line, and what went wrong; one of them is empty."""
    from ralphproof.workspaces.gitcall import call

    reply = call([program, "--version"], dict(environ), timeout_s=VERSION_S, most_bytes=1 << 20)
    lines = reply.out.decode("utf-8", "replace").strip().splitlines()
    if reply.code == 0 and lines:
        return lines[0][:100], ""
    return "", reply.said[:200] or f"exit code {reply.code}"


def project(root: str) -> Item:
    """Whether a run could keep its files here."""
    for path in (root, os.path.join(root, ".ralph"), os.path.join(root, ".ralph", "runs")):
        if os.path.lexists(path) and (not os.path.isdir(path) or (path != root and os.path.islink(path))):
            return Item("project", PROBLEM, f"{path} is a symbolic link or not a directory; a run's files belong there")
        if os.path.isdir(path) and not os.access(path, os.W_OK | os.X_OK):
            return Item("project", PROBLEM, f"{path} may not be written to, and a run's files belong there")
    return Item("project", OK, root)


def state_folder(environ: Mapping[str, str]) -> Item:
    """Where records are kept."""
    from ralphproof.ledgers.place import state_dir

    try:
        path = state_dir(environ)
    except RalphError as error:
        return Item("state", PROBLEM, str(error))
    disk = os.statvfs(path)
    free = disk.f_bavail * disk.f_frsize
    return Item("state", NOTE if free < SCARCE_BYTES else OK, f"{path}, local disk, {free / (1 << 30):.1f} GiB free")


def settings(root: str, environ: Mapping[str, str]) -> Iterator[Item]:
    """Whether the settings can be used, and the agents that they name."""
    from ralphproof.config.agents import doubts
    from ralphproof.config.load import load

    try:
        loaded = load(root, environ)
    except SettingsWrong as error:
        yield from (Item("settings", PROBLEM, problem) for problem in error.problems)
        return
    files = [path for path, digest in loaded.files if digest]
    yield Item(
        "settings", OK, f"valid: {', '.join(files)}" if files else "no file; defaults hold (make one: ralph init)"
    )
    yield from (Item("settings", NOTE, warning) for warning in loaded.warnings)
    yield from (Item("settings", PROBLEM, doubt) for doubt in doubts(loaded.settings, root, environ))
    yield _checks(loaded, root)


def _checks(loaded: Loaded, root: str) -> Item:
    """What a run would be checked by. Nothing is executed."""
    from ralphproof.config.discover import propose_checks

    if named := [one.shown for one in loaded.settings.guardrails]:
        return Item("checks", OK, f"by the settings: {', '.join(named)}")
    if loaded.chosen("guardrails"):
        return Item("checks", NOTE, f"none, as {loaded.origins['guardrails']} says: work can only be claimed")
    if found := propose_checks(root):
        return Item("checks", OK, f"found: {', '.join(f'{one.command} ({one.source})' for one in found)}")
    return Item("checks", NOTE, "none found: work can only be claimed; name one with --check CMD")


class _Quiet:
    """Watches a command, and wants nothing of it."""

    def output(self, chunk: bytes) -> None:
        """Nothing is expected."""

    def tick(self) -> int:
        return 0


def keeper() -> Item:
    """Whether commands can be run and ended, by running one."""
    import tempfile

    from ralphproof.keeper.tree import LINUX

    with tempfile.TemporaryDirectory(prefix="ralph-doctor-") as folder:
        try:
            end = _run_true(folder)
        except RalphError as error:
            return Item("keeper", PROBLEM, str(error))
    if not end.clean:
        return Item("keeper", PROBLEM, f"a command that must succeed did not: {end.why} {end.code} {end.error}")
    how = "whole process trees are ended (subreaper)" if LINUX else "process groups are ended, as far as they hold"
    return Item("keeper", OK, f"runs commands; {how}")


def _run_true(folder: str) -> Exit:
    from ralphproof.keeper.client import Keeper
    from ralphproof.sandbox import Command

    path = os.path.join(folder, "doctor")
    command = Command(
        ("/bin/sh", "-c", "true"), folder, (), out=f"{path}.log", turn_file=f"{path}.turn",
        mark=f"doctor-{os.getpid()}/true", timeout_s=10.0,
    )  # fmt: skip
    keeper = Keeper()
    try:
        return keeper.run(command, _Quiet())
    finally:
        keeper.close()


def runs(root: str, environ: Mapping[str, str]) -> Iterator[Item]:
    """Runs of this project that did not end in good order."""
    from ralphproof.views.project import Project
    from ralphproof.views.standing import CRASHED, ORPHANED, RUNNING, standing

    try:
        project = Project.seen(root, environ)
        ledger = project.ledger()
    except RalphError as error:
        yield Item("ledger", PROBLEM, str(error))
        return
    try:
        rows = [row for row in ledger.runs() if not row.ended]
        for row in rows:
            where = standing(ledger, row, project)
            if where in (CRASHED, ORPHANED):
                yield Item("runs", NOTE, f"run {row.id} {_WORDS[where]}; close it: ralph cancel {row.id}")
            elif where == RUNNING:
                yield Item("runs", OK, f"run {row.id} is running in {row.directory} (pid {row.pid})")
        if not rows:
            yield Item("runs", OK, "none is left open")
    finally:
        ledger.close()


_WORDS = {"crashed": "crashed", "orphaned": "lost its harness, and its agent is still at work"}


def terminal() -> Item:
    """What standard output can show."""
    encoding = (sys.stdout.encoding or "").lower() if sys.stdout is not None else ""
    at = "a terminal" if sys.stdout is not None and sys.stdout.isatty() else "no terminal"
    if encoding.replace("-", "") == "utf8":
        return Item("display", OK, f"{at}, UTF-8")
    return Item("display", NOTE, f"{at}, {encoding or 'unknown encoding'}: letters that it lacks are shown as ?")
