"""Project mounts of a sandbox: writable, with protected paths read-only and placeholders where none may be created."""

from __future__ import annotations

import fcntl
import json
import os
import re
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ralphproof.base.files import read_file, replace_file
from ralphproof.base.git_layout import git_folders, read_regular_file
from ralphproof.base.path_patterns import GIT_FOLDER, is_glob, literal_path
from ralphproof.base.value import value
from ralphproof.sandbox.plan import (
    BLANK_FILE,
    EMPTY_FOLDER,
    READ_ONLY,
    WRITABLE,
    Mount,
    Protection,
    is_within,
    nearest_mount,
)
from ralphproof.workspace.protected_paths import RESERVED_PATHS, GlobSearch, compile_globs

# Paths that are protected: those that are watched, and what git and agents execute.


# Executed, or naming what is executed, by whoever opens the project: must not be created either.
READ_ONLY_FILES = (".claude/settings.json", ".claude/settings.local.json", ".mcp.json", ".envrc")
READ_ONLY_FOLDERS = (".ralph", ".claude/hooks", ".codex", ".vscode")
GIT_SETTINGS_FILES = ("config", "config.worktree", "info/attributes")
COMMONDIR_FILE = "commondir"  # a file in which git finds where its settings are instead
HOOKS_PATH_KEY, INCLUDE_PATH_KEY = "core.hookspath", "include.path"  # settings that lead git elsewhere
SHARED_GIT_FOLDERS = (
    "objects",
    "refs",
    "logs",
)  # all that a commit in a linked worktree writes of the repository that it shares
HANDLED_PREFIXES = (".git/", ".ralph/")  # of what is watched, what is held as a whole
_GIT_READS = re.compile(r"/\.git(/|[^/]*$)|/\.mailmap$")
MAX_MATCHES = 4096  # paths that patterns may stand for


@value
class ReadOnlyPaths:
    """Absolute paths of a project that are read-only inside; `files` and `folders` are missing ones that must not be
    created.

    `found` exist now. `common` is a repository outside the project, which is read-only except for its folders `shared`;
    both are empty without one. `exclude` is git's exclude file. `unread` are missing files that git itself never reads.
    """

    found: tuple[str, ...]
    files: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    common: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()
    exclude: str = ""
    unread: tuple[str, ...] = ()


def find_read_only_paths(
    root: str, protected: Iterable[str], own: Iterable[str] = (), settings: Iterable[str] = ()
) -> ReadOnlyPaths:
    """All paths to protect in this project now.

    `protected` are patterns of the user, `own` are files of this run, `settings` are paths of agents' settings.
    """
    protected, own = (
        list(protected),
        [*own, *(one.path for one in RESERVED_PATHS if not one.path.startswith(HANDLED_PREFIXES))],
    )
    patterns = [*protected, *own]
    named = [_pattern_path(root, one) for one in patterns if not is_glob(one)]
    globs = compile_globs([one for one in patterns if is_glob(one)])
    matched = [path for glob in globs for path in _match_glob(os.fsencode(root), glob)][:MAX_MATCHES]
    git, literal = _repository_paths(root), [*settings, *(one for one in protected if not is_glob(one))]
    named_files = [
        _pattern_path(root, one) for one in (*READ_ONLY_FILES, *(one for one in literal if not one.endswith("/")))
    ]
    files = [*named_files, *git.files]
    folders = [_pattern_path(root, one) for one in (*READ_ONLY_FOLDERS, *(one for one in literal if one.endswith("/")))]
    folders += git.folders
    found = {path for one in (*named, *matched, *git.found, *files, *folders) for path in _resolve_existing(one)}
    tops = (root, *git.common)
    return ReadOnlyPaths(
        tuple(sorted(path for path in found if _is_below(path, tops))),
        tuple(_missing_paths(files, tops)), tuple(_missing_paths(folders, tops)), git.common, git.shared, git.exclude,
        tuple(one for one in _missing_paths(named_files, tops) if one not in git.files and not _GIT_READS.search(one)),
    )  # fmt: skip


