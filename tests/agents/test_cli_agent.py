"""What all command-line agents have in common: how they are started, and how a failed turn is explained."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ralphproof.agents.adapter import (
    COST_COMPUTED,
    COST_REPORTED,
    COST_UNKNOWN,
    AgentAdapter,
    AgentInvocation,
    ReaderContext,
)
from ralphproof.agents.cli_agent import STDERR_TAIL_BYTES, CliAgent
from ralphproof.engine.agent import (
    THE_CONFIGURATION,
    THE_SERVICE,
    AgentFault,
    ConfigFault,
    Ended,
    Fault,
    Said,
    ServiceFault,
    SignalFault,
    Spent,
    Unparsed,
    Usage,
)
from ralphproof.engine.sandbox import Exit
from tests.agents.replay import NOW_S, Looker, Played, Recording, brief_in, play

BILLED = Spent(70, Usage(7))


class Parrot(AgentAdapter):
    """Says a line as it is; `!` is a result, `!text` a final message, `x text` an error, `s text` the service's."""

    name = "parrot"
    cost = COST_REPORTED
    guard = "cage"
    resumes = True
    login = "teach it your name"
    updates_off: Mapping[str, str] = {"PARROT_UPDATES": "off", "MINE": "0"}

    def arguments(self, call: AgentInvocation) -> tuple[str, ...]:
        how = self.guard if call.guarded else "free"
        return (*call.flags, how, *((call.model,) if call.model else ()), *filter(None, [call.brief.session]))

    def model(self, flags: tuple[str, ...], model: str | None) -> str | None:
        return model or next(iter(flags), None)

    def environment(self, call: AgentInvocation) -> Mapping[str, str]:
        return {"NEEDED": "1"}

    def reader(self, hearing: ReaderContext) -> Words:
        self.hearing = hearing
        return Words(hearing)


class Words:
    def __init__(self, hearing: ReaderContext) -> None:
        self._emit = hearing.emit

    def read_line(self, line: bytes) -> None:
        text = line.decode()
        match text[:1]:
            case "!":
                self._emit(Ended(True, text[1:] or None))
            case "x":
                self._emit(Ended(False, "", text[2:]))
            case "s":
                self._emit(Ended(False, "", text[2:], THE_SERVICE))
            case "?" | "{":
                raise ValueError(text)
            case _:
                self._emit(Said(text))

    def close(self, end: Exit) -> None:
        self._emit(Said("bye")) if end.why == "killed" else None


def heard(folder: Path, out: str, end: Exit | None = None, err: str = "") -> Played:
    return play(Parrot(), Recording(out.encode(), end or Exit(0), err), folder)


def test_it_is_started_with_the_prompt_on_its_standard_input(tmp_path: Path) -> None:
    brief = brief_in(tmp_path, env=(("PATH", "/bin"), ("MINE", "1")), timeout_s=7.0, idle_s=3.0, session="s1")
    sandbox = Recording(b"!done\n")
    speaker = CliAgent(Parrot(), "/bin/parrot", ("-f",), model="grey", guarded=False)
    speaker.take_turn(brief, sandbox, Looker())
    (command,) = sandbox.commands
    assert command.argv == speaker.argv(brief) == ("/bin/parrot", "-f", "free", "grey", "s1")
    assert dict(command.env) == {"PARROT_UPDATES": "off", "MINE": "1", "PATH": "/bin", "NEEDED": "1"}
    assert (command.stdin, command.cwd, command.turn_file, command.mark) == (
        brief.prompt_file, brief.cwd, brief.turn_file, brief.call_id,
    )  # fmt: skip
    assert (command.out, command.err) == (brief.log_base + ".ndjson", brief.log_base + ".stderr.log")
    assert (command.timeout_s, command.idle_s) == (7.0, 3.0)


def test_its_guard_is_kept_unless_it_is_told_otherwise(tmp_path: Path) -> None:
    assert CliAgent(Parrot(), "p").argv(brief_in(tmp_path)) == ("p", "cage")
    assert CliAgent(Parrot(), "p", guarded=False).argv(brief_in(tmp_path)) == ("p", "free")


@pytest.mark.parametrize(
    ("resumes", "session", "billed", "known"),
    [
        (True, "s1", BILLED, BILLED), (True, "s1", None, Spent(0, Usage())), (True, None, BILLED, Spent(0, Usage())),
        (False, "s1", BILLED, Spent(0, Usage())),
    ],
)  # fmt: skip
def test_what_a_session_had_cost_counts_only_where_it_goes_on(
    resumes: bool, session: str | None, billed: Spent | None, known: Spent, tmp_path: Path
) -> None:
    parrot = Parrot()
    parrot.resumes = resumes
    sandbox, brief = Recording(b"!done\n"), brief_in(tmp_path, session=session, session_spent=billed)
    CliAgent(parrot, "p", now=lambda: NOW_S).take_turn(brief, sandbox, Looker())
    assert parrot.hearing.billed == known
    assert ("s1" in sandbox.commands[0].argv) is (resumes and session is not None)
    assert parrot.hearing.now() == NOW_S


