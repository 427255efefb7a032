# SPDX-License-Identifier: Apache-2.0
"""Lanes over links of 100 to 400 Gb/s, in virtual time: their rates are exact, so they can be asserted."""

import json
import os
import subprocess

import pytest

RATES = (100, 200, 400)
RTTS = (5, 100, 10000)
# Costs of threads that keep up with none of these links alone.
BUSY = ["--cost=fill=0,0.06", "--cost=digest=0,0.025", "--cost=store=0,0.08", "--cost=lane=1000,0", "--cost=post=200,0",
        "--cost=completion=100,0", "--cost=wake=5000,0"]
BLOCK_NS = (64 + 262144) * 8 / 100  # how long 100 Gb/s take for 256 KiB


def output(*options):
    p = subprocess.run([os.environ["DISCRETE"], *map(str, options)], capture_output=True, text=True)
    assert p.returncode in (0, 1) and p.stdout, p.stderr
    return p.stdout


def run(*options):
    return json.loads(output(*options))


def window(lanes, depth, kib):
    return "--lanes=%d" % lanes, "--depth=%d" % depth, "--block-kib=%d" % kib


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("rtt", RTTS)
def test_the_rate_is_that_of_the_window_law(rate, rtt):
    for shape in ((1, 1, 256), (1, 4, 256), (2, 16, 256), (4, 8, 1024), (1, 256, 4)):
        r = run("--rate=%d" % rate, "--rtt=%d" % rtt, *window(*shape))
        # A head of 64 bytes goes with each block: 1.5 % of 4 KiB.
        least = 0.98 if shape[2] == 4 else 0.995
        assert least < r["reached"] / r["law"] < 1.001, r


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("lockable", (None, 64, 8))
def test_sizes_that_a_session_chooses_fill_a_lan(rate, lockable):
    for rtt in (5, 100):
        r = run("--rate=%d" % rate, "--rtt=%d" % rtt, *(["--lockable-mib=%d" % lockable] if lockable else []))
        assert r["reached"] > 0.995 * rate * 1e9 / 8, r


@pytest.mark.parametrize("rate", (10, 25, *RATES))
@pytest.mark.parametrize("rtt", (1000, 10000))
def test_sizes_for_a_round_trip_that_was_measured_fill_a_long_link(rate, rtt):
    r = run("--rate=%d" % rate, "--rtt=%d" % rtt)
    assert r["reached"] > 0.995 * rate * 1e9 / 8, r
    assert r["lanes"] * r["depth"] * r["block"] < 1.25 * rate * 1e9 / 8 * (rtt / 1e6 + 0.002) + (6 << 20), r


