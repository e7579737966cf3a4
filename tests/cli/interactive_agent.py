"""A scripted agent that asks questions at its terminal: `python3 interactive_agent.py SCRIPT PROMPT_FILE`.

The script is a JSON list, one object a session; the last one repeats. What an object may have, in the order in which
it is done: `raw` (let the terminal echo nothing), `ask` (questions), `leave` (start a process that stays so many
seconds), `write` (files and their text), `ready` (a word to say), `then` (more questions), `until` (wait for a file),
`signal` (what to send to itself), `exit` (a code). Beside the script each session leaves its `prompt-N`, who has
started it in `parent`, and the answers in `answers`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import termios
import time
from pathlib import Path


def ask(questions: list[str], answers: Path) -> None:
    for question in questions:
        print(f"{question}? ", end="", flush=True)
        answer = sys.stdin.readline()
        with answers.open("a", encoding="utf-8") as file:
            file.write(answer)


def main(script: Path, prompt: Path) -> int:
    number = len(list(script.parent.glob("prompt-*"))) + 1
    sessions = json.loads(script.read_text("utf-8"))
    session = sessions[min(number, len(sessions)) - 1]
    (script.parent / "parent").write_text(str(os.getppid()), "utf-8")
    (script.parent / f"prompt-{number}").write_text(prompt.read_text("utf-8"), "utf-8")
    if session.get("raw"):
        modes = termios.tcgetattr(0)
        modes[3] &= ~(termios.ECHO | termios.ICANON)
        termios.tcsetattr(0, termios.TCSANOW, modes)
    ask(session.get("ask", ()), script.parent / "answers")
    if "leave" in session:
        subprocess.Popen(["sleep", str(session["leave"])], start_new_session=True)
    for name, text in session.get("write", {}).items():
        Path(name).write_text(text, "utf-8")
    if "ready" in session:
        print(session["ready"], flush=True)
    ask(session.get("then", ()), script.parent / "answers")
    while "until" in session and not os.path.exists(script.parent / session["until"]):
        time.sleep(0.01)
    if "signal" in session:
        os.kill(os.getpid(), session["signal"])
    return int(session.get("exit", 0))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
