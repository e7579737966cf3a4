"""What a kernel can hold read-only in a project: the same paths that are watched, and what git and agents execute."""

from __future__ import annotations

import os
import re
import stat

from ralphproof.value import TYPE_CHECKING, value
from ralphproof.workspaces.layout import git_folders, read_small
from ralphproof.workspaces.own import USUAL
from ralphproof.workspaces.protected import GIT, is_glob, plain
from ralphproof.workspaces.wire import globs_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ralphproof.workspaces.wire import Glob

# What is executed, or says what is, by whoever opens the project: it may not come to be either.
FILES = (".claude/settings.json", ".claude/settings.local.json", ".mcp.json", ".envrc")
FOLDERS = (".ralph", ".claude/hooks", ".codex", ".vscode")
IN_GIT = ("config", "config.worktree", "info/attributes")
ELSEWHERE_GIT = "commondir"  # a file in which git finds where its settings are instead
HOOKED, INCLUDED = "core.hookspath", "include.path"  # settings that lead git elsewhere
SHARED = ("objects", "refs", "logs")  # all that a commit in a linked worktree writes of the repository that it shares
ELSEWHERE = (".git/", ".ralph/")  # of what is watched, what is held as a whole
_GIT_READS = re.compile(r"/\.git(/|[^/]*$)|/\.mailmap$")
MOST = 4096  # paths that patterns may stand for


@value
class HeldPaths:
    """Absolute paths in a project that nobody inside may write; `files` and `folders` hold also where they are missing.

    `found` are there now. `shared` are folders of a repository outside the project that must be writable, in `common`,
    of which the rest is only read; both empty where there is none. `exclude` is where git reads what to pass over.
    `unread` are those of the missing files that git itself never reads.
    """

    found: tuple[str, ...]
    files: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    common: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()
    exclude: str = ""
    unread: tuple[str, ...] = ()


def held_paths(root: str, protected: Iterable[str], own: Iterable[str] = (), settings: Iterable[str] = ()) -> HeldPaths:
    """Everything that is to be held in this project now.

    `protected` are patterns of the user's, `own` are files of this run, and `settings` paths of agents' own settings.
    """
    protected, own = list(protected), [*own, *(one.path for one in USUAL if not one.path.startswith(ELSEWHERE))]
    patterns = [*protected, *own]
    named = [_path(root, one) for one in patterns if not is_glob(one)]
    globs = globs_of([one for one in patterns if is_glob(one)])
    matched = [path for glob in globs for path in _matched(os.fsencode(root), glob)][:MOST]
    git, literal = _git(root), [*settings, *(one for one in protected if not is_glob(one))]
    named_files = [_path(root, one) for one in (*FILES, *(one for one in literal if not one.endswith("/")))]
    files = [*named_files, *git.files]
    folders = [_path(root, one) for one in (*FOLDERS, *(one for one in literal if one.endswith("/")))]
    folders += git.folders
    found = {path for one in (*named, *matched, *git.found, *files, *folders) for path in _real(one)}
    tops = (root, *git.common)
    return HeldPaths(
        tuple(sorted(path for path in found if _below(path, tops))),
        tuple(_absent(files, tops)), tuple(_absent(folders, tops)), git.common, git.shared, git.exclude,
        tuple(one for one in _absent(named_files, tops) if one not in git.files and not _GIT_READS.search(one)),
    )  # fmt: skip


def _path(root: str, pattern: str) -> str:
    return os.path.join(root, os.fsdecode(plain(pattern)))


def _below(path: str, folders: tuple[str, ...]) -> bool:
    return any(path.startswith(folder + "/") for folder in folders)


def _real(path: str) -> Iterator[str]:
    """Where a path leads, if something is there. A link itself cannot be held: that it changed is seen afterwards."""
    real = os.path.realpath(path)
    if os.path.exists(real):
        yield real


def _absent(paths: Iterable[str], tops: tuple[str, ...]) -> Iterator[str]:
    """Those that are not there and could come to be, where the links on the way to them lead."""
    for path in paths:
        if os.path.lexists(path) and not _stands_in(path):
            continue
        real = os.path.realpath(path)
        over = os.path.dirname(real)
        while not os.path.lexists(over):
            over = os.path.dirname(over)
        if _below(real, tops) and os.path.isdir(over):
            yield real


def _stands_in(path: str) -> bool:
    """Whether it is there only for another box that is open now: no file of settings is a socket."""
    return stat.S_ISSOCK(os.lstat(path).st_mode)


