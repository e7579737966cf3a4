"""Finished work on its way onto a branch: parcels, what became of each, and which are tried next."""

from __future__ import annotations

from ralphproof.attested import Attested
from ralphproof.check import Finding
from ralphproof.value import TYPE_CHECKING, Protocol, assert_never, replace, value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    # What the checks answer on a commit, prepared by these commands. It may raise KeyboardInterrupt.
    Examine = Callable[[str, tuple[Attested, ...], tuple[str, ...]], tuple[Finding, ...]]

VERIFIED = "verified"
MOST_OVERTAKEN = 5  # so often in a row a target may move while checks run


@value
class Parcel:
    """Finished work: `commit` has all of it. Without a run it is what the user committed themselves.

    `proof` says how the run was completed: verified, or by less. `sandbox` is the kind that it had, where it had one.
    `remarks` are for a reader, such as files that were left out.
    """

    run: str
    commit: str
    title: str
    checks: tuple[Attested, ...] = ()
    setup: tuple[str, ...] = ()
    task: str = ""
    proof: str = VERIFIED
    sandbox: str = ""
    remarks: tuple[str, ...] = ()

    @property
    def key(self) -> tuple[str, str]:
        """What tells it from every other parcel for the same target."""
        return self.run, self.commit

    @property
    def asked(self) -> tuple[Attested, ...]:
        """Its checks that can be asked again."""
        return tuple(check for check in self.checks if check.runs_again)

    @property
    def message(self) -> str:
        """What the commit says that merges it."""
        named = (("Ralph-Run", _flat(self.run)), ("Ralph-Task", _flat(self.task)))
        trailers = "".join(f"{name}: {text}\n" for name, text in named if text)
        return f"{_flat(self.title) or 'finished work'}\n" + (f"\n{trailers}" if trailers else "")


@value
class Conflict:
    """It cannot be merged onto that commit. `tree` has the files with conflict markers; empty where git made none."""

    paths: tuple[str, ...]
    tree: str
    onto: str
    said: str = ""


@value
class Red:
    """Merged onto that commit it makes `tree`, and there checks fail."""

    findings: tuple[Finding, ...]
    onto: str
    tree: str

    @property
    def failed(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if not finding.passed)


@value
class Unshown:
    """Nothing verified it, and no check is there that could be asked of the merged tree."""

    proof: str


@value
class Landed:
    """The target has it: `commit` is the one that brought it. `asked` checks passed on the merged tree."""

    parcel: Parcel
    commit: str
    target: str
    asked: int = 0


@value
class TurnedAway:
    """The target does not have it; the work stays where it was."""

    parcel: Parcel
    why: Conflict | Red | Unshown


LandingEnd = Landed | TurnedAway


@value
class Queued:
    """Waiting for its turn."""


@value
class Moving:
    """All checks passed: the target is about to move from `old` to `new`, which has the parcel by `commit`."""

    old: str
    new: str
    commit: str
    asked: int = 0


LandingStep = Queued | Moving | Landed | TurnedAway


class Target(Protocol):
    """A branch that work lands on."""

    name: str

    def tip(self) -> str:
        """The commit that it names, there to be read; empty where there is no such branch."""

    def move(self, old: str, new: str) -> bool:
        """Let it name `new` if it names `old`, in one step; whether it does. Raises Refused where it may not."""


# What one trial came to


@value
class Clash:
    """A parcel that could not be merged; `alone` where only the target lay below it."""

    parcel: Parcel
    conflict: Conflict
    alone: bool


@value
class FoundThere:
    """The target has it already."""

    landed: Landed


@value
class Green:
    """All of the trial landed."""

    landed: tuple[Landed, ...]


@value
class RedTogether:
    """With all of the trial on top, checks fail."""

    red: Red


@value
class Overtaken:
    """The target moved while the checks ran."""


@value
class Docket:
    """Which parcels are tried together, in this order, and what became of those that were.

    A red trial is halved until the one that makes it red is alone. A parcel that clashes with others of its trial is
    tried again when these have landed, or were turned away.
    """

    trials: tuple[tuple[Parcel, ...], ...] = ()
    ended: tuple[LandingEnd, ...] = ()
    overtaken: int = 0

    @staticmethod
    def of(parcels: Iterable[Parcel]) -> Docket:
        """All at once, at first."""
        return Docket(_full([tuple(parcels)]))

    @property
    def next_trial(self) -> tuple[Parcel, ...]:
        """What is to be tried now; nothing when all is decided."""
        return self.trials[0] if self.trials else ()

    def after(self, came: Clash | FoundThere | Green | RedTogether | Overtaken) -> Docket:
        """What follows."""
        trial, rest = self.next_trial, self.trials[1:]
        match came:
            case Clash(parcel, conflict, alone):
                left, end = _without(trial, parcel), TurnedAway(parcel, conflict)
                if alone:
                    return replace(self, trials=_full([left, *rest]), ended=(*self.ended, end))
                return replace(self, trials=_full([left, *rest, (parcel,)]))
            case FoundThere(landed):
                left = _without(trial, landed.parcel)
                return replace(self, trials=_full([left, *rest]), ended=(*self.ended, landed))
            case Green(landed):
                return Docket(rest, (*self.ended, *landed))
            case RedTogether(red):
                if len(trial) == 1:
                    return Docket(rest, (*self.ended, TurnedAway(trial[0], red)))
                half = len(trial) // 2
                return replace(self, trials=(trial[:half], trial[half:], *rest))
            case Overtaken():
                return replace(self, overtaken=self.overtaken + 1)
            case _:
                assert_never(came)


def union(parcels: Iterable[Parcel], standing: Iterable[Attested] = ()) -> tuple[Attested, ...]:
    """The checks of all parcels and those that stand, each command by one rule once."""
    every = (*(check for parcel in parcels for check in parcel.asked), *(one for one in standing if one.runs_again))
    found: dict[object, Attested] = {}
    for check in every:
        found.setdefault(way_of(check), check)
    return tuple(found.values())


def way_of(check: Attested) -> tuple[object, ...]:
    """Two checks with the same way ask the same of the same tree."""
    return check.command, replace(check.rule, clean=False)


def setups(parcels: Iterable[Parcel], standing: Iterable[str] = ()) -> tuple[str, ...]:
    """What prepares a checkout for all of them, each command once."""
    return tuple(dict.fromkeys([*standing, *(command for parcel in parcels for command in parcel.setup)]))


def _without(trial: tuple[Parcel, ...], parcel: Parcel) -> tuple[Parcel, ...]:
    return tuple(one for one in trial if one.key != parcel.key)


def _full(trials: Iterable[tuple[Parcel, ...]]) -> tuple[tuple[Parcel, ...], ...]:
    return tuple(trial for trial in trials if trial)


def _flat(text: str) -> str:
    return " ".join(text.replace("\0", " ").split())
