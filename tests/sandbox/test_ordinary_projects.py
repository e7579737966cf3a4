"""Checks of ordinary projects pass inside as they do outside, and write nothing into the user's caches."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ralphproof.sandbox.ecosystems import NPM
from tests.needs import require
from tests.sandbox.sight import Home

RALPH = (sys.executable, "-m", "ralphproof", "sandbox", "run", "--sandbox=bubblewrap", "--")
TIMEOUT_S = 240.0
SITE = sysconfig.get_path("purelib")
OWN, THROW_AWAY = "own", "throw-away"
UNIT = """
import unittest

class Test(unittest.TestCase):
    def test_sum(self):
        self.assertEqual(1 + 1, 2)
"""


@dataclass
class Machine:
    """A user's home, a project, and the same project beside it for what is run outside."""

    folder: Path
    home: Home
    env: dict[str, str] = field(default_factory=dict)
    path: list[str] = field(default_factory=list)

    @property
    def project(self) -> Path:
        return self.folder / "project"

    def put(self, name: str, text: str, mode: int = 0o644) -> None:
        Home(self.project).put(name, text=text, mode=mode)

    def run(self, prefix: tuple[str, ...], argv: tuple[str, ...], cwd: Path) -> subprocess.CompletedProcess[str]:
        path = os.pathsep.join((*self.path, os.environ["PATH"]))
        env = {
            **os.environ,
            "HOME": str(self.home),
            "PATH": path,
            "RALPH_STATE_DIR": f"{self.folder}/state",
            **self.env,
        }
        return subprocess.run([*prefix, *argv], cwd=cwd, env=env, capture_output=True, text=True, timeout=TIMEOUT_S)

    def inside(self, *argv: str) -> subprocess.CompletedProcess[str]:
        return self.run(RALPH, argv, self.project)

    def passes(self, *argv: str) -> str:
        """Run it outside and inside: both pass. What it says inside."""
        beside = self.folder / "beside"
        shutil.rmtree(beside, ignore_errors=True)
        shutil.copytree(self.project, beside, symlinks=True)
        outside, inside = self.run((), argv, beside), self.inside(*argv)
        assert outside.returncode == 0, outside.stdout + outside.stderr
        assert inside.returncode == 0, inside.stdout + inside.stderr
        return inside.stdout + inside.stderr

    def contents(self, name: str) -> set[str]:
        return {str(path.relative_to(self.home.path)) for path in (self.home.path / name).rglob("*")}


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    require(shutil.which("bwrap") is not None, "bwrap: apt install bubblewrap")
    made = Machine(tmp_path, Home(tmp_path / "home"))
    made.project.mkdir()
    return made


@pytest.fixture(params=[pytest.param(OWN, marks=pytest.mark.thorough), THROW_AWAY])
def somewhere(machine: Machine, request: pytest.FixtureRequest) -> Machine:
    """With the home of whoever runs this, of which only tools are used; and with one that is empty."""
    if request.param == OWN:
        machine.home = Home(Path(os.path.expanduser("~")))
    else:
        toolchains = os.environ.get("RUSTUP_HOME") or os.path.expanduser("~/.rustup")
        machine.env |= {"RUSTUP_HOME": toolchains} if os.path.isdir(toolchains) else {}
    return machine


# Python


def environment(place: Path, pip: bool = False) -> Path:
    """A virtual environment that has what these tests are run with."""
    venv.create(place, with_pip=pip, symlinks=True)
    (site,) = (place / "lib").glob("python*/site-packages")
    (site / "tests.pth").write_text(f"{SITE}\n")
    (place / "bin/pytest").write_text(f"#!{place}/bin/python\nimport sys, pytest\nsys.exit(pytest.main())\n")
    (place / "bin/pytest").chmod(0o755)
    return place


def test_a_plain_python_project(somewhere: Machine) -> None:
    somewhere.put("pyproject.toml", '[project]\nname = "demo"\n')
    somewhere.put("test_demo.py", UNIT)
    assert "OK" in somewhere.passes("python3", "-m", "unittest")


@pytest.mark.thorough
@pytest.mark.parametrize("where", ["project/.venv", "home/venvs/demo", "home/.pyenv/versions/work"])
def test_pytest_of_an_environment_in_the_project_in_the_home_and_of_pyenv(machine: Machine, where: str) -> None:
    made = environment(machine.folder / where)
    machine.put("pyproject.toml", '[project]\nname = "demo"\n')
    machine.put("test_demo.py", UNIT)
    program = f"{made}/bin/pytest"
    if ".pyenv" in where:
        shim = f'#!/bin/sh\nexport PYENV_ROOT="{machine.home}/.pyenv"\n'
        shim += 'exec "$PYENV_ROOT/libexec/pyenv" exec "${0##*/}" "$@"\n'
        machine.home.put(".pyenv/shims/pytest", text=shim, mode=0o755)
        machine.home.put(
            ".pyenv/libexec/pyenv", text='#!/bin/sh\nshift\nexec "$PYENV_ROOT/versions/work/bin/$@"\n', mode=0o755
        )
        machine.path, program = [f"{machine.home}/.pyenv/shims"], "pytest"
    elif where.startswith("home"):
        machine.path, program = [f"{made}/bin"], "pytest"
        machine.env["VIRTUAL_ENV"] = str(made)
    assert "1 passed" in machine.passes(program, "-q", "-p", "no:cacheprovider", "test_demo.py")


