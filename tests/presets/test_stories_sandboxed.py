"""Stories in a sandbox, which is their default; whole runs against the recorded interface of Docker sandboxes."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from ralphproof.agents.command import PLAYER_PATH
from ralphproof.sandbox.docker_sandbox import sandbox_name
from tests.boxes import KINDS, needs
from tests.cli.steering import rests
from tests.misbehaviour.agents import facts
from tests.misbehaviour.invariants import hold
from tests.misbehaviour.stories import (
    TASKS,
    US1,
    US2,
    approved,
    course,
    fields,
    known,
    lay,
    requested,
    story,
    submitted,
    text,
)
from tests.ralph import Ended, Ralph, Step, done, say, until
from tests.sandbox.fake_docker import REFUSED, FakeDocker

STORIES = ("run", "--preset", "stories")
DOCKER = ("--sandbox=docker-sandbox",)
MODES = ["implement", "review", "review-fix", "review", "implement", "review"]
LAST = "<promise>COMPLETE</promise>"


def writes(*stories: dict[str, Any], says: str = "ok", **files: str) -> list[Step]:
    """A turn that writes these stories and files: nothing outside the project is there."""
    return [{"write": {TASKS: text(*stories), **files}}, say(says)]


def cycle(*ids: str) -> list[list[Step]]:
    """The first story is made, reviewed, sent back, made again and approved; the others are approved at once."""
    turns: list[list[Step]] = []
    before: list[dict[str, Any]] = []
    for place, id in enumerate(ids):
        later = [story(other) for other in ids[place + 1 :]]
        end = f"good\n{LAST}" if not later else "good"
        count = 1 if before else 2
        turns.append(writes(*before, submitted(id), *later, done=id))
        if count == 2:
            turns.append(writes(*before, requested(id, feedback="louder"), *later))
            turns.append(writes(*before, submitted(id, count=1), *later, **{id: "loud"}))
        turns.append(writes(*before, approved(id, count=count), *later, says=end))
        before.append(approved(id, count=count))
    return turns


# By default


def test_stories_ask_for_the_strongest_sandbox(ralph: Ralph) -> None:
    needs("bubblewrap")
    del ralph.env["RALPH__SANDBOX__BACKEND"]
    lay(ralph, story())
    first, *later = cycle(US1)
    look = {"run": ["sh", "-c", 'grep mode .ralph-active > "$TASK_FOLDER/seen"']}
    ended = ralph(*STORIES, "--agent", ralph.script([look, *first], *later))
    assert ended.code == 0, ended
    assert (ralph.run_folder() / "task/seen").read_text() == '  "mode": "sandbox",\n'
    hold(ralph, ended)
    assert "sandbox bubblewrap (strong)" in ended.err
    assert ralph.outcome()["sandbox"] == {"v": 1, "type": "sandbox", "name": "bubblewrap", "strength": "strong"}
    assert fields(known(ralph)[US1]) == (True, "approved", 2)


@pytest.mark.thorough
@pytest.mark.parametrize("kind", KINDS)
def test_two_stories_go_through_their_reviews_in_any_kind(ralph: Ralph, kind: str) -> None:
    needs(kind)
    lay(ralph, story(), story(US2))
    ended = ralph(*STORIES, "--agent", ralph.script(*cycle(US1, US2)), f"--sandbox={kind}")
    assert ended.code == 0, ended
    hold(ralph, ended)
    assert [mode for _, mode, _ in course(ralph)] == MODES
    assert facts(ralph)["sandbox"]["name"] == kind


def test_stories_without_a_usable_sandbox_are_refused_with_both_remedies(ralph: Ralph) -> None:
    """Never a silent fallback: the user says which."""
    del ralph.env["RALPH__SANDBOX__BACKEND"]
    lay(ralph, story())
    agent = ralph.script([{"write": {"started": "x"}}, done()])
    ralph.settings(sandbox={"backend": "container"})
    ended = ralph(*STORIES, "--agent", agent, env={"PATH": str(ralph.bin)})
    assert ended.code == 2, ended
    assert "sandbox container does not work here" in ended.err
    assert "--no-sandbox" in ended.err
    assert len(ended.err.splitlines()) == 1
    assert not (ralph.root / "started").exists()


def test_a_single_iteration_runs_without_a_sandbox_on_request(ralph: Ralph) -> None:
    del ralph.env["RALPH__SANDBOX__BACKEND"]
    lay(ralph, story())
    ended = ralph(*STORIES, "--agent", ralph.script(*cycle(US1)), "--no-sandbox", "-m", "1")
    assert (ended.code, ralph.outcome()["reason"]) == (1, "MAX_ITERATIONS")
    assert ralph.outcome()["sandbox"]["strength"] == "none"
    assert fields(known(ralph)[US1]) == (False, "needs_review", 0)


def test_settings_without_a_sandbox_are_reported_with_what_applies(ralph: Ralph) -> None:
    del ralph.env["RALPH__SANDBOX__BACKEND"]
    lay(ralph, story())
    ralph.settings(sandbox={"backend": None})
    ralph.program("claude", "true")
    shown = ralph(*STORIES, "--agent", "claude", "--dry-run")
    assert "no sandbox, as .ralph/settings.json says: claude runs guarded (acceptEdits) instead" in shown.err


# Docker's


class Docker:
    """A project whose sandbox a fake program plays, and an agent of a known name that plays a script inside."""

    def __init__(self, ralph: Ralph, kind: str = "docker") -> None:
        self.ralph, self.kind, self.fake = ralph, kind, FakeDocker(ralph.folder / "fake")
        found = self.fake.environ(kind)["PATH"]
        ralph.env["PATH"] = f"{ralph.bin}:{found}"
        (ralph.home / ".gitconfig").write_text("[user]\n\tname = Ada L.\n\temail = ada@example.org\n")
        lay(ralph, story(), story(US2))

    def agent(self, *turns: list[Step]) -> None:
        """Claude Code as a program that plays these turns: its last words are its result."""
        self.ralph.script(*turns)
        script = self.ralph.root / "script.json"
        script.write_text((self.ralph.folder / "script.json").read_text())
        play = f'out=$("{sys.executable}" -I -S "{PLAYER_PATH}" "{script}" --plain)'
        result = '\'{"type":"result","subtype":"success","is_error":false,"result":%s}\\n\''
        quoted = f'"$(printf %s "$out" | "{sys.executable}" -c "import json,sys; print(json.dumps(sys.stdin.read()))")"'
        self.ralph.program("claude", f"{play} || exit 1\nprintf {result} {quoted}")

    def run(self, *flags: str) -> Ended:
        return self.ralph(*STORIES, "--agent", "claude", *DOCKER, *flags, timeout_s=300)

    @property
    def name(self) -> str:
        return sandbox_name(str(self.ralph.root), "claude")

    def asked(self, verb: str) -> list[list[str]]:
        """What was asked of this project's machine; another one is only tried out."""
        return [argv for call in self.fake.calls(verb) if "ralph-trial" not in " ".join(argv := call["argv"])]


