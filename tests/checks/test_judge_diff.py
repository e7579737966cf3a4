"""A patch as text: what it adds, how it is shortened, and what can be quoted from it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ralphproof.checks.judge import (
    MAX_DIFF_FILES,
    MIN_QUOTE_CHARS,
    QuotableDiff,
    added_lines,
    files_without_line_diff,
    shorten_diff,
)

MARK = "f00d"
PATCH = """\
diff --git a/src/greet.py b/src/greet.py
index 1111111..2222222 100644
--- a/src/greet.py
+++ b/src/greet.py
@@ -1,3 +1,5 @@ import os
 def greet(name):
-    return "hello"
+    if not name:
+        raise ValueError("a name is needed")
+    return f"hello {name}"
 # the end
diff --git "a/odd\\tname.txt" "b/odd\\tname.txt"
new file mode 100644
--- /dev/null
+++ "b/odd\\tname.txt"
@@ -0,0 +1,2 @@
+++ b/no/header
+- a bullet
\\ No newline at end of file
diff --git a/gone.py b/gone.py
deleted file mode 100644
--- a/gone.py
+++ /dev/null
@@ -1 +0,0 @@
-PASSWORD = "hunter2"
"""
BINARY = """\
diff --git a/logo.png b/logo.png
new file mode 100644
index 0000000..0ec8801
GIT binary patch
literal 90
NcmZQzWMZHV0ss&l09yb6

literal 0
HcmV?d00001

