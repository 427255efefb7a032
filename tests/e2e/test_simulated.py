# SPDX-License-Identifier: Apache-2.0
"""What an adapter and its connection manager may do to a copy (tests/simverbs/order.h orders it): the copy goes on or
ends in time, and the user learns why."""

import signal
import time

import pytest

from hosts import COUNT, IWARP, SIM, pattern, simulated

pytestmark = [
    pytest.mark.moves_blocks,
    pytest.mark.each_value,
    pytest.mark.needs("sim", why="it orders faults of a simulated adapter"),
]
BLOCK = 256 << 10
# Seconds in which a copy ends whose path is silent, with --timeout=4; a long run has much beside it.
NOTICED = (4 * 3 + 15) * (1 if COUNT == 1 else 3)
STATUS_RETRY, STATUS_REMOTE_OP = 12, 11  # enum ibv_wc_status


def copy(bench, tmp_path, fault, *options, blocks=200, **how):
    """A push between two processes, each of which has the fault."""
    data = pattern(blocks * BLOCK)
    (tmp_path / "in").write_bytes(data)
    r = bench.copy("-v", *options, "in", "far:%s/out" % tmp_path, env={"SIMVERBS_FAULT": fault}, **how)
    assert r.code or (tmp_path / "out").read_bytes() == data
    return r


@pytest.mark.parametrize("status", [STATUS_RETRY, STATUS_REMOTE_OP])
@pytest.mark.parametrize("nth", [2, 60])
@pytest.mark.lanes
def test_a_send_that_fails_breaks_a_lane_which_is_mended(bench, tmp_path, status, nth):
    r = copy(bench, tmp_path, "status:n=%d,is=%d" % (nth, status))
    assert r.code == 0, r.errors()


@pytest.mark.lanes
def test_the_cause_is_named_and_not_what_was_flushed_for_it(bench, tmp_path):
    r = copy(bench, tmp_path, "status:n=60,is=%d" % STATUS_RETRY)
    assert r.code == 0 and "transport retry counter exceeded" in r.errors(), r.errors()
    assert "Flushed" not in r.errors()


# The second: the adapter goes on trying for longer than the timeout, as with a kernel without the option.
@pytest.mark.lanes
@pytest.mark.parametrize("fault", ["silent:n=60", "silent:n=60;fail:rdma_set_option,n=0,errno=38"])
def test_a_silent_path_is_noticed_in_time(bench, tmp_path, fault):
    """TCP has another path."""
    begun = time.monotonic()
    r = copy(bench, tmp_path, fault, "--timeout=4", transport="--transport=auto")
    # Both ends' adapters give up, or the source does.
    noticed = ["for 4 s"] + (["retry counter exceeded", "was abandoned"] if fault == "silent:n=60" and not IWARP else [])
    assert r.code == 0, r.errors()
    assert "over TCP, not RDMA" in r.errors() and any(n in r.errors() for n in noticed), r.errors()
    # as long again to find out that nothing answers there any more
    assert time.monotonic() - begun < NOTICED


@pytest.mark.lanes
def test_a_silent_path_ends_a_copy_that_may_not_go_another_way(bench, tmp_path):
    begun = time.monotonic()
    r = copy(bench, tmp_path, "silent:n=60", "--timeout=4")
    assert r.code in (30, 44) and "no answer" in r.errors(), r.errors()
    assert time.monotonic() - begun < NOTICED


@pytest.mark.parametrize("victim", ["source", "sink"])
def test_a_silent_path_is_noticed_by_rdsend_and_rdrecv(bench, tmp_path, victim):
    old = "fail:rdma_set_option,n=0,errno=38"
    env = {end: {"SIMVERBS_FAULT": old + (";silent:n=30" if end == victim else "")} for end in ("source", "sink")}
    data = pattern(200 * BLOCK)
    (tmp_path / "in").write_bytes(data)
    begun = time.monotonic()
    sink = bench.receive("--timeout=4", tmp_path / "out", transport="--transport=auto", env=env["sink"])
    source = bench.send(sink.port, "-v", "--timeout=4", tmp_path / "in", transport="--transport=auto", env=env["source"])
    assert (source.wait(), sink.wait()) == (0, 0), source.errors() + sink.errors()
    assert (tmp_path / "out").read_bytes() == data
    assert "for 4 s" in source.errors(), source.errors()
    assert time.monotonic() - begun < NOTICED


