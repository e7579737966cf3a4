"""What would be committed of a run, as files of their own: the last commit, and what the run changed since it began."""

from __future__ import annotations

from ralphproof.errors import Refused
from ralphproof.value import TYPE_CHECKING, value
from ralphproof.workspaces.checkout import ANY_NAME, TIMEOUT_S, Fresh, Source, must
from ralphproof.workspaces.gitcall import NOTHING_RUNS, Reply, call, plain_environment
from ralphproof.workspaces.staging import choose, raw_changes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ralphproof.workspace import Snapshot

OF_THE_USER = ("ls-files", "check-ignore")  # of their index, and of their rules of what is ignored
GONE = b"000000"


@value
class Pending:
    """Work that a commit would keep: all from `began` to `now` that is not the user's own, which is `theirs`."""

    began: Snapshot
    now: Snapshot
    theirs: frozenset[str] = frozenset()


def check_out_work(root: str, work: Pending, place: str, environ: Mapping[str, str]) -> str:
    """At `place` what `check_out` would make of the commit that the run's work would become; the id of its tree.

    The commit and its tree are made there alone. A file that is left out of the commit is as HEAD has it, or missing.
    """
    began, now = work.began.tree, work.now.tree
    if began is None or now is None:
        raise Refused(f"the work was not saved: {work.now.problem or work.began.problem or 'its tree is unknown'}")
    source = Source(root, environ)
    fresh = Fresh(source, place, environ)
    fresh.make()
    empty = fresh.ask("hash-object", "-t", "tree", "-w", "--stdin").out.strip().decode()
    base = work.now.head or empty
    chosen = choose(_Asked(source, fresh, environ), source.root, work.began, work.now, empty, work.theirs)
    wanted = {*chosen.add, *chosen.remove}
    changes = [change for change in raw_changes(fresh.ask, base, now) if change.path in wanted]
    fresh.ask("read-tree", base)
    lines = b"".join(change.for_index for change in changes)
    fresh.ask("update-index", "--replace", "-z", "--index-info", stdin=lines)
    return _filled(fresh, work.now.head, [change.path for change in changes if change.new_mode != GONE])


def _filled(fresh: Fresh, head: str | None, paths: list[bytes]) -> str:
    """Put the files of the index there, with these as a commit would have them: they were saved as they lay on disk."""
    tree = _laid(fresh, head)
    if not paths:
        return tree
    fresh.ask("add", "--renormalize", "--pathspec-from-file=-", "--pathspec-file-nul", stdin=b"\0".join(paths))
    for change in raw_changes(fresh.ask, tree, fresh.tree):
        fresh.drop(change.path)  # else git takes it for what it would write
    return tree if fresh.tree == tree else _laid(fresh, head)


def _laid(fresh: Fresh, head: str | None) -> str:
    tree = fresh.tree
    fresh.fill(tree, fresh.commit(tree, head))
    return tree


class _Asked:
    """Answers what is asked about the user's files with nothing of theirs but index and rules: no filter runs."""

    def __init__(self, source: Source, fresh: Fresh, environ: Mapping[str, str]) -> None:
        self._source, self._fresh = source, fresh
        self._env = plain_environment(environ) | {
            "GIT_DIR": source.folders.git_dir, "GIT_WORK_TREE": source.root, "GIT_OPTIONAL_LOCKS": "0",
        }  # fmt: skip

    def __call__(self, *args: str, stdin: bytes = b"", good: tuple[int, ...] = (0,)) -> Reply:
        if args[0] not in OF_THE_USER:
            return self._fresh.ask(*args, stdin=stdin, good=good, over=self._source.root)
        argv = (self._source.git, "-C", self._source.root, *NOTHING_RUNS, *ANY_NAME, *args)
        return must(call(argv, self._env, stdin, timeout_s=TIMEOUT_S), args[0], good)
