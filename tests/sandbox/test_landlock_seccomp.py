"""The fence: what is refused behind it, that the same succeeds without it, and that ordinary work goes on."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from ralphproof.sandbox import landlock_seccomp
from tests.needs import require
from tests.sandbox import attempts
from tests.sandbox.fenced import ENTER, OURSELVES, SOURCE, Person, Place, place, stranger


def has_landlock() -> bool:
    try:
        return landlock_seccomp.landlock_abi() >= 6
    except OSError:
        return False


@pytest.fixture(autouse=True, scope="module")
def landlock() -> None:
    require(has_landlock(), "a kernel with Landlock, ABI 6 or newer")


@pytest.fixture(scope="module", params=["ourselves", "stranger"])
def person(request: pytest.FixtureRequest) -> Person:
    return OURSELVES if request.param == "ourselves" else stranger()


@pytest.fixture
def inside(person: Person) -> Iterator[Place]:
    with place(person) as made:
        yield made


def test_every_attempt_succeeds_without_a_fence_and_is_refused_behind_it(person: Person) -> None:
    with place(person) as open_place, place(person) as fenced_place:
        free, fenced = open_place.attempts(fenced=False), fenced_place.attempts(fenced=True)
    impossible = attempts.FOR_OTHERS if person.is_root else attempts.FOR_ROOT
    possible = {name for name in attempts.ATTEMPTS if name not in impossible}
    assert {name: free[name] for name in possible if free[name]} == {}
    assert [name for name in impossible if name in attempts.ATTEMPTS and not fenced[name]] == []
    allowed = {name: fenced[name] for name in possible if fenced[name] not in attempts.EXPECTED[name].split()}
    assert allowed == {}


PYTHON = """
import asyncio, concurrent.futures, multiprocessing, os, signal, socket, sqlite3, subprocess, tempfile, threading
with concurrent.futures.ThreadPoolExecutor(4) as pool:
    assert sum(pool.map(len, ["ab"] * 8)) == 16
assert subprocess.run("echo a | tr a b", shell=True, capture_output=True).stdout == b"b\\n"
with sqlite3.connect("base.db") as base:
    base.execute("pragma journal_mode = wal")
    base.execute("create table t (x)")
    base.execute("insert into t values (1)")
ours, theirs = multiprocessing.get_context("fork").Pipe()
worker = multiprocessing.get_context("fork").Process(target=theirs.send, args=("hello",))
worker.start()
assert ours.recv() == "hello"
worker.join()
assert socket.getaddrinfo("localhost", 80, type=socket.SOCK_STREAM)
try:
    socket.getaddrinfo("nowhere.invalid", 80)
except socket.gaierror:
    pass
async def child():
    process = await asyncio.create_subprocess_exec("cat", stdin=-1, stdout=-1)
    return (await process.communicate(b"x"))[0]
assert asyncio.run(child()) == b"x"
with tempfile.NamedTemporaryFile() as file:
    os.chmod(file.name, 0o755)
