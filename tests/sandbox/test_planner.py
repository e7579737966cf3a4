"""Sandbox plans: what a command can reach, and nothing else."""

from __future__ import annotations

import os
import shutil
import socket
import stat
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ralphproof.base.errors import Refused
from ralphproof.engine.sandbox import Command
from ralphproof.sandbox.ecosystems import CARGO, NPM, PYPI
from ralphproof.sandbox.host_mounts import SYSTEM_FOLDERS
from ralphproof.sandbox.plan import DEV_NULL, EMPTY_FOLDER, READ_ONLY, WRITABLE, Mount, is_within
from ralphproof.sandbox.planner import TEMPORARY_FOLDERS, SandboxPlanner, mounts_in_place, refuse_unsafe_project
from tests.needs import require
from tests.sandbox.planned_sandbox import AGENTS, CLAUDE, PlannedBackend, SandboxProject


@pytest.fixture
def project(tmp_path: Path) -> SandboxProject:
    return SandboxProject(tmp_path)


@pytest.fixture
def in_opt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of the system that everybody may read: what is made in a real one, others see."""
    made = tmp_path / "opt"
    made.mkdir()
    monkeypatch.setattr("ralphproof.sandbox.host_mounts.SYSTEM_FOLDERS", (*SYSTEM_FOLDERS, str(made)))
    monkeypatch.setattr("ralphproof.sandbox.planner.SYSTEM_FOLDERS", (*SYSTEM_FOLDERS, str(made)))
    monkeypatch.setattr("ralphproof.sandbox.host_mounts.SEARCHED_FOLDERS", ("/etc", str(made)))
    return made


# The machine


def test_the_project_is_written_the_system_read_and_the_rest_is_not_there(project: SandboxProject) -> None:
    project.put("src/a.py", "../beside/b.py")
    view = project.view()
    assert (view.written("src/a.py"), view.written("new")) == (True, True)
    assert (view.read("/usr/bin/env"), view.written("/usr/bin/env"), view.written("/etc/hosts")) == (True, False, False)
    assert not view.read("../beside/b.py")
    assert not view.read("~/.local/state/ralphproof/repos/1")
    assert view.secrets == []


def test_temporary_folders_and_the_home_are_fresh_and_lie_below_what_is_shown_in_them(project: SandboxProject) -> None:
    project.home.program(".pyenv/libexec/pyenv")
    view = project.view()
    fresh = [mount.path for mount in view.plan.mounts if mount.kind == EMPTY_FOLDER]
    assert fresh == [*TEMPORARY_FOLDERS, str(project.home)]
    assert view.read("~/.pyenv/libexec/pyenv")
    assert not view.written("~/.pyenv/libexec/pyenv")


def test_what_lies_in_a_fresh_folder_of_the_system_is_there(project: SandboxProject) -> None:
    """/run/current-system is where NixOS keeps every program."""
    mounts = project.view().plan.mounts
    first = next(place for place, mount in enumerate(mounts) if mount.path == "/usr")
    assert {mount.path for mount in mounts[:first] if mount.kind == EMPTY_FOLDER} == {*TEMPORARY_FOLDERS}


def test_a_home_behind_a_link_is_the_one_that_it_leads_to(project: SandboxProject, tmp_path: Path) -> None:
    project.home.program(".pyenv/libexec/pyenv", ".pyenv/shims/python")
    (tmp_path / "link").symlink_to(project.home.path)
    environ = {"HOME": f"{tmp_path}/link", "PATH": f"{tmp_path}/link/.pyenv/shims:/usr/bin"}
    view = project.view(environ)
    assert view.variables["HOME"] == str(project.home)
    assert view.read("~/.pyenv/shims/python")
    assert view.read(f"{tmp_path}/link/.pyenv/shims/python")
    assert view.secrets == []


def test_paths_to_read_are_read_with_sockets_and_without_logins(project: SandboxProject, tmp_path: Path) -> None:
    project.put("../data/a")
    view = project.view(
        read_paths=(f"{project.root.parent}/data", f"{tmp_path}/gone", f"{project.home}/.ssh", str(project.home))
    )
    assert (view.read("../data/a"), view.written("../data/a")) == (True, False)
    assert view.secrets == []


def test_a_path_to_read_around_the_project_does_not_make_that_read_only(project: SandboxProject) -> None:
    project.put("a", "../b")
    view = project.view(read_paths=(str(project.root.parent),))
    assert (view.written("a"), view.read("../b"), view.written("../b")) == (True, True, False)


def test_a_project_below_a_folder_of_tools_is_written(tmp_path: Path) -> None:
    project = SandboxProject(tmp_path)
    project.root = project.home.path / ".pyenv/plugins/mine"
    project.root.mkdir(parents=True)
    view = project.view()
    assert (view.written("x"), view.written("~/.pyenv/plugins"), view.read("~/.pyenv/plugins")) == (True, False, True)


def test_for_root_a_project_may_lie_in_a_folder_that_is_covered(project: SandboxProject, in_opt: Path) -> None:
    require(os.geteuid() == 0, "root, for whom it is covered")
    project.root = in_opt / "closed/project"
    project.root.mkdir(parents=True)
    (in_opt / "closed").chmod(0o700)
    (in_opt / "closed/key").write_text("")
    view = project.view()
    assert (view.written("x"), view.read("../key")) == (True, False)
    assert (
        Mount(EMPTY_FOLDER, f"{in_opt}/closed") in view.plan.mounts
    )  # where something can be laid, unlike in a covered one


def test_git_knows_the_users_name_and_what_they_ignore_and_no_more(project: SandboxProject) -> None:
    secret = '[credential]\n\thelper = store\n[url "https://me:secret@x"]\n\tinsteadOf = https://x\n'
    project.home.put(".gitconfig", text=f'[user]\n\tname = "A \\"B\\" C"\n\temail = a@x\n{secret}')
    project.home.put(".config/git/ignore", text=".idea\n")
    view = project.view()
    told = Path(view.behind("~/.gitconfig")).read_text()
    assert told == '[user]\n\tname = "A \\"B\\" C"\n\temail = "a@x"\n[safe]\n\tdirectory = *\n'
    assert Path(view.behind("~/.config/git/ignore")).read_text() == ".idea\n"
    assert view.secrets == []


def test_a_file_of_things_to_ignore_is_taken_from_where_it_is(project: SandboxProject) -> None:
    project.home.put(".gitconfig", text="[core]\n\texcludesFile = ~/.ignored\n")
    project.home.put(".ignored", text="*.swp\n")
    assert Path(project.view().behind("~/.config/git/ignore")).read_text() == "*.swp\n"


def test_a_state_folder_in_the_system_is_not_seen(project: SandboxProject, in_opt: Path) -> None:
    for name in ("repos/1", "repos/2"):
        (in_opt / name).mkdir(parents=True)
        (in_opt / name / "ledger").write_text("")
    view = project.view(store=f"{in_opt}/repos/1")
    assert [view.read(f"{in_opt}/repos/{name}/ledger") for name in "12"] == [False, False]


def test_what_is_gone_since_the_run_began_is_not_asked_for_and_new_sockets_are_covered(
    project: SandboxProject, in_opt: Path
) -> None:
    project.home.put(".nvm/.npmrc", ".nvm/nvm.sh", ".rustup/settings.toml")
    (in_opt / "key").write_text("")
    (in_opt / "key").chmod(0o600)
    config = project.config()
    boxes = SandboxPlanner(config, PlannedBackend())
    command = Command(("x",), config.root, config.environ, "", f"{project.store}/1.turn", "m")
    before = {mount.path for mount in boxes.plan(command).mounts}
    gone = {f"{project.home}/.nvm/.npmrc", f"{project.home}/.rustup", *([f"{in_opt}/key"] if os.geteuid() == 0 else [])}
    assert gone <= before
    (in_opt / "key").unlink()
    (project.home.path / ".nvm/.npmrc").unlink()
    (project.home.path / ".rustup/settings.toml").rename(project.home.path / "moved")
    (project.home.path / ".rustup").rmdir()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{project.home}/.nvm/s")
        after = boxes.plan(command).mounts
    assert {mount.path for mount in after} == (before - gone) | {f"{project.home}/.nvm/s"}
    assert Mount(READ_ONLY, f"{project.home}/.nvm/s", DEV_NULL) in after


# Packages


def test_caches_of_the_projects_ecosystems_are_read_and_tools_are_told_where_to_write(project: SandboxProject) -> None:
    project.put("Cargo.toml")
    project.home.put(".cargo/registry/cache/a", ".npm/_cacache/b")
    view = project.view()
    assert (view.read("~/.cargo/registry/cache/a"), view.read("~/.npm/_cacache/b")) == (True, False)
    assert view.variables["CARGO_NET_OFFLINE"] == "true"
    assert "CARGO_HOME" not in view.variables
    fetching = project.view(hosts=("crates",))
    assert fetching.plan.egress.hosts == CARGO.hosts
    assert fetching.variables["CARGO_NET_OFFLINE"] == "false"
    assert fetching.written(fetching.variables["CARGO_HOME"])
    assert is_within(fetching.variables["CARGO_HOME"], str(project.store))


@pytest.mark.parametrize(("name", "hosts"), [("pypi", PYPI.hosts), ("npm", NPM.hosts), ("crates", CARGO.hosts)])
def test_a_registry_is_named_by_its_ecosystem(project: SandboxProject, name: str, hosts: tuple[str, ...]) -> None:
    assert project.view(hosts=(name, "example.org", name)).plan.egress.hosts == (*hosts, "example.org")


def test_variables_of_the_projects_tools_stay_and_keys_of_an_agent_are_for_it_alone(project: SandboxProject) -> None:
    project.put("package.json")
    keeps = project.view(agents=AGENTS, agent_variables=("MY_KEY",)).plan.passed_variables
    assert "NODE_ENV" in keeps
    assert not {"ANTHROPIC_*", "MY_KEY", "PYTEST_ADDOPTS"} & {*keeps}
    for_claude = project.view(agents=AGENTS, agent_variables=("MY_KEY",), agent="claude").plan.passed_variables
    assert {"ANTHROPIC_*", "MY_KEY"} <= {*for_claude}


# What is held


def test_a_protected_path_is_read_and_every_folder_above_it_is_held_in_its_place(project: SandboxProject) -> None:
    project.put("src/auth/deep/key.py", "src/other.py", ".env")
    view = project.view(protected=("src/auth/deep/", ".env"))
    assert (view.written("src/auth/deep/key.py"), view.written(".env")) == (False, False)
    assert (view.written("src/auth/x"), view.written("src/other.py")) == (True, True)
    placed = [mount.path for mount in view.plan.mounts]
    for folder in ("src", "src/auth"):
        assert Mount(WRITABLE, view.place(folder)) in view.plan.mounts
    order = [placed.index(view.place(name)) for name in ("", "src", "src/auth", "src/auth/deep")]
    assert order == sorted(order)
    assert {"src/auth/deep", ".env"} <= {*view.plan.protection.names}


def test_what_is_held_in_what_is_held_opens_nothing_between_them(project: SandboxProject) -> None:
    project.put("a/b/c/key", "a/b/x")
    view = project.view(protected=("a/", "a/b/c/key", "a/b/later", ".claude/"), agents=AGENTS)
    assert [name for name in ("a/b/x", "a/b/new", "a/b/c/new", "a/b/later", ".claude/x") if view.written(name)] == []
    assert not {name for name in view.placeholders() if name.startswith(("a/", ".claude/"))}


def test_what_is_not_there_yet_may_not_come_to_be(project: SandboxProject) -> None:
    project.repository()
    view = project.view(protected=("conf/new.toml", "later/"))
    assert {
        "conf/new.toml",
        "later",
        ".claude/settings.json",
        ".mcp.json",
        ".vscode",
        ".git/commondir",
    } <= view.placeholders()
    hollow = {os.path.relpath(path, project.root) for path in view.plan.protection.folders}
    assert {"conf", "later", ".claude", ".vscode", ".claude/hooks"} <= hollow
    assert not {"conf/new.toml", ".mcp.json", ""} & hollow
    assert [ghost for ghost in view.placeholders() if view.written(ghost)] == []
    lengths = [len(path) for path in view.plan.protection.folders]
    assert lengths == sorted(lengths)


def test_git_passes_over_what_is_there_only_to_be_held(project: SandboxProject) -> None:
    project.repository()
    (project.root / ".git/info/exclude").write_text("mine\n")
    view = project.view(protected=("a[1].txt", "b*c".replace("*", "\\*"), "sp "))
    text = Path(view.behind(".git/info/exclude")).read_text()
    assert text.startswith("mine\n\n")
    assert {"/.mcp.json", "/a\\[1].txt", "/b\\*c", "/sp\\ "} <= {*text.splitlines()}
    assert "/.git/config.worktree" not in text
    (project.root / "a[1].txt").touch()
    (project.root / "sp ").touch()
    (project.root / ".git/info/exclude").write_text(text)
    assert project.git("status", "--porcelain") == ""


def test_so_it_does_where_there_is_no_file_of_what_to_pass_over(project: SandboxProject) -> None:
    project.repository()
    (project.root / ".git/info/exclude").unlink()
    view = project.view()
    assert ".git/info/exclude" in view.placeholders()
    assert "/.mcp.json\n" in Path(view.behind(".git/info/exclude")).read_text()
    assert not view.written(".git/info/exclude")


def test_settings_and_hooks_of_git_are_held_and_commits_can_be_made(project: SandboxProject) -> None:
    project.repository()
    view = project.view()
    for name in (".git/config", ".git/hooks/pre-commit", ".git/info/attributes", ".git/commondir"):
        assert not view.written(name), name
    for name in (".git/index.lock", ".git/objects/aa/bb", ".git/refs/heads/x", ".git/HEAD", ".git/logs/HEAD"):
        assert view.written(name), name


def test_a_link_is_held_where_it_leads_and_nothing_is_made_outside_through_one(
    project: SandboxProject, tmp_path: Path
) -> None:
    project.put("lib/auth/key.py")
    (project.root / "src").symlink_to("lib")
    (tmp_path / "dotfiles").mkdir()
    (project.root / ".claude").symlink_to(tmp_path / "dotfiles")
    (project.root / ".codex").write_text("a file")
    view = project.view(protected=("src/auth/", ".codex/x.toml"))
    assert not view.written("lib/auth/key.py")
    assert all(
        is_within(path, str(project.root))
        for path in (*view.plan.protection.placeholders, *view.plan.protection.folders)
    )
    assert not any(ghost.startswith((".claude/", ".codex/")) for ghost in view.placeholders())


def test_a_kind_that_holds_nothing_is_asked_to_hold_nothing(project: SandboxProject) -> None:
    project.repository()
    project.put("a", ".ralph/settings.json")
    view = project.view(backend=PlannedBackend(protects_paths=False), protected=("a", "b"))
    assert (view.plan.protection.placeholders, view.plan.protection.folders, view.written("a")) == ((), (), True)
    assert "a" in view.plan.protection.names


# Our own folder, and the task's


def test_our_folder_is_read_and_only_the_tasks_folder_in_it_is_the_agents(project: SandboxProject) -> None:
    project.put(".ralph/settings.json", ".ralph/runs/1/prompt.md")
    task = f"{project.root}/.ralph/runs/1/task"
    view = project.view(task=task)
    assert os.path.isdir(task)
    assert [view.written(f".ralph/{name}") for name in ("settings.json", "x", "runs/1/prompt.md", "runs/1/task/x")] == [
        False, False, False, True
    ]  # fmt: skip


def test_it_is_also_where_the_tasks_folder_is_the_first_in_it(project: SandboxProject) -> None:
    view = project.view(task=f"{project.root}/.ralph/runs/1/task")
    assert (view.written(".ralph/settings.json"), view.written(".ralph/runs/1/task/x")) == (False, True)


def test_a_file_of_the_run_is_held_in_the_tasks_folder_too(project: SandboxProject) -> None:
    project.put(".ralph/tasks/1/prd.md", ".ralph/tasks/1/notes.md")
    view = project.view(task=f"{project.root}/.ralph/tasks/1", run_files=(".ralph/tasks/1/prd.md",))
    written = {name: view.written(f".ralph/{name}") for name in ("tasks/1/prd.md", "tasks/1/notes.md", "x", "tasks/x")}
    assert written == {"tasks/1/prd.md": False, "tasks/1/notes.md": True, "x": False, "tasks/x": False}


@pytest.mark.parametrize("task", [".", "src", "src/auth", "src/auth/tasks"])
def test_a_tasks_folder_elsewhere_in_the_project_uncovers_nothing(project: SandboxProject, task: str) -> None:
    project.put("src/auth/key.py", "src/auth/tasks/x", ".env", ".ralph/settings.json")
    view = project.view(task=f"{project.root}/{task}".removesuffix("/."), protected=("src/auth/", ".env"))
    assert [name for name in ("src/auth/key.py", ".env", ".ralph/settings.json") if view.written(name)] == []


def test_a_tasks_folder_outside_is_written_and_a_link_out_of_the_project_is_not_followed(
    project: SandboxProject, tmp_path: Path
) -> None:
    assert project.view(task=f"{tmp_path}/tasks/1").written(f"{tmp_path}/tasks/1/x")
    project.put(".ralph/settings.json")
    (project.root / ".ralph/task").symlink_to(project.home.path)
    view = project.view(task=f"{project.root}/.ralph/task")
    assert not view.written(".ralph/task/x")
    assert not view.written("~/x")


def test_a_link_into_our_folder_that_took_the_place_of_the_tasks_uncovers_nothing(project: SandboxProject) -> None:
    project.put(".ralph/settings.json")
    (project.root / "tasks").symlink_to(".ralph")
    paths = [mount.path for mount in project.view(task=f"{project.root}/tasks").plan.mounts]
    assert f"{project.root}/tasks" not in paths


def test_a_tasks_folder_below_a_link_into_our_folder_is_refused(project: SandboxProject) -> None:
    project.put(".ralph/runs/1/prompt.md")
    (project.root / "tasks").symlink_to(".ralph")
    with pytest.raises(Refused, match="by a link"):
        project.view(task=f"{project.root}/tasks/runs")


# Links that somebody inside may have put into the project


@pytest.mark.parametrize("variable", ["PATH", "VIRTUAL_ENV", "SSL_CERT_FILE"])
@pytest.mark.parametrize(("holds", "shown"), [("notes", False), ("pyvenv.cfg", True)])
def test_a_place_in_the_project_that_leads_out_of_it_is_shown_only_where_it_is_a_tool(
    project: SandboxProject, variable: str, holds: str, shown: bool
) -> None:
    project.home.put(f"other/{holds}")
    (project.root / "bin").symlink_to(project.home.path / "other")
    view = project.view(project.home.environ() | {variable: f"{project.root}/bin"})
    assert view.read(f"~/other/{holds}") == shown


def test_a_file_that_an_agent_is_given_is_not_followed_out_of_the_project(project: SandboxProject) -> None:
    project.home.put("other/notes")
    (project.root / "data").symlink_to(project.home.path / "other/notes")
    assert not project.view(reads=(f"{project.root}/data",)).read("~/other/notes")


@pytest.mark.parametrize("link", [".git/info", ".git/info/exclude"])
def test_a_link_in_what_git_passes_over_by_is_not_mounted(project: SandboxProject, link: str) -> None:
    project.repository()
    project.put("../beside/exclude")
    shutil.rmtree(project.root / ".git/info")
    (project.root / link).parent.mkdir(exist_ok=True)
    (project.root / link).symlink_to(project.root / ("../beside/exclude" if link.endswith("exclude") else "../beside"))
    mounts = project.view().plan.mounts
    assert not [one for one in mounts if one.path.startswith(str(project.root)) and os.path.islink(one.path)]


@pytest.mark.parametrize("by", ["link", "file"])
def test_a_repository_elsewhere_that_does_not_know_the_project_is_not_shown(project: SandboxProject, by: str) -> None:
    other = project.home.path / "other"
    project.git("init", "-q", str(other))
    git = project.root / ".git"
    git.symlink_to(other / ".git") if by == "link" else git.write_text(f"gitdir: {other}/.git\n")
    view = project.view()
    assert (view.read("~/other/.git/HEAD"), view.written("~/other/.git/objects/x")) == (False, False)


# Worktrees


def test_a_linked_worktree_writes_only_what_a_commit_needs_of_the_repository(project: SandboxProject) -> None:
    project.repository()
    side = project.root.parent / "side"
    project.git("worktree", "add", "-q", str(side))
    (project.root / ".git/modules/sub/objects").mkdir(parents=True)
    (project.root / ".git/modules/sub/config").write_text("")
    main, project.root = project.root, side
    view = project.view()
    git = f"{main}/.git"
    written = (
        "objects/aa/b",
        "refs/heads/side",
        "logs/refs/heads/side",
        "worktrees/side/index.lock",
        "worktrees/side/HEAD",
    )
    held = (
        "config", "hooks/pre-commit", "HEAD", "index", "packed-refs", "info/exclude", "info/grafts",
        "modules/sub/config", "modules/sub/x", "worktrees/other/HEAD", "worktrees/side/commondir",
        "worktrees/side/gitdir", "worktrees/side/config.worktree",
    )  # fmt: skip
    assert [name for name in written if not view.written(f"{git}/{name}")] == []
    assert [name for name in held if view.written(f"{git}/{name}")] == []
    assert view.read(f"{git}/config")
    assert not view.read(f"{main}/anything")


def test_a_repository_that_lies_elsewhere_can_be_worked_in(project: SandboxProject, tmp_path: Path) -> None:
    project.git("init", "-q", f"--separate-git-dir={tmp_path}/elsewhere")
    view = project.view()
    assert view.written(f"{tmp_path}/elsewhere/index.lock")
    assert [name for name in ("config", "hooks/x") if view.written(f"{tmp_path}/elsewhere/{name}")] == []
    assert not view.written(".git")


# An agent


def test_an_agent_has_a_folder_of_its_own_and_its_login_is_lent(project: SandboxProject) -> None:
    project.home.put(".claude/.credentials.json", ".claude/skills/a/SKILL.md", ".claude/projects/secret.jsonl")
    view = project.view(agent="claude", agents=AGENTS)
    own = view.variables["CLAUDE_CONFIG_DIR"]
    assert own == f"{project.store}/agents/claude"
    assert view.written(f"{own}/projects/x")
    assert view.behind(f"{own}/.credentials.json") == f"{project.home}/.claude/.credentials.json"
    assert (view.read(f"{own}/skills/a/SKILL.md"), view.written(f"{own}/skills/a/SKILL.md")) == (True, False)
    assert not view.written(f"{own}/.credentials.json")
    assert view.seen_at("~/.claude/projects/secret.jsonl") == []
    assert stat.S_IMODE(os.stat(own).st_mode) == 0o700


def test_nobody_else_has_it(project: SandboxProject) -> None:
    project.home.put(".claude/.credentials.json")
    project.view(agent="claude", agents=AGENTS)
    view = project.view(agents=AGENTS)
    assert "CLAUDE_CONFIG_DIR" not in view.variables
    assert view.seen_at("~/.claude/.credentials.json") == []
    assert not view.read(f"{project.store}/agents/claude")


def test_a_login_is_lent_from_where_a_variable_moved_it(project: SandboxProject) -> None:
    project.home.put("elsewhere/.credentials.json", ".claude/.credentials.json")
    environ = project.home.environ(CLAUDE_CONFIG_DIR="~/elsewhere")
    view = project.view(environ, agent="claude", agents=AGENTS)
    assert (
        view.behind(f"{project.store}/agents/claude/.credentials.json") == f"{project.home}/elsewhere/.credentials.json"
    )


def test_an_agent_that_cannot_be_moved_finds_its_folder_where_it_looks(project: SandboxProject) -> None:
    project.home.put(".gemini/oauth_creds.json", ".gemini/history/x")
    view = project.view(agent="gemini", agents=AGENTS)
    assert view.behind("~/.gemini/x") == f"{project.store}/agents/gemini/x"
    assert (view.read("~/.gemini/oauth_creds.json"), view.written("~/.gemini/oauth_creds.json")) == (True, False)
    assert view.seen_at("~/.gemini/history/x") == []


@pytest.mark.parametrize("moved", [{}, {"XDG_CONFIG_HOME": "~/cfg", "XDG_DATA_HOME": "~/data"}])
def test_what_is_lent_of_the_home_lies_in_the_home(project: SandboxProject, moved: dict[str, str]) -> None:
    config, data = ("cfg", "data") if moved else (".config", ".local/share")
    project.home.put(f"{config}/amp/settings.json", f"{config}/amp/other", f"{data}/amp/secrets.json")
    view = project.view(project.home.environ(**moved), agent="amp", agents=AGENTS)
    assert view.behind("~/.config/amp/settings.json") == f"{project.home}/{config}/amp/settings.json"
    assert view.behind("~/.local/share/amp/secrets.json") == f"{project.home}/{data}/amp/secrets.json"
    assert view.seen_at(f"~/{config}/amp/other") == []


def test_what_an_agent_put_where_something_is_lent_is_taken_away(project: SandboxProject, tmp_path: Path) -> None:
    project.home.put(".claude/settings.json", ".claude/.credentials.json", ".claude/skills/a")
    own = project.store / "agents/claude"
    (own / "settings.json").mkdir(parents=True)
    (own / "skills").write_text("a file")
    (own / ".credentials.json").symlink_to(tmp_path / "target")
    (tmp_path / "target").write_text("stays")
    project.view(agent="claude", agents=AGENTS)
    assert [os.path.lexists(own / name) for name in ("settings.json", "skills", ".credentials.json")] == [False] * 3
    assert (tmp_path / "target").read_text() == "stays"


def test_settings_of_agents_in_the_project_are_held(project: SandboxProject) -> None:
    project.put(".gemini/settings.json")
    view = project.view(agent="gemini", agents=AGENTS)
    assert not view.written(".gemini/settings.json")
    assert ".claude/settings.json" in view.placeholders()


def test_a_program_and_what_it_needs_is_there(project: SandboxProject) -> None:
    project.home.program("apps/agent/bin/agent", "apps/agent/lib/x")
    project.home.put("apps/agent/etc/npmrc")
    project.home.link(".local/bin/agent", "../../apps/agent/bin/agent")
    (project.store / "runs").mkdir()
    (project.store / "runs/prompt.md").write_text("x")
    view = project.view(reads=[f"{project.home}/.local/bin/agent", f"{project.store}/runs/prompt.md"])
    for name in ("~/.local/bin/agent", "~/apps/agent/lib/x", f"{project.store}/runs/prompt.md"):
        assert view.read(name), name
    assert view.seen_at("~/apps/agent/etc/npmrc") == []
    assert not view.read(f"{project.store}/runs")


def test_a_program_in_the_project_opens_nothing(project: SandboxProject) -> None:
    project.put("agent.sh", text=f"#!{project.home}/.ssh/id_ed25519\n")
    (project.root / "link").symlink_to(project.home.path / ".ssh")
    (project.home.path / ".ssh/id_ed25519").chmod(0o755)
    view = project.view(reads=[f"{project.root}/agent.sh", f"{project.root}/link/id_ed25519", f"{project.root}/link"])
    assert view.secrets == []
    assert view.written("agent.sh")


def test_a_room_of_its_own_in_the_state_folder_is_written_and_no_other_place_is_because_one_works_there(
    project: SandboxProject,
) -> None:
    room = project.store / "runs/1/judge-room"
    room.mkdir(parents=True)
    view = project.view(cwd=str(room))
    assert view.written(f"{room}/x")
    assert not view.read(f"{project.store}/runs/1")
    for elsewhere in ("/", str(project.home), str(project.root.parent)):
        view = project.view(cwd=elsewhere)
        assert not view.written(f"{elsewhere}/x")
        assert view.secrets == []


# The network


@pytest.mark.parametrize(
    ("address", "hosts", "ports"),
    [
        ("", [], []),
        ("https://gateway.test/v1", ["private:gateway.test"], []),
        ("https://gateway.test:8443", ["private:gateway.test:8443"], []),
        ("http://10.1.2.3:8080/", ["private:10.1.2.3:8080"], []),
        ("http://user:pw@gateway.test", ["private:gateway.test:80"], []),
        ("gateway.test", ["private:gateway.test"], []),
        ("http://localhost:4000", [], [4000]),
        ("http://127.0.0.1", [], [80]),
        ("https://[::1]:4001/x", [], [4001]),
        ("http://[fd00::1]:80", ["private:[fd00::1]:80"], []),
        ("http://gateway.test:99999", [], []),
        ("http://169.254.169.254/", ["private:169.254.169.254:80"], []),
        ("http://127.0.0.2:80", ["private:127.0.0.2:80"], []),
        ("nonsense://", [], []),
    ],
)
def test_an_agent_calls_its_service_or_the_one_that_is_set_in_its_place(
    project: SandboxProject, address: str, hosts: list[str], ports: list[int]
) -> None:
    said = (("ANTHROPIC_BASE_URL", address), ("OTHER_BASE_URL", "https://evil.test"))
    egress = project.view(agent="claude", agents=AGENTS, addresses=said, hosts=("npm",)).plan.egress
    assert egress.hosts == (*NPM.hosts, *hosts, "api.anthropic.com")
    assert egress.local_ports == tuple(ports)


def test_a_check_calls_only_what_the_user_lists(project: SandboxProject) -> None:
    view = project.view(agents=AGENTS, addresses=(("ANTHROPIC_BASE_URL", "https://x.test"),), local_ports=(5432,))
    assert (view.plan.egress.hosts, view.plan.egress.local_ports) == ((), (5432,))


# Kinds that show nothing elsewhere


def test_without_mounts_elsewhere_the_home_is_one_of_links(project: SandboxProject) -> None:
    project.home.program(".pyenv/libexec/pyenv", ".rustup/settings.toml")
    project.home.put(".claude/.credentials.json", ".nvm/.npmrc", ".nvm/nvm.sh")
    backend = PlannedBackend(can_remount=False)
    view = project.view(backend=backend, agent="claude", agents=AGENTS)
    home = Path(view.variables["HOME"])
    assert view.variables["TMPDIR"] == view.plan.temp
    assert is_within(str(home), view.plan.temp)
    assert (home / ".rustup/settings.toml").samefile(project.home.path / ".rustup/settings.toml")
    assert (home / ".gitconfig").read_text().startswith("[user]")
    own = Path(view.variables["CLAUDE_CONFIG_DIR"])
    assert (own / ".credentials.json").samefile(project.home.path / ".claude/.credentials.json")
    others = [mount for mount in view.plan.mounts if mount.source and not view.covers(mount)]
    assert others == []
    assert view.written("x")
    assert view.secrets == []
    assert view.seen_at("~/.nvm/.npmrc") == []
    assert view.read("~/.nvm/nvm.sh")
    assert Mount(READ_ONLY, DEV_NULL) not in view.plan.mounts


def test_a_home_of_links_is_made_anew_and_nothing_of_the_users_is_touched(project: SandboxProject) -> None:
    project.home.put(".pyenv/version", text="")
    project.home.link(".pyenv/current", "versions/3")
    backend = PlannedBackend(can_remount=False)
    home = Path(project.view(backend=backend).variables["HOME"])
    (home / ".cargo").symlink_to(project.home.path / ".ssh")
    (home / "planted").write_text("x")
    project.home.program(".cargo/bin/cargo")
    project.view(backend=backend, reads=[f"{project.home}/.pyenv/version", f"{project.home}/.pyenv/current"])
    assert not (home / "planted").exists()
    assert not (project.home.path / ".ssh/bin").exists()
    assert os.path.lexists(project.home.path / ".pyenv/current")
    assert (project.home.path / ".pyenv/version").exists()


def test_nothing_is_linked_in_a_folder_of_the_users(project: SandboxProject) -> None:
    project.home.put(".pyenv/empty", text="")
    project.home.put("another")
    project.home.link(".pyenv/link", "versions/3")
    shown = [Mount(READ_ONLY, f"{project.home}/.pyenv")]
    shown += [
        Mount(READ_ONLY, f"{project.home}/.pyenv/{name}", f"{project.home}/another")
        for name in ("empty", "link", "new")
    ]
    mounts_in_place(shown, f"{project.store}/1.tmp", str(project.home), str(project.store), (DEV_NULL,))
    assert sorted(os.listdir(project.home.path / ".pyenv")) == ["empty", "link"]
    assert os.readlink(project.home.path / ".pyenv/link") == "versions/3"
    assert not os.path.islink(project.home.path / ".pyenv/empty")


def test_an_agent_that_cannot_be_moved_has_its_folder_by_a_link(project: SandboxProject) -> None:
    project.home.put(".gemini/oauth_creds.json")
    view = project.view(backend=PlannedBackend(can_remount=False), agent="gemini", agents=AGENTS)
    home = Path(view.variables["HOME"])
    assert (home / ".gemini").samefile(project.store / "agents/gemini")
    assert (home / ".gemini/oauth_creds.json").samefile(project.home.path / ".gemini/oauth_creds.json")
    assert view.written(f"{project.store}/agents/gemini/x")


# What is refused


@pytest.mark.parametrize(
    ("root", "home", "store", "task", "words"),
    [
        ("/w/h", "/w/h", "/s", "", "/w/h holds your home folder"),
        ("/w", "/w/h", "/s", "", "/w holds your home folder"),
        ("/", "/w/h", "/s", "", "/ holds your home folder"),
        ("/w/p", "/w/h", "/w/p/.state", "", "/w/p holds the state folder"),
        ("/w/p", "/", "/s", "", "HOME is /"),
        ("/w/p", "/usr", "/s", "", "HOME is /usr"),
        ("/w/p", "/w/h", "/s", "/w", "the task folder /w holds the project"),
        ("/x/p", "/w/h", "/s", "/w", "the task folder /w holds your home folder"),
    ],
)
def test_a_project_around_which_a_sandbox_would_hold_nothing_is_refused(
    root: str, home: str, store: str, task: str, words: str
) -> None:
    with pytest.raises(Refused) as caught:
        refuse_unsafe_project(root, home, store, task)
    assert str(caught.value).startswith(words)


def test_root_cannot_work_in_somebody_elses_project(project: SandboxProject) -> None:
    require(os.geteuid() == 0, "root")
    os.chown(project.root, 12345, 12345)
    with pytest.raises(Refused, match=r"belongs to user 12345, .*; run ralph as that user, or chown the project"):
        project.view()


def test_nothing_is_made_for_a_project_that_is_refused(project: SandboxProject) -> None:
    with pytest.raises(Refused):
        project.view(root=str(project.home))
    assert list(project.store.iterdir()) == [project.store / "runs"]


def test_a_project_behind_a_link_is_held_as_well_as_any(project: SandboxProject, tmp_path: Path) -> None:
    project.repository()
    project.put("src/auth/key.py")
    (tmp_path / "link").symlink_to(project.root)
    view = project.view(root=f"{tmp_path}/link", protected=("src/auth/",))
    assert view.plan.root == str(project.root)
    assert [view.written(name) for name in ("x", "src/auth/key.py", ".git/config")] == [True, False, False]
    assert [one for one in view.seen_at("src/auth/key.py") if view.written(one)] == []
    assert view.plan.cwd == str(project.root)
    (tmp_path / "home-link").symlink_to(project.home.path)
    with pytest.raises(Refused, match="holds your home folder"):
        project.view(root=f"{tmp_path}/home-link")


# Of any config

NAMES = ["a", "a/b", "a/b/c", "a/d", ".env", "x/y", ".mcp.json", ".claude/settings.json", ".git/x"]


@settings(max_examples=40, deadline=None)
@given(
    st.sets(st.sampled_from(NAMES)), st.sets(st.sampled_from([*NAMES[:-1], "*.py", "a/*", "**/c"]), max_size=4),
    st.booleans(), st.booleans(), st.sampled_from(["", ".ralph/t", "a", "."]),
)  # fmt: skip
def test_whatever_is_protected_is_not_written_and_cannot_be_moved_away(
    tmp_path_factory: pytest.TempPathFactory, files: set[str], protected: set[str], git: bool, ours: bool, task: str
) -> None:
    project = SandboxProject(tmp_path_factory.mktemp("config"))
    if git:
        project.repository()
    for name in sorted(files, key=len):
        place = project.root / name
        if place.parent.is_file() or (place.parent / "x").is_file() or any(up.is_file() for up in place.parents):
            continue
        project.put(name if not any(other.startswith(f"{name}/") for other in files) else f"{name}/f")
    if ours:
        project.put(".ralph/settings.json")
    view = project.view(protected=tuple(sorted(protected)), task=os.path.normpath(project.root / task) if task else "")
    assert view.secrets == []
    held = [*view.plan.protection.names, *view.placeholders(), *([".ralph/settings.json"] if ours else [])]
    assert [name for name in held if view.written(name)] == []
    points = {mount.path for mount in view.plan.mounts}
    for name in view.plan.protection.names:  # nor what lies below
        assert not view.written(f"{name}/x/y"), name
    loose = [
        folder
        for name in held
        for folder in map(str, (project.root / name).parents)
        if is_within(folder, str(project.root)) and view.written(folder) and folder not in points
    ]
    assert loose == []
    assert CLAUDE.folder not in str(view.plan.mounts)
