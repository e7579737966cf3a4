"""A command as a check in a clean checkout: what is ignored, or was never added, cannot carry it."""

from __future__ import annotations

import hashlib
import os

from ralphproof.check import Finding, Inspection, PassRule, slugs
from ralphproof.checks.command import STOPPED, CommandCheck, Question
from ralphproof.claim import quoted
from ralphproof.errors import DiskFull, RalphError
from ralphproof.fingerprint import fingerprint
from ralphproof.ledger import Folder
from ralphproof.sandbox import Sandbox, Watch
from ralphproof.value import Protocol, replace, value

SETUP_TIMEOUT_S = 1800.0
IN_CLEAN = "in a clean checkout of what would be committed; files that git ignores, or leaves out, are not there"


@value
class Entered:
    """A checkout to work in: where it is, what holds all that runs there, and whether it is prepared.

    `number` tells it from others that were laid for the same work.
    """

    place: str
    sandbox: Sandbox
    number: int = 1
    ready: bool = False


class Room(Protocol):
    """Where clean checkouts are laid, one at a time. Raises a RalphError where that cannot be done."""

    setup: tuple[str, ...]

    def enter(self, inspection: Inspection, asking: str) -> Entered:
        """The checkout that was laid for this asking, as it is: a run may be taken up in the midst of it.

        Else a new one, which is prepared already where what `setup` would make of it was kept.
        """

    def prepared(self) -> None:
        """All of `setup` went well in the checkout: keep what it made."""


class CleanCheck:
    """Asks its question in a checkout that was laid for it, and prepared by the room's `setup`.

    All else is as with a command in the project. What goes wrong before its turn is a failure of its own.
    """

    def __init__(
        self, question: Question, room: Room, folder: Folder, root: str, env: tuple[tuple[str, str], ...]
    ) -> None:
        """`root` is the project's: the paths of logs are told from there."""
        self.name, self.required = question.name or question.command, question.required
        self._question, self._room, self._folder, self._root, self._env = question, room, folder, root, env
        asked = repr((replace(question, slug="", name="", action="", hint=""), room.setup))
        self.key = hashlib.sha256(asked.encode("utf-8", "surrogatepass")).hexdigest()[:24]

    def ask(self, inspection: Inspection, watch: Watch) -> Finding:
        """Lay a checkout, prepare it, and run the command there."""
        try:
            entered = self._room.enter(inspection, self._question.slug)
            if not entered.ready:
                if failed := self._prepare(entered, inspection, watch):
                    return self._own(failed)
                self._room.prepared()
        except DiskFull:
            raise
        except RalphError as error:
            return self._own(Finding(self.name, False, why=f"no clean checkout to run in: {error}", errored=True))
        asks = CommandCheck(self._question, entered.sandbox, self._folder, entered.place, self._env)
        return self._own(_with_log_from(self._root, entered.place, _in_clean(asks.ask(inspection, watch))))

    def _prepare(self, entered: Entered, inspection: Inspection, watch: Watch) -> Finding | None:
        """Run what prepares the checkout, one after the other; what failed of it."""
        for command, slug in zip(self._room.setup, slugs(self._room.setup), strict=True):
            clip = (self._question.clip_chars, self._question.clip_mode)
            asked = Question(command, slug, timeout_s=SETUP_TIMEOUT_S, clip_chars=clip[0], clip_mode=clip[1])
            step = Step(asked, entered, self._folder, self._env)
            found = _with_log_from(self._root, entered.place, step.ask(inspection, watch))
            if not found.passed:
                return found if found.why == STOPPED else self._unprepared(found)
        return None

    def _unprepared(self, found: Finding) -> Finding:
        how = _in_clean(found).why
        return replace(
            found, why=f"its preparation: setup command {quoted(found.command)} failed with {how}",
            fingerprint=fingerprint(self.name, found.code, found.fingerprint), tests=None,
        )  # fmt: skip

    def _own(self, found: Finding) -> Finding:
        """An answer as this check's own."""
        question = self._question
        rule = PassRule(
            os.path.normpath(question.folder), question.success_code, question.contains, question.lacks,
            question.timeout_s, clean=True,
        )  # fmt: skip
        printed = "" if found.passed else found.fingerprint or fingerprint(self.name, found.code, found.why)
        return replace(
            found, check=self.name, command=question.command, action=question.action, hint=question.hint,
            required=question.required, key=self.key, hidden=question.hidden, rule=rule, fingerprint=printed,
        )  # fmt: skip


class Step(CommandCheck):
    """One command of those that prepare a checkout. Each checkout has logs of its own."""

    def __init__(self, asked: Question, entered: Entered, folder: Folder, env: tuple[tuple[str, str], ...]) -> None:
        super().__init__(asked, entered.sandbox, folder, entered.place, env)
        self._number = entered.number

    def _log_name(self, inspection: Inspection, runs: int) -> str:
        again = f"-run{runs}" if runs > 1 else ""
        return setup_log(inspection, self._question.slug, self._number) + again


def setup_log(inspection: Inspection, slug: str, number: int) -> str:
    """The name of the log of one command that prepares a checkout."""
    steps = (("turn", inspection.turn), ("round", inspection.round), ("lay", number))
    again = "".join(f"-{what}{n}" for what, n in steps if n > 1)
    return f"setup_{inspection.iteration:03d}_{slug}{again}"


def _in_clean(found: Finding) -> Finding:
    """The same, and where it failed says where that was."""
    if found.passed or found.errored or found.why == STOPPED:
        return found
    how = f"exit code {found.code}" if found.why == "exit" else found.why
    return replace(found, why=f"{how} {IN_CLEAN}")


def _with_log_from(root: str, place: str, found: Finding) -> Finding:
    """The same, with the path of its log from the project, not from the checkout."""
    if not found.log or os.path.isabs(found.log):
        return found
    return replace(found, log=os.path.relpath(os.path.normpath(os.path.join(place, found.log)), root))
