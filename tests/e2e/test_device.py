# SPDX-License-Identifier: Apache-2.0
"""tests/device: what an owner of an adapter sends in is complete, and names nobody."""

import importlib.machinery
import importlib.util
import json

import pytest

from arena import WATCHED
from hosts import BIN, IWARP, ROOT, SIM

DEVICE = ROOT / "tests" / "device"


def loaded():
    loader = importlib.machinery.SourceFileLoader("device", str(DEVICE))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("device", loader))
    loader.exec_module(module)
    return module


@pytest.mark.needs("tcp", why="it needs no adapter; one run is enough")
@pytest.mark.parametrize("host", ["gpu17", "gpu17.example.org"])
def test_names_and_addresses_are_replaced(monkeypatch, host):
    device = loaded()
    monkeypatch.setenv("HOME", "/home/alice")
    monkeypatch.setattr(device.getpass, "getuser", lambda: "alice")
    monkeypatch.setattr(device.socket, "gethostname", lambda: host)
    monkeypatch.setattr(device.socket, "getfqdn", lambda: "gpu17.example.org")
    clean = device.Redactor("10.1.0.1", "10.1.0.2")
    for text, wanted in {
            "from 10.1.0.1 to 10.1.0.2:7000": "from NEAR to FAR:7000",
            "via 192.168.7.1": "via ADDRESS",
            "gid fe80::ba59:9f03:12:3456, 3 ::ffff:192.168.10.1": "gid ADDRESS, 3 ADDRESS",
            "guid b859:9f03:0012:3456": "guid ADDRESS",
            "mac b8:59:9f:12:34:56": "mac ADDRESS",
            " GID: 00:00:00:00:00:00:00:00:00:00:255:255:10:77:01:02": " GID: ADDRESS",
            "/home/alice/sluice/x.c and /tmp/pytest-of-alice/in": "HOME/sluice/x.c and /tmp/pytest-of-USER/in",
            "gpu17: mlx5_0 on gpu17.example.org": "HOST: mlx5_0 on HOST",
            # What must stay.
            "at 0000:3b:00.0, 127.0.0.1, ::1": "at 0000:3b:00.0, 127.0.0.1, ::1",
            "20.31.1014, 8.0 GT/s x16, 13:05:59": "20.31.1014, 8.0 GT/s x16, 13:05:59",
            "e2e.test_stream::test_a[1]": "e2e.test_stream::test_a[1]"}.items():
        assert clean({"k": [text]}) == {"k": [wanted]}


@pytest.mark.needs("tcp", why="it needs no adapter; one run is enough")
def test_both_ends_are_at_one_address_unless_two_are_given(monkeypatch):
    """An address of another port of this machine would not be reached over a cable (docs/hardware.md)."""
    device = loaded()
    for name in "SLUICE_TEST_NEAR", "SLUICE_TEST_FAR", "SIMVERBS":
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(device, "SIMULATED", None)
    monkeypatch.setattr(device, "active_devices", lambda: ["mlx5_0", "mlx5_1"])
    monkeypatch.setattr(device, "addresses_of", lambda d: ["10.0.0.1"] if d == "mlx5_0" else ["10.0.1.1"])
    assert device.find_addresses(None, None) == ("10.0.0.1", "10.0.0.1")
    assert device.find_addresses(None, "10.0.1.1") == ("10.0.0.1", "10.0.1.1")
    assert device.find_addresses("10.0.1.1", None) == ("10.0.1.1", "10.0.1.1")


@pytest.mark.moves_blocks
@pytest.mark.needs("sim", why="it runs on a simulated adapter")
@pytest.mark.may_skip("any", "one adapter of each kind is enough, without sanitizers")
@pytest.mark.timeout(600)
def test_one_file_has_everything(bench, tmp_path):
    if SIM not in ("connectx-roce", "t6-iwarp") or WATCHED:
        pytest.skip("one adapter of each kind is enough, without sanitizers")
    out = tmp_path / "sent.json"
    r = bench.run([ROOT / "tests/simverbs/with", "-b", BIN.parent, SIM, DEVICE, "--seconds=0.02", "--out", out,
                   "--measured", BIN.parent, "tests/e2e/test_tos.py::test_other_values_are_rejected"], timeout=580)
    assert r.code == 0, r.out.decode() + r.errors()
    assert "written: %s" % out in r.out.decode()
    sent = json.loads(out.read_text())
    assert list(sent)[0] == "SIMULATED" and sent["machine"]["simulated"] == SIM
    adapter = sent["machine"]["adapters"][0]
    assert adapter["driver"] and adapter["node_type"] == ("4: RNIC" if IWARP else "1: CA")
    assert {line["type"] for line in sent["rdcheck"]["lines"]} == {"start", "check", "summary"}
    assert {u["result"] for u in sent["unit"]} <= {"passed", "skipped"} and sent["unit"][0]["result"] == "passed"
    assert [t["result"] for t in sent["e2e"]["results"]] == ["passed"] * 7
    figures = sent["figures"]
    assert figures["rdbench rdma"]["exit"] == 0 and figures["rdbench tcp"]["exit"] == 0
    assert any(line["type"] == "summary" and line["best"] for line in figures["rdbench rdma"]["lines"])
    assert set(figures) >= {"ib_send_bw", "ib_write_bw"}