def test_a_silent_path_is_noticed_while_the_sink_is_busy(bench, tmp_path):
    """A sink that rests is not at fault, but its adapter acknowledges what comes."""
    data = pattern(200 * BLOCK)
    (tmp_path / "in").write_bytes(data)
    sink = bench.receive("--timeout=3", "--", "sh", "-c", "sleep 8; cat >%s/out" % tmp_path, transport="--transport=auto")
    source = bench.send(sink.port, "-v", "--timeout=3", tmp_path / "in", transport="--transport=auto",
                        env={"SIMVERBS_FAULT": "silent:n=20;fail:rdma_set_option,n=0,errno=38"})
    assert (source.wait(), sink.wait()) == (0, 0), source.errors() + sink.errors()
    assert (tmp_path / "out").read_bytes() == data
    assert "nothing was acknowledged for 3 s" in source.errors(), source.errors()


def lines_of(run, word):
    return [line for line in run.errors().splitlines() if word in line]


# The first two bits: local and remote writes.
@pytest.mark.parametrize("op, far_pool", [("send", 0x100001), ("write-send", 3)])
def test_only_memory_without_an_order_is_relaxed(bench, tmp_path, op, far_pool):
    """The far end is the sink."""
    r = copy(bench, tmp_path, "regions:", "--rdma-op=" + op)
    regions = {(int(line.split()[-5]) > 100000, int(line.split()[-1], 16)) for line in lines_of(r, "region of")}
    assert r.code == 0, r.errors()
    assert regions == {(False, 1), (True, 0x100001), (True, far_pool)}, r.errors()


def test_an_adapter_that_rejects_relaxed_ordering_is_used_without_it(bench, tmp_path):
    r = copy(bench, tmp_path, "regions:;fail:relaxed,n=0,errno=95", "--rdma-op=send")
    assert r.code == 0, r.errors()
    assert {line.split()[-1] for line in lines_of(r, "region of")} == {"0x1"}, r.errors()


@pytest.mark.lanes
def test_an_adapter_that_refuses_huge_pages_leaves_tcp(bench, tmp_path):
    """Sluice asks for huge pages for the blocks of a lane, and has no second attempt without them."""
    refuses = "fail:huge,n=0,errno=14"
    r = copy(bench, tmp_path, refuses, transport="--transport=auto")
    assert r.code == 0 and "over TCP, not RDMA" in r.errors() and "Bad address" in r.errors(), r.errors()
    r = copy(bench, tmp_path, refuses)
    assert r.code == 43 and "register " in r.errors() and "Bad address" in r.errors(), r.errors()


def test_a_ring_with_relaxed_ordering_would_be_noticed(bench, tmp_path):
    r = copy(bench, tmp_path, "relax:", "--rdma-op=write-send")
    assert r.code and "writes into a region with relaxed ordering" in r.errors(), r.errors()


def limited(bench, tmp_path, limits, *options, **how):
    data = pattern(200 * BLOCK)
    (tmp_path / "in").write_bytes(data)
    r = bench.copy("-v", *options, "in", "far:%s/out" % tmp_path, env=simulated(limits=limits), **how)
    assert r.code or (tmp_path / "out").read_bytes() == data
    return r


@pytest.mark.parametrize("limits", [{"max_cqe": 24}, {"max_qp_wr": 18}, {"max_inline": 0}])
def test_a_lane_fits_into_small_limits(bench, tmp_path, limits):
    """Queues of 16 blocks, with fewer sends at a time."""
    r = limited(bench, tmp_path, limits, "--depth=16")
    assert r.code == 0 and not lines_of(r, "TCP"), r.errors()


