"""The checks of parcels asked on a merged commit, each in a fresh checkout that is thrown away."""

from __future__ import annotations

import os

from ralphproof.cli.verify_room import ThrowAway
from ralphproof.errors import from_system
from ralphproof.keeper.tree import alive, start_time
from ralphproof.ledgers.landings import FOLDER
from ralphproof.value import TYPE_CHECKING, replace
from ralphproof.workspaces.clean_place import remove

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType
    from typing import Self

    from ralphproof.attested import Attested
    from ralphproof.check import Finding
    from ralphproof.cli.verify_room import Wishes
    from ralphproof.views.project import Project

ROOMS = "rooms"  # in the folder of landings: one for each examiner at work
MUTE = "it told of no test"


class Examiner:
    """What a landing asks about a commit. One place and one keeper for all of it, made when it is first asked.

    Where `wishes` tell that it should end, what runs is ended with its tree and KeyboardInterrupt is raised. `told`
    hears what is run, from the thread that asks.
    """

    def __init__(
        self, project: Project, environ: Mapping[str, str], wishes: Wishes, told: Callable[[str], None], *,
        sandbox: str | None = None,
    ) -> None:  # fmt: skip
        """`sandbox` is the kind that commands run in; None is none."""
        self._project, self._environ, self._wishes, self._told = project, environ, wishes, told
        self._sandbox, self._place = sandbox, os.path.join(project.store, FOLDER, ROOMS)
        self._room: ThrowAway | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        room, self._room = self._room, None
        if room is not None:
            room.__exit__(kind, error, trace)
            remove(self._own)

    def __call__(self, commit: str, checks: tuple[Attested, ...], setup: tuple[str, ...]) -> tuple[Finding, ...]:
        """What each of the checks answers there."""
        room = self._room or self._entered()
        room.commit = commit
        return tuple(self._asked(room, check, setup) for check in checks)

    def heed(self) -> None:
        """Raise KeyboardInterrupt where somebody wants it to end."""
        if self._wishes.wish():
            raise KeyboardInterrupt

    def _entered(self) -> ThrowAway:
        clear_dead(self._place)
        try:
            os.makedirs(self._own, mode=0o700, exist_ok=True)
        except OSError as error:
            raise from_system(error) from error
        project = self._project
        room = ThrowAway(
            project.root, "", self._environ, project.secrets, self._sandbox, self._wishes, self._own, keeps=True
        )
        self._room = room.__enter__()
        return self._room

    @property
    def _own(self) -> str:
        """A folder that tells whose it is, for whoever clears up after us."""
        return os.path.join(self._place, f"{os.getpid()}-{start_time(os.getpid())}-{id(self):x}")

    def _asked(self, room: ThrowAway, check: Attested, setup: tuple[str, ...]) -> Finding:
        found = room.ask(check, setup, lambda command: self._told(f"runs {command}"))
        if found.passed and found.mute and check.tests_passed:
            found = replace(found, passed=False, why=MUTE)  # a merge that switches tests off is no green one
        self._told(f"{check.name} {'passed' if found.passed else 'failed'}")
        return found


def clear_dead(place: str) -> None:
    """Remove the checkouts of those who died over them."""
    for name in os.listdir(place) if os.path.isdir(place) else ():
        pid, _, rest = name.partition("-")
        start = rest.partition("-")[0]
        if pid.isdigit() and start.isdigit() and not alive(int(pid), int(start)):
            remove(os.path.join(place, name))
