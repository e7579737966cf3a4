"""The context of agent functions, and the traces of one that fails."""

from __future__ import annotations

import functools
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import ralphproof
from ralphproof.agents.function import AgentContext, AgentReply
from ralphproof.base.errors import Refused
from ralphproof.engine.agent import Event, Said
from ralphproof.engine.outcome import Aborted, Completed
from ralphproof.engine.records import Record, RunEnded, TurnEnded

DONE = "<promise>DONE</promise>"


class Method:
    def agent(self, prompt: str, context: AgentContext) -> str:
        return DONE if context.run else ""

    def __call__(self, prompt: str, *, context: AgentContext) -> str:
        return DONE if context.run else ""


def plain(prompt: str) -> str:
    return DONE


def optional(prompt: str, model: str = "small") -> str:
    return DONE if model == "small" else ""


def other_name(prompt: str, ctx: AgentContext) -> str:
    return DONE if ctx.run else ""


def unannotated(prompt, context=None):  # type: ignore[no-untyped-def]
    return DONE if context.run else ""


async def asynchronous(prompt: str, context: AgentContext) -> str:
    return DONE if context.run else ""


def more(model: str, prompt: str, context: AgentContext) -> str:
    return DONE if (model, bool(context.run)) == ("small", True) else ""


def own_context(prompt: str, context: str) -> str:
    return DONE if context == "mine" else ""


@pytest.mark.parametrize(
    "agent",
    [
        plain, optional, other_name, unannotated, asynchronous, Method().agent, Method(),
        functools.partial(more, "small"), functools.partial(own_context, context="mine"), lambda *args: DONE,
    ],
)  # fmt: skip
def test_an_agent_function_takes_the_context_by_its_signature(project: Path, agent: Callable[..., object]) -> None:
    outcome = ralphproof.run("Work.", agent=agent, project_dir=project, max_iterations=1)
    assert isinstance(outcome, Completed), outcome


def generator(prompt: str) -> Iterator[str]:
    yield DONE


@pytest.mark.parametrize(
    ("agent", "why"),
    [
        (lambda: DONE, r"agent must be a function of \(prompt\) or \(prompt, context\), and <lambda>\(\) is none"),
        (lambda context, prompt: DONE, "agent must be a function of"),
        (lambda prompt, context, more: DONE, "agent must be a function of"),
        (generator, "agent is a generator function, which does nothing when it is called"),
    ],
)
def test_a_function_that_cannot_be_called_as_an_agent_is_refused(
    project: Path, agent: Callable[..., object], why: str
) -> None:
    with pytest.raises(Refused, match=why):
        ralphproof.Loop("Work.", agent=agent, project_dir=project)


class Listener:
    """An observer that hears what is said while the function still runs."""

    def __init__(self) -> None:
        self.heard_it = threading.Event()
        self.seen: list[Record] = []

    def on_record(self, record: Record) -> None:
        self.seen.append(record)

    def on_events(self, events: list[Event]) -> None:
        if any(isinstance(event, Said) and "half way" in event.text for event in events):
            self.heard_it.set()

    def tick(self) -> None:
        pass


def test_the_context_has_the_turns_facts_and_its_events_arrive_at_once(project: Path) -> None:
    listener, contexts, live = Listener(), list[AgentContext](), list[bool]()

    def agent(prompt: str, context: AgentContext) -> None:
        contexts.append(context)
        context.say("half way\n")
        live.append(listener.heard_it.wait(20))
        context.say(DONE)

    outcome = ralphproof.run("Work.", agent=agent, observers=listener, project_dir=project, max_iterations=7)
    assert isinstance(outcome, Completed)
    (context,) = contexts
    runs = project / ".ralph" / "runs" / outcome.run
    assert (context.folder, context.run, context.run_dir) == (str(project), outcome.run, str(runs))
    assert (context.iteration, context.max_iterations, context.task_folder) == (1, 7, str(runs / "task"))
    assert live == [True]
    assert not context.cancelled()
    assert outcome.output == f"half way\n{DONE}"
    assert (runs / "agent_001.ndjson").read_text() == outcome.output
    with pytest.raises(AttributeError):
        context.run = "another"  # type: ignore[misc]


