"""A shell command as a check: exit code, and texts that the whole output must contain or lack."""

from __future__ import annotations

import _thread
import hashlib
import os
import re
import stat
from collections.abc import Callable

from ralphproof.base.redaction import PRIVATE_LOG_SUFFIX
from ralphproof.base.text import TRUNCATION_MARK, quote_excerpt, strip_escapes, truncate
from ralphproof.base.value import replace, value
from ralphproof.checks.junit import ExpectedReport, find_expected_report
from ralphproof.checks.runner_output import read_runner_output
from ralphproof.engine.check import Finding, Inspection, PassRule, SuiteResult, failure_fingerprint
from ralphproof.engine.environment import RunFiles
from ralphproof.engine.sandbox import STOP, Command, CommandWatcher, Exit, Sandbox

MAX_READ_BYTES = 1024 * 1024  # read at the beginning of the log, and at its end
MAX_LINE_BYTES = 4096
INTERRUPTED, STOPPED = "interrupted", "stopped"
MAX_INTERRUPTIONS = 5  # after this many deaths of its keeper a check is not started again
CANNOT_RUN = {126: "exit code 126, not executable", 127: "exit code 127, not found"}  # as shells report it
LAST_LINES, MAX_QUOTED_CHARS = 12, 200
# Messages of programs that did not find what they should start, by exit code. make passes no exit code on: it always
# exits with 2.
_MODULE_MISSING = r"(?:\S*/)?python[\d.]*: (?:No module named .+|Error while finding module .+)"
_FILE_MISSING = r"requireStack: \[\]"  # node, if the file to run is missing
_RUNNER_MISSING = {
    1: re.compile(rf"{_MODULE_MISSING}|{_FILE_MISSING}|npm (?:ERR!|error) Missing script: .+"),
    2: re.compile(
        rf"{_MODULE_MISSING}|{_FILE_MISSING}"
        r"|(?:\S*/)?python[\d.]*: can't open file .+\[Errno 2\].*"
        r"|(?:\S*/)?[a-z]*sh: (?:\d+: )?(?:cannot|can't) open .+: No such file(?: or directory)?"
        r"|g?make(?:\[\d+\])?: \*\*\* \[.+\] Error 12[67]"
        r"|g?make: \*\*\* No rule to make target [`'][^']+'\.  Stop\."
        r"|g?make: \*\*\* No targets specified and no makefile found\.  Stop\."
        r"|error: Failed to spawn: `.+`"  # uv run
    ),
    254: re.compile(r"npm (?:ERR!|error) enoent Could not read package\.json: .+"),
}
_NOT_FOUND = re.compile(r"(?i)not found|no such file|no module named|cannot find module|permission denied")
_DROPPED = rf"(?m)^{re.escape(TRUNCATION_MARK)} \d+ bytes dropped$"  # a line that the keeper adds to the log
_PUBLISH_LOCK = _thread.allocate_lock()  # checks run in several threads, and a run has one folder


@value
class CommandCheckSpec:
    """A check from the settings. `slug` is its part of the log's name.

    It passes with `success_code` if its whole output, as printed or without escape codes, contains the text `contains`
    and does not contain the text `lacks`. An empty text is ignored. It runs in `folder`, relative to the project. `env`
    is added to the environment of all checks.
    """

    command: str
    slug: str
    name: str = ""
    action: str = "APPEND"
    hint: str = ""
    timeout_s: float = 600.0
    retries: int = 0
    clip_chars: int = 5000
    clip_mode: str = "ends"
    success_code: int = 0
    contains: str = ""
    lacks: str = ""
    folder: str = "."
    required: bool = True
    hidden: bool = False
    env: tuple[tuple[str, str], ...] = ()


