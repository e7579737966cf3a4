"""A project: its root, its state folder, and its ledger."""

from __future__ import annotations

import os

from ralphproof.base.errors import RalphError, Refused
from ralphproof.base.files import explain_os_error, make_private_folder
from ralphproof.base.git_layout import is_inside_project, resolve_project_root
from ralphproof.base.redaction import find_environment_secrets, mask_text
from ralphproof.base.value import TYPE_CHECKING, value
from ralphproof.engine.state import State, build_state
from ralphproof.store.database import STATE_DIR_REMEDY
from ralphproof.store.ledger import SqliteLedger
from ralphproof.workspace.repository_id import lookup_repository_id, repository_id

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


# SQLite's write-ahead log needs shared memory, which these file systems do not provide.
_NETWORK = ("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "fuse.sshfs", "afs", "ceph", "fuse.glusterfs")
_REMEDY = "set RALPH_STATE_DIR to a local directory of yours"


def account_home() -> str:
    """The user's home directory by the user database; empty for an unknown user."""
    import pwd

    try:
        return pwd.getpwuid(os.geteuid()).pw_dir
    except KeyError:
        return ""


def mounts() -> str:
    """The kernel's table of mounts; empty on a system that shows none."""
    try:
        with open("/proc/self/mounts", encoding="utf-8", errors="surrogateescape") as file:
            return file.read()
    except OSError:
        return ""


def ensure_state_dir(
    environ: Mapping[str, str], account_home: Callable[[], str] = account_home, mounts: Callable[[], str] = mounts
) -> str:
    """The state directory, created if it was missing: the first candidate that can be used."""
    refusals: list[RalphError] = []
    for path in _state_dir_candidates(environ, account_home):
        try:
            return _require_usable(path, mounts())
        except RalphError as error:
            refusals.append(error)
    raise refusals[-1]


def find_state_dir(environ: Mapping[str, str]) -> str:
    """Where the state directory is, or would be; nothing is created."""
    places = _state_dir_candidates(environ, account_home)
    return next((place for place in places if os.path.isdir(place)), places[0])


def _state_dir_candidates(environ: Mapping[str, str], account_home: Callable[[], str]) -> list[str]:
    """RALPH_STATE_DIR, else `ralphproof` in XDG_STATE_HOME, else in `.local/state` of a home directory that exists.

    A home directory that does not exist means that there is none, so it is never created.
    """
    if chosen := environ.get("RALPH_STATE_DIR"):
        return [os.path.abspath(os.path.expanduser(chosen))]
    chosen = environ.get("XDG_STATE_HOME", "")
    if os.path.isabs(chosen):
        return [os.path.join(chosen, "ralphproof")]
    homes = [home for home in (environ.get("HOME", ""), account_home()) if os.path.isabs(home) and os.path.isdir(home)]
    if not homes:
        raise Refused(f"there is no home directory to keep state in; {_REMEDY}")
    return [os.path.join(home, ".local", "state", "ralphproof") for home in homes]


def _require_usable(path: str, mounts: str) -> str:
    if os.path.islink(path) and os.lstat(path).st_uid not in (0, os.geteuid()):
        raise Refused(f"{path} is a symbolic link that another user made; {_REMEDY}")
    if kind := network_kind(os.path.realpath(path), mounts):
        raise Refused(f"{path} is on a network file system ({kind}), where the ledger would break; {_REMEDY}")
    try:
        make_private_folder(path)
        if not os.access(path, os.W_OK | os.X_OK):
            raise Refused(f"cannot write {path}; {_REMEDY}")
    except OSError as error:
        raise explain_os_error(error, path, _REMEDY) from error
    return path


def network_kind(path: str, mounts: str) -> str:
    """The kind of network file system that an absolute path is on, by a table like /proc/mounts; empty for none."""
    best, kind = "", ""
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        point = _unescape(fields[1])
        if (path + "/").startswith(point.rstrip("/") + "/") and len(point) >= len(best):
            best, kind = point, fields[2]
    return kind if kind in _NETWORK else ""


def _unescape(field: str) -> str:
    for code, char in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        field = field.replace(code, char)
    return field


# A project: its root folder and where the records of its runs are.


@value
class Project:
    """A project's folder, the user's state folder, and this repository's part of it."""

    root: str
    state_dir: str
    store: str
    secrets: tuple[str, ...]

    @staticmethod
    def at(folder: str | None, environ: Mapping[str, str]) -> Project:
        """The project of a folder (None: the current one), with its state folder made if it was missing.

        Raises Refused for a state folder of another version, before anything is added to it.
        """
        from ralphproof.store.spend import require_spend_version

        root = resolve_project_root(folder)
        _refuse_inside(find_state_dir(environ), root)
        state_dir = ensure_state_dir(environ)
        _refuse_inside(state_dir, root)
        require_spend_version(state_dir)
        try:
            repository = repository_id(root, state_dir)
        except OSError as error:
            raise explain_os_error(error, state_dir, STATE_DIR_REMEDY) from error
        return Project(root, state_dir, os.path.join(state_dir, "repos", repository), find_environment_secrets(environ))

    @staticmethod
    def seen(folder: str | None, environ: Mapping[str, str]) -> Project:
        """The same for reading: nothing is created, and a project without runs has an empty ledger."""
        root, state_dir = resolve_project_root(folder), find_state_dir(environ)
        _refuse_inside(state_dir, root)
        store = os.path.join(state_dir, "repos", lookup_repository_id(root, state_dir))
        return Project(root, state_dir, store, find_environment_secrets(environ))

    @property
    def mask(self) -> Callable[[str], str]:
        """Masks secrets in a text."""
        return lambda text: mask_text(text, self.secrets)

    def ledger(self, read_only: bool = True) -> SqliteLedger:
        """The ledger of this project's repository."""
        return SqliteLedger.open(self.store, self.mask, read_only)

    def state(self, run: str) -> State:
        """The state of a run, by its records."""
        ledger = self.ledger()
        try:
            return build_state(ledger.records(ledger.find(run)))
        finally:
            ledger.close()


def _refuse_inside(state_dir: str, root: str) -> None:
    """Raise Refused for a state folder in the project: it would be committed as work, and agents could reach it."""
    if is_inside_project(state_dir, root):
        raise Refused(
            f"the state folder {state_dir} lies in this project ({root}), where agents and git reach it; "
            "set RALPH_STATE_DIR to a directory outside of it"
        )
