"""Runs that are sent as spans, by the program itself."""

from __future__ import annotations

import json
import os
import signal
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

from ralphproof.reports.otel import MISSING_OPENTELEMETRY, trace_id
from tests.cli.missing_packages import without
from tests.needs import require
from tests.ralph import Ended, Live, Ralph, Step, done, say, until, write
from tests.ralph import ralph as ralph
from tests.reports.otlp import CLIENT, ERROR, INTERNAL, OK, UNSET, Told, one, told, tree
from tests.reports.post import Server, serving

require(find_spec("opentelemetry") is not None, "opentelemetry")

CHECK = "sh check.sh"
CLAIM = say("<response>DONE</response> of hunter22hunter22")
RED: list[Step] = [
    {"cost": 0.02}, {"tokens": 700}, {"tool": {"name": "Bash", "summary": "cat secrets", "output": "an output"}},
    {"tool": {"name": "Edit", "ok": False}}, CLAIM,
]  # fmt: skip
GREEN: list[Step] = [{"cost": 0.01}, write(done="yes"), done()]
SLOW: list[Step] = [
    {"tool": {"name": "Bash"}}, write(**{"../working": ""}), {"until": "../go"}, {"cost": 0.02}, write(done="yes"),
    done(),
]  # fmt: skip


def prepared(ralph: Ralph, server: Server, *iterations: list[Step]) -> tuple[str, ...]:
    """What begins a run of this script that is sent to this receiver."""
    ralph.env["RALPH__OTEL"] = f"http://{server.address}"
    ralph.write({"check.sh": "test -f done"})
    ralph.commit()
    return ("run", "-p", "make it so, quietly", "--agent", ralph.script(*iterations), "--check", CHECK)


def at_work(ralph: Ralph, server: Server) -> Live:
    """A run that is sent to this receiver, in the middle of its first turn."""
    live = ralph.start(*prepared(ralph, server, SLOW))
    until((ralph.folder / "working").exists, "the agent is at work")
    return live


def of(spans: list[Told], iteration: int) -> list[Told]:
    return [span for span in spans if span.attributes.get("ralph.iteration") == iteration]


def test_a_red_iteration_and_a_green_one_are_told_as_a_tree(ralph: Ralph) -> None:
    with serving(200) as server:
        ended = ralph(*prepared(ralph, server, RED, GREEN))
    assert (ended.code, "otel" in ended.err) == (0, False), ended
    spans, run = told(server), ralph.runs()[0].id
    assert tree(spans) == [
        ("ralph.run", [
            ("ralph.iteration", [
                ("invoke_agent scripted", ["execute_tool Bash", "execute_tool Edit"]), "ralph.check sh check.sh",
            ]),
            "ralph.check sh check.sh",  # before the first turn
            ("ralph.iteration", ["invoke_agent scripted", "ralph.check sh check.sh"]),
        ]),
    ]  # fmt: skip
    assert {span.trace for span in spans} == {trace_id(run)}
    root = one(spans, "ralph.run")
    assert (root.kind, root.status, root.attributes) == (
        INTERNAL, OK, {
            "ralph.run.id": run, "ralph.session": 1, "ralph.project": "project", "ralph.preset": "harness",
            "ralph.agent": "scripted", "ralph.sandbox.name": "direct", "ralph.sandbox.strength": "none",
            "ralph.outcome": "COMPLETED", "ralph.exit_code": 0, "ralph.iterations": 2, "ralph.cost.usd": 0.03,
            "ralph.proof": "verified",
        },
    )  # fmt: skip
    assert all(root.start <= span.start <= span.end <= root.end for span in spans)


