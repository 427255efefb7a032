# SPDX-License-Identifier: Apache-2.0
"""The unit tests of lanes over verbs, which need an adapter: run where one is."""

import os
import subprocess

import pytest

from hosts import BIN, RDMA

LIMIT = 400


@pytest.mark.skipif(not RDMA, reason="it is about verbs")
@pytest.mark.timeout(LIMIT + 20)
@pytest.mark.parametrize("program", ["test_lane_verbs", "test_verbs_peers"])
def test_verbs(program):
    done = subprocess.run([BIN.parent / "tests" / program], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, timeout=LIMIT,
                          env=dict(os.environ, CMOCKA_MESSAGE_OUTPUT="STDOUT"), check=False)
    assert done.returncode == 0, done.stdout.decode("utf-8", "replace")[-8000:]
