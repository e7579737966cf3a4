"""Landing items: made of completed runs, and what became of them as text and JSON."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing

from ralphproof.base.errors import Refused
from ralphproof.base.git_layout import git_folders
from ralphproof.base.text import truncate
from ralphproof.base.value import Json, assert_never
from ralphproof.display.phrases import format_count
from ralphproof.engine.check import Finding
from ralphproof.engine.outcome import Completed
from ralphproof.engine.records import Record, RunBegan, RunEnded
from ralphproof.proof.builder import build_run_proof
from ralphproof.proof.schema import Proof, parse_checks, parse_setup, verification_remarks
from ralphproof.runs.saved_work import SavedWork, load_saved_work
from ralphproof.store.landings import (
    VERIFIED,
    Landed,
    LandingItem,
    LandingRejected,
    LandingResult,
    MergeConflict,
    MergedChecksFailed,
    NotVerified,
)
from ralphproof.store.ledger import RunRow, SqliteLedger
from ralphproof.store.project import Project
from ralphproof.store.run_state import find_run
from ralphproof.views.snapshots import snapshots_by_iteration
from ralphproof.workspace.commits import CommitBuilder
from ralphproof.workspace.git_command import UserGit


def items_to_land(
    project: Project, ledger: SqliteLedger, user_git: UserGit, target: str, runs: list[str]
) -> tuple[LandingItem, ...]:
    """The landing items of these runs; of all that the target rejected or whose landing was interrupted if there are
    none.
    """
    known = {row.item.run: row for row in ledger.landings.rows(target)}

    def item(run: str) -> LandingItem:
        if run in known and user_git.resolve_commit(known[run].item.commit):
            return known[run].item
        row = ledger.row(run)
        if row is None:
            raise Refused(f"the work of run {run} is no longer in this repository, and the run is not recorded here")
        return build_landing_item(project, ledger, row, os.environ)

    return tuple(map(item, runs or [run for run, row in known.items() if row.left]))


def landing_item_of_run(project: Project, run: str) -> LandingItem:
    """The landing item of a completed run; raises Refused for any other."""
    with closing(project.ledger()) as ledger:
        return build_landing_item(project, ledger, find_run(ledger, run), os.environ)


def build_landing_item(project: Project, ledger: SqliteLedger, row: RunRow, environ: Mapping[str, str]) -> LandingItem:
    """The landing item of a completed run; raises Refused for any other run. Called again it gives the same commit.

    Files that are left out (too large, or they look like secrets) are named in its remarks.
    """
    end, records = ledger.run_end(row.id), ledger.records(row.id)
    if not isinstance(end, RunEnded):
        raise Refused(f"run {row.id} has not ended, so nothing of it can land; see: ralph status {row.id}")
    if not isinstance(end.outcome, Completed):
        raise Refused(
            f"run {row.id} was not completed ({end.outcome.status}), so it does not land; "
            f"its work can be had as a branch: ralph branch {row.id} N"
        )
    number = max((number for number, one in snapshots_by_iteration(records).items() if one.tree is not None), default=0)
    work, proof = load_saved_work(project, row, records, number), build_run_proof(project, row, ledger)
    commit, remarks = _commit_of_work(project, work, records, proof, environ, ledger.last_written_at(row.id) or 0.0)
    sandbox = proof["sandbox"]
    return LandingItem(
        row.id, commit, work.title, parse_checks(proof), parse_setup(proof), ledger.tasks.task_of_run(row.id) or "",
        end.outcome.proof, "" if sandbox.get("strength") == "none" else str(sandbox.get("name") or ""),
        tuple(map(project.mask, remarks)),
    )  # fmt: skip


def _commit_of_work(
    project: Project, work: SavedWork, records: Iterable[Record], proof: Proof, environ: Mapping[str, str],
    at: float,
) -> tuple[str, tuple[str, ...]]:  # fmt: skip
    """The commit with the run's work, created if there is none yet, and remarks for the user."""
    subject = proof["subject"]
    with CommitBuilder(_work_tree_of_run(project, work.row), environ) as builder:
        user_git = builder.user_git
        if subject.get("kind") == "commit" and (commit := user_git.resolve_commit(str(subject.get("commit")))):
            return commit, verification_remarks(proof)
        plan = builder.plan(work.snapshot)
        remarks = [f"left out: {one.path}: {one.reason}" for one in plan.excluded]
        if plan.empty and plan.parent:
            return plan.parent, tuple(remarks)
        began = next((one.snapshot for one in records if isinstance(one, RunBegan)), None)
        before = builder.plan(began).changes if began and began.tree else ()
        changed = {path for _, path in plan.changes}
        if user_changes := [path for _, path in before if path in changed]:
            remarks.append(f"has what you had not committed when the run began: {_list_paths(user_changes)}")
        return user_git.commit(plan.tree, plan.parent, work.message, at), tuple(remarks)


