"""A machine's question about the workspace. Only what the harness asks itself, with the agent dead, counts."""

from __future__ import annotations

import re

from ralphproof.claim import Claim
from ralphproof.event import Event, Spent
from ralphproof.value import Protocol, value
from ralphproof.workspace import Change, Snapshot

CUT = "... [truncated]"


@value
class Tests:
    """What a check's output says of single tests: which of them failed, by name, and how many passed and failed.

    `passed` is None where the output does not tell. A test that could not even be loaded has failed.
    """

    runner: str
    failing: tuple[str, ...]
    failed: int
    passed: int | None = None


@value
class Finding:
    """One answer. `action` says how a failure enters the next prompt: APPEND, PREPEND or REPLACE.

    `errored` means that the check itself broke: it did not pass, and says nothing of the work. `tests` is None where
    single tests cannot be read from the output: then only its text tells two failures apart. `judged` says that a model
    answered, no machine, and `spent` what that cost. Two checks with the same `key` ask the same of the same tree.
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
    tests: Tests | None = None
    judged: bool = False
    spent: Spent | None = None
    key: str = ""

    def same_as(self, other: Finding) -> bool:
        """Whether both failed in the same way."""
        return not self.passed and not other.passed and self.fingerprint == other.fingerprint


@value
class Report:
    """All answers of one iteration."""

    findings: tuple[Finding, ...] = ()

    def plus(self, finding: Finding) -> Report:
        """With one more answer."""
        return Report((*self.findings, finding))

    def of(self, check: str) -> Finding | None:
        """The answer of one check."""
        return next((finding for finding in self.findings if finding.check == check), None)

    @property
    def passed(self) -> bool:
        """Nothing that is required failed; so also where nothing was asked."""
        return all(finding.passed for finding in self.findings if finding.required)

    @property
    def verified(self) -> bool:
        """A machine was asked for something required, and all that is required passed."""
        return self.passed and any(finding.required and not finding.judged for finding in self.findings)

    @property
    def judged(self) -> bool:
        """All that is required passed, and a model at least was asked."""
        return self.passed and any(finding.required for finding in self.findings)

    @property
    def failed(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.required and not finding.passed)

    @property
    def faults(self) -> tuple[Finding, ...]:
        """What failed in the work itself: a judge who could not answer says nothing of it."""
        return tuple(finding for finding in self.failed if not (finding.judged and finding.errored))

    @property
    def fingerprint(self) -> str:
        """The same for two reports that fail in the same way; empty where nothing failed."""
        return "|".join(sorted(finding.fingerprint or finding.check for finding in self.failed))


@value
class Inspection:
    """What a check may look at: one iteration's work, saved and still. `began` is what the task began on."""

    iteration: int
    turn: int
    said: str
    snapshot: Snapshot
    change: Change
    round: int = 1  # so often this turn's work was looked at
    claim: Claim | None = None
    began: Snapshot = Snapshot(None, None)
    left_micro_usd: int | None = None  # what a judge may spend at most


class Onlooker(Protocol):
    """Looks on while a check is asked: at a command's output, at a model's words. Called from one thread."""

    def output(self, chunk: bytes) -> None:
        """More of what a command prints, already in the log."""

    def events(self, events: list[Event]) -> None:
        """More of what a model says."""

    def tick(self) -> int:
        """As `Watch.tick`."""


class Check(Protocol):
    """One kind of question.

    One that has a `key` may be answered by what another one with the same key found in the same tree.
    """

    name: str

    def ask(self, inspection: Inspection, watch: Onlooker) -> Finding:
        """The answer; a check that cannot be run is a failed finding, never an exception."""


def clip(text: str, chars: int, mode: str = "ends") -> str:
    """At most `chars` characters of `text`: its beginning and end, or in mode "head" its beginning alone."""
    if len(text) <= chars:
        return text
    if mode == "head":
        return text[:chars] + CUT
    head = chars // 2
    return f"{text[:head]}\n{CUT}\n{text[len(text) - (chars - head) :]}"


