"""Tries everything that a fenced program must not do: `python -I -S attempts.py ORDERS`, which are JSON.

Without a fence in its orders the same attempts show that they could succeed. Each is made in a process of its own; what
came of it is printed as JSON: nothing for one that succeeded, the name of an error, or of the signal that ended it.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import mmap
import os
import platform
import resource
import signal
import socket
import stat
import struct
import subprocess
import sys
from collections.abc import Callable
from typing import Any

ARM = platform.machine() == "aarch64"
CALLS: dict[str, int] = {
    name: numbers[ARM]
    for name, numbers in {
        "clone": (56, 220), "clone3": (435, 435), "ptrace": (101, 117), "process_vm_readv": (310, 270),
        "pidfd_getfd": (438, 438), "userfaultfd": (323, 282), "perf_event_open": (298, 241), "bpf": (321, 280),
        "add_key": (248, 217), "io_uring_setup": (425, 425), "name_to_handle_at": (303, 264), "shmat": (30, 196),
        "open_by_handle_at": (304, 265), "setns": (308, 268), "mount": (165, 40), "umount2": (166, 39),
        "mq_open": (240, 180), "mq_unlink": (241, 181), "unshare": (272, 97),
    }.items()
}  # fmt: skip
NEW_USER, HERE = 0x10000000, -100
READ_ONLY, REMOUNT = 1, 32
MPTCP, FASTOPEN, VSOCK = 262, 0x20000000, 40

ORDERS: dict[str, Any] = {}
ATTEMPTS: dict[str, Callable[[], object]] = {}
EXPECTED: dict[str, str] = {}
FOR_ROOT: set[str] = set()
FOR_OTHERS: set[str] = set()


def attempt(error: str, who: set[str] | None = None) -> Callable[[Callable[[], object]], Callable[[], object]]:
    """The function tries what a fence refuses with this error; without a fence these users can do it."""

    def named(function: Callable[[], object]) -> Callable[[], object]:
        name = function.__name__
        ATTEMPTS[name], EXPECTED[name] = function, error
        if who is not None:
            who.add(name)
        return function

    return named


def inside(name: str) -> str:
    return os.path.join(ORDERS["inside"], name)


def outside(name: str) -> str:
    return os.path.join(ORDERS["outside"], name)


def call(name: str, *arguments: Any) -> int:
    syscall = ctypes.CDLL(None, use_errno=True).syscall
    syscall.restype = ctypes.c_long
    given = [ctypes.c_long(one) if isinstance(one, int) else one for one in arguments]
    result: int = syscall(ctypes.c_long(CALLS[name]), *given)
    if result < 0:
        raise OSError(ctypes.get_errno(), name)
    return result


def read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read(64)


def append(path: str) -> None:
    with open(path, "ab") as file:
        file.write(b"more")


# Files


@attempt("EACCES")
def write_outside() -> None:
    append(outside("kept"))


@attempt("EACCES")
def create_outside() -> None:
    append(outside("created"))


@attempt("EACCES")
def make_a_folder_outside() -> None:
    os.mkdir(outside("folder"))


@attempt("EACCES")
def write_through_a_link() -> None:
    os.symlink(outside("kept"), inside("link"))
    append(inside("link"))


@attempt("EACCES")
def write_by_an_open_folder() -> None:
    folder = os.open(outside(""), os.O_PATH)
    os.close(os.open("created by descriptor", os.O_CREAT | os.O_WRONLY, dir_fd=folder))


@attempt("EACCES")
def read_outside() -> None:
    read(outside("kept"))


@attempt("EACCES")
def read_what_only_the_user_may() -> None:
    read(outside("private"))


@attempt("EACCES")
def list_outside() -> None:
    os.listdir(outside(""))


@attempt("EACCES")
def truncate_outside() -> None:
    os.truncate(outside("emptied"), 0)


@attempt("EACCES")
def truncate_by_opening() -> None:
    os.close(os.open(outside("emptied"), os.O_RDONLY | os.O_TRUNC))


@attempt("EACCES")
def remove_outside() -> None:
    os.unlink(outside("removed"))


@attempt("EXDEV EACCES")
def move_out() -> None:
    append(inside("ours"))
    os.rename(inside("ours"), outside("ours"))


@attempt("EXDEV EACCES")
def move_in() -> None:
    os.rename(outside("moved"), inside("moved"))
    read(inside("moved"))


@attempt("EXDEV EACCES")
def link_in() -> None:
    os.link(outside("linked"), inside("linked"))
    read(inside("linked"))


@attempt("EACCES")
def execute_outside() -> None:
    os.execv(outside("program"), ["program"])


@attempt("EACCES", FOR_ROOT)
def read_the_passwords() -> None:
    if not read("/etc/shadow"):
        raise PermissionError(errno.EACCES, "another file lies over it")


@attempt("EACCES", FOR_ROOT)
def read_what_belongs_to_another() -> None:
    read(inside("anothers"))


@attempt("EPERM", FOR_ROOT)
def read_by_handle() -> None:
    handle, mount = ctypes.create_string_buffer(struct.pack("Ii128x", 128, 0)), ctypes.c_int()
    call("name_to_handle_at", HERE, outside("kept").encode(), handle, ctypes.byref(mount), 0)
    os.read(call("open_by_handle_at", os.open(inside(""), os.O_RDONLY), handle, os.O_RDONLY), 1)


# Other processes


@attempt("EPERM")
def signal_an_outsider() -> None:
    os.kill(ORDERS["pid"], signal.SIGCONT)


@attempt("EPERM")
def limit_an_outsider() -> None:
    resource.prlimit(ORDERS["pid"], resource.RLIMIT_CORE, (0, 0))


@attempt("EACCES EPERM")
def read_the_environment_of_an_outsider() -> None:
    assert b"SECRET=" in read(f"/proc/{ORDERS['pid']}/environ")


@attempt("EACCES EPERM")
def open_the_memory_of_an_outsider() -> None:
    os.open(f"/proc/{ORDERS['pid']}/mem", os.O_RDWR)


@attempt("EACCES EPERM")
def enter_the_root_of_an_outsider() -> None:
    os.listdir(f"/proc/{ORDERS['pid']}/root")


@attempt("EPERM")
def trace_an_outsider() -> None:
    call("ptrace", 0x4206, ORDERS["pid"], 0, 0)


@attempt("EPERM")
def copy_the_memory_of_an_outsider() -> None:
    ours = ctypes.create_string_buffer(6)
    here, there = struct.pack("PN", ctypes.addressof(ours), 6), struct.pack("PN", ORDERS["memory"], 6)
    call("process_vm_readv", ORDERS["pid"], here, 1, there, 1, 0)
    assert ours.raw == b"secret"


@attempt("EPERM")
def take_a_descriptor_of_an_outsider() -> None:
    call("pidfd_getfd", os.pidfd_open(ORDERS["pid"]), ORDERS["descriptor"], 0)


@attempt("EPERM")
def attach_the_shared_memory_of_an_outsider() -> None:
    call("shmat", ORDERS["segment"], None, 0)


@attempt("EPERM")
def open_a_message_queue() -> None:
    name = f"ralph-{os.getpid()}".encode()
    call("mq_open", name, os.O_CREAT | os.O_RDWR, 0o600, None)
    call("mq_unlink", name)


@attempt("EPERM")
def keep_a_key() -> None:
    call("add_key", b"user", b"ralph", b"x", 1, -2)


@attempt("EPERM")
def type_into_the_terminal() -> None:
    os.setsid()
    fcntl.ioctl(ORDERS["terminal"], 0x540E, 0)  # TIOCSCTTY
    fcntl.ioctl(ORDERS["terminal"], 0x5412, b"x")  # TIOCSTI


# The network


@attempt("EACCES")
def connect_by_tcp() -> None:
    socket.socket().connect(("127.0.0.1", ORDERS["tcp"]))


@attempt("EACCES")
def connect_by_tcp_6() -> None:
    socket.socket(socket.AF_INET6).connect(("::ffff:127.0.0.1", ORDERS["tcp"]))


@attempt("EACCES")
def connect_by_mptcp() -> None:
    socket.socket(socket.AF_INET, socket.SOCK_STREAM, MPTCP).connect(("127.0.0.1", ORDERS["tcp"]))


@attempt("EACCES")
def connect_by_sending() -> None:
    socket.socket().sendto(b"x", FASTOPEN, ("127.0.0.1", ORDERS["tcp"]))


@attempt("EACCES")
def connect_by_sending_a_message() -> None:
    socket.socket().sendmsg([b"x"], [], FASTOPEN, ("127.0.0.1", ORDERS["tcp"]))


@attempt("EACCES")
def bind_a_port() -> None:
    socket.socket().bind(("127.0.0.1", 0))


@attempt("EPERM")
def listen_without_a_port() -> None:
    socket.socket().listen()


@attempt("EACCES")
def send_by_udp() -> None:
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", ORDERS["udp"]))


@attempt("EACCES", FOR_ROOT)
def open_a_raw_socket() -> None:
    socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)


@attempt("EACCES", FOR_ROOT)
def open_a_packet_socket() -> None:
    socket.socket(socket.AF_PACKET, socket.SOCK_RAW)


@attempt("EACCES")
def open_a_netlink_socket() -> None:
    socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)


@attempt("EACCES")
def open_a_socket_to_the_hypervisor() -> None:
    socket.socket(VSOCK, socket.SOCK_STREAM)


@attempt("EACCES")
def connect_to_a_unix_socket() -> None:
    socket.socket(socket.AF_UNIX).connect(ORDERS["unix"])


@attempt("EACCES")
def connect_to_an_abstract_socket() -> None:
    socket.socket(socket.AF_UNIX).connect("\0" + ORDERS["abstract"])


@attempt("EACCES")
def send_from_a_pair_to_a_unix_socket() -> None:
    socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0].sendto(b"x", ORDERS["datagrams"])


# The kernel


@attempt("EPERM", FOR_ROOT)
def mount_a_file_system() -> None:
    call("mount", b"none", inside("mount").encode(), b"tmpfs", 0, None)


@attempt("EPERM", FOR_ROOT)
def make_a_mount_writable() -> None:
    call("mount", None, inside("mounted").encode(), None, REMOUNT, None)


@attempt("EPERM", FOR_ROOT)
def take_a_mount_away() -> None:
    call("umount2", inside("mounted").encode(), 0)


@attempt("EPERM", FOR_ROOT)
def enter_a_namespace() -> None:
    call("setns", os.open("/proc/self/ns/uts", os.O_RDONLY), 0)


@attempt("EPERM")
def make_a_user_namespace() -> None:
    call("unshare", NEW_USER)


@attempt("EPERM")
def start_in_a_user_namespace() -> None:
    _leave(call("clone", NEW_USER | signal.SIGCHLD, 0, 0, 0, 0))


@attempt("ENOSYS")
def start_in_a_user_namespace_anew() -> None:
    _leave(call("clone3", struct.pack("8Q24x", NEW_USER, 0, 0, 0, signal.SIGCHLD, 0, 0, 0), 88))


def _leave(child: int) -> None:
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)


@attempt("EPERM")
def set_up_an_io_ring() -> None:
    call("io_uring_setup", 1, bytes(120))


@attempt("EPERM")
def catch_page_faults() -> None:
    call("userfaultfd", 1)


@attempt("EPERM", FOR_ROOT)
def count_events() -> None:
    call("perf_event_open", struct.pack("IIQ48x", 1, 64, 0), -1, 0, -1, 0)


@attempt("EPERM", FOR_ROOT)
def make_a_kernel_map() -> None:
    call("bpf", 0, struct.pack("4I112x", 2, 4, 4, 1), 128)


@attempt("SIGSYS")
def call_as_an_old_processor() -> None:
    code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(b"\xb8\x14\x00\x00\x00\xcd\x80\xc3")  # getpid by interrupt 0x80, whose numbers are others
    pid = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))()
    assert pid == os.getpid()


# Privileges


@attempt("EPERM", FOR_ROOT)
def give_a_file_away() -> None:
    append(inside("given"))
    os.chown(inside("given"), 1, 1)


@attempt("EPERM", FOR_ROOT)
def make_a_device() -> None:
    os.mknod(inside("disk"), stat.S_IFBLK | 0o600, os.makedev(7, 0))


@attempt("EPERM", FOR_ROOT)
def have_capabilities_in_a_program() -> None:
    said = subprocess.run(["grep", "^Cap", "/proc/self/status"], capture_output=True, text=True, check=True).stdout
    ours = [line for line in said.splitlines() if os.geteuid() == 0 or "Bnd" not in line]
    if not any(int(line.split()[1], 16) for line in ours):
        raise PermissionError(errno.EPERM, said)


@attempt("EPERM", FOR_OTHERS)
def become_root_by_a_program() -> None:
    if os.geteuid() == 0:
        raise PermissionError(errno.EPERM, "root already")
    said = subprocess.run([inside("become-root"), "-u"], capture_output=True, text=True, check=True).stdout
    if said.strip() != "0":
        raise PermissionError(errno.EPERM, said)


def tried(function: Callable[[], object]) -> str:
    """What came of an attempt, made by a child."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(10)
        try:
            function()
        except OSError as error:
            os.write(theirs, errno.errorcode[error.errno or 0].encode())
        os._exit(0)
    os.close(theirs)
    with open(ours, "rb") as file:
        said = file.read().decode()
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status):
        return signal.Signals(os.WTERMSIG(status)).name
    return said or (f"exit {os.WEXITSTATUS(status)}" if status else "")


def main() -> None:
    """Set up what needs rights, put up the fence, and try."""
    ORDERS.update(json.loads(sys.argv[1]))
    ORDERS["terminal"] = os.openpty()[1]
    if os.geteuid() == 0:
        call("mount", b"none", inside("mounted").encode(), b"tmpfs", READ_ONLY, None)
    if ORDERS["fence"] is not None:
        sys.path.append(ORDERS["source"])
        from ralphproof.sandbox.landlock_seccomp import restrict_process

        restrict_process(**ORDERS["fence"])
    print(json.dumps({name: tried(function) for name, function in ATTEMPTS.items()}))


if __name__ == "__main__":
    main()
