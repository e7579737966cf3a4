from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ralphproof.agents.adapter import AgentAdapter, AgentInvocation
from ralphproof.agents.claude import Claude
from ralphproof.agents.codex import Codex
from ralphproof.agents.gemini import Gemini
from ralphproof.engine.agent import TurnInput
from ralphproof.planning.plan_files import is_blank_prd, stories_with_progress, story_problems, story_remarks
from ralphproof.process import tree
from ralphproof.stories.story_folder import read_template
from tests.agents import isolated_network, real_clis
from tests.agents.model_server import shown
from tests.cli.steering import let, reached, waits_for
from tests.cli.terminal import Terminal
from tests.needs import require
from tests.ralph import Ralph, Step, done, say, until

ASKER = Path(__file__).with_name("interactive_agent.py")
PRD = (
    "# PRD\n\n## Summary\nUsers export their data.\n\n## Problem Statement\nThey cannot.\n\n## Technical Design\nCSV.\n"
)
OTHER = "# Other\n\nIt is so.\n"
Document = dict[str, Any]


def story(name: str, **more: Any) -> Document:
    fresh: Document = {
        "id": name, "title": f"Title of {name}", "description": "It does something.", "acceptanceCriteria": ["a", "b"],
        "priority": int(name[-1]), "passes": False, "reviewStatus": None, "reviewCount": 0, "reviewFeedback": "",
        "notes": "", "dependsOn": [],
    }  # fmt: skip
    return fresh | more


def plan(*stories: Document, **more: Any) -> Document:
    fresh: Document = {
        "project": "Export", "branchName": "ralph/export", "description": "Export it", "verifyCommands": ["true"],
        "userStories": list(stories),
    }  # fmt: skip
    return fresh | more


GOOD = plan(story("US-001"), story("US-002", dependsOn=["US-001"]))
CIRCLE = plan(story("US-001", dependsOn=["US-002"]), story("US-002", dependsOn=["US-001"]))
STARTED = plan(story("US-001", passes=True, reviewStatus="approved", reviewCount=1, notes="done"))


def text(document: Document) -> str:
    return json.dumps(document)


def writes(tasks: str, prd: str | None = None, **more: Any) -> Document:
    """A session: the asker writes these."""
    return {"write": {"ralph/tasks.json": tasks} | ({} if prd is None else {"ralph/prd.md": prd}), **more}


def folder(ralph: Ralph, prd: str = "", tasks: Document | str | None = None) -> None:
    """The stories' folder as `ralph init` leaves it, or with these files in it."""
    fresh = read_template("prd.md").replace("{{PROJECT_NAME}}", "Export")
    told = tasks if isinstance(tasks, str) else text(tasks) if tasks else read_template("tasks.json")
    ralph.write({"ralph/prd.md": prd or fresh, "ralph/tasks.json": told, "src/a.py": "A = 1\n"})
    ralph.settings(preset="stories")


def asker(ralph: Ralph, *sessions: Document) -> str:
    """The command of an asker with this script."""
    script = ralph.folder / "asker.json"
    script.write_text(json.dumps(sessions), encoding="utf-8")
    return f"{sys.executable} {ASKER} {script} {{prompt_file}}"


def prompts(ralph: Ralph) -> list[str]:
    """What the asker was told in each session."""
    found = sorted(ralph.folder.glob("prompt-*"), key=lambda path: int(path.name.partition("-")[2]))
    return [path.read_text("utf-8") for path in found]


def at_terminal(ralph: Ralph, *sessions: Document, flags: tuple[str, ...] = ()) -> Terminal:
    return Terminal(ralph, "plan", "--agent", asker(ralph, *sessions), *flags)


def planned(ralph: Ralph, *steps: list[Step], flags: tuple[str, ...] = ("--from", "wanted.md")) -> Any:
    """`ralph plan --from` with a scripted agent."""
    ralph.write({"wanted.md": "Users want to export $HOME and {prompt}.\n```\nas CSV\n```\n"})
    return ralph("plan", *flags, "--agent", ralph.script(*steps))


def step(tasks: str, prd: str | None = None) -> Step:
    return {"write": writes(tasks, prd)["write"]}


def tasks_of(ralph: Ralph) -> Any:
    return json.loads((ralph.root / "ralph/tasks.json").read_text("utf-8"))


def prd_of(ralph: Ralph) -> str:
    return (ralph.root / "ralph/prd.md").read_text("utf-8")


def kept(ralph: Ralph, name: str) -> list[str]:
    """What is kept out of the agent's reach under this name."""
    return [path.read_text("utf-8") for path in ralph.state_dir.glob(f"repos/*/plans/*/{name}")]


def nobody_left(ralph: Ralph) -> bool:
    """Whether no process of an agent is left that sat at a terminal."""
    ids = [path.name for path in ralph.state_dir.glob("repos/*/plans/*")]
    return bool(ids) and not any(tree.find_marked_processes(f"{name}/") for name in ids)


