from __future__ import annotations

import os
import subprocess

import pytest

from ralphproof.cli.verbs import VERBS, verb_function
from tests.cli.pages import pages
from tests.ralph import PROGRAM, Ralph, done

ASCII = {"LC_ALL": "C", "LANG": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


@pytest.mark.parametrize("path", pages(), ids=lambda path: path.name)
def test_the_pages_say_what_the_program_says(path: os.PathLike[str]) -> None:
    with open(path, encoding="utf-8") as file:
        assert file.read() == pages()[path], "write them anew: python -m tests.cli.pages"  # type: ignore[index]


def test_help_names_every_verb_and_gives_examples(ralph: Ralph) -> None:
    for argv in (["--help"], ["-h"], ["help"]):
        told = ralph(*argv)
        assert (told.code, told.err) == (0, "")
        assert "examples:\n  ralph " in told.out
        assert all(f"\n  {verb} " in told.out for verb in VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_with_examples(ralph: Ralph, verb: str) -> None:
    told = ralph(verb, "--help")
    assert (told.code, told.err) == (0, "")
    assert f"usage: ralph {verb}" in told.out
    assert "examples:\n  " in told.out
    assert "--json" in told.out


def test_every_flag_says_what_it_does() -> None:
    for verb in VERBS:
        for action in verb_function(verb, "parser")()._actions:
            assert action.help, f"{verb} {action.dest}"


@pytest.mark.parametrize(
    ("argv", "near"),
    [
        (["statsu"], "status"),
        (["status", "--al"], "--all"),
        (["logs", "--checkss"], "--checks"),
        (["diff", "--stats"], "--stat"),
        (["cancel", "--nowait"], "--no-wait"),
        (["init", "--forse"], "--force"),
        (["rewind", "latest", "1", "--yess"], "--yes"),
        (["config", "show", "--origins"], "--origin"),
    ],
)
def test_a_slip_is_answered_with_what_was_probably_meant(ralph: Ralph, argv: list[str], near: str) -> None:
    told = ralph(*argv)
    assert (told.code, told.out) == (2, "")
    assert f"did you mean {near}?" in told.err
    assert len(told.err.splitlines()) == 1


@pytest.mark.parametrize(
    "argv",
    [["config"], ["config", "sho"], ["completion"], ["completion", "tcsh"], ["rewind"], ["logs", "--iteration", "0"],
     ["status", "a", "b"], ["diff", "a", "b", "c"]],
    ids=" ".join,
)  # fmt: skip
def test_bad_arguments_are_refused_in_one_line(ralph: Ralph, argv: list[str]) -> None:
    told = ralph(*argv)
    assert (told.code, told.out, len(told.err.splitlines())) == (2, "", 1)
    assert told.err.startswith("ralph: ")


@pytest.mark.thorough
def test_nothing_fails_where_the_terminal_knows_only_ascii(ralph: Ralph) -> None:
    ralph.write({"ü": "before\n"})
    ralph.commit()
    agent = ralph.script([{"write": {"ü": "naïve …\n", "…": "x\n"}}, {"text": "… <response>DONE</response>"}])
    assert ralph("run", "-p", "ü", "--agent", agent, "--check", "printf '\\303\\274'", env=ASCII).code == 0
    lines = [
        "status",
        "status --all",
        "logs",
        "logs --prompt",
        "diff",
        "diff --stat",
        "doctor",
        "config show",
        "cancel",
    ]
    lines += ["rewind latest 0 --yes", "completion fish", "--help", *(f"{verb} --help" for verb in VERBS)]
    for argv in lines:
        told = ralph(*argv.split(), env=ASCII)
        assert told.code == 0, (argv, told.err)
        assert "Traceback" not in told.err


@pytest.mark.parametrize("argv", ["--help", "run --help", "status --all", "diff", "config schema", "completion bash"])
def test_a_reader_that_leaves_early_is_no_error(ralph: Ralph, argv: str) -> None:
    ralph.commit()
    agent = ralph.script([{"write": {"file": "line\n" * 50_000}}, done()])
    assert ralph("run", "-p", "x", "--agent", agent).code == 0
    for reader in ("head -1", "true"):
        command = f"{' '.join(PROGRAM)} -q {argv} | {reader}"
        told = subprocess.run(["/bin/sh", "-c", command], cwd=ralph.root, env=ralph.env, capture_output=True, text=True)
        assert told.stderr == ""


def test_a_directory_that_is_gone_is_said(ralph: Ralph) -> None:
    command = f"mkdir gone; cd gone; rmdir ../gone; {' '.join(PROGRAM)} status"
    told = subprocess.run(["/bin/sh", "-c", command], cwd=ralph.root, env=ralph.env, capture_output=True, text=True)
    assert told.returncode == 2
    assert "no longer exists" in told.stderr
    assert ralph("status", "-d", "nowhere").code == 2
