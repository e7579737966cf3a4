"""A way to verify, taken to pieces: every single check of it, when it is asked, and what it is called."""

from __future__ import annotations

from ralphproof.claim import ClaimRule
from ralphproof.errors import Refused
from ralphproof.plan import (
    EXTERNAL,
    MULTI_STAGE,
    SEMANTIC,
    STRING_MATCH,
    Custom,
    External,
    MultiStage,
    Part,
    Semantic,
    StringMatch,
    Verification,
)
from ralphproof.value import TYPE_CHECKING, assert_never, replace, value

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Single = StringMatch | External | Semantic | Custom


@value
class Leaf:
    """One check of a run: what it is called, how it is made, and whether it must pass.

    `stage` is the one that it belongs to; a guardrail belongs to none. `late` ones are asked last, about work that is
    claimed to be done: judges, promises, and what waits for those. `rule` is what a promise is. `log` is what its
    log is named after, if not its name. `action`, `hint` and `retries` are a guardrail's. One that is `hidden` is held
    out: no agent is told of it. One that is `clean` is asked in a clean checkout.
    """

    name: str
    how: Single
    required: bool = True
    stage: str = ""
    late: bool = False
    rule: ClaimRule = ClaimRule()
    log: str = ""
    action: str = "APPEND"
    hint: str = ""
    retries: int = 0
    hidden: bool = False
    clean: bool = False

    @property
    def machine(self) -> bool:
        """Whether no model and no word of the agent's decides."""
        return isinstance(self.how, External | Custom)


@value
class Inquiry:
    """All that one way asks: groups one after the other, the leaves of a group at once. The last ones are late."""

    groups: tuple[tuple[Leaf, ...], ...] = ()
    stops_early: bool = False

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        return tuple(leaf for group in self.groups for leaf in group)

    @property
    def checks(self) -> tuple[str, ...]:
        """What is asked of every iteration's work, in this order."""
        return tuple(leaf.name for leaf in self.leaves if not leaf.late)

    @property
    def judges(self) -> tuple[str, ...]:
        """What is asked last, one by one, about work that is claimed to be done."""
        return tuple(leaf.name for leaf in self.leaves if leaf.late)

    @property
    def together(self) -> tuple[tuple[str, ...], ...]:
        """The checks that are asked at once."""
        at_once = (tuple(leaf.name for leaf in group if not leaf.late) for group in self.groups)
        return tuple(names for names in at_once if len(names) > 1)

    @property
    def machine(self) -> bool:
        return any(leaf.machine for leaf in self.leaves)

    def plus(self, other: Inquiry) -> Inquiry:
        """This one, then the other; whether a fault ends it is the other's to say."""
        return Inquiry((*self.groups, *other.groups), other.stops_early)

    def only(self, leaves: Iterable[Leaf]) -> Inquiry:
        """Less every leaf that is not among these."""
        wanted = {leaf.name for leaf in leaves}
        kept = (tuple(leaf for leaf in group if leaf.name in wanted) for group in self.groups)
        return replace(self, groups=tuple(group for group in kept if group))

    def each(self, changed: Callable[[Leaf], Leaf]) -> Inquiry:
        """The same with every leaf changed."""
        return replace(self, groups=tuple(tuple(map(changed, group)) for group in self.groups))

    def told_apart(self, taken: set[str], call: Callable[[str], str] = str) -> Inquiry:
        """The same with names that nothing else has, made by `call` of those they have; they are taken then."""

        def named(leaf: Leaf) -> Leaf:
            name, number = call(leaf.name), 1
            free = name
            while free in taken:
                number += 1
                free = f"{name} ({number})"
            taken.add(free)
            return replace(leaf, name=free)

        return self.each(named)


NOTHING_ASKED = Inquiry()


def inquiry(name: str, how: Verification, under: str = "") -> Inquiry:
    """What a way asks. A single check has this name; those of several ways their own, nested ones `outer/inner`.

    Those of several ways are nested `under` this, where it is given.
    """
    if not isinstance(how, MultiStage):
        return Inquiry(tuple(_spread(Part(name, how), name, True, False)))
    return Inquiry(tuple(_spread(Part(under, how), under, True, False)), how.require_all)


def method_of(how: Verification) -> str:
    """The name of a way."""
    match how:
        case StringMatch():
            return STRING_MATCH
        case External():
            return EXTERNAL
        case Semantic():
            return SEMANTIC
        case MultiStage():
            return MULTI_STAGE
        case Custom(method):
            return method
        case _:
            assert_never(how)


def _spread(part: Part, path: str, required: bool, late: bool) -> list[tuple[Leaf, ...]]:
    """The groups of a part, in order. What waits for a late part is late too."""
    how = part.how
    if not isinstance(how, MultiStage):
        return [(Leaf(path, how, required, late=late or isinstance(how, Semantic | StringMatch)),)]
    made: list[tuple[Leaf, ...]] = []
    tardy: set[str] = set()  # parts that hold something late
    for layer in _layers(how.parts, path):
        spread = []
        for inner in layer:
            waits = late or not tardy.isdisjoint(inner.after)
            groups = _spread(inner, f"{path}/{inner.name}" if path else inner.name, required and inner.required, waits)
            if any(leaf.late for group in groups for leaf in group):
                tardy.add(inner.name)
            spread.append(groups)
        made += _abreast(spread) if how.parallel else [group for groups in spread for group in groups]
    return made


def _abreast(several: list[list[tuple[Leaf, ...]]]) -> list[tuple[Leaf, ...]]:
    """Several rows of groups as one: all first groups at once, then all second ones."""
    longest = max(map(len, several), default=0)
    return [
        tuple(leaf for groups in several for leaf in (groups[place] if place < len(groups) else ()))
        for place in range(longest)
    ]


def _layers(parts: tuple[Part, ...], path: str) -> list[list[Part]]:
    """The parts so that each stands behind all that it waits for."""
    layers: list[list[Part]] = []
    settled: set[str] = set()
    left = list(parts)
    while left:
        ready = [part for part in left if settled.issuperset(part.after)]
        if not ready:
            where = f" of {path}" if path else ""
            raise Refused(f"these stages{where} wait for each other: {', '.join(part.name for part in left)}")
        layers.append(ready)
        settled |= {part.name for part in ready}
        left = [part for part in left if part not in ready]
    return layers
