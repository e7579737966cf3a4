"""A commit as files of their own: a repository beside the source, which shares its objects and nothing else of it."""

from __future__ import annotations

import os

from ralphproof.errors import DiskFull, HarnessFailed, Refused, from_system
from ralphproof.value import TYPE_CHECKING
from ralphproof.workspaces.gitcall import NOTHING_RUNS, Reply, call, find_program, quiet_environment
from ralphproof.workspaces.layout import git_folders, is_id, read_small

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ralphproof.workspaces.layout import GitFolders

TIMEOUT_S = 600.0
DEPTH = 6  # so deep git follows from one object folder to the next
# Names that another system could not hold were saved on this one. What is missing here is fetched from nowhere.
ANY_NAME = ("-c", "core.protectNTFS=false", "-c", "core.protectHFS=false", "-c", "protocol.allow=never")
# Someone: a commit needs an author. At a time that archives can hold.
WHO = {
    f"GIT_{who}_{what}": text
    for who in ("AUTHOR", "COMMITTER")
    for what, text in (("NAME", "ralph"), ("EMAIL", "ralph@localhost"), ("DATE", "946684800 +0000"))
}


def tree_of(root: str, revision: str, environ: Mapping[str, str]) -> str | None:
    """The id of the tree of a commit, or of a tree, in the repository at `root`; None where it is not there.

    Nothing that the repository configures runs.
    """
    if git_folders(root) is None or revision.startswith("-"):
        return None
    return Source(root, environ).named(f"{revision}^{{tree}}")


def check_out(root: str, revision: str, place: str, environ: Mapping[str, str]) -> None:
    """At `place`, which is made, a git repository with exactly the files of this commit or tree of the one at `root`.

    HEAD is the commit, and tags are there. Nothing of the source's settings holds, nothing of them runs, and nothing is
    written there: whoever is killed over this leaves `place` alone. Its objects are needed for as long as `place` is.
    Folders of submodules are empty. Files are those that git would check out where no filter is set up: LFS pointers
    stay pointers. Raises Refused where git or the revision is missing, or something is at `place`.
    """
    source = Source(root, environ)
    fresh = Fresh(source, place, environ)
    tree = source.named(f"{revision}^{{tree}}")
    if tree is None:
        raise Refused(f"{revision} is no commit or tree of the repository at {source.root}")
    fresh.make()
    fresh.fill(tree, source.named(f"{revision}^{{commit}}") or fresh.commit(tree, None))


class Source:
    """A repository that is only read, and without what it configures."""

    def __init__(self, root: str, environ: Mapping[str, str]) -> None:
        """Raises Refused where there is no repository, or no git."""
        self.root = os.path.realpath(root)
        folders, git = git_folders(self.root), find_program("git", environ.get("PATH", os.defpath), outside=self.root)
        if folders is None:
            raise Refused(f"{self.root} is not the top of a git repository")
        if git is None:
            raise Refused("git was not found in PATH")
        self.folders: GitFolders = folders
        self.git = git
        self._env = quiet_environment(environ, folders.git_dir, folders.objects, self.root)

    def named(self, revision: str) -> str | None:
        """The id that this names; None where it names nothing."""
        if revision.startswith("-") or "\0" in revision:
            return None
        found = self.ask("rev-parse", "-q", "--verify", revision).out.strip().decode("ascii", "replace")
        return found if is_id(found) else None

    def ask(self, *args: str) -> Reply:
        return call((self.git, "-C", self.root, *NOTHING_RUNS, *ANY_NAME, *args), self._env, timeout_s=TIMEOUT_S)

    @property
    def tags(self) -> bytes:
        """All tags, as git packs them."""
        return self.ask("for-each-ref", "--format=%(objectname) %(refname)", "refs/tags").out


def object_folders(folders: GitFolders) -> tuple[str, ...]:
    """Where the objects of a repository lie: its own folder, and those that it borrows from."""
    found, next_ones = [folders.objects], [folders.objects]
    for _ in range(DEPTH):
        next_ones = [one for folder in next_ones for one in _borrowed(folder) if one not in found]
        found += next_ones
    return tuple(dict.fromkeys(found))


def _borrowed(objects: str) -> list[str]:
    try:
        lines = read_small(os.fsencode(os.path.join(objects, "info", "alternates"))).splitlines()
    except OSError:
        return []
    paths = [
        os.path.join(objects, os.fsdecode(_unquoted(line))) for line in lines if line and not line.startswith(b"#")
    ]
    return [os.path.realpath(path) for path in paths if os.path.isdir(path)]


