"""Containers: what an engine can do here, the order of its mounts, and its command line."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ralphproof.base.errors import Refused
from ralphproof.engine.sandbox import Command
from ralphproof.sandbox.container import (
    DOCKER,
    EMPTY_ARCHIVE,
    IMAGE,
    PODMAN,
    Container,
    ContainerEngine,
    container_name,
    inspect_engine,
    mount_points,
    order_mounts,
    run_arguments,
)
from ralphproof.sandbox.plan import (
    EMPTY_FOLDER,
    PROXY_SOCKET_FOLDER,
    READ_ONLY,
    TURN_VARIABLE,
    WRITABLE,
    BackendProblem,
    Mount,
    ResourceLimits,
    SandboxPlan,
)
from tests.needs import require
from tests.sandbox.fenced import SOURCE, stranger

# What `docker info --format '{{json .}}'` says, as far as it matters.
SERVED = {
    "ServerVersion": "28.2.2", "OperatingSystem": "Debian GNU/Linux 12 (bookworm)", "CgroupDriver": "systemd",
    "SecurityOptions": ["name=apparmor", "name=seccomp,profile=builtin", "name=cgroupns"],
}  # fmt: skip
ROOTLESS = {**SERVED, "SecurityOptions": ["name=seccomp,profile=builtin", "name=rootless"], "CgroupDriver": "none"}
DESKTOP = {**SERVED, "OperatingSystem": "Docker Desktop"}
UNSERVED = {"ServerErrors": ["Cannot connect to the Docker daemon at unix:///var/run/docker.sock."]}
ASK = """
import sys
sys.path.append(sys.argv[1])
from ralphproof.sandbox.container import inspect_engine
problem = inspect_engine("podman", "/usr/bin/podman", {"PATH": sys.argv[2]}).problem
print(problem.why if problem else "", problem.remedy if problem else "", sep="\\n")
"""


def docker(tmp_path: Path, said: Any, code: int = 0, **environ: str) -> ContainerEngine:
    """The engine behind a client that says this."""
    program = tmp_path / "docker"
    text = said if isinstance(said, str) else json.dumps(said)
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{text}\nEND\n[ {code} = 0 ] || echo 'no service' >&2\nexit {code}\n")
    program.chmod(0o755)
    return inspect_engine(DOCKER, str(program), {"PATH": os.environ["PATH"], **environ})


def test_docker_runs_containers_as_our_user(tmp_path: Path) -> None:
    engine = docker(tmp_path, SERVED, HOME="/home/me", SECRET="x")
    assert engine.problem is None
    assert engine.user == f"{os.getuid()}:{os.getgid()}"
    assert engine.limits_resources
    assert not engine.keeps_id
    assert engine.env == (("HOME", "/home/me"),)


def test_where_docker_has_no_rights_its_root_is_our_user(tmp_path: Path) -> None:
    engine = docker(tmp_path, ROOTLESS)
    assert (engine.problem, engine.user, engine.limits_resources) == (None, "0:0", False)


@pytest.mark.parametrize(
    ("said", "code", "environ", "why"),
    [
        (UNSERVED, 1, {}, "the docker service does not answer (no service)"),
        ("", 1, {}, "the docker service does not answer (no service)"),
        ("Usage: docker", 0, {}, "the docker service does not answer (Usage: docker)"),
        ("[]", 0, {}, "the docker service does not answer ([])"),
        ('{"SecurityOptions": null}', 0, {}, 'the docker service does not answer ({"SecurityOptions": null})'),
        (DESKTOP, 0, {}, "Docker Desktop runs containers in another machine"),
        (SERVED, 0, {"DOCKER_HOST": "tcp://10.0.0.1:2375"}, "DOCKER_HOST names another machine, which has other files"),
        (SERVED, 0, {"DOCKER_HOST": "ssh://me@there"}, "DOCKER_HOST names another machine, which has other files"),
    ],
)
def test_a_docker_that_is_of_no_use_says_why(
    said: Any, code: int, environ: dict[str, str], why: str, tmp_path: Path
) -> None:
    problem = docker(tmp_path, said, code, **environ).problem
    assert problem is not None
    assert problem.why == why
    assert "podman" in problem.remedy


def test_a_socket_of_ones_own_is_fine(tmp_path: Path) -> None:
    engine = docker(tmp_path, SERVED, DOCKER_HOST="unix:///run/user/1000/docker.sock")
    assert engine.problem is None
    assert engine.env == (("DOCKER_HOST", "unix:///run/user/1000/docker.sock"),)


def test_without_an_engine_that_is_said() -> None:
    engine = inspect_engine(PODMAN, None, {})
    assert engine.problem == BackendProblem(
        "neither podman nor docker is installed", engine.problem.remedy if engine.problem else ""
    )


def test_root_has_podman_without_more(tmp_path: Path) -> None:
    require(os.geteuid() == 0, "root")
    engine = inspect_engine(PODMAN, "/usr/bin/podman", {"HOME": "/home/me", "PATH": os.environ["PATH"]})
    require(engine.problem is None, f"podman: {engine.problem}")
    assert (engine.keeps_id, engine.user, engine.limits_resources) == (False, "", True)


@pytest.mark.parametrize(
    ("path", "why"), [("/nowhere", "newuidmap is not installed"), ("/usr/bin", "the user 12345 has no name")]
)
def test_podman_needs_a_user_who_can_have_others(path: str, why: str) -> None:
    person = stranger()
    require(path == "/nowhere" or os.path.exists("/usr/bin/newuidmap"), "newuidmap (uidmap)")
    argv = [*person.prefix, person.python, "-I", "-S", "-c", ASK, str(SOURCE), path]
    said = subprocess.run(argv, capture_output=True, text=True, cwd="/", check=True).stdout
    assert said.splitlines()[0] == why
    assert said.splitlines()[1]


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


ENGINES = (ContainerEngine(PODMAN, "/bin/podman"), ContainerEngine(DOCKER, "/bin/docker", "1000:1000"))
BOX = SandboxPlan("/project", "/home/me", "/store/1.tmp", ())

# Plays an engine: says what it was asked to a file, and fails where it is told to.
PROGRAM = """#!/usr/bin/env python3
import json, os, sys
here = os.path.dirname(__file__)
with open(os.path.join(here, "calls"), "a") as file:
    said = len(sys.stdin.buffer.read())
    print(json.dumps([*sys.argv[1:], said]), file=file)
