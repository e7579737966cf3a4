"""SandboxPlanner: from settings, project and host to the mounts, variables and limits of each command."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ralphproof.base.errors import Refused
from ralphproof.base.files import make_private_folder, remove_tree, replace_file
from ralphproof.base.interpreter import installation_folders
from ralphproof.base.programs import find_program, run_program
from ralphproof.base.value import replace, value
from ralphproof.engine.sandbox import AgentRequirements, Command
from ralphproof.sandbox.ecosystems import detect_ecosystems, ecosystem_settings, ecosystem_variables, expand_host_entry
from ralphproof.sandbox.egress_rules import allow_list_entry_for
from ralphproof.sandbox.host_mounts import (
    SYSTEM_FOLDERS,
    TOP_LEVEL_FOLDERS,
    filter_mounts,
    home_folder,
    interpreter_mounts,
    locate_path,
    program_mounts,
    socket_covers,
    system_login_covers,
    system_mounts,
    tool_mounts,
)
from ralphproof.sandbox.plan import (
    ALLOWED_VARIABLES,
    BLANK_FILE,
    DEV_NULL,
    EMPTY_FOLDER,
    READ_ONLY,
    WRITABLE,
    Backend,
    EgressPolicy,
    Mount,
    Protection,
    ResourceLimits,
    SandboxPlan,
    expand_home,
    is_within,
    nearest_mount,
)
from ralphproof.sandbox.project_mounts import (
    RALPH_FOLDER,
    drop_variables_leaving_project,
    find_read_only_paths,
    is_visible,
    leaves_project,
    project_mounts,
    protected_mounts,
    protected_names,
    ralph_folder_mounts,
)
from ralphproof.workspace.git_command import user_git_environment

# Settings of git inside: the user's name for commits and global ignores, nothing else.


GLOBAL_IGNORE_FILE = "~/.config/git/ignore"
GIT_KEYS_PATTERN = r"^(user\.(name|email)|core\.excludesfile)$"


def git_config_mounts(environ: Mapping[str, str], home: str, private: str) -> Iterator[Mount]:
    """Settings of git in the home folder; `private` is a folder for files of ours."""
    file, values = os.path.join(private, "gitconfig"), _read_git_config(environ)
    lines = [
        f"\t{key} = {_quote_git_value(values[f'user.{key}'])}\n"
        for key in ("name", "email")
        if values.get(f"user.{key}")
    ]
    replace_file(file, os.fsencode("[user]\n" + "".join(lines) + "[safe]\n\tdirectory = *\n"), durable=False)
    yield Mount(READ_ONLY, os.path.join(home, ".gitconfig"), file)
    named = values.get("core.excludesfile", "")
    usual = [source for source, _ in locate_path("", GLOBAL_IGNORE_FILE, environ, home)]
    ignored = [expand_home(named, home)] if named else usual
    if found := next((one for one in reversed(ignored) if os.path.isfile(one)), ""):
        yield Mount(READ_ONLY, expand_home(GLOBAL_IGNORE_FILE, home), os.path.realpath(found))


def _read_git_config(environ: Mapping[str, str]) -> dict[str, str]:
    """The user's global settings, whatever the project sets."""
    git = find_program("git", environ.get("PATH", os.defpath))
    reply = (
        run_program([git, "config", "--global", "-z", "--get-regexp", GIT_KEYS_PATTERN], user_git_environment(environ))
        if git
        else None
    )
    entries = reply.out.decode("utf-8", "surrogateescape").split("\0") if reply and reply.code == 0 else []
    return {key: text for key, _, text in (entry.partition("\n") for entry in entries)}


