"""`ralph run --sandbox`: agent and checks are inside, and everybody who tells of the run says in what."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from ralphproof.engine.records import TurnEnded
from ralphproof.sandbox.landlock import Landlock
from ralphproof.sandbox.runner import describe_resource_limits
from tests.boxes import CALL, KINDS, STRENGTH, both, lay, needs, run, sh, text
from tests.misbehaviour.agents import facts, prompt
from tests.misbehaviour.crashing import kill, kill_both
from tests.misbehaviour.invariants import hold, refusal
from tests.misbehaviour.machine import recorded
from tests.needs import require
from tests.ralph import Live, Ralph, done, say, until, write

KIND = "bubblewrap"
FLAG = (f"--sandbox={KIND}",)
UID_MAP = 'echo "bwrap: setting up uid map: Permission denied" >&2; exit 1'


def breaking_out(ralph: Ralph, who: str) -> str:
    """A script that tries to read and write outside, and leaves in the project what it saw."""
    tries = f"cat {ralph.home}/secret; echo out > {ralph.folder}/escaped; cat {ralph.state_dir}/spend.db | head -c 6"
    return f"{{ {tries}; echo end; }} > seen-by-{who} 2>&1"


@both
def test_neither_the_agent_nor_a_check_that_it_wrote_reaches_outside(ralph: Ralph, kind: str) -> None:
    needs(kind)
    lay(ralph)
    steps = [write(work__sh=breaking_out(ralph, "check")), sh(breaking_out(ralph, "agent")), done()]
    ended = run(ralph, steps, flags=(f"--sandbox={kind}", "--check", "sh -c 'sh work.sh; test -f seen-by-check'"))
    assert ended.code == 0, ended
    hold(ralph, ended)
    for who in ("agent", "check"):
        assert text(ralph, f"seen-by-{who}").endswith("end\n"), who
        assert "sesame" not in text(ralph, f"seen-by-{who}")
        assert "SQLite" not in text(ralph, f"seen-by-{who}")
    assert not (ralph.folder / "escaped").exists()


def test_hooks_run_inside_and_nobody_there_writes_the_prompt_file(ralph: Ralph) -> None:
    needs(KIND)
    told = 'echo "$RALPH_HOOK $RALPH_ITERATION ${RALPH_VERDICT-}${RALPH_OUTCOME-}" >> told'
    ralph.settings(on={"beforeRun": breaking_out(ralph, "hook"), "afterIteration": told, "afterRun": told})
    lay(ralph, **{"prompt.md": "make it so\n"})
    agent = ralph.script([sh("echo less > prompt.md; rm -f prompt.md"), done()])
    ended = ralph("run", "-f", "prompt.md", "--agent", agent, *FLAG, "--check", "test -d .")
    assert ended.code == 0, ended
    assert text(ralph, "prompt.md") == "make it so\n"
    assert text(ralph, "seen-by-hook").endswith("end\n")
    assert "sesame" not in text(ralph, "seen-by-hook")
    assert not (ralph.folder / "escaped").exists()
    assert text(ralph, "told") == "afterIteration 1 passed\nafterRun 1 COMPLETED\n"


def test_the_same_without_a_sandbox_reaches_everything(ralph: Ralph) -> None:
    lay(ralph)
    assert run(ralph, [sh(breaking_out(ralph, "agent")), done()], flags=()).code == 0
    assert "sesame" in text(ralph, "seen-by-agent")
    assert (ralph.folder / "escaped").exists()


@both
def test_everybody_who_tells_of_a_run_says_what_held_it(ralph: Ralph, kind: str) -> None:
    needs(kind)
    lay(ralph)
    strength = STRENGTH[kind]
    weak = list(Landlock.weaknesses) if kind == "landlock" else []
    ended = run(ralph, [done()], flags=(f"--sandbox={kind}",))
    assert f"sandbox {kind} ({strength})" in ended.err
    shown = [
        line.partition("weak point of the sandbox: ")[2] for line in ended.err.splitlines() if "weak point" in line
    ]
    assert shown == weak
    status = ralph("status").out
    assert f"sandbox {kind} ({strength}), at most" in status
    assert [line for line in status.splitlines() if "weak point" in line] == [
        f"weak point of the sandbox: {one}" for one in weak
    ]
    assert "limited in the sandbox: " in status
    assert f"  sandbox {kind} ({strength})" in ralph("runs").out
    short = {"v": 1, "type": "sandbox", "name": kind, "strength": strength}
    assert ralph.outcome()["sandbox"] == short
    assert ralph("runs", "--json").json["runs"][0]["sandbox"] == short
    told = ralph("status", "--json").json["facts"]["sandbox"]
    assert {name: told[name] for name in ("name", "strength", "weak", "allowHosts")} == {
        "name": kind, "strength": strength, "weak": weak, "allowHosts": [],
    }  # fmt: skip
    assert ralph("attach", "--json").lines[-1]["data"]["sandbox"] == short


def test_a_run_without_one_says_none_everywhere(ralph: Ralph) -> None:
    ended = run(ralph, [done()], flags=())
    assert "sandbox none" in ended.err
    assert "sandbox none, at most" in ralph("status").out
    assert "sandbox none" in ralph("runs").out
    assert ralph.outcome()["sandbox"] == {"v": 1, "type": "sandbox", "name": "direct", "strength": "none"}
    assert facts(ralph)["sandbox"] == {"name": "direct", "strength": "none"}


def test_programs_are_told_first_and_last(ralph: Ralph) -> None:
    needs(KIND)
    ended = run(ralph, [done()], flags=(f"--sandbox={KIND}", "--json", "--no-check"))
    first, last = ended.lines[0], ended.lines[-1]
    assert (first["type"], last["type"]) == ("run.started", "run.ended")
    assert first["data"]["sandbox"]["name"] == last["data"]["sandbox"]["name"] == KIND


def test_what_is_limited_is_on_record_with_the_means(ralph: Ralph) -> None:
    needs(KIND)
    assert run(ralph, [done()]).code == 0
    limits = facts(ralph)["sandbox"]["limits"]
    assert limits == describe_resource_limits(Landlock())
    assert limits == "nothing" or limits.startswith(("memory and processes by ", "processes by "))
    explained = ralph("sandbox", "explain", f"--sandbox={KIND}", "--json").json["limits"]
    assert limits == (f"{' and '.join(explained['held'])} by {explained['by']}" if explained["held"] else "nothing")


# What is blocked


@both
def test_a_host_that_is_not_on_the_list_is_shown_recorded_and_told_to_the_agent(ralph: Ralph, kind: str) -> None:
    needs(kind)
    ended = run(ralph, [sh(CALL), say("it does not answer")], [done()], flags=(f"--sandbox={kind}", "-m", "2"))
    assert ended.code == 0, ended
    assert "blocked by the sandbox: a.test:80; --allow-host HOST lets one be reached" in ended.err
    (first, second) = recorded(ralph, TurnEnded)
    assert (first.reply.exit.blocked, second.reply.exit.blocked) == (("a.test:80",), ())
    assert "You are in a sandbox that cannot reach these hosts; do the work without them:\n- a.test:80" in prompt(
        ralph, 2
    )
    assert "iteration 1: blocked by the sandbox: a.test:80" in ralph("status").out
    assert ralph("status", "--json").json["timeline"][0]["turns"][0]["blockedHosts"] == ["a.test:80"]


def test_what_a_check_could_not_reach_stands_in_its_output(ralph: Ralph) -> None:
    needs(KIND)
    ended = run(ralph, [done()], flags=(f"--sandbox={KIND}", "--check", CALL, "-m", "1"))
    assert ended.code == 1, ended
    (log,) = ralph.run_folder().glob("guardrail_001*.log")
    assert "a.test:80" in log.read_text()


# What does not hold, or does not fit


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("", ("bwrap is not installed", "apt install bubblewrap")),
        (UID_MAP, ("setting up uid map: Permission denied", "AppArmor profile for bwrap", "userns")),
    ],
    ids=["missing", "refused by the kernel"],
)  # fmt: skip
def test_a_kind_that_does_not_hold_is_refused_in_one_line_and_nothing_starts(
    ralph: Ralph, program: str, words: tuple[str, ...]
) -> None:
    if program:
        ralph.program("bwrap", program)
    path = ralph.env["PATH"] if program else str(ralph.bin)
    agent = ralph.script([write(started="yes"), done()])
    ended = ralph("run", "-p", "x", "--agent", agent, "--sandbox=bubblewrap", env={"PATH": path})
    refusal(ralph, ended, "sandbox bubblewrap does not work here: ", "--no-sandbox", *words)
    assert len(ended.err.splitlines()) == 1
    assert not list(ralph.root.glob("*"))


def test_the_strongest_is_said_to_be_partial_where_it_is(ralph: Ralph) -> None:
    """Without a program that holds more, and never without any word."""
    needs("landlock")
    ralph.write({"readme": "hello"})
    ended = ralph(
        "run", "-p", "x", "--agent", ralph.script([done()]), "--sandbox", env={"PATH": str(ralph.bin)}
    )  # fmt: skip
    assert ended.code == 0, ended
    assert "sandbox landlock (partial)" in ended.err


def test_an_agent_without_a_guard_is_held_by_either_flag(ralph: Ralph) -> None:
    ralph.program("pi", "touch started")
    for flag, said in (("--sandbox", "the strongest that holds here"), ("--sandbox=landlock", "landlock"),
                       ("--no-sandbox", "none")):  # fmt: skip
        told = ralph("run", "-p", "x", "--agent", "pi", flag, "--dry-run")
        assert told.code == 0, told
        assert f"Sandbox: {said}\n" in told.out
    assert ralph("run", "-p", "x", "--agent", "pi", "--sandbox", "--dry-run", "--json").json["sandbox"] == "auto"


@pytest.mark.parametrize(
    ("box", "words"),
    [
        ({"backend": "bubblewarp"}, ("sandbox.backend: 'bubblewarp' is no kind of sandbox", "bubblewrap, container")),
        ({"allowHosts": ["a.test/x"]}, ("sandbox.allowHosts[0]",)),
        ({"allowHosts": ["127.0.0.1"]}, ("sandbox.allowHosts[0]",)),
        ({"allowLocalPorts": [70000]}, ("sandbox.allowLocalPorts[0]", "65535")),
        ({"readPaths": ["docs"]}, ("sandbox.readPaths[0] 'docs' is not absolute",)),
        ({"readPaths": ["~"]}, ("sandbox.readPaths[0] '~' holds your home folder",)),
        ({"readPaths": ["/"]}, ("sandbox.readPaths[0]",)),
        ({"allowHost": ["a.test"]}, ("unknown key sandbox.allowHost", "sandbox.allowHosts")),
    ],
)
def test_settings_that_mean_nothing_are_refused_by_name(
    ralph: Ralph, box: dict[str, Any], words: tuple[str, ...]
) -> None:
    ralph.settings(sandbox=box)
    refusal(ralph, run(ralph, [write(started="x"), done()], flags=()), ".ralph/settings.json", *words)


# Who may say what


def explained(ralph: Ralph, *flags: str) -> tuple[dict[str, Any], str]:
    told = ralph("sandbox", "explain", "--json", *flags)
    assert told.code == 0, told
    return told.json, told.err


@pytest.mark.parametrize(
    ("own", "committed", "local", "flags", "kind", "hosts", "said"),
    [
        ({}, {"backend": KIND, "allowHosts": ["a.test"]}, {}, (), KIND, ["a.test"], ""),
        ({}, {"backend": None, "allowHosts": ["a.test"]}, {}, FLAG, KIND, [], "a.test"),
        ({}, {"allowHosts": ["a.test"]}, {}, (*FLAG, "--allow-host", "b.test"), KIND, ["b.test"], "a.test"),
        ({}, {"allowHosts": ["a.test"]}, {"allowHosts": ["c.test"]}, FLAG, KIND, ["c.test"], ""),
        ({"backend": KIND}, {"backend": "landlock"}, {}, (), KIND, [], "your own settings say bubblewrap"),
        ({"backend": KIND, "allowHosts": ["d.test"]}, {"allowHosts": ["a.test"]}, {}, (), KIND, ["d.test"], "a.test"),
        ({"backend": KIND}, {}, {"backend": "landlock"}, (), "landlock", [], ""),
    ],
    ids=["the repository's own", "flag against none", "flag", "local file", "kind", "lists", "local kind"],
)  # fmt: skip
def test_a_repository_opens_no_sandbox_that_its_user_asked_for(
    ralph: Ralph, own: dict[str, Any], committed: dict[str, Any], local: dict[str, Any], flags: tuple[str, ...],
    kind: str, hosts: list[str], said: str,
) -> None:  # fmt: skip
    needs(*KINDS)
    config = ralph.folder / "config"
    config.mkdir()
    (config / "settings.json").write_text(json.dumps({"sandbox": own}))
    ralph.settings(sandbox=committed)
    ralph.write({".ralph/settings.local.json": json.dumps({"sandbox": local})})
    told, err = explained(ralph, *flags)
    assert (told["name"], told["allowHosts"]) == (kind, hosts)
    assert (said in err) if said else err == ""
    assert len(err.splitlines()) == bool(said)


def test_what_is_committed_neither_opens_a_run_nor_turns_its_sandbox_off(ralph: Ralph) -> None:
    needs(KIND)
    wide = {"backend": None, "allowHosts": ["a.test"], "allowLocalPorts": [2375], "readPaths": [str(ralph.bin)]}
    ralph.settings(sandbox=wide)
    ended = run(ralph, [done()])
    assert ended.code == 0, ended
    box = facts(ralph)["sandbox"]
    assert (box["name"], box["allowHosts"], box["allowLocalPorts"], box["readPaths"]) == (KIND, (), (), ())
    for name in ("allowHosts: a.test", "allowLocalPorts: 2375", "readPaths: "):
        assert f".ralph/settings.json may not open a sandbox that you asked for ({name}" in ended.err


@pytest.mark.parametrize("tracked", [False, True])
def test_a_local_file_that_the_repository_brings_is_not_the_users(ralph: Ralph, tracked: bool) -> None:
    needs(KIND)
    ralph.write({".ralph/settings.local.json": json.dumps({"sandbox": {"allowHosts": ["a.test"]}})})
    ralph.git("init", "-q")
    if tracked:
        ralph.git("add", "-f", ".ralph/settings.local.json")
    told, err = explained(ralph, *FLAG)
    assert told["allowHosts"] == ([] if tracked else ["a.test"])
    assert (".ralph/settings.local.json may not open a sandbox" in err) == tracked


def test_a_variable_of_the_user_is_their_word_too(ralph: Ralph) -> None:
    needs(KIND)
    ralph.settings(sandbox={"allowHosts": ["a.test"]})
    told = ralph("sandbox", "explain", "--json", env={"RALPH__SANDBOX__BACKEND": KIND})
    assert (told.json["allowHosts"], "a.test" in told.err) == ([], True)


def test_a_wish_for_a_sandbox_around_a_home_folder_is_refused(ralph: Ralph) -> None:
    needs(KIND)
    agent = ralph.script([write(started="yes"), done()])
    ended = ralph("run", "-p", "x", "--agent", agent, "--sandbox", env={"HOME": str(ralph.root)})
    refusal(ralph, ended, "holds your home folder, so a sandbox around it would protect nothing")


def test_a_project_of_another_user_is_refused_where_root_could_not_write_it(ralph: Ralph) -> None:
    needs(KIND)
    require(os.geteuid() == 0, "root, who alone meets files of others so")
    os.chown(ralph.root, 65534, 65534)
    agent = ralph.script([write(started="yes"), done()])
    ended = ralph("run", "-p", "x", "--agent", agent, "--sandbox")
    refusal(ralph, ended, "belongs to user 65534", "chown")


# What must not come to be

STAND_INS = (".claude", ".mcp.json", ".envrc", ".codex", ".vscode")


def standing_in(ralph: Ralph) -> list[str]:
    return [name for name in STAND_INS if os.path.lexists(ralph.root / name)]


def looking(ralph: Ralph, name: str) -> Live:
    """A run whose agent has looked at what it may not make, and waits."""
    look = "cat .envrc .mcp.json .claude/settings.json > read; for f in .envrc .mcp.json .codex/x; do echo x > $f; done"
    agent = ralph.script([sh(look), sh("git status --porcelain > shown"), write(**{name: ""}), {"until": "go"}, done()])
    live = ralph.start("run", "-p", "x", "--agent", agent, *FLAG, "--check", "true")
    until((ralph.root / name).exists, "the agent has looked")
    return live


def test_what_stands_in_for_absent_files_is_shown_by_no_git_and_left_by_no_kill(ralph: Ralph) -> None:
    needs(KIND)
    lay(ralph, **{".gitignore": "read\nshown\nat*\ngo\n.ralph/\n"})
    live = looking(ralph, "at1")
    assert (text(ralph, "read"), text(ralph, "shown")) == ("", "")
    assert standing_in(ralph) == list(STAND_INS)
    assert ralph.git("status", "--porcelain", "-uall") == ""
    kill(live)
    (ralph.root / "go").touch()
    until(lambda: not standing_in(ralph), "the end of the turn has removed them, though the harness is dead")
    (ralph.root / "go").unlink()
    kill_both(ralph, looking(ralph, "at2"))
    assert standing_in(ralph), "nobody is left who could remove them"
    until(lambda: ralph("status").code == 0 and not standing_in(ralph), "whoever looks next has removed them")
