"""How long the hooks of agents take, against an interpreter that does nothing: python bench/hooks.py [--quick]"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from functools import partial

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from bench.measure import Cost, Place, arguments, interleaved, machine, row, show

FLOOR = "python -c pass"
FILES = 1000
STORIES = 20
TRANSCRIPT_LINES = 2000
GOAL = "<= 5 x"
RUN = "bench"


def story(number: int) -> dict[str, object]:
    return {
        "id": f"US-{number:03d}", "title": f"Story {number}", "description": "", "acceptanceCriteria": ["It works."],
        "priority": number, "passes": False, "reviewStatus": None, "reviewCount": 0, "reviewFeedback": "",
        "notes": "", "dependsOn": [],
    }  # fmt: skip


class Hooked:
    """A project in the middle of a turn on stories, with everything committed, and an agent's transcript."""

    def __init__(self, place: Place) -> None:
        self._env = place.env | {"RALPH_RUN_ID": RUN, "TMPDIR": place.folder}
        self.root = place.repository("hooked", FILES)
        stories = [story(number) for number in range(STORIES)]
        tasks = {"project": "p", "branchName": "b", "description": "d", "verifyCommands": [], "userStories": stories}
        fields = ("passes", "reviewStatus", "reviewCount")
        before = {str(one["id"]): {name: one[name] for name in fields} for one in stories}
        marker = {"pid": os.getpid(), "run": RUN, "iterationMode": "implement", "preIterationSnapshot": before}
        self._write("ralph/tasks.json", json.dumps(tasks, indent=2))
        self._write(".ralph-active", json.dumps(marker | {"pinned": tasks, "reviewCap": 5, "skipReview": False}))
        self._write(".gitignore", ".ralph-active\n")
        place.git(self.root, "add", "-A")
        place.git(self.root, "-c", "user.name=b", "-c", "user.email=b@localhost", "commit", "-q", "-m", "stories")
        self.transcript = os.path.join(place.folder, "transcript.jsonl")
        line = {"type": "assistant", "message": {"usage": {"input_tokens": 40_000}, "content": "x" * 500}}
        with open(self.transcript, "w", encoding="utf-8") as file:
            file.write((json.dumps(line) + "\n") * TRANSCRIPT_LINES)

    def _write(self, name: str, text: str) -> None:
        os.makedirs(os.path.dirname(os.path.join(self.root, name)), exist_ok=True)
        with open(os.path.join(self.root, name), "w", encoding="utf-8") as file:
            file.write(text)

    def event(self, name: str) -> bytes:
        common = {"session_id": "bench", "transcript_path": self.transcript, "cwd": self.root}
        return json.dumps({**common, "hook_event_name": name, "stop_hook_active": False}).encode()

    def cost(self, argv: list[str], stdin: bytes) -> Cost:
        """Of one hook, from its start to its end; one that refuses or complains is not measured."""
        began = time.perf_counter()
        process = subprocess.Popen(
            argv, cwd=self.root, env=self._env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(stdin)
        process.stdin.close()
        said = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        wall_s = time.perf_counter() - began
        process.stdout.close()
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode or said:
            raise SystemExit(f"{' '.join(argv)}: exit code {process.returncode}, {said.decode()[:300]}")
        return Cost(wall_s, usage.ru_utime + usage.ru_stime)


def main() -> None:
    args = arguments(__doc__ or "")
    with Place(args.python) as place:
        hooked = Hooked(place)
        modules = {"Stop": "stop", "PostToolUse": "post_tool_use", "SessionStart": "session_start"}
        jobs: dict[str, tuple[list[str], bytes]] = {FLOOR: ([place.python, "-c", "pass"], b"")}
        for event, module in modules.items():
            own = [place.python, "-I", "-m", f"ralphproof.hooks.{module}"]
            jobs[f"hooks.{module}"] = (own, hooked.event(event))
        for event, module in modules.items():
            verb = module.replace("_", "-")
            jobs[f"ralph hook {verb}"] = ([place.ralph, "hook", verb], hooked.event(event))
        status = ["git", "status", "--porcelain", "-z", "--untracked-files=all"]
        jobs["git status alone, which stop asks"] = (status, b"")
        costs = interleaved(7 if args.quick else 40, *[partial(hooked.cost, *job) for job in jobs.values()])
        rows = [
            row(name, costs[at], FLOOR, GOAL if name.startswith(("hooks.", "ralph")) else "")
            for at, name in enumerate(jobs)
        ]
        notes = (f"a turn on {STORIES} stories in a repository of {FILES} files; the goals are for wall time",)
        show("hooks", rows, machine(place.python), args.json, notes)


if __name__ == "__main__":
    main()
