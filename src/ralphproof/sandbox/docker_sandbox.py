"""Docker Sandboxes back end (`sbx`, `docker sandbox`): a micro virtual machine for each project."""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ralphproof.base.files import replace_file
from ralphproof.base.programs import ProgramResult, find_program, run_program
from ralphproof.base.value import pack, replace, unpack, value
from ralphproof.engine.sandbox import Command
from ralphproof.sandbox.plan import (
    PROXY_BUILT_IN,
    READ_ONLY,
    TURN_VARIABLE,
    WRITABLE,
    BackendProblem,
    Mount,
    SandboxEntry,
    SandboxPlan,
    is_within,
    passed_variable_names,
)
from ralphproof.store.project import find_state_dir

# What `sbx` and the older `docker sandbox` have in common. Calls have a closed stdin and a timeout, because nobody can
# answer a question.


SBX, DOCKER = "sbx", "docker"
ANSWER_TIMEOUT_S, WORK_TIMEOUT_S, CREATE_TIMEOUT_S = 30.0, 120.0, 900.0  # the first one of a kind loads an image
# Agents with a template of their own; others use the shell template.
TEMPLATES = ("claude", "codex", "copilot", "gemini", "kiro", "opencode")
SBX_TEMPLATES = (*TEMPLATES, "cursor", "droid")
SHELL_TEMPLATE = "shell"
SBX_ADVICE = "run `sbx ls` in a terminal once: it asks for a login and for a network policy (sbx policy init balanced)"
DOCKER_ADVICE = "start Docker Desktop 4.58 or later and enable its sandboxes, or install sbx"


@value
class ExistingSandbox:
    """A sandbox as `ls` lists it. `workspaces` are folders, some with `:ro`; None if the program does not list them."""

    name: str
    workspaces: tuple[str, ...] | None


class DockerCli:
    """One of the two programs; `program` is its path, None if neither is installed."""

    def __init__(
        self, kind: str, program: str | None, environ: Mapping[str, str], answer_s: float | None = None
    ) -> None:
        self.kind, self._program, self._environ, self._answer_s = kind, program, environ, answer_s or ANSWER_TIMEOUT_S

    @property
    def prefix(self) -> tuple[str, ...]:
        """The words that every call begins with."""
        return (self._program or self.kind, *(() if self.kind == SBX else ("sandbox",)))

    def call(self, *words: str, timeout_s: float | None = None) -> ProgramResult:
        return run_program((*self.prefix, *words), timeout_s=timeout_s or self._answer_s, env=self._environ)

    def problem(self) -> BackendProblem | None:
        """Why it cannot be used, with a remedy."""
        if not self._program:
            return BackendProblem(
                "neither sbx nor docker is installed", "install Docker's sbx: https://docs.docker.com/ai/sandboxes/"
            )
        version, mend = self.call("version"), SBX_ADVICE if self.kind == SBX else DOCKER_ADVICE
        # A docker without sandboxes prints how it is used; some versions of it then end with 0.
        if not version.good or b"Usage:" in version.out + version.err or not any(map(str.isdigit, version.text)):
            return BackendProblem(f"{' '.join((self.kind, *self.prefix[1:]))} does not answer ({version.why})", mend)
        found = self.sandboxes()
        return BackendProblem(found, mend) if isinstance(found, str) else None

    def identity(self) -> str:
        """Identifies this installation of the program; changes when it is replaced. Empty if there is none."""
        try:
            path = os.path.realpath(self._program or "")
            state = os.stat(path)
        except OSError:
            return ""
        version = " ".join(self.call("version").text.split())
        return f"{path} {state.st_size} {state.st_mtime_ns} {version}"

    def template(self, agent: str) -> str:
        """Template of the sandbox for this agent."""
        return agent if agent in (SBX_TEMPLATES if self.kind == SBX else TEMPLATES) else SHELL_TEMPLATE

    def sandboxes(self) -> tuple[ExistingSandbox, ...] | str:
        """All existing sandboxes, or why they cannot be listed."""
        answer = self.call("ls", "--json")
        answered = _parse_json_answer(answer.text) if answer.good else None
        listed = answered.get("vms", answered.get("sandboxes")) if isinstance(answered, dict) else answered
        if not isinstance(listed, list):
            return f"the sandboxes cannot be listed ({answer.why if not answer.good else 'the answer is no list'})"
        return tuple(_parse_existing_sandbox(one) for one in listed if isinstance(one, dict))

    def attempt(self, failure: str, *words: str, timeout_s: float = WORK_TIMEOUT_S) -> str:
        """Make a call; the failure and its reason, empty if it succeeded."""
        done = self.call(*words, timeout_s=timeout_s)
        return "" if done.good else f"{failure}: {done.why}"

    def remove(self, name: str) -> str:
        force = ("--force",) if self.kind == SBX else ()
        return self.attempt("the sandbox cannot be removed", "rm", *force, name)

    def run_script(self, name: str, script: str, *words: str, root: bool = False) -> str:
        """Run a shell script inside, as root or as the agent's user; the reason if that failed."""
        user = ("-u", "root") if root else ()
        return self.attempt("sh failed in the sandbox", "exec", *user, name, "sh", "-c", script, "sh", *words)

    def set_policy(self, name: str, hosts: Iterable[str], dropped: Iterable[str]) -> str:
        """Allow these hosts and no others; `dropped` are hosts that were allowed before."""
        words = [word for host in hosts for word in ("--allow-host", host)]
        words += [word for host in dropped for word in ("--block-host", host)]
        failure = "the network policy cannot be set"
        return self.attempt(failure, "network", "proxy", name, "--policy", "deny", *words)


