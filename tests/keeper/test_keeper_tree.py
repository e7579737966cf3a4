"""Finding processes, and ending what is found."""

from __future__ import annotations

import os

from ralphproof.keeper.tree import children


def test_children_are_found_however_many_there_are() -> None:
    many = [os.posix_spawn("/bin/true", ["true"], {}) for _ in range(1100)]  # their numbers fill more than a page
    try:
        assert set(many) <= set(children(os.getpid()))  # until they are waited for, the ended ones too
    finally:
        for pid in many:
            os.waitpid(pid, 0)
