"""A run that was stopped because its checks were weakened leaves that in the files: the next one is not taken in."""

from __future__ import annotations

import sys

import pytest

from tests.ralph import Ralph, done, write

INI = "[pytest]\naddopts = -k zero\n"
TEST = "def test_zero():\n    assert 0 == 0\n\n\ndef test_one():\n    assert 0 == 1\n"


@pytest.fixture(autouse=True)
def own_pytest(ralph: Ralph) -> None:
    """The `python3` of the checks is the one that has pytest, and it starts without the plug-ins of this project."""
    ralph.program("python3", f'exec {sys.executable} "$@"')
    ralph.env["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"


def stopped(ralph: Ralph) -> str:
    ralph.settings(guardrails=[{"command": "python3 -m pytest -q"}])
    ralph.write({"test_it.py": TEST, "pytest.ini": "[pytest]\n", ".gitignore": "__pycache__\n.pytest_cache\n"})
    ralph.commit()
    ended = ralph("run", "-p", "x", "--agent", ralph.script([write(**{"pytest.ini": INI}), done()]))
    assert (ended.code, ralph.outcome()["reason"]) == (1, "CHECKS_WEAKENED"), ended
    run = ralph.runs()[0].id
    assert f"ralph rewind {run} 0" in ralph.outcome()["details"]["message"]
    return run


def test_the_next_run_tells_what_the_one_before_was_stopped_for(ralph: Ralph) -> None:
    """RH-02: it does nothing, and the check is green by what the first agent left."""
    run = stopped(ralph)
    ended = ralph("run", "-p", "x", "--agent", ralph.script([write(work="1"), done()], name="second"))
    assert ended.code == 0, ended
    still = f"pytest.ini: still as run {run} left it, which was stopped for that"
    assert ralph.outcome()["concerns"] == [still]
    assert still in ralph("proof", "show").out


@pytest.mark.parametrize("way", ["rewound", "allowed", "completed since"])
def test_what_was_put_back_or_is_allowed_is_told_no_more(ralph: Ralph, way: str) -> None:
    run = stopped(ralph)
    flags: tuple[str, ...] = ()
    if way == "rewound":
        assert ralph("rewind", run, "0", "--yes").code == 0
        ralph.write({"test_it.py": TEST.replace("0 == 1", "1 == 1")})
    elif way == "allowed":
        flags = ("--may-change", "pytest.ini")
    else:
        assert ralph("run", "-p", "x", "--agent", ralph.script([write(work="1"), done()], name="second")).code == 0
    agent = ralph.script([write(work="2"), done()], name="third")
    ended = ralph("run", "-p", "x", "--agent", agent, *flags)
    assert (ended.code, ralph.outcome()["concerns"]) == (0, []), ended