class CommandCheck:
    """Runs its command in the project with the environment of the run's start; the whole output is in the log.

    Checks with the same `key` are equal.
    """

    def __init__(
        self,
        spec: CommandCheckSpec,
        sandbox: Sandbox,
        folder: RunFiles,
        root: str,
        env: tuple[tuple[str, str], ...],
        log_name: Callable[[Inspection, int], str] | None = None,
    ) -> None:
        """`log_name` makes the name of the log from the inspection and the number of the run, if not the usual one."""
        self.name = spec.name or spec.command
        self._log_name = log_name or self._usual_log_name
        self.required, self.key = spec.required, _check_key(spec)
        self._spec, self._sandbox, self._folder, self._root, self._env = spec, sandbox, folder, root, env

    def run(self, inspection: Inspection, watch: CommandWatcher) -> Finding:
        """Run the command; if it fails, run it again up to `retries` times.

        A run that was interrupted by its keeper's death says nothing about the work, and is repeated in addition.
        """
        folder, problem = self._work_folder()
        if problem:
            return self._folder_finding(problem)
        runs, interruptions, failures = 1, 0, 0
        finding = self._run_once(inspection, watch, folder, runs)
        while not finding.passed:
            if finding.why == STOPPED and watch.tick() >= STOP:
                break
            interrupted = finding.why in (INTERRUPTED, STOPPED)  # by its keeper's death, or by a process that is gone
            interruptions += interrupted
            if runs > self._spec.retries + interruptions or interruptions > MAX_INTERRUPTIONS:
                break
            failures += not interrupted
            runs += 1
            finding = self._run_once(inspection, watch, folder, runs)
        return replace(finding, flaky=failures) if finding.passed and failures else finding

    def _work_folder(self) -> tuple[str, str]:
        """The folder to run in, with links resolved; else why there is none. An agent may have moved the folder."""
        folder, root = self._spec.folder, os.path.realpath(self._root)
        if folder in ("", "."):
            return self._root, ""
        try:
            path = os.path.realpath(os.path.join(root, folder))
        except ValueError:  # a NUL in the name
            return "", f"no folder {quote_excerpt(folder)} in the project"
        if os.path.commonpath((root, path)) != root:
            return "", f"a folder outside of the project: {quote_excerpt(folder)} leads to {quote_excerpt(path)}"
        return (path, "") if os.path.isdir(path) else ("", f"no folder {quote_excerpt(folder)} in the project")

    def _folder_finding(self, problem: str) -> Finding:
        spec = self._spec
        return Finding(
            self.name, False, command=spec.command, why=problem,
            fingerprint=failure_fingerprint(self.name, None, problem), action=spec.action, hint=spec.hint,
            required=spec.required, runs=0, key=self.key, hidden=spec.hidden, rule=_pass_rule(spec),
            unrunnable=problem,
        )  # fmt: skip

    def _run_once(self, inspection: Inspection, watch: CommandWatcher, folder: str, runs: int) -> Finding:
        spec = self._spec
        name = self._log_name(inspection, runs)
        log, published_log = self._folder.log_base(name) + ".log", self._folder.published_path(name) + ".log"
        report = _expected_report(spec.command, folder, self._root)
        end = self._sandbox.run(
            Command(
                shell_argv(spec.command), folder, self._environment(folder), out=log,
                turn_file=self._folder.turn_file(name), mark=f"{self._folder.run}/{name}", timeout_s=spec.timeout_s,
            ),
            watch,
        )  # fmt: skip
        if not spec.hidden:
            with _PUBLISH_LOCK:
                self._folder.publish(name)
        search = _LogSearch(spec.contains, spec.lacks, cut=end.dropped_bytes > 0)
        output, digest = _read_log(log, search)
        passed, why = _evaluate(spec, end, search, read=bool(digest))
        # Fingerprints ignore temporary paths, but the project itself may lie in a temporary folder: its names must
        # differ.
        relative = output.replace(f"{self._root}/", "") if self._root != "/" else output
        complete = end.why == "exit" and end.signal is None and not end.log_error
        tests, mute = _read_tests(relative, report) if complete else (None, False)
        return Finding(
            self.name, passed, command=spec.command, code=end.code, why=why, seconds=end.seconds,
            log=log if spec.hidden else os.path.relpath(published_log, self._root),
            output=truncate(output, spec.clip_chars, spec.clip_mode),
            digest=digest, fingerprint="" if passed else failure_fingerprint(self.name, end.code, relative, tests),
            action=spec.action, hint=spec.hint, required=spec.required,
            errored=end.why in ("unstartable", INTERRUPTED), runs=runs, tests=tests, key=self.key,
            hidden=spec.hidden, rule=_pass_rule(spec), mute=passed and mute,
            unrunnable="" if passed else _unrunnable_reason(end, output, tests),
        )  # fmt: skip

    def _usual_log_name(self, inspection: Inspection, runs: int) -> str:
        steps = (("turn", inspection.turn), ("round", inspection.round), ("run", runs))
        # No slug contains a dash, so a second run cannot be mistaken for another check whose slug has a number.
        numbers = "".join(f"-{what}{number}" for what, number in steps if number > 1)
        suffix = PRIVATE_LOG_SUFFIX if self._spec.hidden else ""
        return f"guardrail_{inspection.iteration:03d}_{self._spec.slug}{numbers}{suffix}"

    def _environment(self, folder: str) -> tuple[tuple[str, str], ...]:
        """The environment. `PWD` must name the folder in which the command runs."""
        env = dict(self._env) | dict(self._spec.env)
        return tuple((env | ({"PWD": folder} if "PWD" in env else {})).items())


