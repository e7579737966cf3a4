"""`ralph doctor` on sandboxes: each kind is tried; what does not hold is said with the way to mend it."""

from __future__ import annotations

import os
from typing import Any

import pytest

from tests.boxes import needs
from tests.needs import require
from tests.ralph import Ralph

UID_MAP = 'echo "bwrap: setting up uid map: Permission denied" >&2; exit 1'
NO_NAMESPACE = (
    'echo "bwrap: No permissions to create new namespace, likely because the kernel does not allow" >&2; exit 1'
)


@pytest.fixture(autouse=True)
def _only_ours(ralph: Ralph) -> None:
    """No engine is on PATH: to start one takes seconds."""
    ralph.env["PATH"] = str(ralph.bin)


def told(ralph: Ralph, name: str, **env: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """What programs are told of one kind of sandbox: the item, and its data."""
    items = ralph("doctor", "--json", env=env).json["items"]
    item = next(item for item in items if item["name"].startswith(f"sandbox {name}"))
    return item, item["sandbox"]


def link(ralph: Ralph, *names: str) -> None:
    """Put programs of this machine on the PATH of the test."""
    for name in names:
        (ralph.bin / name).symlink_to(next(p for p in (f"/usr/bin/{name}", f"/bin/{name}") if os.path.exists(p)))


def test_a_kind_that_holds_is_said_to_with_its_strength(ralph: Ralph) -> None:
    needs("bubblewrap")
    link(ralph, "bwrap")
    item, data = told(ralph, "bubblewrap")
    assert (item["state"], item["text"]) == ("ok", "holds, strong")
    assert (data["works"], data["strength"], data["weak"], data["why"], data["mend"]) == (True, "strong", [], "", "")


@pytest.mark.parametrize(
    ("program", "why", "mend"),
    [
        ("", "bwrap is not installed", "apt install bubblewrap"),
        (UID_MAP, "setting up uid map: Permission denied", "AppArmor profile for bwrap that says `userns,`"),
        (NO_NAMESPACE, "No permissions to create new namespace", "sysctl kernel.unprivileged_userns_clone=1"),
        ("exit 0", "it cannot be entered", ""),
    ],
    ids=["missing", "AppArmor", "namespaces", "it does nothing"],
)
def test_a_kind_that_does_not_hold_is_a_note_with_the_way_to_mend_it(
    ralph: Ralph, program: str, why: str, mend: str
) -> None:
    if program:
        ralph.program("bwrap", program)
    item, data = told(ralph, "bubblewrap")
    assert (item["state"], data["works"], data["strength"]) == ("note", False, "none")
    assert why in item["text"]
    assert "Traceback" not in item["text"]
    assert mend in data["mend"]
    shown = ralph("doctor")
    assert shown.code == 0, "without a sandbox a run can start all the same"
    lines = shown.out.splitlines()
    at = next(place for place, line in enumerate(lines) if line.startswith("[NOTE] sandbox bubblewrap"))
    assert why in lines[at]
    assert (f"to mend it: {data['mend']}" in lines[at + 1]) == bool(mend)


def test_weak_points_stand_on_lines_of_their_own(ralph: Ralph) -> None:
    needs("landlock")
    _, data = told(ralph, "landlock")
    lines = ralph("doctor").out.splitlines()
    at = lines.index("[OK]   sandbox landlock: holds, partial")
    assert [line.strip() for line in lines[at + 1 :][: len(data["weak"])]] == [
        f"weak point: {one}" for one in data["weak"]
    ]
    assert data["weak"]
    assert all(len(line) < 140 for line in lines[at:][: len(data["weak"]) + 1])


def test_neither_of_dockers_programs_is_one_line_with_the_way_to_one(ralph: Ralph) -> None:
    _, data = told(ralph, "docker-sandbox")
    assert (data["works"], data["why"]) == (False, "neither sbx nor docker is installed")
    assert data["mend"].startswith("install Docker's sbx")


def test_a_program_of_dockers_that_only_answers_is_found_out(ralph: Ralph) -> None:
    ralph.program("sbx", f'echo "$1" >> {ralph.folder}/asked; case $1 in version) echo 1.0;; ls) echo "[]";; esac')
    link(ralph, "sh")
    _, data = told(ralph, "docker-sandbox")
    assert (data["works"], data["engine"], data["strength"]) == (False, "sbx", "none")
    assert data["why"].startswith("it cannot be entered")
    assert {"create", "exec"} <= set((ralph.folder / "asked").read_text().split())


def test_limits_are_named_with_their_means(ralph: Ralph) -> None:
    items = {item["name"]: item for item in ralph("doctor", "--json").json["items"]}
    assert " by " in items["sandbox limits"]["text"]


def test_a_project_that_cannot_be_put_into_one_is_told(ralph: Ralph) -> None:
    needs("landlock")
    shown = ralph("doctor", env={"HOME": str(ralph.root)}).out
    assert "[NOTE] sandbox: " in shown
    assert "holds your home folder" in shown


def test_a_project_of_somebody_else_is_told(ralph: Ralph) -> None:
    needs("landlock")
    require(os.geteuid() == 0, "root, who alone meets files of others so")
    os.chown(ralph.root, 65534, 65534)
    assert "belongs to user 65534" in ralph("doctor").out
