"""A proof as a Markdown page with its JSON at the end: rendering, sentences and parsing."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence

from ralphproof.base.errors import RalphError, Refused
from ralphproof.base.escaping import MarkdownMarkup, PlainMarkup, TextMarkup, replace_invisible, to_single_line
from ralphproof.base.text import fence_code
from ralphproof.base.value import Json
from ralphproof.display.phrases import format_count
from ralphproof.engine.agent import Event
from ralphproof.engine.limits import format_usd
from ralphproof.engine.outcome import Completed, outcome_json
from ralphproof.engine.records import Record, RunEnded
from ralphproof.engine.workspace import Workspace
from ralphproof.proof.schema import Proof, join_names, validate_shape, why_uncheckable
from ralphproof.reports.metrics import MetricsFolder, MetricsObserver
from ralphproof.settings.loader import load_settings
from ralphproof.store.ledger import MemoryLedger, RunRow, SqliteLedger
from ralphproof.store.project import Project
from ralphproof.store.run_folder import PublicationLock, RunFolder

# Sentences.


MAX_NAMED = 20  # of tests, in a sentence
ID_CHARS = 12
TIME_PATTERN = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", re.ASCII)
TEST_COUNTS = {
    "passedCount": "passed", "failedCount": "failed", "skippedCount": "skipped", "expectedFailureCount": "xfailed",
}  # fmt: skip
COLUMNS = ("check", "command", "where", "result", "exit", "seconds", "tests", "before the run")


def verdict_sentence(proof: Proof, markup: TextMarkup) -> str:
    """What was proved, by which checks, on which commit, and what was not."""
    outcome, checks = proof["outcome"], proof["checks"]
    what = _subject_name(proof["subject"], markup)
    if outcome["status"] != "COMPLETED":
        reason = f"{outcome['status']} {outcome.get('reason', '')}".strip()
        known = "what follows is what is known of it."
        return f"{markup.strong('It proved nothing.')} The run ended {markup.text(reason)}; {known}"
    if outcome["proof"] == "claimed":
        said = "The agent said that the work is done, and nothing verified it."
        return f"{markup.strong('Claimed, not verified.')} {said} It speaks of {what}."
    machine = [check for check in checks if check["required"] and not check["judged"]]
    judges = [check for check in checks if check["required"] and check["judged"]]
    if outcome["proof"] == "judged":
        count = "1 model's judgement" if len(judges) == 1 else f"{len(judges)} models' judgements"
        return f"{markup.strong('Judged, not verified by a machine.')} {count} passed the work. It speaks of {what}."
    by = format_count(len(machine), "check") + (f" and {format_count(len(judges), 'judge')}" if judges else "")
    return f"{markup.strong('Verified.')} {by} passed, on {what}.{_caveats(proof, checks)}"


def _caveats(proof: Proof, checks: Sequence[Proof]) -> str:
    """What passing checks do not cover."""
    subject, less = proof["subject"], list[str]()
    if differing := len(subject["differs"]):
        less.append(f"it differs from what they saw in {format_count(differing, 'path')}")
    if warns := sum(not check["passed"] for check in checks):
        less.append(f"{format_count(warns, 'check')} that only warn{'s' if warns == 1 else ''} failed")
    if old := sum(len(check["oldFailures"]) for check in checks):
        less.append(f"{format_count(old, 'test')} failed that failed before the run as well")
    if new := sum(len(check["newFailures"]) for check in checks):
        less.append(f"{format_count(new, 'test')} failed that did not before the run")
    if concerns := len(proof["outcome"]["concerns"]):
        less.append(f"there {'is' if concerns == 1 else 'are'} {format_count(concerns, 'concern')}")
    return f" But {'; '.join(less)}." if less else ""


def _subject_name(subject: Proof, markup: TextMarkup) -> str:
    commit, tree = str(subject["commit"] or ""), str(subject["tree"] or "unknown")
    match subject["kind"]:
        case "commit":
            return f"commit {markup.code(commit)}"
        case "tree":
            return f"the saved tree {markup.code(tree)} (commit {markup.code(commit)})"
        case _:
            return f"files that no commit holds (their digest: {markup.code(tree)})"


def checks_table(checks: Sequence[Proof], markup: TextMarkup) -> Iterator[str]:
    """The checks as a table of Markdown's."""
    yield f"| {' | '.join(COLUMNS)} |"
    yield f"|{' --- |' * len(COLUMNS)}"
    for check in checks:
        yield f"| {' | '.join(_cells(check, markup))} |"


