from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ralphproof.settings.layers import user_settings_path
from ralphproof.settings.loader import read_settings_files
from tests.settings.project import Project


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{\n  // twelve\n  "maximumIterations": 12\n}', ":2:3: JSON has no comments"),
        (b'{\n  "maximumIterations": 12,\n}', ": JSON has no comma after the last entry"),
        (b'{"agent": {"flags": ["x",]}}', ": JSON has no comma after the last entry"),
        ('{"maximumIterations": 12}'.encode("utf-16"), ":1:1: is UTF-16 or UTF-32; save it as UTF-8"),
        ('{"maximumIterations": 12}'.encode("utf-16-le"), ":1:1: is UTF-16 or UTF-32; save it as UTF-8"),
        (b'{\n"a": "\xff"}', ":2:7: is not UTF-8"),
        (b"{'a': 1}", ":1:2: is not JSON: expecting property name"),
        (b"", ":1:1: is empty; write {} or remove it"),
        (b"\r\n  ", ":1:1: is empty; write {} or remove it"),
        (b"\xef\xbb\xbf", ":1:1: is empty; write {} or remove it"),
        (b"[1]", ": settings must be an object, not [1]"),
        (b"null", ": settings must be an object, not null"),
        (b'{"limits": {"maxCostUsd": NaN}}', ": holds a number that cannot be read: NaN is not JSON"),
        (b'{"maximumIterations": ' + b"9" * 5000 + b"}", ": holds a number that cannot be read"),
        (b'{"maximumIterations": 1, "maximumIterations": 2}', ": the key maximumIterations is given twice"),
        (b'{"agent": {"command": "a", "command": "a"}}', ": the key command is given twice"),
        (b"[" * 100_000, ": is nested too deeply"),
        (b'{"stages": ' * 40 + b"1" + b"}" * 40, ": is nested too deeply"),
        (b'{"a": "' + b" " * (1 << 20) + b'"}', ": is larger than 1 MiB"),
    ],
)
def test_a_file_that_is_not_settings_is_one_line_that_says_where(
    project: Project, content: bytes, message: str
) -> None:
    project.shared.write_bytes(content)
    (problem,) = project.problems()
    assert problem.startswith(".ralph/settings.json:")
    assert message in problem
    assert "\n" not in problem


@pytest.mark.parametrize("place", ["user", "shared", "local"])
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: path.mkdir(), "is a directory, not a file"),
        (lambda path: os.mkfifo(path), "is not a regular file"),
        (lambda path: path.symlink_to(path), "is a link that leads to itself"),
        (lambda path: path.symlink_to("nowhere"), "is a link to a file that does not exist"),
        (lambda path: path.symlink_to("/dev/zero"), "is not a regular file"),
    ],
)
def test_what_is_no_file_is_named_and_never_waited_for(
    project: Project, place: str, make: Callable[[Path], None], message: str
) -> None:
    path: Path = getattr(project, place)
    make(path)
    (problem,) = project.problems()
    assert problem.endswith(f"settings{'.local' if place == 'local' else ''}.json: {message}")


def test_a_file_that_may_not_be_read_is_refused(project: Project) -> None:
    project.write(project.shared, "{}")
    project.shared.chmod(0)
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        problems = project.problems()
    finally:
        if root:
            os.seteuid(0)
    assert ".ralph/settings.json: may not be read: permission denied" in problems


def test_a_ralph_folder_that_is_a_file_is_refused(project: Project) -> None:
    project.shared.parent.rmdir()
    project.shared.parent.write_text("")
    problems = project.problems()
    assert problems[0] == ".ralph/settings.json: cannot be read: a part of its path is not a directory"


@pytest.mark.parametrize(
    "content", [b'\xef\xbb\xbf{"maximumIterations": 12}', b'{\r\n"maximumIterations": 12\r\n}\r\n']
)
def test_a_byte_order_mark_and_windows_line_ends_are_accepted(project: Project, content: bytes) -> None:
    project.shared.write_bytes(content)
    assert project.load().settings.maximum_iterations == 12


def test_a_link_to_settings_elsewhere_is_followed(project: Project, tmp_path: Path) -> None:
    project.write(tmp_path / "elsewhere.json", {"maximumIterations": 12})
    project.shared.symlink_to(tmp_path / "elsewhere.json")
    assert project.load().settings.maximum_iterations == 12


def test_what_a_broken_file_may_have_said_is_not_missed(project: Project) -> None:
    project.write(project.shared, '{"maximumIterations": 5,')
    problems = project.problems({"preset": "wrapper"})
    assert len(problems) == 1
    assert problems[0].startswith(".ralph/settings.json:1:")


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"RALPH_CONFIG_DIR": "/c", "XDG_CONFIG_HOME": "/x", "HOME": "/h"}, "/c/settings.json"),
        ({"XDG_CONFIG_HOME": "/x", "HOME": "/h"}, "/x/ralphproof/settings.json"),
        ({"XDG_CONFIG_HOME": "relative", "HOME": "/h"}, "/h/.config/ralphproof/settings.json"),
        ({"HOME": "/h"}, "/h/.config/ralphproof/settings.json"),
    ],
)
def test_the_users_settings_lie_in_the_users_folder(environ: dict[str, str], expected: str) -> None:
    assert user_settings_path(environ) == expected


def test_files_are_remembered_as_read_and_absent_ones_too(project: Project) -> None:
    project.write(project.shared, "{}")
    loaded = project.load()
    assert [path for path, _ in loaded.files] == [str(project.user), str(project.shared), str(project.local)]
    assert [bool(digest) for _, digest in loaded.files] == [False, True, False]
    project.write(project.local, "{}")
    os.mkfifo(project.user)
    now = read_settings_files(str(project.root), {"RALPH_CONFIG_DIR": str(project.user.parent)})
    assert [file.digest for file in now] == ["unusable", loaded.files[1][1], loaded.files[1][1]]
