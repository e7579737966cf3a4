"""Which verb a command line means, and that no slip of the fingers starts an agent."""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest

from ralphproof import __main__ as main
from ralphproof import __version__
from ralphproof.base.errors import Refused
from ralphproof.cli.dispatch import split_verb
from ralphproof.cli.verbs import VERBS
from tests.ralph import PROGRAM, Ralph, done, write


@pytest.mark.parametrize(
    ("argv", "verb", "rest"),
    [
        ("", "run", ""),
        ("status", "status", ""),
        ("-q status", "status", "-q"),
        ("-d DIR status --all", "status", "-d DIR --all"),
        ("-dDIR status", "status", "-dDIR"),
        ("-qd DIR status", "status", "-qd DIR"),
        ("-qV status", "status", "-qV"),
        ("--project-dir DIR status", "status", "--project-dir DIR"),
        ("--project-dir=DIR status", "status", "--project-dir=DIR"),
        ("-d status logs", "logs", "-d status"),
        ("--json status latest", "status", "--json latest"),
        ("--no-color --no-emoji --quiet --verbose cancel", "cancel", "--no-color --no-emoji --quiet --verbose"),
        ("-q run -p x", "run", "-q -p x"),
        ("-p x", "run", "-p x"),
        ("-q -p x", "run", "-q -p x"),
        ("-p status", "run", "-p status"),
        ("-q", "run", "-q"),
        ("-d", "run", "-d"),
        ("help", "help", ""),
        ("--help", "help", ""),
        ("--no-color --help", "help", ""),
        ("-q help", "help", ""),
        ("help run", "run", "--help"),
        ("--no-color help run", "run", "--help"),
        ("help help", "help", ""),
        ("--json --version", "version", "--json"),
        ("-V -v", "version", "-V"),
    ],
)  # fmt: skip
def test_flags_that_every_verb_takes_may_stand_before_it(argv: str, verb: str, rest: str) -> None:
    assert split_verb(argv.split()) == (verb, rest.split())


@pytest.mark.parametrize("argv", [["-q", "stauts"], ["help", "stauts"], ["stauts"]], ids=" ".join)
def test_a_word_that_is_no_verb_is_refused_wherever_it_stands(argv: list[str]) -> None:
    with pytest.raises(Refused, match="unknown command stauts; did you mean status"):
        split_verb(argv)


@pytest.mark.parametrize("flags", ["-q", "-d .", "--json", "--no-color", "-V", "--agent none", "run", "-m 3", "--"])
@pytest.mark.parametrize("verb", ["status", "cancel"])
def test_no_verb_is_ever_taken_for_a_prompt(ralph: Ralph, flags: str, verb: str) -> None:
    ralph.settings(agent={"command": ralph.script([write(started="yes"), done()])})
    told = ralph(*flags.split(), verb)
    assert not (ralph.root / "started").exists()
    if flags in ("--agent none", "run", "-m 3", "--"):
        assert (told.code, told.out) == (2, "")
        assert f"{verb} is a command" in told.err
        assert f'-p "{verb}"' in told.err


def test_a_prompt_may_be_called_like_a_verb_if_it_is_said_to_be_one(ralph: Ralph) -> None:
    assert ralph("run", "-p", "status", "--agent", ralph.script([done()])).code == 0


@pytest.mark.parametrize("argv", [["--version"], ["-v"], ["-V", "--version"], ["--no-color", "-v"], ["status", "-v"]])
def test_the_version_is_told_whatever_else_is_said(ralph: Ralph, argv: list[str]) -> None:
    told = ralph(*argv)
    assert (told.code, told.out, told.err) == (0, f"ralph {__version__}\n", "")


def test_the_version_for_programs(ralph: Ralph) -> None:
    assert ralph("--json", "--version").json == {"v": 1, "type": "version", "version": __version__}


@pytest.mark.parametrize("verb", VERBS)
def test_help_of_a_verb_is_its_own_help(ralph: Ralph, verb: str) -> None:
    assert ralph("help", verb).out == ralph(verb, "--help").out
    assert "SUPPRESS" not in ralph("help", verb).out


