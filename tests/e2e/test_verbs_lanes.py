# SPDX-License-Identifier: Apache-2.0
"""The unit tests of lanes over verbs, which need an adapter: run where one exists."""

import os
import subprocess

import pytest

from hosts import BIN, COUNT, IWARP, OP, SIM, simulated

pytestmark = [pytest.mark.moves_blocks, pytest.mark.first]
LIMIT = 600
# With SLUICE_RDMA_OP set for the whole run, the other operations have runs of their own. iWARP has no write with
# immediate; a short run tests one sending and one writing operation on one adapter.
OPS = [OP[0].split("=")[1]] if OP else \
    ["send"] if IWARP and COUNT == 1 else ["write-imm"] if COUNT == 1 else \
    ["send", "write-send"] if IWARP else ["send", "write-imm", "write-send"]


def hosts():
    """The simulated addresses of tests/unit/rig/verbs_door.c: loopback's own are to have no adapter."""
    return simulated(addresses=["127.77.0.1", "127.77.0.2", "fd77:7::1", "fd77:7::2"], silent=["127.77.0.9"]) if SIM else {}


@pytest.mark.needs("verbs", why="it is about verbs; the lab runs it")
@pytest.mark.timeout(LIMIT + 20)
@pytest.mark.lab(cases="test_verbs_*")
# Two minutes on an emulated processor; simulated adapters show the same.
@pytest.mark.lab(cases="test_lane_verbs-*", long=True)
@pytest.mark.parametrize("program, op", [
    # As in tests/simverbs/meson.build: the largest lane needs more locked memory than is common, and siw asks root too.
    *(("test_lane_verbs", op) for op in (OPS if SIM != "siw-iwarp" else [])),
    *(("test_verbs_peers", op) for op in (OPS if COUNT > 1 else OPS[:1])),
    ("test_verbs_writes", "")])  # with each writing operation
def test_verbs_unit_test_passes(program, op):
    done = subprocess.run([BIN.parent / "tests" / program], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, timeout=LIMIT,
                          env=dict(os.environ, CMOCKA_MESSAGE_OUTPUT="STDOUT", SLUICE_RDMA_OP=op, **hosts()), check=False)
    # Passed tests are left out, so that a summary has room for the failed ones.
    said = [line for line in done.stdout.decode("utf-8", "replace").splitlines()
            if not line.startswith(("[ RUN ", "[       OK"))]
    assert done.returncode == 0, "\n".join(said[-100:])