@pytest.mark.parametrize("limits, said", [
    ({"max_cqe": 24}, "allows 24 entries per completion queue, a depth of 64 (--depth) needs"),
    ({"max_qp_wr": 20}, "allows 20 receives per queue pair, a depth of 64 (--depth) needs 66"),
    ({"max_mr_size": 1 << 20}, "registers at most 1048576 bytes at a time, a depth of 64 (--depth) with blocks of 65536 bytes"),
    ({"max_msg_size": 4096}, "sends messages of at most 4096 bytes, a block needs 65600")])
def test_a_limit_that_is_too_small_is_named(bench, tmp_path, limits, said):
    r = limited(bench, tmp_path, limits, "--depth=64", "--block-size=64k", transport="--transport=auto")
    assert r.code == 0 and said in r.errors(), r.errors()


@pytest.mark.parametrize("limits, fault, said", [
    ({"max_qp_wr": 20}, "", "allows 20 receives per queue pair, a depth of 64 (--depth) needs 65"),
    ({}, "fail:ibv_reg_mr,n=0,errno=14", "Bad address"),
    ({}, "fail:ibv_post_send,n=0,errno=12", "post a send: Cannot allocate memory")])
@pytest.mark.lanes
def test_the_reason_of_the_end_that_refuses_is_printed_once(bench, tmp_path, limits, fault, said):
    """The other end connects."""
    data = pattern(40 * BLOCK)
    (tmp_path / "in").write_bytes(data)
    options = ["--depth=64", "--block-size=64k", "--lanes=1"]
    sink = bench.receive(*options, tmp_path / "out", transport="--transport=auto",
                         env={**simulated(limits=limits, fabric=tmp_path.name), "SIMVERBS_FAULT": fault})
    source = bench.send(sink.port, *options, tmp_path / "in", transport="--transport=auto",
                        env={**simulated(fabric=tmp_path.name), "SIMVERBS_FAULT": ""})
    assert (source.wait(), sink.wait()) == (0, 0), source.errors() + sink.errors()
    assert (tmp_path / "out").read_bytes() == data
    for end in (source, sink):
        assert [said in line for line in lines_of(end, "not RDMA")] == [True], source.errors() + sink.errors()
        assert end.errors().count(said) == 1, source.errors() + sink.errors()


def may_lock_any():
    with open("/proc/self/status", encoding="ascii") as f:
        effective = next(int(line.split()[1], 16) for line in f if line.startswith("CapEff:"))
    return not SIM.startswith("siw") and bool(effective >> 14 & 1)  # CAP_IPC_LOCK


@pytest.mark.skipif(not may_lock_any(), reason="the limit of locked memory counts")
@pytest.mark.may_skip("any", "the limit of locked memory counts", on="sim")
def test_locked_memory_is_not_blamed_without_a_limit(bench, tmp_path):
    for r in (limited(bench, tmp_path, {"max_mr": 1}), copy(bench, tmp_path, "fail:ibv_reg_mr,n=0,errno=12")):
        assert r.code == 43 and "lock memory" not in r.errors(), (r.code, r.errors())
        assert "out of memory, or the adapter has no room" in r.errors(), r.errors()


@pytest.mark.parametrize("call, errno", [
    ("ibv_alloc_pd", 12), ("ibv_create_comp_channel", 24), ("ibv_create_cq", 12), ("rdma_create_qp", 12), ("ibv_reg_mr", 12),
    ("ibv_reg_mr", 14), ("ibv_query_device", 5), ("ibv_query_port", 5), ("rdma_create_event_channel", 24), ("rdma_create_id", 12),
    ("rdma_bind_addr", 19), ("rdma_listen", 98), ("rdma_resolve_addr", 113), ("rdma_resolve_route", 110), ("rdma_connect", 12),
    ("rdma_accept", 12), ("rdma_migrate_id", 12), ("ibv_post_recv", 12), ("ibv_req_notify_cq", 5), ("ibv_post_send", 12),
    ("rdma_set_option", 38)])
