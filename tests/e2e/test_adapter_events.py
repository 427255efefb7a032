# SPDX-License-Identifier: Apache-2.0
"""What happens to adapters while they carry a copy (tests/simverbs/plug.h, order.h): a port goes down and up, an adapter
is pulled out and put back, a queue pair fails. The copy goes on or ends in time, and the user learns why."""

import os
import pathlib
import time

import pytest

from hosts import pattern, simulated, wait_until

pytestmark = [
    pytest.mark.moves_blocks,
    pytest.mark.needs("sim", why="it pulls a simulated adapter"),
]
BLOCK = 256 << 10
AUTO = "--transport=auto"
BYTES = 32 << 20
# The time that a copy over such a link takes.
SECONDS = 4
LINK = ["bandwidth %d" % (BYTES * 8 // SECONDS // 1000000)]


class Machine:
    """A host whose adapter is slow, so that a copy is in mid-transfer when something happens to it."""

    def __init__(self, bench, tmp_path, words=LINK):
        self.env = simulated(link_words=words)
        self.top = pathlib.Path(self.env["SIMVERBS"])
        self.bench, self.tmp = bench, tmp_path
        self.data = pattern(BYTES)
        (tmp_path / "in").write_bytes(self.data)

    def set(self, name, there):
        (self.top / name).touch() if there else (self.top / name).unlink()

    def start(self, *options, transport="--transport=rdma", fault=""):
        r = self.bench.copy(*options, "in", "far:%s/out" % self.tmp, transport=transport, wait=False,
                            env={**self.env, "SIMVERBS_FAULT": fault})
        self.began = time.monotonic()
        return r

    def await_data(self):
        """Wait until some of the file is at the target."""
        wait_until(lambda: any(p.stat().st_blocks * 512 >= BYTES // 8 for p in self.tmp.glob(".sluice.*")))

    def finish(self, r, code=0, timeout=60):
        got = r.wait(timeout)
        self.took = time.monotonic() - self.began
        assert got == code, (got, r.errors())
        if code == 0:
            assert (self.tmp / "out").read_bytes() == self.data
        return r.errors()


@pytest.fixture
def machine(bench, tmp_path):
    return Machine(bench, tmp_path)


def warnings(text):
    """Without -v there is one line for all lanes."""
    return [line for line in text.splitlines() if "TCP" in line]


@pytest.mark.lanes
def test_a_port_that_comes_back_is_waited_for(machine):
    r = machine.start("-v")
    machine.await_data()
    machine.set("down", True)
    time.sleep(3)
    machine.set("down", False)
    text = machine.finish(r)
    assert "/1 went down" in text, text
    assert machine.took < SECONDS + 3 + 10


def test_a_port_that_stays_down_leaves_tcp(machine):
    r = machine.start(transport=AUTO)
    machine.await_data()
    machine.set("down", True)
    text = machine.finish(r)
    assert len(warnings(text)) == 1, text
    assert machine.took < 20


def test_a_port_that_stays_down_ends_a_copy_that_may_not_use_tcp(machine):
    r = machine.start("--timeout=4")
    machine.await_data()
    machine.set("down", True)
    down = time.monotonic()
    machine.finish(r, code=44)
    assert time.monotonic() - down < 4 * 3 + 5


@pytest.mark.lanes
def test_an_adapter_that_is_pulled_out_leaves_tcp(machine):
    r = machine.start(transport=AUTO)
    machine.await_data()
    machine.set("pulled", True)
    text = machine.finish(r)
    assert len(warnings(text)) == 1 and "firewall" not in text, text
    assert machine.took < 20


def test_an_adapter_that_is_pulled_out_ends_a_copy_that_may_not_use_tcp(machine):
    r = machine.start("--timeout=4")
    machine.await_data()
    machine.set("pulled", True)
    pulled = time.monotonic()
    assert "firewall" not in machine.finish(r, code=44)
    assert time.monotonic() - pulled < 4 * 3 + 5


@pytest.mark.lanes
def test_an_adapter_that_is_put_back_is_used_again(machine):
    r = machine.start("-v")
    machine.await_data()
    machine.set("pulled", True)
    time.sleep(2)
    machine.set("pulled", False)
    machine.finish(r)


def count_event_descriptors(pid):
    names = [os.readlink("/proc/%d/fd/%s" % (pid, fd)) for fd in os.listdir("/proc/%d/fd" % pid)]
    return sum(name.startswith("anon_inode:[eventfd") for name in names)


def test_a_removed_adapter_leaves_no_descriptors_of_lanes(machine):
    """Its queues stay allocated (tests/simverbs/README.md), and so does the descriptor of its events, but not the four
    that its lanes wait at for completions."""
    sink = machine.bench.receive("--lanes=4", machine.tmp / "out", env=machine.env)
    source = machine.bench.send(sink.port, "-v", "--lanes=4", "--bwlimit=2m", machine.tmp / "in", env=machine.env)
    source.expect("data goes over RDMA")
    time.sleep(2)  # for the other lanes
    counts = []
    for i in (1, 2):
        machine.set("pulled", True)
        time.sleep(1)
        machine.set("pulled", False)
        wait_until(lambda: source.errors().count("was reconnected") >= 4 * i)
        time.sleep(1)
        counts.append(count_event_descriptors(source.proc.pid))
    source.kill()
    sink.kill()
    assert counts[1] - counts[0] < 4, counts


def test_a_lane_returns_from_tcp_to_an_adapter_that_is_put_back(bench, tmp_path):
    """The data goes slowly over TCP, too."""
    m = Machine(bench, tmp_path)
    r = m.start("--bwlimit=%d" % (BYTES // SECONDS // 2), transport=AUTO)
    m.await_data()
    m.set("pulled", True)
    r.expect("over TCP, not RDMA", 5)
    m.set("pulled", False)
    assert "RDMA works now" in m.finish(r)


@pytest.mark.parametrize("event", ["QP_FATAL", "QP_REQ_ERR", "QP_ACCESS_ERR", "CQ_ERR", "DEVICE_FATAL"])
@pytest.mark.parametrize("nth", [2, pytest.param(60, marks=pytest.mark.lanes)])
def test_an_error_without_a_completion_breaks_a_lane_which_is_mended(bench, tmp_path, event, nth):
    m = Machine(bench, tmp_path, words=())
    r = m.start("-v", "--timeout=60", "--connect-timeout=60", fault="async:%s,n=%d" % (event, nth))
    m.finish(r, timeout=90)
    # at once, not when the time for an answer is over
    assert m.took < 40, r.errors()


@pytest.mark.parametrize("event", ["LID_CHANGE", "GID_CHANGE", "PKEY_CHANGE", "SM_CHANGE", "CLIENT_REREGISTER", "PORT_ACTIVE"])
def test_an_event_that_is_only_a_hint_changes_nothing(bench, tmp_path, event):
    m = Machine(bench, tmp_path, words=())
    text = m.finish(m.start("-v", fault="async:%s,n=20" % event))
    assert "reconnect" not in text and "mended" not in text, text


@pytest.mark.parametrize("rule", [
    # enum rdma_cm_event_type: ADDR_CHANGE, TIMEWAIT_EXIT
    "event:ESTABLISHED,n=1,first=14", "event:ESTABLISHED,n=1,first=15", "event:ESTABLISHED,n=1,twice=1",
    "event:ESTABLISHED,n=1,late=300", "event:ROUTE_RESOLVED,n=1,first=14", "event:CONNECT_REQUEST,n=1,late=300",
    "event:DISCONNECTED,n=1,twice=1"])
def test_events_early_late_and_twice(bench, tmp_path, rule):
    m = Machine(bench, tmp_path, words=())
    m.finish(m.start(fault=rule))


# ib_cm.h, enum ib_cm_rej_reason: NO_QP, TIMEOUT, INVALID_SERVICE_ID, INVALID_GID, CONSUMER_DEFINED, INVALID_CLASS_VERSION
@pytest.mark.parametrize("reason", [1, 4, 8, 12, 28, 31])
def test_any_reason_of_a_rejection_leaves_tcp(bench, tmp_path, reason):
    m = Machine(bench, tmp_path, words=())
    m.finish(m.start(transport=AUTO, fault="event:ESTABLISHED,n=1,as=8,status=%d" % reason))
