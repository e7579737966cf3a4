"""Rules on privilege escalation."""

from __future__ import annotations

from ralphproof.base.value import TYPE_CHECKING
from ralphproof.guard.matching import told
from ralphproof.guard.simple import Simple
from ralphproof.guard.verdict import Objection, Rule
from ralphproof.guard.wrap import is_contained

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ralphproof.guard.matching import Table
    from ralphproof.guard.verdict import Ground

BECOME = Rule(
    "become-root", "privilege", "runs with the rights of another user",
    "run it as you are, or say what needs an administrator",
)  # fmt: skip
USERS = Rule("change-users", "privilege", "changes users, groups or passwords", "say in your answer what should change")
SPACES = Rule(
    "enter-namespace", "privilege", "enters or makes a namespace of the system", "run it as you are, without that",
)  # fmt: skip
RULES = (BECOME, USERS, SPACES)
TABLE: Table = {
    **dict.fromkeys(
        ("su", "doas", "pkexec", "run0", "gksu", "kdesu", "machinectl", "runuser", "sg", "newgrp"), (("", BECOME),)
    ),
    "sudo": (("", BECOME),), "sudoedit": (("", BECOME),),
    **dict.fromkeys(
        (
            "visudo", "vipw", "usermod", "useradd", "userdel", "groupadd", "groupmod", "groupdel", "adduser",
            "addgroup",
            "deluser", "passwd", "gpasswd", "chpasswd", "chsh", "chfn", "dscl", "sysadminctl",
        ),
        (("", USERS),),
    ),
    **dict.fromkeys(("nsenter", "unshare", "capsh", "setpriv"), (("", SPACES),)),
}  # fmt: skip


def found(one: Simple, _: Ground) -> Iterator[Objection]:
    """Which other user's rights a command takes."""
    asks = one.name == "sudo" and one.words[1:] in (("-V",), ("-l",), ("-k",), ("--version",), ("--help",))
    if not asks and not is_contained(one):
        yield from told(one, TABLE, {})
