# SPDX-License-Identifier: Apache-2.0
"""rdcpd on every kind of verbs: the kernel's check the credentials of a process that has opened an adapter."""

import os
import re

import pytest

from daemons import Configured
from hosts import FAR, NEAR, PATIENCE, SIM, leftovers, open_up, pattern

pytestmark = [
    pytest.mark.needs("verbs", why="it is about RDMA lanes"),
    pytest.mark.needs("root", why="only root can serve a module as another user"),
]


# Of the source, which is the client or the daemon.
BREAKS = {"SLUICE_FAULT": "break:lane=0,block=5,times=1;break:lane=1,block=7,times=1"}


@pytest.mark.lab(cases="root", long=True)
@pytest.mark.lab("rxe", cases="nobody")
@pytest.mark.lab("siw", cases="nobody")
@pytest.mark.lanes
@pytest.mark.parametrize("account", ["root", "nobody"])
def test_push_and_pull(bench, tmp_path, account):
    """Lanes break, and reconnect after the end was confined to its module."""
    open_up(tmp_path)
    if SIM:
        os.chmod(os.environ["SIMVERBS"], 0o755)
    (tmp_path / "rw").mkdir(mode=0o700)
    own = "uid = 65534\ngid = 65534\n" if account == "nobody" else ""
    if own:
        os.chown(tmp_path / "rw", 65534, 65534)
    daemon = Configured(bench, tmp_path, "[rw]\npath = {tmp}/rw\nread only = no\n" + own, at=FAR.address, host=FAR, env=BREAKS)
    data = pattern(12 << 20)
    (tmp_path / "in").write_bytes(data)
    for what, where in (("in", daemon.url("rw/")), (daemon.url("rw/in"), "out")):
        r = bench.run(daemon.argv("-v", "-v", *PATIENCE, "--transport=rdma", "--lanes=2", what, where), cwd=tmp_path, host=NEAR,
                      env=BREAKS)
        assert r.code == 0 and "over rdma" in r.errors(), r.errors() + daemon.run.errors()
        # The other lane may come when there is nothing left to move.
        assert re.search("lane [01] epoch 1: rdma", r.errors()), r.errors()
    assert (tmp_path / "out").read_bytes() == data
    assert (tmp_path / "rw" / "in").stat().st_uid == (65534 if own else 0)
    assert leftovers(tmp_path / "rw") == []
