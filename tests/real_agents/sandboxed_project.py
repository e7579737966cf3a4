"""Real agents in a sandbox: a project with a user's own things around it, and what is tried from inside."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ralphproof.sandbox.runner import AUDIT_SUFFIX
from ralphproof.sandbox.selection import try_backends
from tests.agents.tls import certified
from tests.needs import require
from tests.ralph import Ralph
from tests.real_agents.conftest import Json, Real, says
from tests.real_agents.other_services import SOCKET, TCP, UDP

HOST, OTHER = "model.test", "other.test"
SECRET = "-----BEGIN OPENSSH PRIVATE KEY-----"
BESIDE = Path(__file__).with_name("other_services.py")
SENDS = f"""python3 -c '
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(2)
s.sendto(b"x", ("127.0.0.1", {UDP})); s.recv(9)'"""
# What nobody inside can do, and anybody outside can: each fails inside.
ATTEMPTS: Mapping[str, str] = {
    "another port": f"curl -sf -m 5 --noproxy '*' http://127.0.0.1:{TCP}/",
    "another port by the proxy": f"curl -sf -m 5 --noproxy '' http://127.0.0.1:{TCP}/",
    "another host": f"curl -sf -m 5 http://{OTHER}:{TCP}/",
    "another port of the model's host": f"curl -sf -m 5 http://{HOST}:{TCP}/",
    "another host by python": f"python3 -c 'import urllib.request as r; r.urlopen(\"http://{OTHER}:{TCP}/\")'",
    "another port by node": f"node -e 'fetch(\"http://127.0.0.1:{TCP}/\").catch(() => process.exit(1))'",
    "udp": SENDS,
    "docker.sock": f"curl -sf -m 5 --unix-socket {{folder}}/{SOCKET} http://localhost/",
    "a key": "cat {home}/.ssh/id_ed25519",
    "another session": "cat {home}/.claude/history.jsonl",
    "the records": "cat {folder}/state/registry.json",
    "a variable": "printenv DATABASE_URL",
    "a process": "kill -0 {pid}",
    "a protected file": "echo x >> kept/a.txt",
    "a protected folder": "mv kept elsewhere",
    "ralph's settings": "echo x >> .ralph/settings.json",
    "claude's settings": "mkdir -p .claude && echo '{{}}' > .claude/settings.json",
    "codex's settings": "mkdir -p .codex && echo > .codex/config.toml",
    "a hook": "echo x > .git/hooks/pre-commit",
    "git's settings": "git config core.fsmonitor ./x",
}
# What succeeds inside and yet has come to nothing outside.
VAIN: Mapping[str, str] = {"outside": "echo x > {folder}/made.txt", "at home": "echo x >> {home}/.bashrc"}
BLOCKED = [f"127.0.0.1:{TCP}", f"{OTHER}:{TCP}", f"{HOST}:{TCP}"]


@dataclass
class Boxed(Real):
    """A project in a place where a user has a key, a history and a login, and where something else listens.

    The agent asks for its model by a name, which leads there through the proxy alone.
    """

    def __post_init__(self) -> None:
        self.hosts = (HOST, OTHER)
        for program in ("curl", "node"):
            require(shutil.which(program) is not None, f"{program} is tried from inside")
        for name, text in {".ssh/id_ed25519": SECRET, ".claude/history.jsonl": '{"display": "hunter2"}\n'}.items():
            path = self.ralph.home / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
        self.env |= {"DATABASE_URL": "postgres://me:secret@db/"}
        self.ralph.settings(protectedPaths=["kept/"])
        self.ralph.write({"kept/a.txt": "kept\n", "attempts.sh": self.attempts()})
        super().__post_init__()

    def over_tls(self) -> None:
        """Let the model have a certificate that only the agent trusts, because the user says so."""
        require(shutil.which("openssl") is not None, "openssl makes a certificate")
        self.tls = self.ralph.folder / "tls"
        trusted = str(certified(HOST, self.tls))
        self.env |= {"NODE_EXTRA_CA_CERTS": trusted, "SSL_CERT_FILE": trusted}
        self.ralph.settings(protectedPaths=["kept/"], sandbox={"readPaths": [trusted]})

    def attempts(self) -> str:
        """A script that tries it all, and says of each attempt whether it succeeded."""
        known = {"folder": self.ralph.folder, "home": self.ralph.home, "pid": os.getpid()}
        return "".join(
            f'( {command.format(**known)} ) >/dev/null 2>&1 && echo "{name}: done" || echo "{name}: refused"\n'
            for name, command in {**ATTEMPTS, **VAIN}.items()
        )

    def outside(self) -> str:
        """What comes of the attempts without a sandbox."""
        argv = [*self._via([], {}), "sh", "attempts.sh"]
        done = subprocess.run(argv, cwd=self.ralph.root, env=self.ralph.env, capture_output=True, text=True, check=True)
        return done.stdout

    def audit(self, turn: str = "agent_001") -> list[Json]:
        """Who was called in a turn, and who could not be."""
        log = self.ralph.run_folder() / f"{turn}{AUDIT_SUFFIX}"
        return [json.loads(line) for line in log.read_text("utf-8").splitlines()]

    def states(self) -> Path:
        """Where the agent keeps its state for this project."""
        return Path(self.ralph.project.store, "agents", self.agent)

    def _via(self, turns: Sequence[Json], script: Mapping[str, Any]) -> list[str]:
        return [*super()._via(turns, script), sys.executable, "-I", str(BESIDE), str(self.ralph.folder)]


def holds(kind: str, ralph: Ralph) -> None:
    """Go on only where a sandbox of this kind holds."""
    lacks = [one.problem for one in try_backends(kind, ralph.env, str(ralph.root))]
    require(None in lacks, f"a sandbox of the kind {kind}: {lacks}")


def refused(shown: str) -> set[str]:
    """The attempts that failed, of those that an output tells of; all of them were made."""
    told = {name: shown.rpartition(f"{name}: ")[2].split()[0] for name in ATTEMPTS}
    assert set(told.values()) <= {"refused", "done"}, told
    return {name for name, how in told.items() if how == "refused"}


def edits(name: str, old: str, new: str) -> Json:
    """A turn: the model changes a file that it has read."""
    change = f"sed -i 's/{old}/{new}/' {name}"
    return says(f"I edit {name}.", calls=[{"read": name}, {"shell": change}])
