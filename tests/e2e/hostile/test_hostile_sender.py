# SPDX-License-Identifier: Apache-2.0
"""A hostile receiver that answers an rdsend."""

import os
import socket

import pytest

from arena import SOON
from doors import HELLO_TO_NOBODY, sender
from hosts import SLOW

# ---- a hostile receiver ------------------------------------------------------------------------------------

DOORS = {
    "closes": (b"", True), "garbage": (os.urandom(5000), False), "text": (b"220 ready\r\n", False),
    "alert": (b"\x15\3\3\0\2\2\x28", False), "lane-hello": (HELLO_TO_NOBODY, False),
    "server-hello-of-64-KiB": (b"\x16\3\3\xff\xff" + bytes(65535), False),
    "silence": (b"", False), "half-a-record": (b"\x16\3\3\1\0", False),
}


@pytest.mark.parametrize("what", DOORS)
def test_hostile_receiver_fails_rdsend(arena, what):
    data, closes = DOORS[what]
    listener = socket.create_server(("127.0.0.1", 0))
    rdsend = sender(arena, listener.getsockname()[1], "--connect-timeout=1", "--timeout=1",
                    arena.top / "f")
    listener.settimeout(SOON * SLOW)
    sock, _ = listener.accept()
    sock.sendall(data)
    if closes:
        sock.close()
        listener.close()
    assert rdsend.wait(SOON) in (12, 30, 35, 40, 44), rdsend.errors()
    assert rdsend.errors().strip()
    sock.close()
    listener.close()