@pytest.mark.parametrize(("flags", "model", "known"), [((), None, None), (("f",), None, "f"), (("f",), "m", "m")])
def test_a_reader_knows_the_model(flags: tuple[str, ...], model: str | None, known: str | None, tmp_path: Path) -> None:
    parrot = Parrot()
    CliAgent(parrot, "p", flags, model=model).take_turn(brief_in(tmp_path), Recording(b""), Looker())
    assert parrot.hearing.model == known


@pytest.mark.parametrize(
    ("kind", "model", "reports"),
    [
        (COST_REPORTED, None, True),
        (COST_UNKNOWN, "known", False),
        (COST_COMPUTED, "known", True),
        (COST_COMPUTED, "other", False),
        (COST_COMPUTED, None, False),
    ],
)
def test_a_limit_on_cost_can_be_held_where_a_cost_will_be_known(kind: str, model: str | None, reports: bool) -> None:
    parrot = Parrot()
    parrot.cost = kind
    price = {"known": 1}
    assert CliAgent(parrot, "p", model=model, cost=lambda name, _: price.get(str(name))).reports_cost is reports


@pytest.mark.parametrize(
    ("out", "text"),
    [("a\nb\n!", "b"), ("a\n!end\n", "end"), ("!one\n!two\n", "two"), ("!end\nps\n", "end"), ("x no\n!end\n", "end")],
)
def test_a_turn_that_says_its_result_succeeds(out: str, text: str, tmp_path: Path) -> None:
    seen = heard(tmp_path, out)
    assert (seen.ok, seen.turn.text, seen.said_result) == (True, text, out[-1] == "\n")


@pytest.mark.parametrize(
    ("out", "end", "err", "fault"),
    [
        pytest.param(
            "a\n", Exit(0), "", AgentFault("the agent ended with exit code 0 and without its result"), id="no result"
        ),
        pytest.param(
            "", Exit(7), "one\nlast  words\n\n",
            AgentFault("the agent ended with exit code 7 and without its result: last words"), id="its last words",
        ),
        pytest.param(
            "", Exit(None, signal=9), "", AgentFault("the agent ended by signal 9 and without its result"), id="signal"
        ),
        pytest.param("!done\n", Exit(1), "", AgentFault("the agent exited with code 1"), id="a result, and code 1"),
        pytest.param("x no\n", Exit(0), "", AgentFault("no"), id="its own error, and code 0"),
        pytest.param("!a\nx no\n", Exit(0), "", AgentFault("no"), id="the last result is an error"),
    ],
)  # fmt: skip
def test_a_turn_without_a_result_has_failed(out: str, end: Exit, err: str, fault: Fault, tmp_path: Path) -> None:
    seen = heard(tmp_path, out, end, err)
    assert (seen.ok, seen.fault) == (False, fault)


LOGIN, DOWN, FLAG = "Invalid API key", "Overloaded", "error: unknown option '--x'"
LIMIT = "You've hit your usage limit. Try again in 5 minutes."


@pytest.mark.parametrize(
    ("out", "code", "err", "kind", "says"),
    [
        pytest.param("", 1, LOGIN, ConfigFault, ("parrot is not logged in", LOGIN, "teach it your name"), id="login"),
        pytest.param("", 2, FLAG, ConfigFault, ("parrot", "--x", "agent.flags"), id="flag"),
        pytest.param("", 1, DOWN, ServiceFault, (DOWN,), id="outage"),
        pytest.param(f"x {LOGIN}\n", 1, "", ConfigFault, (LOGIN,), id="its own error tells"),
        pytest.param(f"x {LOGIN}\n", 1, LIMIT, ConfigFault, (LOGIN,), id="its own error comes before stderr"),
        pytest.param("x no\n", 1, LOGIN, ConfigFault, (LOGIN,), id="an error that tells nothing, and stderr"),
        pytest.param("!done\n", 1, LOGIN, ConfigFault, (LOGIN,), id="a success that failed in the end"),
        pytest.param("", 0, LOGIN, ConfigFault, (LOGIN,), id="no result, and code 0"),
        pytest.param("s slow\n", 1, LOGIN, ServiceFault, ("slow",), id="structure told: stderr is not asked"),
        pytest.param("x no\n", 1, "one\ntwo", AgentFault, ("no",), id="stderr without a complaint"),
    ],
)
def test_a_failure_is_explained(
    out: str, code: int, err: str, kind: type, says: tuple[str, ...], tmp_path: Path
) -> None:
    fault = heard(tmp_path, out, Exit(code), err).fault
    assert type(fault) is kind
    assert [part for part in says if part not in getattr(fault, "message", "")] == []


