# SPDX-License-Identifier: Apache-2.0
"""What the connection manager can report in place of what was expected (tests/simverbs/order.h orders it), and what Sluice
makes of it: TCP with the reason, or an error with --transport=rdma."""

import re
import time

import pytest

from hosts import IWARP, pattern

pytestmark = [
    pytest.mark.moves_blocks,
    pytest.mark.each_value,
    pytest.mark.needs("sim", why="it orders events of a simulated connection manager"),
]
BLOCK = 256 << 10
CONNECT_TIMEOUT = 4
# enum rdma_cm_event_type
ADDR_ERROR, ROUTE_ERROR, CONNECT_ERROR, UNREACHABLE, REJECTED, DISCONNECTED, REMOVAL = 1, 3, 6, 7, 8, 10, 11
ADDR_CHANGE, TIMEWAIT_EXIT = 14, 15
EHOSTUNREACH, ETIMEDOUT, ENODEV, EINVAL, ENETUNREACH, ENOMEM = 113, 110, 19, 22, 101, 12


class Stream:
    """A file from rdsend, which connects the lanes, to rdrecv. rdrecv has more time: it never gives up first."""

    def __init__(self, bench, tmp_path, fault, transport, sink_fault="", timeout=CONNECT_TIMEOUT, sink_timeout=None):
        data = pattern(20 * BLOCK)
        (tmp_path / "in").write_bytes(data)
        self.timeout = timeout
        options = ["-v", "--lanes=1", "--connect-timeout=%d" % timeout]
        sink_options = ["-v", "--lanes=1", "--connect-timeout=%d" % (sink_timeout or 2 * timeout)]
        self.sink = bench.receive(*sink_options, tmp_path / "out", transport="--transport=" + transport,
                                  env={"SIMVERBS_FAULT": sink_fault})
        began = time.monotonic()
        self.source = bench.send(self.sink.port, *options, tmp_path / "in", transport="--transport=" + transport,
                                 env={"SIMVERBS_FAULT": fault})
        self.codes = self.source.wait(), self.sink.wait()
        self.took = time.monotonic() - began
        self.said = self.source.errors()
        self.all = self.said + self.sink.errors()
        self.moved = (tmp_path / "out").exists() and (tmp_path / "out").read_bytes() == data


def expect_tcp(s, why):
    assert s.codes == (0, 0) and s.moved, (s.codes, s.all)
    assert any("over TCP, not RDMA: " in line and why in line for line in s.said.splitlines()), s.all
    assert s.took < s.timeout + 8, s.all


def expect_error(s, why):
    assert s.codes[0] in (41, 42, 43, 44) and s.codes[1] != 0, (s.codes, s.all)
    assert why in s.said, s.all
    assert s.took < s.timeout + 8, s.all


EXPECT = {"auto": expect_tcp, "rdma": expect_error}
transports = pytest.mark.parametrize("transport", list(EXPECT))


def always(event, what, status=0):
    """Each event of this kind is another one."""
    return "event:%s,n=0,as=%d,status=%d" % (event, what, status)


# ib_cm.h, enum ib_cm_rej_reason: all that InfiniBand's connection manager can send.
REASONS = {
    "NO_QP": 1, "NO_EEC": 2, "NO_RESOURCES": 3, "TIMEOUT": 4, "UNSUPPORTED": 5, "INVALID_COMM_ID": 6, "INVALID_COMM_INSTANCE": 7,
    "INVALID_SERVICE_ID": 8, "INVALID_TRANSPORT_TYPE": 9, "STALE_CONN": 10, "RDC_NOT_EXIST": 11, "INVALID_GID": 12,
    "INVALID_LID": 13, "INVALID_SL": 14, "INVALID_TRAFFIC_CLASS": 15, "INVALID_HOP_LIMIT": 16, "INVALID_PACKET_RATE": 17,
    "INVALID_ALT_GID": 18, "INVALID_ALT_LID": 19, "INVALID_ALT_SL": 20, "INVALID_ALT_TRAFFIC_CLASS": 21,
    "INVALID_ALT_HOP_LIMIT": 22, "INVALID_ALT_PACKET_RATE": 23, "PORT_CM_REDIRECT": 24, "PORT_REDIRECT": 25, "INVALID_MTU": 26,
    "INSUFFICIENT_RESP_RESOURCES": 27, "CONSUMER_DEFINED": 28, "INVALID_RNR_RETRY": 29, "DUPLICATE_LOCAL_COMM_ID": 30,
    "INVALID_CLASS_VERSION": 31, "INVALID_FLOW_LABEL": 32, "INVALID_ALT_FLOW_LABEL": 33, "VENDOR_OPTION_NOT_SUPPORTED": 35,
}
TOLD = {"INVALID_SERVICE_ID": "no RDMA listener on that port", "CONSUMER_DEFINED": "refused by the peer"}
FEW = {"TIMEOUT", "INVALID_SERVICE_ID", "STALE_CONN", "CONSUMER_DEFINED"}


