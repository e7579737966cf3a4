"""What a run did on each of its stories, as its record tells it: how often, at what cost, and with what verdicts."""

from __future__ import annotations

from ralphproof.budget import Spend
from ralphproof.value import TYPE_CHECKING, replace, value
from ralphproof.views.bills import spend_json
from ralphproof.views.stories import criteria_in
from ralphproof.views.task_history import passages

if TYPE_CHECKING:
    from ralphproof.ledgers.runs import RunRow
    from ralphproof.ledgers.sqlite import Sqlite
    from ralphproof.timeline import Span
    from ralphproof.value import Json
    from ralphproof.views.followed import Followed
    from ralphproof.views.project import Project
    from ralphproof.views.task_history import Passage


@value
class StoryWork:
    """One story: what it asks for, its iterations, what they cost, and each verification."""

    criteria: tuple[str, ...] = ()
    iterations: int = 0
    spend: Spend = Spend()
    history: tuple[Passage, ...] = ()

    def published(self) -> dict[str, Json]:
        """For programs."""
        return {
            "acceptance": [*self.criteria], "iterations": self.iterations,
            "spend": spend_json(self.spend) if self.iterations else None,
            "verification": [one.published() for one in self.history],
        }  # fmt: skip


def works_of(ledger: Sqlite, project: Project, row: RunRow, followed: Followed) -> dict[str, StoryWork]:
    """The work on every story that is known, by its id."""
    made = {story: StoryWork(criteria) for story, criteria in criteria_in(project, row).items()}
    for span in followed.timeline.spans.values():
        if span.job is not None:
            task = span.job.task
            known = made.get(task.id) or StoryWork(tuple(map(project.mask, task.acceptance)))
            spend = known.spend.beside(cost_of(span))
            made[task.id] = replace(known, iterations=known.iterations + 1, spend=spend)
    for passage in passages(ledger, (row.id,)):
        if passage.task in made:
            before = made[passage.task]
            made[passage.task] = replace(before, history=(*before.history, passage))
    return made


def cost_of(span: Span) -> Spend:
    """What an iteration has cost: its turns, its judges, and the call for a commit's message."""
    spend = Spend()
    for leg in span.legs:  # one that goes on has cost something, nobody knows what
        spend = spend.plus(leg.reply) if leg.reply else spend.beside(Spend(unpriced=1))
    for one in span.checks:
        if one.finding and one.finding.spent:
            spend = spend.beside(Spend.of(one.finding.spent))
    return spend.plus(span.kept.reply) if span.kept and span.kept.reply else spend
