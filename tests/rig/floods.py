# SPDX-License-Identifier: Apache-2.0
"""Connections that crowd a port."""

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
    """This many connections per second; each sends data, or what data() returns, and is then silent."""

    def __init__(self, addresses, data, port=0):
        super().__init__(daemon=True)
        self.addresses, self.data, self.port = addresses, data, port
        self.stop, self.made, self.open = threading.Event(), 0, []

    def run(self):
        begin, n = time.monotonic(), 0
        while not self.stop.is_set():
            self.stop.wait(max(0, begin + n / RATE - time.monotonic()))
            n += 1
            self.knock(self.addresses[n % len(self.addresses)])
            while len(self.open) > 4 * RATE:
                self.open.pop(0).close()
        for sock in self.open:
            sock.close()

    def knock(self, address):
        sock = socket.socket()
        try:
            sock.bind((address, 0))
            sock.settimeout(1)
            sock.connect(("127.0.0.1", self.port))
            sock.sendall(self.data() if callable(self.data) else self.data)
            self.open.append(sock)
            self.made += 1
        except OSError:
            # In between, no receiver listens.
            sock.close()

    def end(self):
        self.stop.set()
        self.join()
