# SPDX-License-Identifier: Apache-2.0
"""The unit tests of lanes over verbs, which need an adapter: run where one is."""

import os
import subprocess

import pytest

from hosts import BIN, OP, RDMA, TRANSPORT

LIMIT = 400
# iWARP has no write with immediate. With one of these for all tests, the others were run without.
OPS = [OP[0].split("=")[1]] if OP else ["send", "write-send"] if TRANSPORT == "siw" else \
    ["send", "write-imm", "write-send"]


@pytest.mark.skipif(not RDMA, reason="it is about verbs")
@pytest.mark.timeout(LIMIT + 20)
@pytest.mark.parametrize("program, op", [
    *((program, op) for op in OPS for program in ("test_lane_verbs", "test_verbs_peers")),
    ("test_verbs_writes", "")])  # with each that writes
def test_verbs(program, op):
    done = subprocess.run([BIN.parent / "tests" / program], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, timeout=LIMIT,
                          env=dict(os.environ, CMOCKA_MESSAGE_OUTPUT="STDOUT", SLUICE_RDMA_OP=op), check=False)
    assert done.returncode == 0, done.stdout.decode("utf-8", "replace")[-8000:]