@pytest.fixture
def docker(ralph: Ralph) -> Docker:
    return Docker(ralph)


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["docker", "sbx"])
def test_stories_run_to_the_end_in_a_docker_sandbox(ralph: Ralph, kind: str) -> None:
    docker = Docker(ralph, kind)
    if kind == "sbx":
        docker.fake.options(policy={"allow": ["**"]})
    docker.agent(*cycle(US1, US2))
    ended = docker.run()
    assert ended.code == 0, ended
    assert [mode for _, mode, _ in course(ralph)] == MODES
    assert [fields(one) for one in known(ralph).values()] == [(True, "approved", 2), (True, "approved", 1)]
    assert [argv[:4] for argv in docker.asked("create")] == [["create", "--name", docker.name, "claude"]]
    assert facts(ralph)["sandbox"]["name"] == "docker-sandbox"
    assert ralph.outcome()["sandbox"]["strength"] == ("strong" if kind == "docker" else "partial")
    assert facts(ralph)["sandbox"]["limits"] == "memory and processes by its own machine"


@pytest.mark.thorough
def test_a_single_iteration_runs_once(docker: Docker) -> None:
    docker.agent(*cycle(US1, US2))
    ended = docker.run("-m", "1")
    assert (ended.code, docker.ralph.outcome()["reason"]) == (1, "MAX_ITERATIONS")
    assert fields(known(docker.ralph)[US1]) == (False, "needs_review", 0)