def _matched(top: bytes, glob: Glob) -> Iterator[str]:
    folders = [(glob.folder, 1)]
    while folders:
        folder, depth = folders.pop()
        try:
            with os.scandir(os.path.join(top, folder)) as entries:
                listed = [entry for entry in entries if entry.name != GIT and entry.name not in glob.passed_over]
        except OSError:
            continue
        for entry in listed:
            inner = folder + b"/" + entry.name if folder else entry.name
            if glob.means.fullmatch(inner):
                yield os.fsdecode(os.path.join(top, inner))
            elif (glob.deep is None or depth < glob.deep) and entry.is_dir(follow_symlinks=False):
                folders.append((inner, depth + 1))


def _git(root: str) -> HeldPaths:
    """What is to be held of the repository: settings and hooks; of a shared one all but what a commit needs."""
    folders = git_folders(root)
    if folders is None:
        return HeldPaths(())
    common, own = os.path.realpath(folders.common), os.path.realpath(folders.git_dir)
    if not own.startswith(root + "/") and not _knows(own, root):
        return HeldPaths(())  # whose it is, nobody knows: somebody inside may have put the link to it there
    files = [os.path.join(common, one) for one in IN_GIT]
    files.append(os.path.join(own, ELSEWHERE_GIT if own == common else "config.worktree"))
    modules = tuple(_modules(os.path.join(common, "modules")))
    files += [os.path.join(module, ELSEWHERE_GIT) for module in modules]
    files += [os.path.join(tree, "config.worktree") for tree in _worktrees(common)]
    found = [os.path.join(module, "config") for module in modules]
    found += [os.path.join(tree, one) for tree in _worktrees(common) for one in (ELSEWHERE_GIT, "gitdir")]
    if os.path.isfile(entry := os.path.join(root, ".git")):
        found.append(entry)
    configs = [os.path.join(folder, one) for folder in {common, own} for one in ("config", "config.worktree")]
    hooks = [os.path.join(folder, "hooks") for folder in (common, *modules)]
    files += _led_to(configs, INCLUDED, root)
    hooks += _led_to(configs, HOOKED, root)
    outside = not common.startswith(root + "/")
    exclude = os.path.join(common, "info", "exclude")
    shared = (*(os.path.join(common, one) for one in SHARED), own) if outside else ()
    return HeldPaths(
        tuple(found), tuple(files), tuple(hooks), (common,) if outside else (), shared,
        exclude if os.path.realpath(exclude) == exclude else "",
    )  # fmt: skip


def _knows(own: str, root: str) -> bool:
    """Whether a repository outside the project is that of this work tree, by what git says there of worktrees and
    submodules. One that says nothing may be, unless it is bare, or lies in another work tree, whose it is then."""
    config = os.path.join(own, "config")
    try:
        told = [os.fsdecode(read_small(os.fsencode(os.path.join(own, "gitdir")))).strip()]
    except OSError:
        told = [os.path.join(one, ".git") for one in _told(config, "core.worktree")]
    if not told:
        return os.path.basename(own) != ".git" and "true" not in _told(config, "core.bare")
    return any(os.path.realpath(os.path.join(own, os.path.dirname(one))) == root for one in told)


def _led_to(configs: Iterable[str], key: str, root: str) -> Iterator[str]:
    """Where else git looks for hooks or settings, by its settings, if that lies in the project."""
    for config in configs:
        base = root if key == HOOKED else os.path.dirname(config)
        for told in _told(config, key):
            path = os.path.normpath(os.path.join(base, os.path.expanduser(told)))
            if path.startswith(root + "/"):
                yield path


def _told(config: str, key: str) -> Iterator[str]:
    """What a file of settings says for a key, whatever its section's own name is."""
    try:
        lines = read_small(os.fsencode(config)).decode("utf-8", "surrogateescape").splitlines()
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


def _worktrees(common: str) -> list[str]:
    """What the repository keeps of each linked worktree."""
    folder = os.path.join(common, "worktrees")
    return [os.path.join(folder, name) for name in sorted(os.listdir(folder))] if os.path.isdir(folder) else []


def _modules(folder: str) -> Iterator[str]:
    """The repository of every submodule."""
    for at, folders, files in os.walk(folder):
        if "config" in files and "objects" in folders:
            yield at
            folders[:] = [one for one in folders if one == "modules"]
