"""Rations: what is too much is refused by the kernel and said, and nothing of a command or its group is left."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ralphproof.sandbox import resource_limits
from ralphproof.sandbox.plan import ResourceLimits
from ralphproof.sandbox.resource_limits import (
    CGROUP_V1,
    CGROUP_V2,
    MEMORY,
    NO_LIMITS,
    PROCESSES,
    RLIMITS,
    SCOPE,
    LimitedCommand,
    find_limit_mechanism,
    systemd_scope,
)
from tests.needs import require
from tests.ralph import until
from tests.sandbox.fenced import OURSELVES, SOURCE, Person, stranger

RATIONED = str(Path(__file__).with_name("rationed.py"))
MIB = 1 << 20


def rationed(person: Person, memory: int, processes: int, what: str) -> dict[str, Any]:
    argv = [*person.prefix, person.python, "-I", "-S", RATIONED, str(SOURCE), str(memory), str(processes), what]
    ended = subprocess.run(argv, capture_output=True, text=True, timeout=60, cwd="/")
    assert ended.returncode == 0, ended.stderr
    told: dict[str, Any] = json.loads(ended.stdout)
    return told


@pytest.fixture
def group() -> dict[str, str]:
    """Where groups are made here."""
    by = find_limit_mechanism(ResourceLimits(128 * MIB, 30))
    require(
        by.name in (CGROUP_V1, CGROUP_V2) and len(by.enforced) == 2, f"cgroups that can be written; there is {by.name}"
    )
    return dict(by.parents)


def groups_in(parents: dict[str, str]) -> list[str]:
    return [name for parent in parents.values() for name in os.listdir(parent) if name.startswith("ralph-")]


def of(pid: int, names: list[str]) -> list[str]:
    return [name for name in names if name.split("-")[1] == str(pid)]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize(
    ("what", "code", "limit_reached", "said"),
    [("eat", -9, MEMORY, ""), ("rest", 0, "", "well\n")],
)
def test_too_much_memory_ends_a_program_and_is_said(
    what: str, code: int, limit_reached: str, said: str, group: dict[str, str]
) -> None:
    told = rationed(OURSELVES, 128 * MIB, 30, what)
    assert (told["code"], told["full"], told["said"]) == (code, limit_reached, said)
    assert told["held"] == [MEMORY, PROCESSES]


def test_memory_without_a_limit_is_eaten(group: dict[str, str]) -> None:
    told = rationed(OURSELVES, 0, 30, "eat")
    assert (told["code"], told["full"], told["held"]) == (0, "", [PROCESSES])


def test_a_fork_bomb_stops_at_the_count_and_is_gone_afterwards(group: dict[str, str]) -> None:
    told = rationed(OURSELVES, 0, 30, "fork")  # it tells only after all that it started have ended
    assert int(told["said"]) == 29
    assert told["full"] == PROCESSES


def test_the_limit_of_a_user_stops_a_fork_bomb_too() -> None:
    person = stranger()
    told = rationed(person, 128 * MIB, 20, "rest")
    require(told["name"] == RLIMITS, f"a user without groups; there is {told['name']}")
    assert told["held"] == [PROCESSES]


@pytest.mark.parametrize("processes", [10, 20])
def test_the_limit_of_a_user_counts_what_is_there_already(processes: int) -> None:
    person = stranger()
    program = (
        f"import json, os, sys; sys.path.append({str(SOURCE)!r})\n"
        "from ralphproof.sandbox.plan import ResourceLimits\n"
        "from ralphproof.sandbox.resource_limits import RLIMITS, LimitedCommand, LimitMechanism\n"
        f"LimitedCommand(LimitMechanism(RLIMITS, ('processes',)), ResourceLimits(0, {processes}), 'x').enter()\n"
        "children, refused = [], False\n"
        "try:\n"
        "    for _ in range(60):\n"
        "        child = os.fork()\n"
        "        if child == 0:\n"
        "            import time; time.sleep(60)\n"
        "        children.append(child)\n"
        "except OSError:\n"
        "    refused = True\n"
        "for child in children:\n"
        "    os.kill(child, 9)\n"
        "print(json.dumps([len(children), refused]))\n"
    )
    argv = [*person.prefix, person.python, "-I", "-S", "-c", program]
    count, refused = json.loads(subprocess.run(argv, capture_output=True, text=True, check=True, cwd="/").stdout)
    assert refused
    assert processes - 5 <= count <= processes + 5  # others of this user may come and go meanwhile


def test_nothing_is_left_of_a_group(group: dict[str, str]) -> None:
    enclosure = LimitedCommand(
        find_limit_mechanism(ResourceLimits(128 * MIB, 30)), ResourceLimits(128 * MIB, 30), "a name/with-more"
    )
    assert len(of(os.getpid(), groups_in(group))) == 2
    enclosure.close()
    enclosure.close()
    assert of(os.getpid(), groups_in(group)) == []


def test_looking_for_means_leaves_nothing(group: dict[str, str]) -> None:
    find_limit_mechanism(ResourceLimits(128 * MIB, 30))
    assert of(os.getpid(), groups_in(group)) == []


@pytest.mark.parametrize("taken_leave_of", [True, False])
def test_the_group_of_one_that_died_is_ended_by_the_next(group: dict[str, str], taken_leave_of: bool) -> None:
    argv = [sys.executable, "-I", "-S", RATIONED, str(SOURCE), str(128 * MIB), "30", "die"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        left = json.loads(process.stdout.readline())
        assert left["said"] == "asleep\n"
        os.waitid(os.P_PID, process.pid, os.WEXITED | (0 if taken_leave_of else os.WNOWAIT))
        assert alive(left["child"])
        assert len(of(process.pid, groups_in(group))) == 2
        ours = LimitedCommand(
            find_limit_mechanism(ResourceLimits(128 * MIB, 30)), ResourceLimits(128 * MIB, 30), "next"
        )
        try:
            assert of(process.pid, groups_in(group)) == []
            until(lambda: not alive(left["child"]), "what was left behind ends")
            assert len(of(os.getpid(), groups_in(group))) == 2
        finally:
            ours.close()


def test_groups_of_the_living_and_of_others_are_not_touched(group: dict[str, str]) -> None:
    parent = group[PROCESSES]
    own = resource_limits.cgroup_name("living")
    pid, begin, namespace = own.split("-")[1:4]
    kept = [own, f"ralph-{pid}-1-{namespace}1-other_machine", f"ralph-{pid}-later", f"other-{pid}-1-{namespace}-x"]
    stale = f"ralph-{pid}-1{begin}-{namespace}-x"
    for name in (*kept, stale):
        os.mkdir(f"{parent}/{name}")
    try:
        resource_limits.remove_stale_cgroups([parent])
        there = os.listdir(parent)
        assert {*kept} <= {*there}
        assert stale not in there
    finally:
        resource_limits.remove_cgroups(f"{parent}/{name}" for name in (*kept, stale))


def test_a_process_of_which_nothing_can_be_read_is_not_taken_for_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when no more files can be opened."""
    (tmp_path / resource_limits.cgroup_name("living")).mkdir()
    gone = tmp_path / resource_limits.cgroup_name("gone").replace(
        f"-{os.getpid()}-", "-99999999-"
    )  # more than there are
    gone.mkdir()

    def fail(_: int) -> list[bytes]:
        raise OSError(errno.EMFILE, "too many open files")

    monkeypatch.setattr(resource_limits, "stat_fields", fail)
    resource_limits.remove_stale_cgroups([str(tmp_path)])
    assert [one.name.rpartition("-")[2] for one in tmp_path.iterdir()] == ["living"]