@pytest.mark.parametrize("rate", RATES)
def test_without_a_measured_round_trip_the_window_is_that_of_a_lan(rate):
    for rtt in (100, 10000):
        r = run("--rate=%d" % rate, "--rtt=%d" % rtt, "--unmeasured")
        assert [r[k] for k in ("lanes", "depth", "block")] == [rate // 50, 14, 1 << 20]


@pytest.mark.parametrize("rate", RATES)
def test_threads_that_are_busy_half_of_the_time_fill_a_lan(rate):
    for rtt in (5, 100):
        for spin in (0, 30):
            r = run("--rate=%d" % rate, "--rtt=%d" % rtt, "--spin=%d" % spin, *BUSY)
            assert r["reached"] > 0.99 * rate * 1e9 / 8, r


@pytest.mark.parametrize("rate,lanes", ((100, 2), (200, 4), (400, 8)))
def test_a_window_of_rate_times_round_trip_fills_a_long_link(rate, lanes):
    r = run("--rate=%d" % rate, "--rtt=10000", *window(lanes, 64, 1024))
    assert r["reached"] > 0.995 * rate * 1e9 / 8, r


def test_the_same_options_give_the_same_output():
    for options in (BUSY, [*BUSY, "--spin=0", "--lose=100,3,7"], ["--lose=50,1,0", "--slow=1,3", "--cost=store=0,1"]):
        assert output("--rate=400", *options) == output("--rate=400", *options)


@pytest.mark.parametrize("stage,side", (("fill", "source"), ("store", "sink")))
def test_the_slower_end_bounds_a_lane(stage, side):
    for lanes in (1, 2, 4):
        r = run("--rate=400", "--cost=%s=0,0.2" % stage, *window(lanes, 8, 256))
        assert r["reached"] == pytest.approx(lanes * 5e9, rel=0.01)
        # The thread does nothing else.
        assert r[side + "_ns"][stage] / lanes > 0.98 * r["end_ns"]


def test_a_busy_sink_batches_credits():
    r = run("--rate=400", "--cost=store=0,0.2", *window(1, 16, 256))
    assert r["credits"] <= r["blocks"] / 4 + 2


def test_an_idle_sink_grants_each_block_at_once():
    r = run("--rate=100", "--rtt=1000", *window(1, 1, 256))
    assert r["credits"] == r["blocks"]


@pytest.mark.parametrize("rtt", RTTS)
def test_the_last_credits_are_not_held_back(rtt):
    """Two round trips to connect, then the blocks back to back, and one round trip for the last one."""
    for blocks in (1, 2, 3, 4, 5, 7, 8):
        r = run("--rate=100", "--rtt=%d" % rtt, "--blocks=%d" % blocks, *window(1, 8, 256))
        credit_ns = 16 * 8 / 100
        assert r["end_ns"] == pytest.approx(3000 * rtt + blocks * BLOCK_NS + credit_ns, abs=200), r


def test_other_lanes_take_over_from_a_slow_one():
    r = run("--rate=100", "--blocks=4000", "--cost=store=0,0.1", "--slow=1,10", *window(4, 8, 256))
    slow = r["blocks_by_lane"][1]
    assert slow < min(b for i, b in enumerate(r["blocks_by_lane"]) if i != 1) / 3
    assert sum(r["blocks_by_lane"]) == 4000
    # It ends with what the slow lane holds: at most its depth.
    assert r["end_ns"] < 4000 * 262144 / 12.5 + 8 * 262144


@pytest.mark.parametrize("notice_ms", (1, 100))
@pytest.mark.parametrize("rtt", (5, 10000))
def test_a_lost_wire_costs_its_notice_and_a_few_round_trips(notice_ms, rtt):
    r = run("--rate=100", "--rtt=%d" % rtt, "--blocks=3000", "--lose=100,1,%d" % notice_ms, *window(2, 8, 256))
    assert sum(r["blocks_by_lane"]) == 3000 and r["epochs"] == 3
    assert 0 < r["resent"] <= 8
    # LANE_DOWN, LANE_STORED, the connection manager, the hellos, and a block.
    made_ns = r["paused_ns"] - notice_ms * 1e6
    assert 3450 * rtt < made_ns < 3550 * rtt + 17 * BLOCK_NS


def test_registering_memory_again_delays_a_lost_wire():
    lost = ["--rate=100", "--blocks=3000", "--lose=100,1,1", *window(2, 8, 256)]
    pool = 8 * (262144 + 4096)
    extra = run(*lost, "--cost=register=0,0.5")["paused_ns"] - run(*lost)["paused_ns"]
    assert extra == pytest.approx(2 * pool * 0.5, rel=0.01)  # one end after the other


@pytest.mark.parametrize("block,seconds", ((0, 5), (100, 15)))
def test_a_silent_wire_is_given_up_in_time(block, seconds):
    r = run("--rate=400", "--blocks=3000", "--lose=%d,1,0" % block, *window(2, 8, 256))
    assert sum(r["blocks_by_lane"]) == 3000 and r["epochs"] == 3
    assert seconds <= r["paused_ns"] / 1e9 < seconds + 0.1


def test_a_sink_that_is_busy_keeps_its_wire():
    r = run("--blocks=3000", "--pause=100,100", *window(2, 8, 256))
    assert r["epochs"] == 2 and r["resent"] == 0
    assert r["end_ns"] > 100e9


def test_wires_that_are_all_lost_end_the_lane():
    assert "10 connections in a row" in run("--lose=0,99,1", *window(2, 8, 256))["failed"]
