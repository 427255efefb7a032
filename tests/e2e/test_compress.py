# SPDX-License-Identifier: Apache-2.0
"""Compression of the data (-z): who decides, what is sent, and that everything arrives."""

import json
import random

import pytest

from hosts import IWARP, leftovers, pattern, share, wait_until, wait_until_gone
from processes import descendants

pytestmark = [pytest.mark.moves_blocks, pytest.mark.lanes]
BLOCK = 256 << 10
OPS = ["send", "write-send"] + ([] if IWARP else ["write-imm"])
FAULTS = ";".join(["break:lane=0,block=7", "damage:lane=0,block=17", "break:lane=1,block=9", "damage:lane=1,block=1",
                   "rekey:by=%d" % (3 * BLOCK)])


def text(size, seed=1):
    """Bytes that shrink to less than a half."""
    words = [b"%x " % n for n in random.Random(seed).sample(range(10**6), 500)]
    made = b"".join(random.Random(seed).choices(words, k=min(40000, size // 2 + 1)))
    return (made * (size // len(made) + 1))[:size]


def noise(size, seed=1):
    return random.Random(seed).randbytes(size)


def summary(r):
    return json.loads(r.out.decode().splitlines()[-1])


@pytest.mark.parametrize("seal", ["on", "off"])
@pytest.mark.parametrize("op", OPS)
def test_compressed_transfer_survives_faults(bench, tmp_path, op, seal):
    data = text(40 * BLOCK) + noise(20 * BLOCK) + text(20 * BLOCK + 1)
    (tmp_path / "in").write_bytes(data)
    env = {"SLUICE_FAULT": FAULTS}
    sink = bench.receive("--rdma-op=" + op, tmp_path / "out", env=env)
    source = bench.send(sink.port, "-v", "-z", "--compress=zstd", "--encrypt=" + seal, "--lanes=2", "--depth=5",
                        "--block-size=256k", "--rdma-op=" + op, tmp_path / "in", env=env)
    assert (source.wait(), sink.wait()) == (0, 0), source.errors() + sink.errors()
    assert (tmp_path / "out").read_bytes() == data
    assert ", compressed " in source.errors().splitlines()[-3], source.errors()


@pytest.mark.any_lane
@pytest.mark.parametrize("here, there, ratio", [("--compress=zstd", "-q", True), ("-q", "--zl=3", True), ("--compress=1", "--zc=none", True),
                                                ("-q", "-q", False), ("--compress-choice=none", "-q", False)])
def test_one_end_is_enough(bench, tmp_path, here, there, ratio):
    (tmp_path / "in").write_bytes(text(9 * BLOCK))
    sink = bench.receive("--json", there, tmp_path / "out")
    source = bench.send(sink.port, "--json", here, tmp_path / "in")
    assert (source.wait(), sink.wait()) == (0, 0), source.errors() + sink.errors()
    assert (tmp_path / "out").read_bytes() == text(9 * BLOCK)
    for end in source, sink:
        said = json.loads(end.out.decode().splitlines()[-1])
        if ratio:
            assert said["compression_ratio"] > 1.5 and said["wire_bytes"] < 5 * BLOCK, said
        else:
            assert said["compression_ratio"] is None and said["wire_bytes"] >= 9 * BLOCK, said


@pytest.mark.any_lane
@pytest.mark.parametrize("options", share(["-z", "-C", "--compress=auto", "--compress=zstd", "--compress-level=19", "-z --zc=zstd"], 2))
def test_trees_are_copied_every_way(bench, tmp_path, way, options):
    tree = tmp_path / "tree"
    tree.mkdir()
    for i in range(100):
        (tree / ("small%d" % i)).write_bytes(text(i * 7, seed=i) if i % 2 else noise(i * 9, seed=i))
    (tree / "big").write_bytes(text(7 * BLOCK + 5))
    (tree / "zeros").write_bytes(bytes(5 * BLOCK))
    (tree / "noise").write_bytes(noise(5 * BLOCK + 77))
    r = bench.copy("-a", *options.split(), way[0] + str(tree), way[1] + str(tmp_path / "copy"))
    assert r.code == 0, r.errors()
    for f in tree.iterdir():
        assert (tmp_path / "copy" / f.name).read_bytes() == f.read_bytes(), f.name
    assert not leftovers(tmp_path)


@pytest.mark.any_lane
@pytest.mark.parametrize("options", ["--inplace", "--sparse", "--no-sparse", "--checksum -t", "--verify", "--print-digest", "--direct=on"])
def test_other_options_hold(bench, tmp_path, options):
    data = text(9 * BLOCK) + bytes(8 * BLOCK) + noise(3 * BLOCK) + text(77)
    (tmp_path / "in").write_bytes(data)
    (tmp_path / "out").write_bytes(noise(30 * BLOCK, seed=3))
    r = bench.copy("--compress=zstd", *options.split(), "in", "far:%s/out" % tmp_path)
    assert r.code == 0, r.errors()
    assert (tmp_path / "out").read_bytes() == data


@pytest.mark.any_lane
def test_bwlimit_counts_bytes_on_the_wire(bench, tmp_path):
    """Uncompressed, this would take ten seconds."""
    (tmp_path / "in").write_bytes(bytes(80 << 20))
    for options in ("in",), ("-",):
        stdin = (tmp_path / "in").open("rb") if options == ("-",) else None
        sink = bench.receive(tmp_path / "out")
        source = bench.send(sink.port, "--json", "--compress=zstd", "--bwlimit=8M", *([tmp_path / "in"] if options == ("in",) else []),
                            **({"stdin": stdin} if stdin else {}))
        assert (source.wait(), sink.wait()) == (0, 0), source.errors() + sink.errors()
        said = json.loads(source.out.decode().splitlines()[-1])
        assert said["seconds"] < 5 and said["bytes"] == 80 << 20, said
        assert (tmp_path / "out").stat().st_size == 80 << 20


@pytest.mark.any_lane
def test_auto_compresses_again_what_shrinks_under_a_limit(bench, tmp_path):
    """What --bwlimit holds back counts as waiting for the network."""
    (tmp_path / "in").write_bytes(noise(3 << 20) + text(15 << 20))
    r = bench.copy("--json", "-z", "--lanes=1", "--bwlimit=2M", "in", "far:%s/out" % tmp_path)
    assert r.code == 0, r.errors()
    assert (tmp_path / "out").read_bytes() == (tmp_path / "in").read_bytes()
    # On a busy machine some of the text goes before compression is found to pay.
    assert summary(r)["wire_bytes"] < 16 << 20, summary(r)


@pytest.mark.any_lane
def test_block_that_is_always_damaged_exits_41(bench, tmp_path):
    (tmp_path / "in").write_bytes(text(9 * BLOCK))
    sink = bench.receive(tmp_path / "out")
    source = bench.send(sink.port, "--compress=zstd", "--lanes=1", tmp_path / "in",
                        env={"SLUICE_FAULT": "damage:lane=0,block=2,times=0"})
    assert (source.wait(), sink.wait()) == (41, 41), source.errors() + sink.errors()
    assert not (tmp_path / "out").exists()


@pytest.mark.any_lane
def test_incompressible_data_is_sent_as_it_is(bench, tmp_path):
    data = noise(40 * BLOCK + 3)
    (tmp_path / "in").write_bytes(data)
    r = bench.copy("--json", "--compress=zstd", "in", "far:%s/out" % tmp_path)
    assert r.code == 0, r.errors()
    assert (tmp_path / "out").read_bytes() == data
    assert len(data) <= summary(r)["wire_bytes"] < len(data) + 5000


@pytest.mark.any_lane
def test_killed_copy_is_continued(bench, tmp_path):
    data = text(60 * BLOCK) + noise(20 * BLOCK) + pattern(20 * BLOCK)
    (tmp_path / "in").write_bytes(data)
    r = bench.copy("--compress=zstd", "--bwlimit=1M", "in", "far:%s/out" % tmp_path, wait=False)
    wait_until(lambda: any(len(f.read_bytes().rstrip(b"\0")) > 2 << 20 for f in tmp_path.glob(".sluice*")), step=0.1)
    ends = descendants(r.proc.pid)
    r.signal(9)
    r.wait()
    wait_until_gone(ends)
    r = bench.copy("--json", "--compress=zstd", "in", "far:%s/out" % tmp_path)
    assert r.code == 0, r.errors()
    assert summary(r)["had"] >= 1 << 20
    assert (tmp_path / "out").read_bytes() == data
    assert not leftovers(tmp_path)
