"""A diagram that no test holds will not hold: who may import whom."""

from __future__ import annotations

import ast
import sys

import pytest

from .source import GROUND, ROOMS, Import, files, found_in, imports_of, own, tree_of

# What the ground floor may use of the standard library: nothing that reads, waits, or looks around.
PURE = frozenset(
    (
        "__future__", "bisect", "collections", "errno", "functools", "hashlib", "heapq", "itertools", "json", "math",
        "operator", "re", "string", "unicodedata", "zlib",
    )
)  # fmt: skip
IMPURE_CALLS = frozenset(["open", "input", "print", "eval", "exec", "compile", "__import__", "breakpoint"])
DOORS = ("__main__.py", "keeper/__main__.py")
BASE = ("interpreter", "isolated")  # how Python is started: for everybody, and needs nothing of ours
TEMPORAL = tuple(
    f"fleet/{name}.py" for name in ("activities", "client", "connection", "governing", "worker", "workflows")
)


def floor_of(module: str) -> str:
    """Where a module of ours belongs: ground, a folder's name, or the package itself."""
    first = module.partition(".")[0]
    if first in GROUND:
        return "ground"
    return first or "package"


def may_import(file: str, module: str) -> bool:
    """Whether a file may import a module of ours."""
    home, goal = floor_of(file.removesuffix(".py").replace("/", ".")), floor_of(module)
    if goal == "package" or goal == home:
        return True
    if home in BASE or goal in BASE:
        return goal == "interpreter" and home not in ("ground", "__init__", "interpreter")
    match home:
        case "ground" | "__init__":
            return False
        case "__main__" | "cli" | "api":  # Python is a door like the command line
            return goal not in ("__main__", "api")
        case "config":
            return goal in ("ground", *ROOMS)
        case "views":  # the read model puts together what several rooms know
            return goal in ("ground", *ROOMS, "config", "display")
        case "tui" | "web":  # doors to look through: they are handed the rest
            return goal in ("ground", "display", "views")
        case "fleet":  # what it needs of a run is handed to it
            return goal in ("ground", *ROOMS, "views")
        case "hooks":  # one of them is the door of the command guard
            return goal in ("ground", "guard")
        case _:
            return goal == "ground"


def above(file: str, module: str) -> bool:
    """Whether a module of the ground floor stands above a file of it."""
    return module == "" or (module in GROUND and GROUND.index(module) < GROUND.index(file.removesuffix(".py")))


GROUND_FILES = [f"{name}.py" for name in GROUND]
OTHERS = [file for file in files() if file not in GROUND_FILES]


def test_the_ground_floor_is_complete() -> None:
    flat = {file for file in files() if "/" not in file}
    assert flat == {*GROUND_FILES, *(f"{name}.py" for name in BASE), "__init__.py", "__main__.py", "api.py"}


@pytest.mark.parametrize("file", GROUND_FILES)
def test_a_ground_file_imports_only_ground_files_above_it(file: str) -> None:
    ours = [(found, own(found.module)) for found in imports_of(file)]
    wrong = [
        str(found)
        for found, module in ours
        if module is not None and not (module in GROUND if found.typing_only else above(file, module))
    ]
    assert wrong == []


@pytest.mark.parametrize("file", GROUND_FILES)
def test_the_ground_floor_touches_nothing(file: str) -> None:
    foreign = [found for found in imports_of(file) if own(found.module) is None and not found.typing_only]
    assert [str(found) for found in foreign if found.module.partition(".")[0] not in PURE] == []
    calls = [node.func for node in ast.walk(tree_of(file)) if isinstance(node, ast.Call)]
    allowed = {"exec"} if file == "value.py" else set()  # it compiles what dataclasses would compile for every class
    impure = IMPURE_CALLS - allowed
    assert [call.id for call in calls if isinstance(call, ast.Name) and call.id in impure] == []


@pytest.mark.parametrize("file", OTHERS)
def test_rooms_and_doors_keep_to_their_direction(file: str) -> None:
    found = [(found, own(found.module)) for found in imports_of(file)]
    found = [(one, module) for one, module in found if not (file == "__init__.py" and one.typing_only)]
    assert [str(one) for one, module in found if module is not None and not may_import(file, module)] == []


