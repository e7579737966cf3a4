"""Start-up budgets: which slow modules `--version`, `status`, hooks and the keeper may load."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.source import SOURCE, files, imports_of, own

# Standard modules that take longer to load than our own code takes to run, by what may load them.
SLOW = frozenset(
    (
        "asyncio", "dataclasses", "enum", "inspect", "logging", "pathlib", "subprocess", "tempfile", "typing",
        "importlib.metadata", "tomllib", "difflib", "urllib.request", "http.client", "email", "socket", "threading",
    )
)  # fmt: skip
PARSING = frozenset(["argparse", "json", "sqlite3"])
INSTALLED = frozenset(
    (
        "apprise", "fsspec", "genai_prices", "matplotlib", "msgspec", "opentelemetry", "plotext", "pydantic_ai", "rich",
        "ruamel", "starlette", "temporalio", "textual", "tree_sitter", "tree_sitter_bash", "uvicorn",
    )
)  # fmt: skip


def loaded_by(*statements: str, cwd: Path | None = None, env: dict[str, str] | None = None) -> set[str]:
    """The modules that an interpreter has loaded after these statements, without those that it loads by itself."""
    path = f"import sys; sys.path.insert(0, {str(SOURCE.parent)!r})"
    tell = "import atexit; atexit.register(lambda: print(*sorted(sys.modules), file=sys.stderr))"
    code = "\n".join([path, tell, *statements])
    ran = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, cwd=cwd, input="{}",
        env={**os.environ, **(env or {})},
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    return set(ran.stderr.splitlines()[-1].split())


@pytest.fixture(scope="module")
def bare() -> set[str]:
    return loaded_by()


@pytest.fixture(scope="module")
def with_re() -> set[str]:
    """`re` and what it loads by itself."""
    return loaded_by("import re, hashlib")


def command(*argv: str) -> str:
    main = f"sys.argv[1:] = {list(argv)!r}; from ralphproof.__main__ import main; main()"
    return f"try:\n    {main}\nexcept SystemExit:\n    pass"


def test_the_package_alone_loads_nothing(bare: set[str]) -> None:
    assert loaded_by("import ralphproof") - bare == {"ralphproof"}


@pytest.mark.parametrize(
    ("argv", "may_load"),
    [
        (("--version",), frozenset()),
        (("status",), PARSING),
        (("hook", "stop"), frozenset({"json"})),
        (("hook", "post-tool-use"), frozenset({"json"})),
        (("hook", "session-start"), frozenset({"json"})),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, tuple) else "",
)
def test_a_quick_command_loads_nothing_slow(
    argv: tuple[str, ...], may_load: frozenset[str], with_re: set[str], tmp_path: Path
) -> None:
    (tmp_path / ".git").mkdir()
    env = {"HOME": str(tmp_path), "RALPH_STATE_DIR": str(tmp_path / "state"), "CLAUDE_PROJECT_DIR": str(tmp_path)}
    loaded = loaded_by(command(*argv), cwd=tmp_path, env=env) - with_re
    assert loaded & (SLOW | PARSING | INSTALLED) - may_load == set()


def test_the_version_is_told_without_loading_other_modules(bare: set[str]) -> None:
    loaded = loaded_by(command("--version")) - bare
    assert {name for name in loaded if name.startswith("ralphproof.")} == {"ralphproof.__main__"}


def test_the_keeper_loads_nothing_slow(bare: set[str]) -> None:
    loaded = loaded_by("import ralphproof.process.keeper") - bare
    assert "ralphproof.process.keeper" in loaded
    assert loaded & (SLOW | PARSING | INSTALLED | {"re", "signal", "hashlib"}) == set()


def test_the_script_player_loads_nothing_slow(bare: set[str]) -> None:
    script = """p.parse_json('{"iterations": [[{"text": "x"}]]}')"""
    loaded = loaded_by("from ralphproof.agents import script_player as p", f"p.dump_json({script})") - bare
    assert loaded & {"json", "re", "enum", "signal"} == set()


# Packages that only some modules may import, each inside a function or in a module that is loaded when it is needed.
MAY_IMPORT = {
    "agents/cost.py": {"genai_prices"},
    "agents/": {"msgspec"},
    "agents/provider.py": {"pydantic_ai"},
    "base/shell.py": {"tree_sitter", "tree_sitter_bash"},
    "base/yaml_text.py": {"ruamel"},
    "fleet/": {"temporalio", "fsspec"},
    "reports/charts.py": {"matplotlib", "plotext"},
    "reports/deliver_notifications.py": {"apprise"},
    "reports/otel": {"opentelemetry"},
    "tasks/": {"ruamel"},
    "tui/": {"textual", "rich"},
    "web/": {"starlette", "uvicorn"},
}


def test_installed_packages_are_imported_where_they_belong() -> None:
    wrong = [
        str(found)
        for file in files()
        for found in imports_of(file)
        if own(found.module) is None
        and (package := found.module.partition(".")[0]) not in sys.stdlib_module_names
        and not any(file.startswith(place) and package in allowed for place, allowed in MAY_IMPORT.items())
    ]
    assert wrong == []
