"""Start-up time is a feature: what a fresh interpreter has loaded after an import."""

from __future__ import annotations

import subprocess
import sys

import pytest

from .source import GROUND, SOURCE

SLOW = frozenset(
    (
        "dataclasses", "typing", "enum", "subprocess", "pathlib", "asyncio", "inspect", "logging", "shutil", "tempfile",
    )
)  # fmt: skip
VERBS = frozenset(["argparse", "json", "sqlite3"])


def loaded_by(*statements: str) -> set[str]:
    """The modules that an interpreter without site packages has loaded after these statements."""
    code = "; ".join(
        [f"import sys; sys.path.insert(0, {str(SOURCE.parent)!r})", *statements, "print(*sorted(sys.modules))"]
    )
    return set(python("-I", "-S", "-c", code).stdout.split())


def python(*args: str) -> subprocess.CompletedProcess[str]:
    ran = subprocess.run([sys.executable, *args], capture_output=True, text=True, cwd=SOURCE.parent)
    assert ran.returncode == 0, ran.stderr
    return ran


@pytest.fixture(scope="module")
def allowed() -> set[str]:
    """What `re` and `hashlib` bring along by themselves."""
    return loaded_by("import re, hashlib")


def test_the_package_alone_loads_nothing(allowed: set[str]) -> None:
    assert loaded_by("import ralphproof") - loaded_by() == {"ralphproof"}


@pytest.mark.parametrize("name", GROUND)
def test_a_ground_module_loads_nothing_slow(name: str, allowed: set[str]) -> None:
    loaded = loaded_by(f"import ralphproof.{name}")
    assert f"ralphproof.{name}" in loaded
    assert (loaded - allowed) & (SLOW | VERBS | {"os", "socket", "time"}) == set()


def test_the_version_is_told_without_loading_what_verbs_need() -> None:
    site = {line.rsplit("|", 1)[-1].strip() for line in python("-X", "importtime", "-c", "pass").stderr.splitlines()}
    ran = python("-X", "importtime", "-m", "ralphproof", "--version")
    loaded = {line.rsplit("|", 1)[-1].strip() for line in ran.stderr.splitlines()}
    assert ran.stdout.startswith("ralph ")
    assert "ralphproof" in loaded
    assert (loaded - site) & VERBS == set()
    assert {name for name in loaded if name.startswith("ralphproof.")} == set()


def test_who_plays_a_script_begins_without_what_takes_longer_than_a_turn() -> None:
    script = """p.understood('{"iterations": [[{"text": "x"}]]}')"""
    loaded = loaded_by("from ralphproof.agents import script_player as p", f"p.told({script})")
    assert loaded & {"json", "re", "enum", "signal"} == set()
