"""Trying a sandbox out: one that holds is told from one that does not, and from one that cannot be entered."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from ralphproof.sandbox.bubblewrap import Bubblewrap
from ralphproof.sandbox.landlock import Landlock
from ralphproof.sandbox.selection import APPARMOR_REMEDY, create_backends, run_self_test, try_backends
from tests.needs import require
from tests.sandbox.fake_docker import FakeDocker

# Enters nothing: all that is said before the program is passed over.
OPEN = f"""#!{sys.executable}
import os, sys
at = sys.argv.index("-I") - 1
os.execv(sys.argv[at], sys.argv[at:])
"""
BROKEN = "#!/bin/sh\necho '{}' >&2\nexit 1\n"
WAYS = [
    "files outside the project can be written", "files outside the project can be read",
    "this machine's ports can be reached", "other processes can be signalled", "protected paths can be written",
]  # fmt: skip
FOR_ROOT = ["it has capabilities", "what the kernel starts by itself can be set"]


def playing(tmp_path: Path, text: str) -> Bubblewrap:
    program = tmp_path / "bwrap"
    program.write_text(text)
    program.chmod(0o755)
    return Bubblewrap(str(program))


def test_one_that_holds_nothing_is_found_out(tmp_path: Path) -> None:
    problem = run_self_test(playing(tmp_path, OPEN), os.environ)
    assert problem is not None
    assert problem.why.startswith("it was tried, and ")
    for way in (*WAYS, *(FOR_ROOT if os.geteuid() == 0 else ())):
        assert way in problem.why


@pytest.mark.parametrize("kind", ["docker", "sbx"])
def test_another_machine_is_tried_too_and_one_that_held_is_not_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    require(shutil.which("bwrap") == "/usr/bin/bwrap", "bubblewrap, which plays the machine")
    fake = FakeDocker(tmp_path / "docker")
    monkeypatch.setenv("RALPH_STATE_DIR", str(tmp_path / "state"))
    environ = fake.environ(kind)
    fake.options(open=True)
    (tried_out,) = try_backends("docker-sandbox", environ, "/nowhere")
    assert tried_out.problem is not None
    for way in WAYS[:-1]:
        assert way in tried_out.problem.why
    fake.options()
    assert [one.problem for one in try_backends("docker-sandbox", environ, "/nowhere")] == [None]
    assert (fake.sandboxes(), os.listdir(tmp_path / "state/docker-sandbox")) == ({}, [f"tried-{kind}"])
    fake.forget_calls()
    assert [one.problem for one in try_backends("docker-sandbox", environ, "/nowhere")] == [None]
    assert fake.calls("create") == []
    fake.options(open=True)
    os.utime(fake.path(kind))
    assert [one.problem is None for one in try_backends("docker-sandbox", environ, "/nowhere")] == [False], (
        "it is another program"
    )


@pytest.mark.parametrize(
    ("said", "mend"),
    [
        ("bwrap: setting up uid map: Permission denied", APPARMOR_REMEDY),
        ("bwrap: loopback: Failed RTM_NEWADDR: Operation not permitted", APPARMOR_REMEDY),
        ("bwrap: No permissions to create new namespace",
         "allow user namespaces: sysctl kernel.unprivileged_userns_clone=1"),
        ("something else", ""),
    ],
)  # fmt: skip
def test_one_that_cannot_be_entered_is_told_with_how_to_mend_it(said: str, mend: str, tmp_path: Path) -> None:
    problem = run_self_test(playing(tmp_path, BROKEN.format(said)), os.environ)
    assert problem is not None
    assert problem.why == f"it cannot be entered: {said}"
    assert problem.remedy == mend


def test_bubblewrap_holds_here() -> None:
    program = shutil.which("bwrap")
    require(program is not None, "bubblewrap")
    problem = run_self_test(Bubblewrap(program), os.environ)
    require(problem is None, f"bubblewrap: {problem}")


def test_landlock_holds_here() -> None:
    require(Landlock().problem() is None, "a kernel with Landlock")
    assert run_self_test(Landlock(), os.environ) is None


@pytest.mark.thorough
def test_a_container_holds_here() -> None:
    (backend, *_) = create_backends("container", os.environ, "/nowhere")
    require(backend.problem() is None, f"podman: {backend.problem()}")
    assert run_self_test(backend, os.environ) is None


def test_nothing_is_left_of_a_trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "temp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temp"))
    run_self_test(playing(tmp_path, OPEN), os.environ)
    assert os.listdir(tmp_path / "temp") == []
