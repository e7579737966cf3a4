"""Rules on processes and services of the machine, and on what outlives the run."""

from __future__ import annotations

from ralphproof.base.value import TYPE_CHECKING
from ralphproof.guard.matching import shown, told
from ralphproof.guard.nested import BOMB
from ralphproof.guard.simple import Simple, substitutions, variables
from ralphproof.guard.verdict import Objection, Rule
from ralphproof.guard.wrap import is_contained

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ralphproof.guard.matching import Table
    from ralphproof.guard.verdict import Ground

KILL_ALL = Rule(
    "kill-everything", "host-control", "ends processes that you did not start",
    "end your own: kill \"$!\" or kill %1",
)  # fmt: skip
KILL_NAME = Rule(
    "kill-by-name", "host-control", "ends every process of a name, whoever started it",
    "end your own by its number: kill \"$!\"",
)  # fmt: skip
POWER = Rule("power", "host-control", "stops or restarts the machine", "leave it running")
SERVICE = Rule(
    "service", "host-control", "stops, starts or changes services of the machine",
    "look with `systemctl status`",
)  # fmt: skip
SYSTEM = Rule(
    "system-settings", "host-control", "changes settings of the system",
    "set what you need for your own command",
)  # fmt: skip
FORK_BOMB = Rule("fork-bomb", "host-control", "starts processes without end", "start what you need, once")
SCHEDULE = Rule(
    "schedule", "persistence", "has something run later, or again and again",
    "run it now, or put it into a script of the project",
)  # fmt: skip
AT_START = Rule(
    "start-with-system", "persistence", "has something run when the machine or a session starts",
    "start it when it is needed",
)  # fmt: skip
ACCESS = Rule("install-key", "persistence", "lets a key in", "leave access as it is")
RULES = (KILL_ALL, KILL_NAME, POWER, SERVICE, SYSTEM, FORK_BOMB, SCHEDULE, AT_START, ACCESS)
SERVICES = (
    "stop|restart|kill|reload|mask|isolate|start|disable|daemon-reexec|set-property|poweroff|reboot|halt|suspend"
    "|try-restart"
)
TABLE: Table = {
    **dict.fromkeys(("shutdown", "reboot", "halt", "poweroff"), (("", POWER),)), "init": (("0|1|6|s", POWER),),
    "telinit": (("0|1|6", POWER),),
    "systemctl": (("enable|reenable|preset|link|edit", AT_START), (SERVICES, SERVICE)),
    "loginctl": (("enable-linger", AT_START), ("terminate*|kill*", SERVICE)),
    "service": (("* stop|start|restart|reload", SERVICE),), "rc-service": (("* stop|start|restart", SERVICE),),
    "brew": (("services start|stop|restart", SERVICE),),
    "launchctl": (("load|bootstrap|enable|submit", AT_START), ("stop|unload|kill|bootout|remove|disable", SERVICE)),
    "initctl": (("stop|start|restart", SERVICE),), "supervisorctl": (("stop|shutdown|restart", SERVICE),),
    "killall": (("!-l|--list|-0", KILL_NAME),), "pkill": (("!-l|-0", KILL_NAME),), "skill": (("", KILL_NAME),),
    "xkill": (("", KILL_NAME),),
    "taskkill": (("", KILL_NAME),), "kill-port": (("", KILL_NAME),),
    "fuser": (("+-k|--kill", KILL_NAME),),
    "sysctl": (("+-w|--write", SYSTEM), ("*=*", SYSTEM), ("+-p", SYSTEM)), "iptables": (("!-L|--list|-S", SYSTEM),),
    "ip6tables": (("!-L|-S", SYSTEM),),
    "nft": (("add|delete|flush", SYSTEM),), "ufw": (("enable|disable|reset|delete|allow|deny", SYSTEM),),
    "firewall-cmd": (("!--list-all", SYSTEM),),
    "modprobe": (("", SYSTEM),), "rmmod": (("", SYSTEM),), "insmod": (("", SYSTEM),),
    "hostnamectl": (("set*|hostname", SYSTEM),),
    "timedatectl": (("set*", SYSTEM),), "hwclock": (("+-w|-s|--set|--systohc", SYSTEM),),
    "date": (("+-s|--set", SYSTEM),),
    "ip": (("link|addr|address|route|rule set|add|del|delete|flush|change|replace", SYSTEM),),
    "ifconfig": (("* *", SYSTEM),),
    "route": (("add|del", SYSTEM),), "localectl": (("set*", SYSTEM),), "hostname": (("* !-f|-i|-I|-s", SYSTEM),),
    "nmcli": (("* down|off|delete|modify", SYSTEM),),
    "osascript": (("*shut?down*|*restart*|*log?out*", POWER),), "pmset": (("sleepnow", POWER),),
    "swapoff": (("", SYSTEM),), "update-alternatives": (("+--set|--install|--config", SYSTEM),),
    "crontab": (("!-l", SCHEDULE),), "at": (("!-l|-q", SCHEDULE),), "batch": (("", SCHEDULE),),
    "atrm": (("", SCHEDULE),), "anacron": (("", SCHEDULE),),
    "pm2": (("startup|save", AT_START),), "ssh-copy-id": (("", ACCESS),), "update-rc.d": (("", AT_START),),
    "chkconfig": (("* on|off", AT_START),),
    "systemd-run": (("+--on-calendar|--on-active|--on-boot", SCHEDULE),), "schtasks": (("", SCHEDULE),),
    "rc-update": (("add|del", AT_START),),
}  # fmt: skip
TAKES = {"systemctl": "-H -M -t", "service": "", "fuser": "-n"}
FINDERS = {"pgrep", "pidof", "ps", "lsof", "fuser"}


def found(one: Simple, _: Ground) -> Iterator[Objection]:
    """What a command does to the machine, and what it leaves behind."""
    if one.name == BOMB:
        yield FORK_BOMB.about(one.words[-1])
    elif is_contained(one):
        return
    elif one.name == "kill":
        yield from _kill(one)
    else:
        yield from told(one, TABLE, TAKES)


def _kill(one: Simple) -> Iterator[Objection]:
    if one.words[1:2] in (("-l",), ("-L",), ("--list",), ("-0",)):
        return
    words = [word for word in one.words[1:] if word != "--"]
    if words[:1] and words[0] in ("-s", "--signal", "-n"):
        words = words[2:]
    elif words[:1] and words[0].startswith("-") and len(words) > 1:
        words = words[1:]
    if any(word in ("-1", "1", "0") or "PPID" in variables(word) for word in words):
        yield KILL_ALL.about(shown(one))
    elif any(FINDERS & set(names) for word in words for _, _, names in substitutions(word)) or any(
        source.name in FINDERS for source in one.sources
    ):
        yield KILL_NAME.about(shown(one))
