"""The way of a prompt from the user to the agent, and what failing checks make of it."""

from __future__ import annotations

import pytest

from tests.misbehaviour.agents import TAG, case, plain, prompt, run, seen
from tests.misbehaviour.invariants import hold, refusal
from tests.ralph import Ralph, done, say, write


@pytest.mark.parametrize(
    "sources",
    [
        case("CF-08-none", ()),
        case("CF-08-text-and-file", ("-p", "this", "-f", "prompt.md")),
        case("CF-08-text-and-word", ("that", "-p", "this")),
        case("CF-08-word-and-file", ("that", "-f", "prompt.md")),
    ],
)
def test_there_is_one_prompt(ralph: Ralph, sources: tuple[str, ...]) -> None:
    """CF-08"""
    ralph.write({"prompt.md": "make it so"})
    refusal(ralph, ralph("run", *sources, "--agent", ralph.script([write(started="yes")])), "prompt")


@pytest.mark.parametrize(
    ("edit", "why"),
    [
        case("CF-09-removed", "rm prompt.md", "does not exist"),
        case("CF-09-emptied", ": > prompt.md", "is empty"),
        case("CF-09-blanked", "printf ' \\n' > prompt.md", "is empty"),
        case("CF-09-pipe", "rm prompt.md; mkfifo prompt.md", "is not a file"),
        case("CF-09-link-out", "echo secret > ../key; ln -sf ../key prompt.md", "leads to"),
        case("CF-17-nul-later", "printf 'a\\000b' > prompt.md", "holds a NUL"),
    ],
)
def test_a_prompt_file_that_goes_away_ends_the_run(ralph: Ralph, edit: str, why: str) -> None:
    """CF-09, CF-17: no turn is taken without a prompt."""
    ralph.write({"prompt.md": "make it so"})
    agent = ralph.script([{"record": "../seen"}, say("not yet")])
    ended = ralph("run", "-f", "prompt.md", "--agent", agent, "--check", f"test -f ../seen && {{ {edit}; }}; false")
    hold(ralph, ended)
    outcome = ralph.outcome()
    assert (ended.code, outcome["status"], outcome["iterations"]) == (2, "ERROR", 1), ended
    assert f"{ralph.root}/prompt.md {why}" in outcome["error"]
    assert outcome["error"] in ended.out
    assert len(seen(ralph)) == 1


@pytest.mark.parametrize("place", ["prompt.md", "../prompt.md"])
@pytest.mark.parametrize("when", ["turn", "check"])
def test_a_prompt_file_is_read_anew_in_every_iteration_and_an_edit_is_told(ralph: Ralph, place: str, when: str) -> None:
    """CF-11: somebody edits it while the agent works, or while a check runs. That is no work of the agent's."""
    ralph.write({place: "first of all"})
    ralph.settings(limits={"stallIterations": 2})
    ralph.commit()
    edit = f"test -f {place}.new || exit 0; mv {place}.new {place}"
    ralph.write({f"{place}.new": "after that\n"})
    ralph.git("add", "-A")
    steps = [{"run": ["sh", "-c", edit]}] if when == "turn" else []
    agent = ralph.script([{"record": "../seen"}, *steps, say("-")])
    check = f"test ! -f ../seen || {{ {edit}; }}; false" if when == "check" else "false"
    ended = ralph("run", "-f", place, "--agent", agent, "--check", check)
    hold(ralph, ended)
    first, second, *_ = (turn["prompt"] for turn in seen(ralph))
    assert first.startswith("first of all\n\n")
    assert second.startswith("after that\n")
    assert "put back" not in second
    name = "prompt.md" if place == "prompt.md" else "the prompt file"
    assert f"note: {name} changed during iteration 1; used from now on" in ended.err
    assert (ralph.root / place).read_text() == "after that\n"