def test_every_verb_has_its_help_in_an_interpreter_without_docstrings(ralph: Ralph) -> None:
    code = f"""
import sys
from ralphproof.cli.dispatch import dispatch
codes = [dispatch([verb, "--help"]) for verb in {list(VERBS)!r}]
sys.exit(max(codes))
"""
    env = ralph.env | {"PYTHONOPTIMIZE": "2"}
    ended = subprocess.run([sys.executable, "-c", code], cwd=ralph.root, env=env, capture_output=True, text=True)
    assert (ended.returncode, ended.stderr) == (0, "")
    ran = ralph("run", "-p", "x", "--agent", ralph.script([done()]), "--check", "true", env={"PYTHONOPTIMIZE": "2"})
    assert ran.code == 0, ran


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-", "<&-", "<&- >&- 2>&-"])
def test_a_closed_stream_costs_its_output_and_nothing_else(ralph: Ralph, closed: str) -> None:
    agent = ralph.script([{"text": "hello\n"}, done()])
    for engine in ("podman", "docker"):
        ralph.program(engine, "exit 1")  # a real one takes the doctor seconds
    for argv, code in (
        (f"run -p x --agent '{agent}'", 0), (f"run -p x --json -V --agent '{agent}'", 0),
        (f"run -p x -m 1 --check false --agent '{agent}'", 1), ("status", 0), ("logs", 0), ("nonsense", 2),
        ("doctor", 0), ("--help", 0), ("--version", 0),
    ):  # fmt: skip
        command = f"{' '.join(PROGRAM)} {argv} {closed}"
        told = subprocess.run(
            ["/bin/sh", "-c", command], cwd=ralph.root, env=ralph.env, capture_output=True, text=True, check=False
        )
        assert told.returncode == code, (argv, told.stderr)
        assert ">&-" not in closed or "2>&-" in closed or told.stdout == ""
        assert "2>&-" not in closed or told.stderr == ""
        assert "Traceback" not in told.stderr
        if "2>&-" in closed and argv == "nonsense":
            assert told.stdout == "", "a message is no result"
    assert len(ralph.runs()) == 3


OLD = """
import runpy, sys
sys.version_info, sys.argv = (3, 8, 10, "final", 0), ["ralph", "status"]
try:
    runpy.run_module("ralphproof", run_name="__main__")
finally:
    print([name for name in sys.modules if name.startswith("ralphproof.") and name != "ralphproof.__main__"])
"""


def test_a_python_that_is_too_old_is_told_in_one_line_before_anything_else(ralph: Ralph) -> None:
    with open(main.__file__, encoding="utf-8") as file:
        ast.parse(file.read(), feature_version=(3, 4))
    told = subprocess.run([sys.executable, "-c", OLD], env=ralph.env, capture_output=True, text=True, check=False)
    assert (told.returncode, told.stdout) == (2, "[]\n")
    assert told.stderr == f"ralph: needs Python 3.11 or newer, and this is Python 3.8.10 ({sys.executable})\n"


IGNORING = "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); os.execvp(sys.argv[1], sys.argv[1:])"


def test_how_programs_end_is_learnt_though_whoever_started_us_ignores_it(ralph: Ralph) -> None:
    ralph.commit()
    agent = ralph.script([write(work="done"), done()])
    told = ralph("run", "-p", "x", "--agent", agent, "--check", "test -e work", via=(sys.executable, "-c", IGNORING))
    assert (told.code, ralph.outcome()["status"]) == (0, "COMPLETED")


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--sandbox=bubblewrap"], "sandbox bubblewrap does not work here: bwrap is not installed (install it"),
        (["--sandbox", "bubblewrap"], "give one prompt"),
        (["--x", "--sandbox"], "unknown argument --x"),
        (["--sandbox", "--no-sandbox"], "--no-sandbox and --sandbox contradict each other"),
        (["--no-sandbox", "--allow-host", "a.test"], "--no-sandbox and --allow-host contradict each other"),
        (["--allow-host", "a.test"], "--allow-host says what may be reached from a sandbox, and there is none"),
        (["--sandbox=bubblewarp"], "command line: sandbox.backend: 'bubblewarp' is no kind of sandbox; there are:"),
        (["--sandbox", "--allow-host", "*"], "command line: sandbox.allowHosts[0] stands for every host"),
        (["--sandbox", "--allow-host", "a b"], "command line: sandbox.allowHosts[0] has a blank"),
    ],
)
def test_a_sandbox_is_never_taken_for_its_opposite(ralph: Ralph, flags: list[str], said: str) -> None:
    env = {"PATH": str(ralph.bin)}  # nothing that could hold anything, but the kernel itself
    told = ralph("run", *flags, "-p", "x", "--agent", ralph.script([write(started="yes"), done()]), env=env)
    assert (told.code, told.out, (ralph.root / "started").exists()) == (2, "", False)
    assert told.err.startswith(f"ralph: {said}")
    assert len(told.err.splitlines()) == 1
