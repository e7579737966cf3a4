"""What can be reached from inside a sandbox, and how one of any kind is entered."""

from __future__ import annotations

from ralphproof.value import TYPE_CHECKING, Protocol, value

if TYPE_CHECKING:
    from ralphproof.sandbox import Command

# What a place is inside: as it is outside but never written, writable, or a fresh folder that is gone afterwards.
READ, WRITE, EMPTY = "read", "write", "empty"
# How the program inside and the proxy outside meet: by an inherited descriptor, a socket in a folder that is mounted, a
# port of this machine, or not at all because the sandbox has a proxy of its own.
BY_DESCRIPTOR, BY_SOCKET, BY_PORT, BY_ITSELF = "descriptor", "socket", "port", "itself"
PORT = "{port}"  # what the outer program puts into the argument list of a bare box when it knows it
MEETING_INSIDE = "/run/ralph"  # where a container sees the folder of the meeting

NOTHING = "/dev/null"  # what lies over a file that must not come to be
BLANK = "blank"  # an empty file of ours, which is seen in the place of one that is not there


@value
class Mount:
    """One place of the machine as it is inside. Those that come later lie over those before them.

    `source` is the place outside; empty: the same path.
    """

    kind: str
    path: str
    source: str = ""

    @property
    def outside(self) -> str:
        return self.source or self.path


@value
class Egress:
    """What can be called from inside. A host is `name`, `*.name`, or either with `:port`; no entry means none.

    `private:name:port` may lie in a private network: the user says so. `local_ports` are ports of this machine.
    """

    hosts: tuple[str, ...] = ()
    local_ports: tuple[int, ...] = ()


@value
class Ration:
    """What all processes of one command may use together; 0 is not limited."""

    memory_bytes: int = 0
    processes: int = 0


@value
class Box:
    """Everything that one command can reach.

    `mounts` are all there is of the file system. `ghosts` are those of their places that are not there outside, and
    must not come to be: something lies over them meanwhile. Of these, and of what lies above them, `hollow` are
    folders. `keeps` names the variables that stay (a star at the end of one stands for all that begin so), and `sets`
    gives others. `temp` is a private folder outside, for kinds that have no file system of their own. `names` are the
    protected paths among the mounts, from the root, for people. One that is `attended` has somebody at its terminal.
    """

    root: str
    home: str
    temp: str
    mounts: tuple[Mount, ...]
    egress: Egress = Egress()
    ration: Ration = Ration()
    keeps: tuple[str, ...] = ()
    sets: tuple[tuple[str, str], ...] = ()
    ghosts: tuple[str, ...] = ()
    hollow: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    cwd: str = ""
    attended: bool = False

    @property
    def unseen(self) -> tuple[str, ...]:
        """Those of the ghosts that are seen nowhere: inside an empty file lies over them."""
        blank = {mount.path for mount in self.mounts if mount.source.endswith("/" + BLANK)}
        return tuple(path for path in self.ghosts if path in blank)

    @property
    def meeting(self) -> str:
        """The folder of the socket at which a container meets the outer program."""
        return self.temp + "/meeting"


@value
class Fence:
    """What a process forbids itself, where the kernel offers nothing better (Landlock)."""

    read: tuple[str, ...]
    write: tuple[str, ...]
    ports: tuple[int, ...] = ()


@value
class Way:
    """How a box is entered: what stands before the program's own argument list, and how the network is reached.

    `fence` is what the program inside is to forbid itself first. `env` is for the entering program alone. A box that
    is `bare` has nobody of ours inside: its program is started as it is. A program that is `reached` by signals to
    all processes of its turn has none passed on to it: a second one often means "at once".
    """

    argv: tuple[str, ...]
    meets: str
    fence: Fence | None = None
    env: tuple[tuple[str, str], ...] = ()
    bare: bool = False
    reached: bool = True


@value
class Lack:
    """Why a kind of sandbox cannot be used here, and how to mend that; both in one clause."""

    why: str
    mend: str = ""


class Backend(Protocol):
    """One kind of sandbox."""

    name: str
    strength: str  # strong or partial
    weak: tuple[str, ...]  # what it does not hold, each in one clause
    holds: bool  # whether paths inside the project can be held read-only
    remounts: bool  # whether a place can be shown at another path

    def lacking(self) -> Lack | None:
        """What is missing here, as far as can be told without trying."""

    def way(self, box: Box) -> Way:
        """How this box is entered."""

    def ready(self, box: Box, command: Command) -> str:
        """Do what comes before every command; why that failed, if it did."""

    def over(self, box: Box) -> None:
        """Do what comes after every command."""
