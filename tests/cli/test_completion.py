from __future__ import annotations

import shutil
import subprocess

import pytest

from ralphproof.cli.verbs import VERBS
from tests.needs import require
from tests.ralph import Ralph

SHELLS = {"bash": ["bash", "-n"], "zsh": ["zsh", "-n"], "fish": ["fish", "--no-execute"]}


@pytest.mark.parametrize("shell", SHELLS)
def test_the_shell_accepts_the_script(ralph: Ralph, shell: str) -> None:
    told = ralph("completion", shell)
    assert told.code == 0
    assert all(verb in told.out for verb in VERBS)
    require(shutil.which(shell) is not None, f"{shell}, to read its script")
    script = ralph.folder / "script"
    script.write_text(told.out, encoding="utf-8")
    read = subprocess.run([*SHELLS[shell], str(script)], capture_output=True, text=True)
    assert (read.returncode, read.stderr) == (0, "")


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["ru"], ["run", "runs"]),
        (["co"], ["config", "completion"]),
        (["--v"], ["--version"]),
        (["diff", "--s"], ["--stat"]),
        (["completion", ""], ["bash", "zsh", "fish"]),
        (["config", "s"], ["show", "schema"]),
        (["run", "--max-c"], ["--max-cost-usd"]),
        (["nonsense", "--s"], []),
    ],
    ids=lambda item: " ".join(item) if isinstance(item, list) else None,
)
def test_bash_completes(ralph: Ralph, words: list[str], offered: list[str]) -> None:
    require(shutil.which("bash") is not None, "bash")
    script = ralph("completion", "bash").out
    typed = " ".join(f"'{word}'" for word in ["ralph", *words])
    ask = f"COMP_WORDS=({typed}); COMP_CWORD={len(words)}; _ralph; printf '%s\\n' \"${{COMPREPLY[@]}}\""
    told = subprocess.run(["bash", "-c", f"{script}\n{ask}"], capture_output=True, text=True)
    assert told.stderr == ""
    found = [word for word in told.stdout.split() if not word.startswith("-") or words[-1].startswith("-")]
    assert found == offered


def test_the_script_for_programs(ralph: Ralph) -> None:
    told = ralph("completion", "zsh", "--json").json
    assert told["script"] == ralph("completion", "zsh").out