def _pattern_path(root: str, pattern: str) -> str:
    return os.path.join(root, os.fsdecode(literal_path(pattern)))


def _is_below(path: str, folders: tuple[str, ...]) -> bool:
    return any(path.startswith(folder + "/") for folder in folders)


def _resolve_existing(path: str) -> Iterator[str]:
    """The real path, if it exists. A link itself cannot be protected; its change is detected afterwards."""
    real = os.path.realpath(path)
    if os.path.exists(real):
        yield real


def _missing_paths(paths: Iterable[str], tops: tuple[str, ...]) -> Iterator[str]:
    """Real paths of those that do not exist and could be created."""
    for path in paths:
        if os.path.lexists(path) and not _is_placeholder(path):
            continue
        real = os.path.realpath(path)
        over = os.path.dirname(real)
        while not os.path.lexists(over):
            over = os.path.dirname(over)
        if _is_below(real, tops) and os.path.isdir(over):
            yield real


def _is_placeholder(path: str) -> bool:
    """Whether it exists only as a placeholder of another sandbox: no settings file is a socket."""
    return stat.S_ISSOCK(os.lstat(path).st_mode)


def _match_glob(top: bytes, glob: GlobSearch) -> Iterator[str]:
    folders = [(glob.folder, 1)]
    while folders:
        folder, depth = folders.pop()
        try:
            with os.scandir(os.path.join(top, folder)) as entries:
                listed = [
                    entry for entry in entries if entry.name != GIT_FOLDER and entry.name not in glob.skipped_folders
                ]
        except OSError:
            continue
        for entry in listed:
            inner = folder + b"/" + entry.name if folder else entry.name
            if glob.regex.fullmatch(inner):
                yield os.fsdecode(os.path.join(top, inner))
            elif (glob.max_depth is None or depth < glob.max_depth) and entry.is_dir(follow_symlinks=False):
                folders.append((inner, depth + 1))


def _repository_paths(root: str) -> ReadOnlyPaths:
    """Settings and hooks of the repository; of a shared one everything but what a commit needs."""
    folders = git_folders(root)
    if folders is None:
        return ReadOnlyPaths(())
    common, own = os.path.realpath(folders.common), os.path.realpath(folders.git_dir)
    if not own.startswith(root + "/") and not _knows_work_tree(own, root):
        return ReadOnlyPaths(())  # whose it is, nobody knows: somebody inside may have put the link to it there
    files = [os.path.join(common, one) for one in GIT_SETTINGS_FILES]
    files.append(os.path.join(own, COMMONDIR_FILE if own == common else "config.worktree"))
    modules = tuple(_submodule_repositories(os.path.join(common, "modules")))
    files += [os.path.join(module, COMMONDIR_FILE) for module in modules]
    files += [os.path.join(tree, "config.worktree") for tree in _linked_worktrees(common)]
    found = [os.path.join(module, "config") for module in modules]
    found += [os.path.join(tree, one) for tree in _linked_worktrees(common) for one in (COMMONDIR_FILE, "gitdir")]
    if os.path.isfile(entry := os.path.join(root, ".git")):
        found.append(entry)
    configs = [os.path.join(folder, one) for folder in {common, own} for one in ("config", "config.worktree")]
    hooks = [os.path.join(folder, "hooks") for folder in (common, *modules)]
    files += _config_targets(configs, INCLUDE_PATH_KEY, root)
    hooks += _config_targets(configs, HOOKS_PATH_KEY, root)
    outside = not common.startswith(root + "/")
    exclude = os.path.join(common, "info", "exclude")
    shared = (*(os.path.join(common, one) for one in SHARED_GIT_FOLDERS), own) if outside else ()
    return ReadOnlyPaths(
        tuple(found), tuple(files), tuple(hooks), (common,) if outside else (), shared,
        exclude if os.path.realpath(exclude) == exclude else "",
    )  # fmt: skip


