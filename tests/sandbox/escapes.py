"""Tries to get out of a sandbox of any kind; without one the same attempts succeed.

It runs inside as `tests.sandbox.escapes`, with orders as JSON in its argument, and prints as JSON what came of each.
What an attempt writes is looked for outside afterwards, since a sandbox may show a fresh folder at the same place.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress

from tests.sandbox import attempts
from tests.sandbox.attempts import FOR_ROOT, ORDERS, call, inside, read, tried

NEW_MOUNTS, NEW_USER, BIND, REMOUNT, DETACH = 0x20000, 0x10000000, 4096, 32, 2
PIVOT_ROOT = 41 if attempts.ARM else 155
HELLO = b"GET / HTTP/1.1\r\n\r\n"
WAIT_S = 2.0
HOME_OF_ROOT = os.path.expanduser("~root/signed-")

# What is refused by a fence is refused by every sandbox, but for what only a fence has to refuse.
ONLY_A_FENCE = {
    "open_a_message_queue", "type_into_the_terminal", "bind_a_port", "listen_without_a_port", "send_by_udp",
    "open_a_netlink_socket", "make_a_user_namespace", "start_in_a_user_namespace", "start_in_a_user_namespace_anew",
    "set_up_an_io_ring", "catch_page_faults", "call_as_an_old_processor", "count_events", "make_a_kernel_map",
    "have_capabilities_in_a_program", "enter_a_namespace",
}  # fmt: skip
ESCAPES: dict[str, Callable[[], object]] = {
    name: function for name, function in attempts.ATTEMPTS.items() if name not in ONLY_A_FENCE
}
LEAVES: dict[str, str] = {}  # where an attempt leaves its name, from the top of its world


def escape(who: set[str] | None = None, leaves: str = "") -> Callable[[Callable[[], object]], Callable[[], object]]:
    """The function tries what every sandbox refuses; without one these users can do it."""

    def named(function: Callable[[], object]) -> Callable[[], object]:
        name = function.__name__
        ESCAPES[name] = function
        if leaves:
            LEAVES[name] = leaves
        if who is not None:
            who.add(name)
        return function

    return named


def at(place: str) -> str:
    """A place in the world around the project; one of the machine itself gets a name of this world."""
    return f"{place}{os.path.basename(ORDERS['top'])}" if place.startswith("/") else os.path.join(ORDERS["top"], place)


def sign(path: str) -> None:
    """Leave the name of the attempt in a file."""
    with open(path, "a") as file:
        file.write(f"\nsigned by {sys._getframe(1).f_code.co_name}\n")


def secret(path: str) -> None:
    if b"secret" not in read(path):
        raise FileNotFoundError(errno.ENOENT, "another file")


# Files that are written


@escape(leaves="home/notes.txt")
def write_in_the_home_folder() -> None:
    sign(at("home/notes.txt"))


@escape(leaves="home/.bashrc")
def create_in_the_home_folder() -> None:
    sign(at("home/.bashrc"))


@escape(leaves="home/work/sibling/kept")
def write_in_the_project_beside() -> None:
    sign(at("home/work/sibling/kept"))


@escape(leaves="home/work/beside")
def create_beside_the_project() -> None:
    sign(inside("../beside"))


@escape(leaves="home/work/sibling/by-descriptor")
def create_upwards_from_an_open_folder() -> None:
    folder = os.open(inside(""), os.O_RDONLY)
    made = os.open("../sibling/by-descriptor", os.O_CREAT | os.O_WRONLY, dir_fd=folder)
    os.write(made, b"signed by create_upwards_from_an_open_folder")


@escape(leaves="outside/by-a-link")
def create_through_a_link_to_a_folder() -> None:
    os.symlink(at("outside"), inside("linked-folder"))
    sign(inside("linked-folder/by-a-link"))


@escape(leaves="outside/kept")
def write_by_the_root_of_a_process() -> None:
    sign(f"/proc/self/root{at('outside/kept')}")


@escape(leaves="outside/kept")
def write_by_the_working_folder_of_an_outsider() -> None:
    sign(f"/proc/{ORDERS['pid']}/cwd/kept")


@escape(leaves="outside/kept")
def write_by_a_descriptor_of_an_outsider() -> None:
    sign(f"/proc/{ORDERS['pid']}/fd/{ORDERS['file']}")


@escape(leaves="outside/kept")
def write_by_the_first_process() -> None:
    """Or any other that can be seen: whose root or working folder leads out."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        for way in ("root", "cwd/../../.."):
            try:
                sign(f"/proc/{pid}/{way}{at('outside/kept')}")
            except OSError:
                continue
            return
    raise PermissionError(errno.EACCES, "no process leads out")


