"""Checks: the protocol, findings and reports, and pins on the files that determine check results."""

from __future__ import annotations

import re

from ralphproof.base.text import strip_escapes
from ralphproof.base.value import Protocol, value
from ralphproof.engine.agent import Event, Spent
from ralphproof.engine.claim import Claim
from ralphproof.engine.workspace import Change, Snapshot

# Only checks that the harness runs itself count, after the agent's processes have ended.


UNREADABLE_ANSWER = "no answer in the form that was asked for"  # why a judge's answer does not count


@value
class SuiteResult:
    """Results of single tests read from a check's output: names of the failed ones, and counts of passed and failed.

    A number that the output does not state is None. A test that could not be loaded counts as failed. `names` are those
    of all tests, run or skipped, where the output or a report file lists all of them and they are not too many.
    """

    runner: str
    failing: tuple[str, ...]
    failed: int
    passed: int | None = None
    skipped: int | None = None
    xfailed: int | None = None
    names: tuple[str, ...] = ()

    @property
    def ran(self) -> int | None:
        """The number of tests with a result that counts: not those skipped or expected to fail."""
        return None if self.passed is None else self.passed + self.failed


@value
class PassRule:
    """The rule by which a command passes, so that the check can be repeated by anyone. `folder` is where it runs,
    relative to the project's root. With `clean`, it ran in a fresh checkout of what would be committed.
    """

    folder: str = "."
    success_code: int = 0
    contains: str = ""
    lacks: str = ""
    timeout_s: float = 600.0
    clean: bool = False


@value
class Finding:
    """Result of one check. `action` says how a failure enters the next prompt: APPEND, PREPEND or REPLACE.

    `errored` means that the check itself broke: it did not pass, and says nothing about the work. `tests` is None where
    single tests cannot be read from the output: then only its text distinguishes failures. `judged` says that a model
    gave the result, `spent` what that cost. Two checks with the same `key` give the same result for the same tree. A
    `hidden` check is held out: agents are not told of it. `flaky` counts the runs that failed before one passed.
    `mute`: it passed without output of any test runner. `unrunnable` says why a command could not be run at all: then
    it shows nothing about the work.
    """

    check: str
    passed: bool
    command: str = ""
    code: int | None = None
    why: str = "exit"
    seconds: float = 0.0
    log: str = ""
    output: str = ""
    digest: str = ""
    fingerprint: str = ""
    action: str = "APPEND"
    hint: str = ""
    required: bool = True
    errored: bool = False
    runs: int = 1
    tests: SuiteResult | None = None
    judged: bool = False
    spent: Spent | None = None
    key: str = ""
    hidden: bool = False
    flaky: int = 0
    rule: PassRule | None = None  # a command's
    mute: bool = False
    unrunnable: str = ""

    def same_as(self, other: Finding) -> bool:
        """Whether both failed in the same way."""
        return not self.passed and not other.passed and self.fingerprint == other.fingerprint


@value
class CheckReport:
    """All findings of one iteration."""

    findings: tuple[Finding, ...] = ()

    def with_finding(self, finding: Finding) -> CheckReport:
        """The report with one more finding."""
        return CheckReport((*self.findings, finding))

    def find(self, check: str) -> Finding | None:
        """The finding of one check."""
        return next((finding for finding in self.findings if finding.check == check), None)

    @property
    def passed(self) -> bool:
        """No required check failed; also true without any check."""
        return all(finding.passed for finding in self.findings if finding.required)

    @property
    def verified(self) -> bool:
        """At least one required check was run by a machine, and all required checks passed."""
        return self.passed and any(finding.required and not finding.judged for finding in self.findings)

    @property
    def judged(self) -> bool:
        """All required checks passed, at least one of them judged by a model."""
        return self.passed and any(finding.required for finding in self.findings)

    @property
    def failed(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.required and not finding.passed)

    @property
    def visible(self) -> CheckReport:
        """The part that an agent may be told."""
        return CheckReport(tuple(finding for finding in self.findings if not finding.hidden))

    @property
    def faults(self) -> tuple[Finding, ...]:
        """Failures of the work itself: a judge that could not answer is not one."""
        return tuple(finding for finding in self.failed if not (finding.judged and finding.errored))

    @property
    def fingerprint(self) -> str:
        """Equal for two reports that fail in the same way; empty where nothing failed."""
        return "|".join(sorted(finding.fingerprint or finding.check for finding in self.failed))


@value
class Inspection:
    """Input of a check: one iteration's saved work. `start` is the tree that the task started on."""

    iteration: int
    turn: int
    message: str
    snapshot: Snapshot
    change: Change
    round: int = 1  # how often the checks were started on this turn's work
    claim: Claim | None = None
    start: Snapshot = Snapshot(None, None)
    max_micro_usd: int | None = None  # the most that a judge may spend


