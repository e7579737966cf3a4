from __future__ import annotations

import os
from pathlib import Path

import pytest

from ralphproof.checks.discovery import discover_checks, parse_make_targets, propose_checks

MAKE = ".PHONY: test lint\nall: test\ntest:\n\tpytest\nlint: deps\n\truff check .\n"
NPM = '{"scripts": {"test": "vitest run", "lint": "eslint .", "typecheck": "tsc", "build": "x"}}'
STUB = '{"scripts": {"test": "echo \\"Error: no test specified\\" && exit 1"}}'
UNITTEST = "import unittest\n\nclass T(unittest.TestCase):\n    def test_it(self):\n        pass\n"
PYTEST = "[tool.pytest.ini_options]\naddopts = '-q'\n"


@pytest.mark.parametrize(
    ("files", "commands"),
    [
        ({}, []),
        ({"Makefile": MAKE}, ["make lint", "make test"]),
        ({"Makefile": MAKE, "makefile": "check:\n\ttrue\n"}, ["make check"]),
        ({"Makefile": MAKE, "pyproject.toml": PYTEST}, ["make lint", "make test"]),
        ({"Makefile": MAKE, "package.json": NPM}, ["make lint", "make test", "npm run typecheck"]),
        ({"Makefile": "build:\n\ttrue\n", "pyproject.toml": PYTEST}, ["python3 -m pytest -q"]),
        ({"Makefile": "check:\n\ttrue\n", "go.mod": "module x"}, ["make check"]),
        ({"package.json": NPM}, ["npm run lint", "npm run typecheck", "npm test"]),
        ({"package.json": NPM, "pnpm-lock.yaml": ""}, ["pnpm run lint", "pnpm run typecheck", "pnpm test"]),
        ({"package.json": NPM, "yarn.lock": ""}, ["yarn run lint", "yarn run typecheck", "yarn test"]),
        ({"package.json": NPM, "bun.lockb": ""}, ["bun run lint", "bun run typecheck", "bun run test"]),
        ({"package.json": STUB}, []),
        ({"package.json": '{"scripts": {"test": 3, "lint": " "}}'}, []),
        ({"package.json": '{"scripts": []}'}, []),
        ({"pyproject.toml": PYTEST}, ["python3 -m pytest -q"]),
        ({"pyproject.toml": PYTEST, "uv.lock": ""}, ["uv run pytest"]),
        ({"pyproject.toml": "[tool.pytest]\n"}, ["python3 -m pytest -q"]),
        ({"pytest.ini": "[pytest]\n"}, ["python3 -m pytest -q"]),
        ({"setup.cfg": "[metadata]\n", "tests/test_x.py": ""}, ["python3 -m pytest -q"]),
        ({"setup.cfg": "[metadata]\n"}, []),
        ({"setup.cfg": "[tool:pytest]\n"}, ["python3 -m pytest -q"]),
        ({"tox.ini": "[tox]\n"}, ["tox"]),
        ({"noxfile.py": ""}, ["nox"]),
        ({"tox.ini": "[tox]\n", "pytest.ini": "[pytest]\n"}, ["python3 -m pytest -q"]),
        ({"pyproject.toml": "[tool.ruff]\n[tool.mypy]\nfiles = ['src']\n"}, ["ruff check .", "mypy"]),
        ({"ruff.toml": "", "mypy.ini": "[mypy]\n", "uv.lock": ""}, ["uv run ruff check .", "uv run mypy ."]),
        ({"tests/test_x.py": UNITTEST}, ["python3 -m unittest discover -s tests"]),
        ({"test/test_x.py": UNITTEST}, ["python3 -m unittest discover -s test"]),
        ({"tests/test_x.py": UNITTEST, "tests/__init__.py": ""}, ["python3 -m unittest discover"]),
        ({"test_x.py": UNITTEST}, ["python3 -m unittest discover"]),
        ({"test_x.py": UNITTEST, "tests/test_y.py": UNITTEST},
         ["python3 -m unittest discover", "python3 -m unittest discover -s tests"]),
        ({"test_x.py": "def test_it():\n    pass\n"}, ["python3 -m pytest -q"]),
        ({"tests/test_x.py": "import pytest\n"}, ["python3 -m pytest -q"]),
        ({"tests/x_test.py": "async def test_it(): ...\n"}, ["python3 -m pytest -q"]),
        ({"tests/helpers.py": "", "contest_x.py": ""}, []),
        ({"conftest.py": ""}, ["python3 -m pytest -q"]),
        ({"tests/conftest.py": "", "tests/test_x.py": UNITTEST}, ["python3 -m pytest -q"]),
        ({"pyproject.toml": "[project.optional-dependencies]\ndev = ['pytest>=8']\n"}, ["python3 -m pytest -q"]),
        ({"pyproject.toml": "[project]\ndependencies = ['pytest ; extra == 1']\n"}, ["python3 -m pytest -q"]),
        ({"pyproject.toml": "[dependency-groups]\nall = [{include-group = 'x'}, 'PyTest_cov']\n"},
         ["python3 -m pytest -q"]),
        ({"pyproject.toml": "[tool.poetry.group.dev.dependencies]\npytest = '^8'\n"}, ["python3 -m pytest -q"]),
        ({"pyproject.toml": "[tool.poetry.dev-dependencies]\npytest = '^8'\n"}, ["python3 -m pytest -q"]),
        ({"pyproject.toml": "[project]\ndependencies = 'pytest'\n[dependency-groups]\nx = 3\n"}, []),
        ({"pyproject.toml": "[project]\ndependencies = ['pytestify', 'not-pytest']\n"}, []),
        ({"requirements-dev.txt": "# tools\npytest==8.1  # runner\n"}, ["python3 -m pytest -q"]),
        ({"requirements.txt": "# pytest\nrequests\n-r pytest.txt\n"}, []),
        ({"setup.cfg": "[options.extras_require]\ntest =\n    pytest\n"}, ["python3 -m pytest -q"]),
        ({"tox.ini": "[tox]\n[pytest]\n"}, ["python3 -m pytest -q"]),
        ({"noxfile.py": "", "tests/test_x.py": UNITTEST}, ["nox"]),
        ({"Makefile": MAKE, "tests/test_x.py": UNITTEST}, ["make lint", "make test"]),
        ({"Cargo.toml": "[package]\n"}, ["cargo test"]),
        ({"go.mod": "module x\n"}, ["go test ./..."]),
        ({"pyproject.toml": PYTEST, "go.mod": "module x\n"}, ["python3 -m pytest -q", "go test ./..."]),
    ],
)  # fmt: skip
def test_checks_are_proposed_from_the_projects_own_files(
    tmp_path: Path, files: dict[str, str], commands: list[str]
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    found = discover_checks(str(tmp_path))
    assert [proposal.command for proposal in found.proposals] == commands
    assert all(os.path.exists(tmp_path / proposal.source) for proposal in found.proposals)
    assert found.notes == ()


def put(path: Path, mode: int = 0o755) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("")
    path.chmod(mode)


@pytest.mark.parametrize(
    ("programs", "found", "commands"),
    [
        ([".venv/bin/python", "venv/bin/python"], ["python3", "python"], [".venv/bin/python -m pytest -q"]),
        (["venv/bin/python"], ["python3"], ["venv/bin/python -m pytest -q"]),
        ([], ["python3", "python"], ["python3 -m pytest -q"]),
        ([], ["python"], ["python -m pytest -q"]),
        ([], [], ["python3 -m pytest -q"]),
    ],
)
def test_the_projects_own_interpreter_comes_first(
    tmp_path: Path, programs: list[str], found: list[str], commands: list[str]
) -> None:
    for name in programs:
        put(tmp_path / "project" / name)
    for name in found:
        put(tmp_path / "bin" / name)
    put(tmp_path / "project/conftest.py")
    proposals = discover_checks(str(tmp_path / "project"), {"PATH": str(tmp_path / "bin")}).proposals
    assert [proposal.command for proposal in proposals] == commands


def test_tools_of_the_projects_own_environment_come_first(tmp_path: Path) -> None:
    put(tmp_path / ".venv/bin/ruff")
    put(tmp_path / "ruff.toml")
    put(tmp_path / "mypy.ini")
    assert [proposal.command for proposal in propose_checks(str(tmp_path))] == [".venv/bin/ruff check .", "mypy ."]


def test_tests_that_are_no_files_are_never_waited_for(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    os.mkfifo(tmp_path / "tests/test_x.py")
    os.mkfifo(tmp_path / "requirements.txt")
    discover_checks(str(tmp_path))


@pytest.mark.parametrize(
    ("text", "targets"),
    [
        ("test:\n\techo\n", ["test"]),
        ("test::\n", ["test"]),
        ("lint test: deps\n", ["lint", "test"]),
        ("test : deps\r\n", ["test"]),
        ("test:; echo x\n", ["test"]),
        ("# test:\n", []),
        ("\ttest:\n", []),
        ("  test: x\n", []),
        ("test := 1\n", []),
        ("test ::= 1\n", []),
        ("test = a:b\n", []),
        ("test: FLAGS = -v\n", []),
        ("test: export FLAGS := -v\n", []),
        ("define help\ntest: run them\nendef\nlint:\n", ["lint"]),
        (".PHONY: test\n", [".PHONY"]),
        ("echo 'test:'\n", ["echo", "'test"]),
        ("unit-test:\n", ["unit-test"]),
    ],
)
def test_only_rules_of_a_makefile_are_targets(text: str, targets: list[str]) -> None:
    assert parse_make_targets(text) == targets


@pytest.mark.parametrize(
    ("name", "content", "note"),
    [
        ("package.json", b"{oops", "package.json was passed over: 1:2: is not JSON"),
        ("package.json", b"[]", "package.json was passed over: it holds no object"),
        ("package.json", b'{"scripts": {"test": "a", "test": "b"}}', "package.json was passed over: the key test"),
        ("pyproject.toml", b"[tool", "pyproject.toml was passed over: "),
        ("Makefile", b"test:\n" + b"#" * (1 << 20), "Makefile was passed over: is larger than 1 MiB"),
        ("package.json", b"\xff\xfe{\0", "package.json was passed over: 1:1: is UTF-16"),
    ],
)
def test_malformed_files_are_passed_over_with_a_note(tmp_path: Path, name: str, content: bytes, note: str) -> None:
    (tmp_path / name).write_bytes(content)
    (tmp_path / "go.mod").write_text("module x\n")
    found = discover_checks(str(tmp_path))
    assert [proposal.command for proposal in found.proposals] == ["go test ./..."]
    assert len(found.notes) == 1
    assert found.notes[0].startswith(note)


def test_a_pipe_or_a_folder_named_like_a_file_is_never_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "Makefile")
    (tmp_path / "package.json").mkdir()
    assert propose_checks(str(tmp_path)) == ()
    assert len(discover_checks(str(tmp_path)).notes) == 2
