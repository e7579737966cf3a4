"""What commits, the index and a table of refs hold. Nothing that the repository configures is run to learn it."""

from __future__ import annotations

import os
import time

from ralphproof.value import TYPE_CHECKING
from ralphproof.workspaces.index import GitFailed
from ralphproof.workspaces.layout import is_id, read_small
from ralphproof.workspaces.objects import ObjectMissing
from ralphproof.workspaces.refs import read_ref, ref_name, write_ref
from ralphproof.workspaces.trees import FOLDER

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ralphproof.workspaces.gitcall import Reply
    from ralphproof.workspaces.index import PrivateIndex
    from ralphproof.workspaces.layout import GitFolders
    from ralphproof.workspaces.objects import Objects
    from ralphproof.workspaces.trees import Entry, Trees

MOST_STAGED = 500  # paths that the index is asked for
MOST_COMMITS = 100_000  # of new ones are looked through
WALK = ("--ignore-missing", "--stdin", "--topo-order", "-c", "--no-renames", "--raw", "-z", "--no-abbrev", "--no-color",
        "--format=%H", f"--max-count={MOST_COMMITS + 1}")  # fmt: skip


class TooMany(GitFailed):
    """There is more than can be looked through."""


class Commits:
    """The commits of one repository. Those that hold others to keep them from being pruned are written here too."""

    def __init__(self, index: PrivateIndex, objects: Objects, trees: Trees) -> None:
        self._index, self._objects, self._trees = index, objects, trees
        self._known: set[str] = set()

    @property
    def folders(self) -> GitFolders:
        """Where the repository keeps its things."""
        return self._index.folders

    def forget(self) -> None:
        """Look everything up again."""
        self._known.clear()

    def has(self, name: str) -> bool:
        """Whether there is a commit of this id."""
        if name not in self._known:
            try:
                if self._objects.read(name)[0] != b"commit":
                    return False
            except ObjectMissing:
                return False
            self._known.add(name)
        return True

    def header(self, commit: str, field: bytes) -> list[str]:
        """What a commit says in the lines of its head that begin so."""
        head = self._objects.read(commit)[1].partition(b"\n\n")[0]
        return [line[len(field) :].decode() for line in head.split(b"\n") if line.startswith(field)]

    def descends(self, before: str, after: str | None) -> bool:
        """Whether a commit holds another. Raises GitFailed where git cannot tell."""
        if after is None or not (self.has(before) and self.has(after)):
            return False
        if before in self.header(after, b"parent "):
            return True
        reply = self.ask("merge-base", "--is-ancestor", before, after)
        if reply.code not in (0, 1):
            raise GitFailed(f"git merge-base: {reply.said}")
        return reply.code == 0

    def ask(self, *args: str, stdin: bytes = b"") -> Reply:
        """A question to git."""
        theirs = os.path.join(self.folders.common, "shallow")  # says where the history of a shallow clone ends
        if os.path.exists(theirs):
            self._index.note("shallow", read_small(os.fsencode(theirs)))
        return self._index.ask(*args, stdin=stdin)

    def log(self, head: str, lines: int) -> tuple[str, ...]:
        """The last commits before and with this one, newest first, one line each."""
        if lines < 1:
            return ()
        reply = self.ask("log", "--no-color", "--format=%h %s", f"--max-count={lines}", head, "--")
        return tuple(reply.out.decode("utf-8", "replace").split("\n")[:-1]) if reply.code == 0 else ()

    def entry(self, revision: str, path: bytes) -> Entry | None:
        """What a commit holds at a path; None where it holds nothing there, or is itself not there."""
        found: Entry | None = (FOLDER, f"{revision}^{{tree}}")
        try:
            for name in path.split(b"/"):
                if found is None or found[0] != FOLDER:
                    return None
                found = self._trees.entries(found[1]).get(name)
        except ObjectMissing:
            return None
        return found

    def blob(self, name: str) -> bytes:
        """The content of a file. Raises ObjectMissing."""
        return self._objects.read(name)[1]

    def since(self, tips: Iterable[str], known: Iterable[str]) -> list[tuple[str, list[bytes]]]:
        """The commits that the tips hold and the known ones do not, newest first, each with the paths that it changed.

        Of a merge only what it has from none of its parents. Raises TooMany where they are not all looked through.
        """
        lines = [*tips, *(f"^{name}" for name in known)]
        reply = self.ask("log", *WALK, stdin="".join(f"{line}\n" for line in lines).encode())
        if reply.code != 0:
            raise GitFailed(f"git log: {reply.said}")
        found: list[tuple[str, list[bytes]]] = []
        words = iter(reply.out.split(b"\0"))
        for word in words:
            if word.lstrip(b"\n").startswith(b":"):
                found[-1][1].append(next(words))
            elif is_id(name := word.decode("ascii", "replace")):
                found.append((name, []))
        if len(found) > MOST_COMMITS:
            raise TooMany(f"more than {MOST_COMMITS} new commits: what they hold cannot be told")
        return found

    def behind(self, names: Iterable[str]) -> dict[str, str]:
        """The commit behind each id: itself, or what a tag names; without those that lead to none."""
        asked = list(names)
        stdin = "".join(f"{name}^{{commit}}\n" for name in asked).encode()
        reply = self.ask("cat-file", "--batch-check=%(objectname) %(objecttype)", stdin=stdin)
        if reply.code != 0:
            raise GitFailed(f"git cat-file: {reply.said}")
        answers = (line.split(" ") for line in reply.out.decode("ascii", "replace").splitlines())
        return {name: said[0] for name, said in zip(asked, answers, strict=False) if said[-1] == "commit"}

    def is_there(self, name: str) -> bool:
        """Whether there is any object of this id, whatever was known of it before."""
        return self.ask("cat-file", "-e", name).code == 0

    def refs(self) -> bytes:
        """Branches, tags and remote branches in lines `id name`, for repositories whose refs are no files."""
        return self._listed("refs/heads", "refs/tags", "refs/remotes")

    def all_refs(self) -> bytes:
        """Every ref in such lines."""
        return self._listed()

    def _listed(self, *kinds: str) -> bytes:
        env = self._index.env | {"GIT_DIR": self.folders.common}
        return self._index.must("for-each-ref", "--format=%(objectname) %(refname)", *kinds, env=env).out

    def staged(self, paths: Iterable[bytes]) -> dict[bytes, Entry]:
        """What the user's index holds at these paths; nothing where it cannot be read."""
        wanted = [os.fsdecode(path) for path in paths]
        env = self._index.env | {"GIT_DIR": self.folders.git_dir}
        reply = self._index.ask("ls-files", "--stage", "-z", "--", *wanted[:MOST_STAGED], env=env)
        records = (record.partition(b"\t") for record in reply.out.split(b"\0")[:-1])
        return {path: (about.split(b" ")[0], about.split(b" ")[1].decode()) for about, _, path in records}

    def uncommitted(self, run: str, start: str) -> dict[bytes, tuple[Entry | None, Entry | None]]:
        """What differed from HEAD when this was saved: HEAD's version of each file, and the one saved."""
        saved = self.named(run, start)
        if saved is None:
            return {}
        heads = self.header(saved, b"parent ")
        tree = self.header(heads[0], b"tree ")[0] if heads else None
        return self._trees.compare(tree, self.header(saved, b"tree ")[0])

    def tie(self, run: str, name: str, commits: Iterable[str], message: str) -> None:
        """Save a commit under this name of the run that only holds others, so that they are not pruned."""
        who = f"ralph <ralph@localhost> {int(time.time())} +0000"
        parents = "".join(f"parent {commit}\n" for commit in commits)
        tree = self._objects.write(b"tree", b"")
        text = f"tree {tree}\n{parents}author {who}\ncommitter {who}\n\n{message}\n"
        tied = self._objects.write(b"commit", text.encode("utf-8", "surrogateescape"))
        self._objects.flush()
        self.name(run, name, tied)

    def named(self, run: str, name: str) -> str | None:
        """The commit that has this name of the run, if it is there."""
        saved = read_ref(self._index, ref_name(run, name))
        return saved if saved and is_id(saved) and self.has(saved) else None

    def name(self, run: str, name: str, target: str) -> None:
        """Let this name of the run name an object, durably."""
        write_ref(self._index, ref_name(run, name), target)