def _work_tree_of_run(project: Project, row: RunRow) -> str:
    """The run's worktree if it still belongs to this repository, else the project's root."""
    run_git, project_git = git_folders(row.directory), git_folders(project.root)
    return row.directory if run_git and project_git and run_git.common == project_git.common else project.root


# Results as text and JSON


MAX_OUTPUT_CHARS, MAX_OUTPUT_LINES, MAX_LISTED, SHORT_HASH_CHARS = 5000, 20, 10, 12


def landing_result_lines(end: LandingResult) -> list[str]:
    """One line for the result of an item, then output of failed checks and notes."""
    item = end.item
    who = f"run {item.run}" if item.run else "what you committed"
    notes = [f"  note: {line}" for line in item.remarks]
    match end:
        case Landed(_, commit, target, checks):
            return [
                f"landed: {who} on {target} as {commit[:SHORT_HASH_CHARS]}, {_checks_text(item, checks)}: {item.title}",
                *notes,
            ]
        case LandingRejected(_, why):
            saved = f"; its work is kept as {item.commit[:SHORT_HASH_CHARS]}"
            return [
                f"turned away: {who}, {rejection_reason(why)}{saved}: {item.title}",
                *_failed_output_lines(why),
                *notes,
            ]
        case _:
            assert_never(end)


def rejection_reason(why: MergeConflict | MergedChecksFailed | NotVerified) -> str:
    """Why an item was rejected, in a few words."""
    match why:
        case MergeConflict(paths, _, onto, said):
            return f"it conflicts with {onto[:SHORT_HASH_CHARS]}: {said or _list_paths(paths)}"
        case MergedChecksFailed(_, onto, _):
            failed = ", ".join(f"{one.check} ({_finding_end(one)})" for one in why.failed[:MAX_LISTED])
            return f"merged onto {onto[:SHORT_HASH_CHARS]} it is red: {failed}"
        case NotVerified(proof):
            return (
                f"nothing verified it ({proof}), and no check is there that could; --unverified lands it all the same"
            )
        case _:
            assert_never(why)


def _checks_text(item: LandingItem, checks: int) -> str:
    merged = f"{format_count(checks, 'check')} passed on the merged tree" if checks else "no check ran"
    return merged if not item.run or item.proof == VERIFIED else f"{item.proof} and not verified, {merged}"


def _list_paths(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - MAX_LISTED} more" if len(paths) > MAX_LISTED else ""
    return ", ".join(" ".join(path.split()) for path in paths[:MAX_LISTED]) + more


def _finding_end(finding: Finding) -> str:
    return f"exit code {finding.code}" if finding.why == "exit" else finding.why


def _failed_output_lines(why: MergeConflict | MergedChecksFailed | NotVerified) -> list[str]:
    if not isinstance(why, MergedChecksFailed):
        return []
    return [f"    | {line}" for one in why.failed[:1] for line in one.output.splitlines()[-MAX_OUTPUT_LINES:]]


def landing_result_json(project: Project, end: LandingResult) -> dict[str, Json]:
    item = end.item
    facts: dict[str, Json] = {
        "run": item.run or None, "task": item.task or None, "title": project.mask(item.title),
        "work": item.commit, "proof": item.proof if item.run else None,
        "notes": [project.mask(line) for line in item.remarks],
    }  # fmt: skip
    match end:
        case Landed(_, commit, _, checks):
            return facts | {"landed": True, "commit": commit, "checks": checks}
        case LandingRejected(_, why):
            return facts | {"landed": False, "why": project.mask(rejection_reason(why))} | _rejection_json(project, why)
        case _:
            assert_never(end)


def _rejection_json(project: Project, why: MergeConflict | MergedChecksFailed | NotVerified) -> dict[str, Json]:
    match why:
        case MergeConflict(paths, tree, onto, _):
            return {"conflict": {"paths": [*paths], "onto": onto, "tree": tree or None}}
        case MergedChecksFailed(findings, onto, tree):
            checks: list[Json] = [_finding_json(project, one) for one in findings]
            return {"red": {"onto": onto, "tree": tree, "checks": checks}}
        case NotVerified():
            return {}
        case _:
            assert_never(why)


def _finding_json(project: Project, finding: Finding) -> dict[str, Json]:
    output = "" if finding.passed else project.mask(truncate(finding.output, MAX_OUTPUT_CHARS))
    return {
        "name": finding.check, "command": project.mask(finding.command), "passed": finding.passed,
        "code": finding.code, "why": finding.why, "output": output,
    }  # fmt: skip
