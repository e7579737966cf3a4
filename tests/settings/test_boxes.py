"""From a terrain to a box: what a command can reach, and nothing else."""

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
from ralphproof.sandbox.host_paths import is_within
from ralphproof.sandbox.plan import DEV_NULL, EMPTY_FOLDER, READ_ONLY, WRITABLE, Mount
from ralphproof.sandbox.planner import TEMPORARY_FOLDERS, SandboxPlanner, mounts_in_place, refuse_unsafe_project
from tests.needs import require
from tests.settings.boxing import CLAUDE, LODGINGS, Ground, Plain


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path)


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


def test_the_project_is_written_the_system_read_and_the_rest_is_not_there(ground: Ground) -> None:
    ground.put("src/a.py", "../beside/b.py")
    view = ground.view()
    assert (view.written("src/a.py"), view.written("new")) == (True, True)
    assert (view.read("/usr/bin/env"), view.written("/usr/bin/env"), view.written("/etc/hosts")) == (True, False, False)
    assert not view.read("../beside/b.py")
    assert not view.read("~/.local/state/ralphproof/repos/1")
    assert view.secrets == []


def test_temporary_folders_and_the_home_are_fresh_and_lie_below_what_is_shown_in_them(ground: Ground) -> None:
    ground.home.program(".pyenv/libexec/pyenv")
    view = ground.view()
    fresh = [mount.path for mount in view.plan.mounts if mount.kind == EMPTY_FOLDER]
    assert fresh == [*TEMPORARY_FOLDERS, str(ground.home)]
    assert view.read("~/.pyenv/libexec/pyenv")
    assert not view.written("~/.pyenv/libexec/pyenv")


def test_what_lies_in_a_fresh_folder_of_the_system_is_there(ground: Ground) -> None:
    """/run/current-system is where NixOS keeps every program."""
    mounts = ground.view().plan.mounts
    first = next(place for place, mount in enumerate(mounts) if mount.path == "/usr")
    assert {mount.path for mount in mounts[:first] if mount.kind == EMPTY_FOLDER} == {*TEMPORARY_FOLDERS}


def test_a_home_behind_a_link_is_the_one_that_it_leads_to(ground: Ground, tmp_path: Path) -> None:
    ground.home.program(".pyenv/libexec/pyenv", ".pyenv/shims/python")
    (tmp_path / "link").symlink_to(ground.home.path)
    environ = {"HOME": f"{tmp_path}/link", "PATH": f"{tmp_path}/link/.pyenv/shims:/usr/bin"}
    view = ground.view(environ)
    assert view.variables["HOME"] == str(ground.home)
    assert view.read("~/.pyenv/shims/python")
    assert view.read(f"{tmp_path}/link/.pyenv/shims/python")
    assert view.secrets == []


def test_paths_to_read_are_read_with_sockets_and_without_logins(ground: Ground, tmp_path: Path) -> None:
    ground.put("../data/a")
    view = ground.view(
        read_paths=(f"{ground.root.parent}/data", f"{tmp_path}/gone", f"{ground.home}/.ssh", str(ground.home))
    )
    assert (view.read("../data/a"), view.written("../data/a")) == (True, False)
    assert view.secrets == []


def test_a_path_to_read_around_the_project_does_not_make_that_read_only(ground: Ground) -> None:
    ground.put("a", "../b")
    view = ground.view(read_paths=(str(ground.root.parent),))
    assert (view.written("a"), view.read("../b"), view.written("../b")) == (True, True, False)


def test_a_project_below_a_folder_of_tools_is_written(tmp_path: Path) -> None:
    ground = Ground(tmp_path)
    ground.root = ground.home.path / ".pyenv/plugins/mine"
    ground.root.mkdir(parents=True)
    view = ground.view()
    assert (view.written("x"), view.written("~/.pyenv/plugins"), view.read("~/.pyenv/plugins")) == (True, False, True)


def test_for_root_a_project_may_lie_in_a_folder_that_is_covered(ground: Ground, in_opt: Path) -> None:
    require(os.geteuid() == 0, "root, for whom it is covered")
    ground.root = in_opt / "closed/project"
    ground.root.mkdir(parents=True)
    (in_opt / "closed").chmod(0o700)
    (in_opt / "closed/key").write_text("")
    view = ground.view()
    assert (view.written("x"), view.read("../key")) == (True, False)
    assert (
        Mount(EMPTY_FOLDER, f"{in_opt}/closed") in view.plan.mounts
    )  # where something can be laid, unlike in a covered one


