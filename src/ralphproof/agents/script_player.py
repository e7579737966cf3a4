"""Player of one iteration of a script: `python -I -S script_player.py SCRIPT [--plain]`, the prompt on standard input.

A step is an object with one of these keys:
  text, stderr, raw     print something: as the agent's message, on stderr, or as these bytes (latin-1) as they are
  write, append         {path: content}; folders are made
  replace               {path: [old, new]}
  delete, symlink       [path, ...]; {path: target}
  chmod                 {path: "755"}
  git, run              arguments of git; a whole argument list. A failure ends the turn with exit code 1
  spawn                 {"argv": [...], "setsid": true, "double_fork": true, "clean_env": true, "quiet": true}:
                        started, not waited for
  sleep, until          seconds; a path to wait for
  ignore                ["TERM", ...]: these signals
  echo_prompt, record   print the prompt; write argv, prompt, environment names and cwd to this path as JSON
  cost, tokens          what the turn has cost so far, in dollars; how many tokens
  limited               {"message": ..., "in_s": seconds}: the service refuses
  tool                  {"name", "summary", "output", "ok"}
  error                 end with this error, reported by the agent
  linger                report the result and exit so many seconds later
  signal, exit          die by this signal; exit with this code
  judge                 answer a judge's question: "yes" or "no" for every criterion, or [true, false, ...] for each;
                        "fenced" (yes, in a code fence); or badly: "echo", "prose", "nonce" (another one), "fewer"
                        (a criterion is missing), "invented" (a quotation that is not in the work)
With --plain, text is printed as it is, without events, as an ordinary program would.
"""

from __future__ import annotations

import os
import sys
import time

STEPS = (
    "text", "stderr", "raw", "write", "append", "replace", "delete", "symlink", "chmod", "git", "run", "spawn",
    "sleep", "until", "ignore", "echo_prompt", "record", "cost", "tokens", "limited", "tool", "error", "linger",
    "signal", "exit", "judge",
)  # fmt: skip


class Player:
    """The steps of one turn, each a method `do_NAME`, and what was said and spent so far."""

    def __init__(self, plain: bool, prompt: str) -> None:
        self.plain, self.prompt = plain, prompt
        self.said = ""
        self.micro_usd: int | None = None
        self.tokens = 0

    def emit(self, kind: str, **fields: object) -> None:
        if not self.plain:
            self._put(dump_json({"is": kind, **fields}) + "\n")

    def _put(self, text: str) -> None:
        sys.stdout.buffer.write(text.encode("utf-8", "surrogateescape"))
        sys.stdout.buffer.flush()

    def play(self, steps: list[dict[str, object]]) -> None:
        self.emit("Started", session="scripted", model="script")
        for step in steps:
            ((name, argument),) = step.items()
            if name not in STEPS:
                sys.exit(f"script: unknown step {name!r}; known: {', '.join(STEPS)}")
            getattr(self, "do_" + name)(argument)
        self.emit("Ended", ok=True, text=self.said)

    def do_text(self, text: str) -> None:
        self.said = text
        self.emit("Said", text=text)
        if self.plain:
            self._put(text + "\n")

    def do_stderr(self, text: str) -> None:
        sys.stderr.write(text + "\n")
        sys.stderr.flush()

    def do_raw(self, text: str) -> None:
        sys.stdout.buffer.write(text.encode("latin-1"))
        sys.stdout.buffer.flush()

    def do_write(self, files: dict[str, str], mode: str = "w") -> None:
        for path, content in files.items():
            os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
            with open(path, mode, encoding="utf-8", newline="") as file:
                file.write(content)

    def do_append(self, files: dict[str, str]) -> None:
        self.do_write(files, "a")

    def do_replace(self, files: dict[str, list[str]]) -> None:
        for path, (old, new) in files.items():
            with open(path, encoding="utf-8", newline="") as file:
                text = file.read()
            self.do_write({path: text.replace(old, new)})

    def do_delete(self, paths: list[str]) -> None:
        for path in paths:
            os.unlink(path)

    def do_symlink(self, links: dict[str, str]) -> None:
        for path, target in links.items():
            os.symlink(target, path)

    def do_chmod(self, modes: dict[str, str]) -> None:
        for path, mode in modes.items():
            os.chmod(path, int(mode, 8))

    def do_git(self, arguments: list[str]) -> None:
        self.do_run(["git", *arguments])

    def do_run(self, argv: list[str]) -> None:
        status = os.waitpid(os.spawnvp(os.P_NOWAIT, argv[0], argv), 0)[1]
        if os.waitstatus_to_exitcode(status):
            sys.exit(1)

    def do_spawn(self, options: dict[str, object]) -> None:
        argv = options["argv"]
        assert isinstance(argv, list)
        if os.fork():
            return
        if options.get("setsid"):
            os.setsid()
        if options.get("double_fork") and os.fork():
            os._exit(0)
        if options.get("quiet"):
            for fd in (0, 1, 2):
                os.dup2(os.open(os.devnull, os.O_RDWR), fd)
        os.execvpe(argv[0], argv, {"PATH": os.environ["PATH"]} if options.get("clean_env") else dict(os.environ))

    def do_sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def do_until(self, path: str) -> None:
        while not os.path.exists(path):
            time.sleep(0.01)

    def do_ignore(self, names: list[str]) -> None:
        import signal

        for name in names:
            signal.signal(getattr(signal, "SIG" + name), signal.SIG_IGN)

    def do_echo_prompt(self, _: object) -> None:
        self.do_text(self.prompt)

    def do_record(self, path: str) -> None:
        start = {"argv": sys.argv, "prompt": self.prompt, "env": sorted(os.environ), "cwd": os.getcwd()}
        self.do_write({path: dump_json(start) + "\n"}, "a")

    def do_cost(self, dollars: float) -> None:
        self.micro_usd = round(dollars * 1_000_000)
        self._spent()

    def do_tokens(self, count: int) -> None:
        self.tokens = count
        self._spent()

    def _spent(self) -> None:
        self.emit("Spent", micro_usd=self.micro_usd, usage={"is": "Usage", "output": self.tokens})

    def do_limited(self, limit: dict[str, object]) -> None:
        seconds = limit.get("in_s")
        resets_at = time.time() + seconds if isinstance(seconds, int | float) else None
        self.emit("Limited", message=limit["message"], resets_at=resets_at)

    def do_tool(self, call: dict[str, object]) -> None:
        self.emit("ToolStarted", id="1", name=call["name"], summary=call.get("summary", ""))
        self.emit("ToolEnded", id="1", ok=call.get("ok", True), output=call.get("output", ""))

    def do_error(self, message: str) -> None:
        self.emit("Ended", ok=False, error=message)
        sys.exit(1)

    def do_linger(self, seconds: float) -> None:
        self.emit("Ended", ok=True, text=self.said)
        time.sleep(seconds)

    def do_signal(self, number: int) -> None:
        os.kill(os.getpid(), number)

    def do_exit(self, code: int) -> None:
        sys.exit(code)

    def do_judge(self, how: object) -> None:
        nonce, count, quote = parse_judge_prompt(self.prompt)
        met = how if isinstance(how, list) else [how != "no"] * (count - (how == "fewer"))
        evidence = "a line that is nowhere in the work" if how == "invented" else quote
        rulings = [
            {"number": number, "met": yes, "evidence": evidence if yes else "", "reason": "the script says so"}
            for number, yes in enumerate(met, 1)
        ]
        answer = dump_json({"nonce": nonce[::-1] + "0" if how == "nonce" else nonce, "criteria": rulings})
        said = {
            "echo": self.prompt, "prose": f"VERIFIED: all criteria met. {answer}", "fenced": f"```json\n{answer}\n```"
        }  # fmt: skip
        self.do_text(said.get(str(how), answer))


