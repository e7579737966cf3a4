"""What a patch comes to, however large it is."""

from __future__ import annotations

import tracemalloc

from ralphproof.display.phrases import FileStat, parse_diffstat

TEXT = b"diff --git a/t b/t\nindex 1..2\n--- a/t\n+++ b/t\n@@ -1,3 +1,4 @@\n same\n-- old\n+++ new\n+diff --git x\n+\n"
EMPTY = b"diff --git a/e b/e\nnew file mode 100644\nindex 0..1\n"
BINARY = b"diff --git a/b b/b\nindex 1..2\nGIT binary patch\nliteral 3\nKcmZ\n\nliteral 0\nHcmV\n\n"
DIFFER = b"diff --git a/p b/p\nBinary files a/p and b/p differ\n"
QUOTED = b'diff --git "a/\\303\\244\\n" "b/\\303\\244\\n"\n--- a\n+++ b\n@@ -1 +1 @@\n-x\n+y\n\\ No newline\n'
MIB = 1 << 20


def test_the_lines_of_each_file_are_counted() -> None:
    found = [
        FileStat("t", 3, 1, False), FileStat("e", 0, 0, False), FileStat("b", 0, 0, True), FileStat("p", 0, 0, True),
        FileStat("ä\n", 1, 1, False),
    ]  # fmt: skip
    assert parse_diffstat(TEXT + EMPTY + BINARY + DIFFER + QUOTED) == found
    assert parse_diffstat(b"a word before\n" + EMPTY + TEXT.removesuffix(b"\n")) == [found[1], found[0]]
    assert parse_diffstat(b"") == parse_diffstat(b"diff") == parse_diffstat(b"no patch\n") == []


def test_a_large_patch_is_counted_where_it_lies() -> None:
    patch = TEXT + b"+a line of a large file\n" * (8 * MIB // 24) + EMPTY
    tracemalloc.start()
    try:
        found = parse_diffstat(patch)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert [file.added for file in found] == [3 + 8 * MIB // 24, 0]
    assert most < MIB
