"""Verification of a proof: its checks run again on a clean checkout, and the result as lines and JSON."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Self

from ralphproof.agents.environment import check_environment
from ralphproof.base import interpreter
from ralphproof.base.errors import HarnessFailed, Refused
from ralphproof.base.files import remove_tree
from ralphproof.base.text import truncate, unique_slugs
from ralphproof.base.value import Json, Protocol, replace
from ralphproof.checks.command import CommandCheck, CommandCheckSpec
from ralphproof.display.phrases import format_count, format_duration
from ralphproof.engine.check import Finding, Inspection
from ralphproof.engine.outcome import published
from ralphproof.engine.sandbox import CONTINUE, Command, Sandbox
from ralphproof.engine.workspace import Change, Snapshot
from ralphproof.process.keeper_client import KeeperClient
from ralphproof.process.signals import RunClock
from ralphproof.process.tree import LINUX, child_pids, is_alive, kill_until_gone, start_time, with_descendants
from ralphproof.proof.schema import (
    DIFFERS,
    HOLDS,
    UNCHECKED,
    CheckRerun,
    VerificationResult,
    compare_finding,
    describe_exit,
    find_contradictions,
    parse_checks,
    parse_setup,
    parse_subject,
    verification_remarks,
    verification_verdict,
    why_uncheckable,
    withheld_records_note,
)
from ralphproof.proof.source import (
    WITHHELD,
    AllowedCommands,
    ProofCommit,
    ProofSource,
    find_proof_commit,
    read_allowed_commands,
)
from ralphproof.sandbox.planner import SandboxConfig
from ralphproof.sandbox.runner import DirectRunner, wrap_in_sandbox
from ralphproof.sandbox.selection import choose_backend
from ralphproof.store.landings import AttestedCheck
from ralphproof.store.run_folder import RunFolder
from ralphproof.views.published_json import tests_json
from ralphproof.workspace.checkouts import CheckoutFolder, SourceRepository, object_folders

Confirm = Callable[[tuple[str, ...]], bool]
Say = Callable[[str], None]


SETUP_TIMEOUT_S = 3600.0


class StopRequests(Protocol):
    """Requests to stop. A byte on `wake_fd`, where there is one, means: ask now."""

    @property
    def wake_fd(self) -> int | None: ...

    def stop_reason(self) -> str:
        """Why it should stop; empty without a request."""

    def stop_level(self) -> int:
        """As `Watch.tick`."""


class DisposableCheckout:
    """A temporary folder for checkouts. On exit everything in it is removed, and nothing runs in it.

    A signal ends what runs and raises KeyboardInterrupt; in a process with other work, or another thread than the main
    one, stop requests are asked instead. `commit` may be changed between two checks.
    """

    def __init__(
        self, root: str, commit: str, environ: Mapping[str, str], secrets: tuple[str, ...] = (),
        kind: str | None = None, wishes: StopRequests | None = None, within: str | None = None, keeps: bool = False,
    ) -> None:  # fmt: skip
        """`kind` is the kind of sandbox; None is none. The folder is created `within` another one.

        With `keeps`, what setup commands install is cached by the manifests it follows from, and copied into later
        checkouts.
        """
        self.commit = commit
        self._root, self._environ, self._secrets, self._kind = root, environ, secrets, kind
        self._wishes, self._within, self._keeps, self._asked = wishes, within, keeps, 0

    def __enter__(self) -> Self:
        self._present = self._wishes or _listen_for_signals()
        self._folder = os.path.realpath(tempfile.mkdtemp(prefix="ralph-verify-", dir=self._within))
        self._files = os.path.join(self._folder, "files")  # beside the tree: runners look upwards
        try:
            os.mkdir(self._files, 0o700)
            self._keeper = KeeperClient(self._secrets, wake_fd=self._present.wake_fd)
            self._keeper.options.stand_in = self._stand_in
        except BaseException:
            remove_tree(self._folder)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._keeper.close()
        finally:
            remove_tree(self._folder)

    def ask(self, check: AttestedCheck, setup: tuple[str, ...], on_command: Callable[[str], None]) -> Finding:
        """Run a check in a fresh checkout after the setup commands. A setup command that fails is the result."""
        checkout = CheckoutFolder(self._folder, self._root, self._environ, setup, cached=self._keeps)
        self._heed()
        state = checkout.create(self.commit)  # anew: files of an earlier one could change the result
        self._heed()
        tree = checkout.tree
        if not state.prepared:
            for one in setup:
                on_command(one)
                prepared = self._run(CommandCheckSpec(one, f"setup_{self._next()}", timeout_s=SETUP_TIMEOUT_S), tree)
                if not prepared.passed:
                    return prepared
            checkout.setup_done()
        rule, command = check.rule, check.command or ""
        on_command(command)
        slug = f"{unique_slugs((command,))[0]}_{self._next()}"
        spec = CommandCheckSpec(
            command, slug, check.name, timeout_s=rule.timeout_s, success_code=rule.success_code,
            contains=rule.contains, lacks=rule.lacks, folder=rule.folder,
        )  # fmt: skip
        return self._run(spec, tree)

    def _next(self) -> int:
        self._asked += 1
        return self._asked

    def _run(self, spec: CommandCheckSpec, tree: str) -> Finding:
        files = RunFolder(self._files, os.path.basename(self._folder), self._files)
        env = check_environment(self._environ)
        check = CommandCheck(spec, self._sandbox(tree, env), files, tree, env)
        nothing = Snapshot(None, None)
        finding = check.run(Inspection(0, 1, "", nothing, Change()), self)
        self._heed()
        return finding

    def _sandbox(self, tree: str, env: tuple[tuple[str, str], ...]) -> Sandbox:
        if self._kind is None:
            return DirectRunner(self._keeper)
        borrowed = object_folders(SourceRepository(self._root, self._environ).folders)
        config = SandboxConfig(tree, self._files, "", env, read_paths=borrowed)
        return wrap_in_sandbox(self._keeper, choose_backend(self._kind, self._environ, tree), config)

    def _stand_in(self, _: Command) -> tuple[tuple[str, ...], Mapping[str, str]]:
        """The program that cleans up if we die while a command runs."""
        arguments = self._folder, str(self._keeper.pid)
        return interpreter.module_command("ralphproof.proof.verification", *arguments), self._environ

    def _heed(self) -> None:
        if self._present.stop_reason():
            raise KeyboardInterrupt

    def output(self, chunk: bytes) -> None:
        """Not used: the log has it."""

    def events(self, events: list[object]) -> None:
        """Not used: no agent runs."""

    def tick(self) -> int:
        """Pass a stop request on."""
        return max(CONTINUE, self._present.stop_level())


def _listen_for_signals() -> RunClock:
    present = RunClock(grace_s=0.0)
    present.listen()
    return present


def end_abandoned(folder: str, keeper: int) -> None:
    """End what a keeper runs for a dead client, remove the folder, and end the keeper, which must be our parent.

    The keeper is stopped first: it would end us with its command, and while it exists every orphan is below it.
    """
    if os.getppid() != keeper:  # it is gone, and whoever has us now, init say, is nobody to end
        return
    if not LINUX:  # nobody knows there who is below it: it ends what it can itself
        os.kill(keeper, signal.SIGQUIT)
        return
    os.kill(keeper, signal.SIGSTOP)
    others = (os.getpid(), keeper)
    kill_until_gone(
        lambda: [
            pid for pid in with_descendants(child_pids(keeper)) if pid not in others and is_alive(pid, start_time(pid))
        ]
    )
    remove_tree(folder)
    os.kill(keeper, signal.SIGKILL)


def main() -> None:
    """The clean-up program; arguments: `FOLDER KEEPER`."""
    end_abandoned(sys.argv[1], int(sys.argv[2]))


NOT_RUN_REASONS = {"judge": "a model's word", "warns": "only a warning", "other": "no command that could be run"}
OTHER_SETTINGS = "the settings file of that commit"
UNKNOWN_COMMANDS = "these commands are not in the settings of that commit; look at them, and run them with --yes"


def verify_proof(source: ProofSource, confirm: Confirm, say: Say, sandbox: str | None) -> VerificationResult:
    """Run the checks of a proof again, where it is intact and its tree is here.

    `confirm` is asked about commands of a file that the settings of its commit do not name. `say` gets a line when a
    command starts and when a check ends. `sandbox` is the kind of sandbox that commands run in.
    """
    if source.why:
        return VerificationResult(UNCHECKED, (source.why,))
    if source.faults:
        return VerificationResult(DIFFERS, source.faults)
    try:
        if why := why_uncheckable(source.proof):
            return VerificationResult(UNCHECKED, (why,))
        checks, setup, subject = parse_checks(source.proof), parse_setup(source.proof), parse_subject(source.proof)
    except Refused as error:
        return VerificationResult(UNCHECKED, (str(error),))
    if contradictions := find_contradictions(source.proof, checks):
        return VerificationResult(DIFFERS, contradictions)
    commit = find_proof_commit(source.root, subject, source.proof["run"], os.environ)
    if isinstance(commit, VerificationResult):
        return commit
    try:
        result = _ProofVerifier(source, commit, checks, setup, confirm, say, sandbox).verify()
    except HarnessFailed as error:  # a full disk, or objects that this clone lacks: that says nothing about the work
        result = VerificationResult(UNCHECKED, (str(error),))
    notes = (*source.notes, *commit.notes, *verification_remarks(source.proof), *result.notes)
    return replace(result, commit=commit.commit, notes=notes)


class _ProofVerifier:
    def __init__(
        self, source: ProofSource, commit: ProofCommit, checks: tuple[AttestedCheck, ...], setup: tuple[str, ...],
        confirm: Confirm, say: Say, sandbox: str | None,
    ) -> None:  # fmt: skip
        self._source, self._commit, self._setup, self._sandbox = source, commit, setup, sandbox
        self._confirm, self._say = confirm, say
        self._allowed = read_allowed_commands(source.root, commit.settings, os.environ)
        self._checks = tuple(map(self._allowed.with_command, checks))

    def verify(self) -> VerificationResult:
        proof, ours = self._source.proof, self._source.ours
        other_settings = proof.get("settingsFileDigest") != self._allowed.settings
        if other_settings and not self._commit.notes:
            return VerificationResult(DIFFERS, (f"{OTHER_SETTINGS}: it is not the one that the proof was made with",))
        missing = _missing_checks(self._allowed, self._checks)
        notes = (*missing, *([f"{OTHER_SETTINGS} is another one than the run's"] if other_settings else []))
        unknown = () if ours else _unknown_commands(self._allowed, self._checks, self._setup)
        if unknown and not self._confirm(unknown):
            reruns = tuple(map(CheckRerun, self._checks))
            return VerificationResult(UNCHECKED, (UNKNOWN_COMMANDS, *unknown), reruns, notes)
        unknowable = "" if ours else withheld_records_note(proof) or "; ".join(missing)
        return replace(verification_verdict(self._rerun(), unknowable), notes=notes)

    def _rerun(self) -> tuple[CheckRerun, ...]:
        """Every required command once more; one that two checks have in common runs once."""
        if not any(check.runs_again for check in self._checks):
            return tuple(CheckRerun(check, why=_not_run_reason(check)) for check in self._checks)
        reruns: list[CheckRerun] = []
        findings: dict[object, Finding] = {}
        source = self._source
        with DisposableCheckout(
            source.root, self._commit.commit, os.environ, source.secrets, self._sandbox
        ) as checkout:
            for check in self._checks:
                if not check.runs_again:
                    reruns.append(CheckRerun(check, why=_not_run_reason(check)))
                    continue
                key = (check.command, replace(check.rule, clean=False))
                if key not in findings:
                    findings[key] = checkout.ask(check, self._setup, lambda command: self._say(f"runs {command}"))
                    self._say(_end_line(check, findings[key]))
                reruns.append(compare_finding(check, findings[key]))
        return tuple(reruns)


def _end_line(check: AttestedCheck, finding: Finding) -> str:
    how = "passed" if finding.passed else f"failed with {describe_exit(finding.code, finding.why)}"
    return f"{check.name} {how} after {format_duration(finding.seconds)}"


def _unknown_commands(
    allowed: AllowedCommands, checks: tuple[AttestedCheck, ...], setup: tuple[str, ...]
) -> tuple[str, ...]:
    """Every command that the settings do not have, each with what is special in its rule."""
    setup_lines = [f"setup: {command}" for command in setup if command not in allowed.setup]
    unknown = [check for check in checks if check.runs_again and not allowed.covers(check)]
    return tuple(dict.fromkeys([*setup_lines, *map(_check_with_rule, unknown)]))


def _check_with_rule(check: AttestedCheck) -> str:
    rule = check.rule
    folder = f" (in {rule.folder})" if rule.folder != "." else ""
    code = f" (passes with exit code {rule.success_code})" if rule.success_code else ""
    return f"{check.command}{folder}{code}"


def _missing_checks(allowed: AllowedCommands, checks: tuple[AttestedCheck, ...]) -> tuple[str, ...]:
    """Checks of the settings that the proof does not have: flags may have asked for others."""
    known = {check.command for check in checks if check.required}
    missing = dict.fromkeys(command for command in allowed.required if command not in known)
    return tuple(f"a check of that commit's settings is no part of the proof: {command}" for command in missing)


def _not_run_reason(check: AttestedCheck) -> str:
    if check.judged:
        return NOT_RUN_REASONS["judge"]
    if not check.required:
        return NOT_RUN_REASONS["warns"]
    return WITHHELD if check.command is None else NOT_RUN_REASONS["other"]


# The result for people and for programs.


VERDICT_TEXTS = {HOLDS: "HOLDS", DIFFERS: "DOES NOT HOLD", UNCHECKED: "CANNOT BE CHECKED"}
MAX_OUTPUT_CHARS, MAX_OUTPUT_LINES, MAX_LISTED = 5000, 20, 20


def verification_lines(source: ProofSource, result: VerificationResult) -> Iterator[str]:
    """The result for people, the verdict last."""
    for rerun in result.reruns:
        yield _check_line(rerun)
        if rerun.finding is not None and not rerun.finding.passed:
            yield from (f"    | {line}" for line in rerun.finding.output.splitlines()[-MAX_OUTPUT_LINES:])
    yield from (f"note: {line}" for line in result.notes[:MAX_LISTED])
    if not source.faults:  # an altered proof is not quoted
        yield from (f"concern: {line}" for line in source.concerns[:MAX_LISTED])
        yield from (f"caveat: {line}" for line in source.caveats[:MAX_LISTED])
    yield from (f"  {line}" for line in result.reasons)
    yield _verdict_line(source, result)


def _verdict_line(source: ProofSource, result: VerificationResult) -> str:
    run = f" of run {source.proof['run']}" if source.proof.get("run") else ""
    if result.verdict != HOLDS:
        commit = f", commit {result.commit}" if result.commit else ""
        return f"{VERDICT_TEXTS[result.verdict]}: the proof{run}{commit}"
    count = sum(rerun.finding is not None for rerun in result.reruns)
    passed = f"{format_count(count, 'check')} passed again on a clean checkout of {result.commit}"
    return f"{VERDICT_TEXTS[HOLDS]}: the proof{run}; {passed}"


def _check_line(rerun: CheckRerun) -> str:
    check, finding = rerun.check, rerun.finding
    if finding is None:
        return f"not run   {check.name}: {rerun.why or 'nothing was run'}"
    recorded = f"{describe_exit(check.code, check.why)}{_test_count_text(check.tests_passed)}"
    tests = finding.tests.passed if finding.tests else None
    now = f"{describe_exit(finding.code, finding.why)}{_test_count_text(tests)}"
    other = "; the output is another one" if finding.passed and finding.digest != check.output else ""
    mark = "holds    " if rerun.holds else "DIFFERS  "
    return f"{mark} {check.name}: {now} after {format_duration(finding.seconds)}; on record: {recorded}{other}"


def _test_count_text(tests: int | None) -> str:
    return "" if tests is None else f", {format_count(tests, 'test')} passed"


def verification_json(source: ProofSource, result: VerificationResult) -> dict[str, Json]:
    """The result for programs."""
    subject = source.proof.get("subject") or {}
    not_run = [rerun for rerun in result.reruns if rerun.finding is None]
    return {
        "result": result.verdict,
        "run": source.proof.get("run"),
        "commit": result.commit or subject.get("commit"),
        "tree": subject.get("tree"),
        "reasons": list(result.reasons),
        "reruns": [_rerun_json(rerun, rerun.finding) for rerun in result.reruns if rerun.finding],
        "notRun": [
            published("skippedCheck", {"name": rerun.check.name, "reason": rerun.why or "nothing was run"})
            for rerun in not_run
        ],
        "notes": list(result.notes),
        "concerns": [*source.concerns],
        "caveats": [*source.caveats],
    }


def _rerun_json(rerun: CheckRerun, finding: Finding) -> dict[str, Json]:
    check = rerun.check
    return published("rerun", {
        "name": check.name, "command": check.command, "holds": rerun.holds is True, "recordedExitCode": check.code,
        "recordedTests": check.tests, "exitCode": finding.code, "exitReason": finding.why,
        "durationSeconds": round(finding.seconds, 3), "tests": tests_json(finding.tests),
        "sameOutput": finding.digest == check.output,
        "output": "" if finding.passed else truncate(finding.output, MAX_OUTPUT_CHARS),
    })  # fmt: skip
