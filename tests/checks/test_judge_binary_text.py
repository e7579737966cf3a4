"""Text in binary content: what a work adds there can be found too."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ralphproof.checks.judge import added_lines, files_without_line_diff, find_negative_pattern, iter_binary_text

NOISE = random.Random(7).randbytes(20_000)


def patched(folder: Path, old: bytes | None, new: bytes, attributes: str = "") -> str:
    """What git says of a file that changes so."""
    (folder / "attributes").write_text(attributes)
    for name, content in (("old", old), ("new", new)):
        if content is not None:
            (folder / name).write_bytes(content)
    ran = subprocess.run(
        ["git", "-c", f"core.attributesFile={folder}/attributes", "diff", "--no-index", "--binary", "--full-index",
         "/dev/null" if old is None else "old", "new"], cwd=folder, capture_output=True,
    )  # fmt: skip
    return ran.stdout.decode()


@pytest.mark.parametrize(
    ("old", "new", "lines"),
    [
        (None, b"# TODO all\n\0\n", ["# TODO all"]),
        (None, "# TODO all\nmore".encode("utf-16"), ["# TODO all", "more"]),
        (b"kept\n\0\n", b"kept\nTODO\n\0\n", ["TODO"]),
        (None, NOISE + b"\0# TODO everything\0" + NOISE, ["# TODO everything"]),
        (b"\0" + NOISE, b"\0" + NOISE[:9000] + b"\0# TODO everything\0" + NOISE[9000:], ["# TODO everything"]),
        (b"\0TODO\n" + NOISE, b"\0", []),
        (None, NOISE, []),
    ],
)
def test_text_in_binary_content_is_legible(tmp_path: Path, old: bytes | None, new: bytes, lines: list[str]) -> None:
    patch = patched(tmp_path, old, new)
    assert "GIT binary patch" in patch
    assert list(added_lines(patch)) == []
    assert [line for _, line in iter_binary_text(patch)] == lines
    assert len(files_without_line_diff(patch)) == 1


def test_a_text_that_is_declared_binary_is_legible(tmp_path: Path) -> None:
    patch = patched(tmp_path, None, b"# TODO all\n", "* -diff\n")
    assert "GIT binary patch" in patch
    assert [line for _, line in iter_binary_text(patch)] == ["# TODO all"]


def test_a_pattern_in_binary_content_refuses_it(tmp_path: Path) -> None:
    patch = patched(tmp_path, None, b"# todo all\n\0\n")
    assert find_negative_pattern(("TODO",), "", patch) is None
    assert (
        find_negative_pattern(("TODO",), "", patch, tuple(iter_binary_text(patch)))
        == "'TODO' stands in a line added to 'new': '# todo all'"
    )


@given(st.text(st.characters(codec="ascii"), max_size=200))
def test_no_binary_patch_is_too_broken_to_be_looked_at(content: str) -> None:
    for kind in ("literal 5", "delta 5", ""):
        list(iter_binary_text(f"diff --git a/x b/x\nGIT binary patch\n{kind}\n{content}\n"))