def _parse_existing_sandbox(answered: dict[str, Any]) -> ExistingSandbox:
    found = answered.get("workspaces")
    return ExistingSandbox(str(answered.get("name", "")), tuple(map(str, found)) if isinstance(found, list) else None)


def _parse_json_answer(text: str) -> Any:
    """The JSON part of the output; a service that had to be started may print lines before it."""
    lines = text.splitlines()
    first = next((place for place, line in enumerate(lines) if line.lstrip().startswith(("{", "["))), len(lines))
    try:
        return json.loads("\n".join(lines[first:]))
    except ValueError:
        return None


# Stored state of a sandbox that keeps copies of the project's files. A file is copied into it only once: later edits on
# the host are ignored until the sandbox is stopped (Docker Desktop 4.58).


SKIPPED_FOLDER = ".git/objects"  # large, and never changed in place


@value
class DockerSandboxState:
    """Stored state of one sandbox.

    `links` are links in the home of its user. `hosts` are allowed hosts by agent. `files` are the project's files when
    they were last stable; None if they were never scanned.
    """

    workspaces: tuple[str, ...] = ()
    links: tuple[tuple[str, str], ...] = ()
    hosts: Mapping[str, tuple[str, ...]] | None = None
    files: Mapping[str, str] | None = None


def read_sandbox_state(path: str) -> DockerSandboxState | None:
    """The stored state; None if there is none or it cannot be read."""
    try:
        with open(path, "rb") as file:
            state = unpack(json.load(file))
    except (OSError, ValueError, TypeError):
        return None
    return state if isinstance(state, DockerSandboxState) else None


def write_sandbox_state(path: str, state: DockerSandboxState) -> None:
    """Written atomically, readable by the user alone."""
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    replace_file(path, json.dumps(pack(state)).encode(), durable=False)


def scan_project_files(root: str) -> dict[str, str]:
    """Every file of the project with its size and modification time."""
    found: dict[str, str] = {}
    folders = [""]
    while folders:
        folder = folders.pop()
        try:
            entries = list(os.scandir(os.path.join(root, folder)))
        except OSError:
            continue
        for entry in entries:
            path = f"{folder}/{entry.name}" if folder else entry.name
            if path == SKIPPED_FOLDER:
                continue
            if entry.is_dir(follow_symlinks=False):
                folders.append(path)
                continue
            try:
                state = entry.stat(follow_symlinks=False)
            except OSError:
                continue
            found[path] = f"{state.st_size}.{state.st_mtime_ns}"
    return found


