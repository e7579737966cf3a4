"""All about one task: criteria, status, runs and every verification."""

from __future__ import annotations

import re

from ralphproof.base.escaping import sanitize
from ralphproof.base.text import strip_control_characters, truncate
from ralphproof.base.value import TYPE_CHECKING, value
from ralphproof.display import phrases
from ralphproof.display.phrases import describe_iteration
from ralphproof.engine.outcome import verdict_word
from ralphproof.engine.plan import Job
from ralphproof.engine.records import CheckEnded, Judged, Picked, RunEnded, TurnBegan
from ralphproof.settings.keys import PIPELINE_STAGES
from ralphproof.store.run_state import run_state
from ralphproof.tasks.store import read_object
from ralphproof.views.run_status import describe_verdict, format_date
from ralphproof.views.tasks import TaskView

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ralphproof.base.value import Json
    from ralphproof.engine.check import Finding
    from ralphproof.engine.outcome import Verdict
    from ralphproof.store.ledger import RunRow, SqliteLedger
    from ralphproof.store.project import Project
    from ralphproof.store.tasks import TaskRow


# Acceptance criteria, and what the last judgement says about each.


# The format of a judge's answer; of a long criterion it has the beginning.
_RULING_PATTERN = r"(NOT met|met): \d+\. (.*)"
_REASON_SEPARATOR = " | why: "
MAX_CRITERION_CHARS = 300


@value
class CriterionRuling:
    """A judge's ruling on one criterion."""

    met: bool
    why: str
    run: str
    iteration: int

    def __str__(self) -> str:
        return f"{'met' if self.met else 'not met'} (run {self.run}, iteration {self.iteration}: {self.why})"


def acceptance_criteria(completion: dict[str, Json]) -> list[str]:
    """The acceptance criteria of a completion spec, whatever else is wrong with it."""
    listed = completion.get("acceptance_criteria")
    return [str(criterion) for criterion in listed] if isinstance(listed, list) else []


def last_ruling(criterion: str, history: Iterable[TaskIteration]) -> CriterionRuling | None:
    """The last ruling on a criterion; None where no judge named it."""
    name = " ".join(strip_control_characters(criterion).split()).replace("`", "'")[:MAX_CRITERION_CHARS]
    last = None
    for passage in history:
        for answer in passage.answers:
            if not answer.finding.judged or answer.finding.errored:
                continue
            for met, why in _parse_rulings(answer.finding.output, name):
                last = CriterionRuling(met, why, passage.run, passage.iteration)
    return last


def _parse_rulings(output: str, name: str) -> Iterator[tuple[bool, str]]:
    for line in output.split("\n"):
        match = re.fullmatch(_RULING_PATTERN, line)
        if match is None or not match[2].startswith(name):
            continue
        cut, why, reason = match[2][len(name) :].partition(_REASON_SEPARATOR)
        if why and (not cut or len(name) == MAX_CRITERION_CHARS):
            yield match[1] == "met", reason.partition(" | quoted: ")[0]


def criteria_lines(completion: dict[str, Json], history: tuple[TaskIteration, ...]) -> Iterator[str]:
    """One line for each criterion; a question mark where it was not judged."""
    for criterion in acceptance_criteria(completion):
        known = last_ruling(criterion, history)
        yield f"[{'?' if not known else 'x' if known.met else ' '}] {criterion}" + (f": {known}" if known else "")


def criteria_json(completion: dict[str, Json], history: tuple[TaskIteration, ...]) -> Iterator[Json]:
    """The criteria for programs; `met` is null where they were not judged."""
    for criterion in acceptance_criteria(completion):
        known = last_ruling(criterion, history)
        where: dict[str, Json] = {"run": known.run, "iteration": known.iteration, "why": known.why} if known else {}
        yield {"criterion": criterion, "met": known.met if known else None, **where}


# Verifications: every check of every iteration of every run of a task.


MAX_REASON_CHARS = 300  # of what a judge says; the record has all of it


