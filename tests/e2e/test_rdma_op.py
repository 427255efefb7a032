# SPDX-License-Identifier: Apache-2.0
"""The data operations of --rdma-op: each is used, survives faults, and is refused on an adapter that lacks it. With
SLUICE_RDMA_OP all other tests use one operation."""

import pytest

from hosts import IWARP, pattern

pytestmark = [
    pytest.mark.moves_blocks,
    pytest.mark.lanes,
    pytest.mark.needs("verbs", why="it is about verbs; the lab runs it"),
]
BLOCK = 256 << 10
WRITES = ["write-send"] if IWARP else ["write-imm", "write-send"]


@pytest.fixture(params=WRITES)
def op(request):
    return request.param


@pytest.mark.lab("rxe", cases="write-imm")
@pytest.mark.lab(long=True)
def test_tree_is_copied_there_and_back(bench, tmp_path, op):
    """Records, which are parsed, and extents, which are not."""
    tree = tmp_path / "tree"
    tree.mkdir()
    for i in range(300):
        (tree / ("small%d" % i)).write_bytes(pattern(i * 7, seed=i))
    (tree / "big").write_bytes(pattern(20 * BLOCK + 5))
    r = bench.copy("-a", "-vv", "--rdma-op=" + op, "tree", "far:%s/copy" % tmp_path)
    assert r.code == 0, r.errors()
    assert any(line.endswith(" " + op) and "epoch 0: rdma" in line for line in r.errors().splitlines()), r.errors()
    assert bench.copy("-a", "--rdma-op=" + op, "far:%s/copy" % tmp_path, "back").code == 0
    for f in tree.iterdir():
        assert (tmp_path / "back" / f.name).read_bytes() == f.read_bytes(), f.name


@pytest.mark.parametrize("way", ["file", "stream"])
@pytest.mark.lab(cases="write-send-file")
@pytest.mark.lab(cases="*file*", long=True)
def test_transfer_survives_faults(bench, tmp_path, op, way):
    data = pattern(80 * BLOCK)
    (tmp_path / "in").write_bytes(data)
    sink = bench.receive(*([tmp_path / "out"] if way == "file" else
                           ["--", "sh", "-c", "cat >%s/out" % tmp_path]))
    source = bench.send(sink.port, "--lanes=2", "--depth=5", "--rdma-op=" + op, tmp_path / "in", env={
        "SLUICE_FAULT": "break:lane=0,block=7;damage:lane=0,block=17;break:lane=1,block=9;damage:lane=1,block=1"})
    assert (source.wait(), sink.wait()) == (0, 0), source.errors() + sink.errors()
    assert (tmp_path / "out").read_bytes() == data


@pytest.mark.parametrize("here, there, taken", [
    ("auto", "write-send", "write-send"), ("write-send", "auto", "write-send"), ("send", "write-send", ""),
])
@pytest.mark.lab(cases="auto*", long=True)
def test_both_ends_agree_on_an_operation(bench, tmp_path, here, there, taken):
    (tmp_path / "in").write_bytes(pattern(BLOCK))
    sink = bench.receive("-vv", "--rdma-op=" + there, tmp_path / "out")
    source = bench.send(sink.port, "-vv", "--rdma-op=" + here, tmp_path / "in")
    assert (source.wait(), sink.wait()) == (0, 0), source.errors() + sink.errors()
    for end in (source, sink):
        assert ("write" in end.errors()) == bool(taken), end.errors()


@pytest.mark.needs("iwarp", why="other adapters can write with an immediate")
@pytest.mark.parametrize("who", ["push", "pull", "rdsend"])
@pytest.mark.lab("siw", cases="push")
def test_write_imm_on_iwarp_exits_43_with_the_remedy(bench, tmp_path, who):
    (tmp_path / "in").write_bytes(pattern(4 * BLOCK))
    if who == "rdsend":
        sink = bench.receive("--rdma-op=write-imm", tmp_path / "out")
        source = bench.send(sink.port, tmp_path / "in")
        assert (source.wait(), sink.wait()) == (43, 43), source.errors() + sink.errors()
        said = source.errors()
    else:
        near, far = "%s", "far:" + str(tmp_path) + "/%s"
        r = bench.copy("--rdma-op=write-imm", *((near % "in", far % "out") if who == "push" else
                                                (far % "in", near % "out")))
        assert r.code == 43, r.errors()
        said = r.errors()
    assert "--rdma-op=write-send" in said and "iWARP" in said
    assert not (tmp_path / "out").exists()


@pytest.mark.needs("iwarp", why="other adapters can write with an immediate")
def test_write_imm_on_iwarp_falls_back_to_tcp_with_one_message(bench, tmp_path):
    (tmp_path / "in").write_bytes(pattern(4 * BLOCK))
    r = bench.copy("--rdma-op=write-imm", "in", "far:%s/out" % tmp_path, transport="--transport=auto")
    assert r.code == 0, r.errors()
    assert [line for line in r.errors().splitlines() if "TCP, not RDMA" in line and "--rdma-op=write-send" in line]
