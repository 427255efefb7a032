# SPDX-License-Identifier: Apache-2.0
"""The examples of rdcp(1), rdsend(1) and rdrecv(1) run as printed, except ports, addresses and the slash of
absolute names."""

import os
import re
import subprocess

import pytest

from examples import DATA, FAR, NEAR, lines, manual
from networks import free_port

COPIES = [e[0] for e in lines(manual("rdcp.1"))]
EXAMPLES = [e for page in ("rdsend.1", "rdrecv.1") for e in lines(manual(page))]
STREAMS = [e for e in EXAMPLES if len(e) == 2]
SENDERS = [e[0] for e in EXAMPLES if len(e) == 1 and "rdrecv" not in e[0] and "--make-key" not in e[0]]
RECEIVERS = [e[0] for e in EXAMPLES if len(e) == 1 and "rdrecv" in e[0] and "rdsend" not in e[0]]
RELAYS = [e[0] for e in EXAMPLES if len(e) == 1 and "rdrecv" in e[0] and "rdsend" in e[0]]
MAKE_KEY = next(e[0] for e in EXAMPLES if "--make-key" in e[0])


def test_every_example_is_covered():
    assert len(COPIES) >= 10 and all("rdcp " in line for line in COPIES)
    assert len(STREAMS) >= 3 and SENDERS and RECEIVERS and RELAYS
    made = [e for e in EXAMPLES if "--make-key" in e[0]]
    assert len(STREAMS) + len(SENDERS) + len(RECEIVERS) + len(RELAYS) + len(made) == len(EXAMPLES)


@pytest.mark.parametrize("line", COPIES)
def test_rdcp_example_works(shells, line):
    near, far = shells.homes[NEAR], shells.homes[FAR]
    for name in ("run7/x", "srv/www/x", "node_modules/x", "data/x", "data/set/x", "model.bin", "disk.img", "big", "file"):
        (near / name).parent.mkdir(parents=True, exist_ok=True)
        (near / name).write_bytes(DATA)
    (near / "stamp").touch()
    os.utime(near / "stamp", (0, 0))
    (near / "bad").write_bytes(b"./run7/x\0")
    for name in ("scratch/run7", "srv", "dev/shm", "archive", "data"):
        (far / name).mkdir(parents=True)
    (far / "scratch/run7/1.dat").write_bytes(DATA)
    line = re.sub(r"(?<=[:\s])/(?=\w)", "", line)
    port = free_port()
    shells.run(NEAR, re.sub(r"(?<=--port-range=)\S+", "%d-%d" % (port, port + 9), line))


@pytest.fixture
def prepared(shells):
    """A file, also compressed, and a key that both hosts have."""
    near, far = shells.homes[NEAR], shells.homes[FAR]
    for name in ("file", "image.raw", "x"):
        (near / name).write_bytes(DATA)
    (near / "p").write_text("a password\n")
    (far / "p").write_text("a password\n")
    shells.run(NEAR, MAKE_KEY)
    return shells


def opposite(line):
    """For a sender's or a receiver's line alone: the words that the other end must have."""
    return "--key-file k" if "--key-file" in line else "", "" if "--key-file" in line else "-"


def received(shells):
    far = shells.homes[FAR]
    names = [n for n in ("received", "image.raw", "x", "file") if (far / n).exists()]
    assert len(names) == 1
    return (far / names[0]).read_bytes()


@pytest.mark.parametrize("pair", STREAMS, ids=lambda p: p[1])
def test_stream_example_works(prepared, pair):
    port = free_port()
    sink = prepared.receive(pair[0], port)
    source = prepared.send(pair[1], port)
    assert (source.wait(), sink.wait()) == (0, 0), source.errors() + sink.errors()
    assert received(prepared) == DATA


@pytest.mark.parametrize("line", SENDERS)
def test_sender_example_works(prepared, line):
    option, key = opposite(line)
    port = free_port()
    sink = prepared.receive("rdrecv %s 7000 %s -- tar x" % (option, key), port)
    source = prepared.send(line, port)
    assert (source.wait(), sink.wait()) == (0, 0), source.errors() + sink.errors()
    assert (prepared.homes[FAR] / "x").read_bytes() == DATA


@pytest.mark.parametrize("line", RECEIVERS)
def test_receiver_example_works(prepared, line):
    option, key = opposite(line)
    port = free_port()
    sink = prepared.receive(line.replace(" 0 ", " %d " % port), port)
    source = prepared.send("tar c x | rdsend %s HOST 7000 %s" % (option, key), port)
    assert (source.wait(), sink.wait()) == (0, 0), source.errors() + sink.errors()
    if "tar x" in line:
        assert received(prepared) == DATA
    else:
        there = subprocess.run(["tar", "xO"], input=received(prepared), capture_output=True, check=True)
        assert there.stdout == DATA


@pytest.mark.parametrize("line", RELAYS)
def test_relay_example_works(prepared, line):
    option, key = opposite(line)
    here, there = free_port(), free_port()
    last = prepared.receive("rdrecv %s 7000 %s file" % (option, key), there)
    incoming, outgoing = line.split(" -- ")
    middle = prepared.receive(prepared.fill(incoming, here) + " -- " + prepared.fill(outgoing + " ", there), here)
    first = prepared.send("rdsend %s HOST 7000 %s < file" % (option, key), here)
    assert [p.wait() for p in (first, middle, last)] == [0, 0, 0], first.errors() + middle.errors() + last.errors()
    assert received(prepared) == DATA