def find_stale_files(then: Mapping[str, str], now: Mapping[str, str]) -> tuple[str, ...]:
    """Files that the sandbox has a copy of and that were changed or removed on the host. New files are copied by
    themselves.
    """
    return tuple(path for path, state in then.items() if now.get(path) != state)


def wait_until_unchanged(root: str, pause_s: float, pauses: int, sleep: Callable[[float], None]) -> dict[str, str]:
    """The project's files, once two scans agree, or after this many pauses."""
    seen = scan_project_files(root)
    for _ in range(pauses):
        sleep(pause_s)
        again = scan_project_files(root)
        if again == seen:
            break
        seen = again
    return seen


# What a box means to a virtual machine that has tools of its own: which folders, links, variables and hosts.


# Folders that the machine has itself; it also has dot folders of the home.
GUEST_FOLDERS = (
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt", "/nix", "/snap", "/var", "/run",
    "/proc", "/sys", "/System", "/Library", "/Applications", "/private/etc", "/private/var", "/home/linuxbrew",
)  # fmt: skip
GUEST_VARIABLES = frozenset(("PATH", "HOME", "TMPDIR", "SHELL", "USER", "LOGNAME", "PWD", "HOSTNAME"))
CLAUDE, CLAUDE_FOLDER, CLAUDE_FILE = "claude", ".claude", ".claude.json"


def guest_workspaces(plan: SandboxPlan) -> tuple[str, ...]:
    """Folders for the virtual machine: the project first, read-only ones with `:ro`."""
    written = [mount.host_path for mount in plan.mounts if mount.kind == WRITABLE and _is_outside_project(mount, plan)]
    read = [
        mount.host_path
        for mount in plan.mounts
        if mount.kind == READ_ONLY and _is_outside_project(mount, plan) and _is_user_folder(mount, plan)
    ]
    found = [*(path for path in written), *(f"{path}:ro" for path in read if path not in written)]
    return tuple(dict.fromkeys((plan.root, *found)))


def _is_outside_project(mount: Mount, plan: SandboxPlan) -> bool:
    """Whether it is a folder outside the project and outside the folders of a single command."""
    inside = any(is_within(mount.host_path, place) for place in (plan.root, plan.temp, plan.cwd) if place)
    return not inside and os.path.isdir(mount.host_path)


