# SPDX-License-Identifier: Apache-2.0
"""Every status that a completion can have (enum ibv_wc_status), of a send and of a receive, at either end
(tests/simverbs/order.h orders it): the lane is mended, or the session ends with the reason, in time."""

import time

import pytest

from hosts import IWARP, pattern

pytestmark = [
    pytest.mark.moves_blocks,
    pytest.mark.each_value,
    pytest.mark.needs("sim", why="it orders the statuses of a simulated adapter"),
]
BLOCK = 256 << 10
AUTO = "--transport=auto"
# ibv_wc_status_str(3)
NAMES = {
    1: "local length error", 2: "local QP operation error", 3: "local EE context operation error", 4: "local protection error",
    5: "Work Request Flushed Error", 6: "memory management operation error", 7: "bad response error", 8: "local access error",
    9: "remote invalid request error", 10: "remote access error", 11: "remote operation error",
    12: "transport retry counter exceeded", 13: "RNR retry counter exceeded", 14: "local RDD violation error",
    15: "remote invalid RD request", 16: "aborted error", 17: "invalid EE context number", 18: "invalid EE context state",
    19: "fatal error", 20: "response timeout error", 21: "general error",
}
FLUSHED = 5
# A few of them are in every run.
statuses = pytest.mark.parametrize("status", [
    pytest.param(s, marks=[pytest.mark.lanes] if s in (1, FLUSHED, 13) else []) for s in NAMES])
work = pytest.mark.parametrize("work", ["status", "receive"])
ends = pytest.mark.parametrize("end", ["source", "sink"])


class Stream:
    """A file from rdsend to rdrecv, one of which has a fault."""

    def __init__(self, bench, tmp_path, end, fault, *options, transport="--transport=rdma", blocks=120):
        self.data = pattern(blocks * BLOCK)
        (tmp_path / "in").write_bytes(self.data)
        env = {which: {"SIMVERBS_FAULT": fault if which == end else ""} for which in ("source", "sink")}
        began = time.monotonic()
        self.sink = bench.receive("-v", *options, tmp_path / "out", transport=transport, env=env["sink"])
        self.source = bench.send(self.sink.port, "-v", *options, tmp_path / "in", transport=transport, env=env["source"])
        self.codes = self.source.wait(), self.sink.wait()
        self.took = time.monotonic() - began
        self.said = {"source": self.source.errors(), "sink": self.sink.errors()}
        self.moved = (tmp_path / "out").exists() and (tmp_path / "out").read_bytes() == self.data

    def all(self):
        return self.said["source"] + self.said["sink"]


@statuses
@work
@ends
def test_a_lane_is_mended_after_any_status(bench, tmp_path, status, work, end):
    s = Stream(bench, tmp_path, end, "%s:n=20,is=%d" % (work, status), "--lanes=1")
    assert s.codes == (0, 0) and s.moved, s.all()
    assert "reconnected over rdma" in s.all() and "TCP" not in s.all(), s.all()
    # Neither end has a cause of what was only flushed.
    causes = ["the connection was closed", "the peer closed the connection"] if status == FLUSHED else [NAMES[status]]
    assert any(cause in s.said[end] for cause in causes), s.all()
    assert s.took < 15, s.all()


# WRITEs, and the receives of their notices.
@pytest.mark.parametrize("status", [4, FLUSHED, 10, 12])
@pytest.mark.parametrize("op", ["write-send"] if IWARP else ["write-imm", "write-send"])  # iWARP has no immediates
@work
@ends
def test_a_lane_that_writes_is_mended_too(bench, tmp_path, status, op, work, end):
    s = Stream(bench, tmp_path, end, "%s:n=20,is=%d" % (work, status), "--lanes=1", "--rdma-op=" + op)
    assert s.codes == (0, 0) and s.moved, s.all()
    assert "reconnected over rdma" in s.all(), s.all()


@pytest.mark.lanes
@pytest.mark.parametrize("op", ["send", "write-send"])
@ends
def test_a_lane_is_mended_after_an_empty_receive(bench, tmp_path, end, op):
    """No end sends an empty message; rxe has completed a receive so once, without an error."""
    s = Stream(bench, tmp_path, end, "receive:n=20,is=100", "--lanes=1", "--rdma-op=" + op)
    assert s.codes == (0, 0) and s.moved, s.all()
    assert "reconnected over rdma" in s.all() and "received an empty message" in s.all(), s.all()


@statuses
@work
def test_a_lane_that_never_comes_up_leaves_tcp(bench, tmp_path, status, work):
    """Each send or receive of the source has it, from the first one on."""
    s = Stream(bench, tmp_path, "source", "%s:n=0,is=%d" % (work, status), "--connect-timeout=4", transport=AUTO)
    assert s.codes == (0, 0) and s.moved, s.all()
    cause = "the connection was closed" if status == FLUSHED else NAMES[status]
    assert any("over TCP, not RDMA: " in line and cause in line for line in s.said["source"].splitlines()), s.all()
    assert s.took < 4 + 10, s.all()


@statuses
@work
def test_a_lane_that_never_comes_up_ends_a_session_that_may_not_use_tcp(bench, tmp_path, status, work):
    s = Stream(bench, tmp_path, "source", "%s:n=0,is=%d" % (work, status), "--connect-timeout=4", blocks=4)
    cause = "the connection was closed" if status == FLUSHED else NAMES[status]
    assert s.codes[0] != 0 and s.codes[1] != 0 and cause in s.said["source"], (s.codes, s.all())
    assert s.took < 4 + 10, s.all()


@pytest.mark.parametrize("status", [11, 12])
@work
@pytest.mark.lanes
def test_a_lane_that_breaks_again_and_again_ends_in_time(bench, tmp_path, status, work):
    """It comes up each time, and breaks with its third message."""
    s = Stream(bench, tmp_path, "source", ";".join("%s:n=%d,is=%d" % (work, n, status) for n in range(20, 60, 3)), "--timeout=6",
               "--lanes=1", transport=AUTO)
    assert s.codes == (0, 0) and s.moved, s.all()
    assert s.took < 40, s.all()
