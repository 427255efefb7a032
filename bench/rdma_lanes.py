# SPDX-License-Identifier: Apache-2.0
"""Lanes over a simulated adapter beside the least that moves messages over it (send_loop), for bench/run. Each end is
a process; only ratios within one run are meaningful."""

import os
import re
import subprocess
import sys

from cost import ADAPTER, simulated_host
from measure import BIN, free_port, in_turn, not_run, report

FOR_SECONDS = ("--seconds", 1, "--settle", 0.2)
WHERE = "simulated %s" % ADAPTER
LOOP = "loop of SENDs"


def start(env, program, *args):
    return subprocess.Popen([str(BIN / "bench" / program), *map(str, args)], env={**os.environ, **env}, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True)


def pair(env, program, *args):
    """Runs a source and a sink. Returns (GB/s, processor seconds of both); None if one failed."""
    where = ("--rdma", "127.0.0.1", "--port", free_port(), *args)
    sink = start(env, program, "--sink", *where)
    sink.stdout.readline()
    source = start(env, program, "--source", *where)
    said, cpu = source.stdout.read() + source.stderr.read(), 0
    for p in (source, sink):
        _, status, used = os.wait4(p.pid, 0)
        p.returncode = os.waitstatus_to_exitcode(status)
        cpu += used.ru_utime + used.ru_stime
    found = re.search(r"([0-9.]+) GB/s", said)
    if source.returncode or sink.returncode or not found:
        print("  %s %s: %s" % (program, args, said + sink.stderr.read()), file=sys.stderr)
        return None
    return float(found.group(1)), cpu


def measured(env, blocks, depth, argv):
    """(GB/s, processor seconds per block). The seconds do not count those of a pair that only goes twice through its
    memory, most of which is the start and page faults."""
    few, many = (pair(env, *argv, "--blocks", n) for n in (2 * depth, blocks + 2 * depth))
    return (many[0], (many[1] - few[1]) / blocks) if few and many else None


def rates_in_pairs(env, runs, who):
    got = in_turn(runs, {name: lambda argv=argv: pair(env, *argv, *FOR_SECONDS) for name, argv in who.items()})
    return {name: [r[0] for r in results] for name, results in got.items()}


def beside_loop(env, runs, kib, depth, blocks):
    shape = ("--block-kib", kib, "--depth", depth)
    who = {"lanes": ("lane_bench", "--lanes", 1, "--no-check", *shape),
           LOOP: ("send_loop", *shape)}
    got = in_turn(runs, {name: lambda argv=argv: measured(env, blocks, depth, argv) for name, argv in who.items()})
    what = "One lane and a loop of SENDs, %d blocks of %d KiB, %s" % (depth, kib, WHERE)
    size = kib << 10
    if kib < 64:
        report(what, {who: [r[0] * 1e9 / size for r in values] for who, values in got.items()}, unit="blocks/s", digits=0)
    else:
        report(what, {who: [r[0] for r in values] for who, values in got.items()})
    report("Processor time of both ends, a block, of these", {
        who: [r[1] * 1e6 for r in values] for who, values in got.items()}, unit="us", digits=2)


def by_number(env, runs):
    report("Lanes of 12 blocks of 256 KiB, %s" % WHERE, rates_in_pairs(env, runs, {
        "lanes: %d" % n: ("lane_bench", "--lanes", n, "--no-check") for n in (1, 2, 3, 4, 6, 8)}))


def by_operation(env, runs):
    for kib, depth in ((256, 12), (4, 128)):
        report("Two lanes by --rdma-op, blocks of %d KiB, %s" % (kib, WHERE), rates_in_pairs(env, runs, {
            op: ("lane_bench", "--lanes", 2, "--no-check", "--block-kib", kib, "--depth", depth, "--rdma-op", op)
            for op in ("send", "write-imm", "write-send")}))


def rdma_lanes(runs):
    if not (BIN / "bench/send_loop").exists():
        return not_run("Lanes over a simulated adapter", "a build without rdma-core")
    with simulated_host() as env:
        for kib, depth, blocks in ((256, 12, 2000), (1024, 14, 500), (4, 128, 40000)):
            beside_loop(env, runs, kib, depth, blocks)
        by_number(env, runs)
        by_operation(env, runs)
