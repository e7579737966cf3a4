"""A shell command as a check: it passes where it exits with 0."""

from __future__ import annotations

import hashlib
import os
import stat

from ralphproof.check import CUT, Finding, Inspection, Tests, clip, fingerprint
from ralphproof.ledger import Folder
from ralphproof.sandbox import STOP, Command, Exit, Sandbox, Watch
from ralphproof.value import value

READ_BYTES = 1024 * 1024  # of the log's beginning, and as much of its end, are looked at
LINE_BYTES = 4096
INTERRUPTED, STOPPED = "interrupted", "stopped"
CUT_OFF = 5  # so often a check is begun again whose keeper died


@value
class Question:
    """A check as the settings give it. `slug` is its part of the log's name."""

    command: str
    slug: str
    name: str = ""
    action: str = "APPEND"
    hint: str = ""
    timeout_s: float = 600.0
    retries: int = 0
    clip_chars: int = 5000
    clip_mode: str = "ends"


class CommandCheck:
    """Runs its command in the project with the environment of the run's start; the whole output is in the log."""

    def __init__(
        self, question: Question, sandbox: Sandbox, folder: Folder, root: str, env: tuple[tuple[str, str], ...]
    ) -> None:
        self.name = question.name or question.command
        self._question, self._sandbox, self._folder, self._root, self._env = question, sandbox, folder, root, env

    def ask(self, inspection: Inspection, watch: Watch) -> Finding:
        """Run it; where it fails, run it again as often as `retries` says.

        One that was cut off by its keeper's death said nothing of the work, and is run again beside those.
        """
        runs, cut_off = 1, 0
        finding = self._run(inspection, watch, runs)
        while not finding.passed:
            if finding.why == STOPPED and watch.tick() >= STOP:
                break
            cut_off += finding.why in (INTERRUPTED, STOPPED)  # by a death, or by somebody who has left since
            if runs > self._question.retries + cut_off or cut_off > CUT_OFF:
                break
            runs += 1
            finding = self._run(inspection, watch, runs)
        return finding

    def _run(self, inspection: Inspection, watch: Watch, runs: int) -> Finding:
        question = self._question
        steps = (("turn", inspection.turn), ("round", inspection.round), ("run", runs))
        # No slug holds a dash: a second run can never be taken for another check whose slug has a number.
        again = "".join(f"-{what}{n}" for what, n in steps if n > 1)
        name = f"guardrail_{inspection.iteration:03d}_{question.slug}{again}"
        log, shown = self._folder.base(name) + ".log", self._folder.shown(name) + ".log"
        end = self._sandbox.run(
            Command(
                shell(question.command), self._root, self._env, out=log, turn_file=self._folder.turn_file(name),
                mark=f"{self._folder.run}/{name}", timeout_s=question.timeout_s,
            ),
            watch,
        )  # fmt: skip
        self._folder.publish(name)
        output, digest = _read(log)
        # A project may well lie in a folder of temporary ones; its own names are to be told apart even so.
        named = output.replace(f"{self._root}/", "") if self._root != "/" else output
        said_all = end.why == "exit" and end.signal is None and not end.log_error
        tests = _tests(named) if said_all else None
        passed = end.why == "exit" and end.code == 0 and not end.survivors
        return Finding(
            self.name, passed, command=question.command, code=end.code,
            why=_why(end, question.timeout_s), seconds=end.seconds, log=os.path.relpath(shown, self._root),
            output=clip(output, question.clip_chars, question.clip_mode), digest=digest,
            fingerprint="" if passed else fingerprint(self.name, end.code, named, tests), action=question.action,
            hint=question.hint, errored=end.why in ("unstartable", INTERRUPTED), runs=runs, tests=tests,
        )  # fmt: skip


def shell(command: str) -> tuple[str, ...]:
    """The argument list that gives a command to the system's shell."""
    return ("cmd", "/c", command) if os.name == "nt" else ("/bin/sh", "-c", command)


def _why(end: Exit, timeout_s: float) -> str:
    """How the command ended, in the words that follow "failed with"."""
    if end.survivors:
        return f"processes that could not be ended: {', '.join(map(str, end.survivors))}"
    match end.why:
        case "exit":
            return "exit" if end.signal is None else f"signal {end.signal}"
        case "timeout":
            return f"a timeout after {timeout_s:g} s"
        case "stopped" | "killed":
            return STOPPED
        case _:
            return end.error or end.why


def _tests(output: str) -> Tests | None:
    """What the output says of single tests. Who reads it is loaded when there is something to read."""
    from ralphproof.checks.runners import tests_in

    return tests_in(output)


def _read(log: str) -> tuple[str, str]:
    """The log's text, its middle left out where it is long, and the digest of all of it."""
    digest = hashlib.sha256()
    head, tail, size = b"", b"", 0
    try:
        file = os.open(log, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return "", ""  # a command that could not be started has no log
    try:
        while stat.S_ISREG(os.fstat(file).st_mode) and (chunk := os.read(file, READ_BYTES)):
            digest.update(chunk)
            size += len(chunk)
            head, tail = (head, (tail + chunk)[-READ_BYTES:]) if head else (chunk, b"")
    finally:
        os.close(file)
    kept = head + tail if size == len(head) + len(tail) else _cut(head, tail)
    return kept.decode("utf-8", "replace"), digest.hexdigest()


def _cut(head: bytes, tail: bytes) -> bytes:
    """Both ends of a long text, and between them a mark in a line of its own.

    They end and begin with whole lines, if lines are short: where a time above has one more digit, no line is torn
    elsewhere than the last time.
    """
    end, begin = head.rfind(b"\n", -LINE_BYTES) + 1, tail.find(b"\n", 0, LINE_BYTES) + 1
    return b"%s\n%s\n%s" % (head[: end - 1] if end else head, CUT.encode(), tail[begin:])
