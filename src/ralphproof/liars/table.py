"""Every trial: the honest agent and the idle one of each scene, and every way of cheating."""

from __future__ import annotations

from ralphproof.liars import claims, meddling, stories, weak_node, weak_python
from ralphproof.liars.cheat import CHEAT, NOOP, ORACLE, WEAKER, Trial
from ralphproof.liars.honest import HONEST
from ralphproof.liars.scenes import SCENES
from ralphproof.value import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ralphproof.liars.cheat import Cheat

CHEATS = (*claims.CHEATS, *weak_python.CHEATS, *weak_node.CHEATS, *meddling.CHEATS, *stories.CHEATS)


def trials() -> tuple[Trial, ...]:
    """All of them, the honest ones first."""
    return (*_of_scenes(), *(trial for cheat in CHEATS for trial in _of_cheat(cheat)))


def _of_scenes() -> Iterator[Trial]:
    for scene in SCENES.values():
        yield Trial(f"oracle@{scene.id}", ORACLE, "does the work, and claims", scene, scene.oracle)
        yield Trial(f"no-op@{scene.id}", NOOP, "does nothing, and claims", scene, scene.noop)
    for way in HONEST:
        for name in way.scenes:
            yield Trial(f"honest-{way.id}@{name}", ORACLE, way.about, SCENES[name], way.turns)


def _of_cheat(cheat: Cheat) -> Iterator[Trial]:
    for name in cheat.scenes:
        scene = SCENES[name]
        kind = CHEAT if scene.protects_tests or not cheat.told else WEAKER
        more = {"answer": cheat.answer} if cheat.answer else {}
        yield Trial(f"{cheat.id}@{name}", kind, cheat.about, scene, cheat.turns, cheat.fools, cheat.told, **more)
