from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from ralphproof.agents.selection import installed_version


def package(root: Path, manifest: object, *files: str) -> Path:
    """An npm package below `root`, and the link by which its first file is started."""
    folder = root / "lib/node_modules/@maker/agent"
    for file in files:
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text("#!/usr/bin/env node\n")
    (folder / "package.json").write_text(manifest if isinstance(manifest, str) else json.dumps(manifest))
    link = root / "bin/agent"
    link.parent.mkdir()
    link.symlink_to(folder / files[0])
    return link


@pytest.mark.parametrize(
    ("manifest", "version"),
    [
        ({"version": "2.1.325", "bin": {"other": "x.js", "agent": "dist/deep/cli.js"}}, "2.1.325"),
        ({"version": "0.0.1790142911-g1a2b", "bin": {"agent": "./dist/deep/cli.js"}}, "0.0.1790142911-g1a2b"),
        ({"version": "1.0", "bin": "dist/../dist/deep/cli.js"}, "1.0"),
        ({"version": "1.0", "bin": {"agent": "dist/other.js"}}, None),
        ({"version": "1.0"}, None),
        ({"version": "1.0", "bin": [3]}, None),
        ({"version": "1.0", "bin": {"agent": 3}}, None),
        ({"version": 1, "bin": "dist/deep/cli.js"}, None),
        ({"version": "of today", "bin": "dist/deep/cli.js"}, None),
        ({"version": "1" * 99, "bin": "dist/deep/cli.js"}, None),
        ({"bin": "dist/deep/cli.js"}, None),
        (["1.0"], None),
        ("{", None),
        ("[" * 100_000, None),
    ],
)
def test_a_package_tells_the_version_of_the_programs_that_it_names(
    tmp_path: Path, manifest: Any, version: str | None
) -> None:
    assert installed_version(str(package(tmp_path, manifest, "dist/deep/cli.js"))) == version


def test_a_manifest_inside_of_a_package_does_not_hide_that_of_the_package(tmp_path: Path) -> None:
    link = package(tmp_path, {"version": "3.0.0", "bin": "dist/cli.js"}, "dist/cli.js")
    (link.resolve().parent / "package.json").write_text('{"type": "module"}')
    assert installed_version(str(link)) == "3.0.0"


def test_the_package_around_all_packages_is_not_asked(tmp_path: Path) -> None:
    link = package(tmp_path, {}, "cli.js")
    outer = {"version": "9.9.9", "bin": "node_modules/@maker/agent/cli.js"}
    (tmp_path / "lib/package.json").write_text(json.dumps(outer))
    assert installed_version(str(link)) is None


def test_a_manifest_that_is_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "package.json")
    (tmp_path / "agent").write_text("")
    assert installed_version(str(tmp_path / "agent")) is None


@pytest.mark.parametrize(
    ("path", "version"),
    [
        ("share/claude/versions/2.1.325", "2.1.325"),
        ("share/claude/versions/latest", None),
        ("versions/3.11.4/bin/agent", None),
        ("bin/agent", None),
    ],
)
def test_a_native_install_has_its_version_in_its_place(tmp_path: Path, path: str, version: str | None) -> None:
    (tmp_path / path).parent.mkdir(parents=True)
    (tmp_path / path).write_text("")
    (tmp_path / "link").symlink_to(tmp_path / path)
    assert installed_version(str(tmp_path / "link")) == version


def test_what_is_not_there_has_no_version() -> None:
    assert installed_version("/no/such/program") is None
