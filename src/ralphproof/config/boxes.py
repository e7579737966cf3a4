"""What a run's commands can reach inside a sandbox: from settings, project and machine to one box for each command."""

from __future__ import annotations

import os

from ralphproof.config.box_git import git_settings
from ralphproof.config.box_in_place import home_in, in_place
from ralphproof.config.box_lodging import egress_of, lodged
from ralphproof.config.box_now import as_now
from ralphproof.config.box_project import OURS, HeldPlaces, held_in, ours, seen, steady, strays, write, written
from ralphproof.errors import Refused
from ralphproof.interpreter import own_folders
from ralphproof.ledgers.files import private_folder
from ralphproof.sandbox import Lodging
from ralphproof.sandboxes.box import BLANK, EMPTY, NOTHING, READ, WRITE, Box, Mount, Ration
from ralphproof.sandboxes.ecosystems import found_in, kept_for, told
from ralphproof.sandboxes.places import within
from ralphproof.sandboxes.reach import checked, covered, program, python, system, tools
from ralphproof.sandboxes.roots import ROOTS, TOP, sockets_in
from ralphproof.sandboxes.variables import KEPT
from ralphproof.value import TYPE_CHECKING, replace, value
from ralphproof.workspaces.held import held_paths

if TYPE_CHECKING:
    from ralphproof.sandbox import Command
    from ralphproof.sandboxes.box import Backend

FRESH = ("/tmp", "/var/tmp", "/run")  # noqa: S108 (inside, each command has its own)
MEMORY_SHARE = 0.8  # of the machine's
PROCESSES = 4096
# What our own calls of git say with variables, and who commits.
GIT_KEPT = (
    "GIT_INDEX_FILE", "GIT_CEILING_DIRECTORIES", "GIT_TERMINAL_PROMPT", "GIT_EDITOR", "GIT_PAGER", "GIT_AUTHOR_*",
    "GIT_COMMITTER_*",
)  # fmt: skip


@value
class Terrain:
    """Where a run takes place: what is fixed before its first command.

    `store` is a private folder of this project, outside of it. `task` is where an agent may write although `.ralph` is
    held. `protected` and `own` are patterns, the user's and this run's. `lodgings` are by the names of agents.
    """

    root: str
    store: str
    task: str
    environ: tuple[tuple[str, str], ...]
    protected: tuple[str, ...] = ()
    own: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    local_ports: tuple[int, ...] = ()
    read_paths: tuple[str, ...] = ()
    lodgings: tuple[tuple[str, Lodging], ...] = ()
    told: tuple[str, ...] = ()  # variables that the settings give to agents
    addresses: tuple[tuple[str, str], ...] = ()  # variables in which the user may have named another service


