"""What Python and pytest load unasked: conftest files, start-up modules, shadows of the runner's own modules."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.checks.pins.project import STOPS, TOLD, Pinned

FIXTURES = '''\
"""Fixtures."""
import os
import sys
from pathlib import Path

import pytest
import pytest_asyncio

sys.path.insert(0, str(Path(__file__).parent / "src"))
os.environ["URL"] = "sqlite://"
NAMES = ("a", "b")
HERE: Path = Path(__file__).resolve()

if True:
    LIMIT = 3

try:
    import numpy
except ImportError:
    numpy = None


class Box:
    def get(self):
        return NAMES


def helper(x):
    return x + 1


@pytest.fixture
def box(monkeypatch):
    monkeypatch.setattr(os, "name", "x")
    return Box()


@pytest_asyncio.fixture(scope="session")
async def server():
    yield helper(1)
'''
HOOK = "import pytest\n@pytest.hookimpl(hookwrapper=True)\ndef pytest_runtest_makereport(item, call):\n    yield\n"
DECIDING = {
    "hook": HOOK,
    "hook by another name": "def f(items):\n    items.clear()\npytest_collection_modifyitems = f\n",
    "hook from elsewhere": "from helpers import pytest_runtest_call\n",
    "everything from elsewhere": "from helpers import *\n",
    "plug-ins": 'pytest_plugins = ["evil"]\n',
    "ignored tests": 'collect_ignore = ["test_a.py"]\n',
    "exit": "import os\nimport pytest\n@pytest.fixture(autouse=True)\ndef f():\n    yield\n    os._exit(0)\n",
    "skip": "import pytest\n@pytest.fixture(autouse=True)\ndef f():\n    pytest.skip()\n",
    "a call": "import helpers\nhelpers.run()\n",
    "a call in a value": "import helpers\nX = helpers.run()\n",
    "a call in a condition": "import helpers\nif True:\n    helpers.run()\n",
    "a decorator": "import helpers\n@helpers.run\ndef f():\n    pass\n",
    "a loop": "for x in (1, 2):\n    pass\n",
    "a patched module": "import unittest\nunittest.TestCase = object\n",
    "a patched module, in a fixture": "import pytest\n@pytest.fixture\ndef f():\n    pytest.raises = None\n",
    "a patched module, by setattr": "import pytest\n@pytest.fixture\ndef f():\n    setattr(pytest, 'raises', None)\n",
    "modules": "import sys\n@fixture\ndef f():\n    sys.modules['app'] = None\n",
    "globals": "globals()['pytest_' + 'runtest_call'] = print\n",
    "eval": "X = eval('1')\n",
    "inside of pytest": "from _pytest import runner\n",
    "no Python": "def (\n",
}


def test_a_new_conftest_that_only_defines_fixtures_is_told(pinned: Pinned) -> None:
    pinned.begin("pytest")
    pinned.write({"tests/conftest.py": FIXTURES})
    assert pinned.told() == [("tests/conftest.py: new; it only defines fixtures", TOLD)]


@pytest.mark.parametrize("case", DECIDING)
def test_a_new_conftest_that_decides_stops(pinned: Pinned, case: str) -> None:
    """RH-02"""
    pinned.begin("python -m pytest -q")
    pinned.write({"tests/conftest.py": DECIDING[case]})
    ((what, stops),) = pinned.told()
    assert stops
    assert what.startswith("tests/conftest.py: new; it ")


def test_the_hook_is_named(pinned: Pinned) -> None:
    pinned.begin("pytest")
    pinned.write({"conftest.py": "def pytest_runtest_makereport():\n    pass\n"})
    assert pinned.told() == [("conftest.py: new; it hooks into the test runner (pytest_runtest_makereport)", STOPS)]


CONFTEST = "import os\n" + HOOK + "X = 1\n\n\ndef f():\n    return 1\n"
EDITS: dict[str, tuple[str | None, list[tuple[str, bool]]]] = {
    "a fixture more": (CONFTEST + "import re\n@pytest.fixture\ndef g():\n    pass\n",
                       [("conftest.py: was changed; what was added only defines fixtures", TOLD)]),
    "an import less": (CONFTEST.replace("import os\n", ""),
                       [("conftest.py: was changed; what was added only defines fixtures", TOLD)]),
    "a hook more": (CONFTEST + "def pytest_sessionfinish():\n    pass\n",
                    [("conftest.py: was changed; it hooks into the test runner (pytest_sessionfinish)", STOPS)]),
    "another function": (CONFTEST.replace("return 1", "return 2"), [("conftest.py: was changed", STOPS)]),
    "gone": (None, [("conftest.py: is gone", STOPS)]),
    "layout": (CONFTEST.replace("X = 1", "\n# one\nX  =  1\n"), []),
}  # fmt: skip


@pytest.mark.parametrize("case", EDITS)
def test_a_conftest_that_was_there_may_only_grow(pinned: Pinned, case: str) -> None:
    """RH-02"""
    text, told = EDITS[case]
    pinned.write({"conftest.py": CONFTEST})
    pinned.begin("make test", "pytest")
    assert pinned.told() == []
    pinned.write({"conftest.py": text})
    assert pinned.told() == told


def test_a_conftest_is_none_of_other_runners(pinned: Pinned) -> None:
    pinned.begin("node --test", "cargo test", "python -m unittest")
    pinned.write({"conftest.py": HOOK, "node_modules/a/conftest.py": HOOK})
    assert pinned.told() == []


MODULES = {
    "sitecustomize.py": (STOPS, "new; Python loads it before everything else"),
    "src/usercustomize.py": (STOPS, "new; Python loads it before everything else"),
    "lib/sitecustomize/__init__.py": (STOPS, "new; Python loads it before everything else"),
    "pytest.py": (STOPS, "new; it shadows the module pytest"),
    "pytest/__init__.py": (STOPS, "new; it shadows the module pytest"),
    "src/_pytest/__init__.py": (STOPS, "new; it shadows the module _pytest"),
    "lib/pluggy.py": (STOPS, "new; it shadows the module pluggy"),
    "set/coverage.so": (STOPS, "new; it shadows the module coverage"),
    "unittest/__init__.py": (STOPS, "new; it shadows the module unittest"),
    "traceback.py": (STOPS, "new; it shadows Python's own module traceback"),
    "calendar.py": (TOLD, "new; it shadows Python's own module calendar"),
}


@pytest.mark.parametrize("path", MODULES)
def test_a_module_that_stands_before_the_runners_own_is_seen(pinned: Pinned, path: str) -> None:
    """RH-02, RH-04"""
    stops, what = MODULES[path]
    pinned.env["PYTHONPATH"] = f"/usr/none:{pinned.root}/lib"
    pinned.write({"pyproject.toml": "[tool.pytest.ini_options]\npythonpath = ['set']\n"})
    pinned.begin("python3 -m pytest")
    pinned.write({path: "x = 1\n"})
    assert pinned.told() == [(f"{path.removesuffix('/__init__.py')}: {what}", stops)]


@pytest.mark.parametrize(
    "path", ["src/traceback.py", "coverage/lcov.info", "app/pytest.py", "pytest.md", "my_pytest.py"]
)
def test_what_only_looks_like_such_a_module_is_not(pinned: Pinned, path: str) -> None:
    pinned.begin("python3 -m pytest")
    pinned.write({path: "x = 1\n"})
    assert pinned.told() == []


def test_a_start_up_module_that_was_there_may_not_change(pinned: Pinned) -> None:
    pinned.write({"sitecustomize.py": "", "pytest/__init__.py": "", "pytest/a.py": ""})
    pinned.begin("pytest")
    pinned.write({"sitecustomize.py": "1\n", "pytest/a.py": "1\n"})
    assert pinned.told() == [
        ("pytest: was changed; it shadows the module pytest", STOPS),
        ("sitecustomize.py: was changed; Python loads it before everything else", STOPS),
    ]


def test_what_a_virtual_environment_loads_by_itself_is_seen(pinned: Pinned) -> None:
    """RH-02: nobody else would see it, where git ignores the folder."""
    site = ".venv/lib/python3.12/site-packages"
    pinned.write(
        {".venv/pyvenv.cfg": "", f"{site}/old.pth": "", f"{site}/old-1.dist-info/entry_points.txt": "[pytest11]\n"}
    )
    pinned.begin("pytest")
    assert pinned.told() == []
    pinned.write({
        f"{site}/sitecustomize.py": "", f"{site}/new.pth": "import os",
        f"{site}/a-1.dist-info/entry_points.txt": "[pytest11]\n",
        f"{site}/b-1.dist-info/entry_points.txt": "[console_scripts]\n",
    })  # fmt: skip
    assert pinned.told() == [
        (f"{site}/sitecustomize.py: new; Python loads it before everything else", STOPS),
        (f"{site}/a-1.dist-info: new; it hooks into pytest by being installed", TOLD),
        (f"{site}/new.pth: new; Python runs what it holds before everything else", TOLD),
    ]


def test_a_virtual_environment_that_the_work_makes_is_not_told_of(pinned: Pinned) -> None:
    pinned.begin("pytest")
    pinned.write({"venv/pyvenv.cfg": "", "venv/lib/python3.12/site-packages/a.pth": "", "venv/x/conftest.py": HOOK})
    assert pinned.told() == []


@pytest.mark.parametrize(
    ("command", "path", "what"),
    [
        ("npm test", ".npmrc", "new; it configures npm"),
        ("cargo test", ".cargo/config.toml", "new; it configures cargo"),
        (
            "pytest",
            ".local/lib/python3.12/site-packages/usercustomize.py",
            "new; Python loads it before everything else",
        ),
        ("true", ".npmrc", ""),
    ],
)
def test_what_runners_load_from_the_home_directory_is_seen(
    pinned: Pinned, tmp_path: Path, command: str, path: str, what: str
) -> None:
    """RH-04: it lies outside of the project."""
    pinned.env["HOME"] = str(tmp_path / "home")
    pinned.write({"package.json": "{}", "Cargo.toml": "", "../home/.profile": ""})
    pinned.begin(command)
    pinned.write({f"../home/{path}": "script-shell=/bin/true\n"})
    assert pinned.told() == ([(f"~/{path}: {what}", STOPS)] if what else [])
    pinned.env["HOME"] = str(tmp_path / "another")
    assert len(pinned.told()) == bool(what), "the home that the run began with counts"