def _quote_git_value(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ") + '"'


# Fixed mounts are refreshed for each command, because host files come and go during a run.


def refresh_mounts(mounts: Sequence[Mount], covers: tuple[str, ...]) -> list[Mount]:
    """The mounts without those whose host path is gone, and with covers over new sockets.

    `covers` are the sources of mounts that hide something.
    """
    there = [
        one
        for place, one in enumerate(mounts)
        if one.kind == EMPTY_FOLDER or _still_exists(one, mounts[:place], covers)
    ]
    known = {one.path for one in there}
    shown = [one for one in there if one.kind == READ_ONLY and one.source not in covers]
    return [
        *there,
        *(one for one in socket_covers(shown) if one.path not in known and is_visible(one.path, there, ())),
    ]


def _still_exists(mount: Mount, before: Sequence[Mount], covers: tuple[str, ...]) -> bool:
    return os.path.lexists(covered_path(mount, before, covers) if mount.source in covers else mount.host_path)


def covered_path(cover: Mount, before: Sequence[Mount], covers: tuple[str, ...]) -> str:
    """The host path that a cover hides."""
    over = nearest_mount(cover.path, [one for one in before if one.source not in covers])
    if over is None:
        return cover.path
    return os.path.normpath(os.path.join(over.host_path, os.path.relpath(cover.path, over.path)))


# Back ends that cannot remount: a home of links, and a real temporary folder.


def mounts_in_place(mounts: Sequence[Mount], temp: str, home: str, store: str, covers: tuple[str, ...]) -> list[Mount]:
    """The mounts at their host paths, with a temporary home of links. Covers hide the host paths."""
    temp_home = temporary_home(temp)
    remove_tree(temp_home)  # a turn that is taken up again: what was left there is not ours
    os.makedirs(temp_home, mode=0o700)
    linked: list[str] = []
    for mount in mounts:
        if mount.kind == EMPTY_FOLDER or mount.source in covers:
            continue
        for theirs, here in ((store, store), (home, temp_home)):
            if is_within(mount.path, theirs) and mount.path != theirs:
                if mount.source or here == temp_home:
                    _create_link(
                        os.path.join(here, os.path.relpath(mount.path, theirs)), mount.host_path, linked, store
                    )
                break
    plain = [
        _mount_at_own_path(mount, mounts[:place], covers)
        for place, mount in enumerate(mounts)
        if _is_needed_in_place(place, mounts)
    ]
    return [*plain, Mount(WRITABLE, temp)]


def temporary_home(temp: str) -> str:
    return os.path.join(temp, "home")


def _is_needed_in_place(place: int, mounts: Sequence[Mount]) -> bool:
    """An empty folder cannot be mounted; it is kept where it hides something."""
    mount = mounts[place]
    return mount.kind != EMPTY_FOLDER or any(
        one.kind == READ_ONLY and is_within(mount.path, one.path) for one in mounts[:place]
    )


def _mount_at_own_path(mount: Mount, before: Sequence[Mount], covers: tuple[str, ...]) -> Mount:
    if mount.kind == EMPTY_FOLDER:
        return mount
    if mount.source not in covers:
        return Mount(mount.kind, mount.host_path)
    return Mount(READ_ONLY, covered_path(mount, before, covers), mount.source)


def _create_link(place: str, source: str, linked: list[str], store: str) -> None:
    """A link in one of our folders, replacing an earlier one; never below the target of another link."""
    if any(is_within(place, one) for one in linked):
        return
    folder = os.path.dirname(place)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    if os.path.islink(place) or (os.path.isfile(place) and not os.path.getsize(place)):
        os.unlink(place)
    if not os.path.lexists(place):
        os.symlink(source, place)
    if not is_within(source, store):
        linked.append(place)


# Agents: own state folder, shared login, service.


LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "::1")


def agent_home_mounts(
    requirements: AgentRequirements, own: str, environ: Mapping[str, str], home: str
) -> tuple[list[Mount], dict[str, str]]:
    """The agent's own folder, the user's files that are shared with it, and the variables that locate them."""
    if not requirements.folder:
        return [], {}
    make_private_folder(own)
    usual = os.path.join(home, requirements.folder.removeprefix("~/"))
    place = own if requirements.variable else usual
    mounts = {place: Mount(WRITABLE, place, "" if place == own else own)}
    shared = list(_shared_user_files(requirements, environ, home))
    _remove_agent_overrides(own, [name for _, name in shared if name not in requirements.logins])
    for theirs, name in shared:
        if os.path.exists(theirs):
            inside = name if os.path.isabs(name) else os.path.join(place, name)
            _clear_mount_point(os.path.join(own, name), theirs)
            mounts[inside] = Mount(READ_ONLY, inside, os.path.realpath(theirs))
    return list(mounts.values()), {requirements.variable: own} if requirements.variable else {}


