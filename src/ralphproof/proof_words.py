"""What a proof says, in sentences."""

from __future__ import annotations

from ralphproof.budget import dollars
from ralphproof.figure import date_of
from ralphproof.ink import Ink, in_line
from ralphproof.proof_shape import object_in, objects_in
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ralphproof.value import Json

    Object = dict[str, Json]

NAMED = 20  # of tests, in a sentence
ID_CHARS = 12
DAY_S = 86_400
LATEST_S = 1 << 36  # no run ends later
COLUMNS = ("check", "command", "where", "result", "exit", "seconds", "tests", "before the run")


def verdict(proof: Object, ink: Ink) -> str:
    """What was proved, by what, on which commit, and what was not: one sentence or two."""
    outcome, checks = object_in(proof, "outcome"), objects_in(proof["checks"])
    what = _place(object_in(proof, "subject"), ink)
    if outcome["status"] != "COMPLETED":
        reason = f"{outcome['status']} {outcome.get('reason', '')}".strip()
        return (
            f"{ink.strong('It proved nothing.')} The run ended {ink.text(reason)}; what follows is what is known of it."
        )
    if outcome["proof"] == "claimed":
        said = "The agent said that the work is done, and nothing verified it."
        return f"{ink.strong('Claimed, not verified.')} {said} It speaks of {what}."
    machine = [one for one in checks if one["required"] and not one["judged"]]
    judges = [one for one in checks if one["required"] and one["judged"]]
    if outcome["proof"] == "judged":
        count = _count(len(judges), "model's judgement", "models' judgements")
        return f"{ink.strong('Judged, not verified by a machine.')} {count} passed the work. It speaks of {what}."
    by = _count(len(machine), "check") + (f" and {_count(len(judges), 'judge')}" if judges else "")
    return f"{ink.strong('Verified.')} {by} passed, on {what}.{_but(proof, checks)}"


def _but(proof: Object, checks: Sequence[Object]) -> str:
    """What the checks' yes does not cover."""
    subject, less = object_in(proof, "subject"), list[str]()
    if differing := len(_list(subject["differs"])):
        less.append(f"it differs from what they saw in {_count(differing, 'path')}")
    if warns := sum(not one["passed"] for one in checks):
        less.append(f"{_count(warns, 'check')} that only warn{'s' if warns == 1 else ''} failed")
    if old := sum(len(_list(one["oldFailures"])) for one in checks):
        less.append(f"{_count(old, 'test')} failed that failed before the run as well")
    if new := sum(len(_list(one["newFailures"])) for one in checks):
        less.append(f"{_count(new, 'test')} failed that did not before the run")
    if concerns := len(_list(object_in(proof, "outcome")["concerns"])):
        less.append(f"there {'is' if concerns == 1 else 'are'} {_count(concerns, 'concern')}")
    return f" But {'; '.join(less)}." if less else ""


def _place(subject: Object, ink: Ink) -> str:
    commit, tree = str(subject["commit"] or ""), str(subject["tree"] or "unknown")
    match subject["kind"]:
        case "commit":
            return f"commit {ink.code(commit)}"
        case "tree":
            return f"the saved tree {ink.code(tree)} (commit {ink.code(commit)})"
        case _:
            return f"files that no commit holds (their digest: {ink.code(tree)})"


def checks_table(checks: Sequence[Object], ink: Ink) -> Iterator[str]:
    """The checks as a table of Markdown's."""
    yield f"| {' | '.join(COLUMNS)} |"
    yield f"|{' --- |' * len(COLUMNS)}"
    for one in checks:
        yield f"| {' | '.join(_cells(one, ink))} |"


def _cells(one: Object, ink: Ink) -> tuple[str, ...]:
    where = ink.code(str(one["folder"])) + (", in a clean checkout" if one["clean"] else "")
    return (
        ink.code(str(one["name"])), _command(one, ink), "" if one["judged"] else where, _result(one),
        "" if one["code"] is None else str(one["code"]), f"{_number(one['seconds']):.1f}", _tests(one, ink),
        _before(one),
    )  # fmt: skip


def _command(one: Object, ink: Ink) -> str:
    if one.get("withheld"):
        return "withheld"
    return "a model was asked" if one["judged"] else ink.code(str(one["command"] or "")) or "none"


