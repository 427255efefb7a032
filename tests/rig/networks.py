# SPDX-License-Identifier: Apache-2.0
"""Network namespaces for one test. Making them needs root, and a container that permits it."""

import socket
import subprocess
import uuid


def free_port():
    with socket.socket() as s:
        s.bind(("", 0))
        return s.getsockname()[1]


class Networks:
    """names: the names of the namespaces."""

    def __init__(self, count=2):
        self.names = ["sl" + uuid.uuid4().hex[:8] for _ in range(count)]

    def make(self):
        """Makes the namespaces, each with loopback. Returns False if they cannot be made here."""
        for i, name in enumerate(self.names):
            if subprocess.run(["ip", "netns", "add", name], capture_output=True).returncode:
                return False
            assert self.ip(i, "link", "set", "lo", "up")
        return True

    def remove(self):
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)

    def on(self, i):
        """The words that run a command in namespace i."""
        return ["ip", "netns", "exec", self.names[i]]

    def ip(self, i, *words):
        return subprocess.run(["ip", "-n", self.names[i], *words], capture_output=True).returncode == 0

    def join(self, subnet, one=(), other=()):
        """Connects the first two namespaces by v0, with the addresses SUBNET.1 and SUBNET.2. one, other: more words of
        `ip link' for its ends."""
        assert self.ip(0, "link", "add", "v0", *one, "type", "veth", "peer", "name", "v0", *other, "netns", self.names[1])
        for i in (0, 1):
            assert self.ip(i, "addr", "add", "%s.%d/24" % (subnet, i + 1), "dev", "v0")
            assert self.ip(i, "link", "set", "v0", "up")

    def shape(self, *words):
        """Sets a queueing discipline in both directions. Returns whether this kernel can do that."""
        return all(subprocess.run(["tc", "-n", name, "qdisc", "replace", "dev", "v0", "root", *words],
                                  capture_output=True).returncode == 0 for name in self.names)