def _cells(check: Proof, markup: TextMarkup) -> tuple[str, ...]:
    rule, code = check["rule"], check["exitCode"]
    where = markup.code(str(rule["folder"])) + (", in a clean checkout" if rule["clean"] else "")
    return (
        markup.code(str(check["name"])), _command(check, markup), "" if check["judged"] else where, _result(check),
        "" if code is None else str(code), f"{(check['durationSeconds'] or 0):.1f}", _tests(check, markup),
        _baseline_result(check),
    )  # fmt: skip


def _command(check: Proof, markup: TextMarkup) -> str:
    if check.get("withheld"):
        return "withheld"
    return "a model was asked" if check["judged"] else markup.code(str(check["command"] or "")) or "none"


def _result(check: Proof) -> str:
    result = "passed" if check["passed"] else "failed"
    warns = "" if check["required"] else ", only warns"
    return (
        result + warns + (f", flaky: failed {check['failedAttempts']} times first" if check["failedAttempts"] else "")
    )


def _tests(check: Proof, markup: TextMarkup) -> str:
    tests = check["tests"] or {}
    counts = [f"{tests[field]} {word}" for field, word in TEST_COUNTS.items() if tests.get(field)]
    return f"{', '.join(counts) or 'none'} ({markup.text(str(tests['runner']))})" if tests else ""


def _baseline_result(check: Proof) -> str:
    if check["before"] is None:
        return "not asked"
    before = check["before"]
    failing = len(before["failing"])
    return "passed" if before["passed"] else "failed" + (f", {format_count(failing, 'test')} of it" if failing else "")


def check_lines(checks: Sequence[Proof], markup: TextMarkup) -> Iterator[str]:
    """The checks, a line each."""
    for check in checks:
        name, command = markup.code(str(check["name"])), _command(check, markup)
        command_text = f": {command}" if command not in ("none", name) else ""
        rule = check["rule"]
        place = "in a clean checkout" if rule["clean"] else f"in {markup.code(str(rule['folder']))}"
        facts = [] if check["judged"] else [place, f"exit {check['exitCode']}"]
        facts += [
            f"{(check['durationSeconds'] or 0):.1f} s",
            *filter(None, (_tests(check, markup),)),
            f"before: {_baseline_result(check)}",
        ]
        yield f"{_result(check)}  {name}{command_text} ({'; '.join(facts)})"


def check_details(checks: Sequence[Proof], markup: TextMarkup) -> Iterator[str]:
    """Details beside the table: reasons of failures, failing tests, special pass rules."""
    for check in checks:
        name = markup.code(str(check["name"]))
        if not check["passed"] and check["exitReason"] != "exit":
            yield f"{name} failed with {markup.text(str(check['exitReason']))}"
        rule = check["rule"]
        if rule["successCode"] != 0 or rule["contains"] or rule["lacks"]:
            yield f"{name} passes with exit code {rule['successCode']}{_rule_text(rule, markup)}"
        for field, what in (("newFailures", "did not fail"), ("oldFailures", "failed as well")):
            if failing := check[field]:
                yield f"{name}: these tests fail that {what} before the run: {_join_code(failing, markup)}"


def _rule_text(rule: Proof, markup: TextMarkup) -> str:
    holds = f", output that contains {markup.code(str(rule['contains']))}" if rule["contains"] else ""
    return holds + (f", output that lacks {markup.code(str(rule['lacks']))}" if rule["lacks"] else "")