def test_a_link_for_a_prompt_file_is_followed_when_the_run_begins(ralph: Ralph) -> None:
    """Its target is what counts: an edit of it is told, and whoever resumes the run is not led elsewhere."""
    ralph.write({"plans/now.md": "first of all", "../key": "secret"})
    (ralph.root / "prompt.md").symlink_to("plans/now.md")
    lead = {"run": ["sh", "-c", "rm plans/now.md prompt.md; ln -s ../../key plans/now.md; ln -s ../key prompt.md"]}
    edit, record = write(**{"plans/now__md": "after that"}), {"record": "../seen"}
    agent = ralph.script([record, edit, say("-")], [record, lead, say("-")])
    ended = ralph("run", "-f", "prompt.md", "--agent", agent, "--check", "false")
    assert "note: plans/now.md changed during iteration 1; used from now on" in ended.err
    again = ralph("run", "--resume")
    assert (ended.code, again.code) == (2, 2), (ended, again)
    assert f"prompt file {ralph.root}/plans/now.md leads to {ralph.folder}/key now" in ended.out
    assert f"leads to {ralph.folder}/key now" in again.err
    assert [turn["prompt"].split("\n")[0] for turn in seen(ralph)] == ["first of all", "after that"]


def test_a_protected_prompt_file_is_a_tripwire(ralph: Ralph) -> None:
    ralph.write({"prompt.md": "make it so"})
    agent = ralph.script([{"run": ["sh", "-c", "echo less > prompt.md"]}, done()])
    ended = ralph("run", "-f", "prompt.md", "--agent", agent, "--protect", "prompt.md")
    assert (ended.code, ralph.outcome()["reason"]) == (1, "PROHIBITED_PATH")
    assert (ralph.root / "prompt.md").read_text() == "make it so"


def test_an_edit_of_the_prompt_file_hides_no_stall_and_is_not_committed(ralph: Ralph) -> None:
    ralph.write({"prompt.md": "make it so"})
    ralph.settings(limits={"stallIterations": 2}, scm={"command": "git", "tasks": ["commit"]})
    ralph.commit()
    agent = ralph.script([{"run": ["sh", "-c", "date +%N >> prompt.md"]}, say("-")], message=[say("edits")])
    ended = ralph("run", "-f", "prompt.md", "--agent", agent, "--check", "true")
    assert (ended.code, ralph.outcome()["reason"], ralph.outcome()["iterations"]) == (1, "STALL", 2)
    assert ralph.git("status", "--short", "prompt.md") == " M prompt.md\n"


@pytest.mark.parametrize(
    ("source", "content", "why"),
    [
        case("CF-12-no-text", "-p", b"", "is empty"),
        case("CF-12-blank-text", "-p", b" \t\n", "is empty"),
        case("CF-12-blank-word", "word", b"  ", "is empty"),
        case("CF-12-no-bytes", "-f", b"", "is empty"),
        case("CF-12-blanks", "-f", b" \t\r\n \n", "is empty"),
        case("CF-12-mark-alone", "-f", b"\xef\xbb\xbf\n", "is empty"),
        case("CF-12-nothing-piped", "stdin", b"", "is empty"),
        case("CF-12-mark-alone-piped", "stdin", b"\xef\xbb\xbf\n", "is empty"),
        case("CF-17-file", "-f", b"make it\0 so", "NUL"),
        case("CF-17-piped", "stdin", b"make it\0 so", "NUL"),
    ],
)
def test_a_prompt_that_says_nothing_is_refused(ralph: Ralph, source: str, content: bytes, why: str) -> None:
    """CF-12, CF-17"""
    text = content.decode()
    (ralph.root / "prompt.md").write_bytes(content)
    words = {"-f": ("-f", "prompt.md"), "stdin": ("-f", "-"), "-p": ("-p", text), "word": (text,)}[source]
    agent = ralph.script([write(started="yes"), done()])
    refusal(ralph, ralph("run", *words, "--agent", agent, stdin=text), why)


