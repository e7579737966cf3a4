"""Landlock rules and seccomp filters that a process applies to itself just before it executes the program.

Imports nothing of this package.
"""

from __future__ import annotations

import os
import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    Instruction = tuple[int, int, int, int]  # operation, jump if true, jump if not, operand

MACHINES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}  # as the kernel's audit names them
NEWEST_ABI = 7  # the latest Landlock ABI whose rights are known here
CREATE, ADD, RESTRICT = 444, 445, 446
UNDER_PATH, AT_PORT = 1, 2

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1, 2, 4, 8
REFER, TRUNCATE, IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
READ_RIGHTS = EXECUTE | READ_FILE | READ_DIR
FILE_RIGHTS = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV  # what can be allowed for one that is no folder
RIGHTS = ((1, (1 << 13) - 1), (2, REFER), (3, TRUNCATE), (5, IOCTL_DEV))  # since which ABI
BIND_TCP, CONNECT_TCP = 1, 2
SCOPES = 3  # abstract unix sockets and signals
MISSING_BEFORE_ABI = (
    (2, "no file can be moved to another folder"), (3, "files outside can be emptied"), (4, "TCP is not held"),
    (5, "device controls are not held"), (6, "signals to processes outside are not held"),
)  # fmt: skip

NO_NEW_PRIVILEGES, SET_SECCOMP, BY_FILTER, DROP_BOUND, AMBIENT, CLEAR_ALL = 38, 22, 2, 24, 47, 4
CAPABILITIES_V3 = 0x20080522

# System call numbers on x86_64 and aarch64.
PRCTL, CAPSET = (157, 167), (126, 91)
CLONE, CLONE3, UNSHARE, IOCTL, PRLIMIT = (56, 220), (435, 435), (272, 97), (16, 29), (302, 261)
SOCKET, SOCKETPAIR, SENDTO, SENDMSG, SENDMMSG = (41, 198), (53, 199), (44, 206), (46, 211), (307, 269)
REFUSED = {
    # other processes
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272),
    "pidfd_getfd": (438, 438), "perf_event_open": (298, 241), "userfaultfd": (323, 282),
    # memory and messages shared by all processes of a user
    "shmget": (29, 194), "shmat": (30, 196), "shmctl": (31, 195), "shmdt": (67, 197), "semget": (64, 190),
    "semop": (65, 193), "semctl": (66, 191), "semtimedop": (220, 192), "msgget": (68, 186), "msgsnd": (69, 189),
    "msgrcv": (70, 188), "msgctl": (71, 187), "mq_open": (240, 180), "mq_unlink": (241, 181),
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
    # ways around this filter and around Landlock
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    "open_by_handle_at": (304, 265), "listen": (50, 201),  # one that is not bound gets a port without being asked
    # namespaces and mounts
    "setns": (308, 268), "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "open_tree": (428, 428),
    "move_mount": (429, 429), "fsopen": (430, 430), "fsconfig": (431, 431), "fsmount": (432, 432),
    "fspick": (433, 433), "mount_setattr": (442, 442), "open_tree_attr": (467, 467),
    # the kernel itself
    "kexec_load": (246, 104), "kexec_file_load": (320, 294), "init_module": (175, 105), "finit_module": (313, 273),
    "delete_module": (176, 106), "bpf": (321, 280),
}  # fmt: skip

# What namespaces do not isolate, on each machine and its 32-bit variant: kernel keys, io_uring (which opens sockets
# past a filter), sockets, and socketcall. 0 where it does not exist.
SYSCALLS_OUTSIDE_NAMESPACES = {
    "x86_64": ((0xC000003E, (248, 249, 250, 425), 41, 0), (0x40000003, (286, 287, 288, 425), 359, 102)),
    "aarch64": ((0xC00000B7, (217, 218, 219, 425), 198, 0), (0x40000028, (309, 310, 311, 425), 281, 0)),
}
NAMESPACED_SOCKET_FAMILIES = (
    1,
    2,
    10,
    16,
)  # families of sockets that a network of its own holds: unix, internet, netlink

