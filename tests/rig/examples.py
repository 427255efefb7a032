# SPDX-License-Identifier: Apache-2.0
"""Runs the command lines of documents in shells on the two test hosts.

Each host has a directory of its own, in which its commands run. The PATH has our programs, and scripts that replace
zfs, pg_dump and scp."""

import os
import re
import shutil

from hosts import DEMAND, FAR, NEAR, OP, ROOT, RSH, pattern, program

DATA = pattern(600_000)
NAMES = {NEAR: ("host1", "a1"), FAR: ("host", "host2", "storage2", "backup", "far", "tape", "a2")}


def readme():
    """The blocks of command lines under "Use it"."""
    text = (ROOT / "README.md").read_text().split("\n## Use it\n")[1].split("\n## ")[0]
    return [block.split("\n") for block in re.findall(r"(?:^ {4}.*\n?)+", text, re.M)]


def manual(page):
    """The blocks of command lines under EXAMPLES."""
    text = (ROOT / "man" / page).read_text().split("\n.SH EXAMPLES\n")[1].split("\n.SH ")[0]
    for escape, character in ((r"\(aq", "'"), (r"\-", "-"), (r"\e", "\\")):
        text = text.replace(escape, character)
    return [block.split("\n") for block in re.findall(r"^\.nf\n(.*?)\n\.fi$", text, re.M | re.S)]


def lines(blocks):
    """Yields each command without its prompt, in a list; a receiver comes in one list with its sender."""
    for block in blocks:
        block = [re.sub(r"^\w+\$ ", "", line.strip()) for line in block if line.strip()]
        while block:
            pair = "rdrecv" in block[0] and len(block) > 1 and "rdsend" in block[1]
            yield block[:1 + pair]
            block = block[1 + pair:]


def script(path, text):
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)


class Shells:
    def __init__(self, bench, top):
        self.bench, self.tools = bench, top / "tools"
        self.homes = {NEAR: top / "near", FAR: top / "far"}
        for path in (self.tools, *self.homes.values()):
            path.mkdir()
        hosts = "\n".join("%s %s" % (n, " ".join([*h.prefix, "env", "-C", str(self.homes[h])]))
                          for h, names in NAMES.items() for n in names)
        self.env = {"PATH": "%s:%s" % (self.tools, os.environ["PATH"]), "SLUICE_TEST_HOSTS": hosts,
                    "RD_KEY": "a test key"}
        self.make_tools()

    def make_tools(self):
        for name in ("rdsend", "rdrecv"):
            script(self.tools / name, 'case "$1" in --make-key) exec %s "$@";; esac\nexec %s %s "$@"\n' % (
                program(name), program(name), " ".join([DEMAND, *OP])))
        script(self.tools / "rdcp", 'exec %s %s --rsh %s --rdcp-path %s "$@"\n' % (
            program("rdcp"), " ".join([DEMAND, *OP]), RSH, program("rdcp")))
        script(self.tools / "zfs", 'case $1 in send) cat file;; recv) cat > received;; esac\n')
        script(self.tools / "pg_dump", "cat file\n")
        script(self.tools / "scp", 'cp -p "$1" %s/\n' % self.homes[FAR])

    def start(self, host, line):
        return self.bench.start(["bash", "-o", "pipefail", "-c", line], host=host, cwd=self.homes[host], env=self.env,
                                home=self.homes[FAR])

    def run(self, host, line):
        r = self.start(host, line)
        assert r.wait() == 0, "%s: %s" % (line, r.errors())

    def receive(self, line, port):
        """Starts a receiver on the far host, and returns when it listens."""
        r = self.start(FAR, self.fill(line, port).replace("rdrecv ", "rdrecv -v ", 1))
        r.expect("listening on")
        return r

    def send(self, line, port, host=NEAR):
        return self.start(host, self.fill(line, port))

    @staticmethod
    def fill(line, port):
        """Replaces the port and the host of the document with those of the test."""
        return re.sub(r"\b(HOST|host[23])(?= )", FAR.address, re.sub(r"\b(12345|7000)(?= )", str(port), line))

    def copy_key(self, name):
        """Copies a key to the far host, as the text above the example says."""
        shutil.copy(self.homes[NEAR] / name, self.homes[FAR] / name)
