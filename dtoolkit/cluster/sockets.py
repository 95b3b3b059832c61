"""The sockets under a process group: found by port, counted by the kernel, cut on demand.

Nothing in torch or Gloo frees a rank that waits for a dead or stopped peer. Shutting down the
connected sockets of the group does: every waiting rank then gets a connection error. Sockets are
recognised by the ports that the group listens on, so that Dask's own are never touched; listening
sockets are left alone (shutting one down ends the process).
"""

from __future__ import annotations

import os
import socket
import struct
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Connection", "by_rank", "connections", "cut", "cut_pairs", "listening_ports"]

# Offsets in Linux's struct tcp_info (include/uapi/linux/tcp.h).
_BYTES_ACKED = 120
_BYTES_RECEIVED = 128
_TCP_INFO_SIZE = 136


class Connection:
    """One connected socket of a group.

    Attributes
    ----------
    local, remote : int
        Ports at this end and at the other.
    sent, received : int
        Payload bytes that the kernel counted (acknowledged by the peer; received). -1 where the
        system does not tell (macOS).
    """

    __slots__ = ("local", "received", "remote", "sent")

    def __init__(self, sock: socket.socket) -> None:
        self.local: int = sock.getsockname()[1]
        self.remote: int = sock.getpeername()[1]
        self.sent, self.received = _counters(sock)


def listening_ports() -> set[int]:
    """Ports that this process listens on."""
    return {sock.getsockname()[1] for sock in _sockets() if _listens(sock)}


def connections(ports: Collection[int]) -> list[Connection]:
    """Connected sockets of this process with one of `ports` at either end."""
    found = []
    for sock in _sockets():
        if _belongs(sock, ports):
            try:
                found.append(Connection(sock))
            except OSError:  # closed since
                continue
    return found


def cut(ports: Collection[int]) -> int:
    """Shut down the connected sockets with one of `ports` at either end; returns how many."""
    return _shut(lambda sock: _belongs(sock, ports))


def cut_pairs(pairs: Collection[tuple[int, int]]) -> int:
    """Shut down the connected sockets with these (local, remote) ports; returns how many."""

    def chosen(sock: socket.socket) -> bool:
        local, remote = sock.getsockname()[1], sock.getpeername()[1]
        return (local, remote) in pairs

    return _shut(chosen)


def by_rank(answers: Sequence[Any]) -> NDArray[np.int64]:
    """Received bytes by source and target, from each rank's ports and connections."""
    size = len(answers)
    total = np.zeros((size, size), np.int64)
    # The end that connected knows whom it called by the port; the end that accepted is found as
    # the mirror image of that connection.
    caller = {}
    for rank, (ports, found) in enumerate(answers):
        for local, remote, _, _ in found:
            if remote in ports and local not in ports:
                caller[(local, remote)] = (rank, ports.index(remote))
    for _, found in answers:
        for local, remote, _, received in found:
            if (local, remote) in caller:
                me, peer = caller[(local, remote)]
            elif (remote, local) in caller:
                peer, me = caller[(remote, local)]
            else:
                continue
            total[peer, me] += received
    return total


def _shut(chosen: Callable[[socket.socket], bool]) -> int:
    count = 0
    for sock in _sockets():
        try:
            if chosen(sock):
                sock.shutdown(socket.SHUT_RDWR)
                count += 1
        except OSError:  # closed since, or not connected
            continue
    return count


def _sockets() -> Iterator[socket.socket]:
    # /dev/fd is there on Linux and macOS. A duplicate is looked at, so that closing it afterwards
    # leaves the original open; a shutdown acts on the connection itself.
    for name in os.listdir("/dev/fd"):
        try:
            copy = os.dup(int(name))
        except OSError:  # closed since
            continue
        try:
            sock = socket.socket(fileno=copy)
        except OSError:  # not a socket
            os.close(copy)
            continue
        with sock:
            if sock.family in (socket.AF_INET, socket.AF_INET6) and sock.type == socket.SOCK_STREAM:
                yield sock


def _listens(sock: socket.socket) -> bool:
    try:
        return bool(sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
    except OSError:
        return False


def _belongs(sock: socket.socket, ports: Collection[int]) -> bool:
    if _listens(sock):
        return False
    try:
        return sock.getsockname()[1] in ports or sock.getpeername()[1] in ports
    except OSError:  # not connected
        return False


def _counters(sock: socket.socket) -> tuple[int, int]:
    if sys.platform != "linux":
        return -1, -1
    info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
    if len(info) < _TCP_INFO_SIZE:
        return -1, -1
    return (
        struct.unpack_from("=Q", info, _BYTES_ACKED)[0],
        struct.unpack_from("=Q", info, _BYTES_RECEIVED)[0],
    )