def _knows_work_tree(own: str, root: str) -> bool:
    """Whether a repository outside the project belongs to this work tree, by what it records of worktrees and
    submodules. One that records nothing may, unless it is bare or inside another work tree.
    """
    config = os.path.join(own, "config")
    try:
        told = [os.fsdecode(read_regular_file(os.fsencode(os.path.join(own, "gitdir")))).strip()]
    except OSError:
        told = [os.path.join(one, ".git") for one in _config_values(config, "core.worktree")]
    if not told:
        return os.path.basename(own) != ".git" and "true" not in _config_values(config, "core.bare")
    return any(os.path.realpath(os.path.join(own, os.path.dirname(one))) == root for one in told)


def _config_targets(configs: Iterable[str], key: str, root: str) -> Iterator[str]:
    """Paths in the project from which git reads further hooks or settings."""
    for config in configs:
        base = root if key == HOOKS_PATH_KEY else os.path.dirname(config)
        for told in _config_values(config, key):
            path = os.path.normpath(os.path.join(base, os.path.expanduser(told)))
            if path.startswith(root + "/"):
                yield path


def _config_values(config: str, key: str) -> Iterator[str]:
    """Values of a key in a git config file, in any subsection."""
    try:
        lines = read_regular_file(os.fsencode(config)).decode("utf-8", "surrogateescape").splitlines()
    except OSError:
        return
    section = ""
    for line in lines:
        if line.lstrip().startswith("["):
            head, _, line = line.lstrip()[1:].partition("]")
            section = head.partition('"')[0].strip().lower()
        name, _, told = line.partition("=")
        if f"{section.removesuffix('if')}.{name.strip().lower()}" == key:
            yield told.strip().strip('"')


def _linked_worktrees(common: str) -> list[str]:
    """Administrative folders of linked worktrees."""
    folder = os.path.join(common, "worktrees")
    return [os.path.join(folder, name) for name in sorted(os.listdir(folder))] if os.path.isdir(folder) else []


def _submodule_repositories(folder: str) -> Iterator[str]:
    for at, folders, files in os.walk(folder):
        if "config" in files and "objects" in folders:
            yield at
            folders[:] = [one for one in folders if one == "modules"]


# Mounts of the project: writable, with protected paths read-only and the folders above those pinned.


RALPH_FOLDER = ".ralph"
GITIGNORE_SPECIAL_CHARS = "\\*?["  # what a line of git's exclude file does not mean as it is written


def project_mounts(root: str, held: ReadOnlyPaths) -> list[Mount]:
    """The project, and a repository outside of it of which only what a commit needs is writable."""
    shared = [Mount(WRITABLE, path) for path in held.shared if os.path.exists(path)]
    return [Mount(WRITABLE, root), *(Mount(READ_ONLY, path) for path in held.common), *shared]


def ralph_folder_mounts(root: str, task: str, holds: bool) -> list[Mount]:
    """`.ralph` read-only, with the task's folder in it writable.

    A task folder elsewhere in the project is writable anyway; mounting it would uncover protected paths in it, or the
    target of a link that was created from inside.
    """
    own = os.path.join(root, RALPH_FOLDER)
    apart = bool(task) and (
        not is_within(task, root) or (is_within(task, own) and is_within(os.path.realpath(task), own))
    )
    if apart:
        os.makedirs(task, exist_ok=True)
    held = [Mount(READ_ONLY, own)] if holds and os.path.isdir(own) and not os.path.islink(own) else []
    return [*held, *([Mount(WRITABLE, task)] if apart else [])]


