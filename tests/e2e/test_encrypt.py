# SPDX-License-Identifier: Apache-2.0
"""Encryption of the data (--encrypt): who decides, what holds, and that everything arrives."""

import json

import pytest

from hosts import IWARP, pattern

pytestmark = [pytest.mark.moves_blocks, pytest.mark.lanes]
BLOCK = 256 << 10
WISHES = ["auto", "on", "off"]
OPS = ["send", "write-send"] + ([] if IWARP else ["write-imm"])
FAULTS = ";".join(["break:lane=0,block=7", "damage:lane=0,block=17", "break:lane=1,block=9", "damage:lane=1,block=1",
                   "rekey:by=%d" % (3 * BLOCK)])


@pytest.mark.parametrize("there", WISHES)
@pytest.mark.parametrize("here", WISHES)
def test_both_ends_decide(bench, tmp_path, here, there):
    """Both ends are on one host, where auto alone encrypts nothing."""
    data = pattern(5 * BLOCK + 3)
    (tmp_path / "in").write_bytes(data)
    sink = bench.receive("-v", "--encrypt=" + there, tmp_path / "out")
    source = bench.send(sink.port, "-v", "--encrypt=" + here, tmp_path / "in")
    codes, said = (source.wait(), sink.wait()), source.errors() + sink.errors()
    if {here, there} == {"on", "off"}:
        assert codes == (43, 43), said
        assert "--encrypt=on" in said and "--encrypt=off" in said
        assert not (tmp_path / "out").exists()
        return
    assert codes == (0, 0), said
    assert (tmp_path / "out").read_bytes() == data
    for end in source, sink:
        line = end.errors().splitlines()[-3]
        assert (", encrypted with " if "on" in (here, there) else ", not encrypted") in line, end.errors()


@pytest.mark.parametrize("op", OPS)
def test_encrypted_transfer_survives_faults(bench, tmp_path, op):
    """Blocks are encrypted anew for each wire, and keys change, at both ends alike."""
    data = pattern(80 * BLOCK + 1)
    (tmp_path / "in").write_bytes(data)
    env = {"SLUICE_FAULT": FAULTS}
    sink = bench.receive("--rdma-op=" + op, tmp_path / "out", env=env)
    source = bench.send(sink.port, "-v", "--encrypt=on", "--lanes=2", "--depth=5", "--block-size=256k",
                        "--rdma-op=" + op, tmp_path / "in", env=env)
    assert (source.wait(), sink.wait()) == (0, 0), source.errors() + sink.errors()
    assert (tmp_path / "out").read_bytes() == data
    assert ", encrypted with " in source.errors()


@pytest.mark.parametrize("cap, cipher", [("", "AES-256-GCM"), ("~0x200000200000000", "ChaCha20-Poly1305")])
def test_cipher_is_one_that_both_processors_are_fast_at(bench, tmp_path, cap, cipher):
    (tmp_path / "in").write_bytes(pattern(BLOCK))
    env = {"OPENSSL_ia32cap": cap} if cap else {}
    r = bench.copy("--json", "--encrypt=on", "in", "far:%s/out" % tmp_path, env=env)
    assert r.code == 0, r.errors()
    summary = json.loads(r.out.decode().splitlines()[-1])
    assert summary["encrypted"] == "all"
    if cap or summary["cipher"] != "ChaCha20-Poly1305":
        assert summary["cipher"] == cipher
    assert (tmp_path / "out").read_bytes() == (tmp_path / "in").read_bytes()


def test_tree_of_records_and_extents_is_copied(bench, tmp_path):
    tree = tmp_path / "tree"
    tree.mkdir()
    for i in range(200):
        (tree / ("small%d" % i)).write_bytes(pattern(i * 7, seed=i))
    (tree / "big").write_bytes(pattern(20 * BLOCK + 5))
    r = bench.copy("-a", "--encrypt=on", "tree", "far:%s/copy" % tmp_path)
    assert r.code == 0, r.errors()
    for f in tree.iterdir():
        assert (tmp_path / "copy" / f.name).read_bytes() == f.read_bytes(), f.name


def test_block_that_is_always_damaged_exits_41(bench, tmp_path):
    (tmp_path / "in").write_bytes(pattern(9 * BLOCK))
    sink = bench.receive(tmp_path / "out")
    source = bench.send(sink.port, "--encrypt=on", "--lanes=1", tmp_path / "in",
                        env={"SLUICE_FAULT": "damage:lane=0,block=2,times=0"})
    assert (source.wait(), sink.wait()) == (41, 41), source.errors() + sink.errors()
    assert not (tmp_path / "out").exists()
