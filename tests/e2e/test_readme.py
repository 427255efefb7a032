# SPDX-License-Identifier: Apache-2.0
"""Every example of the README runs as printed."""

import pytest

from examples import DATA, FAR, NEAR, lines, readme
from networks import free_port

EXAMPLES = list(lines(readme()))
COPIES = [e[0] for e in EXAMPLES if e[0].startswith("rdcp ")]
STREAMS = [e for e in EXAMPLES if len(e) == 2]
KEYS = [e[0] for e in EXAMPLES if e[0].startswith("rdsend --make-key")]


def test_every_example_is_covered():
    assert len(COPIES) >= 4 and len(STREAMS) == len(KEYS) == 1
    assert len(COPIES) + len(STREAMS) + len(KEYS) == len(EXAMPLES)


@pytest.mark.parametrize("line", COPIES)
def test_copy_example_works(shells, line):
    for home in shells.homes.values():
        (home / "tree" / "sub").mkdir(parents=True)
        for name in ("file", "run1.dat", "run2.dat", "tree/sub/x.o"):
            (home / name).write_bytes(DATA)
    shells.run(NEAR, line)


def test_stream_example_works(shells):
    near, far = shells.homes[NEAR], shells.homes[FAR]
    (near / "file").write_bytes(DATA)
    shells.run(NEAR, KEYS[0])
    shells.copy_key("key")
    port = free_port()
    sink = shells.receive(STREAMS[0][0], port)
    source = shells.send(STREAMS[0][1], port)
    assert (source.wait(), sink.wait()) == (0, 0), source.errors() + sink.errors()
    assert (far / "received").read_bytes() == DATA