def test_git_knows_the_users_name_and_what_they_ignore_and_no_more(ground: Ground) -> None:
    secret = '[credential]\n\thelper = store\n[url "https://me:secret@x"]\n\tinsteadOf = https://x\n'
    ground.home.put(".gitconfig", text=f'[user]\n\tname = "A \\"B\\" C"\n\temail = a@x\n{secret}')
    ground.home.put(".config/git/ignore", text=".idea\n")
    view = ground.view()
    told = Path(view.behind("~/.gitconfig")).read_text()
    assert told == '[user]\n\tname = "A \\"B\\" C"\n\temail = "a@x"\n[safe]\n\tdirectory = *\n'
    assert Path(view.behind("~/.config/git/ignore")).read_text() == ".idea\n"
    assert view.secrets == []


def test_a_file_of_things_to_ignore_is_taken_from_where_it_is(ground: Ground) -> None:
    ground.home.put(".gitconfig", text="[core]\n\texcludesFile = ~/.ignored\n")
    ground.home.put(".ignored", text="*.swp\n")
    assert Path(ground.view().behind("~/.config/git/ignore")).read_text() == "*.swp\n"


def test_a_state_folder_in_the_system_is_not_seen(ground: Ground, in_opt: Path) -> None:
    for name in ("repos/1", "repos/2"):
        (in_opt / name).mkdir(parents=True)
        (in_opt / name / "ledger").write_text("")
    view = ground.view(store=f"{in_opt}/repos/1")
    assert [view.read(f"{in_opt}/repos/{name}/ledger") for name in "12"] == [False, False]


def test_what_is_gone_since_the_run_began_is_not_asked_for_and_new_sockets_are_covered(
    ground: Ground, in_opt: Path
) -> None:
    ground.home.put(".nvm/.npmrc", ".nvm/nvm.sh", ".rustup/settings.toml")
    (in_opt / "key").write_text("")
    (in_opt / "key").chmod(0o600)
    terrain = ground.terrain()
    boxes = SandboxPlanner(terrain, Plain())
    command = Command(("x",), terrain.root, terrain.environ, "", f"{ground.store}/1.turn", "m")
    before = {mount.path for mount in boxes.plan(command).mounts}
    gone = {f"{ground.home}/.nvm/.npmrc", f"{ground.home}/.rustup", *([f"{in_opt}/key"] if os.geteuid() == 0 else [])}
    assert gone <= before
    (in_opt / "key").unlink()
    (ground.home.path / ".nvm/.npmrc").unlink()
    (ground.home.path / ".rustup/settings.toml").rename(ground.home.path / "moved")
    (ground.home.path / ".rustup").rmdir()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{ground.home}/.nvm/s")
        after = boxes.plan(command).mounts
    assert {mount.path for mount in after} == (before - gone) | {f"{ground.home}/.nvm/s"}
    assert Mount(READ_ONLY, f"{ground.home}/.nvm/s", DEV_NULL) in after


# Packages


def test_caches_of_the_projects_ecosystems_are_read_and_tools_are_told_where_to_write(ground: Ground) -> None:
    ground.put("Cargo.toml")
    ground.home.put(".cargo/registry/cache/a", ".npm/_cacache/b")
    view = ground.view()
    assert (view.read("~/.cargo/registry/cache/a"), view.read("~/.npm/_cacache/b")) == (True, False)
    assert view.variables["CARGO_NET_OFFLINE"] == "true"
    assert "CARGO_HOME" not in view.variables
    fetching = ground.view(hosts=("crates",))
    assert fetching.plan.egress.hosts == CARGO.hosts
    assert fetching.variables["CARGO_NET_OFFLINE"] == "false"
    assert fetching.written(fetching.variables["CARGO_HOME"])
    assert is_within(fetching.variables["CARGO_HOME"], str(ground.store))


@pytest.mark.parametrize(("name", "hosts"), [("pypi", PYPI.hosts), ("npm", NPM.hosts), ("crates", CARGO.hosts)])
def test_a_registry_is_named_by_its_ecosystem(ground: Ground, name: str, hosts: tuple[str, ...]) -> None:
    assert ground.view(hosts=(name, "example.org", name)).plan.egress.hosts == (*hosts, "example.org")