@escape(FOR_ROOT, leaves="/etc/signed-")
def create_in_etc() -> None:
    sign(at("/etc/signed-"))


@escape(FOR_ROOT, leaves="/usr/signed-")
def create_in_usr() -> None:
    sign(at("/usr/signed-"))


@escape(FOR_ROOT, leaves="/var/lib/signed-")
def create_in_var() -> None:
    sign(at("/var/lib/signed-"))


@escape(FOR_ROOT, leaves="/signed-")
def create_at_the_top() -> None:
    sign(at("/signed-"))


@escape(FOR_ROOT, leaves=HOME_OF_ROOT)
def create_in_the_home_of_root() -> None:
    sign(at(HOME_OF_ROOT))


@escape(leaves="/tmp/signed-")
def create_in_tmp() -> None:
    sign(at("/tmp/signed-"))


@escape(leaves="/dev/shm/signed-")
def create_in_shared_memory() -> None:
    sign(at("/dev/shm/signed-"))


@escape(leaves="home/.local/state/ralph/ledger.db")
def write_the_ledger() -> None:
    sign(at("home/.local/state/ralph/ledger.db"))


@escape(FOR_ROOT)
def write_a_setting_of_the_kernel() -> None:
    path = "/proc/sys/kernel/core_pattern"
    with open(path) as file:
        text = file.read()
    with open(path, "w") as file:
        file.write(text)


# Files that are read


@escape()
def read_the_key_of_the_user() -> None:
    secret(at("home/.ssh/id_ed25519"))


@escape()
def read_the_login_of_the_cloud() -> None:
    secret(at("home/.aws/credentials"))


@escape()
def read_the_home_folder() -> None:
    secret(at("home/notes.txt"))


@escape()
def read_the_project_beside() -> None:
    secret(inside("../sibling/kept"))


@escape()
def read_the_ledger() -> None:
    secret(at("home/.local/state/ralph/ledger.db"))


@escape()
def read_an_earlier_run() -> None:
    secret(at("home/.local/state/ralph/runs/1/notes"))


@escape(FOR_ROOT)
def read_the_passwords_of_groups() -> None:
    if not read("/etc/gshadow"):
        raise FileNotFoundError(errno.ENOENT, "nothing is there")


@escape(FOR_ROOT)
def read_the_passwords_after_a_change_of_mode() -> None:
    os.chmod("/etc/gshadow", 0o640)  # as it is
    if not read("/etc/gshadow"):
        raise FileNotFoundError(errno.ENOENT, "nothing is there")


@escape()
def find_a_secret_in_the_environment() -> None:
    told = json.dumps(dict(os.environ)) + str(read_all(f"/proc/{os.getppid()}/environ"))
    if "secret" not in told:
        raise PermissionError(errno.EACCES, "nothing is told")


@escape()
def find_where_the_agent_of_keys_listens() -> None:
    if not {"SSH_AUTH_SOCK", "DOCKER_HOST", "DBUS_SESSION_BUS_ADDRESS", "BASH_ENV"} & {*os.environ}:
        raise PermissionError(errno.EACCES, "nothing is told")


