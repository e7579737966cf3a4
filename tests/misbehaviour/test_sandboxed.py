"""A run in a sandbox that is killed, interrupted or steered; and all that happens around its turns."""

from __future__ import annotations

import json
import os
import shlex
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ralphproof.base.errors import Refused
from ralphproof.engine.records import Noticed, ScmEnded, TurnEnded
from ralphproof.process.tree import list_processes
from ralphproof.runs.children import load_constraints
from ralphproof.runs.request import RunRequest, TaskRequest
from ralphproof.store.run_folder import RunFolder
from tests.boxes import CALL, both, lay, needs, run, sh, text
from tests.cli.steering import gone, rests
from tests.misbehaviour.agents import facts, prompt
from tests.misbehaviour.crashing import ended_alone, keeper_of, kill, kill_both, resume, whys
from tests.misbehaviour.invariants import hold
from tests.misbehaviour.machine import command_line, recorded
from tests.ralph import PROGRAM, Live, Ralph, Step, done, say, until, write

pytestmark = pytest.mark.thorough

BOX = ("--sandbox=bubblewrap",)
CHECK = ("--check", "grep -q done work")
SLOW: list[Step] = [write(work="half", at__work=""), {"until": "go"}, write(work="done"), done()]
PART = "test -f part"
GHOSTS = (".claude", ".mcp.json", ".envrc", ".codex", ".vscode")  # what must not come to be lies there meanwhile


@pytest.fixture(autouse=True)
def _project(ralph: Ralph) -> None:
    needs("bubblewrap", "landlock")
    lay(ralph)


def begun(ralph: Ralph, *later: list[Step], flags: tuple[str, ...] = (*BOX, *CHECK)) -> Live:
    """A run whose agent is in the middle of its first turn, inside."""
    live = ralph.start("run", "-p", "make it so", "--agent", ralph.script(SLOW, *later), *flags)
    until((ralph.root / "at.work").exists, "the agent is at work")
    (ralph.folder / "groups").write_text("\n".join(map(str, own_groups(ralph))))
    return live


def go_on(ralph: Ralph) -> None:
    (ralph.root / "go").touch()


def bare(ralph: Ralph) -> None:
    """Nothing is left over of any sandbox: no process, no stand-in, no temporary folder, no group."""
    runs = [row.id for row in ralph.runs()]
    until(lambda: not [pid for run in runs for pid in ralph.processes(run)], "every process is gone")
    inside = os.fsencode(ralph.root)
    assert [pid for pid in list_processes() if b"bwrap" in command_line(pid) and inside in command_line(pid)] == []
    assert [name for name in GHOSTS if (ralph.root / name).exists()] == []
    assert list(ralph.state_dir.rglob("ghosts.json")) == []
    assert list(ralph.state_dir.rglob("*.tmp")) == []
    known = ralph.folder / "groups"  # of the turn that was seen at work
    seen = known.read_text().splitlines() if known.exists() else []
    until(lambda: not [path for path in seen if Path(path).exists()], "its groups are removed; any run may do that")
    until(lambda: orphaned() == [], "groups of later turns are removed too; those of other tests may take a moment")


def groups() -> dict[Path, int]:
    """The groups that limit commands on this machine, and whose they are."""
    found = [path for top in Path("/sys/fs/cgroup").glob("*") for path in top.glob("ralph-*")]
    return {path: int(path.name.split("-")[1]) for path in found}


def own_groups(ralph: Ralph) -> list[Path]:
    return [path for path, pid in groups().items() if os.fsencode(ralph.folder) in command_line(pid)]


def orphaned() -> list[Path]:
    return [path for path, pid in groups().items() if not Path(f"/proc/{pid}").exists()]


# Killed, interrupted, timed out


@both
def test_a_turn_in_a_sandbox_outlives_its_harness_and_is_adopted(ralph: Ralph, kind: str) -> None:
    live = begun(ralph, flags=(f"--sandbox={kind}", *CHECK))
    kill(live)
    assert keeper_of(ralph)
    go_on(ralph)
    ended = resume(ralph)
    assert ended.code == 0, ended
    hold(ralph, ended)
    assert (whys(ralph), text(ralph, "work")) == (["exit"], "done")
    assert ralph.outcome()["sandbox"]["name"] == kind
    bare(ralph)


