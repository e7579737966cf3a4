"""The project speaks of itself alone: nothing in it points to where, how or on which machine it was made."""

from __future__ import annotations

import re
from functools import cache

import pytest

from tests.house.source import ROOT, project_files

# Written so that no pattern finds itself.
FORBIDDEN = {
    "a path of the machine it was made on": r"(?<![\w.~-])/(?:wor[k]|roo[t])/",
    "a folder of reference": r"(?<![\w.])(?:share[d]|seed[s]|capture[s]|corpu[s]|prototype[s])/\w",
    "a document of reference": r"\bSPE[C]\.md\b|\bSPE[C] row\b|\bsee[d]s?[ ]00\d\b",
    "the number of an issue": r"(?i)\bissue[ ]#?\d|\bGH-\d+\b",
    "a package index": r"(?i)index[-_]ur[l]|\bartifactor[y]\b|\bjfro[g]\b|\bnexu[s]\.|registry\s*=\s*http",
    "a registry's address": r"(?i)\bpypi\.or[g]/simple|files\.pythonhoste[d]\.org|registry\.npmj[s]\.org|\.interna[l]/",
}

# What a file is about it may name.
ABOUT = {
    "a registry's address": ("src/ralphproof/sandbox/ecosystems.py",),
    "a path of the machine it was made on": ("tests/guard/dangerous.txt", "tests/guard/harmless.txt"),
}


@cache
def text_of(name: str) -> str:
    """What a file says; nothing where it is no text."""
    raw = (ROOT / name).read_bytes()
    return "" if b"\0" in raw else raw.decode("utf-8", "replace")


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_file_names(what: str) -> None:
    pattern = re.compile(FORBIDDEN[what])
    suspects = [name for name in project_files() if name not in ABOUT.get(what, ()) and pattern.search(text_of(name))]
    found = [
        f"{name}:{number} {line.strip()[:120]}"
        for name in suspects
        for number, line in enumerate(text_of(name).splitlines(), 1)
        if pattern.search(line)
    ]
    assert found == []


@pytest.mark.parametrize(
    ("what", "line", "seen"),
    [
        ("a path of the machine it was made on", "see /wor" + "k/main", True),
        ("a path of the machine it was made on", "cd /roo" + "t/x", True),
        ("a path of the machine it was made on", "cli/work/x and /workspace/x", False),
        ("a folder of reference", "as in corpu" + "s/x.json", True),
        ("the number of an issue", "fixes issue" + " 2", True),
        ("the number of an issue", "an issue of 2 kinds", False),
        ("a package index", "pip --index" + "-url x", True),
        ("a registry's address", "https://pypi.or" + "g/simple/x", True),
    ],
)
def test_the_patterns_see_what_they_forbid(what: str, line: str, seen: bool) -> None:
    assert bool(re.search(FORBIDDEN[what], line)) is seen