def protected_mounts(
    root: str, held: ReadOnlyPaths, before: Sequence[Mount], private: str
) -> tuple[list[Mount], Protection]:
    """Read-only mounts over protected paths that `before` makes writable; `private` is a folder for files of ours."""
    wanted = {path for path in (*held.found, *held.files, *held.folders) if _is_writable(path, before)}
    paths = {path for path in wanted if not any(path != other and is_within(path, other) for other in wanted)}
    files, folders = ([one for one in those if one in paths] for those in (held.files, held.folders))
    if held.exclude and not os.path.lexists(held.exclude):
        files.append(held.exclude)
    placeholders = (*files, *folders)
    tops = tuple(mount.path for mount in before if mount.kind == WRITABLE)
    above = {over for path in (*paths, held.exclude) if path for over in _parents_up_to(path, tops)}
    kinds = {**dict.fromkeys(above, WRITABLE), **dict.fromkeys(paths, READ_ONLY)}
    blank = dict.fromkeys(held.unread if sys.platform == "linux" else (), os.path.join(private, BLANK_FILE))
    mounts = [Mount(kinds[path], path, blank.get(path, "")) for path in sorted(kinds, key=lambda path: path.count("/"))]
    missing = {over for path in placeholders for over in _missing_parents(path)}
    protection = Protection(
        protected_names(root, held),
        placeholders,
        tuple(sorted({*missing, *folders}, key=len)),
        tuple(path for path in files if path in blank),
    )
    return [*mounts, *_git_exclude_mounts(root, held.exclude, placeholders, private)], protection


def protected_names(root: str, held: ReadOnlyPaths) -> tuple[str, ...]:
    """Protected paths that exist, relative to the root."""
    return tuple(os.path.relpath(path, root) for path in held.found)


def _git_exclude_mounts(root: str, exclude: str, placeholders: Iterable[str], private: str) -> Iterator[Mount]:
    """An exclude file that makes git ignore the placeholders."""
    if not exclude:
        return
    names = (os.path.relpath(path, root) for path in placeholders if is_within(path, root))
    lines = [_exclude_line(name) for name in names if not name.startswith(".git/") and "\n" not in name]
    file = os.path.join(private, "exclude")
    replace_file(file, (read_file(exclude) or b"") + b"\n" + os.fsencode("".join(lines)), durable=False)
    yield Mount(READ_ONLY, exclude, file)


def _exclude_line(name: str) -> str:
    for special in GITIGNORE_SPECIAL_CHARS:
        name = name.replace(special, "\\" + special)
    return f"/{name[:-1]}\\ \n" if name.endswith(" ") else f"/{name}\n"


def leaves_project(path: str, root: str) -> bool:
    """Whether a path in the project leads out of it: the link may have been created from inside."""
    return is_within(os.path.normpath(path), root) and not is_within(os.path.realpath(path), root)


def drop_variables_leaving_project(environ: Mapping[str, str], root: str) -> dict[str, str]:
    """Variables without paths that lead out of the project. A virtual environment may: it is a tool, wherever it is."""

    def kept(place: str) -> bool:
        marks = (os.path.join(os.path.realpath(place), up, "pyvenv.cfg") for up in ("", ".."))
        return not os.path.isabs(place) or not leaves_project(place, root) or any(map(os.path.exists, marks))

    return {name: os.pathsep.join(filter(kept, text.split(os.pathsep))) for name, text in environ.items()}


def is_visible(path: str, mounts: Sequence[Mount], covers: tuple[str, ...]) -> bool:
    """Whether the mounts already show a path; what is below an empty folder or a cover is not shown."""
    over = nearest_mount(path, mounts)
    return over is not None and over.kind != EMPTY_FOLDER and over.source not in covers


def _is_writable(path: str, mounts: Sequence[Mount]) -> bool:
    over = nearest_mount(path, mounts)
    return over is not None and over.kind == WRITABLE


def _parents_up_to(path: str, tops: tuple[str, ...]) -> Iterator[str]:
    """Folders between a path and the nearest writable mount above it."""
    top = max((one for one in tops if is_within(path, one) and path != one), key=len, default=path)
    while (path := os.path.dirname(path)) != top and len(path) > len(top):
        yield path


def _missing_parents(path: str) -> Iterator[str]:
    while not os.path.lexists(path := os.path.dirname(path)):
        yield path


# Placeholders exist only as mount points, so that nobody can create the real files meanwhile. They are recorded before
# they are created, and removed when no command needs them, also after a crash.


STATE_FOLDER, LOCK_FILE, RECORD_FILE = "box", "ghosts.lock", "ghosts.json"
# Content of placeholders that must not be empty; this one tells git that nothing is elsewhere.
PLACEHOLDER_CONTENTS = {"commondir": b".\n"}


