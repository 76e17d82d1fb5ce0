"""A free port for a server, a proxy, or somebody who wants to be refused."""

from __future__ import annotations

import random
import socket
from pathlib import Path


def free_port() -> int:
    """A port that nobody listens on, below those that the kernel hands to outgoing connections.

    From among the latter, a client that retries while the server is down may be given the server's
    own port, and connect to itself.
    """
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = random.randrange(10_000, max(lowest, 20_000))
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                return port