def shell_argv(command: str) -> tuple[str, ...]:
    """The arguments that run a command in the system's shell."""
    return ("cmd", "/c", command) if os.name == "nt" else ("/bin/sh", "-c", command)


def _pass_rule(spec: CommandCheckSpec) -> PassRule:
    return PassRule(os.path.normpath(spec.folder), spec.success_code, spec.contains, spec.lacks, spec.timeout_s)


def _check_key(spec: CommandCheckSpec) -> str:
    """Equal for two checks that always have the same result, also in a resumed run."""
    settings = (
        spec.command, os.path.normpath(spec.folder), spec.success_code, spec.contains, spec.lacks,
        float(spec.timeout_s), sorted(dict(spec.env).items()), spec.retries, spec.required,
        spec.hidden,
    )  # fmt: skip
    return hashlib.sha256(repr(settings).encode("utf-8", "surrogatepass")).hexdigest()[:24]


def _evaluate(spec: CommandCheckSpec, end: Exit, search: _LogSearch, read: bool) -> tuple[bool, str]:
    """Whether it passed; if not, why, as text that follows "failed with"."""
    if end.survivors or end.why != "exit" or end.signal is not None:
        return False, _interruption(end, spec.timeout_s)
    if end.code != spec.success_code:
        return False, f"exit code {end.code}, expected {spec.success_code}" if spec.success_code else "exit"
    dropped = f"{end.dropped_bytes} bytes of it were dropped" if end.dropped_bytes else ""
    missing = "the disk did not take all of it" if end.log_error or not read else dropped
    if spec.contains and spec.contains not in search.found:
        return False, f"output that does not contain {quote_excerpt(spec.contains)}" + (missing and f" ({missing})")
    if spec.lacks in search.found:
        return False, f"output that contains {quote_excerpt(spec.lacks)}"
    if spec.lacks and missing:
        return False, f"output that may contain {quote_excerpt(spec.lacks)}: {missing}"
    return True, "exit"


def _interruption(end: Exit, timeout_s: float) -> str:
    """What ended the command, or which processes remained, in the same form."""
    if end.survivors:
        return f"processes that could not be ended: {', '.join(map(str, end.survivors))}"
    match end.why:
        case "exit":
            return f"signal {end.signal}"
        case "timeout":
            return f"a timeout after {timeout_s:g} s"
        case "stopped" | "killed":
            return STOPPED
        case _:
            return end.error or end.why