# At a terminal


def test_the_agent_asks_and_is_sent_back_until_the_plan_is_valid(ralph: Ralph) -> None:
    folder(ralph)
    questions = ["What is the problem", "What is in scope", "How do we know"]
    at = at_terminal(
        ralph, writes('{"project": ', PRD, ask=questions), writes(text(CIRCLE)), writes(text(GOOD), ask=["Sure"])
    )
    at.expect("mode: full planning")
    at.answer(*((f"{question}? ", f"answer {number}") for number, question in enumerate(questions)))
    at.expect("the plan is not valid yet, and is sent back (1 of 5): ralph/tasks.json: it is not valid JSON")
    at.expect("sent back (2 of 5): ralph/tasks.json: Story US-001: dependsOn goes in a circle")
    at.answer(("Sure? ", "yes"))
    at.expect("US-002  2         US-001      2         Title of US-002")
    at.expect("then begin: ralph run\n")
    assert at.end() == 0
    assert (ralph.folder / "answers").read_text() == "answer 0\nanswer 1\nanswer 2\nyes\n"
    first, second, third = prompts(ralph)
    assert "Ask the user what you need to know" in first
    assert "sent back" not in first
    assert "## 4. Non-Goals" in first
    assert "- ralph/tasks.json: it is not valid JSON" in second
    assert "- ralph/tasks.json: Story US-001: dependsOn goes in a circle: US-001 -> US-002 -> US-001\n" in third
    assert (tasks_of(ralph), prd_of(ralph)) == (GOOD, PRD)
    assert nobody_left(ralph)


def test_a_prd_that_says_something_stays_as_it_is(ralph: Ralph) -> None:
    folder(ralph, PRD)
    at = at_terminal(ralph, writes(text(GOOD), "another PRD\n"))
    at.expect("mode: task derivation")
    at.expect("note: ralph/prd.md was changed, and was put back")
    assert at.end() == 0
    assert (tasks_of(ralph), prd_of(ralph)) == (GOOD, PRD)
    assert kept(ralph, "changed-prd.md") == ["another PRD\n"]
    (told,) = prompts(ralph)
    assert "Ask the user only where the requirements are ambiguous" in told
    assert "## 4. Non-Goals" not in told


def test_it_is_sent_back_five_times_at_most(ralph: Ralph) -> None:
    folder(ralph, PRD)
    plans = [plan(project=f"try {number}") for number in range(7)]
    at = at_terminal(ralph, *(writes(text(one)) for one in plans))
    assert at.end() == 1
    assert len(prompts(ralph)) == 6
    assert "sent back (5 of 5)" in at.shown
    assert at.shown.endswith(
        "the plan is not valid, sent back 5 times; still wrong:\n"
        "  ralph/tasks.json: userStories is empty; a plan has at least one story\n"
        "ralph/ is left as it is; mend it by hand, or plan again: ralph plan\n"
    )
    assert tasks_of(ralph) == plans[5]


def test_an_agent_that_changes_nothing_is_not_started_again(ralph: Ralph) -> None:
    folder(ralph, PRD)
    at = at_terminal(ralph, {"exit": 3})
    assert at.end() == 1
    assert "the agent ended with exit code 3, and changed nothing in ralph/" in at.shown
    assert len(prompts(ralph)) == 1


@pytest.mark.parametrize("ending", ["key", "exit"])
def test_ctrl_c_ends_the_agent_and_us(ralph: Ralph, ending: str) -> None:
    folder(ralph)
    before = read_template("tasks.json")
    half = writes('{"project": "half', PRD, raw=True, leave=60, ready="READY", until="go", exit=130)
    at = at_terminal(ralph, half)
    modes = at.modes()
    at.expect("READY")
    assert at.modes() != modes
    if ending == "key":
        at.type("\x03")
    else:
        (ralph.folder / "go").touch()
    at.expect("interrupted; what was written stays in ralph/")
    assert at.modes() == modes
    assert at.end() == 130
    assert "note: ralph/tasks.json was not complete; the last complete one was put back" in at.shown
    assert ((ralph.root / "ralph/tasks.json").read_text(), prd_of(ralph)) == (before, PRD)
    assert kept(ralph, "half-written-tasks.json") == ['{"project": "half']
    assert nobody_left(ralph)


def test_an_interrupted_plan_that_is_valid_says_so(ralph: Ralph) -> None:
    folder(ralph, PRD)
    at = at_terminal(ralph, writes(text(GOOD), signal=signal.SIGINT))
    at.expect("as it stands it is valid, and ralph run would begin with it")
    assert at.end() == 130


def test_stories_that_were_not_there_before_are_taken_away_where_they_are_half_written(ralph: Ralph) -> None:
    folder(ralph, PRD)
    (ralph.root / "ralph/tasks.json").unlink()
    at = at_terminal(ralph, writes("{", signal=signal.SIGINT))
    assert at.end() == 130
    assert not (ralph.root / "ralph/tasks.json").exists()


