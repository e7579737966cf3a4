"""Whatever an agent asks, the guard answers: it never raises, it denies what it cannot read, and it does so soon."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ralphproof.guard.tools import objection
from ralphproof.guard.verdict import Objection
from ralphproof.hooks.pre_tool_use import TIME_LIMIT_S
from tests.guard.samples import GROUND, asked, dangerous, harmless, judged
from tests.guard.wrappings import WAYS


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("Bash", {}), ("Bash", {"command": None}), ("Bash", {"command": 1}), ("Bash", {"command": []}),
        ("Bash", {"command": ["ls", 1]}), ("Bash", {"command": {"a": "ls"}}), ("Bash", {"command": "ls \0"}),
        ("Bash", {"command": "ls \ud800"}), ("Read", {}), ("Read", {"file_path": 1}), ("Read", {"file_path": ""}),
        ("Read", {"file_path": "a\0b"}), ("Write", {"file_path": ["a"]}), ("Write", {"content": "x"}),
        ("WebFetch", {}), ("WebFetch", {"url": 1}), ("apply_patch", {}), ("apply_patch", {"input": 1}),
        ("apply_patch", {"input": "rm"}), ("mcp__x__y", {"a": "\0"}), ("mcp__x__y", {"a": ["x"] * 3000}),
        ("mcp__x__y", json.loads('{"a":' * 40 + "1" + "}" * 40)), ("Task", {"prompt": "\0"}),
    ],
)  # fmt: skip
def test_arguments_that_make_no_sense_are_denied(tool: str, arguments: Any) -> None:
    assert asked(tool, **arguments) == "unreadable-call"


@pytest.mark.parametrize(
    "line",
    [
        "echo 'a", 'echo "a', "if true", "( ls", "ls )", "for x in", "case x in", "echo $(ls", "ls |", "&& ls", "| | |",
        "echo $(" * 200 + "ls" + ")" * 200, "(" * 200 + "ls" + ")" * 200, "nice " * 20 + "ls", "a;" * 20_000,
        "cat a|" * 200 + "cat", "x" * 60_000, "|" * 49_000, ")" * 49_000, "a=(" * 16_000, "bash -c " * 1 + "'" * 3,
        "eval " * 20 + "ls",
    ],
)  # fmt: skip
def test_a_line_that_cannot_be_read_is_denied(line: str) -> None:
    found = judged(line)
    assert found is not None
    assert found.category == "opaque-code"


@pytest.mark.parametrize("unit", ["|", ")", "a=(", "a|\n", "||a "])
def test_what_takes_the_parser_long_never_reaches_it(unit: str) -> None:
    found = judged(unit * 1000)
    assert found is not None
    assert found.reason.endswith("it repeats itself")


HUGE = {
    "a megabyte": "a " * 500_000, "commands": "rm x;" * 9_000, "doubling": "x=aa;" + "x=$x$x;" * 200 + "rm $x",
    "braces": "echo " + "{a,b}" * 200, "loops": "for a in 1 2 3 4 5 6; do " * 7 + "ls;" + "done;" * 7,
    "functions": "".join(f"f{i}(){{ f{i + 1};f{i + 1}; }};" for i in range(40)) + "f0", "newlines": "\n" * 49_000,
    "sql": "psql <<E\n" + "/*" * 20_000 + "\nE", "blanks": "perl -e 'system" + " " * 40_000 + "'",
    "modes": "chmod " + "o" * 20_000 + " x", "python": "python -c '" + "-" * 40_000 + "1'",
    "names": "python -c 'exec(a" + ".b" * 9_000 + ")'", "stars": "rm " + "[*" * 5_000, "pipes": "|" * 49_000,
    "finds": "find a b c d " + "-exec find a b c d " * 6 + "-exec rm {} \\;", "hosts": "curl http://" + "1." * 9_000,
    "attributes": "python3 - <<'E'\n" + "a." * 20_000 + "\nE", "quotes": "perl <<'E'\nopen(\"" + '\\"' * 20_000 + "\nE",
    "sums": "python3 - <<'E'\n" + "'a'+" * 9_000 + "'b'\nE",
}  # fmt: skip


@pytest.mark.parametrize("kind", HUGE)
def test_no_line_takes_longer_than_the_hook_may(kind: str) -> None:
    """Processor time, not the clock. The worst of these takes a tenth of it; the square of anything takes more."""
    began = time.process_time()
    judged(HUGE[kind])
    assert time.process_time() - began < TIME_LIMIT_S


PIECES = st.sampled_from(
    [*" ;|&<>(){}[]$`'\"\\\n\t=*?~!#/-.,:", "rm", "-rf", "git", "eval", "$(", "${", "<<E\n", "\nE\n", "if", "then",
     "fi", "do", "done", "for", "case", "esac", "bash", "-c", "python3", "curl", "x", "../", "sudo", "xargs", "find",
     "-exec", "{}", "env",
     "\u200b", "\ufdd0", "é", "\x1b", "$'\\x72'", "$IFS", "<(", ">&", "2>", "&>", "|&"]
)  # fmt: skip
TEXTS = st.text(max_size=60) | st.lists(PIECES, max_size=25).map("".join)
TOOLS = st.sampled_from(
    ["Bash", "shell", "Read", "Write", "Edit", "Grep", "Glob", "LS", "WebFetch", "WebSearch", "apply_patch",
     "view_image", "mcp__a__write", "mcp__a__b", "Task", "Unknown", ""]
)  # fmt: skip
KEYS = st.sampled_from(["command", "cmd", "file_path", "path", "url", "query", "input", "sql", "workdir", "a"])
VALUES = st.recursive(
    TEXTS | st.none() | st.booleans() | st.integers(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=8,
)


@settings(max_examples=300, deadline=None)
@given(TOOLS, st.dictionaries(KEYS, VALUES, max_size=4))
def test_any_call_is_answered(tool: str, arguments: Any) -> None:
    assert isinstance(objection(tool, arguments, GROUND), Objection | None)


@settings(max_examples=300, deadline=None)
@given(TEXTS)
def test_any_line_is_answered_in_one_printable_line(text: str) -> None:
    found = objection("Bash", {"command": text}, GROUND)
    assert found is None or (found.what.isprintable() and len(found.what) <= 120)


ALL = [line for _, line in dangerous()] + harmless()


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(ALL), st.sampled_from([*WAYS]), st.sampled_from([*WAYS]), st.data())
def test_any_line_in_any_wrapping_cut_anywhere_is_answered(line: str, inner: str, outer: str, data: Any) -> None:
    whole = WAYS[outer](WAYS[inner](line))
    judged(whole[: data.draw(st.integers(0, len(whole)))])
