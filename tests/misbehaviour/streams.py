"""Programs with the names of agents that we know. They print hand-made streams, turn by turn; nothing else is made up.

    plays(ralph, "claude", Play(claude.done()), Play(claude.result("no"), code=1))

The last play repeats. A play may run a shell command first, and writes on standard error last.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ralphproof.engine.agent import Turn
from ralphproof.engine.records import TurnEnded
from tests.misbehaviour.agents import TAG
from tests.misbehaviour.invariants import hold
from tests.misbehaviour.machine import recorded
from tests.ralph import Ended, Ralph

Line = dict[str, Any] | str | bytes
UNGUARDED = ("amp", "pi")
MODEL = "claude-opus-4-5"
LONG = "exec sleep 60"  # what a program does that has said everything and does not leave

PROGRAM = """\
turn=$(ls {seen} | wc -l)
cat > {seen}/$(printf %03d "$turn")
[ -e {plays}/"$turn".sh ] || turn=$(($(ls {plays} | grep -c sh$) - 1))
. {plays}/"$turn".sh
"""


@dataclass(frozen=True)
class Play:
    """One turn: what the program does, prints and exits with. A line that is no object is printed as it is."""

    lines: Iterable[Line]
    code: int = 0
    does: str = ":"
    err: str = ""
    then: str = ":"  # what it does when it has printed everything
    end: bytes = b"\n"  # of the last line

    @property
    def out(self) -> bytes:
        return b"\n".join(_bytes(line) for line in self.lines) + self.end


def _bytes(line: Line) -> bytes:
    if isinstance(line, bytes):
        return line
    return (line if isinstance(line, str) else json.dumps(line)).encode("utf-8", "surrogatepass")


def plays(ralph: Ralph, agent: str, *turns: Play | Iterable[Line]) -> None:
    """Put a program of this name on PATH that takes these turns."""
    folder, seen = ralph.folder / f"plays-{agent}", ralph.folder / f"seen-{agent}"
    for path in (folder, seen):
        path.mkdir(exist_ok=True)
    for number, turn in enumerate(turns):
        play = turn if isinstance(turn, Play) else Play(turn)
        (folder / f"{number}.out").write_bytes(play.out)
        (folder / f"{number}.err").write_text(play.err, encoding="utf-8")
        (folder / f"{number}.sh").write_text(
            f"{play.does}\ncat {folder}/{number}.out\ncat {folder}/{number}.err >&2\n{play.then}\nexit {play.code}\n"
        )
    ralph.program(agent, PROGRAM.format(seen=shlex.quote(str(seen)), plays=shlex.quote(str(folder))))


def told(ralph: Ralph, agent: str = "claude") -> list[str]:
    """What the program was told, turn by turn."""
    return [path.read_text(encoding="utf-8") for path in sorted((ralph.folder / f"seen-{agent}").iterdir())]


def run(ralph: Ralph, agent: str, *flags: str, most: int = 1, check: str = "true") -> Ended:
    """A run of this agent with one check, after which everything holds that must."""
    guard = ("--no-sandbox",) if agent in UNGUARDED else ()
    ended = ralph("run", "-p", "make it so", "--agent", agent, "--check", check, "-m", str(most), *guard, *flags)
    hold(ralph, ended)
    return ended


def patient(ralph: Ralph, **settings: Any) -> None:
    """Settings with which no repetition ends a run."""
    ralph.settings(limits={"stallIterations": None, "sameErrorIterations": None}, **settings)


def replies(ralph: Ralph) -> list[Turn]:
    """What came of each turn of the latest run."""
    return [record.reply for record in recorded(ralph, TurnEnded)]


def log(ralph: Ralph, name: str = "agent_001.ndjson") -> bytes:
    """A log of the latest run."""
    path: Path = ralph.run_folder() / name
    return path.read_bytes()


# Claude Code, and those that speak as it does.


def init(**more: Any) -> Line:
    return {"type": "system", "subtype": "init", "session_id": "s-1", "model": MODEL, "apiKeySource": "x"} | more


def message(*blocks: dict[str, Any], id: str = "m-1", usage: Any = None, **more: Any) -> Line:
    """A line of a message of the model's."""
    told = {"id": id, "model": MODEL, "role": "assistant", "content": list(blocks)}
    return {"type": "assistant", "message": told | ({"usage": usage} if usage else {}), **more}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def call(name: str, id: str = "t-1", **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": name, "input": arguments}


def called(output: Any, id: str = "t-1", **more: Any) -> Line:
    """What a tool gave back."""
    block = {"type": "tool_result", "tool_use_id": id, "content": output, **more}
    return {"type": "user", "message": {"role": "user", "content": [block]}}


def says(words: str, id: str = "m-1") -> Line:
    return message(text(words), id=id)


def result(words: str, cost: Any = 0.01, **more: Any) -> Line:
    """The end of a turn, with an account of it; a cost that is text is printed as it is."""
    said = {"type": "result", "subtype": "success", "is_error": False, "result": words, "session_id": "s-1", **more}
    if not isinstance(cost, str):
        return said | {"total_cost_usd": cost}
    return json.dumps(said)[:-1] + f', "total_cost_usd": {cost}}}'


def done(words: str = TAG, cost: Any = 0.01, **more: Any) -> list[Line]:
    """A turn in which the agent says one thing."""
    return [init(), says(words), result(words, cost, **more)]


def refused(words: str, **more: Any) -> list[Line]:
    """A turn that came to nothing: what it says is the program's own, and calls itself a success."""
    synthetic = {"id": "m-0", "model": "<synthetic>", "content": [text(words)]}
    return [init(), {"type": "assistant", "message": synthetic}, result(words, 0, is_error=True, **more)]


# The others, as far as the cases need them.


def item(kind: str, id: str = "i-1", **more: Any) -> Line:
    """Something that Codex completed."""
    return {"type": "item.completed", "item": {"id": id, "type": kind, **more}}


def pi_message(role: str, *blocks: dict[str, Any]) -> Line:
    told = {"role": role, "content": list(blocks), "model": MODEL, "stopReason": "stop"}
    return {"type": "message_end", "message": told}


def part(kind: str, id: str = "p-1", **more: Any) -> Line:
    """Something of OpenCode's."""
    return {"type": kind, "sessionID": "s-1", "part": {"messageID": id, "type": kind.replace("_", "-"), **more}}


def step(*lines: Line, id: str = "p-1", reason: str = "stop") -> list[Line]:
    """A step of OpenCode's."""
    return [part("step_start", id), *lines, part("step_finish", id, reason=reason)]


def turn(agent: str, *before: Line, final: str = "working", after: Iterable[Line] = ()) -> list[Line]:
    """A turn of any agent whose final message is this one."""
    match agent:
        case "claude" | "amp" | "qwen":
            return [init(), *before, says(final, "m-9"), *after, result(final)]
        case "codex":
            begin: list[Line] = [{"type": "thread.started", "thread_id": "s-1"}, {"type": "turn.started"}]
            return [*begin, *before, item("agent_message", "i-9", text=final), *after, {"type": "turn.completed"}]
        case "gemini":
            said = {"type": "message", "role": "assistant", "content": final, "delta": True}
            end: Line = {"type": "result", "status": "success"}
            return [{"type": "init", "session_id": "s-1"}, *before, said, *after, end]
        case "opencode":
            return [*before, *step(part("text", "p-9", text=final), *after, id="p-9")]
        case "copilot":
            said = {"type": "assistant.message", "data": {"content": final}}
            return [*before, said, *after, {"type": "result", "exitCode": 0}]
        case "pi":
            last = pi_message("assistant", text(final))
            return [{"type": "session", "id": "s-1"}, *before, last, *after, {"type": "agent_end"}]
        case _:
            raise ValueError(agent)


def codex_failed(words: str) -> list[Line]:
    """A turn of Codex's that came to nothing."""
    return [*turn("codex")[:2], {"type": "turn.failed", "error": {"message": words}}]
