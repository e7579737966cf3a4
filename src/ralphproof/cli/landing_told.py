"""What landing came to, for people and for programs."""

from __future__ import annotations

from ralphproof.check import clip
from ralphproof.cli.out import put, put_json
from ralphproof.display.words import count
from ralphproof.landing import VERIFIED, Conflict, Landed, Red, TurnedAway, Unshown
from ralphproof.value import TYPE_CHECKING, assert_never

if TYPE_CHECKING:
    from argparse import Namespace

    from ralphproof.check import Finding
    from ralphproof.landing import LandingEnd, Parcel, Target
    from ralphproof.value import Json
    from ralphproof.views.project import Project

OUTPUT_CHARS, OUTPUT_LINES, NAMED, SHORT = 5000, 20, 10, 12


def tell(args: Namespace, project: Project, target: Target, ends: tuple[LandingEnd, ...]) -> int:
    """Say what became of each parcel; the exit code."""
    code = int(any(isinstance(end, TurnedAway) for end in ends))
    if args.json:
        tip: Json = target.tip() or None
        told: list[Json] = [_json(project, end) for end in ends]
        put_json("land", {"target": target.name, "tip": tip, "parcels": told, "exitCode": code})
        return code
    if not ends:
        put(f"nothing to land on {target.name}: nothing is left over; name a run, or see: ralph runs")
    for end in ends:
        put(*(project.mask(text) for text in lines(end)))
    return code


def lines(end: LandingEnd) -> list[str]:
    """One parcel's end: a line, and what a reader must know besides."""
    parcel = end.parcel
    who = f"run {parcel.run}" if parcel.run else "what you committed"
    notes = [f"  note: {line}" for line in parcel.remarks]
    match end:
        case Landed(_, commit, target, asked):
            return [f"landed: {who} on {target} as {commit[:SHORT]}, {_shown(parcel, asked)}: {parcel.title}", *notes]
        case TurnedAway(_, why):
            kept = f"; its work is kept as {parcel.commit[:SHORT]}"
            return [f"turned away: {who}, {reason(why)}{kept}: {parcel.title}", *_output(why), *notes]
        case _:
            assert_never(end)


def reason(why: Conflict | Red | Unshown) -> str:
    """Why a parcel was turned away, in a few words."""
    match why:
        case Conflict(paths, _, onto, said):
            return f"it conflicts with {onto[:SHORT]}: {said or _paths(paths)}"
        case Red(_, onto, _):
            failed = ", ".join(f"{one.check} ({_end(one)})" for one in why.failed[:NAMED])
            return f"merged onto {onto[:SHORT]} it is red: {failed}"
        case Unshown(proof):
            return (
                f"nothing verified it ({proof}), and no check is there that could; --unverified lands it all the same"
            )
        case _:
            assert_never(why)


def _shown(parcel: Parcel, asked: int) -> str:
    merged = f"{count(asked, 'check')} passed on the merged tree" if asked else "no check ran"
    return merged if not parcel.run or parcel.proof == VERIFIED else f"{parcel.proof} and not verified, {merged}"


def _paths(paths: tuple[str, ...]) -> str:
    more = f" and {len(paths) - NAMED} more" if len(paths) > NAMED else ""
    return ", ".join(" ".join(path.split()) for path in paths[:NAMED]) + more


def _end(finding: Finding) -> str:
    return f"exit code {finding.code}" if finding.why == "exit" else finding.why


def _output(why: Conflict | Red | Unshown) -> list[str]:
    if not isinstance(why, Red):
        return []
    return [f"    | {line}" for one in why.failed[:1] for line in one.output.splitlines()[-OUTPUT_LINES:]]


def _json(project: Project, end: LandingEnd) -> dict[str, Json]:
    parcel = end.parcel
    facts: dict[str, Json] = {
        "run": parcel.run or None, "task": parcel.task or None, "title": project.mask(parcel.title),
        "work": parcel.commit, "proof": parcel.proof if parcel.run else None,
        "notes": [project.mask(line) for line in parcel.remarks],
    }  # fmt: skip
    match end:
        case Landed(_, commit, _, asked):
            return facts | {"landed": True, "commit": commit, "checks": asked}
        case TurnedAway(_, why):
            return facts | {"landed": False, "why": project.mask(reason(why))} | _why(project, why)
        case _:
            assert_never(end)


def _why(project: Project, why: Conflict | Red | Unshown) -> dict[str, Json]:
    match why:
        case Conflict(paths, tree, onto, _):
            return {"conflict": {"paths": [*paths], "onto": onto, "tree": tree or None}}
        case Red(findings, onto, tree):
            asked: list[Json] = [_finding(project, one) for one in findings]
            return {"red": {"onto": onto, "tree": tree, "checks": asked}}
        case Unshown():
            return {}
        case _:
            assert_never(why)


def _finding(project: Project, finding: Finding) -> dict[str, Json]:
    output = "" if finding.passed else project.mask(clip(finding.output, OUTPUT_CHARS))
    return {
        "name": finding.check, "command": project.mask(finding.command), "passed": finding.passed,
        "code": finding.code, "why": finding.why, "output": output,
    }  # fmt: skip