@pytest.mark.thorough
def test_commits_inside_carry_the_users_name_and_the_state_outlives_the_machine(docker: Docker) -> None:
    ralph = docker.ralph
    steps = [{"run": ["sh", "-c", "git log -1 --format=%an > who; echo login > ~/.claude/token"]}]
    docker.agent([*steps, say("x")])
    assert docker.run("-m", "1").code == 1
    assert ralph.git("config", "--global", "user.name").strip() == "Ada L."
    (kept,) = ralph.state_dir.rglob("agents/claude/token")
    assert kept.read_text() == "login\n"
    assert docker.fake.sandboxes().pop(docker.name)
    (docker.fake.folder / "sandboxes.json").write_text("{}")  # somebody removed it
    docker.agent([{"run": ["sh", "-c", "cat ~/.claude/token > found"]}, say("x")])
    assert docker.run("-m", "1").code == 1
    assert (ralph.root / "found").read_text() == "login\n"
    assert len(docker.asked("create")) == 2


@pytest.mark.thorough
def test_only_the_agents_service_and_allowed_hosts_are_reachable(docker: Docker) -> None:
    tried = ("api.anthropic.com", "a.test", "evil.test")
    calls = "".join(f"curl -sS https://{host}; echo {host} $? >> codes\n" for host in tried)
    docker.agent([{"run": ["sh", "-c", f"{calls} nc -z a.test 4444; echo nc $? >> codes"]}, say("x")])
    assert docker.run("-m", "1", "--allow-host", "a.test").code == 1
    codes = dict(line.split() for line in (docker.ralph.root / "codes").read_text().splitlines())
    assert (codes["api.anthropic.com"], codes["a.test"], codes["evil.test"]) == ("0", "0", str(REFUSED))
    assert codes["nc"] != "0"
    policy = docker.asked("network")[0]
    assert policy[:5] == ["network", "proxy", docker.name, "--policy", "deny"]
    assert policy[policy.index("a.test") - 1 :][:2] == ["--allow-host", "a.test"]


@pytest.mark.thorough
def test_what_the_user_edits_while_the_run_rests_is_seen_inside(docker: Docker) -> None:
    """A file that was copied in once is not copied again: the machine is stopped, and the next command starts it."""
    ralph = docker.ralph
    ralph.write({"notes": "first\n"})
    ralph.commit()
    look: Step = {"run": ["sh", "-c", "cat notes >> seen; echo x >> turn"]}
    docker.agent([look, {"until": "go"}, say("x")], [look, say("x")])
    live = ralph.start(*STORIES, "--agent", "claude", *DOCKER, "-m", "2")
    until((ralph.root / "seen").exists, "the first turn")
    run = ralph.runs()[0].id
    assert ralph("pause", run).code == 0
    (ralph.root / "go").touch()
    rests(ralph, run)
    ralph.write({"notes": "second\n"})
    assert ralph("resume", run).code == 0
    assert live.end(180).code == 1
    assert (ralph.root / "seen").read_text() == "first\nsecond\n"
    assert docker.asked("stop") != []


def test_a_docker_sandbox_that_cannot_be_created_is_reported_and_nothing_runs_outside(docker: Docker) -> None:
    docker.agent([{"write": {"started": "x"}}, say("x")])
    docker.fake.options(plain=True)
    ended = docker.run("-m", "1")
    assert ended.code == 2, ended
    assert "docker sandbox does not answer" in ended.err
    assert not (docker.ralph.root / "started").exists()