class Placeholders:
    """Placeholders of one project, shared by concurrent commands; `folder` is private and outside the project."""

    def __init__(self, folder: str) -> None:
        self._folder, self.lock_file = folder, os.path.join(folder, LOCK_FILE)
        self._list = os.path.join(folder, RECORD_FILE)

    def acquire(self) -> int:
        """Keep placeholders from being removed; a descriptor for `release`.

        Called before planning: a placeholder of another sandbox must not vanish before this one is open.
        """
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        held = os.open(self.lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(held, fcntl.LOCK_SH)
        return held

    def create(self, protection: Protection) -> None:
        """Create what does not exist, folders first; the caller has acquired them.

        Hidden files are created as sockets: git does not show them, and opening one fails at once.
        """
        wanted = [(path, True) for path in protection.folders] + [(path, False) for path in protection.files]
        missing = [(path, folder) for path, folder in wanted if not os.path.lexists(path)]
        if missing:
            self._add({path for path, _ in missing})
        for path, folder in missing:
            _create_placeholder(path, folder, path in protection.hidden)

    def release(self, held: int | None = None) -> None:
        """Remove untouched placeholders, unless another command still needs them."""
        if held is None and not os.path.exists(self._list):
            return
        file = os.open(self.lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600) if held is None else held
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return
        else:
            self._remove()
        finally:
            os.close(file)

    def _remove(self) -> None:
        for path in sorted(self._known(), key=len, reverse=True):
            try:
                state = os.lstat(path)
                if stat.S_ISDIR(state.st_mode):
                    os.rmdir(path)
                elif stat.S_ISSOCK(state.st_mode) or (
                    stat.S_ISREG(state.st_mode) and _is_untouched(path, state.st_size)
                ):
                    os.unlink(path)
            except OSError:
                continue  # it is gone, or holds something by now
        try:
            os.unlink(self._list)
        except FileNotFoundError:
            return

    def _known(self) -> set[str]:
        try:
            with open(self._list, "rb") as file:
                found = json.load(file)
        except (OSError, ValueError):
            return set()
        return {path for path in found if isinstance(path, str)} if isinstance(found, list) else set()

    def _add(self, paths: set[str]) -> None:
        """Record further placeholders; other commands may do so at the same time."""
        alone = os.open(self._list + ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(alone, fcntl.LOCK_EX)
            replace_file(self._list, json.dumps(sorted({*self._known(), *paths})).encode())
        finally:
            os.close(alone)


def remove_stale_placeholders(store: str) -> None:
    """Remove placeholders of killed commands in every folder of a project. `store` is the project's state folder."""
    planner = os.path.join(store, STATE_FOLDER)
    try:
        names = os.listdir(planner)
    except OSError:
        return
    for name in names:
        Placeholders(os.path.join(planner, name)).release()


def _is_untouched(path: str, size: int) -> bool:
    content = PLACEHOLDER_CONTENTS.get(os.path.basename(path), b"")
    if size != len(content):
        return False
    with open(path, "rb") as file:
        return file.read(size + 1) == content


def _create_placeholder(path: str, folder: bool, hidden: bool) -> None:
    try:
        if folder:
            os.mkdir(path, 0o755)
        elif hidden and _create_socket(path):
            return
        elif content := PLACEHOLDER_CONTENTS.get(os.path.basename(path)):
            _create_file(path, content)
        else:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o444))
    except FileExistsError:
        return


def _create_socket(path: str) -> bool:
    """False if this file system has no sockets (as that of Windows)."""
    try:
        os.mknod(path, stat.S_IFSOCK | 0o444)
    except FileExistsError:
        raise
    except OSError:
        return False
    return True


def _create_file(path: str, content: bytes) -> None:
    """With its content from the first moment, since git may read it."""
    draft = f"{path}.{os.getpid()}.tmp"
    file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o444)
    try:
        os.write(file, content)
    finally:
        os.close(file)
    try:
        os.link(draft, path)
    finally:
        os.unlink(draft)
