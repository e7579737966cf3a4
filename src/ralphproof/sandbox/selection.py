"""Kinds of sandboxes, and the choice for a run: the strongest that works here, or the one that is named."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from ralphproof.base.errors import Refused
from ralphproof.base.programs import find_program
from ralphproof.base.value import value
from ralphproof.sandbox.plan import Backend, BackendProblem
from ralphproof.sandbox.self_test import run_self_test
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
KIND_NAMES = ", ".join(kind.name for kind in KINDS)  # for help texts
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