@pytest.mark.parametrize("n", [pytest.param(1, marks=pytest.mark.lanes), *([0, 3] if COUNT > 1 or not IWARP else [])])
def test_a_call_that_fails_leaves_tcp(bench, tmp_path, call, errno, n):
    """n 0: each call."""
    r = copy(bench, tmp_path, "fail:%s,n=%d,errno=%d" % (call, n, errno), transport="--transport=auto")
    assert r.code == 0, r.errors()


def stream(bench, tmp_path, fault, *options, transport="--transport=auto", blocks=40, sink_fault=""):
    """One stream between two processes that have faults of their own."""
    data = pattern(blocks * BLOCK)
    (tmp_path / "in").write_bytes(data)
    sink = bench.receive(*options, tmp_path / "out", transport=transport, env={"SIMVERBS_FAULT": sink_fault})
    source = bench.send(sink.port, "-v", *options, tmp_path / "in", transport=transport, env={"SIMVERBS_FAULT": fault})
    assert (source.wait(), sink.wait()) == (0, 0), source.errors() + sink.errors()
    assert (tmp_path / "out").read_bytes() == data
    return source.errors() + sink.errors()


# enum rdma_cm_event_type: ADDR_ERROR, ROUTE_ERROR, UNREACHABLE
@pytest.mark.parametrize("event, what, status", [
    ("ADDR_RESOLVED", 1, -113), ("ROUTE_RESOLVED", 3, -110), ("ESTABLISHED", 7, -110)])
def test_a_failure_that_may_pass_costs_another_attempt(bench, tmp_path, event, what, status):
    begun = time.monotonic()
    said = stream(bench, tmp_path, "event:%s,n=1,as=%d,status=%d" % (event, what, status))
    assert "over TCP" not in said and "reconnected" not in said, said
    assert time.monotonic() - begun < 12, said


@pytest.mark.parametrize("event", ["ADDR_RESOLVED", "ROUTE_RESOLVED", "ESTABLISHED"])
def test_a_changed_address_is_no_failure(bench, tmp_path, event):
    said = stream(bench, tmp_path, "event:%s,n=1,first=14" % event)  # RDMA_CM_EVENT_ADDR_CHANGE
    assert "over TCP" not in said and "reconnected" not in said, said


@pytest.mark.skipif(IWARP, reason="iWARP has no stale connections")
@pytest.mark.may_skip("any", "iWARP has no stale connections", on="sim")
def test_a_stale_queue_pair_is_replaced_by_one_with_another_number(bench, tmp_path):
    """The source gets the numbers of freed queue pairs again at once."""
    said = stream(bench, tmp_path, "reuse:n=0;regions:", "--lanes=1", sink_fault="stale:n=1")
    assert "over TCP" not in said and "reconnected" not in said, said
    assert said.count("region of") == 2, said


@pytest.mark.skipif(not IWARP, reason="only on iWARP a connection needs a port of TCP")
@pytest.mark.may_skip("any", "only on iWARP a connection needs a port of TCP", on="sim")
def test_a_local_port_that_tcp_uses_is_replaced_by_another(bench, tmp_path):
    """The connection manager chooses the port without asking TCP, and siw finds it in use."""
    said = stream(bench, tmp_path, ";".join("fail:rdma_connect,n=%d,errno=98" % n for n in (1, 2, 3)), "--lanes=1", "-vv")
    assert "over TCP" not in said and "reconnected" not in said and "next address" not in said, said


@pytest.mark.parametrize("event", ["ADDR_RESOLVED", "ROUTE_RESOLVED", "ESTABLISHED"])
# enum rdma_cm_event_type: ADDR_ERROR, ROUTE_ERROR, CONNECT_ERROR, UNREACHABLE, REJECTED (stale), DEVICE_REMOVAL
@pytest.mark.parametrize("what, status", [(1, -110), (3, -110), (6, -22), (7, -110), (8, 10), (11, 0)])
@pytest.mark.lanes
def test_an_event_other_than_the_expected_leaves_tcp(bench, tmp_path, event, what, status):
    r = copy(bench, tmp_path, "event:%s,n=1,as=%d,status=%d" % (event, what, status), transport="--transport=auto")
    assert r.code == 0, r.errors()


