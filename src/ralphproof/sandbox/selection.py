"""Choosing the sandbox back end of a run: the strongest that works here, or the one that is named."""

from __future__ import annotations

import os
import sys

from ralphproof.base.errors import Refused
from ralphproof.base.programs import find_program
from ralphproof.base.value import TYPE_CHECKING, value
from ralphproof.sandbox.plan import BackendProblem
from ralphproof.settings.registry import BUILTIN, plugin_names, resolve_implementation

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from ralphproof.sandbox.plan import Backend
    from ralphproof.sandbox.planner import SandboxConfig
    from ralphproof.sandbox.runner import ProcessOwner, SandboxedRunner


SANDBOX_VARIABLE = "RALPH_SANDBOX"  # tells an agent which kind of sandbox it is in
CONTAINER_NAME_FLAG, CONTAINER_REMOVAL_S = "--name", 30.0


def describe_resource_limits(backend: Backend) -> str:
    """What a sandbox limits, and by what: `memory and processes by cgroup v1`."""
    from ralphproof.sandbox.planner import default_resource_limits
    from ralphproof.sandbox.resource_limits import find_limit_mechanism

    if own := getattr(backend, "limited_by", ""):
        return f"memory and processes by {own}"
    by = find_limit_mechanism(default_resource_limits())
    return f"{' and '.join(by.enforced) or 'nothing'} by {by.name}" if by.enforced else "nothing"


def wrap_in_sandbox(owner: ProcessOwner, backend: Backend, config: SandboxConfig) -> SandboxedRunner:
    """A runner with a sandbox of this kind. Stale placeholders are removed."""
    from ralphproof.sandbox.planner import SandboxPlanner
    from ralphproof.sandbox.read_only_paths import Placeholders
    from ralphproof.sandbox.runner import SandboxedRunner

    planner = SandboxPlanner(config, backend)
    placeholders = Placeholders(planner.private)
    placeholders.release()
    return SandboxedRunner(owner, backend, planner, placeholders, describe_resource_limits(backend))


def remove_sandbox_leftovers(store: str, root: str, run: str) -> None:
    """Remove placeholders, temporary folders and containers of a run that died."""
    if not os.path.isdir(os.path.join(store, "box")):
        return
    from ralphproof.sandbox.planner import sandbox_state_folder
    from ralphproof.sandbox.read_only_paths import Placeholders
    from ralphproof.sandbox.runner import LAUNCH_SPEC_SUFFIX, REPORT_SUFFIX

    Placeholders(sandbox_state_folder(store, root)).release()
    folder = os.path.join(store, "runs", run)
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
        base, ending = os.path.splitext(os.path.join(folder, name))
        if ending == LAUNCH_SPEC_SUFFIX and not os.path.exists(base + REPORT_SUFFIX):
            _end_leftover_sandbox(os.path.join(folder, name))


def _end_leftover_sandbox(file: str) -> None:
    """Clean up for a launcher that was killed."""
    from ralphproof.base.programs import run_program
    from ralphproof.sandbox.plan import read_launch_spec, remove_temp_folder

    try:
        spec = read_launch_spec(file)
    except (OSError, ValueError, TypeError):
        return
    remove_temp_folder(spec.plan.temp)
    argv = spec.entry.argv
    if CONTAINER_NAME_FLAG in argv:
        removal = (argv[0], "rm", "--force", argv[argv.index(CONTAINER_NAME_FLAG) + 1])
        if not run_program(removal, timeout_s=CONTAINER_REMOVAL_S, env=os.environ).good:
            # If podman's monitor was killed too, the first call only notices that.
            run_program(removal, timeout_s=CONTAINER_REMOVAL_S, env=os.environ)


AUTO, DIRECT = "auto", "direct"
STRONG, PARTIAL, NONE = "strong", "partial", "none"
# In the order of trial; engines of the same kind share a name.
BACKEND_ORDER = ("bubblewrap", "container", "docker-sandbox", "sandbox-exec", "landlock")
BACKEND_PROGRAMS = {"bubblewrap": ("bwrap",), "container": ("podman", "docker"), "docker-sandbox": ("sbx", "docker")}
NO_SANDBOX_ADVICE = (
    "--no-sandbox lets a known agent do all that you may do, under the command guard where it has one; without "
    "either flag, and with sandbox.backend null, it runs in its own guarded mode"
)


@value
class BackendResult:
    """A back end, and what is wrong with it here; None if it works."""

    backend: Backend
    problem: BackendProblem | None


def known_backends() -> tuple[str, ...]:
    """Values of `--sandbox=`."""
    return (AUTO, *BACKEND_ORDER, *plugin_names("sandboxes"))


def create_backends(name: str, environ: Mapping[str, str], root: str) -> Iterator[Backend]:
    """The back ends of this name: one, or one for each engine."""
    path = environ.get("PATH", os.defpath)
    kind: Any = resolve_implementation("sandboxes", name)
    programs = BACKEND_PROGRAMS.get(name)
    if programs is None:
        yield kind()
        return
    found = [(one, find_program(one, path, outside=root)) for one in programs]
    there = [(one, where) for one, where in found if where] or found[:1]
    for one, where in there:
        yield kind(where) if len(programs) == 1 else kind(one, where)  # with our own environment: not the agent's


def try_backends(name: str, environ: Mapping[str, str], root: str) -> Iterator[BackendResult]:
    """Every back end of this name, with the result of its self-test where nothing else is wrong."""
    from ralphproof.sandbox.self_test import run_self_test

    for backend in create_backends(name, environ, root):
        yield BackendResult(backend, backend.problem() or run_self_test(backend, environ))


def choose_backend(name: str, environ: Mapping[str, str], root: str) -> Backend:
    """The strongest back end that works, or the named one; raises Refused with the problems and remedies."""
    names = BACKEND_ORDER if name == AUTO else (name,)
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
        if one.problem and _is_relevant(one, name)
    )
    what = "no sandbox works here" if several else f"sandbox {name} does not work here"
    raise Refused(f"{what}: {told}. {NO_SANDBOX_ADVICE}")


def describe_problem(problem: BackendProblem) -> str:
    return f"{problem.why} ({problem.remedy})" if problem.remedy else problem.why


def _is_relevant(one: BackendResult, name: str) -> bool:
    """Back ends of other systems are not worth mentioning unless they were asked for."""
    return name != AUTO or (one.backend.name == "sandbox-exec") == (sys.platform == "darwin")


def backend_name_problem(name: str | None) -> str:
    """What is wrong with the name of a back end; empty if nothing is."""
    if name is None or name in known_backends() or ":" in name or name in BUILTIN["sandboxes"]:
        return ""
    return f"is no kind of sandbox; there are: {', '.join(known_backends())}"
