"""Results of landing as text and JSON."""

from __future__ import annotations

from ralphproof.base.text import truncate
from ralphproof.base.value import TYPE_CHECKING, assert_never
from ralphproof.display.phrases import format_count
from ralphproof.store.landings import VERIFIED, Landed, LandingRejected, MergeConflict, MergedChecksFailed, NotVerified

if TYPE_CHECKING:
    from ralphproof.base.value import Json
    from ralphproof.engine.check import Finding
    from ralphproof.store.landings import LandingItem, LandingResult
    from ralphproof.store.project import Project


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


def _list_paths(paths: tuple[str, ...]) -> str:
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