@pytest.mark.skipif(IWARP, reason="iWARP reports errnos, below")
@pytest.mark.may_skip("any", "iWARP reports errnos, below", on="sim")
@pytest.mark.parametrize("reason", [pytest.param(r, marks=[pytest.mark.lanes] if r in FEW else []) for r in REASONS])
@transports
def test_a_rejection_is_reported_with_its_reason(bench, tmp_path, reason, transport):
    number = REASONS[reason]
    if reason == "STALE_CONN":  # tried again with other queue pairs, so none of the requests may reach the listener
        s = Stream(bench, tmp_path, "", transport, sink_fault="stale:n=0")
    else:
        s = Stream(bench, tmp_path, always("ESTABLISHED", REJECTED, number), transport)
    EXPECT[transport](s, TOLD.get(reason, "rejected by the adapter there (reason %d)" % number))


# iw_cm passes what the drivers report: cxgb4 and irdma -ECONNREFUSED, siw -ECONNRESET, and what TCP failed with.
@pytest.mark.skipif(not IWARP, reason="InfiniBand's connection manager reports reasons, above")
@pytest.mark.may_skip("any", "InfiniBand's connection manager reports reasons, above", on="sim")
@pytest.mark.parametrize("errno, why", [
    (111, "no RDMA listener on that port, or refused by the peer"),
    (104, "no RDMA listener on that port, or no answer"), (ETIMEDOUT, "no answer"), (EHOSTUNREACH, "no route to that address")])
@transports
def test_a_rejection_of_iwarp_is_reported_with_its_reason(bench, tmp_path, errno, why, transport):
    EXPECT[transport](Stream(bench, tmp_path, always("ESTABLISHED", REJECTED, -errno), transport), why)


@pytest.mark.parametrize("event, what, status, why", [
    # cma.c, addr_handler(): what neighbour discovery and the choice of a device fail with
    pytest.param("ADDR_RESOLVED", ADDR_ERROR, -ETIMEDOUT, "no ARP or neighbor reply for that address", marks=pytest.mark.lanes),
    ("ADDR_RESOLVED", ADDR_ERROR, -EHOSTUNREACH, "no route to that address"),
    ("ADDR_RESOLVED", ADDR_ERROR, -ENETUNREACH, "no route to that address"),
    ("ADDR_RESOLVED", ADDR_ERROR, -ENODEV, "no RDMA device on the route"),
    ("ADDR_RESOLVED", ADDR_ERROR, -EINVAL, "Invalid argument"),
    # cma_work_handler(), cma_query_handler(): no answer of the subnet manager, no path, out of memory
    pytest.param("ROUTE_RESOLVED", ROUTE_ERROR, -ETIMEDOUT, "no path in time", marks=pytest.mark.lanes),
    ("ROUTE_RESOLVED", ROUTE_ERROR, -EINVAL, "Invalid argument"),
    ("ROUTE_RESOLVED", ROUTE_ERROR, -ENOMEM, "Cannot allocate memory"),
    ("ROUTE_RESOLVED", ADDR_CHANGE, 0, "no path in time"),
    # cma_ib_handler(): the request or the reply was not answered; the queue pair could not be changed
    pytest.param("ESTABLISHED", UNREACHABLE, -ETIMEDOUT, "no answer; does a firewall block RDMA to that port?", marks=pytest.mark.lanes),
    ("ESTABLISHED", UNREACHABLE, 0, "no answer; does a firewall block RDMA to that port?"),
    ("ESTABLISHED", CONNECT_ERROR, -EINVAL, "Invalid argument"),
    ("ESTABLISHED", CONNECT_ERROR, 0, "RDMA_CM_EVENT_CONNECT_ERROR"),
    ("ESTABLISHED", DISCONNECTED, 0, "the peer closed the connection"),
    pytest.param("ESTABLISHED", REMOVAL, 0, "the device was removed", marks=pytest.mark.lanes),
    ("ADDR_RESOLVED", REMOVAL, 0, "the device was removed"),
    ("ROUTE_RESOLVED", REMOVAL, 0, "the device was removed"),
    # Hints, after which nothing comes.
    ("ADDR_RESOLVED", ADDR_CHANGE, 0, "no answer"),
    pytest.param("ESTABLISHED", ADDR_CHANGE, 0, "no answer", marks=pytest.mark.lanes),
    ("ESTABLISHED", TIMEWAIT_EXIT, 0, "no answer"),
    # Of another step.
    ("ESTABLISHED", ADDR_ERROR, -EHOSTUNREACH, "no route to that address"),
    ("ESTABLISHED", ROUTE_ERROR, -ETIMEDOUT, "no answer"),
    ("ADDR_RESOLVED", REJECTED, 8, "no RDMA listener on that port"),
])
@transports
def test_an_event_in_place_of_the_expected_is_reported(bench, tmp_path, event, what, status, why, transport):
    # A kernel that never reports a route gets 2 s more, at each of the two addresses.
    timeout = 10 if event == "ROUTE_RESOLVED" and what == ADDR_CHANGE else CONNECT_TIMEOUT
    EXPECT[transport](Stream(bench, tmp_path, always(event, what, status), transport, timeout=timeout), why)