def test_the_last_whole_stories_of_the_agent_are_the_ones_put_back(ralph: Ralph) -> None:
    folder(ralph, PRD)
    at = at_terminal(ralph, writes(text(CIRCLE)), writes("{", signal=signal.SIGINT))
    assert at.end() == 130
    assert tasks_of(ralph) == CIRCLE


def test_who_ends_us_ends_the_agent(ralph: Ralph) -> None:
    folder(ralph, PRD)
    at = at_terminal(ralph, writes(text(GOOD), leave=60, ready="READY", until="go"))
    at.expect("READY")
    os.kill(at.pid, signal.SIGTERM)
    assert at.end() == 130
    assert nobody_left(ralph)


def test_a_terminal_that_is_closed_ends_the_agent_and_us(ralph: Ralph) -> None:
    folder(ralph)
    at = at_terminal(ralph, writes("{", PRD, leave=60, ready="READY", until="go"))
    at.expect("READY")
    assert at.hang_up() == 130
    assert (ralph.root / "ralph/tasks.json").read_text() == read_template("tasks.json")
    assert nobody_left(ralph)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing tells a child that its parent was killed")
def test_killed_we_leave_no_agent_behind(ralph: Ralph) -> None:
    folder(ralph, PRD)
    agent = asker(ralph, writes(text(GOOD), ready="READY", until="go"))
    stays = '"$@"; echo over $?; while ! test -e ../seen; do sleep 0.02; done'  # its end would end the agent too
    at = Terminal(ralph, "plan", "--agent", agent, via=("sh", "-c", stays, "sh"))
    at.expect("READY")
    os.kill(int((ralph.folder / "parent").read_text()), signal.SIGKILL)
    at.expect("over 137")
    until(lambda: nobody_left(ralph), "the agent is dead")
    (ralph.folder / "seen").touch()
    assert at.end() == 0
    assert ralph("plan", "--from", "ralph/prd.md", "--agent", ralph.script([step(text(GOOD)), say("x")])).code == 0


def test_ctrl_z_suspends_the_job_and_fg_brings_the_agent_back(ralph: Ralph) -> None:
    folder(ralph, PRD)
    job = "set -m; \"$@\"; echo suspended $?; stty -a | tr ' ' '\\n' | grep -x -e echo -e -echo; fg; echo over $?"
    session = writes(text(GOOD), raw=True, ready="READY", then=["Still there"])
    at = Terminal(ralph, "plan", "--agent", asker(ralph, session), via=("bash", "-c", job, "bash"))
    at.expect("READY")
    at.expect("Still there? ")
    at.type("\x1a")
    at.expect("suspended 148\necho\n")
    until(lambda: not at.modes()[3] & 8, "the agent has its terminal as it was")
    at.type("yes\n")
    at.expect("then begin: ralph run\n")
    at.expect("over 0")
    assert at.end() == 0


def test_the_agent_speaks_to_the_terminal_and_only_the_result_to_a_pipe(ralph: Ralph) -> None:
    folder(ralph, PRD)
    out = ralph.folder / "out.json"
    at = Terminal(
        ralph, "plan", "--json", "--agent", asker(ralph, writes(text(GOOD), ask=["Sure"])),
        via=("sh", "-c", f'exec "$@" > {out}', "sh"),
    )  # fmt: skip
    at.answer(("Sure? ", "yes"))
    assert at.end() == 0
    found = json.loads(out.read_text("utf-8"))
    assert {name: found[name] for name in ("type", "mode", "valid", "sentBack", "exitCode", "run")} == {
        "type": "plan", "mode": "tasks", "valid": True, "sentBack": 0, "exitCode": 0, "run": None,
    }  # fmt: skip
    assert found["stories"][1] == {
        "id": "US-002", "title": "Title of US-002", "priority": 2, "dependsOn": ["US-001"], "acceptanceCriteria": 2,
    }  # fmt: skip
    assert found["next"] == "ralph run"


@pytest.mark.parametrize(
    ("agent", "why"),
    [
        ("cat", "agent cat: how it takes a first prompt at a terminal is not known; say where that goes, as in"),
        ("./none.sh {prompt_file}", "does not exist"),
        ("./broken.sh {prompt_file}", "cannot be started: Exec format error"),
    ],
)
def test_an_agent_that_cannot_talk_is_refused(ralph: Ralph, agent: str, why: str) -> None:
    folder(ralph)
    ralph.write({"broken.sh": "\0nothing that runs"})
    (ralph.root / "broken.sh").chmod(0o755)
    at = Terminal(ralph, "plan", "--agent", agent)
    assert at.end() == 2
    assert why in at.shown
    assert "Traceback" not in at.shown


