"""The settings of runners: which of them are pinned, and what a change of them means."""

from __future__ import annotations

import pytest

from tests.checks.pins.project import STOPS, TOLD, Pinned

Files = dict[str, str | None]
PYPROJECT = """\
[project]
name = "a"
[tool.pytest.ini_options]
testpaths = ["tests"]
addopts = "-q --cov=a --cov-fail-under=80"
[tool.coverage.report]
fail_under = 90
[tool.black]
line-length = 100
"""
INI = "[tool:pytest]\naddopts = -q\n[metadata]\nname = a\n[coverage:report]\nfail_under = 70\n"
JEST = '{"name": "a", "jest": {"bail": 1, "coverageThreshold": {"global": {"lines": 80}}}, "scripts": {"test": "jest"}}'

CHANGED: dict[str, tuple[str, Files, Files, list[tuple[str, bool]]]] = {
    "options of pytest": (
        "pytest", {"pyproject.toml": PYPROJECT}, {"pyproject.toml": PYPROJECT.replace('"-q ', '"-q -k nothing ')},
        [("pyproject.toml: [tool.pytest.ini_options] was changed: addopts", STOPS)]),
    "a threshold in options": (
        "pytest", {"pyproject.toml": PYPROJECT}, {"pyproject.toml": PYPROJECT.replace("under=80", "under=8")},
        [("pyproject.toml: [tool.pytest.ini_options] was changed: addopts --cov-fail-under lowered from 80 to 8",
          STOPS)]),
    "a threshold": (
        "python -m pytest", {"pyproject.toml": PYPROJECT}, {"pyproject.toml": PYPROJECT.replace("= 90", "= 9")},
        [("pyproject.toml: [tool.coverage.report] was changed: fail_under lowered from 90 to 9", STOPS)]),
    "a threshold is gone": (
        "coverage report", {"pyproject.toml": PYPROJECT}, {"pyproject.toml": PYPROJECT.replace("fail_under = 90", "")},
        [("pyproject.toml: [tool.coverage.report] is gone", STOPS)]),
    "a higher threshold": (
        "coverage report", {"pyproject.toml": PYPROJECT}, {"pyproject.toml": PYPROJECT.replace("= 90", "= 95")},
        [("pyproject.toml: [tool.coverage.report] was changed: fail_under raised from 90 to 95", STOPS)]),
    "all of them": (
        "pytest", {"pyproject.toml": PYPROJECT}, {"pyproject.toml": '[project]\nname = "a"\n'},
        [("pyproject.toml: [tool.coverage.report] is gone", STOPS),
         ("pyproject.toml: [tool.pytest.ini_options] is gone", STOPS)]),
    "other sections": (
        "pytest", {"pyproject.toml": PYPROJECT},
        {"pyproject.toml": PYPROJECT.replace("100", "80") + "[tool.x]\ny=1\n"}, []),
    "dependencies": (
        "pytest", {"pyproject.toml": PYPROJECT},
        {"pyproject.toml": PYPROJECT.replace('name = "a"', 'name = "a"\ndependencies = ["b"]')}, []),
    "another runner's section": (
        "true", {"pyproject.toml": PYPROJECT}, {"pyproject.toml": PYPROJECT.replace("-q", "-k x")}, []),
    "a marker more": (
        "pytest", {"pyproject.toml": PYPROJECT},
        {"pyproject.toml": PYPROJECT.replace("[tool.coverage", 'markers = ["slow"]\n[tool.coverage')},
        [("pyproject.toml: [tool.pytest.ini_options] was changed: markers", STOPS)]),
    "a file that cannot be read": (
        "pytest", {"pyproject.toml": PYPROJECT}, {"pyproject.toml": PYPROJECT + "[["},
        [("pyproject.toml: [tool.coverage.report] was changed: fail_under 90 is gone", STOPS),
         ("pyproject.toml: [tool.pytest.ini_options] was changed: addopts --cov-fail-under 80 is gone", STOPS),
         ("pyproject.toml: was changed", STOPS)]),
    "setup.cfg": (
        "pytest", {"setup.cfg": INI}, {"setup.cfg": INI.replace("-q", "-k x").replace("= a", "= b")},
        [("setup.cfg: [tool:pytest] was changed: addopts", STOPS)]),
    "tox": (
        "tox", {"tox.ini": "[testenv]\ncommands = pytest\n[pytest]\naddopts = -q\n"},
        {"tox.ini": "[testenv]\ncommands = pytest\n[pytest]\naddopts = -k x\n"},
        [("tox.ini: [pytest] was changed: addopts", STOPS)]),
    "tox's own": (
        "tox -e py", {"tox.ini": "[testenv]\ncommands = pytest\n"}, {"tox.ini": "[testenv]\ncommands = true\n"},
        [("tox.ini: [testenv] was changed: commands", STOPS)]),
    "in a folder": (
        "pytest sub/tests", {"sub/tests/pytest.ini": "[pytest]\naddopts = -q\n"},
        {"sub/tests/pytest.ini": "[pytest]\naddopts = -k x\n"},
        [("sub/tests/pytest.ini: [pytest] was changed: addopts", STOPS)]),
    "jest": (
        "npm test", {"package.json": JEST}, {"package.json": JEST.replace("1,", "0,").replace("80", "8")},
        [("package.json: jest was changed: coverageThreshold.global.lines lowered from 80 to 8", STOPS)]),
    "jest, through its escapes": (
        "npx jest", {"package.json": JEST.replace('"jest":', '"\\u006aest":')},
        {"package.json": JEST.replace('"jest":', '"\\u006aest":').replace("1,", "0,")},
        [("package.json: jest was changed: bail", STOPS)]),
    "a whole file": (
        "npx vitest run", {"vitest.config.ts": "export default {lines: 80}\n"},
        {"vitest.config.ts": "export default {lines: 8}\n"},
        [("vitest.config.ts: was changed: lines lowered from 80 to 8", STOPS)]),
    "a whole file is gone": (
        "mocha", {".mocharc.yml": "a: 1\n"}, {".mocharc.yml": None}, [(".mocharc.yml: is gone", STOPS)]),
    "what npm goes by": (
        "npm test", {".npmrc": "a=b\n"}, {".npmrc": "script-shell=true\n"}, [(".npmrc: was changed", STOPS)]),
    "a linter": (
        "ruff check .", {"ruff.toml": "select = ['E']\n"}, {"ruff.toml": "select = []\n"},
        [("ruff.toml: was changed", STOPS)]),
    "a type checker": (
        "mypy src", {"setup.cfg": "[mypy]\nstrict = true\n[mypy-a]\nx = 1\n"},
        {"setup.cfg": "[mypy]\n[mypy-a]\nx = 1\n"},
        [("setup.cfg: [mypy] was changed: strict", STOPS)]),
    "cargo": ("cargo test", {".cargo/config.toml": "[a]\n"}, {".cargo/config.toml": "[b]\n"},
              [(".cargo/config.toml: was changed", STOPS)]),
}  # fmt: skip


