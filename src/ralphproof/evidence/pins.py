"""Pins: what decides over a run's checks, remembered at its start and compared each turn."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from ralphproof.base.value import Json, Protocol, replace, value
from ralphproof.engine.check import AlteredCheckInput
from ralphproof.engine.workspace import Snapshot, Workspace
from ralphproof.evidence.pin_compare import Comparison
from ralphproof.evidence.pin_reach import (
    MANIFESTS,
    PACKAGE,
    PROGRAM,
    SCRIPT,
    TARGET,
    VARIABLE,
    Piece,
    ProjectFiles,
    digest,
    from_note,
    to_note,
)
from ralphproof.evidence.pin_survey import Survey

# Which files are tests or run them elsewhere, and how a test came to ask less than it did.


_FOLDERS = frozenset((
    "test", "tests", "__tests__", "spec", "specs", "__snapshots__", "testing", "e2e", "testdata", "test_data",
    "testutils", "test_utils", "test-utils", "golden", "__mocks__", "__fixtures__",
))  # fmt: skip
_NAMES = (
    r"test_.*\.py|.*_test\.(?:py|go|rb|exs|dart|cc|cpp|c)|.*\.(?:test|spec|cy|e2e)\.\w+|.*Tests?\.(?:java|kt|cs|php|scala|swift)"
    r"|.*_spec\.(?:rb|lua)|.*\.snap|.*Spec\.(?:scala|hs|kt|groovy)|tests?\.(?:py|js|mjs|cjs|ts|rs)|.*\.(?:bats|feature|t)"
)
_PASSED_OVER = (".pyc", ".pyo", ".log", ".tmp", ".swp", ".md")
_CI = (
    r"\.github/(?:workflows|actions)/.+|\.gitlab-ci\.ya?ml|\.gitlab/ci/.+|\.circleci/.+|Jenkinsfile[^/]*"
    r"|azure-pipelines\.ya?ml|\.drone\.ya?ml|bitbucket-pipelines\.ya?ml|\.travis\.ya?ml|\.woodpecker(?:/.+|\.ya?ml)"
    r"|appveyor\.yml|\.buildkite/.+|\.cirrus\.ya?ml"
)
_LINE_COMMENTS = r"(?m)^[ \t]*(?:#(?!\[)|//)[^\n]*$"
_ASSERTS = (
    r"\bself\.(?:assert|fail)\w*\(|\bassert\w*(?=[\s(!.])|\bexpect\w*\s*\(|\bt\.(?:Error|Fatal|Fail)\w*\("
    r"|\brequire\.\w+\(|\.should\b|\b(?:ASSERT|EXPECT|CHECK|REQUIRE)\w*\(|\bpytest\.(?:raises|warns)\(|\bmust_\w+"
    r"|\bt\.(?:is|deepEqual|true|false|throws|equal|ok|same|not)\("
)
_EMPTY = (  # what always holds
    r"(?m)\bassert[ \t]{0,9}\(?[ \t]{0,9}(?:True|1|not[ \t]{1,9}False|true)[ \t]{0,9}\)?[ \t]{0,9}(?:;|,|$|#|//)"
    r"|\bself\.assertTrue\(\s*True\b|\bassert!?\(\s*true\s*\)"
    r"|\bexpect\(\s*(true|1)\s*\)\s*\.(?:toBe|toEqual|to\.be|to\.equal|toBeTruthy)\b|\bassert\.(?:ok|equal)\(\s*true\b"
)
_SKIPS = (
    r"\bmark\.(?:skip|xfail)\w*|\bunittest\.(?:skip|expectedFailure)\w*|@(?:skip|skipIf|skipUnless|expectedFailure)\b"
    r"|\bpytest\.(?:skip|xfail|importorskip)\(|\b(?:it|test|describe|context|suite|t)\.(?:skip|todo|only|fixme|failing)\b"
    r"|\b(?:xit|xdescribe|xtest|xcontext|fit|fdescribe|pending)\s*\(|\bt\.Skip\w*\(|#\[ignore|@(?:Disabled|Ignore)\b"
    r"|\bself\.skipTest\(|\braise\s+(?:unittest\.)?SkipTest\b|[{,]\s*(?:skip|todo|only)\s*:\s*(?:true|['\"`])"
    r"|__test__\s*=\s*False|\bGTEST_SKIP\("
)
_TESTS = (
    r"(?m)^[ \t]*(?:async\s+)?def\s+test\w*\s*\(|\b(?:it|test|specify|scenario)(?:\.\w{1,30}){0,3}"
    r"(?:\([^()\n]{0,200}\))?[ \t]{0,9}\(\s{0,99}['\"`]"
    r"|^func\s+(?:Test|Fuzz|Example)\w*\(|#\[(?:\w+::)*test(?:\([^)]{0,200}\))?\]|@(?:Test|ParameterizedTest|RepeatedTest)\b"
    r"|^[ \t]*(?:public\s+)?function\s+test\w*\(|^@test\s|^[ \t]*TEST(?:_F|_P)?\("
)


@value
class TestTally:
    """What can be counted in a test."""

    digest: str
    assertions: int = 0
    skips: int = 0
    tests: int = 0


def is_test(path: str) -> bool:
    """Whether a file is a test, or something that tests go by. What a runner loads unasked is judged elsewhere."""
    *folders, name = path.split("/")
    if name.endswith(_PASSED_OVER) or name == "conftest.py" or "node_modules" in folders:
        return False
    return bool(re.fullmatch(_NAMES, name)) or any(folder.lower() in _FOLDERS for folder in folders)


def is_ci(path: str) -> bool:
    """Whether a file says what is run for the project on other machines."""
    return bool(re.fullmatch(_CI, path))


def counted(content: bytes) -> TestTally:
    """What can be counted in a file; what is commented out does not count."""
    known = digest(content)
    if b"\0" in content[:8192]:
        return TestTally(known)
    text = _without_blocks(re.sub(_LINE_COMMENTS, "", content[: 1 << 20].decode("utf-8", "replace")))
    asserted = len(re.findall(_ASSERTS, text)) - len(re.findall(_EMPTY, text))
    return TestTally(known, max(0, asserted), len(re.findall(_SKIPS, text)), len(re.findall(_TESTS, text)))


def _without_blocks(text: str) -> str:
    """The text less what stands between `/*` and `*/`."""
    kept, at = [], 0
    while (begin := text.find("/*", at)) >= 0 and (end := text.find("*/", begin + 2)) >= 0:
        kept.append(text[at:begin])
        at = end + 2
    return "".join([*kept, text[at:]])


def asks_less(before: TestTally, now: TestTally) -> str:
    """How a test asks less than before, in words; empty where it does not seem to."""
    told = []
    if now.tests < before.tests:
        told.append(f"{_some(before.tests - now.tests, 'test')} fewer")
    if now.assertions < before.assertions:
        told.append(f"{_some(before.assertions - now.assertions, 'assertion')} fewer")
    if now.skips > before.skips:
        told.append(f"skips {_some(now.skips - before.skips, 'test')} more")
    return ", ".join(told)


def _some(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


# What is remembered of a run's pins, small, and never what files hold.


NOTE = "pins"


class Notes(Protocol):
    """Keeps something small, durably, out of the agent's reach."""

    def note(self, name: str, data: Json) -> None:
        """Keep it under this name."""

    def noted(self, name: str) -> Json | None:
        """What was kept."""