def _result(one: Object) -> str:
    result = "passed" if one["passed"] else "failed"
    warns = "" if one["required"] else ", only warns"
    return result + warns + (f", flaky: failed {one['flaky']} times first" if one["flaky"] else "")


def _tests(one: Object, ink: Ink) -> str:
    tests = object_in(one, "tests")
    told = [f"{tests[name]} {name}" for name in ("passed", "failed", "skipped", "xfailed") if tests.get(name)]
    return f"{', '.join(told) or 'none'} ({ink.text(str(tests['runner']))})" if tests else ""


def _before(one: Object) -> str:
    if one["before"] is None:
        return "not asked"
    before = object_in(one, "before")
    failing = len(_list(before["failing"]))
    return "passed" if before["passed"] else "failed" + (f", {_count(failing, 'test')} of it" if failing else "")


def about_checks(checks: Sequence[Object], ink: Ink) -> Iterator[str]:
    """The checks, a line each."""
    for one in checks:
        name, command = ink.code(str(one["name"])), _command(one, ink)
        asked = f": {command}" if command not in ("none", name) else ""
        place = "in a clean checkout" if one["clean"] else f"in {ink.code(str(one['folder']))}"
        facts = [] if one["judged"] else [place, f"exit {one['code']}"]
        facts += [f"{_number(one['seconds']):.1f} s", *filter(None, (_tests(one, ink),)), f"before: {_before(one)}"]
        yield f"{_result(one)}  {name}{asked} ({'; '.join(facts)})"


def listed(checks: Sequence[Object], ink: Ink) -> Iterator[str]:
    """What a table has no room for: why one failed, which tests, by which other rule one passes."""
    for one in checks:
        name = ink.code(str(one["name"]))
        if not one["passed"] and one["why"] != "exit":
            yield f"{name} failed with {ink.text(str(one['why']))}"
        if one["successCode"] != 0 or one["contains"] or one["lacks"]:
            yield f"{name} passes with exit code {one['successCode']}{_texts_of(one, ink)}"
        for field, what in (("newFailures", "did not fail"), ("oldFailures", "failed as well")):
            if failing := _list(one[field]):
                more = f" and {len(failing) - NAMED} more" if len(failing) > NAMED else ""
                names = ", ".join(ink.code(str(test)) for test in failing[:NAMED])
                yield f"{name}: these tests fail that {what} before the run: {names}{more}"


def _texts_of(one: Object, ink: Ink) -> str:
    holds = f", output that contains {ink.code(str(one['contains']))}" if one["contains"] else ""
    return holds + (f", output that lacks {ink.code(str(one['lacks']))}" if one["lacks"] else "")


def about_reviews(reviews: Sequence[Object], ink: Ink) -> Iterator[str]:
    """Who looked at the work, and what they said."""
    for one in reviews:
        what = in_line(str(one["what"]))
        yield f"{ink.text(str(one['who']))}: {ink.text(str(one['verdict']))}" + (f". {ink.text(what)}" if what else "")


def about_subject(proof: Object, ink: Ink) -> Iterator[str]:
    """The commit, and how it stands to what was checked."""
    subject, asked = object_in(proof, "subject"), bool(proof["checks"])
    seen = "the tree that the checks saw" if asked else "the tree as the agent left it, which no check saw"
    yield f"project {ink.text(str(proof['project']))}, {_place(subject, ink)}"
    for name, what in (("tree", "its tree"), ("checked", seen), ("ref", "saved as"),
                       ("head", "HEAD then"), ("base", "HEAD when the run began")):  # fmt: skip
        if subject[name]:
            yield f"{what}: {ink.code(str(subject[name]))}"
    if subject["tree"] != subject["checked"] and not subject["differs"]:
        yield "both are the same but for ralph's own folder, which no save holds"
    if differing := _list(subject["differs"]):
        yield f"not as {'the checks saw it' if asked else 'the agent left it'}: {_named(differing, ink)}"
    if left := _list(subject["leftOut"]):
        yield f"too large to be saved, so nobody knows whether it holds them as they were: {_named(left, ink)}"