def test_what_each_span_tells(ralph: Ralph) -> None:
    with serving(200) as server:
        ralph(*prepared(ralph, server, RED, GREEN))
    spans = told(server)
    red, green = of(spans, 1), of(spans, 2)
    first, second = one(red, "ralph.iteration"), one(green, "ralph.iteration")
    named = {"ralph.stage": "work", "ralph.task.id": "task"}
    assert (first.status, first.attributes) == (UNSET, {"ralph.iteration": 1, "ralph.verdict": "retry", **named})
    assert (second.status, second.attributes) == (OK, {"ralph.iteration": 2, "ralph.verdict": "passed", **named})
    turn = one(red, "invoke_agent scripted")
    assert (turn.kind, turn.status, turn.attributes) == (
        CLIENT, UNSET, {
            "gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "scripted",
            "gen_ai.response.model": "script", "gen_ai.conversation.id": "scripted",
            "gen_ai.usage.input_tokens": 0, "gen_ai.usage.output_tokens": 700,
            "gen_ai.usage.cache_read.input_tokens": 0, "gen_ai.usage.cache_creation.input_tokens": 0,
            "ralph.iteration": 1, "ralph.turn": 1, "ralph.cost.usd": 0.02, "ralph.exit.why": "exit",
            "ralph.exit.code": 0, "ralph.tools": 2, "ralph.tools.failed": 1, "ralph.tools.denied": 0,
        },
    )  # fmt: skip
    edit = one(spans, "execute_tool Edit")
    assert (edit.kind, edit.status, edit.attributes) == (
        INTERNAL, ERROR, {
            "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "Edit", "gen_ai.tool.call.id": "1",
            "error.type": "tool",
        },
    )  # fmt: skip
    bad, good = one(red, "ralph.check sh check.sh"), one(green, "ralph.check sh check.sh")
    assert (bad.status, bad.attributes["error.type"], bad.attributes["ralph.exit.code"]) == (ERROR, "failed", 1)
    assert (good.status, good.attributes["ralph.check.passed"], good.attributes["ralph.exit.code"]) == (UNSET, True, 0)


def test_secrets_prompts_and_what_agents_say_and_do_stay_here(ralph: Ralph) -> None:
    ralph.env["MY_TOKEN"] = "hunter22hunter22"
    secret = {"tool": {"name": "mcp hunter22hunter22", "summary": "cat secrets", "output": "an output"}}
    with serving(200) as server:
        ralph(*prepared(ralph, server, [secret, *RED], GREEN), "--check", "true hunter22hunter22")
    assert one(told(server), "execute_tool mcp ***").attributes["gen_ai.tool.name"] == "mcp ***"
    check = one(told(server), "ralph.check true ***", lambda span: span.attributes["ralph.iteration"] == 2)
    assert check.attributes["ralph.check.name"] == "true ***"
    sent = b"".join(body for _, _, body in server.asked)
    for text in (b"hunter22", b"quietly", b"an output", b"cat secrets", b"DONE"):
        assert text not in sent, text


def test_a_cost_that_nobody_knows_is_not_told(ralph: Ralph) -> None:
    with serving(200) as server:
        ended = ralph(*prepared(ralph, server, [write(done="yes"), done()]))
    assert ended.code == 0, ended
    assert [name for span in told(server) for name in span.attributes if "cost" in name] == []


def test_a_run_that_lost_its_process_is_one_trace_under_one_root(ralph: Ralph) -> None:
    with serving(200) as server:
        live = at_work(ralph, server)
        until(lambda: server.asked, "what ended is sent")
        os.kill(live.process.pid, signal.SIGKILL)
        live.end()
        killed_at = time.time_ns()
        (ralph.folder / "go").touch()
        ended = ralph("run", "--resume")
    assert ended.code == 0, ended
    spans = told(server)
    assert tree(spans) == [
        ("ralph.run", [
            ("ralph.iteration", [("invoke_agent scripted", ["execute_tool Bash"]), "ralph.check sh check.sh"]),
            "ralph.check sh check.sh",
        ]),
    ]  # fmt: skip
    assert {span.trace for span in spans} == {trace_id(ralph.runs()[0].id)}
    root = one(spans, "ralph.run")
    assert (root.attributes["ralph.session"], root.links) == (2, [])
    begun = [root, one(spans, "ralph.iteration"), one(spans, "invoke_agent scripted")]
    assert all(span.start < killed_at < span.end for span in begun)


