#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the directory of a simulated host (host.h):

    make_host.py PERSONALITY DIRECTORY [--netdev NAME] [--fabric NAME] [--address IP]... [--silent IP]... [--unlinked IP]...
        [--bandwidth MBITS] [--latency US] [--loss N]

The addresses are those of the adapter, by default 127.0.0.1 and ::1 of the device lo. Hosts with several adapters or ports
are made in Python: make_host(adapters=[(PERSONALITY, [Port(...), ...]), ...])."""

import argparse
import ipaddress
import pathlib
import secrets
import shutil

HERE = pathlib.Path(__file__).resolve().parent


NAMES = ("device", "driver", "iwarp", "ethernet")


def read_words(path):
    """A personality. Each number must have its source in a comment."""
    words = {}
    for line in path.read_text().splitlines():
        text, _, source = line.partition("#")
        parts = text.split(None, 1)
        if not parts:
            continue
        if not source.strip() and parts[0] not in NAMES and not parts[0].startswith("sys."):
            raise SystemExit("%s: %s has no source" % (path, parts[0]))
        words[parts[0]] = parts[1].strip()
    return words


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")


def link(path, target):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)


def gid(raw):
    return ":".join(raw[i:i + 2].hex() for i in range(0, 16, 2))


def gid_of_address(address):
    ip = ipaddress.ip_address(address)
    return gid(ip.packed if ip.version == 6 else b"\0" * 10 + b"\xff\xff" + ip.packed)


def gid_of_guid(guid):
    """Link-local, as GID 0 of each port has it."""
    return "fe80:0000:0000:0000:" + guid


class Port:
    """A port of an adapter.

    addresses: those of its network device. vlans: network devices of VLANs on it, with their addresses. only_v1:
    addresses that have a GID of RoCE v1 only. layer: of the link, the adapter's own by default. cable: the name of one
    that leads to a port of another host. roce1: its default_roce_mode."""

    def __init__(self, addresses=("127.0.0.1", "::1"), netdev="lo", vlans=None, only_v1=(), layer=None, cable="", roce1=False):
        self.addresses, self.netdev, self.vlans, self.only_v1, self.layer = list(addresses), netdev, vlans or {}, only_v1, layer
        self.cable, self.roce1 = cable, roce1

    def all_addresses(self):
        """Pairs of an address and its zone."""
        those = [(a, netdev) for netdev, of in ((self.netdev, self.addresses), *self.vlans.items()) for a in of]
        return [(a, "%%%s" % netdev if a.startswith("fe80:") else "") for a, netdev in those]

    def has_ethernet(self, words):
        return self.layer == "ethernet" if self.layer else words["ethernet"] == "1"

    def gids(self, words, guid):
        """Rows of the table: GID, type, network device. InfiniBand and iWARP have one, RoCE two for each address."""
        if words["iwarp"] == "1" or not self.has_ethernet(words):
            return [(gid_of_guid(guid), "IB/RoCE v1", self.netdev if self.has_ethernet(words) else None)]
        rows = [(gid_of_guid(guid), self.netdev, False)]
        for netdev, those in ((self.netdev, self.addresses), *self.vlans.items()):
            rows += [(gid_of_address(a), netdev, a in self.only_v1) for a in those]
        return [(raw, kind, netdev) for raw, netdev, old in rows for kind in ("IB/RoCE v1", "RoCE v2")[:1 if old else 2]]


def make_port(top, device, number, port, words, guid):
    where = device / "ports" / str(number)
    write(where / "state", "4: ACTIVE")
    write(where / "phys_state", "5: LinkUp")
    write(where / "rate", words["sys.rate"])
    write(where / "link_layer", "Ethernet" if port.has_ethernet(words) else "InfiniBand")
    for index, (raw, kind, netdev) in enumerate(port.gids(words, guid)):
        write(where / "gids" / str(index), raw)
        write(where / "gid_attrs/types" / str(index), kind)
        if netdev:
            write(where / "gid_attrs/ndevs" / str(index), netdev)
    for vlan in port.vlans:
        (top / "class/net" / vlan / ("lower_" + port.netdev)).mkdir(parents=True)


def make_adapter(top, index, words, ports, node):
    """An adapter is a PCI function, below a bridge of its own."""
    name = words["device"]
    where = "devices/pci0000:3a/0000:3a:%02x.0/0000:%02x:00.0" % (index, 0x3b + index)
    pci = top / where
    device = pci / "infiniband" / name
    guid = "5254:0012:3456:789%x" % (10 + index)
    write(device / "node_type", "4: RNIC" if words["iwarp"] == "1" else "1: CA")
    write(device / "node_guid", guid)
    for word in "hca_type", "fw_ver", "board_id":
        if "sys." + word in words:
            write(device / word, words["sys." + word])
    link(device / "device", "../../../" + pci.name)
    for number, port in enumerate(ports, 1):
        make_port(top, device, number, port, words, guid)
        if port.roce1:
            write(top / "kernel/config/rdma_cm" / name / "ports" / str(number) / "default_roce_mode", "IB/RoCE v1")
        (pci / "net" / port.netdev).mkdir(parents=True, exist_ok=True)
        if len(ports) > 1:
            write(top / "class/net" / port.netdev / "dev_port", str(number - 1))
    write(pci / "numa_node", str(node))
    for side in pci, pci.parent:
        for which in "current", "max":
            write(side / (which + "_link_speed"), words["sys.pcie_speed"])
            write(side / (which + "_link_width"), words["sys.pcie_width"])
    (top / "bus/pci/drivers" / words["driver"]).mkdir(parents=True, exist_ok=True)
    link(pci / "driver", "../../../../bus/pci/drivers/" + words["driver"])
    write(pci / ("infiniband_verbs/uverbs%d" % index) / "ibdev", name)
    link(top / "class/infiniband" / name, "../../%s/infiniband/%s" % (where, name))
    link(top / ("class/infiniband_verbs/uverbs%d" % index), "../../%s/infiniband_verbs/uverbs%d" % (where, index))


def name_adapter(words, index, taken):
    """mlx5_0 becomes mlx5_1, if there is one."""
    name = words["device"]
    while name in taken:
        name = name.rstrip("0123456789") + str(index) if name[-1].isdigit() else name + str(index)
        index += 1
    words["device"] = name
    taken.add(name)


def describe_ports(index, words, ports):
    lines = []
    for number, port in enumerate(ports, 1):
        lines.append("port %d %d %s %s" % (index, number, "ethernet" if port.has_ethernet(words) else "infiniband", port.cable))
        lines += ["roce1 %d %d" % (index, number)] * port.roce1
        lines += ["address %s%s %d %d%s" % (a, zone, index, number, " v1" if a in port.only_v1 else "")
                  for a, zone in port.all_addresses()]
    return lines


def make_host(personality, directory, addresses=("127.0.0.1", "::1"), netdev="lo", fabric=None, silent=(), unlinked=(), link_words=(), limits=None,
              adapters=None, far=(), nodes=()):
    """adapters: the personality and the ports of each adapter; by default one with one port, of `personality'. limits:
    words of all personalities that are to be other than they are. far: pairs of an address and the cable that leads to it.
    nodes: the processors of each memory node, as a cpulist; adapters are at the last one."""
    top = pathlib.Path(directory)
    shutil.rmtree(top, ignore_errors=True)
    top.mkdir(parents=True)
    top.chmod(0o755)
    lines = ["fabric " + (fabric or secrets.token_hex(8))]
    taken = set()
    for index, (which, ports) in enumerate(adapters or [(personality, [Port(addresses, netdev)])]):
        words = {**read_words(HERE / "personalities" / which), **{word: str(value) for word, value in (limits or {}).items()}}
        name_adapter(words, index, taken)
        write(top / ("personality.%d" % index if index else "personality"), "\n".join("%s %s" % word for word in words.items()))
        lines += describe_ports(index, words, ports)
        make_adapter(top / "sys", index, words, ports, len(nodes) - 1)
        write(top / ("dev/infiniband/uverbs%d" % index), "")
    lines += ["silent " + a for a in silent] + ["unlinked " + a for a in unlinked] + ["far %s %s" % those for those in far]
    lines += list(link_words)
    write(top / "host", "\n".join(lines))
    write(top / "sys/class/misc/rdma_cm/dev", "10:58")
    for node, cpus in enumerate(nodes):
        write(top / ("sys/devices/system/node/node%d/cpulist" % node), cpus)
    if nodes:
        write(top / "sys/devices/system/node/online", "0-%d" % (len(nodes) - 1))
    write(top / "dev/infiniband/rdma_cm", "")
    # What plug.h shows while an adapter is not there, or its port is down.
    for name in "infiniband", "infiniband_verbs":
        (top / "pulled-out/sys/class" / name).mkdir(parents=True)
    (top / "pulled-out/dev/infiniband").mkdir(parents=True)
    write(top / "idle/state", "1: DOWN")
    write(top / "idle/phys_state", "3: Disabled")
    for name in (top / "dev/infiniband").iterdir():
        name.chmod(0o666)


def main():
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("personality")
    words.add_argument("directory")
    words.add_argument("--netdev", default="lo")
    words.add_argument("--fabric")
    for name in "address", "silent", "unlinked":
        words.add_argument("--" + name, action="append", default=[])
    words.add_argument("--stamp", type=pathlib.Path, help="a file to touch when the host is made")
    for name in "bandwidth", "latency", "loss":
        words.add_argument("--" + name, type=int)
    a = words.parse_args()
    link_words = ["%s %d" % (n, getattr(a, n)) for n in ("bandwidth", "latency", "loss") if getattr(a, n)]
    make_host(a.personality, a.directory, a.address or ("127.0.0.1", "::1"), a.netdev, a.fabric, a.silent, a.unlinked, link_words)
    if a.stamp:
        a.stamp.touch()


if __name__ == "__main__":
    main()
