"""Ordinary work that goes on in a sandbox of any kind: each is a command, how it ends, and what it says."""

from __future__ import annotations

import base64
import hashlib
import io
import zipfile
from dataclasses import dataclass
from pathlib import Path

from tests.sandbox.worlds import BUBBLEWRAP, CONTAINER, DIRECT, LANDLOCK, World

EVERY = (DIRECT, BUBBLEWRAP, LANDLOCK, CONTAINER)
BOXED, STRONG = EVERY[1:], (DIRECT, BUBBLEWRAP, CONTAINER)
BIG = 3 << 20


@dataclass(frozen=True)
class Work:
    """A shell script, or an argument list; what is expected of it is None where it does not matter."""

    script: str = ""
    argv: tuple[str, ...] = ()
    code: int = 0
    out: str | None = None
    err: str | None = None
    stdin: str | None = None
    cwd: str = ""
    kinds: tuple[str, ...] = EVERY


SERVER = """
import socket, threading
with socket.create_server(("127.0.0.1", 0)) as server:
    threading.Thread(target=lambda: server.accept()[0].sendall(b"hello")).start()
    print(socket.create_connection(server.getsockname()).recv(5).decode())
"""
POOL = "import multiprocessing\nwith multiprocessing.Pool(2) as pool: print(pool.map(abs, [-1, -2]))"
MACHINE = """
import os, sqlite3, ssl, tempfile, subprocess
assert ssl.create_default_context().get_ca_certs() or os.path.exists("/etc/ssl/certs")
sqlite3.connect("work.db").execute("create table if not exists t (x)").close()
with tempfile.TemporaryDirectory() as folder:
    open(os.path.join(folder, "x"), "w").close()
open(os.path.expanduser("~/mine"), "w").close()
open("/dev/null", "w").write("x")
print(os.cpu_count() > 0, subprocess.run(["true"]).returncode)
"""
WORKS: dict[str, Work] = {
    "says two things": Work("echo out; echo err >&2", out="out\n", err="err\n"),
    "reads what it is given": Work("cat", stdin="words\n", out="words\n"),
    "has three streams": Work("ls /proc/self/fd | tr '\\n' ' '", out="0 1 2 3 "),  # the last is the folder
    "has nothing to read": Work("cat", out=""),
    "ends with a code": Work("exit 7", code=7),
    "ends by a signal": Work("kill -TERM $$", code=143, kinds=BOXED),
    "says much": Work(f"head -c {BIG} /dev/zero | tr '\\0' x", out="x" * BIG),
    "is not there": Work(argv=("no-such-program",), code=127, kinds=BOXED),
    "cannot be executed": Work(argv=("/etc/passwd",), code=126, kinds=BOXED),
    "works in a folder": Work("pwd", cwd="below", out="{project}/below\n"),
    "writes in the project": Work("echo x > made && mkdir -p a/b && mv made a/b/made && rm -r a && ls below", out=""),
    "commits": Work("echo a > a && git add -A && git commit -qm a && git log --format=%an && git status -s", out="T\n"),
    "goes on with git": Work(
        "echo b > a && git stash -q && git stash pop -q && git checkout -qb b && git commit -qam b && "
        "git checkout -q - && git merge -q b && git tag t && git gc -q && git fsck --no-dangling && "
        "git log --format=%s", out="b\na\n"
    ),
    "works as programs do": Work(argv=("python3", "-c", MACHINE), out="True 0\n"),
    "shares work among processes": Work(argv=("python3", "-c", POOL), out="[1, 2]\n", kinds=STRONG),
    "serves itself": Work(argv=("python3", "-c", SERVER), out="hello\n", kinds=STRONG),
    "reads certificates": Work("head -c 5 /etc/ssl/certs/ca-certificates.crt", out="-----"),
    "runs scripts of node": Work("node -e 'console.log(require(\"child_process\").execSync(\"echo x\") + \"\")'",
                                 out="x\n\n"),
    "makes a sandbox of its own": Work("unshare --user --map-root-user true", kinds=(DIRECT, BUBBLEWRAP)),
    "is somebody": Work("test $(id -u) != 0 || test {who} = 0", kinds=(DIRECT, LANDLOCK, CONTAINER)),
    "is not root": Work("test $(id -u) != 0", kinds=(BUBBLEWRAP,)),
    "writes in the folder of its task": Work("echo x > .ralph/task/notes && cat .ralph/task/notes", out="x\n"),
}  # fmt: skip


def wheel(folder: Path) -> None:
    """A package that can be installed without a network."""
    files = {"greeting.py": "print('hello from a package')\n", "greeting-1.dist-info/WHEEL": "Wheel-Version: 1.0\n"
             "Generator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
             "greeting-1.dist-info/METADATA": "Metadata-Version: 2.1\nName: greeting\nVersion: 1\n"}  # fmt: skip
    lines = []
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
            digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")
            lines.append(f"{name},sha256={digest},{len(text)}")
        archive.writestr("greeting-1.dist-info/RECORD", "\n".join([*lines, "greeting-1.dist-info/RECORD,,"]))
    (folder / "greeting-1-py3-none-any.whl").write_bytes(made.getvalue())


def furnished(world: World) -> None:
    """A project with a repository, whose user has a name."""
    (world.home / ".gitconfig").write_text("[user]\n\tname = T\n\temail = t@t\n[init]\n\tdefaultBranch = main\n")
    (world.home / ".gitconfig").chmod(0o644)
    for name in ("below", ".ralph/task"):
        (world.project / name).mkdir(parents=True)
    (world.project / ".gitignore").write_text("work.db\n.ralph\nbelow\n")
    world.own()
    world.git("init", "-q")