def test_a_limit_on_stderr_is_waited_for(tmp_path: Path) -> None:
    fault = heard(tmp_path, "", Exit(1), LIMIT).fault
    assert isinstance(fault, ServiceFault)
    assert fault.resets_at == NOW_S + 300


def test_a_success_is_not_doubted_because_of_its_stderr(tmp_path: Path) -> None:
    seen = heard(tmp_path, "!done\n", Exit(0), LOGIN)
    assert (seen.ok, seen.turn.text) == (True, "done")
    assert heard(tmp_path, "!done\n", Exit(None, "lingered", 15), LOGIN).ok


@pytest.mark.parametrize("why", ["timeout", "idle", "stopped", "killed", "interrupted", "unstartable"])
def test_an_end_that_we_made_is_not_explained_by_stderr(why: str, tmp_path: Path) -> None:
    seen = heard(tmp_path, "a\n", Exit(None, why, 15, error="not there"), f"{LOGIN}\n{LIMIT}")
    assert (seen.ok, seen.turn.error, seen.turn.blame, seen.turn.limited) == (False, None, "", None)
    assert not isinstance(seen.fault, ServiceFault)
    assert isinstance(seen.fault, ConfigFault) is (why == "unstartable")
    assert isinstance(seen.fault, SignalFault) is (why in ("stopped", "killed"))


def test_only_the_end_of_stderr_is_looked_at(tmp_path: Path) -> None:
    assert isinstance(heard(tmp_path, "", Exit(1), "x\n" * STDERR_TAIL_BYTES + LOGIN).fault, ConfigFault)
    assert isinstance(heard(tmp_path, "", Exit(1), LOGIN + "\n" + "x\n" * STDERR_TAIL_BYTES).fault, AgentFault)


def test_a_log_that_is_not_there_explains_nothing(tmp_path: Path) -> None:
    class Silent(Recording):
        def run(self, command: Any, watch: Any) -> Exit:
            return Exit(3)

    seen = CliAgent(Parrot(), "p").take_turn(brief_in(tmp_path), Silent(b""), Looker())
    assert seen.error == "the agent ended with exit code 3 and without its result"


QUESTION = "? Please visit the following URL to authorize the application: https://login.example/oauth/authorize?x=1"


def test_a_question_for_a_login_ends_the_turn(tmp_path: Path) -> None:
    seen = heard(tmp_path, f"{QUESTION}\n", Exit(None, "lingered", 15), "You've hit your usage limit")
    assert seen.said_result, "the keeper knows that nothing more will come"
    assert isinstance(seen.fault, ConfigFault)
    assert [part for part in ("asks somebody to log in", "teach it your name") if part not in seen.fault.message] == []
    assert "https://" not in seen.fault.message, "who has the address can log in"
    assert [type(event) for event in seen.events] == [Ended, Unparsed]
    assert seen.turn.blame == THE_CONFIGURATION


@pytest.mark.parametrize("line", ["{" + QUESTION[2:], QUESTION[2:], "? warming up"])
def test_words_that_an_agent_says_are_no_question_for_a_login(line: str, tmp_path: Path) -> None:
    assert heard(tmp_path, f"{line}\n!done\n").ok
    assert isinstance(heard(tmp_path, f"{line}\n").fault, AgentFault)


def test_an_agent_that_goes_on_after_its_question_has_succeeded(tmp_path: Path) -> None:
    assert heard(tmp_path, f"{QUESTION}\n!done\n").ok


def test_a_reader_has_the_last_word(tmp_path: Path) -> None:
    assert heard(tmp_path, "a\n", Exit(None, "killed", 9)).events == [Said("a"), Said("bye")]


@pytest.mark.parametrize("said", ['{"error":{"type":"authentication_error"}}', '{"error":{"type":"invalid_api_key"}}'])
def test_without_a_result_what_it_printed_last_is_its_message(said: str, tmp_path: Path) -> None:
    assert isinstance(heard(tmp_path, f"a\n{said}\n", Exit(1)).fault, ConfigFault)
    assert heard(tmp_path, f"a\n{said}\n!done\n", Exit(0)).ok


@pytest.mark.parametrize("why", ["idle", "timeout"])
def test_a_turn_that_hung_on_a_login_is_the_configurations_fault(why: str, tmp_path: Path) -> None:
    login = "Please visit the following URL to authorize the application: https://login.example/device\n"
    assert isinstance(heard(tmp_path, "", Exit(None, why, 15), login).fault, ConfigFault)
    assert isinstance(heard(tmp_path, "", Exit(None, why, 15), "still compiling\n").fault, AgentFault)