def test_it_does_not_take_the_terminal_from_the_background(ralph: Ralph) -> None:
    folder(ralph)
    job = 'set -m; "$@" & wait $!; echo over $?'
    at = Terminal(ralph, "plan", "--agent", asker(ralph, {}), via=("bash", "-c", job, "bash"))
    at.expect("runs in the background; bring it to the front: fg")
    at.expect("over 2")
    assert at.end() == 0
    assert prompts(ralph) == []


# Known agents


def call(
    dialect: AgentAdapter, flags: str = "", guarded: bool = True, again: bool = False, model: str | None = None
) -> str:
    brief = TurnInput("DO", "", "/", (), "", "", "", 0.0, session="ID")
    made = dialect.interactive(AgentInvocation(brief, tuple(flags.split()), model, guarded), again)
    return " ".join(made or ())


QUIET = "-c check_for_update_on_startup=false -c analytics.enabled=false"


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (lambda: call(Claude()), "DO --permission-mode acceptEdits --session-id ID"),
        (lambda: call(Claude(), again=True), "DO --permission-mode acceptEdits --resume ID"),
        (lambda: call(Claude(), guarded=False), "DO --dangerously-skip-permissions --session-id ID"),
        (
            lambda: call(Claude(), "-p --output-format json --add-dir x --permission-mode plan -c", model="opus"),
            "DO --add-dir x --permission-mode plan -c --model opus",
        ),
        (lambda: call(Codex()), f"DO {QUIET} --sandbox workspace-write"),
        (
            lambda: call(Codex(), "--json --skip-git-repo-check -o f -m x -s read-only", model="y", again=True),
            f"DO {QUIET} -s read-only --model y",
        ),
        (lambda: call(Gemini()), "-i DO --approval-mode auto_edit"),
        (lambda: call(Gemini(), "--yolo --output-format json", model="m"), "-i DO --yolo --model m"),
    ],
)
def test_a_known_agent_is_started_for_a_person_with_its_guard_on(made: Callable[[], str], expected: str) -> None:
    assert made() == expected


@pytest.mark.parametrize("name", ["claude", "codex", "gemini"])
def test_a_known_agent_gets_the_prompt_as_its_first_message(ralph: Ralph, name: str) -> None:
    folder(ralph, PRD)
    good = ralph.folder / "good.json"
    good.write_text(text(GOOD))
    ralph.program(name, f'printf "%s\\n" "$@" > ../said-$(ls .. | grep -c said-); cp {good} ralph/tasks.json')
    ralph.settings(agent={"command": name, "flags": ["--verbose"]}, preset="stories")
    at = Terminal(ralph, "plan")
    assert at.end() == 0, at.shown
    said = (ralph.folder / "said-0").read_text()
    assert "Mode: **task derivation**" in said
    assert "\n--verbose\n" in said


@pytest.mark.thorough
def test_claude_code_is_sent_back_into_its_own_conversation(ralph: Ralph) -> None:
    require(real_clis.program("claude") is not None, "claude is not installed; `make agents` installs it")
    folder(ralph, PRD)
    turns = [
        {"text": "I write.", "calls": [{"write": ["ralph/tasks.json", text(CIRCLE)]}]}, {"text": "WRITTEN"},
        {"text": "I mend.", "calls": [{"write": ["ralph/tasks.json", text(GOOD)]}]}, {"text": "MENDED"},
    ]  # fmt: skip
    model, asked = ralph.folder / "model.json", ralph.folder / "requests.jsonl"
    model.write_text(json.dumps({"turns": turns}))
    known = {str(ralph.root): {"hasTrustDialogAccepted": True, "hasCompletedProjectOnboarding": True}}
    keys = {"approved": ["sk-ant-dummy"], "rejected": []}
    settled = {"hasCompletedOnboarding": True, "theme": "dark", "customApiKeyResponses": keys, "projects": known}
    (ralph.home / ".claude.json").write_text(json.dumps(settled))
    program = str(real_clis.program("claude"))
    at = Terminal(ralph, "plan", "--agent", program, via=isolated_network.via(model, asked, ["claude"], ralph.home))
    for word in ("WRITTEN", "MENDED"):
        at.expect(word)
        at.type("\x03")
        at.expect("again")
        at.type("\x03")
    at.expect("then begin: ralph run\n")
    assert at.end() == 0
    assert tasks_of(ralph) == GOOD
    last = [request for request in isolated_network.requests_in(asked) if request["turn"] is not None][-1]
    assert "Mode: **task derivation**" in shown(last)
    assert "WRITTEN" in shown(last)
    assert "dependsOn goes in a circle: US-001 -> US-002 -> US-001" in shown(last)


# Without a terminal


