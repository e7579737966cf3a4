"""Kinds of sandboxes, the choice for a run (the strongest that works, or the one that is named), and their self-test.

In the self-test a probe inside a throw-away project tries to break out.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any

from ralphproof.base import interpreter
from ralphproof.base.errors import Refused
from ralphproof.base.files import remove_tree
from ralphproof.base.programs import ProgramResult, find_program, run_program
from ralphproof.base.value import value
from ralphproof.engine.sandbox import Command, CommandWatcher, Exit
from ralphproof.sandbox import runner
from ralphproof.sandbox.docker_sandbox import DockerSandbox
from ralphproof.sandbox.plan import Backend, BackendProblem
from ralphproof.sandbox.planner import SandboxConfig, SandboxPlanner
from ralphproof.sandbox.project_mounts import Placeholders
from ralphproof.settings.implementations import load_object, plugin_names, resolve_implementation

SANDBOX_VARIABLE = "RALPH_SANDBOX"  # tells an agent which kind of sandbox it is in
AUTO, STRONG = "auto", "strong"
NO_SANDBOX_ADVICE = (
    "--no-sandbox lets a known agent do all that you may do, under the command guard where it has one; without "
    "either flag, and with sandbox.backend null, it runs in its own guarded mode"
)


@value
class SandboxKind:
    """One kind of sandbox. `target` is its class; what that holds is said by its attributes (see `Backend`).

    `platform` is the only system that has it. It needs one of `programs`, each of which is a back end of its own. One
    with `own_tools` is another machine: programs of this one do not run there.
    """

    name: str
    target: str
    platform: str = ""
    programs: tuple[str, ...] = ()
    own_tools: bool = False

    @property
    def is_for_this_system(self) -> bool:
        return self.platform in ("", sys.platform)


# In the order in which they are tried.
KINDS = (
    SandboxKind("bubblewrap", "ralphproof.sandbox.bubblewrap:Bubblewrap", "linux", ("bwrap",)),
    SandboxKind("container", "ralphproof.sandbox.container:Container", programs=("podman", "docker")),
    SandboxKind("docker-sandbox", "ralphproof.sandbox.docker_sandbox:DockerSandbox", "", ("sbx", "docker"), True),
    SandboxKind("sandbox-exec", "ralphproof.sandbox.sandbox_exec:SandboxExec", "darwin"),
    SandboxKind("landlock", "ralphproof.sandbox.landlock:Landlock", "linux"),
)
HOST_TOOL_KIND_NAMES = ", ".join(kind.name for kind in KINDS if not kind.own_tools)


@value
class BackendResult:
    """A back end, and what is wrong with it here; None if it works."""

    backend: Backend
    problem: BackendProblem | None


def known_backends() -> tuple[str, ...]:
    """Values of `--sandbox=`."""
    return (AUTO, *(kind.name for kind in KINDS), *plugin_names("sandboxes"))


def create_backends(name: str, environ: Mapping[str, str], root: str) -> Iterator[Backend]:
    """The back ends of this name: one, or one for each of its programs that is installed."""
    kind = next((kind for kind in KINDS if kind.name == name), None)
    if kind is None:
        yield resolve_implementation("sandboxes", name)()
        return
    create: Any = load_object(kind.target)
    path = environ.get("PATH", os.defpath)
    found = [(program, find_program(program, path, outside=root)) for program in kind.programs]
    installed = [(program, where) for program, where in found if where]
    if not kind.programs:
        yield create()
    for program, where in installed or found[:1]:
        # With our own environment: not the agent's.
        yield create(where) if len(kind.programs) == 1 else create(program, where)


def try_backends(name: str, environ: Mapping[str, str], root: str) -> Iterator[BackendResult]:
    """Every back end of this name, with the result of its self-test where nothing else is wrong."""
    for backend in create_backends(name, environ, root):
        yield BackendResult(backend, backend.problem() or run_self_test(backend, environ))


def choose_backend(name: str, environ: Mapping[str, str], root: str) -> Backend:
    """The strongest back end that works, or the named one; raises Refused with the problems and remedies."""
    names = tuple(kind.name for kind in KINDS if kind.is_for_this_system) if name == AUTO else (name,)
    partial: list[Backend] = []
    failed: list[BackendResult] = []
    for one in (one for each in names for one in try_backends(each, environ, root)):
        if one.problem is not None:
            failed.append(one)
        elif one.backend.strength == STRONG:
            return one.backend
        else:
            partial.append(one.backend)
    if partial:
        return partial[0]
    several = name == AUTO
    told = "; ".join(
        f"{one.backend.name}: {describe_problem(one.problem)}" if several else describe_problem(one.problem)
        for one in failed
        if one.problem
    )
    what = "no sandbox works here" if several else f"sandbox {name} does not work here"
    raise Refused(f"{what}: {told}. {NO_SANDBOX_ADVICE}")


def describe_problem(problem: BackendProblem) -> str:
    return f"{problem.why} ({problem.remedy})" if problem.remedy else problem.why


def backend_name_problem(name: str | None) -> str:
    """What is wrong with the name of a back end; empty if nothing is."""
    if name is None or name in known_backends() or ":" in name:
        return ""
    return f"is no kind of sandbox; there are: {', '.join(known_backends())}"


# Self-test.


SELF_TEST_TIMEOUT_S = 60.0  # a container engine's first start takes seconds
PROTECTED_FILE = "held"
ENTERED_LINE = "ralph-trial-entered"
# Probe for a virtual machine: sh OUTSIDE HIDDEN PORT PID ROOT
SHELL_PROBE = f"""exec 2>/dev/null
(: > "$1/probe"); (: > "$5/probe"); cat "$2"
curl -s -m 2 "http://127.0.0.1:$3/"; bash -c "exec 3<>/dev/tcp/127.0.0.1/$3"; nc -z -w 2 127.0.0.1 "$3" </dev/null
kill -0 "$4" && tr '\\0' ' ' < "/proc/$4/cmdline"
echo; echo {ENTERED_LINE}"""
APPARMOR_REMEDY = (
    "Ubuntu 24.04 and later: allow it with an AppArmor profile for bwrap that says `userns,`, or "
    "sysctl kernel.apparmor_restrict_unprivileged_userns=0"
)
REMEDIES = (
    ("uid map", APPARMOR_REMEDY),
    ("RTM_NEWADDR", APPARMOR_REMEDY),
    ("No permissions to create new namespace", "allow user namespaces: sysctl kernel.unprivileged_userns_clone=1"),
    ("Creating new namespace failed", "allow user namespaces: sysctl user.max_user_namespaces=10000"),
    ("cgroups in hybrid mode", "install runc: apt install runc"),
)


def run_self_test(backend: Backend, environ: Mapping[str, str]) -> BackendProblem | None:
    """What is wrong with the back end, found by trying to escape; None if it holds.

    Creating a virtual machine is slow: one that passed is not tried again until its program changes.
    """
    machine = _as_virtual_machine(backend)
    if machine and machine.has_passed_self_test():
        return None
    folder = os.path.realpath(tempfile.mkdtemp(prefix="ralph-trial-"))
    try:
        problem = (_run_shell_probe if machine else _run_python_probe)(backend, environ, folder)
        if problem is None and machine:
            machine.record_self_test()
        return problem
    finally:
        remove_tree(folder)


def _run_python_probe(backend: Backend, environ: Mapping[str, str], folder: str) -> BackendProblem | None:
    root, store, outside = _create_folders(folder)
    held, hidden = os.path.join(root, PROTECTED_FILE), os.path.join(outside, "hidden")
    for file in (held, hidden):
        os.close(os.open(file, os.O_WRONLY | os.O_CREAT, 0o600))
    listener = socket.create_server(("127.0.0.1", 0), backlog=1)
    what = {
        "root": root, "outside": outside, "hidden": hidden, "held": held if backend.protects_paths else "",
        "port": listener.getsockname()[1], "pid": os.getpid(),
    }  # fmt: skip
    program = os.path.join(os.path.dirname(runner.LAUNCHER), "escape_probe.py")
    reply = run_inside(
        backend, _sandbox_config(root, store, environ), interpreter.script_command(program, json.dumps(what))
    )
    listener.close()
    return reply if isinstance(reply, BackendProblem) else _judge_probe(reply)


def _run_shell_probe(backend: Backend, environ: Mapping[str, str], folder: str) -> BackendProblem | None:
    """The same for a virtual machine. It may have no Python, and may have files of these names: the result is judged
    outside.
    """
    root, store, outside = _create_folders(folder)
    hidden, token = os.path.join(outside, "hidden"), os.urandom(16).hex()
    with open(hidden, "w", encoding="ascii") as file:
        file.write(token)
    listener = socket.create_server(("127.0.0.1", 0), backlog=1)
    words = (outside, hidden, str(listener.getsockname()[1]), str(os.getpid()), root)
    reply = run_inside(backend, _sandbox_config(root, store, environ), ("sh", "-c", SHELL_PROBE, "sh", *words))
    if isinstance(reply, BackendProblem):
        return reply
    said = reply.out.decode("utf-8", "replace")
    if ENTERED_LINE not in said:
        return BackendProblem(f"it cannot be entered: {(reply.said or f'it ended with code {reply.code}')[:300]}")
    found = {
        "files outside the project can be written": os.path.exists(os.path.join(outside, "probe")),
        "files outside the project can be read": token in said,
        "this machine's ports can be reached": _was_connected(listener),
        "other processes can be signalled": _own_command_line() in said,
        "the project may not be written": not os.path.exists(os.path.join(root, "probe")),
    }
    wrong = "; ".join(what for what, true in found.items() if true)
    return BackendProblem(f"it was tried, and {wrong}") if wrong else None


def _as_virtual_machine(backend: Backend) -> DockerSandbox | None:
    """The back end if it is a virtual machine, which is slow to create and stays until it is removed."""
    found: DockerSandbox | None = backend if getattr(backend, "is_virtual_machine", False) else None  # type: ignore[assignment]
    return found


def _create_folders(folder: str) -> tuple[str, str, str]:
    root, store, outside = (os.path.join(folder, name) for name in ("project", "store", "outside"))
    for made in (root, store, outside):
        os.mkdir(made, 0o700)
    return root, store, outside


def _was_connected(listener: socket.socket) -> bool:
    """Whether a connection was accepted; closes the listener."""
    listener.setblocking(False)
    try:
        listener.accept()[0].close()
    except BlockingIOError:
        return False
    finally:
        listener.close()
    return True


def _own_command_line() -> str:
    """Command line of this process, as the probe would print it."""
    try:
        with open("/proc/self/cmdline", "rb") as file:
            return file.read().replace(b"\0", b" ").decode("utf-8", "replace").strip()
    except OSError:
        return ENTERED_LINE * 2  # this system tells nobody


def _sandbox_config(root: str, store: str, environ: Mapping[str, str]) -> SandboxConfig:
    return SandboxConfig(root, store, "", tuple(environ.items()), protected=(PROTECTED_FILE,))


def run_inside(backend: Backend, config: SandboxConfig, program: tuple[str, ...]) -> ProgramResult | BackendProblem:
    """Run a program inside; its result, or why it could not be started."""
    base = os.path.join(config.store, "trial")
    command = Command(program, config.root, config.environ, f"{base}.log", f"{base}.turn", "trial/0")
    owner, planner = _CapturingOwner(), SandboxPlanner(config, backend)
    sandbox = runner.SandboxedRunner(owner, backend, planner, Placeholders(planner.private))
    try:
        end = sandbox.run(command, runner.Unwatched())
    finally:
        if machine := _as_virtual_machine(backend):
            machine.remove(planner.plan(command))
    return owner.result or BackendProblem(end.error.removeprefix(f"sandbox {backend.name}: "))


class _CapturingOwner:
    """Runs one command and keeps its output."""

    result: ProgramResult | None = None

    def run(self, command: Command, watch: CommandWatcher) -> Exit:
        self.result = run_program(list(command.argv), dict(command.env), timeout_s=SELF_TEST_TIMEOUT_S)
        return Exit(self.result.code)


def _judge_probe(reply: ProgramResult) -> BackendProblem | None:
    try:
        answer = json.loads(reply.out)
        open_, closed = list(answer["open"]), list(answer["closed"])
    except (ValueError, KeyError, TypeError):
        why = reply.said or f"it ended with code {reply.code}"
        return BackendProblem(
            f"it cannot be entered: {why[:300]}", next((mend for sign, mend in REMEDIES if sign in why), "")
        )
    wrong = "; ".join(map(str, (*open_, *closed)))
    return BackendProblem(f"it was tried, and {wrong}") if wrong else None