@value
class PinsKept:
    """The pieces as they are meant, what was looked at to find them, and tests as the user left them in a pause.

    `manifests` are the languages that the project had a manifest of. A test of None was deleted by the user. `fresh`
    are the keys of pieces that an agent's turn brought.
    """

    pieces: dict[str, Piece]
    facts: Json
    manifests: tuple[str, ...] = ()
    tests: dict[str, TestTally | None] = {}  # noqa: RUF012 (never changed)
    fresh: tuple[str, ...] = ()


def keep(notes: Notes, kept: PinsKept) -> None:
    """Remember it."""
    tests: dict[str, Json] = {path: _row(one) for path, one in kept.tests.items()}
    notes.note(NOTE, {
        "pieces": to_note(kept.pieces), "facts": kept.facts, "manifests": list(kept.manifests), "tests": tests,
        "fresh": list(kept.fresh),
    })  # fmt: skip


def recall(notes: Notes) -> PinsKept | None:
    """What is remembered; None where nothing is."""
    noted = notes.noted(NOTE)
    pieces = from_note(noted.get("pieces")) if isinstance(noted, dict) else None
    if not isinstance(noted, dict) or pieces is None:
        return None
    tests = noted.get("tests")
    rows = tests.items() if isinstance(tests, dict) else ()
    counts = {path: _counted(row) for path, row in rows}
    return PinsKept(pieces, noted.get("facts"), _words(noted.get("manifests")), counts, _words(noted.get("fresh")))


