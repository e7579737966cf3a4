"""The order of the packages: a package imports only those before it."""

from __future__ import annotations

import ast
from collections import defaultdict

import pytest

from tests.house.source import SOURCE, Import, files, found_in, imports_of, outline_of, own

PACKAGE_ORDER = (
    "base", "engine", "process", "settings", "guard", "workspace", "store", "agents", "sandbox", "checks", "evidence",
    "tasks", "stories", "display", "views", "reports", "proof", "runs", "planning", "landing", "api", "fleet", "hooks",
    "adversarial", "tui", "web", "setup", "cli",
)  # fmt: skip
PROGRAM = ("__main__",)  # above all packages
DATA = ("plugin", "presets", "skills", "templates")  # folders without code
DOORS = ("__main__.py", "process/__main__.py")


def package_of(module: str) -> str:
    """The package of a module that is named without `ralphproof.`."""
    return module.partition(".")[0]


def points_upward(file: str, found: Import) -> bool:
    """Whether a file imports from a package after its own."""
    home, module = package_of(file.removesuffix(".py").replace("/", ".")), own(found.module)
    if not module or home in PROGRAM:
        return False
    if home == "__init__":  # the public names, loaded at their first use
        return not found.typing_only
    return PACKAGE_ORDER.index(package_of(module)) > PACKAGE_ORDER.index(home)


def test_the_order_names_every_package() -> None:
    there = {path.stem for path in SOURCE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert there - {"__init__", *PROGRAM} == set(PACKAGE_ORDER)
    assert {path.name for path in SOURCE.iterdir() if path.is_dir()} - {"__pycache__"} - there == set(DATA)


def test_imports_point_downward() -> None:
    assert [str(found) for file in files() for found in imports_of(file) if points_upward(file, found)] == []


@pytest.mark.parametrize(
    ("file", "source", "upward"),
    [
        ("engine/claims.py", "from ralphproof.base.value import value", False),
        ("engine/claims.py", "from ralphproof.engine import loop", False),
        ("engine/claims.py", "from ralphproof.store import ledger", True),
        ("engine/claims.py", "from ..store import ledger", True),
        ("engine/claims.py", "def f():\n    import ralphproof.store.ledger", True),
        ("engine/claims.py", "if TYPE_CHECKING:\n    from ralphproof.store.ledger import Ledger", True),
        ("engine/claims.py", "import importlib\nimportlib.import_module('ralphproof.cli.run')", True),
        ("api.py", "from ralphproof.landing import queue", False),
        ("api.py", "from ralphproof.cli import run", True),
        ("__init__.py", "from ralphproof.engine.loop import Loop", True),
        ("__main__.py", "from ralphproof.cli.dispatch import dispatch", False),
    ],
)
def test_an_upward_import_is_seen(file: str, source: str, upward: bool) -> None:
    assert any(points_upward(file, found) for found in found_in(ast.parse(source), file)) is upward


def test_only_the_program_and_the_keeper_are_started_by_name() -> None:
    assert [file for file in files() if file.endswith("__main__.py")] == sorted(DOORS)
    doors = {f"ralphproof.{door.removesuffix('.py').replace('/', '.')}" for door in DOORS}
    assert [str(found) for file in files() for found in imports_of(file) if found.module in doors] == []


def test_no_two_value_classes_share_a_name() -> None:
    """The name of a value class is its kind in JSON."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for file in files():
        for name, decorators in outline_of(file).classes:
            if "value" in decorators:
                found[name].add(file)
    assert found
    assert {name: sorted(places) for name, places in found.items() if len(places) > 1} == {}