class Boxes:
    """Plans a box for each command, as the kind of sandbox can hold it."""

    def __init__(self, terrain: Terrain, backend: Backend) -> None:
        root, store = os.path.realpath(terrain.root), os.path.realpath(terrain.store)
        task = os.path.join(os.path.realpath(os.path.dirname(terrain.task)), os.path.basename(terrain.task))
        self._terrain = replace(terrain, root=root, store=store, task=terrain.task and task)
        self._backend, self._env = backend, dict(terrain.environ)
        self._home = os.path.realpath(self._env.get("HOME") or os.path.expanduser("~"))
        refuse_wide(root, self._home, store, self._terrain.task)
        refuse_astray(terrain, self._terrain)
        self._ourselves = installed_in(root, backend)
        self.private = private_of(store, root)
        self._empty, self._cache = (os.path.join(self.private, name) for name in ("empty", "cache"))
        for folder in (self._empty, self._cache):
            private_folder(folder)
        write(os.path.join(self.private, BLANK), "")
        self._covers = (NOTHING, self._empty)
        self._found = found_in(root)
        self._machine = self._fixed()

    def _fixed(self) -> tuple[Mount, ...]:
        """What is the same for every command: the system, fresh folders, tools, ourselves."""
        around = system(os.geteuid() == 0, self._empty)
        fresh = [Mount(EMPTY, self._home)]
        if any(within(self._terrain.store, root) for root in (*TOP, *ROOTS)):
            fresh.append(Mount(EMPTY, os.path.dirname(self._terrain.store)))
        inside = [*tools(steady(self._env, self._terrain.root), self._home, self._found), *python()]
        inside += [Mount(READ, os.path.realpath(path)) for path in self._terrain.read_paths if os.path.exists(path)]
        return (
            *(Mount(EMPTY, path) for path in FRESH), *around,
            *covered(around, self._home, self._env, self._empty), *fresh,
            *checked(inside, self._home, self._env, (self._terrain.store,)),
            *git_settings(self._env, self._home, self.private), Mount(WRITE, self._cache),
        )  # fmt: skip

    def box(self, command: Command) -> Box:
        """As things are now."""
        terrain, lodging = self._terrain, dict(self._terrain.lodgings).get(command.agent, Lodging())
        own = os.path.join(terrain.store, "agents", command.agent)
        temp = os.path.splitext(command.turn_file)[0] + ".tmp"
        settled, moved = lodged(lodging, own, self._env, self._home)
        mounts, held, names = self._around([*as_now(self._machine, self._covers), *settled])
        mounts += [
            one for path in command.reads if os.access(path, os.X_OK) or not strays(path, terrain.root)
            for one in program(path, self._env) if not seen(one.path, mounts, self._covers)
        ]  # fmt: skip
        cwd = os.path.realpath(command.cwd)
        if within(cwd, terrain.store) and not seen(cwd, mounts, self._covers):  # a judge has a room of its own there
            mounts.append(Mount(WRITE, cwd))
        if not self._backend.remounts:
            mounts = in_place(mounts, temp, self._home, terrain.store, self._covers)
            moved |= {"HOME": home_in(temp), "TMPDIR": temp}
        egress = egress_of(lodging, terrain.hosts, terrain.local_ports, terrain.addresses)
        sets = told(self._found, egress.hosts, self._cache, self._env, self._home)
        sets |= {"HOME": self._home, "TMPDIR": "/tmp"} | moved  # noqa: S108 (a fresh one)
        kept = (*lodging.variables, *terrain.told) if command.agent else ()
        return Box(
            terrain.root, self._home, temp, self._entered(mounts), egress, ration(),
            (*KEPT, *GIT_KEPT, *kept_for(self._found, self._env), *kept), tuple(sets.items()), held.ghosts, held.hollow,
            names, cwd,
        )  # fmt: skip

    def _around(self, mounts: list[Mount]) -> tuple[list[Mount], HeldPlaces, tuple[str, ...]]:
        """These mounts with the project over them, what is held of it, and the names of that from its root."""
        terrain, holds = self._terrain, self._backend.holds
        settings = sorted({path for _, lodging in terrain.lodgings for path in lodging.settings})
        paths = held_paths(terrain.root, terrain.protected, terrain.own, settings)
        paths = replace(paths, found=tuple(sorted({*paths.found, *self._ourselves})))
        mounts = [*mounts, *written(terrain.root, paths), *ours(terrain.root, terrain.task, holds)]
        held = held_in(terrain.root, paths, mounts, self.private) if holds else HeldPlaces(())
        sockets = sockets_in([Mount(WRITE, terrain.root)], folder=terrain.root) if holds else ()
        names = tuple(os.path.relpath(path, terrain.root) for path in paths.found)
        return [*mounts, *held.mounts, *sockets], held, names

    def _entered(self, mounts: list[Mount]) -> tuple[Mount, ...]:
        """The same, with a fresh folder where one that is covered has something in it: it needs a place to lie."""
        return tuple(
            Mount(EMPTY, one.path)
            if one.source == self._empty and any(within(later.path, one.path) for later in mounts[place + 1 :])
            else one
            for place, one in enumerate(mounts)
        )


def refuse_wide(root: str, home: str, store: str, task: str = "") -> None:
    """A box is built around the project: raises Refused where that would hold nothing. Paths are free of links."""
    for path, what in ((home, "your home folder"), (store, "the state folder")):
        if within(path, root):
            raise Refused(f"{root} holds {what}, so a sandbox around it would protect nothing; use a folder of its own")
    for path, what in ((root, "the project"), (home, "your home folder"), (store, "the state folder")):
        if task and task != root and within(path, task):
            raise Refused(f"the task folder {task} holds {what}; an agent may write all of it, so use another one")
    if any(within(place, home) for place in ("/usr", "/etc")):  # HOME=/ in some containers
        raise Refused(f"HOME is {home}, and inside a sandbox that is a fresh folder; set HOME to a folder of its own")
    owner = os.stat(root).st_uid
    if os.geteuid() == 0 and owner != 0:
        raise Refused(
            f"{root} belongs to user {owner}, and inside a sandbox root may write only what is root's own; "
            "run ralph as that user, or chown the project"
        )


def installed_in(root: str, backend: Backend) -> tuple[str, ...]:
    """Where this program lies in the project, as in an environment there: what an agent changes of it runs outside.

    Raises Refused where that cannot be held.
    """
    places = tuple(place for place in own_folders() if within(place, root))
    if places and (root in places or not backend.holds):
        raise Refused(
            f"this program is installed in the project ({places[0]}), and sandbox {backend.name} cannot keep an agent "
            "from changing it there; install it elsewhere: uv tool install ralphproof, or pipx install ralphproof"
        )
    return places


def refuse_astray(said: Terrain, real: Terrain) -> None:
    """Raises Refused for a task folder that leads into our own by a link: somebody inside may have put that there."""
    named = within(said.task, os.path.join(said.root, OURS)) or within(said.task, os.path.join(real.root, OURS))
    if said.task and not named and within(real.task, os.path.join(real.root, OURS)):
        raise Refused(f"the task folder {said.task} leads into {OURS} by a link; name the folder itself")


def ration() -> Ration:
    """What one command may use of this machine."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return Ration(int(memory * MEMORY_SHARE), PROCESSES)


def private_of(store: str, root: str) -> str:
    """The folder of ours for boxes around this project."""
    return os.path.join(os.path.realpath(store), "box", _digest(os.path.realpath(root)))


def _digest(path: str) -> str:
    import hashlib

    return hashlib.sha256(os.fsencode(path)).hexdigest()[:12]