class CheckWatcher(Protocol):
    """Receives a command's output or a model's events while a check runs. Called from one thread."""

    def output(self, chunk: bytes) -> None:
        """Handle further output of a command; it is already in the log."""

    def events(self, events: list[Event]) -> None:
        """Handle further events of a model."""

    def tick(self) -> int:
        """As `Watch.tick`."""


class Check(Protocol):
    """One kind of check. One with a `key` may reuse the finding of another with the same key on the same tree."""

    name: str

    def run(self, inspection: Inspection, watch: CheckWatcher) -> Finding:
        """The finding; a check that cannot be run is a failed finding, never an exception."""


@value
class AlteredCheckInput:
    """A file that determines check results, or a test, that differs from when the run began.

    `what` names the part of the file and what happened to it, worded to follow the path. If it `stops`, the run ends.
    If `allowed` by the user, it is only reported.
    """

    path: str
    what: str
    stops: bool = False
    allowed: bool = False

    @property
    def message(self) -> str:
        """The fact in a few words."""
        return f"{self.path}: {self.what}{', as --may-change allows' if self.allowed else ''}"


class CheckPins(Protocol):
    """Remembers the files that determine a run's check results as of its beginning, across processes."""

    def begin(self) -> None:
        """Store them durably, out of the agent's reach. A second call keeps what is stored."""

    def accept_user_changes(self, paths: tuple[str, ...]) -> None:
        """Accept the present content of these paths, which the user changed."""

    def find_altered(self, began: Snapshot, now: Snapshot, user_paths: frozenset[str]) -> tuple[AlteredCheckInput, ...]:
        """The differences from the tree that the run began on. `user_paths` were changed by the user."""


class NoCheckPins:
    """Nothing is pinned."""

    def begin(self) -> None:
        """Do nothing."""

    def accept_user_changes(self, paths: tuple[str, ...]) -> None:
        """Do nothing."""

    def find_altered(self, began: Snapshot, now: Snapshot, user_paths: frozenset[str]) -> tuple[AlteredCheckInput, ...]:
        return ()


# Fingerprints by which repeated failures are recognized.


_CLOCK = r"\d{1,2}:\d\d:\d\d(?:[.,]\d+)?"
_ZONE = r"(?: ?(?:Z|UTC|GMT|[+-]\d\d:?\d\d)\b)*"
_DAY = "(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)"
_MONTH = "(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
_UNIT = "(?:[nuµμm]s|s|secs?|seconds?|mins?|minutes?|h|hrs?|hours?)"
_NUMBER = r"\d(?<![\w.-]\d)(?<!\w\[\d)\d*"  # not part of a name such as test_waits[5s]
_SOURCE_SUFFIXES = (
    " asm bash c cc cfg cjs clj cmake conf cpp cs css cts cxx d dart ex exs erl f90 fs go gradle groovy h hh hpp hs"
    " html ini java jl js json jsx kt kts less lua m md mjs mk ml mli mm mts nim php pl pm proto ps1 py pyi pyx r rb"
    " rs rst s scala scss sh sql svelte swift tex tf toml ts tsx txt v vb vue xml yaml yml zig "
)


def _normal_line_number(found: re.Match[str]) -> str:
    """Replace a number behind a file name; behind anything else it may be a port, and stays."""
    before = found.string[max(0, found.start() - 120) : found.start()]
    file = before[max(before.rfind(end) for end in " \n\t'\"`([),;=<|/\\") + 1 :]
    if "." in file:
        is_source = f" {file.rpartition('.')[2].lower()} " in _SOURCE_SUFFIXES
    else:
        is_source = file.endswith(("Makefile", "Dockerfile", "Rakefile", "Jenkinsfile", "makefile"))
    has_folder = before.endswith(("/" + file, "\\" + file)) and not before.endswith("//" + file)
    has_column = ":" in found[0][1:] and not before[-1:].isdigit()
    return ":<line>" if is_source or has_folder or has_column or file.endswith(">") else found[0]