def _words(data: Json) -> tuple[str, ...]:
    return tuple(map(str, data)) if isinstance(data, list) else ()


def _row(one: TestTally | None) -> Json:
    return None if one is None else [one.digest, one.assertions, one.skips, one.tests]


def _counted(row: Json) -> TestTally | None:
    match row:
        case [str(digest), int(assertions), int(skips), int(tests)]:
            return TestTally(digest, assertions, skips, tests)
        case _:
            return None


# The integrity of the judge: what decides over a run's checks is remembered at its start, and looked at each turn.


MOST = 100  # that are told of one turn
_FOLLOWED = frozenset((SCRIPT, TARGET, VARIABLE, PACKAGE))  # what a command may no longer lead to, and it is there


class CheckPins:
    """The pins of commands, each with its folder from the root, that are run with this environment.

    `allowed` says which paths the user lets the work change. With `protect_tests`, no test of the start may change.
    """

    def __init__(
        self, root: str, commands: tuple[tuple[str, str], ...], env: tuple[tuple[str, str], ...], folder: Notes,
        workspace: Workspace, allowed: Callable[[str], bool] = lambda _: False, protect_tests: bool = False,
    ) -> None:  # fmt: skip
        self._root, self._commands, self._env = root, commands, dict(env)
        self._folder, self._workspace = folder, workspace
        self._allowed, self._protect = allowed, protect_tests

    def begin(self) -> None:
        """Remember what decides over the checks as it now is; what is remembered already stays."""
        if recall(self._folder) is None:
            survey = self._survey(None)
            keep(self._folder, PinsKept(survey.pieces, survey.facts, _manifests(survey.files)))

    def accept_user_changes(self, paths: tuple[str, ...]) -> None:
        """As these paths are now, they are meant."""
        kept = recall(self._folder) if paths else None
        if kept is None:
            return
        survey, theirs = self._survey(kept.facts), frozenset(paths)
        known = {key: one for key, one in kept.pieces.items() if one.path not in theirs}
        seen = {*kept.pieces, *kept.fresh}  # what is not among it, something leads to since they changed what they did
        touched = {
            key: one
            for key, one in survey.pieces.items()
            if one.path in theirs or _files(one) & theirs or key not in seen
        }
        contents = {path: survey.files.read(path) for path in paths if is_test(path)}
        tests = {path: None if content is None else counted(content) for path, content in contents.items()}
        keep(self._folder, PinsKept(known | touched, survey.facts, kept.manifests, kept.tests | tests, kept.fresh))

    def find_altered(self, began: Snapshot, now: Snapshot, theirs: frozenset[str]) -> tuple[AlteredCheckInput, ...]:
        """What is not as it was when the run began, what stops a run first."""
        kept = recall(self._folder)
        if kept is None:  # a run of a version that had no pins
            self.begin()
            return ()
        survey = self._survey(kept.facts)
        found = [*self._pieces(kept, survey, began)]
        if began.tree != now.tree or began.left_out != now.left_out:
            change = self._workspace.change(began, now)
            if not change.known and not now.problem:
                found.append(
                    AlteredCheckInput(".", "what changed since the run began cannot be told any more", stops=True)
                )
            changed = [path for path in change.paths if not _own(path)]
            found += self._beside(survey, began, [path for path in changed if path not in theirs])
            known = {one.path for one in found}
            found += (one for one in self._tests(kept.tests, began, now, changed, theirs) if one.path not in known)
            ci = (path for path in changed if is_ci(path) and path not in theirs)
            found += (self._elsewhere(began, now, path) for path in ci)
        told = [replace(one, allowed=True) if self._allowed(one.path) else one for one in dict.fromkeys(found)]
        return tuple(sorted(told, key=lambda one: (one.allowed or not one.stops, one.path, one.what))[:MOST])

    def _pieces(self, kept: PinsKept, survey: Survey, began: Snapshot) -> Iterator[AlteredCheckInput]:
        known, pieces = kept.pieces, dict(survey.pieces)
        lost = {key: one for key, one in known.items() if key not in pieces and one.kind in _FOLLOWED}
        again = survey.again(lost.values()) if lost else {}
        pieces |= {key: one for key, one in again.items() if key in lost}
        for key in [key for key, one in pieces.items() if key not in known and one.kind != PROGRAM]:
            then = self._workspace.content(began, pieces[key].path)
            if then is not None and then == survey.files.read(pieces[key].path):
                del pieces[key]  # it was there, and only now something leads to it
        fresh = tuple(sorted(key for key in pieces if key not in known))
        if fresh != kept.fresh:
            keep(self._folder, replace(kept, fresh=fresh))
        return Comparison(known, pieces, survey.files, frozenset(kept.manifests)).all()

    def _beside(self, survey: Survey, began: Snapshot, changed: list[str]) -> Iterator[AlteredCheckInput]:
        """Settings of a runner in a folder that no command is started in: somebody may go there all the same."""
        judged = {one.path for one in survey.pieces.values()}
        for path in changed:
            for one in survey.beside(path) if path not in judged else ():
                then = self._workspace.content(began, path)
                yield AlteredCheckInput(
                    path, f"{'new' if then is None else 'was changed'}; it configures {one.runner} there"
                )
                break

    def _tests(
        self,
        noted: dict[str, TestTally | None],
        began: Snapshot,
        now: Snapshot,
        changed: list[str],
        theirs: frozenset[str],
    ) -> Iterator[AlteredCheckInput]:
        paths = [path for path in changed if is_test(path)]
        contents = {path: self._workspace.content(now, path) for path in paths}
        new = {digest(content) for path, content in contents.items() if content is not None}
        for path in paths:
            before, after = self._test_then(noted, began, path, theirs), contents[path]
            if before is None:
                continue
            if after is None:
                moved = before.digest in new and not self._protect
                if not moved:
                    yield AlteredCheckInput(path, "a test was deleted", stops=self._protect)
                continue
            facts = counted(after)
            less = asks_less(before, facts)
            if self._protect and facts.digest != before.digest:
                yield AlteredCheckInput(path, f"a protected test was changed{f': {less}' if less else ''}", stops=True)
            elif facts.digest != before.digest:
                yield AlteredCheckInput(path, less or "a test that was there was changed")

    def _test_then(
        self, noted: dict[str, TestTally | None], began: Snapshot, path: str, theirs: frozenset[str]
    ) -> TestTally | None:
        """What is known of a test as the user last left it."""
        if path in noted or path in theirs:
            return noted.get(path)
        content = self._workspace.content(began, path)
        return None if content is None else counted(content)

    def _elsewhere(self, began: Snapshot, now: Snapshot, path: str) -> AlteredCheckInput:
        then, after = self._workspace.content(began, path), self._workspace.content(now, path)
        how = "new" if then is None else "is gone" if after is None else "was changed"
        return AlteredCheckInput(path, f"{how}; it says what is run elsewhere")

    def _survey(self, facts: Json) -> Survey:
        return Survey(self._root, self._commands, self._env, facts)


def _manifests(files: ProjectFiles) -> tuple[str, ...]:
    """The languages that the project has a manifest of."""
    return tuple(language for language, names in MANIFESTS.items() if any(files.there(name) for name in names))


def _files(one: Piece) -> frozenset[str]:
    """The files that a piece is made from, where they are more than one."""
    return frozenset(name for name, _ in one.bits) if one.kind in (TARGET, VARIABLE) else frozenset()


def _own(path: str) -> bool:
    return path.startswith((".ralph/", ".git/"))