def test_variables_of_the_projects_tools_stay_and_keys_of_an_agent_are_for_it_alone(ground: Ground) -> None:
    ground.put("package.json")
    keeps = ground.view(agents=LODGINGS, agent_variables=("MY_KEY",)).plan.passed_variables
    assert "NODE_ENV" in keeps
    assert not {"ANTHROPIC_*", "MY_KEY", "PYTEST_ADDOPTS"} & {*keeps}
    assert {"ANTHROPIC_*", "MY_KEY"} <= {*ground.view(agents=LODGINGS, agent_variables=("MY_KEY",), agent="claude").plan.passed_variables}


# What is held


def test_a_protected_path_is_read_and_every_folder_above_it_is_held_in_its_place(ground: Ground) -> None:
    ground.put("src/auth/deep/key.py", "src/other.py", ".env")
    view = ground.view(protected=("src/auth/deep/", ".env"))
    assert (view.written("src/auth/deep/key.py"), view.written(".env")) == (False, False)
    assert (view.written("src/auth/x"), view.written("src/other.py")) == (True, True)
    placed = [mount.path for mount in view.plan.mounts]
    for folder in ("src", "src/auth"):
        assert Mount(WRITABLE, view.place(folder)) in view.plan.mounts
    order = [placed.index(view.place(name)) for name in ("", "src", "src/auth", "src/auth/deep")]
    assert order == sorted(order)
    assert {"src/auth/deep", ".env"} <= {*view.plan.names}


def test_what_is_held_in_what_is_held_opens_nothing_between_them(ground: Ground) -> None:
    ground.put("a/b/c/key", "a/b/x")
    view = ground.view(protected=("a/", "a/b/c/key", "a/b/later", ".claude/"), agents=LODGINGS)
    assert [name for name in ("a/b/x", "a/b/new", "a/b/c/new", "a/b/later", ".claude/x") if view.written(name)] == []
    assert not {name for name in view.placeholders() if name.startswith(("a/", ".claude/"))}


def test_what_is_not_there_yet_may_not_come_to_be(ground: Ground) -> None:
    ground.repository()
    view = ground.view(protected=("conf/new.toml", "later/"))
    assert {
        "conf/new.toml",
        "later",
        ".claude/settings.json",
        ".mcp.json",
        ".vscode",
        ".git/commondir",
    } <= view.placeholders()
    hollow = {os.path.relpath(path, ground.root) for path in view.plan.placeholder_folders}
    assert {"conf", "later", ".claude", ".vscode", ".claude/hooks"} <= hollow
    assert not {"conf/new.toml", ".mcp.json", ""} & hollow
    assert [ghost for ghost in view.placeholders() if view.written(ghost)] == []
    lengths = [len(path) for path in view.plan.placeholder_folders]
    assert lengths == sorted(lengths)


def test_git_passes_over_what_is_there_only_to_be_held(ground: Ground) -> None:
    ground.repository()
    (ground.root / ".git/info/exclude").write_text("mine\n")
    view = ground.view(protected=("a[1].txt", "b*c".replace("*", "\\*"), "sp "))
    text = Path(view.behind(".git/info/exclude")).read_text()
    assert text.startswith("mine\n\n")
    assert {"/.mcp.json", "/a\\[1].txt", "/b\\*c", "/sp\\ "} <= {*text.splitlines()}
    assert "/.git/config.worktree" not in text
    (ground.root / "a[1].txt").touch()
    (ground.root / "sp ").touch()
    (ground.root / ".git/info/exclude").write_text(text)
    assert ground.git("status", "--porcelain") == ""


def test_so_it_does_where_there_is_no_file_of_what_to_pass_over(ground: Ground) -> None:
    ground.repository()
    (ground.root / ".git/info/exclude").unlink()
    view = ground.view()
    assert ".git/info/exclude" in view.placeholders()
    assert "/.mcp.json\n" in Path(view.behind(".git/info/exclude")).read_text()
    assert not view.written(".git/info/exclude")


def test_settings_and_hooks_of_git_are_held_and_commits_can_be_made(ground: Ground) -> None:
    ground.repository()
    view = ground.view()
    for name in (".git/config", ".git/hooks/pre-commit", ".git/info/attributes", ".git/commondir"):
        assert not view.written(name), name
    for name in (".git/index.lock", ".git/objects/aa/bb", ".git/refs/heads/x", ".git/HEAD", ".git/logs/HEAD"):
        assert view.written(name), name


