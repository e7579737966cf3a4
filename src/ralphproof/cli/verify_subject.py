"""Where the tree of a proof is in this repository."""

from __future__ import annotations

from ralphproof.value import TYPE_CHECKING, value
from ralphproof.verification import DIFFERS, UNCHECKED, ProofAnswer
from ralphproof.workspaces.checkout import Source, tree_of
from ralphproof.workspaces.index import OURS
from ralphproof.workspaces.layout import git_folders

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ralphproof.attested import ProofSubject

HEAD = "HEAD"
FAR, NEAR = 2000, 100  # commits that are looked at: by their trees, and by those without what is ours
NO_GIT = "the run had no git repository: there is no commit or tree that could be checked out"
HERE = "there is no git repository here; go to a clone of the project, or name one with --project-dir"


@value
class ProofPlace:
    """Where a proof's tree is: the commit to check out, and the one whose settings hold for it."""

    commit: str
    settings: str
    told: tuple[str, ...] = ()


def place_of(root: str, subject: ProofSubject, run: str, environ: Mapping[str, str]) -> ProofPlace | ProofAnswer:
    """A commit of this repository with the very tree of the proof; else why there is none.

    What only saves a tree holds nothing of `.ralph`: settings are those of the commit that it stands on. Whoever
    commits such a tree has them beside it.
    """
    if subject.kind not in ("commit", "tree"):
        return ProofAnswer(UNCHECKED, (NO_GIT,))
    if git_folders(root) is None:
        return ProofAnswer(UNCHECKED, (HERE,))
    source = Source(root, environ)
    tree = tree_of(root, subject.commit, environ)
    if tree == subject.tree:
        own = source.named(f"{subject.commit}:.ralph/settings.json")
        below = source.named(f"{subject.commit}^") if subject.kind == "tree" and own is None else None
        return ProofPlace(subject.commit, below or subject.commit)
    if tree is not None:
        what = f"commit {subject.commit} has the tree {tree}, not {subject.tree}, which the proof speaks of"
        return ProofAnswer(DIFFERS, (what,))
    if other := _same_work(source, subject):
        return ProofPlace(other, other, (f"commit {subject.commit} is not here; {other} has the very same tree",))
    return ProofAnswer(UNCHECKED, (_missing(subject, run),))


def _same_work(source: Source, subject: ProofSubject) -> str:
    """A commit with that very tree: the one that HEAD was then, or one that leads to HEAD. What is ours is no work."""
    then = [subject.head] if subject.head and source.named(f"{subject.head}^{{commit}}") else []
    told = source.ask("log", f"--max-count={FAR}", "--format=%H %T", *then, HEAD, "--").out.decode("ascii", "replace")
    rows = [row.split(" ") for row in told.split("\n") if row]
    found = (commit for commit, tree in rows if tree == subject.tree)
    near = (commit for commit, _ in rows[:NEAR] if _without_ours(source, commit) == subject.tree)
    return next(found, "") or next(near, "")


def _without_ours(source: Source, revision: str) -> str:
    """The id that the tree of a commit would have without what no save holds; nothing is written."""
    import hashlib

    data, kept = source.ask("cat-file", "tree", f"{revision}^{{tree}}").out, b""
    width = 32 if source.folders.algorithm == "sha256" else 20
    while data:
        end = data.find(b"\0") + 1 + width
        if data[:end].partition(b"\0")[0].partition(b" ")[2] not in OURS:
            kept += data[:end]
        data = data[end:]
    return hashlib.new(source.folders.algorithm, b"tree %d\0%s" % (len(kept), kept)).hexdigest()


def _missing(subject: ProofSubject, run: str) -> str:
    """What to do where the commit is not here."""
    if subject.kind == "commit":
        fetch = f"git fetch REMOTE {subject.commit}, or git fetch --unshallow where the clone is shallow"
        return f"commit {subject.commit} is not in this repository; fetch it: {fetch}"
    number = subject.ref.rpartition("/")[2]
    branch = f"ralph branch {run} {number}" if number.isdigit() and run else "ralph branch"
    fetch = f"fetch it: git fetch REMOTE {subject.ref}:{subject.ref}; or " if subject.ref else ""
    return (
        f"the saved tree {subject.tree} (commit {subject.commit}) is not in this repository; {fetch}on the machine "
        f"where the run was make a branch of it, {branch}, and push that"
    )