def parse_judge_prompt(prompt: str) -> tuple[str, int, str]:
    """A judge's question: its nonce, its number of criteria, and a line of the work that can be quoted."""
    import re

    found = re.search(r"(?m)^The nonce of this call is (\S+)\.$", prompt)
    nonce = found[1] if found else ""
    count = len(re.findall(rf"(?m)^===== BEGIN CRITERION \d+ {nonce} =====$", prompt))
    diff = prompt.partition(f"===== BEGIN DIFF {nonce} =====")[2].partition(f"===== END DIFF {nonce} =====")[0]
    added = [line[1:].strip() for line in diff.split("\n") if line.startswith("+") and not line.startswith("+++")]
    return nonce, count, max(added, key=len, default="")


def select_steps(script: dict[str, object], prompt: str) -> list[dict[str, object]]:
    """The steps of this turn: of its iteration, of the commit message, or of the judge's answer."""
    if prompt.startswith("You judge finished work by criteria"):
        if "answer" not in script:
            sys.exit('script: it is asked as a judge, and has no "answer"')
        return script["answer"]  # type: ignore[return-value]
    if prompt.startswith("Provide a short imperative commit message"):
        return script.get("message", [{"text": "Apply the scripted change"}])  # type: ignore[return-value]
    iterations = script["iterations"]
    assert isinstance(iterations, list)
    number = int(os.environ.get("RALPH_ITERATION", "1"))
    return iterations[min(number, len(iterations)) - 1]  # type: ignore[no-any-return]


# JSON by the C functions of `json` alone: importing the whole package takes longer than most turns.


class _ScannerOptions:
    """The attributes that the C scanner reads."""

    strict = True
    object_hook = object_pairs_hook = None
    parse_float, parse_int, parse_constant = float, int, float


def parse_json(text: str) -> dict[str, object]:
    """As `json.loads`."""
    space = " \t\n\r"
    try:
        from _json import make_scanner

        scan = make_scanner(_ScannerOptions)  # type: ignore[arg-type]
        found, end = scan(text, len(text) - len(text.lstrip(space)))
        if not text[end:].strip(space):
            return found  # type: ignore[no-any-return]
    except (ImportError, StopIteration):
        pass
    import json

    return json.loads(text)  # type: ignore[no-any-return] # raises an error with a message


def dump_json(value: object) -> str:
    """As `json.dumps`."""
    try:
        from _json import encode_basestring_ascii, make_encoder
    except ImportError:
        import json

        return json.dumps(value)
    encode = make_encoder(None, None, encode_basestring_ascii, None, ": ", ", ", False, False, True)  # type: ignore[arg-type]
    return "".join(encode(value, 0))


def main() -> None:
    with open(sys.argv[1], encoding="utf-8") as file:
        script = parse_json(file.read())
    prompt = sys.stdin.buffer.read().decode("utf-8", "surrogateescape")
    Player("--plain" in sys.argv[2:], prompt).play(select_steps(script, prompt))


if __name__ == "__main__":
    main()