def test_the_requirements_of_a_file_become_a_plan(ralph: Ralph) -> None:
    folder(ralph)
    end = planned(ralph, [step("{", PRD), say("done")], [step(text(CIRCLE)), say("done")], [step(text(GOOD)), done()])
    assert end.code == 0, end
    assert end.out.splitlines() == [
        "id      priority  depends on  criteria  title",
        "US-001  1                     2         Title of US-001",
        "US-002  2         US-001      2         Title of US-002",
        "verify: true",
        "review ralph/prd.md and ralph/tasks.json, then begin: ralph run",
    ]
    assert "mode: full planning" in end.err
    assert (tasks_of(ralph), prd_of(ralph)) == (GOOD, PRD)
    first, second, third = (
        (ralph.run_folder() / f"prompt_{number:03d}.txt").read_text("utf-8") for number in (1, 2, 3)
    )
    assert "ask no question" in first
    assert "````\nUsers want to export $HOME and {prompt}.\n```\nas CSV\n```\n````" in first
    assert "ralph/tasks.json: it is not valid JSON" in second
    assert "Story US-001: dependsOn goes in a circle: US-001 -> US-002 -> US-001" in third
    assert (ralph.outcome()["proof"], ralph.outcome()["iterations"]) == ("verified", 3)


def test_the_requirements_come_from_standard_input_too(ralph: Ralph) -> None:
    folder(ralph)
    agent = ralph.script([step(text(GOOD), PRD), say("done")])
    end = ralph("plan", "--from", "-", "--json", "--agent", agent, stdin="Export it all")
    assert (end.code, end.json["valid"], end.json["run"]) == (0, True, ralph.runs()[0].id)
    assert "```\nExport it all\n```" in (ralph.run_folder() / "prompt_001.txt").read_text("utf-8")


def test_the_prd_itself_may_be_the_file_and_stays_as_it_is(ralph: Ralph) -> None:
    folder(ralph, PRD)
    end = planned(ralph, [step("{", "mine"), say("x")], [step(text(GOOD)), say("x")], flags=("--from", "ralph/prd.md"))
    assert end.code == 0, end
    assert "note: ralph/prd.md was changed, and was put back" in end.out
    assert prd_of(ralph) == PRD
    assert "users export" not in (ralph.run_folder() / "prompt_001.txt").read_text("utf-8").lower()


def test_a_prd_that_is_put_back_costs_no_turn_more(ralph: Ralph) -> None:
    folder(ralph, PRD)
    end = planned(ralph, [step(text(GOOD), "mine"), say("x")], flags=("--from", "ralph/prd.md"))
    assert (end.code, ralph.outcome()["iterations"]) == (0, 1), end
    assert "note: ralph/prd.md was changed, and was put back" in end.out
    assert "does not count" not in end.err
    assert "log:" not in end.err
    assert prd_of(ralph) == PRD


def test_a_prd_is_written_anew_only_by_force_and_a_copy_is_kept(ralph: Ralph) -> None:
    folder(ralph, PRD)
    refused = planned(ralph, [step(text(GOOD), OTHER), say("x")])
    assert (refused.code, refused.out, ralph.runs()) == (2, "", ())
    assert refused.err == (
        "ralph: ralph/prd.md has requirements already; plan by them: ralph plan --from ralph/prd.md, "
        "or replace it with --force: a copy is kept\n"
    )
    forced = planned(ralph, [step(text(GOOD), OTHER), say("x")], flags=("--from", "wanted.md", "--force"))
    assert forced.code == 0, forced
    assert "to be written anew: ralph/prd.md; a copy is kept in " in forced.err
    assert (prd_of(ralph), kept(ralph, "prd.md")) == (OTHER, [PRD])


def test_what_an_agent_changes_elsewhere_is_named_and_left_without_a_terminal_too(ralph: Ralph) -> None:
    folder(ralph)
    ralph.commit()
    edits: Step = {"write": {"src/a.py": "A = 2\n", "tasks.json": text(GOOD)}}
    end = planned(ralph, [edits, say("x")], [step(text(GOOD), PRD), say("x")])
    assert end.code == 0
    assert "note: changed outside ralph/, and left as it is: src/a.py, tasks.json\n" in end.out
    assert (ralph.root / "src/a.py").read_text() == "A = 2\n"
    assert "ralph/prd.md is still the scaffold" in (ralph.run_folder() / "prompt_002.txt").read_text("utf-8")


def test_a_plan_that_never_gets_valid_ends_after_six_turns_and_is_left(ralph: Ralph) -> None:
    folder(ralph, PRD)
    end = planned(ralph, [step("{"), say("x")], flags=("--from", "ralph/prd.md", "--json"))
    found = end.json
    assert (end.code, found["exitCode"], found["reason"], found["valid"]) == (1, 1, "MAX_ITERATIONS", False)
    assert (found["iterations"], found["sentBack"], found["stories"], found["next"]) == (6, 5, [], None)
    assert found["problems"][0].startswith("ralph/tasks.json: it is not valid JSON")
    assert (ralph.root / "ralph/tasks.json").read_text() == "{"