NASTY = (
    "$(touch pwned) `touch pwned`; touch pwned & touch pwned && touch pwned | tee pwned > pwned\n"
    "'; touch pwned; ' \"; touch pwned; \" \\\"\\' ${HOME} ~ * ? [a] !! %s %d %% {prompt} {prompt_file} {0} #\n"
    "-rf --help \\n \\ \r\n\ttab\x7f \x1b[31mred\x1b[0m ünï \u202e zero\u200bwidth 🙂   \n"
)
VARIABLES = "& and / and \\1 and \\0 and \\g<0> and $RALPH_ITERATION and $RALPH_ITERATION and $1 and ${RALPH_RUN_ID}\n"
BYTES = "not UTF-8: \udcff\udcfe\udc80\n"
TEXTS = [
    case("CF-13", NASTY),
    case("CF-13-bytes", BYTES),
    case("CF-15", "Do this, please. 0123456789\n" * 7500),
    case("CF-15-one-line", "x" * 200 * 1024 + "\n"),
    case("CF-18", VARIABLES),
]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("way", ["stdin", "file"])
def test_the_agent_gets_the_very_bytes_of_the_prompt(ralph: Ralph, text: str, way: str) -> None:
    """CF-13, CF-15, CF-18: by standard input or by a file; no shell, no template, no limit of an argument."""
    given = (text + TAG).encode("utf-8", "surrogateescape")  # it shows the tag itself, so nothing is added
    (ralph.root / "prompt.md").write_bytes(given)
    taken = "cat > ../got" if way == "stdin" else 'cp "$1" ../got'
    ralph.program("taker", f"{taken}; echo '{TAG}'")
    agent = "taker" if way == "stdin" else "taker {prompt_file}"
    ended = ralph("run", "-f", "prompt.md", "--agent", agent, "--check", "true", "-m", "1")
    hold(ralph, ended)
    assert ended.code == 0, ended
    assert (ralph.folder / "got").read_bytes() == given
    assert list(ralph.folder.rglob("pwned")) == []


@pytest.mark.parametrize("text", [case("CF-13", NASTY), case("CF-13-bytes", BYTES), case("CF-18", VARIABLES)])
def test_a_prompt_as_an_argument_is_one_argument(ralph: Ralph, text: str) -> None:
    """CF-13, CF-18"""
    given = (text + TAG).encode("utf-8", "surrogateescape")
    (ralph.root / "prompt.md").write_bytes(given)
    ralph.program("taker", f"printf %s \"$2\" > ../got; printf '%s %s %s' $# $1 $3 > ../others; echo '{TAG}'")
    ended = ralph("run", "-f", "prompt.md", "--agent", "taker --ask {prompt} --now", "--check", "true", "-m", "1")
    hold(ralph, ended)
    assert ended.code == 0, ended
    assert (ralph.folder / "got").read_bytes() == given
    assert (ralph.folder / "others").read_text() == "3 --ask --now"
    assert list(ralph.folder.rglob("pwned")) == []


def test_a_null_byte_that_a_check_printed_reaches_no_argument(ralph: Ralph) -> None:
    ralph.program("told", 'printf "%s" "$1" > ../prompt; echo "<response>DONE</response>"; touch done')
    check = "test -f done || { printf 'a\\0b'; exit 1; }"
    agent = "sh -c 'if [ -e ../once ]; then exec told \"$0\"; fi; touch ../once; echo no' {prompt}"
    ended = ralph("run", "-p", "x", "--agent", agent, "--check", check, "-m", "3")
    assert ended.code == 0, ended
    assert "ab" in (ralph.folder / "prompt").read_text()


def test_a_prompt_too_long_for_an_argument_is_refused_before_the_agent_starts(ralph: Ralph) -> None:
    """CF-15: the message says what to do instead."""
    ralph.write({"prompt.md": "x" * 200 * 1024})
    ralph.program("taker", "touch started")
    ended = ralph("run", "-f", "prompt.md", "--agent", "taker {prompt}")
    hold(ralph, ended)
    assert ended.code == 2
    assert "{prompt_file} or standard input" in ralph.outcome()["error"]
    assert not (ralph.root / "started").exists()


def test_a_long_prompt_comes_through_a_pipe(ralph: Ralph) -> None:
    """CF-15"""
    text = "line\n" * 50_000
    agent = ralph.script([{"record": "../seen"}, done()])
    ended = ralph("run", "-f", "-", "--agent", agent, "--check", "true", stdin=text)
    hold(ralph, ended)
    assert ended.code == 0, ended
    assert seen(ralph)[0]["prompt"].startswith(text)


