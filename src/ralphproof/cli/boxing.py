"""The sandbox of a run: chosen, tried out, and built around its project; or none."""

from __future__ import annotations

import os

from ralphproof.sandboxes.direct import Direct
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ralphproof.cli.order import Order
    from ralphproof.config.boxes import Terrain
    from ralphproof.ledgers.folder import RunFolder
    from ralphproof.sandbox import Lodging
    from ralphproof.sandboxes.box import Backend
    from ralphproof.sandboxes.boxed import Boxed, Owner
    from ralphproof.views.project import Project

BOXED = "RALPH_SANDBOX"  # tells an agent which kind of sandbox it is in
NAMED, REMOVE_S = "--name", 30.0  # what the name of a container follows, and how long its removal may take


def sandbox_of(order: Order, owner: Owner, folder: RunFolder, fixed: Mapping[str, str], parent: str) -> Direct | Boxed:
    """What runs the commands of a run; raises Refused where the sandbox that it is to have does not hold here.

    `fixed` are files of the run that nobody may change.
    """
    name = order.wish.boxed_by(order.loaded.settings)
    if name is None:
        return Direct(owner)
    from ralphproof.config.backends import chosen

    backend = chosen(name, os.environ, order.project.root)
    terrain = terrain_of(order, folder, fixed, parent)
    if (serve := getattr(backend, "serve", None)) and terrain.lodgings:  # one that is made for an agent
        serve(terrain.lodgings[0][0], os.path.join(terrain.store, "agents", terrain.lodgings[0][0]))
    return boxed(owner, backend, terrain)


def limits_of(backend: Backend) -> str:
    """What of the machine a sandbox limits, and by what: `memory and processes by cgroup v1`."""
    from ralphproof.config.boxes import ration
    from ralphproof.sandboxes.ration import means

    if own := getattr(backend, "limited_by", ""):
        return f"memory and processes by {own}"
    by = means(ration())
    return f"{' and '.join(by.held) or 'nothing'} by {by.name}" if by.held else "nothing"


def boxed(owner: Owner, backend: Backend, terrain: Terrain) -> Boxed:
    """A sandbox of this kind around this terrain. What an earlier one left lying over files is lifted."""
    from ralphproof.config.boxes import Boxes
    from ralphproof.sandboxes.boxed import Boxed
    from ralphproof.sandboxes.ghosts import Ghosts

    boxes = Boxes(terrain, backend)
    ghosts = Ghosts(boxes.private)
    ghosts.lift()
    return Boxed(owner, backend, boxes, ghosts, limits_of(backend))


def clear_away(store: str, root: str, run: str) -> None:
    """Remove what the sandbox of a run left that died: what lay over absent files, temporary folders, containers."""
    if not os.path.isdir(os.path.join(store, "box")):
        return
    from ralphproof.config.boxes import private_of
    from ralphproof.sandboxes.boxed import LOAD, REPORT
    from ralphproof.sandboxes.ghosts import Ghosts

    Ghosts(private_of(store, root)).lift()
    folder = os.path.join(store, "runs", run)
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
        base, ending = os.path.splitext(os.path.join(folder, name))
        if ending == LOAD and not os.path.exists(base + REPORT):
            _end_box(os.path.join(folder, name))


def _end_box(file: str) -> None:
    """A box whose outer program was ended before it could do this."""
    from ralphproof.sandboxes.calling import ask
    from ralphproof.sandboxes.load import clear, read_load

    try:
        load = read_load(file)
    except (OSError, ValueError, TypeError):
        return
    clear(load.box.temp)
    argv = load.way.argv
    if NAMED in argv:
        removal = (argv[0], "rm", "--force", argv[argv.index(NAMED) + 1])
        if not ask(removal, timeout_s=REMOVE_S, env=os.environ).good:
            # podman, whose own monitor was killed too, only notices that at the first time
            ask(removal, timeout_s=REMOVE_S, env=os.environ)


def terrain_of(order: Order, folder: RunFolder, fixed: Mapping[str, str], parent: str) -> Terrain:
    """Where a run takes place."""
    from ralphproof.config.boxes import Terrain
    from ralphproof.workspaces.own import USUAL, own_files

    settings, root = order.loaded.settings, order.project.root
    box, own = settings.sandbox, own_files(root, fixed)
    return Terrain(
        root, order.project.store, os.path.normpath(os.path.join(root, order.wish.task_folder or folder.shown("task"))),
        order.env, tuple(settings.protected_paths), tuple(one.path for one in own if one not in USUAL),
        box.allow_hosts, box.allow_local_ports, tuple(map(os.path.expanduser, box.read_paths)),
        tuple(_lodgings(order)), tuple(name for name, _ in settings.agent.env),
        # What an agent asked for may not name a service of its own: that would be a way out.
        tuple((os.environ if parent else dict(order.env)).items()),
    )  # fmt: skip


def plain_terrain(project: Project, settings_env: Mapping[str, str]) -> Terrain:
    """Where a command takes place that is part of no run."""
    from ralphproof.config.boxes import Terrain

    return Terrain(project.root, project.store, "", tuple(settings_env.items()))


def _lodgings(order: Order) -> Iterator[tuple[str, Lodging]]:
    judges = tuple(one.agent for one in order.course.judges.values()) if order.course else ()
    for agent in (*order.agents, *judges):
        if (lodging := getattr(agent, "lodging", None)) is not None:
            yield agent.name, lodging
