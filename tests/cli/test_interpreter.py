"""No interpreter of ours imports what lies in the project, whoever starts it and whatever the environment says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ralphproof.base import interpreter
from ralphproof.process.tree import list_processes
from tests.boxes import lay, needs
from tests.misbehaviour.crashing import kill
from tests.misbehaviour.machine import command_line
from tests.ralph import PROGRAM, SOURCE, Ended, Live, Ralph, Step, done, until

MODULES = ("json", "signal", "hashlib", "fcntl", "select", "__future__", "argparse", "sqlite3", "subprocess", "msgspec")
STARTED = ("sitecustomize", "usercustomize", "ralphproof")  # what Python itself imports before any code of ours
CHECK = ("--check", "test -f work")


def escaped(ralph: Ralph) -> str:
    """Which planted modules ran outside of the sandbox."""
    path = ralph.folder / "escaped"
    return path.read_text() if path.exists() else ""


def planted(ralph: Ralph, *names: str) -> dict[str, str]:
    """Files that tell when they are imported, where they can write outside of the project."""
    told = f"""
try:
    with open({str(ralph.folder / "escaped")!r}, "a") as file:
        file.write(__name__ + " ")
except OSError:
    pass
"""
    return {f"{name}.py": told for name in names} | {f"{name}/__init__.py": told for name in names}


def console(ralph: Ralph) -> tuple[str, ...]:
    """The program as an installer lays it out."""
    text = f"#!{sys.executable}\nimport re\nimport sys\nfrom ralphproof.__main__ import main\nsys.exit(main())\n"
    return (str(ralph.program("ralph", text)),)


def called(ralph: Ralph, program: tuple[str, ...], *words: str, env: dict[str, str] | None = None) -> Ended:
    argv = [*program, *words]
    ran = subprocess.run(argv, cwd=ralph.root, env=ralph.env | (env or {}), capture_output=True, text=True, timeout=60)
    return Ended(ran.returncode, ran.stdout, ran.stderr)


def started(ralph: Ralph, program: tuple[str, ...], *words: str) -> Live:
    out, err = ((ralph.folder / name).open("w+") for name in ("out", "err"))
    process = subprocess.Popen(
        [*program, *words], cwd=ralph.root, env=ralph.env, stdout=out, stderr=err, text=True, start_new_session=True
    )
    ralph.live.append(Live(process, out, err))
    return ralph.live[-1]


def begun(ralph: Ralph, module: str) -> bool:
    """Whether an interpreter of ours runs a module for this project."""
    lines = [command_line(pid) for pid in list_processes()]
    return any(module.encode() in line and bytes(ralph.root) in line for line in lines)


def test_nothing_that_an_agent_planted_runs_outside_of_its_sandbox(ralph: Ralph) -> None:
    needs("bubblewrap")
    lay(ralph)
    program, box = console(ralph), ("--sandbox=bubblewrap", *CHECK)
    files: Step = {"write": planted(ralph, *MODULES, *STARTED)}
    ralph.script([{"write": {"part": ""}}, done()], name="inner")
    (ralph.folder / "inner.json").rename(ralph.root / "inner.json")
    asked = [sys.executable, "-P", "-m", "ralphproof", "run", "-p", "x", "--agent", "scripted inner.json", "--detach"]

    # A child run that the agent asks for, and the run's own keepers, outer programs and checks.
    agent = ralph.script([files, {"run": [*asked, "--check", "test -f part"]}, {"write": {"work": ""}}, done()])
    ended = called(ralph, program, "run", "-p", "x", "--agent", agent, *box)
    assert (ended.code, escaped(ralph)) == (0, ""), ended
    assert sorted(row.parent == "" for row in ralph.runs()) == [False, True], "there is a child"
    assert (ralph.root / "part").exists()
    assert "json.py" in os.listdir(ralph.root)

    # A run of its own process, whose harness is killed: a stand-in follows, and it is taken up by another process.
    slow = ralph.script([{"write": {"at": ""}}, {"until": "go"}, done()], name="slow")
    ended = called(ralph, program, "run", "--detach", "-p", "x", "--agent", slow, *box)
    assert ended.code == 0, ended
    until((ralph.root / "at").exists, "the agent works")
    run = ralph.runs()[0]
    os.kill(run.pid, 9)
    until(lambda: begun(ralph, "ralphproof.runs.orphan_monitor"), "a stand-in follows the turn")
    ended = called(ralph, program, "run", "--resume", "--detach")
    assert ended.code == 0, ended
    (ralph.root / "go").touch()
    until(lambda: ralph.runs()[0].ended, "the run is over")
    assert escaped(ralph) == ""

    # Verification, a hook, and one that is killed while its check runs.
    assert called(ralph, program, "verify", run.id).code == 0
    assert called(ralph, program, "hook", "session-start").code == 0
    live = started(ralph, program, "run", "-p", "x", "--agent", slow, "--sandbox=bubblewrap", "--check", "sleep 60")
    until(lambda: any(b"sleep\x0060" in command_line(pid) for pid in list_processes()), "the check runs")
    kill(live)
    assert escaped(ralph) == ""


@pytest.mark.parametrize("path", ["", ".:", "{root}:", "{root}/lib:"], ids=["cwd", "dot", "project", "inside"])
def test_the_program_itself_imports_nothing_of_the_folder_that_it_is_called_in(ralph: Ralph, path: str) -> None:
    """By `python -m` Python has put that folder first; what it imports before our code cannot be helped."""
    ralph.commit()
    ralph.write(planted(ralph, *MODULES))
    ralph.write({f"lib/{name}": text for name, text in planted(ralph, *MODULES).items()})
    env = {"PYTHONPATH": path.format(root=ralph.root) + str(SOURCE)}
    ended = called(ralph, PROGRAM, "run", "-p", "x", "--agent", ralph.script([done()]), "--check", "true", env=env)
    assert (ended.code, escaped(ralph)) == (0, ""), ended


def own_environment(ralph: Ralph) -> Path:
    """The interpreter of an environment in the project, which has this program and the project's own source."""
    import sysconfig

    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(ralph.root / ".venv")], check=True)
    (site,) = (ralph.root / ".venv").glob("lib/python*/site-packages")
    folders = (SOURCE, ralph.root / "src", sysconfig.get_path("purelib"))
    (site / "installed.pth").write_text("".join(f"{folder}\n" for folder in folders))
    ralph.write({".gitignore": ".venv\n", "src/mine.py": ""})
    ralph.commit()
    return ralph.root / ".venv" / "bin" / "python"


