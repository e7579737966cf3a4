"""Batches of the landing queue: which items are merged and checked together."""

from __future__ import annotations

from ralphproof.base.value import TYPE_CHECKING, Protocol, assert_never, replace, value
from ralphproof.engine.check import Finding
from ralphproof.store.landings import AttestedCheck, LandingRejected

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ralphproof.store.landings import Landed, LandingItem, LandingResult, MergeConflict, MergedChecksFailed

    RunChecks = Callable[[str, tuple[AttestedCheck, ...], tuple[str, ...]], tuple[Finding, ...]]


MAX_TARGET_MOVES = 5  # consecutive times that the target may move while checks run


class LandingTarget(Protocol):
    """A branch that work lands on."""

    name: str

    def tip(self) -> str:
        """The commit that the branch names, fetched if it is remote; empty where there is no such branch."""

    def move(self, old: str, new: str) -> bool:
        """Atomically move the branch from `old` to `new`; False where it does not name `old`. Raises Refused where the
        branch may not be moved.
        """


# Results of trying one batch


@value
class MergeClash:
    """An item that could not be merged. With `alone` it conflicts with the target itself, otherwise maybe with an item
    of the same batch.
    """

    item: LandingItem
    conflict: MergeConflict
    alone: bool


@value
class AlreadyLanded:
    """The target already contains an item of the batch."""

    landed: Landed


@value
class BatchPassed:
    """All items of the batch landed."""

    landed: tuple[Landed, ...]


@value
class BatchFailed:
    """Checks fail with all items of the batch merged."""

    failure: MergedChecksFailed


@value
class TargetMoved:
    """The target moved while the checks ran."""


@value
class BatchPlan:
    """Batches that are still to be tried, in this order, and the results so far.

    A batch that fails is halved until the item that makes it fail is alone. An item that conflicts with others of its
    batch is tried again after these have landed or were rejected. `target_moves` counts how often in a row the target
    moved meanwhile.
    """

    batches: tuple[tuple[LandingItem, ...], ...] = ()
    results: tuple[LandingResult, ...] = ()
    target_moves: int = 0

    @staticmethod
    def of(items: Iterable[LandingItem]) -> BatchPlan:
        """A plan that begins with all items in one batch."""
        return BatchPlan(_without_empty([tuple(items)]))

    @property
    def next_batch(self) -> tuple[LandingItem, ...]:
        """The batch to try now; empty when all items are decided."""
        return self.batches[0] if self.batches else ()

    def after(self, result: MergeClash | AlreadyLanded | BatchPassed | BatchFailed | TargetMoved) -> BatchPlan:
        """The plan after this result of the next batch."""
        batch, rest = self.next_batch, self.batches[1:]
        match result:
            case MergeClash(item, conflict, alone):
                remaining, rejected = _without_item(batch, item), LandingRejected(item, conflict)
                if alone:
                    return replace(self, batches=_without_empty([remaining, *rest]), results=(*self.results, rejected))
                return replace(self, batches=_without_empty([remaining, *rest, (item,)]))
            case AlreadyLanded(landed):
                remaining = _without_item(batch, landed.item)
                return replace(self, batches=_without_empty([remaining, *rest]), results=(*self.results, landed))
            case BatchPassed(landed):
                return BatchPlan(rest, (*self.results, *landed))
            case BatchFailed(failure):
                if len(batch) == 1:
                    return BatchPlan(rest, (*self.results, LandingRejected(batch[0], failure)))
                half = len(batch) // 2
                return replace(self, batches=(batch[:half], batch[half:], *rest))
            case TargetMoved():
                return replace(self, target_moves=self.target_moves + 1)
            case _:
                assert_never(result)


def combined_checks(
    items: Iterable[LandingItem], target_checks: Iterable[AttestedCheck] = ()
) -> tuple[AttestedCheck, ...]:
    """The checks of all items and of the target, without duplicates."""
    own = (check for item in items for check in item.rerunnable_checks)
    inherited = (check for check in target_checks if check.runs_again)
    by_identity: dict[object, AttestedCheck] = {}
    for check in (*own, *inherited):
        by_identity.setdefault(check_identity(check), check)
    return tuple(by_identity.values())


def check_identity(check: AttestedCheck) -> tuple[object, ...]:
    """Equal for checks that give the same answer on the same tree: same command, same rule."""
    return check.command, replace(check.rule, clean=False)


def combined_setup(items: Iterable[LandingItem], target_checks: Iterable[str] = ()) -> tuple[str, ...]:
    """The setup commands of the target and of all items, each once."""
    return tuple(dict.fromkeys([*target_checks, *(command for item in items for command in item.setup)]))


def _without_item(batch: tuple[LandingItem, ...], item: LandingItem) -> tuple[LandingItem, ...]:
    return tuple(one for one in batch if one.key != item.key)


def _without_empty(batches: Iterable[tuple[LandingItem, ...]]) -> tuple[tuple[LandingItem, ...], ...]:
    return tuple(batch for batch in batches if batch)
