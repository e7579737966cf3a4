from __future__ import annotations

import subprocess

import pytest

from tests.ralph import Ralph, done, say, until, write

NAMES = ("plain", "with space", "ünï\tcode", 'quo"te')


def finished(ralph: Ralph, git: bool) -> str:
    """Three iterations: a change, nothing, another change."""
    ralph.write({"file": "one\ntwo\n", "check.sh": "grep -q end file", "gone": "old\n"})
    if git:
        ralph.commit()
    agent = ralph.script(
        [{"append": {"file": "three\n"}}, {"write": dict.fromkeys(NAMES, "new\n")}],
        [say("thinking")],
        [{"append": {"file": "end \x1b[2J\n"}}, {"delete": ["gone"]}, done()],
    )
    assert ralph("run", "-p", "x", "--agent", agent, "--check", "sh check.sh").code == 0
    return ralph.runs()[0].id


@pytest.mark.parametrize("git", [True, False], ids=["git", "plain"])
def test_the_whole_run_and_each_iteration_can_be_seen(ralph: Ralph, git: bool) -> None:
    run = finished(ralph, git)
    whole = ralph("diff").out
    assert "+three" in whole
    assert "+end" in whole
    assert "-old" in whole
    first, second, third = (ralph("diff", run, str(number)).out for number in (1, 2, 3))
    assert "+three" in first
    assert "+end" not in first
    assert second == ""
    assert "+end" in third
    assert "+three" not in third
    assert "\x1b" not in whole
    assert ralph("diff", "3").out == third


@pytest.mark.parametrize("git", [True, False], ids=["git", "plain"])
def test_a_summary_counts_lines_and_knows_every_name(ralph: Ralph, git: bool) -> None:
    finished(ralph, git)
    told = ralph("diff", "--json", "--stat").json
    counted = {file["path"]: (file["addedLines"], file["removedLines"], file["binary"]) for file in told["changes"]}
    assert counted == {"file": (2, 0, False), "gone": (0, 1, False), **dict.fromkeys(NAMES, (1, 0, False))}
    assert "patch" not in told
    shown = ralph("diff", "--stat").out.splitlines()
    assert shown[-1] == " 6 files changed, +6 -1"


def test_a_raw_patch_can_be_applied(ralph: Ralph) -> None:
    finished(ralph, git=True)
    patch = ralph("diff", "--raw").out
    subprocess.run(["git", "apply", "-R"], cwd=ralph.root, input=patch, text=True, check=True, env=ralph.env)
    assert (ralph.root / "file").read_text() == "one\ntwo\n"
    assert not (ralph.root / "with space").exists()


def test_a_live_run_can_be_looked_at_and_is_not_disturbed(ralph: Ralph) -> None:
    ralph.commit()
    agent = ralph.script([write(first="1")], [write(second="2"), {"until": "go"}, done()])
    live = ralph.start("run", "-p", "x", "--agent", agent)
    until(lambda: (ralph.root / "second").exists(), "the second iteration")
    assert "+++ b/first" in ralph("diff").out
    assert ralph("diff", "2").code == 2
    (ralph.root / "go").touch()
    assert live.end().code == 0
    assert ralph.state().history.iterations[1].change.paths == ("go", "second")


@pytest.mark.parametrize(("argv", "word"), [(["latest", "9"], "0 to 3"), (["latest", "x"], "'x'"), (["0"], "from 1")])
def test_an_iteration_that_is_not_there_is_refused(ralph: Ralph, argv: list[str], word: str) -> None:
    finished(ralph, git=True)
    ended = ralph("diff", *argv)
    assert ended.code == 2
    assert word in ended.err