def _unrunnable_reason(end: Exit, output: str, tests: SuiteResult | None) -> str:
    """Why a failed command could not be run at all; empty where it ran, or where that is uncertain."""
    if end.why != "exit" or not end.code:
        return ""
    last = [line for line in strip_escapes(output).splitlines()[-LAST_LINES:] if line.strip()]
    pattern = _RUNNER_MISSING.get(end.code)
    missing = [line for line in last if pattern and pattern.fullmatch(line.strip())]
    shown = next((line for line in reversed(last) if _NOT_FOUND.search(line)), (missing or last or [""])[-1])
    if end.code in CANNOT_RUN:
        return ": ".join(filter(None, (CANNOT_RUN[end.code], shown.strip()[:MAX_QUOTED_CHARS])))
    return (
        shown.strip()[:MAX_QUOTED_CHARS] if missing and tests is None else ""
    )  # with test results, the runner was run


def _expected_report(command: str, folder: str, root: str) -> ExpectedReport | None:
    """The report that the command writes."""
    if "junit" not in command.lower():
        return None
    return find_expected_report(command, folder, root)


def _read_tests(output: str, report: ExpectedReport | None) -> tuple[SuiteResult | None, bool]:
    """Test results from output and report, and whether no test runner was recognized.

    The readers are imported only when there is output to read.
    """
    tests, mute = read_runner_output(output)
    tests = tests if report is None else report.merge_into(tests)
    return tests, mute and tests is None


class _LogSearch:
    """Searches a log of any length in blocks of whole lines, and keeps no more than one block.

    `cut` says that the log has a line about dropped bytes, which is not output of the command.
    """

    def __init__(self, *texts: str, cut: bool) -> None:
        self.found: set[str] = set()
        # One character for each byte: no block can end within one.
        self._encoded = {text: text.encode("utf-8", "surrogatepass").decode("latin-1") for text in texts if text}
        self._overlap = max(map(len, self._encoded.values()), default=1) - 1
        self._cut, self._partial_line, self._before = cut, "", ("", "")

    def feed(self, data: bytes) -> None:
        """Search more of the log; empty data ends it."""
        if not self._encoded:
            return
        self._partial_line += data.decode("latin-1")
        end = self._partial_line.rfind("\n") + 1
        if not data or (not end and len(self._partial_line) >= MAX_READ_BYTES):
            end = len(self._partial_line)
        self._search_block(self._partial_line[:end])
        self._partial_line = self._partial_line[end:]

    def _search_block(self, block: str) -> None:
        block = re.sub(_DROPPED, "\0", block) if self._cut and TRUNCATION_MARK in block else block
        printed, read = self._before[0] + block, self._before[1] + strip_escapes(block)
        self.found |= {text for text, encoded in self._encoded.items() if encoded in printed or encoded in read}
        self._before = printed[max(0, len(printed) - self._overlap) :], read[max(0, len(read) - self._overlap) :]


def _read_log(log: str, search: _LogSearch) -> tuple[str, str]:
    """The text of the log, without the middle of a long one, and the digest of the whole, which is searched."""
    digest = hashlib.sha256()
    head, tail, size = b"", b"", 0
    try:
        file = os.open(log, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return "", ""  # a command that could not be started has no log
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            return "", ""
        while chunk := os.read(file, MAX_READ_BYTES):
            digest.update(chunk)
            search.feed(chunk)
            size += len(chunk)
            head, tail = (head, (tail + chunk)[-MAX_READ_BYTES:]) if head else (chunk, b"")
    finally:
        os.close(file)
    search.feed(b"")
    content = head + tail if size == len(head) + len(tail) else _join_ends(head, tail)
    return content.decode("utf-8", "replace"), digest.hexdigest()


def _join_ends(head: bytes, tail: bytes) -> bytes:
    """Both ends of a long text, with a mark on a line of its own between them.

    They end and begin at line breaks if lines are short: a longer duration further up must not move the cut.
    """
    end, begin = head.rfind(b"\n", -MAX_LINE_BYTES) + 1, tail.find(b"\n", 0, MAX_LINE_BYTES) + 1
    return b"%s\n%s\n%s" % (head[: end - 1] if end else head, TRUNCATION_MARK.encode(), tail[begin:])
