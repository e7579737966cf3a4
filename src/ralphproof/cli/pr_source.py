"""Which commits a pull request is made of, and where they are to go."""

from __future__ import annotations

from ralphproof.cli.branch import made as make_branch
from ralphproof.cli.withheld import why_secret
from ralphproof.errors import Refused
from ralphproof.record import RunBegan, ScmEnded
from ralphproof.value import TYPE_CHECKING, value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ralphproof.cli.branch import SavedWork
    from ralphproof.record import Record
    from ralphproof.workspaces.landable import Landable, Landing
    from ralphproof.workspaces.users_git import UsersGit

USUAL = ("main", "master")
NAMED = 5


@value
class Route:
    """Where commits go: a remote (empty where there is none), the branch that they are for, and what it names here."""

    remote: str
    base: str
    tip: str


@value
class Offer:
    """A branch to be pulled. `commit` is empty where it is still to be made of the landing; `there` says that the
    branch names it already. `theirs` is what the user had not committed when the run began, and is part of it."""

    branch: str
    commit: str
    tree: str
    changes: tuple[tuple[str, str], ...]
    there: bool = False
    landing: Landing | None = None
    theirs: tuple[str, ...] = ()


def way(git: UsersGit, wanted: str) -> Route:
    """The remote of the branch we are on, and the base that was said, else the one that the remote itself has."""
    here = git.line("symbolic-ref", "-q", "--short", "HEAD")
    remotes = git.line("remote").splitlines()
    chosen = (git.line("config", f"branch.{here}.remote") if here else "", "origin", *remotes[: len(remotes) == 1])
    remote = next((one for one in chosen if one in remotes), "")
    base = wanted or _usual_base(git, remote, here)
    tip = git.commit_of(f"refs/remotes/{remote}/{base}") if remote else ""
    tip = tip or git.branch(base)
    if not tip:
        raise Refused(f"there is no branch {base!r} here to be the base; say another one with --base")
    return Route(remote, base, tip)


def _usual_base(git: UsersGit, remote: str, here: str) -> str:
    head = git.line("symbolic-ref", "-q", f"refs/remotes/{remote}/HEAD") if remote else ""
    if head:
        return head.removeprefix(f"refs/remotes/{remote}/")
    known = (name for name in USUAL if remote and git.commit_of(f"refs/remotes/{remote}/{name}"))
    found = next(known, "") or next((name for name in USUAL if git.branch(name)), "") or here
    if not found:
        raise Refused("no branch could be found that this is for; say it with --base")
    return found


def offer(landable: Landable, work: SavedWork, records: Sequence[Record], way: Route) -> Offer:
    """The branch of this work; raises Refused where there is nothing to pull, or something that must not leave here."""
    commits = [one.committed.commit for one in records if isinstance(one, ScmEnded) and one.committed.commit]
    commit = landable.users.commit_of(commits[-1]) if commits else ""
    landing = None if commit else landable.landing(work.snapshot, why_secret)
    if landing is not None and landing.empty:
        commit = landing.parent or ""
    found = _of_commit(landable, commit, work, way) if commit else _of_landing(landable, landing, work, records)
    _refuse_secrets(landable, commit or (landing.parent if landing else None) or "", records, way)
    return found


def _of_commit(landable: Landable, commit: str, work: SavedWork, way: Route) -> Offer:
    git = landable.users
    if git.ask("merge-base", "--is-ancestor", commit, way.tip, good=(0, 1)).code == 0:
        raise Refused(f"{way.base} has the work of run {work.row.id} already, so there is nothing to pull")
    tree = landable.commits.header(commit, b"tree ")[0]
    changes = landable.changes(git.line("merge-base", commit, way.tip) or None, commit)
    name = _branch_at(git, commit, way.base)
    own = f"ralph/{work.row.id}"
    if not name and (other := git.branch(own)) not in ("", commit):
        raise Refused(f"branch {own} has other work ({other[:12]}); rename or remove it: git branch -m {own} NAME")
    return Offer(name or own, commit, tree, changes, there=bool(name))


def _branch_at(git: UsersGit, commit: str, base: str) -> str:
    """The branch whose last commit this is, the checked-out one before others; never the base."""
    here = git.line("symbolic-ref", "-q", "--short", "HEAD")
    asked = ("for-each-ref", "--format=%(refname:lstrip=2)", f"--points-at={commit}", "refs/heads")
    names = [name for name in git.line(*asked).splitlines() if name != base]
    return here if here in names else next(iter(names), "")


def _of_landing(landable: Landable, landing: Landing | None, work: SavedWork, records: Sequence[Record]) -> Offer:
    assert landing is not None
    name, git = f"ralph/{work.row.id}", landable.users
    there = git.branch(name)
    if there:
        parents, trees = (landable.commits.header(there, field) for field in (b"parent ", b"tree "))
        if trees != [landing.tree] or parents != [one for one in (landing.parent,) if one]:
            raise Refused(
                f"branch {name} has other work ({there[:12]}); rename or remove it: git branch -m {name} NAME"
            )
    began = next((one.snapshot for one in records if isinstance(one, RunBegan)), None)
    before = landable.landing(began, why_secret).changes if began and began.tree else ()
    changed = {path for _, path in landing.changes}
    theirs = tuple(path for _, path in before if path in changed)
    return Offer(name, there, landing.tree, landing.changes, bool(there), landing, theirs)


def _refuse_secrets(landable: Landable, tip: str, records: Sequence[Record], way: Route) -> None:
    """Commits that exist are pushed as they are; one with a secret in it is not, though a later one removes it."""
    if not tip:
        return
    began = next((one.snapshot.head for one in records if isinstance(one, RunBegan)), None)
    asked = ("for-each-ref", "--format=%(objectname)", f"refs/remotes/{way.remote}/")
    known = {*landable.users.line(*asked).split(), way.tip, *([began] if began else [])}
    if found := landable.intruders(tip, sorted(known), why_secret):
        named = ", ".join(f"{one.path} ({one.why})" for one in found[:NAMED])
        raise Refused(f"nothing is pushed, because commits hold what looks secret: {named}; take it out of them first")


def carry_out(git: UsersGit, offer: Offer, work: SavedWork) -> str:
    """Make what is still to be made, so that the branch names its commit; the commit."""
    if offer.there:
        return offer.commit
    if offer.commit:
        if git.branch(offer.branch) != offer.commit:
            git.let(offer.branch, offer.commit, force=False)
        return offer.commit
    assert offer.landing is not None
    return make_branch(git, offer.landing, work, offer.branch, force=False)
