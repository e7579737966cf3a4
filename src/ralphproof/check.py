"""A machine's question about the workspace. Only what the harness asks itself, with the agent dead, counts."""

from __future__ import annotations

import re

from ralphproof.sandbox import Watch
from ralphproof.value import Protocol, value
from ralphproof.workspace import Change, Snapshot

CUT = "... [truncated]"


@value
class Finding:
    """One answer. `action` says how a failure enters the next prompt: APPEND, PREPEND or REPLACE.

    `errored` means that the check itself broke: it did not pass, and says nothing of the work.
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


@value
class Report:
    """All answers of one iteration."""

    findings: tuple[Finding, ...] = ()

    @property
    def passed(self) -> bool:
        """Nothing that is required failed; so also where nothing was asked."""
        return all(finding.passed for finding in self.findings if finding.required)

    @property
    def verified(self) -> bool:
        """Something required was asked, and all of it passed."""
        return self.passed and any(finding.required for finding in self.findings)

    @property
    def failed(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.required and not finding.passed)

    @property
    def fingerprint(self) -> str:
        """The same for two reports that fail in the same way; empty where nothing failed."""
        return "|".join(sorted(finding.fingerprint or finding.check for finding in self.failed))


@value
class Inspection:
    """What a check may look at: one iteration's work, saved and still."""

    iteration: int
    turn: int
    said: str
    snapshot: Snapshot
    change: Change


class Check(Protocol):
    """One kind of question."""

    name: str

    def ask(self, inspection: Inspection, watch: Watch) -> Finding:
        """The answer; a check that cannot be run is a failed finding, never an exception."""


def clip(text: str, chars: int, mode: str = "ends") -> str:
    """At most `chars` characters of `text`: its beginning and end, or in mode "head" its beginning alone."""
    if len(text) <= chars:
        return text
    if mode == "head":
        return text[:chars] + CUT
    head = chars // 2
    return f"{text[:head]}\n{CUT}\n{text[len(text) - (chars - head) :]}"


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
_NORMAL = (
    (r"\x1b\[[0-9;]*m", ""),
    (r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d([.,]\d+)?)?(Z|[+-]\d\d:?\d\d)?", "<time>"),
    (r"\b\d\d:\d\d:\d\d([.,]\d+)?\b", "<time>"),
    (r"\b0x[0-9a-fA-F]+\b", "<address>"),
    (r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", "<uuid>"),
    (r"(/private)?(/var)?/(tmp|folders)/[^\s:'\"]+", "<temporary>"),
    (r"\b\d+([.,]\d+)?\s?(ns|µs|us|ms|s|sec|secs|seconds|min|minutes|m)\b", "<duration>"),
    (r"(?i)\bpid[ =:]+\d+", "pid <n>"),
    (r"(?<=[\w)]):\d+(:\d+)?(?=[:\s,)]|$)", ":<line>"),
    (r"(?i)\bline \d+", "line <n>"),
)
_PORT = r"(?i)((?:localhost|\d+\.\d+\.\d+\.\d+|\]|port)[: ])(\d+)"


def fingerprint(name: str, code: int | None, output: str) -> str:
    """The same for the same failure seen twice: times, durations, addresses, temporary paths and line numbers do not
    count; ports, names and counts of failures do."""
    import hashlib

    text = re.sub(_PORT, lambda found: found[1] + "port" + "".join(chr(ord(digit) + 49) for digit in found[2]), output)
    for pattern, instead in _NORMAL:
        text = re.sub(pattern, instead, text)
    return hashlib.sha256(f"{name}\0{code}\0{text}".encode("utf-8", "surrogatepass")).hexdigest()[:24]
