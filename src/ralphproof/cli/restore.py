"""`ralph restore`: a destroyed repository, put together again from the copy that a run kept."""

from __future__ import annotations

import os

from ralphproof.cli.out import put, put_json
from ralphproof.cli.parser import Parser
from ralphproof.errors import RalphError, Refused
from ralphproof.ledgers.lock import DirectoryLock
from ralphproof.value import TYPE_CHECKING, replace, value
from ralphproof.views.project import Project
from ralphproof.views.standing import ENDED, standing, turn_at_work

if TYPE_CHECKING:
    from argparse import Namespace

    from ralphproof.value import Json
    from ralphproof.views.copies import RepositoryCopy
    from ralphproof.workspaces.restoring import Newer, Restoring

ABOUT = """put a destroyed repository together again, from the copy that a run kept.

Every run copies .git to the state folder when it begins. If the repository provably has all of it when the run ends,
the copy is deleted; else it stays, and the run says so. This command puts it back: history, branches, tags, what runs
saved, the index, hooks and settings, as of the last turn that began before the damage, or else as of the run's start.

The present .git is moved aside, never deleted, and the message says where to. Your files are not touched; those that
differ from the restored commit are listed. It refuses where the present repository has commits that the copy lacks;
--force moves them aside too. You can repeat it, also after it was killed.
Exit codes: 0 done, or there was nothing to do; 2 refused; 3 the copy could not be read or written."""
EXAMPLES = (
    "ralph restore",
    "ralph restore 20261115-21 --dry-run",
    "ralph restore latest --force   # over a repository that was made anew",
    "mkdir project && ralph restore 20261115-21 -d project && git -C project checkout -- .",
)
SHOWN = 20
SHORT = 12
LATEST = "latest"


def parser() -> Parser:
    made = Parser("restore", ABOUT, EXAMPLES)
    add = made.add_argument
    add("run", nargs="?", metavar="RUN", help="an id, its beginning, or latest: the newest copy that is kept (default)")
    add("--force", action="store_true", help="also where the present repository has commits that the copy lacks")
    add("--dry-run", action="store_true", help="only say what would be done")
    return made


@value
class Restored:
    """What came of it. `lost` says what the repository lacked; empty where it had all, and nothing was done."""

    run: str
    lost: str
    restored: bool
    aside: str = ""
    before: tuple[str, ...] = ()  # what was moved aside in earlier attempts
    refs: int = 0
    head: str = ""
    latest: bool = False  # as of the latest turn, not of the run's start
    newer: tuple[Newer, ...] = ()
    named: tuple[str, ...] = ()  # refs that hold what came after the state that is put back
    differing: tuple[str, ...] | None = None  # None: it could not be told


def main(argv: list[str]) -> int:
    args = parser().parse(argv)
    project = Project.seen(args.project_dir, os.environ)
    copy = _chosen(project, args.run)
    lock = DirectoryLock(project.state_dir, project.root, "restore")
    lock.take()
    try:
        for store in dict.fromkeys((copy.store, project.store)):
            _refuse_live(replace(project, store=store))
        done = _restore(copy, args)
    finally:
        lock.release()
    _tell(args, done)
    return 0


def _chosen(project: Project, name: str | None) -> RepositoryCopy:
    """The copy that the user means; raises Refused where there is none, or it belongs elsewhere."""
    from ralphproof.views.copies import copies_of, is_of

    known = copies_of(project)
    here = [copy for copy in known if is_of(copy, project.root)]
    if name in (None, LATEST):
        if here:
            return here[0]
        _refuse_linked(project.root)
        raise Refused(
            f"no copy of a repository in {project.root} is kept: a run keeps its own until it ends, and longer only "
            "where the repository lost something. Was it elsewhere? Name it with -d"
        )
    found = [copy for copy in known if copy.start.run.startswith(str(name))]
    if not found:
        raise Refused(
            f"no copy of run {name} is kept: it had none, or the repository had all of it when the run ended; "
            f"kept are: {', '.join(copy.start.run for copy in here[:5]) or 'none'}"
        )
    if len(found) > 1:
        raise Refused(f"{name} is the beginning of several runs: {', '.join(copy.start.run for copy in found[:5])}")
    if not is_of(found[0], project.root):
        _refuse_linked(project.root)
        root = found[0].start.root
        raise Refused(f"the repository of run {found[0].start.run} was in {root}; restore it there: -d {root}")
    return found[0]


def _refuse_linked(root: str) -> None:
    """The repository of a linked worktree is elsewhere: its `.git` is a file that says where."""
    entry = os.path.join(root, ".git")
    if not os.path.isfile(entry):
        return
    from ralphproof.workspaces.layout import read_small

    home, linked, _ = (
        os.fsdecode(read_small(os.fsencode(entry), 1 << 16)).removeprefix("gitdir:").partition("/worktrees/")
    )
    if linked:
        place = os.path.dirname(home.strip())
        raise Refused(f"{root} is a linked worktree; restore where its repository is: -d {place}")


