# SPDX-License-Identifier: Apache-2.0
"""Network namespaces for one test. Making them needs root, and a container that permits it."""

import ctypes
import os
import socket
import subprocess
import threading
import uuid

CLONE_NEWNET = 0x40000000


def free_port():
    with socket.socket() as s:
        s.bind(("", 0))
        return s.getsockname()[1]


def enter_network(name):
    """Puts the calling thread into a namespace, and no other thread."""
    fd = os.open("/run/netns/" + name, os.O_RDONLY)
    try:
        assert ctypes.CDLL(None, use_errno=True).setns(fd, CLONE_NEWNET) == 0
    finally:
        os.close(fd)


class Networks:
    """names: the names of the namespaces."""

    def __init__(self, count=2):
        self.names = ["sl" + uuid.uuid4().hex[:8] for _ in range(count)]
        self.forwarders = []

    def make(self):
        """Makes the namespaces, each with loopback. Returns False if they cannot be made here."""
        for i, name in enumerate(self.names):
            if subprocess.run(["ip", "netns", "add", name], capture_output=True).returncode:
                return False
            # In a chroot that is no mount point ip makes one, and can't enter it.
            if subprocess.run([*self.on(i), "true"], capture_output=True).returncode:
                return False
            assert self.ip(i, "link", "set", "lo", "up")
        return True

    def remove(self):
        for forwarder in self.forwarders:
            forwarder.server.close()
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

    def mute(self, subnet, on):
        """What join() connected carries nothing, or works again. Neither host sees it: packets go to an address that nobody has."""
        for i in (0, 1):
            neighbour = "%s.%d" % (subnet, 2 - i)
            assert self.ip(i, *(["neigh", "replace", neighbour, "lladdr", "02:00:00:00:00:99", "nud", "permanent"] if on else ["neigh", "del", neighbour]),
                           "dev", "v0")

    def forward(self, outside, inside, to):
        """Returns a port of loopback in one namespace that leads to an address in another one."""
        self.forwarders.append(Forwarder(self.names[outside], self.names[inside], to))
        return self.forwarders[-1].port

    def shape(self, *words):
        """Sets a queueing discipline in both directions. Returns whether this kernel can do that."""
        return all(subprocess.run(["tc", "-n", name, "qdisc", "replace", "dev", "v0", "root", *words],
                                  capture_output=True).returncode == 0 for name in self.names)


class Forwarder(threading.Thread):
    """What NAT and `ssh -L` do with connections."""

    def __init__(self, outside, inside, to):
        super().__init__(daemon=True)
        self.outside, self.inside, self.to, self.port = outside, inside, to, None
        self.ready = threading.Event()
        self.start()
        assert self.ready.wait(30) and self.port

    def run(self):
        try:
            enter_network(self.outside)
            self.server = socket.create_server(("127.0.0.1", 0))
            enter_network(self.inside)
            self.port = self.server.getsockname()[1]
        finally:
            self.ready.set()
        while True:
            try:
                near, _ = self.server.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(self.to)
            except OSError:
                near.close()
                continue
            for ends in ((near, far), (far, near)):
                threading.Thread(target=self.pump, args=ends, daemon=True).start()

    @staticmethod
    def pump(source, sink):
        try:
            for data in iter(lambda: source.recv(1 << 16), b""):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            # As a router that forgets the connection: both sides learn of it.
            for sock in (source, sink):
                try:
                    sock.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass
