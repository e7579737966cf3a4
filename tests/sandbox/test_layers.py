"""Mounts for engines that sort them by path: parents first, and nothing writable below what is only read."""

from __future__ import annotations

from pathlib import Path

import pytest

from ralphproof.sandbox.container import mount_points, order_mounts
from ralphproof.sandbox.plan import EMPTY_FOLDER, READ_ONLY, WRITABLE, Mount

USR, TMP, PROJECT = Mount(READ_ONLY, "/usr"), Mount(EMPTY_FOLDER, "/tmp"), Mount(WRITABLE, "/home/me/project")
MOVED = Mount(READ_ONLY, "/a", "/b")


@pytest.mark.parametrize(
    ("mounts", "points", "expected"),
    [
        ((PROJECT, USR), (), (USR, PROJECT)),
        # What a later one lies over is not there.
        ((Mount(READ_ONLY, "/home/me/project/a"), PROJECT), (), (PROJECT,)),
        ((PROJECT, Mount(READ_ONLY, "/home/me/project/a")), (), (PROJECT, Mount(READ_ONLY, "/home/me/project/a"))),
        ((USR, Mount(READ_ONLY, "/usr", "/opt/usr")), (), (Mount(READ_ONLY, "/usr", "/opt/usr"),)),
        # A file system below one that is read is named too, unless something else decides on it.
        ((USR,), ("/", "/usr", "/usr/local", "/home"), (USR, Mount(READ_ONLY, "/usr/local", "/usr/local"))),
        ((USR, Mount(WRITABLE, "/usr/local")), ("/usr/local",), (USR, Mount(WRITABLE, "/usr/local"))),
        ((USR, Mount(WRITABLE, "/usr/local")), ("/usr/local/x",), (USR, Mount(WRITABLE, "/usr/local"))),
        ((MOVED,), ("/b/deep/er",), (MOVED, Mount(READ_ONLY, "/a/deep/er", "/b/deep/er"))),
        ((MOVED,), ("/bc", "/a/x"), (MOVED,)),
        ((PROJECT,), ("/home/me/project/mounted",), (PROJECT,)),
        # The engine has these of its own.
        (
            (Mount(READ_ONLY, "/proc"), Mount(READ_ONLY, "/sys/devices/system"), Mount(READ_ONLY, "/dev/x"), TMP),
            (),
            (TMP,),
        ),
        (
            (Mount(READ_ONLY, "/"),),
            ("/proc", "/sys", "/run"),
            (Mount(READ_ONLY, "/"), Mount(READ_ONLY, "/run", "/run")),
        ),
    ],
)
def test_what_can_be_seen_is_laid_parents_first(
    mounts: tuple[Mount, ...], points: tuple[str, ...], expected: tuple[Mount, ...]
) -> None:
    assert order_mounts(mounts, points) == expected


def test_the_kernel_tells_where_file_systems_are(tmp_path: Path) -> None:
    table = tmp_path / "mountinfo"
    table.write_text(
        "21 1 8:1 / / rw shared:1 - ext4 /dev/a rw\n"
        "22 21 0:20 / /with\\040space\\134x rw - tmpfs none rw\n"
        "23 21 0:21 / / rw - tmpfs none rw\n"
    )
    assert mount_points(str(table)) == ("/", "/with space\\x")
    assert mount_points(str(tmp_path / "none")) == ()