LIKE_FLAGS = ("--help", "-h", "-", "--", "-p", "--model=x", "-f is broken", "- a list\n- of things")


@pytest.mark.parametrize(
    ("source", "text"),
    [("-p", text) for text in LIKE_FLAGS]
    + [(source, "--help") for source in ("--prompt", "--prompt=", "-f", "stdin", "--")],
)
def test_a_prompt_may_look_like_a_flag(ralph: Ralph, source: str, text: str) -> None:
    """CF-14"""
    ralph.write({"prompt.md": text})
    words = {"-f": ("-f", "prompt.md"), "stdin": ("-f", "-"), "--prompt=": (f"--prompt={text}",)}
    agent = plain(ralph, [{"record": "../seen"}, done()])
    flags = ("--agent", agent, "--check", "true")
    ended = ralph("run", *flags, *words.get(source, (source, text)), stdin=text)
    hold(ralph, ended)
    assert ended.code == 0, ended
    (turn,) = seen(ralph)
    assert turn["prompt"].partition("\n\n")[0] == text


def guardrail(name: str, action: str | None = None) -> dict[str, str]:
    """A check that fails, and prints nothing but its name."""
    return {"command": f"printf {name}; exit 3"} | ({"failAction": action} if action else {})


def failed(ralph: Ralph, name: str) -> str:
    log = f".ralph/runs/{ralph.runs()[0].id}/guardrail_001_printf_{name}_exit_3.log"
    said = f'Guardrail "printf {name}; exit 3" failed with exit code 3.'
    return f"{said}\nOutput file: {log}\nOutput (truncated):\n{name}"


@pytest.mark.parametrize(
    ("guardrails", "order"),
    [
        case("CF-19-three", [("a", "PREPEND"), ("b", "REPLACE"), ("c", "APPEND")], ["a", "b", "c"]),
        case("CF-19-any-case", [("a", "replace"), ("b", "Append"), ("c", "pRePend")], ["c", "a", "b"]),
        case("CF-19-no-replace", [("a", "APPEND"), ("b", "PREPEND"), ("c", None), ("d", "PREPEND")],
             ["b", "d", "make it so", "a", "c"]),
    ],
)  # fmt: skip
def test_failures_enter_the_prompt_in_one_order(
    ralph: Ralph, guardrails: list[tuple[str, str | None]], order: list[str]
) -> None:
    """CF-19"""
    ralph.settings(
        guardrails=[guardrail(name, action) for name, action in guardrails], includeIterationCountInPrompt=True
    )
    agent = plain(ralph, [say("working")])
    ended = run(ralph, "-m", "2", agent=agent)
    hold(ralph, ended)
    assert ended.code == 1
    parts = [part if " " in part else failed(ralph, part) for part in order]
    assert prompt(ralph, 2).startswith("\n\n".join(["Iteration 2 of 2, 0 remaining.", *parts]) + "\n\n")
    assert prompt(ralph, 1).startswith("Iteration 1 of 2, 1 remaining.\n\nmake it so\n\n")


@pytest.mark.parametrize(
    "argv",
    [("run", "-f", "-"), ("plan", "--from", "-"), ("task", "generate", "--from", "-"), ("task", "import", "-"),
     ("bus", "post", "--to", "project", "-")],
    ids=" ".join,
)  # fmt: skip
def test_an_input_without_end_is_refused(ralph: Ralph, argv: tuple[str, ...]) -> None:
    ralph.write({"ralph/prd.md": "something"})
    ralph.commit()
    if argv[0] not in ("task", "bus"):
        argv = (*argv, "--agent", ralph.script([done()]))
    ended = ralph(*argv, via=("sh", "-c", 'ulimit -v 4000000; exec "$@" < /dev/zero', "sh"))
    assert (ended.code, len(ended.err.splitlines())) == (2, 1), ended
    assert "standard input has more" in ended.err
