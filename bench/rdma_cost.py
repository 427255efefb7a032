# SPDX-License-Identifier: Apache-2.0
"""Counts what blocks cost over a simulated adapter, for bench/run: user instructions by stage (callgrind), and system
calls (strace). The difference of two transfers has no start and no end in it."""

import collections
import os
import pathlib
import shutil
import tempfile

from cost import SIZES, STAGES, built, counted, stream
from measure import RESULTS, made_file, not_run
from rdma_lanes import LOOP, pair, simulated_host

RDMA_STAGES = (("simulated adapter", r"libibverbs|librdmacm|tests/simverbs"), *STAGES, ("the program", r"bench/"))
# Instructions in these functions count for their callers. The simulated adapter calls them most.
OF_CALLERS = ("pthread_*", "__pthread_*", "__mem*", "clock_*", "epoll_*", "__GI_*", "__lll_*", "write", "read", "poll",
              "getenv", "str*", "__str*")
SKIPPED = ["--fn-skip=%s" % name for name in OF_CALLERS]
BLOCKS = (64 << 10, 256 << 10)  # what the cost of a further byte comes from; the costs of a block are those of the last
NOT_OURS = ("digest", "cipher", "simulated adapter")


def counted_by_stage(run, folder):
    return counted(run, folder, RDMA_STAGES, SKIPPED)


def traced(run, folder):
    """{end: {system call: count}} of what run does; run: as counted() has it."""
    files = {end: pathlib.Path(folder) / ("strace." + end) for end in ("source", "sink")}
    if not run({end: ("strace", "-f", "-qq", "-c", "-U", "calls,name", "-o", file) for end, file in files.items()}):
        return None
    found = {}
    for end, file in files.items():
        rows = (line.split() for line in file.read_text().splitlines())
        found[end] = collections.Counter({r[1]: int(r[0]) for r in rows if len(r) == 2 and r[0].isdigit() and r[1] != "total"})
    return found


def scaled(counts, by):
    return {end: {what: v * by for what, v in figures.items()} for end, figures in counts.items()}


def difference(more, less):
    return {end: {what: v - less[end].get(what, 0) for what, v in figures.items()} for end, figures in more.items()}


def per_block(count, few, many):
    """What a block costs: count(n) counts a transfer of n blocks. None: a run failed."""
    got = [count(few), count(many)]
    return scaled(difference(got[1], got[0]), 1 / (many - few)) if all(got) else None


def stream_cost(count, build, env, folder, block):
    """What a block of a stream of a file costs, count: counted_by_stage or traced."""
    def count_blocks(n):
        path = made_file(folder, n * block)
        try:
            return count(lambda wrapped: stream(build, path, wrapped, transport="rdma", env=env, words=[
                "--encrypt=off", "--block-size=%d" % block]), folder)
        finally:
            os.unlink(path)
    return per_block(count_blocks, *(size // block for size in SIZES))


def rounded(figures, digits):
    """Without what nobody would notice."""
    return {k: round(v, digits) for k, v in sorted(figures.items(), key=lambda kv: -kv[1]) if abs(v) >= 0.5 * 10**-digits}


def add_row(what, **fields):
    print("  " + "; ".join("%s: %s" % (k, v) for k, v in fields.items()), flush=True)
    RESULTS.append({"what": what, **fields})


def stream_costs(tool, what, count, build, env, folder):
    small, large = ([stream_cost(count, build, env, folder, block) for block in BLOCKS]
                    if build and shutil.which(tool) else (None, None))
    if not small or not large:
        return not_run(what, "no %s here, or it failed" % tool)
    a_byte = scaled(difference(large, small), 1 / (BLOCKS[1] - BLOCKS[0]))
    print("\n%s" % what)
    for end, figures in large.items():
        ours = [k for k in figures if k not in NOT_OURS]
        add_row(what, end=end, **{
            "a block": rounded(figures, 2),
            "outside digest and adapter": round(sum(figures[k] for k in ours), 2),
            "a further byte": rounded(a_byte[end], 3),
            "of it outside digest and adapter": round(sum(a_byte[end][k] for k in ours), 3)})


def lane_costs(tool, what, count, build, env, folder):
    """One lane, memory to memory, and the loop."""
    shapes = ((256, 12, 200, 1200), (4, 128, 4000, 24000))
    who = {"one lane": ("lane_bench", "--lanes", 1, "--no-check"), LOOP: ("send_loop",)}
    if not build or not shutil.which(tool):
        return not_run(what, "no %s here" % tool)
    print("\n%s" % what)
    for kib, depth, few, many in shapes:
        for name, argv in who.items():
            a_block = per_block(lambda n: count(lambda wrapped: pair(
                env, *argv, "--block-kib", kib, "--depth", depth, "--blocks", n, build=build, wrapped=wrapped), folder), few, many)
            for end, figures in (a_block or {}).items():
                add_row(what, **{"block": "%d KiB" % kib, "": name, "end": end, "a block": rounded(figures, 2),
                                 "outside the adapter": round(sum(v for k, v in figures.items() if k not in NOT_OURS), 2)})


def block_costs():
    with tempfile.TemporaryDirectory(dir="/dev/shm") as d, simulated_host() as env:
        build = built(os.path.join(d, "build"))
        for costs, where in (stream_costs, "a file in /dev/shm to /dev/null, in blocks of 256 KiB"), (lane_costs, "memory to memory"):
            costs("valgrind", "User instructions a block, %s, over a simulated adapter" % where, counted_by_stage, build, env, d)
            costs("strace", "System calls a block, %s, the same" % where, traced, build, env, d)
