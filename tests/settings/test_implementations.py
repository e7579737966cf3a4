from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from ralphproof.base.errors import Refused
from ralphproof.settings.implementations import BUILTIN, is_registered, resolve_implementation


@pytest.mark.parametrize(("group", "name"), [(group, name) for group, names in BUILTIN.items() for name in names])
def test_every_name_of_our_own_resolves(group: str, name: str) -> None:
    assert resolve_implementation(group, name).__name__ == BUILTIN[group][name].partition(":")[2]


def test_a_dotted_path_resolves_in_every_group() -> None:
    for group in BUILTIN:
        assert resolve_implementation(group, "ralphproof.base.errors:Refused") is Refused


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A real distribution with entry points."""
    info = tmp_path / "ralph_plugin-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: ralph-plugin\nVersion: 1.0\n")
    points = "quiet = ralph_plugin_module:Quiet\nbroken = ralph_plugin_module:Missing\n"
    (info / "entry_points.txt").write_text(
        f"[ralphproof.checks]\n{points}[ralphproof.agents]\nclaude = ralph_plugin_module:Quiet\n"
    )
    (tmp_path / "ralph_plugin_module.py").write_text("class Quiet:\n    pass\n")
    (tmp_path / "ralph_plugin_no_python.py").write_text("this is no Python\n")
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.mark.usefixtures("plugin")
def test_entry_points_of_other_distributions_resolve() -> None:
    assert resolve_implementation("checks", "quiet").__name__ == "Quiet"


@pytest.mark.usefixtures("plugin")
def test_an_entry_point_never_replaces_a_name_of_our_own() -> None:
    assert resolve_implementation("agents", "claude").__name__ == "Claude"


@pytest.mark.usefixtures("plugin")
def test_an_unknown_name_is_refused_with_those_that_exist() -> None:
    with pytest.raises(Refused, match="checks has no 'loud'; there are: broken, quiet"):
        resolve_implementation("checks", "loud")
    with pytest.raises(Refused, match="sandboxes has no 'svn'; there are: none"):
        resolve_implementation("sandboxes", "svn")


@pytest.mark.usefixtures("plugin")
def test_a_name_is_known_by_the_table_or_by_an_entry_point_of_its_group() -> None:
    assert is_registered("agents", "claude")
    assert is_registered("checks", "quiet")
    assert not is_registered("agents", "quiet")
    assert not is_registered("checks", "ralph_plugin_module:Quiet")


def test_a_name_that_nobody_declares_is_unknown_without_a_slow_look_around() -> None:
    code = (
        "import sys; from ralphproof.settings.implementations import is_registered; "
        "assert not is_registered('agents', 'x'); print(*sys.modules)"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "ralphproof.settings.implementations" in loaded
    assert "importlib.metadata" not in loaded


@pytest.mark.usefixtures("plugin")
@pytest.mark.parametrize(
    "name",
    ["broken", "no_such_module:Thing", "ralphproof.base.errors:Nothing", ":", "x:", "ralph_plugin_no_python:Thing"],
)
def test_a_name_that_leads_nowhere_is_refused(name: str) -> None:
    with pytest.raises(Refused, match="cannot be loaded"):
        resolve_implementation("checks", name)