EPERM, EACCES, ENOSYS, EAFNOSUPPORT = 1, 13, 38, 97
ALL_BITS, X32 = 0xFFFFFFFF, 0x40000000
NEW_NAMESPACES = 0x7E020000  # every CLONE_NEW… flag but that of time, whose bit means a signal to clone
FASTOPEN = 0x20000000  # a connection without connect(2), which Landlock does not see before Linux 7.2
TYPES_INTO_TERMINAL = (0x5412, 0x541C)  # TIOCSTI, TIOCLINUX
UNIX, INTERNET, STREAM, PACKETS, KIND_BITS = 1, (2, 10), 1, 5, 0xF
TCP = (0, 6)  # MPTCP, SCTP and SMC are streams too, and not TCP to Landlock since Linux 6.14

LOAD, AND, EQUAL, AT_LEAST, RETURN = 0x20, 0x54, 0x15, 0x35, 0x06
ALLOW, KILL = (RETURN, 0, 0, 0x7FFF0000), (RETURN, 0, 0, 0x80000000)

_loaded_syscall: list[Any] = []


def restrict_process(read: Sequence[str], write: Sequence[str], ports: Sequence[int]) -> tuple[str, ...]:
    """Restrict this process and its children to these paths, and to TCP connections to these ports.

    Below `read` files can be read and executed, below `write` everything is permitted; paths that cannot be opened are
    skipped. All capabilities are dropped. Returns clauses about what this kernel cannot enforce. Raises OSError without
    Landlock, and on machines whose system calls are not listed here.
    """
    column, abi = machine_column(), landlock_abi()
    _call(PRCTL[column], NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    rules = _rules(abi, read, write, ports)
    _drop_capabilities(column)
    _call(RESTRICT, rules, 0)
    os.close(rules)
    _filter(column, seccomp_program(column))
    return missing_protections(abi)


def block_namespace_escapes() -> None:
    """Deny this process and its children what namespaces leave open. Does nothing on machines not listed here."""
    try:
        column = machine_column()
    except OSError:
        return
    _call(PRCTL[column], NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    _filter(column, namespace_seccomp_program(column))


def machine_column() -> int:
    """The column of system call numbers for this machine; OSError if there is none."""
    name = os.uname().machine
    if name not in MACHINES or struct.calcsize("P") != 8:
        raise OSError(ENOSYS, f"the system calls of {name} with {struct.calcsize('P') * 8} bits are not known")
    return list(MACHINES).index(name)


def landlock_abi() -> int:
    """The Landlock ABI of this kernel, up to the newest known; OSError if it has none."""
    return min(_call(CREATE, None, 0, 1), NEWEST_ABI)


def missing_protections(abi: int) -> tuple[str, ...]:
    """Clauses about what a kernel with this ABI cannot enforce."""
    return tuple(f"{what}: Landlock ABI {abi}" for since, what in MISSING_BEFORE_ABI if abi < since)


def _call(number: int, *arguments: Any) -> int:
    import ctypes

    if not _loaded_syscall:
        _loaded_syscall.append(ctypes.CDLL(None, use_errno=True).syscall)
        _loaded_syscall[0].restype = ctypes.c_long
    given = [ctypes.c_long(one) if isinstance(one, int) else one for one in arguments]
    result: int = _loaded_syscall[0](ctypes.c_long(number), *given)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def _rules(abi: int, read: Sequence[str], write: Sequence[str], ports: Sequence[int]) -> int:
    """A ruleset with a rule for every path and port."""
    files = sum(rights for since, rights in RIGHTS if since <= abi)
    fields = (files, BIND_TCP | CONNECT_TCP, SCOPES)[: 3 if abi >= 6 else 2 if abi >= 4 else 1]
    rules = _call(CREATE, struct.pack(f"={len(fields)}Q", *fields), 8 * len(fields), 0)
    for paths, rights in ((read, READ_RIGHTS), (write, files)):
        for path in paths:
            _allow(rules, path, rights & files)
    for port in ports if abi >= 4 else ():
        _call(ADD, rules, AT_PORT, struct.pack("=QQ", CONNECT_TCP, port), 0)
    return rules


def _allow(rules: int, path: str, rights: int) -> None:
    import stat

    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # what is not there, or not to be reached, needs no right
    try:
        if not stat.S_ISDIR(os.fstat(place).st_mode):
            rights &= FILE_RIGHTS
        _call(ADD, rules, UNDER_PATH, struct.pack("=Qi", rights, place), 0)
    finally:
        os.close(place)


def _drop_capabilities(column: int) -> None:
    """Drop every capability, and the means to regain one."""
    for capability in range(64):
        try:
            _call(PRCTL[column], DROP_BOUND, capability, 0, 0, 0)
        except OSError:
            break  # after the last; or not ours to drop, and then no new privileges means none at all
    _call(PRCTL[column], AMBIENT, CLEAR_ALL, 0, 0, 0)
    _call(CAPSET[column], struct.pack("=Ii", CAPABILITIES_V3, 0), bytes(24))


def _filter(column: int, code: list[Instruction]) -> None:
    import ctypes

    packed = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *one) for one in code))
    head = struct.pack("@HP", len(code), ctypes.addressof(packed))
    _call(PRCTL[column], SET_SECCOMP, BY_FILTER, head, 0, 0)


