# SPDX-License-Identifier: Apache-2.0
"""Network namespaces of a test's own. Making them needs root, and a container that permits it."""

import socket
import subprocess
import uuid


def free_port():
    with socket.socket() as s:
        s.bind(("", 0))
        return s.getsockname()[1]


class Networks:
    """names: those of the namespaces."""

    def __init__(self, count=2):
        self.names = ["sl" + uuid.uuid4().hex[:8] for _ in range(count)]

    def make(self):
        """Each has its own loopback; False: they cannot be made here."""
        for i, name in enumerate(self.names):
            if subprocess.run(["ip", "netns", "add", name], capture_output=True).returncode:
                return False
            assert self.ip(i, "link", "set", "lo", "up")
        return True

    def remove(self):
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)

    def on(self, i):
        """The words that run a command in that namespace."""
        return ["ip", "netns", "exec", self.names[i]]

    def ip(self, i, *words):
        return subprocess.run(["ip", "-n", self.names[i], *words], capture_output=True).returncode == 0

    def join(self, subnet, one=(), other=()):
        """A wire between the first two, v0 in both; SUBNET.1 and SUBNET.2. one, other: more words about its ends."""
        assert self.ip(0, "link", "add", "v0", *one, "type", "veth", "peer", "name", "v0", *other, "netns", self.names[1])
        for i in (0, 1):
            assert self.ip(i, "addr", "add", "%s.%d/24" % (subnet, i + 1), "dev", "v0")
            assert self.ip(i, "link", "set", "v0", "up")

    def shape(self, *words):
        """In both directions; returns whether this kernel can do that."""
        return all(subprocess.run(["tc", "-n", name, "qdisc", "replace", "dev", "v0", "root", *words],
                                  capture_output=True).returncode == 0 for name in self.names)