def test_a_run_that_goes_on_after_its_end_is_one_trace_with_a_root_for_each(ralph: Ralph) -> None:
    with serving(200) as server:
        first = ralph(*prepared(ralph, server, RED, GREEN), "-m", "1")
        again = ralph("run", "--resume", "-m", "3")
    assert (first.code, again.code) == (1, 0), again
    spans = told(server)
    stopped, completed = [span for span in spans if span.name == "ralph.run"]
    assert (stopped.status, stopped.attributes["error.type"]) == (ERROR, "MAX_ITERATIONS")
    assert (completed.status, completed.links, completed.parent) == (OK, [stopped.id], b"")
    assert [span.attributes["ralph.session"] for span in (stopped, completed)] == [1, 2]
    assert len({span.id for span in spans}) == len(spans)
    assert {span.trace for span in spans} == {trace_id(ralph.runs()[0].id)}
    assert one(of(spans, 2), "ralph.iteration").parent == completed.id


def test_a_receiver_that_hangs_delays_nothing_but_the_end_and_that_by_little(ralph: Ralph) -> None:
    with serving(0) as server:
        began = time.monotonic()
        ended = ralph(*prepared(ralph, server, RED, GREEN))
        took = time.monotonic() - began
    assert (ended.code, ralph.outcome()["status"]) == (0, "COMPLETED"), ended
    assert ralph.outcome()["durationSeconds"] < 6
    assert took < 3 + 6, "three seconds are the bound, ten the receiver's own; the machine may be slow"
    line = f"otel: http://{server.address}: 10 spans were not sent: no answer before the end"
    assert [one for one in ended.err.splitlines() if "otel" in one] == [line]


def test_a_receiver_that_refuses_is_told_in_one_line(ralph: Ralph) -> None:
    with serving() as server:
        pass
    ended = ralph(*prepared(ralph, server, RED, GREEN))
    assert (ended.code, ralph.outcome()["status"]) == (0, "COMPLETED"), ended
    line = f"otel: http://{server.address}: 10 spans were not sent: no connection"
    assert [one for one in ended.err.splitlines() if "otel" in one or "opentelemetry" in one.lower()] == [line]


@pytest.mark.parametrize("presses", [1, 2])
def test_somebody_in_a_hurry_does_not_wait_for_a_receiver_that_hangs(ralph: Ralph, presses: int) -> None:
    """Also: the thread that sends takes no signal away from the one that waits for it."""
    with serving(0) as server:
        live = at_work(ralph, server)
        until(lambda: server.asked, "spans are under way")
        began = time.monotonic()
        for _ in range(presses):
            live.process.send_signal(signal.SIGINT)
            until(lambda: "Received signal" in Path(live.err.name).read_text(), "it was heard")
        (ralph.folder / "go").touch()
        ended = live.end()
        took = time.monotonic() - began
    assert (ended.code, "otel" in ended.err) == (130, True), ended
    assert took < 2 + 5


def run_fresh(ralph: Ralph, *more: str, **env: str) -> Ended:
    """A run by an interpreter of its own, which tells at its end what of OpenTelemetry it has loaded."""
    folder = ralph.folder / "telling"
    folder.mkdir()
    at_exit = "print('LOADED', *sorted(name for name in sys.modules if name.startswith('opentelemetry')))"
    (folder / "sitecustomize.py").write_text(f"import atexit, sys\natexit.register(lambda: {at_exit})\n")
    ralph.write({"check.sh": "test -f done"})
    ralph.commit()
    path = {"PYTHONPATH": f"{folder}:{ralph.env['PYTHONPATH']}"}
    agent = ralph.script(GREEN)
    return ralph("run", "-p", "make it so", "--agent", agent, "--check", CHECK, *more, env=path | env)