@pytest.mark.skipif(IWARP, reason="TCP repeats what is lost")
@pytest.mark.may_skip("any", "TCP repeats what is lost", on="sim")
@pytest.mark.parametrize("kind", ["REQ", "REP", "RTU", "DREQ"])
@pytest.mark.lanes
def test_a_lost_message_of_the_connection_manager(bench, tmp_path, kind):
    r = copy(bench, tmp_path, "lose:%s,n=1" % kind, transport="--transport=auto")
    assert r.code == 0, r.errors()


SOFTWARE = SIM in ("rxe", "siw-iwarp")
slowly = "--bwlimit=10m"


def lose(numbers, kind="REQ"):
    return ";".join("lose:%s,n=%d" % (kind, n) for n in numbers)


def fail_connects(*numbers):
    """The attempts with these numbers have no answer; none of them repeats its request. The first two are at the two
    addresses, and TCP is used after them. The third is a knock."""
    return ";".join("fail:rdma_connect,n=%d,errno=110" % n for n in numbers)


def is_promoted(said, lines=1):
    """Data began over TCP, and went on over RDMA, each with one line."""
    return said.count("RDMA works now, lanes move from TCP to it: rdma ") == lines and "over rdma " in said


@pytest.mark.parametrize("transport", ["auto", "rdma"])
def test_registering_memory_takes_no_time_from_an_attempt(bench, tmp_path, transport):
    """Large pools take seconds at each end; an attempt has two."""
    r = copy(bench, tmp_path, "delay:ibv_reg_mr,n=0,late=1500", "--lanes=1", "--connect-timeout=6",
             transport="--transport=" + transport)
    assert r.code == 0 and "over rdma " in r.errors() and "TCP" not in r.errors(), r.errors()


@pytest.mark.parametrize("lanes", [1, 4])
def test_a_sink_that_registers_slowly_costs_no_rdma(bench, tmp_path, lanes):
    """Both attempts of the first lane together have 4 s, one of a further lane 2 s."""
    said = stream(bench, tmp_path, "", "--lanes=%d" % lanes, "--connect-timeout=24", sink_fault="delay:ibv_reg_mr,n=0,late=2500")
    assert "over rdma " in said and "TCP" not in said and "no answer" not in said, said


def test_memory_that_cannot_be_registered_takes_no_time_from_the_next_attempt(bench, tmp_path):
    """With a conductor the first lane has 2.5 s for RDMA at both addresses."""
    r = copy(bench, tmp_path, "delay:ibv_reg_mr,n=1,late=3000;fail:ibv_reg_mr,n=1,errno=14", "--lanes=1",
             transport="--transport=auto")
    assert r.code == 0 and "over rdma " in r.errors() and "TCP" not in r.errors(), r.errors()


@pytest.mark.skipif(SOFTWARE, reason="software adapters lose nothing")
@pytest.mark.may_skip("any", "software adapters lose nothing", on="sim")
def test_lanes_return_to_rdma_when_it_works(bench, tmp_path):
    """Both attempts of the first lane fail, at either address. A knock is answered as its adapter answers it."""
    r = copy(bench, tmp_path, fail_connects(1, 2), slowly, transport="--transport=auto")
    assert r.code == 0 and is_promoted(r.errors()), r.errors()
    assert r.errors().count("over TCP, not RDMA") == 1, r.errors()


@pytest.mark.skipif(IWARP or SOFTWARE, reason="TCP repeats what is lost, and software adapters lose nothing")
@pytest.mark.may_skip("any", "TCP repeats what is lost, and software adapters lose nothing", on="sim")
@pytest.mark.parametrize("kind", ["REQ", "REP"])
@pytest.mark.parametrize("numbers", [[1], [1, 2]])
@pytest.mark.lanes
def test_a_lost_request_is_repeated(bench, tmp_path, kind, numbers):
    """After half a second, and after a second; the connection manager would repeat it after four, and TCP be used
    after two."""
    said = stream(bench, tmp_path, lose(numbers, kind), "--lanes=1", sink_fault=lose(numbers, kind))
    assert "over rdma " in said and "TCP" not in said and "reconnected" not in said, said


