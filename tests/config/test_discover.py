from __future__ import annotations

import os
from pathlib import Path

import pytest

from ralphproof.config.discover import AGENTS, find_agent, make_targets, propose_checks, survey

MAKE = ".PHONY: test lint\nall: test\ntest:\n\tpytest\nlint: deps\n\truff check .\n"
NPM = '{"scripts": {"test": "vitest run", "lint": "eslint .", "typecheck": "tsc", "build": "x"}}'
STUB = '{"scripts": {"test": "echo \\"Error: no test specified\\" && exit 1"}}'
PYTEST = "[tool.pytest.ini_options]\naddopts = '-q'\n"


@pytest.mark.parametrize(
    ("files", "commands"),
    [
        ({}, []),
        ({"Makefile": MAKE}, ["make lint", "make test"]),
        ({"Makefile": MAKE, "makefile": "check:\n\ttrue\n"}, ["make check"]),
        ({"Makefile": MAKE, "pyproject.toml": PYTEST}, ["make lint", "make test"]),
        ({"Makefile": MAKE, "package.json": NPM}, ["make lint", "make test", "npm run typecheck"]),
        ({"Makefile": "build:\n\ttrue\n", "pyproject.toml": PYTEST}, ["python -m pytest -q"]),
        ({"Makefile": "check:\n\ttrue\n", "go.mod": "module x"}, ["make check"]),
        ({"package.json": NPM}, ["npm run lint", "npm run typecheck", "npm test"]),
        ({"package.json": NPM, "pnpm-lock.yaml": ""}, ["pnpm run lint", "pnpm run typecheck", "pnpm test"]),
        ({"package.json": NPM, "yarn.lock": ""}, ["yarn run lint", "yarn run typecheck", "yarn test"]),
        ({"package.json": NPM, "bun.lockb": ""}, ["bun run lint", "bun run typecheck", "bun run test"]),
        ({"package.json": STUB}, []),
        ({"package.json": '{"scripts": {"test": 3, "lint": " "}}'}, []),
        ({"package.json": '{"scripts": []}'}, []),
        ({"pyproject.toml": PYTEST}, ["python -m pytest -q"]),
        ({"pyproject.toml": PYTEST, "uv.lock": ""}, ["uv run pytest"]),
        ({"pyproject.toml": "[tool.pytest]\n"}, ["python -m pytest -q"]),
        ({"pytest.ini": "[pytest]\n"}, ["python -m pytest -q"]),
        ({"setup.cfg": "[metadata]\n", "tests/test_x.py": ""}, ["python -m pytest -q"]),
        ({"setup.cfg": "[metadata]\n"}, []),
        ({"setup.cfg": "[tool:pytest]\n"}, ["python -m pytest -q"]),
        ({"tox.ini": "[tox]\n"}, ["tox"]),
        ({"noxfile.py": ""}, ["nox"]),
        ({"tox.ini": "[tox]\n", "pytest.ini": "[pytest]\n"}, ["python -m pytest -q"]),
        ({"pyproject.toml": "[tool.ruff]\n[tool.mypy]\nfiles = ['src']\n"}, ["ruff check .", "mypy"]),
        ({"ruff.toml": "", "mypy.ini": "[mypy]\n", "uv.lock": ""}, ["uv run ruff check .", "uv run mypy ."]),
        ({"Cargo.toml": "[package]\n"}, ["cargo test"]),
        ({"go.mod": "module x\n"}, ["go test ./..."]),
        ({"pyproject.toml": PYTEST, "go.mod": "module x\n"}, ["python -m pytest -q", "go test ./..."]),
    ],
)  # fmt: skip
def test_checks_are_proposed_from_the_projects_own_files(
    tmp_path: Path, files: dict[str, str], commands: list[str]
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    found = survey(str(tmp_path))
    assert [proposal.command for proposal in found.proposals] == commands
    assert all(os.path.exists(tmp_path / proposal.source) for proposal in found.proposals)
    assert found.notes == ()


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
    assert make_targets(text) == targets


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
    found = survey(str(tmp_path))
    assert [proposal.command for proposal in found.proposals] == ["go test ./..."]
    assert len(found.notes) == 1
    assert found.notes[0].startswith(note)


def test_a_pipe_or_a_folder_named_like_a_file_is_never_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "Makefile")
    (tmp_path / "package.json").mkdir()
    assert propose_checks(str(tmp_path)) == ()
    assert len(survey(str(tmp_path)).notes) == 2


def test_the_first_known_agent_is_found_wherever_it_is_on_path(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    for folder, name, mode in ((one, "codex", 0o755), (one, "claude", 0o644), (two, "amp", 0o755)):
        folder.mkdir(exist_ok=True)
        (folder / name).write_text("")
        (folder / name).chmod(mode)
    (one / "pi").mkdir()
    path = f"{two}{os.pathsep}{one}"
    assert find_agent({"PATH": path}) == "codex"
    (one / "claude").chmod(0o755)
    assert find_agent({"PATH": path}) == "claude"
    assert find_agent({"PATH": str(two)}) == "amp"
    assert find_agent({"PATH": ""}) is None
    assert find_agent({}) is None


def test_an_agent_that_the_project_brings_along_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / AGENTS[0]).write_text("")
    (tmp_path / AGENTS[0]).chmod(0o755)
    monkeypatch.chdir(tmp_path)
    assert find_agent({"PATH": os.pathsep.join(("", ".", "bin"))}) is None
