"""The verifications of a task: every check of every iteration of every run of it, as the ledger has them."""

from __future__ import annotations

from ralphproof.record import CheckEnded, Judged, Picked, TurnBegan
from ralphproof.stage import Job
from ralphproof.value import TYPE_CHECKING, value
from ralphproof.verdict import verdict_word
from ralphproof.views.account import verdict_words
from ralphproof.views.stance import date
from ralphproof.views.standing import when

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ralphproof.check import Finding
    from ralphproof.ledgers.sqlite import Sqlite
    from ralphproof.value import Json
    from ralphproof.verdict import Verdict

WHY_CHARS = 300  # of what a judge says; the record has all of it


@value
class CheckAnswer:
    """One answer: what was asked, when (epoch seconds), and what came of it."""

    finding: Finding
    at: float

    @property
    def word(self) -> str:
        """passed, failed, errored, or advisory: it failed, and only warns."""
        found = self.finding
        if found.passed:
            return "passed"
        return "errored" if found.errored else "failed" if found.required else "advisory"

    @property
    def by(self) -> str:
        """Who answered."""
        return "judged" if self.finding.judged else "machine"

    @property
    def why(self) -> str:
        """What the answer rests on."""
        found = self.finding
        if found.why != "exit":
            return found.why
        if found.judged or found.code is None:
            return " ".join(found.output.split())[:WHY_CHARS]
        return f"exit code {found.code}"

    def published(self) -> dict[str, Json]:
        found = self.finding
        return {
            "check": found.check, "command": found.command, "result": self.word, "passed": found.passed,
            "required": found.required, "errored": found.errored, "judged": found.judged, "why": self.why,
            "exitCode": found.code, "seconds": found.seconds, "at": self.at, "log": found.log,
        }  # fmt: skip


@value
class Passage:
    """One iteration of a run: its stage and task, all answers, and the verdict, None where it was never judged."""

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
        verdict = f": {verdict_words(self.verdict)}" if self.verdict else ": not judged" if self.iteration else ""
        yield f"{when(self.iteration)}{stage}{verdict} ({date(self.at)})"
        for one in self.answers:
            told = f"  {one.word:<8}  {one.by:<7}  {one.finding.command or one.finding.check}"
            yield f"{told}: {one.why}" if one.why else told

    def published(self) -> dict[str, Json]:
        """For programs."""
        checks: list[Json] = [one.published() for one in self.answers]
        return {
            "run": self.run, "iteration": self.iteration, "stage": self.stage or None, "checks": checks,
            "verdict": verdict_word(self.verdict) if self.verdict else None,
            "verdictWords": verdict_words(self.verdict) if self.verdict else None, "at": self.at,
        }  # fmt: skip


def passages(ledger: Sqlite, runs: Iterable[str]) -> tuple[Passage, ...]:
    """All iterations of these runs that were begun, oldest first; what was asked before the first has the number 0."""
    return tuple(passage for run in runs for passage in _of_run(ledger, run))


def _of_run(ledger: Sqlite, run: str) -> Iterator[Passage]:
    jobs: dict[int, Job] = {}
    answers: dict[int, list[CheckAnswer]] = {}
    verdicts: dict[int, Verdict] = {}
    times: dict[int, float] = {}
    for at, record in ledger.stamped(run):
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
        told = tuple(answers.get(number, ()))
        stage, task = (jobs[number].stage.name, jobs[number].task.id) if number in jobs else ("", "")
        yield Passage(run, number, stage, told, verdicts.get(number), times[number], task)
