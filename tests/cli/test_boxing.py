"""What the sandbox of a run that died leaves is cleared away with it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ralphproof.sandbox.plan import (
    PROXY_BY_DESCRIPTOR,
    PROXY_BY_SOCKET,
    LaunchSpec,
    Protection,
    SandboxEntry,
    SandboxPlan,
    write_launch_report,
    write_launch_spec,
)
from ralphproof.sandbox.planner import sandbox_state_folder
from ralphproof.sandbox.project_mounts import Placeholders
from ralphproof.sandbox.runner import LAUNCH_SPEC_SUFFIX, REPORT_SUFFIX, remove_sandbox_leftovers


class Died:
    """A project with a run whose commands were in boxes; an engine that notes what it is asked."""

    def __init__(self, folder: Path) -> None:
        self.root, self.store = folder / "project", folder / "store"
        self.kept, self.engine, self.asked = self.store / "runs" / "r1", folder / "podman", folder / "asked"
        for made in (self.root, self.kept, self.store / "box"):
            made.mkdir(parents=True)
        self.engine.write_text(f'#!/bin/sh\necho "$@" >> {self.asked}\n')
        self.engine.chmod(0o755)

    def command(self, name: str, way: SandboxEntry, ended: bool = False) -> Path:
        """One command; its temporary folder."""
        base = str(self.kept / name)
        temp = Path(f"{base}.tmp")
        (temp / "closed").mkdir(parents=True, mode=0)
        write_launch_spec(
            base + LAUNCH_SPEC_SUFFIX,
            LaunchSpec(SandboxPlan(str(self.root), "/h", str(temp), ()), way, f"{base}.a", base + REPORT_SUFFIX),
        )
        if ended:
            write_launch_report(base + REPORT_SUFFIX, True, "")
        return temp

    def clear(self) -> list[str]:
        remove_sandbox_leftovers(str(self.store), str(self.root), "r1")
        return self.asked.read_text().splitlines() if self.asked.exists() else []


@pytest.fixture
def died(tmp_path: Path) -> Died:
    return Died(tmp_path)


def test_its_temporary_folders_and_containers_are_removed(died: Died) -> None:
    contained = SandboxEntry((str(died.engine), "run", "--name", "ralph-1", "image"), PROXY_BY_SOCKET)
    temps = [
        died.command("agent_001", contained),
        died.command("guardrail_001", SandboxEntry(("bwrap",), PROXY_BY_DESCRIPTOR)),
    ]
    assert died.clear() == ["rm --force ralph-1"]
    assert not any(temp.exists() for temp in temps)


def test_a_container_that_podman_cannot_remove_at_once_is_removed_all_the_same(died: Died) -> None:
    died.engine.write_text(f'#!/bin/sh\necho "$@" >> {died.asked}\ntest $(wc -l < {died.asked}) = 2 || exit 125\n')
    died.command("agent_001", SandboxEntry((str(died.engine), "run", "--name", "ralph-1", "image"), PROXY_BY_SOCKET))
    assert died.clear() == ["rm --force ralph-1"] * 2


def test_a_command_that_ended_has_done_so_itself(died: Died) -> None:
    died.command(
        "agent_001", SandboxEntry((str(died.engine), "run", "--name", "ralph-1", "image"), PROXY_BY_SOCKET), ended=True
    )
    assert died.clear() == []


def test_what_lay_over_absent_files_is_lifted(died: Died) -> None:
    ghosts = Placeholders(sandbox_state_folder(str(died.store), str(died.root)))
    held = ghosts.acquire()
    ghosts.create(Protection(placeholders=(str(died.root / ".mcp.json"),)))
    assert (died.root / ".mcp.json").exists()
    os.close(held)
    died.clear()
    assert not (died.root / ".mcp.json").exists()


def test_a_run_without_a_sandbox_and_a_file_that_says_nothing_are_no_trouble(died: Died) -> None:
    (died.kept / f"agent_001{LAUNCH_SPEC_SUFFIX}").write_text("{")
    assert died.clear() == []
    remove_sandbox_leftovers(str(died.store / "nowhere"), str(died.root), "r1")
    remove_sandbox_leftovers(str(died.store), str(died.root), "never was")