def test_a_turn_that_ended_while_nobody_looked_is_used_and_what_it_could_not_reach_is_known(ralph: Ralph) -> None:
    agent = ralph.script([write(at__work=""), sh(CALL), {"until": "go"}, write(work="done"), done()])
    live = ralph.start("run", "-p", "x", "--agent", agent, *BOX, *CHECK)
    until((ralph.root / "at.work").exists, "the agent is at work")
    kill(live)
    go_on(ralph)
    ended_alone(ralph)
    ended = resume(ralph)
    assert ended.code == 0, ended
    (turn,) = recorded(ralph, TurnEnded)
    assert (turn.reply.exit.why, turn.reply.exit.blocked) == ("exit", ("a.test:80",))
    bare(ralph)


@both
def test_a_keeper_that_is_killed_takes_the_sandbox_with_it_and_the_work_is_kept(ralph: Ralph, kind: str) -> None:
    live = begun(ralph, [write(work="done"), done()], flags=(f"--sandbox={kind}", *CHECK))
    kill_both(ralph, live)
    ended = resume(ralph)
    assert ended.code == 0, ended
    hold(ralph, ended)
    assert whys(ralph) == ["interrupted", "exit"]
    run = ralph.runs()[0].id
    assert ralph.git("show", f"refs/ralph/{run}/1:work").strip() == "half"
    bare(ralph)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_what_is_inside_and_leaves_nothing(ralph: Ralph, number: signal.Signals) -> None:
    live = begun(ralph)
    os.kill(live.process.pid, number)
    ended = live.end()
    assert ended.code == 130, ended
    hold(ralph, ended)
    bare(ralph)
    assert text(ralph, "work") == "half"
    go_on(ralph)
    assert resume(ralph).code == 0
    bare(ralph)


def test_a_turn_that_takes_too_long_is_ended_with_all_that_it_started_inside(ralph: Ralph) -> None:
    ralph.settings(agent={"timeoutSeconds": 1})
    away = {"spawn": {"argv": ["sleep", "600"], "setsid": True, "double_fork": True, "clean_env": True}}
    ended = run(ralph, [away, {"ignore": ["TERM"]}, write(work="half"), {"until": "never"}], flags=(*BOX, "-m", "1"))
    assert ended.code == 1, ended
    assert whys(ralph) == ["timeout"]
    assert text(ralph, "work") == "half"
    bare(ralph)


# Taken up


def box_of(ralph: Ralph) -> Any:
    """What the latest run is held to, as whoever takes it up reads it."""
    bounds = load_constraints(RunFolder(str(ralph.root), ralph.runs()[0].id, ralph.project.store))
    assert bounds is not None
    return bounds.sandbox


def test_who_takes_a_run_up_gets_the_very_sandbox_that_it_had(ralph: Ralph) -> None:
    """Also where the settings say something else by now, and where a stronger one holds."""
    del ralph.env["RALPH__SANDBOX__BACKEND"]
    ralph.settings(sandbox={"backend": "landlock", "allowHosts": ["b.test"], "allowLocalPorts": [9]})
    assert run(ralph, [say("not yet")], [write(work="done"), done()], flags=(*CHECK, "-m", "1")).code == 1
    (ralph.root / ".ralph/settings.json").unlink()
    ended = resume(ralph, "-m", "2")
    assert ended.code == 0, ended
    assert "Taken up again, for the 1st time" in ended.err
    assert "sandbox landlock (partial)" in ended.err
    box = box_of(ralph)
    assert (box.backend, box.allow_hosts, box.allow_local_ports) == ("landlock", ("b.test",), (9,))


def test_a_run_that_had_none_gets_none_when_it_is_taken_up(ralph: Ralph) -> None:
    del ralph.env["RALPH__SANDBOX__BACKEND"]
    assert run(ralph, [say("not yet")], [write(work="done"), done()], flags=(*CHECK, "-m", "1")).code == 1
    ralph.settings(sandbox={"backend": "bubblewrap"})
    assert resume(ralph, "-m", "2").code == 0
    assert (ralph.outcome()["sandbox"]["name"], box_of(ralph)) == ("direct", None)


