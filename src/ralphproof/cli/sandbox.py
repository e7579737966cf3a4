"""`ralph sandbox`: run a command in the sandbox, or explain what it permits."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ralphproof.agents.environment import agent_environment
from ralphproof.agents.selection import KNOWN_AGENTS, load_adapter
from ralphproof.base.errors import Refused
from ralphproof.base.escaping import sanitize
from ralphproof.base.value import Json, replace
from ralphproof.cli.parser import Parser
from ralphproof.display.output import print_result
from ralphproof.engine.sandbox import Command
from ralphproof.runs.open_project import open_project
from ralphproof.runs.spec import describe_sandbox_overrides, override_committed_sandbox
from ralphproof.sandbox.plan import EMPTY_FOLDER, READ_ONLY, WRITABLE, Backend, Mount, SandboxPlan, filter_environment
from ralphproof.sandbox.planner import SandboxConfig, SandboxPlanner
from ralphproof.sandbox.resource_limits import find_limit_mechanism
from ralphproof.sandbox.runner import run_in_sandbox
from ralphproof.sandbox.selection import choose_backend
from ralphproof.settings.declarations import Settings
from ralphproof.settings.loader import load_settings
from ralphproof.store.project import Project

ABOUT = """Run a command in the sandbox that a run would use, or explain what that sandbox permits.

