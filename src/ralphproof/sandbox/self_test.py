"""Self-test of a sandbox back end: a probe inside a throw-away project tries to break out."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Mapping

from ralphproof.base import interpreter
from ralphproof.base.programs import ProgramResult, run_program
from ralphproof.base.value import TYPE_CHECKING
from ralphproof.engine.sandbox import Command, CommandWatcher, Exit
from ralphproof.sandbox import runner
from ralphproof.sandbox.docker_sandbox import DockerSandbox
from ralphproof.sandbox.plan import Backend, BackendProblem
from ralphproof.sandbox.planner import SandboxConfig, SandboxPlanner
from ralphproof.sandbox.project_mounts import Placeholders

if TYPE_CHECKING:
    import _socket


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
        shutil.rmtree(folder, ignore_errors=True)


def _run_python_probe(backend: Backend, environ: Mapping[str, str], folder: str) -> BackendProblem | None:
    root, store, outside = _create_folders(folder)
    held, hidden = os.path.join(root, PROTECTED_FILE), os.path.join(outside, "hidden")
    for file in (held, hidden):
        os.close(os.open(file, os.O_WRONLY | os.O_CREAT, 0o600))
    listener = _open_listener()
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
    listener = _open_listener()
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


def _open_listener() -> _socket.socket:
    import _socket

    listener = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    listener.bind(("127.0.0.1", 0))
    listener.listen(1)
    return listener


def _was_connected(listener: _socket.socket) -> bool:
    """Whether a connection was accepted; closes the listener."""
    listener.setblocking(False)
    try:
        os.close(listener._accept()[0])  # type: ignore[attr-defined]
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