@value
class CheckAnswer:
    """The result of one check, and when it ended (epoch seconds)."""

    finding: Finding
    at: float

    @property
    def word(self) -> str:
        """passed, failed, errored, or advisory: it failed, and only warns."""
        finding = self.finding
        if finding.passed:
            return "passed"
        return "errored" if finding.errored else "failed" if finding.required else "advisory"

    @property
    def by(self) -> str:
        """Who answered."""
        return "judged" if self.finding.judged else "machine"

    @property
    def why(self) -> str:
        """The reason of the result."""
        finding = self.finding
        if finding.why != "exit":
            return finding.why
        if finding.judged or finding.code is None:
            return " ".join(finding.output.split())[:MAX_REASON_CHARS]
        return f"exit code {finding.code}"

    def published(self) -> dict[str, Json]:
        found = self.finding
        return {
            "check": found.check, "command": found.command, "result": self.word, "passed": found.passed,
            "required": found.required, "errored": found.errored, "judged": found.judged, "why": self.why,
            "exitCode": found.code, "seconds": found.seconds, "at": self.at, "log": found.log,
        }  # fmt: skip


@value
class TaskIteration:
    """One iteration of a run. The verdict is None where it was never judged."""

    run: str
    iteration: int
    stage: str
    answers: tuple[CheckAnswer, ...]
    verdict: Verdict | None
    at: float
    task: str = ""

    def lines(self) -> Iterator[str]:
        """For people."""
        stage = f", {self.stage}" if self.stage else ""
        verdict = f": {describe_verdict(self.verdict)}" if self.verdict else ": not judged" if self.iteration else ""
        yield f"{describe_iteration(self.iteration)}{stage}{verdict} ({format_date(self.at)})"
        for one in self.answers:
            told = f"  {one.word:<8}  {one.by:<7}  {one.finding.command or one.finding.check}"
            yield f"{told}: {one.why}" if one.why else told

    def published(self) -> dict[str, Json]:
        """For programs."""
        checks: list[Json] = [one.published() for one in self.answers]
        return {
            "run": self.run, "iteration": self.iteration, "stage": self.stage or None, "checks": checks,
            "verdict": verdict_word(self.verdict) if self.verdict else None,
            "verdictWords": describe_verdict(self.verdict) if self.verdict else None, "at": self.at,
        }  # fmt: skip


def list_task_iterations(ledger: SqliteLedger, runs: Iterable[str]) -> tuple[TaskIteration, ...]:
    """All begun iterations of these runs, oldest first; checks before the first iteration have the number 0."""
    return tuple(passage for run in runs for passage in _iterations_of_run(ledger, run))


def _iterations_of_run(ledger: SqliteLedger, run: str) -> Iterator[TaskIteration]:
    jobs: dict[int, Job] = {}
    answers: dict[int, list[CheckAnswer]] = {}
    verdicts: dict[int, Verdict] = {}
    times: dict[int, float] = {}
    for at, record in ledger.timed_records(run):
        match record:
            case Picked(iteration, Job() as job):
                jobs[iteration] = job
                continue  # a limit may keep it from being begun
            case TurnBegan(iteration):
                pass
            case CheckEnded(iteration, _, finding):
                answers.setdefault(iteration, []).append(CheckAnswer(finding, at))
            case Judged(iteration, _, verdict):
                verdicts[iteration] = verdict
            case _:
                continue
        times[iteration] = at
    for number in sorted(times):
        iteration_answers = tuple(answers.get(number, ()))
        stage, task = (jobs[number].stage.name, jobs[number].task.id) if number in jobs else ("", "")
        yield TaskIteration(run, number, stage, iteration_answers, verdicts.get(number), times[number], task)


# The details of a task.


MAX_RAW_CHARS = 2000  # of a completion spec that cannot be read