def _shared_user_files(
    requirements: AgentRequirements, environ: Mapping[str, str], home: str
) -> Iterator[tuple[str, str]]:
    """Shared files of the user, each with its name in the agent's folder, or its full path inside."""
    folders = [source for source, _ in locate_path(requirements.variable, requirements.folder, environ, home)]
    for name in requirements.lent:
        if name.startswith("~/"):
            yield from (
                (source, inside) for source, inside in locate_path("", name, environ, home) if is_in_home(inside, home)
            )
        else:
            yield from ((os.path.join(folder, name), name) for folder in folders)


def is_in_home(path: str, home: str) -> bool:
    return path.startswith(home.rstrip("/") + "/")


def _remove_agent_overrides(own: str, names: Iterable[str]) -> None:
    """Remove what an agent wrote in place of the user's settings, since a later one would use it.

    Empty files stay: a running command may have the user's mounted over them.
    """
    for place in (os.path.join(own, name) for name in names if not os.path.isabs(name)):
        if os.path.islink(place) or (os.path.isfile(place) and os.path.getsize(place)):
            os.unlink(place)
        elif os.path.isdir(place) and os.listdir(place):
            shutil.rmtree(place, ignore_errors=True)


def _clear_mount_point(place: str, theirs: str) -> None:
    """Remove what the agent left at a mount point: nothing can be mounted over a link or over another file type."""
    if os.path.islink(place) or (os.path.isfile(place) and os.path.isdir(theirs)):
        os.unlink(place)
    elif os.path.isdir(place) and not os.path.isdir(theirs):
        shutil.rmtree(place, ignore_errors=True)


def agent_egress(
    requirements: AgentRequirements, listed: Iterable[str], ports: Iterable[int], addresses: Iterable[tuple[str, str]]
) -> EgressPolicy:
    """The user's allow-list, and the agent's service or the one that is configured instead."""
    hosts, local = [host for entry in listed for host in expand_host_entry(entry)], list(ports)
    values = dict(addresses)
    named = [name if "://" in name else values.get(name, "") for name in requirements.addresses]
    for host, port in map(_parse_address, named):
        if host in LOOPBACK_HOSTS:
            local.append(port)
        elif entry := allow_list_entry_for(host, port, private=True):
            hosts.append(entry)
    return EgressPolicy(tuple(dict.fromkeys((*hosts, *requirements.hosts))), tuple(dict.fromkeys(local)))


def _parse_address(url: str) -> tuple[str, int]:
    """Host and port of a URL; empty if it has none."""
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(url if "//" in url else f"//{url}")
        return parts.hostname or "", parts.port or (80 if parts.scheme == "http" else 443)
    except ValueError:
        return "", 0


TEMPORARY_FOLDERS = ("/tmp", "/var/tmp", "/run")  # noqa: S108 (inside, each command has its own)
MEMORY_SHARE = 0.8  # of the machine's
MAX_PROCESSES = 4096
# Variables of our own calls of git, and the author of commits.
GIT_VARIABLES = (
    "GIT_INDEX_FILE", "GIT_CEILING_DIRECTORIES", "GIT_TERMINAL_PROMPT", "GIT_EDITOR", "GIT_PAGER", "GIT_AUTHOR_*",
    "GIT_COMMITTER_*",
)  # fmt: skip


@value
class SandboxConfig:
    """Everything that is fixed before the first command of a run.

    `store` is a private folder for this project, outside of it. `task` is where an agent may write although `.ralph` is
    protected. `protected` and `run_files` are patterns of the user and of the run. `agents` are requirements by agent
    name.
    """

    root: str
    store: str
    task: str
    environ: tuple[tuple[str, str], ...]
    protected: tuple[str, ...] = ()
    run_files: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    local_ports: tuple[int, ...] = ()
    read_paths: tuple[str, ...] = ()
    agents: tuple[tuple[str, AgentRequirements], ...] = ()
    agent_variables: tuple[str, ...] = ()  # variables that the settings give to agents
    addresses: tuple[tuple[str, str], ...] = ()  # variables in which the user may have named another service
    interactive: bool = False  # the user is at the terminal of the command