@pytest.mark.skipif(IWARP or SOFTWARE, reason="TCP repeats what is lost, and software adapters lose nothing")
@pytest.mark.may_skip("any", "TCP repeats what is lost, and software adapters lose nothing", on="sim")
def test_a_repeated_request_registers_nothing_again(bench, tmp_path):
    """A lane has two regions: its blocks, and its small messages."""
    said = stream(bench, tmp_path, lose([1, 2]) + ";regions:", "--lanes=1")
    assert "TCP" not in said and said.count("region of") == 2, said


def test_a_slow_end_that_could_not_prepare_registers_once(bench, tmp_path):
    """As with several adapters. It takes longer than the attempt at one address, and the one at the other address finds
    the two regions."""
    slow = "fail:ibv_reg_mr,n=1,errno=5;delay:ibv_reg_mr,n=0,late=1150;regions:"
    said = stream(bench, tmp_path, "", "--lanes=1", sink_fault=slow)
    assert "TCP" not in said and said.count("region of") == 2, said


@pytest.mark.skipif(IWARP or SOFTWARE, reason="TCP repeats what is lost, and software adapters lose nothing")
@pytest.mark.may_skip("any", "TCP repeats what is lost, and software adapters lose nothing", on="sim")
@pytest.mark.parametrize("n", [2, 3])
def test_a_lost_request_of_a_further_lane_costs_no_rdma(bench, tmp_path, n):
    r = copy(bench, tmp_path, lose([n]), slowly, "--lanes=3", transport="--transport=auto")
    assert r.code == 0 and "over rdma " in r.errors() and "TCP" not in r.errors(), r.errors()


@pytest.mark.skipif(IWARP or SOFTWARE, reason="TCP repeats what is lost, and software adapters lose nothing")
@pytest.mark.may_skip("any", "TCP repeats what is lost, and software adapters lose nothing", on="sim")
def test_a_blocked_rdma_delays_no_end(bench, tmp_path):
    """Data begins over TCP after two seconds or so. No later attempt is reported, and the end waits for none."""
    took = []
    # A busy machine delays some runs, and a wait all of them.
    while not took or min(took) >= 3 + 3 + 6 and len(took) < 3:
        begun = time.monotonic()
        r = copy(bench, tmp_path, "lose:REQ,n=0", slowly, transport="--transport=auto", blocks=120)
        took.append(time.monotonic() - begun)
        assert r.code == 0 and "over tcp " in r.errors() and "RDMA works" not in r.errors(), r.errors()
        assert r.errors().count("over TCP, not RDMA") == 1, r.errors()
    # For RDMA, for the data, and for a busy machine. A knock would last 10 s from the first seconds on.
    assert min(took) < 3 + 3 + 6, (took, r.errors())


@pytest.mark.skipif(IWARP or SOFTWARE, reason="TCP repeats what is lost, and software adapters lose nothing")
@pytest.mark.may_skip("any", "TCP repeats what is lost, and software adapters lose nothing", on="sim")
@pytest.mark.parametrize("fault", [lose([0]), fail_connects(1, 2) + ";" + lose([2, 3, 4])])
def test_an_interrupt_waits_for_no_promotion(bench, tmp_path, fault):
    """While RDMA is knocked at; while the first lane returns to it, whose request is lost again."""
    (tmp_path / "in").write_bytes(pattern(200 * BLOCK))
    run = bench.copy("-v", slowly, "in", "far:%s/out" % tmp_path, env={"SIMVERBS_FAULT": fault}, wait=False,
                     transport="--transport=auto")
    run.expect("over TCP, not RDMA")
    time.sleep(0.7)
    begun = time.monotonic()
    run.signal(signal.SIGINT)
    assert run.wait() == 20, run.errors()
    assert time.monotonic() - begun < 2.5, run.errors()


