# SPDX-License-Identifier: Apache-2.0
"""Two hosts joined by cables, without a switch or a router: each has an adapter with two ports, and a cable leads from each
port to one of the other host. Adapters are simulated (tests/simverbs), but the network devices, their addresses and the
routes are real: those of two network namespaces."""

import atexit
import shutil
import subprocess
import tempfile

import pytest

from hosts import SIM, Host, in_halves, pattern, simulated, wait_until

if SIM:
    from make_host import Port

pytestmark = [
    pytest.mark.moves_blocks,
    pytest.mark.needs("sim", why="it makes hosts with simulated adapters"),
    pytest.mark.needs("root", why="only root can make network namespaces"),
    pytest.mark.may_skip("any", "may not make network namespaces", on="sim"),
]
BYTES = 12 << 20
SECONDS = 4  # that a copy over one such cable takes
SLOWLY = ["bandwidth %d" % (BYTES * 8 // SECONDS // 1000000)]
HOSTS = "near", "far"
NETDEVS = "sim0", "sim1"


class Cabled:
    """Port n of a host is sim<n>, with the addresses addresses[host][n], such as 10.79.0.1/24."""

    def __init__(self, networks, bench, tmp_path):
        self.bench, self.tmp, self.networks = bench, tmp_path, networks(2)
        self.data = pattern(BYTES)
        (tmp_path / "in").write_bytes(self.data)

    def ip(self, host, *words):
        assert self.networks.ip(host, *words), words

    def plug_in(self, addresses, crossed=False, words=SLOWLY, mtu=()):
        ends = [(n, 1 - n if crossed else n) for n in range(2)]
        fabric = tempfile.mkdtemp(prefix="simverbs-")
        atexit.register(shutil.rmtree, fabric, ignore_errors=True)
        for near, far in ends:
            self.ip(0, "link", "add", NETDEVS[near], "type", "veth", "peer", "name", NETDEVS[far], "netns", self.networks.names[1])
        for host in range(2):
            for netdev, those in zip(NETDEVS, addresses[host]):
                self.ip(host, "link", "set", netdev, "addrgenmode", "none")
                for address in those:
                    self.ip(host, "addr", "add", address, "dev", netdev, *["nodad"] * (":" in address))
                self.ip(host, "link", "set", netdev, "up", *mtu)
        # The cable of port n of the far host.
        cables = ["c0", "c1"], ["c1", "c0"] if crossed else ["c0", "c1"]
        plain = [[[a.split("/")[0] for a in those] for those in ports] for ports in addresses]
        self.envs = [simulated(adapters=[(SIM, [Port(plain[host][n], NETDEVS[n], cable=cables[host][n]) for n in range(2)])],
                               far=[(a, cables[1 - host][n]) for n in range(2) for a in plain[1 - host][n]],
                               fabric=fabric, link_words=words) for host in range(2)]
        self.hosts = [Host(name, None, None, [*self.networks.on(i), "env", "SIMVERBS=" + self.envs[i]["SIMVERBS"]])
                      for i, name in enumerate(HOSTS)]
        return self

    def device(self):
        text = open(self.envs[0]["SIMVERBS"] + "/personality").read()
        return next(line.split()[1] for line in text.splitlines() if line.startswith("device "))

    def environment(self):
        return {**self.envs[0], "SLUICE_TEST_HOSTS": "\n".join("%s %s" % (h.name, " ".join(h.prefix)) for h in self.hosts)}

    def start(self, *options, transport="--transport=rdma"):
        return self.bench.copy("-v", *options, "in", "far:%s/out" % self.tmp, transport=transport, wait=False,
                               host=self.hosts[0], env=self.environment())

    def finish(self, *runs):
        codes = [run.wait() for run in runs]
        said = "".join(run.errors() for run in runs)
        assert not any(codes), (codes, said)
        assert (self.tmp / "out").read_bytes() == self.data
        return said

    def copy(self, *options, **how):
        return self.finish(self.start(*options, **how))

    def start_stream(self, to, *options, source=()):
        """rdsend to an address of the far host."""
        sink = self.bench.receive("-v", *options, "--", "sh", "-c", "exec cat >out", host=self.hosts[1], env=self.envs[1],
                                  cwd=self.tmp)
        return self.bench.send(sink.port, "-v", *options, *(source or [self.tmp / "in"]), host=self.hosts[0], to=to,
                               env=self.envs[0], cwd=self.tmp), sink

    def stream(self, *args, **how):
        return self.finish(*self.start_stream(*args, **how))

    def pull(self, port):
        """The cable at a port of the near host; the ports at both ends go down."""
        for env in self.envs:
            open("%s/down.%s.%d" % (env["SIMVERBS"], self.device(), port), "w").close()


@pytest.fixture
def cabled(networks, bench, tmp_path):
    return Cabled(networks, bench, tmp_path)


def in_networks(*networks):
    """Of each host, the addresses of both ports; networks: a pattern for each port."""
    return [[[net % number] for net, number in zip(networks, numbers)] for numbers in ((1, 3), (2, 4))]


APART = in_networks("10.79.0.%d/24", "10.79.1.%d/24")


@pytest.mark.lanes
@pytest.mark.parametrize("crossed", [False, True])
def test_lanes_use_both_ports_of_an_adapter(cabled, crossed):
    addresses = APART if not crossed else [APART[0], APART[1][::-1]]
    said = cabled.plug_in(addresses, crossed).copy("--lanes=2")
    assert all("of 2: %s to %s:" % (cabled.device(), a) in said for a in ("10.79.0.2", "10.79.1.4")), said
    assert "failed" not in said, said


@pytest.mark.lanes
def test_a_cable_that_is_pulled_leaves_its_lanes_to_the_other(cabled):
    runs = cabled.plug_in(APART).start_stream("10.79.0.2", "--lanes=2", "--timeout=10",
                                                source=["--", "sh", "-c", in_halves(BYTES)])
    wait_until(lambda: (cabled.tmp / "out").exists() and (cabled.tmp / "out").stat().st_size >= BYTES // 4, 60)
    cabled.pull(2)
    (cabled.tmp / "go").touch()
    said = cabled.finish(*runs)
    assert "lanes use the other rails" in said and "TCP" not in said, said


@pytest.mark.lanes
@pytest.mark.parametrize("network", ["10.79.0.%d/24", "169.254.7.%d/16"])
@pytest.mark.parametrize("flux", [[], ["flux yes"]])
def test_ports_in_one_network_lead_to_the_port_at_their_cable(cabled, network, flux):
    """Routing sends everything through one port. From there only one address is reached. With flux, the port there answers
    ARP requests for the other one, too, and nothing after that."""
    said = cabled.plug_in(in_networks(network, network), words=SLOWLY + flux).copy("--lanes=2")
    assert all("of 2: %s to %s:" % (cabled.device(), network.split("/")[0] % n) in said for n in (2, 4)), said
    assert "failed" not in said, said


@pytest.mark.lanes
@pytest.mark.parametrize("port", [0, 1])
def test_a_link_local_address_is_that_of_its_interface(cabled, port):
    """Both ports have the same."""
    addresses = [[["fe80::1/64"]] * 2, [["fe80::2/64"]] * 2]
    said = cabled.plug_in(addresses).stream("fe80::2%%%s" % NETDEVS[port])
    assert "rdma %s [fe80::2%%%s]" % (cabled.device(), NETDEVS[port]) in said, said


def test_rdcp_over_ssh_knows_no_link_local_addresses(cabled):
    """Nothing says on which interface of the other host they are: the lanes go over ssh."""
    said = cabled.plug_in([[["fe80::1/64"]] * 2, [["fe80::2/64"]] * 2]).copy(transport="--transport=auto")
    assert "over ssh" in said, said