def fenced(text: str) -> str:
    """The text in a code fence that nothing in it can close."""
    longest = max((len(run) for run in re.findall(r"[`~]+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{text}\n{fence}"


def slug(command: str) -> str:
    """A file name's part for a command: runs of other characters become one `_`, at most 50 characters."""
    return re.sub(r"[^A-Za-z0-9]+", "_", command).strip("_")[:50].strip("_")


def slugs(commands: tuple[str, ...]) -> tuple[str, ...]:
    """One slug for each command, with a number where two would be the same, also to a disk that ignores case."""
    taken: set[str] = set()
    made: list[str] = []
    for command in commands:
        name = slug(command) or "check"
        numbered = (name if number == 1 else f"{name}_{number}" for number in range(1, len(commands) + 2))
        made.append(next(candidate for candidate in numbered if candidate.casefold() not in taken))
        taken.add(made[-1].casefold())
    return tuple(made)


# Compiled when the first check has run, and kept by `re`: not a thing to wait for at the start.
_ESCAPES = (
    "\x1b\\[[0-?]*[ -/]*[@-~]"  # colours, and whatever else moves the cursor
    "|\x1b[\\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\\\)?"  # titles and links, up to their end
    "|\x1b[ -/]*[0-~]"
)


def plain(text: str) -> str:
    """The text as it would be without a terminal: no escape codes, one kind of line end."""
    return re.sub(_ESCAPES, "", text).replace("\r\n", "\n").replace("\r", "\n")


_CLOCK = r"\d{1,2}:\d\d:\d\d(?:[.,]\d+)?"
_ZONE = r"(?: ?(?:Z|UTC|GMT|[+-]\d\d:?\d\d)\b)*"
_DAY = "(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)"
_MONTH = "(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
_UNIT = "(?:[nuµμm]s|s|secs?|seconds?|mins?|minutes?|h|hrs?|hours?)"
_ALONE = r"\d(?<![\w.-]\d)(?<!\w\[\d)\d*"  # no part of a name, such as test_waits[5s]
_SOURCES = (
    " asm bash c cc cfg cjs clj cmake conf cpp cs css cts cxx d dart ex exs erl f90 fs go gradle groovy h hh hpp hs"
    " html ini java jl js json jsx kt kts less lua m md mjs mk ml mli mm mts nim php pl pm proto ps1 py pyi pyx r rb"
    " rs rst s scala scss sh sql svelte swift tex tf toml ts tsx txt v vb vue xml yaml yml zig "
)


def _line(found: re.Match[str]) -> str:
    """A number behind a file's name, made one with every other; behind anything else it may be a port, and stays."""
    before = found.string[max(0, found.start() - 120) : found.start()]
    place = before[max(before.rfind(end) for end in " \n\t'\"`([),;=<|/\\") + 1 :]
    if "." in place:
        named = f" {place.rpartition('.')[2].lower()} " in _SOURCES
    else:
        named = place.endswith(("Makefile", "Dockerfile", "Rakefile", "Jenkinsfile", "makefile"))
    beside = before.endswith(("/" + place, "\\" + place)) and not before.endswith("//" + place)
    column = ":" in found[0][1:] and not before[-1:].isdigit()
    return ":<line>" if named or beside or column or place.endswith(">") else found[0]


# (what the text must hold for the row to be tried, a pattern, what stands instead). In this order: what a later row
# would take to pieces, an earlier one has taken whole.
_NORMAL = (
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
    ("s", rf"{_ALONE}(?:h ?\d+)?m ?\d+(?:\.\d+)?s\b", "<duration>"),
    ("", rf"{_ALONE}(?:[.,]\d+)?(?:e-?\d+)? ?{_UNIT}\b", "<duration>"),
    ("thread '", r"(thread '[^'\n]*') \(\d+\)", r"\1"),
    ("==", r"(?m)^==\d+==", "<process>"),
    ("(node:", r"\(node:\d+\)", "<process>"),
    ("[gw", r"\[gw\d+\]", "<process>"),
    ("|", r"(?m)^[ >]*\d* ?\|", "|"),
    (":", r"(?m)^ +\d+:\d+(?= +(?:error|warning)\b)", " <line>"),
    (":", r":(?<=[\w)>\]]:)\d+(?:[:-]\d+)?(?=[:\s,)\]'\"`;|]|\.\s|\.?$)", _line),
    ("):", r"(\.(?:[cm]?tsx?|jsx?|vue|cs|fs|vb|c|cc|cpp|cxx|h|hpp))\(\d+(?:,\d+){0,3}\)(?=:)", r"\1(<line>)"),
    (":", r"\(\d+:\d+\)", "(<line>)"),
    ("#L", r"#L\d+(?:-L\d+)?\b", "#<line>"),
    ("sh: ", r"(?<=\bsh: )\d+(?=: )", "<line>"),
    ("", r"(?i)\b(lines?|col|column)(?:[=:] ?| )\d+(?:-\d+)?\b", r"\1 <n>"),
)


def fingerprint(name: str, code: int | None, output: str, tests: Tests | None = None) -> str:
    """The same for the same failure seen twice.

    Where the failing tests are known, they are the failure. Else its text is: times, durations, addresses, temporary
    paths and line numbers do not count in it; ports, names and counts of failures do.
    """
    import hashlib

    if tests is not None and tests.failing:
        text = "\0".join([name, "failing", *(_steady(test) for test in tests.failing)])
    else:
        text = f"{name}\0{code}\0{_normal(output)}"
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:24]


def _normal(output: str) -> str:
    """A text without what changes from run to run."""
    text = plain(output)
    for must, pattern, instead in _NORMAL:
        if must in text:
            text = re.sub(pattern, instead, text)
    return text


def _steady(test: str) -> str:
    """A test's name; a name may be made of a value, and the value hold where it was in memory or on disk."""
    return re.sub(r" at 0x[0-9a-fA-F]+|(?<![\w.~-])(?:/private)?(?:/var)?/(?:tmp|folders)/[^\s'\")\]]+", "<here>", test)