def seccomp_program(column: int) -> list[Instruction]:
    """The filter of system calls: dispatch by number, then check arguments."""
    code: list[Instruction] = [(LOAD, 0, 0, 4), (EQUAL, 1, 0, list(MACHINES.values())[column]), KILL]
    code += [(LOAD, 0, 0, 0), (AT_LEAST, 0, 1, X32), _fail(ENOSYS)]
    code += _if_syscall(CLONE3[column], [_fail(ENOSYS)])  # its flags cannot be seen; C libraries go back to clone
    for numbers in REFUSED.values():
        code += _if_syscall(numbers[column], [_fail(EPERM)])
    for numbers in (CLONE, UNSHARE):
        code += _if_syscall(numbers[column], [*_only(0, (0,), EPERM, NEW_NAMESPACES), ALLOW])
    stream = [*_only(0, INTERNET, EACCES), *_only(1, (STREAM,), EACCES, KIND_BITS), *_only(2, TCP, EACCES)]
    code += _if_syscall(SOCKET[column], [*stream, ALLOW])
    # A datagram socket of a pair could be connected to any other.
    pair = [*_only(0, (UNIX,), EACCES), *_only(1, (STREAM, PACKETS), EACCES, KIND_BITS)]
    code += _if_syscall(SOCKETPAIR[column], [*pair, ALLOW])
    for numbers, flags in ((SENDTO, 3), (SENDMSG, 2), (SENDMMSG, 3)):
        code += _if_syscall(numbers[column], [*_only(flags, (0,), EACCES, FASTOPEN), ALLOW])
    typing = [step for request in TYPES_INTO_TERMINAL for step in ((EQUAL, 0, 1, request), _fail(EPERM))]
    code += _if_syscall(IOCTL[column], [_argument(1), *typing, ALLOW])
    code += _if_syscall(
        PRLIMIT[column], [*_only(0, (0,), EPERM), ALLOW]
    )  # a limit of no time at all kills another process
    return [*code, ALLOW]


def namespace_seccomp_program(column: int) -> list[Instruction]:
    """The filter of what namespaces do not isolate, for both architectures that this machine executes."""
    code: list[Instruction] = []
    for machine, refused, socket, indirect in SYSCALLS_OUTSIDE_NAMESPACES[list(MACHINES)[column]]:
        part: list[Instruction] = [(LOAD, 0, 0, 0)]
        if machine == MACHINES["x86_64"]:
            part += [(AT_LEAST, 0, 1, X32), _fail(ENOSYS)]
        for number in refused:
            part += _if_syscall(number, [_fail(EPERM)])
        part += _if_syscall(socket, [*_only(0, NAMESPACED_SOCKET_FAMILIES, EAFNOSUPPORT), ALLOW])
        part += _if_syscall(indirect, [_fail(ENOSYS)]) if indirect else []
        code += [(LOAD, 0, 0, 4), *_if_syscall(machine, [*part, ALLOW])]
    return [*code, KILL]


def _if_syscall(number: int, then: list[Instruction]) -> list[Instruction]:
    return [(EQUAL, 0, len(then), number), *then]


def _only(at: int, wanted: Sequence[int], error: int, bits: int = ALL_BITS) -> list[Instruction]:
    """Continue only if these bits of an argument equal one of the wanted numbers."""
    tests = [(EQUAL, len(wanted) - index, 0, one) for index, one in enumerate(wanted)]
    return [_argument(at), (AND, 0, 0, bits), *tests, _fail(error)]


def _argument(at: int) -> Instruction:
    return (LOAD, 0, 0, 16 + 8 * at)  # its lower half: the kernel reads no more of those that are looked at


def _fail(error: int) -> Instruction:
    return (RETURN, 0, 0, 0x50000 | error)