def wheel(folder: Path) -> None:
    """A package of its own, as pip installs it."""
    folder.mkdir(parents=True, exist_ok=True)
    info = "demo_dep-1.0.dist-info"
    files = {
        "demo_dep.py": "def two():\n    return 2\n",
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: demo-dep\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{name},,\n" for name in (*files, f"{info}/RECORD"))
    with zipfile.ZipFile(folder / "demo_dep-1.0-py3-none-any.whl", "w") as archive:
        for name, text in {**files, f"{info}/RECORD": record}.items():
            archive.writestr(name, text)


@pytest.mark.thorough
@pytest.mark.parametrize("where", ["project", "home"])
def test_packages_are_installed_from_a_folder_and_the_cache_of_the_user_stays_as_it_is(
    machine: Machine, where: str
) -> None:
    environment(machine.project / ".venv", pip=True)
    machine.home.put(".cache/pip/http/kept", text="x")
    machine.put("requirements.txt", "demo-dep\n")
    machine.put("test_demo.py", UNIT.replace("1 + 1", "__import__('demo_dep').two()"))
    wheel(machine.folder / where / "wheels")
    if where == "home":
        machine.env["PIP_FIND_LINKS"] = f"{machine.home}/wheels"
    python = ".venv/bin/python -m"
    install = f"{python} pip install -q --no-index --find-links {machine.folder}/{where}/wheels -r requirements.txt"
    told = machine.inside("sh", "-c", f"{install} && {python} unittest -q && {python} pip cache dir")
    assert told.returncode == 0, told.stdout + told.stderr
    cache = told.stdout.strip().splitlines()[-1]
    assert cache.startswith(f"{machine.folder}/state/")
    assert machine.contents(".cache") == {".cache/pip", ".cache/pip/http", ".cache/pip/http/kept"}


# Node


def packed(name: str = "demo-dep") -> bytes:
    """A package as npm packs it, with a program of its own."""
    files = {
        "package/package.json": json.dumps(
            {"name": name, "version": "1.0.0", "main": "main.js", "bin": {name: "cli.js"}}
        ),
        "package/main.js": "exports.two = () => 2;\n",
        "package/cli.js": "#!/usr/bin/env node\nconsole.log('from the program');\n",
    }
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as archive:
        for path, text in files.items():
            entry = tarfile.TarInfo(path)
            entry.size, entry.mode = len(text), 0o755
            archive.addfile(entry, io.BytesIO(text.encode()))
    return data.getvalue()


def node_project(machine: Machine, resolved: str, data: bytes) -> None:
    require(shutil.which("node") is not None and shutil.which("npm") is not None, "node and npm: apt install npm")
    version = resolved if resolved.startswith("file:") else "1.0.0"
    package = {"name": "demo", "version": "1.0.0", "dependencies": {"demo-dep": version}}
    integrity = "sha512-" + base64.b64encode(hashlib.sha512(data).digest()).decode()
    dep = {"version": "1.0.0", "resolved": resolved, "integrity": integrity, "bin": {"demo-dep": "cli.js"}}
    lock = {**package, "lockfileVersion": 3, "packages": {"": package, "node_modules/demo-dep": dep}}
    machine.put("package.json", json.dumps({**package, "scripts": {"test": "node --test && demo-dep"}}))
    machine.put("package-lock.json", json.dumps(lock))
    machine.put(
        "demo.test.js",
        "require('node:test')('two', () => require('node:assert').equal(require('demo-dep').two(), 2));\n",
    )


def test_a_plain_node_project(somewhere: Machine) -> None:
    require(shutil.which("node") is not None, "node: apt install npm")
    somewhere.put("package.json", '{"name": "demo"}')
    somewhere.put("demo.test.js", "require('node:test')('one', () => {});\n")
    assert "pass 1" in somewhere.passes("node", "--test")


@pytest.mark.thorough
def test_a_node_project_with_a_package_from_a_file(machine: Machine) -> None:
    data = packed()
    node_project(machine, "file:demo-dep-1.0.0.tgz", data)
    (machine.project / "demo-dep-1.0.0.tgz").write_bytes(data)
    assert "from the program" in machine.passes(
        "sh", "-c", "npm ci --offline && npm test && node_modules/.bin/demo-dep"
    )


@pytest.mark.thorough
def test_a_node_project_with_a_package_from_the_cache_which_is_not_written(machine: Machine) -> None:
    data = packed()
    node_project(machine, f"https://{NPM.hosts[0]}/demo-dep/-/demo-dep-1.0.0.tgz", data)
    (machine.folder / "demo-dep-1.0.0.tgz").write_bytes(data)
    added = machine.run((), ("npm", "cache", "add", "./demo-dep-1.0.0.tgz"), machine.folder)
    assert added.returncode == 0, added.stderr
    machine.home.put(".npmrc", text=f"//{NPM.hosts[0]}/:_authToken=secret\n")
    before = machine.contents(".npm/_cacache")
    told = machine.inside("sh", "-c", "npm ci --offline && npm test; code=$?; cat ~/.npmrc; exit $code")
    assert told.returncode == 0, told.stdout + told.stderr
    assert "secret" not in told.stdout
    assert machine.contents(".npm/_cacache") == before
    refused = machine.inside("sh", "-c", "touch ~/.npm/_cacache/planted")
    assert "Read-only file system" in refused.stderr


# Rust


def rust_project(machine: Machine, dependencies: str = "", body: str = "2") -> None:
    require(shutil.which("cargo") is not None, "cargo: apt install cargo")
    machine.put(
        "Cargo.toml", f'[package]\nname = "demo"\nversion = "0.1.0"\nedition = "2021"\n[dependencies]\n{dependencies}'
    )
    machine.put("src/lib.rs", f"#[test]\nfn two() {{ assert_eq!({body}, 2); }}\n")


@pytest.mark.thorough
def test_a_plain_rust_project(somewhere: Machine) -> None:
    rust_project(somewhere)
    assert "1 passed" in somewhere.passes("cargo", "test", "--offline")
    assert (somewhere.project / "target/debug").is_dir()


@pytest.mark.thorough
def test_a_rust_project_with_packages_in_the_users_home_which_is_not_written(machine: Machine) -> None:
    toolchains = os.environ.get("RUSTUP_HOME") or os.path.expanduser("~/.rustup")
    machine.env |= {"RUSTUP_HOME": toolchains} if os.path.isdir(toolchains) else {}
    rust_project(machine, 'demo-dep = "1"\n', "demo_dep::two()")
    kept = ".cargo/registry/kept/demo-dep"
    machine.home.put(f"{kept}/Cargo.toml", text='[package]\nname = "demo-dep"\nversion = "1.0.0"\nedition = "2021"\n')
    machine.home.put(f"{kept}/src/lib.rs", text="pub fn two() -> u8 { 2 }\n")
    machine.home.put(f"{kept}/.cargo-checksum.json", text='{"files": {}, "package": null}')
    told = (
        f'[source.crates-io]\nreplace-with = "kept"\n[source.kept]\ndirectory = "{machine.home}/.cargo/registry/kept"\n'
    )
    machine.home.put(".cargo/config.toml", text=told)
    machine.home.put(".cargo/credentials.toml", text='[registry]\ntoken = "secret"\n')
    assert "1 passed" in machine.passes("cargo", "test", "--offline")
    tried = machine.inside("sh", "-c", "cat ~/.cargo/credentials.toml; touch ~/.cargo/registry/planted")
    assert "secret" not in tried.stdout
    assert "Read-only file system" in tried.stderr
    assert not (machine.home.path / ".cargo/registry/planted").exists()


# Where projects lie


def test_for_root_a_project_in_a_folder_that_is_its_own(machine: Machine) -> None:
    """What only root may enter of /opt is covered inside; the project in it is there all the same."""
    require(os.geteuid() == 0, "root")
    made = "mount -t tmpfs none /opt && mkdir -p /opt/own/project && echo secret > /opt/own/key && chmod 700 /opt/own"
    prefix = ("unshare", "--mount", "sh", "-c", f'{made} && cd /opt/own/project && "$@" && ls', "sh", *RALPH)
    told = machine.run(prefix, ("sh", "-c", "pwd; cat ../key; touch made"), machine.project)
    assert told.stdout == "/opt/own/project\nmade\n", told.stderr


def test_git_works_and_sees_nothing_that_is_not_the_users(machine: Machine) -> None:
    machine.home.put(".gitconfig", text="[user]\n\tname = U\n\temail = u@x\n")
    machine.home.put(".config/git/ignore", text="*.swp\n")
    machine.run((), ("git", "init", "-q"), machine.project)
    shutil.rmtree(machine.project / ".git/info")
    machine.put("a", "x")
    machine.put("b.swp", "x")
    told = machine.inside(
        "sh", "-c", "git add -A && git commit -qm first && git show --name-only --format=%an && git status -s"
    )
    assert told.stdout.split() == ["U", "a"], told.stderr
    assert sorted(os.listdir(machine.project)) == [".git", "a", "b.swp"]
    assert not (machine.project / ".git/info").exists()