"""


def file(name: str, *lines: str) -> str:
    """A part of a patch that adds these lines."""
    body = "".join(f"+{line}\n" for line in lines)
    return f"diff --git a/{name} b/{name}\n--- a/{name}\n+++ b/{name}\n@@ -0,0 +1,{len(lines)} @@\n{body}"


def test_only_lines_of_hunks_are_added_whatever_they_look_like() -> None:
    assert list(added_lines(PATCH)) == [
        ("src/greet.py", "    if not name:"),
        ("src/greet.py", '        raise ValueError("a name is needed")'),
        ("src/greet.py", '    return f"hello {name}"'),
        ("odd\\tname.txt", "++ b/no/header"),
        ("odd\\tname.txt", "- a bullet"),
    ]
    assert list(added_lines(BINARY)) == list(added_lines("")) == []


@settings(deadline=None)
@given(st.lists(st.text(st.characters(exclude_characters="\n", codec="utf-8"), max_size=12), min_size=1, max_size=6))
def test_every_added_line_is_found_in_its_file(lines: list[str]) -> None:
    patch = file("a b.txt", *lines) + file("c.txt", "next")
    assert list(added_lines(patch)) == [*(("a b.txt", line) for line in lines), ("c.txt", "next")]


def test_what_is_short_enough_stays_whole_but_for_binary_content() -> None:
    assert shorten_diff(PATCH, 60_000, MARK) == (PATCH, ())
    told, cut = shorten_diff(BINARY + PATCH, 60_000, MARK)
    assert "NcmZ" not in told
    assert told.startswith("diff --git a/logo.png b/logo.png\nnew file mode 100644\nindex 0000000..0ec8801\n[f00d: ")
    assert told.endswith(PATCH)
    assert cut == ()


def test_a_long_file_leaves_room_for_the_short_ones_and_keeps_both_its_ends() -> None:
    long = file("long.py", "the first line", *["filler = 1"] * 20_000, "the last line")
    told, cut = shorten_diff(file("a.py", "alpha") + long + file("z.py", "omega"), 60_000, MARK)
    assert len(told) <= 60_000
    assert cut == ("long.py",)
    for kept in ("+alpha\n", "+the first line\n", "+the last line\n", "+omega\n", "[f00d: a part"):
        assert kept in told


def test_long_files_share_the_room_evenly() -> None:
    long = [file(f"{name}.py", *[f"{name} = 1"] * 9_000) for name in "abc"]
    told, cut = shorten_diff("".join(long), 60_000, MARK)
    counts = [told.count(f"+{name} = 1\n") for name in "abc"]
    assert cut == ("a.py", "b.py", "c.py")
    assert max(counts) - min(counts) <= 2
    assert 55_000 < len(told) <= 60_000


def test_of_too_many_files_the_last_are_only_named() -> None:
    told, cut = shorten_diff("".join(file(f"f{n}.py", "x" * 900) for n in range(MAX_DIFF_FILES + 2)), 60_000, MARK)
    assert len(told) <= 60_000
    assert len(cut) == MAX_DIFF_FILES + 2
    assert cut[-2:] == (f"f{MAX_DIFF_FILES}.py", f"f{MAX_DIFF_FILES + 1}.py")
    assert f"f{MAX_DIFF_FILES}.py" not in told


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 60), st.integers(0, 3_000)), min_size=1, max_size=8))
def test_it_never_grows_beyond_the_room(shapes: list[tuple[int, int]]) -> None:
    patch = "".join(file(f"f{n}", *["y" * width] * lines) for n, (lines, width) in enumerate(shapes))
    told, cut = shorten_diff(patch, 20_000, MARK)
    assert len(told) <= 20_000
    assert (told == patch) is (len(patch) <= 20_000) is (not cut)


@pytest.mark.parametrize(
    "quote",
    [
        '    return f"hello {name}"',
        'return   f"hello\t{name}"',
        '+    if not name:\n+        raise ValueError("a name is needed")',
        'if not name:\n raise ValueError("a name is needed")',
        "def greet(name):\n    if not name:",
        '-    return "hello"',
        '-    return "hello"\n+    if not name:',
        "- a bullet",
        "+- a bullet",
        "++ b/no/header",
        'PASSWORD = "hunter2"'.join(["-", ""]),
        "deleted file mode 100644",
        "+++ b/src/greet.py",
    ],
)
def test_what_stands_there_can_be_quoted(quote: str) -> None:
    assert QuotableDiff(PATCH, MARK).holds(quote)


@pytest.mark.parametrize(
    "quote",
    [
        "",
        "  \n\t",
        "name",  # a part of a line, and short
        "return",
        "raise TypeError",
        'return "hello"',  # it was removed, and is quoted as if it were there
        'PASSWORD = "hunter2"',
        '-    return f"hello {name}"',  # it was added, and is quoted as if it were gone
        'if not name: return f"hello {name}"',  # what stands between is left out
        "if not name: ... raise ValueError",
        "DEF GREET(NAME):",
    ],
)
def test_what_does_not_stand_there_cannot(quote: str) -> None:
    assert not QuotableDiff(PATCH, MARK).holds(quote)


def test_a_short_line_can_be_quoted_as_a_whole_and_nothing_else_that_is_short() -> None:
    patch = file("x.py", "x = 1", "y = 100000")
    assert QuotableDiff(patch, MARK).holds("x = 1")
    assert QuotableDiff(patch, MARK).holds("+x = 1")
    assert not QuotableDiff(patch, MARK).holds("y = 1")
    assert len("y = 1000") == MIN_QUOTE_CHARS
    assert QuotableDiff(patch, MARK).holds("y = 1000")


def test_our_own_lines_cannot_be_quoted() -> None:
    told, _ = shorten_diff(BINARY, 60_000, MARK)
    assert not QuotableDiff(told, MARK).holds(f"[{MARK}: binary content is not shown]")
    assert not QuotableDiff(told, MARK).holds("binary content is not shown")


@settings(max_examples=50, deadline=None)
@given(st.text(), st.text())
def test_nothing_can_be_quoted_from_nothing(quote: str, mark: str) -> None:
    assert not QuotableDiff("", mark or MARK).holds(quote)


def test_only_what_is_binary_and_there_is_unsure() -> None:
    plain = "diff --git a/x b/x\nBinary files a/x and b/x differ\n"
    gone = "diff --git a/y b/y\ndeleted file mode 100644\nBinary files a/y and b/y differ\n"
    said = file("z", "Binary files a/z and b/z differ", "GIT binary patch")
    assert files_without_line_diff(plain + gone + said + BINARY) == ("x", "logo.png")