# (a text that must occur for the row to apply, a pattern, its replacement). The order matters: an earlier row replaces
# as a whole what a later one would replace in parts.
_REPLACEMENTS = (
    ("", r"(?i)\b(pid|tid|goroutine|seed|test\.shuffle)[ =:]+-?\d+\b", r"\1 <n>"),
    (":", rf"\b\d{{4}}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?{_ZONE}(?: m=[+-]\d+\.\d+)?", "<time>"),
    (":", rf"{_MONTH} [ \d]\d {_CLOCK}(?: [A-Z]{{3,4}})?(?: \d{{4}})?\b", "<time>"),
    (":", rf"\b\d\d?[ /-]{_MONTH}[ /-]\d{{4}}[ :]{_CLOCK}{_ZONE}", "<time>"),
    ("<time>", rf"{_DAY},? <time>", "<time>"),
    (":", rf"\b\d\d?/\d\d?/\d{{2,4}},? {_CLOCK}(?: [AP]M)?", "<time>"),
    (":", rf"\b(?:\d+ days?, )?{_CLOCK}\b(?: [AP]M\b)?", "<time>"),
    ("", r"\b\d{8}T\d{6}Z?\b|\b(?:1[4-9]|20)\d{8}(?:\d{3}|\d{6}|\d{9})?(?:\.\d+)?\b", "<time>"),
    ("-", r"(?i)\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", "<uuid>"),
    ("+0x", r"\+0x[0-9a-fA-F]+\b", "<address>"),
    ("0x", r"0x(?<!\w0x)[0-9a-fA-F]{6,}\b\??", "<address>"),
    ("@", r"@(?<=[\w$\]]@)[0-9a-f]{6,8}\b", "<address>"),
    ("tmp/", r"(?<![\w.~-])(?:/private)?(?:/var)?/tmp/[^\s:'\"`()<>,;]+", "<temporary>"),
    ("/folders/", r"(?<![\w.~-])(?:/private)?/var/folders/[^\s:'\"`()<>,;]+", "<temporary>"),
    (":\\", r"(?i)\b[a-z]:\\(?:[^\n:'\"`<>|\\]+\\){0,9}te?mp\\[^\s:'\"`()<>,;]+", "<temporary>"),
    ("pytest-of-", r"pytest-of-\w+[/\\]pytest-\d+", "<temporary>"),
    ("", r"(?i)\b((?:duration|elapsed|took|time)(?:_?(?:ms|s|seconds))?[\"']?[=:] ?[\"']?)\d+(?:\.\d+)?\b", r"\1<n>"),
    ("duration_ms ", r"duration_ms \d+(?:\.\d+)?", "<duration>"),
    ("s", rf"{_NUMBER}(?:h ?\d+)?m ?\d+(?:\.\d+)?s\b", "<duration>"),
    ("", rf"{_NUMBER}(?:[.,]\d+)?(?:e-?\d+)? ?{_UNIT}\b", "<duration>"),
    ("thread '", r"(thread '[^'\n]*') \(\d+\)", r"\1"),
    ("==", r"(?m)^==\d+==", "<process>"),
    ("(node:", r"\(node:\d+\)", "<process>"),
    ("[gw", r"\[gw\d+\]", "<process>"),
    ("|", r"(?m)^[ >]*\d* ?\|", "|"),
    (":", r"(?m)^ +\d+:\d+(?= +(?:error|warning)\b)", " <line>"),
    (":", r":(?<=[\w)>\]]:)\d+(?:[:-]\d+)?(?=[:\s,)\]'\"`;|]|\.\s|\.?$)", _normal_line_number),
    ("):", r"(\.(?:[cm]?tsx?|jsx?|vue|cs|fs|vb|c|cc|cpp|cxx|h|hpp))\(\d+(?:,\d+){0,3}\)(?=:)", r"\1(<line>)"),
    (":", r"\(\d+:\d+\)", "(<line>)"),
    ("#L", r"#L\d+(?:-L\d+)?\b", "#<line>"),
    ("sh: ", r"(?<=\bsh: )\d+(?=: )", "<line>"),
    ("", r"(?i)\b(lines?|col|column)(?:[=:] ?| )\d+(?:-\d+)?\b", r"\1 <n>"),
)


def failure_fingerprint(name: str, code: int | None, output: str, tests: SuiteResult | None = None) -> str:
    """Equal for two occurrences of the same failure.

    Where the failing tests are known, they identify the failure. Otherwise its text does, without times, durations,
    addresses, temporary paths and line numbers; ports, names and counts of failures count.
    """
    import hashlib

    if tests is not None and tests.failing:
        text = "\0".join([name, "failing", *(_normal_test_name(test) for test in tests.failing)])
    else:
        text = f"{name}\0{code}\0{_normalize(output)}"
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:24]


def _normalize(output: str) -> str:
    """The text without what varies from run to run."""
    text = strip_escapes(output)
    for required, pattern, replacement in _REPLACEMENTS:
        if required in text:
            text = re.sub(pattern, replacement, text)
    return text


def _normal_test_name(test: str) -> str:
    """A test's name; parametrized names may contain values with memory addresses or paths."""
    return re.sub(r" at 0x[0-9a-fA-F]+|(?<![\w.~-])(?:/private)?(?:/var)?/(?:tmp|folders)/[^\s'\")\]]+", "<here>", test)