@pytest.mark.skipif(IWARP, reason="an exit does not wait for requests of iWARP")
@pytest.mark.may_skip("any", "an exit does not wait for requests of iWARP", on="sim")
def test_attempts_that_fail_take_no_more_than_their_time(bench, tmp_path):
    """Each makes a queue pair, which takes half a second; the memory of the first one is registered already."""
    slow = "delay:rdma_create_qp,n=0,late=500;"
    s = Stream(bench, tmp_path, slow + always("ESTABLISHED", UNREACHABLE, -ETIMEDOUT), "rdma")
    expect_error(s, "no answer; does a firewall block RDMA to that port?")


@pytest.mark.lanes
def test_an_accepting_end_that_gives_up_reports_the_last_attempt(bench, tmp_path):
    """The other end has more time, and its attempts fail. The listener waits for twice its own time, and 2 s."""
    s = Stream(bench, tmp_path, always("ESTABLISHED", UNREACHABLE, -ETIMEDOUT), "rdma", timeout=60, sink_timeout=1)
    assert s.codes == (35, 35), (s.codes, s.all)
    # While it gives up, its listener rejects what comes.
    last = "no answer; does a firewall|RDMA_CM_EVENT_REJECTED|refused by the peer|no RDMA listener"
    for said in (s.said, s.sink.errors()):
        assert re.search("did not connect lane 0 to RDMA port [0-9]+ within 4 s: connect to [^ ]*: (%s)" % last, said), s.all


# What comes to the listener in place of a request: none of it may end it.
@pytest.mark.parametrize("what, status", [
    (ADDR_ERROR, -EHOSTUNREACH), (ROUTE_ERROR, -ETIMEDOUT), (CONNECT_ERROR, -EINVAL), (UNREACHABLE, -ETIMEDOUT), (REJECTED, 28),
    (DISCONNECTED, 0), (ADDR_CHANGE, 0), (TIMEWAIT_EXIT, 0)])
@transports
def test_a_listener_survives_what_is_not_a_request(bench, tmp_path, what, status, transport):
    """The first one is lost; the connecting end tries another address, or TCP."""
    s = Stream(bench, tmp_path, "", transport, sink_fault="event:CONNECT_REQUEST,n=1,as=%d,status=%d" % (what, status))
    if transport == "auto" or s.codes == (0, 0):
        assert s.codes == (0, 0) and s.moved, (s.codes, s.all)
    else:
        expect_error(s, "refused by the peer")


# The accepting end: no RTU came, or something else did.
@pytest.mark.skipif(IWARP, reason="the accepting end of iWARP is connected at once")
@pytest.mark.may_skip("any", "the accepting end of iWARP is connected at once", on="sim")
@pytest.mark.parametrize("what, status", [
    (REJECTED, 4), (REJECTED, 28), (UNREACHABLE, -ETIMEDOUT), (CONNECT_ERROR, -EINVAL), (DISCONNECTED, 0), (REMOVAL, 0),
    (ADDR_CHANGE, 0), (TIMEWAIT_EXIT, 0)])
@transports
def test_an_accepting_end_that_is_not_told_of_the_connection(bench, tmp_path, what, status, transport):
    """Once. The hello shows that the connection is there, or the next attempt succeeds."""
    s = Stream(bench, tmp_path, "", transport, sink_fault="event:ESTABLISHED,n=1,as=%d,status=%d" % (what, status))
    assert s.codes == (0, 0) and s.moved, (s.codes, s.all)
    assert s.took < s.timeout + 8, s.all


# An established connection: DISCONNECTED is late, lost, or something else in its place.
@pytest.mark.parametrize("what", [ADDR_CHANGE, TIMEWAIT_EXIT, REMOVAL])
@transports
def test_an_end_of_a_connection_that_is_not_reported(bench, tmp_path, what, transport):
    rule = "event:DISCONNECTED,n=0,as=%d" % what
    s = Stream(bench, tmp_path, rule, transport, sink_fault=rule)
    assert s.codes == (0, 0) and s.moved, (s.codes, s.all)
    assert s.took < s.timeout + 8, s.all