refused = json.load(open(os.path.join(here, "refused")))
if sys.argv[1:3] == ["info", "--format"]:
    print(json.dumps({"ServerVersion": "28"}))
if any(sys.argv[1:1 + len(words)] == words for words in refused):
    sys.exit("it will not")
"""


@dataclass(frozen=True)
class Played:
    """An engine that is played, and what it was asked."""

    folder: Path
    kind: str

    @property
    def container(self) -> Container:
        return Container(self.kind, str(self.folder / "engine"))

    def asked(self) -> list[list[object]]:
        lines = (self.folder / "calls").read_text().splitlines() if (self.folder / "calls").exists() else []
        return [call for call in map(json.loads, lines) if call[0] != "info"]

    def refuses(self, *words: str) -> None:
        (self.folder / "refused").write_text(json.dumps([words]))


@pytest.fixture(params=[PODMAN, DOCKER])
def played(request: pytest.FixtureRequest, tmp_path: Path) -> Played:
    (tmp_path / "engine").write_text(PROGRAM)
    (tmp_path / "engine").chmod(0o755)
    made = Played(tmp_path, request.param)
    made.refuses("image")
    return made


def command(*, taken_up: bool = False, env: tuple[tuple[str, str], ...] = ()) -> Command:
    return Command(("true",), "/project", env, "/log", "/turn", "mark", taken_up=taken_up)


def argv(plan: SandboxPlan, engine: ContainerEngine, *names: str) -> list[str]:
    return list(run_arguments(plan, engine, plan.mounts, names))


def values(given: list[str], flag: str) -> list[str]:
    return [given[at + 1] for at, word in enumerate(given) if word == flag]


@pytest.mark.parametrize("engine", ENGINES, ids=[one.kind for one in ENGINES])
def test_both_engines_give_away_nothing(engine: ContainerEngine) -> None:
    given = argv(BOX, engine)
    assert given[0] == engine.program
    assert given[-1] == IMAGE
    assert {"--rm", "--interactive", "--read-only", "--init=false"} <= {*given}
    expected = {
        "--network": ["none"], "--cap-drop": ["all"], "--ipc": ["private"], "--pull": ["never"],
        "--security-opt": ["no-new-privileges", "label=disable"], "--workdir": ["/project"],
        "--mount": [f"type=bind,source=/store/1.tmp/meeting,target={PROXY_SOCKET_FOLDER},readonly"],
    }  # fmt: skip
    assert {flag: values(given, flag) for flag in expected} == expected
    assert not {"--privileged", "--volume", "--publish", "--device", "--pid", "--cap-add"} & {*given}


def test_what_only_podman_adds_is_switched_off_there() -> None:
    podman, docker = ({*argv(BOX, engine)} for engine in ENGINES)
    own = {"--replace", "--read-only-tmpfs=false", "--http-proxy=false", "--passwd=false", "--no-hosts", "--systemd"}
    assert own <= podman
    assert not own & docker


@pytest.mark.parametrize(
    ("engine", "flag", "expected"),
    [
        (ContainerEngine(PODMAN, "p", keeps_id=True), "--userns", ["keep-id"]),
        (ContainerEngine(PODMAN, "p"), "--userns", []),
        (ContainerEngine(DOCKER, "d", "0:0"), "--user", ["0:0"]),
        (ContainerEngine(PODMAN, "p", runtime="/bin/runc"), "--runtime", ["/bin/runc"]),
        (ContainerEngine(PODMAN, "p"), "--memory", ["5b"]),
        (ContainerEngine(PODMAN, "p"), "--pids-limit", ["7"]),
        (ContainerEngine(PODMAN, "p", limits_resources=False), "--memory", []),
        (ContainerEngine(PODMAN, "p", limits_resources=False), "--pids-limit", []),
        (ContainerEngine(PODMAN, "p", files=10, processes=20), "--ulimit", ["nofile=10:10", "nproc=20:20"]),
    ],
)
def test_what_an_engine_must_be_told_it_is_told(engine: ContainerEngine, flag: str, expected: list[str]) -> None:
    plan = SandboxPlan("/project", "/home/me", "/t", (), limits=ResourceLimits(5, 7))
    assert values(argv(plan, engine), flag) == expected


def test_without_a_limit_of_processes_the_engine_has_none_of_its_own() -> None:
    given = argv(BOX, ENGINES[0])
    assert values(given, "--pids-limit") == ["-1"]
    assert values(given, "--memory") == []


@pytest.mark.parametrize(
    ("mount", "flag", "expected"),
    [
        (Mount(READ_ONLY, "/usr"), "--mount", "type=bind,source=/usr,target=/usr,readonly"),
        (Mount(WRITABLE, "/a b:c", "/d"), "--mount", "type=bind,source=/d,target=/a b:c"),
        (Mount(WRITABLE, "/a,b"), "--mount", 'type=bind,"source=/a,b","target=/a,b"'),
        (Mount(WRITABLE, '/a"b'), "--mount", 'type=bind,"source=/a""b","target=/a""b"'),
        (Mount(READ_ONLY, "/{port}"), "--mount", "type=bind,source=/{port},target=/{port},readonly"),
        (Mount(EMPTY_FOLDER, "/tmp"), "--tmpfs", "/tmp:rw,exec,nosuid,nodev,mode=1777"),
    ],
)
def test_a_mount_is_written_as_engines_read_it(mount: Mount, flag: str, expected: str) -> None:
    assert values(argv(SandboxPlan("/p", "/h", "/t", (mount,)), ENGINES[0]), flag)[0] == expected


@pytest.mark.parametrize(
    "mount", [Mount(READ_ONLY, "/a\nb"), Mount(WRITABLE, "/a", "/b\r"), Mount(EMPTY_FOLDER, "/a:b")]
)
def test_a_path_that_cannot_be_written_so_is_refused(mount: Mount) -> None:
    with pytest.raises(Refused, match="choose a path without"):
        argv(SandboxPlan("/p", "/h", "/t", (mount,)), ENGINES[0])


def test_variables_come_inside_by_name_alone_unless_the_client_has_another_value() -> None:
    engine = ContainerEngine(PODMAN, "p", env=(("HOME", "/root"), ("DOCKER_HOST", "unix:///x")))
    plan = SandboxPlan("/p", "/home/me", "/t", (), variables=(("HOME", "/inside"), ("A", "secret")))
    assert values(argv(plan, engine, "HOME", "A", "B"), "--env") == ["HOME=/inside", "A", "B"]


def test_of_the_variables_of_a_command_those_come_inside_that_a_box_keeps(played: Played) -> None:
    container, plan = (
        played.container,
        SandboxPlan("/p", "/h", "/t", (), passed_variables=("KEPT", "LC_*"), variables=(("SET", "1"),)),
    )
    container.prepare(plan, command(env=(("KEPT", "1"), ("LC_ALL", "C"), ("SECRET", "x"), ("LC", "x"))))
    assert values(list(container.entry(plan).argv), "--env") == ["KEPT", "LC_ALL", "SET", TURN_VARIABLE]


def test_signals_are_passed_on_where_the_programs_of_a_container_are_not_below_the_engine(played: Played) -> None:
    assert played.container.entry(BOX).gets_group_signals == (played.kind == PODMAN)


def test_a_container_is_called_after_its_project_and_its_turn() -> None:
    other = (
        SandboxPlan("/project2", "/home/me", "/store/1.tmp", ()),
        SandboxPlan("/project", "/home/me", "/store/2.tmp", ()),
    )
    assert len({container_name(plan) for plan in (BOX, *other)}) == 3
    assert container_name(BOX) == container_name(
        SandboxPlan("/project", "/another", "/store/1.tmp", (Mount(READ_ONLY, "/usr"),))
    )


def test_the_image_is_made_of_nothing_and_once(played: Played) -> None:
    container = played.container
    assert [container.prepare(BOX, command()) for _ in range(2)] == ["", ""]
    asked = "exists" if played.kind == PODMAN else "inspect"
    made = [call for call in played.asked() if call[0] != "rm"]
    assert made == [["image", asked, IMAGE, 0], ["import", "-", IMAGE, len(EMPTY_ARCHIVE)]]


def test_an_image_that_is_there_is_used(played: Played) -> None:
    played.refuses("import")
    assert played.container.prepare(BOX, command()) == ""


def test_an_image_that_cannot_be_made_is_told(played: Played) -> None:
    (played.folder / "refused").write_text('[["image"], ["import"]]')
    assert played.container.prepare(BOX, command()) == "the empty image cannot be made: it will not"


@pytest.mark.parametrize(("taken_up", "count"), [(False, 1), (True, 0)])
def test_docker_is_rid_of_an_earlier_container_unless_it_is_taken_up(
    taken_up: bool, count: int, played: Played
) -> None:
    played.container.prepare(BOX, command(taken_up=taken_up))
    removed = [call for call in played.asked() if call[0] == "rm"]
    assert len(removed) == (0 if played.kind == PODMAN else count)


def test_afterwards_the_container_is_ended(played: Played) -> None:
    played.container.clean_up(BOX)
    how = ["--ignore", "--time", "0"] if played.kind == PODMAN else []
    assert played.asked() == [["rm", "--force", *how, container_name(BOX), 0]]


def test_a_file_that_the_engine_needs_and_cannot_make_is_named(played: Played, tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    plan = SandboxPlan("/p", "/h", "/t", (Mount(READ_ONLY, "/etc", str(tmp_path / "etc")),))
    assert played.container.prepare(plan, command()) == (
        "/etc/hostname is not there, and the engine needs it: sudo touch /etc/hostname"
    )
    for name in ("hostname", "hosts", "resolv.conf"):
        (tmp_path / "etc" / name).touch()
    assert played.container.prepare(plan, command()) == ""