def review_lines(reviews: Sequence[Proof], markup: TextMarkup) -> Iterator[str]:
    """The reviews, a line each."""
    for review in reviews:
        what = to_single_line(str(review["text"]))
        yield f"{markup.text(str(review['reviewer']))}: {markup.text(str(review['result']))}" + (
            f". {markup.text(what)}" if what else ""
        )


def subject_lines(proof: Proof, markup: TextMarkup) -> Iterator[str]:
    """The commit, and how it relates to what was checked."""
    subject, asked = proof["subject"], bool(proof["checks"])
    seen = "the tree that the checks saw" if asked else "the tree as the agent left it, which no check saw"
    yield f"project {markup.text(str(proof['project']))}, {_subject_name(subject, markup)}"
    for name, what in (("tree", "its tree"), ("checked", seen), ("ref", "saved as"),
                       ("head", "HEAD then"), ("base", "HEAD when the run began")):  # fmt: skip
        if subject[name]:
            yield f"{what}: {markup.code(str(subject[name]))}"
    if subject["tree"] != subject["checked"] and not subject["differs"]:
        yield "both are the same but for ralph's own folder, which no save holds"
    if differing := subject["differs"]:
        yield f"not as {'the checks saw it' if asked else 'the agent left it'}: {_join_code(differing, markup)}"
    if left := subject["leftOut"]:
        yield f"too large to be saved, so nobody knows whether it holds them as they were: {_join_code(left, markup)}"


def integrity_lines(proof: Proof, markup: TextMarkup) -> Iterator[str]:
    """Changes to files that decide over the checks."""
    yield "tests were protected" if proof["protectTests"] else "tests were not protected"
    if may := proof["mayChange"]:
        yield f"the user let the task change: {_join_code(may, markup)}"
    yield from (markup.text(str(one["message"])) for one in proof["findings"])
    if not proof["findings"]:
        yield "nothing that decides over the checks is known to have changed, and no check shows less than before"


def version_lines(proof: Proof, markup: TextMarkup) -> Iterator[str]:
    """Versions, settings and cost."""
    outcome = proof["outcome"]
    cost, turns = outcome["costUSD"], int(outcome["iterations"])
    price = "an unknown price" if cost is None else format_usd(round(cost * 1_000_000))
    began, ended = _format_time(proof["startedAt"]), _format_time(proof["endedAt"])
    yield f"began {began}, ended {ended}: {format_count(turns, 'iteration')}, {price}"
    known = [f"{name} {text}" for name, text in proof["versions"].items() if text]
    yield markup.text(", ".join(sorted(known)))
    yield f"settings in force: {markup.code(str(proof['settingsDigest'] or 'unknown'))}"
    yield f"settings file in that tree: {markup.code(str(proof['settingsFileDigest'] or 'none'))}"
    yield f"last prompt: {markup.code(str(proof['promptDigest'] or 'none'))}"
    setup = ", ".join(markup.code(str(one)) for one in proof["setup"])
    yield f"final checks in: {markup.text(str(proof['verifyIn']))}" + (f", prepared by {setup}" if setup else "")


def verification_steps(proof: Proof, markup: TextMarkup) -> Iterator[str]:
    """How a reader can check the proof."""
    records = proof["records"]
    if why := why_uncheckable(proof):
        yield f"{markup.code('ralph verify')} cannot: {markup.text(why)}"
    else:
        yield f"in a clone of the project: {markup.code('ralph verify FILE')}, FILE being this page"
        yield "it checks out that tree in a throw-away folder, runs the checks again, and says whether the proof holds"
    last = markup.code(str(records["lastDigest"]))
    yield f"{records['count']} records of the run are bound to each other; the last one's digest is {last}"
    if withheld := len(records["withheldRecords"]):
        yield (
            f"{format_count(withheld, 'record')} left out here, because of held-out checks, secrets or their size; "
            f"{markup.code('ralph proof export ' + str(proof['run']))} where the run was has what may be shown"
        )


def _join_code(names: list[str], markup: TextMarkup) -> str:
    return join_names([*map(markup.code, names)], MAX_NAMED)