sleeper = subprocess.Popen(["sleep", "60"])
sleeper.send_signal(signal.SIGTERM)
assert sleeper.wait() == -signal.SIGTERM
os.makedirs("a/b")
open("a/b/x", "w").close()
os.rename("a/b/x", "a/x")
os.link("a/x", "a/b/y")
os.truncate("a/x", 10)
open("/dev/null", "w").write("x")
open("/dev/urandom", "rb").read(4)
"""
GIT = """
set -e
git init -q . && git config user.name x && git config user.email x@x
echo a > a && git add a && git commit -qm a
echo b > a && git stash -q && git stash pop -q && git commit -qam b && git gc -q && git fsck
git worktree add -q ../inside/tree && test "$(git -C tree log --oneline | wc -l)" = 2
"""
NODE = """
const { execFileSync, spawn } = require('child_process'), fs = require('fs'), { Worker } = require('worker_threads')
if (execFileSync('echo', ['a']).toString() !== 'a\\n') process.exit(1)
fs.promises.writeFile('x', 'y').then(() => fs.promises.readFile('x')).then(read => {
  if (read.toString() !== 'y') process.exit(2)
  new Worker('process.exit(7)', { eval: true }).on('exit', code => {
    if (code !== 7) process.exit(3)
    spawn('cat', { stdio: ['pipe', 'pipe', 'inherit', 'ipc'] }).on('exit', code => process.exit(code)).stdin.end('x')
  })
})
"""
VENV = 'python3 -m venv --without-pip env && env/bin/python -c "import sys; assert sys.prefix != sys.base_prefix"'
SHELL = (
    "mkdir d && echo x > d/x && cp -a d e && tar cf d.tar d && tar xf d.tar && mv e/x d/y && rm -r e && test -d /usr"
)


@pytest.mark.parametrize(
    "argv",
    [("python3", "-c", PYTHON), ("sh", "-c", GIT), ("node", "-e", NODE), ("sh", "-c", VENV), ("sh", "-c", SHELL)],
    ids=["python", "git", "node", "venv", "shell"],
)
def test_ordinary_work_goes_on_behind_a_fence(argv: tuple[str, ...], inside: Place) -> None:
    require(shutil.which(argv[0]) is not None, argv[0])
    ended = inside.run(*argv)
    assert ended.returncode == 0, ended.stderr


def test_pytest_runs_behind_a_fence() -> None:
    with place(OURSELVES) as inside:
        (inside.inside / "test_it.py").write_text("def test_it(tmp_path):\n    (tmp_path / 'x').write_text('y')\n")
        (inside.inside / "pytest.ini").write_text("[pytest]\n")
        ended = inside.run(sys.executable, "-m", "pytest", "-q")
        assert "1 passed" in ended.stdout, ended.stdout + ended.stderr


def test_a_listed_port_is_reached_and_no_other(inside: Place) -> None:
    program = "import socket, sys; socket.create_connection(('127.0.0.1', int(sys.argv[1])))"
    with socket.create_server(("127.0.0.1", 0)) as listed, socket.create_server(("127.0.0.1", 0)) as other:
        ports = [listener.getsockname()[1] for listener in (listed, other)]
        codes = [inside.run("python3", "-c", program, str(port), ports=ports[:1]).returncode for port in ports]
    assert codes == [0, 1]


def test_a_listed_file_is_read_and_its_neighbour_is_not(inside: Place) -> None:
    readable = dict(inside.fence(), read=[*inside.fence()["read"], f"{inside.outside}/kept", f"{inside.outside}/gone"])
    argv = [*inside.person.prefix, inside.person.python, "-I", "-S", "-c", ENTER, str(SOURCE), json.dumps(readable)]
    for name, code in (("kept", 0), ("moved", 1)):
        assert subprocess.run([*argv, "cat", f"{inside.outside}/{name}"], capture_output=True).returncode == code


def test_what_is_read_is_not_written(inside: Place) -> None:
    fence = {"read": ["/", str(inside.outside)], "write": [str(inside.inside)], "ports": []}
    argv = [*inside.person.prefix, inside.person.python, "-I", "-S", "-c", ENTER, str(SOURCE), json.dumps(fence)]
    for work in (">> kept", "> created", "kept; rm kept", "; mkdir folder", "; mv kept other", "; ln -s kept link"):
        done = subprocess.run(
            [*argv, "sh", "-ec", f"cd {inside.outside}; cat kept {work}"], capture_output=True, text=True
        )
        assert "ermission denied" in done.stderr, work
    assert (inside.outside / "kept").read_text() == "secret"


def test_a_program_behind_a_fence_cannot_take_it_down(inside: Place) -> None:
    wider = json.dumps({"read": ["/"], "write": ["/"], "ports": []})
    again = (inside.person.python, "-I", "-S", "-c", ENTER, str(SOURCE), wider, "touch", f"{inside.outside}/created")
    ended = inside.run(*again)
    assert "ermission denied" in ended.stderr
    assert not (inside.outside / "created").exists()


def test_an_unknown_machine_raises() -> None:
    require(shutil.which("setarch") is not None and os.uname().machine == "x86_64", "setarch")
    wanted = json.dumps({"read": [], "write": [], "ports": []})
    argv = ["setarch", "i686", sys.executable, "-I", "-S", "-c", ENTER, str(SOURCE), wanted, "true"]
    ended = subprocess.run(argv, capture_output=True, text=True)
    assert "the system calls of i686 with 64 bits are not known" in ended.stderr


@pytest.mark.parametrize(
    ("abi", "first", "count"),
    [(1, "no file can be moved to another folder: Landlock ABI 1", 5), (3, "TCP is not held: Landlock ABI 3", 3),
     (4, "device controls are not held: Landlock ABI 4", 2), (6, "", 0), (7, "", 0)],
)  # fmt: skip
def test_what_a_kernel_cannot_hold_is_said(abi: int, first: str, count: int) -> None:
    clauses = landlock_seccomp.missing_protections(abi)
    assert len(clauses) == count
    assert (clauses[0] if clauses else "") == first


ALLOWED, KILLED = 0x7FFF0000, 0x80000000
REFUSED, NO_ACCESS, ABSENT = (0x50000 | error for error in (1, 13, 38))


def judged(column: int, number: int, *arguments: int, machine: int = 0, walled: bool = False) -> int:
    """What the filter of a fence says to a system call, or that of a box that has name spaces."""
    words = {0: number, 4: machine or list(landlock_seccomp.MACHINES.values())[column]}
    words |= {16 + 8 * at: one & 0xFFFFFFFF for at, one in enumerate((*arguments, 0, 0, 0, 0))}
    code, at, held = (
        landlock_seccomp.namespace_seccomp_program(column) if walled else landlock_seccomp.seccomp_program(column),
        0,
        0,
    )
    while True:
        operation, yes, no, operand = code[at]
        at += 1
        match operation:
            case landlock_seccomp.LOAD:
                held = words[operand]
            case landlock_seccomp.AND:
                held &= operand
            case landlock_seccomp.EQUAL:
                at += yes if held == operand else no
            case landlock_seccomp.AT_LEAST:
                at += yes if held >= operand else no
            case landlock_seccomp.RETURN:
                return operand


@pytest.mark.parametrize("column", [0, 1], ids=landlock_seccomp.MACHINES)
@pytest.mark.parametrize(
    ("call", "arguments", "verdict"),
    [
        ((0, 63), (), ALLOWED),  # read
        ((59, 221), (), ALLOWED),  # execve
        ((101, 117), (), REFUSED),  # ptrace
        ((425, 425), (), REFUSED),  # io_uring_setup
        ((435, 435), (), ABSENT),  # clone3
        ((56, 220), (0x11,), ALLOWED),  # clone as fork
        ((56, 220), (0x10000011,), REFUSED),  # clone into a user namespace
        ((272, 97), (0x10000000,), REFUSED),  # unshare
        ((41, 198), (2, 0x80801, 0), ALLOWED),  # socket: TCP, closed on exec, not blocking
        ((41, 198), (10, 1, 6), ALLOWED),
        ((41, 198), (2, 1, 262), NO_ACCESS),  # MPTCP
        ((41, 198), (2, 2, 0), NO_ACCESS),  # UDP
        ((41, 198), (2 + (1 << 32), 2, 0), NO_ACCESS),
        ((41, 198), (1, 1, 0), NO_ACCESS),  # unix
        ((53, 199), (1, 0x80001, 0), ALLOWED),  # socketpair
        ((53, 199), (1, 5, 0), ALLOWED),
        ((53, 199), (1, 2, 0), NO_ACCESS),
        ((44, 206), (3, 0, 1, 0x4000), ALLOWED),  # sendto without a signal
        ((44, 206), (3, 0, 1, 0x20004000), NO_ACCESS),  # and as the opening of a connection
        ((46, 211), (3, 0, 0x20000000), NO_ACCESS),
        ((307, 269), (3, 0, 1, 0x20000000), NO_ACCESS),
        ((16, 29), (0, 0x5401), ALLOWED),  # ioctl: the settings of a terminal
        ((16, 29), (0, 0x5412), REFUSED),
        ((16, 29), (0, (7 << 32) + 0x5412), REFUSED),
        ((16, 29), (0, 0x541C), REFUSED),
        ((302, 261), (0, 7), ALLOWED),  # prlimit of itself
        ((302, 261), (1, 7), REFUSED),
        ((0x40000000, 0x40000000), (), ABSENT),  # x32
        ((-1 & 0xFFFFFFFF, -1 & 0xFFFFFFFF), (), ABSENT),
    ],
)
def test_the_filter_judges_by_number_and_arguments(
    column: int, call: tuple[int, int], arguments: tuple[int, ...], verdict: int
) -> None:
    assert judged(column, call[column], *arguments) == verdict


@pytest.mark.parametrize("column", [0, 1])
def test_calls_of_another_machine_end_the_process(column: int) -> None:
    assert judged(column, 20, machine=0x40000003) == KILLED


UNKNOWN, OLDER = 0x50000 | 97, (0x40000003, 0x40000028)


@pytest.mark.parametrize("column", [0, 1], ids=landlock_seccomp.MACHINES)
@pytest.mark.parametrize(
    ("call", "older_call", "arguments", "verdict"),
    [
        ((0, 63), (3, 3), (), ALLOWED),  # read
        ((165, 40), (21, 21), (), ALLOWED),  # mount, which name spaces hold
        ((272, 97), (310, 337), (0x10000000,), ALLOWED),  # unshare
        ((101, 117), (26, 26), (), ALLOWED),  # ptrace
        ((248, 217), (286, 309), (), REFUSED),  # add_key
        ((249, 218), (287, 310), (), REFUSED),  # request_key
        ((250, 219), (288, 311), (), REFUSED),  # keyctl
        ((425, 425), (425, 425), (), REFUSED),  # io_uring_setup
        ((41, 198), (359, 281), (1, 2, 0), ALLOWED),  # socket: unix
        ((41, 198), (359, 281), (2, 2, 0), ALLOWED),  # UDP
        ((41, 198), (359, 281), (10, 1, 262), ALLOWED),
        ((41, 198), (359, 281), (16, 3, 0), ALLOWED),  # netlink
        ((41, 198), (359, 281), (40, 1, 0), UNKNOWN),  # virtual machines
        ((41, 198), (359, 281), (40 + (1 << 32), 1, 0), UNKNOWN),
        ((41, 198), (359, 281), (17, 3, 0), UNKNOWN),  # packets
        ((41, 198), (359, 281), (38, 5, 0), UNKNOWN),  # the kernel's ciphers
    ],
)
def test_what_no_name_space_divides_is_refused_to_programs_of_both_kinds(
    column: int, call: tuple[int, int], older_call: tuple[int, int], arguments: tuple[int, ...], verdict: int
) -> None:
    assert judged(column, call[column], *arguments, walled=True) == verdict
    assert judged(column, older_call[column], *arguments, machine=OLDER[column], walled=True) == verdict


def test_the_other_ways_to_sockets_are_not_there() -> None:
    assert judged(0, 102, machine=OLDER[0], walled=True) == ABSENT  # socketcall
    assert judged(0, 0x40000029, 40, walled=True) == ABSENT  # x32
    assert judged(1, 41, machine=OLDER[0], walled=True) == KILLED
