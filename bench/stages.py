# SPDX-License-Identifier: Apache-2.0
"""What bounds lanes on links of 100, 200 and 400 Gb/s, for bench/run: the costs of each stage are measured here, the
links are those of tests/discrete, in virtual time."""

import json
import subprocess

from measure import BIN, RESULTS, ROOT, not_run

RATES = (100, 200, 400)
RTTS_US = (5, 100, 10000)
# Over ssh, the session does not know the round-trip time.
PATHS = [(rtt, str(rtt), []) for rtt in RTTS_US] + [(10000, "10000, over ssh", ["--unmeasured"])]
LOCKED = {"unlimited": [], "64 MiB": ["--lockable-mib=64"], "8 MiB": ["--lockable-mib=8"]}
STAGES = ("fill", "store", "digest", "lane", "post", "completion", "credit", "wake")
# So fast that threads alone are the limit, Gb/s.
NO_LINK = 100000
ADAPTER = "connectx-roce"


def measured_once():
    """{(end, stage): (ns a call, ns a byte)}; post and completion are those of a simulated adapter."""
    costs, program = {}, str(BIN / "bench/stage_costs")
    for argv in ([program], [str(ROOT / "tests/simverbs/with"), "-b", str(BIN), ADAPTER, program, "--rdma", "127.0.0.1"]):
        out = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
        for end, stage, call, byte in (line.split() for line in out.splitlines()):
            for e in ("source", "sink") if end == "both" else (end,):
                costs[e, stage] = float(call), float(byte)
    return costs


def measured(runs):
    """The least of all runs."""
    got = [measured_once() for _ in range(runs)]
    return {key: (min(g[key][0] for g in got), min(g[key][1] for g in got)) for key in got[0]}


def options_of(costs, without=()):
    return ["--cost=%s.%s=%g,%g" % (end, stage, call, byte) for (end, stage), (call, byte) in costs.items()
            if stage not in without]


def discrete(*options):
    out = subprocess.run([str(BIN / "tests/discrete/discrete"), *map(str, options)], capture_output=True, text=True, check=True)
    return json.loads(out.stdout)


def gbits(r):
    return r["reached"] * 8 / 1e9


def shape(r):
    return "%d x %d x %d KiB" % (r["lanes"], r["depth"], r["block"] >> 10)


def add_row(what, **fields):
    RESULTS.append({"what": what, **fields})


def cost_table(costs, runs):
    what = "What one stage costs at either end, the least of %d runs" % runs
    print("\n%s" % what)
    for (end, stage), (call, byte) in sorted(costs.items()):
        print("  %-7s %-11s %9.1f ns a call %8.4f ns a byte" % (end, stage, call, byte))
        add_row(what, end=end, stage=stage, **{"ns a call": call, "ns a byte": byte})


def size_table(costs):
    """What sessions choose, and how far that goes, without files."""
    what = "What a session chooses over RDMA, and the rate from memory to memory, Gb/s"
    print("\n%s" % what)
    for rate in RATES:
        for rtt, path, unmeasured in PATHS:
            for locked, options in LOCKED.items():
                link = ["--rate=%d" % rate, "--rtt=%d" % rtt, *unmeasured, *options]
                r = discrete(*link, *options_of(costs, without=("fill", "store", "register")))
                law = r["law"] * 8 / 1e9
                print("  %3d Gb/s %15s us %-9s %-18s %8.1f  law %8.1f" % (rate, path, locked, shape(r), gbits(r), law))
                add_row(what, **{"link": rate, "RTT, us": path, "locked memory": locked, "lanes x depth x block": shape(r),
                                 "reached": gbits(r), "law": law})


def busy_share(r, end, stage):
    """Of a thread's time, percent."""
    return 100 * r[end + "_ns"][stage] / r["lanes"] / r["end_ns"]


def bound_table(what, costs):
    """For each rate the share of a thread's time that a stage takes, and the rate of all lanes on a link without limit
    if that stage took no time."""
    stages_here = [s for s in STAGES if any(s == stage for _, stage in costs)]
    rows = {stage: {"stage": stage} for stage in ("all", *stages_here)}
    reached = []
    for rate in RATES:
        r = discrete("--rate=%d" % rate, *options_of(costs, without=("register",)))
        size = ["--lanes=%d" % r["lanes"], "--depth=%d" % r["depth"], "--block-kib=%d" % (r["block"] >> 10)]
        reached.append("%.0f of %d Gb/s with %s" % (gbits(r), rate, shape(r)))
        for stage, row in rows.items():
            for end in ("source", "sink"):
                row["%d: %s, %%" % (rate, end)] = "%.2f" % sum(
                    busy_share(r, end, s) for s in stages_here if stage in (s, "all"))
            alone = discrete("--rate=%d" % NO_LINK, *size, *options_of(costs, without=("register", stage)))
            row["%d: alone" % rate] = ("%.0f" if stage == "all" else "%.0f without") % gbits(alone)
    note = "reached: " + "; ".join(reached) + ". Alone: lanes of that shape on a link without limit, in Gb/s"
    print("\n%s\n%s" % (what, note))
    for row in rows.values():
        print("  %s" % ", ".join("%s %s" % kv for kv in row.items()))
        add_row(what, note=note, **row)


def registration_table(costs):
    what = "Registering the memory of one lane at both ends, before its first block"
    print("\n%s" % what)
    for rate in RATES:
        plain, paid = (discrete("--rate=%d" % rate, "--blocks=1", *o) for o in ([], options_of(
            {k: v for k, v in costs.items() if k[1] == "register"})))
        ms = (paid["end_ns"] - plain["end_ns"]) / 1e6
        print("  %d Gb/s %s %.2f ms" % (rate, shape(plain), ms))
        add_row(what, **{"link, Gb/s": rate, "lanes x depth x block": shape(plain), "ms": ms})


def stages(runs):
    try:
        costs = measured(runs)
    except (OSError, subprocess.CalledProcessError) as e:
        return not_run("What bounds fast links", "it failed: %s" % e)
    cost_table(costs, runs)
    size_table(costs)
    bound_table("What takes a thread's time, from memory to memory", {
        key: value for key, value in costs.items() if key[1] not in ("fill", "store")})
    bound_table("What takes a thread's time, from a cached file to a cached file", costs)
    registration_table(costs)
