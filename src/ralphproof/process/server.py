"""The keeper's main loop: turns that come over the control socket."""

from __future__ import annotations

import _socket
import os

from ralphproof.process.protocol import HarnessLink, SignalPipe, StartMessage, receive_frame
from ralphproof.process.tree import become_subreaper
from ralphproof.process.turn import KeeperTurn


def serve(fd: int) -> None:
    """Run the turns that come over the control socket, one after the other, each to its end."""
    os.set_inheritable(fd, False)
    _close_other_descriptors(fd)
    os.chdir("/")
    become_subreaper()
    control, wake = _socket.socket(fileno=fd), SignalPipe()
    while True:
        fields, descriptors = receive_frame(control)
        if fields is None:
            break
        lock, line, *held = descriptors
        turn = KeeperTurn(StartMessage(*fields), lock, HarnessLink(_socket.socket(fileno=line)), wake)
        turn.run()
        for descriptor in held:
            os.close(descriptor)
        if turn.survivors:  # they would be taken for the next turn's
            break
    os._exit(0)


def _close_other_descriptors(fd: int) -> None:
    """Close what the harness's parents left open, so that their pipes reach end of file without us."""
    for name in os.listdir("/dev/fd"):
        if int(name) > 2 and int(name) != fd:
            try:
                os.close(int(name))
            except OSError:
                continue  # the descriptor of the listing itself