@value
class TaskDetail:
    """A task with its runs and verifications. `others` are the statuses of the tasks that it depends on."""

    row: TaskRow
    view: TaskView
    others: dict[str, str]
    runs: tuple[tuple[RunRow, str], ...]
    history: tuple[TaskIteration, ...]

    def lines(self) -> Iterator[str]:
        """For people."""
        row, view = self.row, self.view
        yield f"{row.id}: {row.title}"
        yield self._status()
        yield f"spec {row.spec_id or 'none'}, priority {row.priority}" + (f", {view.assignee}" if view.assignee else "")
        yield f"made {format_date(row.created_at)}, changed {format_date(row.updated_at)}"
        if row.dependencies:
            yield "depends on " + ", ".join(f"{id} ({self.others.get(id, 'there is none')})" for id in row.dependencies)
        yield from (f"{key}: {text}" for key, text in (read_object(row.metadata)[0] or {}).items())
        if row.description:
            yield from ("", *_indent(row.description))
        yield from ("", *self._completion())
        yield from self._runs()

    def _status(self) -> str:
        view = self.view
        parts = [view.status, *([view.proof] if view.proof else []), *([str(view.count)] if view.stage else [])]
        return f"status: {', '.join(parts)}" + (f" ({view.reason})" if view.reason else "")

    def _completion(self) -> Iterator[str]:
        completion, problem = read_object(self.row.completion)
        if problem:
            yield f"its completion spec cannot be read: {problem}; it is kept as it was found:"
            yield from _indent(truncate(self.row.completion or "", MAX_RAW_CHARS))
        elif completion is None:
            yield "no completion spec: it was made by an older version, and the promise of each stage alone counts"
        else:
            yield f"outcome: {completion.get('outcome', '')}"
            yield "acceptance criteria:"
            yield from (f"  {line}" for line in criteria_lines(completion, self.history))
            for stage in PIPELINE_STAGES:
                yield from _stage_lines(stage, completion.get(stage))

    def _runs(self) -> Iterator[str]:
        for run, end in self.runs:
            yield from ("", f"run {run.id}, began {format_date(run.began_at)}: {end}")
            for passage in self.history:
                yield from (f"  {line}" for line in passage.lines() if passage.run == run.id)

    def published(self) -> dict[str, Json]:
        """For programs."""
        row = self.row
        completion, problem = read_object(row.completion)
        history: list[Json] = [passage.published() for passage in self.history]
        runs: list[Json] = [{"run": run.id, "beganAt": run.began_at, "end": end} for run, end in self.runs]
        others: list[Json] = [{"id": id, "status": self.others.get(id)} for id in row.dependencies]
        criteria: list[Json] = [*criteria_json(completion or {}, self.history)]
        return self.view.published() | {
            "description": row.description, "said": row.status, "createdAt": row.created_at,
            "updatedAt": row.updated_at, "metadata": read_object(row.metadata)[0], "completion": completion,
            "completionProblem": problem or None, "completionText": row.completion if problem else None,
            "dependsOn": others, "acceptance": criteria, "runs": runs, "verification": history,
        }  # fmt: skip


def load_task_detail(ledger: SqliteLedger, project: Project, row: TaskRow) -> TaskDetail:
    """The details of a task."""
    others = {other: ledger.tasks.row(other) for other in row.dependencies}
    stand = {other: TaskView.of(ledger, found, project).status for other, found in others.items() if found}
    runs = [found for run in ledger.tasks.attempts(row.id) if (found := ledger.row(run))]
    ends = tuple((run, _describe_run_end(ledger, run, project)) for run in runs)
    return TaskDetail(
        row, TaskView.of(ledger, row, project), stand, ends, list_task_iterations(ledger, (run.id for run in runs))
    )


def _describe_run_end(ledger: SqliteLedger, run: RunRow, project: Project) -> str:
    """How a run ended, or its state."""
    end = ledger.run_end(run.id)
    return phrases.describe_outcome(end.outcome)[-1] if isinstance(end, RunEnded) else run_state(ledger, run, project)


def _stage_lines(stage: str, criteria: object) -> Iterator[str]:
    """The criteria of a stage."""
    if not isinstance(criteria, dict):
        return
    most = criteria.get("max_iterations")
    limit = f", at most {phrases.format_count(most, 'iteration')}" if isinstance(most, int) else ""
    method = criteria.get("verification_method") or "as the settings say"
    yield f"{stage}: promise {criteria.get('promise')}, {method}{limit}"
    if criteria.get("description"):
        yield from _indent(str(criteria["description"]))
    config = criteria.get("verification_config")
    if isinstance(config, dict):
        import json

        yield from (f"    {key}: {json.dumps(inner, ensure_ascii=False)}" for key, inner in config.items())


def _indent(text: str) -> list[str]:
    return [f"    {line}".rstrip() for line in sanitize(text).split("\n")]
