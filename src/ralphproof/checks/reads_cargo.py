"""What `cargo test` says (1.65 to 1.97): for every binary, the list of its failures and a line of counts."""

from __future__ import annotations

import re

from ralphproof.check import Tests
from ralphproof.checks.counts import counted

_BEGUN = r"running \d{1,9} tests?(?: \(shuffle seed: \d+\))?"
_ENDED = "test result: "
_BINARY = r" +Running (?:unittests )?(?P<file>\S+) \((?:.*[/\\])?(?P<crate>[^/\\]+)-[0-9a-f]{16}(?:\.exe)?\)"
_DOCS = r" +Doc-tests (?P<crate>\S+)"
_FAILED = ("error: test failed, to rerun", "error: doctest failed, to rerun")


def read(lines: list[str]) -> list[Tests] | None:
    """One run of all binaries; None where one of them is not whole, or something was not compiled."""
    told = _Told()
    for at, line in enumerate(lines):
        if line.startswith("error: could not compile"):
            return None
        if line.startswith(_FAILED):
            told.owed += 1
        elif line.startswith(_ENDED):
            if not told.ended(line, _listed(lines, at)):
                return None
        elif not told.heard(line):
            return None
    return told.all()


class _Told:
    """What all binaries have said so far."""

    def __init__(self) -> None:
        self.owed = 0  # how many binaries failed, as cargo says beside them
        self._begun, self._binary = False, ""
        self._ended: dict[str, int] = {}
        self._names: list[str] = []
        self._red, self._passed = 0, 0

    def heard(self, line: str) -> bool:
        """Whether all can still be read after this line."""
        if line.startswith("running ") and re.fullmatch(_BEGUN, line):
            fresh = not self._begun
            self._begun = True
            return fresh
        if binary := line.startswith("  ") and (re.fullmatch(_BINARY, line) or re.fullmatch(_DOCS, line)):
            self._binary = f"{binary['crate']} {binary.groupdict().get('file', 'docs')}: "
        return True

    def ended(self, line: str, names: list[str]) -> bool:
        """Whether a binary with this last line named as many failures as it counts."""
        counts = counted(line.partition(". ")[2].partition("; finished in")[0], "; ")
        if counts is None or not self._begun or counts.get("failed", 0) != len(names):
            return False
        self._ended[self._binary] = number = self._ended.get(self._binary, 0) + 1
        again = "" if number == 1 else f" (run {number})"
        self._names += [f"{self._binary}{name}{again}" for name in _numbered(names)]
        self._red += bool(names)
        self._passed += counts.get("passed", 0)
        self._begun, self._binary = False, ""
        return True

    def all(self) -> list[Tests] | None:
        """All that was said, as one run; None where a binary did not end, or only some say what they are."""
        if self._begun or self.owed > self._red or ("" in self._ended and any(self._ended)):
            return None
        if not self._ended:
            return []
        return [Tests("cargo", tuple(sorted(self._names)), len(self._names), self._passed)]


def _listed(lines: list[str], at: int) -> list[str]:
    """The names in the list that ends before this line; a list that only looks like it stands elsewhere."""
    names: list[str] = []
    at -= 1
    if at < 0 or lines[at]:
        return []
    while at > 0 and lines[at - 1].startswith("    "):
        at -= 1
        names.append(lines[at][4:])
    return names[::-1] if at > 0 and lines[at - 1] == "failures:" else []


def _numbered(names: list[str]) -> list[str]:
    """The names without line numbers, which those of examples in the documentation have, and yet each its own."""
    bare = [re.sub(r" \(line \d+\)", "", name) for name in names]
    seen: dict[str, int] = {}
    made: list[str] = []
    for name in bare:
        seen[name] = seen.get(name, 0) + 1
        made.append(name if seen[name] == 1 else f"{name} #{seen[name]}")
    return made