def _allowed(file: str) -> set[str]:
    """The packages of others that a file may import."""
    if file == "agents/price.py":
        return {"genai_prices"}
    if file == "agents/provider_call.py":
        return {"pydantic_ai"}
    if file == "observers/deliver.py":
        return {"apprise"}
    if file.startswith("observers/otel"):
        return {"opentelemetry"}
    if file in ("cli/charts.py", "cli/plots.py"):
        return {"matplotlib", "plotext"}
    if file.startswith("plans/"):
        return {"ruamel"}
    if file.startswith("tui/"):
        return {"textual", "rich"}
    if file.startswith("web/"):
        return {"starlette", "uvicorn"}
    if file == "fleet/artifacts.py":
        return {"fsspec"}
    if file in TEMPORAL:
        return {"temporalio"}
    if file == "guard/tree.py":
        return {"tree_sitter", "tree_sitter_bash"}
    return {"msgspec"} if file.startswith("agents/") else set()


@pytest.mark.parametrize("file", files())
def test_other_peoples_packages_stay_in_their_room(file: str) -> None:
    foreign = [found for found in imports_of(file) if own(found.module) is None]
    allowed = {*sys.stdlib_module_names, *_allowed(file)}
    assert [str(one) for one in foreign if one.module.partition(".")[0] not in allowed] == []


def test_only_the_program_and_the_keeper_are_started_by_name() -> None:
    assert [file for file in files() if file.endswith("__main__.py")] == sorted(DOORS)
    doors = {f"ralphproof.{door.removesuffix('.py').replace('/', '.')}" for door in DOORS}
    assert [str(found) for file in files() for found in imports_of(file) if found.module in doors] == []


# file, its source, what the rules find in it
RULES = [
    ("claim.py", "import os", "a foreign module"),
    ("claim.py", "def f():\n    import time", "a foreign module"),
    ("claim.py", "from ralphproof.loop import Loop", "a file below"),
    ("claim.py", "from ralphproof import loop", "a file below"),
    ("claim.py", "from .loop import Loop", "a file below"),
    ("claim.py", "from ralphproof.agent import Turn", ""),
    ("claim.py", "if TYPE_CHECKING:\n    import typing\n    from ralphproof.loop import Loop", ""),
    ("agents/claude.py", "from ralphproof.keeper import client", "another room"),
    ("agents/claude.py", "from ..keeper import client", "another room"),
    ("agents/claude.py", "if TYPE_CHECKING:\n    from ralphproof.keeper.client import Keeper", "another room"),
    ("agents/claude.py", "from ralphproof.agents import lines", ""),
    ("agents/claude.py", "from . import lines", ""),
    ("agents/claude.py", "from ralphproof.config.load import load", "another room"),
    ("config/build.py", "from ralphproof.keeper.client import Keeper", ""),
    ("config/build.py", "from ralphproof.display.words import x", "another room"),
    ("display/words.py", "from ralphproof.config.load import load", "another room"),
    ("display/words.py", "from ralphproof.verdict import Outcome", ""),
    ("cli/run.py", "from ralphproof.config.load import load", ""),
    ("config/load.py", "from ralphproof.cli.run import main", "another room"),
    ("config/load.py", "import importlib\nimportlib.import_module('ralphproof.cli.run')", "another room"),
    ("__init__.py", "from ralphproof.loop import Loop", "another room"),
]


def broken(file: str, source: str) -> str:
    found: list[Import] = list(found_in(ast.parse(source), file))
    for one in found:
        module = own(one.module)
        if file in GROUND_FILES:
            if module is None and not one.typing_only and one.module not in PURE:
                return "a foreign module"
            if module is not None and not one.typing_only and not above(file, module):
                return "a file below"
        elif module is not None and not may_import(file, module):
            return "another room"
    return ""


@pytest.mark.parametrize(("file", "source", "fault"), RULES)
def test_the_rules_see_what_they_forbid(file: str, source: str, fault: str) -> None:
    assert broken(file, source) == fault
