"""The keeper's life: one turn after the other until its harness hangs up."""

from __future__ import annotations

import _socket
import os

from ralphproof.keeper.frame import receive
from ralphproof.keeper.link import Link
from ralphproof.keeper.start import Start
from ralphproof.keeper.tree import become_subreaper
from ralphproof.keeper.turn import Turn
from ralphproof.keeper.wake import Wake


def serve(fd: int) -> None:
    """Run the turns that come over the control socket. The turn that runs is always brought to its end."""
    os.set_inheritable(fd, False)
    _close_all_but(fd)
    os.chdir("/")
    become_subreaper()
    control, wake = _socket.socket(fileno=fd), Wake()
    while True:
        fields, descriptors = receive(control)
        if fields is None:
            break
        lock, line, *held = descriptors
        turn = Turn(Start(*fields), lock, Link(_socket.socket(fileno=line)), wake)
        turn.run()
        for descriptor in held:
            os.close(descriptor)
        if turn.survivors:  # they would be taken for the next turn's
            break
    os._exit(0)


def _close_all_but(fd: int) -> None:
    """Hold nothing open that the harness's parents left open: their pipes must reach their end without us."""
    for name in os.listdir("/dev/fd"):
        if int(name) > 2 and int(name) != fd:
            try:
                os.close(int(name))
            except OSError:
                continue  # the descriptor of the listing itself
