"""Names in a patch of plain folders."""

from __future__ import annotations

from ralphproof.workspaces.patch import patch


def test_a_name_cannot_put_lines_into_a_patch() -> None:
    made = patch(b"a\n+forged", None, (b"100644", "new"), lambda _: b"real\n")
    assert b"\n+forged" not in made
    assert b"a\\012+forged" in made
    assert b"\n+real\n" in made
