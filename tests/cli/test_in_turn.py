"""What only the user may do is refused inside a turn, however the environment looks and whoever the parent is."""

from __future__ import annotations

import shlex

from ralphproof.cli.verbs import USER_ONLY_COMMANDS, VERBS
from ralphproof.runs.open_project import CHILD_RUN_COMMANDS
from tests.ralph import PROGRAM, Ralph, Step, done, write

PLANNED = {"accept"}


def called(ralph: Ralph, *argv: str, then: str = "") -> str:
    """A line of a shell that calls ralph without a trace of the turn in its environment; `told` gets code and words."""
    clear = [f"{name}={text}" for name, text in ralph.env.items()]
    return f"{shlex.join(['env', '-i', *clear, *PROGRAM, *argv])} > ../out 2>&1; echo $? $(cat ../out) >> ../told{then}"


def ran(*lines: str) -> Step:
    return {"run": ["sh", "-c", "\n".join(lines)]}


def test_an_agent_does_not_speak_with_the_users_word(ralph: Ralph) -> None:
    ralph.commit()
    other = ralph.folder / "other"
    other.mkdir()
    inner = ralph.script([done()], name="inner")
    ended = ralph("run", "-p", "x", "--agent", ralph.script([done("NO")], name="other"), "-m", "1", cwd=other)
    assert ended.code == 1, ended
    forked = called(ralph, "say", "latest", "forked", then="; touch ../forked")
    calls = [
        ran(f"(setsid sh -c {shlex.quote(forked)} &)", "until test -e ../forked; do sleep 0.05; done"),
        ran(
            called(ralph, "say", "latest", "hello"),
            called(ralph, "--json", "say", "latest", "hello", "--project-dir", str(other)),
            called(ralph, "resume", "latest", "-m", "9", "--project-dir", str(other)),
            called(ralph, "run", "--resume", "latest", "-m", "9", "--project-dir", str(other)),
            called(ralph, "cancel", "--no-wait"),
            called(ralph, "rewind", "-i", "1"),
            called(ralph, "serve", "--control", "--port", "0"),
            called(ralph, "task", "edit", "t"),
        ),
        ran(
            f'ralph() {{ {shlex.join(PROGRAM)} "$@"; }}',
            f"ralph run -p part --agent {shlex.quote(inner)} --json > ../child 2>&1",
            'child=$(grep -o "[0-9]\\{8\\}-[0-9]\\{6\\}-[0-9a-z]\\{4\\}" ../child | head -1)',
            'ralph cancel "$child" > ../out 2>&1; echo $? $(cat ../out) >> ../allowed',
            'ralph say "$child" x > ../out 2>&1; echo $? $(cat ../out) >> ../told',
            "for words in status logs 'bus post x' 'say --help'",
            "do ralph $words > ../out 2>&1; echo $? >> ../allowed; done",
        ),
    ]
    agent = ralph.script([*calls, write(work="1"), done()], [done()])
    users_own = called(ralph, "say", "latest", "mine").replace("../told", "../allowed")
    ralph.settings(on={"beforeIteration": users_own})
    assert ralph("run", "-p", "x", "--agent", agent).code == 0
    told = (ralph.folder / "told").read_text().splitlines()
    run = ralph.runs()[0].parent or ralph.runs()[0].id
    assert len(told) == 10
    for line in told:
        assert line.startswith("2 "), line
        assert "is not for agents" in line, line
        assert f"run {run} is at work" in line, line
    allowed = (ralph.folder / "allowed").read_text().splitlines()
    assert [line.partition(" ")[0] for line in allowed] == ["0"] * 6, allowed
    assert ralph.outcome()["iterations"] == 1


def test_the_list_names_verbs_that_there_are() -> None:
    assert {what.split()[0] for what in USER_ONLY_COMMANDS | CHILD_RUN_COMMANDS} - PLANNED <= VERBS.keys()