def test_a_link_is_held_where_it_leads_and_nothing_is_made_outside_through_one(ground: Ground, tmp_path: Path) -> None:
    ground.put("lib/auth/key.py")
    (ground.root / "src").symlink_to("lib")
    (tmp_path / "dotfiles").mkdir()
    (ground.root / ".claude").symlink_to(tmp_path / "dotfiles")
    (ground.root / ".codex").write_text("a file")
    view = ground.view(protected=("src/auth/", ".codex/x.toml"))
    assert not view.written("lib/auth/key.py")
    assert all(is_within(path, str(ground.root)) for path in (*view.plan.placeholders, *view.plan.placeholder_folders))
    assert not any(ghost.startswith((".claude/", ".codex/")) for ghost in view.placeholders())


def test_a_kind_that_holds_nothing_is_asked_to_hold_nothing(ground: Ground) -> None:
    ground.repository()
    ground.put("a", ".ralph/settings.json")
    view = ground.view(kind=Plain(protects_paths=False), protected=("a", "b"))
    assert (view.plan.placeholders, view.plan.placeholder_folders, view.written("a")) == ((), (), True)
    assert "a" in view.plan.names


# Our own folder, and the task's


def test_our_folder_is_read_and_only_the_tasks_folder_in_it_is_the_agents(ground: Ground) -> None:
    ground.put(".ralph/settings.json", ".ralph/runs/1/prompt.md")
    task = f"{ground.root}/.ralph/runs/1/task"
    view = ground.view(task=task)
    assert os.path.isdir(task)
    assert [view.written(f".ralph/{name}") for name in ("settings.json", "x", "runs/1/prompt.md", "runs/1/task/x")] == [
        False, False, False, True
    ]  # fmt: skip


def test_it_is_also_where_the_tasks_folder_is_the_first_in_it(ground: Ground) -> None:
    view = ground.view(task=f"{ground.root}/.ralph/runs/1/task")
    assert (view.written(".ralph/settings.json"), view.written(".ralph/runs/1/task/x")) == (False, True)


def test_a_file_of_the_run_is_held_in_the_tasks_folder_too(ground: Ground) -> None:
    ground.put(".ralph/tasks/1/prd.md", ".ralph/tasks/1/notes.md")
    view = ground.view(task=f"{ground.root}/.ralph/tasks/1", run_files=(".ralph/tasks/1/prd.md",))
    written = {name: view.written(f".ralph/{name}") for name in ("tasks/1/prd.md", "tasks/1/notes.md", "x", "tasks/x")}
    assert written == {"tasks/1/prd.md": False, "tasks/1/notes.md": True, "x": False, "tasks/x": False}


@pytest.mark.parametrize("task", [".", "src", "src/auth", "src/auth/tasks"])
def test_a_tasks_folder_elsewhere_in_the_project_uncovers_nothing(ground: Ground, task: str) -> None:
    ground.put("src/auth/key.py", "src/auth/tasks/x", ".env", ".ralph/settings.json")
    view = ground.view(task=f"{ground.root}/{task}".removesuffix("/."), protected=("src/auth/", ".env"))
    assert [name for name in ("src/auth/key.py", ".env", ".ralph/settings.json") if view.written(name)] == []


def test_a_tasks_folder_outside_is_written_and_a_link_out_of_the_project_is_not_followed(
    ground: Ground, tmp_path: Path
) -> None:
    assert ground.view(task=f"{tmp_path}/tasks/1").written(f"{tmp_path}/tasks/1/x")
    ground.put(".ralph/settings.json")
    (ground.root / ".ralph/task").symlink_to(ground.home.path)
    view = ground.view(task=f"{ground.root}/.ralph/task")
    assert not view.written(".ralph/task/x")
    assert not view.written("~/x")


def test_a_link_into_our_folder_that_took_the_place_of_the_tasks_uncovers_nothing(ground: Ground) -> None:
    ground.put(".ralph/settings.json")
    (ground.root / "tasks").symlink_to(".ralph")
    paths = [mount.path for mount in ground.view(task=f"{ground.root}/tasks").plan.mounts]
    assert f"{ground.root}/tasks" not in paths


def test_a_tasks_folder_below_a_link_into_our_folder_is_refused(ground: Ground) -> None:
    ground.put(".ralph/runs/1/prompt.md")
    (ground.root / "tasks").symlink_to(".ralph")
    with pytest.raises(Refused, match="by a link"):
        ground.view(task=f"{ground.root}/tasks/runs")


# Links that somebody inside may have put into the project


