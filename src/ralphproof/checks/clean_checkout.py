"""A command check that runs in a clean checkout, where ignored and uncommitted files are absent."""

from __future__ import annotations

import hashlib
import os

from ralphproof.base.errors import DiskFull, RalphError
from ralphproof.base.text import quote_excerpt, unique_slugs
from ralphproof.base.value import Protocol, replace, value
from ralphproof.checks.command import STOPPED, CommandCheck, CommandCheckSpec
from ralphproof.engine.check import Finding, Inspection, PassRule
from ralphproof.engine.environment import RunFiles
from ralphproof.engine.failure_fingerprint import failure_fingerprint
from ralphproof.engine.sandbox import CommandWatcher, Sandbox

SETUP_TIMEOUT_S = 1800.0
CLEAN_CHECKOUT_NOTE = (
    "in a clean checkout of what would be committed; files that git ignores, or leaves out, are not there"
)


@value
class PreparedCheckout:
    """A checkout to work in: where it is, what holds all that runs there, and whether it is prepared.

    `number` tells it from others that were laid for the same work.
    """

    place: str
    sandbox: Sandbox
    number: int = 1
    ready: bool = False


class CheckoutProvider(Protocol):
    """Where clean checkouts are laid, one at a time. Raises a RalphError where that cannot be done."""

    setup: tuple[str, ...]

    def enter(self, inspection: Inspection, asking: str) -> PreparedCheckout:
        """The checkout that was laid for this asking, as it is: a run may be taken up in the midst of it.

        Else a new one, which is prepared already where what `setup` would make of it was kept.
        """

    def prepared(self) -> None:
        """All of `setup` went well in the checkout: keep what it made."""


class CleanCheckoutCheck:
    """Asks its question in a checkout that was laid for it, and prepared by the room's `setup`.

    All else is as with a command in the project. What goes wrong before its turn is a failure of its own.
    """

    def __init__(
        self,
        question: CommandCheckSpec,
        room: CheckoutProvider,
        folder: RunFiles,
        root: str,
        env: tuple[tuple[str, str], ...],
    ) -> None:
        """`root` is the project's: the paths of logs are told from there."""
        self.name, self.required = question.name or question.command, question.required
        self._question, self._room, self._folder, self._root, self._env = question, room, folder, root, env
        asked = repr((replace(question, slug="", name="", action="", hint=""), room.setup))
        self.key = hashlib.sha256(asked.encode("utf-8", "surrogatepass")).hexdigest()[:24]

    def ask(self, inspection: Inspection, watch: CommandWatcher) -> Finding:
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
        return self._own(_with_project_log(self._root, entered.place, _with_checkout_note(asks.ask(inspection, watch))))

    def _prepare(self, entered: PreparedCheckout, inspection: Inspection, watch: CommandWatcher) -> Finding | None:
        """Run what prepares the checkout, one after the other; what failed of it."""
        for command, slug in zip(self._room.setup, unique_slugs(self._room.setup), strict=True):
            clip = (self._question.clip_chars, self._question.clip_mode)
            asked = CommandCheckSpec(command, slug, timeout_s=SETUP_TIMEOUT_S, clip_chars=clip[0], clip_mode=clip[1])
            step = SetupStep(asked, entered, self._folder, self._env)
            found = _with_project_log(self._root, entered.place, step.ask(inspection, watch))
            if not found.passed:
                return found if found.why == STOPPED else self._unprepared(found)
        return None

    def _unprepared(self, found: Finding) -> Finding:
        how = _with_checkout_note(found).why
        return replace(
            found, why=f"its preparation: setup command {quote_excerpt(found.command)} failed with {how}",
            fingerprint=failure_fingerprint(self.name, found.code, found.fingerprint), tests=None,
        )  # fmt: skip

    def _own(self, found: Finding) -> Finding:
        """An answer as this check's own."""
        question = self._question
        rule = PassRule(
            os.path.normpath(question.folder), question.success_code, question.contains, question.lacks,
            question.timeout_s, clean=True,
        )  # fmt: skip
        printed = "" if found.passed else found.fingerprint or failure_fingerprint(self.name, found.code, found.why)
        return replace(
            found, check=self.name, command=question.command, action=question.action, hint=question.hint,
            required=question.required, key=self.key, hidden=question.hidden, rule=rule, fingerprint=printed,
        )  # fmt: skip


class SetupStep(CommandCheck):
    """One command of those that prepare a checkout. Each checkout has logs of its own."""

    def __init__(
        self, asked: CommandCheckSpec, entered: PreparedCheckout, folder: RunFiles, env: tuple[tuple[str, str], ...]
    ) -> None:
        super().__init__(asked, entered.sandbox, folder, entered.place, env)
        self._number = entered.number

    def _log_name(self, inspection: Inspection, runs: int) -> str:
        again = f"-run{runs}" if runs > 1 else ""
        return setup_log_name(inspection, self._question.slug, self._number) + again


def setup_log_name(inspection: Inspection, slug: str, number: int) -> str:
    """The name of the log of one command that prepares a checkout."""
    steps = (("turn", inspection.turn), ("round", inspection.round), ("lay", number))
    again = "".join(f"-{what}{n}" for what, n in steps if n > 1)
    return f"setup_{inspection.iteration:03d}_{slug}{again}"


def _with_checkout_note(found: Finding) -> Finding:
    """The same, and where it failed says where that was."""
    if found.passed or found.errored or found.why == STOPPED:
        return found
    how = f"exit code {found.code}" if found.why == "exit" else found.why
    return replace(found, why=f"{how} {CLEAN_CHECKOUT_NOTE}")


def _with_project_log(root: str, place: str, found: Finding) -> Finding:
    """The same, with the path of its log from the project, not from the checkout."""
    if not found.log or os.path.isabs(found.log):
        return found
    return replace(found, log=os.path.relpath(os.path.normpath(os.path.join(place, found.log)), root))
