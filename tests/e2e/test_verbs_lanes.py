# SPDX-License-Identifier: Apache-2.0
"""The unit tests of lanes over verbs, which need an adapter: run where one exists."""

import os
import subprocess

import pytest

from hosts import BIN, COUNT, OP, TRANSPORT

pytestmark = [pytest.mark.moves_blocks, pytest.mark.lab, pytest.mark.lab_first]
LIMIT = 600
# With SLUICE_RDMA_OP set for the whole run, the other operations have runs of their own. iWARP has no write with
# immediate; a short run tests one sending and one writing operation on one adapter.
OPS = [OP[0].split("=")[1]] if OP else \
    ["send"] if TRANSPORT == "siw" and COUNT == 1 else ["write-imm"] if COUNT == 1 else \
    ["send", "write-send"] if TRANSPORT == "siw" else ["send", "write-imm", "write-send"]


@pytest.mark.needs("verbs", why="it is about verbs; the lab runs it")
@pytest.mark.timeout(LIMIT + 20)
@pytest.mark.parametrize("program, op", [
    *(("test_lane_verbs", op) for op in OPS),
    *(("test_verbs_peers", op) for op in (OPS if COUNT > 1 else OPS[:1])),
    ("test_verbs_writes", "")])  # with each writing operation
def test_verbs_unit_test_passes(program, op):
    done = subprocess.run([BIN.parent / "tests" / program], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, timeout=LIMIT,
                          env=dict(os.environ, CMOCKA_MESSAGE_OUTPUT="STDOUT", SLUICE_RDMA_OP=op), check=False)
    # Passed tests are left out, so that a summary has room for the failed ones.
    said = [line for line in done.stdout.decode("utf-8", "replace").splitlines()
            if not line.startswith(("[ RUN ", "[       OK"))]
    assert done.returncode == 0, "\n".join(said[-100:])