The project's settings apply, and flags override them. Without a kind it is the strongest available. Network access is
logged; the log is named if something was blocked.
Exit codes: run returns that of the command, 126 or 127 if it could not be started; 2 refused."""
EXAMPLES = (
    "ralph sandbox explain",
    "ralph sandbox explain --agent claude --json",
    "ralph sandbox run -- make test",
    "ralph sandbox run --allow-host pypi -- pip download requests",
    "ralph sandbox run --sandbox=landlock -- bash",
)
NO_COMMAND = "no command; use: ralph sandbox run -- CMD ARGUMENT ..."


def sandbox_parser() -> Parser:
    parser = Parser("sandbox", ABOUT, EXAMPLES)
    add = parser.add
    add("what", "run a command inside, or explain what the sandbox permits", choices=("run", "explain"))
    add("command", "with run: command and arguments, after --", nargs="*", metavar="-- CMD")
    add("--sandbox [=KIND]", "kind of sandbox (default: that of the settings, else the strongest)")
    add("--allow-host HOST", "host that may be reached; repeatable", action="append")
    add("--protect PATH", "file or folder that may not be changed; repeatable", action="append")
    add("--agent NAME", "add what a known agent needs: its state, login and service")
    return parser


def sandbox_main(argv: list[str]) -> int:
    at = argv.index("--") if "--" in argv else len(argv)
    args = sandbox_parser().parse(argv[:at])
    if args.command:
        raise Refused(f"put the command after --: ralph sandbox {args.what} -- {' '.join(args.command)}")
    args.command = argv[at + 1 :]
    if (args.what == "run") != bool(args.command):
        raise Refused(NO_COMMAND if args.what == "run" else "explain takes no command; to run one: ralph sandbox run")
    project, settings = _load_settings(args)
    backend = choose_backend(settings.sandbox.backend or "auto", os.environ, project.root)
    config = _sandbox_scope(project, settings, args.agent or "")
    if args.what == "explain":
        return _print_sandbox(backend, config, args)
    _refuse_unenforced_paths(backend, args.protect or (), settings.protected_paths)
    return run_in_sandbox(backend, config, tuple(args.command), args.agent or "")


def _refuse_unenforced_paths(backend: Backend, requested: Iterable[str], protected: Iterable[str]) -> None:
    """Refuse --protect in a sandbox that cannot enforce it: unlike a run, nothing checks the files afterwards."""
    if backend.protects_paths:
        return
    if paths := ", ".join(requested):
        raise Refused(
            f"sandbox {backend.name} cannot protect {paths}; leave out --protect, or use a kind "
            "that can, such as --sandbox=bubblewrap"
        )
    if paths := ", ".join(protected):
        print(sanitize(f"note: sandbox {backend.name} does not protect {paths}"), file=sys.stderr)


def _load_settings(args: Namespace) -> tuple[Project, Settings]:
    """The project, and its settings with the flags applied."""
    project = open_project(args.project_dir, os.environ)
    loaded = load_settings(project.root, os.environ, {})
    paths, kind = loaded.settings.protected_paths, {"backend": args.sandbox} if args.sandbox else {}
    overrides = override_committed_sandbox(loaded, project.root, os.environ, {"sandbox": kind})
    for line in describe_sandbox_overrides(loaded, overrides):
        print(sanitize(f"note: {line}"), file=sys.stderr)
    hosts = overrides.get("allowHosts", loaded.settings.sandbox.allow_hosts)
    sandbox = {**overrides, **kind, "allowHosts": list(dict.fromkeys((*hosts, *(args.allow_host or ()))))}
    flags: dict[str, Any] = {"sandbox": sandbox, "protectedPaths": list(dict.fromkeys((*paths, *(args.protect or ()))))}
    return project, load_settings(project.root, os.environ, flags).settings


def _sandbox_scope(project: Project, settings: Settings, agent: str) -> SandboxConfig:
    if agent and agent not in KNOWN_AGENTS:
        raise Refused(f"--agent {agent} is not known; known agents: {', '.join(KNOWN_AGENTS)}")
    requirements = ((agent, load_adapter(agent).requirements),) if agent else ()
    env, sandbox = agent_environment(os.environ, settings), settings.sandbox
    return SandboxConfig(
        project.root, project.store, "", env, settings.protected_paths, (), sandbox.allow_hosts,
        sandbox.allow_local_ports,
        tuple(map(os.path.expanduser, sandbox.read_paths)), requirements,
        tuple(name for name, _ in settings.agent.env), env,
    )  # fmt: skip


def _print_sandbox(backend: Backend, config: SandboxConfig, args: Namespace) -> int:
    path = os.path.join(config.store, "explained")
    command = Command((), config.root, config.environ, f"{path}.log", f"{path}.turn", "", agent=args.agent or "")
    plan = replace(SandboxPlanner(config, backend).plan(command), cwd=config.root)
    print_result(args.json, "sandbox", sandbox_json(backend, plan), *sandbox_lines(backend, plan))
    return 0


# What the sandbox permits, as text and JSON.


GIB = 1 << 30
SOCKET_CAVEAT = (
    "a socket in the project that a process outside begins to serve after the command began can be connected to"
)


def sandbox_json(backend: Backend, plan: SandboxPlan) -> dict[str, Json]:
    mechanism, enforced = _enforced_limits(backend, plan)
    return {
        "name": backend.name,
        "strength": backend.strength,
        "weak": list(_weak_points(backend)),
        "project": plan.root,
        "writable": list(_paths_with_access(plan, WRITABLE)),
        "readable": list(_paths_with_access(plan, READ_ONLY)),
        "fresh": list(_paths_with_access(plan, EMPTY_FOLDER)),
        "protected": list(plan.protection.names),
        "notToComeToBe": [os.path.relpath(path, plan.root) for path in plan.protection.placeholders],
        "allowHosts": list(plan.egress.hosts),
        "allowLocalPorts": list(plan.egress.local_ports),
        "variables": list(plan.passed_variables),
        "limits": {
            "by": mechanism,
            "held": list(enforced),
            "memoryBytes": plan.limits.memory_bytes,
            "processes": plan.limits.processes,
        },
    }


def sandbox_lines(backend: Backend, plan: SandboxPlan) -> Iterator[str]:
    yield f"sandbox {backend.name}, {backend.strength}"
    yield from (f"  weak point: {clause}" for clause in _weak_points(backend))
    yield "may be written:"
    yield from (f"  {path}" for path in _paths_with_access(plan, WRITABLE))
    yield from (f"  {path} (fresh, and gone afterwards)" for path in _paths_with_access(plan, EMPTY_FOLDER))
    if backend.protects_paths:
        yield "may not be written, although it lies there:"
        yield from (f"  {name}" for name in plan.protection.names)
        yield from (
            f"  {os.path.relpath(path, plan.root)} (may not come to be either)" for path in plan.protection.placeholders
        )
    yield "may be read:"
    yield from (f"  {path}" for path in _paths_with_access(plan, READ_ONLY) if not path.startswith(plan.root + "/"))
    hosts = ", ".join(plan.egress.hosts) or "none"
    yield f"may be called: {hosts}"
    if ports := ", ".join(map(str, plan.egress.local_ports)):
        yield f"ports of this machine: {ports}"
    stay = ", ".join(sorted(filter_environment(os.environ, plan.passed_variables)))
    yield f"variables that stay, of those that are set: {stay}"
    yield _limit_lines(backend, plan)


def _weak_points(backend: Backend) -> tuple[str, ...]:
    """Weaknesses of the back end, with the one that all back ends with mounts share."""
    return (
        (*backend.weaknesses, SOCKET_CAVEAT) if backend.protects_paths and backend.can_remount else backend.weaknesses
    )


def _limit_lines(backend: Backend, plan: SandboxPlan) -> str:
    limits, (by, what) = plan.limits, _enforced_limits(backend, plan)
    memory = f"memory {limits.memory_bytes / GIB:.1f} GiB"
    named = {"memory": memory, "processes": f"{limits.processes} processes"}
    held = ", ".join(named[one] for one in what if one in named)
    return f"limited: {held} (by {by})" if held else "limited: nothing"


def _enforced_limits(backend: Backend, plan: SandboxPlan) -> tuple[str, tuple[str, ...]]:
    """The mechanism and what it limits."""
    if own := getattr(backend, "limited_by", ""):
        return own, ("memory", "processes")
    by = find_limit_mechanism(plan.limits)
    return by.name, by.enforced


def _paths_with_access(plan: SandboxPlan, kind: str) -> Iterator[str]:
    """Mounts of this kind, without covers and without folders that are only pinned above a protected path."""
    for at, mount in enumerate(plan.mounts):
        covered = mount.source == os.devnull or mount.source.endswith("/empty")
        if (
            mount.kind == kind
            and not covered
            and not (kind == WRITABLE and _format_limit(plan.mounts[:at], mount.path) == WRITABLE)
        ):
            yield mount.path


def _format_limit(mounts: Sequence[Mount], path: str) -> str:
    """The kind of the innermost mount above a path; empty if there is none."""
    around = [one for one in mounts if path.startswith(one.path.rstrip("/") + "/")]
    return around[-1].kind if around else ""