def _unquoted(line: bytes) -> bytes:
    if not (line.startswith(b'"') and line.endswith(b'"')):
        return line
    try:
        return line[1:-1].decode("unicode_escape").encode("latin-1")
    except ValueError:
        return line  # git wrote no such line


def _quoted(path: str) -> bytes:
    data = os.fsencode(path)
    if not data.startswith((b'"', b"#")) and b"\n" not in data:
        return data
    return b'"%s"' % data.replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n")


class Fresh:
    """A repository of its own at `place` with the objects of another one."""

    def __init__(self, source: Source, place: str, environ: Mapping[str, str]) -> None:
        self._source, self.place = source, os.path.abspath(place)
        self.git_dir = os.path.join(self.place, ".git")
        self._env = quiet_environment(environ, self.git_dir, os.path.join(self.git_dir, "objects"), self.place)

    def make(self) -> None:
        """Make it, without files. Raises Refused where something is there."""
        try:
            os.makedirs(self.place, exist_ok=True)
            if os.listdir(self.place):
                raise Refused(f"{self.place} is not empty, and a checkout needs a folder of its own; name another one")
            self._make()
        except OSError as error:
            raise from_system(error) from error

    def _make(self) -> None:
        folders = self._source.folders
        named = ("GIT_DIR", "GIT_OBJECT_DIRECTORY", "GIT_WORK_TREE")  # git would note them as settings
        env = {name: text for name, text in self._env.items() if name not in named}
        wide = (f"--object-format={folders.algorithm}",) if folders.algorithm != "sha1" else ()
        argv = (self._source.git, *NOTHING_RUNS, "init", "-q", "--template=", *wide, self.place)
        must(call(argv, env | {"GIT_DEFAULT_REF_FORMAT": "files", "GIT_DEFAULT_HASH": "sha1"}), "init")
        self._put("objects/info/alternates", b"".join(_quoted(one) + b"\n" for one in object_folders(folders)))
        self._put("packed-refs", self._source.tags)
        try:
            self._put("shallow", read_small(os.fsencode(os.path.join(folders.common, "shallow"))))
        except FileNotFoundError:
            pass  # its history is whole

    def _put(self, name: str, data: bytes) -> None:
        path = os.path.join(self.git_dir, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(data)

    def commit(self, tree: str, parent: str | None) -> str:
        """A commit of a tree that has none, in the place alone."""
        before = ("-p", parent) if parent else ()
        return self.ask("commit-tree", *before, "-m", "a clean checkout", tree, more=WHO).out.strip().decode()

    def fill(self, tree: str, commit: str) -> None:
        """Put the files there; HEAD is this commit."""
        self.ask("read-tree", "--reset", "-u", tree)
        try:
            self._put("HEAD", commit.encode() + b"\n")
        except OSError as error:
            raise from_system(error) from error

    def drop(self, path: bytes) -> None:
        """Remove one of its files."""
        try:
            os.unlink(os.path.join(os.fsencode(self.place), path))
        except OSError as error:
            raise from_system(error) from error

    @property
    def tree(self) -> str:
        """The tree of what is in its index."""
        return self.ask("write-tree").out.strip().decode()

    def ask(
        self, *args: str, stdin: bytes = b"", more: dict[str, str] | None = None, good: tuple[int, ...] = (0,),
        over: str = "",
    ) -> Reply:  # fmt: skip
        """Ask git about this repository, or with it about the files of another folder; raises where it fails."""
        files = over or self.place
        argv = (self._source.git, "-C", files, *NOTHING_RUNS, *ANY_NAME, *args)
        reply = call(argv, self._env | {"GIT_WORK_TREE": files} | (more or {}), stdin, timeout_s=TIMEOUT_S)
        return must(reply, args[0], good)


def must(reply: Reply, what: str, good: tuple[int, ...] = (0,)) -> Reply:
    """The reply of a git that did what it was asked for; raises DiskFull or HarnessFailed with what it says."""
    if reply.code in good:
        return reply
    full = b"No space left on device" in reply.err or b"Disk quota exceeded" in reply.err
    raise (DiskFull if full else HarnessFailed)(f"a clean checkout failed: git {what}: {reply.said or reply.code}")
