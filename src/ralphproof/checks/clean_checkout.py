"""A command check that runs in a clean checkout, where ignored and uncommitted files are absent."""

from __future__ import annotations

import hashlib
import os

from ralphproof.base.errors import DiskFull, RalphError
from ralphproof.base.text import quote_excerpt, unique_slugs
from ralphproof.base.value import Protocol, replace, value
from ralphproof.checks.command import STOPPED, CommandCheck, CommandCheckSpec
from ralphproof.engine.check import Finding, Inspection, PassRule, failure_fingerprint
from ralphproof.engine.environment import RunFiles
from ralphproof.engine.sandbox import CommandWatcher, Sandbox

SETUP_TIMEOUT_S = 1800.0
CLEAN_CHECKOUT_NOTE = (
    "in a clean checkout of what would be committed; files that git ignores, or leaves out, are not there"
)


@value
class PreparedCheckout:
    """A checkout: its path, the sandbox of commands in it, and whether setup was run.

    `number` distinguishes checkouts made for the same work.
    """

    path: str
    sandbox: Sandbox
    number: int = 1
    prepared: bool = False


class CheckoutProvider(Protocol):
    """Provides clean checkouts, one at a time. Raises a RalphError where it cannot."""

    setup: tuple[str, ...]

    def check_out(self, inspection: Inspection, check: str) -> PreparedCheckout:
        """The checkout that exists for this check, as it is: the run may be resumed in the middle of it.

        Else a new one, already `prepared` where the results of `setup` were cached.
        """

    def setup_done(self) -> None:
        """All of `setup` succeeded in the checkout: cache its results."""


class CleanCheckoutCheck:
    """Runs a command in a clean checkout that was prepared by the `setup` commands.

    Otherwise like CommandCheck. A failure before the command runs is a failure of this check.
    """

    def __init__(
        self,
        spec: CommandCheckSpec,
        checkouts: CheckoutProvider,
        folder: RunFiles,
        root: str,
        env: tuple[tuple[str, str], ...],
    ) -> None:
        """`root` is that of the project: paths of logs are relative to it."""
        self.name, self.required = spec.name or spec.command, spec.required
        self._spec, self._checkouts, self._folder, self._root, self._env = spec, checkouts, folder, root, env
        settings = repr((replace(spec, slug="", name="", action="", hint=""), checkouts.setup))
        self.key = hashlib.sha256(settings.encode("utf-8", "surrogatepass")).hexdigest()[:24]

    def run(self, inspection: Inspection, watch: CommandWatcher) -> Finding:
        """Make a checkout, prepare it, and run the command there."""
        try:
            checkout = self._checkouts.check_out(inspection, self._spec.slug)
            if not checkout.prepared:
                if failed := self._prepare(checkout, inspection, watch):
                    return self._as_own(failed)
                self._checkouts.setup_done()
        except DiskFull:
            raise
        except RalphError as error:
            return self._as_own(Finding(self.name, False, why=f"no clean checkout to run in: {error}", errored=True))
        check = CommandCheck(self._spec, checkout.sandbox, self._folder, checkout.path, self._env)
        return self._as_own(
            _with_project_log(self._root, checkout.path, _with_checkout_note(check.run(inspection, watch)))
        )

    def _prepare(self, checkout: PreparedCheckout, inspection: Inspection, watch: CommandWatcher) -> Finding | None:
        """Run the setup commands in order; return the first failure."""
        clip = CommandCheckSpec("", "", clip_chars=self._spec.clip_chars, clip_mode=self._spec.clip_mode)
        finding = run_setup(self._checkouts.setup, clip, checkout, self._folder, self._env, inspection, watch)
        if finding is None:
            return None
        finding = _with_project_log(self._root, checkout.path, finding)
        return finding if finding.why == STOPPED else self._setup_failure(finding)

    def _setup_failure(self, finding: Finding) -> Finding:
        how = _with_checkout_note(finding).why
        return replace(
            finding, why=f"its preparation: setup command {quote_excerpt(finding.command)} failed with {how}",
            fingerprint=failure_fingerprint(self.name, finding.code, finding.fingerprint), tests=None,
        )  # fmt: skip

    def _as_own(self, finding: Finding) -> Finding:
        """The finding under the name and settings of this check."""
        spec = self._spec
        rule = PassRule(
            os.path.normpath(spec.folder), spec.success_code, spec.contains, spec.lacks,
            spec.timeout_s, clean=True,
        )  # fmt: skip
        fingerprint = finding.fingerprint or failure_fingerprint(self.name, finding.code, finding.why)
        return replace(
            finding, check=self.name, command=spec.command, action=spec.action, hint=spec.hint,
            required=spec.required, key=self.key, hidden=spec.hidden, rule=rule,
            fingerprint="" if finding.passed else fingerprint,
        )  # fmt: skip


def run_setup(
    setup: tuple[str, ...], template: CommandCheckSpec, checkout: PreparedCheckout, folder: RunFiles,
    env: tuple[tuple[str, str], ...], inspection: Inspection, watch: CommandWatcher,
) -> Finding | None:  # fmt: skip
    """Run the setup commands in a checkout, each like the `template`; return the first failure.

    The commands have logs of their own for each checkout.
    """
    for command, slug in zip(setup, unique_slugs(setup), strict=True):
        spec = replace(template, command=command, slug=slug, timeout_s=SETUP_TIMEOUT_S)

        def log_name(inspection: Inspection, runs: int, slug: str = slug) -> str:
            return setup_log_name(inspection, slug, checkout.number, runs)

        check = CommandCheck(spec, checkout.sandbox, folder, checkout.path, env, log_name)
        finding = check.run(inspection, watch)
        if not finding.passed:
            return finding
    return None


def unused_checkout_number(setup: tuple[str, ...], folder: RunFiles, inspection: Inspection) -> int:
    """A number that no setup log has yet: an existing log belongs to another checkout."""
    number, names = 1, unique_slugs(setup)
    while any(_has_content(folder.turn_file(setup_log_name(inspection, slug, number))) for slug in names):
        number += 1
    return number


def _has_content(file: str) -> bool:
    return os.path.exists(file) and os.path.getsize(file) > 0


def setup_log_name(inspection: Inspection, slug: str, number: int, runs: int = 1) -> str:
    """The log name of a setup command. Each checkout, by `number`, has logs of its own."""
    steps = (("turn", inspection.turn), ("round", inspection.round), ("lay", number), ("run", runs))
    suffix = "".join(f"-{what}{number}" for what, number in steps if number > 1)
    return f"setup_{inspection.iteration:03d}_{slug}{suffix}"


def _with_checkout_note(finding: Finding) -> Finding:
    """A failure gets a note that it happened in a clean checkout."""
    if finding.passed or finding.errored or finding.why == STOPPED:
        return finding
    how = f"exit code {finding.code}" if finding.why == "exit" else finding.why
    return replace(finding, why=f"{how} {CLEAN_CHECKOUT_NOTE}")


def _with_project_log(root: str, checkout: str, finding: Finding) -> Finding:
    """The path of the log relative to the project, not to the checkout."""
    if not finding.log or os.path.isabs(finding.log):
        return finding
    return replace(finding, log=os.path.relpath(os.path.normpath(os.path.join(checkout, finding.log)), root))
