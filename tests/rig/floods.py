# SPDX-License-Identifier: Apache-2.0
"""Connections that crowd a port."""

import errno
import selectors
import socket
import threading
import time

from hosts import SLOW

RATE = 100
ADDRESSES = {"one": ["127.0.0.1"], "fifty": ["127.0.0.%d" % i for i in range(2, 52)]}


def patience(seconds, copy):
    """How long a client may take among a crowd: this many seconds, unless copy(), which no crowd disturbs, takes more than
    0.1 s. Then the machine is busy otherwise, and all takes so much longer."""
    begin = time.monotonic()
    copy()
    return seconds * SLOW * max(1, (time.monotonic() - begin) / .1)


class Flood(threading.Thread):
    """This many connections per second; each sends data, or what data() returns, and is then silent. No connection waits for
    another one, so a port that accepts slowly does not slow down the flood."""

    def __init__(self, addresses, data, port=0):
        super().__init__(daemon=True)
        self.addresses, self.data, self.port = addresses, data, port
        self.stop, self.tried, self.made, self.open = threading.Event(), 0, 0, []
        self.began, self.seconds, self.pending = time.monotonic(), 0, selectors.DefaultSelector()

    def run(self):
        self.began = time.monotonic()
        while not self.stop.is_set():
            due = self.began + self.tried / RATE
            for key, _ in self.pending.select(max(0, due - time.monotonic())):
                self.speak(key.fileobj)
            while due <= time.monotonic():
                self.knock(self.addresses[self.tried % len(self.addresses)])
                due = self.began + self.tried / RATE
            while len(self.open) > 4 * RATE:
                self.close(self.open.pop(0))
        self.seconds = time.monotonic() - self.began
        for sock in self.open:
            self.close(sock)
        self.pending.close()

    def close(self, sock):
        if sock in self.pending.get_map():
            self.pending.unregister(sock)
        sock.close()

    def knock(self, address):
        self.tried += 1
        sock = socket.socket()
        sock.setblocking(False)
        self.open.append(sock)
        try:
            sock.bind((address, 0))
            if sock.connect_ex(("127.0.0.1", self.port)) in (0, errno.EINPROGRESS):
                self.pending.register(sock, selectors.EVENT_WRITE)
        except OSError:
            # No port of this address is free.
            pass

    def speak(self, sock):
        self.pending.unregister(sock)
        # In between, no receiver listens.
        if sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            return
        try:
            sock.send(self.data() if callable(self.data) else self.data)
            self.made += 1
        except OSError:
            pass

    def end(self):
        self.stop.set()
        self.join()

    def expect_rate(self, least=0):
        """The flood was one: without that a test shows nothing, and it is no rate of our programs. Beside others on a busy
        machine this thread, too, gets a fraction of a processor, so a quarter of the rate is enough; least: of these at
        least so many were accepted."""
        print("flood: %d connections in %.1f s, of which %d were accepted" % (self.tried, self.seconds, self.made))
        assert self.tried >= RATE * self.seconds / 4, (self.tried, self.seconds)
        assert self.made >= least * self.seconds, (self.made, self.seconds)
