"""Which files are tests or run them elsewhere, and how a test came to ask less than it did."""

from __future__ import annotations

import re

from ralphproof.checks.pin_files import digest
from ralphproof.value import value

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