def read_all(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


# Other processes


def spoken(connection: socket.socket) -> None:
    """Whether somebody answers."""
    connection.settimeout(WAIT_S)
    connection.send(HELLO)
    if b"hello" not in connection.recv(1000):
        raise PermissionError(errno.EACCES, "nobody answers")


def reached(family: int, place: object, kind: int = socket.SOCK_STREAM) -> None:
    with socket.socket(family, kind) as connection:
        connection.settimeout(WAIT_S)
        connection.connect(place)  # type: ignore[arg-type]
        spoken(connection)


@escape()
def speak_to_the_engine_of_containers() -> None:
    reached(socket.AF_UNIX, ORDERS["sockets"][1])


@escape()
def speak_to_the_bus() -> None:
    reached(socket.AF_UNIX, ORDERS["sockets"][2])


@escape()
def speak_to_a_socket_by_a_link() -> None:
    os.symlink(ORDERS["sockets"][0], inside("socket"))
    reached(socket.AF_UNIX, inside("socket"))


@escape()
def write_to_the_terminal_of_an_outsider() -> None:
    with open(ORDERS["tty"], "wb", buffering=0) as terminal:
        terminal.write(b"x")


@escape(FOR_ROOT)
def enter_the_mounts_of_an_outsider() -> None:
    call("setns", os.open(f"/proc/{ORDERS['pid']}/ns/mnt", os.O_RDONLY), 0)


@escape()
def see_an_outsider() -> None:
    os.kill(ORDERS["pid"], 0)


@escape()
def stop_a_group_of_outsiders() -> None:
    os.killpg(os.getpgid(ORDERS["pid"]), signal.SIGCONT)


# The network, past the proxy


@escape()
def reach_loopback() -> None:
    reached(socket.AF_INET, ("127.0.0.1", ORDERS["tcp"]))


@escape()
def reach_loopback_by_another_number() -> None:
    reached(socket.AF_INET, ("127.7.7.7", ORDERS["tcp"]))


@escape()
def reach_this_machine_by_no_number() -> None:
    reached(socket.AF_INET, ("0.0.0.0", ORDERS["tcp"]))


@escape()
def reach_this_machine_by_its_address() -> None:
    reached(socket.AF_INET, (ORDERS["address"], ORDERS["tcp"]))


@escape()
def reach_loopback_6() -> None:
    reached(socket.AF_INET6, ("::1", ORDERS["tcp6"]))


@escape()
def reach_loopback_by_udp() -> None:
    reached(socket.AF_INET, ("127.0.0.1", ORDERS["udp"]), socket.SOCK_DGRAM)


@escape()
def reach_this_machine_by_udp() -> None:
    reached(socket.AF_INET, (ORDERS["address"], ORDERS["udp"]), socket.SOCK_DGRAM)


# The kernel


def kernel(number: int, *given: object) -> None:
    words = [ctypes.c_long(one) if isinstance(one, int) else one for one in given]
    if ctypes.CDLL(None, use_errno=True).syscall(ctypes.c_long(number), *words) < 0:
        raise OSError(ctypes.get_errno(), str(number))


def alone() -> None:
    """In mounts of our own; a user without rights becomes somebody who has some there."""
    user, group = os.geteuid(), os.getegid()
    try:
        call("unshare", NEW_MOUNTS)
    except PermissionError:
        call("unshare", NEW_USER | NEW_MOUNTS)
        for name, text in (("setgroups", "deny"), ("uid_map", f"0 {user} 1"), ("gid_map", f"0 {group} 1")):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)


@escape(FOR_ROOT, leaves="outside/kept")
def make_the_root_writable() -> None:
    call("mount", None, b"/", None, REMOUNT | BIND, None)
    os.makedirs(at("outside"), exist_ok=True)
    sign(at("outside/kept"))


@escape(leaves="outside/kept")
def make_the_root_writable_in_a_namespace() -> None:
    alone()
    for place in ("/", "/usr", "/etc"):
        with suppress(OSError):  # it is no mount
            call("mount", None, place.encode(), None, REMOUNT | BIND, None)
    sign(at("outside/kept"))


@escape()
def take_away_what_lies_over_the_home_folder() -> None:
    alone()
    for _ in range(3):
        try:
            call("umount2", ORDERS["home"].encode(), DETACH)
        except OSError:
            break
    secret(at("home/notes.txt"))


@escape(FOR_ROOT)
def take_another_root() -> None:
    alone()
    call("mount", b"none", inside("mount").encode(), b"tmpfs", 0, None)
    os.mkdir(inside("mount/old"))
    kernel(PIVOT_ROOT, inside("mount").encode(), inside("mount/old").encode())
    secret(f"/old{at('outside/kept')}")


@escape(FOR_ROOT)
def leave_by_a_root_within_the_root() -> None:
    there = os.open("/", os.O_RDONLY)
    os.makedirs(inside("jail"), exist_ok=True)
    os.chroot(inside("jail"))
    os.fchdir(there)
    secret(at("outside/kept").lstrip("/"))


@escape(FOR_ROOT)
def make_a_character_device() -> None:
    os.mknod(inside("memory"), stat.S_IFCHR | 0o600, os.makedev(1, 1))


@escape(FOR_ROOT)
def have_capabilities() -> None:
    said = subprocess.run(["grep", "^Cap", "/proc/self/status"], capture_output=True, text=True, check=True).stdout
    if not any(int(mask, 16) for mask in re.findall(r"Cap(?:Eff|Prm|Amb|Inh):\s*(\w+)", said)):
        raise PermissionError(errno.EPERM, said)


def came(every: Mapping[str, Callable[[], object]]) -> dict[str, str]:
    return {name: tried(function) for name, function in every.items()}


def main() -> None:
    """Try everything."""
    from tests.sandbox.callings import CALLS
    from tests.sandbox.protections import PROTECTIONS

    with open(sys.argv[1]) as file:
        ORDERS.update(json.load(file))
    if os.geteuid() == 0:
        with suppress(OSError):
            call("mount", b"none", inside("mounted").encode(), b"tmpfs", attempts.READ_ONLY, None)
    print(json.dumps(came({**ESCAPES, **PROTECTIONS, **CALLS})))
