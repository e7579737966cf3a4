"""The example plug-in: it is found, listed, and verifies tasks."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.needs import require
from tests.ralph import Ralph, Step, say

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "verification-plugin"
TASKS = EXAMPLE / "tasks.yaml"


def promise(word: str) -> Step:
    return say(f"<promise>{word}</promise>")


def laid_out(site: Path) -> None:
    """The example as an installer would lay it out."""
    about = tomllib.loads((EXAMPLE / "pyproject.toml").read_text("utf-8"))["project"]
    shutil.copytree(EXAMPLE / "src", site)
    info = site / f"{about['name'].replace('-', '_')}-{about['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {about['name']}\nVersion: {about['version']}\n")
    for group, points in about["entry-points"].items():
        lines = [f"[{group}]", *(f"{name} = {target}" for name, target in points.items())]
        (info / "entry_points.txt").write_text("\n".join(lines) + "\n")


@pytest.fixture
def installed(ralph: Ralph) -> Ralph:
    laid_out(ralph.folder / "site")
    ralph.env["PYTHONPATH"] += f":{ralph.folder / 'site'}"
    return ralph


def work(ralph: Ralph) -> None:
    """Import the example's task and take it through its stages, with a broken file first."""
    added = ralph("task", "import", str(TASKS))
    assert added.code == 0, added.err
    app = "config/app.json"
    agent = ralph.script(
        [{"write": {app: '{"name": "app",'}}, promise("CONFIG_WRITTEN")],
        [{"write": {app: '{"name": "app", "port": 80}'}}, promise("CONFIG_WRITTEN")],
        [promise("CONFIG_REVIEWED")], [promise("CONFIG_TESTED")], [promise("CONFIG_ACCEPTED")],
    )  # fmt: skip
    ended = ralph("work", "CONFIG-1", "--agent", agent)
    assert ended.code == 0, ended.out + ended.err
    assert "CONFIG-1  done, verified" in ended.out
    prompts = (ralph.run_folder() / "prompt_002.txt").read_text("utf-8")
    assert 'Guardrail "coder.json_valid" failed with the answer no.' in prompts
    assert f"{app}: Expecting property name" in prompts
    last = ralph.state().history.latest
    assert {finding.check: finding.passed for finding in last.report.findings} == {
        "coder.json_valid": True, "valid": True, "has_a_port": True,
    }  # fmt: skip


def test_the_example_verifies_a_task(installed: Ralph) -> None:
    work(installed)


@pytest.mark.thorough
def test_the_example_can_be_installed(ralph: Ralph) -> None:
    require(importlib.util.find_spec("hatchling") is not None, "hatchling builds the example")
    source, site = ralph.folder / "source", ralph.folder / "site"
    shutil.copytree(EXAMPLE, source)
    flags = ("--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check")
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "-q", *flags, "--target", str(site), str(source)],
        check=True, capture_output=True,
    )  # fmt: skip
    ralph.env["PYTHONPATH"] += f":{site}"
    work(ralph)


def test_the_example_is_listed_among_the_methods(installed: Ralph) -> None:
    installed.settings(stages={"qa": {"verification": "json_vald"}})
    ended = installed("config", "show")
    assert ended.code == 2
    assert "installed: json_valid; did you mean json_valid?" in ended.err


def test_a_plain_run_uses_the_example_as_a_guardrail(installed: Ralph) -> None:
    installed.settings(guardrails=[{"name": "configs", "method": "json_valid", "config": {"files": ["*.json"]}}])
    agent = installed.script([promise("DONE")], [{"write": {"a.json": "{}"}}, promise("DONE")])
    ended = installed("run", "-p", "write it", "--agent", agent)
    assert ended.code == 0, ended.err
    assert installed.outcome()["iterations"] == 2
    assert installed.outcome()["proof"] == "verified"


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ("{}", "files must be a list of patterns"),
        ('{"files": ["../x"]}', "../x leads out of the project"),
        ('{"files": ["x"], "deep": 1}', "unknown key deep; there is: files"),
    ],
)
def test_a_config_that_the_example_refuses_begins_no_run(installed: Ralph, config: str, why: str) -> None:
    made = installed(
        "task", "create", "T-1", "s", "A title", "--outcome", "It is all valid JSON", "--acceptance", "It is",
        "--coder-promise", "OK", "--coder-verify", "json_valid", "--coder-verify-config", config,
    )  # fmt: skip
    assert made.code == 0, made.err
    ended = installed("work", "T-1", "--agent", installed.script([promise("OK")]))
    assert ended.code == 2
    assert "task T-1, stage coder, check coder.json_valid: method json_valid cannot be used: " in ended.out + ended.err
    assert why in ended.out + ended.err
    assert "Traceback" not in ended.err


def test_without_the_package_its_method_is_refused(ralph: Ralph) -> None:
    ended = ralph("task", "import", str(TASKS))
    assert ended.code == 2
    assert '"json_valid"' in ended.err
