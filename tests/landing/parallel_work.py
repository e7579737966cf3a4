"""Tasks for `ralph work --parallel`, an agent that acts by the name of its task, and assertions on the target."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tests.misbehaviour.tasks import external, keep, skipped
from tests.ralph import Ended, Ralph

TARGET = "ralph/main"
# Fails where alpha and beta exist without peace, or a conflict marker is left.
VERIFY = """
test -f lib/alpha && test -f lib/beta && ! test -f lib/peace && { echo alpha and beta quarrel; exit 1; }
grep -q '^<<<<<<<' shared.txt && { echo a conflict is left; exit 1; }
test -f lib/base
"""
# Acts by its task's name: conflict* tasks write the same line, alpha and beta fail only together.
AGENT = r"""
prompt=$(cat)
echo "$RALPH_TASK" >> "$OUT/starts"
case $RALPH_TASK in
  conflict*) if grep -q '^<<<<<<<' shared.txt; then grep -v '^[<=>]' shared.txt > s; mv s shared.txt
             else echo "$RALPH_TASK" > shared.txt; fi;;
  alpha|beta) echo x > "lib/$RALPH_TASK"; case "$prompt" in *"together they fail"*) echo x > lib/peace;; esac;;
  stubborn) grep -q '^<<<<<<<' shared.txt || echo "$RALPH_TASK" > shared.txt
            while ! test -f "$OUT/go"; do sleep 0.05; done;;
  liar) ;;
  slow) echo x > lib/slow; touch "$OUT/working"; while ! test -f "$OUT/go"; do sleep 0.05; done;;
  needs*) test -f "lib/${RALPH_TASK#needs_}" || exit 1; echo x > "lib/$RALPH_TASK";;
  *) echo x > "lib/$RALPH_TASK";;
esac
echo "<promise>CODED</promise>"
"""


def create_project(ralph: Ralph) -> Ralph:
    """Write the project and the agent's script."""
    ralph.write({"verify.sh": VERIFY, "shared.txt": "base\n", "lib/base": "x"})
    ralph.commit()
    (ralph.folder / "agent.sh").write_text(AGENT, encoding="utf-8")
    ralph.env["OUT"] = str(ralph.folder)
    return ralph


def create_tasks(ralph: Ralph, *names: str, after: dict[str, tuple[str, ...]] | None = None, check: str = "") -> None:
    for name in names:
        keep(ralph, name, after=(after or {}).get(name, ()), coder=external(check or "sh verify.sh"))


def work_arguments(ralph: Ralph, *more: str) -> tuple[str, ...]:
    agent = f"sh {ralph.folder / 'agent.sh'}"
    return ("work", "--parallel", "4", "--agent", agent, "--check", "sh verify.sh", *skipped("coder"), *more)


def work(ralph: Ralph, *more: str) -> Ended:
    return ralph(*work_arguments(ralph, *more), timeout_s=120)


def landed_tasks(ralph: Ralph) -> list[str]:
    """The tasks that landed, oldest first; asserts that none landed twice."""
    output = ralph.git("log", "--first-parent", "--reverse", "--format=%(trailers:key=Ralph-Task,valueonly)", TARGET)
    found = output.split()
    assert len(set(found)) == len(found), "nothing lands twice"
    return found


def assert_every_commit_passes(ralph: Ralph, *revisions: str) -> None:
    """Run the check on every commit of the target, or on these, in a fresh clone."""
    clone = ralph.folder / "clone"
    shutil.rmtree(clone, ignore_errors=True)
    subprocess.run(["git", "clone", "-q", "-b", TARGET, str(ralph.root), str(clone)], check=True)
    output = ralph.git("log", "--first-parent", "--format=%H", TARGET).split() if not revisions else list(revisions)
    for commit in output:
        subprocess.run(["git", "checkout", "-q", commit], cwd=clone, check=True)
        assert subprocess.run(["sh", "verify.sh"], cwd=clone, check=False).returncode == 0, commit


def started_tasks(ralph: Ralph) -> list[str]:
    path = ralph.folder / "starts"
    return sorted(path.read_text(encoding="utf-8").split()) if path.exists() else []


def worktree_names(ralph: Ralph) -> list[str]:
    output = ralph.git("worktree", "list", "--porcelain").splitlines()
    return [Path(line.split(" ", 1)[1]).name for line in output if line.startswith("worktree ")][1:]


def landed_tasks_if_any(ralph: Ralph) -> list[str]:
    there = ralph.git("for-each-ref", f"refs/heads/{TARGET}").strip()  # git branch looks at work trees that come and go
    return landed_tasks(ralph) if there else []
