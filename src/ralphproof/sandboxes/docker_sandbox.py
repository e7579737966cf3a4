"""Docker's sandboxes: a small virtual machine for each project, with tools of its own.

It is made once, set up, and entered for every command. The agent's state lies outside of it, so a login outlives it.
"""

from __future__ import annotations

import os
import time

from ralphproof.sandboxes.box import BY_ITSELF, Way
from ralphproof.sandboxes.calling import ask
from ralphproof.sandboxes.docker_cli import PLAIN, SBX, DockerCli
from ralphproof.sandboxes.docker_sync import SandboxNote, look, quiet, read_note, stale, write_note
from ralphproof.sandboxes.docker_view import hosts_of, links_of, names_of, place_of, shut, workspaces_of
from ralphproof.sandboxes.told import MARK
from ralphproof.value import TYPE_CHECKING, replace, value

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ralphproof.sandbox import Command
    from ralphproof.sandboxes.box import Box, Lack

HOME = "/home/agent"  # of the user inside
NOBODY = ("Ralph Loop", "ralph@localhost")
LOOK_S, LOOKS = 1.0, 10
# Lay links into the home of the user inside: sh HOME [NAME TARGET ...]
LINK = """set -e
home=$1; shift
while [ $# -gt 1 ]; do
  mkdir -p "$(dirname "$home/$1")"; rm -rf "$home/$1"; ln -s "$2" "$home/$1"
  chown -h agent:agent "$home/$1" 2>/dev/null || true
  shift 2
done"""
IDENTITY = 'git config --global user.name "$1" && git config --global user.email "$2" && \
git config --global safe.directory "*"'
# End what has this in its environment, until nothing has: sh NAME=VALUE
END = """for round in 1 2 3 4 5; do
  left=0
  for file in $(grep -lzxFe "$1" /proc/[0-9]*/environ 2>/dev/null); do
    process=${file#/proc/}; kill -9 "${process%/environ}" 2>/dev/null && left=1
  done
  [ $left = 0 ] && exit 0
done"""
# A program that is not where it is outside is found by its name.
START = 'command -v "$1" >/dev/null 2>&1 || { named=${1##*/}; shift; set -- "$named" "$@"; }; exec "$@"'
WEAK = "protected paths are not held: a change of one is found afterwards"
WIDE = "the network policy of sbx holds for the whole machine: what it allows beyond the list is open"


@value
class Guest:
    """A command and its sandbox: what that is called and made from, the mark of the command, and its variables."""

    name: str
    template: str
    mark: str = ""
    variables: tuple[str, ...] = ()


