"""What a virtual machine gets of a box: folders of the user, and what it is told of hosts."""

from __future__ import annotations

from pathlib import Path

import pytest

from ralphproof.sandbox.docker_sandbox import (
    guest_home_links,
    guest_hosts,
    guest_variable_names,
    guest_workspaces,
)
from ralphproof.sandbox.plan import DEV_NULL, EMPTY_FOLDER, READ_ONLY, WRITABLE, EgressPolicy, Mount, SandboxPlan


@pytest.fixture
def plan(tmp_path: Path) -> SandboxPlan:
    for name in ("project/src", "home/.pyenv", "home/data", "state/agents/claude", "beside", "state/cache"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "home/data/.npmrc").write_text("")
    mounts = (
        Mount(READ_ONLY, "/usr"),
        Mount(EMPTY_FOLDER, "/tmp"),
        Mount(EMPTY_FOLDER, f"{tmp_path}/home"),
        Mount(READ_ONLY, f"{tmp_path}/home/.pyenv"),
        Mount(READ_ONLY, f"{tmp_path}/home/data"),
        Mount(READ_ONLY, f"{tmp_path}/home/data/.npmrc", DEV_NULL),
        Mount(READ_ONLY, f"{tmp_path}/beside"),
        Mount(READ_ONLY, f"{tmp_path}/gone"),
        Mount(WRITABLE, f"{tmp_path}/state/cache"),
        Mount(WRITABLE, f"{tmp_path}/state/agents/claude"),
        Mount(WRITABLE, f"{tmp_path}/project"),
        Mount(READ_ONLY, f"{tmp_path}/project/src"),
    )
    return SandboxPlan(
        f"{tmp_path}/project",
        f"{tmp_path}/home",
        f"{tmp_path}/state/1.tmp",
        mounts,
        EgressPolicy(("a.test", "private:b.test:8080"), (5432,)),
        passed_variables=("LANG", "PATH", "DATA", "OTHER"),
        variables=(("CLAUDE_CONFIG_DIR", f"{tmp_path}/state/agents/claude"),),
    )


def test_folders_of_the_user_are_given_the_project_first_and_tools_are_not(plan: SandboxPlan, tmp_path: Path) -> None:
    assert guest_workspaces(plan) == (
        f"{tmp_path}/project",
        f"{tmp_path}/state/cache",
        f"{tmp_path}/state/agents/claude",
        f"{tmp_path}/home/data:ro",
        f"{tmp_path}/beside:ro",
    )


def test_variables_that_name_a_place_it_has_not_stay_outside(plan: SandboxPlan, tmp_path: Path) -> None:
    env = (("LANG", "C"), ("PATH", "/bin"), ("DATA", f"{tmp_path}/beside/x"), ("OTHER", f"{tmp_path}/elsewhere"))
    assert guest_variable_names(plan, env) == ("DATA", "LANG", "CLAUDE_CONFIG_DIR", "RALPH_TURN")


def test_hosts_are_told_without_our_marks_and_ports_as_localhost(plan: SandboxPlan) -> None:
    assert guest_hosts(plan) == ("a.test", "b.test:8080", "localhost:5432")


def test_settings_of_an_agent_are_begun_and_no_link_is_followed_to_do_so(plan: SandboxPlan, tmp_path: Path) -> None:
    own, target = tmp_path / "state/agents/claude", tmp_path / "home/.profile"
    (own / ".claude.json").symlink_to(target)
    assert dict(guest_home_links(plan, "claude")) == {".claude": str(own), ".claude.json": f"{own}/.claude.json"}
    assert not target.exists()
    assert (own / ".claude.json").read_text() == "{}\n"
    (own / ".claude.json").write_text('{"kept": 1}')
    guest_home_links(plan, "claude")
    assert (own / ".claude.json").read_text() == '{"kept": 1}'