@pytest.mark.parametrize("variable", ["PATH", "VIRTUAL_ENV", "SSL_CERT_FILE"])
@pytest.mark.parametrize(("holds", "shown"), [("notes", False), ("pyvenv.cfg", True)])
def test_a_place_in_the_project_that_leads_out_of_it_is_shown_only_where_it_is_a_tool(
    ground: Ground, variable: str, holds: str, shown: bool
) -> None:
    ground.home.put(f"other/{holds}")
    (ground.root / "bin").symlink_to(ground.home.path / "other")
    view = ground.view(ground.home.environ() | {variable: f"{ground.root}/bin"})
    assert view.read(f"~/other/{holds}") == shown


def test_a_file_that_an_agent_is_given_is_not_followed_out_of_the_project(ground: Ground) -> None:
    ground.home.put("other/notes")
    (ground.root / "data").symlink_to(ground.home.path / "other/notes")
    assert not ground.view(reads=(f"{ground.root}/data",)).read("~/other/notes")


@pytest.mark.parametrize("link", [".git/info", ".git/info/exclude"])
def test_a_link_in_what_git_passes_over_by_is_not_mounted(ground: Ground, link: str) -> None:
    ground.repository()
    ground.put("../beside/exclude")
    shutil.rmtree(ground.root / ".git/info")
    (ground.root / link).parent.mkdir(exist_ok=True)
    (ground.root / link).symlink_to(ground.root / ("../beside/exclude" if link.endswith("exclude") else "../beside"))
    mounts = ground.view().plan.mounts
    assert not [one for one in mounts if one.path.startswith(str(ground.root)) and os.path.islink(one.path)]


@pytest.mark.parametrize("by", ["link", "file"])
def test_a_repository_elsewhere_that_does_not_know_the_project_is_not_shown(ground: Ground, by: str) -> None:
    other = ground.home.path / "other"
    ground.git("init", "-q", str(other))
    git = ground.root / ".git"
    git.symlink_to(other / ".git") if by == "link" else git.write_text(f"gitdir: {other}/.git\n")
    view = ground.view()
    assert (view.read("~/other/.git/HEAD"), view.written("~/other/.git/objects/x")) == (False, False)


# Worktrees


def test_a_linked_worktree_writes_only_what_a_commit_needs_of_the_repository(ground: Ground) -> None:
    ground.repository()
    side = ground.root.parent / "side"
    ground.git("worktree", "add", "-q", str(side))
    (ground.root / ".git/modules/sub/objects").mkdir(parents=True)
    (ground.root / ".git/modules/sub/config").write_text("")
    main, ground.root = ground.root, side
    view = ground.view()
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


def test_a_repository_that_lies_elsewhere_can_be_worked_in(ground: Ground, tmp_path: Path) -> None:
    ground.git("init", "-q", f"--separate-git-dir={tmp_path}/elsewhere")
    view = ground.view()
    assert view.written(f"{tmp_path}/elsewhere/index.lock")
    assert [name for name in ("config", "hooks/x") if view.written(f"{tmp_path}/elsewhere/{name}")] == []
    assert not view.written(".git")


# An agent


def test_an_agent_has_a_folder_of_its_own_and_its_login_is_lent(ground: Ground) -> None:
    ground.home.put(".claude/.credentials.json", ".claude/skills/a/SKILL.md", ".claude/projects/secret.jsonl")
    view = ground.view(agent="claude", agents=LODGINGS)
    own = view.variables["CLAUDE_CONFIG_DIR"]
    assert own == f"{ground.store}/agents/claude"
    assert view.written(f"{own}/projects/x")
    assert view.behind(f"{own}/.credentials.json") == f"{ground.home}/.claude/.credentials.json"
    assert (view.read(f"{own}/skills/a/SKILL.md"), view.written(f"{own}/skills/a/SKILL.md")) == (True, False)
    assert not view.written(f"{own}/.credentials.json")
    assert view.seen_at("~/.claude/projects/secret.jsonl") == []
    assert stat.S_IMODE(os.stat(own).st_mode) == 0o700


def test_nobody_else_has_it(ground: Ground) -> None:
    ground.home.put(".claude/.credentials.json")
    ground.view(agent="claude", agents=LODGINGS)
    view = ground.view(agents=LODGINGS)
    assert "CLAUDE_CONFIG_DIR" not in view.variables
    assert view.seen_at("~/.claude/.credentials.json") == []
    assert not view.read(f"{ground.store}/agents/claude")


