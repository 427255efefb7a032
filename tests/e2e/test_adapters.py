# SPDX-License-Identifier: Apache-2.0
"""Hosts with several adapters, ports and addresses, and one that loses some of them while a copy runs. All of it is
simulated (tests/simverbs), but the network devices and their addresses are real: those of a network namespace."""

import json
import os
import pathlib
import subprocess
import time
import uuid

import pytest

from hosts import IWARP, SIM, Host, in_halves, pattern, program, simulated, wait_until

if SIM:
    from make_host import Port

pytestmark = [
    pytest.mark.moves_blocks,
    pytest.mark.needs("sim", why="it makes hosts with several simulated adapters"),
    pytest.mark.needs("root", why="only root can make network namespaces"),
]
AUTO = "--transport=auto"
BYTES = 12 << 20
# The time that a copy over one such link takes.
SECONDS = 6
SLOWLY = ["bandwidth %d" % (BYTES * 8 // SECONDS // 1000000)]


class Machine:
    """A namespace with network devices, and the adapters of a simulated host behind them. Both ends of a copy are there."""

    def __init__(self, bench, tmp_path):
        self.bench, self.tmp = bench, tmp_path
        self.space = "adapters" + uuid.uuid4().hex[:8]
        self.host = Host("near", None, None, ["ip", "netns", "exec", self.space])
        self.data = pattern(BYTES)
        (tmp_path / "in").write_bytes(self.data)

    def ip(self, *words):
        subprocess.run(["ip", *words], check=True)

    def make(self):
        self.ip("netns", "add", self.space)
        self.ip("-n", self.space, "link", "set", "lo", "up")
        return self

    def clear(self):
        subprocess.run(["ip", "netns", "del", self.space], check=False)

    def add_netdev(self, name, *addresses):
        """Its other end is of no use."""
        self.ip("-n", self.space, "link", "add", name, "type", "veth", "peer", "name", "x" + name)
        for address in addresses:
            self.ip("-n", self.space, "addr", "add", address + "/24", "dev", name)
        for end in name, "x" + name:
            self.ip("-n", self.space, "link", "set", end, "up")

    def plug_in(self, *adapters, words=()):
        """The adapters, each with its ports, and their network devices."""
        for _, ports in adapters:
            for port in ports:
                for netdev, addresses in ((port.netdev, port.addresses), *port.vlans.items()):
                    self.add_netdev(netdev, *addresses)
        self.env = simulated(adapters=adapters, link_words=words)
        self.top = pathlib.Path(self.env["SIMVERBS"])
        self.env["SIMVERBS_RECORD"] = str(self.top / "connections")
        return self

    def set(self, name):
        (self.top / name).touch()

    def start(self, *options, transport="--transport=rdma", source="in"):
        return self.bench.copy("-v", "--lanes=2", *options, source, "far:%s/out" % self.tmp, transport=transport, wait=False,
                               host=self.host, env=self.env)

    def start_half(self, *options):
        """The second half is read when there is a file "go"."""
        os.mkfifo(self.tmp / "pipe")
        self.bench.start(["sh", "-c", "exec >pipe; " + in_halves(BYTES)], cwd=self.tmp)
        return self.start(*options, source="pipe")

    def await_data(self, *addresses):
        """Wait until some of the file is at the target, and there are connections to these addresses."""
        record = self.top / "connections"
        wait_until(lambda: any(p.stat().st_blocks * 512 >= BYTES // 16 for p in self.tmp.glob(".sluice.*")))
        wait_until(lambda: all(record.read_text().count(" %s " % a) >= 2 for a in addresses))
        time.sleep(0.3)  # for their hellos

    def finish(self, run, code=0):
        got = run.wait()
        assert got == code, (got, run.errors())
        assert code or (self.tmp / "out").read_bytes() == self.data
        return run.errors()

    def copy(self, *options, code=0, **how):
        return self.finish(self.start(*options, **how), code)

    def check(self):
        """What rdcheck finds on the near host, as rows of JSON."""
        run = self.bench.run([program("rdcheck"), "--json"], host=self.host, env=self.env)
        return [json.loads(line) for line in run.out.decode().splitlines()]


@pytest.fixture
def machine(bench, tmp_path):
    made = Machine(bench, tmp_path)
    try:
        yield made.make()
    finally:
        bench.close()
        made.clear()


def two():
    return (SIM, [Port(["10.79.0.1"], "sim0")]), (SIM, [Port(["10.79.1.1"], "sim1")])


def names_of(machine):
    """The adapters' names, as the host has them."""
    return [next(line.split()[1] for line in (machine.top / name).read_text().splitlines() if line.startswith("device "))
            for name in ("personality", "personality.1") if (machine.top / name).exists()]


@pytest.mark.lanes
def test_lanes_are_spread_over_two_adapters(machine):
    said = machine.plug_in(*two(), words=SLOWLY).copy()
    first, second = names_of(machine)
    where = said.split("Gb/s over ")[1].splitlines()[0]
    assert first in where and second in where and "rail 2 of 2" in said, said


def test_one_rail_uses_one_adapter(machine):
    said = machine.plug_in(*two(), words=SLOWLY).copy("--rails=1")
    first, second = names_of(machine)
    assert (first in said) != (second in said) and "rail 2" not in said, said


@pytest.mark.lanes
@pytest.mark.parametrize("what", ["down", "pulled"])
def test_an_adapter_that_goes_down_leaves_its_lanes_to_the_other(machine, what):
    run = machine.plug_in(*two(), words=SLOWLY).start_half("--timeout=10")
    first, second = names_of(machine)
    machine.await_data("10.79.0.1", "10.79.1.1")
    machine.set("%s.%s" % (what, second))
    began = time.monotonic()
    (machine.tmp / "go").touch()
    said = machine.finish(run)
    assert "was reconnected over rdma %s" % first in said or "%s to 10.79.1.1" % second in said, said
    assert "lanes use the other rails" in said, said
    assert "TCP" not in said and time.monotonic() - began < SECONDS + 15, said


def test_the_other_adapter_is_not_disturbed(machine):
    """The lane is on the first adapter."""
    run = machine.plug_in(*two(), words=SLOWLY).start("--lanes=1", "--address=10.79.0.1")
    machine.await_data("10.79.0.1")
    machine.set("pulled." + names_of(machine)[1])
    said = machine.finish(run)
    assert "reconnected" not in said and "failed" not in said, said


def test_adapters_of_two_makers_are_used_together(machine):
    other = "connectx-roce" if SIM != "connectx-roce" else "bnxt-roce"
    machine.plug_in((SIM, [Port(["10.79.0.1"], "sim0")]), (other, [Port(["10.79.1.1"], "sim1")]), words=SLOWLY)
    where = machine.copy().split("Gb/s over ")[1].splitlines()[0]
    assert all(name in where for name in names_of(machine)), where


@pytest.mark.skipif(IWARP, reason="iWARP adapters have no VLAN in their tables")
@pytest.mark.may_skip("any", "iWARP adapters have no VLAN in their tables", on="sim")
@pytest.mark.lanes
def test_an_address_of_a_vlan_is_the_ports(machine):
    """The network device of the port has no address. The kernel's modules for VLANs may be missing, so the VLAN's device
    is another one, which the GID table names."""
    said = machine.plug_in((SIM, [Port([], "sim0", vlans={"sim0.5": ["10.79.5.1"]})])).copy()
    assert "rdma %s 10.79.5.1" % names_of(machine)[0] in said, said
    found = [row for row in machine.check() if row.get("name") == "address" or "10.79.5.1" in json.dumps(row)]
    assert found, machine.check()


@pytest.mark.skipif(IWARP, reason="iWARP adapters have no VLAN in their tables")
@pytest.mark.may_skip("any", "iWARP adapters have no VLAN in their tables", on="sim")
def test_addresses_of_one_port_are_one_rail(machine):
    said = machine.plug_in((SIM, [Port(["10.79.0.1", "10.79.0.2"], "sim0", vlans={"sim0.5": ["10.79.5.1"]})])).copy()
    assert "rail 2" not in said and "rdma " in said, said


V1 = pytest.mark.skipif(IWARP or SIM.endswith("-ib"), reason="only RoCE has versions")


@V1
@pytest.mark.may_skip("any", "only RoCE has versions", on="sim")
@pytest.mark.lanes
def test_an_address_with_roce_v1_only_leaves_tcp(machine):
    machine.plug_in((SIM, [Port(["10.79.0.1"], "sim0", only_v1=["10.79.0.1"])]))
    said = machine.copy(transport=AUTO)
    assert "over TCP, not RDMA: " in said and "belongs to an RDMA device" in said, said
    said = machine.copy(code=43)
    assert "no RDMA connection to far: " in said and "belongs to an RDMA device" in said, said


@V1
@pytest.mark.may_skip("any", "only RoCE has versions", on="sim")
@pytest.mark.lanes
def test_a_port_that_defaults_to_roce_v1_uses_its_addresses(machine):
    machine.plug_in((SIM, [Port(["10.79.0.1"], "sim0", only_v1=["10.79.0.1"], roce1=True)]))
    assert "rdma %s 10.79.0.1" % names_of(machine)[0] in machine.copy()
    gids = [row["what"] for row in machine.check() if row.get("name") == "gid"]
    assert len(gids) == 1 and gids[0].startswith("connections use RoCE v1"), gids


@V1
@pytest.mark.may_skip("any", "only RoCE has versions", on="sim")
def test_another_address_with_roce_v2_is_used(machine):
    machine.plug_in((SIM, [Port(["10.79.0.1", "10.79.0.2"], "sim0", only_v1=["10.79.0.1"])]))
    said = machine.copy()
    assert "rdma %s 10.79.0.2" % names_of(machine)[0] in said, said


@pytest.mark.skipif(IWARP, reason="an iWARP adapter has Ethernet only")
@pytest.mark.may_skip("any", "an iWARP adapter has Ethernet only", on="sim")
@pytest.mark.lanes
def test_an_adapter_with_an_infiniband_and_an_ethernet_port(machine):
    ports = [Port(["10.79.0.1"], "sim0", layer="infiniband"), Port(["10.79.1.1"], "sim1", layer="ethernet")]
    run = machine.plug_in((SIM, ports), words=SLOWLY).start("--timeout=10")
    name, = names_of(machine)
    machine.await_data("10.79.0.1", "10.79.1.1")
    machine.set("down.%s.2" % name)
    said = machine.finish(run)
    assert "rail 2 of 2" in said and "lanes use the other rails" in said and "TCP" not in said, said
    assert "over rdma %s 10.79.0.1" % name in said.split("Gb/s ")[1], said
    layers = {row["subject"]: row["what"] for row in machine.check() if row.get("name") == "port"}
    assert any("InfiniBand" in what for what in layers.values()) and any("RoCE" in what for what in layers.values()), layers
