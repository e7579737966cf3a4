"""What an engine can do here: docker's answers as they were recorded, and podman's needs."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ralphproof.sandbox.container import DOCKER, PODMAN, ContainerEngine, inspect_engine
from ralphproof.sandbox.plan import BackendProblem
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
