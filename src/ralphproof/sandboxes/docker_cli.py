"""The two programs of Docker's sandboxes, `sbx` and the older `docker sandbox`, as far as both are the same.

Nobody is there to answer a question: each call has a closed stdin and a limit of time.
"""

from __future__ import annotations

from ralphproof.sandboxes.box import Lack
from ralphproof.sandboxes.calling import ask
from ralphproof.value import TYPE_CHECKING, value

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from ralphproof.sandboxes.calling import ToolAnswer

SBX, DOCKER = "sbx", "docker"
ANSWER_S, WORK_S, CREATE_S = 30.0, 120.0, 900.0  # the first one of a kind loads an image
# Agents that have a template of their own; any other is put into a plain one.
TEMPLATES = ("claude", "codex", "copilot", "gemini", "kiro", "opencode")
SBX_TEMPLATES = (*TEMPLATES, "cursor", "droid")
PLAIN = "shell"
SBX_MEND = "run `sbx ls` in a terminal once: it asks for a login and for a network policy (sbx policy init balanced)"
DOCKER_MEND = "start Docker Desktop 4.58 or later and enable its sandboxes, or install sbx"


@value
class Lodged:
    """A sandbox that is there. `workspaces` are folders, some with `:ro`; None where the program does not say."""

    name: str
    workspaces: tuple[str, ...] | None


class DockerCli:
    """One of the two; `program` is its path, None: neither is installed."""

    def __init__(
        self, kind: str, program: str | None, environ: Mapping[str, str], answer_s: float | None = None
    ) -> None:
        self.kind, self._program, self._environ, self._answer_s = kind, program, environ, answer_s or ANSWER_S

    @property
    def begin(self) -> tuple[str, ...]:
        """What every call begins with."""
        return (self._program or self.kind, *(() if self.kind == SBX else ("sandbox",)))

    def call(self, *words: str, timeout_s: float | None = None) -> ToolAnswer:
        return ask((*self.begin, *words), timeout_s=timeout_s or self._answer_s, env=self._environ)

    def lacking(self) -> Lack | None:
        """Why it cannot be used, and how to mend that."""
        if not self._program:
            return Lack(
                "neither sbx nor docker is installed", "install Docker's sbx: https://docs.docker.com/ai/sandboxes/"
            )
        version, mend = self.call("version"), SBX_MEND if self.kind == SBX else DOCKER_MEND
        # A docker without sandboxes prints how it is used; some versions of it then end with 0.
        if not version.good or "Usage:" in version.out + version.err or not any(map(str.isdigit, version.out)):
            return Lack(f"{' '.join((self.kind, *self.begin[1:]))} does not answer ({version.why})", mend)
        found = self.sandboxes()
        return Lack(found, mend) if isinstance(found, str) else None

    def identity(self) -> str:
        """Tells this program from others that may come to be in its place; empty where there is none."""
        import os

        try:
            path = os.path.realpath(self._program or "")
            state = os.stat(path)
        except OSError:
            return ""
        version = " ".join(self.call("version").out.split())
        return f"{path} {state.st_size} {state.st_mtime_ns} {version}"

    def template(self, agent: str) -> str:
        """What a sandbox for this agent is made from."""
        return agent if agent in (SBX_TEMPLATES if self.kind == SBX else TEMPLATES) else PLAIN

    def sandboxes(self) -> tuple[Lodged, ...] | str:
        """All that are there, or why they cannot be told."""
        answer = self.call("ls", "--json")
        told = _json(answer.out) if answer.good else None
        listed = told.get("vms", told.get("sandboxes")) if isinstance(told, dict) else told
        if not isinstance(listed, list):
            return f"the sandboxes cannot be listed ({answer.why if not answer.good else 'the answer is no list'})"
        return tuple(_lodged(one) for one in listed if isinstance(one, dict))

    def create(self, name: str, template: str, workspaces: Iterable[str]) -> str:
        """Make one; why that failed, if it did."""
        made = self.call("create", "--name", name, template, *workspaces, timeout_s=CREATE_S)
        return "" if made.good else f"the sandbox cannot be made: {made.why}"

    def remove(self, name: str) -> str:
        gone = self.call("rm", *(("--force",) if self.kind == SBX else ()), name, timeout_s=WORK_S)
        return "" if gone.good else f"the sandbox cannot be removed: {gone.why}"

    def stop(self, name: str) -> str:
        """Stop it; the next command in it starts it again, with the files as they are outside."""
        stopped = self.call("stop", name, timeout_s=WORK_S)
        return "" if stopped.good else f"the sandbox cannot be stopped: {stopped.why}"

    def inside(self, name: str, *argv: str, root: bool = False) -> str:
        """Run a small program in it, by root or by the agent's user; why that failed, if it did."""
        done = self.call("exec", *(("-u", "root") if root else ()), name, *argv, timeout_s=WORK_S)
        return "" if done.good else f"{argv[0]} failed in the sandbox: {done.why}"

    def allow(self, name: str, hosts: Iterable[str], dropped: Iterable[str]) -> str:
        """Let it reach these hosts and nothing else; `dropped` are those that it might reach before."""
        words = [word for host in hosts for word in ("--allow-host", host)]
        words += [word for host in dropped for word in ("--block-host", host)]
        done = self.call("network", "proxy", name, "--policy", "deny", *words, timeout_s=WORK_S)
        return "" if done.good else f"the network policy cannot be set: {done.why}"

    def policy(self) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
        """What sbx lets every sandbox of the machine reach, and what not; None where it does not say."""
        answer = self.call("policy", "ls", "--json")
        told = _json(answer.out) if answer.good else None
        rules = told.get("rules") if isinstance(told, dict) else None
        if not isinstance(rules, list):
            return None
        network = [one for one in rules if isinstance(one, dict) and one.get("resource_type", "network") == "network"]
        allowed, denied = (
            tuple(str(host) for one in network if one.get("decision") == said for host in one.get("resources") or ())
            for said in ("allow", "deny")
        )
        return allowed, denied


def _lodged(told: dict[str, Any]) -> Lodged:
    found = told.get("workspaces")
    return Lodged(str(told.get("name", "")), tuple(map(str, found)) if isinstance(found, list) else None)


def _json(text: str) -> Any:
    """The JSON in an answer; a service that had to be started first may have said so before it."""
    import json

    lines = text.splitlines()
    first = next((place for place, line in enumerate(lines) if line.lstrip().startswith(("{", "["))), len(lines))
    try:
        return json.loads("\n".join(lines[first:]))
    except ValueError:
        return None