@pytest.mark.skipif(IWARP or SOFTWARE, reason="TCP repeats what is lost, and software adapters lose nothing")
@pytest.mark.may_skip("any", "TCP repeats what is lost, and software adapters lose nothing", on="sim")
def test_a_promotion_that_fails_is_repeated(bench, tmp_path):
    """The knock is answered, the attempt of the lane is not: the lane returns to TCP, and to RDMA 5 s later."""
    r = copy(bench, tmp_path, fail_connects(1, 2, 4), "--bwlimit=5m", "--lanes=1", transport="--transport=auto")
    assert r.code == 0 and is_promoted(r.errors()), r.errors()
    assert r.errors().count("over TCP, not RDMA") == 1, r.errors()


@pytest.mark.skipif(IWARP or SOFTWARE, reason="TCP repeats what is lost, and software adapters lose nothing")
@pytest.mark.may_skip("any", "TCP repeats what is lost, and software adapters lose nothing", on="sim")
def test_a_promotion_that_fails_late_is_repeated(bench, tmp_path):
    """Its attempt takes 4 s, longer than the thread that promotes lanes waits for a busy one."""
    r = copy(bench, tmp_path, fail_connects(1, 2, 4) + ";delay:rdma_connect,n=4,late=4000", "--bwlimit=5m", "--lanes=1",
             transport="--transport=auto")
    assert r.code == 0 and is_promoted(r.errors()), r.errors()
    assert r.errors().count("over TCP, not RDMA") == 1, r.errors()


# It is asked for each path on InfiniBand, and answers later than an attempt waits at first; or never, and the kernel
# reports that (ROUTE_ERROR).
@pytest.mark.skipif(SIM != "connectx-roce", reason="it makes an InfiniBand adapter: one run is enough")
@pytest.mark.may_skip("any", "it makes an InfiniBand adapter: one run is enough", on="sim")
@pytest.mark.parametrize("fault, returns", [
    ("event:ROUTE_RESOLVED,n=0,late=3000", True), ("event:ROUTE_RESOLVED,n=0,as=3,status=-110", False)])
def test_lanes_return_to_rdma_past_a_slow_subnet_manager(bench, tmp_path, fault, returns):
    data = pattern(200 * BLOCK)
    (tmp_path / "in").write_bytes(data)
    r = bench.copy("-v", "--bwlimit=4m", "--lanes=1", "in", "far:%s/out" % tmp_path, transport="--transport=auto",
                   env={**simulated("connectx-ib"), "SIMVERBS_FAULT": fault})
    assert r.code == 0 and (tmp_path / "out").read_bytes() == data, r.errors()
    assert is_promoted(r.errors()) == returns, r.errors()
    assert r.errors().count("over TCP, not RDMA") == 1 and "reconnected over tcp" not in r.errors(), r.errors()
    assert "no path in time; is the subnet manager busy?" in r.errors() and "firewall" not in r.errors(), r.errors()


@pytest.mark.skipif(IWARP or SOFTWARE, reason="TCP repeats what is lost, and software adapters lose nothing")
@pytest.mark.may_skip("any", "TCP repeats what is lost, and software adapters lose nothing", on="sim")
@pytest.mark.parametrize("timeout", [1, 2])
def test_a_promotion_that_fails_leaves_time_for_tcp(bench, tmp_path, timeout):
    """The knock is answered, the requests of the lane are lost."""
    r = copy(bench, tmp_path, fail_connects(1, 2) + ";" + lose([2, 3, 4]), slowly, "--lanes=1", "--timeout=%d" % timeout,
             transport="--transport=auto")
    assert r.code == 0 and r.errors().count("over TCP, not RDMA") == 1, r.errors()