def about_integrity(integrity: Object, ink: Ink) -> Iterator[str]:
    """What became of that which decides over the checks."""
    yield "tests were protected" if integrity["protectTests"] else "tests were not protected"
    if may := _list(integrity["mayChange"]):
        yield f"the user let the task change: {_named(may, ink)}"
    for one in objects_in(integrity["altered"]):
        allowed = ", which the user allowed" if one["allowed"] else ""
        yield f"{ink.code(str(one['path']))}: {ink.text(str(one['what']))}{allowed}"
    yield from (ink.text(str(one)) for one in _list(integrity["weaker"]))
    if not (integrity["altered"] or integrity["weaker"]):
        yield "nothing that decides over the checks is known to have changed, and no check shows less than before"


def about_versions(proof: Object, ink: Ink) -> Iterator[str]:
    """With what it was made."""
    outcome, settings = object_in(proof, "outcome"), object_in(proof, "settings")
    cost, turns = outcome["costUSD"], int(_number(outcome["iterations"]))
    price = "an unknown price" if cost is None else dollars(round(_number(cost) * 1_000_000))
    yield f"began {_when(proof['began'])}, ended {_when(proof['ended'])}: {_count(turns, 'iteration')}, {price}"
    known = [f"{name} {text}" for name, text in object_in(proof, "versions").items() if text]
    yield ink.text(", ".join(sorted(known)))
    yield f"settings in force: {ink.code(str(settings['digest'] or 'unknown'))}"
    yield f"settings file in that tree: {ink.code(str(settings['file'] or 'none'))}"
    prompt = object_in(proof, "task")["prompt"]
    yield f"last prompt: {ink.code(str(prompt or 'none'))}"
    setup = ", ".join(ink.code(str(one)) for one in _list(proof["setup"]))
    yield f"final checks in: {ink.text(str(proof['verifyIn']))}" + (f", prepared by {setup}" if setup else "")


def uncheckable(proof: Object) -> str:
    """Why nobody can have the checks asked again, whatever clone they are in; empty where somebody can."""
    outcome = object_in(proof, "outcome")
    if outcome["status"] != "COMPLETED":
        return f"the run was not completed: it ended {outcome['status']} {outcome.get('reason', '')}".rstrip()
    required = [one for one in objects_in(proof["checks"]) if one["required"]]
    if not required:
        return "the agent's word alone ended the run: there is nothing to ask again"
    if all(one["judged"] for one in required):
        return "only a model judged the work: there is no command to run again"
    if object_in(proof, "subject")["kind"] not in ("commit", "tree"):
        return "the run had no git repository: no commit holds its files"
    return ""


def how_to_check(proof: Object, ink: Ink) -> Iterator[str]:
    """What a reader can do who believes nothing of this."""
    records = object_in(proof, "records")
    if why := uncheckable(proof):
        yield f"{ink.code('ralph verify')} cannot: {ink.text(why)}"
    else:
        yield f"in a clone of the project: {ink.code('ralph verify FILE')}, FILE being this page"
        yield "it checks out that tree in a throw-away folder, runs the checks again, and says whether the proof holds"
    last = ink.code(str(records["last"]))
    yield f"{records['count']} records of the run are bound to each other; the last one's digest is {last}"
    if withheld := len(_list(records["withheld"])):
        yield (
            f"{_count(withheld, 'record')} left out here, because of held-out checks, secrets or their size; "
            f"{ink.code('ralph proof export ' + str(proof['run']))} where the run was has what may be shown"
        )


def _named(names: list[Json], ink: Ink) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(ink.code(str(name)) for name in names[:NAMED]) + more


def _when(epoch_s: Json) -> str:
    """`2026-11-15 21:05:07 UTC`."""
    seconds = _number(epoch_s)
    if not 0 <= seconds < LATEST_S:
        return "at an unknown time"
    day, rest = divmod(int(seconds), DAY_S)
    return f"{date_of(day)} {rest // 3600:02d}:{rest // 60 % 60:02d}:{rest % 60:02d} UTC"


def _count(number: int, noun: str, many: str = "") -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {many or noun + 's'}"


def _number(data: Json) -> float:
    return float(data) if isinstance(data, int | float) else 0.0


def _list(data: Json) -> list[Json]:
    return data if isinstance(data, list) else []