@pytest.mark.parametrize(
    ("flags", "name"), [(("--sandbox=landlock",), "landlock"), (("--no-sandbox",), "direct"), ((), "bubblewrap")]
)
def test_a_flag_changes_what_holds_a_run_that_is_taken_up(ralph: Ralph, flags: tuple[str, ...], name: str) -> None:
    assert run(ralph, [say("not yet")], [write(work="done"), done()], flags=(*BOX, *CHECK, "-m", "1")).code == 1
    ended = resume(ralph, "-m", "2", *flags)
    assert ended.code == 0, ended
    assert ralph.outcome()["sandbox"]["name"] == name
    assert ralph("status", "--json").json["facts"]["sandbox"]["name"] == name
    assert ralph("runs", "--json").json["runs"][0]["sandbox"]["name"] == name


def test_a_run_whose_sandbox_does_not_hold_any_more_is_not_taken_up_in_another(ralph: Ralph) -> None:
    assert run(ralph, [say("not yet")], flags=("--sandbox", "-m", "1")).code == 1
    ralph.program("bwrap", "exit 1")
    ended = resume(ralph, "-m", "2")
    assert ended.code == 2, ended
    assert "sandbox bubblewrap does not work here" in ended.err
    assert len(ralph.state().history.iterations) == 1


def test_a_host_that_is_allowed_when_a_run_is_taken_up_joins_its_list(ralph: Ralph) -> None:
    assert run(ralph, [say("x")], flags=(*BOX, "--allow-host", "a.test", "-m", "1")).code == 1
    assert resume(ralph, "-m", "2", "--allow-host", "b.test").code == 1
    assert box_of(ralph).allow_hosts == ("a.test", "b.test")


# Steered


def test_words_pauses_and_ends_reach_an_agent_inside(ralph: Ralph) -> None:
    live = begun(ralph, [write(second=""), {"until": "never"}], flags=(*BOX, "--check", "test -f never"))
    run_id = ralph.runs()[0].id
    assert ralph("say", run_id, "be bold").code == 0
    assert ralph("pause", run_id).code == 0
    go_on(ralph)
    rests(ralph, run_id)
    assert ralph("resume", run_id).code == 0
    until((ralph.root / "second").exists, "the second turn")
    assert "be bold" in prompt(ralph, 2)
    assert ralph("cancel", run_id).code == 0
    assert live.end().code == 130
    until(lambda: gone(ralph, run_id), "it is over")
    bare(ralph)


def test_the_task_folder_is_the_agents_and_the_rest_of_ours_is_read(ralph: Ralph) -> None:
    post = shlex.join([*PROGRAM, "bus", "post", "--to", "project", "hello from inside"])
    script = f"""{{ echo x > .ralph/settings.json; echo x > .ralph/runs/y; rm -rf .ralph; }} 2> seen
      echo mine > "$TASK_FOLDER/note"; {post} >> seen 2>&1"""
    assert run(ralph, [sh(script), done()]).code == 0
    assert text(ralph, "seen").count("Read-only file system") >= 2, text(ralph, "seen")
    assert (ralph.run_folder() / "task" / "note").read_text() == "mine\n"
    assert not (ralph.root / ".ralph/settings.json").exists()
    assert "hello from inside" in ralph("bus", "read", "--json").out, text(ralph, "seen")


# Children


def test_what_an_agent_inside_asks_for_runs_in_the_same_sandbox(ralph: Ralph) -> None:
    ralph.write({"child.json": json.dumps({"iterations": [[sh(f"cat {ralph.home}/secret > part 2>&1"), done()]]})})
    ralph.commit()
    words = [
        "run",
        "-p",
        "a part",
        "--agent",
        "scripted child.json",
        "--detach",
        "--no-sandbox",
        "--check",
        "test -f part",
    ]
    step = sh(f"{shlex.join([*PROGRAM, *words])} > child-said 2>&1; echo $? >> child-said")
    ended = run(ralph, [step, done()], flags=(*BOX, "--check", PART, "-m", "1"))
    assert ended.code == 0, (ended, text(ralph, "child-said"))
    inner, outer = ralph.runs()
    assert inner.parent == outer.id
    assert ralph.outcome(inner.id)["sandbox"]["name"] == "bubblewrap"
    assert "sesame" not in text(ralph, "part")
    told = " ".join(one.message for one in ralph.records(inner.id) if isinstance(one, Noticed))
    assert "has no --no-sandbox" in told


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"agent": {"env": {"A": "b"}}}, "agent.env is for the user to set"),
        ({"notify": ["https://a.test"]}, "notify is for the user to set"),
        ({"guardrails": [{"command": "true", "method": "x:y"}]}, "guardrails.method is for the user to set"),
        ({"agent": {"command": "some.package:agent"}}, "its agent would be loaded outside of the sandbox"),
    ],
)
def test_what_would_lead_out_of_the_sandbox_is_refused_to_an_agent_inside(
    ralph: Ralph, settings: dict[str, Any], why: str
) -> None:
    from ralphproof.runs.children import find_request_problem

    wish = RunRequest(("do it", None), settings, str(ralph.root))
    assert find_request_problem(wish, str(ralph.root), str(ralph.root / ".ralph/runs/x/task")) == why


