"""A model's own service as an agent: asked in a process of its own, and nobody else is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from ralphproof.agents.cost import PriceList
from ralphproof.agents.provider import ProviderAgent
from ralphproof.base.errors import AgentUnusable
from ralphproof.checks.judge import answer_schema
from ralphproof.engine.agent import THE_CONFIGURATION, THE_SERVICE, Turn, Usage
from ralphproof.process.keeper_client import KeeperClient
from ralphproof.sandbox.runner import DirectRunner
from tests.agents.model_server import ModelServer, shown
from tests.agents.replay import Looker, brief_in
from tests.needs import require

SOURCE = str(Path(__file__).resolve().parents[2] / "src")
HAIKU, MINI = "anthropic:claude-haiku-4-5", "openai:gpt-5-mini"
ANSWER = {"nonce": "x", "criteria": [{"number": 1, "met": True, "evidence": "e", "reason": "r"}]}
ANSWERS = {"calls": [{"tool": "final_result", "input": ANSWER}]}

Ask = Callable[..., tuple[Turn, ModelServer]]


@pytest.fixture
def ask(tmp_path: Path) -> Iterator[Ask]:
    """Ask a model on loopback, which plays this script."""
    require(find_spec("pydantic_ai") is not None, "pydantic-ai is not installed")
    keeper = KeeperClient()

    def asked(model: str, *turns: Mapping[str, Any], **more: Any) -> tuple[Turn, ModelServer]:
        with ModelServer({"turns": list(turns), "aux": "plain words"}) as server:
            env = {
                "PATH": os.environ["PATH"], "HOME": str(tmp_path), "ANTHROPIC_API_KEY": "dummy",
                "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{server.port}", "OPENAI_API_KEY": "dummy",
                "OPENAI_BASE_URL": f"http://127.0.0.1:{server.port}/v1", **more.pop("env", {}),
            }  # fmt: skip
            fields = {"env": tuple(env.items()), "schema": answer_schema(1), "call_id": os.urandom(8).hex(), **more}
            agent = ProviderAgent(model, PriceList().cost)
            return agent.take_turn(brief_in(tmp_path, **fields), DirectRunner(keeper), Looker()), server

    yield asked
    keeper.close()


@pytest.mark.thorough  # to load what it needs takes seconds
def test_a_service_is_asked_once_and_without_tools_of_its_own(ask: Ask) -> None:
    turn, server = ask(HAIKU, ANSWERS)
    assert not turn.errored, turn
    assert json.loads(turn.text) == ANSWER
    assert turn.usage == Usage(1000, 50, 800, 10)
    assert turn.micro_usd == PriceList().cost("claude-haiku-4-5", Usage(1000, 50, 800, 10))
    assert (turn.model, turn.tools) == ("claude-haiku-4-5", 0)
    (request,) = server.requests
    assert request["path"] == "/v1/messages"
    assert "make it so" in shown(request)
    (tool,) = request["body"]["tools"]
    assert tool["name"] == "final_result"
    assert tool["input_schema"]["required"] == ["nonce", "criteria"]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("model", "turns", "more", "text", "blame"),
    [
        (MINI, [ANSWERS], {}, json.dumps(ANSWER), ""),
        ("openai-chat:gpt-5-mini", [ANSWERS], {}, json.dumps(ANSWER), ""),
        (HAIKU, [], {"schema": ""}, "plain words", ""),
        (HAIKU, [{"text": "prose"}, ANSWERS], {}, json.dumps(ANSWER), ""),
        (HAIKU, [{"text": "prose", "times": -1}], {}, None, ""),
        (HAIKU, [{"status": 401, "times": -1}], {}, None, THE_CONFIGURATION),
        (HAIKU, [{"status": 404, "times": -1}], {}, None, THE_CONFIGURATION),
        (HAIKU, [{"status": 500, "times": -1}], {}, None, THE_SERVICE),
        (HAIKU, [{"status": 429, "times": -1}], {}, None, THE_SERVICE),
        ("nosuch:model", [], {}, None, THE_CONFIGURATION),
        (MINI, [], {"env": {"OPENAI_API_KEY": ""}}, None, ""),
    ],
)
def test_what_comes_of_a_call(
    ask: Ask, model: str, turns: list[dict[str, Any]], more: dict[str, Any], text: str | None, blame: str
) -> None:
    turn, server = ask(model, *turns, **more)
    assert turn.errored is (text is None), turn
    assert turn.text == (text or "")
    assert turn.blame == blame
    assert bool(turn.error) is (text is None)
    assert "Traceback" not in str(turn.error)
    assert len(server.requests) <= 4
    if turn.usage is not None and turn.usage.total:
        assert turn.micro_usd


@pytest.mark.thorough
def test_a_service_that_does_not_answer_is_given_up(ask: Ask, tmp_path: Path) -> None:
    turn, _ = ask(HAIKU, {"hold": str(tmp_path / "never"), "times": -1}, timeout_s=3.0)
    assert (turn.exit.why, turn.errored) == ("timeout", True)


@pytest.mark.parametrize("model", ["", "haiku", ":x", "anthropic:", "-P:x"])
def test_a_model_is_named_with_its_service(model: str) -> None:
    with pytest.raises(AgentUnusable, match="SERVICE:MODEL"):
        ProviderAgent(model)


def test_without_the_package_it_says_what_to_install() -> None:
    code = (
        f"import sys; sys.path.insert(0, {SOURCE!r})\n"
        "from ralphproof.agents.provider import ProviderAgent\n"
        "from ralphproof.base.errors import AgentUnusable\n"
        f"try: ProviderAgent({HAIKU!r})\n"
        "except AgentUnusable as error: print(error)"
    )
    ran = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == f"model {HAIKU}: to ask a service directly needs pydantic-ai: pip install 'ralphproof[llm]'\n"


def test_a_limit_on_cost_can_be_held_where_the_model_has_a_price() -> None:
    require(find_spec("pydantic_ai") is not None, "pydantic-ai is not installed")
    assert ProviderAgent(HAIKU, PriceList().cost).reports_cost
    assert not ProviderAgent("anthropic:nobody-knows", PriceList().cost).reports_cost
    assert not ProviderAgent(HAIKU).reports_cost
