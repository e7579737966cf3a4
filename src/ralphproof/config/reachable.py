"""What is wrong with an entry of the lists that say what a sandbox reaches."""

from __future__ import annotations

import os

from ralphproof.sandboxes.ecosystems import hosts_of
from ralphproof.sandboxes.egress_rules import problem_with
from ralphproof.sandboxes.places import hidden, within


def bad_host(entry: str) -> str:
    """What is wrong with a host; empty where nothing is. The name of an ecosystem stands for its registries."""
    return next((problem for host in hosts_of(entry) if (problem := problem_with(host))), "")


def bad_path(entry: str) -> str:
    """What is wrong with a path that may be read; empty where nothing is."""
    path, home = os.path.expanduser(entry), os.path.expanduser("~")
    if not os.path.isabs(path):
        return f"{entry!r} is not absolute; write the whole path, or ~/..."
    if within(home, os.path.normpath(path)) or within(os.path.realpath(home), os.path.realpath(path)):
        return f"{entry!r} holds your home folder; name what is needed in it"
    if secret := hidden(home, os.environ).in_(path):
        return f"{entry!r} would show {secret}, which no sandbox shows; name what is needed"
    return ""
