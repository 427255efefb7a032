# SPDX-License-Identifier: Apache-2.0
"""The names in JSON and the exit statuses, on which scripts depend: each is in a list here, and in the manuals."""

import json
import re
import subprocess

from hosts import NEAR, ROOT, environment, program

SETTING = ["transport", "rdma_op", "lanes", "depth", "block_size"]
MEASURED = ["stage", *SETTING, "bytes", "seconds", "bytes_per_second", "shrunk", "wire", "encrypted"]
FAILED = ["error", "host"]
TOTALS = ["program", "exit", "files", "same", "others", "failed", "bytes", "seconds", "bytes_per_second", "transport",
          "lanes", "wire", "encrypted", "cipher", "compression_ratio", "wire_bytes", "wire_bytes_per_second", "why_not_rdma",
          "bound_by", "source_busy", "compression", "encryption", "network",
          "sink_busy", "held_back", "processors", "window", "round_trip_us", "digest"]
COUNTS = ["regular", "dirs", "symlinks", "hard_links", "nodes", "created", "deleted", "sent", "had", "holes", "unkept"]
STATUSES = {
    "DONE": 0, "USAGE": 1, "VERSION": 2, "NO_SOURCE": 3, "START": 5, "SOCKET": 10, "FILE": 11, "PROTOCOL": 12,
    "SIGNAL": 20, "MEMORY": 22, "SOME_FILES": 23, "VANISHED": 24, "MAX_DELETE": 25, "TIMEOUT": 30, "CONNECT": 35,
    "AUTH": 40, "INTEGRITY": 41, "CHANGED": 42, "TRANSPORT": 43, "PEER_LOST": 44, "MEMLOCK": 45}


def names(text):
    """The names of each object but v and type, in order, by type; objects of one type have the same."""
    found = {}
    for line in text.splitlines():
        o = json.loads(line)
        assert o.pop("v") == 1
        kind = o.pop("type")
        assert found.setdefault(kind, list(o)) == list(o), line
    return found


def run(name, *args, cwd):
    """One program on this host alone."""
    r = subprocess.run([*NEAR.prefix, program(name), "--json", *args], cwd=cwd, env=environment(), timeout=60,
                       stdin=subprocess.DEVNULL, capture_output=True)
    return names(r.stdout.decode())


def test_rdcp_prints_these_names(bench, tmp_path):
    (tmp_path / "in").write_bytes(b"data")
    r = bench.copy("--json", "--print-digest", tmp_path / "in", "far:%s/out" % tmp_path)
    found = names(r.out.decode())
    found.pop("progress", None)
    assert found == {
        "start": ["source_host", "sources", "target_host", "target"],
        "file": ["path", "what", "exit", "size", "change", "deleted", "digest"],
        "summary": TOTALS + COUNTS}, r.errors()
    r = bench.copy("--json", tmp_path / "missing", "far:%s/out" % tmp_path)
    found = names(r.out.decode())
    assert found["error"] == ["text"] and found["summary"] == TOTALS + COUNTS + FAILED


def test_rdsend_and_rdrecv_print_these_names(bench, tmp_path):
    (tmp_path / "in").write_bytes(b"data")
    sink = bench.receive("--json", tmp_path / "out")
    source = bench.send(sink.port, "--json", tmp_path / "in")
    assert (source.wait(), sink.wait()) == (0, 0), source.errors() + sink.errors()
    for p in source, sink:
        found = names("".join(x for x in (bytes(p.out).decode() + p.errors()).splitlines(True) if x[0] == "{"))
        assert found["summary"] == TOTALS + COUNTS


def test_rdbench_prints_these_names(tmp_path):
    found = run("rdbench", "--seconds=0.05", "--transport=tcp", "--lanes=1", "--depth=2", "--block-size=64k",
                "--source=.", "--target=.", cwd=tmp_path)
    assert found == {
        "start": ["program", "host", "seconds"], "point": MEASURED, "again": MEASURED, "stage": MEASURED,
        "summary": ["program", "exit", "best", "options", "bytes_per_second", "by_itself", "link",
                    "link_bytes_per_second", "latency_seconds"]}
    assert run("rdbench", "--source=missing", cwd=tmp_path)["summary"] == ["program", "exit", *FAILED]


def test_rdcheck_prints_these_names(tmp_path):
    assert run("rdcheck", "--transport=tcp", cwd=tmp_path) == {
        "start": ["host"], "check": ["host", "name", "subject", "state", "what", "remedy"],
        "summary": ["fit", "exit", "failures", "warnings"]}


def test_names_are_in_the_manuals():
    for page, wanted in (("rdcp.1", [*TOTALS, *COUNTS, *FAILED]), ("rdbench.1", [*MEASURED, *FAILED]),
                         ("rdcheck.1", ["state", "remedy", "fit"])):
        part = (ROOT / "man" / page).read_text().split("\n.SH JSON OUTPUT\n")[1].split("\n.SH ")[0]
        assert not set(wanted) - set(re.findall(r"\w+", part)), page


def test_exit_statuses_are_these():
    text = (ROOT / "src/base/fail.h").read_text()
    assert {name: int(n) for name, n in re.findall(r"^\tOUT_(\w+) = (\d+),", text, re.M)} == STATUSES
    in_manuals = set()
    for page in (ROOT / "man").glob("*.1"):
        part = page.read_text().split("\n.SH EXIT STATUS\n")[1].split("\n.SH ")[0]
        in_manuals |= {int(n) for n in re.findall(r"^\.B (\d+)$", part, re.M)}
    assert in_manuals == set(STATUSES.values())
