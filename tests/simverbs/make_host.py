#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the directory of a simulated host (host.h):

    make_host.py PERSONALITY DIRECTORY [--netdev NAME] [--fabric NAME] [--address IP]... [--silent IP]... [--unlinked IP]...
        [--bandwidth MBITS] [--latency US] [--loss N]

The addresses are those of the adapter, by default 127.0.0.1 and ::1 of the device lo."""

import argparse
import ipaddress
import pathlib
import secrets
import shutil

HERE = pathlib.Path(__file__).resolve().parent
PCI = "devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0"


def read_words(path):
    words = {}
    for line in path.read_text().splitlines():
        parts = line.partition("#")[0].split(None, 1)
        if parts:
            words[parts[0]] = parts[1].strip()
    return words


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n")


def link(path, target):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)


def gid(address):
    ip = ipaddress.ip_address(address)
    raw = ip.packed if ip.version == 6 else b"\0" * 10 + b"\xff\xff" + ip.packed
    return ":".join(raw[i:i + 2].hex() for i in range(0, 16, 2))


def make_port(port, words, addresses, netdev):
    ethernet = words["ethernet"] == "1"
    write(port / "state", "4: ACTIVE")
    write(port / "phys_state", "5: LinkUp")
    write(port / "rate", words["sys.rate"])
    write(port / "link_layer", "Ethernet" if ethernet else "InfiniBand")
    types = ["IB/RoCE v1", "RoCE v2"] if ethernet and words["iwarp"] == "0" else ["IB/RoCE v1"]
    index = 0
    for address in addresses:
        for kind in types:
            write(port / "gids" / str(index), gid(address))
            write(port / "gid_attrs/types" / str(index), kind)
            if ethernet:
                write(port / "gid_attrs/ndevs" / str(index), netdev)
            index += 1


def make_sys(top, words, addresses, netdev):
    name = words["device"]
    pci = top / PCI
    device = pci / "infiniband" / name
    write(device / "node_type", "4: RNIC" if words["iwarp"] == "1" else "1: CA")
    write(device / "node_guid", "5254:0012:3456:789a")
    for word in "hca_type", "fw_ver", "board_id":
        if "sys." + word in words:
            write(device / word, words["sys." + word])
    link(device / "device", "../../../0000:3b:00.0")
    make_port(device / "ports/1", words, addresses, netdev)
    write(pci / "numa_node", "-1")
    for where in pci, pci.parent:
        for which in "current", "max":
            write(where / (which + "_link_speed"), words["sys.pcie_speed"])
            write(where / (which + "_link_width"), words["sys.pcie_width"])
    driver = top / "bus/pci/drivers" / words["driver"]
    driver.mkdir(parents=True)
    link(pci / "driver", "../../../../bus/pci/drivers/" + words["driver"])
    write(pci / "infiniband_verbs/uverbs0/ibdev", name)
    link(top / "class/infiniband" / name, "../../%s/infiniband/%s" % (PCI, name))
    write(top / "class/misc/rdma_cm/dev", "10:58")
    link(top / "class/infiniband_verbs/uverbs0", "../../%s/infiniband_verbs/uverbs0" % PCI)


def make_host(personality, directory, addresses=("127.0.0.1", "::1"), netdev="lo", fabric=None, silent=(), unlinked=(), link_words=(), limits=None):
    source = HERE / "personalities" / personality
    top = pathlib.Path(directory)
    shutil.rmtree(top, ignore_errors=True)
    top.mkdir(parents=True)
    top.chmod(0o755)
    lines = source.read_text().splitlines()
    for word, value in (limits or {}).items():
        lines = [line for line in lines if line.split(None, 1)[:1] != [word]] + ["%s %s" % (word, value)]
    write(top / "personality", "\n".join(lines))
    lines = ["fabric " + (fabric or secrets.token_hex(8))]
    lines += ["address " + a for a in addresses] + ["silent " + a for a in silent] + ["unlinked " + a for a in unlinked]
    lines += list(link_words)
    write(top / "host", "\n".join(lines))
    make_sys(top / "sys", read_words(source), addresses, netdev)
    # What plug.h shows while the adapter is not there, or its port is down.
    for name in "infiniband", "infiniband_verbs":
        (top / "pulled-out/sys/class" / name).mkdir(parents=True)
    (top / "pulled-out/dev/infiniband").mkdir(parents=True)
    write(top / "idle/state", "1: DOWN")
    write(top / "idle/phys_state", "3: Disabled")
    for name in "rdma_cm", "uverbs0":
        write(top / "dev/infiniband" / name, "")
        (top / "dev/infiniband" / name).chmod(0o666)


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