def test_a_login_is_lent_from_where_a_variable_moved_it(ground: Ground) -> None:
    ground.home.put("elsewhere/.credentials.json", ".claude/.credentials.json")
    environ = ground.home.environ(CLAUDE_CONFIG_DIR="~/elsewhere")
    view = ground.view(environ, agent="claude", agents=LODGINGS)
    assert (
        view.behind(f"{ground.store}/agents/claude/.credentials.json") == f"{ground.home}/elsewhere/.credentials.json"
    )


def test_an_agent_that_cannot_be_moved_finds_its_folder_where_it_looks(ground: Ground) -> None:
    ground.home.put(".gemini/oauth_creds.json", ".gemini/history/x")
    view = ground.view(agent="gemini", agents=LODGINGS)
    assert view.behind("~/.gemini/x") == f"{ground.store}/agents/gemini/x"
    assert (view.read("~/.gemini/oauth_creds.json"), view.written("~/.gemini/oauth_creds.json")) == (True, False)
    assert view.seen_at("~/.gemini/history/x") == []


@pytest.mark.parametrize("moved", [{}, {"XDG_CONFIG_HOME": "~/cfg", "XDG_DATA_HOME": "~/data"}])
def test_what_is_lent_of_the_home_lies_in_the_home(ground: Ground, moved: dict[str, str]) -> None:
    config, data = ("cfg", "data") if moved else (".config", ".local/share")
    ground.home.put(f"{config}/amp/settings.json", f"{config}/amp/other", f"{data}/amp/secrets.json")
    view = ground.view(ground.home.environ(**moved), agent="amp", agents=LODGINGS)
    assert view.behind("~/.config/amp/settings.json") == f"{ground.home}/{config}/amp/settings.json"
    assert view.behind("~/.local/share/amp/secrets.json") == f"{ground.home}/{data}/amp/secrets.json"
    assert view.seen_at(f"~/{config}/amp/other") == []


def test_what_an_agent_put_where_something_is_lent_is_taken_away(ground: Ground, tmp_path: Path) -> None:
    ground.home.put(".claude/settings.json", ".claude/.credentials.json", ".claude/skills/a")
    own = ground.store / "agents/claude"
    (own / "settings.json").mkdir(parents=True)
    (own / "skills").write_text("a file")
    (own / ".credentials.json").symlink_to(tmp_path / "target")
    (tmp_path / "target").write_text("stays")
    ground.view(agent="claude", agents=LODGINGS)
    assert [os.path.lexists(own / name) for name in ("settings.json", "skills", ".credentials.json")] == [False] * 3
    assert (tmp_path / "target").read_text() == "stays"


def test_settings_of_agents_in_the_project_are_held(ground: Ground) -> None:
    ground.put(".gemini/settings.json")
    view = ground.view(agent="gemini", agents=LODGINGS)
    assert not view.written(".gemini/settings.json")
    assert ".claude/settings.json" in view.placeholders()


def test_a_program_and_what_it_needs_is_there(ground: Ground) -> None:
    ground.home.program("apps/agent/bin/agent", "apps/agent/lib/x")
    ground.home.put("apps/agent/etc/npmrc")
    ground.home.link(".local/bin/agent", "../../apps/agent/bin/agent")
    (ground.store / "runs").mkdir()
    (ground.store / "runs/prompt.md").write_text("x")
    view = ground.view(reads=[f"{ground.home}/.local/bin/agent", f"{ground.store}/runs/prompt.md"])
    for name in ("~/.local/bin/agent", "~/apps/agent/lib/x", f"{ground.store}/runs/prompt.md"):
        assert view.read(name), name
    assert view.seen_at("~/apps/agent/etc/npmrc") == []
    assert not view.read(f"{ground.store}/runs")


def test_a_program_in_the_project_opens_nothing(ground: Ground) -> None:
    ground.put("agent.sh", text=f"#!{ground.home}/.ssh/id_ed25519\n")
    (ground.root / "link").symlink_to(ground.home.path / ".ssh")
    (ground.home.path / ".ssh/id_ed25519").chmod(0o755)
    view = ground.view(reads=[f"{ground.root}/agent.sh", f"{ground.root}/link/id_ed25519", f"{ground.root}/link"])
    assert view.secrets == []
    assert view.written("agent.sh")