def test_money_is_counted_and_a_limit_ends_it(ralph: Ralph) -> None:
    folder(ralph)
    costly: list[Step] = [step("{", PRD), {"cost": 2.0}, say("x")]
    end = planned(ralph, costly, flags=("--from", "wanted.md", "--max-cost-usd", "1"))
    assert end.code == 1
    assert "COST_LIMIT" in end.out
    assert "note: ralph/tasks.json was not complete; the last complete one was put back" in end.out
    assert ralph.outcome()["costUSD"] == 2.0


def test_an_interrupted_run_leaves_whole_stories(ralph: Ralph) -> None:
    folder(ralph)
    ralph.write({"wanted.md": "Export"})
    agent = ralph.script([step("{", PRD), waits_for("first"), say("x")])
    quick = {"RALPH__SHUTDOWN_GRACE_SECONDS": "0.1"}
    live = ralph.start("plan", "--from", "wanted.md", "--agent", agent, env=quick)
    reached(ralph, "first")
    live.process.send_signal(signal.SIGINT)
    end = live.end()
    assert end.code == 130
    assert end.out.splitlines()[-1] == "interrupted; what was written stays in ralph/"
    assert (ralph.root / "ralph/tasks.json").read_text() == read_template("tasks.json")
    assert prd_of(ralph) == PRD


def test_what_comes_next_names_the_folder_and_the_preset_where_the_settings_do_not(ralph: Ralph) -> None:
    (ralph.root / "stories").mkdir()
    step: Step = {
        "write": {"stories/prd.md": PRD, "stories/tasks.json": text(plan(story("US-001"), verifyCommands=[]))}
    }
    end = planned(ralph, [step, say("x")], flags=("--from", "wanted.md", "--ralph-dir", "stories"))
    assert end.code == 0, end
    assert end.out.splitlines()[-2:] == [
        "note: stories/tasks.json: verifyCommands is empty: reviews alone will say that a story is done; name the "
        "project's tests there",
        "review stories/prd.md and stories/tasks.json, then begin: ralph run --preset stories --ralph-dir stories",
    ]


# Refused


def test_stories_with_progress_are_overwritten_only_by_force_and_a_copy_is_kept(ralph: Ralph) -> None:
    folder(ralph, PRD, STARTED)
    flags = ("--from", "ralph/prd.md")
    refused = planned(ralph, [step(text(GOOD)), say("x")], flags=flags)
    assert (refused.code, refused.out, ralph.runs()) == (2, "", ())
    assert refused.err == (
        "ralph: ralph/tasks.json has progress (US-001 approved); archive it first: ralph archive, or say --force: a "
        "copy is kept\n"
    )
    forced = planned(ralph, [step(text(STARTED)), say("x")], [step(text(GOOD)), say("x")], flags=(*flags, "--force"))
    assert forced.code == 0, forced
    assert "Story US-001 is new and starts with passes true" in (ralph.run_folder() / "prompt_002.txt").read_text()
    assert [json.loads(one) for one in kept(ralph, "tasks.json")] == [STARTED]


def test_stories_that_cannot_be_read_may_have_progress(ralph: Ralph) -> None:
    folder(ralph, PRD, "<<<<<<< HEAD\n{}")
    refused = planned(ralph, [step(text(GOOD)), say("x")], flags=("--from", "ralph/prd.md"))
    assert refused.code == 2
    assert "it is not valid JSON" in refused.err
    assert "mend it, or say --force: a copy of it is kept then" in refused.err


def test_a_plan_that_nobody_began_with_is_made_anew_and_kept(ralph: Ralph) -> None:
    folder(ralph, PRD, CIRCLE)
    end = planned(ralph, [step(text(GOOD)), say("x")], flags=("--from", "ralph/prd.md"))
    assert end.code == 0
    assert "to be written anew: ralph/tasks.json; a copy is kept in " in end.err
    assert [json.loads(one) for one in kept(ralph, "tasks.json")] == [CIRCLE]


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        ([], "ralph plan needs a terminal to ask questions; without one use --from FILE"),
        (["--from", "nowhere.md"], "ralph: --from nowhere.md does not exist"),
        (["--from", "empty.md"], "is empty"),
        (["--from", "src"], "is not a file"),
        (["--from", "-"], "standard input is empty"),
        (["--from", "ralph/prd.md"], "ralph/prd.md is empty; write it, or give another FILE"),
        (["--max-cost-usd", "1"], "--max-cost-usd needs --from"),
        (["--from", "wanted.md", "--max-cost-usd", "0"], "must be a number above 0"),
        (["--fron", "wanted.md"], "did you mean --from?"),
        (["--ralph-dir", "../elsewhere"], "must be a folder inside the project"),
        (["--ralph-dir", "stories"], "make one: ralph init --preset stories --ralph-dir stories"),
        (["--from", "wanted.md", "--agent", "no-such-agent"], "no-such-agent was not found on PATH"),
        (["--from", "wanted.md", "--model", "x", "--agent", "cat"], "how to give it a model is not known"),
    ],
    ids=lambda item: " ".join(item) if isinstance(item, list) else None,
)
def test_wrong_input_is_one_clear_line_and_begins_nothing(ralph: Ralph, flags: list[str], why: str) -> None:
    folder(ralph)
    ralph.write({"empty.md": " \n", "wanted.md": "x"})
    agent = [] if "--agent" in flags else ["--agent", ralph.script([say("x")])]
    end = ralph("plan", *flags, *agent)
    assert (end.code, end.out) == (2, "")
    assert why in end.err
    assert len([line for line in end.err.splitlines() if not line.startswith("mode: ")]) == 1
    assert ralph.runs() == ()