def test_a_project_that_is_installed_beside_this_program_is_not_searched_by_it(ralph: Ralph) -> None:
    python = own_environment(ralph)
    ralph.write({f"src/{name}": text for name, text in planted(ralph, *MODULES, "ruamel").items()})
    ralph.write({"tasks.yaml": "tasks: 3\n"})
    root, file = str(ralph.root), str(ralph.root / "tasks.yaml")
    words = [str(python), "-P", "-m", "ralphproof", "task", "import", file, "--project-dir", root]
    for folder in (ralph.root / "src", ralph.folder):
        ran = subprocess.run(words, cwd=folder, env=ralph.env, capture_output=True, text=True)
        assert "tasks" in ran.stderr  # that the file is refused shows that it was read
        assert escaped(ralph) == ""


def test_an_agent_in_a_sandbox_cannot_change_this_program_where_it_is_installed_in_the_project(ralph: Ralph) -> None:
    needs("bubblewrap")
    python = own_environment(ralph)
    code = f"import os; open({str(ralph.folder / 'escaped')!r}, 'a').write('site')"
    write = f'echo "{code}" > $(echo .venv/lib/python*/site-packages)/own.pth; echo > .venv/bin/python; touch work'
    agent = ralph.script([{"run": ["sh", "-c", write]}, done()])
    program = (str(python), "-m", "ralphproof")
    ended = called(ralph, program, "run", "-p", "x", "--agent", agent, "--sandbox=bubblewrap", *CHECK)
    assert ended.code == 0, ended
    assert "ralph is installed in the project (.venv)" in ended.err
    assert (ralph.root / "work").exists()
    assert called(ralph, program, "status").code == 0
    assert escaped(ralph) == ""


def test_what_the_user_says_of_python_is_for_the_checks_and_not_for_us(ralph: Ralph) -> None:
    """The harness of a detached run is our interpreter: it obeys no variable, and hands all of them on."""
    ralph.commit()
    hostile = ralph.folder / "hostile"
    hostile.mkdir()
    for name, text in planted(ralph, *MODULES, *STARTED).items():
        (hostile / name).parent.mkdir(exist_ok=True)
        (hostile / name).write_text(text)
    seen = "sh -c 'echo $PYTHONPATH $PYTHONHOME $PYTHONOPTIMIZE $PYTHONINSPECT > seen'"
    env = ralph.env | {"PYTHONPATH": str(hostile), "PYTHONHOME": str(hostile), "PYTHONOPTIMIZE": "2"}
    env |= {"PYTHONINSPECT": "1", "PYTHONSTARTUP": str(hostile / "json.py"), "PYTHONBREAKPOINT": "json.x"}
    words = ("run", "-p", "x", "--agent", ralph.script([done()]), "--check", seen)
    ran = subprocess.run(
        interpreter.ralph_command(*words),
        cwd=ralph.root,
        env=env,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )
    assert (ran.returncode, escaped(ralph)) == (0, ""), ran
    assert (ralph.root / "seen").read_text().split() == [str(hostile), str(hostile), "2", "1"]


def test_our_own_interpreters_find_what_is_installed_wherever_that_is(tmp_path: Path) -> None:
    """In the user's own site, where `PYTHONPATH` says, and beside this package."""
    python = getattr(sys, "_base_executable", sys.executable)  # one that has a user site
    home, path, beside = (tmp_path / name for name in ("home", "path", "beside"))
    tell = "import site; print(site.getusersitepackages())"
    told = subprocess.run([python, "-c", tell], env={"HOME": str(home)}, capture_output=True, text=True, check=True)
    for number, folder in enumerate((Path(told.stdout.strip()), path, beside)):
        folder.mkdir(parents=True)
        (folder / f"dependency{number}.py").write_text("def main() -> None: print(__file__)\n")
        load = "import subprocess as s; from ralphproof.base.interpreter import module_command"
        start = f"{load}; s.run(module_command('dependency{number}'))"
        if folder == beside:
            (folder / "ralphproof").symlink_to(SOURCE / "ralphproof")
        env = {"HOME": str(home), "PYTHONPATH": f"{path}:{beside if folder == beside else SOURCE}"}
        ran = subprocess.run([python, "-c", start], env=env, cwd=home, capture_output=True, text=True)
        assert ran.stdout.strip() == str(folder / f"dependency{number}.py"), ran