@pytest.mark.skipif(IWARP or SOFTWARE, reason="TCP repeats what is lost, and software adapters lose nothing")
@pytest.mark.may_skip("any", "TCP repeats what is lost, and software adapters lose nothing", on="sim")
def test_a_lane_that_leaves_rdma_again_and_again_is_reported_once(bench, tmp_path):
    """Its RDMA wire breaks twice after some blocks, and each time the attempt to make the next one fails."""
    data = pattern(480 * BLOCK)
    (tmp_path / "in").write_bytes(data)
    broken = "status:n=40,is=%d;status:n=80,is=%d" % (STATUS_RETRY, STATUS_RETRY)
    r = bench.copy(slowly, "--lanes=1", "in", "far:%s/out" % tmp_path, transport="--transport=auto",
                   env={"SIMVERBS_FAULT": fail_connects(1, 2, 5, 8) + ";" + broken})
    assert r.code == 0 and (tmp_path / "out").read_bytes() == data, r.errors()
    assert is_promoted(r.errors() + "over rdma "), r.errors()
    assert r.errors().count("continues over TCP, not RDMA") == 1, r.errors()


@pytest.mark.skipif(IWARP or SOFTWARE, reason="TCP repeats what is lost, and software adapters lose nothing")
@pytest.mark.may_skip("any", "TCP repeats what is lost, and software adapters lose nothing", on="sim")
def test_the_end_that_accepts_reports_no_promotion(bench, tmp_path):
    (tmp_path / "in").write_bytes(pattern(200 * BLOCK))
    sink = bench.receive("-v", tmp_path / "out", transport="--transport=auto")
    source = bench.send(sink.port, "-v", slowly, tmp_path / "in", transport="--transport=auto",
                        env={"SIMVERBS_FAULT": fail_connects(1, 2)})
    assert (source.wait(), sink.wait()) == (0, 0), source.errors() + sink.errors()
    assert "RDMA works now" in source.errors() and "reconnected" not in sink.errors(), source.errors() + sink.errors()


def test_only_on_iwarp_a_late_hello_is_asked_for(bench, tmp_path):
    """The source connects, and asks with a WRITE of no bytes after half a second (siw: 50 ms)."""
    said = stream(bench, tmp_path, "writes:", "--lanes=1", "--rdma-op=send", transport="--transport=rdma",
                  sink_fault="delay:ibv_post_send,n=1,late=1300")
    assert ("write of 0 bytes" in said) == IWARP and "reconnected" not in said, said
    assert said.count("write of ") == said.count("write of 0 bytes"), said


@pytest.mark.skipif(IWARP, reason="iWARP has no such message")
@pytest.mark.may_skip("any", "iWARP has no such message", on="sim")
def test_a_lost_rtu_costs_no_time(bench, tmp_path):
    """The accepting end sees the caller's hello, and takes the connection for established."""
    data = pattern(200 * BLOCK)
    (tmp_path / "in").write_bytes(data)
    begun = time.monotonic()
    # REP would be repeated after 30 s.
    r = bench.copy("-v", "in", "far:%s/out" % tmp_path, transport="--transport=auto",
                   env={**simulated(limits={"cm_timeout": 30000}), "SIMVERBS_FAULT": "lose:RTU,n=1"})
    assert r.code == 0 and (tmp_path / "out").read_bytes() == data and "over TCP" not in r.errors(), r.errors()
    assert time.monotonic() - begun < 20, r.errors()


@pytest.mark.skipif(IWARP, reason="iWARP has no such message")
@pytest.mark.may_skip("any", "iWARP has no such message", on="sim")
def test_a_connection_manager_that_gives_up_breaks_no_wire(bench, tmp_path):
    """No RTU comes, and its kernel does not listen to rdma_notify()."""
    data = pattern(40 * BLOCK)
    (tmp_path / "in").write_bytes(data)
    env = simulated(limits={"cm_timeout": 100, "cm_retries": 2})
    sink = bench.receive(tmp_path / "out", env={**env, "SIMVERBS_FAULT": "fail:rdma_notify,n=0,errno=22"})
    source = bench.send(sink.port, "-v", slowly, tmp_path / "in", env={**env, "SIMVERBS_FAULT": "lose:RTU,n=0"})
    assert (source.wait(), sink.wait()) == (0, 0), source.errors() + sink.errors()
    assert (tmp_path / "out").read_bytes() == data
    assert "reconnected" not in source.errors() + sink.errors(), source.errors() + sink.errors()