@pytest.mark.parametrize("case", CHANGED)
def test_a_change_of_what_configures_the_runner(pinned: Pinned, case: str) -> None:
    """RH-02"""
    command, before, after, told = CHANGED[case]
    pinned.write(before)
    pinned.begin(command)
    assert pinned.told() == []
    pinned.write(after)
    assert pinned.told() == told


NEW: dict[str, tuple[str, Files, Files, list[tuple[str, bool]]]] = {
    "harmless": (
        "pytest", {"pyproject.toml": "[project]\n"},
        {"pyproject.toml":
         "[tool.pytest.ini_options]\ntestpaths = ['tests']\nasyncio_mode = 'auto'\naddopts = '-ra -q'\n"},
        [("pyproject.toml: [tool.pytest.ini_options] is new; it configures pytest", TOLD)]),
    "options": (
        "pytest", {}, {"pytest.ini": "[pytest]\naddopts = -k nothing\n"},
        [("pytest.ini: [pytest] is new; it configures pytest: addopts", STOPS)]),
    "what a test is": (
        "pytest", {}, {"tox.ini": "[pytest]\npython_files = none\n"},
        [("tox.ini: [pytest] is new; it configures pytest: python_files", STOPS)]),
    "one that beats another": (
        "pytest", {"pyproject.toml": PYPROJECT}, {"pytest.ini": ""},
        [("pytest.ini: new; it configures pytest instead of pyproject.toml", STOPS)]),
    "one that another beats": (
        "pytest", {"pytest.ini": "[pytest]\n"}, {"setup.cfg": "[tool:pytest]\naddopts = -k x\n"},
        [("setup.cfg: [tool:pytest] is new; it configures pytest, but another file comes first", TOLD)]),
    "another runner, with a manifest": (
        "coverage report", {"pyproject.toml": "[project]\n"}, {".coveragerc": "[run]\nomit = *\n"},
        [(".coveragerc: [run] is new; it configures coverage", STOPS)]),
    "another runner, without one": (
        "coverage report", {}, {".coveragerc": "[run]\nomit = *\n"},
        [(".coveragerc: [run] is new; it configures coverage", TOLD)]),
    "of JavaScript, with a manifest": (
        "npx jest", {"package.json": "{}"}, {"jest.config.js": "module.exports = {}\n"},
        [("jest.config.js: new; it configures jest", STOPS)]),
    "of JavaScript, without one": (
        "npx jest", {"setup.py": ""}, {"package.json": "{}", "jest.config.js": "module.exports = {}\n"},
        [("jest.config.js: new; it configures jest", TOLD)]),
    "elsewhere": (
        "pytest", {}, {"examples/a/pytest.ini": "[pytest]\naddopts = -k x\n"},
        [("examples/a/pytest.ini: new; it configures pytest there", TOLD)]),
    "where the tests are": (
        "pytest tests", {"tests/test_a.py": ""}, {"tests/pytest.ini": "[pytest]\naddopts = -k x\n"},
        [("tests/pytest.ini: [pytest] is new; it configures pytest: addopts", STOPS)]),
}  # fmt: skip


@pytest.mark.parametrize("case", NEW)
def test_what_configures_the_runner_and_was_not_there(pinned: Pinned, case: str) -> None:
    """RH-02"""
    command, before, after, told = NEW[case]
    pinned.write(before)
    pinned.begin(command)
    pinned.write(after)
    assert pinned.told() == told