def _is_user_folder(mount: Mount, plan: SandboxPlan) -> bool:
    """Whether it is the user's own, not part of the system, of a tool or of this program."""
    if mount.host_path != mount.path:
        return False
    if is_within(mount.path, plan.home):
        return not os.path.relpath(mount.path, plan.home).startswith(".")
    ours = (sys.prefix, sys.base_prefix, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    return not any(is_within(mount.path, own) or is_within(own, mount.path) for own in (*GUEST_FOLDERS, *ours))


def guest_cwd(plan: SandboxPlan) -> str:
    """Working directory inside. A folder that belongs to one command is missing there: folders cannot be added to a
    machine.
    """
    return plan.cwd if plan.cwd and is_within(plan.cwd, plan.root) else "/tmp" if plan.cwd else plan.root  # noqa: S108 (its own)


def guest_home_links(plan: SandboxPlan, agent: str) -> tuple[tuple[str, str], ...]:
    """Links in the home of the user inside: their names, and their targets on the host."""
    written = [mount for mount in plan.mounts if mount.kind == WRITABLE and _is_outside_project(mount, plan)]
    links = [(os.path.relpath(mount.path, plan.home), mount.host_path) for mount in written
             if mount.host_path != mount.path and is_within(mount.path, plan.home)]  # fmt: skip
    answered = {text for _, text in plan.variables}
    if agent == CLAUDE:
        links += [(CLAUDE_FOLDER, mount.path) for mount in written if mount.path in answered]
        places = [place for name, place in links if name == CLAUDE_FOLDER]
        links += [(CLAUDE_FILE, _ensure_settings_file(os.path.join(place, CLAUDE_FILE))) for place in places]
    return tuple(dict(links).items())


def _ensure_settings_file(path: str) -> str:
    """Create a settings file if it is missing: Claude Code 2.0 fails on an empty one. A link is not followed, because
    the agent may have put it there.
    """
    if os.path.islink(path):
        os.unlink(path)
    if not os.path.exists(path) or not os.path.getsize(path):
        made = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with open(made, "w", encoding="ascii") as file:
            file.write("{}\n")
    return path


def guest_variable_names(plan: SandboxPlan, env: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """Variables to pass in, without those that the machine has itself or that name a path it lacks."""
    places = [one.removesuffix(":ro") for one in guest_workspaces(plan)]
    there = [name for name, text in env if all(_is_known_path(part, places) for part in text.split(os.pathsep))]
    return tuple(name for name in passed_variable_names(plan, there) if name not in GUEST_VARIABLES)


def _is_known_path(text: str, places: Iterable[str]) -> bool:
    return not os.path.isabs(text) or any(is_within(text, place) for place in places)


def guest_hosts(plan: SandboxPlan) -> tuple[str, ...]:
    """Allowed hosts in the syntax of the machine's proxy, for which services of this machine are `localhost`."""
    named = [host.removeprefix("private:") for host in plan.egress.hosts]
    return tuple(dict.fromkeys((*named, *(f"localhost:{port}" for port in plan.egress.local_ports))))


# A micro virtual machine for each project, created once and entered for every command. The agent's state is kept
# outside of it, so a login outlives it.


GUEST_HOME = "/home/agent"  # of the user inside
DEFAULT_IDENTITY = ("Ralph Loop", "ralph@localhost")
POLL_S, MAX_POLLS = 1.0, 10
# Create links in the home of the user inside: sh HOME [NAME TARGET ...]
LINK_SCRIPT = """set -e
home=$1; shift
while [ $# -gt 1 ]; do
  mkdir -p "$(dirname "$home/$1")"; rm -rf "$home/$1"; ln -s "$2" "$home/$1"
  chown -h agent:agent "$home/$1" 2>/dev/null || true
  shift 2
done"""
IDENTITY_SCRIPT = 'git config --global user.name "$1" && git config --global user.email "$2" && \
git config --global safe.directory "*"'
# Kill processes with this variable in their environment until there are none: sh NAME=VALUE
END_SCRIPT = """for round in 1 2 3 4 5; do
  left=0
  for file in $(grep -lzxFe "$1" /proc/[0-9]*/environ 2>/dev/null); do
    process=${file#/proc/}; kill -9 "${process%/environ}" 2>/dev/null && left=1
  done
  [ $left = 0 ] && exit 0
done"""
# A program that is missing at its host path is looked up by name.
START_SCRIPT = 'command -v "$1" >/dev/null 2>&1 || { named=${1##*/}; shift; set -- "$named" "$@"; }; exec "$@"'
UNPROTECTED_PATHS_WEAKNESS = "protected paths are not held: a change of one is found afterwards"
MACHINE_POLICY_WEAKNESS = (
    "the network policy of sbx holds for the whole machine: what it allows beyond the list is open"
)


@value
class GuestCommand:
    """A command in its sandbox: name and template of the sandbox, mark and variables of the command."""

    name: str
    template: str
    mark: str = ""
    variables: tuple[str, ...] = ()


class DockerSandbox:
    """`sbx` or `docker sandbox`. No program of ours runs inside, and the machine has its own proxy."""

    name = "docker-sandbox"
    protects_paths = False
    can_remount = True  # by links
    is_virtual_machine = True  # another machine: programs of this one do not run there
    limited_by = "its own machine"

    def __init__(
        self, kind: str, program: str | None, environ: Mapping[str, str] | None = None,
        *, pause_s: float = POLL_S, answer_s: float | None = None,
    ) -> None:  # fmt: skip
        """`kind` is sbx or docker, `program` its path."""
        self._environ = dict(os.environ if environ is None else environ)
        self._cli, self.engine = DockerCli(kind, program, self._environ, answer_s), kind
        self._pause_s = pause_s
        self._guests: dict[str, GuestCommand] = {}
        self._default_agent = ""
        self._agent_folders: tuple[str, ...] = ()
        self.strength = "partial" if kind == SBX else "strong"
        self.weaknesses: tuple[str, ...] = (
            (UNPROTECTED_PATHS_WEAKNESS, MACHINE_POLICY_WEAKNESS) if kind == SBX else (UNPROTECTED_PATHS_WEAKNESS,)
        )

    def set_default_agent(self, agent: str, folder: str) -> None:
        """Set the agent of a run, and its state folder: checks before its first turn share its machine."""
        os.makedirs(folder, mode=0o700, exist_ok=True)
        self._default_agent, self._agent_folders = agent, (folder,)

    def problem(self) -> BackendProblem | None:
        return self._cli.problem()

    def entry(self, plan: SandboxPlan) -> SandboxEntry:
        """Valid after `prepare`."""
        guest = self._guests.get(plan.temp) or self._guest_command(plan, "")
        named = [word for name in guest.variables or guest_variable_names(plan, ()) for word in ("-e", name)]
        begin = (*self._cli.prefix, "exec", "-i", *named, "-w", guest_cwd(plan), guest.name)
        return SandboxEntry((*begin, "sh", "-c", START_SCRIPT, "sh"), PROXY_BUILT_IN, no_entrypoint=True)

    def prepare(self, plan: SandboxPlan, command: Command) -> str:
        """Make sure that the sandbox exists, is set up, has the right policy and the current files."""
        guest = replace(
            self._guest_command(plan, command.agent),
            mark=command.mark,
            variables=guest_variable_names(plan, command.env),
        )
        self._guests[plan.temp] = guest
        if command.taken_up:
            return ""
        found = self._cli.sandboxes()
        if isinstance(found, str):
            return found
        there = next((one for one in found if one.name == guest.name), None)
        state, wanted = read_sandbox_state(self._state_file(guest.name)), guest_workspaces(plan)
        had = (there.workspaces if there else None) or (state.workspaces if state else ())
        if there is None or not set(wanted) <= set(had):
            return self._recreate(guest, plan, command, state, there is not None)
        known = state.files if state and state.files else {}
        if known and find_stale_files(known, scan_project_files(plan.root)):
            # The next command starts it again with the current files of the host.
            why = self._cli.attempt("the sandbox cannot be stopped", "stop", guest.name)
            if why:
                return why
        return self._set_up(guest, plan, command, replace(state or DockerSandboxState(), workspaces=had), state is None)

    def _recreate(
        self, guest: GuestCommand, plan: SandboxPlan, command: Command, state: DockerSandboxState | None, there: bool
    ) -> str:
        """Create a sandbox with every folder that was ever needed: folders cannot be added to an existing one."""
        if there and (why := self._cli.remove(guest.name)):
            return why
        before = state or DockerSandboxState()
        folders = tuple(dict.fromkeys((*guest_workspaces(plan), *self._agent_folders)))
        plain = {one.removesuffix(":ro") for one in folders}
        more = [(one, one.removesuffix(":ro")) for one in before.workspaces]
        folders += tuple(one for one, path in more if path not in plain and os.path.isdir(path))
        words = ("create", "--name", guest.name, guest.template, *folders)
        why = self._cli.attempt("the sandbox cannot be made", *words, timeout_s=CREATE_TIMEOUT_S)
        return why or self._set_up(guest, plan, command, DockerSandboxState(folders, hosts=before.hosts), fresh=True)

    def _set_up(
        self, guest: GuestCommand, plan: SandboxPlan, command: Command, state: DockerSandboxState, fresh: bool
    ) -> str:
        """Set the policy first, then links and, in a new sandbox, the name for commits."""
        before = dict(state.hosts or {})
        asked = before | {command.agent: guest_hosts(plan)}
        if self._cli.kind != SBX and (fresh or asked != before):
            now, then = _distinct_hosts(asked), _distinct_hosts(before)
            if why := self._cli.set_policy(guest.name, now, [host for host in then if host not in now]):
                return why
        links = dict(state.links) | dict(guest_home_links(plan, command.agent))
        if links != dict(state.links):
            words = [word for link in links.items() for word in link]
            if why := self._cli.run_script(guest.name, LINK_SCRIPT, GUEST_HOME, *words, root=True):
                return why
        if fresh and (why := self._cli.run_script(guest.name, IDENTITY_SCRIPT, *self._identity())):
            return why
        write_sandbox_state(self._state_file(guest.name), replace(state, links=tuple(links.items()), hosts=asked))
        return ""

    def clean_up(self, plan: SandboxPlan) -> None:
        """End processes that the command left inside, and wait until its files are synchronised."""
        guest = self._guests.pop(plan.temp, None)
        if guest is None:
            return
        self._cli.run_script(guest.name, END_SCRIPT, f"{TURN_VARIABLE}={guest.mark}", root=True)
        files = wait_until_unchanged(plan.root, self._pause_s, MAX_POLLS, time.sleep)
        state = read_sandbox_state(self._state_file(guest.name)) or DockerSandboxState()
        write_sandbox_state(self._state_file(guest.name), replace(state, files=files))

    def has_passed_self_test(self) -> bool:
        """Whether this very installation passed the self-test before."""
        return bool(version := self._cli.identity()) and _read_text(self._self_test_file()) == version

    def record_self_test(self) -> None:
        """Record that this installation passed the self-test."""
        os.makedirs(self._state_folder(), mode=0o700, exist_ok=True)
        with open(self._self_test_file(), "w", encoding="utf-8") as file:
            file.write(self._cli.identity())

    def remove(self, plan: SandboxPlan) -> None:
        """Remove the machine of this plan and its stored state."""
        name = self._guest_command(plan, "").name
        found = self._cli.sandboxes()
        if not isinstance(found, str) and any(one.name == name for one in found):
            self._cli.remove(name)
        for path in (self._state_file(name), self._agent_file(plan)):
            if os.path.exists(path):
                os.unlink(path)

    def _guest_command(self, plan: SandboxPlan, agent: str) -> GuestCommand:
        """A command that names no agent uses the sandbox of the project's last agent, with what that installed."""
        template = self._cli.template(agent or _read_text(self._agent_file(plan)) or self._default_agent)
        if agent:
            os.makedirs(self._state_folder(), mode=0o700, exist_ok=True)
            replace_file(self._agent_file(plan), agent.encode(), durable=False)
        return GuestCommand(sandbox_name(plan.root, template), template)

    def _agent_file(self, plan: SandboxPlan) -> str:
        return os.path.join(self._state_folder(), sandbox_name(plan.root, SHELL_TEMPLATE) + ".agent")

    def _state_file(self, name: str) -> str:
        return os.path.join(self._state_folder(), name + ".json")

    def _self_test_file(self) -> str:
        return os.path.join(self._state_folder(), f"tried-{self._cli.kind}")

    def _state_folder(self) -> str:
        """Outside of every folder that a sandbox gets."""
        return os.path.join(find_state_dir(self._environ), "docker-sandbox")

    def _identity(self) -> tuple[str, str]:
        """The user's name and address for commits."""
        git = find_program("git", self._environ.get("PATH", os.defpath)) or "git"
        said = [run_program((git, "config", "--global", "--get", key), self._environ, timeout_s=10.0).text.strip()
                for key in ("user.name", "user.email")]  # fmt: skip
        return said[0] or DEFAULT_IDENTITY[0], said[1] or DEFAULT_IDENTITY[1]


def sandbox_name(root: str, template: str) -> str:
    """Unique for a project and template; no name is a prefix of another."""
    path = re.sub(r"[^A-Za-z0-9._-]", "_", root)[-40:].lstrip("._-")
    digest = hashlib.sha256(f"{root}\0{template}".encode(errors="surrogateescape")).hexdigest()[:8]
    return f"ralph-{path}-{digest}"


def _read_text(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().strip()
    except OSError:
        return ""


def _distinct_hosts(hosts: Mapping[str, tuple[str, ...]]) -> list[str]:
    return list(dict.fromkeys(host for asked in hosts.values() for host in asked))