def test_without_the_setting_nothing_is_sent_and_nothing_loaded_whatever_variables_say(ralph: Ralph) -> None:
    with serving(200) as server:
        address = f"http://{server.address}"
        ended = run_fresh(ralph, OTEL_EXPORTER_OTLP_ENDPOINT=address, OTEL_TRACES_EXPORTER="otlp")
    assert ended.code == 0, ended
    assert [line for line in ended.out.splitlines() if line.startswith("LOADED")] == ["LOADED"]
    assert server.asked == []


def test_with_the_setting_only_its_address_is_asked_and_the_run_sees_what_is_loaded(ralph: Ralph) -> None:
    with serving(200) as server, serving(200) as other:
        variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{other.address}", "OTEL_SDK_DISABLED": "true"}
        ended = run_fresh(ralph, RALPH__OTEL=f"http://{server.address}", **variables)
    assert ended.code == 0, ended
    assert "LOADED opentelemetry opentelemetry.proto " in ended.out
    assert (len(server.asked), other.asked) == (1, [])


def test_without_the_package_a_run_is_refused_and_doctor_says_what_to_install(ralph: Ralph) -> None:
    with serving(200) as server:
        words = prepared(ralph, server, GREEN)
        env = without(ralph, "opentelemetry.proto")  # other packages bring other parts of it
        ended = ralph(*words, env=env)
        assert (ended.code, ended.err) == (2, f"ralph: {MISSING_OPENTELEMETRY}\n")
        assert "pip install 'ralphproof[otel]'" in ended.err
        assert server.asked == []
    del ralph.env["RALPH__OTEL"]
    assert ralph(*words, env=env).code == 0
    told = next(line for line in ralph("doctor", env=env).out.splitlines() if "opentelemetry" in line)
    assert "not installed; spans of runs need it: pip install 'ralphproof[otel]'" in told
    there = next(line for line in ralph("doctor").out.splitlines() if "opentelemetry" in line)
    assert "installed, for spans of runs" in there


@pytest.mark.parametrize("layer", ["variable", "project", "user"])
def test_an_address_that_cannot_work_is_refused_from_every_layer(ralph: Ralph, layer: str) -> None:
    ralph.write({"check.sh": "true"})
    if layer == "variable":
        ralph.env["RALPH__OTEL"] = "localhost:4318"
    elif layer == "project":
        ralph.settings(otel="localhost:4318")
    else:
        (ralph.folder / "config").mkdir()
        (ralph.folder / "config" / "settings.json").write_text(json.dumps({"otel": "localhost:4318"}))
    ended = ralph("run", "-p", "x", "--agent", ralph.script(GREEN), "--check", CHECK)
    assert (ended.code, ended.err.count("otel is no http:// or https:// address")) == (2, 1), ended


def test_settings_are_shown_without_the_secrets_of_an_address(ralph: Ralph) -> None:
    ralph.settings(otel="https://me:hunter22@collector.example:4318/T0KEN/v1/traces?key=T0KEN")
    assert ralph("config", "show", "--json").json["settings"]["otel"] == "https://collector.example:4318/…"
    for words in (("config", "show"), ("config", "show", "--origin"), ("config", "show", "--json")):
        shown = ralph(*words).out
        assert "https://collector.example:4318/" in shown
        assert "hunter22" not in shown
        assert "T0KEN" not in shown


def test_the_secrets_of_an_address_are_in_no_record(ralph: Ralph) -> None:
    with serving(200) as server:
        words = prepared(ralph, server, [say("hunter22hunter"), *GREEN])
        del ralph.env["RALPH__OTEL"]
        (ralph.folder / "config").mkdir()
        own = {"otel": f"http://me:hunter22hunter@{server.address}"}
        (ralph.folder / "config" / "settings.json").write_text(json.dumps(own))
        assert ralph(*words).code == 0
        assert server.asked[0][1]["Authorization"].startswith("Basic ")
    files = [path for path in (*ralph.root.rglob("*"), *ralph.state_dir.rglob("*")) if path.is_file()]
    assert files
    assert [path for path in files if b"hunter22hunter" in path.read_bytes()] == []