class SandboxPlanner:
    """Plans the sandbox of each command, as far as the back end can enforce it."""

    def __init__(self, config: SandboxConfig, backend: Backend) -> None:
        root, store = os.path.realpath(config.root), os.path.realpath(config.store)
        task = os.path.join(os.path.realpath(os.path.dirname(config.task)), os.path.basename(config.task))
        self._config = replace(config, root=root, store=store, task=config.task and task)
        self._backend, self._env = backend, dict(config.environ)
        self._home = os.path.realpath(home_folder(self._env))
        refuse_unsafe_project(root, self._home, store, self._config.task)
        refuse_linked_task_folder(config, self._config)
        self._installation = installation_in_project(root, backend)
        self.private = sandbox_state_folder(store, root)
        self._empty, self._cache = (os.path.join(self.private, name) for name in ("empty", "cache"))
        for folder in (self._empty, self._cache):
            make_private_folder(folder)
        replace_file(os.path.join(self.private, BLANK_FILE), b"", durable=False)
        self._covers = (DEV_NULL, self._empty)
        self._ecosystems = detect_ecosystems(root)
        self._machine_mounts = self._fixed_mounts()

    def _fixed_mounts(self) -> tuple[Mount, ...]:
        """Mounts that are the same for every command: system, empty folders, tools, this program."""
        around = system_mounts(os.geteuid() == 0, self._empty)
        fresh = [Mount(EMPTY_FOLDER, self._home)]
        if any(is_within(self._config.store, root) for root in (*TOP_LEVEL_FOLDERS, *SYSTEM_FOLDERS)):
            fresh.append(Mount(EMPTY_FOLDER, os.path.dirname(self._config.store)))
        inside = [
            *tool_mounts(drop_variables_leaving_project(self._env, self._config.root), self._home, self._ecosystems),
            *interpreter_mounts(),
        ]
        inside += [Mount(READ_ONLY, os.path.realpath(path)) for path in self._config.read_paths if os.path.exists(path)]
        return (
            *(Mount(EMPTY_FOLDER, path) for path in TEMPORARY_FOLDERS), *around,
            *system_login_covers(around, self._home, self._env, self._empty), *fresh,
            *filter_mounts(inside, self._home, self._env, (self._config.store,)),
            *git_config_mounts(self._env, self._home, self.private), Mount(WRITABLE, self._cache),
        )  # fmt: skip

    def plan(self, command: Command) -> SandboxPlan:
        """The plan for a command, with the files as they are now."""
        config, requirements = self._config, dict(self._config.agents).get(command.agent, AgentRequirements())
        own = os.path.join(config.store, "agents", command.agent)
        temp = os.path.splitext(command.turn_file)[0] + ".tmp"
        settled, moved = agent_home_mounts(requirements, own, self._env, self._home)
        mounts, protection = self._add_project([*refresh_mounts(self._machine_mounts, self._covers), *settled])
        mounts += [
            one for path in command.reads if os.access(path, os.X_OK) or not leaves_project(path, config.root)
            for one in program_mounts(path, self._env) if not is_visible(one.path, mounts, self._covers)
        ]  # fmt: skip
        cwd = os.path.realpath(command.cwd)
        if is_within(cwd, config.store) and not is_visible(cwd, mounts, self._covers):  # a judge's own folder
            mounts.append(Mount(WRITABLE, cwd))
        if not self._backend.can_remount:
            mounts = mounts_in_place(mounts, temp, self._home, config.store, self._covers)
            moved |= {"HOME": temporary_home(temp), "TMPDIR": temp}
        egress = agent_egress(requirements, config.hosts, config.local_ports, config.addresses)
        variables = ecosystem_settings(self._ecosystems, egress.hosts, self._cache, self._env, self._home)
        variables |= {"HOME": self._home, "TMPDIR": "/tmp"} | moved  # noqa: S108 (a fresh one)
        passed = [*ALLOWED_VARIABLES, *GIT_VARIABLES, *ecosystem_variables(self._ecosystems, self._env)]
        if command.agent:
            passed += [*requirements.variables, *config.agent_variables]
        return SandboxPlan(
            config.root,
            self._home,
            temp,
            self._open_covered_folders(mounts),
            egress,
            default_resource_limits(),
            passed_variables=tuple(passed),
            variables=tuple(variables.items()),
            protection=protection,
            cwd=cwd,
            interactive=config.interactive,
        )

    def _add_project(self, mounts: list[Mount]) -> tuple[list[Mount], Protection]:
        """The mounts with the project over them, and its protection."""
        config, holds = self._config, self._backend.protects_paths
        settings = sorted({path for _, requirements in config.agents for path in requirements.settings})
        paths = find_read_only_paths(config.root, config.protected, config.run_files, settings)
        paths = replace(paths, found=tuple(sorted({*paths.found, *self._installation})))
        mounts = [
            *mounts,
            *project_mounts(config.root, paths),
            *ralph_folder_mounts(config.root, config.task, holds),
        ]
        if not holds:
            return mounts, Protection(protected_names(config.root, paths))
        held, protection = protected_mounts(config.root, paths, mounts, self.private)
        return [*mounts, *held, *socket_covers([Mount(WRITABLE, config.root)], folder=config.root)], protection

    def _open_covered_folders(self, mounts: list[Mount]) -> tuple[Mount, ...]:
        """The mounts, with an empty folder instead of a cover where a later mount is inside: it needs a mount point."""
        return tuple(
            Mount(EMPTY_FOLDER, one.path)
            if one.source == self._empty and any(is_within(later.path, one.path) for later in mounts[place + 1 :])
            else one
            for place, one in enumerate(mounts)
        )