def _format_time(time: str | None) -> str:
    """`2026-11-15 21:05:07 UTC`."""
    shown = str(time or "")
    return f"{shown[:10]} {shown[11:19]} UTC" if TIME_PATTERN.fullmatch(shown) else "at an unknown time"


# The page: text for people, and the whole proof as JSON at its end.


MAX_PAGE_CHARS = 64 << 20
OPEN, CLOSE = "\n```json\n", "\n```\n"
_HARMLESS = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "`": "\\u0060"}


def render_page(proof: Proof) -> str:
    """The page. The same proof makes the same page, byte for byte, also when it was read from one."""
    markup = MarkdownMarkup()
    blocks = [f"# {_title(proof, markup)}", verdict_sentence(proof, markup)]
    checks = proof["checks"]
    for heading, lines in _sections(proof, markup):
        table = [*checks_table(checks, markup), ""] if heading == "Checks" and checks else []
        body = [*table, *(f"- {line}" for line in lines)]
        blocks.append("\n".join([f"## {heading}", "", *body]).rstrip("\n"))
    blocks += _logs(proof, markup)
    return "\n\n".join([*blocks, "## The proof itself, for programs"]) + "\n" + OPEN + _embed_json(proof) + CLOSE


def page_lines(proof: Proof) -> Iterator[str]:
    """The text for people, for a terminal."""
    markup = PlainMarkup()
    yield _title(proof, markup)
    yield verdict_sentence(proof, markup)
    for heading, body in _sections(proof, markup):
        told = [*check_lines(proof["checks"], markup), *body] if heading == "Checks" else body
        if told:
            yield ""
            yield f"{heading}:"
            yield from (f"  {line}" for line in told)


