"""The checks of parcels asked on a merged commit, each in a fresh checkout that is thrown away."""

from __future__ import annotations

from ralphproof.cli.landing_rooms import new_room
from ralphproof.cli.verify_room import ThrowAway
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
        self._sandbox, self._own = sandbox, ""
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
        self._own = new_room(self._project.store)
        project = self._project
        room = ThrowAway(
            project.root, "", self._environ, project.secrets, self._sandbox, self._wishes, self._own, keeps=True
        )
        self._room = room.__enter__()
        return self._room

    def _asked(self, room: ThrowAway, check: Attested, setup: tuple[str, ...]) -> Finding:
        found = room.ask(check, setup, lambda command: self._told(f"runs {command}"))
        found = replace(found, hidden=check.hidden, log="")  # its log goes with the checkout
        if found.passed and found.mute and check.tests_passed:
            found = replace(found, passed=False, why=MUTE)  # a merge that switches tests off is no green one
        self._told(f"{check.name} {'passed' if found.passed else 'failed'}")
        return found
