"""Tasks that are worked on by agents that misbehave: how they are kept, worked on, and what came of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ralphproof.engine.check import Finding
from ralphproof.engine.records import CheckEnded, Judged, TurnEnded
from ralphproof.store.tasks import TaskRow
from ralphproof.views.tasks import TaskView
from tests.misbehaviour import invariants
from tests.misbehaviour.machine import recorded
from tests.ralph import Ended, Ralph, Step, say

STAGES = ("coder", "reviewer", "tester", "qa")
WORDS = {"coder": "CODED", "reviewer": "REVIEWED", "tester": "TESTED", "qa": "QA_DONE"}
BACK = "CHANGES_REQUESTED"
YES: list[Step] = [{"judge": "yes"}]
Way = dict[str, Any]


def external(command: str, **config: Any) -> Way:
    """Verified by a command."""
    return {"verification_method": "external", "verification_config": {"command": command, **config}}


def semantic(*criteria: str, **config: Any) -> Way:
    """Verified by a judge."""
    asked = {"check_for": list(criteria or ("the work is there",)), **config}
    return {"verification_method": "semantic", "verification_config": asked}


def by_word() -> Way:
    """Verified by nobody."""
    return {"verification_method": "string_match"}


def several(*parts: Way, **config: Any) -> Way:
    """Verified in several ways; `part` makes each."""
    return {"verification_method": "multi_stage", "verification_config": {"stages": list(parts), **config}}


def part(name: str, how: Way, required: bool = True, after: Sequence[str] = ()) -> Way:
    """One of several ways."""
    made = {"name": name, "method": how["verification_method"], "config": how.get("verification_config", {})}
    return {**made, "required": required, "depends_on": list(after)}


def completion(**ways: Way) -> dict[str, Any]:
    """What done means, with these ways for these stages."""
    stages = {stage: {"promise": WORDS[stage], **way} for stage, way in ways.items()}
    return {"outcome": "All of the work is there", "acceptance_criteria": ["the work is there"], **stages}


def keep(
    ralph: Ralph, id: str = "T-1", after: tuple[str, ...] = (), title: str = "Make it so",
    ways: Mapping[str, Way] | None = None, **more: Way,
) -> None:  # fmt: skip
    """Keep a task in the ledger, with these ways for these stages."""
    ledger = ralph.project.ledger(read_only=False)
    try:
        told = json.dumps(completion(**{**(ways or {}), **more}))
        ledger.tasks.add((TaskRow(id, "spec", title, "Make it so.", dependencies=after, completion=told),))
    finally:
        ledger.close()


def promise(word: str, *steps: Step) -> list[Step]:
    """A turn that does this, and says the word of a stage (or another one) at its end."""
    return [*steps, say(f"I am done.\n\n<promise>{WORDS.get(word, word)}</promise>")]


def skipped(*stages: str) -> tuple[str, ...]:
    """The flags that leave every stage out but these."""
    return tuple(word for stage in STAGES if stage not in stages for word in ("--skip", stage))


def work(ralph: Ralph, *iterations: list[Step], answer: list[Step] | None = None, flags: Sequence[str] = ()) -> Ended:
    """`ralph work` with an agent that plays these iterations, one after the other."""
    return ralph("work", "--agent", ralph.script(*iterations, answer=answer), *flags)


def hats(ralph: Ralph) -> list[str]:
    """The stage of every iteration that was judged."""
    return [past.job.stage.name for past in ralph.state().history.iterations]


def verdicts(ralph: Ralph) -> list[str]:
    """What followed from every iteration, in one word each."""
    return [type(record.verdict).__name__ for record in recorded(ralph, Judged)]


def findings(ralph: Ralph, iteration: int) -> dict[str, Finding]:
    """What was found of an iteration's work, by the names of the checks."""
    found = [one.finding for one in recorded(ralph, CheckEnded) if one.iteration == iteration]
    return {finding.check: finding for finding in found}


def status(ralph: Ralph, id: str = "T-1") -> dict[str, Any]:
    """What programs are told of a task, and its completion as it is kept."""
    ledger = ralph.project.ledger()
    try:
        row = ledger.tasks.row(id)
        assert row is not None
        view = TaskView.of(ledger, row, ralph.project)
    finally:
        ledger.close()
    return {**view.to_json(), "completion": row.completion}


def sound(ralph: Ralph, ended: Ended) -> None:
    """What holds after every run of a task: all that holds after any run, and a success is worth what it says."""
    invariants.no_traceback(ended)
    invariants.readable(ralph)
    invariants.one_end(ralph, ended)
    invariants.unaltered(ralph)
    invariants.private(ralph)
    invariants.unlocked(ralph)
    for row in ralph.runs():
        assert ralph.processes(row.id) == [], f"processes of run {row.id} are still alive"
    if ended.code == 0:
        _earned(ralph)


def _earned(ralph: Ralph) -> None:
    """What was asked in the last iteration, when its agent was dead, earns the word that the outcome has."""
    records, outcome, report = ralph.records(), ralph.outcome(), ralph.state().history.latest.report
    required = [finding for finding in report.findings if finding.required]
    answered = [finding for finding in required if not (finding.judged and finding.errored)]
    assert all(finding.passed for finding in answered), report
    machine = [finding for finding in answered if not finding.judged]
    whole = len(answered) == len(required)
    word = "verified" if machine and whole else "judged" if answered and whole else "claimed"
    assert (outcome["proof"], outcome["verificationPassed"]) == (word, word != "claimed"), outcome
    last_turn = max(place for place, record in enumerate(records) if isinstance(record, TurnEnded))
    for finding in answered:
        asked = [place for place, record in enumerate(records) if getattr(record, "finding", None) == finding]
        assert min(asked) > last_turn, f"{finding.check} was asked before the agent had ended"
        assert (ralph.root / finding.log).is_file(), finding