def parse_proof(text: str) -> Proof:
    """The proof in a page, or in a file that is nothing but its JSON; raises Refused where there is none."""
    if len(text) > MAX_PAGE_CHARS:
        raise Refused("it is too long to be a proof")
    data = text if text.lstrip()[:1] == "{" else _json_block(text)
    try:
        proof: Proof = json.loads(data, object_pairs_hook=_refuse_duplicate_keys, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise Refused(f"its data cannot be read: {error}") from error
    wrong = validate_shape(proof)
    if wrong:
        raise Refused(f"it is no proof: {'; '.join(wrong[:3])}")
    return proof


def _json_block(text: str) -> str:
    """The JSON at the end of a page; no fence occurs inside it."""
    at = text.rfind(OPEN)
    if at < 0 or not text.endswith(CLOSE):
        raise Refused("it is no proof: no data stand at its end")
    return text[at + len(OPEN) : -len(CLOSE)]


def _refuse_duplicate_keys(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a field is there twice")
    return found


def _refuse_constant(name: str) -> Json:
    raise ValueError(f"{name} is no number")


def _embed_json(proof: Proof) -> str:
    """The JSON, escaped so that it cannot close its fence or form a tag."""
    text = json.dumps(proof, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    for sign, harmless in _HARMLESS.items():
        text = text.replace(sign, harmless)
    return text


def _title(proof: Proof, markup: TextMarkup) -> str:
    title = to_single_line(str(proof["title"]))
    return f"Proof of run {markup.text(str(proof['run']))}" + (f": {markup.text(title)}" if title else "")


def _sections(proof: Proof, markup: TextMarkup) -> Iterator[tuple[str, list[str]]]:
    checks = proof["checks"]
    yield "Checks", [*check_details(checks, markup)] if checks else ["none"]
    outcome = proof["outcome"]
    yield "Concerns", [*map(markup.text, outcome["concerns"])] or ["none"]
    if reviews := [*review_lines(proof["reviews"], markup)]:
        yield "Reviews", reviews
    yield "What it speaks of", [*subject_lines(proof, markup)]
    yield "Integrity of the checks", [*integrity_lines(proof, markup)]
    yield "Who could have tampered", [*map(markup.text, proof["caveats"])]
    yield "Versions and settings", [*version_lines(proof, markup)]
    yield "How to check it", [*verification_steps(proof, markup)]


def _logs(proof: Proof, markup: TextMarkup) -> Iterator[str]:
    checks = proof["checks"]
    logs = {str(check["name"]): check["output"] for check in checks if check["output"] or not check.get("withheld")}
    if not logs:
        return
    yield "## What the checks printed"
    for name in sorted(logs):
        said = replace_invisible(str(logs[name]), keep="\n\t").strip("\n")
        yield (
            f"{markup.code(name) or markup.code('a check')}:\n\n{fence_code(said)}"
            if said.strip()
            else f"{markup.code(name)}: nothing"
        )


# Publishing what an ended run leaves for people: `outcome.json`, `proof/`, metrics and the daily report.


# Writing the proof at the end of a run.


class ProofWriter:
    """The observer that writes the folder `proof/` when the run is completed: its records are durable then."""

    def __init__(
        self, project: Project, run: str, ledger: SqliteLedger, workspace: Workspace, folder: RunFolder
    ) -> None:  # fmt: skip
        self._project, self._run, self._ledger, self._workspace = project, run, ledger, workspace
        self._folder = folder

    def on_record(self, record: Record) -> None:
        """A record that is now durable. A ledger in memory proves nothing."""
        if not isinstance(record, RunEnded) or not isinstance(record.outcome, Completed):
            return
        if not isinstance(self._ledger, MemoryLedger):
            from ralphproof.proof.builder import build_proof_in_workspace

            proof = build_proof_in_workspace(self._project, self._run, self._ledger, self._workspace)
            write_proof(proof, self._folder)

    def on_events(self, events: list[Event]) -> None:
        """Not used."""

    def tick(self) -> None:
        """Not used."""


# `outcome.json`, `proof/`, metrics and the daily report are copies of what the ledger has. A harness that dies right
# after the end of its run writes none of them: whoever opens the project next does.


def publish_unfinished(project: Project, runs: Iterable[str]) -> None:
    """Publish ended runs whose harness died. What cannot be written is tried again the next time."""
    for run in runs:
        publishing = PublicationLock(project.store, run)
        if not publishing.take_over():
            continue
        try:
            _publish_ended_run(project, run)
        except (RalphError, OSError):
            continue
        publishing.done()


def _publish_ended_run(project: Project, run: str) -> None:
    ledger = project.ledger()
    try:
        row, ended = ledger.row(run), ledger.run_end(run)
        if row is None or not isinstance(ended, RunEnded) or not os.path.isdir(row.directory):
            return  # it was cut off before its end, or nobody looks there any more
        folder = RunFolder(row.directory, run, project.store, project.mask)
        folder.write_outcome(outcome_json(ended.outcome, run, ended.metrics))
        if isinstance(ended.outcome, Completed):
            from ralphproof.proof.builder import build_run_proof

            try:
                write_proof(build_run_proof(project, row, ledger), folder)
            except RalphError:
                pass  # nor could the run's own harness have written it; `ralph proof` says why
        publish_metrics(ledger, project, row, ended, once=True)
    finally:
        ledger.close()


def write_proof(proof: Proof, folder: RunFolder) -> None:
    """Write the proof as a page and as JSON, without the content of held-out checks: agents can read it."""
    from ralphproof.proof.builder import redact_held_out

    redacted = redact_held_out(proof)
    text = json.dumps(redacted, sort_keys=True, indent=1)
    folder.prove({"proof.json": text + "\n", "proof.md": render_page(redacted)})


def publish_metrics(ledger: SqliteLedger, project: Project, row: RunRow, ended: RunEnded, once: bool = False) -> None:
    """Publish the metrics unless the settings forbid it. With `once`, an existing line is not added again."""
    limit = None
    try:
        settings = load_settings(row.directory, os.environ).settings
        if not settings.metrics:
            return
        limit = settings.cost_limit_micro_usd
    except RalphError:
        pass  # wrong settings forbid nothing
    try:
        MetricsObserver(MetricsFolder(row.directory, project.mask, once), ledger.statistics, limit).on_record(ended)
    except RalphError:
        if once:
            raise
