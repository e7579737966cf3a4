"""What is asked last of all: every command once more in a clean checkout, and the checks that are held out."""

from __future__ import annotations

from ralphproof.config.stage_leaves import Leaf
from ralphproof.plan import External
from ralphproof.value import TYPE_CHECKING, replace

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ralphproof.config.settings import Settings

CLEAN = "clean"


def final_leaves(settings: Settings, leaves: Iterable[Leaf]) -> tuple[Leaf, ...]:
    """The last checks of a run that asks these. Those that only warn are not asked twice."""
    known, clean = tuple(leaves), settings.verify_in == CLEAN
    taken = {leaf.name for leaf in known}
    again = [
        replace(
            leaf, name=_free(f"{leaf.name} (clean)", taken), clean=True, late=True, log=f"clean_{leaf.log or leaf.name}"
        )
        for leaf in known
        if clean and leaf.required and isinstance(leaf.how, External)
    ]
    held = [
        Leaf(_free(f"final: {command}", taken), External(command), late=True, hidden=True, clean=clean)
        for command in settings.final_checks
    ]
    return (*again, *held)


def _free(name: str, taken: set[str]) -> str:
    """The name, with a number where it is taken; it is then."""
    free, number = name, 1
    while free in taken:
        number += 1
        free = f"{name} ({number})"
    taken.add(free)
    return free