def test_a_room_of_its_own_in_the_state_folder_is_written_and_no_other_place_is_because_one_works_there(
    ground: Ground,
) -> None:
    room = ground.store / "runs/1/judge-room"
    room.mkdir(parents=True)
    view = ground.view(cwd=str(room))
    assert view.written(f"{room}/x")
    assert not view.read(f"{ground.store}/runs/1")
    for elsewhere in ("/", str(ground.home), str(ground.root.parent)):
        view = ground.view(cwd=elsewhere)
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
        ("http://user:pw@gateway.test", ["private:gateway.test"], []),
        ("gateway.test", ["private:gateway.test"], []),
        ("http://localhost:4000", [], [4000]),
        ("http://127.0.0.1", [], [80]),
        ("https://[::1]:4001/x", [], [4001]),
        ("http://[fd00::1]:80", ["private:[fd00::1]"], []),
        ("http://gateway.test:99999", [], []),
        ("http://169.254.169.254/", ["private:169.254.169.254"], []),
        ("http://127.0.0.2:80", ["private:127.0.0.2"], []),
        ("nonsense://", [], []),
    ],
)
def test_an_agent_calls_its_service_or_the_one_that_is_set_in_its_place(
    ground: Ground, address: str, hosts: list[str], ports: list[int]
) -> None:
    said = (("ANTHROPIC_BASE_URL", address), ("OTHER_BASE_URL", "https://evil.test"))
    egress = ground.view(agent="claude", agents=LODGINGS, addresses=said, hosts=("npm",)).plan.egress
    assert egress.hosts == (*NPM.hosts, *hosts, "api.anthropic.com")
    assert egress.local_ports == tuple(ports)


def test_a_check_calls_only_what_the_user_lists(ground: Ground) -> None:
    view = ground.view(agents=LODGINGS, addresses=(("ANTHROPIC_BASE_URL", "https://x.test"),), local_ports=(5432,))
    assert (view.plan.egress.hosts, view.plan.egress.local_ports) == ((), (5432,))


# Kinds that show nothing elsewhere


def test_without_mounts_elsewhere_the_home_is_one_of_links(ground: Ground) -> None:
    ground.home.program(".pyenv/libexec/pyenv", ".rustup/settings.toml")
    ground.home.put(".claude/.credentials.json", ".nvm/.npmrc", ".nvm/nvm.sh")
    kind = Plain(can_remount=False)
    view = ground.view(kind=kind, agent="claude", agents=LODGINGS)
    home = Path(view.variables["HOME"])
    assert view.variables["TMPDIR"] == view.plan.temp
    assert is_within(str(home), view.plan.temp)
    assert (home / ".rustup/settings.toml").samefile(ground.home.path / ".rustup/settings.toml")
    assert (home / ".gitconfig").read_text().startswith("[user]")
    own = Path(view.variables["CLAUDE_CONFIG_DIR"])
    assert (own / ".credentials.json").samefile(ground.home.path / ".claude/.credentials.json")
    others = [mount for mount in view.plan.mounts if mount.source and not view.covers(mount)]
    assert others == []
    assert view.written("x")
    assert view.secrets == []
    assert view.seen_at("~/.nvm/.npmrc") == []
    assert view.read("~/.nvm/nvm.sh")
    assert Mount(READ_ONLY, DEV_NULL) not in view.plan.mounts


def test_a_home_of_links_is_made_anew_and_nothing_of_the_users_is_touched(ground: Ground) -> None:
    ground.home.put(".pyenv/version", text="")
    ground.home.link(".pyenv/current", "versions/3")
    kind = Plain(can_remount=False)
    home = Path(ground.view(kind=kind).variables["HOME"])
    (home / ".cargo").symlink_to(ground.home.path / ".ssh")
    (home / "planted").write_text("x")
    ground.home.program(".cargo/bin/cargo")
    ground.view(kind=kind, reads=[f"{ground.home}/.pyenv/version", f"{ground.home}/.pyenv/current"])
    assert not (home / "planted").exists()
    assert not (ground.home.path / ".ssh/bin").exists()
    assert os.path.lexists(ground.home.path / ".pyenv/current")
    assert (ground.home.path / ".pyenv/version").exists()


