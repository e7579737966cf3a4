"""Asks a program of the machine one question: it gets no terminal, and only so much time."""

from __future__ import annotations

from ralphproof.errand import Starting, over
from ralphproof.value import TYPE_CHECKING, value

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from subprocess import Popen

LONGEST_WORDS = 300


@value
class ToolAnswer:
    """What a program said. `code` is None where it could not be started or took too long; `trouble` says so."""

    code: int | None
    out: str = ""
    err: str = ""
    trouble: str = ""

    @property
    def good(self) -> bool:
        return self.code == 0

    @property
    def why(self) -> str:
        """Its last words, for people."""
        lines = (self.err.strip() or self.out.strip()).splitlines()
        return self.trouble or (lines[-1].strip()[:LONGEST_WORDS] if lines else f"exit code {self.code}")


def ask(
    argv: Sequence[str], *, said: bytes = b"", timeout_s: float, env: Mapping[str, str] | None = None
) -> ToolAnswer:
    """Run it to its end. One that takes too long is ended with all that it started."""
    import subprocess

    pipe = subprocess.PIPE
    try:
        with Starting() as note:
            child = subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, env=env, start_new_session=True)
            note(child.pid)
    except OSError as error:
        return ToolAnswer(None, trouble=f"cannot start {argv[0]}: {error.strerror}")
    try:
        out, err = child.communicate(said, timeout=timeout_s)
    except subprocess.TimeoutExpired:
        _end(child)
        return ToolAnswer(None, trouble=f"{' '.join(argv[:3])} did not answer within {timeout_s:g} s")
    finally:
        over(child.pid)
    return ToolAnswer(child.returncode, out.decode(errors="replace"), err.decode(errors="replace"))


def _end(child: Popen[bytes]) -> None:
    import os
    import signal

    os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    for pipe in (child.stdin, child.stdout, child.stderr):
        if pipe is not None:
            pipe.close()
