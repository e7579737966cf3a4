"""Batches of the landing queue: which items are merged and checked together."""

from __future__ import annotations

from ralphproof.base.value import TYPE_CHECKING, Protocol, assert_never, replace, value
from ralphproof.engine.check import Finding
from ralphproof.store.landings import AttestedCheck, LandingRejected

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ralphproof.store.landings import Landed, LandingItem, LandingResult, MergeConflict, MergedChecksFailed

    Examine = Callable[[str, tuple[AttestedCheck, ...], tuple[str, ...]], tuple[Finding, ...]]


# Finished work on its way onto a branch: parcels, what became of each, and which are tried next.


MAX_TARGET_MOVES = 5  # so often in a row a target may move while checks run


class LandingTarget(Protocol):
    """A branch that work lands on."""

    name: str

    def tip(self) -> str:
        """The commit that it names, there to be read; empty where there is no such branch."""

    def move(self, old: str, new: str) -> bool:
        """Let it name `new` if it names `old`, in one step; whether it does. Raises Refused where it may not."""


# What one trial came to


@value
class MergeClash:
    """A parcel that could not be merged; `alone` where only the target lay below it."""

    item: LandingItem
    conflict: MergeConflict
    alone: bool


@value
class AlreadyLanded:
    """The target has it already."""

    landed: Landed


@value
class BatchPassed:
    """All of the trial landed."""

    landed: tuple[Landed, ...]


@value
class BatchFailed:
    """With all of the trial on top, checks fail."""

    red: MergedChecksFailed


@value
class TargetMoved:
    """The target moved while the checks ran."""


@value
class BatchPlan:
    """Which parcels are tried together, in this order, and what became of those that were.

    A red trial is halved until the one that makes it red is alone. A parcel that clashes with others of its trial is
    tried again when these have landed, or were turned away.
    """

    trials: tuple[tuple[LandingItem, ...], ...] = ()
    ended: tuple[LandingResult, ...] = ()
    overtaken: int = 0

    @staticmethod
    def of(parcels: Iterable[LandingItem]) -> BatchPlan:
        """All at once, at first."""
        return BatchPlan(_without_empty([tuple(parcels)]))

    @property
    def next_trial(self) -> tuple[LandingItem, ...]:
        """What is to be tried now; nothing when all is decided."""
        return self.trials[0] if self.trials else ()

    def after(self, came: MergeClash | AlreadyLanded | BatchPassed | BatchFailed | TargetMoved) -> BatchPlan:
        """What follows."""
        trial, rest = self.next_trial, self.trials[1:]
        match came:
            case MergeClash(parcel, conflict, alone):
                left, end = _without_item(trial, parcel), LandingRejected(parcel, conflict)
                if alone:
                    return replace(self, trials=_without_empty([left, *rest]), ended=(*self.ended, end))
                return replace(self, trials=_without_empty([left, *rest, (parcel,)]))
            case AlreadyLanded(landed):
                left = _without_item(trial, landed.item)
                return replace(self, trials=_without_empty([left, *rest]), ended=(*self.ended, landed))
            case BatchPassed(landed):
                return BatchPlan(rest, (*self.ended, *landed))
            case BatchFailed(red):
                if len(trial) == 1:
                    return BatchPlan(rest, (*self.ended, LandingRejected(trial[0], red)))
                half = len(trial) // 2
                return replace(self, trials=(trial[:half], trial[half:], *rest))
            case TargetMoved():
                return replace(self, overtaken=self.overtaken + 1)
            case _:
                assert_never(came)


def combined_checks(
    parcels: Iterable[LandingItem], standing: Iterable[AttestedCheck] = ()
) -> tuple[AttestedCheck, ...]:
    """The checks of all parcels and those that stand, each command by one rule once."""
    every = (*(check for parcel in parcels for check in parcel.asked), *(one for one in standing if one.runs_again))
    found: dict[object, AttestedCheck] = {}
    for check in every:
        found.setdefault(check_identity(check), check)
    return tuple(found.values())


def check_identity(check: AttestedCheck) -> tuple[object, ...]:
    """Two checks with the same way ask the same of the same tree."""
    return check.command, replace(check.rule, clean=False)


def combined_setup(parcels: Iterable[LandingItem], standing: Iterable[str] = ()) -> tuple[str, ...]:
    """What prepares a checkout for all of them, each command once."""
    return tuple(dict.fromkeys([*standing, *(command for parcel in parcels for command in parcel.setup)]))


def _without_item(trial: tuple[LandingItem, ...], parcel: LandingItem) -> tuple[LandingItem, ...]:
    return tuple(one for one in trial if one.key != parcel.key)


def _without_empty(trials: Iterable[tuple[LandingItem, ...]]) -> tuple[tuple[LandingItem, ...], ...]:
    return tuple(trial for trial in trials if trial)