def test_exceptions_are_in_the_outcome_the_record_and_the_log(project: Path) -> None:
    listener = Listener()

    def agent(prompt: str) -> str:
        raise ValueError("out of ideas")

    outcome = ralphproof.run("Work.", agent=agent, observers=listener, project_dir=project, max_iterations=2)
    assert isinstance(outcome, Aborted)
    assert (outcome.reason, outcome.error) == ("MAX_ITERATIONS", "ValueError: out of ideas")
    assert outcome.details["error"] == "ValueError: out of ideas"
    turns = [record.reply.error for record in listener.seen if isinstance(record, TurnEnded)]
    ends = [record.outcome.error for record in listener.seen if isinstance(record, RunEnded)]
    assert (turns, ends) == (["ValueError: out of ideas"] * 2, ["ValueError: out of ideas"])
    log = (project / ".ralph" / "runs" / outcome.run / "agent_002.stderr.log").read_text()
    assert log.startswith("Traceback (most recent call last):\n")
    assert log.endswith("ValueError: out of ideas\n")
    assert __file__ in log
    assert "ralphproof/agents" not in log
    told = [sys.executable, "-m", "ralphproof", "logs", "-d", str(project), "--stderr", "--iteration", "2"]
    assert log in subprocess.run(told, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("error", [KeyboardInterrupt(), KeyboardInterrupt("enough")])
def test_a_keyboard_interrupt_in_a_function_ends_the_run_as_ctrl_c_does(
    project: Path, error: BaseException, capfd: pytest.CaptureFixture[str]
) -> None:
    def agent(prompt: str) -> str:
        raise error

    def run_root(attempt: int) -> None:
        raise error

    for outcome in (
        ralphproof.run("Work.", agent=agent, project_dir=project),
        ralphproof.supervise(run_root, project_dir=project),
    ):
        assert (outcome.reason, outcome.exit_code, outcome.iterations) == ("INTERRUPTED", 130, 1)
    assert "Traceback" not in capfd.readouterr().err


def by_post(context: AgentContext) -> None:
    context.post("wait", "for the review")


def by_program(context: AgentContext) -> None:
    post = [sys.executable, "-m", "ralphproof", "bus", "post", "--type", "wait", "for the review"]
    subprocess.run(post, env=context.env, check=True, capture_output=True)


@pytest.mark.parametrize("wait", [by_post, by_program])
def test_a_wait_request_on_the_message_bus_is_honoured(project: Path, wait: Callable[[AgentContext], None]) -> None:
    def run_root(context: AgentContext, attempt: int) -> None:
        wait(context)

    outcome = ralphproof.supervise(run_root, project_dir=project)
    assert isinstance(outcome, Aborted)
    assert (outcome.reason, outcome.details["message"], outcome.iterations) == ("WAITING", "for the review", 1)


def test_a_context_can_be_constructed_to_test_a_function(tmp_path: Path) -> None:
    context = AgentContext(str(tmp_path))
    context.say("nobody hears it")
    context.post("INFO", "nor reads it")
    assert (context.cancelled(), context.iteration, dict(context.env)) == (False, 1, {})


def test_secrets_in_output_and_exceptions_are_masked_in_the_log(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVICE_TOKEN", "ghs-hunter2hunter2hunter2")

    def agent(prompt: str, context: AgentContext) -> AgentReply:
        context.say("with ghs-hunter2hunter2hunter2")
        raise ValueError("ghs-hunter2hunter2hunter2")

    outcome = ralphproof.run("Work.", agent=agent, project_dir=project, max_iterations=1)
    runs = project / ".ralph" / "runs" / outcome.run
    logs = [path.read_text() for path in runs.iterdir() if path.name.startswith("agent_001.")]
    assert len(logs) == 2
    assert not [log for log in logs if "hunter2" in log]