def test_what_is_typed_at_a_terminal_is_no_document(ralph: Ralph) -> None:
    folder(ralph)
    at = Terminal(ralph, "plan", "--from", "-", "--agent", ralph.script([say("x")]))
    at.expect("--from - reads standard input, which is a terminal; pipe the requirements in")
    assert at.end() == 2


def test_without_the_folder_init_comes_first(ralph: Ralph) -> None:
    end = planned(ralph, [say("x")])
    assert (end.code, end.err) == (
        2, "ralph: there is no folder ralph with stories; make one: ralph init --preset stories\n",
    )  # fmt: skip


@pytest.mark.parametrize("name", ["prd.md", "tasks.json"])
@pytest.mark.parametrize("what", ["link", "folder", "bytes"])
def test_files_that_are_none_are_left_to_their_owner(ralph: Ralph, name: str, what: str) -> None:
    folder(ralph)
    path = ralph.root / "ralph" / name
    path.unlink()
    if what == "link":
        path.symlink_to("../elsewhere")
    elif what == "folder":
        path.mkdir()
    else:
        path.write_bytes(b"\xff\xfe{}")
    end = planned(ralph, [say("x")])
    assert end.code == 2
    assert f"ralph/{name} is no plain file of UTF-8 text" in end.err


@pytest.mark.parametrize("terminal", [True, False])
def test_nothing_is_planned_while_a_loop_runs(ralph: Ralph, terminal: bool) -> None:
    folder(ralph, PRD)
    agent = ralph.script([waits_for("first"), done()], name="loop")
    live = ralph.start("run", "--preset", "harness", "-p", "x", "--agent", agent)
    reached(ralph, "first")
    if terminal:
        at = at_terminal(ralph, writes(text(GOOD)))
        code, told = at.end(), at.shown
    else:
        end = planned(ralph, [step(text(GOOD)), say("x")], flags=("--from", "ralph/prd.md"))
        code, told = end.code, end.err
    assert code == 2
    assert f"run {ralph.runs()[0].id} (pid {live.process.pid}) works in" in told
    assert prompts(ralph) == []
    let(ralph, "first")
    assert live.end().code == 0


def test_who_wants_to_resume_a_planning_hears_how_to_plan_again(ralph: Ralph) -> None:
    folder(ralph, PRD)
    agent = ralph.script([step('{"project": "half'), waits_for("half"), say("x")], name="cut")
    live = ralph.start("plan", "--from", "ralph/prd.md", "--agent", agent)
    reached(ralph, "half")
    busy = planned(ralph, [say("x")], flags=("--from", "ralph/prd.md"))
    assert (busy.code, f"(pid {live.process.pid}) works in" in busy.err) == (2, True), busy
    live.process.kill()
    live.end()
    let(ralph, "half")
    until(lambda: not ralph.processes(ralph.runs()[0].id), "its agent is gone")
    run = ralph.runs()[0].id
    told = ralph("run", "--resume")
    assert (told.code, told.err) == (
        2, f"ralph: run {run} was begun by ralph plan; plan again: ralph plan --from ralph/prd.md\n",
    )  # fmt: skip


@pytest.mark.parametrize("quiet", ["-q", "--json"])
def test_where_copies_are_is_told_also_to_those_who_do_not_look_on(ralph: Ralph, quiet: str) -> None:
    folder(ralph, PRD, STARTED)
    told = planned(ralph, [step(text(GOOD)), say("x")], flags=("--from", "ralph/prd.md", "--force", quiet))
    assert told.code == 0, told.err
    (place,) = ralph.state_dir.glob("repos/*/plans/*")
    line = f"to be written anew: ralph/tasks.json; a copy is kept in {place}"
    if quiet == "-q":
        assert f"note: {line}\n" in told.out
    else:
        assert (told.json["copies"], told.json["remarks"][0]) == (str(place), line)


def test_a_suggested_path_is_one_from_where_the_user_is(ralph: Ralph) -> None:
    folder(ralph, PRD)
    ralph.write({"wanted.md": "x\n"})
    told = ralph("plan", "--from", "../wanted.md", cwd=ralph.root / "src")
    assert "plan by them: ralph plan --from ../ralph/prd.md, or replace it with --force" in told.err


