"""The parcel of a completed run: its work as one commit, and the checks that it was completed by."""

from __future__ import annotations

from ralphproof.attested import checks_in, setup_in
from ralphproof.cli.branch import work_of
from ralphproof.cli.withheld import why_secret
from ralphproof.errors import Refused
from ralphproof.landing import Parcel
from ralphproof.proof_shape import object_in
from ralphproof.record import RunBegan, RunEnded
from ralphproof.value import TYPE_CHECKING
from ralphproof.verdict import Completed
from ralphproof.verification import remarks
from ralphproof.views.kept import snapshots_of
from ralphproof.workspaces.layout import git_folders

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ralphproof.cli.branch import SavedWork
    from ralphproof.ledgers.runs import RunRow
    from ralphproof.ledgers.sqlite import Sqlite
    from ralphproof.record import Record
    from ralphproof.value import Json
    from ralphproof.views.project import Project

NAMED = 20


def parcel_of(project: Project, ledger: Sqlite, row: RunRow, environ: Mapping[str, str]) -> Parcel:
    """What a completed run has to land; raises Refused for any other run. Asked twice it is the same commit.

    Files that stay out of it (too large, or secret by their looks) are named in its remarks.
    """
    from ralphproof.views.proof_of_run import proof_of_run

    end, records = ledger.end_of(row.id), ledger.records(row.id)
    if not isinstance(end, RunEnded):
        raise Refused(f"run {row.id} has not ended, so nothing of it can land; see: ralph status {row.id}")
    if not isinstance(end.outcome, Completed):
        raise Refused(
            f"run {row.id} was not completed ({end.outcome.status}), so it does not land; "
            f"its work can be had as a branch: ralph branch {row.id} N"
        )
    number = max((number for number, one in snapshots_of(records).items() if one.tree is not None), default=0)
    work, proof = work_of(project, row, records, number), proof_of_run(project, row, ledger)
    commit, told = _commit(project, work, records, proof, environ, ledger.written_at(row.id) or 0.0)
    box = object_in(proof, "sandbox")
    return Parcel(
        row.id, commit, work.title, checks_in(proof), setup_in(proof), ledger.tasks.task_of_run(row.id) or "",
        end.outcome.proof, "" if box.get("strength") == "none" else str(box.get("name") or ""),
        tuple(map(project.mask, told)),
    )  # fmt: skip


def _commit(
    project: Project, work: SavedWork, records: Iterable[Record], proof: dict[str, Json], environ: Mapping[str, str],
    at: float,
) -> tuple[str, tuple[str, ...]]:  # fmt: skip
    """The commit that has the work, made if there is none yet, and what a reader must know of it."""
    from ralphproof.workspaces.landable import Landable

    subject = object_in(proof, "subject")
    with Landable(_place(project, work.row), environ) as landable:
        users = landable.users
        if subject.get("kind") == "commit" and (commit := users.commit_of(str(subject.get("commit")))):
            return commit, remarks(proof)
        landing = landable.landing(work.snapshot, why_secret)
        told = [f"left out: {one.path}: {one.why}" for one in landing.withheld]
        if landing.empty and landing.parent:
            return landing.parent, tuple(told)
        began = next((one.snapshot for one in records if isinstance(one, RunBegan)), None)
        before = landable.landing(began, why_secret).changes if began and began.tree else ()
        changed = {path for _, path in landing.changes}
        if theirs := [path for _, path in before if path in changed]:
            told.append(f"has what you had not committed when the run began: {_named(theirs)}")
        return users.commit(landing.tree, landing.parent, work.message, at), tuple(told)


def _place(project: Project, row: RunRow) -> str:
    """The work tree of the run, where it is still one of this repository; else the project."""
    there, here = git_folders(row.directory), git_folders(project.root)
    return row.directory if there and here and there.common == here.common else project.root


def _named(paths: list[str]) -> str:
    more = f" and {len(paths) - NAMED} more" if len(paths) > NAMED else ""
    return f"{', '.join(' '.join(path.split()) for path in paths[:NAMED])}{more}"
