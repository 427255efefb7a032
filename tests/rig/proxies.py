# SPDX-License-Identifier: Apache-2.0
"""Between a client and a listener."""

import socket
import threading


def pass_on(one, other):
    def pump(a, b):
        try:
            while data := a.recv(1 << 16):
                b.sendall(data)
            b.shutdown(socket.SHUT_WR)
        except OSError:
            pass
    for pair in ((one, other), (other, one)):
        threading.Thread(target=pump, args=pair, daemon=True).start()


def pass_all_on(server, port):
    """Until the server is closed."""
    while True:
        try:
            near, _ = server.accept()
        except OSError:
            return
        pass_on(near, socket.create_connection(("127.0.0.1", port)))


def admit_the_third(server, port):
    """Passes the third connection on to port. Closes two before it when their handshake is complete at their own side."""
    for good in (False, False, True):
        near, _ = server.accept()
        far = socket.create_connection(("127.0.0.1", port))
        if not good:
            far.sendall(near.recv(4096))
            near.sendall(far.recv(4096))
            # Its Finished, and perhaps more.
            near.recv(4096)
            near.close()
            far.close()
    pass_on(near, far)