def test_a_marker_of_another_programs_loop_counts(ralph: Ralph) -> None:
    folder(ralph, PRD)
    ralph.write({".ralph-active": json.dumps({"pid": os.getpid()})})
    end = planned(ralph, [step(text(GOOD)), say("x")], flags=("--from", "ralph/prd.md"))
    assert end.code == 2
    assert f".ralph-active says that a loop is at work here (pid {os.getpid()})" in end.err
    assert ralph.runs() == ()


def test_an_agent_inside_a_run_does_not_plan(ralph: Ralph) -> None:
    folder(ralph, PRD)
    inner = ralph.script([step(text(GOOD)), say("x")], name="inner")
    command = f'{sys.executable} -m ralphproof plan --from ralph/prd.md --agent "{inner}" 2> ../told'
    outer = ralph.script([{"run": ["sh", "-c", f"{command}; true"]}, done()], name="outer")
    assert ralph("run", "--preset", "harness", "-p", "x", "--agent", outer).code == 0
    assert "ralph plan is not for agents: run " in (ralph.folder / "told").read_text()


# What a plan is


SCAFFOLD = read_template("prd.md")


@pytest.mark.parametrize(
    ("prd", "scaffold"),
    [
        ("", True),
        (" \n\n", True),
        (SCAFFOLD, True),
        (SCAFFOLD.replace("{{PROJECT_NAME}}", "A [project] (of mine)"), True),
        (SCAFFOLD.replace("\n", "\r\n"), True),
        ("# PRD: x\n\n## 1. Summary\n", True),
        ("## 1. Summary\n<!-- what I\nthink -->\n", True),
        ("## 1. Summary\nUsers export data.\n", False),
        ("## 1. Summary\n<!-- Users export data.\n", False),
        ("Users export data.\n", False),
        (SCAFFOLD + "\n- one question\n", False),
        (SCAFFOLD.replace("| --- | --- | --- | --- |", "| --- | --- | --- | --- |\n| a | b | c | d |", 1), False),
    ],
)
def test_a_scaffold_says_nothing_whatever_it_is_called(prd: str, scaffold: bool) -> None:
    assert is_blank_prd(prd.encode()) is scaffold


@pytest.mark.parametrize(
    ("document", "why"),
    [
        (GOOD, None),
        (plan(), "userStories is empty"),
        (plan(story("US-001", title=" ")), "Story US-001: title is empty"),
        (plan(story("US-001", description="")), "Story US-001: description is empty"),
        (plan({name: part for name, part in story("US-001").items() if name != "description"}), "description is empty"),
        (plan(story("US-001", acceptanceCriteria=[])), "acceptanceCriteria"),
        (plan(story("US-001", dependsOn=["US-009"])), 'dependsOn names "US-009", which is no story'),
        (plan(story("US-001", dependsOn=["US-001"])), "in a circle: US-001 -> US-001"),
        (CIRCLE, "in a circle: US-001 -> US-002 -> US-001"),
        (plan(story("US-001", passes=True, reviewStatus="approved", notes="x")), "starts with passes true"),
        (plan(story("US-001", reviewCount=1)), "starts with reviewCount 1"),
        (plan(story("US-001", reviewFeedback="x")), "reviewFeedback must be empty"),
        (plan(story("US-001"), story("US-001")), "used by more than one story"),
        (plan(story("US-001"), project=None), "project is null"),
    ],
)
def test_a_plan_is_one_that_a_loop_can_begin_with(document: Document, why: str | None) -> None:
    faults = story_problems(document)
    assert (faults == ()) if why is None else (why in faults[0])


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({}, None),
        ({"verifyCommands": []}, "verifyCommands is empty"),
        ({"project": ""}, "project is empty"),
        ({"description": " "}, "description is empty"),
        ({"branchName": "ralph/feature-name"}, "branchName is that of the scaffold"),
    ],
)
def test_what_could_be_better_is_a_remark(more: Document, why: str | None) -> None:
    told = list(story_remarks(GOOD | more))
    assert (told == []) if why is None else (len(told) == 1 and why in told[0])


@pytest.mark.parametrize(
    ("document", "found"),
    [
        (GOOD, []),
        ({}, []),
        ({"userStories": [1, {"id": "A"}]}, []),
        (STARTED, ["US-001 approved"]),
        (plan(story("US-001", passes=True)), ["US-001 passes"]),
        (plan(story("US-001", reviewCount=2)), ["US-001 begun"]),
        ({"userStories": [{"id": "A", "reviewStatus": "needs_review"}]}, ["A needs_review"]),
    ],
)
def test_progress_is_seen_in_stories_that_are_not_well_formed_too(document: Document, found: list[str]) -> None:
    assert stories_with_progress(document) == found