def test_a_group_that_can_no_longer_be_made_holds_nothing_and_stops_nobody(group: dict[str, str]) -> None:
    limits = ResourceLimits(128 * MIB, 30)
    twin = LimitedCommand(find_limit_mechanism(limits), limits, "same")
    again = LimitedCommand(find_limit_mechanism(limits), limits, "same")  # its folders are there already
    assert again.enforced == ()
    again.enter()
    assert again.limit_reached() == ""
    again.close()
    twin.close()


def test_no_limits_need_no_means() -> None:
    by = find_limit_mechanism(ResourceLimits())
    assert (by.name, by.enforced, by.prefix) == (NO_LIMITS, (), ())
    enclosure = LimitedCommand(by, ResourceLimits(), "x")
    enclosure.enter()
    assert enclosure.limit_reached() == ""
    enclosure.close()


# A service manager that knows what it is asked, and says so in a file.
SYSTEMD_RUN = """#!/bin/sh
echo "$XDG_RUNTIME_DIR" "$@" >> {log}
{first}
while [ "$1" != -- ]; do shift; done
shift
exec "$@"
"""


@pytest.fixture
def manager(tmp_path: Path) -> Path:
    for name in ("bin", "run/systemd", "unified"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "run/systemd/private").touch()
    here = dict(line.split(":", 1) for line in ("x:x", Path("/proc/self/cgroup").read_text().strip().splitlines()[-1]))
    group = tmp_path / "unified" / here.get("0", ":").lstrip(":").lstrip("/")
    group.mkdir(parents=True, exist_ok=True)
    (tmp_path / "unified/cgroup.controllers").write_text("memory pids\n")
    (group / "memory.max").write_text("134217728\n")
    (group / "pids.max").write_text("30\n")
    return group