def _refuse_live(project: Project) -> None:
    """Nobody may be at work in the repository, in whichever of its worktrees."""
    try:
        ledger = project.ledger()
    except RalphError:
        return  # a record that cannot be read must not keep anybody from their history
    try:
        for row in ledger.runs():
            if standing(ledger, row, project) != ENDED and (row.process.alive or turn_at_work(project, row.id)):
                raise Refused(f"run {row.id} is at work in {row.directory}; end it first: ralph cancel {row.id}")
    finally:
        ledger.close()


def _restore(copy: RepositoryCopy, args: Namespace) -> Restored:
    from ralphproof.workspaces.restoring import Restoring

    restoring = Restoring(copy.folder, copy.start, os.environ)
    run, lost = copy.start.run, restoring.lost()
    if not lost and not args.force:
        return Restored(run, "", restored=False, before=tuple(restoring.asides()))
    try:
        restoring.build()
        newer = tuple(restoring.newer())
        if newer and not (args.force or args.dry_run):
            named = ", ".join(f"{one.ref.removeprefix('refs/heads/')} ({one.commit[:SHORT]})" for one in newer[:5])
            raise Refused(
                f"the present repository has commits that the copy does not have: {named}; to put the copy back and "
                f"move them aside with it: ralph restore {run} --force"
            )
        facts = _facts(restoring, run, lost, newer)
        if args.dry_run:
            return facts
        aside = restoring.swap()
    finally:
        restoring.clear()
    before = tuple(one for one in restoring.asides() if one != aside)
    return replace(facts, restored=True, aside=aside, before=before, differing=_differing(copy.start.root))


def _facts(restoring: Restoring, run: str, lost: str, newer: tuple[Newer, ...]) -> Restored:
    refs = restoring.refs()
    head, latest = refs.get("HEAD", ""), restoring.kept is not restoring.start
    return Restored(
        run,
        lost,
        restored=False,
        refs=len(refs) - bool(head),
        head=head,
        latest=latest,
        newer=newer,
        named=tuple(restoring.named),
    )


def _differing(root: str) -> tuple[str, ...] | None:
    """The files that differ from the restored commit, by their contents; nothing that the repository names is run."""
    import tempfile

    from ralphproof.workspaces.git import Git

    with tempfile.TemporaryDirectory(prefix="ralph-look-") as scratch:
        try:
            git = Git(root, scratch)
            try:
                return git.differing_from_head()
            finally:
                git.close()
        except (RalphError, OSError):
            return None


def _tell(args: Namespace, done: Restored) -> None:
    if args.json:
        newer: list[Json] = [{"ref": one.ref, "commit": one.commit} for one in done.newer]
        facts: dict[str, Json] = {"run": done.run, "restored": done.restored, "dryRun": args.dry_run, "lost": done.lost}
        facts |= {"aside": done.aside or None, "earlierAsides": [*done.before], "refs": done.refs, "newer": newer}
        files: Json = None if done.differing is None else [*done.differing]
        put_json(
            "restore",
            facts
            | {
                "head": done.head or None,
                "asOfLatestTurn": done.latest,
                "differing": files,
                "laterRefs": [*done.named],
            },
        )
        return
    if not done.lost and not done.restored and not args.dry_run:
        put(f"The repository has all that the copy of run {done.run} has; nothing was changed.", *_asides(done))
        return
    when = "its last turn" if done.latest else "its start"
    head = f", HEAD at {done.head[:SHORT]}" if done.head else ""
    verb = "is" if done.restored else "would be"
    put(f"The repository {verb} that of run {done.run} at {when}: {done.refs} refs{head}.")
    if done.lost:
        put(f"It was put back because {done.lost}." if done.restored else f"It would be put back because {done.lost}.")
    put(*(f"What was committed since is kept: git log {one}" for one in done.named[:SHOWN]))
    put(*_asides(done), *_files(done))
    if not done.restored:
        put(*(f"Only the present repository has {one.ref} ({one.commit[:SHORT]})." for one in done.newer[:SHOWN]))
        put("Nothing was changed.")


def _asides(done: Restored) -> list[str]:
    now = [f"What stood in its place is now {done.aside}; delete it when you do not need it."] if done.aside else []
    return [*now, *(f"Moved aside earlier: {one}" for one in done.before)]


def _files(done: Restored) -> list[str]:
    if not done.restored:
        return []
    if done.differing is None:
        return ["Your files were not touched. Whether they differ from HEAD could not be told; see: git status"]
    if not done.differing:
        return ["Your files are those of HEAD."]
    more = [f"  ... and {len(done.differing) - SHOWN} more"] if len(done.differing) > SHOWN else []
    head = f"Your files were not touched; {len(done.differing)} of them differ from HEAD:"
    return [head, *(f"  {path}" for path in done.differing[:SHOWN]), *more]