def refuse_unsafe_project(root: str, home: str, store: str, task: str = "") -> None:
    """Raises Refused where a sandbox around this project would protect nothing. Paths are real."""
    for path, what in ((home, "your home folder"), (store, "the state folder")):
        if is_within(path, root):
            raise Refused(f"{root} holds {what}, so a sandbox around it would protect nothing; use a folder of its own")
    for path, what in ((root, "the project"), (home, "your home folder"), (store, "the state folder")):
        if task and task != root and is_within(path, task):
            raise Refused(f"the task folder {task} holds {what}; an agent may write all of it, so use another one")
    if any(is_within(place, home) for place in ("/usr", "/etc")):  # HOME=/ in some containers
        raise Refused(f"HOME is {home}, and inside a sandbox that is a fresh folder; set HOME to a folder of its own")
    owner = os.stat(root).st_uid
    if os.geteuid() == 0 and owner != 0:
        raise Refused(
            f"{root} belongs to user {owner}, and inside a sandbox root may write only what is root's own; "
            "run ralph as that user, or chown the project"
        )


def installation_in_project(root: str, backend: Backend) -> tuple[str, ...]:
    """Folders of this program that are inside the project: what an agent changes in them is executed outside.

    Raises Refused if they cannot be protected.
    """
    places = tuple(place for place in installation_folders() if is_within(place, root))
    if places and (root in places or not backend.protects_paths):
        raise Refused(
            f"this program is installed in the project ({places[0]}), and sandbox {backend.name} cannot keep an agent "
            "from changing it there; install it elsewhere: uv tool install ralphproof, or pipx install ralphproof"
        )
    return places


def refuse_linked_task_folder(values: SandboxConfig, real: SandboxConfig) -> None:
    """Raises Refused for a task folder that leads into `.ralph` by a link, which may have been created from inside."""
    named = is_within(values.task, os.path.join(values.root, RALPH_FOLDER)) or is_within(
        values.task, os.path.join(real.root, RALPH_FOLDER)
    )
    if values.task and not named and is_within(real.task, os.path.join(real.root, RALPH_FOLDER)):
        raise Refused(f"the task folder {values.task} leads into {RALPH_FOLDER} by a link; name the folder itself")


def default_resource_limits() -> ResourceLimits:
    """Limits of one command on this machine."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return ResourceLimits(int(memory * MEMORY_SHARE), MAX_PROCESSES)


def sandbox_state_folder(store: str, root: str) -> str:
    """Our folder for sandboxes of this project."""
    return os.path.join(os.path.realpath(store), "box", _path_digest(os.path.realpath(root)))


def _path_digest(path: str) -> str:
    return hashlib.sha256(os.fsencode(path)).hexdigest()[:12]