def asked(tmp_path: Path, first: str = "") -> tuple[str, ...]:
    (tmp_path / "bin/systemd-run").write_text(SYSTEMD_RUN.format(log=tmp_path / "log", first=first))
    (tmp_path / "bin/systemd-run").chmod(0o755)
    environ = {"PATH": f"{tmp_path}/bin:/usr/bin:/bin", "XDG_RUNTIME_DIR": f"{tmp_path}/run"}
    by = systemd_scope(ResourceLimits(128 * MIB, 30), environ, 1000, str(tmp_path / "unified"))
    assert by.name == SCOPE
    assert bool(by.prefix) == bool(by.enforced)
    return (*by.enforced, *by.prefix)


def test_a_manager_that_answers_is_asked_for_a_scope(tmp_path: Path, manager: Path) -> None:
    memory, processes, *prefix = asked(tmp_path)
    assert (memory, processes) == (MEMORY, PROCESSES)
    ended = subprocess.run(
        [*prefix, "sh", "-c", "echo ${XDG_RUNTIME_DIR-unset}"], env={}, capture_output=True, text=True
    )
    assert ended.stdout == "unset\n"
    told = (tmp_path / "log").read_text().splitlines()[-1]
    limits = "-p MemoryMax=134217728 -p MemorySwapMax=0 -p TasksMax=30"
    assert told.startswith(f"{tmp_path}/run --user --scope --quiet --collect {limits} -- ")


@pytest.mark.parametrize("first", ["exit 1", "sleep 60"])
def test_a_manager_that_fails_or_is_silent_is_no_means(
    first: str, tmp_path: Path, manager: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ralphproof.sandbox.resource_limits.PROBE_TIMEOUT_S", 0.3)
    assert asked(tmp_path, first) == ()


def test_a_scope_holds_what_its_group_says(tmp_path: Path, manager: Path) -> None:
    (manager / "memory.max").write_text("max\n")
    assert asked(tmp_path)[:2] != (MEMORY, PROCESSES)
    assert asked(tmp_path)[0] == PROCESSES


def test_without_a_manager_nobody_is_asked(tmp_path: Path, manager: Path) -> None:
    (tmp_path / "run/systemd/private").unlink()
    assert asked(tmp_path) == ()
    assert not (tmp_path / "log").exists()


def written(tmp_path: Path, path: str, current: dict[str, str], above: dict[str, str]) -> str:
    """A folder like /proc/self, of a process in this group of a file system of groups that is in the same place."""
    group = tmp_path / "fs" / path.lstrip("/")
    group.mkdir(parents=True)
    for folder, files in ((group, current), (group.parent, above)):
        for name, text in {"cgroup.procs": "", **files}.items():
            (folder / name).write_text(text)
    (tmp_path / "cgroup").write_text(f"1:name=systemd:/\n0::{path}\n")
    (tmp_path / "mountinfo").write_text(f"41 31 0:38 / {tmp_path}/fs rw,relatime - cgroup2 cgroup2 rw\n")
    return str(tmp_path)


ALL = "cpu memory pids\n"


@pytest.mark.parametrize(
    ("current", "above", "chosen"),
    [
        ({"cgroup.subtree_control": ALL}, {}, "fs/user/us"),
        ({}, {"cgroup.subtree_control": ALL}, "fs/user"),
        ({"memory.max": "max\n", "pids.max": "max\n"}, {"cgroup.subtree_control": ALL}, "fs/user"),
        # Beside it we would escape from its limits.
        ({"memory.max": "4096\n"}, {"cgroup.subtree_control": ALL}, ""),
        ({"cgroup.subtree_control": "pids\n"}, {"cgroup.subtree_control": "pids\n"}, ""),
        ({}, {}, ""),
    ],
)
def test_groups_of_version_2_are_made_where_controllers_are_handed_down(
    current: dict[str, str], above: dict[str, str], chosen: str, tmp_path: Path
) -> None:
    proc = written(tmp_path, "/user/us", current, above)
    found = resource_limits.cgroup_parents(CGROUP_V2, (MEMORY, PROCESSES), proc)
    assert found == (dict.fromkeys((MEMORY, PROCESSES), f"{tmp_path}/{chosen}") if chosen else {})


def test_a_group_outside_of_what_is_mounted_is_no_place(tmp_path: Path) -> None:
    proc = written(tmp_path, "/user/us", {"cgroup.subtree_control": ALL}, {})
    (tmp_path / "cgroup").write_text("0::/../user/us\n")
    assert resource_limits.cgroup_parents(CGROUP_V2, (MEMORY,), proc) == {}