@pytest.mark.parametrize("path", ["../outside", "/etc/passwd", "link"])
def test_a_prompt_outside_is_not_read_for_an_agent_inside(ralph: Ralph, path: str) -> None:
    from ralphproof.runs.children import find_request_problem

    (ralph.root / "link").symlink_to(ralph.home / "secret")
    wish = RunRequest((None, path), {}, str(ralph.root))
    assert (
        find_request_problem(wish, str(ralph.root), str(ralph.root / "task"))
        == "its prompt lies outside of the sandbox"
    )


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"task": TaskRequest(folder=".ralph/runs")}, "its task folder lies in .ralph, which is held"),
        ({"task": TaskRequest(folder="link")}, "its task folder lies in .ralph, which is held"),
        ({"project_dir": "../beside"}, "its project lies outside of the sandbox"),
        ({"task": TaskRequest(folder=".ralph/runs/x/task/part")}, ""),
        ({"task": TaskRequest(folder="tasks"), "project_dir": "sub"}, ""),
    ],
)
def test_an_agent_inside_chooses_no_folder_that_it_may_not_write(ralph: Ralph, more: dict[str, Any], why: str) -> None:
    from ralphproof.runs.children import find_request_problem

    (ralph.root / "link").symlink_to(".ralph")
    wish = RunRequest(("do it", None), {}, **more)
    assert find_request_problem(wish, str(ralph.root), str(ralph.root / ".ralph/runs/x/task")) == why


def test_a_prompt_of_an_agent_inside_is_read_before_a_link_can_take_its_place(ralph: Ralph) -> None:
    from ralphproof.runs.children import embed_prompt_file

    (ralph.root / "say").write_text("do it")
    wish = embed_prompt_file(RunRequest((None, "say"), {}), str(ralph.root), str(ralph.root / "task"))
    assert wish.prompt == ("do it", None)


@pytest.mark.parametrize("make", [lambda path: os.symlink("/etc/passwd", path), os.mkfifo, os.mkdir])
def test_what_is_no_plain_file_is_no_prompt_of_an_agent_inside(ralph: Ralph, make: Callable[[Path], None]) -> None:
    from ralphproof.runs.children import embed_prompt_file

    make(ralph.root / "say")
    with pytest.raises(Refused, match="its prompt cannot be read"):
        embed_prompt_file(RunRequest((None, "say"), {}), str(ralph.root), str(ralph.root / "task"))


# Around the turns


@pytest.mark.parametrize("place", ["COMMIT_EDITMSG", "logs/HEAD", "index"])
def test_a_commit_is_not_written_to_where_a_link_of_the_agents_leads(ralph: Ralph, place: str) -> None:
    ralph.settings(scm={"command": "git", "tasks": ["commit"]})
    ralph.commit()
    target = ralph.home / "new"
    lay_link = sh(f"rm -f .git/{place}; ln -s {target} .git/{place}")
    agent = ralph.script([lay_link, write(work="done"), done()], message=[say("make it so")])
    ended = ralph("run", "-p", "x", "--agent", agent, *BOX, *CHECK)
    assert (ended.code, ralph.outcome()["reason"]) == (1, "HISTORY_REWRITTEN"), ended
    assert f"{ralph.root}/.git/{place}" in ended.out
    assert not target.exists()