class DockerSandbox:
    """`sbx` or `docker sandbox`; nothing of ours runs inside, and it has a proxy of its own."""

    name = "docker-sandbox"
    holds = False
    remounts = True  # by links
    elsewhere = True  # another machine: programs of this one do not run there
    limited_by = "its own machine"

    def __init__(
        self, kind: str, program: str | None, environ: Mapping[str, str] | None = None,
        *, agent: str = "", pause_s: float = LOOK_S, answer_s: float | None = None,
    ) -> None:  # fmt: skip
        """`kind` is sbx or docker, `program` its path. `agent` is whose template commands get that name none."""
        self._environ = dict(os.environ if environ is None else environ)
        self._cli, self.engine = DockerCli(kind, program, self._environ, answer_s), kind
        self._agent, self._pause_s = agent, pause_s
        self._guests: dict[str, Guest] = {}
        self._state: tuple[str, ...] = ()
        self.strength = "partial" if kind == SBX else "strong"
        self.weak: tuple[str, ...] = (WEAK, WIDE) if kind == SBX else (WEAK,)

    def serve(self, agent: str, folder: str) -> None:
        """Whose template commands get that name no agent, and where that one's state is: all share one sandbox."""
        os.makedirs(folder, mode=0o700, exist_ok=True)
        self._agent, self._state = agent, (folder,)

    def lacking(self) -> Lack | None:
        return self._cli.lacking()

    def way(self, box: Box) -> Way:
        """How this box is entered, once it was made ready."""
        guest = self._guests.get(box.temp) or self._guest(box, "")
        named = [word for name in guest.variables or names_of(box, ()) for word in ("-e", name)]
        begin = (*self._cli.begin, "exec", "-i", *named, "-w", place_of(box), guest.name)
        return Way((*begin, "sh", "-c", START, "sh"), BY_ITSELF, bare=True)

    def ready(self, box: Box, command: Command) -> str:
        """See to it that the sandbox is there, set up, on the right policy, and has the files as they are."""
        guest = replace(self._guest(box, command.agent), mark=command.mark, variables=names_of(box, command.env))
        self._guests[box.temp] = guest
        if command.taken_up:
            return ""
        found = self._cli.sandboxes()
        if isinstance(found, str):
            return found
        there = next((one for one in found if one.name == guest.name), None)
        note, wanted = read_note(self._note(guest.name)), workspaces_of(box)
        had = (there.workspaces if there else None) or (note.workspaces if note else ())
        if there is None or not set(wanted) <= set(had):
            return self._made_anew(guest, box, command, note, there is not None)
        old = note is not None and note.files is not None and stale(note.files, look(box.root))
        if old and (why := self._cli.stop(guest.name)):
            return why
        return self._settled(guest, box, command, replace(note or SandboxNote(), workspaces=had), note is None)

    def _made_anew(self, guest: Guest, box: Box, command: Command, note: SandboxNote | None, there: bool) -> str:
        """A sandbox with all the folders that were ever wanted in it: they cannot be added to one."""
        if there and (why := self._cli.remove(guest.name)):
            return why
        before = note or SandboxNote()
        folders = tuple(dict.fromkeys((*workspaces_of(box), *self._state)))
        plain = {one.removesuffix(":ro") for one in folders}
        more = [(one, one.removesuffix(":ro")) for one in before.workspaces]
        folders += tuple(one for one, path in more if path not in plain and os.path.isdir(path))
        why = self._cli.create(guest.name, guest.template, folders)
        return why or self._settled(guest, box, command, SandboxNote(folders, hosts=before.hosts), fresh=True)

    def _settled(self, guest: Guest, box: Box, command: Command, note: SandboxNote, fresh: bool) -> str:
        """Policy first; then links and, in a sandbox that nobody set up, the name for commits."""
        before = dict(note.hosts or {})
        asked = before | {command.agent: hosts_of(box)}
        if self._cli.kind != SBX and (fresh or asked != before):
            now, then = _all(asked), _all(before)
            if why := self._cli.allow(guest.name, now, [host for host in then if host not in now]):
                return why
        links = dict(note.links) | dict(links_of(box, command.agent))
        if links != dict(note.links):
            words = [word for link in links.items() for word in link]
            if why := self._cli.inside(guest.name, "sh", "-c", LINK, "sh", HOME, *words, root=True):
                return why
        if fresh and (why := self._cli.inside(guest.name, "sh", "-c", IDENTITY, "sh", *self._identity())):
            return why
        write_note(self._note(guest.name), replace(note, links=tuple(links.items()), hosts=asked))
        return ""

    def over(self, box: Box) -> None:
        """End what the command left behind inside, and wait for its files."""
        guest = self._guests.pop(box.temp, None)
        if guest is None:
            return
        self._cli.inside(guest.name, "sh", "-c", END, "sh", f"{MARK}={guest.mark}", root=True)
        files = quiet(box.root, self._pause_s, LOOKS, time.sleep)
        note = read_note(self._note(guest.name)) or SandboxNote()
        write_note(self._note(guest.name), replace(note, files=files))

    def held_before(self) -> bool:
        """Whether this very program was tried out, and what it made held."""
        return bool(version := self._cli.identity()) and _read(self._tried()) == version

    def has_held(self) -> None:
        """Remember that it was tried out."""
        os.makedirs(self._store(), mode=0o700, exist_ok=True)
        with open(self._tried(), "w", encoding="utf-8") as file:
            file.write(self._cli.identity())

    def remove(self, box: Box) -> None:
        """Remove the machine of this box, with what is remembered of it."""
        name = self._guest(box, "").name
        found = self._cli.sandboxes()
        if not isinstance(found, str) and any(one.name == name for one in found):
            self._cli.remove(name)
        for path in (self._note(name), self._pointer(box)):
            if os.path.exists(path):
                os.unlink(path)

    def unreached(self, box: Box) -> tuple[str, ...]:
        """Hosts of the list that the machine's own policy keeps back; it is the user's, and never changed."""
        policy = self._cli.policy() if self._cli.kind == SBX else None
        return () if policy is None else tuple(host for host in hosts_of(box) if shut(host, *policy))

    def _guest(self, box: Box, agent: str) -> Guest:
        """Commands that name no agent go where the last one was that did."""
        template = self._cli.template(agent or self._last(box) or self._agent)
        if agent:
            self._remember(box, agent)
        return Guest(sandbox_name(box.root, template), template)

    def _last(self, box: Box) -> str:
        return _read(self._pointer(box))

    def _remember(self, box: Box, agent: str) -> None:
        if self._last(box) != agent:
            os.makedirs(os.path.dirname(self._pointer(box)), mode=0o700, exist_ok=True)
            with open(self._pointer(box), "w", encoding="utf-8") as file:
                file.write(agent)

    def _pointer(self, box: Box) -> str:
        return os.path.join(self._store(), sandbox_name(box.root, PLAIN) + ".agent")

    def _note(self, name: str) -> str:
        return os.path.join(self._store(), name + ".json")

    def _tried(self) -> str:
        return os.path.join(self._store(), f"tried-{self._cli.kind}")

    def _store(self) -> str:
        """Outside of everything that a sandbox gets."""
        env = self._environ
        home = env.get("XDG_STATE_HOME") or os.path.join(env.get("HOME") or os.path.expanduser("~"), ".local", "state")
        return os.path.join(env.get("RALPH_STATE_DIR") or os.path.join(home, "ralphproof"), "docker-sandbox")

    def _identity(self) -> tuple[str, str]:
        """The user's own name and address in commits."""
        said = [ask(("git", "config", "--global", "--get", key), timeout_s=10.0, env=self._environ).out.strip()
                for key in ("user.name", "user.email")]  # fmt: skip
        return said[0] or NOBODY[0], said[1] or NOBODY[1]


def sandbox_name(root: str, template: str) -> str:
    """What the sandbox of a project is called: two projects never share one, and no name begins another."""
    import hashlib
    import re

    path = re.sub(r"[^A-Za-z0-9._-]", "_", root)[-40:].lstrip("._-")
    digest = hashlib.sha256(f"{root}\0{template}".encode(errors="surrogateescape")).hexdigest()[:8]
    return f"ralph-{path}-{digest}"


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().strip()
    except OSError:
        return ""


def _all(hosts: Mapping[str, tuple[str, ...]]) -> list[str]:
    return list(dict.fromkeys(host for asked in hosts.values() for host in asked))
