"""What a proof says of its checks and its subject, read from data that anybody may have written."""

from __future__ import annotations

import re

from ralphproof.check import PassRule
from ralphproof.errors import Refused
from ralphproof.value import TYPE_CHECKING, value

if TYPE_CHECKING:
    from typing import TypeVar

    from ralphproof.value import Json

    T = TypeVar("T")

MOST_CHECKS, MOST_SETUP = 1000, 1000
MOST_S = 7 * 24 * 3600.0
_ID = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_REF = re.compile(r"refs/ralph/[A-Za-z0-9][A-Za-z0-9._/-]*")


@value
class Attested:
    """A check as a proof tells of it. A `command` of None is a judge's, or is withheld; `digest` is that of it.

    `tests_passed` is None where the output did not tell. One that is `hidden` is held out: no agent is told of it.
    """

    name: str
    command: str | None
    digest: str
    rule: PassRule
    required: bool
    judged: bool
    passed: bool
    code: int | None
    why: str
    tests: dict[str, Json] | None
    output: str
    withheld: bool = False
    hidden: bool = False

    @property
    def runs_again(self) -> bool:
        """Whether it can be asked again: what passed without an exit code was no command, but a function, or a word."""
        return self.required and not self.judged and self.command is not None and self.code is not None

    @property
    def tests_passed(self) -> int | None:
        count = (self.tests or {}).get("passed")
        return count if isinstance(count, int) and not isinstance(count, bool) else None


@value
class ProofSubject:
    """What a proof speaks of: `tree` is the tree of `commit`. `ref` is empty where nothing keeps it but a branch."""

    kind: str
    commit: str
    tree: str
    ref: str = ""
    head: str = ""


def checks_in(proof: dict[str, Json]) -> tuple[Attested, ...]:
    """The checks of a proof; raises Refused where it is none."""
    every = field(proof, "checks", list)
    if len(every) > MOST_CHECKS:
        raise Refused(f"it names more than {MOST_CHECKS} checks")
    return tuple(map(_check, every))


def setup_in(proof: dict[str, Json]) -> tuple[str, ...]:
    """The commands that prepare a checkout."""
    every = field(proof, "setup", list)
    if len(every) > MOST_SETUP or not all(isinstance(one, str) and _sound(one) for one in every):
        raise Refused("its field setup is not what a proof has there")
    return tuple(map(str, every))


def subject_in(proof: dict[str, Json]) -> ProofSubject:
    """What the proof speaks of; raises Refused where it names nothing that git could find."""
    data = field(proof, "subject", dict)
    kind = field(data, "kind", str)
    if kind not in ("commit", "tree"):
        return ProofSubject(kind, "", "")
    ref, head = data.get("ref"), data.get("head")
    found = ProofSubject(
        kind, field(data, "commit", str), field(data, "tree", str),
        ref if isinstance(ref, str) and _REF.fullmatch(ref) and ".." not in ref else "",
        head if isinstance(head, str) and _ID.fullmatch(head) else "",
    )  # fmt: skip
    if not (_ID.fullmatch(found.commit) and _ID.fullmatch(found.tree)):
        raise Refused("its subject has no commit, or no tree, of git's")
    return found


def _check(data: Json) -> Attested:
    if not isinstance(data, dict):
        raise Refused("one of its checks is none")
    command, tests, code = data.get("command"), data.get("tests"), data.get("code")
    if not (command is None or (isinstance(command, str) and _sound(command))):
        raise Refused("one of its checks has a command that no shell could be given")
    return Attested(
        field(data, "name", str), command, field(data, "commandDigest", str, ""), _rule(data),
        field(data, "required", bool), field(data, "judged", bool), field(data, "passed", bool),
        code if isinstance(code, int) else None, field(data, "why", str, "exit"),
        tests if isinstance(tests, dict) else None, field(data, "output", str, ""),
        field(data, "withheld", bool, False), field(data, "hidden", bool, False),
    )  # fmt: skip


def _rule(data: dict[str, Json]) -> PassRule:
    timeout = data.get("timeoutSeconds")
    seconds = float(timeout) if isinstance(timeout, int | float) and 0 < timeout <= MOST_S else PassRule().timeout_s
    rule = PassRule(
        field(data, "folder", str, "."), field(data, "successCode", int, 0), field(data, "contains", str, ""),
        field(data, "lacks", str, ""), seconds, field(data, "clean", bool, False),
    )  # fmt: skip
    if not _sound(rule.folder + rule.contains + rule.lacks):
        raise Refused("one of its checks has a rule that cannot be kept")
    return rule


def _sound(text: str) -> bool:
    """Whether an argument list may hold it."""
    try:
        text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    return "\0" not in text


def field(data: dict[str, Json], name: str, kind: type[T], missing: T | None = None) -> T:
    """What a field holds; one that is absent or null is `missing`, where that is given."""
    found = data.get(name)
    if found is None and missing is not None:
        return missing
    if not isinstance(found, kind) or (kind is int and isinstance(found, bool)):
        raise Refused(f"its field {name} is not what a proof has there")
    return found