@pytest.mark.parametrize("code", [0, 1])
def test_a_hook_of_a_commit_runs_inside_with_what_the_agent_left_for_it(ralph: Ralph, code: int) -> None:
    ralph.settings(scm={"command": "git", "tasks": ["commit"]})
    ralph.commit()
    hook = ralph.root / ".git/hooks/pre-commit"
    hook.write_text("#!/bin/sh\nexec sh tools/lint.sh\n")
    hook.chmod(0o755)
    saw = f"{{ cat {ralph.home}/secret; echo out > {ralph.folder}/escaped; }} > hook-saw 2>&1; exit {code}"
    agent = ralph.script([write(**{"tools/lint__sh": saw, "work": "done"}), done()], message=[say("make it so")])
    ended = ralph("run", "-p", "x", "--agent", agent, *BOX, *CHECK)
    assert ended.code == 0, ended
    (scm,) = recorded(ralph, ScmEnded)
    assert bool(scm.committed.error) == bool(code)
    assert "sesame" not in text(ralph, "hook-saw")
    assert "No such file" in text(ralph, "hook-saw")
    assert not (ralph.folder / "escaped").exists()
    assert ("make it so" in ralph.git("log", "--format=%s")) == (code == 0)


def looking(ralph: Ralph, name: str) -> Step:
    """A step: leave in a file whether the user's secret can be read from here."""
    return sh(f"cat {ralph.home}/secret > {name} 2>&1; echo looked >> {name}")


def test_who_is_asked_for_a_message_and_who_judges_are_inside(ralph: Ralph) -> None:
    ralph.settings(scm={"command": "git", "tasks": ["commit"]})
    probe = f"cat {ralph.home}/secret 2>&1 | grep -c sesame"
    message: list[Step] = [{"run": ["sh", "-c", f"{probe}; true"]}, say("a message")]
    judging: list[Step] = [{"run": ["sh", "-c", f"test ! -e {ralph.home}/secret"]}, {"judge": "yes"}]
    agent = ralph.script([write(work="done"), done()], message=message, answer=judging)
    ended = ralph("run", "-p", "x", "--agent", agent, *BOX, *CHECK, "--judge", "it is done")
    assert ended.code == 0, ended
    assert ralph.outcome()["proof"] == "verified"
    (judged,) = [one for one in ralph.state().history.latest.report.findings if one.judged]
    assert judged.passed
    (log,) = ralph.run_folder().glob("scm_001.ndjson")
    assert "sesame" not in log.read_text()
    assert "a message" in ralph.git("log", "--format=%s")


def test_a_program_that_is_supervised_is_inside_and_its_marker_counts(ralph: Ralph) -> None:
    script = f'cat {ralph.home}/secret > seen 2>&1; echo looked >> seen; touch "$TASK_FOLDER/DONE"'
    ended = ralph("supervise", *BOX, "--check", "test -f seen", "--", "sh", "-c", script)
    assert ended.code == 0, ended
    assert text(ralph, "seen").endswith("looked\n")
    assert "sesame" not in text(ralph, "seen")
    assert facts(ralph)["sandbox"]["name"] == "bubblewrap"


@pytest.mark.parametrize("verb", ["plan", "task generate"])
def test_who_plans_is_inside(ralph: Ralph, verb: str) -> None:
    ralph.write({"idea.md": "a login\n"})
    assert ralph("init", "--preset", "stories", "--yes", "--agent", "tool").code == 0
    words = ("plan", "--from", "idea.md") if verb == "plan" else ("task", "generate", "a login")
    agent = ralph.script([looking(ralph, "seen"), say("no idea")])
    ended = ralph(*words, "--agent", agent, *BOX)
    assert ended.code in (1, 2), ended
    row = ralph.runs()[0]
    assert ralph.outcome(row.id)["sandbox"]["name"] == "bubblewrap", ended
    assert "sesame" not in text(ralph, "seen")


def test_a_stage_of_a_task_is_inside(ralph: Ralph) -> None:
    words = ("task", "create", "T-1", "-", "a file", "--outcome", "it is there", "--acceptance", "seen exists",
             "--coder-promise", "MADE", "--coder-verify", "external", "--coder-verify-cmd", "test -f seen")  # fmt: skip
    assert ralph(*words, stdin="make the file seen").code == 0
    agent = ralph.script([looking(ralph, "seen"), say("<promise>MADE</promise>")])
    ended = ralph("work", "T-1", "--agent", agent, *BOX, "--skip", "reviewer", "--skip", "tester", "--skip", "qa")
    assert ended.code == 0, ended
    assert text(ralph, "seen").endswith("looked\n")
    assert "sesame" not in text(ralph, "seen")
    assert facts(ralph)["sandbox"]["name"] == "bubblewrap"