def test_nothing_is_linked_in_a_folder_of_the_users(ground: Ground) -> None:
    ground.home.put(".pyenv/empty", text="")
    ground.home.put("another")
    ground.home.link(".pyenv/link", "versions/3")
    shown = [Mount(READ_ONLY, f"{ground.home}/.pyenv")]
    shown += [
        Mount(READ_ONLY, f"{ground.home}/.pyenv/{name}", f"{ground.home}/another") for name in ("empty", "link", "new")
    ]
    mounts_in_place(shown, f"{ground.store}/1.tmp", str(ground.home), str(ground.store), (DEV_NULL,))
    assert sorted(os.listdir(ground.home.path / ".pyenv")) == ["empty", "link"]
    assert os.readlink(ground.home.path / ".pyenv/link") == "versions/3"
    assert not os.path.islink(ground.home.path / ".pyenv/empty")


def test_an_agent_that_cannot_be_moved_has_its_folder_by_a_link(ground: Ground) -> None:
    ground.home.put(".gemini/oauth_creds.json")
    view = ground.view(kind=Plain(can_remount=False), agent="gemini", agents=LODGINGS)
    home = Path(view.variables["HOME"])
    assert (home / ".gemini").samefile(ground.store / "agents/gemini")
    assert (home / ".gemini/oauth_creds.json").samefile(ground.home.path / ".gemini/oauth_creds.json")
    assert view.written(f"{ground.store}/agents/gemini/x")


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


def test_root_cannot_work_in_somebody_elses_project(ground: Ground) -> None:
    require(os.geteuid() == 0, "root")
    os.chown(ground.root, 12345, 12345)
    with pytest.raises(Refused, match=r"belongs to user 12345, .*; run ralph as that user, or chown the project"):
        ground.view()


def test_nothing_is_made_for_a_project_that_is_refused(ground: Ground) -> None:
    with pytest.raises(Refused):
        ground.view(root=str(ground.home))
    assert list(ground.store.iterdir()) == [ground.store / "runs"]


def test_a_project_behind_a_link_is_held_as_well_as_any(ground: Ground, tmp_path: Path) -> None:
    ground.repository()
    ground.put("src/auth/key.py")
    (tmp_path / "link").symlink_to(ground.root)
    view = ground.view(root=f"{tmp_path}/link", protected=("src/auth/",))
    assert view.plan.root == str(ground.root)
    assert [view.written(name) for name in ("x", "src/auth/key.py", ".git/config")] == [True, False, False]
    assert [one for one in view.seen_at("src/auth/key.py") if view.written(one)] == []
    assert view.plan.cwd == str(ground.root)
    (tmp_path / "home-link").symlink_to(ground.home.path)
    with pytest.raises(Refused, match="holds your home folder"):
        ground.view(root=f"{tmp_path}/home-link")


# Of any terrain

NAMES = ["a", "a/b", "a/b/c", "a/d", ".env", "x/y", ".mcp.json", ".claude/settings.json", ".git/x"]


@settings(max_examples=40, deadline=None)
@given(
    st.sets(st.sampled_from(NAMES)), st.sets(st.sampled_from([*NAMES[:-1], "*.py", "a/*", "**/c"]), max_size=4),
    st.booleans(), st.booleans(), st.sampled_from(["", ".ralph/t", "a", "."]),
)  # fmt: skip
def test_whatever_is_protected_is_not_written_and_cannot_be_moved_away(
    tmp_path_factory: pytest.TempPathFactory, files: set[str], protected: set[str], git: bool, ours: bool, task: str
) -> None:
    ground = Ground(tmp_path_factory.mktemp("terrain"))
    if git:
        ground.repository()
    for name in sorted(files, key=len):
        place = ground.root / name
        if place.parent.is_file() or (place.parent / "x").is_file() or any(up.is_file() for up in place.parents):
            continue
        ground.put(name if not any(other.startswith(f"{name}/") for other in files) else f"{name}/f")
    if ours:
        ground.put(".ralph/settings.json")
    view = ground.view(protected=tuple(sorted(protected)), task=os.path.normpath(ground.root / task) if task else "")
    assert view.secrets == []
    held = [*view.plan.names, *view.placeholders(), *([".ralph/settings.json"] if ours else [])]
    assert [name for name in held if view.written(name)] == []
    points = {mount.path for mount in view.plan.mounts}
    for name in view.plan.names:  # nor what lies below
        assert not view.written(f"{name}/x/y"), name
    loose = [
        folder
        for name in held
        for folder in map(str, (ground.root / name).parents)
        if is_within(folder, str(ground.root)) and view.written(folder) and folder not in points
    ]
    assert loose == []
    assert CLAUDE.folder not in str(view.plan.mounts)
